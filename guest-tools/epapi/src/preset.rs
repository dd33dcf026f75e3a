//! PAPI's preset events: their names and numbers, which are the same for all CPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The bit of all preset events: the sign.
pub const PAPI_PRESET_MASK: i32 = i32::MIN;
/// The bit of all native events. The bits below are the event's number in the PMU.
pub const PAPI_NATIVE_MASK: i32 = 0x4000_0000;
/// Not an event, and not an event set.
pub const PAPI_NULL: i32 = -1;

/// A preset event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its code.
    pub code: i32,
    /// Its name, `PAPI_TOT_CYC`.
    pub name: &'static str,
    /// What it counts.
    pub meaning: &'static str,
}

/// Defines the constants and the list. A preset's code is its position in the list.
macro_rules! presets {
    (@each $at:expr; $all:ident;) => {
        /// How many presets PAPI has.
        pub const PRESETS: usize = $at as usize;
    };
    (@each $at:expr; $all:ident; $name:ident $meaning:literal; $($rest:tt)*) => {
        #[doc = $meaning]
        pub const $name: i32 = PAPI_PRESET_MASK | $at;
        presets! { @each $at + 1; $all; $($rest)* }
    };
    ($($name:ident $meaning:literal;)*) => {
        presets! { @each 0; ALL; $($name $meaning;)* }
        /// All presets, by code.
        pub const ALL: &[Preset] = &[$(Preset { code: $name, name: stringify!($name), meaning: $meaning },)*];
    };
}

presets! {
    PAPI_L1_DCM "L1 data cache misses";
    PAPI_L1_ICM "L1 instruction cache misses";
    PAPI_L2_DCM "L2 data cache misses";
    PAPI_L2_ICM "L2 instruction cache misses";
    PAPI_L3_DCM "L3 data cache misses";
    PAPI_L3_ICM "L3 instruction cache misses";
    PAPI_L1_TCM "L1 cache misses";
    PAPI_L2_TCM "L2 cache misses";
    PAPI_L3_TCM "L3 cache misses";
    PAPI_CA_SNP "Snoops";
    PAPI_CA_SHR "Requests for a shared line";
    PAPI_CA_CLN "Requests for a clean line";
    PAPI_CA_INV "Requests to invalidate a line";
    PAPI_CA_ITV "Interventions of another cache";
    PAPI_L3_LDM "L3 load misses";
    PAPI_L3_STM "L3 store misses";
    PAPI_BRU_IDL "Cycles without a branch";
    PAPI_FXU_IDL "Cycles in which the integer units idle";
    PAPI_FPU_IDL "Cycles in which the floating-point units idle";
    PAPI_LSU_IDL "Cycles in which the load and store units idle";
    PAPI_TLB_DM "Data TLB misses";
    PAPI_TLB_IM "Instruction TLB misses";
    PAPI_TLB_TL "TLB misses";
    PAPI_L1_LDM "L1 load misses";
    PAPI_L1_STM "L1 store misses";
    PAPI_L2_LDM "L2 load misses";
    PAPI_L2_STM "L2 store misses";
    PAPI_BTAC_M "Branch target cache misses";
    PAPI_PRF_DM "Data prefetches that missed";
    PAPI_L3_DCH "L3 data cache hits";
    PAPI_TLB_SD "TLB shootdowns";
    PAPI_CSR_FAL "Failed conditional stores";
    PAPI_CSR_SUC "Successful conditional stores";
    PAPI_CSR_TOT "Conditional stores";
    PAPI_MEM_SCY "Cycles stalled for memory";
    PAPI_MEM_RCY "Cycles stalled for reads of memory";
    PAPI_MEM_WCY "Cycles stalled for writes of memory";
    PAPI_STL_ICY "Cycles without an instruction issued";
    PAPI_FUL_ICY "Cycles with the most instructions issued";
    PAPI_STL_CCY "Cycles without an instruction completed";
    PAPI_FUL_CCY "Cycles with the most instructions completed";
    PAPI_HW_INT "Hardware interrupts";
    PAPI_BR_UCN "Unconditional branches";
    PAPI_BR_CN "Conditional branches";
    PAPI_BR_TKN "Conditional branches taken";
    PAPI_BR_NTK "Conditional branches not taken";
    PAPI_BR_MSP "Conditional branches mispredicted";
    PAPI_BR_PRC "Conditional branches predicted correctly";
    PAPI_FMA_INS "Fused multiply-add instructions";
    PAPI_TOT_IIS "Instructions issued";
    PAPI_TOT_INS "Instructions completed";
    PAPI_INT_INS "Integer instructions";
    PAPI_FP_INS "Floating-point instructions";
    PAPI_LD_INS "Load instructions";
    PAPI_SR_INS "Store instructions";
    PAPI_BR_INS "Branch instructions";
    PAPI_VEC_INS "Vector instructions";
    PAPI_RES_STL "Cycles stalled for any resource";
    PAPI_FP_STAL "Cycles in which floating-point units stall";
    PAPI_TOT_CYC "Cycles";
    PAPI_LST_INS "Load and store instructions";
    PAPI_SYC_INS "Synchronization instructions";
    PAPI_L1_DCH "L1 data cache hits";
    PAPI_L2_DCH "L2 data cache hits";
    PAPI_L1_DCA "L1 data cache accesses";
    PAPI_L2_DCA "L2 data cache accesses";
    PAPI_L3_DCA "L3 data cache accesses";
    PAPI_L1_DCR "L1 data cache reads";
    PAPI_L2_DCR "L2 data cache reads";
    PAPI_L3_DCR "L3 data cache reads";
    PAPI_L1_DCW "L1 data cache writes";
    PAPI_L2_DCW "L2 data cache writes";
    PAPI_L3_DCW "L3 data cache writes";
    PAPI_L1_ICH "L1 instruction cache hits";
    PAPI_L2_ICH "L2 instruction cache hits";
    PAPI_L3_ICH "L3 instruction cache hits";
    PAPI_L1_ICA "L1 instruction cache accesses";
    PAPI_L2_ICA "L2 instruction cache accesses";
    PAPI_L3_ICA "L3 instruction cache accesses";
    PAPI_L1_ICR "L1 instruction cache reads";
    PAPI_L2_ICR "L2 instruction cache reads";
    PAPI_L3_ICR "L3 instruction cache reads";
    PAPI_L1_ICW "L1 instruction cache writes";
    PAPI_L2_ICW "L2 instruction cache writes";
    PAPI_L3_ICW "L3 instruction cache writes";
    PAPI_L1_TCH "L1 cache hits";
    PAPI_L2_TCH "L2 cache hits";
    PAPI_L3_TCH "L3 cache hits";
    PAPI_L1_TCA "L1 cache accesses";
    PAPI_L2_TCA "L2 cache accesses";
    PAPI_L3_TCA "L3 cache accesses";
    PAPI_L1_TCR "L1 cache reads";
    PAPI_L2_TCR "L2 cache reads";
    PAPI_L3_TCR "L3 cache reads";
    PAPI_L1_TCW "L1 cache writes";
    PAPI_L2_TCW "L2 cache writes";
    PAPI_L3_TCW "L3 cache writes";
    PAPI_FML_INS "Floating-point multiplications";
    PAPI_FAD_INS "Floating-point additions";
    PAPI_FDV_INS "Floating-point divisions";
    PAPI_FSQ_INS "Floating-point square roots";
    PAPI_FNV_INS "Floating-point inversions";
    PAPI_FP_OPS "Floating-point operations";
    PAPI_SP_OPS "Single-precision operations, vectors scaled";
    PAPI_DP_OPS "Double-precision operations, vectors scaled";
    PAPI_VEC_SP "Single-precision vector instructions";
    PAPI_VEC_DP "Double-precision vector instructions";
    PAPI_REF_CYC "Cycles of a reference clock";
    PAPI_HP_OPS "Half-precision operations, vectors scaled";
    PAPI_VEC_HP "Half-precision vector instructions";
}

/// Returns a preset by its code.
pub fn by_code(code: i32) -> Option<&'static Preset> {
    ALL.get(usize::try_from(code ^ PAPI_PRESET_MASK).ok()?)
}
