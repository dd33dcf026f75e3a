//! Runs the points of an experiment, each once, two at a time, and keeps what each came to.

use super::overrides::{self, Value};
use super::spec::{Experiment, Point};
use crate::build;
use crate::config::node::suggest;
use crate::config::{self, Checked, Errors, Problem};
use crate::figures::{qemu_version, write_atomic, write_json};
use crate::hem::EventNames;
use crate::image;
use crate::model::{Model, Region, Statistics};
use crate::qemu::{Machine, Outcome};
use crate::telemetry::{End, Telemetry};
use crate::workspace;
use cloison_core::wire::MigrationOutcome;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A run that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(300);

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Hash of all that went in.
    pub inputs: String,
    /// The variant.
    pub variant: String,
    /// Axis and label.
    pub axes: BTreeMap<String, String>,
    /// The victim's segments after the warm-up, in their order.
    pub segments: Vec<Segment>,
    /// What the model counted in them, on all cores.
    pub regions: Vec<Region>,
    /// Quotas, by core.
    pub quotas: Vec<QuotaOutcome>,
    /// Pages that moved to a PVT pool.
    pub pages_moved: u64,
}

/// One observation segment, as the hypervisor logged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Cycles at EL1 and EL0.
    pub cycles: u64,
    /// Events by name.
    pub events: BTreeMap<String, u64>,
}

/// What a quota came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaOutcome {
    /// Physical core.
    pub core: u8,
    /// Whether overflow interrupts enforced it.
    pub by_interrupt: bool,
    /// Periods that ended.
    pub periods: u64,
    /// Periods in which the core was held.
    pub throttled_periods: u64,
    /// Events in all.
    pub events: u64,
    /// Most events beyond the budget in one period.
    pub max_overshoot: u64,
    /// Events beyond the budget in all periods.
    pub overshoot: u64,
}

impl Measured {
    /// Median cycles of the segments; of an even number the lower one.
    pub fn cycles(&self) -> u64 {
        median(self.segments.iter().map(|segment| segment.cycles))
    }
    /// Median count of an event of the victim.
    pub fn event(&self, name: &str) -> u64 {
        median(self.segments.iter().map(|segment| segment.events.get(name).copied().unwrap_or(0)))
    }
    /// An event's count in the last segment, when what lay in the caches before has long been displaced.
    pub fn settled(&self, name: &str) -> u64 {
        self.segments.last().and_then(|segment| segment.events.get(name)).copied().unwrap_or(0)
    }
    /// The label on an axis.
    pub fn label(&self, axis: &str) -> &str {
        self.axes.get(axis).map_or("", String::as_str)
    }
    /// The number on an axis.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.label(axis).parse().ok()
    }
    /// Bytes in a second on the cores other than the victim's, by the model's count of an event and the bytes that each
    /// stands for.
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

/// The system that the points change.
fn base(experiment: &Experiment) -> Result<Value> {
    let text = std::fs::read_to_string(&experiment.system)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot read {}", experiment.system.display()))?;
    // Errors are shown where they stand, before anything is changed.
    config::load(&experiment.system, Some(experiment.board.name()))?;
    let mut base: Value = toml::from_str(&text).into_diagnostic()?;
    overrides::anchor(&mut base, experiment.system.parent().unwrap_or(Path::new(".")));
    Ok(base)
}

/// The system of a point, written where its run will leave its results. What is wrong with it is told at the place
/// of the experiment's file that made it so.
fn prepare(experiment: &Experiment, base: &Value, out: &Path, point: &Point) -> Result<Prepared> {
    let directory = out.join("runs").join(point.key());
    let mut system = base.clone();
    let refuse = |field: &str, span: &Range<usize>, message: String| {
        let problem = Problem::error(&experiment.file, field, span.clone(), message);
        problem.label(format!("in the run `{}`", point.label()))
    };
    let one = |problem: Problem| Errors::new(experiment.file.name(), vec![problem]);
    for place in &point.remove {
        overrides::remove(&mut system, &place.path).map_err(|error| {
            let problem = refuse("variant.remove", &place.span, error);
            one(problem.help(format!("the system is {}", workspace::display(&experiment.system))))
        })?;
    }
    for (place, value) in &point.set {
        overrides::set(&mut system, &place.path, value).map_err(|error| {
            let problem = refuse("variant.set", &place.span, error);
            one(problem.help(format!("the system is {}", workspace::display(&experiment.system))))
        })?;
    }
    let text = toml::to_string_pretty(&system).into_diagnostic()?;
    let file = directory.join("system.toml");
    write_atomic(&file, text.as_bytes())?;
    let checked = config::load_text(&file, text.clone(), Some(experiment.board.name())).map_err(|errors| {
        let wrong = errors.problems().iter().filter(|problem| problem.is_error());
        let told = wrong.map(|problem| {
            let (line, column) = problem.line_and_column();
            let message = format!("this makes a system that is wrong in `{}`: {}", problem.field(), problem.message());
            let help = format!("it is at {}:{line}:{column}; `cargo xtask check` shows it there", problem.file());
            refuse("variant", &point.span, message).help(help)
        });
        Errors::new(experiment.file.name(), told.collect())
    })?;
    if !checked.system.vms.iter().any(|vm| vm.name == experiment.victim) {
        let message = format!("this makes a system without a VM `{}`", experiment.victim);
        let names = checked.system.vms.iter().map(|vm| vm.name.as_str());
        let help = format!("`victim` names the VM that is measured; {}", suggest(&experiment.victim, "VMs", names));
        return Err(one(refuse("victim", &point.span, message).help(help)).into());
    }
    Ok(Prepared { directory, text, checked })
}

/// All that the runs of an experiment share.
struct Setting<'a> {
    experiment: &'a Experiment,
    model: &'a Model,
    hypervisor: image::Flat,
    /// Hash of model, plugin and QEMU.
    common: Sha256,
}

/// A point's system, checked.
struct Prepared {
    directory: PathBuf,
    text: String,
    checked: Checked,
}

impl Setting<'_> {
    /// A point's result: the one that is there, or that of a run. Second: whether it was there.
    fn result(&self, point: &Point, prepared: &Prepared) -> Result<(Measured, bool)> {
        let image = image::assemble(&prepared.checked, &self.hypervisor)?;
        let mut hash = self.common.clone();
        for part in [prepared.text.as_bytes(), &image.bytes, &point.pages.to_le_bytes()] {
            add(&mut hash, part);
        }
        let inputs: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(measured) = kept(&prepared.directory, &inputs) {
            return Ok((measured, true));
        }
        Ok((self.run(point, prepared, &image, inputs)?, false))
    }

    fn run(&self, point: &Point, prepared: &Prepared, image: &image::Image, inputs: String) -> Result<Measured> {
        let file = prepared.directory.join("Image");
        image.write(&file)?;
        let stats = prepared.directory.join("model.json");
        let machine = Machine::new(self.experiment.board, &file).limit(LIMIT);
        let machine = self.model.attach(machine, self.experiment.seed, self.experiment.caches, &stats);
        let outcome = machine.run()?;
        write_atomic(&prepared.directory.join("console.txt"), outcome.console.as_bytes())?;
        write_atomic(&prepared.directory.join("telemetry.bin"), &outcome.telemetry)?;
        let measured = self.measure(point, prepared, &outcome, &stats, inputs);
        let measured = measured.wrap_err_with(|| {
            let lines: Vec<&str> = outcome.console.lines().collect();
            let tail = lines[lines.len().saturating_sub(12)..].join("\n");
            miette!(
                "run {} did not go as it should; its console's last lines:\n{tail}\n{}",
                point.key(),
                outcome.errors
            )
        })?;
        write_json(&prepared.directory.join("result.json"), &measured)?;
        Ok(measured)
    }

    fn measure(
        &self,
        point: &Point,
        prepared: &Prepared,
        outcome: &Outcome,
        stats: &Path,
        inputs: String,
    ) -> Result<Measured> {
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
        let names = EventNames::of(&prepared.checked.board.events);
        let runs: Vec<_> = telemetry.hem_runs().filter(|run| run.record.vm == victim).collect();
        let statistics = Statistics::read(stats)?;
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
        let begun = first.at.0.saturating_sub(first.record.cycles.0 * 1000 / self.model.parameters.clock_mhz);
        if let Some((event, _)) = moves.iter().find(|(event, _)| event.at.0 > begun) {
            return Err(miette!(
                "a page migrated {} ns after the first measured segment had begun: more warm-up is needed",
                event.at.0 - begun
            ));
        }
        let segments = runs[warm_up..].iter().map(|run| Segment {
            cycles: run.record.cycles.0,
            events: run.counts().map(|(event, count, _)| (names.name(event), u64::from(count))).collect(),
        });
        let mut quotas: Vec<QuotaOutcome> = telemetry
            .quota_totals()
            .map(|(core, total)| QuotaOutcome {
                core,
                by_interrupt: total.by_interrupt,
                periods: u64::from(total.periods),
                throttled_periods: u64::from(total.throttled_periods),
                events: total.events.0,
                max_overshoot: total.max_overshoot.0,
                overshoot: total.overshoot.0,
            })
            .collect();
        quotas.sort_by_key(|quota| quota.core);
        Ok(Measured {
            inputs,
            variant: point.variant.clone(),
            axes: point.axes.clone(),
            segments: segments.collect(),
            regions: statistics.regions[warm_up..].to_vec(),
            quotas,
            pages_moved: moves.len() as u64,
        })
    }
}

/// Adds a part with its length, so that no two lists of parts look the same.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// A result that is there already and was made from the same inputs.
fn kept(directory: &Path, inputs: &str) -> Option<Measured> {
    let text = std::fs::read_to_string(directory.join("result.json")).ok()?;
    let measured: Measured = serde_json::from_str(&text).ok()?;
    (measured.inputs == inputs).then_some(measured)
}

/// Runs all points whose results are not there yet; returns one result per point, in the points' order, and how many
/// had been there.
pub fn run(experiment: &Experiment, model: &Model, out: &Path) -> Result<(Vec<Measured>, usize)> {
    // All mistakes come before the first run.
    let base = base(experiment)?;
    let prepared = experiment.points.iter().map(|point| prepare(experiment, &base, out, point));
    let prepared = prepared.collect::<Result<Vec<_>>>()?;
    let mut common = Sha256::new();
    let model = &model.kept_in(out)?;
    for file in [model.board(), model.plugin()] {
        let bytes =
            std::fs::read(file).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", file.display()))?;
        add(&mut common, &bytes);
    }
    // The arguments as they are but for where the files lie.
    let arguments = model.attach(
        Machine::new(experiment.board, Path::new("Image")),
        experiment.seed,
        experiment.caches,
        Path::new("model.json"),
    );
    let arguments = arguments.command_line().replace(&out.display().to_string(), "");
    for part in [qemu_version(), arguments, experiment.victim.clone(), experiment.warm_up.to_string()] {
        add(&mut common, part.as_bytes());
    }
    let hypervisor = image::flatten(&build::hypervisor(&[])?)?;
    let setting = Setting { experiment, model, hypervisor, common };

    let bar = ProgressBar::new(experiment.points.len() as u64);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed}, {eta} left  {msg}");
    bar.set_style(style.into_diagnostic()?);
    bar.set_prefix(experiment.name.clone());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(experiment.points.len());
    let (next, reused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<Option<Measured>>> = Mutex::new(vec![None; experiment.points.len()]);
    let failed: Mutex<Option<miette::Report>> = Mutex::new(None);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((point, prepared)) = experiment.points.get(index).zip(prepared.get(index)) else { return };
            bar.set_message(point.key());
            let result = setting.result(point, prepared).map(|(measured, there)| {
                reused.fetch_add(usize::from(there), Ordering::Relaxed);
                measured
            });
            match result {
                Ok(measured) => lock(&results)[index] = Some(measured),
                Err(error) => {
                    // The others finish what they are at, and nothing new begins.
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

/// A worker that panicked has left nothing half done in these.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec;

    /// What is wrong with the systems of the shipped c2is experiment, changed: line, field, message, help.
    fn refused(old: &str, new: &str) -> String {
        let path = spec::directory().join("c2is.toml");
        let text = std::fs::read_to_string(&path).expect("the shipped experiment");
        assert!(text.contains(old), "{old}");
        let line = 1 + text[..text.find(old).unwrap_or(0)].matches('\n').count();
        let experiment = spec::parse(&path, text.replacen(old, new, 1), false).expect("its form is right");
        let out = tempfile::tempdir().expect("a directory");
        let base = base(&experiment).expect("its system is right");
        let mut all = experiment.points.iter().map(|point| prepare(&experiment, &base, out.path(), point).map(drop));
        let error = all.find_map(Result::err).expect("it is refused");
        let errors = error.downcast_ref::<Errors>().expect("with its place");
        let problem = &errors.problems()[0];
        let (at, _) = problem.line_and_column();
        let help = miette::Diagnostic::help(problem).map(|help| help.to_string()).unwrap_or_default();
        let help = help.replace(&out.path().display().to_string(), "OUT");
        // Which line, seen from what was changed: an experiment may grow at its top.
        format!("{:+} {} | {} | {help}", at as i64 - line as i64, problem.field(), problem.message())
    }

    #[test]
    fn systems_that_cannot_be_are_told_at_the_place_that_makes_them_so() {
        let all = [
            ("\"vm.victim.profile.top\" =", "\"vm.victm.profile.top\" ="),
            ("\"vm.interf-*\", \"vm.victim.profile\"", "\"vm.other-*\", \"vm.victim.profile\""),
            ("64, 65]", "64, 65, 66]"),
            ("victim = \"victim\"", "victim = \"victm\""),
            ("\"vm.victim.profile.top\" = \"{pages}\"", "\"pool.pvt.colors\" = \"{pages}\""),
        ];
        let all: Vec<String> = all.iter().map(|(old, new)| format!("{new}\n  {}\n", refused(old, new))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_result_is_kept_only_if_it_is_whole_and_was_made_from_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let measured = Measured {
            inputs: "abc".to_owned(),
            variant: "solo".to_owned(),
            axes: BTreeMap::new(),
            segments: vec![Segment { cycles: 5, events: BTreeMap::new() }],
            regions: vec![],
            quotas: vec![],
            pages_moved: 0,
        };
        let path = directory.path().join("result.json");
        assert_eq!(kept(directory.path(), "abc"), None);
        write_json(&path, &measured).expect("written");
        assert_eq!(kept(directory.path(), "abc"), Some(measured));
        assert_eq!(kept(directory.path(), "abd"), None);
        let text = std::fs::read(&path).expect("it is there");
        std::fs::write(&path, &text[..text.len() / 2]).expect("written");
        assert_eq!(kept(directory.path(), "abc"), None, "half a result is none");
    }

    #[test]
    fn parts_of_the_inputs_cannot_be_taken_for_others() {
        let of = |parts: &[&[u8]]| {
            let mut hash = Sha256::new();
            parts.iter().for_each(|part| add(&mut hash, part));
            hash.finalize()
        };
        assert_eq!(of(&[b"a", b"b"]), of(&[b"a", b"b"]));
        assert_ne!(of(&[b"ab", b""]), of(&[b"a", b"b"]));
        assert_ne!(of(&[b"ab"]), of(&[b"a", b"b"]));
    }
}
