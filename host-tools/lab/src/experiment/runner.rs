//! Performs the runs of an experiment, each once, and keeps their results.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::Check;
use super::cyclictest::Latencies;
use super::measured::{Measure, Measured, QuotaOutcome, Segment};
use super::overrides::{self, Value};
use super::printed;
use super::profiled;
use super::shows::Statement;
use super::spec::{Experiment, Point};
use crate::boards::Boards;
use crate::boards::boot::{Boot, Output};
use cloison_abi::services;
use cloison_config::events::EventNames;
use cloison_config::validation::record::Machine as Executor;
use cloison_config::{Checked, Errors, ImageSource, Problem, suggest};
use cloison_engine::counting;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::kept::{KeptImage, KeptRun};
use cloison_engine::model::{self, Conditions, Model};
use cloison_engine::progress::bar;
use cloison_engine::qemu::Machine;
use cloison_engine::store::Store;
use cloison_engine::telemetry::{End, HemRun, Telemetry};
use cloison_engine::{configuration, consoles, image};
use cloison_formats::ids::VmId;
use cloison_formats::telemetry::MigrationOutcome;
use cloison_formats::units::Nanos;
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time limit for each sample of a run: one that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(1200);

/// The common inputs of all runs of an experiment.
struct Setting<'a> {
    experiment: &'a Experiment,
    model: &'a Model,
    hypervisor: image::Flat,
    /// Hash of model, plugin and QEMU.
    common: Sha256,
    store: Store,
}

/// Returns the system of a point, as text and checked. The text is written to `system.toml` in
/// `directory`.
fn system_of(
    experiment: &Experiment,
    base: &Value,
    point: &Point,
    directory: &Path,
) -> Result<(String, Checked)> {
    let system = experiment.system_of(base.clone(), point)?;
    let text = toml::to_string_pretty(&system).into_diagnostic()?;
    let file = directory.join("system.toml");
    write_atomic(&file, text.as_bytes())?;
    let adapted = |mut checked: Checked| {
        let warnings = counting::adapt(&mut checked, experiment.executor)?;
        checked.warnings.extend(warnings);
        Ok(checked)
    };
    let checked = configuration::load(&file, Some(&experiment.board))
        .and_then(adapted)
        .map_err(|errors| {
            let message = format!("the system of run `{}` is not valid", point.key());
            let problem = experiment
                .problem("variant", point.span.clone(), message)
                .label("this variant's changes");
            let problem = problem.help("the errors are those of the system after the changes");
            let all = std::iter::once(problem)
                .chain(
                    errors
                        .problems()
                        .iter()
                        .filter(|problem| problem.is_error())
                        .cloned(),
                )
                .collect();
            Errors::new(experiment.source.name(), all)
        })?;
    Ok((text, checked))
}

/// Returns the systems of all points, and reports what would make a run fail or a check impossible,
/// before the first board starts.
fn preflight(
    experiment: &Experiment,
    points: &[Point],
    base: &Value,
    out: &Path,
) -> Result<Vec<RunPlan>> {
    let mut all = vec![];
    for point in points {
        let directory = out.join("runs").join(point.key());
        let (text, checked) = system_of(experiment, base, point, &directory)?;
        let found = check_victim(experiment, point, &checked).into_iter();
        let problems: Vec<Problem> = found
            .chain(check_events(experiment, point, &checked))
            .collect();
        // One mistake in the file is reported once, not for every run.
        if !problems.is_empty() {
            return Err(Errors::new(experiment.source.name(), problems).into());
        }
        if let Some(warning) = check_commands(experiment, point, &checked) {
            eprintln!("warning: {warning}");
        }
        all.push(RunPlan {
            directory,
            text,
            checked,
        });
    }
    Ok(all)
}

/// Returns what keeps the victim of a run from being measured.
fn check_victim(experiment: &Experiment, point: &Point, checked: &Checked) -> Option<Problem> {
    let name = &experiment.victim;
    let victim =
        |message: String| experiment.problem("victim", experiment.victim_span.clone(), message);
    let vms = &checked.system.vms;
    let Some(index) = checked.vm(name).map(VmId::index) else {
        let problem = victim(format!(
            "the system of run `{}` has no VM `{name}`",
            point.key()
        ))
        .label("unknown VM");
        return Some(problem.help(suggest(name, "VMs", vms.iter().map(|vm| vm.name.as_str()))));
    };
    if experiment.measure != Measure::Segments {
        return None;
    }
    if vms[index].services & services::HEM == 0 {
        let problem = victim(format!("VM `{name}` cannot log segments"))
            .label("its `services` have no \"hem\"");
        return Some(problem.help(
            "give it services = [\"hem\"], and hems = [\"L2D_CACHE_REFILL\", …] to count events",
        ));
    }
    if matches!(checked.images[index], ImageSource::Linux(_)) && !vms[index].services_page {
        let problem = victim(format!("Linux in VM `{name}` cannot log segments"))
            .label("it has no services page");
        return Some(problem.help(
            "give it services_page = true, through which `cloisonctl stat` reaches the hypervisor",
        ));
    }
    let runs = runs_of(&checked.images[index], &vms[index].args)?;
    (runs <= experiment.warm_up as u64).then(|| {
        let message = format!(
            "the victim runs {runs} times in run `{}`, and all are warm-up",
            point.key()
        );
        let problem = experiment.problem("warm_up", experiment.warm_up_span.clone(), message);
        problem
            .label(format!("at most {}", runs.saturating_sub(1)))
            .help("lower `warm_up`, or give the victim more runs")
    })
}

/// Returns a warning for a run whose Linux guests move pages, while its variant says that none
/// move: the run would be refused after it.
fn check_commands(experiment: &Experiment, point: &Point, checked: &Checked) -> Option<String> {
    let moves = |image: &ImageSource| {
        let ImageSource::Linux(linux) = image else {
            return false;
        };
        let command = linux.exec.as_deref().unwrap_or_default();
        ["bbprof migrate", "cloisonctl migrate"]
            .iter()
            .any(|part| command.contains(part))
    };
    let vms = checked.system.vms.iter().zip(&checked.images);
    let (vm, _) = vms.into_iter().find(|(_, image)| moves(image))?;
    (experiment.measure == Measure::Segments && point.pages == 0).then(|| {
        format!(
            "the command of VM `{}` in run `{}` moves pages, but the run is refused if any move: \
             write their number into the variant (pages = NUMBER), or measure = \"printed\"",
            vm.name,
            point.key()
        )
    })
}

/// Returns how often a shipped workload runs its segment (docs/workloads.md), if that is known.
fn runs_of(image: &ImageSource, args: &[u64; 4]) -> Option<u64> {
    let ImageSource::Workload(name) = image else {
        return None;
    };
    let argument = match name.as_str() {
        "c2is" | "staircase" => args[0],
        "matrix-copy" | "disparity" | "segmentation" | "matmul" => args[1],
        "latency" | "memory" => args[3],
        _ => return None,
    };
    Some(argument.max(1))
}

/// Returns the first event of a check that the victim does not count.
fn check_events(experiment: &Experiment, point: &Point, checked: &Checked) -> Option<Problem> {
    let victim = checked
        .system
        .vms
        .iter()
        .find(|vm| vm.name == experiment.victim)?;
    let names = EventNames::of(&checked.board.events);
    let counted: Vec<String> = victim.hems.iter().map(|event| names.name(*event)).collect();
    let uncounted = |check: &Check| {
        let mut events = check.events_in(&point.variant, &point.axes);
        let event = events.find(|event| !counted.iter().any(|known| known == event))?;
        let message = format!(
            "VM `{}` does not count `{event}` in run `{}`",
            victim.name,
            point.key()
        );
        let problem = experiment
            .problem("guards", check.span.clone(), message)
            .label("not counted");
        Some(problem.help(suggest(
            event,
            "its `hems`",
            counted.iter().map(String::as_str),
        )))
    };
    let guards = experiment.guards.iter().map(|guard| &guard.check);
    let relations = experiment.shows.iter().filter_map(Statement::relation);
    guards.chain(relations).find_map(uncounted)
}

/// The system of a point.
struct RunPlan {
    /// Where the run's files go.
    directory: PathBuf,
    text: String,
    checked: Checked,
}

/// The system of a point, ready to run.
struct Prepared<'a> {
    directory: &'a Path,
    checked: &'a Checked,
    image: image::Image,
    inputs: String,
    /// The number of the sample.
    sample: u32,
}

impl Setting<'_> {
    fn prepare<'a>(&self, point: &Point, planned: &'a RunPlan) -> Result<Prepared<'a>> {
        let RunPlan {
            directory,
            text,
            checked,
        } = planned;
        let image = image::assemble(checked, &self.hypervisor)?;
        let mut hash = self.common.clone();
        hash.update(text.as_bytes());
        hash.update(&image.bytes);
        hash.update(point.pages.to_le_bytes());
        if point.sample > 0 {
            hash.update(format!("sample {}", point.sample));
        }
        let inputs = files::digest(hash);
        Ok(Prepared {
            directory,
            checked,
            image,
            inputs,
            sample: point.sample,
        })
    }

    fn run(
        &self,
        boards: &Boards,
        point: &Point,
        prepared: &Prepared<'_>,
        boot: Boot,
    ) -> Result<Measured> {
        let output = boards.boot(prepared.directory, boot)?;
        output.write(prepared.directory)?;
        let measured = self.measure(point, prepared, &output);
        let measured = measured.wrap_err_with(|| {
            miette!(
                "run {} failed; its console's last lines:\n{}",
                point.key(),
                output.tail()
            )
        })?;
        files::keep(&prepared.directory.join("result.json"), &measured)?;
        Ok(measured)
    }

    /// Returns what is needed to repeat a run, and writes it if the model executes it.
    fn keep(&self, prepared: &Prepared<'_>) -> Result<Boot> {
        let Experiment {
            board,
            conditions,
            executor,
            samples,
            ..
        } = self.experiment;
        let limit = match samples.in_guest {
            true => LIMIT * samples.number,
            false => LIMIT,
        };
        // Another phase of refreshes, and other choices where a cache replaces at random.
        let conditions = &Conditions {
            seed: conditions.seed + u64::from(prepared.sample),
            ..*conditions
        };
        if *executor == Executor::Hardware {
            let image = KeptImage::new(&prepared.image, &self.store)?;
            let board = &prepared.checked.system.board.name;
            return Ok(Boot::on_hardware(board, image, conditions.seed, limit));
        }
        let kept = KeptRun::new(board, &prepared.image, self.model, &self.store, *conditions)?;
        kept.write(prepared.directory)?;
        Ok(Boot::new(prepared.checked.emulation()?, kept, limit))
    }

    /// Returns what a run has measured.
    fn measure(
        &self,
        point: &Point,
        prepared: &Prepared<'_>,
        outcome: &Output,
    ) -> Result<Measured> {
        let telemetry = complete_telemetry(outcome)?;
        let victim = self.ended_victim(prepared, &telemetry)?;
        let measured = Measured {
            inputs: prepared.inputs.clone(),
            variant: point.variant.clone(),
            axes: point.axes.clone(),
            quotas: quotas(&telemetry),
            image: prepared.image.sha256(),
            ..Measured::default()
        };
        if self.experiment.measure != Measure::Segments {
            return self.printed(prepared, outcome, victim, measured);
        }
        let regions = match self.experiment.executor {
            Executor::Hardware => vec![],
            _ => model::statistics(&prepared.directory.join("model.json"))?.regions,
        };
        let logged: Vec<HemRun<'_>> = telemetry
            .hem_runs()
            .filter(|run| run.record.vm == victim)
            .collect();
        self.check_segments(&logged, regions.len())?;
        let has_regions = regions.len() == logged.len();
        let warm_up = self.experiment.warm_up;
        let segments = &logged[warm_up..];
        let names = EventNames::of(&prepared.checked.board.events);
        let segment = |run: &HemRun<'_>| Segment {
            cycles: run.record.cycles.0,
            events: run
                .counts()
                .map(|(event, count, _)| (names.name(event), u64::from(count)))
                .collect(),
        };
        self.check_moves(point, &telemetry, &segments[0])?;
        Ok(Measured {
            segments: segments.iter().map(segment).collect(),
            regions: if has_regions {
                regions[warm_up..].to_vec()
            } else {
                vec![]
            },
            pages_moved: point.pages,
            ..measured
        })
    }

    /// Returns the number of the victim, which must have turned itself off.
    fn ended_victim(&self, prepared: &Prepared<'_>, telemetry: &Telemetry) -> Result<VmId> {
        let name = &self.experiment.victim;
        let found = prepared.checked.vm(name);
        let victim = found.ok_or_else(|| miette!("the system has no VM `{name}`"))?;
        match telemetry.end_of(victim) {
            End::Off => Ok(victim),
            end => Err(miette!("the victim did not end by itself: {end}")),
        }
    }

    /// Adds the results that the victim's program has printed.
    fn printed(
        &self,
        prepared: &Prepared<'_>,
        outcome: &Output,
        victim: VmId,
        measured: Measured,
    ) -> Result<Measured> {
        let names = prepared
            .checked
            .system
            .vms
            .iter()
            .map(|vm| vm.name.as_str());
        let said = consoles::said_by(names, victim, &outcome.console);
        let is = |measure| (self.experiment.measure == measure).then_some(said.as_str());
        Ok(Measured {
            latencies: is(Measure::Cyclictest).map(Latencies::read).transpose()?,
            profile: is(Measure::Profile).map(profiled::find).transpose()?,
            printed: is(Measure::Printed).map(printed::numbers).transpose()?,
            ..measured
        })
    }

    /// Refuses segments that are too few, that the model did not see although its counts of them
    /// are needed, or whose counters overflowed.
    fn check_segments(&self, logged: &[HemRun<'_>], seen: usize) -> Result<()> {
        let warm_up = self.experiment.warm_up;
        if logged.len() <= warm_up {
            let help = "a guest logs a segment from segment_begin to segment_end, and a Linux \
                        guest by `cloisonctl stat --by hem COMMAND`; lower `warm_up`, or run it \
                        more often";
            return Err(miette!(
                help = help,
                "{} segments were logged; more than {warm_up} are needed",
                logged.len()
            ));
        }
        // Every guest's segments are in the hypervisor's log. Only those that also mark them for
        // the model have its counts of all cores, and can start with cold caches.
        let is_cold = self.experiment.conditions.caches == model::Caches::Cold
            && self.experiment.executor != Executor::Hardware;
        let needs_regions = self.experiment.needs_regions || is_cold;
        if needs_regions && seen != logged.len() {
            return Err(miette!(
                help = "mark the segments with HINT instructions (docs/board-model.md); without \
                        them leave out `caches`, and what reads the model's counts",
                "{} segments were logged, but {seen} regions of interest were seen by the model",
                logged.len()
            ));
        }
        let overflows = |run: &&HemRun<'_>| run.counts().any(|(_, _, overflowed)| overflowed);
        match logged.iter().find(overflows) {
            Some(run) => Err(miette!(
                help = "measure shorter segments: a counter starts again at zero beyond its bits",
                "a counter overflowed in run {}",
                run.record.run
            )),
            None => Ok(()),
        }
    }

    /// Refuses a run in which not all pages of its point, and no others, had moved when the first
    /// measured segment began.
    fn check_moves(&self, point: &Point, telemetry: &Telemetry, first: &HemRun<'_>) -> Result<()> {
        let moves: Vec<Nanos> = telemetry
            .migrations()
            .filter(|(_, record)| record.outcome == MigrationOutcome::Moved)
            .map(|(event, _)| event.at)
            .collect();
        if moves.len() as u64 != point.pages {
            return Err(miette!(
                help = "write the number into the variant: pages = NUMBER",
                "{} pages migrated where {} were to",
                moves.len(),
                point.pages
            ));
        }
        let took = first.record.cycles.0 * 1000 / self.model.clock_mhz;
        let begun = first.at.0.saturating_sub(took);
        match moves.iter().find(|at| at.0 > begun) {
            Some(late) => Err(miette!(
                "a page migrated {} ns after the first measured segment started: more warm-up is \
                 needed",
                late.0 - begun
            )),
            None => Ok(()),
        }
    }
}

/// Returns the telemetry of a board that turned itself off, if none is damaged or missing.
fn complete_telemetry(outcome: &Output) -> Result<Telemetry> {
    if !outcome.exit.is_clean() {
        return Err(miette!(
            "the board did not turn itself off: {}",
            outcome.exit
        ));
    }
    let telemetry = Telemetry::parse(&outcome.telemetry);
    telemetry.check()?;
    match telemetry.dropped() {
        0 => Ok(telemetry),
        dropped => Err(miette!("{dropped} telemetry records were dropped")),
    }
}

/// Returns the results of all quotas, by core.
fn quotas(telemetry: &Telemetry) -> Vec<QuotaOutcome> {
    let mut quotas: Vec<QuotaOutcome> = telemetry
        .quota_totals()
        .map(|(core, total)| QuotaOutcome {
            core: core.0,
            by_interrupt: total.by_interrupt,
            periods: total.totals.periods,
            throttled_periods: total.totals.spent_periods,
            events: total.totals.events.0,
            max_overshoot: total.totals.max_overshoot.0,
            overshoot: total.totals.overshoot.0,
        })
        .collect();
    quotas.sort_by_key(|quota| quota.core);
    quotas
}

/// Returns an existing result that was made from the same inputs and is as it was written.
fn kept(directory: &Path, inputs: &str) -> Option<Measured> {
    let measured: Measured = files::kept(&directory.join("result.json"))?;
    (measured.inputs == inputs).then_some(measured)
}

/// Changes with the code that starts a run and reads its results, so that older results are not
/// taken for new ones.
const RESULT_VERSION: u32 = 2;

/// Returns what determines all runs' results, beside files: what is measured, of whom, and QEMU's
/// command line without the image.
fn inputs(experiment: &Experiment, command_line: &str) -> String {
    format!(
        "{RESULT_VERSION} {:?} {} {:?} {} {:?} {} {command_line}",
        experiment.victim,
        experiment.conditions.seed,
        experiment.conditions.caches,
        experiment.warm_up,
        experiment.measure,
        experiment.needs_regions
    )
}

/// Returns a command line without these files' paths: where results are is no input of theirs.
fn without(line: String, files: [&Path; 2]) -> String {
    // QEMU splits options at single commas.
    files.into_iter().fold(line, |line, file| {
        line.replace(&file.display().to_string().replace(',', ",,"), "")
    })
}

/// Performs the runs of all points without results on these boards, each sample as a run. Returns
/// one result per point, in their order, and the number of kept runs.
///
/// # Errors
///
/// If the system of a run is not valid, or a run fails or is absent.
pub fn run(
    boards: &Boards,
    experiment: &Experiment,
    model: &Model,
    out: &Path,
) -> Result<(Vec<Measured>, usize)> {
    let bar = bar(&experiment.name, experiment.boots());
    let done = run_under(boards, &bar, experiment, model, out);
    bar.finish_and_clear();
    done
}

/// Like [`run`], with each run as one step of a longer command's progress.
///
/// # Errors
///
/// As [`run`].
pub fn run_under(
    boards: &Boards,
    bar: &ProgressBar,
    experiment: &Experiment,
    model: &Model,
    out: &Path,
) -> Result<(Vec<Measured>, usize)> {
    let text = files::read_text(&experiment.system, files::CONFIGURATION)?;
    // Report errors in context before anything is changed.
    let checked = configuration::load(&experiment.system, Some(&experiment.board))?;
    let base = overrides::anchored(&text, &experiment.system)?;
    let points: Vec<Point> = experiment.points.iter().flat_map(Point::samples).collect();
    let planned = preflight(experiment, &points, &base, out)?;
    let store = Store::of_results(out);
    let model = &model.kept_in(&store)?;
    let mut common = model.hash()?;
    match experiment.executor {
        Executor::Hardware => common.update(inputs(experiment, &checked.system.board.name)),
        _ => {
            let emulation = checked.emulation()?;
            model::of(emulation)?;
            let machine = model.attach(
                Machine::bare(emulation),
                experiment.conditions,
                Path::new("model.json"),
            );
            let line = without(machine.command_line(), [model.board(), model.plugin()]);
            common.update(inputs(experiment, &line));
            common.update(format!("{emulation:?} {:?}", checked.board.events));
        }
    }
    let hypervisor = image::hypervisor_for(&checked.system.board)?;
    let setting = Setting {
        experiment,
        model,
        hypervisor,
        common,
        store,
    };

    let items: Vec<_> = points.iter().zip(&planned).collect();
    let reused = AtomicUsize::new(0);
    let done = boards.each(bar, &items, |(point, planned)| {
        bar.set_message(point.key());
        let prepared = setting.prepare(point, planned)?;
        // Of a run with a result, too: a part may be missing or damaged.
        let machine = setting.keep(&prepared)?;
        match boards.reuse(|| kept(prepared.directory, &prepared.inputs)) {
            Some(measured) => {
                reused.fetch_add(1, Ordering::Relaxed);
                Ok(measured)
            }
            None => setting.run(boards, point, &prepared, machine),
        }
    });
    KeptRun::clean(out, model, &setting.store);
    let mut done = done?.into_iter();
    let merged = experiment.points.iter().filter_map(|point| {
        let samples = done.by_ref().take(1 + point.again.len());
        Measured::of_samples(samples.collect())
    });
    Ok((merged.collect(), reused.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::shows::Form;
    use crate::experiment::spec;

    #[test]
    fn a_result_is_kept_for_the_same_victim_and_machine_only() {
        let mut experiment = spec::load(&spec::directory().join("c2is.toml"), Form::Quick)
            .expect("the shipped experiment");
        let first = inputs(&experiment, "qemu -M virt");
        assert_eq!(first, inputs(&experiment, "qemu -M virt"));
        assert_ne!(first, inputs(&experiment, "qemu -M virt -smp 2"));
        experiment.victim = "nobody".into();
        assert_ne!(first, inputs(&experiment, "qemu -M virt"), "another victim");
        let lines = ["/a", "/b,c"].map(|out| {
            let [plugin, board] = ["p.so", "m.toml"].map(|name| Path::new(out).join(name));
            let line = format!(
                "qemu -plugin file={},board={},seed=1",
                plugin.display(),
                board.display()
            );
            without(line.replace("/b,c", "/b,,c"), [&plugin, &board])
        });
        assert_eq!(lines[0], lines[1], "results may be anywhere");
    }
}
