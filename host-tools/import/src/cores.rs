//! Gives each VM cores that no other one has.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::{Cores, Draft};
use cloison_config::BoardFile;
use cloison_config::problem::count;

/// Returns the numbers of the bits of a mask.
pub fn bits(mask: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}

/// Returns how many cores a board must have for all VMs.
pub fn needed(draft: &Draft) -> usize {
    let highest = |mask: u64| 64 - u64::from(mask.leading_zeros());
    let each = draft.vms.iter().map(|vm| match vm.cores {
        Cores::These(mask) | Cores::Rest(mask) | Cores::SomeOf(_, mask) => highest(mask),
        Cores::Some(_) => 0,
    });
    let sum: u64 = draft
        .vms
        .iter()
        .map(|vm| match vm.cores {
            Cores::These(mask) => u64::from(mask.count_ones()),
            Cores::Some(count) | Cores::SomeOf(count, _) => count.min(64),
            Cores::Rest(_) => 1,
        })
        .sum();
    each.max().unwrap_or(0).max(sum) as usize
}

/// Assigns cores to the VMs, in their order.
pub fn assign(draft: &mut Draft, board: &BoardFile) -> Vec<Vec<u64>> {
    let mut free: Vec<u64> = (0..board.board.cores.len() as u64).collect();
    let mut assigned: Vec<Vec<u64>> = vec![Vec::new(); draft.vms.len()];
    let wishes: Vec<Cores> = draft.vms.iter().map(|vm| vm.cores).collect();
    // Those that name their cores come first.
    for (cores, wish) in assigned.iter_mut().zip(&wishes) {
        let (mask, most) = match *wish {
            Cores::These(mask) => (mask, 64),
            Cores::SomeOf(most, mask) => (mask, most),
            Cores::Some(_) | Cores::Rest(_) => continue,
        };
        for core in bits(mask).take(usize::try_from(most).unwrap_or(64)) {
            if let Some(at) = free.iter().position(|known| *known == core) {
                cores.push(free.remove(at));
            }
        }
    }
    for (number, wish) in wishes.iter().enumerate() {
        let wanted = match *wish {
            Cores::These(mask) => u64::from(mask.count_ones()),
            Cores::Some(count) | Cores::SomeOf(count, _) => count,
            Cores::Rest(_) => continue,
        };
        let cores = &mut assigned[number];
        let had = cores.len();
        while (cores.len() as u64) < wanted && !free.is_empty() {
            cores.push(free.remove(0));
        }
        let vm = &draft.vms[number];
        let (place, name, has) = (vm.place, vm.name.clone(), cores.len());
        if (has as u64) < wanted && has > 0 {
            let reason = format!(
                "{wanted} vCPUs, {} for them: a vCPU has a core that no other one has",
                count(has, "core")
            );
            let next = "choose a board with more cores, or give other VMs fewer";
            draft.note(place, format!("cores of {name}"), reason, next);
        } else if has > had && !matches!(wish, Cores::Some(_)) {
            let reason = "a core of it is another VM's, or not on the board: it has another one";
            let next = "give each VM cores that no other one has";
            draft.note(place, format!("cores of {name}"), reason, next);
        }
        cores.sort_unstable();
    }
    for (cores, wish) in assigned.iter_mut().zip(&wishes) {
        if let Cores::Rest(mask) = *wish {
            let mine = |core: &u64| mask >> core & 1 == 1;
            cores.extend(free.iter().copied().filter(mine));
            free.retain(|core| !mine(core));
        }
    }
    assigned
}
