//! Prefetchers: streams of lines at equal distances that a core reaches or misses. Their next lines
//! are fetched ahead.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::geometry::Line;
use crate::search::places_of;

/// Most streams of a core.
pub const MOST_STREAMS: usize = 4;
/// Maximum number of a prefetcher's lines in flight.
pub const MOST_LINES: usize = 16;

/// The data prefetcher of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPrefetch {
    /// Maximum number of lines in flight, and the distance to which a stream gets ahead; 0: no
    /// prefetching.
    pub lines: usize,
    /// Streams that are followed at a time.
    pub streams: usize,
    /// Equal distances between misses that start a stream.
    pub strides: u64,
    /// Largest distance, in lines.
    pub reach: u64,
}

impl DataPrefetch {
    /// Nothing is prefetched.
    pub const NONE: Self = Self {
        lines: 0,
        streams: 1,
        strides: 1,
        reach: 1,
    };
}

/// Misses that may be of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    last: u64,
    stride: i64,
    /// How often the distance was the same.
    equal: u64,
    used: u64,
}

/// A stream that is fetched ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The line that the core will reach next.
    next: u64,
    /// How many lines from there on were fetched.
    ahead: u64,
    stride: i64,
    used: u64,
}

/// The streams of one core. Lines are of physical addresses, so a stream ends with its page.
#[derive(Clone, Copy, Debug)]
pub struct Prefetcher {
    how: DataPrefetch,
    /// log2 of the lines in a page.
    page_shift: u32,
    candidates: [Candidate; MOST_STREAMS],
    streams: [Stream; MOST_STREAMS],
    /// When each line on the way arrives, in order of time.
    arrivals: [u64; MOST_LINES],
    uses: u64,
}

impl Prefetcher {
    /// Creates a prefetcher without streams. A page has 2 to the `page_shift` lines.
    pub fn new(how: DataPrefetch, page_shift: u32) -> Self {
        Self {
            how,
            page_shift,
            candidates: [Candidate::default(); MOST_STREAMS],
            streams: [Stream::default(); MOST_STREAMS],
            arrivals: [0; MOST_LINES],
            uses: 0,
        }
    }

    /// Returns whether it prefetches at all.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.how.lines > 0
    }

    /// Forgets all streams.
    pub fn clear(&mut self) {
        *self = Self::new(self.how, self.page_shift);
    }

    /// Records that the core reaches a line. Returns the stream that expected it.
    #[inline]
    pub fn reach(&mut self, line: Line) -> Option<usize> {
        let expects = |stream: &Stream| stream.next == line.0 && stream.stride != 0;
        let number = self.streams[..self.how.streams].iter().position(expects)?;
        self.uses += 1;
        let stream = &mut self.streams[number];
        stream.next = stream.next.wrapping_add_signed(stream.stride);
        stream.ahead = stream.ahead.saturating_sub(1);
        stream.used = self.uses;
        if stream.next >> self.page_shift != line.0 >> self.page_shift {
            stream.stride = 0;
        }
        Some(number)
    }

    /// Records that the core misses a line that no stream expected. Returns the stream that this
    /// starts.
    pub fn miss(&mut self, line: Line) -> Option<usize> {
        self.uses += 1;
        let (uses, reach) = (self.uses, self.how.reach);
        let candidates = &mut self.candidates[..self.how.streams];
        let distance = |candidate: &Candidate| line.0.wrapping_sub(candidate.last) as i64;
        let near = |candidate: &Candidate| {
            candidate.used != 0 && (1..=reach).contains(&distance(candidate).unsigned_abs())
        };
        let known = candidates
            .iter()
            .position(|candidate| near(candidate) && distance(candidate) == candidate.stride);
        let Some(number) = known.or_else(|| candidates.iter().position(near)) else {
            let oldest = candidates
                .iter_mut()
                .min_by_key(|candidate| candidate.used)?;
            *oldest = Candidate {
                last: line.0,
                used: uses,
                ..Candidate::default()
            };
            return None;
        };
        let candidate = &mut candidates[number];
        let stride = distance(candidate);
        candidate.equal = if stride == candidate.stride {
            candidate.equal + 1
        } else {
            1
        };
        (candidate.stride, candidate.last, candidate.used) = (stride, line.0, uses);
        if candidate.equal < self.how.strides {
            return None;
        }
        *candidate = Candidate::default();
        let streams = self.streams[..self.how.streams].iter().enumerate();
        let (number, _) = streams.min_by_key(|(_, stream)| stream.used)?;
        self.streams[number] = Stream {
            next: line.0.wrapping_add_signed(stride),
            ahead: 0,
            stride,
            used: uses,
        };
        Some(number)
    }

    /// Returns the next line of a stream, if one of its lines may be in flight at `now`. The caller
    /// reports when it arrives.
    pub fn fetch(&mut self, stream: usize, now: u64) -> Option<Line> {
        let Self {
            how,
            page_shift,
            streams,
            arrivals,
            ..
        } = self;
        let stream = &mut streams[stream];
        if stream.stride == 0 || stream.ahead >= how.lines as u64 || arrivals[0] > now {
            return None;
        }
        let line = stream
            .next
            .wrapping_add_signed(stream.stride * stream.ahead as i64);
        let last = stream.next.wrapping_add_signed(-stream.stride);
        if line >> *page_shift != last >> *page_shift {
            return None;
        }
        stream.ahead += 1;
        Some(Line(line))
    }

    /// Records the arrival of a line that [`Prefetcher::fetch`] returned.
    pub fn arrives(&mut self, arrival: u64) {
        // It takes the place of the first one, behind those that arrive before it.
        let mut at = 0;
        while at + 1 < self.how.lines && self.arrivals[at + 1] < arrival {
            self.arrivals[at] = self.arrivals[at + 1];
            at += 1;
        }
        self.arrivals[at] = arrival;
    }
}

/// Lines in flight to the L1 of a core.
#[derive(Clone, Copy, Debug)]
pub struct Flights {
    /// The lower halves of the lines' numbers, which are compared first.
    tags: [u32; Self::MOST],
    lines: [(u64, u64); Self::MOST],
    next: usize,
    /// When the last one arrives.
    last: u64,
}

impl Flights {
    /// Lines that are remembered.
    const MOST: usize = 24;
    /// No line is in flight.
    pub const NONE: Self = Self {
        tags: [u32::MAX; Self::MOST],
        lines: [(u64::MAX, 0); Self::MOST],
        next: 0,
        last: 0,
    };

    /// Adds a line.
    pub fn add(&mut self, line: Line, arrival: u64) {
        self.tags[self.next] = line.0 as u32;
        self.lines[self.next] = (line.0, arrival);
        self.next = (self.next + 1) % Self::MOST;
        self.last = self.last.max(arrival);
    }

    /// Returns the cycles until a line arrives: 0 if it is not in flight.
    #[inline]
    pub fn wait(&self, line: Line, now: u64) -> u64 {
        if now >= self.last {
            return 0;
        }
        let (mut places, mut arrival) = (places_of(&self.tags, line.0 as u32, 0), 0);
        while places != 0 {
            let (known, arrives) = self.lines[places.trailing_zeros() as usize];
            places &= places - 1;
            if known == line.0 {
                arrival = arrives.max(arrival);
            }
        }
        arrival.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: DataPrefetch = DataPrefetch {
        lines: 5,
        streams: 2,
        strides: 2,
        reach: 4,
    };

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(HOW, 6)
    }
    /// Lets the core miss or reach a line. Returns what is fetched, each line taking 100 cycles.
    fn touch(prefetcher: &mut Prefetcher, line: u64, now: u64) -> Vec<u64> {
        let Some(stream) = prefetcher
            .reach(Line(line))
            .or_else(|| prefetcher.miss(Line(line)))
        else {
            return vec![];
        };
        let mut fetched = vec![];
        while let Some(line) = prefetcher.fetch(stream, now) {
            prefetcher.arrives(now + 100);
            fetched.push(line.0);
        }
        fetched
    }

    #[test]
    fn two_equal_distances_start_a_stream_which_stays_five_lines_ahead() {
        for (start, stride) in [(0u64, 1i64), (8, 4), (63, -1), (60, -3)] {
            let mut prefetcher = prefetcher();
            let line = |at: i64| start.wrapping_add_signed(at * stride);
            assert!(
                touch(&mut prefetcher, line(0), 0).is_empty()
                    && touch(&mut prefetcher, line(1), 0).is_empty()
            );
            assert_eq!(
                touch(&mut prefetcher, line(2), 0),
                (3..8).map(line).collect::<Vec<_>>()
            );
            assert_eq!(touch(&mut prefetcher, line(3), 200), [line(8)]);
        }
    }

    #[test]
    fn other_distances_start_none() {
        for lines in [[0, 5, 10, 15], [0, 1, 3, 4], [9, 9, 9, 9]] {
            let mut prefetcher = prefetcher();
            let fetched: Vec<u64> = lines
                .iter()
                .flat_map(|line| touch(&mut prefetcher, *line, 0))
                .collect();
            assert!(fetched.is_empty(), "{lines:?}: {fetched:?}");
        }
    }

    #[test]
    fn two_streams_do_not_disturb_each_other_and_share_the_lines_on_the_way() {
        let mut prefetcher = prefetcher();
        let fetched: Vec<Vec<u64>> = [0, 1000, 1, 1001, 2, 1002]
            .map(|line| touch(&mut prefetcher, line, 0))
            .into();
        assert_eq!(fetched[4], [3, 4, 5, 6, 7]);
        assert!(fetched[5].is_empty(), "five lines are on the way");
        assert_eq!(
            touch(&mut prefetcher, 1003, 100),
            [1004, 1005, 1006, 1007, 1008],
            "then they have arrived"
        );
    }

    #[test]
    fn a_stream_ends_with_its_page() {
        let mut prefetcher = prefetcher();
        let fetched: Vec<Vec<u64>> = [58, 59, 60, 61]
            .map(|line| touch(&mut prefetcher, line, 1000))
            .into();
        assert_eq!(fetched[2..], [vec![61, 62, 63], vec![]]);
        let fetched: Vec<Vec<u64>> = [62, 63, 64, 65, 66]
            .map(|line| touch(&mut prefetcher, line, 2000))
            .into();
        assert!(fetched[..4].iter().all(Vec::is_empty), "{fetched:?}");
    }

    #[test]
    fn a_line_on_the_way_is_waited_for_until_it_is_there() {
        let mut flights = Flights::NONE;
        flights.add(Line(7), 100);
        assert_eq!(
            [
                flights.wait(Line(7), 30),
                flights.wait(Line(8), 30),
                flights.wait(Line(7), 100)
            ],
            [70, 0, 0]
        );
    }
}
