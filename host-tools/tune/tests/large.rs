//! A problem of the size that a board has: four VMs, 16 colors, pages and budgets.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod synthetic;

use cloison_tune::*;
use synthetic::{Size, case};

const SIZE: Size = Size {
    vms: 4,
    colors: 16,
    steps: 6,
    budgets: 9,
    points: 60,
};

/// The answer takes a small part of the space, and is the same each time.
#[test]
fn a_board_is_solved_exactly_without_visiting_most_of_its_partitions() {
    let mut solved = 0;
    for seed in 0..8 {
        let points = if seed == 3 { 600 } else { 60 };
        let problem = case(seed, Size { points, ..SIZE }).problem;
        for objective in [Objective::Throughput, Objective::Colors, Objective::Margin] {
            for view in [View::Pessimistic, View::Optimistic] {
                let start = std::time::Instant::now();
                let answer = solve(&problem, objective, view);
                let Ok(answer) = answer else { continue };
                let Answer::Optimal(outcome) = &answer else {
                    println!(
                        "{seed} {objective:?} {view:?}: impossible, {:?}",
                        start.elapsed()
                    );
                    continue;
                };
                solved += 1;
                let proof = outcome.proof;
                println!(
                    "{seed} {objective:?} {view:?}: {proof:?}, {:?}",
                    start.elapsed()
                );
                // A node takes microseconds: with so few, seconds are enough.
                assert!(proof.nodes < proof.partitions / 1000, "{proof:?}");
                assert_eq!(solve(&problem, objective, view), Ok(answer));
            }
        }
    }
    assert!(solved > 15, "{solved}");
}
