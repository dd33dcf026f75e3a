//! The limits of a cluster's L2: lookups, which its cores share; each core's path to it; and its
//! outstanding writes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::calendar::Calendar;

/// Words of a calendar of lookups or of a path: some thousand cycles, and cores are a quantum
/// apart.
const WORDS: usize = 64;
/// Writes that are remembered: more than may be outstanding, since cores that run later write
/// between those that others have made.
const REMEMBERED: usize = 64;
/// Maximum of writes that may be outstanding.
pub const MOST_WRITES: usize = REMEMBERED / 2;

/// Limits to an L2's parallel work; 0 each: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Limits {
    /// Cycles between the starts of two lookups, of any cores.
    pub lookup: u64,
    /// Cycles for which a line occupies the path between a core and the L2.
    pub line: u64,
    /// Writes to memory that may be outstanding.
    pub writes: usize,
    /// Whether a write is outstanding until a busy memory takes it. Otherwise each takes as long as
    /// in an idle one.
    pub writes_wait: bool,
}

impl L2Limits {
    /// There are none.
    pub const NONE: Self = Self {
        lookup: 0,
        line: 0,
        writes: 0,
        writes_wait: false,
    };
}

/// A write to memory: from when to when it is outstanding.
#[derive(Clone, Copy, Debug, Default)]
struct Write {
    begin: u64,
    end: u64,
}

/// The writes to memory that a cluster has outstanding.
///
/// Cores run one after the other for a quantum each, so writes are not made in order of time. A
/// write waits for those alone that began before it.
#[derive(Clone, Debug)]
struct Outstanding {
    limit: usize,
    /// The last writes; the oldest one is at `next`.
    recent: [Write; REMEMBERED],
    next: usize,
    /// When the last of them ends.
    last_end: u64,
}

impl Outstanding {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            recent: [Write::default(); REMEMBERED],
            next: 0,
            last_end: 0,
        }
    }

    /// Returns the cycles until there is room for a write.
    fn wait(&self, now: u64) -> u64 {
        if now >= self.last_end {
            return 0;
        }
        let mut ends = [0; REMEMBERED];
        let mut count = 0;
        for write in &self.recent {
            if write.begin <= now && now < write.end {
                ends[count] = write.end;
                count += 1;
            }
        }
        if count < self.limit {
            return 0;
        }
        let (_, room, _) = ends[..count].select_nth_unstable(count - self.limit);
        *room - now
    }

    fn add(&mut self, write: Write) {
        self.recent[self.next] = write;
        self.next = (self.next + 1) % REMEMBERED;
        self.last_end = self.last_end.max(write.end);
    }
}

/// The L2's lookups, its paths to the cores, and its outstanding writes.
#[derive(Clone, Debug)]
pub struct Cluster {
    limits: L2Limits,
    /// When the model was turned on: time zero of the calendars.
    origin: u64,
    lookups: Calendar,
    paths: Vec<Calendar>,
    writes: Option<Outstanding>,
    /// Cycles for which a write is outstanding that the memory has taken.
    write: u64,
}

impl Cluster {
    /// Creates an idle cluster. A write that the memory has taken is outstanding for `write`
    /// cycles.
    pub fn new(limits: L2Limits, cores: usize, write: u64) -> Self {
        let cores = if limits.line > 0 { cores } else { 0 };
        Self {
            limits,
            origin: 0,
            lookups: Calendar::new(limits.lookup, WORDS),
            paths: vec![Calendar::new(limits.line, WORDS); cores],
            writes: (limits.writes > 0).then(|| Outstanding::new(limits.writes)),
            write: write.max(1),
        }
    }

    /// Forgets all work in progress: the model is turned on at time `now`. That moment depends on
    /// the host; the times of later work must not.
    pub fn begin(&mut self, now: u64) {
        self.origin = now;
        self.lookups.clear();
        for path in &mut self.paths {
            path.clear();
        }
        if let Some(writes) = &mut self.writes {
            *writes = Outstanding::new(writes.limit);
        }
    }

    /// Starts a lookup. Returns the cycles until it starts.
    #[inline]
    pub fn look_up(&mut self, now: u64) -> u64 {
        let now = now.saturating_sub(self.origin);
        if self.limits.lookup > 0 {
            self.lookups.take(now) - now
        } else if self.writes.is_some() {
            self.lookups.first_free(now) - now
        } else {
            0
        }
    }

    /// Moves a line, which is there at `now`, between the L2 and a core. Returns the cycles until
    /// the transfer begins.
    #[inline]
    pub fn transfer(&mut self, core: usize, now: u64) -> u64 {
        let now = now.saturating_sub(self.origin);
        self.paths
            .get_mut(core)
            .map_or(0, |path| path.take(now) - now)
    }

    /// Writes a line to memory, which says in how many cycles it takes a line that is offered at a
    /// time. If the maximum of writes is outstanding, the L2 looks up nothing until one has ended.
    /// Returns the cycles for which who writes without end must wait.
    pub fn write(&mut self, now: u64, memory: impl FnOnce(u64) -> u64) -> u64 {
        let Some(writes) = &mut self.writes else {
            return memory(now);
        };
        let time = now.saturating_sub(self.origin);
        let wait = writes.wait(time);
        if wait > 0 {
            self.lookups.fill(time..time + wait);
        }
        let (begin, taken) = (time + wait, memory(now + wait));
        // Either the buffer holds the line until memory takes it, or who writes waits.
        let (held, stalled) = if self.limits.writes_wait {
            (taken, 0)
        } else {
            (0, taken)
        };
        writes.add(Write {
            begin,
            end: begin + held + self.write,
        });
        wait.max(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory that takes each line at once.
    const IDLE: fn(u64) -> u64 = |_| 0;

    /// An L2 with a lookup a cycle and 16 outstanding writes.
    const LIMITS: L2Limits = L2Limits {
        lookup: 1,
        line: 0,
        writes: 16,
        writes_wait: true,
    };

    #[test]
    fn cores_share_lookups_and_have_a_path_each() {
        let limits = L2Limits {
            lookup: 2,
            line: 4,
            ..L2Limits::NONE
        };
        let mut cluster = Cluster::new(limits, 2, 100);
        assert_eq!([0, 0, 0].map(|now| cluster.look_up(now)), [0, 2, 4]);
        assert_eq!([0, 0].map(|now| cluster.transfer(0, now)), [0, 4]);
        assert_eq!(cluster.transfer(1, 0), 0, "its own");
        assert!((0..100).all(|_| cluster.write(0, IDLE) == 0), "any number");
        let mut none = Cluster::new(L2Limits::NONE, 2, 100);
        assert_eq!(
            (0..100)
                .map(|_| none.look_up(5) + none.transfer(0, 5) + none.write(5, IDLE))
                .sum::<u64>(),
            0
        );
    }

    #[test]
    fn a_write_more_than_may_be_outstanding_stops_all_lookups() {
        let mut cluster = Cluster::new(LIMITS, 4, 96);
        assert!((0..16).all(|at| cluster.write(960 + at, IDLE) == 0));
        assert_eq!(cluster.look_up(975), 0, "as many as may be");
        assert_eq!(cluster.write(976, IDLE), 80, "until the first has ended");
        assert_eq!([cluster.look_up(980), cluster.look_up(1060)], [76, 0]);
        assert_eq!(cluster.write(2000, IDLE), 0, "later they have ended");
    }

    #[test]
    fn a_write_is_outstanding_until_a_busy_memory_has_taken_it() {
        let wait_of_the_seventeenth = |writes_wait| {
            let limits = L2Limits {
                writes_wait,
                ..LIMITS
            };
            let mut cluster = Cluster::new(limits, 4, 96);
            // The memory takes nothing before time 500.
            for _ in 0..16 {
                cluster.write(0, |now| 500_u64.saturating_sub(now));
            }
            cluster.write(0, IDLE)
        };
        assert_eq!(wait_of_the_seventeenth(true), 596);
        assert_eq!(wait_of_the_seventeenth(false), 96);
    }

    #[test]
    fn a_write_waits_for_those_alone_that_began_before_it() {
        let mut cluster = Cluster::new(LIMITS, 4, 96);
        // A core that is ahead of the others.
        for _ in 0..16 {
            cluster.write(200, IDLE);
        }
        assert_eq!(cluster.write(100, IDLE), 0);
        assert_eq!(cluster.write(200, IDLE), 96);
    }

    #[test]
    fn times_count_from_when_the_model_is_turned_on() {
        let waits = |start: u64| {
            let limits = L2Limits {
                lookup: 3,
                line: 7,
                ..LIMITS
            };
            let mut cluster = Cluster::new(limits, 1, 92);
            cluster.begin(start);
            let waits = (0..200).map(|at| start + at * 2).map(|now| {
                [
                    cluster.look_up(now),
                    cluster.transfer(0, now),
                    cluster.write(now, IDLE),
                ]
            });
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(1_000_000), waits(17_000_000));
    }

    #[test]
    fn as_many_writes_as_may_be_outstanding_start_in_the_time_of_one() {
        let mut cluster = Cluster::new(LIMITS, 1, 96);
        let all = (0..1000).fold(0, |now, _| now + cluster.write(now, IDLE));
        assert!(
            (5850..6000).contains(&all),
            "1000 / 16 times 96 cycles, less a burst: {all}"
        );
    }
}
