//! Leases that run out where no guest of their VM can run: on a core that a budget holds, and on
//! one whose vCPU is off.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use cloison_formats::ids::Core;
use cloison_formats::telemetry::Record;
use cloison_formats::units::{Events, Nanos};
use cloison_tests::{BOTH, Clock, Run, VIRT, ZCU102, config, load, number, run};
use miette::Result;

/// The task of the guest `leases`, by its first argument.
const HELD: u64 = 0;
const OWING: u64 = 1;
const SECOND_OFF: u64 = 2;
const SHORTEST: u64 = 3;
const FIRST_OFF: u64 = 4;

const MILLISECOND: Nanos = Nanos(1_000_000);

/// Returns the system with a tenant that does this, with leases of this many microseconds, for so
/// many microseconds.
fn system(board: &str, args: [u64; 3]) -> Result<Checked> {
    let mut checked = load(&config("leases"), board)?;
    checked.system.vms[0].args[..3].copy_from_slice(&args);
    Ok(checked)
}

/// Gives a quota of the tenant a budget and a period.
fn set_quota(checked: &mut Checked, index: usize, events: u64, period: Nanos) {
    let quota = &mut checked.system.vms[0].quotas[index];
    (quota.budget, quota.ceiling, quota.period) = (Events(events), Events(events), period);
}

/// The machine has turned itself off in order, and the neighbor noticed nothing.
#[track_caller]
fn only_the_tenant_was_hurt(run: &Run) {
    let line = run.line("heart", "heartbeat: done");
    assert_eq!(
        (number(line, "beats"), number(line, "corrupt")),
        (200, 0),
        "{run}"
    );
}

/// The lease's deadline passes hundreds of times while the core is held: each finds EL2 with as
/// much on its stack as the first one.
#[test]
fn a_lease_that_runs_out_on_a_held_core_waits_for_the_budget() -> Result<()> {
    for board in BOTH {
        for (period, lease) in [(50, 1_000), (100, 20_000), (1_000, 1_000), (1_000, 20_000)] {
            let mut checked = system(board, [HELD, lease, 10_000_000])?;
            set_quota(&mut checked, 0, 3_000_000, Nanos(period * MILLISECOND.0));
            only_the_tenant_was_hurt(&run(&checked, board, Clock::Counted)?.whole());
        }
    }
    Ok(())
}

/// A short period holds a core for long, too, when it owes many periods for what EL2 has done.
#[test]
fn a_lease_that_runs_out_on_a_core_that_owes_waits_for_the_budget() -> Result<()> {
    let mut checked = system(VIRT, [OWING, 3_000, 0])?;
    set_quota(&mut checked, 0, 10_000, MILLISECOND);
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    only_the_tenant_was_hurt(&run);
    assert!(
        !run.outcome.console.contains("leases: lowered="),
        "it was never held: {run}"
    );
    Ok(())
}

#[test]
fn the_shortest_leases_one_after_another_are_ended() -> Result<()> {
    let mut checked = system(VIRT, [SHORTEST, 0, 90_000])?;
    set_quota(&mut checked, 0, 3_000_000, Nanos(100 * MILLISECOND.0));
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    only_the_tenant_was_hurt(&run);
    assert!(
        number(run.line("tenant", "leases: taken="), "taken") > 20,
        "{run}"
    );
    Ok(())
}

/// The periods of a vCPU that is off have no ends: nothing of them is logged, and nothing keeps its
/// core from starting it.
#[test]
fn a_lease_that_runs_out_on_a_core_whose_vcpu_is_off_starts_no_periods() -> Result<()> {
    for (board, period) in [(VIRT, 50_000), (ZCU102, 50_000), (VIRT, 2_000)] {
        let mut checked = system(board, [SECOND_OFF, 5_000, 40_000])?;
        set_quota(&mut checked, 0, 2_000_000_000, MILLISECOND);
        set_quota(&mut checked, 1, 30_000, Nanos(period));
        let run = run(&checked, board, Clock::Counted)?.whole();
        only_the_tenant_was_hurt(&run);
        assert_eq!(
            number(run.line("tenant", "leases: second="), "second"),
            1,
            "{run}"
        );
        let entries = run
            .telemetry
            .entries
            .iter()
            .filter(|entry| entry.core == Core(1));
        let ends = entries
            .clone()
            .filter(|entry| matches!(entry.record, Record::Exits { .. }));
        let off = ends.map(|entry| entry.at).min().expect("vCPU 1 was off");
        // The lease runs out a few milliseconds later; vCPU 1 starts again after that.
        let meanwhile =
            entries.filter(|entry| (off..Nanos(off.0 + 35 * MILLISECOND.0)).contains(&entry.at));
        let periods = meanwhile
            .filter(|entry| matches!(entry.record, Record::QuotaPeriod(_)))
            .count();
        assert!(
            periods <= 5,
            "{periods} periods of a vCPU that was off: {run}"
        );
    }
    Ok(())
}

/// A VM whose first core ends a lease for another vCPU can be ordered to stop.
#[test]
fn an_order_reaches_a_core_whose_vcpu_is_off() -> Result<()> {
    for board in BOTH {
        let mut checked = system(board, [FIRST_OFF, 5_000, 0])?;
        set_quota(&mut checked, 0, 30_000, Nanos(2_000));
        checked.system.vms[0].quotas[0].trace = true;
        checked.system.vms[1].args[2] = 30_000;
        let run = run(&checked, board, Clock::Counted)?.whole();
        only_the_tenant_was_hurt(&run);
        let line = run.line("manager", "leases: ordered=");
        assert!(
            line.contains("ordered=Ok(())") && number(line, "stopped") == 1,
            "{run}"
        );
    }
    Ok(())
}
