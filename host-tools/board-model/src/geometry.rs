//! The geometry of a cache (size, ways, line length), and the sets and tags that follow from it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use thiserror::Error;

/// Bits of a line's number besides those that choose its set, at most.
const TAG_BITS: u32 = 30;

/// A line of memory: a physical address without its offset in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

/// Errors in a cache's geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// A value is zero.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// The line length is not a power of two, or too small for a 16-byte access.
    #[error("a line of {0} bytes: must be a power of two from 16 to 4096")]
    Line(u64),
    /// There are more ways than a set is searched for.
    #[error("{0} ways: at most 64 are supported")]
    Ways(u64),
    /// More lines share a set than an entry can tell apart.
    #[error(
        "{sets} sets with lines of {line} bytes: must be at least {fewest} for addresses of 40 \
         bits"
    )]
    FewSets {
        /// Sets.
        sets: u64,
        /// Bytes in a line.
        line: u64,
        /// The least number of sets.
        fewest: u64,
    },
    /// The number of sets is not a power of two.
    #[error(
        "{size} bytes / ({ways} ways x {line} bytes) is not a power of two: the set is chosen by \
         bits of the address"
    )]
    Sets {
        /// Bytes in the cache.
        size: u64,
        /// Ways.
        ways: u64,
        /// Bytes in a line.
        line: u64,
    },
}

/// A validated cache geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    sets: u64,
    ways: usize,
    line: u64,
}

impl Geometry {
    /// Validates a geometry.
    pub fn new(size: u64, ways: u64, line: u64) -> Result<Self, GeometryError> {
        for (value, name) in [
            (size, "the size"),
            (ways, "the number of ways"),
            (line, "the line"),
        ] {
            if value == 0 {
                return Err(GeometryError::Zero(name));
            }
        }
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return Err(GeometryError::Line(line));
        }
        if ways > 64 {
            return Err(GeometryError::Ways(ways));
        }
        let sets = size / (ways * line);
        if !size.is_multiple_of(ways * line) || !sets.is_power_of_two() {
            return Err(GeometryError::Sets { size, ways, line });
        }
        Ok(Self {
            sets,
            ways: ways as usize,
            line,
        })
    }
    /// Checks that a cache with this geometry distinguishes all lines of a core's 40 bits of
    /// physical address.
    pub const fn for_all_addresses(self) -> Result<Self, GeometryError> {
        let Self { sets, line, .. } = self;
        let fewest = (1 << (40 - TAG_BITS)) / line;
        if sets < fewest {
            Err(GeometryError::FewSets { sets, line, fewest })
        } else {
            Ok(self)
        }
    }
    /// Returns the bytes that the cache holds.
    pub const fn bytes(&self) -> u64 {
        self.sets() * self.ways() as u64 * self.line_bytes()
    }
    /// Returns the number of sets.
    pub const fn sets(&self) -> u64 {
        self.sets
    }
    /// Returns the number of lines in a set.
    pub const fn ways(&self) -> usize {
        self.ways
    }
    /// Returns the number of bytes in a line.
    pub const fn line_bytes(&self) -> u64 {
        self.line
    }
    /// Returns the set to which a line belongs.
    pub const fn set_of(&self, line: Line) -> usize {
        (line.0 & (self.sets - 1)) as usize
    }
    /// Returns the tag of a line, which distinguishes it from the others of its set. It has at most
    /// 30 bits if the geometry is for all addresses.
    pub const fn tag(&self, line: Line) -> u32 {
        (line.0 >> self.sets.trailing_zeros()) as u32
    }
    /// Returns the line with a tag in a set.
    pub const fn line(&self, tag: u32, set: usize) -> Line {
        Line((tag as u64) << self.sets.trailing_zeros() | set as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zcu102_second_level_has_1024_sets() {
        let l2 = Geometry::new(1 << 20, 16, 64).unwrap();
        assert_eq!((l2.sets(), l2.ways(), l2.set_of(Line(1025))), (1024, 16, 1));
    }

    #[test]
    fn all_lines_of_an_address_space_can_be_told_apart() {
        let few = Geometry::new(8 << 10, 16, 64).unwrap();
        assert_eq!(
            few.for_all_addresses(),
            Err(GeometryError::FewSets {
                sets: 8,
                line: 64,
                fewest: 16
            })
        );
        let enough = Geometry::new(16 << 10, 16, 64)
            .unwrap()
            .for_all_addresses()
            .unwrap();
        let last = Line((1 << 34) - 1);
        assert_eq!((enough.tag(last), enough.set_of(last)), ((1 << 30) - 1, 15));
        assert_eq!(enough.line(enough.tag(last), enough.set_of(last)), last);
    }

    #[test]
    fn impossible_geometries_are_refused() {
        assert_eq!(
            Geometry::new(0, 4, 64),
            Err(GeometryError::Zero("the size"))
        );
        assert_eq!(
            Geometry::new(1 << 15, 0, 64),
            Err(GeometryError::Zero("the number of ways"))
        );
        assert_eq!(Geometry::new(1 << 15, 4, 48), Err(GeometryError::Line(48)));
        assert_eq!(
            Geometry::new(1 << 15, 128, 64),
            Err(GeometryError::Ways(128))
        );
        assert_eq!(
            Geometry::new(48 << 10, 4, 64),
            Err(GeometryError::Sets {
                size: 48 << 10,
                ways: 4,
                line: 64
            })
        );
    }
}
