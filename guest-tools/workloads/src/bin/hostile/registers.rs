//! System registers: the counters reserved for quotas, and everything that belongs to a higher
//! exception level.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::phase::Phase;
use cloison_benchmarks::random::Random;
use cloison_guest::exceptions::Fault;
use cloison_guest::probe;

/// A system register or instruction: op0, op1, CRn, CRm, op2.
type Name = (u32, u32, u32, u32, u32);

const PMUSERENR: Name = (3, 3, 9, 14, 0);
const PMCR: Name = (3, 3, 9, 12, 0);
const PMCNTENCLR: Name = (3, 3, 9, 12, 2);
const PMOVSCLR: Name = (3, 3, 9, 12, 3);
const PMSELR: Name = (3, 3, 9, 12, 5);
const PMXEVTYPER: Name = (3, 3, 9, 13, 1);
const PMXEVCNTR: Name = (3, 3, 9, 13, 2);
const PMINTENCLR: Name = (3, 0, 9, 14, 2);

/// The performance monitor's registers except the numbered ones, and MDCR_EL2 and MDCR_EL3, which
/// control it.
const MONITOR: [Name; 19] = [
    PMCR,
    (3, 3, 9, 12, 1),
    PMCNTENCLR,
    PMOVSCLR,
    (3, 3, 9, 12, 4),
    PMSELR,
    (3, 3, 9, 12, 6),
    (3, 3, 9, 12, 7),
    (3, 3, 9, 13, 0),
    PMXEVTYPER,
    PMXEVCNTR,
    (3, 3, 9, 14, 3),
    (3, 0, 9, 14, 1),
    PMINTENCLR,
    (3, 0, 9, 14, 6),
    (3, 3, 14, 15, 7),
    (3, 4, 1, 1, 1),
    (3, 6, 1, 3, 1),
    (3, 0, 9, 14, 0),
];

const fn encode((op0, op1, crn, crm, op2): Name) -> u32 {
    op0 << 19 | op1 << 16 | crn << 12 | crm << 8 | op2 << 5
}

/// # Safety
/// Reading the register must have no relevant side effect.
unsafe fn read(name: Name) -> Result<u64, Fault> {
    // SAFETY: `mrs x0, name`; the caller vouches for the register, and x0 is an output.
    unsafe { probe::execute(0xd520_0000 | encode(name), 0) }
}

/// # Safety
/// This program must not depend on the register or instruction.
unsafe fn write(name: Name, value: u64) -> Result<u64, Fault> {
    // SAFETY: `msr name, x0` or `sys ..., x0`.
    unsafe { probe::execute(0xd500_0000 | encode(name), value).map(|_| 0) }
}

/// Tries to read, stop, reset, rewrite and mute the counters.
pub fn counters(random: &mut Random) -> u64 {
    let mut phase = Phase::new("pmu");
    let numbered = (0..32).flat_map(|n| {
        [
            (3, 3, 14, 8 | n >> 3, n & 7),
            (3, 3, 14, 12 | n >> 3, n & 7),
        ]
    });
    for name in MONITOR.into_iter().chain(numbered) {
        // SAFETY: this program does not use the performance monitor.
        unsafe {
            phase.must_fail(read(name), format_args!("read of {name:?}"));
            for value in [0, 1, 6, 0x8000_0000, u64::MAX, random.bits()] {
                phase.must_fail(
                    write(name, value),
                    format_args!("write of {value:#x} to {name:?}"),
                );
            }
        }
    }
    // What a guest that wants to escape its quota would do, in order.
    let attack = [
        (PMCNTENCLR, 0xffff_ffff),
        (PMINTENCLR, 0xffff_ffff),
        (PMOVSCLR, 0xffff_ffff),
        (PMSELR, 5),
        (PMXEVTYPER, 0x8800_0000),
        (PMXEVCNTR, 0),
        (PMCR, 6),
        (PMCR, 0),
    ];
    for (name, value) in attack.into_iter().cycle().take(attack.len() * 64) {
        // SAFETY: the write traps, or changes a counter that this program does not rely on.
        phase.must_fail(
            unsafe { write(name, value) },
            format_args!("write of {value:#x} to {name:?}"),
        );
    }
    // A kernel may disable access from EL0; the register has no effect otherwise.
    // SAFETY: it controls EL0's access, and this program runs at EL1 only.
    unsafe {
        phase.may_fail(write(PMUSERENR, 0xf));
        match read(PMUSERENR) {
            Err(_) | Ok(0) => phase.refused += 1,
            Ok(value) => phase.leak(format_args!("PMUSERENR_EL0 keeps {value:#x}")),
        }
    }
    phase.finish()
}

/// Returns whether a register belongs to a higher exception level, to the counters, or to the
/// implementation.
fn is_forbidden((op0, op1, crn, crm, op2): Name) -> bool {
    let higher = op1 >= 4;
    let monitor = op0 == 3
        && (crn == 9
            && (12..15).contains(&crm)
            && matches!(op1, 0 | 3)
            && (op0, op1, crn, crm, op2) != PMUSERENR
            || op1 == 3 && crn == 14 && crm >= 8);
    let implementation = op0 == 3 && matches!(crn, 11 | 15);
    higher || monitor || implementation
}

/// Reads every register that can be encoded; writes all forbidden ones and some that a guest should
/// not touch.
pub fn wild(random: &mut Random) -> u64 {
    let mut phase = Phase::new("sysreg");
    let all =
        (0..1u32 << 15).map(|n| (2 + (n >> 14), n >> 11 & 7, n >> 7 & 15, n >> 3 & 15, n & 7));
    for name in all {
        // SAFETY: reading a register changes nothing.
        let result = unsafe { read(name) };
        if is_forbidden(name) {
            phase.must_fail(result, format_args!("read of {name:?}"));
            // SAFETY: this program needs none of the forbidden registers.
            let result = unsafe { write(name, random.bits()) };
            phase.must_fail(result, format_args!("write to {name:?}"));
        } else {
            phase.may_fail(result);
        }
    }
    // TLB maintenance and address translation of higher levels (SYS with op1 of 4 and more).
    for n in 0..1u32 << 10 {
        let name = (1, 4 + (n >> 7 & 3), 7 + (n >> 9), n >> 3 & 15, n & 7);
        // SAFETY: these do not exist at this exception level.
        phase.must_fail(
            unsafe { write(name, random.bits()) },
            format_args!("instruction {name:?}"),
        );
    }
    others(&mut phase, random);
    phase.finish()
}

fn others(phase: &mut Phase, random: &mut Random) {
    const DEBUG: [Name; 9] = [
        (2, 0, 1, 0, 4),  // OSLAR_EL1
        (2, 0, 1, 3, 4),  // OSDLR_EL1
        (2, 0, 1, 4, 4),  // DBGPRCR_EL1
        (2, 0, 7, 8, 6),  // DBGCLAIMSET_EL1
        (2, 0, 0, 6, 2),  // OSECCR_EL1
        (2, 0, 0, 0, 6),  // DBGWVR0_EL1
        (2, 0, 0, 0, 4),  // DBGBVR0_EL1
        (2, 0, 0, 15, 4), // DBGBVR15_EL1
        (2, 3, 0, 4, 0),  // DBGDTR_EL0
    ];
    const AUXILIARY: [Name; 8] = [
        (3, 0, 1, 0, 1),  // ACTLR_EL1
        (3, 0, 5, 1, 0),  // AFSR0_EL1
        (3, 0, 5, 1, 1),  // AFSR1_EL1
        (3, 0, 10, 3, 0), // AMAIR_EL1
        (3, 3, 14, 2, 0), // CNTP_TVAL_EL0
        (3, 3, 14, 2, 2), // CNTP_CVAL_EL0
        (3, 2, 0, 0, 0),  // CSSELR_EL1
        (3, 0, 12, 0, 2), // RMR_EL1: a warm reset, where a guest may ask for one
    ];
    const BREAKPOINT: [Name; 3] = [(2, 0, 0, 0, 4), (2, 0, 0, 0, 5), (2, 0, 0, 2, 2)];
    const SET_WAY: [Name; 3] = [(1, 0, 7, 6, 2), (1, 0, 7, 10, 2), (1, 0, 7, 14, 2)];
    const CNTP_CTL: Name = (3, 3, 14, 2, 1);
    // Read-only, or owned by the highest level: CNTFRQ_EL0, MPIDR_EL1, MIDR_EL1, ICC_SRE_EL1,
    // ICC_PMR_EL1, ICC_SGI1R_EL1.
    const NEVER: [Name; 6] = [
        (3, 3, 14, 0, 0),
        (3, 0, 0, 0, 5),
        (3, 0, 0, 0, 0),
        (3, 0, 12, 12, 5),
        (3, 0, 4, 6, 0),
        (3, 0, 12, 11, 5),
    ];
    // SAFETY: this program uses none of these registers. The breakpoint matches no address of this
    // program and is disabled again before anything else runs. Set/way maintenance loses no
    // dirty line: the hypervisor either ignores it, or turns invalidation into cleaning and
    // invalidation, as HCR_EL2.SWIO and VM require.
    unsafe {
        for name in DEBUG.into_iter().chain(AUXILIARY) {
            for value in [u64::MAX, random.bits(), 0] {
                phase.may_fail(write(name, value));
            }
        }
        for name in NEVER {
            phase.must_fail(
                write(name, random.bits()),
                format_args!("write to {name:?}"),
            );
        }
        // A breakpoint at EL2 where the hypervisor may be; debug exceptions enabled, then
        // everything disabled.
        for values in [[0x4020_0000, 1 << 13 | 3 << 14 | 0x1e1, 0xa000], [0, 0, 0]] {
            for (name, value) in BREAKPOINT.into_iter().zip(values) {
                phase.may_fail(write(name, value));
            }
        }
        // The physical timer, due at once, then disabled.
        phase.may_fail(write(CNTP_CTL, 1));
        phase.may_fail(write(CNTP_CTL, 0));
        for _ in 0..64 {
            let set_way = random.below(16) << 28 | random.below(1024) << 6 | random.below(2) << 1;
            for name in SET_WAY {
                phase.may_fail(write(name, set_way));
            }
        }
    }
}
