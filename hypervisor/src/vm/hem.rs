//! Observation segments: counts of the VM's HEMs between two calls of the guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::vm::cpu::Cpu;
use crate::vm::partition::Vm;
use crate::vm::telemetry;
use cloison_abi::{CallError, reply};
use cloison_formats::telemetry::{HemRecord, MAX_HEMS, Record};
use cloison_formats::units::{Cycles, EventId};
use cloison_logic::quota::Counters;
use cloison_logic::segment::{Names, Open, selected};
use cloison_logic::vpmu::PhysicalPmu;
use core::sync::atomic::Ordering;
use heapless::Vec;

/// Returns what is counted now, and in a campaign with which numbers.
fn events(vm: &Vm) -> (&[EventId], Option<(u32, u32)>) {
    selected(vm.spec, vm.runs.load(Ordering::Relaxed))
}

/// Starts a segment with the VM's HEMs and the cycle counter at zero.
pub fn begin(cpu: &Cpu, vm: &Vm, names: Names) -> Result<(), CallError> {
    let mut segment = cpu.segment.borrow_mut();
    if segment.open.is_some() {
        return Err(CallError::Sequence);
    }
    let free = pmu::counters().saturating_sub(cpu.quotas.borrow().reserved());
    let (events, campaign) = events(vm);
    let shares = vm.spec.has_counters();
    let first = if shares {
        cpu.vpmu.borrow().counters()
    } else {
        0
    };
    let open = Open::new(names, events, campaign, first..free, shares);
    for (hem, &event) in (0..open.hems()).zip(events) {
        pmu::configure(open.counter(hem), event);
    }
    match open.cycles() {
        Some(counter) => pmu::configure(counter, EventId::CPU_CYCLES),
        None => Pmu.set_cycles(0),
    }
    pmu::take_overflows(open.mask());
    Pmu.enable(open.mask(), 0);
    segment.open = Some(open);
    Ok(())
}

/// Ends the segment and logs its record.
pub fn end(cpu: &Cpu, vm: &Vm) -> Result<reply::SegmentEnd, CallError> {
    let mut segment = cpu.segment.borrow_mut();
    let open = segment.open.take().ok_or(CallError::Sequence)?;
    pmu::stop(open.mask());
    let cycles = Cycles(
        open.cycles()
            .map_or_else(|| Pmu.cycles(), |counter| Pmu.get(counter).into()),
    );
    let overflowed = open.overflowed(pmu::take_overflows(open.mask()));
    let record = open.record(
        (vm.id, cpu.vcpu as u8),
        cycles,
        overflowed,
        events(vm).0,
        |hem| Pmu.get(open.counter(hem)),
    );
    segment.last = Some(record);
    telemetry::record(cpu, Record::Hem(record));
    Ok(reply::SegmentEnd { cycles: cycles.0 })
}

/// Returns one HEM's count in the running segment, or else in the last one.
pub fn read(cpu: &Cpu, vm: &Vm, index: u64) -> Result<reply::Hem, CallError> {
    let segment = cpu.segment.borrow();
    let Some(open) = &segment.open else {
        let last = segment.last.as_ref().ok_or(CallError::Sequence)?;
        let at = usize::try_from(index)
            .ok()
            .filter(|&at| at < usize::from(last.len))
            .ok_or(CallError::Absent)?;
        let overflowed = last.overflowed >> at & 1 == 1;
        return Ok(reply::Hem {
            count: last.counts[at],
            overflowed,
            event: last.events[at].0,
        });
    };
    let event = events(vm)
        .0
        .iter()
        .take(open.hems() as usize)
        .nth(index as usize)
        .ok_or(CallError::Absent)?;
    let counter = open.counter(index as u32);
    Ok(reply::Hem {
        count: Pmu.get(counter),
        overflowed: Pmu.overflows() >> counter & 1 == 1,
        event: event.0,
    })
}

/// Logs what the guest has counted itself.
pub fn record_of_guest(cpu: &Cpu, vm: &Vm, names: Names) {
    let (counters, events): (Vec<u32, MAX_HEMS>, Vec<EventId, MAX_HEMS>) =
        cpu.vpmu.borrow().counting().into_iter().unzip();
    let open = Open::new(
        names,
        &events,
        self::events(vm).1,
        0..MAX_HEMS as u32,
        false,
    );
    let flags = Pmu.overflows();
    let overflowed = (0..).zip(&counters).fold(0, |bits, (hem, counter)| {
        bits | (flags >> counter & 1) << hem
    }) as u8;
    let count = |hem| Pmu.get(counters[hem as usize]);
    let record = open.record(
        (vm.id, cpu.vcpu as u8),
        Cycles(Pmu.cycles()),
        overflowed,
        &events,
        count,
    );
    telemetry::record(
        cpu,
        Record::Hem(HemRecord {
            by_guest: true,
            ..record
        }),
    );
}

/// Discards an open segment without a record, because the vCPU starts or stops.
pub fn reset(cpu: &Cpu) {
    let mut segment = cpu.segment.borrow_mut();
    segment.last = None;
    if let Some(open) = segment.open.take() {
        pmu::stop(open.mask());
    }
}
