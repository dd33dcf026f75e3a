//! `cloison events validate`: counts events of benchmarks whose counts are known, and judges
//! whether they can be trusted.
//!
//! | module | contents |
//! | --- | --- |
//! | [`captured`] | takes the counts from runs on a board instead |
//! | [`runs`] | boots the benchmarks, a few events at a time, and reads their counts |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod captured;
pub mod runs;

use crate::boards::{Boards, seconds};
use cloison_config::BoardFile;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::validation::record::{Head, Machine, to_toml};
use cloison_config::validation::{Counts, Hypothesis, Judgment, Manifest, Verdict, judge};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::Counting;
use cloison_engine::figures::Figures;
use cloison_engine::files::{keep_apart, write_atomic, write_json};
use cloison_engine::report::Section;
use cloison_engine::{configuration, installation};
use miette::{IntoDiagnostic, Result, miette};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Default number of runs of each benchmark.
pub const RUNS: u64 = 5;

/// Options of `cloison events validate`.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidateArgs {
    /// The board whose events are validated [default: virt; with --counts, the machine that the
    /// file names]
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// On the board model: caches and memory are modelled, and their events count
    #[arg(long, conflicts_with = "icount")]
    pub model: bool,
    /// With QEMU's -icount, which counts instructions
    #[arg(long)]
    pub icount: bool,
    /// On the board itself, as jobs
    #[arg(skip)]
    pub on_hardware: bool,
    /// How often each benchmark is run
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: u64,
    /// Judge the counts in this file, of hardware for example, instead of counting in QEMU
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["model", "icount", "runs"])]
    pub counts: Option<PathBuf>,
    /// The benchmarks and what each event should count of them [default:
    /// configs/validation/CPU.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub manifest: Option<PathBuf>,
    /// What events may count instead [default: configs/validation/CPU-hypotheses.toml, or none
    /// with --manifest]
    #[arg(long, value_name = "FILE.toml")]
    pub hypotheses: Option<PathBuf>,
    /// Judge by the documentation alone
    #[arg(long, conflicts_with = "hypotheses")]
    pub no_hypotheses: bool,
    /// Write the verdicts here [default: verdicts/BOARD-MACHINE.toml in target/cloison, without a
    /// checkout in cloison-output]
    #[arg(short, long, value_name = "FILE.toml")]
    pub out: Option<PathBuf>,
    /// Also write the verdicts and figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The subject of a validation, and its method.
struct Inputs {
    manifest: Manifest,
    hypotheses: Vec<Hypothesis>,
    /// Their files, for the provenance.
    files: Vec<PathBuf>,
}

impl Inputs {
    fn load(args: &ValidateArgs, cpu: &str) -> Result<Self> {
        let directory = installation::root().join("configs/validation");
        let shipped = shipped(cpu);
        if args.manifest.is_none() && !shipped.is_file() {
            return Err(miette!(
                help = "write one (docs/events.md), and name it: --manifest FILE.toml",
                "there are no benchmarks for the {cpu}: {} is missing",
                installation::display(&shipped)
            ));
        }
        let path = args.manifest.clone().unwrap_or(shipped);
        let manifest = Manifest::load(&path)?;
        let shipped = directory.join(format!("{cpu}-hypotheses.toml"));
        let is_used = args.manifest.is_none() && !args.no_hypotheses && shipped.is_file();
        let shipped = is_used.then_some(shipped);
        let hypotheses = args.hypotheses.clone().or(shipped);
        let read = hypotheses
            .as_ref()
            .map(|path| Hypothesis::load(path, &manifest))
            .transpose()?;
        let files = std::iter::once(path).chain(hypotheses).collect();
        Ok(Self {
            manifest,
            hypotheses: read.unwrap_or_default(),
            files,
        })
    }
}

impl ValidateArgs {
    fn machine(&self) -> Machine {
        let is_counted_there = self.counts.is_some() || self.on_hardware;
        match (is_counted_there, self.model, self.icount) {
            (true, ..) => Machine::Hardware,
            (_, true, _) => Machine::Model,
            (.., true) => Machine::Icount,
            _ => Machine::Stock,
        }
    }

    /// Returns whether the machine claims to count an event. Only the model's claims are believed:
    /// what QEMU does not count is dead on it, as it would be on a board.
    fn claims(&self, board: &BoardFile, event: &str) -> bool {
        !self.model
            || board
                .events
                .by_name(event)
                .is_some_and(|event| Counting::Model.counts(board, event.id))
    }
}

/// Returns the benchmarks that Cloison has for a CPU.
pub fn shipped(cpu: &str) -> PathBuf {
    installation::root()
        .join("configs/validation")
        .join(format!("{cpu}.toml"))
}

/// Returns the files that determine the counts and their verdicts: manifest and hypotheses.
///
/// # Errors
///
/// Returns the errors of these files, or of the board's.
pub fn files_of(args: &ValidateArgs) -> Result<Vec<PathBuf>> {
    let board = configuration::board(args.board.as_deref().unwrap_or(DEFAULT_BOARD))?;
    Ok(Inputs::load(args, &board.events.cpu)?.files)
}

/// Runs `cloison events validate`.
///
/// # Errors
///
/// As [`validate_on`].
pub fn validate(args: &ValidateArgs) -> Result<()> {
    validate_on(&Boards::here(), Path::new(""), args)
}

/// Performs and reports a validation on these boards, whose runs are named after directories in
/// `place`.
///
/// # Errors
///
/// Returns the errors of manifest, hypotheses and counts, or the reason why a benchmark could not
/// be run.
pub fn validate_on(boards: &Boards, place: &Path, args: &ValidateArgs) -> Result<()> {
    judge_counts(args, args.machine(), |inputs, named| {
        let counts = match &args.counts {
            Some(path) => Counts::load(path, &inputs.manifest)?,
            None => {
                let manifest = &inputs.manifest;
                runs::count(boards, place, manifest, named, args.machine(), args.runs)?
            }
        };
        seconds::remember("events validate", &boards.seconds());
        Ok(counts)
    })
}

/// Judges the counts that `count` returns for a board, and reports the verdicts.
fn judge_counts(
    args: &ValidateArgs,
    machine: Machine,
    count: impl FnOnce(&Inputs, &str) -> Result<Counts>,
) -> Result<()> {
    let named = args.board.as_deref().unwrap_or(DEFAULT_BOARD);
    let board = configuration::board(named)?;
    let inputs = Inputs::load(args, &board.events.cpu)?;
    let is_of_board = args.counts.is_none() || args.board.is_some();
    let of = if is_of_board {
        &board.board.name
    } else {
        &inputs.manifest.cpu
    };
    let name = format!("{of}-{}.toml", machine.word());
    let default = || installation::output_dir().join("verdicts").join(name);
    let out = args.out.clone().unwrap_or_else(default);
    keep_apart(
        inputs
            .files
            .iter()
            .chain(&args.counts)
            .map(PathBuf::as_path),
        args.json.as_deref(),
    )?;
    if is_of_board && inputs.manifest.cpu != board.events.cpu {
        return Err(miette!(
            help = "name a board with this CPU, or judge counts of another machine: --counts \
                    FILE.toml",
            "the manifest is of the {}, and board `{}` has a {}",
            inputs.manifest.cpu,
            named,
            board.events.cpu
        ));
    }
    let counts = count(&inputs, named)?;
    let judgments = judge(&inputs.manifest, &inputs.hypotheses, &counts, |event| {
        args.claims(&board, event)
    });
    let figures = figures(args, machine, &inputs, &counts, &judgments);
    let provenance = figures.provenance();
    let said = |key: &str| {
        provenance
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("unknown")
            .to_owned()
    };
    let with = if machine == Machine::Hardware {
        format!("counts of {}", counts.machine)
    } else {
        said("qemu")
    };
    let tool = format!("cloison {}, {with}", said("cloison"));
    let model = board
        .emulation
        .as_ref()
        .and_then(|emulation| emulation.model.as_deref())
        .filter(|_| args.model);
    let model = model
        .and_then(Path::file_stem)
        .map(|stem| stem.to_string_lossy());
    let head = Head {
        cpu: &inputs.manifest.cpu,
        board: if is_of_board {
            &board.board.name
        } else {
            &counts.machine
        },
        machine,
        model: model.as_deref(),
        prefetcher: &counts.prefetcher,
        tool: &tool,
        date: &said("date"),
    };
    write_atomic(&out, to_toml(&head, &judgments).as_bytes())?;
    if let Some(json) = &args.json {
        write_json(json, &with_verdicts(&figures, &judgments)?)?;
    }
    print!("{}", table(&inputs.manifest, &counts, &judgments).to_text());
    print_doubts(&judgments);
    println!(
        "\nVerdicts with all evidence: {}",
        installation::display(&out)
    );
    Ok(())
}

/// Prints why events are not trusted, and what they were tried as.
fn print_doubts(judgments: &[Judgment]) {
    for judgment in judgments
        .iter()
        .filter(|judgment| judgment.verdict != Verdict::Trusted)
    {
        println!(
            "\n{} is {}: {}",
            judgment.event, judgment.verdict, judgment.because
        );
        for tried in &judgment.tried {
            println!(
                "    tried: {} ({}): {}",
                tried.counts,
                tried.kind.word(),
                tried.outcome
            );
        }
    }
}

/// Returns one row for each event.
fn table(manifest: &Manifest, counts: &Counts, judgments: &[Judgment]) -> Section {
    let title = format!("{} on {}", manifest.title, counts.machine);
    let mut section = Section::new(
        &title,
        &[
            "event",
            "verdict",
            "counts",
            "benchmarks",
            "furthest",
            "tolerance",
        ],
    );
    for judgment in judgments {
        let gaps = judgment
            .evidence
            .iter()
            .filter(|evidence| evidence.explained > 0.0);
        let gaps = gaps.map(|evidence| evidence.furthest.excess() * 100.0);
        let furthest = gaps.max_by(|a, b| a.abs().total_cmp(&b.abs()));
        section.row([
            judgment.event.clone(),
            judgment.verdict.to_string(),
            judgment.counts.clone().unwrap_or_else(|| "-".to_owned()),
            judgment.evidence.len().to_string(),
            furthest.map_or_else(|| "-".to_owned(), |gap| format!("{gap:+.3} %")),
            manifest
                .event(&judgment.event)
                .map_or_else(String::new, |event| event.tolerance.to_string()),
        ]);
    }
    section
}

fn figures(
    args: &ValidateArgs,
    machine: Machine,
    inputs: &Inputs,
    counts: &Counts,
    judgments: &[Judgment],
) -> Figures {
    let manifest: &Path = inputs.files.first().map_or(Path::new(""), PathBuf::as_path);
    let mut figures = Figures::new("events validate")
        .board(args.board.as_deref().unwrap_or(DEFAULT_BOARD))
        .config(manifest)
        .parameter("machine", machine.word())
        .parameter("modelled", args.model)
        .parameter("prefetcher", &counts.prefetcher)
        .parameter("hypotheses", inputs.hypotheses.len());
    if args.on_hardware {
        figures = figures.on_hardware();
    }
    for &verdict in Verdict::ALL {
        let number = judgments
            .iter()
            .filter(|judgment| judgment.verdict == verdict)
            .count();
        figures.count(verdict.words().replace(' ', "_"), number as u64);
    }
    figures
}

/// Returns the figures as JSON, with the verdicts by event name and the evidence for them.
fn with_verdicts(figures: &Figures, judgments: &[Judgment]) -> Result<Value> {
    let mut all = serde_json::to_value(figures).into_diagnostic()?;
    let verdicts: Map<String, Value> = judgments
        .iter()
        .map(|judgment| (judgment.event.clone(), json!(judgment.verdict.to_string())))
        .collect();
    let evidence = |judgment: &Judgment| -> Value {
        let rows = judgment.evidence.iter().map(|it| {
            json!({
                "benchmark": it.benchmark, "expected": it.expected, "explained": it.explained, "mean": it.sample.mean,
                "spread": it.sample.spread, "least": it.sample.least, "most": it.sample.most, "runs": it.sample.runs,
                "outliers": it.sample.outliers, "agrees": it.agrees,
            })
        });
        let tried = judgment
            .tried
            .iter()
            .map(|it| json!({ "counts": it.counts, "kind": it.kind.word(), "outcome": it.outcome.to_string() }));
        json!({
            "counts": judgment.counts, "because": judgment.because, "unexercised": judgment.unexercised,
            "benchmarks": rows.collect::<Vec<_>>(), "tried": tried.collect::<Vec<_>>(),
        })
    };
    let evidence: Map<String, Value> = judgments
        .iter()
        .map(|it| (it.event.clone(), evidence(it)))
        .collect();
    if let Value::Object(object) = &mut all {
        object.insert("verdicts".to_owned(), Value::Object(verdicts));
        object.insert("evidence".to_owned(), Value::Object(evidence));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest's benchmarks and the workload that runs them are written twice: their names and
    /// numbers agree.
    #[test]
    fn the_manifest_and_the_workload_number_benchmarks_alike() {
        let source = installation::root().join("guest-tools/workloads/src/bin/known-counts.rs");
        let source = std::fs::read_to_string(source).expect("the workload");
        let list = source
            .split("const BENCHMARKS")
            .nth(1)
            .and_then(|text| text.split("];").next())
            .expect("a list");
        let names: Vec<&str> = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("(\"")?.split('"').next())
            .collect();
        assert_eq!(names.len(), 18);
        for cpu in ["cortex-a53", "cortex-a72"] {
            let path = installation::root()
                .join("configs/validation")
                .join(cpu)
                .with_extension("toml");
            let manifest = Manifest::load(&path).expect("the shipped manifests are right");
            assert_eq!(manifest.cpu, cpu);
            let own = manifest
                .benchmarks
                .iter()
                .filter_map(|benchmark| Some((benchmark, benchmark.guest.as_ref()?)));
            for (benchmark, guest) in own.filter(|(_, guest)| guest.workload == "known-counts") {
                assert_eq!(
                    names.get(guest.segment as usize),
                    Some(&benchmark.name.as_str()),
                    "{cpu}"
                );
            }
            let is_there = |name: &&str| {
                manifest
                    .benchmarks
                    .iter()
                    .any(|benchmark| benchmark.name == **name)
            };
            assert!(cpu != "cortex-a53" || names.iter().all(is_there), "{cpu}");
        }
    }
}
