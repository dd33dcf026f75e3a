//! Bench: measures the hypervisor's costs for a guest, in ticks of the virtual counter.
//!
//! Meant for `-icount shift=0` with a counter of 1 GHz, where one tick is one instruction and every
//! figure repeats. A figure is the number of ticks between two reads of CNTVCT_EL0 around one
//! operation, less the same without the operation (for HVC: with a `nop`, because the HVC itself is
//! an instruction of the guest). `NAME` is the minimum of all tries and `NAME_max` the maximum.
//! Nothing is printed until all measurements are done.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::{Call, irq, map, psci};
use cloison_guest::mmio::GICD;
use cloison_guest::ram::{PAGE, Ram};
use cloison_guest::{asm, call, cpu, entry, first_ticks, gic, println, timer};
use cloison_workloads::PROFILED;

entry!(main);

const TRIES: usize = 100;
/// Tries per register of the distributor.
const READS: usize = 4;
const TIMER_TRIES: u64 = 32;
const MIGRATED: u64 = 16;
/// The software-generated interrupt that this vCPU sends to itself.
const SGI: u32 = 5;
/// Number of reported gaps in the guest's time, their minimum length in ticks, and how long to look
/// for them.
const GAPS: usize = 20;
const GAP: u64 = 5_000;
const GAP_SEARCH: u64 = 500_000_000;

/// The routines in assembly.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // `bench_irq(gicc, store_to, store_value, cval)` returns the counter as read by the first
    // instruction of the interrupt's vector; its second result is the counter immediately
    // before the trigger. The trigger is a store to the distributor; or, if `store_to` is zero,
    // the timer at `cval`; or, if it is 1, a GICv3's SGI. Until then the guest spins in a loop of one instruction. x12: counter
    // before the trigger.
    global_asm!(
        cloison_workloads::stamping_vectors!("bench_vectors"),
        r#"
    .global bench_irq
bench_irq:
    adr     x10, 4f
    cbz     x1, 3f
    msr     daifclr, #2
    tbnz    x1, #0, 6f
    mrs     x12, cntvct_el0
    str     w2, [x1]
    b       .
6:  mrs     x12, cntvct_el0
    msr     icc_sgi1r_el1, x2
    b       .
3:  msr     cntv_cval_el0, x3
    mov     x12, #1
    msr     cntv_ctl_el0, x12
    mov     x12, x3
    msr     daifclr, #2
    b       .
4:  mov     x0, x9
    mov     x1, x12
    ret

// `bench_copy(to, from)`: 4 KiB, 64 bytes per iteration.
    .balign 64
    .global bench_copy
bench_copy:
    mov     x2, #64
5:  ldp     x3, x4, [x1], #16
    ldp     x5, x6, [x1], #16
    ldp     x7, x8, [x1], #16
    ldp     x9, x10, [x1], #16
    stp     x3, x4, [x0], #16
    stp     x5, x6, [x0], #16
    stp     x7, x8, [x0], #16
    stp     x9, x10, [x0], #16
    subs    x2, x2, #1
    b.ne    5b
    ret
    "#
    );
}

/// Two results, in x0 and x1.
#[repr(C)]
struct Moments {
    in_vector: u64,
    before: u64,
}

#[allow(unsafe_code)]
unsafe extern "C" {
    static bench_vectors: u8;
    fn bench_irq(gicc: u64, store_to: u64, store_value: u64, cval: u64) -> Moments;
    fn bench_copy(to: u64, from: u64);
}

/// Minimum and maximum of several tries.
#[derive(Clone, Copy)]
struct Span {
    min: u64,
    max: u64,
}

impl Span {
    fn of(tries: impl Iterator<Item = u64>) -> Self {
        tries.fold(
            Self {
                min: u64::MAX,
                max: 0,
            },
            |span, ticks| Self {
                min: span.min.min(ticks),
                max: span.max.max(ticks),
            },
        )
    }

    fn less(self, overhead: u64) -> Self {
        Self {
            min: self.min.saturating_sub(overhead),
            max: self.max.saturating_sub(overhead),
        }
    }

    fn print(self, name: &str) {
        println!("bench {name} {}", self.min);
        println!("bench {name}_max {}", self.max);
    }
}

/// Measures the ticks between two reads of the counter with the given instruction between them.
macro_rules! ticks {
    ($instruction:literal $(, $($operands:tt)+)?) => {{
        let (before, after): (u64, u64);
        asm!(
            "mrs x9, cntvct_el0",
            $instruction,
            "mrs x10, cntvct_el0",
            out("x9") before,
            out("x10") after,
            options(nostack),
            $($($operands)+)?
        );
        after - before
    }};
}

fn tries(mut measure: impl FnMut() -> u64) -> Span {
    Span::of((0..TRIES).map(|_| measure()))
}

/// Measures one HVC without arguments.
#[allow(unsafe_code)]
fn hypercall(function: u32) -> Span {
    // SAFETY: `function` reads a constant; x0-x3 are results, the rest is preserved.
    tries(|| unsafe {
        ticks!("hvc #0", inlateout("x0") u64::from(function) => _, inlateout("x1") 0u64 => _,
               inlateout("x2") 0u64 => _, inlateout("x3") 0u64 => _)
    })
}

/// Measures one load from the distributor.
#[allow(unsafe_code)]
fn distributor_read(offset: u64) -> Span {
    let address = GICD.address(offset);
    // SAFETY: reads a distributor register without side effects.
    Span::of(
        (0..READS)
            .map(|_| unsafe { ticks!("ldr w12, [x11]", in("x11") address, lateout("x12") _) }),
    )
}

/// Takes one interrupt with the raw vectors. Interrupts are masked before and after.
#[allow(unsafe_code)]
fn interrupt(store_to: u64, store_value: u64, cval: u64) -> Moments {
    // SAFETY: the raw vectors handle the one interrupt that `bench_irq` lets through, which ends
    // with interrupts masked; the runtime's vectors are restored before anything else can
    // happen. x9 to x12 are caller-saved.
    unsafe {
        let vectors = cpu::set_vectors((&raw const bench_vectors).addr() as u64);
        let moments = bench_irq(gic::interface(), store_to, store_value, cval);
        cpu::set_vectors(vectors);
        moments
    }
}

/// Returns the times at which this guest did not run for long: the last moment before and the first
/// after.
fn gaps() -> ([(u64, u64); GAPS], usize) {
    let (mut gaps, mut found) = ([(0, 0); GAPS], 0);
    let end = timer::now() + GAP_SEARCH;
    let mut last = timer::now();
    while found < GAPS && last < end {
        let now = timer::now();
        if now - last > GAP {
            gaps[found] = (last, now);
            found += 1;
        }
        last = now;
    }
    (gaps, found)
}

#[allow(unsafe_code)]
fn main() {
    // SAFETY: `nop` changes nothing but the program counter.
    let (empty, nop) = unsafe { (tries(|| ticks!("")).min, tries(|| ticks!("nop")).min) };
    let null = hypercall(Call::Identify as u32).less(nop);
    let psci_version = hypercall(psci::VERSION).less(nop);
    let typer = distributor_read(0x004).less(empty);
    // The most expensive of all other registers represents them.
    let others = (0..0x1000)
        .step_by(4)
        .filter(|&offset| offset != 0x004)
        .map(distributor_read);
    let read = others
        .max_by_key(|span| span.min)
        .unwrap_or(typer)
        .less(empty);

    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    gic::enable(SGI);
    let to_handler = Span::of((0..TIMER_TRIES).map(|n| {
        // A different distance each time, so that no figure depends on one alignment of the guest's
        // loop.
        let moments = interrupt(0, 0, timer::now() + 20_000 + n);
        moments.in_vector - moments.before
    }));
    let own = cpu::current();
    let (store_to, to_self) = if gic::is_v3() {
        (1, u64::from(SGI) << 24 | 1 << own)
    } else {
        (map::GICD + 0xf00, 1 << (16 + own) | u64::from(SGI))
    };
    let self_sgi = tries(|| {
        let moments = interrupt(store_to, to_self, 0);
        moments.in_vector - moments.before
    })
    .less(empty);

    let mut ram = Ram::behind_image();
    let pages = ram.take_at(PROFILED, MIGRATED * PAGE);
    let first = pages.as_ptr().expose_provenance() as u64;
    // SAFETY: two of the pages taken above, whose words are atomic.
    let copy = tries(|| unsafe {
        let before = timer::now();
        bench_copy(first, first + PAGE);
        timer::now() - before
    })
    .less(timer_overhead());
    let mut refused = None;
    let migrate = Span::of((0..MIGRATED).map_while(|n| {
        let before = timer::now();
        let moved = call::migrate_page(PROFILED + n * PAGE);
        let ticks = timer::now() - before;
        refused = refused.or(moved.err());
        moved.ok().map(|()| ticks)
    }))
    .less(timer_overhead());
    let restored = call::restore();
    let (gaps, found) = if call::quota_read(0).is_ok() {
        gaps()
    } else {
        ([(0, 0); GAPS], 0)
    };

    println!("bench first_instruction {}", first_ticks());
    println!("bench empty {empty}");
    null.print("null_hypercall");
    psci_version.print("psci_version");
    typer.print("gicd_typer_read");
    read.print("gicd_read");
    to_handler.print("timer_to_handler");
    self_sgi.print("self_sgi");
    copy.print("page_copy");
    match (refused, restored) {
        (None, Ok(_)) => migrate.print("migrate_page"),
        (None, Err(error)) | (Some(error), _) => println!("bench: no migrate_page: {error:?}"),
    }
    for (before, after) in &gaps[..found] {
        println!("bench quota_gap {before} {after}");
    }
    println!("bench: done");
}

/// Returns the cost of two calls of `timer::now` with nothing between them.
fn timer_overhead() -> u64 {
    tries(|| {
        let before = timer::now();
        timer::now() - before
    })
    .min
}
