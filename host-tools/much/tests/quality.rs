//! Plants every kind of fault in measurements and finds it; accuses no measurements without faults.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::data::{Builder, Measurements};
use cloison_much::draw::stream;
use cloison_much::evaluate::reference;
use cloison_much::quality::{Fault, inspect};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

const EVENTS: [&str; 4] = ["A", "B", "C", "D"];
const BLOCKS: [[usize; 3]; 4] = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]];

/// Counts by sub-experiment, run and place in the block.
type Counts = Vec<Vec<[f64; 3]>>;

fn built(counts: &Counts) -> Measurements {
    let mut builder = Builder::default();
    for (sub, runs) in counts.iter().enumerate() {
        for (run, row) in runs.iter().enumerate() {
            for (&event, &value) in BLOCKS[sub].iter().zip(row) {
                let name = EVENTS[event].as_bytes();
                // Runs are numbered from 100, so that a number is no place.
                let added = builder.add(sub as u64, run as u64 + 100, None, name, value);
                added.expect("one count of each");
            }
        }
    }
    builder.finish().expect("measurements")
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle) = (rng.random::<f64>().max(1e-12), rng.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// A count of a kind of event, from a normal number.
fn count(kind: u32, normal: f64, rng: &mut ChaCha8Rng) -> f64 {
    let count = match kind {
        0 => 1e6 * (1.0 + 0.01 * normal),
        1 => 20_000.0 * (0.3 * normal).exp(),
        2 => 5_000.0 * (1.0 * normal).exp(),
        3 => (normal + 0.5).max(0.0) * 2.0,
        // Mostly nothing, sometimes some.
        4 => (normal - 1.5).max(0.0) * 800.0,
        5 => 6e9 * (1.0 + 0.02 * normal),
        // Two paths through a program.
        6 => 1e5 * (if rng.random::<f64>() < 0.3 { 1.3 } else { 1.0 } + 0.005 * normal),
        7 => 4_096.0,
        // Nearly always the same.
        8 => 7_777.0 + (normal.abs() - 1.0).max(0.0).floor(),
        _ => 40_000.0 * (1.0 + 0.2 * normal).max(0.0),
    };
    count.round()
}

fn clean(seed: u64, runs: usize, kinds: Option<[u32; 4]>) -> Counts {
    let mut rng = stream(seed, 7);
    let kinds = kinds.unwrap_or_else(|| std::array::from_fn(|_| rng.random_range(0..10)));
    let mut row = |block: &[usize; 3]| {
        let common = normal(&mut rng);
        block.map(|event| {
            let own = 0.7 * common + 0.714 * normal(&mut rng);
            count(kinds[event], own, &mut rng)
        })
    };
    BLOCKS
        .iter()
        .map(|block| (0..runs).map(|_| row(block)).collect())
        .collect()
}

#[test]
fn none_of_1000_clean_files_is_accused() {
    for seed in 0..1000 {
        let data = built(&clean(seed, 40, None));
        let found = inspect(&data);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
        assert_eq!(data.without(&found).1, 0);
    }
}

/// Plants a fault in clean counts and returns what is found.
fn planted(plant: impl FnOnce(&mut Counts)) -> Vec<(Fault, u64, Option<u64>)> {
    let mut counts = clean(3, 120, Some([0, 5, 1, 0]));
    plant(&mut counts);
    let data = built(&counts);
    let found = inspect(&data);
    found
        .iter()
        .map(|suspect| (suspect.fault, suspect.sub_experiment, suspect.run))
        .collect()
}

#[test]
fn twelve_kinds_of_faults_are_found_where_they_are() {
    let at = |fault, sub, run| vec![(fault, sub, Some(run))];
    // Event B has 6e9 counts: a counter of 32 bits loses 2^32 of them.
    let wrapped = planted(|it| it[1][50][1] -= 4_294_967_296.0);
    assert_eq!(wrapped, at(Fault::Wrapped(32), 1, 150));
    let jumped = planted(|it| it[0][7][0] += 281_474_976_710_656.0);
    assert_eq!(jumped, at(Fault::Jumped(48), 0, 107));
    let saturated = planted(|it| it[0][9][0] = 4_294_967_295.0);
    assert_eq!(saturated, at(Fault::Saturated(32), 0, 109));
    let negative = planted(|it| it[0][9][0] = 4_294_967_296.0 - 5.0);
    assert_eq!(negative, at(Fault::Negative(32), 0, 109));
    let zero = planted(|it| it[2][33][2] = 0.0);
    assert_eq!(zero, at(Fault::Zero, 2, 133));
    let far = planted(|it| it[3][20][1] *= 1000.0);
    assert_eq!(far, at(Fault::Far, 3, 120));
    let other = planted(|it| it[0][11] = it[0][11].map(|count| (count * 9.0).round()));
    assert_eq!(other, at(Fault::OtherProgram, 0, 111));
    let copied = planted(|it| it[1][90] = it[1][14]);
    assert_eq!(copied, at(Fault::Duplicate, 1, 190));
    let block = planted(|it| {
        for row in &mut it[2] {
            *row = row.map(|count| (count * 9.0).round());
        }
    });
    assert_eq!(block, [(Fault::OtherProgramBlock, 2, None)]);
    let frozen = planted(|it| (60..75).for_each(|run| it[0][run][2] = it[0][60][2]));
    assert_eq!(frozen.len(), 14);
    assert_eq!(frozen[0], (Fault::Frozen, 0, Some(161)));
    let accumulated = planted(|it| {
        for run in 1..it[3].len() {
            it[3][run][2] += it[3][run - 1][2];
        }
    });
    assert_eq!(accumulated, [(Fault::Accumulated, 3, None)]);
    let same = planted(|it| it[0].iter_mut().for_each(|row| row[2] = row[0]));
    // Event C is then far from its counts elsewhere, which is not the sub-experiment's fault.
    assert_eq!(same, [(Fault::SameColumn, 0, None)]);
}

#[test]
fn wraps_are_found_at_every_width() {
    for width in 20..=52_u32 {
        let power = (1_u64 << width) as f64;
        let found = planted(|it| {
            for row in &mut it[0] {
                row[0] += (1.2 * power).round();
            }
            it[0][30][0] -= power;
        });
        let is_found =
            |found: &(Fault, u64, Option<u64>)| *found == (Fault::Wrapped(width), 0, Some(130));
        assert!(found.iter().any(is_found), "2^{width}: {found:?}");
    }
}

#[test]
fn one_bad_run_of_120_does_not_turn_a_correlation_over() {
    let counts = clean(5, 120, Some([0, 5, 1, 0]));
    let right = reference(&built(&counts));
    let mut bad = counts;
    bad[0][60][0] += 281_474_976_710_656.0;
    let data = built(&bad);
    let (kept, excluded) = data.without(&inspect(&data));
    assert_eq!((excluded, kept.sub_experiments[0].runs()), (1, 119));
    let (with, without) = (reference(&data), reference(&kept));
    let a_and_c = (0, 2);
    assert!(
        (with[0][a_and_c] - right[0][a_and_c]).abs() > 0.2,
        "the fault matters"
    );
    assert!((without[0][a_and_c] - right[0][a_and_c]).abs() < 0.05);
}
