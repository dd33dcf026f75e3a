//! Stage 2: which frame and attributes each page of a VM has (docs/architecture.md, "Memory", "Stage
//! 2", "Migration"; descriptors: Arm ARM DDI 0487, D8.3).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use cloison_formats::addr::{Ipa, PAGE_SHIFT, PAGE_SIZE, PhysAddr};
use cloison_formats::channel::Rights;
use cloison_formats::color::{Color, ColorSet, color_of};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Backing, GicVersion, IPA_BITS, System, Vm};
use cloison_formats::link::Link;
use rustc_hash::FxHashMap as HashMap;

/// Entries of a table.
pub const ENTRIES: u64 = 512;
/// Level of the first table: 39 bits are translated in three levels.
pub const FIRST_LEVEL: u8 = 1;
/// Level of the tables that hold pages.
pub const LAST_LEVEL: u8 = 3;

/// Returns the bytes that an entry of a table at `level` translates.
pub const fn reach(level: u8) -> u64 {
    PAGE_SIZE << (9 * (LAST_LEVEL - level) as u32)
}

/// An entry of a table at the last level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64);

/// The memory type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Normal, inner and outer write-back.
    WriteBack,
    /// Normal, inner and outer non-cacheable.
    NonCacheable,
    /// Device-nGnRE.
    Device,
    /// Any other.
    Other,
}

/// Bits of an address in an entry: 47 to 12.
const ADDRESS: u64 = 0xffff_ffff_f000;

impl Entry {
    /// Returns whether it maps a page: bits 1 and 0.
    pub const fn is_valid(self) -> bool {
        self.0 & 1 == 1
    }
    /// Returns whether it is a page that is being moved: everything but the valid bit.
    pub const fn is_moving(self) -> bool {
        self.0 != 0 && !self.is_valid()
    }
    /// Returns the frame.
    pub const fn frame(self) -> PhysAddr {
        PhysAddr(self.0 & ADDRESS)
    }
    /// Returns the memory type: MemAttr, bits 5 to 2.
    pub const fn memory(self) -> Memory {
        match self.0 >> 2 & 15 {
            0b1111 => Memory::WriteBack,
            0b0101 => Memory::NonCacheable,
            0b0001 => Memory::Device,
            _ => Memory::Other,
        }
    }
}

/// What a page of a VM must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// RAM of a pool.
    Pool(u8),
    /// Contiguous memory: the number of the page in its region.
    Contiguous {
        /// Number of the region.
        region: usize,
        /// Number of the page in the region.
        page: u64,
    },
    /// A device's page.
    Device(PhysAddr),
    /// RAM at the page's own address.
    Direct,
    /// A page of a channel.
    Channel {
        /// Number of the channel.
        channel: usize,
        /// Number of the page in the channel.
        page: u64,
        /// What the VM may do with it.
        rights: Rights,
    },
    /// Nothing.
    Nothing,
}

/// The specification of a system's memory, and what was seen of it.
#[derive(Debug)]
pub struct Memories<'a> {
    /// The configuration, from which everything expected follows.
    system: &'a System,
    /// The number of colors of the board's cache.
    colors: u32,
    /// Who has a frame: the VM and the page.
    owners: HashMap<u64, (usize, u64)>,
    /// The frame that each page had first.
    homes: HashMap<(usize, u64), u64>,
    /// The first frame of each contiguous region.
    bases: HashMap<(usize, usize), u64>,
    /// Number of pages away from home, by VM.
    away: Vec<u32>,
    /// The frame of each page of a channel: of the channel's number and the page's.
    shared: HashMap<(usize, u64), u64>,
    /// The page of a channel that a frame has.
    sharers: HashMap<u64, (usize, u64)>,
}

/// What a page holds, from which its attributes follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// A device's registers.
    Device,
    /// RAM of the VM.
    Ram,
    /// RAM of a channel.
    Channel(Rights),
}

/// A page of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    /// The VM's number.
    pub vm: usize,
    /// The first byte.
    pub ipa: Ipa,
}

impl Page {
    /// Returns how reports name the page.
    fn place(self) -> String {
        format!("VM {} IPA {}", self.vm, self.ipa)
    }
}

/// Returns what a VM has at an IPA.
pub fn expected(system: &System, vm: usize, ipa: Ipa) -> Expected {
    // The guest's CPU interface is the hardware's virtual one; its second page traps.
    if ipa == system.vms[vm].map.gicc && system.board.gic.version() == GicVersion::V2 {
        return Expected::Device(system.board.gic.gicv);
    }
    for (number, region) in system.vms[vm].regions.iter().enumerate() {
        if !region.contains(ipa) {
            continue;
        }
        let page = ipa.page_number() - region.ipa.page_number();
        return match region.backing {
            Backing::Pool(pool) => Expected::Pool(pool),
            Backing::Contiguous => Expected::Contiguous {
                region: number,
                page,
            },
            Backing::Device(start) => Expected::Device(start.page(page)),
            Backing::Direct => Expected::Direct,
        };
    }
    for (channel, spec) in system.channels.iter().enumerate() {
        let member = spec.member(VmId(vm as u8));
        let seen = member.and_then(|member| Some((member, spec.seen_by(member)?)));
        if let Some((member, place)) = seen.filter(|(_, place)| place.contains(ipa)) {
            return Expected::Channel {
                channel,
                page: ipa.page_number() - place.ipa.page_number(),
                rights: member.rights,
            };
        }
    }
    Expected::Nothing
}

/// Returns whether a guest may execute a page: in RAM, if the region does not forbid it.
fn is_executable(vm: &Vm, ipa: Ipa) -> bool {
    let mut regions = vm.regions.iter();
    regions.any(|region| region.contains(ipa) && region.executable)
}

impl<'a> Memories<'a> {
    /// Returns the memory of a system of which nothing was seen yet.
    pub fn of(system: &'a System) -> Self {
        Self {
            system,
            colors: system.board.llc.colors().unwrap_or(1),
            owners: HashMap::default(),
            homes: HashMap::default(),
            bases: HashMap::default(),
            away: vec![0; system.vms.len()],
            shared: HashMap::default(),
            sharers: HashMap::default(),
        }
    }

    /// Returns whether an address is in memory that Cloison manages.
    fn is_ram(&self, address: PhysAddr) -> bool {
        let board = &self.system.board;
        let is_reserved = board.reserved.iter().any(|range| range.contains(address));
        board.ranges().any(|range| range.contains(address)) && !is_reserved
    }

    /// Returns whether a frame has one of these colors.
    fn has_color(&self, frame: PhysAddr, colors: ColorSet) -> bool {
        colors.contains(self.color_of(frame))
    }

    /// Returns the color of a frame: in a memory besides the RAM, the one that stands for it.
    fn color_of(&self, frame: PhysAddr) -> Color {
        let mut memories = self.system.board.memories.iter();
        let number = memories.position(|memory| memory.range.contains(frame));
        number.map_or(color_of(frame, self.colors), |number| {
            Color(self.colors as u8 + number as u8)
        })
    }

    /// Returns whether a frame may be the hypervisor's own.
    pub fn is_own(&self, frame: PhysAddr) -> bool {
        self.has_color(frame, self.system.hypervisor_colors) && self.is_ram(frame)
    }

    /// Checks where a table lies.
    ///
    /// # Errors
    ///
    /// It is not in a frame of the hypervisor's colors.
    pub fn check_table(&self, vm: usize, level: u8, table: PhysAddr) -> Checked {
        if self.is_own(table) && !self.owners.contains_key(&table.page_number()) {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Tables,
            format!("VM {vm}, table of level {level}"),
            format!("a frame of the colors {}", self.system.hypervisor_colors),
            table.to_string(),
        ))
    }

    /// Checks an entry of a table above the last level: it is empty, or leads to a table.
    ///
    /// # Errors
    ///
    /// It maps a block, although there are only pages of 4 KiB.
    pub fn check_upper(page: Page, level: u8, entry: u64) -> Checked {
        if entry == 0 || entry & 3 == 3 {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Map,
            format!("{}, entry of level {level}", page.place()),
            "no entry, or a table",
            format!("{entry:#x}"),
        ))
    }

    /// Takes note of an entry that is no longer what it was: its frame is nobody's, unless the page
    /// is moving.
    pub fn forget(&mut self, page: Page, entry: Entry) {
        if !entry.is_valid() {
            return;
        }
        let frame = entry.frame().page_number();
        let key = (page.vm, page.ipa.page_number());
        // Another page may have the frame already: then the entry that went was not its own.
        if self.owners.get(&frame) == Some(&key) {
            self.owners.remove(&frame);
            if self.homes.get(&key).is_some_and(|home| *home != frame) {
                self.away[page.vm] -= 1;
            }
        }
    }

    /// Checks a store of EL2, on a core of a VM, to memory. `moving` is the VM of a page that is on
    /// its way, if it had this frame.
    ///
    /// # Errors
    ///
    /// The frame is another VM's, or nobody's.
    pub fn check_store(&self, vm: usize, address: PhysAddr, moving: Option<usize>) -> Checked {
        // A VM that may write to a channel has its pages cleared when it starts.
        let of_channel = self.sharers.get(&address.page_number());
        let writes = |&(channel, _): &(usize, u64)| {
            let member = self.system.channels[channel].member(VmId(vm as u8));
            member.is_some_and(|member| member.rights == Rights::Write)
        };
        if let Some(of) = of_channel {
            return if writes(of) {
                Ok(())
            } else {
                Err(Difference::new(
                    Rule::Writes,
                    format!("a core of VM {vm}"),
                    "no store to a channel that the VM does not write",
                    format!("{address}, which is of channel {}", of.0),
                ))
            };
        }
        let is_allowed = match self.owner(address).or(moving) {
            Some(owner) => owner == vm || self.are_linked(vm, owner),
            // Where a page moves to, and the hypervisor's own memory.
            // A frame without an owner may be the target of a move: it must have a color of the
            // VM's pools.
            None => self.is_own(address) || self.is_ram(address) && self.has_pool(vm, address),
        };
        if is_allowed {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Writes,
            format!("a core of VM {vm}"),
            "a store to the hypervisor's memory or to the VM's",
            match self.owner(address).or(moving) {
                Some(owner) => format!("{address}, which VM {owner} has"),
                None => format!("{address}"),
            },
        ))
    }

    /// Returns whether two VMs have a link: the core of one copies what it sends to the other.
    fn are_linked(&self, vm: usize, other: usize) -> bool {
        let has = |link: &Link, vm: usize| link.end(VmId(vm as u8)).is_some();
        let mut links = self.system.links.iter();
        links.any(|link| has(link, vm) && has(link, other))
    }

    /// Returns whether a frame has a color of a VM's pools.
    fn has_pool(&self, vm: usize, frame: PhysAddr) -> bool {
        let vm = &self.system.vms[vm];
        let regions = vm.regions.iter().filter_map(|region| match region.backing {
            Backing::Pool(pool) => Some(pool),
            _ => None,
        });
        let mut pools = regions.chain(vm.target);
        pools.any(|pool| self.has_color(frame, self.system.pools[usize::from(pool)].colors))
    }

    /// Returns the VM that has a frame.
    pub fn owner(&self, frame: PhysAddr) -> Option<usize> {
        let found = self.owners.get(&frame.page_number());
        found.map(|(vm, _)| *vm)
    }

    /// Returns the page that has a frame.
    pub fn page(&self, frame: PhysAddr) -> Option<Page> {
        let &(vm, page) = self.owners.get(&frame.page_number())?;
        let ipa = Ipa(page << PAGE_SHIFT);
        Some(Page { vm, ipa })
    }

    /// Checks an entry of the last level, and takes note of it. A page that is moving, or whose
    /// entry is missing, is checked by [`Memories::check_whole`].
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn check(&mut self, page: Page, entry: Entry) -> Checked {
        if !entry.is_valid() {
            return Ok(());
        }
        let system = self.system;
        let frame = entry.frame();
        let found = || format!("frame {frame} (entry {:#x})", entry.0);
        match expected(system, page.vm, page.ipa) {
            Expected::Nothing => {
                return Err(Difference::new(Rule::Map, page.place(), "nothing", found()));
            }
            Expected::Device(device) => {
                if frame != device {
                    return Err(Difference::new(
                        Rule::Frame,
                        page.place(),
                        format!("the device at {device}"),
                        found(),
                    ));
                }
                return self.check_attributes(page, entry, Content::Device);
            }
            Expected::Contiguous { region, page: nth } => {
                // The first page that is seen fixes the place of the whole region.
                let base = *self
                    .bases
                    .entry((page.vm, region))
                    .or_insert_with(|| frame.page_number().wrapping_sub(nth));
                if frame.page_number() != base.wrapping_add(nth) || !self.is_ram(frame) {
                    return Err(Difference::new(
                        Rule::Frame,
                        page.place(),
                        format!("contiguous RAM: {:#x}", (base + nth) << PAGE_SHIFT),
                        found(),
                    ));
                }
            }
            Expected::Direct => {
                if frame.0 != page.ipa.0 || !self.is_ram(frame) {
                    return Err(Difference::new(
                        Rule::Frame,
                        page.place(),
                        "the RAM at its own address",
                        found(),
                    ));
                }
            }
            Expected::Pool(pool) => self.check_pool(page, entry, pool)?,
            Expected::Channel {
                channel,
                page: nth,
                rights,
            } => {
                self.check_channel(page, entry, (channel, nth))?;
                return self.check_attributes(page, entry, Content::Channel(rights));
            }
        }
        self.check_attributes(page, entry, Content::Ram)?;
        self.take(page, frame)
    }

    /// Checks the frame of a page of a pool.
    fn check_pool(&self, page: Page, entry: Entry, pool: u8) -> Checked {
        let (system, frame) = (self.system, entry.frame());
        let vm = &system.vms[page.vm];
        let colors = |pool: u8| system.pools[usize::from(pool)].colors;
        let key = (page.vm, page.ipa.page_number());
        let home = self.homes.get(&key);
        // Before the first instruction of the VM, no home is known yet.
        let is_home = home.is_none_or(|home| *home == frame.page_number());
        let at_home = is_home && self.has_color(frame, colors(pool));
        let is_away = home.is_some()
            && vm
                .target
                .is_some_and(|target| self.has_color(frame, colors(target)));
        if self.is_ram(frame) && (at_home || is_away) {
            return Ok(());
        }
        // In its pool, but not where it was.
        let rule = if home.is_some() && self.has_color(frame, colors(pool)) {
            Rule::Home
        } else {
            Rule::Frame
        };
        let away = vm.target.map_or(ColorSet::EMPTY, colors);
        Err(Difference::new(
            rule,
            page.place(),
            format!(
                "RAM of the colors {}{}, or of {away} if it has moved",
                colors(pool),
                home.map_or_else(String::new, |home| format!(" at {:#x}", home << PAGE_SHIFT))
            ),
            format!(
                "frame {frame} of color {} (entry {:#x})",
                self.color_of(frame).0,
                entry.0
            ),
        ))
    }

    /// Checks the frame of a page of a channel: one of the channel's pool, the same in all of its
    /// VMs, and of no other page.
    fn check_channel(&mut self, page: Page, entry: Entry, of: (usize, u64)) -> Checked {
        let frame = entry.frame();
        let pool = self.system.channels[of.0].pool;
        let colors = self.system.pools[usize::from(pool)].colors;
        let number = frame.page_number();
        let first = *self.shared.entry(of).or_insert(number);
        let other = self.sharers.get(&number).is_some_and(|own| *own != of);
        let is_free = !other && !self.owners.contains_key(&number);
        if first != number || !self.is_ram(frame) || !self.has_color(frame, colors) || !is_free {
            return Err(Difference::new(
                if is_free { Rule::Frame } else { Rule::Once },
                page.place(),
                format!(
                    "page {} of channel {}: RAM of the colors {colors} at {:#x}",
                    of.1,
                    of.0,
                    first << PAGE_SHIFT
                ),
                format!("frame {frame} (entry {:#x})", entry.0),
            ));
        }
        self.sharers.insert(number, of);
        Ok(())
    }

    /// Checks an entry's attributes.
    fn check_attributes(&self, page: Page, entry: Entry, content: Content) -> Checked {
        let vm = &self.system.vms[page.vm];
        let is_ram = content != Content::Device;
        let is_read_only = content == Content::Channel(Rights::Read);
        let bit = |number: u32| entry.0 >> number & 1;
        // S2AP, bits 7 and 6: read and write. AF, bit 10. The contiguous hint, bit 52, and DBM, bit
        // 51, are clear: pages change one by one. XN, bit 54; bit 53 is RES0, or with FEAT_XNX as
        // strict where it is 0. SH, bits 9 and 8: inner shareable.
        let access = if is_read_only { 1 } else { 3 };
        let rights = entry.0 >> 6 & 3 == access && bit(10) == 1 && bit(52) == 0 && bit(51) == 0;
        let executes = content == Content::Ram && is_executable(vm, page.ipa);
        let xn = bit(54) == u64::from(!executes) && bit(53) == 0;
        let kind = match entry.memory() {
            Memory::WriteBack => is_ram && entry.0 >> 8 & 3 == 3,
            Memory::NonCacheable => content == Content::Ram && self.may_be_uncached(vm),
            Memory::Device => !is_ram,
            Memory::Other => false,
        };
        if rights && xn && kind && entry.0 & 3 == 3 {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Attributes,
            page.place(),
            format!(
                "a page to read{}, {}, {}",
                if is_read_only { "" } else { " and write" },
                if executes {
                    "executable"
                } else {
                    "not executable"
                },
                if is_ram {
                    "Normal, inner shareable"
                } else {
                    "Device-nGnRE"
                }
            ),
            format!("entry {:#x}", entry.0),
        ))
    }

    /// Returns whether a VM can have pages that are not cached: by the service `profile`.
    fn may_be_uncached(&self, vm: &Vm) -> bool {
        vm.services & cloison_abi::services::PROFILE != 0
    }

    /// Takes note of a page's frame.
    fn take(&mut self, page: Page, frame: PhysAddr) -> Checked {
        let key = (page.vm, page.ipa.page_number());
        let number = frame.page_number();
        if let Some(&(vm, other)) = self.owners.get(&number)
            && (vm, other) != key
        {
            return Err(Difference::new(
                Rule::Once,
                page.place(),
                "a frame that no other page has",
                format!(
                    "frame {frame}, which VM {vm} has at IPA {:#x}",
                    other << PAGE_SHIFT
                ),
            ));
        }
        if self.sharers.contains_key(&number) {
            return Err(Difference::new(
                Rule::Once,
                page.place(),
                "a frame that no channel has",
                format!("frame {frame}"),
            ));
        }
        let is_new = self.owners.insert(number, key).is_none();
        let home = *self.homes.entry(key).or_insert(number);
        if is_new && home != number {
            self.away[page.vm] += 1;
            let most = self.system.vms[page.vm].away;
            if self.away[page.vm] > most {
                return Err(Difference::new(
                    Rule::Away,
                    format!("VM {}", page.vm),
                    format!("at most {most} pages away"),
                    self.away[page.vm].to_string(),
                ));
            }
        }
        Ok(())
    }

    /// Checks that a VM has all of its pages, given the entries that were found.
    ///
    /// # Errors
    ///
    /// The first page that is missing.
    pub fn check_whole(&self, vm: usize, found: &HashMap<u64, Entry>) -> Checked {
        let config = &self.system.vms[vm];
        let regions = config.regions.iter();
        let channels = self.system.channels_of(VmId(vm as u8));
        let seen = channels.filter_map(|(channel, member)| channel.seen_by(member));
        let own = regions
            .cloned()
            .chain(seen)
            .flat_map(|region| (0..u64::from(region.pages)).map(move |at| region.ipa.page(at)));
        let gicv2 = self.system.board.gic.version() == GicVersion::V2;
        for ipa in own.chain(gicv2.then_some(config.map.gicc)) {
            let entry = found.get(&ipa.page_number()).copied().unwrap_or(Entry(0));
            // Another core of the VM may be moving it.
            if entry.0 == 0 {
                return Err(Difference::new(
                    Rule::Map,
                    Page { vm, ipa }.place(),
                    "a page",
                    "no entry",
                ));
            }
        }
        Ok(())
    }
}

/// Returns the bits of IPA space, which Cloison fixes.
pub const fn ipa_bits() -> u32 {
    IPA_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, AWAY, CHIP, GICV, HOME, OTHER};
    use cloison_abi::map;

    /// Write-back, inner shareable, AF, read and write, a page.
    const RAM: u64 = 0x7ff;
    const XN: u64 = 1 << 54;

    fn page(number: u64) -> Page {
        Page {
            vm: 0,
            ipa: Ipa(map::RAM).page(number),
        }
    }

    fn rule(result: Checked) -> Option<Rule> {
        result.err().map(|difference| difference.rule)
    }

    #[test]
    fn a_page_has_a_frame_of_its_pool() {
        let system = fixture::system();
        let mut memories = Memories::of(&system);
        assert_eq!(memories.check(page(0), Entry(HOME | RAM)), Ok(()));
        assert_eq!(
            rule(memories.check(page(1), Entry(OTHER | RAM))),
            Some(Rule::Frame)
        );
        // A color that is right, but no RAM.
        assert_eq!(
            rule(memories.check(page(1), Entry(0x1000 | RAM))),
            Some(Rule::Frame)
        );
    }

    #[test]
    fn memory_for_dma_is_at_its_own_address() {
        let mut system = fixture::system();
        system.vms[0].regions[0].backing = Backing::Direct;
        let own = page(1).ipa.0;
        let mut memories = Memories::of(&system);
        assert_eq!(memories.check(page(1), Entry(own | RAM)), Ok(()));
        for elsewhere in [own + 0x1000, HOME] {
            assert_eq!(
                rule(memories.check(page(0), Entry(elsewhere | RAM))),
                Some(Rule::Frame),
                "{elsewhere:#x}"
            );
        }
    }

    #[test]
    fn a_page_of_another_memory_is_there_and_not_in_its_reserved_part() {
        let mut system = fixture::system();
        // The 17th color stands for the first memory.
        system.pools[0].colors = ColorSet(1 << 16);
        let mut memories = Memories::of(&system);
        assert_eq!(memories.check(page(0), Entry(CHIP | RAM)), Ok(()));
        for elsewhere in [HOME, CHIP + 0x3000, CHIP + 0x4000] {
            assert_eq!(
                rule(memories.check(page(1), Entry(elsewhere | RAM))),
                Some(Rule::Frame),
                "{elsewhere:#x}"
            );
        }
        // Without a pool of it, no page is there, whatever the color of its address.
        let system = fixture::system();
        let mut memories = Memories::of(&system);
        assert_eq!(
            rule(memories.check(page(0), Entry((CHIP + 0x1000) | RAM))),
            Some(Rule::Frame)
        );
    }

    #[test]
    fn a_page_moves_only_once_it_is_known_and_comes_back_to_where_it_was() {
        let system = fixture::system();
        let mut memories = Memories::of(&system);
        assert_eq!(
            rule(memories.check(page(0), Entry(AWAY | RAM))),
            Some(Rule::Frame)
        );
        assert_eq!(memories.check(page(0), Entry(HOME | RAM)), Ok(()));
        memories.forget(page(0), Entry(HOME | RAM));
        assert_eq!(memories.check(page(0), Entry(AWAY | RAM)), Ok(()));
        memories.forget(page(0), Entry(AWAY | RAM));
        let elsewhere = HOME + 0x1_0000;
        assert_eq!(
            rule(memories.check(page(0), Entry(elsewhere | RAM))),
            Some(Rule::Home)
        );
        assert_eq!(memories.check(page(0), Entry(HOME | RAM)), Ok(()));
    }

    #[test]
    fn no_frame_is_mapped_twice_and_no_more_pages_are_away_than_allowed() {
        let system = fixture::system();
        let mut memories = Memories::of(&system);
        assert_eq!(memories.check(page(0), Entry(HOME | RAM)), Ok(()));
        assert_eq!(
            rule(memories.check(page(1), Entry(HOME | RAM))),
            Some(Rule::Once)
        );
        assert_eq!(
            memories.check(page(1), Entry((HOME + 0x1_0000) | RAM)),
            Ok(())
        );
        memories.forget(page(0), Entry(HOME | RAM));
        assert_eq!(memories.check(page(0), Entry(AWAY | RAM)), Ok(()));
        memories.forget(page(1), Entry((HOME + 0x1_0000) | RAM));
        assert_eq!(
            rule(memories.check(page(1), Entry((AWAY + 0x1_0000) | RAM))),
            Some(Rule::Away)
        );
        assert_eq!(memories.owner(PhysAddr(AWAY + 8)), Some(0));
    }

    #[test]
    fn attributes_are_those_of_the_kind() {
        let system = fixture::system();
        for (entry, wrong) in [
            (RAM, false),
            (RAM | XN, true),                  // not executable, but should be
            (RAM & !0x3c | 0b0101 << 2, true), // non-cacheable without the service
            (RAM & !0x300, true),              // not shareable
            (RAM & !0x80, true),               // read only
            (RAM | 1 << 52, true),             // contiguous
            (RAM & !2, true),                  // a block
        ] {
            let mut memories = Memories::of(&system);
            let found = rule(memories.check(page(0), Entry(HOME | entry)));
            assert_eq!(found, wrong.then_some(Rule::Attributes), "{entry:#x}");
        }
    }

    #[test]
    fn a_device_is_the_vms_own_and_never_executable() {
        let system = fixture::system();
        let mut memories = Memories::of(&system);
        let gicc = Page {
            vm: 0,
            ipa: Ipa(map::GICC),
        };
        let device = 0x4c7 | XN;
        assert_eq!(memories.check(gicc, Entry(GICV | device)), Ok(()));
        assert_eq!(
            rule(memories.check(gicc, Entry((GICV + 0x1000) | device))),
            Some(Rule::Frame)
        );
        assert_eq!(
            rule(memories.check(gicc, Entry(GICV | 0x4c7))),
            Some(Rule::Attributes)
        );
        let nowhere = Page {
            vm: 0,
            ipa: Ipa(0x1000),
        };
        assert_eq!(
            rule(memories.check(nowhere, Entry(HOME | RAM))),
            Some(Rule::Map)
        );
    }

    #[test]
    fn a_frame_is_shared_in_a_channel_alone_and_with_its_rights() {
        let system = fixture::connected();
        let mut memories = Memories::of(&system);
        let at = |vm, nth| Page {
            vm,
            ipa: Ipa(0x6000_0000).page(nth),
        };
        let read = RAM & !0x80;
        assert_eq!(memories.check(at(0, 0), Entry(HOME | RAM | XN)), Ok(()));
        assert_eq!(memories.check(at(1, 0), Entry(HOME | read | XN)), Ok(()));
        let next = HOME + 0x1_0000;
        for (page, entry, wrong) in [
            (at(1, 0), HOME | RAM | XN, Rule::Attributes), // may write
            (at(1, 0), HOME | read, Rule::Attributes),     // may execute
            (at(1, 0), next | read | XN, Rule::Frame),     // another frame than VM 0's
            (at(1, 1), HOME | read | XN, Rule::Once),      // a frame of another page
            (at(0, 2), next | RAM | XN, Rule::Map),        // beyond the channel
            (page(0), HOME | RAM, Rule::Once),             // a channel's frame as RAM
        ] {
            assert_eq!(
                rule(memories.check(page, Entry(entry))),
                Some(wrong),
                "{entry:#x}"
            );
        }
        assert_eq!(memories.check(page(0), Entry(next | RAM)), Ok(()));
        let stolen = rule(memories.check(at(0, 1), Entry(next | RAM | XN)));
        assert_eq!(stolen, Some(Rule::Once), "a VM's frame in a channel");
        assert_eq!(memories.check_store(0, PhysAddr(HOME + 8), None), Ok(()));
        let stored = memories.check_store(1, PhysAddr(HOME + 8), None);
        assert_eq!(rule(stored), Some(Rule::Writes));
    }

    #[test]
    fn el2_stores_to_its_own_memory_and_to_its_guests() {
        let mut system = fixture::system();
        system.vms.push(system.vms[0].clone());
        let mut memories = Memories::of(&system);
        assert_eq!(memories.check(page(0), Entry(HOME | RAM)), Ok(()));
        assert_eq!(memories.check_store(0, PhysAddr(HOME + 8), None), Ok(()));
        assert_eq!(
            memories.check_store(0, PhysAddr(fixture::OWN), None),
            Ok(())
        );
        assert_eq!(memories.check_store(0, PhysAddr(AWAY), None), Ok(()));
        let stored = memories.check_store(1, PhysAddr(HOME + 8), None);
        assert_eq!(rule(stored), Some(Rule::Writes));
        let stored = memories.check_store(0, PhysAddr(OTHER), None);
        assert_eq!(rule(stored), Some(Rule::Writes));
        let stored = memories.check_store(1, PhysAddr(AWAY), Some(0));
        assert_eq!(rule(stored), Some(Rule::Writes));
    }

    #[test]
    fn tables_are_the_hypervisors_and_lead_to_pages() {
        let system = fixture::system();
        let memories = Memories::of(&system);
        assert_eq!(memories.check_table(0, 3, PhysAddr(fixture::OWN)), Ok(()));
        assert_eq!(
            rule(memories.check_table(0, 3, PhysAddr(HOME))),
            Some(Rule::Tables)
        );
        assert_eq!(Memories::check_upper(page(0), 2, 0), Ok(()));
        assert_eq!(Memories::check_upper(page(0), 2, fixture::OWN | 3), Ok(()));
        assert_eq!(
            rule(Memories::check_upper(page(0), 2, HOME | 0x7fd)),
            Some(Rule::Map)
        );
        assert_eq!(
            rule(memories.check_whole(0, &HashMap::default())),
            Some(Rule::Map)
        );
    }
}
