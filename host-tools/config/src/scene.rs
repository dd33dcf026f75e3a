//! What the parts of a configuration are checked against, and what several of them have in common.

use crate::board::BoardFile;
use crate::guest_linux::Shown;
use crate::node::Table;
use crate::shipped::Shipped;
use cloison_formats::image::{Pool, Region};
use std::ops::Range;
use std::path::Path;

/// The longest name that fits the console's prefix.
const LONGEST_NAME: usize = 16;

/// What all VMs are checked against.
pub(crate) struct Scene<'a> {
    pub board: Option<&'a BoardFile>,
    pub pools: &'a [PoolSpec],
    /// The directory that paths in the file are relative to.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
}

/// A pool with the places that later checks point at.
pub(crate) struct PoolSpec {
    pub pool: Pool,
    pub path: String,
    pub name_span: Range<usize>,
    pub colors_span: Range<usize>,
    pub limit_span: Range<usize>,
}

/// A pool that a VM names, and the field that does.
pub(crate) struct PoolUse {
    pub pool: u8,
    /// Path of the field from the VM.
    pub field: String,
    pub span: Range<usize>,
}

/// What an image is checked against.
pub(crate) struct ImageScene<'a> {
    /// The directory that paths in the file are relative to.
    pub base: &'a Path,
    pub shipped: &'a Shipped<'a>,
    /// The VM's regions.
    pub regions: &'a [Region],
    /// What each of them is to a Linux kernel.
    pub shown: &'a [Shown],
    /// Whether those are all, without a mistake.
    pub complete: bool,
    /// The CPU's name.
    pub cpu: &'a str,
    /// The PMU's interrupt, where the board wires it.
    pub pmu_irq: Option<u32>,
}

/// A name that is fit for messages, file names and the console: returned even where an error was noted.
pub(crate) fn name<'a>(table: &mut Table<'a>, what: &str) -> Option<(&'a str, Range<usize>)> {
    let field = table.required("name", &format!("give the {what} a name: name = \"...\""))?;
    let name = field.string("a name")?;
    let odd = name.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-' || *c == '_'));
    let problem = if name.is_empty() {
        Some((format!("the {what}'s name is empty"), "empty".to_owned()))
    } else if name.len() > LONGEST_NAME {
        let message = format!("`{name}` has {} characters, {} too many", name.len(), name.len() - LONGEST_NAME);
        Some((message, "too long".to_owned()))
    } else if let Some(odd) = odd {
        Some((format!("`{name}` has the character `{odd}`"), "odd character".to_owned()))
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Some((format!("`{name}` does not start with a letter"), "first character".to_owned()))
    } else {
        None
    };
    if let Some((message, label)) = problem {
        field.push(
            field.error(message).label(label).help(format!(
                "names have 1 to {LONGEST_NAME} lower-case letters, digits, `-` and `_`, a letter first"
            )),
        );
    }
    table.rename(name);
    Some((name, field.span()))
}

/// An I/O error without the operating system's number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
