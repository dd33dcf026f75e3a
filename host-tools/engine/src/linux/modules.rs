//! Modules of Debian's kernels for the RAM disk.
//!
//! They drive the devices of links, the memory of channels, and devices of boards. They are unmodified, apart from their compression by xz: `insmod` takes them as they were built.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::archive::{self, Node};
use super::packages::{self, Cached, CachedFile, NewFile};
use crate::installation;
use crate::setup::debian;
use cloison_config::guest_linux::{Flavor, Release};
use flate2::Compression;
use lzma_rust2::XzReader;
use miette::{IntoDiagnostic, Result, miette};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Modules for a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// For links, channels, and other devices of virtio.
    Shared,
    /// For devices of boards.
    Board,
    /// For devices behind a PCIe host bridge.
    Pcie,
}

impl Set {
    /// All.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Board, Self::Pcie];

    /// Returns the modules that are wanted; those that they depend on come with them. A kernel may
    /// have one built in.
    const fn wanted(self) -> &'static [&'static str] {
        match self {
            Self::Shared => &[
                "virtio_mmio",
                "virtio_net",
                "virtio_console",
                "vmw_vsock_virtio_transport",
                "nd_pmem",
                "of_pmem",
            ],
            // Ethernet and SD cards of the ZCU102, and what is on a card.
            Self::Board => &[
                "macb",
                "sdhci-of-arasan",
                "mmc_block",
                "crc32c_generic",
                "ext4",
            ],
            // Disks and Ethernet of QEMU's, and what is on a disk.
            Self::Pcie => &[
                "virtio_pci",
                "virtio_blk",
                "nvme",
                "e1000",
                "crc32c_generic",
                "ext4",
            ],
        }
    }

    /// Returns those that no kernel that suits has built in.
    const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Shared => &[
                "virtio_mmio",
                "virtio_net",
                "vmw_vsock_virtio_transport",
                "of_pmem",
            ],
            Self::Board => &["macb", "sdhci-of-arasan"],
            Self::Pcie => &["virtio_blk"],
        }
    }

    /// Returns whether a driver of the set is for a device with this compatible string.
    pub fn drives(self, compatible: &str) -> bool {
        const BOARD: [&str; 5] = [
            "cdns,gem",
            "cdns,zynqmp-gem",
            "xlnx,zynqmp-gem",
            "arasan,sdhci-8.9a",
            "xlnx,zynqmp-8.9a",
        ];
        match self {
            Self::Shared => compatible == "virtio,mmio",
            Self::Board => BOARD.contains(&compatible),
            Self::Pcie => compatible == "pci-host-ecam-generic",
        }
    }

    /// Returns the word for it in messages, and in names in the cache.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "virtio-drivers",
            Self::Board => "board-drivers",
            Self::Pcie => "pcie-drivers",
        }
    }
}

/// Destination. The first process loads what is there, in the order of names.
const DIRECTORY: &str = "lib/modules";

/// Returns the name in a release's cache of a kernel's modules.
fn name_of(flavor: Flavor, set: Set) -> String {
    format!("{}-{}", flavor.name(), set.name())
}

/// Returns the modules of a kernel as a compressed archive, downloading them if necessary.
///
/// # Errors
/// Also if they are of another version than the kernel in the cache.
pub fn archive(release: Release, flavor: Flavor, set: Set, cached: Cached) -> Result<CachedFile> {
    let modules = packages::kept_or_made(release, &name_of(flavor, set), cached, || {
        let unpacked = debian::arm64(release, flavor.package())?;
        Ok(NewFile {
            bytes: pack(unpacked.root.path(), set, flavor)?,
            package: unpacked.package,
            version: unpacked.version,
        })
    })?;
    let kernel = packages::kernel(release, flavor, Cached::Use)?;
    if (&kernel.package, &kernel.version) != (&modules.package, &modules.version) {
        return Err(miette!(
            help = format!(
                "`{} linux fetch --update` fetches both again",
                installation::program()
            ),
            "the cache has the kernel {} {} and the modules of {} {}",
            kernel.package,
            kernel.version,
            modules.package,
            modules.version
        ));
    }
    Ok(modules)
}

/// Returns whether the cache has the modules of a kernel.
pub fn are_kept(release: Release, flavor: Flavor, set: Set) -> bool {
    packages::is_file_kept(release, &name_of(flavor, set))
}

/// Packs modules of an unpacked kernel, each after those that it depends on.
fn pack(root: &Path, set: Set, flavor: Flavor) -> Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    for place in ["lib/modules", "usr/lib/modules"] {
        find(&root.join(place), &mut files)?;
    }
    let is_missing = |name: &&&str| !files.contains_key(&key(name));
    if let Some(missing) = set.needed().iter().find(is_missing) {
        return Err(miette!(
            help = "kernel = \"rt\" has the drivers of real devices",
            "Debian's kernel `{}` has no module {missing}",
            flavor.name()
        ));
    }
    let mut ordered = Vec::new();
    for name in set.wanted() {
        add(name, &files, &mut ordered)?;
    }
    let mut nodes: Vec<(String, Node)> = ["lib", DIRECTORY]
        .map(|name| (name.to_owned(), Node::Directory))
        .into();
    for (number, (name, bytes)) in ordered.iter().enumerate() {
        // Sets have names apart, because their archives are unpacked into one directory.
        let path = format!("{DIRECTORY}/{}-{number:02}-{name}.ko", set.name());
        nodes.push((path, Node::Program(bytes)));
    }
    archive::pack(&nodes, Compression::best())
}

/// Returns the name by which modules refer to one.
fn key(name: &str) -> String {
    name.replace('-', "_")
}

/// Adds a module after those that it depends on, unless it is there or built in.
fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    ordered: &mut Vec<(String, Vec<u8>)>,
) -> Result<()> {
    let key = key(name);
    let Some(path) = files.get(&key) else {
        return Ok(());
    };
    if ordered.iter().any(|(there, _)| *there == key) {
        return Ok(());
    }
    let mut bytes = std::fs::read(path).into_diagnostic()?;
    if path.extension().is_some_and(|kind| kind == "xz") {
        bytes = unpacked(&bytes)?;
    }
    for other in dependencies(&bytes).map_err(|error| miette!("{}: {error}", path.display()))? {
        add(&other, files, ordered)?;
    }
    ordered.push((key, bytes));
    Ok(())
}

/// Returns the modules on which one depends, as its build wrote them (Linux,
/// `scripts/mod/modpost.c`).
fn dependencies(module: &[u8]) -> object::Result<Vec<String>> {
    let file = object::File::parse(module)?;
    let Some(section) = file.section_by_name(".modinfo") else {
        return Ok(Vec::new());
    };
    let fields = section.data()?.split(|&byte| byte == 0);
    let named = fields.filter_map(|field| str::from_utf8(field).ok()?.strip_prefix("depends="));
    let names = named.flat_map(|names| names.split(','));
    Ok(names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Finds the modules below a directory, by the names with which others refer to them.
fn find(directory: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let mut open: Vec<PathBuf> = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let path = entry.into_diagnostic()?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
                continue;
            }
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let module = [".ko", ".ko.xz"]
                .iter()
                .find_map(|end| file.strip_suffix(end));
            if let Some(name) = module {
                found.insert(key(name), path);
            }
        }
    }
    Ok(())
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    XzReader::new(bytes, true)
        .read_to_end(&mut plain)
        .into_diagnostic()?;
    Ok(plain)
}
