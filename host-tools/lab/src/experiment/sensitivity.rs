//! The dependence of an experiment's conclusions on values of the model that nobody has measured on
//! a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::{Check, Verdict};
use super::findings::{Cell, Runs, Series, columns, shown};
use super::measured::Measured;
use super::runner;
use super::spec::Experiment;
use crate::boards::{Absent, Boards};
use crate::parameters::{self, Decimal, Parameter, SENSITIVITY, Value, replaced};
use cloison_config::document::{self, Field, Table};
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_config::suggest;
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::installation;
use cloison_engine::model::{self, Model};
use cloison_engine::progress::bar;
use cloison_engine::report::Section;
use miette::{IntoDiagnostic, Result, miette};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Name of the file with a result, in an experiment's output directory.
pub const FILE: &str = "sensitivity.toml";

/// What a model's file says of its values: the table `[sensitivity]`.
struct About {
    /// Parameters that are facts of the board, or were measured on one, or have no influence.
    known: Vec<String>,
    /// Numbers that turn a mechanism off if they are 0, which is tried too.
    off: Vec<String>,
    /// What parameters that are texts may be.
    choices: BTreeMap<String, Vec<String>>,
}

impl About {
    /// Reads the table of a model with these values.
    fn read(root: &Table<'_>, all: &[Parameter]) -> Option<Self> {
        let Some(field) = root.optional(SENSITIVITY) else {
            let message = "the model does not say which of its values are known";
            let help = "add a table [sensitivity] with known = [\"TABLE.NAME\", …], as in \
                        configs/models/zcu102.toml";
            root.push(root.error(SENSITIVITY, 0..0, message).help(help));
            return None;
        };
        let table = field.table()?;
        let name = |field: &Field<'_>| {
            let name = field.string("the name of a value: \"TABLE.NAME\"")?;
            named(root, all, name, field.span())
        };
        let help = "name the values: known = [\"TABLE.NAME\", …]";
        let known = table.required_value("known", help, |field| field.each(name));
        let off = table.value("off", |field| field.each(name));
        let choices = table.value("choices", |field| {
            let table = field.table()?;
            let entries = table.entries().into_iter().map(|(name, span, field)| {
                let choices = field.each(|choice| Some(choice.text()?.to_owned()));
                Some((named(root, all, name, span)?, choices?))
            });
            Some(document::all(entries)?.into_iter().collect())
        });
        table.finish();
        Some(Self {
            known: known?.value,
            off: off.or(vec![])?,
            choices: choices.or(BTreeMap::new())?,
        })
    }

    /// Returns the other values of a parameter to try; nothing if its choices are not known, which
    /// is recorded.
    fn others(&self, root: &Table<'_>, parameter: &Parameter) -> Option<Vec<Value>> {
        let name = &parameter.name;
        match &parameter.value {
            Value::Number(number) => {
                let zero = self.off.contains(name).then_some(Decimal {
                    digits: 0,
                    decimals: 0,
                });
                let others = zero.into_iter().chain([number.half(), number.double()]);
                Some(others.map(Value::Number).collect())
            }
            Value::Switch(on) => Some(vec![Value::Switch(!on)]),
            Value::Text(_) => {
                let choices = self.choices.get(name);
                if choices.is_none() {
                    let message = format!("nothing says what `{name}` may be");
                    let help = "name it in `known`, or give its values in [sensitivity.choices]";
                    let error = root.error(SENSITIVITY, parameter.span(), message);
                    root.push(error.label("a text").help(help));
                }
                Some(choices?.iter().cloned().map(Value::Text).collect())
            }
        }
    }
}

/// Returns a name if a parameter has it, else records that none has.
fn named(root: &Table<'_>, all: &[Parameter], name: &str, span: Range<usize>) -> Option<String> {
    let known = || all.iter().map(|one| one.name.as_str());
    if known().any(|other| other == name) {
        return Some(name.to_owned());
    }
    let message = format!("the model has no value `{name}`");
    let problem = root.error(SENSITIVITY, span, message).label("unknown");
    root.push(problem.help(suggest(name, "values in it", known())));
    None
}

/// A change of one value of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    parameter: Parameter,
    to: Value,
}

impl Change {
    /// Returns a name for its directory.
    fn directory(&self) -> String {
        format!("{}={}", self.parameter.name, self.to)
    }
}

/// Returns every change to try: half and double each number that is not known, the other state of
/// each switch, and each other choice of a text.
///
/// # Errors
///
/// If the file does not mark its known values, marks a value that it does not have, or has a text
/// without choices.
pub fn changes(source: &SourceFile) -> Result<Vec<Change>, Errors> {
    document::read(source, |root| {
        let all = parameters::all(source)
            .map_err(|problem| root.push(*problem))
            .ok()?;
        let about = About::read(root, &all)?;
        let unknown = all.iter().filter(|one| !about.known.contains(&one.name));
        let changes = unknown.map(|parameter| {
            let others = about.others(root, parameter)?.into_iter();
            let others = others.filter(|other| *other != parameter.value);
            let change = |to| Change {
                parameter: parameter.clone(),
                to,
            };
            Some(others.map(change).collect::<Vec<_>>())
        });
        Some(document::all(changes)?.concat())
    })
}

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
    /// CRC-32 of the runs and conclusions in the experiment's file.
    pub experiment_crc32: String,
    /// CRC-32 of its system.
    pub system_crc32: String,
    /// The conclusions, and whether each holds on the unchanged model.
    pub conclusion: Vec<Conclusion>,
    /// The changes, and the verdicts on the conclusions with each.
    pub change: Vec<Changed>,
}

/// A conclusion on the unchanged model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conclusion {
    /// The check, as in the experiment's file.
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

/// Returns whether a check that could be judged holds, and its left side.
fn outcome(verdict: &Verdict) -> Option<(bool, String)> {
    match verdict {
        Verdict::Holds(_, left, _) => Some((true, shown(*left))),
        Verdict::Fails(_, left, _) => Some((false, shown(*left))),
        Verdict::Missing(_) => Some((false, String::new())),
        Verdict::NotRun => None,
    }
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

/// What an experiment's file says of its report, and not of its runs and their conclusions.
const REPORT: [&str; 7] = [
    "title", "question", "paper", "values", "figures", "table", "account",
];

/// Returns the CRC-32 of what an experiment's file says of its runs and conclusions.
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

/// A change, why the model is not valid with it, and the runs on the model with it.
#[derive(Debug)]
pub struct Repeated {
    change: Change,
    refused: Option<String>,
    runs: Vec<Measured>,
}

/// Performs the runs of an experiment again with each change of its model. Runs that are in `out`
/// are not repeated.
///
/// # Errors
///
/// If the model's file does not mark its known values, or a run fails or is absent.
pub fn repeat(boards: &Boards, experiment: &Experiment, out: &Path) -> Result<Vec<Repeated>> {
    let text = files::read_text(&experiment.model, files::CONFIGURATION)?;
    let changes = changes(&SourceFile::new(&experiment.model, text.clone()))?;
    let each = experiment.points.len();
    let bar = bar(
        &format!("{}, sensitivity", experiment.name),
        changes.len() * each,
    );
    let all = changes.len();
    let mut repeated = vec![];
    for change in changes {
        let directory = out.join(SENSITIVITY).join(change.directory());
        let file = directory.join("model.toml");
        write_atomic(
            &file,
            replaced(&text, [(&change.parameter, change.to.clone())]).as_bytes(),
        )?;
        let refused = model::check(&file)
            .err()
            .map(|error| error.to_string().replace(&installation::display(&file), ""));
        let runs = match refused {
            None => {
                let model = Model::load(&file)?;
                boards.defer(runner::run_under(
                    boards, &bar, experiment, &model, &directory,
                ))?
            }
            Some(_) => {
                bar.inc(each as u64);
                Some((vec![], 0))
            }
        };
        // If a run is absent, those of the other changes are asked for too.
        repeated.extend(runs.map(|(runs, _)| Repeated {
            change,
            refused,
            runs,
        }));
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
/// As [`repeat`]; also if the experiment has no checks.
pub fn examine(
    boards: &Boards,
    experiment: &Experiment,
    path: &Path,
    verdicts: &[Verdict],
    quick: bool,
    out: &Path,
) -> Result<Sensitivity> {
    let judged: Vec<(&Check, Conclusion)> = experiment
        .checks
        .iter()
        .zip(verdicts)
        .filter_map(|(check, verdict)| {
            let (holds, left) = outcome(verdict)?;
            Some((
                check,
                Conclusion {
                    check: check.text.clone(),
                    holds,
                    left,
                },
            ))
        })
        .collect();
    if judged.is_empty() {
        return Err(miette!(
            help = "say what you conclude, such as checks = [\"private.slowdown <= LIMIT\"] \
                    (docs/experiments.md)",
            "the experiment names no conclusions that its runs could decide"
        ));
    }
    let mut runs = experiment.points.len();
    let mut changed = vec![];
    for Repeated {
        change,
        refused,
        runs: measured,
    } in repeat(boards, experiment, out)?
    {
        let mut row = Changed {
            parameter: change.parameter.name.clone(),
            from: change.parameter.value.to_string(),
            to: change.to.to_string(),
            holds: vec![],
            left: vec![],
            refused,
        };
        if row.refused.is_none() {
            for (check, _) in &judged {
                let (holds, left) = outcome(&check.judge(Runs(&measured), experiment.baseline()))
                    .unwrap_or_default();
                row.holds.push(holds);
                row.left.push(left);
            }
            runs += measured.len();
        }
        changed.push(row);
    }
    let Inputs {
        model,
        model_values_crc32,
        experiment_crc32,
        system_crc32,
    } = Inputs::of(experiment, path)?;
    let conclusion = judged
        .into_iter()
        .map(|(_, conclusion)| conclusion)
        .collect();
    let provenance = Figures::new(SENSITIVITY).provenance();
    let made = |name: &str| {
        provenance
            .get(name)
            .and_then(|value| value.as_str())
            .map(str::to_owned)
    };
    let result = Sensitivity {
        experiment: experiment.name.clone(),
        date: made("date")
            .and_then(|date| date.split('T').next().map(str::to_owned))
            .unwrap_or_default(),
        commit: made("commit"),
        quick,
        runs,
        model,
        model_values_crc32,
        experiment_crc32,
        system_crc32,
        conclusion,
        change: changed,
    };
    let head = "# Which conclusions survive which change of the model: written by `experiment \
                --sensitivity`.\n";
    write_atomic(
        &out.join(FILE),
        format!("{head}{}", toml::to_string(&result).into_diagnostic()?).as_bytes(),
    )?;
    Ok(result)
}

/// Returns the path of an experiment's kept result: in `sensitivity/` beside its file.
pub fn kept_at(path: &Path) -> PathBuf {
    let directory = path.parent().unwrap_or(Path::new(".")).join(SENSITIVITY);
    directory.join(path.file_name().unwrap_or_default())
}

/// Returns the kept result of an experiment, if there is one.
///
/// # Errors
///
/// If the file has another format.
pub fn kept(path: &Path) -> Result<Option<Sensitivity>> {
    let file = kept_at(path);
    if file.is_file() {
        read(&file).map(Some)
    } else {
        Ok(None)
    }
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
    /// Returns which changes break the conclusion at this position, as text.
    fn breaks(&self, conclusion: usize) -> Vec<String> {
        let broken = |change: &&Changed| change.holds.get(conclusion) == Some(&false);
        self.change
            .iter()
            .filter(broken)
            .map(|change| {
                format!(
                    "{} = {} ({})",
                    change.parameter, change.to, change.left[conclusion]
                )
            })
            .collect()
    }

    /// Returns the number of conclusions that hold on the unchanged model and with every change.
    pub fn surviving(&self) -> usize {
        let survives = |(at, conclusion): &(usize, &Conclusion)| {
            conclusion.holds && self.breaks(*at).is_empty()
        };
        self.conclusion.iter().enumerate().filter(survives).count()
    }

    /// Returns two tables: the conclusions, each with the changes that it does not survive; and the
    /// changes, each with the verdicts on the conclusions.
    pub fn tables(&self) -> [Section; 2] {
        let mut first = Section::new(
            "Which conclusions survive other values of the model",
            &[
                "conclusion",
                "check",
                "as shipped",
                "survives",
                "does not survive",
            ],
        );
        let tried = self
            .change
            .iter()
            .filter(|change| change.refused.is_none())
            .count();
        for (at, conclusion) in self.conclusion.iter().enumerate() {
            let breaks = self.breaks(at);
            let holds = if conclusion.holds { "holds" } else { "FAILS" };
            first.row([
                format!("C{}", at + 1),
                conclusion.check.clone(),
                format!("{holds}: {}", conclusion.left),
                format!("{} of {tried} changes", tried - breaks.len()),
                breaks.join("; "),
            ]);
        }
        let names: Vec<String> = (1..=self.conclusion.len())
            .map(|number| format!("C{number}"))
            .collect();
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
                    one, at half and at double; switches the other way; each other policy. After \
                    the verdict the left side of the check, in the run that decides.";
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

    /// Returns the result's date and inputs, and the inputs that have changed since.
    ///
    /// # Errors
    ///
    /// If an input of the experiment cannot be read.
    pub fn origin(&self, experiment: &Experiment, path: &Path) -> Result<String> {
        let now = Inputs::of(experiment, path)?;
        let differing: Vec<&str> = [
            (
                "the model's values",
                self.model_values_crc32 == now.model_values_crc32,
            ),
            (
                "the experiment's runs or checks",
                self.experiment_crc32 == now.experiment_crc32,
            ),
            ("its system", self.system_crc32 == now.system_crc32),
        ]
        .into_iter()
        .filter_map(|(name, same)| (!same).then_some(name))
        .collect();
        let commit = self
            .commit
            .as_ref()
            .map_or_else(String::new, |commit| format!(", commit {commit}"));
        let quick = if self.quick { " with --quick" } else { "" };
        let since = match (differing.is_empty(), self.model == now.model) {
            (true, _) => "Model, experiment and system are still the same.".to_owned(),
            (false, true) => format!("Changed since then: {}.", differing.join(", ")),
            (false, false) => format!("It is not about {}, on which this was run.", now.model),
        };
        Ok(format!(
            "{} of {} conclusions survive all {} changes. Made on {}{quick}{commit}, of {}, in {} \
             runs. {since}",
            self.surviving(),
            self.conclusion.len(),
            self.change.len(),
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

    const MODEL: &str = "name = \"a\"\n[core]\nclock_mhz = 1000\nlines = 3\nahead = true\n[l2]\n\
        size = \"1M\"\n\
                         policy = \"lru\"\n";

    fn source(about: &str) -> SourceFile {
        SourceFile::new(Path::new("model.toml"), format!("{MODEL}{about}"))
    }

    fn named(about: &str) -> Vec<String> {
        changes(&source(about))
            .expect("changes")
            .iter()
            .map(Change::directory)
            .collect()
    }

    #[test]
    fn what_is_not_known_is_changed() {
        let about = "[sensitivity]\nknown = ['core.clock_mhz', 'l2.size']\noff = ['core.lines']\n\
            [sensitivity.choices]\n\
                     'l2.policy' = ['lru', 'fifo', 'random']\n";
        let all = [
            "core.lines=0",
            "core.lines=2",
            "core.lines=6",
            "core.ahead=false",
            "l2.policy=fifo",
            "l2.policy=random",
        ];
        assert_eq!(named(about), all);
    }

    #[test]
    fn mistakes_in_what_is_known_are_named() {
        let messages = |about: &str| -> Vec<String> {
            let errors = changes(&source(about)).expect_err("a mistake");
            let problems = errors.problems().iter();
            problems
                .map(|problem| problem.message().to_owned())
                .collect()
        };
        assert_eq!(
            messages(""),
            ["the model does not say which of its values are known"]
        );
        assert_eq!(
            messages("[sensitivity]\nknown = ['l2.size', 'l2.polcy']\noff = ['core.line']\n"),
            [
                "the model has no value `l2.polcy`",
                "the model has no value `core.line`"
            ]
        );
        assert_eq!(
            messages("[sensitivity]\nknown = []\n"),
            [
                "nothing says what `l2.size` may be",
                "nothing says what `l2.policy` may be"
            ]
        );
    }

    #[test]
    fn what_shipped_models_do_not_know_can_be_changed() {
        let models = shipped();
        assert!(models.len() >= 2, "{models:?}");
        for (path, text) in models {
            let changes =
                changes(&SourceFile::new(&path, text.clone())).expect("it says what is known");
            assert!(
                changes
                    .iter()
                    .any(|change| change.parameter.name == "l2.replacement"),
                "{}",
                path.display()
            );
            for change in changes {
                let changed = replaced(&text, [(&change.parameter, change.to.clone())]);
                let board = cloison_board_model::Board::parse(&changed);
                board.unwrap_or_else(|error| {
                    panic!("{}: {}: {error}", path.display(), change.directory())
                });
            }
        }
    }

    /// Returns the shipped models that say what is known, with their texts.
    fn shipped() -> Vec<(PathBuf, String)> {
        let directory = installation::root().join("configs/models");
        let all = std::fs::read_dir(directory)
            .expect("models")
            .map(|entry| entry.expect("a file").path());
        let texts = all.map(|path| {
            (
                path.clone(),
                std::fs::read_to_string(path).expect("a model"),
            )
        });
        texts
            .filter(|(_, text)| text.contains("[sensitivity]"))
            .collect()
    }

    #[test]
    fn kept_results_are_of_shipped_experiments() {
        for name in spec::names().expect("experiments") {
            let path = spec::directory().join(format!("{name}.toml"));
            let experiment = spec::load(&path, false).expect("an experiment");
            let Some(kept) = kept(&path).expect("it can be read") else {
                continue;
            };
            assert_eq!(kept.experiment, name);
            let origin = kept.origin(&experiment, &path).expect("its inputs");
            assert!(
                origin.contains(&kept.date) && kept.conclusion.len() > 1,
                "{origin}"
            );
            let complete = |change: &Changed| {
                change.holds.len() == kept.conclusion.len() || change.refused.is_some()
            };
            assert!(kept.change.iter().all(complete), "{name}");
        }
    }

    fn result() -> Sensitivity {
        let conclusion = |check: &str| Conclusion {
            check: check.into(),
            holds: true,
            left: "2".into(),
        };
        let changed = |to: &str, holds: &[bool]| Changed {
            parameter: "l2.policy".into(),
            from: "lru".into(),
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
                conclusion("interf.slowdown > 1.2"),
                conclusion("private.slowdown < 1.1"),
            ],
            change: vec![
                changed("fifo", &[true, true]),
                changed("random", &[true, false]),
                changed("none", &[]),
            ],
        }
    }

    #[test]
    fn the_tables_say_what_survives_what() {
        let result = result();
        assert_eq!(result.surviving(), 1);
        let [first, second] = result.tables();
        assert_eq!(first.rows[0][3..], ["2 of 2 changes", ""]);
        assert_eq!(
            first.rows[1][3..],
            ["1 of 2 changes", "l2.policy = random (1.3)"]
        );
        assert_eq!(
            second.rows[1],
            ["l2.policy", "lru", "random", "holds: 1.3", "FAILS: 1.3"]
        );
        assert_eq!(second.rows[2][3..], ["no such model", "no such model"]);
        assert_eq!(
            result.series().rows.len(),
            4,
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
