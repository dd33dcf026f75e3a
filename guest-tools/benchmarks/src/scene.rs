//! Synthetic scenes: a smooth background with shapes in front of it at several depths, all with
//! texture.
//!
//! Two eyes see the same scene. In the right eye's image, nearer objects are shifted further to the
//! left, by as many pixels as their *shift*.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::Size;
use crate::random::Random;
use core::fmt;

/// The dimensions of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Frame {
    /// Returns the dimensions of inputs of this size (ITU-T H.263, table 1: sub-QCIF, QCIF, CIF).
    pub const fn of(size: Size) -> Self {
        match size {
            Size::Small => Self {
                width: 128,
                height: 96,
            },
            Size::Medium => Self {
                width: 176,
                height: 144,
            },
            Size::Large => Self {
                width: 352,
                height: 288,
            },
        }
    }

    /// Returns the number of pixels.
    pub const fn pixels(self) -> usize {
        self.width * self.height
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// The viewpoint of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eye {
    /// Sees nothing shifted.
    Left,
    /// Sees everything shifted to the left, near objects more than distant ones.
    Right,
}

/// Shapes per scene.
const SHAPES: usize = 12;
/// The shift of the background and of the most distant shape; each nearer shape has one more.
const BACKGROUND_SHIFT: u32 = 1;
const FIRST_SHIFT: u32 = 3;
/// Distance in pixels between two points of the background's brightness grid, a power of two.
const CELL: u32 = 32;
/// Levels of brightness that the texture adds.
const TEXTURE: u32 = 24;
/// Exclusive upper bound of brightnesses.
const WHITE: u32 = 256;

/// Something in front of the background.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    center: [u32; 2],
    /// Half of its width and half of its height.
    radius: [u32; 2],
    is_round: bool,
    brightness: u32,
}

impl Shape {
    fn covers(&self, x: u32, y: u32) -> bool {
        let [dx, dy] = [x.abs_diff(self.center[0]), y.abs_diff(self.center[1])];
        let [rx, ry] = self.radius;
        if dx > rx || dy > ry {
            return false;
        }
        // An ellipse: (dx / rx)² + (dy / ry)² at most 1.
        let square = |a: u32, b: u32| u64::from(a * b).pow(2);
        !self.is_round || square(dx, ry) + square(dy, rx) <= square(rx, ry)
    }
}

/// A scene, completely determined by its seed.
#[derive(Clone, Debug)]
pub struct Scene {
    frame: Frame,
    seed: u64,
    /// Ordered from far to near.
    shapes: [Shape; SHAPES],
}

impl Scene {
    /// Creates the scene with this seed for images of this size.
    pub fn new(frame: Frame, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (width, height) = (frame.width as u64, frame.height as u64);
        let mut shapes = [Shape::default(); SHAPES];
        for shape in &mut shapes {
            let mut draw = |least: u64, bound: u64| (least + random.below(bound)) as u32;
            *shape = Shape {
                center: [draw(0, width), draw(0, height)],
                radius: [draw(width / 16, width / 8), draw(height / 16, height / 8)],
                is_round: draw(0, 2) == 0,
                brightness: draw(16, 200),
            };
        }
        Self {
            frame,
            seed,
            shapes,
        }
    }

    /// Returns what an eye sees at a pixel: the surface's number (from far to near, the background
    /// first) and shift, and the column at which the left eye would see the same point.
    fn look(&self, eye: Eye, x: u32, y: u32) -> (usize, u32, u32) {
        let column = |shift: u32| if eye == Eye::Right { x + shift } else { x };
        for (index, shape) in self.shapes.iter().enumerate().rev() {
            let shift = FIRST_SHIFT + index as u32;
            if shape.covers(column(shift), y) {
                return (index + 1, shift, column(shift));
            }
        }
        (0, BACKGROUND_SHIFT, column(BACKGROUND_SHIFT))
    }

    /// Returns by how many pixels the point at this pixel of the left eye's image is shifted in the
    /// right eye's.
    pub fn shift(&self, x: u32, y: u32) -> u32 {
        self.look(Eye::Left, x, y).1
    }

    /// Returns a number below `bound` that is fixed for a point of a surface.
    fn noise(&self, surface: u32, x: u32, y: u32, bound: u32) -> u32 {
        let point = u64::from(surface) << 56 | u64::from(y) << 28 | u64::from(x);
        Random::new(self.seed ^ point).below(u64::from(bound)) as u32
    }

    /// Returns the background's brightness: a grid of random points, interpolated linearly.
    fn background(&self, x: u32, y: u32) -> u32 {
        let (column, row) = (x / CELL, y / CELL);
        let (right, down) = (x % CELL, y % CELL);
        let net = |column, row| self.noise(u8::MAX.into(), column, row, WHITE - TEXTURE);
        let along = |row| net(column, row) * (CELL - right) + net(column + 1, row) * right;
        (along(row) * (CELL - down) + along(row + 1) * down) / (CELL * CELL)
    }

    /// Paints what an eye sees, row by row, with brightnesses from 0 to 255.
    pub fn paint(&self, eye: Eye, image: &mut [u32]) {
        for (y, row) in (0..).zip(image.chunks_exact_mut(self.frame.width)) {
            for (x, pixel) in (0..).zip(row) {
                let (surface, _, column) = self.look(eye, x, y);
                let plain = match surface {
                    0 => self.background(column, y),
                    shape => self.shapes[shape - 1].brightness,
                };
                *pixel = plain + self.noise(surface as u32, column, y, TEXTURE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn painted(scene: &Scene, eye: Eye) -> Vec<u32> {
        let mut image = vec![0; scene.frame.pixels()];
        scene.paint(eye, &mut image);
        image
    }

    #[test]
    fn a_scene_has_many_brightnesses_and_no_noise_only() {
        for seed in 0..5 {
            let scene = Scene::new(Frame::of(Size::Small), seed);
            let image = painted(&scene, Eye::Left);
            assert!(image.iter().all(|pixel| *pixel < WHITE));
            let (least, most) = (image.iter().min(), image.iter().max());
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least > 100),
                "{least:?} {most:?}"
            );
            // Most neighbors differ by no more than the texture, as on real surfaces and unlike
            // noise.
            let alike = image
                .windows(2)
                .filter(|pair| pair[0].abs_diff(pair[1]) <= TEXTURE + 8)
                .count();
            assert!(
                alike * 10 > image.len() * 9,
                "seed {seed}: {alike} of {} neighbors are alike",
                image.len()
            );
        }
    }

    #[test]
    fn both_eyes_see_the_same_points() {
        let scene = Scene::new(Frame::of(Size::Small), 3);
        let [left, right] = [Eye::Left, Eye::Right].map(|eye| painted(&scene, eye));
        let width = scene.frame.width;
        let (mut same, mut all) = (0, 0);
        for (index, pixel) in left.iter().enumerate() {
            let (x, y) = (index % width, index / width);
            let shift = scene.shift(x as u32, y as u32) as usize;
            if x >= shift {
                all += 1;
                same += u32::from(right[index - shift] == *pixel);
            }
        }
        // Everything except what a nearer object hides from the right eye.
        assert!(same * 10 > all * 9, "{same} of {all}");
        assert_ne!(left, right);
    }

    #[test]
    fn depths_differ_and_leave_room_in_the_search() {
        let scene = Scene::new(Frame::of(Size::Large), 0);
        let mut seen = [false; crate::disparity::SHIFTS as usize];
        for y in 0..scene.frame.height {
            for x in 0..scene.frame.width {
                seen[scene.shift(x as u32, y as u32) as usize] = true;
            }
        }
        assert!(
            seen.iter().filter(|seen| **seen).count() > SHAPES / 2,
            "{seen:?}"
        );
    }
}
