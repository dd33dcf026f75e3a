//! Checks the sizes of the planner's plans, and verifies every plan independently.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::plan::{Catalogue, lower_bound, plan, schoenheim, verify};

#[test]
fn sizes_with_six_counters() {
    let mut catalogue = Catalogue::default();
    let optimal = [
        (7, 3),
        (8, 3),
        (9, 3),
        (10, 4),
        (11, 6),
        (12, 6),
        (13, 7),
        (14, 7),
        (16, 10),
        (17, 12),
        (18, 12),
        (22, 19),
    ];
    for (events, size) in optimal {
        let plan = plan(&mut catalogue, events, 6).unwrap();
        assert_eq!(verify(events, 6, &plan.sub_experiments), Ok(()));
        assert_eq!(
            plan.sub_experiments.len(),
            size,
            "{events} events: {}",
            plan.origin
        );
        assert!(plan.is_optimal(), "{events} events");
    }
    for (events, most) in [(15, 10), (24, 22), (32, 40), (64, 143)] {
        let plan = plan(&mut catalogue, events, 6).unwrap();
        assert_eq!(verify(events, 6, &plan.sub_experiments), Ok(()));
        assert!(
            plan.sub_experiments.len() <= most,
            "{events} events: {} by {}",
            plan.sub_experiments.len(),
            plan.origin
        );
    }
}

#[test]
fn seven_events_on_three_counters_are_the_plane_of_seven_points() {
    let plan = plan(&mut Catalogue::default(), 7, 3).unwrap();
    assert_eq!(verify(7, 3, &plan.sub_experiments), Ok(()));
    assert_eq!(plan.sub_experiments.len(), 7);
}

#[test]
fn the_whole_table() {
    let mut catalogue = Catalogue::default();
    for events in 4..=64 {
        for counters in 2..=8 {
            let plan = plan(&mut catalogue, events, counters).unwrap();
            assert_eq!(verify(events, counters, &plan.sub_experiments), Ok(()));
            assert!(
                plan.sub_experiments.len() >= lower_bound(events, counters),
                "{events} on {counters}"
            );
        }
    }
}

#[test]
fn on_three_counters_every_plan_is_as_short_as_can_be() {
    // M. K. Fort, G. A. Hedlund 1958: Schönheim's bound, Hanani's where it says one more.
    let mut catalogue = Catalogue::default();
    for events in 4..=64 {
        let plan = plan(&mut catalogue, events, 3).unwrap();
        assert_eq!(verify(events, 3, &plan.sub_experiments), Ok(()));
        assert_eq!(
            plan.sub_experiments.len(),
            schoenheim(events, 3),
            "{events} events: {}",
            plan.origin
        );
    }
}

/// Numbers of events for which plans on four counters have one sub-experiment more than the fewest
/// (W. H. Mills 1972 and 1973: Schönheim's bound, one more with 7, 9 and 10 events, two more with
/// 19).
const LONGER_BY_ONE: [usize; 1] = [55];

#[test]
fn on_four_counters_plans_are_as_short_as_can_be_but_for_some() {
    let mut catalogue = Catalogue::default();
    for events in 5..=64 {
        let plan = plan(&mut catalogue, events, 4).unwrap();
        assert_eq!(verify(events, 4, &plan.sub_experiments), Ok(()));
        let fewest = schoenheim(events, 4)
            + match events {
                7 | 9 | 10 => 1,
                19 => 2,
                _ => 0,
            };
        let more = usize::from(LONGER_BY_ONE.contains(&events));
        assert_eq!(
            plan.sub_experiments.len(),
            fewest + more,
            "{events} events: {}",
            plan.origin
        );
    }
}

#[test]
fn published_designs_on_five_and_six_counters_are_used() {
    let mut catalogue = Catalogue::default();
    for (events, counters, size) in [
        (45, 5, 99),
        (61, 5, 183),
        (62, 6, 143),
        (63, 6, 143),
        (64, 6, 143),
    ] {
        let plan = plan(&mut catalogue, events, counters).unwrap();
        assert_eq!(verify(events, counters, &plan.sub_experiments), Ok(()));
        assert_eq!(
            plan.sub_experiments.len(),
            size,
            "{events} events on {counters}: {}",
            plan.origin
        );
    }
}
