//! Reads cells of Jailhouse: the root cell and others, with all generations of colors.
//!
//! | generation | colors are |
//! | --- | --- |
//! | first | `col_mem`: regions with `.memory` and `.colors` |
//! | second | `.colors` of a region with `JAILHOUSE_MEM_COLORED` |
//! | mainline's patches | ranges in `.cache_regions`, for the cell's regions with that flag |
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::c::{self, Field, List, Node, Objects, Settings};
use crate::draft::{
    Backing, Colors, Cores, Draft, DraftImage, DraftRegion, DraftVm, Interrupt, Sharing,
};
use crate::fields::JAILHOUSE;
use crate::source::{Failure, Place, Sources};
use std::path::PathBuf;

/// What cells expect of Jailhouse's headers, in our words.
const HEADER: &str = "
#define __attribute__(x)
";
/// Flags are read by their names, which all forks share, and not by their values, which differ.
const OPAQUE: [&str; 3] = [
    "JAILHOUSE_MEM_*",
    "JAILHOUSE_SHMEM_NET_REGIONS",
    "ARRAY_SIZE",
];
/// How many regions `JAILHOUSE_SHMEM_NET_REGIONS` stands for.
const NET_REGIONS: usize = 4;
/// Smaller memory of a root cell is a part of a device, such as a remote processor's.
const SMALLEST_MEMORY: u64 = 2 << 20;

/// Reads the cells of one system.
///
/// # Errors
///
/// Returns the first mistake that leaves no configuration.
pub fn read(sources: &mut Sources, files: &[u16], settings: &Settings) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    for file in files {
        let text = c::run(sources, *file, HEADER, &OPAQUE, settings)?;
        let sources = &*sources;
        let objects = Objects::find(sources, &text)?;
        let config = objects
            .all()
            .map(|(_, list)| list)
            .find(|list| list.field("header").is_some() || list.field("cell").is_some());
        let Some(config) = config else {
            let place = text.tokens.first().map(|token| token.place);
            let missing: Vec<&str> = text.missing.iter().map(|(name, _)| name.as_str()).collect();
            let help = format!(
                "a cell's object has .header or .cell; headers that were not found: {}",
                missing.join(", ")
            );
            let place = place.unwrap_or(Place {
                file: *file,
                ..Place::default()
            });
            return Err(sources
                .error(place, "config", "no object is a cell")
                .help(help)
                .into());
        };
        let stem = sources.path(*file).file_stem().unwrap_or_default();
        let mut reader = Reader {
            objects: &objects,
            sources,
            draft: &mut draft,
            colors: None,
        };
        let is_root = reader.cell(config)?;
        if is_root || draft.name.is_empty() {
            draft.name = stem.to_string_lossy().into_owned();
        }
    }
    // The root cell first: it has what the others leave.
    draft
        .vms
        .sort_by_key(|vm| !matches!(vm.cores, Cores::Rest(_)));
    Ok(draft)
}

struct Reader<'a> {
    objects: &'a Objects<'a>,
    sources: &'a Sources,
    draft: &'a mut Draft,
    /// The colors of the cell's colored regions that have none themselves.
    colors: Option<Colors>,
}

/// A memory region as the cell has it.
struct Memory {
    place: Place,
    phys: u64,
    virt: u64,
    size: u64,
    flags: Vec<String>,
    colors: Option<Colors>,
}

impl Memory {
    fn has(&self, flag: &str) -> bool {
        self.flags
            .iter()
            .any(|name| name.strip_prefix("JAILHOUSE_MEM_") == Some(flag))
    }
}

impl Reader<'_> {
    fn rest(&mut self, list: &List, prefix: &str) {
        for (name, place) in list.names() {
            self.draft.note_field(
                &JAILHOUSE,
                &format!("{prefix}.{name}"),
                place,
                &format!(".{name}"),
            );
        }
    }

    fn number(&self, list: &List, name: &str) -> Result<Option<u64>, Failure> {
        list.field(name)
            .map(|field| self.objects.number(&field))
            .transpose()
    }

    fn array(&self, list: &List, name: &str) -> Result<Vec<Field>, Failure> {
        let Some(field) = list.field(name) else {
            return Ok(Vec::new());
        };
        match self.objects.list(&field) {
            Some(array) => array.entries(self.sources),
            None => Ok(Vec::new()),
        }
    }

    fn sub(&self, list: &List, name: &str) -> Option<List> {
        let field = list.field(name)?;
        self.objects.list(&field).cloned()
    }

    /// Reads a cell; returns whether it is the root cell.
    fn cell(&mut self, config: &List) -> Result<bool, Failure> {
        self.rest(config, "config");
        let (cell, is_root) = match self.sub(config, "header") {
            Some(header) => (self.system(&header)?, true),
            None => (
                self.sub(config, "cell").unwrap_or_else(|| config.clone()),
                false,
            ),
        };
        self.rest(&cell, "cell");
        if let Some(field) = cell.field("flags")
            && let Node::Expression(tokens) = &field.node
            && tokens
                .iter()
                .any(|token| token.name() == Some("JAILHOUSE_CELL_AARCH32"))
        {
            self.note_row(field.place, "JAILHOUSE_CELL_AARCH32", "flag.AARCH32");
        }
        let name = cell
            .field("name")
            .and_then(|field| self.objects.text_of(&field));
        let name = name.unwrap_or_else(|| "cell".to_owned());
        self.colors = self.cache_regions(config)?;
        let memories = self.memories(config)?;
        let mask = self.cores(config)?;
        let (interrupts, distributors) = self.interrupts(config, is_root)?;
        if self.draft.distributors.is_empty() {
            self.draft.distributors = distributors;
        }
        let load = memories.iter().find(|memory| memory.has("LOADABLE"));
        let load = load.map_or(0, |memory| memory.virt);
        let entry = self.number(&cell, "cpu_reset_address")?.unwrap_or(load);
        let regions = self.regions(&memories, is_root);
        let mut remarks = Vec::new();
        let image = if is_root {
            DraftImage::Debian
        } else if name.contains("linux") {
            remarks.push("`jailhouse cell linux` names the kernel; the cell does not".to_owned());
            DraftImage::Kernel {
                path: PathBuf::from("Image"),
                initrd: None,
                cmdline: String::new(),
            }
        } else {
            remarks.push("`jailhouse cell load` names the image; the cell does not".to_owned());
            DraftImage::File {
                path: PathBuf::from(format!("{name}.bin")),
                load,
                entry,
                tree: None,
            }
        };
        if is_root {
            remarks.push(format!("the root cell, \"{name}\""));
        }
        self.draft.vms.push(DraftVm {
            name: if is_root { "root".to_owned() } else { name },
            place: cell.place,
            cores: if is_root {
                Cores::Rest(mask)
            } else {
                Cores::These(mask)
            },
            regions,
            interrupts,
            // The machine's, which the part about the system has.
            distributor: None,
            image,
            remarks,
        });
        Ok(is_root)
    }

    /// Reads the part about the whole system; returns the root cell.
    fn system(&mut self, header: &List) -> Result<List, Failure> {
        self.rest(header, "system");
        if let Some(platform) = self.sub(header, "platform_info") {
            self.rest(&platform, "platform");
            if let Some(arm) = self.sub(&platform, "arm") {
                let address = self.number(&arm, "gicd_base")?;
                self.draft.distributors = address.into_iter().collect();
            }
        }
        self.sub(header, "root_cell").ok_or_else(|| {
            self.sources
                .error(header.place, "root_cell", "the system has no .root_cell")
                .help("its name and the number of its regions are there")
                .into()
        })
    }

    fn cores(&self, config: &List) -> Result<u64, Failure> {
        let mut mask = 0_u64;
        for (number, field) in self.array(config, "cpus")?.iter().enumerate() {
            // Either words of a mask, or, in newer trees, a structure for each CPU.
            if let Some(list) = self.objects.list(field)
                && let Some(id) = self.number(list, "phys_id")?
            {
                let core = if id < 0x100 { id } else { id >> 8 & 0xff };
                mask |= 1_u64
                    .checked_shl(u32::try_from(core).unwrap_or(64))
                    .unwrap_or(0);
            } else if number == 0 {
                mask = self.objects.number(field)?;
            }
        }
        Ok(mask)
    }

    /// Returns the colors of `.cache_regions`: ranges of bits.
    fn cache_regions(&self, config: &List) -> Result<Option<Colors>, Failure> {
        let mut found: Option<Colors> = None;
        for field in self.array(config, "cache_regions")? {
            let Some(list) = self.objects.list(&field) else {
                continue;
            };
            let start = self.number(list, "start")?.unwrap_or(0);
            let size = self.number(list, "size")?.unwrap_or(0);
            if start >= 64 || size > 64 - start {
                return Err(self
                    .sources
                    .error(
                        field.place,
                        "cache_regions",
                        format!("colors {start} to {start} + {size}"),
                    )
                    .help("colors are 0 to 63")
                    .into());
            }
            let bits = if size == 64 {
                u64::MAX
            } else {
                (1 << size) - 1
            };
            let mask = found.map_or(0, |colors| colors.mask) | bits << start;
            let place = found.map_or(field.place, |colors| colors.place);
            found = (mask != 0).then_some(Colors { mask, place });
        }
        Ok(found)
    }

    /// Reads all memory regions but those of virtual network devices.
    fn memories(&mut self, config: &List) -> Result<Vec<Memory>, Failure> {
        let shared = self.shared_memory(config)?;
        let mut memories = Vec::new();
        let mut index = 0;
        for field in self.array(config, "mem_regions")? {
            if let Some(call) = Objects::call_of(&field) {
                let subject = call.name.clone();
                self.note_row(field.place, &subject, "config.pci_devices");
                index += NET_REGIONS;
                continue;
            }
            let is_shared = shared.iter().any(|range| range.contains(&index));
            index += 1;
            if let Some(list) = self.objects.list(&field).cloned() {
                let memory = self.memory(&list)?;
                let is_own = ["LOADABLE", "EXECUTE", "IO", "COMM_REGION"];
                if is_shared && !is_own.iter().any(|flag| memory.has(flag)) {
                    let subject = "memory of an ivshmem device";
                    self.note_row(list.place, subject, "config.pci_devices");
                    continue;
                }
                memories.push(memory);
            }
        }
        for field in self.array(config, "col_mem")? {
            let Some(list) = self.objects.list(&field).cloned() else {
                continue;
            };
            let colors = self.own_colors(&list)?;
            if let Some(inner) = self.sub(&list, "memory") {
                let mut memory = self.memory(&inner)?;
                memory.colors = colors;
                memory.flags.push("JAILHOUSE_MEM_COLORED".to_owned());
                memories.push(memory);
            }
        }
        Ok(memories)
    }

    /// Returns which regions belong to ivshmem devices: a table of states, a part for all, and one
    /// for each peer.
    fn shared_memory(&self, config: &List) -> Result<Vec<std::ops::Range<usize>>, Failure> {
        let mut ranges = Vec::new();
        for field in self.array(config, "pci_devices")? {
            let Some(list) = self.objects.list(&field) else {
                continue;
            };
            let small = |name: &str| -> Result<Option<usize>, Failure> {
                let Some(field) = list.field(name) else {
                    return Ok(None);
                };
                // What a header defines that is not here.
                let number = self.objects.number(&field).unwrap_or(0);
                Ok(usize::try_from(number).ok().filter(|number| *number < 1024))
            };
            if let (Some(start), Some(peers)) =
                (small("shmem_regions_start")?, small("shmem_peers")?)
            {
                ranges.push(start..start + 2 + peers);
            }
        }
        Ok(ranges)
    }

    fn own_colors(&self, list: &List) -> Result<Option<Colors>, Failure> {
        let Some(field) = list.field("colors") else {
            return Ok(None);
        };
        let mask = self.objects.number(&field)?;
        let place = field.place;
        Ok((mask != 0).then_some(Colors { mask, place }))
    }

    fn memory(&mut self, list: &List) -> Result<Memory, Failure> {
        self.rest(list, "memory");
        let mut flags = Vec::new();
        if let Some(Field {
            node: Node::Expression(tokens),
            ..
        }) = list.field("flags")
        {
            flags.extend(
                tokens
                    .iter()
                    .filter_map(|token| token.name().map(str::to_owned)),
            );
        }
        let mut memory = Memory {
            place: list.place,
            phys: self.number(list, "phys_start")?.unwrap_or(0),
            virt: self.number(list, "virt_start")?.unwrap_or(0),
            size: self.number(list, "size")?.unwrap_or(0),
            flags,
            colors: None,
        };
        if memory
            .flags
            .iter()
            .any(|flag| flag.starts_with("JAILHOUSE_MEM_COLORED"))
        {
            memory.colors = self.own_colors(list)?.or(self.colors);
        }
        Ok(memory)
    }

    fn note_row(&mut self, place: Place, subject: &str, row: &str) {
        if let Some(row) = JAILHOUSE.row(row) {
            self.draft.note(place, subject, row.why, row.next);
        }
    }

    fn regions(&mut self, memories: &[Memory], is_root: bool) -> Vec<DraftRegion> {
        let is_apart = |memory: &Memory| memory.has("COLORED_NO_COPY");
        let has_apart = memories.iter().any(is_apart);
        let mut regions = Vec::new();
        for memory in memories {
            let flag = ["COMM_REGION", "ROOTSHARED"]
                .into_iter()
                .find(|flag| memory.has(flag) && !memory.has("IO"));
            if let Some(flag) = flag {
                let subject = format!("JAILHOUSE_MEM_{flag}");
                self.note_row(memory.place, &subject, &format!("flag.{flag}"));
                continue;
            }
            let is_device = memory.has("IO")
                || is_root && memory.size < SMALLEST_MEMORY && memory.phys == memory.virt;
            if is_device && memory.has("ROOTSHARED") {
                self.note_row(
                    memory.place,
                    "JAILHOUSE_MEM_ROOTSHARED",
                    "flag.ROOTSHARED_IO",
                );
            }
            let backing = if is_device {
                Backing::Device(memory.phys)
            } else {
                Backing::Memory {
                    colors: memory.colors,
                    sharing: match (memory.colors, is_apart(memory), has_apart) {
                        (Some(_), true, _) => Sharing::Apart,
                        (Some(_), false, true) => Sharing::Shared,
                        _ => Sharing::AsFound,
                    },
                }
            };
            regions.push(DraftRegion {
                name: None,
                place: memory.place,
                ipa: memory.virt,
                size: memory.size,
                backing,
                execute: is_device || memory.has("EXECUTE"),
            });
        }
        regions
    }

    /// Returns the interrupts of a cell, and the addresses of its interrupt controllers.
    fn interrupts(
        &mut self,
        config: &List,
        is_root: bool,
    ) -> Result<(Vec<Interrupt>, Vec<u64>), Failure> {
        let (mut interrupts, mut addresses) = (Vec::new(), Vec::new());
        for field in self.array(config, "irqchips")? {
            let Some(list) = self.objects.list(&field).cloned() else {
                continue;
            };
            addresses.extend(self.number(&list, "address")?);
            let base = self.number(&list, "pin_base")?.unwrap_or(0);
            for (word, entry) in self.array(&list, "pin_bitmap")?.iter().enumerate() {
                let bits = self.objects.number(entry)?;
                let base = base.saturating_add(32 * word as u64);
                // All of a word are no device's, but what nobody else takes.
                if is_root && bits == u64::from(u32::MAX) {
                    self.note_row(field.place, ".pin_bitmap", "flag.all_interrupts");
                    continue;
                }
                interrupts.extend(crate::cores::bits(bits).map(|bit| Interrupt {
                    number: base.saturating_add(bit),
                    place: entry.place,
                    region: None,
                }));
            }
        }
        Ok((interrupts, addresses))
    }
}
