//! A pool of unused budgets, which several cores fill and take from in each period.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU64, Ordering};

/// What cores have given in one period, and others not yet taken.
///
/// The period's number and the events are one word, so nothing is taken twice, and nothing of one period in another. What
/// is left when a core opens the next period is lost: it can only have been less than was given. Numbers of periods may
/// wrap, as each core opens a period before it takes from it. Each call is one step of one atomic word, so what cores do at
/// the same time is what they do in some order (`quota`'s tests try all).
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
    /// A pool in which nothing is.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Opens a period, if no core has, and gives to it.
    pub fn give(&self, period: u32, events: u32) {
        self.update(|open, left| {
            Some((
                period,
                if open == period {
                    left.saturating_add(events)
                } else {
                    events
                },
            ))
        });
    }

    /// Takes up to `wanted` of what was given in a period. Returns how many events it got.
    pub fn take(&self, period: u32, wanted: u32) -> u32 {
        let before = self.update(|open, left| {
            (open == period && left > 0).then(|| (open, left.saturating_sub(wanted)))
        });
        before.map_or(0, |left| left.min(wanted))
    }

    /// Changes the open period and what is left in it; returns what was left before, if there was a change.
    fn update(&self, next: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Option<u32> {
        let next = |word: u64| {
            next((word >> 32) as u32, word as u32)
                .map(|(open, left)| u64::from(open) << 32 | u64::from(left))
        };
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()
            .map(|word| word as u32)
    }
}

#[cfg(test)]
impl Pool {
    /// Sets the open period, and what is left in it, for tests that try every next step.
    pub(crate) fn set(&self, (open, left): (u32, u32)) {
        self.0
            .store(u64::from(open) << 32 | u64::from(left), Ordering::Relaxed);
    }

    /// The open period, and what is left in it.
    pub(crate) fn state(&self) -> (u32, u32) {
        let word = self.0.load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}
