//! `cargo xtask bundle`: all that `cloison` needs on a machine without a checkout, in one directory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::bundle::Bundle;
use cloison_engine::{cargo, figures, installation, text};
use cloison_lab::{bench, lines, visits};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo xtask bundle`.
#[derive(Clone, Debug, clap::Args)]
pub struct BundleArgs {
    /// Where the bundle goes; what is there is replaced if it is a bundle [default: target/cloison/bundle]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs `cargo xtask bundle`.
pub fn bundle(args: &BundleArgs) -> Result<()> {
    let directory = args.output.clone().unwrap_or_else(|| installation::output_dir().join("bundle"));
    let is_empty = |directory: &Path| std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty(&directory) && !Bundle::is_at(&directory) {
        return Err(miette!(
            help = "choose another directory, or empty this one",
            "{} is neither empty nor a bundle",
            directory.display()
        ));
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).into_diagnostic().wrap_err_with(|| miette!("cannot make {}", parent.display()))?;
    // Made beside the old one and put in its place when it is whole.
    let fresh = tempfile::Builder::new().prefix(".bundle-").tempdir_in(parent).into_diagnostic()?;
    fill(fresh.path())?;
    let bundle = Bundle::seal(fresh.path(), figures::commit(), figures::rustc_version(), lines::el2()?)?;
    let files = bundle.files().count();
    let moved = || -> std::io::Result<()> {
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::rename(fresh.path(), &directory)
    };
    moved().into_diagnostic().wrap_err_with(|| miette!("cannot write {}", directory.display()))?;
    // It has a new name now; there is nothing left to remove.
    let _ = fresh.keep();
    println!("{}: {} files", installation::display(&directory), text::grouped(files as u64));
    Ok(())
}

/// Builds the parts and copies them and the shipped configurations to `directory`.
fn fill(directory: &Path) -> Result<()> {
    copy(&cargo::hypervisor(&[])?, &directory.join(Bundle::HYPERVISOR))?;
    for (name, elf) in cargo::guests()? {
        copy(&elf, &directory.join(Bundle::GUESTS).join(name))?;
    }
    copy(&cargo::client()?, &directory.join(Bundle::CLIENT))?;
    copy(&cargo::model_plugin()?, &directory.join(Bundle::MODEL))?;
    for file in shipped_files()? {
        copy(&installation::root().join(&file), &directory.join(&file))?;
    }
    Ok(())
}

/// The shipped configurations, profiles and the systems of `cloison bench`, as paths from the checkout: the files that Git
/// knows, so that a bundle has no leftovers.
fn shipped_files() -> Result<Vec<PathBuf>> {
    let arguments =
        ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "configs", "profiles", bench::CONFIG];
    let output = Command::new("git").args(arguments).args(visits::CONFIGS).current_dir(installation::root()).output();
    let output = output.into_diagnostic().wrap_err("cannot start git")?;
    if !output.status.success() {
        return Err(miette!("git cannot list the configurations: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| installation::root().join(file).is_file())
        .collect())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        std::fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
        std::fs::copy(from, to).map(drop)
    };
    copied().into_diagnostic().wrap_err_with(|| miette!("cannot copy {} to {}", from.display(), to.display()))
}
