//! Coverage of EL2: which basic blocks ran, and which edges a core's input took.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::prover::MAX_CORES;

/// Cells for edges; two edges may share one.
const CELLS: usize = 1 << 17;

/// What one core's input has reached so far.
#[derive(Clone, Debug)]
struct Trace {
    /// Times of each cell, at most 255.
    counts: Vec<u8>,
    /// The cells that are not 0.
    touched: Vec<u32>,
    before: usize,
}

/// Coverage of all inputs together, and of those that run.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Times that each block ran.
    pub hits: Vec<u64>,
    /// Sizes of counts of each cell that some input reached, a bit each.
    seen: Vec<u8>,
    traces: Vec<Trace>,
    /// Number of cells reached.
    pub edges: u64,
}

/// What an input has reached that no other did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Novelty {
    /// Cells that were never reached.
    pub edges: u32,
    /// Cells reached more often than ever, by sizes.
    pub counts: u32,
}

/// Returns the bit of a count's size: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more.
const fn size(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..8 => 8,
        8..16 => 16,
        16..32 => 32,
        32..128 => 64,
        128.. => 128,
    }
}

impl Coverage {
    /// Returns empty coverage of an image with this many blocks.
    pub fn new(blocks: usize) -> Self {
        let trace = Trace {
            counts: vec![0; CELLS],
            touched: Vec::with_capacity(4096),
            before: 0,
        };
        Self {
            hits: vec![0; blocks],
            seen: vec![0; CELLS],
            traces: vec![trace; MAX_CORES],
            edges: 0,
        }
    }

    /// Returns the coverage of former runs of the same image, by the times that each block ran and
    /// by [`Coverage::seen`].
    pub fn continued(hits: Vec<u64>, seen: Vec<u8>) -> Option<Self> {
        if seen.len() != CELLS {
            return None;
        }
        let edges = seen.iter().filter(|sizes| **sizes != 0).count() as u64;
        let empty = Self::new(hits.len());
        Some(Self {
            hits,
            seen,
            edges,
            ..empty
        })
    }

    /// Sizes of counts of each cell that some input reached, a bit each.
    pub fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// A core begins a block.
    #[inline]
    pub fn step(&mut self, core: usize, block: usize) {
        self.hits[block] += 1;
        let trace = &mut self.traces[core];
        let cell = (trace.before.wrapping_mul(0x9e37) ^ block) & (CELLS - 1);
        trace.before = block;
        let count = &mut trace.counts[cell];
        if *count == 0 {
            trace.touched.push(cell as u32);
        }
        *count = count.saturating_add(1);
    }

    /// A core has come from a guest: no block led to the next one.
    pub fn enter(&mut self, core: usize) {
        self.traces[core].before = 0;
    }

    /// A core's input ends. Returns what is new of it.
    pub fn conclude(&mut self, core: usize) -> Novelty {
        let trace = &mut self.traces[core];
        let mut novelty = Novelty::default();
        for cell in trace.touched.drain(..) {
            let cell = cell as usize;
            let reached = size(std::mem::take(&mut trace.counts[cell]));
            let seen = &mut self.seen[cell];
            if *seen == 0 {
                novelty.edges += 1;
            } else if *seen & reached == 0 {
                novelty.counts += 1;
            }
            *seen |= reached;
        }
        self.edges += u64::from(novelty.edges);
        novelty
    }

    /// Returns the number of blocks that ran.
    pub fn blocks(&self) -> usize {
        self.hits.iter().filter(|hits| **hits > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_new_by_its_edges_and_by_how_often_it_takes_them() {
        let mut coverage = Coverage::new(8);
        let mut run = |steps: &[usize]| {
            coverage.enter(1);
            for step in steps {
                coverage.step(1, *step);
            }
            coverage.conclude(1)
        };
        let new = |edges, counts| Novelty { edges, counts };
        assert_eq!(run(&[1, 2, 3]), new(3, 0));
        assert_eq!(run(&[1, 2, 3]), new(0, 0));
        assert_eq!(run(&[1, 3]), new(1, 0));
        assert_eq!(run(&[1, 2, 1, 2, 3]), new(1, 1));
        assert_eq!(coverage.blocks(), 3);
        assert_eq!(coverage.hits[2], 4);
        assert_eq!(coverage.edges, 5);
    }

    #[test]
    fn cores_do_not_mix() {
        let mut coverage = Coverage::new(8);
        coverage.step(0, 1);
        coverage.step(1, 5);
        coverage.step(0, 2);
        assert_eq!(coverage.conclude(1).edges, 1);
        assert_eq!(coverage.conclude(0).edges, 2);
        assert_eq!(coverage.conclude(0), Novelty::default());
    }
}
