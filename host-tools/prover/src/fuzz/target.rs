//! The system that is attacked, as far as the fuzzer must know it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::program::{call, order};
use cloison_abi::reply::Change;
use cloison_abi::{Call, map};
use cloison_formats::guest_map::GuestMap;
use cloison_formats::ids::Core;
use cloison_formats::image::{OnFault, System, UartKind};
use cloison_formats::units::Events;
use cloison_puppet::Op;

/// Bits of an address in a page.
const OFFSET: u64 = 0xfff;

/// The system that is attacked.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its VMs.
    vms: Vec<Attacker>,
    /// Where each VM has the redistributors of its GICv3; `None` for a GICv2.
    pub redistributors: Option<u64>,
    /// Where the console's UART is, a PL011, and the core that takes its interrupt.
    pub console: Option<(u64, Core)>,
}

/// A VM of it.
#[derive(Clone, Debug)]
struct Attacker {
    map: GuestMap,
    /// It is killed for an access that is refused.
    is_mortal: bool,
    /// The largest budgets of its quotas.
    budgets: Vec<Events>,
}

impl Target {
    /// Returns what is known of a system.
    pub fn of(system: &System) -> Self {
        let gic = &system.board.gic;
        let first = system.vms.first();
        let console = &system.board.console;
        Self {
            name: system.name.clone(),
            redistributors: first.filter(|_| gic.gicr.is_some()).map(|vm| vm.map.gicc.0),
            console: first
                .filter(|_| console.kind == UartKind::Pl011)
                .map(|vm| (console.base.0, vm.cores[0])),
            vms: system
                .vms
                .iter()
                .map(|vm| Attacker {
                    map: vm.map,
                    is_mortal: vm.on_fault == OnFault::Kill,
                    budgets: vm.quotas.iter().map(|quota| quota.ceiling).collect(),
                })
                .collect(),
        }
    }

    /// Returns how many VMs it has.
    pub fn vms(&self) -> usize {
        self.vms.len()
    }

    /// Returns whether a VM is killed for an access that is refused.
    pub fn is_mortal(&self, vm: u64) -> bool {
        self.vms.get(vm as usize).is_some_and(|vm| vm.is_mortal)
    }

    /// Returns what another VM does so that a VM certainly starts again: it may have so little budget
    /// that its restart, which it pays for, takes minutes.
    pub fn revive(&self, vm: usize) -> Vec<Op> {
        let budgets = self.vms.get(vm).map_or(&[][..], |vm| &vm.budgets);
        let mut all: Vec<Op> = (0..)
            .zip(budgets)
            .map(|(number, budget)| call(Call::BudgetSet, [vm as u64, number, budget.0]))
            .collect();
        all.extend([Change::Restart, Change::Start].map(|change| order(vm as u64, change)));
        all
    }

    /// Returns an operation with the VM's own addresses: programs do not know maps.
    pub fn op(&self, vm: u64, op: Op) -> Op {
        match op {
            Op::Execute { word, mut x } => {
                x[1] = self.address(vm, x[1]);
                Op::Execute { word, x }
            }
            _ => op,
        }
    }

    /// Returns the address that a VM has for one of the usual map.
    fn address(&self, vm: u64, usual: u64) -> u64 {
        let Some(Attacker { map: here, .. }) = self.vms.get(vm as usize) else {
            return usual;
        };
        let pages = [
            (map::GICD, here.gicd),
            (map::GICC, here.gicc),
            (map::DEACTIVATE, here.gicc_dir),
            (map::UART, here.uart.base),
            (map::SERVICES, here.services),
        ];
        let mut pages = pages.into_iter();
        pages
            .find(|(page, _)| *page == usual & !OFFSET)
            .map_or(usual, |(_, page)| page.0 | usual & OFFSET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::addr::Ipa;
    use cloison_formats::guest_map::{GuestUart, GuestUartKind};
    use cloison_formats::ids::Intid;

    #[test]
    fn programs_find_the_devices_of_each_vm() {
        let map = GuestMap {
            gicd: Ipa(0xf901_0000),
            gicc: Ipa(0xf902_0000),
            gicc_dir: Ipa(0xf903_0000),
            uart: GuestUart {
                kind: GuestUartKind::Cadence,
                base: Ipa(0xff00_0000),
                irq: Intid(53),
            },
            services: Ipa(0xff00_1000),
        };
        let target = Target {
            name: "test".to_owned(),
            vms: vec![Attacker {
                map,
                is_mortal: true,
                budgets: vec![Events(70)],
            }],
            redistributors: None,
            console: None,
        };
        for (usual, here) in [
            (map::GICD + 0xffc, 0xf901_0ffc),
            (map::DEACTIVATE, 0xf903_0000),
            (map::UART + 0x18, 0xff00_0018),
            (map::SERVICES + 0x58, 0xff00_1058),
            (map::SERVICES + 0x1000, map::SERVICES + 0x1000),
            (map::RAM, map::RAM),
        ] {
            let op = |address| Op::Execute {
                word: 0xb900_0020, // str w0, [x1]
                x: [map::UART, address, 0, 0],
            };
            assert_eq!(target.op(0, op(usual)), op(here));
            assert_eq!(target.op(1, op(usual)), op(usual), "no such VM");
        }
        assert!(target.is_mortal(0) && !target.is_mortal(1));
        let revived = target.revive(0).into_iter();
        let called: Vec<_> = revived
            .filter_map(|op| match op {
                Op::Execute { x, .. } => Some(x),
                _ => None,
            })
            .collect();
        let [set, order] = [Call::BudgetSet, Call::VmOrder].map(|call| call as u64);
        assert_eq!(
            called,
            [[set, 0, 0, 70], [order, 0, 2, 0], [order, 0, 1, 0]]
        );
    }
}
