//! Finds counts that no run of the program can have: faults of counters, of collecting, of files.
//!
//! The rules compare runs of a sub-experiment with each other. They use ranks, so that a few bad runs
//! do not move what is normal, and they are wide: a fault is named only where a count is far outside
//! all others. Let the *bulk* of an event in a sub-experiment be its counts between the 10th and the
//! 90th percentile, `w` the greater of the bulk's width and a hundredth of the median, and `r` the
//! ratio of the bulk's ends.
//!
//! | fault | rule |
//! | --- | --- |
//! | [`Fault::Saturated`] | 2ʷ − 1 of a counter's width, where other runs have other counts |
//! | [`Fault::Wrapped`] | 2ʷ more would be in the bulk or within 3 `w` of it |
//! | [`Fault::Jumped`] | 2ʷ less would be, and the count is beyond 20 `w` and, below 31 bits, `r`² |
//! | [`Fault::Negative`] | less than a bulk below 2³² or 2⁶⁴: a difference that was negative |
//! | [`Fault::Zero`] | 0, where the bulk is above 64 and not as wide as the median |
//! | [`Fault::Far`] | beyond 20 `w`, and outside the bulk by a factor of 4 and of `r`³ |
//! | [`Fault::OtherProgram`] | most events of a run, two or more, are beyond 5 `w` and outside by a factor of 1.5 and of `r`² |
//! | [`Fault::OtherProgramBlock`] | the medians of all its events are outside what other sub-experiments have, by 3 `w`, 1.5 times and `r` |
//! | [`Fault::Frozen`] | the same count in 8 runs on end, where fewer than a tenth of the others are equal |
//! | [`Fault::Accumulated`] | counts grow from every run to the next, at least 16 runs, to 4 times the first or more |
//! | [`Fault::Duplicate`] | every count of a run of two or more events is that of an earlier run, where counts hardly ever are equal |
//! | [`Fault::SameColumn`] | two events have the same counts in every run, and the counts vary |
//!
//! Distances of 2ʷ less than 8 `w` show nothing, and an event that a tenth of the runs do not have is
//! never [`Fault::Far`]. Faults of single counts need 8 runs and concern at most a tenth of a sub-experiment's runs: what
//! is more frequent belongs to the program. Faulty runs are excluded; faults of whole columns are
//! not, since nothing says which runs are right: they are only named.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{Measurements, SubExperiment};
use crate::parallel;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Fewest runs with which a count is compared.
const FEWEST: usize = 8;
/// Widths of counters, in bits.
const WIDTHS: std::ops::RangeInclusive<u32> = 16..=52;
/// Widths of the counters that there are. A full one is no coincidence.
const COMMON_WIDTHS: [u32; 6] = [31, 32, 40, 47, 48, 52];
/// Runs on end with one count that make it frozen.
const FROZEN: usize = 8;
/// Runs on end that grow.
const GROWING: usize = 16;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The counter stopped at its greatest value.
    Saturated(u32),
    /// The counter of this width started again from 0.
    Wrapped(u32),
    /// The count has grown by 2 to this power.
    Jumped(u32),
    /// A negative difference, as a number of this width.
    Negative(u32),
    /// Nothing was counted in this run.
    Zero,
    /// The count is far from all others.
    Far,
    /// The run is of another program or input.
    OtherProgram,
    /// The sub-experiment is of another program or input.
    OtherProgramBlock,
    /// The counter has the same count in many runs on end.
    Frozen,
    /// The counter was not reset between runs.
    Accumulated,
    /// The run is a copy of another one.
    Duplicate,
    /// Two events are one.
    SameColumn,
}

impl Fault {
    /// Returns its name in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Saturated(_) => "saturated",
            Self::Wrapped(_) => "wrapped",
            Self::Jumped(_) => "jumped",
            Self::Negative(_) => "negative",
            Self::Zero => "zero",
            Self::Far => "far",
            Self::OtherProgram => "other-program",
            Self::OtherProgramBlock => "other-program-block",
            Self::Frozen => "frozen",
            Self::Accumulated => "accumulated",
            Self::Duplicate => "duplicate",
            Self::SameColumn => "same-column",
        }
    }

    /// Returns whether runs with it are excluded: it is a fault of single runs.
    pub fn excludes(self) -> bool {
        !matches!(
            self,
            Self::OtherProgramBlock | Self::Accumulated | Self::SameColumn
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturated(width) => write!(f, "a counter of {width} bits stopped at its end"),
            Self::Wrapped(width) => write!(f, "a counter of {width} bits wrapped"),
            Self::Jumped(width) => write!(f, "the counter jumped by 2^{width}"),
            Self::Negative(width) => write!(f, "a negative difference in {width} bits"),
            Self::Zero => f.write_str("nothing was counted, unlike in other runs"),
            Self::Far => f.write_str("far from the counts of all other runs"),
            Self::OtherProgram => f.write_str("a run of another program or input"),
            Self::OtherProgramBlock => {
                f.write_str("the whole sub-experiment is of another program or input")
            }
            Self::Frozen => f.write_str("the same count in many runs on end"),
            Self::Accumulated => f.write_str("the counter was not reset between runs"),
            Self::Duplicate => f.write_str("a copy of another run"),
            Self::SameColumn => f.write_str("two events with the same counts in every run"),
        }
    }
}

/// A fault with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// What is wrong.
    pub fault: Fault,
    /// The sub-experiment's number.
    pub sub_experiment: u64,
    /// The place of the run in its sub-experiment; `None` for a fault of all runs.
    pub place: Option<usize>,
    /// The run's number in the input.
    pub run: Option<u64>,
    /// The event, unless it is the run as a whole.
    pub event: Option<String>,
    /// The count.
    pub value: Option<f64>,
    /// The median of the other runs.
    pub median: Option<f64>,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sub-experiment {}", self.sub_experiment)?;
        if let Some(run) = self.run {
            write!(f, ", run {run}")?;
        }
        if let Some(event) = &self.event {
            write!(f, ", {event}")?;
        }
        if let Some(value) = self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}", self.fault)?;
        match self.median {
            Some(median) => write!(f, " (median {median})"),
            None => Ok(()),
        }
    }
}

/// What is normal for an event in a sub-experiment.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    low: f64,
    median: f64,
    high: f64,
    /// The greater of its width and a hundredth of the median, at least 1.
    width: f64,
}

impl Bulk {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let (low, median, high) = (at(0.1), at(0.5), at(0.9));
        Self {
            low,
            median,
            high,
            width: (high - low).max(median / 100.0).max(1.0),
        }
    }
    /// How far a value is outside the bulk, in widths.
    fn distance(&self, value: f64) -> f64 {
        (self.low - value).max(value - self.high).max(0.0) / self.width
    }
    /// How far a value is outside, in powers of the ratio of the bulk's ends.
    fn ratio(&self, value: f64) -> f64 {
        let [low, high, value] = [self.low, self.high, value].map(|it| it.max(1.0).ln());
        // Of equal counts, a hundredth is what is normal.
        (low - value).max(value - high).max(0.0) / (high - low).max(0.01)
    }
    /// Whether a value is outside by a factor.
    fn is_beyond(&self, value: f64, factor: f64) -> bool {
        value > self.high * factor || value * factor < self.low
    }

    /// Returns what is wrong with a value, if anything is.
    fn fault(&self, value: f64) -> Option<Fault> {
        let is_full = |width: &&u32| value == (1_u64 << **width) as f64 - 1.0;
        if self.distance(value) > 0.0
            && let Some(width) = COMMON_WIDTHS.iter().find(is_full)
        {
            return Some(Fault::Saturated(*width));
        }
        if value == 0.0 {
            let is_firm = self.low > 64.0 && self.high - self.low < self.median;
            return is_firm.then_some(Fault::Zero);
        }
        let far = self.distance(value);
        let power = |width: u32| (1_u64 << width) as f64;
        let fits = |value: f64| value >= 0.0 && self.distance(value) <= 3.0;
        // A shift that the bulk's own width explains shows nothing.
        let mut widths = WIDTHS.filter(|&width| power(width) > 8.0 * self.width);
        if far > 4.0 {
            if value < self.low
                && let Some(width) = widths.clone().find(|&width| fits(value + power(width)))
            {
                return Some(Fault::Wrapped(width));
            }
            if far > 20.0
                && let Some(width) = widths.find(|&width| {
                    fits(value - power(width)) && (width >= 31 || self.ratio(value) > 2.0)
                })
            {
                return Some(Fault::Jumped(width));
            }
        }
        let negative = power(32) - value;
        if far > 20.0 && negative > 0.0 && negative <= self.high.max(64.0) && self.high < power(31)
        {
            return Some(Fault::Negative(32));
        }
        // Counts of a few are as they are, and an event that many runs do not have may come often in
        // one.
        let is_large = self.low > 0.0 && value.max(self.low) > 1000.0;
        let is_far = far > 20.0 && self.ratio(value) > 3.0 && self.is_beyond(value, 4.0);
        (is_far && is_large).then_some(Fault::Far)
    }
}

/// Returns everything that is wrong, by sub-experiment and run.
pub fn inspect(data: &Measurements) -> Vec<Suspect> {
    let mut found =
        parallel::of_all(&data.sub_experiments, |sub| of_sub_experiment(data, sub)).concat();
    found.extend(other_programs(data));
    found.sort_by_key(|suspect| {
        (
            suspect.sub_experiment,
            suspect.place,
            suspect.fault,
            suspect.event.clone(),
        )
    });
    found
}

fn of_sub_experiment(data: &Measurements, sub: &SubExperiment) -> Vec<Suspect> {
    if sub.runs() < FEWEST {
        return vec![];
    }
    let columns: Vec<Vec<f64>> = sub.columns.iter().map(|column| column.to_vec()).collect();
    let bulks: Vec<Bulk> = columns.iter().map(|column| Bulk::of(column)).collect();
    let name = |at: usize| data.events[sub.events[at]].name.clone();
    let suspect = |fault, place: Option<usize>, at: Option<usize>| Suspect {
        fault,
        sub_experiment: sub.number,
        place,
        run: place.map(|place| sub.run_number(place)),
        event: at.map(name),
        value: at.zip(place).map(|(at, place)| columns[at][place]),
        median: at.map(|at| bulks[at].median),
    };
    let most = sub.runs() / 10;
    let mut found = vec![];
    let strangers = strangers(&columns, &bulks);
    let strangers = if strangers.len() <= most {
        strangers
    } else {
        BTreeSet::new()
    };
    for (at, (column, bulk)) in columns.iter().zip(&bulks).enumerate() {
        let faults: Vec<(usize, Fault)> = column
            .iter()
            .enumerate()
            .filter_map(|(place, &value)| bulk.fault(value).map(|fault| (place, fault)))
            .collect();
        // A counter's end is one however many runs reach it.
        let is_rare = faults.len() <= most.max(1);
        let kept = faults.into_iter().filter(|(place, fault)| {
            !strangers.contains(place) && (is_rare || matches!(fault, Fault::Saturated(_)))
        });
        found.extend(kept.map(|(place, fault)| suspect(fault, Some(place), Some(at))));
        found.extend(frozen(column).map(|place| suspect(Fault::Frozen, Some(place), Some(at))));
        if is_accumulated(column) {
            found.push(suspect(Fault::Accumulated, None, Some(at)));
        }
        if let Some(other) = (0..at).find(|&other| columns[other] == *column)
            && distinct(column) > sub.runs() / 2
        {
            let both = format!("{} and {}", name(other), name(at));
            found.push(Suspect {
                event: Some(both),
                ..suspect(Fault::SameColumn, None, None)
            });
        }
    }
    let strange = |place| suspect(Fault::OtherProgram, Some(place), None);
    found.extend(strangers.into_iter().map(strange));
    found.extend(duplicates(&columns).map(|place| suspect(Fault::Duplicate, Some(place), None)));
    found
}

/// The runs of which most events, two or more, are outside what is normal.
fn strangers(columns: &[Vec<f64>], bulks: &[Bulk]) -> BTreeSet<usize> {
    let runs = columns.first().map_or(0, Vec::len);
    let is_strange = |&run: &usize| {
        let outside = columns.iter().zip(bulks).filter(|(column, bulk)| {
            let value = column[run];
            value > 0.0
                && bulk.low > 0.0
                && bulk.distance(value) > 5.0
                && bulk.ratio(value) > 2.0
                && bulk.is_beyond(value, 1.5)
        });
        let outside = outside.count();
        outside >= 2 && 2 * outside > columns.len()
    };
    (0..runs).filter(is_strange).collect()
}

fn distinct(values: &[f64]) -> usize {
    let different: BTreeSet<u64> = values.iter().map(|value| value.to_bits()).collect();
    different.len()
}

/// The runs of a stretch with one count, after its first, in a column whose counts differ otherwise.
fn frozen(column: &[f64]) -> impl Iterator<Item = usize> {
    let mut stretches = vec![];
    let mut start = 0;
    for end in 1..=column.len() {
        if end == column.len() || column[end] != column[start] {
            if end - start >= FROZEN {
                stretches.push(start..end);
            }
            start = end;
        }
    }
    let frozen: usize = stretches.iter().map(|stretch| stretch.len()).sum();
    let others = column.len() - frozen;
    // Of the other runs, how many share a count with another one.
    let others_differ = distinct(column).saturating_sub(stretches.len()) * 10 >= others * 9;
    let is_known = others >= FEWEST && others_differ;
    let places = stretches.into_iter().flat_map(|stretch| stretch.skip(1));
    places.filter(move |_| is_known)
}

fn is_accumulated(column: &[f64]) -> bool {
    let grows = column.windows(2).all(|pair| pair[0] < pair[1]);
    let last = column.last().copied().unwrap_or_default();
    column.len() >= GROWING && grows && last >= 4.0 * column[0].max(1.0)
}

/// The runs that repeat an earlier one, where counts are hardly ever equal.
fn duplicates(columns: &[Vec<f64>]) -> impl Iterator<Item = usize> {
    let runs = columns.first().map_or(0, Vec::len);
    // Columns in which runs differ: two of them have to agree.
    let telling: Vec<&Vec<f64>> = columns
        .iter()
        .filter(|column| distinct(column) * 20 >= runs * 19)
        .collect();
    let mut seen = BTreeSet::new();
    let mut again = vec![];
    if telling.len() >= 2 {
        for run in 0..runs {
            let counts: Vec<u64> = columns.iter().map(|column| column[run].to_bits()).collect();
            if !seen.insert(counts) {
                again.push(run);
            }
        }
    }
    // What comes again more often belongs to the program.
    again.truncate(if again.len() > runs / 10 {
        0
    } else {
        again.len()
    });
    again.into_iter()
}

/// Sub-experiments whose events all differ from what other sub-experiments have.
fn other_programs(data: &Measurements) -> Vec<Suspect> {
    let mut bulks: BTreeMap<usize, Vec<(u64, Bulk)>> = BTreeMap::new();
    for sub in data
        .sub_experiments
        .iter()
        .filter(|sub| sub.runs() >= FEWEST)
    {
        for (&event, column) in sub.events.iter().zip(&sub.columns) {
            let of = (sub.number, Bulk::of(&column.to_vec()));
            bulks.entry(event).or_default().push(of);
        }
    }
    let is_strange = |sub: &&SubExperiment| {
        let mut seen = 0;
        for event in &sub.events {
            let Some(all) = bulks.get(event) else {
                return false;
            };
            let Some((_, own)) = all.iter().find(|(number, _)| *number == sub.number) else {
                return false;
            };
            let mut others = all.iter().filter(|(number, _)| *number != sub.number);
            let is_outside = |other: &Bulk| {
                other.distance(own.median) > 3.0
                    && other.ratio(own.median) > 1.0
                    && own.ratio(other.median) > 1.0
                    && other.is_beyond(own.median, 1.5)
            };
            if !others.all(|(_, other)| is_outside(other)) {
                return false;
            }
            seen += usize::from(all.len() > 2);
        }
        seen >= 2
    };
    let strange: Vec<u64> = data
        .sub_experiments
        .iter()
        .filter(is_strange)
        .map(|sub| sub.number)
        .collect();
    // Where many differ, each has its own input.
    let is_rare = 3 * strange.len() <= data.sub_experiments.len();
    let suspect = |number| Suspect {
        fault: Fault::OtherProgramBlock,
        sub_experiment: number,
        place: None,
        run: None,
        event: None,
        value: None,
        median: None,
    };
    strange
        .into_iter()
        .filter(|_| is_rare)
        .map(suspect)
        .collect()
}

impl Measurements {
    /// Returns the measurements without the runs whose faults exclude them, and how many these are.
    pub fn without(&self, suspects: &[Suspect]) -> (Self, usize) {
        let bad: BTreeSet<(u64, usize)> = suspects
            .iter()
            .filter(|suspect| suspect.fault.excludes())
            .filter_map(|suspect| Some((suspect.sub_experiment, suspect.place?)))
            .collect();
        if bad.is_empty() {
            return (self.clone(), 0);
        }
        let mut subs = self.sub_experiments.iter();
        let mut kept = self.with_runs(|runs| {
            let number = subs.next().map_or(0, |sub| sub.number);
            (0..runs)
                .filter(|&run| !bad.contains(&(number, run)))
                .collect()
        });
        kept.incomplete_runs = self.incomplete_runs;
        kept.strays.clone_from(&self.strays);
        (kept, bad.len())
    }
}
