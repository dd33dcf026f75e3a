//! Limits how many messages of the hypervisor a VM causes: a bucket of messages that time fills.
//!
//! Any core may log an event of a VM, so the bucket is one atomic word: the instant at which it
//! will be full. A message moves that instant later by an interval. A message that would move it
//! too far is left out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::{AtomicU32, AtomicU64};
use crate::clock::{Instant, Ticks};
use core::sync::atomic::Ordering::Relaxed;

/// The topic of a message, with the number of messages that may pass at once.
#[derive(Clone, Copy, Debug)]
pub enum Topic {
    /// An act of a VM that runs.
    Act = 8,
    /// The end of a VM's life. Acts leave half of the bucket to these.
    End = 16,
}

/// One VM's bucket.
///
/// Relaxed is enough: no other memory depends on the words. Property test:
/// `messages_pass_at_the_rate`.
#[derive(Debug, Default)]
pub struct Limiter {
    /// The [`Instant`] at which the bucket is full, if no more messages pass. In the past: it is
    /// full.
    full_at: AtomicU64,
    /// Messages left out since the last one that passed.
    left_out: AtomicU32,
}

impl Limiter {
    /// Asks for a message; each `interval` allows one more. Returns how many were left out before
    /// it, or `None` if it is to be left out as well.
    pub fn pass(&self, topic: Topic, now: Instant, interval: Ticks) -> Option<u32> {
        if self.passes(interval.times(topic as u64), now, interval) {
            // Swapped, so that of two messages that pass only one reports the count.
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }

    /// Asks for a message, and does not count those that are left out. The bucket holds what passes
    /// in `room`.
    pub fn passes(&self, room: Ticks, now: Instant, interval: Ticks) -> bool {
        // The bucket may be this far from full after the message.
        let farthest = now + room;
        // Another try means that another core's message has passed: there are not more of them than
        // the bucket holds.
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            // A full bucket does not fill further: time before `now` counts for nothing.
            let next = now.max(Instant(full_at)) + interval;
            if next > farthest {
                return false;
            }
            match (self.full_at).compare_exchange_weak(full_at, next.0, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => full_at = now,
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use cloison_formats::units::Nanos;
    use proptest::prelude::*;

    const ONE_YEAR: u64 = 365 * 24 * 3600;
    const TEN_YEARS: u64 = 10 * 366 * 24 * 3600;

    #[test]
    fn an_end_is_told_where_acts_no_longer_are() {
        let (limiter, now, second) = (Limiter::default(), Instant(99_990_005), Ticks(99_990_005));
        let pass = |topic, now| limiter.pass(topic, now, second);
        for _ in 0..Topic::Act as u64 {
            assert_eq!(pass(Topic::Act, now), Some(0));
        }
        for _ in 0..10_000 {
            assert_eq!(pass(Topic::Act, now), None);
        }
        assert_eq!(
            [pass(Topic::End, now), pass(Topic::End, now)],
            [Some(10_000), Some(0)]
        );
        assert_eq!(pass(Topic::Act, now + second.times(2)), None);
        assert_eq!(pass(Topic::Act, now + second.times(3)), Some(1));
    }

    #[test]
    fn cores_together_get_no_more_than_one() {
        let limiter = Limiter::default();
        let passed: u32 = std::thread::scope(|scope| {
            let tries = || {
                (0..100)
                    .filter_map(|_| limiter.pass(Topic::Act, Instant(7), Ticks(1000)))
                    .count() as u32
            };
            let cores: std::vec::Vec<_> = (0..4).map(|_| scope.spawn(tries)).collect();
            cores
                .into_iter()
                .map(|core| core.join().expect("no panic"))
                .sum()
        });
        assert_eq!(u64::from(passed), Topic::Act as u64);
        assert_eq!(
            limiter.pass(Topic::End, Instant(7), Ticks(1000)),
            Some(400 - passed)
        );
    }

    proptest! {
        /// Whatever the clock and its reading: no more than the burst and one each interval pass,
        /// none is left out that the bucket has room for, and each that was is counted once.
        #[test]
        fn messages_pass_at_the_rate(
            hz in 1_000_000u64..4_000_000_000,
            start in 0..TEN_YEARS,
            steps in prop::collection::vec((0u64..3_000, any::<bool>()), 1..200),
        ) {
            let (limiter, interval) = (Limiter::default(), Ticks(hz));
            let mut now = start.saturating_mul(hz);
            let (first, mut passed, mut reported, mut refused) = (now, 0, 0, 0);
            // In units of hz * 1000, so that nothing is rounded.
            let mut tokens = Topic::End as u128 * u128::from(hz);
            for (milliseconds, is_end) in steps {
                let before = now;
                now += milliseconds * (hz / 1000);
                tokens =
                    (tokens + u128::from(now - before)).min(Topic::End as u128 * u128::from(hz));
                let topic = if is_end { Topic::End } else { Topic::Act };
                let reserve = (Topic::End as u128 - topic as u128) * u128::from(hz);
                let has_room = tokens >= reserve + u128::from(hz);
                let result = limiter.pass(topic, Instant(now), interval);
                prop_assert_eq!(result.is_some(), has_room);
                match result {
                    Some(left_out) => {
                        passed += 1;
                        reported += left_out;
                        tokens -= u128::from(hz);
                        prop_assert_eq!(reported, refused);
                    }
                    None => refused += 1,
                }
                prop_assert!(passed <= Topic::End as u64 + (now - first) / hz);
            }
        }

        /// A doorbell's rate, by real time, whatever the counter's frequency and however long it has
        /// counted, up to the end of its 64 bits: between any two calls pass no more than the burst
        /// and one each interval, and a caller that waits for an interval and a tick always passes.
        #[test]
        fn calls_pass_at_the_rate_at_any_frequency_and_age(
            hz in prop_oneof![
                1_000_000..=Clock::FASTEST,
                prop::sample::select(&[1_000_000, 19_200_000, 33_333_000, 99_990_005][..])
            ],
            age in prop_oneof![
                0..TEN_YEARS,
                ONE_YEAR - 10..ONE_YEAR + 10,
                Just(u64::MAX),
            ],
            interval in 1_000u64..2_000_000,
            burst in 1u64..200,
            steps in prop::collection::vec(0u64..3_000, 1..300),
        ) {
            let clock = Clock::new(hz).expect("in range");
            let ticks = clock.ticks(Nanos(interval));
            let room = ticks.times(burst);
            // In thousandths of an interval; a call now and then waits for a whole one.
            let waits = steps.iter().map(|step| match step % 8 {
                0 => (ticks.0 + 1, true),
                1 | 2 => (ticks.0 * step / 1000, false),
                _ => (ticks.0 * step / 100_000, false),
            });
            let whole: u64 = waits.clone().map(|(wait, _)| wait).sum();
            // The end of what is counted leaves the bucket's room.
            let last = u64::MAX - room.0 - ticks.0 - whole;
            let limiter = Limiter::default();
            let mut now = Instant(age.saturating_mul(hz).min(last));
            let mut passed = std::vec::Vec::new();
            for (wait, is_interval) in waits {
                now = now + Ticks(wait);
                let passes = limiter.passes(room, now, ticks);
                prop_assert!(passes || !is_interval, "a slot was free at {now:?}");
                if passes {
                    passed.push(now);
                }
            }
            for (index, first) in passed.iter().enumerate() {
                for (count, last) in (1u128..).zip(&passed[index..]) {
                    let span = u128::from(last.since(*first).0) * 1_000_000_000 / u128::from(hz);
                    let most = u128::from(burst) + span / u128::from(interval);
                    prop_assert!(count <= most, "{count} in {span} ns, {most} may");
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use crate::power::tests::models::check;
    use loom::sync::Arc;
    use loom::thread;

    /// Two cores ask at once while there is room for one: one of them passes, and the other one is
    /// counted.
    #[test]
    fn loom_one_of_two_passes() {
        loom::model(|| {
            let (now, interval) = (Instant(5), Ticks(10));
            let limiter = Arc::new(Limiter::default());
            for _ in 1..Topic::Act as u64 {
                assert_eq!(limiter.pass(Topic::Act, now, interval), Some(0));
            }
            let other = Arc::clone(&limiter);
            let theirs = thread::spawn(move || other.pass(Topic::Act, now, interval));
            let ours = limiter.pass(Topic::Act, now, interval);
            let theirs = theirs.join().expect("no panic");
            let left = limiter.left_out.load(Relaxed);
            assert_eq!(ours.into_iter().chain(theirs).count(), 1);
            assert_eq!(left + ours.or(theirs).unwrap_or(0), 1);
        });
    }

    /// How a core asks for a message.
    type Pass = fn(&Limiter, Instant) -> Option<u32>;

    /// Two cores are refused while a third one, a little later by its clock, passes: each message
    /// that was left out is reported once.
    fn each_is_reported_once(pass: Pass) {
        let limiter = Arc::new(Limiter::default());
        for _ in 0..Topic::Act as u64 {
            assert_eq!(limiter.pass(Topic::Act, Instant(5), INTERVAL), Some(0));
        }
        let others = [(); 2].map(|()| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || pass(&limiter, Instant(5)))
        });
        let reported = pass(&limiter, Instant(5) + INTERVAL).unwrap_or(0);
        let refused = others
            .into_iter()
            .map(|other| other.join().expect("no panic"))
            .filter(Option::is_none)
            .count();
        let rest = limiter.left_out.load(Relaxed);
        assert_eq!(reported + rest, refused as u32, "not reported once each");
    }

    const INTERVAL: Ticks = Ticks(10);

    #[test]
    fn loom_each_message_that_is_left_out_is_reported_once() {
        check("limiter", || {
            each_is_reported_once(|limiter, now| limiter.pass(Topic::Act, now, INTERVAL));
        });
    }

    #[test]
    #[should_panic(expected = "not reported once each")]
    fn loom_finds_a_count_that_is_read_and_then_cleared() {
        check("planted: read, then clear", || {
            each_is_reported_once(|limiter, now| {
                let count = limiter.left_out.load(Relaxed);
                let before = limiter.pass(Topic::Act, now, INTERVAL)?;
                // As if it had not swapped.
                limiter.left_out.fetch_add(before, Relaxed);
                limiter.left_out.store(0, Relaxed);
                Some(count)
            });
        });
    }
}
