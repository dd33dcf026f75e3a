//! Memory behind the caches: a latency, and a bandwidth shared in buckets of time.
//!
//! Cores run one after the other for a quantum each, so accesses do not come in order of time. A server that is "busy
//! until" would make a core that runs later wait for one that is ahead of it. Each bucket of time has its own budget
//! instead: what does not fit into the bucket of an access goes to the next one with room.

/// Cycles that share one budget.
const BUCKET: u64 = 256;
/// Buckets that are remembered.
const BUCKETS: usize = 4096;

/// The memory's own time: for `cycles` of each `interval` it refreshes and serves nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// From one refresh to the next; at least 1.
    pub interval: u64,
    /// How long one takes; less than the interval.
    pub cycles: u64,
    /// How far into an interval time zero is. On a board that is chance; here it comes from the run's seed.
    pub phase: u64,
}

impl Refresh {
    /// Cycles until a refresh that is under way at `now` has ended.
    const fn wait(&self, now: u64) -> u64 {
        self.cycles.saturating_sub((now + self.phase) % self.interval)
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
    /// When the model was turned on: the memory's time zero.
    origin: u64,
    buckets: Vec<Bucket>,
}

impl Dram {
    /// A memory that answers after `latency` cycles and moves one cache line in `line` cycles (at most a bucket's).
    pub fn new(latency: u64, line: u64, refresh: Refresh) -> Self {
        Self { latency, line: line.min(BUCKET), refresh, origin: 0, buckets: vec![Bucket::default(); BUCKETS] }
    }

    /// The model is turned on at this time. When that is, is the host's to say; where the memory then is, is not.
    pub fn begin(&mut self, now: u64) {
        self.origin = now;
        self.buckets.fill(Bucket::default());
    }

    /// Moves a line at a time; returns the cycles until it is there.
    pub fn read(&mut self, now: u64) -> u64 {
        let now = now.saturating_sub(self.origin);
        let wait = self.wait(now);
        wait + self.refresh.wait(now + wait) + self.latency
    }

    /// Takes bandwidth for a line that is written; nobody waits for it.
    pub fn write(&mut self, now: u64) {
        self.wait(now.saturating_sub(self.origin));
    }

    /// `now` by the memory's own time.
    fn wait(&mut self, now: u64) -> u64 {
        let first = now / BUCKET;
        // Beyond half of what is remembered a bucket could stand for two times: the excess is then free.
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
