//! A column of counts in as few bytes as they need: four for each where all fit, as nearly all do.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Numbers of events, all of which are whole, or any other numbers.
#[derive(Clone, Debug)]
pub enum Counts {
    /// Whole numbers; the two largest stand for NaN and for −1, which [`crate::data::Builder`] uses.
    Narrow(Vec<u32>),
    /// Any numbers.
    Wide(Vec<f64>),
}

/// What stands for NaN, and for −1.
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

impl Default for Counts {
    fn default() -> Self {
        Self::Narrow(vec![])
    }
}

impl Counts {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns one of them.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn get(&self, at: usize) -> f64 {
        match self {
            Self::Narrow(values) => widen(values[at]),
            Self::Wide(values) => values[at],
        }
    }
    /// Returns all of them in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }
    /// Returns them as doubles.
    pub fn to_vec(&self) -> Vec<f64> {
        match self {
            Self::Narrow(values) => values.iter().map(|&value| widen(value)).collect(),
            Self::Wide(values) => values.clone(),
        }
    }
    /// Adds one at the end.
    pub fn push(&mut self, value: f64) {
        match (&mut *self, narrow(value)) {
            (Self::Narrow(values), Some(whole)) => values.push(whole),
            (Self::Wide(values), _) => values.push(value),
            (Self::Narrow(_), None) => {
                self.make_wide();
                self.push(value);
            }
        }
    }
    /// Replaces one.
    pub(crate) fn set(&mut self, at: usize, value: f64) {
        match (&mut *self, narrow(value)) {
            (Self::Narrow(values), Some(whole)) => values[at] = whole,
            (Self::Wide(values), _) => values[at] = value,
            (Self::Narrow(_), None) => {
                self.make_wide();
                self.set(at, value);
            }
        }
    }
    /// Makes them longer, with NaN.
    pub(crate) fn lengthen(&mut self, to: usize) {
        match self {
            Self::Narrow(values) => values.resize(to, NAN),
            Self::Wide(values) => values.resize(to, f64::NAN),
        }
    }
    fn make_wide(&mut self) {
        *self = Self::Wide(self.to_vec());
    }
    /// Adds others at the end.
    pub fn extend_from(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Narrow(values), Self::Narrow(more)) => values.extend_from_slice(more),
            (Self::Wide(values), Self::Wide(more)) => values.extend_from_slice(more),
            _ => other.iter().for_each(|value| self.push(value)),
        }
    }
    /// Gives back memory that was reserved for more of them.
    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Narrow(values) => values.shrink_to_fit(),
            Self::Wide(values) => values.shrink_to_fit(),
        }
    }
    /// Sorts them in ascending order.
    pub fn sort(&mut self) {
        match self {
            Self::Narrow(values) => values.sort_unstable(),
            Self::Wide(values) => values.sort_unstable_by(f64::total_cmp),
        }
    }
    /// Returns whether they ascend.
    pub fn is_sorted(&self) -> bool {
        self.iter().is_sorted()
    }
    /// Returns their places in ascending order; equal ones keep their order.
    pub fn ascending(&self) -> Vec<u32> {
        match self {
            Self::Narrow(values) => {
                let key = |(at, &value): (usize, &u32)| u64::from(value) << 32 | at as u64;
                let mut keys: Vec<u64> = values.iter().enumerate().map(key).collect();
                keys.sort_unstable();
                keys.into_iter().map(|key| key as u32).collect()
            }
            Self::Wide(values) => {
                let mut order: Vec<u32> = (0..values.len() as u32).collect();
                order.sort_unstable_by(|&a, &b| values[a as usize].total_cmp(&values[b as usize]).then(a.cmp(&b)));
                order
            }
        }
    }
    /// Returns twice the rank of each, from 1: equal ones share the mean of their ranks, which may end in one half.
    pub fn doubled_ranks(&self) -> Vec<u32> {
        let order = self.ascending();
        let mut ranks = vec![0; order.len()];
        let mut before = 0;
        for same in order.chunk_by(|&a, &b| self.get(a as usize) == self.get(b as usize)) {
            let rank = 2 * before + same.len() as u32 + 1;
            for &at in same {
                ranks[at as usize] = rank;
            }
            before += same.len() as u32;
        }
        ranks
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
        let all = [0.0, 1.0, 4_294_967_293.0, 4_294_967_294.0, 4_294_967_295.0, 4_294_967_296.0, -1.0, 0.5, -0.0, 9e15];
        for value in all {
            for before in [vec![], vec![7.0], vec![0.25]] {
                let mut counts: Counts = before.iter().copied().collect();
                counts.push(value);
                counts.push(f64::NAN);
                let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
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
        assert_eq!((narrow.ascending(), narrow.doubled_ranks()), (wide.ascending(), wide.doubled_ranks()));
        assert_eq!(narrow.doubled_ranks(), [10, 4, 10, 2, 10, 6]);
        let (mut one, mut other) = (narrow.clone(), wide);
        one.sort();
        other.sort();
        assert!(one == other && one.is_sorted() && !narrow.is_sorted());
    }
}
