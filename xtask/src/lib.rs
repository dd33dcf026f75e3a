//! Developers' tasks. Users' tasks are in `cloison`; `cargo xtask` has its commands too.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`build`] | builds the hypervisor and the guests |
//! | [`bundle`] | collects the files that `cloison` needs without a checkout |
//! | [`cli`] | the command line |
//! | [`format`](mod@format) | the pages of formats |
//! | [`full`] | every experiment with all its runs, whose results the docs show |
//! | [`fuzz`] | searches for inputs that break a rule |
//! | [`groups`] | runs tests of several programs side by side |
//! | [`lint`] | the house rules that clippy and the compiler do not check |
//! | [`mutants`] | changes code and sees whether tests notice |
//! | [`docs`] | makes the pages that come from the sources |
//! | [`results`] | makes the pages of results that come from kept data |
//! | [`size`] | counts code in tokens and lines |
//! | [`pages`] | pages that a command generates |
//! | [`rules`] | licenses, and the files that GitHub reads |
//! | [`elsewhere`] | checks and tests in a minimal system of a Debian release |
//! | [`tally`] | counts passed, failed and skipped checks |
//! | [`test`](mod@test) | every check and test, in order |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod build;
pub mod bundle;
pub mod cli;
pub mod docs;
pub mod elsewhere;
pub mod format;
pub mod full;
pub mod fuzz;
pub mod groups;
pub mod index;
pub mod lint;
pub mod mutants;
pub mod pages;
pub mod results;
pub mod rules;
pub mod size;
pub mod tally;
pub mod test;
