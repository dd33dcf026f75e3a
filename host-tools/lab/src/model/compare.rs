//! The model's results beside the published ones: errors, verdicts, their mean, the table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::points::{Benchmark, Point, Points, Unit, Usage};
use cloison_board_model::Board;
use cloison_config::problem::{Errors, Problem};
use cloison_engine::report::Section;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// From this error on, as a share of the measurement, a point must be explained.
pub const EXPLAIN: f64 = 0.5;

/// A measurement with the model's result.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The measurement.
    pub point: &'a Point,
    /// The model's result, in the measurement's unit.
    pub ours: f64,
}

/// Measurements that one part of the model decides: their errors are not independent, so each
/// family has its own mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// What several cores do to each other.
    Contention,
    /// Reads of random lines in the L2.
    L2Random,
    /// Chains of loads in the L2, in random order.
    L2Chains,
    /// Chains of loads of equal strides in the L2.
    L2Strides,
    /// Random reads and chains beyond the L2.
    Memory,
    /// Streams of one core.
    Streams,
    /// Random reads and chains in the L1.
    L1,
    /// Counts of events.
    Counts,
}

impl Family {
    /// Returns a measurement's family, by its buffer and the model's caches.
    pub fn of(point: &Point, model: &Board) -> Self {
        let in_a_cache = |kib: u64, in_the_l2| {
            if kib * 1024 <= model.l1d.geometry.bytes() {
                Self::L1
            } else if kib * 1024 <= model.l2.geometry.bytes() {
                in_the_l2
            } else {
                Self::Memory
            }
        };
        match &point.benchmark {
            Benchmark::Chase(chase) => in_a_cache(chase.kib, Self::L2Chains),
            Benchmark::Stride(buffer) => in_a_cache(buffer.kib, Self::L2Strides),
            Benchmark::RandomReads(buffer) => in_a_cache(buffer.kib, Self::L2Random),
            Benchmark::Stream(stream) if stream.cores > 1 => Self::Contention,
            Benchmark::Corun(_) => Self::Contention,
            Benchmark::Stream(_) => Self::Streams,
            Benchmark::Experiment(_) if matches!(point.unit, Unit::Events) => Self::Counts,
            Benchmark::Experiment(_) => Self::Contention,
        }
    }

    /// Returns its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contention => "contention",
            Self::L2Random => "random reads in the L2",
            Self::L2Chains => "chains in the L2",
            Self::L2Strides => "strides in the L2",
            Self::Memory => "memory",
            Self::Streams => "streams of one core",
            Self::L1 => "L1",
            Self::Counts => "counts",
        }
    }
}

impl Comparison<'_> {
    /// Returns the model's difference from the measurement, as a part of it; below zero if the
    /// model is below.
    pub fn error(&self) -> f64 {
        self.ours / self.point.value - 1.0
    }

    /// Returns whether the model is within the point's tolerance.
    pub fn agrees(&self) -> bool {
        self.error().abs() <= self.point.tolerance
    }

    /// Returns whether the error must be explained.
    pub fn is_far(&self) -> bool {
        self.error().abs() > EXPLAIN
    }

    const fn verdict(&self, agrees: bool, far: bool) -> &'static str {
        match (agrees, far, self.point.why.is_some()) {
            (true, ..) => "within",
            (false, true, false) => "far, unexplained",
            (false, true, true) => "far, explained",
            (false, false, _) => "outside",
        }
    }

    /// Returns the row of a series.
    pub fn json(&self, family: Family) -> Value {
        let Point {
            name,
            board,
            value,
            unit,
            tolerance,
            usage,
            document,
            place,
            benchmark,
            why,
            ..
        } = self.point;
        json!({
            "point": name, "board": board, "use": usage.name(), "family": family.name(), "benchmark": benchmark.to_string(),
            "measured": value, "modelled": self.ours, "unit": unit.name(), "error": self.error(),
            "tolerance": tolerance, "agrees": self.agrees(), "document": document, "place": place, "why": why,
        })
    }
}

/// The summary of all points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of points.
    pub points: usize,
    /// Number of predicted points.
    pub predicted: usize,
    /// Number of points within their tolerance.
    pub agreeing: usize,
    /// Number of predicted points within their tolerance.
    pub predicted_agreeing: usize,
    /// Number of points whose error must be explained.
    pub above_half: usize,
    /// Mean of the predicted points' errors without their signs; 0 if there are none.
    pub mean_abs_error_predicted: f64,
    /// The same without counts of events, most of which follow from the program alone.
    pub mean_abs_error_predicted_timing: f64,
}

/// Returns the summary of all points.
pub fn summarize(compared: &[Comparison<'_>]) -> Summary {
    let predicted: Vec<_> = compared
        .iter()
        .filter(|one| one.point.usage == Usage::Predicted)
        .collect();
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let all: Vec<f64> = predicted.iter().map(|one| one.error().abs()).collect();
    let timing = predicted
        .iter()
        .filter(|one| one.point.unit != Unit::Events);
    let timing: Vec<f64> = timing.map(|one| one.error().abs()).collect();
    Summary {
        points: compared.len(),
        predicted: predicted.len(),
        agreeing: compared.iter().filter(|one| one.agrees()).count(),
        predicted_agreeing: predicted.iter().filter(|one| one.agrees()).count(),
        above_half: compared.iter().filter(|one| one.is_far()).count(),
        mean_abs_error_predicted: mean(&all),
        mean_abs_error_predicted_timing: mean(&timing),
    }
}

/// The predicted points of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FamilySummary {
    /// The family.
    pub family: Family,
    /// Number of predicted points.
    pub points: usize,
    /// Number of them within their tolerance.
    pub agreeing: usize,
    /// Mean of their errors without signs.
    pub mean_abs_error: f64,
}

impl FamilySummary {
    /// Returns the row of a series.
    pub fn json(&self) -> Value {
        json!({
            "family": self.family.name(), "points": self.points, "within": self.agreeing,
            "mean_abs_error": self.mean_abs_error,
        })
    }
}

/// Returns the families of the predicted points, each once.
pub fn families(compared: &[Comparison<'_>], model: &Board) -> Vec<FamilySummary> {
    let mut members: BTreeMap<Family, Vec<&Comparison<'_>>> = BTreeMap::new();
    for one in compared {
        if one.point.usage == Usage::Predicted {
            members
                .entry(Family::of(one.point, model))
                .or_default()
                .push(one);
        }
    }
    members
        .into_iter()
        .map(|(family, members)| FamilySummary {
            family,
            points: members.len(),
            agreeing: members.iter().filter(|one| one.agrees()).count(),
            mean_abs_error: members.iter().map(|one| one.error().abs()).sum::<f64>()
                / members.len() as f64,
        })
        .collect()
}

/// Returns the mean of the families' mean errors: a family of many points counts once.
pub fn mean_of_families(families: &[FamilySummary]) -> f64 {
    families.iter().map(|one| one.mean_abs_error).sum::<f64>() / families.len().max(1) as f64
}

/// Returns the table of the families.
pub fn family_table(families: &[FamilySummary]) -> Section {
    let mut section = Section::new(
        "Predicted points by what decides them in the model",
        &["family", "points", "within", "mean error"],
    );
    for one in families {
        section.row([
            one.family.name().to_owned(),
            one.points.to_string(),
            one.agreeing.to_string(),
            percent(one.mean_abs_error),
        ]);
    }
    section.row([
        "mean of the families".to_owned(),
        String::new(),
        String::new(),
        percent(mean_of_families(families)),
    ]);
    section
}

/// Returns a value with as many digits as say something.
fn shown(value: f64) -> String {
    match value {
        _ if value >= 1000.0 => format!("{value:.0}"),
        _ if value >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn percent(share: f64) -> String {
    // What rounds to zero has no sign.
    format!("{:.1} %", (share * 1000.0).round() / 10.0 + 0.0)
}

/// Returns the table of all points.
pub fn table(compared: &[Comparison<'_>]) -> Section {
    let columns = [
        "point",
        "board",
        "use",
        "benchmark",
        "measured",
        "modelled",
        "unit",
        "error",
        "allowed",
        "verdict",
    ];
    let mut section = Section::new(
        "Measurements on boards, and the model's results (modelled)",
        &columns,
    );
    for one in compared {
        let point = one.point;
        section.row([
            point.name.clone(),
            point.board.clone(),
            point.usage.name().to_owned(),
            point.benchmark.to_string(),
            shown(point.value),
            shown(one.ours),
            point.unit.name().to_owned(),
            percent(one.error()),
            percent(point.tolerance),
            one.verdict(one.agrees(), one.is_far()).to_owned(),
        ]);
    }
    section
}

/// Returns the points' explanations, each once, after the names of its points.
pub fn explanations(compared: &[Comparison<'_>]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = vec![];
    for one in compared.iter().filter(|one| !one.agrees()) {
        let Some(why) = &one.point.why else { continue };
        match all.iter_mut().find(|(_, text)| text == why) {
            Some((names, _)) => names.push_str(&format!(", {}", one.point.name)),
            None => all.push((one.point.name.clone(), why.clone())),
        }
    }
    all
}

impl Summary {
    /// Returns the summary as a sentence.
    pub fn text(&self) -> String {
        format!(
            "{} of {} points are within their tolerance, of {} predicted points {}. These are off \
             by {} on average, without counts of events by {}. {} {} off by more than {:.0} %.",
            self.agreeing,
            self.points,
            self.predicted,
            self.predicted_agreeing,
            percent(self.mean_abs_error_predicted),
            percent(self.mean_abs_error_predicted_timing),
            self.above_half,
            if self.above_half == 1 {
                "point is"
            } else {
                "points are"
            },
            EXPLAIN * 100.0
        )
    }
}

/// Returns an error for each point that is far off without an explanation.
///
/// # Errors
///
/// If there is such a point, at its position in the file.
pub fn conclude(points: &Points, compared: &[Comparison<'_>]) -> Result<(), Errors> {
    let unexplained = compared
        .iter()
        .filter(|one| one.is_far() && one.point.why.is_none());
    let problems: Vec<Problem> = unexplained
        .map(|one| {
            let message = format!(
                "the model is off by {} at `{}`",
                percent(one.error()),
                one.point.name
            );
            let label = format!(
                "{} against {} {}",
                shown(one.ours),
                shown(one.point.value),
                one.point.unit.name()
            );
            Problem::error(&points.source, "point.why", one.point.span.clone(), message)
                .label(label)
                .help("say in `why` what the model leaves out, or fix the model")
        })
        .collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Errors::new(points.source.name(), problems))
    }
}

#[cfg(test)]
mod tests {
    use super::super::points::{Benchmark, Chase, Order, Pages};
    use super::*;
    use cloison_config::problem::SourceFile;
    use std::path::Path;

    fn point(name: &str, value: f64, usage: Usage, why: Option<&str>) -> Point {
        Point {
            name: name.to_owned(),
            board: "board".to_owned(),
            value,
            unit: Unit::Nanos,
            clock_mhz: Some(1000),
            tolerance: 0.2,
            usage,
            document: "document".to_owned(),
            place: "table".to_owned(),
            benchmark: Benchmark::Chase(Chase {
                kib: 64,
                order: Order::Random,
            }),
            prefetcher: true,
            pages: Pages::Small,
            why: why.map(str::to_owned),
            span: 0..1,
        }
    }

    #[test]
    fn the_mean_is_of_predicted_points_only_and_without_signs() {
        let points = [
            point("a", 10.0, Usage::Predicted, None),
            point("b", 10.0, Usage::Predicted, None),
            point("c", 10.0, Usage::Fitted, None),
        ];
        let ours = [8.0, 14.0, 100.0];
        let all: Vec<_> = points
            .iter()
            .zip(ours)
            .map(|(point, ours)| Comparison { point, ours })
            .collect();
        let summary = summarize(&all);
        assert!(
            (summary.mean_abs_error_predicted - 0.3).abs() < 1e-12,
            "{summary:?}"
        );
        assert_eq!(
            (summary.points, summary.predicted, summary.above_half),
            (3, 2, 1)
        );
        assert_eq!(
            (summary.agreeing, summary.predicted_agreeing),
            (1, 1),
            "the edge of the tolerance agrees"
        );
        assert_eq!(summarize(&[]).mean_abs_error_predicted, 0.0);

        let counted = Point {
            unit: Unit::Events,
            ..points[0].clone()
        };
        let both = [
            Comparison {
                point: &counted,
                ours: 10.0,
            },
            all[1].clone(),
        ];
        let summary = summarize(&both);
        assert!(
            (summary.mean_abs_error_predicted - 0.2).abs() < 1e-12,
            "{summary:?}"
        );
        assert!(
            (summary.mean_abs_error_predicted_timing - 0.4).abs() < 1e-12,
            "counts do not dilute it: {summary:?}"
        );
    }

    #[test]
    fn only_an_unexplained_point_above_half_is_an_error() {
        let file = SourceFile::new(Path::new("points.toml"), "x\n".to_owned());
        let all = [
            (point("near", 10.0, Usage::Predicted, None), 15.0),
            (
                point("explained", 10.0, Usage::Predicted, Some("no prefetcher")),
                20.0,
            ),
            (point("far", 10.0, Usage::Fitted, None), 4.9),
        ];
        let boards = std::collections::BTreeMap::new();
        let points = all.iter().map(|(point, _)| point.clone()).collect();
        let points = Points {
            source: file,
            boards,
            points,
        };
        let compare = |count: usize| -> Vec<Comparison<'_>> {
            points
                .points
                .iter()
                .zip(&all)
                .take(count)
                .map(|(point, (_, ours))| Comparison { point, ours: *ours })
                .collect()
        };
        assert!(conclude(&points, &compare(2)).is_ok());
        let errors = conclude(&points, &compare(3)).expect_err("the last is unexplained");
        let [problem] = errors.problems() else {
            panic!("{errors:?}")
        };
        assert_eq!(problem.message(), "the model is off by -51.0 % at `far`");
        let verdicts: Vec<_> = table(&compare(3))
            .rows
            .into_iter()
            .map(|row| row[9].clone())
            .collect();
        assert_eq!(verdicts, ["outside", "far, explained", "far, unexplained"]);
        assert_eq!(
            explanations(&compare(3)),
            [("explained".to_owned(), "no prefetcher".to_owned())]
        );
    }
}
