//! What the guests compute: pure code over plain slices, the same in a guest and on the host, where it is tested.
//!
//! | module | what |
//! | --- | --- |
//! | [`disparity`] | depth from two images |
//! | [`segmentation`] | an image divided into regions, by a graph |
//! | [`matmul`] | a matrix product whose columns stride |
//! | [`scene`] | images to work on |
//! | [`random`], [`checksum`] | seeded numbers; FNV-1a |
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

/// How large an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Images in SqCif.
    Small,
    /// Images in QCif.
    Medium,
    /// Images in Cif.
    Large,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The size with this number, from 1 on.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }
}

/// A computation that lives in one stretch of memory, its input included, and does the same work in each run.
pub trait Kernel: fmt::Display {
    /// The workload's name.
    const NAME: &'static str;

    /// The computation for inputs of this size. It is displayed as the input's dimensions.
    fn new(size: Size) -> Self;

    /// The memory that it needs, in words of 32 bits.
    fn words(&self) -> usize;

    /// Writes the input with this seed into `memory`, which has [`words`](Self::words) words.
    fn prepare(&self, memory: &mut [u32], seed: u64);

    /// Computes. The input stays as it is; of the rest nothing is read before it is written.
    fn run(&self, memory: &mut [u32]);

    /// The part of the memory that holds the result.
    fn result<'a>(&self, memory: &'a [u32]) -> &'a [u32];

    /// The checksum of the result.
    fn checksum(&self, memory: &[u32]) -> u64 {
        checksum::fnv1a(self.result(memory).iter().map(|&word| u64::from(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// The memory after a run, which began with `filler` wherever there is no input.
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
            assert_eq!(kernel.checksum(&worked), first, "{} {kernel}: a second run", K::NAME);
            assert_eq!(kernel.checksum(&memory(&kernel, 7, !0)), first, "{} {kernel}: what lay in memory", K::NAME);
            assert_ne!(kernel.checksum(&memory(&kernel, 8, 0)), first, "{} {kernel}: another seed", K::NAME);
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
