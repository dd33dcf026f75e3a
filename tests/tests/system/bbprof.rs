//! `bbprof` in an unmodified Linux guest: its profiles, its refusals, and the state of the VM after
//! each end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_abi::list;
use cloison_config::ImageSource;
use cloison_engine::cargo;
use cloison_tests::{Clock, VIRT, config, load};
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

/// The witness has looked again, and has seen no change.
#[track_caller]
fn witness_saw_no_change(linux: &mut Running, when: &str) {
    let last = |linux: &mut Running| {
        linux
            .output("linux", "tail -n 1 /tmp/witness")
            .trim()
            .to_owned()
    };
    let first = last(linux);
    linux.output("linux", "sleep 1");
    let now = last(linux);
    assert!(
        first.starts_with("look ") && now.starts_with("look ") && now != first,
        "{when}: {first}, then {now}"
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
    // Each run but the two and the empty one changes its pages, and changes them back. With all
    // cacheable, there are none.
    assert_eq!(
        before(&done, " calls that changed pages"),
        2 * (pages + 1),
        "{done}"
    );
    let shown = linux.output("linux", "bbprof show /tmp/p.toml");
    assert!(shown.contains("black_box::segment"), "{shown}");
    let exported = linux.output("linux", "bbprof export --format csv /tmp/p.toml");
    assert!(exported.lines().count() as u64 > pages, "{exported}");
    is_as_before(&mut linux, "after a profile");

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
    // Where in a page the stack begins is random: with another one, a page less may be touched.
    let pages = before(&deep, " pages to profile") - 2;
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
    linux.output(
        "linux",
        &format!(
            "killall -{signal} {who} 2>/dev/null; sleep 1; killall -9 -q bbprof; sleep 1; true"
        ),
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

/// What docs/results/bbprof.md says of a profile's cost.
#[test]
#[ignore = "prints a table, and takes minutes"]
fn a_profile_costs_two_calls_for_each_run_and_list() -> Result<()> {
    let mut linux = start()?;
    for wanted in [100, 1000] {
        let program = format!("-s bbprof_staircase::access bbprof-staircase 1 steps {wanted}");
        linux.output(
            "linux",
            &format!("(bbprof profile -f h -o /tmp/p.toml {program} > /tmp/said 2>&1 &)"),
        );
        // One command may not take as long.
        let mut done = String::new();
        for _ in 0..20 {
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
        let calls = before(cost, " calls that changed pages");
        println!("{wanted}: {cost}");
        assert_eq!(before(cost, " runs,"), pages + 5, "{done}");
        let lists = |pages: u64| pages.div_ceil(list::LONGEST);
        assert_eq!(
            calls,
            2 * (pages * lists(pages - 1) + lists(pages)),
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
fn groups_cost_two_calls_for_each_block() -> Result<()> {
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
        assert_eq!(
            before(cost, " calls that changed pages"),
            2 * (blocks + pages.div_ceil(list::LONGEST)),
            "{done}"
        );
    }
    is_as_before(&mut linux, "after profiles");
    linux.stop()?;
    Ok(())
}
