//! Stage 2: maps a VM's IPA space to colored frames, page by page.
//!
//! 4 KiB pages, 39-bit IPA, three levels, tables in frames of the hypervisor's colors. Coloring
//! scatters a region over single frames, and migration replaces one frame under a running guest.
//! Both are Cloison's purpose and need direct access to the last-level descriptors, so it has its
//! own tables. Descriptor bits come from `aarch64-paging`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmu::{self, ADDRESS, Visitor};
use crate::machine::sysreg;
use aarch64_cpu::registers::VTCR_EL2;
use aarch64_paging::descriptor::Stage2Attributes as Attr;
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::image::IPA_BITS;
use cloison_logic::own_frames::OwnFrames;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A page that the guest may read and write. The access flag is set: EL2 does not handle access
/// faults.
const PAGE: Attr = Attr::VALID
    .union(Attr::TABLE_OR_PAGE)
    .union(Attr::S2AP_ACCESS_RW)
    .union(Attr::ACCESS_FLAG);
/// RAM is shared by all cores of the VM, whose caches are coherent within the inner domain.
const RAM: Attr = PAGE.union(Attr::SH_INNER);
const NORMAL: u64 = RAM
    .union(Attr::MEMATTR_NORMAL_INNER_WB)
    .union(Attr::MEMATTR_NORMAL_OUTER_WB)
    .bits() as u64;
/// RAM that no cache may hold: inner and outer non-cacheable.
const UNCACHED: u64 = RAM
    .union(Attr::MEMATTR_NORMAL_INNER_NC)
    .union(Attr::MEMATTR_NORMAL_OUTER_NC)
    .bits() as u64;
/// Device-nGnRE, and never executed: a speculative fetch from a device could change its state.
const DEVICE: u64 = PAGE
    .union(Attr::MEMATTR_DEVICE_nGnRE)
    .union(Attr::XN)
    .bits() as u64;
const XN: u64 = Attr::XN.bits() as u64;
/// A page's mark, in bits that the MMU ignores.
const MARK: u64 = 0xf << MARK_SHIFT;
const MARK_SHIFT: u32 = Attr::SWFLAG_0.bits().trailing_zeros();
/// A descriptor that points to a table of the next level.
const TABLE: u64 = Attr::VALID.union(Attr::TABLE_OR_PAGE).bits() as u64;
const VALID: u64 = Attr::VALID.bits() as u64;

/// VTCR_EL2 for these tables: 39-bit IPA from level 1, write-back inner-shareable walks, 40-bit
/// output.
pub const VTCR: u64 = (64 - IPA_BITS as u64)
    | VTCR_EL2::SL0::Granule4KBLevel1.value
    | VTCR_EL2::IRGN0::NormalWBRAWA.value
    | VTCR_EL2::ORGN0::NormalWBRAWA.value
    | VTCR_EL2::SH0::Inner.value
    | VTCR_EL2::TG0::Granule4KB.value
    | VTCR_EL2::PS::PA_40B_1TB.value
    | VTCR_EL2::RES1::SET.value;

/// A table of descriptors. They are atomic because the MMU and other cores read them at any time.
pub type Table = [AtomicU64; 512];

/// A frame of the hypervisor's for a table.
pub struct Frame {
    /// The table.
    pub table: &'static Table,
    /// Its address for the MMU.
    pub pa: PhysAddr,
}

/// Whether the caches may hold a page of RAM, as a descriptor's attributes. The stricter of this
/// and the guest's own tables applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cacheability {
    /// They may hold it and write it back.
    WriteBack = NORMAL,
    /// They may not hold it.
    NonCacheable = UNCACHED,
}

impl Cacheability {
    /// Both, as calls number them.
    pub const ALL: [Self; 2] = [Self::NonCacheable, Self::WriteBack];

    /// Returns the cacheability in a descriptor, if it maps a page of RAM.
    fn of(descriptor: u64) -> Option<Self> {
        match descriptor & !(ADDRESS | XN | MARK) {
            NORMAL => Some(Self::WriteBack),
            UNCACHED => Some(Self::NonCacheable),
            _ => None,
        }
    }
}

/// What a guest may do with a page at first, as a descriptor's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// RAM.
    Memory = NORMAL,
    /// RAM that is never executed.
    Data = NORMAL | XN,
    /// RAM that the guest may only read, and never executes.
    ReadOnly = NORMAL & !(Attr::S2AP_ACCESS_WO.bits() as u64) | XN,
    /// Device registers, which are never executed either.
    Device = if cfg!(feature = "fault-injection") {
        DEVICE & !XN
    } else {
        DEVICE
    },
}

/// What currently backs a page.
#[derive(Clone, Copy)]
pub enum Page {
    /// Nothing, a device, or RAM that the guest may only read.
    Absent,
    /// RAM.
    Mapped(Mapping),
    /// It is being moved; a guest that accesses it waits.
    Moving,
}

/// What backs a page of RAM, and how.
#[derive(Clone, Copy)]
pub struct Mapping {
    /// Its frame.
    pub frame: PhysAddr,
    /// Its cacheability.
    pub cacheability: Cacheability,
    /// 0 at home; else what distinguishes pages that are away, below 16.
    pub mark: u8,
}

impl Page {
    /// Decodes a last-level descriptor. What is valid and no RAM of the guest's own
    /// never moves.
    fn of(descriptor: u64) -> Self {
        let mark = ((descriptor & MARK) >> MARK_SHIFT) as u8;
        match Cacheability::of(descriptor) {
            Some(cacheability) => Self::Mapped(Mapping {
                frame: PhysAddr(descriptor & ADDRESS),
                cacheability,
                mark,
            }),
            // `unmap` clears the valid bit and leaves the rest.
            None if descriptor != 0 && descriptor & VALID == 0 => Self::Moving,
            None => Self::Absent,
        }
    }

    /// Returns the mapping of a page that is there now.
    const fn mapping(self) -> Option<Mapping> {
        match self {
            Self::Mapped(page) => Some(page),
            Self::Absent | Self::Moving => None,
        }
    }
}

/// A page of RAM that is being moved.
///
/// To be mapped again soon: a vCPU that accesses the page waits in EL2 until then, and would wait
/// for good.
#[derive(Clone, Copy)]
pub struct Unmapped {
    leaf: &'static AtomicU64,
    /// What backed it.
    pub before: Mapping,
}

impl Unmapped {
    /// Maps the page again.
    pub fn remap(self, mapping: Mapping) {
        // The region's own right: it outlives moves and changes of cacheability.
        let mut kept = self.leaf.load(Relaxed) & XN;
        if cfg!(feature = "fault-injection") {
            kept |= XN;
        }
        let mark = u64::from(mapping.mark) << MARK_SHIFT;
        let page = mapping.frame.0 | mapping.cacheability as u64;
        // Make: the frame's contents are written before the descriptor is, and the barrier lets all
        // walks find it before the page counts as mapped.
        self.leaf.store(page | mark | kept, Release);
        sysreg::dsb_ish();
    }
}

/// The tables of one VM.
///
/// The tables are written by several cores, but a page only by the holder of the VM's `pages`. No
/// table is freed or replaced after boot.
pub struct Stage2 {
    root: &'static Table,
    /// What VTTBR_EL2 and the audit need.
    root_pa: PhysAddr,
    frames: &'static OwnFrames,
    vmid: u64,
}

/// Provides the frames that were set aside for stage-2 tables.
pub struct TableSource {
    /// All frames of the hypervisor.
    pub frames: &'static OwnFrames,
    /// Number of the next frame for a table.
    pub next: u32,
    /// Number of the first frame that is not for tables.
    pub end: u32,
}

impl TableSource {
    /// Provides the next frame, zeroed: no entry of it is valid.
    pub fn take(&mut self) -> Frame {
        assert!(
            self.next < self.end,
            "stage 2 needs more tables than were counted"
        );
        let number = self.next;
        self.next += 1;
        let page = mmu::zero_own(number).cast::<Table>();
        // SAFETY: a zeroed frame of the hypervisor, mapped in the arena permanently and provided
        // once.
        let table = unsafe { page.as_ref() };
        let pa = self.frames.frame(number);
        Frame { table, pa }
    }
}

/// Returns the index of an IPA in a table of this level: nine bits each, from bit 30 at level 1
/// down to bit 12 at level 3.
fn index(ipa: Ipa, level: u32) -> usize {
    (ipa.0 >> (39 - 9 * level)) as usize & 0x1ff
}

impl Stage2 {
    /// Creates empty tables for the VM with this id.
    pub fn new(source: &mut TableSource, vm: u8) -> Self {
        // One table: 39 bits begin at level 1 with 512 entries.
        let Frame { table: root, pa } = source.take();
        Self {
            root,
            root_pa: pa,
            frames: source.frames,
            vmid: u64::from(vm) + 1,
        }
    }

    /// Returns VTTBR_EL2 for the VM.
    pub fn vttbr(&self) -> u64 {
        self.vmid << 48 | self.root_pa.0
    }

    /// Returns the table to which a descriptor points.
    fn table_at(&self, descriptor: u64) -> &'static Table {
        let va = mmu::arena_address(self.frames, PhysAddr(descriptor & ADDRESS));
        // SAFETY: a valid table descriptor of these tables was written by `child` and points to a
        // table frame.
        unsafe { &*(va as *const Table) }
    }

    /// Returns the table below an entry, which is created if there is none. Before the VM runs, so
    /// no walk sees it half built.
    fn child(
        &self,
        table: &'static Table,
        index: usize,
        source: &mut TableSource,
    ) -> &'static Table {
        let descriptor = table[index].load(Relaxed);
        if descriptor & VALID != 0 {
            return self.table_at(descriptor);
        }
        let child = source.take();
        table[index].store(child.pa.0 | TABLE, Release);
        child.table
    }

    /// Returns the same space for the VM's devices, without the GiB that contains `apart`: the same
    /// tables, below another root. To be called when all is mapped.
    pub fn for_devices(&self, source: &mut TableSource, apart: Ipa) -> Self {
        let Frame { table: root, pa } = source.take();
        for (number, (slot, entry)) in root.iter().zip(self.root).enumerate() {
            if number != index(apart, 1) || cfg!(feature = "fault-injection") {
                slot.store(entry.load(Relaxed), Relaxed);
            }
        }
        Self {
            root,
            root_pa: pa,
            ..*self
        }
    }

    /// Maps `pages` pages from `ipa` on to frames that `frames` provides, up to 512 at a time. To
    /// be called before the VM first runs.
    pub fn map<E>(
        &self,
        source: &mut TableSource,
        ipa: Ipa,
        pages: u64,
        kind: Kind,
        mut frames: impl FnMut(&mut [PhysAddr]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut batch = [PhysAddr(0); 512];
        let mut done = 0;
        while done < pages {
            let at = ipa.page(done);
            let level2 = self.child(self.root, index(at, 1), source);
            let level3 = self.child(level2, index(at, 2), source);
            let first = index(at, 3);
            // Up to the end of this last-level table, or of the range.
            let last = (first as u64 + pages - done).min(512) as usize;
            let batch = &mut batch[..last - first];
            frames(batch)?;
            for (slot, frame) in level3[first..last].iter().zip(&*batch) {
                // Relaxed: no vCPU of the VM runs before `Power::publish` releases all of this.
                slot.store(frame.0 | kind as u64, Relaxed);
            }
            done += (last - first) as u64;
        }
        Ok(())
    }

    /// Returns the last-level descriptor of a page. Tables are never freed, so it stays valid.
    fn leaf(&self, ipa: Ipa) -> Option<&'static AtomicU64> {
        // An IPA from a guest's register may have any value.
        if ipa.0 >> IPA_BITS != 0 {
            return None;
        }
        let next = |table: &'static Table, level: u32| {
            let descriptor = table[index(ipa, level)].load(Relaxed);
            (descriptor & VALID != 0).then(|| self.table_at(descriptor))
        };
        Some(&next(next(self.root, 1)?, 2)?[index(ipa, 3)])
    }

    /// Returns what backs the page that contains `ipa`.
    pub fn page(&self, ipa: Ipa) -> Page {
        self.leaf(ipa)
            .map_or(Page::Absent, |leaf| Page::of(leaf.load(Acquire)))
    }

    /// Returns what backs a page, if it is RAM and not being moved.
    pub fn mapping(&self, ipa: Ipa) -> Option<Mapping> {
        self.page(ipa).mapping()
    }

    /// Unmaps a page of RAM from the guest. No core has lost its translation before
    /// `sysreg::tlbi_ipas`.
    pub fn unmap(&self, ipa: Ipa) -> Option<Unmapped> {
        let leaf = self.leaf(ipa)?;
        let before = Page::of(leaf.load(Acquire)).mapping()?;
        // The rest stays in the descriptor: `page` then knows that it is being moved.
        // Relaxed: `tlbi_ipas` begins with the barrier that makes it visible to walks.
        leaf.fetch_and(!VALID, Relaxed);
        Some(Unmapped { leaf, before })
    }

    /// Visits every mapped page as the MMU would find it, in order of IPA: with its frame and the
    /// rest of its descriptor.
    pub fn walk(&self, visit: &mut Visitor) {
        mmu::walk(self.frames, self.root_pa, &mut |ipa, frame, attributes| {
            // The mark is software's; the audit compares what the MMU sees.
            visit(ipa, frame, attributes & !MARK)
        });
    }
}
