//! Which points are measured, what the solver decides from them, and how it holds when it is run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::{Job, Measure, Measured, Place, Runs};
use super::subjects::{LEAST_BUDGET, Subjects};
use super::systems::{self, Base, Beside, Stress};
use super::written;
use crate::boards::Boards;
use cloison_config::Checked;
use cloison_config::goal::Requirement;
use cloison_config::problem::count;
use cloison_config::quantity::show_duration;
use cloison_engine::model::Roi;
use cloison_formats::units::Nanos;
use cloison_tune::{
    Answer, Baseline, Budget, Choice, Colors, Demand, FrontPoint, Impossible, Knob, Measurement,
    Objective, Outcome, Partition, Permille, Placement, Point, Problem, Proposal, Refills, Request,
    Sample, Share, Step, Surface, Time, Traffic, View,
};
use miette::{IntoDiagnostic, Result, miette};
use std::collections::BTreeSet;

/// Rounds of measurements for one decision: each adds a point, so that there is an end.
const ROUNDS: usize = 200;
/// Smallest traffic of neighbors that is measured, in accesses in 1 ms; each further step is half
/// as large again.
const LEAST_TRAFFIC: u64 = 1000;

/// What the solver says when nothing that it relies on is a guess any more.
#[derive(Debug)]
pub enum Decision {
    /// The best partition.
    Best(Outcome),
    /// No partition keeps all goals.
    Impossible(Box<Impossible>),
}

/// A range of traffic, both ends included.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: Traffic,
    most: Traffic,
}

/// A point whose measured time is shorter than that of an easier one.
#[derive(Clone, Debug)]
pub struct Dip {
    /// The VM.
    pub vm: String,
    /// By how much of its time, in thousandths.
    pub permille: u64,
}

/// What is decided for, and by what.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// The user's configuration.
    pub checked: &'a Checked,
    /// Its VMs.
    pub subjects: &'a Subjects,
    /// What all systems share.
    pub base: &'a Base,
    /// Boots and their results.
    pub runs: &'a Runs,
    /// Where boots happen.
    pub boards: &'a Boards,
    /// What may change, of what the VMs allow.
    pub only: BTreeSet<Knob>,
    /// What is best.
    pub objective: Objective,
}

/// The state of the command.
pub struct Search<'a> {
    pub(super) task: Task<'a>,
    /// Accesses of a core that stresses memory without a budget, in a period.
    pub flood: Traffic,
    /// What was measured, by VM.
    measured: Vec<Vec<Measurement>>,
    /// The easiest point of each measured step of traffic, as slow as what was measured, and what
    /// was slower when a partition was run.
    pub(super) between: Vec<Vec<Measurement>>,
    pub(super) alone: Vec<Sample>,
    /// What each VM of best effort does beside the worst neighbors, where it is written.
    pub(super) flooded: Vec<Option<Sample>>,
    /// What each VM must reach: as it is written, or relaxed.
    pub(super) demands: Vec<Demand>,
    pub(super) broken: Vec<String>,
    /// Points that were measured with other cores limited than usual.
    refined: BTreeSet<(usize, Point, Vec<u8>)>,
}

impl<'a> Search<'a> {
    /// Measures what all decisions need: the traffic of the worst neighbor, and each VM alone with
    /// the whole cache.
    ///
    /// # Errors
    ///
    /// If a run fails.
    pub fn new(task: Task<'a>) -> Result<Self> {
        let Task {
            subjects,
            base,
            runs,
            boards,
            ..
        } = task;
        let mut search = Self {
            task,
            flood: Traffic(u64::MAX),
            measured: vec![vec![]; subjects.vms.len()],
            between: vec![vec![]; subjects.vms.len()],
            alone: vec![],
            flooded: vec![None; subjects.vms.len()],
            demands: subjects.vms.iter().map(|vm| vm.demand).collect(),
            broken: vec![],
            refined: BTreeSet::new(),
        };
        let floods = Stress::UNIFORM.into_iter().map(|kind| {
            let system = base.flood(kind)?;
            Ok(Job {
                key: format!("flood-{}", kind.name()),
                vm: systems::first_vm(&system),
                system,
                measure: Measure::Instructions,
                roi: Roi::Always,
                goal: None,
            })
        });
        let mut jobs = floods.collect::<Result<Vec<_>>>()?;
        for index in 0..subjects.vms.len() {
            jobs.push(search.job(index, &search.whole())?);
        }
        let done = runs.measure(boards, "alone", &jobs)?;
        let (floods, alone) = done.split_at(Stress::UNIFORM.len());
        let period = u128::from(subjects.period.0);
        let rate = |measured: &Measured| {
            let time = u128::from(measured.time.max(1));
            (u128::from(measured.accesses) * period).div_ceil(time) as u64
        };
        search.flood = Traffic(floods.iter().map(rate).max().unwrap_or(1).max(1));
        search.alone = alone.iter().map(sample).collect();
        Ok(search)
    }

    /// Measures where decisions begin: each VM of best effort beside the worst neighbors, and the
    /// others with few colors and pages beside the least traffic, which shows what never holds.
    ///
    /// # Errors
    ///
    /// If a run fails.
    pub fn seed(&mut self) -> Result<()> {
        let mut points = vec![];
        let mut flooded = vec![];
        for (index, vm) in self.task.subjects.vms.iter().enumerate() {
            let Choice { placement, budget } = vm.written.choice;
            let shared = match placement {
                Placement::Own { .. } => Colors(0),
                Placement::Shared { .. } => self.task.subjects.shared,
            };
            let at = |placement, shared, traffic| Point {
                placement,
                shared,
                traffic,
                budget,
            };
            if !vm.has_goal() {
                let traffic = Traffic(self.flood.0 * self.task.base.neighbor_cores(index));
                let point = Point {
                    budget: Budget::Unlimited,
                    ..at(placement, shared, traffic)
                };
                flooded.push((index, point));
                continue;
            }
            let least = self.least(index);
            if vm.knobs.contains(&Knob::Colors) && self.task.only.contains(&Knob::Colors) {
                let holds = |colors: &u32| {
                    u64::from(*colors) * self.task.subjects.color_pages.0 >= vm.memory.0
                };
                let own = [1, 2, 4].into_iter().filter(holds);
                points.extend(own.map(|colors| {
                    let colors = Colors(colors);
                    (index, at(Placement::Own { colors }, Colors(0), least))
                }));
            }
            if placement.is_shared() {
                let pages = Placement::SHARED;
                points.push((index, at(pages, self.task.subjects.colors, least)));
            }
        }
        let jobs = flooded.iter().map(|(vm, point)| self.job(*vm, point));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let done = self
            .task
            .runs
            .measure(self.task.boards, "beside the worst neighbors", &jobs)?;
        for ((vm, _), measured) in flooded.iter().zip(&done) {
            self.flooded[*vm] = Some(sample(measured));
        }
        self.measure(&points)
    }

    /// Returns the smallest traffic of a VM's neighbors that is measured.
    fn least(&self, vm: usize) -> Traffic {
        let cores = self.task.base.neighbor_cores(vm);
        let least = self.task.subjects.in_period(LEAST_TRAFFIC);
        Traffic(least.max(LEAST_BUDGET * cores))
    }

    /// Returns the step of traffic that has this one: its largest is measured and counts for all of
    /// it, so that few boots are enough. What is left beside cores without a budget has steps.
    fn step(&self, vm: usize, traffic: Traffic) -> Range {
        if traffic.0 == 0 {
            return Range {
                least: traffic,
                most: traffic,
            };
        }
        let flood = self.flood.0;
        let cores = self.task.base.neighbor_cores(vm).max(1);
        let free = ((traffic.0 - 1) / flood).min(cores - 1);
        let rest = traffic.0 - free * flood;
        let (mut below, mut step) = (0, self.least(vm).0);
        while step < rest && step < flood {
            below = step;
            step += step / 2;
        }
        Range {
            least: Traffic(free * flood + below + 1),
            most: Traffic(free * flood + step.min(flood)),
        }
    }

    /// Returns the point that is measured in place of this one.
    pub(super) fn measured_for(&self, vm: usize, point: &Point) -> Point {
        let traffic = self.step(vm, point.traffic).most;
        Point { traffic, ..*point }
    }

    /// Returns the easiest point that counts as slow as this one.
    pub(super) fn easiest_like(&self, vm: usize, point: &Point) -> Point {
        let traffic = self.step(vm, point.traffic).least;
        Point { traffic, ..*point }
    }

    /// Returns the VMs.
    pub fn subjects(&self) -> &Subjects {
        self.task.subjects
    }

    /// Returns what was measured of a VM, in the order of the conditions.
    pub fn points(&self, vm: usize) -> Vec<Measurement> {
        let mut all = self.with_alone(vm);
        all.sort_by_key(|measured| (measured.point, measured.sample.time));
        all
    }

    /// Returns the point that was measured for a share.
    pub fn measured_point(&self, vm: usize, share: &Share, shared: Colors) -> Point {
        self.measured_for(vm, &point_of(share, shared))
    }

    /// Returns a VM's time alone with the whole cache.
    pub fn alone(&self, vm: usize) -> Time {
        self.alone[vm].time
    }

    /// Returns a VM with a goal whose segment is shorter than a period of budgets, so that all of its
    /// neighbors' budgets can fall into it.
    pub fn shorter_than(&self, period: Nanos) -> Option<&str> {
        let vms = self.task.subjects.vms.iter().zip(&self.alone);
        let with_goal = vms.filter(|(vm, _)| vm.has_goal());
        let mut shorter = with_goal.filter(|(_, alone)| alone.time.0 < period.0);
        shorter.next().map(|(vm, _)| vm.name.0.as_str())
    }

    /// Replaces what VMs must reach by what a proposal has.
    pub fn relax(&mut self, proposal: &Proposal) {
        for (name, demand) in &proposal.demands {
            if let Some(vm) = self
                .task
                .subjects
                .vms
                .iter()
                .position(|vm| vm.name == *name)
            {
                self.demands[vm] = *demand;
            }
        }
    }

    /// Returns the VMs that must reach less than is written, with what.
    pub fn relaxed(&self) -> Vec<(String, Demand)> {
        let vms = self.task.subjects.vms.iter().zip(&self.demands);
        vms.filter(|(vm, demand)| vm.demand != **demand)
            .map(|(vm, demand)| (vm.name.0.clone(), *demand))
            .collect()
    }

    /// Returns what is best.
    pub fn objective(&self) -> Objective {
        self.task.objective
    }

    /// Returns which goals did not hold when a partition was run.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// Returns what the solver gets.
    pub fn problem(&self) -> Problem {
        let vms = self.task.subjects.vms.iter().enumerate();
        Problem {
            colors: self.task.subjects.colors,
            color_pages: self.task.subjects.color_pages,
            shared: None,
            flood: self.flood,
            vms: vms
                .map(|(index, vm)| {
                    vm.with(self.demands[index], self.surface(index), &self.task.only)
                })
                .collect(),
        }
    }

    /// Measures until the best partition relies on measured points alone, and returns it.
    ///
    /// # Errors
    ///
    /// If a run fails, or the problem has a mistake.
    pub fn decide(&mut self) -> Result<Decision> {
        self.decide_with(Baseline::All)
    }

    /// As [`Self::decide`], with the knobs of a baseline.
    ///
    /// # Errors
    ///
    /// As [`Self::decide`].
    pub fn decide_with(&mut self, baseline: Baseline) -> Result<Decision> {
        for _ in 0..ROUNDS {
            let problem = self.problem().restricted(baseline);
            let is_measured = |request: &Request| self.is_known(request.vm, &request.point);
            let step = cloison_tune::next_measurements(&problem, self.task.objective, is_measured);
            match step.into_diagnostic()? {
                Step::Certain(Answer::Optimal(outcome)) => {
                    if !self.refine(&outcome.partition)? {
                        return Ok(Decision::Best(outcome));
                    }
                }
                Step::Certain(Answer::Impossible(reason)) => {
                    return Ok(Decision::Impossible(reason));
                }
                Step::Measure(requests) => {
                    let points = requests.iter().map(|request| (request.vm, request.point));
                    self.measure(&points.collect::<Vec<_>>())?;
                }
            }
        }
        Err(miette!(
            "the best partition is not certain after {}",
            count(ROUNDS, "round")
        ))
    }

    /// Returns the best partitions for tighter and tighter tolerances, `step` apart, all of whose
    /// points are measured.
    ///
    /// # Errors
    ///
    /// As [`Self::decide`].
    pub fn front(&mut self, step: Permille) -> Result<Vec<FrontPoint>> {
        for _ in 0..ROUNDS {
            let front = cloison_tune::pareto(&self.problem(), View::Optimistic, step);
            let front = front.into_diagnostic()?;
            let points = front.iter();
            let unknown: Vec<_> = points
                .flat_map(|point| self.unknown(&point.partition))
                .collect();
            if unknown.is_empty() {
                return Ok(front);
            }
            self.measure(&unknown)?;
        }
        Err(miette!(
            "the front is not certain after {}",
            count(ROUNDS, "round")
        ))
    }

    /// Returns the points of a partition on which a decision relies and that were not measured.
    fn unknown(&self, partition: &Partition) -> Vec<(usize, Point)> {
        let shares = partition.shares.iter().enumerate();
        shares
            .map(|(vm, share)| (vm, point_of(share, partition.shared)))
            .filter(|(vm, point)| !self.is_known(*vm, point))
            .collect()
    }

    /// Returns whether a decision knows a VM's time at a point. That of a VM of best effort is
    /// computed.
    fn is_known(&self, vm: usize, point: &Point) -> bool {
        let measured = self.measured_for(vm, point);
        self.flooded[vm].is_some() || self.known(vm, &measured).is_some()
    }

    /// Returns the configuration's text with a partition.
    ///
    /// # Errors
    ///
    /// If the configuration does not have the usual form.
    pub fn text_of(&self, partition: &Partition) -> Result<String> {
        let shares = self.task.subjects.vms.iter().map(|vm| vm.written.clone());
        let written = Partition {
            shares: shares.collect(),
            shared: self.task.subjects.shared,
        };
        written::with_partition(
            self.task.checked,
            &written,
            partition,
            self.task.subjects.period,
        )
    }

    /// Boots systems at points, and keeps what was measured.
    pub(super) fn measure(&mut self, points: &[(usize, Point)]) -> Result<()> {
        let mut wanted: Vec<(usize, Point)> = points
            .iter()
            .map(|(vm, point)| (*vm, self.measured_for(*vm, point)))
            .filter(|(vm, point)| self.known(*vm, point).is_none())
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let usual = wanted
            .iter()
            .map(|(vm, point)| (*vm, *point, self.usual(*vm, point, Stress::Mixed).limited));
        self.measure_beside(&usual.collect::<Vec<_>>())
    }

    /// Measures the points of a partition beside neighbors of which those are limited that are so in
    /// it, where that is not usual: which of the cores it is makes a difference of some percent on the
    /// model. Returns whether there was something to measure.
    fn refine(&mut self, partition: &Partition) -> Result<bool> {
        let limited = self.limited(partition);
        let mut wanted = vec![];
        for (vm, share) in partition.shares.iter().enumerate() {
            let point = self.measured_for(vm, &point_of(share, partition.shared));
            let mut cores = self.task.base.cores_beside(vm);
            cores.retain(|core| limited.contains(core));
            let has_goal = self.task.subjects.vms[vm].has_goal();
            let is_usual = self.usual(vm, &point, Stress::Mixed).limited == cores;
            let key = (vm, point, cores);
            if has_goal && point.traffic.0 > 0 && !is_usual && self.refined.insert(key.clone()) {
                wanted.push(key);
            }
        }
        self.measure_beside(&wanted)?;
        Ok(!wanted.is_empty())
    }

    /// Returns the cores whose budgets are below what a core does without one.
    pub(super) fn limited(&self, partition: &Partition) -> Vec<u8> {
        let is_limited = |share: &Share| match share.choice.budget {
            Budget::PerPeriod(budget) => budget < self.flood,
            Budget::Unlimited => false,
        };
        let shares = partition.shares.iter().enumerate();
        let limited = shares.filter(|(_, share)| is_limited(share));
        let vms: Vec<usize> = limited.map(|(vm, _)| vm).collect();
        self.task.base.cores_of(&vms)
    }

    /// Boots systems at points, beside neighbors of which these cores are limited.
    fn measure_beside(&mut self, wanted: &[(usize, Point, Vec<u8>)]) -> Result<()> {
        let mut jobs = vec![];
        for (vm, point, limited) in wanted {
            for kind in self.kinds(*vm, point) {
                let beside = self.beside(*vm, point, *kind, limited.clone());
                jobs.push(self.job_beside(*vm, point, &beside)?);
            }
        }
        let done = self
            .task
            .runs
            .measure(self.task.boards, "characterize", &jobs)?;
        let mut done = done.iter().map(sample);
        for (vm, point, _) in wanted {
            let longest = |one: Sample, other: Sample| Sample {
                time: one.time.max(other.time),
                refills: one.refills.max(other.refills),
            };
            let samples = done.by_ref().take(self.kinds(*vm, point).len());
            let Some(sample) = samples.reduce(longest) else {
                continue;
            };
            self.measured[*vm].push(Measurement {
                point: *point,
                sample,
            });
            let point = self.easiest_like(*vm, point);
            self.between[*vm].push(Measurement { point, sample });
        }
        Ok(())
    }

    /// Returns the kinds of neighbors beside which a VM is measured at a point. The longest of its
    /// times counts.
    fn kinds(&self, vm: usize, point: &Point) -> &'static [Stress] {
        match point.traffic.0 > 0 && self.task.subjects.vms[vm].has_goal() {
            true => &[Stress::Mixed, Stress::Turned],
            false => &[Stress::Mixed],
        }
    }

    pub(super) fn known(&self, vm: usize, point: &Point) -> Option<Sample> {
        let known = self.measured[vm].iter().find(|known| known.point == *point);
        known.map(|known| known.sample)
    }

    /// Returns where the configuration says what a VM must reach.
    pub(super) fn place(&self, vm: usize) -> Option<Place> {
        let goal = self.task.checked.goals[vm].as_ref()?;
        let field = match goal.requirement {
            Requirement::Tolerance(_) => "tolerance",
            Requirement::Deadline(_) => "deadline",
            Requirement::BestEffort => "best_effort",
        };
        Some(Place {
            field: format!("vm[{}].{field}", self.task.subjects.vms[vm].name),
            span: goal.span.clone(),
        })
    }

    /// Returns the point of a VM alone with the whole cache.
    pub(super) fn whole(&self) -> Point {
        Point {
            placement: Placement::Own {
                colors: self.task.subjects.colors,
            },
            shared: Colors(0),
            traffic: Traffic(0),
            budget: Budget::Unlimited,
        }
    }

    pub(super) fn job(&self, vm: usize, point: &Point) -> Result<Job> {
        self.job_beside(vm, point, &self.usual(vm, point, Stress::Mixed))
    }

    /// Returns who usually runs beside a VM at a point: as many of the last cores as its traffic
    /// allows have no budget.
    fn usual(&self, vm: usize, point: &Point, kind: Stress) -> Beside {
        let cores = self.task.base.cores_beside(vm);
        let free = (point.traffic.0 / self.flood.0) as usize;
        let limited = cores.len().saturating_sub(free);
        self.beside(vm, point, kind, cores[..limited].to_vec())
    }

    /// Returns who runs beside a VM at a point, if these cores share what the others leave of its
    /// traffic.
    fn beside(&self, vm: usize, point: &Point, kind: Stress, limited: Vec<u8>) -> Beside {
        let count = limited.len() as u64;
        let free = self.task.base.neighbor_cores(vm) - count;
        let rest = point.traffic.0.saturating_sub(free * self.flood.0);
        Beside {
            kind,
            limited,
            budget: Traffic((rest / count.max(1)).max(1)),
        }
    }

    fn job_beside(&self, vm: usize, point: &Point, beside: &Beside) -> Result<Job> {
        let subject = &self.task.subjects.vms[vm];
        let private = match point.placement {
            Placement::Shared { private } => subject.private_colors(private),
            Placement::Own { .. } => Colors(0),
        };
        Ok(Job {
            key: self.key(vm, point, beside),
            system: self.task.base.at(vm, point, private.0, beside)?,
            vm: subject.name.0.clone(),
            measure: subject.measure,
            roi: subject.roi,
            goal: self.place(vm),
        })
    }

    /// Returns the name of the directory of a point's run.
    fn key(&self, vm: usize, point: &Point, beside: &Beside) -> String {
        let place = match point.placement {
            Placement::Own { colors } => format!("own{}", colors.0),
            Placement::Shared { private } => format!("shared{}-pages{}", point.shared.0, private.0),
        };
        let name = &self.task.subjects.vms[vm].name;
        let budget = match point.budget {
            Budget::PerPeriod(budget) => format!("-budget{}", budget.0),
            Budget::Unlimited => String::new(),
        };
        // Without traffic and budget, the period does not matter.
        let (traffic, period) = match (point.traffic.0, point.budget) {
            (0, Budget::Unlimited) => return format!("{name}-{place}-alone"),
            (traffic, _) => (traffic, self.period()),
        };
        let kind = beside.kind.name();
        let limited = match *beside == self.usual(vm, point, beside.kind) {
            true => String::new(),
            false => format!("-limits{}", systems::set_of(&beside.limited)),
        };
        format!("{name}-{place}-{kind}{traffic}{limited}{budget}-{period}")
    }

    /// Returns the period of budgets as a part of the name of a run's directory.
    pub(super) fn period(&self) -> String {
        show_duration(self.task.subjects.period).replace(' ', "")
    }

    /// Returns a VM's surface. Where an easier point took longer than a harder one, the harder one
    /// counts as slow as the easier one.
    fn surface(&self, vm: usize) -> Surface {
        let period = Time(self.task.subjects.period.0);
        // What a VM of best effort does under a budget is computed from its accesses.
        if let Some(flooded) = self.flooded[vm] {
            return Surface::new(period, flooded);
        }
        let mut surface = Surface::new(period, self.alone[vm]);
        let mut known = self.with_alone(vm);
        known.extend(&self.between[vm]);
        for measurement in hull(&known).0 {
            surface.insert(measurement);
        }
        surface
    }

    fn with_alone(&self, vm: usize) -> Vec<Measurement> {
        let alone = Measurement {
            point: self.whole(),
            sample: self.alone[vm],
        };
        std::iter::once(alone)
            .chain(self.measured[vm].iter().copied())
            .collect()
    }

    /// Returns the VMs whose measured times are not monotone, with the largest difference.
    pub fn dips(&self) -> Vec<Dip> {
        let vms = self.task.subjects.vms.iter().enumerate();
        vms.filter(|(index, _)| self.flooded[*index].is_none())
            .map(|(index, vm)| Dip {
                vm: vm.name.0.clone(),
                permille: hull(&self.with_alone(index)).1,
            })
            .filter(|dip| dip.permille > 0)
            .collect()
    }
}

/// Returns where a VM's share has it on its surface.
pub fn point_of(share: &Share, shared: Colors) -> Point {
    let own = matches!(share.choice.placement, Placement::Own { .. });
    Point {
        placement: share.choice.placement,
        shared: if own { Colors(0) } else { shared },
        traffic: share.traffic,
        budget: share.choice.budget,
    }
}

pub(super) fn sample(measured: &Measured) -> Sample {
    Sample {
        time: Time(measured.time + measured.held),
        refills: Some(Refills(measured.accesses)),
    }
}

/// Raises each time to that of the slowest easier point. Returns how much the largest change was,
/// in thousandths of the measured time.
fn hull(measured: &[Measurement]) -> (Vec<Measurement>, u64) {
    let mut largest = 0;
    let raised = measured.iter().map(|hard| {
        let easier = measured
            .iter()
            .filter(|easy| easy.point.is_easier_or_equal(&hard.point))
            .map(|easy| easy.sample.time)
            .max();
        let time = easier.unwrap_or(hard.sample.time).max(hard.sample.time);
        let own = hard.sample.time.0.max(1);
        // Another time of the same point is no dip.
        let is_other =
            |easy: &Measurement| easy.point != hard.point && easy.sample.time > hard.sample.time;
        let dips = measured
            .iter()
            .any(|easy| is_other(easy) && easy.point.is_easier_or_equal(&hard.point));
        if dips {
            let permille = u128::from(time.0 - hard.sample.time.0) * 1000 / u128::from(own);
            largest = largest.max((permille as u64).max(1));
        }
        Measurement {
            sample: Sample {
                time,
                ..hard.sample
            },
            ..*hard
        }
    });
    let raised = raised.collect();
    (raised, largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(colors: u32, traffic: u64, time: u64) -> Measurement {
        Measurement {
            point: Point {
                placement: Placement::Own {
                    colors: Colors(colors),
                },
                shared: Colors(0),
                traffic: Traffic(traffic),
                budget: Budget::Unlimited,
            },
            sample: Sample {
                time: Time(time),
                refills: None,
            },
        }
    }

    #[test]
    fn a_harder_point_is_never_faster() {
        let measured = [
            at(4, 0, 100),
            at(2, 0, 96),
            at(2, 50, 120),
            at(1, 50, 110),
            at(8, 90, 80),
        ];
        let (raised, permille) = hull(&measured);
        let times: Vec<u64> = raised.iter().map(|it| it.sample.time.0).collect();
        assert_eq!(times, [100, 100, 120, 120, 80]);
        assert_eq!(permille, 90, "10 of 110");
        assert_eq!(hull(&measured[..1]).1, 0);
        assert_eq!(
            hull(&[at(4, 0, 100), at(4, 0, 90)]).1,
            0,
            "the same point twice"
        );
    }
}
