//! What a solver gets and returns: VMs with demands, what may be changed, partitions and proofs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::surface::Surface;
use crate::types::{Budget, Choice, Colors, Pages, Permille, Placement, Time, Traffic, VmName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a VM must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// The segment takes at most so much of its time alone with the whole cache; at least 1000.
    Tolerance(Permille),
    /// The segment takes at most this time.
    Deadline(Time),
    /// Nothing; its throughput is what [`Objective::Throughput`] maximizes.
    BestEffort,
}

impl Demand {
    /// Returns the longest time that it allows a VM that takes `alone` alone; `None` for best
    /// effort.
    pub fn limit(self, alone: Time) -> Option<Time> {
        match self {
            Self::Tolerance(tolerance) => Some(alone.allowed_by(tolerance)),
            Self::Deadline(deadline) => Some(deadline),
            Self::BestEffort => None,
        }
    }
}

/// What `tune` may change of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Its own colors: a private pool for all its memory.
    Colors,
    /// Its private pages.
    Pages,
    /// The budget of its vCPUs.
    Budgets,
}

/// What the user wrote down and no answer changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Where the VM's memory is.
    pub placement: Option<Placement>,
    /// The budget of its vCPUs.
    pub budget: Option<Budget>,
}

/// A possible number of private pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageStep {
    /// Pages, at least 1: the first of the profile.
    pub pages: Pages,
    /// Colors of the private pool that holds them without conflict, at least 1.
    pub colors: Colors,
}

/// One VM of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name.
    pub name: VmName,
    /// Its vCPUs, each of which has the budget.
    pub vcpus: u32,
    /// Its memory.
    pub memory: Pages,
    /// What it must reach.
    pub demand: Demand,
    /// What may be changed.
    pub tune: BTreeSet<Knob>,
    /// What the user wrote down.
    pub fixed: Fixed,
    /// What the configuration gives it now. Knobs that are not in `tune` stay as they are here, and
    /// of equal answers the one with fewer changes wins.
    pub written: Choice,
    /// Possible numbers of private pages, besides none.
    pub pages: Vec<PageStep>,
    /// Possible budgets, besides [`Budget::Unlimited`] and what is written.
    pub budgets: Vec<Budget>,
    /// Its run times.
    pub surface: Surface,
}

/// All that an answer depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Colors that VMs can have: those of the board without the hypervisor's.
    pub colors: Colors,
    /// Pages of memory in each color.
    pub color_pages: Pages,
    /// Colors of the shared pool if the user wrote them down.
    pub shared: Option<Colors>,
    /// Refills per period that one vCPU makes at most without a budget, as a stress guest does.
    pub flood: Traffic,
    /// The VMs.
    pub vms: Vec<Vm>,
}

/// What the best partition is the best of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Largest sum of the best-effort VMs' throughputs, each against the VM alone.
    #[default]
    Throughput,
    /// Fewest private colors.
    Colors,
    /// Largest smallest margin of the VMs with a tolerance or a deadline.
    Margin,
}

/// What an objective amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Sum of throughputs in millionths of that alone.
    Throughput(u64),
    /// Private colors.
    Colors(Colors),
    /// Smallest of (limit − time) / limit, in millionths; negative where a limit is exceeded. `None`
    /// if no VM has a limit.
    Margin(Option<i64>),
}

/// What one VM gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The VM.
    pub vm: VmName,
    /// What was decided.
    pub choice: Choice,
    /// Its private colors: those of its main pool, or of the pool of its private pages.
    pub colors: Colors,
    /// What all its neighbors together may refill per period.
    pub traffic: Traffic,
}

/// A decision for all VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// A share for each VM, in the order of the problem.
    pub shares: Vec<Share>,
    /// Colors of the shared pool; 0 if no VM is in it and its size is not written down.
    pub shared: Colors,
}

/// What the search did, which makes its answer the best one: nothing was left out without a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Partitions in the space: the product of all VMs' choices, saturating.
    pub partitions: u64,
    /// Nodes of the search.
    pub nodes: u64,
    /// Nodes that cannot contain a better answer: their bound is not better than the best.
    pub pruned: u64,
    /// Nodes of which no partition keeps all limits.
    pub infeasible: u64,
    /// Choices that another choice for the same colors replaces.
    pub dominated: u64,
}

/// A solver's answer: certain for the times that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The best partition. There is one, because ties are broken.
    Optimal(Outcome),
    /// No partition keeps all limits.
    Impossible(Box<Impossible>),
}

/// The best partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Who gets what.
    pub partition: Partition,
    /// What the objective amounts to.
    pub value: Value,
    /// Fields that differ from what is written.
    pub changes: u64,
    /// What the search did.
    pub proof: Proof,
}

/// Why no partition keeps all limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Impossible {
    /// The VM whose limit is the cheapest to relax.
    pub binding: VmName,
    /// What is short.
    pub resource: Resource,
    /// VMs whose limits exclude each other; without any one of them, the others hold.
    pub conflict: Vec<VmName>,
    /// Limits that can be kept: for each VM of which one larger limit is enough, that limit; the
    /// smallest relaxation first. After those, one that relaxes several limits, so that the largest
    /// relaxation is as small as possible. Empty if nothing was measured that supports a proposal.
    pub proposals: Vec<Proposal>,
}

/// What a demand lacks, by the shortest possible times: more of it could help, the rest cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Colors: with enough for every VM, all limits hold.
    Colors,
    /// Traffic: if neighbors made no refills, all limits would hold.
    Traffic,
    /// Either one: more colors or less traffic would do.
    ColorsOrTraffic,
    /// Both: only with more colors and less traffic, all limits hold.
    ColorsAndTraffic,
    /// The VM itself: it does not reach its limit in the whole cache without neighbors.
    Vm,
}

/// Limits that can be kept, with a partition that keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The new demands, of the VMs whose demands change.
    pub demands: Vec<(VmName, Demand)>,
    /// How much larger the largest changed limit is, rounded up.
    pub relaxation: Permille,
    /// A partition that keeps these and all other demands.
    pub partition: Partition,
}

/// Mistakes in a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// There is nothing to decide for.
    #[error("the problem has no VMs")]
    NoVms,
    /// More VMs than the search enumerates sets of.
    #[error("the problem has {found} VMs; at most {most} can be tuned together")]
    TooManyVms {
        /// VMs of the problem.
        found: usize,
        /// Limit.
        most: usize,
    },
    /// Two VMs have the same name.
    #[error("two VMs are named `{0}`")]
    SameName(VmName),
    /// A tolerance below 1.
    #[error("VM `{vm}`: tolerance {found} is below 1")]
    Tolerance {
        /// The VM.
        vm: VmName,
        /// Its tolerance.
        found: Permille,
    },
    /// A number that must not be 0.
    #[error("VM `{vm}`: {what} is 0")]
    Zero {
        /// The VM.
        vm: VmName,
        /// What is 0.
        what: &'static str,
    },
    /// No placement of a VM is allowed by what is written down, its memory and the colors.
    #[error("VM `{vm}`: no placement of its {} pages fits {} colors and what is written down", memory.0, colors.0)]
    NoPlacement {
        /// The VM.
        vm: VmName,
        /// Its memory.
        memory: Pages,
        /// Colors of the problem.
        colors: Colors,
    },
}

impl Vm {
    /// Returns the longest time that the VM's demand allows; `None` for a best-effort VM.
    pub fn limit(&self) -> Option<Time> {
        self.demand.limit(self.surface.alone().time)
    }
}
