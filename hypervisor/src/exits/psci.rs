//! PSCI for guests (Arm DEN 0022), limited to their own vCPUs and their own VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::vm::cpu::Visit;
use crate::vm::life;
use crate::vm::partition::Vm;
use cloison_abi::{SMCCC_VERSION, psci};
use cloison_formats::addr::Ipa;
use cloison_logic::power::State;

/// Version 1.1, of PSCI as of the SMC Calling Convention.
pub const VERSION: i64 = 0x1_0001;
/// MIGRATE_INFO_TYPE: no Trusted OS that would have to be migrated.
const NO_TRUSTED_OS: i64 = 2;

/// Handles a call of PSCI or of the SMC Calling Convention itself; returns `None` for others. No
/// call of a guest reaches the firmware.
pub fn call(visit: Visit, function: u32, [x1, x2, x3]: [u64; 3]) -> Option<i64> {
    let vm = visit.vm;
    // Bit 30 of a function tells the two forms apart (Arm DEN 0028, 2.5).
    // The 32-bit forms take 32-bit arguments.
    let wide = function >> 30 & 1 == 1;
    let narrow = |value: u64| if wide { value } else { value & 0xffff_ffff };
    Some(match function {
        psci::VERSION => VERSION,
        // These three do not return.
        psci::CPU_OFF => life::cpu_off(visit),
        psci::SYSTEM_OFF => life::off(visit),
        psci::SYSTEM_RESET => life::restart(visit),
        // A standby state: equivalent to the guest's WFI.
        psci::CPU_SUSPEND_32 | psci::CPU_SUSPEND_64 => psci::SUCCESS,
        psci::CPU_ON_32 | psci::CPU_ON_64 => match target(vm, narrow(x1)) {
            None => psci::INVALID_PARAMETERS,
            // The entry is in RAM, and aligned as A64 requires. The context is the guest's own.
            Some(_) if !vm.has_ram(Ipa(narrow(x2))) || x2 & 3 != 0 => psci::INVALID_ADDRESS,
            Some(vcpu) => match vm.power_on(vcpu, Ipa(narrow(x2)), narrow(x3)) {
                Ok(()) => psci::SUCCESS,
                // Two vCPUs may turn on the same one at once: one of them claims it, and the other
                // is told how far that is.
                Err(State::Claimed | State::Pending) => psci::ON_PENDING,
                Err(State::On | State::Leaving) => psci::ALREADY_ON,
                // The VM is about to end or to restart, and the caller to stop.
                Err(State::Off) => psci::INTERNAL_FAILURE,
            },
        },
        psci::AFFINITY_INFO_32 | psci::AFFINITY_INFO_64 => match target(vm, narrow(x1)) {
            // Affinity level 0 alone: a VM has no clusters that could be on or off.
            Some(vcpu) if narrow(x2) == 0 => match vm.power.state(vcpu) {
                State::On | State::Leaving => 0,
                State::Off => 1,
                State::Claimed | State::Pending => 2,
            },
            _ => psci::INVALID_PARAMETERS,
        },
        psci::MIGRATE_INFO_TYPE => NO_TRUSTED_OS,
        SMCCC_VERSION => VERSION,
        psci::FEATURES => match narrow(x1) as u32 {
            known if psci::ALL.contains(&known) || known == SMCCC_VERSION => psci::SUCCESS,
            _ => psci::NOT_SUPPORTED,
        },
        _ => return None,
    })
}

/// Returns the vCPU of an affinity; only the VM's own vCPUs have one, numbered from 0.
///
/// The numbers are those of the guest's MPIDR_EL1 (VMPIDR_EL2), in affinity level 0.
fn target(vm: &Vm, affinity: u64) -> Option<usize> {
    (affinity < vm.vcpus.len() as u64).then_some(affinity as usize)
}
