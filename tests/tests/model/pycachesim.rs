//! Compares the caches with pycachesim, an independent simulator: equal hits and misses at each
//! level.
//!
//! What pycachesim counts is recorded here. The test that it still counts so installs it with pip
//! into a private environment under `target/`, which needs Python's venv, pip and a C compiler.
//! That one is therefore run on demand: `cargo test -p cloison-tests --test model -- --ignored
//! pycachesim`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_board_model::board::L2Data;
use cloison_board_model::cache::{Direction, Policy};
use cloison_board_model::{Board, Hierarchy};
use cloison_tests::python::{self, succeeds};
use std::fmt::Write;
use std::process::Command;

/// In pycachesim, a store that hits does not make its line the most recently used one and is not
/// counted as a hit. Each store is therefore preceded by a load of the same bytes, which allocates
/// the line as write-allocate would.
const REFERENCE: &str = r#"
import sys
from cachesim import CacheSimulator, Cache, MainMemory
mem = MainMemory()
l2 = Cache("L2", 1024, 16, 64, "LRU")
mem.load_to(l2); mem.store_from(l2)
l1 = Cache("L1", 128, 4, 64, "LRU", store_to=l2, load_from=l2)
cs = CacheSimulator(l1, mem)
for line in sys.stdin:
    kind, address, size = line.split()
    cs.load(int(address), int(size))
    if kind == "w":
        cs.store(int(address), int(size))
for c in (l1, l2):
    print(c.backend.HIT_count, c.backend.MISS_count)
print(l1.backend.EVICT_count, l2.backend.EVICT_count)
"#;

/// Accesses: address, bytes, whether it is a store.
type Trace = Vec<(u64, u64, bool)>;

struct Random(u64);
impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn traces() -> Vec<(&'static str, Trace)> {
    let mut random = Random(42);
    let stream = (0..3)
        .flat_map(|_| (0..40_000u64).map(|at| (at * 64, 8, at % 2 == 0)))
        .collect();
    let words = (0..2)
        .flat_map(|_| (0..60_000u64).map(|at| (at * 8, 8, at % 5 == 0)))
        .collect();
    let mut matrix = Trace::new();
    for row in 0..48 {
        for column in 0..48 {
            for at in 0..48 {
                matrix.push((row * 4096 + at * 8, 8, false));
                matrix.push((0x10_0000 + at * 4096 + column * 8, 8, false));
            }
            matrix.push((0x20_0000 + row * 4096 + column * 8, 8, true));
        }
    }
    let chase = (0..100_000)
        .map(|_| (random.below(3 << 20) & !7, 8, false))
        .collect();
    let scatter = (0..100_000)
        .map(|_| (random.below(2 << 20) & !15, 16, random.below(3) == 0))
        .collect();
    vec![
        ("stream", stream),
        ("words", words),
        ("matrix", matrix),
        ("chase", chase),
        ("scatter", scatter),
    ]
}

/// What pycachesim 0.3.1 counts for each trace: hits and misses of the L1, of the L2, and
/// write-backs of both.
const RECORDED: [(&str, [[u64; 2]; 3]); 5] = [
    ("stream", [[0, 120_000], [0, 120_000], [59_744, 51_808]]),
    ("words", [[105_000, 15_000], [7_500, 7_500], [14_488, 0]]),
    ("matrix", [[107_808, 115_680], [114_816, 864], [2_298, 0]]),
    ("chase", [[1_005, 98_995], [28_950, 70_045], [0, 0]]),
    (
        "scatter",
        [[1_519, 98_481], [43_152, 55_329], [32_961, 18_156]],
    ),
];

#[test]
fn hits_and_misses_are_those_of_pycachesim() {
    // It has none of the mechanisms that move lines without being asked, and no cache that takes
    // lines on eviction only.
    let mut board = Board::zcu102().simple();
    board.l2_data = L2Data::OnMiss;
    for level in [&mut board.l1d, &mut board.l2] {
        level.policy = Policy::Lru;
    }
    let ours = traces().into_iter().map(|(name, trace)| {
        let mut model = Hierarchy::new(&board, 1);
        for (address, bytes, write) in trace {
            model.data(0, address, bytes, Direction::of(write), 0);
        }
        let counts = model.counts(0);
        let lookups = counts.accesses + counts.crossings;
        let l1 = [lookups - counts.l1d_refills, counts.l1d_refills];
        let l2 = [counts.l2_fills - counts.l2_refills, counts.l2_refills];
        (
            name,
            [l1, l2, [counts.l1d_writebacks, counts.l2_writebacks]],
        )
    });
    assert_eq!(ours.collect::<Vec<_>>(), RECORDED);
}

#[test]
#[ignore = "needs Python with venv, pip and a C compiler"]
fn pycachesim_counts_what_is_recorded() {
    let python = python::with("pycachesim", "cachesim", &["pycachesim==0.3.1"]);
    let directory = tempfile::tempdir().expect("a directory");
    for ((name, trace), (recorded, counts)) in traces().into_iter().zip(RECORDED) {
        let mut text = String::new();
        for (address, bytes, write) in trace {
            writeln!(text, "{} {address} {bytes}", if write { "w" } else { "r" }).expect("memory");
        }
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("the trace");
        let input = std::fs::File::open(&path).expect("the trace");
        let reference = succeeds(Command::new(&python).args(["-c", REFERENCE]).stdin(input));
        let lines = counts.map(|[left, right]| format!("{left} {right}"));
        assert_eq!(
            (name, lines.join("\n").as_str()),
            (recorded, reference.trim())
        );
    }
}
