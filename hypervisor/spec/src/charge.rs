//! What calls cost a budget, at least (docs/architecture.md, "Who pays").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::Request;
use cloison_abi::reply::Change;
use cloison_abi::{Call, list};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{Backing, Quota, System, Vm, WhenSpent};

/// Lines that work on a page costs.
const PAGE: u64 = 128;
/// Entries of a list in a line.
const ENTRIES: u64 = 8;

/// Work of EL2 for a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Lines of memory.
    pub lines: u64,
    /// Steps.
    pub steps: u64,
}

impl Work {
    const fn of(lines: u64, steps: u64) -> Self {
        Self { lines, steps }
    }

    /// Returns what is less than a page, and may wait until more follows.
    pub const fn waiting() -> Self {
        Self::of(PAGE, PAGE / 2)
    }

    /// Returns what it costs a quota, in its events.
    pub fn cost(self, quota: &Quota) -> u64 {
        let lines = quota.work_cost.page.0.saturating_mul(self.lines) / PAGE;
        lines.saturating_add(quota.work_cost.step.0.saturating_mul(self.steps))
    }
}

/// Returns the work to start a VM again: its RAM is cleaned, and its image loaded.
pub fn rebirth(vm: &Vm) -> Work {
    let is_ram = |backing: &Backing| !matches!(backing, Backing::Device(_));
    let regions = vm.regions.iter().filter(|region| is_ram(&region.backing));
    let ram: u64 = regions.map(|region| u64::from(region.pages)).sum();
    let image = u64::from(vm.image.len).div_ceil(PAGE_SIZE);
    Work::of((ram + image) * PAGE, 0)
}

/// Returns the quotas that hold the first core of a VM, which pay for its starts.
fn payers(vm: &Vm) -> impl Iterator<Item = &Quota> {
    let holds = |quota: &&Quota| quota.vcpu.0 == 0 && quota.when_spent == WhenSpent::Throttle;
    vm.quotas.iter().filter(holds)
}

/// Returns the time in nanoseconds for which the budgets of a VM's first core hold it at most while
/// they pay for its start. `budget` is what a quota has in force, by its number in the VM.
pub fn rebirth_time(vm: &Vm, budget: impl Fn(usize) -> u64) -> u64 {
    let numbered = vm.quotas.iter().enumerate();
    let holding =
        numbered.filter(|(_, quota)| quota.vcpu.0 == 0 && quota.when_spent == WhenSpent::Throttle);
    let time = |(number, quota): (usize, &Quota)| {
        let kept = quota
            .reclaim
            .map_or(u64::MAX, |reclaim| reclaim.guarantee.0);
        let budget = budget(number).min(kept).max(1);
        // What it owes already, and the period that runs.
        let periods = rebirth(vm).cost(quota).saturating_mul(2) / budget + 2;
        periods.saturating_mul(quota.period.0)
    };
    holding.map(time).max().unwrap_or(0)
}

/// Returns the least work that a call of a VM is charged for, after its return with `status` and x1.
/// `has_ended` says that an order is about a VM which had ended.
pub fn least(system: &System, request: Request, (status, x1): (i64, u64), has_ended: bool) -> Work {
    let Some(call) = Call::from_id(request.function) else {
        return Work::default();
    };
    let [first, second, _] = request.arguments;
    let is_done = status == 0;
    let list = || {
        let count = second.min(list::LONGEST);
        Work::of(count.div_ceil(ENTRIES), count)
    };
    let extra = match call {
        Call::Identify => return Work::default(),
        Call::SegmentEnd | Call::CounterRecord => Work::of(6, 4),
        Call::MovePages | Call::ReturnPages | Call::CachePages if is_done => {
            let Work { lines, steps } = list();
            Work::of(lines + x1.saturating_mul(PAGE), steps)
        }
        Call::Migrate | Call::Restore if is_done => Work::of(x1.saturating_mul(PAGE), 0),
        Call::MigratePage if is_done => Work::of(PAGE, 0),
        // Each page is looked at, whether it changes or not.
        Call::SetCacheability if is_done => Work::of(second, second),
        Call::VmOrder if is_done && has_ended && second != Change::Stop as u64 => {
            match system.vms.get(first as usize) {
                Some(target) if payers(target).next().is_none() => rebirth(target),
                _ => Work::default(),
            }
        }
        _ => Work::default(),
    };
    Work::of(extra.lines, extra.steps + 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use cloison_formats::units::Events;

    fn work(call: u32, arguments: [u64; 3], status: i64, x1: u64) -> Work {
        let request = Request {
            function: call,
            arguments,
        };
        least(&fixture::system(), request, (status, x1), true)
    }

    #[test]
    fn each_call_costs_what_the_table_says() {
        let of = |call: Call, arguments, x1| work(call as u32, arguments, 0, x1);
        assert_eq!(work(0xc600_1234, [0; 3], -1, 0), Work::default());
        assert_eq!(of(Call::Identify, [0; 3], 0), Work::default());
        assert_eq!(of(Call::Time, [0; 3], 0), Work::of(0, 4));
        assert_eq!(of(Call::SegmentEnd, [0; 3], 0), Work::of(6, 8));
        assert_eq!(of(Call::MovePages, [0, 17, 0], 2), Work::of(3 + 256, 21));
        assert_eq!(of(Call::ReturnPages, [0, 512, 0], 0), Work::of(64, 516));
        assert_eq!(of(Call::SetCacheability, [0, 5, 0], 0), Work::of(5, 9));
        // An error costs the call.
        let failed = work(Call::MovePages as u32, [0, 17, 0], -8, 0);
        assert_eq!(failed, Work::of(0, 4));
    }

    #[test]
    fn who_orders_a_start_pays_where_no_budget_holds_the_core() {
        let mut system = fixture::system();
        let order = |change: Change| Request {
            function: Call::VmOrder as u32,
            arguments: [0, change as u64, 0],
        };
        let least =
            |system: &System, change, has_ended| least(system, order(change), (0, 0), has_ended);
        assert_eq!(least(&system, Change::Restart, true), Work::of(0, 4));
        system.vms[0].quotas[0].when_spent = WhenSpent::Log;
        for change in [Change::Start, Change::Restart] {
            assert_eq!(least(&system, change, true), Work::of(2 * PAGE, 4));
            assert_eq!(least(&system, change, false), Work::of(0, 4));
        }
        assert_eq!(least(&system, Change::Stop, true), Work::of(0, 4));
    }

    #[test]
    fn a_start_takes_as_long_as_its_budget_pays() {
        let mut system = fixture::system();
        let vm = &mut system.vms[0];
        vm.quotas[0].work_cost.page = Events(1000);
        // Two pages, twice: four budgets, and two periods.
        assert_eq!(rebirth_time(vm, |_| 1000), 6 * 10_000);
        assert_eq!(rebirth_time(vm, |_| 100), 42 * 10_000);
        vm.quotas.clear();
        assert_eq!(rebirth_time(vm, |_| 1), 0);
    }
}
