//! The tables of a finished run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::section::Section;
use crate::figures::Figures;
use crate::telemetry::{End, Telemetry, exit_name};
use crate::text::{Spread, duration, grouped, share};
use cloison_config::events::EventNames;
use cloison_config::memory;
use cloison_config::sources::segment_name;
use cloison_formats::color::Color;
use cloison_formats::ids::{Core, VmId};
use cloison_formats::image::{PoolKind, System};
use cloison_formats::telemetry::{ExitReason, MigrationOutcome, QuotaTotal, VmState};
use cloison_formats::units::{EventId, Nanos};
use std::collections::BTreeMap;

/// The results of a finished run.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// The stream that the hypervisor sent.
    pub telemetry: &'a Telemetry,
    /// The system that ran.
    pub system: &'a System,
    /// Names of PMU events.
    pub names: &'a EventNames,
}

impl Summary<'_> {
    /// Returns the table of pages per color of each pool.
    pub fn pools(&self) -> Section {
        let mut section = Section::new(
            "Pages per color",
            &[
                "pool",
                "kind",
                "colors",
                "at boot, per color",
                "total",
                "of",
                "migrated in, per color",
            ],
        );
        for (index, pool) in self.telemetry.pools.iter().enumerate() {
            section.row([
                pool.name.clone(),
                kind(pool.kind).to_owned(),
                pool.colors.to_string(),
                per_color(
                    &pool
                        .colors
                        .iter()
                        .zip(pool.used.iter().copied())
                        .collect::<Vec<_>>(),
                ),
                sum(&pool.used).to_string(),
                sum(&pool.total).to_string(),
                per_color(&self.migrated_into(index)),
            ]);
        }
        let own = self.telemetry.boot.as_ref();
        section.note(own.map_or(String::new(), |boot| {
            let (colors, frames) = (boot.hypervisor_colors, boot.hypervisor_pages);
            format!("Colors of the hypervisor: {colors}, with {frames} pages.")
        }))
    }

    /// Returns, per color, the pages in a pool at the end of the run that were not in it at the
    /// start.
    pub(super) fn migrated_into(&self, pool: usize) -> Vec<(Color, u32)> {
        let Some(boot) = &self.telemetry.boot else {
            return vec![];
        };
        let mut pages: BTreeMap<Color, i64> = BTreeMap::new();
        for (_, migration) in self.telemetry.migrations() {
            let target = self
                .system
                .vms
                .get(migration.vm.index())
                .and_then(|vm| vm.target);
            if target.is_none_or(|target| usize::from(target) != pool) {
                continue;
            }
            match migration.outcome {
                MigrationOutcome::Moved => {
                    *pages
                        .entry(memory::color_of(
                            &self.system.board,
                            migration.to,
                            boot.colors,
                        ))
                        .or_default() += 1
                }
                MigrationOutcome::Restored | MigrationOutcome::RolledBack => {
                    *pages
                        .entry(memory::color_of(
                            &self.system.board,
                            migration.from,
                            boot.colors,
                        ))
                        .or_default() -= 1;
                }
                MigrationOutcome::PoolFull => {}
            }
        }
        pages
            .into_iter()
            .filter_map(|(color, pages)| Some((color, u32::try_from(pages).ok()?)))
            .collect()
    }

    /// Returns the table of budget, throttling and overshoot per core.
    pub fn quotas(&self) -> Section {
        let mut section = Section::new(
            "Quotas per core",
            &[
                "core",
                "VM",
                "event",
                "budget / period",
                "by",
                "periods",
                "spent",
                "held",
                "share",
                "overshoot max",
                "total",
                "given",
                "reclaimed",
            ],
        );
        for (core, total) in self.telemetry.quota_totals() {
            let quota = self
                .system
                .vms
                .get(total.vm.index())
                .and_then(|vm| vm.quotas.get(usize::from(total.quota)));
            let ran = self.telemetry.vm_runtime(total.vm).unwrap_or_default();
            section.row([
                core.to_string(),
                self.telemetry.vm_name(total.vm),
                quota.map_or(String::new(), |quota| self.names.counted(quota)),
                quota.map_or(String::new(), |quota| {
                    format!("{} / {}", quota.budget.0, duration(quota.period))
                }),
                match (
                    total.by_interrupt,
                    quota.is_some_and(|quota| quota.backstop),
                ) {
                    (true, true) => "interrupt, polls",
                    (true, false) => "interrupt",
                    (false, _) => "polls",
                }
                .to_owned(),
                total.totals.periods.to_string(),
                total.totals.spent_periods.to_string(),
                format!("{:.3} ms", total.throttled.0 as f64 / 1e6),
                format!("{:.1} %", 100.0 * share(total.throttled.0, ran.0)),
                grouped(total.totals.max_overshoot.0),
                grouped(total.totals.overshoot.0),
                grouped(total.totals.given.0),
                grouped(total.totals.reclaimed.0),
            ]);
        }
        section.note(
            "Spent: periods in which the budget was. Held: time in the hypervisor until the \
             period ended; its share is of the time from its VM's start to its end. Overshoot: \
             events counted beyond the budget before the core stopped. Given and reclaimed: \
             events put into, and taken from, the pool of unused budgets.",
        )
    }

    /// Returns the table of the quotas' periods: use, overshoot and throttling.
    pub fn quota_periods(&self) -> Section {
        let columns = [
            "core", "VM", "quota", "quiet", "< 1/8", "2/8", "3/8", "4/8", "5/8", "6/8", "7/8",
            "< 1", "spent",
        ];
        let over = ["over by 1", "2 to 3", "4 to 7", "8 to 15", "more"];
        let mut section = Section::new("Periods by what was used", &[&columns[..], &over].concat());
        for (
            core,
            QuotaTotal {
                vm, quota, totals, ..
            },
        ) in self.telemetry.quota_totals()
        {
            let periods = totals.histogram;
            let counts = [periods.quiet]
                .into_iter()
                .chain(periods.used)
                .chain(periods.overshoot.into_iter().skip(1));
            let named = [
                core.to_string(),
                self.telemetry.vm_name(*vm),
                quota.to_string(),
            ];
            section.row(named.into_iter().chain(counts.map(grouped)));
        }
        section.note(
            "Number of periods by the share of the budget that was used, and by the events beyond \
             it. Quiet: nobody looked at the period's end, as less than half a budget had been \
             used since somebody did.",
        )
    }

    /// Returns the table of what has passed on links, by link and sender.
    pub fn links(&self) -> Section {
        let header = [
            "link", "kind", "from", "to", "frames", "bytes", "lost", "waits",
        ];
        let mut section = Section::new("Links", &header);
        for ((number, vm), traffic) in self.telemetry.traffic() {
            let link = self.system.links.get(usize::from(number));
            let to = link.and_then(|link| link.ends.iter().find(|end| end.vm != vm));
            section.row([
                link.map_or_else(|| number.to_string(), |link| link.name.clone()),
                link.map_or(String::new(), |link| link.kind.name().to_owned()),
                self.telemetry.vm_name(vm),
                to.map_or(String::new(), |end| self.telemetry.vm_name(end.vm)),
                grouped(traffic.frames),
                grouped(traffic.bytes),
                grouped(traffic.lost),
                grouped(traffic.waits),
            ]);
        }
        section.note(
            "Since boot. Lost: nobody received, or the receiver's buffer was too short. Waits: the \
             sender found no room.",
        )
    }

    /// Returns the table of calls between VMs, by the VM that calls.
    pub fn doorbells(&self) -> Section {
        let mut section = Section::new("Doorbells", &["VM", "calls that interrupted", "refused"]);
        for (vm, calls) in self.telemetry.doorbells() {
            section.row([
                self.telemetry.vm_name(vm),
                grouped(calls.passed),
                grouped(calls.refused),
            ]);
        }
        section.note("Since boot, until the last end of the VM. Refused: beyond its rate.")
    }

    /// Returns the table of moved pages and their cost.
    pub fn migrations(&self) -> Section {
        let mut section = Section::new(
            "Page migrations",
            &["VM", "outcome", "pages", "min", "median", "max", "total"],
        );
        let mut groups: BTreeMap<(VmId, &str), Vec<u64>> = BTreeMap::new();
        for (_, migration) in self.telemetry.migrations() {
            groups
                .entry((migration.vm, outcome(migration.outcome)))
                .or_default()
                .push(migration.took.0);
        }
        for ((vm, outcome), costs) in groups {
            let Some(spread) = Spread::of(costs.iter().copied()) else {
                continue;
            };
            section.row([
                self.telemetry.vm_name(vm),
                outcome.to_owned(),
                costs.len().to_string(),
                format!("{} ns", spread.min),
                format!("{} ns", spread.median),
                format!("{} ns", spread.max),
                duration(Nanos(costs.iter().sum())),
            ]);
        }
        section
            .note("Cost of one page, from the first change of the page table to the last barrier.")
    }

    /// Returns the table of all migrations in order.
    pub(super) fn migration_list(&self) -> Section {
        let mut section = Section::new(
            "Every migration",
            &["at", "VM", "page", "from", "to", "took", "outcome"],
        );
        for (event, migration) in self.telemetry.migrations() {
            section.row([
                duration(event.at),
                self.telemetry.vm_name(migration.vm),
                migration.ipa.to_string(),
                migration.from.to_string(),
                migration.to.to_string(),
                format!("{} ns", migration.took.0),
                outcome(migration.outcome).to_owned(),
            ]);
        }
        section
    }

    /// Returns the table of HEM counts per VM, workload and sub-experiment, over its runs.
    pub fn hems(&self) -> Section {
        let mut section = Section::new(
            "HEM records",
            &[
                "VM",
                "workload",
                "sub-exp.",
                "runs",
                "event",
                "min",
                "median",
                "max",
                "overflowed",
            ],
        );
        #[derive(Default)]
        struct Group {
            cycles: Vec<u64>,
            events: BTreeMap<EventId, (Vec<u64>, u64)>,
        }
        let mut groups: BTreeMap<(VmId, u32, u32), Group> = BTreeMap::new();
        for run in self.telemetry.hem_runs() {
            let record = run.record;
            let group = groups
                .entry((record.vm, record.workload, record.sub_experiment))
                .or_default();
            group.cycles.push(record.cycles.0);
            for (event, count, overflowed) in run.counts() {
                let (counts, wrapped) = group.events.entry(event).or_default();
                counts.push(u64::from(count));
                *wrapped += u64::from(overflowed);
            }
        }
        for ((vm, workload, sub_experiment), group) in groups {
            let mut row = |event: String, counts: &[u64], overflowed: String| {
                let Some(spread) = Spread::of(counts.iter().copied()) else {
                    return;
                };
                section.row([
                    self.telemetry.vm_name(vm),
                    segment_name(workload),
                    sub_experiment.to_string(),
                    counts.len().to_string(),
                    event,
                    grouped(spread.min),
                    grouped(spread.median),
                    grouped(spread.max),
                    overflowed,
                ]);
            };
            row("cycles (PMCCNTR)".to_owned(), &group.cycles, String::new());
            for (event, (counts, overflowed)) in &group.events {
                row(self.names.name(*event), counts, overflowed.to_string());
            }
        }
        section.note(
            "One record per run of an observation segment; `hem decode telemetry.bin` lists all.",
        )
    }

    /// Returns the table of the VMs and how they ended.
    pub fn vms(&self) -> Section {
        let mut section = Section::new(
            "Virtual machines",
            &[
                "VM",
                "cores",
                "pages",
                "ran",
                "restarts",
                "traps",
                "interrupts",
                "end",
            ],
        );
        for (id, vm) in (0..).map(VmId).zip(&self.telemetry.vms) {
            let exits = self.telemetry.exits(id).map(|counts| {
                let (traps, interrupts) = counts.split_at(ExitReason::Timer as usize);
                (traps.iter().sum::<u64>(), interrupts.iter().sum::<u64>())
            });
            let restarts = self
                .telemetry
                .vm_states()
                .filter(|&(_, of, state)| of == id && state == VmState::Restarted);
            section.row([
                vm.name.clone(),
                vm.cores
                    .iter()
                    .map(Core::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
                vm.pages.to_string(),
                self.telemetry
                    .vm_runtime(id)
                    .map_or(String::new(), duration),
                restarts.count().to_string(),
                exits.map_or(String::new(), |(traps, _)| traps.to_string()),
                exits.map_or(String::new(), |(_, interrupts)| interrupts.to_string()),
                self.telemetry.end_of(id).to_string(),
            ]);
        }
        section
    }

    /// Returns the table of reasons why each VM's cores entered the hypervisor.
    pub fn exits(&self) -> Section {
        let columns: Vec<&str> = std::iter::once("VM")
            .chain(ExitReason::ALL.map(exit_name))
            .collect();
        let mut section = Section::new("Entries into the hypervisor", &columns);
        for (id, vm) in (0..).map(VmId).zip(&self.telemetry.vms) {
            if let Some(counts) = self.telemetry.exits(id) {
                section.row(std::iter::once(vm.name.clone()).chain(counts.map(grouped)));
            }
        }
        section.note("All cores of the VM, by what the guest did, since its last start.")
    }

    /// Adds the run's figures, by the names in `docs/figures.md`.
    pub fn figures(&self, figures: &mut Figures) {
        let telemetry = self.telemetry;
        for pool in &telemetry.pools {
            figures
                .count(format!("pool_{}_pages_used", pool.name), sum(&pool.used))
                .count(format!("pool_{}_pages_total", pool.name), sum(&pool.total))
                .count(
                    format!("pool_{}_colors", pool.name),
                    u64::from(pool.colors.len()),
                );
        }
        let mut throttled = 0;
        for (core, total) in telemetry.quota_totals() {
            let name = |what: &str| format!("core{core}_quota{}_{what}", total.quota);
            let ran = telemetry.vm_runtime(total.vm).unwrap_or_default();
            throttled += total.throttled.0;
            figures
                .count(name("by_interrupt"), u64::from(total.by_interrupt))
                .count(name("periods"), total.totals.periods)
                .count(name("throttled_periods"), total.totals.spent_periods)
                .count(name("throttled_ns"), total.throttled.0)
                .value(name("throttled_share"), share(total.throttled.0, ran.0))
                .count(name("events"), total.totals.events.0)
                .count(name("overshoot_max"), total.totals.max_overshoot.0)
                .count(name("overshoot_total"), total.totals.overshoot.0)
                .count(name("given"), total.totals.given.0)
                .count(name("reclaimed"), total.totals.reclaimed.0);
        }
        let (overshoot, most) = telemetry.overshoot();
        figures
            .count("throttled_ns", throttled)
            .count("overshoot_max", most.0)
            .count("overshoot_total", overshoot.0);
        let moved = |wanted: MigrationOutcome| {
            telemetry
                .migrations()
                .filter(|(_, migration)| migration.outcome == wanted)
                .count() as u64
        };
        figures
            .count("pages_moved", moved(MigrationOutcome::Moved))
            .count("pages_restored", moved(MigrationOutcome::Restored))
            .count("pages_rolled_back", moved(MigrationOutcome::RolledBack))
            .count("plans_refused", moved(MigrationOutcome::PoolFull));
        let costs = telemetry
            .migrations()
            .filter(|(_, migration)| migration.outcome != MigrationOutcome::PoolFull)
            .map(|(_, migration)| migration.took.0);
        if let Some(spread) = Spread::of(costs) {
            figures
                .count("migration_ns_min", spread.min)
                .count("migration_ns_median", spread.median)
                .count("migration_ns_max", spread.max);
        }
        let overflowed = telemetry
            .hem_runs()
            .filter(|run| run.counts().any(|(_, _, overflowed)| overflowed))
            .count();
        let ended = |wanted: End| {
            (0..telemetry.vms.len())
                .filter(|&vm| telemetry.end_of(VmId(vm as u8)) == wanted)
                .count() as u64
        };
        figures
            .count("hem_records", telemetry.hem_runs().count() as u64)
            .count("hem_overflowed", overflowed as u64)
            .count("records_dropped", telemetry.dropped())
            .count("frames", telemetry.frames as u64)
            .count("frames_skipped", telemetry.problems.len() as u64)
            .count("vms", telemetry.vms.len() as u64)
            .count("vms_off", ended(End::Off))
            .count("vms_stopped", ended(End::Stopped))
            .count("vms_killed", ended(End::Killed))
            .count(
                "run_ns",
                telemetry
                    .entries
                    .iter()
                    .map(|entry| entry.at.0)
                    .max()
                    .unwrap_or(0),
            );
    }
}

fn sum(pages: &[u32]) -> u64 {
    pages.iter().map(|&pages| u64::from(pages)).sum()
}

pub(super) fn kind(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::Pvt => "PVT",
        PoolKind::Sh => "SH",
    }
}

pub(super) fn outcome(outcome: MigrationOutcome) -> &'static str {
    match outcome {
        MigrationOutcome::Moved => "moved",
        MigrationOutcome::Restored => "restored",
        MigrationOutcome::PoolFull => "refused: pool full",
        MigrationOutcome::RolledBack => "rolled back",
    }
}

/// Formats pages per color, such as `0-2: 341, 3: 340`: neighboring colors with equal numbers are
/// joined.
fn per_color(pages: &[(Color, u32)]) -> String {
    let mut groups: Vec<(u8, u8, u32)> = vec![];
    for &(color, pages) in pages {
        match groups.last_mut() {
            Some((_, last, same)) if *same == pages && *last + 1 == color.0 => *last = color.0,
            _ => groups.push((color.0, color.0, pages)),
        }
    }
    let text = |&(first, last, pages): &(u8, u8, u32)| {
        if first == last {
            format!("{first}: {pages}")
        } else {
            format!("{first}-{last}: {pages}")
        }
    };
    groups.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_with_equal_counts_are_joined() {
        let pages = [(0, 7), (1, 7), (2, 6), (4, 6)].map(|(color, pages)| (Color(color), pages));
        assert_eq!(per_color(&pages), "0-1: 7, 2: 6, 4: 6");
    }
}
