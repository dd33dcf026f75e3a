//! Boots a system on the board model while the plugin charges each event to its code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::costs::{Part, Table, add};
use cloison_board_model::profile::{EVENTS, Recorded, Values};
use cloison_config::Emulation;
use cloison_engine::files;
use cloison_engine::image::Image;
use cloison_engine::model::{Conditions, Model};
use cloison_engine::qemu::{Exit, Machine};
use cloison_engine::telemetry::Telemetry;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::time::Duration;

/// Which VMs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Neighbors {
    /// The VM alone: the others turn themselves off at their first instruction.
    Alone,
    /// All VMs.
    Beside,
}

impl Neighbors {
    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Beside => "beside",
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Run {
    /// The profile.
    pub recorded: Recorded,
    /// The hypervisor's log.
    pub telemetry: Telemetry,
    /// The log as the hypervisor has sent it.
    pub log: Vec<u8>,
    /// The console's output.
    pub console: String,
}

/// The profile of a run.
pub struct Profiled {
    /// Which VMs ran.
    pub neighbors: Neighbors,
    /// The run.
    pub run: Run,
    /// The events by part of the run; a part in which nothing happened is left out.
    pub tables: Vec<(Part, Table)>,
}

impl Profiled {
    /// Returns a part's events.
    pub fn part(&self, part: Part) -> Option<&Table> {
        let found = self.tables.iter().find(|(known, _)| *known == part);
        found.map(|(_, table)| table)
    }
}

/// Boots an image, which ends with the VM, and returns its profile.
///
/// # Errors
///
/// If the board does not turn itself off in time, or the profile has other totals than the model.
pub fn boot(
    emulation: &Emulation,
    image: &Image,
    model: &Model,
    conditions: Conditions,
    limit: Duration,
) -> Result<Run> {
    let scratch = files::scratch()?;
    let at = |name: &str| scratch.path().join(name);
    let (file, profile) = (at("Image"), at("profile.json"));
    image.write(&file)?;
    let machine = Machine::new(emulation, &file).limit(limit);
    let machine = model.attach_profiler(machine, conditions, &at("model.json"), &profile);
    let outcome = machine.run()?;
    if !outcome.exit.is_clean() {
        let lines: Vec<&str> = outcome.console.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        let advice = match outcome.exit {
            Exit::TimedOut => {
                "the profile ends when the VM turns itself off: give it more time with --timeout, \
                 or a guest that ends.\n"
            }
            _ => "",
        };
        return Err(miette!(
            help = format!(
                "{advice}The console's last lines were:\n{tail}\n{}",
                outcome.errors
            ),
            "the board did not turn itself off: {}",
            outcome.exit
        ));
    }
    let bytes = std::fs::read(&profile)
        .into_diagnostic()
        .wrap_err("the model left no profile")?;
    let recorded: Recorded = serde_json::from_slice(&bytes)
        .into_diagnostic()
        .wrap_err("the model's profile cannot be read")?;
    check(&recorded)?;
    Ok(Run {
        recorded,
        telemetry: Telemetry::parse(&outcome.telemetry),
        log: outcome.telemetry,
        console: outcome.console,
    })
}

/// Compares what was charged with what the model has counted, core by core: at all levels, and at
/// EL1 and EL0.
fn check(recorded: &Recorded) -> Result<()> {
    for (number, core) in recorded.counts.cores.iter().enumerate() {
        for (counted, highest) in [(&core.events, 3), (&core.guest_events, 1)] {
            let mut charged = Values::default();
            for place in &recorded.places {
                if place.core == number && place.level <= highest {
                    add(&mut charged, &place.values);
                }
            }
            let counted = EVENTS.map(|event| counted.get(event.name()).copied().unwrap_or(0));
            if charged != counted {
                return Err(miette!(
                    help = "this is an error of the board model's",
                    "core {number}, up to EL{highest}: {charged:?} was charged to code, and \
                     {counted:?} was counted"
                ));
            }
        }
    }
    Ok(())
}
