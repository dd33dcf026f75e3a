//! Counts, for the host's tools and for `cloisonctl`: the columns of their log, arithmetic with
//! names, and metrics.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod formula;
pub mod log;
pub mod metric;

pub use formula::Formula;
pub use metric::{Metric, Wrong};
