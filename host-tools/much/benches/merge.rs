//! Merges 64 events from long CSV, step by step: `cargo bench -p cloison-much -- 1000000 10000000`.
//!
//! The arguments are numbers of counts (default: half a million); `--vectors N` sets the number of
//! vectors, which is 100,000 or, with fewer counts of an event, as many as it has. Inputs are
//! generated from a seed. Each merge is another process, whose last line shows its time and peak
//! memory. Where Python has pandas, it then merges the same file plainly (merge.py), which the same
//! line shows.
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
use std::path::Path;
use std::process::Command;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const EVENTS: usize = 64;
const COUNTS: usize = 500_000;
const VECTORS: usize = 100_000;

/// Writes counts of 64 events with four hidden causes, in the sub-experiments of their plan, as
/// long CSV.
fn input(path: &Path, counts: usize) -> Outcome<usize> {
    let plan = plan(&mut Catalogue::default(), EVENTS, 6)?;
    let runs = counts.div_ceil(plan.sub_experiments.iter().map(Vec::len).sum::<usize>());
    let mut rng = stream(7, 0);
    // Quantiles take long; these are as many as anybody needs.
    let quantiles: Vec<f64> = (1..1 << 16)
        .map(|at| normal_quantile(f64::from(at) / f64::from(1 << 16)))
        .collect();
    let mut normal = move || quantiles[rng.random_range(0..quantiles.len())];
    let weights: Vec<[f64; 4]> = (0..EVENTS).map(|_| [(); 4].map(|()| normal())).collect();
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "sub_experiment,run,event_code,event,value")?;
    let mut lines = 0;
    for (number, block) in plan.sub_experiments.iter().enumerate() {
        for run in 0..runs {
            let causes = [(); 4].map(|()| normal());
            for &event in block {
                let common: f64 = weights[event]
                    .iter()
                    .zip(causes)
                    .map(|(weight, cause)| weight * cause)
                    .sum();
                let level = common + 0.7 * normal();
                let value = match event % 3 {
                    0 => 20_000.0 * (0.3 * level).exp(),
                    1 => 500_000.0 + 30_000.0 * level,
                    _ => 300.0 + 25.0 * level,
                };
                writeln!(
                    file,
                    "{number},{run},{event},E{event},{}",
                    value.max(0.0).round() as u64
                )?;
                lines += 1;
            }
        }
    }
    file.flush()?;
    Ok(lines)
}

/// The peak memory of this process.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or("unknown")
        .trim();
    most.strip_suffix(" kB")
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(most.to_owned(), |kib| format!("{} MiB", kib >> 10))
}

/// The seconds that this process has computed, on all cores: what its time is where nothing else
/// runs, times the cores.
fn computed() -> f64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses; fields 14 and 15 of proc(5), in ticks of 10 ms.
    let fields: Vec<&str> = status
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Reads, merges, checks and writes.
fn merge_file(path: &Path, vectors: Option<usize>) -> Outcome<()> {
    let started = Instant::now();
    let mut before = 0.0;
    let mut step = |what: &str| {
        let now = started.elapsed().as_secs_f64();
        println!(
            "{what:>24} {:7.3} s, so far {:.2} s of CPU time and {}",
            now - before,
            computed(),
            peak()
        );
        before = now;
    };
    let data = read(path, &Selection::default())?;
    step("read");
    let warnings = data.warnings();
    step("warnings");
    let merged = merge::much(
        &data,
        &Options {
            vectors,
            ..Options::default()
        },
    )?;
    step("merge");
    let distance = marginal_distances(&merged.vectors, &data)
        .into_iter()
        .fold(0.0, f64::max);
    let [pearson, spearman] = merged.vectors.correlations();
    step("check");
    let output = path.with_extension("vectors");
    let mut file = std::fs::File::create(&output)?;
    write::write_csv(&merged.vectors, &mut file)?;
    step("write");
    for estimate in merged.correlations.estimates.iter().flatten() {
        println!(
            "{:>24} {} steps, converged: {}; {:?}",
            "", estimate.steps, estimate.converged, estimate.weights
        );
    }
    println!("{:>24} {:?}", "", merged.exchanges);
    let error = cloison_much::matrix::mean_square_error;
    let (of_pearson, of_spearman) = (
        error(&pearson, &merged.correlations.pearson_target),
        error(&spearman, &merged.correlations.spearman_target),
    );
    println!(
        "{:>24} {} vectors, {} warnings; mean square error from the targets: {of_pearson:.6} and \
         {of_spearman:.6}; largest distance {distance:.5}",
        "",
        merged.vectors.len(),
        warnings.len()
    );
    println!(
        "{:>24} {:7.3} s, {:.2} s of CPU time, {} at most",
        "MUCH in all",
        started.elapsed().as_secs_f64(),
        computed(),
        peak()
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let vectors = after("--vectors")
        .map(|number| number.parse())
        .transpose()?;
    if let Some(file) = after("--merge") {
        return merge_file(Path::new(file), vectors);
    }
    let mut sizes: Vec<usize> = arguments
        .iter()
        .take_while(|it| !it.starts_with("--"))
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes.push(COUNTS);
    }
    let directory = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/merge.py");
    for size in sizes {
        let path = directory.path().join(format!("{size}.csv"));
        let lines = input(&path, size)?;
        let bytes = std::fs::metadata(&path)?.len();
        println!(
            "{lines} counts of {EVENTS} events, {} MB, {} threads",
            bytes / 1_000_000,
            rayon::current_num_threads()
        );
        // As many as the event with the most counts has, about: all counts are used where that is
        // asked for.
        let chosen = vectors.unwrap_or_else(|| VECTORS.min(lines / EVENTS));
        let mut much = Command::new(std::env::current_exe()?);
        much.arg("--merge")
            .arg(&path)
            .arg("--vectors")
            .arg(chosen.to_string());
        if !much.status()?.success() {
            return Err("the merge failed".into());
        }
        let python = Command::new("python3")
            .arg(&script)
            .arg(&path)
            .arg(chosen.to_string())
            .status();
        if !python.is_ok_and(|status| status.success()) {
            println!("{:>24} not there, or it failed", "NumPy and pandas");
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
