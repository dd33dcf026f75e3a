//! `bbprof` in an unmodified Linux guest: its profiles, its refusals, and the state of the VM after
//! each end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_abi::list;
use cloison_config::ImageSource;
use cloison_engine::cargo;
use cloison_engine::model::{self, Conditions, Model};
use cloison_tests::{Clock, VIRT, config, load, machine, shipped};
use miette::Result;
use object::{Object, ObjectSymbol};
use std::path::Path;

/// The function of the program to profile, and the program.
const SEGMENT: &str = "-s black_box::segment black-box";

/// Starts a guest with a program that does what its argument says, with its symbols and without.
fn start() -> Result<Running> {
    let mut checked = load(&config("linux-bbprof"), VIRT)?;
    let ImageSource::Linux(source) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    source
        .programs
        .push(cargo::linux_tool_with_symbols("black-box")?);
    source.programs.push(cargo::linux_tool("count-self")?);
    source.programs.push(cargo::linux_tool("witness")?);
    let mut linux = Running::start(&checked, VIRT, Clock::Counted)?;
    linux.open("linux")?;
    Ok(linux)
}

/// Returns a number after a word in what a command printed.
#[track_caller]
fn before(text: &str, unit: &str) -> u64 {
    let at = text
        .find(unit)
        .unwrap_or_else(|| panic!("no `{unit}` in\n{text}"));
    let word = text[..at].split_whitespace().next_back().expect("a number");
    word.parse()
        .unwrap_or_else(|_| panic!("`{word}` before `{unit}` in\n{text}"))
}

/// All pages are cacheable and where they were, nobody has the lease, and no program is left.
#[track_caller]
fn is_as_before(linux: &mut Running, when: &str) {
    let pages = linux.output(
        "linux",
        "cloisonctl colors --from 0x40000000 --pages 40960 | grep -c -E 'not cached|private'; true",
    );
    assert_eq!(pages.trim(), "0", "{when}");
    assert!(
        linux
            .output("linux", "cloisonctl colors")
            .contains(", 0 in use"),
        "{when}"
    );
    // Nor one that has ended and that nobody has waited for.
    let left = linux.output(
        "linux",
        "ps | grep -v grep | grep -c -E 'black-box|bbprof'; true",
    );
    assert_eq!(left.trim(), "0", "{when}: {}", linux.output("linux", "ps"));
    let free = linux.output("linux", "bbprof restore");
    assert_eq!(free.trim(), "no profiler has left anything", "{when}");
}

/// Starts a process that nobody profiles, and that watches its own pages.
fn call_witness(linux: &mut Running) {
    linux.output("linux", "(witness >/tmp/witness 2>&1 &) ; sleep 1");
}

/// The witness has looked again from the first page to the last one, and has seen no change.
#[track_caller]
fn witness_saw_no_change(linux: &mut Running, when: &str) {
    let mut looks = || -> u64 {
        let last = linux.output("linux", "usleep 20000; tail -n 1 /tmp/witness");
        let number = last.trim().strip_prefix("look ");
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{when}: {last}"))
    };
    let first = looks();
    // The one that is under way may have begun before.
    assert!(
        (0..100).any(|_| looks() >= first + 2),
        "{when}: the witness has not looked twice since look {first}"
    );
}

#[test]
fn a_program_is_profiled_and_runs_with_its_pages_apart() -> Result<()> {
    let mut linux = start()?;
    let done = linux.output(
        "linux",
        &format!("bbprof profile -f h -o /tmp/p.toml {SEGMENT} 2>&1"),
    );
    let (pages, runs) = (before(&done, " pages to profile"), before(&done, " runs,"));
    assert!((6..=40).contains(&pages), "{done}");
    assert_eq!(
        runs,
        pages + 5,
        "one for each page, three to compare with, and two that find the layout: {done}"
    );
    // The segment makes no system calls, so that one process runs it again and again. From each page
    // to the next, two pages change.
    assert_eq!(
        (
            before(&done, " processes,"),
            before(&done, " calls that changed pages"),
            before(&done, " changes of a page"),
        ),
        (4, pages + 2, 4 * pages - 2),
        "{done}"
    );
    let shown = linux.output("linux", "bbprof show /tmp/p.toml");
    assert!(shown.contains("black_box::segment"), "{shown}");
    let exported = linux.output("linux", "bbprof export --format csv /tmp/p.toml");
    assert!(exported.lines().count() as u64 > pages, "{exported}");
    is_as_before(&mut linux, "after a profile");

    runs_are_repeated_in_one_process_where_that_is_right(&mut linux);
    stacks_have_the_same_pages_in_each_run(&mut linux);

    let rank = linux.output("linux", "bbprof rank --coarse -i /tmp/p.toml 2>&1");
    assert!(rank.contains("k* = "), "{rank}");
    let migrate = linux.output("linux", "bbprof migrate -i /tmp/p.toml -g 4 2>&1");
    assert!(
        migrate.lines().any(|line| line.starts_with("4,")),
        "{migrate}"
    );
    let ran = linux.ask("linux", "bbprof run -i /tmp/p.toml -g 4 2>&1")?;
    assert!(
        ran.output.contains("sum=24576") && ran.output.contains("ran with 4 pages"),
        "{ran:?}"
    );
    assert_eq!(ran.status, 7, "the program's own: {ran:?}");
    is_as_before(&mut linux, "after a run");
    // It takes its time until it calls the function: nothing is changed until then, and no lease is
    // needed.
    let late = linux.output("linux", "bbprof migrate -i /tmp/p.toml -g 4 -- late 2>&1");
    assert!(late.lines().any(|line| line.starts_with("4,")), "{late}");
    is_as_before(&mut linux, "after a program that was late");

    let group = linux.output(
        "linux",
        &format!("bbprof group --block 4 -f h -o /tmp/g.toml {SEGMENT} 2>&1"),
    );
    assert!(
        linux
            .output("linux", "bbprof show /tmp/g.toml")
            .contains("black_box::segment"),
        "{group}"
    );
    let inverse = linux.output(
        "linux",
        &format!("bbprof profile -m nc -f h {SEGMENT} 2>&1"),
    );
    assert!(inverse.contains("mode = \"nc\""), "{inverse}");
    // The heap then begins right behind the program's variables.
    let fixed = linux.output(
        "linux",
        &format!("bbprof profile --fixed -f h -o /tmp/f.toml {SEGMENT} 2>&1"),
    );
    assert!(
        (6..=60).contains(&before(&fixed, " pages to profile")),
        "{fixed}"
    );
    let every = linux.output("linux", "bbprof rank --fixed --every 5 -i /tmp/f.toml 2>&1");
    assert!(
        every.lines().any(|line| line.starts_with("5,")) && every.contains("k* = "),
        "{every}"
    );
    is_as_before(&mut linux, "after the other modes");
    linux.stop()?;
    Ok(())
}

/// Returns a column of a profile's CSV, by its name.
#[track_caller]
fn column(csv: &str, name: &str) -> Vec<f64> {
    let mut lines = csv.lines();
    let header = lines.next().unwrap_or_default();
    let at = header
        .split(',')
        .position(|field| field == name)
        .unwrap_or_else(|| panic!("no `{name}` in {header}"));
    let value = |line: &str| line.split(',').nth(at).and_then(|field| field.parse().ok());
    lines
        .map(|line| value(line).unwrap_or_else(|| panic!("`{name}` in {line}")))
        .collect()
}

/// A segment that would take longer each time has its memory back after each run. One that makes
/// system calls, which no snapshot undoes, has a new process for each run.
#[track_caller]
fn runs_are_repeated_in_one_process_where_that_is_right(linux: &mut Running) {
    for (options, processes) in [("-f h", 4), ("-f h --new-processes", 15)] {
        let profile = format!("bbprof profile {options} -o /tmp/n.toml {SEGMENT} again 2>&1");
        let done = linux.output("linux", &profile);
        assert!(
            (processes..processes + 10).contains(&before(&done, " processes,")),
            "{done}"
        );
        let exported = linux.output("linux", "bbprof export /tmp/n.toml");
        let counts = column(&exported, "INST_RETIRED");
        let least = counts.iter().copied().fold(f64::MAX, f64::min);
        let most = counts.iter().copied().fold(0.0, f64::max);
        // Interrupts are counted, too.
        assert!(
            least > 300_000.0 && most < 1.5 * least,
            "{options}: {counts:?}"
        );
    }
    let profile = format!("bbprof profile -f h -o /tmp/n.toml {SEGMENT} say 2>&1");
    let done = linux.output("linux", &profile);
    assert!(
        done.contains("each run had a new process: it makes system calls, first number 64"),
        "{done}"
    );
    assert_eq!(
        before(&done, " calls that changed pages"),
        2 * (before(&done, " pages to profile") + 1),
        "{done}"
    );
}

/// Addresses are random, and so is the part of a page that the kernel leaves free in the stack of
/// each process.
#[track_caller]
fn stacks_have_the_same_pages_in_each_run(linux: &mut Running) {
    let mut found = Vec::new();
    for environment in ["", "LONGER=0123456789abcdef0123456789abcdef", ""] {
        let profile = format!("{environment} bbprof profile -f s -o /tmp/s.toml {SEGMENT} 2>&1");
        linux.output("linux", &profile);
        let depth = linux.output("linux", "grep '^stack = ' /tmp/s.toml");
        let exported = linux.output("linux", "bbprof export /tmp/s.toml");
        found.push((depth, column(&exported, "offset")));
    }
    assert!(found[0].1.len() > 1, "{found:?}");
    assert!(found.iter().all(|these| *these == found[0]), "{found:?}");
}

#[test]
fn what_cannot_be_profiled_is_refused_and_leaves_nothing() -> Result<()> {
    let mut linux = start()?;
    for (arguments, message) in [
        ("-s nothing black-box", "has no function `nothing`"),
        ("-s main count-self", "it has no symbols at all"),
        ("-s main /proc/version", "is no ELF file"),
        ("-s main /no/such", "cannot read /no/such"),
        (
            "-s black_box::segment black-box exit",
            "ended with status 3 inside the segment",
        ),
        (
            "-s black_box::segment black-box crash",
            "killed by SIGABRT inside the segment",
        ),
        (
            "-s black_box::segment black-box fork",
            "started another process inside the segment",
        ),
        (
            "-s black_box::segment black-box exec",
            "executed another one inside the segment",
        ),
        (
            "-s black_box::segment black-box thread",
            "started a thread inside the segment",
        ),
        (
            "-s black_box::segment black-box map",
            "memory of the program changes in the segment",
        ),
        (
            "-s black_box::segment black-box early-thread",
            "started a thread before it called the function",
        ),
        (
            "-s black_box::segment black-box early-exit",
            "ended with status 5 before it called the function",
        ),
    ] {
        let done = linux.ask("linux", &format!("bbprof profile -f h {arguments} 2>&1"))?;
        assert!(
            done.status != 0 && done.output.contains(message),
            "{arguments}: {done:?}"
        );
    }
    // A machine that is not this one: e_machine of x86-64.
    linux.output(
        "linux",
        "cp $(which bbprof) /tmp/other && printf '\\076' | dd of=/tmp/other bs=1 seek=18 \
         conv=notrunc 2>&1",
    );
    let done = linux.ask("linux", "bbprof profile -s main /tmp/other 2>&1")?;
    assert!(
        done.status != 0 && done.output.contains("and this is AArch64"),
        "{done:?}"
    );

    let deep = linux.output(
        "linux",
        &format!("bbprof profile -f s -o /tmp/p.toml {SEGMENT} deep 2>&1"),
    );
    let pages = before(&deep, " pages to profile");
    assert!(pages > 64, "a stack that is larger than the pool: {deep}");
    let full = linux.ask(
        "linux",
        &format!("bbprof migrate -i /tmp/p.toml -g {pages} 2>&1"),
    )?;
    let message = format!("the private pool has 64 free pages, and {pages} are to move");
    assert!(
        full.status != 0 && full.output.contains(&message),
        "{full:?}"
    );
    is_as_before(&mut linux, "after what was refused");

    // Two at once: the other runs until it is killed.
    linux.output(
        "linux",
        &format!(
            "(bbprof profile -f h {SEGMENT} forever >/tmp/first 2>&1 &) ; until pidof black-box \
             >/dev/null; do usleep 100000; done"
        ),
    );
    let second = linux.ask("linux", &format!("bbprof profile -f h {SEGMENT} 2>&1"))?;
    assert!(
        second.status != 0 && second.output.contains("another bbprof runs in this VM"),
        "{second:?}"
    );
    linux.output("linux", "killall -INT bbprof; sleep 2");
    is_as_before(&mut linux, "after an interrupt");
    linux.stop()?;
    Ok(())
}

/// Returns the address of the program's function in its file with symbols.
fn address_of_segment(path: &Path) -> u64 {
    let elf = std::fs::read(path).expect("the program");
    let file = object::File::parse(&*elf).expect("an ELF file");
    let of_segment = |symbol: &object::Symbol<'_, '_>| {
        symbol
            .name()
            .is_ok_and(|name| name.contains("9black_box7segment"))
    };
    file.symbols()
        .find(of_segment)
        .expect("its function")
        .address()
}

/// A Debian package's program, whose function is in a shared library, and a file without symbols:
/// nothing was built for this.
#[test]
fn black_boxes_are_profiled_by_library_and_by_address() -> Result<()> {
    let mut checked = load(&config("linux-bbprof"), VIRT)?;
    let ImageSource::Linux(source) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    source.packages.push("bzip2".to_owned());
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stripped = scratch.path().join("no-symbols");
    std::fs::copy(cargo::linux_tool("black-box")?, &stripped).expect("a copy");
    source.programs.push(stripped);
    let mut linux = Running::start(&checked, VIRT, Clock::Counted)?;
    linux.open("linux")?;
    let address = address_of_segment(&cargo::linux_tool_with_symbols("black-box")?);
    let by_address =
        format!("bbprof profile -f h --at {address:#x} -o /tmp/a.toml no-symbols 2>&1");
    let done = linux.output("linux", &by_address);
    assert!(
        (6..=40).contains(&before(&done, " pages to profile")),
        "{done}"
    );
    let whole = column(&linux.output("linux", "bbprof export /tmp/a.toml"), "mean");
    let part = format!("--at {address:#x} --to {:#x}", address + 8);
    linux.output(
        "linux",
        &format!("bbprof profile -f h {part} -o /tmp/part.toml no-symbols 2>&1"),
    );
    let times = column(
        &linux.output("linux", "bbprof export /tmp/part.toml"),
        "mean",
    );
    let least = |times: &[f64]| times.iter().copied().fold(f64::MAX, f64::min);
    assert!(
        least(&times) < 0.7 * least(&whole),
        "two instructions of the function: {times:?} of {whole:?}"
    );
    let shown = linux.output("linux", "bbprof show /tmp/part.toml");
    assert!(
        shown.contains(&format!("ends before  {:#x}", address + 8)),
        "{shown}"
    );
    let ranked = linux.output("linux", "bbprof rank --coarse -i /tmp/part.toml 2>&1");
    assert!(ranked.contains("k* = "), "{ranked}");
    let empty = linux.ask(
        "linux",
        &format!("bbprof profile -f h --at {address:#x} --to {address:#x} no-symbols 2>&1"),
    )?;
    assert!(
        empty.status != 0 && empty.output.contains("ends where it begins"),
        "{empty:?}"
    );
    let nowhere = linux.ask("linux", "bbprof profile -f h --at 0x10 no-symbols 2>&1")?;
    assert!(
        nowhere.status != 0 && nowhere.output.contains("0x10"),
        "{nowhere:?}"
    );

    linux.output(
        "linux",
        "dd if=/bin/busybox of=/tmp/in bs=4k count=1 2>/dev/null",
    );
    let library = "--library libbz2 -s BZ2_bzWriteClose64";
    let grouped =
        format!("bbprof group --block 64 -f hs -o /tmp/b.toml {library} bzip2 -k -f /tmp/in 2>&1");
    let done = linux.output("linux", &grouped);
    assert!(
        before(&done, " pages to profile") > 20,
        "bzip2's tables: {done}"
    );
    let ran = linux.ask(
        "linux",
        "bbprof run -i /tmp/b.toml -g 16 2>&1; bunzip2 -c /tmp/in.bz2 | cmp - /tmp/in",
    )?;
    assert!(
        ran.status == 0 && ran.output.contains("ran with 16 pages"),
        "{ran:?}"
    );
    for (arguments, message) in [
        (
            "--library libbz2 -s BZ2_nothing bzip2",
            "has no function `BZ2_nothing`",
        ),
        (
            "--library libnone -s BZ2_bzWriteClose64 bzip2",
            "has not loaded a library called `libnone`",
        ),
    ] {
        let done = linux.ask(
            "linux",
            &format!("bbprof profile {arguments} -k -f /tmp/in 2>&1"),
        )?;
        assert!(
            done.status != 0 && done.output.contains(message),
            "{arguments}: {done:?}"
        );
    }
    is_as_before(&mut linux, "after black boxes");
    linux.stop()?;
    Ok(())
}

/// Ends a profiler, or its program, `after` this many milliseconds.
fn ends(linux: &mut Running, signal: &str, who: &str, after: u64) {
    let when = format!("{signal} to {who} after {after} ms");
    let profile = format!("bbprof profile -n 50 -f hs -o /tmp/x.toml {SEGMENT}");
    linux.output(
        "linux",
        &format!("({profile} >/tmp/first 2>&1 &) ; usleep {}", 1000 * after),
    );
    // Who is asked to end has a second for it.
    let gone = "i=0; while pidof bbprof black-box >/dev/null && [ $i -lt 50 ]; do usleep 20000; \
                i=$((i+1)); done";
    linux.output(
        "linux",
        &format!("killall -{signal} {who} 2>/dev/null; {gone}; killall -9 -q bbprof; {gone}"),
    );
    // What was killed outright leaves its lease, which the next one ends.
    linux.output("linux", "bbprof restore");
    is_as_before(linux, &when);
    witness_saw_no_change(linux, &when);
}

#[test]
fn however_a_profiler_ends_its_pages_are_as_before() -> Result<()> {
    let mut linux = start()?;
    call_witness(&mut linux);
    for (signal, who, after) in [
        ("INT", "bbprof", 700),
        ("KILL", "bbprof", 900),
        ("KILL", "black-box", 1100),
        ("KILL", "bbprof", 1303),
    ] {
        ends(&mut linux, signal, who, after);
    }
    linux.stop()?;
    Ok(())
}

/// Fifty points from the start of the first run to some hundred runs later; every fourth is a
/// restart of the VM.
#[test]
#[ignore = "takes many minutes"]
fn fifty_profilers_end_anywhere_and_leave_nothing() -> Result<()> {
    // A multiplicative congruential generator (Park and Miller 1988).
    let points: Vec<u64> =
        std::iter::successors(Some(16807), |point| Some(point * 16807 % 0x7fff_ffff))
            .take(50)
            .collect();
    for points in points.chunks(10) {
        let mut linux = start()?;
        call_witness(&mut linux);
        for (index, point) in points.iter().enumerate() {
            let after = point % 4000;
            let ways = [("INT", "bbprof"), ("KILL", "bbprof"), ("KILL", "black-box")];
            if let Some((signal, who)) = ways.get(index % 4) {
                ends(&mut linux, signal, who, after);
            } else {
                let profile = format!("bbprof profile -n 50 -f hs -o /tmp/x.toml {SEGMENT}");
                linux.output(
                    "linux",
                    &format!("({profile} >/tmp/first 2>&1 &) ; usleep {}", 1000 * after),
                );
                linux.type_in("linux", "reboot -f\n")?;
                linux.open("linux")?;
                is_as_before(&mut linux, &format!("a restart after {after} ms"));
                call_witness(&mut linux);
            }
        }
        linux.stop()?;
    }
    Ok(())
}

/// What docs/results/bbprof.md says of a profile's cost: calls and changed pages grow with the number
/// of pages, and not with its square.
#[test]
#[ignore = "on demand: prints a table, and takes many minutes"]
fn a_profile_of_m_pages_changes_four_times_m_pages() -> Result<()> {
    let mut linux = start()?;
    for (rounds, wanted) in [(1, 100), (0, 500), (0, 1000), (0, 2000), (0, 4000)] {
        let program =
            format!("-s bbprof_staircase::access bbprof-staircase {rounds} steps {wanted}");
        linux.output(
            "linux",
            &format!("(bbprof profile -f h -o /tmp/p.toml {program} > /tmp/said 2>&1 &)"),
        );
        // One command may not take as long.
        let mut done = String::new();
        for _ in 0..60 {
            done = linux.output(
                "linux",
                "for i in $(seq 60); do pidof bbprof >/tmp/pid || break; sleep 1; done; cat \
                 /tmp/said",
            );
            if done.contains(" calls that changed pages") {
                break;
            }
        }
        let (pages, cost) = (
            before(&done, " pages to profile"),
            done.lines().last().expect("what it has cost"),
        );
        println!("{wanted}: {pages} pages, {cost}");
        assert!(pages >= wanted, "{done}");
        let lists = |pages: u64| pages.div_ceil(list::LONGEST);
        assert_eq!(
            (
                before(cost, " runs,"),
                before(cost, " calls that changed pages"),
                before(cost, " changes of a page"),
            ),
            (
                pages + 5,
                pages + lists(pages) + lists(pages - 1),
                4 * pages - 2
            ),
            "{done}"
        );
    }
    is_as_before(&mut linux, "after profiles");
    linux.stop()?;
    Ok(())
}

/// What docs/results/bbprof.md says of the cost of a profile by groups: that of its first pass, and
/// that each block to refine costs a run for each of its pages.
#[test]
#[ignore = "prints a table, and takes a minute"]
fn groups_cost_a_call_for_each_block() -> Result<()> {
    let mut linux = start()?;
    for wanted in [100, 1000] {
        let program = format!("-s bbprof_staircase::access bbprof-staircase 1 steps {wanted}");
        let first_pass =
            format!("bbprof group --covered 0 --block 16 -m nc -f h -o /tmp/g.toml {program} 2>&1");
        let done = linux.output("linux", &first_pass);
        let (pages, blocks) = (
            before(&done, " pages to profile"),
            before(&done, " blocks refined"),
        );
        let cost = done.lines().last().expect("what it has cost");
        println!("{wanted}: {blocks} blocks; {cost}");
        assert!(
            done.contains(&format!("0 of {blocks} blocks refined")),
            "{done}"
        );
        assert!(
            (pages.div_ceil(16)..=pages.div_ceil(16) + 2).contains(&blocks),
            "{done}"
        );
        assert_eq!(before(cost, " runs,"), blocks + 5, "{done}");
        // All pages there and back, and from each block to the next one.
        assert_eq!(
            before(cost, " calls that changed pages"),
            2 * pages.div_ceil(list::LONGEST) + blocks + 1,
            "{done}"
        );
        assert_eq!(before(cost, " changes of a page"), 4 * pages, "{done}");
    }
    is_as_before(&mut linux, "after profiles");
    linux.stop()?;
    Ok(())
}

/// The programs whose rankings must not depend on where address randomization puts them: a name, and
/// the arguments of a profile. bzip2's function makes system calls, so that each of its runs has a
/// new process.
const RANKED: [(&str, &str); 3] = [
    (
        "staircase",
        "-f hs -s bbprof_staircase::access bbprof-staircase 1 steps 20",
    ),
    (
        "bzip2",
        "-f s --library libbz2 -s BZ2_bzWriteClose64 bzip2 -k -f /tmp/in",
    ),
    (
        "segmentation",
        "-f s -s bbprof_benchmark::segment bbprof-benchmark segmentation 1 1",
    ),
];
/// Profiles of each of them.
const PROFILES: usize = 10;
/// Importances that differ by less than this part of the most important page's are equal.
const NOISE: f64 = 0.03;

/// A page as a profile names it, and its importance.
type Importances = Vec<(String, f64)>;

/// Returns the pairs of pages that two profiles put in different orders, although both find them to
/// differ by more than the noise.
fn exchanged(one: &Importances, other: &Importances) -> Vec<(String, String)> {
    let most = |profile: &Importances| profile.iter().map(|(_, it)| *it).fold(0.0, f64::max);
    let least = [NOISE * most(one), NOISE * most(other)];
    let mut pairs = Vec::new();
    for (first, (name, here)) in one.iter().enumerate() {
        for (second, (rival, here_rival)) in one.iter().enumerate().skip(first + 1) {
            let differences = [here - here_rival, other[first].1 - other[second].1];
            let clear = differences
                .iter()
                .zip(least)
                .all(|(difference, least)| difference.abs() > least);
            if clear && differences[0].signum() != differences[1].signum() {
                pairs.push((name.clone(), rival.clone()));
            }
        }
    }
    pairs
}

/// What docs/results/bbprof.md says of profiles under address randomization.
#[test]
#[ignore = "on demand: thirty profiles on the board model take five minutes"]
fn rankings_do_not_depend_on_where_programs_are() -> Result<()> {
    let mut checked = load(&shipped("experiments/systems/linux-profiles"), VIRT)?;
    let ImageSource::Linux(source) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    source.exec = None;
    source.packages.push("bzip2".to_owned());
    source.tools.push("bbprof-staircase");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut linux = Running::start_on(&checked, |file| {
        let machine = machine(VIRT, file, Clock::Modelled)?;
        let model = Model::load(model::of(machine.board())?)?;
        let stats = scratch.path().join("model.json");
        Ok(model.attach(machine, Conditions::default(), &stats))
    })?;
    linux.open("linux")?;
    linux.output("linux", "dd if=/bin/busybox of=/tmp/in bs=4k count=1 2>&1");
    for (name, arguments) in RANKED {
        let mut profiles: Vec<(String, Importances)> = Vec::new();
        for _ in 0..PROFILES {
            let profile = format!("bbprof profile -q -m nc -o /tmp/r.toml {arguments} 2>&1");
            linux.output("linux", &profile);
            let depth = linux.output("linux", "grep '^stack = ' /tmp/r.toml");
            let exported = linux.output("linux", "bbprof export /tmp/r.toml");
            let (mappings, offsets) = (column(&exported, "vma"), column(&exported, "offset"));
            let pages = mappings.iter().zip(&offsets);
            let names = pages.map(|(mapping, offset)| format!("{mapping}:{offset}"));
            let pages = names.zip(column(&exported, "importance")).collect();
            profiles.push((depth, pages));
        }
        let (depth, first) = &profiles[0];
        for (other_depth, other) in &profiles {
            assert_eq!((depth, first.len()), (other_depth, other.len()), "{name}");
            assert!(first.iter().zip(other).all(|(a, b)| a.0 == b.0), "{name}");
        }
        println!("{name}: {} pages, {}", first.len(), depth.trim());
        for (index, (page, _)) in first.iter().enumerate() {
            let of_page = profiles.iter().map(|(_, pages)| pages[index].1);
            let all: Vec<String> = of_page.map(|it| format!("{it:.0}")).collect();
            println!("  {page}: {}", all.join(" "));
        }
        for (number, (_, one)) in profiles.iter().enumerate() {
            for (_, other) in &profiles[number + 1..] {
                assert_eq!(exchanged(one, other), [], "{name}");
            }
        }
    }
    linux.stop()?;
    Ok(())
}
