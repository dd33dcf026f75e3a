//! What events counted of the hello image's benchmarks, as `events validate --counts` reads it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::log::Log;
use cloison_config::BoardFile;
use cloison_formats::units::EventId;
use std::collections::BTreeMap;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, value};

/// Key of the lines on events, before the number.
const KEY: &str = "event.";

/// Returns the counts of a log, for the events that `is_wanted` names: a file of counts. `None` if
/// it has none.
pub fn file(board: &BoardFile, log: &Log, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut benchmarks: BTreeMap<&str, InlineTable> = BTreeMap::new();
    for line in &log.checks {
        let Some(number) = line.key.strip_prefix(KEY).and_then(number) else {
            continue;
        };
        let Some(event) = board.events.by_id(number) else {
            continue;
        };
        for count in line.found.split(',') {
            let Some((benchmark, count)) = count.split_once(':') else {
                continue;
            };
            let runs: Result<Vec<u32>, _> = count.split('+').map(str::parse).collect();
            if let Ok(runs) = runs
                && is_wanted(&event.name)
            {
                let counts = benchmarks.entry(benchmark).or_default();
                let list: Array = runs.into_iter().map(i64::from).collect();
                counts.insert(&event.name, list.into());
            }
        }
    }
    if benchmarks.is_empty() {
        return None;
    }
    let mut runs = ArrayOfTables::new();
    for (benchmark, counts) in benchmarks {
        let mut run = Table::new();
        run.insert("benchmark", value(benchmark));
        run.insert("counts", value(counts));
        runs.push(run);
    }
    let mut document = DocumentMut::new();
    let machine = format!("{}, by its hello image", board.board.name);
    document.insert("machine", value(machine));
    document.insert("prefetcher", value("as the firmware left it"));
    document.insert("run", Item::ArrayOfTables(runs));
    Some(document.to_string())
}

/// Returns the number of an event, as lines have it.
fn number(text: &str) -> Option<EventId> {
    let digits = text.strip_prefix("0x")?;
    u16::from_str_radix(digits, 16).ok().map(EventId)
}

#[cfg(test)]
mod tests {
    use super::super::log::{read_log, tests::printed};
    use super::*;
    use crate::configuration;
    use cloison_config::validation::{Counts, Manifest};
    use cloison_hello::line::Verdict::Noted;
    use cloison_hello::line::{BEGIN, END};

    #[test]
    fn the_file_is_one_that_events_validate_reads() {
        let board = configuration::board("zcu102").expect("it is shipped");
        let lines = [
            (BEGIN, "zcu102", "0", Noted),
            ("event.0x11", "-", "nothing:12,load-stream:70000", Noted),
            (
                "event.0x03",
                "-",
                "nothing:0,load-stream:65536+65540",
                Noted,
            ),
            ("event.0x0", "-", "damaged", Noted),
            (END, "4", "0", Noted),
        ];
        let log = read_log(&printed(&lines)).expect("a log");
        let manifest = configuration::directory().join("validation/cortex-a53.toml");
        let manifest = Manifest::load(&manifest).expect("it is shipped");
        let text = file(&board, &log, |event| manifest.event(event).is_some()).expect("counts");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("counts.toml");
        std::fs::write(&path, &text).expect("it can be written");
        let counts = Counts::load(&path, &manifest).expect("it is one");
        assert_eq!(
            counts.of("load-stream", "L1D_CACHE_REFILL"),
            [65536, 65540],
            "{text}"
        );
        assert_eq!(counts.of("nothing", "CPU_CYCLES"), [12]);
        assert_eq!(file(&board, &log, |_| false), None);
    }
}
