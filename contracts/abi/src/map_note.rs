//! The ELF note of a guest that runs with any map: the image builder writes the VM's map into it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{irq, map};

/// Its name, as ELF files have it: with the zero at its end, so that the words are aligned.
pub const NAME: [u8; 12] = *b"Cloison map\0";
/// Its type.
pub const TYPE: u32 = 1;
/// The number of its 64-bit words: distributor, CPU interface, UART, the UART's kind and interrupt,
/// services page.
pub const WORDS: usize = 6;
/// The kind of a PL011.
pub const PL011: u64 = 0;
/// The kind of a Zynq UltraScale+'s UART.
pub const CADENCE: u64 = 1;
/// What a guest's file has: the map `cloison`.
pub const CLOISON: [u64; WORDS] = [
    map::GICD,
    map::GICC,
    map::UART,
    PL011,
    irq::UART as u64,
    map::SERVICES,
];
