//! What a paper reports, with its tolerance and source, compared with the results.
//!
//! A result outside the tolerance is a difference from the paper, and is reported as one. It is no
//! failure, and no reason to widen the tolerance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::account::{Account, Numbers, Subject, Text};
use super::check::{Axes, Check, Verdict};
use super::findings::{Cell, Runs, Series, columns};
use super::guard::number;
use super::measured::Measure;
use cloison_config::document::{Field, Presence, Table};
use cloison_engine::report::Section;
use std::ops::Range;
use toml::Spanned;

/// Name of the series with all statements.
pub const SERIES: &str = "shows";
/// Name of the series with those from which the results differ.
pub const DIFFERENCES: &str = "differences_from_paper";

/// A statement of a paper about its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// What the paper says.
    pub text: String,
    /// The figure, table or section that says it.
    pub source: String,
    /// Its position in the experiment's file.
    pub span: Range<usize>,
    claim: Claim,
    needs: Needed,
}

/// A statement in numbers.
#[derive(Clone, Debug, PartialEq)]
enum Claim {
    /// An expression should have the paper's value.
    Value {
        here: Text,
        paper: f64,
        within: Tolerance,
    },
    /// A relation between results should hold, as in the paper.
    Relation(Check),
}

/// How far from the paper's value a result may be and agree with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tolerance {
    /// A part of the paper's value.
    Part(f64),
    /// In the value's own unit.
    Absolute(f64),
}

impl Tolerance {
    fn read(field: &Field<'_>) -> Option<Self> {
        if !field.is_string() {
            return field.number("a tolerance").map(Self::Absolute);
        }
        let text = field.text()?.trim();
        let part = text.strip_suffix('%').map(str::trim);
        let part = part.and_then(|part| part.parse::<f64>().ok());
        let part = part.filter(|part| part.is_finite() && *part >= 0.0);
        if part.is_none() {
            let error = field.error("a tolerance is a part of the paper's value, or in its unit");
            let help = "write tolerance = \"PART %\", or a number that is not negative";
            field.push(error.label("no tolerance").help(help));
        }
        part.map(|part| Self::Part(part / 100.0))
    }

    /// Returns whether a result agrees with the paper's value.
    fn covers(self, paper: f64, here: f64) -> bool {
        // What a decimal fraction of the file cannot say exactly is no difference.
        let rounding = 1e-9 * paper.abs();
        let allowed = match self {
            Self::Part(part) => part * paper.abs(),
            Self::Absolute(absolute) => absolute,
        };
        (here - paper).abs() <= allowed + rounding
    }

    fn shown(self) -> String {
        match self {
            Self::Part(part) => format!("{} %", rounded(part * 100.0)),
            Self::Absolute(absolute) => rounded(absolute),
        }
    }
}

/// Formats a number of the file as its author would write it.
fn rounded(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Which runs a statement can be judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// Those that it names.
    Named,
    /// All: a few points of a curve do not show where it bends.
    All,
}

/// Whether a result is as in the paper.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// It is.
    Agrees(Outcome),
    /// It is not.
    Differs(Outcome),
    /// There is no result: `--quick` left runs out.
    NotRun,
}

/// A result beside a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The value, or both sides of the relation.
    pub here: String,
    /// Its distance from the paper's value, relative to that; none of a relation.
    pub off: Option<f64>,
}

impl Statement {
    /// Reads a statement: in `says`, `source`, and either a `check` or a `value` with what it is in
    /// the `paper` and the `tolerance`. Returns nothing if it has a mistake, which is recorded.
    pub fn read(
        table: Table<'_>,
        points: Option<&[(&str, &Axes)]>,
        measure: Option<Measure>,
    ) -> Option<Self> {
        let says = table.required_value("says", "say what the paper reports", Field::text);
        let help = "name the figure, table or section";
        let source = table.required_value("source", help, Field::text);
        let check = table.value("check", |field| Check::read(field, points, measure));
        let here = table.value("value", |field| {
            Some(Spanned::new(field.span(), field.text()?.to_owned()))
        });
        let paper = table.value("paper", |field| field.number("the paper's value"));
        let within = table.value("tolerance", Tolerance::read);
        let full = table.value("needs_all_runs", Field::boolean);
        let span = table.span();
        let claim = match (check, here, paper, within) {
            (Presence::Given(check), Presence::Absent, Presence::Absent, Presence::Absent) => {
                Some(Claim::Relation(check.value))
            }
            (
                Presence::Absent,
                Presence::Given(here),
                Presence::Given(paper),
                Presence::Given(within),
            ) => Some(Claim::Value {
                here: here.value,
                paper: paper.value,
                within: within.value,
            }),
            (Presence::Wrong, ..)
            | (_, Presence::Wrong, ..)
            | (_, _, Presence::Wrong, _)
            | (_, _, _, Presence::Wrong) => None,
            _ => {
                let error = table.error(
                    "",
                    span.clone(),
                    "a statement is either a value or a relation",
                );
                let help = "write value = \"EXPRESSION\" with paper = NUMBER and tolerance = \"PART %\", \
                            or check = \"A.cycles < B.cycles\" alone";
                table.push(error.label("neither or both").help(help));
                None
            }
        };
        table.finish();
        let needs = if full.or(false)? {
            Needed::All
        } else {
            Needed::Named
        };
        Some(Self {
            text: says?.value.to_owned(),
            source: source?.value.to_owned(),
            span,
            claim: claim?,
            needs,
        })
    }

    /// Returns the relation that it states, if it is one.
    pub fn relation(&self) -> Option<&Check> {
        match &self.claim {
            Claim::Relation(check) => Some(check),
            Claim::Value { .. } => None,
        }
    }

    /// Returns the expression that should have the paper's value, if it states one.
    fn expression(&self) -> Option<&Text> {
        match &self.claim {
            Claim::Value { here, .. } => Some(here),
            Claim::Relation(_) => None,
        }
    }

    /// Returns it in one line: the relation, or the expression with the paper's value.
    pub fn claim(&self) -> String {
        match &self.claim {
            Claim::Relation(check) => check.text.clone(),
            Claim::Value {
                here,
                paper,
                within,
            } => format!(
                "{} = {} within {}",
                here.get_ref(),
                rounded(*paper),
                within.shown()
            ),
        }
    }

    /// Compares it with results; `here` is the value of its expression, if that was measured.
    fn compare(&self, runs: Runs<'_>, baseline: &str, here: Option<f64>) -> Comparison {
        match &self.claim {
            Claim::Relation(check) => match check.judge(runs, baseline) {
                Verdict::Holds(_, left, right) => Comparison::Agrees(Outcome::of(left, right)),
                Verdict::Fails(_, left, right) => Comparison::Differs(Outcome::of(left, right)),
                Verdict::Missing(_) | Verdict::NotRun => Comparison::NotRun,
            },
            Claim::Value { paper, within, .. } => {
                let Some(here) = here else {
                    return Comparison::NotRun;
                };
                let result = Outcome {
                    here: number(here),
                    off: (*paper != 0.0).then(|| here / paper - 1.0),
                };
                match within.covers(*paper, here) {
                    true => Comparison::Agrees(result),
                    false => Comparison::Differs(result),
                }
            }
        }
    }
}

impl Outcome {
    /// Returns both sides of a relation.
    fn of(left: f64, right: f64) -> Self {
        Self {
            here: format!("{} against {}", number(left), number(right)),
            off: None,
        }
    }
}

/// Returns the values of the statements' expressions, in their order; a relation has none.
pub fn numbers(statements: &[Statement], account: &Account, subject: Subject<'_>) -> Numbers {
    account.numbers(
        "shows.value",
        statements.iter().filter_map(Statement::expression),
        subject,
    )
}

/// The form of an experiment: with all runs, or with those of a quick look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All runs.
    Full,
    /// The runs of `--quick`.
    Quick,
}

impl Form {
    /// Returns the form of a command with or without `--quick`.
    pub const fn of(quick: bool) -> Self {
        if quick { Self::Quick } else { Self::Full }
    }
}

/// Compares each statement with the results of a subject.
pub fn compare(
    statements: &[Statement],
    account: &Account,
    subject: Subject<'_>,
    form: Form,
) -> Vec<Comparison> {
    let mut values = numbers(statements, account, subject).values.into_iter();
    let compared = statements.iter().map(|statement| {
        let here = statement.expression().and_then(|_| values.next().flatten());
        match (form, statement.needs) {
            (Form::Quick, Needed::All) => Comparison::NotRun,
            _ => statement.compare(subject.runs, subject.baseline, here),
        }
    });
    compared.collect()
}

/// The columns of a statement's row.
const COLUMNS: [&str; 7] = [
    "statement",
    "source",
    "paper",
    "tolerance",
    "here",
    "off_percent",
    "result",
];

fn row(statement: &Statement, comparison: &Comparison) -> Vec<Cell> {
    let (paper, within) = match &statement.claim {
        Claim::Value { paper, within, .. } => (rounded(*paper), within.shown()),
        Claim::Relation(check) => (check.text.clone(), String::new()),
    };
    let (result, found) = match comparison {
        Comparison::Agrees(found) => ("agrees", Some(found)),
        Comparison::Differs(found) => ("DIFFERS", Some(found)),
        Comparison::NotRun => ("not run", None),
    };
    let here = found.map_or_else(String::new, |found| found.here.clone());
    let off = found.and_then(|found| found.off);
    [
        statement.text.clone(),
        statement.source.clone(),
        paper,
        within,
        here,
        off.map_or_else(String::new, |off| format!("{:+.1}", off * 100.0)),
        result.to_owned(),
    ]
    .map(Cell::Text)
    .into()
}

fn rows_of(
    statements: &[Statement],
    compared: &[Comparison],
    keep: impl Fn(&Comparison) -> bool,
) -> Vec<Vec<Cell>> {
    let pairs = statements.iter().zip(compared);
    let kept = pairs.filter(|(_, comparison)| keep(comparison));
    kept.map(|(statement, comparison)| row(statement, comparison))
        .collect()
}

fn section(title: &str, note: &str, rows: Vec<Vec<Cell>>) -> Option<Section> {
    let series = Series {
        name: String::new(),
        columns: columns(COLUMNS),
        rows,
    };
    (!series.rows.is_empty()).then(|| series.table(title, note))
}

/// Returns all statements beside the results, if there are any.
pub fn table(statements: &[Statement], compared: &[Comparison]) -> Option<Section> {
    let note = "What the paper reports, as a value with the tolerance within which a result agrees, \
                or as a relation. Off: the result's distance \
                from the paper's value, relative to that.";
    let rows = rows_of(statements, compared, |_| true);
    section("What the paper shows, and what was found", note, rows)
}

/// Returns the statements from which the results differ, if there are any.
pub fn differences(statements: &[Statement], compared: &[Comparison]) -> Option<Section> {
    let rows = rows_of(statements, compared, |comparison| {
        matches!(comparison, Comparison::Differs(_))
    });
    section("Differences from the paper", "", rows)
}

/// Returns the statements as a series, and those from which the results differ as another; only
/// those that have rows.
pub fn series(statements: &[Statement], compared: &[Comparison]) -> Vec<Series> {
    let differs = |comparison: &Comparison| matches!(comparison, Comparison::Differs(_));
    let all = rows_of(statements, compared, |_| true);
    let differing = rows_of(statements, compared, differs);
    [(SERIES, all), (DIFFERENCES, differing)]
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(name, rows)| Series {
            name: name.to_owned(),
            columns: columns(COLUMNS),
            rows,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec;
    use cloison_board_model::Board;
    use std::path::Path;

    /// Returns the experiment of two variants with these statements, or the first mistake in it.
    fn experiment(statements: &str) -> std::result::Result<spec::Experiment, String> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("system.toml"), "ends_with = 'vic'")
            .expect("a system");
        let path = directory.path().join("mine.toml");
        let text = format!(
            "system = 'system.toml'\n[values]\nratio = 'interf.cycles / solo.cycles'\n{statements}\n\
             [[variant]]\nname = 'solo'\n[[variant]]\nname = 'interf'\n"
        );
        std::fs::write(&path, text).expect("an experiment");
        let read = spec::load(Path::new(&path), Form::Full);
        read.map_err(|errors| errors.problems()[0].message().to_owned())
    }

    fn compared(statements: &str, form: Form) -> (spec::Experiment, Vec<Comparison>) {
        use crate::experiment::measured::tests::run;
        let experiment = experiment(statements).expect("right");
        let runs = [run("solo", &[], 100), run("interf", &[], 430)];
        let systems = vec![toml::Value::Table(toml::Table::new()); runs.len()];
        let model = Board::zcu102();
        let subject = experiment.subject(Runs(&runs), &systems, &model);
        let compared = compare(&experiment.shows, &experiment.account, subject, form);
        (experiment, compared)
    }

    const STATEMENTS: &str = "
        [[shows]]
        says = 'Far from it.'
        source = 'table 1'
        value = 'ratio'
        paper = 6.5
        tolerance = '10 %'
        [[shows]]
        says = 'Just so.'
        source = 'table 2'
        value = 'interf.slowdown'
        paper = 4
        tolerance = 0.3
        [[shows]]
        says = 'It costs time.'
        source = 'figure 1'
        check = 'interf.cycles > solo.cycles'
        needs_all_runs = true
    ";

    #[test]
    fn a_result_outside_the_tolerance_is_a_difference_and_no_other_is() {
        let (experiment, results) = compared(STATEMENTS, Form::Full);
        let [
            Comparison::Differs(far),
            Comparison::Agrees(near),
            Comparison::Agrees(both),
        ] = results.as_slice()
        else {
            panic!("{results:?}")
        };
        let off = far.off.expect("a value");
        assert!(off < -0.33 && off > -0.34 && near.off.is_some_and(|off| off > 0.0));
        assert_eq!(
            (near.here.as_str(), both.here.as_str()),
            ("4.3000", "430 against 100")
        );
        let all = table(&experiment.shows, &results).expect("a table");
        assert_eq!(all.rows.len(), 3);
        let differing = differences(&experiment.shows, &results).expect("one");
        assert_eq!(
            differing.rows,
            [[
                "Far from it.",
                "table 1",
                "6.5",
                "10 %",
                "4.3000",
                "-33.8",
                "DIFFERS"
            ]]
        );
        let series = series(&experiment.shows, &results);
        assert_eq!(
            series.iter().map(|one| one.rows.len()).collect::<Vec<_>>(),
            [3, 1]
        );
        // A quick look does not judge what needs all runs.
        let (_, quick) = compared(STATEMENTS, Form::Quick);
        assert_eq!(quick[2], Comparison::NotRun);
        assert_eq!(quick[..2], results[..2]);
    }

    #[test]
    fn mistakes_in_statements_are_named() {
        let of = |text: &str| experiment(&format!("[[shows]]\n{text}")).expect_err(text);
        let head = "says = 'a'\nsource = 'b'\n";
        for (fields, message) in [
            (
                "value = 'ratio'",
                "a statement is either a value or a relation",
            ),
            (
                "value = 'ratio'\npaper = 1\ntolerance = 0.1\ncheck = 'interf.cycles > 1'",
                "a statement is either a value or a relation",
            ),
            (
                "value = 'ratoi'\npaper = 1\ntolerance = 0.1",
                "there is no figure or value `ratoi`",
            ),
            (
                "value = 'ratio'\npaper = 1\ntolerance = '10'",
                "a tolerance is a part of the paper's value, or in its unit",
            ),
            (
                "value = 'ratio'\npaper = 1\ntolerance = -1",
                "`-1` is negative",
            ),
            (
                "check = 'intref.cycles > 1'",
                "there is no variant `intref`",
            ),
        ] {
            assert_eq!(of(&format!("{head}{fields}")), message, "{fields}");
        }
        assert_eq!(
            of("says = 'a'\ncheck = 'interf.cycles > 1'"),
            "`source` is missing"
        );
    }
}
