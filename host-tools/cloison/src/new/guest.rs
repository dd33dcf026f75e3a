//! `cloison new guest`: a bare-metal program with its build, its system and its console.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::header;
use super::project::{Project, checkout, program};
use cloison_abi::map;
use cloison_engine::cargo::{TARGET_FLAGS, library_flag};
use cloison_engine::setup::core_library::TARGET;
use cloison_engine::{parts, setup};
use miette::{IntoDiagnostic, Result, miette};
use std::path::PathBuf;

/// `cloison new guest`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("language").required(true)))]
pub struct GuestArgs {
    /// The directory to create; its last part names the guest
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
    /// In Rust, with Cloison's runtime: `cargo run` builds and boots it
    #[arg(long, group = "language")]
    pub rust: bool,
    /// In C, with a generated header: `make run` builds and boots it
    #[arg(long, group = "language")]
    pub c: bool,
    /// With PAPI, which counts events from inside the guest; needs --c
    #[arg(long, requires = "c")]
    pub papi: bool,
}

/// How a new guest's VM counts: by observation segments, or with PAPI on its own PMU.
const SEGMENTS: &str = "\
args = [3]                  # x0 to x3; here: the number of segments
services = [\"hem\"]          # observation segments are logged
hems = [\"INST_RETIRED\", \"CPU_CYCLES\", \"L2D_CACHE_REFILL\"]";
const OWN_PMU: &str = "pmu = \"emulated\"            # for PAPI: the VM has its own counters";

/// Runs `cloison new guest`.
pub fn guest(args: &GuestArgs) -> Result<()> {
    let project = Project::new(&args.path)?;
    let command = if args.rust {
        rust(&project)?
    } else {
        c(&project, args.papi)?
    };
    let ram = format!("{:#x}", map::RAM);
    let counts = if args.papi { OWN_PMU } else { SEGMENTS };
    project.write(
        "system.toml",
        include_str!("../../templates/system.toml"),
        &[("RAM", &ram), ("COUNTS", counts)],
    )?;
    println!(
        "{}: a guest {}; docs/guests.md says what it can rely on\n\n  cd {} && {command}",
        project.name,
        if args.rust { "in Rust" } else { "in C" },
        args.path.display()
    );
    Ok(())
}

/// Writes a cargo project that depends on the checkout's runtime. Returns the command that builds
/// and runs it.
fn rust(project: &Project) -> Result<&'static str> {
    let root = checkout().ok_or_else(|| {
        miette!(
            help = "work in a checkout, or use --c, which needs a cross compiler alone",
            "a guest in Rust is built from the runtime's source, which only a checkout has"
        )
    })?;
    let root = root.display().to_string();
    if root.contains(['"', '\\']) {
        return Err(miette!(
            "the path of the checkout, {root}, cannot be written to a Cargo.toml"
        ));
    }
    // As the shipped guests are built, with the linker script that the runtime's build script
    // puts on the search path.
    let mut flags = TARGET_FLAGS.map(str::to_owned).to_vec();
    flags.extend(["-Clink-arg=-Tguest.ld", "-Clink-arg=-zmax-page-size=4096"].map(str::to_owned));
    flags.extend(library_flag(&setup::core_library()?));
    let flags: Vec<String> = flags.iter().map(|flag| format!("{flag:?}")).collect();
    let words = [
        ("ROOT", root.as_str()),
        ("TARGET", TARGET),
        ("FLAGS", &flags.join(", ")),
        ("PROGRAM", &program()?),
    ];
    let files = [
        (
            "Cargo.toml",
            include_str!("../../templates/rust/Cargo.toml"),
        ),
        (
            ".cargo/config.toml",
            include_str!("../../templates/rust/config.toml"),
        ),
        ("run.sh", include_str!("../../templates/rust/run.sh")),
        ("src/main.rs", include_str!("../../templates/rust/main.rs")),
        (".gitignore", "/target\n/guest.elf\n"),
    ];
    project.write_all(&files, &words)?;
    // The checkout's choice of versions: those are on this machine, so that the first build needs
    // no network.
    let lock =
        std::fs::read_to_string(PathBuf::from(&root).join("Cargo.lock")).into_diagnostic()?;
    project.write("Cargo.lock", &lock, &[])?;
    Ok("cargo run")
}

/// Writes a C project with its start code and a generated header. Returns the command that builds
/// and runs it.
fn c(project: &Project, papi: bool) -> Result<&'static str> {
    setup::LINKER.ensure()?;
    setup::MAKE.ensure()?;
    // make takes `$` and spaces apart.
    let program = format!("'{}'", program()?.replace('$', "$$"));
    let ram = format!("{:#x}", map::RAM);
    let libraries = if papi { "libepapi.a" } else { "" };
    let words = [
        ("PROGRAM", program.as_str()),
        ("RAM", &ram),
        ("CC", setup::LINKER.name),
        ("LIBS", libraries),
    ];
    let header = header::header();
    if papi {
        project.copy("libepapi.a", &parts::epapi()?)?;
        let epapi = include_str!("../../../../guest-tools/epapi/c/include/epapi.h");
        let named_papi = include_str!("../../../../guest-tools/epapi/c/include/papi.h");
        project.write_all(&[("epapi.h", epapi), ("papi.h", named_papi)], &[])?;
    }
    let program = include_str!("../../templates/c/main.c");
    let channel = include_str!("../../../../guest-tools/channel/include/cloison_channel.h");
    let counting = include_str!("../../templates/c/papi.c");
    let files = [
        ("cloison.h", header.as_str()),
        ("cloison_channel.h", channel),
        ("start.S", include_str!("../../templates/c/start.S")),
        ("runtime.c", include_str!("../../templates/c/runtime.c")),
        ("main.c", if papi { counting } else { program }),
        ("guest.ld", include_str!("../../templates/c/guest.ld")),
        ("Makefile", include_str!("../../templates/c/Makefile")),
        (".gitignore", "/guest.elf\n"),
    ];
    project.write_all(&files, &words)?;
    Ok("make run")
}
