//! What a guest can observe of the model in a real QEMU, program by program: counters, levels,
//! faults, time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::common::{SIMPLE, board, build_guest, machine};
use cloison_board_model::statistics::{CoreCounts, Instructions, Statistics};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

fn guest() -> &'static Path {
    static GUEST: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, guest) = GUEST.get_or_init(|| {
        let place = TempDir::new().expect("a directory");
        let guest = build_guest(place.path(), "audit");
        (place, guest)
    });
    guest
}

struct Run {
    statistics: Statistics,
    words: [u64; 8],
    /// The output of the plugin.
    errors: String,
}

impl Run {
    /// Returns what core 0 counted in a region.
    fn region(&self, at: usize) -> &CoreCounts {
        &self.statistics.regions[at].cores[0]
    }
}

/// Runs a program of the guest with these additional plugin arguments on the shipped board after
/// `change`.
fn run_on(program: u64, extra: &str, change: impl Fn(String) -> String) -> Run {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), "pseudo-random");
    let text = change(fs::read_to_string(&board).expect("the board file"));
    fs::write(&board, text).expect("the board file");
    let arguments = format!(
        "board={},stats={},{extra}",
        board.display(),
        stats.display()
    );
    let outcome = machine(directory.path(), Some(&arguments), guest(), &[program])
        .run()
        .expect("QEMU runs");
    assert!(
        outcome.exit.is_clean(),
        "{}: {}",
        outcome.exit,
        outcome.errors
    );
    let mut memory = File::open(directory.path().join("ram")).expect("the guest's memory");
    memory
        .seek(SeekFrom::Start(0x300_0100))
        .expect("its results");
    let words = [0; 8].map(|_: u64| {
        let mut bytes = [0; 8];
        memory.read_exact(&mut bytes).expect("its results");
        u64::from_le_bytes(bytes)
    });
    let statistics =
        serde_json::from_str(&fs::read_to_string(stats).expect("statistics")).expect("JSON");
    Run {
        statistics,
        words,
        errors: outcome.errors,
    }
}

fn run(program: u64) -> Run {
    run_on(program, "roi=always", |text| text)
}

fn quantum(cycles: u64) -> impl Fn(String) -> String {
    move |text| text.replace("quantum = 300", &format!("quantum = {cycles}"))
}

#[test]
fn a_branch_target_right_after_a_read_does_not_lose_it_and_no_other_instruction_is_taken_for_one() {
    let run = run(0);
    assert_eq!(
        run.words[..3],
        [50, 50, 0x1234],
        "two reads; then a register that no read may change"
    );
}

#[test]
fn a_region_starts_without_the_counts_of_the_one_before() {
    let run = run_on(1, "roi=hint", |text| text);
    assert_eq!(run.words[0], 107, "the guest wrote 100, and loaded 7 times");
}

#[test]
fn loads_and_stores_are_instructions_and_accesses_are_of_up_to_16_bytes() {
    let run = run(2);
    // What, then loads, stores and accesses of a hundred instructions.
    let expected = [
        ("nop", 0, 0, 0),
        ("ldp x", 1, 0, 1),
        ("ldr q", 1, 0, 1),
        ("ldp q", 1, 0, 2),
        ("stp q", 0, 1, 2),
        ("ld1", 1, 0, 4),
        ("st1", 0, 1, 4),
        ("ld4", 1, 0, 4),
        ("st4", 0, 1, 4),
        ("ldxr and stxr", 1, 1, 2),
        ("stxr that fails", 0, 0, 0),
    ];
    for (at, (what, loads, stores, accesses)) in expected.into_iter().enumerate() {
        let events = ["LD_RETIRED", "ST_RETIRED", "MEM_ACCESS", "L1D_CACHE"]
            .map(|name| run.region(at).event(name));
        assert_eq!(
            events,
            [loads, stores, accesses, accesses].map(|each| each * 100),
            "{what}"
        );
    }
}

#[test]
fn instruction_lines_do_not_depend_on_how_qemu_cuts_its_blocks() {
    let run = run(2);
    // 102 instructions after a HINT: 6.4 lines.
    for at in 0..9 {
        let lines = run.region(at).event("L1I_CACHE");
        assert!((6..=9).contains(&lines), "region {at}: {lines} lines");
    }
}

#[test]
fn interrupts_between_an_access_to_a_counter_and_the_next_instruction_lose_nothing() {
    let run = run(3);
    let [reads, writes, interrupts, ..] = run.words;
    assert!(interrupts > 1000, "{interrupts} interrupts");
    assert_eq!(
        (reads, writes),
        (0, 0),
        "reads that were wrong, and writes that were lost, of 20000 each"
    );
}

#[test]
fn instructions_after_a_fault_or_a_device_access_count_once() {
    let faults = run(4);
    // 90 retire, each fault's handler has 4, and the HINT and ISB after the start and the HINT at
    // the end.
    let counted = faults.region(0).event("INST_RETIRED");
    assert!(
        (130..=134).contains(&counted),
        "{counted} of 132 instructions"
    );
    assert!(
        faults.region(0).cycles < 132 + 20 * 200,
        "{} cycles",
        faults.region(0).cycles
    );
    let devices = run(5);
    let counted = devices.region(0).event("INST_RETIRED");
    assert!(
        (100..=104).contains(&counted),
        "{counted} of 102 instructions"
    );
    assert_eq!(devices.region(0).counts.device, 10);
}

#[test]
fn without_the_model_too_instructions_after_a_device_access_count_once() {
    let directory = TempDir::new().expect("a directory");
    let counts = directory.path().join("counts.json");
    let machine = machine(
        directory.path(),
        Some(&format!("count={}", counts.display())),
        guest(),
        &[5],
    );
    let outcome = machine.icount(Some(0)).run().expect("QEMU runs");
    assert!(
        outcome.exit.is_clean(),
        "{}: {}",
        outcome.exit,
        outcome.errors
    );
    let counts: Instructions =
        serde_json::from_str(&fs::read_to_string(counts).expect("counts")).expect("JSON");
    // QEMU's own start and end of the guest, 29 instructions, and the program's 105.
    assert!(
        (125..=140).contains(&counts.all()),
        "{} instructions",
        counts.all()
    );
}

#[test]
fn counters_from_hpmn_on_are_those_of_el2() {
    let run = run(6);
    let [overflows, pending, second, first, ..] = run.words;
    assert_eq!(
        overflows, 2,
        "counter 1 counts by HPME, with PMCR_EL0.E = 0"
    );
    assert_ne!(pending & 0xc0, 0, "its interrupt is pending");
    assert_eq!(
        (second, first),
        (984, 0),
        "PMCR_EL0.P at EL1 resets the counters below HPMN only"
    );
    let [.., low, high, flags, _] = run.words;
    assert_eq!(
        (low, high, flags & 0b1100),
        (15, 0, 0b1100),
        "25 loads, and an overflow that CHAIN counts, of counters that were 10 and 1 before their end"
    );
}

#[test]
fn a_message_wakes_a_core_at_its_time_whatever_the_quantum() {
    for cycles in [50, 300, 3000] {
        let run = run_on(7, "roi=always", quantum(cycles));
        let [sum, worst] = [run.words[0], run.words[1]];
        // 200 messages; a tick is 16 ns. The sender's store to the GIC costs 100 cycles of it.
        assert!(
            sum / 200 <= 25 && worst <= 40,
            "quantum {cycles}: {sum} ticks in all, {worst} at worst"
        );
    }
}

#[test]
fn a_timer_fires_at_its_time_whatever_the_quantum() {
    for cycles in [50, 300, 3000] {
        let run = run_on(8, "roi=always", quantum(cycles));
        let [sum, worst] = [run.words[0], run.words[1]];
        assert!(
            sum / 200 <= 8 && worst <= 20,
            "quantum {cycles}: {sum} ticks in all, {worst} at worst"
        );
    }
}

#[test]
fn a_core_that_waits_politely_lets_others_run() {
    let run = run(9);
    for (region, what) in [(0, "WFE"), (1, "YIELD")] {
        let counted =
            |core: usize| run.statistics.regions[region].cores[core].event("INST_RETIRED");
        assert!(
            counted(1) * 5 < counted(0),
            "{what}: {} instructions beside {}",
            counted(1),
            counted(0)
        );
    }
}

#[test]
fn a_region_that_is_begun_twice_is_reported() {
    let run = run(10);
    assert_eq!(run.statistics.regions.len(), 1);
    assert_eq!(run.region(0).event("LD_RETIRED"), 5);
    assert_eq!(run.statistics.abandoned, 1);
    assert!(
        run.errors
            .contains("1 region of interest was begun again before its end"),
        "{}",
        run.errors
    );
}

#[test]
fn a_faster_clock_makes_cores_and_caches_faster_but_not_the_memory() {
    let at = |mhz: u64| {
        let clock =
            move |text: String| text.replace("clock_mhz = 1500", &format!("clock_mhz = {mhz}"));
        let [l1, cycles, counter, l2, memory, ..] = run_on(11, "roi=always", clock).words;
        // Ticks are of 16 ns. The loop is 2^18 times two instructions; its code comes from memory.
        for counted in [cycles, counter] {
            assert!(
                counted.abs_diff(1 << 19) < 800 && counted.abs_diff(l1 * 16 * mhz / 1000) < 800,
                "{mhz}: {counted}"
            );
        }
        // Of a line in memory, what it takes beyond a line in the L2.
        (l1 as f64, l2 as f64, memory as f64 - 8.0 * l2 as f64)
    };
    let ((l1, l2, memory), (fast_l1, fast_l2, fast_memory)) = (at(1000), at(2000));
    assert!(
        (l1 / fast_l1 - 2.0).abs() < 0.01 && (l2 / fast_l2 - 2.0).abs() < 0.02,
        "{l1} {fast_l1} {l2} {fast_l2}"
    );
    assert!(
        (memory / fast_memory - 1.0).abs() < 0.02,
        "{memory} and {fast_memory}"
    );
}

/// Turns on those mechanisms of the shipped board that begin with one of these names, at 1 GHz.
fn with(names: &[&str]) -> impl Fn(String) -> String {
    move |text| {
        let text = text.replace("clock_mhz = 1500", "clock_mhz = 1000");
        let chosen = SIMPLE
            .iter()
            .filter(|(on, _)| names.iter().any(|name| on.starts_with(name)));
        chosen.fold(text, |text, (on, off)| text.replace(off, on))
    }
}

/// A region, and the range of its cycles with a mechanism in proportion to those without.
type Change = (usize, f64, f64);

/// The regions of program 12, by number.
const REGIONS: [&str; 8] = [
    "chain in L1",
    "unused loads in L1",
    "stream of loads",
    "independent loads",
    "whole lines written",
    "words written",
    "code from memory",
    "code from L2",
];

#[test]
fn each_mechanism_changes_what_it_is_for() {
    let cycles = |names: &[&str]| {
        let run = run_on(12, "roi=always", with(names));
        (0..REGIONS.len())
            .map(|at| run.region(at).cycles)
            .collect::<Vec<_>>()
    };
    let off = cycles(&[]);
    // By mechanism: the regions that it makes faster or slower, and the ratio.
    let mechanisms: [(&[&str], &[Change]); 5] = [
        (&["load_to_use"], &[(0, 2.35, 2.42)]),
        (&["load_linefills"], &[(3, 0.26, 0.31)]),
        (
            &["data_lines"],
            &[(2, 0.21, 0.26), (4, 0.43, 0.49), (5, 0.42, 0.48)],
        ),
        (&["l1_lines"], &[(4, 0.18, 0.22)]),
        (&["instruction_lines"], &[(6, 0.49, 0.54), (7, 0.58, 0.62)]),
    ];
    println!("{:>16} {REGIONS:?}\n{:>16} {off:?}", "", "off");
    for (names, changes) in mechanisms {
        let on = cycles(names);
        println!("{:>16} {on:?}", names[0]);
        for (at, (on, off)) in on.iter().zip(&off).enumerate() {
            let ratio = *on as f64 / *off as f64;
            let change = changes.iter().find(|(region, ..)| *region == at);
            let (from, to) = change.map_or((0.97, 1.03), |(_, from, to)| (*from, *to));
            assert!(
                (from..=to).contains(&ratio),
                "{names:?}, {}: {off} to {on} cycles, {ratio:.3}",
                REGIONS[at]
            );
        }
    }
    let all = cycles(&[""]);
    println!("{:>16} {all:?}", "all");
    assert_eq!(all, cycles(&[""]), "a run repeats");
}

#[test]
fn cores_pay_for_a_line_that_they_share() {
    let run = |program, names: &[&str]| {
        let run = run_on(program, "roi=always", with(names));
        let region = run.region(0);
        (
            region.cycles,
            region.counts.snoops,
            region.counts.l1d_refills,
        )
    };
    let [off, off_apart] = [13, 14].map(|program| run(program, &[]));
    let [on, on_apart] = [13, 14].map(|program| run(program, &["snoop"]));
    println!(
        "20 000 additions: one line {off:?} to {on:?}, two lines {off_apart:?} to {on_apart:?}"
    );
    assert_eq!(off.1 + off_apart.1 + on_apart.1, 0, "nothing is shared");
    assert!(on_apart.0.abs_diff(off_apart.0) < 200 && off.0.abs_diff(off_apart.0) < 200);
    assert!(on.1 > 10_000 && on.1 == on.2, "{on:?}");
    assert!(on.0 > 4 * on_apart.0, "{on:?} beside {on_apart:?}");
}

/// Cycles, micro TLB refills of data, walks and descriptors read in each region of programs 15 to
/// 17.
fn tours(program: u64, blocks: bool, names: &[&str]) -> [[u64; 4]; 4] {
    let change = |text: String| {
        let text = with(names)(text);
        if blocks {
            text.replace("stage2_blocks = false", "stage2_blocks = true")
        } else {
            text
        }
    };
    let run = run_on(program, "roi=always", change);
    [0, 1, 2, 3].map(|at| {
        let region = run.region(at);
        assert_eq!(
            region.event("L1D_TLB_REFILL"),
            region.counts.l1d_tlb_refills
        );
        [
            region.cycles,
            region.counts.l1d_tlb_refills,
            region.counts.walks,
            region.counts.walk_reads,
        ]
    })
}

#[test]
fn translations_that_the_buffers_do_not_hold_are_walked_for() {
    let [off, pages, blocks, merged, both] = [
        tours(15, false, &[]),
        tours(15, false, &["micro_entries"]),
        tours(16, false, &["micro_entries"]),
        tours(15, true, &["micro_entries"]),
        tours(17, false, &["micro_entries"]),
    ];
    for (what, tours) in [
        ("off", off),
        ("pages", pages),
        ("blocks", blocks),
        ("merged", merged),
        ("both", both),
    ] {
        println!("{what:>7} [cycles, micro TLB refills, walks, reads]: {tours:?}");
    }
    assert!(off.iter().all(|tour| tour[1..] == [0; 3]));
    // 8 pages stay in the micro TLB, 64 in the main TLB, and 2048 in none. A walk of stage 2 reads
    // three descriptors.
    assert_eq!(pages[0][1], 8);
    assert_eq!(pages[1][1..3], [4 * 64 - 8, 64 - 8]);
    assert!(
        pages[2][1] == 4 * 2048 && pages[2][2] >= 4 * 2048 - 64,
        "{pages:?}"
    );
    for tour in &pages[..3] {
        assert_eq!(tour[3], 3 * tour[2], "{pages:?}");
    }
    assert!((64..=68).contains(&pages[3][2]), "after TLBI: {pages:?}");
    assert!(
        pages[3][3] < 64,
        "which is of stage 1, and leaves the IPA cache: {pages:?}"
    );
    // 2048 pages are five blocks, whether the tables have them or are taken to.
    for tours in [blocks, merged] {
        assert!(tours[2][1] <= 5 && tours[2][2] <= 5, "{tours:?}");
        assert!(
            tours[2][3] <= 10,
            "a block takes two descriptors: {tours:?}"
        );
    }
    assert!(
        blocks[2][0].abs_diff(off[2][0]) < off[2][0] / 50,
        "{blocks:?}"
    );
    assert!(
        pages[2][0] > off[2][0] + 8192 * 6,
        "it waits for three hits of the L1, while lines arrive: {pages:?}"
    );
    // Behind both stages: a descriptor of stage 1 more, whose table the walk cache knows, and stage
    // 2 of the page.
    assert_eq!(both[1][1..3], [4 * 64 - 8, 64 - 8]);
    assert!(
        (7 * both[2][2] / 2..5 * both[2][2]).contains(&both[2][3]),
        "{both:?}"
    );
}

/// Returns what QEMU prints before it ends, with a library that changes what the plugin sees of it.
fn on_another_qemu(how: &str) -> (bool, String) {
    let directory = TempDir::new().expect("a directory");
    let shim = directory.path().join("other_qemu.so");
    let source = cloison_engine::installation::root().join("tests/tests/model/shim/other_qemu.rs");
    let mut command = Command::new("rustc");
    command
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
        ])
        .arg(source);
    assert!(
        command
            .arg("-o")
            .arg(&shim)
            .status()
            .expect("rustc runs")
            .success(),
        "the library builds"
    );
    let board = board(directory.path(), "pseudo-random");
    let arguments = format!("board={},roi=always", board.display());
    let line = machine(directory.path(), Some(&arguments), guest(), &[0]).command_line();
    let mut words = line.split(' ');
    let mut qemu = Command::new("timeout");
    qemu.arg("30").arg(words.next().expect("a program"));
    qemu.args(words.map(|word| {
        word.replace("mon:stdio", "null")
            .replace("telemetry.bin", "/dev/null")
    }));
    let output = qemu
        .env("LD_PRELOAD", &shim)
        .env("OTHER_QEMU", how)
        .output()
        .expect("it runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_qemu_with_other_internals_is_refused_by_what_it_does() {
    let (clean, errors) = on_another_qemu("");
    assert!(
        clean && errors.contains("board-model (modelled): core 0"),
        "the same QEMU, unchanged: {errors}"
    );
    let (clean, errors) = on_another_qemu("layout");
    assert!(
        !clean && errors.contains("guest time is not the model's"),
        "{errors}"
    );
    let (clean, errors) = on_another_qemu("registers");
    assert!(
        !clean && errors.contains("cannot read register"),
        "{errors}"
    );
}
