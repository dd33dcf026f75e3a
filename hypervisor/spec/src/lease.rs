//! A VM's lease: until when calls with its number succeed (docs/calls.md, `Lease`, `MovePages`,
//! `ReturnPages`, `CachePages`).
//!
//! Times are in nanoseconds of the observer's clock, which may be late: a lease that was taken in a
//! call is over at the latest when its time has passed since that call returned.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::Request;
use crate::rules::{Checked, Difference, Rule};
use cloison_abi::Call;

/// What the observer's clock and the hypervisor's may differ by: ticks, and their rounding.
const SLACK_NS: u64 = 20_000;

/// The lease of a VM, as far as its calls tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// The highest number so far; 0 if there was none.
    last: u64,
    /// Until when that one runs at the latest.
    until: u64,
    /// Until when it runs at least, unless it is ended.
    at_least: u64,
    /// When the VM made a call of which not everything is known: it may have taken another one.
    unseen: Option<u64>,
}

impl Leases {
    /// Follows a call that returned successfully: `began` and `now` are when the guest made it and
    /// when it continues, `result` is x1. `is_alone` says that no other vCPU of the VM has called
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// It succeeded with a lease that was over when the guest called, or took one with an old number.
    pub fn succeeded(
        &mut self,
        request: Request,
        result: u64,
        (began, now): (u64, u64),
        is_alone: bool,
    ) -> Checked {
        let [first, second, third] = request.arguments;
        let Some(call) = Call::from_id(request.function) else {
            return Ok(());
        };
        let number = match call {
            Call::Lease => first,
            Call::MovePages | Call::ReturnPages | Call::CachePages => third,
            _ => 0,
        };
        if number != 0 && is_alone {
            self.check(call, number, began)?;
        }
        if call != Call::Lease {
            return Ok(());
        }
        if first == 0 {
            // Another vCPU's call, which took a later one, may return first.
            if is_alone && (result <= self.last || began.saturating_add(SLACK_NS) < self.at_least) {
                return Err(Difference::new(
                    Rule::LeaseOne,
                    "a call that takes the lease",
                    format!("an error, or a number above {}", self.last),
                    format!("{result}, while one may run until {}", self.until),
                ));
            }
            self.last = self.last.max(result);
            self.unseen = self.unseen.filter(|at| *at >= began);
        }
        self.until = now.saturating_add(second).saturating_add(SLACK_NS);
        self.at_least = if is_alone {
            began.saturating_add(second)
        } else {
            0
        };
        Ok(())
    }

    /// The VM ends or restarts, or another vCPU's call meanwhile may have changed the lease.
    pub fn forget(&mut self) {
        self.until = u64::MAX;
        self.at_least = 0;
    }

    /// The VM makes a call at `now` of which not everything is known: it may take a lease.
    pub fn may_take(&mut self, now: u64) {
        self.forget();
        self.unseen = Some(now);
    }

    fn check(&self, call: Call, number: u64, began: u64) -> Checked {
        if self.unseen.is_some() && number >= self.last {
            return Ok(());
        }
        let is_over = number > self.last || number == self.last && began > self.until;
        if !is_over && number == self.last {
            return Ok(());
        }
        Err(Difference::new(
            Rule::LeaseEnd,
            format!("call {:#x} with the lease {number}", call as u32),
            format!(
                "an error: the last lease is {}, until {}, and it is {began}",
                self.last, self.until
            ),
            "success",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(call: Call, arguments: [u64; 3]) -> Request {
        Request {
            function: call as u32,
            arguments,
        }
    }

    fn rule(checked: Checked) -> Option<Rule> {
        checked.err().map(|difference| difference.rule)
    }

    fn taken() -> Leases {
        let mut leases = Leases::default();
        let take = request(Call::Lease, [0, 500_000, 0]);
        assert_eq!(leases.succeeded(take, 4, (1000, 1500), true), Ok(()));
        leases
    }

    #[test]
    fn a_lease_is_good_until_its_end_and_not_longer() {
        let uses = |call, arguments, began| {
            let done = (began, began + 10);
            rule(taken().succeeded(request(call, arguments), 0, done, true))
        };
        for (call, arguments) in [
            (Call::Lease, [4, 1000, 0]),
            (Call::MovePages, [0, 1, 4]),
            (Call::ReturnPages, [0, 1, 4]),
            (Call::CachePages, [0, 1, 4]),
        ] {
            assert_eq!(uses(call, arguments, 501_500), None);
            let late = 501_501 + SLACK_NS;
            assert_eq!(uses(call, arguments, late), Some(Rule::LeaseEnd));
        }
        assert_eq!(uses(Call::MovePages, [0, 1, 3], 2000), Some(Rule::LeaseEnd));
        assert_eq!(uses(Call::MovePages, [0, 1, 5], 2000), Some(Rule::LeaseEnd));
        // Without a lease.
        assert_eq!(uses(Call::MovePages, [0, 1, 0], 900_000), None);
        assert_eq!(uses(Call::QuotaRead, [0, 1, 3], 900_000), None);
    }

    #[test]
    fn a_lease_that_was_renewed_or_ended_has_its_new_end() {
        let mut leases = taken();
        let renew = request(Call::Lease, [4, 900_000, 0]);
        assert_eq!(leases.succeeded(renew, 4, (2000, 2100), true), Ok(()));
        let moves = request(Call::MovePages, [0, 1, 4]);
        assert_eq!(leases.succeeded(moves, 0, (900_000, 900_100), true), Ok(()));
        let end = request(Call::Lease, [4, 0, 0]);
        assert_eq!(leases.succeeded(end, 4, (901_000, 901_100), true), Ok(()));
        let late = leases.succeeded(moves, 0, (930_000, 930_100), true);
        assert_eq!(rule(late), Some(Rule::LeaseEnd));
    }

    #[test]
    fn one_lease_runs_at_a_time_with_a_new_number() {
        let take = request(Call::Lease, [0, 1000, 0]);
        let again = |number, began| rule(taken().succeeded(take, number, (began, began + 9), true));
        assert_eq!(again(5, 600_000), None);
        assert_eq!(again(4, 600_000), Some(Rule::LeaseOne));
        assert_eq!(again(5, 200_000), Some(Rule::LeaseOne));
        let mut leases = taken();
        leases.forget();
        assert_eq!(leases.succeeded(take, 5, (200_000, 200_100), true), Ok(()));
    }

    #[test]
    fn a_lease_that_an_unseen_call_took_is_good_until_the_next_one() {
        let with = |number| request(Call::MovePages, [0, 1, number]);
        let mut leases = taken();
        leases.may_take(2000);
        assert_eq!(leases.succeeded(with(5), 0, (3000, 3010), true), Ok(()));
        let old = leases.succeeded(with(3), 0, (3000, 3010), true);
        assert_eq!(rule(old), Some(Rule::LeaseEnd));
        // Of one that began before, the unseen call may have been the later.
        let take = request(Call::Lease, [0, 500_000, 0]);
        assert_eq!(leases.succeeded(take, 5, (1900, 4000), true), Ok(()));
        assert_eq!(leases.succeeded(with(6), 0, (5000, 5010), true), Ok(()));
        assert_eq!(leases.succeeded(take, 7, (600_000, 600_100), true), Ok(()));
        let unknown = leases.succeeded(with(8), 0, (600_200, 600_210), true);
        assert_eq!(rule(unknown), Some(Rule::LeaseEnd));
    }
}
