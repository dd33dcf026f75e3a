//! Modules of Debian's kernels for the devices of links and the memory of channels, for the RAM
//! disk.
//!
//! They are unmodified, apart from their compression by xz: `insmod` takes them as they were built.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::archive::{self, Node};
use super::packages::{self, Cached, CachedFile, NewFile};
use crate::installation;
use crate::setup::debian;
use cloison_config::guest_linux::{Flavor, Release};
use flate2::Compression;
use lzma_rust2::XzReader;
use miette::{IntoDiagnostic, Result, miette};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The modules, in the order in which they can be loaded. A kernel that lacks one has it built in.
const MODULES: [&str; 12] = [
    "virtio_ring",
    "virtio",
    "virtio_mmio",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_console",
    "libnvdimm",
    "dax",
    "nd_btt",
    "nd_pmem",
    "of_pmem",
];
/// Those that no kernel has built in.
const NEEDED: [&str; 3] = ["virtio_mmio", "virtio_net", "of_pmem"];
/// Destination. The first process loads what is there, in the order of names.
const DIRECTORY: &str = "lib/modules";

/// Returns the name in a release's cache of a kernel's modules.
fn name_of(flavor: Flavor) -> String {
    format!("{}-drivers", flavor.name())
}

/// Returns the modules of a kernel as a compressed archive, downloading them if necessary.
///
/// # Errors
/// Also if they are of another version than the kernel in the cache.
pub fn archive(release: Release, flavor: Flavor, cached: Cached) -> Result<CachedFile> {
    let modules = packages::kept_or_made(release, &name_of(flavor), cached, || {
        let unpacked = debian::arm64(release, flavor.package())?;
        Ok(NewFile {
            bytes: pack(unpacked.root.path())?,
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
pub fn are_kept(release: Release, flavor: Flavor) -> bool {
    packages::is_file_kept(release, &name_of(flavor))
}

/// Packs the modules of an unpacked kernel.
fn pack(root: &Path) -> Result<Vec<u8>> {
    let mut found = BTreeMap::new();
    for place in ["lib/modules", "usr/lib/modules"] {
        collect(&root.join(place), &mut found)?;
    }
    if let Some(missing) = NEEDED.iter().find(|name| !found.contains_key(**name)) {
        return Err(miette!("the package has no module {missing}"));
    }
    let mut nodes: Vec<(String, Node)> = ["lib", DIRECTORY]
        .map(|name| (name.to_owned(), Node::Directory))
        .into();
    for (number, name) in MODULES.iter().enumerate() {
        if let Some(bytes) = found.get(*name) {
            let path = format!("{DIRECTORY}/{number:02}-{name}.ko");
            nodes.push((path, Node::Program(bytes)));
        }
    }
    archive::pack(&nodes, Compression::best())
}

/// Reads those of [`MODULES`] that are below a directory.
fn collect(directory: &Path, found: &mut BTreeMap<&'static str, Vec<u8>>) -> Result<()> {
    let mut open: Vec<PathBuf> = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let path = entry.into_diagnostic()?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
                continue;
            }
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(name) = MODULES.iter().find(|name| {
                let rest = file.strip_prefix(**name);
                matches!(rest, Some(".ko" | ".ko.xz"))
            }) else {
                continue;
            };
            let bytes = std::fs::read(&path).into_diagnostic()?;
            let bytes = if file.ends_with(".xz") {
                unpacked(&bytes)?
            } else {
                bytes
            };
            found.insert(name, bytes);
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
