//! Measures calls and messages between two VMs, in ticks of the virtual counter.
//!
//! Both write channel 0. Meant for `-icount shift=0` with a counter of 1 GHz, where one tick is one
//! instruction, of both cores together: each core sleeps while the other one executes. `doorbell`
//! is from the HVC, after which the caller sleeps at once, to the first instruction of the peer's
//! vector. `message` is from the start of sending 64 bytes through the ring to their end at the
//! receiver, which sleeps until its handler has taken the bits.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_channel::{Receiver, Ring, Sender, Session};
use cloison_guest::abi::{Call, doorbell, irq};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{call, cpu, exceptions, println, ram, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The VM that is called, and the bit of its doorbell.
const CALLED: u64 = 1;
const BIT: u64 = 0;
/// Tries of each kind.
const TRIES: u64 = 32;
/// Words of the second half of the channel, which the called VM writes: the last try that it has
/// seen, and when that arrived.
const SEEN: usize = 0;
const AT: usize = 1;
/// Sleep before and after a try, in microseconds.
const PAUSE_MICROS: u64 = 200;

/// The routines in assembly.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // `doorbell_call(function, vm, bit, life)` makes a hypercall, and sleeps until an interrupt.
    // Returns the counter immediately before the HVC.
    //
    // `doorbell_await(gicc)` sleeps until an interrupt. Returns the counter as read by the first
    // instruction of its vector.
    global_asm!(
        cloison_workloads::stamping_vectors!("doorbell_vectors"),
        r#"
    .global doorbell_await
doorbell_await:
    adr     x10, 4f
    msr     daifclr, #2
3:  wfi
    b       3b
4:  mov     x0, x9
    ret

    .global doorbell_call
doorbell_call:
    mrs     x9, cntvct_el0
    hvc     #0
    wfi
    mov     x0, x9
    ret
    "#
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    static doorbell_vectors: u8;
    fn doorbell_await(gicc: u64) -> u64;
    fn doorbell_call(function: u64, vm: u64, bit: u64, life: u64) -> u64;
}

/// The bits that the handler has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    match interrupt.id() {
        irq::DOORBELL => {
            let bits = call::doorbell_take(doorbell::ALL).map_or(0, |taken| taken.bits);
            TAKEN.fetch_or(bits, Relaxed);
        }
        _ => timer::disarm(),
    }
}

/// Sleeps, so that the other core alone executes.
fn sleep() {
    let end = wake_later();
    cpu::wait_until(|| timer::now() >= end);
}

/// Has the timer wake this core after a pause. Returns when.
fn wake_later() -> u64 {
    let end = timer::now() + timer::micros(PAUSE_MICROS);
    timer::arm(end);
    end
}

/// Calls the other VM, and sleeps until the timer has woken this core. Returns the counter
/// immediately before the call.
#[allow(unsafe_code)]
fn call_and_sleep() -> u64 {
    // SAFETY: the call changes nothing of this VM. Of the registers, it changes those of its results;
    // x9 is caller-saved, and the vectors keep all.
    unsafe { doorbell_call(Call::DoorbellRing as u64, CALLED, BIT, 0) }
}

/// Both halves of the channel: the ring, and the notes of the VM that is called.
pub struct Memory {
    ring: Ring<'static>,
    notes: &'static [AtomicU64],
}

fn memory() -> Option<Memory> {
    let words = ram::channel(0)?;
    let (ring, notes) = words.split_at(words.len() / 2);
    let ring = Ring::new(ring)?;
    Some(Memory { ring, notes })
}

/// Takes part in the measurement, as the side that calls or as the one that is called.
pub fn take_part(side: fn(&Memory)) {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::DOORBELL);
    match memory() {
        Some(memory) => side(&memory),
        None => println!("channel: no channel"),
    }
}

/// Measures, and prints what it has measured.
pub fn call(memory: &Memory) {
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    let seen = |tries| memory.notes[SEEN].load(Relaxed) == tries;
    while !seen(1) {
        sleep();
    }
    // Once more: EL2 sends its records of the start meanwhile.
    sleep();
    let mut sender = Sender::begin(memory.ring, Session::new(1, 1));
    let (mut calls, mut messages) = ([0; TRIES as usize], [0; TRIES as usize]);
    for (ticks, tries) in calls.iter_mut().zip(2..) {
        wake_later();
        let before = call_and_sleep();
        if !seen(tries) {
            return println!("channel: call {tries} was not seen");
        }
        *ticks = memory.notes[AT].load(Relaxed) - before;
    }
    for (ticks, tries) in messages.iter_mut().zip(TRIES + 2..) {
        wake_later();
        let before = timer::now();
        let sent = sender.send(&[tries; 8]);
        call_and_sleep();
        if sent.is_err() || !seen(tries) {
            return println!("channel: message {tries} was not seen");
        }
        *ticks = memory.notes[AT].load(Relaxed) - before;
    }
    print("doorbell", &calls);
    print("message", &messages);
    println!("channel: done");
}

/// Notes when calls arrive, then messages.
#[allow(unsafe_code)]
pub fn be_called(memory: &Memory) {
    let note = |tries, at| {
        memory.notes[AT].store(at, Relaxed);
        memory.notes[SEEN].store(tries, Relaxed);
    };
    let mut receiver = Receiver::begin(memory.ring, Session::new(1, 1));
    note(1, 0);
    let mut tries = 2;
    while tries < TRIES + 2 {
        // SAFETY: the raw vectors handle the one interrupt that is enabled, and end with interrupts
        // masked; the runtime's vectors are restored before anything else can happen. x9 to x11 are
        // caller-saved.
        let at = unsafe {
            let vectors = cpu::set_vectors((&raw const doorbell_vectors).addr() as u64);
            let at = doorbell_await(gic::interface());
            cpu::set_vectors(vectors);
            at
        };
        // The first interrupt is the news that the peer has started.
        let taken = call::doorbell_take(doorbell::ALL);
        if taken.is_ok_and(|taken| taken.bits & 1 << BIT != 0) {
            note(tries, at);
            tries += 1;
        }
    }
    cpu::unmask_interrupts();
    for tries in TRIES + 2..2 * TRIES + 2 {
        cpu::wait_until(|| TAKEN.swap(0, Relaxed) != 0);
        let received = receiver.receive();
        let at = timer::now();
        if received == Ok(Some([tries; 8])) {
            note(tries, at);
        }
    }
}

/// Prints the shortest and the longest of several times.
fn print(name: &str, ticks: &[u64]) {
    let (min, max) = (ticks.iter().min(), ticks.iter().max());
    let [min, max] = [min, max].map(|ticks| ticks.copied().unwrap_or(0));
    println!("bench {name} {min}");
    println!("bench {name}_max {max}");
}
