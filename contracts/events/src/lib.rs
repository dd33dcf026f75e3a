//! PMU events: numbers, counters that can count them, verdicts, and tables with their one reader.
//!
//! Guests use the first four without the standard library. The reader has the feature `tables`:
//! configurations are checked with it, and `cloison-epapi` is built with it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`counters`] | counters, sets of them, and the masks of event tables |
//! | [`assign`] | which counter counts which event |
//! | [`verdict`] | whether an event counts what it should |
//! | `table` | the tables of a CPU |
//! | `json`, `arm` | the entries of one file: perf's pmu-events, and Arm's own form |
//! | `entry` | an entry, whatever the file's form |
//! | `finding` | what is wrong in a file, with its place |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(not(any(test, feature = "tables")), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "tables")]
mod arm;
pub mod assign;
pub mod counters;
#[cfg(feature = "tables")]
mod entry;
#[cfg(feature = "tables")]
pub mod finding;
#[cfg(feature = "tables")]
mod json;
#[cfg(feature = "tables")]
pub mod table;
pub mod verdict;

pub use cloison_abi::event::EventId;
pub use counters::{CounterIndex, CounterSet};
#[cfg(feature = "tables")]
pub use finding::Finding;
#[cfg(feature = "tables")]
pub use table::{Bounds, Event, EventTable, Source};
pub use verdict::Verdict;
