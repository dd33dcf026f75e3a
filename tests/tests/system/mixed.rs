//! Telemetry between the lines of the console: on boards with one UART, or where a VM has the second.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use cloison_formats::telemetry::{Record, VmState};
use cloison_tests::{BOTH, Clock, Run, VIRT, config, load, run};
use miette::{Result, miette};

/// Loads a test's configuration as if it had this `[telemetry]`.
fn with(name: &str, telemetry: &str, board: &str) -> Result<Checked> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let path = scratch.path().join("system.toml");
    let text = std::fs::read_to_string(config(name)).map_err(|error| miette!("{error}"))?;
    let text = format!("{text}\n[telemetry]\nover = \"{telemetry}\"\n");
    std::fs::write(&path, text).map_err(|error| miette!("{error}"))?;
    load(&path, board)
}

/// Returns each VM's lines, and the records of its states, in their order.
fn told(run: &Run) -> Vec<(Vec<&str>, Vec<VmState>)> {
    let vms = run.system.vms.iter();
    vms.map(|vm| {
        // The last line has a time.
        let lines = run.said(&vm.name).map(|(_, line)| line);
        let lines = lines.map(|line| line.split(" worst=").next().unwrap_or_default());
        let lines = lines.collect();
        let id = run.vm(&vm.name);
        let states = run
            .telemetry
            .entries
            .iter()
            .filter_map(|entry| match entry.record {
                Record::VmState { vm, state } if vm == id => Some(state),
                _ => None,
            });
        (lines, states.collect())
    })
    .collect()
}

#[test]
fn messages_between_lines_cost_neither_a_line_nor_a_record() -> Result<()> {
    for board in BOTH {
        let apart = run(&load(&config("restart"), board)?, board, Clock::Counted)?.whole();
        let mixed = with("restart", "console", board)?;
        let mixed = run(&mixed, board, Clock::Counted)?.whole();
        assert_eq!(mixed.telemetry.dropped(), 0, "{mixed}");
        assert!(told(&mixed) == told(&apart), "{board}: {apart}\n{mixed}");
        let states = |run: &Run| told(run)[0].1.len();
        assert!(states(&mixed) > 100, "{mixed}");
    }
    Ok(())
}

#[test]
fn a_system_runs_without_telemetry() -> Result<()> {
    let run = run(&with("restart", "off", VIRT)?, VIRT, Clock::Counted)?;
    assert!(run.outcome.exit.is_clean(), "{run}");
    assert!(run.outcome.telemetry.is_empty());
    run.line("heart", "heartbeat: done");
    Ok(())
}
