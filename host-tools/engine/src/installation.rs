//! Locates Cloison: a checkout or a bundle made from one, its output directory, and its cache.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bundle::Bundle;
use miette::Result;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable that selects a bundle if there is no `--bundle`.
pub const VARIABLE: &str = "CLOISON_BUNDLE";

/// The source of the shipped configurations, the hypervisor and the guests.
#[derive(Clone, Debug)]
pub enum Installation {
    /// The root of a checkout: cargo builds what is needed.
    Checkout(PathBuf),
    /// A bundle, in which everything is already built.
    Bundle(Bundle),
    /// Neither. Only commands that need nothing but their arguments work.
    Nothing,
}

static CURRENT: OnceLock<Installation> = OnceLock::new();

/// Selects the installation, once and before anything else: the bundle given here or by
/// [`VARIABLE`], else one next to the executable, else the checkout that contains the current
/// directory or the executable.
///
/// # Errors
///
/// Returns an error if the bundle is damaged or has another version.
pub fn choose(bundle: Option<&Path>) -> Result<()> {
    let named = bundle.map(Path::to_path_buf).or_else(|| {
        let value = env::var_os(VARIABLE)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    });
    let installation = match named.or_else(beside_executable) {
        Some(directory) => Installation::Bundle(Bundle::open(&directory)?),
        None => checkout_or_nothing(),
    };
    // A second selection in one process has no effect.
    let _ = CURRENT.set(installation);
    Ok(())
}

/// Returns the command with which the user started this program, for messages that name a command:
/// `cargo xtask` or `cloison`.
pub fn program() -> &'static str {
    let executable = env::current_exe().unwrap_or_default();
    if executable.file_stem().is_some_and(|name| name == "xtask") {
        "cargo xtask"
    } else {
        "cloison"
    }
}

/// Selects the checkout even if there is a bundle, for developers' tasks.
pub fn use_checkout() {
    let _ = CURRENT.set(checkout_or_nothing());
}

/// Returns the selected installation; by default the checkout.
pub fn current() -> &'static Installation {
    CURRENT.get_or_init(checkout_or_nothing)
}

/// Finds a bundle in one of the two places where an installed program has it.
fn beside_executable() -> Option<PathBuf> {
    let executable = env::current_exe().ok()?.canonicalize().ok()?;
    let directory = executable.parent()?;
    let places = [
        directory.join("cloison-bundle"),
        directory.parent()?.join("share/cloison"),
    ];
    places.into_iter().find(|place| Bundle::is_at(place))
}

fn checkout_or_nothing() -> Installation {
    // cargo sets this variable for the package that it runs or tests.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let places = [package, env::current_dir().ok(), env::current_exe().ok()];
    let is_root = |place: &&Path| {
        place.join("hypervisor/link.ld").is_file() && place.join("configs/boards").is_dir()
    };
    let root = places
        .iter()
        .flatten()
        .find_map(|place| place.ancestors().find(is_root));
    root.map_or(Installation::Nothing, |root| {
        Installation::Checkout(root.to_path_buf())
    })
}

/// Returns the directory with `configs/` and `profiles/`: the checkout, the bundle, or the current
/// directory.
pub fn root() -> PathBuf {
    match current() {
        Installation::Checkout(root) => root.clone(),
        Installation::Bundle(bundle) => bundle.directory().to_path_buf(),
        Installation::Nothing => PathBuf::from("."),
    }
}

/// Returns the path itself or, if there is no such file, the shipped file of that name.
pub fn find(path: &Path) -> PathBuf {
    let shipped = root().join(path);
    if path.is_relative() && !path.exists() && shipped.exists() {
        shipped
    } else {
        path.to_path_buf()
    }
}

/// Returns cargo's output directory: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) if !directory.is_empty() => root().join(directory),
        _ => root().join("target"),
    }
}

/// Returns the directory for results (reports, logs, images): below the checkout's `target`, or the
/// current directory.
pub fn output_dir() -> PathBuf {
    match current() {
        Installation::Checkout(_) => target_dir().join("cloison"),
        Installation::Bundle(_) | Installation::Nothing => PathBuf::from("cloison-output"),
    }
}

/// Returns the directory of the cache shared by all checkouts: `$XDG_CACHE_HOME/cloison` or
/// `~/.cache/cloison`.
pub fn cache_dir() -> PathBuf {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(directory) if Path::new(&directory).is_absolute() => PathBuf::from(directory),
        _ => env::home_dir().unwrap_or_else(output_dir).join(".cache"),
    };
    base.join("cloison")
}

/// Returns `path` as the user would type it from the root of the checkout or bundle.
pub fn display(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}
