//! The events that CPUs count, and which of them can be trusted: generated from configs/events and configs/validation.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A native event: what a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    /// Its number in the PMU.
    pub number: u16,
    /// Its architectural name.
    pub name: &'static str,
    /// What it counts, in one line.
    pub meaning: &'static str,
    /// A bit that is set: this counter cannot count the event (`CounterMask` of the event table).
    pub mask: u32,
}

/// What is computed from counts: a metric of the event tables, as it is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it is computed from events.
    pub expression: &'static str,
    /// What it says, in one line.
    pub meaning: &'static str,
    /// What its value is multiplied with when it is shown, and its unit: `100%`.
    pub scale: &'static str,
}

/// What `cloison events validate` found out about an event (docs/events.md), from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Verdict {
    /// It counts what its documentation says.
    Trusted = 1,
    /// It does, once the expectation is corrected.
    ExpectationCorrected = 2,
    /// It counts something else, by a known mechanism.
    Corrected = 3,
    /// A factor explains its counts, and nobody knows why.
    Fitted = 4,
    /// Nothing explains its counts, or no benchmark exercises it.
    Quarantined = 5,
    /// It counts nothing, although it should.
    Dead = 6,
    /// The board model does not count it.
    NotModelled = 7,
    /// The CPU has no such event.
    NoEvent = 8,
}

impl Verdict {
    /// Returns the words for it, as docs/events.md has them.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::ExpectationCorrected => "expectation corrected",
            Self::Corrected => "corrected",
            Self::Fitted => "fitted",
            Self::Quarantined => "quarantined",
            Self::Dead => "dead",
            Self::NotModelled => "not modelled",
            Self::NoEvent => "no event",
        }
    }
}

/// A machine on which events were validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The name of its file of verdicts, such as `virt-model`.
    pub name: &'static str,
    pub cpu: &'static str,
    pub verdicts: &'static [(u16, Verdict)],
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
pub(crate) fn verdict(machine: &str, cpu: &str, number: u16) -> Option<Verdict> {
    let machine = MACHINES
        .iter()
        .find(|it| it.name == machine && it.cpu == cpu)?;
    machine
        .verdicts
        .iter()
        .find(|(event, _)| *event == number)
        .map(|(_, verdict)| *verdict)
}

/// Returns the number of the event with this name. For constants: a name that the CPU does not have stops the build.
pub(crate) const fn number_of(table: &[Native], name: &str) -> u16 {
    let mut at = 0;
    while at < table.len() {
        if same(table[at].name.as_bytes(), name.as_bytes()) {
            return table[at].number;
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
