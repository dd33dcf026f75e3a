//! A VM's run times: the measured points, and bounds for all others by their partial order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::types::{Budget, Colors, Placement, Refills, Time, Traffic};
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    period: Time,
    alone: Sample,
    points: Vec<Measurement>,
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
}
