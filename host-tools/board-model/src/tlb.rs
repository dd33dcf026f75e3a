//! The translation buffers of one core: micro TLBs, a main TLB, and caches of table addresses and
//! of stage 2.
//!
//! They record only for which addresses a core has a translation: QEMU itself translates. A miss
//! walks the guest's and the hypervisor's real tables.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::walk::{Context, Memory, Tables, entry_shift};

/// Sets and ways of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sets, a power of two.
    pub sets: usize,
    /// Ways.
    pub ways: usize,
}

/// A core's translation buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbShape {
    /// Entries of each of the two micro TLBs, for instructions and for data.
    pub micro: usize,
    /// The main TLB.
    pub main: Shape,
    /// The cache of stage 1's last tables.
    pub walk: Shape,
    /// The cache of stage 2.
    pub ipa: Shape,
    /// Cycles of a micro TLB's miss that hits the main TLB.
    pub main_cycles: u64,
    /// Whether stage 2 counts as mapped by blocks where its pages map one contiguous piece.
    pub blocks: bool,
}

/// Whose an entry is: bits 0 to 15 the ASID, bit 16 of all ASIDs, from bit 24 the VMID, bit 40 of
/// EL2.
type Tag = u64;
const ASID: Tag = 0xffff;
const GLOBAL: Tag = 1 << 16;
const EL2: Tag = 1 << 40;

const fn tag(context: &Context) -> Tag {
    if context.el2 {
        EL2 | GLOBAL
    } else {
        (context.vmid as Tag) << 24 | context.asid as Tag
    }
}
/// Returns the tag of a VM's entries of stage 2.
const fn vm(vmid: u16) -> Tag {
    (vmid as Tag) << 24 | GLOBAL
}
/// Returns whether an entry is valid in a context with another tag.
const fn is_valid(entry: Tag, wanted: Tag) -> bool {
    (entry ^ wanted) & !(ASID | GLOBAL) == 0
        && (entry & GLOBAL != 0 || (entry ^ wanted) & ASID == 0)
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The address, shifted.
    page: u64,
    tag: Tag,
    /// log2 of the bytes that it translates; 0 if it is empty.
    shift: u32,
    /// The translated address.
    value: u64,
}

/// A set-associative buffer, whose ways are replaced in turn.
#[derive(Clone, Debug)]
struct Buffer {
    shape: Shape,
    entries: Vec<Entry>,
    /// The way of each set that is replaced next.
    next: Vec<u8>,
    /// A bit for each size that was inserted.
    sizes: u64,
}

impl Buffer {
    fn new(shape: Shape) -> Self {
        let entries = vec![Entry::default(); shape.sets * shape.ways];
        Self {
            shape,
            entries,
            next: vec![0; shape.sets],
            sizes: 0,
        }
    }

    fn clear(&mut self) {
        self.entries.fill(Entry::default());
        self.sizes = 0;
    }

    #[inline]
    fn find(&self, address: u64, tag: Tag) -> Option<&Entry> {
        let found = |entry: &&Entry| {
            entry.shift != 0 && entry.page == address >> entry.shift && is_valid(entry.tag, tag)
        };
        if self.shape.sets == 1 {
            return self.entries.iter().find(found);
        }
        let mut sizes = self.sizes;
        while sizes != 0 {
            let shift = sizes.trailing_zeros();
            sizes &= sizes - 1;
            let set = (address >> shift) as usize & (self.shape.sets - 1);
            let ways = &self.entries[set * self.shape.ways..(set + 1) * self.shape.ways];
            if let Some(entry) = ways
                .iter()
                .find(|entry| entry.shift == shift && found(entry))
            {
                return Some(entry);
            }
        }
        None
    }

    fn insert(&mut self, address: u64, tag: Tag, shift: u32, value: u64) {
        self.sizes |= 1 << shift;
        let set = (address >> shift) as usize & (self.shape.sets - 1);
        let ways = &mut self.entries[set * self.shape.ways..(set + 1) * self.shape.ways];
        let way = ways
            .iter()
            .position(|entry| entry.shift == 0)
            .unwrap_or_else(|| {
                let next = &mut self.next[set];
                let way = usize::from(*next);
                *next = ((way + 1) % self.shape.ways) as u8;
                way
            });
        ways[way] = Entry {
            page: address >> shift,
            tag,
            shift,
            value,
        };
    }

    fn remove(&mut self, which: impl Fn(&Entry) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| entry.shift != 0) {
            if which(entry) {
                *entry = Entry::default();
            }
        }
    }
}

/// Who asks for a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// An instruction is fetched.
    Instruction = 0,
    /// A load or store.
    Data = 1,
}

/// Where a translation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the micro TLB, or nothing is translated.
    Micro,
    /// In the main TLB.
    Main,
    /// In the tables.
    Tables,
    /// Not at all: the tables do not map the address any more.
    Nowhere,
}

/// The target of an invalidation instruction (Arm ARM C5.5). The argument of those by address is in
/// a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Everything of EL1 and EL0: ALLE1.
    AllVms,
    /// Everything of this VM, stage 2 too: VMALLS12E1.
    VmBothStages,
    /// Stage 1 of this VM: VMALLE1.
    Vm,
    /// An address: VAE1; only of its last table: VALE1.
    Address(bool),
    /// An address in all ASIDs: VAAE1; only of its last table: VAALE1.
    AddressOfAll(bool),
    /// An ASID: ASIDE1.
    Asid,
    /// Everything of EL2: ALLE2.
    El2,
    /// An address of EL2: VAE2; only of its last table: VALE2.
    El2Address(bool),
    /// An address of stage 2: IPAS2E1, IPAS2LE1.
    Stage2,
    /// A regime of EL3, which the model does not have.
    Other,
}

/// Matches no page.
const NO_PAGE: u64 = u64::MAX;
/// The address bits that matter: the byte above may be a tag, and bit 55 chooses the table.
const ADDRESS: u64 = (1 << 56) - 1;

/// The translation buffers of a core.
#[derive(Clone, Debug)]
pub struct Tlb {
    shape: TlbShape,
    micro: [Buffer; 2],
    main: Buffer,
    walk: Buffer,
    ipa: Buffer,
    context: Context,
    /// The page of 4 KiB that each side translated last.
    latest: [u64; 2],
}

impl Tlb {
    /// Creates empty buffers, with translation off.
    pub fn new(shape: TlbShape) -> Self {
        let micro = Buffer::new(Shape {
            sets: 1,
            ways: shape.micro,
        });
        Self {
            shape,
            micro: [micro.clone(), micro],
            main: Buffer::new(shape.main),
            walk: Buffer::new(shape.walk),
            ipa: Buffer::new(shape.ipa),
            context: Context::default(),
            latest: [NO_PAGE; 2],
        }
    }

    /// Empties all buffers.
    pub fn clear(&mut self) {
        self.main.clear();
        self.walk.clear();
        self.ipa.clear();
        self.flush_micro();
    }

    fn flush_micro(&mut self) {
        for micro in &mut self.micro {
            micro.clear();
        }
        self.latest = [NO_PAGE; 2];
    }

    /// Sets the registers by which addresses are translated from now on.
    pub fn enter(&mut self, context: Context) {
        if self.context != context {
            self.context = context;
            self.latest = [NO_PAGE; 2];
        }
    }

    /// Returns whether a side's last translation was of this page too.
    #[inline]
    pub const fn is_latest(&self, side: Side, address: u64) -> bool {
        self.latest[side as usize] == address >> 12
    }

    /// Looks for the translation of an address, and brings it to the side's micro TLB.
    pub fn look_up(&mut self, side: Side, address: u64, memory: &mut impl Memory) -> Found {
        self.latest[side as usize] = address >> 12;
        if !self.context.translates() {
            return Found::Micro;
        }
        let address = address & ADDRESS;
        let tag = tag(&self.context);
        if self.micro[side as usize].find(address, tag).is_some() {
            return Found::Micro;
        }
        if let Some(Entry { tag, shift, .. }) = self.main.find(address, tag).copied() {
            self.micro[side as usize].insert(address, tag, shift, 0);
            return Found::Main;
        }
        let Some((shift, global)) = self.walk(address, memory) else {
            return Found::Nowhere;
        };
        let tag = if global { tag & !ASID | GLOBAL } else { tag };
        self.main.insert(address, tag, shift, 0);
        self.micro[side as usize].insert(address, tag, shift, 0);
        Found::Tables
    }

    /// Walks the tables. Returns log2 of the bytes that the translation is for, and whether it is
    /// for all ASIDs.
    fn walk(&mut self, address: u64, memory: &mut impl Memory) -> Option<(u32, bool)> {
        let Some(tables) = self.context.stage1_of(address)? else {
            let (_, shift) = self.stage2(address, memory)?;
            return Some((entry_shift(shift), true));
        };
        let tag = tag(&self.context);
        let input = tables.input(address);
        // A table of more than a page of stage 2 may be in several frames.
        let whole = tables.granule == 12 || self.context.stage2.is_none();
        let known = self.walk.find(address, tag).map(|entry| entry.value);
        let (mut table, mut level) = known.map_or((tables.root, tables.level), |table| (table, 3));
        let mut is_frame = known.is_some() && whole;
        loop {
            let at = table + tables.offset(input, level);
            let frame = if is_frame {
                at
            } else {
                self.stage2(at, memory)?.0
            };
            let descriptor = memory.read(frame, tables.cacheable);
            if let Some(next) = tables.next(descriptor, level) {
                (table, level, is_frame) = (next, level + 1, false);
                if level == 3 {
                    let value = if whole {
                        self.stage2(next, memory)?.0
                    } else {
                        next
                    };
                    (table, is_frame) = (value, whole);
                    self.walk.insert(address, tag, tables.shift(2), value);
                }
                continue;
            }
            let leaf = tables.leaf(descriptor, level)?;
            let (_, shift) = self.stage2(leaf.output(input), memory)?;
            return Some((entry_shift(leaf.shift.min(shift)), leaf.global));
        }
    }

    /// Translates an address of stage 2. Returns the physical one, and log2 of the bytes for which
    /// that is known.
    fn stage2(&mut self, address: u64, memory: &mut impl Memory) -> Option<(u64, u32)> {
        let Some(tables) = self.context.stage2 else {
            return Some((address, 64));
        };
        let tag = vm(self.context.vmid);
        if let Some(Entry { shift, value, .. }) = self.ipa.find(address, tag) {
            return Some((value | address & ((1 << shift) - 1), *shift));
        }
        let (mut table, mut level) = (tables.root, tables.level);
        let (physical, shift) = loop {
            let descriptor = memory.read(table + tables.offset(address, level), tables.cacheable);
            let Some(next) = tables.next(descriptor, level) else {
                let leaf = tables.leaf(descriptor, level)?;
                break (leaf.output(address), entry_shift(leaf.shift));
            };
            (table, level) = (next, level + 1);
            if level == 3
                && self.shape.blocks
                && let Some(base) = in_one_piece(&tables, table, memory)
            {
                let shift = tables.shift(2);
                break (base | address & ((1 << shift) - 1), shift);
            }
        };
        self.ipa
            .insert(address, tag, shift, physical >> shift << shift);
        Some((physical, shift))
    }

    /// Invalidates an instruction's target. `value` is the register that it names.
    pub fn invalidate(&mut self, what: Invalidation, value: u64, vmid: u16) {
        let of_vm = |entry: &Entry| entry.tag & !(ASID | GLOBAL) == (vmid as Tag) << 24;
        let address = (value << 12) & ADDRESS;
        let asid = value >> 48;
        let at = |entry: &Entry| {
            (address ^ entry.page << entry.shift) & ADDRESS >> entry.shift << entry.shift == 0
        };
        let of_asid = |entry: &Entry| entry.tag & GLOBAL == 0 && entry.tag & ASID == asid;
        let visible = |entry: &Entry| entry.tag & GLOBAL != 0 || entry.tag & ASID == asid;
        let mut stage1 = |last: bool, which: &dyn Fn(&Entry) -> bool| {
            self.main.remove(which);
            if !last {
                self.walk.remove(which);
            }
        };
        match what {
            Invalidation::AllVms => {
                stage1(false, &|entry| entry.tag & EL2 == 0);
                self.ipa.clear();
            }
            Invalidation::VmBothStages => {
                stage1(false, &of_vm);
                self.ipa.remove(of_vm);
            }
            Invalidation::Vm => stage1(false, &of_vm),
            Invalidation::Address(last) => {
                stage1(last, &|entry| of_vm(entry) && visible(entry) && at(entry))
            }
            Invalidation::AddressOfAll(last) => stage1(last, &|entry| of_vm(entry) && at(entry)),
            Invalidation::Asid => stage1(false, &|entry| of_vm(entry) && of_asid(entry)),
            Invalidation::El2 => stage1(false, &|entry| entry.tag & EL2 != 0),
            Invalidation::El2Address(last) => {
                stage1(last, &|entry| entry.tag & EL2 != 0 && at(entry))
            }
            Invalidation::Stage2 => self.ipa.remove(|entry| of_vm(entry) && at(entry)),
            Invalidation::Other => {}
        }
        self.flush_micro();
    }
}

/// Returns where a last table of stage 2 maps its addresses if it maps them as one block would: one
/// after the other, from a multiple of the block's size, and all alike.
fn in_one_piece(tables: &Tables, table: u64, memory: &mut impl Memory) -> Option<u64> {
    if tables.granule != 12 {
        return None;
    }
    let entries = memory.table(table);
    let first = entries[0];
    tables.leaf(first, 3)?;
    let base = first & 0x0000_ffff_ffff_f000;
    let follows =
        |(number, descriptor): (usize, &u64)| *descriptor == first + ((number as u64) << 12);
    (base & ((1 << tables.shift(2)) - 1) == 0 && entries.iter().enumerate().all(follows))
        .then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Tables of 4 KiB pages, made as they are needed.
    #[derive(Default)]
    struct Fake {
        words: BTreeMap<u64, u64>,
        next: u64,
        /// What a walk read.
        reads: Vec<u64>,
    }

    impl Memory for Fake {
        fn read(&mut self, physical: u64, _: bool) -> u64 {
            self.reads.push(physical);
            self.words.get(&physical).copied().unwrap_or(0)
        }
        fn table(&mut self, physical: u64) -> [u64; 512] {
            std::array::from_fn(|at| {
                self.words
                    .get(&(physical + 8 * at as u64))
                    .copied()
                    .unwrap_or(0)
            })
        }
    }

    impl Fake {
        fn new() -> Self {
            Self {
                next: 0x10_0000,
                ..Self::default()
            }
        }
        fn tables(&mut self) -> Tables {
            self.next += 0x1000;
            Tables {
                root: self.next,
                granule: 12,
                bits: 39,
                level: 1,
                cacheable: true,
            }
        }
        /// Maps an address at a level, with these lower attributes. Tables have the addresses that
        /// they are at.
        fn map(&mut self, tables: &Tables, input: u64, output: u64, level: u32, attributes: u64) {
            let mut table = tables.root;
            for upper in tables.level..level {
                let at = table + tables.offset(input, upper);
                if !self.words.contains_key(&at) {
                    self.next += 0x1000;
                    self.words.insert(at, self.next | 3);
                }
                table = self.words[&at] & !0xfff;
            }
            let kind = if level == 3 { 3 } else { 1 };
            self.words.insert(
                table + tables.offset(input, level),
                output | attributes | kind,
            );
        }
        /// Returns what a translation finds, and how many descriptors it reads.
        fn load(&mut self, tlb: &mut Tlb, address: u64) -> (Found, usize) {
            self.reads.clear();
            let found = tlb.look_up(Side::Data, address, self);
            (found, self.reads.len())
        }
    }

    const SHAPE: TlbShape = TlbShape {
        micro: 10,
        main: Shape { sets: 128, ways: 4 },
        walk: Shape { sets: 16, ways: 4 },
        ipa: Shape { sets: 16, ways: 4 },
        main_cycles: 2,
        blocks: false,
    };
    const NOT_GLOBAL: u64 = 1 << 11;

    fn context(stage1: Option<Tables>, stage2: Option<Tables>) -> Context {
        Context {
            el2: false,
            asid: 5,
            vmid: 1,
            stage1: stage1.map(|tables| [Some(tables), None]),
            stage2,
        }
    }

    #[test]
    fn a_walk_reads_a_descriptor_per_level_and_its_last_table_is_remembered() {
        let mut memory = Fake::new();
        let tables = memory.tables();
        for page in 0..1024 {
            memory.map(&tables, page << 12, page << 12, 3, NOT_GLOBAL);
        }
        memory.map(&tables, 1 << 30, 1 << 30, 1, 0);
        let mut tlb = Tlb::new(SHAPE);
        tlb.enter(context(Some(tables), None));
        assert_eq!(memory.load(&mut tlb, 0x123), (Found::Tables, 3));
        assert!(tlb.is_latest(Side::Data, 0xfff) && !tlb.is_latest(Side::Instruction, 0xfff));
        assert_eq!(
            memory.load(&mut tlb, 0x1000),
            (Found::Tables, 1),
            "of the same last table"
        );
        assert_eq!(
            memory.load(&mut tlb, 0x20_0000),
            (Found::Tables, 3),
            "of another one"
        );
        assert_eq!(memory.load(&mut tlb, 0x123), (Found::Micro, 0));
        for page in 2..12 {
            memory.load(&mut tlb, page << 12);
        }
        assert_eq!(
            memory.load(&mut tlb, 0x123),
            (Found::Main, 0),
            "ten others came since"
        );
        // A block of 1 GiB is kept in halves, and leaves nothing in the walk cache.
        assert_eq!(memory.load(&mut tlb, 1 << 30), (Found::Tables, 1));
        assert_eq!(memory.load(&mut tlb, (3 << 29) - 1), (Found::Micro, 0));
        assert_eq!(memory.load(&mut tlb, 3 << 29), (Found::Tables, 1));
        assert_eq!(memory.load(&mut tlb, 1 << 35).0, Found::Nowhere);
        assert_eq!(
            tlb.look_up(Side::Instruction, 0x123, &mut memory),
            Found::Main,
            "each side has its own"
        );
    }

    #[test]
    fn stage_2_is_walked_for_each_table_of_stage_1_unless_the_ipa_cache_has_it() {
        let mut memory = Fake::new();
        let (first, second) = (memory.tables(), memory.tables());
        for page in 0..64 {
            memory.map(&first, page << 12, 0x4000_0000 + (page << 12), 3, 0);
            memory.map(&second, 0x4000_0000 + (page << 12), page << 13, 3, 0);
        }
        // Where the tables of stage 1 are, stage 2 maps each address to itself.
        for page in 0x100..0x140 {
            memory.map(&second, page << 12, page << 12, 3, 0);
        }
        let mut tlb = Tlb::new(SHAPE);
        tlb.enter(context(Some(first), Some(second)));
        // Three tables and the page: three descriptors of stage 2 each; and three of stage 1.
        assert_eq!(memory.load(&mut tlb, 0), (Found::Tables, 15));
        assert_eq!(memory.load(&mut tlb, 0x1000), (Found::Tables, 1 + 3));
        tlb.invalidate(Invalidation::Vm, 0, 1);
        assert_eq!(
            memory.load(&mut tlb, 0),
            (Found::Tables, 3),
            "TLBI of stage 1 leaves the IPA cache"
        );
        tlb.invalidate(Invalidation::Stage2, 0x4_0000, 1);
        tlb.invalidate(Invalidation::Address(false), 5 << 48, 1);
        assert_eq!(
            memory.load(&mut tlb, 0),
            (Found::Tables, 3 + 3),
            "the page's IPA was invalidated"
        );
        tlb.invalidate(Invalidation::VmBothStages, 0, 2);
        assert_eq!(memory.load(&mut tlb, 0), (Found::Main, 0), "another VM's");
        tlb.invalidate(Invalidation::VmBothStages, 0, 1);
        assert_eq!(memory.load(&mut tlb, 0), (Found::Tables, 15));
        // Behind stage 2 alone.
        tlb.enter(context(None, Some(second)));
        assert_eq!(memory.load(&mut tlb, 0x4000_2000), (Found::Tables, 3));
    }

    #[test]
    fn entries_are_of_an_address_space_unless_they_are_global() {
        let mut memory = Fake::new();
        let tables = memory.tables();
        memory.map(&tables, 0, 0, 3, 0);
        memory.map(&tables, 0x1000, 0, 3, NOT_GLOBAL);
        let mut tlb = Tlb::new(SHAPE);
        let mine = context(Some(tables), None);
        let other = Context { asid: 6, ..mine };
        tlb.enter(mine);
        memory.load(&mut tlb, 0);
        memory.load(&mut tlb, 0x1000);
        tlb.enter(other);
        assert_eq!(memory.load(&mut tlb, 0).0, Found::Micro);
        assert_eq!(memory.load(&mut tlb, 0x1000).0, Found::Tables);
        tlb.invalidate(Invalidation::Asid, 6 << 48, 1);
        assert_eq!(
            memory.load(&mut tlb, 0).0,
            Found::Main,
            "it is global; the micro TLB was flushed"
        );
        assert_eq!(memory.load(&mut tlb, 0x1000).0, Found::Tables);
        tlb.invalidate(Invalidation::Address(true), 5 << 48 | 1, 1);
        assert_eq!(
            memory.load(&mut tlb, 0x1000).0,
            Found::Main,
            "the other one's was invalidated"
        );
        tlb.enter(mine);
        assert_eq!(
            memory.load(&mut tlb, 0x1000),
            (Found::Tables, 1),
            "and its last table was not"
        );
        tlb.invalidate(Invalidation::AddressOfAll(false), 1, 1);
        assert_eq!(memory.load(&mut tlb, 0x1000), (Found::Tables, 3));
        tlb.enter(Context { vmid: 9, ..mine });
        assert_eq!(memory.load(&mut tlb, 0).0, Found::Tables, "another VM");
        let el2 = Context {
            el2: true,
            stage1: Some([Some(tables); 2]),
            ..Context::default()
        };
        tlb.enter(el2);
        assert_eq!(memory.load(&mut tlb, 0).0, Found::Tables);
        tlb.invalidate(Invalidation::AllVms, 0, 0);
        assert_eq!(memory.load(&mut tlb, 0).0, Found::Main);
        tlb.invalidate(Invalidation::El2, 0, 0);
        assert_eq!(memory.load(&mut tlb, 0).0, Found::Tables);
    }

    #[test]
    fn stage_2_in_one_piece_may_be_taken_for_a_block() {
        let walk = |blocks, output: &dyn Fn(u64) -> u64| {
            let mut memory = Fake::new();
            let tables = memory.tables();
            for page in 0..1024 {
                memory.map(&tables, page << 12, output(page), 3, 0);
            }
            let mut tlb = Tlb::new(TlbShape { blocks, ..SHAPE });
            tlb.enter(context(None, Some(tables)));
            (0..1024)
                .map(|page| memory.load(&mut tlb, page << 12).1)
                .sum::<usize>()
        };
        let straight = |page: u64| (page << 12) + 0x4000_0000;
        assert_eq!(walk(false, &straight), 3 * 1024);
        assert_eq!(walk(true, &straight), 2 * 2);
        assert_eq!(
            walk(true, &|page| straight(page) + 0x1000),
            3 * 1024,
            "not from a multiple of 2 MiB"
        );
        assert_eq!(walk(true, &|page| straight(page ^ 1)), 3 * 1024, "colored");
        // One page of the second piece is elsewhere: the first piece is still a block.
        assert_eq!(
            walk(true, &|page| if page == 700 { 0 } else { straight(page) }),
            2 + 3 * 512
        );
    }

    #[test]
    fn sixteen_contiguous_pages_are_an_entry() {
        let mut memory = Fake::new();
        let tables = memory.tables();
        for page in 0..32 {
            memory.map(&tables, page << 12, page << 12, 3, 1 << 52);
        }
        let mut tlb = Tlb::new(SHAPE);
        tlb.enter(context(Some(tables), None));
        let walks = (0..32)
            .filter(|page| memory.load(&mut tlb, page << 12).0 == Found::Tables)
            .count();
        assert_eq!(walks, 2);
    }
}
