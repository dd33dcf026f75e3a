//! Page profiles of processes: which pages of a program matter, and how much.
//!
//! | module | contents |
//! | --- | --- |
//! | [`layout`] | kinds of mappings, and names of pages that hold from run to run |
//! | [`times`] | samples of one page: minimum, mean, maximum |
//! | [`profile`] | a profile in memory, and the order of its pages |
//! | [`document`] | its file format, version 2 |
//! | [`groups`] | blocks of pages, and which of them to refine |
//! | [`knee`] | the number of pages that is enough |
//! | [`raw`] | files of the original tool |
//! | [`export`] | CSV and JSON |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod document;
pub mod export;
pub mod groups;
pub mod knee;
pub mod layout;
pub mod profile;
pub mod raw;
pub mod times;

pub use layout::{Kind, Mapping, PageName};
pub use profile::{Baseline, Block, Excluded, Mode, Profile, Provenance, VmaProfile};
pub use times::Times;
