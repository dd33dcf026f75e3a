//! `cargo xtask test --in RELEASE`: the README's two commands in a minimal system of a Debian
//! release.
//!
//! The system has the documented prerequisites and nothing else: Rust, which is this machine's own,
//! mounted read-only, and a C compiler. It runs a clone of the checkout. Only what would be
//! downloaded again is shared with this machine: cargo's registry and Cloison's kernels.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::test::TestArgs;
use clap::ValueEnum;
use cloison_engine::setup::Firmware;
use cloison_engine::setup::system::{self, Suite};
use cloison_engine::{cargo, installation};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use xshell::{Shell, cmd};

/// What the README requires besides Rust, and the certificates with which cargo reaches its
/// registry.
const PACKAGES: [&str; 3] = ["gcc", "libc6-dev", "ca-certificates"];
/// Directories inside the system.
const CHECKOUT: &str = "/cloison";
const RUST: &str = "/opt/rust";
/// The certificates that this machine trusts. Behind a proxy that opens connections, no others
/// help.
const CERTIFICATES: &str = "/etc/ssl/certs";

/// A directory of this machine that the system sees.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    from: PathBuf,
    to: String,
    read_only: bool,
}

/// The commands, and their system.
#[derive(Debug)]
struct Plan {
    release: Suite,
    root: PathBuf,
    mounts: Vec<Mount>,
    /// The commands, as a shell reads them.
    commands: Vec<String>,
}

/// Runs the demo and the tests in a system of the release. The last line on standard output is
/// their count.
///
/// # Errors
/// If this user is not root, the system cannot be built, or the checkout cannot be cloned.
pub fn test(release: Suite, args: &TestArgs) -> Result<ExitCode> {
    let shell = Shell::new().into_diagnostic()?;
    shell.change_dir(installation::root());
    if !args.dry_run && cmd!(shell, "id -u").quiet().read().into_diagnostic()? != "0" {
        return Err(miette!(
            help = format!(
                "run it as root, in a container or by sudo: sudo -E env PATH=\"$PATH\" cargo \
                 xtask test --in {release}"
            ),
            "only root can enter another system"
        ));
    }
    let sysroot = cmd!(shell, "rustc --print sysroot")
        .quiet()
        .read()
        .into_diagnostic()
        .wrap_err("cannot run rustc")?;
    let cargo = cargo::home().ok_or_else(|| {
        miette!(
            help = "set CARGO_HOME to the directory that has cargo's registry",
            "this user has no home directory, so cargo's is not known"
        )
    })?;
    let plan = Plan::new(
        release,
        args,
        Path::new(&sysroot),
        &cargo,
        &installation::cache_dir(),
    );
    print!("{plan}");
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    system::minimal(release, &PACKAGES, &plan.root)?;
    plan.clone_checkout(&shell)?;
    plan.run()
}

impl Plan {
    fn new(release: Suite, args: &TestArgs, sysroot: &Path, cargo: &Path, cache: &Path) -> Self {
        let mount = |from: PathBuf, to: &str, read_only| Mount {
            from,
            to: to.to_owned(),
            read_only,
        };
        let mut mounts = vec![
            mount(sysroot.to_path_buf(), RUST, true),
            mount(cargo.join("registry"), "/root/.cargo/registry", false),
            mount(cache.join("linux"), "/root/.cache/cloison/linux", false),
        ];
        mounts.extend(Firmware::ALL.map(|firmware| {
            let name = firmware.directory();
            let to = format!("/root/.cache/cloison/{name}");
            mount(cache.join(name), &to, false)
        }));
        if Path::new(CERTIFICATES).exists() {
            mounts.push(mount(PathBuf::from(CERTIFICATES), CERTIFICATES, true));
        }
        let mut tests = format!("cargo xtask test --jobs {}", args.jobs);
        if !args.only.is_empty() {
            let names = args
                .only
                .iter()
                .filter_map(|step| Some(step.to_possible_value()?.get_name().to_owned()));
            tests += &format!(" --only {}", names.collect::<Vec<_>>().join(","));
        }
        if let Some(filter) = &args.filter {
            tests += &format!(" '{}'", filter.replace('\'', "'\\''"));
        }
        let root = installation::target_dir().join("in").join(release.name());
        Self {
            release,
            root,
            mounts,
            commands: vec!["cargo xtask demo --no-open".to_owned(), tests],
        }
    }

    /// Clones the checkout's last commit, or brings an earlier clone to it; what was built there
    /// remains.
    fn clone_checkout(&self, shell: &Shell) -> Result<()> {
        let (from, to) = (
            installation::root(),
            self.root.join(CHECKOUT.trim_start_matches('/')),
        );
        let changed = cmd!(shell, "git status --porcelain")
            .quiet()
            .read()
            .into_diagnostic()?;
        if !changed.is_empty() {
            println!(
                "{} changes that are not committed are not in the clone",
                changed.lines().count()
            );
        }
        if !to.exists() {
            cmd!(shell, "git clone --quiet {from} {to}")
                .quiet()
                .run()
                .into_diagnostic()?;
        }
        let head = cmd!(shell, "git rev-parse HEAD")
            .quiet()
            .read()
            .into_diagnostic()?;
        cmd!(shell, "git -C {to} fetch --quiet {from} {head}")
            .quiet()
            .run()
            .into_diagnostic()?;
        cmd!(shell, "git -C {to} reset --quiet --hard {head}")
            .quiet()
            .run()
            .into_diagnostic()
    }

    /// Returns what a shell does in namespaces for it alone: mount, enter, run. All mounts end with
    /// it.
    fn script(&self) -> String {
        let root = quoted(&self.root);
        // Mounted onto itself: the tests enter further namespaces, which must begin at one.
        let mut lines = vec!["set -eu".to_owned(), format!("mount --bind {root} {root}")];
        for directory in ["proc", "dev"] {
            lines.push(format!("mkdir -p {root}/{directory}"));
        }
        lines.push(format!("mount -t proc proc {root}/proc"));
        lines.push(format!("mount --rbind /dev {root}/dev"));
        for Mount {
            from,
            to,
            read_only,
        } in &self.mounts
        {
            let from = quoted(from);
            lines.push(format!("mkdir -p {from} {root}{to}"));
            lines.push(format!("mount --bind {from} {root}{to}"));
            if *read_only {
                lines.push(format!("mount -o remount,bind,ro {root}{to}"));
            }
        }
        lines.push(format!("cp -L /etc/resolv.conf {root}/etc/resolv.conf"));
        // An installed Debian knows its own name, at which HyperQueue's server is reached.
        lines.push(format!(
            "printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' \"$(uname -n)\" > {root}/etc/hosts"
        ));
        let path = format!("{RUST}/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let inside = format!("cd {CHECKOUT} && {}", self.commands.join(" && "));
        lines.push(format!(
            "exec chroot {root} env -i HOME=/root PATH={path} LANG=C.UTF-8 TERM=dumb sh -c {}",
            quoted(Path::new(&inside))
        ));
        lines.join("\n")
    }

    /// Runs the commands, shows what they say, and repeats the count.
    fn run(&self) -> Result<ExitCode> {
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "sh",
            "-c",
        ]);
        let mut child = unshare
            .arg(self.script())
            .stdout(Stdio::piped())
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start unshare")?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| miette!("unshare has no output"))?;
        let mut count = None;
        for line in BufReader::new(output).lines() {
            let line = line.into_diagnostic()?;
            println!("{line}");
            if is_count(&line) {
                count = Some(line);
            }
        }
        let success = child.wait().into_diagnostic()?.success();
        let release = self.release;
        let count = count.ok_or_else(|| {
            miette!("the commands in Debian {release} ended before the tests' count")
        })?;
        println!("\nin Debian {release}: {count}");
        Ok(if success {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "a minimal Debian {} with {} in {}",
            self.release,
            PACKAGES.join(", "),
            self.root.display()
        )?;
        writeln!(
            f,
            "a clone of the last commit of {} in {CHECKOUT}",
            installation::root().display()
        )?;
        for Mount {
            from,
            to,
            read_only,
        } in &self.mounts
        {
            let how = if *read_only { "read-only" } else { "shared" };
            writeln!(f, "{} as {to}, {how}", from.display())?;
        }
        self.commands
            .iter()
            .try_for_each(|command| writeln!(f, "$ {command}"))
    }
}

/// Returns whether a line is the last one of `cargo xtask test`.
fn is_count(line: &str) -> bool {
    let mut words = line.split_whitespace();
    ["passed,", "failed,", "skipped"].into_iter().all(|what| {
        words.next().is_some_and(|word| word.parse::<u64>().is_ok()) && words.next() == Some(what)
    })
}

/// Returns a word that a shell takes as it is.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        test: TestArgs,
    }

    fn plan(words: &[&str]) -> Plan {
        let args = Cli::try_parse_from(["test"].iter().chain(words))
            .expect("valid arguments")
            .test;
        let release = args.release.expect("a release");
        Plan::new(
            release,
            &args,
            Path::new("/rust"),
            Path::new("/it's cargo"),
            Path::new("/cache"),
        )
    }

    #[test]
    fn the_plan_has_the_readmes_commands_and_what_is_shared() {
        let plan = plan(&[
            "--in",
            "trixie",
            "--jobs",
            "2",
            "--only",
            "unit,build",
            "it's",
        ]);
        assert_eq!(plan.commands[0], "cargo xtask demo --no-open");
        assert_eq!(
            plan.commands[1],
            "cargo xtask test --jobs 2 --only unit,build 'it'\\''s'"
        );
        let script = plan.script();
        // The toolchain is this machine's: nothing in the system may change it.
        let rust = script
            .find("mount -o remount,bind,ro")
            .expect("the toolchain is read-only");
        assert!(rust < script.find("chroot").expect("a chroot"));
        assert!(
            script.contains("mount --bind '/it'\\''s cargo/registry' "),
            "{script}"
        );
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))
            .expect("the README");
        assert!(
            PACKAGES[..1]
                .iter()
                .all(|package| readme.contains(&format!("`{package}`")))
        );
        for command in ["cargo xtask demo", "cargo xtask test"] {
            assert!(
                readme.contains(command) && plan.to_string().contains(command),
                "{plan}"
            );
        }
        // As a shell reads it.
        let checked = Command::new("sh")
            .args(["-n", "-c", &script])
            .status()
            .expect("a shell");
        assert!(checked.success(), "{script}");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let error = |words: &[&str]| {
            Cli::try_parse_from(["test"].iter().chain(words))
                .expect_err("wrong")
                .to_string()
        };
        assert!(
            error(&["--in", "jessie"]).contains("bookworm, trixie, sid"),
            "{}",
            error(&["--in", "jessie"])
        );
        assert!(
            error(&["--dry-run"]).contains("--in"),
            "{}",
            error(&["--dry-run"])
        );
        assert!(error(&["--in", "trixie", "--json", "x"]).contains("cannot be used with"));
    }

    #[test]
    fn the_count_is_told_from_other_lines() {
        assert!(is_count("416 passed, 6 failed, 0 skipped"));
        for line in [
            "test result: ok. 4 passed; 0 failed",
            "x passed, 1 failed, 0 skipped",
            "",
        ] {
            assert!(!is_count(line), "{line:?}");
        }
    }
}
