//! The parts of a system, built by cargo in a checkout or taken from a bundle: the hypervisor, the
//! guests, the program for Linux guests, the board model.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bundle::Bundle;
use crate::installation::{self, Installation};
use crate::{cargo, setup};
use cloison_formats::image::GicVersion;
use miette::{Result, miette};
use std::path::PathBuf;

/// Checks that everything [`hypervisor`] and [`guests`] need is available, so that its absence is
/// reported first.
pub fn prepare() -> Result<()> {
    match installation::current() {
        Installation::Checkout(_) => setup::core_library().map(drop),
        Installation::Bundle(_) => Ok(()),
        Installation::Nothing => Err(nowhere()),
    }
}

/// Takes a part from the bundle, or builds it.
fn part(path: &str, build: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    match installation::current() {
        Installation::Checkout(_) => build(),
        Installation::Bundle(bundle) => Ok(bundle.part(path)?),
        Installation::Nothing => Err(nowhere()),
    }
}

fn nowhere() -> miette::Report {
    miette!(
        help = "select a bundle with --bundle DIR or CLOISON_BUNDLE (`cargo xtask bundle` in a \
                checkout makes one), or change to a checkout",
        "there is neither a bundle nor a checkout to take the hypervisor and the guests from"
    )
}

/// Returns the ELF file of the hypervisor with these cargo features.
pub fn hypervisor(features: &[&str]) -> Result<PathBuf> {
    let (path, other) = match features.split_first() {
        Some((&cargo::GICV3, other)) => (Bundle::HYPERVISOR_GICV3, other),
        _ => (Bundle::HYPERVISOR, features),
    };
    if let (Installation::Bundle(bundle), [_, ..]) = (installation::current(), other) {
        return Err(miette!(
            help = "leave it out, or work in a checkout",
            "the bundle {} has no hypervisor with {}",
            bundle.directory().display(),
            other.join(", ")
        ));
    }
    part(path, || cargo::hypervisor(features))
}

/// Returns the ELF file of the hypervisor with these cargo features for boards with this interrupt
/// controller. There is one for each: neither version pays for the other.
///
/// # Errors
///
/// If it does not build, or is not in the bundle.
pub fn hypervisor_for(gic: GicVersion, features: &[&str]) -> Result<PathBuf> {
    match gic {
        GicVersion::V2 => hypervisor(features),
        GicVersion::V3 => hypervisor(&[&[cargo::GICV3], features].concat()),
    }
}

/// Returns the ELF file of the hello image.
///
/// # Errors
///
/// If it does not build, or is not in the bundle.
pub fn hello() -> Result<PathBuf> {
    part(Bundle::HELLO, cargo::hello)
}

/// Returns the names and ELF files of all shipped guests, sorted.
pub fn guests() -> Result<Vec<(String, PathBuf)>> {
    match installation::current() {
        Installation::Checkout(_) => cargo::guests(),
        Installation::Bundle(bundle) => {
            let names = bundle.names(Bundle::GUESTS);
            names
                .map(|name| {
                    Ok((
                        name.to_owned(),
                        bundle.part(&format!("{}/{name}", Bundle::GUESTS))?,
                    ))
                })
                .collect()
        }
        Installation::Nothing => Err(nowhere()),
    }
}

/// Returns the ELF file of one shipped guest, of `cloison_config::sources::WORKLOADS`.
///
/// # Errors
///
/// If it does not build, or is not in the bundle.
pub fn guest(name: &str) -> Result<PathBuf> {
    part(&format!("{}/{name}", Bundle::GUESTS), || cargo::guest(name))
}

/// Returns `libepapi.a`, PAPI for guests in C.
pub fn epapi() -> Result<PathBuf> {
    part(Bundle::EPAPI, cargo::epapi)
}

/// Returns the ELF file of the program for Linux guests.
pub fn client() -> Result<PathBuf> {
    part(Bundle::CLIENT, cargo::client)
}

/// Returns the ELF file of one of Cloison's programs that a Linux guest may have, of
/// `cloison_config::guest_linux::TOOLS`.
pub fn tool(name: &str) -> Result<PathBuf> {
    part(&Bundle::tool(name), || cargo::tool(name))
}

/// Returns the board model's plugin for QEMU.
pub fn model_plugin() -> Result<PathBuf> {
    part(Bundle::MODEL, cargo::model_plugin)
}

/// Builds what every run on the board model needs, the hypervisor and the model, side by side: both
/// builds end with work for one core.
///
/// # Errors
///
/// If a part does not build, or is not in the bundle.
pub fn build_for_model() -> Result<()> {
    std::thread::scope(|scope| {
        let model = scope.spawn(model_plugin);
        hypervisor(&[])?;
        match model.join() {
            Ok(built) => built.map(drop),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
