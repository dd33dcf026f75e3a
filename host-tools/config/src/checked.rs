//! A validated configuration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::suggest;
use crate::emulation::Emulation;
use crate::goal::Goal;
use crate::memory;
use crate::problem::{Errors, Problem, count, display_path};
use crate::sources::ImageSource;
use crate::trust::QuotaEvents;
use crate::validation::record::Machine;
use cloison_formats::color::ColorSet;
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use miette::Diagnostic;
use std::path::PathBuf;
use thiserror::Error;

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Path of the file.
    pub path: PathBuf,
    /// Text of the file.
    pub source: String,
    /// The system. Fields that only the builder knows are still zero: the offset and length of each
    /// image, and the addresses of images that define their own.
    pub system: System,
    /// Source of each VM's image.
    pub images: Vec<ImageSource>,
    /// What each VM must reach beside its neighbors. The image knows nothing of it.
    pub goals: Vec<Option<Goal>>,
    /// The board on which it runs.
    pub board: BoardFile,
    /// The events that its quotas count. Whether they can be trusted depends on the machine that
    /// runs the system.
    pub quota_events: QuotaEvents,
    /// The warnings.
    pub warnings: Vec<Problem>,
}

/// Why a system cannot run in QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Error, Diagnostic)]
#[error("QEMU does not emulate board `{board}`")]
#[diagnostic(help(
    "its board file has no [qemu] table; `cloison image` writes what the real machine boots, and \
     `--board` names another"
))]
pub struct NotEmulated {
    /// The board's name.
    pub board: String,
}

/// The name of a VM that a configuration does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error, Diagnostic)]
#[error("{config} has no VM `{name}`")]
#[diagnostic(help("{help}"))]
pub struct UnknownVm {
    /// The configuration's file.
    pub config: String,
    /// The name.
    pub name: String,
    /// What else it may be.
    pub help: String,
}

impl Checked {
    /// Returns the VM with this name.
    pub fn vm(&self, name: &str) -> Option<VmId> {
        let found = self.system.vms.iter().position(|vm| vm.name == name);
        found.map(|vm| VmId(vm as u8))
    }

    /// Returns the VM that a user names.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownVm`] where there is none of this name.
    pub fn known_vm(&self, name: &str) -> Result<VmId, UnknownVm> {
        self.vm(name).ok_or_else(|| {
            let known = self.system.vms.iter().map(|vm| vm.name.as_str());
            UnknownVm {
                config: display_path(&self.path).display().to_string(),
                name: name.to_owned(),
                help: suggest(name, "VMs", known),
            }
        })
    }

    /// Returns how QEMU emulates the system's board.
    ///
    /// # Errors
    ///
    /// Returns [`NotEmulated`] where the board file has no `[qemu]` table.
    pub fn emulation(&self) -> Result<&Emulation, NotEmulated> {
        self.board.emulation.as_ref().ok_or_else(|| NotEmulated {
            board: self.board.board.name.clone(),
        })
    }

    /// Completes the system for one machine: returns warnings about the events of its quotas.
    ///
    /// # Errors
    ///
    /// Returns the quotas whose events cannot be trusted on that machine, with the evidence.
    pub fn on(&mut self, machine: Machine) -> Result<Vec<Problem>, Errors> {
        let problems = self.quota_events.on(machine);
        if problems.iter().any(Problem::is_error) {
            return Err(Errors::new(
                &display_path(&self.path).display().to_string(),
                problems,
            ));
        }
        self.system.trusted = self.quota_events.trusted(machine, &self.board);
        let trusted = &self.system.trusted;
        for quota in self.system.vms.iter_mut().flat_map(|vm| &mut vm.quotas) {
            for counted in [Some(&mut quota.counted), quota.also.as_mut()]
                .into_iter()
                .flatten()
            {
                counted.allowed &= !trusted.contains(&counted.event);
            }
        }
        Ok(problems)
    }

    /// Accepts the events of all quotas, trusted or not.
    pub fn allow_untrusted(&mut self) {
        self.quota_events.allow_untrusted();
        for quota in self.system.vms.iter_mut().flat_map(|vm| &mut vm.quotas) {
            quota.counted.allowed = true;
            quota
                .also
                .iter_mut()
                .for_each(|counted| counted.allowed = true);
        }
    }

    /// Summarizes the configuration in one line: board, VMs, cores, colors, memory.
    pub fn summary(&self) -> String {
        let system = &self.system;
        let cores: usize = system.vms.iter().map(|vm| vm.cores.len()).sum();
        let colors = system
            .pools
            .iter()
            .fold(system.hypervisor_colors, |all, pool| {
                ColorSet(all.0 | pool.colors.0)
            })
            .and(ColorSet::first(self.board.colors))
            .len();
        let pages: u64 = memory::demand(system)
            .iter()
            .map(memory::Demand::pages)
            .sum();
        let mut line = format!(
            "{}: {} on {}, {colors} of {} colors, {} in pools",
            system.board.name,
            count(system.vms.len(), "VM"),
            count(cores, "core"),
            self.board.colors,
            count(pages as usize, "page"),
        );
        if !self.warnings.is_empty() {
            line.push_str(&format!("; {}", count(self.warnings.len(), "warning")));
        }
        line
    }
}
