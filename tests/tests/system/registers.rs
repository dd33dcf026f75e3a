//! The system registers that a guest reaches: all encodings, on every CPU that QEMU has, compared
//! with the list of open ones.
//!
//! The list is `tests/registers/open.txt`. A new register or CPU in a newer QEMU fails these tests
//! until the list gives the reason why a guest may have it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::qemu::Machine;
use cloison_engine::telemetry::Telemetry;
use cloison_tests::{LIMIT, Run, image, load, number};
use miette::{Result, miette};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// The CPUs for AArch64 of QEMU's `virt`, with size and ways of the last-level cache that their
/// CCSIDR_EL1 reports. That of `max` has 16 ways before QEMU 11.1, and 8 since.
const CPUS: [(&str, &str, &[u32]); 8] = [
    ("cortex-a35", "512K", &[16]),
    ("cortex-a53", "1M", &[16]),
    ("cortex-a55", "512K", &[16]),
    ("cortex-a57", "2M", &[16]),
    ("cortex-a72", "1M", &[16]),
    ("cortex-a76", "512K", &[8]),
    ("neoverse-n1", "1M", &[8]),
    ("max", "2M", &[16, 8]),
];

/// Those on which EL2 refuses to start, with what it finds. The first three have FEAT_CCIDX,
/// another format of CCSIDR_EL1, which no board file can describe; the A64FX has cache lines of 256
/// bytes.
const REFUSED: [(&str, &str); 4] = [
    (
        "cortex-a710",
        "CCSIDR_EL1 says CacheGeometry { size: 512, ways: 8, line: 64 }",
    ),
    (
        "neoverse-n2",
        "CCSIDR_EL1 says CacheGeometry { size: 512, ways: 8, line: 64 }",
    ),
    (
        "neoverse-v1",
        "CCSIDR_EL1 says CacheGeometry { size: 512, ways: 8, line: 64 }",
    ),
    (
        "a64fx",
        "CCSIDR_EL1 says CacheGeometry { size: 8388608, ways: 16, line: 256 }",
    ),
];

/// Returns the registers that the list has for a CPU, with their rights. Each group of them has a
/// reason.
fn listed(cpu: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(installation::root().join("tests/registers/open.txt"))
        .expect("the list");
    let (mut found, mut applies, mut has_reason) = (BTreeMap::new(), false, false);
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
    {
        if let Some(reason) = line.strip_prefix("# ") {
            (has_reason, applies) = (reason.len() > 20, false);
        } else if let Some(cpus) = line.strip_prefix("cpus: ") {
            applies = cpus == "all" || cpus.split(", ").any(|name| name == cpu);
        } else {
            let mut words = line.split_whitespace();
            let (name, rights) = (words.next().expect("a name"), words.next().expect("rights"));
            assert!(has_reason, "no reason for {line}");
            if applies {
                assert!(
                    found.insert(name.to_owned(), rights.to_owned()).is_none(),
                    "{line} twice for {cpu}"
                );
            }
        }
    }
    found
}

/// Boots with the first of these caches that EL2 does not refuse.
fn boot_with_one_of(cpu: &str, size: &str, ways: &[u32]) -> Result<Run> {
    let (last, others) = ways.split_last().expect("a number of ways");
    for &ways in others {
        let run = boot(cpu, size, ways)?;
        if !run.outcome.console.contains("CCSIDR_EL1 says") {
            return Ok(run);
        }
    }
    boot(cpu, size, *last)
}

/// Boots the guest that tries all encodings on a `virt` with this CPU.
fn boot(cpu: &str, size: &str, ways: u32) -> Result<Run> {
    boot_on("virt", "gic-version=2", cpu, size, ways)
}

/// The same on another board with this interrupt controller.
fn boot_on(board: &str, gic: &str, cpu: &str, size: &str, ways: u32) -> Result<Run> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = installation::root().join(format!("configs/boards/{board}.toml"));
    let board = fs::read_to_string(file)
        .expect("the board")
        .replace(&format!("name = \"{board}\""), "name = \"cpu\"")
        .replace("cores = [0, 1, 2, 3]", "cores = [0]")
        .replace(
            "size = \"1M\"\nways = 16",
            &format!("size = \"{size}\"\nways = {ways}"),
        )
        .replace("counters = 6", "counters = 4")
        .replace(
            &format!("{gic}\"\ncpu = \"cortex-a53\""),
            &format!("{gic}\"\ncpu = \"{cpu}\""),
        )
        .replace("\nmodel = ", "\n# model = ");
    let path = scratch.path().join("encodings.toml");
    fs::create_dir(scratch.path().join("boards")).expect("a directory");
    fs::write(scratch.path().join("boards/cpu.toml"), board).expect("written");
    fs::copy(
        installation::root().join("tests/registers/encodings.toml"),
        &path,
    )
    .expect("copied");
    let checked = load(&path, "cpu")?;
    let mut image = image(&checked)?;
    let file = scratch.path().join("Image");
    fs::write(&file, std::mem::take(&mut image.bytes)).expect("written");
    let emulation = checked.board.emulation.as_ref().expect("QEMU's");
    assert_eq!(emulation.cpu, cpu);
    let outcome = Machine::new(emulation, &file)
        .icount(Some(0))
        .limit(LIMIT)
        .run()?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    })
}

/// Returns the registers that a guest has found open, with their rights.
fn open(run: &Run) -> BTreeMap<String, String> {
    let lines = run
        .said("encodings")
        .filter_map(|(_, line)| line.strip_prefix("encodings: S"));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    let found: BTreeMap<_, _> = pairs
        .map(|(name, rights)| (format!("S{name}"), rights.to_owned()))
        .collect();
    assert_eq!(
        found.len() as u64,
        number(run.line("encodings", "encodings: done"), "open"),
        "{run}"
    );
    found
}

#[test]
fn a_guest_reaches_no_register_that_is_not_listed_on_any_cpu() -> Result<()> {
    let lines = |set: BTreeMap<String, String>| -> BTreeSet<String> {
        set.into_iter()
            .map(|(name, rights)| format!("{name} {rights}"))
            .collect()
    };
    for (cpu, size, ways) in CPUS {
        let run = boot_with_one_of(cpu, size, ways)?.whole();
        let (found, expected) = (lines(open(&run)), lines(listed(cpu)));
        let (new, gone) = (&found - &expected, &expected - &found);
        assert!(
            new.is_empty() && gone.is_empty(),
            "{cpu}: open and not listed: {new:?}; listed and not open: {gone:?}"
        );
    }
    Ok(())
}

#[test]
fn a_guest_reaches_the_registers_of_a_gicv3_only_where_it_has_one() -> Result<()> {
    let run = boot_on("virt-gicv3", "gic-version=3", "cortex-a53", "1M", 16)?.whole();
    let mut expected = listed("cortex-a53");
    let everywhere = listed("no CPU");
    let own = listed("gicv3").into_iter();
    expected.extend(own.filter(|(name, _)| !everywhere.contains_key(name)));
    assert_eq!(open(&run), expected);
    Ok(())
}

#[test]
fn other_cpus_are_refused_with_a_reason() -> Result<()> {
    for (cpu, why) in REFUSED {
        let run = boot(cpu, "1M", 16)?;
        assert!(run.outcome.console.contains(why), "{cpu}\n{run}");
        assert_eq!(run.said("encodings").count(), 0, "{cpu}\n{run}");
    }
    Ok(())
}

/// Returns the CPUs for AArch64 that QEMU's `virt` takes: it lists them when it is given another.
fn offered() -> BTreeSet<String> {
    let refusal = Command::new("qemu-system-aarch64")
        .args(["-M", "virt", "-cpu", "sa1100", "-display", "none"])
        .output()
        .expect("QEMU runs");
    let refusal = String::from_utf8(refusal.stderr).expect("text");
    let (_, names) = refusal
        .split_once("The valid models are: ")
        .unwrap_or_else(|| panic!("{refusal}"));
    names
        .trim()
        .split(", ")
        .filter(|name| !["cortex-a7", "cortex-a15", "host"].contains(name))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_cpu_of_qemu_with_aarch64_is_tried() {
    let tried: BTreeSet<String> = CPUS
        .map(|(cpu, ..)| cpu)
        .into_iter()
        .chain(REFUSED.map(|(cpu, _)| cpu))
        .map(str::to_owned)
        .collect();
    assert_eq!(offered(), tried);
}
