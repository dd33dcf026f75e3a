//! ELF files: the program's hash, and where its functions are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_profile::layout::PAGE;
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, SymbolFlags, SymbolKind};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Type of symbols that a program resolves when it starts (`STT_GNU_IFUNC`).
const INDIRECT: u8 = 10;

/// A program or shared library.
pub struct Binary {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The facts of an ELF file that starting it needs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its entry point as the file has it, before the program is relocated.
    pub entry: u64,
    /// Address of its first segment as the file has it.
    pub base: u64,
}

impl Binary {
    /// Reads a file. Programs without `/` in their name are looked for in `PATH`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = find(path);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self { path, bytes }),
            Err(source) => Err(Error::File {
                what: "read",
                path,
                source,
            }),
        }
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the SHA-256 of the file, hexadecimal.
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.bytes)
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    fn parse(&self) -> Result<object::File<'_>, Error> {
        let wrong = |reason: String| Error::NotElf {
            path: self.path.clone(),
            reason,
        };
        let file = object::File::parse(&*self.bytes).map_err(|error| wrong(error.to_string()))?;
        match file.architecture() {
            Architecture::Aarch64 => Ok(file),
            other => Err(Error::Machine {
                path: self.path.clone(),
                machine: format!("{other:?}"),
            }),
        }
    }

    /// Returns the facts that starting the program needs.
    pub fn facts(&self) -> Result<Facts, Error> {
        let file = self.parse()?;
        let first = file.segments().map(|segment| segment.address()).min();
        let base = first.ok_or_else(|| Error::NotElf {
            path: self.path.clone(),
            reason: "nothing to load".into(),
        })?;
        Ok(Facts {
            entry: file.entry(),
            base: base / PAGE * PAGE,
        })
    }

    /// Returns the address of a function as the file has it, before the program is relocated.
    pub fn function(&self, symbol: &str) -> Result<u64, Error> {
        let file = self.parse()?;
        let mut any = false;
        for entry in file.symbols().chain(file.dynamic_symbols()) {
            any = true;
            if entry.is_undefined() || !entry.name().is_ok_and(|name| is_named(name, symbol)) {
                continue;
            }
            if let SymbolFlags::Elf { st_info, .. } = entry.flags()
                && st_info.0 & 0xf == INDIRECT
            {
                return Err(Error::Indirect(symbol.to_owned()));
            }
            if entry.kind() == SymbolKind::Text {
                return Ok(entry.address());
            }
        }
        Err(Error::Symbol {
            path: self.path.clone(),
            symbol: symbol.to_owned(),
            stripped: !any,
        })
    }
}

/// Returns whether a symbol has this name, or is that of the Rust function with this path.
fn is_named(name: &str, wanted: &str) -> bool {
    name == wanted
        || rustc_demangle::try_demangle(name).is_ok_and(|path| format!("{path:#}") == wanted)
}

/// Returns the path of a program, from `PATH` if its name has no `/`.
fn find(path: &Path) -> PathBuf {
    let is_name =
        path.components().count() == 1 && !path.as_os_str().to_string_lossy().contains('/');
    let places = std::env::var_os("PATH")
        .filter(|_| is_name)
        .unwrap_or_default();
    let found = std::env::split_paths(&places)
        .map(|place| place.join(path))
        .find(|file| file.is_file());
    let found = found.unwrap_or_else(|| path.to_owned());
    // `/proc/PID/maps` names files by their real paths.
    found.canonicalize().unwrap_or(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_rust_have_their_paths_as_names() {
        assert!(is_named("main", "main"));
        assert!(is_named(
            "_ZN6system3run17h0123456789abcdefE",
            "system::run"
        ));
        assert!(!is_named("_ZN6system3run17h0123456789abcdefE", "system"));
    }

    #[test]
    fn what_is_not_for_this_machine_is_refused() {
        let own = Binary::open(&std::env::current_exe().unwrap()).unwrap();
        if cfg!(target_arch = "x86_64") {
            let error = own.function("main").unwrap_err();
            assert!(
                matches!(&error, Error::Machine { machine, .. } if machine == "X86_64"),
                "{error}"
            );
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let script = Binary::open(file.path()).unwrap();
        assert!(matches!(script.function("main"), Err(Error::NotElf { .. })));
        assert!(matches!(
            Binary::open(Path::new("/nowhere/at-all")),
            Err(Error::File { .. })
        ));
    }
}
