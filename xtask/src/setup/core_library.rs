//! The aarch64 core library: found, added by rustup, or built from source.

use super::{Missing, announce, apt, run_limited};
use crate::workspace::{self, TARGET};
use clap::ValueEnum;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where the aarch64 core library is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreLibrary {
    /// In the toolchain itself.
    Toolchain,
    /// In a sysroot of our own.
    Private(PathBuf),
}

/// Where the aarch64 core library comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// `rustup target add`.
    Rustup,
    /// The toolchain's own sources, where they are installed.
    Local,
    /// The distribution's source package of the same version.
    Debian,
}

/// Set to anything, the library that set-up built is preferred to the toolchain's.
const PREFER_PRIVATE: &str = "CLOISON_PRIVATE_CORE_LIBRARY";

/// The three libraries that a bare-metal program needs.
const CRATES: [&str; 3] = ["core", "alloc", "compiler_builtins"];

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
            let output = Command::new(&program).current_dir(workspace::root()).args(arguments).output();
            let output = output.into_diagnostic().wrap_err("cannot run rustc")?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let version = ask(&["--version", "--verbose"])?;
        let field = |name: &str| {
            let value = version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.map(str::to_owned).ok_or_else(|| miette!("`rustc --version --verbose` names no {name}"))
        };
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        Ok(Self { release: field("release")?, commit: field("commit-hash").unwrap_or_default(), sysroot })
    }
    fn has_library(&self) -> bool {
        holds_library(&self.sysroot)
    }
    /// Where the library that is built for this compiler goes. Its format is the compiler's own, so each has one.
    fn private_sysroot(&self) -> PathBuf {
        let short = self.commit.get(..9).unwrap_or("unknown");
        workspace::cache_dir().join(format!("sysroot-{}-{short}", self.release))
    }
}

fn library_dir(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(TARGET).join("lib")
}

fn holds_library(sysroot: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(library_dir(sysroot)) else { return false };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    CRATES.iter().all(|part| names.iter().any(|file| is_library(file, part)))
}

/// Whether `file` is `lib<part>-<hash>.rlib`.
fn is_library(file: &str, part: &str) -> bool {
    let hash = file.strip_prefix("lib").and_then(|rest| rest.strip_prefix(part));
    hash.is_some_and(|hash| hash.starts_with('-') && hash.ends_with(".rlib"))
}

/// The library if this machine has it.
pub fn find() -> Result<Option<CoreLibrary>> {
    let rustc = Rustc::here()?;
    Ok(find_for(&rustc))
}

fn find_for(rustc: &Rustc) -> Option<CoreLibrary> {
    let private = rustc.private_sysroot();
    let private = holds_library(&private).then_some(CoreLibrary::Private(private));
    let toolchain = rustc.has_library().then_some(CoreLibrary::Toolchain);
    if std::env::var_os(PREFER_PRIVATE).is_some() { private.or(toolchain) } else { toolchain.or(private) }
}

/// Makes sure that bare-metal AArch64 code can be built, and says where its core library is.
pub fn core_library() -> Result<CoreLibrary> {
    let rustc = Rustc::here()?;
    if let Some(found) = find_for(&rustc) {
        return Ok(found);
    }
    announce(&format!("the core library of {TARGET} is missing for Rust {}", rustc.release));
    let mut reasons = Vec::new();
    for source in [Source::Rustup, Source::Local, Source::Debian] {
        match get(&rustc, source) {
            Ok(library) => return Ok(library),
            Err(error) => reasons.push(error.to_string()),
        }
        announce(&reasons[reasons.len() - 1]);
    }
    Err(missing(&rustc, reasons.join("; ")).into())
}

/// Gets the library from `source`, whatever is there already.
pub fn core_library_from(source: Source) -> Result<CoreLibrary> {
    let rustc = Rustc::here()?;
    get(&rustc, source).map_err(|error| missing(&rustc, error.to_string()).into())
}

fn missing(rustc: &Rustc, why: String) -> Missing {
    let commands = format!(
        "  rustup target add {TARGET}\nor one of these, after which `cargo xtask setup` builds the library:\n  \
         rustup component add rust-src\n  sudo apt-get install rust-src    (version {})",
        rustc.release
    );
    Missing { what: format!("the core library of {TARGET}"), why, commands }
}

fn get(rustc: &Rustc, source: Source) -> Result<CoreLibrary> {
    match source {
        Source::Rustup => by_rustup(rustc),
        Source::Local => {
            let local = [
                rustc.sysroot.join("lib/rustlib/src/rust/library"),
                PathBuf::from(format!("/usr/src/rustc-{}/library", rustc.release)),
            ];
            let found = local.into_iter().find(|library| library.join("core/Cargo.toml").exists());
            build(rustc, &found.ok_or_else(|| miette!("the toolchain's own sources (rust-src) are not installed"))?)
        }
        Source::Debian => {
            // The unpacked sources take many times the library's space; they are not kept.
            let unpacked = tempfile::tempdir().into_diagnostic()?;
            build(rustc, &debian_sources(rustc, unpacked.path())?)
        }
    }
}

fn by_rustup(rustc: &Rustc) -> Result<CoreLibrary> {
    announce(&format!("running `rustup target add {TARGET}`"));
    let mut command = Command::new("rustup");
    command.current_dir(workspace::root()).args(["target", "add", TARGET]);
    let done = run_limited(command, "rustup adds the target", Duration::from_secs(180))
        .map_err(|_| miette!("rustup is not installed"))?;
    if done.success && rustc.has_library() {
        return Ok(CoreLibrary::Toolchain);
    }
    Err(miette!("rustup could not add the target ({})", done.reason()))
}

/// Unpacks the distribution's package of the library's source, of exactly the compiler's version.
fn debian_sources(rustc: &Rustc, unpacked: &Path) -> Result<PathBuf> {
    let distribution = apt::distribution().ok_or_else(|| miette!("this is not a Debian or Ubuntu machine"))?;
    let short = rustc.release.rsplit_once('.').map_or(rustc.release.as_str(), |(short, _)| short);
    let packages = ["rust-src".to_owned(), format!("rust-{short}-src"), "rust-web-src".to_owned()];
    for suite in suites(&distribution) {
        let Some(source) = apt::derive(&suite) else {
            return Err(miette!("no apt source of this machine serves {}", distribution.codename));
        };
        announce(&format!("looking for Rust {}'s library source in {suite}", rustc.release));
        let apt = apt::PrivateApt::new(&suite, &[source])?;
        if !apt.update(&format!("reading the package list of {suite}"))?.success {
            continue;
        }
        for package in &packages {
            let of_this_release = |version: &String| is_release(version, &rustc.release);
            let Some(version) = apt.versions(package)?.into_iter().find(of_this_release) else { continue };
            announce(&format!(
                "downloading package {package} {version} (about 50 MB) and building the library from it"
            ));
            let done = apt.unpack(&format!("{package}={version}"), unpacked)?;
            if let (true, Some(library)) = (done.success, library_below(unpacked)) {
                return Ok(library);
            }
            return Err(miette!("package {package} {version} could not be used ({})", done.reason()));
        }
    }
    Err(miette!("no package of Rust {}'s library source was found", rustc.release))
}

/// The suites that may hold the source package of the compiler, most likely first.
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

/// Whether a package version such as `1.95.0+dfsg1-2~bpo13+1` is of this Rust release.
fn is_release(version: &str, release: &str) -> bool {
    let upstream = version.split_once(':').map_or(version, |(_, upstream)| upstream);
    upstream.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '-', '~']))
}

/// `usr/src/<anything>/library` below `unpacked`.
fn library_below(unpacked: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(unpacked.join("usr/src")).ok()?;
    entries.flatten().map(|entry| entry.path().join("library")).find(|path| path.join("core/Cargo.toml").exists())
}

/// Builds the library once and keeps it in a sysroot of our own.
fn build(rustc: &Rustc, library: &Path) -> Result<CoreLibrary> {
    announce(&format!("building the core library from {} (once, about half a minute)", library.display()));
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let package = scratch.path();
    let write = || -> std::io::Result<()> {
        std::fs::create_dir(package.join("src"))?;
        let manifest = "[package]\nname = \"seed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(package.join("Cargo.toml"), manifest)?;
        std::fs::write(package.join("src/lib.rs"), "#![no_std]\n")
    };
    write().into_diagnostic()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(package).args([
        "build",
        "--release",
        "-Zbuild-std=core,alloc,compiler_builtins",
        "-Zbuild-std-features=compiler-builtins-mem",
        "--target",
        TARGET,
        "--target-dir",
        "target",
    ]);
    // A stable compiler builds its own library with these; both are for this one command only.
    command.env("RUSTC_BOOTSTRAP", "1").env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    let done = run_limited(command, "building the core library", Duration::from_secs(900))?;
    if !done.success {
        return Err(miette!("the core library did not build ({})", done.reason()));
    }
    let built = package.join("target").join(TARGET).join("release/deps");
    let sysroot = rustc.private_sysroot();
    install(&built, &sysroot).into_diagnostic().wrap_err_with(|| miette!("cannot write {}", sysroot.display()))?;
    if holds_library(&sysroot) {
        return Ok(CoreLibrary::Private(sysroot));
    }
    Err(miette!("cargo built no core library"))
}

/// Copies the libraries from `built` into `sysroot`, which appears whole or not at all.
fn install(built: &Path, sysroot: &Path) -> std::io::Result<()> {
    let parent = sysroot.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)?;
    let fresh = tempfile::Builder::new().prefix("sysroot-").tempdir_in(parent)?;
    let libraries = library_dir(fresh.path());
    std::fs::create_dir_all(&libraries)?;
    for entry in std::fs::read_dir(built)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if CRATES.iter().any(|part| is_library(name, part)) {
            std::fs::copy(&path, libraries.join(name))?;
        }
    }
    if sysroot.exists() {
        std::fs::remove_dir_all(sysroot)?;
    }
    std::fs::rename(fresh.keep(), sysroot)
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
        let directory = library_dir(sysroot.path());
        std::fs::create_dir_all(&directory).unwrap();
        for name in CRATES {
            assert!(!holds_library(sysroot.path()));
            std::fs::write(directory.join(format!("lib{name}-0123.rlib")), "").unwrap();
        }
        assert!(holds_library(sysroot.path()));
    }
}
