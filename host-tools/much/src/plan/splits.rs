//! The ways to split events over sub-experiments that share nothing but an anchor (section 4.1).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use std::collections::BTreeMap;

/// The splits of some events into a number of parts of limited size. Which part comes first makes no
/// difference, so that each is there once; a part may be empty.
#[derive(Debug)]
pub struct Splits {
    events: usize,
    parts: usize,
    most: usize,
    /// Number of ways to place so many remaining events, by the sizes of the parts so far.
    known: BTreeMap<(usize, Vec<usize>), u128>,
}

impl Splits {
    /// Returns the splits of `events` into at most `parts` parts of at most `most` events each.
    pub fn new(events: usize, parts: usize, most: usize) -> Self {
        Self {
            events,
            parts,
            most,
            known: BTreeMap::new(),
        }
    }

    /// Returns the number of all splits; the greatest number if there are more.
    pub fn count(&mut self) -> u128 {
        self.ways(self.events, &[])
    }

    fn ways(&mut self, left: usize, sizes: &[usize]) -> u128 {
        if left == 0 {
            return 1;
        }
        let mut sorted = sizes.to_vec();
        sorted.sort_unstable();
        if let Some(&known) = self.known.get(&(left, sorted.clone())) {
            return known;
        }
        let mut all = 0_u128;
        for part in 0..=sizes.len() {
            if let Some(next) = self.placed(sizes, part) {
                all = all.saturating_add(self.ways(left - 1, &next));
            }
        }
        self.known.insert((left, sorted), all);
        all
    }

    /// Returns the sizes after an event is placed in a part, or in a new one; nothing if it has no
    /// room there.
    fn placed(&self, sizes: &[usize], part: usize) -> Option<Vec<usize>> {
        let mut next = sizes.to_vec();
        match next.get_mut(part) {
            Some(size) if *size < self.most => *size += 1,
            None if part < self.parts && self.most > 0 => next.push(1),
            _ => return None,
        }
        Some(next)
    }

    /// Returns the split of this rank, from 0; nothing if there are not so many.
    pub fn of_rank(&mut self, mut rank: u128) -> Option<Blocks> {
        let (mut sizes, mut blocks) = (vec![], Blocks::new());
        for event in 0..self.events {
            let left = self.events - event - 1;
            let mut found = None;
            for part in 0..=sizes.len() {
                let Some(next) = self.placed(&sizes, part) else {
                    continue;
                };
                let ways = self.ways(left, &next);
                if rank < ways {
                    found = Some((part, next));
                    break;
                }
                rank -= ways;
            }
            let (part, next) = found?;
            if part == blocks.len() {
                blocks.push(vec![]);
            }
            blocks[part].push(event);
            sizes = next;
        }
        (rank == 0).then_some(blocks)
    }

    /// Returns all splits, or as many of them as this limit, at equal distances of their ranks.
    pub fn some(&mut self, limit: usize) -> Vec<Blocks> {
        let all = self.count();
        let chosen = usize::try_from(all).unwrap_or(usize::MAX).min(limit);
        let ranks = (0..chosen as u128).map(|at| {
            // The rest of the division goes to the last ones, and nothing overflows.
            let step = all / chosen as u128;
            at * step + at * (all % chosen as u128) / chosen as u128
        });
        let ranks: Vec<u128> = ranks.collect();
        let splits = ranks.into_iter().filter_map(|rank| self.of_rank(rank));
        splits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_split_is_there_once() {
        for (events, parts, most) in [(1, 1, 1), (4, 2, 3), (7, 3, 5), (8, 3, 5), (6, 3, 2)] {
            let mut splits = Splits::new(events, parts, most);
            let count = splits.count();
            let all = splits.some(usize::MAX);
            assert_eq!(all.len() as u128, count, "{events} {parts} {most}");
            let mut seen = BTreeSet::new();
            for blocks in &all {
                assert!(blocks.len() <= parts && blocks.iter().all(|part| part.len() <= most));
                let mut events_in: Vec<usize> = blocks.concat();
                events_in.sort_unstable();
                assert_eq!(events_in, (0..events).collect::<Vec<_>>());
                assert!(seen.insert(blocks.clone()), "twice: {blocks:?}");
            }
            assert_eq!(splits.of_rank(count), None);
        }
        // Of 7 events: 56 splits into two parts of at most 5, and 301 into three.
        assert_eq!(Splits::new(7, 3, 5).count(), 357);
        // 13 events fill three parts of 5 nearly: 5, 5 and 3, or 5, 4 and 4.
        assert_eq!(Splits::new(13, 3, 5).count(), 36_036 + 45_045);
        assert_eq!(Splits::new(4, 1, 3).count(), 0, "there is no room for all");
        assert!(Splits::new(4, 1, 3).some(10).is_empty());
    }

    #[test]
    fn of_many_splits_some_are_chosen() {
        let mut splits = Splits::new(13, 3, 5);
        let some = splits.some(100);
        let distinct: BTreeSet<_> = some.iter().collect();
        assert_eq!((some.len(), distinct.len()), (100, 100));
        assert_eq!(splits.of_rank(0).as_ref(), some.first());
    }
}
