//! `cloison board`: the first contact with a board: an image that compares it with its board file, and
//! what its log says.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boot_readme::hello_readme;
use crate::image::{names_of, write_files};
use cloison_config::validation::Manifest;
use cloison_config::{BoardFile, Errors};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::files::{self, keep_apart, write_atomic};
use cloison_engine::hello::correction::{Correction, correction};
use cloison_engine::hello::log::{Log, read_log};
use cloison_engine::hello::{self, counts};
use cloison_engine::qemu::Machine;
use cloison_engine::{configuration, installation, parts, setup, text};
use cloison_hello::claims::Place;
use cloison_hello::line::Verdict;
use cloison_lab::events::{self, RUNS, ValidateArgs};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};

/// `cloison board`.
#[derive(Clone, Debug, clap::Args)]
pub struct BoardArgs {
    #[command(subcommand)]
    command: BoardCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum BoardCommand {
    /// Write the image that a new board boots first: it checks each claim of the board file
    Hello(HelloArgs),
    /// Read the log of that image: name the wrong fields, and write the right board file
    Compare(CompareArgs),
}

/// `cloison board hello`.
#[derive(Clone, Debug, clap::Args)]
struct HelloArgs {
    /// The board file: a shipped one's name, or a path
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    board: String,
    /// Boot it in QEMU, keep the console as `hello.log`, and compare
    #[arg(long)]
    run: bool,
    /// Directory for the files [default: image/hello-BOARD in target/cloison, without a checkout
    /// in cloison-output]
    #[arg(short, long = "out", alias = "output", value_name = "DIR")]
    output: Option<PathBuf>,
}

/// `cloison board compare`.
#[derive(Clone, Debug, clap::Args)]
struct CompareArgs {
    /// The console's text, with whatever is around the image's lines
    log: PathBuf,
    /// The board file, if not the shipped one that the log names
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    board: Option<String>,
    /// Write the board file with the values that were found here
    #[arg(short, long = "out", value_name = "NEW.toml")]
    output: Option<PathBuf>,
    /// Write the events' verdicts here: those of `cloison events validate`, by what the log counts
    #[arg(long, value_name = "FILE.toml")]
    verdicts: Option<PathBuf>,
}

/// Runs `cloison board`.
///
/// # Errors
///
/// Returns the errors of the board file or the log, or what differs.
pub fn board(args: &BoardArgs) -> Result<()> {
    match &args.command {
        BoardCommand::Hello(args) => hello(args),
        BoardCommand::Compare(args) => compare(args),
    }
}

/// Writes the image, or boots it.
fn hello(args: &HelloArgs) -> Result<()> {
    let board = configuration::board(&args.board)?;
    let name = &board.board.name;
    let directory = args.output.clone().unwrap_or_else(|| {
        let folder = installation::output_dir().join("image");
        folder.join(format!("hello-{name}"))
    });
    parts::prepare()?;
    if args.run {
        return run(&board, &directory);
    }
    let image = hello::build(&board, Place::Board)?;
    let readme = hello_readme(image.len() as u64, &board);
    write_files(&image, &readme, &board, &directory)?;
    for file in names_of(&board) {
        println!("{}", installation::display(&directory.join(file)));
    }
    println!(
        "{} bytes for board {name}; README.txt says how to boot it, and what should follow",
        text::Style::of_output().show(&text::grouped(image.len() as u64)),
    );
    Ok(())
}

/// Boots the image in QEMU, and compares its log.
fn run(board: &BoardFile, directory: &Path) -> Result<()> {
    let emulation = board.emulation.as_ref().ok_or_else(|| {
        miette!(
            help = "leave --run out, and boot the image on the board",
            "board `{}` has no [qemu]",
            board.board.name
        )
    })?;
    setup::qemu()?;
    let image = directory.join("Image");
    write_atomic(&image, &hello::build(board, Place::Emulator)?)?;
    let outcome = Machine::new(emulation, &image).run()?;
    print!("{}", outcome.console);
    let log = directory.join("hello.log");
    write_atomic(&log, outcome.console.as_bytes())?;
    println!("{}: {}", installation::display(&log), outcome.exit);
    judge(board, &read_log(&outcome.console)?).map(drop)
}

/// Compares a log with its board file.
fn compare(args: &CompareArgs) -> Result<()> {
    let bytes = files::read(&args.log, files::LOG)
        .wrap_err_with(|| miette!("cannot read the log {}", args.log.display()))?;
    let log = read_log(&String::from_utf8_lossy(&bytes))?;
    let board = configuration::board(args.board.as_deref().unwrap_or(&log.board))?;
    let outputs = [&args.output, &args.verdicts];
    keep_apart(
        [args.log.as_path(), &board.path],
        outputs.into_iter().flatten().map(PathBuf::as_path),
    )?;
    let place = place(&board, &log)?;
    if let Some(path) = &args.verdicts {
        write_verdicts(&board, &log, place, path)?;
    }
    let judged = judge(&board, &log);
    if let Some(path) = &args.output {
        let correction = correction(&board, &log)?;
        write_corrected(&correction, path)?;
    }
    judged
}

/// Returns where the image booted whose log this is.
fn place(board: &BoardFile, log: &Log) -> Result<Place> {
    if log.board != board.board.name {
        return Err(miette!(
            help = format!("leave --board out, or name the file of {}", log.board),
            "the log is of board `{}`, and the board file of `{}`",
            log.board,
            board.board.name
        ));
    }
    for place in [Place::Board, Place::Emulator] {
        let (_, sum) = hello::encoded(&hello::claims(board, place)?)?;
        if sum == log.claims {
            return Ok(place);
        }
    }
    Err(miette!(
        help = "boot what `cloison board hello` writes for the file as it is now, or name the file \
                of then with --board",
        "the log is of another state of the board file {}",
        installation::display(&board.path)
    ))
}

/// Prints what a log says of its board, in numbers.
fn print_summary(log: &Log) {
    let number = |verdict| log.with(verdict).count();
    println!(
        "{} checks: {} right, {} wrong, {} untested, {} without a claim",
        log.checks.len(),
        number(Verdict::Right),
        number(Verdict::Wrong),
        number(Verdict::Untested),
        number(Verdict::Noted)
    );
    for line in log.with(Verdict::Untested) {
        println!("untested: {} ({})", line.key, line.remark);
    }
}

/// Prints what differs, which is an error.
fn judge(board: &BoardFile, log: &Log) -> Result<()> {
    print_summary(log);
    let correction = correction(board, log)?;
    for line in &correction.others {
        println!("wrong: {line}");
    }
    for loss in &log.losses {
        println!("lost: {loss}");
    }
    if !correction.problems.is_empty() {
        let file = installation::display(&board.path);
        return Err(Errors::new(&file, correction.problems).into());
    }
    if !correction.others.is_empty() {
        return Err(miette!(
            help = "the lines above say what to do; no field of the board file is wrong",
            "the board is not what Cloison needs"
        ));
    }
    if !log.losses.is_empty() {
        return Err(miette!(
            help = "boot the image again, and record the whole console",
            "the log is not whole: what is there is right"
        ));
    }
    println!("the board is what its file says");
    Ok(())
}

/// Writes the corrected board file.
fn write_corrected(correction: &Correction, path: &Path) -> Result<()> {
    write_atomic(path, correction.text.as_bytes())?;
    println!("corrected: {}", installation::display(path));
    for key in &correction.unknown {
        println!("as before, because no right value was found: {key}");
    }
    Ok(())
}

/// Judges the events by what the log counts.
fn write_verdicts(board: &BoardFile, log: &Log, place: Place, path: &Path) -> Result<()> {
    if place == Place::Emulator {
        return Err(miette!(
            help = "`cloison events validate --board NAME` counts in QEMU",
            "the log is of QEMU, and has no verdict on the board's events"
        ));
    }
    let shipped = events::shipped(&board.events.cpu);
    let manifest = Manifest::load(&shipped)?;
    let text = counts::file(board, log, |event| manifest.event(event).is_some());
    let text = text.ok_or_else(|| {
        miette!(
            help = "load the image where 4 MiB of free RAM follow it, and record all its lines",
            "the log has no counts of events"
        )
    })?;
    let scratch = files::scratch()?;
    let file = scratch.path().join("counts.toml");
    std::fs::write(&file, text).into_diagnostic()?;
    events::validate(&ValidateArgs {
        board: Some(args_name(board)),
        model: false,
        icount: false,
        on_hardware: false,
        runs: RUNS,
        counts: Some(file),
        manifest: None,
        hypotheses: None,
        no_hypotheses: false,
        out: Some(path.to_path_buf()),
        json: None,
    })
}

/// Returns the board file's path, by which `--board` finds it again.
fn args_name(board: &BoardFile) -> String {
    board.path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_hello::line::{BEGIN, END, Line};
    use std::fs;
    use tempfile::TempDir;

    /// Returns the log of a board that is what its file says, apart from one value, in which one
    /// word is replaced.
    fn log(place: Place, replaced: [&str; 2]) -> (TempDir, CompareArgs) {
        let board = configuration::board("zcu102").expect("it is shipped");
        let claims = hello::claims(&board, place).expect("a list of CPUs");
        let (_, sum) = hello::encoded(&claims).expect("they have a form");
        let lines = [
            (BEGIN, "zcu102", &*sum, Verdict::Noted),
            ("level", "2", "2", Verdict::Right),
            ("cache.ways", "16", "8", Verdict::Wrong),
            ("event.0x03", "-", "load-stream:65536", Verdict::Noted),
            (END, "4", "1", Verdict::Noted),
        ];
        let mut text = String::new();
        for (number, (key, expected, found, verdict)) in (0..).zip(lines) {
            let line = Line {
                number,
                key: key.to_owned(),
                expected: expected.replace(replaced[0], replaced[1]),
                found: found.to_owned(),
                verdict,
                remark: String::new(),
            };
            text += &format!("{line}\r\n");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("hello.log");
        fs::write(&log, text).expect("it can be written");
        let args = CompareArgs {
            log,
            board: None,
            output: Some(directory.path().join("new.toml")),
            verdicts: None,
        };
        (directory, args)
    }

    /// Returns the error of a comparison, with its advice.
    fn refused(args: &CompareArgs) -> String {
        let error = compare(args).expect_err("it is refused");
        format!(
            "{error} | {}",
            error.help().map_or_else(String::new, |it| it.to_string())
        )
    }

    #[test]
    fn what_differs_is_an_error_and_the_corrected_file_is_written() {
        let (directory, args) = log(Place::Board, ["-", "-"]);
        let error = refused(&args);
        assert!(error.contains("zcu102.toml: 1 error"), "{error}");
        let corrected = fs::read_to_string(directory.path().join("new.toml")).expect("a file");
        assert!(corrected.contains("ways = 8"), "{corrected}");
    }

    #[test]
    fn the_events_are_judged_by_what_a_board_counted() {
        let (directory, mut args) = log(Place::Board, ["-", "-"]);
        let verdicts = directory.path().join("verdicts.toml");
        args.verdicts = Some(verdicts.clone());
        compare(&args).expect_err("a field is wrong");
        let text = fs::read_to_string(verdicts).expect("verdicts");
        assert!(text.contains("machine = \"hardware\""), "{text}");
        assert!(text.contains("event = \"L1D_CACHE_REFILL\""), "{text}");
        let (_directory, mut args) = log(Place::Emulator, ["-", "-"]);
        args.verdicts = Some(directory.path().join("other.toml"));
        assert!(refused(&args).contains("the log is of QEMU"));
    }

    #[test]
    fn a_log_of_another_board_or_of_another_file_is_refused() {
        let (_directory, mut args) = log(Place::Board, ["zcu102", "virt"]);
        let error = refused(&args);
        assert!(error.contains("another state of the board file"), "{error}");
        args.board = Some("zcu102".to_owned());
        let error = refused(&args);
        assert!(error.contains("is of board `virt`"), "{error}");
        let (_directory, args) = log(Place::Board, ["zcu102", "no-such-board"]);
        let error = refused(&args);
        assert!(error.contains("no-such-board"), "{error}");
        fs::remove_file(&args.log).expect("it is there");
        assert!(refused(&args).contains("hello.log"));
    }

    #[test]
    fn a_log_that_is_cut_is_an_error_after_what_it_says() {
        let (_directory, args) = log(Place::Board, ["-", "-"]);
        let text = fs::read_to_string(&args.log).expect("a log");
        let lines: Vec<&str> = text.lines().collect();
        fs::write(&args.log, lines[..2].join("\n")).expect("it can be written");
        let error = refused(&args);
        assert!(error.contains("the log is not whole"), "{error}");
    }
}
