//! Computes how many pages each color has on a board, and how many a system needs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::guest_linux::{KernelSource, Release};
use crate::problem::count;
use crate::quantity::show_size;
use crate::sources::ImageSource;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::color::{self, Color, ColorSet};
use cloison_formats::image::{Backing, Board, System};
use cloison_logic::placement::set_aside;
use cloison_logic::pool::FrameAllocator;
use std::path::Path;

/// Memory that the pools leave free for the system image at the boot loader's address: hypervisor,
/// guests, device tree. Linux kernels need more.
pub const IMAGE_BYTES: u64 = 16 << 20;
/// Part of that memory that is used for the boot loader's offset, the headers and the
/// configuration.
pub const LOADER_SLACK: u64 = 4 << 20;
/// Maximum size of a Debian kernel and Cloison's RAM disk in the system image, reserved whether or
/// not the kernel has been downloaded.
const DEBIAN_KERNEL_BYTES: u64 = 48 << 20;
/// Maximum size of the programs of a list of Debian packages in the system image, compressed,
/// whether or not they have been downloaded.
const PROGRAMS_BYTES: u64 = 32 << 20;
/// Maximum size of Cloison's own programs in the system image, compressed, whether or not they have
/// been built.
const TOOLS_BYTES: u64 = 8 << 20;

/// Returns the bytes of RAM reserved for a system image with these images.
pub fn image_bytes<'a>(images: impl Iterator<Item = &'a ImageSource>) -> u64 {
    let mut kernels: Vec<(Release, &KernelSource)> = Vec::new();
    let mut lists: Vec<(Release, &[String])> = Vec::new();
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let mut bytes = IMAGE_BYTES;
    for image in images {
        let ImageSource::Linux(linux) = image else {
            continue;
        };
        bytes += linux.initrd.as_deref().map_or(0, length);
        bytes += linux.programs.iter().map(|path| length(path)).sum::<u64>();
        bytes += if linux.tools.is_empty() {
            0
        } else {
            TOOLS_BYTES
        };
        // VMs with the same RAM disk share it, and so do VMs with the same kernel.
        if !linux.packages.is_empty()
            && !lists.contains(&(linux.release, linux.packages.as_slice()))
        {
            lists.push((linux.release, &linux.packages));
            bytes += PROGRAMS_BYTES;
        }
        if !kernels.contains(&(linux.release, &linux.kernel)) {
            kernels.push((linux.release, &linux.kernel));
            bytes += match &linux.kernel {
                KernelSource::Debian(_) => DEBIAN_KERNEL_BYTES,
                KernelSource::File(path) => length(path),
            };
        }
    }
    bytes.next_multiple_of(1 << 20)
}

/// The pages of a board, by color.
#[derive(Clone, Debug)]
pub struct Account {
    ram: u64,
    image: u64,
    reserved: u64,
    contiguous: u64,
    direct: u64,
    colors: u32,
    /// By color; of each memory besides the RAM too.
    pages: Vec<u32>,
    memories: Vec<MemoryAccount>,
}

/// A memory besides the RAM.
#[derive(Clone, Debug)]
struct MemoryAccount {
    name: String,
    size: u64,
    reserved: u64,
}

impl Account {
    /// Computes the pages that a system's board has for pools, without its uncolored memory, and
    /// with a system image of `image` bytes.
    pub fn new(system: &System, colors: u32, image: u64) -> Self {
        let direct: Vec<PhysRange> = system.direct().collect();
        Self::without(&system.board, colors, image, &direct, system.contiguous)
    }

    /// Computes the pages that a board has for pools, with a system image of `image` bytes.
    pub fn of_board(board: &Board, colors: u32, image: u64) -> Self {
        Self::without(board, colors, image, &[], 0)
    }

    fn without(
        board: &Board,
        colors: u32,
        image: u64,
        direct: &[PhysRange],
        contiguous: u64,
    ) -> Self {
        let mut taken = taken(board, image);
        taken.extend(direct);
        taken.extend(set_aside(&board.ram, &taken, contiguous));
        let mut frames = FrameAllocator::new(colors, &board.ram, &taken);
        for memory in &board.memories {
            frames.add(1, &[memory.range], &taken);
        }
        let pages = (0..colors + board.memories.len() as u32)
            .map(|color| frames.total(Color(color as u8)))
            .collect();
        let sum = |ranges: &[PhysRange]| ranges.iter().map(|range| range.len).sum();
        let memories = board.memories.iter().map(|memory| MemoryAccount {
            name: memory.name.clone(),
            size: memory.range.len,
            reserved: reserved_in(board, &[memory.range]),
        });
        Self {
            ram: sum(&board.ram),
            image,
            reserved: reserved_in(board, &board.ram),
            contiguous,
            direct: sum(direct),
            colors,
            pages,
            memories: memories.collect(),
        }
    }

    /// Returns the number of colors.
    pub fn colors(&self) -> u32 {
        self.colors
    }

    /// Returns the number of pages with these colors.
    pub fn pages_of(&self, colors: ColorSet) -> u64 {
        colors
            .iter()
            .filter_map(|color| self.pages.get(usize::from(color.0)))
            .map(|pages| u64::from(*pages))
            .sum()
    }

    /// Returns the number of pages of all colors of the RAM.
    pub fn total(&self) -> u64 {
        self.pages_of(ColorSet::first(self.colors))
    }

    /// Explains how many pages a memory besides the RAM has.
    pub fn memory_arithmetic(&self, name: &str) -> String {
        let of = |(nth, memory): (usize, &MemoryAccount)| {
            let pages = self.pages[self.colors as usize + nth];
            (memory.name == name).then(|| {
                let reserved = if memory.reserved > 0 {
                    format!(
                        " - {} reserved by the board file",
                        show_size(memory.reserved)
                    )
                } else {
                    String::new()
                };
                format!(
                    "{name} {}{reserved} = {pages} pages",
                    show_size(memory.size)
                )
            })
        };
        let mut memories = self.memories.iter().enumerate();
        memories.find_map(of).unwrap_or_default()
    }

    /// Explains how the number of pages with these colors is computed.
    pub fn arithmetic(&self, colors: ColorSet) -> String {
        let mut terms = format!(
            "RAM {} - {} system image",
            show_size(self.ram),
            show_size(self.image)
        );
        for (bytes, what) in [
            (self.reserved, "reserved"),
            (self.contiguous, "contiguous"),
            (self.direct, "for DMA"),
        ] {
            if bytes > 0 {
                terms.push_str(&format!(" - {} {what}", show_size(bytes)));
            }
        }
        format!(
            "{terms} = {} pages; / {} colors x {} = {} pages in {colors}",
            self.total(),
            self.colors(),
            colors.len(),
            self.pages_of(colors)
        )
    }
}

/// Returns what nobody can have of a board's RAM: what it reserves, and the place of a system image
/// of `image` bytes.
fn taken(board: &Board, image: u64) -> Vec<PhysRange> {
    let mut taken = board.reserved.clone();
    if let Some(first) = board.ram.first() {
        taken.push(PhysRange {
            start: first.start,
            len: image.min(first.len),
        });
    }
    taken
}

/// Returns where a system could have memory for DMA of this size.
pub fn room(system: &System, image: u64, bytes: u64) -> Option<PhysRange> {
    let mut taken = taken(&system.board, image);
    taken.extend(system.direct());
    set_aside(&system.board.ram, &taken, bytes)
}

/// Returns whether a board has these addresses as RAM that nobody else can have.
pub fn is_free(board: &Board, image: u64, range: PhysRange) -> bool {
    let mut taken = taken(board, image).into_iter();
    board.ram.iter().any(|bank| bank.covers(&range)) && !taken.any(|taken| taken.overlaps(&range))
}

/// Returns whether an address is in memory that Cloison manages.
pub fn manages(board: &Board, address: PhysAddr) -> bool {
    let mut reserved = board.reserved.iter();
    board.ranges().any(|range| range.contains(address))
        && !reserved.any(|range| range.contains(address))
}

/// Returns the color of a frame, given the number of the cache's colors: in a memory besides the
/// RAM, the one that stands for it.
pub fn color_of(board: &Board, frame: PhysAddr, colors: u32) -> Color {
    let mut memories = board.memories.iter();
    let memory = memories.position(|memory| memory.range.contains(frame));
    memory.map_or(color::color_of(frame, colors), |memory| {
        Color(colors as u8 + memory as u8)
    })
}

/// Returns the bytes of these ranges that the board file reserves.
fn reserved_in(board: &Board, ranges: &[PhysRange]) -> u64 {
    let inside = |reserved: &&PhysRange| ranges.iter().any(|range| range.overlaps(reserved));
    let reserved = board.reserved.iter().filter(inside);
    reserved.map(|range| range.len).sum()
}

/// Pages that regions and migrations need from one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The name and the pages of each region and of each profile.
    pub parts: Vec<(String, u64)>,
}

impl Demand {
    /// Returns the total number of pages.
    pub fn pages(&self) -> u64 {
        self.parts.iter().map(|(_, pages)| pages).sum()
    }

    /// Formats the sum.
    pub fn arithmetic(&self) -> String {
        let sum = count(self.pages() as usize, "page");
        match self.parts.as_slice() {
            [(what, _)] => format!("{what} {sum}"),
            parts => {
                let parts: Vec<String> = parts
                    .iter()
                    .map(|(what, pages)| format!("{what} {pages}"))
                    .collect();
                format!("{} = {sum}", parts.join(" + "))
            }
        }
    }
}

/// Returns the pages that a system needs from each of its pools. A migrated page keeps its home
/// frame, so it counts in both pools.
pub fn demand(system: &System) -> Vec<Demand> {
    let mut demand = vec![Demand::default(); system.pools.len()];
    for vm in &system.vms {
        for region in &vm.regions {
            if let Backing::Pool(pool) = region.backing
                && let Some(demand) = demand.get_mut(usize::from(pool))
            {
                demand.parts.push((
                    format!("{}.{}", vm.name, region.name),
                    u64::from(region.pages),
                ));
            }
        }
        if let Some(profile) = &vm.profile
            && profile.top > 0
            && let Some(demand) = vm
                .target
                .and_then(|target| demand.get_mut(usize::from(target)))
        {
            demand
                .parts
                .push((format!("{}'s top pages", vm.name), u64::from(profile.top)));
        }
    }
    for channel in &system.channels {
        if let Some(demand) = demand.get_mut(usize::from(channel.pool)) {
            let part = format!("channel {}", channel.name);
            demand.parts.push((part, channel.pages.into()));
        }
    }
    demand
}

/// Returns the contiguous memory that a region of this many pages uses: the allocator serves powers
/// of two.
pub fn contiguous_bytes(pages: u32) -> u64 {
    u64::from(pages).next_power_of_two() * PAGE_SIZE
}
