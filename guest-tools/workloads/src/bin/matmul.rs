//! Matmul: a product of integer matrices whose columns stride (`cloison_kernels::matmul`).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use cloison_guest::entry;
use cloison_kernels::Matmul;
use cloison_workloads::{id, repeat};

entry!(main);

fn main() {
    repeat::<Matmul>(id::MATMUL);
}
