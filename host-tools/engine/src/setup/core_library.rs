//! Rust's libraries for AArch64, bare-metal and Linux: found, added by rustup, or built from
//! source.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{Missing, announce, run_limited};
use super::{apt, consent};
use crate::installation;
use clap::ValueEnum;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The target triple of the EL2 image and the guests.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";

/// The target triple of programs for Linux guests.
pub const LINUX_TARGET: &str = "aarch64-unknown-linux-gnu";

/// A library of Rust's that the compiler needs for a target.
struct Library {
    /// Its name in messages.
    name: &'static str,
    target: &'static str,
    /// The parts whose presence is checked.
    parts: &'static [&'static str],
    /// Options that make cargo build it.
    build: &'static [&'static str],
    /// How long building it takes.
    cost: &'static str,
}

/// The library for bare-metal programs.
const CORE: Library = Library {
    name: "core library",
    target: TARGET,
    parts: &["core", "alloc", "compiler_builtins"],
    build: &[
        "-Zbuild-std=core,alloc,compiler_builtins",
        "-Zbuild-std-features=compiler-builtins-mem",
    ],
    cost: "half a minute",
};
/// The library for Linux programs.
const STD: Library = Library {
    name: "standard library",
    target: LINUX_TARGET,
    parts: &["std", "core", "alloc", "compiler_builtins", "panic_abort"],
    build: &["-Zbuild-std=std,panic_abort"],
    cost: "a minute",
};

/// The location of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreLibrary {
    /// In the toolchain itself.
    Toolchain,
    /// In a private sysroot.
    Private(PathBuf),
}

/// The source of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// `rustup target add`.
    Rustup,
    /// The toolchain's own sources, if they are installed.
    Local,
    /// The distribution's source package of the same version.
    Debian,
}

/// If set, the library that `setup` built is preferred to the toolchain's.
const PREFER_PRIVATE: &str = "CLOISON_PRIVATE_CORE_LIBRARY";

/// The Rust compiler that builds for the boards.
struct Rustc {
    /// `1.95.0`
    release: String,
    /// Distinguishes builds of one release.
    commit: String,
    sysroot: PathBuf,
}

impl Rustc {
    fn here() -> Result<Self> {
        let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let ask = |arguments: &[&str]| -> Result<String> {
            let output = Command::new(&program)
                .current_dir(installation::root())
                .args(arguments)
                .output();
            let output = output.into_diagnostic().wrap_err("cannot run rustc")?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let version = ask(&["--version", "--verbose"])?;
        let field = |name: &str| {
            let value = version
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value
                .map(str::to_owned)
                .ok_or_else(|| miette!("`rustc --version --verbose` does not report {name}"))
        };
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        Ok(Self {
            release: field("release")?,
            commit: field("commit-hash").unwrap_or_default(),
            sysroot,
        })
    }
    /// Returns the directory for libraries built for this compiler. Their format is specific to the
    /// compiler, so each has its own.
    fn private_sysroot(&self) -> PathBuf {
        let short = self.commit.get(..9).unwrap_or("unknown");
        installation::cache_dir().join(format!("sysroot-{}-{short}", self.release))
    }
}

impl Rustc {
    /// Returns the directory that stands for the compiler's own sources in what it builds.
    fn virtual_sources(&self) -> PathBuf {
        Path::new("/rustc").join(&self.commit)
    }
}

/// Returns the directories of the compiler and of its library's sources, which may not be
/// installed, and the names that stand for them in what it builds; see [`crate::cargo`].
///
/// # Errors
///
/// Returns an error if there is no compiler.
pub fn compiler_directories() -> Result<[(PathBuf, PathBuf); 2]> {
    let rustc = Rustc::here()?;
    let sources = (
        rustc.sysroot.join("lib/rustlib/src/rust"),
        rustc.virtual_sources(),
    );
    Ok([(rustc.sysroot, "/rust".into()), sources])
}

impl Library {
    fn target_dir(&self, sysroot: &Path) -> PathBuf {
        sysroot.join("lib/rustlib").join(self.target)
    }

    fn is_in(&self, sysroot: &Path) -> bool {
        let Ok(entries) = std::fs::read_dir(self.target_dir(sysroot).join("lib")) else {
            return false;
        };
        let names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        self.parts
            .iter()
            .all(|part| names.iter().any(|file| is_part(file, part)))
    }

    fn find(&self, rustc: &Rustc) -> Option<CoreLibrary> {
        let private = rustc.private_sysroot();
        let private = self
            .is_in(&private)
            .then_some(CoreLibrary::Private(private));
        let toolchain = self.is_in(&rustc.sysroot).then_some(CoreLibrary::Toolchain);
        if std::env::var_os(PREFER_PRIVATE).is_some() {
            private.or(toolchain)
        } else {
            toolchain.or(private)
        }
    }

    /// Finds the library, or gets it from the first source that provides it.
    fn find_or_get(&self) -> Result<CoreLibrary> {
        let rustc = Rustc::here()?;
        if let Some(found) = self.find(&rustc) {
            return Ok(found);
        }
        let what = format!("the {} of {}", self.name, self.target);
        let why = format!("it is missing for Rust {}", rustc.release);
        consent::obtain(&what, &why, "setup")?;
        let mut reasons = Vec::new();
        for source in [Source::Rustup, Source::Local, Source::Debian] {
            match self.get(&rustc, source) {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(error.to_string()),
            }
            announce(&reasons[reasons.len() - 1]);
        }
        Err(self.missing(&rustc, reasons.join("; ")).into())
    }

    fn missing(&self, rustc: &Rustc, why: String) -> Missing {
        let commands = format!(
            "  rustup target add {}\n\
             or one of these, after which `{} setup` builds the library:\n  \
             rustup component add rust-src\n  sudo apt-get install rust-src    (version {})",
            self.target,
            installation::program(),
            rustc.release
        );
        Missing {
            what: format!("the {} of {}", self.name, self.target),
            why,
            commands,
        }
    }

    fn get(&self, rustc: &Rustc, source: Source) -> Result<CoreLibrary> {
        match source {
            Source::Rustup => self.by_rustup(rustc),
            Source::Local => {
                let local = [
                    rustc.sysroot.join("lib/rustlib/src/rust/library"),
                    PathBuf::from(format!("/usr/src/rustc-{}/library", rustc.release)),
                ];
                let found = local
                    .into_iter()
                    .find(|library| library.join("core/Cargo.toml").exists());
                let none = || miette!("the toolchain's own sources (rust-src) are not installed");
                self.build(rustc, &found.ok_or_else(none)?)
            }
            Source::Debian => {
                // The unpacked sources take many times the library's space, so they are not kept.
                let unpacked = tempfile::tempdir().into_diagnostic()?;
                self.build(rustc, &debian_sources(rustc, unpacked.path())?)
            }
        }
    }

    fn by_rustup(&self, rustc: &Rustc) -> Result<CoreLibrary> {
        announce(&format!("running `rustup target add {}`", self.target));
        let mut command = Command::new("rustup");
        command
            .current_dir(installation::root())
            .args(["target", "add", self.target]);
        let done = run_limited(command, "rustup adds the target", Duration::from_secs(180))
            .map_err(|_| miette!("rustup is not installed"))?;
        if done.success && self.is_in(&rustc.sysroot) {
            return Ok(CoreLibrary::Toolchain);
        }
        Err(miette!(
            "rustup could not add the target ({})",
            done.reason()
        ))
    }

    /// Builds the library once and keeps it in a private sysroot.
    fn build(&self, rustc: &Rustc, source: &Path) -> Result<CoreLibrary> {
        announce(&format!(
            "building the {} from {} (once, about {})",
            self.name,
            source.display(),
            self.cost
        ));
        let scratch = tempfile::tempdir().into_diagnostic()?;
        let package = scratch.path();
        let write = || -> std::io::Result<()> {
            std::fs::create_dir(package.join("src"))?;
            // A panic ends the program, in a guest as at EL2.
            let manifest = "[package]\nname = \"seed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                [workspace]\n\
                            [profile.release]\npanic = \"abort\"\n";
            std::fs::write(package.join("Cargo.toml"), manifest)?;
            std::fs::write(package.join("src/lib.rs"), "#![no_std]\n")
        };
        write().into_diagnostic()?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(package)
            .args(["build", "--release"])
            .args(self.build);
        command.args(["--target", self.target, "--target-dir", "target"]);
        // A stable compiler can build its own library with these variables, which are set for this
        // command only.
        command
            .env("RUSTC_BOOTSTRAP", "1")
            .env("__CARGO_TESTS_ONLY_SRC_ROOT", source);
        // The library's panics name its sources as those of the toolchain's own library do,
        // wherever they were unpacked.
        let remap = format!(
            "--remap-path-prefix={}={}",
            source.display(),
            rustc.virtual_sources().join("library").display()
        );
        command
            .env("CARGO_ENCODED_RUSTFLAGS", remap)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR");
        let done = run_limited(
            command,
            &format!("building the {}", self.name),
            Duration::from_secs(900),
        )?;
        if !done.success {
            return Err(miette!(
                "the {} did not build ({})",
                self.name,
                done.reason()
            ));
        }
        let built = package
            .join("target")
            .join(self.target)
            .join("release/deps");
        let sysroot = rustc.private_sysroot();
        self.install(&built, &sysroot)
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot write {}", sysroot.display()))?;
        if self.is_in(&sysroot) {
            return Ok(CoreLibrary::Private(sysroot));
        }
        Err(miette!("cargo built no {}", self.name))
    }

    /// Copies the library from `built` into `sysroot`, where it appears atomically.
    fn install(&self, built: &Path, sysroot: &Path) -> std::io::Result<()> {
        let target = self.target_dir(sysroot);
        let parent = target.parent().unwrap_or(sysroot);
        std::fs::create_dir_all(parent)?;
        let fresh = tempfile::Builder::new()
            .prefix("fresh-")
            .tempdir_in(parent)?;
        let libraries = fresh.path().join("lib");
        std::fs::create_dir_all(&libraries)?;
        for entry in std::fs::read_dir(built)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            // Everything that it was built from, except the empty package used to build it.
            if name.ends_with(".rlib") && !is_part(name, "seed") {
                std::fs::copy(&path, libraries.join(name))?;
            }
        }
        if target.exists() {
            std::fs::remove_dir_all(&target)?;
        }
        std::fs::rename(fresh.keep(), target)
    }
}

/// Returns whether `file` is `lib<part>-<hash>.rlib`.
fn is_part(file: &str, part: &str) -> bool {
    let hash = file
        .strip_prefix("lib")
        .and_then(|rest| rest.strip_prefix(part));
    hash.is_some_and(|hash| hash.starts_with('-') && hash.ends_with(".rlib"))
}

/// Returns the core library, if this machine has it.
pub fn find() -> Result<Option<CoreLibrary>> {
    Ok(CORE.find(&Rustc::here()?))
}

/// Returns the standard library for Linux guests, if this machine has it.
pub fn find_std() -> Result<Option<CoreLibrary>> {
    Ok(STD.find(&Rustc::here()?))
}

/// Makes sure that bare-metal AArch64 code can be built. Returns the location of its core library.
pub fn core_library() -> Result<CoreLibrary> {
    CORE.find_or_get()
}

/// Makes sure that programs for Linux guests can be built. Returns the location of their standard
/// library.
pub fn standard_library() -> Result<CoreLibrary> {
    STD.find_or_get()
}

/// Gets both libraries from `source`, even if they exist already. Returns the location of the core
/// library.
pub fn core_library_from(source: Source) -> Result<CoreLibrary> {
    let rustc = Rustc::here()?;
    let get = |library: &Library| {
        library
            .get(&rustc, source)
            .map_err(|error| library.missing(&rustc, error.to_string()).into())
    };
    get(&STD)?;
    get(&CORE)
}

/// Unpacks the distribution's package of the library's source, of exactly the compiler's version.
fn debian_sources(rustc: &Rustc, unpacked: &Path) -> Result<PathBuf> {
    let distribution =
        apt::distribution().ok_or_else(|| miette!("this is not a Debian or Ubuntu machine"))?;
    let short = rustc
        .release
        .rsplit_once('.')
        .map_or(rustc.release.as_str(), |(short, _)| short);
    let packages = [
        "rust-src".to_owned(),
        format!("rust-{short}-src"),
        "rust-web-src".to_owned(),
    ];
    for suite in suites(&distribution) {
        let Some(source) = apt::derive(&suite) else {
            return Err(miette!(
                "no apt source of this machine serves {}",
                distribution.codename
            ));
        };
        announce(&format!(
            "looking for Rust {}'s library source in {suite}",
            rustc.release
        ));
        let apt = apt::PrivateApt::new(&suite, &[source])?;
        if !apt
            .update(&format!("reading the package list of {suite}"))?
            .success
        {
            continue;
        }
        for package in &packages {
            let of_this_release = |version: &String| is_release(version, &rustc.release);
            let Some(version) = apt.versions(package)?.into_iter().find(of_this_release) else {
                continue;
            };
            announce(&format!(
                "downloading package {package} {version} (about 50 MB) and building the library \
                 from it"
            ));
            let done = apt.unpack(&format!("{package}={version}"), unpacked)?;
            if let (true, Some(library)) = (done.success, library_below(unpacked)) {
                return Ok(library);
            }
            return Err(miette!(
                "package {package} {version} could not be used ({})",
                done.reason()
            ));
        }
    }
    Err(miette!(
        "no package of Rust {}'s library source was found",
        rustc.release
    ))
}

/// Returns the suites that may contain the compiler's source package, most likely first.
fn suites(distribution: &apt::Distribution) -> Vec<String> {
    let own = &distribution.codename;
    match distribution.id.as_str() {
        "debian" => {
            let mut suites = vec![own.clone(), format!("{own}-backports")];
            suites.extend(["trixie-backports", "forky", "sid"].map(str::to_owned));
            suites.dedup();
            suites
        }
        _ => vec![format!("{own}-updates"), own.clone(), "devel".to_owned()],
    }
}

/// Returns whether a package version such as `1.95.0+dfsg1-2~bpo13+1` belongs to this Rust release.
fn is_release(version: &str, release: &str) -> bool {
    let upstream = version
        .split_once(':')
        .map_or(version, |(_, upstream)| upstream);
    upstream
        .strip_prefix(release)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '-', '~']))
}

/// Returns `usr/src/<anything>/library` below `unpacked`.
fn library_below(unpacked: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(unpacked.join("usr/src")).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path().join("library"))
        .find(|path| path.join("core/Cargo.toml").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_release_will_do() {
        assert!(is_release("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_release("1:1.95.0-1", "1.95.0"));
        assert!(!is_release("1.95.01-1", "1.95.0"));
        assert!(!is_release("1.63.0+dfsg1-2", "1.95.0"));
    }

    #[test]
    fn a_library_needs_all_its_parts() {
        let sysroot = tempfile::tempdir().unwrap();
        let directory = CORE.target_dir(sysroot.path()).join("lib");
        std::fs::create_dir_all(&directory).unwrap();
        for name in CORE.parts {
            assert!(!CORE.is_in(sysroot.path()));
            std::fs::write(directory.join(format!("lib{name}-0123.rlib")), "").unwrap();
        }
        assert!(CORE.is_in(sysroot.path()) && !STD.is_in(sysroot.path()));
    }

    #[test]
    fn what_is_installed_is_the_library_and_leaves_others_alone() {
        let (built, sysroot) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in STD.parts.iter().chain(&["hashbrown", "seed"]) {
            std::fs::write(built.path().join(format!("lib{name}-0123.rlib")), "").unwrap();
        }
        CORE.install(built.path(), sysroot.path()).unwrap();
        STD.install(built.path(), sysroot.path()).unwrap();
        assert!(CORE.is_in(sysroot.path()) && STD.is_in(sysroot.path()));
        assert_eq!(
            std::fs::read_dir(STD.target_dir(sysroot.path()).join("lib"))
                .unwrap()
                .count(),
            6
        );
    }
}
