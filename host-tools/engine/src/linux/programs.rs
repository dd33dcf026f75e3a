//! Programs of Debian packages for the RAM disk, with the shared libraries that they are linked
//! with.
//!
//! From the named packages, their programs are taken (files in `bin` and `sbin`, for AArch64 or for
//! `/bin/sh`). From the packages that they depend on, only the libraries that some ELF file needs
//! by name (`DT_NEEDED`), and the dynamic linker. Useless files are thus left out without an
//! exclusion list: interpreters and their modules (perf is linked with libpython and libperl, but
//! needs no script to count), documentation, locales, settings. Programs in a language without an
//! interpreter in the RAM disk are left out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::archive::{self, Node};
use super::packages::{self, Cached, CachedFile, NewFile};
use crate::setup::debian::{self, Archive, Unpacked};
use cloison_config::guest_linux::Release;
use flate2::Compression;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Directories in which packages have their programs.
const PLACES: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "sbin"];
/// Destination of libraries: the dynamic linker searches it first.
const LIBRARIES: &str = "lib/aarch64-linux-gnu";
/// A library that the C library loads by itself to end threads: the package that needs it, and its
/// name.
const UNNAMED: (&str, &str) = ("libc6", "libgcc_s.so.1");
/// First line of scripts that the RAM disk can run.
const SHELL: &[u8] = b"#!/bin/sh";
/// Maximum number of symbolic links followed in a row.
const MOST_LINKS: usize = 16;

/// Returns the programs of these packages of a release and their libraries as a compressed archive,
/// downloading them if necessary.
pub fn archive(release: Release, names: &[String], cached: Cached) -> Result<CachedFile> {
    packages::kept_or_made(release, &packages::programs_of(names), cached, || {
        let missing = |error| debian::missing(release, &names.join(", "), &error);
        let archive = Archive::open(release).map_err(missing)?;
        let mut collected = Collected {
            archive,
            packages: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        for name in names {
            collected.add(name)?;
        }
        collected.finish(names)
    })
}

/// The packages and files collected so far.
struct Collected {
    archive: Archive,
    /// Unpacked packages by name, with the packages that each depends on.
    packages: BTreeMap<String, (Unpacked, Vec<String>)>,
    /// Files by path in the RAM disk.
    files: BTreeMap<String, File>,
}

enum File {
    Bytes(Vec<u8>),
    Link(String),
}

/// The needs of an ELF file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wants {
    /// Path of the dynamic linker.
    interpreter: Option<String>,
    /// Names of the libraries.
    libraries: Vec<String>,
}

impl Collected {
    /// Unpacks a package unless that has been done already.
    fn unpack(&mut self, name: &str) -> Result<&(Unpacked, Vec<String>)> {
        if !self.packages.contains_key(name) {
            let unpacked = self
                .archive
                .unpack(name)
                .map_err(|error| debian::missing(self.archive.release(), name, &error))?;
            let dependencies = self.archive.dependencies(name)?;
            self.packages
                .insert(name.to_owned(), (unpacked, dependencies));
        }
        self.packages
            .get(name)
            .ok_or_else(|| miette!("{name} is not unpacked"))
    }

    /// Adds a package's programs and what they need. If a package without programs only depends on
    /// a versioned one (`linux-perf` in some releases), that one is used.
    fn add(&mut self, name: &str) -> Result<()> {
        if !self.archive.has(name)? {
            return Err(miette!(
                help = "write the name as `apt-cache search` shows it",
                "Debian {} has no package `{name}` for arm64",
                self.archive.release()
            ));
        }
        let (unpacked, dependencies) = self.unpack(name)?;
        let mut home = name.to_owned();
        let mut programs = programs(unpacked.root.path())?;
        if programs.is_empty()
            && let Some(versioned) = dependencies
                .iter()
                .find(|other| other.starts_with(&format!("{name}-")))
                .cloned()
        {
            programs = self::programs(self.unpack(&versioned)?.0.root.path())?;
            home = versioned;
        }
        if programs.is_empty() {
            return Err(miette!(
                help = "list packages that have programs for AArch64; their libraries are added \
                        automatically",
                "Debian's package {name} has no program that can run in the RAM disk"
            ));
        }
        for (path, file) in programs {
            if let File::Bytes(bytes) = &file {
                self.follow(&home, &path, bytes)?;
            }
            self.files.insert(path, file);
        }
        Ok(())
    }

    /// Adds everything that a file of a package needs, directly or indirectly.
    fn follow(&mut self, package: &str, path: &str, bytes: &[u8]) -> Result<()> {
        let mut open = vec![(
            package.to_owned(),
            path.to_owned(),
            wants(bytes).unwrap_or_default(),
        )];
        while let Some((package, path, wants)) = open.pop() {
            let mut sought: Vec<(String, String)> = Vec::new();
            if let Some(interpreter) = &wants.interpreter {
                let name = interpreter
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                sought.push((name, interpreter.trim_start_matches('/').to_owned()));
            }
            let linkers: Vec<&str> = self
                .files
                .keys()
                .filter_map(|path| path.strip_prefix("lib/"))
                .collect();
            for name in wants.libraries {
                // The dynamic linker has already been added when a library needs it.
                let is_linker = linkers.contains(&name.as_str())
                    || sought.iter().any(|(known, _)| *known == name);
                if !is_linker {
                    sought.push((name.clone(), format!("{LIBRARIES}/{name}")));
                }
            }
            for (name, place) in sought {
                if self.files.contains_key(&place) {
                    continue;
                }
                let (owner, bytes) = self
                    .library(&package, &name)
                    .wrap_err_with(|| miette!("{path} needs {name}"))?;
                let mut further = self::wants(&bytes).unwrap_or_default();
                if owner == UNNAMED.0 && !further.libraries.iter().any(|known| known == UNNAMED.1) {
                    further.libraries.push(UNNAMED.1.to_owned());
                }
                open.push((owner, place.clone(), further));
                self.files.insert(place, File::Bytes(bytes));
            }
        }
        Ok(())
    }

    /// Finds a library in a package or in its dependencies. Debian names packages after their
    /// libraries (`libelf1` has `libelf.so.1`), so packages with the most similar names are
    /// searched first.
    fn library(&mut self, package: &str, name: &str) -> Result<(String, Vec<u8>)> {
        let (unpacked, dependencies) = self.unpack(package)?;
        if let Some(bytes) = find(unpacked.root.path(), name)? {
            return Ok((package.to_owned(), bytes));
        }
        let mut candidates = dependencies.clone();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(common_prefix(candidate, name)));
        for candidate in candidates {
            if let Some(bytes) = find(self.unpack(&candidate)?.0.root.path(), name)? {
                return Ok((candidate, bytes));
            }
        }
        Err(miette!(
            "neither {package} nor a package that it depends on contains it"
        ))
    }

    /// Builds the archive.
    fn finish(self, names: &[String]) -> Result<NewFile> {
        let mut directories = BTreeSet::new();
        for path in self.files.keys() {
            directories.extend(
                Path::new(path)
                    .ancestors()
                    .skip(1)
                    .map(|path| path.display().to_string()),
            );
        }
        directories.remove("");
        let directory = |path: String| (path, Node::Directory);
        let mut nodes: Vec<(String, Node)> = directories.into_iter().map(directory).collect();
        nodes.extend(self.files.iter().map(|(path, file)| {
            let node = match file {
                File::Bytes(bytes) => Node::Program(bytes),
                File::Link(target) => Node::Link(target),
            };
            (path.clone(), node)
        }));
        let bytes = archive::pack(&nodes, Compression::best())?;
        let version: Vec<String> = self
            .packages
            .values()
            .map(|(unpacked, _)| format!("{} {}", unpacked.package, unpacked.version))
            .collect();
        Ok(NewFile {
            package: names.join(", "),
            version: version.join(", "),
            bytes,
        })
    }
}

/// Returns a package's programs by path.
fn programs(root: &Path) -> Result<Vec<(String, File)>> {
    let mut found = Vec::new();
    for place in PLACES {
        let Ok(entries) = std::fs::read_dir(root.join(place)) else {
            continue;
        };
        for entry in entries {
            let name = entry.into_diagnostic()?.file_name();
            let path = Path::new(place).join(&name);
            // A link out of the package leads nowhere here.
            let Some(target) = resolve(root, &path) else {
                continue;
            };
            let bytes = read(&root.join(&target))?;
            if wants(&bytes).is_none() && !bytes.starts_with(SHELL) {
                continue;
            }
            let text = |path: &Path| path.display().to_string();
            if target == path {
                found.push((text(&path), File::Bytes(bytes)));
            } else {
                found.push((text(&path), File::Link(format!("/{}", target.display()))));
                if !PLACES
                    .iter()
                    .any(|place| target.parent() == Some(Path::new(place)))
                {
                    found.push((text(&target), File::Bytes(bytes)));
                }
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Returns the file with this name from a package's library directories.
fn find(root: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let mut open: Vec<PathBuf> = ["lib", "usr/lib"].map(PathBuf::from).into();
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&directory)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.into_diagnostic()?;
            let path = directory.join(entry.file_name());
            if entry.file_type().into_diagnostic()?.is_dir() {
                open.push(path);
            } else if entry.file_name() == name
                && let Some(target) = resolve(root, &path)
            {
                return read(&root.join(target)).map(Some);
            }
        }
    }
    Ok(None)
}

/// Returns the file to which a path in a package leads, through symbolic links that never leave the
/// package.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(root.join(&path)) else {
            return root.join(&path).is_file().then_some(path);
        };
        // An absolute target starts again at the package's root.
        let joined = path.parent().unwrap_or(Path::new("")).join(target);
        let mut plain = PathBuf::new();
        for part in joined.components() {
            match part {
                Component::Normal(part) => plain.push(part),
                Component::ParentDir => drop(plain.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        path = plain;
    }
    None
}

/// Returns what an ELF file for AArch64 needs; `None` for other files.
fn wants(bytes: &[u8]) -> Option<Wants> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let endian = LittleEndian;
    if header.e_machine(endian) != elf::EM_AARCH64 {
        return None;
    }
    let segments = header.program_headers(endian, bytes).ok()?;
    let mut wants = Wants::default();
    for segment in segments {
        if let Ok(Some(interpreter)) = segment.interpreter(endian, bytes) {
            wants.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
    }
    let sections = header.sections(endian, bytes).ok()?;
    if let Ok(Some((entries, strings))) = sections.dynamic(endian, bytes) {
        let strings = sections.strings(endian, bytes, strings).ok()?;
        for entry in entries
            .iter()
            .filter(|entry| entry.tag(endian) == elf::DT_NEEDED)
        {
            let name = entry.string(endian, strings).ok()?;
            wants
                .libraries
                .push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Some(wants)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot read {}", path.display()))
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside_their_package() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("usr/bin/tool-1"), "#!/bin/sh\n").unwrap();
        std::fs::write(root.join("usr/bin/script"), "#!/usr/bin/python3\n").unwrap();
        for (name, target) in [
            ("tool", "tool-1"),
            ("abs", "/usr/bin/tool"),
            ("out", "/etc/passwd"),
            ("loop", "loop"),
        ] {
            std::os::unix::fs::symlink(target, root.join("usr/bin").join(name)).unwrap();
        }
        assert_eq!(
            resolve(root, Path::new("usr/bin/abs")),
            Some("usr/bin/tool-1".into())
        );
        assert_eq!(resolve(root, Path::new("usr/bin/out")), None);
        assert_eq!(resolve(root, Path::new("usr/bin/loop")), None);
        let names: Vec<String> = programs(root)
            .unwrap()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(names, ["usr/bin/abs", "usr/bin/tool", "usr/bin/tool-1"]);
    }

    #[test]
    fn libraries_are_found_below_lib_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        std::fs::create_dir_all(root.join("usr/lib/aarch64-linux-gnu")).unwrap();
        std::fs::write(root.join("usr/lib/aarch64-linux-gnu/libx.so.1.2"), "x").unwrap();
        std::os::unix::fs::symlink(
            "libx.so.1.2",
            root.join("usr/lib/aarch64-linux-gnu/libx.so.1"),
        )
        .unwrap();
        std::fs::write(root.join("liby.so.1"), "y").unwrap();
        assert_eq!(
            find(root, "libx.so.1").unwrap().as_deref(),
            Some(b"x".as_slice())
        );
        assert_eq!(find(root, "liby.so.1").unwrap(), None);
    }

    #[test]
    fn what_is_no_program_for_this_machine_asks_for_nothing() {
        assert_eq!(wants(b"#!/bin/sh\n"), None);
        assert_eq!(
            wants(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).is_some(),
            cfg!(target_arch = "aarch64")
        );
    }
}
