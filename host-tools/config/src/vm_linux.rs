//! A VM's `image` with a Linux kernel: `linux` or `kernel`, `release`, `cmdline`, `initrd`, `initrd_load`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files;
use crate::guest_linux::{Flavor, KernelSource, Linux, Release, TOOLS, with_word};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::node::{Field, Table};
use crate::problem::display_path;
use crate::region::page_ipa;
use crate::scene::ImageScene;
use std::path::{Path, PathBuf};

const FLAVORS: [(&str, Flavor); 2] = [("cloud", Flavor::Cloud), ("rt", Flavor::Rt)];
/// The console, added to every command line that does not set one.
const CONSOLE: &str = "console=ttyAMA0";
/// The kernel's own limit (COMMAND_LINE_SIZE), including the final zero.
const LONGEST_COMMAND_LINE: usize = 2048;

/// Reads an image with `linux` or `kernel`.
pub(crate) fn read(
    image: &Table<'_>,
    linux: Option<Field<'_>>,
    kernel: Option<Field<'_>>,
    scene: &ImageScene<'_>,
) -> Option<Linux> {
    let (cmdline, initrd, load) = (
        image.optional("cmdline"),
        image.optional("initrd"),
        image.optional("initrd_load"),
    );
    let release = image.optional("release");
    let (packages, programs, exec) = (
        image.optional("packages"),
        image.optional("programs"),
        image.optional("exec"),
    );
    let tools = image.optional("tools");
    for (key, what) in [("workload", "a workload"), ("file", "a file")] {
        if let Some(field) = image.optional(key) {
            let message = format!("the image is both a Linux kernel and {what}");
            field.push(
                field
                    .error(message)
                    .label("one too many")
                    .help("write one of the two"),
            );
        }
    }
    image.finish_ref();
    let release = match &release {
        Some(field) => {
            if kernel.is_some() && initrd.is_some() {
                let problem = field.error("neither the kernel nor the RAM disk comes from Debian");
                field.push(problem.label("selects nothing").help("leave it out"));
            }
            field.one_of(
                "Debian release",
                &Release::ALL.map(|release| (release.name(), release)),
            )?
        }
        None => Release::default(),
    };
    let (source, parsed, place) = read_kernel(linux, kernel, release, scene)?;
    let mut initrd_len = 0;
    let initrd = match &initrd {
        Some(field) => {
            let path = scene
                .base
                .join(field.string("the path of an initial RAM disk, relative to this file")?);
            initrd_len = read_file(field, &path, "RAM disk")?.len() as u64;
            Some(path)
        }
        None => None,
    };
    if initrd.is_some() {
        for field in packages.iter().chain(&tools).chain(&programs).chain(&exec) {
            let problem =
                field.error("this applies to Cloison's own RAM disk, but `initrd` selects another");
            field.push(
                problem
                    .label("not with `initrd`")
                    .help("leave out one of the two"),
            );
        }
    }
    let packages = match &packages {
        Some(field) => read_packages(field)?,
        None => Vec::new(),
    };
    let tools = match &tools {
        Some(field) => read_tools(field)?,
        None => Vec::new(),
    };
    let programs = match &programs {
        Some(field) => read_programs(field, scene)?,
        None => Vec::new(),
    };
    let exec = match &exec {
        Some(field) => Some(field.string("a command for the VM's shell")?.to_owned()),
        None => None,
    };
    let load = match &load {
        Some(field) => Some(page_ipa(field)?.0),
        None => None,
    };
    let line = read_command_line(cmdline.as_ref())?;
    if let (Some(parsed), true) = (parsed, scene.complete)
        && let Err(error) = Layout::in_regions(scene.regions, scene.shown, load, parsed, initrd_len)
    {
        place.push(
            place
                .error(format!("the Linux guest does not fit in the VM's memory: {error}"))
                .label("does not fit")
                .help("make the region larger, or move the RAM disk: a kernel starts at a multiple of 2 MiB"),
        );
    }
    let tree = scene.described(line);
    Some(Linux {
        release,
        kernel: source,
        initrd,
        packages,
        tools,
        programs,
        exec,
        initrd_load: load,
        tree,
    })
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
fn read_command_line(cmdline: Option<&Field<'_>>) -> Option<String> {
    let mut line = match cmdline {
        Some(field) => field.string("the kernel's command line")?.to_owned(),
        None => String::new(),
    };
    if !line
        .split_whitespace()
        .any(|word| word.starts_with("console="))
    {
        line = with_word(&line, CONSOLE);
    }
    if let Some(field) =
        cmdline.filter(|_| line.len() >= LONGEST_COMMAND_LINE || line.contains('\0'))
    {
        field.push(
            field
                .error(format!(
                    "the command line has {} bytes; a kernel takes {}",
                    line.len(),
                    LONGEST_COMMAND_LINE - 1
                ))
                .label("too long")
                .help("leave words out"),
        );
    }
    Some(line)
}

/// Reads the packages' names, sorted. apt checks whether they exist when they are downloaded.
fn read_packages(field: &Field<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for element in field.elements()? {
        let name = element.string("the name of a Debian package")?;
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
            element.push(
                problem.label("not a package's name").help(
                    "write it as apt does, without version and architecture: 2 or more of a-z, 0-9, `+`, `-`, `.`",
                ),
            );
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
    let mut paths = Vec::new();
    for element in field.elements()? {
        let path = scene
            .base
            .join(element.string("the path of a program for AArch64, relative to this file")?);
        let bytes = read_file(&element, &path, "program")?;
        if is_for_another_machine(&bytes) {
            let message = format!(
                "the program {} is not for AArch64",
                display_path(&path).display()
            );
            element.push(element.error(message).label("made for another machine").help(
                "build it for Linux on AArch64: `--target aarch64-unknown-linux-gnu`, `aarch64-linux-gnu-gcc -static`",
            ));
            continue;
        }
        paths.push(path);
    }
    Some(paths)
}

/// Returns whether a file is an ELF file for anything but 64-bit little-endian Arm. A script is for every machine.
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
