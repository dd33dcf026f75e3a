//! `cloison new experiment`: a victim next to three neighbors, with its system, variants and
//! checks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::project::Project;
use cloison_abi::map;
use cloison_engine::installation;
use miette::{Result, miette};
use std::path::{Path, PathBuf};

/// A neighbor's work, from its start on.
const ENDLESS: &str = "args = [\"420K\", 0]          # bytes of its buffer; 0: endless passes";
/// What a neighbor of Linux does. Its kernel takes 1 s to its first program on the board model, and
/// on cores that wait nothing has to be modelled.
const LATER: &str = "args = [\"420K\", 0, 700]     # bytes of its buffer; 0: endless passes; ms \
                     to sleep while Linux boots";

/// Segments that the victim runs, the first of which is the warm-up.
const SEGMENTS: u32 = 4;

/// `cloison new experiment`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExperimentArgs {
    /// The directory to create; its last part names the experiment
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
    /// The victim: a directory with your `guest.elf`, such as one made by `new guest` [default: a
    /// shipped workload]
    #[arg(long, value_name = "DIR", conflicts_with = "linux")]
    pub guest: Option<PathBuf>,
    /// The victim: your program for AArch64, started in a Linux guest
    #[arg(long, value_name = "PROGRAM")]
    pub linux: Option<PathBuf>,
}

/// Runs `cloison new experiment`.
pub fn experiment(args: &ExperimentArgs) -> Result<()> {
    let project = Project::new(&args.path)?;
    let (image, size) = match (&args.guest, &args.linux) {
        (Some(directory), _) => (own_guest(directory, &project)?, "16M"),
        (None, Some(program)) => (linux(program, &project)?, "128M"),
        (None, None) => (
            format!("image = {{ workload = \"disparity\" }}\nargs = [1, {SEGMENTS}]"),
            "16M",
        ),
    };
    let ram = format!("{:#x}", map::RAM);
    let neighbor = |core: u32| {
        let template = include_str!("../../templates/neighbor.toml");
        let args_of = if args.linux.is_some() { LATER } else { ENDLESS };
        template
            .replace("@CORE@", &core.to_string())
            .replace("@ARGS@", args_of)
            .trim_end()
            .to_owned()
    };
    let neighbors = (1..=3).map(neighbor).collect::<Vec<_>>().join("\n");
    let words = [
        ("IMAGE", image.as_str()),
        ("NEIGHBORS", &neighbors),
        ("SIZE", size),
        ("RAM", &ram),
    ];
    project.write(
        "system.toml",
        include_str!("../../templates/experiment-system.toml"),
        &words,
    )?;
    project.write(
        "experiment.toml",
        include_str!("../../templates/experiment.toml"),
        &[],
    )?;
    println!(
        "{}: an experiment; docs/experiments.md explains its file\n\n  {} experiment {}",
        project.name,
        installation::program(),
        args.path.join("experiment.toml").display()
    );
    Ok(())
}

/// Returns the whole path of what must exist; `what` it is goes before the path in the error.
fn existing(path: &Path, what: &str, help: &str) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        miette!(
            help = help,
            "there is no {what} {}: {error}",
            path.display()
        )
    })
}

/// Returns the image of a guest that need not be built yet.
fn own_guest(directory: &Path, project: &Project) -> Result<String> {
    let help = "create one with `new guest`, or name the directory of your guest.elf";
    let found = existing(directory, "guest in", help)?;
    Ok(format!(
        "image = {{ file = {} }}\nargs = [{SEGMENTS}]",
        quoted(&project.path_to(&found.join("guest.elf")))?
    ))
}

/// Returns the image of a Linux guest that runs a program, each time in an observation segment.
fn linux(program: &Path, project: &Project) -> Result<String> {
    let help = "build it for AArch64: `aarch64-linux-gnu-gcc -static -O2 -o my-tool my-tool.c`";
    let found = existing(program, "program", help)?;
    let name = found
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._+-".contains(letter);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(miette!(
            help = "rename it: letters, digits and `._+-`",
            "the guest's shell cannot start `{name}` by that name"
        ));
    }
    let exec = format!("cloisonctl stat --by hem --repeat {SEGMENTS} {name}");
    Ok(format!(
        "image = {{ linux = \"cloud\", programs = [{}], exec = \"{exec}\" }}\nservices_page = true",
        quoted(&project.path_to(&found))?
    ))
}

/// Returns a path as text of a TOML file.
fn quoted(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .ok_or_else(|| miette!("the path {} is not UTF-8", path.display()))?;
    Ok(format!(
        "\"{}\"",
        text.replace('\\', "\\\\").replace('"', "\\\"")
    ))
}
