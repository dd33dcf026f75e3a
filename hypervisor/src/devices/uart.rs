//! Drivers of the physical UARTs: polled output, interrupt-driven input.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmio::Mapped;
use crate::machine::registers::{Readable, Writeable};
use cloison_abi::cadence::{CONTROL, Cadence, INTERRUPTS, STATUS};
use cloison_abi::pl011::{CR, FR, INTERRUPT, LCR_H, Pl011};
use cloison_formats::image::UartKind;
use tock_registers::interfaces::ReadWriteable;
use tock_registers::registers::{ReadOnly, ReadWrite};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! { u32,
    MINI_ENABLES [UART OFFSET(0) NUMBITS(1) []],
    MINI_INTERRUPTS [RX OFFSET(0) NUMBITS(1) []],
    MINI_LINE [BITS OFFSET(0) NUMBITS(2) [Eight = 3]],
    MINI_CONTROL [TX OFFSET(1) NUMBITS(1) [], RX OFFSET(0) NUMBITS(1) []],
    MINI_STATUS [TXROOM OFFSET(5) NUMBITS(1) [], RXREADY OFFSET(0) NUMBITS(1) []],
}

register_structs! {
    /// A Raspberry Pi's mini UART among the auxiliary peripherals (BCM2711 peripherals, 2.2).
    pub Mini {
        (0x00 => _irq),
        (0x04 => enables: ReadWrite<u32, MINI_ENABLES::Register>),
        (0x08 => _reserved),
        (0x40 => io: ReadWrite<u32>),
        (0x44 => interrupt_enable: ReadWrite<u32, MINI_INTERRUPTS::Register>),
        (0x48 => _identify),
        (0x4c => line_control: ReadWrite<u32, MINI_LINE::Register>),
        (0x50 => _modem),
        (0x54 => status: ReadOnly<u32, MINI_STATUS::Register>),
        (0x58 => _scratch),
        (0x60 => control: ReadWrite<u32, MINI_CONTROL::Register>),
        (0x64 => @END),
    }
}

/// A UART, by its programming model.
///
/// Copies refer to the same registers. The lock of the console, or of the telemetry line, is what
/// keeps two cores from using one at once.
#[derive(Clone, Copy)]
pub enum Uart {
    /// Arm's.
    Pl011(Mapped<Pl011>),
    /// The ZCU102's.
    Cadence(Mapped<Cadence>),
    /// The Raspberry Pi's.
    Mini(Mapped<Mini>),
}

impl Uart {
    /// Turns on transmitter and receiver of the UART at `address`. Line settings stay as the boot
    /// loader left them.
    ///
    /// # Safety
    /// The page of `address` must be mapped as a device and show a UART of this kind as long as the
    /// driver is used.
    pub unsafe fn new(kind: UartKind, address: u64) -> Self {
        // SAFETY: the caller's obligations are the same.
        let uart = unsafe {
            match kind {
                UartKind::Pl011 => Self::Pl011(Mapped::new(address)),
                UartKind::Cadence => Self::Cadence(Mapped::new(address)),
                UartKind::Mini => Self::Mini(Mapped::new(address)),
            }
        };
        match uart {
            Self::Pl011(uart) => {
                // The FIFO on, and the loader's word length and parity kept.
                uart.lcr_h.modify(LCR_H::FEN::SET);
                uart.cr.write(CR::UARTEN::SET + CR::TXE::SET + CR::RXE::SET);
            }
            Self::Cadence(uart) => uart.control.write(CONTROL::TXEN::SET + CONTROL::RXEN::SET),
            Self::Mini(uart) => {
                uart.enables.write(MINI_ENABLES::UART::SET);
                // The mini UART starts with seven bits (BCM2711 peripherals, 2.2).
                uart.line_control.write(MINI_LINE::BITS::Eight);
                uart.control
                    .write(MINI_CONTROL::TX::SET + MINI_CONTROL::RX::SET);
            }
        }
        uart
    }

    /// Makes received bytes raise the UART's interrupt.
    ///
    /// The interrupt is enabled at the UART here, and at the GIC by the caller.
    pub fn enable_input(self) {
        match self {
            // A full trigger level (RX), or bytes that have waited for a while (RT).
            Self::Pl011(uart) => uart.imsc.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET),
            Self::Cadence(uart) => {
                // The trigger level of the FIFO: one byte.
                uart.receive_trigger.set(1);
                uart.interrupt_enable.write(INTERRUPTS::RTRIG::SET);
            }
            Self::Mini(uart) => uart.interrupt_enable.write(MINI_INTERRUPTS::RX::SET),
        }
    }

    /// Acknowledges the receive interrupt. To be called before the bytes are taken: one that
    /// arrives later raises it again.
    pub fn acknowledge_input(self) {
        match self {
            Self::Pl011(uart) => uart.icr.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET),
            Self::Cadence(uart) => uart.interrupt_status.write(INTERRUPTS::RTRIG::SET),
            // Its interrupt lasts while there is a byte.
            Self::Mini(_) => {}
        }
    }

    /// Returns whether the transmit FIFO has room.
    pub fn can_send(self) -> bool {
        match self {
            Self::Pl011(uart) => !uart.fr.is_set(FR::TXFF),
            Self::Cadence(uart) => !uart.status.is_set(STATUS::TFUL),
            Self::Mini(uart) => uart.status.is_set(MINI_STATUS::TXROOM),
        }
    }

    /// Sends one byte, for which the FIFO has room.
    ///
    /// Without room, the byte would be lost or overwrite another one: the caller asks
    /// [`can_send`](Self::can_send) first.
    pub fn send(self, byte: u8) {
        self.data().set(byte.into());
    }

    /// Returns a received byte, if there is one.
    pub fn receive(self) -> Option<u8> {
        let has_byte = match self {
            Self::Pl011(uart) => !uart.fr.is_set(FR::RXFE),
            Self::Cadence(uart) => !uart.status.is_set(STATUS::REMPTY),
            Self::Mini(uart) => uart.status.is_set(MINI_STATUS::RXREADY),
        };
        // Bits 8 and up of a PL011's data register are error flags: a damaged byte is passed on.
        has_byte.then(|| self.data().get() as u8)
    }

    /// The register that bytes pass through, in both directions.
    fn data(&self) -> &ReadWrite<u32> {
        match self {
            Self::Pl011(uart) => &uart.dr,
            Self::Cadence(uart) => &uart.fifo,
            Self::Mini(uart) => &uart.io,
        }
    }
}
