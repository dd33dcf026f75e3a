//! Memory on the chip as a pool: what is there, what moves there, and who cannot reach it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::audit;
use cloison_config::memory;
use cloison_engine::telemetry::End;
use cloison_formats::telemetry::MigrationOutcome;
use cloison_tests::{Clock, ZCU102, config, load, number, run};
use miette::Result;
use std::collections::HashSet;

/// Pages that move, times that they move there and back.
const PAGES: u64 = 36;
const ROUNDS: u64 = 10;

#[test]
fn a_pool_in_on_chip_memory_holds_pages_of_its_vms_and_is_out_of_reach_for_others() -> Result<()> {
    let system = config("ocm/system");
    let figures = audit::every_page_of(&system, ZCU102)?;
    assert_eq!(figures["pages_moved"], PAGES, "by the tables, all moved");

    let run = run(&load(&system, ZCU102)?, ZCU102, Clock::Counted)?.whole();
    let board = &run.system.board;
    let [chip] = &board.memories[..] else {
        panic!("{:?}", board.memories)
    };
    let line = run.line("moves", "migrate-check: rounds=");
    assert_eq!(number(line, "errors"), 0, "{run}");
    assert_eq!(number(line, "moved"), 2 * PAGES * ROUNDS, "{run}");
    let mut frames = HashSet::new();
    for (_, record) in run.telemetry.migrations() {
        let (there, home) = match record.outcome {
            MigrationOutcome::Moved => (record.to, record.from),
            _ => (record.from, record.to),
        };
        // `manages` is false in the firmware's part.
        assert!(
            chip.range.contains(there) && memory::manages(board, there),
            "{record:?}"
        );
        assert!(!chip.range.contains(home), "{record:?}");
        frames.insert(there);
    }
    assert_eq!(frames.len() as u64, PAGES);
    for vm in ["inside", "outside"] {
        let line = run.line(vm, "reach: own=");
        assert_eq!(
            (number(line, "own"), number(line, "wrong")),
            (6, 0),
            "{run}"
        );
        assert_eq!(
            (number(line, "others"), number(line, "reached")),
            (64, 0),
            "{run}"
        );
        assert_eq!(run.end_of(vm), End::Off);
    }
    let pool = run.telemetry.pools.last().expect("two pools");
    assert_eq!(
        (&pool.used[..], &pool.total[..]),
        (&[6][..], &[42][..]),
        "168 of 256 KiB: the rest is the firmware's"
    );
    Ok(())
}
