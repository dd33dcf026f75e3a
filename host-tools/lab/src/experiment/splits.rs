//! The parts of runs that can be rows of a table: cores with a budget, wake-up latencies, printed
//! numbers, and pages and groups of a profile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::expression::{Refusal, Value};
use super::measured::Measured;
use super::{printed, profiled};
use std::collections::BTreeSet;

/// A part of a run, or of all of them: the run's index, and the part's values by name.
pub type Part = (Option<usize>, Fields);

/// The values of a part, by name.
type Fields = Vec<(String, Value)>;

/// The kinds of parts; `curve` has the start of the numbers' names after it.
const KINDS: [&str; 7] = [
    "core",
    "latency",
    "printed",
    "means",
    "curve NAME_",
    "group",
    "page",
];

/// Returns the parts of runs, of this kind.
///
/// # Errors
/// If there is no such kind.
pub fn split(kind: &str, runs: &[(usize, &Measured)]) -> Result<Vec<Part>, Refusal> {
    let of: fn(&Measured, &str) -> Vec<Fields> = match kind {
        "latency" => return Ok(latencies(runs)),
        "core" => cores,
        "printed" => numbers,
        "means" => means,
        "group" => groups,
        "page" => pages,
        _ if kind.starts_with("curve ") => curve,
        _ => return Err(Refusal::unknown("part of a run", kind, "parts", KINDS)),
    };
    let parts = |(index, run): &(usize, &Measured)| {
        let index = *index;
        of(run, kind)
            .into_iter()
            .map(move |fields| (Some(index), fields))
    };
    Ok(runs.iter().flat_map(parts).collect())
}

fn fields<const N: usize>(all: [(&str, Value); N]) -> Vec<(String, Value)> {
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns each core that a budget limits.
fn cores(run: &Measured, _: &str) -> Vec<Fields> {
    let core = |quota: &super::measured::QuotaOutcome| {
        let by = if quota.by_interrupt {
            "interrupt"
        } else {
            "polling"
        };
        fields([
            ("core", Value::Count(quota.core.into())),
            ("enforced_by", Value::Text(by.to_owned())),
            ("periods", Value::Count(quota.periods)),
            ("throttled_periods", Value::Count(quota.throttled_periods)),
            ("events", Value::Count(quota.events)),
            ("overshoot_max", Value::Count(quota.max_overshoot)),
            ("overshoot", Value::Count(quota.overshoot)),
        ])
    };
    run.quotas.iter().map(core).collect()
}

/// Returns each latency that occurs in any of the runs, with the wake-ups of each variant.
fn latencies(runs: &[(usize, &Measured)]) -> Vec<Part> {
    let found = || {
        runs.iter()
            .filter_map(|(_, run)| Some((&run.variant, run.latencies.as_ref()?)))
    };
    let all: BTreeSet<u64> = found()
        .flat_map(|(_, found)| found.histogram.keys().copied())
        .collect();
    let part = |latency: u64| {
        let mut fields = fields([("latency_us", Value::Count(latency))]);
        for (variant, found) in found() {
            let count = found.histogram.get(&latency).copied().unwrap_or(0);
            fields.push((format!("wakeups_{variant}"), Value::Count(count)));
        }
        (None, fields)
    };
    all.into_iter().map(part).collect()
}

/// Returns each printed number.
fn numbers(run: &Measured, _: &str) -> Vec<Fields> {
    let all = run.printed.iter().flatten();
    let numbers = all.flat_map(|(name, numbers)| numbers.iter().map(move |it| (name, *it)));
    let part = |(name, number): (&String, f64)| {
        fields([
            ("name", Value::Text(name.clone())),
            ("number", Value::Number(number)),
        ])
    };
    numbers.map(part).collect()
}

/// Returns the mean of each printed name, with the name without a number at its end, and that
/// number.
fn means(run: &Measured, _: &str) -> Vec<Fields> {
    let all = run.printed.iter();
    let means = all.flat_map(|all| {
        all.keys()
            .filter_map(|name| Some((name, printed::mean(all, name)?)))
    });
    let part = |(name, mean): (&String, f64)| {
        let numbered = name
            .rsplit_once('_')
            .filter(|(_, end)| end.parse::<u32>().is_ok());
        let stem = numbered.map_or(name.as_str(), |(stem, _)| stem);
        let number = numbered.and_then(|(_, end)| end.parse().ok());
        fields([
            ("name", Value::Text(name.clone())),
            ("stem", Value::Text(stem.to_owned())),
            ("number", number.map_or(Value::Missing, Value::Count)),
            ("mean", Value::Number(mean)),
        ])
    };
    means.map(part).collect()
}

/// Returns the means of the numbers whose names differ in the number at their end, by that number.
fn curve(run: &Measured, kind: &str) -> Vec<Fields> {
    let points = points(run, kind.trim_start_matches("curve "));
    let first = points.first().map_or(1.0, |first| first.1);
    let part = |(number, mean): (u32, f64)| {
        fields([
            ("number", Value::Count(number.into())),
            ("mean", Value::Number(mean)),
            ("of_first", Value::Number(mean / first)),
        ])
    };
    points.into_iter().map(part).collect()
}

/// Returns the numbers at the end of the names with this start, each with the mean of its printed
/// numbers.
pub fn points(run: &Measured, start: &str) -> Vec<(u32, f64)> {
    let Some(all) = &run.printed else {
        return vec![];
    };
    let point = |name: &String| {
        let number: u32 = name.strip_prefix(start)?.parse().ok()?;
        Some((number, printed::mean(all, name)?))
    };
    let mut points: Vec<(u32, f64)> = all.keys().filter_map(point).collect();
    points.sort_by_key(|point| point.0);
    points
}

/// The names of a profile's facts besides its pages.
pub const OF_PROFILE: [&str; 5] = [
    "profiled_pages",
    "others_cycles",
    "none_cycles",
    "all_cycles",
    "tracing_cycles",
];

/// Returns a fact of a run's profile, by one of [`OF_PROFILE`]'s names.
pub fn of_profile(run: &Measured, name: &str) -> Option<Value> {
    let profile = profiled::read(run.profile.as_ref()?).ok()?;
    let times = match name {
        "profiled_pages" => return Some(Value::Count(profile.pages() as u64)),
        "others_cycles" => {
            let others = profiled::staircase(&profile)?.others;
            let sum = others.iter().sum::<f64>();
            return (!others.is_empty()).then(|| Value::Number(sum / others.len() as f64));
        }
        "none_cycles" => profile.baseline.none,
        "all_cycles" => profile.baseline.all,
        _ => profile.baseline.tracing,
    };
    Some(Value::Number(times?.mean))
}

fn staircase(run: &Measured) -> Option<profiled::Staircase> {
    profiled::staircase(&profiled::read(run.profile.as_ref()?).ok()?)
}

/// Returns each group of the staircase's pages.
fn groups(run: &Measured, _: &str) -> Vec<Fields> {
    let Some(found) = staircase(run) else {
        return vec![];
    };
    let first = found.groups[0].mean;
    let group = |(index, group): (usize, &profiled::Group)| {
        fields([
            ("group", Value::Count(index as u64 + 1)),
            ("mean", Value::Number(group.mean)),
            ("min", Value::Number(group.min)),
            ("max", Value::Number(group.max)),
            ("relative", Value::Number(group.mean / first)),
            ("relative_min", Value::Number(group.min / first)),
            ("relative_max", Value::Number(group.max / first)),
        ])
    };
    found.groups.iter().enumerate().map(group).collect()
}

/// Returns each page of the staircase.
fn pages(run: &Measured, _: &str) -> Vec<Fields> {
    let Some(found) = staircase(run) else {
        return vec![];
    };
    let first = found.groups[0].mean;
    let page = |(index, importance): (usize, &f64)| {
        fields([
            ("page", Value::Count(index as u64)),
            ("importance", Value::Number(*importance)),
            ("relative", Value::Number(importance / first)),
        ])
    };
    found.pages.iter().enumerate().map(page).collect()
}
