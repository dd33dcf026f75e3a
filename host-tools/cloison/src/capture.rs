//! `cloison capture`: reads a board's serial ports, and leaves what `cloison run` leaves.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ended_run::EndedRun;
use crate::exit::{Failure, TIME_IS_UP};
use crate::run::with_commands;
use crate::terminal::{Heard, Terminal};
use cloison_config::events::EventNames;
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, ImageSource};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::capture::hello;
use cloison_engine::capture::port::{Baud, Port};
use cloison_engine::capture::session::{
    CaptureEnd, CaptureError, Captured, Observer, Remark, Role, Session, Source, listen,
};
use cloison_engine::capture::stream::{Damage, Run};
use cloison_engine::counting::{self, machines};
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::hello::log::read_log;
use cloison_engine::image::{Image, written};
use cloison_engine::{configuration, image, installation};
use cloison_formats::image::System;
use cloison_hello::TELEMETRY_LINE;
use miette::{IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// `cloison capture`.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureArgs {
    /// The system's configuration, as `cloison image` got it
    #[arg(required_unless_present = "hello")]
    pub config: Option<PathBuf>,
    /// Capture the image of `cloison board hello`, and keep its log for `cloison board compare`
    #[arg(long, conflicts_with_all = ["config", "image", "machine", "allow_untrusted", "log", "verbose"])]
    pub hello: bool,
    /// The image that the board boots, if a command has made it of the configuration: one of
    /// `bbprof --images`
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// The port of the board's console: a serial port, a pseudo-terminal, `tcp:HOST:PORT` of a
    /// console server, or a file with what another program received
    #[arg(long, value_name = "PORT", required_unless_present = "telemetry")]
    pub console: Option<Port>,
    /// The port of the board's telemetry
    #[arg(long, value_name = "PORT")]
    pub telemetry: Option<Port>,
    /// Bits per second of both
    #[arg(long, value_name = "BAUD", default_value_t = 115_200, value_parser = clap::value_parser!(u32).range(1..))]
    pub baud: u32,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// The machine that boots the image, whose verdicts on events its quotas need
    #[arg(long, value_name = "MACHINE", default_value = "hardware", value_parser = machines())]
    pub machine: Machine,
    /// Take quotas on events that nobody has validated there, as `cloison image` does
    #[arg(long)]
    pub allow_untrusted: bool,
    /// End after this many seconds, and exit with 124; without it, the board's own end and Ctrl-C
    /// end it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write each VM's output to DIR/VM.log, and the hypervisor's to DIR/hypervisor.log
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// Directory for the files [default: capture/CONFIG-BOARD in target/cloison, without a checkout
    /// in cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print each record as it arrives
    #[arg(short, long)]
    pub verbose: bool,
}

/// Shows a capture on the terminal.
struct Shown {
    terminal: Terminal,
    verbose: bool,
}

impl Observer for Shown {
    fn console(&mut self, bytes: &[u8]) {
        // A closed terminal or a full disk must not stop the capture.
        let _ = self.terminal.take(bytes);
    }

    fn remark(&mut self, remark: Remark) {
        if self.verbose || !matches!(remark, Remark::Record(_)) {
            eprintln!("capture: {remark}");
        }
    }
}

/// Runs `cloison capture`.
///
/// # Errors
///
/// Returns what is wrong with the configuration, a port, or what was received.
pub fn capture(args: &CaptureArgs) -> Result<ExitCode, Failure> {
    let Some(config) = args.config.as_deref().filter(|_| !args.hello) else {
        return capture_hello(args);
    };
    let mut checked = configuration::load(config, args.board.as_deref())
        .map_err(|errors| Failure::from(miette::Report::from(errors)))?;
    if args.allow_untrusted {
        checked.allow_untrusted();
    }
    counting::prepare_for(&mut checked, args.machine)
        .map_err(|errors| Failure::from(miette::Report::from(errors)))?;
    let made = made_of(args.image.as_deref(), &checked)?;
    let expected = made
        .as_ref()
        .map_or(&checked.system, |it| &it.system)
        .clone();
    // The ports first: a board that is on already loses nothing while its image is built.
    let (sources, baud) = (sources(args), Baud(args.baud));
    let listener =
        listen(&sources, baud).map_err(|error| Failure::from(miette::Report::from(error)))?;
    let session = Session::new(&expected, &sources, baud);
    let (title, directory) = place(args, config, &checked)?;
    let image = made.map_or_else(|| image::build(&checked, &[]), Ok)?;
    image.write(&directory.directory().join("Image"))?;
    let names: Vec<String> = expected.vms.iter().map(|vm| vm.name.clone()).collect();
    let heard = Arc::new(Mutex::new(Heard::of(&with_commands(&checked))));
    let terminal = Terminal::new(&names, args.log.as_deref(), Arc::clone(&heard))?;
    let mut shown = Shown {
        terminal,
        verbose: args.verbose,
    };
    eprintln!("{title}: listening; switch the board on, Ctrl-C ends the capture");
    let captured = session.run(&listener, args.timeout.map(Duration::from_secs), &mut shown);
    // The end of the console.
    shown.console(&[]);
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    let files = Files {
        title: &title,
        directory: directory.directory(),
        system: &image.system,
        images: &checked.images,
        events: &EventNames::of(&checked.board.events),
    };
    files.keep(captured, &mut heard)
}

/// Reads the image that a command has made of a configuration.
fn made_of(file: Option<&Path>, checked: &Checked) -> Result<Option<Image>> {
    let Some(file) = file else { return Ok(None) };
    let image = written::read(file)?;
    let names =
        |system: &System| -> Vec<String> { system.vms.iter().map(|vm| vm.name.clone()).collect() };
    let (found, wanted) = (&image.system, &checked.system);
    let own = found.name.strip_prefix(&wanted.name);
    if found.board.name != wanted.board.name
        || names(found) != names(wanted)
        || !own.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    {
        return Err(miette!(
            help = "give the configuration that is in the image's folder, and its board",
            "{} is an image of {} on {}, and not of {} on {}",
            file.display(),
            found.name,
            found.board.name,
            wanted.name,
            wanted.board.name
        ));
    }
    Ok(Some(image))
}

/// Captures the hello image.
fn capture_hello(args: &CaptureArgs) -> Result<ExitCode, Failure> {
    let report = |error: CaptureError| Failure::from(miette::Report::from(error));
    let name = args.board.as_deref().map(|board| {
        let stem = Path::new(board).file_stem().unwrap_or_default();
        format!("hello-{}", stem.to_string_lossy())
    });
    let name = name.unwrap_or_else(|| "hello".to_owned());
    let directory = args.out.clone().unwrap_or_else(|| {
        let folder = installation::output_dir().join("capture");
        folder.join(&name)
    });
    let mut shown = Shown {
        terminal: Terminal::new(&[], None, Arc::new(Mutex::new(Heard::of(&[]))))?,
        verbose: false,
    };
    eprintln!("{name}: listening; switch the board on, Ctrl-C ends the capture");
    let limit = args.timeout.map(Duration::from_secs);
    let captured = hello::capture(&sources(args), Baud(args.baud), limit, &mut shown)
        .map_err(|error| report(error.into()))?;
    shown.console(&[]);
    let file = directory.join("hello.log");
    write_atomic(&file, &captured.console)?;
    let place = installation::display(&file);
    println!("{place}: {}", captured.end);
    if let Some(error) = captured.error {
        return Err(report(error));
    }
    let log =
        read_log(&String::from_utf8_lossy(&captured.console)).map_err(miette::Report::from)?;
    println!(
        "{} lines of checks of board {}",
        log.checks.len(),
        log.board
    );
    match captured.telemetry {
        Some(true) => println!("the telemetry's port sends its line"),
        Some(false) => println!(
            "the telemetry's port does not send its line: `{}`",
            TELEMETRY_LINE.trim_end()
        ),
        None => {}
    }
    println!("next: cloison board compare {place} -o NEW.toml");
    match captured.end {
        CaptureEnd::TimeIsUp => Ok(ExitCode::from(TIME_IS_UP)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the ports with what they are given for.
fn sources(args: &CaptureArgs) -> Vec<Source> {
    [
        (&args.console, Role::Console),
        (&args.telemetry, Role::Telemetry),
    ]
    .into_iter()
    .filter_map(|(port, role)| port.clone().map(|port| Source { port, role }))
    .collect()
}

/// Returns a title, and the directory for the files.
fn place(args: &CaptureArgs, config: &Path, checked: &Checked) -> Result<(String, Claim)> {
    let board = &checked.system.board.name;
    let stem = config.file_stem().unwrap_or_default().to_string_lossy();
    let directory = match &args.out {
        Some(directory) => {
            let config = installation::find(config);
            let owner = config.canonicalize().unwrap_or(config);
            Claim::wait(directory, &owner.display().to_string())?
        }
        None => configuration::run_directory("capture", &format!("{stem}-{board}"), config)?,
    };
    Ok((format!("{stem} on {board}"), directory))
}

/// What a capture becomes.
struct Files<'a> {
    title: &'a str,
    directory: &'a Path,
    system: &'a System,
    images: &'a [ImageSource],
    events: &'a EventNames,
}

impl Files<'_> {
    /// Keeps what was captured, and reports it as a run.
    fn keep(&self, captured: Captured, heard: &mut Heard) -> Result<ExitCode, Failure> {
        self.clear()?;
        if let Some(error) = captured.error {
            self.keep_as_received(&captured.received)?;
            let mut texts = captured
                .received
                .iter()
                .map(|it| String::from_utf8_lossy(it));
            if let Some(log) = texts.find_map(|text| read_log(&text).ok()) {
                return Err(miette!(
                    help = "capture it with --hello in place of the configuration",
                    "this is the log of the hello image, on board {}",
                    log.board
                )
                .into());
            }
            return Err(Failure::from(miette::Report::from(error)));
        }
        let telemetry = self.telemetry(captured.runs)?;
        let ended = EndedRun {
            title: self.title,
            system: self.system,
            events: self.events,
            images: self.images,
            directory: self.directory,
            telemetry: &telemetry,
        };
        let parsed = ended.report(heard, &captured.end.to_string())?;
        match captured.end {
            CaptureEnd::Off => {
                if telemetry.is_empty() {
                    heard.commands.all_succeeded(&ended.names())?;
                } else {
                    ended.judge(&parsed, heard)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            CaptureEnd::Interrupted | CaptureEnd::Enough => Ok(ExitCode::SUCCESS),
            CaptureEnd::TimeIsUp => Ok(ExitCode::from(TIME_IS_UP)),
            CaptureEnd::LogsEnded => Err(miette!(
                help =
                    "the run was cut off, or the capture ended too early: what there is was kept",
                "{}",
                captured.end
            )
            .into()),
        }
    }

    /// Keeps the bytes of each port, of which no run can be made.
    fn keep_as_received(&self, received: &[Vec<u8>]) -> Result<()> {
        for (number, bytes) in (1..).zip(received) {
            if bytes.is_empty() {
                continue;
            }
            let file = self.directory.join(format!("received-{number}.bin"));
            write_atomic(&file, bytes)?;
            eprintln!("capture: kept as received: {}", file.display());
        }
        Ok(())
    }

    /// Returns the telemetry of the last run, and keeps that of those before it and the list of
    /// what is damaged.
    fn telemetry(&self, mut runs: Vec<Run>) -> Result<Vec<u8>> {
        let run = runs.pop().unwrap_or_default();
        for (number, run) in (1..).zip(&runs) {
            let file = self.directory.join(format!("telemetry-{number}.bin"));
            write_atomic(&file, &run.bytes)?;
            eprintln!("capture: before the reset: {}", file.display());
        }
        if !run.damages.is_empty() {
            let file = self.directory.join("damage.csv");
            write_atomic(&file, &table(&run.damages)?)?;
            eprintln!(
                "capture: {} damaged: {}; `hem decode --lenient` reads the rest",
                run.damages.len(),
                file.display()
            );
        }
        let Some((bytes, names)) = run.complete(self.system) else {
            return Ok(run.bytes);
        };
        write_atomic(&self.directory.join("received-telemetry.bin"), &run.bytes)?;
        eprintln!(
            "capture: the announcement of {} was damaged, and is the configuration's",
            names.join(", ")
        );
        Ok(bytes)
    }

    /// Removes what an earlier capture left beside a run's files.
    fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(self.directory).into_diagnostic()? {
            let path = entry.into_diagnostic()?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_ours = name == "damage.csv"
                || name.ends_with(".bin")
                    && (name.starts_with("received-") || name.starts_with("telemetry-"));
            if is_ours {
                std::fs::remove_file(&path).into_diagnostic()?;
            }
        }
        Ok(())
    }
}

/// Returns damage as CSV.
fn table(damages: &[Damage]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record(["byte", "bytes", "problem", "after", "before"])
        .into_diagnostic()?;
    for damage in damages {
        let record = [
            damage.offset.to_string(),
            damage.len.to_string(),
            damage.problem.to_string(),
            damage.after.clone(),
            damage.before.clone(),
        ];
        writer.write_record(record).into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}
