//! What the fuzzer keeps in its directory: the corpus, its progress, coverage, and reproducers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::program::{self, Input};
use crate::blocks::Blocks;
use crate::coverage::Coverage;
use crate::instrument::Finding;
use crate::processor;
use crate::ways::Reach;
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
/// The file with the edges that ran, and how often: a byte each.
pub const EDGES: &str = "edges";
/// The file with the inputs that led to a finding.
pub const FINDING: &str = "finding.txt";

/// Before the name of a finding's system, on a line of [`FINDING`].
pub const SYSTEM: &str = "# system ";

/// How far a run is, as it is written to [`PROGRESS`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Exceptions that EL2 took from guests.
    pub exits: u64,
    /// Programs given.
    pub inputs: u64,
    /// Boots: the machine is started again when all VMs have ended.
    #[serde(default)]
    pub boots: u64,
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
    /// Whether guests can make EL2 run it.
    pub reach: Reach,
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
    /// Of this boot.
    pub exits: u64,
    /// Of this boot.
    pub inputs: u64,
    /// What the search's boots before this one have done.
    before: Report,
    started: Instant,
    written: Option<Instant>,
}

impl Progress {
    /// Returns the progress of a boot, which continues what the directory has.
    pub fn new(directory: &Path) -> Self {
        let before = std::fs::read(directory.join(PROGRESS)).ok();
        let before = before.and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            exits: 0,
            inputs: 0,
            before: before.unwrap_or_default(),
            started: Instant::now(),
            written: None,
        }
    }

    /// Returns the exits of the whole search.
    pub fn all_exits(&self) -> u64 {
        self.before.exits + self.exits
    }

    /// Returns whole seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Writes the progress if the last time was not just now, or if it is the last.
    pub fn write(&mut self, directory: &Path, figures: Figures, is_last: bool) {
        if !is_last
            && self
                .written
                .is_some_and(|written| written.elapsed().as_millis() < 200)
        {
            return;
        }
        self.written = Some(Instant::now());
        let used = processor::used();
        let report = Report {
            exits: self.all_exits(),
            inputs: self.before.inputs + self.inputs,
            processor_seconds: self.before.processor_seconds + used.as_secs_f64(),
            seconds: self.before.seconds + self.started.elapsed().as_secs_f64(),
            boots: self.before.boots + 1,
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
            reach: block.reach,
        })
        .collect();
    save(
        directory,
        COVERAGE,
        &serde_json::to_vec(&all).unwrap_or_default(),
    );
    save(directory, EDGES, coverage.seen());
}

/// Returns the coverage of the search's boots before this one, if there were any.
pub(super) fn coverage(directory: &Path, blocks: &Blocks) -> Option<Coverage> {
    let text = std::fs::read(directory.join(COVERAGE)).ok()?;
    let all: Vec<BlockHits> = serde_json::from_slice(&text).ok()?;
    let seen = std::fs::read(directory.join(EDGES)).ok()?;
    let is_same = all.len() == blocks.all.len()
        && all
            .iter()
            .zip(&blocks.all)
            .all(|(hits, block)| hits.start == block.start);
    if !is_same {
        return None;
    }
    Coverage::continued(all.iter().map(|block| block.hits).collect(), seen)
}

/// Writes the inputs that led to a finding.
pub(super) fn reproducer<'a>(
    directory: &Path,
    finding: &Finding,
    (system, seed): (&str, u64),
    recent: impl IntoIterator<Item = &'a Input>,
) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "# rule {}", finding.rule);
    // A value may be printed on several lines, and each that is no comment is an operation.
    let _ = writeln!(text, "# {}", finding.what.replace('\n', " "));
    let _ = writeln!(text, "# core {}, seed {seed}", finding.core);
    let _ = writeln!(text, "{SYSTEM}{system}");
    text.push_str(&program::print(recent));
    save(directory, FINDING, text.as_bytes());
}
