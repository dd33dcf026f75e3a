//! Developers' tasks. What users do is in `cloison`, whose commands `cargo xtask` has too.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`build`] | builds the hypervisor and the guests |
//! | [`bundle`] | makes what `cloison` needs without a checkout |
//! | [`groups`] | runs tests of several programs side by side |
//! | [`lint`] | the house rules that clippy and the compiler do not check |
//! | [`docs`] | makes the pages that come from the sources |
//! | [`rules`] | licenses, and the files that GitHub reads |
//! | [`elsewhere`] | checks and tests in a minimal system of a Debian release |
//! | [`tally`] | how many checks ended how |
//! | [`test`](mod@test) | every check and test, in order |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod build;
pub mod bundle;
pub mod docs;
pub mod elsewhere;
pub mod groups;
pub mod lint;
pub mod rules;
pub mod tally;
pub mod test;
