//! What the hypervisor costs, and how much of it there is.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`bench`](mod@bench) | counts the instructions on the hypervisor's own paths |
//! | [`expected`] | the accepted figures of `bench`, with the reason of each |
//! | [`visits`] | the longest visits to EL2, and a neighbor's interrupt latency |
//! | [`epapi`] | measures what PAPI adds to a guest's counts |
//! | [`boot_cost`] | instruction overhead of booting Linux |
//! | [`lines`] | counts the source lines that run at EL2 |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod bench;
pub mod boot_cost;
pub mod epapi;
pub mod expected;
pub mod lines;
pub mod visits;
