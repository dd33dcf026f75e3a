//! The ring of messages under loom: one core writes while others, one at a time, take bytes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::messages::*;
use crate::power::tests::models::check;
use loom::sync::atomic::{AtomicU8, AtomicU32};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::string::String;
use std::vec::Vec;

pub const ROOM: usize = 8;

/// Returns an empty ring with room for one short line.
pub fn ring() -> Messages<ROOM> {
    let [written, taken, lost] = core::array::from_fn(|_| AtomicU32::new(0));
    Messages {
        bytes: core::array::from_fn(|_| AtomicU8::new(b'?')),
        written,
        taken,
        lost,
    }
}

/// How a message is written.
type Push = fn(&Messages<ROOM>, fmt::Arguments);

/// A core writes three messages, of which two fit: the others take bytes of whole messages only,
/// and in order.
fn messages_come_whole(push: Push) {
    let (ring, console) = (Arc::new(ring()), Arc::new(Mutex::new(Vec::new())));
    let take = |ring: &Messages<ROOM>, console: &Mutex<Vec<u8>>| {
        let mut console = console.lock().expect("no thread panics with it");
        console.extend(core::iter::from_fn(|| ring.pop()).take(5));
    };
    let others = [0; 2].map(|_| {
        let (ring, console) = (ring.clone(), console.clone());
        thread::spawn(move || take(&ring, &console))
    });
    for name in ["a", "bc", "d"] {
        push(&ring, format_args!("{name}\r\n"));
    }
    others
        .into_iter()
        .for_each(|other| other.join().expect("no assertions"));
    // What does not fit any more is counted, so the loss is reported in the end.
    let lost = ring.lost.load(Relaxed);
    let mut console = console.lock().expect("no thread panics with it");
    console.extend(core::iter::from_fn(|| ring.pop()));
    let out = String::from_utf8(console.clone()).expect("ASCII");
    let came: Vec<&str> = out.split_terminator("\r\n").collect();
    let whole = matches!((&came[..], lost), (["a", "bc"], 1) | (["a", "bc", "d"], 0));
    assert!(
        whole && (lost == 1 || out.ends_with('\n')),
        "{out:?}, {lost} lost"
    );
}

#[test]
fn loom_messages_come_whole() {
    check("messages", || {
        messages_come_whole(|ring, message| _ = ring.push(message))
    });
}

/// Lets the bytes be seen before they are there.
fn push_early(ring: &Messages<ROOM>, message: fmt::Arguments) {
    let at = ring.written.load(Relaxed);
    let len = u32::try_from(std::format!("{message}").len()).expect("short");
    let end = ring.taken.load(Acquire).wrapping_add(ROOM as u32);
    if at.wrapping_add(len) > end {
        ring.push(message);
        return;
    }
    ring.written.store(at.wrapping_add(len), Release);
    let _ = write!(Writer { ring, at, end }, "{message}");
}

#[test]
#[should_panic(expected = "lost")]
fn loom_finds_a_message_that_is_seen_before_it_is_written() {
    check("planted: publish, then write", || {
        messages_come_whole(push_early)
    });
}

/// Overwrites bytes that nobody has taken.
fn push_blindly(ring: &Messages<ROOM>, message: fmt::Arguments) {
    let at = ring.written.load(Relaxed);
    let mut writer = Writer {
        ring,
        at,
        end: at.wrapping_add(ROOM as u32),
    };
    let _ = writer.write_fmt(message);
    ring.written.store(writer.at, Release);
}

#[test]
#[should_panic(expected = "lost")]
fn loom_finds_a_message_that_overwrites_another() {
    check("planted: no look at what was taken", || {
        messages_come_whole(push_blindly)
    });
}
