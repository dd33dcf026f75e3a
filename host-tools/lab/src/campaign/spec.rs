//! A campaign's TOML file, read and validated, and the plan that follows from it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::overrides::{Path as TomlPath, Value};
use cloison_board_model::Event;
use cloison_config::files;
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_engine::configuration;
use cloison_engine::model::Caches;
use cloison_much::plan::{Catalogue, hrm_plan, plan};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// How far the model's seeds of a repetition are from those of the one before.
pub const NEXT_SEEDS: u64 = 1000;

/// A validated campaign with its plan.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Name of the file without its extension.
    pub name: String,
    /// Title of the report.
    pub title: String,
    /// Path of the system that the workloads modify.
    pub system: PathBuf,
    /// The board on which it runs.
    pub board: String,
    /// Path of the model's board file.
    pub model: PathBuf,
    /// Name of the VM that is measured.
    pub victim: String,
    /// All events, by their architectural names.
    pub events: Vec<String>,
    /// Number of counters that a sub-experiment may use.
    pub counters: usize,
    /// Sub-experiments in which every pair of events is counted together, as indices into `events`.
    pub plan: Vec<Vec<usize>>,
    /// HRM's sub-experiments, each with the anchor, as indices into `events`.
    pub hrm_plan: Vec<Vec<usize>>,
    /// HRM's anchor, as an index into `events`.
    pub anchor: usize,
    /// Runs of each sub-experiment of `plan`.
    pub runs: u32,
    /// Unused runs of each sub-experiment before those.
    pub warm_up: u32,
    /// The model's seed for the first workload; each further one uses the next, and each repetition those [`NEXT_SEEDS`]
    /// further.
    pub seed: u64,
    /// How often everything is repeated with other seeds; `None` where once is all, and results are not kept by seed.
    pub seeds: Option<u32>,
    /// Ways in which each workload is run; a single one without a name where the file has none.
    pub variants: Vec<Variant>,
    /// The workloads to count.
    pub workloads: Vec<Workload>,
    /// Names of the workloads whose errors are shown over the number of runs.
    pub over_runs: Vec<String>,
}

/// A way in which workloads are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name; empty where there is only one.
    pub name: String,
    /// The victim's argument to which the number of runs so far is added.
    pub vary: Option<u8>,
    /// State of the caches at the start of a run's segment.
    pub caches: Caches,
}

/// A victim with its co-runners.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of the workload.
    pub name: String,
    /// Its place in the file, from 0.
    pub number: u64,
    /// Paths in the system and their new values.
    pub set: Vec<(TomlPath, Value)>,
    /// Paths in the system to remove.
    pub remove: Vec<TomlPath>,
    /// Mean square errors of MUCH and of HRM that were published for it.
    pub published: Option<[f64; 2]>,
}

impl Campaign {
    /// Returns the runs of each of HRM's sub-experiments that give the same total number of runs.
    pub fn hrm_runs(&self) -> u32 {
        let total = self.runs as usize * self.plan.len();
        u32::try_from(total / self.hrm_plan.len().max(1)).unwrap_or(u32::MAX)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    system: Spanned<PathBuf>,
    board: Spanned<String>,
    model: PathBuf,
    victim: String,
    events: Vec<Spanned<String>>,
    counters: Spanned<usize>,
    anchor: Spanned<String>,
    runs: Spanned<u32>,
    #[serde(default)]
    warm_up: u32,
    vary: Option<u8>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    caches: Caches,
    seeds: Option<std::num::NonZeroU32>,
    #[serde(default)]
    variant: BTreeMap<Spanned<String>, VariantFile>,
    #[serde(default)]
    over_runs: Vec<Spanned<String>>,
    workload: Vec<WorkloadFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantFile {
    vary: Option<u8>,
    #[serde(default)]
    caches: Caches,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    name: String,
    published: Option<[f64; 2]>,
    #[serde(default)]
    set: BTreeMap<Spanned<String>, Value>,
    #[serde(default)]
    remove: Vec<Spanned<String>>,
}

/// Reads and validates a campaign.
pub fn load(path: &Path) -> Result<Campaign, Errors> {
    let text = files::read_text(path, files::CONFIGURATION).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let problem = Problem::error(
            &file,
            "file",
            0..0,
            format!("cannot read {}: {error}", file.name()),
        )
        .help("give a campaign, such as configs/campaigns/kernels.toml");
        Errors::new(file.name(), vec![problem])
    })?;
    let file = SourceFile::new(path, text);
    let name = file.name().to_owned();
    check(path, &file).map_err(|problem| Errors::new(&name, vec![*problem]))
}

fn check(path: &Path, source: &SourceFile) -> Result<Campaign, Box<Problem>> {
    let file: File = toml::from_str(source.text()).map_err(|error| {
        let problem = Problem::error(
            source,
            "campaign",
            error.span().unwrap_or(0..0),
            error.message().trim_end(),
        );
        Box::new(
            problem
                .label("here")
                .help("see docs/campaigns.md for the format of a campaign's file"),
        )
    })?;
    let wrong = |field: &str, span, message: String, label: &str, help: String| {
        Box::new(
            Problem::error(source, field, span, message)
                .label(label)
                .help(help),
        )
    };
    let base = path.parent().unwrap_or(Path::new("."));
    let system = base.join(file.system.get_ref());
    if !system.is_file() {
        let message = format!("there is no system at {}", system.display());
        return Err(wrong(
            "system",
            file.system.span(),
            message,
            "not a file",
            "give a configuration".into(),
        ));
    }
    let board = file.board.get_ref().clone();
    let known = configuration::boards();
    if !known.contains(&board) {
        let message = format!("QEMU does not emulate board `{board}`");
        return Err(wrong(
            "board",
            file.board.span(),
            message,
            "unknown",
            format!("boards: {}", known.join(", ")),
        ));
    }
    let known = || {
        Event::ALL
            .iter()
            .map(|event| event.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut events: Vec<String> = vec![];
    for event in &file.events {
        let name = event.get_ref();
        if !Event::ALL.iter().any(|known| known.name() == name) {
            let message = format!("the model does not count `{name}`");
            return Err(wrong(
                "events",
                event.span(),
                message,
                "unknown",
                format!("events: {}", known()),
            ));
        }
        if events.contains(name) {
            let message = format!("{name} is listed twice");
            return Err(wrong(
                "events",
                event.span(),
                message,
                "again",
                "list every event once".into(),
            ));
        }
        events.push(name.clone());
    }
    let anchor = events
        .iter()
        .position(|name| name == file.anchor.get_ref())
        .ok_or_else(|| {
            let message = format!(
                "the anchor `{}` is none of the events",
                file.anchor.get_ref()
            );
            wrong(
                "anchor",
                file.anchor.span(),
                message,
                "not counted",
                events.join(", "),
            )
        })?;
    if *file.runs.get_ref() < 2 {
        let message = format!("{} runs", file.runs.get_ref());
        return Err(wrong(
            "runs",
            file.runs.span(),
            message,
            "too few",
            "a correlation needs two at least".into(),
        ));
    }
    let counters = *file.counters.get_ref();
    let unplanned = |error: cloison_much::plan::PlanError| {
        wrong(
            "counters",
            file.counters.span(),
            error.to_string(),
            "no plan",
            "2 to 6 counters, and more events".into(),
        )
    };
    let plan = plan(&mut Catalogue::default(), events.len(), counters).map_err(unplanned)?;
    let hrm = hrm_plan(events.len(), counters, anchor).map_err(unplanned)?;
    let parse = |text: &Spanned<String>| {
        TomlPath::parse(text.get_ref()).map_err(|error| {
            wrong(
                "workload",
                text.span(),
                error,
                "not a path",
                "write vm.NAME.field".into(),
            )
        })
    };
    let mut workloads = vec![];
    for (number, workload) in (0..).zip(&file.workload) {
        let set = workload
            .set
            .iter()
            .map(|(key, value)| Ok((parse(key)?, value.clone())));
        workloads.push(Workload {
            name: workload.name.clone(),
            number,
            published: workload.published,
            set: set.collect::<Result<_, Box<Problem>>>()?,
            remove: workload
                .remove
                .iter()
                .map(parse)
                .collect::<Result<_, _>>()?,
        });
    }
    let variants = variants(&file, &wrong)?;
    for name in &file.over_runs {
        if !workloads
            .iter()
            .any(|workload| workload.name == *name.get_ref())
        {
            let names = workloads
                .iter()
                .map(|workload| workload.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!("there is no workload `{}`", name.get_ref());
            return Err(wrong("over_runs", name.span(), message, "unknown", names));
        }
    }
    Ok(Campaign {
        name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        title: file.title,
        system,
        board,
        model: base.join(file.model),
        victim: file.victim,
        events,
        counters,
        plan: plan.sub_experiments,
        hrm_plan: hrm.sub_experiments,
        anchor,
        runs: *file.runs.get_ref(),
        warm_up: file.warm_up,
        seed: file.seed,
        seeds: file.seeds.map(std::num::NonZeroU32::get),
        variants,
        workloads,
        over_runs: file
            .over_runs
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
    })
}

/// The file's variants, by name; without any, what it says of all runs.
fn variants(file: &File, wrong: &Wrong<'_>) -> Result<Vec<Variant>, Box<Problem>> {
    if file.variant.is_empty() {
        return Ok(vec![Variant {
            name: String::new(),
            vary: file.vary,
            caches: file.caches,
        }]);
    }
    let mut variants = vec![];
    for (name, variant) in &file.variant {
        let text = name.get_ref();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if text.is_empty() || !text.chars().all(plain) {
            let message = format!("`{text}` cannot be the name of a directory");
            return Err(wrong(
                "variant",
                name.span(),
                message,
                "here",
                "use letters, digits and `-`".into(),
            ));
        }
        if file.vary.is_some() || file.caches != Caches::default() {
            let message = "`vary` and `caches` are there for all runs and for variants".to_owned();
            return Err(wrong(
                "variant",
                name.span(),
                message,
                "this one",
                "leave them to the variants".into(),
            ));
        }
        variants.push(Variant {
            name: text.clone(),
            vary: variant.vary,
            caches: variant.caches,
        });
    }
    Ok(variants)
}

/// Makes a problem of a field, its place, what is wrong, a label and advice.
type Wrong<'a> = dyn Fn(&str, std::ops::Range<usize>, String, &str, String) -> Box<Problem> + 'a;

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_engine::installation;

    fn shipped() -> PathBuf {
        installation::root().join("configs/campaigns/kernels.toml")
    }

    fn refused(old: &str, new: &str) -> (String, String) {
        let text = std::fs::read_to_string(shipped()).expect("the shipped campaign");
        assert!(text.contains(old), "{old}");
        let source = SourceFile::new(&shipped(), text.replacen(old, new, 1));
        let problem = check(&shipped(), &source).expect_err("it is refused");
        (problem.field().to_owned(), problem.message().to_owned())
    }

    #[test]
    fn the_shipped_campaign_is_planned() {
        let campaign = load(&shipped()).expect("it is right");
        assert_eq!((campaign.plan.len(), campaign.hrm_plan.len()), (6, 3));
        assert_eq!(campaign.hrm_runs() as usize * 3, campaign.runs as usize * 6);
        assert!(campaign.workloads.len() >= 6);
    }

    #[test]
    fn mistakes_are_named() {
        let field_and_message = |field: &str, message: &str| (field.to_owned(), message.to_owned());
        assert_eq!(
            refused("\"INST_RETIRED\"", "\"INST\""),
            field_and_message("events", "the model does not count `INST`")
        );
        assert_eq!(
            refused("\"LD_RETIRED\"", "\"CPU_CYCLES\""),
            field_and_message("events", "CPU_CYCLES is listed twice")
        );
        assert_eq!(
            refused("anchor = \"CPU_CYCLES\"", "anchor = \"ST_RETIRED\""),
            field_and_message("anchor", "the anchor `ST_RETIRED` is none of the events")
        );
        assert_eq!(
            refused("runs = 50", "runs = 1"),
            field_and_message("runs", "1 runs")
        );
        assert_eq!(refused("counters = 6", "counters = 1").0, "counters");
        assert_eq!(refused("board = \"virt\"", "board = \"pi\"").0, "board");
        assert!(
            refused("vary = 2", "varies = 2")
                .1
                .starts_with("unknown field `varies`")
        );
    }
}
