//! A VM's `image`: a workload, a file, or a Linux kernel.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files;
use crate::guest_linux::Described;
use crate::node::{Field, Table, suggest};
use crate::problem::display_path;
use crate::quantity::show_size;
use crate::region::page_ipa;
use crate::scene::ImageScene;
use crate::sources::{ImageSource, WORKLOADS};
use crate::vm_linux;
use cloison_abi::map;
use cloison_formats::addr::Ipa;
use cloison_formats::image::{Backing, Image, Region};

/// An image whose position only the builder knows.
pub(crate) const NOWHERE: Image = Image {
    offset: 0,
    len: 0,
    load: Ipa(0),
    entry: Ipa(0),
};

/// Reads a VM's `image`.
pub(crate) fn read(table: &Table<'_>, scene: &ImageScene<'_>) -> Option<(ImageSource, Image)> {
    let field = table.required(
        "image",
        "say what the VM runs: image = { workload = \"heartbeat\" }",
    )?;
    let image = field.table()?;
    let (linux, kernel) = (image.optional("linux"), image.optional("kernel"));
    if linux.is_some() || kernel.is_some() {
        return vm_linux::read(&image, linux, kernel, scene)
            .map(|linux| (ImageSource::Linux(linux), NOWHERE));
    }
    let (workload, file) = (image.optional("workload"), image.optional("file"));
    let place = Place::read(&image);
    let tree = Tree::read(&image);
    image.finish_ref();
    match (workload, file) {
        (Some(workload), None) => {
            for surplus in tree.fields() {
                let problem = surplus
                    .error("a workload reads no device tree")
                    .label("not here");
                surplus.push(problem.help("leave it out; `args` are what a workload is told"));
            }
            read_workload(&workload, &place, scene).map(|source| (source, NOWHERE))
        }
        (None, Some(file)) => {
            let described = tree.described(scene);
            let (source, image) = read_file(&file, place, table, &image, scene)?;
            Some(match (source, described) {
                (ImageSource::File(path), Some(described)) => {
                    (ImageSource::FileWithTree(path, described), image)
                }
                (source, _) => (source, image),
            })
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

/// What an image says of its device tree.
struct Tree<'a> {
    wanted: Option<Field<'a>>,
    cmdline: Option<Field<'a>>,
}

impl<'a> Tree<'a> {
    fn read(image: &Table<'a>) -> Self {
        Self {
            wanted: image.optional("device_tree"),
            cmdline: image.optional("cmdline"),
        }
    }

    fn fields(&self) -> impl Iterator<Item = &Field<'a>> {
        self.wanted.iter().chain(&self.cmdline)
    }

    /// Returns what the tree is to say, if the guest gets one.
    fn described(&self, scene: &ImageScene<'_>) -> Option<Described> {
        let is_wanted = self
            .wanted
            .as_ref()
            .is_some_and(|field| field.boolean().unwrap_or_default());
        let cmdline = match &self.cmdline {
            Some(field) => field
                .string("the command line, which the device tree passes on")?
                .to_owned(),
            None => String::new(),
        };
        if let Some(field) = self.cmdline.as_ref().filter(|_| !is_wanted) {
            let problem =
                field.error("the image has a command line, and no device tree that could say it");
            field.push(
                problem
                    .label("lost")
                    .help("add device_tree = true, or leave it out"),
            );
        }
        is_wanted.then(|| scene.described(cmdline))
    }
}

/// Where the image says that it is loaded and entered.
struct Place<'a> {
    load: Option<Field<'a>>,
    entry: Option<Field<'a>>,
    /// What `load` says, if it is valid.
    load_at: Option<Option<Ipa>>,
    /// What `entry` says, if it is valid.
    entry_at: Option<Option<u64>>,
}

impl<'a> Place<'a> {
    fn read(image: &Table<'a>) -> Self {
        let (load, entry) = (image.optional("load"), image.optional("entry"));
        let load_at = load.as_ref().map(page_ipa);
        let entry_at = entry
            .as_ref()
            .map(|field| field.integer("an address: 0x4000_0000"));
        Self {
            load,
            entry,
            load_at,
            entry_at,
        }
    }
}

/// Returns the region of RAM that contains `load`.
fn ram<'a>(scene: &ImageScene<'a>, load: Ipa) -> Option<&'a Region> {
    scene
        .regions
        .iter()
        .find(|region| region.contains(load) && !matches!(region.backing, Backing::Device(_)))
}

fn read_workload(
    workload: &Field<'_>,
    place: &Place<'_>,
    scene: &ImageScene<'_>,
) -> Option<ImageSource> {
    for surplus in place.load.iter().chain(&place.entry) {
        surplus.push(
            surplus
                .error("a workload defines its own load address")
                .label("not here")
                .help("leave it out"),
        );
    }
    let name = workload.string("the name of a workload")?;
    if !WORKLOADS.iter().any(|(known, _)| *known == name) {
        workload.push(
            workload
                .error(format!("there is no workload `{name}`"))
                .label("unknown workload")
                .help(suggest(
                    name,
                    "workloads",
                    WORKLOADS.iter().map(|(known, _)| *known),
                )),
        );
        return None;
    }
    if scene.complete && ram(scene, Ipa(map::RAM)).is_none() {
        workload.push(
            workload
                .error(format!(
                    "no region of the VM holds {:#x}, where workloads are loaded",
                    map::RAM
                ))
                .label("cannot be loaded")
                .help("give the VM RAM there: [[vm.region]] with ipa = 0x4000_0000"),
        );
    }
    Some(ImageSource::Workload(name.to_owned()))
}

fn read_file(
    file: &Field<'_>,
    place: Place<'_>,
    table: &Table<'_>,
    image: &Table<'_>,
    scene: &ImageScene<'_>,
) -> Option<(ImageSource, Image)> {
    let path = scene
        .base
        .join(file.string("the path of an image, relative to this file")?);
    let shown = display_path(&path);
    let bytes = match files::read(&path, files::IMAGE) {
        Ok(bytes) => bytes,
        Err(error) => {
            file.push(
                file.error(format!(
                    "cannot read the image {}: {}",
                    shown.display(),
                    error
                ))
                .label("no such image")
                .help("paths are relative to the directory of this file"),
            );
            return None;
        }
    };
    let source = ImageSource::File(path);
    if bytes.starts_with(b"\x7fELF") {
        for surplus in place.load.iter().chain(&place.entry) {
            surplus.push(
                surplus
                    .error(format!(
                        "{} is an ELF file, which defines its own load address",
                        shown.display()
                    ))
                    .label("not for ELF files")
                    .help("leave it out"),
            );
        }
        return Some((source, NOWHERE));
    }
    if place.load.is_none() {
        file.push(
            file.error(format!(
                "{} is not an ELF file and needs a load address",
                shown.display()
            ))
            .label("`load` is missing")
            .help("write image = { file = \"...\", load = 0x4000_0000 }"),
        );
    }
    let load = place.load_at??;
    if bytes.is_empty() || bytes.len() as u64 > u64::from(u32::MAX) {
        let size = show_size(bytes.len() as u64);
        file.push(
            file.error(format!("{} has {size}", shown.display()))
                .label("impossible image")
                .help("give it 1 byte to 4 GiB"),
        );
        return None;
    }
    let span = place.load.as_ref().map_or(file.span(), Field::span);
    let len = bytes.len() as u64;
    if scene.complete {
        let room =
            ram(scene, load).map(|region| region.ipa.page(u64::from(region.pages)).0 - load.0);
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
    let entry = place.entry_at.unwrap_or(Some(load.0))?;
    if let Some(field) = place
        .entry
        .filter(|_| entry < load.0 || entry - load.0 >= len)
    {
        field.push(
            field
                .error(format!("the entry {entry:#x} is not inside the image"))
                .label(format!("the image is {load}..{:#x}", load.0 + len))
                .help("leave `entry` out to start at the first byte"),
        );
    }
    Some((
        source,
        Image {
            load,
            entry: Ipa(entry),
            ..NOWHERE
        },
    ))
}
