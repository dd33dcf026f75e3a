//! The budgets of a guest's core pay for EL2's reads and writes in the guest's calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::modelled;
use cloison_board_model::statistics::{Region, Statistics};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::ids::Core;
use cloison_tests::{Run, VIRT, config, image, load, number};
use miette::{IntoDiagnostic, Result};

/// Refills that no call causes: the guest's own, and those of the handlers that ran meanwhile, in a
/// region. In a long one, twice as many as without any call.
const NOISE: u64 = 300;
/// What the machine may do for each event that is charged, in tenths.
const MOST: u64 = 15;

/// What one kind of call made the machine do.
#[derive(Debug)]
struct Row {
    name: String,
    calls: u64,
    /// Refills of the shared cache by all cores that the call makes work.
    refills: u64,
    /// Events that the caller's quota counted or was charged.
    charged: u64,
}

/// The last kinds: each of their calls logs a record, which is more than the telemetry's line can
/// carry. The logged periods are not complete then.
const LOGGING: u64 = 2;

/// Which kinds of call, and how many of them.
#[derive(Clone, Copy)]
struct Kinds {
    first: u64,
    count: u64,
}

/// Makes these kinds of call, each for so many microseconds, on the board model.
fn boot(micros: u64, kinds: Kinds) -> Result<(Run, Statistics)> {
    let mut checked = load(&config("budgets/payer"), VIRT)?;
    let vm = &mut checked.system.vms[0];
    (vm.args[0], vm.args[1], vm.args[3]) = (kinds.first, micros, kinds.count);
    // Each period is logged, and what a kind is charged is the sum of its periods.
    vm.quotas[0].trace = true;
    let image = image(&checked)?;
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let stats = scratch.path().join("stats.json");
    let outcome = modelled::boot_as("zcu102", &image, Some(&stats), "always")?;
    let run = Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    }
    .whole();
    let statistics =
        serde_json::from_slice(&std::fs::read(&stats).into_diagnostic()?).into_diagnostic()?;
    Ok((run, statistics))
}

fn row(run: &Run, line: &str, region: &Region) -> Row {
    let name = line.split_whitespace().nth(1).expect("a kind").to_owned();
    assert_eq!(number(line, "failed"), 0, "{line}");
    let refills = |core: usize| region.cores[core].event("L2D_CACHE_REFILL");
    // The other VM's core works for this one.
    let other = if ["vm_order_restart", "doorbell_ring"].contains(&name.as_str()) {
        refills(1)
    } else {
        0
    };
    let span = number(line, "began")..number(line, "ended") + 1_000_000;
    let of_core = run
        .telemetry
        .quota_periods()
        .filter(|(core, _)| *core == Core(0))
        .map(|(_, quota)| quota.period);
    let charged = of_core
        .filter(|period| span.contains(&period.due.0))
        .map(|period| period.events.0)
        .sum();
    Row {
        name,
        calls: number(line, "calls"),
        refills: refills(0) + other,
        charged,
    }
}

/// Returns what the quota counted and was charged from boot to the end.
fn total(run: &Run) -> u64 {
    run.telemetry
        .quota_totals()
        .filter(|(core, _)| *core == Core(0))
        .map(|(_, quota)| quota.totals.events.0)
        .sum()
}

/// Returns the lines of the kinds that were made.
fn lines(run: &Run) -> Vec<&str> {
    run.said("payer")
        .map(|(_, text)| text)
        .filter(|text| text.contains(" calls="))
        .collect()
}

/// Makes each kind of call for this long, so many of them in one boot.
fn measure(micros: u64, kinds_per_boot: u64) -> Result<Vec<Row>> {
    let (nothing, _) = boot(micros, Kinds { first: 0, count: 1 })?;
    let kinds = number(nothing.line("payer", "payer: kinds="), "kinds");
    let logging = kinds - LOGGING;
    let mut rows: Vec<Row> = vec![];
    for first in (0..logging).step_by(kinds_per_boot as usize) {
        let count = kinds_per_boot.min(logging - first);
        let (run, statistics) = boot(micros, Kinds { first, count })?;
        assert_eq!(run.telemetry.dropped(), 0, "{run}");
        let lines = lines(&run);
        let measured = lines.iter().zip(&statistics.regions);
        rows.extend(measured.map(|(line, region)| row(&run, line, region)));
    }
    for first in logging..kinds {
        let (run, statistics) = boot(micros, Kinds { first, count: 1 })?;
        let logging = row(&run, lines(&run)[0], &statistics.regions[0]);
        rows.push(Row {
            charged: total(&run).saturating_sub(total(&nothing)),
            ..logging
        });
    }
    assert_eq!(rows.len() as u64, kinds);
    Ok(rows)
}

fn no_call_makes_the_machine_do_more_than_is_charged(
    micros: u64,
    kinds_per_boot: u64,
) -> Result<()> {
    let rows = measure(micros, kinds_per_boot)?;
    for Row {
        name,
        calls,
        refills,
        charged,
    } in &rows
    {
        println!("{name:<26} {calls:>8} calls {refills:>8} refills {charged:>8} charged");
    }
    let row = |name: &str| {
        rows.iter()
            .find(|row| row.name == name)
            .expect("the kind was made")
    };
    let noise = NOISE.max(2 * row("nothing").refills);
    let unpaid = |row: &&Row| row.refills * 10 > row.charged * MOST + noise * 10;
    let unpaid: Vec<&Row> = rows.iter().filter(unpaid).collect();
    assert!(unpaid.is_empty(), "{unpaid:#?}");
    // The calls did something: some of each kind were made, and those that work on pages spent
    // their budget.
    assert!(rows.iter().all(|row| row.calls > 0), "{rows:#?}");
    for name in [
        "return_nothing",
        "move_last_entry_wrong",
        "return_another",
        "move_return",
        "vm_order_restart",
    ] {
        assert!(row(name).charged > 10 * NOISE / 3, "{:?}", row(name));
    }
    Ok(())
}

#[test]
fn no_call_makes_the_machine_do_more_than_is_charged_in_5_ms() -> Result<()> {
    no_call_makes_the_machine_do_more_than_is_charged(5_000, 64)
}

#[test]
#[ignore = "each of forty calls for a second of the modelled board"]
fn no_call_makes_the_machine_do_more_than_is_charged_in_a_second() -> Result<()> {
    no_call_makes_the_machine_do_more_than_is_charged(1_000_000, 3)
}
