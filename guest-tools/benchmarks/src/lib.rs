//! The guests' benchmarks: pure code over plain slices, the same in a guest and on the host, where
//! it is tested.
//!
//! | module | contents |
//! | --- | --- |
//! | [`disparity`] | depth from two images |
//! | [`segmentation`] | an image divided into regions, by a graph |
//! | [`matmul`] | a matrix product whose columns stride |
//! | [`scene`] | images to work on |
//! | [`random`], [`checksum`] | seeded random numbers; FNV-1a |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod disparity;
pub mod matmul;
pub mod random;
pub mod scene;
pub mod segmentation;

pub use disparity::Disparity;
pub use matmul::Matmul;
pub use segmentation::Segmentation;

use core::fmt;

/// Size of a benchmark's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Images in sub-QCIF.
    Small,
    /// Images in QCIF.
    Medium,
    /// Images in CIF.
    Large,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// Returns the size with this number, starting at 1.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .get(usize::try_from(number.checked_sub(1)?).ok()?)
            .copied()
    }
}

/// A computation that lives in one stretch of memory, its input included, and does the same work in
/// each run.
pub trait Kernel: fmt::Display {
    /// The name of the workload.
    const NAME: &'static str;

    /// Creates the benchmark for inputs of this size. Its `Display` shows the dimensions of the
    /// input.
    fn new(size: Size) -> Self;

    /// Returns the size of its memory in 32-bit words.
    fn words(&self) -> usize;

    /// Returns the number of words at the start of the memory that hold the input.
    fn input(&self) -> usize;

    /// Writes the input for this seed into `memory`, which has [`words`](Self::words) words.
    fn prepare(&self, memory: &mut [u32], seed: u64);

    /// Runs the benchmark. It leaves the input unchanged and reads no other word before writing it.
    fn run(&self, memory: &mut [u32]);

    /// Returns the part of the memory that holds the result.
    fn result<'a>(&self, memory: &'a [u32]) -> &'a [u32];

    /// Returns the checksum of the result.
    fn checksum(&self, memory: &[u32]) -> u64 {
        checksum::fnv1a(self.result(memory).iter().map(|&word| u64::from(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Returns the memory after a run that started with `filler` in all words except the input.
    fn memory<K: Kernel>(kernel: &K, seed: u64, filler: u32) -> Vec<u32> {
        let mut memory = vec![filler; kernel.words()];
        kernel.prepare(&mut memory, seed);
        kernel.run(&mut memory);
        memory
    }

    fn same_work_every_time<K: Kernel>() {
        for size in Size::ALL {
            let kernel = K::new(size);
            let mut worked = memory(&kernel, 7, 0);
            let first = kernel.checksum(&worked);
            kernel.run(&mut worked);
            assert_eq!(
                kernel.checksum(&worked),
                first,
                "{} {kernel}: a second run",
                K::NAME
            );
            assert_eq!(
                kernel.checksum(&memory(&kernel, 7, !0)),
                first,
                "{} {kernel}: what lay in memory",
                K::NAME
            );
            assert_ne!(
                kernel.checksum(&memory(&kernel, 8, 0)),
                first,
                "{} {kernel}: another seed",
                K::NAME
            );
        }
    }

    #[test]
    fn disparity_does_the_same_work_every_time() {
        same_work_every_time::<Disparity>();
    }

    #[test]
    fn segmentation_does_the_same_work_every_time() {
        same_work_every_time::<Segmentation>();
    }

    #[test]
    fn matmul_does_the_same_work_every_time() {
        same_work_every_time::<Matmul>();
    }

    #[test]
    fn sizes_are_numbered_from_one() {
        assert_eq!([1, 2, 3].map(Size::from_number), Size::ALL.map(Some));
        assert_eq!([0, 4, u64::MAX].map(Size::from_number), [None; 3]);
    }
}
