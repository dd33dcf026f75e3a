//! A VM's `image`: a workload, a file, or a Linux kernel.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Given, Presence, Table, suggest};
use crate::executable::{self, ElfError, Executable};
use crate::files::{self, ReadError};
use crate::guest_linux::Described;
use crate::layout::DEVICE_TREE_ROOM;
use crate::page::page_ipa;
use crate::problem::{Problem, display_path};
use crate::quantity::show_size;
use crate::scene::ImageScene;
use crate::sources::{ImageSource, WORKLOADS};
use crate::vm_linux;
use cloison_abi::map;
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::image::{Backing, Image, Region};
use std::ops::Range;
use std::path::Path;

/// An image whose position only the builder knows.
pub(crate) const NOWHERE: Image = Image {
    offset: 0,
    len: 0,
    load: Ipa(0),
    entry: Ipa(0),
};

/// A VM's image, as known from the configuration and the file.
pub(crate) struct ImageSpec {
    pub source: ImageSource,
    pub image: Image,
    /// Bytes of its file in the system image; 0 for images that are built or reserved elsewhere.
    pub bytes: u64,
    /// Position of the field that names it.
    pub span: Range<usize>,
}

/// Reads a VM's `image`.
pub(crate) fn read(table: &Table<'_>, scene: &ImageScene<'_>) -> Option<ImageSpec> {
    let field = table.required(
        "image",
        "say what the VM runs: image = { workload = \"heartbeat\" }",
    )?;
    let image = field.table()?;
    let span = field.span();
    let alone = |source: ImageSource| ImageSpec {
        source,
        image: NOWHERE,
        bytes: 0,
        span: span.clone(),
    };
    if image.flag("placeholder")
        && let Some(source) = read_absent(&image, scene)
    {
        return Some(alone(source));
    }
    let (linux, kernel) = (image.optional("linux"), image.optional("kernel"));
    if linux.is_some() || kernel.is_some() {
        return vm_linux::read(&image, linux, kernel, scene)
            .map(ImageSource::Linux)
            .map(alone);
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
            read_workload(&workload, &place, scene).map(alone)
        }
        (None, Some(file)) => {
            let described = tree.described(scene);
            let mut spec = read_file(&file, place, &image, scene)?;
            if let (ImageSource::File(path), Some(described)) = (&spec.source, described) {
                spec.source = ImageSource::FileWithTree(path.clone(), described);
            }
            Some(spec)
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
                    .error(
                        "workload",
                        image.span(),
                        "the image is neither a workload, nor a file, nor a kernel",
                    )
                    .label("empty")
                    .help(
                        "write image = { workload = \"heartbeat\" }, image = { file = \
                         \"guest.elf\" } or image = { linux = \"cloud\" }",
                    ),
            );
            None
        }
    }
}

/// Returns the image whose file is still to come, if one is: `check` warns, and nothing boots.
fn read_absent(image: &Table<'_>, scene: &ImageScene<'_>) -> Option<ImageSource> {
    let field = ["file", "kernel", "initrd"].into_iter().find_map(|key| {
        let field = image.optional(key)?;
        let path = scene.base.join(field.text()?);
        (!path.exists()).then_some((field, path))
    });
    let (field, path) = field?;
    // What else there is means something when the file is here.
    for key in [
        "load",
        "entry",
        "cmdline",
        "device_tree_at",
        "initrd_load",
        "release",
    ] {
        image.optional(key);
    }
    let has_tree = image.flag("device_tree") || image.optional("kernel").is_some();
    image.optional("initrd");
    image.finish_ref();
    let message = format!("{} does not exist yet", display_path(&path).display());
    let warning = field.warning(message).label("a placeholder");
    field.push(warning.help(
        "everything else is checked; put the image there before the system boots, or name \
         another one",
    ));
    Some(if has_tree {
        ImageSource::FileWithTree(path, scene.described(String::new()))
    } else {
        ImageSource::File(path)
    })
}

/// The fields of an image about its device tree.
struct Tree<'a> {
    wanted: Option<Field<'a>>,
    cmdline: Option<Field<'a>>,
    at: Option<Field<'a>>,
}

impl<'a> Tree<'a> {
    fn read(image: &Table<'a>) -> Self {
        Self {
            wanted: image.optional("device_tree"),
            cmdline: image.optional("cmdline"),
            at: image.optional("device_tree_at"),
        }
    }

    fn fields(&self) -> impl Iterator<Item = &Field<'a>> {
        self.wanted.iter().chain(&self.cmdline).chain(&self.at)
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
        let lost = [
            (&self.cmdline, "a command line"),
            (&self.at, "a device tree's address"),
        ];
        for (field, what) in lost {
            if let Some(field) = field.as_ref().filter(|_| !is_wanted) {
                let problem = field.error(format!("the image has {what}, and no device tree"));
                let help = "add device_tree = true, or leave it out";
                field.push(problem.label("lost").help(help));
            }
        }
        let place = self.at.as_ref().and_then(|field| tree_place(field, scene));
        is_wanted.then(|| Described {
            place,
            ..scene.described(cmdline)
        })
    }
}

/// Returns the address that the configuration gives a device tree.
fn tree_place(field: &Field<'_>, scene: &ImageScene<'_>) -> Option<Ipa> {
    let place = page_ipa(field)?;
    let has_room = room(scene, place).is_some_and(|room| room >= DEVICE_TREE_ROOM);
    if scene.complete && !has_room {
        let room = show_size(DEVICE_TREE_ROOM);
        let problem = field.error(format!("no region of RAM has {room} at {place}"));
        field.push(
            problem
                .label("the device tree does not fit")
                .help("name an address in a region with `pool` or `contiguous`"),
        );
    }
    Some(place)
}

/// Where the image says that it is loaded and entered.
struct Place<'a> {
    load: Presence<'a, Ipa>,
    entry: Presence<'a, u64>,
}

impl<'a> Place<'a> {
    fn read(image: &Table<'a>) -> Self {
        Self {
            load: image.value("load", page_ipa),
            entry: image.value("entry", |field| field.integer("an address: 0x4000_0000")),
        }
    }

    /// Records an error in each field that says so, for an image that defines it.
    fn refuse(&self, message: &str, label: &str) {
        let load = self.load.given().map(|load| &load.field);
        let entry = self.entry.given().map(|entry| &entry.field);
        for surplus in load.into_iter().chain(entry) {
            let error = surplus.error(message).label(label);
            surplus.push(error.help("leave it out"));
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

/// Returns how many bytes of RAM there are from `at` to its region's end.
fn room(scene: &ImageScene<'_>, at: Ipa) -> Option<u64> {
    ram(scene, at).map(|region| region.ipa.page(u64::from(region.pages)).0 - at.0)
}

fn read_workload(
    workload: &Field<'_>,
    place: &Place<'_>,
    scene: &ImageScene<'_>,
) -> Option<ImageSource> {
    place.refuse("a workload defines its own load address", "not here");
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
    let home = ram(scene, Ipa(map::RAM));
    if let Some(region) = home.filter(|region| scene.complete && !region.executable) {
        let error = ElfError::EntryForbidden {
            entry: map::RAM,
            region: region.name.clone(),
        };
        workload.push(unloadable(workload, Path::new(name), &error));
    }
    if scene.complete && home.is_none() {
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
    image: &Table<'_>,
    scene: &ImageScene<'_>,
) -> Option<ImageSpec> {
    let path = scene
        .base
        .join(file.string("the path of an image, relative to this file")?);
    let shown = display_path(&path);
    let unread = |error: ReadError| {
        let message = format!("cannot read the image {}: {error}", shown.display());
        let wrong = file.error(message);
        file.push(match error {
            ReadError::Missing => wrong
                .label("no such image")
                .help("paths are relative to the directory of this file"),
            _ => wrong
                .label("no image")
                .help("name an ELF file, or a raw image of at most 1 GiB"),
        });
    };
    let bytes = files::read(&path, files::IMAGE).map_err(unread).ok()?;
    let (image, bytes) = if bytes.starts_with(executable::MAGIC) {
        let message = format!(
            "{} is an ELF file, which defines its own load address",
            shown.display()
        );
        place.refuse(&message, "not for ELF files");
        let loaded = read_elf(&bytes, scene).unwrap_or_else(|errors| {
            for error in errors {
                file.push(unloadable(file, &shown, &error));
            }
            0
        });
        (NOWHERE, loaded)
    } else {
        let len = bytes.len() as u64;
        let load = read_load(file, &shown, place.load, len)?;
        if scene.complete {
            check_room(image, &load, len, scene);
        }
        let image = Image {
            load: load.value,
            entry: read_entry(file, &shown, place.entry, &load, len, scene)?,
            ..NOWHERE
        };
        (image, len)
    };
    Some(ImageSpec {
        source: ImageSource::File(path),
        image,
        bytes,
        span: file.span(),
    })
}

/// Returns where a file of `len` bytes that is no ELF file is loaded.
fn read_load<'a>(
    file: &Field<'_>,
    shown: &Path,
    load: Presence<'a, Ipa>,
    len: u64,
) -> Option<Given<'a, Ipa>> {
    if let Presence::Absent = load {
        let message = format!(
            "{} is not an ELF file and needs a load address",
            shown.display()
        );
        let error = file.error(message).label("`load` is missing");
        file.push(error.help("write image = { file = \"...\", load = 0x4000_0000 }"));
    }
    let load = load.given().cloned()?;
    if len == 0 || len > u64::from(u32::MAX) {
        let message = format!("{} has {}", shown.display(), show_size(len));
        let error = file.error(message).label("impossible image");
        file.push(error.help("give it 1 byte to 4 GiB"));
        return None;
    }
    Some(load)
}

/// Checks that an image ends in the region where it is loaded.
fn check_room(image: &Table<'_>, load: &Given<'_, Ipa>, len: u64, scene: &ImageScene<'_>) {
    let at = load.value;
    let label = match room(scene, at) {
        Some(room) if room >= len => return,
        Some(room) => format!("{len} bytes > {room} bytes to the region's end"),
        None => "no RAM of the VM is there".to_owned(),
    };
    let message = format!("the image does not fit at {at}");
    let error = image.error("load", load.field.span(), message).label(label);
    let help = "load it into a region with `pool` or `contiguous` that is large enough";
    image.push(error.help(help));
}

/// Returns where an image is entered: an instruction in it.
fn read_entry(
    file: &Field<'_>,
    shown: &Path,
    entry: Presence<'_, u64>,
    load: &Given<'_, Ipa>,
    len: u64,
    scene: &ImageScene<'_>,
) -> Option<Ipa> {
    let load = load.value;
    let of_entry = entry.given().map_or(file, |given| &given.field).clone();
    let entry = entry.or(load.0)?;
    let (message, label) = if entry < load.0 || entry - load.0 >= len {
        (
            format!("the entry {entry:#x} is not inside the image"),
            format!("the image is {load}..{:#x}", load.0 + len),
        )
    } else if entry % 4 != 0 {
        (
            format!("the entry {entry:#x} is not a multiple of 4"),
            "no instruction starts there".to_owned(),
        )
    } else {
        let forbidden = ram(scene, load).filter(|region| scene.complete && !region.executable);
        if let Some(region) = forbidden {
            let region = region.name.clone();
            let error = ElfError::EntryForbidden { entry, region };
            of_entry.push(unloadable(&of_entry, shown, &error));
        }
        return Some(Ipa(entry));
    };
    let error = of_entry.error(message).label(label);
    of_entry.push(error.help("leave `entry` out to start at the first byte"));
    Some(Ipa(entry))
}

/// Checks an ELF file. Returns the bytes that it takes in the system image; 0 if the VM's regions
/// are not known.
fn read_elf(bytes: &[u8], scene: &ImageScene<'_>) -> Result<u64, Vec<ElfError>> {
    let executable = Executable::parse(bytes).map_err(|error| vec![error])?;
    if !scene.complete {
        return Ok(0);
    }
    Ok(executable
        .place(scene.regions)?
        .iter()
        .map(|part| part.len().next_multiple_of(PAGE_SIZE))
        .sum())
}

/// Returns the problem of a file that cannot be loaded.
fn unloadable(field: &Field<'_>, shown: &Path, error: &ElfError) -> Problem {
    let problem = field.error(format!("{} cannot be loaded: {error}", shown.display()));
    problem.label("this image").help(error.help())
}
