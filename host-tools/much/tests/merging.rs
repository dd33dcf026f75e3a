//! Merges runs generated from a seed, with known correlations.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::data::{Builder, DataError, Measurements, Warning};
use cloison_much::draw::stream;
use cloison_much::estimate;
use cloison_much::evaluate::{self, Comparison, Method, Resampling};
use cloison_much::matrix::{mean_square_error, pairs};
use cloison_much::merge::{self, Indefinite, Options, Target};
use cloison_much::plan::{Catalogue, plan};
use cloison_much::scores::{self, normal_quantile};
use cloison_much::swap::End;
use proptest::prelude::*;
use rand::RngExt;

/// Returns counts of `events` events in the sub-experiments of a plan. They depend on two hidden
/// causes; some are skewed, some have ties, none is normally distributed.
fn measured(events: usize, counters: usize, runs: usize, seed: u64) -> Measurements {
    let plan = plan(&mut Catalogue::default(), events, counters).unwrap();
    let mut builder = Builder::default();
    let mut rng = stream(seed, 0);
    for (number, block) in plan.sub_experiments.iter().enumerate() {
        for run in 0..runs {
            let mut normal = || normal_quantile(rng.random_range(1e-9..1.0));
            let (one, other) = (normal(), normal());
            let all: Vec<f64> = (0..events)
                .map(|event| {
                    let angle = event as f64;
                    let hidden = angle.cos() * one + angle.sin() * other + 0.5 * normal();
                    match event % 3 {
                        0 => ((0.4 * hidden).exp() * 10_000.0).round(),
                        1 => (50_000.0 + 4000.0 * hidden).max(0.0).round(),
                        _ => (20.0 + 4.0 * hidden).max(0.0).round(),
                    }
                })
                .collect();
            for &event in block {
                let name = format!("E{event}");
                builder
                    .add(number as u64, run as u64, None, name.as_bytes(), all[event])
                    .unwrap();
            }
        }
    }
    builder.finish().unwrap()
}

#[test]
fn one_merge_meets_both_targets() {
    let data = measured(12, 4, 120, 5);
    let merged = merge::much(&data, &Options::default()).unwrap();
    let [pearson, spearman] = merged.vectors.correlations();
    let errors = [
        mean_square_error(&pearson, &merged.correlations.pearson_target),
        mean_square_error(&spearman, &merged.correlations.spearman_target),
    ];
    assert!(errors.iter().all(|&error| error < 1e-4), "{errors:?}");
}

#[test]
fn each_target_is_met_and_the_paper_is_farther_off() {
    let data = measured(9, 3, 200, 6);
    let error =
        |vectors: &cloison_much::table::Vectors, goal: &merge::Correlations, which: usize| {
            let goals = [&goal.pearson_target, &goal.spearman_target];
            mean_square_error(&vectors.correlations()[which], goals[which])
        };
    let goal = merge::targets(&data);
    let paper = merge::paper(&data, &Options::default(), Indefinite::Repair).unwrap();
    for (which, target) in [Target::Pearson, Target::Spearman].into_iter().enumerate() {
        let much = merge::much(
            &data,
            &Options {
                target,
                ..Options::default()
            },
        )
        .unwrap();
        let of_much = error(&much.vectors, &goal, which);
        assert!(of_much < 1e-6, "{target:?}: {of_much}");
        assert!(of_much < error(&paper.vectors, &goal, which) / 10.0);
    }
}

#[test]
fn the_best_of_many_draws_is_no_worse() {
    let data = measured(7, 3, 60, 7);
    let error = |draws: u64, seed: u64| {
        let merged = merge::paper(
            &data,
            &Options {
                draws,
                seed,
                ..Options::default()
            },
            Indefinite::Repair,
        )
        .unwrap();
        let [pearson, spearman] = merged.vectors.correlations();
        mean_square_error(&pearson, &merged.correlations.pearson_measured)
            + mean_square_error(&spearman, &merged.correlations.spearman_measured)
    };
    let pairs: Vec<_> = (0..5)
        .map(|seed| (error(10, seed), error(1, seed)))
        .collect();
    assert!(
        pairs.iter().all(|(best, one)| best <= one) && pairs.iter().any(|(best, one)| best < one),
        "{pairs:?}"
    );
}

#[test]
fn hrm_keeps_what_was_measured_with_the_anchor() {
    let mut builder = Builder::default();
    let mut rng = stream(8, 0);
    for sub in 0..3_u64 {
        for run in 0..80 {
            let anchor = rng.random_range(1..100_000);
            builder
                .add(sub, run, None, b"anchor", f64::from(anchor))
                .unwrap();
            for event in 0..2 {
                let name = format!("E{}", 2 * sub + event);
                let value = f64::from(anchor * 2 + rng.random_range(0..20_000));
                builder.add(sub, run, None, name.as_bytes(), value).unwrap();
            }
        }
    }
    let data = builder.finish().unwrap();
    let anchor = data.event("anchor").unwrap();
    let vectors = merge::hrm(&data, anchor, None).unwrap();
    let [_, spearman] = vectors.correlations();
    for (number, sub) in data.sub_experiments.iter().enumerate() {
        let [a, b] =
            [2 * number, 2 * number + 1].map(|event| data.event(&format!("E{event}")).unwrap());
        let within = scores::spearman(
            &sub.column(a).unwrap().to_vec(),
            &sub.column(b).unwrap().to_vec(),
        );
        assert!(
            (spearman[(a, b)] - within).abs() < 1e-12,
            "pairs of one sub-experiment keep their correlation"
        );
        let with_anchor = scores::spearman(
            &sub.column(a).unwrap().to_vec(),
            &sub.column(anchor).unwrap().to_vec(),
        );
        assert!(
            (spearman[(a, anchor)] - with_anchor).abs() < 1e-12,
            "and so do pairs with the anchor"
        );
    }
    assert!(matches!(
        merge::hrm(&data, 1, None),
        Err(DataError::NotWithAnchor { .. })
    ));
}

#[test]
fn repaired_estimates_are_beaten_in_both_and_hrm_and_blind_are_not_near_them() {
    let data = measured(10, 4, 300, 9);
    let comparison = Comparison {
        data: &data,
        hrm: None,
        anchor: 0,
        runs: &[60],
        samples: 8,
        resampling: Resampling::HeldOut,
        seed: 3,
    };
    let outcomes = evaluate::compare(&comparison, &|| ()).unwrap();
    let of = |method: Method| {
        outcomes
            .iter()
            .find(|outcome| outcome.method == method)
            .unwrap()
    };
    for which in 0..2 {
        let repaired = of(Method::Repaired).mean(which);
        assert!(repaired <= of(Method::Pairwise).mean(which), "{which}");
        assert!(of(Method::MuchBoth).mean(which) < 0.9 * repaired, "{which}");
        assert!(of(Method::Blind).mean(which) > 10.0 * repaired, "{which}");
        assert!(of(Method::Hrm).mean(which) > 2.0 * repaired, "{which}");
    }
    assert_eq!(
        outcomes,
        evaluate::compare(&comparison, &|| ()).unwrap(),
        "the same seed, the same samples"
    );
}

#[test]
fn threads_do_not_change_the_result() {
    let data = measured(9, 4, 400, 10);
    let options = Options {
        vectors: Some(6000),
        ..Options::default()
    };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| merge::much(&data, &options).unwrap().vectors)
    };
    let one = with(1);
    assert_eq!(one, with(3));
    let other = merge::much(
        &data,
        &Options {
            seed: 2,
            ..options.clone()
        },
    )
    .unwrap()
    .vectors;
    assert_ne!(one, other, "another seed, another order");
}

#[test]
fn constants_ties_and_few_unequal_runs_are_merged_and_said() {
    let mut builder = Builder::default();
    let mut rng = stream(11, 0);
    for (sub, runs) in [(0_u64, 12), (1, 40), (2, 40)] {
        for run in 0..runs {
            let base = rng.random_range(0..5);
            let values = [("a", base), ("b", base + rng.random_range(0..2)), ("c", 7)];
            for (at, (name, value)) in values.into_iter().enumerate() {
                if at as u64 != sub {
                    builder
                        .add(sub, run, None, name.as_bytes(), f64::from(value))
                        .unwrap();
                }
            }
        }
    }
    let data = builder.finish().unwrap();
    let warnings = data.warnings();
    assert!(
        warnings.iter().any(
            |w| matches!(w, Warning::Constant { event, value } if event == "c" && *value == 7.0)
        )
    );
    assert!(
        warnings
            .iter()
            .any(|w| matches!(w, Warning::FewRuns { numbers, fewest: 12 } if numbers == &[0]))
    );
    assert!(warnings.iter().any(|w| matches!(
        w,
        Warning::UnequalRuns {
            fewest: 12,
            most: 40
        }
    )));
    let merged = merge::much(&data, &Options::default()).unwrap();
    let c = data.event("c").unwrap();
    assert!(
        merged.vectors.columns[c]
            .values()
            .iter()
            .all(|&value| value == 7.0)
    );
    assert!(
        merged
            .vectors
            .correlations()
            .iter()
            .all(|matrix| matrix.iter().all(|value| value.is_finite()))
    );
}

/// Six events that vary, in the sub-experiments of a plan, and `constants` that do not.
fn with_constants(constants: usize) -> Measurements {
    let few = measured(6, 3, 60, 21);
    let mut builder = Builder::default();
    for sub in &few.sub_experiments {
        for run in 0..sub.runs() {
            for (&event, column) in sub.events.iter().zip(&sub.columns) {
                let name = few.events[event].name.as_bytes();
                builder
                    .add(sub.number, run as u64, None, name, column.get(run))
                    .unwrap();
            }
            for constant in 0..constants {
                builder
                    .add(
                        sub.number,
                        run as u64,
                        None,
                        format!("C{constant}").as_bytes(),
                        7.0,
                    )
                    .unwrap();
            }
        }
    }
    builder.finish().unwrap()
}

#[test]
fn constant_events_do_not_dilute_the_error() {
    let errors = |constants: usize| {
        let data = with_constants(constants);
        let vectors = merge::blind(&data).unwrap();
        let pairs = evaluate::judged_pairs(&data);
        assert_eq!(pairs.len(), 15);
        let reference = evaluate::reference(&data);
        evaluate::accuracy(&vectors.correlations()[0], &reference[0], &pairs).mean_square
    };
    assert!(
        errors(0) > 0.01 && (errors(0) - errors(6)).abs() < 1e-12,
        "{} and {}",
        errors(0),
        errors(6)
    );
}

#[test]
fn numbers_of_runs_that_there_are_not_are_refused() {
    let data = with_constants(0);
    let compare = |resampling, runs: &[usize]| {
        let comparison = Comparison {
            data: &data,
            hrm: None,
            anchor: 0,
            runs,
            samples: 2,
            resampling,
            seed: 1,
        };
        evaluate::compare(&comparison, &|| ()).map(|outcomes| outcomes.len())
    };
    for (resampling, most, left) in [
        (Resampling::HeldOut, 30, 30),
        (Resampling::Subset, 60, 0),
        (Resampling::Bootstrap, 60, 0),
    ] {
        assert_eq!(resampling.most_runs(&data), most);
        assert_eq!(compare(resampling, &[10, most]), Ok(2 * Method::ALL.len()));
        let asked = most + 1;
        assert_eq!(
            compare(resampling, &[10, asked]),
            Err(DataError::Runs { asked, most, left })
        );
    }
    assert_eq!(Resampling::default(), Resampling::HeldOut);
}

#[test]
fn hrm_without_measurements_of_its_own_says_how_few_runs_it_uses() {
    let data = measured(9, 3, 60, 22);
    let with_anchor = data
        .sub_experiments
        .iter()
        .filter(|sub| sub.column(0).is_some())
        .count();
    assert!(with_anchor < data.sub_experiments.len());
    let comparison = Comparison {
        data: &data,
        hrm: None,
        anchor: 0,
        runs: &[20],
        samples: 2,
        resampling: Resampling::default(),
        seed: 1,
    };
    let outcomes = evaluate::compare(&comparison, &|| ()).unwrap();
    let of = |method| {
        outcomes
            .iter()
            .find(|outcome| outcome.method == method)
            .unwrap()
            .total_runs
    };
    assert_eq!(
        (of(Method::Hrm), of(Method::MuchBoth)),
        (20 * with_anchor, 20 * data.sub_experiments.len())
    );
}

#[test]
fn the_band_of_the_error_holds_the_error() {
    let data = with_constants(3);
    let merged = merge::much(&data, &Options::default()).unwrap().vectors;
    assert!(evaluate::is_in_sample(&merged, &data));
    let correlations = merged.correlations();
    let (pairs, reference) = (evaluate::judged_pairs(&data), evaluate::reference(&data));
    let bands = evaluate::bands(&correlations, &data, 200, 1);
    for which in 0..2 {
        let error = evaluate::accuracy(&correlations[which], &reference[which], &pairs).mean_square;
        let (low, high) = bands.mean_square[which];
        assert!(
            (low..=high).contains(&error),
            "{low} … {high} does not hold {error}"
        );
    }
    let (one, other) = data.split(30, &mut stream(1, 0));
    let vectors = merge::much(&one, &Options::default()).unwrap().vectors;
    assert!(
        !evaluate::is_in_sample(&vectors, &other),
        "other runs are no sample of these"
    );
}

#[test]
fn the_published_method_takes_scores_of_the_grouped_sample_and_refuses_indefinite_matrices() {
    let data = measured(12, 4, 20, 5);
    let error = merge::paper(&data, &Options::default(), Indefinite::Refuse).unwrap_err();
    assert!(
        matches!(&error, DataError::Indefinite(least) if least.starts_with("-0.")),
        "{error}"
    );
    let merged = merge::paper(&data, &Options::default(), Indefinite::Repair).unwrap();
    assert!(
        merged.correlations.model.least_eigenvalue < 0.0 && merged.correlations.repairs.is_none()
    );
    // One sub-experiment that counts everything needs no repair.
    let all = merged.vectors.measurements();
    assert!(merge::paper(&all, &Options::default(), Indefinite::Refuse).is_ok());
    // Two sub-experiments with levels far apart: scores within the pair's runs see nothing of that,
    // grouped ones do.
    let mut builder = Builder::default();
    for (sub, events, level) in [
        (0_u64, ["a", "b"], 0.0),
        (1, ["a", "c"], 1000.0),
        (2, ["b", "c"], 0.0),
    ] {
        for run in 0..20_u64 {
            for (at, event) in events.into_iter().enumerate() {
                let value = level + ((run * [7, 11][at]) % 20) as f64;
                builder
                    .add(sub, run, None, event.as_bytes(), value)
                    .unwrap();
            }
        }
    }
    let data = builder.finish().unwrap();
    let scored = estimate::Scored::new(&data, estimate::Kind::NormalScores);
    let a = scores::normal_scores(&data.grouped(0));
    let expected = scores::pearson(&a[..20], &scores::normal_scores(&data.grouped(1))[..20]);
    assert!((estimate::pairwise_of_scores(&scored)[(0, 1)] - expected).abs() < 1e-12);
}

#[test]
fn the_pooled_estimate_has_an_optimum_and_reaches_it() {
    for (events, counters, runs) in [(16, 6, 50), (16, 6, 8), (24, 4, 40)] {
        let merged =
            merge::much(&measured(events, counters, runs, 3), &Options::default()).unwrap();
        for estimate in merged.correlations.estimates.unwrap() {
            assert!(
                estimate.converged && estimate.steps < 1000,
                "{} steps",
                estimate.steps
            );
            let sum: f64 = estimate.weights.iter().map(|(_, weight)| weight).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{:?}", estimate.weights);
        }
    }
}

#[test]
fn exchanges_bring_together_what_a_few_runs_make() {
    // In one run of a hundred everything is 20 deviations up: Pearson's correlations are those of a
    // few vectors.
    let plan = plan(&mut Catalogue::default(), 16, 6).unwrap();
    let mut builder = Builder::default();
    let mut rng = stream(31, 0);
    for (sub, block) in plan.sub_experiments.iter().enumerate() {
        for run in 0..50_u64 {
            let more = if rng.random_range(0..100) == 0 {
                20.0
            } else {
                0.0
            };
            for &event in block {
                let level = normal_quantile(rng.random_range(1e-9..1.0)) + more;
                let name = format!("E{event}");
                builder
                    .add(
                        sub as u64,
                        run,
                        None,
                        name.as_bytes(),
                        (1e6 + 1e4 * level).round(),
                    )
                    .unwrap();
            }
        }
    }
    let merged = merge::much(&builder.finish().unwrap(), &Options::default()).unwrap();
    let exchanges = merged.exchanges.unwrap();
    assert_ne!(exchanges.end, End::Work, "{exchanges:?}");
    let [pearson, _] = merged.vectors.correlations();
    let error = mean_square_error(&pearson, &merged.correlations.pearson_target);
    assert!(error < 0.03, "{error} after {exchanges:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// If every event has as many counts as there are vectors, a column is a permutation of its
    /// event's counts; otherwise each count occurs equally often, give or take one.
    #[test]
    fn every_value_is_an_observed_one(events in 4..9_usize, runs in 5..40_usize, seed in 0..1000_u64, extra in 0..50_usize) {
        let data = measured(events, 3, runs, seed);
        let most = (0..events).map(|event| data.grouped(event).len()).max().unwrap();
        for vectors in [None, Some(most + extra)] {
            let merged = merge::much(&data, &Options { seed, vectors, ..Options::default() }).unwrap().vectors;
            for event in 0..events {
                let mut observed = data.grouped(event);
                observed.sort_by(f64::total_cmp);
                let mut values = merged.columns[event].values();
                values.sort_by(f64::total_cmp);
                if values.len() == observed.len() {
                    prop_assert_eq!(&values, &observed);
                }
                let (few, count) = (values.len() / observed.len(), |list: &[f64], value| list.iter().filter(|v| **v == value).count());
                for &value in &observed {
                    let (is, was) = (count(&values, value), count(&observed, value));
                    prop_assert!((few * was..=(few + 1) * was).contains(&is), "{value}: {is} of {was}");
                }
                prop_assert!(values.iter().all(|value| observed.contains(value)));
            }
        }
    }
}

#[test]
fn all_pairs_are_in_the_order_of_rows() {
    assert_eq!(pairs(3), [(0, 1), (0, 2), (1, 2)]);
}
