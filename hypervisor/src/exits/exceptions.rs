//! The EL2 vectors: entry from guests and return to them, and the handling of exceptions of EL2
//! itself.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, gic, power};
use crate::exits::{hypercall, traps};
use crate::machine::layout::MAX_CORES;
use crate::machine::registers::{ELR_EL2, ESR_EL2, FAR_EL2, Readable, SP_EL1, SPSR_EL2};
use crate::machine::{early, layout};
use crate::vm::cpu::Visit;
use crate::vm::guest_registers::GuestRegisters;
use crate::vm::{cpu, interrupts, life, uart, virq};
use cloison_formats::telemetry::ExitReason;
use cloison_logic::syndrome;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

global_asm!(
    r#"
    // An exception frame of 256 bytes on EL2's stack: x0 to x30 at 8 bytes each, as
    // `GuestRegisters` lays them out. SP stays aligned to 16 bytes, which SCTLR_EL2.SA checks.
    // Stores or loads the registers that a call may change, and those that it keeps.
    .macro LOW op
    \op     x0, x1, [sp]
    \op     x2, x3, [sp, #16]
    \op     x4, x5, [sp, #32]
    \op     x6, x7, [sp, #48]
    \op     x8, x9, [sp, #64]
    \op     x10, x11, [sp, #80]
    \op     x12, x13, [sp, #96]
    \op     x14, x15, [sp, #112]
    \op     x16, x17, [sp, #128]
    .endm
    .macro HIGH pair, single
    \pair   x18, x19, [sp, #144]
    \pair   x20, x21, [sp, #160]
    \pair   x22, x23, [sp, #176]
    \pair   x24, x25, [sp, #192]
    \pair   x26, x27, [sp, #208]
    \pair   x28, x29, [sp, #224]
    \single x30, [sp, #240]
    .endm
    // ERET alone does not keep every CPU from executing what follows it speculatively. The two
    // barriers do; they are never reached otherwise.
    // No core speculates past the return with EL2's registers.
    .macro RETURN
    eret
    dsb     nsh
    isb
    .endm
    .macro LEAVE
    LOW     ldp
    add     sp, sp, #256
    RETURN
    .endm
    // All registers: the handler may read and change each of them.
    .macro SAVE
    sub     sp, sp, #256
    LOW     stp
    HIGH    stp, str
    .endm
    .macro FATAL kind
    .balign 128
    // One of the vectors that take exceptions from EL2 itself. EL1's registers serve as scratch
    // space: the machine turns off, so no guest misses them. SP_EL1 keeps the old SP for the
    // report.
    // The stack may be the problem: continue on the emergency stack, once there is one.
    msr     tpidr_el1, x1
    mrs     x1, tpidr_el2
    cbz     x1, 1f
    msr     elr_el1, x0
    mov     x0, sp
    msr     sp_el1, x0
    // TPIDR_EL2 points to `Cpu`, whose first field is the emergency stack.
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
    // An exception from a guest. The handler gets the frame as its argument. ELR_EL2 and SPSR_EL2
    // stay in their registers: interrupts are masked at EL2, so that no exception overwrites them.
    .macro GUEST handler
    .balign 128
    SAVE
    mov     x0, sp
    bl      \handler
    b       restore
    .endm

    // VBAR_EL2 has 11 zero bits, and each of the 16 vectors has 128 bytes: four from EL2 with
    // SP_EL0, which it never uses, four from EL2, four from an AArch64 guest, and four from an
    // AArch32 one. In each group: synchronous, IRQ, FIQ, SError.
    .section .text.vectors, "ax"
    .balign 2048
    .global vectors
vectors:
    // The lowest two bits of a kind are the type of the exception, in the order of the vectors.
    .irp kind, 0, 1, 2, 3, 4, 5, 6, 7
    FATAL   \kind
    .endr
    .balign 128
    // A synchronous exception. An HVC needs x0 to x3 alone, and calls a Rust function that keeps the
    // others as IRQ's does. EC in ESR_EL2: bits 31 to 26 (Arm ARM DDI 0487, D24.2.40). Aborts, where
    // bit 31 is set, lose one instruction by it.
    sub     sp, sp, #256
    LOW     stp
    mrs     x1, esr_el2
    mov     x0, sp
    tbnz    w1, #31, 1f
    lsr     w9, w1, #26
    cmp     w9, #{hvc64}
    b.ne    1f
    str     x18, [sp, #144]
    stp     x29, x30, [sp, #232]
    bl      {guest_hvc}
    b       restore_volatile
1:  HIGH    stp, str
    bl      {guest_sync}
    b       restore
    .balign 128
    // IRQ, the most frequent exit, stores half as many registers as SAVE.
    // The handler is a Rust function that does not use the callee-saved registers.
    sub     sp, sp, #256
    LOW     stp
    str     x18, [sp, #144]
    stp     x29, x30, [sp, #232]
    bl      {guest_irq}
    b       restore_volatile
    GUEST {guest_irq}
    GUEST {guest_serror}
    // No registers are saved: the VM ends here.
    .rept 4
    .balign 128
    bl      {guest_aarch32}
    .endr

// The handler has kept x19 to x28, as any function does (AAPCS64).
restore_volatile:
    ldp     x29, x30, [sp, #232]
    ldr     x18, [sp, #144]
    LEAVE

restore:
    HIGH    ldp, ldr
    LEAVE
"#,
    fatal_exception = sym fatal_exception,
    guest_hvc = sym hypercall::hvc,
    guest_sync = sym traps::synchronous,
    hvc64 = const syndrome::HVC64,
    guest_irq = sym guest_irq,
    guest_serror = sym guest_serror,
    guest_aarch32 = sym guest_aarch32,
);

/// Handles an interrupt that arrives while a guest runs. The virtual timer's is the most frequent,
/// and takes the shortest way: its priority is dropped, and the guest's EOI deactivates it through
/// its list register.
extern "C" fn guest_irq() {
    let visit = Visit::begin();
    let acknowledged = gic::acknowledge();
    if acknowledged == gic::VIRTUAL_TIMER {
        visit.count_exit(ExitReason::Timer);
        // Only dropped: with EOImode 1 it stays active, so that it does not arrive again before the
        // guest has ended it.
        gic::drop_priority(acknowledged);
        let is_listed = virq::timer(*visit);
        if !is_listed || visit.line.get() != cpu::Line::Whole {
            finish_timer(visit, is_listed);
        }
    } else if acknowledged & 0x3ff == gic::CALL && virq::is_doorbell_followed(*visit) {
        // A peer has called, and its guest waits for this one's. Its VM pays for the interrupt.
        visit.count_exit(ExitReason::Interrupt);
        gic::drop_priority(acknowledged);
        gic::deactivate(acknowledged);
        life::hold(visit);
    } else {
        other_interrupt(visit, acknowledged);
    }
}

/// Handles what is rare at the timer's interrupt.
#[cold]
fn finish_timer(visit: Visit, is_listed: bool) {
    if !is_listed {
        virq::fill(*visit);
    }
    // A guest that neither finishes its line nor waits still takes its ticks: this is when EL2
    // prints a prompt.
    if visit.line.get() != cpu::Line::Whole {
        uart::tick_in_line(*visit);
    }
}

/// Handles an interrupt that may spend a budget, or stop this vCPU. It is not inlined: its
/// registers would have to be saved for the timer's interrupt too.
#[cold]
#[inline(never)]
fn other_interrupt(visit: Visit, acknowledged: u32) {
    visit.count_exit(ExitReason::Interrupt);
    // Then `hold`: the handler may have spent a budget, or received a request to stop.
    interrupts::serve(*visit, acknowledged);
    life::hold(visit);
}

/// Handles an SError that arrives while a guest runs (HCR_EL2.AMO). It is imprecise: the guest
/// cannot continue.
extern "C" fn guest_serror(_: &mut GuestRegisters) {
    // Caused by the guest's own access; one caused by the hypervisor would arrive at the vectors
    // above.
    let esr = ESR_EL2.get();
    life::kill(Visit::begin(), format_args!("SError, syndrome {esr:#x}"));
}

/// Handles any exception from AArch32, at the last four vectors.
extern "C" fn guest_aarch32() -> ! {
    // EL1 is AArch64 (HCR_EL2.RW); a guest that runs AArch32 programs at EL0 ends here on its first
    // exit.
    life::kill(Visit::begin(), format_args!("AArch32 is not supported"))
}

/// Fatal exceptions that each core has taken: one in the report on another must not start over.
static FATAL: [AtomicU8; MAX_CORES] = [const { AtomicU8::new(0) }; MAX_CORES];

/// Prints what is known about an exception that EL2 took from itself, and turns the machine off.
extern "C" fn fatal_exception(registers: &GuestRegisters, kind: u64) -> ! {
    // EL2 takes an SError only where `take_pending_serror` lets it: before the first guest.
    const KINDS: [&str; 4] = ["synchronous", "IRQ", "FIQ", "pending SError"];
    // The report itself may fault, for example in the console's registers. Then the machine is
    // turned off without one; if that faults too, the core stops here.
    match FATAL[cpu::current_index() % MAX_CORES].fetch_add(1, Relaxed) {
        0 => {}
        1 => power::off(),
        // Turning it off failed as well.
        _ => power::idle(),
    }
    let esr = ESR_EL2.get();
    console::print_fatal(format_args!(
        "\n[core {}] fatal {} exception in the hypervisor: ESR {esr:#x} (EC {:#x}), ELR {:#x}, \
         FAR {:#x}, SPSR {:#x}, SP {:#x}\n",
        cpu::current_index(),
        KINDS[kind as usize & 3],
        syndrome::class(esr),
        ELR_EL2.get(),
        FAR_EL2.get(),
        SPSR_EL2.get(),
        SP_EL1.get(),
    ));
    for (number, value) in registers.x.iter().enumerate() {
        let end = if number % 4 == 3 || number == 30 {
            "\n"
        } else {
            ""
        };
        console::print_fatal(format_args!("  x{number:<2} {value:#018x}{end}"));
    }
    // x29 is the frame pointer (AAPCS64): the image is built with frame pointers.
    backtrace(registers.x[29]);
    power::off()
}

/// Prints the return addresses of the stack frames from `frame` on.
///
/// At most 16, and without locks or allocation: the state of the core is not trusted any more.
fn backtrace(mut frame: u64) {
    let image = early::image();
    console::print_fatal(format_args!("backtrace:"));
    for _ in 0..16 {
        // A frame record of AAPCS64: the caller's x29, and the return address. x29 is not trusted:
        // the exception may be due to a stack that was overwritten.
        let on_stack = layout::stack(cpu::current_index()).contains(&frame);
        let in_image = (image.data..image.end).contains(&frame);
        if !frame.is_multiple_of(16) || !(on_stack || in_image) {
            break;
        }
        // SAFETY: the address is in this core's stack or in the image's data, both mapped, as all
        // of their 16 bytes are. A broken chain of stack frames gives a wrong address, not a fault,
        // because the loop checks each link.
        let [next, address] = unsafe { (frame as *const [u64; 2]).read() };
        console::print_fatal(format_args!(" {address:#x}"));
        // Stacks grow down, so the caller's frame is above. A chain that does not ascend would not
        // end.
        if next <= frame {
            break;
        }
        frame = next;
    }
    console::print_fatal(format_args!("\n"));
}

/// Reports a bug of the hypervisor, and turns the machine off: no VM continues on a state that
/// broke an invariant.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    console::print_fatal(format_args!(
        "\n[core {}] hypervisor panic: {info}\n",
        cpu::current_index()
    ));
    let frame: u64;
    // SAFETY: reads the frame pointer.
    unsafe { core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack)) };
    backtrace(frame);
    power::off()
}
