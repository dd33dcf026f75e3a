//! The registers of a PL011 UART (Arm DDI 0183, 3.3): EL2 drives one, emulates one for each guest,
//! and guests drive that.
// SPDX-License-Identifier: MIT OR Apache-2.0

// The macros add further items to those documented here.
#![allow(missing_docs)]

use core::mem::offset_of;
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! { u32,
    /// UARTFR (3.3.3).
    pub FR [
        /// The transmit FIFO is empty.
        TXFE OFFSET(7) NUMBITS(1) [],
        /// The receive FIFO is full.
        RXFF OFFSET(6) NUMBITS(1) [],
        /// The transmit FIFO is full.
        TXFF OFFSET(5) NUMBITS(1) [],
        /// The receive FIFO is empty.
        RXFE OFFSET(4) NUMBITS(1) [],
    ],
    /// UARTLCR_H (3.3.7).
    pub LCR_H [
        /// The FIFOs are on.
        FEN OFFSET(4) NUMBITS(1) [],
    ],
    /// UARTCR (3.3.8).
    pub CR [
        /// The receiver is on.
        RXE OFFSET(9) NUMBITS(1) [],
        /// The transmitter is on.
        TXE OFFSET(8) NUMBITS(1) [],
        /// The UART is on.
        UARTEN OFFSET(0) NUMBITS(1) [],
    ],
    /// UARTIMSC, UARTRIS, UARTMIS and UARTICR (3.3.10 to 3.3.13).
    pub INTERRUPT [
        /// Overrun.
        OE OFFSET(10) NUMBITS(1) [],
        /// Bytes have waited in the receive FIFO for a while.
        RT OFFSET(6) NUMBITS(1) [],
        /// The transmit FIFO is below its level.
        TX OFFSET(5) NUMBITS(1) [],
        /// The receive FIFO is at its level.
        RX OFFSET(4) NUMBITS(1) [],
    ],
}

register_structs! {
    /// The block of registers.
    pub Pl011 {
        (0x000 => pub dr: ReadWrite<u32>),
        (0x004 => pub rsr: ReadWrite<u32>),
        (0x008 => _reserved0),
        (0x018 => pub fr: ReadOnly<u32, FR::Register>),
        (0x01c => _reserved1),
        (0x020 => pub ilpr: ReadWrite<u32>),
        (0x024 => pub ibrd: ReadWrite<u32>),
        (0x028 => pub fbrd: ReadWrite<u32>),
        (0x02c => pub lcr_h: ReadWrite<u32, LCR_H::Register>),
        (0x030 => pub cr: ReadWrite<u32, CR::Register>),
        (0x034 => pub ifls: ReadWrite<u32>),
        (0x038 => pub imsc: ReadWrite<u32, INTERRUPT::Register>),
        (0x03c => pub ris: ReadOnly<u32, INTERRUPT::Register>),
        (0x040 => pub mis: ReadOnly<u32, INTERRUPT::Register>),
        (0x044 => pub icr: WriteOnly<u32, INTERRUPT::Register>),
        (0x048 => pub dmacr: ReadWrite<u32>),
        (0x04c => _reserved2),
        (0xfe0 => pub id: [ReadOnly<u32>; 8]),
        (0x1000 => @END),
    }
}

/// Offsets of the registers in the block, for code that emulates it.
pub mod offset {
    use super::{Pl011, offset_of};

    /// Data: bytes to send and received ones (3.3.1).
    pub const DR: u16 = offset_of!(Pl011, dr) as u16;
    /// Receive status; any write clears the errors (3.3.2).
    pub const RSR: u16 = offset_of!(Pl011, rsr) as u16;
    /// Flags: which FIFOs are full or empty (3.3.3).
    pub const FR: u16 = offset_of!(Pl011, fr) as u16;
    /// Low-power infrared counter (3.3.4).
    pub const ILPR: u16 = offset_of!(Pl011, ilpr) as u16;
    /// Integer part of the baud rate divisor (3.3.5).
    pub const IBRD: u16 = offset_of!(Pl011, ibrd) as u16;
    /// Its fraction, in sixty-fourths (3.3.6).
    pub const FBRD: u16 = offset_of!(Pl011, fbrd) as u16;
    /// Line control: word length, parity, FIFOs (3.3.7).
    pub const LCR_H: u16 = offset_of!(Pl011, lcr_h) as u16;
    /// Control: which parts of the UART are on (3.3.8).
    pub const CR: u16 = offset_of!(Pl011, cr) as u16;
    /// FIFO levels that raise interrupts (3.3.9).
    pub const IFLS: u16 = offset_of!(Pl011, ifls) as u16;
    /// Interrupts that reach the line (3.3.10).
    pub const IMSC: u16 = offset_of!(Pl011, imsc) as u16;
    /// Interrupts before the mask (3.3.11).
    pub const RIS: u16 = offset_of!(Pl011, ris) as u16;
    /// Interrupts after the mask (3.3.12).
    pub const MIS: u16 = offset_of!(Pl011, mis) as u16;
    /// Clears the interrupts whose bits are written as 1 (3.3.13).
    pub const ICR: u16 = offset_of!(Pl011, icr) as u16;
    /// Control of DMA (3.3.14).
    pub const DMACR: u16 = offset_of!(Pl011, dmacr) as u16;
    /// The first of eight identification registers, four bytes apart, one byte of each in use
    /// (3.3.15).
    pub const ID: u16 = offset_of!(Pl011, id) as u16;
}
