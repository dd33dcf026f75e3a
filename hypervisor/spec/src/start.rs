//! A vCPU's first instruction (docs/guests.md, "First instruction"; docs/architecture.md, "The life of
//! a vCPU").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use crate::visit::Registers;

/// EL1 with its own stack pointer; debug exceptions, SErrors, IRQs and FIQs masked.
const PSTATE: u64 = 0x3c5;

/// Registers of EL1 and EL0 that are zero at a vCPU's first instruction.
pub const ZERO: [&str; 19] = [
    "CPACR_EL1",
    "TTBR0_EL1",
    "TTBR1_EL1",
    "TCR_EL1",
    "MAIR_EL1",
    "AMAIR_EL1",
    "CONTEXTIDR_EL1",
    "CSSELR_EL1",
    "MDSCR_EL1",
    "TPIDR_EL0",
    "TPIDRRO_EL0",
    "TPIDR_EL1",
    "ESR_EL1",
    "FAR_EL1",
    "PAR_EL1",
    "CNTKCTL_EL1",
    "CNTV_CTL_EL0",
    "CNTV_CVAL_EL0",
    "PMUSERENR_EL0",
];

/// SCTLR_EL1.M, A, C, WXN, I, E0E and EE: MMU and caches off, little-endian (Arm ARM DDI 0487,
/// D24.2 "SCTLR_EL1").
const SCTLR_OFF: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 12 | 1 << 19 | 1 << 24 | 1 << 25;

/// With what a vCPU must start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The address of its first instruction.
    pub pc: u64,
    /// x0 to x3; `None` where a campaign varies it.
    pub arguments: [Option<u64>; 4],
}

/// Checks a vCPU's registers at its first instruction, with SCTLR_EL1 and the value of each register
/// of [`ZERO`] that the observer has.
///
/// # Errors
///
/// The first register that is not as promised.
pub fn check(
    first: First,
    found: &Registers,
    sctlr: u64,
    zeros: &[(&'static str, u64)],
) -> Checked {
    let differs = |name: &str, expected, found| {
        Err(Difference::of_register(
            Rule::Started,
            name,
            expected,
            found,
        ))
    };
    if found.pc != first.pc {
        return differs("pc", first.pc, found.pc);
    }
    // Also the flags: N, Z, C and V are zero.
    if found.pstate != PSTATE {
        return differs("pstate", PSTATE, found.pstate);
    }
    for (number, &value) in found.x.iter().enumerate() {
        // x4 to x30 are zero.
        let expected = first.arguments.get(number).copied().unwrap_or(Some(0));
        if let Some(expected) = expected
            && expected != value
        {
            return differs(&format!("x{number}"), expected, value);
        }
    }
    let named = [
        ("SP_EL0", found.sp[0]),
        ("SP_EL1", found.sp[1]),
        ("ELR_EL1", found.from[0]),
        ("SPSR_EL1", found.from[1]),
        ("VBAR_EL1", found.vectors),
    ];
    for (name, value) in named.iter().chain(zeros) {
        if *value != 0 {
            return differs(name, 0, *value);
        }
    }
    // Only these bits: others are RES1, or of features that a CPU may have.
    if sctlr & SCTLR_OFF != 0 {
        return differs("SCTLR_EL1", sctlr & !SCTLR_OFF, sctlr);
    }
    Ok(())
}

/// Checks the FP and SIMD registers at a vCPU's first instruction: V0 to V31, then FPCR and FPSR.
///
/// # Errors
///
/// The first register that is not zero.
pub fn check_fp(vectors: &[[u64; 2]], controls: [u64; 2]) -> Checked {
    let found = vectors
        .iter()
        .enumerate()
        .find(|(_, value)| **value != [0; 2]);
    if let Some((number, [low, high])) = found {
        let found = format!("{high:#x}:{low:#x}");
        return Err(Difference::new(
            Rule::StartFp,
            format!("v{number}"),
            "0",
            found,
        ));
    }
    for (name, value) in ["FPCR", "FPSR"].iter().zip(controls) {
        if value != 0 {
            return Err(Difference::of_register(Rule::StartFp, name, 0, value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: First = First {
        pc: 0x4000_0080,
        arguments: [Some(7), Some(8), None, Some(10)],
    };

    fn good() -> Registers {
        let mut found = Registers {
            pc: 0x4000_0080,
            pstate: PSTATE,
            ..Registers::default()
        };
        found.x[..4].copy_from_slice(&[7, 8, 99, 10]);
        found
    }

    #[test]
    fn what_is_promised_passes_and_each_leftover_is_found() {
        let zeros = ZERO.map(|name| (name, 0));
        assert_eq!(check(FIRST, &good(), 0x30d0_0800, &zeros), Ok(()));
        for number in (0..31).filter(|number| *number != 2) {
            let mut found = good();
            found.x[number] ^= 1;
            assert!(check(FIRST, &found, 0, &[]).is_err(), "x{number}");
        }
        for wrong in [
            Registers { pc: 0, ..good() },
            Registers {
                pstate: 0x3c4,
                ..good()
            },
            Registers {
                pstate: 0x345,
                ..good()
            },
            Registers {
                sp: [0, 1],
                ..good()
            },
            Registers {
                sp: [1, 0],
                ..good()
            },
            Registers {
                from: [1, 0],
                ..good()
            },
            Registers {
                vectors: 0x800,
                ..good()
            },
        ] {
            assert!(check(FIRST, &wrong, 0, &[]).is_err());
        }
        for (name, _) in zeros {
            let left = [(name, 1)];
            let found = check(FIRST, &good(), 0, &left).err().map(|it| it.place);
            assert_eq!(found.as_deref(), Some(name));
        }
        assert!(check(FIRST, &good(), 1, &[]).is_err());
    }

    #[test]
    fn a_leftover_in_a_vector_register_is_found() {
        let mut vectors = [[0; 2]; 32];
        assert_eq!(check_fp(&vectors, [0; 2]), Ok(()));
        assert!(check_fp(&vectors, [0, 1]).is_err());
        vectors[31][1] = 1;
        assert!(check_fp(&vectors, [0; 2]).is_err());
    }
}
