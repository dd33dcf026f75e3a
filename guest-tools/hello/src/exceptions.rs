//! The vectors: accesses that fault return, interrupts are recorded, all else ends the image with a
//! line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::gic;
use crate::machine::access;
use crate::report;
use cloison_assembly::Frame;
use core::arch::global_asm;

global_asm!(
    cloison_assembly::vectors!("hello_vectors", "el2"),
    handler = sym handle,
);

/// Index of the vector "IRQ from the current level, with its own stack".
const VECTOR_IRQ: u64 = 5;

extern "C" fn handle(frame: &mut Frame, vector: u64) {
    if vector == VECTOR_IRQ {
        return gic::take();
    }
    match access::after_fault(frame.elr, frame.esr) {
        Some((address, syndrome)) => {
            frame.elr = address;
            frame.x[0] = 0;
            frame.x[1] = syndrome;
        }
        None => report::abandon(format_args!(
            "exception by vector {vector}: esr={:#x} elr={:#x} far={:#x} spsr={:#x}",
            frame.esr, frame.elr, frame.far, frame.spsr
        )),
    }
}
