//! Configurations of this installation: read with its boards, its events and the kernels that it
//! has downloaded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::Claim;
use crate::installation;
use crate::linux::packages;
use cloison_config::checked::NotEmulated;
use cloison_config::event_map::{CpuId, CpuMap};
use cloison_config::events::{self, EventNames, EventTable};
use cloison_config::guest_linux::{Flavor, Release};
use cloison_config::problem::first;
use cloison_config::suggest;
use cloison_config::{BoardFile, Checked, Emulation, Errors, Shipped};
use miette::miette;
use std::path::{Path, PathBuf};

/// Returns the directory of the shipped boards, events, models and systems.
pub fn directory() -> PathBuf {
    installation::root().join("configs")
}

fn kept_kernel(release: Release, flavor: Flavor) -> Option<Vec<u8>> {
    std::fs::read(packages::kept_kernel(release, flavor)?.path).ok()
}

/// Reads and checks a configuration. `board` replaces the board that it names. If there is no file
/// at `path`, it is searched for among the shipped ones.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped {
        configs: &directory(),
        kept_kernel: &kept_kernel,
    };
    cloison_config::load(&installation::find(path), board, &shipped)
}

/// Like [`load`], for a text that is, or will be, in the file `path`.
///
/// # Errors
///
/// Returns all errors of the text with their positions.
pub fn load_text(path: &Path, text: String, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped {
        configs: &directory(),
        kept_kernel: &kept_kernel,
    };
    cloison_config::load_text(path, text, board, &shipped)
}

/// Reads and checks a board file: a shipped one by its name, another one by its path, which ends in
/// `.toml`.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn board(name: &str) -> Result<BoardFile, Errors> {
    let shipped = || directory().join("boards").join(format!("{name}.toml"));
    let path = if name.ends_with(".toml") {
        PathBuf::from(name)
    } else {
        shipped()
    };
    BoardFile::load(&path, &directory())
        .map_err(|problems| Errors::new(&path.display().to_string(), problems))
}

/// Returns QEMU's options to emulate a board.
///
/// # Errors
///
/// Returns the errors of the board file, or that it has no table `[qemu]`.
pub fn emulation(name: &str) -> miette::Result<Emulation> {
    board(name)?.emulation.ok_or_else(|| {
        NotEmulated {
            board: name.to_owned(),
        }
        .into()
    })
}

/// Returns the event table of a CPU: by its name in any of the folders of `configs/events`, by an
/// Arm CPU's MIDR_EL1 (`0x410fd034`), or by a RISC-V CPU's `marchid` and `mimpid` (`3:0`).
///
/// # Errors
///
/// Returns the errors of the table or of the map file, or the names of all CPUs that have a table.
pub fn event_table(cpu: &str) -> miette::Result<EventTable> {
    let tables = event_tables();
    let name = identified(cpu)?.unwrap_or_else(|| cpu.to_owned());
    let Some(folder) = tables.iter().find(|folder| folder.ends_with(&name)) else {
        let names = tables
            .iter()
            .filter_map(|folder| folder.file_name()?.to_str());
        return Err(miette!(
            help = suggest(cpu, "CPUs", names),
            "no event table for the {cpu}"
        ));
    };
    let (table, problems) = events::load(folder);
    let Some(table) = table else {
        return Err(Errors::new(&folder.display().to_string(), problems).into());
    };
    for warning in first(problems) {
        eprintln!("{:?}", miette::Report::new(warning));
    }
    Ok(table)
}

/// Returns the name of the CPU that `cpu` identifies by its registers, if the maps have it.
fn identified(cpu: &str) -> Result<Option<String>, Errors> {
    let number = |text: &str| {
        text.strip_prefix("0x")
            .map_or_else(|| text.parse().ok(), |it| u64::from_str_radix(it, 16).ok())
    };
    let (architecture, id) = match cpu.split_once(':') {
        Some((marchid, mimpid)) => (
            "riscv",
            number(marchid)
                .zip(number(mimpid))
                .map(|(a, i)| CpuId::riscv(a, i)),
        ),
        None => (
            "arm64",
            number(cpu)
                .and_then(|midr| u32::try_from(midr).ok())
                .map(CpuId::arm),
        ),
    };
    let Some(id) = id else { return Ok(None) };
    let path = directory()
        .join("events")
        .join(architecture)
        .join("mapfile.csv");
    let (map, problems) = CpuMap::load(&path);
    if problems.is_empty() {
        Ok(map.folder(id).map(str::to_owned))
    } else {
        Err(Errors::new(&path.display().to_string(), problems))
    }
}

/// Returns the folders of all event tables.
pub fn event_tables() -> Vec<PathBuf> {
    let events = directory().join("events");
    let of = |architecture: String| {
        let folder = events.join(architecture);
        events::folders(&folder)
            .into_iter()
            .map(move |cpu| folder.join(cpu))
    };
    events::subfolders(&events)
        .into_iter()
        .flat_map(of)
        .collect()
}

/// Returns the names of the shipped boards, sorted.
pub fn boards() -> Vec<String> {
    cloison_config::files::available(&directory().join("boards"))
}

/// Returns the names of the shipped boards that QEMU emulates, sorted.
///
/// # Errors
///
/// Returns the errors of the first board file that has any: a board that cannot be read must not go
/// missing in silence.
pub fn emulated_boards() -> Result<Vec<String>, Errors> {
    let boards = boards()
        .iter()
        .map(|name| board(name))
        .collect::<Result<Vec<_>, _>>()?;
    let emulated = boards.into_iter().filter_map(|file| file.emulation);
    Ok(emulated.map(|emulation| emulation.board).collect())
}

/// Returns a directory below the output directory's `kind` for a run of a configuration. No other
/// command uses it as long as the claim lasts, and no other configuration at all.
///
/// # Errors
///
/// Returns an error if the directory cannot be written to.
pub fn run_directory(kind: &str, name: &str, config: &Path) -> miette::Result<Claim> {
    let config = installation::find(config);
    let owner = config.canonicalize().unwrap_or(config);
    Claim::free(
        &installation::output_dir().join(kind),
        name,
        &owner.display().to_string(),
    )
}

/// Returns the names of a board's PMU events, or none if its description cannot be read: a log can
/// be decoded without them.
pub fn event_names(board: &str) -> EventNames {
    self::board(board).map_or_else(
        |_| EventNames::default(),
        |file| EventNames::of(&file.events),
    )
}
