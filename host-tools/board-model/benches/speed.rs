//! Speed of the model: `cargo bench -p cloison-board-model`.
//!
//! Wall time on this machine. The settings run in turn, all of them several times, and the best
//! times of each are shown. Nothing is asserted.
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

/// What the shipped model has and what turns it off, besides [`SIMPLE`].
const MEMORY: [(&str, &str); 2] = [
    ("queues = \"banks\"", "queues = \"bandwidth\""),
    ("data = \"on-eviction\"", "data = \"on-miss\""),
];

/// The model of a run.
#[derive(Clone, Copy)]
enum Model {
    /// No plugin.
    Absent,
    /// The caches and a memory with a latency and a bandwidth.
    Off,
    /// The same with one of [`mechanisms`].
    Only(usize),
    /// As shipped.
    All,
}

/// Returns the mechanisms: what the model's file has, and what turns it off.
fn mechanisms() -> Vec<(&'static str, &'static str)> {
    SIMPLE.into_iter().chain(MEMORY).collect()
}

impl Model {
    /// Writes the model's file, and returns the plugin's arguments.
    fn arguments(self, directory: &Path) -> Option<String> {
        let text = std::fs::read_to_string(installation::root().join("configs/models/zcu102.toml"))
            .expect("the model");
        let stays = |at: usize| match self {
            Self::Only(only) => at == only,
            Self::All => true,
            Self::Absent | Self::Off => false,
        };
        let off = mechanisms()
            .into_iter()
            .enumerate()
            .filter(|(at, _)| !stays(*at));
        let text = off.fold(text, |text, (_, (on, off))| {
            assert!(text.contains(on), "the shipped model has {on}");
            text.replace(on, off)
        });
        let (board, stats) = (directory.join("board.toml"), directory.join("stats.json"));
        std::fs::write(&board, text).expect("the model");
        let arguments = format!(
            "board={},stats={},roi=hint",
            board.display(),
            stats.display()
        );
        (!matches!(self, Self::Absent)).then_some(arguments)
    }

    fn name(self) -> String {
        match self {
            Self::Absent => "no plugin".into(),
            Self::Off => "all off".into(),
            Self::Only(at) => format!("only {}", mechanisms()[at].0),
            Self::All => "all on".into(),
        }
    }
}

#[derive(Clone, Copy)]
struct Setting {
    what: &'static str,
    aim: &'static str,
    guest: Guest,
    /// Subtracted: the same run with a guest that does almost nothing.
    idle: Guest,
}

/// Streams over 420 KiB.
const fn stream(passes: u64, cores: u64, stride: u64) -> Guest {
    Guest {
        accesses: 420 * 1024 / stride,
        passes,
        cores,
        stride,
        overflow: 0,
        outside: false,
    }
}

/// Returns the seconds and accesses of one run.
fn run(guest: Guest, model: Model) -> (f64, u64) {
    let directory = TempDir::new().expect("a directory");
    let outcome = boot(
        directory.path(),
        model.arguments(directory.path()).as_deref(),
        guest,
    );
    assert!(
        outcome.exit.is_clean(),
        "{}: {}",
        outcome.exit,
        outcome.errors
    );
    let stats = directory.path().join("stats.json");
    (
        outcome.wall.as_secs_f64(),
        if guest.outside {
            guest.accesses * guest.passes
        } else {
            accesses(&stats)
        },
    )
}

/// Returns the loads and stores of all cores.
fn accesses(stats: &Path) -> u64 {
    let text = std::fs::read_to_string(stats).expect("statistics");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let cores = report["whole"]["cores"].as_array().expect("cores");
    let count =
        |core: &serde_json::Value, name: &str| core["counts"][name].as_u64().expect("a count");
    cores
        .iter()
        .map(|core| count(core, "loads") + count(core, "stores"))
        .sum()
}

const STREAM: Setting = Setting {
    what: "4 cores stream 420 KiB, 8 bytes per access",
    aim: ">= 30 M/s",
    guest: stream(200, 4, 8),
    idle: stream(1, 4, 8),
};
const MISSES: Setting = Setting {
    what: "1 core, every access an L2 miss",
    aim: ">= 8 M/s",
    guest: Guest {
        accesses: 1 << 17,
        passes: 40,
        cores: 1,
        stride: 64,
        overflow: 0,
        outside: false,
    },
    idle: NOTHING,
};
const NOTHING: Guest = Guest {
    accesses: 1,
    passes: 1,
    cores: 1,
    stride: 64,
    overflow: 0,
    outside: false,
};
const OUTSIDE: Guest = Guest {
    accesses: 2048,
    passes: 100_000,
    cores: 1,
    stride: 8,
    overflow: 0,
    outside: true,
};

/// Returns all that is run, in this order.
fn settings() -> Vec<(Setting, Model)> {
    let outside = Setting {
        what: "outside the region",
        aim: "",
        guest: OUTSIDE,
        idle: Guest {
            passes: 1,
            ..OUTSIDE
        },
    };
    let busy = [
        STREAM,
        Setting {
            what: "4 cores stream 420 KiB, one access per line",
            aim: "",
            guest: stream(200, 4, 64),
            idle: stream(1, 4, 64),
        },
        MISSES,
        Setting {
            what: "1 core in its L1",
            aim: "",
            guest: Guest {
                accesses: 2048,
                passes: 20_000,
                cores: 1,
                stride: 8,
                overflow: 0,
                outside: false,
            },
            idle: NOTHING,
        },
    ];
    let all = busy
        .into_iter()
        .flat_map(|setting| [(setting, Model::Off), (setting, Model::All)]);
    let each = [Setting { aim: "", ..STREAM }, Setting { aim: "", ..MISSES }].into_iter();
    let each = each
        .flat_map(|setting| (0..mechanisms().len()).map(move |only| (setting, Model::Only(only))));
    [(outside, Model::Absent), (outside, Model::All)]
        .into_iter()
        .chain(all)
        .chain(each)
        .collect()
}

/// Returns the seconds of `passes` times four loads from each of 2048 pages, behind pages of stage
/// 2 of which no TLB has one, and the loads. Without translation buffers, if `translates` is false.
fn pages(guest: &Path, passes: u64, translates: bool) -> (f64, u64) {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), "pseudo-random");
    let text = std::fs::read_to_string(&board).expect("the board file");
    let (on, off) = SIMPLE
        .iter()
        .find(|(on, _)| on.starts_with("micro_entries"))
        .expect("it turns them off");
    std::fs::write(
        &board,
        if translates {
            text.replace(off, on)
        } else {
            text
        },
    )
    .expect("the board file");
    let arguments = format!(
        "board={},stats={},roi=hint",
        board.display(),
        stats.display()
    );
    let outcome = machine(directory.path(), Some(&arguments), guest, &[18, passes])
        .run()
        .expect("QEMU runs");
    assert!(
        outcome.exit.is_clean(),
        "{}: {}",
        outcome.exit,
        outcome.errors
    );
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
    let settings = settings();
    // The least seconds of the run and of the one that is subtracted, by themselves: both are
    // disturbed at times.
    let mut least = vec![[f64::INFINITY; 2]; settings.len()];
    let mut counted = vec![0u64; settings.len()];
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (((setting, model), least), counted) in
            settings.iter().zip(&mut least).zip(&mut counted)
        {
            let (time, accesses) = run(setting.guest, *model);
            let (idle, idle_accesses) = run(setting.idle, *model);
            *least = [least[0].min(time), least[1].min(idle)];
            *counted = accesses - idle_accesses;
        }
    }
    println!(
        "{:<45} {:<26} {:>10} {:>8} {:>12}  aim",
        "guest", "mechanisms", "accesses", "seconds", "M accesses/s"
    );
    let seconds: Vec<f64> = least.iter().map(|[time, idle]| time - idle).collect();
    for (((setting, model), seconds), accesses) in settings.iter().zip(&seconds).zip(&counted) {
        let (what, speed) = (setting.what, *accesses as f64 / seconds / 1e6);
        let (model, aim) = (
            model.name(),
            if matches!(model, Model::All) {
                setting.aim
            } else {
                ""
            },
        );
        println!("{what:<45} {model:<26} {accesses:>10} {seconds:>8.3} {speed:>12.1}  {aim}");
    }
    println!(
        "outside the region / without the plugin: {:.3}  (aim: 1.1)",
        seconds[1] / seconds[0]
    );
    translation();
}
