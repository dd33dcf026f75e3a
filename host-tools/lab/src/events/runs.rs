//! Boots the benchmarks of a manifest under the hypervisor, a few events at a time, and reads their
//! counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boards::boot::Boot;
use crate::boards::{Absent, Boards};
use cloison_config::BoardFile;
use cloison_config::events::{Event, EventNames};
use cloison_config::files;
use cloison_config::problem::count as count_of;
use cloison_config::validation::record::Machine as Executor;
use cloison_config::validation::{Counts, Guest, Manifest};
use cloison_engine::files::scratch;
use cloison_engine::image::Image;
use cloison_engine::kept::{KeptImage, KeptRun};
use cloison_engine::model::{self, Caches, Conditions, Model, Roi};
use cloison_engine::progress::bar;
use cloison_engine::store::Store;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, image, parts, setup};
use cloison_formats::ids::VmId;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::Path;
use std::time::Duration;

/// Time limit: a boot that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(600);
/// The model's seed: it decides what its pseudo-random replacement does.
const SEED: u64 = 1;
/// The clock of QEMU's cores in MHz, whatever the CPU: it counts CPU_CYCLES as nanoseconds
/// (`ARM_CPU_FREQ` in QEMU's `target/arm`).
const QEMU_MHZ: u64 = 1000;
/// The VM that runs the benchmarks.
const VM: &str = "victim";

/// Where the benchmarks are executed.
pub(super) struct Setting<'a> {
    /// The board as the user named it.
    named: &'a str,
    board: &'a BoardFile,
    executor: Executor,
    model: Option<Model>,
    hypervisor: image::Flat,
    runs: u64,
    /// The files of the boots, while they last.
    store: Store,
}

/// Counts each event of the manifest that the CPU of the board `named` has, in each benchmark that
/// Cloison ships, `runs` times. Each boot has a directory in `place` in name only.
///
/// # Errors
///
/// Returns the reason why a benchmark could not be run.
pub fn count(
    boards: &Boards,
    place: &Path,
    manifest: &Manifest,
    named: &str,
    executor: Executor,
    runs: u64,
) -> Result<Counts> {
    parts::prepare()?;
    if executor != Executor::Hardware {
        setup::qemu()?;
    }
    let board = &configuration::board(named)?;
    let model = match executor {
        Executor::Model => Some(Model::load(model::of(&configuration::emulation(named)?)?)?),
        _ => None,
    };
    let (machine, prefetcher) = match &model {
        Some(model) => (
            format!("{}, model {}", board.board.name, model.name),
            prefetcher(model)?,
        ),
        None if executor == Executor::Hardware => {
            (board.board.name.clone(), "as after reset".to_owned())
        }
        None => (
            format!("{}, QEMU ({})", board.board.name, executor.word()),
            "none: QEMU has no caches".to_owned(),
        ),
    };
    let mut counts = Counts::new(&machine, &prefetcher);
    counts.cpu_mhz = match executor {
        Executor::Icount => Some(QEMU_MHZ),
        // What the host does between two instructions takes the guest's time, too.
        Executor::Stock | Executor::Hardware => None,
        Executor::Model => model.as_ref().map(|model| model.clock_mhz),
    };
    let hypervisor = image::hypervisor_for(&board.board)?;
    let scratch = scratch()?;
    let store = Store::at(scratch.path());
    let model = model.map(|model| model.kept_in(&store)).transpose()?;
    let setting = Setting {
        named,
        board,
        executor,
        model,
        hypervisor,
        runs,
        store,
    };
    let boots = planned(manifest, board)?;
    let bar = bar("events validate", boots.len());
    let done = boards.each(
        &bar,
        &boots,
        |Planned {
             name,
             guest,
             events,
         }| {
            bar.set_message(guest.workload.clone());
            let directory = place.join("runs").join(name);
            let booted = setting.boot(boards, &directory, manifest, guest, events);
            booted.map_err(|error| match error.is::<Absent>() {
                true => error,
                false => error.wrap_err(format!("workload {}", guest.workload)),
            })
        },
    );
    bar.finish_and_clear();
    for run in done?.into_iter().flatten() {
        counts.add_run(&run.benchmark, run.counts);
    }
    Ok(counts)
}

/// A boot: a guest, and the events that it counts.
pub(super) struct Planned<'a> {
    /// Its name: two guests may be the same workload with other arguments.
    pub name: String,
    pub guest: &'a Guest,
    pub events: Vec<&'a Event>,
}

/// Returns the boots that count all events of a manifest that a board's CPU has.
///
/// # Errors
///
/// If no benchmark names a workload that runs it.
pub(super) fn planned<'a>(
    manifest: &'a Manifest,
    board: &'a BoardFile,
) -> Result<Vec<Planned<'a>>> {
    let events: Vec<&Event> = manifest
        .events
        .iter()
        .filter_map(|expected| board.events.by_name(&expected.event))
        .collect();
    let mut guests: Vec<&Guest> = vec![];
    for guest in manifest
        .benchmarks
        .iter()
        .filter_map(|benchmark| benchmark.guest.as_ref())
    {
        if !guests
            .iter()
            .any(|other| (&other.workload, other.args) == (&guest.workload, guest.args))
        {
            guests.push(guest);
        }
    }
    if guests.is_empty() {
        return Err(miette!(
            help =
                "give benchmarks a `workload`, or judge counts from elsewhere: --counts FILE.toml",
            "no benchmark of the manifest names a workload that runs it"
        ));
    }
    let groups: Vec<&[&Event]> = events.chunks((board.counters as usize).max(1)).collect();
    let of = |(number, guest): (usize, &&'a Guest)| {
        let guest: &'a Guest = guest;
        let named = move |(group, events): (usize, &&[&'a Event])| Planned {
            name: format!("{number}-{}-events-{group}", guest.workload),
            guest,
            events: events.to_vec(),
        };
        (1..).zip(&groups).map(named).collect::<Vec<_>>()
    };
    Ok((1..).zip(&guests).flat_map(of).collect())
}

/// One run of a benchmark.
pub(super) struct BenchmarkRun {
    pub benchmark: String,
    /// What each event counted.
    pub counts: Vec<(String, u64)>,
}

/// Returns the state of a model's prefetcher of data: a line that it brings is none that an access
/// missed.
fn prefetcher(model: &Model) -> Result<String> {
    let text = files::read_text(model.board(), files::CONFIGURATION).into_diagnostic()?;
    let model: toml::Table = toml::from_str(&text).into_diagnostic()?;
    let lines = model
        .get("prefetch")
        .and_then(|table| table.get("data_lines"))
        .and_then(toml::Value::as_integer);
    Ok(match lines {
        None => "not modelled".to_owned(),
        Some(0) => "off".to_owned(),
        Some(lines) => format!("on, {} of data at a time", count_of(lines as usize, "line")),
    })
}

impl<'a> Setting<'a> {
    /// Returns the setting of images that a board boots; `store` stays empty.
    ///
    /// # Errors
    ///
    /// If the hypervisor cannot be read.
    pub(super) fn of_board(
        named: &'a str,
        board: &'a BoardFile,
        runs: u64,
        store: Store,
    ) -> Result<Self> {
        Ok(Self {
            named,
            board,
            executor: Executor::Hardware,
            model: None,
            hypervisor: image::hypervisor_for(&board.board)?,
            runs,
            store,
        })
    }

    /// Returns the image of a boot, and its configuration.
    ///
    /// # Errors
    ///
    /// If the image cannot be built.
    pub(super) fn image(&self, planned: &Planned<'_>) -> Result<(Image, String)> {
        let text = self.system(planned.guest, &planned.events);
        let path = configuration::directory().join("validate.toml");
        let checked = configuration::load_text(&path, text.clone(), Some(self.named))?;
        Ok((image::assemble(&checked, &self.hypervisor)?, text))
    }

    /// Returns a system with the guest alone, which counts these events.
    fn system(&self, guest: &Guest, events: &[&Event]) -> String {
        let mut args = guest.args;
        args[guest.runs_argument] = self.runs;
        let names: Vec<String> = events
            .iter()
            .map(|event| format!("\"{}\"", event.name))
            .collect();
        format!(
            r#"name = "validate"
ends_with = "{VM}"

[hypervisor]
colors = "15"

[[pool]]
name = "shared"
kind = "SH"
colors = "0-14"

[[vm]]
name = "{VM}"
cores = [0]
image = {{ workload = "{}" }}
args = {args:?}
services = ["hem"]
hems = [{}]

[[vm.region]]
name = "ram"
ipa = 0x4000_0000
size = "16M"
pool = "shared"
"#,
            guest.workload,
            names.join(", ")
        )
    }

    /// Runs all benchmarks of a guest once for these events.
    fn boot(
        &self,
        boards: &Boards,
        directory: &Path,
        manifest: &Manifest,
        guest: &Guest,
        events: &[&Event],
    ) -> Result<Vec<BenchmarkRun>> {
        let path = configuration::directory().join("validate.toml");
        let checked =
            configuration::load_text(&path, self.system(guest, events), Some(self.named))?;
        let image = image::assemble(&checked, &self.hypervisor)?;
        let boot = match &self.model {
            Some(model) => {
                let conditions = Conditions {
                    seed: SEED,
                    caches: Caches::Cold,
                    roi: Roi::Always,
                };
                let kept = KeptRun::new(self.named, &image, model, &self.store, conditions)?;
                Boot::new(checked.emulation()?, kept, LIMIT)
            }
            None => {
                let kept = KeptImage::new(&image, &self.store)?;
                match self.executor {
                    Executor::Hardware => Boot::on_hardware(&self.board.board.name, kept, 0, LIMIT),
                    executor => {
                        let icount = executor == Executor::Icount;
                        Boot::without_model(checked.emulation()?, kept, icount, LIMIT)
                    }
                }
            }
        };
        let output = boards.boot(directory, boot)?;
        let telemetry = Telemetry::parse(&output.telemetry);
        let names = EventNames::of(&self.board.events);
        self.read(manifest, guest, &telemetry, &names)
            .wrap_err_with(|| {
                miette!(
                    "{}; the console's last lines:\n{}",
                    output.exit,
                    output.tail()
                )
            })
    }

    pub(super) fn read(
        &self,
        manifest: &Manifest,
        guest: &Guest,
        telemetry: &Telemetry,
        names: &EventNames,
    ) -> Result<Vec<BenchmarkRun>> {
        telemetry.check()?;
        if telemetry.dropped() > 0 || telemetry.end_of(VmId(0)) != End::Off {
            return Err(miette!(
                "{} records were dropped; the guest: {}",
                telemetry.dropped(),
                telemetry.end_of(VmId(0))
            ));
        }
        let mut runs = vec![];
        for benchmark in &manifest.benchmarks {
            let Some(own) = benchmark.guest.as_ref() else {
                continue;
            };
            if (&own.workload, own.args) != (&guest.workload, guest.args) {
                continue;
            }
            let of = telemetry
                .hem_runs()
                .filter(|run| run.record.sub_experiment == own.segment);
            let mut seen = 0;
            for run in of {
                let mut counts = vec![];
                for (event, count, overflowed) in run.counts() {
                    let name = names.name(event);
                    if overflowed {
                        return Err(miette!(
                            "{name} overflowed in {}: counters have 32 bits",
                            benchmark.name
                        ));
                    }
                    counts.push((name.to_string(), u64::from(count)));
                }
                runs.push(BenchmarkRun {
                    benchmark: benchmark.name.clone(),
                    counts,
                });
                seen += 1;
            }
            if seen != self.runs {
                let help = "`segment` in the manifest is the number of the benchmark's \
                            sub-experiment in the log";
                return Err(miette!(
                    help = help,
                    "{seen} of {} runs of {} were logged",
                    self.runs,
                    benchmark.name
                ));
            }
        }
        Ok(runs)
    }
}
