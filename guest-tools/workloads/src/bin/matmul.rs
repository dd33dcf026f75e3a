//! Matmul: a product of integer matrices with strided columns (`cloison_benchmarks::matmul`).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::Matmul;
use cloison_guest::entry;
use cloison_workloads::{id, repeat};

entry!(main);

fn main() {
    repeat::<Matmul>(id::MATMUL);
}
