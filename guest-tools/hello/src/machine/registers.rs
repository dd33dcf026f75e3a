//! System registers with named fields: those of `aarch64-cpu`, and those of the PMU and the EL2 timer
//! that it lacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub use aarch64_cpu::registers::{
    CCSIDR_EL1, CLIDR_EL1, CNTFRQ_EL0, CNTHP_CTL_EL2, CNTPCT_EL0, CSSELR_EL1, ID_AA64PFR0_EL1,
    MDCR_EL2, MIDR_EL1, MPIDR_EL1, Readable, Writeable,
};
use core::arch::asm;
use tock_registers::register_bitfields;

/// Declares registers with their fields, if any.
macro_rules! registers {
    ($($fields:ty: $($name:ident)*;)*) => {$($(
        #[doc = concat!("The register ", stringify!($name), ".")]
        #[allow(non_camel_case_types)]
        pub struct $name;

        impl Readable for $name {
            type T = u64;
            type R = $fields;

            fn get(&self) -> u64 {
                let value: u64;
                // SAFETY: reading a system register has no effect on memory.
                unsafe {
                    asm!(
                        concat!("mrs {}, ", stringify!($name)),
                        out(reg) value,
                        options(nomem, nostack, preserves_flags),
                    );
                }
                value
            }
        }

        impl Writeable for $name {
            type T = u64;
            type R = $fields;

            fn set(&self, value: u64) {
                // SAFETY: the registers of the list below count and compare; none changes how EL2
                // translates.
                unsafe {
                    asm!(
                        concat!("msr ", stringify!($name), ", {}"),
                        in(reg) value,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    )*)*};
}

register_bitfields! { u64,
    /// PMCR_EL0 (Arm ARM DDI 0487, D24.5).
    pub PMCR [
        /// Number of event counters.
        N OFFSET(11) NUMBITS(5) [],
        /// The cycle counter has 64 bits.
        LC OFFSET(6) NUMBITS(1) [],
        /// Resets the cycle counter to zero.
        C OFFSET(2) NUMBITS(1) [],
        /// Resets the event counters to zero.
        P OFFSET(1) NUMBITS(1) [],
        /// Enables the counters.
        E OFFSET(0) NUMBITS(1) [],
    ]
}

registers! {
    PMCR::Register: PMCR_EL0;
    ():
        CNTHP_CVAL_EL2
        ICC_CTLR_EL1
        ICC_EOIR1_EL1
        ICC_IAR1_EL1
        ICC_IGRPEN1_EL1
        ICC_PMR_EL1
        ICC_SRE_EL2
        ICH_VTR_EL2
        PMCEID0_EL0
        PMCEID1_EL0
        PMCNTENCLR_EL0
        PMCNTENSET_EL0
        PMINTENCLR_EL1
        PMINTENSET_EL1
        PMOVSCLR_EL0
        PMOVSSET_EL0
        PMSELR_EL0
        PMXEVCNTR_EL0
        PMXEVTYPER_EL0;
}

/// Returns this core's affinity, in the format of PSCI and of board files.
pub fn affinity() -> u64 {
    use MPIDR_EL1::{Aff0, Aff1, Aff2, Aff3};
    MPIDR_EL1.get() & (Aff3.val(0xff) + Aff2.val(0xff) + Aff1.val(0xff) + Aff0.val(0xff)).value
}
