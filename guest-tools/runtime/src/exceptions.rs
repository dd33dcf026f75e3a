//! Exception vectors, the program's interrupt handler, and faults that a probe expects.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::MAX_VCPUS;
use crate::gic::{self, Interrupt};
use crate::global_asm;
use crate::timer;
use cloison_assembly::Frame;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use spin::Once;

global_asm!(
    cloison_assembly::vectors!("cloison_guest_vectors", "el1"),
    handler = sym handle,
);

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
