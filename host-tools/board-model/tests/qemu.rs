//! The plugin in a real QEMU: counts that are known beforehand, clocks, and runs that repeat exactly.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use xtask::qemu::{Board, Machine, Outcome};
use xtask::setup::{CoreLibrary, core_library};
use xtask::workspace;

/// The plugin, built as a user would build it. In a directory of its own: cargo's lock is held while tests run.
fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let target = workspace::target_dir().join("board-model");
        let arguments = ["build", "--release", "--package", "cloison-board-model", "--lib", "--quiet", "--target-dir"];
        let status = Command::new("cargo").args(arguments).arg(&target).current_dir(workspace::root()).status();
        assert!(status.expect("cargo runs").success(), "the plugin builds");
        target.join("release/libcloison_board_model.so")
    })
}

fn guest(directory: &Path) -> PathBuf {
    let path = directory.join("guest.elf");
    let source = workspace::root().join("host-tools/board-model/tests/guest/stream.rs");
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "--target", "aarch64-unknown-none-softfloat", "-C", "panic=abort"]);
    command.args([
        "-C",
        "link-arg=--image-base=0x40100000",
        "-C",
        "link-arg=-e_start",
        "-C",
        "relocation-model=static",
    ]);
    if let CoreLibrary::Private(sysroot) = core_library().expect("the AArch64 core library is there") {
        command.arg("--sysroot").arg(sysroot);
    }
    let status = command.arg(&source).arg("-o").arg(&path).status().expect("rustc runs");
    assert!(status.success(), "the guest builds");
    path
}

struct Run {
    report: Value,
    ticks: u64,
    counter: u64,
}

impl Run {
    fn count(&self, core: usize, name: &str) -> u64 {
        self.report["cores"][core]["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name}"))
    }
    fn event(&self, core: usize, name: &str) -> u64 {
        self.report["cores"][core]["events"][name].as_u64().unwrap_or_else(|| panic!("no event {name}"))
    }
    fn cycles(&self, core: usize) -> u64 {
        self.report["cores"][core]["cycles"].as_u64().expect("cycles")
    }
}

fn board(directory: &Path, replacement: &str) -> PathBuf {
    let shipped = fs::read_to_string(workspace::root().join("configs/boards/zcu102-model.toml")).expect("board file");
    let path = directory.join("board.toml");
    fs::write(&path, shipped.replace("pseudo-random", replacement)).expect("board file");
    path
}

fn boot(directory: &Path, plugin_arguments: &str, lines: u64, passes: u64, cores: u64) -> Outcome {
    let memory = directory.join("ram");
    let mut machine = Machine::new(Board::Virt, &guest(directory)).limit(Duration::from_secs(60));
    machine = machine.args(["-accel", "tcg,thread=single", "-machine", "memory-backend=mem", "-object"]);
    machine = machine.arg(format!("memory-backend-file,id=mem,size=1G,share=on,mem-path={}", memory.display()));
    for (at, value) in [lines, passes, cores].into_iter().enumerate() {
        machine = machine.arg("-device");
        machine = machine.arg(format!("loader,addr={:#x},data={value:#x},data-len=8", 0x4300_0000 + at * 8));
    }
    let plugin = plugin();
    machine = machine.arg("-plugin").arg(format!("{},{plugin_arguments}", plugin.display()));
    machine.run().expect("QEMU runs")
}

fn run(replacement: &str, lines: u64, passes: u64, cores: u64) -> Run {
    run_with("roi=hint", replacement, lines, passes, cores)
}

fn run_with(roi: &str, replacement: &str, lines: u64, passes: u64, cores: u64) -> Run {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), replacement);
    let arguments = format!("board={},stats={},{roi}", board.display(), stats.display());
    let outcome = boot(directory.path(), &arguments, lines, passes, cores);
    assert!(outcome.exit.is_clean(), "{}", outcome.exit);
    let mut memory = File::open(directory.path().join("ram")).expect("the guest's memory");
    memory.seek(SeekFrom::Start(0x300_0100)).expect("its results");
    let mut word = || {
        let mut bytes = [0; 8];
        memory.read_exact(&mut bytes).expect("its results");
        u64::from_le_bytes(bytes)
    };
    let (ticks, counter) = (word(), word());
    let report = fs::read_to_string(stats).expect("statistics");
    Run { report: serde_json::from_str(&report).expect("JSON"), ticks, counter }
}

#[test]
fn a_stream_over_new_lines_refills_each_once() {
    let run = run("pseudo-random", 5000, 1, 1);
    for (name, expected) in [("loads", 5000), ("stores", 1), ("l1d_refills", 5001), ("l1d_writebacks", 1)] {
        assert_eq!(run.count(0, name), expected, "{name}");
    }
    let code = run.count(0, "l1i_refills");
    assert!((1..=4).contains(&code), "{code} lines of code");
    assert_eq!(run.count(0, "l2_refills"), 5001 + code);
    assert_eq!(run.event(0, "L2D_CACHE"), 2 * (5001 + code), "the A53's double count");
    assert_eq!(run.event(0, "BUS_ACCESS"), 4 * (5001 + code));
    assert_eq!(run.report["cores"][0]["events"]["L1D_CACHE"], 5001);
}

#[test]
fn the_guest_reads_modelled_counts_by_mrs() {
    let run = run("lru", 5000, 2, 4);
    assert_eq!(run.counter, 1000 + 10_000, "each pass over 312 KiB misses L1 everywhere");
    assert_eq!(run.event(0, "L1D_CACHE_REFILL"), 10_001);
}

#[test]
fn what_fits_a_level_is_brought_in_once() {
    // One line more is the flag that sets the rivals off. 16 KiB fit L1; 512 KiB fit the L2 and, under LRU, each pass over them misses L1 everywhere.
    let small = run("lru", 256, 20, 1);
    assert_eq!((small.count(0, "loads"), small.count(0, "l1d_refills")), (256 * 20, 257));
    let medium = run("lru", 8192, 4, 1);
    assert_eq!(medium.count(0, "l1d_refills"), 8192 * 4 + 1);
    assert_eq!(medium.count(0, "l2_refills"), 8193 + medium.count(0, "l1i_refills"));
}

#[test]
fn guest_time_is_the_models() {
    let run = run("pseudo-random", 5000, 2, 1);
    // The generic timer runs at 62.5 MHz: 16 cycles of the 1 GHz clock. Between the two reads is all but a few blocks.
    let (ticks, cycles) = (run.ticks * 16, run.cycles(0));
    assert!(ticks <= cycles && cycles - ticks < 1000, "{ticks} of {cycles} cycles");
    // 2 x 5000 loads, 3 instructions each; all miss L1, and 5000 lines more are in the L2 (or memory, where replacement is
    // random) at the second pass.
    assert!(cycles > 30_000 + 10_000 * 13 + 5000 * 124, "{cycles}");
}

#[test]
fn rivals_slow_a_core_down_and_runs_repeat_exactly() {
    let solo = run("pseudo-random", 6720, 10, 1);
    let first = run("pseudo-random", 6720, 10, 4);
    let again = run("pseudo-random", 6720, 10, 4);
    assert!(first.count(0, "l2_refills") > 3 * solo.count(0, "l2_refills"), "420 KiB on each core do not fit 1 MiB");
    assert!(first.ticks > 2 * solo.ticks, "{} ticks, alone {}", first.ticks, solo.ticks);
    assert_eq!(first.count(0, "loads"), 67200);
    for core in 1..4 {
        let ahead = first.cycles(core).abs_diff(first.cycles(0));
        assert!(ahead < 1500, "core {core} is {ahead} cycles off");
    }
    assert_eq!((first.ticks, first.report), (again.ticks, again.report));
}

#[test]
fn a_run_that_is_modelled_from_the_start_repeats_exactly() {
    let [first, again] = [0; 2].map(|_| run_with("roi=always", "pseudo-random", 2000, 5, 4));
    assert_eq!(first.count(0, "loads"), 10_000);
    assert_eq!((first.ticks, first.report), (again.ticks, again.report));
}

#[test]
fn a_board_that_cannot_be_is_refused_before_the_start() {
    let directory = TempDir::new().expect("a directory");
    let board = board(directory.path(), "fifo");
    let outcome = boot(directory.path(), &format!("board={}", board.display()), 1, 1, 1);
    assert!(!outcome.exit.is_clean());
}
