//! Telemetry: records wait in a ring per core and leave as messages, on the second UART or between
//! the lines of the console.
//!
//! Records leave while their core's guest does not run: while a spent budget holds the core, while
//! the guest waits for an interrupt (then WFI traps), and while the core is parked. Records that
//! find no such time soon, or fill half a ring, leave in the guest's time. No code here waits for
//! the UART while guests run: a core sends a few bytes, as the UART's FIFO has room, and continues
//! later. A full ring drops the record, counts it, and reports that in the stream. A UART that
//! accepts nothing is reported on the console, and a console that accepts nothing in the stream.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::console::{self, Lock};
use crate::devices::timer;
use crate::vm::cpu::Cpu;
use crate::vm::guest_registers;
use cloison_formats::ids::Core;
use cloison_formats::telemetry::{Entry, MAX_MESSAGE, Message, Record};
use cloison_formats::units::Nanos;
use cloison_logic::clock::Instant;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use spin::Once;

/// Maximum number of bytes sent per visit, so that a core does not stay in EL2 for long.
const BATCH: usize = 96;

/// The line; none on a board without a telemetry UART. While guests run, it is only tried: a core
/// whose turn it is not continues its guest.
static LINE: Once<&'static Lock> = Once::new();
/// Whether nobody waits for the UART any more.
static DEAD: AtomicBool = AtomicBool::new(false);
/// The bytes that the console has lost, as last reported.
static REPORTED: AtomicU32 = AtomicU32::new(0);

/// Sends records and messages on this line from now on; boot core only, once.
pub fn init(line: &'static Lock) {
    LINE.call_once(|| line);
}

/// Sends a message and waits until it is complete. To be called while no guest runs.
pub fn send(message: &Message) {
    let Some(lock) = LINE.get() else { return };
    let mut is_long = false;
    if let Some(line) = lock.lock().as_mut()
        // What another core has begun comes first; its bytes must stay together.
        && line.finish()
    {
        is_long = !line.load(message);
        line.finish();
    }
    if is_long {
        log::error!("a telemetry message is longer than {MAX_MESSAGE} bytes and was not sent");
    }
}

/// Logs a record of this core.
#[inline(always)]
pub fn record(cpu: &Cpu, record: Record) {
    // The timer is programmed only where the deadline has changed: it is a write to a system
    // register and a barrier.
    let before = cpu.deadlines.output.get();
    record_at(cpu, timer::now(), record);
    if cpu.deadlines.output.get() != before {
        cpu.deadlines.program();
    }
}

/// Logs a record of this core. The caller programs the EL2 timer.
#[inline(always)]
pub fn record_at(cpu: &Cpu, now: Instant, record: Record) {
    let mut ring = cpu.ring.borrow_mut();
    // A full ring counts the record as dropped; the count is sent when there is room.
    ring.push(Entry {
        core: Core(cpu.index as u8),
        at: cpu.clock.since_reset(now),
        record,
    });
    cpu.send_by(now + cpu.output_delay);
    // The guest's next WFI is the time to send.
    guest_registers::set_wait_trap(true);
}

/// Sends a little of this core's records, or of its messages and its VM's lines, as far as the
/// FIFOs accept it, and sets the EL2 timer for the rest. Returns whether there was no record and no
/// message.
pub fn drain(cpu: &Cpu) -> bool {
    // What this core is responsible for; `send_some` prints for the others too.
    let messages = console::has_messages(cpu.index);
    let lines = cpu.vm.is_some_and(|vm| !console::lines(vm.id).is_empty());
    // In turn, so that no number of records keeps a message waiting.
    let prints = (messages || lines) && !cpu.printed.get();
    cpu.printed.set(prints);
    if prints {
        console::send_some();
    }
    let empty = !prints && (pump(cpu) || DEAD.load(Relaxed)) && !messages;
    cpu.deadlines
        .output
        .set((!empty || lines).then(|| timer::now() + cpu.output_delay));
    // When it doubles: neither late nor often.
    let bytes = console::LOST.load(Relaxed);
    if bytes > 2 * REPORTED.load(Relaxed) {
        REPORTED.store(bytes, Relaxed);
        record(cpu, Record::ConsoleLost(bytes));
    }
    cpu.deadlines.program();
    empty
}

/// Sends a little of this core's records, as far as the FIFO accepts it. Returns whether there was
/// none.
fn pump(cpu: &Cpu) -> bool {
    let mut ring = cpu.ring.borrow_mut();
    let core = Core(cpu.index as u8);
    let Some(lock) = LINE.get() else {
        // This board has no telemetry UART: the records are discarded, and nobody could ask for a
        // count.
        while ring.take(core, Nanos(0), |_| {}) {}
        return true;
    };
    // Another core is sending: this one's records wait for its next visit.
    let Some(mut guard) = lock.try_lock() else {
        return false;
    };
    let Some(line) = guard.as_mut() else {
        return true;
    };
    // Whether the message before is complete: only then does the line take the next one.
    if line.advance(0) {
        let now = cpu.clock.since_reset(timer::now());
        // A record is short enough.
        let load = |entry: &Entry| _ = line.load(&Message::Entry(*entry));
        if !ring.take(core, now, load) {
            return true;
        }
    }
    line.advance(BATCH);
    let is_dead = line.is_dead();
    // What is reported may need the line.
    drop(guard);
    if is_dead && !DEAD.swap(true, Relaxed) {
        log::warn!(
            "the telemetry UART accepts nothing: from now on, what it has no room for is lost"
        );
    }
    false
}
