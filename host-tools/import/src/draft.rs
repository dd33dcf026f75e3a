//! What the readers make of a foreign configuration, before it meets a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::fields::Table;
use crate::source::Place;
use std::path::PathBuf;

/// Something that has no counterpart, or another meaning, in the written configuration.
#[derive(Clone, Debug)]
pub struct Note {
    /// Where the source has it.
    pub place: Place,
    /// What it is, in the source's words.
    pub subject: String,
    /// Why it is not as it was.
    pub reason: String,
    /// What a user can do.
    pub next: String,
}

/// A system as its source describes it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name, in the source's letters.
    pub name: String,
    /// Addresses of interrupt distributors, by which a board is told.
    pub distributors: Vec<u64>,
    /// The hypervisor's own colors, if the source sets them.
    pub hypervisor_colors: Option<Colors>,
    /// The VMs.
    pub vms: Vec<DraftVm>,
    /// What is not as it was.
    pub notes: Vec<Note>,
}

/// A set of colors with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colors {
    /// A bit for each color.
    pub mask: u64,
    /// Where the source sets it.
    pub place: Place,
}

/// Which cores a VM wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// These, a bit each.
    These(u64),
    /// So many, wherever they are.
    Some(u64),
    /// These, less those of the other VMs.
    Rest(u64),
    /// So many of these.
    SomeOf(u64, u64),
}

/// A VM.
#[derive(Clone, Debug)]
pub struct DraftVm {
    /// Its name, in the source's letters.
    pub name: String,
    /// Where the source describes it.
    pub place: Place,
    /// Its cores.
    pub cores: Cores,
    /// Its memory and devices.
    pub regions: Vec<DraftRegion>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Where it sees the interrupt distributor, if the source says so.
    pub distributor: Option<u64>,
    /// What runs in it.
    pub image: DraftImage,
    /// Lines that the written VM is described with.
    pub remarks: Vec<String>,
}

/// An interrupt of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number at the interrupt controller.
    pub number: u64,
    /// Where the source gives it.
    pub place: Place,
    /// The region of the device that raises it, if the source says so.
    pub region: Option<usize>,
}

/// A region of a VM.
#[derive(Clone, Debug)]
pub struct DraftRegion {
    /// Its name, if the source has one.
    pub name: Option<String>,
    /// Where the source has it.
    pub place: Place,
    /// Its address in the VM.
    pub ipa: u64,
    /// Its bytes.
    pub size: u64,
    /// What is there.
    pub backing: Backing,
    /// Whether the VM may execute code in it.
    pub execute: bool,
}

/// What a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory with these colors; with all of them if the source gives none.
    Memory {
        /// The colors.
        colors: Option<Colors>,
        /// What the source says about others that have them.
        sharing: Sharing,
    },
    /// A device's registers at this physical address.
    Device(u64),
}

/// Who may have the colors of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// As it results: they are private if nobody else has them.
    AsFound,
    /// Others may: the source has a private part beside it.
    Shared,
    /// Nobody else has them, and the guest takes the memory only where it asks for it.
    Apart,
}

/// What runs in a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftImage {
    /// A raw image or an ELF file.
    File {
        /// Its path as the source has it.
        path: PathBuf,
        /// Where it is loaded.
        load: u64,
        /// Its first instruction.
        entry: u64,
        /// The command line of a guest that gets a device tree.
        tree: Option<String>,
    },
    /// A Linux kernel.
    Kernel {
        /// Its path as the source has it.
        path: PathBuf,
        /// Its RAM disk.
        initrd: Option<PathBuf>,
        /// Its command line.
        cmdline: String,
    },
    /// The Linux system that starts the hypervisor elsewhere: here, Debian's kernel.
    Debian,
}

impl Draft {
    /// Records what is not as it was.
    pub fn note(
        &mut self,
        place: Place,
        subject: impl Into<String>,
        reason: impl Into<String>,
        next: impl Into<String>,
    ) {
        self.notes.push(Note {
            place,
            subject: subject.into(),
            reason: reason.into(),
            next: next.into(),
        });
    }

    /// Records a field that has no counterpart, for the reason in the table of fields; a field that
    /// the table does not have, as unknown. Fields with a counterpart are left to the reader.
    pub fn note_field(&mut self, table: &Table, name: &str, place: Place, subject: &str) {
        match table.row(name) {
            Some(row) if row.here.is_empty() => self.note(place, subject, row.why, row.next),
            Some(_) => {}
            None => self.note(
                place,
                subject,
                "this field is not known",
                "look up what it does, and whether docs/configuration.md has a field for it",
            ),
        }
    }
}
