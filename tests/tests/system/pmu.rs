//! A VM's own PMU: it counts, it interrupts, and it cannot reach a quota's counter.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::End;
use cloison_tests::{Clock, VIRT, ZCU102, config, load, number, run};
use miette::Result;

fn a_guest_counts_for_itself(board: &str) -> Result<()> {
    let mut checked = load(&config("pmu"), board)?;
    let board_file = &checked.board.board;
    let quota_takes = if !board_file.pmu_irqs.is_empty() && board_file.pmu_shadow { 2 } else { 1 };
    let irq = board_file.guest_pmu_irq().unwrap_or(0);
    let turns = 200_000;
    checked.system.vms[0].args = [u64::from(irq), turns, 0, 0];
    let run = run(&checked, board, Clock::Counted)?.whole();
    let line = run.line("pmu", "pmu-check: counters=");
    assert_eq!(number(line, "counters"), u64::from(checked.board.counters) - quota_takes, "{line}");
    let (once, twice) = (number(line, "once"), number(line, "twice"));
    // Under -icount, every instruction of the loop is one event; an iteration has a few.
    let per_turn = (twice - once) / turns;
    assert!((2..12).contains(&per_turn), "{line}");
    assert!(twice.abs_diff(2 * once) < 4000, "{line}");
    assert!(number(line, "cycles") >= once, "{line}");
    assert_eq!(number(line, "idle"), 0, "{line}");
    if irq != 0 {
        let line = run.line("pmu", "pmu-check: early=");
        assert_eq!((number(line, "early"), number(line, "software"), number(line, "interrupts")), (0, 1, 2), "{line}");
        assert!(line.contains(" flags=0x1 ") && line.ends_with(" overflowed=0x80000000"), "{line}");
    }
    assert_eq!(number(run.line("pmu", "pmu-check: leaked="), "leaked"), 0, "{run}");
    assert_eq!(run.end_of("pmu"), End::Off);
    // The quota counted throughout, and was enforced.
    let (_, total) = run.telemetry.quota_totals().next().expect("a total");
    assert!(total.totals.spent_periods > 0 && total.throttled.0 > 0, "{total:?}");
    Ok(())
}

#[test]
fn a_guest_counts_with_a_pmu_of_its_own_on_virt() -> Result<()> {
    a_guest_counts_for_itself(VIRT)
}

#[test]
fn a_guest_counts_with_a_pmu_of_its_own_on_zcu102() -> Result<()> {
    a_guest_counts_for_itself(ZCU102)
}
