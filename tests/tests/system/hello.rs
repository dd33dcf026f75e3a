//! The hello image compares each board with its file, names planted errors, and hangs nowhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::BoardFile;
use cloison_engine::hello::correction::correction;
use cloison_engine::hello::log::{Log, LogError, read_log};
use cloison_engine::qemu::Machine;
use cloison_engine::{configuration, hello};
use cloison_formats::image::GicVersion;
use cloison_hello::TELEMETRY_LINE;
use cloison_hello::claims::Place;
use cloison_hello::line::{Line, Verdict};
use cloison_tests::{Clock, VIRT, boot};
use miette::{Context, IntoDiagnostic, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What cannot be tested on a machine that QEMU emulates.
const UNTESTED: [&str; 7] = [
    "coherency",
    "console.input",
    "firmware.eemi",
    // Of a GICv3: below.
    "gic.mediated_timer",
    "pmu.shadow",
    "pmu.splits",
    "psci",
];

/// Boots the image of a board file on the board that QEMU emulates, and returns its log.
fn log_of(file: &BoardFile, board: &str) -> Result<Log> {
    let outcome = boot(&hello::build(file, Place::Emulator)?, board, Clock::Real)?;
    assert!(outcome.exit.is_clean(), "{}", outcome.console);
    let log = read_log(&outcome.console)?;
    assert_eq!(log.losses, [], "{}", outcome.console);
    let sent = String::from_utf8_lossy(&outcome.telemetry).into_owned();
    assert_eq!(sent, TELEMETRY_LINE, "{}", outcome.console);
    Ok(log)
}

#[test]
fn each_board_is_what_its_file_says() -> Result<()> {
    for name in configuration::emulated_boards()? {
        let file = configuration::board(&name)?;
        let log = log_of(&file, &name).wrap_err_with(|| format!("on board {name}"))?;
        let wrong: Vec<_> = log.with(Verdict::Wrong).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        for line in log.with(Verdict::Untested) {
            let is_device = line.key.starts_with("device[");
            assert!(
                is_device || UNTESTED.contains(&&*line.key),
                "{name}: {line:?}"
            );
        }
        // Each part of the board was checked, and each core.
        let right: Vec<&str> = log.with(Verdict::Right).map(|line| &*line.key).collect();
        let gic: &[&str] = match file.board.gic.version() {
            GicVersion::V2 => &[
                "gic.gicd",
                "gic.gicc",
                "gic.gicc_dir",
                "gic.gich",
                "gic.gicv",
                "gic.gicv_dir",
                "gic.mediated_timer",
            ],
            GicVersion::V3 => &["gic.gicd", "gic.gicr", "gic.list_registers"],
        };
        let others = [
            "level",
            "cpu",
            "cache.size",
            "cache.ways",
            "cache.line",
            "timer.advances",
            "timer.interrupt",
            "gic.interrupts",
            "console.kind",
            "console.irq",
            "telemetry.kind",
            "telemetry.irq",
            "ram[0].start",
            "ram[0].size",
            "pmu.counters",
        ];
        for key in others.iter().chain(gic) {
            assert!(right.contains(key), "{name}: {key}: {right:?}");
        }
        // Each device has its line.
        let devices = |line: &&Line| line.key.starts_with("device[");
        let lines = log.checks.iter().filter(devices).count();
        assert_eq!(lines, file.devices.len(), "{name}");
        for core in 0..file.board.cores.len() {
            assert!(
                right.contains(&&*format!("cores[{core}]")),
                "{name}: {core}"
            );
        }
        // QEMU counts cycles, also at EL2.
        let cycles = log.checks.iter().find(|line| line.key == "event.0x11");
        let cycles = cycles.expect("the event is in the table");
        assert!(!cycles.found.contains("branches:0"), "{name}: {cycles:?}");
    }
    Ok(())
}

/// What is planted: text of the file of `virt`, what it is replaced by, the field, and the right
/// value.
const PLANTED: [[&str; 4]; 7] = [
    [
        "cores = [0, 1, 2, 3]",
        "cores = [0, 1, 2, 0x101]",
        "cores[3]",
        "0x3",
    ],
    ["ways = 16", "ways = 8", "cache.ways", "16"],
    [
        "size = \"1G\"\n\n[console]",
        "size = \"2G\"\n\n[console]",
        "ram[0].size",
        "1073741824",
    ],
    ["irq = 40", "irq = 41", "telemetry.irq", "40"],
    [
        "gich = 0x0803_0000",
        "gich = 0x0805_0000",
        "gic.gich",
        "0x8030000",
    ],
    ["irq = 23", "irq = 22", "pmu.irq", "23"],
    [
        "interrupts = 288",
        "interrupts = 192",
        "gic.interrupts",
        "288",
    ],
];

#[test]
fn planted_errors_are_named_with_the_right_values() -> Result<()> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let path = scratch.path().join("virt.toml");
    let shipped = configuration::board(VIRT)?.source;
    let mut text = shipped.replace("memory = \"1G\"", "memory = \"2G\"");
    for [right, wrong, ..] in PLANTED {
        assert_eq!(text.matches(right).count(), 1, "{right}");
        text = text.replace(right, wrong);
    }
    fs::write(&path, &text).into_diagnostic()?;
    let load = |path: &Path| configuration::board(&path.display().to_string());
    let file = load(&path)?;
    // The board has 1 GiB.
    let log = log_of(&file, VIRT)?;
    let correction = correction(&file, &log)?;
    let named: Vec<&str> = correction.problems.iter().map(|it| it.field()).collect();
    for [_, _, field, value] in PLANTED {
        assert!(named.contains(&field), "{field}: {named:?}");
        let line = log.checks.iter().find(|line| line.key == field);
        assert_eq!(line.map(|line| &*line.found), Some(value), "{field}");
    }
    assert_eq!(named.len(), PLANTED.len(), "{named:?}");
    assert_eq!((correction.others, correction.unknown), (vec![], vec![]));
    // The corrected file is the shipped one.
    fs::write(&path, &correction.text).into_diagnostic()?;
    assert_eq!(load(&path)?.board, configuration::board(VIRT)?.board);
    Ok(())
}

/// On a board, which has all its devices.
#[test]
fn a_device_where_nothing_is_is_named() -> Result<()> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let path = scratch.path().join("virt.toml");
    let text = configuration::board(VIRT)?.source;
    // Between the transports and the PCIe windows.
    let (right, wrong) = ("start = 0x0901_0000", "start = 0x0d01_0000");
    assert_eq!(text.matches(right).count(), 1);
    let text = text.replace(right, wrong) + "\n[firmware]\neemi = true\n";
    fs::write(&path, text).into_diagnostic()?;
    let file = configuration::board(&path.display().to_string())?;
    let outcome = boot(&hello::build(&file, Place::Board)?, VIRT, Clock::Real)?;
    let log = read_log(&outcome.console)?;
    assert_eq!(log.losses, [], "{}", outcome.console);
    let of = |verdict| -> Vec<&str> { log.with(verdict).map(|line| &*line.key).collect() };
    let wrong = of(Verdict::Wrong);
    assert!(wrong.contains(&"device[1].start"), "{}", outcome.console);
    assert!(wrong.contains(&"firmware.eemi"), "{}", outcome.console);
    let devices = wrong.iter().filter(|key| key.starts_with("device["));
    assert_eq!(devices.count(), 1, "{wrong:?}");
    // Its register holds the time; the second UART's would take a byte.
    assert!(of(Verdict::Right).contains(&"device[2].start"));
    assert!(of(Verdict::Untested).contains(&"device[4].start"));
    let correction = correction(&file, &log)?;
    assert_eq!(correction.unknown, ["device[1].start"]);
    assert!(correction.text.contains("eemi = false"));
    Ok(())
}

#[test]
fn a_damaged_image_and_another_exception_level_are_reported() -> Result<()> {
    let file = configuration::board(VIRT)?;
    let mut image = hello::build(&file, Place::Emulator)?;
    let length = image.len();
    image[length - 9] ^= 1;
    let outcome = boot(&image, VIRT, Clock::Real)?;
    let error = read_log(&outcome.console).expect_err("no claims");
    assert!(
        matches!(&error, LogError::Stopped { why, .. } if why.contains("damaged")),
        "{error}: {}",
        outcome.console
    );
    // Without virtualization, QEMU starts an image at EL1.
    image[length - 9] ^= 1;
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let path = scratch.path().join("Image");
    fs::write(&path, &image).into_diagnostic()?;
    let mut emulation = configuration::emulation(VIRT)?;
    emulation.machine = "virt,gic-version=2".into();
    let mut session = Machine::new(&emulation, &path).start()?;
    session.expect("needs EL2", Duration::from_secs(60))?;
    let console = session.stop()?.console;
    let error = read_log(&console).expect_err("no lines");
    assert!(
        matches!(error, LogError::WrongLevel { level: 1, .. }),
        "{console}"
    );
    Ok(())
}
