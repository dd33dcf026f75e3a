//! The path of an access: L1, shared L2, memory.
//!
//! Not modelled: coherence between the L1 data caches (a line that two cores write stays in both), prefetching, TLBs,
//! page walks, and the A53's switch to no-allocate after a long run of stores. A load waits for its line, but a load of
//! a line that an earlier store still waits for hits at once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::{Board, L2Data, Timing};
use crate::cache::{Cache, Evicted, Outcome};
use crate::dram::Dram;
use crate::events::Counts;
use crate::geometry::Line;

/// Bytes in a page of stage 2.
pub const PAGE: u64 = 4096;
/// Bytes per beat of the memory bus.
const BEAT: u64 = 16;

/// Pages that a core can address: it has 40 bits of physical address.
const PAGES: u64 = 1 << (40 - PAGE.trailing_zeros());

/// A set of pages, one bit each.
#[derive(Clone, Debug, Default)]
struct Pages(Vec<u64>);

impl Pages {
    #[inline]
    fn contains(&self, page: u64) -> bool {
        self.0.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }
    /// Adds pages, or removes them. Those that a core cannot address are left out.
    fn set(&mut self, pages: std::ops::Range<u64>, contained: bool) {
        let end = pages.end.min(PAGES);
        let words = end.div_ceil(64) as usize;
        if contained && self.0.len() < words {
            self.0.resize(words, 0);
        }
        for page in pages.start..end {
            if let Some(word) = self.0.get_mut((page / 64) as usize) {
                *word = *word & !(1 << (page % 64)) | u64::from(contained) << (page % 64);
            }
        }
    }
}

/// Effect of a cache maintenance instruction on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// DC CVAC: a dirty line is written to memory and stays in the caches.
    Clean,
    /// DC CVAU: a line that is dirty in an L1 is written to the L2, where instructions and data meet, and stays in the
    /// L1.
    CleanToL2,
    /// DC CIVAC, DC CISW: a dirty line is written to memory, and the line is removed. Also DC IVAC, as an A53
    /// implements it under a hypervisor.
    CleanInvalidate,
    /// IC IVAU: the line is removed from all instruction caches.
    InvalidateInstruction,
}

#[derive(Clone, Debug)]
struct Core {
    l1i: Cache,
    l1d: Cache,
    /// When the line of each pending store arrives; the oldest one is at `next_store`.
    stores: Vec<u64>,
    next_store: usize,
    counts: Counts,
}

impl Core {
    /// Puts a store whose line takes `wait` cycles into the store buffer. Returns how long the core waits because the
    /// buffer is full.
    fn buffer_store(&mut self, now: u64, wait: u64) -> u64 {
        let oldest = &mut self.stores[self.next_store];
        let stall = oldest.saturating_sub(now);
        *oldest = now + stall + wait;
        self.next_store = (self.next_store + 1) % self.stores.len();
        stall
    }
}

/// The caches of all cores, and the memory below them.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    cores: Vec<Core>,
    l2: Cache,
    l2_data: L2Data,
    dram: Dram,
    timing: Timing,
    line_shift: u32,
    noncacheable: Pages,
}

impl Hierarchy {
    /// Creates empty caches for a board.
    pub fn new(board: &Board, cores: usize) -> Self {
        let core = Core {
            l1i: board.l1i.cache(),
            l1d: board.l1d.cache(),
            stores: vec![0; board.timing.store_linefills],
            next_store: 0,
            counts: Counts::default(),
        };
        Self {
            cores: vec![core; cores],
            l2: board.l2.cache(),
            l2_data: board.l2_data,
            dram: Dram::new(board.timing.dram, board.timing.dram_line, board.refresh, board.banks),
            timing: board.timing,
            line_shift: board.l2.geometry.line_bytes().trailing_zeros(),
            noncacheable: Pages::default(),
        }
    }

    /// Returns log2 of the bytes in a line.
    pub const fn line_shift(&self) -> u32 {
        self.line_shift
    }
    /// Returns the line of a physical address.
    #[inline]
    pub const fn line(&self, physical: u64) -> Line {
        Line(physical >> self.line_shift)
    }
    /// Returns the counts of a core.
    pub fn counts(&self, core: usize) -> &Counts {
        &self.cores[core].counts
    }
    /// Returns the counts of a core, to add what happens outside the caches.
    #[inline]
    pub fn counts_mut(&mut self, core: usize) -> &mut Counts {
        &mut self.cores[core].counts
    }
    /// Tells the memory that the model is turned on at time `now`.
    pub fn begin(&mut self, now: u64) {
        self.dram.begin(now);
    }
    /// Empties all caches.
    pub fn make_cold(&mut self) {
        for core in &mut self.cores {
            core.l1i.clear();
            core.l1d.clear();
        }
        self.l2.clear();
    }

    /// Sets whether stage 2 makes a range of physical pages cacheable.
    pub fn set_cacheable(&mut self, physical: u64, bytes: u64, cacheable: bool) {
        self.noncacheable.set(physical / PAGE..physical.saturating_add(bytes).div_ceil(PAGE), !cacheable);
    }
    /// Returns whether a physical address is cacheable.
    #[inline]
    pub fn is_cacheable(&self, physical: u64) -> bool {
        !self.noncacheable.contains(physical / PAGE)
    }

    /// Loads or stores `bytes` at a physical address. Returns the cycles that the core waits. An access across the end
    /// of a line counts as two.
    pub fn data(&mut self, core: usize, physical: u64, bytes: u64, write: bool, now: u64) -> u64 {
        let counts = self.counts_mut(core);
        if write {
            counts.stores += 1;
        } else {
            counts.loads += 1;
        }
        counts.accesses += 1;
        let (first, last) = (self.line(physical), self.line(physical + bytes.max(1) - 1));
        let mut wait = self.data_part(core, physical, write, now);
        if last != first {
            self.cores[core].counts.crossings += 1;
            wait += self.data_part(core, last.0 << self.line_shift, write, now + wait);
        }
        wait
    }

    /// Handles the part of an access that stays in one line. The caller counts loads and stores.
    #[inline]
    pub fn data_part(&mut self, core: usize, physical: u64, write: bool, now: u64) -> u64 {
        if !self.is_cacheable(physical) {
            return self.uncached(core, physical, write, now);
        }
        let line = self.line(physical);
        match self.cores[core].l1d.access(line, write) {
            Outcome::Hit => 0,
            Outcome::Miss(evicted) => {
                self.cores[core].counts.l1d_refills += 1;
                let wait = match self.l2_data {
                    L2Data::OnMiss => self.l2_fill(core, line, now),
                    L2Data::OnEviction => self.l2_pass(core, line, now),
                };
                self.evict(core, evicted, now);
                if write { self.cores[core].buffer_store(now, wait) } else { wait }
            }
        }
    }

    fn uncached(&mut self, core: usize, physical: u64, write: bool, now: u64) -> u64 {
        let counts = &mut self.cores[core].counts;
        counts.noncacheable += 1;
        counts.bus_beats += 1;
        if write {
            let wait = self.dram.read(now, physical);
            self.cores[core].buffer_store(now, wait)
        } else {
            self.timing.l2 + self.dram.read(now, physical)
        }
    }

    /// Fetches one line of instructions. Returns the cycles that the core waits.
    #[inline]
    pub fn fetch(&mut self, core: usize, line: Line, now: u64) -> u64 {
        let cacheable = self.is_cacheable(line.0 << self.line_shift);
        let own = &mut self.cores[core];
        own.counts.fetches += 1;
        if !cacheable {
            // The fetch buffer reads a whole line each time.
            own.counts.bus_beats += (1 << self.line_shift) / BEAT;
            return self.timing.l2 + self.dram.read(now, line.0 << self.line_shift);
        }
        match own.l1i.access(line, false) {
            Outcome::Hit => 0,
            Outcome::Miss(_) => {
                own.counts.l1i_refills += 1;
                self.l2_fill(core, line, now)
            }
        }
    }

    /// Executes DC ZVA: allocates a line of zeros without reading memory.
    pub fn zero_line(&mut self, core: usize, physical: u64, now: u64) -> u64 {
        let cacheable = self.is_cacheable(physical);
        let counts = &mut self.cores[core].counts;
        counts.stores += 1;
        counts.accesses += 1;
        if !cacheable {
            // One access, whose data takes as many beats as the line has.
            counts.bus_beats += (1 << self.line_shift) / BEAT - 1;
            return self.uncached(core, physical, true, now);
        }
        let line = self.line(physical);
        if let Outcome::Miss(evicted) = self.cores[core].l1d.access(line, true) {
            self.evict(core, evicted, now);
        }
        0
    }

    /// Maintains one line by its address in the caches of all cores (inner shareable).
    pub fn maintain(&mut self, core: usize, physical: u64, what: Maintenance, now: u64) -> u64 {
        let line = self.line(physical);
        let mut dirty = false;
        for own in &mut self.cores {
            dirty |= match what {
                Maintenance::Clean | Maintenance::CleanToL2 => own.l1d.clean(line),
                Maintenance::CleanInvalidate => own.l1d.invalidate(line).is_some_and(|old| old.dirty),
                Maintenance::InvalidateInstruction => {
                    own.l1i.invalidate(line);
                    false
                }
            };
        }
        dirty |= match what {
            Maintenance::CleanToL2 => {
                if dirty {
                    self.l2_accept(core, line, true, now);
                }
                return self.timing.l2;
            }
            Maintenance::Clean => self.l2.clean(line),
            Maintenance::CleanInvalidate => self.l2.invalidate(line).is_some_and(|old| old.dirty),
            Maintenance::InvalidateInstruction => false,
        };
        if dirty {
            self.write_to_memory(core, line, now);
        }
        self.timing.l2
    }

    /// Executes IC IALLU or IC IALLUIS: empties the instruction caches of one core or of all.
    pub fn invalidate_instructions(&mut self, core: Option<usize>) {
        for (index, own) in self.cores.iter_mut().enumerate() {
            if core.is_none_or(|core| core == index) {
                own.l1i.clear();
            }
        }
    }

    #[inline]
    fn l2_fill(&mut self, core: usize, line: Line, now: u64) -> u64 {
        self.cores[core].counts.l2_fills += 1;
        match self.l2.access(line, false) {
            Outcome::Hit => self.timing.l2,
            Outcome::Miss(evicted) => {
                let counts = &mut self.cores[core].counts;
                counts.l2_refills += 1;
                counts.bus_beats += (1 << self.line_shift) / BEAT;
                let wait = self.dram.read(now, line.0 << self.line_shift);
                if let Some(Evicted { line, dirty: true }) = evicted {
                    self.write_to_memory(core, line, now);
                }
                self.timing.l2 + wait
            }
        }
    }

    /// Asks the L2 for a line of data that it takes only when the L1 evicts it.
    #[inline]
    fn l2_pass(&mut self, core: usize, line: Line, now: u64) -> u64 {
        let counts = &mut self.cores[core].counts;
        counts.l2_fills += 1;
        if self.l2.look_up(line) {
            return self.timing.l2;
        }
        counts.l2_refills += 1;
        counts.bus_beats += (1 << self.line_shift) / BEAT;
        self.timing.l2 + self.dram.read(now, line.0 << self.line_shift)
    }

    /// Handles the victim of an L1 data cache.
    #[inline]
    fn evict(&mut self, core: usize, evicted: Option<Evicted>, now: u64) {
        if let Some(Evicted { line, dirty }) = evicted
            && (dirty || self.l2_data == L2Data::OnEviction)
        {
            self.l2_accept(core, line, dirty, now);
        }
    }

    fn l2_accept(&mut self, core: usize, line: Line, dirty: bool, now: u64) {
        let counts = &mut self.cores[core].counts;
        counts.l1d_victims += 1;
        counts.l1d_writebacks += u64::from(dirty);
        if let Outcome::Miss(evicted) = self.l2.accept(line, dirty) {
            self.cores[core].counts.l2_allocations += 1;
            if let Some(Evicted { line, dirty: true }) = evicted {
                self.write_to_memory(core, line, now);
            }
        }
    }

    fn write_to_memory(&mut self, core: usize, line: Line, now: u64) {
        let counts = &mut self.cores[core].counts;
        counts.l2_writebacks += 1;
        counts.bus_beats += (1 << self.line_shift) / BEAT;
        self.dram.write(now, line.0 << self.line_shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::cache::Policy;

    /// Returns the shipped board with a memory whose every line costs the same: without refreshes and banks.
    fn zcu102() -> Hierarchy {
        let mut board = Board::zcu102();
        board.refresh.cycles = 0;
        board.banks = None;
        Hierarchy::new(&board, 2)
    }

    #[test]
    fn a_stream_refills_each_line_once() {
        let mut caches = zcu102();
        let waits: u64 = (0..1000).map(|line| caches.data(0, line * 64, 8, false, 0)).sum();
        let timing = Board::zcu102().timing;
        assert!(waits >= 1000 * (timing.l2 + timing.dram));
        let counts = *caches.counts(0);
        assert_eq!((counts.l1d_refills, counts.l2_refills, counts.bus_beats), (1000, 1000, 4000));
        assert_eq!(Event::L2D_CACHE.count(&counts, 0), 2000 - 512, "512 lines are still in the L1");
        assert_eq!(caches.counts(1), &Counts::default());
    }

    #[test]
    fn stores_wait_only_when_their_buffer_is_full() {
        let mut caches = zcu102();
        let timing = Board::zcu102().timing;
        let fill = timing.l2 + timing.dram;
        let waits: Vec<u64> =
            (0..=timing.store_linefills as u64).map(|line| caches.data(0, line * 64, 8, true, 10)).collect();
        let (last, free) = waits.split_last().expect("some");
        assert!(free.iter().all(|wait| *wait == 0), "{free:?}");
        assert_eq!(*last, fill, "the first line is there after that time");
        assert_eq!(caches.data(0, 0, 8, true, 10), 0, "its line has come to L1");
    }

    #[test]
    fn an_access_over_the_end_of_a_line_is_two() {
        let mut caches = zcu102();
        caches.data(0, 60, 8, false, 0);
        let counts = *caches.counts(0);
        assert_eq!((counts.loads, counts.l1d_refills), (1, 2));
        assert_eq!(Event::L1D_CACHE.count(&counts, 0), 2);
    }

    #[test]
    fn non_cacheable_pages_leave_no_trace() {
        let mut caches = zcu102();
        caches.set_cacheable(0x1000, 1, false);
        for _ in 0..3 {
            assert!(caches.data(0, 0x1040, 8, false, 0) > 0);
        }
        assert_eq!((caches.counts(0).noncacheable, caches.counts(0).l1d_refills), (3, 0));
        caches.set_cacheable(0x1000, 4096, true);
        caches.data(0, 0x1040, 8, false, 0);
        assert_eq!(caches.data(0, 0x1040, 8, false, 0), 0);
        caches.set_cacheable(u64::MAX - 8192, u64::MAX, false);
        assert!(caches.is_cacheable(u64::MAX - 4096), "no core can address it");
    }

    /// A budget of bus accesses bounds what a budget of refills does not see.
    #[test]
    fn all_traffic_is_on_the_bus_and_little_of_it_is_a_refill() {
        let lines = 1000;
        let counts = |what: &dyn Fn(&mut Hierarchy, u64) -> u64| {
            let mut caches = zcu102();
            caches.set_cacheable(0, 4096, false);
            let _waits: u64 = (0..lines).map(|line| what(&mut caches, line)).sum();
            let counts = *caches.counts(0);
            (Event::L2D_CACHE_REFILL.count(&counts, 0), Event::BUS_ACCESS.count(&counts, 0))
        };
        let past = |write| counts(&|caches, _| caches.data(0, 0x40, 8, write, 0));
        assert_eq!((past(false), past(true)), ((0, lines), (0, lines)), "non-cacheable loads and stores");
        let zeroed = counts(&|caches, line| {
            caches.zero_line(0, 4096 + line * 64, 0);
            caches.maintain(0, 4096 + line * 64, Maintenance::CleanInvalidate, 0)
        });
        assert_eq!(zeroed, (0, 4 * lines), "DC ZVA, then DC CIVAC");
        let past = counts(&|caches, _| caches.zero_line(0, 0x40, 0));
        assert_eq!(past, (0, 4 * lines), "DC ZVA of a non-cacheable line");
        let filled = counts(&|caches, line| caches.data(0, 4096 + line * 64, 8, false, 0));
        assert_eq!(filled, (lines, 4 * lines), "loads");
    }

    #[test]
    fn disjoint_colors_keep_each_other_out() {
        let mut board = Board::zcu102();
        for level in [&mut board.l1d, &mut board.l2] {
            level.policy = Policy::Lru;
        }
        let mut caches = Hierarchy::new(&board, 2);
        let page = |color: u64, at: u64| (at * 16 + color) * 4096;
        let pass = |caches: &mut Hierarchy, core, color, pages| {
            for at in 0..pages {
                for line in 0..64 {
                    caches.data(core, page(color, at) + line * 64, 8, true, 0);
                }
            }
        };
        pass(&mut caches, 0, 3, 16);
        pass(&mut caches, 1, 4, 100);
        let before = caches.counts(0).l2_refills;
        pass(&mut caches, 0, 3, 16);
        assert_eq!(caches.counts(0).l2_refills, before, "64 KiB in its color stay in the L2");
        pass(&mut caches, 1, 3, 100);
        pass(&mut caches, 0, 3, 16);
        // The last 256 of its 1024 lines were dirty in its L1 and return to the L2 as victims, which reads nothing.
        assert_eq!(caches.counts(0).l2_refills, before + 768, "rivals in the same color take the rest");
    }

    /// The Cortex-A53's rule for its L2 (TRM, section 7.6), and what L2D_CACHE counts by it.
    #[test]
    fn data_comes_to_the_l2_on_eviction_and_instructions_on_fetch() {
        let l2 = |data, fetch: bool| {
            let mut board = Board::zcu102();
            board.l2_data = data;
            let mut caches = Hierarchy::new(&board, 1);
            let mut at = |line: u64| match fetch {
                true => caches.fetch(0, Line(line), 0),
                false => caches.data(0, line * 64, 8, false, 0),
            };
            // Twice over 128 KiB: misses all in the L1.
            let waits: Vec<u64> = (0..2).map(|_| (0..2048).map(&mut at).sum()).collect();
            let counts = *caches.counts(0);
            assert!(waits[1] < waits[0] / 4, "the second pass hits the L2: {waits:?}");
            (Event::L2D_CACHE.count(&counts, 0), caches.l2.len(), counts.l2_refills)
        };
        assert_eq!(l2(L2Data::OnEviction, false), (2 * 4096 - 512, 2048, 2048), "lookups and evictions");
        assert_eq!(l2(L2Data::OnMiss, false), (4096, 2048, 2048), "lookups; nothing is dirty");
        for data in [L2Data::OnEviction, L2Data::OnMiss] {
            assert_eq!(l2(data, true), (4096, 2048, 2048), "each line of instructions once");
        }
    }

    #[test]
    fn what_is_only_in_an_l1_is_not_in_the_l2() {
        let mut caches = zcu102();
        caches.data(0, 0, 8, true, 0);
        assert!(caches.l2.is_empty());
        caches.maintain(0, 0, Maintenance::CleanToL2, 0);
        assert!(caches.l2.contains(Line(0)));
        caches.maintain(0, 0, Maintenance::CleanInvalidate, 0);
        assert!(caches.l2.is_empty());
    }

    #[test]
    fn maintenance_writes_dirty_lines_once() {
        let mut caches = zcu102();
        caches.data(0, 0, 8, true, 0);
        caches.maintain(1, 0, Maintenance::Clean, 0);
        caches.maintain(1, 0, Maintenance::CleanInvalidate, 0);
        assert_eq!(caches.counts(1).l2_writebacks, 1);
        caches.data(0, 0, 8, false, 0);
        assert_eq!(caches.counts(0).l2_refills, 2, "it left both caches");
    }

    #[test]
    fn cleaning_for_instructions_ends_at_the_l2() {
        let mut caches = zcu102();
        for line in 0..64 {
            caches.data(0, line * 64, 8, true, 0);
        }
        let before = caches.counts(0).bus_beats;
        for line in 0..64 {
            caches.maintain(0, line * 64, Maintenance::CleanToL2, 0);
        }
        let counts = *caches.counts(0);
        assert_eq!((counts.l1d_writebacks, counts.l2_writebacks, counts.bus_beats - before), (64, 0, 0));
        caches.maintain(0, 0, Maintenance::Clean, 0);
        assert_eq!(caches.counts(0).l2_writebacks, 1, "it was dirty in the L2");
    }

    #[test]
    fn zeroing_a_line_reads_nothing() {
        let mut caches = zcu102();
        assert_eq!(caches.zero_line(0, 0x40, 0), 0);
        assert_eq!((caches.counts(0).l2_refills, caches.counts(0).stores), (0, 1));
        assert_eq!(caches.data(0, 0x40, 8, false, 0), 0);
    }
}
