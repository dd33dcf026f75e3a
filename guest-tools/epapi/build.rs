//! Writes the CPUs' event tables and the verdicts on their events as Rust, from configs/events and
//! configs/validation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_events::finding::Severity;
use cloison_events::table::{files_of, standard_files_of};
use cloison_events::{EventTable, Source, Verdict};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../configs");
    let arm64 = root.join("events/arm64");
    let verdicts = root.join("validation/verdicts");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", arm64.display());
    println!("cargo::rerun-if-changed={}", verdicts.display());

    let mut text = String::new();
    let mut tables = Vec::new();
    for line in fs::read_to_string(arm64.join("mapfile.csv"))?
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [id, _, folder, "core"] = line.split(',').collect::<Vec<_>>()[..] else {
            continue;
        };
        let table = read(&arm64, folder)?;
        write_table(id, &table, &mut text)?;
        tables.push(table);
    }
    write_verdicts(&verdicts, &tables, &mut text)?;
    fs::write(
        PathBuf::from(std::env::var("OUT_DIR")?).join("tables.rs"),
        text,
    )?;
    Ok(())
}

/// Reads a CPU's event table; anything that is wrong in it stops the build.
fn read(directory: &Path, cpu: &str) -> Result<EventTable, Box<dyn Error>> {
    let open = |path: PathBuf| fs::read_to_string(&path).map(|text| (path, text));
    let read_all = |paths: Vec<PathBuf>| paths.into_iter().map(open).collect::<Result<Vec<_>, _>>();
    let folder = directory.join(cpu);
    let standard = read_all(standard_files_of(&folder))?;
    let files = read_all(files_of(&folder))?;
    let standard: Vec<_> = standard.iter().map(source).collect();
    let sources: Vec<_> = files.iter().map(source).collect();
    let mut errors = String::new();
    let table = EventTable::read(cpu, &standard, &sources, &mut |(path, text), finding| {
        let place = format!("{}:{}", path.display(), finding.line(text));
        let shown = format!("{place}: {}: {}", finding.field, finding.message);
        match finding.severity {
            Severity::Error => errors = format!("{errors}\n{shown}; {}", finding.help),
            Severity::Warning => println!("cargo::warning={shown}; {}", finding.help),
        }
    });
    if errors.is_empty() {
        Ok(table)
    } else {
        Err(errors.into())
    }
}

/// Returns a file as the reader takes it. What its events are about is not used.
fn source(file: &(PathBuf, String)) -> Source<'_, (PathBuf, String)> {
    Source {
        file,
        topic: "",
        text: &file.1,
    }
}

fn write_table(midr: &str, table: &EventTable, text: &mut String) -> Result<(), Box<dyn Error>> {
    let cpu = &table.cpu;
    let constant = cpu.replace('-', "_").to_uppercase();
    writeln!(
        text,
        "/// MIDR_EL1 of the {cpu}, without variant and revision.\n\
         pub(crate) const {constant}_MIDR: u32 = {midr};\n\
         /// The events of the {cpu}, by number.\n\
         pub(crate) const {constant}: &[Native] = &["
    )?;
    for event in &table.events {
        let (id, name, meaning) = (event.id, &event.name, &event.meaning);
        let counters = event.counters.bits();
        writeln!(
            text,
            "    Native {{ id: EventId({id}), name: {name:?}, meaning: {meaning:?}, counters: \
             CounterSet::from_bits({counters:#x}) }},"
        )?;
    }
    writeln!(
        text,
        "];\n\
         /// What can be computed from the events of the {cpu}.\n\
         pub(crate) const {constant}_METRICS: &[Metric] = &["
    )?;
    for metric in &table.metrics {
        let (name, expression, meaning) = (&metric.name, &metric.expression, &metric.meaning);
        let (factor, unit) = &metric.scale;
        let scale = format!("{factor}{unit}");
        writeln!(
            text,
            "    Metric {{ name: {name:?}, expression: {expression:?}, meaning: {meaning:?}, \
             scale: {scale:?} }},"
        )?;
    }
    writeln!(text, "];")?;
    Ok(())
}

fn write_verdicts(
    directory: &Path,
    tables: &[EventTable],
    text: &mut String,
) -> Result<(), Box<dyn Error>> {
    let entries = fs::read_dir(directory)?.map(|entry| entry.map(|it| it.path()));
    let mut files = entries.collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|it| it == "toml"));
    files.sort();
    writeln!(text, "/// The verdicts of configs/validation/verdicts.")?;
    writeln!(text, "pub(crate) const MACHINES: &[Machine] = &[")?;
    for file in files {
        let content: toml::Table = fs::read_to_string(&file)?.parse()?;
        let cpu = content.get("cpu").and_then(toml::Value::as_str);
        let Some(table) = tables.iter().find(|table| Some(&*table.cpu) == cpu) else {
            continue;
        };
        let cpu = &table.cpu;
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        writeln!(
            text,
            "    Machine {{ name: {name:?}, cpu: {cpu:?}, verdicts: &["
        )?;
        for recorded in content
            .get("verdict")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let word = |key: &str| {
                let value = recorded.get(key).and_then(toml::Value::as_str);
                value.unwrap_or_default()
            };
            if let Some(event) = table.by_name(word("event")) {
                let words = word("verdict");
                let verdict: Verdict = words
                    .parse()
                    .map_err(|_| format!("{}: no verdict `{words}`", file.display()))?;
                let id = event.id;
                writeln!(text, "        (EventId({id}), Verdict::{verdict:?}),")?;
            }
        }
        writeln!(text, "    ] }},")?;
    }
    writeln!(text, "];")?;
    Ok(())
}
