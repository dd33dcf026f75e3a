//! Parsers of foreign bytes: what must hold for any input, and a search for inputs for which it
//! does not.
//!
//! A [`Target`] is one parser with its rules. It panics if a rule is broken. [`targets::ALL`] has
//! them all.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`target`] | a parser, its seeds and its rules |
//! | [`targets`] | all of them |
//! | [`damage`] | changes files at random |
//! | [`hunt`] | runs a target in a process with limits of time and memory, and keeps what fails |
//! | [`scratch`] | files for parsers that read files |
//!
//! Two machines search: this crate's own, which changes seeds without a look at the code and runs in
//! every `cargo test`, and libFuzzer, in the package `libfuzzer` beside this one, whose changes
//! follow the coverage. `cargo xtask fuzz parsers` runs it.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod damage;
pub mod hunt;
pub mod scratch;
pub mod target;
pub mod targets;

pub use target::{Outcome, Target};
