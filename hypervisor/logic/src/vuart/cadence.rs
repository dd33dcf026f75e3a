//! The emulated UART of a Zynq UltraScale+ (Xilinx UG1087, module UART).
//!
//! As of the PL011, bytes are sent at once, and the first byte raises the receive interrupts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::lines::Lines;
use cloison_abi::cadence::offset::*;
use cloison_abi::cadence::{CONTROL, INTERRUPTS, STATUS};

/// Control: what clears itself, and the reset of the receiver.
const CONTROL_MOMENTARY: u32 =
    CONTROL::RSTTO::SET.value | CONTROL::TXRES::SET.value | CONTROL_RXRES;
const CONTROL_RXRES: u32 = CONTROL::RXRES::SET.value;
/// Intrpt and Chnl_int_sts; and all bits that exist.
const INT_RTRIG: u32 = INTERRUPTS::RTRIG::SET.value;
const INT_TEMPTY: u32 = INTERRUPTS::TEMPTY::SET.value;
const INT_ROVR: u32 = INTERRUPTS::ROVR::SET.value;
const INT_TIMEOUT: u32 = INTERRUPTS::TIMEOUT::SET.value;
const INT_ALL: u32 = 0x3fff;
/// Channel_sts.
const STATUS_RTRIG: u32 = STATUS::RTRIG::SET.value;
const STATUS_REMPTY: u32 = STATUS::REMPTY::SET.value;
const STATUS_RFUL: u32 = STATUS::RFUL::SET.value;
const STATUS_TEMPTY: u32 = STATUS::TEMPTY::SET.value;

/// Registers that are stored and read back: offset, the bits that exist, and the value after reset.
const STORED: [(u16, u32, u32); 9] = [
    (CONTROL, 0x1ff, 0x128),
    (MODE, 0x3fff, 0),
    (BAUD, 0xffff, 0x28b),
    (RECEIVE_TIMEOUT, 0xff, 0),
    (RECEIVE_TRIGGER, 0x3f, 0x20),
    (MODEM_CONTROL, 0x23, 0),
    (BAUD_DIVIDER, 0xff, 0xf),
    (FLOW_DELAY, 0x3f, 0),
    (TRANSMIT_TRIGGER, 0x3f, 0x20),
];

/// A Zynq UltraScale+'s UART.
#[derive(Debug)]
pub struct Cadence {
    /// Its receive FIFO and interrupts (Chnl_int_sts, Intrpt_mask).
    pub(super) lines: Lines<{ INT_RTRIG | INT_TIMEOUT }, INT_TEMPTY, INT_ROVR>,
    /// The registers of [`STORED`], in its order.
    stored: [u32; STORED.len()],
}

impl Default for Cadence {
    /// Creates a UART in its reset state.
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            stored: STORED.map(|(_, _, reset)| reset),
        }
    }
}

impl Cadence {
    pub(super) fn read(&mut self, offset: u16) -> u32 {
        match offset {
            INTERRUPT_MASK => self.lines.mask,
            INTERRUPT_STATUS => self.lines.status(),
            STATUS => {
                let received = if self.lines.fifo.is_empty() {
                    STATUS_REMPTY
                } else if self.lines.fifo.is_full() {
                    STATUS_RTRIG | STATUS_RFUL
                } else {
                    STATUS_RTRIG
                };
                STATUS_TEMPTY | received
            }
            FIFO => self.lines.fifo.pop_front().map_or(0, u32::from),
            _ => {
                let stored = STORED.iter().zip(self.stored);
                let mut own = stored.filter(|((own, ..), _)| *own == offset);
                own.next().map_or(0, |(_, value)| value)
            }
        }
    }

    pub(super) fn write(&mut self, offset: u16, value: u32) -> Option<u8> {
        match offset {
            FIFO => {
                self.lines.raised |= INT_TEMPTY;
                return Some(value as u8);
            }
            INTERRUPT_ENABLE => self.lines.unmask(self.lines.mask | value & INT_ALL),
            INTERRUPT_DISABLE => self.lines.mask &= !value,
            INTERRUPT_STATUS => self.lines.clear(value),
            _ => {
                let mut value = value;
                if offset == CONTROL {
                    if value & CONTROL_RXRES != 0 {
                        self.lines.fifo.clear();
                    }
                    value &= !CONTROL_MOMENTARY;
                }
                for ((own, bits, _), stored) in STORED.iter().zip(&mut self.stored) {
                    if *own == offset {
                        *stored = value & bits;
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Uart;
    use super::super::lines::{Full, RX_FIFO};
    use super::*;
    use cloison_formats::guest_map::GuestUartKind;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    fn uart() -> Uart {
        Uart::new(GuestUartKind::Cadence)
    }

    #[test]
    fn settings_are_read_back_and_resets_are_over_at_once() {
        let mut uart = uart();
        assert_eq!(
            [CONTROL, MODE, BAUD, RECEIVE_TRIGGER, BAUD_DIVIDER].map(|at| uart.read(at)),
            [0x128, 0, 0x28b, 0x20, 0xf]
        );
        for (offset, bits) in [
            (MODE, 0x3fff),
            (BAUD, 0xffff),
            (RECEIVE_TIMEOUT, 0xff),
            (RECEIVE_TRIGGER, 0x3f),
            (TRANSMIT_TRIGGER, 0x3f),
        ] {
            assert_eq!(uart.write(offset, u32::MAX), None);
            assert_eq!(uart.read(offset), bits, "{offset:#x}");
        }
        assert_eq!(uart.push_rx(b'a'), Ok(()));
        // A driver resets both halves and waits until the bits are clear.
        uart.write(CONTROL, 0x53);
        assert_eq!(uart.read(CONTROL), 0x10);
        assert_eq!(uart.read(STATUS) & STATUS_REMPTY, STATUS_REMPTY);
    }

    #[test]
    fn sends_and_interrupts() {
        let mut uart = uart();
        assert_eq!(uart.write(FIFO, 0x141), Some(0x41));
        assert!(!uart.line_level());
        // Linux clears the interrupt, sends, and only then lets it reach the line.
        uart.write(INTERRUPT_STATUS, INT_TEMPTY);
        assert_eq!(uart.write(FIFO, 0x42), Some(0x42));
        uart.write(INTERRUPT_ENABLE, INT_TEMPTY);
        assert_eq!(uart.read(INTERRUPT_MASK), INT_TEMPTY);
        assert!(uart.line_level());
        uart.write(INTERRUPT_STATUS, INT_TEMPTY);
        assert!(!uart.line_level());
        uart.write(INTERRUPT_DISABLE, INT_TEMPTY);
        assert_eq!(uart.write(FIFO, 0x43), Some(0x43));
        assert!(!uart.line_level());
        assert_eq!(uart.read(INTERRUPT_STATUS), INT_TEMPTY);
        assert_eq!(uart.read(STATUS) & 0x18, STATUS_TEMPTY, "never full");
        assert_eq!(
            [INTERRUPT_ENABLE, INTERRUPT_DISABLE].map(|at| uart.read(at)),
            [0, 0],
            "write-only"
        );
    }

    #[test]
    fn receives() {
        let mut uart = uart();
        uart.write(INTERRUPT_ENABLE, INT_RTRIG | INT_TIMEOUT | INT_ROVR);
        assert!(!uart.line_level());
        assert_eq!(uart.read(STATUS) & 7, STATUS_REMPTY);
        assert_eq!(uart.push_rx(b'a'), Ok(()));
        assert!(uart.line_level());
        // Linux clears what it has seen, and then reads until the FIFO is empty.
        uart.write(INTERRUPT_STATUS, INT_RTRIG | INT_TIMEOUT);
        assert!(!uart.line_level());
        assert_eq!(uart.push_rx(b'b'), Ok(()));
        assert!(uart.line_level(), "the next byte raises them again");
        assert_eq!([uart.read(FIFO), uart.read(FIFO)], [0x61, 0x62]);
        assert_eq!((uart.read(FIFO), uart.line_level()), (0, false));
        for byte in 0..RX_FIFO {
            assert_eq!(uart.push_rx(byte as u8), Ok(()));
        }
        assert_eq!(uart.read(STATUS) & 7, STATUS_RTRIG | STATUS_RFUL);
        assert_eq!(uart.push_rx(0), Err(Full));
        assert_eq!(uart.read(INTERRUPT_STATUS) & INT_ROVR, INT_ROVR);
    }

    proptest! {
        #[test]
        fn any_access_is_survived_and_bytes_keep_their_order(
            steps in prop::collection::vec((0u8..3, any::<u16>(), any::<u32>()), 0..100),
        ) {
            let mut uart = uart();
            let mut fifo = VecDeque::new();
            for (kind, offset, value) in steps {
                // Usually a register, sometimes an arbitrary offset.
                let offset = if value & 3 == 0 { offset } else { offset & 0x7c };
                match kind {
                    0 => {
                        prop_assert_eq!(uart.push_rx(value as u8), Ok(()));
                        fifo.push_back(value as u8);
                    }
                    1 => {
                        let read = uart.read(offset);
                        if offset == FIFO {
                            prop_assert_eq!(read, u32::from(fifo.pop_front().unwrap_or(0)));
                        }
                    }
                    _ => {
                        let sent = uart.write(offset, value);
                        prop_assert_eq!(sent, (offset == FIFO).then_some(value as u8));
                        if offset == CONTROL && value & CONTROL_RXRES != 0 {
                            fifo.clear();
                        }
                    }
                }
                let pending = uart.read(INTERRUPT_STATUS) & uart.read(INTERRUPT_MASK);
                prop_assert_eq!(uart.line_level(), pending != 0);
                prop_assert_eq!(uart.read(STATUS) & STATUS_REMPTY != 0, fifo.is_empty());
            }
            let rest: Vec<u8> = (0..fifo.len()).map(|_| uart.read(FIFO) as u8).collect();
            prop_assert_eq!(rest, Vec::from(fifo));
        }
    }
}
