//! Information about an event: its names, its native events, and whether its counts can be trusted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine};
use crate::cpu::{Closeness, Cpu};
use crate::error::Error;
use crate::preset;
use crate::set::{EventSet, state};
use crate::tables::{self, Verdict};
use crate::terms::{self, Terms};

/// An event that the CPU has.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its code.
    pub code: i32,
    /// Its name.
    pub name: &'static str,
    /// What it counts.
    pub meaning: &'static str,
    /// Its native events, and how close their sum is to the meaning of the name.
    pub terms: Terms,
    /// The number of runs that count it once, with the available counters; 0: none of them can
    /// count it.
    pub runs: u32,
}

/// Returns an event by its name: a preset's, or a native event's with or without the name of the
/// PMU before it (`arm_ac53::INST_RETIRED`). Case does not matter.
///
/// # Errors
/// [`Error::NoEvent`] if neither PAPI nor the CPU has such an event.
pub fn code_of(cpu: &Cpu, name: &str) -> Result<i32, Error> {
    if let Some(preset) = preset::ALL
        .iter()
        .find(|preset| preset.name.eq_ignore_ascii_case(name))
    {
        return Ok(preset.code);
    }
    let native = match name.split_once("::") {
        Some((pmu, native)) if pmu.eq_ignore_ascii_case(cpu.pmu) => native,
        Some(_) => return Err(Error::NoEvent),
        None => name,
    };
    let found = cpu
        .natives
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(native))
        .ok_or(Error::NoEvent)?;
    Ok(terms::native_code(found.id))
}

/// Returns an event's name. A preset has one whether the CPU counts it or not.
///
/// # Errors
/// [`Error::NotPreset`] or [`Error::NoEvent`] if there is none.
pub fn name_of(cpu: &Cpu, code: i32) -> Result<&'static str, Error> {
    if terms::is_preset(code) {
        return preset::by_code(code)
            .map(|preset| preset.name)
            .ok_or(Error::NotPreset);
    }
    terms::native_event(code)
        .and_then(|event| cpu.native(event))
        .map(|native| native.name)
        .ok_or(Error::NoEvent)
}

/// Returns information about an event.
///
/// # Errors
///
/// [`Error::NotPreset`] or [`Error::NoEvent`] if the CPU does not have it.
pub fn info(machine: &Machine, counters: &impl Counters, code: i32) -> Result<Info, Error> {
    let terms = terms::of(machine.cpu, code)?;
    let meaning = match preset::by_code(code) {
        Some(preset) => preset.meaning,
        None => terms
            .as_slice()
            .first()
            .and_then(|term| machine.cpu.native(term.event))
            .map_or("", |it| it.meaning),
    };
    let mut turns = EventSet::NEW;
    turns.state |= state::PAPI_MULTIPLEXING;
    let runs = turns
        .add(code, machine, counters)
        .map_or(0, |()| u32::from(turns.groups));
    Ok(Info {
        code,
        name: name_of(machine.cpu, code)?,
        meaning,
        terms,
        runs,
    })
}

/// Returns the worst verdict on an event's native events, on a machine of
/// configs/validation/verdicts, such as `virt-model`.
///
/// # Errors
///
/// [`Error::NotPreset`] or [`Error::NoEvent`] if the CPU does not have the event,
/// [`Error::Invalid`] if it was not validated on such a machine.
pub fn verdict(cpu: &Cpu, code: i32, machine: &str) -> Result<Verdict, Error> {
    let terms = terms::of(cpu, code)?;
    let mut worst = Verdict::Trusted;
    for term in terms.as_slice() {
        worst = worst.max(tables::verdict(machine, cpu.name, term.event).ok_or(Error::Invalid)?);
    }
    Ok(worst)
}

impl Closeness {
    /// Returns a word for it: `exact`, `over`, `near`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Over => "over",
            Self::Near => "near",
        }
    }
}
