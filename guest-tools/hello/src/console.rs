//! UARTs as the image uses them: polled output by accesses that may fault, and what is checked of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::{Fault, read32, write32};
use crate::machine::time;
use cloison_abi::{cadence, pl011};
use cloison_formats::boot::KINDS;
use cloison_formats::image::UartKind;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Milliseconds that a byte may take: one at 9600 baud takes 1.04.
const BYTE_MS: u64 = 20;

/// Offsets of a Raspberry Pi's mini UART in its page (BCM2711 peripherals, 2.2).
mod mini {
    pub const ENABLES: u64 = 0x04;
    pub const IO: u64 = 0x40;
    pub const INTERRUPTS: u64 = 0x44;
    pub const LINE: u64 = 0x4c;
    pub const STATUS: u64 = 0x54;
    pub const CONTROL: u64 = 0x60;
    /// Receiver and transmitter on.
    pub const ON: u32 = 3;
    /// Eight bits.
    pub const EIGHT: u32 = 3;
    /// The line's status: room for a byte, and the transmitter is done.
    pub const ROOM: u32 = 1 << 5;
    pub const DONE: u32 = 1 << 6;
    /// Enables the transmitter's interrupt.
    pub const TX: u32 = 1 << 1;
}

/// A UART, by its programming model and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uart {
    /// Its programming model.
    pub kind: UartKind,
    /// Address of its registers.
    pub base: u64,
}

/// A register, and what is true of it.
struct Bits {
    offset: u64,
    mask: u32,
    value: u32,
}

impl Uart {
    /// Turns on its transmitter. Line settings stay as the boot loader left them.
    ///
    /// # Errors
    ///
    /// Nothing answers at its address.
    pub fn turn_on(self) -> Result<(), Fault> {
        match self.kind {
            UartKind::Pl011 => {
                let line = self.read(pl011::offset::LCR_H.into())?;
                // FEN; then UARTEN, TXE and RXE.
                self.write(pl011::offset::LCR_H.into(), line | 1 << 4)?;
                self.write(pl011::offset::CR.into(), 1 << 9 | 1 << 8 | 1)
            }
            // TXEN and RXEN.
            UartKind::Cadence => self.write(cadence::offset::CONTROL.into(), 1 << 4 | 1 << 2),
            UartKind::Mini => {
                self.write(mini::ENABLES, 1)?;
                self.write(mini::LINE, mini::EIGHT)?;
                self.write(mini::CONTROL, mini::ON)
            }
        }
    }

    fn read(self, offset: u64) -> Result<u32, Fault> {
        read32(self.base + offset)
    }

    fn write(self, offset: u64, value: u32) -> Result<(), Fault> {
        write32(self.base + offset, value)
    }

    /// Waits for a while until a register has bits. Returns whether it has.
    fn await_bits(self, bits: &Bits) -> bool {
        let has = || self.read(bits.offset).map(|value| value & bits.mask) == Ok(bits.value);
        time::wait_until(BYTE_MS, has)
    }

    /// Sends a byte. Returns whether there was room for it, after a wait.
    pub fn send(self, byte: u8) -> bool {
        let (room, data) = match self.kind {
            UartKind::Pl011 => (
                Bits {
                    offset: pl011::offset::FR.into(),
                    mask: 1 << 5,
                    value: 0,
                },
                pl011::offset::DR.into(),
            ),
            UartKind::Cadence => (
                Bits {
                    offset: cadence::offset::STATUS.into(),
                    mask: 1 << 4,
                    value: 0,
                },
                cadence::offset::FIFO.into(),
            ),
            UartKind::Mini => (
                Bits {
                    offset: mini::STATUS,
                    mask: mini::ROOM,
                    value: mini::ROOM,
                },
                mini::IO,
            ),
        };
        self.await_bits(&room) && self.write(data, byte.into()).is_ok()
    }

    /// Waits until all bytes have left its FIFO. Returns whether they have.
    pub fn is_drained(self) -> bool {
        let empty = match self.kind {
            UartKind::Pl011 => Bits {
                offset: pl011::offset::FR.into(),
                mask: 1 << 7,
                value: 1 << 7,
            },
            UartKind::Cadence => Bits {
                offset: cadence::offset::STATUS.into(),
                mask: 1 << 3,
                value: 1 << 3,
            },
            UartKind::Mini => Bits {
                offset: mini::STATUS,
                mask: mini::DONE,
                value: mini::DONE,
            },
        };
        // A FIFO of 64 bytes.
        (0..64).any(|_| self.await_bits(&empty))
    }

    /// Returns the programming model that the UART shows, if it shows one.
    ///
    /// A PL011 has identification registers (Arm DDI 0183, 3.3.15). The others have none: a register
    /// of the claimed model has to keep what is written.
    ///
    /// # Errors
    ///
    /// Nothing answers at its address.
    pub fn shown_kind(self) -> Result<Option<UartKind>, Fault> {
        let mut id = [0; 8];
        for (byte, offset) in id.iter_mut().zip((0..).step_by(4)) {
            *byte = self
                .read(u64::from(pl011::offset::ID) + offset)
                .unwrap_or_default() as u8;
        }
        if id[0] == 0x11 && id[1] == 0x10 && id[4..] == [0x0d, 0xf0, 0x05, 0xb1] {
            return Ok(Some(UartKind::Pl011));
        }
        let (offset, mask) = match self.kind {
            UartKind::Pl011 => return self.read(0x18).map(|_| None),
            UartKind::Cadence => (cadence::offset::RECEIVE_TRIGGER.into(), 0x3f),
            UartKind::Mini => (mini::INTERRUPTS, 3),
        };
        let before = self.read(offset)?;
        let mut keeps = true;
        // Every other bit, and the rest.
        for value in [0x15 & mask, 0x2a & mask] {
            self.write(offset, value)?;
            keeps &= self.read(offset)? & mask == value;
        }
        self.write(offset, before)?;
        Ok(keeps.then_some(self.kind))
    }

    /// Raises or lowers its transmit interrupt, after bytes were sent.
    ///
    /// # Errors
    ///
    /// Nothing answers at its address.
    pub fn raise(self, level: Level) -> Result<(), Fault> {
        let is_high = level == Level::High;
        match self.kind {
            UartKind::Pl011 => {
                let mask = if is_high { 1 << 5 } else { 0 };
                self.write(pl011::offset::IMSC.into(), mask)
            }
            UartKind::Cadence => {
                let register = if is_high {
                    cadence::offset::INTERRUPT_ENABLE
                } else {
                    cadence::offset::INTERRUPT_DISABLE
                };
                self.write(register.into(), 1 << 3)
            }
            UartKind::Mini => self.write(mini::INTERRUPTS, if is_high { mini::TX } else { 0 }),
        }
    }
}

/// The level of an interrupt's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It interrupts.
    High,
    /// It does not.
    Low,
}

/// The console, as in the boot parameters: its kind, and its address.
static KIND: AtomicU64 = AtomicU64::new(0);
static BASE: AtomicU64 = AtomicU64::new(0);

/// Sets the console.
pub fn init(uart: Uart) {
    let number = KINDS.iter().find(|(_, kind)| *kind == uart.kind);
    BASE.store(uart.base, Relaxed);
    KIND.store(number.map_or(0, |(number, _)| *number), Relaxed);
    // If nothing answers, there is no one to be told.
    let _ = uart.turn_on();
}

/// The console's text.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kind = KIND.load(Relaxed);
        let Some(&(_, kind)) = KINDS.iter().find(|(number, _)| *number == kind) else {
            return Err(fmt::Error);
        };
        let base = BASE.load(Relaxed);
        let uart = Uart { kind, base };
        let is_sent = text.bytes().all(|byte| {
            let return_too = byte != b'\n' || uart.send(b'\r');
            return_too && uart.send(byte)
        });
        if is_sent { Ok(()) } else { Err(fmt::Error) }
    }
}
