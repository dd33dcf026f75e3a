//! The configuration language: one TOML file per system, checked.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `node` | walks a TOML document with the place of every key and value |
//! | [`quantity`] | sizes, times, ranges and budgets as users write them |
//! | [`board`], [`events`] | the files below `configs/boards` and `configs/events` |
//! | `system`, `vm`, `campaign`, `profile` | the configuration itself, its VMs, their campaigns and page profiles |
//! | `vm_image`, `linux` | what a VM runs |
//! | [`memory`] | pages that colors have, pages that pools ask for |
//! | [`problem`] | errors and warnings: file, line, column, field, what is wrong, how to mend it |
//!
//! All errors of a file are found in one go. `docs/configuration.md` is the reference of the language.

pub mod board;
mod campaign;
pub mod events;
mod firmware;
mod linux;
pub mod memory;
pub(crate) mod node;
pub mod problem;
mod profile;
pub mod quantity;
mod region;
mod system;
mod vm;
mod vm_image;

use crate::workspace;
pub use board::BoardFile;
use cloison_formats::image::System;
pub use problem::{Errors, Problem};
use problem::{SourceFile, count, display_path};
use std::path::{Path, PathBuf};

/// The board of a configuration that names none.
pub const DEFAULT_BOARD: &str = "virt";

/// The workloads that come with Cloison, and what each is for.
pub const WORKLOADS: &[(&str, &str)] = &[
    ("bench", "measures the hypervisor's own paths"),
    ("c2is", "runs a function over 65 pages of text, again and again"),
    ("cacheability-check", "writes and checks its pages while they go in and out of the caches"),
    ("disparity", "finds depth in two images; args: size 1 to 3, runs, seed"),
    ("echo", "writes back what it reads from its UART"),
    ("heartbeat", "counts timer interrupts and checksums its memory"),
    ("hostile", "tries everything that it must not do"),
    ("interf", "stores over a buffer; args: bytes, iterations (0: forever), ms to sleep first"),
    ("latency", "follows a chain of pointers through a buffer"),
    ("matmul", "multiplies matrices; args: size 1 to 3, runs, seed"),
    ("matrix-copy", "copies a matrix"),
    ("migrate-check", "writes and checks its pages while they migrate"),
    ("pmu-check", "counts with its own PMU, and looks for counters that it should not have"),
    ("quota-check", "watches its own quota"),
    ("restart", "resets itself and checks that it starts anew"),
    ("rtc", "drives a passed-through clock by its interrupts, or tries to reach one"),
    ("segmentation", "divides an image into regions; args: size 1 to 3, runs, seed"),
    ("smp", "brings up its other vCPUs"),
    ("staircase", "touches 100 pages, each one more often than the one before"),
];

/// Where a VM's image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A workload that comes with Cloison.
    Workload(String),
    /// An ELF file, or a raw image whose load address and entry are in the VM's [`cloison_formats::image::Image`].
    File(PathBuf),
    /// A Linux kernel.
    Linux(crate::linux::Linux),
}

/// A configuration in which no error was found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Where it is.
    pub path: PathBuf,
    /// Its text.
    pub source: String,
    /// The system. What only the builder knows is still zero: the offset and length of each image, and its addresses
    /// where the image says them itself.
    pub system: System,
    /// Where each VM's image comes from.
    pub images: Vec<ImageSource>,
    /// The board.
    pub board: BoardFile,
    /// What is probably not meant.
    pub warnings: Vec<Problem>,
}

/// Reads and checks a configuration and the files that it names, for the board that it names or for another one.
pub fn load(path: &Path, board: Option<&str>) -> Result<Checked, Errors> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let problem = Problem::error(&file, "file", 0..0, format!("cannot read {}: {error}", file.name()))
            .help("name a configuration, such as configs/demo.toml");
        Errors::new(file.name(), vec![problem])
    })?;
    load_text(path, text, board)
}

/// As [`load`], for a text that is in the file `path`, or will be.
pub fn load_text(path: &Path, text: String, board: Option<&str>) -> Result<Checked, Errors> {
    let file = SourceFile::new(path, text);
    let name = file.name().to_owned();
    system::load(path, file, board).map_err(|problems| Errors::new(&name, problems))
}

/// Where board files are looked for: beside the configuration, then in the checkout.
fn board_dirs(base: &Path) -> [PathBuf; 2] {
    [base.join("boards"), workspace::root().join("configs/boards")]
}

/// Where the event tables are.
fn events_dir() -> PathBuf {
    workspace::root().join("configs/events")
}

/// `cargo xtask check`: says of each file that it is fine, or everything that is wrong with it.
pub fn check_command(files: &[PathBuf], board: Option<&str>) -> miette::Result<()> {
    let mut bad = 0;
    for path in files {
        match load(path, board) {
            Ok(checked) => {
                println!("{}: ok ({})", display_path(path).display(), checked.summary());
                for warning in checked.warnings {
                    eprintln!("{:?}", miette::Report::new(warning));
                }
            }
            Err(errors) => {
                bad += 1;
                eprintln!("{:?}", miette::Report::new(errors));
            }
        }
    }
    match bad {
        0 => Ok(()),
        bad => Err(miette::miette!("{bad} of {} did not pass", count(files.len(), "configuration"))),
    }
}

impl Checked {
    /// One line on what the configuration makes: board, VMs, cores, colors, memory.
    pub fn summary(&self) -> String {
        let system = &self.system;
        let cores: usize = system.vms.iter().map(|vm| vm.cores.len()).sum();
        let colors = system.pools.iter().fold(system.hypervisor_colors, |all, pool| all.or(pool.colors)).len();
        let pages: u64 = memory::demand(system).iter().map(memory::Demand::pages).sum();
        let mut line = format!(
            "{}: {} on {}, {colors} of {} colors, {} in pools",
            system.board.name,
            count(system.vms.len(), "VM"),
            count(cores, "core"),
            self.board.colors,
            count(pages as usize, "page"),
        );
        if !self.warnings.is_empty() {
            line.push_str(&format!("; {}", count(self.warnings.len(), "warning")));
        }
        line
    }
}
