//! List registers of a core that enters its guest (GICv2, IHI 0048B, 5.3 "GIC virtual interface
//! control registers"; docs/architecture.md, "Interrupts").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use cloison_abi::irq;
use cloison_formats::ids::VmId;
use cloison_formats::image::System;

/// Interrupts below this number are a core's own: SGIs and PPIs.
const PRIVATE: u32 = 32;
/// SGIs.
const SGIS: u32 = 16;

/// A list register: GICH_LRn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRegister(pub u32);

impl ListRegister {
    /// Returns whether it holds an interrupt: bits 29 and 28, pending and active.
    pub const fn is_used(self) -> bool {
        self.0 >> 28 & 3 != 0
    }
    /// Returns the interrupt that the guest sees.
    pub const fn interrupt(self) -> u32 {
        self.0 & 0x3ff
    }
    /// Returns the physical interrupt that its end deactivates.
    pub const fn physical(self) -> Option<u32> {
        if self.0 >> 31 == 1 {
            Some(self.0 >> 10 & 0x3ff)
        } else {
            None
        }
    }
}

/// Returns whether a VM may see an interrupt.
///
/// SGIs, the timer's and the UART's interrupts are in every VM; a doorbell's and those of links in
/// the VMs that have them.
fn is_vms(system: &System, id: VmId, number: u32) -> bool {
    let vm = &system.vms[id.index()];
    let pmu = vm.pmu_irq(system.board.guest_pmu_irq());
    let mut links = system.links_of(id);
    number < SGIS
        || [irq::VTIMER, irq::BUDGET, vm.map.uart.irq.0].contains(&number)
        || pmu.is_some_and(|own| own.0 == number)
        || vm.irqs.iter().any(|own| own.0 == number)
        || number == irq::DOORBELL && system.doorbell(id).is_some()
        || links.any(|(_, link, end)| link.ends[end].irq.0 == number)
}

/// Checks GICH_HCR and the list registers of a core of a VM.
///
/// # Errors
///
/// The first register that is wrong.
pub fn check(system: &System, vm: usize, control: u32, lists: &[ListRegister]) -> Checked {
    // GICH_HCR.En: without it, the guest would get no interrupt at all.
    if control & 1 == 0 {
        return Err(Difference::new(
            Rule::ListOn,
            "GICH_HCR",
            "bit 0 set",
            format!("{control:#x}"),
        ));
    }
    let config = &system.vms[vm];
    let used = |list: &&ListRegister| list.is_used();
    for (at, list) in lists.iter().enumerate().filter(|(_, list)| list.is_used()) {
        let place = || format!("GICH_LR{at} of a core of VM {vm}");
        let found = || format!("{:#010x}", list.0);
        let number = list.interrupt();
        if lists[..at]
            .iter()
            .filter(used)
            .any(|other| other.interrupt() == number)
        {
            return Err(Difference::new(
                Rule::ListTwice,
                place(),
                format!("interrupt {number} in one list register"),
                found(),
            ));
        }
        // A virtual interrupt that has a physical one has its number; an SPI is one that the
        // configuration passes through, and EL2's own PPIs reach no guest.
        let physical = list.physical();
        let is_own = is_vms(system, VmId(vm as u8), number);
        let is_same = physical.is_none_or(|physical| {
            physical == number
                && (config.irqs.iter().any(|own| own.0 == physical)
                    || (SGIS..PRIVATE).contains(&physical))
        });
        if !is_own || !is_same {
            return Err(Difference::new(
                Rule::ListOwner,
                place(),
                "an interrupt of the VM, with its own physical interrupt or none",
                found(),
            ));
        }
    }
    Ok(())
}

/// Checks the virtual interface of a core at its vCPU's first instruction: GICH_VMCR, GICH_APR and the
/// list registers. SGIs may wait that were sent while the vCPU was about to start.
///
/// # Errors
///
/// The first register that has something of a former life.
pub fn check_start(vmcr: u32, apr: u32, lists: &[ListRegister]) -> Checked {
    // Bits 31 to 27: the priority mask. Bits 9 to 0: EOImode, CBPR, FIQEn, AckCtl and the enables.
    // Binary points have a minimum that depends on the CPU.
    const SETTINGS: u32 = 0xf800_03ff;
    let registers = [("GICH_VMCR", vmcr, vmcr & SETTINGS), ("GICH_APR", apr, apr)];
    for (name, value, left) in registers {
        if left != 0 {
            let (expected, found) = ((value & !left).into(), value.into());
            return Err(Difference::of_register(
                Rule::ListStart,
                name,
                expected,
                found,
            ));
        }
    }
    let is_left = |list: &&ListRegister| {
        let is_active = list.0 >> 29 & 1 == 1;
        list.is_used() && (is_active || (SGIS..PRIVATE).contains(&list.interrupt()))
    };
    match lists.iter().find(is_left) {
        None => Ok(()),
        Some(list) => Err(Difference::new(
            Rule::ListStart,
            "a list register",
            "no active interrupt, and none of the core's own devices",
            format!("{:#010x}", list.0),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use cloison_formats::addr::Ipa;
    use cloison_formats::channel::{Doorbell, Trigger};
    use cloison_formats::ids::Intid;
    use cloison_formats::link::{Link, LinkEnd, LinkKind};
    use cloison_formats::units::Nanos;

    const PENDING: u32 = 1 << 28;
    const HARDWARE: u32 = 1 << 31;

    fn rule(control: u32, lists: &[u32]) -> Option<Rule> {
        let lists: Vec<ListRegister> = lists.iter().copied().map(ListRegister).collect();
        let checked = check(&fixture::system(), 0, control, &lists);
        checked.err().map(|difference| difference.rule)
    }

    #[test]
    fn a_vms_interrupts_pass_and_others_do_not() {
        assert_eq!(
            rule(
                1,
                &[
                    PENDING | 3,
                    PENDING | 27,
                    PENDING | HARDWARE | 40 << 10 | 40
                ]
            ),
            None
        );
        assert_eq!(rule(0, &[]), Some(Rule::ListOn));
        assert_eq!(
            rule(1, &[PENDING | 27, 0, PENDING | 27]),
            Some(Rule::ListTwice)
        );
        // One of them ended.
        assert_eq!(rule(1, &[27, 0, PENDING | 27]), None);
        assert_eq!(rule(1, &[PENDING | 41]), Some(Rule::ListOwner));
        assert_eq!(
            rule(1, &[PENDING | HARDWARE | 41 << 10 | 40]),
            Some(Rule::ListOwner)
        );
        assert_eq!(
            rule(1, &[PENDING | HARDWARE | 33 << 10 | 33]),
            Some(Rule::ListOwner)
        );
        assert_eq!(rule(1, &[PENDING | 26]), Some(Rule::ListOwner));
    }

    #[test]
    fn doorbells_and_links_have_their_interrupts_where_they_are() {
        let mut system = fixture::system();
        let is_found = |system: &System, number| {
            let lists = [ListRegister(PENDING | number)];
            check(system, 0, 1, &lists).is_ok()
        };
        assert!(!is_found(&system, 48) && !is_found(&system, irq::DOORBELL));
        let end = |vm, irq| LinkEnd {
            vm: VmId(vm),
            ipa: Ipa(0xb00_0000),
            irq: Intid(irq),
        };
        system.links.push(Link {
            name: "wire".into(),
            kind: LinkKind::Net,
            ends: [end(0, 48), end(1, 49)],
        });
        system.doorbells.push(Doorbell {
            vm: VmId(0),
            trigger: Trigger::Edge,
            burst: 1,
            interval: Nanos(1),
        });
        assert!(is_found(&system, 48) && is_found(&system, irq::DOORBELL));
        assert!(!is_found(&system, 49), "the peer's");
    }

    #[test]
    fn a_first_instruction_finds_nothing_of_a_former_life() {
        let rule = |vmcr, apr, list| {
            let checked = check_start(vmcr, apr, &[ListRegister(0), ListRegister(list)]);
            checked.err().map(|difference| difference.rule)
        };
        let binary_points = 3 << 18 | 2 << 21;
        assert_eq!(rule(binary_points, 0, PENDING | 3), None);
        assert_eq!(rule(0, 0, PENDING | HARDWARE | 40 << 10 | 40), None);
        assert_eq!(rule(1, 0, 0), Some(Rule::ListStart));
        assert_eq!(rule(0xf800_0000, 0, 0), Some(Rule::ListStart));
        assert_eq!(rule(0, 1 << 20, 0), Some(Rule::ListStart));
        assert_eq!(rule(0, 0, PENDING | 27), Some(Rule::ListStart));
        assert_eq!(rule(0, 0, 1 << 29 | 3), Some(Rule::ListStart));
    }
}
