//! Runs a decided partition, beside the user's neighbors and beside the worst ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::{Job, Measured, VERIFY};
use super::search::{Search, point_of, sample};
use super::systems::{Neighbors, Stress};
use cloison_engine::model::Roi;
use cloison_tune::{Budget, Measurement, Partition, Placement, Sample, Share, Time};
use miette::Result;

/// Who runs beside a VM with a goal: the user's neighbors, and the worst ones.
pub(super) const KINDS: [Neighbors; 6] = [
    Neighbors::Written,
    Neighbors::Stress(Stress::Reads),
    Neighbors::Stress(Stress::Writes),
    Neighbors::Stress(Stress::Both),
    Neighbors::Stress(Stress::Mixed),
    Neighbors::Stress(Stress::Turned),
];
/// Who runs beside a VM of best effort: the last ones are those beside which it was measured.
const KINDS_OF_BEST_EFFORT: [Neighbors; 2] = [Neighbors::Written, Neighbors::Stress(Stress::Mixed)];

/// The time of a VM in one run of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// Who ran beside it.
    pub neighbors: Neighbors,
    /// Its time, with all for which its own budgets held it.
    pub time: Time,
}

/// How a VM did when its partition was run.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Its name.
    pub vm: String,
    /// Its time alone with the whole cache.
    pub alone: Time,
    /// The longest time that its goal allows.
    pub limit: Option<Time>,
    /// The time that was predicted.
    pub predicted: Option<Time>,
    /// Its times.
    pub reruns: Vec<Rerun>,
}

impl Verified {
    /// Returns whether its goal held in all runs.
    pub fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| {
            !self.reruns.is_empty() && self.reruns.iter().all(|rerun| rerun.time <= limit)
        })
    }

    /// Returns by how much less than its limit the VM's longest time is, as a part of the limit.
    pub fn margin(&self) -> Option<f64> {
        let (limit, worst) = (self.limit?.0 as f64, self.worst()?.time.0 as f64);
        Some((limit - worst) / limit.max(1.0))
    }

    /// Returns the run with its longest time.
    pub fn worst(&self) -> Option<Rerun> {
        self.reruns.iter().copied().max_by_key(|rerun| rerun.time)
    }
}

impl Search<'_> {
    /// Runs a partition beside the user's neighbors and beside the worst ones, and keeps the times
    /// of those that broke a goal as measured points. If none did, the VMs of best effort are
    /// measured at their points and run too.
    ///
    /// # Errors
    ///
    /// If a run fails.
    pub fn verify(&mut self, text: &str, partition: &Partition) -> Result<Vec<Verified>> {
        let (bound, free): (Vec<usize>, Vec<usize>) = (0..self.task.subjects.vms.len())
            .partition(|vm| self.task.subjects.vms[*vm].has_goal());
        let mut all = self.reruns(text, partition, &bound, &KINDS)?;
        if all.iter().all(|(_, vm)| vm.holds()) {
            let points = free
                .iter()
                .map(|vm| (*vm, point_of(&partition.shares[*vm], partition.shared)));
            self.measure(&points.collect::<Vec<_>>())?;
            all.extend(self.reruns(text, partition, &free, &KINDS_OF_BEST_EFFORT)?);
            all.sort_by_key(|(vm, _)| *vm);
        }
        for (index, verified) in all.iter().filter(|(_, vm)| !vm.holds()) {
            self.learn(*index, verified, partition);
        }
        Ok(all.into_iter().map(|(_, verified)| verified).collect())
    }

    /// Runs a partition for each of these VMs, beside each of these neighbors.
    fn reruns(
        &self,
        text: &str,
        partition: &Partition,
        vms: &[usize],
        kinds: &[Neighbors],
    ) -> Result<Vec<(usize, Verified)>> {
        let problem = self.problem();
        let jobs = self.verifications(text, partition, vms, kinds)?;
        let done = self.task.runs.measure(self.task.boards, VERIFY, &jobs)?;
        let verified = |(vm, runs): (&usize, &[Measured])| {
            let point = point_of(&partition.shares[*vm], partition.shared);
            let predicted = match self.flooded[*vm] {
                // What the solver is told is its throughput beside the worst neighbors.
                Some(_) => self
                    .known(*vm, &self.measured_for(*vm, &point))
                    .map(|sample| sample.time),
                None => problem.vms[*vm].surface.bounds(&point).upper,
            };
            let verified = Verified {
                vm: self.task.subjects.vms[*vm].name.0.clone(),
                alone: self.alone[*vm].time,
                limit: problem.vms[*vm].limit(),
                predicted,
                reruns: reruns_of(kinds, runs),
            };
            (*vm, verified)
        };
        Ok(vms
            .iter()
            .zip(done.chunks(kinds.len()))
            .map(verified)
            .collect())
    }

    /// Returns the boots that verify a partition: for each of these VMs one beside each of these
    /// neighbors.
    pub(super) fn verifications(
        &self,
        text: &str,
        partition: &Partition,
        vms: &[usize],
        kinds: &[Neighbors],
    ) -> Result<Vec<Job>> {
        let mut jobs = vec![];
        for vm in vms {
            for neighbors in kinds {
                jobs.push(self.verification(text, partition, *vm, *neighbors)?);
            }
        }
        Ok(jobs)
    }

    /// Keeps the time of a run that broke a goal, so that the same is not decided again.
    fn learn(&mut self, vm: usize, verified: &Verified, partition: &Partition) {
        let Some(worst) = verified.worst() else {
            return;
        };
        let point = point_of(&partition.shares[vm], partition.shared);
        let refills = self.alone[vm].refills;
        let point = self.easiest_like(vm, &point);
        self.between[vm].push(Measurement {
            point,
            sample: Sample {
                time: worst.time,
                refills,
            },
        });
        let limit = verified.limit.unwrap_or_default();
        self.broken.push(format!(
            "VM `{}` took {} ns, and {} ns are allowed",
            verified.vm, worst.time.0, limit.0
        ));
    }

    /// Returns whether the model is to be on in the segments of another VM alone.
    fn has_other_regions(&self, vm: usize) -> bool {
        let mut all = self.task.subjects.vms.iter().enumerate();
        all.any(|(other, subject)| other != vm && subject.roi == Roi::Hint)
    }

    /// Returns a boot that verifies a partition.
    fn verification(
        &self,
        text: &str,
        partition: &Partition,
        vm: usize,
        neighbors: Neighbors,
    ) -> Result<Job> {
        let subject = &self.task.subjects.vms[vm];
        let kind = match neighbors {
            Neighbors::Written => "written",
            Neighbors::Stress(kind) => kind.name(),
        };
        let choices: Vec<String> = partition.shares.iter().map(short).collect();
        let roi = match neighbors {
            // Another Linux ends regions of this one.
            Neighbors::Written if self.has_other_regions(vm) => Roi::Always,
            _ => subject.roi,
        };
        Ok(Job {
            key: format!(
                "verify-{}-{}-{kind}-{}",
                choices.join("-"),
                subject.name,
                self.period()
            ),
            system: self.task.base.verification(
                text,
                &self.task.checked.path,
                vm,
                neighbors,
                &self.limited(partition),
            )?,
            vm: subject.name.0.clone(),
            measure: subject.measure,
            roi,
            goal: self.place(vm),
        })
    }
}

/// Returns the times of a VM beside each kind of neighbors.
pub(super) fn reruns_of(kinds: &[Neighbors], runs: &[Measured]) -> Vec<Rerun> {
    let rerun = |(neighbors, measured): (&Neighbors, &Measured)| Rerun {
        neighbors: *neighbors,
        time: sample(measured).time,
    };
    kinds.iter().zip(runs).map(rerun).collect()
}

fn short(share: &Share) -> String {
    let place = match share.choice.placement {
        Placement::Own { colors } => format!("o{}", colors.0),
        Placement::Shared { private } => format!("p{}", private.0),
    };
    match share.choice.budget {
        Budget::PerPeriod(budget) => format!("{place}b{}", budget.0),
        Budget::Unlimited => place,
    }
}
