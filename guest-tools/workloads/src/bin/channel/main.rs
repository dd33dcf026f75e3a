//! Channel: two VMs send each other messages through a ring, call each other by doorbell, and try
//! what they may not.
//!
//! Argument 0: 0 asks, and prints what it has found; 1 answers; 2 sends doorbells to VM 1 without
//! end; 3 sleeps; 4 measures calls of VM 1, which has 5; 6 sends messages to VM 1, which has 7; 8 sends
//! messages to VM 1 and waits for the answers of it, which has 9. What asks or storms has two vCPUs.
//! Channel 0 is written by both, and channel 1 by VM 1 alone.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

use both_ways::{ANSWERS, ASKS, Link, PATIENCE_MICROS, TAKEN};
use cloison_guest::abi::reply::Change;
use cloison_guest::abi::{CallError, doorbell, irq};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{arg, call, cpu, entry, exceptions, println, probe, psci, ram, smp, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod both_ways;
#[cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]
mod measure;
mod traffic;

entry!(main);

/// Messages that are echoed in each life of the peer.
const MESSAGES: u64 = 1000;
/// Calls of a storm.
const STORM: u64 = 10_000;
/// First words of messages: to send back, to restart, to turn off.
const ECHO: u64 = 1;
const RESTART: u64 = 2;
const TURN_OFF: u64 = 3;
/// To tell how many interrupts and which bits it has taken, and to fault, for which the hypervisor kills it.
const COUNT: u64 = 4;
const FAULT: u64 = 5;
/// Messages sent under a small budget, which begins with the next period: more than one period's. That
/// budget and the usual one, in instructions per millisecond.
const HELD_MESSAGES: u64 = 1000;
const SMALL: u64 = 10_000;
const USUAL: u64 = 2_000_000;
/// The bit that is set for a life that ends, and in the storm of the first life.
const OLD: u64 = 31;
/// The interrupts that found no bit.
static EMPTY: AtomicU64 = AtomicU64::new(0);
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    if interrupt.id() != irq::DOORBELL {
        return;
    }
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

fn main() {
    match arg(0, 0) {
        4 => return measure::take_part(measure::call),
        5 => return measure::take_part(measure::be_called),
        _ => {}
    }
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::DOORBELL);
    cpu::unmask_interrupts();
    match arg(0, 0) {
        0 => ask(),
        1 => answer(),
        2 => storm_without_end(),
        6 => traffic::send(),
        7 => traffic::receive(),
        8 => traffic::ask(),
        9 => traffic::answer(),
        _ => loop {
            cpu::wait_for_interrupt();
        },
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
            Ok(Some([TURN_OFF, ..])) => return,
            Ok(Some([FAULT, ..])) => fault(),
            Ok(Some([COUNT, ..])) => {
                let [interrupts, taken] = [&INTERRUPTS, &TAKEN].map(|word| word.load(Relaxed));
                let count = [COUNT, interrupts, taken, 0, 0, 0, 0, 0];
                if link.send(&count).is_err() {
                    println!("channel: the count was not sent");
                }
            }
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

/// Reads where the VM has no memory: the hypervisor kills it.
#[allow(unsafe_code)]
fn fault() {
    let Ok(both) = call::channel(0) else {
        return println!("channel: no channel");
    };
    // SAFETY: the page after the channel, where the VM has nothing.
    let read = unsafe { probe::read(both.ipa + u64::from(both.pages) * ram::PAGE) };
    println!("channel: lives on after {read:?}");
}

/// Calls VM 1 as often as it can, from both vCPUs.
fn storm_without_end() {
    if cpu::current() == 0 && smp::start(1, storm_without_end).is_err() {
        return println!("channel: no second vCPU");
    }
    for call in 0.. {
        let _ = call::doorbell_ring(ANSWERS, call % doorbell::BITS, 0);
    }
}

/// Exchanges messages. Returns how many came back right.
fn exchange(link: &mut Link, messages: u64) -> u64 {
    let mut right = 0;
    for number in 0..messages {
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
    show("messages", exchange(&mut link, MESSAGES) == MESSAGES);
    show("messages under a budget", held(&mut link));
    refusals();
    rights();
    storm(&mut link);
    // It starts again by itself, and then after the hypervisor has killed it.
    let mut life = call::peer(ANSWERS).unwrap_or(0);
    for (message, what) in [(RESTART, "second life"), (FAULT, "third life")] {
        show("its end is sent", link.send(&[message; 8]).is_ok());
        next_life(life);
        life += 2;
        show("news of its start", await_bits(news).is_some());
        show(what, call::peer(ANSWERS) == Ok(life));
        show(
            "old life",
            call::doorbell_ring(ANSWERS, 0, life - 2) == Err(CallError::Expired),
        );
        match Link::begin(ASKS, ANSWERS) {
            Some(begun) => link = begun,
            None => return println!("channel: no link"),
        }
        let right = exchange(&mut link, MESSAGES);
        show("messages again", right == MESSAGES);
        let count = count_of_peer(&mut link);
        show(
            "nothing stale",
            count.is_some_and(|count| count.bits & 1 << OLD == 0),
        );
    }
    show("off is sent", link.send(&[TURN_OFF; 8]).is_ok());
    show("news of its end", await_bits(news).is_some());
    show(
        "off",
        call::doorbell_ring(ANSWERS, 0, 0) == Err(CallError::Off),
    );
    show("no empty interrupt", EMPTY.load(Relaxed) == 0);
    println!("channel: done interrupts={}", INTERRUPTS.load(Relaxed));
}

/// Exchanges messages while a budget holds this core most of the time. The peer waits, and gets
/// each of them once.
fn held(link: &mut Link) -> bool {
    if call::quota_set(0, SMALL).is_err() {
        return false;
    }
    let right = exchange(link, HELD_MESSAGES);
    call::quota_set(0, USUAL).is_ok() && right == HELD_MESSAGES
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

/// What the peer has taken in its life.
struct Count {
    interrupts: u64,
    bits: u64,
}

/// Asks the peer what it has taken.
fn count_of_peer(link: &mut Link) -> Option<Count> {
    link.send(&[COUNT, 0, 0, 0, 0, 0, 0, 0]).ok()?;
    match link.receive()? {
        [COUNT, interrupts, bits, ..] => Some(Count { interrupts, bits }),
        _ => None,
    }
}

/// The calls of both vCPUs, by their results.
static PASSED: AtomicU64 = AtomicU64::new(0);
static OFTEN: AtomicU64 = AtomicU64::new(0);
static OFF: AtomicU64 = AtomicU64::new(0);
static OTHER: AtomicU64 = AtomicU64::new(0);
/// How many vCPUs have finished what both do.
static FINISHED: AtomicU64 = AtomicU64::new(0);
/// The life that ends.
static ENDING: AtomicU64 = AtomicU64::new(0);

/// Executes this on both vCPUs, and waits until both have finished.
fn on_both(program: fn()) {
    for count in [&PASSED, &OFTEN, &OFF, &OTHER, &FINISHED] {
        count.store(0, Relaxed);
    }
    // The second one may still be about to turn off.
    while smp::start(1, program).is_err() {
        cpu::give_way();
    }
    program();
    while FINISHED.load(Relaxed) < 2 {
        cpu::give_way();
    }
}

/// Calls the peer, and counts the result.
fn count_call(bit: u64, life: u64) -> Result<(), CallError> {
    let result = call::doorbell_ring(ANSWERS, bit, life);
    let count = match result {
        Ok(()) => &PASSED,
        Err(CallError::TooOften) => &OFTEN,
        Err(CallError::Off) => &OFF,
        Err(_) => &OTHER,
    };
    count.fetch_add(1, Relaxed);
    // So that the peer takes the bits, also where the cores run in turns.
    cpu::give_way();
    result
}

/// Calls the peer as often as both vCPUs can.
fn storm(link: &mut Link) {
    let interrupts = |link: &mut Link| count_of_peer(link).map_or(0, |count| count.interrupts);
    let first = interrupts(link);
    let before = timer::now();
    on_both(|| {
        for call in 0..STORM {
            let _ = count_call(call % doorbell::BITS, 0);
        }
        FINISHED.fetch_add(1, Relaxed);
    });
    let last = interrupts(link);
    let micros = (timer::now() - before) * 1_000_000 / timer::frequency();
    let [passed, often, off, other] =
        [&PASSED, &OFTEN, &OFF, &OTHER].map(|count| count.load(Relaxed));
    println!(
        "channel: storm passed={passed} often={often} other={} interrupts={} us={micros}",
        off + other,
        last.wrapping_sub(first),
    );
}

/// Calls the peer from both vCPUs for the life that ends until the next one has begun, for which
/// nothing of that may arrive. Starts the peer where it does not start again by itself.
fn next_life(life: u64) {
    ENDING.store(life, Relaxed);
    on_both(|| {
        let life = ENDING.load(Relaxed);
        loop {
            match count_call(OLD, life) {
                Err(CallError::Expired) => break,
                // Until it has ended, it is too early, and then it has been done.
                Err(CallError::Off) => drop(call::vm_order(ANSWERS, Change::Start)),
                _ => {}
            }
        }
        FINISHED.fetch_add(1, Relaxed);
    });
    let [off, other] = [&OFF, &OTHER].map(|count| count.load(Relaxed));
    // Each vCPU has met the next life once.
    println!(
        "channel: called while it ended off={off} wrong={}",
        other - 2
    );
}
