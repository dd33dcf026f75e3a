//! Cloison's own calls (`cloison_abi::Call`), granted per VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{power, timer};
use crate::exits::psci;
use crate::machine::stage2::Cacheability;
use crate::vm::cpu::{Guest, Visit};
use crate::vm::migrate::{self, Work};
use crate::vm::partition::{self, Vm};
use crate::vm::{doorbell, hem, life, link, logger, quota, vpmu};
use cloison_abi::reply::{Change, Identity, Lease, Moved, Peer, Time, VmInfo};
use cloison_abi::{ABI_VERSION, Call, CallError, page};
use cloison_formats::addr::Ipa;
use cloison_formats::telemetry::ExitReason;
use cloison_formats::units::Events;
use cloison_logic::eemi::{self, Passed};
use cloison_logic::limit::Topic;
use cloison_logic::quota::Effort;
use cloison_logic::segment::Names;
use cloison_logic::services_page::Request;
use log::Level;

/// SMC Calling Convention: "unknown function".
const UNKNOWN: u64 = -1i64 as u64;

/// What a call of the firmware costs, in calls of EL2's own.
const FIRMWARE_CALLS: u64 = 10;

/// `x0` to `x3` of a call: its function in `w0` and its arguments, then its results.
pub type Registers = [u64; 4];

/// Handles an HVC. The vectors call it themselves, with `x0` to `x3`: it changes no other register of
/// the guest, so that they need not store all of them.
pub extern "C" fn hvc(registers: &mut Registers) {
    let visit = Visit::begin();
    visit.count_exit(ExitReason::Hypercall);
    dispatch(visit, registers);
}

/// Handles an HVC or SMC.
///
/// After an HVC, ELR_EL2 is the next instruction already: nothing is skipped here.
#[inline(always)]
pub fn dispatch(visit: Visit, registers: &mut Registers) {
    // SMC Calling Convention (Arm DEN 0028): the function is in w0, whatever the upper half of x0
    // holds. Results are in x0 to x3, and x4 to x17 keep their values.
    let function = registers[0] as u32;
    if function == cloison_abi::psci::VERSION {
        registers[0] = psci::VERSION as u64;
    } else if !short(visit, function, registers) {
        other(visit, function, registers);
    }
}

/// Handles the calls that take longer ways. It is not inlined, so that the others store nothing.
#[inline(never)]
fn other(visit: Visit, function: u32, registers: &mut Registers) {
    // PSCI needs no service: each VM may turn its own vCPUs on and off. Only `x0` is a result; calls
    // that stop the vCPU do not return.
    let [_, x1, x2, x3] = *registers;
    match psci::call(visit, function, [x1, x2, x3]) {
        Some(result) => registers[0] = result as u64,
        None => *registers = vendor(visit, function, *registers),
    }
}

/// Handles the calls that take the shortest ways. Returns whether it is one. No service grants them.
#[inline(always)]
fn short(visit: Visit, function: u32, registers: &mut Registers) -> bool {
    if function == Call::Identify as u32 {
        // Not charged to a budget.
        *registers = identify(*visit).into();
    } else if function == Call::DoorbellRing as u32 {
        ring(visit, registers);
    } else if function == Call::DoorbellTake as u32 {
        take(visit, registers);
    } else {
        return false;
    }
    true
}

/// Sets a bit of a peer's doorbell, for which the peer's guest waits.
#[inline(never)]
fn ring(visit: Visit, registers: &mut Registers) {
    let [_, vm, bit, life] = *registers;
    let result = peer(*visit, vm).and_then(|peer| doorbell::ring(*visit, peer, bit, life));
    match result {
        Ok(()) => *registers = [0; 4],
        // The arguments stay.
        Err(error) => registers[0] = error as i64 as u64,
    }
    // Also for the interrupt that the peer takes.
    charge(visit, Effort::CALL.times(2));
}

/// Takes bits of the VM's own doorbell.
#[inline(never)]
fn take(visit: Visit, registers: &mut Registers) {
    let [x1, x2, x3] = doorbell::take(*visit, registers[1]).into();
    *registers = [0, x1, x2, x3];
    charge(visit, Effort::CALL);
}

/// Charges the core for a call, which may have spent a budget.
#[inline(always)]
fn charge(visit: Visit, effort: Effort) {
    if quota::owe(*visit, effort) {
        return pay(visit);
    }
    life::hold(visit);
}

/// Charges the core for its calls.
#[cold]
fn pay(visit: Visit) {
    quota::pay(*visit);
    life::hold(visit);
}

/// Returns what a guest is told of itself. All of it is constant while the machine runs.
fn identify(guest: Guest) -> Identity {
    Identity {
        version: ABI_VERSION,
        services: guest.vm.spec.services,
        vm: guest.vm.id.0.into(),
        vcpu: guest.vcpu as u64,
    }
}

/// Executes one of Cloison's calls that are not [`short`], by HVC or through the services page.
/// Returns `x0` to `x3`.
///
/// May wait: a list of pages pauses between batches, and a spent budget holds the core before the
/// results are returned.
#[inline(never)]
fn vendor(visit: Visit, function: u32, [_, x1, x2, x3]: Registers) -> Registers {
    let arguments = [x1, x2, x3];
    match Call::from_id(function) {
        // An unknown function costs its caller no budget: it has done nothing.
        None => firmware(visit, function, arguments),
        Some(call) => {
            // Work on pages pauses between batches: this core may be held there, or told to stop.
            let work = Work::new(visit);
            let result = match call {
                // The only check of the grant: no call reaches its handler without it.
                _ if !call.is_granted(visit.vm.spec.services) => Err((CallError::Denied, x1)),
                Call::MovePages | Call::ReturnPages | Call::CachePages => {
                    let moved = work.listed(call, arguments);
                    let moved = moved.map(|pages| Moved { pages }.into());
                    moved.map_err(|wrong| (wrong.error, wrong.entry))
                }
                _ => serve(*visit, &work, call, arguments).map_err(|error| (error, x1)),
            };
            // The caller pays for the call, besides what its handler has charged for pages.
            let effort = match call {
                Call::SegmentEnd | Call::CounterRecord => Effort::RECORD,
                _ => Effort::CALL,
            };
            // An error is paid for like a success: a guest could otherwise call for nothing.
            charge(visit, effort);
            match result {
                // An error leaves x1 as it was, except for lists, where x1 is the index of the
                // wrong entry.
                Ok([x1, x2, x3]) => [0, x1, x2, x3],
                Err((error, x1)) => [error as i64 as u64, x1, x2, x3],
            }
        }
    }
}

/// Passes a call on to the board's firmware if it is about what the VM has. Any other function is
/// unknown.
#[cold]
fn firmware(visit: Visit, function: u32, arguments: [u64; 3]) -> [u64; 4] {
    let [x1, x2, x3] = arguments;
    let vm = visit.vm;
    let unknown = [UNKNOWN, x1, x2, x3];
    if !eemi::is_call(function) {
        return unknown;
    }
    let access = vm.spec.firmware.as_ref();
    let Some(call) = access.and_then(|access| Passed::of(access, function, arguments)) else {
        let what = format_args!(" may not make call {function:#x} of the firmware with {x1:#x}");
        logger::about(vm, Level::Warn, Topic::Act, what);
        return unknown;
    };
    // The PMU counts no work at EL3.
    quota::charge(*visit, Effort::CALL.times(FIRMWARE_CALLS));
    life::hold(visit);
    power::ask(call)
}

/// Reads a register of the services page.
pub fn page_read(guest: Guest, offset: u16) -> u64 {
    if offset == page::DOORBELL {
        return guest.vm.doorbell.waiting();
    }
    guest.vm.mailbox.lock().read(offset, identify(guest))
}

/// Writes a register of the services page, and makes the call if it is the call register. The lock
/// is not held meanwhile, so another vCPU that reads does not wait for a migration.
pub fn page_write(visit: Visit, offset: u16, value: u64) {
    let mailbox = &visit.vm.mailbox;
    let request = mailbox.lock().write(offset, value);
    if let Some(Request {
        function,
        arguments: [x1, x2, x3],
    }) = request
    {
        let mut registers = [function.into(), x1, x2, x3];
        if !short(visit, function, &mut registers) {
            registers = vendor(visit, function, registers);
        }
        mailbox.lock().answer(registers);
    }
}

/// Returns the numbers by which a guest identifies a segment.
fn names(arguments: [u64; 3]) -> Result<Names, CallError> {
    let [workload, sub_experiment, run] = arguments.map(u32::try_from);
    // Numbers of 32 bits in registers of 64: what does not fit is refused, not truncated.
    let invalid = |_| CallError::Invalid;
    Ok(Names {
        workload: workload.map_err(invalid)?,
        sub_experiment: sub_experiment.map_err(invalid)?,
        run: run.map_err(invalid)?,
    })
}

/// Returns the VM with this number.
///
/// The number is the guest's: any value may come.
fn numbered(guest: Guest, vm: u64) -> Result<&'static Vm, CallError> {
    guest.vms.get(vm as usize).ok_or(CallError::Absent)
}

/// Checks that a mask of VMs has the one with this number, which exists.
///
/// Masks have eight bits, as there are at most eight VMs.
fn permit(granted: u8, vm: u64) -> Result<(), CallError> {
    match granted >> (vm & 7) & 1 {
        1 => Ok(()),
        _ => Err(CallError::Denied),
    }
}

/// Returns a VM with which the caller has a channel, by its configuration.
fn peer(guest: Guest, vm: u64) -> Result<&'static Vm, CallError> {
    let other = numbered(guest, vm)?;
    permit(guest.vm.peers, vm)?;
    Ok(other)
}

/// Executes a call that is granted, except those with lists of pages. Returns `x1` to `x3`. Each
/// handler checks its arguments: they are a guest's.
fn serve(
    guest: Guest,
    work: &Work,
    call: Call,
    arguments: [u64; 3],
) -> Result<[u64; 3], CallError> {
    let Guest { cpu, vm } = guest;
    let [x1, x2, x3] = arguments;
    let nothing = |()| [0; 3];
    let moved = |pages: u64| Moved { pages }.into();
    // The VM whose budgets the caller may set, by its configuration.
    let regulated = || {
        let other = numbered(guest, x1)?;
        permit(vm.spec.regulates, x1)?;
        Ok(other)
    };
    match call {
        Call::Time => Ok(Time {
            nanos: cpu.clock.since_reset(timer::now()).0,
        }
        .into()),
        Call::Region => partition::region(vm, x1).map(Into::into),
        Call::PageState => migrate::page_state(vm, Ipa(x1)).map(Into::into),
        Call::Peer => Ok(Peer {
            life: peer(guest, x1)?.doorbell.life(),
        }
        .into()),
        Call::Channel => doorbell::channel(vm, x1).map(Into::into),
        Call::Link => link::info(vm, x1).map(Into::into),
        Call::LinkTraffic => link::traffic(vm, x1, x2).map(Into::into),
        Call::SegmentBegin => hem::begin(guest, names(arguments)?).map(nothing),
        Call::SegmentEnd => hem::end(guest).map(Into::into),
        Call::HemRead => hem::read(guest, x1).map(Into::into),
        Call::Migrate => work.top(x1).map(moved),
        Call::Restore => work.restore_all().map(moved),
        Call::MigratePage => work.one(Ipa(x1)).map(|()| moved(1)),
        Call::PrivatePool => migrate::private_pool(vm).map(Into::into),
        Call::Lease => work.lease(x1, x2).map(|number| Lease { number }.into()),
        Call::SetCacheability => {
            // 0 is non-cacheable, 1 cacheable; any other number is an error.
            let wanted = Cacheability::ALL.get(x3 as usize);
            let wanted = wanted.ok_or(CallError::Invalid)?;
            work.set_cacheability(Ipa(x1), x2, *wanted).map(nothing)
        }
        Call::QuotaRead => quota::read(cpu, x1).map(Into::into),
        Call::QuotaSet => quota::set(cpu, x1, Events(x2)).map(nothing),
        Call::QuotaTerms => quota::terms(cpu, x1).map(Into::into),
        Call::VmRead => {
            let other = numbered(guest, x1)?;
            // The service reads any VM; the flag tells which ones the caller may order.
            let managed = permit(vm.spec.manages, x1).is_ok();
            Ok(VmInfo::new(&other.spec.name, other.power.life(), managed).into())
        }
        Call::VmOrder => {
            let other = numbered(guest, x1)?;
            let change = Change::try_from(x2).map_err(|_| CallError::Invalid)?;
            permit(vm.spec.manages, x1)?;
            // The other VM's first core carries the order out. The caller pays for it where that
            // core has no budget that can hold it.
            quota::charge(guest, other.order(change)?);
            Ok([0; 3])
        }
        Call::BudgetRead => quota::budget(regulated()?, x2).map(Into::into),
        Call::BudgetSet => quota::set_budget(regulated()?, x2, Events(x3)).map(nothing),
        Call::CounterRecord => {
            hem::record_of_guest(guest, names(arguments)?);
            Ok([0; 3])
        }
        // The calls of the counter service; those above are all others.
        _ => vpmu::serve(cpu, call, arguments),
    }
}
