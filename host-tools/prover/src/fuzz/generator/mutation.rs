//! Changes of programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Generator, PAGE};
use cloison_puppet::{LONGEST, Op};

impl Generator {
    /// Changes a program, with parts of another one.
    pub fn mutate(&mut self, ops: &mut Vec<Op>, other: &[Op]) {
        for _ in 0..=self.below(4) {
            let at = self.random.usize(..=ops.len());
            match self.below(8) {
                0 if ops.len() > 4 => {
                    let end = (at + self.random.usize(1..4)).min(ops.len());
                    ops.drain(at..end);
                }
                1 => {
                    let mut added = Vec::new();
                    self.append(&mut added);
                    ops.splice(at..at, added);
                }
                2 if !other.is_empty() => {
                    let start = self.random.usize(..other.len());
                    let end = (start + self.random.usize(1..12)).min(other.len());
                    ops.splice(at..at, other[start..end].iter().copied());
                }
                3 if at < ops.len() => {
                    let end = (at + self.random.usize(1..6)).min(ops.len());
                    let copied: Vec<Op> = ops[at..end].to_vec();
                    ops.splice(at..at, copied);
                }
                4 if at < ops.len() => {
                    let to = self.random.usize(..ops.len());
                    ops.swap(at, to);
                }
                _ => {
                    if let Some(op) = ops.get_mut(at) {
                        *op = self.changed(*op);
                    }
                }
            }
        }
        ops.truncate(LONGEST);
    }

    /// Changes one operand.
    fn changed(&mut self, op: Op) -> Op {
        match op {
            Op::Delay(_) => Op::Delay(self.below(4000)),
            Op::Start(_) => Op::Start(self.below(4)),
            Op::List {
                at,
                first,
                count,
                step,
            } => {
                let (count, step) = match self.below(2) {
                    0 => (self.below(512), step),
                    _ => (count, self.below(4)),
                };
                Op::List {
                    at,
                    first,
                    count,
                    step,
                }
            }
            Op::Execute { word, mut x } => {
                let at = self.random.usize(..4);
                x[at] = match self.below(4) {
                    0 => x[at] ^ 1 << self.below(64),
                    1 => x[at].wrapping_add(self.pick(&[
                        1,
                        4,
                        8,
                        PAGE,
                        u64::MAX,
                        PAGE.wrapping_neg(),
                    ])),
                    _ => self.value(),
                };
                Op::Execute { word, x }
            }
        }
    }
}
