//! Calls of guests, from when a guest leaves until it continues: by HVC, SMC or the services page.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::reply::Life;
use cloison_abi::{Call, page};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::image::System;
use cloison_spec::budget::Bucket;
use cloison_spec::charge;
use cloison_spec::lease::Leases;
use cloison_spec::page::Registers as Page;
use cloison_spec::power::{self, Power, Request};
use cloison_spec::{Difference, visit};

/// A vCPU: its VM and its number there.
pub type Place = (usize, usize);

/// A guest's access to the page of an emulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAccess {
    /// Offset in the page.
    pub offset: u16,
    /// Number of bytes; 0 where the syndrome does not describe the access.
    pub bytes: u64,
    /// The register that it loads or stores.
    pub register: u32,
    /// Whether it stores.
    pub stores: bool,
}

impl PageAccess {
    /// Returns the access of a data abort at an IPA, if that is in a page (Arm ARM, ISS encoding for
    /// an exception from a Data Abort: ISV, SAS, SRT and WnR).
    pub const fn of(esr: u64, ipa: Ipa, page: Ipa) -> Option<Self> {
        let is_page = ipa.page_number() == page.page_number();
        if !visit::is_data_abort(esr) || !is_page {
            return None;
        }
        let is_described = esr >> 24 & 1 == 1;
        Some(Self {
            offset: (ipa.0 % PAGE_SIZE) as u16,
            bytes: if is_described {
                1 << (esr >> 22 & 3)
            } else {
                0
            },
            register: (esr >> 16 & 31) as u32,
            stores: esr >> 6 & 1 == 1,
        })
    }
}

/// A call that a vCPU has made and that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The call.
    pub request: Request,
    /// When it was made, in nanoseconds.
    began: u64,
    /// It is about the lease, and another vCPU of the VM has such a call open too.
    is_crossed: bool,
    /// It is an order to a VM that has ended.
    revives: bool,
    /// Of the VM that the call names, before it.
    revivals: u64,
}

/// What the calls of all VMs have done.
pub struct Calls {
    system: &'static System,
    /// Which vCPU may execute.
    pub power: Power,
    leases: Vec<Leases>,
    pages: Vec<Page>,
    /// The budgets that regulating VMs have set, by VM and by quota.
    budgets: Vec<Vec<u64>>,
}

/// Returns whether a call may change or use the lease.
const fn is_of_lease(function: u32) -> bool {
    function == Call::Lease as u32
}

impl Calls {
    /// Returns the calls of a system that starts: none.
    pub fn of(system: &'static System) -> Self {
        let budgets = |vm: &cloison_formats::image::Vm| {
            vm.quotas.iter().map(|quota| quota.budget.0).collect()
        };
        Self {
            power: Power::of(system),
            leases: vec![Leases::default(); system.vms.len()],
            pages: vec![Page::default(); system.vms.len()],
            budgets: system.vms.iter().map(budgets).collect(),
            system,
        }
    }

    /// Follows a call that begins. `others` are the open calls of the VM's other vCPUs, `buckets` the
    /// budgets of all vCPUs.
    pub fn begins<'a>(
        &mut self,
        (vm, vcpu): Place,
        request: Request,
        now: u64,
        others: impl Iterator<Item = &'a mut Open>,
        buckets: impl Iterator<Item = (Place, &'a mut Bucket)>,
    ) -> Open {
        let target = request.arguments[0] as usize;
        let revives = request.function == Call::VmOrder as u32 && self.power.has_ended(target);
        self.power.call(vm, vcpu, request, now);
        let mut is_crossed = false;
        for other in others.filter(|other| is_of_lease(other.request.function)) {
            if is_of_lease(request.function) {
                (is_crossed, other.is_crossed) = (true, true);
            }
        }
        if request.function == Call::BudgetSet as u32 {
            self.power.may_change(target, false);
            set_budget(request, false, buckets);
        }
        Open {
            request,
            began: now,
            is_crossed,
            revives,
            revivals: self.power.revivals(target),
        }
    }

    /// Follows a call that returns with x0 and x1.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn ends<'a>(
        &mut self,
        (vm, vcpu): Place,
        open: Open,
        (status, x1): (i64, u64),
        now: u64,
        buckets: impl Iterator<Item = (Place, &'a mut Bucket)>,
    ) -> Result<(), Difference> {
        let Open {
            request,
            began,
            is_crossed,
            revives,
            revivals,
        } = open;
        let (system, budgets) = (self.system, &self.budgets);
        let rebirth = |vm: usize| {
            let budget = |number: usize| budgets[vm].get(number).copied().unwrap_or(1);
            charge::rebirth_time(&system.vms[vm], budget)
        };
        self.power
            .returns(rebirth, vm, vcpu, (request, status), now)?;
        power::check_grant(system, vm, request, status)?;
        let work = charge::least(system, request, (status, x1), revives);
        let is_done = status == 0;
        let [first, second, third] = request.arguments;
        let mut buckets: Vec<_> = buckets.collect();
        for (place, bucket) in &mut buckets {
            if *place == (vm, vcpu) {
                bucket.charge(work);
                if is_done && request.function == Call::QuotaSet as u32 {
                    bucket.set(first, second);
                }
            }
        }
        if is_done && request.function == Call::BudgetSet as u32 {
            set_budget(request, true, buckets.into_iter());
            let budget = self.budgets.get_mut(first as usize);
            if let Some(budget) = budget.and_then(|all| all.get_mut(second as usize)) {
                *budget = third;
            }
        }
        if is_done && request.function == Call::VmRead as u32 {
            let life = Life::from(x1 as u8);
            if matches!(life, Life::Off | Life::Stopped | Life::Killed) {
                self.power.reported_end(first as usize, revivals);
            }
        }
        if is_done {
            let leases = &mut self.leases[vm];
            leases.succeeded(request, x1, (began, now), !is_crossed)?;
            if is_crossed {
                leases.forget();
            }
        }
        Ok(())
    }

    /// Follows an access to the services page that begins, with the value that it stores. `is_alone`
    /// says that the VM has one vCPU; `buckets` are all that there are.
    pub fn page_begins<'a>(
        &mut self,
        (vm, vcpu): Place,
        (access, value): (PageAccess, u64),
        now: u64,
        is_alone: bool,
        buckets: impl Iterator<Item = (Place, &'a mut Bucket)>,
    ) {
        if !access.stores {
            return;
        }
        self.may_set_budgets((vm, vcpu), (access, value), buckets);
        let registers = &mut self.pages[vm];
        if !is_alone || access.bytes == 0 {
            registers.forget();
            if access.bytes == 0 || access.offset == page::CALL {
                self.unknown_call(vm, now);
            }
            return;
        }
        if access.bytes != 8 {
            return;
        }
        let Some((function, arguments)) = registers.write(access.offset, value) else {
            return;
        };
        match arguments {
            [Some(first), Some(second), Some(third)] => {
                let request = Request {
                    function,
                    arguments: [first, second, third],
                };
                self.leases[vm].may_take(now);
                // By PSCI's numbers there is nothing on the page.
                if Call::from_id(function).is_some() {
                    self.power.call(vm, vcpu, request, now);
                    self.power.may_change(first as usize, false);
                }
            }
            _ => self.unknown_call(vm, now),
        }
    }

    /// A store to the services page may be a call that sets budgets: its own, or another VM's.
    fn may_set_budgets<'a>(
        &self,
        place: Place,
        (access, value): (PageAccess, u64),
        buckets: impl Iterator<Item = (Place, &'a mut Bucket)>,
    ) {
        let is_call = access.offset == page::CALL && access.bytes == 8;
        let may_be = |call: Call| access.bytes == 0 || is_call && value as u32 == call as u32;
        for (other, bucket) in buckets {
            if other == place && may_be(Call::QuotaSet) {
                bucket.release();
            }
            let regulates = self.system.vms[place.0].regulates >> other.0 & 1 == 1;
            if regulates && may_be(Call::BudgetSet) {
                bucket.may_be_set_by_other();
            }
        }
    }

    /// A VM makes a call of which not everything is known: it may be any.
    fn unknown_call(&mut self, vm: usize, now: u64) {
        self.leases[vm].may_take(now);
        self.may_be_ordered(self.system.vms[vm].manages);
    }

    /// A core takes what is typed on the console, if it is the one that serves it: an order, too.
    pub fn may_type(&mut self, core: usize) {
        if self.system.vms[0].cores[0].index() == core {
            self.may_be_ordered(self.system.console_manages);
        }
    }

    /// Any order may have been given to these VMs, a bit each.
    fn may_be_ordered(&mut self, vms: u8) {
        for target in 0..self.system.vms.len() {
            if vms >> target & 1 == 1 {
                self.power.may_change(target, true);
            }
        }
    }

    /// Follows a read of the services page that has returned.
    ///
    /// # Errors
    ///
    /// It returned something else than the register holds.
    pub fn page_ends(
        &mut self,
        place: Place,
        access: PageAccess,
        value: u64,
        is_alone: bool,
    ) -> Result<(), Difference> {
        if access.stores || access.bytes == 0 || access.register == 31 {
            return Ok(());
        }
        let registers = &mut self.pages[place.0];
        if !is_alone {
            registers.forget();
        }
        let at = (access.offset, access.bytes);
        registers.read(self.system, place, at, value)
    }

    /// Follows a start of a VM.
    pub fn restarts(&mut self, vm: usize) {
        self.leases[vm].forget();
        self.pages[vm].forget();
    }
}

/// Follows a call that sets a budget of another VM.
fn set_budget<'a>(
    request: Request,
    is_done: bool,
    buckets: impl Iterator<Item = (Place, &'a mut Bucket)>,
) {
    let [target, number, budget] = request.arguments;
    for ((vm, _), bucket) in buckets {
        if vm as u64 == target {
            bucket.set_by_other(number, budget, is_done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_abi::map;

    #[test]
    fn accesses_to_the_page_are_told_from_others() {
        const PAGE: Ipa = Ipa(map::SERVICES);
        let of = |esr, ipa| PageAccess::of(esr, Ipa(ipa), PAGE);
        let abort = 0x24 << 26 | 1 << 24 | 3 << 22 | 5 << 16;
        let read = PageAccess {
            offset: 0x58,
            bytes: 8,
            register: 5,
            stores: false,
        };
        assert_eq!(of(abort, map::SERVICES + 0x58), Some(read));
        let write = PageAccess {
            stores: true,
            ..read
        };
        assert_eq!(of(abort | 1 << 6, map::SERVICES + 0x58), Some(write));
        assert_eq!(of(abort, map::UART), None);
        assert_eq!(of(0x16 << 26, map::SERVICES), None);
        let pair = of(abort & !(1 << 24), map::SERVICES);
        assert_eq!(pair.map(|access| access.bytes), Some(0));
    }
}
