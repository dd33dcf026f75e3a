//! Where the VM's devices are: the image builder writes it into a note of the guest's file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::map_note::{CADENCE, CLOISON, NAME, TYPE, WORDS};

/// An ELF note.
#[repr(C)]
struct Note {
    name_bytes: u32,
    word_bytes: u32,
    number: u32,
    name: [u8; NAME.len()],
    words: [u64; WORDS],
}

#[used]
#[cfg_attr(target_arch = "aarch64", unsafe(link_section = ".note.cloison"))]
static NOTE: Note = Note {
    name_bytes: NAME.len() as u32,
    word_bytes: 8 * WORDS as u32,
    number: TYPE,
    name: NAME,
    words: CLOISON,
};

/// The UART's programming model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UartKind {
    /// Arm's.
    Pl011,
    /// A Zynq UltraScale+'s.
    Cadence,
}

/// Returns a word of the note.
fn word(index: usize) -> u64 {
    // SAFETY: a word of a static that nothing writes while the guest runs. The read is volatile
    // because the compiler knows another value than the image builder may have written.
    unsafe { (&raw const NOTE.words[index]).read_volatile() }
}

/// Returns the address of the interrupt distributor.
pub fn gicd() -> u64 {
    word(0)
}

/// Returns the address of the interrupt controller's CPU interface.
pub fn gicc() -> u64 {
    word(1)
}

/// Returns the address of the UART.
pub fn uart() -> u64 {
    word(2)
}

/// Returns the UART's programming model.
pub fn uart_kind() -> UartKind {
    if word(3) == CADENCE {
        UartKind::Cadence
    } else {
        UartKind::Pl011
    }
}

/// Returns the UART's interrupt.
pub fn uart_irq() -> u32 {
    word(4) as u32
}

/// Returns the address of the services page, in VMs that have it.
pub fn services() -> u64 {
    word(5)
}
