//! A guest's registers: how the vectors save the general ones, and what EL1 holds when a vCPU starts.

use crate::machine::{stage2, sysreg};
use crate::vm::partition::Vm;
use aarch64_cpu::registers::{CNTHCTL_EL2, HCR_EL2, SPSR_EL2};

/// A guest's general registers, as the vectors save them.
#[repr(C)]
pub struct GuestRegisters {
    /// `x0`–`x30`.
    pub x: [u64; 31],
    _pad: u64,
}

/// HCR_EL2 for guests: stage 2, interrupts and SErrors to EL2; SMC, feature registers, IMPLEMENTATION DEFINED registers,
/// set/way cache operations and ACTLR trapped; AArch64 EL1. WFI and WFE run natively: the core is the guest's own.
pub const HCR: u64 = HCR_EL2::VM::Enable.value
    | HCR_EL2::SWIO::SET.value
    | HCR_EL2::PTW::SET.value
    | HCR_EL2::FMO::EnableVirtualFIQ.value
    | HCR_EL2::IMO::EnableVirtualIRQ.value
    | HCR_EL2::AMO::SET.value
    | HCR_EL2::FB::SET.value
    | HCR_EL2::BSU::InnerShareable.value
    | HCR_EL2::TSC::EnableTrapEl1SmcToEl2.value
    | HCR_EL2::TID3::SET.value
    | HCR_EL2::TIDCP::SET.value
    | HCR_EL2::TACR::SET.value
    | HCR_EL2::TSW::SET.value
    | HCR_EL2::RW::EL1IsAarch64.value;
/// CPTR_EL2: its RES1 bits; nothing traps.
const CPTR: u64 = 0x33ff;
/// SCTLR_EL1: the RES1 bits of Armv8.0, MMU and caches off.
const GUEST_SCTLR: u64 = 0x30d0_0800;
/// EL1h, all exceptions masked: how a vCPU starts, and how EL1 takes an exception.
pub const EL1H_MASKED: u64 = SPSR_EL2::M::EL1h.value
    | SPSR_EL2::D::Masked.value
    | SPSR_EL2::A::Masked.value
    | SPSR_EL2::I::Masked.value
    | SPSR_EL2::F::Masked.value;

/// Controls of this core that hold for its guest all the time; once per core.
pub fn init_core() {
    sysreg::write!("hcr_el2", HCR);
    sysreg::write!("vtcr_el2", stage2::VTCR);
    sysreg::write!("cptr_el2", CPTR);
    // The physical timer is EL2's, the physical counter may be read.
    sysreg::write!("cnthctl_el2", CNTHCTL_EL2::EL1PCTEN::SET.value);
    sysreg::write!("cntvoff_el2", 0);
    sysreg::write!("hstr_el2", 0);
    sysreg::isb();
}

/// EL1 and the stage-2 root as a vCPU finds them at its first instruction.
pub fn reset_guest_registers(vm: &Vm, vcpu: usize, entry: u64) {
    sysreg::write!("vttbr_el2", vm.stage2.vttbr());
    sysreg::write!("vmpidr_el2", 1 << 31 | vcpu as u64);
    sysreg::write!("vpidr_el2", sysreg::read!("midr_el1"));
    sysreg::write!("sctlr_el1", GUEST_SCTLR);
    sysreg::write!("cpacr_el1", 0);
    sysreg::write!("ttbr0_el1", 0);
    sysreg::write!("ttbr1_el1", 0);
    sysreg::write!("tcr_el1", 0);
    sysreg::write!("mair_el1", 0);
    sysreg::write!("amair_el1", 0);
    sysreg::write!("vbar_el1", 0);
    sysreg::write!("contextidr_el1", 0);
    sysreg::write!("tpidr_el0", 0);
    sysreg::write!("tpidrro_el0", 0);
    sysreg::write!("tpidr_el1", 0);
    sysreg::write!("sp_el0", 0);
    sysreg::write!("sp_el1", 0);
    sysreg::write!("elr_el1", 0);
    sysreg::write!("spsr_el1", 0);
    sysreg::write!("esr_el1", 0);
    sysreg::write!("far_el1", 0);
    sysreg::write!("par_el1", 0);
    sysreg::write!("csselr_el1", 0);
    sysreg::write!("mdscr_el1", 0);
    sysreg::write!("cntkctl_el1", 0);
    sysreg::write!("cntv_ctl_el0", 0);
    sysreg::write!("cntv_cval_el0", 0);
    sysreg::write!("elr_el2", entry);
    sysreg::write!("spsr_el2", EL1H_MASKED);
    sysreg::isb();
}
