//! Chains of calls as flame graphs are drawn from them: collapsed stacks, and speedscope's file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::costs::Table;
use cloison_board_model::profile::EVENTS;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns one line for each chain: its functions, separated by semicolons, and its cycles.
pub fn collapsed(root: &str, table: &Table) -> String {
    let mut text = String::new();
    for chain in table.chains.iter().filter(|chain| chain.values[0] > 0) {
        text.push_str(&apart(root));
        for function in &chain.functions {
            text.push(';');
            text.push_str(&apart(function));
        }
        text.push_str(&format!(" {}\n", chain.values[0]));
    }
    text
}

/// Returns a name without what separates names.
fn apart(name: &str) -> String {
    name.replace(';', ",").replace(['\n', '\r'], " ")
}

/// Returns a file for speedscope: for each event and part a profile.
pub fn speedscope(name: &str, parts: &[(&str, &Table)]) -> Value {
    let mut frames: BTreeMap<&str, usize> = BTreeMap::new();
    for chain in parts.iter().flat_map(|(_, table)| &table.chains) {
        for function in &chain.functions {
            frames.insert(function, 0);
        }
    }
    for (at, number) in frames.values_mut().enumerate() {
        *number = at;
    }
    let mut profiles = Vec::new();
    for (at, event) in EVENTS.iter().enumerate() {
        for (part, table) in parts {
            let chains = || table.chains.iter().filter(|chain| chain.values[at] > 0);
            let samples: Vec<Vec<usize>> = chains()
                .map(|chain| {
                    chain
                        .functions
                        .iter()
                        .map(|it| frames[it.as_str()])
                        .collect()
                })
                .collect();
            let weights: Vec<u64> = chains().map(|chain| chain.values[at]).collect();
            if weights.is_empty() {
                continue;
            }
            profiles.push(json!({
                "type": "sampled", "name": format!("{part}: {}", event.name()), "unit": "none",
                "startValue": 0, "endValue": table.totals[at], "samples": samples, "weights": weights,
            }));
        }
    }
    let frames: Vec<Value> = frames.keys().map(|name| json!({ "name": name })).collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name, "exporter": "cloison profile", "activeProfileIndex": 0,
        "shared": { "frames": frames }, "profiles": profiles,
    })
}

#[cfg(test)]
mod tests {
    use super::super::costs::Chain;
    use super::*;

    fn table() -> Table {
        let chain = |functions: &[&str], cycles, refills| Chain {
            functions: functions.iter().map(|&name| name.to_owned()).collect(),
            values: [cycles, 0, 0, 0, 0, refills, 0, 0],
        };
        Table {
            chains: vec![
                chain(&["main"], 5, 0),
                chain(&["main", "fill::<[u8; 4]>"], 7, 2),
            ],
            totals: [12, 0, 0, 0, 0, 2, 0, 0],
            ..Table::default()
        }
    }

    #[test]
    fn a_chain_is_a_line_and_its_cycles_are_its_last_functions() {
        assert_eq!(
            collapsed("victim", &table()),
            "victim;main 5\nvictim;main;fill::<[u8, 4]> 7\n"
        );
    }

    #[test]
    fn each_event_that_happened_is_a_profile() {
        let file = speedscope(
            "demo",
            &[("guest", &table()), ("hypervisor", &Table::default())],
        );
        let profiles = file["profiles"].as_array().unwrap();
        let names: Vec<&str> = profiles
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["guest: CPU_CYCLES", "guest: L2D_CACHE_REFILL"]);
        assert_eq!(profiles[0]["weights"], json!([5, 7]));
        assert_eq!(profiles[1]["samples"], json!([[1, 0]]));
        assert_eq!(file["shared"]["frames"][1]["name"], "main");
    }
}
