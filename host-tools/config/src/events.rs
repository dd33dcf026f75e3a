//! The events that a CPU can count, and their meaning: a folder of `configs/events`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, MOST_KEPT, closest};
use crate::files;
use crate::problem::{self, Problem, SourceFile};
use cloison_events::finding::{Finding, Severity};
use cloison_events::table::{files_of, standard_files_of};
use cloison_events::{EventId, Source};
use cloison_formats::image::{Counted, Quota};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use cloison_events::{Bounds, CounterIndex, CounterSet, Event, EventTable};

/// Returns the folders of event tables below `directory`, such as `configs/events/arm64`, by name.
/// Those in a vendor's folder, as upstream has them, have its name too: `arm/cortex-a53`.
pub fn folders(directory: &Path) -> Vec<String> {
    let mut names = vec![];
    for name in subfolders(directory) {
        let folder = directory.join(&name);
        let of_vendor = subfolders(&folder);
        if of_vendor.is_empty() || !files_of(&folder).is_empty() {
            names.push(name);
        } else {
            let is_table = |cpu: &String| !files_of(&folder.join(cpu)).is_empty();
            let tables = of_vendor.into_iter().filter(is_table);
            names.extend(tables.map(|cpu| format!("{name}/{cpu}")));
        }
    }
    names
}

/// Returns the names of the folders in one.
pub fn subfolders(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Reads the table in a folder, which is named for its CPU. Returns its problems too, and no table
/// if there are errors.
pub fn load(folder: &Path) -> (Option<EventTable>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut open = |paths: Vec<PathBuf>| -> Vec<TableFile> {
        paths
            .iter()
            .filter_map(|path| TableFile::open(path, &mut problems))
            .collect()
    };
    let standard = open(standard_files_of(folder));
    let files = open(files_of(folder));
    let standard: Vec<_> = standard.iter().map(TableFile::source).collect();
    let sources: Vec<_> = files.iter().map(TableFile::source).collect();
    let cpu = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let table = EventTable::read(cpu, &standard, &sources, &mut |file, finding| {
        problem::push_limited(&mut problems, to_problem(file, finding), MOST_KEPT);
    });
    if table.events.is_empty() && !problems.iter().any(Problem::is_error) {
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
    let is_whole = !problems.iter().any(Problem::is_error);
    (is_whole.then_some(table), problems)
}

/// A file of an event table.
struct TableFile {
    topic: String,
    file: SourceFile,
}

impl TableFile {
    /// Reads a file; records that it cannot be read.
    fn open(path: &Path, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = files::read_text(path, files::CONFIGURATION);
        let file = SourceFile::new(path, text.as_deref().unwrap_or_default().to_owned());
        if let Err(error) = text {
            let message = format!("cannot read {}: {error}", file.name());
            problems.push(Problem::error(&file, "file", 0..0, message));
            return None;
        }
        let topic = path.file_stem().unwrap_or_default();
        Some(Self {
            topic: topic.to_string_lossy().into_owned(),
            file,
        })
    }

    fn source(&self) -> Source<'_, SourceFile> {
        Source {
            file: &self.file,
            topic: &self.topic,
            text: self.file.text(),
        }
    }
}

/// Returns a finding as a problem of its file, with the known name that is closest to an unknown
/// one.
fn to_problem(file: &SourceFile, finding: Finding) -> Problem {
    let near = finding.unknown.map_or_else(String::new, |unknown| {
        near(&unknown.name, unknown.known.iter().map(String::as_str))
    });
    let (field, span, message) = (finding.field, finding.at.span, finding.message);
    let problem = match finding.severity {
        Severity::Error => Problem::error(file, field, span, message),
        Severity::Warning => Problem::warning(file, field, span, message),
    };
    let problem = problem.label(finding.at.label).help(near + &finding.help);
    match finding.also {
        Some(mark) => problem.also(mark.span, mark.label),
        None => problem,
    }
}

/// Returns the event that a field gives by name or number.
pub(crate) fn resolve(table: &EventTable, field: &Field<'_>) -> Option<EventId> {
    let text = field.string("an event's name or number: \"INST_RETIRED\", \"0x08\"")?;
    match find(table, text) {
        Ok(event) => Some(event.id),
        Err(help) => {
            let named = if text.starts_with("0x") {
                text.to_owned()
            } else {
                format!("`{text}`")
            };
            let error = field.error(format!("the {} has no event {named}", table.cpu));
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
pub fn find<'a>(table: &'a EventTable, text: &str) -> Result<&'a Event, String> {
    let list = format!("`cloison events list --cpu {}` lists its events", table.cpu);
    if let Some(digits) = text.strip_prefix("0x") {
        let number = u16::from_str_radix(digits, 16).ok();
        // A table may have a name that begins so.
        return number
            .and_then(|number| table.by_id(EventId(number)))
            .or_else(|| table.by_name(text))
            .ok_or(list);
    }
    table.by_name(text).ok_or_else(|| {
        let near = near(text, table.events.iter().map(|event| event.name.as_str()));
        format!("{near}{list}; a number is written as \"0x17\"")
    })
}

/// Returns `did you mean `X`? ` with the closest of the known names, or nothing.
fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, known).map_or_else(String::new, |meant| format!("did you mean `{meant}`? "))
}

/// Records an event that the counter which the hypervisor gives to this place in a list cannot
/// count.
fn check_counter(element: &Field<'_>, events: &EventTable, event: EventId, place: usize) {
    let Some(event) = events.by_id(event).filter(|event| {
        let counter = CounterIndex::new(place as u32);
        !counter.is_some_and(|counter| event.counters.contains(counter))
    }) else {
        return;
    };
    let message = format!("counter {place} cannot count {}", event.name);
    let can = format!("only counters {} can", event.counters);
    let help = "events get counters in the order of their list, from 0: list it elsewhere, or in \
                another run";
    element.push(element.error(message).label(can).help(help));
}

/// Reads a list of events without duplicates, each of which its counter can count.
pub(crate) fn read_events(field: &Field<'_>, events: &EventTable) -> Vec<EventId> {
    let mut hems = Vec::new();
    for element in field.elements().unwrap_or_default() {
        let Some(event) = resolve(events, &element) else {
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
pub struct EventNames(BTreeMap<EventId, String>);

impl EventNames {
    /// Returns the names in a table.
    pub fn of(table: &EventTable) -> Self {
        Self(
            table
                .events
                .iter()
                .map(|event| (event.id, event.name.clone()))
                .collect(),
        )
    }
    /// Returns the events of a quota: `L2D_CACHE_REFILL + 2 x L2D_CACHE_WB`.
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
            .get(&event)
            .cloned()
            .unwrap_or_else(|| event.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::Context;
    use crate::event_map::{CpuId, CpuMap};
    use cloison_metrics::Metric;

    fn shipped(architecture: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../configs/events")
            .join(architecture)
    }

    pub fn table(architecture: &str, cpu: &str) -> EventTable {
        let (table, problems) = load(&shipped(architecture).join(cpu));
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

    /// The RISC-V paper's table 2: each event has one counter; and its table 3, from the counts of
    /// its listing of CoreMark.
    #[test]
    fn cva6_counts_and_computes_what_the_paper_says() {
        let (map, _) = CpuMap::load(&shipped("riscv").join("mapfile.csv"));
        let cva6 = table("riscv", map.folder(CpuId::riscv(3, 0)).expect("in the map"));
        let counters: Vec<u64> = cva6
            .events
            .iter()
            .flat_map(|event| event.counters.counters())
            .map(u64::from)
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

    /// Returns the problems of a folder with these files, below one with the events of the
    /// architecture.
    fn problems_of(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("cpu");
        std::fs::create_dir(&folder).expect("a folder");
        let standard = r#"[{"EventName": "INST_RETIRED", "EventCode": "0x08", "BriefDescription": "Instructions"}]"#;
        std::fs::write(directory.path().join("common-and-microarch.json"), standard)
            .expect("written");
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let (table, problems) = load(&folder);
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
                "a.json [B]: left out: 0x01 is A already",
            ),
            (
                vec![event("A", "0x1"), event("A", "0x2")],
                "a.json [A]: left out: A has the number 0x01 already",
            ),
            (
                vec![event("A", "0x8"), standard()],
                "a.json [INST_RETIRED]: left out: 0x08 is A already",
            ),
            (
                vec![standard(), r#"{"ArchStdEvent": "INST"}"#.into()],
                "a.json [INST].ArchStdEvent: left out: there is no event `INST`",
            ),
            (
                vec![bound],
                "a.json [INST_RETIRED].Bounds: unknown bound `all`",
            ),
            (
                vec![standard(), metric("m", "INST / 2")],
                "a.json [m].MetricExpr: left out: the cpu has no event `INST`",
            ),
            (
                vec![standard(), metric("m", "2 *")],
                "a.json [m].MetricExpr: left out: `2 *` cannot be computed",
            ),
            (
                vec![
                    standard(),
                    metric("m", "INST_RETIRED"),
                    metric("m", "INST_RETIRED"),
                ],
                "a.json [m].MetricName: left out: there are two metrics",
            ),
        ] {
            let problems = problems_of(&[("a.json", &format!("[{}]", entries.join(",")))]);
            assert!(
                problems.len() == 1 && problems[0].starts_with(wanted),
                "{wanted}: {problems:?}"
            );
        }
        let one = format!("[{}]", standard());
        assert_eq!(
            problems_of(&[("a.json", &one), ("b.json", &one)]),
            ["b.json [INST_RETIRED]: left out: 0x08 is INST_RETIRED already"]
        );
        assert_eq!(
            problems_of(&[("a.json", &one), ("notes.txt", "?")]),
            [""; 0]
        );
        assert!(problems_of(&[("a.json", "no")])[0].starts_with("a.json syntax: not JSON"));
    }

    /// Every table of Linux's `tools/perf/pmu-events/arch/arm64`, or every file of Arm's, each in
    /// a folder: `UPSTREAM_EVENTS=DIR`.
    #[test]
    #[ignore = "on demand: needs the tables of another project, in the folder UPSTREAM_EVENTS"]
    fn every_table_of_a_folder_is_read() {
        let root = PathBuf::from(std::env::var("UPSTREAM_EVENTS").expect("a folder"));
        let mut refused = vec![];
        for cpu in folders(&root) {
            let (table, problems) = load(&root.join(&cpu));
            let Some(table) = table else {
                refused.push(cpu);
                continue;
            };
            println!(
                "{cpu}: {} events, {} metrics, {} warnings",
                table.events.len(),
                table.metrics.len(),
                problems.len()
            );
            assert!(table.events.len() > 10, "{cpu}");
        }
        assert_eq!(refused, [""; 0]);
    }

    /// Tables as upstream has them: a vendor's folder, several files of the architecture, and what
    /// Cloison does not read.
    #[test]
    fn tables_of_upstreams_form_are_read_and_what_is_left_out_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("written");
        };
        write(
            "common.json",
            r#"[{"EventName": "CYCLES", "EventCode": "0x11", "BriefDescription": "Cycles"}]"#,
        );
        write(
            "recommended.json",
            r#"[{"EventName": "READS", "EventCode": "0x60", "PublicDescription": "Reads,\n of all"},
                {"MetricName": "rate", "MetricExpr": "READS / CYCLES", "ScaleUnit": "100%"},
                {"MetricName": "slots", "MetricExpr": "READS / (#slots * CYCLES)"}]"#,
        );
        write("vendor/notes.txt", "no table");
        write("vendor/mesh/sys/mesh.json", "[]");
        write(
            "vendor/cpu/bus.json",
            r#"[{"ArchStdEvent": "CYCLES"}, {"ArchStdEvent": "READS"}, {"ArchStdEvent": "rate"},
                {"ArchStdEvent": "slots"}, {"EventName": "OLD", "ConfigCode": "0x3"},
                {"EventName": "DDR", "EventCode": "0x11", "Unit": "ddrc"},
                {"EventName": "AGAIN", "EventCode": "0x11"}, {"EventName": "PLAIN", "EventCode": "0x12"},
                {"MetricName": "time", "MetricExpr": "READS / duration_time"},
                {"MetricName": "user", "MetricExpr": "READS@u@ / CYCLES"}]"#,
        );
        assert_eq!(folders(root), ["vendor/cpu"]);
        let (table, problems) = load(&root.join("vendor/cpu"));
        let table = table.expect("a table");
        assert_eq!(table.cpu, "cpu");
        let events: Vec<_> = table
            .events
            .iter()
            .map(|it| (it.name.as_str(), it.meaning.as_str()))
            .collect();
        assert_eq!(
            events,
            [
                ("CYCLES", "Cycles"),
                ("PLAIN", "PLAIN"),
                ("READS", "Reads, of all")
            ]
        );
        assert_eq!(
            table
                .metrics
                .iter()
                .map(|it| it.name.as_str())
                .collect::<Vec<_>>(),
            ["rate"]
        );
        let named: Vec<&str> = problems.iter().map(Problem::field).collect();
        assert_eq!(
            named,
            [
                "[OLD].ConfigCode",
                "[OLD]",
                "[DDR].Unit",
                "[AGAIN]",
                "[slots].MetricExpr",
                "[time].MetricExpr",
                "[user].MetricExpr",
            ]
        );
        assert!(!problems.iter().any(Problem::is_error));
    }
}
