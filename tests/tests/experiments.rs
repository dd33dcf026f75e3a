//! Experiments on the board model: what they promise holds, and they repeat to the last digit.

use miette::Result;
use serde_json::{Map, Value};
use std::path::Path;
use xtask::demo::{DemoArgs, demo};
use xtask::experiment::{file_of, perform, spec};
use xtask::qemu::Board;

/// A quick run of a shipped experiment into an empty directory: its JSON document without the time of day.
fn quick(name: &str, directory: &Path) -> Result<Value> {
    let path = file_of(name);
    let experiment = spec::load(&path, true)?;
    perform(&experiment, &path, directory, true)?;
    let text = std::fs::read(directory.join("figures.json")).expect("the figures");
    let mut all: Value = serde_json::from_slice(&text).expect("JSON");
    all["provenance"].as_object_mut().expect("the provenance").remove("date").expect("a date");
    Ok(all)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// A quick run's figures.
fn figures(name: &str) -> Result<Map<String, Value>> {
    match quick(name, scratch().path())?["figures"].take() {
        Value::Object(figures) => Ok(figures),
        other => panic!("figures are {other}"),
    }
}

fn figure(figures: &Map<String, Value>, name: &str) -> f64 {
    figures.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("no figure {name}"))
}

#[test]
fn private_pages_end_the_stall_and_two_runs_are_the_same() -> Result<()> {
    let (one, other) = (scratch(), scratch());
    let first = quick("c2is", one.path())?;
    assert_eq!(first, quick("c2is", other.path())?, "two runs from scratch");
    let of = |name: &str| first["figures"][name].as_f64().unwrap_or_else(|| panic!("no figure {name}"));
    assert!(of("slowdown") > 4.0 && of("recovered_ratio") <= 1.10, "{}", first["figures"]);
    assert_eq!(of("monotone_to_64_pages"), 1.0);
    assert_eq!(of("best_cycles") / of("solo_cycles"), of("recovered_ratio"));
    let series = first["series"]["recovery"].as_array().expect("the series");
    assert_eq!(series.len(), 5);
    // What was run is there, and a second look runs nothing.
    let result = one.path().join("runs/migrated-pages=64/result.json");
    let written = std::fs::metadata(&result).expect("a result").modified().expect("a time");
    assert_eq!(first, quick("c2is", one.path())?);
    assert_eq!(std::fs::metadata(&result).expect("a result").modified().expect("a time"), written);
    for file in ["report.html", "series-recovery.csv", "series-recovery.parquet", "runs/solo/system.toml"] {
        assert!(one.path().join(file).is_file(), "{file}");
    }
    let page = std::fs::read_to_string(one.path().join("report.html")).expect("the report");
    assert!(page.contains("<svg") && page.contains("modelled") && !page.contains("src=\"http"));
    Ok(())
}

#[test]
fn a_victim_that_fits_its_colors_misses_as_if_it_were_alone() -> Result<()> {
    let figures = figures("strict-colors")?;
    assert!(figure(&figures, "colorings_that_fit") >= 2.0);
    assert_eq!(figure(&figures, "colorings_that_fit"), figure(&figures, "colorings_that_fit_with_equal_misses"));
    // Without colors each line that Interf evicts costs the way to memory, and its queue.
    assert!(figure(&figures, "latency_medium_slowdown") > 5.0, "{figures:?}");
    let each = figure(&figures, "latency_medium_cycles_per_extra_refill");
    assert!((124.0..124.0 * 2.0).contains(&each), "{each}");
    assert!(figure(&figures, "latency_medium_best_colored_slowdown") < 1.01);
    Ok(())
}

#[test]
fn a_victim_recovers_when_its_neighbors_pages_are_gone() -> Result<()> {
    let figures = figures("interf-migration")?;
    assert!(figure(&figures, "slowdown") > 2.0 && figure(&figures, "recovered_ratio") <= 1.10, "{figures:?}");
    assert_eq!(figure(&figures, "monotone"), 1.0);
    assert!(figure(&figures, "segmentation_small_interf_migration") < 1.10);
    Ok(())
}

#[test]
fn a_smaller_budget_never_slows_the_victim_more() -> Result<()> {
    let figures = figures("quota")?;
    assert_eq!(figure(&figures, "monotone"), 1.0);
    assert!(figure(&figures, "slowdown") > 2.0 && figure(&figures, "least_slowdown") < 1.15, "{figures:?}");
    // A store buffer's worth of lines and what a quantum of 300 cycles refills.
    assert!((1.0..50.0).contains(&figure(&figures, "overshoot_max")), "{figures:?}");
    Ok(())
}

#[test]
fn harm_grows_with_interfs_buffers_up_to_the_cache() -> Result<()> {
    let path = file_of("interference-wss");
    let directory = scratch();
    let done = perform(&spec::load(&path, true)?, &path, directory.path(), true)?;
    let of = |kib: &str| done.runs.iter().find(|run| run.label("kib") == kib).expect("a run").cycles();
    assert!(of("64") < of("256") && of("256") < of("420"));
    Ok(())
}

#[test]
fn known_events_are_counted_as_they_are_known() -> Result<()> {
    let figures = figures("matrix-copy")?;
    assert_eq!(figure(&figures, "rows_that_differ"), 1.0, "L2D_CACHE, which counts double: {figures:?}");
    let double = figure(&figures, "l2d_cache") / figure(&figures, "l1d_cache_refill");
    assert!((1.99..2.01).contains(&double), "{figures:?}");
    assert!((figure(&figures, "inst_retired") - 21.0 * 524_288.0).abs() < 100.0);
    Ok(())
}

fn the_demo(board: Board) -> Result<()> {
    let directory = scratch();
    let json = directory.path().join("demo.json");
    let out = Some(directory.path().join("out"));
    demo(&DemoArgs { board, json: Some(json.clone()), out, stock: false, no_open: true, timeout: 150 })?;
    let all: Value = serde_json::from_slice(&std::fs::read(&json).expect("--json was given")).expect("JSON");
    assert_eq!((&all["command"], &all["provenance"]["board"]), (&"demo".into(), &board.name().into()));
    let of = |name: &str| all["figures"][name].as_f64().unwrap_or_else(|| panic!("no figure {name}"));
    assert!(of("interf_slowdown") > 4.0 && of("quota_slowdown") < 1.3 && of("migration_slowdown") < 1.1, "{all}");
    assert!(of("interf_l2_refills") > 20.0 * of("quota_l2_refills") && of("solo_l2_refills") < 1000.0, "{all}");
    assert_eq!(of("migration_pages_moved"), 64.0);
    Ok(())
}

#[test]
fn the_demo_shows_interference_and_both_remedies_on_virt() -> Result<()> {
    the_demo(Board::Virt)
}

#[test]
fn the_demo_shows_interference_and_both_remedies_on_zcu102() -> Result<()> {
    the_demo(Board::Zcu102)
}
