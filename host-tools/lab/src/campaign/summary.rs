//! The results of a campaign with several seeds and variants: means over seeds, differences with
//! the same seed, and the published results beside them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::judge::WorkloadResult;
use super::runs::WorkloadCounts;
use super::spec::Campaign;
use cloison_engine::figures::Figures;
use cloison_engine::report::Section;
use cloison_much::evaluate::{Comparison, Outcome, Resampling, compare};
use cloison_much::plan::{Catalogue, hrm_plan, plan};
use miette::{Result, miette};

/// The results of one workload in one variant, seed by seed.
pub struct Group<'a> {
    /// Name of the variant; empty where there is only one.
    pub variant: &'a str,
    /// Name of the workload.
    pub workload: &'a str,
    /// One for each seed.
    pub seeds: Vec<&'a WorkloadResult>,
}

impl Group<'_> {
    /// The errors of a method, seed by seed: Pearson's (0) or Spearman's (1).
    fn errors(&self, method: &str, kind: usize) -> Vec<f64> {
        let of_seed = |one: &&WorkloadResult| {
            one.rows
                .iter()
                .find(|row| row.method == method)
                .map(|row| [row.pearson, row.spearman][kind])
        };
        self.seeds.iter().filter_map(of_seed).collect()
    }
    /// The mean over seeds.
    pub fn mean(&self, method: &str, kind: usize) -> f64 {
        mean(&self.errors(method, kind))
    }
    /// By how much the errors are larger than MUCH's with the same seed.
    fn more_than_much(&self, method: &str, kind: usize) -> Vec<f64> {
        self.errors(method, kind)
            .iter()
            .zip(self.errors("much", kind))
            .map(|(other, much)| other - much)
            .collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), &value| (least.min(value), most.max(value)),
    )
}

/// Puts the seeds of each workload together, variant by variant.
pub fn groups(judged: &[WorkloadResult]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = vec![];
    for one in judged {
        match groups
            .iter_mut()
            .find(|group| group.variant == one.variant && group.workload == one.workload)
        {
            Some(group) => group.seeds.push(one),
            None => groups.push(Group {
                variant: &one.variant,
                workload: &one.workload,
                seeds: vec![one],
            }),
        }
    }
    // Seeds come first in the order of runs, variants in that of tables.
    let first = |variant: &str| judged.iter().position(|one| one.variant == variant);
    groups.sort_by_key(|group| first(group.variant));
    groups
}

/// Adds the means over seeds.
pub fn add_figures(groups: &[Group<'_>], figures: &mut Figures) {
    for group in groups {
        let Some(first) = group.seeds.first() else {
            continue;
        };
        for row in &first.rows {
            // Letters, digits and `_` only, as every figure's name.
            let name = format!(
                "{}_{}_{}",
                group.variant.replace('-', "_"),
                group.workload,
                row.method
            );
            figures
                .value(format!("{name}_pearson"), group.mean(row.method, 0))
                .value(format!("{name}_spearman"), group.mean(row.method, 1));
        }
    }
}

/// Returns the tables for terminal and report.
pub fn tables(campaign: &Campaign, groups: &[Group<'_>]) -> Vec<Section> {
    let mut tables = vec![errors(groups)];
    tables.extend(beside_published(campaign, groups));
    let mut variants: Vec<&str> = groups.iter().map(|group| group.variant).collect();
    variants.dedup();
    tables.extend(
        variants
            .iter()
            .map(|variant| variability(campaign, groups, variant)),
    );
    tables
}

fn errors(groups: &[Group<'_>]) -> Section {
    let more = ["more than MUCH", "MUCH nearer"];
    let header = [
        "variant", "workload", "method", "seeds", "Pearson", more[0], more[1], "Spearman", more[0],
        more[1],
    ];
    let mut section = Section::new(
        "Mean square error of the correlations against the truth",
        &header,
    );
    for group in groups {
        let Some(first) = group.seeds.first() else {
            continue;
        };
        for row in &first.rows {
            let seeds = group.seeds.len();
            let mut cells = vec![
                group.variant.to_owned(),
                group.workload.to_owned(),
                row.title.to_owned(),
                seeds.to_string(),
            ];
            for kind in 0..2 {
                let differences = group.more_than_much(row.method, kind);
                let (least, most) = range(&differences);
                cells.push(format!("{:.5}", group.mean(row.method, kind)));
                if row.method == "much" {
                    cells.extend([String::new(), String::new()]);
                } else {
                    cells.push(format!("{least:+.5} … {most:+.5}"));
                    let nearer = differences
                        .iter()
                        .filter(|difference| **difference > 0.0)
                        .count();
                    cells.push(format!("{nearer} of {seeds}"));
                }
            }
            section.row(cells);
        }
    }
    section.note(
        "Means over the seeds. More than MUCH: a method's error less MUCH's with the same seed, \
         from the least to the most. Each method is judged by the truth of the runs that it \
         merged.",
    )
}

/// HRM's errors of Pearson's correlations over the splits of the events, by name: means over seeds.
fn split_errors(group: &Group<'_>) -> Vec<(String, f64)> {
    let mean_of = |of: &dyn Fn(&WorkloadResult) -> Option<f64>| {
        let errors: Vec<f64> = group.seeds.iter().filter_map(|one| of(one)).collect();
        mean(&errors)
    };
    let best = mean_of(&|one| Some(one.splits.best()?.errors[0]));
    let worst = mean_of(&|one| Some(one.splits.worst()?.errors[0]));
    let mut all = vec![
        ("best".to_owned(), best),
        ("mean".to_owned(), mean_of(&|one| Some(one.splits.mean(0)))),
        ("worst".to_owned(), worst),
    ];
    let names = group.seeds.first().into_iter();
    let names = names.flat_map(|one| &one.splits.named).enumerate();
    all.extend(names.map(|(at, (name, _))| {
        let named = mean_of(&|one| Some(one.splits.named.get(at)?.1.errors[0]));
        (format!("split_{name}"), named)
    }));
    all
}

/// Adds HRM's errors over the splits.
pub fn add_split_figures(groups: &[Group<'_>], figures: &mut Figures) {
    for group in groups {
        let variant = match group.variant {
            "" => String::new(),
            variant => format!("{}_", variant.replace('-', "_")),
        };
        for (split, error) in split_errors(group) {
            let name = format!(
                "{variant}{}_hrm_{}_pearson",
                group.workload,
                split.replace('-', "_")
            );
            figures.value(name, error);
        }
    }
}

/// Returns HRM over the splits of the events, beside MUCH and its published form.
pub fn over_splits(campaign: &Campaign, groups: &[Group<'_>]) -> Section {
    let named: Vec<String> = campaign
        .hrm_splits
        .iter()
        .map(|split| format!("split `{}`", split.name))
        .collect();
    let mut header = vec![
        "variant",
        "workload",
        "seeds",
        "MUCH",
        "plain",
        "HRM as run",
        "best",
        "mean",
        "worst",
    ];
    header.extend(named.iter().map(String::as_str));
    header.extend(["splits", "MUCH nearer", "plain nearer"]);
    let mut section = Section::new("HRM over the splits of the events", &header);
    for group in groups {
        let of = |method: &str| format!("{:.4}", group.mean(method, 0));
        let mut cells = vec![
            group.variant.to_owned(),
            group.workload.to_owned(),
            group.seeds.len().to_string(),
            of("much"),
            of("paper"),
            of("hrm"),
        ];
        let errors = split_errors(group).into_iter();
        cells.extend(errors.map(|(_, error)| format!("{error:.4}")));
        let judged: usize = group.seeds.iter().map(|one| one.splits.judged.len()).sum();
        let all: u128 = group.seeds.iter().map(|one| one.splits.all).sum();
        cells.push(format!("{judged} of {all}"));
        cells.extend(["much", "paper"].map(|method| {
            let further = |one: &&WorkloadResult| {
                let row = one.rows.iter().find(|row| row.method == method)?;
                Some(one.splits.further_than(row.pearson))
            };
            let nearer: usize = group.seeds.iter().filter_map(further).sum();
            format!("{:.0} %", nearer as f64 * 100.0 / judged.max(1) as f64)
        }));
        section.row(cells);
    }
    section.note(
        "Mean square errors of Pearson's correlations against the truth, means over the seeds. A \
         split says which of the events that vary HRM counts together; each is judged by the same \
         runs, of which the model knows all events, a sub-experiment of it by those of one of HRM's. \
         Nearer: with this part of the splits (of all seeds) the method is nearer to the truth than \
         HRM. Plain: MUCH as published.",
    )
}

/// The published results, beside each variant's means.
fn beside_published(campaign: &Campaign, groups: &[Group<'_>]) -> Option<Section> {
    let methods = [
        ("much", "MUCH"),
        ("paper", "plain"),
        ("hrm", "HRM"),
        ("blind", "blind"),
    ];
    let mut header = vec![
        "workload".to_owned(),
        "published: MUCH".to_owned(),
        "HRM".to_owned(),
    ];
    for variant in &campaign.variants {
        header.extend(methods.iter().enumerate().map(|(at, (_, title))| {
            if at == 0 {
                format!("{}: {title}", variant.name)
            } else {
                (*title).to_owned()
            }
        }));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut section = Section::new("Beside what was published", &header);
    let mut all = vec![vec![]; campaign.variants.len() * methods.len()];
    for workload in campaign
        .workloads
        .iter()
        .filter(|workload| workload.published.is_some())
    {
        let mut cells = vec![workload.name.clone()];
        cells.extend(
            workload
                .published
                .iter()
                .flatten()
                .map(|error| format!("{error:.3}")),
        );
        let mut column = 0;
        for variant in &campaign.variants {
            let group = groups
                .iter()
                .find(|it| it.variant == variant.name && it.workload == workload.name);
            for (method, _) in methods {
                let error = group.map(|group| group.mean(method, 0));
                all[column].extend(error);
                column += 1;
                cells.push(error.map_or_else(|| "–".to_owned(), |error| format!("{error:.4}")));
            }
        }
        section.row(cells);
    }
    if section.rows.is_empty() {
        return None;
    }
    let published: Vec<[f64; 2]> = campaign
        .workloads
        .iter()
        .filter_map(|workload| workload.published)
        .collect();
    let mut cells = vec!["mean".to_owned()];
    cells.extend([0, 1].map(|at| {
        format!(
            "{:.3}",
            mean(&published.iter().map(|both| both[at]).collect::<Vec<_>>())
        )
    }));
    cells.extend(all.iter().map(|errors| format!("{:.4}", mean(errors))));
    section.row(cells);
    let publication = campaign.publication.as_deref();
    let publication = publication.and_then(|text| campaign.numbers().fill(text).ok().flatten());
    let note = ["Mean square errors of Pearson's correlations."]
        .into_iter()
        .chain(publication.as_deref());
    Some(section.note(note.collect::<Vec<_>>().join(" ")))
}

/// How much each event varies from run to run.
fn variability(campaign: &Campaign, groups: &[Group<'_>], variant: &str) -> Section {
    let of_variant: Vec<_> = groups
        .iter()
        .filter(|group| group.variant == variant)
        .collect();
    let header: Vec<&str> = std::iter::once("event")
        .chain(of_variant.iter().map(|group| group.workload))
        .collect();
    let mut section = Section::new(format!("Variability {variant}").trim_end(), &header);
    for (event, name) in campaign.events.iter().enumerate() {
        let mut cells = vec![name.clone()];
        for group in &of_variant {
            let share = mean(
                &group
                    .seeds
                    .iter()
                    .map(|one| one.variability[event])
                    .collect::<Vec<_>>(),
            );
            cells.push(if share == 0.0 {
                "–".to_owned()
            } else {
                format!("{:.1}", share * 100.0)
            });
        }
        section.row(cells);
    }
    section.note(
        "Percent: the difference between an event's largest and smallest count over the runs, of \
         the largest; mean over seeds. –: the same in every run.",
    )
}

/// Returns the errors over the number of runs, of bootstrap samples of all seeds' runs (the paper's
/// figure 6).
///
/// # Errors
///
/// If the runs do not form measurements.
pub fn over_runs(
    campaign: &Campaign,
    counted: &[WorkloadCounts],
    samples: usize,
) -> Result<Vec<(String, Vec<Outcome>)>> {
    let mut charts = vec![];
    for variant in &campaign.variants {
        for name in &campaign.over_runs {
            let seeds: Vec<_> = counted
                .iter()
                .filter(|one| one.variant == variant.name && one.name == *name)
                .collect();
            let wrong = |error: cloison_much::data::DataError| miette!("workload {name}: {error}");
            let data = super::judge::pooled(&seeds, |one| &one.much)?;
            let hrm = super::judge::pooled(&seeds, |one| &one.hrm)?
                .reordered(&data.events)
                .map_err(wrong)?;
            let anchor = &campaign.events[campaign.anchor];
            let anchor = data
                .event(anchor)
                .ok_or_else(|| miette!("workload {name}: {anchor} is constant"))?;
            let most = Resampling::Bootstrap.most_runs(&data);
            let mut runs: Vec<usize> = [50, 100, 200, 400]
                .into_iter()
                .filter(|&runs| runs <= most)
                .collect();
            if runs.len() < 2 {
                runs = vec![(most / 4).max(2), (most / 2).max(3), most.max(4)];
                runs.retain(|&runs| runs <= most);
            }
            let comparison = Comparison {
                data: &data,
                hrm: Some(&hrm),
                anchor,
                runs: &runs,
                samples,
                resampling: Resampling::Bootstrap,
                seed: campaign.seed,
            };
            let title = format!("{name} {}", variant.name).trim_end().to_owned();
            charts.push((title, compare(&comparison, &|| ()).map_err(wrong)?));
        }
    }
    Ok(charts)
}

/// Returns the runs of both plans for numbers of events on the campaign's counters, with 100 of
/// each sub-experiment (the paper's figure 7): the events; MUCH's runs by the planner, and by the
/// paper's formula; HRM's.
pub fn runs_of_plans(counters: usize) -> Vec<(usize, [usize; 3])> {
    const RUNS: usize = 100;
    let mut catalogue = Catalogue::default();
    let sizes = (counters + 2..=64).step_by(2);
    sizes
        .filter_map(|events| {
            let much = plan(&mut catalogue, events, counters)
                .ok()?
                .sub_experiments
                .len();
            let hrm = hrm_plan(events, counters, 0).ok()?.sub_experiments.len();
            let formula = (events * (events - 1)).div_ceil(counters * (counters - 1));
            Some((
                events,
                [much, formula, hrm].map(|sub_experiments| RUNS * sub_experiments),
            ))
        })
        .collect()
}
