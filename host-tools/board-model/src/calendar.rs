//! A resource that serves one request at a time, in whatever order the requests are made.
//!
//! Cores run one after the other for a quantum each, so accesses do not arrive in order of time. A
//! server that is "busy until" a time would make a core that runs later wait for one that is ahead
//! of it. A calendar gives an access the first gap after its own time.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Slots in a word of a calendar.
const WORD: u64 = 64;

/// A resource that serves one at a time, in slots of equal length. Its times have any unit.
#[derive(Clone, Debug)]
pub struct Calendar {
    slot: u64,
    /// log2 of the slot's length, if that is a power of two, as most are: no division.
    shift: Option<u32>,
    /// Number of the word, plus one, and its slots: set if taken.
    words: Vec<(u64, u64)>,
}

impl Calendar {
    /// Creates a calendar without entries. It remembers at least this many words of 64 slots: the
    /// times of two accesses must not be further apart. A slot of 0 is taken for 1.
    pub fn new(slot: u64, words: usize) -> Self {
        let slot = slot.max(1);
        let shift = slot.is_power_of_two().then(|| slot.trailing_zeros());
        Self {
            slot,
            shift,
            words: vec![(0, 0); words.next_power_of_two()],
        }
    }
    /// Returns the length of a slot.
    pub const fn slot(&self) -> u64 {
        self.slot
    }
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.words.fill((0, 0));
    }
    /// Takes the first free slot that ends after `time`. Returns when it begins, or `time` if it
    /// has begun.
    #[inline]
    pub fn take(&mut self, time: u64) -> u64 {
        self.find(time, true)
    }
    /// Returns when the first free slot begins that ends after `time`, or `time` if it has begun.
    #[inline]
    pub fn first_free(&mut self, time: u64) -> u64 {
        self.find(time, false)
    }
    /// Takes all free slots that begin in a range of time, but of no more slots than half of the
    /// words hold.
    pub fn fill(&mut self, times: std::ops::Range<u64>) {
        let most = self.words.len() as u64;
        let (first, end) = (
            times.start.div_ceil(self.slot),
            times.end.div_ceil(self.slot),
        );
        let end = end.min(first + most / 2 * WORD);
        let mut slot = first;
        while slot < end {
            let number = slot / WORD;
            let next = ((number + 1) * WORD).min(end);
            let (known, taken) = &mut self.words[(number & (most - 1)) as usize];
            if *known <= number {
                (*known, *taken) = (number + 1, 0);
            }
            if *known == number + 1 {
                *taken |= (u64::MAX >> (WORD - (next - slot))) << (slot % WORD);
            }
            slot = next;
        }
    }
    #[inline]
    fn find(&mut self, time: u64, take: bool) -> u64 {
        let first = self
            .shift
            .map_or_else(|| time / self.slot, |shift| time >> shift);
        let mut mask = u64::MAX << (first % WORD);
        let word = first / WORD;
        let most = self.words.len() as u64;
        // Beyond half of what is remembered, a word could belong to two times; the excess is then
        // free.
        for number in word..word + most / 2 {
            let (known, taken) = &mut self.words[(number & (most - 1)) as usize];
            if *known <= number {
                (*known, *taken) = (number + 1, 0);
            }
            let free = !*taken & mask;
            if *known == number + 1 && free != 0 {
                let at = free.trailing_zeros();
                if take {
                    *taken |= 1 << at;
                }
                return ((number * WORD + u64::from(at)) * self.slot).max(time);
            }
            mask = u64::MAX;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_serves_one_and_the_next_gap_is_found_in_any_order() {
        let mut calendar = Calendar::new(4, 64);
        assert_eq!([0, 0, 1].map(|time| calendar.take(time)), [0, 4, 8]);
        assert_eq!(calendar.take(100), 100, "one that is ahead");
        assert_eq!(calendar.first_free(2), 12, "does not delay one before it");
        assert_eq!([2, 2].map(|time| calendar.take(time)), [12, 16]);
        assert_eq!(calendar.take(102), 104);
        calendar.clear();
        assert_eq!(calendar.take(1), 1);
    }

    #[test]
    fn a_range_is_filled_at_once() {
        let mut calendar = Calendar::new(2, 16);
        calendar.fill(10..500);
        assert_eq!(
            [8, 10, 300].map(|time| calendar.first_free(time)),
            [8, 500, 500]
        );
        calendar.fill(1000..1 << 40);
        assert_eq!(calendar.first_free(1000), 1000, "more than is remembered");
        assert_eq!(calendar.first_free(400), 500);
    }
}
