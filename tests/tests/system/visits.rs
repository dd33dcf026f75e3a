//! The time that pending interrupts, deadlines and requests to stop wait at EL2, for any behavior
//! of a guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_bench::expected::{self, Part};
use cloison_bench::visits::{self, Latency, LongestVisit};
use miette::Result;

/// What exceeds its aim today, and how much it may take at most, whatever compiler made it: less
/// than twice what it took when this was written, because what a core waits for depends on what all
/// others do. docs/results/el2.md says why each does.
const BOUNDS: [(&str, u64); 13] = [
    ("abort", 5_000),
    ("end", 5_500),
    ("gicc", 4_500),
    ("hypercall_migrate", 7_500),
    ("gicd", 6_000),
    ("irq_deadline", 5_000),
    ("irq_maintenance", 4_500),
    ("irq_overflow", 5_000),
    ("irq_sgi", 7_000),
    ("irq_timer", 3_000),
    ("psci_cpu_off", 5_500),
    ("uart", 4_000),
    ("wait", 4_000),
];

/// What the guests are there to cause, with a length that each of them has at least.
const CAUSED: [&str; 22] = [
    "abort",
    "gicd",
    "hypercall_hem_read",
    "hypercall_identify",
    "hypercall_migrate",
    "hypercall_migrate_page",
    "hypercall_quota_read",
    "hypercall_restore",
    "hypercall_segment_begin",
    "hypercall_set_cacheability",
    "hypercall_unknown",
    "irq_deadline",
    "irq_overflow",
    "irq_sgi",
    "irq_timer",
    "link_send",
    "migration_by_deadline",
    "psci",
    "restart",
    "services_page",
    "sysreg",
    "uart",
];

/// What a call may take that is charged: it may spend a budget, and its core then sends a record
/// while it is held.
const HELD: u64 = 4_000;

fn bound(one: &LongestVisit) -> u64 {
    let other = if one.cause.starts_with("hypercall_") {
        one.aim().max(HELD)
    } else {
        one.aim()
    };
    BOUNDS
        .iter()
        .find(|(cause, _)| *cause == one.cause)
        .map_or(other, |(_, bound)| *bound)
}

#[test]
fn no_visit_to_el2_is_longer_than_its_bound() -> Result<()> {
    let longest = visits::measure()?;
    for cause in CAUSED {
        let found = longest.iter().find(|one| one.cause == cause);
        // An entry and a return save and restore 18 registers at least.
        assert!(
            found.is_some_and(|one| one.stretch.instructions >= 20),
            "nothing was measured for {cause}"
        );
    }
    let beyond: Vec<&LongestVisit> = longest
        .iter()
        .filter(|one| one.stretch.instructions > bound(one))
        .collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    expected::check(Part::Visits, &visits::counts(&longest))
}

#[test]
fn visits_to_el2_repeat_exactly() -> Result<()> {
    let [first, second] = [visits::of(visits::CHAOS)?, visits::of(visits::CHAOS)?];
    assert!(first.stretches > 10_000);
    assert_eq!(first, second);
    Ok(())
}

/// In instructions of all cores together. Only a migration of 64 pages may take a neighbor's own
/// time; to move one page takes 2,000 of its instructions, and four cores execute.
#[test]
fn no_neighbor_delays_an_interrupt_for_long() -> Result<()> {
    let found = visits::latencies()?;
    let limits = [
        ("latency_alone", 700),
        ("latency_hostile", 2_800),
        ("latency_floods", 5_000),
        ("latency_message", 20_000),
        ("latency_migration", 400_000),
    ];
    assert_eq!(found.len(), limits.len());
    for (Latency { figure, worst, .. }, (name, limit)) in found.iter().zip(limits) {
        println!("{figure}: {worst}");
        assert!(
            *figure == name && (300..=limit).contains(worst),
            "{figure}: {worst}, at most {limit}"
        );
    }
    expected::check(Part::Latencies, &visits::latency_counts(&found))
}
