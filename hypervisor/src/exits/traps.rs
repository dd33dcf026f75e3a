//! What a guest traps on: emulated devices, system registers, and accesses to what it does not have.

use crate::exits::hypercall;
use crate::machine::stage2::Page;
use crate::machine::sysreg;
use crate::vm::cpu::Cpu;
use crate::vm::guest_registers::{EL1H_MASKED, GuestRegisters};
use crate::vm::partition::Vm;
use crate::vm::{life, uart, virq, vpmu};
use cloison_abi::map;
use cloison_formats::addr::Ipa;
use cloison_formats::telemetry::ExitReason;
use cloison_logic::syndrome::Width;
use cloison_logic::vpmu::Register;

/// Exception classes (Arm ARM DDI 0487, D24.2.40, ESR_EL2.EC).
mod class {
    use aarch64_cpu::registers::ESR_EL2::EC::Value;

    pub const WFX: u64 = Value::TrappedWFIorWFE as u64;
    pub const HVC64: u64 = Value::HVC64 as u64;
    pub const SMC64: u64 = Value::SMC64 as u64;
    pub const SYSTEM_REGISTER: u64 = Value::TrappedMsrMrs as u64;
    pub const INSTRUCTION_ABORT: u64 = Value::InstrAbortLowerEL as u64;
    pub const INSTRUCTION_ABORT_SAME: u64 = Value::InstrAbortCurrentEL as u64;
    pub const DATA_ABORT: u64 = Value::DataAbortLowerEL as u64;
    pub const DATA_ABORT_SAME: u64 = Value::DataAbortCurrentEL as u64;
}

/// Serves a synchronous exception from the guest.
#[inline(always)]
pub fn dispatch(cpu: &'static Cpu, registers: &mut GuestRegisters) {
    let Some(vm) = cpu.vm else { return };
    let esr = sysreg::read!("esr_el2");
    match esr >> 26 {
        class::HVC64 => {
            cpu.count_exit(ExitReason::Hypercall);
            hypercall::dispatch(cpu, vm, registers);
        }
        class::DATA_ABORT => data_abort(cpu, vm, registers, esr),
        _ => rare(cpu, vm, registers, esr),
    }
}

#[inline(never)]
fn rare(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters, esr: u64) {
    match esr >> 26 {
        class::SMC64 => {
            cpu.count_exit(ExitReason::Hypercall);
            // Unlike HVC, a trapped SMC returns to itself.
            skip_instruction();
            hypercall::dispatch(cpu, vm, registers);
        }
        class::SYSTEM_REGISTER => {
            cpu.count_exit(ExitReason::SystemRegister);
            system_register(cpu, vm, registers, esr);
        }
        class::INSTRUCTION_ABORT => {
            cpu.count_exit(ExitReason::Memory);
            if !retry(vm, fault_ipa()) {
                forbidden(cpu, vm, esr, "instruction fetch");
            }
        }
        // It is executed again, and then waits.
        class::WFX => {
            cpu.count_exit(ExitReason::Wait);
            uart::print_unfinished_line(cpu, vm);
        }
        _ => {
            cpu.count_exit(ExitReason::Other);
            undefined();
        }
    }
}

fn skip_instruction() {
    sysreg::write!("elr_el2", sysreg::read!("elr_el2").wrapping_add(4));
}

/// IPA of the page that a stage-2 fault was about (HPFAR_EL2), with the offset from FAR_EL2.
#[inline(always)]
fn fault_ipa() -> Ipa {
    Ipa((sysreg::read!("hpfar_el2") >> 4 << 12) | (sysreg::read!("far_el2") & 0xfff))
}

#[inline(always)]
fn data_abort(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters, esr: u64) {
    let ipa = fault_ipa();
    // ISV: the syndrome describes the access.
    let described = esr >> 24 & 1 == 1;
    if described && ipa.page_base().0 == map::GICD {
        cpu.count_exit(ExitReason::Distributor);
        let offset = ipa.0 as u16 & 0xfff;
        let register = (esr >> 16 & 31) as usize;
        let width = Width::from_sas(esr >> 22);
        let done = if esr >> 6 & 1 == 0 {
            virq::read(cpu, vm, offset, width).map(|value| set_register(registers, register, u64::from(value)))
        } else {
            virq::write(cpu, vm, offset, width, register_value(registers, register) as u32)
        };
        if done.is_ok() {
            skip_instruction();
            return;
        }
    }
    other_data_abort(cpu, vm, registers, esr, ipa, described);
}

#[inline(always)]
fn set_register(registers: &mut GuestRegisters, register: usize, value: u64) {
    // 31 is the zero register.
    if let Some(slot) = registers.x.get_mut(register) {
        *slot = value;
    }
}

#[inline(always)]
fn register_value(registers: &GuestRegisters, register: usize) -> u64 {
    registers.x.get(register).copied().unwrap_or(0)
}

#[inline(never)]
fn other_data_abort(
    cpu: &'static Cpu,
    vm: &'static Vm,
    registers: &mut GuestRegisters,
    esr: u64,
    ipa: Ipa,
    described: bool,
) {
    if described && emulated_device(cpu, vm, registers, esr, ipa) {
        cpu.count_exit(ExitReason::Device);
        skip_instruction();
        return;
    }
    cpu.count_exit(ExitReason::Memory);
    if retry(vm, ipa) {
        return;
    }
    forbidden(cpu, vm, esr, if esr >> 6 & 1 == 1 { "write" } else { "read" });
}

/// Serves an access to the UART or the services page; whether it was one.
fn emulated_device(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters, esr: u64, ipa: Ipa) -> bool {
    let (offset, register, is_read) = (ipa.0 as u16 & 0xfff, (esr >> 16 & 31) as usize, esr >> 6 & 1 == 0);
    match ipa.page_base().0 {
        map::UART if is_read => set_register(registers, register, u64::from(uart::read(cpu, vm, offset))),
        map::UART => uart::write(cpu, vm, offset, register_value(registers, register) as u32),
        map::SERVICES if vm.spec.services_page => {
            let whole = Width::from_sas(esr >> 22) == Width::Double;
            if is_read {
                set_register(registers, register, if whole { hypercall::page_read(cpu, vm, offset) } else { 0 });
            } else if whole {
                hypercall::page_write(cpu, vm, offset, register_value(registers, register));
            }
        }
        _ => return false,
    }
    true
}

/// A stage-2 fault on a page that is mapped (again), or is being moved: the access is repeated once it is there.
fn retry(vm: &Vm, ipa: Ipa) -> bool {
    loop {
        match vm.stage2.page(ipa) {
            Page::Absent => return false,
            // Only a translation fault can have met the page while it was away; RAM allows everything else.
            Page::Mapped(_) => return sysreg::read!("esr_el2") & 0x3c == 0x04,
            Page::Moving => core::hint::spin_loop(),
        }
    }
}

/// The guest touched what it does not have: it takes an external abort, or its VM ends.
fn forbidden(cpu: &'static Cpu, vm: &'static Vm, esr: u64, what: &str) {
    if life::kills(vm) {
        life::kill(
            cpu,
            format_args!("{what} of unmapped IPA {} (virtual address {:#x})", fault_ipa(), sysreg::read!("far_el2")),
        );
    }
    let from_el0 = sysreg::read!("spsr_el2") & 0xf == 0;
    let class: u64 = match (esr >> 26, from_el0) {
        (class::INSTRUCTION_ABORT, true) => class::INSTRUCTION_ABORT,
        (class::INSTRUCTION_ABORT, false) => class::INSTRUCTION_ABORT_SAME,
        (_, true) => class::DATA_ABORT,
        (_, false) => class::DATA_ABORT_SAME,
    };
    sysreg::write!("far_el1", sysreg::read!("far_el2"));
    // 32-bit instruction, synchronous external abort, WnR as it was.
    inject(class << 26 | 1 << 25 | esr & 1 << 6 | 0x10);
}

/// The guest executed what does not exist for it.
fn undefined() {
    inject(1 << 25);
}

/// Has the guest take a synchronous exception to EL1 with this syndrome (Arm ARM DDI 0487, D1.3).
fn inject(esr: u64) {
    let spsr = sysreg::read!("spsr_el2");
    let offset = match spsr & 0xf {
        0x0 => 0x400,
        0x4 => 0x000,
        _ => 0x200,
    };
    sysreg::write!("esr_el1", esr);
    sysreg::write!("elr_el1", sysreg::read!("elr_el2"));
    sysreg::write!("spsr_el1", spsr);
    sysreg::write!("elr_el2", sysreg::read!("vbar_el1").wrapping_add(offset));
    sysreg::write!("spsr_el2", EL1H_MASKED);
}

/// System registers by (op0, op1, CRn, CRm, op2), as the trap's syndrome packs them.
const fn encoding(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
    op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1
}

/// The fields of the syndrome that [`encoding`] covers.
const ENCODING_MASK: u64 = encoding(3, 7, 15, 15, 7);
const PMUSERENR_EL0: u64 = encoding(3, 3, 9, 14, 0);
/// Debug registers of EL1: op0 = 2, op1 = 0.
const DEBUG: u64 = encoding(2, 0, 0, 0, 0);
const DEBUG_MASK: u64 = encoding(3, 7, 0, 0, 0);
const ACTLR_EL1: u64 = encoding(3, 0, 1, 0, 1);
/// DC ISW, CSW and CISW.
const SET_WAY: [u64; 3] = [encoding(1, 0, 7, 6, 2), encoding(1, 0, 7, 10, 2), encoding(1, 0, 7, 14, 2)];

/// Feature registers, CRm 1 to 7 (op0 = 3, op1 = 0, CRn = 0).
const FEATURES: u64 = encoding(3, 0, 0, 0, 0);
const FEATURES_MASK: u64 = encoding(3, 7, 15, 8, 0);

/// A mask of four-bit fields of a feature register, by the fields' lowest bits.
const fn fields<const N: usize>(lowest: [u32; N]) -> u64 {
    let (mut mask, mut n) = (0, 0);
    while n < N {
        mask |= 0xf << lowest[n];
        n += 1;
    }
    mask
}

/// What a guest reads from a feature register: what the CPU says, in the fields that are named here. The rest is 0, which
/// says that it is not there: AArch32 (all of its registers), EL2 and EL3, PMU, trace, vectors longer than 128 bits,
/// pointer authentication, limited ordering regions, virtualization (Arm ARM DDI 0487, D24.2).
fn feature_register(register: u64, pmu: bool) -> u64 {
    const PFR0: u64 = encoding(3, 0, 0, 4, 0);
    const DFR0: u64 = encoding(3, 0, 0, 5, 0);
    const ISAR0: u64 = encoding(3, 0, 0, 6, 0);
    const ISAR1: u64 = encoding(3, 0, 0, 6, 1);
    const MMFR0: u64 = encoding(3, 0, 0, 7, 0);
    const MMFR1: u64 = encoding(3, 0, 0, 7, 1);
    const MMFR2: u64 = encoding(3, 0, 0, 7, 2);
    /// EL0 and EL1: AArch64 only.
    const ONLY_AARCH64: u64 = 0x11;
    /// Two breakpoints and two watchpoints, the fewest that can be said; none of them does anything.
    const FEWEST_BREAKPOINTS: u64 = 1 << 12 | 1 << 20;
    /// PMUv3 of Armv8.0.
    const PMUV3: u64 = 1 << 8;
    match register {
        // FP, AdvSIMD, DIT, CSV2, CSV3.
        PFR0 => ONLY_AARCH64 | sysreg::read!("id_aa64pfr0_el1") & fields([16, 20, 48, 56, 60]),
        // DebugVer.
        DFR0 => FEWEST_BREAKPOINTS | if pmu { PMUV3 } else { 0 } | sysreg::read!("id_aa64dfr0_el1") & fields([0]),
        ISAR0 => sysreg::read!("id_aa64isar0_el1"),
        // DPB, JSCVT, FCMA, LRCPC.
        ISAR1 => sysreg::read!("id_aa64isar1_el1") & fields([0, 12, 16, 20]),
        // All but ExS, FGT and ECV.
        MMFR0 => sysreg::read!("id_aa64mmfr0_el1") & 0xffff_ffff,
        // HAFDBS, HPDS, PAN.
        MMFR1 => sysreg::read!("id_aa64mmfr1_el1") & fields([0, 12, 20]),
        // CnP, UAO, LSM, IESB.
        MMFR2 => sysreg::read!("id_aa64mmfr2_el1") & fields([0, 4, 8, 12]),
        _ => 0,
    }
}

/// The register of the PMU with this encoding.
fn pmu_register(encoding: u64) -> Option<Register> {
    let field = |shift: u32, bits: u64| encoding >> shift & ((1 << bits) - 1);
    (field(20, 2) == 3).then(|| Register::decode(field(14, 3), field(10, 4), field(1, 4), field(17, 3))).flatten()
}

fn system_register(cpu: &Cpu, vm: &Vm, registers: &mut GuestRegisters, esr: u64) {
    let is_read = esr & 1 == 1;
    let register = (esr >> 5 & 31) as usize;
    let encoding = esr & ENCODING_MASK;
    if encoding & FEATURES_MASK == FEATURES && is_read {
        set_register(registers, register, feature_register(encoding, vm.spec.pmu));
        skip_instruction();
    } else if let Some(found) = pmu_register(encoding).filter(|_| vm.spec.pmu) {
        let value = vpmu::access(cpu, vm, found, (!is_read).then(|| register_value(registers, register)));
        if is_read {
            set_register(registers, register, value);
        }
        skip_instruction();
    // EL1's debug registers and ACTLR: nothing behind them. Kernels turn EL0's access to the PMU off
    // before they ask whether there is one.
    } else if encoding & DEBUG_MASK == DEBUG || encoding == ACTLR_EL1 || encoding == PMUSERENR_EL0 {
        if is_read {
            set_register(registers, register, 0);
        }
        skip_instruction();
    } else if SET_WAY.contains(&encoding) {
        // Set/way operations reach other VMs' lines, so they are not carried out. Memory is coherent between a VM's
        // vCPUs without them; before a guest turns its caches off it needs maintenance by address.
        skip_instruction();
    } else {
        undefined();
    }
}
