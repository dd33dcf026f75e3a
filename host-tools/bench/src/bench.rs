//! `cloison bench`: counts the instructions on the hypervisor's own paths.
//!
//! Under `-icount shift=0` with a generic timer of 1 GHz, one instruction takes one nanosecond of
//! virtual time, and a run repeats exactly: the guest's differences of CNTVCT_EL0 are instruction
//! counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::expected::{Expected, FILE, Tools};
use crate::{epapi, lines, visits};
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::image::{self, Image};
use cloison_engine::installation::{self, Installation};
use cloison_engine::progress::stage;
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::report::Section;
use cloison_engine::telemetry::Telemetry;
use cloison_engine::text::{Spread, grouped};
use cloison_engine::{configuration, files, parts, setup};
use cloison_formats::telemetry::MigrationOutcome;
use miette::{Result, miette};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The board that is measured.
const BOARD: &str = "virt";
/// The system that measures, by its path in a checkout or a bundle.
pub const CONFIG: &str = "tests/configs/bench.toml";
/// The system that measures what goes between two VMs, as [`CONFIG`].
pub const BETWEEN: &str = "tests/configs/doorbell.toml";
/// One tick per instruction.
const CNTFRQ: u64 = 1_000_000_000;

/// Options of `cloison bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// What is measured; without it, the hypervisor's own paths
    #[arg(value_enum)]
    pub what: Option<What>,
    /// With `epapi`: the board, such as virt-a72; by default virt
    #[arg(long, value_name = "BOARD", requires = "what")]
    pub board: Option<String>,
    /// Accept the figures: write them to tests/expected/bench.toml, with an empty reason where one
    /// has changed
    #[arg(long, conflicts_with = "what")]
    pub accept: bool,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Measurements of `cloison bench` besides the hypervisor's own paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// What PAPI adds to what a guest counts with it
    Epapi,
}

/// One path: its name, its aim, and what Bao 2.0 takes on the same QEMU.
struct Path {
    figure: &'static str,
    what: &'static str,
    aim: Aim,
    bao: &'static str,
}

enum Aim {
    /// At most this many instructions.
    AtMost(u64),
    /// At most this many times another figure.
    Times(u64, &'static str),
    /// Reported without an aim.
    None,
}

const PATHS: [Path; 13] = [
    Path {
        figure: "first_instruction",
        what: "reset to first guest instruction",
        aim: Aim::AtMost(300_000),
        bao: "1120952 (368323 uncolored)",
    },
    Path {
        figure: "null_hypercall",
        what: "null hypercall, round trip",
        aim: Aim::AtMost(75),
        bao: "146",
    },
    Path {
        figure: "psci_version",
        what: "PSCI_VERSION, round trip",
        aim: Aim::AtMost(95),
        bao: "188",
    },
    Path {
        figure: "gicd_typer_read",
        what: "emulated GICD_TYPER read",
        aim: Aim::AtMost(115),
        bao: "225",
    },
    Path {
        figure: "gicd_read",
        what: "any other emulated GICD read",
        aim: Aim::AtMost(200),
        bao: "1290",
    },
    Path {
        figure: "timer_to_handler",
        what: "virtual timer expiry to guest handler",
        aim: Aim::AtMost(120),
        bao: "199",
    },
    Path {
        figure: "self_sgi",
        what: "SGI to oneself, to guest handler",
        aim: Aim::AtMost(300),
        bao: "775",
    },
    Path {
        figure: "doorbell",
        what: "doorbell, HVC to the peer's handler",
        aim: Aim::AtMost(250),
        bao: "",
    },
    Path {
        figure: "message",
        what: "64 bytes through a ring, with a doorbell",
        aim: Aim::AtMost(600),
        bao: "",
    },
    Path {
        figure: "quota_overflow_to_throttled",
        what: "quota overflow to core stopped",
        aim: Aim::None,
        bao: "",
    },
    Path {
        figure: "replenish_to_guest",
        what: "period's end to guest running again",
        aim: Aim::None,
        bao: "",
    },
    Path {
        figure: "page_copy",
        what: "plain copy of 4 KiB, in a guest",
        aim: Aim::None,
        bao: "",
    },
    Path {
        figure: "migrate_page",
        what: "migration of one page, hypercall included",
        aim: Aim::Times(3, "page_copy"),
        bao: "",
    },
];

impl Aim {
    fn limit(&self, counts: &BTreeMap<String, u64>) -> Option<u64> {
        match self {
            Self::AtMost(limit) => Some(*limit),
            Self::Times(factor, figure) => counts.get(*figure).map(|count| factor * count),
            Self::None => None,
        }
    }
    fn text(&self, counts: &BTreeMap<String, u64>) -> String {
        match (self, self.limit(counts)) {
            (Self::Times(factor, figure), Some(limit)) => {
                format!("{} ({factor} x {figure})", grouped(limit))
            }
            (_, Some(limit)) => grouped(limit),
            (_, None) => String::new(),
        }
    }
}

/// Runs `cloison bench`.
pub fn bench(args: &BenchArgs) -> Result<()> {
    if args.what == Some(What::Epapi) {
        return epapi::bench(args.board.as_deref(), args.json.as_deref());
    }
    stage("set-up", || {
        parts::prepare()?;
        setup::qemu()
    })?;
    let path = installation::root().join(CONFIG);
    let images = stage("build", build)?;
    let first = stage("first run", || measure(&images))?;
    let second = stage("second run", || measure(&images))?;
    let longest = stage("visits to EL2", visits::measure)?;
    let latencies = stage("latencies", visits::latencies)?;
    let el2_tokens = match installation::current() {
        Installation::Bundle(bundle) => bundle.manifest().el2_tokens,
        Installation::Checkout(_) | Installation::Nothing => lines::el2()?.tokens,
    };

    let differing: Vec<String> = first
        .keys()
        .chain(second.keys().filter(|name| !first.contains_key(*name)))
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| format!("{name}: {:?}, then {:?}", first.get(name), second.get(name)))
        .collect();
    let missing: Vec<&str> = PATHS
        .iter()
        .map(|path| path.figure)
        .filter(|figure| !first.contains_key(*figure))
        .collect();

    let mut figures = Figures::new("bench").board(BOARD).config(&path);
    let (section, missed) = paths(&first, el2_tokens);
    for (name, &count) in &first {
        figures.count(name.as_str(), count);
    }
    visits::record(&mut figures, &longest, &latencies);
    let mut all = first.clone();
    all.extend(visits::counts(&longest));
    all.extend(visits::latency_counts(&latencies));
    figures
        .count("el2_tokens", el2_tokens)
        .count("aims_missed", missed)
        .count("repeats_exactly", u64::from(differing.is_empty()));
    figures.write(args.json.as_deref())?;
    println!("{}", section.to_text());
    println!(
        "{}\n{}",
        visits::table(&longest).to_text(),
        visits::latency_table(&latencies).to_text()
    );
    println!(
        "{}",
        if differing.is_empty() {
            "Two runs gave identical counts."
        } else {
            "Two runs gave different counts."
        }
    );
    if !missing.is_empty() {
        return Err(miette!(
            help = "the `bench` guest prints one line per path; see its console in the image's run",
            "not measured: {}",
            missing.join(", ")
        ));
    }
    if !differing.is_empty() {
        return Err(miette!(
            help =
                "something in the run depends on the host: time, randomness, or the order of cores",
            "the counts do not repeat:\n{}",
            differing.join("\n")
        ));
    }
    if args.accept { accept(&all) } else { Ok(()) }
}

/// Accepts the figures.
fn accept(counts: &BTreeMap<String, u64>) -> Result<()> {
    let tools = Tools::of_this_machine();
    let none = || Expected {
        tools: tools.clone(),
        figures: BTreeMap::new(),
    };
    let mut expected = if installation::root().join(FILE).exists() {
        Expected::read()?
    } else {
        none()
    };
    let changed = expected.accept(counts, tools.clone());
    expected.write()?;
    match changed.len() {
        0 => println!("{FILE}: no figure has changed"),
        some => println!(
            "{FILE}: write the reasons of {some} figures: {}",
            changed.join(", ")
        ),
    }
    Ok(())
}

/// The systems that measure.
struct Images {
    own: Image,
    between: Image,
}

fn build() -> Result<Images> {
    let build = |config| {
        let mut checked = configuration::load(&installation::root().join(config), Some(BOARD))?;
        counting::prepare_for(&mut checked, Counting::Icount.machine())?;
        image::build(&checked, &[])
    };
    Ok(Images {
        own: build(CONFIG)?,
        between: build(BETWEEN)?,
    })
}

/// Builds and runs the systems that measure, once. Returns its counts.
pub fn run() -> Result<BTreeMap<String, u64>> {
    measure(&build()?)
}

/// Returns the figures that miss their aims.
pub fn missed(counts: &BTreeMap<String, u64>) -> Vec<&'static str> {
    let misses = |path: &&Path| {
        counts
            .get(path.figure)
            .zip(path.aim.limit(counts))
            .is_none_or(|(&count, limit)| count > limit)
    };
    PATHS
        .iter()
        .filter(|path| !matches!(path.aim, Aim::None))
        .filter(misses)
        .map(|path| path.figure)
        .collect()
}

/// Returns the table of the paths, and the number of aims that were missed.
fn paths(counts: &BTreeMap<String, u64>, el2_tokens: u64) -> (Section, u64) {
    let mut section = Section::new(
        "Instructions per path (QEMU virt, -icount shift=0)",
        &[
            "figure",
            "path",
            "instructions",
            "most seen",
            "aim, at most",
            "Bao 2.0",
            "aim met",
        ],
    );
    let mut missed = 0;
    for path in &PATHS {
        let count = counts.get(path.figure);
        let met = count
            .zip(path.aim.limit(counts))
            .map(|(&count, limit)| count <= limit);
        missed += u64::from(met == Some(false));
        section.row([
            path.figure.to_owned(),
            path.what.to_owned(),
            count.map_or("not measured".to_owned(), |&count| grouped(count)),
            counts
                .get(&format!("{}_max", path.figure))
                .map_or(String::new(), |&most| grouped(most)),
            path.aim.text(counts),
            path.bao.to_owned(),
            met.map_or(String::new(), |met| {
                if met { "yes" } else { "no" }.to_owned()
            }),
        ]);
    }
    missed += u64::from(el2_tokens > lines::LIMIT);
    section.row([
        "el2_tokens".to_owned(),
        "tokens of source at EL2".to_owned(),
        grouped(el2_tokens),
        String::new(),
        grouped(lines::LIMIT),
        String::new(),
        if el2_tokens <= lines::LIMIT {
            "yes"
        } else {
            "no"
        }
        .to_owned(),
    ]);
    let section = section.note(
        "EL2 tokens exclude comments and tests. Bao's figures are for the same machine and \
         counting, with one VM of 16 MiB.",
    );
    (section, missed)
}

fn measure(images: &Images) -> Result<BTreeMap<String, u64>> {
    let mut all = measure_one(&images.own)?;
    all.extend(measure_one(&images.between)?);
    Ok(all)
}

fn measure_one(image: &Image) -> Result<BTreeMap<String, u64>> {
    let scratch = files::scratch()?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let machine = Machine::new(&configuration::emulation(BOARD)?, &file)
        .icount(Some(0))
        .cntfrq(CNTFRQ)
        .limit(Duration::from_secs(120));
    let outcome = machine.run()?;
    if !outcome.exit.is_clean() {
        let lines: Vec<&str> = outcome.console.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        return Err(miette!(
            help = format!("the console's last lines were:\n{tail}\n{}", outcome.errors),
            "the bench did not finish: {}",
            outcome.exit
        ));
    }
    counts(&outcome)
}

/// Returns all counts of one run: what the guest printed, and what is computed from the telemetry.
fn counts(outcome: &Outcome) -> Result<BTreeMap<String, u64>> {
    let telemetry = Telemetry::parse(&outcome.telemetry);
    if let Some((offset, problem)) = telemetry.problems.first() {
        return Err(miette!("telemetry, byte {offset}: {problem}"));
    }
    let mut counts = BTreeMap::new();
    let mut gaps = vec![];
    for line in outcome.console.lines() {
        let Some((name, values)) = result(line) else {
            continue;
        };
        match (name, values[..].first()) {
            ("quota_gap", _) => {
                if let [before, after, ..] = values[..] {
                    gaps.push((before, after));
                }
            }
            (name, Some(&value)) => {
                counts.insert(name.to_owned(), value);
            }
            _ => {}
        }
    }
    let took = telemetry
        .migrations()
        .filter(|(_, migration)| migration.outcome == MigrationOutcome::Moved)
        .map(|(_, migration)| migration.took.0);
    if let Some(spread) = Spread::of(took) {
        counts.insert("migrate_page_took".to_owned(), spread.median);
        counts.insert("migrate_page_took_max".to_owned(), spread.max);
    }
    // The guest read the clock before and after it was held; the period that held it is in between.
    let held = gaps.iter().filter_map(|&(before, after)| {
        let period = telemetry
            .quota_periods()
            .map(|(_, record)| record.period)
            .find(|period| {
                period
                    .spent_at
                    .is_some_and(|at| (before..=after).contains(&at.0))
            })?;
        Some((
            period.spent_at?.0 - before,
            after.checked_sub(period.due.0)?,
        ))
    });
    let (stopping, going): (Vec<u64>, Vec<u64>) = held.unzip();
    for (name, values) in [
        ("quota_overflow_to_throttled", stopping),
        ("replenish_to_guest", going),
    ] {
        if let Some(spread) = Spread::of(values) {
            counts.insert(name.to_owned(), spread.median);
            counts.insert(format!("{name}_max"), spread.max);
        }
    }
    Ok(counts)
}

/// Parses `[vm] bench NAME VALUE...`.
fn result(line: &str) -> Option<(&str, Vec<u64>)> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "bench")
        .skip(1);
    let name = words.next()?;
    let values: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    (!values.is_empty()).then_some((name, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::color::ColorSet;
    use cloison_formats::ids::{Core, VmId};
    use cloison_formats::telemetry::{
        self, BootInfo, Entry, LoggedPeriod, Message, QuotaPeriod, Record, VmInfo,
    };
    use cloison_formats::units::{Events, Nanos};

    #[test]
    fn result_lines() {
        assert_eq!(
            result("[bench] bench null_hypercall 75"),
            Some(("null_hypercall", vec![75]))
        );
        assert_eq!(
            result("bench quota_gap 100 200 "),
            Some(("quota_gap", vec![100, 200]))
        );
        assert_eq!(result("[bench] ready"), None);
        assert_eq!(result("[bench] bench is done"), None);
    }

    #[test]
    fn a_gap_is_matched_with_the_period_that_held_the_core() {
        let period = |index, spent_at, due| {
            Message::Entry(Entry {
                core: Core(0),
                at: Nanos(due),
                record: Record::QuotaPeriod(QuotaPeriod {
                    quota: 0,
                    vm: VmId(0),
                    period: LoggedPeriod {
                        index,
                        events: Events(0),
                        budget: Events(0),
                        reclaimed: Events(0),
                        spent_at: Some(Nanos(spent_at)),
                        due: Nanos(due),
                        throttled: Nanos(due - spent_at),
                    },
                }),
            })
        };
        let boot = Message::Boot(BootInfo {
            version: telemetry::VERSION,
            system: String::new(),
            board: String::new(),
            colors: 1,
            hypervisor_colors: ColorSet(1),
            hypervisor_pages: 0,
            hypervisor_frames: vec![],
            timer_hz: CNTFRQ,
        });
        let vm = Message::Vm(VmInfo {
            name: "bench".into(),
            cores: vec![Core(0)],
            pages: 1,
            untrusted: vec![],
        });
        let frames = [
            boot,
            vm,
            period(0, 1_060, 2_000),
            period(1, 3_070, 4_000),
            period(2, 9_000, 9_500),
        ];
        let encode = |frame: &Message| {
            telemetry::encode(frame, &mut [0; telemetry::MAX_MESSAGE])
                .expect("fits")
                .to_vec()
        };
        let outcome = Outcome {
            exit: cloison_engine::qemu::Exit::Code(0),
            console: "[bench] bench quota_gap 1000 2300\r\n[bench] bench quota_gap 3000 4310\n"
                .into(),
            telemetry: frames.iter().flat_map(encode).collect(),
            uart: Vec::new(),
            errors: String::new(),
            wall: Duration::ZERO,
        };
        let counts = counts(&outcome).expect("the telemetry is sound");
        let expected = [
            ("quota_overflow_to_throttled", 60),
            ("quota_overflow_to_throttled_max", 70),
            ("replenish_to_guest", 300),
            ("replenish_to_guest_max", 310),
        ];
        assert_eq!(
            counts,
            expected
                .map(|(name, value)| (name.to_owned(), value))
                .into()
        );
    }

    #[test]
    fn aims_follow_other_figures() {
        let counts = BTreeMap::from([("page_copy".to_owned(), 600)]);
        assert_eq!(Aim::Times(3, "page_copy").limit(&counts), Some(1_800));
        assert_eq!(Aim::Times(3, "absent").limit(&counts), None);
    }
}
