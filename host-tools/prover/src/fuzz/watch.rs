//! Notices that EL2 executes nothing any more: then nothing calls the plugin either.
//!
//! A guest may be the reason. Its exception vector may fault at its first instruction, or be where
//! nothing is. QEMU counts guest time by instructions, so that none passes then, and the guest's turn
//! never ends, nor does a timer return its core to EL2, as it would on a board. The other cores get
//! their turns from here: what follows depends on the host. If they all wait, the machine boots
//! again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::program::Input;
use super::state;
use crate::instrument::Finding;
use crate::processor;
use crate::prover::MAX_CORES;
use cloison_qemu::cpu::{Cpu, SharedCpu};
use cloison_qemu::internals::internals;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time without an instruction of EL2 until the machine counts as stuck. Periods of budgets last a
/// millisecond.
const STUCK: Duration = Duration::from_secs(20);
/// Less of the processor's time in it: all cores wait.
const IDLE: Duration = Duration::from_millis(200);
/// More of it: a core is busy. In between, the host has little time for QEMU, which is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// But no longer than this.
const STARVED: Duration = Duration::from_secs(200);
/// How often the thread looks, and after which time it has been stopped itself.
const LOOK: Duration = Duration::from_millis(20);
const STOPPED: Duration = Duration::from_secs(5);
/// Time of the processor in which no guest time passes, until the turns of all cores end.
const TURN: Duration = Duration::from_millis(100);

/// What the watching thread sees.
#[derive(Debug)]
pub(super) struct Watch {
    /// How often EL2 has begun a block.
    blocks: AtomicU64,
    /// The plugin itself is what takes long.
    is_busy: AtomicBool,
    cores: [SharedCpu; MAX_CORES],
    /// The cores, a bit each, that EL2 has returned to their guests.
    in_guests: AtomicU64,
    /// The last inputs, in the order in which they began.
    recent: Mutex<VecDeque<Input>>,
}

/// How EL2 is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standstill {
    /// All cores wait.
    Waits,
    /// A core executes instructions, but none of EL2.
    Returns,
    /// A core is busy without executing anything: it takes exceptions.
    Loops,
}

/// Whether the machine is stuck, as seen now and then.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    blocks: u64,
    /// When it was first seen there, and last.
    since: Instant,
    seen: Instant,
    /// The processor's time when it was first seen there, and the guest's.
    used: Duration,
    time: i64,
}

impl Pulse {
    /// Looks again, at a time of the guest. Returns how EL2 is stuck, if it is.
    fn look(&mut self, blocks: u64, now: Instant, used: Duration, time: i64) -> Option<Standstill> {
        let was_stopped = now.duration_since(self.seen) >= STOPPED;
        if blocks == 0 || blocks != self.blocks || was_stopped {
            self.blocks = blocks;
            self.since = now;
            self.used = used;
            self.time = time;
        }
        self.seen = now;
        let stands = now.duration_since(self.since);
        let used = used.saturating_sub(self.used);
        let is_stuck = stands >= STARVED || stands >= STUCK && (used < IDLE || used >= BUSY);
        let how = match used < IDLE {
            true => Standstill::Waits,
            false if time == self.time => Standstill::Loops,
            false => Standstill::Returns,
        };
        is_stuck.then_some(how)
    }
}

/// Whether a guest keeps its turn without executing anything, as seen now and then.
#[derive(Clone, Copy, Debug, Default)]
struct Loop {
    blocks: u64,
    /// Guest time.
    time: i64,
    /// The processor's time when it was first seen there.
    since: Duration,
}

impl Loop {
    /// Looks again. Returns whether QEMU is busy while no guest time passes.
    fn look(&mut self, blocks: u64, time: i64, used: Duration) -> bool {
        let loops = used.saturating_sub(self.since) >= TURN;
        if (blocks, time) != (self.blocks, self.time) || blocks == 0 {
            (self.blocks, self.time, self.since) = (blocks, time, used);
            return false;
        }
        if loops {
            self.since = used;
        }
        loops
    }
}

impl Watch {
    /// Starts to watch. A machine that is stuck is a finding, with which the run ends.
    pub fn start(directory: PathBuf, system: String, seed: u64) -> Arc<Self> {
        let watch = Arc::new(Self {
            blocks: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            cores: [const { SharedCpu::unknown() }; MAX_CORES],
            in_guests: AtomicU64::new(0),
            recent: Mutex::default(),
        });
        let watched = watch.clone();
        thread::spawn(move || {
            let how = watched.wait();
            let in_guests = watched.in_guests.load(Relaxed);
            let what = match how {
                Standstill::Waits => "all cores wait",
                Standstill::Returns => "no exception returns a core to it",
                // Only QEMU has its time by the guest's instructions.
                Standstill::Loops if in_guests != 0 => std::process::exit(0),
                Standstill::Loops => "it takes exceptions without end",
            };
            let finding = Finding {
                rule: "stuck".to_owned(),
                what: format!("EL2 executes nothing: {what}"),
                core: 0,
            };
            state::reproducer(&directory, &finding, (&system, seed), &*watched.recent());
            finding.end_run()
        });
        watch
    }

    /// Waits until EL2 is stuck. Gives other cores their turns if a guest keeps its own.
    fn wait(&self) -> Standstill {
        let mut pulse = Pulse {
            blocks: 0,
            since: Instant::now(),
            seen: Instant::now(),
            used: Duration::ZERO,
            time: 0,
        };
        let mut guest = Loop::default();
        loop {
            thread::sleep(LOOK);
            let Some(internals) = internals() else {
                continue;
            };
            let (blocks, time) = (self.blocks.load(Relaxed), internals.clock());
            let used = processor::used();
            if let Some(how) = pulse.look(blocks, Instant::now(), used, time) {
                return how;
            }
            if guest.look(blocks, time, used) && !self.is_busy.load(Relaxed) {
                for core in &self.cores {
                    internals.end_turn(core);
                }
            }
        }
    }

    /// EL2 has begun a block. All cores have one thread, so that no other one counts meanwhile.
    pub fn beat(&self) {
        self.blocks.store(self.blocks.load(Relaxed) + 1, Relaxed);
    }

    /// A core is known.
    pub fn learn(&self, core: usize, cpu: Cpu) {
        self.cores[core].learn(cpu);
    }

    /// A core comes from its guest.
    pub fn comes(&self, core: usize) {
        let others = self.in_guests.load(Relaxed) & !(1 << core);
        self.in_guests.store(others, Relaxed);
    }

    /// A core is about to return to its guest.
    pub fn returns(&self, core: usize) {
        let others = self.in_guests.load(Relaxed);
        self.in_guests.store(others | 1 << core, Relaxed);
    }

    /// The plugin itself takes long, or no longer.
    pub fn is_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Relaxed);
    }

    /// Returns the last inputs.
    pub fn recent(&self) -> MutexGuard<'_, VecDeque<Input>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_stuck_if_it_executes_nothing_while_it_is_watched() {
        let now = Instant::now();
        let looks = |blocks: fn(u64) -> u64, seconds: std::ops::Range<u64>, used_in_one| {
            let mut pulse = Pulse {
                blocks: 0,
                since: now,
                seen: now,
                used: Duration::ZERO,
                time: 5,
            };
            let mut found = seconds.filter(|&second| {
                let time = now + Duration::from_secs(second);
                let used = Duration::from_millis(second * used_in_one);
                pulse.look(blocks(second), time, used, 5).is_some()
            });
            found.next()
        };
        for used_in_one in [0, 100, 1000] {
            assert_eq!(looks(|_| 0, 0..400, used_in_one), None, "has not started");
            assert_eq!(looks(|at| at, 0..400, used_in_one), None, "executes");
            let stopped = |second| if second < 10 { 7 } else { 8 };
            assert_eq!(looks(stopped, 0..29, used_in_one), None);
        }
        assert_eq!(looks(|_| 7, 0..400, 0), Some(20), "all cores wait");
        assert_eq!(looks(|_| 7, 0..400, 900), Some(20), "a core is busy");
        assert_eq!(looks(|_| 7, 0..400, 100), Some(50), "the host is busy");
        assert_eq!(looks(|_| 7, 0..400, 20), Some(200), "the host is very busy");
    }

    #[test]
    fn time_in_which_the_watch_was_stopped_too_does_not_count() {
        let now = Instant::now();
        let mut pulse = Pulse {
            blocks: 7,
            since: now,
            seen: now,
            used: Duration::ZERO,
            time: 5,
        };
        let mut look = |seconds| {
            let time = now + Duration::from_secs(seconds);
            pulse.look(7, time, Duration::ZERO, 5).is_some()
        };
        assert!((0..20).all(|second| !look(second)));
        assert!(!look(300) && !look(304));
    }

    #[test]
    fn a_standstill_has_a_kind() {
        let now = Instant::now();
        let kind = |used, time| {
            let mut pulse = Pulse {
                blocks: 7,
                since: now,
                seen: now + STUCK,
                used: Duration::ZERO,
                time: 5,
            };
            pulse.look(7, now + STUCK, Duration::from_secs(used), time)
        };
        assert_eq!(kind(0, 9), Some(Standstill::Waits));
        assert_eq!(kind(15, 9), Some(Standstill::Returns));
        assert_eq!(kind(15, 5), Some(Standstill::Loops));
        assert_eq!(kind(1, 5), None);
    }

    #[test]
    fn turns_end_if_qemu_is_busy_and_no_guest_time_passes() {
        let mut guest = Loop::default();
        let mut look =
            |blocks, time, millis| guest.look(blocks, time, Duration::from_millis(millis));
        assert!(!look(0, 0, 0) && !look(0, 0, 900), "not started");
        assert!(!look(7, 5, 1000) && !look(7, 6, 1900), "time passes");
        assert!(!look(8, 6, 2000), "EL2 executes");
        assert!(!look(8, 6, 2050) && look(8, 6, 2100));
        assert!(!look(8, 6, 2150) && look(8, 6, 2200), "again");
    }
}
