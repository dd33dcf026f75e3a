//! A system on its board, ready to be written.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::Interrupt;
use crate::source::Place;
use cloison_formats::color::ColorSet;
use cloison_formats::guest_map::GuestMap;
use std::path::{Path, PathBuf};

/// A system on its board, ready to be written.
#[derive(Clone, Debug)]
pub struct Adapted {
    pub name: String,
    pub board: String,
    pub hypervisor: ColorSet,
    pub pools: Vec<Pool>,
    pub vms: Vec<Vm>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub is_private: bool,
    pub colors: ColorSet,
    /// Where the source has its colors; nothing for memory that is not colored there.
    pub place: Option<Place>,
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Vm {
    pub name: String,
    /// What the source calls it.
    pub origin: String,
    pub place: Place,
    pub cores: Vec<u64>,
    pub interrupts: Vec<Interrupt>,
    /// The name of its map, and where that has what, if it is not the usual one.
    pub map: Option<(String, GuestMap)>,
    pub image: Image,
    pub regions: Vec<Region>,
    pub remarks: Vec<String>,
}

/// A region.
#[derive(Clone, Debug)]
pub struct Region {
    pub name: String,
    pub place: Place,
    pub ipa: u64,
    pub size: u64,
    /// Its size in the source, of which the board may not have all.
    pub wanted: u64,
    pub backing: RegionBacking,
    pub execute: bool,
    /// Index of the source's region, which interrupts refer to.
    pub of: usize,
}

/// What backs a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionBacking {
    /// Pages of a pool; whether Linux leaves them alone.
    Pool { pool: usize, is_reserved: bool },
    /// A device at this physical address.
    Device(u64),
}

/// A VM's image, as it is written.
#[derive(Clone, Debug)]
pub enum Image {
    /// A raw image or ELF file.
    File {
        path: PathBuf,
        load: u64,
        entry: u64,
        tree: Option<String>,
        state: State,
    },
    /// A Linux kernel.
    Kernel {
        path: PathBuf,
        initrd: Option<PathBuf>,
        cmdline: String,
        state: State,
    },
    /// Debian's kernel.
    Debian,
    /// A workload of Cloison, for an image that is not here.
    StandIn(String),
}

/// What is known of an image's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not here.
    Missing,
    /// A raw image of so many bytes.
    Raw(u64),
    /// An ELF file of so many bytes.
    Elf(u64),
}

impl Image {
    /// Returns the bytes of its files.
    pub fn bytes(&self) -> u64 {
        let of = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
        match self {
            Self::File {
                state: State::Raw(bytes) | State::Elf(bytes),
                ..
            } => *bytes,
            Self::Kernel { path, initrd, .. } => of(path) + initrd.as_deref().map_or(0, of),
            _ => 0,
        }
    }

    /// Returns whether it is Debian's kernel.
    pub const fn is_debian(&self) -> bool {
        matches!(self, Self::Debian)
    }

    /// Returns whether its guest reads a device tree.
    pub const fn has_tree(&self) -> bool {
        match self {
            Self::File { tree, .. } => tree.is_some(),
            Self::Kernel { .. } | Self::Debian => true,
            Self::StandIn(_) => false,
        }
    }
}
