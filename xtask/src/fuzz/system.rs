//! The systems that the fuzzer attacks: their images with puppets, and runs of them in QEMU with the
//! plugin.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::emulation::Serial;
use cloison_config::sources::ImageSource;
use cloison_engine::counting::{self, Counting};
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::{cargo, configuration, image, installation};
use cloison_prover::fuzz::state::{COVERAGE, EDGES, FINDING, PROGRESS, Report, SYSTEM};
use miette::{IntoDiagnostic, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One tick of the generic timer per instruction.
const CNTFRQ: u64 = 1_000_000_000;

/// The oracle's report, in the directory of what is found.
const DIFFERENCE: &str = "difference.json";

/// Guest exits of a boot in the first round: the systems of a board have turns. Not seconds, so that
/// a search with the same seed does the same again.
const TURN: u64 = 50_000;
/// Rounds in which turns become twice as long each: about a minute in the end.
const LONGER: u32 = 5;

/// The systems of a board, with puppets, that are ready to boot.
pub struct Systems {
    all: Vec<System>,
    _scratch: tempfile::TempDir,
}

/// One of them.
struct System {
    name: String,
    machine: Machine,
    plugin: String,
    /// SHA-256 of the system image.
    checksum: String,
}

/// What a run of the plugin does.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Directory of the corpus and of what is found.
    pub directory: &'a Path,
    /// Seed of the programs and of the cores' turns.
    pub seed: u64,
    /// Guest exits after which it ends; 0 if none.
    pub exits: u64,
    /// Seconds after which it ends.
    pub seconds: u64,
    /// Inputs to give instead of generated ones.
    pub replay: Option<&'a Path>,
}

impl Systems {
    /// Builds the systems of a board with this hypervisor, an ELF file.
    ///
    /// # Errors
    ///
    /// If a part does not build, or a configuration is wrong.
    pub fn build(board: &str, elf: &Path) -> Result<Self> {
        let scratch = tempfile::tempdir().into_diagnostic()?;
        let puppet = cargo::puppet()?;
        let plugin = cargo::prover_plugin()?;
        let build = |config: &Path| -> Result<System> {
            let mut checked = configuration::load(config, Some(board))?;
            counting::prepare_for(&mut checked, Counting::Icount.machine())?;
            for source in &mut checked.images {
                *source = ImageSource::File(puppet.clone());
            }
            let image = image::assemble(&checked, &image::flatten(elf)?)?;
            let name = checked.system.name.clone();
            // Nobody reads it, and each byte is a call of the host's.
            let mut board = checked.emulation()?.clone();
            board.serial = board.serial.into_iter().map(unread).collect();
            let file = scratch.path().join(&name);
            image.write(&file)?;
            Ok(System {
                machine: Machine::new(&board, &file).icount(Some(0)).cntfrq(CNTFRQ),
                plugin: format!(
                    "{},elf={},image={}",
                    plugin.display(),
                    elf.display(),
                    file.display()
                ),
                checksum: image.sha256(),
                name,
            })
        };
        let all: Result<Vec<_>> = configurations(board)
            .iter()
            .map(|config| build(config))
            .collect();
        Ok(Self {
            all: all?,
            _scratch: scratch,
        })
    }

    /// Returns the system that a finding names, or the first one.
    fn found(&self, finding: &Path) -> &System {
        let text = std::fs::read_to_string(finding).unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix(SYSTEM));
        let named = self.all.iter().find(|one| Some(one.name.as_str()) == name);
        named.unwrap_or(&self.all[0])
    }

    /// Returns the SHA-256 of the image of the system that a finding names.
    pub fn checksum(&self, finding: &Path) -> &str {
        &self.found(finding).checksum
    }

    /// Boots the systems again and again, by turns, until something is found or the time is over or
    /// there were enough exits. A guest may turn the machine off, which ends its turn. Calls `watch` now and then.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started.
    pub fn search(&self, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        forget(run.directory)?;
        let started = Instant::now();
        let mut boot = run.clone();
        let mut done = 0;
        // The first system has most of what there is, and two turns of a round.
        let round = self.all.iter().take(1).chain(&self.all);
        let turns = round.clone().count() as u32;
        for (number, system) in (0..).zip(round.cycle()) {
            let turn = done + (TURN << (number / turns).min(LONGER));
            boot.exits = match run.exits {
                0 => turn,
                exits => turn.min(exits),
            };
            let left = run.seconds.saturating_sub(started.elapsed().as_secs());
            // 0 would be no limit.
            boot.seconds = left.max(1);
            let outcome = system.boot(&boot, &watch)?;
            done = progress(run.directory).unwrap_or_default().exits;
            let is_over = started.elapsed().as_secs() >= run.seconds;
            let is_enough = is_over || run.exits > 0 && done >= run.exits;
            if is_enough || run.directory.join(FINDING).exists() || !outcome.exit.is_clean() {
                return Ok(outcome);
            }
            boot.seed += 1;
        }
        unreachable!("a board has a system")
    }

    /// Boots the system that a finding names once. Calls `watch` now and then until it ends.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started.
    pub fn run(&self, finding: &Path, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        forget(run.directory)?;
        self.found(finding).boot(run, watch)
    }
}

impl System {
    fn boot(&self, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        let mut plugin = format!(
            "{},oracle={},fuzz={},seed={},exits={},seconds={}",
            self.plugin,
            run.directory.join(DIFFERENCE).display(),
            run.directory.display(),
            run.seed,
            run.exits,
            run.seconds
        );
        if let Some(file) = run.replay {
            plugin.push_str(&format!(",replay={}", file.display()));
        }
        let machine = self
            .machine
            .clone()
            .limit(Duration::from_secs(run.seconds + 60))
            .arg("-plugin")
            .arg(plugin);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| machine.run());
            while !running.is_finished() {
                watch();
                std::thread::sleep(Duration::from_millis(200));
            }
            match running.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Returns a line of the board without its telemetry.
fn unread(line: Serial) -> Serial {
    match line {
        Serial::Telemetry => Serial::Unused,
        other => other,
    }
}

/// Returns the files of a board's systems, the first one's first.
fn configurations(board: &str) -> Vec<PathBuf> {
    let directory = installation::root().join("tests/fuzz");
    // What differs in its interrupt controller alone has the other one's first file.
    let names = [board, board.strip_suffix("-gicv3").unwrap_or(board)];
    let first = names
        .into_iter()
        .find(|name| directory.join(name).with_extension("toml").is_file())
        .unwrap_or(board);
    let more = directory.join(format!("{board}-more.toml"));
    let first = directory.join(first).with_extension("toml");
    let more = more.is_file().then_some(more);
    [first].into_iter().chain(more).collect()
}

/// Removes what is of former searches, except the corpus.
fn forget(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).into_diagnostic()?;
    for name in [FINDING, PROGRESS, COVERAGE, EDGES] {
        // It may not be there.
        let _ = std::fs::remove_file(directory.join(name));
    }
    Ok(())
}

/// Returns the progress that the plugin wrote last.
pub fn progress(directory: &Path) -> Option<Report> {
    let text = std::fs::read_to_string(directory.join(PROGRESS)).ok()?;
    serde_json::from_str(&text).ok()
}
