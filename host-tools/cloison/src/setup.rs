//! `cloison setup`: reports and installs the parts that this machine lacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::guest_linux::Release;
use cloison_config::problem::count;
use cloison_engine::installation::{self, Installation};
use cloison_engine::model;
use cloison_engine::setup::consent::{self, Consent};
use cloison_engine::setup::emulator::{self, PROGRAM};
use cloison_engine::setup::programs::Program;
use cloison_engine::setup::{
    CoreLibrary, CoreLibrarySource, Firmware, LINKER, MAKE, core_library, core_library_from, qemu,
    standard_library,
};
use miette::{Result, miette};
use std::path::PathBuf;

/// `cloison setup`.
#[derive(Clone, Debug, clap::Args)]
pub struct SetupArgs {
    /// Only report what is missing, and test the board model with the installed QEMU; fail if
    /// something is missing or does not work
    #[arg(long)]
    pub check: bool,
    /// Install without a question
    #[arg(long, conflicts_with = "check")]
    pub yes: bool,
    /// Source of Rust's libraries for aarch64 (default: the first one available)
    #[arg(long, value_enum, value_name = "SOURCE", hide_short_help = true)]
    pub core_library: Option<CoreLibrarySource>,
}

/// Runs `cloison setup`.
///
/// # Errors
///
/// If a part is missing that cannot be installed, or with `--check` if one is missing.
pub fn setup(args: &SetupArgs) -> Result<()> {
    if args.check {
        return check();
    }
    consent::give(Consent::of(args.yes));
    for part in Part::all() {
        say(&part.name(), &part.install(args.core_library)?);
    }
    Ok(())
}

/// A part of the set-up.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Rust's core library for EL2 and bare-metal guests.
    Core,
    /// QEMU.
    Emulator,
    /// A release's firmware for QEMU's machine.
    Firmware(Firmware, Release),
    /// Another program.
    Program(&'static Program),
    /// Rust's libraries for programs of Linux guests.
    Linux,
}

impl Part {
    /// Returns what this installation needs: without a checkout nothing is built.
    fn all() -> Vec<Self> {
        match installation::current() {
            Installation::Checkout(_) => [Self::Core, Self::Emulator]
                .into_iter()
                .chain(Firmware::ALL.into_iter().flat_map(|firmware| {
                    Release::ALL.map(|release| Self::Firmware(firmware, release))
                }))
                .chain([&LINKER, &MAKE].map(Self::Program))
                .chain([Self::Linux])
                .collect(),
            Installation::Bundle(_) | Installation::Nothing => vec![Self::Emulator],
        }
    }

    fn name(self) -> String {
        match self {
            Self::Core => "aarch64 core library".to_owned(),
            Self::Emulator => PROGRAM.to_owned(),
            Self::Firmware(firmware, release) => format!("{} of {release}", firmware.name()),
            Self::Program(tool) => tool.name.to_owned(),
            Self::Linux => "aarch64 Linux library".to_owned(),
        }
    }

    /// Returns the part if it is there and new enough, or what lacks and who needs it.
    fn find(self) -> Result<Result<String, String>> {
        let found = match self {
            Self::Core => core_library::find()?.map(describe),
            Self::Emulator => {
                return Ok(match emulator::version() {
                    Some(version) if version >= emulator::OLDEST => Ok(version.to_string()),
                    Some(version) => Err(format!(
                        "{version} is too old, {} is needed",
                        emulator::OLDEST
                    )),
                    None => Err(self.absence()),
                });
            }
            Self::Firmware(firmware, release) => firmware.find(release).map(display),
            Self::Program(tool) => tool.find().map(display),
            Self::Linux => core_library::find_std()?.map(describe),
        };
        Ok(found.ok_or_else(|| self.absence()))
    }

    /// Says that the part is missing, and who needs it.
    fn absence(self) -> String {
        let purpose = match self {
            Self::Core => "is linked into the hypervisor and bare-metal guests",
            Self::Emulator => "boots every board here",
            Self::Firmware(Firmware::UBoot, _) => {
                "boots the tests of `booti`, and is a guest in others"
            }
            Self::Firmware(Firmware::Edk2, _) => "is a guest in a test",
            Self::Program(tool) => tool.purpose,
            Self::Linux => "is linked into programs for Linux guests",
        };
        format!("missing: it {purpose}")
    }

    /// Installs the part if it is missing, and returns what [`Self::find`] does then. A machine
    /// whose sources have no mirror of Debian cannot have firmware, and does without.
    fn install(self, core: Option<CoreLibrarySource>) -> Result<String> {
        Ok(match self {
            Self::Core => describe(core.map_or_else(core_library, core_library_from)?),
            Self::Emulator => {
                qemu()?;
                self.find()?.unwrap_or_default()
            }
            Self::Firmware(firmware, release) => firmware
                .obtain(release)
                .map_or_else(|error| format!("{}: {error}", self.absence()), display),
            Self::Program(tool) => display(tool.ensure()?),
            Self::Linux => describe(standard_library()?),
        })
    }
}

/// Reports what is missing.
fn check() -> Result<()> {
    let mut lacking = 0;
    let mut report = |what: &str, found: Result<String, String>| {
        lacking += usize::from(found.is_err());
        say(what, &found.unwrap_or_else(|absence| absence));
    };
    let mut emulates = false;
    for part in Part::all() {
        let found = part.find()?;
        let is_lacking = found.is_err();
        report(&part.name(), found);
        if let Part::Emulator = part {
            emulates = !is_lacking;
            if is_lacking && let Some(hidden) = emulator::hidden() {
                say("", &hidden.to_string());
            }
        }
    }
    if emulates {
        let tested = model::self_test();
        let works = tested.map(|()| "works with this QEMU".to_owned());
        report("board model", works.map_err(|error| error.to_string()));
    }
    if lacking == 0 {
        return Ok(());
    }
    Err(miette!(
        help = format!(
            "`{} setup` installs what is missing",
            installation::program()
        ),
        "{} of the set-up is missing or does not work",
        count(lacking, "part")
    ))
}

fn describe(library: CoreLibrary) -> String {
    match library {
        CoreLibrary::Toolchain => "in the Rust toolchain".to_owned(),
        CoreLibrary::Private(sysroot) => display(sysroot),
    }
}

fn display(path: PathBuf) -> String {
    path.display().to_string()
}

fn say(what: &str, state: &str) {
    println!("{what:<24} {state}");
}
