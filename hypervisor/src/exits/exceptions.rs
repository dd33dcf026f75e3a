//! The EL2 vectors: entry from guests and return to them, and the handling of exceptions of EL2 itself.

use crate::devices::{console, gic, power};
use crate::exits::traps;
use crate::machine::registers::{ELR_EL2, ESR_EL2, FAR_EL2, Readable, SP_EL1, SPSR_EL2};
use crate::machine::{early, layout};
use crate::vm::guest_registers::GuestRegisters;
use crate::vm::{cpu, interrupts, life, uart, virq};
use cloison_formats::telemetry::ExitReason;
use core::arch::global_asm;

global_asm!(
    r#"
    .macro SAVE_LOW
    sub     sp, sp, #256
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    .endm
    .macro RESTORE_LOW
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]
    add     sp, sp, #256
    .endm
    .macro SAVE
    SAVE_LOW
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    str     x30, [sp, #240]
    .endm
    // For handlers that are Rust functions and do not use the callee-saved registers.
    .macro SAVE_VOLATILE
    SAVE_LOW
    str     x18, [sp, #144]
    stp     x29, x30, [sp, #232]
    .endm
    .macro FATAL kind
    .balign 128
    // The stack may be the problem: continue on the emergency stack, once there is one.
    msr     tpidr_el1, x1
    mrs     x1, tpidr_el2
    cbz     x1, 1f
    msr     elr_el1, x0
    mov     x0, sp
    msr     sp_el1, x0
    ldr     x1, [x1]
    mov     sp, x1
    mrs     x0, elr_el1
1:  mrs     x1, tpidr_el1
    SAVE
    mov     x0, sp
    mov     x1, #\kind
    bl      {fatal_exception}
    b       .
    .endm
    .macro GUEST handler
    .balign 128
    SAVE
    mov     x0, sp
    bl      \handler
    b       restore
    .endm

    .section .text.vectors, "ax"
    .balign 2048
    .global vectors
vectors:
    FATAL 0
    FATAL 1
    FATAL 2
    FATAL 3
    FATAL 4
    FATAL 5
    FATAL 6
    FATAL 7
    GUEST {guest_sync}
    .balign 128
    SAVE_VOLATILE
    bl      {guest_irq}
    b       restore_volatile
    GUEST {guest_irq}
    GUEST {guest_serror}
    .balign 128
    mov     x0, #8
    b       aarch32
    .balign 128
    mov     x0, #9
    b       aarch32
    .balign 128
    mov     x0, #10
    b       aarch32
    .balign 128
    mov     x0, #11
aarch32:
    bl      {guest_aarch32}
    b       .

restore_volatile:
    ldp     x29, x30, [sp, #232]
    ldr     x18, [sp, #144]
    RESTORE_LOW
    eret

restore:
    ldr     x30, [sp, #240]
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    RESTORE_LOW
    eret
"#,
    fatal_exception = sym fatal_exception,
    guest_sync = sym guest_sync,
    guest_irq = sym guest_irq,
    guest_serror = sym guest_serror,
    guest_aarch32 = sym guest_aarch32,
);

extern "C" fn guest_sync(registers: &mut GuestRegisters) {
    let cpu = cpu::this();
    traps::dispatch(cpu, registers);
}

extern "C" fn guest_irq() {
    let cpu = cpu::this();
    let acknowledged = gic::acknowledge();
    if acknowledged == gic::VIRTUAL_TIMER {
        cpu.count_exit(ExitReason::Timer);
        virq::timer(cpu);
        if cpu.line.get() != cpu::Line::Whole {
            uart::tick_in_line(cpu);
        }
        return;
    }
    cpu.count_exit(ExitReason::Interrupt);
    other_interrupt(cpu, acknowledged);
}

#[cold]
#[inline(never)]
fn other_interrupt(cpu: &'static cpu::Cpu, acknowledged: u32) {
    interrupts::serve(cpu, acknowledged);
    // A core whose budget is spent is held here. Interrupts for its VM are taken and kept in list registers meanwhile.
    while cpu.throttled.get() && !cpu.leave.get() {
        aarch64_cpu::asm::wfi();
        interrupts::serve(cpu, gic::acknowledge());
    }
    if cpu.leave.get() {
        life::leave(cpu);
    }
}

extern "C" fn guest_serror(_: &mut GuestRegisters) {
    let cpu = cpu::this();
    // Caused by the guest's own access; one caused by the hypervisor would arrive at the vectors above.
    life::kill(cpu, format_args!("SError, syndrome {:#x}", ESR_EL2.get()));
}

extern "C" fn guest_aarch32() -> ! {
    // EL1 is AArch64 (HCR_EL2.RW); a guest that runs AArch32 programs at EL0 ends here on its first exit.
    life::kill(cpu::this(), format_args!("AArch32 is not supported"))
}

/// Prints what is known about an exception that EL2 took from itself, and turns the machine off.
extern "C" fn fatal_exception(registers: &GuestRegisters, kind: u64) -> ! {
    const KINDS: [&str; 4] = ["synchronous", "IRQ", "FIQ", "SError"];
    let esr = ESR_EL2.get();
    console::print_fatal(format_args!(
        "\n[core {}] fatal {} exception in the hypervisor: ESR {esr:#x} (EC {:#x}), ELR {:#x}, FAR {:#x}, SPSR {:#x}, SP {:#x}\n",
        cpu::current_index(),
        KINDS[kind as usize & 3],
        cloison_logic::syndrome::class(esr),
        ELR_EL2.get(),
        FAR_EL2.get(),
        SPSR_EL2.get(),
        SP_EL1.get(),
    ));
    for (row, values) in registers.x.chunks(4).enumerate() {
        let mut text = Line { bytes: [0; 160], len: 0 };
        for (column, value) in values.iter().enumerate() {
            let _ = core::fmt::write(&mut text, format_args!("  x{:<2} {value:#018x}", row * 4 + column));
        }
        console::print_fatal(format_args!("{}\n", text.as_str()));
    }
    backtrace(registers.x[29]);
    power::off()
}

/// A line of text on the stack, because the heap may be broken.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let take = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Prints the return addresses of the stack frames from `frame` on.
fn backtrace(mut frame: u64) {
    console::print_fatal(format_args!("backtrace:"));
    for _ in 0..16 {
        let on_stack = (layout::STACKS..layout::STACKS + 0x10_0000).contains(&frame);
        let in_image = (early::image().data..early::image().end).contains(&frame);
        if frame & 15 != 0 || !(on_stack || in_image) {
            break;
        }
        // SAFETY: the address is in a stack or in the image's data, both mapped. A broken chain of stack frames gives a
        // wrong address, not a fault, because the loop checks each link.
        let (next, address) = unsafe { ((frame as *const u64).read(), (frame as *const u64).add(1).read()) };
        console::print_fatal(format_args!(" {address:#x}"));
        if next <= frame {
            break;
        }
        frame = next;
    }
    console::print_fatal(format_args!("\n"));
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    console::print_fatal(format_args!("\n[core {}] hypervisor panic: {info}\n", cpu::current_index()));
    let frame: u64;
    // SAFETY: reads the frame pointer.
    unsafe { core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack)) };
    backtrace(frame);
    power::off()
}
