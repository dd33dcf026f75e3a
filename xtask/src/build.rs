//! `cargo xtask build`: builds the hypervisor and the guests, and prints their sizes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::cargo::{self, HYPERVISOR};
use cloison_engine::figures::Figures;
use cloison_engine::{image, installation, text};
use miette::Result;
use std::path::PathBuf;

/// `cargo xtask build`.
#[derive(Clone, Debug, clap::Args)]
pub struct BuildArgs {
    /// Write the figures here too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Build libepapi.a instead, for bare-metal guests in C and for programs of Linux guests
    #[arg(long, conflicts_with = "json")]
    pub epapi: bool,
}

/// Runs `cargo xtask build`.
pub fn build(args: &BuildArgs) -> Result<()> {
    if args.epapi {
        println!("bare-metal  {}", installation::display(&cargo::epapi()?));
        println!(
            "Linux       {}",
            installation::display(&cargo::epapi_for_linux()?)
        );
        return Ok(());
    }
    let mut figures = Figures::new("build");
    let hypervisor = (HYPERVISOR.1.to_owned(), cargo::hypervisor(&[])?);
    let hello = (cargo::HELLO.1.to_owned(), cargo::hello()?);
    // The fuzzer's guest.
    let puppet = (cargo::PUPPET.1.to_owned(), cargo::puppet()?);
    let first = [hypervisor, hello, puppet].into_iter();
    for (name, elf) in first.chain(cargo::guests()?) {
        let bytes = image::flatten(&elf)?.bytes.len() as u64;
        println!(
            "{name:<16} {:>12} bytes  {}",
            text::grouped(bytes),
            installation::display(&elf)
        );
        figures.count(format!("{}_bytes", name.replace('-', "_")), bytes);
    }
    figures.write(args.json.as_deref())
}
