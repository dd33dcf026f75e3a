//! The two ends of a link: a frame that waits for room, and the interrupt for what was used: the
//! steps of `vm::link` and `vm::virq::follow`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::tests::models::check;
use crate::virtio::registers::Reasons;
use cloison_abi::virtio::interrupt::USED;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A direction of a link in which one frame is to be sent.
struct Direction {
    /// The receiver's buffer, in its memory.
    room: AtomicBool,
    /// Whether the sender's core waits.
    waits: Mutex<bool>,
    sent: AtomicBool,
}

impl Direction {
    /// As `link::send`: looks for room and, without, waits; under the lock.
    fn send(&self) {
        let mut waits = self.waits.lock().expect("no thread panics with it");
        if self.room.load(Relaxed) {
            self.sent.store(true, Relaxed);
        } else {
            *waits = true;
        }
    }

    /// As if it waited after it has let go of the lock.
    fn send_and_wait_later(&self) {
        let waits = self.waits.lock().expect("no thread panics with it");
        let has_room = self.room.load(Relaxed);
        drop(waits);
        if has_room {
            self.sent.store(true, Relaxed);
        } else {
            *self.waits.lock().expect("no thread panics with it") = true;
        }
    }
}

/// A frame is sent while the receiver makes room and notifies: it is sent at once, or the sender is
/// woken.
fn a_frame_is_sent(send: fn(&Direction)) {
    let direction = Arc::new(Direction {
        room: AtomicBool::new(false),
        waits: Mutex::new(false),
        sent: AtomicBool::new(false),
    });
    let receiver = {
        let direction = direction.clone();
        thread::spawn(move || {
            direction.room.store(true, Relaxed);
            let mut waits = direction.waits.lock().expect("no thread panics with it");
            core::mem::take(&mut *waits)
        })
    };
    send(&direction);
    if receiver.join().expect("no panic") {
        direction.send();
    }
    assert!(direction.sent.load(Relaxed), "the frame waits for good");
}

#[test]
fn loom_a_frame_that_waits_is_sent() {
    check("link: room", || a_frame_is_sent(Direction::send));
}

#[test]
#[should_panic(expected = "the frame waits for good")]
fn loom_finds_a_sender_that_waits_too_late() {
    check("planted: waits without the lock", || {
        a_frame_is_sent(Direction::send_and_wait_later);
    });
}

/// A device's reasons for an interrupt, and its line.
struct Device {
    reasons: Reasons,
    line: Mutex<bool>,
    used: AtomicBool,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reasons: Reasons::default(),
            line: Mutex::new(false),
            used: AtomicBool::new(false),
        })
    }

    /// As `virq::follow`.
    fn follow(&self) {
        let mut line = self.line.lock().expect("no thread panics with it");
        *line = self.reasons.waiting() != 0;
    }

    /// As if it looked at the reasons before it has the lock.
    fn follow_what_was(&self) {
        let is_high = self.reasons.waiting() != 0;
        *self.line.lock().expect("no thread panics with it") = is_high;
    }
}

/// A peer uses a buffer while the driver handles an earlier interrupt. The driver sees the buffer,
/// or the line is high; and the line is what the next reason finds.
fn a_used_buffer_is_seen(follow: fn(&Device)) {
    let device = Device::new();
    assert!(device.reasons.add(USED));
    device.follow();
    let peer = {
        let device = device.clone();
        thread::spawn(move || {
            device.used.store(true, Relaxed);
            if device.reasons.add(USED) {
                follow(&device);
            }
        })
    };
    device.reasons.handled(USED);
    follow(&device);
    let is_seen = device.used.load(Relaxed);
    peer.join().expect("no panic");
    let is_high = *device.line.lock().expect("no thread panics with it");
    assert!(is_seen || is_high, "the buffer is not seen");
    let waits = device.reasons.waiting() != 0;
    assert_eq!(is_high, waits, "the line is not what waits");
}

#[test]
fn loom_a_used_buffer_is_seen_or_interrupts() {
    check("link: interrupt", || a_used_buffer_is_seen(Device::follow));
}

#[test]
#[should_panic(expected = "the line is not what waits")]
fn loom_finds_a_line_that_follows_what_was() {
    check("planted: looks before the lock", || {
        a_used_buffer_is_seen(Device::follow_what_was);
    });
}
