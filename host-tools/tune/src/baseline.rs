//! Baselines: the same problem with fewer knobs, for comparison with what others do.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Knob, Problem};
use crate::types::{Budget, Colors, Placement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A way to partition that uses a part of what can be decided.
///
/// A knob that a baseline does not use is as it is written down. So every partition of a baseline
/// is one of [`Baseline::All`], which is never worse; the even split is, if all VMs may have their
/// own colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// Colors, pages and budgets.
    All,
    /// Colors alone, as DAAT-MCS (ECRTS 2026) decides them.
    Colors,
    /// Colors and budgets, as Sun et al. (ECRTS 2025) decide them.
    ColorsAndBudgets,
    /// Budgets alone.
    Budgets,
    /// Private pages alone.
    Pages,
    /// Nothing: as many colors for each VM, without budgets.
    EvenSplit,
}

impl Baseline {
    /// All baselines, from most to fewest knobs.
    pub const EVERY: [Self; 6] = [
        Self::All,
        Self::ColorsAndBudgets,
        Self::Colors,
        Self::Budgets,
        Self::Pages,
        Self::EvenSplit,
    ];

    /// Returns the knobs that it uses.
    pub fn knobs(self) -> BTreeSet<Knob> {
        match self {
            Self::All => [Knob::Colors, Knob::Pages, Knob::Budgets].into(),
            Self::Colors => [Knob::Colors].into(),
            Self::ColorsAndBudgets => [Knob::Colors, Knob::Budgets].into(),
            Self::Budgets => [Knob::Budgets].into(),
            Self::Pages => [Knob::Pages].into(),
            Self::EvenSplit => [].into(),
        }
    }
}

impl Problem {
    /// Returns the problem with what a baseline may decide. What the user wrote down stays fixed.
    pub fn restricted(&self, baseline: Baseline) -> Self {
        let mut problem = self.clone();
        let knobs = baseline.knobs();
        let shared = self.shared.unwrap_or_default();
        let vms = u32::try_from(self.vms.len().max(1)).unwrap_or(u32::MAX);
        let part = self.colors.0.saturating_sub(shared.0) / vms;
        for vm in &mut problem.vms {
            if baseline == Baseline::EvenSplit {
                let colors = Colors(part.max(1));
                if vm.tune.contains(&Knob::Colors) {
                    let placement = Placement::Own { colors };
                    vm.fixed.placement = vm.fixed.placement.or(Some(placement));
                }
                if vm.tune.contains(&Knob::Budgets) {
                    vm.fixed.budget = vm.fixed.budget.or(Some(Budget::Unlimited));
                }
            }
            vm.tune = vm.tune.intersection(&knobs).copied().collect();
        }
        problem
    }
}
