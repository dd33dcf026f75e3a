//! What runs in a VM: the file that the source names, if it is here, or what is to take its place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::{Draft, DraftImage, DraftVm};
use crate::request::Options;
use crate::source::Sources;
use crate::system::{Image, Region, RegionBacking, State, Vm};
use cloison_abi::map;
use std::path::{Path, PathBuf};

/// What a workload of Cloison has for memory.
const WORKLOAD_BYTES: u64 = 16 << 20;
/// The first bytes of an ELF file, which says itself where it is loaded.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Returns what runs in a VM.
pub fn find(
    draft: &mut Draft,
    vm: &DraftVm,
    name: &str,
    sources: &Sources,
    options: &Options,
) -> Image {
    let path = match &vm.image {
        DraftImage::Debian if options.stand_in.is_none() => return Image::Debian,
        DraftImage::Debian => Path::new("the root cell's Linux"),
        DraftImage::File { path, .. } | DraftImage::Kernel { path, .. } => path,
    };
    let beside = sources
        .path(vm.place.file)
        .parent()
        .unwrap_or(Path::new(""));
    let locate = |path: &Path, is_image: bool| locate(path, name, is_image, beside, options);
    let found = locate(path, true);
    let state = found
        .as_deref()
        .map_or(State::Missing, |path| state(&options.base.join(path)));
    if state == State::Missing {
        let subject = format!("image of VM {name}");
        let shown = path.display();
        if let Some(workload) = &options.stand_in {
            let reason = format!("{shown} is not here: the workload `{workload}` runs instead");
            let next = "import again with --image or --images when you have it";
            draft.note(vm.place, subject, reason, next);
            return Image::StandIn(workload.clone());
        }
        let reason = format!("{shown} is not here");
        let next = "put it there, or import again with --image or --images; until then, `check` \
                    accepts its absence (placeholder = true)";
        draft.note(vm.place, subject, reason, next);
    }
    let path = found.unwrap_or_else(|| path.to_path_buf());
    match &vm.image {
        DraftImage::File {
            load, entry, tree, ..
        } => Image::File {
            path,
            load: *load,
            entry: *entry,
            tree: tree.clone(),
            state,
        },
        DraftImage::Kernel {
            initrd, cmdline, ..
        } => {
            let disk = initrd.as_ref().map(|disk| (disk, locate(disk, false)));
            let is_here = disk.as_ref().is_none_or(|(_, found)| found.is_some());
            Image::Kernel {
                path,
                initrd: disk.map(|(disk, found)| found.unwrap_or_else(|| disk.clone())),
                cmdline: cmdline.clone(),
                state: if is_here { state } else { State::Missing },
            }
        }
        DraftImage::Debian => Image::Debian,
    }
}

/// Returns where a file is: as the user says, beside the source, or nowhere.
fn locate(
    path: &Path,
    vm: &str,
    is_image: bool,
    beside: &Path,
    options: &Options,
) -> Option<PathBuf> {
    let file = path.file_name()?;
    let stem = path.file_stem()?;
    let named = options.images.iter().find(|(name, _)| {
        (is_image && name == vm) || file == name.as_str() || stem == name.as_str()
    });
    if let Some((_, path)) = named {
        return Some(from_base(path, &options.base));
    }
    let in_folder = options.folder.iter().map(|folder| folder.join(file));
    in_folder
        .chain([beside.join(path)])
        .find(|path| path.is_file())
        .map(|path| from_base(&path, &options.base))
}

/// Returns how a configuration in `base` names a file: relative to it if that is below it.
fn from_base(path: &Path, base: &Path) -> PathBuf {
    let [path, base] = [path, base].map(|path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        absolute.canonicalize().unwrap_or(absolute)
    });
    path.strip_prefix(&base)
        .map(Path::to_path_buf)
        .unwrap_or(path)
}

fn state(path: &Path) -> State {
    let Ok(data) = std::fs::metadata(path) else {
        return State::Missing;
    };
    let mut magic = [0; 4];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    if read.is_ok() && magic == ELF_MAGIC {
        State::Elf(data.len())
    } else {
        State::Raw(data.len())
    }
}

/// Gives a workload the memory where it is loaded, if the VM has none there.
pub fn make_room(vm: &mut Vm) {
    if !matches!(vm.image, Image::StandIn(_)) {
        return;
    }
    let memory = |region: &&Region| matches!(region.backing, RegionBacking::Pool { .. });
    let holds = |region: &Region| {
        region.ipa <= map::RAM && region.ipa + region.size >= map::RAM + WORKLOAD_BYTES
    };
    if vm.regions.iter().filter(memory).any(holds) {
        return;
    }
    let Some(first) = vm.regions.iter().find(memory).cloned() else {
        return;
    };
    let end = map::RAM + WORKLOAD_BYTES;
    vm.regions
        .retain(|region| region.ipa >= end || region.ipa.saturating_add(region.size) <= map::RAM);
    vm.regions.push(Region {
        name: "stand-in".to_owned(),
        ipa: map::RAM,
        size: WORKLOAD_BYTES,
        wanted: WORKLOAD_BYTES,
        execute: true,
        ..first
    });
}
