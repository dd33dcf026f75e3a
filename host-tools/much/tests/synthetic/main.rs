//! Merges of synthetic counts with a known population: the distance of each method's correlations
//! from it.
//!
//! `cargo test -p cloison-much --release -- --ignored synthetic --nocapture` prints the whole
//! table, in some minutes. `MUCH_SETS`, `MUCH_RUNS` and `MUCH_CASES` (comma-separated) select a
//! part of it. The column `then` is of an earlier merge (then.csv).
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bound;
mod population;

use bound::bound;
use cloison_much::draw::stream;
use cloison_much::estimate::{self, Kind};
use cloison_much::matrix::{mean_square_error, nearest_correlation};
use cloison_much::merge::{self, Indefinite, Options};
use nalgebra::DMatrix;
use population::{Case, Population};
use std::time::Instant;

/// Pearson's and Spearman's correlations.
type Both = [DMatrix<f64>; 2];
/// The compared methods, in the order of columns.
const METHODS: [&str; 5] = ["pairwise", "repaired", "plain", "target", "MUCH"];

/// Mean square errors of one data set: method by method, Pearson's and Spearman's.
fn errors(
    population: &Population,
    truth: &Both,
    runs: usize,
    set: u64,
) -> [[f64; 2]; METHODS.len()] {
    let data = population.measured(runs, &mut stream(set, 1));
    let pairwise = [Kind::Counts, Kind::Ranks].map(|kind| estimate::pairwise(&data, kind));
    let repaired = pairwise
        .clone()
        .map(|matrix| nearest_correlation(&matrix, 1e-7).matrix);
    let options = Options {
        seed: set + 1,
        ..Options::default()
    };
    let plain = merge::paper(&data, &options, Indefinite::Repair)
        .expect("every pair meets")
        .vectors
        .correlations();
    let much = merge::much(&data, &options).expect("every pair meets");
    let target = [
        much.correlations.pearson_target.clone(),
        much.correlations.spearman_target.clone(),
    ];
    let all: [Both; METHODS.len()] = [
        pairwise,
        repaired,
        plain,
        target,
        much.vectors.correlations(),
    ];
    all.map(|both| [0, 1].map(|kind| mean_square_error(&both[kind], &truth[kind])))
}

/// For each number of runs, the errors of `sets` data sets, set by set.
fn of_sets(case: Case, runs: &[usize], sets: u64) -> Vec<Vec<[[f64; 2]; METHODS.len()]>> {
    let mut all = vec![vec![]; runs.len()];
    for set in 0..sets {
        let population = Population::new(case, set);
        let truth = population.truth(&mut stream(set, 2));
        for (all, &runs) in all.iter_mut().zip(runs) {
            all.push(errors(&population, &truth, runs, set));
        }
    }
    all
}

fn means(of_sets: &[[[f64; 2]; METHODS.len()]], kind: usize) -> [f64; METHODS.len()] {
    std::array::from_fn(|method| {
        of_sets.iter().map(|set| set[method][kind]).sum::<f64>() / of_sets.len() as f64
    })
}

/// How often MUCH is worse than the best of the other methods: the mean over data sets, as a ratio.
fn ratio(means: &[f64; METHODS.len()]) -> f64 {
    means[4] / means[..3].iter().copied().fold(f64::INFINITY, f64::min)
}

fn wanted<T: std::str::FromStr>(variable: &str, otherwise: Vec<T>) -> Vec<T> {
    match std::env::var(variable) {
        Ok(text) => text
            .split(',')
            .filter_map(|item| item.parse().ok())
            .collect(),
        Err(_) => otherwise,
    }
}

/// What an earlier merge made of the same data sets: the errors of the pairwise estimates and of
/// the merge.
fn then(case: Case, runs: usize, kind: &str) -> Option<[f64; 2]> {
    let start = format!("{},{runs},{kind},", case.name());
    let line = include_str!("then.csv")
        .lines()
        .find_map(|line| line.strip_prefix(&start))?;
    let (pairwise, then) = line.split_once(',')?;
    Some([pairwise.parse().ok()?, then.parse().ok()?])
}

/// What part of the error of then may be left of a Gaussian case: four fifths, and a little more
/// where eight causes leave little to gain with as many runs.
fn most_of_then(case: Case, runs: usize) -> f64 {
    match case {
        Case::Gaussian(8) if runs == 300 => 0.85,
        Case::Gaussian(_) => 0.8,
        // What runs have in common with their sub-experiment's time misleads every estimate, and
        // the better ones more.
        Case::Drift => 1.15,
        _ => 1.05,
    }
}

#[test]
#[ignore = "takes minutes; prints a table"]
fn synthetic_counts_of_every_shape() {
    let sets = wanted("MUCH_SETS", vec![20_u64])[0];
    let names = wanted::<String>("MUCH_CASES", vec![]);
    let cases = Case::ALL
        .into_iter()
        .filter(|case| names.is_empty() || names.iter().any(|name| name == case.name()));
    let titles = METHODS.map(|name| format!("{name:>9}")).join(" ");
    println!(
        "{:>18} {:>4} {:>8} {titles} ratio {:>9}  s",
        "case", "n", "kind", "then"
    );
    let runs = wanted("MUCH_RUNS", vec![8, 50, 300]);
    let mut worse = vec![];
    for case in cases {
        let started = Instant::now();
        let of_sets = of_sets(case, &runs, sets);
        let seconds = started.elapsed().as_secs_f64();
        for (&runs, of_sets) in runs.iter().zip(&of_sets) {
            for (kind, name) in ["Pearson", "Spearman"].into_iter().enumerate() {
                let means = means(of_sets, kind);
                let columns = means.map(|error| format!("{error:9.6}")).join(" ");
                let then = then(case, runs, name).filter(|_| sets == 20);
                let of_then = then.map_or_else(String::new, |[_, then]| format!("{then:9.6}"));
                let ratio = ratio(&means);
                println!(
                    "{:>18} {runs:>4} {name:>8} {columns} {ratio:5.2} {of_then:>9} {seconds:4.1}",
                    case.name()
                );
                if ratio > 1.05 {
                    worse.push(format!(
                        "{} n={runs} {name}: {ratio:.3} of the best of the others",
                        case.name()
                    ));
                }
                if let Some([pairwise, then]) = then {
                    assert!(
                        (means[0] - pairwise).abs() < 1e-6,
                        "not the data sets of then.csv"
                    );
                    if means[4] > most_of_then(case, runs) * then {
                        worse.push(format!(
                            "{} n={runs} {name}: {:.3} of then",
                            case.name(),
                            means[4] / then
                        ));
                    }
                }
            }
        }
    }
    assert!(worse.is_empty(), "worse than it should be: {worse:#?}");
}

/// With 300 runs and 8 causes, not even an estimate that knows how many causes there are, and is
/// right on average, could have four fifths of the earlier merge's error: of the pairwise
/// estimates' error the least is 0.75 times as much, and the earlier merge had 0.90.
#[test]
fn synthetic_counts_say_so_much_and_no_more() {
    println!(
        "{:>12} {:>8} {:>8} {:>12}",
        "case", "pairwise", "least", "with causes"
    );
    for causes in [3, 1, 8] {
        let case = Case::Gaussian(causes);
        let of_sets: Vec<_> = (0..20)
            .map(|set| {
                bound(
                    &Population::new(case, set).of_causes(),
                    &Population::blocks(),
                    300,
                )
            })
            .collect();
        let mean = |of: fn(&bound::Bound) -> f64| {
            of_sets.iter().map(of).sum::<f64>() / of_sets.len() as f64
        };
        let [pairwise, least, with_causes] = [
            mean(|bound| bound.pairwise),
            mean(|bound| bound.least),
            mean(|bound| bound.with_causes),
        ];
        println!(
            "{:>12} {pairwise:8.5} {least:8.5} {with_causes:12.5}",
            case.name()
        );
        let [measured, then] = then(case, 300, "Pearson").expect("it is in then.csv");
        assert!(
            (pairwise / measured - 1.0).abs() < 0.1,
            "{pairwise} and {measured}"
        );
        assert!(with_causes < least && least < pairwise);
        assert_eq!(
            with_causes / pairwise < 0.8 * then / measured,
            causes < 8,
            "{with_causes} of {pairwise}"
        );
    }
}

/// Counts drift with time. One after the other, sub-experiments differ by the drift; where they
/// take turns, as those of campaigns do, each has all of it.
#[test]
fn a_drift_does_less_harm_where_sub_experiments_take_turns() {
    for kind in 0..2 {
        let [one, turns] = [Case::Drift, Case::DriftInterleaved]
            .map(|case| means(&of_sets(case, &[50], 3)[0], kind)[4]);
        assert!(turns < 0.5 * one, "{turns} and {one}");
    }
}

/// A few of the cases, small enough for every day: by Pearson's and Spearman's correlations, MUCH
/// is no worse than the best of the other methods, and much better where the counts are as a
/// Gaussian model has them.
#[test]
fn a_few_synthetic_counts() {
    for (case, most) in [
        (Case::Gaussian(3), 0.75),
        (Case::Lognormal(10), 0.75),
        (Case::ZeroInflated, 0.75),
        (Case::Bimodal, 0.75),
        (Case::Collinear, 0.75),
    ] {
        let of_sets = of_sets(case, &[50], 2);
        for kind in 0..2 {
            let ratio = ratio(&means(&of_sets[0], kind));
            assert!(
                ratio < most,
                "{}, {}: {ratio:.3}",
                case.name(),
                ["Pearson", "Spearman"][kind]
            );
        }
    }
}
