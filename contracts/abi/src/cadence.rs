//! The registers of a Zynq UltraScale+ MPSoC's UART, which is Cadence's (Xilinx UG1087, module UART):
//! EL2 drives one, emulates one for a guest whose map has it, and guests drive that.
// SPDX-License-Identifier: MIT OR Apache-2.0

// The macros add further items to those documented here.
#![allow(missing_docs)]

use core::mem::offset_of;
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! { u32,
    /// Control.
    pub CONTROL [
        /// Restarts the receiver's timeout; clears itself.
        RSTTO OFFSET(6) NUMBITS(1) [],
        /// The transmitter is on.
        TXEN OFFSET(4) NUMBITS(1) [],
        /// The receiver is on.
        RXEN OFFSET(2) NUMBITS(1) [],
        /// Empties the transmit FIFO; clears itself.
        TXRES OFFSET(1) NUMBITS(1) [],
        /// Empties the receive FIFO; clears itself.
        RXRES OFFSET(0) NUMBITS(1) [],
    ],
    /// Intrpt_en, Intrpt_dis, Intrpt_mask and Chnl_int_sts.
    pub INTERRUPTS [
        /// Bytes have waited in the receive FIFO for a while.
        TIMEOUT OFFSET(8) NUMBITS(1) [],
        /// The receive FIFO overflowed.
        ROVR OFFSET(5) NUMBITS(1) [],
        /// The transmit FIFO is empty.
        TEMPTY OFFSET(3) NUMBITS(1) [],
        /// The receive FIFO is at its trigger level.
        RTRIG OFFSET(0) NUMBITS(1) [],
    ],
    /// Channel_sts.
    pub STATUS [
        /// The transmit FIFO is full.
        TFUL OFFSET(4) NUMBITS(1) [],
        /// The transmit FIFO is empty.
        TEMPTY OFFSET(3) NUMBITS(1) [],
        /// The receive FIFO is full.
        RFUL OFFSET(2) NUMBITS(1) [],
        /// The receive FIFO is empty.
        REMPTY OFFSET(1) NUMBITS(1) [],
        /// The receive FIFO is at its trigger level.
        RTRIG OFFSET(0) NUMBITS(1) [],
    ],
}

register_structs! {
    /// The block of registers.
    pub Cadence {
        (0x00 => pub control: ReadWrite<u32, CONTROL::Register>),
        (0x04 => pub mode: ReadWrite<u32>),
        (0x08 => pub interrupt_enable: WriteOnly<u32, INTERRUPTS::Register>),
        (0x0c => pub interrupt_disable: WriteOnly<u32, INTERRUPTS::Register>),
        (0x10 => pub interrupt_mask: ReadOnly<u32, INTERRUPTS::Register>),
        (0x14 => pub interrupt_status: ReadWrite<u32, INTERRUPTS::Register>),
        (0x18 => pub baud: ReadWrite<u32>),
        (0x1c => pub receive_timeout: ReadWrite<u32>),
        (0x20 => pub receive_trigger: ReadWrite<u32>),
        (0x24 => pub modem_control: ReadWrite<u32>),
        (0x28 => _modem_status),
        (0x2c => pub status: ReadOnly<u32, STATUS::Register>),
        (0x30 => pub fifo: ReadWrite<u32>),
        (0x34 => pub baud_divider: ReadWrite<u32>),
        (0x38 => pub flow_delay: ReadWrite<u32>),
        (0x3c => _infrared),
        (0x44 => pub transmit_trigger: ReadWrite<u32>),
        (0x48 => @END),
    }
}

/// Offsets of the registers in the block, for code that emulates it.
pub mod offset {
    use super::{Cadence, offset_of};

    /// Control: which halves are on, and their resets.
    pub const CONTROL: u16 = offset_of!(Cadence, control) as u16;
    /// Mode: word length, parity, stop bits, loops.
    pub const MODE: u16 = offset_of!(Cadence, mode) as u16;
    /// Lets the interrupts whose bits are written as 1 reach the line.
    pub const INTERRUPT_ENABLE: u16 = offset_of!(Cadence, interrupt_enable) as u16;
    /// Keeps the interrupts whose bits are written as 1 from the line.
    pub const INTERRUPT_DISABLE: u16 = offset_of!(Cadence, interrupt_disable) as u16;
    /// The interrupts that reach the line.
    pub const INTERRUPT_MASK: u16 = offset_of!(Cadence, interrupt_mask) as u16;
    /// Interrupts before the mask; those whose bits are written as 1 are cleared.
    pub const INTERRUPT_STATUS: u16 = offset_of!(Cadence, interrupt_status) as u16;
    /// Baud rate generator.
    pub const BAUD: u16 = offset_of!(Cadence, baud) as u16;
    /// Time after which bytes in the receive FIFO raise an interrupt.
    pub const RECEIVE_TIMEOUT: u16 = offset_of!(Cadence, receive_timeout) as u16;
    /// Bytes in the receive FIFO that raise an interrupt.
    pub const RECEIVE_TRIGGER: u16 = offset_of!(Cadence, receive_trigger) as u16;
    /// Modem control.
    pub const MODEM_CONTROL: u16 = offset_of!(Cadence, modem_control) as u16;
    /// Status: which FIFOs are full or empty.
    pub const STATUS: u16 = offset_of!(Cadence, status) as u16;
    /// Bytes to send, and received ones.
    pub const FIFO: u16 = offset_of!(Cadence, fifo) as u16;
    /// Baud rate divider.
    pub const BAUD_DIVIDER: u16 = offset_of!(Cadence, baud_divider) as u16;
    /// Flow control delay.
    pub const FLOW_DELAY: u16 = offset_of!(Cadence, flow_delay) as u16;
    /// Bytes in the transmit FIFO that raise an interrupt.
    pub const TRANSMIT_TRIGGER: u16 = offset_of!(Cadence, transmit_trigger) as u16;
}
