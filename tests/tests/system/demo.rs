//! `cargo xtask demo`: the main task succeeds, and its figures are those of the run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::demo::{DemoArgs, demo};
use cloison_engine::configuration;
use cloison_engine::telemetry::Telemetry;
use cloison_formats::telemetry::MigrationOutcome;
use cloison_tests::{VIRT, ZCU102};
use miette::Result;
use serde_json::{Map, Value};
use std::path::Path;

/// Runs the demo in `directory`. Returns its figures.
fn shown(board: &str, directory: &Path) -> Result<Map<String, Value>> {
    let json = directory.join("demo.json");
    let out = Some(directory.to_path_buf());
    demo(&DemoArgs {
        board: board.to_owned(),
        json: Some(json.clone()),
        out,
        stock: true,
        no_open: true,
        yes: false,
        timeout: 150,
    })?;
    let mut all: Value =
        serde_json::from_slice(&std::fs::read(&json).expect("--json was given")).expect("JSON");
    assert_eq!(all["command"], "demo");
    assert_eq!(all["provenance"]["board"], board);
    assert_eq!(all["provenance"]["config"], "configs/demo.toml");
    match all["figures"].take() {
        Value::Object(figures) => Ok(figures),
        other => panic!("figures are {other}"),
    }
}

pub fn the_stock_demo(board: &str) -> Result<()> {
    let by_interrupt = configuration::board(board)?.board.guest_pmu_irq().is_some();
    let directory = tempfile::tempdir().expect("a scratch directory");
    let figures = shown(board, directory.path())?;
    let figure = |name: &str| {
        figures
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no figure {name}"))
    };

    // The victim: ten runs, sixteen pages.
    assert_eq!(figure("hem_records"), 10);
    assert_eq!(figure("pages_moved"), 16);
    assert!(figure("migration_ns_min") > 0);
    assert_eq!(
        (
            figure("records_dropped"),
            figure("frames_skipped"),
            figure("vms_killed")
        ),
        (0, 0, 0)
    );
    // The neighbors: the tightest budget holds longest, the widest never does.
    let throttled = [1, 2, 3].map(|core| figure(&format!("core{core}_quota0_throttled_ns")));
    assert!(
        throttled[0] > throttled[1] && throttled[1] > throttled[2],
        "{throttled:?}"
    );
    assert_eq!(throttled[2], 0);
    for core in [1, 2] {
        let of = |what: &str| figure(&format!("core{core}_quota0_{what}"));
        assert!(of("throttled_ns") < figure("run_ns"));
        assert!(of("overshoot_total") > 0 && of("overshoot_max") <= of("overshoot_total"));
        assert_eq!(of("by_interrupt"), u64::from(by_interrupt));
    }

    // The same, counted again from what the board sent.
    let stream =
        std::fs::read(directory.path().join("telemetry.bin")).expect("the raw stream is kept");
    let telemetry = Telemetry::parse(&stream);
    assert_eq!(telemetry.problems, []);
    assert_eq!(telemetry.hem_runs().count() as u64, figure("hem_records"));
    let moved = telemetry
        .migrations()
        .filter(|(_, record)| record.outcome == MigrationOutcome::Moved);
    let costs: Vec<u64> = moved.map(|(_, record)| record.took.0).collect();
    assert_eq!(costs.len() as u64, figure("pages_moved"));
    assert_eq!(costs.iter().min(), Some(&figure("migration_ns_min")));
    assert_eq!(costs.iter().max(), Some(&figure("migration_ns_max")));
    assert_eq!(telemetry.quota_totals().count(), 3);
    for (core, total) in telemetry.quota_totals() {
        let of = |what: &str| figure(&format!("core{core}_quota0_{what}"));
        assert_eq!(total.throttled.0, of("throttled_ns"));
        assert_eq!(total.totals.max_overshoot.0, of("overshoot_max"));
        assert_eq!(total.totals.periods, of("periods"));
    }

    // Every run is in the CSV file and the page names what it shows.
    let csv =
        std::fs::read_to_string(directory.path().join("hem.csv")).expect("the HEM log as CSV");
    let runs: std::collections::BTreeSet<u32> =
        telemetry.hem_runs().map(|run| run.record.run).collect();
    assert_eq!(runs.len(), 10);
    assert!(csv.lines().count() > 10, "{csv}");
    let parquet =
        std::fs::read(directory.path().join("hem.parquet")).expect("the HEM log as Parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let page = std::fs::read_to_string(directory.path().join("report.html")).expect("the report");
    for name in ["victim", "interf-1", "victim-pvt", "INST_RETIRED"] {
        assert!(page.contains(name), "the report does not mention {name}");
    }
    Ok(())
}

#[test]
fn the_demo_shows_the_figures_of_its_run_on_virt() -> Result<()> {
    the_stock_demo(VIRT)
}

#[test]
fn the_demo_shows_the_figures_of_its_run_on_zcu102() -> Result<()> {
    the_stock_demo(ZCU102)
}

#[test]
fn two_runs_of_the_demo_show_the_same() -> Result<()> {
    let figures = || -> Result<Map<String, Value>> {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut figures = shown(VIRT, directory.path())?;
        figures.remove("wall_s").expect("how long the user waited");
        Ok(figures)
    };
    assert_eq!(figures()?, figures()?);
    Ok(())
}
