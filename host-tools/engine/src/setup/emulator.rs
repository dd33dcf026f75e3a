//! QEMU: found, or installed from the distribution's packages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{Missing, announce, run_limited};
use super::{apt, consent};
use crate::installation;
use miette::{Diagnostic, IntoDiagnostic, Result, miette};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thiserror::Error;

/// The emulator.
pub const PROGRAM: &str = "qemu-system-aarch64";

/// Returns advice for a user without QEMU.
pub fn qemu_help() -> String {
    format!(
        "`{} setup` installs QEMU, or prints the commands that do",
        installation::program()
    )
}

/// The oldest QEMU whose `virt` machine has a second UART and whose PMU behaves as the board files
/// say.
pub const OLDEST: Version = Version {
    major: 10,
    minor: 0,
};

/// A version of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The emulator's packages, which must have equal versions.
const PACKAGES: [&str; 3] = ["qemu-system-arm", "qemu-system-common", "qemu-system-data"];

/// Ubuntu's archive of newer versions for its long-term releases, with a sufficiently new QEMU.
const CLOUD_ARCHIVE: &str = "cloud-archive:flamingo";

/// Returns what is needed.
fn wanted() -> String {
    format!("{PROGRAM} {OLDEST} or newer")
}

/// A QEMU that is too old is first on the PATH, before one that is new enough.
#[derive(Debug, Error, Diagnostic)]
#[error(
    "{} has version {old}, which is too old, and hides {} with version {new}",
    first.display(), second.display()
)]
#[diagnostic(help("remove the first one, or put the directory of the second one first in PATH"))]
pub struct Hidden {
    first: PathBuf,
    old: Version,
    second: PathBuf,
    new: Version,
}

/// Returns the QEMU that is hidden by an older one, if there is one.
pub fn hidden() -> Option<Hidden> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path)
        .map(|directory| directory.join(PROGRAM))
        .filter_map(|program| Some((version_of(&program)?, program)));
    let (old, first) = all.next()?;
    let (new, second) = all.find(|(version, _)| *version >= OLDEST)?;
    (old < OLDEST).then_some(Hidden {
        first,
        old,
        second,
        new,
    })
}

/// Returns the version of the installed QEMU.
pub fn version() -> Option<Version> {
    version_of(Path::new(PROGRAM))
}

fn version_of(program: &Path) -> Option<Version> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(text.lines().next()?.split("version ").nth(1)?)
}

/// Parses `10.0.2 (Debian …)` or `1:10.0.2+ds-2`.
fn parse_version(text: &str) -> Option<Version> {
    let upstream = text.split_once(':').map_or(text, |(_, upstream)| upstream);
    let mut numbers = upstream
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse);
    Some(Version {
        major: numbers.next()?.ok()?,
        minor: numbers.next()?.ok()?,
    })
}

/// Makes sure that a sufficiently new QEMU is installed.
pub fn qemu() -> Result<()> {
    let why = match version() {
        Some(version) if version >= OLDEST => return Ok(()),
        Some(version) => {
            if let Some(hidden) = hidden() {
                return Err(hidden.into());
            }
            format!("version {version} is installed and too old")
        }
        None => "it is not installed".to_owned(),
    };
    consent::obtain(&wanted(), &why, "setup")?;
    let result = install();
    match result {
        Ok(()) if version().is_some_and(|version| version >= OLDEST) => Ok(()),
        Ok(()) => Err(missing("what was installed is not found on the PATH")),
        Err(error) => Err(missing(&error.to_string())),
    }
}

fn missing(why: &str) -> miette::Report {
    let packages = PACKAGES.join(" ");
    let commands = match apt::distribution() {
        Some(distribution)
            if distribution.id == "debian" && distribution.codename == "bookworm" =>
        {
            format!(
                "  (add the suite bookworm-backports of your Debian mirror to /etc/apt/sources.list.d)\n  sudo apt-get update\n  \
             sudo apt-get install --no-install-recommends -t bookworm-backports {packages}"
            )
        }
        Some(distribution) if distribution.id == "ubuntu" => format!(
            "  sudo apt-get update && sudo apt-get install --no-install-recommends {packages}\n  \
             (on a long-term release, before that: sudo apt-get install \
             software-properties-common && sudo add-apt-repository {CLOUD_ARCHIVE})"
        ),
        _ => format!(
            "  sudo apt-get update && sudo apt-get install --no-install-recommends {packages}"
        ),
    };
    Missing {
        what: wanted(),
        why: why.to_owned(),
        commands,
    }
    .into()
}

/// Returns the prefix for running commands as root: empty, or `sudo`.
pub(crate) fn root_prefix() -> Result<&'static [&'static str]> {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if is_root {
        return Ok(&[]);
    }
    // `-n`: never ask for a password without the user's knowledge.
    let may = Command::new("sudo")
        .args(["-n", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if may {
        return Ok(&["sudo", "-n"]);
    }
    Err(miette!(
        "installing packages needs root, and `sudo` is missing or would ask for a password"
    ))
}

pub(crate) fn as_root(prefix: &[&str], program: &str, arguments: &[String]) -> Command {
    let mut words =
        prefix
            .iter()
            .copied()
            .chain(["env", "DEBIAN_FRONTEND=noninteractive", program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words).args(arguments);
    command
}

fn install() -> Result<()> {
    let distribution =
        apt::distribution().ok_or_else(|| miette!("this is not a Debian or Ubuntu machine"))?;
    let prefix = root_prefix()?;
    let run = |what: &str, program: &str, options: &[String], arguments: &[&str]| -> Result<()> {
        let arguments: Vec<_> = options
            .iter()
            .cloned()
            .chain(arguments.iter().map(|&word| word.to_owned()))
            .collect();
        let done = run_limited(
            as_root(prefix, program, &arguments),
            what,
            Duration::from_secs(900),
        )?;
        if done.success {
            Ok(())
        } else {
            Err(miette!("{what} failed ({})", done.reason()))
        }
    };
    let install_from = |options: &[String], version: &str| {
        announce(&format!("installing {} {version}", PACKAGES.join(", ")));
        let packages = PACKAGES.map(|package| format!("{package}={version}"));
        let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
        arguments.extend(packages.iter().map(String::as_str));
        run("installing QEMU", "apt-get", options, &arguments)
    };
    // What the machine's own sources offer. On a fresh container the lists are empty until an
    // update.
    let mut offered = newest_offered(&[])?;
    if offered.is_none() {
        announce("reading the package lists");
        // If a source cannot be reached, the others decide.
        let _ = run("apt-get update", "apt-get", &[], &["update", "-q"]);
        offered = newest_offered(&[])?;
    }
    if let Some(version) = offered {
        return install_from(&[], &version);
    }
    if distribution.id == "ubuntu" {
        announce(&format!(
            "this release's QEMU is too old; adding {CLOUD_ARCHIVE}"
        ));
        run(
            "installing add-apt-repository",
            "apt-get",
            &[],
            &["install", "-y", "-q", "software-properties-common"],
        )?;
        run(
            "adding the archive",
            "add-apt-repository",
            &[],
            &["-y", CLOUD_ARCHIVE],
        )?;
        run("apt-get update", "apt-get", &[], &["update", "-q"])?;
        let version =
            newest_offered(&[])?.ok_or_else(|| miette!("{CLOUD_ARCHIVE} has no newer QEMU"))?;
        return install_from(&[], &version);
    }
    // The backports suite of the machine's own mirror, for this installation only: a private apt
    // root that also has the machine's sources, because the dependencies come from there.
    let suite = format!("{}-backports", distribution.codename);
    let backports = apt::derive(&suite).ok_or_else(|| {
        miette!(
            "no apt source of this machine serves {}",
            distribution.codename
        )
    })?;
    announce(&format!(
        "this release's QEMU is too old; taking {suite} from the same mirror"
    ));
    let mut sources = apt::sources();
    sources.push(backports);
    let private = apt::PrivateApt::new("qemu", &sources)?;
    let done = private.update(&format!("reading the package list of {suite}"))?;
    let options = private.options();
    let version = newest_offered(&options)?
        .ok_or_else(|| miette!("{suite} has no QEMU that is new enough ({})", done.reason()))?;
    install_from(&options, &version)
}

/// Returns the newest sufficiently new version that all packages have.
fn newest_offered(options: &[String]) -> Result<Option<String>> {
    let versions = |package: &str| -> Result<Vec<String>> {
        let output = Command::new("apt-cache")
            .args(options)
            .args(["madison", package])
            .output()
            .into_diagnostic()?;
        Ok(apt::versions(&String::from_utf8_lossy(&output.stdout)))
    };
    let others = [versions(PACKAGES[1])?, versions(PACKAGES[2])?];
    let enough = |version: &String| {
        parse_version(version).is_some_and(|parsed| parsed >= OLDEST)
            && others.iter().all(|list| list.contains(version))
    };
    Ok(versions(PACKAGES[0])?.into_iter().find(enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_programs_and_packages() {
        assert_eq!(parse_version("10.0.2 (Debian 1:10.0.2+ds-2)"), Some(OLDEST));
        assert_eq!(
            parse_version("1:7.2+dfsg-7"),
            Some(Version { major: 7, minor: 2 })
        );
        assert_eq!(parse_version("unknown"), None);
    }
}
