//! A guest's interrupt controller behaves like a GICv2 without a hypervisor.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::ImageSource;
use cloison_engine::qemu::Machine;
use cloison_tests::{Clock, VIRT, config, load, number, run};
use miette::{Result, miette};

/// Steps of the guest without arguments, which a machine without Cloison cannot pass.
const STEPS: u64 = 1_000_000;
/// List registers of the interrupt controllers that Cloison supports.
const LIST_REGISTERS: u64 = 4;

#[test]
fn a_million_random_steps_see_what_they_see_without_cloison() -> Result<()> {
    let checked = load(&config("gic"), VIRT)?;
    let [ImageSource::File(elf)] = &checked.images[..] else {
        return Err(miette!("{:?}", checked.images));
    };
    // A guest's exception levels are EL0 and EL1.
    let bare = Machine::new(checked.emulation()?, elf)
        .icount(Some(0))
        .args(["-machine", "virtualization=off"])
        .run()?;
    assert!(bare.exit.is_clean(), "{}\n{}", bare.exit, bare.errors);
    let run = run(&checked, VIRT, Clock::Counted)?.whole();

    let expected: Vec<&str> = bare
        .console
        .lines()
        .filter(|line| line.starts_with("gic-check: "))
        .collect();
    let seen: Vec<&str> = run
        .said("gic")
        .map(|(_, line)| line)
        .filter(|line| line.starts_with("gic-check: "))
        .collect();
    assert_eq!(seen, expected, "with Cloison, and without");
    let last = run.line("gic", "gic-check: done");
    assert_eq!(number(last, "steps"), STEPS);
    assert!(
        number(last, "deepest") > 2 * LIST_REGISTERS,
        "not nested: {last}"
    );
    Ok(())
}
