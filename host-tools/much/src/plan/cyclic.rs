//! Searches for covers with a cyclic symmetry: all blocks are rotations of a few base blocks.
//!
//! The symmetry leaves few choices, so it finds covers far too large for a search over single
//! blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use super::schoenheim;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The points: `orbits` cycles of `length` each, then `fixed` points that the symmetry does not
/// move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Points per cycle.
    pub length: usize,
    /// Number of cycles.
    pub orbits: usize,
    /// Number of fixed points.
    pub fixed: usize,
}

impl Shape {
    /// Returns the total number of points.
    pub const fn points(self) -> usize {
        self.length * self.orbits + self.fixed
    }
    fn shifted(self, point: usize, by: usize) -> usize {
        if point >= self.length * self.orbits {
            return point;
        }
        point / self.length * self.length + (point % self.length + by) % self.length
    }
    /// Returns the class of each pair under the symmetry, and the number of classes.
    fn classes(self) -> (Vec<u16>, usize) {
        let points = self.points();
        let mut class = vec![u16::MAX; points * points];
        let mut next = 0;
        for a in 0..points {
            for b in 0..a {
                if class[a * points + b] != u16::MAX {
                    continue;
                }
                for by in 0..self.length {
                    let (x, y) = (self.shifted(a, by), self.shifted(b, by));
                    class[x * points + y] = next;
                    class[y * points + x] = next;
                }
                next += 1;
            }
        }
        (class, usize::from(next))
    }
    /// Returns base blocks that repeat early: for each cycle the points at equal distances, alone
    /// or with the first fixed point.
    fn short_blocks(self, size: usize) -> Vec<Blocks> {
        let mut choices = vec![vec![]];
        let spread = |count: usize, orbit: usize| {
            (0..count)
                .map(move |at| orbit * self.length + at * (self.length / count))
                .collect::<Vec<_>>()
        };
        if self.length.is_multiple_of(size) {
            choices.push((0..self.orbits).map(|orbit| spread(size, orbit)).collect());
        }
        if self.fixed > 0 && size > 2 && self.length.is_multiple_of(size - 1) {
            let infinity = self.length * self.orbits;
            let with = |orbit| {
                spread(size - 1, orbit)
                    .into_iter()
                    .chain([infinity])
                    .collect()
            };
            choices.push((0..self.orbits).map(with).collect());
        }
        choices
    }
    fn develop(self, base: &[usize]) -> Blocks {
        let mut blocks: Blocks = vec![];
        for by in 0..self.length {
            let mut block: Vec<_> = base.iter().map(|&point| self.shifted(point, by)).collect();
            block.sort_unstable();
            if blocks.first() == Some(&block) {
                break;
            }
            blocks.push(block);
        }
        blocks
    }
}

/// Searches for a cover of the shape's points by blocks of `size` with fewer than `limit` blocks.
pub fn search(
    shape: Shape,
    size: usize,
    limit: usize,
    steps: u64,
    rng: &mut ChaCha8Rng,
) -> Option<Blocks> {
    let points = shape.points();
    let bound = schoenheim(points, size);
    if bound >= limit {
        return None;
    }
    let (class, classes) = shape.classes();
    for short in shape.short_blocks(size) {
        let mut fixed = vec![0_u16; classes];
        let mut shorts: Blocks = vec![];
        for base in &short {
            each_pair(base, |a, b| fixed[usize::from(class[a * points + b])] += 1);
            shorts.extend(shape.develop(base));
        }
        let first = bound
            .saturating_sub(shorts.len())
            .div_ceil(shape.length)
            .max(1);
        for full in first..=first + 1 {
            if shorts.len() + full * shape.length >= limit {
                break;
            }
            if full * size * (size - 1) / 2 < fixed.iter().filter(|&&count| count == 0).count() {
                continue;
            }
            if let Some(bases) = anneal(points, size, full, &class, &fixed, steps, rng) {
                let mut blocks = shorts;
                for base in bases {
                    blocks.extend(shape.develop(&base));
                }
                return Some(blocks);
            }
        }
    }
    None
}

fn each_pair(block: &[usize], mut visit: impl FnMut(usize, usize)) {
    for (at, &a) in block.iter().enumerate() {
        for &b in &block[..at] {
            visit(a, b);
        }
    }
}

fn anneal(
    points: usize,
    size: usize,
    count: usize,
    class: &[u16],
    fixed: &[u16],
    steps: u64,
    rng: &mut ChaCha8Rng,
) -> Option<Blocks> {
    let mut covered = fixed.to_vec();
    let mut bases: Blocks = (0..count)
        .map(|_| rand::seq::index::sample(rng, points, size).into_vec())
        .collect();
    for base in &bases {
        each_pair(base, |a, b| {
            covered[usize::from(class[a * points + b])] += 1
        });
    }
    let mut open = covered.iter().filter(|&&count| count == 0).count();
    let (hot, cold) = (0.9_f64, 0.2_f64);
    let mut temperature = hot;
    for step in 0..steps {
        if open == 0 {
            return Some(bases);
        }
        if step.is_multiple_of(256) {
            temperature = hot * (cold / hot).powf(step as f64 / steps as f64);
        }
        let base = &mut bases[rng.random_range(0..count)];
        let comes = rng.random_range(0..points);
        if base.contains(&comes) {
            continue;
        }
        let seat = rng.random_range(0..size);
        let leaves = base[seat];
        let before = open;
        for &other in base.iter().filter(|&&other| other != leaves) {
            let at = usize::from(class[leaves * points + other]);
            covered[at] -= 1;
            open += usize::from(covered[at] == 0);
        }
        for &other in base.iter().filter(|&&other| other != leaves) {
            let at = usize::from(class[comes * points + other]);
            open -= usize::from(covered[at] == 0);
            covered[at] += 1;
        }
        let worse = open as f64 - before as f64;
        if worse <= 0.0 || rng.random::<f64>() < (-worse / temperature).exp() {
            base[seat] = comes;
            continue;
        }
        for &other in base.iter().filter(|&&other| other != leaves) {
            covered[usize::from(class[comes * points + other])] -= 1;
            covered[usize::from(class[leaves * points + other])] += 1;
        }
        open = before;
    }
    (open == 0).then_some(bases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn the_plane_of_order_three_is_found_as_a_difference_set() {
        let shape = Shape {
            length: 13,
            orbits: 1,
            fixed: 0,
        };
        let found = search(shape, 4, 14, 200_000, &mut ChaCha8Rng::seed_from_u64(1))
            .expect("{0, 1, 3, 9} exists");
        assert_eq!(found.len(), 13);
    }

    #[test]
    fn classes_are_orbits_of_pairs() {
        let (class, classes) = Shape {
            length: 5,
            orbits: 2,
            fixed: 1,
        }
        .classes();
        // Two differences within each cycle, five across, one for the fixed point and each cycle.
        assert_eq!(classes, 2 + 2 + 5 + 2);
        assert_eq!(class[1], class[3 * 11 + 4]);
    }
}
