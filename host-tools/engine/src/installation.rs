//! Where Cloison is: in a checkout, or in a bundle that a checkout made; and where its output and its cache go.

use crate::bundle::Bundle;
use miette::Result;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names a bundle for commands that get no `--bundle`.
pub const VARIABLE: &str = "CLOISON_BUNDLE";

/// What the shipped configurations, the hypervisor and the guests are taken from.
#[derive(Clone, Debug)]
pub enum Installation {
    /// The root of a checkout: cargo builds what is needed.
    Checkout(PathBuf),
    /// A bundle: everything is built already.
    Bundle(Bundle),
    /// Neither. Commands that need nothing but their arguments work.
    Nothing,
}

static CURRENT: OnceLock<Installation> = OnceLock::new();

/// Decides what this program works with, once and before anything else: the bundle that is named here or by
/// [`VARIABLE`], else one beside the executable, else the checkout around the current directory or the executable.
///
/// # Errors
///
/// Returns an error if the bundle is damaged or of another version.
pub fn choose(bundle: Option<&Path>) -> Result<()> {
    let named = bundle.map(Path::to_path_buf).or_else(|| {
        let value = env::var_os(VARIABLE)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    });
    let installation = match named.or_else(beside_executable) {
        Some(directory) => Installation::Bundle(Bundle::open(&directory)?),
        None => checkout_or_nothing(),
    };
    // A second choice in one process changes nothing.
    let _ = CURRENT.set(installation);
    Ok(())
}

/// Works with the checkout, whatever bundles there are: for developers' tasks.
pub fn use_checkout() {
    let _ = CURRENT.set(checkout_or_nothing());
}

/// What this program works with; the checkout, if nothing was chosen.
pub fn current() -> &'static Installation {
    CURRENT.get_or_init(checkout_or_nothing)
}

/// A bundle in one of the two places where an installed program has it.
fn beside_executable() -> Option<PathBuf> {
    let executable = env::current_exe().ok()?.canonicalize().ok()?;
    let directory = executable.parent()?;
    let places = [directory.join("cloison-bundle"), directory.parent()?.join("share/cloison")];
    places.into_iter().find(|place| Bundle::is_at(place))
}

fn checkout_or_nothing() -> Installation {
    // Cargo names the package that it runs or tests.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let places = [package, env::current_dir().ok(), env::current_exe().ok()];
    let is_root = |place: &&Path| place.join("hypervisor/link.ld").is_file() && place.join("configs/boards").is_dir();
    let root = places.iter().flatten().find_map(|place| place.ancestors().find(is_root));
    root.map_or(Installation::Nothing, |root| Installation::Checkout(root.to_path_buf()))
}

/// The directory with `configs/` and `profiles/`: the checkout, the bundle, or the current directory.
pub fn root() -> PathBuf {
    match current() {
        Installation::Checkout(root) => root.clone(),
        Installation::Bundle(bundle) => bundle.directory().to_path_buf(),
        Installation::Nothing => PathBuf::from("."),
    }
}

/// The file that a user names: as it is, or, where there is no such file, the shipped one of that name.
pub fn find(path: &Path) -> PathBuf {
    let shipped = root().join(path);
    if path.is_relative() && !path.exists() && shipped.exists() { shipped } else { path.to_path_buf() }
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) if !directory.is_empty() => root().join(directory),
        _ => root().join("target"),
    }
}

/// Where a run leaves its results (reports, logs, images): below the checkout's `target`, or here.
pub fn output_dir() -> PathBuf {
    match current() {
        Installation::Checkout(_) => target_dir().join("cloison"),
        Installation::Bundle(_) | Installation::Nothing => PathBuf::from("cloison-output"),
    }
}

/// Where what set-up made is kept between checkouts: `$XDG_CACHE_HOME/cloison` or `~/.cache/cloison`.
pub fn cache_dir() -> PathBuf {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(directory) if Path::new(&directory).is_absolute() => PathBuf::from(directory),
        _ => env::home_dir().unwrap_or_else(output_dir).join(".cache"),
    };
    base.join("cloison")
}

/// `path` as the user would type it from the root of the checkout or bundle.
pub fn display(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
