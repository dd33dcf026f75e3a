//! Matmul: the product of two integer matrices, in the order that is worst for a cache.
//!
//! Row by column, without blocking or transposing: the second matrix is read down its columns, so
//! consecutive loads from it are one row apart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::random::Random;
use crate::{Kernel, Size};
use core::fmt;

/// The benchmark for one size of matrices.
#[derive(Clone, Copy, Debug)]
pub struct Matmul {
    /// Rows of the first matrix and of the product.
    rows: usize,
    /// Columns of the first matrix and of the product; rows and columns of the second matrix.
    n: usize,
}

impl fmt::Display for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{1} by {1}x{1}", self.rows, self.n)
    }
}

impl Kernel for Matmul {
    const NAME: &'static str = "matmul";

    fn new(size: Size) -> Self {
        match size {
            Size::Small => Self { rows: 112, n: 112 },
            Size::Medium => Self { rows: 224, n: 224 },
            // A slab of a large product: each row reads all of the second matrix, as every other
            // row would.
            Size::Large => Self { rows: 20, n: 640 },
        }
    }

    fn words(&self) -> usize {
        (2 * self.rows + self.n) * self.n
    }

    fn input(&self) -> usize {
        (self.rows + self.n) * self.n
    }

    fn prepare(&self, memory: &mut [u32], seed: u64) {
        let mut random = Random::new(seed);
        for element in &mut memory[..self.input()] {
            *element = random.bits() as u32;
        }
    }

    fn run(&self, memory: &mut [u32]) {
        let (a, rest) = memory.split_at_mut(self.rows * self.n);
        let (b, c) = rest.split_at_mut(self.n * self.n);
        for (row, out) in a.chunks_exact(self.n).zip(c.chunks_exact_mut(self.n)) {
            for (j, out) in out.iter_mut().enumerate() {
                let column = b[j..].iter().step_by(self.n);
                // Wraps modulo 2³².
                *out = row
                    .iter()
                    .zip(column)
                    .fold(0, |sum: u32, (x, y)| sum.wrapping_add(x.wrapping_mul(*y)));
            }
        }
    }

    fn result<'a>(&self, memory: &'a [u32]) -> &'a [u32] {
        &memory[(self.rows + self.n) * self.n..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn products_agree_with_the_definition() {
        for (rows, n) in [(1, 1), (2, 2), (3, 7), (7, 3), (16, 16)] {
            let kernel = Matmul { rows, n };
            let mut memory = vec![!0; kernel.words()];
            kernel.prepare(&mut memory, n as u64);
            kernel.run(&mut memory);
            for i in 0..rows {
                for j in 0..n {
                    let product = |k: usize| {
                        u64::from(memory[i * n + k]) * u64::from(memory[rows * n + k * n + j])
                    };
                    let sum = (0..n).fold(0u64, |sum, k| sum.wrapping_add(product(k)));
                    assert_eq!(
                        kernel.result(&memory)[i * n + j],
                        sum as u32,
                        "element {i}, {j} of {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_identity_changes_nothing() {
        let n = 5;
        let kernel = Matmul { rows: n, n };
        let mut memory = vec![0; kernel.words()];
        for i in 0..n * n {
            memory[i] = i as u32 * 1_000_003;
            memory[n * n + i] = u32::from(i % (n + 1) == 0);
        }
        kernel.run(&mut memory);
        assert_eq!(kernel.result(&memory), &memory[..n * n]);
    }
}
