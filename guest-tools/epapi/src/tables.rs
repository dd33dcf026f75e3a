//! The events that CPUs count, and which of them can be trusted: generated from configs/events and
//! configs/validation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_events::{CounterSet, EventId};

pub use cloison_events::Verdict;

/// A native event: what a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    /// Its number in the PMU.
    pub id: EventId,
    /// Its architectural name.
    pub name: &'static str,
    /// Its meaning, in one line.
    pub meaning: &'static str,
    /// The counters that can count it.
    pub counters: CounterSet,
}

/// A metric of the event tables, in their notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its expression over events.
    pub expression: &'static str,
    /// Its meaning, in one line.
    pub meaning: &'static str,
    /// The factor and the unit with which its value is shown: `100%`.
    pub scale: &'static str,
}

/// A machine on which events were validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The name of its file of verdicts, such as `virt-model`.
    pub name: &'static str,
    pub cpu: &'static str,
    pub verdicts: &'static [(EventId, Verdict)],
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// Returns the machines on which a CPU's events were validated.
pub fn machines(cpu: &str) -> impl Iterator<Item = &'static str> {
    MACHINES
        .iter()
        .filter(move |machine| machine.cpu == cpu)
        .map(|machine| machine.name)
}

/// Returns the verdict on an event of a CPU on a machine.
pub(crate) fn verdict(machine: &str, cpu: &str, id: EventId) -> Option<Verdict> {
    let machine = MACHINES
        .iter()
        .find(|it| it.name == machine && it.cpu == cpu)?;
    machine
        .verdicts
        .iter()
        .find(|(event, _)| *event == id)
        .map(|(_, verdict)| *verdict)
}

/// Returns the event with this name. For constants: a name that the CPU does not have
/// stops the build.
pub(crate) const fn event_of(table: &[Native], name: &str) -> EventId {
    let mut at = 0;
    while at < table.len() {
        if same(table[at].name.as_bytes(), name.as_bytes()) {
            return table[at].id;
        }
        at += 1;
    }
    panic!("the CPU has no event of this name")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    one.len() == other.len()
}
