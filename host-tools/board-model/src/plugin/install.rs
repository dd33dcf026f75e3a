//! The plugin's arguments, and the listener that they select.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::model::Model;
use super::state::{Options, Plugin};
use super::time::is_main_thread;
use super::{count, visits};
use crate::board::Board;
use crate::clock::MAX_CORES;
use cloison_qemu::entry::Emulated;
use cloison_qemu::ffi::{PluginId, missing};
use cloison_qemu::guest::Qemu;
use cloison_qemu::internals::Internals;
use cloison_qemu::listener::listen;
use cloison_qemu::machine::machine;
use std::path::PathBuf;

/// Reads the GIC IDs of the cores' overflow interrupts, shared ones.
fn overflows(text: &str) -> Result<Vec<u32>, String> {
    let numbers: Result<Vec<u32>, _> = text.split('+').map(str::parse).collect();
    let numbers = numbers.map_err(|error| format!("overflow={text}: {error}"))?;
    if numbers.iter().any(|number| !(32..256).contains(number)) {
        return Err(format!("overflow={text}: 32 to 255 are shared interrupts"));
    }
    Ok(numbers)
}

/// Reads the arguments with which visits to EL2 are followed.
fn visits_wanted(arguments: &[&str]) -> Result<visits::Wanted, String> {
    let mut wanted = visits::Wanted {
        turn: 100,
        ..visits::Wanted::default()
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    for argument in arguments {
        let bad = |error| format!("{argument}: {error}");
        match argument.split_once('=') {
            Some(("visits", file)) => wanted.file = PathBuf::from(file),
            Some(("acknowledge", text)) => wanted.acknowledge = number(text).map_err(bad)?,
            Some(("overflow", text)) => wanted.overflows = overflows(text)?,
            Some(("turn", text)) => wanted.turn = number(text).map_err(bad)?,
            Some(("mark", text)) => {
                let (address, cause) = text
                    .split_once(':')
                    .ok_or_else(|| format!("{argument}: give ADDRESS:CAUSE"))?;
                wanted
                    .marks
                    .push((number(address).map_err(bad)?, cause.to_owned()));
            }
            _ => {
                return Err(format!(
                    "unknown argument `{argument}`: with visits=FILE there are \
                     acknowledge=ADDRESS, turn=NUMBER, overflow=ID+ID..., mark=ADDRESS:CAUSE"
                ));
            }
        }
    }
    Ok(wanted)
}

/// Installs the plugin with these arguments.
///
/// # Errors
///
/// If an argument is wrong, or QEMU lacks what it needs.
pub fn install(id: PluginId, emulated: Emulated, arguments: &[&str]) -> Result<(), String> {
    let qemu = Qemu::find(id)?;
    let cores = emulated.cores;
    if let [argument] = arguments
        && let Some(file) = argument.strip_prefix("count=")
    {
        return count::install(qemu, PathBuf::from(file));
    }
    if arguments
        .iter()
        .any(|argument| argument.starts_with("visits="))
    {
        return visits::install(qemu, cores, visits_wanted(arguments)?);
    }
    if !emulated.is_arm_system {
        return Err("the model is for qemu-system-aarch64".into());
    }
    if !(1..=MAX_CORES).contains(&cores) {
        return Err(format!("{cores} cores: 1 to {MAX_CORES} are supported"));
    }
    let (board, options) = model_wanted(arguments)?;
    let machine = machine().map_err(missing)?;
    let plugin = Plugin::new(Internals::find()?, machine, board, cores, options);
    listen(qemu, Model::of(plugin))?;
    is_main_thread();
    Ok(())
}

/// Reads the arguments of the model.
fn model_wanted(arguments: &[&str]) -> Result<(Board, Options), String> {
    let mut board = None;
    let mut options = Options::default();
    for argument in arguments {
        match argument.split_once('=') {
            Some(("board", path)) => {
                board =
                    Some(Board::load(path.as_ref()).map_err(|error| format!("{path}: {error}"))?);
            }
            Some(("roi", "always")) => options.always = true,
            Some(("roi", "hint")) => options.always = false,
            Some(("caches", "cold")) => options.cold = Some(true),
            Some(("caches", "warm")) => options.cold = Some(false),
            Some(("seed", text)) => {
                let number = text
                    .parse()
                    .map_err(|error| format!("seed={text}: {error}"));
                options.seed = number?;
            }
            Some(("stats", path)) => options.statistics = Some(PathBuf::from(path)),
            Some(("profile", path)) => options.profile = Some(PathBuf::from(path)),
            Some(("overflow", text)) => options.overflow_interrupts = overflows(text)?,
            _ => {
                return Err(format!(
                    "unknown argument `{argument}`: there are board=FILE, roi=hint|always, \
                     caches=warm|cold, seed=NUMBER, stats=FILE, profile=FILE, overflow=ID+ID...; or \
                     count=FILE alone; or visits=FILE"
                ));
            }
        }
    }
    if options.profile.is_some() && !options.always {
        return Err("a profile is of all that is executed: add roi=always".into());
    }
    let mut board = board.ok_or("no board: give board=configs/models/zcu102.toml")?;
    board.reseed(options.seed);
    Ok((board, options))
}
