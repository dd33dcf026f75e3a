//! The ring's C header: its ends and the Rust ones pass each other messages, and do the same with
//! the same memory, whatever a peer has stored there.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use cloison_channel::{Lies, Message, NotSent, Receiver, Ring, Sender, Session, WORDS};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a ring for four messages.
const MEMORY: usize = 6 * WORDS;
/// What the C end is told to do.
const BEGIN_SENDER: u64 = 0;
const BEGIN_RECEIVER: u64 = 1;
const SEND: u64 = 2;
const RECEIVE: u64 = 3;
/// What it returns.
const FULL: i64 = -1;
const LIES: i64 = -2;

/// Compiles the program once. Warnings are errors.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("channel-end");
        let status = Command::new("cc")
            .args([
                "-std=c11",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-pthread",
                "-I",
            ])
            .args([home.join("include"), home.join("tests/end.c")])
            .arg("-o")
            .arg(&program)
            .status()
            .expect("a C compiler is a prerequisite");
        assert!(status.success(), "the header does not compile");
        program
    })
}

/// The C ends.
struct C {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl C {
    fn start() -> Self {
        let mut child = Command::new(program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was compiled");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Self {
            child,
            input: input.expect("piped"),
            output: output.expect("piped"),
        }
    }

    /// Lets the C end work on the memory. Returns its result and the message.
    fn step(
        &mut self,
        what: u64,
        session: u64,
        message: &Message,
        memory: &[AtomicU64],
    ) -> (i64, Message) {
        let words = [what, session].into_iter().chain(*message);
        let words = words.chain(memory.iter().map(|word| word.load(Relaxed)));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        self.input.write_all(&bytes).expect("it reads");
        let mut bytes = vec![0; bytes.len()];
        self.output.read_exact(&mut bytes).expect("it answers");
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().expect("as many as were written");
        let (result, _) = (next() as i64, next());
        let message = core::array::from_fn(|_| next());
        for word in memory {
            word.store(next(), Relaxed);
        }
        (result, message)
    }
}

impl Drop for C {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn memory() -> Vec<AtomicU64> {
    (0..MEMORY).map(|_| AtomicU64::new(0)).collect()
}

fn values(memory: &[AtomicU64]) -> Vec<u64> {
    memory.iter().map(|word| word.load(Relaxed)).collect()
}

fn message(number: u64) -> Message {
    core::array::from_fn(|word| number << 8 | word as u64)
}

/// A session of lives 1 and 3, as both sides have it.
const RUST: Session = Session::new(1, 3);
const SESSION: u64 = 1 << 48 | 3 << 32;

/// Returns the number that the C end returns for a Rust end's result of sending.
fn sent(result: Result<(), NotSent>) -> i64 {
    match result {
        Ok(()) => 0,
        Err(NotSent::Full) => FULL,
        Err(NotSent::Lies) => LIES,
    }
}

/// The same for receiving.
fn received(result: Result<Option<Message>, Lies>) -> (i64, Message) {
    match result {
        Ok(Some(message)) => (1, message),
        Ok(None) => (0, [0; WORDS]),
        Err(Lies) => (LIES, [0; WORDS]),
    }
}

#[test]
fn two_threads_in_c_pass_messages() {
    let status = Command::new(program()).arg("100000").status();
    assert!(status.expect("it was compiled").success());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// One end in Rust and the other in C, in any order of sending and receiving.
    #[test]
    fn messages_arrive_in_order_from_rust_to_c_and_back(
        c_sends in any::<bool>(),
        steps in prop::collection::vec(any::<bool>(), 1..300),
    ) {
        let (mut c, memory) = (C::start(), memory());
        let ring = Ring::new(&memory).expect("there is room");
        let mut sender = Sender::begin(ring, RUST);
        let mut receiver = Receiver::begin(ring, RUST);
        for begin in [BEGIN_SENDER, BEGIN_RECEIVER] {
            c.step(begin, SESSION, &message(0), &memory);
        }
        let (mut queue, mut number) = (VecDeque::new(), 0);
        for sends in steps {
            if sends {
                let next = message(number);
                let result = if c_sends {
                    c.step(SEND, 0, &next, &memory).0
                } else {
                    sent(sender.send(&next))
                };
                prop_assert_eq!(result, if queue.len() == 4 { FULL } else { 0 });
                if result == 0 {
                    queue.push_back(next);
                    number += 1;
                }
            } else {
                let result = if c_sends {
                    received(receiver.receive())
                } else {
                    c.step(RECEIVE, 0, &[0; WORDS], &memory)
                };
                let expected = queue.pop_front();
                prop_assert_eq!(result, received(Ok(expected)));
            }
        }
    }

    /// Both ends in both languages, beside a peer that stores anything: the same results, and the
    /// same memory.
    #[test]
    fn both_languages_do_the_same_beside_a_peer_that_lies(
        steps in prop::collection::vec(
            (0u64..4, 0..MEMORY, prop_oneof![0u64..8, Just(u64::from(u32::MAX)), any::<u64>()], any::<bool>()),
            1..200,
        ),
    ) {
        let (mut c, rust, memory) = (C::start(), memory(), memory());
        let ring = Ring::new(&rust).expect("there is room");
        let mut sender = Sender::begin(ring, RUST);
        let mut receiver = Receiver::begin(ring, RUST);
        for begin in [BEGIN_SENDER, BEGIN_RECEIVER] {
            c.step(begin, SESSION, &message(0), &memory);
        }
        for (what, at, value, is_of_session) in steps {
            match what {
                0 => {
                    // Positions more often than messages.
                    let at = if is_of_session { at % 2 * WORDS } else { at };
                    let value = if is_of_session { SESSION | value & 0xffff_ffff } else { value };
                    rust[at].store(value, Relaxed);
                    memory[at].store(value, Relaxed);
                }
                1 | 2 => {
                    let next = message(value);
                    prop_assert_eq!(c.step(SEND, 0, &next, &memory).0, sent(sender.send(&next)));
                }
                _ => {
                    let in_c = c.step(RECEIVE, 0, &[0; WORDS], &memory);
                    prop_assert_eq!(in_c, received(receiver.receive()));
                }
            }
            prop_assert_eq!(values(&memory), values(&rust));
        }
    }
}
