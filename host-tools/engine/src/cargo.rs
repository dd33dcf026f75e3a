//! Builds the EL2 image and the guests with cargo, for bare-metal AArch64.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::write_atomic;
use crate::installation;
use crate::progress::spinner;
use crate::setup::core_library::{LINUX_TARGET, TARGET};
use crate::setup::{self, CoreLibrary};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use xshell::{Cmd, Shell, cmd};

/// The package of the EL2 image, and its binary.
pub const HYPERVISOR: (&str, &str) = ("cloison-el2", "cloison-el2");
/// The package of the hello image, and its binary.
pub const HELLO: (&str, &str) = ("cloison-hello-image", "cloison-hello-image");
/// The package whose binaries are the shipped guests.
pub const WORKLOADS: &str = "cloison-workloads";
/// The package of the C library for guests, and the library's file.
const EPAPI: (&str, &str) = ("cloison-epapi-c", "libepapi.a");
/// Its directory below the target directory.
const EPAPI_DIRECTORY: &str = "epapi";
/// The name of the checkout's directory in the line tables of what is built.
pub const SOURCES: &str = "/cloison";
/// The directory of programs that keep their symbols, below the target directory.
const SYMBOLS_KEPT: &str = "with-symbols";
/// The package and the binary of the profiler for Linux guests. The package's other binaries are
/// programs to profile.
pub const PROFILER: &str = "bbprof";
/// The package whose binaries run in Linux guests, for the tests.
pub const LINUX_TOOLS: &str = "cloison-test-guests";
/// The package of the fuzzer's guest, and its binary.
pub const PUPPET: (&str, &str) = ("cloison-puppet-guest", "puppet");
/// The package of the tests' firmware, and its binary.
pub const TEST_FIRMWARE: (&str, &str) = ("cloison-test-firmware", "firmware");
/// The feature that makes the hypervisor's allocator return wrong frames occasionally, for the
/// tests of `inspect --live`.
pub const FAULT_INJECTION: &str = "fault-injection";

/// The feature of the hypervisor for boards with a GICv3 instead of a GICv2.
pub const GICV3: &str = "gicv3";

/// The environment variables that carry the flags of rustc and of rustdoc. With `--target` they
/// apply to the target only, so that build scripts and host tools are not rebuilt; and their
/// separator lets a path contain spaces.
const RUSTFLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
const RUSTDOCFLAGS: &str = "CARGO_ENCODED_RUSTDOCFLAGS";
const SEPARATOR: &str = "\x1f";
/// The environment variable with the directory of what cargo compiles on the way.
const BUILD_DIRECTORY: &str = "CARGO_BUILD_BUILD_DIR";

/// What keeps the compiler from emitting the sequences of erratum 835769, and the linker from
/// leaving those of 843419: the ZCU102's cores may execute them wrongly. Only a build needs them.
const ERRATA: [&str; 2] = [
    "-Ctarget-feature=+fix-cortex-a53-835769",
    "-Clink-arg=--fix-cortex-a53-843419",
];

/// Compiler flags of all code for the boards, guests too. Frame pointers provide the backtrace of a
/// fatal exception.
pub const TARGET_FLAGS: [&str; 2] = ["-Cforce-frame-pointers=yes", "-Ctarget-cpu=cortex-a53"];

/// Part of the compiler's warning that it passes [`ERRATA`] on without knowing it.
const UNKNOWN_FEATURE: &str = "feature specified for `-Ctarget-feature`: `fix-cortex-a53-835769`";

/// The package and the binary of the command for Linux guests.
pub const CLIENT: (&str, &str) = ("cloison-client", "cloisonctl");

/// Returns cargo's home directory, with its registry: `CARGO_HOME`, or `.cargo` in the user's own.
pub fn home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// Returns a `cargo` command that builds for the boards, with the right core library, flags and
/// target.
pub fn cargo<'a>(shell: &'a Shell, subcommand: &str) -> Result<Cmd<'a>> {
    let library = setup::core_library()?;
    let mut flags = TARGET_FLAGS.map(str::to_owned).to_vec();
    flags.extend(library_flag(&library));
    shell.change_dir(installation::root());
    let rustdoc = [flags.as_slice(), &["-Dwarnings".to_owned()]]
        .concat()
        .join(SEPARATOR);
    // To rustdoc this is an unstable option, and nothing that it writes is in an image.
    flags.extend(path_flags(&library)?);
    if ["build", "rustc"].contains(&subcommand) {
        flags.extend(ERRATA.map(str::to_owned));
    }
    // Incremental builds divide the code otherwise, and so count other instructions: images do not
    // depend on the variable.
    Ok(cmd!(shell, "cargo {subcommand} --target {TARGET}")
        .env("CARGO_INCREMENTAL", "0")
        .env(RUSTFLAGS, flags.join(SEPARATOR))
        .env(RUSTDOCFLAGS, rustdoc))
}

/// Puts what a build makes into a directory below the target directory, so that it does not replace
/// what an ordinary build makes by the same name. Both share the crates that are the same.
fn apart<'a>(command: Cmd<'a>, directory: &str) -> Cmd<'a> {
    let target = installation::target_dir();
    command
        .env(BUILD_DIRECTORY, &target)
        .arg("--target-dir")
        .arg(target.join(directory))
}

/// Returns the flag that selects a library for the target, if that is not the compiler's own.
pub fn library_flag(library: &CoreLibrary) -> Option<String> {
    match library {
        CoreLibrary::Private(sysroot) => Some(format!("--sysroot={}", sysroot.display())),
        _ => None,
    }
}

/// Returns the flags that keep this machine's paths out of what is built.
fn path_flags(library: &CoreLibrary) -> Result<Vec<String>> {
    let mut directories = Vec::from(setup::compiler_directories()?);
    if let CoreLibrary::Private(sysroot) = library {
        directories.push((sysroot.clone(), "/rust".into()));
    }
    directories.extend(source_directories());
    let remap = |(from, to): &(PathBuf, PathBuf)| {
        format!("--remap-path-prefix={}={}", from.display(), to.display())
    };
    Ok(with_links_followed(&directories)
        .iter()
        .map(remap)
        .collect())
}

/// Returns the directories with sources whose names must not reach an image, each with the name
/// that does instead. The text of a panic holds the path of its source: without this, the same
/// source would make another image, with another layout and in other cache sets, on another
/// machine.
fn source_directories() -> Vec<(PathBuf, PathBuf)> {
    let cargo_home = home().unwrap_or_default();
    // A registry's directory is named after the place from which it came, so it must not be part of
    // the new name.
    let registries = std::fs::read_dir(cargo_home.join("registry/src"))
        .into_iter()
        .flatten()
        .flatten();
    let registries: Vec<_> = registries
        .map(|entry| (entry.path(), "/registry".into()))
        .collect();
    let mut all = vec![(cargo_home, "/cargo".into())];
    all.extend(registries);
    all.extend([
        (installation::root(), SOURCES.into()),
        (installation::target_dir(), "/target".into()),
    ]);
    all
}

/// Adds each directory's real path, because either may reach the compiler. Of several that match a
/// path, rustc takes the last.
fn with_links_followed(directories: &[(PathBuf, PathBuf)]) -> Vec<(PathBuf, PathBuf)> {
    let both = |(from, to): &(PathBuf, PathBuf)| {
        let real = from.canonicalize().ok().filter(|real| real != from);
        std::iter::once(from.clone())
            .chain(real)
            .map(|from| (from, to.clone()))
            .collect::<Vec<_>>()
    };
    directories
        .iter()
        .flat_map(both)
        .filter(|(from, _)| from.is_absolute())
        .collect()
}

/// The environment variable with a directory, below the target directory, in which the processes
/// of one run of the tests leave what cargo has built for them. Nothing of the sources changes
/// meanwhile.
pub const BUILT: &str = "CLOISON_BUILT";

/// Returns the file in which this run of the tests keeps what was built of a part.
fn kept_by_tests(part: &str) -> Option<PathBuf> {
    let directory = PathBuf::from(env::var_os(BUILT)?);
    // A test may run the commands of another checkout.
    directory
        .starts_with(installation::target_dir())
        .then(|| directory.join(part))
}

/// Returns a part that this process, or this run of the tests, has built already, or builds it. A
/// study boots hundreds of systems, and even a build that has nothing to do takes a good part of a
/// second.
fn once<T: Serialize + DeserializeOwned>(
    part: &str,
    build: impl FnOnce() -> Result<T>,
) -> Result<T> {
    type Built = Arc<Mutex<Option<String>>>;
    static PARTS: Mutex<BTreeMap<String, Built>> = Mutex::new(BTreeMap::new());
    let built = {
        let mut all = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(part.to_owned()).or_default())
    };
    // Another part may be built meanwhile.
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept_by_tests(part);
    if built.is_none() {
        *built = kept
            .as_deref()
            .and_then(|file| std::fs::read_to_string(file).ok());
    }
    if let Some(text) = &*built {
        return serde_json::from_str(text).into_diagnostic();
    }
    let value = build()?;
    let text = serde_json::to_string(&value).into_diagnostic()?;
    if let Some(file) = kept {
        write_atomic(&file, text.as_bytes())?;
    }
    *built = Some(text);
    Ok(value)
}

/// Builds the EL2 image, once per process for these features, and returns its ELF file.
pub fn hypervisor(features: &[&str]) -> Result<PathBuf> {
    once(&format!("hypervisor {}", features.join(",")), || {
        build_hypervisor(features)
    })
}

fn build_hypervisor(features: &[&str]) -> Result<PathBuf> {
    let shell = Shell::new().into_diagnostic()?;
    let mut command = cargo(&shell, "build")?.args([
        "--release",
        "--package",
        HYPERVISOR.0,
        "--bin",
        HYPERVISOR.1,
    ]);
    // The exception paths go through several crates: all of them are one program to the optimizer.
    command = command.args(["--config", "profile.release.lto=\"fat\""]);
    if !features.is_empty() {
        command = apart(command, &format!("with-{}", features.join("-")))
            .args(["--features", &features.join(",")]);
    }
    executable(command, HYPERVISOR.1)
}

/// Builds the hello image, once per process, and returns its ELF file.
///
/// # Errors
///
/// If it does not build.
pub fn hello() -> Result<PathBuf> {
    board_program(HELLO)
}

/// Builds the EL2 image from another tree with the same crates, and returns its ELF file, which is
/// apart from this checkout's.
///
/// # Errors
///
/// If it does not build.
pub fn hypervisor_of(tree: &Path) -> Result<PathBuf> {
    let shell = Shell::new().into_diagnostic()?;
    let command = cargo(&shell, "build")?
        .args(["--release", "--package", HYPERVISOR.0])
        .args(["--bin", HYPERVISOR.1])
        .args(["--config", "profile.release.lto=\"fat\""])
        .arg("--target-dir")
        .arg(tree.join("target"));
    shell.change_dir(tree);
    executable(command, HYPERVISOR.1)
}

/// Builds the `cloisonctl` command for Linux guests, once per process, and returns its ELF file.
pub fn client() -> Result<PathBuf> {
    let (package, binary) = CLIENT;
    once(binary, || linux_program(package, binary, Symbols::Stripped))
}

/// Builds one of the programs that a Linux guest may have, once per process, and returns its ELF
/// file.
pub fn tool(name: &str) -> Result<PathBuf> {
    // What is profiled has symbols, the profiler needs none.
    let symbols = if name == PROFILER {
        Symbols::Stripped
    } else {
        Symbols::Kept
    };
    once(name, || linux_program(PROFILER, name, symbols))
}

/// Builds one of the tests' programs for Linux guests, once per process, and returns its ELF file.
pub fn linux_tool(name: &str) -> Result<PathBuf> {
    once(&format!("{LINUX_TOOLS} {name}"), || {
        linux_program(LINUX_TOOLS, name, Symbols::Stripped)
    })
}

/// Builds one of the tests' programs for Linux guests with its symbols, once per process, and
/// returns its ELF file.
pub fn linux_tool_with_symbols(name: &str) -> Result<PathBuf> {
    once(&format!("{LINUX_TOOLS} {name} with symbols"), || {
        linux_program(LINUX_TOOLS, name, Symbols::Kept)
    })
}

/// Builds a program for Linux guests, statically linked so that it runs in any RAM disk.
fn linux_program(package: &str, binary: &str, symbols: Symbols) -> Result<PathBuf> {
    let shell = Shell::new().into_diagnostic()?;
    let mut command = linux_cargo(&shell, "build")?;
    command = command.args(["--release", "--package", package, "--bin", binary]);
    command = match symbols {
        Symbols::Kept => apart(command, SYMBOLS_KEPT),
        // Of this package alone: a flag of the compiler would build all libraries again, each time
        // that a program with symbols was built before one without, or after it.
        Symbols::Stripped => command.args([
            "--config",
            &format!("profile.release.package.{package}.strip=\"symbols\""),
        ]),
    };
    let found = executables(command)?
        .into_iter()
        .find_map(|(name, path)| (name == binary).then_some(path));
    found.ok_or_else(|| miette!("cargo built no `{binary}` for Linux"))
}

/// Returns a `cargo` command that builds for Linux guests, with the right library, linker, flags
/// and target.
pub fn linux_cargo<'a>(shell: &'a Shell, subcommand: &str) -> Result<Cmd<'a>> {
    let linker = setup::LINKER.ensure()?;
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    let library = setup::standard_library()?;
    flags.extend(library_flag(&library));
    flags.extend(path_flags(&library)?);
    shell.change_dir(installation::root());
    let target = LINUX_TARGET;
    Ok(cmd!(shell, "cargo {subcommand} --target {target}")
        .env(RUSTFLAGS, flags.join(SEPARATOR))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker))
}

/// Whether a program keeps its symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbols {
    /// None: the smallest file.
    Stripped,
    /// All, so that its functions can be profiled by name.
    Kept,
}

/// Builds `libepapi.a`, PAPI for guests in C, and returns its file.
pub fn epapi() -> Result<PathBuf> {
    let shell = Shell::new().into_diagnostic()?;
    epapi_of(
        cargo(&shell, "rustc")?.args(["--features", "standalone"]),
        TARGET,
    )
}

/// Builds `libepapi.a` for programs of Linux guests, and returns its file.
pub fn epapi_for_linux() -> Result<PathBuf> {
    let shell = Shell::new().into_diagnostic()?;
    epapi_of(linux_cargo(&shell, "rustc")?, LINUX_TARGET)
}

/// Builds `libepapi.a` with a `cargo rustc` for this target, and returns its file.
fn epapi_of(command: Cmd<'_>, triple: &str) -> Result<PathBuf> {
    let (package, file) = EPAPI;
    // The library is built with another feature than for guests in Rust.
    let command = apart(command, EPAPI_DIRECTORY).args([
        "--package",
        package,
        "--release",
        "--lib",
        "--crate-type",
        "staticlib",
    ]);
    executables(command)?;
    let target = installation::target_dir().join(EPAPI_DIRECTORY);
    Ok(target.join(triple).join("release").join(file))
}

/// Builds all shipped guests, once per process. Returns their names and ELF files, sorted.
pub fn guests() -> Result<Vec<(String, PathBuf)>> {
    once("guests", build_guests)
}

fn build_guests() -> Result<Vec<(String, PathBuf)>> {
    let shell = Shell::new().into_diagnostic()?;
    let mut built =
        executables(cargo(&shell, "build")?.args(["--release", "--package", WORKLOADS, "--bins"]))?;
    built.sort();
    Ok(built)
}

/// Builds one shipped guest, once per process, and returns its ELF file.
///
/// # Errors
///
/// If it does not build.
pub fn guest(name: &str) -> Result<PathBuf> {
    board_program((WORKLOADS, name))
}

/// Runs a cargo build. Returns the executables that it made or found up to date.
fn executables(command: Cmd<'_>) -> Result<Vec<(String, PathBuf)>> {
    let mut command: Command = command
        .args(["--message-format=json-diagnostic-rendered-ansi", "--quiet"])
        .into();
    let spinner = spinner("building for AArch64");
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .into_diagnostic();
    spinner.finish_and_clear();
    let output = output?;
    let mut found = Vec::new();
    for message in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(message) else {
            continue;
        };
        if let (Some(text), Some(rendered)) = (
            message["message"]["message"].as_str(),
            message["message"]["rendered"].as_str(),
        ) && !text.contains(UNKNOWN_FEATURE)
            && !text.ends_with("warning emitted")
        {
            eprint!("{rendered}");
        }
        if let (Some(name), Some(path)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
        ) {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    if !output.status.success() {
        return Err(miette!(
            help = "see the compiler's messages above",
            "building for AArch64 failed"
        ));
    }
    Ok(found)
}

/// Runs a cargo build. Returns the executable of this name.
fn executable(command: Cmd<'_>, binary: &str) -> Result<PathBuf> {
    executables(command)?
        .into_iter()
        .find_map(|(name, path)| (name == binary).then_some(path))
        .ok_or_else(|| miette!("cargo built no `{binary}`"))
}

/// Builds the fuzzer's guest, once per process, and returns its ELF file.
///
/// # Errors
///
/// If it does not build.
pub fn puppet() -> Result<PathBuf> {
    board_program(PUPPET)
}

/// Builds the tests' firmware for QEMU's ZCU102, once per process, and returns its ELF file.
///
/// # Errors
///
/// If it does not build.
pub fn test_firmware() -> Result<PathBuf> {
    board_program(TEST_FIRMWARE)
}

/// Builds a program for a board, once per process, and returns its ELF file.
fn board_program((package, binary): (&str, &str)) -> Result<PathBuf> {
    once(binary, || {
        let shell = Shell::new().into_diagnostic()?;
        let command =
            cargo(&shell, "build")?.args(["--release", "--package", package, "--bin", binary]);
        executable(command, binary)
    })
}

/// Builds the board model's plugin, once per process, and returns its file.
pub fn model_plugin() -> Result<PathBuf> {
    once("board model", || build_plugin("board-model", &[]))
}

/// Builds the prover's plugin, once per process, and returns its file.
///
/// # Errors
///
/// If it does not build.
pub fn prover_plugin() -> Result<PathBuf> {
    once("prover", || {
        build_plugin("prover", &["--features", "plugin"])
    })
}

/// Builds the plugin of the package `cloison-NAME`.
fn build_plugin(name: &str, more: &[&str]) -> Result<PathBuf> {
    // In a separate directory: cargo holds the lock of the ordinary one while tests run.
    let target = installation::target_dir().join("board-model");
    let package = format!("cloison-{name}");
    let arguments = [
        "build",
        "--release",
        "--package",
        &package,
        "--lib",
        "--quiet",
        "--target-dir",
    ];
    let status = Command::new("cargo")
        .args(arguments)
        .arg(&target)
        .args(more)
        .current_dir(installation::root())
        .status()
        .into_diagnostic()
        .wrap_err("cannot start cargo")?;
    if !status.success() {
        return Err(miette!(
            "the plugin {package} does not build; see cargo's messages above"
        ));
    }
    let library = package.replace('-', "_");
    Ok(target.join(format!("release/lib{library}.so")))
}
