//! Debian's perf in a guest: its counts match the hypervisor's, a quota does not change them, and
//! programs read counters themselves if Linux allows it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_abi::services;
use cloison_config::events::EventNames;
use cloison_config::guest_linux::Release;
use cloison_config::validation::record;
use cloison_config::{Checked, ImageSource};
use cloison_engine::counting;
use cloison_engine::model::{self, Conditions, Model, Roi};
use cloison_engine::{cargo, configuration};
use cloison_formats::telemetry::LoggedPeriod;
use cloison_formats::units::Nanos;
use cloison_tests::{BOTH, Clock, VIRT, ZCU102, load, machine, program, shipped, with_release};
use miette::{Result, miette};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The measured command: several hundred million instructions that rarely enter the kernel.
const WORK: &str = "gzip -c /bin/busybox >/dev/null";

/// Returns perf's counts of a command, in the order of the events; `-x` prints one event per line,
/// the count first. `perf` is `perf stat` with what comes before it, and options.
#[track_caller]
fn stat<const N: usize>(
    linux: &mut Running,
    perf: &str,
    events: [&str; N],
    command: &str,
) -> [u64; N] {
    let output = linux.output(
        "linux",
        &format!(
            "{perf} -x , -e {} -- sh -c '{command}' 2>&1 >/dev/null",
            events.join(",")
        ),
    );
    let count = |event: &str| {
        let line = output.lines().find(|line| {
            line.split(',')
                .nth(2)
                .is_some_and(|name| name.starts_with(event))
        });
        let count = line.and_then(|line| line.split(',').next()?.parse().ok());
        count.unwrap_or_else(|| panic!("no count of {event}:\n{output}"))
    };
    events.map(count)
}

/// Returns the relative difference of two counts, based on the second.
fn apart(a: u64, b: u64) -> f64 {
    apart_of(a as f64, b as f64)
}

/// The same of two means.
fn apart_of(a: f64, b: f64) -> f64 {
    (a - b).abs() / b
}

/// Returns the instructions from the start of one long idle stretch to the end of the next, around
/// the longest busy stretch, according to the hypervisor's log of every period.
#[track_caller]
fn busiest(periods: &[LoggedPeriod]) -> u64 {
    /// A period with fewer instructions is idle: the kernel's own ticks need fewer, work needs a
    /// hundred times more.
    const IDLE: u64 = 100_000;
    /// Consecutive idle periods: 0.2 s of the half second that the guest sleeps at a time.
    const LONG: usize = 20;
    let mut stretches: Vec<(usize, usize)> = vec![];
    let mut start = None;
    for (at, period) in periods.iter().enumerate() {
        match (period.events.0 < IDLE, start) {
            (true, None) => start = Some(at),
            (false, Some(first)) => {
                if at - first >= LONG {
                    stretches.push((first, at));
                }
                start = None;
            }
            _ => {}
        }
    }
    let sum = |pair: &[(usize, usize)]| {
        periods[pair[0].0..pair[1].1]
            .iter()
            .map(|period| period.events.0)
            .sum()
    };
    let most = stretches.windows(2).map(sum).max();
    most.unwrap_or_else(|| {
        panic!(
            "the command does not stand alone: idle in {stretches:?} of {}",
            periods.len()
        )
    })
}

fn perf_counts_what_the_hypervisor_counts(board: &str, release: Release) -> Result<()> {
    let checked = with_release(load(&shipped("linux-perf"), board)?, release);
    let mut linux = Running::start(&checked, board, Clock::Counted)?;
    linux.open("linux")?;
    // Everything that the core does from the middle of one sleep, when perf wakes up and starts, to
    // the middle of another. The hypervisor's log has periods of 10 ms, and both wake-ups are
    // visible in it.
    let window = "perf stat -a -D 500 --timeout 2000";
    let [instructions] = stat(
        &mut linux,
        window,
        ["instructions"],
        &format!("sleep 1; {WORK}; sleep 5"),
    );
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(run.telemetry.dropped(), 0, "{run}");
    let periods: Vec<LoggedPeriod> = run
        .telemetry
        .quota_periods()
        .map(|(_, record)| record.period)
        .collect();
    let hypervisor = busiest(&periods);
    println!(
        "{board}, {release}: perf {instructions}, hypervisor {hypervisor}, {:.6} apart",
        apart(instructions, hypervisor)
    );
    // The rest is what perf does in the periods in which it starts and ends: about 400,000
    // instructions.
    assert!(
        hypervisor > 100_000_000 && apart(instructions, hypervisor) < 0.002,
        "{instructions}, {hypervisor}"
    );
    Ok(())
}

#[test]
fn perf_counts_what_the_hypervisor_counts_on_virt() -> Result<()> {
    perf_counts_what_the_hypervisor_counts(VIRT, Release::Trixie)
}

#[test]
fn perf_counts_what_the_hypervisor_counts_on_zcu102() -> Result<()> {
    perf_counts_what_the_hypervisor_counts(ZCU102, Release::Bookworm)
}

/// Runs the same command with and without a budget of a fifth of the time: the guest's counts
/// include only itself, and the hypervisor's counter enforces the budget while perf writes to the
/// other counters. The guest lowers its budget itself, so that only the command is held.
#[test]
fn a_quota_stops_the_guest_and_not_what_it_counts() -> Result<()> {
    /// Instructions per period of 10 ms; under -icount, 10 million are the whole period.
    const BUDGET: u64 = 2_000_000;
    let mut checked = load(&shipped("linux-perf"), VIRT)?;
    let vm = &mut checked.system.vms[0];
    (vm.services, vm.services_page) = (services::QUOTA, true);
    assert_eq!(vm.quotas[0].period, Nanos(10_000_000));
    let mut linux = Running::start(&checked, VIRT, Clock::Counted)?;
    linux.open("linux")?;
    let events = ["instructions", "cycles", "duration_time"];
    let free = stat(&mut linux, "perf stat", events, WORK);
    linux.output(
        "linux",
        &format!("cloisonctl quota --vcpu 0 --set 0 {BUDGET}"),
    );
    let held = stat(&mut linux, "perf stat", events, WORK);
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    let periods: Vec<LoggedPeriod> = run
        .telemetry
        .quota_periods()
        .map(|(_, record)| record.period)
        .collect();
    let lowered = periods
        .iter()
        .position(|period| period.throttled.0 > 0)
        .expect("the guest is held once its budget is low");
    // The first period began before the budget was lowered.
    let after = &periods[lowered + 1..];
    let most = after.iter().map(|period| period.events.0).max();
    let time: u64 = after.iter().map(|period| period.throttled.0).sum();
    println!("free {free:?}, held {held:?} and {time} ns, most {most:?}, of {BUDGET}");
    // The command takes five times as long and does the same work; more timer ticks occur
    // meanwhile.
    assert!(held[2] >= 4 * free[2] && time >= 3 * free[2], "{time}");
    assert!(apart(held[0], free[0]) < 0.01);
    // Cycles at EL2 are not the guest's: otherwise there would be five times as many.
    assert!(apart(held[1], free[1]) < 0.01);
    // The budget is enforced in every period, whatever perf does with its own counters.
    let allowed = BUDGET..BUDGET + BUDGET / 20;
    assert!(most.is_some_and(|most| allowed.contains(&most)), "{most:?}");
    Ok(())
}

#[test]
fn perf_samples_by_the_overflow_interrupt_where_there_is_one() -> Result<()> {
    for board in BOTH {
        let mut linux =
            Running::start(&load(&shipped("linux-perf"), board)?, board, Clock::Counted)?;
        linux.open("linux")?;
        let [cycles] = stat(&mut linux, "perf stat", ["cycles"], WORK);
        let record =
            |event: &str| format!("perf record -o /tmp/p -e {event} -- sh -c '{WORK}' 2>&1");
        let by_cycles = linux.ask("linux", &record("cycles"))?;
        let interrupts = linux.output("linux", "grep arm-pmu /proc/interrupts || true");
        let event = if board == VIRT {
            assert_eq!(by_cycles.status, 0, "{}", by_cycles.output);
            "cycles"
        } else {
            // QEMU's ZCU102 wires no PMU interrupt: the kernel reports that, and samples by its
            // timer.
            assert_ne!(by_cycles.status, 0);
            assert!(
                by_cycles
                    .output
                    .contains("doesn't support sampling/overflow-interrupts"),
                "{}",
                by_cycles.output
            );
            assert_eq!(interrupts, "");
            linux.output("linux", &record("cpu-clock"));
            "cpu-clock"
        };
        let report = linux.output("linux", "perf report -i /tmp/p --stdio 2>/dev/null");
        let of = |what: &str| {
            report
                .lines()
                .find(|line| line.contains(what))
                .unwrap_or_default()
                .to_owned()
        };
        let (samples, count) = (of("# Samples:"), of("# Event count"));
        println!("{board}: {samples}, {count}; {interrupts}");
        assert!(
            samples.contains(&format!("of event '{event}'")) && report.contains("busybox"),
            "{report}"
        );
        // All of it is sampled: a cycle of the core is a nanosecond of the clock here.
        let total = count
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        assert!(apart(total, cycles) < 0.05, "{total}, {cycles}");
        if board == VIRT {
            let taken: u64 = interrupts
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0);
            assert!(taken >= 100, "{interrupts}");
        }
        linux.type_in("linux", "poweroff -f\n")?;
        linux.finish()?.whole();
    }
    Ok(())
}

/// On the board model the event counters count cache events and raise interrupts, and the guest's
/// PMU says so: perf samples L2 refills by its own name for them.
#[test]
fn on_the_board_model_perf_counts_and_samples_refills() -> Result<()> {
    let board = VIRT;
    let model = Model::load(model::of(&configuration::emulation(board)?)?)?;
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let stats = scratch.path().join("model.json");
    let mut checked = load(&shipped("linux-perf"), board)?;
    counting::adapt(&mut checked, record::Machine::Model)?;
    // The kernel boots without the model, which would take minutes.
    let conditions = Conditions {
        roi: Roi::Hint,
        ..Conditions::default()
    };
    let mut linux = Running::start_on(&checked, |file| {
        Ok(model.attach(machine(board, file, Clock::Real)?, conditions, &stats))
    })?;
    linux.open("linux")?;
    // What the model does not count has no name.
    let pmu = linux
        .output("linux", "ls /sys/bus/event_source/devices | grep armv8")
        .trim()
        .to_owned();
    let known = linux.output(
        "linux",
        &format!("ls /sys/bus/event_source/devices/{pmu}/events"),
    );
    println!("{pmu}: {known}");
    assert!(
        known.contains("l2d_cache_refill") && !known.contains("unaligned_ldst_retired"),
        "{known}"
    );
    let named = ["inst_retired", "l1d_cache_refill", "l2d_cache_refill"]
        .map(|event| format!("{pmu}/{event}/"));
    // Some ten million instructions.
    let work = "dd if=/bin/busybox bs=64k count=4 2>/dev/null | gzip -c >/dev/null";
    let [instructions, l1, l2] = stat(
        &mut linux,
        "cloisonctl roi perf stat",
        named.each_ref().map(String::as_str),
        work,
    );
    println!("{instructions} instructions, {l1} L1 and {l2} L2 refills (modelled)");
    assert!(
        instructions > 20_000_000 && l1 > l2 && l2 > 1000,
        "{instructions}, {l1}, {l2}"
    );
    linux.output(
        "linux",
        &format!(
            "cloisonctl roi perf record -o /tmp/p -e {} -- sh -c '{work}' 2>&1",
            named[2]
        ),
    );
    let report = linux.output("linux", "perf report -i /tmp/p --stdio 2>/dev/null");
    let count = report
        .lines()
        .find(|line| line.contains("# Event count"))
        .unwrap_or_default();
    println!("{count}");
    let total: u64 = count
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    // Another run of the command on other frames: similar, but not equal.
    assert!(
        report.contains(&format!("of event '{}'", named[2])) && apart(total, l2) < 0.25,
        "{report}"
    );
    linux.type_in("linux", "poweroff -f\n")?;
    linux.finish()?.whole();
    Ok(())
}

#[test]
fn a_program_reads_its_counters_where_linux_lets_it() -> Result<()> {
    for board in BOTH {
        let mut checked = load(&shipped("linux-perf"), board)?;
        let ImageSource::Linux(source) = &mut checked.images[0] else {
            panic!("a Linux guest")
        };
        source.packages.clear();
        source.programs.push(cargo::linux_tool("count-self")?);
        let mut linux = Running::start(&checked, board, Clock::Counted)?;
        linux.open("linux")?;
        // Not unless the administrator allows it: neither by perf's rules nor by force.
        let refused = linux.ask("linux", "count-self")?;
        assert!(
            refused.status == 1 && refused.output.contains("instructions: not for programs"),
            "{refused:?}"
        );
        let killed = linux.ask("linux", "count-self now; echo status=$?")?;
        assert!(killed.output.contains("status=132"), "{killed:?}");
        linux.output("linux", "echo 1 > /proc/sys/kernel/perf_user_access");
        let output = linux.output("linux", "count-self");
        println!("{board}: {output}");
        for event in ["instructions", "cycles"] {
            let line = output
                .lines()
                .find(|line| line.contains(event))
                .expect("a line of each event");
            let [expected, own, kernel] =
                ["expected", "mrs", "kernel"].map(|key| cloison_tests::number(line, key));
            // The count includes the two reads, and the kernel's count includes the system calls
            // around them.
            assert!((expected..expected + 100).contains(&own), "{line}");
            assert!((own..own + 10_000).contains(&kernel), "{line}");
        }
        linux.type_in("linux", "poweroff -f\n")?;
        linux.finish()?.whole();
    }
    Ok(())
}

/// The guest in which perf carries out a plan, or the one that a campaign restarts for each run.
fn planned(scratch: &Path, name: &str, vm: PlannedVm) -> Result<Checked> {
    let text = format!(
        "name = '{name}'\n[hypervisor]\ncolors = '15'\n\
         [[pool]]\nname = 'own'\nkind = 'PVT'\ncolors = '0-6'\n\
         [[vm]]\nname = '{}'\ncores = [0]\n{}\n[vm.image]\nlinux = 'cloud'\n\
         tools = ['bbprof-benchmark']\n{}\n[[vm.region]]\nname = 'ram'\n\
         ipa = 0x4000_0000\nsize = '256M'\npool = 'own'\n{}\n",
        vm.name, vm.services, vm.image, vm.campaign
    );
    let path = scratch.join(format!("{name}.toml"));
    std::fs::write(&path, text).map_err(|error| miette!("{error}"))?;
    let mut checked = load(&path, VIRT)?;
    counting::adapt(&mut checked, record::Machine::Model)?;
    Ok(checked)
}

/// A Linux guest in a system made for a plan. All but the name is lines of the configuration.
struct PlannedVm<'a> {
    name: &'a str,
    services: &'a str,
    image: String,
    campaign: &'a str,
}

/// Starts a system on the model, which counts in regions of interest alone.
fn start_modelled(checked: &Checked, folder: &Path) -> Result<Running> {
    let model = Model::load(model::of(&configuration::emulation(VIRT)?)?)?;
    let stats = folder.join("model.json");
    let conditions = Conditions {
        roi: Roi::Hint,
        ..Conditions::default()
    };
    Running::start_on(checked, |file| {
        Ok(model.attach(machine(VIRT, file, Clock::Real)?, conditions, &stats))
    })
}

/// Runs the program `cloison`, which must succeed.
#[track_caller]
fn cloison(folder: &Path, arguments: &[&str]) {
    let done = Command::new(program())
        .args(arguments)
        .current_dir(folder)
        .output();
    let done = done.expect("cloison starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {said}");
}

/// Returns the mean count of each event of a long table.
fn means(table: &str) -> BTreeMap<String, f64> {
    let mut lines = table
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    let column = |name: &str| head.iter().position(|it| *it == name).expect("a column");
    let (event, value) = (column("event"), column("value"));
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry(line[event].to_owned()).or_default();
        *sum = (
            sum.0 + line[value].parse::<f64>().expect("a count"),
            sum.1 + 1.0,
        );
    }
    let mean = |(name, (sum, count))| (name, sum / count);
    sums.into_iter().map(mean).collect()
}

/// Has perf carry out the plan in the guest, and returns the means of what was read from its files.
fn counted_by_perf(
    linux: &mut Running,
    folder: &Path,
    work: &str,
    turns: usize,
) -> BTreeMap<String, f64> {
    linux.output("pmu", "rm -rf /tmp/plan && mkdir /tmp/plan");
    // Each in a command within its time limit.
    for turn in 0..turns {
        let count = format!(
            "RUNS=1 OUT=/tmp/plan/c{turn} cloisonctl roi sh /usr/bin/count-events.sh {work} \
             >/tmp/said 2>&1 || {{ cat /tmp/said; false; }}"
        );
        linux.output("pmu", &count);
    }
    let files = [
        ("counts.csv", "cd /tmp/plan && cat $(ls | grep -v toml)"),
        ("counts.csv.much.toml", "cat /tmp/plan/c0.much.toml"),
    ];
    for (name, command) in files {
        let text = linux.output("pmu", command);
        std::fs::write(folder.join(name), text).expect("written");
    }
    for (command, to) in [("import", "long.csv"), ("merge", "merged.csv")] {
        cloison(folder, &["much", command, "counts.csv", "-o", to]);
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a table");
    let (means, merged) = (means(&read("long.csv")), read("merged.csv"));
    let head: BTreeSet<&str> = merged
        .lines()
        .next()
        .unwrap_or_default()
        .split(',')
        .collect();
    assert!(
        means.keys().all(|event| head.contains(event.as_str())),
        "{head:?}"
    );
    means
}

/// Restarts a guest for each run of the planned campaign, and returns the means of the events of a
/// program in it. Each program has a boot: a region of interest is the whole machine's, so that one
/// guest's end would end another one's.
fn counted_by_a_campaign(folder: &Path, work: &str) -> Result<BTreeMap<String, f64>> {
    let campaign = std::fs::read_to_string(folder.join("campaign.toml")).expect("a plan");
    let campaign = campaign.replace("runs = 30", "runs = 1");
    assert!(campaign.contains("runs = 1\n"), "{campaign}");
    let vm = PlannedVm {
        name: "work",
        services: "services = ['hem']\nservices_page = true",
        // The first segment after a start finds a program that Linux has not read yet.
        image: format!("exec = 'cloisonctl stat --by hem -r 3 {work}'"),
        campaign: &campaign,
    };
    let checked = planned(folder, "runs", vm)?;
    let run = start_modelled(&checked, folder)?.finish()?.whole();
    let names = EventNames::of(&checked.board.events);
    let mut counts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let runs: Vec<_> = run.telemetry.hem_runs().collect();
    for start in runs.chunks(3) {
        for hem in &start[1..] {
            for (event, count, overflowed) in hem.counts() {
                assert!(!overflowed, "{}", names.name(event));
                counts
                    .entry(names.name(event))
                    .or_default()
                    .push(count.into());
            }
        }
    }
    let mean = |(name, all): (String, Vec<f64>)| (name, all.iter().sum::<f64>() / all.len() as f64);
    Ok(counts.into_iter().map(mean).collect())
}

/// A plan of 16 events is carried out by perf in a guest and merged, and a campaign of the same
/// program in a Linux guest counts the same.
#[test]
#[ignore = "on demand: runs programs some 200 times on the model, for ten minutes"]
fn a_plan_that_perf_carries_out_in_a_guest_counts_what_a_campaign_counts() -> Result<()> {
    /// What the program decides. The others depend on what the kernel executed just before, which
    /// is another thing in each way, and on the frames that the program gets.
    const OF_THE_PROGRAM: [&str; 9] = [
        "INST_RETIRED",
        "CPU_CYCLES",
        "LD_RETIRED",
        "ST_RETIRED",
        "L1D_CACHE",
        "L1D_CACHE_REFILL",
        "L1D_CACHE_WB",
        "L1I_CACHE",
        "MEM_ACCESS",
    ];
    const OTHERS: [&str; 7] = [
        "L1I_CACHE_REFILL",
        "L2D_CACHE",
        "L2D_CACHE_REFILL",
        "L2D_CACHE_WB",
        "BUS_ACCESS",
        "L1D_TLB_REFILL",
        "L1I_TLB_REFILL",
    ];
    const WORK: &str = "bbprof-benchmark disparity 1 1";
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let folder = scratch.path();
    let all = [&OF_THE_PROGRAM[..], &OTHERS].concat();
    let (events, script) = (all.join(","), folder.join("count-events.sh"));
    for (form, file) in [("perf", "count-events.sh"), ("campaign", "campaign.toml")] {
        let plan = ["much", "plan", "--cpu", "cortex-a53", "--pmcs", "6"];
        let to = ["--events", &events, "--for", form, "-o", file];
        cloison(folder, &[&plan[..], &to].concat());
    }
    // What either way counts of a program that does nothing is taken off: cloisonctl's own start,
    // and what starts any program.
    let pmu = PlannedVm {
        name: "pmu",
        services: "pmu = 'emulated'",
        image: format!(
            "packages = ['linux-perf']\nprograms = ['{}']",
            script.display()
        ),
        campaign: "",
    };
    let mut linux = start_modelled(&planned(folder, "plan", pmu)?, folder)?;
    linux.open("pmu")?;
    let by_perf = counted_by_perf(&mut linux, folder, WORK, 5);
    let nothing = counted_by_perf(&mut linux, folder, "true", 2);
    linux.type_in("pmu", "poweroff -f\n")?;
    linux.finish()?.whole();

    let of_work = counted_by_a_campaign(folder, WORK)?;
    let of_nothing = counted_by_a_campaign(folder, "true")?;
    let mut apart = Vec::new();
    for event in all {
        let perf = by_perf[event] - nothing[event];
        let own = of_work[event] - of_nothing[event];
        println!(
            "{event}: perf {perf:.0} ({:.0} - {:.0}), campaign {own:.0} ({:.0} - {:.0})",
            by_perf[event], nothing[event], of_work[event], of_nothing[event]
        );
        if OF_THE_PROGRAM.contains(&event) && apart_of(perf, own) >= 0.05 {
            apart.push(event);
        }
    }
    assert_eq!(apart, Vec::<&str>::new());
    Ok(())
}
