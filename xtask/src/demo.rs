//! `cargo xtask demo`: the main job from end to end, and a report of what it came to.

use crate::config::{self, Checked};
use crate::figures::{Figures, write_atomic};
use crate::hem::{EventNames, Table};
use crate::image::Image;
use crate::qemu::{Board, Machine, Outcome};
use crate::report::{self, Page, Summary};
use crate::telemetry::{End, Telemetry};
use crate::{build, image, setup, workspace};
use cloison_core::wire::MigrationOutcome;
use indicatif::ProgressBar;
use miette::{Result, miette};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the demo runs.
const CONFIG: &str = "configs/demo.toml";

/// How to run the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// The machine
    #[arg(long, value_enum, default_value = "virt")]
    pub board: Board,
    /// Write the figures here too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where the report goes (default: target/demo/<BOARD>)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Stop the board after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub timeout: u64,
}

/// What a reader must know before believing a number of a run on QEMU.
const CAVEATS: [&str; 3] = [
    "Stock QEMU has no caches. Colors, frames, migrations and quotas are real here, but what they do to timing cannot \
     be seen: cycles and costs are instruction counts and virtual time, not cache effects.",
    "The run uses -icount shift=0: one instruction takes one nanosecond of virtual time, and the run repeats exactly. \
     QEMU then counts INST_RETIRED over the instructions of all cores that run, so that a budget of events acts as a \
     budget of virtual time.",
    "QEMU runs the cores in turn, and virtual time goes on for all of them: a time or a count taken on one core \
     includes the turns of the others, and a core sees its interrupt when its turn comes. Most of the overshoot and of \
     the cost of a migration below is that. `cargo xtask bench` measures on one core, where it does not occur.",
];

/// Runs `cargo xtask demo`.
pub fn demo(args: &DemoArgs) -> Result<()> {
    let directory = args.out.clone().unwrap_or_else(|| workspace::target_dir().join("demo").join(args.board.name()));
    let path = workspace::root().join(CONFIG);
    let checked = stage("configuration", || Ok(config::load(&path, Some(args.board.name()))?))?;
    stage("set-up", || {
        setup::core_library()?;
        setup::qemu()
    })?;
    let image = stage("build", || build_image(&checked, &[]))?;
    let file = directory.join("Image");
    image.write(&file)?;
    let machine = Machine::new(args.board, &file).icount(Some(0)).limit(Duration::from_secs(args.timeout));
    let outcome = stage_with(&format!("run on {}", args.board), |progress| run(&machine, progress))?;
    write_atomic(&directory.join("console.txt"), outcome.console.as_bytes())?;
    write_atomic(&directory.join("telemetry.bin"), &outcome.telemetry)?;

    let telemetry = Telemetry::parse(&outcome.telemetry);
    let names = EventNames::of(&checked.board.events);
    let summary = Summary { telemetry: &telemetry, system: &image.system, names: &names };
    let mut figures = Figures::new("demo").board(args.board.name()).config(&path);
    summary.figures(&mut figures);
    figures.value("wall_s", outcome.wall.as_secs_f64());
    write_report(&directory, args, &checked, &machine, &outcome, &summary, &figures)?;
    figures.write(args.json.as_deref())?;

    for section in [summary.pools(), summary.vms(), summary.quotas(), summary.migrations(), summary.hems()] {
        println!("{}", section.to_text());
    }
    for caveat in CAVEATS {
        println!("{caveat}\n");
    }
    println!("Report:  {}", workspace::display(&directory.join("report.html")));
    println!("Data:    hem.csv, hem.parquet, figures.json, console.txt and telemetry.bin beside it");
    verdict(&image, &outcome, &telemetry)
}

fn write_report(
    directory: &Path,
    args: &DemoArgs,
    checked: &Checked,
    machine: &Machine,
    outcome: &Outcome,
    summary: &Summary<'_>,
    figures: &Figures,
) -> Result<()> {
    let table = Table::new(summary.telemetry, summary.names);
    write_atomic(&directory.join("hem.csv"), &table.to_csv()?)?;
    write_atomic(&directory.join("hem.parquet"), &table.to_parquet()?)?;
    figures.write(Some(&directory.join("figures.json")))?;
    let html = report::html(
        summary,
        &Page {
            title: &format!("Cloison: {} on {}", checked.system.name, args.board),
            subtitle: &checked.summary(),
            caveats: &CAVEATS,
            config: &checked.source,
            command_line: &machine.command_line(),
            figures,
            console: &outcome.console,
        },
    );
    write_atomic(&directory.join("report.html"), html.as_bytes())
}

fn run(machine: &Machine, progress: &ProgressBar) -> Result<Outcome> {
    const SHOWN: usize = 70;
    let mut session = machine.start()?;
    let (progress, name, mut lines) = (progress.clone(), progress.message(), 0usize);
    session.on_line(move |line| {
        lines += 1;
        let shown: String = line.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        progress.set_message(format!("{name}: {lines} lines | {shown}"));
    });
    session.finish()
}

/// What the run should have shown and did not.
fn verdict(image: &Image, outcome: &Outcome, telemetry: &Telemetry) -> Result<()> {
    let system = &image.system;
    let mut missing = vec![];
    if !outcome.exit.is_clean() {
        missing.push(format!("the board did not turn itself off: {}", outcome.exit));
    }
    if telemetry.boot.is_none() {
        missing.push("the hypervisor sent no telemetry".to_owned());
    }
    if let Some((offset, problem)) = telemetry.problems.first() {
        missing.push(format!("{} telemetry frames are bad; byte {offset}: {problem}", telemetry.problems.len()));
    }
    if telemetry.dropped() > 0 {
        missing.push(format!("{} telemetry records were dropped", telemetry.dropped()));
    }
    for (id, vm) in system.vms.iter().enumerate() {
        let end = telemetry.end_of(id as u8);
        let may_be_stopped = system.ends_with.is_some_and(|last| usize::from(last) != id);
        if end != End::Off && !(end == End::Stopped && may_be_stopped) {
            missing.push(format!("VM `{}` did not end as it should: {end}", vm.name));
        }
        for (index, quota) in vm.quotas.iter().enumerate() {
            let seen = telemetry.quota_totals().any(|(_, total)| {
                usize::from(total.vm) == id && usize::from(total.quota) == index && total.periods > 0
            });
            if !seen {
                missing.push(format!("the quota of vCPU {} of VM `{}` never came into force", quota.vcpu, vm.name));
            }
        }
    }
    if !telemetry.migrations().any(|(_, migration)| migration.outcome == MigrationOutcome::Moved) {
        missing.push("no page was migrated".to_owned());
    }
    if telemetry.hem_runs().next().is_none() {
        missing.push("no HEM record came".to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<&str> = outcome.console.lines().collect();
    let tail = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(miette!(
        help = format!("the console's last lines were:\n{tail}\n{}", outcome.errors),
        "the demo did not do all that it should:\n{}",
        missing.join("\n")
    ))
}

/// Builds the hypervisor and the guests, and puts them into one image with their configuration. `features` are the
/// hypervisor's cargo features.
pub fn build_image(checked: &Checked, features: &[&str]) -> Result<Image> {
    image::assemble(checked, &image::flatten(&build::hypervisor(features)?)?)
}

/// Does one stage of a command, shows it while it lasts, and says how long it took.
pub fn stage<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    stage_with(name, |_| work())
}

fn stage_with<T>(name: &str, work: impl FnOnce(&ProgressBar) -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let spinner = setup::spinner(name);
    let result = work(&spinner);
    spinner.finish_and_clear();
    let mark = if result.is_ok() { "done" } else { "failed" };
    eprintln!("{name:<18} {mark} in {:.1} s", started.elapsed().as_secs_f64());
    result
}
