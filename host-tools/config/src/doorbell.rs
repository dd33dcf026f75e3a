//! `[vm.doorbell]`: how a VM is called by its peers, and how often it may call them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Presence, Table};
use crate::quantity::show_duration;
use cloison_formats::channel::Trigger;
use cloison_formats::units::Nanos;
use std::ops::Range;

/// Maximum number of calls of a VM at once.
const MOST_CALLS: u64 = 10_000;
/// Shortest time per call of a VM. A call takes some 1,100 instructions on both cores together, with
/// the peer's handler: at this pace, a sender takes less than 22 % of a peer's core of 1 GHz.
const FASTEST: Nanos = Nanos(5_000);
/// Without `[vm.doorbell]`.
pub(crate) const DEFAULT: Bell = Bell {
    trigger: Trigger::Level,
    burst: 100,
    interval: Nanos(10_000),
};

const TRIGGERS: [(&str, Trigger); 2] = [("level", Trigger::Level), ("edge", Trigger::Edge)];

/// The terms of a VM's doorbell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bell {
    pub trigger: Trigger,
    pub burst: u32,
    pub interval: Nanos,
}

/// `[vm.doorbell]`, and where it is.
pub(crate) struct BellSpec {
    pub bell: Bell,
    pub span: Range<usize>,
}

/// Reads `[vm.doorbell]`.
pub(crate) fn read(table: &Table<'_>) -> Option<BellSpec> {
    let table = table.table("doorbell")?;
    let trigger = table.value("trigger", |field| field.one_of("trigger", &TRIGGERS));
    let calls = table.value("calls", |field| {
        field.integer_in(1..=MOST_CALLS, "1 to 10000 calls")
    });
    let per = table.value("per", Field::duration);
    table.finish_ref();
    if matches!(calls, Presence::Absent) != matches!(per, Presence::Absent) {
        let help = "write both: calls = 100, per = \"1 ms\"";
        let half = table.error("calls", table.span(), "a rate is `calls` and `per`");
        table.push(half.label("only one of the two").help(help));
        return None;
    }
    let span = per.given().map(|given| given.field.span());
    let (calls, per) = (calls.optional()?, per.optional()?);
    let mut bell = Bell {
        trigger: trigger.or(DEFAULT.trigger)?,
        ..DEFAULT
    };
    if let (Some(calls), Some(per), Some(at)) = (calls, per, span) {
        bell.burst = calls as u32;
        bell.interval = Nanos(per.0 / calls);
        if bell.interval < FASTEST {
            let shortest = show_duration(Nanos(FASTEST.0 * calls));
            let message = format!("{calls} calls per {} are too many", show_duration(per));
            let fast = table.error("per", at, message);
            let label = format!("one each {}", show_duration(bell.interval));
            let help = format!(
                "each call interrupts a peer: at most one each {}, which is per = \"{shortest}\"",
                show_duration(FASTEST)
            );
            table.push(fast.label(label).help(help));
            return None;
        }
    }
    Some(BellSpec {
        bell,
        span: table.span(),
    })
}
