//! `cloison campaign`: counts many events of several workloads, a few at a time, on the board model, merges them into
//! complete vectors, and compares these with the truth that only a model can provide: all events of every run.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spec`] | a campaign's TOML file |
//! | [`runs`] | one boot per workload and plan, and its counts |
//! | [`judge`] | compares MUCH, HRM and the blind merge with the truth |
//! | [`page`] | the report |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod judge;
pub mod page;
pub mod runs;
pub mod spec;

use cloison_engine::figures::Figures;
use cloison_engine::files::{Claim, keep_apart, write_atomic};
use cloison_engine::model::Model;
use cloison_engine::report::Section;
use cloison_engine::{installation, parts, setup};
use cloison_much::data::FEWEST_RUNS;
use judge::Judged;
use miette::Result;
use runs::Counted;
use spec::Campaign;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Options of `cloison campaign`.
#[derive(Clone, Debug, clap::Args)]
pub struct CampaignArgs {
    /// Path of the campaign's file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Directory for counts, vectors and report [default: campaigns/NAME, or campaigns/NAME-N-runs with --runs, in target/cloison, without a checkout in cloison-output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Runs of each sub-experiment, instead of the file's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub runs: Option<u32>,
}

/// Runs `cloison campaign`.
pub fn campaign(args: &CampaignArgs) -> Result<()> {
    let file = installation::find(&args.file);
    let mut campaign = spec::load(&file)?;
    campaign.runs = args.runs.unwrap_or(campaign.runs);
    // Other runs than the file's are another campaign, and their results do not take the place of its.
    let suffix = args.runs.map_or_else(String::new, |runs| format!("-{runs}-runs"));
    let default = || installation::output_dir().join("campaigns").join(format!("{}{suffix}", campaign.name));
    let out = args.out.clone().unwrap_or_else(default);
    keep_apart([file.as_path(), &campaign.system, &campaign.model], args.json.as_deref())?;
    let chosen = args.runs.map_or_else(String::new, |runs| format!(" --runs {runs}"));
    let owner = format!("campaign {}{chosen}", installation::display(&file.canonicalize().unwrap_or(file.clone())));
    let _claim = Claim::wait(&out, &owner)?;
    let (figures, tables) = perform(&campaign, &file, &out)?;
    if (campaign.runs as usize) < FEWEST_RUNS {
        eprintln!(
            "warning: {} runs of each sub-experiment give rough correlations: use {FEWEST_RUNS} or more",
            campaign.runs
        );
    }
    figures.write(args.json.as_deref())?;
    println!("{} (modelled)\n", campaign.title);
    for table in &tables {
        println!("{}", table.to_text());
    }
    println!("Report:  {}", installation::display(&out.join("report.html")));
    println!(
        "Data:    WORKLOAD/counts.csv, vectors.csv, vectors.parquet and truth.csv in the same directory, and figures.json"
    );
    Ok(())
}

/// Performs missing runs, merges, evaluates, and writes everything to `out`.
pub fn perform(campaign: &Campaign, file: &Path, out: &Path) -> Result<(Figures, Vec<Section>)> {
    let started = Instant::now();
    parts::prepare()?;
    setup::qemu()?;
    let model = Model::load(&campaign.model)?;
    let counted: Vec<Counted> = runs::run(campaign, &model, out)?;
    eprintln!("{}: {} workloads, {:.1} s", campaign.name, counted.len(), started.elapsed().as_secs_f64());
    let mut figures = Figures::new("campaign")
        .board(&campaign.board)
        .config(file)
        .images(counted.iter().flat_map(|workload| workload.images.clone()))
        .parameter("modelled", true)
        .parameter("model", installation::display(&campaign.model))
        .parameter("system", installation::display(&campaign.system))
        .parameter("seed", campaign.seed)
        .parameter("events", campaign.events.join(" "))
        .parameter("counters", campaign.counters);
    figures
        .count("events", campaign.events.len() as u64)
        .count("sub_experiments", campaign.plan.len() as u64)
        .count("runs_of_each", u64::from(campaign.runs));
    let mut judged: Vec<Judged> = vec![];
    for workload in &counted {
        let one = judge::judge(campaign, workload)?;
        let directory = out.join(&workload.name);
        write_atomic(&directory.join("counts.csv"), &workload.csv()?)?;
        write_atomic(&directory.join("truth.csv"), &workload.truth_csv()?)?;
        write_atomic(&directory.join("vectors.csv"), &cloison_much::write::to_csv(&one.vectors))?;
        let made_by = format!("cloison {}", env!("CARGO_PKG_VERSION"));
        let parquet = cloison_much::write::to_parquet(&one.vectors, &made_by);
        write_atomic(&directory.join("vectors.parquet"), &parquet.map_err(|error| miette::miette!("{error}"))?)?;
        for row in &one.rows {
            // The pairwise estimates had another name once, which kept figures are still found by.
            let names = if row.method == "pairwise" { vec!["pairwise", "floor"] } else { vec![row.method] };
            for method in names {
                figures
                    .value(format!("{}_{method}_pearson", one.workload), row.pearson)
                    .value(format!("{}_{method}_spearman", one.workload), row.spearman);
            }
        }
        judged.push(one);
    }
    let tables = judge::tables(&judged);
    figures.write(Some(&out.join("figures.json")))?;
    write_atomic(&out.join("report.html"), page::html(campaign, file, &judged, &tables, &figures)?.as_bytes())?;
    Ok((figures, tables))
}
