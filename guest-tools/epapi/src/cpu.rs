//! The presets' definitions on each CPU: sums and differences of native events, and how close they
//! are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::preset::*;
use crate::tables::{
    CORTEX_A53, CORTEX_A53_METRICS, CORTEX_A53_MIDR, CORTEX_A72, CORTEX_A72_METRICS,
    CORTEX_A72_MIDR, Metric, Native, event_of,
};
use cloison_events::EventId;

/// A CPU: its native events, and its presets.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// The name of its event table, `cortex-a53`.
    pub name: &'static str,
    /// The name that PAPI and libpfm4 have for its PMU: `arm_ac53`.
    pub pmu: &'static str,
    /// MIDR_EL1 without variant and revision.
    pub midr: u32,
    /// Its native events, by number.
    pub natives: &'static [Native],
    /// Its presets.
    pub presets: &'static [Definition],
    /// Metrics computed from its native events.
    pub metrics: &'static [Metric],
}

/// A native event of a preset, and whether its count is subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The event.
    pub event: EventId,
    /// Its count is subtracted.
    pub minus: bool,
}

/// How close a preset's count is to what its name promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// It counts that.
    Exact,
    /// It counts that and may count more: an upper bound.
    Over,
    /// It counts something near: neither a lower nor an upper bound.
    Near,
}

/// A preset as a CPU counts it.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The preset's code.
    pub preset: i32,
    /// The terms of the sum.
    pub terms: &'static [Term],
    /// How good it is.
    pub closeness: Closeness,
}

/// Defines a CPU's presets: `PAPI_TOT_INS = [+ INST_RETIRED] Exact;`.
macro_rules! definitions {
    ($table:ident; $($preset:ident = [$($sign:tt $event:ident)*] $closeness:ident;)*) => {
        &[$(Definition {
            preset: $preset,
            terms: &[$(Term {
                event: const { event_of($table, stringify!($event)) },
                minus: definitions!(@$sign),
            },)*],
            closeness: Closeness::$closeness,
        },)*]
    };
    (@+) => { false };
    (@-) => { true };
}

// Over: the stalls of MEM_SCY and RES_STL overlap; BRU_IDL takes one cycle for each branch, which
// is the least; HW_INT and BR_INS count other exceptions and changes of flow too. Near: the CPU
// counts its own speculation or its own kinds.
const A53_PRESETS: &[Definition] = definitions! { CORTEX_A53;
    PAPI_L1_DCM = [+ L1D_CACHE_REFILL] Exact;
    PAPI_L1_ICM = [+ L1I_CACHE_REFILL] Exact;
    PAPI_L2_TCM = [+ L2D_CACHE_REFILL] Exact;
    PAPI_L2_DCM = [+ L2D_CACHE_REFILL] Over;
    PAPI_L1_TCM = [+ L1I_CACHE_REFILL + L1D_CACHE_REFILL] Exact;
    PAPI_CA_SNP = [+ EXT_SNOOP] Near;
    PAPI_BRU_IDL = [+ CPU_CYCLES - BR_PRED] Over;
    PAPI_TLB_DM = [+ L1D_TLB_REFILL] Exact;
    PAPI_TLB_IM = [+ L1I_TLB_REFILL] Exact;
    PAPI_TLB_TL = [+ L1D_TLB_REFILL + L1I_TLB_REFILL] Exact;
    PAPI_MEM_SCY = [+ LD_DEP_STALL + ST_DEP_STALL + IC_DEP_STALL] Over;
    PAPI_MEM_RCY = [+ LD_DEP_STALL] Exact;
    PAPI_MEM_WCY = [+ ST_DEP_STALL] Exact;
    PAPI_HW_INT = [+ EXC_IRQ + EXC_FIQ] Exact;
    PAPI_BR_CN = [+ BR_COND] Exact;
    PAPI_BR_MSP = [+ BR_COND_MISPRED] Exact;
    PAPI_BR_PRC = [+ BR_COND - BR_COND_MISPRED] Exact;
    PAPI_TOT_INS = [+ INST_RETIRED] Exact;
    PAPI_LD_INS = [+ LD_RETIRED] Exact;
    PAPI_SR_INS = [+ ST_RETIRED] Exact;
    PAPI_BR_INS = [+ BR_PRED] Near;
    PAPI_RES_STL = [+ OTHER_IQ_DEP_STALL + IC_DEP_STALL + IUTLB_DEP_STALL + DECODE_DEP_STALL + OTHER_INTERLOCK_STALL
        + AGU_DEP_STALL + SIMD_DEP_STALL + LD_DEP_STALL + ST_DEP_STALL] Over;
    PAPI_TOT_CYC = [+ CPU_CYCLES] Exact;
    PAPI_LST_INS = [+ LD_RETIRED + ST_RETIRED] Exact;
    PAPI_L1_DCH = [+ L1D_CACHE - L1D_CACHE_REFILL] Exact;
    PAPI_L1_DCA = [+ L1D_CACHE] Exact;
    PAPI_L2_DCA = [+ L2D_CACHE] Over;
    PAPI_L1_ICH = [+ L1I_CACHE - L1I_CACHE_REFILL] Exact;
    PAPI_L1_ICA = [+ L1I_CACHE] Exact;
    PAPI_L1_ICR = [+ L1I_CACHE] Exact;
    PAPI_L1_TCH = [+ L1I_CACHE + L1D_CACHE - L1I_CACHE_REFILL - L1D_CACHE_REFILL] Exact;
    PAPI_L2_TCH = [+ L2D_CACHE - L2D_CACHE_REFILL] Over;
    PAPI_L1_TCA = [+ L1I_CACHE + L1D_CACHE] Exact;
    PAPI_L2_TCA = [+ L2D_CACHE] Exact;
};

const A72_PRESETS: &[Definition] = definitions! { CORTEX_A72;
    PAPI_L1_DCM = [+ L1D_CACHE_REFILL] Exact;
    PAPI_L1_ICM = [+ L1I_CACHE_REFILL] Exact;
    PAPI_L2_DCM = [+ L2D_CACHE_REFILL] Over;
    PAPI_L1_TCM = [+ L1I_CACHE_REFILL + L1D_CACHE_REFILL] Exact;
    PAPI_L2_TCM = [+ L2D_CACHE_REFILL] Exact;
    PAPI_BRU_IDL = [+ CPU_CYCLES - BR_PRED] Over;
    PAPI_TLB_DM = [+ L1D_TLB_REFILL] Exact;
    PAPI_TLB_IM = [+ L1I_TLB_REFILL] Exact;
    PAPI_TLB_TL = [+ L1D_TLB_REFILL + L1I_TLB_REFILL] Exact;
    PAPI_L1_LDM = [+ L1D_CACHE_REFILL_RD] Exact;
    PAPI_L1_STM = [+ L1D_CACHE_REFILL_WR] Exact;
    PAPI_L2_LDM = [+ L2D_CACHE_REFILL_RD] Exact;
    PAPI_L2_STM = [+ L2D_CACHE_REFILL_WR] Exact;
    PAPI_CSR_FAL = [+ STREX_FAIL_SPEC] Near;
    PAPI_CSR_SUC = [+ STREX_PASS_SPEC] Near;
    PAPI_CSR_TOT = [+ STREX_PASS_SPEC + STREX_FAIL_SPEC] Near;
    PAPI_HW_INT = [+ EXC_IRQ + EXC_FIQ] Exact;
    PAPI_BR_MSP = [+ BR_MIS_PRED] Near;
    PAPI_BR_PRC = [+ BR_PRED - BR_MIS_PRED] Near;
    PAPI_TOT_IIS = [+ INST_SPEC] Exact;
    PAPI_TOT_INS = [+ INST_RETIRED] Exact;
    PAPI_INT_INS = [+ DP_SPEC] Near;
    PAPI_FP_INS = [+ VFP_SPEC] Near;
    PAPI_LD_INS = [+ LD_SPEC] Near;
    PAPI_SR_INS = [+ ST_SPEC] Near;
    PAPI_BR_INS = [+ BR_PRED] Near;
    PAPI_VEC_INS = [+ ASE_SPEC] Near;
    PAPI_TOT_CYC = [+ CPU_CYCLES] Exact;
    PAPI_LST_INS = [+ LDST_SPEC] Near;
    PAPI_SYC_INS = [+ ISB_SPEC + DSB_SPEC + DMB_SPEC] Near;
    PAPI_L1_DCH = [+ L1D_CACHE - L1D_CACHE_REFILL] Exact;
    PAPI_L1_DCA = [+ L1D_CACHE] Exact;
    PAPI_L2_DCA = [+ L2D_CACHE] Over;
    PAPI_L1_DCR = [+ L1D_CACHE_RD] Exact;
    PAPI_L2_DCR = [+ L2D_CACHE_RD] Over;
    PAPI_L1_DCW = [+ L1D_CACHE_WR] Exact;
    PAPI_L2_DCW = [+ L2D_CACHE_WR] Over;
    PAPI_L1_ICH = [+ L1I_CACHE - L1I_CACHE_REFILL] Exact;
    PAPI_L1_ICA = [+ L1I_CACHE] Exact;
    PAPI_L1_ICR = [+ L1I_CACHE] Exact;
    PAPI_L1_TCH = [+ L1I_CACHE + L1D_CACHE - L1I_CACHE_REFILL - L1D_CACHE_REFILL] Exact;
    PAPI_L2_TCH = [+ L2D_CACHE - L2D_CACHE_REFILL] Over;
    PAPI_L1_TCA = [+ L1I_CACHE + L1D_CACHE] Exact;
    PAPI_L2_TCA = [+ L2D_CACHE] Exact;
    PAPI_L2_TCR = [+ L2D_CACHE_RD] Exact;
    PAPI_L2_TCW = [+ L2D_CACHE_WR] Exact;
};

/// The CPUs that are known.
pub const CPUS: &[Cpu] = &[
    Cpu {
        name: "cortex-a53",
        pmu: "arm_ac53",
        midr: CORTEX_A53_MIDR,
        natives: CORTEX_A53,
        presets: A53_PRESETS,
        metrics: CORTEX_A53_METRICS,
    },
    Cpu {
        name: "cortex-a72",
        pmu: "arm_ac72",
        midr: CORTEX_A72_MIDR,
        natives: CORTEX_A72,
        presets: A72_PRESETS,
        metrics: CORTEX_A72_METRICS,
    },
];

impl Cpu {
    /// Returns the CPU with this MIDR_EL1, whatever its variant and revision.
    pub fn by_midr(midr: u32) -> Option<&'static Self> {
        CPUS.iter().find(|cpu| cpu.midr == midr & !0x00f0_000f)
    }

    /// Returns a native event by its number in the PMU.
    pub fn native(&self, id: EventId) -> Option<&'static Native> {
        self.natives.iter().find(|native| native.id == id)
    }

    /// Returns the CPU's definition of a preset, if it has one.
    pub fn preset(&self, code: i32) -> Option<&'static Definition> {
        self.presets
            .iter()
            .find(|definition| definition.preset == code)
    }
}
