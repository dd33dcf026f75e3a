//! Files of the board model: its boards, and what it wrote.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::scratch;
use crate::target::{Files, Form, Outcome, Target};
use cloison_board_model::board::Board;
use cloison_engine::model::statistics;

/// Boards of the model.
pub const MODEL: Target = Target {
    name: "model",
    package: "cloison-board-model",
    rule: "each error has a message; an accepted board has caches and a clock",
    form: Form::Text,
    files: &[
        Files {
            folder: "configs/models",
            end: ".toml",
        },
        Files {
            folder: "tests/bad-models",
            end: ".toml",
        },
    ],
    made: || vec![],
    check: |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return Outcome::Refused;
        };
        match Board::parse(text) {
            Ok(mut board) => {
                assert!(board.clock_mhz >= 100 && board.quantum >= 10);
                board.reseed(u64::MAX);
                assert!(board.refresh.phase < board.refresh.interval);
                Outcome::Accepted
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                Outcome::Refused
            }
        }
    },
};

/// The statistics that the plugin leaves.
pub const STATISTICS: Target = Target {
    name: "statistics",
    package: "cloison-engine",
    rule: "what is read is written and read as the same",
    form: Form::Text,
    files: &[],
    made: || {
        let core =
            r#"{"cycles":9,"overflow_interrupts":0,"events":{"CPU_CYCLES":9},"guest_events":{}}"#;
        let region = format!(r#"{{"cores":[{core},{core}]}}"#);
        let text = format!(
            r#"{{"modelled":true,"board":"zcu102","seed":1,"regions":[{region}],"whole":{region}}}"#
        );
        vec![text.into_bytes()]
    },
    check: |input| {
        let path = scratch::file("statistics.json", input);
        let Ok(read) = statistics(&path) else {
            return Outcome::Refused;
        };
        let text = serde_json::to_vec(&read).expect("it was read");
        let again = statistics(&scratch::file("statistics.json", &text)).expect("it was written");
        assert_eq!(serde_json::to_vec(&again).expect("it was read"), text);
        Outcome::Accepted
    },
};
