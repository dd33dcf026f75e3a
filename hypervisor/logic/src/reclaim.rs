//! A pool of unused budgets, which several cores fill and take from in each period.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// The events that cores have given in one period, and that no core has taken yet.
///
/// The period's number and the events are one word, so no event is taken twice, or in another
/// period. The rest is lost when a core opens the next period; it is at most as much as was given.
/// Numbers of periods may wrap, because each core opens a period before it takes from it. Each call
/// is one step of one atomic word, so concurrent calls have some order (`quota`'s tests try all).
///
/// ```
/// use cloison_logic::reclaim::Pool;
///
/// let pool = Pool::default();
/// pool.give(7, 100);
/// assert_eq!((pool.take(7, 60), pool.take(7, 60), pool.take(7, 60)), (60, 40, 0));
/// pool.give(7, 5);
/// assert_eq!(pool.take(8, 5), 0, "of another period");
/// ```
#[derive(Debug, Default)]
pub struct Pool(AtomicU64);

impl Pool {
    /// Creates an empty pool.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Opens a period, if no core has done so, and gives events to it.
    pub fn give(&self, period: u32, events: u32) {
        self.update(|open, left| {
            let kept = if open == period { left } else { 0 };
            Some((period, kept.saturating_add(events)))
        });
    }

    /// Takes up to `wanted` of the events given in a period. Returns the number of events taken.
    pub fn take(&self, period: u32, wanted: u32) -> u32 {
        let before = self.update(|open, left| {
            (open == period && left > 0).then(|| (open, left.saturating_sub(wanted)))
        });
        before.map_or(0, |left| left.min(wanted))
    }

    /// Changes the open period and the events left in it. Returns the events left before, if there
    /// was a change.
    fn update(&self, next: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<u32> {
        let next = |word: u64| {
            next((word >> 32) as u32, word as u32)
                .map(|(open, left)| u64::from(open) << 32 | u64::from(left))
        };
        self.0
            .fetch_update(Relaxed, Relaxed, next)
            .ok()
            .map(|word| word as u32)
    }
}

#[cfg(test)]
impl Pool {
    /// Sets the open period, and what is left in it, for tests that try every next step.
    pub(crate) fn set(&self, (open, left): (u32, u32)) {
        self.0
            .store(u64::from(open) << 32 | u64::from(left), Relaxed);
    }

    /// The open period, and what is left in it.
    pub(crate) fn state(&self) -> (u32, u32) {
        let word = self.0.load(Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}
