//! The console: a PL011 or a Zynq UltraScale+'s UART, polled for output, with interrupts for input if a program requests them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu;
use crate::device_map::{UartKind, uart_kind};
use crate::mmio::{cadence, pl011};
use aarch64_cpu::registers::{Readable, Writeable};
use cloison_abi::cadence::{CONTROL, INTERRUPTS, STATUS};
use cloison_abi::pl011::{CR, FR, INTERRUPT};
use core::fmt::{self, Write};
use spin::Mutex;

static CONSOLE: Mutex<()> = Mutex::new(());

pub(crate) fn init() {
    match uart_kind() {
        UartKind::Pl011 => pl011()
            .cr
            .write(CR::UARTEN::SET + CR::TXE::SET + CR::RXE::SET),
        UartKind::Cadence => cadence()
            .control
            .write(CONTROL::TXEN::SET + CONTROL::RXEN::SET),
    }
}

/// A line of text being formatted. It is completed first, so that the output of several vCPUs does
/// not mix and a slow formatter does not hold the lock.
struct Line {
    text: [u8; 240],
    len: usize,
}

impl Line {
    fn flush(&mut self) {
        cpu::without_interrupts(|| {
            let _console = CONSOLE.lock();
            let kind = uart_kind();
            for &byte in &self.text[..self.len] {
                match kind {
                    UartKind::Pl011 => {
                        while pl011().fr.is_set(FR::TXFF) {}
                        pl011().dr.set(byte.into());
                    }
                    UartKind::Cadence => {
                        while cadence().status.is_set(STATUS::TFUL) {}
                        cadence().fifo.set(byte.into());
                    }
                }
            }
        });
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.text.len() {
                self.flush();
            }
            self.text[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// Implements `print!` and `println!`.
#[doc(hidden)]
pub fn print(text: fmt::Arguments<'_>) {
    let mut line = Line {
        text: [0; 240],
        len: 0,
    };
    // `Line` never fails; only the caller's `Display` could.
    let _ = line.write_fmt(text);
    line.flush();
}

/// Unlocks the console for the panic handler: the panic may have happened while the lock was held.
pub(crate) fn force_unlock() {
    // SAFETY: the guard that is lost belongs to code that never continues, because a panic ends the
    // VM. At worst, another vCPU's output mixes with the panic message.
    unsafe { CONSOLE.force_unlock() };
}

/// Makes the UART raise [its interrupt](crate::device_map::uart_irq) when input arrives.
pub fn enable_input_interrupt() {
    match uart_kind() {
        UartKind::Pl011 => pl011().imsc.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET),
        UartKind::Cadence => cadence()
            .interrupt_enable
            .write(INTERRUPTS::RTRIG::SET + INTERRUPTS::TIMEOUT::SET),
    }
}

/// Returns the next byte of input, if there is one; otherwise clears the interrupt.
pub fn input() -> Option<u8> {
    match uart_kind() {
        UartKind::Pl011 => {
            if !pl011().fr.is_set(FR::RXFE) {
                return Some(pl011().dr.get() as u8);
            }
            pl011().icr.write(INTERRUPT::RX::SET + INTERRUPT::RT::SET);
        }
        UartKind::Cadence => {
            if !cadence().status.is_set(STATUS::REMPTY) {
                return Some(cadence().fifo.get() as u8);
            }
            cadence()
                .interrupt_status
                .write(INTERRUPTS::RTRIG::SET + INTERRUPTS::TIMEOUT::SET);
        }
    }
    None
}

/// Prints on the VM's console.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::uart::print(format_args!($($arg)*)) };
}

/// Prints a line on the VM's console.
#[macro_export]
macro_rules! println {
    () => { $crate::uart::print(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::uart::print(format_args!("{}\n", format_args!($($arg)*))) };
}
