//! The console: no guest deceives the user of another, and a dead UART is reported on the other
//! one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use cloison_config::emulation::Serial;
use cloison_engine::configuration;
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::image::System;
use cloison_formats::telemetry::Record;
use cloison_tests::{BOTH, Clock, LIMIT, Run, VIRT, ZCU102, config, image, load, number, run};
use miette::Result;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use vte::{Parser, Perform};

/// `O_NONBLOCK` of Linux on x86-64 and AArch64.
const O_NONBLOCK: i32 = 0o4000;

#[test]
fn only_the_vm_with_the_input_moves_the_terminals_cursor() -> Result<()> {
    const LINES: u64 = 20;
    for board in BOTH {
        let mut checked = load(&config("flood"), board)?;
        checked.system.ends_with = None;
        // The first VM has the input.
        checked.system.vms.remove(0);
        checked.images.remove(0);
        checked
            .system
            .vms
            .iter_mut()
            .for_each(|vm| vm.args = [LINES, 10, 0, 0]);
        let run = run(&checked, board, Clock::Counted)?.whole();
        for line in 1..=LINES {
            let raw = format!("flood {line} \x1b[6nthe quick !\x08");
            let shown = format!("flood {line} \\x1b[6nthe quick !\\x08");
            run.line("flood-1", &raw);
            run.line("flood-2", &shown);
            run.line("flood-3", &shown);
        }
    }
    Ok(())
}

/// The rows of text that a terminal shows, by the states of its parser alone.
#[derive(Default)]
struct Rows(Vec<String>);

impl Perform for Rows {
    fn print(&mut self, character: char) {
        self.0.last_mut().expect("a row").push(character);
    }

    fn execute(&mut self, byte: u8) {
        if byte == b'\n' {
            self.0.push(String::new());
        }
    }
}

/// The VM that has the input begins a title in each line, within which a terminal shows nothing.
#[test]
fn a_title_that_does_not_end_swallows_no_other_line() -> Result<()> {
    const LINES: u64 = 20;
    let mut checked = load(&config("flood"), VIRT)?;
    checked.system.ends_with = None;
    checked.system.vms.remove(0);
    checked.images.remove(0);
    checked
        .system
        .vms
        .iter_mut()
        .for_each(|vm| vm.args = [LINES, 10, 0, 0]);
    checked.system.vms[0].args[3] = 1;
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    let mut rows = Rows(vec![String::new()]);
    Parser::new().advance(&mut rows, run.outcome.console.as_bytes());
    let shown = |row: &str| rows.0.iter().filter(|shown| *shown == row).count();
    for line in 1..=LINES {
        for vm in ["flood-2", "flood-3"] {
            let row = format!("[{vm}] flood {line} \\x1b[6nthe quick !\\x08");
            assert_eq!(shown(&row), 1, "{row}\n{:#?}", rows.0);
        }
    }
    assert!(
        rows.0
            .iter()
            .any(|row| row.ends_with("all VMs are off; turning the machine off")),
        "{:#?}",
        rows.0
    );
    Ok(())
}

/// Returns how many of these messages the hypervisor has printed, and how many it says it has left
/// out.
fn told(run: &Run, message: &str) -> (usize, usize) {
    let about = run
        .outcome
        .console
        .lines()
        .filter(|line| line.starts_with("[core "));
    let left_out = about.clone().filter_map(|line| {
        line.split_once(" messages like this were left out)")?
            .0
            .rsplit_once('(')
    });
    let left_out = left_out
        .map(|(_, number)| number.parse::<usize>().expect("a number"))
        .sum();
    (
        about.filter(|line| line.contains(message)).count(),
        left_out,
    )
}

/// Returns how many seconds a run has lasted, rounded up.
fn seconds(run: &Run) -> usize {
    run.telemetry
        .entries
        .iter()
        .map(|entry| entry.at.0)
        .max()
        .expect("events")
        .div_ceil(1_000_000_000) as usize
}

/// Messages that a VM may cause at once; one more in each second.
const BURST: usize = 8;

#[test]
fn a_guest_that_has_the_hypervisor_complain_10_000_times_is_told_off_eight_times() -> Result<()> {
    const MOVES: u64 = 10_000;
    for board in BOTH {
        let mut checked = load(&config("complaints"), board)?;
        checked.system.vms[0].args = [1, 10, MOVES, 0];
        let run = run(&checked, board, Clock::Counted)?.whole();
        assert_eq!(number(run.line("flood", "flood: moves"), "full"), MOVES);
        let (told, left_out) = told(&run, "VM flood: pool full");
        assert!(
            (BURST..=BURST + seconds(&run)).contains(&told),
            "{told} messages\n{run}"
        );
        assert_eq!(told + left_out, MOVES as usize, "{run}");
        // How it ended is reported nevertheless.
        run.position("VM flood is off");
        // No more than these are between two lines of the neighbor.
        let beats: Vec<usize> = run
            .said("heart")
            .filter(|(_, line)| line.contains(" ok"))
            .map(|(line, _)| line)
            .collect();
        assert!(beats.len() >= 100, "{run}");
        assert!(
            beats.windows(2).all(|pair| pair[1] - pair[0] <= BURST + 2),
            "{beats:?}"
        );
    }
    Ok(())
}

#[test]
fn a_guest_that_restarts_200_times_is_reported_at_a_rate() -> Result<()> {
    const RESETS: u64 = 200;
    let mut checked = load(&config("restart"), VIRT)?;
    checked.system.vms[0].args[0] = RESETS;
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    assert_eq!(
        number(run.line("restart", "restart: done"), "resets"),
        RESETS
    );
    let (told, left_out) = told(&run, "VM restart restarts");
    assert!(
        (BURST..=BURST + seconds(&run)).contains(&told),
        "{told} messages\n{run}"
    );
    assert_eq!(told + left_out, RESETS as usize, "{run}");
    run.position("VM restart is off");
    Ok(())
}

/// Makes a pair of named pipes for QEMU, of which the one for output accepts nothing. The UART that
/// QEMU emulates then keeps its transmit FIFO full, as the ZCU102's does; the one of `virt` would
/// wait instead. The pipe is full as long as what is returned exists.
fn full_pipe(path: &Path) -> File {
    let [input, output] = ["in", "out"].map(|direction| path.with_extension(direction));
    assert!(
        Command::new("mkfifo")
            .args([&input, &output])
            .status()
            .expect("mkfifo runs")
            .success()
    );
    let mut pipe = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(output)
        .expect("a pipe");
    while pipe.write(&[0; 4096]).is_ok() {}
    while pipe.write(&[0]).is_ok() {}
    pipe
}

/// Boots 100 restarts beside a heart on a ZCU102 whose UARTs are `serial` and then `more`.
fn restarts_with(serial: &[Serial], more: &[&str]) -> Result<(System, Outcome)> {
    restarts_of(&load(&config("restart"), ZCU102)?, serial, more)
}

fn restarts_of(checked: &Checked, serial: &[Serial], more: &[&str]) -> Result<(System, Outcome)> {
    let mut image = image(checked)?;
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("Image");
    std::fs::write(&file, std::mem::take(&mut image.bytes)).expect("it can be written");
    let mut board = configuration::emulation(ZCU102)?;
    board.serial = serial.to_vec();
    let mut machine = Machine::new(&board, &file).icount(Some(0)).limit(LIMIT);
    for line in more {
        machine = machine.args(["-serial", line]);
    }
    Ok((image.system, machine.run()?))
}

#[test]
fn a_dead_telemetry_uart_is_reported_on_the_console_and_holds_nobody_up() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("dead");
    let _full = full_pipe(&path);
    let (system, outcome) =
        restarts_with(&[Serial::Console], &[&format!("pipe:{}", path.display())])?;
    let run = Run {
        system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    };
    assert!(run.outcome.exit.is_clean(), "{run}");
    run.position("warning: the telemetry UART accepts nothing");
    run.position("turning the machine off");
    let done = run.line("heart", "heartbeat: done");
    assert_eq!(
        (
            number(done, "beats"),
            number(done, "corrupt"),
            number(done, "late")
        ),
        (400, 0, 0),
        "{done}"
    );
    let (told, left_out) = told(&run, "VM restart restarts");
    assert_eq!(told + left_out, 100, "{run}");
    Ok(())
}

#[test]
fn a_dead_console_that_carries_the_telemetry_too_holds_nobody_up() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("dead");
    let _full = full_pipe(&path);
    let mut checked = load(&config("restart"), ZCU102)?;
    checked.system.board.telemetry = Some(checked.system.board.console);
    let pipe = format!("pipe:{}", path.display());
    let (_, outcome) = restarts_of(&checked, &[], &[&pipe])?;
    assert!(outcome.exit.is_clean(), "{}", outcome.exit);
    Ok(())
}

#[test]
fn a_dead_console_is_reported_by_telemetry_and_costs_less_than_10_ms_in_all() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a directory");
    let (path, file) = (
        scratch.path().join("dead"),
        scratch.path().join("telemetry"),
    );
    let _full = full_pipe(&path);
    let lines = [
        format!("pipe:{}", path.display()),
        format!("file:{}", file.display()),
    ];
    let (_, outcome) = restarts_with(&[], &[&lines[0], &lines[1]])?;
    assert!(outcome.exit.is_clean(), "{}", outcome.exit);
    let dead = Telemetry::parse(&std::fs::read(&file).expect("telemetry"));
    let (_, outcome) = restarts_with(&[Serial::Console, Serial::Telemetry], &[])?;
    let alive = Telemetry::parse(&outcome.telemetry);
    assert_eq!((&dead.problems[..], dead.dropped()), (&[][..], 0));
    let lost = |run: &Telemetry| {
        run.entries
            .iter()
            .filter(|entry| matches!(entry.record, Record::ConsoleLost(_)))
            .count()
    };
    assert!(lost(&dead) > 0 && lost(&alive) == 0);
    let end = |run: &Telemetry| {
        run.entries
            .iter()
            .map(|entry| entry.at.0)
            .max()
            .expect("events")
    };
    assert!(
        end(&dead) < end(&alive) + 10_000_000,
        "{} ns instead of {}",
        end(&dead),
        end(&alive)
    );
    Ok(())
}
