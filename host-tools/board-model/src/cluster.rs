//! The limits of a cluster's L2: lookups, which its cores share; each core's path to it; and its
//! outstanding writes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::calendar::Calendar;

/// Words of a calendar of lookups or of a path: some thousand cycles, and cores are a quantum
/// apart.
const WORDS: usize = 64;
/// Parts of a cycle in which writes are counted.
const PARTS: u64 = 256;

/// Limits to an L2's parallel work; 0 each: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Limits {
    /// Cycles between the starts of two lookups, of any cores.
    pub lookup: u64,
    /// Cycles for which a line occupies the path between a core and the L2.
    pub line: u64,
    /// Writes to memory that may be outstanding.
    pub writes: u64,
}

impl L2Limits {
    /// There are none.
    pub const NONE: Self = Self {
        lookup: 0,
        line: 0,
        writes: 0,
    };
}

/// The writes to memory that a cluster has outstanding.
#[derive(Clone, Debug)]
struct Outstanding {
    /// Starts of writes, in parts of a cycle: as many as may be outstanding in the time that one
    /// takes.
    starts: Calendar,
    /// How much later than asked for a write starts if all but one of the others are outstanding.
    most: u64,
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
}

impl Cluster {
    /// Creates an idle cluster. A write to memory is outstanding for `write` cycles.
    pub fn new(limits: L2Limits, cores: usize, write: u64) -> Self {
        let writes = (limits.writes > 0).then(|| {
            let starts = Calendar::new(write.max(1) * PARTS / limits.writes, WORDS);
            Outstanding {
                most: (limits.writes - 1) * starts.slot(),
                starts,
            }
        });
        let cores = if limits.line > 0 { cores } else { 0 };
        let lookups = Calendar::new(limits.lookup, WORDS);
        Self {
            limits,
            origin: 0,
            lookups,
            paths: vec![Calendar::new(limits.line, WORDS); cores],
            writes,
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
            writes.starts.clear();
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

    /// Writes a line to memory. If the maximum of writes is outstanding, the L2 looks up nothing
    /// until one has ended. Returns the cycles until then.
    pub fn write(&mut self, now: u64) -> u64 {
        let Some(Outstanding { starts, most }) = &mut self.writes else {
            return 0;
        };
        let now = now.saturating_sub(self.origin);
        let time = now * PARTS;
        let wait = (starts.take(time) - time)
            .saturating_sub(*most)
            .div_ceil(PARTS);
        if wait > 0 {
            self.lookups.fill(now..now + wait);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_share_lookups_and_have_a_path_each() {
        let mut cluster = Cluster::new(
            L2Limits {
                lookup: 2,
                line: 4,
                writes: 0,
            },
            2,
            100,
        );
        assert_eq!([0, 0, 0].map(|now| cluster.look_up(now)), [0, 2, 4]);
        assert_eq!([0, 0].map(|now| cluster.transfer(0, now)), [0, 4]);
        assert_eq!(cluster.transfer(1, 0), 0, "its own");
        assert!((0..100).all(|_| cluster.write(0) == 0), "any number");
        let mut none = Cluster::new(L2Limits::NONE, 2, 100);
        assert_eq!(
            (0..100)
                .map(|_| none.look_up(5) + none.transfer(0, 5) + none.write(5))
                .sum::<u64>(),
            0
        );
    }

    #[test]
    fn a_write_more_than_may_be_outstanding_stops_all_lookups() {
        let mut cluster = Cluster::new(
            L2Limits {
                lookup: 1,
                line: 0,
                writes: 16,
            },
            4,
            96,
        );
        assert!((0..16).all(|_| cluster.write(960) == 0), "a burst");
        assert_eq!(cluster.look_up(960), 0);
        assert_eq!(cluster.write(960), 6, "then as many as end");
        assert_eq!([cluster.look_up(961), cluster.look_up(970)], [5, 0]);
        assert_eq!(cluster.write(2000), 0, "later they have ended");
    }

    #[test]
    fn times_count_from_when_the_model_is_turned_on() {
        let waits = |start: u64| {
            let mut cluster = Cluster::new(
                L2Limits {
                    lookup: 3,
                    line: 7,
                    writes: 16,
                },
                1,
                92,
            );
            cluster.begin(start);
            let waits = (0..200).map(|at| start + at * 2).map(|now| {
                [
                    cluster.look_up(now),
                    cluster.transfer(0, now),
                    cluster.write(now),
                ]
            });
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(1_000_000), waits(17_000_000));
    }

    #[test]
    fn as_many_writes_as_may_be_outstanding_start_in_the_time_of_one() {
        let mut cluster = Cluster::new(
            L2Limits {
                lookup: 1,
                line: 0,
                writes: 16,
            },
            1,
            96,
        );
        let all = (0..1000).fold(0, |now, _| now + cluster.write(now));
        assert!(
            (5850..6000).contains(&all),
            "1000 / 16 times 96 cycles, less a burst: {all}"
        );
    }
}
