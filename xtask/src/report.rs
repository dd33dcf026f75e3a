//! What a run came to: the same tables on the terminal and in one self-contained HTML file.

use crate::figures::Figures;
use crate::hem::EventNames;
use crate::telemetry::{End, Telemetry};
use cloison_formats::color::{Color, color_of};
use cloison_formats::image::{PoolKind, System};
use cloison_formats::telemetry::{ExitReason, MigrationOutcome, VmState};
use cloison_formats::units::{EventId, Nanos};
use comfy_table::presets::{UTF8_BORDERS_ONLY, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// A table with its heading and what must be known to read it.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// The columns.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
    /// What the numbers mean, or do not mean.
    pub note: String,
}

impl Section {
    /// An empty table.
    pub fn new(title: &str, header: &[&str]) -> Self {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.to_owned(), header, ..Self::default() }
    }
    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
    /// Sets the note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// For the terminal: heading, table, note.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if self.rows.is_empty() {
            text.push_str("  none\n");
        } else {
            let mut table = comfy_table::Table::new();
            table.load_preset(if self.header.len() > 1 { UTF8_FULL_CONDENSED } else { UTF8_BORDERS_ONLY });
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_header(&self.header);
            table.add_rows(&self.rows);
            for (index, column) in table.column_iter_mut().enumerate() {
                if self.is_numeric(index) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            text.push_str(&format!("{table}\n"));
        }
        if !self.note.is_empty() {
            text.push_str(&format!("  {}\n", self.note));
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).all(|cell| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains([':', ',', '-'])
        })
    }

    /// For the report: heading, table, note.
    pub fn to_html(&self) -> Markup {
        html! {
            h2 { (self.title) }
            @if self.rows.is_empty() {
                p { "none" }
            } @else {
                (self.table())
            }
            @if !self.note.is_empty() { p.note { (self.note) } }
        }
    }

    fn table(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    thead { tr { @for name in &self.header { th { (name) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    td.num[self.is_numeric(index)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Nanoseconds with a unit that suits them.
pub fn duration(time: Nanos) -> String {
    let ns = time.0;
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")] {
        if ns > 0 && ns.is_multiple_of(unit) {
            return format!("{} {name}", ns / unit);
        }
    }
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, from 0 to 1 (more, if it is more); 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The smallest, the median and the largest of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Smallest.
    pub min: u64,
    /// Median; of an even number of values the lower one.
    pub median: u64,
    /// Largest.
    pub max: u64,
}

impl Spread {
    /// Of these values, if there are any.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        Some(Self { min: *values.first()?, median: values[(values.len() - 1) / 2], max: *values.last()? })
    }
}

/// What a finished run came to.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// What the hypervisor sent.
    pub telemetry: &'a Telemetry,
    /// The system that ran.
    pub system: &'a System,
    /// Names of PMU events.
    pub names: &'a EventNames,
}

impl Summary<'_> {
    /// Pages per color of each pool.
    pub fn pools(&self) -> Section {
        let mut section = Section::new(
            "Pages per color",
            &["pool", "kind", "colors", "at boot, per color", "in all", "of", "migrated in, per color"],
        );
        for (index, pool) in self.telemetry.pools.iter().enumerate() {
            section.row([
                pool.name.clone(),
                kind(pool.kind).to_owned(),
                pool.colors.to_string(),
                per_color(&pool.colors.iter().zip(pool.used.iter().copied()).collect::<Vec<_>>()),
                sum(&pool.used).to_string(),
                sum(&pool.total).to_string(),
                per_color(&self.migrated_into(index)),
            ]);
        }
        let own = self.telemetry.boot.as_ref();
        section.note(own.map_or(String::new(), |boot| {
            let (colors, frames) = (boot.hypervisor_colors, boot.hypervisor_pages);
            format!("Colors of the hypervisor: {colors}, with {frames} pages of its own.")
        }))
    }

    /// The pages that lived in a pool when the run ended and had not been there at its start, per color.
    fn migrated_into(&self, pool: usize) -> Vec<(Color, u32)> {
        let Some(boot) = &self.telemetry.boot else { return vec![] };
        let mut pages: BTreeMap<Color, i64> = BTreeMap::new();
        for (_, migration) in self.telemetry.migrations() {
            let profile = self.system.vms.get(usize::from(migration.vm)).and_then(|vm| vm.profile.as_ref());
            if profile.is_none_or(|profile| usize::from(profile.pool) != pool) {
                continue;
            }
            match migration.outcome {
                MigrationOutcome::Moved => *pages.entry(color_of(migration.to, boot.colors)).or_default() += 1,
                MigrationOutcome::Restored | MigrationOutcome::RolledBack => {
                    *pages.entry(color_of(migration.from, boot.colors)).or_default() -= 1;
                }
                MigrationOutcome::PoolFull => {}
            }
        }
        pages.into_iter().filter_map(|(color, pages)| Some((color, u32::try_from(pages).ok()?))).collect()
    }

    /// Budget, throttling and overshoot per core.
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
                "throttled",
                "time",
                "share",
                "overshoot max",
                "in all",
            ],
        );
        for (core, total) in self.telemetry.quota_totals() {
            let quota =
                self.system.vms.get(usize::from(total.vm)).and_then(|vm| vm.quotas.get(usize::from(total.quota)));
            let ran = self.telemetry.vm_runtime(total.vm).unwrap_or_default();
            section.row([
                core.to_string(),
                self.telemetry.vm_name(total.vm),
                quota.map_or(String::new(), |quota| self.names.name(quota.event)),
                quota.map_or(String::new(), |quota| format!("{} / {}", quota.budget.0, duration(quota.period))),
                match (total.by_interrupt, quota.is_some_and(|quota| quota.backstop)) {
                    (true, true) => "interrupt, polls",
                    (true, false) => "interrupt",
                    (false, _) => "polls",
                }
                .to_owned(),
                total.periods.to_string(),
                total.throttled_periods.to_string(),
                format!("{:.3} ms", total.throttled.0 as f64 / 1e6),
                format!("{:.1} %", 100.0 * share(total.throttled.0, ran.0)),
                total.max_overshoot.0.to_string(),
                total.overshoot.0.to_string(),
            ]);
        }
        section.note(
            "Throttled: periods in which the core was held in the hypervisor; share: of the time from its VM's start to \
             its end; overshoot: events counted beyond the budget before the core stood still.",
        )
    }

    /// Pages moved, and what one cost.
    pub fn migrations(&self) -> Section {
        let mut section =
            Section::new("Page migrations", &["VM", "outcome", "pages", "min", "median", "max", "in all"]);
        let mut groups: BTreeMap<(u8, &str), Vec<u64>> = BTreeMap::new();
        for (_, migration) in self.telemetry.migrations() {
            groups.entry((migration.vm, outcome(migration.outcome))).or_default().push(migration.took.0);
        }
        for ((vm, outcome), costs) in groups {
            let Some(spread) = Spread::of(costs.iter().copied()) else { continue };
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
        section.note("Cost of one page, from the first change of the page table to the last barrier.")
    }

    /// Every migration, in order.
    fn migration_list(&self) -> Section {
        let mut section = Section::new("Every migration", &["at", "VM", "page", "from", "to", "took", "outcome"]);
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

    /// HEM counts per VM, workload and sub-experiment, over its runs.
    pub fn hems(&self) -> Section {
        let mut section = Section::new(
            "HEM records",
            &["VM", "workload", "sub-exp.", "runs", "event", "min", "median", "max", "overflowed"],
        );
        #[derive(Default)]
        struct Group {
            cycles: Vec<u64>,
            events: BTreeMap<EventId, (Vec<u64>, u64)>,
        }
        let mut groups: BTreeMap<(u8, u32, u32), Group> = BTreeMap::new();
        for run in self.telemetry.hem_runs() {
            let record = run.record;
            let group = groups.entry((record.vm, record.workload, record.sub_experiment)).or_default();
            group.cycles.push(record.cycles.0);
            for (event, count, overflowed) in run.counts() {
                let (counts, wrapped) = group.events.entry(event).or_default();
                counts.push(u64::from(count));
                *wrapped += u64::from(overflowed);
            }
        }
        for ((vm, workload, sub_experiment), group) in groups {
            let mut row = |event: String, counts: &[u64], overflowed: String| {
                let Some(spread) = Spread::of(counts.iter().copied()) else { return };
                section.row([
                    self.telemetry.vm_name(vm),
                    workload.to_string(),
                    sub_experiment.to_string(),
                    counts.len().to_string(),
                    event,
                    spread.min.to_string(),
                    spread.median.to_string(),
                    spread.max.to_string(),
                    overflowed,
                ]);
            };
            row("cycles (PMCCNTR)".to_owned(), &group.cycles, String::new());
            for (event, (counts, overflowed)) in &group.events {
                row(self.names.name(*event), counts, overflowed.to_string());
            }
        }
        section.note("One record per run of an observation segment; the CSV and Parquet files hold every one.")
    }

    /// How the VMs fared.
    pub fn vms(&self) -> Section {
        let mut section = Section::new(
            "Virtual machines",
            &["VM", "cores", "pages", "ran", "restarts", "traps", "interrupts", "end"],
        );
        for (id, vm) in self.telemetry.vms.iter().enumerate() {
            let id = id as u8;
            let exits = self.telemetry.exits(id).map(|counts| {
                let (traps, interrupts) = counts.split_at(ExitReason::Timer as usize);
                (traps.iter().sum::<u64>(), interrupts.iter().sum::<u64>())
            });
            let restarts = self.telemetry.vm_states().filter(|&(_, of, state)| of == id && state == VmState::Restarted);
            section.row([
                vm.name.clone(),
                vm.cores.iter().map(u8::to_string).collect::<Vec<_>>().join(", "),
                vm.pages.to_string(),
                self.telemetry.vm_runtime(id).map_or(String::new(), duration),
                restarts.count().to_string(),
                exits.map_or(String::new(), |(traps, _)| traps.to_string()),
                exits.map_or(String::new(), |(_, interrupts)| interrupts.to_string()),
                self.telemetry.end_of(id).to_string(),
            ]);
        }
        section
    }

    /// Why each VM's cores left it for the hypervisor.
    pub fn exits(&self) -> Section {
        let columns: Vec<&str> = std::iter::once("VM").chain(ExitReason::ALL.map(ExitReason::name)).collect();
        let mut section = Section::new("Entries into the hypervisor", &columns);
        for (id, vm) in (0..).zip(&self.telemetry.vms) {
            if let Some(counts) = self.telemetry.exits(id) {
                section.row(std::iter::once(vm.name.clone()).chain(counts.map(grouped)));
            }
        }
        section.note("Of all cores of the VM, by what the guest did; from its last start on.")
    }

    /// The run's figures, by the names in `docs/figures.md`.
    pub fn figures(&self, figures: &mut Figures) {
        let telemetry = self.telemetry;
        for pool in &telemetry.pools {
            figures
                .count(format!("pool_{}_pages_used", pool.name), sum(&pool.used))
                .count(format!("pool_{}_pages_total", pool.name), sum(&pool.total))
                .count(format!("pool_{}_colors", pool.name), u64::from(pool.colors.len()));
        }
        let mut throttled = 0;
        for (core, total) in telemetry.quota_totals() {
            let name = |what: &str| format!("core{core}_quota{}_{what}", total.quota);
            let ran = telemetry.vm_runtime(total.vm).unwrap_or_default();
            throttled += total.throttled.0;
            figures
                .count(name("by_interrupt"), u64::from(total.by_interrupt))
                .count(name("periods"), u64::from(total.periods))
                .count(name("throttled_periods"), u64::from(total.throttled_periods))
                .count(name("throttled_ns"), total.throttled.0)
                .value(name("throttled_share"), share(total.throttled.0, ran.0))
                .count(name("events"), total.events.0)
                .count(name("overshoot_max"), total.max_overshoot.0)
                .count(name("overshoot_total"), total.overshoot.0);
        }
        let (overshoot, most) = telemetry.overshoot();
        figures.count("throttled_ns", throttled).count("overshoot_max", most.0).count("overshoot_total", overshoot.0);
        let moved = |wanted: MigrationOutcome| {
            telemetry.migrations().filter(|(_, migration)| migration.outcome == wanted).count() as u64
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
        let overflowed = telemetry.hem_runs().filter(|run| run.counts().any(|(_, _, overflowed)| overflowed)).count();
        let ended =
            |wanted: End| (0..telemetry.vms.len()).filter(|&vm| telemetry.end_of(vm as u8) == wanted).count() as u64;
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
            .count("run_ns", telemetry.events.iter().map(|event| event.at.0).max().unwrap_or(0));
    }
}

fn sum(pages: &[u32]) -> u64 {
    pages.iter().map(|&pages| u64::from(pages)).sum()
}

fn kind(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::Pvt => "PVT",
        PoolKind::Sh => "SH",
    }
}

fn outcome(outcome: MigrationOutcome) -> &'static str {
    match outcome {
        MigrationOutcome::Moved => "moved",
        MigrationOutcome::Restored => "restored",
        MigrationOutcome::PoolFull => "refused: pool full",
        MigrationOutcome::RolledBack => "rolled back",
    }
}

/// `0-2: 341, 3: 340`: neighbouring colors with as many pages stand together.
fn per_color(pages: &[(Color, u32)]) -> String {
    let mut groups: Vec<(u8, u8, u32)> = vec![];
    for &(color, pages) in pages {
        match groups.last_mut() {
            Some((_, last, same)) if *same == pages && *last + 1 == color.0 => *last = color.0,
            _ => groups.push((color.0, color.0, pages)),
        }
    }
    let text = |&(first, last, pages): &(u8, u8, u32)| {
        if first == last { format!("{first}: {pages}") } else { format!("{first}-{last}: {pages}") }
    };
    groups.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// What the page says besides the run's own tables.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Heading.
    pub title: &'a str,
    /// One line below it.
    pub subtitle: &'a str,
    /// What a reader must know before believing a number.
    pub caveats: &'a [&'a str],
    /// The configuration, as its author wrote it.
    pub config: &'a str,
    /// How QEMU was called.
    pub command_line: &'a str,
    /// The figures, with their provenance.
    pub figures: &'a Figures,
    /// All that the console said.
    pub console: &'a str,
}

/// The report: one HTML file that needs nothing else.
pub fn html(summary: &Summary<'_>, page: &Page<'_>) -> String {
    let provenance = page.figures.provenance();
    let migrations = summary.telemetry.migrations().count();
    let body = html! {
        p { (page.subtitle) }
        div.caveats { @for caveat in page.caveats { p { (caveat) } } }
        h2 { "Color map" }
        p.note { "Each column is a page color; a cell says how many pages of that color the pool had handed out at boot, and how many migrated there and stayed." }
        (color_map(summary))
        (summary.pools().to_html())
        (summary.vms().to_html())
        (summary.exits().to_html())
        (summary.quotas().to_html())
        (bars(&throttled_bars(summary)))
        (summary.migrations().to_html())
        @if migrations > 0 {
            (bars(&migration_bars(summary)))
            details { summary { "Every migration (" (migrations) ")" } (summary.migration_list().table()) }
        }
        (summary.hems().to_html())
        @for chart in &hem_charts(summary) { (strip(chart)) }
        (all_figures(page.figures))
        h2 { "Where this comes from" }
        table {
            @for (key, value) in &provenance {
                tr { td { (key) } td { (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) } }
            }
            tr { td { "command" } td { code { (page.command_line) } } }
        }
        details { summary { "Configuration" } pre { (page.config) } }
        details { summary { "Console" } pre { (page.console) } }
    };
    standalone(page.title, "", &body)
}

/// A page that needs nothing else: its title, and its body below. `more` is what it has beside the style of all reports.
pub fn standalone(title: &str, more: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    }
    .into_string()
}

/// All figures under a heading, folded away.
pub fn all_figures(figures: &Figures) -> Markup {
    html! {
        h2 { "Figures" }
        details {
            summary { "All figures, by the names of the JSON file" }
            table { @for (name, value) in figures.iter() { tr { td { code { (name) } } td.num { (value) } } } }
        }
    }
}

/// Where figures come from, as a table.
pub fn provenance(figures: &Figures) -> Markup {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut rows = vec![];
    for (key, value) in figures.provenance() {
        match value {
            serde_json::Value::Object(more) => rows.extend(more.iter().map(|(key, value)| (key.clone(), text(value)))),
            other => rows.push((key, text(&other))),
        }
    }
    html! { table { @for (key, value) in &rows { tr { td { (key) } td { (value) } } } } }
}

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
td.num { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.note { color: #666; font-size: .9rem; margin: .4rem 0; }
.caveats { background: #fff7e0; border-left: 4px solid #e0b000; padding: .1rem 1rem; margin: 1rem 0; font-size: .95rem; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; max-height: 40rem; }
svg { display: block; margin: .6rem 0; max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #333; }
";

/// Colors that can be told apart, also by readers who see few (after Okabe and Ito).
const PALETTE: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a00"];

fn color_map(summary: &Summary<'_>) -> Markup {
    let Some(boot) = &summary.telemetry.boot else { return html! { p { "The stream has no Boot frame." } } };
    let pools = &summary.telemetry.pools;
    let count = boot.colors.min(64);
    let (left, cell, row) = (150, 48, 26);
    let (width, height) = (left + cell * count + 4, row * (pools.len() as u32 + 2));
    let users = |index: usize| {
        let uses = |vm: &&cloison_formats::image::Vm| {
            vm.regions
                .iter()
                .any(|region| matches!(region.backing, cloison_formats::image::Backing::Pool(pool) if usize::from(pool) == index))
                || vm.profile.as_ref().is_some_and(|profile| usize::from(profile.pool) == index)
        };
        summary.system.vms.iter().filter(uses).map(|vm| vm.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let row_of = |line: u32, name: &str, title: &str, paint: &str, cells: Vec<(u8, String)>| {
        html! {
            text x="0" y=(line * row + 17) { (name) title { (title) } }
            @for (color, label) in cells {
                rect x=(left + cell * u32::from(color)) y=(line * row + 2) width=(cell - 2) height=(row - 4) rx="3" fill=(paint) fill-opacity="0.35" { title { (title) } }
                text x=(left + cell * u32::from(color) + cell / 2 - 1) y=(line * row + 17) text-anchor="middle" { (label) }
            }
        }
    };
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) width=(width) role="img" {
            @for color in 0..count {
                text x=(left + cell * color + cell / 2 - 1) y="17" text-anchor="middle" { (color) }
            }
            (row_of(1, "hypervisor", "the hypervisor's own frames", "#555", boot.hypervisor_colors.iter().zip(0..).map(|(color, turn)| {
                let own = (boot.hypervisor_pages + boot.hypervisor_colors.len() - 1 - turn) / boot.hypervisor_colors.len();
                (color.0, own.to_string())
            }).collect()))
            @for (index, pool) in pools.iter().enumerate() {
                (row_of(
                    index as u32 + 2,
                    &format!("{} ({})", pool.name, kind(pool.kind)),
                    &format!("used by {}", users(index)),
                    PALETTE[index % PALETTE.len()],
                    pool.colors.iter().zip(&pool.used).map(|(color, used)| {
                        let migrated = summary.migrated_into(index).into_iter().find(|&(of, _)| of == color);
                        (color.0, migrated.map_or_else(|| used.to_string(), |(_, pages)| format!("{used} + {pages}")))
                    }).collect(),
                ))
            }
        }
        table {
            @for (index, pool) in pools.iter().enumerate() {
                tr { td { (pool.name) } td { (kind(pool.kind)) } td { "used by " (users(index)) } }
            }
        }
    }
}

/// Horizontal bars.
struct Bars {
    title: String,
    /// Label, length, and the text behind the bar.
    rows: Vec<(String, f64, String)>,
    /// What the full width stands for.
    full: f64,
}

fn throttled_bars(summary: &Summary<'_>) -> Bars {
    let rows = summary.telemetry.quota_totals().map(|(core, total)| {
        let ran = summary.telemetry.vm_runtime(total.vm).unwrap_or_default();
        let part = 100.0 * share(total.throttled.0, ran.0);
        (format!("core {core}, {}", summary.telemetry.vm_name(total.vm)), part, format!("{part:.1} %"))
    });
    Bars { title: "Share of its run that each core was held".to_owned(), rows: rows.collect(), full: 100.0 }
}

fn migration_bars(summary: &Summary<'_>) -> Bars {
    const MOST: usize = 24;
    let all: Vec<_> = summary.telemetry.migrations().map(|(_, migration)| migration).collect();
    let full = all.iter().map(|migration| migration.took.0).max().unwrap_or(0) as f64;
    let rows = all.iter().take(MOST).map(|migration| {
        let name = format!("{} {}", summary.telemetry.vm_name(migration.vm), migration.ipa);
        (name, migration.took.0 as f64, format!("{} ns, {}", migration.took.0, outcome(migration.outcome)))
    });
    let title =
        if all.len() > MOST { format!("Cost of the first {MOST} migrations") } else { "Cost of each migration".into() };
    Bars { title, rows: rows.collect(), full }
}

fn bars(chart: &Bars) -> Markup {
    let (left, width, row) = (190.0, 480.0, 20);
    html! {
        @if !chart.rows.is_empty() {
            svg viewBox=(format!("0 0 860 {}", row * (chart.rows.len() + 1))) width="860" role="img" {
                text x="0" y="14" { (chart.title) }
                @for (index, (label, value, text)) in chart.rows.iter().enumerate() {
                    @let y = row * (index + 1);
                    @let length = if chart.full > 0.0 { (width * value / chart.full).clamp(0.0, width) } else { 0.0 };
                    text x="0" y=(y + 14) { (label) }
                    rect x=(left) y=(y + 3) width=(width) height=(row - 6) fill="#f2f2f2" {}
                    rect x=(left) y=(y + 3) width=(format!("{length:.1}")) height=(row - 6) fill=(PALETTE[0]) {}
                    text x=(left + width + 8.0) y=(y + 14) { (text) }
                }
            }
        }
    }
}

/// Values over runs, as points.
struct Strip {
    title: String,
    points: Vec<(u32, u64)>,
    paint: &'static str,
}

fn hem_charts(summary: &Summary<'_>) -> Vec<Strip> {
    /// VM, workload, sub-experiment; no event: cycles.
    type Key = (u8, u32, u32, Option<EventId>);
    let mut charts: BTreeMap<Key, Vec<(u32, u64)>> = BTreeMap::new();
    for run in summary.telemetry.hem_runs() {
        let record = run.record;
        let mut add = |event, value| {
            let key = (record.vm, record.workload, record.sub_experiment, event);
            charts.entry(key).or_default().push((record.run, value));
        };
        add(None, record.cycles.0);
        for (event, count, _) in run.counts() {
            add(Some(event), u64::from(count));
        }
    }
    let chart = |(index, ((vm, workload, sub_experiment, event), points)): (usize, (Key, _))| {
        let what = event.map_or_else(|| "cycles".to_owned(), |event| summary.names.name(event));
        let vm = summary.telemetry.vm_name(vm);
        let title = format!("{vm}, workload {workload}, sub-experiment {sub_experiment}: {what} per run");
        Strip { title, points, paint: PALETTE[index % PALETTE.len()] }
    };
    charts.into_iter().enumerate().map(chart).collect()
}

fn strip(chart: &Strip) -> Markup {
    let (width, height) = (860.0, 90.0);
    let Some(values) = Spread::of(chart.points.iter().map(|&(_, value)| value)) else { return html! {} };
    let last = chart.points.iter().map(|&(run, _)| run).max().unwrap_or(0);
    let x = |run: u32| 6.0 + (width - 12.0) * f64::from(run) / f64::from(last.max(1));
    // From zero, so that noise does not look like an effect.
    let y = |value: u64| height - 8.0 - (height - 32.0) * value as f64 / values.max.max(1) as f64;
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) width=(width) role="img" {
            text x="0" y="14" {
                (chart.title) " (" (chart.points.len()) " runs; " (grouped(values.min)) " to " (grouped(values.max)) ", median " (grouped(values.median)) "; axis from 0)"
            }
            line x1="0" x2=(width) y1=(y(0)) y2=(y(0)) stroke="#ccc" {}
            @for &(run, value) in &chart.points {
                circle cx=(format!("{:.1}", x(run))) cy=(format!("{:.1}", y(value))) r="2.5" fill=(chart.paint) { title { "run " (run) ": " (value) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_equal_counts_stand_together() {
        let pages = [(0, 7), (1, 7), (2, 6), (4, 6)].map(|(color, pages)| (Color(color), pages));
        assert_eq!(per_color(&pages), "0-1: 7, 2: 6, 4: 6");
    }

    #[test]
    fn spread_of_even_and_odd_counts() {
        assert_eq!(Spread::of([5, 1, 3]), Some(Spread { min: 1, median: 3, max: 5 }));
        assert_eq!(Spread::of([4, 1, 3, 2]), Some(Spread { min: 1, median: 2, max: 4 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!(duration(Nanos(9_999)), "9999 ns");
        assert_eq!(duration(Nanos(1_250_001)), "1250.0 µs");
        assert_eq!(duration(Nanos(12_345_678_901)), "12.35 s");
        assert_eq!(duration(Nanos(1_000_000)), "1 ms");
        assert_eq!(duration(Nanos(0)), "0 ns");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
    }

    #[test]
    fn text_from_a_guest_cannot_become_markup() {
        let mut section = Section::new("<b>", &["name"]);
        section.row(["<script>alert(1)</script>".to_owned()]);
        let html = section.to_html().into_string();
        assert!(!html.contains("<script>") && !html.contains("<b>"), "{html}");
    }
}
