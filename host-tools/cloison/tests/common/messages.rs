//! Errors as the command line shows them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Errors;
use miette::{GraphicalReportHandler, GraphicalTheme};

/// Renders errors without colors and links.
pub fn render(errors: &Errors) -> String {
    let mut text = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::none())
        .with_width(110)
        .with_links(false)
        .render_report(&mut text, errors)
        .expect("a string takes it");
    // The handler pads lines to the width of what they annotate.
    text.lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}
