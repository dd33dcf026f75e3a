//! The PMU (PMUv3, Arm ARM DDI 0487, chapter D13): event counters that only EL2 can access.
//!
//! Quotas use counters from the top, observation segments from the bottom. MDCR_EL2.HPMN sets the
//! quotas' counters apart, and TPM traps every access by a guest as well: an emulator that honors
//! HPMN only in part must not let a guest stop its own quota.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::{self, *};
use crate::machine::sysreg;
use aarch64_cpu::registers::MDCR_EL2;
use cloison_formats::image::GuestPmu;
use cloison_formats::units::EventId;
use cloison_logic::quota::Counters;
use cloison_logic::vpmu::PhysicalPmu;

/// MDCR_EL2 without HPMN: traps debug, OS lock and ROM registers, and enables the counters from
/// HPMN on. TTRF and TPMS trap trace filters and statistical profiling, and are RES0 where there is
/// neither (Arm ARM DDI 0487, D24.3); E2PB and E2TB, which are 0, trap the buffers of both.
const MDCR: u64 = MDCR_EL2::HPME::SET.value
    | MDCR_EL2::TDA::SET.value
    | MDCR_EL2::TDOSA::SET.value
    | MDCR_EL2::TDRA::SET.value
    | MDCR_EL2::TTRF::SET.value
    | MDCR_EL2::TPMS::SET.value;
/// Traps the PMU, too.
const TRAPS: u64 = MDCR_EL2::TPMCR::SET.value | MDCR_EL2::TPM::SET.value;

/// This core's PMU.
pub struct Pmu;

impl Counters for Pmu {
    // Through PMSELR_EL0: the number of a counter is part of the encoding in PMEVCNTR<n>_EL0, so
    // that each counter would need its own instruction.
    fn get(&self, counter: u32) -> u32 {
        let _selected = Selected::new(counter);
        PMXEVCNTR_EL0.get() as u32
    }

    fn set(&self, counter: u32, value: u32) {
        let _selected = Selected::new(counter);
        PMXEVCNTR_EL0.set(value.into());
    }
}

impl PhysicalPmu for Pmu {
    fn set_type(&self, counter: u32, value: u32) {
        let _selected = Selected::new(counter);
        PMXEVTYPER_EL0.set(value.into());
    }

    fn cycles(&self) -> u64 {
        PMCCNTR_EL0.get()
    }

    fn set_cycles(&self, value: u64) {
        PMCCNTR_EL0.set(value);
    }

    fn set_cycle_filter(&self, value: u32) {
        PMCCFILTR_EL0.set(value.into());
    }

    fn enable(&self, on: u32, off: u32) {
        // Off before on, where a mask has a counter in both.
        PMCNTENCLR_EL0.set(off.into());
        PMCNTENSET_EL0.set(on.into());
        sysreg::isb();
    }

    fn interrupts(&self, on: u32, off: u32) {
        PMINTENCLR_EL1.set(off.into());
        PMINTENSET_EL1.set(on.into());
        sysreg::isb();
    }

    fn overflows(&self) -> u32 {
        // Reads of PMOVSCLR and PMOVSSET return the same flags.
        PMOVSCLR_EL0.get() as u32
    }

    fn change_overflows(&self, set: u32, clear: u32) {
        PMOVSCLR_EL0.set(clear.into());
        PMOVSSET_EL0.set(set.into());
        sysreg::isb();
    }

    fn allow_user(&self, value: u32) {
        PMUSERENR_EL0.set(value.into());
    }

    fn identity(&self) -> u32 {
        PMCR_EL0.get() as u32
    }

    fn common_events(&self, which: u32) -> u64 {
        if which == 0 {
            PMCEID0_EL0.get()
        } else {
            PMCEID1_EL0.get()
        }
    }
}

/// A counter that is selected, and what a guest with a direct PMU had selected before.
struct Selected(u64);

impl Selected {
    /// Selects a counter for PMXEVTYPER_EL0 and PMXEVCNTR_EL0, and keeps the guest's selection. The
    /// ISB makes the selection take effect first.
    fn new(counter: u32) -> Self {
        let before = PMSELR_EL0.get();
        PMSELR_EL0.set(counter.into());
        sysreg::isb();
        Self(before)
    }
}

impl Drop for Selected {
    fn drop(&mut self) {
        // The guest's selection is part of its state, although EL2 uses the register too.
        PMSELR_EL0.set(self.0);
    }
}

/// Returns the number of event counters of this core.
pub fn counters() -> u32 {
    PMCR_EL0.read(PMCR::N) as u32
}

/// Initializes this core's PMU: everything stopped, the counters from the first `guests` on set
/// apart. Only a guest that has the PMU `Direct` accesses its counters without a trap.
///
/// Called twice for each core: once with all counters, to try the overflow interrupt, and then with
/// the division that holds for good.
pub fn init_core(guests: u32, pmu: GuestPmu) {
    // Armv8.0 leaves HPMN = 0 undefined. Counters below HPMN still belong to the hypervisor, by
    // TPM.
    let available = u64::from(guests.max(1));
    let traps = if pmu == GuestPmu::Direct && guests > 0 {
        0
    } else {
        TRAPS
    };
    // SAFETY: `MDCR` traps what the contract requires; HPMN is not above the number of counters.
    // Where the PMU does not trap, the image's check ensures that HPMN is all counters, or that
    // the board keeps those above it from the guest.
    unsafe { registers::write_mdcr(MDCR | traps | MDCR_EL2::HPMN.val(available).value) };
    // Firmware may have left counters on, the cycle counter too (bit 31).
    stop(u32::MAX);
    Pmu.change_overflows(0, u32::MAX);
    // E is for counters below HPMN, HPME for those above. P and C reset values; LC makes the cycle
    // counter overflow at 64 bits.
    PMCR_EL0.write(PMCR::E::SET + PMCR::P::SET + PMCR::C::SET + PMCR::LC::SET);
    Pmu.allow_user(0);
    // Count at EL1 and EL0 only: all filter bits zero.
    Pmu.set_cycle_filter(0);
    sysreg::isb();
}

/// Gives the guest's part of the PMU, whose counters have been reset, the state after power-on.
/// PMCR_EL0.P, written at EL2, would reset those of quotas, too (Arm ARM DDI 0487, D24.5).
pub fn hand_over() {
    PMCR_EL0.write(PMCR::LC::SET);
    PMSELR_EL0.set(0);
}

/// Returns whether an overflow raises this core's interrupt, which `is_pending` looks for. No
/// counter runs yet.
pub fn raises_interrupt(is_pending: impl Fn() -> bool) -> bool {
    Pmu.interrupts(1, 0);
    Pmu.change_overflows(1, 0);
    // The interrupt is level-sensitive, so it stays pending while the flag is set. A hundred reads
    // give it time to arrive.
    let raised = (0..100).any(|_| is_pending());
    stop(1);
    Pmu.change_overflows(0, 1);
    raised
}

/// Sets a counter's event (at EL1 and EL0), and its value to zero.
pub fn configure(counter: u32, event: EventId) {
    // The filter bits are 0: EL1 and EL0 count, EL2 does not (PMEVTYPER.NSH).
    Pmu.set_type(counter, event.0.into());
    Pmu.set(counter, 0);
}

/// Stops counters, and disables their interrupts.
pub fn stop(mask: u32) {
    Pmu.enable(0, mask);
    Pmu.interrupts(0, mask);
}

/// Clears the overflow flags of these counters. Returns which were set.
///
/// An overflow between the two accesses keeps its flag: only those that were read are cleared.
pub fn take_overflows(mask: u32) -> u32 {
    let flags = Pmu.overflows() & mask;
    Pmu.change_overflows(0, flags);
    flags
}
