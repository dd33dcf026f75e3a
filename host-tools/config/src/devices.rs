//! The devices that a board file names, and whether one that is passed through accesses memory.
//!
//! A device with `streams` is behind the board's SMMU, which gives it the guest's addresses. Nothing
//! translates or limits what any other reads and writes by itself: its addresses are physical; those
//! of its guest are the same only in memory for DMA.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Presence, Table};
use crate::firmware::{self, page_address, read_writes};
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::image::{FirmwareAccess, Stop, Streams};

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
    /// Its streams, if the board's SMMU guards it.
    pub streams: Streams,
    /// The writes to its first page that end its accesses, if the board file knows them.
    pub stop: Option<Vec<(u16, u32)>>,
    /// The numbers by which the firmware knows it and what it has.
    pub firmware: FirmwareAccess,
}

/// What a region says of its device's accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It makes none.
    None,
    /// It makes some, and its driver is trusted to name no other memory than the VM's own for DMA.
    Trusted,
}

/// Whether a VM has memory for DMA: at the same addresses for its guest and for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DmaMemory {
    /// It has none.
    None,
    /// It has some.
    There,
}

impl DmaMemory {
    /// Returns what a VM with these `[[vm.region]]` has.
    pub fn of(regions: &[Table<'_>]) -> Self {
        let is_memory = |region: &Table<'_>| {
            let said = region
                .optional("dma")
                .is_some_and(|field| !field.is_string());
            said && region.optional("device").is_none()
        };
        if regions.iter().any(is_memory) {
            Self::There
        } else {
            Self::None
        }
    }
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
    let stop = read_stop(&table).optional();
    let streams = table.value("streams", read_streams).or(Streams::default());
    let firmware = table.optional("firmware").map_or_else(
        || Some(FirmwareAccess::default()),
        |field| firmware::read_numbers(&field),
    );
    table.finish();
    Some(BoardDevice {
        name: name?.to_owned(),
        range: PhysRange {
            start: start?,
            len: size?,
        },
        dma,
        streams: streams?,
        stop: stop?,
        firmware: firmware?,
    })
}

/// Reads a set of streams.
pub(crate) fn read_streams(field: &Field<'_>) -> Option<Streams> {
    let set = field.number_set("stream")?;
    let most = u64::from(Streams::MOST) - 1;
    if let Some((number, at)) = set.iter().find(|(number, _)| *number > most) {
        let error = field.error(format!("stream {number} is too high"));
        let help = format!("the hypervisor's table has the streams 0 to {most}");
        field.push(error.at(at.clone()).label("beyond the table").help(help));
        return None;
    }
    Some(Streams(
        set.iter().fold(0, |all, (number, _)| all | 1 << number),
    ))
}

/// What the hypervisor does about a passed-through device's accesses to memory.
#[derive(Default)]
pub(crate) struct Limits {
    /// Writes that end them.
    pub stops: Vec<Stop>,
    /// The streams by which the SMMU knows them.
    pub streams: Streams,
}

/// Reads the writes that end a device's accesses to memory.
pub(crate) fn read_stop<'a>(table: &Table<'a>) -> Presence<'a, Vec<(u16, u32)>> {
    table.value("stop", read_writes)
}

/// What a region says of its device.
pub(crate) struct Said<'a> {
    /// Its accesses to memory.
    pub claim: Option<(Claimed, Field<'a>)>,
    /// What ends them.
    pub stop: Presence<'a, Vec<(u16, u32)>>,
    /// What the VM has for them.
    pub memory: DmaMemory,
}

/// Reads `dma` of a device's region.
pub(crate) fn read_claim<'a>(table: &Table<'a>) -> Option<(Claimed, Field<'a>)> {
    let field = table.optional("dma")?;
    let claimed = field.one_of("claim about DMA", &CLAIMS)?;
    Some((claimed, field))
}

/// Checks what a passed-through device may do to memory: one that accesses it needs memory for DMA
/// in its VM, and an end with the VM's life, unless the SMMU guards it; one that the board file does
/// not name needs the user's word. Returns what limits it.
pub(crate) fn check(
    field: &Field<'_>,
    said: Said<'_>,
    devices: &[BoardDevice],
    range: PhysRange,
) -> Limits {
    let covered = devices
        .iter()
        .filter(|device| device.range.overlaps(&range));
    let masters = covered.clone().filter(|device| device.dma == Dma::Master);
    let masters: Vec<&BoardDevice> = masters.collect();
    let name = masters.first().map(|device| &device.name);
    match (name, said.claim) {
        (Some(name), Some((Claimed::None, claim))) => {
            let message = format!("it accesses memory by itself (DMA): {name}");
            let error = claim.error(message);
            claim.push(
                error
                    .label("the board file says that it does")
                    .help("write dma = \"trusted\", or leave it out"),
            );
            return Limits::default();
        }
        (Some(_), _) | (None, Some((Claimed::Trusted, _))) => {}
        (None, None) if covered.count() == 0 => {
            warn_of_unknown(field, range.start);
            return Limits::default();
        }
        (None, _) => return Limits::default(),
    }
    let streams = masters.iter().fold(0, |all, device| all | device.streams.0);
    if !masters.is_empty() && masters.iter().all(|device| !device.streams.is_empty()) {
        let stops = match &said.stop {
            Presence::Given(stop) => Some(stops(range.start, &stop.value)),
            _ => stops_of(&masters, range),
        };
        return Limits {
            stops: stops.unwrap_or_default(),
            streams: Streams(streams),
        };
    }
    let what = name.map_or_else(String::new, |name| format!(": {name}"));
    if said.memory == DmaMemory::None {
        let message =
            format!("the VM has no memory for a device that accesses it by itself (DMA){what}");
        field.push(field.error(message).label("a DMA master").help(
            "nothing translates its addresses: with those of the guest it overwrites other VMs or \
             the hypervisor. Give the VM memory at the same addresses for both: [[vm.region]] with \
             dma = true",
        ));
        return Limits::default();
    }
    let known = match said.stop {
        // Said already.
        Presence::Wrong => return Limits::default(),
        Presence::Given(stop) => Some(stops(range.start, &stop.value)),
        Presence::Absent => stops_of(&masters, range),
    };
    if known.is_none() {
        let message = format!(
            "nothing ends what the device does to memory when its VM ends or restarts{what}"
        );
        field.push(field.error(message).label("would continue").help(
            "the next life overwrites the descriptors that it follows. Say which registers of its \
             first page to write: stop = [[0x0, 0]] (offset and value); stop = [] if it ends by \
             itself",
        ));
    }
    Limits {
        stops: known.unwrap_or_default(),
        ..Limits::default()
    }
}

/// Returns the writes at these offsets of a page.
fn stops(page: PhysAddr, writes: &[(u16, u32)]) -> Vec<Stop> {
    let stop = |&(offset, value): &(u16, u32)| Stop {
        at: PhysAddr(page.0 + u64::from(offset)),
        value,
    };
    writes.iter().map(stop).collect()
}

/// Returns what ends all of these devices by the board file, if it says so of at least one, of each,
/// and the registers are in the range that the VM has.
fn stops_of(masters: &[&BoardDevice], range: PhysRange) -> Option<Vec<Stop>> {
    let of = |device: &&BoardDevice| Some(stops(device.range.start, device.stop.as_ref()?));
    let all = masters.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    let is_inside = all.iter().all(|stop| range.contains(stop.at));
    (!masters.is_empty() && is_inside).then_some(all)
}

/// Warns of a device that the board file does not name.
fn warn_of_unknown(field: &Field<'_>, page: PhysAddr) {
    let message = format!(
        "the board file does not say whether the device at {page} accesses memory by itself (DMA)"
    );
    field.push(field.warning(message).label("unknown device").help(
        "write dma = \"none\" if it does not, or dma = \"trusted\" if it does and its driver names \
         no other memory than the VM's own for DMA",
    ));
}
