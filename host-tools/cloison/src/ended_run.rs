//! The end of a run, in QEMU or on a board: its files, its tables, and what went wrong in it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::exit::{Failure, KILLED};
use crate::terminal::Heard;
use cloison_config::ImageSource;
use cloison_config::events::EventNames;
use cloison_engine::files::write_atomic;
use cloison_engine::installation;
use cloison_engine::report::Summary;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use miette::{Result, miette};
use std::path::Path;

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun<'a> {
    /// Configuration and board, for messages.
    pub title: &'a str,
    /// The system that ran.
    pub system: &'a System,
    /// Names of the board's events.
    pub events: &'a EventNames,
    /// The source of each VM's image.
    pub images: &'a [ImageSource],
    /// Where its files are written.
    pub directory: &'a Path,
    /// Everything sent on the telemetry UART.
    pub telemetry: &'a [u8],
}

impl EndedRun<'_> {
    /// Writes `console.txt` and `telemetry.bin`, explains exceptions that guests reported, and
    /// prints the tables. `end` says how the run ended.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn report(&self, heard: &mut Heard, end: &str) -> Result<Telemetry> {
        for line in heard.exceptions.explained(self.images, &self.names()) {
            eprintln!("{line}");
        }
        write_atomic(&self.directory.join("console.txt"), &heard.console)?;
        let log = self.directory.join("telemetry.bin");
        write_atomic(&log, self.telemetry)?;
        let parsed = Telemetry::parse(self.telemetry);
        let summary = Summary {
            telemetry: &parsed,
            system: self.system,
            names: self.events,
        };
        let sections = [
            summary.hems(),
            summary.migrations(),
            summary.quotas(),
            summary.links(),
            summary.doorbells(),
        ];
        for section in sections.iter().filter(|section| !section.rows.is_empty()) {
            println!("\n{}", section.to_text());
        }
        eprintln!(
            "\n{}: {end}; {} bytes of telemetry (`{} hem decode {}` reads them)",
            self.title,
            self.telemetry.len(),
            installation::program(),
            typed(&log)
        );
        Ok(parsed)
    }

    /// Says whether the system that turned the board off did what its configuration says.
    ///
    /// # Errors
    ///
    /// If a VM never started, the hypervisor killed one, or a command of the configuration failed.
    pub fn judge(&self, parsed: &Telemetry, heard: &Heard) -> Result<(), Failure> {
        let names = self.names();
        // What a line has lost may be the record of a start.
        if parsed.problems.is_empty() {
            has_started(parsed, self.system)?;
        }
        none_killed(parsed, &names)?;
        heard.commands.all_succeeded(&names)?;
        Ok(())
    }

    /// Returns the names of its VMs.
    pub fn names(&self) -> Vec<String> {
        self.system.vms.iter().map(|vm| vm.name.clone()).collect()
    }
}

/// Returns a path as it is typed in the current directory.
fn typed(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Returns whether a core has exceeded a budget by more than an overflow interrupt lets through that
/// comes at once.
pub fn is_overrun(telemetry: &Telemetry) -> bool {
    const AT_ONCE: u64 = 8;
    telemetry
        .quota_totals()
        .any(|(_, total)| total.by_interrupt && total.totals.max_overshoot.0 > AT_ONCE)
}

/// Fails if the hypervisor turned the board off before a VM had started, which it does if it cannot
/// go on. A board without a second UART does not tell.
fn has_started(telemetry: &Telemetry, system: &System) -> Result<()> {
    let mut vms = (0..).map(VmId).take(system.vms.len());
    if system.board.telemetry.is_none() || vms.any(|vm| telemetry.end_of(vm) != End::NeverStarted) {
        return Ok(());
    }
    Err(miette!(
        help = "the last lines on the console say why",
        "the hypervisor turned the board off before a VM had started"
    ))
}

/// Fails with the names of the VMs that the hypervisor killed, if there are any.
fn none_killed(telemetry: &Telemetry, names: &[String]) -> Result<(), Failure> {
    let vms = (0..).map(VmId).zip(names);
    let killed: Vec<&str> = vms
        .filter(|(vm, _)| telemetry.end_of(*vm) == End::Killed)
        .map(|(_, name)| name.as_str())
        .collect();
    if killed.is_empty() {
        return Ok(());
    }
    Err(Failure {
        code: KILLED,
        error: miette!("the hypervisor killed {}", killed.join(", ")),
    })
}
