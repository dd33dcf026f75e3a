//! One boot per workload and plan: the hypervisor restarts the victim for each run and counts the
//! sub-experiment's events, while the model, if it executes the boot, counts everything.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::spec::{Campaign, NEXT_SEEDS, Variant, Workload};
use crate::boards::Boards;
use crate::boards::boot::Boot;
use crate::experiment::overrides;
use crate::experiment::overrides::{Path as TomlPath, Value};
use cloison_config::Checked;
use cloison_config::events::EventNames;
use cloison_config::validation::record::Machine;
use cloison_engine::counting::{self, Counting};
use cloison_engine::files::{self, write_atomic};
use cloison_engine::image::Image;
use cloison_engine::kept::{KeptImage, KeptRun};
use cloison_engine::model::{self, Conditions, Model, Roi};
use cloison_engine::progress::bar;
use cloison_engine::store::Store;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, image};
use cloison_formats::ids::VmId;
use cloison_much::table::Vectors;
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time limit: a boot that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(3600);

/// The names of the plans.
const MUCH: &str = "much";
const HRM: &str = "hrm";

/// The counts of one workload in one variant, with one seed.
#[derive(Clone, Debug)]
pub struct WorkloadCounts {
    /// Name of the workload.
    pub name: String,
    /// Name of the variant; empty where there is only one.
    pub variant: String,
    /// The number of the campaign's seed, from 1.
    pub repetition: u32,
    /// Where its files are.
    pub directory: PathBuf,
    /// Names of all events.
    pub events: Vec<String>,
    /// Runs by MUCH's plan.
    pub much: Vec<Run>,
    /// Runs by HRM's plan; none on hardware, where nothing tells which plan is nearer to the truth.
    pub hrm: Vec<Run>,
    /// SHA-256 of the system images of the plans.
    pub images: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of its sub-experiment.
    pub sub_experiment: u32,
    /// Its number in the sub-experiment.
    pub run: u32,
    /// The counters' values from the HEM log: index of the event, and count.
    pub counted: Vec<(usize, u64)>,
    /// Counts of all events at EL1 and EL0, from the model; none on hardware.
    pub truth: Option<Vec<u64>>,
}

impl Run {
    /// Returns the true count of an event, if the model executed the run.
    pub fn truth_of(&self, event: usize) -> Option<u64> {
        self.truth.as_ref()?.get(event).copied()
    }
}

/// The results that are kept of a boot.
#[derive(Debug, Serialize, Deserialize)]
struct KeptBoot {
    inputs: String,
    runs: Vec<Run>,
}

impl WorkloadCounts {
    /// Formats the counters' values as long CSV, as `cloison much merge` reads it.
    pub fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(vec![]);
        writer
            .write_record(["sub_experiment", "run", "event", "value"])
            .into_diagnostic()?;
        for run in &self.much {
            for (event, value) in &run.counted {
                let (sub_experiment, number) =
                    (run.sub_experiment.to_string(), run.run.to_string());
                let record = [
                    sub_experiment.as_str(),
                    &number,
                    &self.events[*event],
                    &value.to_string(),
                ];
                writer.write_record(record).into_diagnostic()?;
            }
        }
        writer.into_inner().into_diagnostic()
    }

    /// Writes its vectors as `vectors.parquet`.
    pub fn write_parquet(&self, vectors: &Vectors) -> Result<()> {
        let made_by = format!("cloison {}", env!("CARGO_PKG_VERSION"));
        let parquet = cloison_much::write::to_parquet(vectors, &made_by);
        write_atomic(
            &self.directory.join("vectors.parquet"),
            &parquet.map_err(|error| miette!("{error}"))?,
        )
    }

    /// Formats all events of every run of MUCH's plan as CSV, one row per run.
    pub fn truth_csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(vec![]);
        writer.write_record(&self.events).into_diagnostic()?;
        for run in &self.much {
            writer
                .write_record(run.truth.iter().flatten().map(u64::to_string))
                .into_diagnostic()?;
        }
        writer.into_inner().into_diagnostic()
    }
}

/// A boot to perform.
struct Job<'a> {
    workload: &'a Workload,
    variant: &'a Variant,
    repetition: u32,
    /// The workload's directory.
    place: PathBuf,
    /// [`MUCH`] or [`HRM`].
    plan: &'static str,
    sub_experiments: &'a [Vec<usize>],
    /// Number of runs per sub-experiment that are used.
    runs: u32,
    seed: u64,
}

/// The runs of a boot, and the SHA-256 of its system image.
type Booted = (Vec<Run>, String);

/// The common inputs of all boots.
struct Setting<'a> {
    campaign: &'a Campaign,
    /// The model; none if hardware executes the boots.
    model: Option<&'a Model>,
    base: Value,
    hypervisor: image::Flat,
    store: Store,
}

impl Setting<'_> {
    fn system(&self, job: &Job<'_>) -> Result<String> {
        let mut system = self.base.clone();
        let wrong = |error| miette!("workload {}: {error}", job.workload.name);
        for path in &job.workload.remove {
            overrides::remove(&mut system, path).map_err(wrong)?;
        }
        for (path, value) in &job.workload.set {
            overrides::set(&mut system, path, value).map_err(wrong)?;
        }
        let name = |event: &usize| Value::String(self.campaign.events[*event].clone());
        let sets = job
            .sub_experiments
            .iter()
            .map(|set| Value::Array(set.iter().map(name).collect()));
        let mut table = toml::value::Table::new();
        let runs = i64::from(job.runs) + i64::from(self.campaign.warm_up);
        table.insert("runs".into(), Value::Integer(runs));
        table.insert("sub_experiments".into(), Value::Array(sets.collect()));
        if let Some(vary) = job.variant.vary {
            table.insert("vary".into(), Value::Integer(i64::from(vary)));
        }
        let path = TomlPath::parse(&format!("vm.{}.campaign", self.campaign.victim))
            .map_err(|error| miette!("{error}"))?;
        overrides::set(&mut system, &path, &Value::Table(table)).map_err(wrong)?;
        toml::to_string_pretty(&system).into_diagnostic()
    }

    /// Returns the number of runs of a boot, those before the counted ones included.
    fn runs_of(&self, job: &Job<'_>) -> u64 {
        let each = u64::from(job.runs) + u64::from(self.campaign.warm_up);
        each * job.sub_experiments.len() as u64
    }

    /// Performs a boot. Advances `bar` by all its runs but the last.
    fn boot(&self, boards: &Boards, bar: &ProgressBar, job: &Job<'_>) -> Result<Booted> {
        let directory = job.place.join(job.plan);
        let text = self.system(job)?;
        let file = directory.join("system.toml");
        write_atomic(&file, text.as_bytes())?;
        let mut checked = configuration::load(&file, Some(&self.campaign.board))?;
        counting::prepare_for(&mut checked, self.machine())?;
        let image = image::assemble(&checked, &self.hypervisor)?;
        let boot = self.prepared(&checked, &image, job)?;
        let mut hash = Sha256::new();
        hash.update(&text);
        hash.update(self.campaign.warm_up.to_le_bytes());
        hash.update(boot.key());
        let inputs = files::digest(hash);
        let file = directory.join("runs.json");
        let before =
            boards.reuse(|| files::kept(&file).filter(|kept: &KeptBoot| kept.inputs == inputs));
        if let Some(KeptBoot { runs, .. }) = before {
            bar.inc(self.runs_of(job).saturating_sub(1));
            return Ok((runs, image.sha256()));
        }
        let restarts = format!("] VM {} restarts", self.campaign.victim);
        let shown = Arc::new(AtomicU64::new(0));
        let on_line = {
            let (bar, shown) = (bar.clone(), Arc::clone(&shown));
            move |line: &str| {
                if line.starts_with("[core ") && line.ends_with(&restarts) {
                    bar.inc(1);
                    shown.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let output = boards.boot_watched(&directory, boot, on_line)?;
        // A system whose `log` leaves out what the hypervisor does shows no restart.
        let shown = shown.load(Ordering::Relaxed) + 1;
        bar.inc(self.runs_of(job).saturating_sub(shown));
        output.write(&directory)?;
        let telemetry = Telemetry::parse(&output.telemetry);
        let victim = checked.vm(&self.campaign.victim).unwrap_or_default();
        let names = EventNames::of(&checked.board.events);
        let stats = directory.join("model.json");
        let runs = self
            .counted(&telemetry, victim, &names, job, &stats)
            .wrap_err_with(|| {
                let (name, exit) = (&job.workload.name, output.exit);
                miette!(
                    "workload {name}: {exit}; its console's last lines:\n{}",
                    output.tail()
                )
            })?;
        files::keep(
            &file,
            &KeptBoot {
                inputs,
                runs: runs.clone(),
            },
        )?;
        Ok((runs, image.sha256()))
    }

    /// Returns what executes the boots.
    const fn machine(&self) -> Machine {
        match self.model {
            Some(_) => Counting::Model.machine(),
            None => Machine::Hardware,
        }
    }

    fn prepared(&self, checked: &Checked, image: &Image, job: &Job<'_>) -> Result<Boot> {
        let Some(model) = self.model else {
            let kept = KeptImage::new(image, &self.store)?;
            let board = &checked.board.board.name;
            return Ok(Boot::on_hardware(board, kept, job.seed, LIMIT));
        };
        let conditions = Conditions {
            seed: job.seed,
            caches: job.variant.caches,
            roi: Roi::Always,
        };
        let kept = KeptRun::new(&self.campaign.board, image, model, &self.store, conditions)?;
        Ok(Boot::new(checked.emulation()?, kept, LIMIT))
    }

    fn counted(
        &self,
        telemetry: &Telemetry,
        victim: VmId,
        names: &EventNames,
        job: &Job<'_>,
        stats: &Path,
    ) -> Result<Vec<Run>> {
        telemetry.check()?;
        if telemetry.dropped() > 0 || telemetry.end_of(victim) != End::Off {
            let (dropped, end) = (telemetry.dropped(), telemetry.end_of(victim));
            return Err(miette!("{dropped} records were dropped; the victim: {end}"));
        }
        let regions = match self.model {
            Some(_) => Some(model::statistics(stats)?.regions),
            None => None,
        };
        let logged: Vec<_> = telemetry
            .hem_runs()
            .filter(|run| run.record.vm == victim)
            .collect();
        let wanted =
            job.sub_experiments.len() * (job.runs as usize + self.campaign.warm_up as usize);
        let seen = regions.as_ref().map_or(wanted, Vec::len);
        if logged.len() != wanted || seen != wanted {
            let by_model = match regions {
                Some(_) => format!(", {seen} seen by the model"),
                None => String::new(),
            };
            let logged = logged.len();
            return Err(miette!("{logged} of {wanted} runs were logged{by_model}"));
        }
        let position = |name: &str| self.campaign.events.iter().position(|event| event == name);
        let mut runs = vec![];
        let used = logged.iter().enumerate();
        for (at, run) in used.filter(|(_, run)| run.record.run >= self.campaign.warm_up) {
            let mut counted = vec![];
            for (event, count, overflowed) in run.counts() {
                let name = names.name(event);
                if overflowed {
                    return Err(miette!("{name} overflowed in run {}", run.record.run));
                }
                let position = position(&name)
                    .ok_or_else(|| miette!("{name} was counted but not requested"))?;
                counted.push((position, u64::from(count)));
            }
            let core = regions
                .as_ref()
                .map(|regions| {
                    let cores = regions.get(at).map(|region| &region.cores);
                    let core = cores.and_then(|cores| cores.get(run.core.index()));
                    core.ok_or_else(|| miette!("a region without its core"))
                })
                .transpose()?;
            let truth = core.map(|core| {
                let of = |event: &String| core.guest_events.get(event).copied().unwrap_or(0);
                self.campaign.events.iter().map(of).collect()
            });
            runs.push(Run {
                sub_experiment: run.record.sub_experiment,
                run: run.record.run,
                counted,
                truth,
            });
        }
        Ok(runs)
    }
}

/// Runs all workloads on these boards, each boot once: on the model, or on hardware.
pub fn run(
    boards: &Boards,
    campaign: &Campaign,
    model: Option<&Model>,
    out: &Path,
) -> Result<Vec<WorkloadCounts>> {
    let text = files::read_text(&campaign.system, files::CONFIGURATION)?;
    let checked = configuration::load(&campaign.system, Some(&campaign.board))?;
    if model.is_some() {
        model::of(checked.emulation()?)?;
    }
    let base = overrides::anchored(&text, &campaign.system)?;
    let store = Store::of_results(out);
    let model = model.map(|model| model.kept_in(&store)).transpose()?;
    let hypervisor = image::hypervisor_for(&checked.system.board)?;
    let setting = Setting {
        campaign,
        model: model.as_ref(),
        base,
        hypervisor,
        store,
    };
    let jobs = jobs(campaign, model.is_some(), out);
    let all: u64 = jobs.iter().map(|job| setting.runs_of(job)).sum();
    let bar = bar(&campaign.name, all as usize);
    let done = boards.each(&bar, &jobs, |job| {
        let seed = campaign
            .seeds
            .map_or_else(String::new, |_| format!(", seed {}", job.repetition));
        bar.set_message(format!(
            "{} {} ({}{seed})",
            job.workload.name, job.variant.name, job.plan
        ));
        setting.boot(boards, &bar, job)
    });
    bar.finish_and_clear();
    // The images are not kept: the same are made again from the systems.
    let names = model.iter().flat_map(Model::names).collect();
    setting.store.keep_only(&names);
    let mut counted: Vec<WorkloadCounts> = vec![];
    for (job, (runs, image)) in jobs.iter().zip(done?) {
        match counted.last_mut() {
            Some(last) if job.plan == HRM => {
                last.hrm = runs;
                last.images.push(image);
            }
            _ => counted.push(WorkloadCounts {
                name: job.workload.name.clone(),
                variant: job.variant.name.clone(),
                repetition: job.repetition,
                directory: job.place.clone(),
                events: campaign.events.clone(),
                much: runs,
                hrm: vec![],
                images: vec![image],
            }),
        }
    }
    Ok(counted)
}

/// All boots, by MUCH's plan and, `with_hrm`, then by HRM's for each workload: seed by seed, so that
/// an interrupted campaign has whole seeds.
fn jobs<'a>(campaign: &'a Campaign, with_hrm: bool, out: &Path) -> Vec<Job<'a>> {
    let mut jobs = vec![];
    for repetition in 1..=campaign.seeds.unwrap_or(1) {
        let first = campaign.seed + u64::from(repetition - 1) * NEXT_SEEDS;
        for variant in &campaign.variants {
            for workload in &campaign.workloads {
                let seed = first + workload.number;
                // An empty name adds nothing.
                let mut place = out.join(&variant.name).join(&workload.name);
                if campaign.seeds.is_some() {
                    place.push(format!("seed-{repetition}"));
                }
                let job = |plan, sub_experiments, runs| {
                    let place = place.clone();
                    Job {
                        workload,
                        variant,
                        repetition,
                        place,
                        plan,
                        sub_experiments,
                        runs,
                        seed,
                    }
                };
                jobs.push(job(MUCH, campaign.plan.as_slice(), campaign.runs));
                if with_hrm {
                    let runs = campaign.hrm_runs();
                    jobs.push(job(HRM, campaign.hrm_plan.as_slice(), runs));
                }
            }
        }
    }
    jobs
}
