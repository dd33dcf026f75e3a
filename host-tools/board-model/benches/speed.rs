//! Speed of the model: `cargo bench -p cloison-board-model`.
//!
//! Wall time on this machine. The settings run in turn, all of them several times, and the best times of each are shown.
//! Nothing is asserted.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[path = "../../../tests/tests/model/common.rs"]
mod common;
#[path = "../../../tests/tests/model/stream.rs"]
mod stream;

use cloison_engine::installation;
use common::{SIMPLE, board, build_guest, machine};
use std::path::Path;
use stream::{Guest, boot};
use tempfile::TempDir;

const ROUNDS: usize = 5;

struct Setting {
    what: &'static str,
    aim: &'static str,
    guest: Guest,
    arguments: Option<&'static str>,
    /// The shipped board with all its mechanisms, not one whose cores wait for each line.
    mechanisms: bool,
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
fn run(guest: Guest, arguments: Option<&str>, mechanisms: bool) -> (f64, u64) {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = match mechanisms {
        true => installation::root().join("configs/models/zcu102.toml"),
        false => board(directory.path(), "pseudo-random"),
    };
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

/// Returns the runs of the model, without or with all mechanisms.
fn busy(mechanisms: bool) -> [Setting; 4] {
    let hint = Some("roi=hint");
    [
        Setting {
            what: "4 cores stream 420 KiB, 8 bytes per access",
            aim: ">= 30 M/s",
            guest: stream(200, 4, 8),
            arguments: hint,
            mechanisms,
            idle: stream(1, 4, 8),
        },
        Setting {
            what: "4 cores stream 420 KiB, one access per line",
            aim: "",
            guest: stream(200, 4, 64),
            arguments: hint,
            mechanisms,
            idle: stream(1, 4, 64),
        },
        Setting {
            what: "1 core, every access an L2 miss",
            aim: ">= 8 M/s",
            guest: Guest { accesses: 1 << 17, passes: 40, cores: 1, stride: 64, overflow: 0, outside: false },
            arguments: hint,
            mechanisms,
            idle: Guest { accesses: 1, passes: 1, cores: 1, stride: 64, overflow: 0, outside: false },
        },
        Setting {
            what: "1 core in its L1",
            aim: "",
            guest: Guest { accesses: 2048, passes: 20_000, cores: 1, stride: 8, overflow: 0, outside: false },
            arguments: hint,
            mechanisms,
            idle: Guest { accesses: 1, passes: 1, cores: 1, stride: 8, overflow: 0, outside: false },
        },
    ]
}

/// Returns the seconds of `passes` times four loads from each of 2048 pages, behind pages of stage 2 of which no TLB has one, and
/// the loads. Without translation buffers, if `translates` is false.
fn pages(guest: &Path, passes: u64, translates: bool) -> (f64, u64) {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), "pseudo-random");
    let text = std::fs::read_to_string(&board).expect("the board file");
    let (on, off) = SIMPLE.iter().find(|(on, _)| on.starts_with("micro_entries")).expect("it turns them off");
    std::fs::write(&board, if translates { text.replace(off, on) } else { text }).expect("the board file");
    let arguments = format!("board={},stats={},roi=hint", board.display(), stats.display());
    let outcome = machine(directory.path(), Some(&arguments), guest, &[18, passes]).run().expect("QEMU runs");
    assert!(outcome.exit.is_clean(), "{}: {}", outcome.exit, outcome.errors);
    (outcome.wall.as_secs_f64(), accesses(&stats))
}

/// Prints what translation costs where it costs most: each load needs a walk.
fn translation() {
    let place = TempDir::new().expect("a directory");
    let guest = build_guest(place.path(), "audit");
    let mut least = [[f64::INFINITY; 2]; 2];
    let mut loads = 0;
    for _ in 0..ROUNDS {
        for (least, translates) in least.iter_mut().zip([false, true]) {
            let (idle, none) = pages(&guest, 0, translates);
            let (time, all) = pages(&guest, 400, translates);
            *least = [least[0].min(time), least[1].min(idle)];
            loads = all - none;
        }
    }
    for ([time, idle], what) in least.into_iter().zip(["without", "with"]) {
        let seconds = time - idle;
        let speed = loads as f64 / seconds / 1e6;
        println!(
            "{:<66} {loads:>10} {seconds:>9.3} {speed:>12.1}",
            format!("{what} TLBs: 1 core, a walk for every access")
        );
    }
}

fn main() {
    let mut settings: Vec<Setting> = [false, true].into_iter().flat_map(busy).collect();
    settings.push(Setting {
        what: "outside the region",
        aim: "within 10 % of no plugin",
        guest: OUTSIDE,
        arguments: Some("roi=hint"),
        mechanisms: false,
        idle: OUTSIDE_IDLE,
    });
    settings.push(Setting {
        what: "without the plugin",
        aim: "",
        guest: OUTSIDE,
        arguments: None,
        mechanisms: false,
        idle: OUTSIDE_IDLE,
    });
    // The least seconds of the run and of the one that is subtracted, by themselves: both are disturbed at times.
    let mut least = vec![[f64::INFINITY; 2]; settings.len()];
    let mut counted = vec![0u64; settings.len()];
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for ((setting, least), counted) in settings.iter().zip(&mut least).zip(&mut counted) {
            let (time, accesses) = run(setting.guest, setting.arguments, setting.mechanisms);
            let (idle, idle_accesses) = run(setting.idle, setting.arguments, setting.mechanisms);
            *least = [least[0].min(time), least[1].min(idle)];
            *counted = accesses - idle_accesses;
        }
    }
    println!("{:<66} {:>10} {:>9} {:>12}  aim", "modelled accesses", "accesses", "seconds", "M accesses/s");
    let seconds: Vec<f64> = least.iter().map(|[time, idle]| time - idle).collect();
    for ((setting, seconds), accesses) in settings.iter().zip(&seconds).zip(&counted) {
        let speed = *accesses as f64 / seconds / 1e6;
        let with = if setting.mechanisms { "with all mechanisms: " } else { "" };
        let what = format!("{with}{}", setting.what);
        println!("{what:<66} {accesses:>10} {seconds:>9.3} {speed:>12.1}  {}", setting.aim);
    }
    println!("outside the region / without the plugin: {:.3}", seconds[8] / seconds[9]);
    translation();
}
