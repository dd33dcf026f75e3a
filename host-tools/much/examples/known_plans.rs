//! Searches for plans of 4 to 64 events on 3 to 8 counters and prints those that are smaller than
//! any construction: the content of src/plan/known.txt. It starts from the existing plans, so
//! results never get worse.
//!
//! `cargo run --release -p cloison-much --example known_plans [EFFORT] > known.txt`
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::plan::{Catalogue, known_line, lower_bound};

fn main() {
    let effort = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let of_counters = |counters: usize| {
        let mut catalogue = Catalogue::searching(effort);
        let mut lines = vec![];
        for events in 4..=64 {
            let cover = catalogue.best(events, counters);
            if cover.searched {
                lines.push(known_line(events, counters, &cover.blocks));
            }
            let bound = lower_bound(events, counters);
            eprintln!(
                "{events} on {counters}: {} (≥ {bound}), {}",
                cover.blocks.len(),
                cover.origin
            );
        }
        lines
    };
    let lines: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (3..=8)
            .map(|counters| scope.spawn(move || of_counters(counters)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a search ended early"))
            .collect()
    });
    for line in lines.iter().flatten() {
        println!("{line}");
    }
}
