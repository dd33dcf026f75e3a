//! Pages that a command generates: writes them, or compares them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::files::write_atomic;
use cloison_engine::installation;
use miette::{Result, miette};

/// A page that a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its path in the checkout.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// `cargo xtask docs`, and `cargo xtask results`.
#[derive(Clone, Debug, clap::Args)]
pub struct DocsArgs {
    /// Change nothing, and fail if a page is out of date
    #[arg(long)]
    pub check: bool,
}

/// Writes the pages that are out of date, or fails because of them with `--check`.
///
/// # Errors
///
/// Returns an error that names the first page that is out of date, or cannot be written.
pub fn update(pages: &[Page], args: &DocsArgs, command: &str) -> Result<()> {
    for page in pages {
        let path = installation::root().join(&page.path);
        let found = std::fs::read_to_string(&path);
        if found.is_ok_and(|found| found == page.text) {
            println!("{} is up to date", page.path);
            continue;
        }
        if args.check {
            return Err(miette!(
                help = format!("`cargo xtask {command}` writes it"),
                "{} is out of date",
                page.path
            ));
        }
        write_atomic(&path, page.text.as_bytes())?;
        println!("{} written", page.path);
    }
    Ok(())
}
