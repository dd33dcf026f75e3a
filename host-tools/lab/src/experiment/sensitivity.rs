//! The dependence of an experiment's conclusions on values of the model that nobody has measured on
//! a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::changes::{self, AND, Change};
use super::check::Verdict;
use super::conclusions::Conclusions;
use super::findings::{Cell, Series, Stability, columns, shown};
use super::measured::Measured;
use super::runner;
use super::shows::{Comparison, Form};
use super::spec::Experiment;
use crate::boards::{Absent, Boards};
use crate::parameters::SENSITIVITY;
use cloison_board_model::Board;
use cloison_config::problem::{Errors, Problem, SourceFile, count};
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::installation;
use cloison_engine::model::{self, Model};
use cloison_engine::progress::bar;
use cloison_engine::report::Section;
use miette::{IntoDiagnostic, Result, miette};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file with a result, in an experiment's output directory.
pub const FILE: &str = "sensitivity.toml";

/// The verdicts on an experiment's conclusions with each change. It is written to a file, which may
/// be kept beside the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// Name of the experiment.
    pub experiment: String,
    /// When it was made, in UTC.
    pub date: String,
    /// The commit that it was made from.
    pub commit: Option<String>,
    /// Whether only the runs for a quick look were made.
    pub quick: bool,
    /// Number of boots of the board, those of the unchanged model included.
    pub runs: usize,
    /// Path of the model.
    pub model: String,
    /// CRC-32 of the model's values; its comments do not count.
    pub model_values_crc32: String,
    /// CRC-32 of the runs in the experiment's file.
    pub experiment_crc32: String,
    /// CRC-32 of its system.
    pub system_crc32: String,
    /// The conclusions, and whether each holds on the unchanged model.
    pub conclusion: Vec<Conclusion>,
    /// The changes, and the verdicts on the conclusions with each.
    pub change: Vec<Changed>,
}

/// What kind of conclusion one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConclusionKind {
    /// A guard of our own results.
    #[default]
    Guard,
    /// A statement of the paper.
    Shows,
}

/// A conclusion on the unchanged model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conclusion {
    /// Whether it is a guard, or a statement of the paper.
    #[serde(default)]
    pub kind: ConclusionKind,
    /// The condition, as in the experiment's file.
    pub check: String,
    /// Whether it holds.
    pub holds: bool,
    /// The left side in the decisive run.
    pub left: String,
}

/// The conclusions after one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// Name of the parameter.
    pub parameter: String,
    /// Its value in the model.
    pub from: String,
    /// The other value.
    pub to: String,
    /// Whether each conclusion holds, in their order; empty if the model is not valid with this
    /// value.
    pub holds: Vec<bool>,
    /// The left sides in the decisive runs.
    pub left: Vec<String>,
    /// Why the model is not valid with this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A change that turns a verdict around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The other values: `NAME = VALUE`, of a pair both.
    pub values: String,
    /// The left side with them.
    pub left: String,
}

/// Whether a conclusion holds, and its left side, or the value that is compared with the paper's.
#[derive(Clone, Debug, Default)]
struct Outcome {
    holds: bool,
    left: String,
}

/// Returns the outcome of a guard, if it could be judged.
fn of_guard(verdict: &Verdict) -> Option<Outcome> {
    let (holds, left) = match verdict {
        Verdict::Holds(_, left, _) => (true, shown(*left)),
        Verdict::Fails(_, left, _) => (false, shown(*left)),
        Verdict::Missing(_) => (false, String::new()),
        Verdict::NotRun => return None,
    };
    Some(Outcome { holds, left })
}

/// Returns the outcome of a statement, if it could be compared.
fn of_statement(comparison: &Comparison) -> Option<Outcome> {
    let (holds, found) = match comparison {
        Comparison::Agrees(found) => (true, found),
        Comparison::Differs(found) => (false, found),
        Comparison::NotRun => return None,
    };
    let left = found.here.clone();
    Some(Outcome { holds, left })
}

/// Returns the outcomes of all guards and statements, in their order.
fn outcomes(conclusions: &Conclusions) -> Vec<Option<Outcome>> {
    let guards = conclusions.verdicts.iter().map(of_guard);
    guards
        .chain(conclusions.compared.iter().map(of_statement))
        .collect()
}

/// Returns the CRC-32 of a file, in hexadecimal.
///
/// # Errors
///
/// If it cannot be read.
pub fn crc32(path: &Path) -> Result<String> {
    Ok(format!(
        "{:08x}",
        crc32fast::hash(&files::read(path, files::CONFIGURATION)?)
    ))
}

/// What an experiment's file says of its report and conclusions, and not of its runs.
const REPORT: [&str; 10] = [
    "title", "question", "paper", "values", "figures", "table", "account", "guards", "shows",
    "in_linux",
];

/// Returns the CRC-32 of what an experiment's file says of its runs.
fn runs_crc32(path: &Path) -> Result<String> {
    let text = files::read_text(path, files::CONFIGURATION)?;
    let mut file: toml::Table = text.parse().into_diagnostic()?;
    for name in REPORT {
        file.remove(name);
    }
    let variants = file.get_mut("variant").and_then(toml::Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        if let Some(table) = variant.as_table_mut() {
            table.remove("title");
        }
    }
    let runs = file.to_string();
    Ok(format!("{:08x}", crc32fast::hash(runs.as_bytes())))
}

/// The identification of an experiment's inputs, as they are now.
struct Inputs {
    model: String,
    model_values_crc32: String,
    experiment_crc32: String,
    system_crc32: String,
}

impl Inputs {
    fn of(experiment: &Experiment, path: &Path) -> Result<Self> {
        let text = files::read_text(&experiment.model, files::CONFIGURATION)?;
        let mut values: toml::Table = text.parse().into_diagnostic()?;
        values.remove(SENSITIVITY);
        Ok(Self {
            model: installation::display(&experiment.model),
            model_values_crc32: format!("{:08x}", crc32fast::hash(values.to_string().as_bytes())),
            experiment_crc32: runs_crc32(path)?,
            system_crc32: crc32(&experiment.system)?,
        })
    }
}

/// A change, and what it did to the model.
#[derive(Debug)]
pub struct Repeated {
    change: Change,
    effect: Effect,
}

/// What a change does.
#[derive(Debug)]
enum Effect {
    /// The model is not valid with it, for this reason.
    Refused(String),
    /// The model with it, and the runs on it.
    Runs {
        model: Box<Board>,
        runs: Vec<Measured>,
    },
}

/// Performs the runs of an experiment again with each change of its model. Runs that are in `out`
/// are not repeated.
///
/// # Errors
///
/// If the model's file does not mark its known values, or a run fails or is absent.
pub fn repeat(boards: &Boards, experiment: &Experiment, out: &Path) -> Result<Vec<Repeated>> {
    let text = files::read_text(&experiment.model, files::CONFIGURATION)?;
    let changes = changes::changes(&SourceFile::new(&experiment.model, text.clone()))?;
    let each = experiment.boots();
    let bar = bar(
        &format!("{}, sensitivity", experiment.name),
        changes.len() * each,
    );
    let all = changes.len();
    let mut repeated = vec![];
    for change in changes {
        let directory = out.join(SENSITIVITY).join(change.directory());
        let file = directory.join("model.toml");
        write_atomic(&file, change.applied(&text).as_bytes())?;
        let effect = match model::check(&file) {
            Ok(described) => {
                let model = Model::load(&file)?;
                let done = boards.defer(runner::run_under(
                    boards, &bar, experiment, &model, &directory,
                ))?;
                done.map(|(runs, _)| Effect::Runs {
                    model: Box::new(described),
                    runs,
                })
            }
            Err(error) => {
                bar.inc(each as u64);
                let reason = error.to_string().replace(&installation::display(&file), "");
                Some(Effect::Refused(reason))
            }
        };
        // If a run is absent, those of the other changes are asked for too.
        repeated.extend(effect.map(|effect| Repeated { change, effect }));
    }
    bar.finish_and_clear();
    if repeated.len() == all {
        Ok(repeated)
    } else {
        Err(Absent.into())
    }
}

/// Performs the runs of an experiment again with each change of its model. Returns the verdicts on
/// the conclusions; those on the unchanged model are given.
///
/// # Errors
///
/// As [`repeat`]; also if the experiment has no guards and no statements of a paper.
pub fn examine(
    boards: &Boards,
    experiment: &Experiment,
    path: &Path,
    unchanged: &Conclusions,
    form: Form,
    out: &Path,
) -> Result<Sensitivity> {
    let guards = experiment.guards.iter();
    let guards = guards.map(|guard| (ConclusionKind::Guard, guard.check.text.clone()));
    let shows = experiment.shows.iter();
    let shows = shows.map(|statement| (ConclusionKind::Shows, statement.claim()));
    // What could not be judged is left out.
    let judged: Vec<(usize, Conclusion)> = guards
        .chain(shows)
        .zip(outcomes(unchanged))
        .enumerate()
        .filter_map(|(at, ((kind, check), outcome))| {
            let Outcome { holds, left } = outcome?;
            let conclusion = Conclusion {
                kind,
                check,
                holds,
                left,
            };
            Some((at, conclusion))
        })
        .collect();
    if judged.is_empty() {
        return Err(miette!(
            help = "say what you conclude, such as guards = [\"private.slowdown <= LIMIT\"] \
                    (docs/experiments.md)",
            "the experiment names no conclusions that its runs could decide"
        ));
    }
    let mut runs = experiment.boots();
    let mut changed = vec![];
    for Repeated { change, effect } in repeat(boards, experiment, out)? {
        let mut row = Changed {
            parameter: change.parameter(),
            from: change.from(),
            to: change.to(),
            holds: vec![],
            left: vec![],
            refused: None,
        };
        match effect {
            Effect::Refused(reason) => row.refused = Some(reason),
            Effect::Runs {
                model,
                runs: measured,
            } => {
                let conclusions = Conclusions::draw(experiment, &measured, &model, form)?;
                let outcomes = outcomes(&conclusions);
                for (at, _) in &judged {
                    let Outcome { holds, left } = outcomes[*at].clone().unwrap_or_default();
                    row.holds.push(holds);
                    row.left.push(left);
                }
                runs += measured.len();
            }
        }
        changed.push(row);
    }
    let conclusion = judged
        .into_iter()
        .map(|(_, conclusion)| conclusion)
        .collect();
    let result = Sensitivity::new(experiment, path, form, runs, conclusion, changed)?;
    let head = "# Which conclusions survive which change of the model: written by `experiment \
                --sensitivity`.\n";
    write_atomic(
        &out.join(FILE),
        format!("{head}{}", toml::to_string(&result).into_diagnostic()?).as_bytes(),
    )?;
    Ok(result)
}

/// Returns the path of the kept result of an experiment's form: in `sensitivity/` beside its file.
pub fn kept_at(path: &Path, form: Form) -> PathBuf {
    let directory = path.parent().unwrap_or(Path::new(".")).join(SENSITIVITY);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    directory.join(match form {
        Form::Full => format!("{stem}.toml"),
        Form::Quick => format!("{stem}-quick.toml"),
    })
}

/// Returns the kept result of an experiment's form, if there is one.
///
/// # Errors
///
/// If the file has another format, or is a result of the other form.
pub fn kept(path: &Path, form: Form) -> Result<Option<Sensitivity>> {
    let file = kept_at(path, form);
    if !file.is_file() {
        return Ok(None);
    }
    let result = read(&file)?;
    if Form::of(result.quick) != form {
        return Err(miette!(
            help =
                "a result of --quick is kept as NAME-quick.toml, and one of all runs as NAME.toml",
            "{} is a result of the experiment's other form",
            installation::display(&file)
        ));
    }
    Ok(Some(result))
}

/// Returns what to say where no result is kept of an experiment's form but of the other one.
///
/// # Errors
///
/// As [`kept`].
pub fn of_other_form(path: &Path, form: Form) -> Result<Option<Stability>> {
    let (other, name) = match form {
        Form::Full => (Form::Quick, "of --quick"),
        Form::Quick => (Form::Full, "of all runs"),
    };
    let text = kept(path, other)?.map(|result| {
        format!(
            "No result of --sensitivity is kept of these runs. The one {name} ({}, made on {}) is \
             about other runs, and is not shown here.",
            installation::display(&kept_at(path, other)),
            result.date
        )
    });
    Ok(text.map(|text| Stability {
        text,
        tables: vec![],
    }))
}

/// Reads a result that `--sensitivity` has written.
///
/// # Errors
///
/// If the file cannot be read, or has another format.
pub fn read(file: &Path) -> Result<Sensitivity> {
    let source = SourceFile::new(file, files::read_text(file, files::CONFIGURATION)?);
    let read = toml::from_str(source.text()).map_err(|error: toml::de::Error| {
        let span = error.span().unwrap_or(0..0);
        let problem =
            Problem::error(&source, SENSITIVITY, span, error.message().trim_end()).label("here");
        Errors::new(
            source.name(),
            vec![problem.help("make it again: experiment NAME --sensitivity, and copy its file")],
        )
    })?;
    Ok(read)
}

impl Sensitivity {
    fn new(
        experiment: &Experiment,
        path: &Path,
        form: Form,
        runs: usize,
        conclusion: Vec<Conclusion>,
        change: Vec<Changed>,
    ) -> Result<Self> {
        let Inputs {
            model,
            model_values_crc32,
            experiment_crc32,
            system_crc32,
        } = Inputs::of(experiment, path)?;
        let provenance = Figures::new(SENSITIVITY).provenance();
        let made = |name: &str| {
            provenance
                .get(name)
                .and_then(|value| value.as_str())
                .map(str::to_owned)
        };
        Ok(Self {
            experiment: experiment.name.clone(),
            date: made("date")
                .and_then(|date| date.split('T').next().map(str::to_owned))
                .unwrap_or_default(),
            commit: made("commit"),
            quick: form == Form::Quick,
            runs,
            model,
            model_values_crc32,
            experiment_crc32,
            system_crc32,
            conclusion,
            change,
        })
    }

    /// Returns the changes with which the model is valid.
    pub fn tried(&self) -> impl Iterator<Item = &Changed> {
        self.change.iter().filter(|change| change.refused.is_none())
    }

    /// Returns the changes that turn the verdict on the conclusion at this position around.
    pub fn turns(&self, conclusion: usize) -> Vec<Turn> {
        let unchanged = self.conclusion[conclusion].holds;
        let turned = |change: &&Changed| change.holds.get(conclusion) == Some(&!unchanged);
        let changes = self.change.iter().filter(turned);
        changes
            .map(|change| {
                let names = change.parameter.split(AND).zip(change.to.split(AND));
                let values: Vec<String> = names
                    .map(|(parameter, to)| format!("{parameter} = {to}"))
                    .collect();
                Turn {
                    values: values.join(", "),
                    left: change.left[conclusion].clone(),
                }
            })
            .collect()
    }

    /// Returns the number of guards among its conclusions.
    pub fn guards(&self) -> usize {
        let guards = self.conclusion.iter();
        guards
            .filter(|conclusion| conclusion.kind == ConclusionKind::Guard)
            .count()
    }

    /// Returns the number of guards that hold on the unchanged model and with every change.
    pub fn surviving(&self) -> usize {
        let survives = |(at, conclusion): &(usize, &Conclusion)| {
            conclusion.kind == ConclusionKind::Guard
                && conclusion.holds
                && self.turns(*at).is_empty()
        };
        self.conclusion.iter().enumerate().filter(survives).count()
    }

    /// Returns which guards do not survive, and how many changes turn each over; empty if all do.
    fn turned(&self) -> String {
        let guards = self
            .conclusion
            .iter()
            .enumerate()
            .filter(|(_, conclusion)| conclusion.kind == ConclusionKind::Guard);
        let turned: Vec<String> = guards
            .filter_map(|(at, conclusion)| match self.turns(at).len() {
                0 => None,
                changes => Some(format!(
                    "`{}` with {}",
                    conclusion.check,
                    count(changes, "change")
                )),
            })
            .collect();
        if turned.is_empty() {
            return String::new();
        }
        format!(" Others turn over: {}.", turned.join(", "))
    }

    /// Returns a short name of each conclusion.
    fn names(&self) -> Vec<String> {
        let (mut guards, mut statements) = (0, 0);
        let conclusions = self.conclusion.iter();
        conclusions
            .map(|conclusion| match conclusion.kind {
                ConclusionKind::Guard => {
                    guards += 1;
                    format!("G{guards}")
                }
                ConclusionKind::Shows => {
                    statements += 1;
                    format!("P{statements}")
                }
            })
            .collect()
    }

    /// Returns two tables: the conclusions, each with the changes that turn its verdict around; and
    /// the changes, each with the verdicts on the conclusions.
    pub fn tables(&self) -> [Section; 2] {
        let mut first = Section::new(
            "Which conclusions survive other values of the model",
            &[
                "conclusion",
                "check",
                "as shipped",
                "the same with",
                "not with",
            ],
        );
        let (names, tried) = (self.names(), self.tried().count());
        for (at, conclusion) in self.conclusion.iter().enumerate() {
            let turns = self.turns(at);
            let holds = if conclusion.holds { "holds" } else { "FAILS" };
            let with: Vec<String> = turns
                .iter()
                .map(|turn| format!("{} ({})", turn.values, turn.left))
                .collect();
            first.row([
                names[at].clone(),
                conclusion.check.clone(),
                format!("{holds}: {}", conclusion.left),
                format!("{} of {tried} changes", tried - turns.len()),
                with.join("; "),
            ]);
        }
        let note = "G are guards: what was found here before. P are statements of the paper, which \
                    fail where the result differs from it. Not with: the changes that turn the \
                    verdict around, each with the left side.";
        let first = first.note(note);
        let header: Vec<&str> = ["parameter", "from", "to"]
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .collect();
        let mut second = Section::new("The conclusions after each change", &header);
        for change in &self.change {
            let of = |at: usize| match (change.holds.get(at), &change.refused) {
                (Some(true), _) => format!("holds: {}", change.left[at]),
                (Some(false), _) => format!("FAILS: {}", change.left[at]),
                (None, _) => "no such model".to_owned(),
            };
            let head = [
                change.parameter.clone(),
                change.from.clone(),
                change.to.clone(),
            ];
            second.row(head.into_iter().chain((0..names.len()).map(of)));
        }
        let note = "Each value of the model that is no fact of the board and was not measured on \
                    one, at half and at double; switches the other way; each other policy; and \
                    pairs of them together. After the verdict the left side of the check, in the \
                    run that decides.";
        [first, second.note(note)]
    }

    /// Returns the conclusions after each change as rows of a series.
    pub fn series(&self) -> Series {
        let names = [
            "parameter",
            "from",
            "to",
            "conclusion",
            "holds",
            "left_side",
        ];
        let mut rows = vec![];
        for change in &self.change {
            for ((conclusion, holds), left) in
                self.conclusion.iter().zip(&change.holds).zip(&change.left)
            {
                let text = [
                    &change.parameter,
                    &change.from,
                    &change.to,
                    &conclusion.check,
                ]
                .map(|cell| Cell::Text(cell.clone()));
                rows.push(
                    text.into_iter()
                        .chain([Cell::Count(u64::from(*holds)), Cell::Text(left.clone())])
                        .collect(),
                );
            }
        }
        Series {
            name: SENSITIVITY.to_owned(),
            columns: columns(names),
            rows,
        }
    }

    /// Returns whether the experiment still has all of its conclusions.
    fn is_about(&self, experiment: &Experiment) -> bool {
        self.conclusion.iter().all(|conclusion| {
            let check = &conclusion.check;
            match conclusion.kind {
                ConclusionKind::Guard => {
                    let mut guards = experiment.guards.iter();
                    guards.any(|guard| guard.check.text == *check)
                }
                ConclusionKind::Shows => {
                    let mut shows = experiment.shows.iter();
                    shows.any(|statement| statement.claim() == *check)
                }
            }
        })
    }

    /// Returns what a report of the same form says of it, beside the guards that fail in that
    /// report.
    ///
    /// # Errors
    ///
    /// As [`Self::origin`].
    pub fn stability(
        &self,
        experiment: &Experiment,
        path: &Path,
        conclusions: &Conclusions,
    ) -> Result<Stability> {
        let mut text = self.origin(experiment, path)?;
        let judged = experiment.guards.iter().zip(&conclusions.verdicts);
        let failing: Vec<String> = judged
            .filter(|(_, verdict)| matches!(verdict, Verdict::Fails(..) | Verdict::Missing(_)))
            .map(|(guard, _)| format!("`{}`", guard.check.text))
            .collect();
        if !failing.is_empty() {
            text += &format!(
                " In this report {} of {} guards fail: {}.",
                failing.len(),
                experiment.guards.len(),
                failing.join(", ")
            );
        }
        Ok(Stability {
            text,
            tables: self.tables().into(),
        })
    }

    /// Returns which inputs have changed since the result was made.
    ///
    /// # Errors
    ///
    /// If an input of the experiment cannot be read.
    pub fn since(&self, experiment: &Experiment, path: &Path) -> Result<String> {
        let now = Inputs::of(experiment, path)?;
        let differing: Vec<&str> = [
            (
                "the model's values",
                self.model_values_crc32 == now.model_values_crc32,
            ),
            (
                "the experiment's runs",
                self.experiment_crc32 == now.experiment_crc32,
            ),
            ("its guards or statements", self.is_about(experiment)),
            ("its system", self.system_crc32 == now.system_crc32),
        ]
        .into_iter()
        .filter_map(|(name, same)| (!same).then_some(name))
        .collect();
        Ok(match (differing.is_empty(), self.model == now.model) {
            (true, _) => "Model, experiment and system are still the same.".to_owned(),
            (false, true) => format!("Changed since then: {}.", differing.join(", ")),
            (false, false) => format!("It is not about {}, on which this was run.", now.model),
        })
    }

    /// Returns the result's date and inputs, and the inputs that have changed since.
    ///
    /// # Errors
    ///
    /// If an input of the experiment cannot be read.
    pub fn origin(&self, experiment: &Experiment, path: &Path) -> Result<String> {
        let since = self.since(experiment, path)?;
        let commit = self
            .commit
            .as_ref()
            .map_or_else(String::new, |commit| format!(", commit {commit}"));
        let quick = if self.quick { " with --quick" } else { "" };
        Ok(format!(
            "{} of {} guards survive all {} changes of the model.{} Made on {}{quick}{commit}, of \
             {}, in {} runs. {since}",
            self.surviving(),
            self.guards(),
            self.change.len(),
            self.turned(),
            self.date,
            self.model,
            self.runs
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    #[test]
    fn kept_results_are_of_shipped_experiments() {
        for name in spec::names().expect("experiments") {
            let path = spec::directory().join(format!("{name}.toml"));
            let experiment = spec::load(&path, Form::Full).expect("an experiment");
            for form in [Form::Full, Form::Quick] {
                let Some(kept) = kept(&path, form).expect("it can be read") else {
                    continue;
                };
                assert_eq!(kept.experiment, name);
                let origin = kept.origin(&experiment, &path).expect("its inputs");
                assert!(
                    origin.contains(&kept.date) && !kept.conclusion.is_empty(),
                    "{origin}"
                );
                let complete = |change: &Changed| {
                    change.holds.len() == kept.conclusion.len() || change.refused.is_some()
                };
                assert!(kept.change.iter().all(complete), "{name}");
            }
        }
    }

    fn result() -> Sensitivity {
        let conclusion = |kind, check: &str, holds| Conclusion {
            kind,
            check: check.into(),
            holds,
            left: "2".into(),
        };
        let changed = |to: &str, holds: &[bool]| Changed {
            parameter: "l2.policy and l2.lines".into(),
            from: "lru and 4".into(),
            to: to.into(),
            holds: holds.into(),
            left: holds.iter().map(|_| "1.3".to_owned()).collect(),
            refused: holds.is_empty().then(|| "line 3: too small".to_owned()),
        };
        Sensitivity {
            experiment: "mine".into(),
            date: "2026-01-01".into(),
            commit: None,
            quick: true,
            runs: 6,
            model: "model.toml".into(),
            model_values_crc32: "0".into(),
            experiment_crc32: "0".into(),
            system_crc32: "0".into(),
            conclusion: vec![
                conclusion(ConclusionKind::Guard, "interf.slowdown > 1.2", true),
                conclusion(ConclusionKind::Guard, "private.slowdown < 1.1", true),
                conclusion(ConclusionKind::Shows, "slowdown = 2 within 5 %", false),
            ],
            change: vec![
                changed("fifo and 4", &[true, true, true]),
                changed("random and 8", &[true, false, false]),
                changed("none and 0", &[]),
            ],
        }
    }

    #[test]
    fn the_tables_say_what_survives_what() {
        let result = result();
        assert_eq!((result.surviving(), result.guards()), (1, 2));
        let [first, second] = result.tables();
        assert_eq!(first.rows[0][3..], ["2 of 2 changes", ""]);
        assert_eq!(
            first.rows[1][3..],
            ["1 of 2 changes", "l2.policy = random, l2.lines = 8 (1.3)"]
        );
        // A statement from which the model differs may agree after a change.
        assert_eq!(
            first.rows[2],
            [
                "P1",
                "slowdown = 2 within 5 %",
                "FAILS: 2",
                "1 of 2 changes",
                "l2.policy = fifo, l2.lines = 4 (1.3)"
            ]
        );
        assert_eq!(
            second.rows[1][2..],
            ["random and 8", "holds: 1.3", "FAILS: 1.3", "FAILS: 1.3"]
        );
        assert_eq!(second.rows[2][3..], ["no such model"; 3]);
        assert_eq!(
            result.series().rows.len(),
            6,
            "a model that is not valid has no results"
        );
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let text = toml::to_string(&result()).expect("TOML");
        assert_eq!(
            toml::from_str::<Sensitivity>(&text).expect("a result"),
            result()
        );
    }
}
