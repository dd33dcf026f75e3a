//! The firmware itself: reset, exception vectors, and its answers to calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::cadence::{CONTROL, Cadence, STATUS};
use cloison_abi::gicv2::{Gicc, Gicd};
use cloison_abi::{eemi, psci};
use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use tock_registers::interfaces::{Readable, Writeable};

/// Where the image is: as U-Boot's `kernel_addr_r`.
const IMAGE: u64 = 0x1800_0000;
/// UART1, the distributor and the CPU interface (UG1087).
const UART: usize = 0xff01_0000;
const GICD: usize = 0xf901_0000;
const GICC: usize = 0xf902_0000;
/// Words of 32 interrupts that its GIC has.
const GROUPS: usize = 6;

global_asm!(
    r#"
    .section .text.start, "ax"
    .global _start
_start:
    mrs     x0, mpidr_el1
    and     x0, x0, #0xff
    cbz     x0, 1f
2:  wfi
    b       2b
1:  adrp    x0, __stack_end
    add     x0, x0, :lo12:__stack_end
    mov     sp, x0
    adr     x0, vectors
    msr     vbar_el3, x0
    // EL2 and below: not secure, AArch64, with HVC; their interrupts are theirs.
    mov     x0, #0x531
    msr     scr_el3, x0
    msr     cptr_el3, xzr
    msr     mdcr_el3, xzr
    mov     x0, #(1 << 31)
    msr     hcr_el2, x0
    ldr     x0, =0x30c50830
    msr     sctlr_el2, x0
    bl      {prepare}
    ldr     x0, ={image}
    msr     elr_el3, x0
    // EL2 with its own stack pointer, all exceptions masked.
    mov     x0, #0x3c9
    msr     spsr_el3, x0
    isb
    mov     x0, xzr
    mov     x1, xzr
    mov     x2, xzr
    mov     x3, xzr
    eret

    .balign 2048
vectors:
    .rept 8
    b       .
    .balign 128
    .endr
    // From a lower level in AArch64: a call. Nothing else is routed here.
    sub     sp, sp, #176
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    b       call
    .balign 128
    .rept 7
    b       .
    .balign 128
    .endr
call:
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x29, [sp, #144]
    str     x30, [sp, #160]
    mov     x0, sp
    bl      {answer}
    ldp     x0, x1, [sp]
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x29, [sp, #144]
    ldr     x30, [sp, #160]
    add     sp, sp, #176
    eret
"#,
    prepare = sym prepare,
    answer = sym answer,
    image = const IMAGE,
);

fn uart() -> &'static Cadence {
    // SAFETY: the registers of QEMU's ZCU102 are there, and only this program uses this UART.
    unsafe { &*(UART as *const Cadence) }
}

/// Leaves all interrupts to the other world, and turns the UART on.
extern "C" fn prepare() {
    // SAFETY: as for the UART; EL2 has not been entered.
    let (distributor, interface) = unsafe { (&*(GICD as *const Gicd), &*(GICC as *const Gicc)) };
    for group in &distributor.igroupr[..GROUPS] {
        group.set(u32::MAX);
    }
    interface.pmr.set(0xff);
    uart().control.write(CONTROL::TXEN::SET);
}

struct Output;

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while uart().status.is_set(STATUS::TFUL) {}
            uart().fifo.set(byte.into());
        }
        Ok(())
    }
}

/// Answers a call, whose registers x0 to x3 the vectors have stored.
extern "C" fn answer(registers: &mut [u64; 4]) {
    let [function, x1, x2, x3] = *registers;
    let call = function as u32;
    registers[0] = match call {
        psci::VERSION => 0x1_0001,
        psci::SYSTEM_OFF => off(),
        _ if call & 0xffff_0000 == eemi::CALLS => {
            // A UART reports no error.
            let _ = writeln!(Output, "eemi {call:x} {x1:x} {x2:x} {x3:x}");
            // What no other answer is: the tests compare it.
            *registers = [u64::from(call) << 32, !x1, !x2, !x3];
            return;
        }
        _ => psci::NOT_SUPPORTED as u64,
    };
}

/// Ends QEMU by semihosting (Arm's specification of semihosting 2.0, SYS_EXIT).
fn off() -> ! {
    const SYS_EXIT: u64 = 0x18;
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let block = [APPLICATION_EXIT, 0];
    loop {
        // SAFETY: QEMU reads the two words and ends.
        unsafe { asm!("hlt #0xf000", in("x0") SYS_EXIT, in("x1") block.as_ptr()) }
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    off()
}
