//! `cloison run`: boots a system in QEMU with its consoles on this terminal, or runs one command in
//! a Linux guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::earlier::Before;
use crate::ended_run::{EndedRun, is_overrun};
use crate::exit::{Failure, NOT_RUN, TIME_IS_UP};
use crate::network::{self, Forward};
use crate::terminal::{Heard, Terminal, create_logs};
use cloison_config::checked::NotEmulated;
use cloison_config::emulation::Emulation;
use cloison_config::events::EventNames;
use cloison_config::{Checked, ImageSource};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::consoles::{Piece, Splitter};
use cloison_engine::counting::{self, Counting};
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::image::{Image, written};
use cloison_engine::kept::KeptRun;
use cloison_engine::linux::shell::Shells;
use cloison_engine::model::{Conditions, Model};
use cloison_engine::progress::spinner;
use cloison_engine::qemu::{Exit, Machine};
use cloison_engine::{configuration, image, parts, setup};
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use cloison_lab::captured::{IMAGE, TELEMETRY};
use miette::{IntoDiagnostic, Report, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Default time limit for a VM to boot and run its command.
const PATIENCE: Duration = Duration::from_secs(300);
/// `cloison run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The system's configuration; the directory of an experiment's run (`runs/KEY`): the very same
    /// run again; or a folder of `capture`: the image that the board ran, in QEMU
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
    /// Join this VM to the network of this machine, by a device that its configuration passes
    /// through to it
    #[arg(long, value_name = "VM")]
    pub net: Option<String>,
    /// With --net: what connects to port HOST here reaches port VM there; may be repeated
    #[arg(long, value_name = "HOST:VM", requires = "net", value_parser = Forward::read)]
    pub forward: Vec<Forward>,
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
    /// What an earlier run of the same image sent.
    before: Option<Before>,
}

/// Runs `cloison run`. Returns the exit code: of `--exec`, the command's status.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let run = if args.config.is_dir() {
        if args.net.is_some() {
            return Err(miette!(
                help = "give a configuration instead",
                "a run that is repeated has no network: it would not be the same"
            )
            .into());
        }
        if KeptRun::is_in(&args.config) || !args.config.join(IMAGE).is_file() {
            repeat(args)?
        } else {
            captured(args)?
        }
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
    let shown = machine.run_on_terminal(limit, terminal.into_listener())?;
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = EndedRun {
        title: &run.title,
        system: &run.system,
        events: &run.events,
        images: &run.images,
        directory: run.directory.directory(),
        telemetry: &shown.telemetry,
    };
    if !shown.uart.is_empty() {
        let file = run.directory.directory().join("uart.txt");
        write_atomic(&file, &shown.uart)?;
        eprintln!("the VM's own UART has sent {}", file.display());
    }
    let parsed = ended.report(&mut heard, &shown.exit.to_string())?;
    if counting(args) == Counting::Icount && is_overrun(&parsed) {
        println!(
            "  With --icount, QEMU delivers an overflow interrupt at the end of the core's turn, and \
             the other cores' turns delay it: the overshoot is the emulation's. See it with --model."
        );
    }
    if let Some(before) = run.before {
        before.compare(&shown.telemetry, &parsed, &names);
    }
    match shown.exit {
        Exit::Code(0) => {
            ended.judge(&parsed, &heard)?;
            Ok(ExitCode::SUCCESS)
        }
        Exit::TimedOut => Ok(ExitCode::from(TIME_IS_UP)),
        other => Err(miette!("QEMU ended, but the board did not turn itself off: {other}").into()),
    }
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
    network::check_devices(&checked, &args.extra)?;
    let emulation = checked.emulation()?;
    let network = match &args.net {
        Some(vm) => network::join(&checked, vm, &args.forward)?,
        None => Vec::new(),
    };
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
    let machine = machine(args, emulation, model, &image, directory.directory())?.args(network);
    let title = format!("{stem} on {name}{}", how(args));
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

/// Writes an image into a run's directory. Returns the machine that boots it.
fn machine(
    args: &RunArgs,
    emulation: &Emulation,
    model: Option<Model>,
    image: &Image,
    directory: &Path,
) -> Result<Machine> {
    let file = directory.join(IMAGE);
    image.write(&file)?;
    let machine = Machine::new(emulation, &file).icount(args.icount);
    let Some(model) = model else {
        return Ok(machine);
    };
    let statistics = directory.join("model.json");
    Ok(model.attach(machine, Conditions::default(), &statistics))
}

/// Returns what a title says of the machine.
fn how(args: &RunArgs) -> &'static str {
    if args.model.is_some() {
        ", modelled"
    } else {
        ""
    }
}

/// Returns the VMs with a Linux guest that runs a command of the configuration (`exec`).
pub(crate) fn with_commands(checked: &Checked) -> Vec<VmId> {
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
    let before = std::fs::read(args.config.join(TELEMETRY)).ok();
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
        before: before.map(Before::Kept),
    })
}

/// Prepares a run of the image in a folder that `cloison capture` has left.
fn captured(args: &RunArgs) -> Result<Prepared> {
    if args.exec.is_some() {
        return Err(miette!(
            help = "give the configuration instead",
            "--exec cannot be given with a captured run: an image does not say where a shell is"
        ));
    }
    let image = written::read(&args.config.join(IMAGE))?;
    let name = image.system.board.name.clone();
    if args.board.is_none() && !configuration::boards().contains(&name) {
        return Err(miette!(
            help = "give its file: --board FILE.toml",
            "the captured image is of board {name}, which is not a shipped one"
        ));
    }
    let board = configuration::board(args.board.as_deref().unwrap_or(&name))?;
    let emulation = board.emulation.ok_or_else(|| NotEmulated {
        board: name.clone(),
    })?;
    if emulation.board != name {
        return Err(miette!(
            help = format!("give the file of {name}, or no --board if it is a shipped one"),
            "the captured image is of board {name}, and not of {}",
            emulation.board
        ));
    }
    setup::qemu()?;
    let named = args.model.as_ref();
    let model = named
        .map(|named| Model::chosen(named.as_deref(), &emulation))
        .transpose()?;
    let stem = format!("captured-{}", image.system.name);
    let directory = configuration::run_directory("run", &stem, &args.config)?;
    let machine = machine(args, &emulation, model, &image, directory.directory())?;
    let before = std::fs::read(args.config.join(TELEMETRY)).unwrap_or_default();
    Ok(Prepared {
        title: format!("{} on {name}{}", image.system.name, how(args)),
        machine,
        events: EventNames::of(&board.events),
        vm: None,
        commands: (0..).map(VmId).take(image.system.vms.len()).collect(),
        images: Vec::new(),
        system: image.system,
        directory,
        before: Some(Before::OnBoard(before)),
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
