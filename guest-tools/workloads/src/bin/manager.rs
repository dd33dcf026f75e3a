//! Manager: stops, starts and restarts other VMs at random, resets itself meanwhile, and checks
//! their states.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::CallError;
use cloison_guest::abi::reply::{Change, Life};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, call, cpu, entry, println, psci, timer};
use cloison_workloads::SURVIVOR;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

entry!(main);

/// Marks valid words after it.
const MAGIC: u64 = u64::from_le_bytes(*b"managing");
/// Looks at a VM until it counts as stuck.
const PATIENCE: u64 = 20_000_000;

/// The state that survives this VM's resets.
struct Survivor<'a> {
    calls: &'a AtomicU64,
    lives: &'a AtomicU64,
    /// Whether its own VM runs, as the last order that was accepted says.
    runs: &'a AtomicU64,
    accepted: &'a AtomicU64,
    busy: &'a AtomicU64,
    denied: &'a AtomicU64,
    wrong: &'a AtomicU64,
}

/// The VMs that this one knows: itself, one that nobody else manages, and one that another manager
/// stops and starts too.
#[derive(Clone, Copy)]
struct Known {
    me: u64,
    own: u64,
    shared: u64,
}

fn main() {
    let [resets, between] = [args()[1] & 0xffff_ffff, args()[1] >> 32];
    let (calls, resets) = (arg(0, 500), if resets == 0 { 9 } else { resets });
    let mut ram = Ram::behind_image();
    let [magic, words @ ..] = ram.take_at(SURVIVOR, 64) else {
        return;
    };
    if magic.load(SeqCst) != MAGIC {
        words.iter().for_each(|word| word.store(0, SeqCst));
        // VMs run when the machine starts.
        words[2].store(1, SeqCst);
        magic.store(MAGIC, SeqCst);
    }
    let [calls_made, lives, runs, accepted, busy, denied, wrong, ..] = words else {
        return;
    };
    let kept = Survivor {
        calls: calls_made,
        lives,
        runs,
        accepted,
        busy,
        denied,
        wrong,
    };
    let me = call::identify().map_or(0, |identity| identity.vm);
    let known = Known {
        me,
        own: args()[2],
        shared: args()[3],
    };
    let life = kept.lives.fetch_add(1, SeqCst) + 1;
    let mut random = Random::new(me << 32 | life);
    // An order that the former life gave is in force.
    kept.check(known);
    while kept.calls.load(SeqCst) < calls {
        if kept.calls.load(SeqCst) >= life * calls / (resets + 1) {
            psci::system_reset();
        }
        kept.calls.fetch_add(1, SeqCst);
        kept.call(known, &mut random);
        // At a random point of what the other VMs do.
        let until = timer::now() + timer::micros(random.below(2 * between + 1));
        while timer::now() < until {
            cpu::give_way();
        }
    }
    for vm in [known.own, known.shared] {
        while call::vm_order(vm, Change::Stop) == Err(CallError::Busy) {}
    }
    kept.runs.store(0, SeqCst);
    kept.check(known);
    let counts = [
        kept.calls,
        kept.lives,
        kept.accepted,
        kept.busy,
        kept.denied,
        kept.wrong,
    ]
    .map(|it| it.load(SeqCst));
    let [calls, lives, accepted, busy, denied, wrong] = counts;
    println!(
        "manager: done calls={calls} lives={lives} accepted={accepted} busy={busy} \
         denied={denied} wrong={wrong}"
    );
}

impl Survivor<'_> {
    fn must_hold(&self, holds: bool, what: core::fmt::Arguments) {
        if !holds {
            self.wrong.fetch_add(1, SeqCst);
            println!("manager: WRONG {what}");
        }
    }

    /// Makes one random call.
    fn call(&self, known: Known, random: &mut Random) {
        let change = [Change::Stop, Change::Start, Change::Restart][random.below(3) as usize];
        match random.below(10) {
            0..2 => self.list(known),
            2..6 => {
                let result = call::vm_order(known.own, change);
                match result {
                    Ok(()) => {
                        self.runs.store(u64::from(change != Change::Stop), SeqCst);
                        self.accepted.fetch_add(1, SeqCst);
                    }
                    Err(error) => self.refused(error == CallError::Busy, change, error),
                }
                if random.below(4) != 0 {
                    self.check(known);
                }
            }
            6..8 => match call::vm_order(known.shared, change) {
                Ok(()) => _ = self.accepted.fetch_add(1, SeqCst),
                Err(error) => self.refused(error == CallError::Busy, change, error),
            },
            8 => {
                let vms = (0..).take_while(|&vm| call::vm_read(vm).is_ok()).count() as u64;
                let other = random.below(vms);
                if other != known.own && other != known.shared {
                    let result = call::vm_order(other, change);
                    self.must_hold(
                        result == Err(CallError::Denied),
                        format_args!("{change:?} of VM {other} gave {result:?}"),
                    );
                    self.denied.fetch_add(1, SeqCst);
                }
            }
            _ => {
                let result = call::vm_order(u64::MAX - random.below(1 << 60), change);
                self.must_hold(
                    result == Err(CallError::Absent),
                    format_args!("no VM gave {result:?}"),
                );
            }
        }
    }

    fn refused(&self, may_be: bool, change: Change, error: CallError) {
        self.must_hold(may_be, format_args!("{change:?} gave {error:?}"));
        self.busy.fetch_add(1, SeqCst);
    }

    /// Reads the list of VMs.
    fn list(&self, known: Known) {
        for vm in 0.. {
            let Ok(info) = call::vm_read(vm) else { break };
            let managed = vm == known.own || vm == known.shared;
            self.must_hold(
                info.managed == managed && !info.name().is_empty(),
                format_args!("VM {vm} `{}` managed: {}", info.name(), info.managed),
            );
            self.must_hold(
                vm != known.me || info.life == Life::Running,
                format_args!("this VM is {}", info.life),
            );
        }
    }

    /// Waits until its own VM has changed, and checks that it is what was ordered last. It may have
    /// been killed, before or after that.
    fn check(&self, known: Known) {
        let read = || call::vm_read(known.own).map_or(Life::Changing, |info| info.life);
        let settled = (0..PATIENCE)
            .map(|_| read())
            .find(|&life| life != Life::Changing)
            .unwrap_or(Life::Changing);
        let wanted = if self.runs.load(SeqCst) != 0 {
            Life::Running
        } else {
            Life::Stopped
        };
        let agrees = settled == wanted || settled == Life::Killed;
        self.must_hold(
            agrees,
            format_args!("VM {} is {settled}, not {wanted}", known.own),
        );
    }
}
