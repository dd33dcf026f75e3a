//! Runs of files that do not number them: each becomes a run of the sub-experiment with its events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{ReadError, Row, Taker, WHOLE};
use super::found::{Note, Request, Scaled};
use std::collections::{BTreeMap, BTreeSet};

/// A count of a run, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Counted {
    /// A count.
    Count(f64),
    /// It is missing in this run.
    Missing,
    /// The machine does not have the event.
    NotSupported,
    /// It is measured in this unit, and no count.
    Unit(String),
}

/// A run of a file.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Number of its first line or row.
    pub number: u64,
    /// Its sub-experiment, if the file says so.
    pub sub_experiment: Option<u64>,
    /// Its number, if the file says so.
    pub run: Option<u64>,
    /// Its events and their counts.
    pub counts: Vec<(String, Counted)>,
}

/// Collects the runs of one or several files.
pub struct Runs<'a> {
    request: &'a Request,
    runs: Vec<Run>,
    /// `line` or `row`.
    place: &'static str,
    /// Notes, each once.
    pub notes: Vec<Note>,
    scaled: (usize, String),
}

impl<'a> Runs<'a> {
    pub fn new(request: &'a Request, place: &'static str) -> Self {
        Self {
            request,
            runs: vec![],
            place,
            notes: vec![],
            scaled: (0, String::new()),
        }
    }

    /// Adds a note once.
    pub fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a run, unless it counted nothing.
    pub fn push(&mut self, run: Run) {
        if !run.counts.is_empty() {
            self.runs.push(run);
        }
    }

    /// Returns the count to use for one whose counter counted for `percent` of the time.
    pub fn of_share(
        &mut self,
        number: u64,
        event: &str,
        percent: f64,
        counted: Counted,
    ) -> Result<Counted, ReadError> {
        if percent >= WHOLE || !matches!(counted, Counted::Count(_)) {
            return Ok(counted);
        }
        let scaled = match self.request.scaled {
            Scaled::Refuse => {
                return Err(ReadError::Scaled {
                    place: self.place,
                    number,
                    event: event.to_owned(),
                    percent,
                });
            }
            Scaled::LeaveOut => Counted::Missing,
            Scaled::Keep => counted,
        };
        if self.scaled.0 == 0 {
            self.scaled.1 = format!("{} {number}", self.place);
        }
        self.scaled.0 += 1;
        Ok(scaled)
    }

    /// Hands all runs over, and returns the notes.
    pub fn finish(mut self, taker: &mut Taker<'_>) -> Result<Vec<Note>, ReadError> {
        if self.scaled.0 > 0 {
            let (counts, place) = self.scaled.clone();
            self.note(match self.request.scaled {
                Scaled::Keep => Note::Scaled { counts, place },
                _ => Note::ScaledLeftOut { counts, place },
            });
        }
        let counted: BTreeSet<String> = self
            .runs
            .iter()
            .flat_map(|run| &run.counts)
            .filter(|(_, counted)| matches!(counted, Counted::Count(_) | Counted::Missing))
            .map(|(event, _)| event.clone())
            .collect();
        let mut left_out = vec![];
        for (event, of) in self.runs.iter().flat_map(|run| &run.counts) {
            let note = match of {
                Counted::Unit(unit) => Note::Unit {
                    event: event.clone(),
                    unit: unit.clone(),
                },
                Counted::NotSupported if !counted.contains(event) => {
                    Note::NotSupported(event.clone())
                }
                _ => continue,
            };
            if !left_out.contains(&note) {
                left_out.push(note);
            }
        }
        self.notes.extend(left_out);
        let sub_experiments = self.sub_experiments(&counted);
        if self.runs.iter().any(|run| run.sub_experiment.is_none()) {
            let number = sub_experiments.iter().collect::<BTreeSet<_>>().len();
            self.note(Note::Sets {
                sub_experiments: number,
            });
        }
        let mut runs_of: BTreeMap<u64, u64> = BTreeMap::new();
        for (run, sub_experiment) in self.runs.iter().zip(sub_experiments) {
            let next = runs_of.entry(sub_experiment).or_default();
            let number = run.run.unwrap_or(*next);
            *next += 1;
            for (event, of) in &run.counts {
                let value = match of {
                    Counted::Count(value) => Some(*value),
                    Counted::Missing => None,
                    Counted::NotSupported if counted.contains(event) => None,
                    Counted::NotSupported | Counted::Unit(_) => continue,
                };
                taker.take(&Row {
                    place: self.place,
                    number: run.number,
                    sub_experiment,
                    run: number,
                    event: event.as_bytes(),
                    value,
                    code: None,
                    cycles: None,
                    percent: None,
                    program: ("", None, None),
                })?;
            }
        }
        Ok(self.notes)
    }

    /// The sub-experiment of each run: that of the file, or one for each set of events, in the
    /// order of their first runs. A set that is part of another one, which more runs have, is that
    /// one with missing counts.
    fn sub_experiments(&self, counted: &BTreeSet<String>) -> Vec<u64> {
        let set_of = |run: &Run| -> BTreeSet<String> {
            let events = run.counts.iter().map(|(event, _)| event);
            events
                .filter(|event| counted.contains(*event))
                .cloned()
                .collect()
        };
        let sets: Vec<Option<BTreeSet<String>>> = self
            .runs
            .iter()
            .map(|run| run.sub_experiment.is_none().then(|| set_of(run)))
            .collect();
        let mut runs_of: BTreeMap<&BTreeSet<String>, usize> = BTreeMap::new();
        for set in sets.iter().flatten() {
            *runs_of.entry(set).or_default() += 1;
        }
        let mut whole_of = BTreeMap::new();
        for (&set, runs) in &runs_of {
            let more = runs_of
                .iter()
                .filter(|(other, more)| *more > runs && set.is_subset(other));
            let whole = more.max_by_key(|(_, runs)| **runs);
            whole_of.insert(set, whole.map_or(set, |(other, _)| *other));
        }
        let mut numbers: BTreeMap<&BTreeSet<String>, u64> = BTreeMap::new();
        let mut result = vec![];
        for (run, set) in self.runs.iter().zip(&sets) {
            result.push(match (run.sub_experiment, set) {
                (Some(number), _) => number,
                (None, Some(set)) => {
                    let next = numbers.len() as u64;
                    *numbers.entry(whole_of[set]).or_insert(next)
                }
                (None, None) => 0,
            });
        }
        result
    }
}
