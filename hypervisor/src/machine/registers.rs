//! System registers with named fields: those of `aarch64-cpu`, those that it lacks, and those that
//! confine a guest.
//!
//! The re-exported registers are safe to write: they hold a guest's state, count, or keep time.
//! Registers that control how EL2 or a guest translates and traps have an `unsafe fn` here, and no
//! other module writes them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use aarch64_cpu::registers as cpu;
pub use aarch64_cpu::registers::{
    AMAIR_EL1, CCSIDR_EL1, CLIDR_EL1, CNTFRQ_EL0, CNTHCTL_EL2, CNTHP_CTL_EL2, CNTKCTL_EL1,
    CNTPCT_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVOFF_EL2, CONTEXTIDR_EL1, CPACR_EL1, CSSELR_EL1,
    ELR_EL1, ELR_EL2, ESR_EL1, ESR_EL2, FAR_EL1, FAR_EL2, HPFAR_EL2, ID_AA64DFR0_EL1,
    ID_AA64ISAR0_EL1, ID_AA64ISAR1_EL1, ID_AA64MMFR0_EL1, ID_AA64MMFR1_EL1, ID_AA64MMFR2_EL1,
    ID_AA64PFR0_EL1, MAIR_EL1, MDSCR_EL1, MIDR_EL1, MPIDR_EL1, PAR_EL1, Readable, SCTLR_EL1,
    SP_EL0, SP_EL1, SPSR_EL1, SPSR_EL2, TCR_EL1, TPIDR_EL0, TPIDR_EL1, TPIDR_EL2, TPIDRRO_EL0,
    TTBR0_EL1, TTBR1_EL1, VBAR_EL1, VMPIDR_EL2, Writeable,
};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use core::arch::asm;
use tock_registers::register_bitfields;

/// Declares registers that `aarch64-cpu` lacks, with their fields, if any.
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
                // SAFETY: the registers of the list below count, compare, or identify a guest's
                // CPU; none changes how EL2 translates or what its memory holds.
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
        /// Enables the counters below HPMN.
        E OFFSET(0) NUMBITS(1) [],
    ],
    /// DCZID_EL0 (D24.2) as a whole, so that `DZP`, which forbids DC ZVA, is included.
    pub DCZID [
        /// The size that DC ZVA clears, and whether it may be used.
        ALL OFFSET(0) NUMBITS(5) [Bytes64 = 4],
    ]
}

registers! {
    DCZID::Register: DCZID_EL0;
    PMCR::Register: PMCR_EL0;
    ():
        // CPUACTLR_EL1 and CPUECTLR_EL1 of the Cortex-A53, A57 and A72.
        S3_1_C15_C2_0
        S3_1_C15_C2_1
        CNTHP_CVAL_EL2
        HSTR_EL2
        VPIDR_EL2
        PMCCFILTR_EL0
        PMCCNTR_EL0
        PMCEID0_EL0
        PMCEID1_EL0
        PMCNTENCLR_EL0
        PMCNTENSET_EL0
        PMINTENCLR_EL1
        PMINTENSET_EL1
        PMOVSCLR_EL0
        PMOVSSET_EL0
        PMSELR_EL0
        PMUSERENR_EL0
        PMXEVCNTR_EL0
        PMXEVTYPER_EL0;
}

// A GICv3's, for EL2 and for its guest (Arm IHI 0069H, 12.2 and 12.4).
#[cfg(feature = "gicv3")]
registers! {
    ():
        ICC_CTLR_EL1
        ICC_DIR_EL1
        ICC_EOIR1_EL1
        ICC_IAR1_EL1
        ICC_IGRPEN1_EL1
        ICC_PMR_EL1
        ICC_SGI1R_EL1
        ICC_SRE_EL2
        ICH_AP0R0_EL2
        ICH_AP1R0_EL2
        ICH_EISR_EL2
        ICH_ELRSR_EL2
        ICH_HCR_EL2
        ICH_LR0_EL2
        ICH_LR1_EL2
        ICH_LR2_EL2
        ICH_LR3_EL2
        ICH_VMCR_EL2;
}

/// Defines writes that require a contract.
macro_rules! unsafe_writes {
    ($($(#[$contract:meta])* $name:ident: $register:ident;)*) => {$(
        $(#[$contract])*
        pub unsafe fn $name(value: u64) {
            cpu::$register.set(value);
        }
    )*};
}

unsafe_writes! {
    /// Writes HCR_EL2.
    ///
    /// # Safety
    /// VM, IMO, FMO, AMO and TSC must be set: stage 2 translates whatever a guest runs, and its
    /// interrupts and calls come to EL2. E2H and TGE must be clear: the vectors and EL2's tables
    /// are those of a plain EL2.
    write_hcr: HCR_EL2;
    /// Writes VTCR_EL2.
    ///
    /// # Safety
    /// It must describe the format of the tables passed to [`write_vttbr`], and no guest may have
    /// run on this core yet.
    write_vtcr: VTCR_EL2;
    /// Writes VTTBR_EL2.
    ///
    /// # Safety
    /// The root must belong to tables that live as long as the guest runs, and map only frames and
    /// devices of its VM. The VMID must be the VM's own, so that no TLB entry of another VM
    /// matches.
    write_vttbr: VTTBR_EL2;
    /// Writes CPTR_EL2.
    ///
    /// # Safety
    /// TFP must be clear if EL2's own code uses the SIMD registers; this image's does not.
    write_cptr: CPTR_EL2;
    /// Writes MDCR_EL2.
    ///
    /// # Safety
    /// TDA, TDOSA and TDRA must be set, so that a guest cannot access debug registers that affect
    /// EL2; and TPM and TPMCR, unless HPMN keeps the counters of quotas and segments from the
    /// guest.
    write_mdcr: MDCR_EL2;
    /// Writes SPSR_EL2.
    ///
    /// # Safety
    /// The mode must be one of EL1 or EL0, so that the next exception return enters a guest at
    /// ELR_EL2, not EL2 itself.
    write_spsr: SPSR_EL2;
}

/// Returns a core's affinity, in the format of PSCI and of board files.
pub fn affinity() -> u64 {
    use MPIDR_EL1::{Aff0, Aff1, Aff2, Aff3};
    MPIDR_EL1.get() & (Aff3.val(0xff) + Aff2.val(0xff) + Aff1.val(0xff) + Aff0.val(0xff)).value
}

/// Translates an address by the running guest's own tables, as a read by EL1 does, which may read
/// all that EL0 executes. Returns the page (Arm ARM DDI 0487, D8.15 "Address translation
/// instructions").
pub fn translate(va: u64) -> Option<Ipa> {
    let guests = PAR_EL1.get();
    // SAFETY: AT reads tables through stage 2, which keeps its walk from devices (HCR_EL2.PTW), and
    // writes PAR_EL1 only.
    unsafe {
        asm!(
            "
            at      s1e1r, {va}
            isb
            ",
            va = in(reg) va,
            options(nostack, preserves_flags),
        );
    }
    let found = PAR_EL1.extract();
    PAR_EL1.set(guests);
    (!found.is_set(PAR_EL1::F)).then(|| Ipa(found.read(PAR_EL1::PA) * PAGE_SIZE))
}
