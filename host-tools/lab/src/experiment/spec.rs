//! An experiment's TOML file, read and validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::overrides::{Path as TomlPath, Scope, Value};
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_engine::configuration;
use cloison_engine::installation;
use cloison_engine::model::Caches;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the file without its extension.
    pub name: String,
    /// Title of the report.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// Where a paper has it, and a description of its figure.
    pub paper: Option<(String, String)>,
    /// Path of the system that the variants modify.
    pub system: PathBuf,
    /// The board on which it runs.
    pub board: String,
    /// Path of the model's board file.
    pub model: PathBuf,
    /// Name of the VM that is measured.
    pub victim: String,
    /// What is measured of the victim.
    pub measure: Measure,
    /// Number of the victim's first segments to leave out.
    pub warm_up: usize,
    /// Seed of the model.
    pub seed: u64,
    /// State of the caches at the start of a region.
    pub caches: Caches,
    /// All runs.
    pub points: Vec<Point>,
}

/// What is measured of the victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Its observation segments, from the hypervisor's log.
    #[default]
    Segments,
    /// The latencies that cyclictest prints as JSON in its Linux guest.
    Cyclictest,
}

/// One run: a variant with a value on each of its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of the variant.
    pub variant: String,
    /// Label of its value on each axis.
    pub axes: BTreeMap<String, String>,
    /// Paths in the system and their new values.
    pub set: Vec<(TomlPath, Value)>,
    /// Paths in the system to remove.
    pub remove: Vec<TomlPath>,
    /// Pages that must have migrated before the measurement starts.
    pub pages: u64,
}

impl Point {
    /// Returns a name for its directory.
    pub fn key(&self) -> String {
        let mut key = self.variant.clone();
        for (axis, label) in &self.axes {
            key.push_str(&format!("-{axis}={label}"));
        }
        key.replace(['/', ' '], "_")
    }
    /// Returns the number on an axis, if its label is one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.axes.get(axis)?.parse().ok()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    question: String,
    paper: Option<PaperFile>,
    system: Spanned<PathBuf>,
    board: Spanned<String>,
    model: PathBuf,
    victim: String,
    #[serde(default)]
    measure: Measure,
    warm_up: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    caches: Caches,
    variant: Vec<VariantFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    source: String,
    shows: String,
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
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads and validates an experiment; `quick` uses the few values that its axes list for it.
pub fn load(path: &Path, quick: bool) -> Result<Experiment, Errors> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let known = names().unwrap_or_default().join(", ");
        let problem = Problem::error(&file, "file", 0..0, format!("cannot read {}: {error}", file.name()))
            .help(format!("experiments: {known}"));
        Errors::new(file.name(), vec![problem])
    })?;
    let file = SourceFile::new(path, text);
    let name = file.name().to_owned();
    check(path, &file, quick).map_err(|problem| Errors::new(&name, vec![*problem]))
}

fn check(path: &Path, source: &SourceFile, quick: bool) -> Result<Experiment, Box<Problem>> {
    let file: File = toml::from_str(source.text()).map_err(|error| {
        let problem = Problem::error(source, "experiment", error.span().unwrap_or(0..0), error.message().trim_end());
        Box::new(problem.label("here").help("see docs/experiments.md for the format of an experiment's file"))
    })?;
    let base = path.parent().unwrap_or(Path::new("."));
    let system = base.join(file.system.get_ref());
    if !system.is_file() {
        let message = format!("there is no system at {}", system.display());
        let problem = Problem::error(source, "system", file.system.span(), message).label("not a file");
        return Err(Box::new(problem.help("give a configuration, relative to the experiment's file")));
    }
    let board = file.board.get_ref().clone();
    let known = configuration::boards();
    if !known.contains(&board) {
        let problem =
            Problem::error(source, "board", file.board.span(), format!("QEMU does not emulate board `{board}`"));
        return Err(Box::new(problem.label("unknown").help(format!("boards: {}", known.join(", ")))));
    }
    let mut points: Vec<Point> = vec![];
    for variant in &file.variant {
        for point in expand(source, variant, quick)? {
            if points.iter().any(|other| other.key() == point.key()) {
                let message = format!("run `{}` is declared twice", point.key());
                let problem = Problem::error(source, "variant.name", variant.name.span(), message);
                return Err(Box::new(
                    problem.label("again").help("give the variant another name, or its axes other values"),
                ));
            }
            points.push(point);
        }
    }
    Ok(Experiment {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        title: file.title,
        question: file.question,
        paper: file.paper.map(|paper| (paper.source, paper.shows)),
        system,
        board,
        model: base.join(file.model),
        victim: file.victim,
        measure: file.measure,
        warm_up: file.warm_up,
        seed: file.seed,
        caches: file.caches,
        points,
    })
}

/// Expands a variant to its points: the product of its axes.
fn expand(source: &SourceFile, variant: &VariantFile, quick: bool) -> Result<Vec<Point>, Box<Problem>> {
    let mut scopes = vec![(BTreeMap::new(), Scope::default())];
    for axis in &variant.axis {
        let name = axis.name.get_ref();
        let values = if quick { axis.quick.as_ref().unwrap_or(axis.values.get_ref()) } else { axis.values.get_ref() };
        if values.is_empty() {
            let message = format!("axis `{name}` has no values");
            let problem = Problem::error(source, "variant.axis.values", axis.values.span(), message).label("empty");
            return Err(Box::new(problem.help("give at least one: values = [1, 2, 3]")));
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
    let path = |field: &str, text: &Spanned<String>| {
        TomlPath::parse(text.get_ref()).map_err(|error| {
            let problem = Problem::error(source, field, text.span(), error).label("not a path");
            Box::new(problem.help("write vm.NAME.field, pool.NAME.field; vm.interf-* selects all whose names start so"))
        })
    };
    let fill = |field: &str, span: std::ops::Range<usize>, scope: &Scope, value: &Value| {
        scope.fill(value).map_err(|error| {
            let problem = Problem::error(source, field, span, error).label("placeholder");
            Box::new(problem.help("placeholders are {axis}, {axis.key}, {axis+1}, {axis-1}"))
        })
    };
    let mut points = vec![];
    for (axes, scope) in scopes {
        let mut set = vec![];
        for (key, value) in &variant.set {
            set.push((path("variant.set", key)?, fill("variant.set", key.span(), &scope, value)?));
        }
        let mut remove = vec![];
        for key in &variant.remove {
            remove.push(path("variant.remove", key)?);
        }
        let pages = match &variant.pages {
            None => 0,
            Some(pages) => {
                let value = fill("variant.pages", pages.span(), &scope, pages.get_ref())?;
                value.as_integer().and_then(|pages| u64::try_from(pages).ok()).ok_or_else(|| {
                    let message = format!("{value} is no number of pages");
                    Box::new(Problem::error(source, "variant.pages", pages.span(), message).label("not a number"))
                })?
            }
        };
        points.push(Point { variant: variant.name.get_ref().clone(), axes, set, remove, pages });
    }
    Ok(points)
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
        (problem.line_and_column().0, problem.field().to_owned(), problem.message().to_owned())
    }

    /// Returns the line of the shipped file with this text.
    fn line(text: &str) -> usize {
        let file = std::fs::read_to_string(directory().join("c2is.toml")).expect("the shipped experiment");
        1 + file.lines().position(|line| line.contains(text)).expect("it is there")
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let (at, field, message) = refused("board = \"virt\"", "board = \"pi\"");
        assert_eq!(
            (at, field.as_str(), message.as_str()),
            (line("board"), "board", "QEMU does not emulate board `pi`")
        );
        let (at, _, message) =
            refused("\"vm.victim.profile.top\" = \"{pages}\"", "\"vm.victim.profile.top\" = \"{page}\"");
        assert_eq!((at, message.as_str()), (line("profile.top"), "there is no axis for `{page}`"));
        let (at, _, message) = refused("pages = \"{pages}\"", "pages = \"{pages}!\"");
        assert_eq!((at, message.as_str()), (line("pages = \"{pages}\""), "\"4!\" is no number of pages"));
        let (_, field, message) = refused("values = [4,", "values = [4, 4,");
        assert_eq!((field.as_str(), message.as_str()), ("variant.name", "run `migrated-pages=4` is declared twice"));
        let (at, _, message) = refused("warm_up = 1", "warmup = 1");
        assert_eq!(at, line("warm_up"));
        assert!(message.starts_with("unknown field `warmup`"), "{message}");
        let (at, field, message) = refused("systems/pvt-sh.toml", "systems/none.toml");
        assert_eq!((at, field.as_str()), (line("system ="), "system"));
        assert!(message.starts_with("there is no system at"), "{message}");
        let (_, field, message) = refused("\"vm.victim.profile.top\"", "\"vm..top\"");
        assert_eq!((field.as_str(), message.as_str()), ("variant.set", "`vm..top` is no path"));
    }

    #[test]
    fn shipped_experiments_are_right_and_their_quick_runs_fewer() {
        for name in names().expect("a directory") {
            let path = directory().join(&name).with_extension("toml");
            let (all, quick) = (load(&path, false).expect("right"), load(&path, true).expect("right"));
            assert!(!quick.points.is_empty() && quick.points.len() <= all.points.len(), "{name}");
            configuration::load(&all.system, Some(&all.board)).expect("its system is right");
            cloison_engine::model::check(&all.model).expect("its model is right");
        }
    }
}
