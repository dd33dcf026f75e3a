//! Pages that move while their VM writes and checks them: no wrong byte, no lost interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::{Checked, memory};
use cloison_engine::telemetry::End;
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::ids::Core;
use cloison_formats::telemetry::{MigrationOutcome, MigrationRecord};
use cloison_formats::units::Nanos;
use cloison_tests::{BOTH, Clock, Run, VIRT, ZCU102, config, load, number, run};
use miette::Result;
use std::collections::HashMap;

/// Number of pages in `migrate.toml`.
pub const PAGES: u64 = 64;
const ROUNDS: u64 = 100;

/// Returns the number of records with this outcome.
fn count(run: &Run, outcome: MigrationOutcome) -> u64 {
    run.telemetry
        .migrations()
        .filter(|(_, record)| record.outcome == outcome)
        .count() as u64
}

/// Checks the color of a frame: the home pool's, or the destination pool's.
#[track_caller]
fn colors_fit(run: &Run, away: bool, frame: PhysAddr) {
    let system = &run.system;
    let target = system.vms[0].target.expect("the VM's pages can move");
    let colors = run.telemetry.boot.as_ref().expect("a boot frame").colors;
    let color = memory::color_of(&system.board, frame, colors);
    let held = system.pools[usize::from(target)].colors.contains(color);
    assert_eq!(held, away, "frame {frame} has color {color:?}");
}

/// Checks that every move starts where the page was and ends in the right pool, and that nobody
/// gets a frame in use.
#[track_caller]
fn moves_follow_each_other(run: &Run) {
    let mut homes: HashMap<Ipa, PhysAddr> = HashMap::new();
    let mut away: HashMap<PhysAddr, Ipa> = HashMap::new();
    for (
        _,
        &MigrationRecord {
            ipa,
            from,
            to,
            outcome,
            took,
            ..
        },
    ) in run.telemetry.migrations()
    {
        let (home, there) = match outcome {
            MigrationOutcome::Moved => (from, to),
            MigrationOutcome::Restored | MigrationOutcome::RolledBack => (to, from),
            MigrationOutcome::PoolFull => continue,
        };
        assert!(took.0 > 0, "a move of {ipa} took no time");
        colors_fit(run, true, there);
        colors_fit(run, false, home);
        assert_eq!(
            *homes.entry(ipa).or_insert(home),
            home,
            "{ipa} came from, or went to, another frame than its own"
        );
        if outcome == MigrationOutcome::Moved {
            assert_eq!(
                away.insert(there, ipa),
                None,
                "{ipa} went to a frame that another page holds"
            );
        } else {
            assert_eq!(
                away.remove(&there),
                Some(ipa),
                "{ipa} came back from a frame that it did not hold"
            );
        }
    }
    assert!(away.is_empty(), "still away: {away:?}");
}

/// Checks that the guest found no wrong byte and received each interrupt exactly once. Returns its
/// line with the numbers.
#[track_caller]
fn the_guest_noticed_nothing(run: &Run) -> &str {
    let line = run.line("migrate", "migrate-check: rounds=");
    assert_eq!(number(line, "errors"), 0, "{run}");
    assert!(
        number(line, "sent") > 0 && number(line, "expected") > 0,
        "{line}"
    );
    assert_eq!(
        number(line, "sent"),
        number(line, "received"),
        "software-generated interrupts: {run}"
    );
    assert_eq!(
        number(line, "expected"),
        number(line, "seen"),
        "timer interrupts: {run}"
    );
    line
}

pub fn back_and_forth(checked: &Checked, board: &str, clock: Clock, rounds: u64) -> Result<()> {
    let run = run(checked, board, clock)?.whole();
    let line = the_guest_noticed_nothing(&run);
    assert_eq!(
        (number(line, "rounds"), number(line, "moved")),
        (rounds, 2 * PAGES * rounds)
    );
    assert_eq!(run.end_of("migrate"), End::Off);
    let (moved, restored) = (
        count(&run, MigrationOutcome::Moved),
        count(&run, MigrationOutcome::Restored),
    );
    let dropped = run.telemetry.dropped();
    assert_eq!(
        moved + restored + dropped,
        2 * PAGES * rounds,
        "{dropped} records were dropped"
    );
    if clock == Clock::Counted {
        assert_eq!(
            (moved, restored, dropped),
            (PAGES * rounds, PAGES * rounds, 0)
        );
    }
    if dropped == 0 {
        moves_follow_each_other(&run);
    }
    Ok(())
}

#[test]
fn pages_migrate_unnoticed_on_virt() -> Result<()> {
    back_and_forth(
        &load(&config("migrate"), VIRT)?,
        VIRT,
        Clock::Counted,
        ROUNDS,
    )
}

#[test]
fn pages_migrate_unnoticed_on_zcu102() -> Result<()> {
    back_and_forth(
        &load(&config("migrate"), ZCU102)?,
        ZCU102,
        Clock::Counted,
        ROUNDS,
    )
}

#[test]
fn pages_migrate_unnoticed_while_both_cores_really_run_on_virt() -> Result<()> {
    back_and_forth(&load(&config("migrate"), VIRT)?, VIRT, Clock::Real, ROUNDS)
}

#[test]
fn pages_migrate_unnoticed_while_both_cores_really_run_on_zcu102() -> Result<()> {
    back_and_forth(
        &load(&config("migrate"), ZCU102)?,
        ZCU102,
        Clock::Real,
        ROUNDS,
    )
}

#[test]
fn a_faster_timer_loses_no_tick_to_migration() -> Result<()> {
    let mut checked = load(&config("migrate"), VIRT)?;
    let (rounds, microseconds) = (20, 150);
    checked.system.vms[0].args = [PAGES, rounds, microseconds, 0];
    back_and_forth(&checked, VIRT, Clock::Counted, rounds)
}

#[test]
fn pages_migrate_on_the_last_cores_as_on_the_first() -> Result<()> {
    let mut checked = load(&config("migrate"), VIRT)?;
    checked.system.vms[0].cores = [3, 1].map(Core).to_vec();
    checked.system.vms[0].args = [PAGES, 10, 1000, 0];
    back_and_forth(&checked, VIRT, Clock::Counted, 10)
}

fn a_pool_that_runs_full(board: &str) -> Result<()> {
    let run = run(
        &load(&config("migrate-full"), board)?,
        board,
        Clock::Counted,
    )?
    .whole();
    let pool = run.system.pools[1].limit.expect("the pool is limited");
    assert_eq!(pool, 40);
    let line = the_guest_noticed_nothing(&run);
    assert_eq!((number(line, "rounds"), number(line, "moved")), (0, 0));
    let full = run.line("migrate", "migrate-check: pool full after 0 rounds");
    assert!(full.ends_with("intact=yes left=0"), "{full}");
    // Forty pages moved, all forty were rolled back, and one record gives the reason.
    assert_eq!(run.telemetry.dropped(), 0);
    assert_eq!(count(&run, MigrationOutcome::Moved), u64::from(pool));
    assert_eq!(count(&run, MigrationOutcome::RolledBack), u64::from(pool));
    assert_eq!(count(&run, MigrationOutcome::Restored), 0);
    let refused: Vec<_> = run
        .telemetry
        .migrations()
        .filter(|(_, record)| record.outcome == MigrationOutcome::PoolFull)
        .collect();
    let [(_, record)] = refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!(record.from, record.to);
    moves_follow_each_other(&run);
    run.position("pool full after 40 of 64 pages; all 40 are back where they were");
    Ok(())
}

#[test]
fn a_full_pool_leaves_everything_as_it_was_on_virt() -> Result<()> {
    a_pool_that_runs_full(VIRT)
}

#[test]
fn a_full_pool_leaves_everything_as_it_was_on_zcu102() -> Result<()> {
    a_pool_that_runs_full(ZCU102)
}

/// The hypervisor moves the first pages of `interf`'s profile by itself; all are equally important,
/// so it takes them in order.
fn a_vm_that_does_not_ask(board: &str, clock: Clock, top: u64, after: Nanos) -> Result<()> {
    let mut checked = load(&config("migrate-alone"), board)?;
    assert_eq!(checked.system.vms[0].services, 0);
    let profile = checked.system.vms[0]
        .profile
        .as_mut()
        .expect("the VM has a profile");
    assert_eq!((profile.top, profile.after), (105, Some(Nanos(0))));
    profile.top = top as u32;
    profile.after = Some(after);
    let run = run(&checked, board, clock)?.whole();
    let moved: Vec<Ipa> = run
        .telemetry
        .migrations()
        .map(|(_, record)| {
            assert_eq!(record.outcome, MigrationOutcome::Moved);
            colors_fit(&run, true, record.to);
            colors_fit(&run, false, record.from);
            record.ipa
        })
        .collect();
    // `interf` prints the address of its buffer, and stores to it from its first page on.
    assert!(
        run.line("interf", "interf: buffer=")
            .contains(" at=0x40100000 "),
        "{run}"
    );
    let expected: Vec<Ipa> = (0..top).map(|page| Ipa(0x4010_0000).page(page)).collect();
    assert_eq!(
        (moved, run.telemetry.dropped()),
        (expected, 0),
        "top {top}, after {after:?}"
    );
    assert_eq!(number(run.line("interf", "interf: done"), "iterations"), 50);
    assert_eq!(run.end_of("interf"), End::Off);
    assert!(!run.outcome.console.contains("pages not moved"), "{run}");
    Ok(())
}

#[test]
fn as_many_pages_move_as_are_asked_for() -> Result<()> {
    for top in [0, 1, 2, 53, 104, 105] {
        a_vm_that_does_not_ask(VIRT, Clock::Counted, top, Nanos(100_000))?;
    }
    // The deadline is beyond this life of the VM; the move must not happen at once instead.
    let mut checked = load(&config("migrate-alone"), VIRT)?;
    checked.system.vms[0]
        .profile
        .as_mut()
        .expect("the VM has a profile")
        .after = Some(Nanos(u64::MAX));
    assert_eq!(
        run(&checked, VIRT, Clock::Counted)?
            .whole()
            .telemetry
            .migrations()
            .count(),
        0
    );
    a_vm_that_does_not_ask(ZCU102, Clock::Counted, 105, Nanos(100_000))
}

#[test]
fn pages_can_move_at_once() -> Result<()> {
    for board in BOTH {
        for after in [0, 1, 1000, 10_000] {
            a_vm_that_does_not_ask(board, Clock::Counted, 105, Nanos(after))?;
        }
        a_vm_that_does_not_ask(board, Clock::Real, 105, Nanos(0))?;
    }
    Ok(())
}
