//! A VM's run times: the measured points, and bounds for all others by their partial order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::types::{Budget, Colors, Permille, Placement, Refills, Time, Traffic};
use serde::{Deserialize, Serialize};

/// The conditions under which a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// Where its memory is.
    pub placement: Placement,
    /// Colors of the shared pool; 0 if its memory is in its own colors, where they do not matter.
    pub shared: Colors,
    /// What all its neighbors together may refill per period.
    pub traffic: Traffic,
    /// What each of its vCPUs may refill per period.
    pub budget: Budget,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The segment's time: the longest, if it ran several times.
    pub time: Time,
    /// Refills of the vCPU that made the most during the segment, if they were counted. Without
    /// them, nothing is known about a budget that was not measured.
    pub refills: Option<Refills>,
}

/// A run under known conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// The conditions.
    pub point: Point,
    /// The result.
    pub sample: Sample,
}

/// Which bound a decision relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// The longest possible times: what holds by them holds.
    Pessimistic,
    /// The shortest possible times: what fails by them fails.
    Optimistic,
}

/// Between which times a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Shortest possible time.
    pub lower: Time,
    /// Longest possible time; `None` if no measured point is as hard.
    pub upper: Option<Time>,
}

/// What is known about the run times of one VM.
///
/// # Budgets that were not measured
///
/// A vCPU with a budget of `b` refills makes, in each period, either its full progress or `b`
/// refills. So a segment of time `T` and `E` refills without a budget takes at most
/// `T + E / b` periods, at least `E / b` periods, with an error of two periods for the first and the
/// last. This holds for any bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "KeptSurface")]
pub struct Surface {
    period: Time,
    alone: Sample,
    points: Vec<Measurement>,
}

/// A surface in a file, where the order of points is not certain.
#[derive(Deserialize)]
struct KeptSurface {
    period: Time,
    alone: Sample,
    points: Vec<Measurement>,
}

/// A surface prepared for many questions: the monotone hull of its points.
///
/// Where measurements contradict the order, a point is as slow as the slowest easier one by the
/// upper hull, and as fast as the fastest harder one by the lower hull.
#[derive(Clone, Debug)]
pub struct Hull<'a> {
    surface: &'a Surface,
    alone: Band,
    bands: Vec<Band>,
}

/// A measured point's times and refills by the lower and the upper hull.
#[derive(Clone, Copy, Debug)]
struct Band {
    lower: Time,
    upper: Time,
    fewest: Option<Refills>,
    most: Option<Refills>,
}

impl From<KeptSurface> for Surface {
    fn from(kept: KeptSurface) -> Self {
        let mut surface = Self::new(kept.period, kept.alone);
        for point in kept.points {
            surface.insert(point);
        }
        surface
    }
}

impl Point {
    /// Returns whether a VM runs at least as fast here as under `other`, whatever it computes.
    ///
    /// Own colors and the shared pool are not compared: private pages are protected from the VM's
    /// own data too, which own colors are not.
    pub fn is_easier_or_equal(&self, other: &Self) -> bool {
        let placement = match (self.placement, other.placement) {
            (Placement::Own { colors }, Placement::Own { colors: fewer }) => colors >= fewer,
            (Placement::Shared { private }, Placement::Shared { private: fewer }) => {
                private >= fewer && self.shared >= other.shared
            }
            _ => false,
        };
        placement && self.traffic <= other.traffic && self.budget >= other.budget
    }

    fn without_budget(&self) -> Self {
        Self {
            budget: Budget::Unlimited,
            ..*self
        }
    }

    /// Returns the sum of the coordinates' differences in thousandths of the larger one.
    fn distance(&self, other: &Self) -> u64 {
        let relative = |a: u64, b: u64| {
            let (difference, most) = (u128::from(a.abs_diff(b)), u128::from(a.max(b).max(1)));
            u64::try_from(difference * 1000 / most).unwrap_or(1000)
        };
        let size = |placement: Placement| match placement {
            Placement::Own { colors } => u64::from(colors.0),
            Placement::Shared { private } => private.0,
        };
        let budget = match (self.budget, other.budget) {
            (Budget::PerPeriod(a), Budget::PerPeriod(b)) => relative(a.0, b.0),
            (a, b) => u64::from(a != b) * 1000,
        };
        relative(size(self.placement), size(other.placement))
            + relative(u64::from(self.shared.0), u64::from(other.shared.0))
            + relative(self.traffic.0, other.traffic.0)
            + budget
    }
}

impl Bounds {
    /// Returns whether both bounds are the same time, as at a measured point.
    pub fn is_exact(&self) -> bool {
        self.upper == Some(self.lower)
    }

    /// Returns the time that a decision relies on; `None` if there is no upper bound.
    pub fn by(&self, view: View) -> Option<Time> {
        match view {
            View::Pessimistic => self.upper,
            View::Optimistic => Some(self.lower),
        }
    }
}

impl Surface {
    /// Starts a surface with the VM alone in the whole cache: no neighbors, no budget. `period` is
    /// the length of the regulation period of all budgets.
    pub fn new(period: Time, alone: Sample) -> Self {
        Self {
            period,
            alone,
            points: vec![],
        }
    }

    /// Returns the run of the VM alone in the whole cache.
    pub fn alone(&self) -> Sample {
        self.alone
    }

    /// Returns the regulation period.
    pub fn period(&self) -> Time {
        self.period
    }

    /// Returns the measured points in the order of their conditions.
    pub fn points(&self) -> &[Measurement] {
        &self.points
    }

    /// Adds a measured point. Of two runs under the same conditions, the longer time and the larger
    /// number of refills stay.
    pub fn insert(&mut self, measurement: Measurement) {
        match self
            .points
            .binary_search_by_key(&measurement.point, |known| known.point)
        {
            Ok(index) => {
                let known = &mut self.points[index].sample;
                known.time = known.time.max(measurement.sample.time);
                known.refills = known.refills.max(measurement.sample.refills);
            }
            Err(index) => self.points.insert(index, measurement),
        }
    }

    /// Returns whether a run under exactly these conditions is known.
    pub fn is_measured(&self, point: &Point) -> bool {
        self.points
            .binary_search_by_key(point, |known| known.point)
            .is_ok()
    }

    /// Prepares the surface for many questions.
    pub fn hull(&self) -> Hull<'_> {
        let samples = || self.points.iter().map(|known| known.sample);
        let alone = Band {
            lower: samples()
                .map(|sample| sample.time)
                .fold(self.alone.time, Time::min),
            upper: self.alone.time,
            fewest: samples()
                .filter_map(|sample| sample.refills)
                .chain(self.alone.refills)
                .min(),
            most: self.alone.refills,
        };
        let band = |known: &Measurement| {
            let easier = || self.easier(&known.point);
            let harder = || self.harder(&known.point);
            Band {
                lower: harder()
                    .map(|(_, it)| it.sample.time)
                    .min()
                    .unwrap_or_default(),
                upper: easier()
                    .map(|(_, it)| it.sample.time)
                    .fold(self.alone.time, Time::max),
                fewest: harder().filter_map(|(_, it)| it.sample.refills).min(),
                most: known.sample.refills.and(
                    easier()
                        .filter_map(|(_, it)| it.sample.refills)
                        .chain(self.alone.refills)
                        .max(),
                ),
            }
        };
        Hull {
            surface: self,
            alone,
            bands: self.points.iter().map(band).collect(),
        }
    }

    /// Returns between which times a run under these conditions is.
    pub fn bounds(&self, point: &Point) -> Bounds {
        self.hull().bounds(point)
    }

    /// Returns the most likely time under these conditions: between the bounds, by the distance to
    /// the points that they are of. `None` if there is no upper bound.
    pub fn estimate(&self, point: &Point) -> Option<Time> {
        self.hull().estimate(point)
    }

    /// Returns by how much the measurements contradict the order of their conditions: the largest
    /// ratio of two runs of which the slower one has the easier conditions. 1000 if there are none.
    pub fn contradiction(&self) -> Permille {
        let hull = self.hull();
        let bands = hull.bands.iter().chain([&hull.alone]);
        bands
            .map(|band| band.upper.tolerance_over(band.lower))
            .max()
            .unwrap_or(Permille(1000))
    }

    fn easier(&self, point: &Point) -> impl Iterator<Item = (usize, &Measurement)> {
        let known = self.points.iter().enumerate();
        known.filter(move |(_, it)| it.point.is_easier_or_equal(point))
    }

    fn harder(&self, point: &Point) -> impl Iterator<Item = (usize, &Measurement)> {
        let known = self.points.iter().enumerate();
        known.filter(move |(_, it)| point.is_easier_or_equal(&it.point))
    }
}

impl Hull<'_> {
    /// Returns between which times a run under these conditions is.
    pub fn bounds(&self, point: &Point) -> Bounds {
        let measured = self.measured_upper(point);
        let mut lower = self.measured_lower(point);
        let mut upper = measured;
        if let Budget::PerPeriod(budget) = point.budget {
            let free = point.without_budget();
            let period = self.surface.period;
            let stalled = self
                .fewest_refills(&free)
                .map_or(Time(0), |refills| periods(refills, budget, period));
            let at_least = Time(stalled.0.saturating_sub(2 * period.0));
            lower = lower.max(measured.map_or(at_least, |upper| at_least.min(upper)));
            let at_most = self.measured_upper(&free).zip(self.most_refills(&free));
            let at_most = at_most.map(|(time, refills)| {
                let stalled = periods(refills, budget, period);
                let sum = time.0.saturating_add(stalled.0);
                Time(sum.saturating_add(2 * period.0))
            });
            upper = upper.into_iter().chain(at_most).min();
        }
        Bounds {
            lower,
            upper: upper.map(|upper| upper.max(lower)),
        }
    }

    /// Returns the most likely time under these conditions: [`Surface::estimate`].
    pub fn estimate(&self, point: &Point) -> Option<Time> {
        let bounds = self.bounds(point);
        let upper = bounds.upper?;
        let free = point.without_budget();
        if let Budget::PerPeriod(budget) = point.budget
            && !self.surface.is_measured(point)
            && let Some(time) = self.between(&free, self.bounds(&free))
            && let Some(refills) = self.fewest_refills(&free)
        {
            let stalled = periods(refills, budget, self.surface.period);
            return Some(time.max(stalled).clamp(bounds.lower, upper));
        }
        self.between(point, bounds)
    }

    /// Divides the interval of the bounds by the distances to the points that they are of.
    fn between(&self, point: &Point, bounds: Bounds) -> Option<Time> {
        let (lower, upper) = (bounds.lower, bounds.upper?);
        let points = &self.surface.points;
        // The run alone has no place in the order of placements: it is far from all.
        let to_lower = self
            .surface
            .easier(point)
            .filter(|(index, _)| self.bands[*index].lower == lower)
            .map(|(index, _)| points[index].point.distance(point))
            .min()
            .unwrap_or(1000);
        let to_upper = self
            .surface
            .harder(point)
            .filter(|(index, _)| self.bands[*index].upper == upper)
            .map(|(index, _)| points[index].point.distance(point))
            .min()
            .unwrap_or(1000);
        let whole = u128::from((to_lower + to_upper).max(1));
        let part = u128::from(upper.0 - lower.0) * u128::from(to_lower) / whole;
        // At most the interval.
        Some(Time(lower.0 + u64::try_from(part).unwrap_or(u64::MAX)))
    }

    fn measured_lower(&self, point: &Point) -> Time {
        self.surface
            .easier(point)
            .map(|(index, _)| self.bands[index].lower)
            .fold(self.alone.lower, Time::max)
    }

    fn measured_upper(&self, point: &Point) -> Option<Time> {
        let harder = self.surface.harder(point);
        harder.map(|(index, _)| self.bands[index].upper).min()
    }

    fn fewest_refills(&self, point: &Point) -> Option<Refills> {
        let easier = self.surface.easier(point);
        easier
            .filter_map(|(index, _)| self.bands[index].fewest)
            .chain(self.alone.fewest)
            .max()
    }

    fn most_refills(&self, point: &Point) -> Option<Refills> {
        let harder = self.surface.harder(point);
        harder.filter_map(|(index, _)| self.bands[index].most).min()
    }
}

/// Returns how long so many refills take if each period has a budget.
fn periods(refills: Refills, budget: Traffic, period: Time) -> Time {
    let time = u128::from(refills.0) * u128::from(period.0) / u128::from(budget.0.max(1));
    Time(u64::try_from(time).unwrap_or(u64::MAX / 4))
}
