//! Debian's perf in a guest: its counts match the hypervisor's, a quota does not change them, and
//! programs read counters themselves if Linux allows it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_config::ImageSource;
use cloison_config::guest_linux::Release;
use cloison_config::validation::record;
use cloison_engine::counting;
use cloison_engine::model::{self, Conditions, Model, Roi};
use cloison_engine::{cargo, configuration};
use cloison_formats::telemetry::LoggedPeriod;
use cloison_formats::units::{Events, Nanos};
use cloison_tests::{BOTH, Clock, VIRT, ZCU102, load, machine, shipped, with_release};
use miette::{Result, miette};

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
    (a as f64 - b as f64).abs() / b as f64
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
/// other counters.
#[test]
fn a_quota_stops_the_guest_and_not_what_it_counts() -> Result<()> {
    /// Instructions per period of 10 ms; under -icount, 10 million are the whole period.
    const BUDGET: u64 = 2_000_000;
    let mut counts = vec![];
    for budget in [None, Some(Events(BUDGET))] {
        let mut checked = load(&shipped("linux-perf"), VIRT)?;
        let quota = &mut checked.system.vms[0].quotas[0];
        assert_eq!(quota.period, Nanos(10_000_000));
        quota.budget = budget.unwrap_or(quota.budget);
        quota.ceiling = quota.budget;
        let mut linux = Running::start(&checked, VIRT, Clock::Counted)?;
        linux.open("linux")?;
        let events = ["instructions", "cycles", "duration_time"];
        let [instructions, cycles, duration] = stat(&mut linux, "perf stat", events, WORK);
        linux.type_in("linux", "poweroff -f\n")?;
        let run = linux.finish()?.whole();
        let most = run
            .telemetry
            .quota_periods()
            .map(|(_, record)| record.period.events.0)
            .max()
            .unwrap_or(0);
        let held: u64 = run
            .telemetry
            .quota_periods()
            .map(|(_, record)| record.period.throttled.0)
            .sum();
        println!(
            "{budget:?}: {instructions} instructions, {cycles} cycles, {duration} ns, most \
             {most}, held {held} ns"
        );
        counts.push((instructions, cycles, duration, most, held));
    }
    let [free, held] = [counts[0], counts[1]];
    // The command takes five times as long and does the same work; more timer ticks occur
    // meanwhile.
    assert!(held.2 >= 4 * free.2, "{counts:?}");
    assert!(apart(held.0, free.0) < 0.01, "{counts:?}");
    // Cycles at EL2 are not the guest's: otherwise there would be five times as many.
    assert!(apart(held.1, free.1) < 0.01, "{counts:?}");
    // The budget is enforced in every period, whatever perf does with its own counters.
    assert!(
        free.4 == 0 && held.4 > 0 && held.3 >= BUDGET && held.3 < BUDGET + BUDGET / 20,
        "{counts:?}"
    );
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
