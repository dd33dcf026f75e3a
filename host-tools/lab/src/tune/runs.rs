//! Boots systems on the board model, or takes their runs on a board, and keeps how long their VMs
//! took.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::systems::{EVENT, INSTRUCTIONS};
use crate::boards::Boards;
use crate::boards::boot::{Boot, Output};
use crate::captured::{self, CapturedRun, CapturedRuns, NotCaptured};
use crate::experiment::overrides::Value;
use cloison_config::events::EventNames;
use cloison_config::goal::Segments;
use cloison_config::problem::{Problem, SourceFile, count};
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, Emulation, Errors};
use cloison_engine::configuration;
use cloison_engine::counting::{self, Counting};
use cloison_engine::files::{self, write_atomic};
use cloison_engine::image::{self, Flat, Image};
use cloison_engine::kept::KeptRun;
use cloison_engine::model::{self, Conditions, Model, Roi, Statistics};
use cloison_engine::progress::bar;
use cloison_engine::store::Store;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::ids::VmId;
use miette::{IntoDiagnostic, Report, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Changes with the code that reads a run's times, so that older results are not taken for new
/// ones.
const RESULT_VERSION: u32 = 2;
/// What runs of a partition are called.
pub(super) const VERIFY: &str = "verify";
/// Instructions that a time of a best-effort VM is for.
const MILLION: u128 = 1_000_000;

/// What is measured of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its longest segment after the first one.
    Longest(Segments),
    /// The time of a million instructions.
    Instructions,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Longest(segments) => write!(f, "longest {segments}"),
            Self::Instructions => f.write_str("instructions"),
        }
    }
}

/// A boot.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of its directory.
    pub key: String,
    /// The system.
    pub system: Value,
    /// The VM that is measured.
    pub vm: String,
    /// What is measured.
    pub measure: Measure,
    /// Where the model is on.
    pub roi: Roi,
    /// What it must reach in the user's configuration, if it is one of its VMs.
    pub goal: Option<Place>,
}

/// A place in the user's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The field.
    pub field: String,
    /// The position.
    pub span: Range<usize>,
}

/// What a boot has measured, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    inputs: String,
    /// Time in nanoseconds: of the longest segment, or of a million instructions.
    pub time: u64,
    /// Accesses to the bus in this time.
    pub accesses: u64,
    /// Nanoseconds for which the VM's own budgets held it. The log of segments lacks them; the time
    /// of instructions has them, and this is 0.
    pub held: u64,
    /// Segments that were measured; 0 where instructions were.
    pub segments: usize,
}

/// Systems on the board model, or on a board.
#[derive(Debug)]
pub struct Runs {
    board: String,
    executor: Executor,
    hypervisor: Flat,
    conditions: Conditions,
    limit: Duration,
    /// The user's configuration.
    source: SourceFile,
    out: PathBuf,
    /// Where times are that several configurations share.
    shared: Option<PathBuf>,
    boots: AtomicUsize,
    reused: AtomicUsize,
    /// Milliseconds for which partitions were run.
    verified_ms: AtomicU64,
    /// Milliseconds for which all else was.
    characterized_ms: AtomicU64,
}

/// How long runs took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Measuring VMs.
    pub characterizing: Duration,
    /// Running partitions.
    pub verifying: Duration,
}

/// What executes the systems.
#[derive(Debug)]
enum Executor {
    Model(Box<Modelled>),
    Board(OnBoard),
}

/// The board model, and what its boots share.
#[derive(Debug)]
struct Modelled {
    model: Model,
    store: Store,
    /// How QEMU emulates the board.
    emulation: Emulation,
    /// Hash of what all boots share.
    common: Sha256,
}

impl Modelled {
    fn new(
        model: &Model,
        emulation: &Emulation,
        conditions: Conditions,
        out: &Path,
    ) -> Result<Self> {
        let store = Store::of_results(out);
        let model = model.kept_in(&store)?;
        Ok(Self {
            common: common(&model, emulation, conditions)?,
            model,
            store,
            emulation: emulation.clone(),
        })
    }
}

/// Runs that a board has made.
#[derive(Debug)]
pub struct OnBoard {
    /// The runs.
    pub runs: CapturedRuns,
    /// Where the images of further ones go.
    pub images: Option<PathBuf>,
    /// The clock of its cores, in MHz: segments are logged in cycles.
    pub clock_mhz: u64,
}

impl Runs {
    /// Prepares boots on a board, whose files are in `out`. A boot that takes longer than `limit`
    /// counts as endless.
    ///
    /// # Errors
    ///
    /// If the hypervisor cannot be built, or the model not be read.
    pub fn new(
        board: &str,
        checked: &Checked,
        model: &Model,
        conditions: Conditions,
        limit: Duration,
        out: &Path,
    ) -> Result<Self> {
        let modelled = Modelled::new(model, checked.emulation()?, conditions, out)?;
        let executor = Executor::Model(Box::new(modelled));
        Self::of(executor, board, checked, conditions, limit, out)
    }

    /// Prepares to take runs that a board has made. The systems' files are in `out`.
    ///
    /// # Errors
    ///
    /// If the hypervisor cannot be built.
    pub fn on_board(
        board: &str,
        checked: &Checked,
        on_board: OnBoard,
        conditions: Conditions,
        out: &Path,
    ) -> Result<Self> {
        let executor = Executor::Board(on_board);
        Self::of(executor, board, checked, conditions, Duration::MAX, out)
    }

    fn of(
        executor: Executor,
        board: &str,
        checked: &Checked,
        conditions: Conditions,
        limit: Duration,
        out: &Path,
    ) -> Result<Self> {
        Ok(Self {
            board: board.to_owned(),
            executor,
            hypervisor: image::hypervisor_for(&checked.system.board)?,
            conditions,
            limit,
            source: SourceFile::new(&checked.path, checked.source.clone()),
            out: out.to_path_buf(),
            shared: None,
            boots: AtomicUsize::new(0),
            reused: AtomicUsize::new(0),
            verified_ms: AtomicU64::new(0),
            characterized_ms: AtomicU64::new(0),
        })
    }

    /// Returns the same boots, whose times are also kept in a directory that runs of several
    /// configurations share, and taken from there.
    pub fn sharing(self, shared: Option<PathBuf>) -> Self {
        Self { shared, ..self }
    }

    /// Returns how long runs took so far.
    pub fn spent(&self) -> Spent {
        let of = |ms: &AtomicU64| Duration::from_millis(ms.load(Ordering::Relaxed));
        Spent {
            characterizing: of(&self.characterized_ms),
            verifying: of(&self.verified_ms),
        }
    }

    /// Returns the same boots on another model, whose files are in `out`.
    ///
    /// # Errors
    ///
    /// If the model cannot be read, or a board makes the runs.
    pub fn under(&self, model: &Model, out: &Path) -> Result<Self> {
        let emulation = &self.modelled()?.emulation;
        let modelled = Modelled::new(model, emulation, self.conditions, out)?;
        Ok(Self {
            board: self.board.clone(),
            executor: Executor::Model(Box::new(modelled)),
            hypervisor: self.hypervisor.clone(),
            source: self.source.clone(),
            out: out.to_path_buf(),
            shared: self.shared.clone(),
            boots: AtomicUsize::new(0),
            reused: AtomicUsize::new(0),
            verified_ms: AtomicU64::new(0),
            characterized_ms: AtomicU64::new(0),
            ..*self
        })
    }

    /// Returns the model's file.
    ///
    /// # Errors
    ///
    /// If a board makes the runs.
    pub fn model(&self) -> Result<&Path> {
        Ok(self.modelled()?.model.board())
    }

    fn modelled(&self) -> Result<&Modelled> {
        match &self.executor {
            Executor::Model(modelled) => Ok(modelled),
            Executor::Board(_) => Err(miette!("runs on a board have no values of a model")),
        }
    }

    /// Returns whether the times are the model's.
    pub const fn is_modelled(&self) -> bool {
        matches!(self.executor, Executor::Model(_))
    }

    /// Returns the folders of captured runs that were not asked for.
    pub fn strangers(&self) -> Vec<String> {
        match &self.executor {
            Executor::Model(_) => vec![],
            Executor::Board(on_board) => on_board.runs.strangers(),
        }
    }

    /// Boots all systems, and returns their results in the same order. Boots with a kept result from
    /// the same inputs do not happen again.
    ///
    /// # Errors
    ///
    /// If a system is not valid, or a boot fails or does not end.
    pub fn measure(&self, boards: &Boards, what: &str, jobs: &[Job]) -> Result<Vec<Measured>> {
        let modelled = match &self.executor {
            Executor::Model(modelled) => modelled,
            Executor::Board(on_board) => return self.captured(on_board, jobs),
        };
        let started = Instant::now();
        let bar = bar(&format!("tune {what}"), jobs.len());
        let done = boards.each(&bar, jobs, |job| {
            bar.set_message(job.key.clone());
            self.boot(boards, modelled, job)
                .wrap_err_with(|| miette!("run {} failed", job.key))
        });
        bar.finish_and_clear();
        let spent = match what {
            VERIFY => &self.verified_ms,
            _ => &self.characterized_ms,
        };
        spent.fetch_add(started.elapsed().as_millis() as u64, Ordering::Relaxed);
        done
    }

    /// Returns the number of boots asked for so far, and of those whose kept results were used.
    pub fn counts(&self) -> (usize, usize) {
        (
            self.boots.load(Ordering::Relaxed),
            self.reused.load(Ordering::Relaxed),
        )
    }

    /// Removes files that no run needs any more.
    pub fn clean(&self) {
        if let Executor::Model(modelled) = &self.executor {
            KeptRun::clean(&self.out, &modelled.model, &modelled.store);
        }
    }

    fn directory(&self, job: &Job) -> PathBuf {
        self.out.join("runs").join(&job.key)
    }

    /// Writes the configuration of a job's system. Returns it, and its image.
    fn system(&self, job: &Job, machine: Machine) -> Result<(Checked, Image)> {
        let text = toml::to_string_pretty(&job.system).into_diagnostic()?;
        let file = self.directory(job).join("system.toml");
        write_atomic(&file, text.as_bytes())?;
        let mut checked = configuration::load(&file, Some(&self.board))?;
        counting::adapt(&mut checked, machine)?;
        let image = image::assemble(&checked, &self.hypervisor)?;
        Ok((checked, image))
    }

    /// Returns the results of runs on a board, or all that are missing as one error.
    fn captured(&self, on_board: &OnBoard, jobs: &[Job]) -> Result<Vec<Measured>> {
        let (mut all, mut names, mut written) = (vec![], vec![], BTreeSet::new());
        for job in jobs {
            self.boots.fetch_add(1, Ordering::Relaxed);
            let (checked, image) = self.system(job, Machine::Hardware)?;
            let Some(run) = on_board.runs.of(&image) else {
                // One run is enough for all jobs with the same image.
                if written.insert(image.sha256()) {
                    if let Some(images) = &on_board.images {
                        captured::write(images, &job.key, &image, &checked.source)?;
                    }
                    names.push(job.key.clone());
                }
                continue;
            };
            let measured = self.of_captured(job, &checked, run, on_board.clock_mhz);
            all.push(measured.wrap_err_with(|| miette!("run {} failed", run.place()))?);
        }
        if names.is_empty() {
            return Ok(all);
        }
        let wanted = jobs.len();
        Err(NotCaptured { names, wanted }.into())
    }

    /// Reads a run on a board. The instructions of a VM of best effort are those after which it is
    /// stopped, and a quota that is never spent counts its accesses.
    fn of_captured(
        &self,
        job: &Job,
        checked: &Checked,
        run: &CapturedRun,
        clock_mhz: u64,
    ) -> Result<Measured> {
        let vm = vm_of(checked, job)?;
        let telemetry = run.until(&checked.system.name, vm, &[End::Off, End::Stopped])?;
        self.measured(job, vm, &telemetry, clock_mhz, String::new(), || {
            let quotas = &checked.system.vms[vm.index()].quotas;
            let names = EventNames::of(&checked.board.events);
            let counts_accesses = |quota: u8| {
                let quota = quotas.get(usize::from(quota));
                quota.is_some_and(|quota| names.name(quota.counted.event) == EVENT)
            };
            let of_vm = telemetry.quota_totals().filter(|(_, it)| it.vm == vm);
            let accesses = of_vm
                .filter(|(_, total)| counts_accesses(total.quota))
                .map(|(_, total)| u128::from(total.totals.events.0))
                .max();
            Ok(Executed {
                nanos: nanos(&telemetry, vm),
                instructions: u128::from(INSTRUCTIONS),
                most_accesses: accesses.unwrap_or(0),
            })
        })
    }

    fn boot(&self, boards: &Boards, modelled: &Modelled, job: &Job) -> Result<Measured> {
        self.boots.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory(job);
        let (checked, image) = self.system(job, Counting::Model.machine())?;
        let (model, store) = (&modelled.model, &modelled.store);
        let mut hash = modelled.common.clone();
        let what = serde_json::json!([job.vm, job.measure.to_string(), job.roi]);
        hash.update(what.to_string());
        hash.update(&image.bytes);
        let inputs = files::digest(hash);
        let conditions = Conditions {
            roi: job.roi,
            ..self.conditions
        };
        let kept = KeptRun::new(&self.board, &image, model, store, conditions)?;
        kept.write(&directory)?;
        let result = directory.join("result.json");
        let shared = self.shared.as_ref();
        let shared = shared.map(|shared| shared.join(format!("{inputs}.json")));
        let is_same = |it: &Measured| it.inputs == inputs;
        let known = || {
            let own = files::kept(&result).filter(is_same);
            own.or_else(|| files::kept(shared.as_ref()?).filter(is_same))
        };
        if let Some(measured) = boards.reuse(known) {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(measured);
        }
        let boot = Boot::new(checked.emulation()?, kept, self.limit);
        let output = boards.boot(&directory, boot)?;
        output.write(&directory)?;
        let measured = self
            .read(
                job,
                &checked,
                &output,
                &directory.join("model.json"),
                (inputs, model.clock_mhz),
            )
            .wrap_err_with(|| miette!("the console's last lines:\n{}", output.tail()))?;
        files::keep(&result, &measured)?;
        if let Some(shared) = shared {
            files::keep(&shared, &measured)?;
        }
        Ok(measured)
    }

    /// Returns an error at the goal of the VM that was measured.
    fn mistake(&self, job: &Job, message: String, help: &str) -> Report {
        let Some(Place { field, span }) = job.goal.clone() else {
            return miette!(help = help.to_owned(), "{message}");
        };
        let problem = Problem::error(&self.source, field, span, message);
        let problem = problem.label("of this goal").help(help);
        Errors::new(self.source.name(), vec![problem]).into()
    }

    fn read(
        &self,
        job: &Job,
        checked: &Checked,
        output: &Output,
        statistics: &Path,
        (inputs, clock_mhz): (String, u64),
    ) -> Result<Measured> {
        if !output.exit.is_clean() {
            let help = "a VM with a tolerance or a deadline has to turn itself off after its \
                        segments: give it arguments for a finite number of runs, and Linux a \
                        program that ends; --limit changes the time";
            let message = format!(
                "VM `{}` did not end within {} s: {}",
                job.vm,
                self.limit.as_secs(),
                output.exit
            );
            return Err(self.mistake(job, message, help));
        }
        let telemetry = Telemetry::parse(&output.telemetry);
        telemetry.check()?;
        let vm = vm_of(checked, job)?;
        let (dropped, end) = (telemetry.dropped(), telemetry.end_of(vm));
        if dropped > 0 || !matches!(end, End::Off | End::Stopped) {
            return Err(miette!("{dropped} records were dropped; the VM: {end}"));
        }
        let statistics = model::statistics(statistics)?;
        self.measured(job, vm, &telemetry, clock_mhz, inputs, || {
            Ok(Executed::of(checked, vm, &telemetry, &statistics))
        })
    }

    /// Returns what a log says of a VM; of one of best effort with what it has `executed`.
    fn measured(
        &self,
        job: &Job,
        vm: VmId,
        telemetry: &Telemetry,
        clock_mhz: u64,
        inputs: String,
        executed: impl FnOnce() -> Result<Executed>,
    ) -> Result<Measured> {
        let throttled = telemetry
            .quota_totals()
            .filter(|(_, total)| total.vm == vm)
            .map(|(_, total)| total.throttled.0);
        let held = match job.measure {
            Measure::Longest(_) => throttled.sum(),
            // The time from the VM's start to its end has them.
            Measure::Instructions => 0,
        };
        let (time, accesses, segments) = match job.measure {
            Measure::Longest(wanted) => self.longest(job, vm, telemetry, wanted, clock_mhz)?,
            Measure::Instructions => {
                let executed = executed()?;
                let time = executed
                    .pace()
                    .ok_or_else(|| miette!("VM `{}` has not executed any instruction", job.vm))?;
                (time, executed.accesses(), 0)
            }
        };
        Ok(Measured {
            inputs,
            time,
            accesses,
            held,
            segments,
        })
    }

    /// Returns nanoseconds and accesses of the longest segment after the first, and the number of
    /// segments.
    fn longest(
        &self,
        job: &Job,
        vm: VmId,
        telemetry: &Telemetry,
        wanted: Segments,
        clock_mhz: u64,
    ) -> Result<(u64, u64, usize)> {
        let name = &job.vm;
        let own = telemetry.hem_runs().filter(|run| run.record.vm == vm);
        let all: Vec<_> = own.collect();
        let matching: Vec<_> = all
            .iter()
            .filter(|run| wanted.has(run.record.workload, run.record.sub_experiment))
            .collect();
        if matching.len() < 2 {
            let mut logged: Vec<String> = all
                .iter()
                .map(|run| format!("{}/{}", run.record.workload, run.record.sub_experiment))
                .collect();
            logged.sort();
            logged.dedup();
            let logged = match logged.is_empty() {
                true => "it has logged none at all".to_owned(),
                false => format!("it has logged segments {}", logged.join(", ")),
            };
            let help = format!(
                "the first segment is left out, because the caches are still cold: the guest has \
                 to call segment_begin and segment_end at least twice for what `segment` names, \
                 and Linux to run exec = \"cloisonctl stat --by hem --repeat 4 PROGRAM\"; \
                 {logged}"
            );
            let message = format!(
                "VM `{name}` has logged {} `{wanted}`; at least 2 are needed",
                count(matching.len(), "segment")
            );
            return Err(self.mistake(job, message, &help));
        }
        let longest = matching[1..]
            .iter()
            .max_by_key(|run| run.record.cycles.0)
            .ok_or_else(|| miette!("VM `{name}` has logged no segment"))?;
        let time = u128::from(longest.record.cycles.0) * 1000 / u128::from(clock_mhz);
        let accesses = matching[1..]
            .iter()
            .flat_map(|run| run.counts())
            .map(|(_, count, _)| u64::from(count))
            .max();
        Ok((time as u64, accesses.unwrap_or(0), matching.len() - 1))
    }
}

fn vm_of(checked: &Checked, job: &Job) -> Result<VmId> {
    let vm = checked.vm(&job.vm);
    vm.ok_or_else(|| miette!("the system has no VM `{}`", job.vm))
}

/// Returns the time from a VM's start to its end.
fn nanos(telemetry: &Telemetry, vm: VmId) -> u128 {
    let runtime = telemetry.vm_runtime(vm);
    runtime.map_or(0, |runtime| u128::from(runtime.0))
}

/// Returns the hash of what all boots share.
fn common(model: &Model, emulation: &Emulation, conditions: Conditions) -> Result<Sha256> {
    let mut hash = model.hash()?;
    let inputs = serde_json::json!([RESULT_VERSION, emulation, conditions]);
    hash.update(inputs.to_string());
    Ok(hash)
}

/// What a VM has executed from its start to its end.
struct Executed {
    nanos: u128,
    instructions: u128,
    /// Accesses of the core with the most.
    most_accesses: u128,
}

impl Executed {
    fn of(checked: &Checked, vm: VmId, telemetry: &Telemetry, statistics: &Statistics) -> Self {
        let cores = &checked.system.vms[vm.index()].cores;
        let counts = |event: &str| -> Vec<u128> {
            cores
                .iter()
                .filter_map(|core| statistics.whole.cores.get(core.index()))
                .map(|core| u128::from(core.guest_events.get(event).copied().unwrap_or(0)))
                .collect()
        };
        Self {
            nanos: nanos(telemetry, vm),
            instructions: counts("INST_RETIRED").into_iter().sum(),
            most_accesses: counts(EVENT).into_iter().max().unwrap_or(0),
        }
    }

    /// Returns the nanoseconds of a million instructions.
    fn pace(&self) -> Option<u64> {
        let pace = (self.nanos * MILLION).checked_div(self.instructions)?;
        u64::try_from(pace).ok()
    }

    /// Returns the accesses of a core during a million instructions.
    fn accesses(&self) -> u64 {
        let accesses = (self.most_accesses * MILLION).checked_div(self.instructions);
        accesses.map_or(0, |accesses| u64::try_from(accesses).unwrap_or(u64::MAX))
    }
}
