//! Searches for a cover with a given number of blocks: simulated annealing over exchanges of one
//! point.
//!
//! A state is a list of blocks of full size; its cost is the number of pairs that meet in no block.
//! A step takes an uncovered pair and moves one of its points into a block that contains the other,
//! in place of a third point.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The rule for allowed blocks: if some events are bound to certain counters, not all sets can be
/// counted.
pub trait Admits: Sync {
    /// Returns whether the events of a block can be counted together.
    fn admits(&self, block: &[usize]) -> bool;
}

/// Allows every block.
#[derive(Clone, Copy, Debug)]
pub struct Any;

impl Admits for Any {
    fn admits(&self, _: &[usize]) -> bool {
        true
    }
}

/// For each pair of points the number of blocks that contain both, and a list of the pairs that are
/// in none.
#[derive(Clone, Debug)]
pub struct Coverage {
    points: usize,
    count: Vec<u16>,
    open: Vec<(u16, u16)>,
    /// Position of each pair in `open`.
    place: Vec<u32>,
}

impl Coverage {
    /// Creates the state in which no pair is covered.
    pub fn new(points: usize) -> Self {
        let mut new = Self {
            points,
            count: vec![0; points * points],
            open: vec![],
            place: vec![0; points * points],
        };
        for a in 0..points {
            for b in 0..a {
                new.push_open(a, b);
            }
        }
        new
    }
    fn at(&self, a: usize, b: usize) -> usize {
        a.max(b) * self.points + a.min(b)
    }
    fn push_open(&mut self, a: usize, b: usize) {
        let at = self.at(a, b);
        self.place[at] = self.open.len() as u32;
        self.open.push((a as u16, b as u16));
    }
    /// Returns the number of blocks that contain both points.
    pub fn count(&self, a: usize, b: usize) -> u16 {
        self.count[self.at(a, b)]
    }
    /// Returns the number of pairs that no block contains.
    pub fn open(&self) -> usize {
        self.open.len()
    }
    /// Records one more block that contains both points.
    pub fn add(&mut self, a: usize, b: usize) {
        let at = self.at(a, b);
        self.count[at] += 1;
        if self.count[at] == 1 {
            let hole = self.place[at] as usize;
            self.open.swap_remove(hole);
            if let Some(&(c, d)) = self.open.get(hole) {
                let moved = self.at(usize::from(c), usize::from(d));
                self.place[moved] = hole as u32;
            }
        }
    }
    /// Records one block fewer that contains both points.
    pub fn remove(&mut self, a: usize, b: usize) {
        let at = self.at(a, b);
        self.count[at] -= 1;
        if self.count[at] == 0 {
            self.push_open(a, b);
        }
    }
    /// Adds all pairs of a block.
    pub fn add_block(&mut self, block: &[usize]) {
        for (at, &a) in block.iter().enumerate() {
            for &b in &block[..at] {
                self.add(a, b);
            }
        }
    }
}

/// Searches for a cover, starting from `blocks`, all of which have as many points as there are
/// counters. Gives up after `steps`.
pub fn anneal(
    points: usize,
    mut blocks: Blocks,
    steps: u64,
    rng: &mut ChaCha8Rng,
    rule: &impl Admits,
) -> Option<Blocks> {
    let mut coverage = Coverage::new(points);
    for block in &blocks {
        coverage.add_block(block);
    }
    if blocks.is_empty() {
        return (coverage.open() == 0).then_some(blocks);
    }
    // Hot enough to lose a pair occasionally at the start, too cold for it at the end.
    let (hot, cold) = (0.7_f64, 0.18_f64);
    let mut chance = [0.0; 64];
    for step in 0..steps {
        if coverage.open() == 0 {
            return Some(blocks);
        }
        if step.is_multiple_of(1024) {
            let temperature = hot * (cold / hot).powf(step as f64 / steps as f64);
            for (worse, chance) in chance.iter_mut().enumerate() {
                *chance = (-(worse as f64) / temperature).exp();
            }
        }
        let (a, b) = coverage.open[rng.random_range(0..coverage.open.len())];
        let (stays, comes) = if rng.random() { (a, b) } else { (b, a) };
        let (stays, comes) = (usize::from(stays), usize::from(comes));
        // A block that contains the one point; none contains the other too, because the pair is not
        // covered.
        let mut tries = 0;
        let chosen = loop {
            let at = rng.random_range(0..blocks.len());
            tries += 1;
            if blocks[at].contains(&stays) || tries > 8 * blocks.len() {
                break at;
            }
        };
        let block = &mut blocks[chosen];
        if block.contains(&comes) {
            continue;
        }
        let seat = rng.random_range(0..block.len());
        let leaves = block[seat];
        if leaves == stays {
            continue;
        }
        let mut delta = 0_i32;
        for &other in block.iter().filter(|&&other| other != leaves) {
            delta += i32::from(coverage.count(leaves, other) == 1)
                - i32::from(coverage.count(comes, other) == 0);
        }
        if delta > 0 && rng.random::<f64>() >= chance[(delta as usize).min(63)] {
            continue;
        }
        block[seat] = comes;
        if !rule.admits(block) {
            block[seat] = leaves;
            continue;
        }
        for &other in block.iter().filter(|&&other| other != comes) {
            coverage.remove(leaves, other);
            coverage.add(comes, other);
        }
    }
    (coverage.open() == 0).then_some(blocks)
}

/// Removes one block after another and repairs the rest, until that fails or `floor` is reached.
pub fn shrink(
    points: usize,
    mut blocks: Blocks,
    floor: usize,
    steps: u64,
    rng: &mut ChaCha8Rng,
    rule: &impl Admits,
) -> Blocks {
    while blocks.len() > floor {
        let mut fewer = blocks.clone();
        let mut found = None;
        // First from the current blocks, a good start if they are nearly sufficient; then from
        // random ones.
        for attempt in 0..2 {
            if attempt == 0 {
                fewer.swap_remove(rng.random_range(0..fewer.len()));
            } else {
                scatter(points, &mut fewer, rng, rule);
            }
            found = anneal(points, fewer.clone(), steps, rng, rule);
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(better) => blocks = better,
            None => break,
        }
    }
    blocks
}

/// Fills the blocks with random points.
fn scatter(points: usize, blocks: &mut Blocks, rng: &mut ChaCha8Rng, rule: &impl Admits) {
    for block in blocks {
        let size = block.len();
        for _ in 0..16 {
            let mut drawn = rand::seq::index::sample(rng, points, size).into_vec();
            if rule.admits(&drawn) {
                std::mem::swap(block, &mut drawn);
                break;
            }
        }
    }
}

/// Makes a cover greedily: block after block, each extended by the point that covers the most new
/// pairs; ties are broken at random.
pub fn greedy(points: usize, size: usize, rng: &mut ChaCha8Rng, rule: &impl Admits) -> Blocks {
    let mut coverage = Coverage::new(points);
    let mut blocks = vec![];
    while coverage.open() > 0 {
        let (a, b) = coverage.open[rng.random_range(0..coverage.open.len())];
        let mut block = vec![usize::from(a), usize::from(b)];
        while block.len() < size.min(points) {
            let (mut best, mut gain, mut ties) = (None, 0, 0_u32);
            for point in 0..points {
                if block.contains(&point) {
                    continue;
                }
                let new = 1 + block
                    .iter()
                    .filter(|&&other| coverage.count(point, other) == 0)
                    .count();
                if new < gain {
                    continue;
                }
                block.push(point);
                let admitted = rule.admits(&block);
                block.pop();
                if !admitted {
                    continue;
                }
                ties = if new > gain { 1 } else { ties + 1 };
                if new > gain || rng.random_range(0..ties) == 0 {
                    (best, gain) = (Some(point), new);
                }
            }
            match best {
                Some(point) => block.push(point),
                None => break,
            }
        }
        coverage.add_block(&block);
        blocks.push(block);
    }
    blocks
}
