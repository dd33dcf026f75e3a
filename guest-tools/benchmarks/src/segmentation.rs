//! Segmentation: divides an image into regions of similar brightness, as a graph whose pixels are
//! joined edge by edge.
//!
//! The method of Felzenszwalb and Huttenlocher (Efficient Graph-Based Image Segmentation, 2004):
//! smooth the image; weigh the edges between neighboring pixels by their difference; starting from
//! the lightest edge, join two regions if the edge is no heavier than what holds either region
//! together, plus an allowance that shrinks as they grow. Edges are sorted by counting. The passes
//! access memory in order; sorting and the forest of regions access it at random.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::scene::{Eye, Frame, Scene};
use crate::{Kernel, Size};
use core::fmt;

/// Edges from a pixel to later pixels: right, down left, down, down right.
const EDGES: usize = 4;
/// Sum of the smoothing filter's weights: smoothed brightnesses are larger by this factor.
const SMOOTHED: u32 = 16;
/// Exclusive upper bound of an edge's weight.
const WEIGHTS: usize = (255 * SMOOTHED + 1) as usize;
/// The weight of an edge that would leave the image.
const NO_EDGE: u32 = u32::MAX;
/// The allowance of a region of one pixel; a region of n pixels has an n-th of it. A larger value
/// gives larger regions.
const ALLOWANCE: u32 = 300 * SMOOTHED;
/// Regions of fewer pixels are joined to a neighbor.
const SMALLEST: u32 = 24;

/// The benchmark for one size of images.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation {
    frame: Frame,
}

/// The arrays, in their order in memory.
struct Arrays<'a> {
    image: &'a mut [u32],
    smooth: &'a mut [u32],
    /// Four for each pixel.
    weights: &'a mut [u32],
    /// The edges by weight: pixel times four plus direction.
    sorted: &'a mut [u32],
    /// First the number of edges of each weight, then the position where the next edge of that
    /// weight goes.
    places: &'a mut [u32],
    forest: Forest<'a>,
    /// The number of each pixel's region.
    labels: &'a mut [u32],
}

impl Segmentation {
    fn arrays<'a>(&self, memory: &'a mut [u32]) -> Arrays<'a> {
        let pixels = self.frame.pixels();
        let (image, memory) = memory.split_at_mut(pixels);
        let (smooth, memory) = memory.split_at_mut(pixels);
        let (weights, memory) = memory.split_at_mut(EDGES * pixels);
        let (sorted, memory) = memory.split_at_mut(EDGES * pixels);
        let (places, memory) = memory.split_at_mut(WEIGHTS);
        let (parent, memory) = memory.split_at_mut(pixels);
        let (size, memory) = memory.split_at_mut(pixels);
        let (limit, labels) = memory.split_at_mut(pixels);
        Arrays {
            image,
            smooth,
            weights,
            sorted,
            places,
            forest: Forest {
                parent,
                size,
                limit,
            },
            labels,
        }
    }

    /// Returns the two pixels of an edge.
    fn ends(&self, edge: u32) -> (u32, u32) {
        let (pixel, direction) = (edge / EDGES as u32, edge % EDGES as u32);
        let width = self.frame.width as u32;
        let step = if direction == 0 {
            1
        } else {
            width + direction - 2
        };
        (pixel, pixel + step)
    }
}

impl fmt::Display for Segmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frame.fmt(f)
    }
}

impl Kernel for Segmentation {
    const NAME: &'static str = "segmentation";

    fn new(size: Size) -> Self {
        Self {
            frame: Frame::of(size),
        }
    }

    fn words(&self) -> usize {
        (6 + 2 * EDGES) * self.frame.pixels() + WEIGHTS
    }

    fn input(&self) -> usize {
        self.frame.pixels()
    }

    fn prepare(&self, memory: &mut [u32], seed: u64) {
        Scene::new(self.frame, seed).paint(Eye::Left, self.arrays(memory).image);
    }

    fn run(&self, memory: &mut [u32]) {
        let Arrays {
            image,
            smooth,
            weights,
            sorted,
            places,
            mut forest,
            labels,
        } = self.arrays(memory);
        smoothen(image, self.frame.width, smooth);
        weigh(smooth, self.frame.width, weights);
        let edges = sort(weights, places, sorted);
        forest.plant();
        // Edges between two regions move to the front; the second pass does not need the others.
        let mut between = 0;
        for nth in 0..edges {
            let edge = sorted[nth];
            let weight = weights[edge as usize];
            let (a, b) = forest.roots(self.ends(edge));
            if a == b {
                continue;
            }
            if weight <= forest.limit[a as usize] && weight <= forest.limit[b as usize] {
                forest.join(a, b, weight);
            } else {
                sorted[between] = edge;
                between += 1;
            }
        }
        for &edge in &sorted[..between] {
            let (a, b) = forest.roots(self.ends(edge));
            if a != b && forest.size[a as usize].min(forest.size[b as usize]) < SMALLEST {
                forest.join(a, b, weights[edge as usize]);
            }
        }
        forest.number(labels);
    }

    fn result<'a>(&self, memory: &'a [u32]) -> &'a [u32] {
        &memory[self.words() - self.frame.pixels()..]
    }
}

/// Replaces each pixel by the weighted sum (4, 2, 1) of itself and its eight neighbors; at the
/// border, the outermost pixels are repeated.
fn smoothen(image: &[u32], width: usize, smooth: &mut [u32]) {
    let last = image.len() / width - 1;
    let row = |y: usize| &image[y * width..(y + 1) * width];
    for (y, out) in smooth.chunks_exact_mut(width).enumerate() {
        let (above, here, below) = (row(y.saturating_sub(1)), row(y), row((y + 1).min(last)));
        let column = |x: usize| above[x] + 2 * here[x] + below[x];
        let (mut left, mut middle) = (column(0), column(0));
        for (x, out) in out.iter_mut().enumerate() {
            let right = column((x + 1).min(width - 1));
            *out = left + 2 * middle + right;
            (left, middle) = (middle, right);
        }
    }
}

/// Computes the weights of each pixel's edges: the difference in brightness.
fn weigh(smooth: &[u32], width: usize, weights: &mut [u32]) {
    let mut rows = smooth.chunks_exact(width).peekable();
    let mut out = weights.chunks_exact_mut(EDGES);
    while let Some(row) = rows.next() {
        let below = rows.peek();
        for ((x, here), out) in row.iter().enumerate().zip(&mut out) {
            let weigh = |other: Option<&u32>| other.map_or(NO_EDGE, |other| here.abs_diff(*other));
            let down = |x: Option<usize>| weigh(below.zip(x).and_then(|(below, x)| below.get(x)));
            out[0] = weigh(row.get(x + 1));
            out[1] = down(x.checked_sub(1));
            out[2] = down(Some(x));
            out[3] = down(Some(x + 1));
        }
    }
}

/// Sorts the existing edges by weight (stable). Returns their number.
fn sort(weights: &[u32], places: &mut [u32], sorted: &mut [u32]) -> usize {
    places.fill(0);
    for &weight in weights.iter().filter(|weight| **weight != NO_EDGE) {
        places[weight as usize] += 1;
    }
    let mut edges = 0;
    for place in &mut *places {
        (*place, edges) = (edges, edges + *place);
    }
    for (edge, &weight) in (0..).zip(weights).filter(|(_, weight)| **weight != NO_EDGE) {
        let place = &mut places[weight as usize];
        sorted[*place as usize] = edge;
        *place += 1;
    }
    edges as usize
}

/// Regions as trees of pixels.
struct Forest<'a> {
    /// The parent of each pixel; a root is its own parent.
    parent: &'a mut [u32],
    /// For a root: number of pixels in its tree.
    size: &'a mut [u32],
    /// For a root: the heaviest edge that may join its tree to another. Later, the region's
    /// number.
    limit: &'a mut [u32],
}

impl Forest<'_> {
    /// Makes each pixel a separate region.
    fn plant(&mut self) {
        for (pixel, parent) in (0..).zip(&mut *self.parent) {
            *parent = pixel;
        }
        self.size.fill(1);
        self.limit.fill(ALLOWANCE);
    }

    /// Returns the root of a pixel's tree, halving the path to it.
    fn root(&mut self, mut pixel: u32) -> u32 {
        loop {
            let parent = self.parent[pixel as usize];
            if parent == pixel {
                return pixel;
            }
            let above = self.parent[parent as usize];
            self.parent[pixel as usize] = above;
            pixel = above;
        }
    }

    fn roots(&mut self, (a, b): (u32, u32)) -> (u32, u32) {
        (self.root(a), self.root(b))
    }

    /// Joins the trees of two roots by an edge that is heavier than all edges in them.
    fn join(&mut self, a: u32, b: u32, weight: u32) {
        let (over, under) = if self.size[a as usize] >= self.size[b as usize] {
            (a, b)
        } else {
            (b, a)
        };
        self.parent[under as usize] = over;
        self.size[over as usize] += self.size[under as usize];
        self.limit[over as usize] = weight + ALLOWANCE / self.size[over as usize];
    }

    /// Numbers the regions in the order of their first pixels.
    fn number(&mut self, labels: &mut [u32]) {
        const NONE: u32 = u32::MAX;
        self.limit.fill(NONE);
        let mut regions = 0;
        for (pixel, label) in (0..).zip(labels) {
            let number = self.root(pixel) as usize;
            if self.limit[number] == NONE {
                self.limit[number] = regions;
                regions += 1;
            }
            *label = self.limit[number];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    /// Computes the smoothed brightness from its definition.
    fn smoothed(image: &[u32], frame: Frame) -> Vec<u32> {
        let clamp = |at: i64, length: usize| at.clamp(0, length as i64 - 1) as usize;
        let pixel =
            |x: i64, y: i64| image[clamp(y, frame.height) * frame.width + clamp(x, frame.width)];
        let filter = [(-1, 1), (0, 2), (1, 1)];
        let sum = |x: i64, y: i64| -> u32 {
            filter
                .iter()
                .flat_map(|(u, a)| filter.iter().map(move |(v, b)| a * b * pixel(x + u, y + v)))
                .sum()
        };
        (0..frame.pixels())
            .map(|at| sum((at % frame.width) as i64, (at / frame.width) as i64))
            .collect()
    }

    /// A naive implementation: regions as lists of pixels that are merged and searched, edges
    /// sorted by the library.
    fn naive(image: &[u32], frame: Frame) -> Vec<u32> {
        let smooth = smoothed(image, frame);
        let mut edges = vec![];
        for at in 0..frame.pixels() {
            let (x, y) = (
                at as i64 % frame.width as i64,
                at as i64 / frame.width as i64,
            );
            for (dx, dy) in [(1, 0), (-1, 1), (0, 1), (1, 1)] {
                let (u, v) = (x + dx, y + dy);
                if (0..frame.width as i64).contains(&u) && v < frame.height as i64 {
                    let other = (v * frame.width as i64 + u) as usize;
                    edges.push((smooth[at].abs_diff(smooth[other]), at, other));
                }
            }
        }
        edges.sort_by_key(|(weight, ..)| *weight);
        let mut regions: Vec<(Vec<usize>, u32)> = (0..frame.pixels())
            .map(|at| (vec![at], ALLOWANCE))
            .collect();
        for is_second in [false, true] {
            for &(weight, a, b) in &edges {
                let find = |at| {
                    regions
                        .iter()
                        .position(|(pixels, _)| pixels.contains(&at))
                        .expect("every pixel is in one")
                };
                let (a, b) = (find(a), find(b));
                let wanted = if is_second {
                    regions[a].0.len().min(regions[b].0.len()) < SMALLEST as usize
                } else {
                    weight <= regions[a].1 && weight <= regions[b].1
                };
                if a != b && wanted {
                    let (pixels, _) = regions.remove(a.max(b));
                    let whole = &mut regions[a.min(b)];
                    whole.0.extend(pixels);
                    whole.1 = weight + ALLOWANCE / whole.0.len() as u32;
                }
            }
        }
        let mut numbers = BTreeMap::new();
        let of = |at| {
            regions
                .iter()
                .position(|(pixels, _)| pixels.contains(&at))
                .expect("every pixel is in one")
        };
        let mut label = |at| {
            let next = numbers.len() as u32;
            *numbers.entry(of(at)).or_insert(next)
        };
        (0..frame.pixels()).map(&mut label).collect()
    }

    #[test]
    fn small_images_agree_with_the_naive_way() {
        for (width, height) in [(1, 1), (1, 40), (40, 1), (7, 5), (24, 18)] {
            let frame = Frame { width, height };
            let kernel = Segmentation { frame };
            for seed in 0..3 {
                let mut memory = vec![!0; kernel.words()];
                let mut random = Random::new(seed);
                let blocks: Vec<u32> = (0..64).map(|_| random.below(230) as u32).collect();
                for (at, pixel) in kernel.arrays(&mut memory).image.iter_mut().enumerate() {
                    let block = at % width / 6 * 7 + at / width / 6;
                    *pixel = blocks[block % blocks.len()] + random.below(26) as u32;
                }
                let image = memory[..frame.pixels()].to_vec();
                kernel.run(&mut memory);
                assert_eq!(
                    kernel.result(&memory),
                    naive(&image, frame),
                    "{frame}, seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_scenes_regions_are_few_and_none_is_tiny() {
        for size in Size::ALL {
            let kernel = Segmentation::new(size);
            let mut memory = vec![0; kernel.words()];
            kernel.prepare(&mut memory, 1);
            kernel.run(&mut memory);
            let mut pixels = BTreeMap::new();
            for label in kernel.result(&memory) {
                *pixels.entry(*label).or_insert(0u32) += 1;
            }
            assert!(
                (6..400).contains(&pixels.len()),
                "{kernel}: {} regions",
                pixels.len()
            );
            assert!(
                pixels.values().all(|pixels| *pixels >= SMALLEST),
                "{kernel}: {pixels:?}"
            );
        }
    }
}
