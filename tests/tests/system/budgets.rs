//! Features of budgets besides holding a core: short periods, sums, sharing, other reactions, and
//! VMs that set them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::modelled;
use crate::quota::INTERRUPT_SLACK;
use cloison_config::Checked;
use cloison_engine::telemetry::End;
use cloison_formats::image::{Counted, Quota, Reclaim, WhenSpent, WorkCost};
use cloison_formats::telemetry::QuotaTotal;
use cloison_formats::units::{EventId, Events, Nanos};
use cloison_tests::{Clock, Run, VIRT, ZCU102, config, image, load, number, run};
use miette::Result;
use statrs::statistics::Statistics;

const INSTRUCTIONS: EventId = EventId(0x08);

/// Returns the totals of a run's quotas, by VM.
fn totals(run: &Run) -> Vec<QuotaTotal> {
    let mut totals: Vec<QuotaTotal> = run
        .telemetry
        .quota_totals()
        .map(|(_, total)| *total)
        .collect();
    totals.sort_by_key(|total| (total.vm, total.quota));
    totals
}

/// A guest that never rests, under a quota of `budget` instructions per `period`, until `periods`
/// have ended.
fn busy(budget: u64, period: u64, periods: u64, change: impl Fn(&mut Checked)) -> Result<Run> {
    let mut checked = load(&config("quota"), VIRT)?;
    let vm = &mut checked.system.vms[0];
    vm.args[0] = periods;
    let quota = &mut vm.quotas[0];
    (quota.budget, quota.ceiling, quota.period, quota.trace) =
        (Events(budget), Events(budget), Nanos(period), false);
    change(&mut checked);
    Ok(run(&checked, VIRT, Clock::Counted)?.whole())
}

/// Periods from 2 us to 100 ms, and budgets from 300 instructions on: no period of over 10,000 has
/// more than 8 beyond.
#[test]
fn budgets_of_all_lengths_are_kept_to_8_events() -> Result<()> {
    let mixed = [
        (300, 2_000, 3000),
        (500, 2_000, 3000),
        (1_200, 2_000, 1000),
        (700, 7_000, 2000),
        (9_000, 50_000, 1000),
        (40_000, 50_000, 200),
        (20_000, 1_000_000, 200),
        (30_000_000, 100_000_000, 3),
    ];
    let mut all = 0;
    for (budget, period, periods) in mixed {
        let run = busy(budget, period, periods, |_| {})?;
        let [total] = totals(&run)[..] else {
            panic!("{run}")
        };
        let (totals, counts) = (total.totals, total.totals.histogram);
        println!("{budget} per {period} ns: {totals:?}");
        assert!(
            total.by_interrupt && totals.periods >= periods,
            "{totals:?}"
        );
        assert!(
            totals.max_overshoot.0 <= INTERRUPT_SLACK,
            "{budget} per {period} ns: {totals:?}"
        );
        // The histogram has each period once.
        assert_eq!(
            counts.used.iter().sum::<u64>(),
            counts.overshoot.iter().sum::<u64>()
        );
        assert!(
            counts.used.iter().sum::<u64>() + counts.quiet <= totals.periods
                && counts.overshoot[5] == 0,
            "{counts:?}"
        );
        assert!(counts.used[8] >= periods / 2, "{counts:?}");
        all += counts.used.iter().sum::<u64>();
    }
    assert!(all > 10_000, "{all} periods");
    Ok(())
}

/// The sum of instructions and, with three times their weight, instructions again: a quarter of the
/// budget is left for each.
#[test]
fn a_budget_of_a_sum_is_kept() -> Result<()> {
    let run = busy(20_000, 1_000_000, 100, |checked| {
        let quota = &mut checked.system.vms[0].quotas[0];
        quota.also = Some(Counted {
            weight: 3,
            ..quota.counted
        });
        // The guest looks at a quota that is read.
        quota.exact = true;
    })?;
    let [total] = totals(&run)[..] else {
        panic!("{run}")
    };
    println!("{:?}", total.totals);
    assert!(
        total.totals.spent_periods >= 100 && total.totals.max_overshoot.0 <= 4 * INTERRUPT_SLACK,
        "{total:?}"
    );
    Ok(())
}

#[test]
fn a_budget_that_is_only_logged_holds_nobody() -> Result<()> {
    let run = busy(20_000, 1_000_000, 50, |checked| {
        checked.system.vms[0].quotas[0].when_spent = WhenSpent::Log
    })?;
    let [total] = totals(&run)[..] else {
        panic!("{run}")
    };
    assert!(
        total.throttled == Nanos(0) && total.totals.spent_periods >= 50,
        "{total:?}"
    );
    // The guest runs all the time: an instruction takes one nanosecond.
    let logged: Vec<_> = run
        .telemetry
        .quota_periods()
        .map(|(_, record)| record.period)
        .collect();
    assert!(
        logged.len() >= 50 && logged.iter().all(|period| period.spent_at.is_some()),
        "{logged:?}"
    );
    assert!(
        logged
            .iter()
            .skip(1)
            .all(|period| period.events.0 > 500_000),
        "{logged:?}"
    );
    assert_eq!(run.end_of("quota"), End::Off);
    Ok(())
}

/// The line is high from then on until the period ends; the guest runs on, and is told in each
/// period once.
#[test]
fn a_guest_is_told_that_its_budget_is_spent() -> Result<()> {
    let told = |when_spent| -> Result<(u64, u64, QuotaTotal)> {
        let run = busy(20_000, 1_000_000, 50, |checked| {
            checked.system.vms[0].args[2] = 1;
            checked.system.vms[0].quotas[0].when_spent = when_spent;
        })?;
        let line = run.line("quota", "quota-check: spent=");
        let [total] = totals(&run)[..] else {
            panic!("{run}")
        };
        Ok((number(line, "periods"), number(line, "spent"), total))
    };
    let (periods, spent, total) = told(WhenSpent::Interrupt)?;
    assert!(
        periods >= 50 && spent.abs_diff(total.totals.spent_periods) <= 1,
        "{spent} of {periods}: {total:?}"
    );
    assert!(spent >= 50 && total.throttled == Nanos(0), "{total:?}");
    let (_, spent, total) = told(WhenSpent::Throttle)?;
    assert!(spent == 0 && total.throttled.0 > 0, "{total:?}");
    Ok(())
}

#[test]
fn a_vm_is_stopped_with_its_budget() -> Result<()> {
    let run = busy(20_000, 1_000_000, 50, |checked| {
        checked.system.vms[0].quotas[0].when_spent = WhenSpent::Stop
    })?;
    assert_eq!(run.end_of("quota"), End::Stopped);
    let all = totals(&run);
    assert!(
        !all.is_empty() && all.iter().map(|total| total.totals.periods).sum::<u64>() <= 2,
        "{all:?}"
    );
    Ok(())
}

/// The image lists what was validated, and the hypervisor believes nothing else.
#[test]
fn an_event_that_nobody_trusts_is_refused_at_boot_or_noted() -> Result<()> {
    let run = busy(20_000, 1_000_000, 50, |checked| {
        checked.system.trusted.clear();
        checked.system.vms[0].quotas[0].counted.allowed = true;
    })?;
    let said = "VM quota: a quota counts 0x08, which no verdict trusts";
    assert!(run.outcome.console.contains(said), "{run}");
    assert_eq!(run.telemetry.vms[0].untrusted, [INSTRUCTIONS]);
    let mut checked = load(&config("quota"), VIRT)?;
    checked.system.trusted.clear();
    let refused = image(&checked)
        .expect_err("the image builder asks the hypervisor's own rules")
        .to_string();
    assert!(
        refused.contains("a quota counts event 0x8, which no verdict trusts"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_vm_sets_the_quota_of_another_one() -> Result<()> {
    let checked = load(&config("budgets/regulated"), ZCU102)?;
    let run = run(&checked, ZCU102, Clock::Modelled)?.whole();
    let line = run.line("regulator", "regulator: done");
    println!("{line}");
    assert_eq!(
        (number(line, "calls"), number(line, "wrong")),
        (40, 0),
        "{run}"
    );
    assert!(
        number(line, "periods") == 40 && number(line, "refused") == 240,
        "{line}"
    );
    Ok(())
}

/// On the model, where each core counts its own instructions.
#[test]
fn what_a_core_does_not_use_makes_another_one_faster() -> Result<()> {
    let spend = |shares: bool| -> Result<(u64, Vec<QuotaTotal>)> {
        let mut checked = load(&config("budgets/shared"), ZCU102)?;
        for quota in checked.system.vms.iter_mut().flat_map(|vm| &mut vm.quotas) {
            quota.exact = true;
            quota.reclaim = shares.then_some(Reclaim {
                pool: 0,
                guarantee: Events(10_000),
            });
        }
        let run = run(&checked, ZCU102, Clock::Modelled)?.whole();
        Ok((
            number(run.line("busy", "spender: what="), "us"),
            totals(&run),
        ))
    };
    let ((alone, without), (shared, with)) = (spend(false)?, spend(true)?);
    println!("{alone} us without, {shared} us with: {with:?}");
    assert!(
        shared * 10 < alone * 7,
        "{shared} us with what the other core leaves, {alone} us without"
    );
    let (busy, idle) = (with[0].totals, with[1].totals);
    assert!(
        busy.reclaimed.0 > 0 && busy.reclaimed <= idle.given && idle.reclaimed.0 == 0,
        "{with:?}"
    );
    assert!(
        without
            .iter()
            .all(|total| total.totals.reclaimed.0 == 0 && total.totals.given.0 == 0),
        "{without:?}"
    );
    Ok(())
}

/// Returns a system of one VM, which runs `workload`.
fn alone(board: &str, workload: &str, args: [u64; 4]) -> Result<Checked> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("alone.toml");
    let text = format!(
        r#"
name = "alone"
hypervisor = {{ colors = "15" }}
pool = [{{ name = "shared", kind = "SH", colors = "0-14" }}]

[[vm]]
name = "alone"
cores = [0]
image = {{ workload = "{workload}" }}
args = {args:?}
services = ["hem"]
region = [{{ name = "ram", ipa = 0x4000_0000, size = "16M", pool = "shared" }}]
"#
    );
    std::fs::write(&file, text).expect("a file in the scratch directory");
    load(&file, board)
}

/// Returns the cycles of the last segment of `workload`, those at EL2 included, alone on the board
/// model, with a budget of instructions per `period` that is never reached, or without one. `seed`
/// is the model's.
fn cycles_beside_a_budget(
    workload: &str,
    args: [u64; 4],
    period: Option<Nanos>,
    exact: bool,
    seed: u64,
) -> Result<u64> {
    let template = load(&config("quota"), VIRT)?.system.vms[0].quotas[0];
    let mut checked = alone(VIRT, workload, args)?;
    let (counted, budget) = (
        Counted {
            allowed: true,
            ..template.counted
        },
        Events(u32::MAX.into()),
    );
    let quota = |period| Quota {
        counted,
        budget,
        ceiling: budget,
        period,
        trace: false,
        exact,
        ..template
    };
    checked.system.vms[0].quotas = period.map(quota).into_iter().collect();
    modelled::cycles(&image(&checked)?, seed)
}

/// The lengths of a period, and by which part a budget that is never reached may lengthen a
/// segment.
const COSTS: [(Nanos, f64); 3] = [
    (Nanos(1_000_000), 0.001),
    (Nanos(50_000), 0.001),
    (Nanos(2_000), 0.01),
];

#[test]
fn a_budget_that_is_never_reached_costs_nothing() -> Result<()> {
    let args = [1, 2, 0, 0];
    for workload in ["disparity", "segmentation", "matmul"] {
        let free = cycles_beside_a_budget(workload, args, None, false, 0)?;
        for (period, most) in COSTS {
            let bound = cycles_beside_a_budget(workload, args, Some(period), false, 0)?;
            let cost = bound as f64 / free as f64 - 1.0;
            println!(
                "{workload}, {} ns: {free} cycles, {bound} with a budget: {:.4} %",
                period.0,
                100.0 * cost
            );
            assert!(
                cost <= most,
                "{workload}, {} ns: {free} cycles, then {bound}",
                period.0
            );
        }
    }
    Ok(())
}

/// The seeds of the model over which a cost is averaged.
const SEEDS: u64 = 5;

/// By which part a budget that is never reached lengthens a segment: the mean over [`SEEDS`], and
/// its standard error. What has another set of lines in its caches as it begins takes longer or
/// less long, and which depends on the seed.
fn cost(
    workload: &str,
    args: [u64; 4],
    free: &[u64],
    period: Nanos,
    exact: bool,
) -> Result<(f64, f64)> {
    let costs = (0..SEEDS).zip(free).map(|(seed, free)| {
        Ok(
            cycles_beside_a_budget(workload, args, Some(period), exact, seed)? as f64
                / *free as f64
                - 1.0,
        )
    });
    let costs: Vec<f64> = costs.collect::<Result<_>>()?;
    Ok((
        costs.iter().mean(),
        costs.iter().std_dev() / (SEEDS as f64).sqrt(),
    ))
}

/// A part in percent, with its standard error where that shows.
fn percent(mean: f64, error: f64) -> String {
    let error = format!("{:.3}", 100.0 * error);
    if error == "0.000" {
        format!("{:.3}", 100.0 * mean)
    } else {
        format!("{:.3} ± {error}", 100.0 * mean)
    }
}

/// All workloads that have segments. Prints the table of docs/results/budgets.md, with periods of
/// 1 us too, which no configuration may have, and with exact periods, which end when they end and
/// not when somebody looks.
#[test]
#[ignore = "takes minutes: a table for the documentation"]
fn budgets_that_are_never_reached_cost_every_workload_nothing() -> Result<()> {
    let shipped = [
        ("staircase", [2, 20, 0, 0]),
        ("c2is", [2, 10, 0, 0]),
        ("matrix-copy", [0, 2, 0, 0]),
        ("latency", [0, 50, 0, 2]),
        ("memory", [0, 1 << 20, 32, 2]),
        ("memory", [1, 1 << 20, 32, 2]),
        ("memory", [2, 1 << 20, 32, 2]),
        ("memory", [2, 1 << 19, 64, 2]),
        ("memory", [3, 1 << 20, 32, 2]),
        ("memory", [4, 1 << 20, 8, 2]),
        ("memory", [6, 1 << 20, 32, 2]),
        ("disparity", [1, 2, 0, 0]),
        ("segmentation", [1, 2, 0, 0]),
        ("matmul", [1, 2, 0, 0]),
    ];
    let mut beyond = vec![];
    for (workload, args) in shipped {
        let free = (0..SEEDS).map(|seed| cycles_beside_a_budget(workload, args, None, false, seed));
        let free: Vec<u64> = free.collect::<Result<_>>()?;
        let mut row = vec![];
        for (period, most) in COSTS.into_iter().chain([(Nanos(1_000), f64::INFINITY)]) {
            let (mean, error) = cost(workload, args, &free, period, false)?;
            row.push((mean, error));
            if mean - 2.0 * error > most {
                beyond.push(format!(
                    "{workload} {args:?}, {} ns: {:.4} %",
                    period.0,
                    100.0 * mean
                ));
            }
        }
        for (period, _) in COSTS {
            row.push(cost(workload, args, &free, period, true)?);
        }
        let row: Vec<String> = row
            .iter()
            .map(|(mean, error)| percent(*mean, *error))
            .collect();
        println!(
            "| `{workload}` {args:?} | {} | {} |",
            free[0],
            row.join(" | ")
        );
    }
    assert_eq!(beyond, [""; 0]);
    Ok(())
}

/// A shared overflow interrupt on the model: how far past its budget each period of a guest that
/// stores to memory all the time went. The time slice in which the model counts is its grain.
#[test]
#[ignore = "takes minutes: a table for the documentation"]
fn overshoot_on_the_model_by_event_and_length_of_the_period() -> Result<()> {
    let template = load(&config("quota"), ZCU102)?.system.vms[0].quotas[0];
    for (name, event, budgets) in [
        ("INST_RETIRED", 0x08, [100, 2_000, 50_000]),
        ("L2D_CACHE_REFILL", 0x17, [20, 500, 10_000]),
        ("BUS_ACCESS", 0x19, [150, 4_000, 80_000]),
    ] {
        for (budget, (period, _)) in budgets.into_iter().rev().zip(COSTS) {
            let budget = Events(budget);
            let mut checked = alone(ZCU102, "interf", [2 << 20, 100, 0, 0])?;
            let counted = Counted {
                event: EventId(event),
                weight: 1,
                allowed: true,
            };
            let quota = Quota {
                counted,
                budget,
                ceiling: budget,
                period,
                trace: false,
                work_cost: WorkCost::default(),
                ..template
            };
            checked.system.vms[0].quotas = vec![Quota {
                exact: true,
                ..quota
            }];
            let run = run(&checked, ZCU102, Clock::Modelled)?.whole();
            let [total] = totals(&run)[..] else {
                panic!("{run}")
            };
            let (totals, over) = (total.totals, total.totals.histogram.overshoot);
            assert!(total.by_interrupt && totals.spent_periods > 0, "{totals:?}");
            println!(
                "| {name} | {} | {} us | {} | {} | {} |",
                budget.0,
                period.0 / 1000,
                totals.spent_periods,
                over.map(|count| count.to_string()).join(" | "),
                totals.max_overshoot.0,
            );
        }
    }
    Ok(())
}
