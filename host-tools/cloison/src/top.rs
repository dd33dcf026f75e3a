//! `cloison top`: boots a system and shows live how each core uses its budgets, and what links
//! carry.
//!
//! The hypervisor logs every period of every quota; each update sums up the periods since the last
//! one. All times are guest time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::events::EventNames;
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::consoles::plain;
use cloison_engine::counting::{self, Counting};
use cloison_engine::model::{Conditions, Model};
use cloison_engine::qemu::{Machine, Received};
use cloison_engine::telemetry::{End, Telemetry, TelemetryDecoder};
use cloison_engine::text::{Style, duration, grouped, share};
use cloison_engine::{configuration, image, parts, setup};
use cloison_formats::ids::{Core, VcpuIndex, VmId};
use cloison_formats::image::System;
use cloison_formats::link::Traffic;
use cloison_formats::telemetry::{Entry, LoggedPeriod, QuotaPeriod, Record};
use cloison_formats::units::{Events, Nanos};
use comfy_table::Table;
use crossterm::event::{self, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use miette::{IntoDiagnostic, Result, miette};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit for a board that runs until the user quits.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Lines of console output shown below the table.
const CONSOLE_LINES: usize = 8;
/// Width of a bar in characters.
const BAR: usize = 20;

/// `cloison top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// The system's configuration
    pub config: PathBuf,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Run on the board model: caches, memory and their timing are modelled, and cache events
    /// count; --model=FILE takes another model than the board's
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "icount")]
    pub model: Option<Option<PathBuf>>,
    /// One instruction takes 2^SHIFT ns of guest time, and runs repeat exactly
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "0")]
    pub icount: Option<u8>,
    /// Milliseconds between two updates
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..))]
    pub interval: u64,
    /// Stop the board after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

/// The activity of one quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    periods: u64,
    events: u64,
    /// Sum of the budgets of these periods.
    budget: u64,
    throttled: Nanos,
    throttled_periods: u64,
    /// Overshoot in the worst period.
    overshoot: Events,
}

impl Sum {
    fn add(&mut self, period: &LoggedPeriod) {
        let over = Events(period.events.0.saturating_sub(period.budget.0));
        self.periods += 1;
        self.events += period.events.0;
        self.budget += period.budget.0;
        self.throttled.0 += period.throttled.0;
        self.throttled_periods += u64::from(period.throttled.0 > 0);
        self.overshoot = self.overshoot.max(over);
    }
}

/// The activity of all quotas, in total and since the last update, by VM and quota.
#[derive(Debug, Default)]
struct Usage {
    all: BTreeMap<(VmId, u8), Sum>,
    latest: BTreeMap<(VmId, u8), Sum>,
    now: Nanos,
    records: u64,
    dropped: u64,
    ends: BTreeMap<VmId, End>,
    /// By link and sender: now, and one update before.
    traffic: BTreeMap<(u8, VmId), [Traffic; 2]>,
}

impl Usage {
    fn add(&mut self, entries: &[Entry]) {
        use cloison_formats::telemetry::VmState;
        self.latest.clear();
        for [now, before] in self.traffic.values_mut() {
            *before = *now;
        }
        for entry in entries {
            self.records += 1;
            self.now = self.now.max(entry.at);
            match &entry.record {
                Record::QuotaPeriod(QuotaPeriod { quota, vm, period }) => {
                    let key = (*vm, *quota);
                    self.all.entry(key).or_default().add(period);
                    self.latest.entry(key).or_default().add(period);
                }
                Record::Link { link, vm, traffic } => {
                    self.traffic.entry((*link, *vm)).or_default()[0] = *traffic;
                }
                Record::Dropped { count } => self.dropped += u64::from(*count),
                Record::VmState { vm, state } => {
                    let end = match state {
                        VmState::Started | VmState::Restarted => End::Running,
                        VmState::Off => End::Off,
                        VmState::Stopped => End::Stopped,
                        VmState::Killed => End::Killed,
                    };
                    self.ends.insert(*vm, end);
                }
                _ => {}
            }
        }
    }

    /// Returns a table with two lines for each link, one for each direction.
    fn links(&self, system: &System, style: Style) -> String {
        let mut table = Table::new();
        let header = ["link", "from", "to", "frames", "bytes", "lost", "waits"];
        table.load_preset(style.borders()).set_header(header);
        for (number, link) in (0..).zip(&system.links) {
            let [first, second] = link.ends.map(|end| end.vm);
            for (from, to) in [(first, second), (second, first)] {
                let [now, before] = self
                    .traffic
                    .get(&(number, from))
                    .copied()
                    .unwrap_or_default();
                let name = |vm: VmId| system.vms[vm.index()].name.clone();
                let since = |now: u64, before: u64| {
                    format!("{} (+{})", grouped(now), grouped(now - before))
                };
                let cells = [
                    link.name.clone(),
                    name(from),
                    name(to),
                    since(now.frames, before.frames),
                    since(now.bytes, before.bytes),
                    grouped(now.lost),
                    grouped(now.waits),
                ];
                table.add_row(cells.map(|cell| style.show(&cell)));
            }
        }
        table.to_string()
    }

    /// Returns one row for each quota, and one for each core without quotas, by core.
    fn rows(&self, system: &System, names: &EventNames) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (id, vm) in (0..).map(VmId).zip(&system.vms) {
            let end = self
                .ends
                .get(&id)
                .copied()
                .filter(|end| *end != End::Running);
            for (vcpu, &core) in (0..).map(VcpuIndex).zip(&vm.cores) {
                let before = rows.len();
                for (index, quota) in (0..)
                    .zip(&vm.quotas)
                    .filter(|(_, quota)| quota.vcpu == vcpu)
                {
                    let latest = self.latest.get(&(id, index)).copied().unwrap_or_default();
                    let all = self.all.get(&(id, index)).copied().unwrap_or_default();
                    let used = share(latest.events, latest.budget);
                    let time = Nanos(latest.periods * quota.period.0);
                    let cells = Cells {
                        event: names.counted(quota),
                        budget: format!("{} / {}", grouped(quota.budget.0), duration(quota.period)),
                        used: if latest.periods == 0 {
                            "-".into()
                        } else {
                            format!("{:.1} %", used * 100.0)
                        },
                        bar: bar(used),
                        throttled: format!("{:.1} %", share(latest.throttled.0, time.0) * 100.0),
                        overshoot: grouped(latest.overshoot.0),
                        most: grouped(all.overshoot.0),
                        periods: grouped(all.periods),
                    };
                    rows.push(Row {
                        core,
                        vm: vm.name.clone(),
                        end,
                        cells: Some(cells),
                    });
                }
                if rows.len() == before {
                    rows.push(Row {
                        core,
                        vm: vm.name.clone(),
                        end,
                        cells: None,
                    });
                }
            }
        }
        rows.sort_by_key(|row| row.core);
        rows
    }
}

/// A line of the table.
struct Row {
    core: Core,
    vm: String,
    /// How the VM ended, if it did.
    end: Option<End>,
    /// `None` for a core without a quota.
    cells: Option<Cells>,
}

/// The shown figures of a quota.
struct Cells {
    event: String,
    budget: String,
    used: String,
    bar: String,
    throttled: String,
    overshoot: String,
    most: String,
    periods: String,
}

/// Returns a table with one line for each row.
fn wide(rows: &[Row], style: Style) -> String {
    let mut table = Table::new();
    let header = [
        "core",
        "VM",
        "event",
        "budget / period",
        "used",
        "",
        "throttled",
        "overshoot",
        "most",
        "periods",
    ];
    table.load_preset(style.borders()).set_header(header);
    for row in rows {
        let name = row
            .end
            .map_or_else(|| row.vm.clone(), |end| format!("{} ({end})", row.vm));
        let mut line = vec![row.core.to_string(), name];
        match &row.cells {
            None => line.push("no quota".into()),
            Some(Cells {
                event,
                budget,
                used,
                bar,
                throttled,
                overshoot,
                most,
                periods,
            }) => {
                line.extend(
                    [
                        event, budget, used, bar, throttled, overshoot, most, periods,
                    ]
                    .map(|cell| style.show(cell)),
                );
            }
        }
        table.add_row(line);
    }
    table.to_string()
}

/// Returns two lines for each row, for a terminal that is too narrow for the table.
fn narrow(rows: &[Row], style: Style) -> String {
    let line = |row: &Row| {
        let end = match row.end {
            None | Some(End::Running) => "",
            Some(End::Off) => " (off)",
            Some(End::Killed) => " (killed)",
            Some(_) => " (stopped)",
        };
        let name = format!("core {}  {}{end}", row.core, row.vm);
        let Some(cells) = &row.cells else {
            return format!("{name}: no quota");
        };
        let numbers = format!(
            "  used {:<8} throttled {:<8} over {} (most {}) in {} periods",
            cells.used, cells.throttled, cells.overshoot, cells.most, cells.periods
        );
        style.show(&format!(
            "{name}: {} {}\n{numbers}",
            cells.event, cells.budget
        ))
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats a share from 0 to 1 as a bar; a larger share fills it.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
}

/// Runs `cloison top`.
pub fn top(args: &TopArgs) -> Result<()> {
    let mut checked = configuration::load(&args.config, args.board.as_deref())?;
    for quota in checked.system.vms.iter_mut().flat_map(|vm| &mut vm.quotas) {
        quota.trace = true;
    }
    let has_quota = checked.system.vms.iter().any(|vm| !vm.quotas.is_empty());
    if !has_quota && checked.system.links.is_empty() {
        return Err(miette!(
            help = "see docs/configuration.md for [[vm.quota]] and [[link]]",
            "{} has no quota and no link, so there is nothing to show",
            args.config.display()
        ));
    }
    let counting = match (&args.model, args.icount) {
        (Some(_), _) => Counting::Model,
        (None, Some(_)) => Counting::Icount,
        (None, None) => Counting::Stock,
    };
    counting::prepare_for(&mut checked, counting.machine())?;
    parts::prepare()?;
    setup::qemu()?;
    let image = image::build(&checked, &[])?;
    let board = &image.system.board.name;
    let emulation = checked.emulation()?;
    let stem = args
        .config
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let claim = configuration::run_directory("top", &format!("{stem}-{board}"), &args.config)?;
    let directory = claim.directory();
    let file = directory.join("Image");
    image.write(&file)?;
    let limit = args.timeout.map_or(LONGEST, Duration::from_secs);
    let mut machine = Machine::new(emulation, &file).icount(args.icount);
    if let Some(named) = &args.model {
        let model = Model::chosen(named.as_deref(), emulation)?;
        machine = model.attach(
            machine,
            Conditions::default(),
            &directory.join("statistics.json"),
        );
    }
    let warning = counting::warning(&checked, counting).map(|line| format!("warning: {line}"));
    let title = format!(
        "{stem} on {board}{}",
        if args.model.is_some() {
            ", modelled"
        } else {
            ""
        }
    );
    let names = EventNames::of(&checked.board.events);
    let mut view = View {
        title,
        note: None,
        system: image.system,
        names,
        style: Style::of_output,
    };
    let screen = Screen::open()?;
    match warning {
        // Other output would be lost with the separate screen.
        Some(line) if screen.terminal => view.note = Some(line),
        Some(line) => eprintln!("{line}"),
        None => {}
    }
    let mut last = String::new();
    view.watch(
        &machine.limit(limit),
        Duration::from_millis(args.interval),
        |page| {
            page.clone_into(&mut last);
            screen.show(page)?;
            screen.quits()
        },
    )?;
    let is_lost = screen.terminal;
    drop(screen);
    if is_lost {
        // The screen with it is gone by now.
        println!("{last}");
    }
    Ok(())
}

/// A system to watch. Its quotas log every period.
#[derive(Debug)]
pub struct View {
    /// Line above the table.
    pub title: String,
    /// The system.
    pub system: System,
    /// Names of its board's events.
    pub names: EventNames,
    /// A remark below the title.
    pub note: Option<String>,
    /// Returns the current style of the reader's terminal.
    pub style: fn() -> Style,
}

impl View {
    /// Runs a machine and passes a page to `show` in each interval, until the board turns itself
    /// off, the time limit expires, or `show` requests the end.
    pub fn watch(
        &self,
        machine: &Machine,
        interval: Duration,
        mut show: impl FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        let mut session = machine.start()?;
        let (mut usage, mut stream, mut read) = (Usage::default(), TelemetryDecoder::default(), 0);
        let mut over = false;
        while !over {
            let until = Instant::now() + interval;
            while Instant::now() < until && !over {
                over = session.receive(until) == Received::End || session.is_over();
            }
            let bytes = session.telemetry_from(read);
            read += bytes.len() as u64;
            usage.add(&stream.feed(&bytes));
            over |= show(&self.page(&usage, stream.so_far(), &session.console()))?;
        }
        session.stop().map(drop)
    }

    /// Returns everything shown in one update.
    fn page(&self, usage: &Usage, said: &Telemetry, console: &str) -> String {
        let style = (self.style)();
        let head = format!(
            "{}: {} of guest time, {} records",
            self.title,
            duration(usage.now),
            grouped(usage.records)
        );
        let mut text = style.wrap(&head, "") + "\n";
        let mut remark = |line: &str| text.push_str(&(style.wrap(line, "") + "\n"));
        if let Some(note) = &self.note {
            remark(note);
        }
        if usage.dropped > 0 {
            remark(&format!(
                "{} records lost: cores logged faster than the telemetry UART sends, so periods \
                 are missing below",
                grouped(usage.dropped)
            ));
        }
        let rows = usage.rows(&self.system, &self.names);
        let table = wide(&rows, style);
        let fits = |columns| table.lines().all(|line| line.chars().count() <= columns);
        text.push_str(&if style.columns.is_none_or(fits) {
            table
        } else {
            narrow(&rows, style)
        });
        if !self.system.links.is_empty() {
            text.push_str(&format!("\n{}", usage.links(&self.system, style)));
        }
        let legend =
            "used, throttled, overshoot, (+): since the last update; most: the worst period so far";
        text.push_str(&format!("\n{}\n", style.wrap(legend, "")));
        if let Some((at, problem)) = said.problems.first() {
            text.push_str(&style.wrap(
                &format!("the log cannot be read at byte {at}: {problem}"),
                "",
            ));
            text.push('\n');
        }
        let console = plain(console);
        let lines: Vec<&str> = console.lines().collect();
        for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// The terminal, if there is one, with a separate screen. Otherwise pages are printed one after the
/// other.
struct Screen {
    terminal: bool,
}

impl Screen {
    fn open() -> Result<Self> {
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if terminal {
            terminal::enable_raw_mode().into_diagnostic()?;
            execute!(
                std::io::stdout(),
                terminal::EnterAlternateScreen,
                cursor::Hide
            )
            .into_diagnostic()?;
        }
        Ok(Self { terminal })
    }

    fn show(&self, page: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.terminal {
            return writeln!(out, "{page}").into_diagnostic();
        }
        let (columns, rows) = terminal::size()
            .ok()
            .filter(|(columns, rows)| *columns > 0 && *rows > 0)
            .unwrap_or((80, 24));
        execute!(out, cursor::MoveTo(0, 0)).into_diagnostic()?;
        let help = "q quits".to_owned();
        for line in page
            .lines()
            .map(str::to_owned)
            .chain([help])
            .take(usize::from(rows.max(1)) - 1)
        {
            // Raw mode: a line end does not return the cursor.
            let line: String = line
                .chars()
                .filter(|c| !c.is_control())
                .take(usize::from(columns))
                .collect();
            write!(out, "{line}").into_diagnostic()?;
            execute!(out, terminal::Clear(terminal::ClearType::UntilNewLine)).into_diagnostic()?;
            write!(out, "\r\n").into_diagnostic()?;
        }
        execute!(out, terminal::Clear(terminal::ClearType::FromCursorDown)).into_diagnostic()?;
        out.flush().into_diagnostic()
    }

    /// Returns whether the user has typed `q` or Ctrl-C.
    fn quits(&self) -> Result<bool> {
        while self.terminal && event::poll(Duration::ZERO).into_diagnostic()? {
            if let event::Event::Key(key) = event::read().into_diagnostic()? {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                if key.code == KeyCode::Char('q') || control && key.code == KeyCode::Char('c') {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal {
            // The terminal may be gone, and then needs no restoring.
            let _ = execute!(
                std::io::stdout(),
                terminal::LeaveAlternateScreen,
                cursor::Show
            );
            let _ = terminal::disable_raw_mode();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(events: u64, throttled: u64) -> Entry {
        let period = LoggedPeriod {
            index: 0,
            events: Events(events),
            budget: Events(100),
            reclaimed: Events(0),
            spent_at: None,
            due: Nanos(0),
            throttled: Nanos(throttled),
        };
        let record = Record::QuotaPeriod(QuotaPeriod {
            quota: 0,
            vm: VmId(1),
            period,
        });
        Entry {
            core: Core(2),
            at: Nanos(events),
            record,
        }
    }

    #[test]
    fn a_look_has_its_own_sums_and_the_worst_stays() {
        let mut usage = Usage::default();
        usage.add(&[period(109, 40), period(50, 0)]);
        usage.add(&[period(103, 10)]);
        let (latest, all) = (usage.latest[&(VmId(1), 0)], usage.all[&(VmId(1), 0)]);
        assert_eq!(
            (
                latest.periods,
                latest.events,
                latest.overshoot,
                latest.throttled
            ),
            (1, 103, Events(3), Nanos(10))
        );
        assert_eq!(
            (all.periods, all.events, all.budget, all.overshoot),
            (3, 262, 300, Events(9))
        );
        assert_eq!(
            (all.throttled_periods, usage.now, usage.records),
            (2, Nanos(109), 3)
        );
        usage.add(&[Entry {
            core: Core(0),
            at: Nanos(200),
            record: Record::Dropped { count: 5 },
        }]);
        assert_eq!((usage.latest.len(), usage.dropped), (0, 5));
    }

    /// The demonstration after some periods, on a terminal with these columns.
    fn page(columns: usize) -> String {
        fn rich() -> Style {
            Style {
                plain: false,
                columns: Some(80),
            }
        }
        fn wide() -> Style {
            Style {
                plain: false,
                columns: Some(180),
            }
        }
        let path = configuration::directory().join("demo.toml");
        let checked = configuration::load(&path, None).expect("a good one");
        let names = EventNames::of(&checked.board.events);
        let mut system = checked.system;
        system.vms[1].name = "sixteen-letters-".into();
        let note = Some("warning: ".to_owned() + &"a long line of text ".repeat(9));
        let style = if columns == 80 { rich } else { wide };
        let view = View {
            title: "demo on virt".into(),
            note,
            system,
            names,
            style,
        };
        let mut usage = Usage::default();
        usage.add(&[period(123_456_789, 40)]);
        usage.add(&[
            Entry {
                core: Core(0),
                at: Nanos(200),
                record: Record::Dropped { count: 3_526 },
            },
            period(109, 40),
        ]);
        usage.ends.insert(VmId(1), End::Stopped);
        view.page(&usage, &Telemetry::default(), "")
    }

    #[test]
    fn a_small_terminal_shows_everything() {
        let page = page(80);
        assert!(
            page.lines().all(|line| line.chars().count() <= 80),
            "{page}"
        );
        assert!(page.lines().count() + CONSOLE_LINES < 24, "{page}");
        for shown in [
            "throttled",
            "over 9 (most 123\u{202f}456\u{202f}689) in 2 periods",
            "INST_RETIRED 20\u{202f}000 / 1 ms",
            "no quota",
        ] {
            assert!(page.contains(shown), "{shown:?} is not in\n{page}");
        }
        // The number is explained.
        assert!(
            page.contains("3\u{202f}526 records lost: cores logged faster than"),
            "{page}"
        );
    }

    #[test]
    fn a_wide_terminal_shows_a_table() {
        let page = page(180);
        assert!(
            page.contains("┆ budget / period")
                && page.lines().all(|line| line.chars().count() <= 180),
            "{page}"
        );
    }

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(0.0), "....................");
        assert_eq!(bar(0.5), "##########..........");
        assert_eq!(bar(7.0), "####################");
    }
}
