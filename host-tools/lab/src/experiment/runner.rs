//! Performs the runs of an experiment, each once, two at a time, and keeps their results.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::cyclictest::Latencies;
use super::overrides::{self, Value};
use super::spec::{Experiment, Measure, Point};
use cloison_config::Checked;
use cloison_config::events::EventNames;
use cloison_engine::figures::qemu_version;
use cloison_engine::files::{write_atomic, write_json};
use cloison_engine::model::{self, KeptRun, Model, Region};
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, consoles, image, parts};
use cloison_formats::telemetry::MigrationOutcome;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time limit: a run that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(300);

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Hash of all inputs.
    pub inputs: String,
    /// Name of the variant.
    pub variant: String,
    /// Label on each axis.
    pub axes: BTreeMap<String, String>,
    /// The victim's segments after the warm-up, in order.
    pub segments: Vec<Segment>,
    /// The model's counts during these segments, on all cores.
    pub regions: Vec<Region>,
    /// Results of the quotas, by core.
    pub quotas: Vec<QuotaOutcome>,
    /// Number of pages that moved to a PVT pool.
    pub pages_moved: u64,
    /// cyclictest's results, if it is what is measured.
    #[serde(default)]
    pub latencies: Option<Latencies>,
}

/// An observation segment, as logged by the hypervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Cycles at EL1 and EL0.
    pub cycles: u64,
    /// Event counts by name.
    pub events: BTreeMap<String, u64>,
}

/// Result of a quota.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaOutcome {
    /// Number of the physical core.
    pub core: u8,
    /// Whether overflow interrupts enforced the quota.
    pub by_interrupt: bool,
    /// Number of periods that ended.
    pub periods: u64,
    /// Number of periods in which the core was held.
    pub throttled_periods: u64,
    /// Total number of events.
    pub events: u64,
    /// Maximum overshoot in one period.
    pub max_overshoot: u64,
    /// Sum of the overshoot of all periods.
    pub overshoot: u64,
}

impl Measured {
    /// Returns the median cycles of the segments; the lower one if their number is even.
    pub fn cycles(&self) -> u64 {
        median(self.segments.iter().map(|segment| segment.cycles))
    }
    /// Returns the median count of an event of the victim.
    pub fn event(&self, name: &str) -> u64 {
        median(self.segments.iter().map(|segment| segment.events.get(name).copied().unwrap_or(0)))
    }
    /// Returns an event's count in the last segment, when earlier contents of the caches have been displaced.
    pub fn settled(&self, name: &str) -> u64 {
        self.segments.last().and_then(|segment| segment.events.get(name)).copied().unwrap_or(0)
    }
    /// Returns the label on an axis.
    pub fn label(&self, axis: &str) -> &str {
        self.axes.get(axis).map_or("", String::as_str)
    }
    /// Returns the number on an axis, if its label is one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.label(axis).parse().ok()
    }
    /// Returns the bytes per second on the cores other than the victim's, from the model's count of an event and the
    /// bytes per event.
    pub fn others_bytes_per_second(&self, victim: usize, event: &str, bytes: u64, clock_mhz: u64) -> f64 {
        let others = |region: &Region| {
            let cores = region.cores.iter().enumerate().filter(|(core, _)| *core != victim);
            let events: u64 = cores.map(|(_, core)| core.event(event)).sum();
            let cycles = region.cores.iter().map(|core| core.cycles).max().unwrap_or(0).max(1);
            (events * bytes) as f64 / (cycles as f64 / (clock_mhz as f64 * 1e6))
        };
        self.regions.iter().map(others).sum::<f64>() / self.regions.len().max(1) as f64
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// What all runs of an experiment share.
struct Setting<'a> {
    experiment: &'a Experiment,
    model: &'a Model,
    base: Value,
    hypervisor: image::Flat,
    /// Hash of model, plugin and QEMU.
    common: Sha256,
    out: &'a Path,
}

/// The system of a point, ready to run.
struct Prepared {
    directory: PathBuf,
    checked: Checked,
    image: image::Image,
    inputs: String,
}

impl Setting<'_> {
    fn prepare(&self, point: &Point) -> Result<Prepared> {
        let directory = self.out.join("runs").join(point.key());
        let mut system = self.base.clone();
        for path in &point.remove {
            overrides::remove(&mut system, path).map_err(|error| miette!("run {}: {error}", point.key()))?;
        }
        for (path, value) in &point.set {
            overrides::set(&mut system, path, value).map_err(|error| miette!("run {}: {error}", point.key()))?;
        }
        let text = toml::to_string_pretty(&system).into_diagnostic()?;
        let file = directory.join("system.toml");
        write_atomic(&file, text.as_bytes())?;
        let checked = configuration::load(&file, Some(&self.experiment.board))?;
        let image = image::assemble(&checked, &self.hypervisor)?;
        let mut hash = self.common.clone();
        hash.update(text.as_bytes());
        hash.update(&image.bytes);
        hash.update(point.pages.to_le_bytes());
        let inputs = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Prepared { directory, checked, image, inputs })
    }

    fn run(&self, point: &Point, prepared: &Prepared) -> Result<Measured> {
        let file = prepared.directory.join("Image");
        prepared.image.write(&file)?;
        let stats = prepared.directory.join("model.json");
        let machine = Machine::new(prepared.checked.emulation()?, &file).limit(LIMIT);
        let machine = self.model.attach(machine, self.experiment.seed, self.experiment.caches, &stats);
        let kept =
            KeptRun::new(&self.experiment.board, &file, self.model, self.experiment.seed, self.experiment.caches);
        kept.write(&prepared.directory)?;
        let outcome = machine.run()?;
        write_atomic(&prepared.directory.join("console.txt"), outcome.console.as_bytes())?;
        write_atomic(&prepared.directory.join("telemetry.bin"), &outcome.telemetry)?;
        let measured = self.measure(point, prepared, &outcome, &stats);
        let measured = measured.wrap_err_with(|| {
            let lines: Vec<&str> = outcome.console.lines().collect();
            let tail = lines[lines.len().saturating_sub(12)..].join("\n");
            miette!("run {} failed; its console's last lines:\n{tail}\n{}", point.key(), outcome.errors)
        })?;
        write_json(&prepared.directory.join("result.json"), &measured)?;
        Ok(measured)
    }

    fn measure(&self, point: &Point, prepared: &Prepared, outcome: &Outcome, stats: &Path) -> Result<Measured> {
        if !outcome.exit.is_clean() {
            return Err(miette!("the board did not turn itself off: {}", outcome.exit));
        }
        let telemetry = Telemetry::parse(&outcome.telemetry);
        if let Some((offset, problem)) = telemetry.problems.first() {
            return Err(miette!("bad telemetry at byte {offset}: {problem}"));
        }
        if telemetry.dropped() > 0 {
            return Err(miette!("{} telemetry records were dropped", telemetry.dropped()));
        }
        let name = &self.experiment.victim;
        let victim = prepared.checked.system.vms.iter().position(|vm| vm.name == *name);
        let victim = victim.ok_or_else(|| miette!("the system has no VM `{name}`"))? as u8;
        if telemetry.end_of(victim) != End::Off {
            return Err(miette!("the victim did not end by itself: {}", telemetry.end_of(victim)));
        }
        let mut quotas: Vec<QuotaOutcome> = telemetry
            .quota_totals()
            .map(|(core, total)| QuotaOutcome {
                core,
                by_interrupt: total.by_interrupt,
                periods: u64::from(total.totals.periods),
                throttled_periods: u64::from(total.totals.throttled_periods),
                events: total.totals.events.0,
                max_overshoot: total.totals.max_overshoot.0,
                overshoot: total.totals.overshoot.0,
            })
            .collect();
        quotas.sort_by_key(|quota| quota.core);
        if self.experiment.measure == Measure::Cyclictest {
            let names = prepared.checked.system.vms.iter().map(|vm| vm.name.as_str());
            return Ok(Measured {
                inputs: prepared.inputs.clone(),
                variant: point.variant.clone(),
                axes: point.axes.clone(),
                segments: vec![],
                regions: vec![],
                quotas,
                pages_moved: 0,
                latencies: Some(Latencies::read(&consoles::said_by(names, usize::from(victim), &outcome.console))?),
            });
        }
        let names = EventNames::of(&prepared.checked.board.events);
        let runs: Vec<_> = telemetry.hem_runs().filter(|run| run.record.vm == victim).collect();
        let statistics = model::statistics(stats)?;
        let warm_up = self.experiment.warm_up;
        if runs.len() != statistics.regions.len() || runs.len() <= warm_up {
            let (logged, seen) = (runs.len(), statistics.regions.len());
            return Err(miette!(
                "{logged} segments were logged, {seen} seen by the model; more than {warm_up} are needed"
            ));
        }
        if let Some(run) = runs.iter().find(|run| run.counts().any(|(_, _, overflowed)| overflowed)) {
            return Err(miette!("a counter overflowed in run {}", run.record.run));
        }
        let moves: Vec<_> =
            telemetry.migrations().filter(|(_, record)| record.outcome == MigrationOutcome::Moved).collect();
        if moves.len() as u64 != point.pages {
            return Err(miette!("{} pages migrated where {} were to", moves.len(), point.pages));
        }
        let first = &runs[warm_up];
        let begun = first.at.0.saturating_sub(first.record.cycles.0 * 1000 / self.model.clock_mhz);
        if let Some((event, _)) = moves.iter().find(|(event, _)| event.at.0 > begun) {
            return Err(miette!(
                "a page migrated {} ns after the first measured segment started: more warm-up is needed",
                event.at.0 - begun
            ));
        }
        let segments = runs[warm_up..].iter().map(|run| Segment {
            cycles: run.record.cycles.0,
            events: run.counts().map(|(event, count, _)| (names.name(event), u64::from(count))).collect(),
        });
        Ok(Measured {
            inputs: prepared.inputs.clone(),
            variant: point.variant.clone(),
            axes: point.axes.clone(),
            segments: segments.collect(),
            regions: statistics.regions[warm_up..].to_vec(),
            quotas,
            pages_moved: moves.len() as u64,
            latencies: None,
        })
    }
}

/// Returns an existing result that was made from the same inputs.
fn kept(directory: &Path, inputs: &str) -> Option<Measured> {
    let text = std::fs::read_to_string(directory.join("result.json")).ok()?;
    let measured: Measured = serde_json::from_str(&text).ok()?;
    (measured.inputs == inputs).then_some(measured)
}

/// Performs the runs of all points without results. Returns one result per point, in their order, and how many existed.
pub fn run(experiment: &Experiment, model: &Model, out: &Path) -> Result<(Vec<Measured>, usize)> {
    let text = std::fs::read_to_string(&experiment.system)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot read {}", experiment.system.display()))?;
    // Report errors in context before anything is changed.
    let checked = configuration::load(&experiment.system, Some(&experiment.board))?;
    let emulation = checked.emulation()?;
    model::of(emulation)?;
    let mut base: Value = toml::from_str(&text).into_diagnostic()?;
    overrides::anchor(&mut base, experiment.system.parent().unwrap_or(Path::new(".")));
    let mut common = Sha256::new();
    let model = &model.kept_in(out)?;
    for file in [model.board(), model.plugin()] {
        common
            .update(std::fs::read(file).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", file.display()))?);
    }
    common.update(qemu_version());
    common.update(format!(
        "{:?} {} {:?} {} {:?}",
        emulation, experiment.seed, experiment.caches, experiment.warm_up, experiment.measure
    ));
    let hypervisor = image::flatten(&parts::hypervisor(&[])?)?;
    let setting = Setting { experiment, model, base, hypervisor, common, out };

    let bar = ProgressBar::new(experiment.points.len() as u64);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed}, {eta} left  {msg}");
    bar.set_style(style.into_diagnostic()?);
    bar.set_prefix(experiment.name.clone());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(experiment.points.len());
    let (next, reused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<Option<Measured>>> = Mutex::new(vec![None; experiment.points.len()]);
    let failed: Mutex<Option<miette::Report>> = Mutex::new(None);
    let work = || {
        while let Some(point) = experiment.points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let index = experiment.points.iter().position(|other| std::ptr::eq(other, point)).unwrap_or_default();
            bar.set_message(point.key());
            let result =
                setting.prepare(point).and_then(|prepared| match kept(&prepared.directory, &prepared.inputs) {
                    Some(measured) => {
                        reused.fetch_add(1, Ordering::Relaxed);
                        Ok(measured)
                    }
                    None => setting.run(point, &prepared),
                });
            match result {
                Ok(measured) => lock(&results)[index] = Some(measured),
                Err(error) => {
                    // The other workers finish their runs, and no new run starts.
                    next.store(experiment.points.len(), Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                }
            }
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let results = std::mem::take(&mut *lock(&results)).into_iter().flatten().collect();
    Ok((results, reused.into_inner()))
}

/// A worker that panicked cannot have left these inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
