//! The plugin's arguments, and the instruments that they select.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::blocks::Blocks;
use crate::fuzz::target::Target;
use crate::fuzz::{self, Fuzzer};
use crate::instrument::Instrument;
use crate::oracle::{self, Oracle, Wanted};
use crate::prover::{MAX_CORES, Prover};
use cloison_qemu::entry::Emulated;
use cloison_qemu::ffi::{PluginId, missing};
use cloison_qemu::guest::Qemu;
use cloison_qemu::internals::Internals;
use cloison_qemu::listener::listen;
use cloison_qemu::machine::machine;
use std::path::PathBuf;
use std::sync::Arc;

/// One of so many visits after the first ones has its registers compared, unless the arguments say
/// otherwise.
const EVERY: u64 = 8;

/// The arguments.
#[derive(Debug, Default)]
struct Arguments {
    elf: Option<PathBuf>,
    fuzz: Option<PathBuf>,
    wanted: fuzz::Wanted,
    image: Option<PathBuf>,
    oracle: Option<PathBuf>,
    every: Option<u64>,
    goes_on: bool,
}

impl Arguments {
    fn read(texts: &[&str]) -> Result<Self, String> {
        let mut arguments = Self::default();
        let wanted = &mut arguments.wanted;
        for text in texts {
            let number = |digits: &str| {
                digits
                    .parse::<u64>()
                    .map_err(|error| format!("{text}: {error}"))
            };
            match text.split_once('=') {
                Some(("elf", file)) => arguments.elf = Some(PathBuf::from(file)),
                Some(("fuzz", directory)) => arguments.fuzz = Some(PathBuf::from(directory)),
                Some(("seed", digits)) => wanted.seed = number(digits)?,
                Some(("exits", digits)) => wanted.exits = number(digits)?,
                Some(("seconds", digits)) => wanted.seconds = number(digits)?,
                Some(("replay", file)) => wanted.replay = Some(PathBuf::from(file)),
                Some(("image", file)) => arguments.image = Some(PathBuf::from(file)),
                Some(("oracle", file)) => arguments.oracle = Some(PathBuf::from(file)),
                Some(("every", digits)) => {
                    let every = number(digits).ok().filter(|every| *every > 0);
                    arguments.every = Some(every.ok_or("every: give a number from 1 up")?);
                }
                Some(("keep-going", "on")) => arguments.goes_on = true,
                _ => {
                    return Err(format!(
                        "unknown argument `{text}`: there are elf=FILE; fuzz=DIRECTORY with \
                         image=FILE, seed=NUMBER, exits=NUMBER, seconds=NUMBER, replay=FILE; \
                         oracle=FILE with image=FILE, every=NUMBER, keep-going=on"
                    ));
                }
            }
        }
        Ok(arguments)
    }
}

/// Installs the plugin with these arguments.
///
/// # Errors
///
/// If an argument is wrong, or QEMU lacks what it needs.
pub fn install(id: PluginId, emulated: Emulated, arguments: &[&str]) -> Result<(), String> {
    let qemu = Qemu::find(id)?;
    if !emulated.is_arm_system || !(1..=MAX_CORES).contains(&emulated.cores) {
        return Err(format!(
            "the prover is for qemu-system-aarch64 with 1 to {MAX_CORES} cores"
        ));
    }
    let arguments = Arguments::read(arguments)?;
    let blocks = match &arguments.elf {
        Some(elf) => Blocks::read(elf)?,
        None if arguments.fuzz.is_some() => return Err("fuzz: give elf=FILE, too".into()),
        None => Blocks::default(),
    };
    let blocks = Arc::new(blocks);
    let mut instruments: Vec<Box<dyn Instrument>> = Vec::new();
    if let Some(directory) = arguments.fuzz {
        let image = arguments
            .image
            .as_ref()
            .ok_or("fuzz: give image=FILE, too")?;
        let target = Target::of(&oracle::image::read(image)?);
        let wanted = fuzz::Wanted {
            directory,
            ..arguments.wanted
        };
        let fuzzer = Fuzzer::new(wanted, target, Arc::clone(&blocks))?;
        instruments.push(Box::new(fuzzer));
    }
    if let Some(report) = arguments.oracle {
        let image = arguments.image.ok_or("oracle: give image=FILE, too")?;
        instruments.push(Box::new(Oracle::new(Wanted {
            image,
            report,
            every: arguments.every.unwrap_or(EVERY),
            goes_on: arguments.goes_on,
        })?));
    }
    let machine = machine().map_err(missing)?;
    listen(
        qemu,
        Prover::new(Internals::find()?, machine, blocks, instruments),
    )
}
