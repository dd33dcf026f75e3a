//! Channels: VMs that send each other messages and call each other, and get no further than they
//! may.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::audit::every_page_of;
use cloison_engine::telemetry::Telemetry;
use cloison_formats::ids::VmId;
use cloison_tests::{
    BOTH, Clock, Run, VIRT, VIRT_GICV3, ZCU102, config, image, load, machine, number, run,
};
use miette::Result;

/// What a VM says that asks another one, in order.
const SHOWN: [&str; 33] = [
    "messages",
    "messages under a budget",
    "bit 32",
    "bit 2^64 - 1",
    "itself",
    "no channel",
    "no VM",
    "VM 2^63",
    "another life",
    "peer without channel",
    "channel 2",
    "rights",
    "members",
    "read",
    "write refused",
    "execution refused",
    "beyond refused",
    // It starts again by itself.
    "its end is sent",
    "news of its start",
    "second life",
    "old life",
    "messages again",
    "nothing stale",
    // It is killed and started.
    "its end is sent",
    "news of its start",
    "third life",
    "old life",
    "messages again",
    "nothing stale",
    "off is sent",
    "news of its end",
    "off",
    "no empty interrupt",
];
/// Timer interrupts of the neighbor.
const BEATS: u64 = 200;
/// Calls of the storm, from two vCPUs.
const STORM: u64 = 2 * 10_000;
/// Calls that may interrupt the peer at once, and in a millisecond.
const BURST: u64 = 100;
/// Interrupts of the peer for what surrounds the storm.
const OTHERS: u64 = 4;

/// At a frequency that has no exact ratio to nanoseconds.
fn two_vms_talk(board: &str) -> Result<()> {
    let image = image(&load(&config("channel"), board)?)?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    std::fs::write(&file, &image.bytes).expect("room for an image");
    let outcome = machine(board, &file, Clock::Counted)?
        .cntfrq(33_333_000)
        .run()?;
    let run = Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    }
    .whole();
    let mut lines = run.said("asks").filter_map(|(_, text)| {
        let (what, verdict) = text.strip_prefix("channel: ")?.rsplit_once(' ')?;
        (verdict == "ok" || verdict == "WRONG").then_some((what, verdict))
    });
    for what in SHOWN {
        assert_eq!(lines.next(), Some((what, "ok")), "{run}");
    }
    run.line("asks", "channel: done");
    // The core that sends was held again and again, and the receiver missed nothing.
    let held = run
        .telemetry
        .quota_totals()
        .find(|(core, _)| core.index() == 0)
        .map(|(_, quota)| quota.totals.spent_periods);
    assert!(held.is_some_and(|times| times >= 5), "{held:?}\n{run}");
    // No more than the burst and the rate disturb the peer, whichever core calls. What the peer has
    // not taken costs nothing, and passes.
    let storm = run.line("asks", "channel: storm");
    let [passed, often, other] = ["passed", "often", "other"].map(|name| number(storm, name));
    assert_eq!((passed + often, other), (STORM, 0), "{storm}");
    let most = BURST + number(storm, "us") * BURST / 1000 + OTHERS;
    let interrupts = number(storm, "interrupts");
    assert!(often > 0 && (BURST..=most).contains(&interrupts), "{storm}");
    // The log counts what the caller has counted.
    let logged = run.telemetry.doorbells()[&VmId(0)];
    assert!(logged.refused >= often, "{logged:?}\n{storm}");
    assert!(logged.passed >= BURST, "{logged:?}\n{storm}");
    // The peer ends twice, under calls from both cores.
    let ends = run
        .said("asks")
        .filter(|(_, text)| text.contains("called while it ended"));
    let ends: Vec<&str> = ends.map(|(_, text)| text).collect();
    assert_eq!(ends.len(), 2, "{run}");
    for end in ends {
        assert_eq!(number(end, "wrong"), 0, "{end}");
        assert!(number(end, "off") > 0, "{end}");
    }
    assert!(run.outcome.console.contains(" killed at "), "{run}");
    Ok(())
}

#[test]
fn two_vms_talk_and_get_no_further_than_they_may() -> Result<()> {
    two_vms_talk(VIRT)
}

#[test]
#[ignore = "on demand: takes 10 seconds, and another board's does it each time"]
fn two_vms_talk_and_get_no_further_than_they_may_with_a_gicv3() -> Result<()> {
    two_vms_talk(VIRT_GICV3)
}

#[test]
#[ignore = "on demand: takes 10 seconds, and another board's does it each time"]
fn two_vms_talk_and_get_no_further_than_they_may_on_zcu102() -> Result<()> {
    two_vms_talk(ZCU102)
}

/// A neighbor's worst interrupt latency, in ticks of the modelled board.
fn worst_latency(storms: bool) -> Result<u64> {
    let mut checked = load(&config("channel"), VIRT)?;
    let vms = &mut checked.system.vms;
    vms[0].args[0] = if storms { 2 } else { 3 };
    vms[2].args = [100, 4096, BEATS, BEATS];
    checked.system.ends_with = Some(VmId(2));
    let run = run(&checked, VIRT, Clock::Modelled)?.whole();
    let line = run.line("heart", "heartbeat: done");
    assert_eq!(number(line, "beats"), BEATS, "{run}");
    Ok(number(line, "worst"))
}

#[test]
fn a_storm_between_two_vms_delays_no_interrupt_of_a_third() -> Result<()> {
    let [quiet, storm] = [worst_latency(false)?, worst_latency(true)?];
    println!("{quiet} ticks beside quiet VMs, {storm} beside a storm");
    assert!(quiet > 10 && storm * 10 <= quiet * 11, "{quiet}, {storm}");
    Ok(())
}

#[test]
fn a_channels_pages_are_shared_with_their_rights_and_no_others() -> Result<()> {
    for board in BOTH {
        every_page_of(&config("channel"), board)?;
    }
    Ok(())
}
