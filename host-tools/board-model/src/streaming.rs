//! Write streaming: the core does not read a line first that it writes as a whole.
//!
//! The Cortex-A53's manual calls it read-allocate mode: after several lines in a row were written
//! as a whole before they arrived, a store that misses does not allocate a line in the L1, and
//! after more of them not in the L2 either. A line that is written in part ends the mode.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::geometry::Line;

/// Numbers of whole lines after which a core streams its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// The first line that is not allocated in the L1; 0 if all are.
    pub l1: u64,
    /// The first line that is not allocated in the L2 either; 0 if all are.
    pub l2: u64,
}

impl Streaming {
    /// All lines are allocated.
    pub const NONE: Self = Self { l1: 0, l2: 0 };
}

/// The destination of a line that was written as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// It is allocated in the L2.
    L2,
    /// It goes to memory, unless the L2 has it.
    Memory,
}

/// The line that a core writes.
#[derive(Clone, Copy, Debug)]
struct Writing {
    line: Line,
    /// When it arrives in the L1, 0 if it was there; `None` if it is not read, as the core
    /// streams.
    arrival: Option<u64>,
}

/// The next step for a line that a core wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing: it is in the L1.
    Allocated,
    /// It was written as a whole, and goes there.
    Whole(Line, Destination),
    /// It was written in part: it must be allocated as any other.
    Part(Line),
}

/// The state of a core's writes.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    how: Streaming,
    writing: Option<Writing>,
    /// Lines in a row that were written as a whole before they arrived.
    whole: u64,
}

impl Writes {
    /// Creates the state of a core that has written nothing.
    pub const fn new(how: Streaming) -> Self {
        Self {
            how,
            writing: None,
            whole: 0,
        }
    }
    /// Returns whether lines can be streamed at all.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.how.l1 > 0
    }
    /// Returns whether the core streams: a store that misses does not allocate a line.
    pub const fn streams(&self) -> bool {
        self.how.l1 > 0 && self.whole + 1 >= self.how.l1
    }

    /// Records that the core begins to write a line. `arrival` is the time at which it arrives: 0
    /// if it is there, `None` if it is not read. The line before must have ended.
    pub const fn begin(&mut self, line: Line, arrival: Option<u64>) {
        self.writing = Some(Writing { line, arrival });
    }

    /// Returns whether the core writes this line past the L1.
    #[inline]
    pub fn is_streaming(&self, line: Line) -> bool {
        matches!(self.writing, Some(Writing { line: written, arrival: None }) if written == line)
    }

    /// Returns whether the core is writing this line.
    pub fn is_writing(&self, line: Line) -> bool {
        self.writing.is_some_and(|writing| writing.line == line)
    }

    /// Ends the line that is being written: `whole` says whether all of its bytes were.
    pub const fn end(&mut self, whole: bool, now: u64) -> Written {
        match self.writing.take() {
            None => Written::Allocated,
            Some(Writing {
                line,
                arrival: None,
            }) if whole => {
                self.whole += 1;
                let past = self.how.l2 > 0 && self.whole >= self.how.l2;
                Written::Whole(
                    line,
                    if past {
                        Destination::Memory
                    } else {
                        Destination::L2
                    },
                )
            }
            Some(Writing {
                line,
                arrival: None,
            }) => {
                self.whole = 0;
                Written::Part(line)
            }
            Some(Writing {
                arrival: Some(arrival),
                ..
            }) => {
                // A line that was there before it was written says nothing.
                if whole && now < arrival {
                    self.whole += 1;
                } else if arrival > 0 {
                    self.whole = 0;
                }
                Written::Allocated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes lines from the first on, whole or in part, each of which takes `fill` cycles to
    /// arrive and `write` to write.
    fn run(lines: &[bool], fill: u64, write: u64) -> Vec<Written> {
        let mut writes = Writes::new(Streaming { l1: 4, l2: 6 });
        let line = |(at, whole): (usize, &bool)| {
            let (line, now) = (Line(at as u64), 1000 * (at as u64 + 1));
            writes.begin(line, (!writes.streams()).then_some(now + fill));
            writes.end(*whole, now + write)
        };
        lines.iter().enumerate().map(line).collect()
    }

    #[test]
    fn the_fourth_whole_line_is_not_allocated_in_the_l1_and_the_sixth_nowhere() {
        let to = |line, destination| Written::Whole(Line(line), destination);
        let all = run(&[true; 7], 100, 4);
        assert_eq!(all[..3], [Written::Allocated; 3]);
        assert_eq!(all[3..5], [to(3, Destination::L2), to(4, Destination::L2)]);
        assert_eq!(
            all[5..],
            [to(5, Destination::Memory), to(6, Destination::Memory)]
        );
    }

    #[test]
    fn a_line_that_arrives_before_it_is_written_is_allocated() {
        assert_eq!(run(&[true; 9], 100, 336), [Written::Allocated; 9]);
    }

    #[test]
    fn a_line_that_is_written_in_part_ends_it() {
        let all = run(&[true, true, true, true, false, true], 100, 4);
        assert_eq!(all[4..], [Written::Part(Line(4)), Written::Allocated]);
        assert_eq!(
            run(&[true, true, false, true, true, true], 100, 4),
            [Written::Allocated; 6]
        );
    }
}
