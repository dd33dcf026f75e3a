//! The path of an access: L1, shared L2, memory.
//!
//! The L1 data caches are coherent: a line that is dirty in one of them is in no other one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::{Board, L2Data, Timing};
use crate::cache::{Cache, Direction, Evicted, Outcome};
use crate::cluster::Cluster;
use crate::dram::Dram;
use crate::events::Counts;
use crate::geometry::Line;
use crate::prefetch::{Flights, Prefetcher};
use crate::streaming::{Destination, Writes, Written};

/// Bytes in a page of stage 2.
pub const PAGE: u64 = 4096;
/// Returns log2 of the lines in a page, from that of the bytes in a line.
const fn page_shift(line_shift: u32) -> u32 {
    PAGE.trailing_zeros() - line_shift
}
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
        self.0
            .get((page / 64) as usize)
            .is_some_and(|word| word >> (page % 64) & 1 != 0)
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
    /// DC CVAU: a line that is dirty in an L1 is written to the L2, where instructions and data
    /// meet, and stays in the L1.
    CleanToL2,
    /// DC CIVAC, DC CISW: a dirty line is written to memory, and the line is removed. Also DC IVAC,
    /// as an A53 implements it under a hypervisor.
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
    /// Lines on the way to the L1 data cache, and to the L1 instruction cache.
    data_flights: Flights,
    fetch_flights: Flights,
    prefetcher: Prefetcher,
    /// The first line after those that execution has reached.
    next_fetch: u64,
    writes: Writes,
    counts: Counts,
}

impl Core {
    /// Puts a store whose line takes `wait` cycles into the store buffer. Returns how long the core
    /// waits because the buffer is full.
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
    cluster: Cluster,
    dram: Dram,
    timing: Timing,
    line_shift: u32,
    noncacheable: Pages,
    /// Lines of instructions that are prefetched.
    next_lines: u64,
    /// Accesses wait for lines that are on the way.
    overlaps: bool,
    /// Cores look into each other's L1 data caches.
    coherent: bool,
    /// The cores whose L1 data cache has lost a line to another core, or the right to write it, a
    /// bit each.
    disturbed: u32,
    /// The cores whose L1 data cache has held a line since all caches were empty, a bit each:
    /// others need not look there.
    used: u32,
}

impl Hierarchy {
    /// Creates empty caches for a board.
    pub fn new(board: &Board, cores: usize) -> Self {
        let core = Core {
            l1i: board.l1i.cache(),
            l1d: board.l1d.cache(),
            stores: vec![0; board.timing.store_linefills],
            next_store: 0,
            data_flights: Flights::NONE,
            fetch_flights: Flights::NONE,
            prefetcher: Prefetcher::new(
                board.prefetch.data,
                page_shift(board.l1d.geometry.line_bytes().trailing_zeros()),
            ),
            next_fetch: u64::MAX,
            writes: Writes::new(board.streaming),
            counts: Counts::default(),
        };
        let dram = Dram::new(
            board.timing.dram,
            board.timing.dram_line,
            board.refresh,
            board.banks,
        )
        .with_chip(board.on_chip);
        Self {
            cores: vec![core; cores],
            l2: board.l2.cache(),
            l2_data: board.l2_data,
            cluster: Cluster::new(board.l2_limits, cores, dram.latency()),
            dram,
            timing: board.timing,
            line_shift: board.l2.geometry.line_bytes().trailing_zeros(),
            noncacheable: Pages::default(),
            next_lines: board.prefetch.instructions,
            overlaps: board.overlaps(),
            coherent: board.timing.snoop > 0 && cores > 1,
            disturbed: 0,
            used: 0,
        }
    }

    /// Returns a bit for each core that has lost a line, or the right to write one, to another core
    /// since the last call.
    #[inline]
    pub const fn disturbed(&mut self) -> u32 {
        std::mem::replace(&mut self.disturbed, 0)
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
    /// Returns the counts of a core, so that events outside the caches can be added.
    #[inline]
    pub fn counts_mut(&mut self, core: usize) -> &mut Counts {
        &mut self.cores[core].counts
    }
    /// Tells the memory that the model is turned on at time `now`.
    pub fn begin(&mut self, now: u64) {
        self.dram.begin(now);
        self.cluster.begin(now);
        for core in &mut self.cores {
            core.data_flights = Flights::NONE;
            core.fetch_flights = Flights::NONE;
            core.prefetcher.clear();
        }
    }
    /// Empties all caches.
    pub fn make_cold(&mut self) {
        for core in &mut self.cores {
            core.l1i.clear();
            core.l1d.clear();
            core.data_flights = Flights::NONE;
            core.fetch_flights = Flights::NONE;
            core.prefetcher.clear();
            core.next_fetch = u64::MAX;
        }
        self.used = 0;
        self.l2.clear();
    }

    /// Sets whether stage 2 makes a range of physical pages cacheable.
    pub fn set_cacheable(&mut self, physical: u64, bytes: u64, cacheable: bool) {
        self.noncacheable.set(
            physical / PAGE..physical.saturating_add(bytes).div_ceil(PAGE),
            !cacheable,
        );
    }
    /// Returns whether a physical address is cacheable.
    #[inline]
    pub fn is_cacheable(&self, physical: u64) -> bool {
        !self.noncacheable.contains(physical / PAGE)
    }

    /// Loads or stores `bytes` at a physical address. Returns the cycles that the core waits. An
    /// access across the end of a line counts as two.
    pub fn data(
        &mut self,
        core: usize,
        physical: u64,
        bytes: u64,
        direction: Direction,
        now: u64,
    ) -> u64 {
        let counts = self.counts_mut(core);
        if direction == Direction::Write {
            counts.stores += 1;
        } else {
            counts.loads += 1;
        }
        counts.accesses += 1;
        let (first, last) = (self.line(physical), self.line(physical + bytes.max(1) - 1));
        let mut wait = self.data_part(core, physical, direction, now);
        if last != first {
            self.cores[core].counts.crossings += 1;
            wait += self.data_part(core, last.0 << self.line_shift, direction, now + wait);
        }
        wait
    }

    /// Handles the part of an access that stays in one line. The caller counts loads and stores.
    #[inline]
    pub fn data_part(&mut self, core: usize, physical: u64, direction: Direction, now: u64) -> u64 {
        if !self.is_cacheable(physical) {
            return self.uncached(core, physical, direction, now);
        }
        let line = self.line(physical);
        if self.cores[core].writes.is_on() {
            return self.streamable(core, line, direction, now);
        }
        let (wait, missed) = self.access_line(core, line, direction, now);
        if direction == Direction::Write {
            self.store(core, missed, now, wait)
        } else {
            wait
        }
    }

    /// Returns how long a core waits for a store. One whose line is there, or on the way, waits for
    /// nothing.
    fn store(&mut self, core: usize, missed: bool, now: u64, wait: u64) -> u64 {
        if missed {
            self.cores[core].buffer_store(now, wait)
        } else {
            0
        }
    }

    /// Handles an access to a line that may be being streamed.
    fn streamable(&mut self, core: usize, line: Line, direction: Direction, now: u64) -> u64 {
        let own = &mut self.cores[core];
        let writes = &mut own.writes;
        if direction == Direction::Read {
            let stall = if writes.is_streaming(line) {
                self.end_line(core, false, now)
            } else {
                0
            };
            return stall + self.access_line(core, line, Direction::Read, now + stall).0;
        }
        if writes.is_streaming(line) {
            return 0;
        }
        let begins = !writes.is_writing(line);
        if begins && writes.streams() && !own.l1d.contains(line) {
            writes.begin(line, None);
            if self.coherent {
                self.take(core, line, now);
            }
            return 0;
        }
        let (wait, missed) = self.access_line(core, line, Direction::Write, now);
        if begins {
            self.cores[core]
                .writes
                .begin(line, Some(if wait > 0 { now + wait } else { 0 }));
        }
        self.store(core, missed, now, wait)
    }

    /// Ends the line that a core writes, before it writes to another one: `whole` says whether it
    /// wrote all of its bytes. Returns the cycles that the core waits.
    pub fn end_line(&mut self, core: usize, whole: bool, now: u64) -> u64 {
        match self.cores[core].writes.end(whole, now) {
            Written::Allocated => 0,
            Written::Part(line) => {
                let (wait, missed) = self.access_line(core, line, Direction::Write, now);
                self.store(core, missed, now, wait)
            }
            Written::Whole(line, destination) => {
                let counts = &mut self.cores[core].counts;
                counts.streamed += 1;
                let moved = self.cluster.transfer(core, now) + self.cluster.look_up(now);
                if destination == Destination::L2 || self.l2.contains(line) {
                    return moved.max(self.l2_take(core, line, true, now));
                }
                self.cores[core].counts.bus_writes += (1 << self.line_shift) / BEAT;
                moved.max(self.dram_write(line, now))
            }
        }
    }

    /// Looks a line up in a core's L1 data cache, and brings it there. Returns the cycles until it
    /// is there, and whether it was neither there nor on the way.
    #[inline]
    fn access_line(
        &mut self,
        core: usize,
        line: Line,
        direction: Direction,
        now: u64,
    ) -> (u64, bool) {
        if self.coherent
            && direction == Direction::Write
            && self.cores[core].l1d.state(line) == Some(false)
        {
            self.take(core, line, now);
        }
        let own = &mut self.cores[core];
        let outcome = own.l1d.access(line, direction);
        let wait = match outcome {
            Outcome::Hit => own.data_flights.wait(line, now),
            Outcome::Miss(evicted) => {
                own.counts.l1d_refills += 1;
                let wait = self.fill(core, line, direction, now);
                self.evict(core, evicted, now);
                if self.overlaps {
                    self.cores[core].data_flights.add(line, now + wait);
                }
                wait
            }
        };
        let missed = outcome != Outcome::Hit;
        if self.cores[core].prefetcher.is_on() {
            self.prefetch(core, line, missed, now);
        }
        (wait, missed)
    }

    /// Lets the prefetcher see an access to a line, and fetches what it asks for.
    fn prefetch(&mut self, core: usize, line: Line, missed: bool, now: u64) {
        let prefetcher = &mut self.cores[core].prefetcher;
        let expected = prefetcher.reach(line);
        let Some(stream) = expected.or_else(|| if missed { prefetcher.miss(line) } else { None })
        else {
            return;
        };
        while let Some(ahead) = self.cores[core].prefetcher.fetch(stream, now) {
            if self.cores[core].l1d.contains(ahead) {
                continue;
            }
            let wait = self.fill(core, ahead, Direction::Read, now);
            let own = &mut self.cores[core];
            own.counts.prefetches += 1;
            own.prefetcher.arrives(now + wait);
            own.data_flights.add(ahead, now + wait);
            let evicted = own.l1d.fill(ahead, false);
            self.evict(core, evicted, now);
        }
    }

    /// Returns the other cores whose L1 data caches may hold lines.
    #[inline]
    fn others(&self, core: usize) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.used & !(1 << core);
        std::iter::from_fn(move || {
            let other = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(other)
        })
    }

    /// Removes a line from the L1 data caches of all other cores, before a core writes it. Returns
    /// whether it was in one.
    fn take(&mut self, core: usize, line: Line, now: u64) -> bool {
        let mut found = false;
        for other in self.others(core) {
            if let Some(old) = self.cores[other].l1d.invalidate(line) {
                found = true;
                self.disturbed |= 1 << other;
                if old.dirty {
                    self.l2_accept(other, line, true, now);
                }
            }
        }
        found
    }

    /// Looks for a line in the L1 data caches of all other cores. Returns the cycles until it is
    /// there.
    #[inline]
    fn snoop(&mut self, core: usize, line: Line, direction: Direction, now: u64) -> Option<u64> {
        let mut found = None;
        for other in self.others(core) {
            if let Some(dirty) = self.cores[other].l1d.state(line) {
                found = Some((other, dirty));
            }
        }
        let (owner, dirty) = found?;
        if direction == Direction::Write {
            self.take(core, line, now);
        } else if dirty {
            self.cores[owner].l1d.clean(line);
            self.disturbed |= 1 << owner;
            self.l2_accept(owner, line, true, now);
        }
        // The L2 is asked at the same time, and answers if it has the line and no L1 has written
        // it.
        if !dirty && self.l2.contains(line) {
            return None;
        }
        let counts = &mut self.cores[core].counts;
        counts.l2_fills += 1;
        counts.snoops += 1;
        let began = self.cluster.look_up(now);
        Some(self.arrive(core, now, began + self.timing.snoop))
    }

    /// Brings a line of data from another L1, the L2 or from memory. Returns the cycles until it is
    /// there.
    #[inline]
    fn fill(&mut self, core: usize, line: Line, direction: Direction, now: u64) -> u64 {
        self.used |= 1 << core;
        if self.coherent
            && let Some(wait) = self.snoop(core, line, direction, now)
        {
            return wait;
        }
        match self.l2_data {
            L2Data::OnMiss => self.l2_fill(core, line, now),
            L2Data::OnEviction => self.l2_pass(core, line, now),
        }
    }

    fn uncached(&mut self, core: usize, physical: u64, direction: Direction, now: u64) -> u64 {
        let counts = &mut self.cores[core].counts;
        counts.noncacheable += 1;
        match direction {
            Direction::Write => {
                counts.bus_writes += 1;
                let wait = self.dram.read(now, physical);
                self.cores[core].buffer_store(now, wait)
            }
            Direction::Read => {
                counts.bus_reads += 1;
                self.timing.l2 + self.dram.read(now, physical)
            }
        }
    }

    /// Reads a descriptor for a walk of translation tables. A cacheable one is looked up in the L1
    /// data cache like a load, but no prefetcher sees it, and the events of loads do not count
    /// it. Returns the cycles until it is there.
    pub fn walk_read(&mut self, core: usize, physical: u64, cacheable: bool, now: u64) -> u64 {
        self.cores[core].counts.walk_reads += 1;
        if !cacheable || !self.is_cacheable(physical) {
            self.cores[core].counts.bus_reads += 1;
            return self.timing.l2 + self.dram.read(now, physical);
        }
        let line = self.line(physical);
        let own = &mut self.cores[core];
        let wait = match own.l1d.access(line, Direction::Read) {
            Outcome::Hit => own.data_flights.wait(line, now),
            Outcome::Miss(evicted) => {
                own.counts.walk_refills += 1;
                let wait = self.fill(core, line, Direction::Read, now);
                self.evict(core, evicted, now);
                if self.overlaps {
                    self.cores[core].data_flights.add(line, now + wait);
                }
                wait
            }
        };
        wait + self.timing.load_to_use
    }

    /// Fetches one line of instructions. Returns the cycles that the core waits.
    #[inline]
    pub fn fetch(&mut self, core: usize, line: Line, now: u64) -> u64 {
        let cacheable = self.is_cacheable(line.0 << self.line_shift);
        let own = &mut self.cores[core];
        own.counts.fetches += 1;
        if !cacheable {
            // The fetch buffer reads a whole line each time.
            own.counts.bus_reads += (1 << self.line_shift) / BEAT;
            return self.timing.l2 + self.dram.read(now, line.0 << self.line_shift);
        }
        let wait = match own.l1i.access(line, Direction::Read) {
            Outcome::Hit if self.next_lines == 0 => return 0,
            Outcome::Hit => own.fetch_flights.wait(line, now),
            Outcome::Miss(_) => {
                own.counts.l1i_refills += 1;
                let wait = self.l2_fill(core, line, now);
                if self.next_lines > 0 {
                    self.fetch_next(core, line, now);
                }
                return wait;
            }
        };
        if line.0.wrapping_sub(own.next_fetch) < self.next_lines {
            self.fetch_next(core, line, now);
        }
        wait
    }

    /// Prefetches the lines of instructions after one, up to the end of its page.
    fn fetch_next(&mut self, core: usize, line: Line, now: u64) {
        self.cores[core].next_fetch = line.0 + 1;
        let page_shift = page_shift(self.line_shift);
        let page = line.0 >> page_shift;
        for next in
            (line.0 + 1..=line.0 + self.next_lines).take_while(|next| next >> page_shift == page)
        {
            let next = Line(next);
            let own = &mut self.cores[core];
            if own.l1i.contains(next) {
                continue;
            }
            own.l1i.access(next, Direction::Read);
            own.counts.l1i_refills += 1;
            let wait = self.l2_fill(core, next, now);
            self.cores[core].fetch_flights.add(next, now + wait);
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
            counts.bus_writes += (1 << self.line_shift) / BEAT - 1;
            return self.uncached(core, physical, Direction::Write, now);
        }
        let line = self.line(physical);
        if self.coherent {
            self.take(core, line, now);
        }
        self.used |= 1 << core;
        if let Outcome::Miss(evicted) = self.cores[core].l1d.access(line, Direction::Write) {
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
                Maintenance::CleanInvalidate => {
                    own.l1d.invalidate(line).is_some_and(|old| old.dirty)
                }
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
        let began = self.cluster.look_up(now);
        let wait = match self.l2.access(line, Direction::Read) {
            Outcome::Hit => self.timing.l2,
            Outcome::Miss(evicted) => {
                let counts = &mut self.cores[core].counts;
                counts.l2_refills += 1;
                counts.bus_reads += (1 << self.line_shift) / BEAT;
                let wait = self.dram.read(now + began, line.0 << self.line_shift);
                if let Some(Evicted { line, dirty: true }) = evicted {
                    self.write_to_memory(core, line, now + began);
                }
                self.timing.l2 + wait
            }
        };
        self.arrive(core, now, began + wait)
    }

    /// Lets a core's path to the L2 take a line that is there `wait` cycles from now. Returns the
    /// cycles until it arrives.
    #[inline]
    fn arrive(&mut self, core: usize, now: u64, wait: u64) -> u64 {
        wait + self.cluster.transfer(core, now + wait)
    }

    /// Asks the L2 for a line of data that it takes only when the L1 evicts it.
    #[inline]
    fn l2_pass(&mut self, core: usize, line: Line, now: u64) -> u64 {
        let counts = &mut self.cores[core].counts;
        counts.l2_fills += 1;
        let began = self.cluster.look_up(now);
        let mut wait = began + self.timing.l2;
        if !self.l2.look_up(line) {
            counts.l2_refills += 1;
            counts.bus_reads += (1 << self.line_shift) / BEAT;
            wait += self.dram.read(now + began, line.0 << self.line_shift);
        }
        self.arrive(core, now, wait)
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
        // Others wait for its path and its lookup only.
        self.cluster.transfer(core, now);
        self.cluster.look_up(now);
        self.l2_take(core, line, dirty, now);
    }

    /// Allocates a line in the L2 that is there as a whole. Returns how long who does so without
    /// end must wait.
    fn l2_take(&mut self, core: usize, line: Line, dirty: bool, now: u64) -> u64 {
        if let Outcome::Miss(evicted) = self.l2.accept(line, dirty) {
            self.cores[core].counts.l2_allocations += 1;
            if let Some(Evicted { line, dirty: true }) = evicted {
                return self.write_to_memory(core, line, now);
            }
        }
        0
    }

    fn write_to_memory(&mut self, core: usize, line: Line, now: u64) -> u64 {
        let counts = &mut self.cores[core].counts;
        counts.l2_writebacks += 1;
        counts.bus_writes += (1 << self.line_shift) / BEAT;
        self.dram_write(line, now)
    }

    /// Writes a line to memory. Returns how long who does so without end must wait.
    fn dram_write(&mut self, line: Line, now: u64) -> u64 {
        let (dram, address) = (&mut self.dram, line.0 << self.line_shift);
        self.cluster.write(now, |now| dram.write(now, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::board::Prefetch;
    use crate::cache::Policy;
    use crate::cluster::L2Limits;
    use crate::streaming::Streaming;
    use proptest::prelude::*;

    /// Returns the shipped board with a memory whose every line costs the same: without refreshes
    /// and banks.
    fn flat() -> Board {
        let mut board = Board::zcu102();
        board.refresh.cycles = 0;
        board.banks = None;
        board
    }
    /// Returns its caches, with cores that wait for each line.
    fn zcu102() -> Hierarchy {
        Hierarchy::new(&flat().simple(), 2)
    }
    /// Returns the cycles of loads of lines one after the other, `work` cycles apart.
    fn walk(caches: &mut Hierarchy, lines: impl Iterator<Item = u64>, work: u64) -> u64 {
        lines.fold(0, |now, line| {
            now + work + caches.data(0, line * 64, 8, Direction::Read, now)
        })
    }

    #[test]
    fn a_prefetched_stream_waits_for_what_is_left_and_counts_no_refills() {
        let board = Board {
            streaming: Streaming::NONE,
            ..flat()
        };
        let fill = board.timing.l2 + board.timing.dram;
        let run = |board: &Board| {
            let mut caches = Hierarchy::new(board, 1);
            let cycles = walk(&mut caches, 0..640, 8);
            (cycles, *caches.counts(0))
        };
        let (on, off) = (run(&board), run(&board.clone().simple()));
        assert_eq!(off.0, 640 * (fill + 8));
        assert!(on.0 < off.0 / 4, "{} and {} cycles", on.0, off.0);
        assert_eq!(
            (on.1.l2_refills, off.1.l2_refills),
            (640, 640),
            "the same lines"
        );
        // In each page of 64 lines, three misses start the stream.
        assert_eq!(
            (on.1.l1d_refills, on.1.prefetches, off.1.l1d_refills),
            (30, 610, 640)
        );
        // All loads of lines four pages apart miss.
        let mut caches = Hierarchy::new(&board, 1);
        assert_eq!(
            walk(&mut caches, (0..100).map(|at| at * 256), 8),
            100 * (fill + 8)
        );
    }

    #[test]
    fn a_stream_from_the_l2_gets_as_many_lines_as_its_path_has_room_for() {
        let pass = |l2_limits| {
            let mut caches = Hierarchy::new(
                &Board {
                    streaming: Streaming::NONE,
                    l2_limits,
                    ..flat()
                },
                1,
            );
            let mut now = 0;
            let mut cycles = 0;
            for _ in 0..2 {
                let start = now;
                for line in 0..2048 {
                    now += 1 + caches.data(0, line * 64, 8, Direction::Read, now);
                }
                cycles = now - start;
            }
            cycles as f64 / 2048.0
        };
        let (free, limited) = (pass(L2Limits::NONE), pass(Board::zcu102().l2_limits));
        // A line that comes, and one that goes, of 4 cycles each.
        assert!(
            free < 5.0 && (7.9..8.8).contains(&limited),
            "{free} and {limited} cycles a line"
        );
    }

    #[test]
    fn cores_delay_each_other_in_the_l2_whatever_their_lines() {
        let pass = |cores: usize| {
            let l2_limits = L2Limits {
                lookup: 4,
                ..L2Limits::NONE
            };
            let mut caches = Hierarchy::new(
                &Board {
                    l2_limits,
                    ..flat().simple()
                },
                4,
            );
            let mut now = [0; 4];
            let mut filled = 0;
            for _ in 0..2 {
                filled = now[0];
                for line in 0..1024 {
                    for (core, now) in now[..cores].iter_mut().enumerate() {
                        *now += 1 + caches.data(
                            core,
                            (core as u64 * 1024 + line) * 64,
                            8,
                            Direction::Read,
                            *now,
                        );
                    }
                }
            }
            now[0] - filled
        };
        assert!(pass(4) > pass(1) * 11 / 10, "{} and {}", pass(4), pass(1));
    }

    #[test]
    fn the_next_line_of_instructions_is_on_its_way() {
        let run = |lines| {
            let mut board = flat().simple();
            board.prefetch.instructions = lines;
            let mut caches = Hierarchy::new(&board, 1);
            let mut pass =
                || (0..1024).fold(0, |now, line| now + 16 + caches.fetch(0, Line(line), now));
            // The second pass misses the L1 and hits the L2.
            let cycles = [pass(), pass()];
            (cycles, caches.counts(0).l1i_refills)
        };
        let ((off, all), (on, same)) = (run(0), run(1));
        let timing = flat().timing;
        assert_eq!(
            off,
            [
                1024 * (16 + timing.l2 + timing.dram),
                1024 * (16 + timing.l2)
            ]
        );
        assert!(
            on[0] < off[0] * 6 / 10 && on[1] < 1024 * 17,
            "{on:?} and {off:?}"
        );
        assert_eq!(
            (all, same),
            (2048, 2048),
            "each line counts, by prefetching or not"
        );
    }

    #[test]
    fn a_line_is_dirty_in_one_l1_at_most_and_comes_from_there() {
        let (prefetch, streaming, l2_limits) = (Prefetch::NONE, Streaming::NONE, L2Limits::NONE);
        let board = Board {
            prefetch,
            streaming,
            l2_limits,
            ..flat()
        };
        let timing = board.timing;
        let mut caches = Hierarchy::new(&board, 2);
        let fill = timing.l2 + timing.dram;
        assert_eq!(caches.data(0, 0, 8, Direction::Read, 0), fill);
        assert_eq!(
            caches.data(1, 0, 8, Direction::Read, 1000),
            timing.snoop,
            "clean, and not in the L2"
        );
        assert_eq!(caches.disturbed(), 0, "both may read it");
        assert_eq!(
            (
                caches.data(0, 0, 8, Direction::Write, 2000),
                caches.disturbed()
            ),
            (0, 0b10),
            "core 1 lost it"
        );
        assert_eq!(
            (
                caches.data(0, 0, 8, Direction::Write, 2000),
                caches.disturbed()
            ),
            (0, 0),
            "it has it alone"
        );
        assert_eq!(
            (
                caches.data(1, 0, 8, Direction::Read, 3000),
                caches.disturbed()
            ),
            (timing.snoop, 0b01),
            "dirty"
        );
        assert_eq!(
            (
                caches.data(0, 0, 8, Direction::Read, 4000),
                caches.disturbed()
            ),
            (0, 0),
            "and it kept a copy"
        );
        caches.data(1, 0, 8, Direction::Write, 5000);
        assert_eq!(
            caches.data(0, 0, 8, Direction::Read, 6000),
            timing.snoop,
            "the L2's is old"
        );
        let counts = [0, 1].map(|core| *caches.counts(core));
        assert_eq!(
            counts.map(|counts| (counts.l1d_refills, counts.l2_refills, counts.snoops)),
            [(2, 1, 1), (2, 0, 2)]
        );
        // Not coherent: both write.
        let mut caches = Hierarchy::new(&board.simple(), 2);
        for at in 0..6 {
            caches.data(at % 2, 0, 8, Direction::Write, 1000 * at as u64);
        }
        assert_eq!([0, 1].map(|core| caches.counts(core).l1d_refills), [1, 1]);
    }

    proptest! {
        /// What only looks where a line can be finds each one: whatever the cores do, a line that
        /// is dirty in an L1 is in no other one.
        #[test]
        fn no_core_is_overlooked(steps in prop::collection::vec((0..6, 0..4usize, 0..24u64), 1..300)) {
            let mut caches = Hierarchy::new(&flat(), 4);
            for (at, (step, core, line)) in steps.into_iter().enumerate() {
                let (now, physical) = (at as u64 * 50, line * 4096);
                match step {
                    0 => _ = caches.data(core, physical, 8, Direction::Read, now),
                    1 => _ = caches.data(core, physical, 8, Direction::Write, now),
                    2 => _ = caches.walk_read(core, physical, true, now),
                    3 => _ = caches.zero_line(core, physical, now),
                    4 => _ = caches.maintain(core, physical, Maintenance::CleanInvalidate, now),
                    _ if at % 16 == 0 => caches.make_cold(),
                    _ => {}
                }
                let used = caches.used;
                prop_assert!(caches.cores.iter().enumerate().all(|(core, own)| own.l1d.is_empty() || used >> core & 1 == 1));
                for line in (0..24).map(|line| caches.line(line * 4096)) {
                    let states: Vec<bool> = caches.cores.iter().filter_map(|core| core.l1d.state(line)).collect();
                    prop_assert!(states.len() <= 1 || !states.contains(&true), "{:?}: {:?}", line, states);
                }
            }
        }
    }

    #[test]
    fn whole_lines_are_written_without_being_read() {
        let run = |whole: bool, work: u64| {
            let board = flat();
            let mut caches = Hierarchy::new(
                &Board {
                    prefetch: Prefetch::NONE,
                    ..board
                },
                1,
            );
            let mut now = 0;
            for line in 0..1000u64 {
                now += caches.data_part(0, line * 64, Direction::Write, now) + work;
                now += caches.end_line(0, whole, now);
            }
            *caches.counts(0)
        };
        let whole = run(true, 7);
        assert_eq!(
            (whole.l1d_refills, whole.l2_refills, whole.streamed),
            (3, 3, 997)
        );
        // From the 128th line on, each is on the bus once.
        assert_eq!(
            (whole.bus_reads, whole.bus_writes),
            (4 * 3, 4 * (1000 - 127))
        );
        for (counts, what) in [
            (run(false, 7), "in part"),
            (run(true, 400), "more slowly than it is read"),
        ] {
            assert_eq!((counts.l1d_refills, counts.streamed), (1000, 0), "{what}");
        }
    }

    #[test]
    fn a_stream_refills_each_line_once() {
        let mut caches = zcu102();
        let waits: u64 = (0..1000)
            .map(|line| caches.data(0, line * 64, 8, Direction::Read, 0))
            .sum();
        let timing = Board::zcu102().timing;
        assert!(waits >= 1000 * (timing.l2 + timing.dram));
        let counts = *caches.counts(0);
        assert_eq!(
            (counts.l1d_refills, counts.l2_refills, counts.bus_reads),
            (1000, 1000, 4000)
        );
        assert_eq!(
            Event::L2D_CACHE.count(&counts, 0),
            2000 - 512,
            "512 lines are still in the L1"
        );
        assert_eq!(caches.counts(1), &Counts::default());
    }

    #[test]
    fn stores_wait_only_when_their_buffer_is_full() {
        let mut caches = zcu102();
        let timing = Board::zcu102().timing;
        let fill = timing.l2 + timing.dram;
        let waits: Vec<u64> = (0..=timing.store_linefills as u64)
            .map(|line| caches.data(0, line * 64, 8, Direction::Write, 10))
            .collect();
        let (last, free) = waits.split_last().expect("some");
        assert!(free.iter().all(|wait| *wait == 0), "{free:?}");
        assert_eq!(*last, fill, "the first line is there after that time");
        assert_eq!(
            caches.data(0, 0, 8, Direction::Write, 10),
            0,
            "its line is in the L1"
        );
    }

    #[test]
    fn an_access_over_the_end_of_a_line_is_two() {
        let mut caches = zcu102();
        caches.data(0, 60, 8, Direction::Read, 0);
        let counts = *caches.counts(0);
        assert_eq!((counts.loads, counts.l1d_refills), (1, 2));
        assert_eq!(Event::L1D_CACHE.count(&counts, 0), 2);
    }

    #[test]
    fn non_cacheable_pages_leave_no_trace() {
        let mut caches = zcu102();
        caches.set_cacheable(0x1000, 1, false);
        for _ in 0..3 {
            assert!(caches.data(0, 0x1040, 8, Direction::Read, 0) > 0);
        }
        assert_eq!(
            (caches.counts(0).noncacheable, caches.counts(0).l1d_refills),
            (3, 0)
        );
        caches.set_cacheable(0x1000, 4096, true);
        caches.data(0, 0x1040, 8, Direction::Read, 0);
        assert_eq!(caches.data(0, 0x1040, 8, Direction::Read, 0), 0);
        caches.set_cacheable(u64::MAX - 8192, u64::MAX, false);
        assert!(
            caches.is_cacheable(u64::MAX - 4096),
            "no core can address it"
        );
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
            (
                Event::L2D_CACHE_REFILL.count(&counts, 0),
                Event::BUS_ACCESS.count(&counts, 0),
            )
        };
        let past = |direction| counts(&|caches, _| caches.data(0, 0x40, 8, direction, 0));
        assert_eq!(
            (past(Direction::Read), past(Direction::Write)),
            ((0, lines), (0, lines)),
            "non-cacheable loads and stores"
        );
        let zeroed = counts(&|caches, line| {
            caches.zero_line(0, 4096 + line * 64, 0);
            caches.maintain(0, 4096 + line * 64, Maintenance::CleanInvalidate, 0)
        });
        assert_eq!(zeroed, (0, 4 * lines), "DC ZVA, then DC CIVAC");
        let past = counts(&|caches, _| caches.zero_line(0, 0x40, 0));
        assert_eq!(past, (0, 4 * lines), "DC ZVA of a non-cacheable line");
        let filled =
            counts(&|caches, line| caches.data(0, 4096 + line * 64, 8, Direction::Read, 0));
        assert_eq!(filled, (lines, 4 * lines), "loads");
    }

    #[test]
    fn disjoint_colors_keep_each_other_out() {
        let mut board = Board::zcu102().simple();
        for level in [&mut board.l1d, &mut board.l2] {
            level.policy = Policy::Lru;
        }
        let mut caches = Hierarchy::new(&board, 2);
        let page = |color: u64, at: u64| (at * 16 + color) * 4096;
        let pass = |caches: &mut Hierarchy, core, color, pages| {
            for at in 0..pages {
                for line in 0..64 {
                    caches.data(core, page(color, at) + line * 64, 8, Direction::Write, 0);
                }
            }
        };
        pass(&mut caches, 0, 3, 16);
        pass(&mut caches, 1, 4, 100);
        let before = caches.counts(0).l2_refills;
        pass(&mut caches, 0, 3, 16);
        assert_eq!(
            caches.counts(0).l2_refills,
            before,
            "64 KiB in its color stay in the L2"
        );
        pass(&mut caches, 1, 3, 100);
        pass(&mut caches, 0, 3, 16);
        // The last 256 of its 1024 lines were dirty in its L1 and return to the L2 as victims,
        // which reads nothing.
        assert_eq!(
            caches.counts(0).l2_refills,
            before + 768,
            "rivals in the same color take the rest"
        );
    }

    /// The Cortex-A53's rule for its L2 (TRM, section 7.6), and what L2D_CACHE counts by it.
    #[test]
    fn data_comes_to_the_l2_on_eviction_and_instructions_on_fetch() {
        let l2 = |data, fetch: bool| {
            let mut board = Board::zcu102().simple();
            board.l2_data = data;
            let mut caches = Hierarchy::new(&board, 1);
            let mut at = |line: u64| match fetch {
                true => caches.fetch(0, Line(line), 0),
                false => caches.data(0, line * 64, 8, Direction::Read, 0),
            };
            // Twice over 128 KiB: misses all in the L1.
            let waits: Vec<u64> = (0..2).map(|_| (0..2048).map(&mut at).sum()).collect();
            let counts = *caches.counts(0);
            assert!(
                waits[1] < waits[0] / 4,
                "the second pass hits the L2: {waits:?}"
            );
            (
                Event::L2D_CACHE.count(&counts, 0),
                caches.l2.len(),
                counts.l2_refills,
            )
        };
        assert_eq!(
            l2(L2Data::OnEviction, false),
            (2 * 4096 - 512, 2048, 2048),
            "lookups and evictions"
        );
        assert_eq!(
            l2(L2Data::OnMiss, false),
            (4096, 2048, 2048),
            "lookups; nothing is dirty"
        );
        for data in [L2Data::OnEviction, L2Data::OnMiss] {
            assert_eq!(
                l2(data, true),
                (4096, 2048, 2048),
                "each line of instructions once"
            );
        }
    }

    #[test]
    fn what_is_only_in_an_l1_is_not_in_the_l2() {
        let mut caches = zcu102();
        caches.data(0, 0, 8, Direction::Write, 0);
        assert!(caches.l2.is_empty());
        caches.maintain(0, 0, Maintenance::CleanToL2, 0);
        assert!(caches.l2.contains(Line(0)));
        caches.maintain(0, 0, Maintenance::CleanInvalidate, 0);
        assert!(caches.l2.is_empty());
    }

    #[test]
    fn maintenance_writes_dirty_lines_once() {
        let mut caches = zcu102();
        caches.data(0, 0, 8, Direction::Write, 0);
        caches.maintain(1, 0, Maintenance::Clean, 0);
        caches.maintain(1, 0, Maintenance::CleanInvalidate, 0);
        assert_eq!(caches.counts(1).l2_writebacks, 1);
        caches.data(0, 0, 8, Direction::Read, 0);
        assert_eq!(caches.counts(0).l2_refills, 2, "it left both caches");
    }

    #[test]
    fn cleaning_for_instructions_ends_at_the_l2() {
        let mut caches = zcu102();
        for line in 0..64 {
            caches.data(0, line * 64, 8, Direction::Write, 0);
        }
        let before = caches.counts(0).bus_writes;
        for line in 0..64 {
            caches.maintain(0, line * 64, Maintenance::CleanToL2, 0);
        }
        let counts = *caches.counts(0);
        assert_eq!(
            (
                counts.l1d_writebacks,
                counts.l2_writebacks,
                counts.bus_writes - before
            ),
            (64, 0, 0)
        );
        caches.maintain(0, 0, Maintenance::Clean, 0);
        assert_eq!(caches.counts(0).l2_writebacks, 1, "it was dirty in the L2");
    }

    #[test]
    fn zeroing_a_line_reads_nothing() {
        let mut caches = zcu102();
        assert_eq!(caches.zero_line(0, 0x40, 0), 0);
        assert_eq!(
            (caches.counts(0).l2_refills, caches.counts(0).stores),
            (0, 1)
        );
        assert_eq!(caches.data(0, 0x40, 8, Direction::Read, 0), 0);
    }
}
