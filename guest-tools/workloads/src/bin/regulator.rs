//! Regulator: sets the quota of another VM, and checks that it holds and that no forbidden setting
//! changes.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::CallError;
use cloison_guest::{arg, args, call, entry, println};

entry!(main);

/// Looks at a quota until its period counts as one without end.
const PATIENCE: u64 = 20_000_000;

fn main() {
    let [vm, _, ceiling, slack] = args();
    let calls = arg(1, 100);
    let me = call::identify().map_or(0, |identity| identity.vm);
    let mut random = Random::new(7);
    let (mut wrong, mut refused, mut periods) = (0, 0, 0);
    let mut must_hold = |holds: bool, what: core::fmt::Arguments| {
        if !holds {
            wrong += 1;
            println!("regulator: WRONG {what}");
        }
    };
    for number in 0..calls {
        // Small budgets hold the other VM; some are as large as can be.
        let most = ceiling.min(1 << random.below(14));
        let budget = if number % 8 == 0 {
            ceiling
        } else {
            1 + random.below(most)
        };
        let done = call::budget_set(vm, 0, budget);
        must_hold(
            done == Ok(()),
            format_args!("{budget} of {ceiling}: {done:?}"),
        );
        let beyond = ceiling + 1 + random.below(u64::MAX - ceiling - 1);
        let tries = [
            (vm, 0, 0, CallError::Invalid),
            (vm, 0, ceiling + 1, CallError::Invalid),
            (vm, 0, beyond, CallError::Invalid),
            (vm, 1 + random.below(1 << 40), 1, CallError::Absent),
            (me, 0, 1, CallError::Denied),
            (8 + random.below(1 << 40), 0, 1, CallError::Absent),
        ];
        for (other, quota, events, error) in tries {
            let (set, read) = (
                call::budget_set(other, quota, events),
                call::budget_read(other, quota),
            );
            must_hold(
                set == Err(error),
                format_args!("{events} for quota {quota} of VM {other}: {set:?}"),
            );
            // What may be read is as it was.
            let kept = read.map_or_else(|found| found == error, |found| found.budget == budget);
            must_hold(kept, format_args!("quota {quota} of VM {other}: {read:?}"));
            refused += 1;
        }
        let Ok(before) = call::budget_read(vm, 0) else {
            continue;
        };
        // The running period had another budget, and so may the one that ended while the new one
        // was set.
        let later = |events: u32| events.wrapping_sub(before.periods) >= 3;
        let last = (0..PATIENCE)
            .filter_map(|_| call::budget_read(vm, 0).ok())
            .find(|last| later(last.periods));
        let Some(last) = last else {
            must_hold(false, format_args!("no period has ended since {before:?}"));
            break;
        };
        periods += 1;
        must_hold(
            u64::from(last.events) <= budget + slack,
            format_args!("{last:?} with a budget of {budget}"),
        );
    }
    println!("regulator: done calls={calls} periods={periods} refused={refused} wrong={wrong}");
}
