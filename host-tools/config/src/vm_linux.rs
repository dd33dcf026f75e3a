//! A VM's `image` with a Linux kernel: `linux` or `kernel`, `release`, `cmdline`, `initrd`,
//! `initrd_load`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Presence, Table};
use crate::files;
use crate::guest_linux::{Flavor, KernelSource, Linux, Release, Shown, TOOLS, with_default};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::page::page_ipa;
use crate::problem::display_path;
use crate::scene::ImageScene;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::guest_map::GuestUartKind;
use cloison_formats::image::{Backing, Region};
use std::path::{Path, PathBuf};

const FLAVORS: [(&str, Flavor); 2] = [("cloud", Flavor::Cloud), ("rt", Flavor::Rt)];
/// The console, added to every command line that does not set one.
const fn console(kind: GuestUartKind) -> &'static str {
    match kind {
        GuestUartKind::Pl011 => "console=ttyAMA0",
        GuestUartKind::Cadence => "console=ttyPS0",
    }
}
/// The kernel's own limit (COMMAND_LINE_SIZE), including the final zero.
const LONGEST_COMMAND_LINE: usize = 2048;

/// Reads an image with `linux` or `kernel`.
pub(crate) fn read(
    image: &Table<'_>,
    linux: Option<Field<'_>>,
    kernel: Option<Field<'_>>,
    scene: &ImageScene<'_>,
) -> Option<Linux> {
    let cmdline = image.value("cmdline", |field| field.string("the kernel's command line"));
    let initrd = image.value("initrd", |field| read_ram_disk(field, scene));
    let load = image.value("initrd_load", |field| Some(page_ipa(field)?.0));
    let releases = Release::ALL.map(|release| (release.name(), release));
    let release = image.value("release", |field| field.one_of("Debian release", &releases));
    let packages = image.value("packages", read_packages);
    let programs = image.value("programs", |field| read_programs(field, scene));
    let exec = image.value("exec", |field| field.string("a command for the VM's shell"));
    let tools = image.value("tools", read_tools);
    for (key, what) in [("workload", "a workload"), ("file", "a file")] {
        if let Some(field) = image.optional(key) {
            let message = format!("the image is both a Linux kernel and {what}");
            let error = field.error(message).label("one too many");
            field.push(error.help("write one of the two"));
        }
    }
    image.finish_ref();
    if initrd.given().is_some() {
        refuse_own_disk(image, kernel.is_some());
    }
    let release = release.or(Release::default());
    let kernel = read_kernel(linux, kernel, release.unwrap_or_default(), scene);
    let line = read_command_line(cmdline, console(scene.map.uart.kind));
    let (source, parsed, place) = kernel?;
    let initrd = initrd.optional()?;
    let load = load.optional()?;
    if let (Some(parsed), true) = (parsed, scene.complete) {
        let len = initrd.as_ref().map_or(0, |disk| disk.len);
        if let Err(error) = Layout::in_regions(scene.regions, scene.shown, load, parsed, len) {
            let message = format!("the Linux guest does not fit in the VM's memory: {error}");
            let error = place.error(message).label("does not fit");
            let help = "make the region larger, or move the RAM disk: a kernel starts at a \
                        multiple of 2 MiB";
            place.push(error.help(help));
        }
    }
    let line = line?;
    warn_of_bounce_buffers(&place, scene.regions, &line);
    check_dma_zone(&place, scene.regions, scene.shown);
    Some(Linux {
        release: release?,
        kernel: source,
        initrd: initrd.map(|disk| disk.path),
        packages: packages.or(vec![])?,
        tools: tools.or(vec![])?,
        programs: programs.or(vec![])?,
        exec: exec.optional()?.map(str::to_owned),
        initrd_load: load,
        tree: scene.described(line),
    })
}

/// Warns of a kernel whose buffers for DMA leave little of the memory below 4 GiB: one that has
/// memory above takes 64 MiB for them (Linux, `IO_TLB_DEFAULT_SIZE`), and may be out of memory
/// before it has a console.
fn warn_of_bounce_buffers(place: &Field<'_>, regions: &[Region], line: &str) {
    const FOUR_GIB: u64 = 1 << 32;
    const ENOUGH: u64 = 192 << 20;
    let memory = regions
        .iter()
        .filter(|region| !matches!(region.backing, Backing::Device(_)));
    let (below, above): (Vec<_>, Vec<_>) = memory.partition(|region| region.ipa.0 < FOUR_GIB);
    let low: u64 = below
        .iter()
        .map(|region| u64::from(region.pages) * PAGE_SIZE)
        .sum();
    if above.is_empty() || low >= ENOUGH || line.contains("swiotlb=") {
        return;
    }
    let warning = place.warning(format!(
        "of {} MiB below 4 GiB, the kernel takes 64 MiB for DMA buffers, because the VM has memory \
         above 4 GiB",
        low >> 20
    ));
    place.push(warning.label("may not boot").help(
        "give it more memory below 4 GiB, or buffers of 1 MiB: cmdline = \"swiotlb=512\"; \
         `earlycon` in it shows what a kernel says before it has a console",
    ));
}

/// Refuses memory from which the kernel could take buffers for DMA although no device reaches it:
/// all below the next power of two after the memory that devices reach (Linux, `zone_sizes_init` of
/// arm64).
fn check_dma_zone(place: &Field<'_>, regions: &[Region], shown: &[Shown]) {
    let ends = regions.iter().filter(|it| it.backing == Backing::Direct);
    let Some(end) = ends.map(|region| region.identity().end().0).max() else {
        return;
    };
    let zone = end.next_power_of_two();
    let is_memory = |(region, shown): &(&Region, &Shown)| {
        matches!(region.backing, Backing::Pool(_) | Backing::Contiguous)
            && **shown == Shown::Memory
            && region.ipa.0 < zone
    };
    if let Some((region, _)) = regions.iter().zip(shown).find(is_memory) {
        let (name, ipa) = (&region.name, region.ipa);
        let error = place.error(format!(
            "the kernel takes buffers for DMA from all memory below {zone:#x}, and no device \
             reaches region `{name}` there"
        ));
        place.push(
            error
                .label(format!("`{name}` starts at {ipa}"))
                .help(format!(
                    "give the region an ipa of {zone:#x} or more; its memory may be anywhere"
                )),
        );
    }
}

/// Records fields that have no effect beside an initial RAM disk: what is in Cloison's own, and the
/// release if the kernel is a file too.
fn refuse_own_disk(image: &Table<'_>, kernel_is_file: bool) {
    let release = image.optional("release").filter(|_| kernel_is_file);
    if let Some(field) = release {
        let error = field.error("neither the kernel nor the RAM disk comes from Debian");
        field.push(error.label("selects nothing").help("leave it out"));
    }
    let keys = ["packages", "tools", "programs", "exec"];
    for field in keys.into_iter().filter_map(|key| image.optional(key)) {
        let error =
            field.error("this applies to Cloison's own RAM disk, but `initrd` selects another");
        let error = error.label("not with `initrd`");
        field.push(error.help("leave out one of the two"));
    }
}

/// An initial RAM disk.
struct RamDisk {
    path: PathBuf,
    len: u64,
}

fn read_ram_disk(field: &Field<'_>, scene: &ImageScene<'_>) -> Option<RamDisk> {
    let name = field.string("the path of an initial RAM disk, relative to this file")?;
    let path = scene.base.join(name);
    let len = read_file(field, &path, "RAM disk")?.len() as u64;
    Some(RamDisk { path, len })
}

/// Reads the kernel: its source, its header if it is here already, and the field that names it.
fn read_kernel<'a>(
    linux: Option<Field<'a>>,
    kernel: Option<Field<'a>>,
    release: Release,
    scene: &ImageScene<'_>,
) -> Option<(KernelSource, Option<Kernel>, Field<'a>)> {
    match (linux, kernel) {
        (Some(first), Some(second)) => {
            let message = "the image has two kernels";
            second.push(
                second
                    .error(message)
                    .also(first.span(), "the other")
                    .label("one too many")
                    .help("write one"),
            );
            None
        }
        (Some(field), None) => {
            let flavor = field.one_of("kernel", &FLAVORS)?;
            // A kernel that has not been downloaded yet is checked after the download.
            let kept = (scene.shipped.kept_kernel)(release, flavor);
            Some((
                KernelSource::Debian(flavor),
                kept.and_then(|bytes| Kernel::parse(&bytes).ok()),
                field,
            ))
        }
        (None, Some(field)) => {
            let path = scene
                .base
                .join(field.string("the path of an arm64 kernel, relative to this file")?);
            let bytes = read_file(&field, &path, "kernel")?;
            match Kernel::parse(&bytes) {
                Ok(kernel) => Some((KernelSource::File(path), Some(kernel), field)),
                Err(error) => {
                    field.push(
                        field
                            .error(format!(
                                "{} cannot be started: {error}",
                                display_path(&path).display()
                            ))
                            .label("no arm64 kernel")
                            .help(
                                "name an uncompressed arm64 kernel (arch/arm64/boot/Image), whole",
                            ),
                    );
                    None
                }
            }
        }
        (None, None) => None,
    }
}

/// Reads the command line, and lets it name the console.
fn read_command_line(cmdline: Presence<'_, &str>, console: &str) -> Option<String> {
    let field = cmdline.given().map(|given| given.field.clone());
    let line = with_default(cmdline.or("")?, console);
    let is_wrong = line.len() >= LONGEST_COMMAND_LINE || line.contains('\0');
    if let Some(field) = field.filter(|_| is_wrong) {
        let error = field.error(format!(
            "the command line has {} bytes; a kernel takes {}",
            line.len(),
            LONGEST_COMMAND_LINE - 1
        ));
        field.push(error.label("too long").help("leave words out"));
    }
    Some(line)
}

/// Reads the packages' names, sorted. apt checks whether they exist when they are downloaded.
fn read_packages(field: &Field<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for element in field.elements()? {
        let Some(name) = element.string("the name of a Debian package") else {
            continue;
        };
        let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = name.bytes().next().is_some_and(is_lower);
        if name.len() < 2
            || !first
            || !name
                .bytes()
                .all(|byte| is_lower(byte) || b"+-.".contains(&byte))
        {
            let problem =
                element.error(format!("`{name}` is not a valid name of a Debian package"));
            element.push(problem.label("not a package's name").help(
                "write it as apt does, without version and architecture: 2 or more of a-z, 0-9, \
                 `+`, `-`, `.`",
            ));
        } else if names.iter().any(|known| known == name) {
            let problem = element.error(format!("package `{name}` is listed twice"));
            element.push(problem.label("again").help("once is enough"));
        } else {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Some(names)
}

/// Reads the names of Cloison's own programs.
fn read_tools(field: &Field<'_>) -> Option<Vec<&'static str>> {
    let elements = field.elements()?;
    Some(
        elements
            .iter()
            .filter_map(|element| element.one_of("program", &TOOLS.map(|name| (name, name))))
            .collect(),
    )
}

fn read_programs(field: &Field<'_>, scene: &ImageScene<'_>) -> Option<Vec<PathBuf>> {
    field.each(|element| {
        let path = scene
            .base
            .join(element.string("the path of a program for AArch64, relative to this file")?);
        let bytes = read_file(element, &path, "program")?;
        if is_for_another_machine(&bytes) {
            let message = format!(
                "the program {} is not for AArch64",
                display_path(&path).display()
            );
            element.push(
                element
                    .error(message)
                    .label("made for another machine")
                    .help(
                        "build it for Linux on AArch64: `--target aarch64-unknown-linux-gnu`, \
                         `aarch64-linux-gnu-gcc -static`",
                    ),
            );
            return None;
        }
        Some(path)
    })
}

/// Returns whether a file is an ELF file for anything but 64-bit little-endian Arm. A script is for
/// every machine.
fn is_for_another_machine(bytes: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\x7fELF";
    // ELFCLASS64 and ELFDATA2LSB at 4; e_machine, EM_AARCH64, at 18.
    bytes.starts_with(MAGIC)
        && (bytes.get(4..6) != Some(&[2, 1]) || bytes.get(18..20) != Some(&183_u16.to_le_bytes()))
}

fn read_file(field: &Field<'_>, path: &Path, what: &str) -> Option<Vec<u8>> {
    match files::read(path, files::IMAGE) {
        Ok(bytes) if !bytes.is_empty() => Some(bytes),
        Ok(_) => {
            let message = format!("the {what} {} is empty", display_path(path).display());
            field.push(
                field
                    .error(message)
                    .label("no bytes")
                    .help("choose another file"),
            );
            None
        }
        Err(error) => {
            field.push(
                field
                    .error(format!(
                        "cannot read the {what} {}: {}",
                        display_path(path).display(),
                        error
                    ))
                    .label(format!("no such {what}"))
                    .help("paths are relative to the directory of this file"),
            );
            None
        }
    }
}
