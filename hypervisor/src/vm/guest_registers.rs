//! A guest's registers: the general ones as saved by the vectors, and EL1's initial state when a
//! vCPU starts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::*;
use crate::machine::{registers, stage2, sysreg};
use crate::vm::partition::Vm;
use aarch64_cpu::registers::{CPTR_EL2, HCR_EL2, SPSR_EL2 as SPSR};

/// A guest's general registers, as saved by the vectors.
///
/// The vectors know its layout: 256 bytes, a multiple of 16, which the stack needs.
#[repr(C)]
pub struct GuestRegisters {
    /// `x0`–`x30`.
    pub x: [u64; 31],
    _pad: u64,
}

/// HCR_EL2 for guests: stage 2 on; interrupts and SErrors go to EL2; SMC, feature registers,
/// IMPLEMENTATION DEFINED registers, set/way cache operations, ACTLR, error records and limited
/// ordering regions trap; EL1 is AArch64. WFI and WFE run natively, because the core belongs to the
/// guest. FB and BSU are clear for the same reason: a vCPU never changes cores, so its own TLBI, IC
/// and barriers need not reach other cores. TERR and TLOR are RES0 where there are no such
/// registers (Arm ARM DDI 0487, D24.2, HCR_EL2). What later versions add traps with the bits that
/// are 0 here: pointer authentication (API, APK), memory tags (ATA), SCXTNUM (EnSCXT), fault
/// injection (FIEN).
const HCR: u64 = HCR_EL2::VM::Enable.value
    | HCR_EL2::SWIO::SET.value
    | HCR_EL2::PTW::SET.value
    | HCR_EL2::FMO::EnableVirtualFIQ.value
    | HCR_EL2::IMO::EnableVirtualIRQ.value
    | HCR_EL2::AMO::SET.value
    | HCR_EL2::TSC::EnableTrapEl1SmcToEl2.value
    | HCR_EL2::TID3::SET.value
    | HCR_EL2::TIDCP::SET.value
    | HCR_EL2::TACR::SET.value
    | HCR_EL2::TSW::SET.value
    | HCR_EL2::TERR::SET.value
    | HCR_EL2::TLOR::SET.value
    | HCR_EL2::RW::EL1IsAarch64.value;
/// CPTR_EL2 with E2H clear: its RES1 bits (Arm ARM DDI 0487, D24.2), of which TZ and TSM trap SVE
/// and SME where those are.
pub const CPTR_RES1: u64 = 0x33ff;
/// CPTR_EL2.TTA and TAM: trace and activity monitors trap; RES0 where there are no such registers.
const CPTR_TRAPS: u64 = 1 << 20 | CPTR_EL2::TAM::SET.value;
/// SCTLR_EL1: the bits that are RES1 in Armv8.0, MMU and caches off.
const SCTLR_RES1: u64 = 0x30d0_0800;
/// EL1h with all exceptions masked: the mode in which a vCPU starts and EL1 takes an exception.
const EL1H_MASKED: u64 = SPSR::M::EL1h.value
    | SPSR::D::Masked.value
    | SPSR::A::Masked.value
    | SPSR::I::Masked.value
    | SPSR::F::Masked.value;

/// Sets the controls of this core that always apply to its guest; once per core.
pub fn init_core() {
    set_wait_trap(false);
    // SAFETY: the format of the tables that `machine::stage2` builds; no guest has run here yet;
    // SIMD is unaffected.
    unsafe {
        registers::write_vtcr(stage2::VTCR);
        registers::write_cptr(CPTR_RES1 | CPTR_TRAPS);
    }
    // The physical timer belongs to EL2; the physical counter may be read.
    CNTHCTL_EL2.write(CNTHCTL_EL2::EL1PCTEN::SET);
    // Virtual time is physical time, so that all VMs and the log have one clock.
    CNTVOFF_EL2.set(0);
    // It traps accesses from AArch32 alone, which no guest has.
    HSTR_EL2.set(0);
    sysreg::isb();
}

/// Makes the guest's WFI trap, or not.
pub fn set_wait_trap(on: bool) {
    // SAFETY: `HCR` confines a guest as `write_hcr` requires; TWI only traps more.
    unsafe {
        registers::write_hcr(if on {
            HCR | HCR_EL2::TWI::SET.value
        } else {
            HCR
        })
    };
}

/// Continues the guest after the instruction that trapped.
///
/// All instructions of A64 have four bytes.
pub fn skip_instruction() {
    ELR_EL2.set(ELR_EL2.get().wrapping_add(4));
}

/// Continues the guest at `pc` in EL1 with all exceptions masked, and with the flags of `pstate`: an
/// exception changes none of N, Z, C and V.
pub fn enter_el1(pc: u64, pstate: u64) {
    ELR_EL2.set(pc);
    // SAFETY: the mode is EL1h; bits 31 to 28 are the flags.
    unsafe { registers::write_spsr(EL1H_MASKED | pstate & 0xf000_0000) };
}

/// Sets registers to zero.
macro_rules! zero {
    ($($register:ident)*) => { $($register.set(0);)* };
}

/// Sets EL1 and the stage-2 root to the state of a vCPU's first instruction.
pub fn reset_guest_registers(vm: &Vm, vcpu: usize, entry: u64) {
    // SAFETY: a VM's tables live as long as the hypervisor, map what its configuration grants, and
    // have its own VMID.
    unsafe { registers::write_vttbr(vm.stage2.vttbr()) };
    // The vCPU's number in its VM, whatever the affinity of its core is.
    VMPIDR_EL2.write(VMPIDR_EL2::RES1::SET + VMPIDR_EL2::Aff0.val(vcpu as u64));
    // The guest sees the CPU that it runs on: it may need workarounds for errata.
    VPIDR_EL2.set(MIDR_EL1.get());
    SCTLR_EL1.set(SCTLR_RES1);
    // A reset leaves these unknown (Arm ARM DDI 0487, D24); here nothing of a former life may be
    // left.
    zero! {
        CPACR_EL1
        TTBR0_EL1
        TTBR1_EL1
        TCR_EL1
        MAIR_EL1
        AMAIR_EL1
        VBAR_EL1
        CONTEXTIDR_EL1
        CSSELR_EL1
        MDSCR_EL1
        TPIDR_EL0
        TPIDRRO_EL0
        TPIDR_EL1
        SP_EL0
        SP_EL1
        ELR_EL1
        SPSR_EL1
        ESR_EL1
        FAR_EL1
        PAR_EL1
        CNTKCTL_EL1
        CNTV_CTL_EL0
        CNTV_CVAL_EL0
    }
    enter_el1(entry, 0);
    sysreg::isb();
}
