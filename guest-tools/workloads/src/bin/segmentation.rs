//! Segmentation: divides an image into regions by a graph (`cloison_benchmarks::segmentation`).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::Segmentation;
use cloison_guest::entry;
use cloison_workloads::{id, repeat};

entry!(main);

fn main() {
    repeat::<Segmentation>(id::SEGMENTATION);
}
