//! `cloison check`: reports every error of a configuration with its position and a fix.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::problem::{count, display_path};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting};
use cloison_engine::{configuration, installation};
use miette::{Report, Result, miette};
use std::path::PathBuf;

/// `cloison check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configurations
    #[arg(required = true, value_name = "CONFIG")]
    pub files: Vec<PathBuf>,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
}

/// Runs `cloison check`: reports for each file that it is valid, or everything that is wrong with it.
pub fn check(args: &CheckArgs) -> Result<()> {
    let mut bad = 0;
    for path in &args.files {
        match configuration::load(path, args.board.as_deref()) {
            Ok(checked) => {
                println!("{}: ok ({})", display_path(&installation::find(path)).display(), checked.summary());
                if checked.board.emulation.is_some()
                    && let Some(line) = counting::warning(&checked, Counting::Stock)
                {
                    eprintln!("note: {line}");
                }
                for warning in checked.warnings {
                    eprintln!("{:?}", Report::new(warning));
                }
            }
            Err(errors) => {
                bad += 1;
                eprintln!("{:?}", Report::new(errors));
            }
        }
    }
    match bad {
        0 => Ok(()),
        bad => Err(miette!("{bad} of {} failed", count(args.files.len(), "configuration"))),
    }
}
