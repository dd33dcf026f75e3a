//! An experiment's TOML file, read and validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::analysis::Analysis;
use super::check::Check;
use super::measured::{Measure, key};
use super::overrides::{self, Path as TomlPath, Scope, Value};
use cloison_config::files::{self, ReadError};
use cloison_config::problem::{Errors, Problem, SourceFile, display_path};
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::suggest;
use cloison_engine::configuration;
use cloison_engine::installation;
use cloison_engine::model::{Caches, Conditions, Roi};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the file without its extension.
    pub name: String,
    /// The file, for messages about it.
    pub source: SourceFile,
    /// Title of the report.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// Where a paper has it, and a description of its figure.
    pub paper: Option<(String, String)>,
    /// How its runs are evaluated.
    pub analysis: Analysis,
    /// Name of the variant to which the slowdown refers, if the file names one.
    pub named_baseline: Option<String>,
    /// Conditions on the results.
    pub checks: Vec<Check>,
    /// Path of the system that the variants modify.
    pub system: PathBuf,
    /// The board on which it runs: the name of a shipped one, or the path of a board file.
    pub board: String,
    /// Path of the model's board file.
    pub model: PathBuf,
    /// Name of the VM that is measured.
    pub victim: String,
    /// Position of that name in the file.
    pub victim_span: Range<usize>,
    /// What is measured of the victim.
    pub measure: Measure,
    /// Number of the victim's first segments to leave out.
    pub warm_up: usize,
    /// Position of that number in the file.
    pub warm_up_span: Range<usize>,
    /// How the model runs.
    pub conditions: Conditions,
    /// What `--quick` sets in the system of every run, before its variant changes it; nothing without.
    pub quick: Vec<Assignment>,
    /// All runs.
    pub points: Vec<Point>,
}

impl Experiment {
    /// Returns the variant to which the slowdown refers: the one that the file names, or its first.
    pub fn baseline(&self) -> &str {
        let first = || {
            self.points
                .first()
                .map_or("", |point| point.variant.as_str())
        };
        self.named_baseline.as_deref().unwrap_or_else(first)
    }

    /// Returns the name of its board.
    pub fn board_name(&self) -> String {
        let stem = Path::new(&self.board).file_stem().unwrap_or_default();
        if self.board.ends_with(".toml") {
            stem.to_string_lossy().into_owned()
        } else {
            self.board.clone()
        }
    }

    /// Returns an error at a position in its file.
    pub fn problem(&self, field: &str, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem::error(&self.source, field, span, message)
    }

    /// Returns the system of a run, from that of the experiment's file. A path that it does not have is an error.
    pub fn system_of(&self, mut system: Value, point: &Point) -> Result<Value, Errors> {
        let wrong = |field: &str, span: &Range<usize>, error: String| {
            let problem = self
                .problem(field, span.clone(), error)
                .label(format!("run {}", point.key()));
            let help =
                "paths start at the root of the system's file: vm.NAME.field, pool.NAME.field";
            Errors::new(self.source.name(), vec![problem.help(help)])
        };
        for (path, value, span) in &self.quick {
            overrides::set(&mut system, path, value)
                .map_err(|error| wrong("quick.set", span, error))?;
        }
        for (path, span) in &point.remove {
            overrides::remove(&mut system, path)
                .map_err(|error| wrong("variant.remove", span, error))?;
        }
        for (path, value, span) in &point.set {
            overrides::set(&mut system, path, value)
                .map_err(|error| wrong("variant.set", span, error))?;
        }
        Ok(system)
    }
}

/// A path in the system, its new value, and its position in the experiment's file.
pub type Assignment = (TomlPath, Value, Range<usize>);

/// One run: a variant with a value on each of its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of the variant.
    pub variant: String,
    /// Label of its value on each axis.
    pub axes: BTreeMap<String, String>,
    /// What it sets in the system.
    pub set: Vec<Assignment>,
    /// Paths in the system to remove, and their positions in the file.
    pub remove: Vec<(TomlPath, Range<usize>)>,
    /// Pages that must have migrated before the measurement starts.
    pub pages: u64,
    /// Position of the variant's name in the file.
    pub span: Range<usize>,
}

impl Point {
    /// Returns a name for its directory.
    pub fn key(&self) -> String {
        key(&self.variant, &self.axes)
    }
    /// Returns the number on an axis, if its label is one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.axes.get(axis)?.parse().ok()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    #[serde(default)]
    question: String,
    paper: Option<PaperFile>,
    analysis: Option<Spanned<String>>,
    baseline: Option<Spanned<String>>,
    #[serde(default)]
    checks: Vec<Spanned<String>>,
    system: Spanned<PathBuf>,
    board: Option<Spanned<String>>,
    model: Option<Spanned<PathBuf>>,
    victim: Option<Spanned<String>>,
    measure: Option<Spanned<Measure>>,
    warm_up: Option<Spanned<usize>>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    caches: Caches,
    #[serde(default)]
    roi: Roi,
    #[serde(default)]
    quick: QuickFile,
    variant: Vec<VariantFile>,
}

impl File {
    fn measure(&self) -> Measure {
        self.measure
            .as_ref()
            .map_or_else(Measure::default, |measure| *measure.get_ref())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    source: String,
    shows: String,
}

/// What `--quick` changes in all runs.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickFile {
    #[serde(default)]
    set: BTreeMap<Spanned<String>, Value>,
    /// When the model is on, if not as otherwise.
    roi: Option<Roi>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantFile {
    name: Spanned<String>,
    #[serde(default)]
    axis: Vec<AxisFile>,
    #[serde(default)]
    set: BTreeMap<Spanned<String>, Value>,
    #[serde(default)]
    remove: Vec<Spanned<String>>,
    /// Number of pages that must have migrated, or a placeholder.
    #[serde(default)]
    pages: Option<Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisFile {
    name: Spanned<String>,
    values: Spanned<Vec<Value>>,
    quick: Option<Vec<Value>>,
}

/// Returns the directory of the shipped experiments.
pub fn directory() -> PathBuf {
    installation::root().join("configs/experiments")
}

/// Returns the names of the shipped experiments.
pub fn names() -> std::io::Result<Vec<String>> {
    let mut names = vec![];
    for entry in std::fs::read_dir(directory())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads and validates an experiment; `quick` uses the few values that its axes list for it, and sets what the file says
/// of a quick look.
pub fn load(path: &Path, quick: bool) -> Result<Experiment, Errors> {
    let text = files::read_text(path, files::CONFIGURATION).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let known = names().unwrap_or_default();
        let is_name = path.parent() == Some(&*directory());
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let message = match is_name && matches!(error, ReadError::Missing) {
            true => format!("there is no experiment `{stem}`"),
            false => format!("cannot read {}: {error}", file.name()),
        };
        let help = suggest(&stem, "experiments", known.iter().map(String::as_str));
        let problem = Problem::error(&file, "file", 0..0, message).help(format!(
            "{help}; an experiment of your own is named by its path, FILE.toml"
        ));
        Errors::new(file.name(), vec![problem])
    })?;
    let file = SourceFile::new(path, text);
    let name = file.name().to_owned();
    check(path, &file, quick).map_err(|problem| Errors::new(&name, vec![*problem]))
}

fn check(path: &Path, source: &SourceFile, quick: bool) -> Result<Experiment, Box<Problem>> {
    let file: File = toml::from_str(source.text()).map_err(|error| {
        let problem = Problem::error(
            source,
            "experiment",
            error.span().unwrap_or(0..0),
            error.message().trim_end(),
        );
        Box::new(
            problem
                .label("here")
                .help("see docs/experiments.md for the format of an experiment's file"),
        )
    })?;
    let base = path.parent().unwrap_or(Path::new("."));
    let base = std::path::absolute(base).unwrap_or_else(|_| base.to_path_buf());
    let system = find(source, &base, "system", &file.system, "a configuration")?;
    let board = board(source, &base, &system, file.board.as_ref())?;
    let model = match &file.model {
        Some(model) => find(source, &base, "model", model, "a board model")?,
        None => model_of(
            source,
            &board,
            file.board.as_ref().map_or(0..0, Spanned::span),
        )?,
    };
    let (victim, victim_span) = match &file.victim {
        Some(victim) => (victim.get_ref().clone(), victim.span()),
        None => (
            ends_with(source, &system, &file.system)?,
            file.system.span(),
        ),
    };
    let points = points(source, &base, &file.variant, quick)?;
    let all = if quick {
        self::points(source, &base, &file.variant, false)?
    } else {
        points.clone()
    };
    let roi = file.quick.roi.filter(|_| quick).unwrap_or(file.roi);
    let shorter = assignments(
        source,
        &base,
        "quick.set",
        &file.quick.set,
        &Scope::default(),
    )?;
    let analysis = analysis(source, &file, &all)?;
    if let Some(baseline) = &file.baseline {
        check_baseline(source, baseline, &all)?;
    }
    let checks = file
        .checks
        .iter()
        .map(|text| read_check(source, text, &all, file.measure()));
    let checks = checks.collect::<Result<_, _>>()?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let measure = file.measure();
    Ok(Experiment {
        title: file.title.unwrap_or_else(|| name.clone()),
        name,
        source: source.clone(),
        question: file.question,
        paper: file.paper.map(|paper| (paper.source, paper.shows)),
        analysis,
        named_baseline: file.baseline.map(Spanned::into_inner),
        checks,
        system,
        board,
        model,
        victim,
        victim_span,
        measure,
        warm_up_span: file.warm_up.as_ref().map_or(0..0, Spanned::span),
        warm_up: file.warm_up.map_or(0, Spanned::into_inner),
        conditions: Conditions {
            seed: file.seed,
            caches: file.caches,
            roi,
        },
        quick: if quick { shorter } else { vec![] },
        points,
    })
}

/// Returns all runs; each has another name.
fn points(
    source: &SourceFile,
    base: &Path,
    variants: &[VariantFile],
    quick: bool,
) -> Result<Vec<Point>, Box<Problem>> {
    let mut points: Vec<Point> = vec![];
    for variant in variants {
        for point in expand(source, base, variant, quick)? {
            if points.iter().any(|other| other.key() == point.key()) {
                let message = format!("run `{}` is declared twice", point.key());
                let problem = Problem::error(source, "variant.name", variant.name.span(), message);
                return Err(Box::new(
                    problem
                        .label("again")
                        .help("give the variant another name, or its axes other values"),
                ));
            }
            points.push(point);
        }
    }
    Ok(points)
}

/// Returns the path of a file that the experiment names, without detours.
fn find(
    source: &SourceFile,
    base: &Path,
    field: &str,
    named: &Spanned<PathBuf>,
    what: &str,
) -> Result<PathBuf, Box<Problem>> {
    let path = base.join(named.get_ref());
    match path.canonicalize() {
        Ok(found) if found.is_file() => Ok(found),
        _ => {
            let message = format!("there is no {field} at {}", display_path(&path).display());
            let problem = Problem::error(source, field, named.span(), message).label("not a file");
            Err(Box::new(problem.help(format!(
                "give {what}, relative to the experiment's file"
            ))))
        }
    }
}

/// Returns the board: the one that the experiment or else the system names; an own one, from `boards/` next to either,
/// as a path.
fn board(
    source: &SourceFile,
    base: &Path,
    system: &Path,
    named: Option<&Spanned<String>>,
) -> Result<String, Box<Problem>> {
    let dirs = [
        base.join("boards"),
        system.parent().unwrap_or(base).join("boards"),
    ];
    let of_system = || {
        let text = files::read_text(system, files::CONFIGURATION).ok()?;
        let table: toml::Table = text.parse().ok()?;
        table.get("board")?.as_str().map(str::to_owned)
    };
    let Some(named) = named else {
        return Ok(place(
            &dirs,
            &of_system().unwrap_or_else(|| DEFAULT_BOARD.to_owned()),
        ));
    };
    let name = named.get_ref();
    let board = if name.ends_with(".toml") {
        base.join(name).display().to_string()
    } else {
        place(&dirs, name)
    };
    let mut known = configuration::boards();
    known.extend(
        dirs.iter()
            .flat_map(|dir| cloison_config::files::available(dir)),
    );
    if board == *name && !known.contains(name) {
        let message = format!("QEMU does not emulate board `{name}`");
        let problem = Problem::error(source, "board", named.span(), message);
        return Err(Box::new(problem.label("unknown").help(suggest(
            name,
            "boards",
            known.iter().map(String::as_str),
        ))));
    }
    Ok(board)
}

/// Returns the path of a board's file in one of these directories, else the name itself.
fn place(dirs: &[PathBuf], name: &str) -> String {
    let found = dirs
        .iter()
        .map(|dir| dir.join(format!("{name}.toml")))
        .find(|path| path.is_file());
    found.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// Returns the model that the board's file names.
fn model_of(source: &SourceFile, board: &str, span: Range<usize>) -> Result<PathBuf, Box<Problem>> {
    let emulation = if board.ends_with(".toml") {
        let file = cloison_config::BoardFile::load(Path::new(board), &configuration::directory());
        let first =
            |problems: Vec<Problem>| problems.into_iter().find(Problem::is_error).map(Box::new);
        match file.map_err(first) {
            Ok(file) => file.emulation,
            Err(Some(problem)) => return Err(problem),
            Err(None) => None,
        }
    } else {
        configuration::emulation(board).ok()
    };
    emulation
        .and_then(|emulation| emulation.model)
        .ok_or_else(|| {
            let problem = Problem::error(
                source,
                "model",
                span,
                format!("board `{board}` names no model"),
            );
            Box::new(
                problem
                    .label("its board")
                    .help("give one: model = \"FILE.toml\""),
            )
        })
}

/// Returns the VM with which the system ends: the victim unless the experiment names another.
fn ends_with(
    source: &SourceFile,
    system: &Path,
    named: &Spanned<PathBuf>,
) -> Result<String, Box<Problem>> {
    let text = files::read_text(system, files::CONFIGURATION).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table
        .get("ends_with")
        .and_then(toml::Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| {
            let problem = Problem::error(
                source,
                "victim",
                named.span(),
                "the experiment does not say which VM is measured",
            );
            Box::new(
                problem
                    .label("this system has no `ends_with`")
                    .help("write victim = \"NAME OF A VM\""),
            )
        })
}

fn analysis(source: &SourceFile, file: &File, points: &[Point]) -> Result<Analysis, Box<Problem>> {
    let Some(named) = &file.analysis else {
        return Ok(Analysis::default());
    };
    let error = |message: String| Problem::error(source, "analysis", named.span(), message);
    let name = named.get_ref();
    let Some(analysis) = Analysis::named(name) else {
        let known = Analysis::NAMES.map(|(name, _)| name);
        let problem = error(format!("there is no analysis `{name}`")).label("unknown");
        return Err(Box::new(problem.help(suggest(name, "analyses", known))));
    };
    let lacks = |variant: &&&str| !points.iter().any(|point| point.variant == **variant);
    if let Some(variant) = analysis.variants().iter().find(lacks) {
        let problem = error(format!(
            "analysis `{name}` needs a variant `{variant}`, which this experiment does not have"
        ));
        return Err(Box::new(
            problem.help("leave `analysis` out: the generic one takes any variants"),
        ));
    }
    if !analysis.reads(file.measure()) {
        let problem = error(format!(
            "analysis `{name}` does not read what `measure` measures"
        ));
        let problem = match &file.measure {
            Some(measure) => problem.also(measure.span(), "measured"),
            None => problem,
        };
        return Err(Box::new(problem.help(
            "leave `analysis` out: the generic one reads all measurements",
        )));
    }
    Ok(analysis)
}

/// Reports a baseline that no variant is, or that several runs could be.
fn check_baseline(
    source: &SourceFile,
    named: &Spanned<String>,
    points: &[Point],
) -> Result<(), Box<Problem>> {
    let name = named.get_ref();
    let error = |message: String| Problem::error(source, "baseline", named.span(), message);
    let of: Vec<&Point> = points
        .iter()
        .filter(|point| point.variant == *name)
        .collect();
    if of.is_empty() {
        let mut known: Vec<&str> = points.iter().map(|point| point.variant.as_str()).collect();
        known.dedup();
        let problem = error(format!("there is no variant `{name}`")).label("unknown");
        return Err(Box::new(problem.help(suggest(name, "variants", known))));
    }
    for point in points.iter().filter(|point| point.variant != *name) {
        let agrees = |base: &&&Point| {
            base.axes
                .iter()
                .all(|(axis, label)| point.axes.get(axis).is_none_or(|other| other == label))
        };
        let number = of.iter().filter(agrees).count();
        if number != 1 {
            let message = format!(
                "{number} runs of `{name}` could be the baseline of run `{}`",
                point.key()
            );
            let problem = error(message)
                .also(point.span.clone(), "for this variant")
                .label("not one run");
            return Err(Box::new(problem.help(
                "give both variants the same axes, or name a variant without axes",
            )));
        }
    }
    Ok(())
}

fn read_check(
    source: &SourceFile,
    text: &Spanned<String>,
    points: &[Point],
    measure: Measure,
) -> Result<Check, Box<Problem>> {
    let span = text.span();
    // Without escapes, a position in the string is one in the file.
    let inside = source
        .text()
        .get(span.start + 1..span.end.saturating_sub(1))
        == Some(text.get_ref().as_str());
    let place = |at: &Range<usize>| match inside && !at.is_empty() {
        true => span.start + 1 + at.start..span.start + 1 + at.end,
        false => span.clone(),
    };
    let problem = |at: &Range<usize>, message: String, help: String| {
        Box::new(
            Problem::error(source, "checks", place(at), message)
                .label("here")
                .help(help),
        )
    };
    let all: Vec<_> = points
        .iter()
        .map(|point| (point.variant.as_str(), &point.axes))
        .collect();
    let check = Check::parse(text.get_ref(), span.clone());
    let check = check.and_then(|check| check.resolve(&all).map(|()| check));
    let check = check.map_err(|mistake| problem(&mistake.at, mistake.message, mistake.help))?;
    if let Some((needed, at)) = check.needs().find(|(needed, _)| *needed != measure) {
        let (name, message) = match needed {
            Measure::Profile => ("profile", "only a profile has groups of pages"),
            Measure::Printed => ("printed", "only a command prints numbers"),
            _ => ("cyclictest", "only cyclictest measures latencies"),
        };
        return Err(problem(
            &at,
            message.into(),
            format!("write measure = \"{name}\", or compare cycles"),
        ));
    }
    if let Some((_, event, at)) = check
        .events()
        .next()
        .filter(|_| measure != Measure::Segments)
    {
        let (what, help) = match measure {
            Measure::Profile => ("a profile", "groups, such as steps.group_2"),
            Measure::Printed => (
                "a printed number",
                "printed numbers, such as solo.printed_time",
            ),
            _ => ("cyclictest", "latencies, such as alone.avg_us"),
        };
        return Err(problem(
            &at,
            format!("{what} does not count event `{event}`"),
            format!("compare {help}"),
        ));
    }
    Ok(check)
}

/// Expands a variant to its points: the product of its axes.
fn expand(
    source: &SourceFile,
    base: &Path,
    variant: &VariantFile,
    quick: bool,
) -> Result<Vec<Point>, Box<Problem>> {
    let mut scopes = vec![(BTreeMap::new(), Scope::default())];
    for axis in &variant.axis {
        let name = axis.name.get_ref();
        let values = if quick {
            axis.quick.as_ref().unwrap_or(axis.values.get_ref())
        } else {
            axis.values.get_ref()
        };
        if values.is_empty() {
            let message = format!("axis `{name}` has no values");
            let problem =
                Problem::error(source, "variant.axis.values", axis.values.span(), message)
                    .label("empty");
            return Err(Box::new(
                problem.help("give at least one: values = [1, 2, 3]"),
            ));
        }
        let mut more = vec![];
        for (labels, scope) in &scopes {
            for value in values {
                let mut labels: BTreeMap<String, String> = labels.clone();
                labels.insert(name.clone(), label(value));
                more.push((labels, scope.with(name, value)));
            }
        }
        scopes = more;
    }
    let mut points = vec![];
    for (axes, scope) in scopes {
        let set = assignments(source, base, "variant.set", &variant.set, &scope)?;
        let mut remove = vec![];
        for key in &variant.remove {
            remove.push((toml_path(source, "variant.remove", key)?, key.span()));
        }
        let pages = match &variant.pages {
            None => 0,
            Some(pages) => {
                let value = fill(
                    source,
                    "variant.pages",
                    pages.span(),
                    &scope,
                    pages.get_ref(),
                )?;
                value
                    .as_integer()
                    .and_then(|pages| u64::try_from(pages).ok())
                    .ok_or_else(|| {
                        let message = format!("{value} is no number of pages");
                        Box::new(
                            Problem::error(source, "variant.pages", pages.span(), message)
                                .label("not a number"),
                        )
                    })?
            }
        };
        let name = variant.name.get_ref().clone();
        points.push(Point {
            variant: name,
            axes,
            set,
            remove,
            pages,
            span: variant.name.span(),
        });
    }
    Ok(points)
}

/// Returns what a table sets in the system, and where it does: paths in the system, values without placeholders.
fn assignments(
    source: &SourceFile,
    base: &Path,
    field: &str,
    set: &BTreeMap<Spanned<String>, Value>,
    scope: &Scope,
) -> Result<Vec<Assignment>, Box<Problem>> {
    let each = set.iter().map(|(key, value)| {
        let path = toml_path(source, field, key)?;
        let mut value = fill(source, field, key.span(), scope, value)?;
        overrides::anchor_at(&path, &mut value, base);
        Ok((path, value, key.span()))
    });
    each.collect()
}

fn toml_path(
    source: &SourceFile,
    field: &str,
    text: &Spanned<String>,
) -> Result<TomlPath, Box<Problem>> {
    TomlPath::parse(text.get_ref()).map_err(|error| {
        let problem = Problem::error(source, field, text.span(), error).label("not a path");
        Box::new(problem.help(
            "write vm.NAME.field, pool.NAME.field; vm.interf-* selects all whose names start so",
        ))
    })
}

/// Replaces the placeholders in a value.
fn fill(
    source: &SourceFile,
    field: &str,
    span: Range<usize>,
    scope: &Scope,
    value: &Value,
) -> Result<Value, Box<Problem>> {
    scope.fill(value).map_err(|error| {
        let problem = Problem::error(source, field, span, error).label("placeholder");
        Box::new(problem.help("placeholders are {axis}, {axis.key}, {axis+1}, {axis-1}"))
    })
}

/// Returns the label of a value; a table has its own.
fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => table.get("label").map_or_else(|| "?".to_owned(), label),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error in a modified c2is experiment: line, field, message.
    fn refused(old: &str, new: &str) -> (usize, String, String) {
        let path = directory().join("c2is.toml");
        let text = std::fs::read_to_string(&path).expect("the shipped experiment");
        assert!(text.contains(old), "{old}");
        let source = SourceFile::new(&path, text.replacen(old, new, 1));
        let problem = check(&path, &source, false).expect_err("it is refused");
        (
            problem.line_and_column().0,
            problem.field().to_owned(),
            problem.message().to_owned(),
        )
    }

    /// Returns the line of the shipped file with this text.
    fn line(text: &str) -> usize {
        let file =
            std::fs::read_to_string(directory().join("c2is.toml")).expect("the shipped experiment");
        1 + file
            .lines()
            .position(|line| line.contains(text))
            .expect("it is there")
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let (at, field, message) = refused("board = \"virt\"", "board = \"pi\"");
        assert_eq!(
            (at, field.as_str(), message.as_str()),
            (line("board"), "board", "QEMU does not emulate board `pi`")
        );
        let (at, _, message) = refused(
            "\"vm.victim.profile.top\" = \"{pages}\"",
            "\"vm.victim.profile.top\" = \"{page}\"",
        );
        assert_eq!(
            (at, message.as_str()),
            (line("profile.top"), "there is no axis for `{page}`")
        );
        let (at, _, message) = refused("pages = \"{pages}\"", "pages = \"{pages}!\"");
        assert_eq!(
            (at, message.as_str()),
            (line("pages = \"{pages}\""), "\"4!\" is no number of pages")
        );
        let (_, field, message) = refused("values = [4,", "values = [4, 4,");
        assert_eq!(
            (field.as_str(), message.as_str()),
            ("variant.name", "run `migrated-pages=4` is declared twice")
        );
        let (at, _, message) = refused("warm_up = 1", "warmup = 1");
        assert_eq!(at, line("warm_up"));
        assert!(message.starts_with("unknown field `warmup`"), "{message}");
        let (at, field, message) = refused("systems/pvt-sh.toml", "systems/none.toml");
        assert_eq!((at, field.as_str()), (line("system ="), "system"));
        assert!(message.starts_with("there is no system at"), "{message}");
        let (_, field, message) = refused("\"vm.victim.profile.top\"", "\"vm..top\"");
        assert_eq!(
            (field.as_str(), message.as_str()),
            ("variant.set", "`vm..top` is no path")
        );
    }

    /// Writes an experiment and its system into a directory, and reads the experiment.
    fn own(directory: &Path, experiment: &str) -> Result<Experiment, Errors> {
        std::fs::write(directory.join("system.toml"), "ends_with = 'vic'").expect("a system");
        let path = directory.join("mine.toml");
        std::fs::write(&path, experiment).expect("an experiment");
        load(&path, false)
    }

    #[test]
    fn an_own_experiment_is_a_few_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        let text =
            "system = 'system.toml'\n[[variant]]\nname = 'solo'\n[[variant]]\nname = 'interf'\n";
        let mine = own(directory.path(), text).expect("right");
        assert_eq!(
            (
                mine.title.as_str(),
                mine.victim.as_str(),
                mine.board.as_str()
            ),
            ("mine", "vic", "virt")
        );
        assert_eq!(
            (mine.analysis, mine.warm_up, mine.baseline()),
            (Analysis::Generic, 0, "solo")
        );
        assert!(
            mine.model.ends_with("configs/models/zcu102.toml"),
            "that of the board: {}",
            mine.model.display()
        );
        assert!(mine.system.is_absolute());
        let boards = directory.path().join("boards");
        std::fs::create_dir(&boards).expect("a directory");
        let virt = configuration::directory().join("boards/virt.toml");
        let virt = std::fs::read_to_string(virt)
            .expect("a board")
            .replace("name = \"virt\"", "name = \"desk\"");
        std::fs::write(boards.join("desk.toml"), virt).expect("a board");
        let mine = own(directory.path(), &format!("board = 'desk'\n{text}")).expect("right");
        assert_eq!(
            (
                mine.board_name().as_str(),
                Path::new(&mine.board).is_absolute()
            ),
            ("desk", true)
        );
    }

    #[test]
    fn a_quick_look_sets_what_its_table_says_unless_a_variant_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = "system = 'system.toml'\n[quick]\nroi = 'hint'\n[quick.set]\n'vm.vic.args' = [1]\n'vm.vic.cores' = [2]\n'vm.it.args' = [4]\n\
                    [[variant]]\nname = 'solo'\nremove = ['vm.it']\nset = { 'vm.vic.args' = [3] }\n";
        own(directory.path(), text).expect("right");
        let set = |quick: bool| {
            let read = load(&directory.path().join("mine.toml"), quick).expect("right");
            let system = toml::from_str("[[vm]]\nname = 'vic'\n[[vm]]\nname = 'it'").expect("TOML");
            (
                read.system_of(system, &read.points[0])
                    .expect("it has both")["vm"]
                    .to_string(),
                read.conditions.roi,
            )
        };
        assert_eq!(
            set(false),
            ("[{ args = [3], name = \"vic\" }]".to_owned(), Roi::Always)
        );
        assert_eq!(
            set(true),
            (
                "[{ args = [3], cores = [2], name = \"vic\" }]".to_owned(),
                Roi::Hint
            )
        );
        let read = load(&directory.path().join("mine.toml"), true).expect("right");
        let lacks = toml::from_str("[[vm]]\nname = 'vic'").expect("TOML");
        let errors = read
            .system_of(lacks, &read.points[0])
            .expect_err("there is no VM `it`");
        let problem = &errors.problems()[0];
        assert_eq!(
            (problem.line_and_column().0, problem.field()),
            (7, "quick.set"),
            "{}",
            problem.message()
        );
        for (table, message) in [
            ("[quick.set]\n'vm..args' = 1", "`vm..args` is no path"),
            (
                "[quick.set]\n'vm.vic.args' = ['{pages}']",
                "there is no axis for `{pages}`",
            ),
            (
                "[quick]\nsets = 1",
                "unknown field `sets`, expected `set` or `roi`",
            ),
        ] {
            let errors = own(
                directory.path(),
                &format!("system = 'system.toml'\n{table}\n[[variant]]\nname = 'solo'\n"),
            )
            .expect_err(table);
            let problem = &errors.problems()[0];
            assert_eq!(
                (problem.line_and_column().0, problem.message()),
                (3, message),
                "{table}"
            );
        }
    }

    #[test]
    fn an_experiment_is_evaluated_as_its_file_says_and_not_by_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = "system = 'system.toml'\n[[variant]]\nname = 'solo'\n";
        own(directory.path(), text).expect("right");
        std::fs::rename(
            directory.path().join("mine.toml"),
            directory.path().join("c2is.toml"),
        )
        .expect("renamed");
        let c2is = load(&directory.path().join("c2is.toml"), false).expect("right");
        assert_eq!(c2is.analysis, Analysis::Generic);
        for name in names().expect("a directory") {
            let shipped = load(
                &directory
                    .path()
                    .join("..")
                    .join(self::directory())
                    .join(format!("{name}.toml")),
                true,
            );
            let generic = [
                "c2is-linux",
                "interf-linux",
                "price-of-color",
                "profile-apps",
                "rank-inputs",
                "reclaim",
            ];
            let own = if generic.contains(&&*name) {
                "generic"
            } else {
                &name
            };
            assert_eq!(shipped.expect("right").analysis.name(), own);
        }
    }

    #[test]
    fn names_in_an_own_experiment_are_checked_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let variants = "[[variant]]\nname = 'solo'\n[[variant]]\nname = 'interf'\n";
        for (line, at, message) in [
            (
                "baseline = 'alone'",
                "'alone'",
                "there is no variant `alone`",
            ),
            ("analysis = 'c2si'", "'c2si'", "there is no analysis `c2si`"),
            (
                "analysis = 'demo'",
                "'demo'",
                "analysis `demo` needs a variant `quota`, which this experiment does not have",
            ),
            (
                "analysis = 'cyclictest'",
                "'cyclictest'",
                "analysis `cyclictest` needs a variant `alone`, which this experiment does not have",
            ),
            (
                "checks = ['solo.cycles < 9', 'intref.slowdown <= 1.1']",
                "intref.slowdown",
                "there is no variant `intref`",
            ),
            (
                "checks = ['solo.cylces < 9']",
                "cylces",
                "there is no quantity `cylces`",
            ),
            (
                "checks = ['solo.max_us < 9']",
                "solo.max_us",
                "only cyclictest measures latencies",
            ),
            (
                "checks = ['solo.printed_top < 9']",
                "solo.printed_top",
                "only a command prints numbers",
            ),
            (
                "checks = ['solo.group_2 < 9']",
                "solo.group_2",
                "only a profile has groups of pages",
            ),
            ("model = 'none.toml'", "'none.toml'", "there is no model at"),
        ] {
            let text = format!("system = 'system.toml'\n{line}\n{variants}");
            let errors = own(directory.path(), &text).expect_err(line);
            let problem = &errors.problems()[0];
            assert!(
                problem.message().starts_with(message),
                "{}",
                problem.message()
            );
            let column = 1 + line.find(at).expect("it is there");
            assert_eq!(problem.line_and_column(), (2, column), "{line}");
        }
    }

    #[test]
    fn a_misspelled_experiment_is_suggested() {
        let errors = load(&directory().join("c3is.toml"), false).expect_err("there is none");
        let problem = &errors.problems()[0];
        assert_eq!(problem.message(), "there is no experiment `c3is`");
        let help = miette::Diagnostic::help(problem).expect("help").to_string();
        assert!(help.starts_with("did you mean `c2is`?"), "{help}");
    }

    #[test]
    fn shipped_experiments_are_right_and_their_quick_runs_fewer() {
        for name in names().expect("a directory") {
            let path = directory().join(&name).with_extension("toml");
            let (all, quick) = (
                load(&path, false).expect("right"),
                load(&path, true).expect("right"),
            );
            assert!(
                !quick.points.is_empty() && quick.points.len() <= all.points.len(),
                "{name}"
            );
            configuration::load(&all.system, Some(&all.board)).expect("its system is right");
            cloison_engine::model::check(&all.model).expect("its model is right");
            assert!(!all.checks.is_empty(), "{name} names no conclusion");
            assert!(quick.checks == all.checks, "{name}");
        }
    }
}
