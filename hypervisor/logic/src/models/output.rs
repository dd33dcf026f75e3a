//! The console and the telemetry, which cores share: each core sends what waits if no other one
//! does, and tries again otherwise.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::Lock;
use crate::console::Output;
use crate::messages::Messages;
use crate::messages::tests::models::{ROOM, ring};
use crate::power::tests::models::check;
use crate::ring::Ring;
use cloison_formats::ids::{Core, VmId};
use cloison_formats::telemetry::{self, Entry, Message, Record, VmState};
use cloison_formats::units::Nanos;
use loom::sync::Arc;
use loom::thread;
use std::string::String;
use std::vec::Vec;

/// The console: a ring of messages for each core, and what has been printed of them.
struct Console {
    rings: [Messages<ROOM>; 2],
    printed: Lock<(Output, String)>,
}

/// Sends some bytes, as `devices::console::send_some` does. Returns whether there may be more.
fn send_some(console: &Console) -> bool {
    let Some(mut guard) = console.printed.try_lock() else {
        return true;
    };
    let (output, text) = &mut *guard;
    for _ in 0..3 {
        let Some(byte) = output.next(&console.rings, 0) else {
            return false;
        };
        text.push(byte.into());
    }
    true
}

/// Two cores have a message each and leave when it is printed, as `vm::life::settle` does: both are
/// printed whole.
fn messages_of_two_cores_are_printed(send: fn(&Console) -> bool) {
    let printed = Lock::new((Output::default(), String::new()));
    let rings = [ring(), ring()];
    let console = Arc::new(Console { rings, printed });
    let work = move |console: &Console, core: usize| {
        let end = console.rings[core].push(format_args!("\x01{core}\r\n"));
        while !console.rings[core].is_past(end) && send(console) {
            thread::yield_now();
        }
    };
    let other = {
        let console = console.clone();
        thread::spawn(move || work(&console, 1))
    };
    work(&console, 0);
    other.join().expect("no assertions");
    let guard = console.printed.try_lock().expect("free");
    let mut lines: Vec<&str> = guard.1.split_terminator("\r\n").collect();
    // Either may be first: only wholeness is promised.
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1"], "not printed whole: {:?}", guard.1);
}

#[test]
fn loom_messages_of_two_cores_are_printed() {
    check("console", || messages_of_two_cores_are_printed(send_some));
}

#[test]
#[should_panic(expected = "not printed whole")]
fn loom_finds_a_core_that_leaves_its_message_to_nobody() {
    check("planted: another core prints it", || {
        messages_of_two_cores_are_printed(|console| {
            console.printed.try_lock().is_some() && send_some(console)
        });
    });
}

/// The telemetry UART, the message that is being sent, and what has been sent.
struct Line {
    buffer: [u8; telemetry::MAX_MESSAGE],
    sent: usize,
    len: usize,
    /// What the host has received.
    out: Vec<u8>,
}

impl Line {
    /// Sends bytes as a FIFO accepts them. Returns whether the message is complete.
    fn advance(&mut self, most: usize) -> bool {
        let end = self.len.min(self.sent + most);
        self.out.extend_from_slice(&self.buffer[self.sent..end]);
        self.sent = end;
        self.sent == self.len
    }

    fn load(&mut self, message: &Message) {
        self.sent = 0;
        self.len = telemetry::encode(message, &mut self.buffer)
            .expect("short")
            .len();
    }
}

/// Bytes that the FIFO accepts at once: fewer than a message has.
const BATCH: usize = 8;

/// Sends a little of a core's records, as `vm::telemetry::pump` does. Returns whether there was
/// none.
fn pump(line: &Lock<Line>, ring: &mut Ring) -> bool {
    let Some(mut line) = line.try_lock() else {
        return false;
    };
    if line.advance(0)
        && !ring.take(Core(0), Nanos(0), |entry| {
            line.load(&Message::Entry(*entry))
        })
    {
        return true;
    }
    line.advance(BATCH);
    false
}

/// Returns a record that differs between cores in more than one byte, so that a torn one shows.
fn record(core: u8) -> Entry {
    Entry {
        core: Core(core),
        at: Nanos(u64::from(core) << 40),
        record: Record::VmState {
            vm: VmId(core),
            state: VmState::Started,
        },
    }
}

/// Two cores send a record each through one UART: both arrive whole, once.
fn records_of_two_cores_arrive(pump: fn(&Lock<Line>, &mut Ring) -> bool) {
    let line = Arc::new(Lock::new(Line {
        buffer: [0; telemetry::MAX_MESSAGE],
        sent: 0,
        len: 0,
        out: Vec::new(),
    }));
    let work = move |line: &Lock<Line>, core| {
        let mut ring = Ring::default();
        ring.push(record(core));
        while !pump(line, &mut ring) {
            thread::yield_now();
        }
    };
    let other = {
        let line = line.clone();
        thread::spawn(move || work(&line, 1))
    };
    work(&line, 0);
    other.join().expect("no assertions");
    let line = line.try_lock().expect("free");
    let mut arrived: Vec<Vec<u8>> = line
        .out
        .split_inclusive(|&byte| byte == 0)
        .map(<[u8]>::to_vec)
        .collect();
    arrived.sort_unstable();
    let mut sent: Vec<Vec<u8>> = (0..2)
        .map(|core| {
            let mut buffer = [0; 64];
            let message = Message::Entry(record(core));
            telemetry::encode(&message, &mut buffer)
                .expect("short")
                .to_vec()
        })
        .collect();
    sent.sort_unstable();
    assert!(sent.iter().all(|message| message.len() > BATCH));
    assert_eq!(arrived, sent, "a record was torn or lost");
}

#[test]
fn loom_records_of_two_cores_arrive() {
    check("telemetry", || records_of_two_cores_arrive(pump));
}

#[test]
#[should_panic(expected = "a record was torn or lost")]
fn loom_finds_a_record_that_is_loaded_over_another() {
    check("planted: look whether the line is free, then load", || {
        records_of_two_cores_arrive(|line, ring| {
            if line.try_lock().is_none_or(|mut line| !line.advance(BATCH)) {
                return false;
            }
            // Another core may load its record here.
            let Some(mut line) = line.try_lock() else {
                return false;
            };
            !ring.take(Core(0), Nanos(0), |entry| {
                line.load(&Message::Entry(*entry))
            })
        });
    });
}
