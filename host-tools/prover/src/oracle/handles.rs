//! The registers that the oracle reads, and a guest's state from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::instrument::{Moment, Names};
use cloison_formats::addr::Ipa;
use cloison_qemu::guest::Register;
use cloison_spec::confinement::{Confinement, LATER};
use cloison_spec::start;
use cloison_spec::visit::Registers;

/// Registers of EL1 and EL0 that only the guest changes.
const OTHERS: [&str; 12] = [
    "SCTLR_EL1",
    "TTBR0_EL1",
    "TTBR1_EL1",
    "TCR_EL1",
    "MAIR_EL1",
    "CPACR_EL1",
    "CONTEXTIDR_EL1",
    "TPIDR_EL0",
    "TPIDRRO_EL0",
    "TPIDR_EL1",
    "CNTKCTL_EL1",
    "MDSCR_EL1",
];

/// The handles of registers.
#[derive(Debug)]
pub struct Handles {
    /// ESR_EL2.
    pub esr: Register,
    /// FAR_EL2 and HPFAR_EL2.
    fault: [Register; 2],
    elr: Register,
    spsr: Register,
    sp: [Register; 2],
    from: [Register; 2],
    vbar: Register,
    others: Vec<Register>,
    sctlr: Register,
    zeros: Vec<(&'static str, Register)>,
    confinement: [Register; 10],
    /// MIDR_EL1, which QEMU does not show: what VPIDR_EL2 is after reset (Arm ARM, D24.2).
    midr: u64,
    vectors: Vec<Register>,
    fp: [Register; 2],
    /// VTTBR_EL2.
    pub vttbr: Register,
}

impl Handles {
    /// Finds the registers, before the hypervisor has changed any.
    ///
    /// # Errors
    ///
    /// The name of a missing one.
    pub fn find(names: &Names) -> Result<Self, String> {
        let get = |name: &str| {
            names
                .get(name)
                .ok_or_else(|| format!("this QEMU's CPU has no {name}"))
        };
        let pair = |one: &str, other: &str| Ok::<_, String>([get(one)?, get(other)?]);
        let all = |names: &[&str]| {
            names
                .iter()
                .map(|name| get(name))
                .collect::<Result<Vec<_>, _>>()
        };
        let confinement = all(&[
            "HCR_EL2",
            "VTCR_EL2",
            "VTTBR_EL2",
            "MDCR_EL2",
            "CPTR_EL2",
            "CNTHCTL_EL2",
            "CNTVOFF_EL2",
            "VMPIDR_EL2",
            "VPIDR_EL2",
            "PMCR_EL0",
        ])?;
        let confinement = confinement.try_into().map_err(|_| "10 registers")?;
        // QEMU shows no registers whose values it computes.
        let zeros = start::ZERO
            .iter()
            .filter_map(|name| Some((*name, names.get(name)?)))
            .collect();
        let vectors = (0..32).map(|number| get(&format!("v{number}")));
        Ok(Self {
            esr: get("ESR_EL2")?,
            fault: pair("FAR_EL2", "HPFAR_EL2")?,
            elr: get("ELR_EL2")?,
            spsr: get("SPSR_EL2")?,
            sp: pair("SP_EL0", "SP_EL1")?,
            from: pair("ELR_EL1", "SPSR_EL1")?,
            vbar: get("VBAR_EL1")?,
            others: all(&OTHERS)?,
            sctlr: get("SCTLR_EL1")?,
            zeros,
            midr: get("VPIDR_EL2")?.read(),
            confinement,
            vectors: vectors.collect::<Result<_, _>>()?,
            fp: pair("fpcr", "fpsr")?,
            vttbr: get("VTTBR_EL2")?,
        })
    }

    /// Returns the IPA of an abort at stage 2 (Arm ARM, "HPFAR_EL2": FIPA from bit 4 up).
    pub fn fault_ipa(&self) -> Ipa {
        let [far, hpfar] = self.fault.map(Register::read);
        Ipa(hpfar >> 4 << 12 | far & 0xfff)
    }

    /// Returns the address at which the guest was or will be.
    pub fn pc(&self) -> u64 {
        self.elr.read()
    }

    /// Returns whether the guest continues where it was, or behind that, and not in its vector.
    pub fn is_in_place(&self, pc: u64) -> bool {
        [pc, pc.wrapping_add(4)].contains(&self.elr.read())
    }

    /// Returns the mode to which EL2 returns.
    pub fn mode(&self) -> u64 {
        self.spsr.read()
    }

    /// Reads a guest's registers, while EL2 has not changed them yet, or no longer.
    pub fn guest(&self, at: &Moment<'_>) -> Registers {
        Registers {
            x: std::array::from_fn(|number| at.x(number as u32)),
            pc: self.elr.read(),
            pstate: self.spsr.read(),
            sp: self.sp.map(Register::read),
            from: self.from.map(Register::read),
            vectors: self.vbar.read(),
            others: self.others.iter().map(|other| other.read()).collect(),
        }
    }

    /// Reads what confines the guest. `written` is what EL2 last wrote to HCR_EL2, MDCR_EL2 and
    /// CPTR_EL2, of which a CPU may not keep all.
    pub fn confinement(&self, written: [u64; 3]) -> Confinement {
        let [
            hcr,
            vtcr,
            vttbr,
            mdcr,
            cptr,
            cnthctl,
            cntvoff,
            vmpidr,
            vpidr,
            pmcr,
        ] = self.confinement.map(Register::read);
        let [later_hcr, later_mdcr, later_cptr] = std::array::from_fn(|at| written[at] & LATER[at]);
        Confinement {
            hcr: hcr | later_hcr,
            vtcr,
            vttbr,
            mdcr: mdcr | later_mdcr,
            cptr: cptr | later_cptr,
            cnthctl,
            cntvoff,
            vmpidr,
            vpidr,
            midr: self.midr,
            counters: pmcr >> 11 & 31,
        }
    }

    /// Reads SCTLR_EL1.
    pub fn sctlr(&self) -> u64 {
        self.sctlr.read()
    }

    /// Reads the registers that are zero at a vCPU's first instruction.
    pub fn zeros(&self) -> Vec<(&'static str, u64)> {
        let read = |(name, register): &(&'static str, Register)| (*name, register.read());
        self.zeros.iter().map(read).collect()
    }

    /// Reads the FP and SIMD registers, and FPCR and FPSR.
    pub fn vectors(&self) -> (Vec<[u64; 2]>, [u64; 2]) {
        let vectors = self.vectors.iter().map(|one| one.read_wide()).collect();
        (vectors, self.fp.map(Register::read))
    }
}
