//! Mixes of shipped workloads on four cores: whether what is decided for many systems holds when it
//! is run, how good predictions are, and what fewer knobs reach.
//!
//! Each workload has one core in all mixes, so that its measured times are those of all of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::refusal::Excluded;
use super::systems::EVENT;
use super::{Map, TuneArgs, tune};
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::installation;
use cloison_engine::report::{self as pages, Section};
use cloison_plot::{Chart, Marks};
use maud::html;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Guests of the first core with a tolerance: name, workload, arguments.
const FIRST: [[&str; 3]; 3] = [
    ["calls", "c2is", "[4, 5]"],
    ["stairs", "staircase", "[4, 100]"],
    ["chase96", "latency", "[\"96K\", 2, 0, 4]"],
];
/// Those of the second core.
const SECOND: [[&str; 3]; 4] = [
    ["chase128", "latency", "[\"128K\", 2, 0, 4]"],
    ["chase256", "latency", "[\"256K\", 2, 0, 4]"],
    ["chase448", "latency", "[\"448K\", 2, 0, 4]"],
    ["chase576", "latency", "[\"576K\", 2, 0, 4]"],
];
/// Guests of best effort, on the third core.
const THIRD: [[&str; 3]; 4] = [
    ["stores420", "interf", "[\"420K\", 0]"],
    ["stores1024", "interf", "[\"1M\", 0]"],
    ["writes", "memory", "[1, \"4M\", 1, 0]"],
    ["copies", "memory", "[2, \"4M\", 1, 0]"],
];
/// Those on the fourth.
const FOURTH: [[&str; 3]; 3] = [
    ["reads", "memory", "[0, \"8M\", 1, 0]"],
    ["strides", "memory", "[3, \"8M\", 1, 0]"],
    ["stores840", "interf", "[\"840K\", 0]"],
];
/// Pairs of best effort in mixes: all but the last.
const PAIRS: usize = THIRD.len() * FOURTH.len() - 1;
/// Tolerances of the first and the second core.
const TOLERANCES: [[&str; 2]; 2] = [["1.15", "1.20"], ["1.25", "1.35"]];
/// Accesses of which no core makes so many in a period: what is written sets the period, and limits
/// nobody.
const NEVER_SPENT: u32 = 10_000;
/// Number of mixes.
pub const MIXES: usize = TOLERANCES.len() * FIRST.len() * SECOND.len() * PAIRS;
/// From one mix to the next, so that the first ones have some of everything; it has no common divisor
/// with the number of mixes.
const STRIDE: usize = 95;

/// `cargo xtask mixes`.
#[derive(Clone, Debug, clap::Args)]
pub struct MixesArgs {
    /// Only so many mixes; the first ones have some of everything
    #[arg(long, value_name = "N", default_value_t = MIXES)]
    pub first: usize,
    /// Do not decide with fewer knobs too
    #[arg(long)]
    pub only_answers: bool,
    /// Directory for runs and results [default: target/cloison/mixes]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What a mix has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its number.
    pub number: usize,
    /// Its guests and tolerances.
    pub name: String,
    /// Partitions that were decided among; none if no one keeps all goals.
    pub partitions: Option<u64>,
    /// Goals that did not hold when the answer was run.
    pub broken: usize,
    /// For each goal, by how much the predicted time was longer than that of the worst run, as a
    /// part of that.
    pub errors: Vec<f64>,
    /// What sets of knobs reach; none if not all goals.
    pub reached: BTreeMap<String, Option<f64>>,
    /// Seconds for which VMs were measured, and for which the answer was run.
    pub seconds: [f64; 2],
}

/// All that mixes have shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Each mix.
    pub mixes: Vec<Shown>,
}

/// Decides for mixes, one after the other, and writes `mixes.csv` and `mixes.html`. Runs with a kept
/// result do not happen again.
///
/// # Errors
///
/// If a run fails.
pub fn mixes(args: &MixesArgs, map: Map) -> Result<Summary> {
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| installation::output_dir().join("mixes"));
    let claim = Claim::for_results(&out, "mixes")?;
    let mut summary = Summary::default();
    for place in 0..args.first.min(MIXES) {
        let number = place * STRIDE % MIXES;
        let shown = show(number, args, claim.directory(), map)
            .wrap_err_with(|| miette!("mix {number} failed"))?;
        summary.mixes.push(shown);
        write_atomic(&out.join("mixes.csv"), summary.csv()?.as_bytes())?;
    }
    write_atomic(&out.join("mixes.html"), summary.html()?.as_bytes())?;
    Ok(summary)
}

/// Returns a mix's guests, with their tolerances, and its configuration.
fn text(number: usize) -> (String, String) {
    let (tolerances, rest) = (
        TOLERANCES[number % TOLERANCES.len()],
        number / TOLERANCES.len(),
    );
    let (first, rest) = (FIRST[rest % FIRST.len()], rest / FIRST.len());
    let (second, pair) = (SECOND[rest % SECOND.len()], rest / SECOND.len());
    let (third, fourth) = (THIRD[pair / FOURTH.len()], FOURTH[pair % FOURTH.len()]);
    let mut text = format!(
        "name = \"mix\"\nends_with = \"{}\"\n\n[hypervisor]\ncolors = \"15\"\n\n\
         [[pool]]\nname = \"shared\"\nkind = \"SH\"\ncolors = \"0-10\"\n\n\
         [[pool]]\nname = \"pages\"\nkind = \"PVT\"\ncolors = \"11-14\"\n",
        first[0]
    );
    let goals = [
        format!("tolerance = \"{}\"\ntune = [\"colors\"", tolerances[0]),
        format!("tolerance = \"{}\"\ntune = [\"colors\"", tolerances[1]),
        "best_effort = true\ntune = [\"budgets\"".to_owned(),
        "best_effort = true\ntune = [\"budgets\"".to_owned(),
    ];
    for (core, ([name, workload, args], goal)) in [first, second, third, fourth]
        .into_iter()
        .zip(goals)
        .enumerate()
    {
        // Those whose profiles are shipped.
        let profile = match workload {
            "c2is" | "staircase" => {
                Some(installation::root().join(format!("profiles/{workload}.toml")))
            }
            _ => None,
        };
        let pages = profile.as_ref().map_or("", |_| ", \"pages\"");
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"{name}\"\ncores = [{core}]\nimage = {{ workload = \"{workload}\" }}\n\
             args = {args}\nservices = [\"hem\"]\n{goal}{pages}]\n\n[[vm.region]]\nname = \"ram\"\n\
             ipa = 0x4000_0000\nsize = \"16M\"\npool = \"shared\"\n"
        );
        if let Some(profile) = profile {
            let _ = write!(
                text,
                "\n[vm.profile]\nfile = \"{}\"\npool = \"pages\"\ntop = 16\nafter = \"0 ms\"\n",
                profile.display()
            );
        }
        if goal.starts_with("best_effort") {
            let _ = write!(
                text,
                "\n[[vm.quota]]\nevent = \"{EVENT}\"\nbudget = \"{NEVER_SPENT} events / 5 us\"\n"
            );
        }
    }
    let name = format!(
        "{} {}, {} {}, {}, {}",
        first[0], tolerances[0], second[0], tolerances[1], third[0], fourth[0]
    );
    (name, text)
}

fn show(number: usize, mixes: &MixesArgs, out: &Path, map: Map) -> Result<Shown> {
    let (name, text) = text(number);
    let directory = out.join(format!("{number:03}"));
    let config = directory.join("mix.toml");
    write_atomic(&config, text.as_bytes())?;
    let figures = directory.join("tune/figures.json");
    let args = TuneArgs {
        fewer_knobs: !mixes.only_answers,
        shared: Some(out.join("times")),
        out: Some(directory.join("tune")),
        ..TuneArgs::of(config)
    };
    let mut shown = Shown {
        number,
        name,
        partitions: None,
        broken: 0,
        errors: vec![],
        reached: BTreeMap::new(),
        seconds: [0.0; 2],
    };
    let tuned = match tune(&args, map) {
        Ok(Some(tuned)) => tuned,
        // Only runs of a board are waited for.
        Ok(None) => return Ok(shown),
        Err(error) if error.is::<Excluded>() => return Ok(shown),
        Err(error) => return Err(error),
    };
    shown.seconds = [tuned.spent.characterizing, tuned.spent.verifying].map(|it| it.as_secs_f64());
    let bytes = std::fs::read(&figures).into_diagnostic()?;
    let figures: Value = serde_json::from_slice(&bytes).into_diagnostic()?;
    shown.partitions = figures["figures"]["partitions"].as_u64();
    let rows = |name: &str| {
        figures["series"][name]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    for vm in rows("vms") {
        let time = |field: &str| vm[field].as_f64();
        let (Some(limit), Some(run)) = (time("limit_ns"), time("run_ns")) else {
            continue;
        };
        shown.broken += usize::from(run > limit);
        shown
            .errors
            .extend(time("predicted_ns").map(|predicted| (predicted - run) / run));
    }
    for row in rows("baselines") {
        let name = row["baseline"].as_str().unwrap_or_default().to_owned();
        shown
            .reached
            .insert(name, row["value"]["throughput"].as_f64());
    }
    Ok(shown)
}

impl Summary {
    fn errors(&self) -> impl Iterator<Item = f64> {
        self.mixes.iter().flat_map(|mix| mix.errors.iter().copied())
    }

    /// Returns how many goals did not hold when the answers were run.
    pub fn broken(&self) -> usize {
        self.mixes.iter().map(|mix| mix.broken).sum()
    }

    /// Returns the mean difference of predicted times from those of runs, without its sign.
    pub fn mean_error(&self) -> f64 {
        self.errors().map(f64::abs).sum::<f64>() / self.errors().count().max(1) as f64
    }

    /// Returns by how much the most optimistic prediction was too short.
    pub fn most_optimistic(&self) -> f64 {
        self.errors().fold(0.0, |worst, error| worst.max(-error))
    }

    /// Returns for a set of knobs in how many mixes all knobs reach more, as much, and less.
    fn against(&self, baseline: &str) -> [usize; 3] {
        let mut found = [0; 3];
        for mix in self.mixes.iter().filter(|mix| mix.partitions.is_some()) {
            let of = |name: &str| mix.reached.get(name).copied().flatten();
            let (all, fewer) = (of("all").unwrap_or(0.0), of(baseline).unwrap_or(-1.0));
            let place = if all > fewer {
                0
            } else if all < fewer {
                2
            } else {
                1
            };
            found[place] += 1;
        }
        found
    }

    fn baselines(&self) -> Vec<String> {
        let names = self.mixes.iter().flat_map(|mix| mix.reached.keys());
        let mut names: Vec<String> = names.filter(|name| *name != "all").cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns what all mixes together show.
    pub fn table(&self) -> Section {
        let header = ["all knobs against", "more", "as much", "less"];
        let mut table = Section::new("Mixes of four guests (modelled)", &header);
        for name in self.baselines() {
            let [more, same, less] = self.against(&name);
            table.row([name, more.to_string(), same.to_string(), less.to_string()]);
        }
        let solved = self.mixes.iter().filter(|mix| mix.partitions.is_some());
        let least = solved.clone().filter_map(|mix| mix.partitions).min();
        let seconds = |which: usize| self.mixes.iter().map(|mix| mix.seconds[which]).sum::<f64>();
        table.note(format!(
            "{} mixes, of which {} have an answer, each among at least {} partitions. Goals broken \
             when it was run: {}. Predicted against run: {:.1} % on average; the most optimistic \
             prediction was {:.1} % too short. Measuring VMs took {:.0} s, running answers {:.0} s.",
            self.mixes.len(),
            solved.count(),
            least.unwrap_or(0),
            self.broken(),
            100.0 * self.mean_error(),
            100.0 * self.most_optimistic(),
            seconds(0),
            seconds(1),
        ))
    }

    fn csv(&self) -> Result<String> {
        let baselines = self.baselines();
        let mut writer = csv::Writer::from_writer(vec![]);
        let fixed = ["mix", "guests", "partitions", "broken", "errors", "all"];
        let names = fixed
            .into_iter()
            .chain(baselines.iter().map(String::as_str));
        writer.write_record(names).into_diagnostic()?;
        for mix in &self.mixes {
            let reached = |name: &str| {
                let value = mix.reached.get(name).copied().flatten();
                value.map_or_else(String::new, |value| value.to_string())
            };
            let errors: Vec<String> = mix.errors.iter().map(|it| format!("{it:.4}")).collect();
            let mut row = vec![
                mix.number.to_string(),
                mix.name.clone(),
                mix.partitions.map_or_else(String::new, |it| it.to_string()),
                mix.broken.to_string(),
                errors.join(" "),
                reached("all"),
            ];
            row.extend(baselines.iter().map(|name| reached(name)));
            writer.write_record(row).into_diagnostic()?;
        }
        let bytes = writer.into_inner().into_diagnostic()?;
        String::from_utf8(bytes).into_diagnostic()
    }

    fn html(&self) -> Result<String> {
        let groups = self.baselines().into_iter().map(|name| {
            let counts = self.against(&name).map(|count| count as f64);
            (name, counts.to_vec())
        });
        let names = ["all knobs reach more", "as much", "less"];
        let chart = Chart {
            title: "Mixes in which all knobs reach more than fewer do".to_owned(),
            x: String::new(),
            y: "mixes".to_owned(),
            log: false,
            log_x: false,
            marks: Marks::Bars(names.map(str::to_owned).to_vec(), groups.collect()),
        };
        let body = html! {
            p.note { "Modelled, not measured on a board: QEMU with the board model." }
            (chart.figure()?)
            (self.table().to_html())
        };
        Ok(pages::standalone("Mixes", "", &body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_mixes_differ_and_the_first_ones_have_some_of_everything() {
        assert_eq!(MIXES, 264);
        let order: BTreeSet<usize> = (0..MIXES).map(|place| place * STRIDE % MIXES).collect();
        assert_eq!(order.len(), MIXES);
        let names: BTreeSet<String> = order.iter().map(|number| text(*number).0).collect();
        assert_eq!(names.len(), MIXES);
        let first: Vec<String> = (0..24)
            .map(|place| text(place * STRIDE % MIXES).0)
            .collect();
        let guests = [&FIRST[..], &SECOND, &THIRD, &FOURTH].concat();
        for [name, ..] in guests {
            assert!(first.iter().any(|mix| mix.contains(name)), "{name}");
        }
    }
}
