//! Mixes of shipped workloads: what is decided for them holds when it is run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::color_map::color_map;
use cloison_engine::installation;
use cloison_lab::tune::mixes::{self, MixesArgs};

/// Predictions are good, and a second command boots nothing that the first one has kept.
#[test]
#[ignore = "tunes four systems: minutes"]
fn answers_for_mixes_hold_when_they_are_run() {
    installation::use_checkout();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let args = MixesArgs {
        first: 4,
        out: Some(scratch.path().join("mixes")),
    };
    let all = mixes::mixes(&args, color_map).expect("they are tuned");
    println!("{}", all.table().to_text());
    assert_eq!(all.mixes.len(), 4);
    assert!(all.mixes.iter().any(|mix| mix.partitions.is_some()));
    assert_eq!(all.broken(), 0);
    assert!(all.mean_error() <= 0.05, "{}", all.mean_error());
    let again = mixes::mixes(&args, color_map).expect("they are tuned");
    let answers = |all: &mixes::Summary| -> Vec<_> {
        let each = all.mixes.iter();
        each.map(|mix| (mix.errors.clone(), mix.reached.clone()))
            .collect()
    };
    assert_eq!(answers(&again), answers(&all));
}
