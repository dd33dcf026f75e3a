//! Decodes the A64 instructions that the model must recognize.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::hierarchy::Maintenance;
use crate::tlb::Invalidation;
use cloison_abi::model_hint;

/// Messages from a guest to the model: HINTs that no version of the architecture has allocated.
/// Hardware, and QEMU without the model, execute them as NOPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// `HINT #112`: start of the region of interest; the last region's cache contents stay.
    BeginWarm,
    /// `HINT #113`: end of the region of interest.
    End,
    /// `HINT #114`: X0 = physical address, X1 = bytes, X2 = 0: stage 2 makes them cacheable; 1:
    /// non-cacheable.
    Cacheability,
    /// `HINT #115`: start of the region of interest with empty caches.
    BeginCold,
}

/// An instruction that needs more than handling its loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A message to the model.
    Magic(Magic),
    /// DC ZVA, with the register that holds the address.
    Zero(u8),
    /// Maintenance by address, with the register that holds it.
    Maintain(Maintenance, u8),
    /// IC IALLU (false) and IC IALLUIS (true).
    InvalidateInstructions(bool),
    /// A write to a generic timer register: the next deadline may have changed.
    Timer,
    /// MRS of a counter: destination register, number of the event counter or [`CYCLES`].
    ReadCounter(u8, u8),
    /// MSR of a counter: number of the event counter or [`CYCLES`].
    WriteCounter(u8),
    /// MRS of the overflow flags: destination register.
    ReadOverflows(u8),
    /// MSR that clears overflow flags: source register.
    ClearOverflows(u8),
    /// MSR of PMCR_EL0: source register.
    WriteControl(u8),
    /// MSR of another register of the performance monitors.
    SetUpCounters,
    /// MSR of a register that controls translation.
    SetUpTranslation,
    /// TLBI: its target, in all cores or in this one, and the register that holds the address.
    InvalidateTlb(Invalidation, bool, u8),
    /// WFE, YIELD: the core polls, and can continue only after another core has run.
    Idle,
    /// WFI: the core waits for an interrupt.
    Wait,
}

impl Special {
    /// Returns whether the instruction accesses the performance monitors.
    pub const fn is_monitor_access(self) -> bool {
        matches!(
            self,
            Self::ReadCounter(..)
                | Self::WriteCounter(_)
                | Self::ReadOverflows(_)
                | Self::ClearOverflows(_)
                | Self::WriteControl(_)
                | Self::SetUpCounters
        )
    }
}

/// Returns whether an instruction is a store-exclusive (STXR, STLXR, STXP, STLXP), which QEMU
/// executes as a load, a comparison and a store. CASP differs in the bits for size and pair.
pub const fn is_store_exclusive(word: u32) -> bool {
    word & 0x3fc0_0000 == 0x0800_0000 && (word >> 31 == 1 || word >> 21 & 1 == 0)
}

/// Replaces a counter's number: the counter that PMSELR_EL0 selects.
pub const SELECTED: u8 = 31;

/// Replaces a counter's number: the cycle counter.
pub const CYCLES: u8 = 6;

/// Returns an instruction's meaning for the model, if it has one.
pub const fn decode(word: u32) -> Option<Special> {
    if word & 0xffff_f01f == 0xd503_201f {
        return match (word >> 5) & 0x7f {
            model_hint::BEGIN_WARM => Some(Special::Magic(Magic::BeginWarm)),
            model_hint::END => Some(Special::Magic(Magic::End)),
            model_hint::CACHEABILITY => Some(Special::Magic(Magic::Cacheability)),
            model_hint::BEGIN_COLD => Some(Special::Magic(Magic::BeginCold)),
            // YIELD, WFE.
            1 | 2 => Some(Special::Idle),
            3 => Some(Special::Wait),
            _ => None,
        };
    }
    let register = (word & 31) as u8;
    // PMEVCNTRn_EL0: op1 = 3, CRn = 14, CRm = 10rr.
    let counter = ((word >> 5) & 31) as u8;
    match word & 0xffff_fc00 {
        0xd53b_e800 if counter < 6 => return Some(Special::ReadCounter(register, counter)),
        0xd51b_e800 if counter < 6 => return Some(Special::WriteCounter(counter)),
        // PMEVTYPERn_EL0: CRm = 11rr.
        0xd51b_ec00 => return Some(Special::SetUpCounters),
        _ => {}
    }
    match word & 0xffff_ffe0 {
        0xd51b_9c00 => return Some(Special::WriteControl(register)),
        // PMCCNTR_EL0.
        0xd53b_9d00 => return Some(Special::ReadCounter(register, CYCLES)),
        0xd51b_9d00 => return Some(Special::WriteCounter(CYCLES)),
        // PMXEVCNTR_EL0.
        0xd53b_9d40 => return Some(Special::ReadCounter(register, SELECTED)),
        0xd51b_9d40 => return Some(Special::WriteCounter(SELECTED)),
        // PMOVSCLR_EL0, PMOVSSET_EL0.
        0xd53b_9c60 | 0xd53b_9e60 => return Some(Special::ReadOverflows(register)),
        0xd51b_9c60 => return Some(Special::ClearOverflows(register)),
        // PMINTENSET_EL1, PMINTENCLR_EL1.
        0xd518_9e20 | 0xd518_9e40 => return Some(Special::SetUpCounters),
        // MDCR_EL2.
        0xd51c_1120 => return Some(Special::SetUpCounters),
        _ => {}
    }
    // CRn = 9, CRm = 12 to 14: the rest of the performance monitors' registers.
    if matches!(word & 0xffff_ff00, 0xd51b_9c00 | 0xd51b_9d00 | 0xd51b_9e00) {
        return Some(Special::SetUpCounters);
    }
    if let Some(translation) = translation(word) {
        return Some(translation);
    }
    // MSR of op0 = 3, CRn = 14: the timers'.
    if word & 0xfff8_f000 == 0xd518_e000 {
        return Some(Special::Timer);
    }
    // SYS #op1, C7, CRm, #op2, Xt.
    if word & 0xfff8_f000 != 0xd508_7000 {
        return None;
    }
    match ((word >> 16) & 7, (word >> 8) & 15, (word >> 5) & 7) {
        (3, 4, 1) => Some(Special::Zero(register)),
        (3, 10, 1) => Some(Special::Maintain(Maintenance::Clean, register)),
        (3, 11, 1) => Some(Special::Maintain(Maintenance::CleanToL2, register)),
        (3, 14, 1) | (0, 6, 1) => Some(Special::Maintain(Maintenance::CleanInvalidate, register)),
        (3, 5, 1) => Some(Special::Maintain(
            Maintenance::InvalidateInstruction,
            register,
        )),
        (0, 5, 0) => Some(Special::InvalidateInstructions(false)),
        (0, 1, 0) => Some(Special::InvalidateInstructions(true)),
        _ => None,
    }
}

/// Returns what an instruction means to address translation, if anything.
const fn translation(word: u32) -> Option<Special> {
    match word & 0xffff_ffe0 {
        // SCTLR_EL1; TTBR0_EL1, TTBR1_EL1, TCR_EL1; SCTLR_EL2, HCR_EL2; TTBR0_EL2, TCR_EL2;
        // VTTBR_EL2, VTCR_EL2.
        0xd518_1000 | 0xd518_2000 | 0xd518_2020 | 0xd518_2040 | 0xd51c_1000 | 0xd51c_1100
        | 0xd51c_2000 | 0xd51c_2040 | 0xd51c_2100 | 0xd51c_2140 => {
            return Some(Special::SetUpTranslation);
        }
        _ => {}
    }
    // SYS #op1, C8, CRm, #op2, Xt. CRm is 0 and 3 for all cores, 4 and 7 for one.
    if word & 0xfff8_f000 != 0xd508_8000 {
        return None;
    }
    let (op1, crm, op2) = ((word >> 16) & 7, (word >> 8) & 15, (word >> 5) & 7);
    let stage2 = matches!(crm, 0 | 4);
    let what = match (op1, op2) {
        (4, 1 | 5) if stage2 => Invalidation::Stage2,
        (0, 0) => Invalidation::Vm,
        (0, 1) => Invalidation::Address(false),
        (0, 5) => Invalidation::Address(true),
        (0, 2) => Invalidation::Asid,
        (0, 3) => Invalidation::AddressOfAll(false),
        (0, 7) => Invalidation::AddressOfAll(true),
        (4, 0) => Invalidation::El2,
        (4, 1) => Invalidation::El2Address(false),
        (4, 5) => Invalidation::El2Address(true),
        (4, 4) => Invalidation::AllVms,
        (4, 6) => Invalidation::VmBothStages,
        _ => Invalidation::Other,
    };
    Some(Special::InvalidateTlb(what, crm < 4, (word & 31) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tlbi(what: Invalidation, all: bool, register: u8) -> Option<Special> {
        Some(Special::InvalidateTlb(what, all, register))
    }

    #[test]
    fn encodings() {
        // As encoded by GNU as and LLVM.
        let table = [
            (0xd503_2e1f, Some(Special::Magic(Magic::BeginWarm))), // hint #112
            (0xd503_2e3f, Some(Special::Magic(Magic::End))),       // hint #113
            (0xd503_2e7f, Some(Special::Magic(Magic::BeginCold))), // hint #115
            (0xd50b_7425, Some(Special::Zero(5))),                 // dc zva, x5
            (
                0xd50b_7e23,
                Some(Special::Maintain(Maintenance::CleanInvalidate, 3)),
            ), // dc civac, x3
            (0xd50b_7a21, Some(Special::Maintain(Maintenance::Clean, 1))), // dc cvac, x1
            (
                0xd50b_7b21,
                Some(Special::Maintain(Maintenance::CleanToL2, 1)),
            ), // dc cvau, x1
            (
                0xd50b_7522,
                Some(Special::Maintain(Maintenance::InvalidateInstruction, 2)),
            ), // ic ivau, x2
            (0xd508_751f, Some(Special::InvalidateInstructions(false))), // ic iallu
            (0xd508_711f, Some(Special::InvalidateInstructions(true))), // ic ialluis
            (0xd51b_e320, Some(Special::Timer)),                   // msr cntv_ctl_el0, x0
            (0xd53b_e822, Some(Special::ReadCounter(2, 1))),       // mrs x2, pmevcntr1_el0
            (0xd51b_e8a3, Some(Special::WriteCounter(5))),         // msr pmevcntr5_el0, x3
            (0xd53b_9d44, Some(Special::ReadCounter(4, SELECTED))), // mrs x4, pmxevcntr_el0
            (0xd51b_9d44, Some(Special::WriteCounter(SELECTED))),  // msr pmxevcntr_el0, x4
            (0xd51b_ec20, Some(Special::SetUpCounters)),           // msr pmevtyper1_el0, x0
            (0xd51b_9c01, Some(Special::WriteControl(1))),         // msr pmcr_el0, x1
            (0xd51b_9c20, Some(Special::SetUpCounters)),           // msr pmcntenset_el0, x0
            (0xd51c_1120, Some(Special::SetUpCounters)),           // msr mdcr_el2, x0
            (0xd53b_9c60, Some(Special::ReadOverflows(0))),        // mrs x0, pmovsclr_el0
            (0xd53b_9e61, Some(Special::ReadOverflows(1))),        // mrs x1, pmovsset_el0
            (0xd51b_9c62, Some(Special::ClearOverflows(2))),       // msr pmovsclr_el0, x2
            (0xd518_9e20, Some(Special::SetUpCounters)),           // msr pmintenset_el1, x0
            (0xd518_9e41, Some(Special::SetUpCounters)),           // msr pmintenclr_el1, x1
            (0xd53b_e040, None),                                   // mrs x0, cntvct_el0
            (0xd503_201f, None),                                   // nop
            (0xd503_207f, Some(Special::Wait)),                    // wfi
            (0xd503_205f, Some(Special::Idle)),                    // wfe
            (0xd518_2000, Some(Special::SetUpTranslation)),        // msr ttbr0_el1, x0
            (0xd518_1001, Some(Special::SetUpTranslation)),        // msr sctlr_el1, x1
            (0xd51c_2102, Some(Special::SetUpTranslation)),        // msr vttbr_el2, x2
            (0xd51c_1100, Some(Special::SetUpTranslation)),        // msr hcr_el2, x0
            (0xd508_871f, tlbi(Invalidation::Vm, false, 31)),      // tlbi vmalle1
            (0xd508_831f, tlbi(Invalidation::Vm, true, 31)),       // tlbi vmalle1is
            (0xd508_8320, tlbi(Invalidation::Address(false), true, 0)), // tlbi vae1is, x0
            (0xd508_83a1, tlbi(Invalidation::Address(true), true, 1)), // tlbi vale1is, x1
            (0xd508_8342, tlbi(Invalidation::Asid, true, 2)),      // tlbi aside1is, x2
            (0xd508_83e3, tlbi(Invalidation::AddressOfAll(true), true, 3)), // tlbi vaale1is, x3
            (0xd50c_871f, tlbi(Invalidation::El2, false, 31)),     // tlbi alle2
            (0xd50c_8324, tlbi(Invalidation::El2Address(false), true, 4)), // tlbi vae2is, x4
            (0xd50c_839f, tlbi(Invalidation::AllVms, true, 31)),   // tlbi alle1is
            (0xd50c_83df, tlbi(Invalidation::VmBothStages, true, 31)), // tlbi vmalls12e1is
            (0xd50c_8025, tlbi(Invalidation::Stage2, true, 5)),    // tlbi ipas2e1is, x5
            (0xd50c_8426, tlbi(Invalidation::Stage2, false, 6)),   // tlbi ipas2e1, x6
            (0xd50e_871f, tlbi(Invalidation::Other, false, 31)),   // tlbi alle3
            (0xd503_203f, Some(Special::Idle)),                    // yield
            (0x3dc0_0020, None),                                   // ldr q0, [x1]
        ];
        for (word, expected) in table {
            assert_eq!(decode(word), expected, "{word:#010x}");
        }
    }

    #[test]
    fn store_exclusives() {
        // stxr w3, x2, [x24]; stlxr w0, w1, [x2]; stxrb; stxp w0, x1, x2, [x3]; stlxp w0, w1, w2,
        // [x3].
        for word in [
            0xc803_7f02,
            0x8800_fc41,
            0x0800_7c41,
            0xc820_0861,
            0x8820_8861,
        ] {
            assert!(is_store_exclusive(word), "{word:#010x}");
        }
        // ldxr; ldaxr; casp x0, x1, x2, x3, [x4]; cas x0, x1, [x2]; stlr x1, [x2]; str x1, [x2].
        for word in [
            0xc85f_7f02,
            0xc85f_fc41,
            0x4820_7c82,
            0xc8a0_7c41,
            0xc89f_fc41,
            0xf900_0041,
        ] {
            assert!(!is_store_exclusive(word), "{word:#010x}");
        }
    }
}
