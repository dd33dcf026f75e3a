//! The events that a CPU can count, and what follows from them: a folder of `configs/events`.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub use crate::event_json::CounterMask;
use crate::event_json::{self, Entry, Text};
use crate::files;
use crate::node::{Context, Field, closest, suggest};
use crate::problem::{Problem, SourceFile};
use cloison_formats::image::{Counted, Quota};
use cloison_formats::units::EventId;
use cloison_metrics::Metric;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The events of the architecture, which the tables beside it name by `ArchStdEvent`.
const STANDARD: &str = "common-and-microarch.json";

/// What a budget of an event limits, whatever the guest does: the only place that says so is the event's table.
///
/// An event without this is no bound: the guest can reach memory without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// All of the core's memory traffic.
    Traffic,
    /// What the core reads; a second budget has to bound what it writes.
    Reads,
    /// What the core writes; a second budget has to bound what it reads.
    Writes,
    /// What the core executes, hence its traffic too, but only as far as the costliest instructions allow.
    Work,
}

impl Bounds {
    /// The words for them in the files.
    const WORDS: [(&str, Self); 4] = [
        ("traffic", Self::Traffic),
        ("reads", Self::Reads),
        ("writes", Self::Writes),
        ("work", Self::Work),
    ];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, bounds)| *bounds == self)
            .map_or("", |(word, _)| word)
    }

    /// Returns whether budgets of events that bound `those` together bound all of a core's memory traffic.
    pub fn suffice(those: &[Self]) -> bool {
        let has = |one| those.contains(&one);
        has(Self::Traffic) || has(Self::Work) || (has(Self::Reads) && has(Self::Writes))
    }
}

/// A PMU event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number in the PMU.
    pub id: EventId,
    /// Its architectural name.
    pub name: String,
    /// What it counts, in one line.
    pub meaning: String,
    /// What it counts, at length.
    pub detail: Option<String>,
    /// What it is about: the name of its file.
    pub topic: String,
    /// The counters that can count it.
    pub counters: CounterMask,
    /// What a budget of it limits, if anything.
    pub bounds: Option<Bounds>,
    /// Bytes that one event stands for, if each stands for as many.
    pub bytes: Option<u32>,
}

/// The events of one CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventTable {
    /// Name of the CPU.
    pub cpu: String,
    /// Its events, by number.
    pub events: Vec<Event>,
    /// What can be computed from them.
    pub metrics: Vec<Metric>,
}

/// Returns the folders of event tables below `directory`, such as `configs/events/arm64`, by name.
pub fn folders(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

impl EventTable {
    /// Returns the event with this number.
    pub fn by_id(&self, id: EventId) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }

    /// Returns the event with this name.
    pub fn by_name(&self, name: &str) -> Option<&Event> {
        self.events.iter().find(|event| event.name == name)
    }

    /// Returns the events whose budget bounds all of a core's memory traffic by itself and as exactly as can be.
    pub fn bounding_traffic(&self) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(|event| event.bounds == Some(Bounds::Traffic))
    }

    /// Reads the table in a folder, which is named for its CPU. Returns its problems too, and no table if there are errors.
    pub fn load(folder: &Path) -> (Option<Self>, Vec<Problem>) {
        let cpu = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let mut problems = Vec::new();
        let standard = folder
            .parent()
            .map(|parent| parent.join(STANDARD))
            .filter(|path| path.is_file());
        let standard = standard.map_or_else(Vec::new, |path| read_file(&path, &mut problems).1);
        let mut table = Self {
            cpu,
            ..Self::default()
        };
        let mut metrics = Vec::new();
        for path in files_of(folder) {
            let topic = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default()
                .to_owned();
            let (file, entries) = read_file(&path, &mut problems);
            for entry in entries {
                if entry.metric.is_some() {
                    metrics.push((file.clone(), entry));
                } else if let Some(event) =
                    table.event(&file, &entry, &standard, &topic, &mut problems)
                {
                    table.events.push(event);
                }
            }
        }
        table.events.sort_by_key(|event| event.id);
        for (file, entry) in metrics {
            match table.metric(&file, &entry) {
                Ok(metric) => table.metrics.push(metric),
                Err(problem) => problems.push(problem),
            }
        }
        if table.events.is_empty() && problems.is_empty() {
            let file = SourceFile::new(folder, String::new());
            problems.push(
                Problem::error(
                    &file,
                    "file",
                    0..0,
                    format!("{} has no events", file.name()),
                )
                .help("an event table is a folder of .json files as perf's pmu-events has them"),
            );
        }
        (
            (!problems.iter().any(Problem::is_error)).then_some(table),
            problems,
        )
    }

    /// Returns an entry's event, unless something is wrong with it.
    fn event(
        &self,
        file: &SourceFile,
        entry: &Entry,
        standard: &[Entry],
        topic: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Event> {
        let own = Entry::default();
        let of = match &entry.standard {
            None => &own,
            Some(Text { text, span }) => {
                let found = standard
                    .iter()
                    .find(|other| other.name.as_ref().is_some_and(|name| name.text == *text));
                let known = standard
                    .iter()
                    .filter_map(|other| other.name.as_ref().map(|name| name.text.as_str()));
                found.or_else(|| {
                    let field = format!("{}.ArchStdEvent", entry.path);
                    let error = Problem::error(
                        file,
                        field,
                        span.clone(),
                        format!("there is no event `{text}`"),
                    );
                    let near = near(text, known);
                    problems.push(
                        error
                            .label("unknown event")
                            .help(format!("{near}{STANDARD} lists those of the architecture")),
                    );
                    None
                })?
            }
        };
        let name = entry.name.as_ref().or(of.name.as_ref())?;
        let (code, _) = entry.code.as_ref().or(of.code.as_ref())?;
        let brief = entry.brief.as_ref().or(of.brief.as_ref());
        let public = entry.public.as_ref().or(of.public.as_ref());
        let id = EventId(*code);
        let mut error = |message: String| {
            let error = Problem::error(file, entry.path.as_str(), entry.span.clone(), message);
            problems.push(error.label("this entry").help("give every event one entry"));
        };
        if let Some(other) = self.by_id(id) {
            error(format!("{id} is {} already", other.name));
        } else if let Some(other) = self.by_name(&name.text) {
            error(format!("{} has the number {} already", name.text, other.id));
        }
        let bounds = entry.bounds.as_ref().and_then(|Text { text, span }| {
            let known = Bounds::WORDS.iter().find(|(word, _)| word == text);
            if known.is_none() {
                let error = Problem::error(
                    file,
                    format!("{}.Bounds", entry.path),
                    span.clone(),
                    format!("unknown bound `{text}`"),
                );
                problems.push(error.label("unknown").help(suggest(
                    text,
                    "bounds",
                    Bounds::WORDS.iter().map(|(word, _)| *word),
                )));
            }
            known.map(|(_, bounds)| *bounds)
        });
        let bytes = entry.bytes.as_ref().and_then(|Text { text, span }| {
            let bytes = text.parse().ok().filter(|bytes| (1..=4096).contains(bytes));
            if bytes.is_none() {
                let path = format!("{}.Bytes", entry.path);
                let error = Problem::error(
                    file,
                    path,
                    span.clone(),
                    format!("`{text}` is not a number of bytes"),
                );
                problems.push(
                    error
                        .label("1 to 4096")
                        .help("write what one event moves, as text: \"64\""),
                );
            }
            bytes
        });
        Some(Event {
            id,
            name: name.text.clone(),
            meaning: brief.or(public)?.text.clone(),
            detail: public.map(|text| text.text.clone()),
            topic: topic.to_owned(),
            counters: entry.mask.or(of.mask).unwrap_or(CounterMask::ANY),
            bounds,
            bytes,
        })
    }

    fn metric(&self, file: &SourceFile, entry: &Entry) -> Result<Metric, Problem> {
        let error = |key: &str, text: &Text, message: String| {
            Problem::error(
                file,
                format!("{}.{key}", entry.path),
                text.span.clone(),
                message,
            )
        };
        let (Some(name), Some(expression)) = (&entry.metric, &entry.expression) else {
            return Err(Problem::error(
                file,
                entry.path.as_str(),
                entry.span.clone(),
                "not a metric",
            ));
        };
        if self.metrics.iter().any(|other| other.name == name.text) {
            return Err(error(
                "MetricName",
                name,
                format!("there are two metrics `{}`", name.text),
            )
            .label("again")
            .help("rename one"));
        }
        let meaning = entry
            .brief
            .as_ref()
            .or(entry.public.as_ref())
            .map_or("", |text| text.text.as_str());
        let scale = entry.scale.as_ref().map(|scale| scale.text.as_str());
        let metric =
            Metric::new(&name.text, &expression.text, meaning, scale).map_err(|wrong| {
                let (key, text) = if wrong.in_scale {
                    ("ScaleUnit", entry.scale.as_ref())
                } else {
                    ("MetricExpr", None)
                };
                error(key, text.unwrap_or(expression), wrong.message)
                    .label("here")
                    .help("a metric is arithmetic with names of events: + - * / and brackets")
            })?;
        match metric
            .events()
            .iter()
            .find(|event| self.by_name(event).is_none())
        {
            None => Ok(metric),
            Some(unknown) => {
                let known = self.events.iter().map(|event| event.name.as_str());
                let near = suggest(unknown, "events", known)
                    .split_once("? ")
                    .map_or(String::new(), |(it, _)| format!("{it}? "));
                Err(error(
                    "MetricExpr",
                    expression,
                    format!("the {} has no event `{unknown}`", self.cpu),
                )
                .label("unknown event")
                .help(format!(
                    "{near}`cloison events list --cpu {}` lists its events",
                    self.cpu
                )))
            }
        }
    }

    /// Returns the event that a field gives by name or number.
    pub(crate) fn resolve(&self, field: &Field<'_>) -> Option<EventId> {
        let text = field.string("an event's name or number: \"INST_RETIRED\", \"0x08\"")?;
        match self.find(text) {
            Ok(event) => Some(event.id),
            Err(help) => {
                let named = if text.starts_with("0x") {
                    text.to_owned()
                } else {
                    format!("`{text}`")
                };
                let error = field.error(format!("the {} has no event {named}", self.cpu));
                field.push(error.label("unknown event").help(help));
                None
            }
        }
    }

    /// Returns the event with a name, or with a number such as `0x17`.
    ///
    /// # Errors
    ///
    /// Returns what to do where there is none.
    pub fn find(&self, text: &str) -> Result<&Event, String> {
        let list = format!("`cloison events list --cpu {}` lists its events", self.cpu);
        if let Some(digits) = text.strip_prefix("0x") {
            let number = u16::from_str_radix(digits, 16).ok();
            return number
                .and_then(|number| self.by_id(EventId(number)))
                .ok_or(list);
        }
        self.by_name(text).ok_or_else(|| {
            let near = self.near(text);
            format!("{near}{list}; a number is written as \"0x17\"")
        })
    }

    /// Returns [`near`] for the table's events.
    fn near(&self, name: &str) -> String {
        near(name, self.events.iter().map(|event| event.name.as_str()))
    }
}

/// Returns `did you mean `X`? ` with the closest of the known names, or nothing.
fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, known).map_or_else(String::new, |meant| format!("did you mean `{meant}`? "))
}

/// Returns the files of a table by name.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect();
    files.sort();
    files
}

/// Returns a file of a table and its entries; adds what is wrong with it.
fn read_file(path: &Path, problems: &mut Vec<Problem>) -> (SourceFile, Vec<Entry>) {
    let text = files::read_text(path, files::CONFIGURATION);
    let file = SourceFile::new(path, text.as_deref().unwrap_or_default().to_owned());
    if let Err(error) = text {
        problems.push(Problem::error(
            &file,
            "file",
            0..0,
            format!("cannot read {}: {error}", file.name()),
        ));
        return (file, Vec::new());
    }
    let context = Context::new(file.clone());
    let entries = event_json::read(&context);
    problems.append(&mut context.into_problems());
    (file, entries)
}

/// Records an event that the counter which the hypervisor gives to this place in a list cannot count.
fn check_counter(element: &Field<'_>, events: &EventTable, event: EventId, place: usize) {
    let Some(event) = events
        .by_id(event)
        .filter(|event| !event.counters.allows(place as u32))
    else {
        return;
    };
    let message = format!("counter {place} cannot count {}", event.name);
    let can = format!("only counters {} can", event.counters);
    let help = "events get counters in the order of their list, from 0: list it elsewhere, or in another run";
    element.push(element.error(message).label(can).help(help));
}

/// Reads a list of events without duplicates, each of which its counter can count.
pub(crate) fn read_events(field: &Field<'_>, events: &EventTable) -> Vec<EventId> {
    let mut hems = Vec::new();
    for element in field.elements().unwrap_or_default() {
        let Some(event) = events.resolve(&element) else {
            continue;
        };
        check_counter(&element, events, event, hems.len());
        if hems.contains(&event) {
            let name = events.by_id(event).map_or("?", |event| event.name.as_str());
            element.push(
                element
                    .error(format!("{name} is counted twice"))
                    .label("again")
                    .help("list every event once; a counter saved is a counter for another event"),
            );
        } else {
            hems.push(event);
        }
    }
    hems
}

/// Names of PMU events.
#[derive(Clone, Debug, Default)]
pub struct EventNames(BTreeMap<u16, String>);

impl EventNames {
    /// Returns the names in a table.
    pub fn of(table: &EventTable) -> Self {
        Self(
            table
                .events
                .iter()
                .map(|event| (event.id.0, event.name.clone()))
                .collect(),
        )
    }
    /// Returns what a quota counts: `L2D_CACHE_REFILL + 2 x L2D_CACHE_WB`.
    pub fn counted(&self, quota: &Quota) -> String {
        let term = |counted: Counted| match counted.weight {
            1 => self.name(counted.event),
            weight => format!("{weight} x {}", self.name(counted.event)),
        };
        quota.counted().map(term).collect::<Vec<_>>().join(" + ")
    }

    /// Returns an event's name, or its number if it has none.
    pub fn name(&self, event: EventId) -> String {
        self.0
            .get(&event.0)
            .cloned()
            .unwrap_or_else(|| event.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event_map::{CpuId, CpuMap};

    fn shipped(architecture: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../configs/events")
            .join(architecture)
    }

    pub fn table(architecture: &str, cpu: &str) -> EventTable {
        let (table, problems) = EventTable::load(&shipped(architecture).join(cpu));
        assert!(problems.is_empty(), "{cpu}: {problems:?}");
        table.expect("a table without problems")
    }

    #[test]
    fn every_shipped_table_is_whole_and_in_its_map() {
        for (architecture, cpus) in [
            ("arm64", &["cortex-a53", "cortex-a72"][..]),
            ("riscv", &["cva6"]),
        ] {
            let (map, problems) = CpuMap::load(&shipped(architecture).join("mapfile.csv"));
            assert!(problems.is_empty(), "{problems:?}");
            assert_eq!(folders(&shipped(architecture)), cpus);
            assert_eq!(map.folders().collect::<Vec<_>>(), cpus);
            for cpu in cpus {
                assert!(table(architecture, cpu).metrics.len() > 5);
            }
        }
        let [a53, a72] = ["cortex-a53", "cortex-a72"].map(|cpu| table("arm64", cpu));
        assert_eq!((a53.events.len(), a72.events.len()), (59, 84));
        assert_eq!(
            a53.by_id(EventId(0x17)).map(|event| event.topic.as_str()),
            Some("cache")
        );
        assert_eq!(
            a53.bounding_traffic()
                .map(|event| event.name.as_str())
                .collect::<Vec<_>>(),
            ["BUS_ACCESS"]
        );
    }

    /// The RISC-V paper's table 2: each event has one counter; and its table 3, from the counts of its listing of CoreMark.
    #[test]
    fn cva6_counts_and_computes_what_the_paper_says() {
        let (map, _) = CpuMap::load(&shipped("riscv").join("mapfile.csv"));
        let cva6 = table("riscv", map.folder(CpuId::riscv(3, 0)).expect("in the map"));
        let counters: Vec<u32> = cva6
            .events
            .iter()
            .flat_map(|event| event.counters.counters())
            .collect();
        assert_eq!(
            counters,
            [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        );
        let counts = [
            ("ariane_branch_jump", 236_011_286),
            ("ariane_call", 5_312_578),
            ("ariane_mis_predict", 44_038_701),
            ("ariane_ret", 1_406_812),
            ("ariane_dtlb_miss", 1_118),
            ("ariane_itlb_miss", 6_869_722),
            ("ariane_l1_dcache_miss", 2_786_559),
            ("ariane_l1_icache_miss", 8_443_755),
            ("ariane_load", 229_104_327),
            ("ariane_store", 64_628_214),
            ("ariane_exception", 22_486),
            ("ariane_exception_ret", 22_486),
            ("ariane_if_empty", 239_773_306),
            ("ariane_sb_full", 9_094_173),
            ("riscv_cycles", 2_368_685_119),
            ("riscv_instret", 1_467_339_227),
        ];
        let count = |name: &str| {
            counts
                .iter()
                .find(|(event, _)| *event == name)
                .map(|(_, count)| *count)
        };
        let shown = |metric: &Metric| {
            metric
                .show(metric.compute(count).expect("all are counted"))
                .to_string()
        };
        let shown: Vec<String> = cva6.metrics.iter().map(shown).collect();
        assert_eq!(
            shown,
            [
                "18.14%", "0.95%", "0.58%", "0.38%", "10.12%", "0.6195", "0.00%", "0.47%"
            ]
        );
        assert!(counts.iter().all(|(name, _)| cva6.by_name(name).is_some()));
    }

    /// The hypervisor gives counters in the order of a list, so a mask decides about its places.
    #[test]
    fn an_event_is_listed_where_its_counter_can_count_it() {
        let cva6 = table("riscv", "cva6");
        let problems = |list: &str| -> Vec<String> {
            let context = Context::new(SourceFile::new(
                Path::new("list.toml"),
                format!("hems = {list}\n"),
            ));
            let document = context.parse().expect("TOML");
            let root = context.root(&document);
            let events = read_events(&root.optional("hems").expect("it is there"), &cva6);
            assert!(!events.is_empty());
            context
                .into_problems()
                .iter()
                .map(|it| format!("{}: {}", it.field(), it.message()))
                .collect()
        };
        // The cycles are counted by counter 0, the retired instructions by counter 2.
        assert_eq!(problems(r#"["riscv_cycles"]"#), [""; 0]);
        assert_eq!(
            problems(r#"["riscv_cycles", "riscv_instret"]"#),
            ["hems[1]: counter 1 cannot count riscv_instret"]
        );
    }

    /// Returns the problems of a folder with these files, below one with the events of the architecture.
    fn load(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("cpu");
        std::fs::create_dir(&folder).expect("a folder");
        let standard = r#"[{"EventName": "INST_RETIRED", "EventCode": "0x08", "BriefDescription": "Instructions"}]"#;
        std::fs::write(directory.path().join(STANDARD), standard).expect("written");
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let (table, problems) = EventTable::load(&folder);
        assert_eq!(table.is_some(), !problems.iter().any(Problem::is_error));
        let shown = |problem: &Problem| {
            let file = problem
                .file()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            format!("{file} {}: {}", problem.field(), problem.message())
        };
        problems.iter().map(shown).collect()
    }

    #[test]
    fn what_is_wrong_between_entries_is_said() {
        let event = |name: &str, code: &str| {
            format!(r#"{{"EventName": "{name}", "EventCode": "{code}", "BriefDescription": "x"}}"#)
        };
        let metric = |name: &str, expression: &str| {
            format!(r#"{{"MetricName": "{name}", "MetricExpr": "{expression}"}}"#)
        };
        let standard = || r#"{"ArchStdEvent": "INST_RETIRED"}"#.to_owned();
        let bound = r#"{"ArchStdEvent": "INST_RETIRED", "Bounds": "all"}"#.to_owned();
        for (entries, wanted) in [
            (vec![], "cpu file: "),
            (
                vec![event("A", "0x1"), event("B", "0x1")],
                "a.json [B]: 0x01 is A already",
            ),
            (
                vec![event("A", "0x1"), event("A", "0x2")],
                "a.json [A]: A has the number 0x01 already",
            ),
            (
                vec![event("A", "0x8"), standard()],
                "a.json [INST_RETIRED]: 0x08 is A already",
            ),
            (
                vec![r#"{"ArchStdEvent": "INST"}"#.into()],
                "a.json [INST].ArchStdEvent: there is no event `INST`",
            ),
            (
                vec![bound],
                "a.json [INST_RETIRED].Bounds: unknown bound `all`",
            ),
            (
                vec![standard(), metric("m", "INST / 2")],
                "a.json [m].MetricExpr: the cpu has no event `INST`",
            ),
            (
                vec![standard(), metric("m", "2 *")],
                "a.json [m].MetricExpr: `2 *` cannot be computed",
            ),
            (
                vec![
                    standard(),
                    metric("m", "INST_RETIRED"),
                    metric("m", "INST_RETIRED"),
                ],
                "a.json [m].MetricName: there are two metrics",
            ),
        ] {
            let problems = load(&[("a.json", &format!("[{}]", entries.join(",")))]);
            assert!(
                problems.len() == 1 && problems[0].starts_with(wanted),
                "{wanted}: {problems:?}"
            );
        }
        let one = format!("[{}]", standard());
        assert_eq!(
            load(&[("a.json", &one), ("b.json", &one)]),
            ["b.json [INST_RETIRED]: 0x08 is INST_RETIRED already"]
        );
        assert_eq!(load(&[("a.json", &one), ("notes.txt", "?")]), [""; 0]);
        assert!(load(&[("a.json", "no")])[0].starts_with("a.json syntax: not JSON"));
    }
}
