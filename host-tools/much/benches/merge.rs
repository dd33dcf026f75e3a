//! Merges 64 events into 100,000 vectors from half a million rows, step by step: `cargo bench -p cloison-much`.
//!
//! The input is generated from a seed. The last line shows the total time and the peak memory of the process.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::draw::stream;
use cloison_much::evaluate::marginal_distances;
use cloison_much::merge::{self, Options};
use cloison_much::plan::{Catalogue, plan};
use cloison_much::read::{Selection, read};
use cloison_much::scores::normal_quantile;
use cloison_much::write;
use rand::RngExt;
use std::io::Write;
use std::time::Instant;

const EVENTS: usize = 64;
const LINES: usize = 500_000;
const VECTORS: usize = 100_000;

/// Writes counts of 64 events with four hidden causes, in the sub-experiments of their plan, as long CSV.
fn input(path: &std::path::Path) -> std::io::Result<usize> {
    let plan = plan(&mut Catalogue::default(), EVENTS, 6).map_err(std::io::Error::other)?;
    let runs = LINES / plan.sub_experiments.iter().map(Vec::len).sum::<usize>();
    let mut rng = stream(7, 0);
    let mut normal = move || normal_quantile(rng.random_range(1e-9..1.0));
    let weights: Vec<[f64; 4]> = (0..EVENTS).map(|_| [(); 4].map(|()| normal())).collect();
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "sub_experiment,run,event_code,event,value")?;
    let mut lines = 0;
    for (number, block) in plan.sub_experiments.iter().enumerate() {
        for run in 0..runs {
            let causes = [(); 4].map(|()| normal());
            for &event in block {
                let common: f64 = weights[event].iter().zip(causes).map(|(weight, cause)| weight * cause).sum();
                let level = common + 0.7 * normal();
                let value = match event % 3 {
                    0 => 20_000.0 * (0.3 * level).exp(),
                    1 => 500_000.0 + 30_000.0 * level,
                    _ => 300.0 + 25.0 * level,
                };
                writeln!(file, "{number},{run},{event},E{event},{}", value.max(0.0).round())?;
                lines += 1;
            }
        }
    }
    file.flush()?;
    Ok(lines)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("runs.csv");
    println!("{} lines, {EVENTS} events, {VECTORS} vectors, {} threads", input(&path)?, rayon::current_num_threads());
    let started = Instant::now();
    let mut before = 0.0;
    let mut step = |what: &str| {
        let now = started.elapsed().as_secs_f64();
        println!("{what:>24} {:6.3} s", now - before);
        before = now;
    };
    let data = read(&path, &Selection::default())?;
    step("read");
    let merged = merge::much(&data, &Options { vectors: Some(VECTORS), ..Options::default() })?;
    step("merge");
    let distance = marginal_distances(&merged.vectors, &data).into_iter().fold(0.0, f64::max);
    let [pearson, spearman] = merged.vectors.correlations();
    step("check");
    std::fs::write(directory.path().join("vectors.csv"), write::to_csv(&merged.vectors))?;
    step("write");
    let error = cloison_much::matrix::mean_square_error;
    let (of_pearson, of_spearman) =
        (error(&pearson, &merged.correlations.pearson_target), error(&spearman, &merged.correlations.spearman_target));
    println!(
        "mean square error from the targets: {of_pearson:.6} and {of_spearman:.6}; largest distance {distance:.5}"
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    println!("{:.2} s in all, {most} at most", started.elapsed().as_secs_f64());
    Ok(())
}
