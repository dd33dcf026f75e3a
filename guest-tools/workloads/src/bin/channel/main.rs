//! Channel: two VMs send each other messages through a ring, call each other by doorbell, and try
//! what they may not.
//!
//! Argument 0: 0 asks, and prints what it has found; 1 answers; 2 sends doorbells to VM 1 without
//! end, from all vCPUs. Channel 0 is written by both, and channel 1 by VM 1 alone.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

use cloison_channel::{Message, NotSent, Receiver, Ring, Sender, Session};
use cloison_guest::abi::{CallError, doorbell, irq};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{arg, call, cpu, entry, exceptions, println, probe, psci, ram, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// The VM that asks, and the one that answers.
const ASKS: u64 = 0;
const ANSWERS: u64 = 1;
/// The bit of a doorbell for "a message waits".
const MESSAGE: u64 = 5;
/// Messages that are echoed in each life of the peer.
const MESSAGES: u64 = 1000;
/// Calls of a storm.
const STORM: u64 = 10_000;
/// First words of messages: to send back, to restart, to turn off.
const ECHO: u64 = 1;
const RESTART: u64 = 2;
const TURN_OFF: u64 = 3;
/// And to note when calls and messages arrive.
const MEASURE: u64 = 4;
/// Measured calls, and as many messages.
const TRIES: usize = 32;
/// Words of channel 1: when the last call was handled, and when its message was received.
const HANDLED: usize = 0;
const RECEIVED: usize = 1;
/// How long a peer may take.
const PATIENCE_MICROS: u64 = 5_000_000;

/// The bits that the handler has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// The interrupts that found no bit.
static EMPTY: AtomicU64 = AtomicU64::new(0);
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// When the last interrupt was handled.
static HANDLED_AT: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    let now = timer::now();
    if interrupt.id() == irq::VTIMER {
        timer::disarm();
    }
    if interrupt.id() != irq::DOORBELL {
        return;
    }
    HANDLED_AT.store(now, Relaxed);
    let bits = call::doorbell_take(doorbell::ALL).map_or(0, |taken| taken.bits);
    INTERRUPTS.fetch_add(1, Relaxed);
    EMPTY.fetch_add(u64::from(bits == 0), Relaxed);
    TAKEN.fetch_or(bits, Relaxed);
}

/// Waits until one of the bits was taken, and forgets it. `None` if none comes.
fn await_bits(bits: u64) -> Option<u64> {
    let end = timer::now() + timer::micros(PATIENCE_MICROS);
    loop {
        let taken = TAKEN.fetch_and(!bits, Relaxed) & bits;
        if taken != 0 {
            return Some(taken);
        }
        if timer::now() > end {
            return None;
        }
        cpu::give_way();
    }
}

/// Both directions of channel 0.
struct Link {
    sender: Sender<'static>,
    receiver: Receiver<'static>,
    peer: u64,
    /// The VM's own life.
    life: u64,
}

impl Link {
    /// Begins a session with the life that the peer has now.
    fn begin(own: u64, peer: u64) -> Option<Self> {
        let words = ram::channel(0)?;
        let (first, second) = words.split_at(words.len() / 2);
        let mine = call::doorbell_take(0).ok()?.life;
        let theirs = call::peer(peer).ok()?;
        let (to, from) = if own == ASKS {
            (first, second)
        } else {
            (second, first)
        };
        Some(Self {
            sender: Sender::begin(Ring::new(to)?, Session::new(mine, theirs)),
            receiver: Receiver::begin(Ring::new(from)?, Session::new(theirs, mine)),
            peer,
            life: mine,
        })
    }

    fn send(&mut self, message: &Message) -> Result<(), NotSent> {
        self.sender.send(message)?;
        // One that is too often or finds no life is no loss: the peer looks into its ring anyway.
        let _ = call::doorbell_ring(self.peer, MESSAGE, 0);
        Ok(())
    }

    /// Waits for a message; `None` if there is none in time.
    fn receive(&mut self) -> Option<Message> {
        let end = timer::now() + timer::micros(PATIENCE_MICROS);
        loop {
            if let Some(message) = self.receiver.receive().ok()? {
                return Some(message);
            }
            if timer::now() > end {
                return None;
            }
            cpu::give_way();
        }
    }
}

fn main() {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::DOORBELL);
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    match arg(0, 0) {
        0 => ask(),
        1 => answer(),
        _ => storm_without_end(),
    }
}

/// Answers until it is told otherwise.
fn answer() {
    let Some(mut link) = Link::begin(ANSWERS, ASKS) else {
        return println!("channel: no link");
    };
    loop {
        if TAKEN.fetch_and(!(1 << doorbell::PEERS), Relaxed) >> doorbell::PEERS & 1 == 1 {
            match Link::begin(ANSWERS, ASKS) {
                Some(begun) => link = begun,
                None => return println!("channel: no link"),
            }
        }
        match link.receiver.receive() {
            Ok(Some([RESTART, ..])) => psci::system_reset(),
            Ok(Some([TURN_OFF, ..])) => {
                // In its first life it was called with all bits, in the second with one.
                let stale = TAKEN.load(Relaxed) & (1 << 31) != 0;
                return show("nothing stale", link.life < 3 || !stale);
            }
            Ok(Some([MEASURE, ..])) => note(&mut link),
            Ok(Some(mut message)) => {
                message[1] += 1;
                if link.send(&message).is_err() {
                    println!("channel: an answer was not sent");
                }
            }
            Ok(None) => cpu::give_way(),
            Err(_) => return println!("channel: the peer lies"),
        }
    }
}

/// Notes when calls arrive, and messages, and sleeps in between.
fn note(link: &mut Link) {
    let Some(notes) = ram::channel(1) else {
        return println!("channel: nowhere to note");
    };
    TAKEN.store(0, Relaxed);
    let mut messages = 0;
    while messages < TRIES {
        cpu::wait_until(|| TAKEN.swap(0, Relaxed) != 0);
        let received = link.receiver.receive();
        let now = timer::now();
        notes[HANDLED].store(HANDLED_AT.load(Relaxed), Relaxed);
        if received.is_ok_and(|message| message.is_some()) {
            notes[RECEIVED].store(now, Relaxed);
            messages += 1;
        }
    }
}

/// Sleeps, so that the other core alone executes.
fn sleep() {
    let end = timer::now() + timer::micros(1000);
    timer::arm(end);
    cpu::wait_until(|| timer::now() >= end);
}

/// Measures how long calls and messages take, on both cores together where these execute in turns:
/// then no tick passes while both sleep.
fn measure(link: &mut Link) {
    let Some(notes) = ram::channel(1) else {
        return show("notes", false);
    };
    show("measurement is sent", link.send(&[MEASURE; 8]).is_ok());
    sleep();
    let mut calls = [0; TRIES];
    for ticks in &mut calls {
        let before = timer::now();
        let called = call::doorbell_ring(ANSWERS, MESSAGE, 0);
        sleep();
        let handled = notes[HANDLED].load(Relaxed);
        *ticks = called.map_or(u64::MAX, |()| handled.wrapping_sub(before));
    }
    print("call", &calls);
    for ticks in &mut calls {
        let before = timer::now();
        let sent = link.send(&[ECHO; 8]);
        sleep();
        let received = notes[RECEIVED].load(Relaxed);
        *ticks = sent.map_or(u64::MAX, |()| received.wrapping_sub(before));
    }
    print("message", &calls);
}

/// Prints the shortest and the longest of several times.
fn print(what: &str, ticks: &[u64]) {
    let (min, max) = (ticks.iter().min(), ticks.iter().max());
    let [min, max] = [min, max].map(|ticks| ticks.copied().unwrap_or(0));
    println!("channel: {what} min={min} max={max} ticks");
}

/// Calls VM 1 as often as it can.
fn storm_without_end() {
    let mut refused = 0u64;
    for call in 0.. {
        refused += u64::from(call::doorbell_ring(ANSWERS, call % doorbell::BITS, 0).is_err());
        if call % 1_000_000 == 999_999 {
            println!("channel: calls={} refused={refused}", call + 1);
        }
    }
}

/// Exchanges messages. Returns how many came back right.
fn exchange(link: &mut Link) -> u64 {
    let mut right = 0;
    for number in 0..MESSAGES {
        let message = [ECHO, number, !number, number << 32, 4, 5, 6, 7];
        if link.send(&message).is_err() {
            continue;
        }
        let mut expected = message;
        expected[1] += 1;
        right += u64::from(link.receive() == Some(expected));
    }
    right
}

/// Prints whether something is as it must be.
fn show(what: &str, holds: bool) {
    println!("channel: {what} {}", if holds { "ok" } else { "WRONG" });
}

fn ask() {
    let news = 1 << (u64::from(doorbell::PEERS) + ANSWERS);
    while call::peer(ANSWERS).is_ok_and(|life| life % 2 == 0) {
        cpu::give_way();
    }
    TAKEN.fetch_and(!news, Relaxed);
    let Some(mut link) = Link::begin(ASKS, ANSWERS) else {
        return println!("channel: no link");
    };
    show("messages", exchange(&mut link) == MESSAGES);
    measure(&mut link);
    refusals();
    rights();
    storm();
    let life = call::peer(ANSWERS).unwrap_or(0);
    restart(&mut link, life, news);
    // It starts: its second life begins a session with this one.
    show("second life", call::peer(ANSWERS) == Ok(life + 2));
    show(
        "old life",
        call::doorbell_ring(ANSWERS, 0, life) == Err(CallError::Expired),
    );
    let Some(mut link) = Link::begin(ASKS, ANSWERS) else {
        return println!("channel: no link");
    };
    show("messages again", exchange(&mut link) == MESSAGES);
    show("off is sent", link.send(&[TURN_OFF; 8]).is_ok());
    show("news of its end", await_bits(news).is_some());
    show(
        "off",
        call::doorbell_ring(ANSWERS, 0, 0) == Err(CallError::Off),
    );
    show("no empty interrupt", EMPTY.load(Relaxed) == 0);
    println!("channel: done interrupts={}", INTERRUPTS.load(Relaxed));
}

/// What no VM may do.
fn refusals() {
    let ring = |vm, bit, life| call::doorbell_ring(vm, bit, life);
    show(
        "bit 32",
        ring(ANSWERS, doorbell::BITS, 0) == Err(CallError::Invalid),
    );
    show(
        "bit 2^64 - 1",
        ring(ANSWERS, u64::MAX, 0) == Err(CallError::Invalid),
    );
    show("itself", ring(ASKS, 0, 0) == Err(CallError::Denied));
    show("no channel", ring(2, 0, 0) == Err(CallError::Denied));
    show("no VM", ring(8, 0, 0) == Err(CallError::Absent));
    show("VM 2^63", ring(1 << 63, 0, 0) == Err(CallError::Absent));
    show(
        "another life",
        ring(ANSWERS, 0, 77) == Err(CallError::Expired),
    );
    show(
        "peer without channel",
        call::peer(2) == Err(CallError::Denied),
    );
    show("channel 2", call::channel(2) == Err(CallError::Absent));
}

/// Reads, writes and executes what it may, and what it may not.
#[allow(unsafe_code)]
fn rights() {
    let (Ok(both), Ok(one)) = (call::channel(0), call::channel(1)) else {
        return show("channels", false);
    };
    show(
        "rights",
        both.is_writable() && one.is_readable() && !one.is_writable(),
    );
    show(
        "members",
        both.has(ASKS) && both.has(ANSWERS) && !both.has(2),
    );
    // SAFETY: channel 1 holds nothing of this program, and the last page of channel 0 is beyond
    // what its rings use at their ends; what may not be done faults.
    let (read, written, fetched) = unsafe {
        (
            probe::read(one.ipa),
            probe::write(one.ipa, 1),
            probe::jump(both.ipa, 0, 0),
        )
    };
    show("read", read.is_ok());
    show("write refused", written.is_err());
    show("execution refused", fetched.is_err());
    // SAFETY: the page after the channel, where the VM has nothing.
    let beyond = unsafe { probe::read(both.ipa + u64::from(both.pages) * ram::PAGE) };
    show("beyond refused", beyond.is_err());
}

/// Calls the peer as often as it can.
fn storm() {
    let (mut passed, mut often, mut other) = (0u64, 0u64, 0u64);
    let before = timer::now();
    for call in 0..STORM {
        match call::doorbell_ring(ANSWERS, call % doorbell::BITS, 0) {
            Ok(()) => passed += 1,
            Err(CallError::TooOften) => often += 1,
            Err(_) => other += 1,
        }
        // So that the peer takes the bits, also where the cores run in turns.
        cpu::give_way();
    }
    let micros = (timer::now() - before) * 1_000_000 / timer::frequency();
    println!("channel: storm passed={passed} often={often} other={other} us={micros}");
}

/// Has the peer restart, and tries to call it meanwhile.
fn restart(link: &mut Link, life: u64, news: u64) {
    show("restart is sent", link.send(&[RESTART; 8]).is_ok());
    let (mut off, mut wrong) = (0u64, 0u64);
    // Until its next life has begun.
    while call::peer(ANSWERS).is_ok_and(|now| now != life + 2) {
        // Only for the life that ends: nothing of it may arrive in the next one.
        match call::doorbell_ring(ANSWERS, 31, life) {
            Ok(()) | Err(CallError::TooOften) => {}
            Err(CallError::Off) => off += 1,
            Err(CallError::Expired) => break,
            Err(_) => wrong += 1,
        }
    }
    println!("channel: called while it restarted off={off} wrong={wrong}");
    show("news of its restart", await_bits(news).is_some());
}
