//! The emulated UART of a VM: a PL011 (Arm DDI 0183), or a Zynq UltraScale+'s (Xilinx UG1087, module
//! UART); enough for Linux's drivers.
//!
//! ```text
//! trapped read    value = uart.read(offset)
//! trapped write   if let Some(byte) = uart.write(offset, value) { line_buffer.push(byte) … }
//! console input   uart.push_rx(byte)
//! after each      kick(spis.set_line(irq, uart.line_level(), &dist))
//! ```
//!
//! Bytes are sent at once, so the transmit FIFO is always empty and each write raises its interrupt
//! again. Baud rate, line control and FIFO levels are stored and read back, but have no effect: the
//! first byte raises the receive interrupt. One lock of the hypervisor protects the whole state;
//! report the line's level before releasing it, so that two cores cannot report in the wrong order.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod cadence;
mod lines;

pub use lines::{Full, RX_FIFO};

use cadence::Cadence;
use cloison_abi::pl011::offset::*;
use cloison_formats::guest_map::GuestUartKind;
use lines::Lines;

/// FR: clear to send, data set ready and carrier detect, as reported by a null modem.
const FR_MODEM: u32 = 0b111;
/// FR: the receive FIFO is empty.
const FR_RXFE: u32 = 1 << 4;
/// FR: the receive FIFO is full.
const FR_RXFF: u32 = 1 << 6;
/// FR: the transmit FIFO is empty.
const FR_TXFE: u32 = 1 << 7;
/// RIS, IMSC, MIS, ICR: receive, transmit, receive timeout, overrun; and all bits that exist.
const INT_RX: u32 = 1 << 4;
const INT_TX: u32 = 1 << 5;
const INT_RT: u32 = 1 << 6;
const INT_OE: u32 = 1 << 10;
const INT_ALL: u32 = 0x7ff;
// OE in UARTDR (Arm DDI 0183, 3.3.1).
const DR_OVERRUN: u32 = 1 << 11;

/// UARTPeriphID0-3 (PL011 r1p5: 32-byte FIFOs) and UARTPCellID0-3.
const IDENTIFICATION: [u8; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// Registers that are stored and read back: offset, the bits that exist, and the value after reset.
const STORED: [(u16, u32, u32); 7] = [
    (ILPR, 0xff, 0),
    (IBRD, 0xffff, 0),
    (FBRD, 0x3f, 0),
    (LCR_H, 0xff, 0),
    (CR, 0xff87, 0x300),
    (IFLS, 0x3f, 0x12),
    (DMACR, 7, 0),
];

/// Returns the index in [`STORED`] of the register at `offset`.
fn stored(offset: u16) -> Option<usize> {
    STORED.iter().position(|&(own, ..)| own == offset)
}

/// A UART of either kind.
#[derive(Debug)]
pub enum Uart {
    /// Arm's.
    Pl011(Pl011),
    /// A Zynq UltraScale+'s.
    Cadence(Cadence),
}

impl Uart {
    /// Creates a UART in its reset state.
    pub fn new(kind: GuestUartKind) -> Self {
        match kind {
            GuestUartKind::Pl011 => Self::Pl011(Pl011::default()),
            GuestUartKind::Cadence => Self::Cadence(Cadence::default()),
        }
    }

    /// Handles a trapped read; offsets without a register read as 0. Narrow reads get the low bits.
    pub fn read(&mut self, offset: u16) -> u32 {
        match self {
            Self::Pl011(uart) => uart.read(offset),
            Self::Cadence(uart) => uart.read(offset),
        }
    }

    /// Handles a trapped write. Returns the byte that the guest sent, if any.
    pub fn write(&mut self, offset: u16, value: u32) -> Option<u8> {
        match self {
            Self::Pl011(uart) => uart.write(offset, value),
            Self::Cadence(uart) => uart.write(offset, value),
        }
    }

    /// Adds a byte that arrives for the guest.
    pub fn push_rx(&mut self, byte: u8) -> Result<(), Full> {
        match self {
            Self::Pl011(uart) => uart.push_rx(byte),
            Self::Cadence(uart) => uart.lines.push(byte),
        }
    }

    /// Returns the level of the interrupt line.
    pub fn line_level(&self) -> bool {
        match self {
            Self::Pl011(uart) => uart.line_level(),
            Self::Cadence(uart) => uart.lines.level(),
        }
    }
}

/// A PL011.
#[derive(Debug)]
pub struct Pl011 {
    /// Its receive FIFO and interrupts (UARTRIS, UARTIMSC).
    lines: Lines<{ INT_RX | INT_RT }, INT_TX, INT_OE>,
    /// A byte was lost; shown by UARTRSR until the guest writes that register.
    overrun: bool,
    /// The registers of [`STORED`], in its order.
    stored: [u32; STORED.len()],
}

impl Default for Pl011 {
    /// Creates a PL011 in its reset state.
    fn default() -> Self {
        let stored = STORED.map(|(_, _, reset)| reset);
        Self {
            lines: Lines::default(),
            overrun: false,
            stored,
        }
    }
}

impl Pl011 {
    /// Handles a trapped read; offsets without a register read as 0. Narrow reads get the low bits.
    pub fn read(&mut self, offset: u16) -> u32 {
        match offset {
            DR => self.pop_rx(),
            // OE; framing, parity and break errors do not happen here (Arm DDI 0183, 3.3.2).
            RSR => u32::from(self.overrun) << 3,
            FR => {
                let empty = if self.lines.fifo.is_empty() {
                    FR_RXFE
                } else {
                    0
                };
                let full = if self.lines.fifo.is_full() {
                    FR_RXFF
                } else {
                    0
                };
                FR_MODEM | FR_TXFE | empty | full
            }
            IMSC => self.lines.mask,
            RIS => self.lines.status(),
            MIS => self.lines.status() & self.lines.mask,
            ID.. => IDENTIFICATION
                .get(usize::from(offset - ID) >> 2)
                .map_or(0, |&byte| u32::from(byte)),
            _ => stored(offset).map_or(0, |index| self.stored[index]),
        }
    }

    /// Handles a trapped write. Returns the byte that the guest sent, if any.
    pub fn write(&mut self, offset: u16, value: u32) -> Option<u8> {
        match offset {
            DR => {
                self.lines.raised |= INT_TX;
                return Some(value as u8);
            }
            RSR => self.overrun = false,
            IMSC => self.lines.unmask(value & INT_ALL),
            ICR => self.lines.clear(value),
            _ => {
                if let Some(index) = stored(offset) {
                    self.stored[index] = value & STORED[index].1;
                }
            }
        }
        None
    }

    /// Adds a byte that arrives for the guest.
    pub fn push_rx(&mut self, byte: u8) -> Result<(), Full> {
        let pushed = self.lines.push(byte);
        self.overrun |= pushed.is_err();
        pushed
    }

    /// Takes a byte from the receive FIFO: DR as read by the guest, 0 if there is none.
    fn pop_rx(&mut self) -> u32 {
        let Some(byte) = self.lines.fifo.pop_front() else {
            return 0;
        };
        // An overrun is reported with the last byte that fitted.
        let lost = self.lines.fifo.is_empty() && self.overrun;
        let overrun = if lost { DR_OVERRUN } else { 0 };
        u32::from(byte) | overrun
    }

    /// Returns the level of the interrupt line.
    pub fn line_level(&self) -> bool {
        self.lines.level()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    #[test]
    fn identifies_itself_to_the_amba_bus() {
        let mut uart = Pl011::default();
        // As Linux combines it from eight words: its PL011 driver expects ID 0x00041011 under mask
        // 0x000fffff.
        let word = |uart: &mut Pl011, first: u16| {
            (0..4).fold(0, |id, n| id | uart.read(first + n * 4) << (n * 8))
        };
        assert_eq!(word(&mut uart, 0xfe0) & 0x000f_ffff, 0x0004_1011);
        assert_eq!(word(&mut uart, 0xff0), 0xb105_f00d);
    }

    #[test]
    fn settings_are_read_back() {
        let mut uart = Pl011::default();
        assert_eq!(
            [CR, IFLS, LCR_H, DMACR].map(|offset| uart.read(offset)),
            [0x300, 0x12, 0, 0]
        );
        for (offset, bits) in [
            (ILPR, 0xff),
            (IBRD, 0xffff),
            (FBRD, 0x3f),
            (LCR_H, 0xff),
            (CR, 0xff87),
            (IFLS, 0x3f),
        ] {
            assert_eq!(uart.write(offset, u32::MAX), None);
            assert_eq!(uart.read(offset), bits, "{offset:#x}");
        }
    }

    #[test]
    fn sends_and_interrupts() {
        let mut uart = Pl011::default();
        assert_eq!(uart.write(DR, 0x141), Some(0x41));
        assert!(!uart.line_level());
        uart.write(ICR, INT_ALL);
        // A driver that starts to send unmasks the interrupt and waits for it.
        uart.write(IMSC, INT_TX);
        assert!(uart.line_level());
        assert_eq!(uart.read(MIS), INT_TX);
        uart.write(ICR, INT_TX);
        assert!(!uart.line_level());
        assert_eq!(uart.write(DR, 0x42), Some(0x42));
        assert!(uart.line_level());
        uart.write(IMSC, 0);
        assert!(!uart.line_level());
        assert_eq!(uart.read(RIS), INT_TX);
        assert_eq!(uart.read(FR) & FR_TXFE, FR_TXFE);
        assert_eq!(
            uart.read(FR) & (1 << 3 | 1 << 5),
            0,
            "never busy, never full"
        );
    }

    #[test]
    fn receives() {
        let mut uart = Pl011::default();
        uart.write(IMSC, INT_RX | INT_RT);
        assert!(!uart.line_level());
        assert_eq!(uart.read(FR) & FR_RXFE, FR_RXFE);
        assert_eq!(uart.push_rx(b'a'), Ok(()));
        assert_eq!(uart.push_rx(b'b'), Ok(()));
        assert!(uart.line_level());
        // After being cleared, the interrupt is raised again by the next byte.
        uart.write(ICR, INT_RX | INT_RT);
        assert!(!uart.line_level());
        assert_eq!(uart.push_rx(b'c'), Ok(()));
        assert!(uart.line_level());
        assert_eq!(
            [uart.read(DR), uart.read(DR), uart.read(DR)],
            [0x61, 0x62, 0x63]
        );
        assert!(!uart.line_level());
        assert_eq!(uart.read(DR), 0);
    }

    #[test]
    fn overrun_is_seen() {
        let mut uart = Pl011::default();
        for byte in 0..RX_FIFO {
            assert_eq!(uart.push_rx(byte as u8), Ok(()));
        }
        assert_eq!(uart.read(FR) & FR_RXFF, FR_RXFF);
        assert_eq!(uart.push_rx(0), Err(Full));
        assert_eq!(uart.read(RSR), 8);
        assert_eq!(uart.read(RIS) & INT_OE, INT_OE);
        for byte in 0..RX_FIFO - 1 {
            assert_eq!(uart.read(DR), byte as u32 & 0xff);
        }
        assert_eq!(uart.read(DR), (RX_FIFO - 1) as u32 & 0xff | DR_OVERRUN);
        uart.write(RSR, 0);
        assert_eq!(uart.read(RSR), 0);
    }

    /// Exclusive upper bound of the random steps; Miri, several hundred times slower, takes fewer.
    const STEPS: usize = if cfg!(miri) { 60 } else { 300 };

    proptest! {
        #[test]
        fn any_access_is_survived_and_bytes_keep_their_order(
            steps in prop::collection::vec((0u8..3, any::<u16>(), any::<u32>()), 0..STEPS),
        ) {
            let mut uart = Pl011::default();
            let mut fifo = VecDeque::new();
            for (kind, offset, value) in steps {
                match kind {
                    0 if uart.push_rx(value as u8).is_ok() => fifo.push_back(value as u8),
                    0 => prop_assert_eq!(fifo.len(), RX_FIFO),
                    1 => {
                        // Usually a register, sometimes an arbitrary offset.
                        let offset = if value & 3 == 0 {
                            offset
                        } else {
                            offset & 0x7c
                        };
                        let read = uart.read(offset);
                        if offset == DR {
                            prop_assert_eq!(read & 0xff, u32::from(fifo.pop_front().unwrap_or(0)));
                        }
                    }
                    _ => prop_assert_eq!(
                        uart.write(offset, value),
                        (offset == DR).then_some(value as u8)
                    ),
                }
                prop_assert_eq!(uart.line_level(), uart.read(MIS) != 0);
                prop_assert_eq!(uart.read(FR) & FR_RXFE != 0, fifo.is_empty());
            }
            let rest: Vec<u8> = (0..fifo.len()).map(|_| uart.read(DR) as u8).collect();
            prop_assert_eq!(rest, Vec::from(fifo));
        }
    }
}
