//! Profiles that the configuration names and that do not exist: they are made first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bbprof::absent::{self, Absent};
use crate::bbprof::{BbprofArgs, bbprof};
use cloison_engine::installation;
use miette::{Result, WrapErr, miette};
use std::path::{Path, PathBuf};

/// What executes the VMs, as the command line has it.
#[derive(Clone, Debug)]
pub struct On {
    /// The board, if not the configuration's.
    pub board: Option<String>,
    /// The board model, if not the board's.
    pub model: Option<PathBuf>,
    /// Seed of the model.
    pub seed: u64,
    /// Whether a board runs them, so that no profile can be made here.
    pub is_board: bool,
}

/// Makes the profiles that a configuration names and that do not exist; their runs are kept as those of
/// `bbprof`.
///
/// # Errors
///
/// If a VM cannot be profiled, or none of its pages matters.
pub fn make(config: &Path, on: &On) -> Result<()> {
    for Absent { vm, file } in absent::of(config) {
        let shown = installation::display(&file);
        if on.is_board {
            let help = format!(
                "make it from runs on the board first: cloison bbprof {} --vm {vm} --images DIR",
                installation::display(config)
            );
            return Err(miette!(
                help = help,
                "{shown}, the profile of VM `{vm}`, does not exist"
            ));
        }
        eprintln!("tune: {shown} does not exist: finding the pages that matter to VM `{vm}`");
        let options = BbprofArgs {
            board: on.board.clone(),
            model: on.model.clone(),
            ..BbprofArgs::to_make(config, &vm, &file, on.seed)
        };
        bbprof(&options)
            .wrap_err_with(|| miette!("the profile {shown} of VM `{vm}` cannot be made"))?;
        if !file.exists() {
            let help = "leave [vm.profile] out, and \"pages\" in its list `tune`";
            return Err(miette!(
                help = help,
                "no page of VM `{vm}` matters to its segments: it has no use for private pages"
            ));
        }
    }
    Ok(())
}
