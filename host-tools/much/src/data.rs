//! Measured counts: sub-experiments, their runs, and the counts of each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counts::{Counts, PIECE};
use crate::parallel;
use crate::store::Store;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::Arc;

/// Minimum number of runs of a sub-experiment for a useful correlation: with fewer, the central
/// limit theorem does not apply (section 4.4, step 1).
pub const FEWEST_RUNS: usize = 30;
/// Largest count: not all integers above it are exact in a double.
pub const LARGEST_COUNT: f64 = 9_007_199_254_740_992.0;

/// An event that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its unique name.
    pub name: String,
    /// Its number in the PMU, if the input has it.
    pub code: Option<u32>,
}

/// Runs that count the same events.
#[derive(Clone, Debug, PartialEq)]
pub struct SubExperiment {
    /// The sub-experiment's number in the input.
    pub number: u64,
    /// The events counted, as indices into [`Measurements::events`], ascending.
    pub events: Vec<usize>,
    /// For each of these events its counts, run by run.
    pub columns: Vec<Counts>,
    /// For each run its place, by number, among all runs of the sub-experiment, including those
    /// that were left out. Empty if no run was left out.
    pub places: Vec<u32>,
    /// The numbers of the runs at all places.
    pub(crate) numbers: Arc<Numbers>,
}

impl SubExperiment {
    /// Returns the number of a run in the input.
    pub(crate) fn run_number(&self, run: usize) -> u64 {
        let place = self.place(run);
        self.numbers.get(place).unwrap_or(place as u64)
    }
    /// The place of a run among all runs of the sub-experiment, from 0.
    fn place(&self, run: usize) -> usize {
        self.places.get(run).map_or(run, |&place| place as usize)
    }
    /// How many runs.
    pub fn runs(&self) -> usize {
        self.columns.first().map_or(0, Counts::len)
    }
    /// Returns the counts of an event, if it was counted here.
    pub fn column(&self, event: usize) -> Option<&Counts> {
        let at = self.events.binary_search(&event).ok()?;
        Some(&self.columns[at])
    }
}

/// All measurements of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// All events of all sub-experiments.
    pub events: Vec<Event>,
    /// The sub-experiments.
    pub sub_experiments: Vec<SubExperiment>,
    /// Number of runs left out because a count was missing.
    pub incomplete_runs: usize,
    /// Counts that were left out because hardly any run of their sub-experiment counts their event:
    /// sub-experiment, event, and number of counts.
    pub strays: Vec<(u64, String, usize)>,
}

/// A problem that does not prevent a merge.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// Sub-experiments have too few runs.
    #[error(
        "{} {} fewer than {FEWEST_RUNS} runs (minimum {fewest}), too few for reliable correlations (section 4.4, step 1)",
        few(numbers),
        if numbers.len() == 1 { "has" } else { "have" }
    )]
    FewRuns {
        /// Numbers of these sub-experiments.
        numbers: Vec<u64>,
        /// The smallest number of runs.
        fewest: usize,
    },
    /// Sub-experiments have unequal numbers of runs.
    #[error(
        "sub-experiments have from {fewest} to {most} runs: the correlations of their pairs are \
         not equally reliable"
    )]
    UnequalRuns {
        /// The smallest number of runs.
        fewest: usize,
        /// The largest number of runs.
        most: usize,
    },
    /// An event has the same count in all runs.
    #[error("{event} is {value} in every run: it has no correlation with anything")]
    Constant {
        /// Name of the event.
        event: String,
        /// Its count in every run.
        value: f64,
    },
    /// An event varies between sub-experiments, but hardly within one.
    #[error(
        "{event} varies between sub-experiments but hardly within one: its correlation from run \
         to run is unknown and taken as zero"
    )]
    Stepped {
        /// Name of the event.
        event: String,
    },
    /// Many runs have the same count of an event.
    #[error("{event}: {share:.0} % of the runs have the same count, {value}")]
    Ties {
        /// Name of the event.
        event: String,
        /// The common count.
        value: f64,
        /// Share of the runs that have it, in percent.
        share: f64,
    },
    /// Counts were left out.
    #[error(
        "sub-experiment {number} counts {event} in {runs} of its runs only: these counts are not \
         used"
    )]
    Stray {
        /// The sub-experiment.
        number: u64,
        /// The event.
        event: String,
        /// The runs that count it.
        runs: usize,
    },
    /// Runs were left out.
    #[error("{0} {was} left out: a count is missing", was = if *.0 == 1 { "run was" } else { "runs were" })]
    Incomplete(usize),
}

/// Lists sub-experiments by number, abbreviated if there are many.
fn few(numbers: &[u64]) -> String {
    let named = numbers
        .iter()
        .take(5)
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    match numbers.len() {
        1 => format!("sub-experiment {named}"),
        2..=5 => format!("sub-experiments {named}"),
        more => format!("sub-experiments {named} and {} more", more - 5),
    }
}

/// Errors that make measurements unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// There are no measurements.
    #[error("there are no measurements")]
    Empty,
    /// Only one event was counted.
    #[error("only {0} was counted: there is nothing to merge")]
    OneEvent(String),
    /// Some pairs were never counted together.
    #[error("{count} pairs of events were never counted in the same run: {named}")]
    MissingPairs {
        /// Number of such pairs.
        count: usize,
        /// Names of the first ones.
        named: String,
    },
    /// A sub-experiment has no run with all its counts.
    #[error("sub-experiment {0}: a count is missing in every run")]
    NoCompleteRun(u64),
    /// A sub-experiment has a single run.
    #[error("sub-experiment {0} has only one run: it shows no correlation")]
    OneRun(u64),
    /// A number of runs for samples that the measurements do not have.
    #[error("samples of {asked} runs of each sub-experiment cannot be drawn: {} can be{}", match *.most {
        0 | 1 => "none".to_owned(),
        most => format!("2 to {most}"),
    }, if *.left > 0 { format!(", for {} are to be left to compare with", .left) } else { String::new() })]
    Runs {
        /// The requested number of runs.
        asked: usize,
        /// The most that there can be.
        most: usize,
        /// How many of each sub-experiment must be left.
        left: usize,
    },
    /// The matrix of pairwise estimates is no correlation matrix, and repair was not asked for.
    #[error(
        "the pairwise estimates make an indefinite matrix: its least eigenvalue is {0}, and a \
         Gaussian model needs none below 0"
    )]
    Indefinite(String),
    /// The anchor is unknown.
    #[error("there is no event {0}")]
    NoEvent(String),
    /// A sub-experiment does not count the anchor.
    #[error("sub-experiment {number} does not count the anchor {anchor}")]
    NoAnchor {
        /// Number of the sub-experiment.
        number: u64,
        /// Name of the anchor.
        anchor: String,
    },
    /// An event is counted only in sub-experiments without the anchor.
    #[error("{event} was never counted together with the anchor {anchor}")]
    NotWithAnchor {
        /// Name of the event.
        event: String,
        /// Name of the anchor.
        anchor: String,
    },
}

impl Measurements {
    /// Returns the total number of runs.
    pub fn runs(&self) -> usize {
        self.sub_experiments.iter().map(SubExperiment::runs).sum()
    }
    /// Returns the index of an event by its name.
    pub fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }
    /// Returns all counts of an event, sub-experiment after sub-experiment: the grouped sample
    /// (section 4.3).
    pub fn grouped(&self, event: usize) -> Vec<f64> {
        let mut grouped = vec![];
        self.sub_experiments
            .iter()
            .filter_map(|sub| sub.column(event))
            .for_each(|part| grouped.extend(part.iter()));
        grouped
    }
    /// Returns the same as a compact column.
    pub fn grouped_counts(&self, event: usize) -> Counts {
        let mut grouped = Counts::default();
        self.sub_experiments
            .iter()
            .filter_map(|sub| sub.column(event))
            .for_each(|part| grouped.extend_from(part));
        grouped
    }
    /// Returns the file that contains the columns, if they are too large for memory.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.sub_experiments
            .iter()
            .flat_map(|sub| &sub.columns)
            .find_map(Counts::store)
    }
    /// Returns all counts of an event in ascending order.
    pub fn sorted(&self, event: usize) -> Counts {
        let mut sorted = self.grouped_counts(event);
        sorted.sort();
        sorted
    }
    /// Returns the pairs of events that no sub-experiment counts together.
    pub fn missing_pairs(&self) -> Vec<(usize, usize)> {
        let events = self.events.len();
        let mut met = vec![false; events * events];
        for sub in &self.sub_experiments {
            for &a in &sub.events {
                for &b in &sub.events {
                    met[a * events + b] = true;
                }
            }
        }
        let pairs = (0..events).flat_map(|a| (a + 1..events).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| !met[a * events + b]).collect()
    }
    /// Checks what every method needs.
    pub fn check(&self) -> Result<(), DataError> {
        match self.events.as_slice() {
            [] => return Err(DataError::Empty),
            [only] => return Err(DataError::OneEvent(only.name.clone())),
            _ => {}
        }
        match self.sub_experiments.iter().find(|sub| sub.runs() < 2) {
            Some(sub) if sub.runs() == 1 => Err(DataError::OneRun(sub.number)),
            Some(sub) => Err(DataError::NoCompleteRun(sub.number)),
            None => Ok(()),
        }
    }
    /// Checks MUCH's requirement: every pair of events is counted together.
    pub fn check_pairs(&self) -> Result<(), DataError> {
        self.check()?;
        let missing = self.missing_pairs();
        if missing.is_empty() {
            return Ok(());
        }
        let name = |&(a, b): &(usize, usize)| {
            format!("{} and {}", self.events[a].name, self.events[b].name)
        };
        let mut named = missing
            .iter()
            .take(5)
            .map(name)
            .collect::<Vec<_>>()
            .join(", ");
        if missing.len() > 5 {
            named += &format!(" and {} more", missing.len() - 5);
        }
        Err(DataError::MissingPairs {
            count: missing.len(),
            named,
        })
    }
    /// Returns the same sub-experiments with other runs, chosen by index for each sub-experiment.
    pub fn with_runs(&self, mut choose: impl FnMut(usize) -> Vec<usize>) -> Self {
        let choose_from = |sub: &SubExperiment| {
            let chosen = choose(sub.runs());
            let column = |column: &Counts| column.chosen(&chosen).stored(self.store());
            SubExperiment {
                number: sub.number,
                events: sub.events.clone(),
                columns: sub.columns.iter().map(column).collect(),
                places: chosen.iter().map(|&run| sub.place(run) as u32).collect(),
                numbers: Arc::clone(&sub.numbers),
            }
        };
        let sub_experiments = self.sub_experiments.iter().map(choose_from).collect();
        Self {
            events: self.events.clone(),
            sub_experiments,
            incomplete_runs: 0,
            strays: vec![],
        }
    }
    /// Returns the runs of each sub-experiment after the first `skip`, at most `most` of them. Runs
    /// go by their numbers; runs that were left out for a missing count take a place too.
    pub fn window(&self, skip: usize, most: Option<usize>) -> Self {
        let end = most.map_or(usize::MAX, |most| skip.saturating_add(most));
        let mut subs = self.sub_experiments.iter();
        self.with_runs(|runs| {
            let sub = subs.next();
            (0..runs)
                .filter(|&run| (skip..end).contains(&sub.map_or(run, |sub| sub.place(run))))
                .collect()
        })
    }
    /// Returns the same measurements with the events in another order, given by name.
    pub fn reordered(&self, events: &[Event]) -> Result<Self, DataError> {
        if let Some(other) = self
            .events
            .iter()
            .find(|event| !events.iter().any(|known| known.name == event.name))
        {
            return Err(DataError::NoEvent(other.name.clone()));
        }
        let mut place = vec![0; self.events.len()];
        for (at, event) in events.iter().enumerate() {
            let from = self
                .event(&event.name)
                .ok_or_else(|| DataError::NoEvent(event.name.clone()))?;
            place[from] = at;
        }
        let reorder = |sub: &SubExperiment| {
            let mut columns: Vec<_> = sub
                .events
                .iter()
                .map(|&event| place[event])
                .zip(sub.columns.clone())
                .collect();
            columns.sort_by_key(|(event, _)| *event);
            let (events, columns) = columns.into_iter().unzip();
            SubExperiment {
                number: sub.number,
                events,
                columns,
                places: sub.places.clone(),
                numbers: Arc::clone(&sub.numbers),
            }
        };
        let sub_experiments = self.sub_experiments.iter().map(reorder).collect();
        Ok(Self {
            events: events.to_vec(),
            sub_experiments,
            incomplete_runs: self.incomplete_runs,
            strays: self.strays.clone(),
        })
    }
    /// Draws `runs` runs of each sub-experiment with replacement: a bootstrap sample (section 5.3).
    pub fn bootstrap(&self, runs: usize, rng: &mut ChaCha8Rng) -> Self {
        self.with_runs(|all| (0..runs).map(|_| rng.random_range(0..all)).collect())
    }
    /// Draws `runs` distinct runs of each sub-experiment; the second result has all other runs. A
    /// sub-experiment with fewer runs contributes all it has.
    pub fn split(&self, runs: usize, rng: &mut ChaCha8Rng) -> (Self, Self) {
        let mut order: Vec<Vec<usize>> = vec![];
        for sub in &self.sub_experiments {
            order.push(rand::seq::index::sample(rng, sub.runs(), sub.runs()).into_vec());
        }
        let part = |keep: &dyn Fn(&[usize]) -> Vec<usize>| {
            let mut at = order.iter();
            self.with_runs(|_| at.next().map_or_else(Vec::new, |order| keep(order)))
        };
        (
            part(&|order| order[..runs.min(order.len())].to_vec()),
            part(&|order| order[runs.min(order.len())..].to_vec()),
        )
    }
}

/// The share of an event's variance that its runs must have within sub-experiments. Where runs are
/// alike, it is nearly all.
const LEAST_WITHIN: f64 = 0.05;

/// Returns whether an event's grouped values, or scores of them, hardly differ within
/// sub-experiments but differ between them. A sub-experiment then counts as one run, and the
/// event's correlations with others are chance.
pub fn is_stepped(data: &Measurements, event: usize, grouped: &[f64]) -> bool {
    let around = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    };
    let mut rest = grouped;
    let (mut within, mut steps) = (0.0, 0);
    for sub in data
        .sub_experiments
        .iter()
        .filter(|sub| sub.column(event).is_some())
    {
        let (part, others) = rest.split_at(sub.runs());
        within += around(part);
        rest = others;
        steps += 1;
    }
    let all = around(grouped);
    steps > 1 && all > 0.0 && within < LEAST_WITHIN * all
}

/// Builds [`Measurements`] from rows in any order.
#[derive(Debug, Default)]
pub struct Builder {
    events: Vec<Event>,
    by_name: HashMap<Vec<u8>, usize>,
    /// For each event the one whose row came after its last one: most often it comes again.
    after: Vec<usize>,
    last_event: usize,
    subs: Vec<Partial>,
    by_number: HashMap<u64, usize>,
    last: (usize, usize),
    /// How many counts were added.
    added: usize,
    /// How many of them stay in memory, unless it is [`IN_MEMORY`].
    in_memory: Option<usize>,
    /// Where the others are: in memory too if no file can be created.
    store: Option<Option<Arc<Store>>>,
}

/// Counts that stay in memory: 64 MiB. Of more, a column keeps the last few.
const IN_MEMORY: usize = 1 << 24;

/// What no count is: the event's row is there, its count is not.
const NO_COUNT: f64 = -1.0;

/// Numbers of runs, nearly always each one more than the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    first: u64,
    /// How many from the first one on follow each other.
    count: usize,
    /// The others.
    rest: Vec<u64>,
}

impl Numbers {
    fn len(&self) -> usize {
        self.count + self.rest.len()
    }
    fn get(&self, at: usize) -> Option<u64> {
        if at < self.count {
            Some(self.first + at as u64)
        } else {
            self.rest.get(at - self.count).copied()
        }
    }
    fn last(&self) -> Option<u64> {
        self.get(self.len().checked_sub(1)?)
    }
    fn push(&mut self, number: u64) {
        if self.count == 0 {
            self.first = number;
        }
        if self.rest.is_empty() && number.checked_sub(self.first) == Some(self.count as u64) {
            self.count += 1;
        } else {
            self.rest.push(number);
        }
    }
    /// Where a number is, while all ascend.
    fn place_of(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        if at < self.count {
            return Some(at);
        }
        self.rest
            .binary_search(&number)
            .ok()
            .map(|at| at + self.count)
    }
    fn is_sorted(&self) -> bool {
        self.rest.is_sorted()
            && (self.count == 0
                || self
                    .rest
                    .first()
                    .is_none_or(|&next| self.get(self.count - 1) < Some(next)))
    }
}

#[derive(Debug, Default)]
struct Partial {
    number: u64,
    /// The runs' numbers, in the order of their first rows.
    order: Numbers,
    /// Where runs are in `order`, once they do not ascend there.
    places: Option<HashMap<u64, usize>>,
    /// Index by event; NaN where there is no row, [`NO_COUNT`] where its row has no count.
    columns: Vec<Counts>,
}

impl Partial {
    /// The place of a run, which gets one if it has none.
    fn row(&mut self, run: u64, last: usize) -> usize {
        let at = |place: usize| self.order.get(place) == Some(run);
        // Rows of one run follow each other, or those of one event.
        if let Some(place) = [last, last + 1].into_iter().find(|&place| at(place)) {
            return place;
        }
        if self.places.is_none() {
            if self.order.last().is_none_or(|last| last < run) {
                self.order.push(run);
                return self.order.len() - 1;
            }
            if let Some(place) = self.order.place_of(run) {
                return place;
            }
            self.places = Some(
                (0..self.order.len())
                    .filter_map(|at| Some((self.order.get(at)?, at)))
                    .collect(),
            );
        }
        let next = self.order.len();
        let place = self
            .places
            .as_mut()
            .map_or(next, |places| *places.entry(run).or_insert(next));
        if place == next {
            self.order.push(run);
        }
        place
    }
}

/// Errors in a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The run already has a count of this event.
    #[error("{event} already has a count in sub-experiment {sub_experiment}, run {run}")]
    Twice {
        /// Name of the event.
        event: String,
        /// Number of the sub-experiment.
        sub_experiment: u64,
        /// Number of the run.
        run: u64,
    },
    /// The value is not a number of events.
    #[error("{value} is not a count{why}")]
    NotACount {
        /// The value found.
        value: String,
        /// The mistake in it.
        why: &'static str,
    },
    /// One name has two numbers.
    #[error("event {name} has number {now} here and {before} before")]
    Code {
        /// Name of the event.
        name: String,
        /// Its number in this row.
        now: u32,
        /// Its number in an earlier row.
        before: u32,
    },
}

impl Builder {
    /// Creates a builder that keeps this many counts in memory, and the others in a temporary file.
    pub fn with_memory_for(counts: usize) -> Self {
        Self {
            in_memory: Some(counts),
            ..Self::default()
        }
    }

    /// Adds a count. `value` is NaN if the count is missing, which excludes the run.
    pub fn add(
        &mut self,
        sub_experiment: u64,
        run: u64,
        code: Option<u32>,
        event: &[u8],
        value: f64,
    ) -> Result<(), RowError> {
        let at = self.event(event, code);
        if let (Some(now), Some(before)) = (code, self.events[at].code)
            && now != before
        {
            return Err(RowError::Code {
                name: self.events[at].name.clone(),
                now,
                before,
            });
        }
        let sub = match self.subs.get(self.last.0) {
            Some(sub) if sub.number == sub_experiment => self.last.0,
            _ => *self.by_number.entry(sub_experiment).or_insert_with(|| {
                self.subs.push(Partial {
                    number: sub_experiment,
                    ..Partial::default()
                });
                self.subs.len() - 1
            }),
        };
        let partial = &mut self.subs[sub];
        let row = partial.row(run, self.last.1);
        self.last = (sub, row);
        if partial.columns.len() <= at {
            partial.columns.resize(at + 1, Counts::default());
        }
        let column = &mut partial.columns[at];
        let value = if value.is_nan() { NO_COUNT } else { value };
        if column.len() == row {
            column.push(value);
            self.added += 1;
            if self.added > self.in_memory.unwrap_or(IN_MEMORY) && column.in_memory() >= PIECE {
                // Where no file can be created, all stay in memory.
                if let Some(store) = self
                    .store
                    .get_or_insert_with(|| Store::new().ok().map(Arc::new))
                {
                    column.keep(store);
                }
            }
            return Ok(());
        }
        if column.len() < row {
            column.lengthen(row + 1);
        }
        if !column.get(row).is_nan() {
            let event = self.events[at].name.clone();
            return Err(RowError::Twice {
                event,
                sub_experiment,
                run,
            });
        }
        column.set(row, value);
        Ok(())
    }

    /// The place of an event, which gets one if it has none.
    fn event(&mut self, name: &[u8], code: Option<u32>) -> usize {
        let expected = self.after.get(self.last_event).copied().unwrap_or_default();
        let at = match self.events.get(expected) {
            Some(event) if event.name.as_bytes() == name => expected,
            _ => match self.by_name.get(name) {
                Some(&at) => at,
                None => {
                    let at = self.events.len();
                    self.by_name.insert(name.to_vec(), at);
                    self.events.push(Event {
                        name: String::from_utf8_lossy(name).into_owned(),
                        code,
                    });
                    self.after.push(0);
                    at
                }
            },
        };
        self.after[self.last_event] = at;
        self.last_event = at;
        at
    }

    /// Returns the measurements: sub-experiments and their runs by number, only runs with every
    /// count.
    pub fn finish(self) -> Result<Measurements, DataError> {
        let mut measurements = Measurements {
            events: self.events,
            ..Measurements::default()
        };
        for mut partial in self.subs {
            partial.places = None;
            let rows = partial.order.len();
            // Of each column, how many rows have the event, and how many of these a count.
            let seen = |column: &Counts| {
                column.iter().fold([0, 0], |[seen, whole], value| {
                    [
                        seen + usize::from(!value.is_nan()),
                        whole + usize::from(value >= 0.0),
                    ]
                })
            };
            let (seen, whole): (Vec<usize>, Vec<usize>) = parallel::of_all(&partial.columns, seen)
                .into_iter()
                .map(|[seen, whole]| (seen, whole))
                .unzip();
            // An event that hardly any run has is in the wrong place: the others are not to suffer.
            let (events, strays): (Vec<_>, Vec<_>) = (0..partial.columns.len())
                .filter(|&at| seen[at] > 0)
                .partition(|&at| 2 * seen[at] >= rows);
            let named = |at: usize| {
                (
                    partial.number,
                    measurements.events[at].name.clone(),
                    seen[at],
                )
            };
            measurements.strays.extend(strays.into_iter().map(named));
            let sorted = partial.order.is_sorted();
            let mut columns: Vec<Counts> = events
                .iter()
                .map(|&at| std::mem::take(&mut partial.columns[at]))
                .collect();
            columns.iter_mut().for_each(Counts::shrink);
            let mut places = vec![];
            if !sorted || events.iter().any(|&at| whole[at] < rows) {
                // Rows by their runs' numbers, and which of them have all counts.
                let mut by_number: Vec<usize> = (0..rows).collect();
                by_number.sort_by_key(|&row| partial.order.get(row));
                let mut has_all = vec![true; rows];
                for column in &columns {
                    has_all[column.len()..].fill(false);
                    has_all
                        .iter_mut()
                        .zip(column.iter())
                        .for_each(|(has_all, value)| *has_all &= value >= 0.0);
                }
                places = (0..rows as u32)
                    .filter(|&place| has_all[by_number[place as usize]])
                    .collect();
                let kept: Vec<usize> = places
                    .iter()
                    .map(|&place| by_number[place as usize])
                    .collect();
                let store = self.store.as_ref().and_then(Option::as_ref);
                columns = columns
                    .into_iter()
                    .map(|column| column.chosen(&kept).stored(store))
                    .collect();
                if places.is_empty() {
                    return Err(DataError::NoCompleteRun(partial.number));
                }
                measurements.incomplete_runs += rows - places.len();
                if places.len() == rows {
                    places = vec![];
                }
            }
            let mut numbers = std::mem::take(&mut partial.order);
            if !sorted {
                let mut all: Vec<u64> = (0..rows).filter_map(|row| numbers.get(row)).collect();
                all.sort_unstable();
                numbers = Numbers::default();
                all.into_iter().for_each(|number| numbers.push(number));
            }
            measurements.sub_experiments.push(SubExperiment {
                number: partial.number,
                events,
                columns,
                places,
                numbers: Arc::new(numbers),
            });
        }
        measurements.sub_experiments.sort_by_key(|sub| sub.number);
        Ok(measurements)
    }
}

/// Refuses a value that cannot be a count: negative, not whole, infinite or too large to be exact.
/// NaN is refused as well.
pub fn checked_count(value: f64) -> Result<f64, RowError> {
    let refuse = |why| {
        Err(RowError::NotACount {
            value: value.to_string(),
            why,
        })
    };
    match value {
        v if v.is_nan() => refuse(""),
        v if v < 0.0 => refuse(": it is negative"),
        v if v > LARGEST_COUNT => refuse(": above 2^53 it is not exact"),
        v if v.fract() != 0.0 => refuse(": it is not a whole number"),
        v => Ok(v + 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(rows: &[(u64, u64, &str, f64)]) -> Result<Measurements, DataError> {
        let mut builder = Builder::default();
        for &(sub, run, event, value) in rows {
            builder
                .add(sub, run, None, event.as_bytes(), value)
                .unwrap();
        }
        builder.finish()
    }

    #[test]
    fn rows_may_come_in_any_order() {
        let rows = [
            (3, 7, "a", 1.0),
            (1, 0, "b", 2.0),
            (3, 7, "b", 3.0),
            (1, 0, "a", 4.0),
            (3, 2, "b", 5.0),
            (3, 2, "a", 6.0),
        ];
        let built = build(&rows).unwrap();
        assert_eq!(
            built
                .sub_experiments
                .iter()
                .map(|sub| sub.number)
                .collect::<Vec<_>>(),
            [1, 3]
        );
        // Run 2 before run 7, whichever came first.
        assert_eq!(
            built.sub_experiments[1].column(0),
            Some(&vec![6.0, 1.0].into())
        );
        assert_eq!(
            built.sub_experiments[1].column(1),
            Some(&vec![5.0, 3.0].into())
        );
        assert_eq!(built.grouped(1), [2.0, 5.0, 3.0]);
    }

    #[test]
    fn the_first_runs_are_those_with_the_lowest_numbers_complete_or_not() {
        // Sorted as text: 0, 1, 10, 11, 2, …; run 1 has no count of b.
        let mut rows = vec![];
        for run in [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9] {
            rows.push((0, run, "a", run as f64));
            rows.push((
                0,
                run,
                "b",
                if run == 1 {
                    f64::NAN
                } else {
                    100.0 + run as f64
                },
            ));
        }
        let built = build(&rows).unwrap();
        assert_eq!(
            built.window(0, None),
            Measurements {
                incomplete_runs: 0,
                ..built.clone()
            }
        );
        assert_eq!(
            built.window(3, None).grouped(0),
            [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
        );
        assert_eq!(built.window(1, Some(3)).grouped(0), [2.0, 3.0]);
        assert_eq!(
            built.window(3, None).window(5, Some(2)).grouped(1),
            [105.0, 106.0],
            "places stay what they were"
        );
    }

    #[test]
    fn an_event_in_hardly_any_run_is_left_out_and_not_the_runs() {
        let mut rows: Vec<_> = (0..60)
            .flat_map(|run| [(2, run, "a", 1.0), (2, run, "b", 2.0)])
            .collect();
        rows.push((2, 7, "c", 3.0));
        let built = build(&rows).unwrap();
        assert_eq!((built.runs(), built.incomplete_runs), (60, 0));
        let stray = Warning::Stray {
            number: 2,
            event: "c".to_owned(),
            runs: 1,
        };
        assert!(built.warnings().contains(&stray), "{:?}", built.warnings());
    }

    #[test]
    fn a_second_count_is_refused_after_a_missing_one_too() {
        let mut builder = Builder::default();
        builder.add(0, 0, None, b"a", f64::NAN).unwrap();
        assert!(matches!(
            builder.add(0, 0, None, b"a", 5.0),
            Err(RowError::Twice { .. })
        ));
    }

    #[test]
    fn a_run_without_all_counts_is_left_out() {
        let built = build(&[
            (0, 0, "a", 1.0),
            (0, 0, "b", 2.0),
            (0, 1, "b", 3.0),
            (0, 2, "a", 4.0),
            (0, 2, "b", 5.0),
        ]);
        let built = built.unwrap();
        assert_eq!((built.runs(), built.incomplete_runs), (2, 1));
        assert_eq!(
            build(&[(4, 0, "a", 1.0), (4, 1, "b", 2.0)]),
            Err(DataError::NoCompleteRun(4))
        );
    }

    #[test]
    fn a_second_count_and_another_number_are_refused() {
        let mut builder = Builder::default();
        builder.add(1, 2, Some(3), b"a", 4.0).unwrap();
        let twice = RowError::Twice {
            event: "a".to_owned(),
            sub_experiment: 1,
            run: 2,
        };
        assert_eq!(builder.add(1, 2, Some(3), b"a", 4.0), Err(twice));
        let code = RowError::Code {
            name: "a".to_owned(),
            now: 9,
            before: 3,
        };
        assert_eq!(builder.add(1, 3, Some(9), b"a", 4.0), Err(code));
    }

    #[test]
    fn counts_that_are_too_many_for_memory_are_the_same_counts() {
        // Three pieces of each column; some files have every ten runs backwards, runs without a
        // count, or counts above 2³².
        let built = |mut builder: Builder, backwards: bool, missing: bool, wide: bool| {
            for row in 0..13_000_u64 {
                let run = if backwards {
                    row / 10 * 10 + 9 - row % 10
                } else {
                    row
                };
                for (sub, events) in [(0, ["a", "b"]), (1, ["b", "c"]), (2, ["a", "c"])] {
                    for event in events {
                        let value =
                            (run * 37 + sub) as f64 + if wide && run == 9000 { 1e12 } else { 0.0 };
                        let value = if missing && run % 1000 == 7 {
                            f64::NAN
                        } else {
                            value
                        };
                        builder
                            .add(sub, run, None, event.as_bytes(), value)
                            .unwrap();
                    }
                }
            }
            assert!(matches!(
                builder.add(1, 4000, None, b"b", 1.0),
                Err(RowError::Twice { .. })
            ));
            builder.finish().unwrap()
        };
        for [backwards, missing, wide] in [
            [false; 3],
            [true, false, false],
            [false, true, false],
            [false, false, true],
            [true; 3],
        ] {
            let plain = built(Builder::default(), backwards, missing, wide);
            let stored = built(Builder::with_memory_for(20_000), backwards, missing, wide);
            assert!(plain.store().is_none() && stored.store().is_some() != wide);
            assert!(plain == stored, "{backwards} {missing} {wide}");
            assert_eq!(plain.runs(), 3 * if missing { 12_987 } else { 13_000 });
            assert_eq!(
                plain.window(100, Some(5000)),
                stored.window(100, Some(5000))
            );
            assert_eq!(plain.warnings(), stored.warnings());
            let merged = |data: &Measurements| {
                let options = crate::merge::Options {
                    vectors: Some(500),
                    ..Default::default()
                };
                crate::merge::much(data, &options).unwrap().vectors
            };
            assert!(merged(&plain) == merged(&stored));
        }
    }

    #[test]
    fn missing_pairs_are_named() {
        let built = build(&[
            (0, 0, "a", 1.0),
            (0, 0, "b", 2.0),
            (0, 1, "a", 1.0),
            (0, 1, "b", 2.0),
            (1, 0, "a", 1.0),
            (1, 0, "c", 2.0),
            (1, 1, "a", 1.0),
            (1, 1, "c", 2.0),
        ]);
        let missing = DataError::MissingPairs {
            count: 1,
            named: "b and c".to_owned(),
        };
        assert_eq!(built.unwrap().check_pairs(), Err(missing));
    }

    #[test]
    fn counts_are_checked() {
        assert!(
            checked_count(-1.0).is_err()
                && checked_count(f64::NAN).is_err()
                && checked_count(1e16).is_err()
        );
        assert!(checked_count(832.5).is_err());
        assert_eq!(checked_count(-0.0).map(f64::to_bits), Ok(0));
    }
}
