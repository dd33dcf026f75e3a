//! Counts instructions only, without caches or clock. For runs under `-icount`, which use QEMU's
//! own clock.
//!
//! By parts of blocks that execute as a whole, not by block. And not by the plugin API's inline additions: where cores share a thread, QEMU 10.0
//! computes their address in the constant that holds the core's number, which the guest's code uses
//! too (`gen_cpu_index`, accel/tcg/plugin-gen.c).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::statistics::{self, Instructions};
use cloison_qemu::guest::{Qemu, Register, Start, level};
use cloison_qemu::listener::{Home, Listener, NewBlock, Registers, listen};
use std::path::PathBuf;

/// The counts so far.
#[derive(Debug)]
struct Counter {
    file: PathBuf,
    /// By exception level.
    counts: [u64; 4],
    cpsr: Option<Register>,
}

static COUNTER: Home<Counter> = Home::empty();

/// Starts counting; the counts are written to `file` at the end.
pub fn install(qemu: &Qemu, file: PathBuf) -> Result<(), String> {
    let counter = Counter {
        file,
        counts: [0; 4],
        cpsr: None,
    };
    listen(qemu, counter)
}

impl Listener for Counter {
    fn home() -> &'static Home<Self> {
        &COUNTER
    }

    fn starts(&mut self, start: &Start) {
        if start.core == 0 {
            let [cpsr] = start.named([b"cpsr"]);
            self.cpsr = Some(cpsr);
        }
    }

    fn translates(&mut self, block: &NewBlock<'_, Self>) {
        // QEMU has separate translations for each level.
        let level = self.cpsr.map_or(0, |cpsr| level(cpsr.read()));
        for part in block.parts() {
            let data = part.instructions << 2 | usize::from(level);
            block.on_instruction(part.first, Registers::Unused, data);
        }
    }

    fn instruction(&mut self, data: usize) {
        self.counts[data & 3] += (data >> 2) as u64;
    }

    fn ends(&mut self) {
        let report = Instructions {
            instructions: self.counts,
        };
        if let Err(error) = statistics::write(&report, &self.file) {
            eprintln!("board-model: cannot write {}: {error}", self.file.display());
        }
    }
}
