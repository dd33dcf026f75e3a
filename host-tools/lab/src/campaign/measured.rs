//! A campaign on hardware: each workload's counts, merged into vectors. No board counts all events
//! of a run, so that no truth is there to compare them with; their page has the correlations of the
//! runs that count both events of a pair beside those of the vectors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::WorkloadCounts;
use super::spec::Campaign;
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::report::{self, Section};
use cloison_engine::{installation, model};
use cloison_much_command::merge::{MergeArgs, merge};
use maud::{Markup, html};
use miette::{Result, WrapErr, miette};
use std::path::Path;

/// A workload's page, in its directory.
const PAGE: &str = "merge.html";

/// Checks that a campaign needs nothing that only the model can do.
///
/// # Errors
///
/// If a variant does.
pub fn check(campaign: &Campaign) -> Result<()> {
    let cold = |caches| caches != model::Caches::Warm;
    match campaign.variants.iter().find(|it| cold(it.caches)) {
        Some(variant) => Err(miette!(
            help = "choose others: --variant NAMES",
            "variant `{}` begins each run with cold caches, which only the model can do",
            variant.name
        )),
        None => Ok(()),
    }
}

/// Merges the counts of all workloads, and writes everything to `out`.
///
/// # Errors
///
/// If counts cannot be merged, or a file not be written.
pub fn write(
    campaign: &Campaign,
    file: &Path,
    counted: &[WorkloadCounts],
    figures: &Figures,
    out: &Path,
) -> Result<Section> {
    let header = ["variant", "workload", "seed", "runs", "data"];
    let mut table = Section::new("Counts, merged by MUCH (measured)", &header);
    for workload in counted {
        let directory = &workload.directory;
        let counts = directory.join("counts.csv");
        write_atomic(&counts, &workload.csv()?)?;
        let args = MergeArgs::by_much(
            &counts,
            &directory.join("vectors.csv"),
            &directory.join(PAGE),
            campaign.seed + 1,
        );
        let merged = merge(&args).wrap_err_with(|| miette!("workload {}", workload.name))?;
        workload.write_parquet(&merged)?;
        table.row([
            workload.variant.clone(),
            workload.name.clone(),
            workload.repetition.to_string(),
            workload.much.len().to_string(),
            relative(directory, out),
        ]);
    }
    let page = page(campaign, file, counted, figures, out)?;
    write_atomic(&out.join("report.html"), page.as_bytes())?;
    Ok(table)
}

fn relative(directory: &Path, out: &Path) -> String {
    let inside = directory.strip_prefix(out).unwrap_or(directory);
    inside.display().to_string()
}

fn page(
    campaign: &Campaign,
    file: &Path,
    counted: &[WorkloadCounts],
    figures: &Figures,
    out: &Path,
) -> Result<String> {
    let source = files::read_text(file, files::CONFIGURATION)?;
    let link = |workload: &WorkloadCounts| -> Markup {
        let place = relative(&workload.directory, out);
        html! { li { a href={ (place) "/" (PAGE) } { (place) } ": " (workload.much.len()) " runs" } }
    };
    let body = html! {
        p {
            (campaign.events.len()) " events, " (campaign.counters) " at a time: " (campaign.plan.len())
            " sub-experiments in which every pair meets, " (campaign.runs) " runs of each."
            @if campaign.warm_up > 0 {
                " Before those, " (campaign.warm_up) " runs of each sub-experiment are warm-up runs and not used."
            }
        }
        div.caveats {
            p { "Measured: a board executed the images. Caches are as the guests leave them." }
            p {
                "No board counts all events of a run, so that nothing here says how near the vectors are \
                 to the truth: each workload's page compares them with the runs that count both events of a \
                 pair."
            }
        }
        h2 { "Workloads" }
        ul { @for workload in counted { (link(workload)) } }
        h2 { "Provenance" }
        (report::provenance(figures))
        details { summary { "The campaign: " (installation::display(file)) } pre { (source) } }
    };
    Ok(report::standalone(&campaign.title, "", &body))
}
