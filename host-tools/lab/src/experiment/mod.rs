//! `cloison experiment`: interference experiments on the board model.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spec`] | an experiment's TOML file |
//! | [`overrides`] | changes to a system: paths, and values with placeholders |
//! | [`runner`] | performs the runs, each once, and keeps their results |
//! | [`findings`] | figures, series and the account |
//! | [`cases`], [`c2is`], [`wss`], [`colors`], [`migration`], [`quota`], [`matrix`], [`latency`] | evaluation of each experiment |
//! | [`cyclictest`] | cyclictest's results |
//! | [`plot`] | plots as SVG |
//! | [`page`] | the report, CSV and Parquet |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod c2is;
pub mod cases;
pub mod colors;
pub mod cyclictest;
pub mod findings;
pub mod latency;
pub mod matrix;
pub mod migration;
pub mod overrides;
pub mod page;
pub mod plot;
pub mod quota;
pub mod runner;
pub mod spec;
pub mod wss;

use cloison_engine::figures::Figures;
use cloison_engine::files::write_atomic;
use cloison_engine::model::Model;
use cloison_engine::{installation, parts, setup};
use findings::{Findings, Runs};
use miette::{IntoDiagnostic, Result, miette};
use runner::Measured;
use spec::Experiment;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cloison experiment`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExperimentArgs {
    /// `list`, the name of a shipped experiment, or a file
    #[arg(value_name = "list | NAME | FILE.toml")]
    pub name: String,
    /// Directory for runs and report [default: experiments/NAME in target/cloison, without a checkout in cloison-output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only the few runs that the experiment lists for a quick look
    #[arg(long)]
    pub quick: bool,
}

/// Runs `cloison experiment`.
pub fn experiment(args: &ExperimentArgs) -> Result<()> {
    if args.name == "list" {
        return list();
    }
    let path = file_of(&args.name);
    let experiment = spec::load(&path, args.quick)?;
    let suffix = if args.quick { "-quick" } else { "" };
    let default = || installation::output_dir().join("experiments").join(format!("{}{suffix}", experiment.name));
    let out = args.out.clone().unwrap_or_else(default);
    let done = perform(&experiment, &path, &out, args.quick)?;
    done.figures.write(args.json.as_deref())?;
    done.print(&experiment, &out);
    Ok(())
}

impl Done {
    /// Prints tables and account, and where the report is.
    pub fn print(&self, experiment: &Experiment, out: &Path) {
        println!("{} (modelled)\n", experiment.title);
        for table in &self.findings.tables {
            println!("{}", table.to_text());
        }
        for paragraph in &self.findings.account {
            println!("{paragraph}\n");
        }
        println!("Report:  {}", installation::display(&out.join("report.html")));
        println!("Data:    figures.json, series-*.csv, series-*.parquet and runs/ in the same directory");
    }
}

/// An experiment that was performed.
#[derive(Debug)]
pub struct Done {
    /// Figures with provenance.
    pub figures: Figures,
    /// The complete results.
    pub findings: Findings,
    /// The runs, in the order of points.
    pub runs: Vec<Measured>,
}

/// Performs missing runs, and writes report and data to `out`.
pub fn perform(experiment: &Experiment, path: &Path, out: &Path, quick: bool) -> Result<Done> {
    let started = Instant::now();
    parts::prepare()?;
    setup::qemu()?;
    let model = Model::load(&experiment.model)?;
    let (runs, reused) = runner::run(experiment, &model, out)?;
    eprintln!(
        "{}: {} runs, {reused} of them reused, {:.1} s",
        experiment.name,
        runs.len(),
        started.elapsed().as_secs_f64()
    );
    let findings = find(experiment, &runs, &model)?;
    let mut figures = Figures::new(&match experiment.name.as_str() {
        "demo" => "demo".to_owned(),
        name => format!("experiment {name}"),
    })
    .board(&experiment.board)
    .config(path)
    .parameter("modelled", true)
    .parameter("model", installation::display(&experiment.model))
    .parameter("model_crc32", crc32(&experiment.model)?)
    .parameter("system", installation::display(&experiment.system))
    .parameter("system_crc32", crc32(&experiment.system)?)
    .parameter("seed", experiment.seed)
    .parameter("caches", format!("{:?}", experiment.caches).to_lowercase())
    .parameter("warm_up_segments", experiment.warm_up)
    .parameter("quick", quick);
    figures.count("runs", runs.len() as u64);
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
        write_atomic(&out.join(format!("series-{}.csv", series.name)), &page::csv(series)?)?;
        write_atomic(&out.join(format!("series-{}.parquet", series.name)), &page::parquet(series, &figures)?)?;
    }
    figures.write(Some(&out.join("figures.json")))?;
    let html = page::html(experiment, path, &findings, &figures)?;
    write_atomic(&out.join("report.html"), html.as_bytes())?;
    Ok(Done { figures, findings, runs })
}

/// The core of the victim's only vCPU: the victims of the shipped systems use core 0.
const VICTIM_CORE: usize = 0;

fn find(experiment: &Experiment, runs: &[Measured], model: &Model) -> Result<Findings> {
    let runs = Runs(runs);
    match experiment.name.as_str() {
        "c2is" => c2is::find(runs),
        "cyclictest" => latency::find(runs),
        "demo" => cases::find(runs),
        "interference-wss" => wss::find(runs, VICTIM_CORE, model.clock_mhz),
        "interf-migration" => migration::find(runs),
        "matrix-copy" => matrix::find(runs),
        "quota" => quota::find(runs),
        "strict-colors" => colors::find(runs),
        other => Err(miette!(
            help = "see its runs, each with its result.json",
            "no analysis exists for an experiment called `{other}`"
        )),
    }
}

/// Returns the file of a shipped experiment, or the given file, which may be a shipped one.
pub fn file_of(name: &str) -> PathBuf {
    if name.ends_with(".toml") {
        installation::find(Path::new(name))
    } else {
        spec::directory().join(format!("{name}.toml"))
    }
}

fn crc32(path: &Path) -> Result<String> {
    Ok(format!("{:08x}", crc32fast::hash(&std::fs::read(path).into_diagnostic()?)))
}

fn list() -> Result<()> {
    for name in spec::names().into_diagnostic()? {
        let experiment = spec::load(&file_of(&name), false)?;
        let quick = spec::load(&file_of(&name), true)?;
        let source = experiment.paper.map_or_else(String::new, |(source, _)| format!(" ({source})"));
        println!("{name:<18} {}{source}", experiment.title);
        println!("{:18} {} runs, {} with --quick", "", experiment.points.len(), quick.points.len());
    }
    Ok(())
}
