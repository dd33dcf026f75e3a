//! The services page: a root process of a Linux guest makes calls, and gets only those that its VM
//! is granted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_config::ImageSource;
use cloison_formats::color::Color;
use cloison_formats::ids::{VcpuIndex, VmId};
use cloison_formats::telemetry::MigrationOutcome;
use cloison_tests::{Clock, Run, VIRT, ZCU102, config, load, number, shipped, walk};
use miette::Result;

/// Returns the count of the line whose second word is `name`.
#[track_caller]
fn value(output: &str, name: &str) -> u64 {
    let mut words = output
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = words
        .find(|words| words.get(1) == Some(&name))
        .unwrap_or_else(|| panic!("no {name} in\n{output}"));
    line[0].parse().unwrap_or_else(|_| panic!("{line:?}"))
}

fn counts_several_runs(linux: &mut Running) {
    // Several runs in one file, apart from the command's output; a command that fails is not
    // repeated.
    let csv = "cloisonctl stat --vcpu 1 --workload 8 --run 2 -r 3 --csv -o /tmp/counts echo word; \
               cat /tmp/counts";
    let csv = linux.output("granted", csv);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[..4],
        ["word", "word", "word", "run,event,code,count,overflowed"],
        "{csv}"
    );
    let runs = |event: &str| lines.iter().filter(|line| line.contains(event)).count();
    assert!(
        runs("2,INST_RETIRED,0x40000008,") == 1 && runs(",cycles,") == 3 && runs("4,cycles,") == 1,
        "{csv}"
    );
    let spread = linux.output("granted", "cloisonctl stat --vcpu 1 --workload 8 -r 3 true");
    assert!(
        value(&spread, "cycles") > 100_000 && spread.contains("(by hem, all, 3 runs)"),
        "{spread}"
    );
    assert_eq!(
        spread.matches("( +- ").count(),
        5,
        "two counts and three times: {spread}"
    );
}

/// Returns the colors of eight pages starting at an address, and where they are.
fn pages(linux: &mut Running, from: &str) -> Vec<(u8, String)> {
    let output = linux.output(
        "granted",
        &format!("cloisonctl colors --from {from} --pages 8"),
    );
    let page = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let color = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a color");
        (color, words.collect::<Vec<_>>().join(" "))
    };
    output.lines().skip(1).map(page).collect()
}

/// Makes the same requests in a VM that is granted nothing.
fn asks_for_nothing_more(linux: &mut Running) -> Result<()> {
    // A VM without grants can still make the requests that are always allowed.
    assert!(
        linux
            .output("plain", "cloisonctl info")
            .contains("services     none")
    );
    for (command, service) in [
        ("migrate top 1", "migrate"),
        ("quota", "quota"),
        ("cacheability 0x40000000 1 uncached", "profile"),
        ("vm", "manage"),
        ("vm stop granted", "manage"),
    ] {
        let done = linux.ask("plain", &format!("cloisonctl {command} 2>&1"))?;
        assert_eq!(done.status, 1, "{command}: {}", done.output);
        assert!(
            done.output
                .contains(&format!("this VM is not granted the service `{service}`")),
            "{}",
            done.output
        );
    }
    for (command, message) in [
        ("colors --from 0x1000", "not in the VM's RAM"),
        (
            "stat true",
            "this VM is granted neither the service `counters` nor `hem`",
        ),
        (
            "stat --by hem true",
            "this VM is not granted the service `hem`",
        ),
        (
            "stat --by counters true",
            "this VM is granted neither the service `counters` nor `hem`",
        ),
        ("stat --by hem --vcpu 3 -- true", "cannot run on vCPU 3"),
        ("migrate page nonsense", "invalid value 'nonsense'"),
    ] {
        let done = linux.ask("plain", &format!("cloisonctl {command} 2>&1"))?;
        assert!(
            done.status != 0 && done.output.contains(message),
            "{command}: {}",
            done.output
        );
    }
    // Nonexistent registers and accesses that are too narrow read as zero.
    for access in ["0x09001ff8 64", "0x09001000 32", "0x09001004 8"] {
        let zero = linux.output("plain", &format!("devmem {access}"));
        assert_eq!(
            zero.trim().trim_start_matches("0x").trim_matches('0'),
            "",
            "{access}"
        );
    }
    Ok(())
}

/// Stops and starts the other VM.
fn manages_the_other(linux: &mut Running) -> Result<()> {
    let list = |linux: &mut Running| -> Vec<String> {
        let list = linux.output("granted", "cloisonctl vm list");
        list.lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(list(linux), ["0 granted running no", "1 plain running yes"]);
    for (command, answer, state) in [
        ("stop plain", "plain: stopped", "stopped"),
        ("stop plain", "plain: stopped", "stopped"),
        ("start plain", "plain: running", "running"),
        ("start plain", "plain: running", "running"),
        ("restart plain", "plain: running", "running"),
        ("stop plain", "plain: stopped", "stopped"),
        ("restart plain", "plain: running", "running"),
    ] {
        let output = linux.output("granted", &format!("cloisonctl vm {command}"));
        assert_eq!(output.trim(), answer, "{command}");
        assert_eq!(
            list(linux),
            [
                "0 granted running no".to_owned(),
                format!("1 plain {state} yes")
            ],
            "{command}"
        );
    }
    for (command, message) in [
        ("stop granted", "a VM cannot manage itself"),
        ("stop nobody", "this machine has: granted, plain"),
    ] {
        let done = linux.ask("granted", &format!("cloisonctl vm {command} 2>&1"))?;
        assert!(
            done.status == 1 && done.output.contains(message),
            "{command}: {}",
            done.output
        );
    }
    // The VM boots from its image, and not only in name.
    linux.open("plain")?;
    assert!(
        linux
            .output("plain", "cloisonctl info")
            .contains("services     none")
    );
    Ok(())
}

/// Shows and sets the budget of the other VM, up to the ceiling that the device tree names.
fn regulates_the_other(linux: &mut Running) -> Result<()> {
    let list = linux.output("granted", "cloisonctl budget");
    let rows: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        matches!(rows.as_slice(), [header, row] if header[3] == "ceiling"
            && row[..4] == ["plain", "0", "4000000", "5000000"]),
        "{list}"
    );
    let set = linux.output("granted", "cloisonctl budget plain --set 0 5000000");
    assert!(set.contains("5000000 events per period"), "{set}");
    for (command, message) in [
        (
            "plain --set 0 5000001",
            "a budget of this quota is 1 to 5000000 events",
        ),
        ("plain --set 1 1", "it has no such quota"),
        ("granted", "`cloisonctl quota` shows them"),
    ] {
        let done = linux.ask("granted", &format!("cloisonctl budget {command} 2>&1"))?;
        assert!(
            done.status == 1 && done.output.starts_with("error: ") && done.output.contains(message),
            "{command}: {}",
            done.output
        );
    }
    Ok(())
}

/// Makes every request of the command, in a VM that is granted everything.
fn asks_for_everything(board: &str) -> Result<()> {
    let mut linux = Running::start(
        &load(&config("linux-services"), board)?,
        board,
        Clock::Counted,
    )?;
    linux.open("granted")?;
    linux.open("plain")?;

    reads_its_own_terms(&mut linux);
    moves_pages(&mut linux);
    lowers_its_quota(&mut linux)?;

    // The command prints what the log records.
    let hem = linux.output(
        "granted",
        "cloisonctl stat --vcpu 1 --workload 7 --sub-experiment 3 --run 5 -- sh -c 'exit 0'",
    );
    let (counted, cycles) = (value(&hem, "INST_RETIRED"), value(&hem, "cycles"));
    counts_several_runs(&mut linux);
    assert_eq!(
        linux
            .ask("granted", "cloisonctl stat -r 5 -- sh -c 'exit 9'")?
            .status,
        9
    );
    assert_ne!(
        linux
            .ask("granted", "cloisonctl stat -- /no/such/thing 2>&1")?
            .status,
        0
    );

    asks_for_nothing_more(&mut linux)?;
    regulates_the_other(&mut linux)?;
    manages_the_other(&mut linux)?;
    let run = linux.stop()?;
    let hems: Vec<_> = run.telemetry.hem_runs().map(|run| *run.record).collect();
    let record = hems
        .iter()
        .find(|record| record.workload == 7)
        .unwrap_or_else(|| panic!("{run}"));
    assert_eq!(
        (record.vm, record.vcpu, record.sub_experiment, record.run),
        (VmId(0), VcpuIndex(1), 3, 5)
    );
    assert_eq!(record.cycles.0, cycles);
    assert_eq!(u64::from(record.counts[0]), counted);
    assert!(
        counted > 100_000,
        "a shell started and ended: {counted} instructions"
    );
    assert_eq!(hems.len(), 9, "a segment ends also when its command fails");
    logs_each_page_that_moved(&run);
    Ok(())
}

/// What the VM is, its services and the colors of its memory.
fn reads_its_own_terms(linux: &mut Running) {
    let info = linux.output("granted", "cloisonctl info");
    for line in [
        "interface    version 1",
        "VM           0",
        "services     hem, migrate, quota, profile, manage, regulate",
    ] {
        assert!(info.contains(line), "{info}");
    }
    let colors = linux.output("granted", "cloisonctl colors");
    assert!(
        colors.contains("0x000060000000         16  0-11"),
        "{colors}"
    );
    assert!(
        colors.contains("private pool           64  12-14, 0 in use"),
        "{colors}"
    );
}

/// Pages move by the profile and by their addresses, become non-cacheable and go back; what they
/// hold stays.
fn moves_pages(linux: &mut Running) {
    // The profile's four most important pages are the last four of eight; their contents stay.
    for page in 0..8 {
        linux.output(
            "granted",
            &format!("devmem 0x6000{page}ff8 64 0xc0105011{page}"),
        );
    }
    assert!(
        linux
            .output("granted", "cloisonctl migrate top 4")
            .starts_with("4 pages moved")
    );
    assert!(
        linux
            .output("granted", "cloisonctl migrate page 0x60000000 0x60001000")
            .starts_with("2 pages moved")
    );
    for (page, (color, place)) in pages(linux, "0x60000000").into_iter().enumerate() {
        let private = !(2..4).contains(&page);
        assert_eq!(
            (color >= 12, place.as_str()),
            (
                private,
                if private {
                    "private pool"
                } else {
                    "its region"
                }
            )
        );
    }
    linux.output("granted", "cloisonctl cacheability 0x60001000 2 uncached");
    let places: Vec<String> = pages(linux, "0x60000000")
        .into_iter()
        .map(|(_, place)| place)
        .collect();
    assert_eq!(
        places[..4],
        [
            "private pool",
            "private pool, not cached",
            "its region, not cached",
            "its region"
        ]
    );
    for page in 0..8 {
        let found = linux.output("granted", &format!("devmem 0x6000{page}ff8 64"));
        assert_eq!(found.trim(), format!("0x0000000C0105011{page}"));
    }
    linux.output("granted", "cloisonctl cacheability 0x60001000 2 cached");
    assert!(
        linux
            .output("granted", "cloisonctl migrate restore")
            .starts_with("6 pages moved back")
    );
    assert!(
        pages(linux, "0x60000000")
            .iter()
            .all(|(_, place)| place == "its region")
    );
}

fn lowers_its_quota(linux: &mut Running) -> Result<()> {
    // The quota belongs to vCPU 1; it can be lowered, but not raised.
    let quotas = linux.output("granted", "cloisonctl quota");
    let rows: Vec<Vec<&str>> = quotas
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        matches!(rows.as_slice(), [row] if row[..5] == ["1", "0", "INST_RETIRED", "4000000", "1000"]),
        "{quotas}"
    );
    linux.output("granted", "cloisonctl quota --vcpu 1 --set 0 3000000");
    let lowered = linux.output("granted", "sleep 0.01; cloisonctl quota --vcpu 1");
    assert!(
        lowered.contains("INST_RETIRED                3000000        1000"),
        "what is set can be read: {lowered}"
    );
    let raised = linux.ask(
        "granted",
        "cloisonctl quota --vcpu 1 --set 0 4000001 2>&1; cloisonctl quota --vcpu 0 --set 0 1 2>&1",
    )?;
    assert!(
        raised
            .output
            .contains("a budget can be lowered, not raised"),
        "{}",
        raised.output
    );
    assert!(
        raised.output.contains("this vCPU's core has no such quota"),
        "{}",
        raised.output
    );
    Ok(())
}

fn logs_each_page_that_moved(run: &Run) {
    let moved: Vec<_> = run
        .telemetry
        .migrations()
        .map(|(_, record)| *record)
        .collect();
    let of = |outcome| {
        moved
            .iter()
            .filter(|record| record.outcome == outcome)
            .count()
    };
    assert_eq!(
        (of(MigrationOutcome::Moved), of(MigrationOutcome::Restored)),
        (6, 6)
    );
    let colors = run.system.board.llc.colors().expect("colors");
    let private = |record: &&cloison_formats::telemetry::MigrationRecord| {
        cloison_formats::color::color_of(record.to, colors) >= Color(12)
    };
    assert_eq!(moved.iter().filter(private).count(), 6);
}

#[test]
fn a_linux_asks_for_what_it_is_granted_on_virt() -> Result<()> {
    asks_for_everything(VIRT)
}

#[test]
fn a_linux_asks_for_what_it_is_granted_on_zcu102() -> Result<()> {
    asks_for_everything(ZCU102)
}

/// Programs on both vCPUs take turns using the page, and each gets its own answers.
#[test]
fn programs_take_turns_at_the_page() -> Result<()> {
    let board = VIRT;
    let mut linux = Running::start(&load(&config("linux-services"), board)?, board, Clock::Real)?;
    linux.open("granted")?;
    let script = "for n in 0 1 2 3; do (for m in $(seq 25); do
            cloisonctl colors --from 0x6000${n}000 --pages 1 | tail -n 1 | grep -q \
                  \"0x00006000${n}000 .* its region\" || echo WRONG
        done; echo done $n) & done; wait";
    let output = linux.output("granted", script);
    assert!(
        !output.contains("WRONG") && output.matches("done").count() == 4,
        "{output}"
    );
    linux.stop().map(drop)
}

/// The script in docs/services.md, as it is there.
#[test]
fn the_pages_of_a_process_move_as_the_docs_say() -> Result<()> {
    let board = VIRT;
    let page = walk::page("services.md");
    let script = *walk::blocks(&page, "sh").first().expect("a script");
    let mut linux = Running::start(
        &load(&config("linux-services"), board)?,
        board,
        Clock::Counted,
    )?;
    linux.open("granted")?;
    let output = linux.output("granted", script);
    let moved = output
        .lines()
        .filter(|line| *line == "1 pages moved to the private pool")
        .count() as u64;
    let pool = linux.output("granted", "cloisonctl colors | grep 'private pool'");
    assert!(
        (1..=4).contains(&moved) && pool.contains(&format!("{moved} in use")),
        "{output}{pool}"
    );
    let run = linux.stop()?;
    let migrations = run
        .telemetry
        .migrations()
        .filter(|(_, record)| record.outcome == MigrationOutcome::Moved);
    assert_eq!(migrations.count() as u64, moved);
    Ok(())
}

#[test]
fn a_vm_without_the_page_is_told_so() -> Result<()> {
    let board = VIRT;
    let mut checked = load(&shipped("linux-cloud"), board)?;
    let ImageSource::Linux(source) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    source.tools.push("bbprof");
    let mut linux = Running::start(&checked, board, Clock::Counted)?;
    linux.open("linux")?;
    for command in [
        "cloisonctl info",
        "bbprof profile -s main busybox",
        "bbprof restore",
    ] {
        let done = linux.ask("linux", &format!("{command} 2>&1; echo status=$?"))?;
        assert!(
            done.output
                .contains("this machine has no Cloison services page"),
            "{}",
            done.output
        );
        assert!(
            done.output.contains("services_page = true") && number(&done.output, "status") == 1,
            "{}",
            done.output
        );
    }
    // Without a services page its address is unmapped: a bus error for the program, and no harm to
    // the VM.
    assert_ne!(linux.ask("linux", "devmem 0x09001000 64")?.status, 0);
    assert_eq!(linux.output("linux", "echo alive"), "alive\n");
    linux.stop().map(drop)
}
