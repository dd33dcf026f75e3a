//! A doorbell that peers ring while its VM takes bits, ends and starts: the steps of
//! `vm::doorbell` and `vm::virq::doorbell`. A peer's thread is also the core that its call interrupts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::doorbell::Doorbell;
use crate::power::tests::models::check;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The bit that peers set.
const BIT: u64 = 1 << 5;
/// The life in which the VM is called.
const LIFE: u64 = 1;

/// A VM's doorbell, and the line of its interrupt.
struct Bell {
    bits: Doorbell,
    line: Mutex<bool>,
    /// A word of the channel.
    word: AtomicU64,
}

impl Bell {
    fn new() -> Arc<Self> {
        let bell = Self {
            bits: Doorbell::default(),
            line: Mutex::new(false),
            word: AtomicU64::new(0),
        };
        assert!(bell.bits.open());
        Arc::new(bell)
    }

    /// Has the line follow the bits, as `virq::doorbell` does.
    fn follow(&self) {
        let mut line = self.line.lock().expect("no thread panics with it");
        *line = self.bits.waiting() != 0;
    }

    fn is_high(&self) -> bool {
        *self.line.lock().expect("no thread panics with it")
    }
}

/// A peer stores a word and calls with a bit that is set already; the VM takes the bit and reads the
/// word. It has the word, or is called again.
fn the_word_is_seen_or_the_bit_is_set(call: fn(&Doorbell)) {
    let bell = Bell::new();
    assert_eq!(bell.bits.ring(BIT, 0, || true), Ok(true));
    let peer = {
        let bell = bell.clone();
        thread::spawn(move || {
            bell.word.store(1, Relaxed);
            call(&bell.bits);
        })
    };
    let taken = bell.bits.take(BIT).bits;
    assert_eq!(taken, BIT);
    let seen = bell.word.load(Relaxed);
    peer.join().expect("no assertions");
    assert!(
        seen == 1 || bell.bits.waiting() == BIT,
        "the word is missed"
    );
}

#[test]
fn loom_a_call_is_taken_with_what_was_stored_before() {
    check("doorbell: stores before a call", || {
        the_word_is_seen_or_the_bit_is_set(|bits| {
            assert!(bits.ring(BIT, 0, || true).is_ok());
        });
    });
}

#[test]
#[should_panic(expected = "the word is missed")]
fn loom_finds_a_call_that_only_looks() {
    check("planted: a set bit is only looked at", || {
        the_word_is_seen_or_the_bit_is_set(|bits| {
            if bits.waiting() & BIT == 0 {
                assert!(bits.ring(BIT, 0, || true).is_ok());
            }
        });
    });
}

/// A peer calls while the VM takes its bits: in the end, the line is high if and only if a bit
/// waits.
fn the_line_follows(follow: fn(&Bell)) {
    let bell = Bell::new();
    assert_eq!(bell.bits.ring(BIT, 0, || true), Ok(true));
    bell.follow();
    let peer = {
        let bell = bell.clone();
        thread::spawn(move || {
            if bell.bits.ring(BIT << 1, 0, || true) == Ok(true) {
                follow(&bell);
            }
        })
    };
    bell.bits.take(u64::MAX);
    follow(&bell);
    peer.join().expect("no assertions");
    assert_eq!(bell.is_high(), bell.bits.waiting() != 0, "a wrong line");
}

#[test]
fn loom_the_line_of_a_doorbell_follows_its_bits() {
    check("doorbell: line", || the_line_follows(Bell::follow));
}

#[test]
#[should_panic(expected = "a wrong line")]
fn loom_finds_a_line_that_is_decided_before_the_lock() {
    check("planted: a look before the lock", || {
        the_line_follows(|bell| {
            let waits = bell.bits.waiting() != 0;
            *bell.line.lock().expect("no thread panics with it") = waits;
        });
    });
}

/// A peer calls one life while the VM restarts: the next one finds no bit, and a low line.
fn the_next_life_is_not_called(call: fn(&Doorbell) -> bool) {
    let bell = Bell::new();
    let peer = {
        let bell = bell.clone();
        thread::spawn(move || {
            if call(&bell.bits) {
                bell.follow();
            }
        })
    };
    assert!(bell.bits.close());
    // `virq::reset_vm`.
    *bell.line.lock().expect("no thread panics with it") = false;
    assert!(bell.bits.open());
    peer.join().expect("no assertions");
    assert_eq!(bell.bits.life(), LIFE + 2);
    assert_eq!(
        (bell.bits.waiting(), bell.is_high()),
        (0, false),
        "stale mail"
    );
}

#[test]
fn loom_the_next_life_finds_no_bits_of_the_last() {
    check("doorbell: restart", || {
        the_next_life_is_not_called(|bits| bits.ring(BIT, LIFE, || true) == Ok(true));
    });
}

#[test]
#[should_panic(expected = "stale mail")]
fn loom_finds_a_life_that_is_compared_before_the_bit_is_set() {
    check("planted: the life is compared first", || {
        the_next_life_is_not_called(|bits| {
            bits.life() == LIFE && bits.ring(BIT, 0, || true) == Ok(true)
        });
    });
}
