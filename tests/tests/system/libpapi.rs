//! PAPI's C library in programs of a Linux guest: the unchanged programs of bare-metal guests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_config::ImageSource;
use cloison_engine::model::{self, Conditions, CoreCounts, Model, Region, Roi};
use cloison_engine::{cargo, configuration, installation, setup};
use cloison_tests::{Clock, VIRT, config, load, machine, number, run};
use miette::{Result, miette};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that counts with Debian's library beside ours.
const BESIDE: &str = "beside";

/// Compiles a program of `tests/papi` for Linux, with `libepapi.a`.
fn compile(name: &str, library: &Path, directory: &Path) -> Result<PathBuf> {
    let root = installation::root();
    let file = directory.join(name);
    let mut compiler = Command::new(setup::LINKER.ensure()?);
    compiler.args([
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-s",
        "-Wl,--gc-sections",
    ]);
    compiler
        .args(["-DEVENTS=PAPI_TOT_INS", "-DNUM_EVENTS=1", "-I"])
        .arg(root.join("guest-tools/epapi/c/include"));
    compiler
        .arg(root.join(format!("tests/papi/{name}.c")))
        .arg(library)
        .arg("-o")
        .arg(&file);
    // A program with libpapi.so has the shared libraries of Debian's packages, the others have
    // none.
    compiler.args(if name == BESIDE {
        ["-ldl", "-lm"]
    } else {
        ["-static", "-lm"]
    });
    let output = compiler.output().map_err(|error| miette!("{error}"))?;
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(file)
}

#[test]
fn figure_2_of_the_paper_runs_in_linux_as_it_is() -> Result<()> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let library = cargo::epapi_for_linux()?;
    let mut checked = load(&config("linux-libpapi"), VIRT)?;
    let ImageSource::Linux(linux) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    for name in ["figure2", "low"] {
        linux
            .programs
            .push(compile(name, &library, scratch.path())?);
    }
    linux.exec = Some("sh -c 'figure2 && low'".to_owned());
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    let said = |what: &str| -> i64 {
        let line = run.line("linux", &format!("known: {what}="));
        line.split_once(&format!("{what}="))
            .and_then(|(_, number)| number.trim().parse().ok())
            .expect("a number")
    };
    // Known are 102,000 and 6,000; each call executes some hundred instructions at EL0 while its
    // counters count.
    assert!(
        (102_000..103_500).contains(&said("both")) && (6_000..6_500).contains(&said("last")),
        "{run}"
    );
    let expected = [
        ("early", -16),
        ("init", 1),
        ("create", 0),
        ("native", 1),
        ("listed", 1),
        ("start", 0),
        ("again", -10),
    ];
    for (what, number) in expected.into_iter().chain([
        ("in_memory", 1),
        ("state", 2),
        ("stopped", -9),
        ("gone", -1),
    ]) {
        assert_eq!(said(what), number, "{what}: {run}");
    }
    assert!(
        (2_000..2_500).contains(&said("instructions")) && (3_000..4_000).contains(&said("sum")),
        "{run}"
    );
    Ok(())
}

/// Two Linux guests on the board model, which is on in regions of interest alone.
struct Beside {
    linux: Running,
    scratch: tempfile::TempDir,
    /// The regions' commands, in order.
    regions: Vec<String>,
}

impl Beside {
    fn start() -> Result<Self> {
        let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
        let library = cargo::epapi_for_linux()?;
        let mut checked = load(&config("papi-beside"), VIRT)?;
        for image in &mut checked.images {
            let ImageSource::Linux(linux) = image else {
                continue;
            };
            linux
                .programs
                .push(compile("cost", &library, scratch.path())?);
            if !linux.packages.is_empty() {
                linux
                    .programs
                    .push(compile(BESIDE, &library, scratch.path())?);
            }
        }
        let model = Model::load(model::of(&configuration::emulation(VIRT)?)?)?;
        let (conditions, stats) = (
            Conditions {
                roi: Roi::Hint,
                ..Conditions::default()
            },
            scratch.path().join("model.json"),
        );
        let mut linux = Running::start_on(&checked, |file| {
            Ok(model.attach(machine(VIRT, file, Clock::Real)?, conditions, &stats))
        })?;
        linux.open("calls")?;
        linux.open("pmu")?;
        // Debian's kernel keeps perf events from programs; libpapi heeds that even for root.
        linux.output("pmu", "echo 1 > /proc/sys/kernel/perf_event_paranoid");
        Ok(Self {
            linux,
            scratch,
            regions: Vec::new(),
        })
    }

    /// Runs a command that is, or has, one region of interest.
    #[track_caller]
    fn region(&mut self, vm: &str, command: &str) -> String {
        let output = self.linux.output(vm, command);
        self.regions.push(format!("{vm} {command}"));
        output
    }

    /// Ends the system, and returns what the model counted in each region on the VM's core.
    fn finish(mut self) -> Result<Vec<(String, CoreCounts)>> {
        self.linux.type_in("pmu", "poweroff -f\n")?;
        self.linux.finish()?.whole();
        let statistics = model::statistics(&self.scratch.path().join("model.json"))?;
        assert_eq!(
            (statistics.regions.len(), statistics.abandoned),
            (self.regions.len(), 0)
        );
        let core = |(name, region): (String, Region)| {
            let core = usize::from(name.starts_with("pmu"));
            (name, region.cores[core].clone())
        };
        Ok(self
            .regions
            .into_iter()
            .zip(statistics.regions)
            .map(core)
            .collect())
    }
}

/// Debian's libpapi and its utilities run in a guest with a PMU, and `libepapi.a` beside them in
/// the same process: both count the same code, and answer the same to calls in every order. And
/// what `cloisonctl stat` computes of a program's counts is what follows from the model's own
/// counts of the same segment.
#[test]
fn debians_libpapi_counts_the_same_and_metrics_are_those_of_the_model() -> Result<()> {
    let mut beside = Beside::start()?;
    let available = beside.linux.output("pmu", "papi_avail -a");
    assert!(
        available.contains("Number Hardware Counters : 6") && available.contains("PAPI_TOT_INS"),
        "{available}"
    );
    let added = beside
        .linux
        .output("pmu", "papi_command_line PAPI_TOT_INS PAPI_L1_DCM 2>&1");
    assert!(
        !added.contains("Failed") && added.contains("PAPI_L1_DCM"),
        "{added}"
    );

    let events = [
        "PAPI_TOT_INS",
        "PAPI_TOT_CYC",
        "PAPI_LD_INS",
        "PAPI_L1_DCA",
        "PAPI_L1_DCM",
        "PAPI_L1_ICM",
    ];
    let output = beside.region(
        "pmu",
        &format!("cloisonctl roi beside {}", events.join(" ")),
    );
    let counts = |event: &str| {
        let line = output
            .lines()
            .find(|line| line.contains(&format!("event={event} ")))
            .expect("its line");
        ["libpapi", "libepapi"].map(|library| number(line, library))
    };
    // 2,000,000 and 12,288 instructions, with 4,096 loads, after all has been executed once.
    // Between start and stop are also calls of each library.
    for (event, known, beside) in [
        ("PAPI_TOT_INS", 2_012_288, 1_000),
        ("PAPI_LD_INS", 4_096, 100),
        ("PAPI_L1_DCA", 4_096, 100),
        ("PAPI_TOT_CYC", 2_012_288, 10_000),
    ] {
        let [theirs, ours] = counts(event);
        for count in [theirs, ours] {
            assert!(
                (known..known + beside).contains(&count),
                "{event}: {theirs} and {ours}"
            );
        }
    }
    // The prefetcher brings the lines that are loaded, so what is left are each library's own.
    for event in ["PAPI_L1_DCM", "PAPI_L1_ICM"] {
        let [theirs, ours] = counts(event);
        assert!(theirs.max(ours) < 200, "{event}: {theirs} and {ours}");
    }
    let answers = |library: &str| {
        let own = output
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{library}: ")))
            .map(str::to_owned);
        own.collect::<Vec<String>>()
    };
    let (theirs, ours) = (answers("libpapi"), answers("libepapi"));
    assert_eq!((theirs.len(), ours.len()), (37, 37), "{output}");
    let differ: Vec<_> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours)
        .collect();
    // It looks for a name's component first (PAPI_ENOCMP); ours has none, and says that there is no
    // such event.
    let unknown = "add_named_event(set, \"NO_SUCH_EVENT\") -> ";
    assert_eq!(
        differ,
        [(&format!("{unknown}-18"), &format!("{unknown}-7"))]
    );

    let work = "sh -c 'head -c 300000 /bin/busybox | gzip -c > /dev/null'";
    let said = beside.region("calls", &format!("cloisonctl stat --by hem --json {work}"));
    let said: Value = serde_json::from_str(&said).map_err(|error| miette!("{error}: {said}"))?;
    let (_, truth) = beside.finish()?.pop().expect("the last region");
    let counted = |event: &str| truth.guest_events[event] as f64;
    for (name, over, under) in [
        ("ipc", "INST_RETIRED", "CPU_CYCLES"),
        ("l1d_miss_rate", "L1D_CACHE_REFILL", "L1D_CACHE"),
    ] {
        let metrics = said["metrics"].as_array().expect("metrics");
        let metric = metrics
            .iter()
            .find(|metric| metric["name"] == name)
            .expect("the metric");
        let (value, expected) = (
            metric["value"].as_f64().expect("its value"),
            counted(over) / counted(under),
        );
        println!("{name}: {value}, of the model's counts {expected}");
        // The region also has the calls that begin and end the segment.
        assert!(
            (value / expected - 1.0).abs() < 0.002,
            "{name}: {value}, of the model's counts {expected}"
        );
    }
    Ok(())
}

/// What counting costs a program that computes for two seconds, in cycles of the model: within the
/// program, and all that is executed besides from its start to its end.
#[test]
#[ignore = "takes ten minutes: run it on demand"]
fn counting_costs_a_program_next_to_nothing() -> Result<()> {
    const STAT: &str = "cloisonctl stat -e INST_RETIRED -e CPU_CYCLES";
    const PERF: &str = "perf stat -e instructions,cycles";
    let mut beside = Beside::start()?;
    let ways = [
        ("pmu", ""),
        ("pmu", PERF),
        ("pmu", STAT),
        ("calls", ""),
        ("calls", STAT),
    ];
    for (vm, way) in ways {
        beside.region(vm, &format!("{way} cost 5000 marked 2>&1"));
        if way.is_empty() {
            beside.region(vm, "cost 5000 marked papi");
        }
        // The first time, files are read.
        for _ in 0..2 {
            beside.region(vm, &format!("cloisonctl roi {way} cost 1 2>&1"));
        }
        if way.is_empty() {
            for _ in 0..2 {
                beside.region(vm, "cloisonctl roi cost 1 papi");
            }
        }
    }
    let found = beside.finish()?;
    for (name, counts) in &found {
        println!("{:>14} {name}", counts.cycles);
    }
    let cycles = |name: &str| {
        found
            .iter()
            .rfind(|(known, _)| known == name)
            .expect("a region")
            .1
            .cycles as f64
    };
    for vm in ["pmu", "calls"] {
        let (plain, papi) = (
            cycles(&format!("{vm}  cost 5000 marked 2>&1")),
            cycles(&format!("{vm} cost 5000 marked papi")),
        );
        let share = papi / plain - 1.0;
        println!(
            "{vm}: the library costs {:.3} % of the program",
            share * 100.0
        );
        assert!(share <= 0.001, "{vm}: {share}");
    }
    Ok(())
}
