//! What the fuzzer keeps in its directory: the corpus, its progress, coverage, and reproducers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::program::{self, Input};
use crate::blocks::Blocks;
use crate::coverage::Coverage;
use crate::instrument::Finding;
use cloison_puppet::Op;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// The file with the programs that reached something new.
pub const CORPUS: &str = "corpus.txt";
/// The file with the figures so far.
pub const PROGRESS: &str = "progress.json";
/// The file with the blocks and how often each ran.
pub const COVERAGE: &str = "coverage.json";
/// The file with the inputs that led to a finding.
pub const FINDING: &str = "finding.txt";

/// How far a run is, as it is written to [`PROGRESS`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Exceptions that EL2 took from guests.
    pub exits: u64,
    /// Programs given.
    pub inputs: u64,
    /// Seconds of the processor's time.
    pub processor_seconds: f64,
    /// Seconds since the start.
    pub seconds: f64,
    /// Blocks of EL2 that ran.
    pub blocks: usize,
    /// Edges that ran.
    pub edges: u64,
    /// Programs in the corpus.
    pub corpus: usize,
}

/// A block and how often it ran, as in [`COVERAGE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockHits {
    /// Virtual address of its first instruction.
    pub start: u64,
    /// Virtual address after its last one.
    pub end: u64,
    /// How often it ran.
    pub hits: u64,
    /// Whether it ends in a panic.
    pub is_panic: bool,
}

/// Figures of the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub blocks: usize,
    pub edges: u64,
    pub corpus: usize,
}

/// A run's progress.
#[derive(Debug)]
pub(super) struct Progress {
    pub exits: u64,
    pub inputs: u64,
    started: Instant,
    written: Option<Instant>,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            exits: 0,
            inputs: 0,
            started: Instant::now(),
            written: None,
        }
    }

    /// Returns whole seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Writes the progress if the last time was not just now.
    pub fn write(&mut self, directory: &Path, figures: Figures) {
        if self
            .written
            .is_some_and(|written| written.elapsed().as_millis() < 200)
        {
            return;
        }
        self.written = Some(Instant::now());
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let report = Report {
            exits: self.exits,
            inputs: self.inputs,
            processor_seconds: used.tv_sec as f64 + used.tv_nsec as f64 / 1e9,
            seconds: self.started.elapsed().as_secs_f64(),
            blocks: figures.blocks,
            edges: figures.edges,
            corpus: figures.corpus,
        };
        save(
            directory,
            PROGRESS,
            &serde_json::to_vec(&report).unwrap_or_default(),
        );
    }
}

/// Replaces a file as a whole.
fn save(directory: &Path, name: &str, bytes: &[u8]) {
    let new = directory.join(format!("{name}.new"));
    let saved =
        std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, directory.join(name)));
    if let Err(error) = saved {
        eprintln!(
            "prover: cannot write {}: {error}",
            directory.join(name).display()
        );
    }
}

/// Reads a file of inputs.
///
/// # Errors
///
/// The file, the line, and what is wrong.
pub fn read(file: &Path) -> Result<Vec<Input>, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
    program::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Reads the corpus of a former run, if there was one.
pub(super) fn corpus(directory: &Path) -> Result<Vec<Vec<Op>>, String> {
    let file = directory.join(CORPUS);
    if !file.exists() {
        return Ok(Vec::new());
    }
    Ok(read(&file)?.into_iter().map(|input| input.ops).collect())
}

/// Writes the corpus.
pub(super) fn keep(directory: &Path, corpus: &[Vec<Op>]) {
    let inputs: Vec<Input> = corpus
        .iter()
        .map(|ops| Input {
            ops: ops.clone(),
            ..Input::default()
        })
        .collect();
    save(directory, CORPUS, program::print(&inputs).as_bytes());
}

/// Writes the coverage.
pub(super) fn write(directory: &Path, blocks: &Blocks, coverage: &Coverage) {
    let all: Vec<BlockHits> = blocks
        .all
        .iter()
        .zip(&coverage.hits)
        .map(|(block, hits)| BlockHits {
            start: block.start,
            end: block.end,
            hits: *hits,
            is_panic: block.is_panic,
        })
        .collect();
    save(
        directory,
        COVERAGE,
        &serde_json::to_vec(&all).unwrap_or_default(),
    );
}

/// Writes the inputs that led to a finding.
pub(super) fn reproducer<'a>(
    directory: &Path,
    finding: &Finding,
    seed: u64,
    recent: impl IntoIterator<Item = &'a Input>,
) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "# rule {}", finding.rule);
    let _ = writeln!(text, "# {}", finding.what);
    let _ = writeln!(text, "# core {}, seed {seed}", finding.core);
    text.push_str(&program::print(recent));
    save(directory, FINDING, text.as_bytes());
}
