//! The longest visits to EL2 by cause, and the latency of a neighbor's interrupts.
//!
//! The board model's plugin counts the instructions of each core between two points at which it
//! serves pending interrupts. Cores take turns of [`TURN`] instructions, as if they ran in
//! parallel, so that a core that waits for another is charged for that too. Under `-icount` all of
//! it repeats exactly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_board_model::statistics::{Stretch, Visits};
use cloison_config::Checked;
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::image;
use cloison_engine::installation;
use cloison_engine::qemu::Machine;
use cloison_engine::report::Section;
use cloison_engine::text::grouped;
use cloison_engine::{configuration, files, parts};
use cloison_formats::ids::{Intid, VmId};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use object::{Object, ObjectSymbol};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The board that is measured.
const BOARD: &str = "virt";
/// One tick per instruction.
const CNTFRQ: u64 = 1_000_000_000;
/// Instructions in a core's turn.
pub const TURN: u64 = 100;
/// Offset of GICC_IAR.
const ACKNOWLEDGE: u64 = 0x0c;
/// Functions that name what a visit is for.
const MARKS: [(&str, &str); 3] = [
    ("cloison_el2::vm::link::send", "link_send"),
    ("cloison_el2::vm::life::begin_again", "restart"),
    (
        "cloison_el2::vm::migrate::Work::on_deadline",
        "migration_by_deadline",
    ),
];
/// Causes that copy or clear pages.
const COPIES: [&str; 8] = [
    "hypercall_migrate",
    "hypercall_migrate_page",
    "hypercall_restore",
    "hypercall_set_cacheability",
    "link_send",
    "migration_by_deadline",
    "restart",
    "services_page",
];
/// Beats of the neighbor whose interrupts are measured, and their distance in microseconds.
const BEATS: u64 = 4000;
const EVERY: u64 = 100;

/// The system of the chaotic guest.
pub const CHAOS: &str = "tests/configs/chaos.toml";
/// The system of the hostile guest.
const HOSTILE: &str = "tests/configs/hostile.toml";
/// The system of a neighbor and three floods of the console.
const FLOOD: &str = "tests/configs/flood.toml";
/// The systems to run, by their paths in a checkout or a bundle.
pub const CONFIGS: [&str; 7] = [
    HOSTILE,
    CHAOS,
    "tests/configs/migrate.toml",
    "tests/configs/restart.toml",
    "tests/configs/remains.toml",
    "tests/configs/rings.toml",
    FLOOD,
];

/// The longest stretch at EL2 of one cause.
#[derive(Clone, Debug)]
pub struct LongestVisit {
    /// The guest's call or access, or the interrupt.
    pub cause: String,
    /// The system with this visit.
    pub system: String,
    /// Its length and place.
    pub stretch: Stretch,
    /// The functions at EL2 in which it began and ended.
    pub functions: [String; 2],
}

impl LongestVisit {
    /// Returns the maximum of instructions that this cause should take: 5,000 where pages are
    /// copied, and 1,500 elsewhere.
    pub fn aim(&self) -> u64 {
        if COPIES.contains(&self.cause.as_str()) {
            5_000
        } else {
            1_500
        }
    }
}

/// The neighbor's worst latency in one situation.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Name in the figures.
    pub figure: &'static str,
    /// The situation.
    pub beside: &'static str,
    /// Instructions of all cores together, from the timer's expiry to the program that waits for
    /// it.
    pub worst: u64,
}

/// The functions of the hypervisor, by address.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    fn read(elf: &Path) -> Result<Self> {
        let bytes = std::fs::read(elf).into_diagnostic()?;
        let file = object::File::parse(&*bytes).into_diagnostic()?;
        let named = file
            .symbols()
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)));
        Ok(Self(
            named
                .filter(|(_, name)| !name.is_empty() && !name.starts_with('$'))
                .map(|(address, name)| (address, plain(name)))
                .collect(),
        ))
    }

    /// Returns the address of a function.
    fn address(&self, function: &str) -> Option<u64> {
        self.0
            .iter()
            .find(|(_, name)| *name == function)
            .map(|(address, _)| *address)
    }

    /// Returns the name of the function at `address`.
    fn name(&self, address: u64) -> String {
        let found = self.0.range(..=address).next_back();
        found.map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// Returns a symbol's path in Rust, without its hash, whichever way the compiler has mangled it.
fn plain(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// Runs a system, follows its visits to EL2, and returns them with its console.
fn follow(checked: &Checked, symbols: &Symbols) -> Result<(Visits, String)> {
    let image = image::build(checked, &[])?;
    let scratch = files::scratch()?;
    let (file, report) = (
        scratch.path().join("Image"),
        scratch.path().join("visits.json"),
    );
    image.write(&file)?;
    let acknowledge = checked.system.board.gic.gicc.0 + ACKNOWLEDGE;
    let mut plugin = format!(
        "{},visits={},acknowledge={acknowledge:#x},turn={TURN}",
        parts::model_plugin()?.display(),
        report.display()
    );
    let emulation = configuration::emulation(BOARD)?;
    let overflows: Vec<String> = emulation
        .overflow_interrupts
        .iter()
        .map(Intid::to_string)
        .collect();
    if !overflows.is_empty() {
        plugin.push_str(&format!(",overflow={}", overflows.join("+")));
    }
    for (function, cause) in MARKS {
        let Some(address) = symbols.address(function) else {
            return Err(miette!(
                help = "give the function's path as it is now in `MARKS`; a function that is inlined \
                        has no symbol",
                "the hypervisor has no function `{function}`, which marks a visit for `{cause}`"
            ));
        };
        plugin.push_str(&format!(",mark={address:#x}:{cause}"));
    }
    let machine = Machine::new(&emulation, &file)
        .icount(Some(0))
        .cntfrq(CNTFRQ);
    let outcome = machine
        .limit(Duration::from_secs(400))
        .arg("-plugin")
        .arg(plugin)
        .run()?;
    if !outcome.exit.is_clean() {
        let lines: Vec<&str> = outcome.console.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        return Err(miette!(
            help = format!("the console's last lines were:\n{tail}\n{}", outcome.errors),
            "the system `{}` did not finish: {}",
            checked.system.name,
            outcome.exit
        ));
    }
    let text = std::fs::read_to_string(&report)
        .into_diagnostic()
        .wrap_err("the plugin left no visits")?;
    Ok((
        serde_json::from_str(&text).into_diagnostic()?,
        outcome.console,
    ))
}

fn load(config: &str) -> Result<Checked> {
    let mut checked = configuration::load(&installation::root().join(config), Some(BOARD))?;
    counting::prepare_for(&mut checked, Counting::Icount.machine())?;
    Ok(checked)
}

/// Runs one system, and returns the longest stretch of each cause.
pub fn of(config: &str) -> Result<Visits> {
    let symbols = Symbols::read(&parts::hypervisor(&[])?)?;
    Ok(follow(&load(config)?, &symbols)?.0)
}

/// Runs all systems and returns the longest stretch of each cause, by its name.
pub fn measure() -> Result<Vec<LongestVisit>> {
    let symbols = Symbols::read(&parts::hypervisor(&[])?)?;
    let mut longest: BTreeMap<String, LongestVisit> = BTreeMap::new();
    for config in CONFIGS {
        let checked = load(config)?;
        let (visits, _) = follow(&checked, &symbols)?;
        for (cause, stretch) in visits.longest {
            if longest
                .get(&cause)
                .is_none_or(|known| known.stretch.instructions < stretch.instructions)
            {
                let functions = [stretch.from, stretch.to].map(|address| symbols.name(address));
                let system = checked.system.name.clone();
                longest.insert(
                    cause.clone(),
                    LongestVisit {
                        cause,
                        system,
                        stretch,
                        functions,
                    },
                );
            }
        }
    }
    Ok(longest.into_values().collect())
}

/// The load beside the neighbor whose interrupts are measured.
#[derive(Clone, Copy)]
enum Beside {
    Nobody,
    Hostile,
    Floods,
    /// The floods, and a message of the hypervisor about a page that it moves.
    Message,
    Migration,
}

impl Beside {
    /// Returns the system; its first VM is the neighbor.
    fn system(self) -> Result<Checked> {
        let mut checked = load(if matches!(self, Self::Hostile) {
            HOSTILE
        } else {
            FLOOD
        })?;
        let vms = match self {
            Self::Nobody | Self::Migration => 1,
            Self::Hostile => 2,
            Self::Floods | Self::Message => 4,
        };
        checked.system.vms.truncate(vms);
        checked.images.truncate(vms);
        if matches!(self, Self::Hostile) {
            checked.system.vms.reverse();
            checked.images.reverse();
        }
        checked.system.ends_with = Some(VmId(0));
        let neighbor = &mut checked.system.vms[0];
        neighbor.args = [EVERY, 4096, BEATS, BEATS];
        if let Some(profile) = &mut neighbor.profile {
            match self {
                Self::Migration => profile.top = 64,
                Self::Message => {}
                _ => profile.after = None,
            }
        }
        Ok(checked)
    }
}

/// Measures a neighbor's interrupt latency alone, and next to other guests' calls and EL2's work.
pub fn latencies() -> Result<Vec<Latency>> {
    let symbols = Symbols::read(&parts::hypervisor(&[])?)?;
    [
        ("latency_alone", "nobody", Beside::Nobody),
        ("latency_hostile", "the hostile guest", Beside::Hostile),
        ("latency_floods", "three console floods", Beside::Floods),
        (
            "latency_message",
            "three console floods, while one of its pages moves and is reported",
            Beside::Message,
        ),
        (
            "latency_migration",
            "its own migration of 64 pages",
            Beside::Migration,
        ),
    ]
    .into_iter()
    .map(|(figure, beside, situation)| {
        let checked = situation.system()?;
        let name = &checked.system.vms[0].name;
        let (_, console) = follow(&checked, &symbols)?;
        if matches!(situation, Beside::Message) && !console.contains("moved to its PVT pool") {
            return Err(miette!("the hypervisor reported no migration of VM {name}"));
        }
        let worst = worst(&console, name)
            .ok_or_else(|| miette!("VM {name} did not finish beside {beside}"))?;
        Ok(Latency {
            figure,
            beside,
            worst,
        })
    })
    .collect()
}

/// Parses the last line of a VM `heartbeat`, which must have lost nothing.
fn worst(console: &str, vm: &str) -> Option<u64> {
    let start = format!("[{vm}] heartbeat: done ");
    let line = console.lines().find_map(|line| line.strip_prefix(&start))?;
    let value = |key: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok())
    };
    (value("beats=") == Some(BEATS) && value("corrupt=") == Some(0)).then(|| value("worst="))?
}

/// Returns a table of the longest stretches.
pub fn table(longest: &[LongestVisit]) -> Section {
    let header = [
        "figure",
        "instructions",
        "of these waiting",
        "aim, at most",
        "aim met",
        "system",
        "ended in",
    ];
    let mut section = Section::new(
        "Longest time at EL2 between two points at which what is pending is served",
        &header,
    );
    for one in longest {
        let Stretch {
            instructions,
            waiting,
            ..
        } = one.stretch;
        let met = if instructions <= one.aim() {
            "yes"
        } else {
            "no"
        };
        section.row([
            figure(one),
            grouped(instructions),
            grouped(waiting),
            grouped(one.aim()),
            met.to_owned(),
            one.system.clone(),
            one.functions[1].clone(),
        ]);
    }
    section.note(format!(
        "Worst of the systems {}. Cores take turns of {TURN} instructions; a core waits in a loop \
         for another core or for a device.",
        CONFIGS
            .map(|config| config
                .trim_start_matches("tests/configs/")
                .trim_end_matches(".toml"))
            .join(", ")
    ))
}

/// Returns the name of the figure of one cause.
fn figure(longest: &LongestVisit) -> String {
    format!("max_el2_visit_{}", longest.cause)
}

/// Returns the lengths of the longest stretches as figures.
pub fn counts(longest: &[LongestVisit]) -> BTreeMap<String, u64> {
    longest
        .iter()
        .map(|one| (figure(one), one.stretch.instructions))
        .collect()
}

/// Returns the latencies as figures.
pub fn latency_counts(latencies: &[Latency]) -> BTreeMap<String, u64> {
    latencies
        .iter()
        .map(|latency| (latency.figure.to_owned(), latency.worst))
        .collect()
}

/// Returns the rows of the longest stretches for `--json`.
fn rows(longest: &[LongestVisit]) -> Vec<serde_json::Value> {
    let row = |one: &LongestVisit| {
        let Stretch {
            instructions,
            waiting,
            esr,
            elr,
            x0,
            from,
            to,
        } = one.stretch;
        json!({
            "cause": one.cause, "instructions": instructions, "waiting": waiting, "aim": one.aim(), "system": one.system,
            "esr": format!("{esr:#x}"), "elr": format!("{elr:#x}"), "x0": format!("{x0:#x}"),
            "from": format!("{from:#x}"), "from_function": one.functions[0],
            "to": format!("{to:#x}"), "to_function": one.functions[1],
        })
    };
    longest.iter().map(row).collect()
}

/// Adds all of it to the figures of `cloison bench`.
pub fn record(figures: &mut Figures, longest: &[LongestVisit], latencies: &[Latency]) {
    for (name, count) in counts(longest).into_iter().chain(latency_counts(latencies)) {
        figures.count(name, count);
    }
    let missed = longest
        .iter()
        .filter(|one| one.stretch.instructions > one.aim())
        .count();
    figures.count("max_el2_visit_aims_missed", missed as u64);
    figures.series("visits", rows(longest));
}

/// Returns a table of the neighbor's latencies.
pub fn latency_table(latencies: &[Latency]) -> Section {
    let mut section = Section::new(
        "A neighbor's worst interrupt latency",
        &["figure", "beside", "instructions"],
    );
    for latency in latencies {
        section.row([
            latency.figure.to_owned(),
            latency.beside.to_owned(),
            grouped(latency.worst),
        ]);
    }
    section.note(format!(
        "Worst of {BEATS} timer interrupts, from expiry to the program that waits in WFI, in \
         instructions of all cores together: beside a busy core, an instruction of the neighbor's \
         is two of these, and beside three, four."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_lost_something_has_no_latency() {
        let line = |beats, corrupt| {
            format!(
                "[a] heartbeat: done beats={beats} corrupt={corrupt} late=0 worst=321 ticks\n\
                 [b] heartbeat: done\n"
            )
        };
        assert_eq!(worst(&line(BEATS, 0), "a"), Some(321));
        assert_eq!(worst(&line(BEATS, 1), "a"), None);
        assert_eq!(worst(&line(BEATS - 1, 0), "a"), None);
        assert_eq!(worst(&line(BEATS, 0), "b"), None);
    }

    #[test]
    fn symbols_are_found_by_names_and_named_by_addresses() {
        let symbols = Symbols(BTreeMap::from([
            (0x1000, "vectors".to_owned()),
            (
                0x1200,
                plain("_ZN11cloison_el22vm4life11begin_again17h03c63bb17b57f20bE"),
            ),
        ]));
        let name = "cloison_el2::vm::life::begin_again";
        assert_eq!(symbols.address(name), Some(0x1200));
        assert_eq!(symbols.address("nowhere"), None);
        assert_eq!(
            plain("_RNvNtNtCs1234_11cloison_el22vm4life11begin_again"),
            name
        );
        assert_eq!(symbols.name(0x1234), name);
        assert_eq!(
            (symbols.name(0x11ff), symbols.name(0xfff)),
            ("vectors".to_owned(), String::new())
        );
    }
}
