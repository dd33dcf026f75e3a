//! Notices that EL2 executes nothing any more: then nothing calls the plugin either.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::program::Input;
use super::state;
use crate::instrument::Finding;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time without an instruction of EL2 until the machine counts as stuck. Periods of budgets last a
/// millisecond.
const STUCK: Duration = Duration::from_secs(20);
/// How often the thread looks, and after which time it has been stopped itself.
const LOOK: Duration = Duration::from_secs(1);
const STOPPED: Duration = Duration::from_secs(5);

/// What the watching thread sees.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How often EL2 has begun a block.
    blocks: AtomicU64,
    /// The last inputs, in the order in which they began.
    recent: Mutex<VecDeque<Input>>,
}

/// Whether the machine is stuck, as seen now and then.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    blocks: u64,
    /// When it was first seen there, and last.
    since: Instant,
    seen: Instant,
}

impl Pulse {
    /// Looks again. Returns whether nothing has been executed for long.
    fn look(&mut self, blocks: u64, now: Instant) -> bool {
        let was_stopped = now.duration_since(self.seen) >= STOPPED;
        if blocks == 0 || blocks != self.blocks || was_stopped {
            self.blocks = blocks;
            self.since = now;
        }
        self.seen = now;
        now.duration_since(self.since) >= STUCK
    }
}

impl Watch {
    /// Starts to watch. A machine that is stuck is a finding, with which the run ends.
    pub fn start(directory: PathBuf, seed: u64) -> Arc<Self> {
        let watch = Arc::new(Self::default());
        let watched = watch.clone();
        thread::spawn(move || {
            let mut pulse = Pulse {
                blocks: 0,
                since: Instant::now(),
                seen: Instant::now(),
            };
            while !pulse.look(watched.blocks.load(Relaxed), Instant::now()) {
                thread::sleep(LOOK);
            }
            let finding = Finding {
                rule: "stuck".to_owned(),
                what: "EL2 executes nothing: all cores wait, or one takes exceptions without end"
                    .to_owned(),
                core: 0,
            };
            state::reproducer(&directory, &finding, seed, &*watched.recent());
            finding.end_run()
        });
        watch
    }

    /// EL2 has begun a block. All cores have one thread, so that no other one counts meanwhile.
    pub fn beat(&self) {
        self.blocks.store(self.blocks.load(Relaxed) + 1, Relaxed);
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
        let mut pulse = Pulse {
            blocks: 0,
            since: now,
            seen: now,
        };
        let mut look = |blocks, seconds| pulse.look(blocks, now + Duration::from_secs(seconds));
        let all = |found: &mut dyn FnMut(u64) -> bool, times: std::ops::Range<u64>| {
            times.filter(|at| found(*at)).collect::<Vec<_>>()
        };
        let none: Vec<u64> = Vec::new();
        assert_eq!(
            all(&mut |at| look(0, at), 0..100),
            none,
            "it has not started"
        );
        assert_eq!(all(&mut |at| look(at, at), 100..200), none, "it executes");
        assert_eq!(all(&mut |at| look(7, at), 200..221), [220]);
        assert!(!look(7, 300), "the thread was stopped too");
    }
}
