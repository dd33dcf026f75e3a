//! EL2's own translation: frames of the hypervisor's colors, the final tables, and the windows onto
//! guest pages.
//!
//! The tables map: text (read-only, executable), read-only data, data (not executable), each page
//! on a frame of the hypervisor's colors; stacks with an unmapped page below; the frames themselves
//! (`ARENA`); device registers; the guest images. They map no guest memory, no memory of the boot
//! loader, and no page that is both writable and executable.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::layout;
use crate::machine::sysreg::{self, eight_times};
use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El23Attributes as Attr, PhysicalAddress, UpdatableDescriptor};
use aarch64_paging::paging::{Constraints, El2, MemoryRegion, PageTable, Translation};
use alloc::vec::Vec;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_logic::own_frames::OwnFrames;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Returns the address of a frame of the hypervisor once the final tables are on.
///
/// # Panics
/// On any other frame: a table that points to one does not belong to the hypervisor.
pub fn arena_address(frames: &OwnFrames, pa: PhysAddr) -> u64 {
    match frames.number(pa) {
        Some(number) => arena_of(number),
        None => panic!("the frame at {pa} is not one of the hypervisor's"),
    }
}

/// Returns the address of the frame with this number once the final tables are on.
fn arena_of(number: u32) -> u64 {
    layout::ARENA + u64::from(number) * PAGE_SIZE
}

/// Table frames while the early identity map is on: allocated from the hypervisor's frames,
/// accessed by physical address.
struct BootTables<'a>(&'a mut OwnFrames);

impl Translation<Attr> for BootTables<'_> {
    fn allocate_table(&mut self) -> (NonNull<PageTable<Attr>>, PhysicalAddress) {
        let pa = self.0.take();
        let table = identity(pa).cast::<PageTable<Attr>>();
        // SAFETY: the frame is the hypervisor's, not in use yet, and mapped one to one.
        unsafe { zero_page(pa.0) };
        (table, PhysicalAddress(pa.0 as usize))
    }

    unsafe fn deallocate_table(&mut self, _table: NonNull<PageTable<Attr>>) {
        // Boot only maps; frames are never freed.
    }

    fn physical_to_virtual(&self, pa: PhysicalAddress) -> NonNull<PageTable<Attr>> {
        identity(PhysAddr(pa.0 as u64)).cast()
    }
}

/// Returns a frame's address under the early map, which maps RAM one to one.
fn identity(pa: PhysAddr) -> NonNull<u8> {
    NonNull::new(pa.0 as *mut u8)
        .expect("RAM that the hypervisor takes for itself never starts at 0")
}

/// Zeroes the page at `va`.
///
/// # Safety
/// It is mapped, writable, and not in use yet.
unsafe fn zero_page(va: u64) {
    // SAFETY: passed on to the caller; DC ZVA clears 64 bytes (checked at boot by `check_machine`).
    unsafe {
        core::arch::asm!(
            eight_times!(eight_times!(
                "
                dc      zva, {line}
                add     {line}, {line}, #64
                "
            )),
            line = inout(reg) va => _,
            options(nostack, preserves_flags),
        );
    }
}

// ATTRIBUTE_INDEX_0 sets no bit.
const DEVICE: Attr = Attr::VALID
    .union(Attr::ACCESSED)
    .union(Attr::USER_RES1)
    .union(Attr::XN);
const MEMORY: Attr = DEVICE.union(Attr::INNER_SHAREABLE);
const DATA: Attr = MEMORY.union(Attr::ATTRIBUTE_INDEX_1);
const RODATA: Attr = DATA.union(Attr::READ_ONLY);
const TEXT: Attr = RODATA.difference(Attr::XN);
const UNCACHED_RODATA: Attr = MEMORY.union(Attr::ATTRIBUTE_INDEX_2).union(Attr::READ_ONLY);

/// Maximum number of frames of the tables themselves.
///
/// An upper bound, which [`build`] asserts: these frames are mapped before the tables are complete.
const OWN_TABLES: u32 = 24;

/// Bytes mapped by one descriptor of the second-to-last level.
const BLOCK: u64 = 2 << 20;

/// Offset of the payload in the first block of `layout::PAYLOAD`.
static PAYLOAD_WITHIN: AtomicU64 = AtomicU64::new(0);

/// Input for the final tables.
pub struct Plan<'a> {
    /// Device pages, at `layout::DEVICES` in this order.
    pub devices: &'a [Option<PhysAddr>],
    /// The guest images.
    pub payload: PhysRange,
    /// Number of physical cores.
    pub cores: usize,
    /// Bytes of heap after the image.
    pub heap: u64,
    /// Frames that stage 2 will need for tables.
    pub stage2_frames: u32,
    /// Link addresses of the image's parts.
    pub image: &'a layout::ImageLayout,
}

/// The tables, ready to be switched on.
pub struct Built {
    /// The root table.
    pub ttbr: PhysAddr,
    /// Frames of the image's pages, in order.
    pub image_frames: Vec<u64>,
    /// Physical address of the trampoline's copy.
    pub trampoline: PhysAddr,
    /// Number of the first frame set aside for stage 2.
    pub stage2_first: u32,
    /// Arena addresses of the window descriptors: `[core][page]`.
    pub windows: u64,
    /// Bytes of heap after the image.
    pub heap: u64,
}

/// Every page has its own descriptor.
const BY_PAGES: Constraints = Constraints::NO_BLOCK_MAPPINGS.union(Constraints::NO_CONTIGUOUS_HINT);

/// The final tables while they are built.
struct Draft<'a>(Mapping<BootTables<'a>, El2>);

impl Draft<'_> {
    /// Maps consecutive frames.
    fn map(&mut self, va: u64, pa: PhysAddr, pages: u64, attributes: Attr, how: Constraints) {
        self.0
            .map_range(
                &region(va, pages),
                PhysicalAddress(pa.0 as usize),
                attributes,
                how,
            )
            .expect("the layout's addresses lie inside the 39-bit range");
    }

    /// Maps scattered frames: first as if they were consecutive, then each where it is. That walks
    /// the tables twice, not once per page.
    fn scatter(&mut self, va: u64, frames: &[u64], attributes: Attr) {
        let pages = frames.len() as u64;
        self.map(va, PhysAddr(0), pages, attributes, BY_PAGES);
        let place = |range: &MemoryRegion, descriptor: &mut UpdatableDescriptor<Attr>| {
            if descriptor.level() < 3 {
                return Ok(());
            }
            let index = (range.start().0 as u64 - va) / PAGE_SIZE;
            let frame = PhysicalAddress(frames[index as usize] as usize);
            descriptor.set(frame, descriptor.flags())
        };
        self.0
            .modify_range(&region(va, pages), &place)
            .expect("the range has just been mapped");
    }

    /// Maps the guest images at the same offset in a block as their frames, so that blocks can map
    /// them: kernels make them long.
    fn map_payload(&mut self, payload: PhysRange) {
        let within = payload.start.0 % BLOCK;
        PAYLOAD_WITHIN.store(within, Relaxed);
        self.map(
            layout::PAYLOAD + within,
            payload.start,
            payload.len.div_ceil(PAGE_SIZE),
            UNCACHED_RODATA,
            Constraints::NO_CONTIGUOUS_HINT,
        );
    }

    /// Returns the root table, and the descriptors of the windows, which map nothing yet.
    fn finish(mut self, any: PhysAddr) -> (PhysAddr, PhysAddr) {
        // Mapping and unmapping one page creates the table.
        self.map(layout::WINDOW, any, 1, RODATA, BY_PAGES);
        let ttbr = PhysAddr(self.0.root_address().0 as u64);
        // The library's type would free the tables when it is dropped; they are in use for good.
        core::mem::forget(self.0);
        let window = leaf(ttbr, layout::WINDOW, |table| table.0);
        // SAFETY: the tables have just been built; the early identity map makes them accessible.
        unsafe { window.write(0) };
        (ttbr, PhysAddr(window as u64))
    }
}

/// Returns the range of these pages, as the library takes it.
fn region(va: u64, pages: u64) -> MemoryRegion {
    MemoryRegion::new(va as usize, (va + pages * PAGE_SIZE) as usize)
}

/// Builds the final tables in frames of the hypervisor's colors, under the early identity map.
pub fn build(frames: &mut OwnFrames, plan: &Plan) -> Built {
    let image = plan.image;
    let mut take = |bytes: u64| -> Vec<u64> {
        let pages = 0..bytes / PAGE_SIZE;
        pages.map(|_| frames.take().0).collect()
    };
    // The heap follows the image.
    let mut image_frames = take(image.end - image.start + plan.heap);
    let stack_frames = take(plan.cores as u64 * layout::STACK_SIZE);
    // The arena maps the frames that follow: stage 2's tables and these tables, up to an upper
    // bound of their number.
    // Frames are numbered in the order in which they are taken.
    let stage2_first = frames.taken();
    let own_first = stage2_first + plan.stage2_frames;
    let arena_end = own_first + OWN_TABLES;
    take_until(frames, own_first);
    let arena_frames: Vec<u64> = (stage2_first..arena_end)
        .map(|number| frames.frame(number).0)
        .collect();

    let page = |address: u64| ((address - image.start) / PAGE_SIZE) as usize;
    let (text, others) = image_frames.split_at(page(image.rodata));
    let (rodata, data) = others.split_at(page(image.data) - text.len());
    let trampoline = PhysAddr(text[page(image.trampoline)]);
    let mut draft = Draft(Mapping::new(BootTables(frames), 1, El2));
    draft.scatter(image.start, text, TEXT);
    draft.scatter(image.rodata, rodata, RODATA);
    draft.scatter(image.data, data, DATA);
    draft.scatter(arena_of(stage2_first), &arena_frames, DATA);
    let stack_pages = (layout::STACK_SIZE / PAGE_SIZE) as usize;
    for (core, frames) in stack_frames.chunks(stack_pages).enumerate() {
        draft.scatter(layout::stack(core).start, frames, DATA);
    }
    draft.map(trampoline.0, trampoline, 1, TEXT, BY_PAGES);
    for (index, &device) in (0..).zip(plan.devices) {
        if let Some(pa) = device {
            let va = layout::DEVICES + index * PAGE_SIZE;
            draft.map(va, pa, 1, DEVICE, BY_PAGES);
        }
    }
    if plan.payload.len > 0 {
        draft.map_payload(plan.payload);
    }
    let (ttbr, window) = draft.finish(trampoline);
    assert!(
        frames.taken() <= arena_end,
        "the EL2 tables took more frames than were set aside for them"
    );
    // What is mapped counts as taken, needed or not.
    take_until(frames, arena_end);
    // The heap's frames need no copy: only the image has contents.
    image_frames.truncate(page(image.end));
    Built {
        ttbr,
        image_frames,
        trampoline,
        stage2_first,
        windows: arena_address(frames, window.page_base()) + window.0 % PAGE_SIZE,
        heap: plan.heap,
    }
}

/// Takes frames until this many are taken.
fn take_until(frames: &mut OwnFrames, count: u32) {
    while frames.taken() < count {
        frames.take();
    }
}

/// Returns the last-level descriptor of `va` in the tables at `root`, which map it by pages; `at`
/// returns the address at which a table is mapped.
fn leaf(root: PhysAddr, va: u64, at: impl Fn(PhysAddr) -> u64) -> *mut u64 {
    let entry = |table, shift: u32| (at(table) + (va >> shift & 0x1ff) * 8) as *mut u64;
    let next = |table, shift| {
        // SAFETY: `at` gives mapped addresses of the tables, which map `va` down to the last level.
        let descriptor = unsafe { entry(table, shift).read() };
        PhysAddr(descriptor & ADDRESS)
    };
    entry([30, 21].into_iter().fold(root, next), 12)
}

/// Unmaps the trampoline's identity page, after the last core has run it.
pub fn unmap_trampoline(frames: &OwnFrames, ttbr: PhysAddr, trampoline: PhysAddr) {
    let descriptor = leaf(ttbr, trampoline.0, |table| arena_address(frames, table));
    // SAFETY: a descriptor of the running tables, which nobody else writes; no core runs or reads
    // this page any more.
    unsafe { descriptor.write_volatile(0) };
    sysreg::tlbi_el2(trampoline.0);
}

/// The address in a descriptor, of stage 2 too.
pub const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// What is called for each page: with its address, its frame and the rest of its descriptor.
pub type Visitor<'a> = dyn FnMut(u64, PhysAddr, u64) + 'a;

/// Visits every page that the tables at `root`, a guest's or EL2's own, map, in order of address.
pub fn walk(frames: &OwnFrames, root: PhysAddr, visit: &mut Visitor) {
    walk_level(frames, root, 1, 0, visit);
}

/// Visits the pages below one table; `base` is the address that its first entry translates.
fn walk_level(frames: &OwnFrames, table: PhysAddr, level: u32, base: u64, visit: &mut Visitor) {
    let entries = arena_address(frames, table) as *const u64;
    let span = PAGE_SIZE << (9 * (3 - level));
    for index in 0..512 {
        // SAFETY: all tables are in the hypervisor's frames and in the arena.
        let descriptor = unsafe { entries.add(index).read_volatile() };
        let attributes = Attr::from_bits_retain(descriptor as usize);
        if !attributes.contains(Attr::VALID) {
            continue;
        }
        let va = base + index as u64 * span;
        let target = PhysAddr(descriptor & ADDRESS);
        if level < 3 && attributes.contains(Attr::TABLE_OR_PAGE) {
            walk_level(frames, target, level + 1, va, visit);
            continue;
        }
        // A block, as the payload has them: page by page, like the rest.
        for page in 0..span / PAGE_SIZE {
            let address = va + page * PAGE_SIZE;
            visit(address, target.page(page), descriptor & !ADDRESS);
        }
    }
}

/// The two windows of one core.
///
/// While the core does not access a guest's page, both are unmapped: no guest memory is reachable
/// at EL2 by a stray pointer.
#[derive(Clone, Copy)]
pub struct Windows {
    /// The two last-level descriptors, in the arena.
    descriptors: *mut u64,
    va: u64,
}

impl Windows {
    /// Returns the windows of core `core`; `windows` comes from [`Built::windows`].
    ///
    /// # Safety
    /// No other core may have this one's windows.
    pub unsafe fn new(windows: u64, core: usize) -> Self {
        let first = core as u64 * 4;
        Self {
            descriptors: (windows + first * 8) as *mut u64,
            va: layout::WINDOW + first * PAGE_SIZE,
        }
    }

    /// Fills a guest's frame with the page of the guest images at `offset` (page aligned, inside
    /// the payload), and writes it back to memory.
    ///
    /// # Safety
    /// The frame must belong to a guest none of whose vCPUs runs, and this core must not be between
    /// the first entry and the end of any guest: vector registers are used.
    pub unsafe fn load(&self, frame: PhysAddr, offset: u64) {
        self.with([frame], |[to]| {
            // The images are mapped where their frames' offset in a block of 2 MiB is the same.
            let from = layout::PAYLOAD + PAYLOAD_WITHIN.load(Relaxed) + offset;
            // SAFETY: the window is this core's; the payload is mapped up to the end of its last
            // page, and the configuration's check keeps images inside it.
            unsafe { sysreg::load_page(from, to) };
        });
    }

    /// Writes a word of reserved memory for a core whose caches are off.
    ///
    /// # Safety
    /// The word must be aligned, and in reserved memory that is there for this.
    pub unsafe fn store(&self, at: PhysAddr, value: u64) {
        self.with([at.page_base()], |[page]| {
            // SAFETY: the window is this core's; the word is as the contract says.
            unsafe { ((page + at.0 % PAGE_SIZE) as *mut u64).write_volatile(value) };
            sysreg::clean_invalidate_page(page);
        });
    }

    /// Copies one guest frame to another. A guest with its caches off accesses memory, not the
    /// cache: both frames are written back, so that both sides meet at the point of coherency.
    ///
    /// # Safety
    /// Both frames must be a guest's, and no vCPU may have either of them mapped.
    pub unsafe fn copy(&self, from: PhysAddr, to: PhysAddr) {
        self.with([from, to], |[source, target]| {
            // Dirty lines go to memory, and clean ones do not hide what the guest stored past its
            // caches.
            sysreg::clean_invalidate_page(source);
            // SAFETY: both windows are this core's; no vCPU can access the frames, by the contract.
            unsafe { sysreg::copy_page(source, target) };
            // The copy reaches memory, where a guest with its caches off looks for it.
            sysreg::clean_invalidate_page(target);
        });
    }

    /// Writes a guest's frame back to memory and removes it from all caches.
    ///
    /// Contents do not change, so that this is safe on any frame.
    pub fn flush(&self, frame: PhysAddr) {
        self.with([frame], |[page]| sysreg::clean_invalidate_page(page));
    }

    /// Copies `count` words of a guest's frame from `offset` on, as they are in memory: a guest may
    /// have stored them past the caches. It may also be changing them.
    ///
    /// # Panics
    /// If they are not aligned, or not all in the frame.
    pub fn read(&self, frame: PhysAddr, offset: u64, count: u64, words: &mut Vec<u64>) {
        assert!(
            offset.is_multiple_of(8) && offset + count * 8 <= PAGE_SIZE,
            "{count} words at {offset:#x} of a frame"
        );
        self.with([frame], |[page]| {
            sysreg::clean_invalidate_page(page);
            words.clear();
            // SAFETY: the window is this core's; the words are aligned and inside it, and never
            // Rust's memory.
            words.extend((0..count).map(|word| unsafe {
                ((page + offset) as *const u64)
                    .add(word as usize)
                    .read_volatile()
            }));
        });
    }

    /// Returns the word of a guest's frame at an address that is mapped to it, as it is in memory.
    /// The guest may be changing it.
    pub fn word(&self, frame: PhysAddr, at: u64) -> u32 {
        let mut word = 0;
        self.with([frame], |[page]| {
            sysreg::clean_invalidate_page(page);
            // SAFETY: the window is this core's; the word is aligned and inside it, and never
            // Rust's memory.
            word = unsafe { ((page + (at & 0xffc)) as *const u32).read_volatile() };
            // A guest with its caches off must not meet what this has read, once it turns them on.
            sysreg::clean_invalidate_page(page);
        });
        word
    }

    /// Copies bytes of a guest's frame, which the guest may be changing; two at an even address at
    /// once.
    ///
    /// # Panics
    /// If they are not all in the frame.
    pub fn peek(&self, at: PhysAddr, bytes: &mut [u8]) {
        self.part([at], bytes.len() as u64, |[at], len| {
            // SAFETY: the window is this core's; the bytes are inside it, and never Rust's memory.
            unsafe { sysreg::copy_bytes(at, bytes.as_mut_ptr() as u64, len) };
        });
    }

    /// Copies bytes to a guest's frame, as [`peek`](Self::peek) from one.
    ///
    /// # Panics
    /// If they are not all in the frame.
    pub fn poke(&self, at: PhysAddr, bytes: &[u8]) {
        self.part([at], bytes.len() as u64, |[at], len| {
            // SAFETY: the window is this core's; the bytes are inside it, and never Rust's memory.
            unsafe { sysreg::copy_bytes(bytes.as_ptr() as u64, at, len) };
        });
    }

    /// Copies a part of one guest's frame to another guest's. Both may be changing them.
    ///
    /// # Panics
    /// If it is not all in either frame.
    pub fn copy_part(&self, from: PhysAddr, to: PhysAddr, len: u64) {
        self.part([from, to], len, |[from, to], len| {
            // SAFETY: the windows are this core's; the bytes are inside them, and never Rust's
            // memory.
            unsafe { sysreg::copy_bytes(from, to, len) };
        });
    }

    /// Does the work while the windows show parts of these lengths.
    fn part<const N: usize>(
        &self,
        parts: [PhysAddr; N],
        len: u64,
        work: impl FnOnce([u64; N], u64),
    ) {
        let offsets = parts.map(|part| part.0 % PAGE_SIZE);
        assert!(offsets.iter().all(|offset| offset + len <= PAGE_SIZE));
        self.with(parts.map(PhysAddr::page_base), |pages| {
            work(
                core::array::from_fn(|part| pages[part] + offsets[part]),
                len,
            );
        });
    }

    /// Clears a guest's frame, in memory and in all caches.
    ///
    /// # Safety
    /// The frame must be a guest's, and no vCPU may run that could access it: unless it is a
    /// channel's, whose VMs see it change at any time.
    pub unsafe fn clear(&self, frame: PhysAddr) {
        self.with([frame], |[page]| {
            // SAFETY: the window is this core's; the rest is the caller's obligation.
            unsafe { zero_page(page) };
            sysreg::clean_invalidate_page(page);
        });
    }

    /// Does the work while the windows show these frames, two at most.
    fn with<const N: usize>(&self, frames: [PhysAddr; N], work: impl FnOnce([u64; N])) {
        let addresses = core::array::from_fn(|page| self.va + page as u64 * PAGE_SIZE);
        for (page, frame) in frames.into_iter().enumerate() {
            self.set(page, frame.0 | Self::PAGE);
        }
        sysreg::dsb_ish();
        sysreg::isb();
        // The barriers are done: the walk of this core's next access finds the descriptors. No
        // invalidation is needed, because they were invalid.
        work(addresses);
        (0..N).for_each(|page| self.set(page, 0));
        // On all cores: any of them may have walked to these pages speculatively.
        addresses.into_iter().for_each(sysreg::tlbi_el2);
    }

    /// A window's descriptor: data of EL2, Normal write-back, never executed.
    const PAGE: u64 = DATA.union(Attr::TABLE_OR_PAGE).bits() as u64;

    /// Writes a window's descriptor. The caller makes it visible, or invalidates what it mapped.
    fn set(&self, page: usize, descriptor: u64) {
        // SAFETY: the descriptors of this core's windows. No other core touches them, and a window
        // is empty (and no longer in the TLB) before it is filled: break before make.
        unsafe { self.descriptors.add(page).write_volatile(descriptor) };
    }
}

/// One of the hypervisor's stacks, in whole pages.
pub struct Stack {
    start: u64,
    /// Number of its pages.
    pub pages: u64,
}

impl Stack {
    /// Returns the stack of `size` bytes from `start` on.
    ///
    /// # Safety
    /// It must be mapped for good, and be a stack.
    pub unsafe fn new(start: u64, size: u64) -> Self {
        Self {
            start,
            pages: size / PAGE_SIZE,
        }
    }

    /// Returns a core's stack.
    pub fn of_core(core: usize) -> Self {
        // SAFETY: the final tables map the stacks of all cores there.
        unsafe { Self::new(layout::stack(core).start, layout::STACK_SIZE) }
    }

    /// Clears it, so that [`first_used`](Self::first_used) later finds what was used.
    ///
    /// # Safety
    /// The final tables must be on, and no core may use it yet.
    pub unsafe fn clear(&self) {
        // SAFETY: the tables map it, writable; nobody uses it, by the contract.
        (0..self.pages).for_each(|page| unsafe { zero_page(self.start + page * PAGE_SIZE) });
    }

    /// Returns the offset of the lowest word of one of its pages that was ever used.
    pub fn first_used(&self, page: u64) -> Option<u64> {
        let start = (self.start + page * PAGE_SIZE) as *const u64;
        // SAFETY: the stack is mapped for good. Its core may write to it meanwhile: the words are
        // read as they are.
        let word = (0..PAGE_SIZE as usize / 8)
            .find(|&word| unsafe { start.add(word).read_volatile() } != 0)?;
        Some(page * PAGE_SIZE + word as u64 * 8)
    }
}

/// Zeroes the frame with this number, after the switch to the final tables.
pub fn zero_own(number: u32) -> NonNull<[u64; 512]> {
    let va = arena_of(number);
    // SAFETY: a frame set aside for stage 2, mapped in the arena, not in use yet.
    unsafe { zero_page(va) };
    NonNull::new(va as *mut [u64; 512]).expect("arena addresses are not zero")
}
