//! Plans the events of each sub-experiment so that every pair of events is counted together in one
//! (MUCH, section 4.2 and step 1 of section 4.4), and HRM's plan with an anchor (section 4.1).
//!
//! A plan in which every pair meets is a covering design C(v, k, 2). The fewest sub-experiments
//! possible are known for all numbers of events on 2, 3 and 4 counters (M. K. Fort and G. A.
//! Hedlund; W. H. Mills), and for few sizes on more. The planner takes the best of known
//! constructions and searches, and calls a plan optimal only where it meets a proven lower bound.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bound_events;
mod bounds;
mod catalogue;
mod cyclic;
mod families;
mod field;
mod geometry;
mod known;
mod paper;
mod proof;
mod search;
mod splits;
mod triples;

pub use bound_events::plan_bound;
pub use bounds::{lower_bound, schoenheim};
pub use catalogue::{Catalogue, Cover};
pub use geometry::Blocks;
pub use known::line as known_line;
pub use paper::paper_plan;
pub use proof::verify;
pub use splits::Splits;

/// Maximum number of counters of a plan.
pub const MOST_COUNTERS: usize = 31;
/// Maximum number of events of a plan.
pub const MOST_EVENTS: usize = 128;

/// A list of sub-experiments, each a list of events that are counted in the same run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of events.
    pub events: usize,
    /// Number of counters.
    pub counters: usize,
    /// The sub-experiments, each with the numbers of its events, ascending.
    pub sub_experiments: Blocks,
    /// A lower bound: every plan has at least this many sub-experiments.
    pub lower_bound: usize,
    /// Description of how it was made.
    pub origin: String,
}

impl Plan {
    /// Returns whether no plan can have fewer sub-experiments.
    pub fn is_optimal(&self) -> bool {
        self.sub_experiments.len() == self.lower_bound
    }
}

/// Errors of the planner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There are fewer than two counters.
    #[error(
        "a plan needs at least 2 counters, not {0}: in a sub-experiment events are counted \
         together"
    )]
    TooFewCounters(usize),
    /// There are more counters than any machine has.
    #[error("{0} counters: a plan is made for at most {MOST_COUNTERS}")]
    TooManyCounters(usize),
    /// There are too few or too many events.
    #[error("{0} events: a plan is made for 2 to {MOST_EVENTS}")]
    Events(usize),
    /// Two events are bound to the same single counter.
    #[error("events {0} and {1} can never be counted together: they are bound to too few counters")]
    NeverTogether(usize, usize),
    /// An event is bound to no counter.
    #[error("event {0} is bound to no counter")]
    Nowhere(usize),
    /// HRM's anchor is not among the events.
    #[error("the anchor is event {anchor}, but there are only {events}")]
    NoAnchor {
        /// Number of the anchor.
        anchor: usize,
        /// Number of events.
        events: usize,
    },
}

fn check(events: usize, counters: usize) -> Result<(), PlanError> {
    if counters < 2 {
        return Err(PlanError::TooFewCounters(counters));
    }
    if counters > MOST_COUNTERS {
        return Err(PlanError::TooManyCounters(counters));
    }
    if !(2..=MOST_EVENTS).contains(&events) {
        return Err(PlanError::Events(events));
    }
    Ok(())
}

/// Returns a plan for events that any counter can count. The result is deterministic.
pub fn plan(catalogue: &mut Catalogue, events: usize, counters: usize) -> Result<Plan, PlanError> {
    check(events, counters)?;
    let cover = catalogue.best(events, counters);
    Ok(Plan {
        events,
        counters,
        sub_experiments: cover.blocks,
        lower_bound: lower_bound(events, counters),
        origin: cover.origin,
    })
}

/// Returns HRM's plan: the anchor in every sub-experiment, every other event in one (section 4.1).
/// It has ⌈(nh−1)/(np−1)⌉ sub-experiments, which is the minimum.
pub fn hrm_plan(events: usize, counters: usize, anchor: usize) -> Result<Plan, PlanError> {
    check(events, counters)?;
    if anchor >= events {
        return Err(PlanError::NoAnchor { anchor, events });
    }
    let others: Vec<_> = (0..events).filter(|&event| event != anchor).collect();
    let sub_experiments: Blocks = others
        .chunks(counters - 1)
        .map(|part| {
            let mut block = part.to_vec();
            block.push(anchor);
            block.sort_unstable();
            block
        })
        .collect();
    let lower_bound = sub_experiments.len();
    Ok(Plan {
        events,
        counters,
        sub_experiments,
        lower_bound,
        origin: format!("HRM with anchor {anchor}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_hole_is_seen() {
        let mut fano = plan(&mut Catalogue::default(), 7, 3)
            .unwrap()
            .sub_experiments;
        assert_eq!(verify(7, 3, &fano), Ok(()));
        let taken = fano.pop().unwrap();
        let message = verify(7, 3, &fano).unwrap_err();
        assert_eq!(
            message,
            format!(
                "events {} and {} are never counted together",
                taken[0], taken[1]
            )
        );
        fano.push(vec![0, 1, 2, 3]);
        assert!(
            verify(7, 3, &fano)
                .unwrap_err()
                .contains("4 events for 3 counters")
        );
    }

    #[test]
    fn what_cannot_be_planned_is_said() {
        let mut catalogue = Catalogue::default();
        assert_eq!(
            plan(&mut catalogue, 5, 1),
            Err(PlanError::TooFewCounters(1))
        );
        assert_eq!(plan(&mut catalogue, 1, 6), Err(PlanError::Events(1)));
        assert_eq!(
            hrm_plan(5, 3, 5),
            Err(PlanError::NoAnchor {
                anchor: 5,
                events: 5
            })
        );
    }
}
