//! The memory: a latency, and a bandwidth that is shared in buckets of time.
//!
//! Cores run one after the other for a quantum each, so accesses do not arrive in order of time. A server that is "busy
//! until" a time would make a core that runs later wait for one that is ahead of it. Instead, each bucket of time has
//! its own budget: what does not fit into the bucket of an access uses the next one with room.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Cycles that share one budget.
const BUCKET: u64 = 256;
/// Number of buckets that are remembered.
const BUCKETS: usize = 4096;

/// Refreshes: for `cycles` of each `interval` the memory serves nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Cycles from one refresh to the next; at least 1.
    pub interval: u64,
    /// Cycles that a refresh takes; less than the interval.
    pub cycles: u64,
    /// How far into an interval time zero is. On a board this is random; here it comes from the run's seed.
    pub phase: u64,
}

impl Refresh {
    /// Returns the cycles until a refresh in progress at `now` has ended; 0 if there is none. `start` is the start of the
    /// interval of the last question, and saves a division for all others in it.
    const fn wait(&self, now: u64, start: &mut u64) -> u64 {
        let now = now + self.phase;
        let into = now.wrapping_sub(*start);
        let into = if into < self.interval { into } else { now % self.interval };
        *start = now - into;
        self.cycles.saturating_sub(into)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    id: u64,
    used: u64,
}

/// Latency and bandwidth of the memory.
#[derive(Clone, Debug)]
pub struct Dram {
    latency: u64,
    line: u64,
    refresh: Refresh,
    /// Start of the refresh interval that was asked for last.
    interval: u64,
    /// When the model was turned on: time zero of the memory.
    origin: u64,
    buckets: Vec<Bucket>,
}

impl Dram {
    /// Creates a memory that answers after `latency` cycles and moves one cache line in `line` cycles (at most a
    /// bucket's).
    pub fn new(latency: u64, line: u64, refresh: Refresh) -> Self {
        Self {
            latency,
            line: line.min(BUCKET),
            refresh,
            interval: 0,
            origin: 0,
            buckets: vec![Bucket::default(); BUCKETS],
        }
    }

    /// Sets the memory's time zero, when the model is turned on. That moment depends on the host; the phase of the
    /// refreshes must not.
    pub fn begin(&mut self, now: u64) {
        self.origin = now;
        self.buckets.fill(Bucket::default());
    }

    /// Reads a line. Returns the cycles until it arrives.
    pub fn read(&mut self, now: u64) -> u64 {
        let now = now.saturating_sub(self.origin);
        let wait = self.wait(now);
        wait + self.refresh.wait(now + wait, &mut self.interval) + self.latency
    }

    /// Uses bandwidth for a line that is written; nobody waits for it.
    pub fn write(&mut self, now: u64) {
        self.wait(now.saturating_sub(self.origin));
    }

    /// Reserves bandwidth at `now`, in the memory's own time. Returns the cycles to wait.
    fn wait(&mut self, now: u64) -> u64 {
        let first = now / BUCKET;
        // Beyond half of what is remembered, a bucket could belong to two times; the excess is then free.
        for id in first..first + BUCKETS as u64 / 2 {
            let bucket = &mut self.buckets[id as usize % BUCKETS];
            if bucket.id > id {
                continue;
            }
            if bucket.id < id {
                *bucket = Bucket { id, used: 0 };
            }
            if bucket.used + self.line <= BUCKET {
                bucket.used += self.line;
                return (id * BUCKET).saturating_sub(now);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Refresh = Refresh { interval: 1, cycles: 0, phase: 0 };

    #[test]
    fn an_idle_memory_costs_its_latency() {
        assert_eq!(Dram::new(124, 6, NEVER).read(1000), 124);
    }

    #[test]
    fn a_refresh_must_end_first() {
        let mut dram = Dram::new(100, 1, Refresh { interval: 1000, cycles: 50, phase: 10 });
        assert_eq!([0, 30, 39, 40, 989, 990, 1039].map(|now| dram.read(now)), [140, 110, 101, 100, 100, 150, 101]);
    }

    #[test]
    fn no_bucket_serves_more_than_its_time() {
        let mut dram = Dram::new(100, 64, NEVER);
        let waits: Vec<u64> = (0..9).map(|_| dram.read(0) - 100).collect();
        assert_eq!(waits, [0, 0, 0, 0, 256, 256, 256, 256, 512]);
    }

    #[test]
    fn a_core_that_runs_later_is_not_delayed_by_one_ahead() {
        let mut dram = Dram::new(100, 64, NEVER);
        for _ in 0..4 {
            dram.write(256 * 10);
        }
        assert_eq!(dram.read(256 * 9), 100);
        assert_eq!(dram.read(256 * 10), 356);
    }
}
