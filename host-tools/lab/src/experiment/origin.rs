//! What executed an experiment's images, as its report says it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::model::Roi;

/// The facts about the model that hold for any system.
const MODEL: &str = "Modelled, not measured: what is modelled is in docs/board-model.md.";
/// What holds if the model is on from the first instruction.
const EXACT: &str = "Each case is one run, which repeats exactly: the spread is that of its \
                     segments, not of repeated runs.";
/// What holds if it is on in regions of interest alone.
const HINT: &str = "The model is on in regions of interest alone (roi = \"hint\"), and in between \
                    the guests run in the host's time. So a run does not repeat exactly: repeat \
                    the experiment, with another --out, to see by how much figures differ.";
/// The facts about a board's figures.
const MEASURED: &str = "Measured on a board, one run of each case: the spread is that of its \
                        segments, not of repeated runs. Caches are as the guests leave them.";

/// What executed the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The model, which is on at these times.
    Model(Roi),
    /// A board.
    Hardware,
}

impl Origin {
    /// Returns how figures came about.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Model(_) => "modelled",
            Self::Hardware => "measured",
        }
    }

    /// Returns what holds for all figures.
    pub fn facts(self) -> String {
        match self {
            Self::Model(Roi::Always) => format!("{MODEL} {EXACT}"),
            Self::Model(Roi::Hint) => format!("{MODEL} {HINT}"),
            Self::Hardware => MEASURED.to_owned(),
        }
    }
}
