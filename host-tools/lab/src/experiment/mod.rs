//! `cloison experiment`: interference experiments on the board model.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spec`] | an experiment's TOML file |
//! | [`machine`] | what it shares with a campaign's: system, board, model and victim, with their defaults |
//! | [`account`], [`expression`] | a file's report: figures, tables, plots and text, as expressions |
//! | [`facts`], [`splits`] | the names in expressions: facts of systems and model, and parts of runs |
//! | [`check`] | conditions on the results |
//! | [`shows`] | what a paper reports, compared with the results |
//! | [`guard`] | conditions on our own results, to notice change |
//! | [`conclusions`] | the verdicts on both |
//! | [`changes`], [`sensitivity`] | other values of the model, where nobody measured them, and the conclusions with each |
//! | [`programs`] | programs in a guest's Linux: the file's, and the user's own |
//! | [`overrides`] | changes to a system: paths, and values with placeholders |
//! | [`measured`] | the results of one run |
//! | [`runner`] | performs the runs, each once, and keeps their results |
//! | [`findings`] | figures, series and the account |
//! | [`origin`] | what executed the images: the model, or a board |
//! | [`generic`], [`numbers`] | evaluation of any experiment, and of numbers that its programs print |
//! | [`printed`], [`cyclictest`], [`profiled`] | results that programs print: numbers, cyclictest's and bbprof's |
//! | [`page`] | the report, CSV and Parquet |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod account;
pub mod changes;
pub mod check;
pub mod conclusions;
pub mod cyclictest;
pub mod expression;
pub mod facts;
pub mod findings;
pub mod generic;
pub mod guard;
pub mod limits;
pub mod machine;
pub mod measured;
pub mod numbers;
pub mod origin;
pub mod overrides;
pub mod page;
pub mod printed;
pub mod profiled;
pub mod programs;
pub mod runner;
pub mod sensitivity;
pub mod shows;
pub mod spec;
pub mod splits;

use crate::boards::{Absent, Boards, seconds};
use check::Verdict;
use cloison_board_model::Board;
use cloison_config::Errors;
use cloison_config::problem::count;
use cloison_config::validation::record::Machine as Executor;
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, Claim, keep_apart, write_atomic};
use cloison_engine::model::{self, Model};
use cloison_engine::{installation, parts, setup};
use conclusions::Conclusions;
use findings::{Findings, Runs, SHIPPED_GUESTS, shown};
use measured::Measured;
use miette::{IntoDiagnostic, Result, miette};
use programs::Program;
use shows::{Comparison, Form};
use spec::{Experiment, Samples, Wanted};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cloison experiment`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExperimentArgs {
    /// `list`, the name of a shipped experiment, or a file
    #[arg(value_name = "list | NAME | FILE.toml")]
    pub name: String,
    /// Directory for runs and report [default: experiments/NAME in target/cloison, without a
    /// checkout in cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only the few runs that the experiment lists for a quick look
    #[arg(long)]
    pub quick: bool,
    /// Another board model than the experiment's: a file as those in configs/models, to see what
    /// depends on it
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// Repeat it with each unmeasured value of the model at half and at double, and show which
    /// guards and statements of the paper still hold
    #[arg(long)]
    pub sensitivity: bool,
    /// Also fail if a result differs from what the paper shows
    #[arg(long)]
    pub strict: bool,
    /// Measure your own program in Linux: static, for AArch64, observed in FUNCTION (`main`). An
    /// argument @PATH is a file or folder of this machine. NAME alone is one of the experiment's.
    /// May be repeated
    #[arg(long, value_name = "NAME[.SIZE][=PATH[@FUNCTION][,ARGUMENT…]]")]
    pub program: Vec<String>,
    /// Measure everything so often, each time with another seed of the model and what the file
    /// changes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=spec::MOST_SAMPLES as i64))]
    pub samples: Option<u32>,
    /// The hardware that executes the images, as jobs.
    #[arg(skip)]
    pub hardware: Option<Hardware>,
}

/// The hardware that executes images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// The board, if not the experiment's own.
    pub board: Option<String>,
}

/// Runs `cloison experiment`.
pub fn experiment(args: &ExperimentArgs) -> Result<()> {
    if args.name == "list" {
        list()
    } else {
        experiment_on(&Boards::here(), args)
    }
}

/// Performs and reports an experiment on these boards.
///
/// # Errors
///
/// As [`perform`]; also if a guard does not hold, or with `strict` if a result differs from the
/// paper.
pub fn experiment_on(boards: &Boards, args: &ExperimentArgs) -> Result<()> {
    let form = Form::of(args.quick);
    let (path, mut experiment) = wanted(args, form)?;
    let mut name = directory_name(&path, &spec::directory());
    if args.quick {
        name += "-quick";
    }
    if !args.program.is_empty() {
        name += "-programs";
    }
    if let Some(model) = &args.model {
        experiment.model = installation::find(model);
        name += &format!(
            "-on-{}",
            directory_name(
                &experiment.model,
                &installation::root().join("configs/models")
            )
        );
    }
    if let Some(Hardware { board }) = &args.hardware {
        experiment = experiment.on_hardware(board.as_deref());
    }
    let default = || installation::output_dir().join("experiments").join(&name);
    let out = args.out.clone().unwrap_or_else(default);
    keep_apart(
        [path.as_path(), &experiment.system, &experiment.model],
        args.json.as_deref(),
    )?;
    let scope = if args.sensitivity {
        Scope::Changes
    } else {
        Scope::AsIs
    };
    let done = perform_on(boards, &experiment, &path, &out, form, scope)?;
    seconds::remember(
        &format!("experiment {}", experiment.name),
        &boards.seconds(),
    );
    done.figures.write(args.json.as_deref())?;
    done.print(&experiment, &out);
    if args.sensitivity {
        done.print_sensitivity(&path, form, &out);
    }
    let strictness = if args.strict {
        Strictness::Paper
    } else {
        Strictness::Guards
    };
    done.conclude(&experiment, strictness)
}

/// Returns the experiment that a command asks for, with its programs and samples, and its file.
fn wanted(args: &ExperimentArgs, form: Form) -> Result<(PathBuf, Experiment)> {
    let mut path = file_of(&args.name);
    let mut shipped = spec::load(&path, form)?;
    if !args.program.is_empty()
        && !shipped.takes_programs
        && let Some(other) = &shipped.in_linux
    {
        eprintln!("{}: with programs of Linux it is `{other}`", shipped.name);
        path = file_of(other);
        shipped = spec::load(&path, form)?;
    }
    let chosen = match args.program.as_slice() {
        [] => vec![],
        _ if !shipped.takes_programs => return Err(takes_none(&shipped.name)),
        texts => {
            // Of the full form, so that `--quick` can name each.
            let all = spec::load(&path, Form::Full)?.programs;
            let links = installation::output_dir().join("experiments/programs");
            programs::choose(texts, &all, &links)?
        }
    };
    if chosen.is_empty() && args.samples.is_none() {
        return Ok((path, shipped));
    }
    let wanted = Wanted {
        programs: chosen,
        samples: args.samples,
    };
    let experiment = spec::load_with(&path, form, &wanted)?;
    Ok((path, experiment))
}

/// Returns the files that determine an experiment's runs, except the hypervisor's and the model's own.
///
/// # Errors
///
/// If the experiment is not valid, or has none of the programs.
pub fn files_of(args: &ExperimentArgs) -> Result<Vec<PathBuf>> {
    let (path, experiment) = wanted(args, Form::of(args.quick))?;
    let model = args.model.as_deref().map(installation::find);
    let mut all = vec![path, experiment.system, model.unwrap_or(experiment.model)];
    all.extend(experiment.programs.iter().flat_map(Program::files).cloned());
    Ok(all)
}

/// Returns the error for programs of an experiment that has none.
fn takes_none(name: &str) -> miette::Report {
    let takes = |name: &String| {
        spec::load(&file_of(name), Form::Full)
            .is_ok_and(|it| it.takes_programs || it.in_linux.is_some())
    };
    let mut those = spec::names().unwrap_or_default();
    those.retain(takes);
    miette!(
        help = format!("those that do: {}", those.join(", ")),
        "experiment `{name}` measures no programs of Linux by their names"
    )
}

/// Which conclusions let a command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Guards that do not hold.
    Guards,
    /// These, and differences from the paper.
    Paper,
}

/// Returns what a file contributes to the name of an output directory: the name of one that is
/// shipped in `directory`; that of another file with a part that depends on its path, because files
/// in different directories may have the same name.
fn directory_name(path: &Path, directory: &Path) -> String {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let path = whole(path);
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if path.parent() == Some(&*whole(directory)) {
        return stem;
    }
    format!(
        "{stem}-{:08x}",
        crc32fast::hash(path.as_os_str().as_encoded_bytes())
    )
}

impl ExperimentResult {
    /// Prints tables and account, and the path of the report.
    pub fn print(&self, experiment: &Experiment, out: &Path) {
        println!("{} ({})\n", experiment.title, experiment.origin().word());
        for table in &self.findings.tables {
            println!("{}", table.to_text());
        }
        for paragraph in &self.findings.account {
            println!("{paragraph}\n");
        }
        for section in self.findings.conclusions() {
            println!("{}", section.to_text());
        }
        if let Some(stability) = &self.findings.sensitivity {
            println!("Sensitivity: {}\n", stability.text);
        }
        if self.reused > 0 {
            let (all, directory) = (experiment.boots(), out.join("runs"));
            println!(
                "Runs:    {} of {all} are results of an earlier command, from the same inputs; \
                 remove {} to repeat them",
                self.reused,
                installation::display(&directory)
            );
        }
        println!(
            "Report:  {}",
            installation::display(&out.join("report.html"))
        );
        println!(
            "Data:    figures.json, series-*.csv, series-*.parquet and runs/ in the same directory"
        );
    }

    /// Prints what became of the checks with other values of the model.
    fn print_sensitivity(&self, path: &Path, form: Form, out: &Path) {
        let Some(stability) = &self.findings.sensitivity else {
            return;
        };
        for table in &stability.tables {
            println!("\n{}", table.to_text());
        }
        let kept = installation::display(&sensitivity::kept_at(path, form));
        println!(
            "Result:  {}",
            installation::display(&out.join(sensitivity::FILE))
        );
        println!("         copy it to {kept}, and each report of this form shows it");
    }

    /// Returns an error that shows each guard that failed, at its position in the file; and, if it
    /// is strict, each difference from the paper.
    ///
    /// # Errors
    /// If a guard does not hold, or its quantity was not measured; or if a result differs.
    pub fn conclude(&self, experiment: &Experiment, strictness: Strictness) -> Result<()> {
        let failed = self
            .verdicts
            .iter()
            .zip(&experiment.guards)
            .filter_map(|(verdict, guard)| {
                let check = &guard.check;
                let (message, label) = match verdict {
                    Verdict::Fails(run, left, right) => (
                        format!("the guard `{}` fails in run `{run}`", check.text),
                        format!("{} against {}", shown(*left), shown(*right)),
                    ),
                    Verdict::Missing(run) => (
                        format!("run `{run}` has nothing to check `{}` with", check.text),
                        "not measured".to_owned(),
                    ),
                    Verdict::Holds(..) | Verdict::NotRun => return None,
                };
                Some(
                    experiment
                        .problem("guards", check.span.clone(), message)
                        .label(label),
                )
            });
        let differing = self
            .compared
            .iter()
            .zip(&experiment.shows)
            .filter(|_| strictness == Strictness::Paper)
            .filter_map(|(comparison, statement)| {
                let Comparison::Differs(outcome) = comparison else {
                    return None;
                };
                let message = format!(
                    "the result differs from the paper's {}: {}",
                    statement.source,
                    statement.claim()
                );
                let problem = experiment.problem("shows", statement.span.clone(), message);
                Some(problem.label(outcome.here.clone()))
            });
        let failed: Vec<_> = failed.chain(differing).collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Errors::new(experiment.source.name(), failed).into())
        }
    }
}

/// An experiment that was performed.
#[derive(Debug)]
pub struct ExperimentResult {
    /// Figures with provenance.
    pub figures: Figures,
    /// The complete results.
    pub findings: Findings,
    /// The runs, in the order of points.
    pub runs: Vec<Measured>,
    /// Number of them that an earlier command performed.
    pub reused: usize,
    /// The verdicts on the experiment's guards.
    pub verdicts: Vec<Verdict>,
    /// What the paper shows, compared with the results.
    pub compared: Vec<Comparison>,
}

/// The values of the model with which an experiment is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those in its file; the report shows a kept result of the others.
    AsIs,
    /// Those, and each change of those that are not known.
    Changes,
}

/// Performs missing runs, and writes report and data to `out`.
///
/// # Errors
///
/// If a file is not valid, or a run fails.
pub fn perform(
    experiment: &Experiment,
    path: &Path,
    out: &Path,
    form: Form,
) -> Result<ExperimentResult> {
    perform_on(&Boards::here(), experiment, path, out, form, Scope::AsIs)
}

/// Like [`perform`], on these boards, and also with other values of the model if the scope says so.
///
/// # Errors
///
/// As [`perform`]; also if the model's file does not mark its known values, or if a run is absent.
pub fn perform_on(
    boards: &Boards,
    experiment: &Experiment,
    path: &Path,
    out: &Path,
    form: Form,
    scope: Scope,
) -> Result<ExperimentResult> {
    let started = Instant::now();
    let quickly = match form {
        Form::Full => "",
        Form::Quick => " --quick",
    };
    let _claim = Claim::for_results(
        out,
        &format!("experiment {}{quickly}", installation::display(&real(path))),
    )?;
    parts::prepare()?;
    setup::qemu()?;
    parts::build_for_model()?;
    let model = Model::load(&experiment.model)?;
    let done = boards.defer(runner::run(boards, experiment, &model, out))?;
    let Some((runs, reused)) = done else {
        if scope == Scope::Changes {
            sensitivity::repeat(boards, experiment, out)?;
        }
        return Err(Absent.into());
    };
    eprintln!(
        "{}: {} in {:.1} s{}",
        experiment.name,
        count(experiment.boots() - reused, "run"),
        started.elapsed().as_secs_f64(),
        if reused > 0 {
            format!(", and {reused} kept from earlier")
        } else {
            String::new()
        }
    );
    let described = model::check(&experiment.model)?;
    let mut findings = find(experiment, &runs, &described)?;
    let is_modelled = experiment.executor != Executor::Hardware;
    if is_modelled && runs_shipped_guests(experiment) {
        findings.say(SHIPPED_GUESTS);
    }
    for origin in experiment.programs.iter().filter_map(Program::origin) {
        findings.say(format!("A program of your own: {origin}."));
    }
    if experiment.samples.number > 1 {
        findings.say(about_samples(experiment));
    }
    let conclusions = Conclusions::draw(experiment, &runs, &described, form)?;
    conclusions.add_to(experiment, &mut findings);
    let sensitivity = match scope {
        Scope::Changes => Some(sensitivity::examine(
            boards,
            experiment,
            path,
            &conclusions,
            form,
            out,
        )?),
        Scope::AsIs if is_modelled => sensitivity::kept(path, form)?,
        Scope::AsIs => None,
    };
    findings.sensitivity = match &sensitivity {
        Some(result) => Some(result.stability(experiment, path, &conclusions)?),
        None if !is_modelled => None,
        None => sensitivity::of_other_form(path, form)?,
    };
    let images = runs.iter().map(|run| run.image.clone());
    let mut figures = provenance(experiment, path, form)?.images(images);
    conclusions.count(&mut figures);
    if let Some(result) = &sensitivity {
        findings.series.push(result.series());
        figures
            .count("sensitivity_changes", result.change.len() as u64)
            .count("sensitivity_guards", result.guards() as u64)
            .count("sensitivity_surviving", result.surviving() as u64);
    }
    figures.count("runs", runs.len() as u64);
    add_findings(&mut figures, &findings);
    write_report(experiment, path, &findings, &figures, out)?;
    Ok(ExperimentResult {
        figures,
        findings,
        runs,
        reused,
        verdicts: conclusions.verdicts,
        compared: conclusions.compared,
    })
}

/// Returns a paragraph of what differs between samples.
fn about_samples(experiment: &Experiment) -> String {
    let Samples { number, in_guest } = experiment.samples;
    let first = experiment.points.first();
    let differs = first.is_some_and(|point| point.again.iter().any(|set| *set != point.set));
    let what = match (in_guest, differs) {
        (true, _) => {
            "the guest runs the program again, each time in another process, whose pages are \
             in other frames"
        }
        (false, true) => {
            "each is a run with another seed of the model (the phase of the memory's refreshes, \
             and choices at random), and with what the file sets by {sample}, such as the seed of \
             the input"
        }
        (false, false) => {
            "each is a run with another seed of the model: the phase of the memory's refreshes, \
             and choices at random; its input is the same"
        }
    };
    format!("{number} samples of everything: {what}.")
}

/// Returns figures that say of what they are, and as yet nothing else.
fn provenance(experiment: &Experiment, path: &Path, form: Form) -> Result<Figures> {
    let conditions = &experiment.conditions;
    let programs: Vec<String> = experiment
        .programs
        .iter()
        .filter_map(Program::origin)
        .collect();
    let figures = Figures::new(&experiment.command)
        .board(&experiment.board_name())
        .config(path);
    let figures = match experiment.executor {
        Executor::Hardware => figures.on_hardware().parameter("modelled", false),
        _ => figures
            .parameter("modelled", true)
            .parameter("model", installation::display(&experiment.model))
            .parameter("model_crc32", sensitivity::crc32(&experiment.model)?)
            .parameter("seed", conditions.seed)
            .parameter("caches", conditions.caches)
            .parameter("roi", conditions.roi),
    };
    Ok(figures
        .parameter("system", installation::display(&experiment.system))
        .parameter("system_crc32", sensitivity::crc32(&experiment.system)?)
        .parameter("warm_up_segments", experiment.warm_up)
        .parameter("measure", experiment.measure)
        .parameter("baseline", experiment.baseline())
        .parameter("samples", experiment.samples.number)
        .parameter("programs", programs)
        .parameter("quick", form == Form::Quick))
}

/// Adds an experiment's own figures and series.
fn add_findings(figures: &mut Figures, findings: &Findings) {
    for (name, value) in &findings.figures {
        // Counts remain integers.
        if value.fract() == 0.0 && *value >= 0.0 && *value < 9e15 {
            figures.count(name.as_str(), *value as u64);
        } else {
            figures.value(name.as_str(), *value);
        }
    }
    for series in &findings.series {
        figures.series(&series.name, series.json());
    }
}

/// Writes figures, series and the page to the output directory.
fn write_report(
    experiment: &Experiment,
    path: &Path,
    findings: &Findings,
    figures: &Figures,
    out: &Path,
) -> Result<()> {
    for series in &findings.series {
        let name = |ending: &str| out.join(format!("series-{}.{ending}", series.name));
        write_atomic(&name("csv"), &page::csv(series)?)?;
        write_atomic(&name("parquet"), &page::parquet(series, figures)?)?;
    }
    figures.write(Some(&out.join("figures.json")))?;
    let html = page::html(experiment, path, findings, figures)?;
    write_atomic(&out.join("report.html"), html.as_bytes())
}

/// Evaluates the runs: as the file says, else any variants and axes alike.
fn find(experiment: &Experiment, runs: &[Measured], model: &Board) -> Result<Findings> {
    let all = Runs(runs);
    if experiment.account.is_empty() {
        return Ok(generic::find(
            all,
            experiment.baseline(),
            &experiment.axis_titles,
            experiment.origin(),
        ));
    }
    let systems = experiment.systems(&experiment.points)?;
    let subject = experiment.subject(all, &systems, model);
    let written = experiment.account.write(subject);
    let problems = written.problems(&experiment.source);
    match problems.is_empty() {
        true => Ok(written.findings),
        false => Err(Errors::new(experiment.source.name(), problems).into()),
    }
}

/// Returns whether all VMs of the system run workloads that come with Cloison, on one of its
/// models.
fn runs_shipped_guests(experiment: &Experiment) -> bool {
    let text = files::read_text(&experiment.system, files::CONFIGURATION).unwrap_or_default();
    let system: toml::Table = text.parse().unwrap_or_default();
    let vms = system.get("vm").and_then(toml::Value::as_array);
    let is_shipped = |vm: &toml::Value| {
        vm.get("image")
            .and_then(|image| image.get("workload"))
            .is_some()
    };
    let is_set = |(path, ..): &spec::Assignment| path.to_string().ends_with("image.file");
    vms.is_some_and(|vms| vms.iter().all(is_shipped))
        && !experiment
            .points
            .iter()
            .flat_map(|point| &point.set)
            .chain(&experiment.quick)
            .any(is_set)
}

/// Returns the file of a shipped experiment, or the given file, which may be a shipped one.
pub fn file_of(name: &str) -> PathBuf {
    if name.ends_with(".toml") {
        installation::find(Path::new(name))
    } else {
        spec::directory().join(format!("{name}.toml"))
    }
}

/// Returns the path by which a file is known however it is named, if it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

fn list() -> Result<()> {
    for name in spec::names().into_diagnostic()? {
        let experiment = spec::load(&file_of(&name), Form::Full)?;
        let quick = spec::load(&file_of(&name), Form::Quick)?;
        let source = experiment
            .paper
            .as_ref()
            .map_or_else(String::new, |(source, _)| format!(" ({source})"));
        println!("{name:<20} {}{source}", experiment.title);
        println!(
            "{:20} {} runs, {} with --quick",
            "",
            experiment.boots(),
            quick.boots()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_experiment_never_writes_over_a_shipped_one() {
        assert_eq!(directory_name(&file_of("c2is"), &spec::directory()), "c2is");
        let [one, other] =
            [tempfile::tempdir(), tempfile::tempdir()].map(|made| made.expect("a directory"));
        let names = [&one, &other].map(|directory| {
            let path = directory.path().join("c2is.toml");
            std::fs::write(&path, "").expect("a file");
            directory_name(&path, &spec::directory())
        });
        assert!(
            names[0].starts_with("c2is-") && names[1].starts_with("c2is-") && names[0] != names[1],
            "{names:?}"
        );
        // The same file by another way.
        let detour = one
            .path()
            .join("..")
            .join(one.path().file_name().expect("a name"))
            .join("c2is.toml");
        assert_eq!(directory_name(&detour, &spec::directory()), names[0]);
    }
}
