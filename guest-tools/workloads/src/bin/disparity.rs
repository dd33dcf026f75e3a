//! Disparity: depth from two images, by windows over integral images
//! (`cloison_benchmarks::disparity`).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::Disparity;
use cloison_guest::entry;
use cloison_workloads::{id, repeat};

entry!(main);

fn main() {
    repeat::<Disparity>(id::DISPARITY);
}
