//! Channels: VMs that send each other messages and call each other, and get no further than they
//! may.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::audit::every_page_of;
use cloison_tests::{Clock, VIRT, config, load, number, run};
use miette::Result;

/// What a VM says that asks another one, in order.
const SHOWN: [&str; 25] = [
    "messages",
    "measurement is sent",
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
    "restart is sent",
    "news of its restart",
    "second life",
    "old life",
    "messages again",
    "off is sent",
    "news of its end",
    "off",
];
/// Calls of the storm.
const STORM: u64 = 10_000;

#[test]
fn two_vms_talk_and_get_no_further_than_they_may() -> Result<()> {
    let run = run(&load(&config("channel"), VIRT)?, VIRT, Clock::Counted)?.whole();
    let mut lines = run.said("asks").filter_map(|(_, text)| {
        let (what, verdict) = text.strip_prefix("channel: ")?.rsplit_once(' ')?;
        (verdict == "ok" || verdict == "WRONG").then_some((what, verdict))
    });
    for what in SHOWN {
        assert_eq!(lines.next(), Some((what, "ok")), "{run}");
    }
    assert_eq!(lines.next(), Some(("no empty interrupt", "ok")), "{run}");
    run.line("asks", "channel: done");
    run.line("answers", "channel: nothing stale ok");
    // No more than the burst and the rate disturb the peer. What the peer has not taken costs
    // nothing, and passes.
    let storm = run.line("asks", "channel: storm");
    let [passed, often, other] = ["passed", "often", "other"].map(|name| number(storm, name));
    assert_eq!((passed + often, other), (STORM, 0), "{storm}");
    assert!(often > 0, "{storm}");
    let restart = run.line("asks", "channel: called");
    assert_eq!(number(restart, "wrong"), 0, "{restart}");
    assert!(number(restart, "off") > 0, "{restart}");
    Ok(())
}

#[test]
fn a_channels_pages_are_shared_with_their_rights_and_no_others() -> Result<()> {
    every_page_of(&config("channel"), VIRT)
}
