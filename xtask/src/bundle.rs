//! `cargo xtask bundle`: collects all files that `cloison` needs on a machine without a checkout in
//! one directory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use clap::CommandFactory;
use clap_complete::Shell;
use cloison::cli::Cli;
use cloison_bench::{bench, epapi, lines, visits};
use cloison_config::guest_linux::TOOLS;
use cloison_engine::bundle::Bundle;
use cloison_engine::{cargo, figures, installation, text};
use ignore::WalkBuilder;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};

/// `cargo xtask bundle`.
#[derive(Clone, Debug, clap::Args)]
pub struct BundleArgs {
    /// Where the bundle goes; what is there is replaced if it is a bundle [default:
    /// target/cloison/bundle]
    #[arg(short, long = "out", alias = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs `cargo xtask bundle`.
pub fn bundle(args: &BundleArgs) -> Result<()> {
    let directory = args
        .output
        .clone()
        .unwrap_or_else(|| installation::output_dir().join("bundle"));
    let is_empty = |directory: &Path| {
        std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
    };
    if !is_empty(&directory) && !Bundle::is_at(&directory) {
        return Err(miette!(
            help = "choose another directory, or empty this one",
            "{} is neither empty nor a bundle",
            directory.display()
        ));
    }
    let parent = directory
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot make {}", parent.display()))?;
    // Made beside the old one and put in its place when it is whole.
    let fresh = tempfile::Builder::new()
        .prefix(".bundle-")
        .tempdir_in(parent)
        .into_diagnostic()?;
    fill(fresh.path())?;
    let bundle = Bundle::seal(
        fresh.path(),
        figures::commit(),
        figures::rustc_version(),
        lines::el2()?.tokens,
    )?;
    let files = bundle.files().count();
    let moved = || -> std::io::Result<()> {
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::rename(fresh.path(), &directory)
    };
    moved()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write {}", directory.display()))?;
    // It has a new name now; there is nothing left to remove.
    let _ = fresh.keep();
    println!(
        "{}: {} files",
        installation::display(&directory),
        text::grouped(files as u64)
    );
    Ok(())
}

/// Builds the parts and copies them and the shipped configurations to `directory`.
fn fill(directory: &Path) -> Result<()> {
    copy(
        &cargo::hypervisor(&[])?,
        &directory.join(Bundle::HYPERVISOR),
    )?;
    copy(
        &cargo::hypervisor(&[cargo::GICV3])?,
        &directory.join(Bundle::HYPERVISOR_GICV3),
    )?;
    copy(&cargo::hello()?, &directory.join(Bundle::HELLO))?;
    for (name, elf) in cargo::guests()? {
        copy(&elf, &directory.join(Bundle::GUESTS).join(name))?;
    }
    copy(&cargo::client()?, &directory.join(Bundle::CLIENT))?;
    for name in TOOLS {
        copy(&cargo::tool(name)?, &directory.join(Bundle::tool(name)))?;
    }
    copy(&cargo::epapi()?, &directory.join(Bundle::EPAPI))?;
    copy(&cargo::model_plugin()?, &directory.join(Bundle::MODEL))?;
    write_help(&directory.join("share"))?;
    for file in shipped_files()? {
        copy(&installation::root().join(&file), &directory.join(&file))?;
    }
    Ok(())
}

/// The shipped configurations, profiles and the systems of `cloison bench`, as paths from the
/// checkout, without what .gitignore excludes.
fn shipped_files() -> Result<Vec<PathBuf>> {
    let root = installation::root();
    let mut walk = WalkBuilder::new(root.join("configs"));
    for path in ["profiles", bench::CONFIG, bench::BETWEEN, epapi::CONFIG]
        .iter()
        .chain(&visits::CONFIGS)
    {
        walk.add(root.join(path));
    }
    let walk = walk
        .hidden(false)
        .require_git(false)
        .sort_by_file_name(Ord::cmp)
        .build();
    let entries = walk
        .collect::<Result<Vec<_>, _>>()
        .into_diagnostic()
        .wrap_err("cannot list the configurations")?;
    let files = entries
        .iter()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    Ok(files
        .map(|entry| {
            entry
                .path()
                .strip_prefix(&root)
                .unwrap_or(entry.path())
                .to_path_buf()
        })
        .collect())
}

/// Writes what shells complete, and manual pages, from the command line's own description.
fn write_help(directory: &Path) -> Result<()> {
    let written = || -> std::io::Result<()> {
        let (completions, pages) = (directory.join("completions"), directory.join("man/man1"));
        std::fs::create_dir_all(&completions)?;
        std::fs::create_dir_all(&pages)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut Cli::command(), "cloison", &completions)?;
        }
        clap_mangen::generate_to(Cli::command(), pages)
    };
    written()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write {}", directory.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        std::fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
        std::fs::copy(from, to).map(drop)
    };
    copied()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot copy {} to {}", from.display(), to.display()))
}
