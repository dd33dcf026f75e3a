//! `cloisonctl list`: what can be counted, as PAPI's `papi_avail` shows it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::failure::Failure;
use crate::ways::{By, Part, Task, Way, choose, with};
use clap::Args;
use cloison_epapi::cpu::Cpu;
use cloison_epapi::preset;
use cloison_epapi::{Library, query, tables, terms};
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub struct List {
    /// Only what can be counted
    #[arg(short, long)]
    available: bool,
    /// The CPU's own events, instead of PAPI's presets
    #[arg(short, long)]
    native: bool,
    /// Show the verdicts on this machine, of configs/validation/verdicts
    #[arg(short, long, value_name = "MACHINE")]
    machine: Option<String>,
    /// How to count; by default with the first that the VM has
    #[arg(long, value_name = "WAY")]
    by: Option<By>,
    /// The vCPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    vcpu: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists events.
pub fn list(wanted: &List) -> Result<(), Failure> {
    let by = wanted.by.map_or_else(choose, Ok)?;
    let text = with(by, wanted.vcpu, Part::All, wanted)?;
    print!("{text}");
    Ok(())
}

/// An event and what is known about it.
struct Line {
    name: &'static str,
    code: i32,
    /// How many runs it takes; 0: it cannot be counted.
    runs: u32,
    /// Its native events.
    terms: Vec<String>,
    closeness: &'static str,
    verdict: Option<&'static str>,
    meaning: &'static str,
}

impl Task for &List {
    type Output = String;

    fn run<W: Way>(self, way: W) -> Result<String, Failure> {
        let mut library = Library::new(way, 0);
        library.library_init()?;
        let machine = library.machine()?;
        if let Some(name) = self
            .machine
            .as_deref()
            .filter(|name| !tables::machines(machine.cpu.name).any(|it| it == *name))
        {
            let known: Vec<&str> = tables::machines(machine.cpu.name).collect();
            return Err(Failure::new(
                format!(
                    "the events of the {} were not validated on `{name}`",
                    machine.cpu.name
                ),
                format!("machines: {}", known.join(", ")),
            ));
        }
        let codes: Vec<i32> = if self.native {
            machine
                .cpu
                .natives
                .iter()
                .map(|event| terms::native_code(event.id))
                .collect()
        } else {
            preset::ALL.iter().map(|preset| preset.code).collect()
        };
        let lines = codes.into_iter().filter_map(|code| {
            let verdict = self
                .machine
                .as_deref()
                .and_then(|name| query::verdict(machine.cpu, code, name).ok());
            line(
                &library,
                machine.cpu,
                code,
                verdict.map(tables::Verdict::words),
            )
        });
        let lines: Vec<Line> = lines
            .filter(|line| !self.available || line.runs > 0)
            .collect();
        Ok(if self.json {
            to_json(&lines, machine.cpu, machine.number())
        } else {
            to_text(&lines, machine.cpu, machine.number())
        })
    }
}

fn line<W: Way>(
    library: &Library<W>,
    cpu: &Cpu,
    code: i32,
    verdict: Option<&'static str>,
) -> Option<Line> {
    let name = query::name_of(cpu, code).ok()?;
    let Ok(info) = library.event_info(code) else {
        let meaning = preset::by_code(code)?.meaning;
        return Some(Line {
            name,
            code,
            runs: 0,
            terms: Vec::new(),
            closeness: "",
            verdict,
            meaning,
        });
    };
    let term = |term: &cloison_epapi::cpu::Term| {
        let name = cpu.native(term.event).map_or("", |native| native.name);
        if term.minus {
            format!("-{name}")
        } else {
            name.to_owned()
        }
    };
    let terms = info.terms.as_slice().iter().map(term).collect();
    Some(Line {
        name,
        code,
        runs: info.runs,
        terms,
        closeness: info.terms.closeness.word(),
        verdict,
        meaning: info.meaning,
    })
}

fn to_text(lines: &[Line], cpu: &Cpu, counters: u32) -> String {
    let mut text = format!(
        "{}: {counters} counters, the cycle counter included\n\n",
        cpu.name
    );
    text += &format!(
        "{:<24} {:>10}  {:<5} {:<7} {:<21} description\n",
        "name", "code", "avail", "derived", "verdict"
    );
    for Line {
        name,
        code,
        runs,
        terms,
        closeness,
        verdict,
        meaning,
    } in lines
    {
        let available = match runs {
            0 => "no".to_owned(),
            1 => "yes".to_owned(),
            runs => format!("{runs}runs"),
        };
        let derived = if terms.len() > 1 { "yes" } else { "no" };
        let verdict = verdict.unwrap_or("-");
        let close = if ["", "exact"].contains(closeness) {
            String::new()
        } else {
            format!(" ({closeness})")
        };
        text += &format!(
            "{name:<24} {code:#010x}  {available:<5} {derived:<7} {verdict:<21} {meaning}{close}\n"
        );
    }
    let available = lines.iter().filter(|line| line.runs > 0).count();
    let derived = lines.iter().filter(|line| line.terms.len() > 1).count();
    text + &format!(
        "\n{} events, {available} available, {derived} derived\n",
        lines.len()
    )
}

fn to_json(lines: &[Line], cpu: &Cpu, counters: u32) -> String {
    let events: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "name": line.name,
                "code": line.code as u32,
                "available": line.runs > 0,
                "runs": line.runs,
                "derived": line.terms.len() > 1,
                "terms": line.terms,
                "closeness": line.closeness,
                "verdict": line.verdict,
                "description": line.meaning,
            })
        })
        .collect();
    format!(
        "{:#}\n",
        json!({ "cpu": cpu.name, "counters": counters, "events": events })
    )
}
