//! Properties of bounds: they enclose every monotone truth, and more points make them tighter.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod synthetic;

use cloison_tune::*;
use proptest::prelude::*;
use synthetic::{Numbers, PERIOD, Program, case, conditions};

const SIZE: synthetic::Size = synthetic::Size {
    vms: 1,
    colors: 8,
    steps: 3,
    budgets: 4,
    points: 0,
};

/// A program, points to measure in this order, and points to ask for.
fn experiment(seed: u64, count: usize) -> (Program, Surface, Vec<Point>, Vec<Point>) {
    let case = case(seed, SIZE);
    let (vm, program) = (&case.problem.vms[0], case.programs[0].clone());
    let mut numbers = Numbers(seed ^ 0xabcd);
    let mut points = |count: usize| -> Vec<Point> {
        let one = |numbers: &mut Numbers| {
            let traffic = Traffic(numbers.below(12) * 20);
            let all = conditions(vm, SIZE.colors, traffic);
            all[usize::try_from(numbers.below(all.len() as u64)).unwrap()]
        };
        (0..count).map(|_| one(&mut numbers)).collect()
    };
    let (measured, asked) = (points(count), points(40));
    let surface = Surface::new(PERIOD, program.alone());
    (program, surface, measured, asked)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bounds_enclose_the_truth_and_only_tighten(seed: u64, count in 1..30_usize) {
        let (program, mut surface, measured, asked) = experiment(seed, count);
        let mut before: Vec<_> = asked.iter().map(|point| surface.bounds(point)).collect();
        for point in measured {
            surface.insert(Measurement { point, sample: program.run(&point) });
            for (point, before) in asked.iter().zip(&mut before) {
                let now = surface.bounds(point);
                let truth = program.run(point).time;
                prop_assert!(now.lower <= truth);
                prop_assert!(now.upper.is_none_or(|upper| truth <= upper));
                prop_assert!(before.lower <= now.lower);
                let looser = before.upper.is_none_or(|old| now.upper.is_some_and(|new| new <= old));
                prop_assert!(looser, "{before:?} {now:?}");
                let estimate = surface.estimate(point);
                prop_assert_eq!(estimate.is_some(), now.upper.is_some());
                if let Some(estimate) = estimate {
                    prop_assert!(now.lower <= estimate && Some(estimate) <= now.upper);
                }
                *before = now;
            }
            prop_assert_eq!(surface.bounds(&point).upper, Some(program.run(&point).time));
            prop_assert!(surface.bounds(&point).is_exact());
        }
        prop_assert_eq!(surface.contradiction(), Permille(1000));
    }

    /// Runs that contradict the order still give bounds in the right order, which are monotone.
    #[test]
    fn bounds_of_any_measurements_are_monotone(seed: u64, times in prop::collection::vec(1..1_000_000_u64, 1..25)) {
        let (_, mut surface, measured, asked) = experiment(seed, times.len());
        for (point, time) in measured.into_iter().zip(times) {
            let sample = Sample { time: Time(time), refills: Some(Refills(time % 977)) };
            surface.insert(Measurement { point, sample });
        }
        let hull = surface.hull();
        for a in &asked {
            let bounds = hull.bounds(a);
            prop_assert!(bounds.upper.is_none_or(|upper| bounds.lower <= upper));
            for b in asked.iter().filter(|b| a.is_easier_or_equal(b) && a.budget == b.budget) {
                let harder = hull.bounds(b);
                prop_assert!(bounds.lower <= harder.lower);
                let upper = harder.upper.is_none_or(|harder| bounds.upper.is_some_and(|it| it <= harder));
                prop_assert!(upper, "{a:?} {bounds:?} {b:?} {harder:?}");
            }
        }
    }
}

/// Two runs, the one with more colors being slower: both times stay possible.
#[test]
fn a_contradiction_is_stated_and_widens_the_bounds() {
    let sample = |time| Sample {
        time: Time(time),
        refills: None,
    };
    let own = |colors| Point {
        placement: Placement::Own {
            colors: Colors(colors),
        },
        shared: Colors(0),
        traffic: Traffic(0),
        budget: Budget::Unlimited,
    };
    let mut surface = Surface::new(PERIOD, sample(100));
    for (colors, time) in [(4, 150), (2, 120)] {
        surface.insert(Measurement {
            point: own(colors),
            sample: sample(time),
        });
    }
    for colors in [2, 3, 4] {
        let bounds = surface.bounds(&own(colors));
        assert_eq!((bounds.lower, bounds.upper), (Time(120), Some(Time(150))));
    }
    assert_eq!(surface.contradiction(), Permille(1250));
    assert!(surface.is_measured(&own(2)) && !surface.is_measured(&own(3)));
}

/// The budget rule: bursts cost at most what all refills at the budget cost.
#[test]
fn a_budget_that_was_not_measured_is_bounded_by_refills() {
    let point = |budget| Point {
        placement: Placement::SHARED,
        shared: Colors(4),
        traffic: Traffic(50),
        budget,
    };
    let sample = |time, refills| Sample {
        time: Time(time),
        refills: Some(Refills(refills)),
    };
    let mut surface = Surface::new(Time(1000), sample(90_000, 100));
    surface.insert(Measurement {
        point: point(Budget::Unlimited),
        sample: sample(100_000, 400),
    });
    let bounds = surface.bounds(&point(Budget::PerPeriod(Traffic(10))));
    // 400 refills at 10 per period are 40 periods; two more for the first and the last.
    assert_eq!(bounds.upper, Some(Time(142_000)));
    assert_eq!(bounds.lower, Time(100_000));
    // 400 refills at 1 per period are at least 398 whole periods.
    let bounds = surface.bounds(&point(Budget::PerPeriod(Traffic(1))));
    assert_eq!(bounds.lower, Time(398_000));
    assert_eq!(bounds.upper, Some(Time(502_000)));
}
