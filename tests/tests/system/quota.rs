//! Budgets of events: enforced in every period, and no interrupt of a held core is lost.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::modelled;
use cloison::top::View;
use cloison_config::Checked;
use cloison_config::events::EventNames;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_engine::text::Style;
use cloison_formats::ids::Core;
use cloison_formats::image::{Counted, WorkCost};
use cloison_formats::telemetry::{LoggedPeriod, QuotaTotal, Record, VmState};
use cloison_formats::units::{EventId, Events, Nanos};
use cloison_tests::{Clock, Run, VIRT, ZCU102, config, image, load, machine, number, run, shipped};
use miette::{Result, miette};
use std::time::Duration;

/// Minimum number of periods in the guest's life, unless its first argument says otherwise.
const PERIODS: usize = 1000;
/// Maximum number of events beyond the budget with an overflow interrupt.
pub const INTERRUPT_SLACK: u64 = 8;
/// Events that a core may count between a poll and the read of the counter: the entry into the
/// hypervisor, in addition to the interval itself.
pub const POLL_SLACK: u64 = 200;

/// Returns the traced periods of the only quota and its total, after checking that they agree.
#[track_caller]
pub fn periods(run: &Run) -> (Vec<LoggedPeriod>, QuotaTotal) {
    assert_eq!(run.telemetry.dropped(), 0, "{run}");
    let periods: Vec<LoggedPeriod> = run
        .telemetry
        .quota_periods()
        .map(|(_, record)| record.period)
        .collect();
    let totals: Vec<QuotaTotal> = run
        .telemetry
        .quota_totals()
        .map(|(_, total)| *total)
        .collect();
    let [total] = totals[..] else {
        panic!("one total was expected, not {totals:?}")
    };
    // Each period once, in order.
    let length = run.system.vms[0].quotas[0].period.0;
    for (number, pair) in periods.windows(2).enumerate() {
        assert_eq!(pair[1].index, pair[0].index + 1, "after period {number}");
        assert_eq!((pair[1].due.0 - pair[0].due.0) % length, 0, "{pair:?}");
    }
    // The total is the sum of the periods; the last one was cut short and has no record.
    assert_eq!(total.totals.periods as usize, periods.len());
    let throttled: Vec<&LoggedPeriod> = periods
        .iter()
        .filter(|period| period.spent_at.is_some())
        .collect();
    assert!(
        total.totals.spent_periods as usize >= throttled.len(),
        "{total:?}"
    );
    assert!(
        total.totals.spent_periods as usize <= throttled.len() + 1,
        "{total:?}"
    );
    let beyond = |period: &LoggedPeriod| period.events.0.saturating_sub(period.budget.0);
    let most = periods.iter().map(beyond).max().unwrap_or(0);
    assert!(
        total.totals.max_overshoot >= Events(most),
        "{total:?}, but one period had {most}"
    );
    assert!(
        total.totals.overshoot.0 >= periods.iter().map(beyond).sum(),
        "{total:?}"
    );
    (periods, total)
}

/// Returns how many periods the guest was to live through.
fn wanted(run: &Run) -> usize {
    match run.system.vms[0].args[0] {
        0 => PERIODS,
        periods => periods as usize,
    }
}

/// Checks that every interrupt for which the guest's timer was armed arrived once, and not too
/// early.
#[track_caller]
pub fn no_interrupt_was_lost(run: &Run) {
    let line = run.line("quota", "quota-check: armed=");
    assert!(number(line, "armed") as usize >= wanted(run), "{line}");
    assert_eq!(number(line, "armed"), number(line, "handled"), "{line}");
    assert_eq!(number(line, "spurious"), 0, "{line}");
    // The core was held when the timer expired, and the interrupt arrived when the period was over,
    // not one period later.
    let hz = run.telemetry.boot.as_ref().expect("a boot frame").timer_hz;
    let period = run.system.vms[0].quotas[0].period.0 * hz / 1_000_000_000;
    let latest = number(line, "latest");
    assert!(
        latest > period / 2 && latest < period,
        "{latest} ticks late, a period has {period}"
    );
    assert_eq!(run.end_of("quota"), End::Off);
}

/// Returns a run of a guest that never rests, its one quota's periods and their total.
pub fn a_busy_guest(
    board: &str,
    change: impl Fn(&mut Checked),
) -> Result<(Run, Vec<LoggedPeriod>, QuotaTotal)> {
    let mut checked = load(&config("quota"), board)?;
    change(&mut checked);
    let run = run(&checked, board, Clock::Counted)?.whole();
    let (periods, total) = periods(&run);
    assert!(periods.len() >= wanted(&run), "{} periods", periods.len());
    // The guest never sleeps, so every period is spent.
    assert!(
        periods
            .iter()
            .all(|period| period.spent_at.is_some() && period.throttled.0 > 0)
    );
    Ok((run, periods, total))
}

#[test]
fn a_budget_with_an_overflow_interrupt_is_kept_to_8_events_in_every_period() -> Result<()> {
    let (run, periods, total) = a_busy_guest(VIRT, |_| {})?;
    assert!(total.by_interrupt);
    for period in &periods {
        assert!(
            period.events.0 <= period.budget.0 + INTERRUPT_SLACK,
            "{period:?}"
        );
        // The period was spent, not cut short.
        assert!(period.events >= period.budget, "{period:?}");
    }
    assert!(total.totals.max_overshoot.0 <= INTERRUPT_SLACK, "{total:?}");
    no_interrupt_was_lost(&run);
    Ok(())
}

#[test]
fn a_budget_of_cycles_is_kept_as_one_of_instructions() -> Result<()> {
    let cycles = EventId(0x11);
    let counted = Counted {
        event: cycles,
        weight: 1,
        allowed: true,
    };
    let (_, periods, total) = a_busy_guest(VIRT, |checked| {
        checked.system.vms[0].quotas[0].counted = counted
    })?;
    assert!(total.by_interrupt);
    for period in &periods {
        assert!(
            period.events.0 <= period.budget.0 + INTERRUPT_SLACK,
            "{period:?}"
        );
    }
    Ok(())
}

/// Returns the totals of the quota of a busy guest on the modelled ZCU102, whose cores have an SPI
/// each.
fn on_the_model(change: impl Fn(&mut Checked)) -> Result<QuotaTotal> {
    let mut checked = load(&config("quota"), ZCU102)?;
    checked.system.vms[0].args[0] = 100;
    // Not the core whose number and interrupt are the defaults.
    checked.system.vms[0].cores = vec![Core(2)];
    change(&mut checked);
    let run = run(&checked, ZCU102, Clock::Modelled)?.whole();
    let (_, total) = periods(&run);
    no_interrupt_was_lost(&run);
    assert!(total.totals.spent_periods >= 100, "{total:?}");
    Ok(total)
}

#[test]
fn a_shared_overflow_interrupt_keeps_a_budget_that_polling_overruns() -> Result<()> {
    let by_interrupt = on_the_model(|_| {})?;
    let polled = on_the_model(|checked| checked.system.board.pmu_irqs.clear())?;
    println!(
        "by interrupt: {:?}\npolled: {:?}",
        by_interrupt.totals, polled.totals
    );
    assert!(by_interrupt.by_interrupt && !polled.by_interrupt);
    // The model looks at counters every 300 cycles (docs/board-model.md) and runs an instruction
    // per cycle at most.
    assert!(
        by_interrupt.totals.max_overshoot.0 <= 300 + INTERRUPT_SLACK,
        "{by_interrupt:?}"
    );
    assert!(
        polled.totals.max_overshoot.0 > 10 * by_interrupt.totals.max_overshoot.0,
        "{polled:?}"
    );
    Ok(())
}

/// QEMU by itself does not raise the SPIs that the board file lists.
#[test]
fn budgets_are_polled_where_the_overflow_interrupt_does_not_arrive() -> Result<()> {
    let (run, _, total) = a_busy_guest(ZCU102, |checked| checked.system.vms[0].args[0] = 100)?;
    assert!(
        !total.by_interrupt && total.totals.max_overshoot.0 > INTERRUPT_SLACK,
        "{total:?}"
    );
    let said =
        "the PMU's overflow interrupt 175 does not arrive: the budgets of this core are polled";
    assert!(run.outcome.console.contains(said), "{run}");
    Ok(())
}

/// A day has passed, and the timer's frequency has no exact ratio to nanoseconds. Only on `virt`:
/// on QEMU's zcu102 a day of sleep takes minutes.
#[test]
fn polling_costs_as_much_after_a_day_at_every_frequency() -> Result<()> {
    let image = image(&load(&config("uptime"), VIRT)?)?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    std::fs::write(&file, &image.bytes).expect("room for an image");
    for hz in [33_333_000, 62_500_000, 99_990_000, 100_000_000] {
        let outcome = machine(VIRT, &file, Clock::Counted)?.cntfrq(hz).run()?;
        let line = outcome
            .console
            .lines()
            .find(|line| line.contains("uptime: seconds=86400"));
        let line = line.unwrap_or_else(|| panic!("{hz} Hz: {}", outcome.console));
        println!("{hz} Hz: {line}");
        let (first, then) = (number(line, "first"), number(line, "then"));
        // The polls fall a little differently in the first millisecond of the loop.
        assert!(
            first > 0 && then.abs_diff(first) * 50 < first,
            "{hz} Hz: {line}"
        );
    }
    Ok(())
}

#[test]
fn a_polled_budget_is_overrun_by_less_than_a_poll_interval() -> Result<()> {
    let (run, periods, total) = a_busy_guest(ZCU102, |_| {})?;
    assert!(!total.by_interrupt);
    // An instruction takes one nanosecond, so the rate is at most one event per nanosecond.
    let bound = run.system.vms[0].quotas[0].poll.0 + POLL_SLACK;
    for period in &periods {
        assert!(
            period.events.0 <= period.budget.0 + bound,
            "{period:?}, at most {bound} beyond were expected"
        );
    }
    assert!(
        total.totals.max_overshoot.0 > 0 && total.totals.max_overshoot.0 <= bound,
        "{total:?}"
    );
    no_interrupt_was_lost(&run);
    Ok(())
}

#[test]
fn polling_twice_as_often_halves_the_bound() -> Result<()> {
    let (run, periods, total) = a_busy_guest(ZCU102, |checked| {
        checked.system.vms[0].quotas[0].poll.0 /= 2
    })?;
    let bound = run.system.vms[0].quotas[0].poll.0 + POLL_SLACK;
    assert!(
        periods
            .iter()
            .all(|period| period.events.0 <= period.budget.0 + bound),
        "{total:?}"
    );
    Ok(())
}

/// The same work under the same quota, with and without tricks: no trick is faster by more than one
/// period's budget.
fn no_trick_gains_budget(board: &str) -> Result<()> {
    const PERIOD_US: u64 = 100_000;
    const PAGES: u64 = 640;
    const RESETS: u64 = 5;
    let spend_on = |work: Option<u64>, what: u64, cores: &[u8]| -> Result<(u64, u64)> {
        let mut checked = load(&config("spender"), board)?;
        let vm = &mut checked.system.vms[0];
        // The interval is for the board that polls.
        vm.quotas[0].backstop = false;
        vm.args = [work.unwrap_or(vm.args[0]), what, 0, 0];
        vm.cores = cores.iter().copied().map(Core).collect();
        let run = run(&checked, board, Clock::Counted)?.whole();
        let line = run.line("spender", "spender: what=");
        Ok((number(line, "us"), number(line, "tries")))
    };
    let spend = |what, cores| spend_on(None, what, cores);
    // Memory that is moved, by the guest and by the hypervisor for it.
    let ((honest, _), (migrated, _)) = (
        spend_on(Some(PAGES), 4, &[0])?,
        spend_on(Some(PAGES), 5, &[0])?,
    );
    println!("{PAGES} pages: copied in {honest} us, migrated in {migrated} us");
    assert!(
        honest > 2 * PERIOD_US && migrated + PERIOD_US >= honest,
        "{migrated} us, honestly {honest} us"
    );
    let (reloaded, resets) = spend_on(Some(RESETS), 6, &[0])?;
    println!("{resets} resets and no work: {reloaded} us");
    // Each restart cleans all of the VM's RAM, page by page.
    let vm = &load(&config("spender"), board)?.system.vms[0];
    let ram: u64 = vm
        .regions
        .iter()
        .map(|region| u64::from(region.pages))
        .sum();
    let least =
        (RESETS - 1) * (ram * vm.quotas[0].work_cost.page.0 / vm.quotas[0].budget.0) * PERIOD_US;
    assert!(
        least > RESETS * PERIOD_US,
        "the cleaning takes several periods: {least} us"
    );
    assert!(
        resets == RESETS && reloaded >= least,
        "{resets} restarts in {reloaded} us, at least {least}"
    );
    let (honest, _) = spend(0, &[0])?;
    let tricks = [
        ("reset", spend(1, &[0])?),
        ("off", spend(2, &[0, 1])?),
        ("held", spend(3, &[0, 1])?),
    ];
    println!("honest {honest} us; trick, us and tries: {tricks:?}");
    assert!(
        honest > 2 * PERIOD_US,
        "the work takes several periods: {honest} us"
    );
    for (trick, (us, tries)) in tricks {
        assert!(
            tries > 0 && us + PERIOD_US >= honest,
            "{trick}: {us} us after {tries} tries, honestly {honest} us"
        );
    }
    Ok(())
}

/// Migrations of 64 pages, and restarts of a VM of 16 MiB, are done in batches: the end of a
/// quota's period waits for no more than one of them.
#[test]
fn work_for_a_guest_delays_no_deadline_for_long() -> Result<()> {
    for (cause, args, limit) in [
        ("migration", [6400, 5, 0, 0], 5_000),
        ("restart", [20, 6, 0, 0], 5_000),
    ] {
        let mut checked = load(&config("spender"), VIRT)?;
        let vm = &mut checked.system.vms[0];
        vm.args = args;
        let quota = &mut vm.quotas[0];
        // The shortest period, and a budget that lasts.
        (quota.period, quota.budget, quota.work_cost) =
            (Nanos(50_000), Events(1_000_000), WorkCost::default());
        quota.ceiling = quota.budget;
        (quota.backstop, quota.trace) = (false, true);
        let run = run(&checked, VIRT, Clock::Counted)?.whole();
        let is_work = |record: &Record| match record {
            Record::Migration(_) => cause == "migration",
            Record::VmState { state, .. } => cause == "restart" && *state == VmState::Started,
            _ => false,
        };
        let entries = &run.telemetry.entries;
        let last = entries
            .iter()
            .filter(|entry| is_work(&entry.record))
            .map(|entry| entry.at)
            .max()
            .expect("some work");
        // Not what comes after it, such as what the guest prints; and not the period in which a
        // vCPU starts again: it may have ended while the vCPU was off.
        let mut starts = false;
        let late = entries
            .iter()
            .filter(|entry| entry.at <= last)
            .filter_map(|entry| match &entry.record {
                Record::QuotaPeriod(quota) if !std::mem::take(&mut starts) => {
                    Some(entry.at.0 - quota.period.due.0)
                }
                Record::VmState {
                    state: VmState::Started,
                    ..
                } => {
                    starts = true;
                    None
                }
                _ => None,
            });
        let (count, most) = late.fold((0, 0), |(count, most), late| (count + 1, late.max(most)));
        println!("max_el2_visit_{cause}: {most} instructions in {count} periods");
        assert!(
            count > 100 && most <= limit,
            "{cause}: {most} after {count} periods"
        );
    }
    Ok(())
}

#[test]
fn no_trick_gains_budget_on_virt() -> Result<()> {
    no_trick_gains_budget(VIRT)
}

#[test]
fn no_trick_gains_budget_on_zcu102() -> Result<()> {
    no_trick_gains_budget(ZCU102)
}

/// A guest that goes past the caches is not slowed by a quota on L2 refills, whatever its budget; a
/// quota on bus accesses holds it as it holds a guest that uses the caches.
#[test]
fn a_quota_on_refills_does_not_bound_a_guest_that_goes_past_the_caches_and_one_on_the_bus_does()
-> Result<()> {
    const STORES: u64 = 65_536;
    const PERIOD_US: u64 = 1000;
    /// As many lines per period as a budget allows: a store that misses fills a line and makes
    /// another be written back.
    const LINES: u64 = 500;
    let stream = |what: u64, quota: Option<(&str, u64)>| -> Result<(u64, Option<QuotaTotal>)> {
        let mut checked = load(&config("spender"), VIRT)?;
        let events = checked.board.events.clone();
        let vm = &mut checked.system.vms[0];
        vm.args = [STORES, what, 0, 0];
        let mut quotas = std::mem::take(&mut vm.quotas);
        for own in &mut quotas {
            let Some((event, budget)) = quota else {
                continue;
            };
            let event = events.by_name(event).expect("an event of the board").id;
            own.counted = Counted {
                event,
                weight: 1,
                allowed: true,
            };
            (own.budget, own.ceiling, own.period.0) =
                (Events(budget), Events(budget), PERIOD_US * 1000);
            own.work_cost = checked.board.work_cost(own.counted.event);
        }
        vm.quotas = if quota.is_some() { quotas } else { vec![] };
        let image = image(&checked)?;
        let outcome = modelled::boot(&image, None)?;
        let run = Run {
            system: image.system,
            telemetry: Telemetry::parse(&outcome.telemetry),
            outcome,
        }
        .whole();
        let total = run.telemetry.quota_totals().map(|(_, total)| *total).next();
        Ok((number(run.line("spender", "spender: what="), "us"), total))
    };
    let (cached, uncached) = (7, 8);
    let (refills, bus) = (("L2D_CACHE_REFILL", LINES), ("BUS_ACCESS", 8 * LINES));
    let (free, _) = stream(cached, None)?;
    let (bound, _) = stream(cached, Some(refills))?;
    println!("through the caches: {free} us, with a quota on refills {bound} us");
    // The budget means something: the guest needs many periods.
    let wanted = STORES / LINES * PERIOD_US;
    assert!(
        free < wanted / 5 && bound > wanted * 9 / 10,
        "{free} us, then {bound} us"
    );

    let (free, _) = stream(uncached, None)?;
    let (hole, total) = stream(uncached, Some(refills))?;
    let (bound, on_the_bus) = stream(uncached, Some(bus))?;
    println!("past them: {free} us, with a quota on refills {hole} us, on the bus {bound} us");
    // A store is one access to the bus. The first period may be nearly over when the guest begins.
    let wanted = STORES / bus.1 * PERIOD_US - PERIOD_US;
    assert!(
        hole < free + PERIOD_US,
        "{hole} us with a quota, {free} us without"
    );
    // What it counts is what the hypervisor's work was charged: 64 pages became non-cacheable,
    // which was paid before the first store, and cacheable again at the end.
    let charged = 2
        * 64
        * load(&config("spender"), VIRT)?
            .board
            .work_cost(EventId(0x17))
            .page
            .0;
    assert!(
        charged <= STORES / 4 && total.is_some_and(|total| total.totals.events.0 < charged + LINES),
        "{total:?}"
    );
    assert!(
        bound >= wanted && bound > 2 * free,
        "{bound} us with a quota on the bus, {free} us without"
    );
    assert!(
        on_the_bus.is_some_and(|total| total.totals.events.0 >= STORES),
        "{on_the_bus:?}"
    );
    Ok(())
}

/// The output of `cargo xtask top` for the demo, whose quotas are not configured to log their
/// periods.
#[test]
fn budgets_are_shown_while_the_system_runs() -> Result<()> {
    let board = VIRT;
    let mut checked = load(&shipped("demo"), board)?;
    checked
        .system
        .vms
        .iter_mut()
        .flat_map(|vm| &mut vm.quotas)
        .for_each(|quota| quota.trace = true);
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    let image = image(&checked)?;
    image.write(&file)?;
    let names = EventNames::of(&checked.board.events);
    let style = || Style {
        plain: true,
        columns: None,
    };
    let view = View {
        title: "demo".into(),
        note: None,
        system: image.system,
        names,
        style,
    };
    let mut pages: Vec<String> = vec![];
    view.watch(
        &machine(board, &file, Clock::Counted)?,
        Duration::from_millis(200),
        |page| {
            pages.push(page.to_owned());
            Ok(false)
        },
    )?;
    let row = |page: &str, vm: &str| -> Vec<String> {
        let line = page
            .lines()
            .find(|line| line.contains(vm))
            .unwrap_or_else(|| panic!("no {vm} in\n{page}"));
        line.split('|')
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let number = |cell: &str| cell.parse::<u64>().unwrap_or_else(|_| panic!("{cell:?}"));
    let last = pages.last().expect("a page");
    // Core, VM, event, budget, used, bar, throttled, overshoot, most, periods.
    let held = row(last, "interf-1");
    assert_eq!(
        held[..4],
        ["1", "interf-1 (stopped)", "INST_RETIRED", "20000 / 1 ms"]
    );
    assert!(
        number(&held[9]) > 20 && number(&held[8]) >= number(&held[7]),
        "{last}"
    );
    assert!(
        pages.len() >= 2 && row(last, "victim").contains(&"no quota".to_owned()),
        "{last}"
    );
    // The neighbor that wants more than its budget gets all of it and is held for the rest; the
    // last one cannot use up its budget.
    let busy = pages
        .iter()
        .map(|page| row(page, "interf-1"))
        .find(|row| row[4] != "-")
        .expect("a look with periods");
    let percent = |cell: &str| {
        cell.trim_end_matches(" %")
            .parse::<f64>()
            .unwrap_or_else(|_| panic!("{cell:?}"))
    };
    assert!(
        percent(&busy[4]) >= 100.0 && percent(&busy[6]) > 0.0 && busy[5] == "#".repeat(20),
        "{busy:?}"
    );
    assert_eq!(row(last, "interf-3")[8], "0", "never beyond");
    Ok(())
}
