//! What each core did over time, in Chrome's trace format, which Perfetto opens.
//!
//! A track per core has its guest, the hypervisor, waiting, and being held by a budget. Others have
//! the VMs' segments and the moved pages, and counters have the events of each core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::symbols::Symbols;
use cloison_board_model::profile::{EVENTS, Moment, Recorded, Sample, State};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::image::System;
use cloison_formats::telemetry::MigrationOutcome;
use serde_json::json;

/// Events with a counter track, by their places in [`EVENTS`], with what they are in a unit of time.
const COUNTED: [(usize, &str); 3] = [
    (1, "instructions per us"),
    (5, "L2 refills per ms"),
    (7, "bus accesses per ms"),
];
/// Number of the track of a core's segments, less the core's.
const SEGMENTS: usize = 100;
/// Number of the track of migrations. Those of a batch happen at the same time, so that each is a
/// moment.
const MIGRATIONS: usize = 200;
/// Modules of the hypervisor in which a core waits without a vCPU that could run.
const PARKED: [&str; 2] = ["vm::life", "devices::power"];

/// The events of a file.
struct Events {
    lines: Vec<String>,
    clock_mhz: u64,
    origin: u64,
}

impl Events {
    /// Returns a time of the model's clock in ns since the run began.
    fn nanoseconds(&self, cycle: u64) -> u64 {
        let since = u128::from(cycle.saturating_sub(self.origin));
        (since * 1000 / u128::from(self.clock_mhz.max(1))) as u64
    }

    fn add(&mut self, kind: &str, name: &str, track: usize, at: u64, more: &str) {
        let name = json!(name);
        let time = microseconds(at);
        self.lines.push(format!(
            "{{\"ph\":\"{kind}\",\"name\":{name},\"pid\":1,\"tid\":{track},\"ts\":{time}{more}}}"
        ));
    }

    fn span(&mut self, name: &str, category: &str, track: usize, from: u64, to: u64, args: &str) {
        let lasts = microseconds(to.saturating_sub(from));
        let more = format!(",\"dur\":{lasts},\"cat\":\"{category}\"{args}");
        self.add("X", name, track, from, &more);
    }

    fn name_track(&mut self, track: usize, name: &str) {
        let name = json!(name);
        self.lines.push(format!(
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{track},\
             \"args\":{{\"name\":{name}}}}}"
        ));
        self.lines.push(format!(
            "{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":{track},\
             \"args\":{{\"sort_index\":{track}}}}}"
        ));
    }
}

/// Returns ns as us, with all digits.
fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// Returns the trace of a run as a file. `el2` are the symbols of the hypervisor.
pub fn file(
    title: &str,
    recorded: &Recorded,
    telemetry: &Telemetry,
    system: &System,
    el2: &Symbols,
) -> String {
    let mut events = Events {
        lines: Vec::new(),
        clock_mhz: recorded.clock_mhz,
        origin: recorded.origin,
    };
    let process = json!(title);
    events.lines.push(format!(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{{\"name\":{process}}}}}"
    ));
    let cores = recorded.counts.cores.len();
    for core in 0..cores {
        let vm = vm_of(system, core);
        events.name_track(core, &format!("core {core}: {}", vm.unwrap_or("no VM")));
        add_states(&mut events, recorded, core, vm.unwrap_or("guest"), el2);
        add_counters(&mut events, recorded, core);
    }
    add_records(&mut events, telemetry, cores);
    let dropped = recorded.moments_dropped;
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"modelled\":true,\
         \"changes_left_out\":{dropped}}},\"traceEvents\":[\n{}\n]}}\n",
        events.lines.join(",\n")
    )
}

fn vm_of(system: &System, core: usize) -> Option<&str> {
    let mut vms = system.vms.iter();
    let vm = vms.find(|vm| vm.cores.iter().any(|own| own.index() == core))?;
    Some(&vm.name)
}

fn add_states(events: &mut Events, recorded: &Recorded, core: usize, vm: &str, el2: &Symbols) {
    let mut moments: Vec<&Moment> = recorded
        .moments
        .iter()
        .filter(|it| it.core == core)
        .collect();
    moments.sort_by_key(|moment| moment.cycle);
    let clock = recorded.samples.iter().filter(|sample| sample.core == core);
    let end = clock.map(|sample| sample.values[0]).max().unwrap_or(0);
    for (at, moment) in moments.iter().enumerate() {
        let next = moments.get(at + 1).map_or(end, |next| next.cycle);
        let (from, to) = (events.nanoseconds(moment.cycle), events.nanoseconds(next));
        if to <= from {
            continue;
        }
        let (name, category) = match moment.state {
            State::Guest => (vm, "guest"),
            State::Hypervisor => ("EL2", "EL2"),
            State::GuestWaits => ("waits", "idle"),
            State::Off => continue,
            State::HypervisorWaits(address) => {
                let function = el2.at(address).function;
                if PARKED.iter().any(|module| function.contains(module)) {
                    ("parked", "idle")
                } else {
                    ("held by a budget", "held")
                }
            }
        };
        events.span(name, category, core, from, to, "");
    }
}

fn add_counters(events: &mut Events, recorded: &Recorded, core: usize) {
    let samples: Vec<&Sample> = recorded
        .samples
        .iter()
        .filter(|it| it.core == core)
        .collect();
    for pair in samples.windows(2) {
        let [before, after] = [pair[0].values, pair[1].values];
        let cycles = after[0].saturating_sub(before[0]);
        if cycles == 0 {
            continue;
        }
        let at = events.nanoseconds(before[0]);
        for (event, unit) in COUNTED {
            let factor: u128 = if unit.ends_with("ms") { 1000 } else { 1 };
            let new = u128::from(after[event].saturating_sub(before[event]));
            let rate = new * u128::from(recorded.clock_mhz) * factor / u128::from(cycles);
            let more = format!(",\"args\":{{\"value\":{rate}}}");
            events.add("C", &format!("core {core}: {unit}"), core, at, &more);
        }
    }
    debug_assert!(COUNTED.iter().all(|(event, _)| *event < EVENTS.len()));
}

fn add_records(events: &mut Events, telemetry: &Telemetry, cores: usize) {
    // The hypervisor's clock is the model's, in ns.
    let origin = u128::from(events.origin) * 1000 / u128::from(events.clock_mhz.max(1));
    let since = |at: u64| u64::try_from(u128::from(at).saturating_sub(origin)).unwrap_or(0);
    let mut named = vec![false; cores];
    for run in telemetry.hem_runs() {
        let (core, record) = (run.core.index(), run.record);
        if let Some(named) = named.get_mut(core).filter(|named| !**named) {
            *named = true;
            events.name_track(SEGMENTS + core, &format!("core {core}: segments"));
        }
        let lasts = record.cycles.0.saturating_mul(1000) / events.clock_mhz.max(1);
        let to = since(run.at.0);
        let name = format!("{}: run {}", telemetry.vm_name(record.vm), record.run);
        let args = format!(
            ",\"args\":{{\"workload\":{},\"cycles\":{}}}",
            record.workload, record.cycles.0
        );
        events.span(
            &name,
            "segment",
            SEGMENTS + core,
            to.saturating_sub(lasts),
            to,
            &args,
        );
    }
    let mut is_named = false;
    for (entry, migration) in telemetry.migrations() {
        if !std::mem::replace(&mut is_named, true) {
            events.name_track(MIGRATIONS, "migrations of pages");
        }
        let what = match migration.outcome {
            MigrationOutcome::Moved => "moved",
            MigrationOutcome::Restored => "restored",
            MigrationOutcome::PoolFull => "pool full",
            MigrationOutcome::RolledBack => "rolled back",
        };
        let at = since(entry.at.0);
        let name = format!(
            "{} {}: {what}",
            telemetry.vm_name(migration.vm),
            migration.ipa
        );
        let more = format!(
            ",\"s\":\"t\",\"cat\":\"migration\",\"args\":{{\"from\":\"{}\",\"to\":\"{}\",\"took_ns\":{}}}",
            migration.from, migration.to, migration.took.0
        );
        events.add("i", &name, MIGRATIONS, at, &more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_board_model::statistics::Region;
    use serde_json::Value;

    #[test]
    fn a_core_s_states_are_spans_of_its_track() {
        let moment = |cycle, state| Moment {
            core: 0,
            cycle,
            state,
        };
        let sample = |cycle, refills| Sample {
            core: 0,
            values: [cycle, 0, 0, 0, 0, refills, 0, 0],
        };
        let recorded = Recorded {
            events: Vec::new(),
            clock_mhz: 1200,
            origin: 1200,
            places: Vec::new(),
            nodes: Vec::new(),
            moments: vec![
                moment(1200, State::Off),
                moment(2400, State::Hypervisor),
                moment(3600, State::HypervisorWaits(0x4000)),
                moment(4800, State::Guest),
            ],
            moments_dropped: 0,
            calls_folded: 0,
            samples: vec![sample(2400, 0), sample(4801, 12)],
            counts: Region { cores: Vec::new() },
        };
        let symbols = Symbols::none("el2", "");
        let mut events = Events {
            lines: Vec::new(),
            clock_mhz: 1200,
            origin: 1200,
        };
        add_states(&mut events, &recorded, 0, "victim", &symbols);
        add_counters(&mut events, &recorded, 0);
        let parsed: Vec<Value> = events
            .lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |event: &Value| {
            let value = |key: &str| event[key].to_string();
            format!("{} {} {}", value("name"), value("ts"), value("dur"))
        };
        let spans: Vec<String> = parsed.iter().take(2).map(of).collect();
        assert_eq!(spans, ["\"EL2\" 1.0 1.0", "\"held by a budget\" 2.0 1.0"]);
        let refills = parsed
            .iter()
            .find(|it| it["name"] == "core 0: L2 refills per ms");
        assert_eq!(refills.unwrap()["args"]["value"], 5997);
    }
}
