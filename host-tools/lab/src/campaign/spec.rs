//! A campaign's TOML file, read and validated, and the plan that follows from it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::sentence::Numbers;
use crate::experiment::machine::{self, directory_of, stem_of};
use crate::experiment::overrides::{Path as TomlPath, Value};
use cloison_board_model::Event;
use cloison_board_model::pmu::COUNTERS;
use cloison_config::document::{self, Field, Given, Presence, Table};
use cloison_config::problem::{Errors, Problem};
use cloison_config::{FileKind, suggest};
use cloison_engine::model::Caches;
use cloison_much::plan::{Catalogue, Plan, PlanError, hrm_plan, paper_plan, plan};
use std::path::{Path, PathBuf};

/// Distance between the model's seeds of one repetition and the next.
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
    /// Sub-experiments in which every pair of events is counted together, as indices into
    /// `events`.
    pub plan: Vec<Vec<usize>>,
    /// HRM's sub-experiments, each with the anchor, as indices into `events`.
    pub hrm_plan: Vec<Vec<usize>>,
    /// Other splits of the events over HRM's sub-experiments, to be judged by the same runs.
    pub hrm_splits: Vec<HrmSplit>,
    /// HRM's anchor, as an index into `events`.
    pub anchor: usize,
    /// Runs of each sub-experiment of `plan`.
    pub runs: u32,
    /// Unused first runs of each sub-experiment.
    pub warm_up: u32,
    /// The model's seed for the first workload; each further one uses the next, and each
    /// repetition those [`NEXT_SEEDS`] further.
    pub seed: u64,
    /// Number of repetitions, each with other seeds; `None` for a single one, whose results are not
    /// kept by seed.
    pub seeds: Option<u32>,
    /// Variants of the workloads' runs; a single one without a name where the file has none.
    pub variants: Vec<Variant>,
    /// The workloads to count.
    pub workloads: Vec<Workload>,
    /// Names of the workloads whose errors are shown over the number of runs.
    pub over_runs: Vec<String>,
    /// How the published errors were measured: a text with placeholders.
    pub publication: Option<String>,
}

/// A split of the events over HRM's sub-experiments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HrmSplit {
    /// Its name.
    pub name: String,
    /// The events of each sub-experiment besides the anchor, as indices into `events`.
    pub sub_experiments: Vec<Vec<usize>>,
}

/// How MUCH's sub-experiments are planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Planner {
    /// With the fewest that the planner finds.
    #[default]
    Fewest,
    /// By the greedy process of the paper.
    Paper,
}

/// The planners, as files have them.
const PLANNERS: [(&str, Planner); 2] = [("fewest", Planner::Fewest), ("paper", Planner::Paper)];

/// A variant of the workloads' runs.
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
    /// Returns the numbers that sentences can have.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            counters: self.counters as u64,
            events: self.events.len() as u64,
            runs: self.runs.into(),
            seeds: self.seeds.unwrap_or(1).into(),
            sub_experiments: self.plan.len() as u64,
            workloads: self.workloads.len() as u64,
        }
    }

    /// Returns the runs of each of HRM's sub-experiments that give the same total number of runs.
    pub fn hrm_runs(&self) -> u32 {
        let total = self.runs as usize * self.plan.len();
        u32::try_from(total / self.hrm_plan.len().max(1)).unwrap_or(u32::MAX)
    }
}

/// States of the caches, as files have them.
pub const CACHES: [(&str, Caches); 2] = [("warm", Caches::Warm), ("cold", Caches::Cold)];

/// Reads and validates a campaign.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path) -> Result<Campaign, Errors> {
    let help = "give a campaign, such as configs/campaigns/kernels.toml";
    document::load(path, help, |root| read(root, path))
}

fn read(root: &Table<'_>, path: &Path) -> Option<Campaign> {
    FileKind::Campaign.fits(root)?;
    let title = root.value("title", Field::text);
    let help = "name the system that the workloads modify: system = \"FILE.toml\"";
    let machine = machine::read(root, &directory_of(path), help);
    let counting = read_counting(root);
    let most = u64::from(u32::MAX);
    let help = "say how often each sub-experiment is run: runs = 50";
    let runs = root.required_value("runs", help, |field| {
        field.integer_in(2..=most, "2 runs or more: a correlation needs two")
    });
    let warm_up = root.value("warm_up", |field| {
        field.integer_up_to(most, "a number of runs")
    });
    let seed = root.value("seed", |field| field.integer("the model's first seed"));
    let seeds = root.value("seeds", |field| {
        field.integer_in(
            1..=most,
            "how often everything is repeated with other seeds",
        )
    });
    let variants = read_variants(root);
    let workloads = read_workloads(root);
    let publication = root.value("publication", |field| {
        Some((field.clone(), field.text()?.to_owned()))
    });
    root.finish_ref();
    let (machine, counting, workloads) = (machine?, counting?, workloads?);
    let name = stem_of(path);
    let publication = publication.optional()?;
    let campaign = Campaign {
        title: title.or(&name)?.to_owned(),
        name,
        system: machine.system,
        board: machine.board,
        model: machine.model,
        victim: machine.victim,
        events: counting.events,
        counters: counting.counters,
        plan: counting.plan,
        hrm_plan: counting.hrm_plan,
        hrm_splits: counting.hrm_splits,
        anchor: counting.anchor,
        runs: runs?.value as u32,
        warm_up: warm_up.or(0)? as u32,
        seed: seed.or(0)?,
        seeds: seeds.optional()?.map(|seeds| seeds as u32),
        variants: variants?,
        workloads: workloads.all,
        over_runs: workloads.over_runs,
        publication: publication.as_ref().map(|(_, text)| text.clone()),
    };
    if let Some((field, text)) = &publication
        && let Err(mistake) = campaign.numbers().fill(text)
    {
        let error = field.error(mistake.message).label("in this text");
        field.push(error.help(mistake.help));
    }
    Some(campaign)
}

/// The events, and their sub-experiments.
struct Counting {
    events: Vec<String>,
    counters: usize,
    anchor: usize,
    plan: Vec<Vec<usize>>,
    hrm_plan: Vec<Vec<usize>>,
    hrm_splits: Vec<HrmSplit>,
}

fn read_counting(root: &Table<'_>) -> Option<Counting> {
    let help = "name the events: events = [\"CPU_CYCLES\", \"L2D_CACHE_REFILL\"]";
    let events = root.required_value("events", help, read_events);
    let counters = root.value("counters", |field| {
        field.integer_up_to(u64::from(u32::MAX), "the number of counters")
    });
    let anchor = root.value("anchor", Field::text);
    let planner = root.value("plan", |field| field.one_of("planner", &PLANNERS));
    let splits = root.value("hrm", |field| {
        let entries = field.table()?.entries().into_iter();
        document::all(entries.map(|(name, _, field)| {
            let blocks =
                field.each(|block| block.each(|event| Some((event.text()?, event.span()))))?;
            Some((name, field, blocks))
        }))
    });
    let Given {
        field,
        value: events,
    } = events?;
    let position = |wanted: &str| events.iter().position(|name| name == wanted);
    let anchor = anchor.and_then(|field, anchor| {
        let found = position(anchor);
        if found.is_none() {
            let message = format!("the anchor `{anchor}` is none of the events");
            let help = suggest(anchor, "events", events.iter().map(String::as_str));
            let error = field.error(message).label("not counted");
            field.push(error.help(help));
        }
        found
    });
    let (field, counters) = match counters {
        Presence::Given(Given { field, value }) => (field, value as usize),
        Presence::Absent => (field, COUNTERS),
        Presence::Wrong => return None,
    };
    let planned = |result: Result<Plan, PlanError>| {
        let unplanned = |error: &PlanError| {
            let error = field.error(error.to_string()).label("no plan");
            field.push(error.help("give 2 to 6 counters, and more events"));
        };
        Some(result.inspect_err(unplanned).ok()?.sub_experiments)
    };
    let plan = planned(match planner.or(Planner::default())? {
        Planner::Fewest => plan(&mut Catalogue::default(), events.len(), counters),
        Planner::Paper => paper_plan(events.len(), counters),
    })?;
    let anchor = anchor.or(position("CPU_CYCLES").unwrap_or(0))?;
    let hrm_plan = planned(hrm_plan(events.len(), counters, anchor))?;
    let splits = splits.or(vec![])?.into_iter().map(|(name, field, blocks)| {
        let sub_experiments = read_split(&field, &blocks, &events, anchor)?;
        let (parts, most) = (hrm_plan.len(), counters - 1);
        let is_large = |block: &Vec<usize>| block.len() > most;
        if sub_experiments.len() > parts || sub_experiments.iter().any(is_large) {
            let message =
                format!("HRM has {parts} sub-experiments of {most} events and the anchor");
            let error = field.error(message).label("more");
            field.push(error.help("give as many lists of events, none longer"));
            return None;
        }
        Some(HrmSplit {
            name: name.to_owned(),
            sub_experiments,
        })
    });
    Some(Counting {
        counters,
        anchor,
        plan,
        hrm_splits: document::all(splits)?,
        hrm_plan,
        events,
    })
}

/// Reads a split: each event but the anchor, once.
fn read_split(
    field: &Field<'_>,
    blocks: &[Vec<(&str, std::ops::Range<usize>)>],
    events: &[String],
    anchor: usize,
) -> Option<Vec<Vec<usize>>> {
    let mut seen = vec![];
    let mut split = vec![];
    for block in blocks {
        let mut part = vec![];
        for (name, span) in block {
            let found = events.iter().position(|event| event == name);
            let wrong = match found {
                None => Some(format!("`{name}` is none of the events")),
                Some(event) if event == anchor => {
                    Some(format!("{name} is the anchor, which is counted in each"))
                }
                Some(event) if seen.contains(&event) => Some(format!("{name} is listed twice")),
                Some(event) => {
                    seen.push(event);
                    part.push(event);
                    None
                }
            };
            if let Some(message) = wrong {
                let error = field.error(message).at(span.clone()).label("here");
                let known = events.iter().map(String::as_str);
                field.push(error.help(suggest(name, "events", known)));
                return None;
            }
        }
        split.push(part);
    }
    let missing = (0..events.len()).find(|event| *event != anchor && !seen.contains(event));
    if let Some(event) = missing {
        let error = field.error(format!("no sub-experiment counts {}", events[event]));
        field.push(
            error
                .label("not all events")
                .help("list every event but the anchor once"),
        );
        return None;
    }
    Some(split)
}

fn read_events(field: &Field<'_>) -> Option<Vec<String>> {
    let known = || Event::ALL.iter().map(|event| event.name());
    let mut events: Vec<String> = vec![];
    field.each(|element| {
        let name = element.string("an event's name")?;
        let (message, label, help) = if !known().any(|known| known == name) {
            let message = format!("the model does not count `{name}`");
            (message, "unknown", suggest(name, "events", known()))
        } else if events.iter().any(|other| other == name) {
            let message = format!("{name} is listed twice");
            (message, "again", "list every event once".to_owned())
        } else {
            events.push(name.to_owned());
            return Some(());
        };
        element.push(element.error(message).label(label).help(help));
        None
    })?;
    Some(events)
}

/// A file's workloads.
struct Workloads {
    all: Vec<Workload>,
    over_runs: Vec<String>,
}

fn read_workloads(root: &Table<'_>) -> Option<Workloads> {
    let tables = root.tables("workload");
    if tables.is_empty() {
        let error = root.error("workload", 0..0, "the campaign has no workload");
        root.push(error.label("in this file").help("add a [[workload]]"));
    }
    let mut names = vec![];
    let all = document::all((0..).zip(tables).map(|(number, mut table)| {
        let name = table.required_value("name", "name the workload", Field::text);
        if let Some(name) = &name {
            table.rename(name.value);
            names.push((name.value, name.value.to_owned()));
        }
        let published = table.value("published", read_errors);
        let set = table.value("set", read_set);
        let remove = table.value("remove", read_removed);
        table.finish();
        Some(Workload {
            name: name?.value.to_owned(),
            number,
            set: set.or(vec![])?,
            remove: remove.or(vec![])?,
            published: published.optional()?,
        })
    }));
    let over_runs = root.value("over_runs", |field| {
        field.each(|element| element.one_of("workload", &names))
    });
    Some(Workloads {
        all: all?,
        over_runs: over_runs.or(vec![])?,
    })
}

/// Reads the mean square errors of MUCH and of HRM.
fn read_errors(field: &Field<'_>) -> Option<[f64; 2]> {
    let wanted = "the errors of MUCH and of HRM: [0.003, 0.135]";
    let pair = field.each(|element| element.number(wanted))?.try_into();
    if pair.is_err() {
        let error = field.error("the published errors are not two numbers");
        field.push(error.label("not two").help(format!("write {wanted}")));
    }
    pair.ok()
}

/// Reads paths in the system and their new values, by path.
fn read_set(field: &Field<'_>) -> Option<Vec<(TomlPath, Value)>> {
    let table = field.table()?;
    let mut entries = table.entries();
    entries.sort_by_key(|(key, ..)| *key);
    document::all(entries.into_iter().map(|(key, span, value)| {
        let path = TomlPath::parse(key);
        if let Err(error) = &path {
            table.push(no_path(table.error(key, span, error)));
        }
        path.ok().zip(value.any())
    }))
}

/// Reads paths in the system.
fn read_removed(field: &Field<'_>) -> Option<Vec<TomlPath>> {
    field.each(|element| {
        let path = TomlPath::parse(element.string("a path: \"vm.NAME\"")?);
        path.inspect_err(|error| element.push(no_path(element.error(error))))
            .ok()
    })
}

fn no_path(problem: Problem) -> Problem {
    problem.label("not a path").help("write vm.NAME.field")
}

/// Reads the file's variants, by name; without any, what it says of all runs.
fn read_variants(root: &Table<'_>) -> Option<Vec<Variant>> {
    let of_all = read_variant(root, "");
    let tables = root.value("variant", Field::table).optional()?;
    let mut entries = tables.map_or_else(Vec::new, |tables| tables.entries());
    if entries.is_empty() {
        return Some(vec![of_all?]);
    }
    entries.sort_by_key(|(name, ..)| *name);
    if let Some(of_all) = of_all.filter(|it| it.vary.is_some() || it.caches != Caches::default()) {
        let key = if of_all.vary.is_some() {
            "vary"
        } else {
            "caches"
        };
        let message = "`vary` and `caches` are there for all runs and for variants";
        if let Some(field) = root.optional(key) {
            let error = field.error(message).label("for all runs");
            field.push(error.help("leave them to the variants"));
        }
    }
    document::all(entries.into_iter().map(|(name, span, field)| {
        let table = field.table()?;
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if name.is_empty() || !name.chars().all(plain) {
            let message = format!("`{name}` cannot be the name of a directory");
            let error = Problem::error(table.file(), table.path(), span, message).label("here");
            table.push(error.help("use letters, digits and `-`"));
        }
        let variant = read_variant(&table, name);
        table.finish();
        variant
    }))
}

fn read_variant(table: &Table<'_>, name: &str) -> Option<Variant> {
    let vary = table.value("vary", |field| {
        field.integer_up_to(u8::MAX.into(), "the number of an argument")
    });
    let caches = table.value("caches", |field| field.one_of("cache state", &CACHES));
    Some(Variant {
        name: name.to_owned(),
        vary: vary.optional()?.map(|vary| vary as u8),
        caches: caches.or(Caches::default())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_config::problem::SourceFile;
    use cloison_engine::installation;

    fn shipped() -> PathBuf {
        installation::root().join("configs/campaigns/kernels.toml")
    }

    fn refused(old: &str, new: &str) -> (String, String) {
        let text = std::fs::read_to_string(shipped()).expect("the shipped campaign");
        assert!(text.contains(old), "{old}");
        let source = SourceFile::new(&shipped(), text.replacen(old, new, 1));
        let errors = document::read(&source, |root| read(root, &shipped()));
        let errors = errors.expect_err("it is refused");
        let problem = &errors.problems()[0];
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
    fn most_fields_have_defaults() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let system = "name = 'mine'\nends_with = 'own'\nboard = 'zcu102'\n";
        std::fs::write(folder.path().join("system.toml"), system).expect("its system");
        let text = "system = 'system.toml'\nevents = ['L1D_CACHE', 'CPU_CYCLES']\nruns = 3\n\
                    [[workload]]\nname = 'own'\n";
        std::fs::write(&path, text).expect("its file");
        let campaign = load(&path).expect("it is right");
        assert_eq!(
            (campaign.title.as_str(), campaign.victim.as_str()),
            ("mine", "own")
        );
        assert_eq!(
            (campaign.board.as_str(), campaign.counters, campaign.anchor),
            ("zcu102", 6, 1)
        );
        assert!(campaign.model.ends_with("configs/models/zcu102.toml"));
    }

    #[test]
    fn mistakes_are_named() {
        let field_and_message = |field: &str, message: &str| (field.to_owned(), message.to_owned());
        assert_eq!(
            refused("\"INST_RETIRED\"", "\"INST\""),
            field_and_message("events[0]", "the model does not count `INST`")
        );
        assert_eq!(
            refused("\"LD_RETIRED\"", "\"CPU_CYCLES\""),
            field_and_message("events[2]", "CPU_CYCLES is listed twice")
        );
        assert_eq!(
            refused("anchor = \"CPU_CYCLES\"", "anchor = \"ST_RETIRED\""),
            field_and_message("anchor", "the anchor `ST_RETIRED` is none of the events")
        );
        assert_eq!(
            refused("runs = 50", "runs = 1"),
            field_and_message("runs", "1 is less than 2")
        );
        assert_eq!(refused("counters = 6", "counters = 1").0, "counters");
        assert_eq!(refused("board = \"virt\"", "board = \"pi\"").0, "board");
        assert_eq!(
            refused("vary = 2", "varies = 2").1,
            "unknown field `varies`"
        );
        assert_eq!(
            refused("counters = 6", "counters = 6\nplan = \"best\"").0,
            "plan"
        );
    }
}
