//! Code shared by the system tests: booting systems, and reading their output.
//!
//! The tests themselves are in `tests/tests/system`, one module per promise, and the systems that
//! they boot in `tests/configs`. Most runs use `-icount`, where a run repeats exactly; no test
//! depends on how long anything takes.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod jobs;
pub mod namespace;
pub mod python;
pub mod walk;

use cloison_config::guest_linux::Release;
use cloison_config::{Checked, Emulation, ImageSource};
use cloison_engine::image::{self, Flat, Image};
use cloison_engine::model::{self, Conditions, Model};
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::{configuration, installation, parts, setup};
use cloison_formats::ids::VmId;
use cloison_formats::image::{GicVersion, System};
use cloison_formats::telemetry::StackUse;
use miette::{Result, miette};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// QEMU's virtual board.
pub const VIRT: &str = "virt";
/// The same with a GICv3.
pub const VIRT_GICV3: &str = "virt-gicv3";
/// The ZCU102, as QEMU emulates it.
pub const ZCU102: &str = "zcu102";
/// The two boards on which all promises are tested. `tests/tests/system/boards.rs` has some tests
/// for every board.
pub const BOTH: [&str; 2] = [VIRT, ZCU102];

/// Time after which a board is considered hung. Far longer than any test takes.
pub const LIMIT: Duration = Duration::from_secs(400);

/// Returns the path of a test configuration.
pub fn config(name: &str) -> PathBuf {
    installation::root()
        .join("tests/configs")
        .join(name)
        .with_extension("toml")
}

/// Returns the path of a shipped configuration.
pub fn shipped(name: &str) -> PathBuf {
    installation::root()
        .join("configs")
        .join(name)
        .with_extension("toml")
}

/// Returns the paths of all shipped configurations.
pub fn all_shipped() -> Vec<PathBuf> {
    let directory = installation::root().join("configs");
    let entries = std::fs::read_dir(&directory).expect("the checkout has configurations");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory that can be read").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    found.sort();
    found
}

/// Loads and checks a configuration for a board.
pub fn load(path: &Path, board: &str) -> Result<Checked> {
    let mut checked = configuration::load(path, Some(board))?;
    let guests = GUESTS.as_ref().map_err(|error| miette!("{error}"))?;
    for image in &mut checked.images {
        if let ImageSource::Workload(name) = image {
            let built = guests.iter().find(|(built, _)| built == name);
            let (_, file) = built.ok_or_else(|| miette!("there is no workload `{name}`"))?;
            *image = ImageSource::File(file.clone());
        }
    }
    Ok(checked)
}

/// Makes all Linux guests of a configuration those of a Debian release.
pub fn with_release(mut checked: Checked, release: Release) -> Checked {
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.release = release;
        }
    }
    checked
}

/// Returns the path of the hypervisor's ELF file, built once.
pub fn hypervisor_elf() -> Result<&'static Path> {
    static ELF: LazyLock<Result<PathBuf, String>> =
        LazyLock::new(|| parts::hypervisor(&[]).map_err(|error| format!("{error:?}")));
    ELF.as_deref().map_err(|error| miette!("{error}"))
}

/// Returns the hypervisor's memory image.
pub fn hypervisor() -> Result<Flat> {
    image::flatten(hypervisor_elf()?)
}

/// Returns the program `cloison`, built once per test program, with `xtask` beside it. All default
/// members are built, as for `cargo xtask`, so that nothing is compiled again with other features.
pub fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build", "--quiet", "--locked", "--bin", "xtask", "--bin", "cloison",
        ]);
        let built = build
            .current_dir(installation::root())
            .status()
            .expect("cargo starts");
        assert!(built.success(), "the program does not build");
        installation::target_dir().join("debug/cloison")
    });
    &PROGRAM
}

static GUESTS: LazyLock<Result<Vec<(String, PathBuf)>, String>> =
    LazyLock::new(|| parts::guests().map_err(|error| format!("{error:?}")));

/// Builds the image of a configuration that [`load`] has read. The test may have changed it since.
pub fn image(checked: &Checked) -> Result<Image> {
    match checked.system.board.gic.version() {
        GicVersion::V2 => image::assemble(checked, &hypervisor()?),
        GicVersion::V3 => image::build(checked, &[]),
    }
}

/// How time passes on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// One instruction takes one nanosecond, and cores run in turn: all runs are identical.
    Counted,
    /// The board model determines how long instructions take: all runs are identical.
    Modelled,
    /// Cores run in parallel, and no two runs are identical.
    Real,
}

/// Returns a board with this image, ready to start.
pub fn machine(board: &str, file: &Path, clock: Clock) -> Result<Machine> {
    machine_of(&configuration::emulation(board)?, file, clock)
}

/// Returns a board as a configuration has it, with this image, ready to start.
pub fn machine_of(board: &Emulation, file: &Path, clock: Clock) -> Result<Machine> {
    setup::qemu()?;
    let icount = match clock {
        Clock::Counted => Some(0),
        Clock::Modelled | Clock::Real => None,
    };
    Ok(Machine::new(board, file).icount(icount).limit(LIMIT))
}

/// Boots a configuration and waits until the board turns itself off.
pub fn run(checked: &Checked, board: &str, clock: Clock) -> Result<Run> {
    assert_eq!(checked.system.board.name, board);
    let image = image(checked)?;
    let outcome = boot_on(checked.emulation()?, &image.bytes, clock)?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    })
}

/// Boots an image and waits until the board turns itself off.
pub fn boot(bytes: &[u8], board: &str, clock: Clock) -> Result<Outcome> {
    boot_on(&configuration::emulation(board)?, bytes, clock)
}

fn boot_on(board: &Emulation, bytes: &[u8], clock: Clock) -> Result<Outcome> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    std::fs::write(&file, bytes).map_err(|error| miette!("{error}"))?;
    let mut machine = machine_of(board, &file, clock)?;
    if clock == Clock::Modelled {
        let model = Model::load(model::of(machine.board())?)?;
        machine = model.attach(
            machine,
            Conditions::default(),
            &scratch.path().join("model.json"),
        );
    }
    machine.run()
}

/// A system's run from power-on to power-off.
#[derive(Debug)]
pub struct Run {
    /// The system that was booted.
    pub system: System,
    /// Console output and exit status.
    pub outcome: Outcome,
    /// The stream of the second UART.
    pub telemetry: Telemetry,
}

impl Run {
    /// Returns the run, if the board turned itself off, the stream is complete, and the hypervisor
    /// met nothing fatal.
    #[track_caller]
    pub fn whole(self) -> Self {
        assert!(self.outcome.exit.is_clean(), "{self}");
        assert_eq!(self.telemetry.problems, [], "{self}");
        assert!(self.telemetry.boot.is_some(), "no telemetry came\n{self}");
        assert!(
            self.outcome.console.contains("turning the machine off"),
            "{self}"
        );
        for word in ["exception in the hypervisor", "hypervisor panic"] {
            assert!(!self.outcome.console.contains(word), "{word}\n{self}");
        }
        let stacks: Vec<StackUse> = self.telemetry.stack_uses().collect();
        let is_measured = stacks.len() > self.system.board.cores.len();
        assert!(
            is_measured || self.system.audit,
            "no stack was measured\n{self}"
        );
        for stack in stacks {
            println!("deepest use of a stack at EL2: {stack:?}");
            assert!(
                stack.used > 0 || stack.core.is_some(),
                "a boot without a stack\n{self}"
            );
            assert!(
                stack.used <= stack.size / 2,
                "more than half of a stack at EL2 was used: {stack:?}\n{self}"
            );
        }
        self
    }

    /// Returns the id of a VM.
    #[track_caller]
    pub fn vm(&self, name: &str) -> VmId {
        let position = self.system.vms.iter().position(|vm| vm.name == name);
        position
            .map(|vm| VmId(vm as u8))
            .unwrap_or_else(|| panic!("no VM is called {name}"))
    }

    /// Returns how a VM ended.
    #[track_caller]
    pub fn end_of(&self, name: &str) -> End {
        self.telemetry.end_of(self.vm(name))
    }

    /// Returns the output of a VM: the number of each console line, and its text.
    pub fn said(&self, vm: &str) -> impl Iterator<Item = (usize, &str)> {
        let prefix = format!("[{vm}] ");
        let lines = self.outcome.console.lines().enumerate();
        lines.filter_map(move |(number, line)| Some((number, line.strip_prefix(&prefix)?)))
    }

    /// Returns the only line of a VM that starts with `start`.
    #[track_caller]
    pub fn line(&self, vm: &str, start: &str) -> &str {
        let found: Vec<&str> = self
            .said(vm)
            .map(|(_, line)| line)
            .filter(|line| line.starts_with(start))
            .collect();
        match found[..] {
            [line] => line,
            _ => panic!("{} lines of {vm} start with {start:?}\n{self}", found.len()),
        }
    }

    /// Returns the number of the only console line that contains `text`.
    #[track_caller]
    pub fn position(&self, text: &str) -> usize {
        let lines = self.outcome.console.lines().enumerate();
        let found: Vec<usize> = lines
            .filter(|(_, line)| line.contains(text))
            .map(|(number, _)| number)
            .collect();
        match found[..] {
            [number] => number,
            _ => panic!("{} lines contain {text:?}\n{self}", found.len()),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.outcome.console.lines().collect();
        let tail = lines[lines.len().saturating_sub(80)..].join("\n");
        write!(
            f,
            "{}; the console's last lines:\n{tail}\n{}",
            self.outcome.exit, self.outcome.errors
        )
    }
}

/// Returns the value of `key=…` in a line of words.
#[track_caller]
pub fn number(line: &str, key: &str) -> u64 {
    let value = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no number `{key}=` in {line:?}"))
}
