//! Pages that become cacheable and non-cacheable while their VM writes and checks them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::modelled;
use cloison_config::Checked;
use cloison_engine::telemetry::End;
use cloison_tests::{Clock, VIRT, ZCU102, config, image, load, number, run};
use miette::Result;
use serde_json::Value;

/// The states of the pages in the final measurement, in order.
const STATES: [&str; 5] = ["cached", "uncached", "away", "back", "again"];

fn checked(board: &str) -> Result<Checked> {
    load(&config("cacheability"), board)
}

fn in_and_out(board: &str, clock: Clock) -> Result<()> {
    let run = run(&checked(board)?, board, clock)?.whole();
    let line = run.line("check", "cacheability-check: rounds=");
    assert_eq!((number(line, "rounds"), number(line, "errors")), (100, 0), "{run}");
    // One call per round on one vCPU, and three at the end. The other vCPU's calls are added, and some collide.
    assert!(number(line, "changes") + number(line, "busy") > 103, "{line}");
    assert!(number(line, "moved") >= 128, "{line}");
    for what in STATES {
        run.line("check", &format!("cacheability-check: {what} ticks="));
    }
    assert_eq!(run.telemetry.hem_runs().count(), 2 * STATES.len());
    run.line("check", "cacheability-check: restarts, its pages away and not cached: Ok(())");
    assert_eq!(number(run.line("check", "cacheability-check: restarted"), "wrong"), 0);
    run.line("denied", "cacheability-check: denied");
    assert_eq!((run.end_of("check"), run.end_of("denied")), (End::Off, End::Off));
    Ok(())
}

#[test]
fn pages_leave_the_caches_unnoticed_on_virt() -> Result<()> {
    in_and_out(VIRT, Clock::Counted)
}

#[test]
fn pages_leave_the_caches_unnoticed_on_zcu102() -> Result<()> {
    in_and_out(ZCU102, Clock::Counted)
}

#[test]
fn pages_leave_the_caches_unnoticed_while_both_cores_really_run_on_virt() -> Result<()> {
    in_and_out(VIRT, Clock::Real)
}

#[test]
fn pages_leave_the_caches_unnoticed_while_both_cores_really_run_on_zcu102() -> Result<()> {
    in_and_out(ZCU102, Clock::Real)
}

#[test]
fn the_board_model_knows_which_frames_are_not_cached() -> Result<()> {
    let mut checked = checked(VIRT)?;
    let (pages, rounds) = (64, 4);
    checked.system.vms[0].args = [pages, rounds, 0, 0];
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stats = scratch.path().join("stats.json");
    let outcome = modelled::boot_on("zcu102-no-prefetch", &image(&checked)?, Some(&stats))?;
    assert!(outcome.exit.is_clean(), "{}\n{}", outcome.exit, outcome.errors);
    assert!(
        outcome.console.contains("errors=0 ") && outcome.console.contains("restarted wrong=0"),
        "{}",
        outcome.console
    );

    let report: Value = serde_json::from_slice(&std::fs::read(&stats).expect("the model's report")).expect("JSON");
    let regions = report["regions"].as_array().expect("a list of regions");
    assert_eq!(regions.len(), 2 * STATES.len(), "two segments in each state");
    let lines = pages * 64;
    for (state, passes) in STATES.iter().zip(regions.chunks(2)) {
        let count = |pass: usize, what: &str| passes[pass]["cores"][0]["counts"][what].as_u64().expect("a count");
        let is_cached = matches!(*state, "cached" | "again");
        let past_the_caches = if is_cached { 0 } else { lines };
        assert_eq!([0, 1].map(|pass| count(pass, "noncacheable")), [past_the_caches; 2], "{state}");
        // 256 KiB exceed the L1 and fit in the L2.
        let refills = if is_cached { lines * 9 / 10..lines * 11 / 10 } else { 0..lines / 10 };
        assert!(refills.contains(&count(1, "l1d_refills")), "{state}: {} L1 refills", count(1, "l1d_refills"));
        assert!(count(1, "l2_refills") < lines / 10, "{state}: {} L2 refills", count(1, "l2_refills"));
    }
    Ok(())
}
