//! Counters check: counts known work by calls, and looks for counters that it should not have, on
//! several vCPUs at once.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::event::EventId;
use cloison_guest::abi::{CYCLE_COUNTER, Call, CallError};
use cloison_guest::{arg, args, call, cpu, entry, println, smp};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

const CPU_CYCLES: u64 = 0x11;
/// The calls of the service but the one that writes to the log.
const CALLS: [Call; 8] = [
    Call::Counters,
    Call::CounterEvent,
    Call::CounterEventSet,
    Call::CounterRead,
    Call::CounterSet,
    Call::CounterEnable,
    Call::CounterInhibit,
    Call::CounterMasks,
];

/// Number of failed checks, on all vCPUs.
static WRONG: AtomicU64 = AtomicU64::new(0);
/// Calls that were made, and of these refused, on all vCPUs.
static MADE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// vCPUs that are done.
static DONE: AtomicU64 = AtomicU64::new(0);

/// A loop of about four instructions per iteration.
fn work(turns: u64) {
    for turn in 0..turns {
        core::hint::black_box(turn);
    }
}

fn must_hold(holds: bool, what: core::fmt::Arguments) {
    if !holds {
        WRONG.fetch_add(1, Relaxed);
        println!("counters-check: WRONG on vCPU {}: {what}", cpu::current());
    }
}

/// What a call must return for these arguments, where the vCPU has `counters` event counters.
fn expected(made: Call, x1: u64, x2: u64, counters: u64) -> Result<(), CallError> {
    let cycles = u64::from(CYCLE_COUNTER);
    let all = 1 << cycles | ((1 << counters) - 1);
    match made {
        Call::Counters => Ok(()),
        Call::CounterEnable | Call::CounterInhibit | Call::CounterMasks if x1 & !all != 0 => {
            Err(CallError::Denied)
        }
        Call::CounterEnable | Call::CounterInhibit | Call::CounterMasks => Ok(()),
        _ if x1 >= counters && x1 != cycles => Err(CallError::Absent),
        Call::CounterEventSet if x2 & !0xf000_ffff != 0 => Err(CallError::Invalid),
        Call::CounterEventSet if x1 == cycles && x2 & 0xffff != CPU_CYCLES => {
            Err(CallError::Invalid)
        }
        Call::CounterSet if x1 != cycles && x2 > u32::MAX.into() => Err(CallError::Invalid),
        _ => Ok(()),
    }
}

/// Calls with arguments that fit, nearly fit, and do not fit at all, while a segment counts as if
/// nothing happened.
fn attack() {
    let mut random = Random::new(0x636f_756e_7465_7273 + cpu::current() as u64);
    let counters = call::counters().map_or(0, |found| found.counters.into());
    let segment = call::segment_begin(cpu::current() as u32, 0, 0);
    must_hold(segment == Ok(()), format_args!("SegmentBegin: {segment:?}"));
    for _ in 0..arg(1, 2000) {
        let made = CALLS[random.below(CALLS.len() as u64) as usize];
        let x1 = match random.below(4) {
            0 => random.bits(),
            1 => 1 << random.below(64),
            2 => random.below(1 << counters),
            _ => random.below(40),
        };
        let x2 = random.bits() >> random.below(64);
        let found = call::counter(made, [x1, x2]);
        let wanted = expected(made, x1, x2, counters);
        MADE.fetch_add(1, Relaxed);
        REFUSED.fetch_add(u64::from(found.is_err()), Relaxed);
        must_hold(
            found.map(drop) == wanted,
            format_args!("{made:?}({x1:#x}, {x2:#x}): {found:?}, not {wanted:?}"),
        );
    }
    work(1000);
    let last = call::segment_end();
    must_hold(
        last.is_ok_and(|cycles| cycles > 1000),
        format_args!("SegmentEnd: {last:?}"),
    );
    // Nothing that was set above reached the segment's counter of instructions.
    let hem = call::hem_read(0);
    let counted = hem
        .is_ok_and(|hem| hem.event == EventId::INST_RETIRED && hem.count > 1000 && !hem.overflowed);
    must_hold(counted, format_args!("{hem:?}"));
    DONE.fetch_add(1, Relaxed);
}

/// Counts a loop once, twice, and inhibited.
fn count(turns: u64) -> Result<(), CallError> {
    let counters = call::counters()?.counters;
    let last = counters - 1;
    let both = 1 << CYCLE_COUNTER | 1 << last;
    call::counter_event_set(last, EventId::INST_RETIRED)?;
    call::counter_enable(both)?;
    let counted = |turns: u64| {
        call::counter_inhibit(both)?;
        call::counter_set(last, 0)?;
        call::counter_set(CYCLE_COUNTER, 0)?;
        call::counter_inhibit(0)?;
        work(turns);
        call::counter_inhibit(both)?;
        let count = call::counter_read(last)?.value;
        work(turns);
        Ok((
            count,
            call::counter_read(CYCLE_COUNTER)?.value,
            call::counter_read(last)?.value - count,
        ))
    };
    let (once, cycles, idle) = counted(turns)?;
    let (twice, ..) = counted(2 * turns)?;
    call::counter_set(last, u32::MAX.into())?;
    call::counter_inhibit(0)?;
    work(10);
    let wrapped = call::counter_read(last)?.overflowed;
    let masks = call::counter_masks(1 << last)?;
    let cleared = !call::counter_read(last)?.overflowed;
    println!(
        "counters-check: counters={counters} once={once} twice={twice} cycles={cycles} \
         idle={idle} flags={} enabled={:#x}",
        u64::from(wrapped && cleared && masks.overflowed >> last & 1 == 1),
        masks.enabled
    );
    call::counter_inhibit(both)?;
    call::counter_set(last, 4711)?;
    call::counter_record(7, 8, 9)
}

fn main() {
    let [vcpus, ..] = args();
    if let Err(error) = count(arg(2, 100_000)) {
        // Without the service there is nothing to be had.
        let denied = CALLS
            .iter()
            .filter(|&&made| call::counter(made, [0, 0]) == Err(CallError::Denied))
            .count();
        let recorded = call::counter_record(0, 0, 0);
        println!(
            "counters-check: refused with {error:?}, and {denied} of {} calls, {recorded:?}",
            CALLS.len()
        );
        return;
    }
    for vcpu in 1..vcpus {
        let started = smp::start(vcpu as usize, attack);
        must_hold(started.is_ok(), format_args!("vCPU {vcpu}: {started:?}"));
    }
    attack();
    cpu::wait_until(|| DONE.load(Relaxed) == vcpus.max(1));
    let [made, refused, wrong] = [&MADE, &REFUSED, &WRONG].map(|number| number.load(Relaxed));
    println!("counters-check: done calls={made} refused={refused} wrong={wrong}");
}
