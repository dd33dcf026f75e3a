//! Judges events: whether one counts what it should, in every benchmark.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counts::Counts;
use super::hypothesis::{Hypothesis, Kind};
use super::manifest::{
    Benchmark, CPU_MHZ, EXECUTED, Expectation, IN_THE_CODE, Manifest, Tolerance, counted,
};
use super::sample::Sample;
use cloison_events::Verdict;
use cloison_metrics::Formula;
use std::fmt;

/// The verdict on one event, and why.
#[derive(Clone, Debug)]
pub struct Judgment {
    /// The event's name.
    pub event: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The event's count as a formula, if one explains every benchmark.
    pub counts: Option<String>,
    /// The reason, in a sentence.
    pub because: String,
    /// The expectation and the counts of each benchmark.
    pub evidence: Vec<Evidence>,
    /// The explanations that were tried after the documentation's, with the result of each.
    pub tried: Vec<Explanation>,
    /// Quantities of the explanation that no benchmark shows to be counted.
    pub unexercised: Vec<String>,
}

/// The evidence of one benchmark about an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The benchmark's name.
    pub benchmark: String,
    /// The expected count by its documentation.
    pub expected: f64,
    /// The count by the accepted explanation, or by the documentation if there is none: the mean of
    /// all runs.
    pub explained: f64,
    /// The counts.
    pub sample: Sample,
    /// The run that is furthest from what the explanation makes expect of it.
    pub furthest: Comparison,
    /// Whether every run is close enough to what the explanation makes expect of it.
    pub agrees: bool,
}

/// What an explanation makes expect of a run, and what the run counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The expected count.
    pub expected: f64,
    /// The count.
    pub counted: f64,
}

/// An explanation that was tried.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The event's count, as a formula.
    pub counts: String,
    /// The claim of the explanation.
    pub kind: Kind,
    /// Its result.
    pub outcome: Outcome,
}

/// The result of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It explains every benchmark, and every part of it is needed.
    Explains,
    /// It does not explain this benchmark.
    Fails {
        /// The benchmark's name.
        benchmark: String,
        /// What it makes expect; not a number if it needs what was not counted.
        expected: f64,
        /// The count that is furthest from that.
        counted: f64,
    },
    /// It explains every benchmark, but also without this quantity: no benchmark shows that it is
    /// counted.
    Unproven(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explains => f.write_str("explains every benchmark"),
            Self::Fails {
                benchmark,
                expected,
                ..
            } if expected.is_nan() => {
                write!(
                    f,
                    "does not explain {benchmark}: what it needs was not counted"
                )
            }
            Self::Fails {
                benchmark,
                expected,
                counted,
            } => {
                write!(
                    f,
                    "does not explain {benchmark}: {expected} expected, {counted} counted"
                )
            }
            Self::Unproven(name) => {
                write!(f, "unproven: no benchmark shows that `{name}` is counted")
            }
        }
    }
}

/// A benchmark that counts an event.
struct Measurement<'a> {
    benchmark: &'a Benchmark,
    /// The event's name.
    event: &'a str,
    /// The event's counts in it.
    sample: Sample,
    /// The counts of all events, and their machine.
    counts: &'a Counts,
}

impl Comparison {
    /// Returns by how much more was counted than expected, as a part of that.
    pub fn excess(self) -> f64 {
        (self.counted - self.expected) / self.expected.abs().max(1.0)
    }
}

impl Measurement<'_> {
    /// Returns a quantity of the benchmark, of the machine, or of what another event counted: in
    /// the event's run of this number, if both were counted in it, and else as a mean of all.
    fn quantity(&self, name: &str, run: usize) -> Option<f64> {
        if name == CPU_MHZ {
            return self.counts.cpu_mhz.map(|mhz| mhz as f64);
        }
        let Some(other) = counted(name) else {
            return self.benchmark.quantity(name);
        };
        let benchmark = &self.benchmark.name;
        match self.counts.beside(benchmark, self.event, run, other) {
            Some(count) => Some(count as f64),
            None => Sample::of(self.counts.of(benchmark, other)).map(|sample| sample.mean),
        }
    }

    /// Returns each run with what a formula makes expect of it: no event counts less than nothing.
    /// `missing` is a quantity to be taken as 0.
    fn runs(
        &self,
        formula: &Formula,
        missing: Option<&str>,
    ) -> impl ExactSizeIterator<Item = Comparison> {
        let counts = self.counts.of(&self.benchmark.name, self.event);
        counts.iter().enumerate().map(move |(run, count)| {
            let quantity = |name: &str| match missing {
                Some(missing) if missing == name => Some(0.0),
                _ => self.quantity(name, run),
            };
            // A quantity is missing if another event was not counted; nothing agrees with NaN.
            let expected = formula
                .value(quantity)
                .map_or(f64::NAN, |value| value.max(0.0));
            Comparison {
                expected,
                counted: *count as f64,
            }
        })
    }

    /// Returns what a formula makes expect, as the mean of all runs.
    fn value(&self, formula: &Formula) -> f64 {
        let runs = self.runs(formula, None);
        let number = runs.len() as f64;
        runs.map(|run| run.expected).sum::<f64>() / number
    }

    /// Returns the run that is furthest from what a formula makes expect of it.
    fn furthest(&self, formula: &Formula, missing: Option<&str>) -> Comparison {
        let nothing = Comparison {
            expected: f64::NAN,
            counted: f64::NAN,
        };
        self.runs(formula, missing)
            .max_by(|a, b| a.excess().abs().total_cmp(&b.excess().abs()))
            .unwrap_or(nothing)
    }
}

/// All benchmarks that count an event.
type Samples<'a> = [Measurement<'a>];

/// Judges every event of the manifest that was measured. `is_counted` returns whether the machine
/// claims to count an event.
pub fn judge(
    manifest: &Manifest,
    hypotheses: &[Hypothesis],
    counts: &Counts,
    is_counted: impl Fn(&str) -> bool,
) -> Vec<Judgment> {
    let judged = manifest.events.iter().filter_map(|expectation| {
        let event = &expectation.event;
        if counts.cpu_mhz.is_none()
            && expectation
                .counts
                .names()
                .iter()
                .any(|name| name == CPU_MHZ)
        {
            return None;
        }
        let derivable = manifest
            .benchmarks
            .iter()
            .filter(|benchmark| benchmark.derives(expectation));
        let samples = derivable.filter_map(|benchmark| {
            let sample = Sample::of(counts.of(&benchmark.name, event))?;
            Some(Measurement {
                benchmark,
                event,
                sample,
                counts,
            })
        });
        let samples: Vec<_> = samples.collect();
        let own: Vec<&Hypothesis> = hypotheses
            .iter()
            .filter(|hypothesis| hypothesis.event == *event)
            .collect();
        (!samples.is_empty()).then(|| judge_event(expectation, &own, &samples, is_counted(event)))
    });
    judged.collect()
}

/// Returns the benchmark that disagrees the most with a formula, if one does.
fn refuted(formula: &Formula, tolerance: Tolerance, samples: &Samples<'_>) -> Option<Outcome> {
    let gaps = samples.iter().filter_map(|measured| {
        let furthest = measured.furthest(formula, None);
        let Comparison { expected, counted } = furthest;
        let outcome = Outcome::Fails {
            benchmark: measured.benchmark.name.clone(),
            expected,
            counted,
        };
        (!tolerance.accepts(expected, counted)).then_some((furthest.excess().abs(), outcome))
    });
    gaps.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, outcome)| outcome)
}

/// Returns the quantities without which the formula explains every benchmark as well.
fn unneeded(formula: &Formula, tolerance: Tolerance, samples: &Samples<'_>) -> Vec<String> {
    let explains_without = |missing: &&String| {
        samples.iter().all(|measured| {
            let Comparison { expected, counted } = measured.furthest(formula, Some(missing));
            tolerance.accepts(expected, counted)
        })
    };
    formula
        .names()
        .iter()
        .filter(explains_without)
        .cloned()
        .collect()
}

/// Tries an explanation.
fn attempt(formula: &Formula, tolerance: Tolerance, samples: &Samples<'_>) -> Outcome {
    refuted(formula, tolerance, samples)
        .or_else(|| {
            unneeded(formula, tolerance, samples)
                .into_iter()
                .next()
                .map(Outcome::Unproven)
        })
        .unwrap_or(Outcome::Explains)
}

/// Returns the formula with what is executed in place of what is in the code, if they can differ.
fn as_executed(formula: &Formula) -> Option<Formula> {
    let mut text = formula.to_string();
    for name in formula
        .names()
        .iter()
        .filter(|name| *name == IN_THE_CODE || name.starts_with("code_"))
    {
        text = replace_name(
            &text,
            name,
            &format!("{EXECUTED}{}", &name[IN_THE_CODE.len()..]),
        );
    }
    Formula::new(&text)
        .ok()
        .filter(|executed| executed != formula)
}

/// Replaces a name where it is a whole one.
fn replace_name(text: &str, name: &str, with: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let follows = if before.is_empty() {
            result.ends_with(is_part)
        } else {
            before.ends_with(is_part)
        };
        let is_whole = !follows && !after.starts_with(is_part);
        result.push_str(before);
        result.push_str(if is_whole { with } else { name });
        rest = after;
    }
    result + rest
}

/// The decision about an event: verdict, the formula that explains it, the reason.
type Decided = (Verdict, Option<Formula>, String);

fn judge_event(
    expectation: &Expectation,
    own: &[&Hypothesis],
    samples: &Samples<'_>,
    is_counted: bool,
) -> Judgment {
    let (documented, tolerance) = (&expectation.counts, expectation.tolerance);
    let mut tried = vec![];
    let (verdict, formula, because) = obvious(expectation, samples, is_counted)
        .unwrap_or_else(|| explain(expectation, own, samples, &mut tried));
    let explanation = formula.as_ref().unwrap_or(documented);
    let evidence = samples.iter().map(|measured| {
        let furthest = measured.furthest(explanation, None);
        Evidence {
            benchmark: measured.benchmark.name.clone(),
            expected: measured.value(documented),
            explained: measured.value(explanation),
            sample: measured.sample,
            furthest,
            agrees: tolerance.accepts(furthest.expected, furthest.counted),
        }
    });
    Judgment {
        event: expectation.event.clone(),
        verdict,
        counts: formula.as_ref().map(Formula::to_string),
        because,
        evidence: evidence.collect(),
        tried,
        unexercised: formula
            .as_ref()
            .map_or_else(Vec::new, |formula| unneeded(formula, tolerance, samples)),
    }
}

/// Returns the verdicts that need no explanation.
fn obvious(expectation: &Expectation, samples: &Samples<'_>, is_counted: bool) -> Option<Decided> {
    let (documented, tolerance) = (&expectation.counts, expectation.tolerance);
    let moved = samples.iter().find(|measured| !measured.sample.is_zero());
    let most = samples
        .iter()
        .map(|measured| measured.value(documented))
        .fold(0.0, f64::max);
    let is_exercised = samples
        .iter()
        .any(|measured| !tolerance.accepts(measured.value(documented), 0.0));
    let decided = match (expectation.exists, moved) {
        (false, None) => (
            Verdict::NoEvent,
            format!("no event counts it; {most} were expected of one"),
        ),
        (false, Some(Measurement { benchmark, .. })) => {
            let because = format!(
                "no event counts it by the documentation, but {} counted it",
                benchmark.name
            );
            (Verdict::Quarantined, because)
        }
        (true, None) if !is_counted => (
            Verdict::NotModelled,
            "the machine does not count it".to_owned(),
        ),
        (true, None) if is_exercised => (
            Verdict::Dead,
            format!("it counts nothing; up to {most} were expected"),
        ),
        (true, _) if !is_exercised => (
            Verdict::Quarantined,
            "no benchmark exercises it: no count is expected that differs from 0".to_owned(),
        ),
        (true, _) => return None,
    };
    Some((decided.0, None, decided.1))
}

/// Finds what explains every benchmark: the documentation, what is really executed, or a
/// hypothesis.
fn explain(
    expectation: &Expectation,
    own: &[&Hypothesis],
    samples: &Samples<'_>,
    tried: &mut Vec<Explanation>,
) -> Decided {
    let (documented, tolerance) = (&expectation.counts, expectation.tolerance);
    let Some(disagreement) = refuted(documented, tolerance, samples) else {
        return (
            Verdict::Trusted,
            Some(documented.clone()),
            expectation.because.clone(),
        );
    };
    if let Some(executed) = as_executed(documented) {
        // It is the documentation's own formula: what no benchmark shows is as it is for a trusted
        // event.
        let outcome = refuted(&executed, tolerance, samples).unwrap_or(Outcome::Explains);
        let explains = outcome == Outcome::Explains;
        tried.push(Explanation {
            counts: executed.to_string(),
            kind: Kind::Expectation,
            outcome,
        });
        if explains {
            let because = "it counts what is executed; the expectation took all that is in the \
                           code"
                .to_owned();
            return (Verdict::ExpectationCorrected, Some(executed), because);
        }
    }
    for hypothesis in own {
        let outcome = attempt(&hypothesis.counts, tolerance, samples);
        tried.push(Explanation {
            counts: hypothesis.counts.to_string(),
            kind: hypothesis.kind,
            outcome,
        });
    }
    let tried_own = &tried[tried.len() - own.len()..];
    for (kind, verdict) in [
        (Kind::Expectation, Verdict::ExpectationCorrected),
        (Kind::Mechanism, Verdict::Corrected),
        (Kind::Factor, Verdict::Fitted),
    ] {
        let explains = |(tried, hypothesis): &(&Explanation, &&Hypothesis)| {
            hypothesis.kind == kind && tried.outcome == Outcome::Explains
        };
        if let Some((_, accepted)) = tried_own.iter().zip(own).find(explains) {
            let source = if accepted.source.is_empty() {
                String::new()
            } else {
                format!(" ({})", accepted.source)
            };
            return (
                verdict,
                Some(accepted.counts.clone()),
                format!("{}{source}", accepted.because),
            );
        }
    }
    let none = if own.is_empty() {
        "there is no hypothesis"
    } else {
        "no hypothesis explains every benchmark"
    };
    (
        Verdict::Quarantined,
        None,
        format!("its documentation {disagreement}; {none}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_replaced() {
        let formula = Formula::new("code_BRA + code_BRA_X + my_code + code").expect("a formula");
        let executed = as_executed(&formula).expect("it differs");
        assert_eq!(
            executed.to_string(),
            "executed_BRA + executed_BRA_X + my_code + executed"
        );
        assert_eq!(as_executed(&executed), None);
    }
}
