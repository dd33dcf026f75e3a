//! The facts about the model that a reader of any modelled result must know, in the numbers of its
//! board file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_board_model::Board;
use cloison_board_model::banks::TICKS;
use cloison_board_model::board::{L2Data, Prefetch};
use cloison_board_model::cache::Policy;
use cloison_board_model::cluster::L2Limits;
use cloison_board_model::streaming::Streaming;

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;

fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Lru => "the least recently used one",
        Policy::PseudoRandom => "a pseudo-random one",
        Policy::RoundRobin => "each in turn",
        Policy::NotRecentlyUsed => "the first that was not used since all others were",
        Policy::RandomNotRecentlyUsed => "a random one that was not used since all others were",
        Policy::TreePlru => "the one to which a tree of bits leads",
    }
}

/// Returns the facts about the model that every account needs.
pub fn limits(model: &Board) -> String {
    let timing = &model.timing;
    let data = match model.l2_data {
        L2Data::OnEviction => "The L2 takes data when an L1 evicts it",
        L2Data::OnMiss => "The L2 takes data when an L1 asks for it",
    };
    let memory = match &model.banks {
        Some(banks) => format!(
            "that is if the bank has another row open; memory has {} banks with a row each, one \
             bus and refreshes, and collects {} writes, but serves all in order of time",
            1 << banks.bank_bits,
            banks.writes
        ),
        None => format!(
            "memory moves a line in {}, and until its bandwidth is used up nobody waits for \
             anybody there: there are no banks, rows or queues",
            cycles(timing.dram_line)
        ),
    };
    let L2Limits {
        lookup,
        writes,
        writes_wait,
        ..
    } = model.l2_limits;
    let mut shared = vec![];
    if lookup > 0 {
        shared.push(format!("its lookups, one in {}", cycles(lookup)));
    }
    if writes > 0 {
        let busy = if writes_wait {
            ", each at least until the memory takes it"
        } else {
            ""
        };
        shared.push(format!(
            "its writes to memory, of which {writes} may be outstanding{busy}; while as many are, \
             it serves no core"
        ));
    }
    let shared = match shared.as_slice() {
        [] => "Nothing but lines is shared in the L2, so in its own colors a core is never \
               disturbed there"
            .to_owned(),
        some => format!(
            "What cores share in the L2 besides lines: {}",
            some.join(", and ")
        ),
    };
    let loads = match timing.load_linefills {
        0 => "a load waits for its line".to_owned(),
        lines => format!(
            "the first use of what a load reads waits for its line, of which {lines} may be on \
             their way"
        ),
    };
    format!(
        "Modelled, not measured: cores execute {} per instruction, in order, at {} MHz; {loads}, \
         {} to the L2 and {} more to memory; {memory}; stores wait when {} lines are being \
         fetched. {shared}. There is {}. Of a full set the victim is: in the L1 data caches {}, \
         in the L2 {}; the latter is inferred. {data}. A board may run at another \
         clock.",
        cycles(timing.instruction),
        model.clock_mhz,
        cycles(timing.l2),
        timing.dram,
        timing.store_linefills,
        missing(model),
        policy(model.l1d.policy),
        policy(model.l2.policy),
    )
}

/// Returns the resources for which a line from memory waits.
pub fn memory_wait(model: &Board) -> String {
    match model.banks {
        Some(_) => {
            "its bank and for the bus of the memory, and sometimes for a batch of writes".to_owned()
        }
        None => format!(
            "a memory that serves one line in {}, and for the write-back of another",
            cycles(model.timing.dram_line)
        ),
    }
}

/// Returns which mechanisms the model does not have, or this board file does not use.
fn missing(model: &Board) -> String {
    let all = [
        (model.prefetch == Prefetch::NONE, "no prefetcher"),
        (model.streaming == Streaming::NONE, "no write streaming"),
        (
            model.timing.snoop == 0,
            "no coherence between the L1 data caches",
        ),
        (model.tlb.is_none(), "no TLB"),
    ];
    let missing: Vec<&str> = all
        .into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, what)| what)
        .collect();
    if missing.is_empty() {
        "no dual issue".to_owned()
    } else {
        missing.join(", ")
    }
}

fn cycles(number: u64) -> String {
    format!("{number} {}", if number == 1 { "cycle" } else { "cycles" })
}

/// Returns how much longer a line of straight code takes from memory than from the L2. This is the
/// slowdown that the model's costs alone give code whose lines other cores evict, without any wait
/// for other cores. The lines follow each other, so their row of the memory is open.
pub fn stall_implied(model: &Board) -> f64 {
    let timing = &model.timing;
    let executed = model.l1i.geometry.line_bytes() / INSTRUCTION * timing.instruction;
    let hit = executed + timing.l2;
    let row = model.banks.map_or(0.0, |banks| {
        (banks.precharge + banks.activate) as f64 / TICKS as f64
    });
    ((hit + timing.dram) as f64 - row) / hit as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_described_by_its_own_numbers() {
        let mut board = Board::zcu102();
        let text = limits(&board);
        assert!(text.contains("memory has 16 banks"), "{text}");
        assert!(
            text.contains("13 cycles to the L2 and 186 more to memory"),
            "{text}"
        );
        assert!(
            text.contains("takes data when an L1 evicts it")
                && text.contains("L2 the least recently used one"),
            "{text}"
        );
        assert!((stall_implied(&board) - (215.0 - 31.9 * 1.5) / 29.0).abs() < 1e-2);
        let mechanisms = |board: &Board| {
            let text = limits(board);
            text[text.find("There is").expect("said")..]
                .split('.')
                .next()
                .expect("a sentence")
                .to_owned()
        };
        assert_eq!(mechanisms(&board), "There is no dual issue");
        assert!(text.contains(
            "in the L2 besides lines: its lookups, one in 1 cycle, and its writes to memory, of \
             which 16"
        ));
        board.l2_limits = L2Limits::NONE;
        assert!(limits(&board).contains("in its own colors a core is never disturbed there"));
        (
            board.prefetch,
            board.streaming,
            board.timing.snoop,
            board.tlb,
        ) = (Prefetch::NONE, Streaming::NONE, 0, None);
        let none = "There is no prefetcher, no write streaming, no coherence between the L1 data \
                    caches, no TLB";
        assert_eq!(mechanisms(&board), none);
        board.banks = None;
        assert!((stall_implied(&board) - 215.0 / 29.0).abs() < 1e-9);
        board.timing.dram = 300;
        board.l2.policy = Policy::PseudoRandom;
        board.l2_data = L2Data::OnMiss;
        let text = limits(&board);
        assert!(text.contains("memory moves a line in 8 cycles"), "{text}");
        assert!(
            text.contains("300 more") && text.contains("L2 a pseudo-random one"),
            "{text}"
        );
        assert!(
            text.contains("takes data when an L1 asks for it") && stall_implied(&board) > 10.0,
            "{text}"
        );
    }
}
