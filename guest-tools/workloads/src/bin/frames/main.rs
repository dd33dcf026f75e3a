//! Frames: sends frames on a link as fast as its peer takes them, or takes them.
//!
//! Argument 0: 0 takes, 1 sends, 2 asks, 3 answers, 4 sends in runs; 1: bytes of a frame; 2: how many
//! are sent, in each run (0: without end); 3: bits, from 0 on: a legacy driver; numbered frames of many
//! lengths, which the taker checks; packets of sockets; a console. From bit 32 on: how often a second
//! vCPU moves the VM's pages there and back meanwhile, or how many runs there are.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

mod device;
mod measure;
mod numbered;

use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, call, cpu, entry, println, smp, timer};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64};
use device::{BUFFERS, Kind, MORE_BUFFERS, Memory, Queue, ROOM, SIZE};

entry!(main);

/// Bits of argument 3.
const LEGACY: u64 = 1 << 0;
const NUMBERED: u64 = 1 << 1;
const SOCKETS: u64 = 1 << 2;
const CONSOLE: u64 = 1 << 3;
/// Pages of the profile: the rings, and most of the buffers.
const PAGES: u64 = 64;

/// Sends frames. Returns the ticks that it took.
fn send(queue: &mut Queue, count: u64) -> u64 {
    let start = timer::now();
    let mut sent = 0;
    while count == 0 || sent < count {
        let free = SIZE - queue.given.wrapping_sub(queue.used());
        let next = match count {
            0 => free,
            _ => free.min((count - sent).min(u64::from(u16::MAX)) as u16),
        };
        if next == 0 {
            cpu::give_way();
            continue;
        }
        sent += u64::from(next);
        queue.give(queue.given.wrapping_add(next));
    }
    while queue.used() != queue.given {
        cpu::give_way();
    }
    timer::now() - start
}

/// Takes frames without end.
fn take(mut queue: Queue) {
    loop {
        let wanted = queue.used().wrapping_add(SIZE);
        if wanted == queue.given {
            cpu::give_way();
        } else {
            queue.give(wanted);
        }
    }
}

/// How often the second vCPU has moved the pages there and back, and how often that went wrong.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Whether it is to stop, and has.
static IS_LAST: AtomicBool = AtomicBool::new(false);
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Moves the profile's pages there and back again and again.
fn move_pages() {
    while !IS_LAST.load(SeqCst) {
        let moved = call::migrate(PAGES).and_then(|there| Ok((there, call::restore()?)));
        let is_right = moved == Ok((PAGES, PAGES));
        FAILED.fetch_add(u64::from(!is_right), Relaxed);
        ROUNDS.fetch_add(1, Relaxed);
    }
    HAS_STOPPED.store(true, SeqCst);
}

/// Prints the result, with that of the pages that have moved.
fn conclude(begins: core::fmt::Arguments<'_>, moves: bool) {
    IS_LAST.store(true, SeqCst);
    while moves && !HAS_STOPPED.load(SeqCst) {
        cpu::give_way();
    }
    let [rounds, failed] = [&ROUNDS, &FAILED].map(|count| count.load(Relaxed));
    println!("frames: done {begins} rounds={rounds} failed={failed}");
}

fn main() {
    let (role, bytes, count) = (args()[0], arg(1, 1514), arg(2, 0));
    let options = args()[3];
    let has = |option| options & option != 0;
    let kind = if has(SOCKETS) {
        Kind::Sockets
    } else if has(CONSOLE) {
        Kind::Console
    } else if has(LEGACY) {
        Kind::Legacy
    } else {
        Kind::Net
    };
    let rounds = options >> 32;
    let mut ram = Ram::behind_image();
    let memory = Memory::take(&mut ram);
    let offset = if has(NUMBERED) { numbered::OFFSET } else { 0 };
    let [takes, sends, asks, answers, streams] = [0, 1, 2, 3, 4].map(|number| role == number);
    let is_both = asks || answers;
    // What is sent is at the same place, unless both queues are used.
    let mut to = {
        let buffers = if is_both { MORE_BUFFERS } else { BUFFERS };
        let len = (bytes + kind.header()).min(ROOM);
        Queue::new(memory, 1, buffers + offset, len)
    };
    let mut from = Queue::new(memory, 0, BUFFERS + offset, ROOM);
    if kind == Kind::Sockets && !has(NUMBERED) {
        for slot in 0..SIZE {
            let word = to.word(slot, measure::LEN);
            word.store(bytes, Relaxed);
        }
    }
    println!("frames: role={role} bytes={bytes} count={count}");
    device::start(kind);
    let moves = rounds > 0 && (takes || sends);
    if moves && let Err(error) = smp::start(1, move_pages) {
        return println!("frames: vCPU 1: {error}");
    }
    if has(NUMBERED) || asks || streams {
        while !device::is_up() {
            cpu::give_way();
        }
    }
    match (has(NUMBERED), sends) {
        _ if asks => measure::ask(to, from, count, rounds),
        _ if answers => measure::answer(to, from),
        _ if streams => measure::run(rounds, || {
            send(&mut to, count);
        }),
        (true, true) => {
            let start = timer::now();
            let is_enough = |sent| sent >= count && ROUNDS.load(Relaxed) >= rounds;
            let sent = numbered::send(&mut to, kind, bytes, is_enough);
            let ticks = timer::now() - start;
            conclude(format_args!("sent={sent} ticks={ticks}"), moves);
        }
        (true, false) => {
            let taken = numbered::take(&mut from, kind, bytes);
            conclude(format_args!("{taken}"), moves);
        }
        (false, true) => {
            let ticks = send(&mut to, count);
            let sum = count * bytes;
            println!("frames: done sent={count} bytes={sum} ticks={ticks}");
        }
        (false, false) => take(from),
    }
}
