//! Exception vectors, the program's interrupt handler, and faults that a probe expects.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::MAX_VCPUS;
use crate::gic::{self, Interrupt};
use crate::global_asm;
use crate::timer;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use spin::Once;

// 16 vectors of 128 bytes. Each saves all registers, passes its number, and jumps to the common
// tail.
global_asm!(
    r#"
    .section .text.vectors, "ax"
    .balign 2048
    .global cloison_guest_vectors
cloison_guest_vectors:
    .set    vector, 0
    .rept   16
    .balign 128
    sub     sp, sp, #288
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    mov     x1, #vector
    b       1f
    .set    vector, vector + 1
    .endr
    .balign 128
1:  stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x2, elr_el1
    stp     x30, x2, [sp, #240]
    mrs     x2, spsr_el1
    mrs     x3, esr_el1
    stp     x2, x3, [sp, #256]
    mrs     x2, far_el1
    str     x2, [sp, #272]
    mov     x0, sp
    bl      {handler}
    ldp     x30, x2, [sp, #240]
    msr     elr_el1, x2
    ldr     x2, [sp, #256]
    msr     spsr_el1, x2
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #288
    eret
    "#,
    handler = sym handle,
);

/// Registers at an exception, as stored by the vectors.
#[repr(C)]
struct Frame {
    x: [u64; 31],
    elr: u64,
    spsr: u64,
    esr: u64,
    far: u64,
}

/// Index of the vector "IRQ from the current level, with its own stack".
const VECTOR_IRQ: u64 = 5;
/// Index of the vector "synchronous, from the current level, with its own stack".
const VECTOR_SYNC: u64 = 4;

/// The syndrome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// ESR_EL1: the exception syndrome.
    pub esr: u64,
    /// FAR_EL1: the faulting address; meaningful for aborts only.
    pub far: u64,
}

impl Fault {
    /// Returns the exception class: bits 31 to 26 of ESR.
    pub fn class(self) -> u64 {
        self.esr >> 26 & 0x3f
    }

    /// Returns whether this is a synchronous external abort on data or an instruction fetch:
    /// nothing responds at the address.
    pub fn is_external_abort(self) -> bool {
        matches!(self.class(), 0x21 | 0x25) && self.esr & 0x3f == 0x10
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fault class {:#04x} esr={:#010x} far={:#012x}",
            self.class(),
            self.esr,
            self.far
        )
    }
}

/// The address at which a vCPU continues after a synchronous exception that it provokes on purpose.
#[repr(C)]
pub(crate) struct Expected {
    /// Address at which to continue; zero if no fault is expected.
    pub(crate) resume: AtomicU64,
    /// One if the fault occurred.
    pub(crate) came: AtomicU64,
    pub(crate) esr: AtomicU64,
    pub(crate) far: AtomicU64,
}

static EXPECTED: [Expected; MAX_VCPUS] = [const {
    Expected {
        resume: AtomicU64::new(0),
        came: AtomicU64::new(0),
        esr: AtomicU64::new(0),
        far: AtomicU64::new(0),
    }
}; MAX_VCPUS];

/// Returns the calling vCPU's slot.
pub(crate) fn expected() -> &'static Expected {
    &EXPECTED[crate::cpu::current() % MAX_VCPUS]
}

static HANDLER: Once<fn(Interrupt)> = Once::new();

/// Installs the program's interrupt handler; only the first call has an effect. The runtime
/// acknowledges each interrupt before it calls the handler and ends it afterwards. The handler runs
/// with interrupts masked. It must not print if the interrupted code may be holding the console.
pub fn on_interrupt(handler: fn(Interrupt)) {
    HANDLER.call_once(|| handler);
}

extern "C" fn handle(frame: &mut Frame, vector: u64) {
    match vector {
        VECTOR_IRQ => {
            let Some(interrupt) = gic::acknowledge() else {
                return;
            };
            if let Some(handler) = HANDLER.get() {
                handler(interrupt);
            }
            gic::end(interrupt);
            timer::after_end();
        }
        VECTOR_SYNC if expected().resume.load(Relaxed) != 0 => {
            let expected = expected();
            frame.elr = expected.resume.load(Relaxed);
            expected.resume.store(0, Relaxed);
            expected.esr.store(frame.esr, Relaxed);
            expected.far.store(frame.far, Relaxed);
            expected.came.store(1, Relaxed);
        }
        _ => {
            let fault = Fault {
                esr: frame.esr,
                far: frame.far,
            };
            panic!(
                "exception, vector {vector}: {fault} elr={:#012x} spsr={:#x} lr={:#012x}",
                frame.elr, frame.spsr, frame.x[30]
            );
        }
    }
}
