//! Files beside configurations: boards, event tables, validations, profiles, kernels.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::configuration::{draw, places, refused};
use crate::scratch;
use crate::target::{Files, Form, Outcome, Target, root};
use cloison_config::event_map::CpuMap;
use cloison_config::kernel::Kernel;
use cloison_config::validation::manifest::Manifest;
use cloison_config::validation::record::Record;
use cloison_config::{BoardFile, Errors, Foreign, events};
use std::path::Path;

/// Boards.
pub const BOARD: Target = Target {
    name: "board",
    package: "cloison-config",
    rule: "each error has a place and can be drawn; a board has a color and a core",
    form: Form::Text,
    files: &[Files {
        folder: "configs/boards",
        end: ".toml",
    }],
    made: || vec![],
    check: |input| {
        let path = scratch::file("boards/virt.toml", input);
        match BoardFile::load(&path, &root().join("configs")) {
            Ok(board) => {
                assert!(board.colors > 0 && !board.board.cores.is_empty());
                Outcome::Accepted
            }
            Err(problems) => {
                refused(&Errors::new("virt.toml", problems));
                Outcome::Refused
            }
        }
    },
};

/// Event tables, in the JSON of perf's `pmu-events`.
pub const EVENTS: Target = Target {
    name: "events",
    package: "cloison-events",
    rule: "each problem has a place and can be drawn; events are sorted, and found by name and number",
    form: Form::Text,
    files: &[Files {
        folder: "configs/events",
        end: ".json",
    }],
    made: || vec![],
    check: |input| {
        let path = scratch::file("events/cortex-a53/table.json", input);
        let folder = path.parent().expect("it is in a folder");
        let (table, problems) = events::load(folder);
        places(&problems);
        let Some(table) = table else {
            refused(&Errors::new("table.json", problems));
            return Outcome::Refused;
        };
        assert!(table.events.is_sorted_by_key(|event| event.id));
        for event in &table.events {
            assert!(table.by_id(event.id).is_some() && table.by_name(&event.name).is_some());
            assert!(events::find(&table, &event.name).is_ok());
        }
        Outcome::Accepted
    },
};

/// The file that names the table of each CPU.
pub const EVENT_MAP: Target = Target {
    name: "event-map",
    package: "cloison-config",
    rule: "each problem has a place",
    form: Form::Text,
    files: &[Files {
        folder: "configs/events",
        end: "mapfile.csv",
    }],
    made: || vec![],
    check: |input| {
        let (map, problems) = CpuMap::load(&scratch::file("mapfile.csv", input));
        places(&problems);
        assert!(map.folders().all(|folder| !folder.is_empty()));
        match problems.is_empty() {
            true => Outcome::Accepted,
            false => Outcome::Refused,
        }
    },
};

/// Manifests of benchmarks, and verdicts.
pub const VALIDATION: Target = Target {
    name: "validation",
    package: "cloison-config",
    rule: "each error has a place and can be drawn",
    form: Form::Text,
    files: &[Files {
        folder: "configs/validation",
        end: ".toml",
    }],
    made: || vec![],
    check: |input| {
        let path = scratch::file("validation.toml", input);
        let outcomes = [
            Manifest::load(&path).map(|_| ()),
            Record::load(&path).map(|_| ()),
        ];
        for errors in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            refused(errors);
        }
        match outcomes.iter().any(Result::is_ok) {
            true => Outcome::Accepted,
            false => Outcome::Refused,
        }
    },
};

/// Linux kernels, and what files of other hypervisors are.
pub const KERNEL: Target = Target {
    name: "kernel",
    package: "cloison-config",
    rule: "an accepted kernel is whole",
    form: Form::Bytes,
    files: &[],
    made: || {
        let mut kernel = vec![0; 0x40];
        kernel[16..24].copy_from_slice(&0x1000_u64.to_le_bytes());
        kernel[24] = 0xa;
        kernel[0x38..0x3c].copy_from_slice(b"ARM\x64");
        vec![
            kernel,
            b"MZ".to_vec(),
            b"\x1f\x8b".to_vec(),
            b"\x7fELF".to_vec(),
        ]
    },
    check: |input| {
        if Foreign::of(input).is_none() {
            let (message, help) = Foreign::unknown(input, Path::new("file"));
            assert!(!message.is_empty() && !help.is_empty());
        }
        match Kernel::parse(input) {
            Ok(_) => Outcome::Accepted,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                draw(&miette_of(error));
                Outcome::Refused
            }
        }
    },
};

/// An error without a place, as a report.
fn miette_of(error: impl std::error::Error) -> miette::MietteDiagnostic {
    miette::MietteDiagnostic::new(error.to_string())
}
