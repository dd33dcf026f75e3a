//! Disparity: finds how far each point of the left image is shifted in the right one, by comparing
//! windows.
//!
//! For each shift, four passes over whole arrays: absolute differences, their integral image, sums
//! over windows from four corners of the integral image, and the running minimum. All arrays are
//! thus read again and again, which makes the benchmark sensitive to a cache that is too small.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::scene::{Eye, Frame, Scene};
use crate::{Kernel, Size};
use core::fmt;

/// Exclusive upper bound of the shifts that are tried.
pub const SHIFTS: u32 = 16;
/// A window extends this far from its center, so it has 9 by 9 pixels; it is cut off at the image's
/// border.
const REACH: usize = 4;

/// The benchmark for one size of images.
#[derive(Clone, Copy, Debug)]
pub struct Disparity {
    frame: Frame,
}

/// The arrays, in their order in memory.
struct Arrays<'a> {
    left: &'a mut [u32],
    right: &'a mut [u32],
    difference: &'a mut [u32],
    /// One row and one column more than the image, both zero.
    integral: &'a mut [u32],
    window: &'a mut [u32],
    /// The smallest sum of any shift so far.
    least: &'a mut [u32],
    /// The shift with the smallest sum.
    disparity: &'a mut [u32],
}

impl Disparity {
    const fn integral_words(&self) -> usize {
        (self.frame.width + 1) * (self.frame.height + 1)
    }

    fn arrays<'a>(&self, memory: &'a mut [u32]) -> Arrays<'a> {
        let pixels = self.frame.pixels();
        let (left, memory) = memory.split_at_mut(pixels);
        let (right, memory) = memory.split_at_mut(pixels);
        let (difference, memory) = memory.split_at_mut(pixels);
        let (integral, memory) = memory.split_at_mut(self.integral_words());
        let (window, memory) = memory.split_at_mut(pixels);
        let (least, disparity) = memory.split_at_mut(pixels);
        Arrays {
            left,
            right,
            difference,
            integral,
            window,
            least,
            disparity,
        }
    }
}

impl fmt::Display for Disparity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frame.fmt(f)
    }
}

impl Kernel for Disparity {
    const NAME: &'static str = "disparity";

    fn new(size: Size) -> Self {
        Self {
            frame: Frame::of(size),
        }
    }

    fn words(&self) -> usize {
        6 * self.frame.pixels() + self.integral_words()
    }

    fn input(&self) -> usize {
        2 * self.frame.pixels()
    }

    fn prepare(&self, memory: &mut [u32], seed: u64) {
        let scene = Scene::new(self.frame, seed);
        let arrays = self.arrays(memory);
        scene.paint(Eye::Left, arrays.left);
        scene.paint(Eye::Right, arrays.right);
    }

    fn run(&self, memory: &mut [u32]) {
        let width = self.frame.width;
        let Arrays {
            left,
            right,
            difference,
            integral,
            window,
            least,
            disparity,
        } = self.arrays(memory);
        least.fill(u32::MAX);
        for shift in 0..SHIFTS {
            differences(left, right, width, shift as usize, difference);
            integrate(difference, width, integral);
            windows(integral, width, window);
            keep_least(window, shift, least, disparity);
        }
    }

    fn result<'a>(&self, memory: &'a [u32]) -> &'a [u32] {
        &memory[self.words() - self.frame.pixels()..]
    }
}

/// Computes absolute differences between the left image and the right one moved by `shift`. At the
/// left border, the right image's first column replaces what it does not show.
fn differences(left: &[u32], right: &[u32], width: usize, shift: usize, difference: &mut [u32]) {
    let rows = left.chunks_exact(width).zip(right.chunks_exact(width));
    for (out, (left, right)) in difference.chunks_exact_mut(width).zip(rows) {
        let (out_edge, out) = out.split_at_mut(shift);
        let (left_edge, left) = left.split_at(shift);
        for (out, left) in out_edge.iter_mut().zip(left_edge) {
            *out = left.abs_diff(right[0]);
        }
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            *out = left.abs_diff(*right);
        }
    }
}

/// Computes the sum of all pixels above and to the left of each pixel's corner.
fn integrate(image: &[u32], width: usize, integral: &mut [u32]) {
    let (mut above, mut rest) = integral.split_at_mut(width + 1);
    above.fill(0);
    for row in image.chunks_exact(width) {
        let (out, below) = rest.split_at_mut(width + 1);
        let mut sum = 0;
        out[0] = 0;
        for ((out, above), pixel) in out[1..].iter_mut().zip(&above[1..]).zip(row) {
            sum += pixel;
            *out = above + sum;
        }
        (above, rest) = (out, below);
    }
}

/// Computes the sum of each pixel's window.
fn windows(integral: &[u32], width: usize, window: &mut [u32]) {
    let stride = width + 1;
    let last_row = integral.len() / stride - 1;
    for (y, out) in window.chunks_exact_mut(width).enumerate() {
        let row = |y: usize| &integral[y * stride..(y + 1) * stride];
        let (top, bottom) = (
            row(y.saturating_sub(REACH)),
            row((y + REACH + 1).min(last_row)),
        );
        let sum = |from: usize, to: usize| bottom[to] - bottom[from] - (top[to] - top[from]);
        for x in (0..REACH).chain(width - REACH..width) {
            out[x] = sum(x.saturating_sub(REACH), (x + REACH + 1).min(width));
        }
        let corners = bottom
            .iter()
            .zip(top)
            .zip(bottom[2 * REACH + 1..].iter().zip(&top[2 * REACH + 1..]));
        for (out, ((bottom_left, top_left), (bottom_right, top_right))) in
            out[REACH..].iter_mut().zip(corners)
        {
            *out = bottom_right - bottom_left - (top_right - top_left);
        }
    }
}

/// Records `shift` where its window has the smallest sum so far.
fn keep_least(window: &[u32], shift: u32, least: &mut [u32], disparity: &mut [u32]) {
    for ((window, least), disparity) in window.iter().zip(least).zip(disparity) {
        if *window < *least {
            *least = *window;
            *disparity = shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::vec;
    use std::vec::Vec;

    /// A naive implementation: sums every window of every shift pixel by pixel.
    fn naive(left: &[u32], right: &[u32], frame: Frame) -> Vec<u32> {
        let (width, height) = (frame.width as i64, frame.height as i64);
        let reach = REACH as i64;
        let cost = |x: i64, y: i64, shift: i64| {
            let mut sum = 0;
            for v in (y - reach).max(0)..=(y + reach).min(height - 1) {
                for u in (x - reach).max(0)..=(x + reach).min(width - 1) {
                    let partner = (u - shift).max(0);
                    sum += left[(v * width + u) as usize]
                        .abs_diff(right[(v * width + partner) as usize]);
                }
            }
            sum
        };
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        // The first of equal sums, as returned by `min_by_key`.
        pixels
            .map(|(x, y)| {
                (0..SHIFTS)
                    .min_by_key(|&shift| cost(x, y, i64::from(shift)))
                    .unwrap_or(0)
            })
            .collect()
    }

    #[test]
    fn small_images_agree_with_the_naive_way() {
        for (width, height) in [(16, 1), (16, 5), (23, 17), (40, 30)] {
            let frame = Frame { width, height };
            let kernel = Disparity { frame };
            let mut memory = vec![!0; kernel.words()];
            let mut random = Random::new(width as u64);
            let arrays = kernel.arrays(&mut memory);
            for pixel in arrays.left.iter_mut().chain(arrays.right) {
                *pixel = random.below(256) as u32;
            }
            let (left, right) = (
                memory[..frame.pixels()].to_vec(),
                memory[frame.pixels()..2 * frame.pixels()].to_vec(),
            );
            kernel.run(&mut memory);
            assert_eq!(
                kernel.result(&memory),
                naive(&left, &right, frame),
                "{frame}"
            );
        }
    }

    #[test]
    fn a_scenes_depth_is_found() {
        for size in Size::ALL {
            let kernel = Disparity::new(size);
            let mut memory = vec![0; kernel.words()];
            kernel.prepare(&mut memory, 1);
            kernel.run(&mut memory);
            let scene = Scene::new(kernel.frame, 1);
            let width = kernel.frame.width;
            let truth = |index: usize| scene.shift((index % width) as u32, (index / width) as u32);
            let found = kernel
                .result(&memory)
                .iter()
                .enumerate()
                .filter(|&(index, shift)| *shift == truth(index))
                .count();
            // Not around the edges of shapes, where windows see two depths, and not at the image's
            // left border.
            assert!(
                found * 100 > kernel.frame.pixels() * 75,
                "{kernel}: {found} of {}",
                kernel.frame.pixels()
            );
        }
    }
}
