//! `cloison setup`: reports and installs the parts that this machine lacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::guest_linux::Release;
use cloison_engine::installation::{self, Installation};
use cloison_engine::setup::emulator::{self, PROGRAM};
use cloison_engine::setup::{
    CoreLibrary, CoreLibrarySource, LINKER, MAKE, core_library, core_library_from, qemu,
    standard_library, u_boot,
};
use miette::Result;

/// `cloison setup`.
#[derive(Clone, Debug, clap::Args)]
pub struct SetupArgs {
    /// Only report what is missing and what would be done
    #[arg(long)]
    pub check: bool,
    /// Source of Rust's libraries for aarch64 (default: the first one available)
    #[arg(long, value_enum, value_name = "SOURCE", hide_short_help = true)]
    pub core_library: Option<CoreLibrarySource>,
}

/// Runs `cloison setup`.
pub fn setup(args: &SetupArgs) -> Result<()> {
    let is_checkout = matches!(installation::current(), Installation::Checkout(_));
    if is_checkout {
        let core = match (args.check, args.core_library) {
            (true, _) => core_library::find()?,
            (false, None) => Some(core_library()?),
            (false, Some(source)) => Some(core_library_from(source)?),
        };
        say(
            "aarch64 core library",
            core.map_or(WOULD.to_owned(), describe),
        );
    }
    if !args.check {
        qemu()?;
    }
    let (wanted, found) = (emulator::OLDEST, emulator::version());
    let emulator = match found {
        Some(version) if version >= wanted => format!("{}.{}", version.0, version.1),
        Some(version) => format!(
            "{}.{} is too old, {}.{} is needed",
            version.0, version.1, wanted.0, wanted.1
        ),
        None => WOULD.to_owned(),
    };
    say(PROGRAM, emulator);
    if is_checkout {
        developers_tools(args.check)?;
    }
    Ok(())
}

/// Reports or installs what only building and testing need.
fn developers_tools(only_check: bool) -> Result<()> {
    for release in Release::ALL {
        let firmware = if only_check {
            emulator::find_u_boot(release)
        } else {
            u_boot(release).ok()
        };
        let absent = "missing (only the `booti` tests need it)".to_owned();
        say(
            &format!("U-Boot of {release}"),
            firmware.map_or(absent, |path| path.display().to_string()),
        );
    }
    for (program, absent) in [
        (LINKER, FOR_LINUX),
        (MAKE, "missing (only guests in C need it)"),
    ] {
        let found = if only_check {
            program.find()
        } else {
            Some(program.ensure()?)
        };
        say(
            program.name,
            found.map_or(absent.to_owned(), |path| path.display().to_string()),
        );
    }
    let library = if only_check {
        core_library::find_std()?
    } else {
        Some(standard_library()?)
    };
    say(
        "aarch64 Linux library",
        library.map_or(FOR_LINUX.to_owned(), describe),
    );
    Ok(())
}

const WOULD: &str = "missing; `setup` without --check installs it";
const FOR_LINUX: &str = "missing (only Linux guests need it)";

fn describe(library: CoreLibrary) -> String {
    match library {
        CoreLibrary::Toolchain => "in the Rust toolchain".to_owned(),
        CoreLibrary::Private(sysroot) => sysroot.display().to_string(),
    }
}

fn say(what: &str, state: String) {
    println!("{what:<24} {state}");
}
