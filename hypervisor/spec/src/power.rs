//! Which vCPU may execute, and why it started (PSCI, DEN 0022; docs/architecture.md, "The life of a
//! vCPU"; docs/calls.md).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use crate::start::First;
use cloison_abi::{Call, psci};
use cloison_formats::channel::Channel;
use cloison_formats::image::{System, Vm};

/// Time in which an accepted order to stop, or the end of a VM, is carried out.
const BOUND_NS: u64 = 100_000_000;

/// A call of a guest, as its registers say when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The function: w0.
    pub function: u32,
    /// x1 to x3.
    pub arguments: [u64; 3],
}

/// What an accepted call does to the power of vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// The caller turns off.
    Off,
    /// A vCPU of the same VM starts.
    On {
        vcpu: usize,
        entry: u64,
        context: u64,
    },
    /// The VM ends.
    End,
    /// The VM restarts.
    Restart,
    /// Another VM stops.
    Stop(usize),
    /// Another VM starts or restarts.
    Start(usize),
}

/// Returns what a call asks for, whether or not it is granted; its status tells that later.
fn effect(request: Request) -> Effect {
    let [first, second, third] = request.arguments;
    let narrow = |value: u64| value & 0xffff_ffff;
    match request.function {
        psci::CPU_OFF => Effect::Off,
        psci::SYSTEM_OFF => Effect::End,
        psci::SYSTEM_RESET => Effect::Restart,
        psci::CPU_ON_64 => Effect::On {
            vcpu: first as usize,
            entry: second,
            context: third,
        },
        psci::CPU_ON_32 => Effect::On {
            vcpu: narrow(first) as usize,
            entry: narrow(second),
            context: narrow(third),
        },
        id if id == Call::VmOrder as u32 => match second {
            0 => Effect::Stop(first as usize),
            1 | 2 => Effect::Start(first as usize),
            _ => Effect::None,
        },
        _ => Effect::None,
    }
}

/// A start that CPU_ON has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    vcpu: usize,
    entry: u64,
    context: u64,
    /// The vCPU that called, so that a refusal removes its own request.
    caller: usize,
}

/// A VM, as far as its power is known.
#[derive(Clone, Debug)]
struct State {
    /// vCPUs that have started and not turned off.
    on: Vec<bool>,
    /// Starts that CPU_ON has asked for and that have not been seen: several may wait at once.
    wanted: Vec<Wanted>,
    /// Reasons to start that were not used yet.
    reasons: u32,
    /// The VM starts without being asked: a campaign's next run.
    at_will: bool,
    /// The console's orders start and stop it, which nothing tells the observer.
    by_console: bool,
    /// When nothing of the VM may execute any more.
    silent: Option<u64>,
    /// It has ended, by itself or by an order, and has not started since.
    has_ended: bool,
    /// When it must have started.
    due: Option<u64>,
    /// Number of its starts, and of orders that may have started it.
    revivals: u64,
    /// The vCPUs, of other VMs, whose orders to start it have not returned.
    ordering: Vec<(usize, usize)>,
    /// Such an order was accepted, and it has not started since.
    is_ordered: bool,
}

/// The power of all VMs.
#[derive(Clone, Debug)]
pub struct Power {
    /// By the VM's number.
    vms: Vec<State>,
}

impl Power {
    /// Returns the power at boot: each VM is about to start.
    pub fn of(system: &System) -> Self {
        let state = |(number, vm): (usize, &Vm)| State {
            on: vec![false; vm.cores.len()],
            wanted: Vec::new(),
            reasons: 1,
            at_will: vm.campaign.is_some(),
            by_console: system.console_manages >> number & 1 == 1,
            silent: None,
            has_ended: false,
            due: None,
            revivals: 0,
            ordering: Vec::new(),
            is_ordered: false,
        };
        Self {
            vms: system.vms.iter().enumerate().map(state).collect(),
        }
    }

    /// Follows a call as it is made, at a time in nanoseconds.
    pub fn call(&mut self, vm: usize, vcpu: usize, request: Request, now: u64) {
        match effect(request) {
            // CPU_OFF counts when it does not return, and an order to stop when it is accepted.
            Effect::None | Effect::Off => {}
            // From here on it may be accepted.
            Effect::Stop(target) => {
                if let Some(target) = self.vms.get_mut(target) {
                    target.due = None;
                }
            }
            Effect::On {
                vcpu: target,
                entry,
                context,
            } => self.vms[vm].wanted.push(Wanted {
                vcpu: target,
                entry,
                context,
                caller: vcpu,
            }),
            // The VM's other vCPUs may execute until they are stopped.
            Effect::End => {
                self.vms[vm].silent = Some(now + BOUND_NS);
                self.vms[vm].has_ended = true;
            }
            Effect::Restart => {
                self.vms[vm].reasons += 1;
                self.vms[vm].silent = Some(now + BOUND_NS);
            }
            Effect::Start(target) => {
                if let Some(target) = self.vms.get_mut(target) {
                    target.reasons += 1;
                    target.silent = None;
                    target.revivals += 1;
                    target.ordering.push((vm, vcpu));
                }
            }
        }
    }

    /// Follows a call's return with a status, x0. `rebirth` is the time in nanoseconds for which the
    /// budgets of a VM hold its first core while they pay for its start.
    ///
    /// # Errors
    ///
    /// A call returned that does not return.
    pub fn returns(
        &mut self,
        rebirth: impl Fn(usize) -> u64,
        vm: usize,
        vcpu: usize,
        (request, status): (Request, i64),
        now: u64,
    ) -> Checked {
        let is_done = status == 0;
        if let Effect::Start(target) = effect(request)
            && let Some(target) = self.vms.get_mut(target)
        {
            target.ordering.retain(|caller| *caller != (vm, vcpu));
            // To one that runs it changes nothing.
            target.is_ordered |= is_done && target.has_ended;
        }
        match effect(request) {
            Effect::Off | Effect::End | Effect::Restart if status >= 0 => {
                return Err(Difference::new(
                    Rule::NoReturn,
                    format!("VM {vm} vCPU {vcpu}, call {:#x}", request.function),
                    "no return, or an error",
                    status.to_string(),
                ));
            }
            // Another vCPU restarts the VM already.
            Effect::End => self.vms[vm].has_ended = false,
            // Refused: another vCPU ends or restarts the VM already.
            Effect::On { vcpu: target, .. } if !is_done => {
                let wanted = &mut self.vms[vm].wanted;
                let refused = |one: &Wanted| one.caller == vcpu && one.vcpu == target;
                if let Some(at) = wanted.iter().rposition(refused) {
                    wanted.remove(at);
                }
            }
            Effect::Stop(target) if is_done && target < self.vms.len() && target != vm => {
                self.vms[target].silent = Some(now + BOUND_NS);
                self.vms[target].has_ended = true;
            }
            // One that runs may end by itself meanwhile, and the console may stop one again.
            Effect::Start(target) if is_done && target < self.vms.len() => {
                let due = now.saturating_add(BOUND_NS + rebirth(target));
                let state = &mut self.vms[target];
                if state.has_ended && !state.by_console && state.due.is_none() {
                    state.due = Some(due);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows a vCPU that continues after a visit, without having started in it.
    ///
    /// # Errors
    ///
    /// It is off, or its VM should have stopped.
    pub fn continues(&mut self, vm: usize, vcpu: usize, now: u64) -> Checked {
        let state = &self.vms[vm];
        if !state.on[vcpu] {
            return Err(Difference::new(
                Rule::Off,
                format!("VM {vm} vCPU {vcpu}"),
                "no instruction: it is off",
                "it continues",
            ));
        }
        if state.silent.is_some_and(|end| now > end) {
            return Err(Difference::new(
                Rule::Order,
                format!("VM {vm} vCPU {vcpu}"),
                "no instruction: the VM was to stop 100 ms ago",
                "it continues",
            ));
        }
        Ok(())
    }

    /// Checks that each VM has started that was to start by now.
    ///
    /// # Errors
    ///
    /// The first one that has not.
    pub fn check_due(&self, now: u64) -> Checked {
        let is_late = |state: &State| state.due.is_some_and(|due| due < now);
        let Some(vm) = self.vms.iter().position(is_late) else {
            return Ok(());
        };
        Err(Difference::new(
            Rule::Begins,
            format!("VM {vm}"),
            "its first instruction: an order to start it was accepted long ago",
            "none",
        ))
    }

    /// A VM may be ordered by a call that the observer does not see in full, or its budgets may pay
    /// for a start for longer: nothing is known of when it starts. `starts` says that it may.
    pub fn may_change(&mut self, vm: usize, starts: bool) {
        if let Some(state) = self.vms.get_mut(vm) {
            state.due = None;
            if starts {
                state.reasons += 1;
                state.silent = None;
                state.has_ended = false;
                state.revivals += 1;
                state.is_ordered = true;
            }
        }
    }

    /// Returns the number of a VM's starts, and of orders that may have started it.
    pub fn revivals(&self, vm: usize) -> u64 {
        self.vms.get(vm).map_or(0, |state| state.revivals)
    }

    /// Follows a report of the hypervisor that a VM has ended (docs/calls.md, `VmRead`), in a call
    /// before which it had so many `revivals`.
    pub fn reported_end(&mut self, vm: usize, revivals: u64) {
        if let Some(state) = self.vms.get_mut(vm)
            && state.revivals == revivals
        {
            state.has_ended = true;
        }
    }

    /// Returns whether a VM has ended, and no order may have been accepted that starts it again.
    pub fn has_ended(&self, vm: usize) -> bool {
        let known = self.vms.get(vm);
        known.is_some_and(|state| state.has_ended && state.ordering.is_empty() && !state.is_ordered)
    }

    /// Follows a vCPU that turned off: its CPU_OFF did not return.
    pub fn turned_off(&mut self, vm: usize, vcpu: usize) {
        self.vms[vm].on[vcpu] = false;
    }

    /// Follows a vCPU that starts at an address with x0, and returns with what it must start.
    ///
    /// # Errors
    ///
    /// There is no reason for it to start.
    pub fn starts(
        &mut self,
        system: &System,
        (vm, vcpu): (usize, usize),
        pc: u64,
        x0: u64,
    ) -> Result<First, Difference> {
        let config = &system.vms[vm];
        // A call of its former life does not return.
        for state in &mut self.vms {
            state.ordering.retain(|caller| *caller != (vm, vcpu));
        }
        let state = &mut self.vms[vm];
        let fits = |one: &Wanted| one.vcpu == vcpu && one.entry == pc && one.context == x0;
        // A request of CPU_ON first, because a VM's first vCPU may be turned on again too.
        if let Some(at) = state.wanted.iter().position(fits) {
            let Wanted { entry, context, .. } = state.wanted.remove(at);
            state.on[vcpu] = true;
            return Ok(First {
                pc: entry,
                arguments: [Some(context), Some(0), Some(0), Some(0)],
            });
        }
        if vcpu == 0 && (state.reasons > 0 || state.at_will || state.by_console) {
            state.reasons = state.reasons.saturating_sub(1);
            // The VM's former life is over: its other vCPUs are off until they are asked for again.
            state.on.fill(false);
            state.on[0] = true;
            state.wanted.clear();
            state.silent = None;
            state.has_ended = false;
            state.due = None;
            state.revivals += 1;
            state.is_ordered = false;
            return Ok(First {
                pc: config.image.entry.0,
                arguments: arguments(config),
            });
        }
        let wanted: Vec<String> = state
            .wanted
            .iter()
            .map(|one| {
                format!(
                    "vCPU {} at {:#x} with {:#x}",
                    one.vcpu, one.entry, one.context
                )
            })
            .collect();
        Err(Difference::new(
            Rule::StartWhy,
            format!("VM {vm} vCPU {vcpu}"),
            format!("a reason to start; asked for: [{}]", wanted.join(", ")),
            format!("it starts at {pc:#x} with {x0:#x}"),
        ))
    }
}

/// Returns x0 to x3 of a VM's first vCPU; a campaign varies one of them.
fn arguments(vm: &Vm) -> [Option<u64>; 4] {
    let mut all = vm.args.map(Some);
    let varied = vm.campaign.as_ref().and_then(|campaign| campaign.vary);
    if let Some(argument) = varied.and_then(|at| all.get_mut(usize::from(at))) {
        *argument = None;
    }
    all
}

/// Checks the status of a call that the configuration may not grant (docs/calls.md).
///
/// # Errors
///
/// The call succeeded.
pub fn check_grant(system: &System, vm: usize, request: Request, status: i64) -> Checked {
    let Some(call) = Call::from_id(request.function) else {
        return Ok(());
    };
    let config = &system.vms[vm];
    let named = |vms: u8| {
        let target = request.arguments[0];
        target < 8 && vms >> target & 1 == 1
    };
    // Not the reverse: a call that is granted may still fail, by its arguments.
    let is_granted = call.is_granted(config.services)
        && match call {
            Call::VmOrder => named(config.manages),
            Call::BudgetSet => named(config.regulates),
            Call::DoorbellRing | Call::Peer => is_peer(system, vm, request.arguments[0]),
            _ => true,
        };
    // Identify returns a version.
    if is_granted || status < 0 {
        return Ok(());
    }
    let arguments = request.arguments.map(|argument| format!("{argument:#x}"));
    Err(Difference::new(
        Rule::Grant,
        format!(
            "VM {vm}, call {:#x} of {}",
            call as u32,
            arguments.join(", ")
        ),
        "an error: it is not granted",
        status.to_string(),
    ))
}

/// Returns whether a VM has a channel with this one, which is another.
fn is_peer(system: &System, vm: usize, other: u64) -> bool {
    let has = |channel: &Channel, vm: u64| {
        let mut members = channel.members.iter();
        members.any(|member| u64::from(member.vm.0) == vm)
    };
    let mut channels = system.channels.iter();
    other != vm as u64 && channels.any(|all| has(all, vm as u64) && has(all, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use cloison_formats::ids::VmId;

    const ENTRY: u64 = 0x4000_0080;

    fn request(function: u32, arguments: [u64; 3]) -> Request {
        Request {
            function,
            arguments,
        }
    }

    fn rule<T>(result: Result<T, Difference>) -> Option<Rule> {
        result.err().map(|difference| difference.rule)
    }

    #[test]
    fn a_vm_starts_once_and_again_after_a_reset() {
        let system = fixture::system();
        let mut power = Power::of(&system);
        assert_eq!(rule(power.continues(0, 0, 0)), Some(Rule::Off));
        let first = power.starts(&system, (0, 0), ENTRY, 7).unwrap();
        assert_eq!((first.pc, first.arguments[3]), (ENTRY, Some(10)));
        assert_eq!(power.continues(0, 0, 0), Ok(()));
        assert_eq!(
            rule(power.starts(&system, (0, 0), ENTRY, 7)),
            Some(Rule::StartWhy)
        );
        power.call(0, 0, request(psci::SYSTEM_RESET, [0; 3]), 0);
        assert!(power.starts(&system, (0, 0), ENTRY, 7).is_ok());
    }

    #[test]
    fn a_second_vcpu_starts_as_asked_and_only_then() {
        let system = fixture::system();
        let mut power = Power::of(&system);
        power.starts(&system, (0, 0), ENTRY, 7).unwrap();
        assert_eq!(
            rule(power.starts(&system, (0, 1), 0x4000_1000, 5)),
            Some(Rule::StartWhy)
        );
        let on = request(psci::CPU_ON_64, [1, 0x4000_1000, 5]);
        power.call(0, 0, on, 0);
        assert_eq!(
            rule(power.clone().starts(&system, (0, 1), 0x4000_1000, 6)),
            Some(Rule::StartWhy)
        );
        assert!(power.starts(&system, (0, 1), 0x4000_1000, 5).is_ok());
        power.turned_off(0, 1);
        assert_eq!(rule(power.continues(0, 1, 0)), Some(Rule::Off));
        power.call(0, 0, on, 0);
        power
            .returns(|_| 0, 0, 0, (on, psci::ALREADY_ON), 0)
            .unwrap();
        assert_eq!(
            rule(power.starts(&system, (0, 1), 0x4000_1000, 5)),
            Some(Rule::StartWhy)
        );
    }

    #[test]
    fn a_restart_ends_the_other_vcpus() {
        let system = fixture::system();
        let mut power = Power::of(&system);
        power.starts(&system, (0, 0), ENTRY, 7).unwrap();
        power.call(0, 0, request(psci::CPU_ON_64, [1, 0x4000_1000, 5]), 0);
        power.starts(&system, (0, 1), 0x4000_1000, 5).unwrap();
        power.call(0, 1, request(psci::SYSTEM_RESET, [0; 3]), 0);
        power.starts(&system, (0, 0), ENTRY, 7).unwrap();
        assert_eq!(rule(power.continues(0, 1, 0)), Some(Rule::Off));
    }

    #[test]
    fn calls_that_do_not_return_do_not() {
        let system = fixture::system();
        let mut power = Power::of(&system);
        for function in [psci::CPU_OFF, psci::SYSTEM_OFF, psci::SYSTEM_RESET] {
            let request = request(function, [0; 3]);
            assert_eq!(
                rule(power.returns(|_| 0, 0, 0, (request, 0), 0)),
                Some(Rule::NoReturn)
            );
            assert_eq!(power.returns(|_| 0, 0, 0, (request, -3), 0), Ok(()));
        }
    }

    #[test]
    fn an_order_is_carried_out_in_time() {
        let mut system = fixture::system();
        system.vms.push(system.vms[0].clone());
        let mut power = Power::of(&system);
        power.starts(&system, (1, 0), ENTRY, 7).unwrap();
        let stop = request(Call::VmOrder as u32, [1, 0, 0]);
        power.returns(|_| 0, 0, 0, (stop, 0), 1000).unwrap();
        assert_eq!(power.continues(1, 0, 1000 + BOUND_NS), Ok(()));
        assert_eq!(
            rule(power.continues(1, 0, 1001 + BOUND_NS)),
            Some(Rule::Order)
        );
        power.call(0, 0, request(Call::VmOrder as u32, [1, 1, 0]), 0);
        assert_eq!(power.continues(1, 0, 1001 + BOUND_NS), Ok(()));
    }

    #[test]
    fn an_order_to_start_what_has_ended_starts_it() {
        let mut system = fixture::system();
        system.vms.push(system.vms[0].clone());
        let mut power = Power::of(&system);
        power.starts(&system, (1, 0), ENTRY, 7).unwrap();
        let order = |change| request(Call::VmOrder as u32, [1, change, 0]);
        let accepted = |power: &mut Power, change, now| {
            power.call(0, 0, order(change), now);
            power
                .returns(|_| 500, 0, 0, (order(change), 0), now)
                .unwrap();
        };
        // It runs: the order changes nothing.
        accepted(&mut power, 1, 0);
        assert_eq!(power.check_due(u64::MAX), Ok(()));
        power.call(1, 0, request(psci::SYSTEM_OFF, [0; 3]), 10);
        assert!(power.has_ended(1) && !power.has_ended(0));
        accepted(&mut power, 2, 1000);
        assert!(!power.has_ended(1));
        assert_eq!(power.check_due(1500 + BOUND_NS), Ok(()));
        assert_eq!(rule(power.check_due(1501 + BOUND_NS)), Some(Rule::Begins));
        let mut other = power.clone();
        other.starts(&system, (1, 0), ENTRY, 7).unwrap();
        assert_eq!(other.check_due(u64::MAX), Ok(()));
        other = power.clone();
        other.may_change(1, false);
        assert_eq!(other.check_due(u64::MAX), Ok(()));
        // An order to stop it may have come first.
        power.call(0, 0, order(0), 2000);
        assert_eq!(power.check_due(u64::MAX), Ok(()));
        // Or the console's, which is not seen.
        system.console_manages = 1 << 1;
        let mut power = Power::of(&system);
        power.call(1, 0, request(psci::SYSTEM_OFF, [0; 3]), 10);
        accepted(&mut power, 2, 1000);
        assert_eq!(power.check_due(u64::MAX), Ok(()));
    }

    #[test]
    fn a_report_that_a_vm_has_ended_counts_unless_it_may_have_started_since() {
        let system = fixture::system();
        let mut power = Power::of(&system);
        power.starts(&system, (0, 0), ENTRY, 7).unwrap();
        power.reported_end(0, 0);
        assert!(!power.has_ended(0), "it has started since");
        let revivals = power.revivals(0);
        power.reported_end(0, revivals);
        assert!(power.has_ended(0));
        power.reported_end(9, 0);
        // Another VM's order may have been accepted already.
        let order = request(Call::VmOrder as u32, [0, 1, 0]);
        power.call(0, 1, order, 0);
        assert!(!power.has_ended(0));
        power.returns(|_| 0, 0, 1, (order, -5), 0).unwrap();
        assert!(power.has_ended(0));
        power.call(0, 1, order, 0);
        power.returns(|_| 0, 0, 1, (order, 0), 0).unwrap();
        assert!(!power.has_ended(0));
    }

    #[test]
    fn what_is_not_granted_fails() {
        let mut system = fixture::system();
        let order = request(Call::VmOrder as u32, [1, 0, 0]);
        assert_eq!(rule(check_grant(&system, 0, order, 0)), Some(Rule::Grant));
        assert_eq!(check_grant(&system, 0, order, -2), Ok(()));
        system.vms[0].services = cloison_abi::services::MANAGE;
        assert_eq!(rule(check_grant(&system, 0, order, 0)), Some(Rule::Grant));
        system.vms[0].manages = 2;
        assert_eq!(check_grant(&system, 0, order, 0), Ok(()));
        assert_eq!(
            check_grant(&system, 0, request(Call::Time as u32, [0; 3]), 0),
            Ok(())
        );
    }

    #[test]
    fn a_channel_is_the_permission_to_call_its_other_vms() {
        let mut system = fixture::connected();
        for call in [Call::DoorbellRing, Call::Peer] {
            let check = |system: &System, peer| {
                rule(check_grant(
                    system,
                    0,
                    request(call as u32, [peer, 0, 0]),
                    0,
                ))
            };
            assert_eq!(check(&system, 1), None);
            for other in [0, 2, 1 << 32 | 1] {
                assert_eq!(check(&system, other), Some(Rule::Grant), "{other}");
            }
            system.channels[0].members[1].vm = VmId(3);
            assert_eq!(check(&system, 1), Some(Rule::Grant));
            system.channels[0].members[1].vm = VmId(1);
        }
    }
}
