//! Agreement with SciPy; how the values were made is in the fixture's first lines.

use cloison_much::scores;
use std::collections::HashMap;

#[test]
fn scores_and_correlations_are_scipys() {
    let mut columns: HashMap<&str, Vec<f64>> = HashMap::new();
    let mut compared = 0;
    let near =
        |ours: f64, theirs: f64, what: &str| assert!((ours - theirs).abs() < 1e-9, "{what}: {ours} and {theirs}");
    for line in include_str!("fixtures/scipy.csv").lines().filter(|line| !line.starts_with('#')) {
        let (what, rest) = line.split_once(',').unwrap();
        let fields: Vec<_> = rest.split(',').collect();
        let numbers = || fields.iter().map(|field| field.parse::<f64>().unwrap()).collect::<Vec<_>>();
        match what {
            "a" | "b" | "c" => drop(columns.insert(what, numbers())),
            "scores" => {
                let ours = scores::normal_scores(&columns["c"]);
                ours.iter().zip(numbers()).for_each(|(&ours, theirs)| near(ours, theirs, what));
                compared += ours.len();
            }
            _ => {
                let (one, other) = (&columns[fields[0]], &columns[fields[1]]);
                let weighted = |values: &[f64]| {
                    let mut sorted: Vec<_> = values.iter().map(|&value| (value, 1)).collect();
                    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
                    sorted
                };
                let ours = match what {
                    "pearson" => scores::pearson(one, other),
                    "spearman" => scores::spearman(one, other),
                    "ks" => scores::kolmogorov_smirnov(&weighted(one), &weighted(other)),
                    other => panic!("the fixture has an unknown line {other}"),
                };
                near(ours, fields[2].parse().unwrap(), line);
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 9 + 80);
}
