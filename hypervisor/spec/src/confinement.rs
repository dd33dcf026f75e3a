//! The registers that confine a guest (docs/architecture.md, "Trust"; bits: Arm ARM DDI 0487, D24.2
//! "General system control registers", D24.3 "Debug registers").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use cloison_formats::addr::PhysAddr;
use cloison_formats::image::{GuestPmu, IPA_BITS, System};

/// The registers of a core that is about to enter its guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// HCR_EL2.
    pub hcr: u64,
    /// VTCR_EL2.
    pub vtcr: u64,
    /// VTTBR_EL2.
    pub vttbr: u64,
    /// MDCR_EL2.
    pub mdcr: u64,
    /// CPTR_EL2.
    pub cptr: u64,
    /// CNTHCTL_EL2.
    pub cnthctl: u64,
    /// CNTVOFF_EL2.
    pub cntvoff: u64,
    /// VMPIDR_EL2.
    pub vmpidr: u64,
    /// VPIDR_EL2.
    pub vpidr: u64,
    /// MIDR_EL1, as EL2 reads it.
    pub midr: u64,
    /// PMCR_EL0.N: the CPU's event counters.
    pub counters: u64,
}

/// Bits of a register: some that are set, some that are clear.
struct Bits {
    rule: Rule,
    name: &'static str,
    /// Bits that must be 1.
    set: u64,
    /// Bits that must be 0. Those in neither are not looked at: they confine nothing here, or
    /// depend on the CPU.
    clear: u64,
}

impl Bits {
    fn check(&self, value: u64) -> Checked {
        if value & self.set == self.set && value & self.clear == 0 {
            return Ok(());
        }
        // The value that would be right, so that the report shows only the bits that matter.
        let expected = value & !self.clear | self.set;
        Err(Difference::of_register(
            self.rule, self.name, expected, value,
        ))
    }
}

/// Bits of HCR_EL2, MDCR_EL2 and CPTR_EL2 that CPUs without the feature do not keep, and which must
/// be written all the same: HCR_EL2.TLOR and TERR (limited ordering regions, error records),
/// MDCR_EL2.TPMS and TTRF (statistical profiling, trace filters), CPTR_EL2.TAM (activity monitors).
pub const LATER: [u64; 3] = [bits(&[35, 36]), bits(&[14, 19]), bits(&[30])];

/// Returns the mask of these bits, by their numbers as the manual has them.
const fn bits(numbers: &[u32]) -> u64 {
    let (mut all, mut at) = (0, 0);
    while at < numbers.len() {
        all |= 1 << numbers[at];
        at += 1;
    }
    all
}

/// HCR_EL2. Set: VM, the walk of stage 1 does not read devices (PTW), FMO, IMO and AMO (EL2 takes
/// every interrupt and SError), TSC ("no SMC reaches the firmware"), TID3 (feature registers), TIDCP
/// (IMPLEMENTATION DEFINED registers), TACR, TSW (set/way), RW (AArch64). Clear: VF, VI, VSE
/// (nothing is injected but by list registers), FB, BSU, DC, TWE (WFE is native), TVM, TGE, HCD,
/// TRVM, CD, ID, E2H.
const HCR: Bits = Bits {
    rule: Rule::Hcr,
    name: "HCR_EL2",
    set: bits(&[0, 2, 3, 4, 5, 18, 19, 20, 21, 22, 31]) | LATER[0],
    clear: bits(&[6, 7, 8, 12, 14, 27, 29, 32, 33, 34]),
};
/// MDCR_EL2: TDA, TDOSA, TDRA (debug, OS lock and ROM registers).
const MDCR: Bits = Bits {
    rule: Rule::Mdcr,
    name: "MDCR_EL2",
    set: bits(&[9, 10, 11]) | LATER[1],
    clear: bits(&[8]),
};
/// MDCR_EL2.TPM and TPMCR: the PMU traps.
const MDCR_PMU: u64 = bits(&[5, 6]);
/// CPTR_EL2: TTA (trace). Clear: TCPAC and TFP (floating point is native).
const CPTR: Bits = Bits {
    rule: Rule::Traps,
    name: "CPTR_EL2",
    set: bits(&[20]) | LATER[2],
    clear: bits(&[10, 31]),
};
/// CNTHCTL_EL2: EL1PCTEN (the physical counter can be read); EL1PCEN is clear (the physical timer
/// belongs to the hypervisor).
const CNTHCTL: Bits = Bits {
    rule: Rule::Traps,
    name: "CNTHCTL_EL2",
    set: bits(&[0]),
    clear: bits(&[1]),
};
/// VTCR_EL2: T0SZ for 39 bits, SL0 = 1 (start at level 1), walks write-back inner shareable
/// (IRGN0, ORGN0, SH0), TG0 = 0 (4 KiB). PS and bit 31, which is RES1, and HA, HD, VS are not part.
const VTCR: (u64, u64) = (
    0xffff,
    (64 - IPA_BITS as u64) | 1 << 6 | 1 << 8 | 1 << 10 | 3 << 12,
);

/// Checks the registers with which a vCPU of a VM runs.
///
/// # Errors
///
/// The first register that is wrong.
pub fn check(system: &System, vm: usize, vcpu: usize, found: &Confinement) -> Checked {
    check_root(vm, found)?;
    HCR.check(found.hcr)?;
    MDCR.check(found.mdcr)?;
    CPTR.check(found.cptr)?;
    CNTHCTL.check(found.cnthctl)?;
    if found.cntvoff != 0 {
        let (rule, name) = (Rule::Traps, "CNTVOFF_EL2");
        return Err(Difference::of_register(rule, name, 0, found.cntvoff));
    }
    check_pmu(system, vm, vcpu, found)?;
    // Bit 31 of MPIDR_EL1 is RES1.
    let affinity = 1 << 31 | vcpu as u64;
    if found.vmpidr != affinity {
        let (rule, name) = (Rule::Identity, "VMPIDR_EL2");
        return Err(Difference::of_register(rule, name, affinity, found.vmpidr));
    }
    if found.vpidr != found.midr {
        let (rule, name) = (Rule::Identity, "VPIDR_EL2");
        return Err(Difference::of_register(rule, name, found.midr, found.vpidr));
    }
    Ok(())
}

/// Checks the format of the tables and the VMID. Which table VTTBR_EL2 points to is checked where
/// the tables are read.
fn check_root(vm: usize, found: &Confinement) -> Checked {
    let vmid = found.vttbr >> 48;
    if vmid != vm as u64 + 1 {
        return Err(Difference::new(
            Rule::Root,
            "VTTBR_EL2",
            format!("VMID {}", vm + 1),
            format!("{:#x}", found.vttbr),
        ));
    }
    let (mask, value) = VTCR;
    if found.vtcr & mask != value {
        let expected = found.vtcr & !mask | value;
        return Err(Difference::of_register(
            Rule::Root,
            "VTCR_EL2",
            expected,
            found.vtcr,
        ));
    }
    Ok(())
}

/// Checks which counters the guest reaches: none without traps, unless its PMU is direct; then
/// those below HPMN, which are not those of the core's quotas and segments.
fn check_pmu(system: &System, vm: usize, vcpu: usize, found: &Confinement) -> Checked {
    let config = &system.vms[vm];
    if config.pmu != GuestPmu::Direct {
        if found.mdcr & MDCR_PMU == MDCR_PMU {
            return Ok(());
        }
        let expected = found.mdcr | MDCR_PMU;
        return Err(Difference::of_register(
            Rule::Mdcr,
            "MDCR_EL2",
            expected,
            found.mdcr,
        ));
    }
    let quotas = config
        .quotas
        .iter()
        .filter(|quota| quota.vcpu.index() == vcpu);
    let counted: usize = quotas.map(|quota| quota.counted().count()).sum();
    let reserved = counted * system.board.counters_per_event();
    let most = found.counters.saturating_sub(reserved as u64);
    // HPMN = 0 is not defined in Armv8.0, and would leave no counter to the guest.
    let hpmn = found.mdcr & 31;
    if hpmn == 0 || hpmn > most {
        return Err(Difference::new(
            Rule::Mdcr,
            "MDCR_EL2.HPMN",
            format!("1 to {most}"),
            hpmn.to_string(),
        ));
    }
    Ok(())
}

/// Returns where VTTBR_EL2 says that the first table is.
pub const fn root(vttbr: u64) -> PhysAddr {
    PhysAddr(vttbr & 0xffff_ffff_f000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn good() -> Confinement {
        Confinement {
            hcr: HCR.set,
            vtcr: VTCR.1 | 2 << 16 | 1 << 31,
            vttbr: 1 << 48 | fixture::OWN,
            mdcr: MDCR.set | MDCR_PMU | 1 << 7 | 4,
            cptr: 0x33ff | CPTR.set,
            cnthctl: 1,
            cntvoff: 0,
            vmpidr: 1 << 31 | 1,
            vpidr: 0x410f_d034,
            midr: 0x410f_d034,
            counters: 6,
        }
    }

    #[test]
    fn each_bit_matters() {
        let system = fixture::system();
        let checked = |found: &Confinement| check(&system, 0, 1, found).err().map(|it| it.rule);
        assert_eq!(checked(&good()), None);
        for bit in 0..64u32 {
            let flip = |value: u64| value ^ 1 << bit;
            let mut found = good();
            found.hcr = flip(found.hcr);
            let matters = (HCR.set | HCR.clear) >> bit & 1 == 1;
            assert_eq!(
                checked(&found),
                matters.then_some(Rule::Hcr),
                "HCR bit {bit}"
            );
            let mut found = good();
            found.mdcr = flip(found.mdcr);
            let matters = (MDCR.set | MDCR.clear | MDCR_PMU) >> bit & 1 == 1;
            assert_eq!(
                checked(&found),
                matters.then_some(Rule::Mdcr),
                "MDCR bit {bit}"
            );
            let mut found = good();
            found.vttbr = flip(found.vttbr);
            assert_eq!(
                checked(&found),
                (bit >= 48).then_some(Rule::Root),
                "VTTBR bit {bit}"
            );
            let mut found = good();
            found.vtcr = flip(found.vtcr);
            assert_eq!(
                checked(&found),
                (bit < 16).then_some(Rule::Root),
                "VTCR bit {bit}"
            );
            let mut found = good();
            found.vmpidr = flip(found.vmpidr);
            assert_eq!(checked(&found), Some(Rule::Identity), "VMPIDR bit {bit}");
        }
        for (found, rule) in [
            (
                Confinement {
                    cntvoff: 1,
                    ..good()
                },
                Rule::Traps,
            ),
            (
                Confinement {
                    cnthctl: 3,
                    ..good()
                },
                Rule::Traps,
            ),
            (
                Confinement {
                    cptr: 0x33ff,
                    ..good()
                },
                Rule::Traps,
            ),
            (Confinement { vpidr: 0, ..good() }, Rule::Identity),
        ] {
            assert_eq!(checked(&found), Some(rule));
        }
        assert_eq!(root(good().vttbr), PhysAddr(fixture::OWN));
    }

    #[test]
    fn a_direct_pmu_ends_below_the_counters_of_quotas() {
        let mut system = fixture::system();
        system.vms[0].pmu = GuestPmu::Direct;
        let direct = |hpmn: u64| Confinement {
            mdcr: MDCR.set | 1 << 7 | hpmn,
            vmpidr: 1 << 31,
            ..good()
        };
        let checked = |hpmn| check(&system, 0, 0, &direct(hpmn)).is_ok();
        assert!(!checked(0) && checked(1) && checked(5) && !checked(6));
    }
}
