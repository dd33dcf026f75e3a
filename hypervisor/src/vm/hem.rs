//! Observation segments: counts of the VM's HEMs between two calls of the guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::vm::cpu::{Cpu, Guest};
use crate::vm::partition::Vm;
use crate::vm::telemetry;
use cloison_abi::{CallError, reply};
use cloison_formats::ids::VcpuIndex;
use cloison_formats::telemetry::{HemRecord, Record};
use cloison_formats::units::{Cycles, EventId};
use cloison_logic::quota::Counters;
use cloison_logic::segment::{Names, Open, selected};
use cloison_logic::vpmu::PhysicalPmu;
use core::sync::atomic::Ordering::Relaxed;

/// Returns what is counted now, and in a campaign with which numbers.
///
/// The run's number is the VM's and changes only between its lives, so that `begin` and `end` of a
/// segment see the same events.
fn events(vm: &Vm) -> (&[EventId], Option<(u32, u32)>) {
    selected(vm.spec, vm.runs.load(Relaxed))
}

/// Starts a segment with the VM's HEMs and the cycle counter at zero.
///
/// Fails with [`CallError::Sequence`] if a segment is open.
pub fn begin(guest: Guest, names: Names) -> Result<(), CallError> {
    let mut segment = guest.segment.borrow_mut();
    // One segment at a time for each vCPU: the counters are not saved.
    if segment.open.is_some() {
        return Err(CallError::Sequence);
    }
    // Quotas have the upper counters, a guest's own counters the lowest, and segments what is
    // between.
    let free = pmu::counters().saturating_sub(guest.quotas.borrow().reserved());
    let (events, campaign) = events(guest.vm);
    let shares = guest.vm.spec.has_counters();
    // A guest that counts by itself has the counters from 0 on.
    let first = if shares {
        guest.vpmu.borrow().counters
    } else {
        0
    };
    let open = Open::new(names.within(campaign), events, first..free, shares);
    for (hem, &event) in (0..open.hems).zip(events) {
        // Sets the value to zero too; no counter of the segment counts yet.
        pmu::configure(open.counter(hem), event);
    }
    // A guest that counts by itself has the cycle counter; the segment then counts cycles in an
    // event counter.
    match open.cycles() {
        Some(counter) => pmu::configure(counter, EventId::CPU_CYCLES),
        None => Pmu.set_cycles(0),
    }
    // Flags of an earlier use would count as overflows in this segment.
    pmu::take_overflows(open.mask());
    // All at once, and last: the counts have the same beginning.
    Pmu.enable(open.mask(), 0);
    segment.open = Some(open);
    Ok(())
}

/// Ends the segment and logs its record.
///
/// Fails with [`CallError::Sequence`] if no segment is open.
pub fn end(guest: Guest) -> Result<reply::SegmentEnd, CallError> {
    let mut segment = guest.segment.borrow_mut();
    let open = segment.open.take().ok_or(CallError::Sequence)?;
    // First, so that the counts do not differ by what EL2 reads in between. EL2's own work is in
    // none of them: counters count at EL1 and EL0.
    pmu::stop(open.mask());
    let cycles = Cycles(
        open.cycles()
            .map_or_else(|| Pmu.cycles(), |counter| Pmu.get(counter).into()),
    );
    let overflowed = open.overflowed(pmu::take_overflows(open.mask()));
    let counted = (0..open.hems).zip(events(guest.vm).0);
    let record = open.names.record(
        (guest.vm.id, VcpuIndex(guest.vcpu as u8)),
        cycles,
        overflowed,
        counted.map(|(hem, &event)| (event, Pmu.get(open.counter(hem)))),
    );
    segment.last = Some(record);
    // Kept as the last one as well: HemRead needs no log.
    telemetry::record(&guest, Record::Hem(record));
    Ok(reply::SegmentEnd { cycles: cycles.0 })
}

/// Returns one HEM's count in the running segment, or else in the last one.
///
/// While the segment is open, the count changes; no flag is cleared. Fails with
/// [`CallError::Absent`] for an event that the segment does not have.
pub fn read(guest: Guest, index: u64) -> Result<reply::Hem, CallError> {
    let segment = guest.segment.borrow();
    // Between segments the last record is returned, which is complete and does not change.
    let Some(open) = &segment.open else {
        let last = segment.last.as_ref().ok_or(CallError::Sequence)?;
        if index >= last.len.into() {
            return Err(CallError::Absent);
        }
        let at = index as usize;
        return Ok(reply::Hem {
            count: last.counts[at],
            overflowed: last.overflowed >> at & 1 == 1,
            event: last.events[at],
        });
    };
    let mut events = events(guest.vm).0.iter().take(open.hems as usize);
    let event = *events.nth(index as usize).ok_or(CallError::Absent)?;
    let counter = open.counter(index as u32);
    Ok(reply::Hem {
        count: Pmu.get(counter),
        overflowed: Pmu.overflows() >> counter & 1 == 1,
        event,
    })
}

/// Logs what the guest has counted itself.
pub fn record_of_guest(guest: Guest, names: Names) {
    // At most as many as a record holds.
    let counting = guest.vpmu.borrow().counting();
    // The flags are the guest's: they are read, not cleared.
    let flags = Pmu.overflows();
    let overflowed = (0..).zip(&counting).fold(0, |bits, (hem, (counter, _))| {
        bits | (flags >> counter & 1) << hem
    });
    let record = names.within(events(guest.vm).1).record(
        (guest.vm.id, VcpuIndex(guest.vcpu as u8)),
        Cycles(Pmu.cycles()),
        overflowed as u8,
        counting
            .into_iter()
            .map(|(counter, event)| (event, Pmu.get(counter))),
    );
    telemetry::record(
        &guest,
        Record::Hem(HemRecord {
            by_guest: true,
            ..record
        }),
    );
}

/// Discards an open segment without a record, because the vCPU starts or stops.
pub fn reset(cpu: &Cpu) {
    let mut segment = cpu.segment.borrow_mut();
    // A new life reads no counts of the one before.
    segment.last = None;
    if let Some(open) = segment.open.take() {
        pmu::stop(open.mask());
    }
}
