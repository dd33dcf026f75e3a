//! Finds the best known cover: constructions, combinations of smaller covers, and search.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::cyclic::{self, Shape};
use super::families::{FAMILIES, Family};
use super::field::{Field, prime_power};
use super::geometry::{self, Blocks};
use super::search::{self, Any};
use super::{known, lower_bound, triples, verify};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

/// A cover, and its origin.
#[derive(Clone, Debug)]
pub struct Cover {
    /// Blocks: sets of points, with at most one point for each counter.
    pub blocks: Blocks,
    /// Description of how it was made.
    pub origin: String,
    /// Whether a search found it, now or earlier; constructions are immediate.
    pub searched: bool,
}

/// Covers by number of points and block size, made on demand.
#[derive(Debug, Default)]
pub struct Catalogue {
    known: HashMap<(usize, usize), Cover>,
    planes: HashMap<usize, Field>,
    effort: u64,
}

/// Steps of a search over single blocks.
const STEPS: u64 = 400_000;
/// Largest number of blocks for which such a search is worthwhile: above, constructions are better.
const SEARCHED: usize = 72;
/// Steps of a search over base blocks of a symmetric cover.
const CYCLIC_STEPS: u64 = 40_000;

impl Catalogue {
    /// Creates a catalog that searches even if search results are shipped, `effort` times as long
    /// as usual.
    pub fn searching(effort: u64) -> Self {
        Self {
            effort,
            ..Self::default()
        }
    }
    /// Returns the smallest known cover of `points` points by blocks of `size`.
    pub fn best(&mut self, points: usize, size: usize) -> Cover {
        if let Some(cover) = self.known.get(&(points, size)) {
            return cover.clone();
        }
        let mut cover = self.make(points, size);
        debug_assert_eq!(verify(points, size, &cover.blocks), Ok(()));
        fill(points, size, &mut cover.blocks);
        self.known.insert((points, size), cover.clone());
        cover
    }

    fn make(&mut self, points: usize, size: usize) -> Cover {
        let cover = |blocks, origin: &str| Cover {
            blocks,
            origin: origin.to_owned(),
            searched: false,
        };
        let mut best = cover(pairs(points), "all pairs");
        if points <= size {
            return cover(vec![(0..points).collect()], "one block");
        }
        if size == 2 {
            return best;
        }
        let bound = lower_bound(points, size);
        let mut rng = ChaCha8Rng::seed_from_u64((points * 1000 + size) as u64);
        let steps: [fn(&mut Self, usize, usize, &mut Cover); 7] = [
            Self::one_more,
            Self::blown_up,
            Self::triples,
            Self::families,
            Self::planes,
            Self::transversal,
            Self::halves,
        ];
        for step in steps {
            step(self, points, size, &mut best);
            if best.blocks.len() == bound {
                return best;
            }
        }
        let constructed = best.blocks.len();
        if let Some(blocks) = known::plan(points, size) {
            offer(&mut best, points, size, blocks, || {
                "a search made before, kept with the planner".to_owned()
            });
        }
        if best.blocks.len() > bound && (self.effort > 0 || !known::searched(points, size)) {
            self.search(points, size, bound, &mut best, &mut rng);
        }
        best.searched = best.blocks.len() < constructed;
        best
    }

    fn search(
        &self,
        points: usize,
        size: usize,
        bound: usize,
        best: &mut Cover,
        rng: &mut ChaCha8Rng,
    ) {
        let effort = self.effort.max(1);
        // A search finds small covers at once, and is hopeless where the constructions are far from
        // the bound.
        if bound <= SEARCHED {
            for _ in 0..effort {
                let start = search::greedy(points, size, rng, &Any);
                offer(best, points, size, start, || "greedy".to_owned());
            }
            fill(points, size, &mut best.blocks);
            let before = best.blocks.len();
            let found = search::shrink(
                points,
                best.blocks.clone(),
                bound,
                STEPS * effort,
                rng,
                &Any,
            );
            if found.len() < before {
                *best = Cover {
                    blocks: found,
                    origin: format!("local search from {before}"),
                    searched: true,
                };
            }
        }
        if best.blocks.len() > bound {
            symmetric(points, size, best, CYCLIC_STEPS * effort, rng);
        }
    }

    /// Tries a cover of one point fewer, plus blocks that join the new point with all others.
    fn one_more(&mut self, points: usize, size: usize, best: &mut Cover) {
        let mut blocks = self.best(points - 1, size).blocks;
        let new = points - 1;
        blocks.extend((0..new).collect::<Vec<_>>().chunks(size - 1).map(|others| {
            let mut block = others.to_vec();
            block.push(new);
            block
        }));
        offer(best, points, size, blocks, || {
            format!("{} events and one more", points - 1)
        });
    }

    /// Tries a smaller cover in which every point becomes several points.
    fn blown_up(&mut self, points: usize, size: usize, best: &mut Cover) {
        for copies in 2..=size / 2 {
            let (few, small) = (points.div_ceil(copies), size / copies);
            let cover = self.best(few, small);
            let wide = |block: &Vec<usize>| {
                let copies = block
                    .iter()
                    .flat_map(|&point| (0..copies).map(move |copy| point * copies + copy));
                copies.filter(|&point| point < points).collect()
            };
            let blocks = cover.blocks.iter().map(wide).collect();
            offer(best, points, size, blocks, || {
                format!("{few} events on {small} counters, each {copies} times")
            });
        }
    }

    /// Tries Steiner triple systems.
    fn triples(&mut self, points: usize, size: usize, best: &mut Cover) {
        if size != 3 {
            return;
        }
        for (count, blocks) in [
            (
                points.next_multiple_of(6) + 3,
                geometry::bose_triples(points.div_ceil(6)),
            ),
            (points / 6 * 6 + 3, geometry::bose_triples(points / 6)),
            (
                points / 6 * 6 + 1,
                geometry::skolem_triples((points / 6).max(1)),
            ),
        ] {
            if count >= points {
                let cut = truncated(&blocks, points);
                offer(best, points, size, cut, || {
                    format!("Steiner triple system on {count} points")
                });
            }
        }
        let mut rng = ChaCha8Rng::seed_from_u64(points as u64);
        if let Some(blocks) = triples::cover(points, &mut rng) {
            offer(best, points, size, blocks, || {
                "triples by hill climbing".to_owned()
            });
        }
    }

    /// Difference families on as many points or some more.
    fn families(&mut self, points: usize, size: usize, best: &mut Cover) {
        let usable = |family: &&Family| {
            family.size() == size && family.points() >= points && family.hole().len() < points
        };
        for family in FAMILIES.iter().filter(usable) {
            let mut blocks = family.blocks();
            let hole: Vec<_> = family.hole().collect();
            if hole.len() > 1 {
                let parts = self.best(hole.len(), size).blocks;
                blocks.extend(
                    parts
                        .iter()
                        .map(|part| part.iter().map(|&at| hole[at]).collect()),
                );
            }
            let cut = truncated(&blocks, points);
            offer(best, points, size, cut, || {
                format!("difference family on {} points", family.points())
            });
        }
    }

    /// Tries the lines of affine and projective planes; lines longer than a block are covered
    /// separately.
    fn planes(&mut self, points: usize, size: usize, best: &mut Cover) {
        for order in (2..16).filter(|&q| prime_power(q).is_some()) {
            let count = order * order + order + 1;
            if count < points || order > 3 * size {
                continue;
            }
            let Some(field) = self.field(order) else {
                continue;
            };
            let mut designs = vec![(count, geometry::projective_plane(&field), "projective")];
            if order * order >= points {
                designs.push((order * order, geometry::affine_plane(&field), "affine"));
            }
            for (_, lines, kind) in designs {
                let mut blocks = vec![];
                let lines = truncated(&lines, points);
                if lines.iter().any(|line| line.len() == points) {
                    continue;
                }
                for line in lines {
                    if line.len() <= size {
                        blocks.push(line);
                    } else {
                        let parts = self.best(line.len(), size).blocks;
                        blocks.extend(
                            parts
                                .iter()
                                .map(|part| part.iter().map(|&at| line[at]).collect()),
                        );
                    }
                }
                offer(best, points, size, blocks, || {
                    format!("{kind} plane of order {order}")
                });
            }
        }
    }

    /// Tries a transversal design across groups, plus a cover of each group together with
    /// additional points that all groups share.
    fn transversal(&mut self, points: usize, size: usize, best: &mut Cover) {
        for order in size - 1..=points.div_ceil(2) {
            let Some(crossing) = self.crossing(order, size) else {
                continue;
            };
            for shared in 0..size.min(points) {
                let grouped = points - shared;
                if grouped > size * order || grouped < order {
                    continue;
                }
                let even = grouped.div_ceil(size);
                for group in if even == order {
                    vec![order]
                } else {
                    vec![order, even]
                } {
                    // Point `group * order + at` of the design is left out if the group has fewer
                    // points.
                    let mut number = vec![None; size * order];
                    let mut groups = vec![vec![]; size];
                    let mut next = 0;
                    'all: for (which, members) in groups.iter_mut().enumerate() {
                        for at in 0..group {
                            if next == grouped {
                                break 'all;
                            }
                            number[which * order + at] = Some(next);
                            members.push(next);
                            next += 1;
                        }
                    }
                    if next < grouped
                        || groups
                            .iter()
                            .any(|members| members.len() + shared >= points)
                    {
                        continue;
                    }
                    let mut blocks: Blocks = crossing
                        .iter()
                        .map(|block| block.iter().filter_map(|&point| number[point]).collect())
                        .collect();
                    for mut members in groups.into_iter().filter(|members| !members.is_empty()) {
                        members.extend(grouped..points);
                        let parts = self.best(members.len(), size).blocks;
                        blocks.extend(
                            parts
                                .iter()
                                .map(|part| part.iter().map(|&at| members[at]).collect()),
                        );
                    }
                    offer(best, points, size, blocks, || {
                        format!(
                            "transversal design of order {order}, {shared} events in every group"
                        )
                    });
                }
            }
        }
    }

    /// A transversal design with `size` groups, where one is known here.
    fn crossing(&mut self, order: usize, size: usize) -> Option<Blocks> {
        match self.field(order) {
            Some(field) => Some(geometry::transversal_design(&field, size)),
            None if size == 4 => geometry::four_groups(order),
            None => None,
        }
    }

    /// Tries parts of `size / 2` points, combined two by two: every pair of parts is in one block.
    fn halves(&mut self, points: usize, size: usize, best: &mut Cover) {
        let part = size / 2;
        let parts = points.div_ceil(part);
        let mut blocks = vec![];
        for a in 0..parts {
            for b in 0..a {
                let members = (a * part..(a + 1) * part).chain(b * part..(b + 1) * part);
                blocks.push(members.filter(|&point| point < points).collect());
            }
        }
        offer(best, points, size, blocks, || {
            format!("parts of {part} events, two by two")
        });
    }

    fn field(&mut self, order: usize) -> Option<Field> {
        if let Some(known) = self.planes.get(&order) {
            return Some(known.clone());
        }
        let field = Field::new(order)?;
        self.planes.insert(order, field.clone());
        Some(field)
    }
}

/// Tries covers with a cyclic symmetry on this many points or a few more.
fn symmetric(points: usize, size: usize, best: &mut Cover, steps: u64, rng: &mut ChaCha8Rng) {
    for more in 0..4 {
        for orbits in 1..=4 {
            for fixed in 0..=3_usize {
                let rest = points + more - fixed;
                if !rest.is_multiple_of(orbits) || rest / orbits <= size {
                    continue;
                }
                let shape = Shape {
                    length: rest / orbits,
                    orbits,
                    fixed,
                };
                if let Some(blocks) = cyclic::search(shape, size, best.blocks.len(), steps, rng) {
                    let count = shape.points();
                    offer(best, points, size, truncated(&blocks, points), || {
                        format!(
                            "symmetric search: {orbits} cycles of {}, {fixed} fixed, {count} \
                             points",
                            shape.length
                        )
                    });
                }
            }
        }
    }
}

fn pairs(points: usize) -> Blocks {
    (0..points)
        .flat_map(|a| (0..a).map(move |b| vec![b, a]))
        .collect()
}

/// Removes the points from `points` on from all blocks.
fn truncated(blocks: &Blocks, points: usize) -> Blocks {
    let cut = |block: &Vec<usize>| {
        block
            .iter()
            .copied()
            .filter(|&point| point < points)
            .collect()
    };
    blocks.iter().map(cut).collect()
}

/// Takes `blocks` if they are fewer than the best ones, after joining small blocks.
fn offer(
    best: &mut Cover,
    points: usize,
    size: usize,
    mut blocks: Blocks,
    origin: impl FnOnce() -> String,
) {
    tidy(points, size, &mut blocks);
    if blocks.len() < best.blocks.len() {
        *best = Cover {
            blocks,
            origin: origin(),
            searched: false,
        };
    }
}

/// Drops blocks that are covered elsewhere, and joins blocks that fit into one.
fn tidy(points: usize, size: usize, blocks: &mut Blocks) {
    blocks.retain(|block| block.len() > 1);
    // Small blocks first: they are the most likely to be contained elsewhere.
    blocks.sort_by_key(Vec::len);
    let mut coverage = search::Coverage::new(points);
    for block in blocks.iter() {
        coverage.add_block(block);
    }
    blocks.retain(|block| {
        let spare =
            |(at, &a): (usize, &usize)| block[..at].iter().all(|&b| coverage.count(a, b) > 1);
        let spare = block.iter().enumerate().all(spare);
        if spare {
            for (at, &a) in block.iter().enumerate() {
                for &b in &block[..at] {
                    coverage.remove(a, b);
                }
            }
        }
        !spare
    });
    // As bit sets, because there are many pairs of blocks to examine.
    let bits = |block: &Vec<usize>| block.iter().fold(0_u128, |bits, &point| bits | 1 << point);
    let mut sets: Vec<u128> = blocks.iter().map(bits).collect();
    let mut at = 0;
    while at < sets.len() && (sets[at].count_ones() as usize) < size {
        let fits = |other: &usize| (sets[at] | sets[*other]).count_ones() as usize <= size;
        match (at + 1..sets.len()).find(fits) {
            Some(other) => {
                // A block that fitted into none before does not fit into a larger set either, so
                // the search continues here.
                let joined = sets.remove(other) | sets.remove(at);
                let place = sets.partition_point(|set| set.count_ones() < joined.count_ones());
                sets.insert(place, joined);
            }
            None => at += 1,
        }
    }
    *blocks = sets
        .iter()
        .map(|set| (0..points).filter(|point| set >> point & 1 == 1).collect())
        .collect();
}

/// Fills every block up to `size` points, starting with the points that are in the fewest blocks.
/// More events in a run cost nothing and improve the estimates.
pub fn fill(points: usize, size: usize, blocks: &mut Blocks) {
    let mut uses = vec![0_usize; points];
    for &point in blocks.iter().flatten() {
        uses[point] += 1;
    }
    for block in blocks.iter_mut() {
        while block.len() < size.min(points) {
            let free = (0..points).filter(|point| !block.contains(point));
            let Some(point) = free.min_by_key(|&point| uses[point]) else {
                break;
            };
            uses[point] += 1;
            block.push(point);
        }
        block.sort_unstable();
    }
}
