//! An experiment's TOML file, read and validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::account::{Account, Subject};
use super::check::Axes;
use super::findings::Runs;
use super::guard::Guard;
use super::machine::{self, directory_of, stem_of};
use super::measured::{Measure, Measured, Segment, key};
use super::origin::Origin;
use super::overrides::{self, Path as TomlPath, Scope, Value};
use super::programs::{self, Program};
use super::shows::{self, Form, Statement};
use crate::campaign::spec::CACHES;
use cloison_board_model::Board as Model;
use cloison_config::document::{self, Field, Given, Presence, Table};
use cloison_config::problem::{Errors, Problem, SourceFile, display_path};
use cloison_config::validation::record::Machine as Executor;
use cloison_config::{FileKind, files, suggest};
use cloison_engine::installation;
use cloison_engine::model::{Caches, Conditions, Roi};
use miette::IntoDiagnostic;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the file without its extension.
    pub name: String,
    /// The command that its figures name.
    pub command: String,
    /// The file, for messages about it.
    pub source: SourceFile,
    /// Title of the report.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// The place in a paper, and a description of its figure.
    pub paper: Option<(String, String)>,
    /// Its report; the generic analysis if the file has none.
    pub account: Account,
    /// Whether its report needs the model's counts of each segment. The victim must then mark its
    /// segments as regions of interest.
    pub needs_regions: bool,
    /// Name of the variant to which the slowdown refers, if the file names one.
    pub named_baseline: Option<String>,
    /// The titles of the axes, for those that have one, in plots.
    pub axis_titles: AxisTitles,
    /// Conditions on our own results: if one does not hold, something has changed.
    pub guards: Vec<Guard>,
    /// What the paper reports, to compare the results with.
    pub shows: Vec<Statement>,
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
    /// The measurement of the victim.
    pub measure: Measure,
    /// Number of the victim's first segments to leave out.
    pub warm_up: usize,
    /// Position of that number in the file.
    pub warm_up_span: Range<usize>,
    /// How the model runs.
    pub conditions: Conditions,
    /// What executes the images: the model, or hardware.
    pub executor: Executor,
    /// Assignments of `--quick` in the system of every run, before those of its variant; none
    /// without that option.
    pub quick: Vec<Assignment>,
    /// The programs of Linux that axes have as their values: the file's, or those that a command
    /// has chosen.
    pub programs: Vec<Program>,
    /// Whether any axis has them.
    pub takes_programs: bool,
    /// The experiment that does the same with programs of Linux, if this one has other guests.
    pub in_linux: Option<String>,
    /// How often everything is measured.
    pub samples: Samples,
    /// All runs.
    pub points: Vec<Point>,
}

/// How often everything is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Number of samples.
    pub number: u32,
    /// Whether the guest takes them, so that one run has all; otherwise each is a run.
    pub in_guest: bool,
}

impl Samples {
    /// One of everything.
    pub const ONE: Self = Self {
        number: 1,
        in_guest: false,
    };
}

/// What a command asks of an experiment, beside its form.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The programs to measure; the file's if there are none.
    pub programs: Vec<Program>,
    /// The number of samples, if not the file's.
    pub samples: Option<u32>,
}

/// Most samples of a run.
pub const MOST_SAMPLES: u32 = 100;

/// What plots call axes, by name.
#[derive(Clone, Debug, Default)]
pub struct AxisTitles(BTreeMap<String, String>);

impl AxisTitles {
    /// Returns the title of an axis, with the unit of its values; its name if it has none.
    pub fn of<'a>(&'a self, axis: &'a str) -> &'a str {
        self.0.get(axis).map_or(axis, String::as_str)
    }
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

    /// Makes it one for hardware, on this board or its own. Its account, its guards and what it
    /// compares with a paper are about the model, so that the generic analysis remains.
    pub fn on_hardware(self, board: Option<&str>) -> Self {
        let titles = self.account.titles;
        Self {
            executor: Executor::Hardware,
            board: board.map_or(self.board, str::to_owned),
            account: Account {
                titles,
                ..Account::default()
            },
            needs_regions: false,
            guards: vec![],
            shows: vec![],
            ..self
        }
    }

    /// Returns the number of its runs, each sample being one.
    pub fn boots(&self) -> usize {
        self.points.iter().map(|point| 1 + point.again.len()).sum()
    }

    /// Returns what executes the images, for reports.
    pub fn origin(&self) -> Origin {
        match self.executor {
            Executor::Hardware => Origin::Hardware,
            Executor::Model | Executor::Stock | Executor::Icount => {
                Origin::Model(self.conditions.roi)
            }
        }
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

    /// Returns the systems of these runs.
    ///
    /// # Errors
    /// If the system cannot be read, or a run changes what it does not have.
    pub fn systems(&self, points: &[Point]) -> miette::Result<Vec<Value>> {
        let text = cloison_engine::files::read_text(&self.system, files::CONFIGURATION)?;
        let base: Value = toml::from_str(&text).into_diagnostic()?;
        points
            .iter()
            .map(|point| Ok(self.system_of(base.clone(), point)?))
            .collect()
    }

    /// Returns the subject of an account of these runs, each with its system.
    pub fn subject<'a>(
        &'a self,
        runs: Runs<'a>,
        systems: &'a [Value],
        model: &'a Model,
    ) -> Subject<'a> {
        Subject {
            runs,
            systems,
            baseline: self.baseline(),
            victim: &self.victim,
            model,
        }
    }

    /// Returns the system of a run, from that of the experiment's file. A path that it does not
    /// have is an error.
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
        programs::add(&mut system, &self.victim, &point.programs)
            .map_err(|error| wrong("variant", &point.span, error))?;
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
    /// Its assignments in the system.
    pub set: Vec<Assignment>,
    /// Paths in the system to remove, and their positions in the file.
    pub remove: Vec<(TomlPath, Range<usize>)>,
    /// Pages that must have migrated before the measurement starts.
    pub pages: u64,
    /// The programs of Linux that it measures, if those are on an axis.
    pub programs: Vec<Program>,
    /// The number of its sample, from 0 on.
    pub sample: u32,
    /// The assignments of each further sample.
    pub again: Vec<Vec<Assignment>>,
    /// Position of the variant's name in the file.
    pub span: Range<usize>,
}

impl Point {
    /// Returns a name for its directory.
    pub fn key(&self) -> String {
        let key = key(&self.variant, &self.axes);
        match self.sample {
            0 => key,
            more => format!("{key}-sample={}", more + 1),
        }
    }

    /// Returns its samples, each as a run.
    pub fn samples(&self) -> impl Iterator<Item = Self> {
        let first = Self {
            again: vec![],
            ..self.clone()
        };
        let further = (1..).zip(&self.again).map(|(sample, set)| Self {
            set: set.clone(),
            sample,
            again: vec![],
            ..self.clone()
        });
        std::iter::once(first).chain(further)
    }

    /// Returns an example of its run: one segment, with what the victim of its system counts. The
    /// victim of a system that is not known counts nothing.
    pub fn example(&self, system: Option<&Value>, victim: &str) -> Measured {
        let path = format!("vm.{victim}.hems");
        let of_system = system.into_iter().flat_map(|it| overrides::get(it, &path));
        let counted = of_system.filter_map(Value::as_array);
        let names = counted.flatten().filter_map(Value::as_str);
        Measured {
            variant: self.variant.clone(),
            axes: self.axes.clone(),
            segments: vec![Segment {
                cycles: 1,
                events: names.map(|name| (name.to_owned(), 1)).collect(),
            }],
            pages_moved: self.pages,
            ..Measured::default()
        }
    }

    /// Returns the number on an axis, if its label is one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.axes.get(axis)?.parse().ok()
    }
}

/// The measurements, by their names in files.
const MEASURES: [(&str, Measure); 4] = [
    ("segments", Measure::Segments),
    ("cyclictest", Measure::Cyclictest),
    ("profile", Measure::Profile),
    ("printed", Measure::Printed),
];
/// When the model is on, as files have it.
const ROIS: [(&str, Roi); 2] = [("always", Roi::Always), ("hint", Roi::Hint)];

/// What `--quick` changes in all runs.
#[derive(Default)]
struct Quick {
    set: Vec<Assignment>,
    /// When the model is on, if not as otherwise.
    roi: Option<Roi>,
}

/// A variant before its axes have values.
struct Variant<'a> {
    name: Given<'a, &'a str>,
    /// Its name in tables and plots.
    title: Option<&'a str>,
    axes: Vec<Axis<'a>>,
    set: Vec<Setting<'a>>,
    /// Paths in the system to remove.
    remove: Vec<(TomlPath, Range<usize>)>,
    /// Number of pages that must have migrated, or a placeholder.
    pages: Option<Given<'a, Value>>,
}

struct Axis<'a> {
    name: &'a str,
    /// What plots call it, with the unit of its values.
    title: Option<&'a str>,
    values: AxisValues<'a>,
}

/// The values of an axis.
enum AxisValues<'a> {
    /// Those that the file lists, and those of `--quick`, if they are others.
    Listed(Vec<Value>, Option<Vec<Value>>),
    /// Programs of Linux.
    Programs(ProgramsAxis, Field<'a>),
}

/// How programs are the values of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramsAxis {
    /// Each input of each program is one.
    Each,
    /// Each program is one, with all of its inputs.
    ByName,
}

/// How axes name these.
const PROGRAMS: [(&str, ProgramsAxis); 2] = [
    ("each", ProgramsAxis::Each),
    ("by name", ProgramsAxis::ByName),
];

/// The label of a program's input, beside that of its axis.
const SIZE: &str = "size";

/// What points are made of, beside variants.
#[derive(Clone, Copy)]
struct Expansion<'a> {
    base: &'a Path,
    form: Form,
    /// The programs of the axes that have them.
    programs: &'a [Program],
    samples: Samples,
}

/// A path in the system, and the value that it gets, with placeholders.
struct Setting<'a> {
    path: TomlPath,
    value: Given<'a, Value>,
    /// Position of the path.
    span: Range<usize>,
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

/// Reads and validates an experiment. [`Form::Quick`] uses the few values that its axes list for a
/// quick look, and the file's assignments for it.
pub fn load(path: &Path, form: Form) -> Result<Experiment, Errors> {
    load_with(path, form, &Wanted::default())
}

/// Like [`load`], with what a command asks for.
pub fn load_with(path: &Path, form: Form, wanted: &Wanted) -> Result<Experiment, Errors> {
    let known = names().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let help = suggest(&stem, "experiments", known.iter().map(String::as_str));
    let help = format!("{help}; an experiment of your own is named by its path, FILE.toml");
    let file = document::open(path, &help).map_err(|errors| {
        if path.parent() != Some(&*directory()) || path.exists() {
            return errors;
        }
        let message = format!("there is no experiment `{stem}`");
        let problems = errors.problems().iter().cloned();
        let problems = problems.map(|problem| problem.with_message(&*message));
        Errors::new(
            &display_path(path).display().to_string(),
            problems.collect(),
        )
    })?;
    document::read(&file, |root| read(root, path, form, wanted))
}

fn read(root: &Table<'_>, path: &Path, form: Form, wanted: &Wanted) -> Option<Experiment> {
    FileKind::Experiment.fits(root)?;
    let base = directory_of(path);
    let title = root.value("title", Field::text);
    let question = root.value("question", Field::text);
    let paper = root.value("paper", read_paper);
    let machine = machine::read(root, &base, "name the system: system = \"FILE.toml\"");
    let measure = root.value("measure", |field| field.one_of("measurement", &MEASURES));
    let warm_up = root.value("warm_up", |field| field.integer("a number of segments"));
    let seed = root.value("seed", |field| field.integer("the model's seed"));
    let caches = root.value("caches", |field| field.one_of("cache state", &CACHES));
    let roi = root.value("roi", read_roi);
    let shorter = root.value("quick", |field| read_quick(field, &base));
    let programs = document::all(root.tables("program").into_iter().map(Program::read));
    let in_linux = root.value("in_linux", Field::text);
    let number = root.value("samples", |field| {
        field.integer_in(1..=MOST_SAMPLES.into(), "a number of samples")
    });
    let in_guest = root.flag("samples_in_guest");
    let variants = read_variants(root);
    let file_programs = programs.as_deref().unwrap_or_default();
    let of_file = Expansion {
        base: &base,
        form: Form::Full,
        programs: file_programs,
        samples: Samples {
            in_guest,
            ..Samples::ONE
        },
    };
    let all = variants.as_ref().and_then(|all| points(all, of_file));
    let account = Account::read(root);
    let baseline = root.value("baseline", |field| read_baseline(field, all.as_deref()));
    refuse_checks(root);
    let names = all.as_deref().map(names_of);
    let measured = measure.clone().or(Measure::default());
    let guards = root.value("guards", |field| {
        field.each(|guard| Guard::read(guard, names.as_deref(), measured))
    });
    let shows = root.tables("shows").into_iter();
    let shows = shows.map(|table| Statement::read(table, names.as_deref(), measured));
    let shows = document::all(shows);
    root.finish_ref();

    let shorter = shorter.or(Quick::default());
    let shown = |program: &&Program| form == Form::Full || program.is_quick();
    let chosen: Vec<Program> = match wanted.programs.as_slice() {
        [] => file_programs.iter().filter(shown).cloned().collect(),
        some => some.to_vec(),
    };
    let of_form = match form {
        Form::Full => number.or(1)? as u32,
        Form::Quick => 1,
    };
    let samples = Samples {
        number: wanted.samples.unwrap_or(of_form),
        in_guest,
    };
    refuse_samples(root, samples, measured.unwrap_or_default())?;
    let expansion = Expansion {
        form,
        programs: &chosen,
        samples,
        ..of_file
    };
    let points = variants.as_ref().and_then(|all| points(all, expansion));
    let of_programs = |axis: &Axis<'_>| matches!(axis.values, AxisValues::Programs(..));
    let takes_programs = variants
        .iter()
        .flatten()
        .flat_map(|variant| &variant.axes)
        .any(of_programs);
    let name = stem_of(path);
    let machine = machine?;
    let shorter = shorter?;
    let roi = roi.or(Roi::default())?;
    let titles = variants
        .iter()
        .flatten()
        .map(|variant| {
            let name = variant.name.value;
            (name.to_owned(), variant.title.unwrap_or(name).to_owned())
        })
        .collect();
    let axes = variants.iter().flatten().flat_map(|variant| &variant.axes);
    let axis_titles = axes
        .filter_map(|axis| Some((axis.name.to_owned(), axis.title?.to_owned())))
        .collect();
    let mut experiment = Experiment {
        title: title.or(&name)?.to_owned(),
        command: format!("experiment {name}"),
        source: root.file().clone(),
        question: question.or("")?.to_owned(),
        paper: paper.optional()?,
        account: Account { titles, ..account? },
        needs_regions: false,
        named_baseline: baseline.optional()?,
        axis_titles: AxisTitles(axis_titles),
        guards: guards.or(vec![])?,
        shows: shows?,
        system: machine.system,
        board: machine.board,
        model: machine.model,
        victim: machine.victim,
        victim_span: machine.victim_span,
        measure: measure.or(Measure::default())?,
        warm_up_span: warm_up.given().map_or(0..0, |given| given.field.span()),
        warm_up: warm_up.or(0)? as usize,
        conditions: Conditions {
            seed: seed.or(0)?,
            caches: caches.or(Caches::default())?,
            roi: shorter.roi.filter(|_| form == Form::Quick).unwrap_or(roi),
        },
        executor: Executor::Model,
        quick: match form {
            Form::Full => vec![],
            Form::Quick => shorter.set,
        },
        takes_programs,
        in_linux: in_linux.optional()?.map(str::to_owned),
        samples,
        points: points?,
        programs: programs.map(|_| chosen)?,
        name,
    };
    match check_account(&mut experiment, &all?) {
        Ok(()) => Some(experiment),
        Err(problems) => {
            problems.into_iter().for_each(|problem| root.push(problem));
            None
        }
    }
}

/// Writes the account of runs of these points that have what their victims count, to find mistakes
/// in it and whether it needs the model's counts.
fn check_account(experiment: &mut Experiment, all: &[Point]) -> Result<(), Vec<Problem>> {
    if experiment.account.is_empty() && experiment.shows.is_empty() {
        return Ok(());
    }
    let systems = experiment.systems(all).unwrap_or_default();
    let points = all.iter().enumerate();
    let examples = points.map(|(at, point)| point.example(systems.get(at), &experiment.victim));
    experiment.account.examples = examples.collect();
    // A system that is not valid is reported with its own mistakes, before the first boot.
    if systems.is_empty() {
        return Ok(());
    }
    let model = Model::zcu102();
    let subject = experiment.subject(Runs(&experiment.account.examples), &systems, &model);
    let written = experiment.account.write(subject);
    let compared = shows::numbers(&experiment.shows, &experiment.account, subject);
    experiment.needs_regions = written.reads_regions || compared.reads_regions;
    let mut problems = written.problems(&experiment.source);
    problems.extend(compared.problems(&experiment.source));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems),
    }
}

/// Returns the name and the labels of each run.
fn names_of(points: &[Point]) -> Vec<(&str, &Axes)> {
    let names = points.iter();
    names
        .map(|point| (point.variant.as_str(), &point.axes))
        .collect()
}

/// Refuses what a file called `checks`: it did not tell the paper's results from the file's own.
fn refuse_checks(root: &Table<'_>) {
    // Asked for only if it is there: it is none of the fields that a file may have.
    let is_there = root.entries().iter().any(|(name, ..)| *name == "checks");
    if let Some(field) = is_there.then(|| root.optional("checks")).flatten() {
        let error = field.error("an experiment has guards and [[shows]], and no checks");
        let help = "write guards = [\"CONDITION\", …] for what was found here, and [[shows]] for what \
                    a paper reports (docs/experiments.md)";
        field.push(error.label("an earlier name").help(help));
    }
}

/// Refuses several samples of what cannot be one result.
fn refuse_samples(root: &Table<'_>, samples: Samples, measure: Measure) -> Option<()> {
    let merges = [Measure::Segments, Measure::Printed].contains(&measure);
    if samples.number == 1 || samples.in_guest || merges {
        return Some(());
    }
    let error = root.error(
        "samples",
        0..0,
        "several samples of a profile, or of cyclictest",
    );
    let help = "leave `samples` out, or let the guest take them: samples_in_guest = true, and \
                {samples} in its command";
    root.push(error.label("in this file").help(help));
    None
}

fn read_paper(field: &Field<'_>) -> Option<(String, String)> {
    let table = field.table()?;
    let source = table.required_value("source", "name the paper", Field::text);
    let shows = table.required_value("shows", "say what it shows", Field::text);
    table.finish();
    Some((source?.value.to_owned(), shows?.value.to_owned()))
}

fn read_roi(field: &Field<'_>) -> Option<Roi> {
    field.one_of("region kind", &ROIS)
}

fn read_quick(field: &Field<'_>, base: &Path) -> Option<Quick> {
    let table = field.table()?;
    let set = table.value("set", |field| {
        assignments(&read_set(field)?, base, &Scope::default())
    });
    let roi = table.value("roi", read_roi);
    table.finish();
    Some(Quick {
        set: set.or(vec![])?,
        roi: roi.optional()?,
    })
}

fn read_variants<'a>(root: &Table<'a>) -> Option<Vec<Variant<'a>>> {
    let tables = root.tables("variant");
    if tables.is_empty() {
        let error = root.error("variant", 0..0, "the experiment has no variant");
        root.push(error.label("in this file").help("add a [[variant]]"));
    }
    document::all(tables.into_iter().map(read_variant))
}

fn read_variant<'a>(mut table: Table<'a>) -> Option<Variant<'a>> {
    let name = table.required_value("name", "name the variant", Field::text);
    if let Some(name) = &name {
        table.rename(name.value);
    }
    let title = table.value("title", Field::text);
    let axes = document::all(table.tables("axis").into_iter().map(read_axis));
    let set = table.value("set", read_set);
    let remove = table.value("remove", |field| {
        field.each(|path| {
            let text = path.string("a path: \"vm.NAME\"")?;
            let parsed = toml_path(&table, text, |error| path.error(error));
            Some((parsed?, path.span()))
        })
    });
    let pages = table.value("pages", Field::any);
    let given = pages.given().cloned();
    table.finish();
    pages.optional()?;
    Some(Variant {
        name: name?,
        title: title.optional()?,
        axes: axes?,
        set: set.or(vec![])?,
        remove: remove.or(vec![])?,
        pages: given,
    })
}

fn read_axis<'a>(mut table: Table<'a>) -> Option<Axis<'a>> {
    let name = table.required_value("name", "name the axis", Field::text);
    if let Some(name) = &name {
        table.rename(name.value);
    }
    let read_values = |field: &Field<'a>| {
        let values = field.each(Field::any)?;
        if values.is_empty() {
            let error = field.error("the axis has no values").label("empty");
            field.push(error.help("give at least one: values = [NUMBER, …]"));
        }
        Some(values)
    };
    let help = "give the axis values: values = [NUMBER, …]";
    let programs = table.value("programs", |field| {
        field.one_of("program grouping", &PROGRAMS)
    });
    let values = match programs {
        Presence::Given(Given { field, value }) => Some(AxisValues::Programs(value, field)),
        Presence::Wrong => None,
        Presence::Absent => {
            let values = table.required_value("values", help, read_values);
            let quick = table.value("quick", read_values);
            let listed = |values: Given<'a, Vec<Value>>| {
                Some(AxisValues::Listed(values.value, quick.optional()?))
            };
            values.and_then(listed)
        }
    };
    let title = table.value("title", Field::text);
    table.finish();
    Some(Axis {
        name: name?.value,
        title: title.optional()?,
        values: values?,
    })
}

/// Reads paths in the system and the values that they get, by path.
fn read_set<'a>(field: &Field<'a>) -> Option<Vec<Setting<'a>>> {
    let table = field.table()?;
    let mut entries = table.entries();
    entries.sort_by_key(|(key, ..)| *key);
    document::all(entries.into_iter().map(|(key, span, field)| {
        let path = toml_path(&table, key, |error| table.error(key, span.clone(), error))?;
        let value = field.any()?;
        let value = Given { field, value };
        Some(Setting { path, value, span })
    }))
}

/// Returns all runs; each has another name.
fn points(variants: &[Variant<'_>], expansion: Expansion<'_>) -> Option<Vec<Point>> {
    let mut points: Vec<Point> = vec![];
    let expanded = variants.iter().map(|variant| {
        for point in expand(variant, expansion)? {
            if points.iter().any(|other| other.key() == point.key()) {
                let field = &variant.name.field;
                let error = field.error(format!("run `{}` is declared twice", point.key()));
                let help = "give the variant another name, or its axes other values";
                field.push(error.label("again").help(help));
                return None;
            }
            points.push(point);
        }
        Some(())
    });
    document::all(expanded)?;
    Some(points)
}

/// Reads the baseline, which is one run for each other one.
fn read_baseline(field: &Field<'_>, points: Option<&[Point]>) -> Option<String> {
    let name = field.string("a variant's name")?;
    let points = points?;
    let of: Vec<&Point> = points
        .iter()
        .filter(|point| point.variant == name)
        .collect();
    if of.is_empty() {
        let mut known: Vec<&str> = points.iter().map(|point| point.variant.as_str()).collect();
        known.dedup();
        let error = field.error(format!("there is no variant `{name}`"));
        let help = suggest(name, "variants", known);
        field.push(error.label("unknown").help(help));
        return None;
    }
    for point in points.iter().filter(|point| point.variant != name) {
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
            let error = field
                .error(message)
                .also(point.span.clone(), "for this variant")
                .label("not one run");
            let help = "give both variants the same axes, or name a variant without axes";
            field.push(error.help(help));
            return None;
        }
    }
    Some(name.to_owned())
}

/// Expands a variant to its points: the product of its axes. What is wrong at one point is wrong at
/// the others, so the first one stands for all.
fn expand(variant: &Variant<'_>, expansion: Expansion<'_>) -> Option<Vec<Point>> {
    let Expansion { base, samples, .. } = expansion;
    let number = match samples.in_guest {
        true => samples.number,
        false => 1,
    };
    let scope = Scope::default().with("samples", &Value::Integer(number.into()));
    let mut combinations = vec![Combination {
        labels: BTreeMap::new(),
        scope,
        programs: vec![],
    }];
    for axis in &variant.axes {
        let places = places(axis, expansion)?;
        let longer = combinations.iter().flat_map(|combination| {
            let longer = |place: &AxisPlace| {
                let mut longer = combination.clone();
                longer.labels.extend(place.labels.iter().cloned());
                longer.scope = longer.scope.with(axis.name, &place.value);
                longer.programs.extend(place.programs.iter().cloned());
                longer
            };
            places.iter().map(longer).collect::<Vec<_>>()
        });
        combinations = longer.collect();
    }
    let points = combinations.into_iter().map(|combination| {
        let Combination {
            labels: axes,
            scope,
            programs,
        } = combination;
        let set = |sample: u32| {
            let scope = scope.with("sample", &Value::Integer(sample.into()));
            assignments(&variant.set, base, &scope)
        };
        let further = match samples.in_guest {
            true => 1,
            false => samples.number,
        };
        let pages = match &variant.pages {
            None => Some(0),
            Some(pages) => fill(pages, &scope).and_then(|value| {
                let number = value.as_integer().and_then(|number| number.try_into().ok());
                if number.is_none() {
                    let error = pages.field.error(format!("{value} is no number of pages"));
                    let help = "give a number, or an axis of numbers: pages = \"{axis}\"";
                    pages.field.push(error.label("not a number").help(help));
                }
                number
            }),
        };
        Some(Point {
            variant: variant.name.value.to_owned(),
            axes,
            set: set(0)?,
            remove: variant.remove.clone(),
            pages: pages?,
            programs,
            sample: 0,
            again: (1..further).map(set).collect::<Option<_>>()?,
            span: variant.name.field.span(),
        })
    });
    points.collect()
}

/// A value on each of the first axes.
#[derive(Clone)]
struct Combination {
    labels: BTreeMap<String, String>,
    scope: Scope,
    programs: Vec<Program>,
}

/// A value of an axis.
struct AxisPlace {
    labels: Vec<(String, String)>,
    value: Value,
    programs: Vec<Program>,
}

/// Returns the values of an axis.
fn places(axis: &Axis<'_>, expansion: Expansion<'_>) -> Option<Vec<AxisPlace>> {
    let (kind, field) = match &axis.values {
        AxisValues::Listed(values, quick) => {
            let shorter = quick.as_ref().filter(|_| expansion.form == Form::Quick);
            let place = |value: &Value| AxisPlace {
                labels: vec![(axis.name.to_owned(), label(value))],
                value: value.clone(),
                programs: vec![],
            };
            return Some(shorter.unwrap_or(values).iter().map(place).collect());
        }
        AxisValues::Programs(kind, field) => (*kind, field),
    };
    let programs = expansion.programs;
    if programs.is_empty() {
        let error = field
            .error("the file has no programs")
            .label("an axis of them");
        field.push(error.help("add a [[program]] with name, command and function"));
        return None;
    }
    let mut places: Vec<AxisPlace> = vec![];
    for program in programs {
        let mut labels = vec![(axis.name.to_owned(), program.name.clone())];
        let inputs: Vec<&Program> = match kind {
            ProgramsAxis::Each => {
                labels.push((SIZE.to_owned(), program.size.clone()));
                vec![program]
            }
            ProgramsAxis::ByName => {
                let same = |other: &&Program| other.name == program.name;
                programs.iter().filter(same).collect()
            }
        };
        if places.iter().any(|place| place.labels == labels) {
            continue;
        }
        if let Some(other) = inputs.iter().find(|other| !other.has_file_of(program)) {
            let error = field.error(format!(
                "`{}` is another program than `{}`, or has another function",
                other.label(),
                program.label()
            ));
            let help = "here a program's inputs are ranked by the profile of the first one: give \
                        all of them the same file and function, or another name";
            field.push(error.label("one program with several inputs").help(help));
            return None;
        }
        places.push(AxisPlace {
            value: program.value(&inputs),
            programs: inputs.into_iter().cloned().collect(),
            labels,
        });
    }
    Some(places)
}

/// Returns what a table sets in the system, and where it does: paths in the system, values without
/// placeholders.
fn assignments(set: &[Setting<'_>], base: &Path, scope: &Scope) -> Option<Vec<Assignment>> {
    document::all(set.iter().map(|setting| {
        let mut value = fill(&setting.value, scope)?;
        overrides::anchor_at(&setting.path, &mut value, base);
        Some((setting.path.clone(), value, setting.span.clone()))
    }))
}

/// Parses a path; `problem` makes the error.
fn toml_path(
    table: &Table<'_>,
    text: &str,
    problem: impl FnOnce(String) -> Problem,
) -> Option<TomlPath> {
    let path = TomlPath::parse(text);
    path.map_err(|error| {
        let help = "write vm.NAME.field, pool.NAME.field; vm.interf-* selects all whose names \
                    start so";
        table.push(problem(error).label("not a path").help(help));
    })
    .ok()
}

/// Replaces the placeholders in a value.
fn fill(given: &Given<'_, Value>, scope: &Scope) -> Option<Value> {
    let filled = scope.fill(&given.value);
    let wrong = |error: &String| {
        let error = given.field.error(error).label("placeholder");
        let help = "placeholders are {axis}, {axis.key}, {axis+1}, {axis-1}";
        given.field.push(error.help(help));
    };
    filled.inspect_err(wrong).ok()
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
    use cloison_engine::configuration;

    /// Returns the error in a modified c2is experiment: line, field, message.
    fn refused(old: &str, new: &str) -> (usize, String, String) {
        let path = directory().join("c2is.toml");
        let text = std::fs::read_to_string(&path).expect("the shipped experiment");
        assert!(text.contains(old), "{old}");
        let source = SourceFile::new(&path, text.replacen(old, new, 1));
        let errors = document::read(&source, |root| {
            read(root, &path, Form::Full, &Wanted::default())
        });
        let errors = errors.expect_err("it is refused");
        let problem = &errors.problems()[0];
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
            (
                "variant[2].name",
                "run `migrated-pages=4` is declared twice"
            )
        );
        let (at, _, message) = refused("warm_up = 1", "warmup = 1");
        assert_eq!(at, line("warm_up"));
        assert_eq!(message, "unknown field `warmup`");
        let (at, field, message) = refused("systems/pvt-sh.toml", "systems/none.toml");
        assert_eq!((at, field.as_str()), (line("system ="), "system"));
        assert!(message.starts_with("there is no system at"), "{message}");
        let (_, field, message) = refused("\"vm.victim.profile.top\"", "\"vm..top\"");
        assert_eq!(
            (field.as_str(), message.as_str()),
            ("variant[migrated].set.\"vm..top\"", "`vm..top` is no path")
        );
    }

    /// Writes an experiment and its system into a directory, and reads the experiment.
    fn own(directory: &Path, experiment: &str) -> Result<Experiment, Errors> {
        std::fs::write(directory.join("system.toml"), "ends_with = 'vic'").expect("a system");
        let path = directory.join("mine.toml");
        std::fs::write(&path, experiment).expect("an experiment");
        load(&path, Form::Full)
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
            (mine.account.is_empty(), mine.warm_up, mine.baseline()),
            (true, 0, "solo")
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
        let text = "system = 'system.toml'\n[quick]\nroi = 'hint'\n[quick.set]\n\
            'vm.vic.args' = [1]\n'vm.vic.cores' = [2]\n'vm.it.args' = [4]\n\
                    [[variant]]\nname = 'solo'\nremove = ['vm.it']\n\
                        set = { 'vm.vic.args' = [3] }\n";
        own(directory.path(), text).expect("right");
        let set = |form: Form| {
            let read = load(&directory.path().join("mine.toml"), form).expect("right");
            let system = toml::from_str("[[vm]]\nname = 'vic'\n[[vm]]\nname = 'it'").expect("TOML");
            (
                read.system_of(system, &read.points[0])
                    .expect("it has both")["vm"]
                    .to_string(),
                read.conditions.roi,
            )
        };
        assert_eq!(
            set(Form::Full),
            ("[{ args = [3], name = \"vic\" }]".to_owned(), Roi::Always)
        );
        assert_eq!(
            set(Form::Quick),
            (
                "[{ args = [3], cores = [2], name = \"vic\" }]".to_owned(),
                Roi::Hint
            )
        );
        let read = load(&directory.path().join("mine.toml"), Form::Quick).expect("right");
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
            ("[quick]\nsets = 1", "unknown field `sets`"),
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
        let c2is = load(&directory.path().join("c2is.toml"), Form::Full).expect("right");
        assert!(c2is.account.is_empty());
        for name in names().expect("a directory") {
            let path = self::directory().join(format!("{name}.toml"));
            let shipped =
                load(&path, Form::Quick).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
            // It has declared all that it reports, or nothing.
            let text = shipped.source.text();
            assert_eq!(
                shipped.account.is_empty(),
                !text.contains("[[table]]"),
                "{name}"
            );
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
            (
                "guards = ['solo.cycles < 9', 'intref.slowdown <= 1.1']",
                "intref.slowdown",
                "there is no variant `intref`",
            ),
            (
                "guards = ['solo.cylces < 9']",
                "cylces",
                "there is no quantity `cylces`",
            ),
            (
                "guards = ['solo.max_us < 9']",
                "solo.max_us",
                "only cyclictest measures latencies",
            ),
            (
                "guards = ['solo.printed_top < 9']",
                "solo.printed_top",
                "only a command prints numbers",
            ),
            (
                "guards = ['solo.group_2 < 9']",
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

    /// Returns what the runs of an experiment with two programs set, by their names.
    fn with_programs(kind: &str, form: Form, wanted: &Wanted) -> Vec<(String, String)> {
        let directory = tempfile::tempdir().expect("a directory");
        let text = format!(
            "system = 'system.toml'\nmeasure = 'printed'\nsamples = 3\n\
             [[program]]\nname = 'sort'\nsize = 'small'\ncommand = 'sort a'\nfunction = 'run'\nquick = true\n\
             [[program]]\nname = 'sort'\nsize = 'large'\ncommand = 'sort b c'\nfunction = 'run'\n\
             [[program]]\nname = 'sum'\ncommand = 'sum'\nfunction = '0x40'\n\
             [[variant]]\nname = 'solo'\n\
             set = {{ 'vm.vic.exec' = '{{sample}} {{program.function}} {{program.command}} {{program.inputs}}' }}\n\
             [[variant.axis]]\nname = 'program'\nprograms = '{kind}'\n"
        );
        own(directory.path(), &text).expect("right");
        let read = load_with(&directory.path().join("mine.toml"), form, wanted).expect("right");
        let runs = read.points.iter().flat_map(Point::samples);
        runs.map(|run| (run.key(), run.set[0].1.as_str().expect("text").to_owned()))
            .collect()
    }

    #[test]
    fn programs_are_the_values_of_an_axis_by_input_or_by_name() {
        let one = Wanted {
            samples: Some(1),
            ..Wanted::default()
        };
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(key, set): &(&str, &str)| ((*key).to_owned(), (*set).to_owned());
            all.iter().map(owned).collect()
        };
        assert_eq!(
            with_programs("each", Form::Full, &one),
            pairs(&[
                ("solo-program=sort-size=small", "0 -s run sort a -- small a"),
                (
                    "solo-program=sort-size=large",
                    "0 -s run sort b c -- large b c"
                ),
                (
                    "solo-program=sum-size=default",
                    "0 --at 0x40 sum -- default "
                ),
            ])
        );
        assert_eq!(
            with_programs("by name", Form::Full, &one),
            pairs(&[
                (
                    "solo-program=sort",
                    "0 -s run sort a -- small a -- large b c"
                ),
                ("solo-program=sum", "0 --at 0x40 sum -- default "),
            ])
        );
        let quick = with_programs("by name", Form::Quick, &Wanted::default());
        assert_eq!(
            quick,
            pairs(&[("solo-program=sort", "0 -s run sort a -- small a")]),
            "one sample of those that are quick"
        );
        let two = Wanted {
            samples: Some(2),
            ..Wanted::default()
        };
        assert_eq!(
            with_programs("by name", Form::Quick, &two),
            pairs(&[
                ("solo-program=sort", "0 -s run sort a -- small a"),
                ("solo-program=sort-sample=2", "1 -s run sort a -- small a"),
            ]),
            "another sample is another run"
        );
    }

    #[test]
    fn samples_are_of_runs_that_can_be_one() {
        let directory = tempfile::tempdir().expect("a directory");
        for (line, is_right) in [
            ("samples = 2", true),
            ("samples = 2\nmeasure = 'cyclictest'", false),
            ("samples = 2\nmeasure = 'profile'", false),
            (
                "samples = 2\nsamples_in_guest = true\nmeasure = 'profile'",
                true,
            ),
            ("samples = 101", false),
        ] {
            let text = format!("system = 'system.toml'\n{line}\n[[variant]]\nname = 'solo'\n");
            assert_eq!(own(directory.path(), &text).is_ok(), is_right, "{line}");
        }
    }

    #[test]
    fn a_misspelled_experiment_is_suggested() {
        let errors = load(&directory().join("c3is.toml"), Form::Full).expect_err("there is none");
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
                load(&path, Form::Full).expect("right"),
                load(&path, Form::Quick).expect("right"),
            );
            assert!(
                !quick.points.is_empty() && quick.points.len() <= all.points.len(),
                "{name}"
            );
            configuration::load(&all.system, Some(&all.board)).expect("its system is right");
            cloison_engine::model::check(&all.model).expect("its model is right");
            assert!(!all.guards.is_empty(), "{name} names no conclusion");
            assert!(quick.guards == all.guards, "{name}");
        }
    }
}
