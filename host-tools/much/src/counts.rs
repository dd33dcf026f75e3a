//! A column of counts in as few bytes as possible: four for each where all fit, as nearly always.
//! Very long columns are in a temporary file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::store::Store;
use std::sync::Arc;

/// Counts of events: whole numbers, or any other numbers.
#[derive(Clone, Debug)]
pub enum Counts {
    /// Whole numbers; the two largest stand for NaN and for −1, which [`crate::data::Builder`]
    /// uses.
    Narrow(Vec<u32>),
    /// Any numbers.
    Wide(Vec<f64>),
    /// Whole numbers, most of them in a file.
    Stored(Stored),
}

/// Whole numbers of which all but the last few are in a file, in pieces.
#[derive(Clone, Debug)]
pub struct Stored {
    store: Arc<Store>,
    /// Where each piece is.
    pieces: Vec<u64>,
    rest: Vec<u32>,
}

/// Numbers in a piece: 16 KiB.
pub(crate) const PIECE: usize = 4096;

/// The numbers that stand for NaN, and for −1.
const NAN: u32 = u32::MAX;
const MINUS_ONE: u32 = u32::MAX - 1;

fn narrow(value: f64) -> Option<u32> {
    // Any number that is none, or too large, comes back as another one.
    let whole = value as u32;
    if f64::from(whole).to_bits() == value.to_bits() && whole < MINUS_ONE {
        return Some(whole);
    }
    if value.is_nan() {
        return Some(NAN);
    }
    (value == -1.0).then_some(MINUS_ONE)
}

fn widen(value: u32) -> f64 {
    match value {
        NAN => f64::NAN,
        MINUS_ONE => -1.0,
        whole => f64::from(whole),
    }
}

/// Sorts by a key, stable. It sorts digit by digit, since counts are many and have few digits.
pub(crate) fn sort_by_digits<T: Copy + Default>(items: &mut Vec<T>, key: impl Fn(T) -> u32) {
    const BITS: u32 = 11;
    const FEW: usize = 256;
    if items.len() < FEW {
        items.sort_by_key(|&item| key(item));
        return;
    }
    let most = items.iter().map(|&item| key(item)).max().unwrap_or(0);
    let mut to = vec![T::default(); items.len()];
    let mut shift = 0;
    while shift < u32::BITS && most >> shift > 0 {
        let digit = |item: T| (key(item) >> shift) as usize & ((1 << BITS) - 1);
        let mut places = [0_usize; 1 << BITS];
        items.iter().for_each(|&item| places[digit(item)] += 1);
        let mut before = 0;
        for place in &mut places {
            (*place, before) = (before, before + *place);
        }
        for &item in items.iter() {
            let place = &mut places[digit(item)];
            to[*place] = item;
            *place += 1;
        }
        std::mem::swap(items, &mut to);
        shift += BITS;
    }
}

/// Numbers in ascending order, each in the upper half of a key with its place in the lower one.
fn keys(values: &[u32]) -> Vec<u64> {
    let key = |(at, &value): (usize, &u32)| u64::from(value) << 32 | at as u64;
    let mut keys: Vec<u64> = values.iter().enumerate().map(key).collect();
    sort_by_digits(&mut keys, |key| (key >> 32) as u32);
    keys
}

/// Twice the ranks of `count` items, of which groups of equal ones ascend.
fn ranks_of<'a, T: 'a>(
    groups: impl Iterator<Item = &'a [T]>,
    count: usize,
    place: impl Fn(&T) -> u32,
) -> Vec<u32> {
    let mut ranks = vec![0; count];
    let mut before = 0;
    for same in groups {
        let rank = 2 * before + same.len() as u32 + 1;
        same.iter()
            .for_each(|item| ranks[place(item) as usize] = rank);
        before += same.len() as u32;
    }
    ranks
}

impl Default for Counts {
    fn default() -> Self {
        Self::Narrow(vec![])
    }
}

impl Stored {
    fn len(&self) -> usize {
        self.pieces.len() * PIECE + self.rest.len()
    }
    /// A piece, or what is after the last one.
    fn piece(&self, number: usize) -> Vec<u32> {
        let Some(&at) = self.pieces.get(number) else {
            return self.rest.clone();
        };
        let mut values = vec![];
        self.store.read(at, PIECE, &mut values);
        values
    }
    fn get(&self, at: usize) -> u32 {
        let Some(piece) = self.pieces.get(at / PIECE) else {
            return self.rest[at - self.pieces.len() * PIECE];
        };
        let mut value = vec![];
        self.store.read(
            piece + (at % PIECE * size_of::<u32>()) as u64,
            1,
            &mut value,
        );
        value[0]
    }
    fn set(&mut self, at: usize, value: u32) -> std::io::Result<()> {
        match self.pieces.get(at / PIECE) {
            Some(&piece) => self.store.set(piece, at % PIECE, value),
            None => {
                self.rest[at - self.pieces.len() * PIECE] = value;
                Ok(())
            }
        }
    }
    fn to_vec(&self) -> Vec<u32> {
        let mut values = Vec::with_capacity(self.len());
        self.pieces
            .iter()
            .for_each(|&at| self.store.read(at, PIECE, &mut values));
        values.extend_from_slice(&self.rest);
        values
    }
    /// Puts whole pieces into the file. Those that it does not take, as on a full disk, stay in
    /// memory.
    fn keep(&mut self) {
        let mut kept = 0;
        for piece in self.rest.chunks_exact(PIECE) {
            let Ok(at) = self.store.append(piece) else {
                break;
            };
            self.pieces.push(at);
            kept += PIECE;
        }
        self.rest = self.rest.split_off(kept);
    }
}

/// All numbers of a column, or a range of them.
#[derive(Debug)]
pub struct Iter<'a> {
    counts: &'a Counts,
    at: usize,
    end: usize,
    /// Of numbers in a file, the piece that is read, from `piece_at` on.
    piece: Vec<u32>,
    piece_at: usize,
}

impl Iterator for Iter<'_> {
    type Item = f64;
    fn next(&mut self) -> Option<f64> {
        if self.at == self.end {
            return None;
        }
        let at = self.at;
        self.at += 1;
        Some(match self.counts {
            Counts::Narrow(values) => widen(values[at]),
            Counts::Wide(values) => values[at],
            Counts::Stored(stored) => {
                if self.piece.is_empty() || at >= self.piece_at + self.piece.len() {
                    self.piece_at = at / PIECE * PIECE;
                    self.piece = stored.piece(at / PIECE);
                }
                widen(self.piece[at - self.piece_at])
            }
        })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.at, Some(self.end - self.at))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Counts {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
            Self::Stored(stored) => stored.len(),
        }
    }
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns one of them. For numbers in a file, iteration over all is much faster.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn get(&self, at: usize) -> f64 {
        match self {
            Self::Narrow(values) => widen(values[at]),
            Self::Wide(values) => values[at],
            Self::Stored(stored) => widen(stored.get(at)),
        }
    }
    /// Returns all of them in their order.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0, self.len())
    }
    /// Returns `count` of them from the place `from` on.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn range(&self, from: usize, count: usize) -> Iter<'_> {
        assert!(
            from + count <= self.len(),
            "{count} from {from} on of {}",
            self.len()
        );
        Iter {
            counts: self,
            at: from,
            end: from + count,
            piece: vec![],
            piece_at: 0,
        }
    }
    /// Returns them as doubles.
    pub fn to_vec(&self) -> Vec<f64> {
        match self {
            Self::Narrow(values) => values.iter().map(|&value| widen(value)).collect(),
            Self::Wide(values) => values.clone(),
            Self::Stored(_) => self.iter().collect(),
        }
    }
    /// Returns the file that contains them, if there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        if let Self::Stored(stored) = self {
            Some(&stored.store)
        } else {
            None
        }
    }
    /// Puts whole numbers into a file, if there is one; others stay in memory.
    #[must_use]
    pub(crate) fn stored(mut self, store: Option<&Arc<Store>>) -> Self {
        if let Some(store) = store {
            self.keep(store);
        }
        self
    }
    /// Returns how many of them are in memory and may be moved to a file.
    pub(crate) fn in_memory(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(_) => 0,
            Self::Stored(stored) => stored.rest.len(),
        }
    }
    /// Moves whole numbers to a file, as many as make whole pieces.
    pub(crate) fn keep(&mut self, store: &Arc<Store>) {
        if self.in_memory() < PIECE {
            return;
        }
        if let Self::Narrow(values) = self {
            let (store, rest) = (Arc::clone(store), std::mem::take(values));
            *self = Self::Stored(Stored {
                store,
                pieces: vec![],
                rest,
            });
        }
        if let Self::Stored(stored) = self {
            stored.keep();
        }
    }
    /// The same in memory.
    fn loaded(&self) -> std::borrow::Cow<'_, Self> {
        match self {
            Self::Stored(stored) => std::borrow::Cow::Owned(Self::Narrow(stored.to_vec())),
            _ => std::borrow::Cow::Borrowed(self),
        }
    }
    /// Returns those at some places.
    pub(crate) fn chosen(&self, places: &[usize]) -> Self {
        let loaded = self.loaded();
        places.iter().map(|&place| loaded.get(place)).collect()
    }
    /// Adds one at the end.
    pub fn push(&mut self, value: f64) {
        match (&mut *self, narrow(value)) {
            (Self::Narrow(values), Some(whole)) => values.push(whole),
            (Self::Stored(stored), Some(whole)) => stored.rest.push(whole),
            (Self::Wide(values), _) => values.push(value),
            (Self::Narrow(_) | Self::Stored(_), None) => {
                self.make_wide();
                self.push(value);
            }
        }
    }
    /// Replaces one.
    pub(crate) fn set(&mut self, at: usize, value: f64) {
        let kept = match (&mut *self, narrow(value)) {
            (Self::Narrow(values), Some(whole)) => {
                values[at] = whole;
                true
            }
            (Self::Wide(values), _) => {
                values[at] = value;
                true
            }
            (Self::Stored(stored), Some(whole)) => stored.set(at, whole).is_ok(),
            (Self::Narrow(_) | Self::Stored(_), None) => false,
        };
        if !kept {
            self.make_wide();
            self.set(at, value);
        }
    }
    /// Makes them longer, with NaN.
    pub(crate) fn lengthen(&mut self, to: usize) {
        match self {
            Self::Narrow(values) => values.resize(to, NAN),
            Self::Wide(values) => values.resize(to, f64::NAN),
            Self::Stored(stored) => stored.rest.resize(to - stored.pieces.len() * PIECE, NAN),
        }
    }
    fn make_wide(&mut self) {
        *self = Self::Wide(self.to_vec());
    }
    /// Adds others at the end.
    pub fn extend_from(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Narrow(values), Self::Narrow(more)) => values.extend_from_slice(more),
            (Self::Narrow(values), Self::Stored(more)) => values.append(&mut more.to_vec()),
            (Self::Wide(values), Self::Wide(more)) => values.extend_from_slice(more),
            _ => other.iter().for_each(|value| self.push(value)),
        }
    }
    /// Gives back memory that was reserved for more of them.
    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Narrow(values) => values.shrink_to_fit(),
            Self::Wide(values) => values.shrink_to_fit(),
            Self::Stored(stored) => stored.rest.shrink_to_fit(),
        }
    }
    /// Sorts them in ascending order.
    pub fn sort(&mut self) {
        match self {
            Self::Narrow(values) => sort_by_digits(values, |value| value),
            Self::Wide(values) => values.sort_unstable_by(f64::total_cmp),
            Self::Stored(_) => {
                *self = self.loaded().into_owned();
                self.sort();
            }
        }
    }
    /// Returns whether they ascend.
    pub fn is_sorted(&self) -> bool {
        self.iter().is_sorted()
    }
    /// Returns their places in ascending order; equal ones keep their order.
    pub fn ascending(&self) -> Vec<u32> {
        match self {
            Self::Narrow(values) => keys(values).into_iter().map(|key| key as u32).collect(),
            Self::Wide(values) => {
                let mut order: Vec<u32> = (0..values.len() as u32).collect();
                order.sort_unstable_by(|&a, &b| {
                    values[a as usize]
                        .total_cmp(&values[b as usize])
                        .then(a.cmp(&b))
                });
                order
            }
            Self::Stored(_) => self.loaded().ascending(),
        }
    }
    /// Returns twice the rank of each, from 1: equal ones share the mean of their ranks, which may
    /// end in one half.
    pub fn doubled_ranks(&self) -> Vec<u32> {
        match self {
            Self::Narrow(values) => {
                let keys = keys(values);
                ranks_of(
                    keys.chunk_by(|a, b| a >> 32 == b >> 32),
                    keys.len(),
                    |&key| key as u32,
                )
            }
            Self::Wide(values) => {
                let order = self.ascending();
                let same = |&a: &u32, &b: &u32| values[a as usize] == values[b as usize];
                ranks_of(order.chunk_by(same), order.len(), |&at| at)
            }
            Self::Stored(_) => self.loaded().doubled_ranks(),
        }
    }
}

impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl FromIterator<f64> for Counts {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let values = values.into_iter();
        let mut counts = Self::Narrow(Vec::with_capacity(values.size_hint().0));
        values.for_each(|value| counts.push(value));
        counts
    }
}

impl From<Vec<f64>> for Counts {
    fn from(values: Vec<f64>) -> Self {
        if values.iter().all(|&value| narrow(value).is_some()) {
            values.into_iter().collect()
        } else {
            Self::Wide(values)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_as_it_was() {
        let all = [
            0.0,
            1.0,
            4_294_967_293.0,
            4_294_967_294.0,
            4_294_967_295.0,
            4_294_967_296.0,
            -1.0,
            0.5,
            -0.0,
            9e15,
        ];
        for value in all {
            for before in [vec![], vec![7.0], vec![0.25]] {
                let mut counts: Counts = before.iter().copied().collect();
                counts.push(value);
                counts.push(f64::NAN);
                let bits = |values: &[f64]| {
                    values
                        .iter()
                        .map(|value| value.to_bits())
                        .collect::<Vec<_>>()
                };
                let expected: Vec<f64> = before.iter().copied().chain([value, f64::NAN]).collect();
                assert_eq!(bits(&counts.to_vec()), bits(&expected));
                counts.set(0, 12.0);
                assert_eq!(counts.get(0), 12.0);
            }
        }
    }

    #[test]
    fn ranks_and_orders_do_not_depend_on_the_form() {
        let values = [5.0, 1.0, 5.0, 0.0, 5.0, 2.0];
        let narrow = Counts::from(values.to_vec());
        let wide = Counts::Wide(values.to_vec());
        assert!(matches!(narrow, Counts::Narrow(_)) && narrow == wide);
        assert_eq!(
            (narrow.ascending(), narrow.doubled_ranks()),
            (wide.ascending(), wide.doubled_ranks())
        );
        assert_eq!(narrow.doubled_ranks(), [10, 4, 10, 2, 10, 6]);
        let (mut one, mut other) = (narrow.clone(), wide);
        one.sort();
        other.sort();
        assert!(one == other && one.is_sorted() && !narrow.is_sorted());
    }

    #[test]
    fn a_file_holds_the_same_counts() {
        let store = Arc::new(Store::new().unwrap());
        let values: Vec<f64> = (0..3 * PIECE as u64 + 7)
            .map(|at| (at * 7919 % 10_007) as f64)
            .collect();
        let plain = Counts::from(values.clone());
        let mut kept = Counts::default();
        for &value in &values {
            kept.push(value);
            kept.keep(&store);
        }
        assert!(
            matches!(&kept, Counts::Stored(stored) if stored.pieces.len() == 3 && stored.rest.len() == 7)
        );
        assert!(kept == plain && kept.to_vec() == values && kept.in_memory() == 7);
        assert_eq!(
            (kept.ascending(), kept.doubled_ranks()),
            (plain.ascending(), plain.doubled_ranks())
        );
        assert_eq!(
            kept.range(PIECE - 2, 5).collect::<Vec<_>>(),
            values[PIECE - 2..PIECE + 3]
        );
        assert_eq!(
            kept.chosen(&[1, 9000, 2]),
            Counts::from(vec![values[1], values[9000], values[2]])
        );
        let mut grouped = Counts::from(vec![1.0]);
        grouped.extend_from(&kept);
        assert!(grouped.len() == values.len() + 1 && grouped.get(1) == values[0]);
        // One that a file holds, one after it, one that does not fit.
        let mut expected = values;
        for (at, value) in [(5, 12.0), (3 * PIECE + 3, f64::NAN), (2 * PIECE, 9e15)] {
            kept.set(at, value);
            expected[at] = value;
            let bits = |values: &[f64]| {
                values
                    .iter()
                    .map(|value| value.to_bits())
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&kept.to_vec()), bits(&expected));
        }
        kept.sort();
        assert!(kept.range(0, 4 * PIECE / 2).is_sorted());
    }

    #[test]
    fn digits_sort_as_comparisons_do() {
        for most in [0, 1, 2047, 2048, 5_000_000, u32::MAX] {
            let value = |at: u32| {
                ((u64::from(at.wrapping_mul(2_654_435_761)) * u64::from(most)) >> 32) as u32
            };
            let mut items: Vec<(u32, u32)> = (0..5000).map(|at| (value(at) / 3, at)).collect();
            let mut expected = items.clone();
            expected.sort();
            sort_by_digits(&mut items, |(value, _)| value);
            assert_eq!(items, expected);
        }
    }
}
