//! Configurations of systems, and the files beside them that `cloison-config` reads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::{Files, Form, Outcome, Target, root};
use cloison_config::{Errors, Problem, Shipped};
use cloison_formats::image::System;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use std::path::Path;

/// Configurations of systems.
pub const CONFIGURATION: Target = Target {
    name: "configuration",
    package: "cloison-config",
    rule: "each error has a place in the text and a message that can be drawn; what is accepted EL2 accepts",
    form: Form::Text,
    files: &[
        Files {
            folder: "configs",
            end: ".toml",
        },
        Files {
            folder: "tests/bad-configs",
            end: ".toml",
        },
    ],
    made: || vec![],
    check,
};

/// Returns the system of a configuration of the checkout.
pub fn system(path: &str) -> Option<System> {
    let path = root().join(path);
    let configs = root().join("configs");
    let text = std::fs::read_to_string(&path).ok()?;
    let checked = cloison_config::load_text(&path, text, None, &shipped(&configs)).ok()?;
    Some(checked.system)
}

/// Returns where boards and events are, without kernels.
pub fn shipped(configs: &Path) -> Shipped<'_> {
    Shipped {
        configs,
        kept_kernel: &|_, _| None,
    }
}

fn check(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::Refused;
    };
    let configs = root().join("configs");
    let path = configs.join("fuzzed.toml");
    match cloison_config::load_text(&path, text.to_owned(), None, &shipped(&configs)) {
        Ok(checked) => {
            places(&checked.warnings);
            assert!(!checked.summary().is_empty());
            Outcome::Accepted
        }
        Err(errors) => {
            refused(&errors);
            Outcome::Refused
        }
    }
}

/// Checks that errors have places, and can be drawn.
pub fn refused(errors: &Errors) {
    assert!(!errors.problems().is_empty());
    places(errors.problems());
    draw(errors);
}

/// Checks that problems have places.
pub fn places(problems: &[Problem]) {
    for problem in problems {
        assert!(!problem.message().is_empty() && !problem.file().is_empty());
        let (line, column) = problem.line_and_column();
        assert!(line >= 1 && column >= 1);
    }
}

/// Draws a report as the command line does.
pub fn draw(report: &dyn Diagnostic) {
    let mut drawn = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::none())
        .render_report(&mut drawn, report)
        .expect("its labels are within its text");
    assert!(!drawn.is_empty());
}
