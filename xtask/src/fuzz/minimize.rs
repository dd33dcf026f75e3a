//! Makes a finding's reproducer small: fewer inputs, then fewer operations, as long as the same rule
//! is broken.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::system::{Run, Systems};
use cloison_prover::fuzz::program::{self, Input};
use cloison_prover::fuzz::state::{self, FINDING};
use miette::{IntoDiagnostic, Result, miette};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for all attempts together.
const TIME: Duration = Duration::from_secs(180);
/// Seconds of one attempt.
const ATTEMPT: u64 = 20;

/// Removes parts of a list while a test still holds for the rest: halves first, single elements
/// last.
pub fn reduce<T: Clone>(
    mut all: Vec<T>,
    mut holds: impl FnMut(&[T]) -> Result<bool>,
) -> Result<Vec<T>> {
    let mut size = all.len().div_ceil(2);
    while size > 0 && !all.is_empty() {
        let mut at = 0;
        while at < all.len() {
            let mut rest = all.clone();
            rest.drain(at..(at + size).min(all.len()));
            if holds(&rest)? {
                all = rest;
            } else {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Ok(all)
}

/// Returns the first line of a finding, which names its rule.
fn rule(directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(FINDING)).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Minimizes the finding in a directory, in place, and prints whether it repeats.
///
/// # Errors
///
/// If a file cannot be written or QEMU cannot be started.
pub fn minimize(systems: &Systems, directory: &Path, seed: u64) -> Result<()> {
    let found = directory.join(FINDING);
    let wanted = rule(directory);
    let text = std::fs::read_to_string(&found).into_diagnostic()?;
    let inputs = state::read(&found).map_err(|error| miette!("{error}"))?;
    let scratch = directory.join("attempt");
    std::fs::create_dir_all(&scratch).into_diagnostic()?;
    let file = scratch.join("inputs.txt");
    let began = Instant::now();
    let mut attempts = 0;
    let mut holds = |inputs: &[Input]| {
        if began.elapsed() > TIME {
            return Ok(false);
        }
        attempts += 1;
        std::fs::write(&file, program::print(inputs)).into_diagnostic()?;
        let run = Run {
            directory: &scratch,
            seed,
            exits: 0,
            seconds: ATTEMPT,
            replay: Some(&file),
        };
        systems.run(&found, &run, || {})?;
        Ok(rule(&scratch) == wanted)
    };
    if !holds(&inputs)? {
        println!("the last {} inputs alone do not reproduce it", inputs.len());
        return Ok(());
    }
    let mut inputs = reduce(inputs, &mut holds)?;
    for at in 0..inputs.len() {
        let ops = reduce(inputs[at].ops.clone(), |ops| {
            let mut changed = inputs.clone();
            changed[at].ops = ops.to_vec();
            holds(&changed)
        })?;
        inputs[at].ops = ops;
    }
    let comments: String = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let small = program::print(&inputs);
    std::fs::write(&found, format!("{comments}{small}")).into_diagnostic()?;
    println!("it reproduces; smallest in {attempts} attempts:\n{small}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_remains_and_nothing_else() {
        let all: Vec<u32> = (0..100).collect();
        let needed = |rest: &[u32]| Ok(rest.contains(&17) && rest.contains(&80));
        assert_eq!(reduce(all.clone(), needed).unwrap(), [17, 80]);
        assert_eq!(reduce(all, |_| Ok(false)).unwrap().len(), 100);
        assert_eq!(reduce(vec![1], |_| Ok(true)).unwrap(), Vec::<i32>::new());
    }
}
