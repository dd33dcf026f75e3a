//! Checks the sizes of the planner's plans, and verifies every plan independently.

use cloison_much::plan::{Catalogue, lower_bound, plan, verify};

#[test]
fn sizes_with_six_counters() {
    let mut catalogue = Catalogue::default();
    let optimal =
        [(7, 3), (8, 3), (9, 3), (10, 4), (11, 6), (12, 6), (13, 7), (14, 7), (16, 10), (17, 12), (18, 12), (22, 19)];
    for (events, size) in optimal {
        let plan = plan(&mut catalogue, events, 6).unwrap();
        assert_eq!(verify(events, 6, &plan.sub_experiments), Ok(()));
        assert_eq!(plan.sub_experiments.len(), size, "{events} events: {}", plan.origin);
        assert!(plan.is_optimal(), "{events} events");
    }
    for (events, most) in [(15, 10), (24, 22), (32, 40), (64, 175)] {
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
            assert!(plan.sub_experiments.len() >= lower_bound(events, counters), "{events} on {counters}");
        }
    }
}
