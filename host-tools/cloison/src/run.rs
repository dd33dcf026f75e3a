//! `cloison run`: boots a system in QEMU with its consoles on this terminal, or runs one command in
//! a Linux guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::crash::Exceptions;
use crate::exit::{Failure, KILLED, NOT_RUN, TIME_IS_UP};
use anstyle::{AnsiColor, Style};
use cloison_config::events::EventNames;
use cloison_config::{Checked, ImageSource};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::consoles::{Logs, Piece, Splitter};
use cloison_engine::counting::{self, Counting};
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::kept::KeptRun;
use cloison_engine::linux::COMMAND_ENDED;
use cloison_engine::linux::shell::Shells;
use cloison_engine::model::{Conditions, Model};
use cloison_engine::progress::spinner;
use cloison_engine::qemu::{Exit, Machine};
use cloison_engine::report::Summary;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, image, installation, parts, setup};
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use miette::{IntoDiagnostic, Report, Result, WrapErr, miette};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Default time limit for a VM to boot and run its command.
const PATIENCE: Duration = Duration::from_secs(300);
/// Colors of the VMs' names, used in turn.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Green,
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightRed,
];

/// `cloison run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The system's configuration, or the directory of an experiment's run (`runs/KEY`): the very
    /// same run again
    #[arg(value_name = "CONFIG|DIR")]
    pub config: PathBuf,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Run on the board model: caches, memory and their timing are modelled, and cache events
    /// count; --model=FILE takes another model than the board's
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "icount")]
    pub model: Option<Option<PathBuf>>,
    /// One instruction takes 2^SHIFT ns of guest time, and runs repeat exactly
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "0")]
    pub icount: Option<u8>,
    /// Stop the board after this many seconds, and exit with 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write each VM's output to DIR/VM.log, and the hypervisor's to DIR/hypervisor.log
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// The Linux VM in which --exec runs
    #[arg(long, value_name = "NAME", requires = "exec")]
    pub vm: Option<String>,
    /// Run this command in a Linux VM's shell, print its output, stop the board and exit with its
    /// status; with 125 if it was not run
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,
    /// Also print QEMU's command line
    #[arg(short, long)]
    pub verbose: bool,
    /// Additional arguments for QEMU
    #[arg(last = true, value_name = "QEMU ARGUMENT")]
    pub extra: Vec<String>,
}

/// A machine with what runs on it.
struct Prepared {
    /// Configuration and board, for messages.
    title: String,
    machine: Machine,
    system: System,
    events: EventNames,
    /// Index of the VM for `--exec`.
    vm: Option<VmId>,
    /// The VMs whose configuration has a command that ends them.
    commands: Vec<VmId>,
    /// The source of each VM's image.
    images: Vec<ImageSource>,
    /// Where this run's files are written.
    directory: Claim,
    /// The telemetry that the run must send, if it repeats one.
    before: Option<Vec<u8>>,
}

/// Runs `cloison run`. Returns the exit code: of `--exec`, the command's status.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let run = if args.config.is_dir() {
        repeat(args)?
    } else {
        prepare(args)?
    };
    let machine = run.machine.args(args.extra.iter().cloned());
    if args.verbose {
        eprintln!("{}", machine.command_line());
    }
    let names: Vec<String> = run.system.vms.iter().map(|vm| vm.name.clone()).collect();
    if let (Some(command), Some(vm)) = (&args.exec, run.vm) {
        return exec(args, &machine, &names, vm, command);
    }
    eprintln!(
        "{}; Ctrl-A x quits, Ctrl-A c opens QEMU's monitor, Ctrl-T n gives the next VM the input",
        run.title
    );
    let limit = args.timeout.map(Duration::from_secs);
    let heard = Arc::new(Mutex::new(Heard::of(&run.commands)));
    let terminal = Terminal::new(&names, args.log.as_deref(), Arc::clone(&heard))?;
    let (exit, telemetry) = machine.run_on_terminal(limit, terminal.into_listener())?;
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    for line in heard.exceptions.explained(&run.images, &names) {
        eprintln!("{line}");
    }
    let log = run.directory.directory().join("telemetry.bin");
    write_atomic(&log, &telemetry)?;
    let parsed = Telemetry::parse(&telemetry);
    let summary = Summary {
        telemetry: &parsed,
        system: &run.system,
        names: &run.events,
    };
    for section in [summary.hems(), summary.migrations(), summary.quotas()]
        .iter()
        .filter(|section| !section.rows.is_empty())
    {
        println!("\n{}", section.to_text());
    }
    if counting(args) == Counting::Icount && is_overrun(&parsed) {
        println!(
            "  With --icount, QEMU delivers an overflow interrupt at the end of the core's turn, and \
             the other cores' turns delay it: the overshoot is the emulation's. See it with --model."
        );
    }
    eprintln!(
        "\n{}: {exit}; {} bytes of telemetry (`{} hem decode {}` reads them)",
        run.title,
        telemetry.len(),
        installation::program(),
        typed(&log)
    );
    if let Some(before) = run.before {
        let verdict = if before == telemetry {
            "identical to"
        } else {
            "different from"
        };
        eprintln!("the telemetry is {verdict} the kept run's");
    }
    match exit {
        Exit::Code(0) => {
            has_started(&parsed, &run.system)?;
            none_killed(&parsed, &names)?;
            heard.commands.all_succeeded(&names)?;
            Ok(ExitCode::SUCCESS)
        }
        Exit::TimedOut => Ok(ExitCode::from(TIME_IS_UP)),
        other => Err(miette!("QEMU ended, but the board did not turn itself off: {other}").into()),
    }
}

/// Returns a path as it is typed in the current directory.
fn typed(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Returns whether a core has exceeded a budget by more than an overflow interrupt lets through that
/// comes at once.
fn is_overrun(telemetry: &Telemetry) -> bool {
    const AT_ONCE: u64 = 8;
    telemetry
        .quota_totals()
        .any(|(_, total)| total.by_interrupt && total.totals.max_overshoot.0 > AT_ONCE)
}

/// Fails if the hypervisor turned the board off before a VM had started, which it does if it cannot
/// go on. A board without a second UART does not tell.
fn has_started(telemetry: &Telemetry, system: &System) -> Result<()> {
    let mut vms = (0..).map(VmId).take(system.vms.len());
    if system.board.telemetry.is_none() || vms.any(|vm| telemetry.end_of(vm) != End::NeverStarted) {
        return Ok(());
    }
    Err(miette!(
        help = "the last lines on the console say why",
        "the hypervisor turned the board off before a VM had started"
    ))
}

/// Fails with the names of the VMs that the hypervisor killed, if there are any.
fn none_killed(telemetry: &Telemetry, names: &[String]) -> Result<(), Failure> {
    let vms = (0..).map(VmId).zip(names);
    let killed: Vec<&str> = vms
        .filter(|(vm, _)| telemetry.end_of(*vm) == End::Killed)
        .map(|(_, name)| name.as_str())
        .collect();
    if killed.is_empty() {
        return Ok(());
    }
    Err(Failure {
        code: KILLED,
        error: miette!("the hypervisor killed {}", killed.join(", ")),
    })
}

/// Builds the system of a configuration.
fn prepare(args: &RunArgs) -> Result<Prepared> {
    let mut checked = configuration::load(&args.config, args.board.as_deref())?;
    counting::prepare_for(&mut checked, counting(args).machine())?;
    let vm = args
        .exec
        .as_ref()
        .map(|_| linux_vm(&checked, args.vm.as_deref()))
        .transpose()?;
    let emulation = checked.emulation()?;
    parts::prepare()?;
    setup::qemu()?;
    let model = args
        .model
        .as_ref()
        .map(|named| Model::chosen(named.as_deref(), emulation))
        .transpose()?;
    if let Some(line) = counting::warning(&checked, counting(args)) {
        eprintln!("warning: {line}");
    }
    if args.model.is_none() && has_bbprof(&checked) {
        eprintln!(
            "warning: caches have no effect here, so that a profile by bbprof is noise; add --model"
        );
    }
    let image = image::build(&checked, &[])?;
    let name = &image.system.board.name;
    let stem = args
        .config
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let directory = configuration::run_directory("run", &format!("{stem}-{name}"), &args.config)?;
    let file = directory.directory().join("Image");
    image.write(&file)?;
    let mut machine = Machine::new(emulation, &file).icount(args.icount);
    if let Some(model) = model {
        machine = model.attach(
            machine,
            Conditions::default(),
            &directory.directory().join("model.json"),
        );
    }
    let title = format!(
        "{stem} on {name}{}",
        if args.model.is_some() {
            ", modelled"
        } else {
            ""
        }
    );
    let events = EventNames::of(&checked.board.events);
    Ok(Prepared {
        title,
        machine,
        system: image.system,
        events,
        vm,
        commands: with_commands(&checked),
        images: checked.images,
        directory,
        before: None,
    })
}

/// Returns the VMs with a Linux guest that runs a command of the configuration (`exec`).
fn with_commands(checked: &Checked) -> Vec<VmId> {
    let runs_one =
        |image: &ImageSource| matches!(image, ImageSource::Linux(linux) if linux.exec.is_some());
    let vms = (0..).map(VmId).zip(&checked.images);
    vms.filter(|(_, image)| runs_one(image))
        .map(|(vm, _)| vm)
        .collect()
}

/// Returns whether a guest can profile pages.
fn has_bbprof(checked: &Checked) -> bool {
    checked
        .images
        .iter()
        .any(|image| matches!(image, ImageSource::Linux(linux) if linux.tools.contains(&"bbprof")))
}

/// What the guests' output says beside its text.
#[derive(Debug)]
struct Heard {
    commands: Told,
    exceptions: Exceptions,
}

impl Heard {
    fn of(vms: &[VmId]) -> Self {
        let (commands, exceptions) = (Told::of(vms), Exceptions::default());
        Self {
            commands,
            exceptions,
        }
    }

    fn take(&mut self, piece: Piece) {
        self.commands.take(piece);
        self.exceptions.take(piece);
    }
}

/// The statuses that commands of configurations ended with, as their guests print them.
#[derive(Debug)]
struct Told(Vec<GuestCommand>);

/// The command that a VM's guest runs.
#[derive(Debug)]
struct GuestCommand {
    vm: VmId,
    /// What the guest has printed of a line.
    line: Vec<u8>,
    /// The last status; `None` before the command has ended.
    status: Option<u8>,
}

impl Told {
    fn of(vms: &[VmId]) -> Self {
        let new = |vm: &VmId| GuestCommand {
            vm: *vm,
            line: Vec::new(),
            status: None,
        };
        Self(vms.iter().map(new).collect())
    }

    fn take(&mut self, piece: Piece) {
        /// No line with a status is longer.
        const LONGEST: usize = 64;
        let Piece::Text(Some(speaker), text) = piece else {
            return;
        };
        let Some(command) = self.0.iter_mut().find(|command| command.vm == speaker) else {
            return;
        };
        // A line end arrives with the next line, or never.
        if text == b"\n" {
            command.line.clear();
        } else if command.line.len() < LONGEST {
            command.line.extend_from_slice(text);
        }
        let said = std::str::from_utf8(&command.line).ok();
        let said = said.and_then(|line| line.strip_prefix(COMMAND_ENDED)?.parse().ok());
        command.status = said.or(command.status);
    }

    /// Fails with the commands that failed, if there are any.
    fn all_succeeded(&self, names: &[String]) -> Result<()> {
        let failed: Vec<String> = self
            .0
            .iter()
            .filter_map(|command| Some((command.vm, command.status.filter(|it| *it != 0)?)))
            .map(|(vm, status)| format!("{} with status {status}", names[vm.index()]))
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(miette!(
            "the command (`exec`) ended in {}",
            failed.join(", ")
        ))
    }
}

/// Returns what counts the events of a run with these arguments; QEMU's own arguments can select it
/// too.
fn counting(args: &RunArgs) -> Counting {
    let has = |option: &str| args.extra.iter().any(|word| word == option);
    if args.model.is_some() || has("-plugin") {
        Counting::Model
    } else if args.icount.is_some() || has("-icount") {
        Counting::Icount
    } else {
        Counting::Stock
    }
}

/// Prepares the repetition of an experiment's run from the files in its directory.
fn repeat(args: &RunArgs) -> Result<Prepared> {
    let given = [
        ("--board", args.board.is_some()),
        ("--icount", args.icount.is_some()),
        ("--model=FILE", matches!(args.model, Some(Some(_)))),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(miette!(
            help = "to change the machine, run the configuration in it: DIR/system.toml",
            "{option} cannot be given with a kept run, whose machine is the experiment's"
        ));
    }
    let kept = KeptRun::read(&args.config)?;
    let checked = configuration::load(&args.config.join("system.toml"), Some(&kept.board))?;
    let vm = args
        .exec
        .as_ref()
        .map(|_| linux_vm(&checked, args.vm.as_deref()))
        .transpose()?;
    setup::qemu()?;
    let full = args.config.canonicalize().into_diagnostic()?;
    let key = full
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let directory = configuration::run_directory("run", &format!("kept-{key}"), &args.config)?;
    let machine = kept.machine(checked.emulation()?, directory.directory())?;
    let events = EventNames::of(&checked.board.events);
    let before = std::fs::read(args.config.join("telemetry.bin")).ok();
    let title = format!("{key} on {}, modelled", checked.system.board.name);
    Ok(Prepared {
        title,
        machine,
        commands: with_commands(&checked),
        images: checked.images,
        system: checked.system,
        events,
        vm,
        directory,
        before,
    })
}

/// Returns the VM for `--exec`: the one given, or the only one with a Linux guest.
fn linux_vm(checked: &Checked, wanted: Option<&str>) -> Result<VmId> {
    let vms = || checked.system.vms.iter().zip(&checked.images).enumerate();
    // A VM that runs its configuration's command has no shell.
    let is_linux =
        |image: &ImageSource| matches!(image, ImageSource::Linux(linux) if linux.exec.is_none());
    let linux: Vec<(VmId, &str)> = vms()
        .filter(|(_, (_, image))| is_linux(image))
        .map(|(index, (vm, _))| (VmId(index as u8), vm.name.as_str()))
        .collect();
    let known = linux
        .iter()
        .map(|(_, name)| *name)
        .collect::<Vec<_>>()
        .join(", ");
    match (wanted, linux.as_slice()) {
        (_, []) => Err(miette!(
            help = "--exec needs a shell to run in",
            "no VM of this configuration has a Linux guest with a shell"
        )),
        (None, [(vm, _)]) => Ok(*vm),
        (None, _) => Err(miette!(
            help = format!("select one with --vm: {known}"),
            "more than one VM runs Linux"
        )),
        (Some(name), _) => {
            let found = linux
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(vm, _)| *vm);
            found.ok_or_else(|| {
                miette!(
                    help = format!("Linux runs in: {known}"),
                    "no Linux VM is called `{name}`"
                )
            })
        }
    }
}

/// Boots, runs one command in a VM's shell, and stops the board.
fn exec(
    args: &RunArgs,
    machine: &Machine,
    names: &[String],
    vm: VmId,
    command: &str,
) -> Result<ExitCode, Failure> {
    let limit = args.timeout.map_or(PATIENCE, Duration::from_secs);
    let until = Instant::now() + limit;
    let left = || until.saturating_duration_since(Instant::now());
    let mut session = machine.clone().limit(limit).start()?;
    let mut shells = Shells::new(names.iter().map(String::as_str));
    let spinner = spinner(&format!("{} boots", names[vm.index()]));
    let started = Instant::now();
    let mut booted = None;
    let done = shells.open(&mut session, vm, left()).and_then(|()| {
        booted = Some(started.elapsed());
        spinner.set_message(format!("{} runs the command", names[vm.index()]));
        shells.run(&mut session, vm, command, left())
    });
    spinner.finish_and_clear();
    let is_late = left().is_zero();
    if let Some(directory) = &args.log {
        let names = || names.iter().map(String::as_str);
        let (mut logs, mut splitter) = (create_logs(directory, names())?, Splitter::new(names()));
        let mut failed = Ok(());
        let mut write =
            |piece: Piece| failed = std::mem::replace(&mut failed, Ok(())).and(logs.write(piece));
        splitter.feed(session.bytes(), &mut write);
        splitter.finish(&mut write);
        failed.into_diagnostic().wrap_err("cannot write the logs")?;
    }
    let outcome = session.stop()?;
    match done {
        Ok(done) => {
            print!("{}", done.output);
            Ok(ExitCode::from(done.status))
        }
        Err(error) => Err(Failure {
            code: if is_late { TIME_IS_UP } else { NOT_RUN },
            error: explain(error, &outcome.errors, booted, limit),
        }),
    }
}

/// Adds to an error of `--exec` what QEMU itself printed, or reports how much of the time limit the
/// boot took.
fn explain(error: Report, errors: &str, booted: Option<Duration>, limit: Duration) -> Report {
    // The ZCU102's network interfaces have no peer on purpose.
    let said: Vec<&str> = errors
        .lines()
        .filter(|line| !line.ends_with("has no peer"))
        .collect();
    if !said.is_empty() {
        return error.wrap_err(format!("QEMU reported: {}", said.join("\n")));
    }
    if let Some(booted) = booted {
        eprintln!(
            "note: the time limit of {} s includes the boot, which took {:.1} s",
            limit.as_secs(),
            booted.as_secs_f64()
        );
    }
    error
}

fn create_logs<'a>(directory: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<Logs> {
    Logs::create(directory, names)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write to {}", directory.display()))
}

/// Shows the consoles with each VM's name in its own color, and writes them to log files.
struct Terminal {
    splitter: Splitter,
    names: Vec<String>,
    logs: Option<Logs>,
    heard: Arc<Mutex<Heard>>,
    colored: bool,
}

impl Terminal {
    fn new(names: &[String], log: Option<&Path>, heard: Arc<Mutex<Heard>>) -> Result<Self> {
        let each = || names.iter().map(String::as_str);
        let logs = log
            .map(|directory| create_logs(directory, each()))
            .transpose()?;
        let colored = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Ok(Self {
            splitter: Splitter::new(each()),
            names: names.to_vec(),
            logs,
            heard,
            colored,
        })
    }

    /// Returns a listener for the console's output, which is called with an empty slice at its end.
    fn into_listener(mut self) -> impl FnMut(&[u8]) + Send + 'static {
        move |bytes| {
            // A closed terminal or a full disk must not stop the board.
            let _ = self.take(bytes);
        }
    }

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.colored {
            out.write_all(bytes)?;
        }
        let mut done = Ok(());
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut on_piece = |piece: Piece| {
            heard.take(piece);
            let logged = self.logs.as_mut().map_or(Ok(()), |logs| logs.write(piece));
            let shown = if self.colored {
                show(&mut out, &self.names, piece)
            } else {
                Ok(())
            };
            done = std::mem::replace(&mut done, Ok(())).and(logged).and(shown);
        };
        if bytes.is_empty() {
            self.splitter.finish(&mut on_piece);
        } else {
            self.splitter.feed(bytes, &mut on_piece);
        }
        done?;
        out.flush()
    }
}

fn show(out: &mut impl Write, names: &[String], piece: Piece) -> std::io::Result<()> {
    match piece {
        Piece::Start(Some(vm)) => {
            let style = Style::new().fg_color(Some(COLORS[vm.index() % COLORS.len()].into()));
            write!(out, "{style}[{}]{style:#} ", names[vm.index()])
        }
        Piece::Start(None) => Ok(()),
        // The console's own line ends are shown as they arrive.
        Piece::Text(_, b"\n") => Ok(()),
        Piece::Text(_, text) => out.write_all(text),
        Piece::End => out.write_all(b"\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(told: &mut Told, vm: u8, text: &str) {
        for byte in text.bytes() {
            told.take(Piece::Text(Some(VmId(vm)), &[byte]));
        }
    }

    #[test]
    fn the_last_status_of_a_command_decides() {
        let names = ["one", "two"].map(str::to_owned);
        let mut told = Told::of(&[VmId(1)]);
        say(&mut told, 0, "cloison: the command ended with status 7");
        say(&mut told, 1, "x cloison: the command ended with status 9\n");
        assert!(
            told.all_succeeded(&names).is_ok(),
            "another VM, another line"
        );
        say(&mut told, 1, "cloison: the command ended with status 12");
        let error = told.all_succeeded(&names).unwrap_err().to_string();
        assert!(error.ends_with("two with status 12"), "{error}");
        say(&mut told, 1, "\ncloison: the command ended with status 0\n");
        assert!(told.all_succeeded(&names).is_ok(), "it ran again");
    }
}
