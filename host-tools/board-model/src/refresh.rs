//! Refreshes of the memory: times at which it serves no access.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Refreshes: for `cycles` of each `interval` the memory serves no access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Cycles from one refresh to the next; at least 1.
    pub interval: u64,
    /// Cycles that a refresh takes; less than the interval.
    pub cycles: u64,
    /// Time zero's position in an interval, in cycles. On a board this is random; here the run's
    /// seed determines it.
    pub phase: u64,
}

impl Refresh {
    /// Returns the time until a refresh in progress at `now` has ended, in the unit of `cycles`; 0
    /// if there is none. `start` is the start of the last call's interval, which saves a division
    /// in all calls for the same interval.
    pub const fn wait(&self, now: u64, start: &mut u64) -> u64 {
        let now = now + self.phase;
        let into = now.wrapping_sub(*start);
        let into = if into < self.interval {
            into
        } else {
            now % self.interval
        };
        *start = now - into;
        self.cycles.saturating_sub(into)
    }
}
