//! A guest's view of the CPU's feature registers (Arm ARM DDI 0487, D24.2, ID_AA64*).
//!
//! A guest sees the fields that the table names, as the CPU has them. The other fields read as 0,
//! which means that the feature is absent: AArch32 (all of its registers), EL2 and EL3, trace,
//! vectors longer than 128 bits, pointer authentication, limited ordering regions, virtualization.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::syndrome::FeatureRead;
use cloison_formats::image::GuestPmu;

/// EL0 and EL1: AArch64 only. EL0 is in bits \[3:0\], EL1 in \[7:4\]; 1 is AArch64 only, 2 also
/// AArch32.
const ONLY_AARCH64: u64 = 0x11;
/// Two breakpoints and two watchpoints, the fewest that can be reported; none of them does
/// anything. BRPs is in bits \[15:12\] and WRPs in \[23:20\], each as the number less one; 0 is
/// reserved.
const FEWEST_BREAKPOINTS: u64 = 1 << 12 | 1 << 20;
/// PMUv3 of Armv8.0.
const PMUV3: u64 = 1 << 8;

/// CRm and op2 of ID_AA64DFR0_EL1.
const DFR0: (u8, u8) = (5, 0);

/// Returns the mask of the fields of four bits that start at `lowest`.
const fn fields(lowest: &[u32]) -> u64 {
    match lowest {
        [first, rest @ ..] => 0xf << *first | fields(rest),
        [] => 0,
    }
}

/// By CRm and op2: what is kept, and what is set.
const TABLE: [((u8, u8), u64, u64); 7] = [
    // ISAR0: all.
    ((6, 0), u64::MAX, 0),
    // PFR0: FP, AdvSIMD, GIC, DIT, CSV2, CSV3.
    ((4, 0), fields(&[16, 20, 24, 48, 56, 60]), ONLY_AARCH64),
    // DebugVer.
    (DFR0, fields(&[0]), FEWEST_BREAKPOINTS),
    // ISAR1: DPB, JSCVT, FCMA, LRCPC.
    ((6, 1), fields(&[0, 12, 16, 20]), 0),
    // MMFR0: all but ExS, FGT and ECV.
    ((7, 0), fields(&[0, 4, 8, 12, 16, 20, 24, 28]), 0),
    // MMFR1: HAFDBS, HPDS, PAN.
    ((7, 1), fields(&[0, 12, 20]), 0),
    // MMFR2: CnP, UAO, LSM, IESB.
    ((7, 2), fields(&[0, 4, 8, 12]), 0),
];

/// The values of a guest's feature registers.
pub struct Features([u64; 64]);

impl Features {
    /// Returns what a guest with this PMU reads where `read` reads the CPU's own
    /// S3_0_C0_C`crm`_`op2`. On boards whose cores differ, that is what the core has that
    /// builds the VMs.
    pub fn new(pmu: GuestPmu, read: impl Fn(u8, u8) -> u64) -> Self {
        let mut views = [0; 64];
        for ((crm, op2), kept, set) in TABLE {
            let has_counters = pmu != GuestPmu::None && (crm, op2) == DFR0;
            let counters = if has_counters { PMUV3 } else { 0 };
            views[index(crm, op2)] = read(crm, op2) & kept | set | counters;
        }
        Self(views)
    }

    /// Returns what the guest reads. Kernels read ISAR0 fifty thousand times before their random
    /// numbers are seeded.
    pub const fn get(&self, read: FeatureRead) -> u64 {
        self.0[index(read.crm, read.op2)]
    }
}

/// Returns the position of a register in the list: they are numbered by CRm and op2.
const fn index(crm: u8, op2: u8) -> usize {
    (crm as usize & 7) << 3 | op2 as usize & 7
}

/// Returns whether a core is coherent with the others, as far as it shows that, by its implementer
/// and part number (MIDR_EL1): CPUECTLR_EL1.SMPEN of the Cortex-A53, A57 and A72, which the
/// firmware must set. `read` reads CPUACTLR_EL1 and CPUECTLR_EL1 of these cores; an emulator has
/// neither and shows both as 0.
pub fn is_coherent(implementer: u64, part: u64, read: impl FnOnce() -> [u64; 2]) -> bool {
    /// CPUECTLR_EL1.SMPEN: the core takes part in coherency.
    const SMPEN: u64 = 1 << 6;
    /// MIDR_EL1.Implementer of Arm Limited.
    const ARM: u64 = 0x41;
    // The part numbers of the Cortex-A53, A57 and A72, in this order.
    if implementer != ARM || ![0xd03, 0xd07, 0xd08].contains(&part) {
        return true;
    }
    let [cpuactlr, cpuectlr] = read();
    cpuactlr == 0 && cpuectlr == 0 || cpuectlr & SMPEN != 0
}

/// Returns ID_AA64PFR0_EL1 without a GICv3's system registers.
pub const fn without_gic(pfr0: u64) -> u64 {
    pfr0 & !(0xf << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_whose_firmware_left_it_incoherent_is_told_apart() {
        let a53 = |read: [u64; 2]| is_coherent(0x41, 0xd03, || read);
        // Erratum 855873's bit in CPUACTLR_EL1 tells a core from an emulator.
        assert!(!a53([1 << 44, 0]) && !a53([0, 1]) && a53([1 << 44, 0x40]));
        assert!(a53([0, 0]), "QEMU");
        assert!(!is_coherent(0x41, 0xd08, || [1, 0x3f]));
        // No other core has these registers.
        for (implementer, part) in [(0x41, 0xd0c), (0x41, 0xd0b), (0, 0xd03)] {
            assert!(
                is_coherent(implementer, part, || unreachable!("they are not read")),
                "{part:#x}"
            );
        }
    }

    fn view((crm, op2): (u8, u8), pmu: GuestPmu, cpu: u64) -> u64 {
        Features::new(pmu, |_, _| cpu).get(FeatureRead {
            crm,
            op2,
            register: 0,
        })
    }

    #[test]
    fn a_guest_sees_what_the_table_keeps_and_nothing_else() {
        // A CPU with everything.
        let table = [
            ((4, 0), 0xff0f_0000_0fff_0011),
            ((5, 0), 0x0000_0000_0010_100f),
            ((6, 0), u64::MAX),
            ((6, 1), 0x00ff_f00f),
            ((7, 0), 0xffff_ffff),
            ((7, 1), 0x00f0_f00f),
            ((7, 2), 0xffff),
        ];
        for (register, expected) in table {
            assert_eq!(
                view(register, GuestPmu::None, u64::MAX),
                expected,
                "{register:?}"
            );
        }
        // And one with nothing.
        assert_eq!(
            [
                view((4, 0), GuestPmu::None, 0),
                view((5, 0), GuestPmu::None, 0),
                view((7, 2), GuestPmu::None, 0)
            ],
            [0x11, 0x0010_1000, 0]
        );
    }

    #[test]
    fn the_pmu_is_there_for_guests_that_have_one() {
        // The CPU's own version (bits 11 to 8) is no matter.
        assert_eq!(view((5, 0), GuestPmu::Emulated, 0x0000_0406), 0x0010_1106);
        assert_eq!(view((5, 0), GuestPmu::None, 0x0000_0406), 0x0010_1006);
        assert_eq!(view((4, 0), GuestPmu::Emulated, 0), 0x11);
    }

    #[test]
    fn each_register_shows_its_own_and_all_others_read_zero() {
        for (crm, op2) in (0..8).flat_map(|crm| (0..8).map(move |op2| (crm, op2))) {
            let features = Features::new(GuestPmu::Emulated, |own, other| {
                if (own, other) == (crm, op2) {
                    u64::MAX
                } else {
                    0
                }
            });
            let nothing = Features::new(GuestPmu::Emulated, |_, _| 0);
            for (n, none) in nothing.0.iter().enumerate() {
                let row = TABLE.iter().find(|(own, ..)| index(own.0, own.1) == n);
                let all = row.map_or(
                    0,
                    |(_, kept, _)| if n == index(crm, op2) { *kept } else { 0 },
                );
                assert_eq!(
                    (features.0[n], row.is_none() && *none != 0),
                    (none | all, false),
                    "{crm}, {op2}: {n}"
                );
            }
        }
    }
}
