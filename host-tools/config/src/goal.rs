//! What a VM must reach: a tolerance, a deadline or best effort, and what `tune` may change for it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Presence, Table};
use crate::quantity::Malformed;
use cloison_abi::services;
use cloison_formats::image::{Backing, PoolKind, Region};
use cloison_formats::units::Nanos;
use std::fmt;
use std::ops::Range;

/// Largest tolerance, in thousandths: a VM that may take longer has no requirement.
const LARGEST_TOLERANCE: u64 = 100_000;
const TOLERANCE_HELP: &str = "write how many times as long as alone with the whole cache the VM \
                              may take: tolerance = \"1.10\"";
const SEGMENT_HELP: &str = "write the numbers that the guest gives to segment_begin, \
                            \"WORKLOAD\" or \"WORKLOAD/SUB\", or \"any\": segment = \"0\"";

/// What a VM must reach beside its neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Its segments take at most this many thousandths of their time alone with the whole cache.
    Tolerance(u64),
    /// Each of its segments takes at most this long.
    Deadline(Nanos),
    /// As much as the other VMs' requirements allow.
    BestEffort,
}

/// Which observation segments a requirement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// All that the VM logs.
    Any,
    /// Those with the guest's number of a workload.
    Workload(u32),
    /// Those with the numbers of a workload and of a sub-experiment.
    SubExperiment(u32, u32),
}

impl Segments {
    /// Returns whether a segment with these numbers is one of them.
    pub const fn has(self, workload: u32, sub_experiment: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Workload(wanted) => wanted == workload,
            Self::SubExperiment(wanted, sub) => wanted == workload && sub == sub_experiment,
        }
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Workload(workload) => write!(f, "{workload}"),
            Self::SubExperiment(workload, sub) => write!(f, "{workload}/{sub}"),
        }
    }
}

/// What `tune` may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// Which and how many colors hold the VM's memory.
    Colors,
    /// How many pages of its profile are private.
    Pages,
    /// The budgets of its cores.
    Budgets,
}

/// The fields of a VM that say what it must reach.
pub const FIELDS: [&str; 3] = ["tolerance", "deadline", "best_effort"];

/// All knobs, by the words for them.
pub const KNOBS: [(&str, Knob); 3] = [
    ("colors", Knob::Colors),
    ("pages", Knob::Pages),
    ("budgets", Knob::Budgets),
];

/// A VM's goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What it must reach.
    pub requirement: Requirement,
    /// The segments that the requirement is about.
    pub segments: Segments,
    /// What `tune` may change; all else stays as it is written. Sorted.
    pub knobs: Vec<Knob>,
    /// Where the configuration states the requirement.
    pub span: Range<usize>,
}

/// The properties of a VM that limit what can be changed for it.
pub(crate) struct Subject<'a> {
    /// Its granted services.
    pub services: u32,
    pub regions: &'a [Region],
    /// The kind of each pool.
    pub kinds: &'a [PoolKind],
}

/// Reads the fields of a goal; `None` where there is none, or where it is wrong, which is recorded.
pub(crate) fn read(table: &Table<'_>, subject: &Subject<'_>) -> Option<Goal> {
    let tolerance = table.value("tolerance", read_tolerance);
    let deadline = table.value("deadline", Field::duration);
    let best_effort = table.value("best_effort", Field::boolean);
    let segment = table.value("segment", read_segments);
    let tune = table.value("tune", |field| {
        field.each(|element| element.one_of("knob", &KNOBS))
    });
    check_exclusive(table);
    let requirement = match (&tolerance, &deadline, &best_effort) {
        (Presence::Given(given), Presence::Absent, _) => {
            Some((Requirement::Tolerance(given.value), given.field.clone()))
        }
        (Presence::Absent, Presence::Given(given), _) => {
            Some((Requirement::Deadline(given.value), given.field.clone()))
        }
        (Presence::Absent, Presence::Absent, Presence::Given(given)) if given.value => {
            Some((Requirement::BestEffort, given.field.clone()))
        }
        _ => None,
    };
    let is_wrong = matches!(tolerance, Presence::Wrong)
        || matches!(deadline, Presence::Wrong)
        || matches!(best_effort, Presence::Wrong);
    let Some((requirement, field)) = requirement else {
        if !is_wrong {
            check_without_requirement(table);
        }
        return None;
    };
    check_segments(table, &field, requirement, &segment, subject);
    let mut knobs = tune.or(Vec::new())?;
    knobs.sort_unstable();
    knobs.dedup();
    check_knobs(table, &knobs, subject);
    Some(Goal {
        requirement,
        segments: segment.or(Segments::Any)?,
        knobs,
        span: field.span(),
    })
}

/// Reads a slowdown with at most three decimals, as thousandths.
fn read_tolerance(field: &Field<'_>) -> Option<u64> {
    let text = field.string("a slowdown: \"1.10\"")?;
    let malformed = |message: String| {
        field.malformed(Malformed {
            at: 0..text.len(),
            message,
            help: TOLERANCE_HELP.to_owned(),
        });
    };
    let Some(thousandths) = thousandths(text) else {
        malformed(format!(
            "`{text}` is not a number with at most three decimals"
        ));
        return None;
    };
    if thousandths < 1000 {
        malformed(format!(
            "a tolerance of {text} is below 1: no VM is faster than alone with the whole cache"
        ));
        return None;
    }
    if thousandths > LARGEST_TOLERANCE {
        malformed(format!(
            "a tolerance of {text} is more than {}",
            LARGEST_TOLERANCE / 1000
        ));
        return None;
    }
    Some(thousandths)
}

fn thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(decimals)
}

fn read_segments(field: &Field<'_>) -> Option<Segments> {
    let text = field.string("a segment: \"0\"")?;
    if text == "any" {
        return Some(Segments::Any);
    }
    let parsed = match text.split_once('/') {
        None => text.parse().ok().map(Segments::Workload),
        Some((workload, sub)) => workload
            .parse()
            .ok()
            .zip(sub.parse().ok())
            .map(|(workload, sub)| Segments::SubExperiment(workload, sub)),
    };
    if parsed.is_none() {
        field.malformed(Malformed {
            at: 0..text.len(),
            message: format!("`{text}` names no segment"),
            help: SEGMENT_HELP.to_owned(),
        });
    }
    parsed
}

/// Checks that a VM has one requirement at most.
fn check_exclusive(table: &Table<'_>) {
    let (tolerance, deadline) = (table.optional("tolerance"), table.optional("deadline"));
    if let (Some(first), Some(second)) = (&tolerance, &deadline) {
        second.push(
            second
                .error("the VM has a tolerance and a deadline")
                .label("not with `tolerance`")
                .also(first.span(), "the tolerance")
                .help("leave one of the two out"),
        );
    }
    let bound = tolerance.or(deadline);
    if let (Some(field), Some(bound)) = (table.optional("best_effort"), bound) {
        field.push(
            field
                .error(format!(
                    "a VM with a {} is not one of best effort",
                    bound.name()
                ))
                .label("one of the two")
                .also(bound.span(), "what it must reach")
                .help("leave `best_effort` out, or the requirement"),
        );
    }
}

/// Records what only makes sense with a requirement.
fn check_without_requirement(table: &Table<'_>) {
    if table.optional("tolerance").is_some() || table.optional("deadline").is_some() {
        return;
    }
    for key in ["segment", "tune"] {
        if let Some(field) = table.optional(key) {
            field.push(
                field
                    .error(format!("`{key}` without anything to reach"))
                    .label("nothing to tune for")
                    .help("add tolerance = \"1.10\", deadline = \"16 ms\" or best_effort = true"),
            );
        }
    }
}

/// Checks that the segments of a requirement exist.
fn check_segments(
    table: &Table<'_>,
    field: &Field<'_>,
    requirement: Requirement,
    segment: &Presence<'_, Segments>,
    subject: &Subject<'_>,
) {
    if requirement == Requirement::BestEffort {
        if let Some(segment) = table.optional("segment") {
            let error = segment.error("the throughput of a best-effort VM is not of one segment");
            segment.push(
                error
                    .label("not with `best_effort`")
                    .help("leave it out: all that the VM's cores execute counts"),
            );
        }
        return;
    }
    if matches!(requirement, Requirement::Deadline(_)) && matches!(segment, Presence::Absent) {
        field.push(
            field
                .error("a deadline of no segment")
                .label("of which segment?")
                .help(SEGMENT_HELP),
        );
    }
    if subject.services & services::HEM == 0 {
        field.push(
            field
                .error(format!(
                    "the VM logs no segments, so nothing says how long it takes: `{}` is about \
                     their time",
                    field.name()
                ))
                .label("no service `hem`")
                .help(
                    "give it services = [\"hem\"], and let the guest call segment_begin and \
                     segment_end",
                ),
        );
    }
}

/// Checks that what may be changed is not fixed by other fields.
fn check_knobs(table: &Table<'_>, knobs: &[Knob], subject: &Subject<'_>) {
    let Some(field) = table.optional("tune") else {
        return;
    };
    let has_profile = table.optional("profile").is_some();
    let of_pools = subject
        .regions
        .iter()
        .filter_map(|region| match region.backing {
            Backing::Pool(pool) => Some(pool),
            Backing::Contiguous | Backing::Direct | Backing::Device(_) => None,
        });
    let mut pools: Vec<u8> = of_pools.collect();
    pools.dedup();
    if knobs.contains(&Knob::Pages) && !has_profile {
        field.push(
            field
                .error("\"pages\" may change, but no profile says which pages matter")
                .label("no [vm.profile]")
                .help(
                    "name its file in [vm.profile], or leave \"pages\" out; `tune` makes the file \
                     if there is none",
                ),
        );
    }
    let is_private = pools
        .iter()
        .any(|pool| subject.kinds.get(usize::from(*pool)) == Some(&PoolKind::Pvt));
    if knobs.contains(&Knob::Pages) && !knobs.contains(&Knob::Colors) && is_private {
        field.push(
            field
                .error("\"pages\" may change, but all pages are private already")
                .label("and \"colors\" may not")
                .help(
                    "put the VM's regions into a shared pool, or let \"colors\" change too: tune \
                     = [\"colors\", \"pages\"]",
                ),
        );
    }
    let is_one_pool = pools.len() == 1;
    let moves = knobs.contains(&Knob::Colors) || knobs.contains(&Knob::Pages);
    if moves && !is_one_pool && !subject.regions.is_empty() {
        field.push(
            field
                .error(format!(
                    "\"colors\" or \"pages\" may change, but the VM's memory is in {} pools",
                    pools.len()
                ))
                .label("one pool is needed")
                .help("put all its regions into one pool, or let only \"budgets\" change"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_exact() {
        for (text, wanted) in [
            ("1", Some(1000)),
            ("1.1", Some(1100)),
            ("1.05", Some(1050)),
            ("2.345", Some(2345)),
            ("0.9", Some(900)),
            ("1.2345", None),
            ("", None),
            ("1.", None),
            (".5", None),
            ("-1", None),
            ("1,1", None),
            ("99999999999999999999", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(thousandths(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_segment_is_found_by_its_numbers() {
        assert!(Segments::Any.has(7, 1));
        assert!(Segments::Workload(7).has(7, 1) && !Segments::Workload(7).has(6, 1));
        let sub = Segments::SubExperiment(7, 1);
        assert!(sub.has(7, 1) && !sub.has(7, 2) && !sub.has(6, 1));
        assert_eq!(sub.to_string(), "7/1");
    }
}
