//! A VM's lease: how long a program in the VM may keep its changes of the VM's pages.
//!
//! Each lease has its own number, which no later lease gets: a program that has slept too long
//! cannot renew its successor's lease. An expired lease is held until its pages are back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::Instant;
use cloison_abi::CallError;

/// The lease of a VM. By default, no program has it.
///
/// Property test: `only_its_owner_has_it_and_only_in_time`.
#[derive(Debug, Default)]
pub struct Lease {
    /// Number of the lease that was taken last; 0 before the first.
    last: u64,
    /// When it expires, if a program has it.
    pub until: Option<Instant>,
}

impl Lease {
    /// Takes the lease. Returns its number.
    ///
    /// # Errors
    /// [`CallError::Taken`] while a program has it.
    pub fn take(&mut self, until: Instant) -> Result<u64, CallError> {
        if self.until.is_some() {
            return Err(CallError::Taken);
        }
        *self = Self {
            // A 64-bit number does not wrap: at one lease per nanosecond it lasts 584 years.
            last: self.last + 1,
            until: Some(until),
        };
        Ok(self.last)
    }

    /// Checks that the lease has this number and has not expired.
    ///
    /// # Errors
    /// [`CallError::Expired`] if the lease with this number has expired `now`, or never existed.
    pub fn check(&self, number: u64, now: Instant) -> Result<(), CallError> {
        match self.until {
            Some(until) if number == self.last && now < until => Ok(()),
            _ => Err(CallError::Expired),
        }
    }

    /// Changes when the lease expires.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn renew(&mut self, number: u64, now: Instant, until: Instant) -> Result<(), CallError> {
        self.check(number, now)?;
        self.until = Some(until);
        Ok(())
    }

    /// Returns whether the lease has expired `now`, and its pages are not back.
    pub fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Ends the lease: its pages are back.
    pub fn end(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const YEAR: u64 = 366 * 24 * 3600 * 62_500_000;

    #[test]
    fn a_lease_lasts_until_its_instant_and_not_longer() {
        for start in [0, YEAR, u64::MAX - 10] {
            let at = |ticks: u64| Instant(start + ticks);
            let mut lease = Lease::default();
            let number = lease.take(at(5)).unwrap();
            assert_eq!(lease.check(number, at(4)), Ok(()));
            assert_eq!(lease.check(number, at(5)), Err(CallError::Expired));
            assert_eq!(
                lease.renew(number, at(5), at(9)),
                Err(CallError::Expired),
                "too late, though it is still held"
            );
            assert_eq!(
                lease.take(at(9)),
                Err(CallError::Taken),
                "not before its pages are back"
            );
            lease.end();
            assert_eq!(lease.take(at(9)), Ok(number + 1));
        }
    }

    #[test]
    fn no_program_renews_its_successors_lease() {
        let mut lease = Lease::default();
        let (now, later) = (Instant(1), Instant(YEAR));
        assert_eq!(
            lease.check(0, now),
            Err(CallError::Expired),
            "0 is no lease"
        );
        for _ in 0..10_000 {
            let number = lease.take(later).unwrap();
            lease.end();
            assert_eq!(lease.renew(number, now, later), Err(CallError::Expired));
            assert!(lease.until.is_none());
        }
    }

    proptest! {
        /// Against its owner and its end, whatever is called when, by whichever of two programs.
        #[test]
        fn only_its_owner_has_it_and_only_in_time(
            steps in prop::collection::vec((0u8..4, 0usize..2, 1u64..20), 1..200),
        ) {
            let (mut lease, mut owner) = (Lease::default(), None);
            let mut numbers = [0; 2];
            for (now, (step, program, length)) in steps.into_iter().enumerate() {
                let (now, until) = (Instant(now as u64), Instant(now as u64 + length));
                let has = owner.is_some_and(|(who, end)| who == program && now < end);
                match step {
                    0 => match lease.take(until) {
                        Ok(number) => {
                            prop_assert!(owner.is_none() && number > numbers[0].max(numbers[1]));
                            numbers[program] = number;
                            owner = Some((program, until));
                        }
                        Err(error) => prop_assert!(owner.is_some() && error == CallError::Taken),
                    },
                    1 => {
                        prop_assert_eq!(lease.renew(numbers[program], now, until).is_ok(), has);
                        owner = if has { Some((program, until)) } else { owner };
                    }
                    2 if owner.is_some_and(|(_, end)| end <= now) => {
                        lease.end();
                        owner = None;
                    }
                    _ => prop_assert_eq!(lease.check(numbers[program], now).is_ok(), has),
                }
                prop_assert_eq!(lease.until, owner.map(|(_, end)| end));
            }
        }
    }
}
