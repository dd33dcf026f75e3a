//! PAPI's C library in programs of a Linux guest: those of bare-metal guests, as they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::ImageSource;
use cloison_engine::{cargo, installation, setup};
use cloison_tests::{Clock, VIRT, config, load, run};
use miette::{Result, miette};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `tests/papi` for Linux, with `libepapi.a`.
fn compile(name: &str, library: &Path, directory: &Path) -> Result<PathBuf> {
    let root = installation::root();
    let file = directory.join(name);
    let mut compiler = Command::new(setup::LINKER.ensure()?);
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-s", "-static", "-Wl,--gc-sections"]);
    compiler.args(["-DEVENTS=PAPI_TOT_INS", "-DNUM_EVENTS=1", "-I"]).arg(root.join("guest-tools/epapi/c/include"));
    compiler.arg(root.join(format!("tests/papi/{name}.c"))).arg(library).arg("-o").arg(&file);
    let output = compiler.arg("-lm").output().map_err(|error| miette!("{error}"))?;
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(file)
}

#[test]
fn figure_2_of_the_paper_runs_in_linux_as_it_is() -> Result<()> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let library = cargo::epapi_for_linux()?;
    let mut checked = load(&config("linux-libpapi"), VIRT)?;
    let ImageSource::Linux(linux) = &mut checked.images[0] else { panic!("a Linux guest") };
    for name in ["figure2", "low"] {
        linux.programs.push(compile(name, &library, scratch.path())?);
    }
    linux.exec = Some("sh -c 'figure2 && low'".to_owned());
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    let said = |what: &str| -> i64 {
        let line = run.line("linux", &format!("known: {what}="));
        line.split_once(&format!("{what}=")).and_then(|(_, number)| number.trim().parse().ok()).expect("a number")
    };
    // Known are 102,000 and 6,000; each call executes some hundred instructions at EL0 while its counters count.
    assert!((102_000..103_500).contains(&said("both")) && (6_000..6_500).contains(&said("last")), "{run}");
    let expected =
        [("early", -16), ("init", 1), ("create", 0), ("native", 1), ("listed", 1), ("start", 0), ("again", -10)];
    for (what, number) in expected.into_iter().chain([("in_memory", 1), ("state", 2), ("stopped", -9), ("gone", -1)]) {
        assert_eq!(said(what), number, "{what}: {run}");
    }
    assert!((2_000..2_500).contains(&said("instructions")) && (3_000..4_000).contains(&said("sum")), "{run}");
    Ok(())
}
