//! `cloison events`: the events that a CPU counts, the verdicts of each machine on them, and the
//! metrics computed from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::events::{Bounds, Event, EventTable, find};
use cloison_config::trust::{Evidence, Trust, Verdicts};
use cloison_config::validation::Verdict;
use cloison_config::validation::record::Machine;
use cloison_config::{BoardFile, Errors};
use cloison_engine::configuration;
use cloison_engine::counting::Counting;
use cloison_engine::report::Section;
use cloison_lab::captured::BoardRuns;
use cloison_lab::events::{self, ValidateArgs};
use miette::{Result, miette};

/// `cloison events`.
#[derive(Clone, Debug, clap::Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum EventsCommand {
    /// List the events of a CPU: number, name, what a budget of it bounds, what it counts
    List(ListArgs),
    /// Show all that is known of an event, by name or number
    Show(ShowArgs),
    /// Run benchmarks whose counts are known, and judge which events can be trusted
    Validate(ValidateCommand),
    /// List what is computed from several events of a CPU, as perf's metrics
    Metrics(Cpu),
}

/// `cloison events validate`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_group("BoardRuns", |group| group.multiple(true).conflicts_with_all(["model", "icount", "counts"])))]
struct ValidateCommand {
    #[command(flatten)]
    args: ValidateArgs,
    #[command(flatten)]
    board_runs: BoardRuns,
    /// Clock of the board's cores, for CPU_CYCLES, which has no verdict without it
    #[arg(long, value_name = "MHZ", requires = "captured", value_parser = clap::value_parser!(u64).range(100..=10_000))]
    cpu_mhz: Option<u64>,
}

#[derive(Clone, Debug, clap::Args)]
struct Cpu {
    /// The CPU: a folder of configs/events, an Arm CPU's MIDR_EL1 (0x410fd034), or a RISC-V CPU's
    /// marchid:mimpid (3:0)
    #[arg(long, value_name = "CPU", default_value = "cortex-a53")]
    cpu: String,
}

#[derive(Clone, Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    cpu: Cpu,
    /// Only events of this topic, such as cache
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct ShowArgs {
    /// The event's name, or its number (0x17)
    event: String,
    #[command(flatten)]
    cpu: Cpu,
}

/// Runs `cloison events`.
///
/// # Errors
///
/// Returns the errors of the CPU's event table, or the name that it does not have.
pub fn events(args: &EventsArgs) -> Result<()> {
    match &args.command {
        EventsCommand::List(args) => list(
            &configuration::event_table(&args.cpu.cpu)?,
            args.topic.as_deref(),
        ),
        EventsCommand::Show(args) => show(&configuration::event_table(&args.cpu.cpu)?, &args.event),
        EventsCommand::Validate(command) if command.board_runs.is_given() => {
            events::captured::validate(&command.args, &command.board_runs, command.cpu_mhz)
        }
        EventsCommand::Validate(command) => events::validate(&command.args),
        EventsCommand::Metrics(args) => {
            metrics(&configuration::event_table(&args.cpu)?);
            Ok(())
        }
    }
}

/// Returns what a budget of the event bounds, in a word.
fn bounds(event: &Event) -> &'static str {
    event.bounds.map_or("", Bounds::word)
}

fn list(table: &EventTable, topic: Option<&str>) -> Result<()> {
    let mut section = Section::new(
        &format!("Events of the {}", table.cpu),
        &["number", "name", "topic", "bounds", "counts"],
    );
    for event in table
        .events
        .iter()
        .filter(|event| topic.is_none_or(|topic| event.topic == topic))
    {
        section.row([
            event.id.to_string(),
            event.name.clone(),
            event.topic.clone(),
            bounds(event).to_owned(),
            event.meaning.clone(),
        ]);
    }
    if section.rows.is_empty() {
        let mut topics: Vec<&str> = table
            .events
            .iter()
            .map(|event| event.topic.as_str())
            .collect();
        topics.sort_unstable();
        topics.dedup();
        let help = format!("topics: {}", topics.join(", "));
        return Err(miette!(
            help = help,
            "the {} has no events of the topic `{}`",
            table.cpu,
            topic.unwrap_or_default()
        ));
    }
    print!("{}", section.to_text());
    Ok(())
}

/// Returns the shipped verdicts on an event, by machine of a board.
fn verdicts(board: &BoardFile, event: &str) -> Result<String> {
    let mut problems = vec![];
    let all = Verdicts::load(
        board,
        &[configuration::directory().join("validation/verdicts")],
        &mut problems,
    );
    if !problems.is_empty() {
        return Err(Errors::new(&board.board.name, problems).into());
    }
    let of = |machine: Machine| {
        let verdict = match all.of(machine, event) {
            Ok(Trust::Trusted) => Verdict::Trusted.to_string(),
            Ok(Trust::Corrected) => Verdict::Corrected.to_string(),
            Err(Evidence::Against { verdict, .. }) => verdict.to_string(),
            Err(Evidence::NotValidated { .. } | Evidence::NoVerdict { .. }) => return None,
        };
        Some(format!("{verdict} on {machine}"))
    };
    let found: Vec<String> = all.machines().filter_map(of).collect();
    Ok(if found.is_empty() {
        "none: a quota on it is refused".to_owned()
    } else {
        found.join(", ")
    })
}

fn show(table: &EventTable, wanted: &str) -> Result<()> {
    let event = find(table, wanted)
        .map_err(|help| miette!(help = help, "the {} has no event `{wanted}`", table.cpu))?;
    let mut section = Section::new(&format!("{} of the {}", event.name, table.cpu), &["", ""]);
    let mut row = |name: &str, value: &str| section.row([name.to_owned(), value.to_owned()]);
    row("number", &event.id.to_string());
    row("topic", &event.topic);
    row("counts", &event.meaning);
    if let Some(detail) = &event.detail {
        row("at length", detail);
    }
    row("counters", &event.counters.to_string());
    row(
        "a budget bounds",
        if bounds(event).is_empty() {
            "nothing"
        } else {
            bounds(event)
        },
    );
    let metrics: Vec<&str> = table
        .metrics
        .iter()
        .filter(|it| it.events().contains(&event.name))
        .map(|it| it.name.as_str())
        .collect();
    row(
        "metrics",
        &if metrics.is_empty() {
            "none".to_owned()
        } else {
            metrics.join(", ")
        },
    );
    for name in configuration::boards() {
        let board = configuration::board(&name)?;
        if board.events.cpu == table.cpu && board.emulation.is_some() {
            let machines = [Counting::Stock, Counting::Icount, Counting::Model];
            let counting: Vec<String> = machines
                .iter()
                .filter(|machine| machine.counts(&board, event.id))
                .map(Counting::to_string)
                .collect();
            let by = if counting.is_empty() {
                "nothing that emulates it".to_owned()
            } else {
                counting.join(", ")
            };
            row(&format!("counted on {name}"), &by);
            row(
                &format!("verdicts on {name}"),
                &verdicts(&board, &event.name)?,
            );
        }
    }
    print!("{}", section.to_text());
    Ok(())
}

fn metrics(table: &EventTable) {
    let mut section = Section::new(
        &format!("Metrics of the {}", table.cpu),
        &["name", "computed as", "meaning"],
    );
    for metric in &table.metrics {
        let unit = if metric.scale.1.is_empty() {
            String::new()
        } else {
            format!(" ({})", metric.scale.1)
        };
        section.row([
            metric.name.clone(),
            metric.expression.clone(),
            metric.meaning.clone() + &unit,
        ]);
    }
    print!("{}", section.to_text());
}
