//! Experiments on the board model: their checks hold, and they repeat to the last digit.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::demo::{DemoArgs, demo};
use cloison_config::problem::SourceFile;
use cloison_engine::installation;
use cloison_engine::model::{Conditions, Model, Roi};
use cloison_engine::qemu::Machine;
use cloison_lab::boards::Boards;
use cloison_lab::campaign;
use cloison_lab::experiment::sensitivity;
use cloison_lab::experiment::shows::Form;
use cloison_lab::experiment::{
    ExperimentResult, Scope, Strictness, file_of, perform, perform_on, runner, spec,
};
use cloison_lab::model::survey::Survey;
use cloison_lab::model::{self, calibrate, compare, points, runs};
use cloison_lab::parameters;
use cloison_much_command::input::{ProgramChoice, measurements};
use cloison_tests::{VIRT, ZCU102};
use miette::Result;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// Runs a shipped experiment with `--quick` in an empty directory. Returns its JSON document
/// without the time of day.
fn quick(name: &str, directory: &Path) -> Result<Value> {
    let path = file_of(name);
    let experiment = spec::load(&path, Form::Quick)?;
    perform(&experiment, &path, directory, Form::Quick)?;
    let text = std::fs::read(directory.join("figures.json")).expect("the figures");
    let mut all: Value = serde_json::from_slice(&text).expect("JSON");
    all["provenance"]
        .as_object_mut()
        .expect("the provenance")
        .remove("date")
        .expect("a date");
    Ok(all)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// Returns the figures of a quick run.
fn figures(name: &str) -> Result<Map<String, Value>> {
    match quick(name, scratch().path())?["figures"].take() {
        Value::Object(figures) => Ok(figures),
        other => panic!("figures are {other}"),
    }
}

fn figure(figures: &Map<String, Value>, name: &str) -> f64 {
    figures
        .get(name)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no figure {name}"))
}

#[test]
fn private_pages_end_the_stall_and_two_runs_are_the_same() -> Result<()> {
    let (one, other) = (scratch(), scratch());
    let first = quick("c2is", one.path())?;
    assert_eq!(first, quick("c2is", other.path())?, "two runs from scratch");
    let of = |name: &str| {
        first["figures"][name]
            .as_f64()
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    assert!(
        of("slowdown") > 4.0 && of("recovered_ratio") <= 1.10,
        "{}",
        first["figures"]
    );
    assert_eq!(of("monotone_to_64_pages"), 1.0);
    assert_eq!(of("best_cycles") / of("solo_cycles"), of("recovered_ratio"));
    let series = first["series"]["recovery"].as_array().expect("the series");
    assert_eq!(series.len(), 5);
    // The results are kept, and a second run repeats nothing.
    let result = one.path().join("runs/migrated-pages=64/result.json");
    let written = std::fs::metadata(&result)
        .expect("a result")
        .modified()
        .expect("a time");
    assert_eq!(first, quick("c2is", one.path())?);
    assert_eq!(
        std::fs::metadata(&result)
            .expect("a result")
            .modified()
            .expect("a time"),
        written
    );
    for file in [
        "report.html",
        "series-recovery.csv",
        "series-recovery.parquet",
        "runs/solo/system.toml",
    ] {
        assert!(one.path().join(file).is_file(), "{file}");
    }
    let page = std::fs::read_to_string(one.path().join("report.html")).expect("the report");
    assert!(page.contains("<svg") && page.contains("modelled") && !page.contains("src=\"http"));
    Ok(())
}

/// The demo with two neighbors of 64 KiB, runs of five calls, and eight private pages.
#[test]
fn an_edited_demo_tells_of_its_own_system() -> Result<()> {
    let (directory, out) = (scratch(), scratch());
    let edit = |from: &Path, to: &str, edits: &[(&str, &str)]| {
        let mut text = std::fs::read_to_string(from).expect("a shipped file");
        for (old, new) in edits {
            assert!(text.contains(old), "{old}");
            text = text.replace(old, new);
        }
        let path = directory.path().join(to);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let configs = installation::root().join("configs");
    let system = configs.join("experiments/systems/demo.toml");
    let system = edit(
        &system,
        "system.toml",
        &[
            ("420K", "64K"),
            ("args = [4, 20]", "args = [4, 5]"),
            ("top = 64 ", "top = 8 "),
            (
                "../../../profiles",
                &installation::root().join("profiles").display().to_string(),
            ),
        ],
    );
    let text = std::fs::read_to_string(&system).expect("the system");
    let third = text.rfind("[[vm]]").expect("the last neighbor");
    std::fs::write(&system, &text[..third]).expect("the system");
    let path = edit(
        &file_of("demo"),
        "demo.toml",
        &[
            ("systems/demo.toml", "system.toml"),
            ("../models", &configs.join("models").display().to_string()),
            ("pages = 64", "pages = 8"),
        ],
    );
    let done = perform(
        &spec::load(&path, Form::Full)?,
        &path,
        out.path(),
        Form::Full,
    )?;
    let account = done.findings.account.join("\n");
    for part in [
        "Next to two cores that each store over 64 KiB",
        "the victim's 8 most important pages have moved to four private colors",
    ] {
        assert!(account.contains(part), "{part}: {account}");
    }
    let tables: String = done
        .findings
        .tables
        .iter()
        .map(|table| table.to_text())
        .collect();
    assert!(
        tables.contains("a run of 5 calls") && tables.contains("all periods of the two"),
        "{tables}"
    );
    for stale in ["three cores", "420", "20 calls", "64 most"] {
        assert!(
            !account.contains(stale) && !tables.contains(stale),
            "{stale}"
        );
    }
    Ok(())
}

#[test]
fn a_victim_that_fits_its_colors_misses_as_if_it_were_alone() -> Result<()> {
    let figures = figures("strict-colors")?;
    assert!(figure(&figures, "colorings_that_fit") >= 2.0);
    assert_eq!(
        figure(&figures, "colorings_that_fit"),
        figure(&figures, "colorings_that_fit_with_equal_misses")
    );
    // Without colors, each line that Interf evicts costs the latency of the memory and its queue.
    assert!(
        figure(&figures, "latency_medium_slowdown") > 5.0,
        "{figures:?}"
    );
    let each = figure(&figures, "latency_medium_cycles_per_extra_refill");
    let memory = 124.0 * 1.5;
    assert!((memory..memory * 2.0).contains(&each), "{each}");
    // Its lookups of the L2 wait for those of the other cores, and for their writes to memory.
    let best = figure(&figures, "latency_medium_best_colored_slowdown");
    assert!((1.005..1.10).contains(&best), "{best}");
    Ok(())
}

#[test]
fn a_victim_recovers_when_its_neighbors_pages_are_gone() -> Result<()> {
    let figures = figures("interf-migration")?;
    assert!(
        figure(&figures, "slowdown") > 2.0 && figure(&figures, "recovered_ratio") <= 1.10,
        "{figures:?}"
    );
    assert_eq!(figure(&figures, "monotone"), 1.0);
    assert!(figure(&figures, "segmentation_small_interf_migration") < 1.10);
    Ok(())
}

#[test]
fn a_smaller_budget_never_slows_the_victim_more() -> Result<()> {
    let figures = figures("quota")?;
    assert_eq!(figure(&figures, "monotone"), 1.0);
    assert!(
        figure(&figures, "slowdown") > 2.0 && figure(&figures, "least_slowdown") < 1.15,
        "{figures:?}"
    );
    // A store buffer's worth of lines, plus what a quantum of 300 cycles fills and writes back: 8
    // accesses each.
    assert!(
        (1.0..400.0).contains(&figure(&figures, "overshoot_max")),
        "{figures:?}"
    );
    Ok(())
}

/// Budgets of reads and writes together; what one core does not use, others take, and the victim is
/// none the worse.
#[test]
fn unused_budgets_are_shared_and_the_victim_is_as_before() -> Result<()> {
    all_hold(&figures("reclaim")?, 7);
    Ok(())
}

/// The guards of a file: each holds, and none was left out.
#[track_caller]
fn all_hold(figures: &Map<String, Value>, guards: u32) {
    let [held, failed] = ["guards_held", "guards_failed"].map(|name| figure(figures, name));
    assert_eq!((held, failed), (f64::from(guards), 0.0), "{figures:?}");
}

/// A channel has its own colors, and a storm of calls is no reason for its neighbor to wait.
#[test]
fn two_vms_that_flood_a_channel_cost_a_neighbor_with_private_colors_nothing() -> Result<()> {
    let figures = figures("channels")?;
    all_hold(&figures, 8);
    let of = |name: &str| figure(&figures, name);
    // The others did run beside it: where all share all colors, they cost it time.
    assert!(
        of("uncolored_slowdown") > 1.2 && of("most_slowdown") < of("uncolored_slowdown"),
        "{figures:?}"
    );
    assert!((0.999..1.02).contains(&of("storm_slowdown")), "{figures:?}");
    Ok(())
}

/// The hypervisor copies by the colors of the two VMs: what is left is memory.
#[test]
fn two_vms_that_flood_a_link_cost_a_neighbor_with_private_colors_little() -> Result<()> {
    let figures = figures("links")?;
    all_hold(&figures, 5);
    let most = figure(&figures, "most_slowdown");
    assert!((1.001..1.1).contains(&most), "{figures:?}");
    Ok(())
}

/// Two VMs that wait for each other are as fast each time.
#[test]
fn a_message_by_a_ring_takes_less_than_by_a_link_and_two_runs_are_the_same() -> Result<()> {
    let first = quick("messages", scratch().path())?;
    assert_eq!(first, quick("messages", scratch().path())?);
    let Value::Object(figures) = &first["figures"] else {
        panic!("{first}");
    };
    all_hold(figures, 1);
    let of = |name: &str| figure(figures, name);
    for link in ["net", "vsock", "console"] {
        let trip = of(&format!("{link}_64_trip_us"));
        // An access to a register of a device alone is more than a microsecond.
        assert!(
            trip > 3.0 * of("ring_trip_us") && trip < 50.0,
            "{figures:?}"
        );
        let stream = of(&format!("{link}_1500_mb_s"));
        assert!(stream > 100.0 && stream < of("ring_mb_s"), "{figures:?}");
    }
    Ok(())
}

/// Debian's cyclictest, modelled, on Debian's kernel.
#[test]
fn a_real_time_linux_is_late_beside_interf_and_both_remedies_help() -> Result<()> {
    let directory = scratch();
    let first = quick("cyclictest", directory.path())?;
    let of = |name: &str| {
        first["figures"][name]
            .as_f64()
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    for case in ["alone", "interf", "quota", "colors"] {
        assert_eq!(of(&format!("{case}_wakeups")), 300.0);
    }
    assert!(
        of("interf_avg_us") > 2.0 * of("alone_avg_us"),
        "{}",
        first["figures"]
    );
    assert!(
        of("interf_p999_us") > 1.5 * of("alone_p999_us"),
        "{}",
        first["figures"]
    );
    assert!(
        of("quota_avg_us") < 1.5 * of("alone_avg_us") && of("quota_throttled_periods") > 1000.0
    );
    assert!(
        of("colors_avg_us") < 1.1 * of("alone_avg_us"),
        "{}",
        first["figures"]
    );
    Ok(())
}

/// Modelled from the first instruction, the most concurrent variant has the same latencies each
/// time.
#[test]
#[ignore = "takes minutes: other tests repeat shorter runs"]
fn a_real_time_linux_is_as_late_each_time() -> Result<()> {
    let mut experiment = spec::load(&file_of("cyclictest"), Form::Quick)?;
    experiment.points.retain(|point| point.variant == "interf");
    experiment.conditions.roi = Roi::Always;
    let model = Model::load(&experiment.model)?;
    let run = || runner::run(&Boards::here(), &experiment, &model, scratch().path());
    assert_eq!(run()?, run()?);
    Ok(())
}

/// Debian 13's kernel and rt-tests: what cyclictest writes last is out before the VM is off.
#[test]
fn debian_13s_cyclictest_reports_each_wake_up() -> Result<()> {
    let (directory, out) = (scratch(), scratch());
    let configs = installation::root().join("configs");
    let read = |path: &str| std::fs::read_to_string(configs.join(path)).expect("a shipped file");
    let system = read("experiments/systems/cyclictest.toml");
    let newer = system.replace("linux = \"rt\"", "linux = \"rt\"\nrelease = \"trixie\"");
    assert!(newer.contains("trixie"), "{newer}");
    let models = format!("\"{}/", configs.join("models").display());
    let experiment = read("experiments/cyclictest.toml")
        .replace("systems/", "")
        .replace("\"../models/", &models);
    let path = directory.path().join("newer.toml");
    std::fs::write(&path, experiment).expect("a file");
    std::fs::write(directory.path().join("cyclictest.toml"), newer).expect("a file");
    let mut experiment = spec::load(&path, Form::Quick)?;
    experiment.points.retain(|point| point.variant == "alone");
    let (runs, _) = runner::run(
        &Boards::here(),
        &experiment,
        &Model::load(&experiment.model)?,
        out.path(),
    )?;
    let latencies = runs[0].latencies.as_ref().expect("latencies");
    assert_eq!(latencies.cycles, 300);
    assert!(
        latencies.min > 5 && latencies.max < 1000 && latencies.beyond() == 0,
        "{latencies:?}"
    );
    Ok(())
}

#[test]
fn harm_grows_with_interfs_buffers_up_to_the_cache() -> Result<()> {
    let path = file_of("interference-wss");
    let directory = scratch();
    let done = perform(
        &spec::load(&path, Form::Quick)?,
        &path,
        directory.path(),
        Form::Quick,
    )?;
    let of = |kib: &str| {
        done.runs
            .iter()
            .find(|run| run.label("kib") == kib)
            .expect("a run")
            .cycles()
    };
    assert!(of("64") < of("256") && of("256") < of("420"));
    Ok(())
}

#[test]
fn known_events_are_counted_as_they_are_known() -> Result<()> {
    let figures = figures("matrix-copy")?;
    assert_eq!(
        figure(&figures, "rows_that_differ"),
        1.0,
        "L2D_CACHE, which counts evictions too: {figures:?}"
    );
    let left = figure(&figures, "l2d_cache_left_in_l1");
    assert!(
        (0.0..=512.0).contains(&left),
        "lines that the L1 still holds: {figures:?}"
    );
    let each = figure(&figures, "l2d_cache_per_instruction_refill");
    assert!(
        (1.0..1.02).contains(&each),
        "instructions are not evicted to the L2: {figures:?}"
    );
    assert!((figure(&figures, "inst_retired") - 21.0 * 524_288.0).abs() < 100.0);
    Ok(())
}

/// Writes an experiment of a user's own and its system: two shipped guests on the given lines of
/// the victim.
fn own(directory: &Path, experiment: &str, victim: &str) -> std::path::PathBuf {
    let region = |size: &str| {
        format!(
            "[[vm.region]]\nname = \"ram\"\nipa = 0x4000_0000\nsize = \"{size}\"\npool = \"all\"\n"
        )
    };
    let system = format!(
        "name = \"own\"\nends_with = \"vic\"\n[hypervisor]\ncolors = \"15\"\n\
         [[pool]]\nname = \"all\"\nkind = \"SH\"\ncolors = \"0-14\"\n\
         [[vm]]\nname = \"vic\"\ncores = [0]\n{victim}\nservices = [\"hem\"]\n\
             hems = [\"L2D_CACHE_REFILL\"]\n{}\
         [[vm]]\nname = \"interf-1\"\ncores = [1]\nimage = {{ workload = \"interf\" }}\n\
             args = [\"420K\", 0]\n{}",
        region("128M"),
        region("16M")
    );
    std::fs::write(directory.join("system.toml"), system).expect("a system");
    // The name of a shipped one, which must not matter.
    let path = directory.join("c2is.toml");
    std::fs::write(&path, experiment).expect("an experiment");
    path
}

/// What a paper could say of them: one statement that the results differ from, one that they agree
/// with, and one about runs that there are not.
const SHOWS: &str = "
    [[shows]]
    says = 'Nothing is slowed down.'
    source = 'table 1'
    value = 'interf.slowdown'
    paper = 1
    tolerance = '5 %'
    [[shows]]
    says = 'Neighbors cost time.'
    source = 'figure 2'
    check = 'interf.cycles > solo.cycles'
";

/// Two variants, the second of which has a neighbor.
const OWN: &str = "
    [[variant]]
    name = 'solo'
    remove = ['vm.interf-1']
    [[variant]]
    name = 'interf'
";

#[test]
fn an_own_experiment_has_a_report_of_its_runs_and_its_guards_decide() -> Result<()> {
    let (directory, out) = (scratch(), scratch());
    let text = format!(
        "system = 'system.toml'\nwarm_up = 1\n\
         guards = ['interf.slowdown >= 1.1', 'interf.slowdown <= 1.1']\n{OWN}{SHOWS}"
    );
    let path = own(
        directory.path(),
        &text,
        "image = { workload = \"latency\" }\nargs = [\"512K\", 2, 0, 4]",
    );
    let experiment = spec::load(&path, Form::Full)?;
    let done = perform(&experiment, &path, out.path(), Form::Full)?;
    assert_eq!(done.figures.get("solo_slowdown"), Some(1.0));
    assert!(
        done.figures
            .get("interf_slowdown")
            .is_some_and(|slowdown| slowdown > 1.1),
        "{:?}",
        done.figures
    );
    assert_eq!(done.figures.get("interf_segments"), Some(3.0));
    assert_eq!(
        (
            done.figures.get("guards_held"),
            done.figures.get("guards_failed")
        ),
        (Some(1.0), Some(1.0))
    );
    let errors = done
        .conclude(&experiment, Strictness::Guards)
        .expect_err("the second guard fails")
        .to_string();
    assert!(errors.contains("1 error"), "{errors}");
    // A difference from the paper is a result, and an error only for who asks.
    assert_eq!(
        (
            done.figures.get("shows_agreeing"),
            done.figures.get("shows_differing")
        ),
        (Some(1.0), Some(1.0))
    );
    let errors = done
        .conclude(&experiment, Strictness::Paper)
        .expect_err("the result differs from the paper's")
        .to_string();
    assert!(errors.contains("2 errors"), "{errors}");
    for file in [
        "series-shows.csv",
        "series-differences_from_paper.csv",
        "series-runs.csv",
        "series-segments.parquet",
        "figures.json",
        "runs/interf/system.toml",
    ] {
        assert!(out.path().join(file).is_file(), "{file}");
    }
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("the report");
    assert!(
        page.contains("interf.slowdown &lt;= 1.1") && page.contains("FAILS"),
        "{page}"
    );
    let own = page
        .split("Provenance")
        .next()
        .expect("what it says of itself");
    assert!(
        !own.contains("BBProf") && !own.contains("C2IS"),
        "the prose of a shipped experiment: {own}"
    );
    Ok(())
}

/// Debian's kernel runs a program that nobody prepared for the model, three times.
#[test]
fn a_linux_victim_is_measured_by_its_segments() -> Result<()> {
    let (directory, out) = (scratch(), scratch());
    std::fs::write(
        directory.path().join("work.sh"),
        "#!/bin/sh\nsha256sum /bin/busybox\n",
    )
    .expect("a program");
    let path = own(
        directory.path(),
        &format!(
            "system = 'system.toml'\nroi = 'hint'\n{}",
            OWN.split("[[variant]]")
                .take(2)
                .collect::<Vec<_>>()
                .join("[[variant]]")
        ),
        "services_page = true\n\
         image = { linux = \"cloud\", programs = [\"work.sh\"], exec = \"cloisonctl stat --by hem --repeat 3 work.sh\" }",
    );
    let experiment = spec::load(&path, Form::Full)?;
    let done = perform(&experiment, &path, out.path(), Form::Full)?;
    assert_eq!(done.figures.get("solo_segments"), Some(3.0));
    assert!(
        done.figures
            .get("solo_cycles")
            .is_some_and(|cycles| cycles > 100_000.0),
        "{:?}",
        done.figures
    );
    assert_eq!(done.runs[0].regions.len(), 3, "where the model was on");
    Ok(())
}

#[test]
fn mistakes_are_found_before_the_first_boot() {
    let latency = "image = { workload = \"latency\" }\nargs = [\"512K\", 2, 0, 4]";
    for (line, variant, message) in [
        (
            "victim = 'nobody'",
            "",
            "the system of run `solo` has no VM `nobody`",
        ),
        (
            "warm_up = 4",
            "",
            "the victim runs 4 times in run `solo`, and all are warm-up",
        ),
        (
            "guards = ['solo.BUS_ACCESS > 0']",
            "",
            "VM `vic` does not count `BUS_ACCESS` in run `solo`",
        ),
        (
            "",
            "set = { 'vm.vik.args' = [1] }",
            "the system has no `vm.vik`",
        ),
        (
            "",
            "set = { 'vm.vic.image' = { linux = 'cloud' } }\nremove = ['vm.vic.args']",
            "Linux in VM `vic` cannot log segments",
        ),
        (
            "",
            "set = { 'vm.vic.services' = [] }",
            "VM `vic` cannot log segments",
        ),
        (
            "",
            "set = { 'vm.vic.region.ram.pool' = 'none' }",
            "the system of run `interf` is not valid",
        ),
    ] {
        let (directory, out) = (scratch(), scratch());
        // Events can only be counted with the service.
        let hems = if line.is_empty() && variant.contains("services") {
            "\nremove = ['vm.vic.hems']"
        } else {
            ""
        };
        let path = own(
            directory.path(),
            &format!("system = 'system.toml'\n{line}\n{OWN}\n{variant}{hems}"),
            latency,
        );
        let experiment = spec::load(&path, Form::Full).expect("what it names exists");
        let error = perform(&experiment, &path, out.path(), Form::Full).expect_err(message);
        let problems = error
            .downcast_ref::<cloison_config::Errors>()
            .expect("with their places")
            .problems();
        let problem = problems.iter().find(|problem| problem.message() == message);
        let problem = problem.unwrap_or_else(|| panic!("{message}: {problems:?}"));
        assert!(
            problem.file().ends_with("c2is.toml") && problem.line_and_column() != (1, 1),
            "{problem:?}"
        );
        let mut runs = std::fs::read_dir(out.path().join("runs"))
            .expect("the runs")
            .flatten();
        assert!(
            !runs.any(|run| run.path().join("console.txt").exists()),
            "{message}: something was booted"
        );
    }
}

fn the_demo(board: &str) -> Result<()> {
    let directory = scratch();
    let json = directory.path().join("demo.json");
    let out = Some(directory.path().join("out"));
    demo(&DemoArgs {
        board: board.to_owned(),
        json: Some(json.clone()),
        out,
        stock: false,
        no_open: true,
        yes: false,
        timeout: 150,
    })?;
    let all: Value =
        serde_json::from_slice(&std::fs::read(&json).expect("--json was given")).expect("JSON");
    assert_eq!(
        (&all["command"], &all["provenance"]["board"]),
        (&"demo".into(), &board.into())
    );
    let of = |name: &str| {
        all["figures"][name]
            .as_f64()
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    assert!(
        of("interf_slowdown") > 4.0 && of("quota_slowdown") < 1.1 && of("migration_slowdown") < 1.1,
        "{all}"
    );
    assert!(
        of("interf_l2_refills") > 20.0 * of("quota_l2_refills") && of("solo_l2_refills") < 1000.0,
        "{all}"
    );
    assert_eq!(of("migration_pages_moved"), 64.0);
    Ok(())
}

#[test]
fn the_demo_shows_interference_and_both_remedies_on_virt() -> Result<()> {
    the_demo(VIRT)
}

#[test]
fn the_demo_shows_interference_and_both_remedies_on_zcu102() -> Result<()> {
    the_demo(ZCU102)
}

/// Returns two runs of each sub-experiment for two workloads of the shipped campaign.
fn small_campaign() -> Result<campaign::spec::Campaign> {
    let mut small =
        campaign::spec::load(&installation::root().join("configs/campaigns/kernels.toml"))?;
    (small.runs, small.warm_up) = (2, 1);
    small
        .workloads
        .retain(|workload| ["chase-512k", "c2is"].contains(&workload.name.as_str()));
    Ok(small)
}

#[test]
fn a_campaign_counts_every_pair_and_what_it_counts_is_the_truth() -> Result<()> {
    let small = small_campaign()?;
    assert_eq!((small.events.len(), small.plan.len()), (12, 6));
    let directory = scratch();
    let model = Model::load(&small.model)?;
    let counted = campaign::runs::run(&Boards::here(), &small, Some(&model), directory.path())?;
    assert_eq!(counted.len(), 2);
    for workload in &counted {
        assert_eq!(
            (workload.much.len(), workload.hrm.len()),
            (12, small.hrm_plan.len() * 4)
        );
        let (mut met, mut before) = (std::collections::BTreeSet::new(), None);
        for (number, run) in workload.much.iter().enumerate() {
            // The sub-experiments take turns, and the hypervisor restarts the VM for each run.
            // The first run of each is a warm-up run.
            assert_eq!(
                (run.sub_experiment as usize, run.run as usize),
                (number % 6, 1 + number / 6)
            );
            let events: Vec<usize> = run.counted.iter().map(|(event, _)| *event).collect();
            assert_eq!(events, small.plan[run.sub_experiment as usize]);
            met.extend(
                events
                    .iter()
                    .flat_map(|one| events.iter().map(move |other| (*one, *other))),
            );
            for (event, count) in &run.counted {
                // Around the segment, the guest executes the HINTs, its calls and their returns.
                let beside = run.truth_of(*event).expect("the model tells") - count;
                let most = match small.events[*event].as_str() {
                    "CPU_CYCLES" => 3000,
                    "INST_RETIRED" | "BUS_ACCESS" => 60,
                    _ => 20,
                };
                assert!(
                    beside <= most,
                    "{}: {beside} of {}",
                    small.events[*event],
                    run.truth_of(*event).expect("the model tells")
                );
            }
            assert_ne!(Some(&run.truth), before, "two runs are the same");
            before = Some(&run.truth);
        }
        assert_eq!(met.len(), 12 * 12, "every pair meets");
    }
    // Existing results are not run again: not even a valid model is needed.
    let again = campaign::runs::run(&Boards::here(), &small, Some(&model), directory.path())?;
    assert!(
        again
            .iter()
            .zip(&counted)
            .all(|(again, first)| again.much == first.much && again.hrm == first.hrm)
    );
    Ok(())
}

#[test]
fn a_campaign_ends_in_vectors_of_observed_values() -> Result<()> {
    let mut small = small_campaign()?;
    small.runs = 12;
    small.workloads.retain(|workload| workload.name == "c2is");
    let directory = scratch();
    let file = installation::root().join("configs/campaigns/kernels.toml");
    let (figures, tables) = campaign::perform(&Boards::here(), &small, &file, directory.path())?;
    assert_eq!(figures.get("sub_experiments"), Some(6.0));
    // Over so few runs, chance decides between MUCH and the blind merge. What is counted together in
    // groups, or not repaired, is farther from the truth.
    for other in ["c2is_paper_pearson", "c2is_hrm_pearson"] {
        assert!(
            figures.get("c2is_much_pearson") < figures.get(other),
            "{other}: {tables:?}"
        );
    }
    let read = |name: &str| {
        std::fs::read_to_string(directory.path().join("c2is").join(name)).expect("a file")
    };
    let counts = read("counts.csv");
    let observed: std::collections::BTreeSet<(&str, &str)> = counts
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[2], fields[3])
        })
        .collect();
    let vectors = read("vectors.csv");
    let mut lines = vectors.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    assert!(
        names.contains(&"CPU_CYCLES") && names.contains(&"BUS_ACCESS"),
        "{names:?}"
    );
    for line in lines {
        for (name, value) in names.iter().zip(line.split(',')) {
            assert!(
                observed.contains(&(*name, value)),
                "{name} = {value} was never counted"
            );
        }
    }
    assert!(directory.path().join("report.html").is_file());

    // The captured HEM log, including warm-up runs, gives the same measurements, plus the cycles of
    // each run.
    let all = ProgramChoice::default();
    let long = measurements(&directory.path().join("c2is/counts.csv"), &all)?;
    let log = directory.path().join("c2is/much/telemetry.bin");
    let logged = measurements(
        &log,
        &ProgramChoice {
            skip_runs: small.warm_up as usize,
            ..all.clone()
        },
    )?;
    assert_eq!(
        (long.runs(), logged.runs(), measurements(&log, &all)?.runs()),
        (6 * 12, 6 * 12, 6 * 13)
    );
    assert_eq!(logged.events.len(), long.events.len() + 1);
    assert!(
        logged
            .event("cycles")
            .is_some_and(|cycles| logged.grouped(cycles).iter().all(|&count| count > 1000.0))
    );
    for (at, event) in long.events.iter().enumerate() {
        let in_log = logged.event(&event.name).expect("the event is in the log");
        assert_eq!(long.grouped(at), logged.grouped(in_log), "{}", event.name);
    }
    assert_eq!(logged.missing_pairs(), []);
    Ok(())
}

#[test]
fn the_model_is_as_far_from_measurements_each_time_and_what_is_far_is_explained() -> Result<()> {
    let [file, model] = ["zcu102-public", "zcu102"]
        .map(|name| installation::root().join(format!("configs/models/{name}.toml")));
    let mut points = points::load(&file)?;
    let few = [
        "imx8mq-random-64k",
        "h618-chain-4k",
        "h618-chain-64k",
        "am62p-bcopy-on-2",
        "rtas19-partitioned",
    ];
    points
        .points
        .retain(|point| few.contains(&point.name.as_str()));
    assert_eq!(
        points.points.len(),
        few.len(),
        "all of them are in the file"
    );
    let (one, other) = (scratch(), scratch());
    let first = model::perform(&Boards::here(), &points, &file, &model, one.path())?;
    let second = model::perform(&Boards::here(), &points, &file, &model, other.path())?;
    assert_eq!(first.text, second.text, "two runs from scratch");
    let results = |done: &model::Validated<'_>| {
        let results = done.compared.iter().map(|one| one.ours);
        results.collect::<Vec<_>>()
    };
    assert_eq!(results(&first), results(&second));
    assert_eq!(
        (
            first.figures.get("points"),
            first.figures.get("points_predicted")
        ),
        (Some(5.0), Some(5.0))
    );

    // Half of the reads of 64 KiB miss an L1 cache of 32 KiB: the latency of the L2 is that of the
    // measured cluster.
    let of = |name: &str| {
        first
            .compared
            .iter()
            .find(|one| one.point.name == name)
            .expect("a point")
    };
    assert!(of("imx8mq-random-64k").agrees(), "{}", first.text);
    // A chain that fits in the L1 cache is faster than one that does not.
    assert!(
        of("h618-chain-4k").ours * 2.0 < of("h618-chain-64k").ours,
        "{}",
        first.text
    );

    are_near_the_page(&first.compared);
    // Stores of other cores reach a victim in its own colors too, by the L2's writes to memory.
    assert!(of("rtas19-partitioned").ours > 1.0, "{}", first.text);
    assert!(first.text.contains("| contention "), "{}", first.text);

    // A point that is far off is an error as soon as its explanation is gone.
    compare::conclude(&points, &first.compared)?;
    let mut bare = points.clone();
    bare.points.iter_mut().for_each(|point| point.why = None);
    let far = first.compared.iter().filter(|one| one.is_far()).count();
    let compared = bare.points.iter().zip(&first.compared);
    let compared: Vec<_> = compared
        .map(|(point, one)| compare::Comparison {
            point,
            ours: one.ours,
        })
        .collect();
    match compare::conclude(&bare, &compared) {
        Ok(()) => assert_eq!(far, 0),
        Err(errors) => assert_eq!(errors.problems().len(), far, "{}", first.text),
    }
    Ok(())
}

/// Panics if the page of the validation has a result of one of these points that differs by more
/// than a share of it: another image of the hypervisor moves results a little, and a knee by a few pages.
fn are_near_the_page(compared: &[compare::Comparison<'_>]) {
    let page = installation::root().join("docs/results/validation.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for one in compared {
        let name = &one.point.name;
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")))
            .unwrap_or_else(|| panic!("{name} is not on the page"));
        let kept = row.split(" | ").nth(4).and_then(|cell| cell.parse().ok());
        let kept: f64 = kept.unwrap_or_else(|| panic!("no result: {row}"));
        let share = match one.point.unit {
            points::Unit::Pages | points::Unit::Kib => 0.2,
            _ => 0.03,
        };
        assert!(
            (one.ours / kept - 1.0).abs() <= share,
            "{name} is {}, and {kept} on the page",
            one.ours
        );
    }
}

#[test]
#[ignore = "takes minutes: other tests boot few of the points, and hold the page to its limits"]
fn the_page_of_the_validation_has_todays_results() -> Result<()> {
    let [file, model] = ["zcu102-public", "zcu102"]
        .map(|name| installation::root().join(format!("configs/models/{name}.toml")));
    let points = points::load(&file)?;
    let done = model::perform(&Boards::here(), &points, &file, &model, scratch().path())?;
    are_near_the_page(&done.compared);
    Ok(())
}

#[test]
fn another_core_is_another_file_and_private_pages_help_it_too() -> Result<()> {
    let path = file_of("c2is");
    let mut experiment = spec::load(&path, Form::Quick)?;
    experiment.model = installation::root().join("configs/models/bcm2711.toml");
    experiment
        .points
        .retain(|point| point.variant != "migrated" || point.number("pages") == Some(64));
    let out = scratch();
    let done = perform(&experiment, &path, out.path(), Form::Quick)?;
    let figure = |name: &str| {
        done.figures
            .get(name)
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    // Memory is further away in cycles than on the board that the experiment was made for.
    assert!(
        figure("slowdown") > 6.0 && figure("recovered_ratio") <= 1.1,
        "{:?}",
        done.findings.account
    );
    assert_eq!(figure("guards_failed"), 0.0);
    let account = done.findings.account.join("\n");
    assert!(
        account.contains("at 1500 MHz") && account.contains("takes data when an L1 asks for it"),
        "{account}"
    );
    Ok(())
}

#[test]
fn conclusions_are_examined_with_other_values_of_the_model() -> Result<()> {
    let directory = scratch();
    let shipped = std::fs::read_to_string(installation::root().join("configs/models/zcu102.toml"))
        .expect("a model");
    let (values, _) = shipped.split_once("[sensitivity]").expect("its table");
    let source = SourceFile::new(Path::new("model.toml"), values.to_owned());
    let all = parameters::all(&source)
        .expect("its values")
        .into_iter()
        .map(|one| one.name);
    let known: Vec<String> = all
        .filter(|name| name != "memory.latency_ns")
        .map(|name| format!("'{name}'"))
        .collect();
    let model = directory.path().join("model.toml");
    let text = format!("{values}[sensitivity]\nknown = [{}]\n", known.join(", "));
    std::fs::write(&model, text.clone()).expect("a model");

    let path = file_of("c2is");
    let mut experiment = spec::load(&path, Form::Quick)?;
    experiment.model = model.clone();
    experiment
        .points
        .retain(|point| ["solo", "interf"].contains(&point.variant.as_str()));
    let out = directory.path().join("out");
    let done = perform_on(
        &Boards::here(),
        &experiment,
        &path,
        &out,
        Form::Quick,
        Scope::Changes,
    )?;
    let figure = |done: &ExperimentResult, name: &str| {
        done.figures
            .get(name)
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    assert_eq!(
        (
            figure(&done, "sensitivity_changes"),
            figure(&done, "sensitivity_guards")
        ),
        (2.0, 1.0)
    );
    let result = sensitivity::read(&out.join(sensitivity::FILE))?;
    // The conclusions about runs that were left out are no part of it.
    assert_eq!(result.conclusion[0].check, "interf.slowdown >= 2");
    let slowdown = |left: &str| left.parse::<f64>().expect("a slowdown");
    let [half, double] = [0, 1].map(|at| slowdown(&result.change[at].left[0]));
    assert!(
        half < slowdown(&result.conclusion[0].left)
            && slowdown(&result.conclusion[0].left) < double,
        "{result:?}"
    );
    assert!(half >= 2.0 && result.change[0].holds[0], "{result:?}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report");
    assert!(
        page.contains("Which conclusions survive") && page.contains(&result.date),
        "it is in the report"
    );
    let series = std::fs::read_to_string(out.join("series-sensitivity.csv")).expect("the series");
    // The guard and the paper's slowdown, after two changes.
    assert_eq!(series.lines().count(), 5, "{series}");

    // Runs are kept, so that a command that was cut off continues; a change of the model is told
    // from one of its comments.
    let changed = |name: &str| {
        let file = out
            .join("sensitivity")
            .join(name)
            .join("runs/interf/result.json");
        std::fs::metadata(file)
            .and_then(|data| data.modified())
            .expect("a result")
    };
    let before = changed("memory.latency_ns=62");
    perform_on(
        &Boards::here(),
        &experiment,
        &path,
        &out,
        Form::Quick,
        Scope::Changes,
    )?;
    assert_eq!(
        before,
        changed("memory.latency_ns=62"),
        "nothing is run twice"
    );
    assert!(
        result
            .origin(&experiment, &path)?
            .contains("still the same")
    );
    std::fs::write(&model, format!("# A comment.\n{text}")).expect("a model");
    assert!(
        result
            .origin(&experiment, &path)?
            .contains("still the same")
    );
    std::fs::write(
        &model,
        text.replace("\nlatency_ns = 124", "\nlatency_ns = 125"),
    )
    .expect("a model");
    assert!(
        result
            .origin(&experiment, &path)?
            .contains("Changed since then: the model's values.")
    );
    Ok(())
}

/// A value of a parameter that a model hides, in units of the last digit that its file gives.
struct Hidden {
    name: &'static str,
    value: u64,
    /// How far from it the value that is found may be: what cannot be seen in the results.
    resolution: u64,
}

/// Hides values of parameters in a model, measures its benchmarks, and lets `calibrate` find them
/// again.
fn recover(model: &str, hidden: &[Hidden], benchmarks: &[&str]) -> Result<()> {
    let directory = scratch();
    let [start_file, perturbed, file] =
        ["start", "hidden", "points"].map(|name| directory.path().join(name));
    std::fs::write(&start_file, model).expect("a model");
    let names: Vec<String> = hidden.iter().map(|hidden| hidden.name.to_owned()).collect();
    let values: Vec<u64> = hidden.iter().map(|hidden| hidden.value).collect();
    let start = calibrate::Start::read(&start_file, &names)?;
    std::fs::write(&perturbed, start.with(&values)).expect("a model");
    let mut text = "[source.hidden]\ntitle = \"The hidden model\"\n".to_owned();
    for (number, benchmark) in benchmarks.iter().enumerate() {
        let unit = if benchmark.starts_with("stream") {
            "MB/s"
        } else {
            "ns"
        };
        text += &format!(
            "[[point]]\nname = \"p{number}\"\nboard = \"hidden\"\nvalue = 1.0\nunit = \"{unit}\"\n\
             clock_mhz = 1000\n\
             tolerance = 0.02\nuse = \"fitted\"\nsource = \"hidden\"\nplace = \"{number}\"\n\
                 benchmark.{benchmark}\n"
        );
    }
    std::fs::write(&file, text).expect("points");
    let mut points = points::load(&file)?;
    let results = runs::perform(
        &Boards::here(),
        &points,
        &perturbed,
        &directory.path().join("runs"),
    )?;
    for index in 0..points.points.len() {
        let measured = results.of(&points, &points.points[index])?;
        points.points[index].value = measured;
    }
    let fitted = calibrate::fit(&points, &start)?;
    // Shown with --nocapture, for docs/results/validation.md.
    println!("{}", fitted.table().to_text());
    assert!(fitted.before > 0.05 && fitted.after < 0.005, "{fitted:?}");
    for ((name, _, found), hidden) in fitted.parameters.iter().zip(hidden) {
        assert!(
            found.digits.abs_diff(hidden.value) <= hidden.resolution,
            "{name} is {}: {fitted:?}",
            hidden.value
        );
    }
    Ok(())
}

fn the_model() -> String {
    std::fs::read_to_string(installation::root().join("configs/models/zcu102.toml"))
        .expect("the shipped model")
}

#[test]
fn hidden_latencies_of_a_model_are_recovered_from_its_own_benchmarks() -> Result<()> {
    let hidden = [
        Hidden {
            name: "latency.l2",
            value: 17,
            resolution: 0,
        },
        Hidden {
            name: "memory.latency_ns",
            value: 151,
            resolution: 1,
        },
    ];
    recover(
        &the_model(),
        &hidden,
        &["chase = { kib = 64 }", "chase = { kib = 2048 }"],
    )
}

#[test]
fn hidden_bandwidths_of_a_model_are_recovered_from_its_own_benchmarks() -> Result<()> {
    // Stores that wait for the lines that they write in part, and for nothing else.
    let model = the_model()
        .replace("queues = \"banks\"", "queues = \"bandwidth\"")
        .replace("data_lines = 5", "data_lines = 0");
    let write = |cores: u64| {
        format!("stream = {{ operation = \"write-words\", kib = 2048, cores = {cores} }}")
    };
    let hidden = [
        Hidden {
            name: "memory.line_ns",
            value: 8,
            resolution: 0,
        },
        Hidden {
            name: "core.store_linefills",
            value: 5,
            resolution: 0,
        },
    ];
    recover(&model, &hidden, &[&write(1), &write(4)])
}

/// A chain of equal strides stays in open rows, and one in random order does not.
#[test]
fn hidden_costs_of_rows_are_recovered_from_a_models_own_benchmarks() -> Result<()> {
    let hidden = [
        Hidden {
            name: "latency.l2",
            value: 15,
            resolution: 0,
        },
        Hidden {
            name: "memory.latency_ns",
            value: 105,
            resolution: 1,
        },
        // The file gives tenths of a nanosecond. An access takes whole cycles, of a nanosecond
        // each, so that less than a cycle more or less is hardly seen in the results.
        Hidden {
            name: "memory.banks.precharge_ns",
            value: 220,
            resolution: 10,
        },
    ];
    let benchmarks = [
        "chase = { kib = 64 }",
        "chase = { kib = 2048 }",
        "stride = { kib = 2048 }",
    ];
    recover(&the_model(), &hidden, &benchmarks)
}

/// QEMU plays the board that nobody has: one whose latencies are hidden. Its console is the log of
/// the kit.
#[test]
fn the_kits_log_from_a_board_becomes_measurements_to_which_a_model_is_fitted() -> Result<()> {
    let directory = scratch();
    let [board, log, output] =
        ["board.toml", "uart.log", "points.toml"].map(|name| directory.path().join(name));
    let shipped = installation::root().join("configs/models/zcu102.toml");
    let start = calibrate::Start::read(
        &shipped,
        &["latency.l2".to_owned(), "memory.latency_ns".to_owned()],
    )?;
    let hidden = [16, 140];
    std::fs::write(
        &board,
        start
            .with(&hidden)
            .replace("clock_mhz = 1500", "clock_mhz = 1200"),
    )
    .expect("a model");
    let checked = cloison_tests::load(&installation::root().join("configs/kit/kit.toml"), ZCU102)?;
    let image = directory.path().join("Image");
    cloison_tests::image(&checked)?.write(&image)?;
    let machine = Machine::new(checked.emulation()?, &image).limit(Duration::from_secs(300));
    let stats = directory.path().join("model.json");
    let outcome = Model::load(&board)?
        .attach(machine, Conditions::default(), &stats)
        .run()?;
    assert!(outcome.exit.is_clean(), "{}", outcome.console);
    std::fs::write(&log, &outcome.console).expect("a log");

    let survey = Survey::read(&outcome.console).expect("a survey");
    assert_eq!(
        (survey.measurements(), survey.clock_mhz()),
        (17, Ok(1200)),
        "{}",
        outcome.console
    );
    std::fs::write(&output, survey.to_toml("QEMU", "uart.log", 1200)).expect("measurements");
    let mut points = points::load(&output)?;
    points
        .points
        .retain(|point| ["chase-64k", "chase-4096k"].contains(&point.name.as_str()));
    assert_eq!(points.points.len(), 2);
    let fitted = calibrate::fit(&points, &start)?;
    for ((name, _, found), hidden) in fitted.parameters.iter().zip(hidden) {
        assert!(
            (found.digits as f64 / hidden as f64 - 1.0).abs() <= 0.02,
            "{name} is {hidden}: {fitted:?}"
        );
    }
    Ok(())
}
