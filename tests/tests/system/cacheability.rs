//! Pages that become cacheable and non-cacheable while their VM writes and checks them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::modelled;
use cloison_config::Checked;
use cloison_engine::image::prelude::{Others, Pages, REFUSED, before};
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::addr::Ipa;
use cloison_formats::ids::VmId;
use cloison_tests::{
    BOTH, Clock, Run, VIRT, ZCU102, boot, config, hypervisor, image, load, number, run,
};
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
    assert_eq!(
        (number(line, "rounds"), number(line, "errors")),
        (100, 0),
        "{run}"
    );
    // One call per round on one vCPU, and three at the end. The other vCPU's calls are added, and
    // some collide.
    assert!(
        number(line, "changes") + number(line, "busy") > 103,
        "{line}"
    );
    assert!(number(line, "moved") >= 128, "{line}");
    for what in STATES {
        run.line("check", &format!("cacheability-check: {what} ticks="));
    }
    assert_eq!(run.telemetry.hem_runs().count(), 2 * STATES.len());
    run.line(
        "check",
        "cacheability-check: restarts, its pages away and not cached: Ok(())",
    );
    assert_eq!(
        number(run.line("check", "cacheability-check: restarted"), "wrong"),
        0
    );
    run.line("denied", "cacheability-check: denied");
    assert_eq!(
        (run.end_of("check"), run.end_of("denied")),
        (End::Off, End::Off)
    );
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
    assert!(
        outcome.exit.is_clean(),
        "{}\n{}",
        outcome.exit,
        outcome.errors
    );
    assert!(
        outcome.console.contains("errors=0 ") && outcome.console.contains("restarted wrong=0"),
        "{}",
        outcome.console
    );

    let report: Value =
        serde_json::from_slice(&std::fs::read(&stats).expect("the model's report")).expect("JSON");
    let regions = report["regions"].as_array().expect("a list of regions");
    assert_eq!(
        regions.len(),
        2 * STATES.len(),
        "two segments in each state"
    );
    let lines = pages * 64;
    for (state, passes) in STATES.iter().zip(regions.chunks(2)) {
        let count = |pass: usize, what: &str| {
            passes[pass]["cores"][0]["counts"][what]
                .as_u64()
                .expect("a count")
        };
        let is_cached = matches!(*state, "cached" | "again");
        let past_the_caches = if is_cached { 0 } else { lines };
        assert_eq!(
            [0, 1].map(|pass| count(pass, "noncacheable")),
            [past_the_caches; 2],
            "{state}"
        );
        // 256 KiB exceed the L1 and fit in the L2.
        let refills = if is_cached {
            lines * 9 / 10..lines * 11 / 10
        } else {
            0..lines / 10
        };
        assert!(
            refills.contains(&count(1, "l1d_refills")),
            "{state}: {} L1 refills",
            count(1, "l1d_refills")
        );
        assert!(
            count(1, "l2_refills") < lines / 10,
            "{state}: {} L2 refills",
            count(1, "l2_refills")
        );
    }
    Ok(())
}

/// As `cloison bbprof` starts a guest: with these pages non-cacheable, and its neighbor off.
fn started_with(pages: &[Pages], board: &str) -> Result<Run> {
    let mut checked = load(&config("restart"), board)?;
    checked.system.vms[0].args[0] = 3;
    let image = before(
        &image(&checked)?,
        &hypervisor()?,
        VmId(0),
        pages,
        Others::Off,
    )?;
    let outcome = boot(&image.bytes, board, Clock::Counted)?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    }
    .whole())
}

/// Also after each of its restarts, and where its own page and that of the program before it are
/// among them.
#[test]
fn a_guest_starts_with_its_pages_not_cached_and_does_not_notice() -> Result<()> {
    let all = Pages {
        first: Ipa(0x4000_0000),
        pages: 4096,
    };
    for board in BOTH {
        let run = started_with(&[all], board)?;
        run.line("restart", "restart: done resets=3");
        assert_eq!(run.said("heart").count(), 0, "{run}");
        assert_eq!(
            (run.end_of("restart"), run.end_of("heart")),
            (End::Off, End::Off),
            "{run}"
        );
    }
    Ok(())
}

#[test]
fn a_page_that_the_vm_does_not_have_is_refused_before_its_guest_starts() -> Result<()> {
    let pages = [0x4000_0000, 0x4100_0000, 0x4000_2000].map(|first| Pages {
        first: Ipa(first),
        pages: 1,
    });
    let run = started_with(&pages, VIRT)?;
    let said: Vec<&str> = run.said("restart").map(|(_, line)| line).collect();
    assert_eq!(
        (said, run.end_of("restart")),
        (vec![REFUSED], End::Off),
        "{run}"
    );
    Ok(())
}
