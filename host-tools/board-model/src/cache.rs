//! One set-associative cache: write-back, write-allocate.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::geometry::{Geometry, Line};
use crate::search::places_of;
use serde::Deserialize;
use std::ops::Range;

/// Which line of a full set is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least recently used one.
    Lru,
    /// A random one, from a seeded generator. Each set has its own generator, so other sets have no
    /// influence.
    PseudoRandom,
    /// The ways of a set in turn.
    RoundRobin,
    /// The first way that was not used since all others were.
    NotRecentlyUsed,
    /// A random one of the ways that were not used since all others were.
    RandomNotRecentlyUsed,
    /// The way to which a binary tree of bits leads, each of which points away from the half that
    /// was used last. The ways are a power of two.
    TreePlru,
}

impl Policy {
    /// Returns whether the state of a set is a bit for each of its ways that was used.
    const fn marks_ways(self) -> bool {
        matches!(self, Self::NotRecentlyUsed | Self::RandomNotRecentlyUsed)
    }
}

/// What counts as a use of a line, for policies that keep an order of use: a lookup that hits
/// always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Age {
    /// It does: the line becomes the youngest.
    Youngest,
    /// It does not: the line keeps the age that it has, or that of the line whose place it takes.
    Kept,
}

/// How old lines are that come into a cache, or come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    /// A line that is allocated.
    pub allocated: Age,
    /// A line that the level above gives back, and that is here.
    pub given_back: Age,
}

impl Ages {
    /// What comes is the youngest, and what comes back is as old as it was.
    pub const USUAL: Self = Self {
        allocated: Age::Youngest,
        given_back: Age::Kept,
    };
}

/// A line that was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The evicted line.
    pub line: Line,
    /// Whether it was written while it was in the cache.
    pub dirty: bool,
}

/// Result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The line was in the cache.
    Hit,
    /// The line was not in the cache and has been allocated, possibly evicting another.
    Miss(Option<Evicted>),
}

/// Bit of an entry: the line is dirty. The other bits are the line's number without those that
/// choose the set, plus one, so zero is an empty way.
const DIRTY: u32 = 1;

/// Returns the next number of an xorshift64 generator: the same ones in every run.
#[inline]
const fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 32
}

/// Returns the way of a set that holds a line.
#[inline]
fn way_of(set: &[u32], wanted: u32) -> Option<usize> {
    let ways = places_of(set, wanted, DIRTY);
    (ways != 0).then_some(ways.trailing_zeros() as usize)
}

/// The contents of a cache: the addresses of its lines, not their data.
#[derive(Clone, Debug)]
pub struct Cache {
    geometry: Geometry,
    policy: Policy,
    /// The ways of each set, consecutively. Under LRU they are ordered by last use, most recent
    /// first, with empty ways last.
    entries: Vec<u32>,
    /// For each set the state of its generator, or the way of its last victim, or a bit for each
    /// way that was used or for each node of its tree.
    random: Vec<u64>,
    /// For each set the state of its generator, if `random` has the ways that were used.
    generators: Vec<u64>,
    ages: Ages,
}

/// Whether an access reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes, and makes its line dirty.
    Write,
}

impl Direction {
    /// Returns the direction of an access that `writes`, or does not.
    pub const fn of(writes: bool) -> Self {
        if writes { Self::Write } else { Self::Read }
    }
}

impl Cache {
    /// Creates an empty cache. The seed matters for [`Policy::PseudoRandom`] only. Tags must have
    /// at most 30 bits ([`Geometry::for_all_addresses`]).
    pub fn new(geometry: Geometry, policy: Policy, seed: u64) -> Self {
        let entries = vec![0; geometry.sets() as usize * geometry.ways()];
        // Spreads small seeds; a generator's state must not be zero.
        let spread = |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let generator = |set| spread(spread(seed) ^ set) | 1;
        let start = |set| match policy {
            // The first victim is way 0, which was filled first.
            Policy::RoundRobin => geometry.ways() as u64 - 1,
            Policy::NotRecentlyUsed | Policy::RandomNotRecentlyUsed | Policy::TreePlru => 0,
            Policy::Lru | Policy::PseudoRandom => generator(set),
        };
        let random = (0..geometry.sets()).map(start).collect();
        let generators = match policy {
            Policy::RandomNotRecentlyUsed => (0..geometry.sets()).map(generator).collect(),
            _ => Vec::new(),
        };
        Self {
            geometry,
            policy,
            entries,
            random,
            generators,
            ages: Ages::USUAL,
        }
    }
    /// Changes how old lines are that come.
    pub const fn with_ages(mut self, ages: Ages) -> Self {
        self.ages = ages;
        self
    }
    /// Returns the geometry.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns where the ways of a line's set are.
    #[inline]
    fn ways(&self, line: Line) -> Range<usize> {
        let start = self.geometry.set_of(line) * self.geometry.ways();
        start..start + self.geometry.ways()
    }
    /// Returns the entry of a line that is clean.
    #[inline]
    const fn entry(&self, line: Line) -> u32 {
        (self.geometry.tag(line) + 1) << 1
    }
    /// Returns a line's set, and its entry if it is clean.
    #[inline]
    fn set(&mut self, line: Line) -> (&mut [u32], u32) {
        let (ways, entry) = (self.ways(line), self.entry(line));
        (&mut self.entries[ways], entry)
    }

    /// Returns the line whose entry was in the set of `neighbor`.
    fn evicted(&self, neighbor: Line, entry: u32) -> Option<Evicted> {
        let line = |tag| self.geometry.line(tag, self.geometry.set_of(neighbor));
        (entry != 0).then(|| Evicted {
            line: line((entry >> 1) - 1),
            dirty: entry & DIRTY != 0,
        })
    }

    /// Looks a line up, and allocates it if it is not there.
    #[inline]
    pub fn access(&mut self, line: Line, direction: Direction) -> Outcome {
        let dirty = direction == Direction::Write;
        let (set, wanted) = self.set(line);
        if let Some(way) = way_of(set, wanted) {
            set[way] |= u32::from(dirty);
            self.touch(line, way);
            return Outcome::Hit;
        }
        Outcome::Miss(self.fill(line, dirty))
    }

    /// Accepts a line that the level above evicts.
    #[inline]
    pub fn accept(&mut self, line: Line, dirty: bool) -> Outcome {
        let given_back = self.ages.given_back;
        let (set, wanted) = self.set(line);
        if let Some(way) = way_of(set, wanted) {
            set[way] |= u32::from(dirty);
            if given_back == Age::Youngest {
                self.touch(line, way);
            }
            return Outcome::Hit;
        }
        Outcome::Miss(self.fill(line, dirty))
    }

    /// Looks a line up for the level above, and allocates nothing. Returns whether it is here.
    #[inline]
    pub fn look_up(&mut self, line: Line) -> bool {
        let (set, wanted) = self.set(line);
        let Some(way) = way_of(set, wanted) else {
            return false;
        };
        self.touch(line, way);
        true
    }

    /// Records that a way of a line's set was used.
    #[inline]
    fn touch(&mut self, line: Line, way: usize) {
        match self.policy {
            Policy::Lru if way != 0 => {
                let (set, _) = self.set(line);
                let found = set[way];
                set.copy_within(..way, 1);
                set[0] = found;
            }
            Policy::NotRecentlyUsed | Policy::RandomNotRecentlyUsed => self.mark(line, way),
            Policy::TreePlru => self.point_away(line, way),
            Policy::Lru | Policy::PseudoRandom | Policy::RoundRobin => {}
        }
    }

    /// Records that a way was used. When all were, only this one was recently.
    fn mark(&mut self, line: Line, way: usize) {
        let used = &mut self.random[self.geometry.set_of(line)];
        *used |= 1 << way;
        if used.count_ones() as usize == self.geometry.ways() {
            *used = 1 << way;
        }
    }

    /// Lets each node of a set's tree above a way point to its other half. The root is node 1, and
    /// node n has the nodes 2n and 2n + 1 below it.
    fn point_away(&mut self, line: Line, way: usize) {
        let nodes = &mut self.random[self.geometry.set_of(line)];
        let mut node = self.geometry.ways() + way;
        while node > 1 {
            let parent = node / 2;
            let to_the_second = u64::from(node.is_multiple_of(2)) << parent;
            *nodes = *nodes & !(1 << parent) | to_the_second;
            node = parent;
        }
    }

    /// Returns the way to which a set's tree leads.
    const fn leaf(nodes: u64, ways: usize) -> usize {
        let mut node = 1;
        while node < ways {
            node = 2 * node + (nodes >> node & 1) as usize;
        }
        node - ways
    }

    /// Allocates a line that is not there. Returns the one that it evicts.
    pub fn fill(&mut self, line: Line, dirty: bool) -> Option<Evicted> {
        let (policy, age) = (self.policy, self.ages.allocated);
        let (set, clean) = self.set(line);
        let new = clean | u32::from(dirty);
        if policy == Policy::Lru && age == Age::Youngest {
            let last = set.len() - 1;
            let old = set[last];
            set.copy_within(..last, 1);
            set[0] = new;
            return self.evicted(line, old);
        }
        // Free ways are the last ones.
        if set.last() == Some(&0)
            && let Some(free) = set.iter().position(|entry| *entry == 0)
        {
            set[free] = new;
            if age == Age::Youngest {
                self.touch(line, free);
            }
            return None;
        }
        let way = self.victim(line);
        let old = std::mem::replace(&mut self.set(line).0[way], new);
        if age == Age::Youngest {
            self.touch(line, way);
        }
        self.evicted(line, old)
    }

    /// Returns the way of a line's set, which is full, that is evicted next.
    fn victim(&mut self, line: Line) -> usize {
        let (ways, set) = (self.geometry.ways(), self.geometry.set_of(line));
        let state = &mut self.random[set];
        match self.policy {
            // Lines are in the order of their last use.
            Policy::Lru => ways - 1,
            Policy::TreePlru => Self::leaf(*state, ways),
            // With one way only, its bit is always set.
            Policy::NotRecentlyUsed => state.trailing_ones() as usize % ways,
            Policy::RandomNotRecentlyUsed => {
                let unused = ways as u64 - u64::from(state.count_ones());
                let nth = random(&mut self.generators[set]) % unused.max(1);
                let mut unused = (0..ways).filter(|way| *state >> way & 1 == 0);
                unused.nth(nth as usize).unwrap_or(0)
            }
            Policy::RoundRobin => {
                *state = if *state + 1 >= ways as u64 {
                    0
                } else {
                    *state + 1
                };
                *state as usize
            }
            // Most caches have a power of two of ways: no division.
            Policy::PseudoRandom if ways.is_power_of_two() => random(state) as usize & (ways - 1),
            Policy::PseudoRandom => random(state) as usize % ways,
        }
    }

    /// Returns whether the cache holds a line, and if so, whether it is dirty.
    #[inline]
    pub fn state(&self, line: Line) -> Option<bool> {
        let set = &self.entries[self.ways(line)];
        way_of(set, self.entry(line)).map(|way| set[way] & DIRTY != 0)
    }

    /// Returns whether the cache holds a line.
    pub fn contains(&self, line: Line) -> bool {
        self.state(line).is_some()
    }

    /// Makes a line clean. Returns whether it was dirty.
    pub fn clean(&mut self, line: Line) -> bool {
        let (set, clean) = self.set(line);
        way_of(set, clean).is_some_and(|way| std::mem::replace(&mut set[way], clean) & DIRTY != 0)
    }

    /// Removes a line. Returns it if it was there.
    pub fn invalidate(&mut self, line: Line) -> Option<Evicted> {
        let (set, wanted) = self.set(line);
        let way = way_of(set, wanted)?;
        let old = set[way];
        set.copy_within(way + 1.., way);
        set[set.len() - 1] = 0;
        if self.policy.marks_ways() {
            let used = &mut self.random[self.geometry.set_of(line)];
            let below = (1 << way) - 1;
            *used = *used & below | *used >> 1 & !below;
        }
        self.evicted(line, old)
    }

    /// Removes all lines, dirty or not.
    pub fn clear(&mut self) {
        self.entries.fill(0);
        if self.policy.marks_ways() || self.policy == Policy::TreePlru {
            self.random.fill(0);
        }
    }

    /// Returns the number of lines in the cache.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| **entry != 0).count()
    }
    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICIES: [Policy; 6] = [
        Policy::Lru,
        Policy::PseudoRandom,
        Policy::RoundRobin,
        Policy::NotRecentlyUsed,
        Policy::RandomNotRecentlyUsed,
        Policy::TreePlru,
    ];

    fn small(policy: Policy) -> Cache {
        Cache::new(Geometry::new(1024, 4, 64).unwrap(), policy, 7)
    }

    #[test]
    fn lru_evicts_what_was_used_longest_ago() {
        let mut cache = small(Policy::Lru);
        for line in [0, 4, 8, 12] {
            assert_eq!(
                cache.access(Line(line), Direction::of(line == 4)),
                Outcome::Miss(None)
            );
        }
        assert_eq!(cache.access(Line(0), Direction::Read), Outcome::Hit);
        assert_eq!(
            cache.access(Line(16), Direction::Read),
            Outcome::Miss(Some(Evicted {
                line: Line(4),
                dirty: true
            }))
        );
        assert_eq!(
            cache.invalidate(Line(8)),
            Some(Evicted {
                line: Line(8),
                dirty: false
            })
        );
        assert_eq!(
            cache.access(Line(20), Direction::Write),
            Outcome::Miss(None)
        );
        assert!(cache.clean(Line(20)) && !cache.clean(Line(20)));
    }

    #[test]
    fn a_lookup_is_a_use_and_allocates_nothing() {
        let mut cache = small(Policy::Lru);
        assert!(!cache.look_up(Line(0)) && cache.is_empty());
        for line in [0, 4, 8, 12] {
            cache.accept(Line(line), line == 8);
        }
        assert!(cache.look_up(Line(0)));
        assert_eq!(
            cache.accept(Line(16), false),
            Outcome::Miss(Some(Evicted {
                line: Line(4),
                dirty: false
            }))
        );
        assert_eq!(
            cache.accept(Line(8), false),
            Outcome::Hit,
            "which is no use"
        );
        assert_eq!(
            cache.accept(Line(20), false),
            Outcome::Miss(Some(Evicted {
                line: Line(8),
                dirty: true
            }))
        );
    }

    #[test]
    fn in_turn_means_that_a_new_line_stays_for_a_round() {
        let mut cache = small(Policy::RoundRobin);
        for line in 0..100u64 {
            cache.access(Line(4 * line), Direction::Read);
            assert!(
                (line.saturating_sub(3)..=line).all(|line| cache.contains(Line(4 * line))),
                "{line}"
            );
        }
    }

    #[test]
    fn what_was_used_since_all_others_were_stays() {
        let mut cache = small(Policy::NotRecentlyUsed);
        for line in [0, 4, 8, 12] {
            assert_eq!(
                cache.access(Line(line), Direction::Read),
                Outcome::Miss(None)
            );
        }
        let victim = |line| {
            Some(Evicted {
                line: Line(line),
                dirty: false,
            })
        };
        assert_eq!(
            cache.access(Line(16), Direction::Read),
            Outcome::Miss(victim(0)),
            "12 was used after all others were"
        );
        assert_eq!(cache.access(Line(8), Direction::Read), Outcome::Hit);
        assert_eq!(
            cache.access(Line(20), Direction::Read),
            Outcome::Miss(victim(4))
        );
        assert!(cache.contains(Line(8)) && cache.contains(Line(12)) && cache.contains(Line(16)));
        assert_eq!(cache.invalidate(Line(16)), victim(16));
        assert_eq!(
            cache.access(Line(24), Direction::Read),
            Outcome::Miss(None),
            "its way is free"
        );
        assert_eq!(
            cache.access(Line(28), Direction::Read),
            Outcome::Miss(victim(8)),
            "20 and 24 were used last"
        );
    }

    #[test]
    fn a_tree_spares_what_was_used_last_and_evicts_from_the_other_half() {
        let mut cache = small(Policy::TreePlru);
        for line in [0, 4, 8, 12] {
            cache.access(Line(line), Direction::Read);
        }
        let evicted = |outcome| match outcome {
            Outcome::Miss(Some(Evicted { line, .. })) => line.0,
            other => panic!("{other:?}"),
        };
        // 12 was used last, so the root points to the half of 0 and 4, of which 4 was used last.
        assert_eq!(evicted(cache.access(Line(16), Direction::Read)), 0);
        // Now the other half, of which 12 was used last.
        assert_eq!(evicted(cache.access(Line(20), Direction::Read)), 8);
        assert_eq!(cache.access(Line(4), Direction::Read), Outcome::Hit);
        assert_eq!(
            evicted(cache.access(Line(24), Direction::Read)),
            12,
            "the least recently used one would be 12 too"
        );
        assert_eq!(
            evicted(cache.access(Line(28), Direction::Read)),
            16,
            "and here, before 20"
        );
    }

    #[test]
    fn a_line_whose_age_is_kept_is_the_next_victim() {
        for policy in [Policy::Lru, Policy::TreePlru] {
            let mut cache = small(policy).with_ages(Ages {
                allocated: Age::Kept,
                given_back: Age::Kept,
            });
            for line in [0, 4, 8, 12] {
                cache.access(Line(line), Direction::Read);
                cache.access(Line(line), Direction::Read);
            }
            for line in [16, 20, 24] {
                cache.access(Line(line), Direction::Read);
            }
            assert!(
                [4, 8, 12, 24]
                    .map(Line)
                    .iter()
                    .all(|line| cache.contains(*line)),
                "{policy:?}: 16, 20 and 24 took each other's place"
            );
        }
        let mut cache = small(Policy::Lru).with_ages(Ages {
            given_back: Age::Youngest,
            ..Ages::USUAL
        });
        for line in [0, 4, 8, 12] {
            cache.access(Line(line), Direction::Read);
        }
        cache.accept(Line(0), true);
        cache.access(Line(16), Direction::Read);
        assert!(cache.contains(Line(0)) && !cache.contains(Line(4)));
    }

    #[test]
    fn a_random_one_of_those_not_used_is_none_that_was() {
        let mut cache = small(Policy::RandomNotRecentlyUsed);
        for line in [0, 4, 8, 12] {
            cache.access(Line(line), Direction::Read);
        }
        let mut victims = std::collections::BTreeSet::new();
        for line in 4..200_u64 {
            let before: Vec<u64> = (0..line)
                .filter(|old| cache.contains(Line(old * 4)))
                .collect();
            cache.access(Line(before[1] * 4), Direction::Read);
            cache.access(Line(line * 4), Direction::Read);
            assert!(cache.contains(Line(before[1] * 4)), "it was used just now");
            let victim = before.iter().position(|old| !cache.contains(Line(old * 4)));
            victims.insert(victim.expect("a line is evicted"));
        }
        assert!(victims.len() > 1, "{victims:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_victims() {
        let run = |seed| {
            let mut cache = Cache::new(
                Geometry::new(1024, 4, 64).unwrap(),
                Policy::PseudoRandom,
                seed,
            );
            (0..1000)
                .map(|at| cache.access(Line(at * 7 % 40), Direction::Read))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    proptest! {
        /// Lines of other sets have no effect: a color's victims depend on that color only.
        #[test]
        fn sets_have_no_part_in_each_other(lines in prop::collection::vec(0u64..64, 1..400)) {
            let mut both = small(Policy::PseudoRandom);
            let mut alone = small(Policy::PseudoRandom);
            for line in lines {
                let outcome = both.access(Line(line), Direction::Read);
                if line % 4 == 1 {
                    prop_assert_eq!(outcome, alone.access(Line(line), Direction::Read));
                }
            }
        }

        /// Compares every set with a list in order of use.
        #[test]
        fn lru_is_a_list(steps in prop::collection::vec((0u64..32, any::<bool>(), 0u8..8), 1..400)) {
            let mut cache = small(Policy::Lru);
            let mut lists: Vec<Vec<(u64, bool)>> = vec![Vec::new(); 4];
            for (line, write, kind) in steps {
                let list = &mut lists[(line % 4) as usize];
                let at = list.iter().position(|(found, _)| *found == line);
                if kind == 0 {
                    let expected = at.map(|at| list.remove(at)).map(|(line, dirty)| Evicted { line: Line(line), dirty });
                    prop_assert_eq!(cache.invalidate(Line(line)), expected);
                    continue;
                }
                let expected = if let Some(at) = at {
                    let (_, dirty) = list.remove(at);
                    list.insert(0, (line, dirty || write));
                    Outcome::Hit
                } else {
                    list.insert(0, (line, write));
                    let old = if list.len() > 4 { list.pop() } else { None };
                    Outcome::Miss(old.map(|(line, dirty)| Evicted { line: Line(line), dirty }))
                };
                prop_assert_eq!(cache.access(Line(line), Direction::of(write)), expected);
            }
        }

        /// No policy holds a line twice, loses one silently, or exceeds its ways.
        #[test]
        fn lines_are_kept_or_named(
            policy in prop::sample::select(&POLICIES[..]),
            lines in prop::collection::vec(0u64..64, 1..400),
        ) {
            let mut cache = small(policy);
            let mut there = std::collections::BTreeSet::new();
            for line in lines {
                match cache.access(Line(line), Direction::Read) {
                    Outcome::Hit => prop_assert!(there.contains(&line)),
                    Outcome::Miss(old) => {
                        prop_assert!(there.insert(line));
                        if let Some(old) = old {
                            prop_assert!(there.remove(&old.line.0));
                        }
                    }
                }
                prop_assert_eq!(cache.len(), there.len());
                prop_assert!(there.iter().all(|line| cache.contains(Line(*line))));
            }
        }
    }
}
