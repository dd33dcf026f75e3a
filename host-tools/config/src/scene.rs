//! The context in which the parts of a configuration are validated, and shared code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::Table;
use crate::guest_linux::{Described, Shown};
use crate::shipped::Shipped;
use cloison_formats::guest_map::GuestMap;
use cloison_formats::ids::Intid;
use cloison_formats::image::{Pool, Region};
use std::ops::Range;
use std::path::Path;

/// Maximum length of a name, which the console's prefix and the calls about VMs rely on.
pub const LONGEST_NAME: usize = cloison_abi::reply::LONGEST_NAME;

/// The context of all VMs.
pub(crate) struct Scene<'a> {
    pub board: Option<&'a BoardFile>,
    pub pools: &'a [PoolSpec],
    /// The directory to which paths in the file are relative.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
}

/// A pool with the positions to which later checks refer.
pub(crate) struct PoolSpec {
    pub pool: Pool,
    pub path: String,
    pub name_span: Range<usize>,
    /// The field that says what it is made of.
    pub made_of: &'static str,
    pub made_span: Range<usize>,
    /// The name of the memory besides the RAM that it is made of.
    pub memory: Option<String>,
    pub limit_span: Range<usize>,
}

/// A VM's reference to a pool, and its field.
#[derive(Clone)]
pub(crate) struct PoolUse {
    pub pool: u8,
    /// Path of the field, starting at the VM.
    pub field: String,
    pub span: Range<usize>,
}

/// The context of an image.
pub(crate) struct ImageScene<'a> {
    /// The directory to which paths in the file are relative.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
    /// Where the VM's emulated devices are.
    pub map: &'a GuestMap,
    /// Regions of the VM.
    pub regions: &'a [Region],
    /// How a Linux kernel sees each of them.
    pub shown: &'a [Shown],
    /// Whether these are all regions, without an error.
    pub complete: bool,
    /// Name of the CPU.
    pub cpu: &'a str,
    /// The interrupt of the VM's PMU, if the board's is private to each core.
    pub pmu_irq: Option<Intid>,
}

impl ImageScene<'_> {
    /// Returns the description of this guest for its device tree.
    pub fn described(&self, cmdline: String) -> Described {
        Described {
            cmdline,
            shown: self.shown.to_vec(),
            cpu: self.cpu.to_owned(),
            pmu_irq: self.pmu_irq,
        }
    }
}

/// Reads a name that is usable in messages, file names and on the console. Returns it even if an
/// error was recorded.
pub(crate) fn name<'a>(table: &mut Table<'a>, what: &str) -> Option<(&'a str, Range<usize>)> {
    let field = table.required("name", &format!("give the {what} a name: name = \"...\""))?;
    let name = field.string("a name")?;
    let odd = name
        .chars()
        .find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-' || *c == '_'));
    let problem = if name.is_empty() {
        Some((format!("the {what}'s name is empty"), "empty".to_owned()))
    } else if name.len() > LONGEST_NAME {
        let message = format!(
            "`{name}` has {} characters, {} too many",
            name.len(),
            name.len() - LONGEST_NAME
        );
        Some((message, "too long".to_owned()))
    } else if let Some(odd) = odd {
        Some((
            format!("`{name}` has the character `{odd}`"),
            "odd character".to_owned(),
        ))
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Some((
            format!("`{name}` does not start with a letter"),
            "first character".to_owned(),
        ))
    } else {
        None
    };
    if let Some((message, label)) = problem {
        field.push(field.error(message).label(label).help(format!(
            "names have 1 to {LONGEST_NAME} lower-case letters, digits, `-` and `_`, a letter \
             first"
        )));
    }
    table.rename(name);
    Some((name, field.span()))
}
