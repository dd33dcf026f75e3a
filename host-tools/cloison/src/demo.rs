//! `cloison demo`: the main task from end to end, with a report.
//!
//! It runs on the board model, which shows interference and its remedies. With `--stock` it runs on
//! QEMU without the model: one run that shows pools, quotas and migrations, but no effect on time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use cloison_config::events::EventNames;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::hem::Table;
use cloison_engine::image;
use cloison_engine::installation::Installation;
use cloison_engine::progress::{stage, stage_with};
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::report::{self, Page, Summary};
use cloison_engine::setup::consent::{self, Consent};
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, installation, parts, setup};
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use cloison_formats::telemetry::MigrationOutcome;
use cloison_lab::experiment::shows::Form;
use cloison_lab::experiment::spec::Experiment;
use cloison_lab::experiment::{self, spec};
use indicatif::ProgressBar;
use miette::{Result, miette};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The system that runs without the model.
const CONFIG: &str = "configs/demo.toml";

/// Options of `cloison demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// The board
    #[arg(long, value_name = "NAME", value_parser = BoardArgument, default_value = DEFAULT_BOARD)]
    pub board: String,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Directory for the report [default: demo/BOARD in target/cloison, without a checkout in
    /// cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Without the board model: one run on plain QEMU
    #[arg(long)]
    pub stock: bool,
    /// Do not open the report in a browser
    #[arg(long)]
    pub no_open: bool,
    /// In a checkout: install what is missing without a question
    #[arg(long)]
    pub yes: bool,
    /// With --stock: stop the board after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub timeout: u64,
}

/// Caveats for the numbers of a run on QEMU.
const CAVEATS: [&str; 3] = [
    "Stock QEMU has no caches. Colors, frames, migrations and quotas are real here, but their \
     effect on timing is not visible: cycles and costs are instruction counts and virtual time, \
     not cache effects.",
    "The run uses -icount shift=0: one instruction takes one nanosecond of virtual time, and the \
     run repeats exactly. QEMU then counts INST_RETIRED over the instructions of all running \
     cores, so a budget of events acts as a budget of virtual time.",
    "QEMU runs the cores in turn, and virtual time advances for all of them. A time or a count \
     taken on one core includes the turns of the others, and a core sees its interrupt only when \
     its turn comes. This causes most of the overshoot and of the cost of a migration below. The \
     `bench` command measures on one core, where it does not occur.",
];

/// Runs `cloison demo`.
pub fn demo(args: &DemoArgs) -> Result<()> {
    if let Installation::Checkout(_) = installation::current() {
        consent::give(Consent::of(args.yes));
    }
    if args.stock {
        stock(args)
    } else {
        modelled(args)
    }
}

/// Performs four runs on the board model.
fn modelled(args: &DemoArgs) -> Result<()> {
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| installation::output_dir().join("demo").join(&args.board));
    let path = experiment::file_of("demo");
    let demo = Experiment {
        board: args.board.clone(),
        command: "demo".to_owned(),
        ..spec::load(&path, Form::Full)?
    };
    let done = experiment::perform(&demo, &path, &out, Form::Full)?;
    done.figures.write(args.json.as_deref())?;
    done.print(&demo, &out);
    println!(
        "Next:    {} tune configs/tune.toml decides colors, pages and budgets together, from what \
         each VM must reach (docs/tune.md)",
        installation::program()
    );
    if !args.no_open && std::io::stdout().is_terminal() && has_screen() {
        let report = out.join("report.html");
        if let Err(error) = open::that_detached(&report) {
            eprintln!("no browser could be started: {error}");
        }
    }
    Ok(())
}

/// Returns whether there is a screen on which a browser could open.
fn has_screen() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// Performs one run on plain QEMU.
fn stock(args: &DemoArgs) -> Result<()> {
    let default = || {
        installation::output_dir()
            .join("demo")
            .join(format!("{}-stock", args.board))
    };
    let directory = args.out.clone().unwrap_or_else(default);
    let path = installation::root().join(CONFIG);
    let mut checked = stage("configuration", || {
        Ok(configuration::load(&path, Some(&args.board))?)
    })?;
    counting::prepare_for(&mut checked, Counting::Icount.machine())?;
    stage("set-up", || {
        parts::prepare()?;
        setup::qemu()
    })?;
    let image = stage("build", || image::build(&checked, &[]))?;
    let _claim = Claim::for_results(&directory, "demo --stock")?;
    let file = directory.join("Image");
    image.write(&file)?;
    let machine = Machine::new(checked.emulation()?, &file)
        .icount(Some(0))
        .limit(Duration::from_secs(args.timeout));
    let outcome = stage_with(&format!("run on {}", args.board), |progress| {
        run(&machine, progress)
    })?;
    write_atomic(&directory.join("console.txt"), outcome.console.as_bytes())?;
    write_atomic(&directory.join("telemetry.bin"), &outcome.telemetry)?;

    let telemetry = Telemetry::parse(&outcome.telemetry);
    let names = EventNames::of(&checked.board.events);
    let summary = Summary {
        telemetry: &telemetry,
        system: &image.system,
        names: &names,
    };
    let mut figures = Figures::new("demo")
        .board(&args.board)
        .config(&path)
        .image(&image);
    summary.figures(&mut figures);
    figures.value("wall_s", outcome.wall.as_secs_f64());
    write_report(
        &directory, args, &checked, &machine, &outcome, &summary, &figures,
    )?;
    figures.write(args.json.as_deref())?;

    for section in [
        summary.pools(),
        summary.vms(),
        summary.exits(),
        summary.quotas(),
        summary.migrations(),
        summary.hems(),
    ] {
        println!("{}", section.to_text());
    }
    for caveat in CAVEATS {
        println!("{caveat}\n");
    }
    println!(
        "Report:  {}",
        installation::display(&directory.join("report.html"))
    );
    println!(
        "Data:    hem.csv, hem.parquet, figures.json, console.txt and telemetry.bin in the same \
         directory"
    );
    verdict(&image.system, &outcome, &telemetry)
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
        let shown: String = line
            .chars()
            .filter(|c| !c.is_control())
            .take(SHOWN)
            .collect();
        progress.set_message(format!("{name}: {lines} lines | {shown}"));
    });
    session.finish()
}

/// Returns an error that lists everything that the run should have shown but did not.
fn verdict(system: &System, outcome: &Outcome, telemetry: &Telemetry) -> Result<()> {
    let mut missing = shortfalls(system, telemetry);
    if !outcome.exit.is_clean() {
        missing.insert(
            0,
            format!("the board did not turn itself off: {}", outcome.exit),
        );
    }
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<&str> = outcome.console.lines().collect();
    let tail = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(miette!(
        help = format!("the console's last lines were:\n{tail}\n{}", outcome.errors),
        "demo incomplete:\n{}",
        missing.join("\n")
    ))
}

fn shortfalls(system: &System, telemetry: &Telemetry) -> Vec<String> {
    let mut missing = vec![];
    if telemetry.boot.is_none() {
        missing.push("the hypervisor sent no telemetry".to_owned());
    }
    if let Some((offset, problem)) = telemetry.problems.first() {
        missing.push(format!(
            "{} telemetry messages are damaged; byte {offset}: {problem}",
            telemetry.problems.len()
        ));
    }
    if telemetry.dropped() > 0 {
        missing.push(format!(
            "{} telemetry records were dropped",
            telemetry.dropped()
        ));
    }
    for (id, vm) in (0..).map(VmId).zip(&system.vms) {
        let end = telemetry.end_of(id);
        let may_be_stopped = system.ends_with.is_some_and(|last| last != id);
        if end != End::Off && !(end == End::Stopped && may_be_stopped) {
            missing.push(format!("VM `{}` ended unexpectedly: {end}", vm.name));
        }
        for (index, quota) in vm.quotas.iter().enumerate() {
            let seen = telemetry.quota_totals().any(|(_, total)| {
                total.vm == id && usize::from(total.quota) == index && total.totals.periods > 0
            });
            if !seen {
                missing.push(format!(
                    "the quota of vCPU {} of VM `{}` was never enforced",
                    quota.vcpu, vm.name
                ));
            }
        }
    }
    if !telemetry
        .migrations()
        .any(|(_, migration)| migration.outcome == MigrationOutcome::Moved)
    {
        missing.push("no page was migrated".to_owned());
    }
    if telemetry.hem_runs().next().is_none() {
        missing.push("no HEM record came".to_owned());
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::addr::{Ipa, PhysAddr};
    use cloison_formats::color::ColorSet;
    use cloison_formats::ids::{Core, VcpuIndex};
    use cloison_formats::telemetry::{
        BootInfo, Entry, HemRecord, MAX_HEMS, MigrationRecord, QuotaTotal, Record, Totals, VmState,
    };
    use cloison_formats::units::{Cycles, EventId, Nanos};

    /// Returns the minimal stream of a run of `configs/demo.toml`.
    fn whole_run(system: &System) -> Telemetry {
        let last = system.ends_with.expect("the demo ends with its victim");
        let mut records = vec![Record::VmState {
            vm: last,
            state: VmState::Off,
        }];
        for (id, vm) in system
            .vms
            .iter()
            .enumerate()
            .filter(|&(id, _)| id != last.index())
        {
            let id = VmId(id as u8);
            for quota in 0..vm.quotas.len() as u8 {
                records.push(Record::QuotaTotal(QuotaTotal {
                    vm: id,
                    quota,
                    totals: Totals {
                        periods: 1,
                        ..Totals::default()
                    },
                    ..QuotaTotal::default()
                }));
            }
            records.push(Record::VmState {
                vm: id,
                state: VmState::Stopped,
            });
        }
        let (ipa, from, to) = (
            Ipa(0x4000_0000),
            PhysAddr(0x4100_0000),
            PhysAddr(0x4100_c000),
        );
        let outcome = MigrationOutcome::Moved;
        records.push(Record::Migration(MigrationRecord {
            vm: last,
            ipa,
            from,
            to,
            took: Nanos(1),
            outcome,
        }));
        records.push(Record::Hem(HemRecord {
            vm: last,
            vcpu: VcpuIndex(0),
            workload: 0,
            sub_experiment: 0,
            run: 0,
            cycles: Cycles(1),
            len: 0,
            events: [EventId(0); MAX_HEMS],
            counts: [0; MAX_HEMS],
            overflowed: 0,
            by_guest: false,
        }));
        let entries = records
            .into_iter()
            .map(|record| Entry {
                core: Core(0),
                at: Nanos(1),
                record,
            })
            .collect();
        let boot = BootInfo {
            version: 1,
            system: system.name.clone(),
            board: system.board.name.clone(),
            colors: 16,
            hypervisor_colors: ColorSet(1),
            hypervisor_pages: 0,
            hypervisor_frames: vec![],
            timer_hz: 1,
        };
        Telemetry {
            boot: Some(boot),
            entries,
            ..Telemetry::default()
        }
    }

    #[test]
    fn a_run_that_lacks_anything_fails() {
        let checked = configuration::load(&installation::root().join(CONFIG), None)
            .expect("the demo's configuration is right");
        let system = &checked.system;
        let whole = whole_run(system);
        assert_eq!(shortfalls(system, &whole), Vec::<String>::new());
        for index in 0..whole.entries.len() {
            let mut run = whole.clone();
            let lost = run.entries.remove(index);
            assert!(
                !shortfalls(system, &run).is_empty(),
                "{lost:?} is not missed"
            );
        }
        let fails = |change: fn(&mut Telemetry)| {
            let mut run = whole.clone();
            change(&mut run);
            assert_eq!(shortfalls(system, &run).len(), 1);
        };
        fails(|run| run.boot = None);
        fails(|run| {
            run.problems
                .push((0, cloison_engine::telemetry::Problem::SecondBoot))
        });
        fails(|run| {
            run.entries.push(Entry {
                core: Core(0),
                at: Nanos(2),
                record: Record::Dropped { count: 1 },
            })
        });
        fails(|run| {
            let record = Record::VmState {
                vm: VmId(1),
                state: VmState::Killed,
            };
            run.entries.push(Entry {
                core: Core(1),
                at: Nanos(2),
                record,
            });
        });
    }
}
