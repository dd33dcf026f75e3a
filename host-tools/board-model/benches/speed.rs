//! Speed of the model: `cargo bench -p cloison-board-model`.
//!
//! Wall time on this machine. The settings run in turn, all of them several times, and the best time of each is shown.
//! Nothing is asserted.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/stream.rs"]
mod stream;

use common::board;
use std::path::Path;
use stream::{Guest, boot};
use tempfile::TempDir;

const ROUNDS: usize = 5;

struct Setting {
    what: &'static str,
    aim: &'static str,
    guest: Guest,
    arguments: Option<&'static str>,
    /// Subtracted: the same run with a guest that does almost nothing.
    idle: Guest,
}

/// Streams over 420 KiB.
fn stream(passes: u64, cores: u64, stride: u64) -> Guest {
    Guest { accesses: 420 * 1024 / stride, passes, cores, stride, overflow: 0, outside: false }
}

const OUTSIDE: Guest = Guest { accesses: 2048, passes: 100_000, cores: 1, stride: 8, overflow: 0, outside: true };
const OUTSIDE_IDLE: Guest = Guest { passes: 1, ..OUTSIDE };

/// Returns the seconds and accesses of one run.
fn run(guest: Guest, arguments: Option<&str>) -> (f64, u64) {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), "pseudo-random");
    let arguments = arguments.map(|extra| format!("board={},stats={},{extra}", board.display(), stats.display()));
    let outcome = boot(directory.path(), arguments.as_deref(), guest);
    assert!(outcome.exit.is_clean(), "{}: {}", outcome.exit, outcome.errors);
    let accesses = if guest.outside { guest.accesses * guest.passes } else { accesses(&stats) };
    (outcome.wall.as_secs_f64(), accesses)
}

/// Returns the loads and stores of all cores.
fn accesses(stats: &Path) -> u64 {
    let text = std::fs::read_to_string(stats).expect("statistics");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let cores = report["whole"]["cores"].as_array().expect("cores");
    let count = |core: &serde_json::Value, name: &str| core["counts"][name].as_u64().expect("a count");
    cores.iter().map(|core| count(core, "loads") + count(core, "stores")).sum()
}

fn main() {
    let hint = Some("roi=hint");
    let settings = [
        Setting {
            what: "4 cores stream 420 KiB, 8 bytes per access",
            aim: ">= 30 M/s",
            guest: stream(200, 4, 8),
            arguments: hint,
            idle: stream(1, 4, 8),
        },
        Setting {
            what: "4 cores stream 420 KiB, one access per line",
            aim: "",
            guest: stream(200, 4, 64),
            arguments: hint,
            idle: stream(1, 4, 64),
        },
        Setting {
            what: "1 core, every access an L2 miss",
            aim: ">= 8 M/s",
            guest: Guest { accesses: 1 << 17, passes: 40, cores: 1, stride: 64, overflow: 0, outside: false },
            arguments: hint,
            idle: Guest { accesses: 1, passes: 1, cores: 1, stride: 64, overflow: 0, outside: false },
        },
        Setting {
            what: "1 core in its L1",
            aim: "",
            guest: Guest { accesses: 2048, passes: 20_000, cores: 1, stride: 8, overflow: 0, outside: false },
            arguments: hint,
            idle: Guest { accesses: 1, passes: 1, cores: 1, stride: 8, overflow: 0, outside: false },
        },
        Setting {
            what: "outside the region",
            aim: "within 10 % of no plugin",
            guest: OUTSIDE,
            arguments: hint,
            idle: OUTSIDE_IDLE,
        },
        Setting { what: "without the plugin", aim: "", guest: OUTSIDE, arguments: None, idle: OUTSIDE_IDLE },
    ];
    let mut best = vec![(f64::INFINITY, 0u64); settings.len()];
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (setting, best) in settings.iter().zip(&mut best) {
            let (time, accesses) = run(setting.guest, setting.arguments);
            let (idle, idle_accesses) = run(setting.idle, setting.arguments);
            if time - idle < best.0 {
                *best = (time - idle, accesses - idle_accesses);
            }
        }
    }
    println!("{:<46} {:>10} {:>9} {:>12}  aim", "modelled accesses", "accesses", "seconds", "M accesses/s");
    for (setting, (seconds, accesses)) in settings.iter().zip(&best) {
        let speed = *accesses as f64 / seconds / 1e6;
        println!("{:<46} {accesses:>10} {seconds:>9.3} {speed:>12.1}  {}", setting.what, setting.aim);
    }
    println!("outside the region / without the plugin: {:.3}", best[4].0 / best[5].0);
}
