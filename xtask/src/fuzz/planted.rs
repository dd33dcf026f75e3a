//! `cargo xtask fuzz planted`: plants known bugs in a copy of the hypervisor, one at a time, and
//! measures how long the search takes to find each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::system::{Run, Systems, progress};
use cloison_engine::{cargo, installation};
use cloison_prover::fuzz::state::FINDING;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xshell::{Shell, cmd};

/// The list of bugs.
pub const BUGS: &str = "tests/planted/bugs.toml";

/// `cargo xtask fuzz planted`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlantedArgs {
    /// The bugs to plant, of tests/planted/bugs.toml [default: all]
    pub names: Vec<String>,
    /// Minutes of search for each
    #[arg(long, default_value_t = 10.0, value_name = "NUMBER")]
    pub minutes: f64,
    /// Seed of the programs
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Directory for the copy with the bug, which two runs cannot share [default: target/planted]
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// List the bugs instead
    #[arg(long)]
    pub list: bool,
}

/// The bugs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bugs {
    bug: Vec<Bug>,
}

/// One line of the hypervisor, and the wrong one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    name: String,
    file: String,
    before: String,
    after: String,
    breaks: String,
}

impl Bug {
    /// Returns the source with the bug.
    fn plant(&self, source: &str) -> Result<String> {
        let found = source
            .lines()
            .filter(|line| line.trim() == self.before)
            .count();
        if found != 1 {
            return Err(miette!(
                help = "change `before` in the list to a line that is there exactly once",
                "bug {}: {} has its line {found} times",
                self.name,
                self.file
            ));
        }
        let planted = source.lines().map(|line| {
            if line.trim() == self.before {
                self.after.as_str()
            } else {
                line
            }
        });
        Ok(planted.flat_map(|line| [line, "\n"]).collect())
    }
}

fn bugs() -> Result<Vec<Bug>> {
    let file = installation::root().join(BUGS);
    let text = std::fs::read_to_string(&file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", file.display()))?;
    Ok(toml::from_str::<Bugs>(&text).into_diagnostic()?.bug)
}

/// Copies what git knows of the checkout, except where the copy is the same already: what has not
/// changed is not built again.
fn copy(to: &Path) -> Result<()> {
    let root = installation::root();
    let shell = Shell::new().into_diagnostic()?;
    shell.change_dir(&root);
    let files = cmd!(
        shell,
        "git ls-files -z --cached --others --exclude-standard"
    )
    .quiet()
    .read()
    .into_diagnostic()?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root.join(file), to.join(file));
        let Ok(bytes) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).into_diagnostic()?;
        }
        std::fs::write(&to, bytes).into_diagnostic()?;
    }
    Ok(())
}

/// Builds the hypervisor with one bug and searches. Returns a row of the table, and whether the bug
/// was found.
fn hunt(bug: &Bug, tree: &Path, args: &PlantedArgs) -> Result<(String, bool)> {
    let file = tree.join(&bug.file);
    let source = std::fs::read_to_string(&file).into_diagnostic()?;
    std::fs::write(&file, bug.plant(&source)?).into_diagnostic()?;
    let built = cargo::hypervisor_of(tree);
    std::fs::write(&file, source).into_diagnostic()?;
    let systems = Systems::build("virt", &built?)?;
    let directory: PathBuf = installation::target_dir()
        .join("fuzz/planted")
        .join(&bug.name);
    // Each search begins without a corpus.
    let _ = std::fs::remove_dir_all(&directory);
    let run = Run {
        directory: &directory,
        seed: args.seed,
        exits: 0,
        seconds: (args.minutes * 60.0) as u64,
        replay: None,
    };
    let outcome = systems.search(&run, || {})?;
    let report = progress(&directory).unwrap_or_default();
    let finding = std::fs::read_to_string(directory.join(FINDING));
    let what = match &finding {
        Ok(text) => {
            let mut lines = text.lines().map(|line| line.trim_start_matches("# "));
            let rule = lines.next().unwrap_or_default().to_owned();
            format!("{rule}: {}", lines.next().unwrap_or_default())
        }
        Err(_) if outcome.exit.is_clean() => "not found".to_owned(),
        Err(_) => format!("not found ({})", outcome.exit),
    };
    let row = format!(
        "| {} | {} | {:.0} | {:.0} | {} | {what} |",
        bug.name, bug.breaks, report.seconds, report.processor_seconds, report.exits
    );
    Ok((row, finding.is_ok()))
}

/// Runs `cargo xtask fuzz planted`.
///
/// # Errors
///
/// If a bug does not fit the sources, or what it makes of them does not build.
pub fn run(args: &PlantedArgs) -> Result<ExitCode> {
    let mut bugs = bugs()?;
    if let Some(unknown) = args
        .names
        .iter()
        .find(|name| !bugs.iter().any(|bug| bug.name == **name))
    {
        return Err(miette!(
            help = "`cargo xtask fuzz planted --list` names them",
            "there is no bug `{unknown}`"
        ));
    }
    bugs.retain(|bug| args.names.is_empty() || args.names.contains(&bug.name));
    if args.list {
        for bug in &bugs {
            println!("{}: {} ({})", bug.name, bug.breaks, bug.file);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let default = || installation::target_dir().join("planted");
    let tree = args.tree.clone().unwrap_or_else(default);
    println!(
        "| bug | breaks | seconds | of processor time | exits | found by |\n| --- | --- | --- | --- | --- | --- |"
    );
    let mut found = 0;
    for bug in &bugs {
        copy(&tree)?;
        let (row, is_found) = hunt(bug, &tree, args)?;
        println!("{row}");
        found += u32::from(is_found);
    }
    println!("\n{found} of {} found", bugs.len());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join(BUGS)).unwrap();
        let bugs: Bugs = toml::from_str(&text).unwrap();
        assert!(bugs.bug.len() >= 20);
        for bug in &bugs.bug {
            let source = std::fs::read_to_string(root.join(&bug.file)).unwrap();
            let planted = bug.plant(&source).unwrap();
            assert_ne!(planted, source, "{}", bug.name);
            assert_ne!(bug.before, bug.after, "{}", bug.name);
        }
    }
}
