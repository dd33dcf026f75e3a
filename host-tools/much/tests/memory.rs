//! Measures the memory of a merge: the only test of its process, because it reads the process's
//! peak.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::evaluate::marginal_distances;
use cloison_much::merge::{self, Options};
use cloison_much::plan::{Catalogue, plan};
use cloison_much::read::{Selection, read};
use cloison_much::write;
use std::io::Write;

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("the peak");
    line.trim()
        .strip_suffix(" kB")
        .expect("KiB")
        .parse::<u64>()
        .expect("a number")
        << 10
}

/// All counts in vectors: reading, merging, checking and writing take less than 26 bytes for each
/// count, four of which are the count. The text of the input is 25 bytes a count, and a double for
/// each count and each value would take 8 apiece.
#[test]
fn a_merge_needs_few_bytes_for_each_count() {
    const COUNTS: usize = 2_000_000;
    const EVENTS: usize = 32;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("counts.csv");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
    writeln!(file, "sub_experiment,run,event_code,event,value").expect("it is written");
    let plan = plan(&mut Catalogue::default(), EVENTS, 6).expect("there is a plan");
    let runs = COUNTS / (plan.sub_experiments.len() * 6);
    let (mut state, mut lines) = (1_u64, 0);
    for (number, block) in plan.sub_experiments.iter().enumerate() {
        for run in 0..runs {
            let mut common = 0;
            for &event in block {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                common = if common == 0 { state >> 40 } else { common };
                let value = 1_000_000 + common / 16 + (state >> 44);
                writeln!(file, "{number},{run},{event},EVENT{event},{value}")
                    .expect("it is written");
                lines += 1;
            }
        }
    }
    file.flush().expect("it is written");
    let before = peak();
    let data = read(&path, &Selection::default()).expect("the file is right");
    assert_eq!(data.runs() * 6, lines);
    let merged = merge::much(&data, &Options::default()).expect("every pair meets");
    assert!(merged.vectors.len() * EVENTS >= lines);
    assert!(
        marginal_distances(&merged.vectors, &data)
            .iter()
            .all(|&distance| distance < 0.01)
    );
    let [pearson, _] = merged.vectors.correlations();
    assert!(pearson[(0, 1)] > 0.1);
    let mut output = std::fs::File::create(directory.path().join("vectors.csv")).expect("a file");
    write::write_csv(&merged.vectors, &mut output).expect("it is written");
    // Parts of the input and what every merge needs are the same for any number of counts.
    let (more, always) = (peak() - before, 48 << 20);
    assert!(
        more < 26 * lines as u64 + always,
        "{} MiB for {lines} counts",
        more >> 20
    );
}
