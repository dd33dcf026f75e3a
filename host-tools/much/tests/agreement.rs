//! Compares results with SciPy, statsmodels and R; the first lines of the fixtures say how the
//! values were made.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::matrix::nearest_correlation;
use cloison_much::scores;
use nalgebra::DMatrix;
use std::collections::HashMap;

const SCIPY: &str = include_str!("fixtures/scipy.csv");
const STATSMODELS_AND_R: &str = include_str!("fixtures/statsmodels-r.csv");

/// Returns the rows of a fixture: the kind of value, and the fields.
fn lines(fixture: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    fixture
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (what, rest) = line.split_once(',')?;
            Some((what, rest.split(',').collect()))
        })
}

fn numbers(fields: &[&str]) -> Vec<f64> {
    fields
        .iter()
        .map(|field| field.parse().expect("a number"))
        .collect()
}

#[track_caller]
fn near(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() < 1e-9, "{what}: {ours} and {theirs}");
}

/// Compares scores, correlations and distances of the columns a, b and c with those of a fixture.
/// Returns how many were compared.
fn compare(fixture: &str) -> usize {
    let columns: HashMap<&str, Vec<f64>> = lines(SCIPY)
        .filter(|(what, _)| what.len() == 1)
        .map(|(what, fields)| (what, numbers(&fields)))
        .collect();
    let weighted = |values: &[f64]| {
        let mut sorted: Vec<_> = values.iter().map(|&value| (value, 1)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        sorted
    };
    let mut compared = 0;
    for (what, fields) in lines(fixture) {
        if what == "scores" {
            let ours = scores::normal_scores(&columns["c"]);
            assert_eq!(ours.len(), fields.len());
            ours.iter()
                .zip(numbers(&fields))
                .for_each(|(&ours, theirs)| near(ours, theirs, what));
            compared += ours.len();
        }
        let of_two =
            |f: &dyn Fn(&[f64], &[f64]) -> f64| f(&columns[fields[0]], &columns[fields[1]]);
        let ours = match what {
            "pearson" => of_two(&scores::pearson),
            "spearman" => of_two(&scores::spearman),
            "ks" => {
                of_two(&|one, other| scores::kolmogorov_smirnov(&weighted(one), &weighted(other)))
            }
            _ => continue,
        };
        near(
            ours,
            fields[2].parse().expect("a number"),
            &format!("{what} of {} and {}", fields[0], fields[1]),
        );
        compared += 1;
    }
    compared
}

#[test]
fn scores_and_correlations_are_scipys() {
    assert_eq!(compare(SCIPY), 9 + 80);
}

#[test]
fn scores_and_correlations_are_rs() {
    assert_eq!(compare(STATSMODELS_AND_R), 9 + 80);
}

/// Returns a symmetric matrix with ones on the diagonal from the values below the diagonal.
fn symmetric(below: &[f64]) -> DMatrix<f64> {
    let size = (1..)
        .find(|size| size * (size - 1) / 2 == below.len())
        .expect("a triangle");
    let mut matrix = DMatrix::identity(size, size);
    let mut values = below.iter();
    for a in 0..size {
        for b in 0..a {
            let value = *values.next().expect("as many as there are");
            (matrix[(a, b)], matrix[(b, a)]) = (value, value);
        }
    }
    matrix
}

#[test]
fn the_nearest_correlations_are_those_of_statsmodels_and_r() {
    let mut given = HashMap::new();
    let mut compared = 0;
    for (what, fields) in lines(STATSMODELS_AND_R) {
        match what {
            "given" => drop(given.insert(fields[0], symmetric(&numbers(&fields[1..])))),
            "statsmodels" | "r" => {
                let theirs = symmetric(&numbers(&fields[1..]));
                let ours = nearest_correlation(&given[fields[0]], 1e-13);
                assert!(ours.least_eigenvalue < -0.1, "there is something to repair");
                near(
                    ours.distance,
                    (&theirs - &given[fields[0]]).norm(),
                    fields[0],
                );
                near(
                    (ours.matrix - theirs).amax(),
                    0.0,
                    &format!("{what}, {}", fields[0]),
                );
                compared += 1;
            }
            _ => {}
        }
    }
    assert_eq!(compared, 6);
}
