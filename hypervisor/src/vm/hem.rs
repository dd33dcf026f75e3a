//! Observation segments: counts of the VM's HEMs between two calls of the guest.

use crate::devices::pmu;
use crate::vm::cpu::Cpu;
use crate::vm::life::Vm;
use crate::vm::telemetry;
use cloison_abi::CallError;
use cloison_formats::telemetry::{HemRecord, MAX_HEMS, Record};
use cloison_formats::units::{Cycles, EventId};
use core::sync::atomic::Ordering;

/// The segment that a vCPU is in, if it is in one.
#[derive(Default)]
pub struct Segment {
    open: Option<Open>,
    /// The one before.
    last: Option<HemRecord>,
}

struct Open {
    workload: u32,
    sub_experiment: u32,
    run: u32,
    hems: u32,
}

impl Open {
    fn mask(&self) -> u64 {
        (1 << self.hems) - 1
    }
}

/// What is counted: the VM's HEMs, or in a campaign those of the sub-experiment; and with it the sub-experiment's and the
/// run's numbers, whatever the guest calls them.
fn wanted(vm: &Vm) -> (&[EventId], Option<(u32, u32)>) {
    if let Some(campaign) = &vm.spec.campaign
        && let Some((set, run)) = campaign.next(vm.runs.load(Ordering::Relaxed))
        && let Some(hems) = campaign.sub_experiments.get(set as usize)
    {
        return (hems, Some((set, run)));
    }
    (&vm.spec.hems, None)
}

/// Starts a segment: the VM's HEMs and the cycle counter from zero.
pub fn begin(cpu: &Cpu, vm: &Vm, workload: u32, sub_experiment: u32, run: u32) -> Result<(), CallError> {
    let mut segment = cpu.segment.borrow_mut();
    if segment.open.is_some() {
        return Err(CallError::Sequence);
    }
    let free = pmu::counters().saturating_sub(cpu.quotas.borrow().reserved());
    let (wanted, numbers) = wanted(vm);
    let (sub_experiment, run) = numbers.unwrap_or((sub_experiment, run));
    let hems = (wanted.len().min(MAX_HEMS) as u32).min(free);
    let open = Open { workload, sub_experiment, run, hems };
    for (counter, &event) in (0..hems).zip(wanted) {
        pmu::configure(counter, event, 0);
    }
    pmu::take_overflows(open.mask());
    pmu::start(open.mask());
    pmu::start_cycles();
    segment.open = Some(open);
    Ok(())
}

/// Ends the segment and logs its record.
pub fn end(cpu: &Cpu, vm: &Vm) -> Result<Cycles, CallError> {
    let mut segment = cpu.segment.borrow_mut();
    let open = segment.open.take().ok_or(CallError::Sequence)?;
    let cycles = Cycles(pmu::stop_cycles());
    pmu::stop(open.mask());
    let overflowed = pmu::take_overflows(open.mask()) as u8;
    let mut record = HemRecord {
        vm: vm.id,
        vcpu: cpu.vcpu as u8,
        workload: open.workload,
        sub_experiment: open.sub_experiment,
        run: open.run,
        cycles,
        len: open.hems as u8,
        events: [EventId(0); MAX_HEMS],
        counts: [0; MAX_HEMS],
        overflowed,
    };
    for (counter, &event) in (0..open.hems).zip(wanted(vm).0) {
        record.events[counter as usize] = event;
        record.counts[counter as usize] = pmu::count(counter);
    }
    segment.last = Some(record);
    telemetry::record(cpu, Record::Hem(record));
    Ok(cycles)
}

/// One HEM's count in the running segment, or else in the last one; whether its counter has overflowed; which event it is.
pub fn read(cpu: &Cpu, vm: &Vm, index: u64) -> Result<(u32, bool, EventId), CallError> {
    let segment = cpu.segment.borrow();
    let Some(open) = &segment.open else {
        let last = segment.last.as_ref().ok_or(CallError::Sequence)?;
        let at = usize::try_from(index).ok().filter(|&at| at < usize::from(last.len)).ok_or(CallError::Absent)?;
        return Ok((last.counts[at], last.overflowed >> at & 1 == 1, last.events[at]));
    };
    let event = wanted(vm).0.iter().take(open.hems as usize).nth(index as usize).ok_or(CallError::Absent)?;
    let overflowed = crate::machine::sysreg::read!("pmovsclr_el0") >> index & 1 == 1;
    Ok((pmu::count(index as u32), overflowed, *event))
}

/// Gives up an open segment, without a record: the vCPU starts or stops.
pub fn reset(cpu: &Cpu) {
    let mut segment = cpu.segment.borrow_mut();
    segment.last = None;
    if let Some(open) = segment.open.take() {
        pmu::stop(open.mask());
        pmu::stop_cycles();
    }
}
