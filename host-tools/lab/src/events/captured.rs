//! Counts of a manifest's benchmarks on a board, from the runs that `cloison capture` left.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::{Planned, Setting, planned};
use super::{Inputs, ValidateArgs, judge_counts};
use crate::captured::{self, BoardRuns, CapturedRuns};
use cloison_config::problem::count;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::validation::Counts;
use cloison_config::validation::record::Machine;
use cloison_engine::files::scratch;
use cloison_engine::store::Store;
use cloison_engine::{configuration, parts};
use cloison_formats::ids::VmId;
use miette::{Result, WrapErr, miette};

/// The VM that runs the benchmarks: the only one.
const VM: VmId = VmId(0);
/// The state of the prefetchers, as verdicts have it.
const PREFETCHER: &str = "as after reset";

/// Validates by runs on a board, or writes the images for these runs.
///
/// # Errors
///
/// Returns the errors of [`super::validate`], and what is wrong with a run.
pub fn validate(args: &ValidateArgs, board_runs: &BoardRuns, cpu_mhz: Option<u64>) -> Result<()> {
    parts::prepare()?;
    let named = args.board.as_deref().unwrap_or(DEFAULT_BOARD);
    let board = configuration::board(named)?;
    let runs = CapturedRuns::find(&board_runs.captured)?;
    let scratch = scratch()?;
    let setting = Setting::of_board(named, &board, args.runs, Store::at(scratch.path()))?;
    let inputs = Inputs::load(args, &board.events.cpu)?;
    let boots = planned(&inputs.manifest, &board)?;
    let (mut counts, mut missing) = (Counts::new(&board.board.name, PREFETCHER), vec![]);
    counts.cpu_mhz = cpu_mhz;
    for boot in &boots {
        let (image, text) = setting.image(boot)?;
        let Some(run) = runs.of(&image) else {
            if let Some(images) = &board_runs.images {
                captured::write(images, &boot.name, &image, &text)?;
            }
            missing.push(boot.name.clone());
            continue;
        };
        let telemetry = run.telemetry(&image.system.name, VM)?;
        counted(boot, &telemetry).wrap_err_with(|| run.place())?;
        let names = cloison_config::events::EventNames::of(&board.events);
        let read = setting
            .read(&inputs.manifest, boot.guest, &telemetry, &names)
            .wrap_err_with(|| run.place())?;
        for one in read {
            counts.add_run(&one.benchmark, one.counts);
        }
    }
    if let [first, ..] = &runs.strangers()[..] {
        return Err(miette!(
            help = "its image was written for another board, other --runs, another manifest, or by \
                    another version of Cloison: leave the folder out, or write the images again",
            "{first} is a run of another image than those of this validation"
        ));
    }
    if missing.is_empty() {
        return judge_counts(args, Machine::Hardware, |_, _| Ok(counts));
    }
    if board_runs.images.is_some() {
        board_runs.print_written(&missing, &board.board.name);
        return Ok(());
    }
    Err(miette!(
        help = "write their images: --images DIR; boot and capture each",
        "{} of {} not captured: {}",
        count(missing.len(), "run"),
        boots.len(),
        missing.join(", ")
    ))
}

/// Checks that a run counted the events of its image, which all have the same system.
fn counted(boot: &Planned<'_>, telemetry: &cloison_engine::telemetry::Telemetry) -> Result<()> {
    let wanted: Vec<_> = boot.events.iter().map(|event| event.id).collect();
    for run in telemetry.hem_runs() {
        let found: Vec<_> = run.counts().map(|(event, ..)| event).collect();
        if found != wanted {
            let list = |events: &[cloison_formats::units::EventId]| {
                let words: Vec<String> = events.iter().map(ToString::to_string).collect();
                words.join(", ")
            };
            return Err(miette!(
                help = "boot the `Image` of this folder, and capture it again",
                "the board ran another image: it counted the events {}, and not {}",
                list(&found),
                list(&wanted)
            ));
        }
    }
    Ok(())
}
