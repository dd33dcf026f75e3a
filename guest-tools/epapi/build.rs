//! Writes the CPUs' event tables and the verdicts on their events as Rust, from configs/events and configs/validation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The events of the architecture, which the tables name by `ArchStdEvent`.
const STANDARD: &str = "common-and-microarch.json";

type Events = BTreeMap<u16, Event>;

#[derive(Clone)]
struct Event {
    name: String,
    meaning: String,
    /// A bit that is set: this counter cannot count the event.
    mask: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../configs");
    let arm64 = root.join("events/arm64");
    let verdicts = root.join("validation/verdicts");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", arm64.display());
    println!("cargo::rerun-if-changed={}", verdicts.display());

    let mut standard = Vec::new();
    read(&arm64.join(STANDARD), &[], &mut |found| {
        if let Found::Event(number, event) = found {
            standard.push((number, event));
        }
    })?;
    let mut text = String::new();
    let mut tables: BTreeMap<String, Events> = BTreeMap::new();
    for line in fs::read_to_string(arm64.join("mapfile.csv"))?
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [id, _, folder, "core"] = line.split(',').collect::<Vec<_>>()[..] else {
            continue;
        };
        let (mut events, mut metrics) = (Events::new(), String::new());
        for file in files(&arm64.join(folder), "json")? {
            read(&file, &standard, &mut |found| match found {
                Found::Event(number, event) => drop(events.insert(number, event)),
                Found::Metric(text) => metrics += &text,
            })?;
        }
        let constant = folder.replace('-', "_").to_uppercase();
        writeln!(
            text,
            "/// MIDR_EL1 of the {folder}, without variant and revision."
        )?;
        writeln!(text, "pub(crate) const {constant}_MIDR: u32 = {id};")?;
        writeln!(text, "/// The events of the {folder}, by number.")?;
        writeln!(text, "pub(crate) const {constant}: &[Native] = &[")?;
        for (
            number,
            Event {
                name,
                meaning,
                mask,
            },
        ) in &events
        {
            writeln!(
                text,
                "    Native {{ number: {number:#x}, name: {name:?}, meaning: {meaning:?}, mask: {mask:#x} }},"
            )?;
        }
        writeln!(text, "];")?;
        writeln!(
            text,
            "/// What can be computed from the events of the {folder}."
        )?;
        writeln!(
            text,
            "pub(crate) const {constant}_METRICS: &[Metric] = &[\n{metrics}];"
        )?;
        tables.insert(folder.to_owned(), events);
    }
    write_verdicts(&verdicts, &tables, &mut text)?;
    fs::write(
        PathBuf::from(std::env::var("OUT_DIR")?).join("tables.rs"),
        text,
    )?;
    Ok(())
}

/// Returns the files of a directory with this extension, sorted.
fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// An entry of a table.
enum Found {
    /// An event, with its number.
    Event(u16, Event),
    /// A metric, as Rust.
    Metric(String),
}

/// Calls `found` with each entry of a file.
fn read(
    path: &Path,
    standard: &[(u16, Event)],
    found: &mut dyn FnMut(Found),
) -> Result<(), Box<dyn Error>> {
    let Value::Array(entries) = serde_json::from_str(&fs::read_to_string(path)?)? else {
        return Err(format!("{}: not an array", path.display()).into());
    };
    for entry in entries {
        let text = |key: &str| entry[key].as_str();
        if let Some(name) = text("MetricName") {
            let expression = text("MetricExpr")
                .ok_or_else(|| format!("{}: {name} has no expression", path.display()))?;
            let (meaning, scale) = (
                text("BriefDescription").unwrap_or_default(),
                text("ScaleUnit").unwrap_or("1"),
            );
            found(Found::Metric(format!(
                "    Metric {{ name: {name:?}, expression: {expression:?}, meaning: {meaning:?}, scale: {scale:?} }},\n"
            )));
            continue;
        }
        if let Some(name) = text("ArchStdEvent") {
            let known = standard.iter().find(|(_, event)| event.name == name);
            let (number, event) = known
                .ok_or_else(|| format!("{}: no event {name}", path.display()))?
                .clone();
            found(Found::Event(number, event));
            continue;
        }
        let (Some(name), Some(code)) = (text("EventName"), text("EventCode")) else {
            return Err(format!("{}: an event without name or code", path.display()).into());
        };
        let meaning = text("BriefDescription")
            .or(text("PublicDescription"))
            .unwrap_or_default()
            .to_owned();
        let mask = text("CounterMask").map_or(Ok(0), hexadecimal)?;
        found(Found::Event(
            u16::try_from(hexadecimal(code)?)?,
            Event {
                name: name.to_owned(),
                meaning,
                mask,
            },
        ));
    }
    Ok(())
}

fn hexadecimal(text: &str) -> Result<u32, Box<dyn Error>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    Ok(u32::from_str_radix(
        digits.ok_or_else(|| format!("{text} is not hexadecimal"))?,
        16,
    )?)
}

fn write_verdicts(
    directory: &Path,
    tables: &BTreeMap<String, Events>,
    text: &mut String,
) -> Result<(), Box<dyn Error>> {
    writeln!(text, "/// The verdicts of configs/validation/verdicts.")?;
    writeln!(text, "pub(crate) const MACHINES: &[Machine] = &[")?;
    for file in files(directory, "toml")? {
        let table: toml::Table = fs::read_to_string(&file)?.parse()?;
        let cpu = table
            .get("cpu")
            .and_then(toml::Value::as_str)
            .unwrap_or_default();
        let Some(events) = tables.get(cpu) else {
            continue;
        };
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        writeln!(
            text,
            "    Machine {{ name: {name:?}, cpu: {cpu:?}, verdicts: &["
        )?;
        for verdict in table
            .get("verdict")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let word = |key: &str| {
                verdict
                    .get(key)
                    .and_then(toml::Value::as_str)
                    .unwrap_or_default()
            };
            let number = events
                .iter()
                .find(|(_, event)| event.name == word("event"))
                .map(|(number, _)| number);
            if let Some(number) = number {
                let variant: String = word("verdict").split(' ').map(capital).collect();
                writeln!(text, "        ({number:#x}, Verdict::{variant}),")?;
            }
        }
        writeln!(text, "    ] }},")?;
    }
    writeln!(text, "];")?;
    Ok(())
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
