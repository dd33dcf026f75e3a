//! The physical UARTs: the console that all VMs share, and the telemetry line.

use crate::machine::mmio::{self, Registers};
use cloison_formats::image::UartKind;
use cloison_logic::console::{Output, Part};
use core::fmt::{self, Write};
use spin::Once;
use spin::mutex::TicketMutex;

/// A UART's driver: polled output, input by interrupt.
#[derive(Clone, Copy)]
pub struct Uart {
    registers: Registers,
    kind: UartKind,
}

impl Uart {
    /// Turns transmitter and receiver on. Line settings stay as the boot loader left them.
    pub fn init(self) {
        match self.kind {
            // UARTEN, TXE, RXE (Arm DDI 0183, 3.3.8); the FIFO enable of LCR_H.
            UartKind::Pl011 => {
                self.registers.write(0x2c, self.registers.read(0x2c) | 1 << 4);
                self.registers.write(0x30, 1 | 1 << 8 | 1 << 9);
            }
            // Transmit and receive enable (Zynq UltraScale+ UG1087, Control_reg0).
            UartKind::Cadence => self.registers.write(0x00, 0x14),
            // AUX_ENABLES, 8 bits, transmit and receive enable (BCM2711 peripherals, 2.2).
            UartKind::Mini => {
                [(0x04, 1), (0x4c, 3), (0x60, 3)].into_iter().for_each(|(at, value)| self.registers.write(at, value));
            }
        }
    }

    /// Makes received bytes raise the UART's interrupt.
    pub fn enable_input(self) {
        match self.kind {
            // RXIM and RTIM.
            UartKind::Pl011 => self.registers.write(0x38, 1 << 4 | 1 << 6),
            // Trigger level 1; RTRIG.
            UartKind::Cadence => {
                self.registers.write(0x20, 1);
                self.registers.write(0x08, 1);
            }
            // Receive interrupt: while there is a byte.
            UartKind::Mini => self.registers.write(0x44, 1),
        }
    }

    /// Sends one byte, waiting while the FIFO is full.
    #[inline]
    pub fn send(self, byte: u8) {
        while !self.can_send() {
            core::hint::spin_loop();
        }
        let data = match self.kind {
            UartKind::Pl011 => 0x00,
            UartKind::Cadence => 0x30,
            UartKind::Mini => 0x40,
        };
        self.registers.write(data, u32::from(byte));
    }

    /// Whether the FIFO has room.
    #[inline]
    pub fn can_send(self) -> bool {
        match self.kind {
            UartKind::Pl011 => self.registers.read(0x18) & 1 << 5 == 0,
            UartKind::Cadence => self.registers.read(0x2c) & 1 << 4 == 0,
            UartKind::Mini => self.registers.read(0x54) & 1 << 5 != 0,
        }
    }

    /// Takes back the receive interrupt. Before the bytes are taken: one that comes later raises it again.
    pub fn acknowledge_input(self) {
        match self.kind {
            UartKind::Pl011 => self.registers.write(0x44, 1 << 4 | 1 << 6),
            UartKind::Cadence => self.registers.write(0x14, 1),
            UartKind::Mini => {}
        }
    }

    /// Takes a received byte.
    pub fn receive(self) -> Option<u8> {
        let (status, mask, there, data) = match self.kind {
            UartKind::Pl011 => (0x18, 1 << 4, 0, 0x00),
            UartKind::Cadence => (0x2c, 1 << 1, 0, 0x30),
            UartKind::Mini => (0x54, 1, 1, 0x40),
        };
        (self.registers.read(status) & mask == there).then(|| self.registers.read(data) as u8)
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
/// A ticket lock serves in order: a VM that prints without end delays another's line by one line per core.
static CONSOLE: TicketMutex<Option<Console>> = TicketMutex::new(None);

/// The console and whose line stands open on it.
struct Console {
    uart: Uart,
    output: Output,
}

/// The console past its lock, for a core whose hypervisor is lost.
static LAST_RESORT: Once<Uart> = Once::new();

/// Sets the console up under the early map, at its physical address.
pub fn init_early(parameters: &crate::machine::early::BootParameters) {
    let kind = match parameters.console_kind {
        1 => UartKind::Pl011,
        2 => UartKind::Cadence,
        3 => UartKind::Mini,
        _ => return,
    };
    let uart = Uart { registers: Registers::early_console(parameters.console_base), kind };
    uart.init();
    *CONSOLE.lock() = Some(Console { uart, output: Output::new() });
}

/// Moves the console to its page in the final map.
pub fn init_final(kind: UartKind) -> Uart {
    let uart = Uart { registers: mmio::CONSOLE, kind };
    uart.init();
    *CONSOLE.lock() = Some(Console { uart, output: Output::new() });
    LAST_RESORT.call_once(|| uart);
    uart
}

/// The telemetry UART in the final map.
pub fn telemetry(kind: UartKind) -> Uart {
    let uart = Uart { registers: mmio::TELEMETRY, kind };
    uart.init();
    uart
}

/// Prints one line of the hypervisor's, line end included.
pub fn print(arguments: fmt::Arguments) {
    if let Some(Console { uart, output }) = CONSOLE.lock().as_mut() {
        if output.line() {
            let _ = uart.write_str("\n");
        }
        let _ = uart.write_fmt(arguments);
    }
}

/// Prints a line of a guest's, or a part of one, with its VM's name where that is due.
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

/// Prints after a fatal exception: past the lock if need be, since its holder may be this core. The system is lost, and
/// a torn line is better than none.
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
