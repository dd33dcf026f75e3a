//! Time: instants in ticks of the system counter, lengths in ticks, and their conversion.
//!
//! An instant stays in ticks. A deadline is computed from lengths alone. Each length is converted
//! once, exactly and rounded up: a deadline is never early, and no error grows with the time since
//! reset. Nanoseconds are for the log.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::units::Nanos;
use core::ops::Add;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A point in time: ticks of the system counter since reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

/// A length of time in ticks of the system counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u64);

impl Instant {
    /// Returns the time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Ticks {
        Ticks(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Ticks> for Instant {
    type Output = Self;

    fn add(self, length: Ticks) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Ticks {
    /// Returns `times` times this length.
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// The system counter's frequency, with the factor that converts its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    hz: u64,
    /// Nanoseconds per tick, in units of 2^-54: fits 64 bits from 1 MHz on.
    nanos_per_tick: u64,
}

impl Clock {
    /// The lowest frequency, in hertz.
    pub const SLOWEST: u64 = 1_000_000;
    /// The highest frequency whose conversions fit 64 bits, in hertz.
    pub const FASTEST: u64 = 4 * SECOND;
    const FRACTION: u32 = 54;

    /// Describes a counter of `hz` hertz; `None` below [`SLOWEST`](Self::SLOWEST) and beyond
    /// [`FASTEST`](Self::FASTEST).
    pub const fn new(hz: u64) -> Option<Self> {
        if hz < Self::SLOWEST || hz > Self::FASTEST {
            return None;
        }
        Some(Self {
            hz,
            // At 1 MHz, 1000 << 54 is just below 2^64: a lower frequency would not fit.
            nanos_per_tick: (((SECOND as u128) << Self::FRACTION) / hz as u128) as u64,
        })
    }

    /// Returns the least number of ticks that lasts at least `length`.
    pub const fn ticks(self, length: Nanos) -> Ticks {
        // Seconds and the rest apart: the product of the rest fits 64 bits.
        let seconds = (length.0 / SECOND).saturating_mul(self.hz);
        let rest = (length.0 % SECOND * self.hz).div_ceil(SECOND);
        Ticks(seconds.saturating_add(rest))
    }

    /// Converts a length to nanoseconds for people to read: rounded down, and over ten years short
    /// by less than 80 ns.
    pub const fn nanos(self, length: Ticks) -> Nanos {
        Nanos(((length.0 as u128 * self.nanos_per_tick as u128) >> Self::FRACTION) as u64)
    }

    /// Returns the nanoseconds from reset to an instant, for the log.
    pub const fn since_reset(self, instant: Instant) -> Nanos {
        self.nanos(Ticks(instant.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEN_YEARS: u64 = 10 * 366 * 24 * 3600;

    fn frequency() -> impl Strategy<Value = u64> {
        prop_oneof![
            1_000_000..=Clock::FASTEST,
            prop::sample::select(&[1_000_000, 19_200_000, 62_500_000, 99_990_005][..])
        ]
    }

    #[test]
    fn a_counter_without_a_frequency_is_refused() {
        assert_eq!(Clock::new(0), None);
        assert_eq!(Clock::new(Clock::SLOWEST - 1), None);
        assert_eq!(Clock::new(Clock::FASTEST + 1), None);
    }

    proptest! {
        /// The fewest ticks that are long enough, exactly, up to ten years.
        #[test]
        fn a_length_is_never_cut_short_and_at_most_a_tick_longer(
            hz in frequency(),
            nanos in 0..TEN_YEARS * SECOND,
        ) {
            let clock = Clock::new(hz).expect("in range");
            let ticks = u128::from(clock.ticks(Nanos(nanos)).0) * u128::from(SECOND);
            let exact = u128::from(nanos) * u128::from(hz);
            prop_assert!(ticks >= exact && ticks < exact + u128::from(SECOND));
        }

        #[test]
        fn the_log_shows_an_instant_to_eighty_nanoseconds(hz in frequency(), share in 0.0..1.0f64) {
            let clock = Clock::new(hz).expect("in range");
            let ticks = ((hz * TEN_YEARS) as f64 * share) as u64;
            let exact = u128::from(ticks) * u128::from(SECOND) / u128::from(hz);
            let shown = u128::from(clock.since_reset(Instant(ticks)).0);
            prop_assert!(
                shown <= exact && exact - shown < 80,
                "{} for {}",
                shown,
                exact
            );
        }

        #[test]
        fn a_deadline_in_ticks_is_not_early(
            hz in frequency(),
            now in 0..u64::MAX / 4,
            nanos in 0..TEN_YEARS * SECOND,
        ) {
            let clock = Clock::new(hz).expect("in range");
            let due = Instant(now) + clock.ticks(Nanos(nanos));
            let waited = u128::from(due.since(Instant(now)).0) * u128::from(SECOND);
            prop_assert!(waited >= u128::from(nanos) * u128::from(hz));
        }
    }
}
