//! Telemetry: records wait in a ring per core and leave as messages on the second UART.
//!
//! Nothing here waits for the UART while guests run: a core sends what fits in the UART's FIFO and continues later. A
//! full ring drops the record, counts it, and reports that in the stream.

use crate::devices::console::Uart;
use crate::devices::timer;
use crate::vm::cpu::Cpu;
use alloc::boxed::Box;
use cloison_formats::telemetry::{self, Event, Message, Record};
use cloison_logic::clock::Instant;
use spin::mutex::TicketMutex;

/// Maximum number of messages sent per visit, so that a core does not stay in EL2 for long.
const BATCH: usize = 4;

/// The UART, and the message that is being sent.
struct Line {
    uart: Uart,
    buffer: Box<[u8; telemetry::MAX_MESSAGE]>,
    sent: usize,
    len: usize,
}

impl Line {
    /// Sends as many bytes as the FIFO accepts. Returns whether the message is complete.
    fn advance(&mut self) -> bool {
        while self.sent < self.len && self.uart.can_send() {
            self.uart.send(self.buffer[self.sent]);
            self.sent += 1;
        }
        self.sent == self.len
    }

    /// Accepts a message. Returns whether it fits.
    fn load(&mut self, message: &Message) -> bool {
        let encoded = telemetry::encode(message, &mut self.buffer[..]).map(<[u8]>::len);
        (self.sent, self.len) = (0, encoded.unwrap_or(0));
        encoded.is_some()
    }
}

static LINE: TicketMutex<Option<Line>> = TicketMutex::new(None);

/// Initializes the UART; boot core only, once.
pub fn init(uart: Uart) {
    *LINE.lock() = Some(Line { uart, buffer: Box::new([0; telemetry::MAX_MESSAGE]), sent: 0, len: 0 });
}

/// Sends a message and waits until it is complete. To be called while no guest runs.
pub fn send(message: &Message) {
    if let Some(line) = LINE.lock().as_mut() {
        while !line.advance() {}
        if !line.load(message) {
            log::error!("a telemetry message is longer than {} bytes and was not sent", telemetry::MAX_MESSAGE);
        }
        while !line.advance() {}
    }
}

/// Logs a record of this core.
pub fn record(cpu: &Cpu, record: Record) {
    let is_programmed = cpu.deadlines.telemetry.get().is_some();
    record_at(cpu, timer::now(), record);
    if !is_programmed {
        cpu.deadlines.program();
    }
}

/// Logs a record of this core. The caller programs the EL2 timer.
pub fn record_at(cpu: &Cpu, now: Instant, record: Record) {
    cpu.ring.borrow_mut().push(Event { core: cpu.index as u8, at: cpu.clock.since_reset(now), record });
    if cpu.deadlines.telemetry.get().is_none() {
        cpu.deadlines.telemetry.set(Some(now + cpu.telemetry_delay));
    }
}

/// Sends a few of this core's records, as far as the FIFO accepts them, and sets the deadline for the rest.
pub fn drain(cpu: &Cpu) {
    let mut budget = BATCH;
    let empty = pump(cpu, || {
        budget = budget.saturating_sub(1);
        budget > 0
    });
    cpu.deadlines.telemetry.set((!empty).then(|| timer::now() + cpu.telemetry_delay));
}

/// Sends all of this core's records and waits for the UART. To be called when its vCPU has stopped.
pub fn flush(cpu: &Cpu) {
    let report = || cpu.ring.borrow_mut().report_losses(cpu.index as u8, cpu.clock.since_reset(timer::now()));
    while !pump(cpu, || true) || report() {
        core::hint::spin_loop();
    }
    cpu.deadlines.telemetry.set(None);
}

/// Sends records while `more` returns true and the FIFO accepts them. Returns whether all were sent.
pub fn pump(cpu: &Cpu, mut more: impl FnMut() -> bool) -> bool {
    let Some(mut guard) = LINE.try_lock() else { return false };
    let mut ring = cpu.ring.borrow_mut();
    let Some(line) = guard.as_mut() else {
        // This board has no telemetry UART: the records are discarded, and nobody could ask for a count.
        while ring.pop().is_some() {}
        return true;
    };
    loop {
        if !line.advance() {
            return false;
        }
        let Some(event) = ring.pop() else { break };
        if !line.load(&Message::Event(event)) {
            ring.count_loss();
        }
        if !more() {
            break;
        }
    }
    line.advance() && ring.is_empty()
}
