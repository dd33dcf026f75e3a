//! The physical UARTs: the console shared by all VMs, and the telemetry UART.

use crate::machine::layout;
use crate::machine::mmio::Mapped;
use crate::machine::registers::{Readable, Writeable};
use cloison_abi::pl011::{CR, FR, INTERRUPT, LCR_H, Pl011};
use cloison_formats::boot::BootParameters;
use cloison_formats::image::UartKind;
use cloison_logic::console::{Output, Part};
use core::fmt::{self, Write};
use spin::Once;
use spin::mutex::TicketMutex;
use tock_registers::interfaces::ReadWriteable;
use tock_registers::registers::ReadWrite;
use tock_registers::{register_bitfields, register_structs};

register_bitfields! { u32,
    CADENCE_STATUS [TXFULL OFFSET(4) NUMBITS(1) [], RXEMPTY OFFSET(1) NUMBITS(1) []],
    MINI_STATUS [TXROOM OFFSET(5) NUMBITS(1) [], RXREADY OFFSET(0) NUMBITS(1) []],
}

register_structs! {
    /// The UART of a Zynq UltraScale+ (UG1087, module UART).
    pub Cadence {
        (0x00 => control: ReadWrite<u32>),
        (0x04 => _mode),
        (0x08 => interrupt_enable: ReadWrite<u32>),
        (0x0c => _disable),
        (0x14 => interrupt_status: ReadWrite<u32>),
        (0x18 => _baud),
        (0x20 => receive_trigger: ReadWrite<u32>),
        (0x24 => _modem),
        (0x2c => status: ReadWrite<u32, CADENCE_STATUS::Register>),
        (0x30 => fifo: ReadWrite<u32>),
        (0x34 => @END),
    },
    /// A Raspberry Pi's mini UART among the auxiliary peripherals (BCM2711 peripherals, 2.2).
    pub Mini {
        (0x00 => _irq),
        (0x04 => enables: ReadWrite<u32>),
        (0x08 => _reserved),
        (0x40 => io: ReadWrite<u32>),
        (0x44 => interrupt_enable: ReadWrite<u32>),
        (0x48 => _identify),
        (0x4c => line_control: ReadWrite<u32>),
        (0x50 => _modem),
        (0x54 => status: ReadWrite<u32, MINI_STATUS::Register>),
        (0x58 => _scratch),
        (0x60 => control: ReadWrite<u32>),
        (0x64 => @END),
    }
}

/// A UART's driver: polled output, interrupt-driven input.
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
    /// Turns on transmitter and receiver of the UART at `address`. Line settings stay as the boot loader left them.
    ///
    /// # Safety
    /// The page of `address` must be mapped as a device and show a UART of this kind as long as the driver is used.
    unsafe fn new(kind: UartKind, address: u64) -> Self {
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
                uart.lcr_h.modify(LCR_H::FEN::SET);
                uart.cr.write(CR::UARTEN::SET + CR::TXE::SET + CR::RXE::SET);
            }
            // Enable transmitter and receiver.
            Self::Cadence(uart) => uart.control.set(0x14),
            // Enable the UART itself, 8 bits, transmitter and receiver.
            Self::Mini(uart) => {
                uart.enables.set(1);
                uart.line_control.set(3);
                uart.control.set(3);
            }
        }
        uart
    }

    /// Makes received bytes raise the UART's interrupt.
    pub fn enable_input(self) {
        match self {
            Self::Pl011(uart) => uart.imsc.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET),
            // Trigger level 1; RTRIG.
            Self::Cadence(uart) => {
                uart.receive_trigger.set(1);
                uart.interrupt_enable.set(1);
            }
            // Receive interrupt: raised while there is a byte.
            Self::Mini(uart) => uart.interrupt_enable.set(1),
        }
    }

    /// Sends one byte, waiting while the FIFO is full.
    #[inline]
    pub fn send(self, byte: u8) {
        while !self.can_send() {
            core::hint::spin_loop();
        }
        match self {
            Self::Pl011(uart) => uart.dr.set(byte.into()),
            Self::Cadence(uart) => uart.fifo.set(byte.into()),
            Self::Mini(uart) => uart.io.set(byte.into()),
        }
    }

    /// Returns whether the FIFO has room.
    #[inline]
    pub fn can_send(self) -> bool {
        match self {
            Self::Pl011(uart) => !uart.fr.is_set(FR::TXFF),
            Self::Cadence(uart) => !uart.status.is_set(CADENCE_STATUS::TXFULL),
            Self::Mini(uart) => uart.status.is_set(MINI_STATUS::TXROOM),
        }
    }

    /// Acknowledges the receive interrupt. To be called before the bytes are taken: one that arrives later raises it
    /// again.
    pub fn acknowledge_input(self) {
        match self {
            Self::Pl011(uart) => uart.icr.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET),
            Self::Cadence(uart) => uart.interrupt_status.set(1),
            Self::Mini(_) => {}
        }
    }

    /// Returns a received byte, if there is one.
    pub fn receive(self) -> Option<u8> {
        match self {
            Self::Pl011(uart) => (!uart.fr.is_set(FR::RXFE)).then(|| uart.dr.get() as u8),
            Self::Cadence(uart) => (!uart.status.is_set(CADENCE_STATUS::RXEMPTY)).then(|| uart.fifo.get() as u8),
            Self::Mini(uart) => uart.status.is_set(MINI_STATUS::RXREADY).then(|| uart.io.get() as u8),
        }
    }
}

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.send(b'\r');
            }
            self.send(byte);
        }
        Ok(())
    }
}

/// The console; `None` before `init` and on an image without boot parameters.
///
/// A ticket lock serves in order: a VM that prints without end delays another's line of text by at most one per core.
static CONSOLE: TicketMutex<Option<Console>> = TicketMutex::new(None);

/// The console, and which VM has an unfinished line on it.
struct Console {
    uart: Uart,
    output: Output,
}

/// Access to the console without its lock, for a core after a fatal exception.
static LAST_RESORT: Once<Uart> = Once::new();

/// Sets up the console under the early map, at its physical address.
pub fn init_early(parameters: &BootParameters) {
    let Some((kind, base)) = parameters.console else { return };
    // SAFETY: the early map has the console's gigabyte as a device, and the image builder has set its kind;
    // `init_final` provides the final mapping.
    let uart = unsafe { Uart::new(kind, base.0) };
    *CONSOLE.lock() = Some(Console { uart, output: Output::default() });
}

/// Moves the console to its page in the final map.
pub fn init_final(kind: UartKind) -> Uart {
    // SAFETY: the final tables map the board's console there permanently.
    let uart = unsafe { Uart::new(kind, layout::CONSOLE) };
    *CONSOLE.lock() = Some(Console { uart, output: Output::default() });
    LAST_RESORT.call_once(|| uart);
    uart
}

/// Returns the telemetry UART in the final map.
pub fn telemetry(kind: UartKind) -> Uart {
    // SAFETY: the final tables map the board's telemetry UART there permanently.
    unsafe { Uart::new(kind, layout::TELEMETRY) }
}

/// Prints one line of text of the hypervisor's, including the line end.
pub fn print(arguments: fmt::Arguments) {
    if let Some(Console { uart, output }) = CONSOLE.lock().as_mut() {
        if output.line() {
            let _ = uart.write_str("\n");
        }
        let _ = uart.write_fmt(arguments);
    }
}

/// Prints a guest's line of text, or a part of one, with its VM's name if due.
pub fn print_guest(vm: u8, name: &str, part: &Part) {
    let mut console = CONSOLE.lock();
    let Some(Console { uart, output }) = console.as_mut() else { return };
    let prefix = output.part(vm, part);
    if prefix.line_end {
        let _ = uart.write_str("\n");
    }
    if let Some(mark) = prefix.name {
        let _ = write!(uart, "[{name}]{mark}");
    }
    let _ = uart.write_str(part.text);
    if part.ends {
        let _ = uart.write_str("\n");
    }
}

/// Prints after a fatal exception, without the lock if necessary, because its holder may be this core. The system is
/// lost, and a torn line is better than none.
pub fn print_fatal(arguments: fmt::Arguments) {
    for _ in 0..100_000 {
        if let Some(mut console) = CONSOLE.try_lock() {
            if let Some(Console { uart, .. }) = console.as_mut() {
                let _ = uart.write_fmt(arguments);
            }
            return;
        }
        core::hint::spin_loop();
    }
    if let Some(&(mut uart)) = LAST_RESORT.get() {
        let _ = uart.write_fmt(arguments);
    }
}
