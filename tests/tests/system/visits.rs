//! How long EL2 lets pending interrupts, deadlines and requests to stop wait, whatever a guest does.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_lab::visits::{self, Latency, Longest};
use miette::Result;

/// What exceeds its aim today, and how much it may take at most: less than twice what it took when this was written,
/// because what a core waits for depends on what all others do.
const BOUNDS: [(&str, u64); 9] = [
    ("abort", 5_000),
    ("end", 5_500),
    ("gicd", 7_000),
    ("irq_deadline", 6_000),
    ("irq_maintenance", 5_000),
    ("irq_sgi", 8_000),
    ("irq_timer", 4_000),
    ("psci_cpu_off", 6_000),
    ("uart", 5_500),
];

/// What the guests are there to cause, with a length that each of them has at least.
const CAUSED: [&str; 21] = [
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
    "migration_by_deadline",
    "psci",
    "restart",
    "services_page",
    "sysreg",
    "uart",
];

fn bound(one: &Longest) -> u64 {
    BOUNDS
        .iter()
        .find(|(cause, _)| *cause == one.cause)
        .map_or(one.aim(), |(_, bound)| *bound)
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
    let beyond: Vec<&Longest> = longest
        .iter()
        .filter(|one| one.stretch.instructions > bound(one))
        .collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    Ok(())
}

#[test]
fn visits_to_el2_repeat_exactly() -> Result<()> {
    let [first, second] = [visits::of(visits::CHAOS)?, visits::of(visits::CHAOS)?];
    assert!(first.stretches > 10_000);
    assert_eq!(first, second);
    Ok(())
}

/// In instructions of all cores together. Only a migration of 64 pages may take a neighbor's own time; to move one page
/// takes 2,000 of its instructions, and four cores execute.
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
    Ok(())
}
