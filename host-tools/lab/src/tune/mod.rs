//! `cloison tune`: from what each VM must reach to a partition that was run.
//!
//! The VMs are measured beside neighbors that stress memory, at points that the solver asks for;
//! the solver (crate `cloison-tune`) decides; the partition that it decides for is written into a
//! copy of the configuration and run, beside the user's neighbors and beside the worst ones that
//! their budgets allow. What does not hold there is a further measured point, and the solver decides
//! again.
//!
//! | module | contents |
//! | --- | --- |
//! | [`profiles`] | page profiles that do not exist yet |
//! | [`subjects`] | the VMs of a configuration as the solver has them |
//! | [`systems`] | the systems that are booted |
//! | [`runs`] | boots, and what they measured |
//! | [`search`] | which points are measured, and the decision |
//! | [`verify`] | runs of the decision |
//! | [`verdict`] | the decision that held when it was run, with the best period of budgets |
//! | [`compare`] | what fewer knobs and other tolerances reach |
//! | [`survives`] | the decision under changes of the model |
//! | [`written`] | the new configuration |
//! | [`refusal`] | why it cannot be, and what could be |
//! | [`report`] | tables, figures and surfaces |
//! | [`page`] | the report as a page |
//! | [`mixes`] | decisions for many systems, and how they held |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod compare;
pub mod mixes;
pub mod page;
pub mod profiles;
pub mod refusal;
pub mod report;
pub mod runs;
pub mod search;
pub mod subjects;
pub mod survives;
pub mod systems;
pub mod verdict;
pub mod verify;
pub mod written;

use crate::bbprof::{self, absent};
use crate::boards::{Boards, seconds};
use crate::captured::{BoardRuns, CapturedRuns, NotCaptured};
use cloison_config::problem::{count, display_path};
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, suggest};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::files::{Claim, keep_apart, write_atomic};
use cloison_engine::model::{Caches, Conditions, Model, Roi};
use cloison_engine::{configuration, installation, parts, setup};
use cloison_tune::{Knob, Objective};
use compare::Alternatives;
use miette::{Report, Result, miette};
use page::{Page, Refused};
use profiles::On;
use report::Findings;
use runs::{OnBoard, Runs, Spent};
use search::{Search, Task};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use survives::Survival;
use systems::{Base, Counted};
use verdict::{Reached, Verdict};

/// What can be best, the usual one first.
pub(crate) const OBJECTIVES: [&str; 3] = ["throughput", "colors", "margin"];
/// What can change.
pub(crate) const KNOBS: [&str; 3] = ["colors", "pages", "budgets"];
/// Seconds after which a VM does not end.
const LIMIT: u64 = 300;

/// Options of `cloison tune`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("captured", |arg| arg.visible_alias("measured").requires("cpu_mhz")))]
#[command(mut_group("BoardRuns", |group| group.multiple(true).conflicts_with_all(["model", "seed", "sensitivity"])))]
pub struct TuneArgs {
    /// The configuration, whose VMs say what they must reach and what may change
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Write the new configuration here [default: tuned.toml in the directory of --out]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What is best: throughput of the best-effort VMs, fewest private colors, or the largest
    /// smallest margin
    #[arg(long = "for", value_name = "OBJECTIVE", default_value = OBJECTIVES[0],
          value_parser = OBJECTIVES)]
    pub objective: String,
    /// Change only these, of what the VMs allow
    #[arg(long, value_name = "KNOBS", value_delimiter = ',', value_parser = KNOBS)]
    pub only: Vec<String>,
    /// Also write the bounds of each VM's time at all its choices here: as Parquet to a file called
    /// so, else as CSV
    #[arg(long, value_name = "FILE")]
    pub surfaces: Option<PathBuf>,
    /// Say why a VM gets what it gets, from what was measured
    #[arg(long, value_name = "VM")]
    pub explain: Option<String>,
    /// Also decide with fewer knobs and for tighter tolerances, for the report: many more boots
    #[arg(long)]
    pub compare: bool,
    /// Also decide with fewer knobs, for mixes of systems.
    #[arg(skip)]
    pub fewer_knobs: bool,
    /// Also run the new configuration with each unmeasured value of the model at half and at
    /// double: hundreds of boots
    #[arg(long)]
    pub sensitivity: bool,
    /// The board, if not the configuration's
    #[arg(long, value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Another board model than the board's: a file as those in configs/models
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// Runs on a board instead of the model's
    #[command(flatten)]
    pub board_runs: BoardRuns,
    /// Clock of the board's cores, for --captured: segments are logged in cycles
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u64).range(100..=10_000))]
    pub cpu_mhz: Option<u64>,
    /// Seed of the model's replacement and refreshes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Stop a boot after this many seconds: a VM in it does not end
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT)]
    pub limit: u64,
    /// Also keep the times of runs here, and take them from here: configurations whose VMs are the
    /// same share them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["images", "captured"])]
    pub shared: Option<PathBuf>,
    /// Directory for runs and results [default: tune/NAME in target/cloison, without a checkout in
    /// cloison-output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A partition that was run and keeps all goals.
#[derive(Debug)]
pub struct Tuned {
    /// The new configuration.
    pub checked: Checked,
    /// Tables for the terminal.
    pub report: String,
    /// How long runs took.
    pub spent: Spent,
}

impl TuneArgs {
    /// Returns the options of `tune CONFIG`.
    pub fn of(config: PathBuf) -> Self {
        Self {
            config,
            output: None,
            objective: OBJECTIVES[0].to_owned(),
            only: vec![],
            surfaces: None,
            explain: None,
            compare: false,
            fewer_knobs: false,
            sensitivity: false,
            board: None,
            model: None,
            board_runs: BoardRuns::default(),
            cpu_mhz: None,
            seed: 0,
            limit: LIMIT,
            shared: None,
            out: None,
            json: None,
        }
    }

    fn objective(&self) -> Objective {
        match self.objective.as_str() {
            "colors" => Objective::Colors,
            "margin" => Objective::Margin,
            _ => Objective::Throughput,
        }
    }

    /// Returns the knobs that the command line allows.
    fn knobs(&self) -> BTreeSet<Knob> {
        let all = [
            ("colors", Knob::Colors),
            ("pages", Knob::Pages),
            ("budgets", Knob::Budgets),
        ];
        let is_wanted =
            |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        all.into_iter()
            .filter(|(name, _)| is_wanted(name))
            .map(|(_, knob)| knob)
            .collect()
    }
}

/// Draws the color map of a configuration.
pub type Map = fn(&Checked) -> String;

/// Runs `cloison tune`. Returns none if it has written the images that a board is to run first.
///
/// # Errors
///
/// If the configuration cannot be tuned, a run fails, or no partition keeps all goals.
pub fn tune(args: &TuneArgs, map: Map) -> Result<Option<Tuned>> {
    tune_on(&Boards::here(), args, map)
}

/// Runs `cloison tune` on these boards.
///
/// # Errors
///
/// As [`tune`]; also if a boot has no output yet.
pub(crate) fn tune_on(boards: &Boards, args: &TuneArgs, map: Map) -> Result<Option<Tuned>> {
    let config = installation::find(&args.config);
    for output in [&args.json, &args.surfaces, &args.output] {
        keep_apart([config.as_path()], output.as_deref())?;
    }
    let on = On {
        board: args.board.clone(),
        model: args.model.clone(),
        seed: args.seed,
        is_board: args.board_runs.is_given(),
    };
    profiles::make(&config, &on)?;
    let mut checked = configuration::load(&config, args.board.as_deref())?;
    let subjects = subjects::read(&checked)?;
    if let Some(name) = &args.explain
        && checked.vm(name).is_none()
    {
        let vms = checked.system.vms.iter().map(|vm| vm.name.as_str());
        let help = suggest(name, "VMs", vms);
        return Err(miette!(help = help, "--explain: there is no VM `{name}`"));
    }
    let machine = match on.is_board {
        true => Machine::Hardware,
        false => Counting::Model.machine(),
    };
    counting::prepare_for(&mut checked, machine)?;
    parts::prepare()?;
    let claim = match &args.out {
        Some(out) => Claim::for_results(out, &format!("tune {}", display_path(&config).display()))?,
        None => configuration::run_directory("tune", &checked.system.name, &config)?,
    };
    let out = claim.directory();
    let board = bbprof::board_of(args.board.as_deref(), &checked, &config);
    let (runs, counted) = runs_of(args, &checked, &board, out)?;
    let periods = subjects
        .with_periods(&args.knobs())
        .into_iter()
        .map(|subjects| Ok((Base::new(&checked, subjects.period, counted)?, subjects)))
        .collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let tasks = periods.iter().map(|(base, subjects)| Task {
        checked: &checked,
        subjects,
        base,
        runs: &runs,
        boards,
        only: args.knobs(),
        objective: args.objective(),
    });
    let reached = verdict::best(tasks).and_then(|mut reached| {
        let more = match &reached.verdict {
            Ok(Verdict::Kept(findings)) => More::of(&mut reached.search, findings, args, out)?,
            _ => More::default(),
        };
        Ok((reached, more))
    });
    let missing = reached.as_ref().err();
    let missing = missing.and_then(|error| error.downcast_ref::<NotCaptured>());
    // Another error has stopped the search for captured runs.
    if reached.is_ok() || missing.is_some() {
        say_strangers(&runs);
    }
    if let Some(NotCaptured { names, .. }) = missing
        && args.board_runs.images.is_some()
    {
        args.board_runs
            .print_written(names, &checked.board.board.name);
        return Ok(None);
    }
    let (reached, more) = reached?;
    let Reached {
        search,
        verdict,
        periods,
    } = reached;
    runs.clean();
    seconds::remember(&format!("tune {}", checked.system.name), &boards.seconds());
    let (boots, reused) = runs.counts();
    eprintln!(
        "tune: {} in {:.1} s, {reused} of them kept from earlier",
        count(boots, "run"),
        started.elapsed().as_secs_f64()
    );
    if let Some(file) = &args.surfaces {
        report::write_surfaces(&search, file)?;
    }
    let findings = match verdict? {
        Verdict::Kept(findings) => findings,
        Verdict::Refused(refusal) => {
            let refused = Refused {
                search: &search,
                refusal: &refusal,
                periods: periods.as_ref(),
                figures: &refusal::figures(&search, &refusal, &checked, args.seed),
                system: &checked.system.name,
            };
            return Err(written_refusal(&refused, args, out)?);
        }
    };
    let file = args
        .output
        .clone()
        .unwrap_or_else(|| out.join("tuned.toml"));
    let text = written::moved(&findings.text, &config, &file)?;
    write_atomic(&file, text.as_bytes())?;
    let tuned = configuration::load(&file, args.board.as_deref())?;
    let mut figures = report::figures(&search, &findings, &checked, args.seed);
    more.add_to(&mut figures);
    figures.write(Some(&out.join("figures.json")))?;
    figures.write(args.json.as_deref())?;
    let page = Page {
        search: &search,
        findings: &findings,
        periods: periods.as_ref(),
        alternatives: more.alternatives.as_ref(),
        survival: more.survival.as_deref(),
        map: map(&tuned),
        figures: &figures,
        system: &checked.system.name,
    };
    write_atomic(&out.join("report.html"), page.html()?.as_bytes())?;
    let mut text = report::text(&search, &findings);
    if let Some(periods) = &periods {
        text.push_str(&format!("\n\n{}", periods.to_text()));
    }
    text.push_str(&more.text(&search));
    if let Some(name) = &args.explain {
        text.push_str(&report::explanation(&search, &findings, name));
    }
    text.push_str(&format!(
        "\nConfiguration: {}\nReport:        {}\nData:          figures.json and runs/ in {}\n",
        installation::display(&file),
        installation::display(&out.join("report.html")),
        installation::display(out)
    ));
    Ok(Some(Tuned {
        checked: tuned,
        report: text,
        spent: runs.spent(),
    }))
}

/// Returns what makes the runs: a board, if the options say so, or its model.
fn runs_of(args: &TuneArgs, checked: &Checked, board: &str, out: &Path) -> Result<(Runs, Counted)> {
    let conditions = Conditions {
        seed: args.seed,
        caches: Caches::Warm,
        roi: Roi::Always,
    };
    if args.board_runs.is_given() {
        let on_board = OnBoard {
            runs: CapturedRuns::find(&args.board_runs.captured)?,
            images: args.board_runs.images.clone(),
            clock_mhz: args.cpu_mhz.unwrap_or(1),
        };
        let runs = Runs::on_board(board, checked, on_board, conditions, out)?;
        return Ok((runs, Counted::ByQuota));
    }
    setup::qemu()?;
    let model = Model::chosen(args.model.as_deref(), checked.emulation()?)?;
    let limit = Duration::from_secs(args.limit);
    let runs = Runs::new(board, checked, &model, conditions, limit, out)?;
    let runs = runs.sharing(args.shared.clone());
    Ok((runs, Counted::ByModel))
}

fn say_strangers(runs: &Runs) {
    for folder in runs.strangers() {
        eprintln!("tune: not used: {folder}: its image is none that was asked for");
    }
}

/// Returns the files that determine the runs: the configuration, the profiles that it names, and the
/// model.
///
/// # Errors
///
/// If one cannot be read.
pub(crate) fn files_of(
    config: &Path,
    model: Option<&Path>,
    board: Option<&str>,
) -> Result<Vec<PathBuf>> {
    let config = installation::find(config);
    let checked = configuration::load(&config, board)?;
    let model = Model::chosen(model, checked.emulation()?)?;
    let mut files = absent::named_by(&config);
    files.extend([model.board().to_path_buf(), config]);
    Ok(files)
}

/// Writes the report on why no partition keeps all goals, and returns the error.
fn written_refusal(page: &Refused<'_, '_>, args: &TuneArgs, out: &Path) -> Result<Report> {
    page.figures.write(Some(&out.join("figures.json")))?;
    page.figures.write(args.json.as_deref())?;
    let file = out.join("report.html");
    write_atomic(&file, page.html()?.as_bytes())?;
    let report = installation::display(&file);
    Ok(page.refusal.error(page.search, &report))
}

/// What is only done if it is asked for.
#[derive(Debug, Default)]
struct More {
    alternatives: Option<Alternatives>,
    survival: Option<Vec<Survival>>,
}

impl More {
    fn of(
        search: &mut Search<'_>,
        findings: &Findings,
        args: &TuneArgs,
        out: &Path,
    ) -> Result<Self> {
        let survival = args
            .sensitivity
            .then(|| survives::examine(search, findings, out))
            .transpose()?;
        let alternatives = match (args.compare, args.fewer_knobs) {
            (true, _) => Some(Alternatives::of(search)?),
            (false, true) => Some(Alternatives::with_fewer_knobs(search)?),
            (false, false) => None,
        };
        Ok(Self {
            alternatives,
            survival,
        })
    }

    fn add_to(&self, figures: &mut Figures) {
        if let Some(alternatives) = &self.alternatives {
            for (name, rows) in alternatives.series() {
                figures.series(name, rows);
            }
        }
        if let Some(survival) = &self.survival {
            figures.series("sensitivity", survives::series(survival));
        }
    }

    /// Returns what the terminal shows of it.
    fn text(&self, search: &Search<'_>) -> String {
        let mut text = String::new();
        if let Some(alternatives) = &self.alternatives {
            text.push_str(&format!("\n{}", alternatives.table(search).to_text()));
        }
        if let Some(survival) = &self.survival {
            text.push_str(&format!("\n{}\n", survives::sentence(survival)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_tune::{Budget, Choice, Colors, Pages, Partition, Placement, Share, Traffic};

    /// Returns the shipped example, and what its VMs have now.
    fn example() -> (Checked, subjects::Subjects, Partition) {
        let path = installation::root().join("configs/tune.toml");
        let checked = configuration::load(&path, None).expect("the example is right");
        let subjects = subjects::read(&checked).expect("it can be tuned");
        let written = Partition {
            shares: subjects.vms.iter().map(|vm| vm.written.clone()).collect(),
            shared: subjects.shared,
        };
        (checked, subjects, written)
    }

    fn share(old: &Share, placement: Placement, colors: u32, budget: Budget) -> Share {
        Share {
            choice: Choice { placement, budget },
            colors: Colors(colors),
            ..old.clone()
        }
    }

    #[test]
    fn the_example_is_read_as_it_is_written() {
        let (checked, subjects, written) = example();
        assert_eq!(checked.warnings.len(), 0);
        assert_eq!((subjects.colors, subjects.shared), (Colors(15), Colors(11)));
        let control = &written.shares[0];
        let private = Pages(16);
        assert_eq!(control.choice.placement, Placement::Shared { private });
        assert_eq!(control.choice.budget, Budget::Unlimited);
        assert_eq!(control.colors, Colors(4));
        let steps: Vec<(u64, u32)> = subjects.vms[0]
            .pages
            .iter()
            .map(|step| (step.pages.0, step.colors.0))
            .collect();
        assert_eq!(steps, [(16, 1), (32, 2), (48, 3), (64, 4), (65, 5)]);
        let same = written::with_partition(&checked, &written, &written, subjects.period);
        assert_eq!(same.expect("a text"), checked.source, "nothing has changed");
    }

    #[test]
    fn periods_are_tried_where_budgets_may_change_and_none_is_written() {
        let (checked, subjects, _) = example();
        let all = BTreeSet::from([Knob::Colors, Knob::Budgets]);
        let tried = subjects.clone().with_periods(&all);
        let periods: Vec<u64> = tried.iter().map(|it| it.period.0).collect();
        assert_eq!(periods, [1_000_000, 100_000, 20_000, 5_000]);
        let finest = &tried[3].vms[2].budgets;
        let expected = [64, 128, 256].map(|each| Budget::PerPeriod(Traffic(each)));
        assert_eq!(
            finest, &expected,
            "none that is smaller than what is under way"
        );
        let colors = BTreeSet::from([Knob::Colors]);
        assert_eq!(subjects.with_periods(&colors).len(), 1);

        let quota = "[[vm.quota]]\nevent = \"BUS_ACCESS\"\nbudget = \"9000 events / 50 us\"\n";
        let text = format!("{}\n{quota}", checked.source);
        let checked = configuration::load_text(&checked.path, text, None).expect("it is right");
        let subjects = subjects::read(&checked).expect("it can be tuned");
        let tried = subjects.with_periods(&all);
        assert_eq!(tried.len(), 1);
        assert_eq!(tried[0].period.0, 50_000);
    }

    #[test]
    fn a_partition_is_written_into_the_example() {
        let (checked, subjects, written) = example();
        let old = &written.shares;
        let own = |colors: u32| Placement::Own {
            colors: Colors(colors),
        };
        let few = Budget::PerPeriod(Traffic(800));
        let partition = Partition {
            shares: vec![
                share(
                    &old[0],
                    Placement::Shared { private: Pages(64) },
                    4,
                    old[0].choice.budget,
                ),
                share(&old[1], own(3), 3, old[1].choice.budget),
                share(&old[2], Placement::SHARED, 0, few),
                share(&old[3], Placement::SHARED, 0, Budget::Unlimited),
            ],
            shared: Colors(8),
        };
        let text = written::with_partition(&checked, &written, &partition, subjects.period)
            .expect("a text");
        let tuned = configuration::load_text(&checked.path, text.clone(), None)
            .expect("the new configuration is right");
        let again = subjects::read(&tuned).expect("it can be tuned again");
        let shares: Vec<Share> = again.vms.iter().map(|vm| vm.written.clone()).collect();
        assert_eq!(shares, partition.shares);
        assert_eq!(again.shared, partition.shared);
        for line in checked.source.lines().filter(|line| line.contains('#')) {
            let (_, comment) = line.split_once('#').expect("a comment");
            assert!(text.contains(comment), "{comment}");
        }

        let own_all = Partition {
            shares: vec![
                share(&old[0], own(5), 5, old[0].choice.budget),
                old[1].clone(),
                old[2].clone(),
                old[3].clone(),
            ],
            shared: Colors(10),
        };
        let text =
            written::with_partition(&checked, &written, &own_all, subjects.period).expect("a text");
        let tuned = configuration::load_text(&checked.path, text, None).expect("it is right");
        assert!(tuned.system.vms[0].profile.is_none());
        let again = subjects::read(&tuned).expect("it can be tuned again");
        assert_eq!(again.vms[0].written.choice, own_all.shares[0].choice);
    }
}
