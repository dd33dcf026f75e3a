//! Which events can be trusted: the expectation for each, its counts, and the verdict.
//!
//! The method is that of figure 1 of the HEM-reliability paper (Barrera et al., "On the Reliability
//! of Hardware Event Monitors in MPSoCs for Critical Domains"). Nothing here runs a benchmark:
//! counts come from a file or from the caller.
//!
//! | module | contents |
//! | --- | --- |
//! | [`manifest`] | benchmarks with their instruction mix, and the expected count of each event |
//! | [`hypothesis`] | other explanations of an event's counts, with their mechanisms |
//! | [`sample`] | repeated counts of one event: mean, spread, outliers |
//! | [`counts`] | measured counts, from a file or a campaign |
//! | [`judge`](mod@judge) | the verdicts, with the evidence |
//! | [`record`] | files of verdicts |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod counts;
pub mod hypothesis;
pub mod judge;
pub mod manifest;
pub mod record;
pub mod sample;

pub use cloison_events::Verdict;
pub use counts::Counts;
pub use hypothesis::{Hypothesis, Kind};
pub use judge::{Judgment, judge};
pub use manifest::{Guest, Manifest};
pub use record::Record;
pub use sample::Sample;
