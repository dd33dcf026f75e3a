//! Cloison's hypercalls with typed arguments and results.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::event::EventId;
use cloison_abi::reply::{
    Budget, Change, Channel, Counter, CounterMasks, Counters, Hem, Identity, Lease, Moved,
    PageState, Peer, PrivatePool, Quota, QuotaTerms, SegmentEnd, Taken, Time, VmInfo,
};
use cloison_abi::{Call, CallError};

/// Makes any hypercall: function identifier in `w0`, arguments in `x1`–`x6`, results in `x0`–`x3`.
///
/// # Safety
/// The function must not start code on another vCPU that breaks this program: PSCI CPU_ON needs a
/// valid entry point.
pub unsafe fn hvc(function: u32, args: [u64; 6]) -> [u64; 4] {
    let (x0, x1, x2, x3): (u64, u64, u64, u64);
    // SAFETY: by the calling convention only x0-x3 change. Memory may change (no `nomem`), by other
    // vCPUs or by a migration, which is invisible to the guest.
    unsafe {
        crate::asm!(
            "hvc #0",
            inlateout("x0") u64::from(function) => x0,
            inlateout("x1") args[0] => x1,
            inlateout("x2") args[1] => x2,
            inlateout("x3") args[2] => x3,
            in("x4") args[3],
            in("x5") args[4],
            in("x6") args[5],
            options(nostack),
        );
    }
    [x0, x1, x2, x3]
}

/// Makes one of Cloison's own calls, also one without a function here. Returns its reply, `x1`–`x3`,
/// on success.
pub fn call<T: From<[u64; 3]>>(call: Call, args: [u64; 3]) -> Result<T, CallError> {
    // SAFETY: none of Cloison's own calls starts code on a vCPU.
    let [x0, x1, x2, x3] = unsafe { hvc(call as u32, [args[0], args[1], args[2], 0, 0, 0]) };
    match x0 as i64 {
        0 => Ok([x1, x2, x3].into()),
        // An unknown code is still a failure.
        error => Err(CallError::try_from(error).unwrap_or(CallError::NotSupported)),
    }
}

/// Returns version, services, VM and vCPU.
pub fn identify() -> Result<Identity, CallError> {
    // The only call whose x0 is not a status: it is the version.
    // SAFETY: IDENTIFY only reads constants.
    let registers = unsafe { hvc(Call::Identify as u32, [0; 6]) };
    match CallError::try_from(registers[0] as i64) {
        Ok(error) => Err(error),
        Err(_) => Ok(registers.into()),
    }
}

/// Starts an observation segment on the calling vCPU.
pub fn segment_begin(workload: u32, sub_experiment: u32, run: u32) -> Result<(), CallError> {
    call::<[u64; 3]>(
        Call::SegmentBegin,
        [workload.into(), sub_experiment.into(), run.into()],
    )
    .map(drop)
}

/// Ends the observation segment and returns its cycles.
pub fn segment_end() -> Result<u64, CallError> {
    call(Call::SegmentEnd, [0; 3]).map(|SegmentEnd { cycles }| cycles)
}

/// Moves the `k` most important pages of the VM's profile to its PVT pool. Returns how many moved.
pub fn migrate(k: u64) -> Result<u64, CallError> {
    call(Call::Migrate, [k, 0, 0]).map(|Moved { pages }| pages)
}

/// Moves every migrated page back. Returns how many moved.
pub fn restore() -> Result<u64, CallError> {
    call(Call::Restore, [0; 3]).map(|Moved { pages }| pages)
}

/// Moves one page, identified by its first address, to the PVT pool.
pub fn migrate_page(ipa: u64) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::MigratePage, [ipa, 0, 0]).map(drop)
}

/// Returns the state of the pool to which the VM's pages can move.
pub fn private_pool() -> Result<PrivatePool, CallError> {
    call(Call::PrivatePool, [0; 3])
}

/// Makes a call with a list of pages. Returns how many changed.
///
/// # Errors
/// Also the index of the entry that is wrong, or [`NO_ENTRY`](cloison_abi::list::NO_ENTRY).
pub fn listed(made: Call, list: u64, count: u64, lease: u64) -> Result<u64, (CallError, u64)> {
    // SAFETY: none of Cloison's own calls starts code on a vCPU.
    let [x0, x1, ..] = unsafe { hvc(made as u32, [list, count, lease, 0, 0, 0]) };
    match x0 as i64 {
        0 => Ok(x1),
        error => Err((
            CallError::try_from(error).unwrap_or(CallError::NotSupported),
            x1,
        )),
    }
}

/// Returns the state of the page at an address of RAM.
pub fn page_state(ipa: u64) -> Result<PageState, CallError> {
    call(Call::PageState, [ipa, 0, 0])
}

/// Takes the VM's lease (0), renews it, or ends it (0 nanoseconds). Returns its number.
pub fn lease(number: u64, nanos: u64) -> Result<u64, CallError> {
    call(Call::Lease, [number, nanos, 0]).map(|Lease { number }| number)
}

/// Makes `pages` pages of RAM, starting at `ipa`, cacheable or non-cacheable.
pub fn set_cacheable(ipa: u64, pages: u64, cacheable: bool) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::SetCacheability, [ipa, pages, cacheable.into()]).map(drop)
}

/// Returns the state of a quota, by its position in the VM's configuration.
pub fn quota_read(index: u64) -> Result<Quota, CallError> {
    call(Call::QuotaRead, [index, 0, 0])
}

/// Returns the terms of a quota in its running period.
pub fn quota_terms(index: u64) -> Result<QuotaTerms, CallError> {
    call(Call::QuotaTerms, [index, 0, 0])
}

/// Returns the state and name of a VM, by its number.
pub fn vm_read(vm: u64) -> Result<VmInfo, CallError> {
    call(Call::VmRead, [vm, 0, 0])
}

/// Orders a VM to stop, start or restart, and returns before that is done.
pub fn vm_order(vm: u64, change: Change) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::VmOrder, [vm, change as u64, 0]).map(drop)
}

/// Returns the budget of another VM's quota, and its use.
pub fn budget_read(vm: u64, quota: u64) -> Result<Budget, CallError> {
    call(Call::BudgetRead, [vm, quota, 0])
}

/// Sets the budget of another VM's quota in events, from its next period on.
pub fn budget_set(vm: u64, quota: u64, events: u64) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::BudgetSet, [vm, quota, events]).map(drop)
}

/// Sets a quota's budget in events, from the next period on.
pub fn quota_set(index: u64, events: u64) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::QuotaSet, [index, events, 0]).map(drop)
}

/// Returns the count of one HEM in the running segment, or else in the last one.
pub fn hem_read(index: u64) -> Result<Hem, CallError> {
    call(Call::HemRead, [index, 0, 0])
}

/// Makes a call of the counter service with any arguments.
pub fn counter(made: Call, [x1, x2]: [u64; 2]) -> Result<[u64; 3], CallError> {
    call(made, [x1, x2, 0])
}

/// Returns the counters of the calling vCPU.
pub fn counters() -> Result<Counters, CallError> {
    call(Call::Counters, [0; 3])
}

/// Sets what a counter counts, at EL1 and EL0.
pub fn counter_event_set(counter: u32, event: EventId) -> Result<(), CallError> {
    let event = u64::from(event.0);
    call::<[u64; 3]>(Call::CounterEventSet, [counter.into(), event, 0]).map(drop)
}

/// Reads a counter.
pub fn counter_read(counter: u32) -> Result<Counter, CallError> {
    call(Call::CounterRead, [counter.into(), 0, 0])
}

/// Sets a counter's value, and clears its overflow flag.
pub fn counter_set(counter: u32, value: u64) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::CounterSet, [counter.into(), value, 0]).map(drop)
}

/// Enables these counters, a bit each, and disables all others.
pub fn counter_enable(mask: u32) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::CounterEnable, [mask.into(), 0, 0]).map(drop)
}

/// Inhibits these counters, and no others. A counter that is not inhibited counts if it is enabled.
pub fn counter_inhibit(mask: u32) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::CounterInhibit, [mask.into(), 0, 0]).map(drop)
}

/// Returns the counters by state, and clears the overflow flags of `clear`.
pub fn counter_masks(clear: u32) -> Result<CounterMasks, CallError> {
    call(Call::CounterMasks, [clear.into(), 0, 0])
}

/// Logs a HEM record of the enabled counters, marked as made by the guest.
pub fn counter_record(workload: u32, sub_experiment: u32, run: u32) -> Result<(), CallError> {
    call::<[u64; 3]>(
        Call::CounterRecord,
        [workload.into(), sub_experiment.into(), run.into()],
    )
    .map(drop)
}

/// Returns the nanoseconds since reset.
pub fn time() -> Result<u64, CallError> {
    call(Call::Time, [0; 3]).map(|Time { nanos }| nanos)
}

/// Sets a bit of the doorbell of a VM with which this one has a channel; `life` 0 is any.
pub fn doorbell_ring(vm: u64, bit: u64, life: u64) -> Result<(), CallError> {
    call::<[u64; 3]>(Call::DoorbellRing, [vm, bit, life]).map(drop)
}

/// Takes bits of the VM's own doorbell.
pub fn doorbell_take(mask: u64) -> Result<Taken, CallError> {
    call(Call::DoorbellTake, [mask, 0, 0])
}

/// Returns the life of a VM with which this one has a channel; odd while it runs.
pub fn peer(vm: u64) -> Result<u64, CallError> {
    call(Call::Peer, [vm, 0, 0]).map(|Peer { life }| life)
}

/// Returns a channel of the VM.
pub fn channel(index: u64) -> Result<Channel, CallError> {
    call(Call::Channel, [index, 0, 0])
}
