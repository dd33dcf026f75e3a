//! The events that a CPU can count, and what follows from them: the files of one CPU's table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counters::CounterMask;
use crate::entry::{Entry, Text};
use crate::finding::Finding;
use crate::json;
use crate::{CounterSet, EventId};
use cloison_metrics::Metric;
use std::path::{Path, PathBuf};
use strum::{EnumString, IntoStaticStr, VariantNames};

/// What a budget of an event limits, whatever the guest does: the only place that says so is the
/// event's table.
///
/// An event without this is no bound: the guest can reach memory without it.
#[derive(Clone, Copy, Debug, EnumString, Eq, IntoStaticStr, PartialEq, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Bounds {
    /// All of the core's memory traffic.
    Traffic,
    /// What the core reads; a second budget has to bound what it writes.
    Reads,
    /// What the core writes; a second budget has to bound what it reads.
    Writes,
    /// What the core executes, hence its traffic too, but only as far as the costliest instructions
    /// allow.
    Work,
}

impl Bounds {
    /// Returns the word for it in the files.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns whether budgets of events that bound `those` together bound all of a core's memory
    /// traffic.
    pub fn suffice(those: &[Self]) -> bool {
        let has = |one| those.contains(&one);
        has(Self::Traffic) || has(Self::Work) || (has(Self::Reads) && has(Self::Writes))
    }
}

/// A PMU event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number in the PMU.
    pub id: EventId,
    /// Its architectural name.
    pub name: String,
    /// What it counts, in one line.
    pub meaning: String,
    /// What it counts, at length.
    pub detail: Option<String>,
    /// What it is about: the name of its file.
    pub topic: String,
    /// The counters that can count it.
    pub counters: CounterSet,
    /// What a budget of it limits, if anything.
    pub bounds: Option<Bounds>,
    /// Bytes that one event stands for, if each stands for as many.
    pub bytes: Option<u32>,
}

/// The events of one CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventTable {
    /// Name of the CPU.
    pub cpu: String,
    /// Its events, by number.
    pub events: Vec<Event>,
    /// What can be computed from them.
    pub metrics: Vec<Metric>,
}

/// A file of a table, with what its caller knows it by.
#[derive(Debug)]
pub struct Source<'a, F> {
    /// The caller's file, for findings.
    pub file: &'a F,
    /// What its events are about.
    pub topic: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// Returns the files of the table in a folder, by name.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect();
    files.sort();
    files
}

/// Returns the files of the architecture's events, which the table in a folder names by
/// `ArchStdEvent`: those beside the folder, or beside its vendor's folder (`arm/cortex-a53`).
pub fn standard_files_of(folder: &Path) -> Vec<PathBuf> {
    let above = folder.ancestors().skip(1).take(2);
    above
        .map(files_of)
        .find(|files| !files.is_empty())
        .unwrap_or_default()
}

impl EventTable {
    /// Returns the event with this number.
    pub fn by_id(&self, id: EventId) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }

    /// Returns the event with this name.
    pub fn by_name(&self, name: &str) -> Option<&Event> {
        self.events.iter().find(|event| event.name == name)
    }

    /// Returns the events whose budget bounds all of a core's memory traffic by itself and as
    /// exactly as can be.
    pub fn bounding_traffic(&self) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(|event| event.bounds == Some(Bounds::Traffic))
    }

    /// Reads a CPU's table: the files of the architecture's events, if there are any, and its own
    /// files. `report` gets what is wrong. An entry with a warning may be left out; after an error,
    /// the table is not what was meant.
    pub fn read<F>(
        cpu: &str,
        standard: &[Source<'_, F>],
        sources: &[Source<'_, F>],
        report: &mut dyn FnMut(&F, Finding),
    ) -> Self {
        let standard: Vec<Entry> = standard
            .iter()
            .flat_map(|Source { file, text, .. }| {
                json::read(text, &mut |finding| report(file, finding))
            })
            .collect();
        let mut table = Self {
            cpu: cpu.to_owned(),
            ..Self::default()
        };
        let mut metrics = Vec::new();
        for Source { file, topic, text } in sources {
            let entries = json::read(text, &mut |finding| report(file, finding));
            for entry in entries {
                if let Some(metric) = metric_of(&entry, &standard) {
                    metrics.push((file, metric));
                } else if let Some(event) = table.event(&entry, &standard, topic, &mut |finding| {
                    report(file, finding)
                }) {
                    table.events.push(event);
                }
            }
        }
        table.events.sort_by_key(|event| event.id);
        for (file, entry) in metrics {
            match table.metric(&entry) {
                Ok(metric) => table.metrics.push(metric),
                Err(finding) => report(file, *finding),
            }
        }
        table
    }

    /// Returns an entry's event, unless something is wrong with it.
    fn event(
        &self,
        entry: &Entry,
        standard: &[Entry],
        topic: &str,
        report: &mut dyn FnMut(Finding),
    ) -> Option<Event> {
        let own = Entry::default();
        let of = match &entry.standard {
            None => &own,
            Some(Text { text, span }) => {
                let found = standard
                    .iter()
                    .find(|other| other.name.as_ref().is_some_and(|name| name.text == *text));
                let known = standard
                    .iter()
                    .filter_map(|other| other.name.as_ref().map(|name| name.text.as_str()));
                found.or_else(|| {
                    let field = format!("{}.ArchStdEvent", entry.path);
                    let message = format!("left out: there is no event `{text}`");
                    report(
                        Finding::error(field, span.clone(), message)
                            .warning()
                            .label("unknown event")
                            .unknown(text, known)
                            .help("the .json files beside the CPUs' folders have the events of the architecture"),
                    );
                    None
                })?
            }
        };
        let name = entry.name.as_ref().or(of.name.as_ref())?;
        let id = entry.id.or(of.id)?;
        let brief = entry.brief.as_ref().or(of.brief.as_ref());
        let public = entry.public.as_ref().or(of.public.as_ref());
        let already = match (self.by_id(id), self.by_name(&name.text)) {
            (Some(other), _) => Some(format!("{id} is {} already", other.name)),
            (_, Some(other)) => Some(format!("{} has the number {} already", name.text, other.id)),
            _ => None,
        };
        if let Some(already) = already {
            let message = format!("left out: {already}");
            let again = Finding::error(entry.path.as_str(), entry.span.clone(), message);
            let help = "give every event one entry";
            report(again.warning().label("this entry").help(help));
            return None;
        }
        let bounds = entry.bounds.as_ref().and_then(|Text { text, span }| {
            let known = text.parse().ok();
            if known.is_none() {
                let field = format!("{}.Bounds", entry.path);
                let words = Bounds::VARIANTS;
                report(
                    Finding::error(field, span.clone(), format!("unknown bound `{text}`"))
                        .label("unknown")
                        .unknown(text, words.iter().copied())
                        .help(format!("bounds: {}", words.join(", "))),
                );
            }
            known
        });
        let bytes = entry.bytes.as_ref().and_then(|Text { text, span }| {
            let bytes = text.parse().ok().filter(|bytes| (1..=4096).contains(bytes));
            if bytes.is_none() {
                let path = format!("{}.Bytes", entry.path);
                let message = format!("`{text}` is not a number of bytes");
                report(
                    Finding::error(path, span.clone(), message)
                        .label("1 to 4096")
                        .help("write what one event moves, as text: \"64\""),
                );
            }
            bytes
        });
        Some(Event {
            id,
            name: name.text.clone(),
            // Some tables say no more than the name.
            meaning: brief.or(public).unwrap_or(name).text.clone(),
            detail: public.map(|text| text.text.clone()),
            topic: topic.to_owned(),
            counters: entry
                .mask
                .or(of.mask)
                .map_or(CounterSet::ALL, CounterMask::able),
            bounds,
            bytes,
        })
    }

    fn metric(&self, entry: &Entry) -> Result<Metric, Box<Finding>> {
        let error = |key: &str, text: &Text, message: String| {
            let message = format!("left out: {message}");
            Finding::error(format!("{}.{key}", entry.path), text.span.clone(), message).warning()
        };
        let (Some(name), Some(expression)) = (&entry.metric, &entry.expression) else {
            let message = "left out: not a metric";
            let finding = Finding::error(entry.path.as_str(), entry.span.clone(), message);
            return Err(finding.warning().into());
        };
        if self.metrics.iter().any(|other| other.name == name.text) {
            return Err(error(
                "MetricName",
                name,
                format!("there are two metrics `{}`", name.text),
            )
            .label("again")
            .help("rename one")
            .into());
        }
        let meaning = entry
            .brief
            .as_ref()
            .or(entry.public.as_ref())
            .map_or("", |text| text.text.as_str());
        let scale = entry.scale.as_ref().map(|scale| scale.text.as_str());
        let metric =
            Metric::new(&name.text, &expression.text, meaning, scale).map_err(|wrong| {
                let (key, text) = if wrong.in_scale {
                    ("ScaleUnit", entry.scale.as_ref())
                } else {
                    ("MetricExpr", None)
                };
                error(key, text.unwrap_or(expression), wrong.message)
                    .label("here")
                    .help("a metric is arithmetic with names of events: + - * / and brackets")
            })?;
        match metric
            .events()
            .iter()
            .find(|event| self.by_name(event).is_none())
        {
            None => Ok(metric),
            Some(unknown) => {
                let known = self.events.iter().map(|event| event.name.as_str());
                Err(error(
                    "MetricExpr",
                    expression,
                    format!("the {} has no event `{unknown}`", self.cpu),
                )
                .label("unknown event")
                .unknown(unknown, known)
                .help(format!(
                    "`cloison events list --cpu {}` lists its events",
                    self.cpu
                ))
                .into())
            }
        }
    }
}

/// Returns an entry that is a metric, or that names one of the architecture by `ArchStdEvent`, with
/// that one's fields where it has none.
fn metric_of(entry: &Entry, standard: &[Entry]) -> Option<Entry> {
    if entry.metric.is_some() {
        return Some(entry.clone());
    }
    let Text { text, span } = entry.standard.as_ref()?;
    let is_named = |other: &&Entry| other.metric.as_ref().is_some_and(|name| name.text == *text);
    let of = standard.iter().find(is_named)?;
    // Places are those of the entry: the architecture's are in another file.
    let placed = |text: &Option<Text>| {
        text.as_ref().map(|text| Text {
            text: text.text.clone(),
            span: span.clone(),
        })
    };
    Some(Entry {
        metric: placed(&of.metric),
        expression: entry.expression.clone().or(placed(&of.expression)),
        scale: entry.scale.clone().or(placed(&of.scale)),
        brief: entry.brief.clone().or(placed(&of.brief)),
        public: entry.public.clone().or(placed(&of.public)),
        ..entry.clone()
    })
}
