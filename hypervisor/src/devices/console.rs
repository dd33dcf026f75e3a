//! The uses of the physical UARTs: the console shared by all VMs, and the telemetry.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::devices::uart::Uart;
use crate::machine::layout::{self, MAX_CORES};
use crate::machine::registers::{CNTFRQ_EL0, Readable};
use alloc::boxed::Box;
use cloison_formats::boot::BootParameters;
use cloison_formats::ids::VmId;
use cloison_formats::image::{Board, UartKind};
use cloison_formats::limits::MAX_VMS;
use cloison_formats::telemetry::{self, MAX_MESSAGE, Message, STARTS};
use cloison_logic::clock::Instant;
use cloison_logic::console::{NEUTRAL, Output};
use cloison_logic::messages::Messages;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use spin::Once;
use spin::mutex::TicketMutex;

/// A UART's output. Nobody waits for a UART that once accepted nothing for 5 ms; at 9600 baud, a
/// byte takes 1 ms.
struct Port {
    uart: Uart,
    /// Since when it has accepted nothing.
    refused_at: Option<Instant>,
    /// Whether that has lasted too long, once.
    is_dead: bool,
}

impl Port {
    const fn new(uart: Uart) -> Self {
        Self {
            uart,
            refused_at: None,
            is_dead: false,
        }
    }

    /// Returns whether the UART accepts a byte.
    fn is_ready(&mut self) -> bool {
        if self.uart.can_send() {
            self.refused_at = None;
            return true;
        }
        let now = timer::now();
        // For good: from then on nothing waits for this UART, though it may accept bytes again.
        self.is_dead |= now.since(*self.refused_at.get_or_insert(now)).0 > CNTFRQ_EL0.get() / 200;
        false
    }

    /// Sends a byte as soon as the UART is ready. A dead one loses it.
    fn send(&mut self, byte: u8) {
        while !self.is_ready() && !self.is_dead {}
        match self.refused_at {
            None => self.uart.send(byte),
            Some(_) => _ = LOST.fetch_add(1, Relaxed),
        }
    }
}

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // For text that does not come from a ring; messages in rings have their carriage
            // returns.
            if byte == b'\n' {
                self.send(b'\r');
            }
            self.send(byte);
        }
        Ok(())
    }
}

/// A line that may not be there.
pub type Lock = TicketMutex<Option<Line>>;

/// The console; `None` before `init` and on an image without boot parameters.
///
/// Nobody waits for the lock while guests run: the core that has it prints for all, in turn. So a VM that
/// prints without end delays another's line of text by one line at most.
static CONSOLE: Lock = TicketMutex::new(None);
/// The line that carries the telemetry alone, where there is one.
static TELEMETRY: Lock = TicketMutex::new(None);

/// What waits for the console: messages of the hypervisor by core, then what guests write, by VM. A
/// core writes to its own ring, and to its VM's with the VM's UART locked.
static RINGS: [Messages<2048>; MAX_CORES + MAX_VMS] =
    [const { Messages::empty() }; MAX_CORES + MAX_VMS];
/// The VM that has the console's input.
pub static INPUT: AtomicU8 = AtomicU8::new(0);
/// Bytes that the console has lost because its UART is dead.
pub static LOST: AtomicU32 = AtomicU32::new(0);

/// Maximum number of bytes of messages sent per visit, so that a core does not stay in EL2 for
/// long.
const BATCH: usize = 16;

/// A message of the telemetry that is being sent.
struct Outgoing {
    /// Encoded, after [`STARTS`]: allocated once, at boot.
    bytes: Box<[u8; 1 + MAX_MESSAGE]>,
    /// Where it starts there: at that byte between text, after it elsewhere.
    start: usize,
    /// Where its next byte is.
    sent: usize,
    /// Where it ends; equal to `sent` if nothing is being sent.
    end: usize,
}

/// A UART, and what is unfinished on it: text, telemetry, or both.
pub struct Line {
    port: Port,
    output: Output,
    /// `None` if it carries text alone.
    outgoing: Option<Outgoing>,
}

impl Line {
    fn new(uart: Uart) -> Self {
        Self {
            port: Port::new(uart),
            output: Output::default(),
            outgoing: None,
        }
    }

    /// Returns whether nobody waits for the UART any more.
    pub fn is_dead(&self) -> bool {
        self.port.is_dead
    }

    /// Sends up to `most` bytes of a message of the telemetry, as the FIFO accepts them. Returns
    /// whether it is complete.
    pub fn advance(&mut self, most: usize) -> bool {
        let Some(message) = &mut self.outgoing else {
            return true;
        };
        let end = message.end.min(message.sent.saturating_add(most));
        while message.sent < end && self.port.is_ready() {
            self.port.uart.send(message.bytes[message.sent]);
            message.sent += 1;
        }
        message.sent == message.end
    }

    /// Waits until a message of the telemetry is complete. Returns whether it is: not if the UART
    /// is dead.
    pub fn finish(&mut self) -> bool {
        loop {
            let is_complete = self.advance(usize::MAX);
            if is_complete || self.port.is_dead {
                return is_complete;
            }
        }
    }

    /// Accepts a message of the telemetry, when the one before is complete. Returns whether it is
    /// short enough.
    pub fn load(&mut self, message: &Message) -> bool {
        // Encoding takes far longer than logging a record, which is why records are kept as they
        // are until the UART is free.
        let loaded = self.outgoing.as_mut().and_then(|outgoing| {
            outgoing.end = 1 + telemetry::encode(message, &mut outgoing.bytes[1..])?.len();
            outgoing.sent = outgoing.start;
            Some(())
        });
        loaded.is_some()
    }

    /// Prints `most` bytes of what waits, as far as the FIFO accepts them; where it `waits`, the
    /// rest of the last message too. Returns whether there may be more.
    fn messages(&mut self, most: usize, waits: bool) -> bool {
        // A message of the telemetry has no text within.
        if waits {
            self.finish();
        } else if !self.advance(most) && !self.port.is_dead {
            return true;
        }
        let mut sent = 0;
        while sent < most || waits && self.output.begun.is_some() {
            if !waits && !self.port.is_ready() && !self.port.is_dead {
                break;
            }
            // VMs' rings follow those of the cores.
            let input = MAX_CORES + usize::from(INPUT.load(Relaxed));
            let Some(byte) = self.output.next(&RINGS, input) else {
                return false;
            };
            self.port.send(byte);
            sent += 1;
        }
        true
    }

    /// Prints text at once, after what waits.
    fn print(&mut self, text: fmt::Arguments) {
        self.messages(usize::MAX, true);
        let before = self.output.line(None);
        // A port reports no error.
        let _ = write!(self.port, "{before}{text}");
    }
}

/// Makes the UART the console's.
///
/// Called twice: under the early map, and again under the final one, where the registers have
/// another address. Nothing waits at that time.
fn install(uart: Uart) {
    *CONSOLE.lock() = Some(Line::new(uart));
}

/// Access to the console without its lock, for a core after a fatal exception.
static LAST_RESORT: Once<Uart> = Once::new();
/// Whether that has ended what guests have left open on the terminal.
static NEUTRALIZED: AtomicBool = AtomicBool::new(false);

/// Sets up the console under the early map, at its physical address.
pub fn init_early(parameters: &BootParameters) {
    let Some((kind, base)) = parameters.console else {
        return;
    };
    // SAFETY: the early map has the console's gigabyte as a device, and the image builder has set
    // its kind; `init_final` provides the final mapping.
    install(unsafe { Uart::new(kind, base.0) });
}

/// Moves the console to its page in the final map.
pub fn init_final(kind: UartKind) -> Uart {
    // SAFETY: the final tables map the board's console there permanently.
    let uart = unsafe { Uart::new(kind, layout::CONSOLE) };
    install(uart);
    LAST_RESORT.call_once(|| uart);
    uart
}

/// Returns the line of the telemetry, which is the console's if that is its UART; boot core only,
/// once, when the console is in the final map.
pub fn init_telemetry(board: &Board) -> Option<&'static Lock> {
    let uart = board.telemetry.as_ref()?;
    let (line, start) = if board.is_mixed() {
        (&CONSOLE, 0)
    } else {
        // SAFETY: the final tables map the board's telemetry UART there permanently.
        let uart = unsafe { Uart::new(uart.kind, layout::TELEMETRY) };
        *TELEMETRY.lock() = Some(Line::new(uart));
        (&TELEMETRY, 1)
    };
    line.lock().as_mut()?.outgoing = Some(Outgoing {
        bytes: Box::new([STARTS; 1 + MAX_MESSAGE]),
        start,
        sent: 0,
        end: 0,
    });
    Some(line)
}

/// Prints a message at once, after those that wait. To be called while no guest runs.
pub fn print(message: fmt::Arguments) {
    if let Some(console) = CONSOLE.lock().as_mut() {
        console.print(format_args!("{message}\n"));
    }
}

/// Returns whether messages of this core wait.
pub fn has_messages(core: usize) -> bool {
    let own = &RINGS[core];
    // Losses that no later message has reported.
    own.push(format_args!(""));
    !own.is_empty()
}

/// Returns the messages of this core.
pub fn messages(core: usize) -> &'static Messages<2048> {
    &RINGS[core]
}

/// Returns the lines of this VM. Only who has locked its UART adds to them.
pub fn lines(vm: VmId) -> &'static Messages<2048> {
    &RINGS[MAX_CORES + vm.index()]
}

/// Sends some bytes of all that waits, as far as the FIFO accepts them. Returns
/// whether there may be more.
pub fn send_some() -> bool {
    let Some(mut guard) = CONSOLE.try_lock() else {
        return true;
    };
    guard
        .as_mut()
        .is_some_and(|console| console.messages(BATCH, false))
}

/// Prints after a fatal exception, without the lock if necessary, because its holder may be this
/// core. The system is lost, and a torn line is better than none.
pub fn print_fatal(arguments: fmt::Arguments) {
    // Tries for a while, so that a core which prints right now can finish; then takes the UART
    // without the lock.
    let mut guard = (0..100_000).find_map(|_| CONSOLE.try_lock());
    if let Some(console) = guard.as_mut().and_then(|console| console.as_mut()) {
        console.print(arguments);
    } else if let Some(&uart) = LAST_RESORT.get() {
        // Only the lock's holder knows what the terminal has passed.
        let before = if NEUTRALIZED.swap(true, Relaxed) {
            ""
        } else {
            NEUTRAL
        };
        let _ = write!(Port::new(uart), "{before}{arguments}");
    }
}
