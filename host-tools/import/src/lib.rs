//! Reads the configurations of other partitioning hypervisors, and writes Cloison's.
//!
//! [`import`] reads one system: a file, or several that belong together. What a file is, its
//! contents tell ([`Foreign`]). What has no counterpart is in a list with its place and the reason.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`source`] | the files, and places in them |
//! | [`fields`] | the fields of the others, with their counterparts and reasons |
//! | [`c`] | C: the preprocessor, initializers, constant expressions |
//! | `compiled`, `tree` | device trees |
//! | `bao`, `jailhouse`, `xen`, `image_builder`, `hvisor` | the readers; `xen_domain` is of two |
//! | `draft` | what the readers make |
//! | `request`, `system` | what the user wants, and what is written |
//! | `adapt`, `cores`, `images`, `names` | fit this to a board |
//! | `check` | removes what `cloison check` refuses, with its reason |
//! | [`list`], `write` | the list, and the configuration |
//!
//! No other project's code is needed or included: of headers that are not there, this crate knows
//! the names of constants that the fields use.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod adapt;
mod bao;
pub mod c;
mod check;
mod compiled;
mod cores;
mod draft;
pub mod fields;
mod hvisor;
mod image_builder;
mod images;
mod jailhouse;
pub mod list;
mod names;
mod request;
pub mod source;
mod system;
mod tree;
mod write;
mod xen;
mod xen_domain;

pub use request::{Options, Target};

use cloison_config::problem::{Problem, SourceFile};
use cloison_config::{Checked, Errors, Foreign};
use draft::Draft;
use list::Entry;
use source::{Failure, Sources};
use std::path::{Path, PathBuf};

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    /// What the files are, in the order in which they were named.
    pub kinds: Vec<Foreign>,
    /// The configuration.
    pub text: String,
    /// What is not as it was.
    pub list: Vec<Entry>,
    /// How many things were taken over: VMs, cores, regions, interrupts, sets of colors.
    pub taken: usize,
    /// The colors of the pools and of the hypervisor, as written.
    pub colors: Vec<u64>,
    /// What `check` says of the configuration.
    pub checked: Result<Checked, Errors>,
}

/// Reads files that describe one system, and writes it for a board.
///
/// # Errors
///
/// Returns the first mistake that leaves no system.
pub fn import(
    paths: &[PathBuf],
    options: &Options,
    target: &Target<'_>,
) -> Result<Imported, Errors> {
    let mut sources = Sources::default();
    read(paths, options, target, &mut sources).map_err(|failure| source::errors(*failure))
}

fn read(
    paths: &[PathBuf],
    options: &Options,
    target: &Target<'_>,
    sources: &mut Sources,
) -> Result<Imported, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.push(sources.open(path)?);
    }
    let mut draft = draft(&files, options, sources)?;
    if draft.vms.is_empty() {
        let place = source::Place {
            file: files.first().map_or(0, |(file, _)| *file),
            ..source::Place::default()
        };
        return Err(sources
            .error(place, "system", "it describes no VM")
            .help("import the file that does, together with this one")
            .into());
    }
    let board = match &options.board {
        Some(name) => target
            .boards
            .iter()
            .find(|board| board.board.name == *name || board.path == Path::new(name)),
        None => adapt::choose(&mut draft, target.boards, target.default),
    };
    let Some(board) = board else {
        let file = SourceFile::new(Path::new("boards"), String::new());
        let message = format!(
            "there is no board `{}`",
            options.board.as_deref().unwrap_or(target.default)
        );
        let names = target.boards.iter().map(|board| board.board.name.as_str());
        let help = cloison_config::suggest(
            options.board.as_deref().unwrap_or_default(),
            "boards",
            names,
        );
        return Err(Box::new(
            Problem::error(&file, "board", 0..0, message).help(help),
        ));
    };
    let mut adapted = adapt::adapt(&mut draft, board, sources, options, target.maps);
    let names: Vec<String> = files
        .iter()
        .map(|(file, kind)| {
            let path = sources.path(*file).file_name().unwrap_or_default();
            format!("{}, {}", path.to_string_lossy(), kind.name())
        })
        .collect();
    let from = names.join("; ");
    let checked = check::settle(&mut draft, &mut adapted, sources, &from, board, target);
    let list = list::entries(&draft.notes, sources);
    if adapted.vms.is_empty() {
        let reasons: Vec<String> = list
            .iter()
            .filter(|entry| entry.subject.starts_with("VM "))
            .map(|entry| format!("{}: {}", entry.subject, entry.reason))
            .collect();
        let message = format!("no VM of it can be a VM of Cloison: {}", reasons.join("; "));
        let place = draft
            .notes
            .iter()
            .find(|note| note.subject.starts_with("VM "));
        let place = place.map(|note| note.place).unwrap_or_default();
        return Err(sources
            .error(place, "system", message)
            .help("a VM has application cores and memory")
            .into());
    }
    let taken = adapted
        .vms
        .iter()
        .map(|vm| 2 + vm.cores.len() + vm.regions.len() + vm.interrupts.len())
        .sum::<usize>()
        + adapted
            .pools
            .iter()
            .filter(|pool| pool.place.is_some())
            .count();
    Ok(Imported {
        kinds: files.iter().map(|(_, kind)| *kind).collect(),
        text: write::configuration(&adapted, sources, &from, &list),
        list,
        taken,
        colors: adapted
            .pools
            .iter()
            .map(|pool| pool.colors.0)
            .chain([adapted.hypervisor.0])
            .collect(),
        checked,
    })
}

/// Reads the files with the reader of their kind.
fn draft(
    files: &[(u16, Foreign)],
    options: &Options,
    sources: &mut Sources,
) -> Result<Draft, Failure> {
    let Some((first, kind)) = files.first().copied() else {
        return Ok(Draft::default());
    };
    let several = |sources: &Sources, what: &str| -> Failure {
        let second = files.get(1).map_or(first, |(file, _)| *file);
        let place = source::Place {
            file: second,
            ..source::Place::default()
        };
        sources
            .error(place, "system", format!("a system of {what} is one file"))
            .help("import each one alone")
            .into()
    };
    if let Some((file, other)) = files
        .iter()
        .find(|(_, other)| other.family() != kind.family())
    {
        let place = source::Place {
            file: *file,
            ..source::Place::default()
        };
        let message = format!(
            "this is {}, and the first file is {}",
            other.name(),
            kind.name()
        );
        return Err(sources
            .error(place, "system", message)
            .help("import the files of one system at once")
            .into());
    }
    let all: Vec<u16> = files.iter().map(|(file, _)| *file).collect();
    match kind {
        Foreign::Bao if files.len() > 1 => Err(several(sources, "Bao")),
        Foreign::Bao => bao::read(sources, first, &options.settings),
        Foreign::Jailhouse => jailhouse::read(sources, &all, &options.settings),
        Foreign::Hvisor => hvisor::read(sources, &all),
        Foreign::ImageBuilder | Foreign::XenTree | Foreign::XenCompiled => {
            xen::read(sources, files, &options.settings)
        }
    }
}
