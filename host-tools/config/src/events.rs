//! The events that a CPU can count: `configs/events/<cpu>.toml`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::node::{Context, Field, suggest};
use cloison_formats::units::EventId;
use std::collections::BTreeMap;

/// Whether an event counts on stock QEMU, which has neither caches nor a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// Always.
    Yes,
    /// Only when QEMU counts instructions (`-icount shift=N`).
    Icount,
    /// Never: it stays zero.
    No,
}

/// What a budget of an event limits, whatever the guest does: the only place that says so is the event's table.
///
/// An event without this is no bound: the guest can reach memory without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// All of the core's memory traffic.
    Traffic,
    /// What the core reads; a second budget has to bound what it writes.
    Reads,
    /// What the core writes; a second budget has to bound what it reads.
    Writes,
    /// What the core executes, hence its traffic too, but only as far as the costliest instructions allow.
    Work,
}

impl Bounds {
    /// The words for them in the files.
    const WORDS: [(&str, Self); 4] =
        [("traffic", Self::Traffic), ("reads", Self::Reads), ("writes", Self::Writes), ("work", Self::Work)];

    /// Returns whether budgets of events that bound `those` together bound all of a core's memory traffic.
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
    /// Whether stock QEMU counts it.
    pub qemu: Emulated,
    /// What a budget of it limits, if anything.
    pub bounds: Option<Bounds>,
}

/// The events of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTable {
    /// Name of the CPU.
    pub cpu: String,
    /// Its events, in the order of the file.
    pub events: Vec<Event>,
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

    /// Returns the events whose budget bounds all of a core's memory traffic by itself and as exactly as can be.
    pub fn bounding_traffic(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.bounds == Some(Bounds::Traffic))
    }

    /// Reads the table; problems are recorded in `context`.
    pub(crate) fn read(context: &Context) -> Option<Self> {
        let document = context.parse()?;
        let root = context.root(&document);
        let cpu = root.required("cpu", "name the CPU: cpu = \"cortex-a53\"")?.string("the CPU's name")?;
        let mut table = Self { cpu: cpu.to_owned(), events: Vec::new() };
        root.optional("source").map(|field| field.string("where the list comes from"));
        for mut entry in root.tables("event") {
            let name_field = entry.required("name", "give the event's architectural name: name = \"INST_RETIRED\"");
            let name = name_field.as_ref().and_then(|field| field.string("the event's name"));
            if let Some(name) = name {
                entry.rename(name);
            }
            let number_field = entry.required("number", "give the event's number: number = 0x08");
            let number = number_field.as_ref().and_then(|field| field.integer_up_to(0x3ff, "a number of 10 bits"));
            let meaning = entry
                .required("meaning", "say in one line what it counts")
                .and_then(|field| field.string("one line of text"));
            let qemu = entry
                .required("qemu", "say whether a stock QEMU counts it: qemu = \"yes\", \"icount\" or \"no\"")
                .and_then(|field| {
                    field
                        .one_of("answer", &[("yes", Emulated::Yes), ("icount", Emulated::Icount), ("no", Emulated::No)])
                });
            let bounds = entry.optional("bounds").and_then(|field| field.one_of("bound", &Bounds::WORDS));
            entry.finish();
            let (Some(name), Some(number), Some(meaning), Some(qemu)) = (name, number, meaning, qemu) else { continue };
            let id = EventId(number as u16);
            if let (Some(field), Some(other)) = (&number_field, table.by_id(id)) {
                field.push(
                    field
                        .error(format!("{id} is {} already", other.name))
                        .label("number used twice")
                        .help("give every event one entry"),
                );
            }
            if let (Some(field), Some(other)) = (&name_field, table.by_name(name)) {
                field.push(
                    field
                        .error(format!("{name} has the number {} already", other.id))
                        .label("name used twice")
                        .help("give every event one entry"),
                );
            }
            table.events.push(Event { id, name: name.to_owned(), meaning: meaning.to_owned(), qemu, bounds });
        }
        root.finish();
        (!context.has_errors()).then_some(table)
    }

    /// Returns the event that a field gives by name or number.
    pub(crate) fn resolve(&self, field: &Field<'_>) -> Option<EventId> {
        let text = field.string("an event's name or number: \"INST_RETIRED\", \"0x08\"")?;
        let number = text.strip_prefix("0x").map(|digits| u16::from_str_radix(digits, 16));
        let found = match number {
            Some(Ok(number)) => self.by_id(EventId(number)),
            Some(Err(_)) => None,
            None => self.by_name(text),
        };
        let Some(event) = found else {
            let (message, help) = if number.is_some() {
                (
                    format!("the {} has no event {text}", self.cpu),
                    format!("configs/events/{}.toml lists its events", self.cpu),
                )
            } else {
                let near = suggest(text, "events", self.events.iter().map(|event| event.name.as_str()));
                let help = near.split_once("? ").map_or_else(String::new, |(meant, _)| format!("{meant}? "));
                (
                    format!("the {} has no event `{text}`", self.cpu),
                    format!("{help}configs/events/{}.toml lists its events; a number is written as \"0x17\"", self.cpu),
                )
            };
            field.push(field.error(message).label("unknown event").help(help));
            return None;
        };
        Some(event.id)
    }
}

/// Reads a list of events without duplicates.
pub(crate) fn read_events(field: &Field<'_>, events: &EventTable) -> Vec<EventId> {
    let mut hems = Vec::new();
    for element in field.elements().unwrap_or_default() {
        let Some(event) = events.resolve(&element) else { continue };
        if hems.contains(&event) {
            let name = events.by_id(event).map_or("?", |event| event.name.as_str());
            element.push(
                element
                    .error(format!("{name} is counted twice"))
                    .label("again")
                    .help("list every event once; a counter saved is a counter for another event"),
            );
        } else {
            hems.push(event);
        }
    }
    hems
}

/// Names of PMU events.
#[derive(Clone, Debug, Default)]
pub struct EventNames(BTreeMap<u16, String>);

impl EventNames {
    /// Returns the names in a table.
    pub fn of(table: &EventTable) -> Self {
        Self(table.events.iter().map(|event| (event.id.0, event.name.clone())).collect())
    }
    /// Returns an event's name, or its number if it has none.
    pub fn name(&self, event: EventId) -> String {
        self.0.get(&event.0).cloned().unwrap_or_else(|| event.to_string())
    }
}
