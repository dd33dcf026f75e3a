//! The console: no guest deceives the user of another, and a UART that is dead is reported on the other one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::emulation::Serial;
use cloison_engine::configuration;
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::image::System;
use cloison_formats::telemetry::Record;
use cloison_tests::{BOTH, Clock, LIMIT, Run, ZCU102, config, image, load, number, run};
use miette::Result;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

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

/// Makes a pair of named pipes for QEMU, of which the one for output accepts nothing. The UART that QEMU emulates then keeps
/// its transmit FIFO full, as the ZCU102's does; the one of `virt` would wait instead. The pipe is full as long as what is
/// returned exists.
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
    let mut image = image(&load(&config("restart"), ZCU102)?)?;
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
    assert_eq!(
        run.outcome.console.matches("VM restart restarts").count(),
        100,
        "{run}"
    );
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
