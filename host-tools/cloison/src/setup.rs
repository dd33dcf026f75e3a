//! `cloison setup`: reports and installs the parts that this machine lacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::guest_linux::Release;
use cloison_config::problem::count;
use cloison_engine::installation::{self, Installation};
use cloison_engine::model;
use cloison_engine::setup::consent::{self, Consent};
use cloison_engine::setup::emulator::{self, PROGRAM};
use cloison_engine::setup::{
    CoreLibrary, CoreLibrarySource, LINKER, MAKE, core_library, core_library_from, qemu,
    standard_library, u_boot,
};
use miette::{Result, miette};

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
    let is_checkout = matches!(installation::current(), Installation::Checkout(_));
    if is_checkout {
        let core = match args.core_library {
            None => core_library()?,
            Some(source) => core_library_from(source)?,
        };
        say(CORE_LIBRARY, &describe(core));
    }
    qemu()?;
    let version = emulator::version().map_or(String::new(), |version| version.to_string());
    say(PROGRAM, &version);
    if is_checkout {
        for release in Release::ALL {
            // A machine whose sources have no mirror of Debian cannot get it.
            let found = u_boot(release).map_or_else(
                |error| format!("{FOR_BOOTI}: {error}"),
                |path| path.display().to_string(),
            );
            say(&u_boot_of(release), &found);
        }
        for program in [LINKER, MAKE] {
            say(program.name, &program.ensure()?.display().to_string());
        }
        say(LINUX_LIBRARY, &describe(standard_library()?));
    }
    Ok(())
}

const CORE_LIBRARY: &str = "aarch64 core library";
const LINUX_LIBRARY: &str = "aarch64 Linux library";
const FOR_BOOTI: &str = "missing (only the `booti` tests need it)";
const FOR_LINUX: &str = "missing (only Linux guests need it)";

fn u_boot_of(release: Release) -> String {
    format!("U-Boot of {release}")
}

/// Reports what is missing.
fn check() -> Result<()> {
    let mut lacking = 0;
    let mut report = |what: &str, found: Option<String>, absent: &str| {
        lacking += usize::from(found.is_none());
        say(what, found.as_deref().unwrap_or(absent));
    };
    let missing = "missing";
    let is_checkout = matches!(installation::current(), Installation::Checkout(_));
    if is_checkout {
        let core = cloison_engine::setup::core_library::find()?;
        report(CORE_LIBRARY, core.map(describe), missing);
    }
    let found = emulator::version();
    let is_new = found.is_some_and(|version| version >= emulator::OLDEST);
    let old = found.map_or(missing.to_owned(), |version| {
        format!("{version} is too old, {} is needed", emulator::OLDEST)
    });
    let version = found.filter(|_| is_new).map(|version| version.to_string());
    report(PROGRAM, version, &old);
    if let Some(hidden) = emulator::hidden() {
        say("", &hidden.to_string());
    }
    if is_checkout {
        for release in Release::ALL {
            let firmware = emulator::find_u_boot(release).map(|path| path.display().to_string());
            report(&u_boot_of(release), firmware, FOR_BOOTI);
        }
        for (program, absent) in [
            (LINKER, FOR_LINUX),
            (MAKE, "missing (only guests in C need it)"),
        ] {
            let found = program.find().map(|path| path.display().to_string());
            report(program.name, found, absent);
        }
        let library = cloison_engine::setup::core_library::find_std()?;
        report(LINUX_LIBRARY, library.map(describe), FOR_LINUX);
    }
    if is_new {
        let tested = model::self_test();
        let works = tested
            .as_ref()
            .ok()
            .map(|()| "works with this QEMU".to_owned());
        let error = tested
            .err()
            .map_or(String::new(), |error| error.to_string());
        report("board model", works, &error);
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
        CoreLibrary::Private(sysroot) => sysroot.display().to_string(),
    }
}

fn say(what: &str, state: &str) {
    println!("{what:<24} {state}");
}
