//! The context in which the parts of a configuration are validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::guest_linux::{Described, Shown};
use crate::shipped::Shipped;
use cloison_formats::guest_map::GuestMap;
use cloison_formats::ids::Intid;
use cloison_formats::image::{GicVersion, Pool, Region};
use std::ops::Range;
use std::path::Path;

/// The context of all VMs.
pub(crate) struct Scene<'a> {
    pub board: Option<&'a BoardFile>,
    pub pools: &'a [PoolSpec],
    /// The directory to which paths in the file are relative.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
}

impl Scene<'_> {
    /// Returns the version of the board's interrupt controller.
    pub fn gic(&self) -> GicVersion {
        self.board
            .map_or(GicVersion::V2, |file| file.board.gic.version())
    }
}

/// A pool with the positions to which later checks refer.
pub(crate) struct PoolSpec {
    pub pool: Pool,
    pub path: String,
    pub name_span: Range<usize>,
    /// The field that says what it is made of.
    pub made_of: &'static str,
    pub made_span: Range<usize>,
    /// The name of the memory besides the RAM that it is made of.
    pub memory: Option<String>,
    pub limit_span: Range<usize>,
}

/// A VM's reference to a pool, and its field.
#[derive(Clone)]
pub(crate) struct PoolUse {
    pub pool: u8,
    /// Path of the field, starting at the VM.
    pub field: String,
    pub span: Range<usize>,
}

/// The context of an image.
pub(crate) struct ImageScene<'a> {
    /// The directory to which paths in the file are relative.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
    /// Where the VM's emulated devices are.
    pub map: &'a GuestMap,
    /// Regions of the VM.
    pub regions: &'a [Region],
    /// How a Linux kernel sees each of them.
    pub shown: &'a [Shown],
    /// Whether these are all regions, without an error.
    pub complete: bool,
    /// Name of the CPU.
    pub cpu: &'a str,
    /// The interrupt of the VM's PMU, if the board's is private to each core.
    pub pmu_irq: Option<Intid>,
}

impl ImageScene<'_> {
    /// Returns the description of this guest for its device tree.
    pub fn described(&self, cmdline: String) -> Described {
        Described {
            cmdline,
            shown: self.shown.to_vec(),
            cpu: self.cpu.to_owned(),
            pmu_irq: self.pmu_irq,
            place: None,
        }
    }
}
