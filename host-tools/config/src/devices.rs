//! The devices that a board file names, and whether one that is passed through accesses memory.
//!
//! Nothing translates or limits what a device reads and writes by itself: Cloison uses no SMMU. Its
//! addresses are physical, those of its guest are not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Table};
use crate::firmware::page_address;
use cloison_formats::addr::{PAGE_SIZE, PhysRange};

/// Whether a device accesses memory by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dma {
    /// It has registers and interrupts alone.
    None,
    /// It reads or writes memory, or makes something else do it.
    Master,
}

/// A device of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardDevice {
    /// Its name in messages.
    pub name: String,
    /// The pages of its registers.
    pub range: PhysRange,
    /// Whether it accesses memory.
    pub dma: Dma,
}

/// What a region says of its device's accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It makes none.
    None,
    /// Its driver is trusted with all of memory.
    Trusted,
}

const CLAIMS: [(&str, Claimed); 2] = [("none", Claimed::None), ("trusted", Claimed::Trusted)];

/// Reads the `[[device]]` tables of a board file.
pub(crate) fn read(root: &Table<'_>) -> Vec<BoardDevice> {
    root.tables("device")
        .into_iter()
        .filter_map(read_one)
        .collect()
}

fn read_one(table: Table<'_>) -> Option<BoardDevice> {
    let name = table
        .required("name", "say what it is: name = \"Ethernet GEM3\"")
        .and_then(|field| field.string("one line of text"));
    let start = table
        .required("start", "start = 0xff0e_0000")
        .and_then(|field| page_address(&field));
    let size = table
        .required("size", "size = \"4K\"")
        .and_then(|field| Some(u64::from(field.pages()?) * PAGE_SIZE));
    let dma = if table.flag("dma") {
        Dma::Master
    } else {
        Dma::None
    };
    table.finish();
    Some(BoardDevice {
        name: name?.to_owned(),
        range: PhysRange {
            start: start?,
            len: size?,
        },
        dma,
    })
}

/// Reads `dma` of a region. Memory has none.
pub(crate) fn read_claim<'a>(table: &Table<'a>) -> Option<(Claimed, Field<'a>)> {
    let field = table.optional("dma")?;
    let claimed = field.one_of("claim about DMA", &CLAIMS)?;
    if table.optional("device").is_none() {
        field.push(
            field
                .error("the region is no device")
                .label("for devices alone")
                .help("leave it out"),
        );
        return None;
    }
    Some((claimed, field))
}

/// Checks what a passed-through device may do to memory: one that accesses it needs a driver that
/// is trusted, and one that the board file does not name needs the user's word.
pub(crate) fn check(
    field: &Field<'_>,
    claim: Option<(Claimed, Field<'_>)>,
    devices: &[BoardDevice],
    range: PhysRange,
) {
    let mut covered = devices
        .iter()
        .filter(|device| device.range.overlaps(&range));
    let master = covered.clone().find(|device| device.dma == Dma::Master);
    match (master, claim) {
        (Some(device), None) => field.push(
            field
                .error(format!(
                    "a device that accesses memory by itself (DMA), which nothing limits or \
                     translates: {}",
                    device.name
                ))
                .label("a DMA master")
                .help(
                    "with the guest's addresses it overwrites other VMs or the hypervisor: the \
                     guest's pages are elsewhere in physical memory. If the driver is trusted and \
                     uses physical addresses, write dma = \"trusted\"",
                ),
        ),
        (Some(device), Some((Claimed::None, said))) => said.push(
            said.error(format!(
                "it accesses memory by itself (DMA): {}",
                device.name
            ))
            .label("the board file says that it does")
            .help("write dma = \"trusted\" if its driver is trusted with all of memory"),
        ),
        (None, None) if covered.next().is_none() => {
            let page = range.start;
            field.push(
                field
                    .warning(format!(
                        "the board file does not say whether the device at {page} accesses memory \
                         by itself (DMA)"
                    ))
                    .label("unknown device")
                    .help(
                        "write dma = \"none\" if it does not; dma = \"trusted\" if it does, and its \
                         driver is trusted with all of memory",
                    ),
            );
        }
        _ => {}
    }
}
