//! The RAM disk of a Linux guest: a configured command instead of the shell, and a RAM disk that
//! does not fit.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::ImageSource;
use cloison_engine::telemetry::End;
use cloison_formats::addr::PAGE_SIZE;
use cloison_tests::{Clock, Run, VIRT, load, run, shipped};
use miette::Result;

/// Boots `linux-perf` with a command and this many MiB of memory.
fn unattended(command: &str, mib: u64) -> Result<Run> {
    let mut checked = load(&shipped("linux-perf"), VIRT)?;
    checked.system.vms[0].regions[0].pages = (mib << 20).div_ceil(PAGE_SIZE) as u32;
    let ImageSource::Linux(source) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    source.exec = Some(command.to_owned());
    run(&checked, VIRT, Clock::Counted).map(Run::whole)
}

#[test]
fn a_command_of_the_configuration_runs_and_the_vm_is_off() -> Result<()> {
    let run = unattended(
        "echo it\\'s \"$(perf --version)\"\ntest -x /usr/bin/cyclictest && exit 3",
        256,
    )?;
    assert!(
        run.said("linux")
            .any(|(_, line)| line.starts_with("it's perf version ")),
        "{run}"
    );
    run.line("linux", "cloison: the command ended with status 3");
    assert_eq!(run.end_of("linux"), End::Off);
    Ok(())
}

#[test]
fn a_ram_disk_that_does_not_fit_says_so() -> Result<()> {
    let run = unattended("echo never", 140)?;
    run.line("linux", "cloison: the RAM disk does not fit");
    assert!(!run.said("linux").any(|(_, line)| line == "never"), "{run}");
    assert_eq!(run.end_of("linux"), End::Off);
    Ok(())
}
