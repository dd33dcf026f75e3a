//! `cloison campaign`: counts many events of several workloads, a few at a time, on the board
//! model, and merges them into complete vectors. It compares these with the truth that only a model
//! can provide: all events of every run. As jobs it also runs on hardware, without that.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spec`] | a campaign's TOML file |
//! | [`runs`] | one boot per workload and plan, and its counts |
//! | [`sentence`] | sentences of the file, filled in with its numbers |
//! | [`judge`] | compares MUCH, HRM and the blind merge with the truth |
//! | [`splits`] | HRM's errors over the splits of the events |
//! | [`summary`] | means over seeds and variants, beside the published ones |
//! | [`page`] | the report |
//! | [`measured`] | the vectors and the report of a campaign on hardware |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod judge;
pub mod measured;
pub mod page;
pub mod runs;
pub mod sentence;
pub mod spec;
pub mod splits;
pub mod summary;

use crate::boards::{Boards, seconds};
use crate::experiment::Hardware;
use cloison_config::problem::count;
use cloison_engine::figures::Figures;
use cloison_engine::files::{Claim, keep_apart, write_atomic};
use cloison_engine::model::Model;
use cloison_engine::report::Section;
use cloison_engine::{installation, parts, setup};
use cloison_much::data::FEWEST_RUNS;
use judge::WorkloadResult;
use miette::{Result, miette};
use runs::WorkloadCounts;
use spec::Campaign;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cloison campaign`.
#[derive(Clone, Debug, clap::Args)]
pub struct CampaignArgs {
    /// Path of the campaign's file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Directory for counts, vectors and report [default: campaigns/NAME, or campaigns/NAME-N-runs
    /// with --runs, in target/cloison, without a checkout in cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Runs of each sub-experiment, instead of the file's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub runs: Option<u32>,
    /// Only the first N seeds of a campaign that has several
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variant: Vec<String>,
    /// Only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// The hardware that executes the images, as jobs.
    #[arg(skip)]
    pub hardware: Option<Hardware>,
}

/// Runs `cloison campaign`.
pub fn campaign(args: &CampaignArgs) -> Result<()> {
    campaign_on(&Boards::here(), args)
}

/// Performs and reports a campaign on these boards.
///
/// # Errors
///
/// If a file is not valid, or a boot fails or is absent.
pub fn campaign_on(boards: &Boards, args: &CampaignArgs) -> Result<()> {
    let file = installation::find(&args.file);
    let mut campaign = spec::load(&file)?;
    campaign.runs = args.runs.unwrap_or(campaign.runs);
    // Other runs than the file's are another campaign, and their results do not take the place of
    // its.
    choose(&mut campaign, args)?;
    let suffix = args
        .runs
        .map_or_else(String::new, |runs| format!("-{runs}-runs"));
    let default = || {
        installation::output_dir()
            .join("campaigns")
            .join(format!("{}{suffix}", campaign.name))
    };
    let out = args.out.clone().unwrap_or_else(default);
    keep_apart(
        [file.as_path(), &campaign.system, &campaign.model],
        args.json.as_deref(),
    )?;
    let chosen = args
        .runs
        .map_or_else(String::new, |runs| format!(" --runs {runs}"));
    let owner = format!(
        "campaign {}{chosen}",
        installation::display(&file.canonicalize().unwrap_or(file.clone()))
    );
    let _claim = Claim::for_results(&out, &owner)?;
    if let Some(Hardware { board }) = &args.hardware {
        campaign.board = board.clone().unwrap_or(campaign.board);
        measured::check(&campaign)?;
    }
    let is_modelled = args.hardware.is_none();
    let (figures, tables) = if is_modelled {
        perform(boards, &campaign, &file, &out)?
    } else {
        perform_on_hardware(boards, &campaign, &file, &out)?
    };
    seconds::remember(&format!("campaign {}", campaign.name), &boards.seconds());
    if (campaign.runs as usize) < FEWEST_RUNS {
        eprintln!(
            "warning: {} runs of each sub-experiment give rough correlations: use {FEWEST_RUNS} \
             or more",
            campaign.runs
        );
    }
    figures.write(args.json.as_deref())?;
    let (word, truth) = match is_modelled {
        true => ("modelled", "vectors.parquet and truth.csv"),
        false => ("measured", "vectors.parquet and merge.html"),
    };
    println!("{} ({word})\n", campaign.title);
    for table in &tables {
        println!("{}", table.to_text());
    }
    println!(
        "Report:  {}",
        installation::display(&out.join("report.html"))
    );
    println!(
        "Data:    WORKLOAD/counts.csv, vectors.csv, {truth} in the same directory, and \
         figures.json"
    );
    Ok(())
}

/// Samples of the runs for each point of a chart over runs, as in the paper's figure 6.
const SAMPLES: usize = 50;

/// Whether workloads are run more than once.
fn is_repeated(campaign: &Campaign) -> bool {
    campaign.seeds.is_some()
        || campaign
            .variants
            .iter()
            .any(|variant| !variant.name.is_empty())
}

/// Leaves of a campaign what the options choose. Results are kept where those of the whole campaign
/// are.
fn choose(campaign: &mut Campaign, args: &CampaignArgs) -> Result<()> {
    let unknown = |option: &str, chosen: &[String], names: Vec<&str>| {
        let unknown = chosen.iter().find(|name| !names.contains(&name.as_str()))?;
        Some(miette!(
            help = format!("there are {}", names.join(", ")),
            "--{option} {unknown}: the campaign has none"
        ))
    };
    let variants = campaign
        .variants
        .iter()
        .map(|variant| variant.name.as_str())
        .collect();
    let workloads = campaign
        .workloads
        .iter()
        .map(|workload| workload.name.as_str())
        .collect();
    let wrong = unknown("variant", &args.variant, variants)
        .or_else(|| unknown("workload", &args.workload, workloads));
    if let Some(error) = wrong {
        return Err(error);
    }
    if let Some(seeds) = args.seeds {
        let all = campaign.seeds.unwrap_or(1);
        if seeds > all {
            return Err(miette!(
                help = "`seeds` in its file says how many",
                "--seeds {seeds}: the campaign has {all}"
            ));
        }
        campaign.seeds = campaign.seeds.map(|_| seeds);
    }
    campaign
        .variants
        .retain(|variant| args.variant.is_empty() || args.variant.contains(&variant.name));
    campaign
        .workloads
        .retain(|workload| args.workload.is_empty() || args.workload.contains(&workload.name));
    campaign.over_runs.retain(|name| {
        campaign
            .workloads
            .iter()
            .any(|workload| workload.name == *name)
    });
    Ok(())
}

/// Performs missing runs, merges, evaluates, and writes everything to `out`.
pub fn perform(
    boards: &Boards,
    campaign: &Campaign,
    file: &Path,
    out: &Path,
) -> Result<(Figures, Vec<Section>)> {
    let started = Instant::now();
    parts::prepare()?;
    setup::qemu()?;
    let model = Model::load(&campaign.model)?;
    let counted: Vec<WorkloadCounts> = runs::run(boards, campaign, Some(&model), out)?;
    eprintln!(
        "{}: {}, {:.1} s",
        campaign.name,
        count(counted.len(), "workload"),
        started.elapsed().as_secs_f64()
    );
    let mut figures = figures_of(campaign, file, &counted)
        .parameter("modelled", true)
        .parameter("model", installation::display(&campaign.model));
    let mut judged: Vec<WorkloadResult> = vec![];
    for workload in &counted {
        let one = judge::judge(campaign, workload)?;
        let directory = &workload.directory;
        write_atomic(&directory.join("counts.csv"), &workload.csv()?)?;
        write_atomic(&directory.join("truth.csv"), &workload.truth_csv()?)?;
        write_atomic(
            &directory.join("vectors.csv"),
            &cloison_much::write::to_csv(&one.vectors),
        )?;
        workload.write_parquet(&one.vectors)?;
        for row in one.rows.iter().filter(|_| !is_repeated(campaign)) {
            // The pairwise estimates had another name once, which kept figures are still found by.
            let names = if row.method == "pairwise" {
                vec!["pairwise", "floor"]
            } else {
                vec![row.method]
            };
            for method in names {
                figures
                    .value(format!("{}_{method}_pearson", one.workload), row.pearson)
                    .value(format!("{}_{method}_spearman", one.workload), row.spearman);
            }
        }
        judged.push(one);
    }
    let mut tables = judge::tables(&judged);
    let groups = summary::groups(&judged);
    if is_repeated(campaign) {
        summary::add_figures(&groups, &mut figures);
        tables.splice(..1, summary::tables(campaign, &groups));
    }
    summary::add_split_figures(&groups, &mut figures);
    tables.push(summary::over_splits(campaign, &groups));
    let over_runs = summary::over_runs(campaign, &counted, SAMPLES)?;
    figures.write(Some(&out.join("figures.json")))?;
    let page = page::html(campaign, file, &groups, &over_runs, &tables, &figures)?;
    write_atomic(&out.join("report.html"), page.as_bytes())?;
    Ok((figures, tables))
}

/// Runs what is missing on hardware, merges, and writes everything to `out`.
fn perform_on_hardware(
    boards: &Boards,
    campaign: &Campaign,
    file: &Path,
    out: &Path,
) -> Result<(Figures, Vec<Section>)> {
    parts::prepare()?;
    let counted = runs::run(boards, campaign, None, out)?;
    let figures = figures_of(campaign, file, &counted)
        .on_hardware()
        .parameter("modelled", false);
    let table = measured::write(campaign, file, &counted, &figures, out)?;
    figures.write(Some(&out.join("figures.json")))?;
    Ok((figures, vec![table]))
}

/// Returns the figures with what was counted.
fn figures_of(campaign: &Campaign, file: &Path, counted: &[WorkloadCounts]) -> Figures {
    let mut figures = Figures::new("campaign")
        .board(&campaign.board)
        .config(file)
        .images(counted.iter().flat_map(|workload| workload.images.clone()))
        .parameter("system", installation::display(&campaign.system))
        .parameter("seed", campaign.seed)
        .parameter("events", campaign.events.join(" "))
        .parameter("counters", campaign.counters);
    figures
        .count("events", campaign.events.len() as u64)
        .count("sub_experiments", campaign.plan.len() as u64)
        .count("runs_of_each", u64::from(campaign.runs));
    figures
}
