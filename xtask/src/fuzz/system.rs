//! The system that the fuzzer attacks: its image with puppets, and a run of it in QEMU with the
//! plugin.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::sources::ImageSource;
use cloison_engine::counting::{self, Counting};
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::{cargo, configuration, image, installation};
use cloison_prover::fuzz::state::{COVERAGE, EDGES, FINDING, PROGRESS, Report};
use miette::{IntoDiagnostic, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// One tick of the generic timer per instruction.
const CNTFRQ: u64 = 1_000_000_000;

/// The oracle's report, in the directory of what is found.
const DIFFERENCE: &str = "difference.json";

/// A system with puppets that is ready to boot.
pub struct System {
    machine: Machine,
    plugin: String,
    /// SHA-256 of the system image.
    pub checksum: String,
    _scratch: tempfile::TempDir,
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

impl System {
    /// Builds the system of a board with this hypervisor, an ELF file.
    ///
    /// # Errors
    ///
    /// If a part does not build, or the configuration is wrong.
    pub fn build(board: &str, elf: &Path) -> Result<Self> {
        let file = |name: &str| {
            installation::root()
                .join("tests/fuzz")
                .join(name)
                .with_extension("toml")
        };
        // What differs in its interrupt controller alone has the other one's file.
        let config = [board, board.strip_suffix("-gicv3").unwrap_or(board)]
            .map(file)
            .into_iter()
            .find(|file| file.is_file())
            .unwrap_or_else(|| file(board));
        let mut checked = configuration::load(&config, Some(board))?;
        counting::prepare_for(&mut checked, Counting::Icount.machine())?;
        let puppet = cargo::puppet()?;
        for source in &mut checked.images {
            *source = ImageSource::File(puppet.clone());
        }
        let image = image::assemble(&checked, &image::flatten(elf)?)?;
        let scratch = tempfile::tempdir().into_diagnostic()?;
        let file = scratch.path().join("Image");
        image.write(&file)?;
        let machine = Machine::new(&configuration::emulation(board)?, &file)
            .icount(Some(0))
            .cntfrq(CNTFRQ);
        let mut plugin = format!(
            "{},elf={},vms={},image={}",
            cargo::prover_plugin()?.display(),
            elf.display(),
            checked.system.vms.len(),
            file.display()
        );
        if checked.system.board.gic.gicr.is_some() {
            let redistributors = checked.system.vms[0].map.gicc.0;
            plugin.push_str(&format!(",redistributors={redistributors}"));
        }
        Ok(Self {
            machine,
            plugin,
            checksum: image.sha256(),
            _scratch: scratch,
        })
    }

    /// Boots the system again and again, since a guest may turn the machine off, until something is
    /// found or the time is over or there were enough exits. Calls `watch` now and then.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started.
    pub fn search(&self, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        forget(run.directory)?;
        let started = Instant::now();
        let mut boot = run.clone();
        loop {
            let outcome = self.boot(&boot, &watch)?;
            let done = progress(run.directory).unwrap_or_default();
            let left = run.seconds.saturating_sub(started.elapsed().as_secs());
            let is_enough = left == 0 || run.exits > 0 && done.exits >= run.exits;
            if is_enough || run.directory.join(FINDING).exists() || !outcome.exit.is_clean() {
                return Ok(outcome);
            }
            boot.seed += 1;
            boot.seconds = left;
        }
    }

    /// Boots the system once. Calls `watch` now and then until it ends.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started.
    pub fn run(&self, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        forget(run.directory)?;
        self.boot(run, watch)
    }

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
