//! Which events to count together: sub-experiments in which every pair of events meets (MUCH, section 4.2 and step 1 of
//! section 4.4), and the plan with an anchor for HRM (section 4.1).
//!
//! A plan in which every pair meets is a covering design C(v, k, 2). The fewest sub-experiments possible are known for
//! few sizes only; the planner takes the best of known constructions and searches, and says that a plan is optimal only
//! where a proven lower bound is met.

mod bound_events;
mod bounds;
mod catalogue;
mod cyclic;
mod field;
mod geometry;
mod known;
mod search;

pub use bound_events::{Binding, plan_bound};
pub use bounds::{lower_bound, schoenheim};
pub use catalogue::{Catalogue, Cover};
pub use geometry::Blocks;
pub use known::line as known_line;

/// The most counters that a plan is made for.
pub const MOST_COUNTERS: usize = 31;
/// The most events that a plan is made for.
pub const MOST_EVENTS: usize = 128;

/// Sub-experiments, each a list of events that are counted in the same run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many events there are.
    pub events: usize,
    /// How many counters there are.
    pub counters: usize,
    /// The sub-experiments, each with the numbers of its events, ascending.
    pub sub_experiments: Blocks,
    /// No plan has fewer sub-experiments than this.
    pub lower_bound: usize,
    /// How it was made.
    pub origin: String,
}

impl Plan {
    /// Whether it is proven that no plan is shorter.
    pub fn is_optimal(&self) -> bool {
        self.sub_experiments.len() == self.lower_bound
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Fewer than two counters.
    #[error("a plan needs at least 2 counters, not {0}: in a sub-experiment events are counted together")]
    TooFewCounters(usize),
    /// More counters than any machine has.
    #[error("{0} counters: a plan is made for at most {MOST_COUNTERS}")]
    TooManyCounters(usize),
    /// Too few or too many events.
    #[error("{0} events: a plan is made for 2 to {MOST_EVENTS}")]
    Events(usize),
    /// Two events are bound to the same single counter.
    #[error("events {0} and {1} can never be counted together: the counters they are bound to do not suffice")]
    NeverTogether(usize, usize),
    /// An event has no counter at all.
    #[error("event {0} is bound to no counter")]
    Nowhere(usize),
    /// HRM's anchor is not among the events.
    #[error("the anchor is event {anchor}, but there are only {events}")]
    NoAnchor {
        /// Its number.
        anchor: usize,
        /// How many events there are.
        events: usize,
    },
}

/// Whether every pair of points is in a block, and no block is too large or names a point that does not exist. Does not
/// use anything of the planner.
pub fn verify(points: usize, size: usize, blocks: &Blocks) -> Result<(), String> {
    let mut met = std::collections::BTreeSet::new();
    for (number, block) in blocks.iter().enumerate() {
        let distinct: std::collections::BTreeSet<_> = block.iter().copied().collect();
        if distinct.len() != block.len() {
            return Err(format!("sub-experiment {number} names an event twice"));
        }
        if block.len() > size {
            return Err(format!("sub-experiment {number} has {} events for {size} counters", block.len()));
        }
        if let Some(point) = block.iter().find(|&&point| point >= points) {
            return Err(format!("sub-experiment {number} names event {point} of {points}"));
        }
        for &a in &distinct {
            met.extend(distinct.range(a + 1..).map(|&b| (a, b)));
        }
    }
    for a in 0..points {
        for b in a + 1..points {
            if !met.contains(&(a, b)) {
                return Err(format!("events {a} and {b} are never counted together"));
            }
        }
    }
    Ok(())
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

/// A plan for events that any counter can count. The same every time.
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

/// HRM's plan: the anchor in every sub-experiment, every other event in one (section 4.1). It has ⌈(nh−1)/(np−1)⌉
/// sub-experiments, which is the fewest.
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
    Ok(Plan { events, counters, sub_experiments, lower_bound, origin: format!("HRM with anchor {anchor}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_hole_is_seen() {
        let mut fano = plan(&mut Catalogue::default(), 7, 3).unwrap().sub_experiments;
        assert_eq!(verify(7, 3, &fano), Ok(()));
        let taken = fano.pop().unwrap();
        let message = verify(7, 3, &fano).unwrap_err();
        assert_eq!(message, format!("events {} and {} are never counted together", taken[0], taken[1]));
        fano.push(vec![0, 1, 2, 3]);
        assert!(verify(7, 3, &fano).unwrap_err().contains("4 events for 3 counters"));
    }

    #[test]
    fn what_cannot_be_planned_is_said() {
        let mut catalogue = Catalogue::default();
        assert_eq!(plan(&mut catalogue, 5, 1), Err(PlanError::TooFewCounters(1)));
        assert_eq!(plan(&mut catalogue, 1, 6), Err(PlanError::Events(1)));
        assert_eq!(hrm_plan(5, 3, 5), Err(PlanError::NoAnchor { anchor: 5, events: 5 }));
    }
}
