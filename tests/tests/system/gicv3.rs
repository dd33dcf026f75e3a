//! A board with a GICv3: a hostile guest keeps to its own interrupts, VMs restart, and what traps
//! cost.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::counting::{self, Counting};
use cloison_engine::image::assemble_system;
use cloison_formats::ids::Core;
use cloison_tests::{
    Clock, VIRT_GICV3, boot, config, hypervisor, image, load, machine, number, run,
};
use miette::{Result, miette};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// QEMU's virtual board with sixteen cores.
const SIXTEEN: &str = "virt-gicv3-16";
/// One tick per instruction.
const CNTFRQ: u64 = 1_000_000_000;
/// The most instructions that each path may take.
const AIMS: [(&str, u64); 5] = [
    ("null_hypercall", 75),
    ("gicd_typer_read", 200),
    ("gicd_read", 200),
    ("timer_to_handler", 120),
    ("self_sgi", 300),
];

#[test]
fn a_hostile_guest_has_its_own_interrupts_of_a_gicv3_and_no_others() -> Result<()> {
    let run = run(
        &load(&config("gicv3"), VIRT_GICV3)?,
        VIRT_GICV3,
        Clock::Counted,
    )?
    .whole();
    let done = run.line("check", "gicv3-check: done");
    assert_eq!(number(done, "wrong"), 0, "{run}");
    assert!(number(done, "refused") > 0, "{run}");
    let done = run.line("restart", "restart: done");
    assert_eq!(number(done, "resets"), 10, "{run}");
    Ok(())
}

/// The tools choose the hypervisor by the board; others may combine the two.
#[test]
fn a_hypervisor_for_a_gicv2_refuses_a_board_with_a_gicv3() -> Result<()> {
    let checked = load(&config("gicv3"), VIRT_GICV3)?;
    let system = checked.system.clone();
    let image = assemble_system(system, &checked.images, &hypervisor()?)?;
    let outcome = boot(&image.bytes, VIRT_GICV3, Clock::Counted)?;
    let reason =
        "this hypervisor is for the other version of the GIC: build one for board virt-gicv3";
    assert!(outcome.console.contains(reason), "{}", outcome.console);
    assert!(!outcome.console.contains("[check]"), "{}", outcome.console);
    Ok(())
}

#[test]
fn paths_on_a_gicv3_meet_their_aims() -> Result<()> {
    let mut checked = load(&config("bench"), VIRT_GICV3)?;
    counting::prepare_for(&mut checked, Counting::Icount.machine())?;
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    fs::write(&file, image(&checked)?.bytes).map_err(|error| miette!("{error}"))?;
    let outcome = machine(VIRT_GICV3, &file, Clock::Counted)?
        .cntfrq(CNTFRQ)
        .run()?;
    for (figure, aim) in AIMS {
        let mut lines = outcome.console.lines();
        let prefix = format!("bench {figure} ");
        let count = lines.find_map(|line| line.split_once(&prefix)?.1.parse().ok());
        println!("{figure}: {count:?}");
        assert!(
            count.is_some_and(|count: u64| count > 0 && count <= aim),
            "{figure}: {count:?} of {aim}\n{}",
            outcome.console
        );
    }
    Ok(())
}

#[test]
fn sixteen_vcpus_interrupt_each_other_within_a_budget_each() -> Result<()> {
    let run = run(
        &load(&config("sixteen-cores/one"), SIXTEEN)?,
        SIXTEEN,
        Clock::Counted,
    )?
    .whole();
    run.line("wide", "smp: ok");
    assert_eq!(run.telemetry.dropped(), 0, "{run}");
    // How often each core was held. With -icount, the other cores' turns delay its interrupt.
    let mut held = BTreeMap::<Core, usize>::new();
    for (core, record) in run.telemetry.quota_periods() {
        let period = record.period;
        assert_eq!(period.budget.0, 2000, "{core}: {period:?}");
        assert_eq!(period.spent_at.is_some(), period.throttled.0 > 0);
        *held.entry(core).or_default() += usize::from(period.spent_at.is_some());
    }
    let cores: Vec<Core> = (0..16).map(Core).collect();
    assert!(held.keys().eq(&cores), "{held:?}");
    assert!(held.values().all(|&periods| periods > 0), "{held:?}");
    let totals = run.telemetry.quota_totals().map(|(core, _)| core);
    assert_eq!(
        totals.collect::<BTreeSet<Core>>(),
        cores.into_iter().collect()
    );
    Ok(())
}

#[test]
fn the_last_interrupt_of_the_board_is_a_vms() -> Result<()> {
    let checked = load(&config("sixteen-cores/interrupts"), SIXTEEN)?;
    let run = run(&checked, SIXTEEN, Clock::Counted)?.whole();
    let done = run.line("check", "gicv3-check: done");
    assert_eq!(number(done, "wrong"), 0, "{run}");
    Ok(())
}
