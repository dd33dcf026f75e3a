//! The times of a link: of a frame and its answer, and of many frames in one direction. Each run is a
//! segment.
//!
//! Both sides of question and answer sleep until the device interrupts them, as a kernel's drivers do.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::device::{self, Queue, SIZE};
use cloison_guest::gic;
use cloison_guest::{cpu, exceptions, println, segment};
use cloison_workloads::id;

/// The device's interrupt, where the configuration has it.
const INTERRUPT: u32 = 100;

/// Where a packet's header has the length of what follows (5.10.6), after which nothing is set.
pub const LEN: u64 = 24;

/// Has the device's interrupt wake this core.
fn init_interrupt() {
    exceptions::on_interrupt(|interrupt| {
        if interrupt.id() == INTERRUPT {
            device::acknowledge();
        }
    });
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(INTERRUPT);
    cpu::unmask_interrupts();
}

/// Measures this in so many runs, after one that is not measured.
pub fn run(runs: u64, mut what: impl FnMut()) {
    what();
    for run in 0..runs {
        let measured = segment::measure(id::FRAMES, 0, run as u32, &mut what);
        println!("frames: run={run} {measured}");
    }
}

/// What comes from the peer.
struct Inbox {
    from: Queue,
    seen: u16,
}

impl Inbox {
    fn new(mut from: Queue) -> Self {
        from.interrupts = true;
        from.give(SIZE);
        Self { from, seen: 0 }
    }

    /// Waits for a frame, and gives its buffer back together with others.
    fn take(&mut self) {
        cpu::wait_until(|| self.from.used() != self.seen);
        self.seen = self.seen.wrapping_add(1);
        if self.from.given.wrapping_sub(self.seen) < SIZE / 2 {
            self.from.give(self.seen.wrapping_add(SIZE));
        }
    }
}

/// Asks, and waits for each answer; so often in each run.
pub fn ask(mut to: Queue, from: Queue, count: u64, runs: u64) {
    init_interrupt();
    let mut inbox = Inbox::new(from);
    run(runs, || {
        for _ in 0..count {
            to.give(to.given.wrapping_add(1));
            inbox.take();
        }
    });
}

/// Answers each frame with one, without end.
pub fn answer(mut to: Queue, from: Queue) {
    init_interrupt();
    let mut inbox = Inbox::new(from);
    loop {
        inbox.take();
        to.give(to.given.wrapping_add(1));
    }
}
