//! A VM's `image`: a workload, a file, or a Linux kernel.

use crate::node::{Field, Table, suggest};
use crate::problem::display_path;
use crate::quantity::show_size;
use crate::region::page_ipa;
use crate::scene::{ImageScene, plain};
use crate::sources::{ImageSource, WORKLOADS};
use crate::vm_linux;
use cloison_abi::map;
use cloison_formats::addr::Ipa;
use cloison_formats::image::{Backing, Image};

/// An image whose position only the builder knows.
pub(crate) const NOWHERE: Image = Image { offset: 0, len: 0, load: Ipa(0), entry: Ipa(0) };

/// Reads a VM's `image`.
pub(crate) fn read(table: &Table<'_>, scene: &ImageScene<'_>) -> Option<(ImageSource, Image)> {
    let field = table.required("image", "say what the VM runs: image = { workload = \"heartbeat\" }")?;
    let image = field.table()?;
    let (linux, kernel) = (image.optional("linux"), image.optional("kernel"));
    if linux.is_some() || kernel.is_some() {
        return vm_linux::read(&image, linux, kernel, scene).map(|linux| (ImageSource::Linux(linux), NOWHERE));
    }
    let &ImageScene { base, regions, complete, .. } = scene;
    let (workload, file) = (image.optional("workload"), image.optional("file"));
    let (load_field, entry_field) = (image.optional("load"), image.optional("entry"));
    let load = load_field.as_ref().map(|field| page_ipa(field));
    let entry = entry_field.as_ref().map(|field| field.integer("an address: 0x4000_0000"));
    image.finish_ref();
    let nowhere = NOWHERE;
    let ram = |load: Ipa| {
        regions.iter().find(|region| region.contains(load) && !matches!(region.backing, Backing::Device(_)))
    };
    match (workload, file) {
        (Some(workload), None) => {
            for surplus in load_field.iter().chain(&entry_field) {
                surplus.push(
                    surplus.error("a workload defines its own load address").label("not here").help("leave it out"),
                );
            }
            let name = workload.string("the name of a workload")?;
            if !WORKLOADS.iter().any(|(known, _)| *known == name) {
                workload.push(
                    workload.error(format!("there is no workload `{name}`")).label("unknown workload").help(suggest(
                        name,
                        "workloads",
                        WORKLOADS.iter().map(|(known, _)| *known),
                    )),
                );
                return None;
            }
            if complete && ram(Ipa(map::RAM)).is_none() {
                workload.push(
                    workload
                        .error(format!("no region of the VM holds {:#x}, where workloads are loaded", map::RAM))
                        .label("cannot be loaded")
                        .help("give the VM RAM there: [[vm.region]] with ipa = 0x4000_0000"),
                );
            }
            Some((ImageSource::Workload(name.to_owned()), nowhere))
        }
        (None, Some(file)) => {
            let path = base.join(file.string("the path of an image, relative to this file")?);
            let shown = display_path(&path);
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) => {
                    file.push(
                        file.error(format!("cannot read the image {}: {}", shown.display(), plain(&error)))
                            .label("no such image")
                            .help("paths are relative to the directory of this file"),
                    );
                    return None;
                }
            };
            let source = ImageSource::File(path);
            if bytes.starts_with(b"\x7fELF") {
                for surplus in load_field.iter().chain(&entry_field) {
                    surplus.push(
                        surplus
                            .error(format!("{} is an ELF file, which defines its own load address", shown.display()))
                            .label("not for ELF files")
                            .help("leave it out"),
                    );
                }
                return Some((source, nowhere));
            }
            if load_field.is_none() {
                file.push(
                    file.error(format!("{} is not an ELF file and needs a load address", shown.display()))
                        .label("`load` is missing")
                        .help("write image = { file = \"...\", load = 0x4000_0000 }"),
                );
            }
            let load = load??;
            if bytes.is_empty() || bytes.len() as u64 > u64::from(u32::MAX) {
                let size = show_size(bytes.len() as u64);
                file.push(
                    file.error(format!("{} has {size}", shown.display()))
                        .label("impossible image")
                        .help("give it 1 byte to 4 GiB"),
                );
                return None;
            }
            let span = load_field.as_ref().map_or(file.span(), Field::span);
            let len = bytes.len() as u64;
            if complete {
                let room = ram(load).map(|region| region.ipa.page(u64::from(region.pages)).0 - load.0);
                if room.is_none_or(|room| room < len) {
                    let label = match room {
                        None => "no RAM of the VM is there".to_owned(),
                        Some(room) => format!("{len} bytes > {room} bytes to the region's end"),
                    };
                    table.push(
                        image
                            .error("load", span, format!("the image does not fit at {load}"))
                            .label(label)
                            .help("load it into a region with `pool` or `contiguous` that is large enough"),
                    );
                }
            }
            let entry = entry.unwrap_or(Some(load.0))?;
            if let Some(field) = entry_field.filter(|_| entry < load.0 || entry - load.0 >= len) {
                field.push(
                    field
                        .error(format!("the entry {entry:#x} is not inside the image"))
                        .label(format!("the image is {load}..{:#x}", load.0 + len))
                        .help("leave `entry` out to start at the first byte"),
                );
            }
            Some((source, Image { load, entry: Ipa(entry), ..nowhere }))
        }
        (Some(_), Some(file)) => {
            file.push(
                file.error("the image is both a workload and a file")
                    .label("one too many")
                    .help("write `workload` or `file`"),
            );
            None
        }
        (None, None) => {
            table.push(
                image
                    .error("workload", image.span(), "the image is neither a workload, nor a file, nor a kernel")
                    .label("empty")
                    .help("write image = { workload = \"heartbeat\" }, image = { file = \"guest.elf\" } or image = { linux = \"cloud\" }"),
            );
            None
        }
    }
}
