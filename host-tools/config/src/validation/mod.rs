//! Which events can be trusted: what each should count, what it counted, and the verdict.
//!
//! The method is that of figure 1 of the HEM-reliability paper (Barrera et al., "On the Reliability of Hardware Event
//! Monitors in MPSoCs for Critical Domains"). Nothing here runs a benchmark: counts come from a file or from the caller.
//!
//! | module | contents |
//! | --- | --- |
//! | [`manifest`] | benchmarks with their instruction mix, and what each event should count of it |
//! | [`hypothesis`] | what an event may count instead, and the mechanism |
//! | [`sample`] | repeated counts of one event: mean, spread, outliers |
//! | [`counts`] | what was measured, from a file or a campaign |
//! | [`judge`](mod@judge) | the verdicts, with the evidence |
//! | [`record`] | files of verdicts |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod counts;
pub mod hypothesis;
pub mod judge;
pub mod manifest;
pub mod record;
pub mod sample;

pub use counts::Counts;
pub use hypothesis::{Hypothesis, Kind};
pub use judge::{Judgment, Verdict, judge};
pub use manifest::{Guest, Manifest};
pub use record::Record;
pub use sample::Sample;

use crate::files;
use crate::node::{Context, Table};
use crate::problem::{Errors, Problem, SourceFile};
use std::collections::HashSet;
use std::path::Path;

/// Reads a TOML file with `read`, which records what is wrong; `what` is its kind, for the message if it cannot be read.
fn load<T>(
    path: &Path,
    what: &str,
    read: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, Errors> {
    let text = files::read_text(path, files::CONFIGURATION);
    let file = SourceFile::new(path, text.as_deref().unwrap_or_default().to_owned());
    let name = file.name().to_owned();
    if let Err(error) = text {
        let problem = Problem::error(&file, "file", 0..0, format!("cannot read {name}: {error}"));
        return Err(Errors::new(
            &name,
            vec![problem.help(format!("name {what}"))],
        ));
    }
    let context = Context::new(file);
    let result = context
        .parse()
        .and_then(|document| read(&context.root(&document)));
    match result {
        Some(result) if !context.has_errors() => Ok(result),
        _ => {
            // What all benchmarks share is read for each of them.
            let mut seen = HashSet::new();
            let mut problems = context.into_problems();
            problems.retain(|it| {
                seen.insert((
                    it.field().to_owned(),
                    it.line_and_column(),
                    it.message().to_owned(),
                ))
            });
            Err(Errors::new(&name, problems))
        }
    }
}
