//! The model between QEMU's callbacks: blocks, accesses, turns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::bounds::Regions;
use super::counters::{self, Counters, at};
use super::handles::Handles;
use super::registers::{self, Translation};
use super::time::{TIME, at_horizon, core_waits, run_timers};
use crate::board::Board;
use crate::cache::Direction;
use crate::clock::{Clocks, MAX_CORES};
use crate::decode::{Magic, Special};
use crate::geometry::Line;
use crate::hierarchy::Hierarchy;
use crate::issue::Waits;
use crate::prefetch::MOST_LINES;
use crate::profile::Profile;
use crate::tlb::Tlb;
use cloison_qemu::cpu::{Cpu, Running};
use cloison_qemu::guest::{Register, level};
use cloison_qemu::internals::{Internals, Line as InterruptLine};
use cloison_qemu::listener::{MemoryAccess, Place};
use cloison_qemu::machine::Machine;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that the core loads or stores in one access.
const ACCESS: u64 = 16;
/// Timers set other than by a write to a timer register are noticed after this many ns.
const TIMER_CHECK: i64 = 20_000;

/// The bits of an address that are the offset in its page. QEMU shares a block between all virtual
/// addresses at which its page is mapped, so only these are certain.
pub const PAGE_MASK: u64 = 0xfff;

/// Most events that one cycle can add to a counter: the beats of a line that is filled and of one
/// that is written back, for both halves of an access across the end of a line.
const EVENTS_PER_CYCLE: u64 = 16;
/// Most events of the lines that a prefetcher asks for at a time.
const EVENTS_OF_A_PREFETCH: u64 = 8 * MOST_LINES as u64;

/// A block that an exception enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    /// By a synchronous exception to EL1 (false) or EL2 (true).
    Synchronous(bool),
    /// By an interrupt or an SError to EL1 (false) or EL2 (true).
    Asynchronous(bool),
}

impl Vector {
    /// Returns the vector whose block is at an address, in a table of EL1 (false) or EL2 (true).
    pub const fn of(address: u64, table: u64, el2: bool) -> Option<Self> {
        let offset = address.wrapping_sub(table & !0x7ff);
        match offset & 0x7f {
            0 if offset >= 0x800 => None,
            0 if offset & 0x180 == 0 => Some(Self::Synchronous(el2)),
            0 => Some(Self::Asynchronous(el2)),
            _ => None,
        }
    }
    /// Returns 0 for EL1, 1 for EL2.
    pub const fn level(self) -> usize {
        match self {
            Self::Synchronous(el2) | Self::Asynchronous(el2) => el2 as usize,
        }
    }
}

/// Classes of synchronous exceptions (ESR_ELx.EC) that come before the first instruction of a
/// block: illegal state, instruction aborts, PC alignment, breakpoints and single steps.
const BEFORE_A_BLOCK: [u64; 8] = [0x0e, 0x20, 0x21, 0x22, 0x30, 0x31, 0x32, 0x33];

/// Properties of a block, known when it is translated.
#[derive(Debug)]
pub struct Block {
    /// Number of instructions.
    pub instructions: u64,
    /// Cycles that they take if all accesses hit the L1.
    pub cycles: u64,
    /// First line of its code.
    pub first: Line,
    /// Last line of its code.
    pub last: Line,
    /// Address of its first instruction.
    pub address: u64,
    /// Exception level at which it runs.
    pub level: u8,
    /// Which exception enters it.
    pub vector: Option<Vector>,
    /// Its site in the profile.
    pub site: usize,
}

impl Block {
    /// Returns the offset of its first instruction in the page.
    pub const fn offset(&self) -> u64 {
        self.address & PAGE_MASK
    }
}

/// The block that a core executes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Current {
    /// Address of its first instruction.
    address: u64,
    /// Number of instructions that were counted.
    instructions: u64,
    /// Cycles that were counted for them.
    cycles: u64,
}

/// Matches no access.
const NO_LINE: u64 = u64::MAX;
/// Matches no instruction: these are aligned.
const NO_INSTRUCTION: usize = 2;

/// The line of the last access, by virtual address: makes most accesses cheap.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    line: u64,
    written: bool,
    fetched: Line,
    /// Address of the instruction of the last access, with bit 0 set if it was a store;
    /// [`NO_INSTRUCTION`] at the start of a block.
    instruction: usize,
    /// The last access's address, in units of 16 bytes.
    chunk: u64,
    /// The line of the last store, by virtual address, and a bit for each of its bytes that was
    /// stored.
    stored: u64,
    bytes: u64,
}

/// No access yet.
pub const NOTHING: Latest = Latest {
    line: NO_LINE,
    written: false,
    fetched: Line(NO_LINE),
    instruction: NO_INSTRUCTION,
    chunk: 0,
    stored: NO_LINE,
    bytes: 0,
};

/// The properties of a load or store that are known when its block is translated, in the word that
/// QEMU passes with each access.
///
/// Bit 0: it is a store. Bits 2 to 39: its address. Bits 40 to 47: the bytes that it stores. Bits
/// 48 to 55, 56 to 63: the cycles of the block in which it is issued, and in which its value is
/// used first, or 255.
#[derive(Clone, Copy, Debug)]
pub struct Access(pub usize);

impl Access {
    /// Describes a load or store.
    pub fn new(address: u64, stored_bytes: u32, issued: u64, used: u64) -> Self {
        let cycle = |cycle: u64| cycle.min(0xff);
        let word = address & 0xff_ffff_fffc
            | u64::from(stored_bytes) << 40
            | cycle(issued) << 48
            | cycle(used) << 56;
        Self(word as usize)
    }
    /// Returns it as a store.
    pub const fn store(self) -> Self {
        Self(self.0 | 1)
    }
    const fn is_store(self) -> bool {
        self.0 & 1 != 0
    }
    /// Returns the low bits of its address.
    pub const fn address(self) -> u64 {
        self.0 as u64 & 0xff_ffff_fffc
    }
    const fn stored_bytes(self) -> u32 {
        (self.0 >> 40) as u32 & 0xff
    }
    /// Returns the cycle of its block in which it is issued.
    pub const fn issued(self) -> u64 {
        (self.0 >> 48) as u64 & 0xff
    }
    /// Returns the cycle of the first use, or `end` if that is not in its block.
    const fn used(self, end: u64) -> u64 {
        match (self.0 >> 56) as u64 {
            0xff => end,
            cycle => cycle,
        }
    }
}

/// Returns a bit for each byte from an offset in a line on, up to its end.
const fn bytes_of_line(offset: u64, bytes: u32) -> u64 {
    let all = if bytes >= 64 {
        u64::MAX
    } else {
        (1 << bytes) - 1
    };
    all << (offset & 63)
}

/// The plugin's state.
pub struct Plugin {
    /// QEMU's functions outside the plugin API.
    pub internals: &'static Internals,
    /// Source of memory, and of registers' new values.
    pub machine: Box<dyn Machine>,
    /// Event counters, by core.
    pub counters: Vec<Counters>,
    /// Handles of their registers.
    pub monitors: Handles<{ counters::NAMES.len() }>,
    /// Translation, by core; none if it costs nothing.
    pub translations: Vec<Translation>,
    /// Translation costs something.
    pub translates: bool,
    /// Handles of its registers.
    pub translation_handles: Handles<{ registers::NAMES.len() }>,
    /// Handle of CPSR.
    pub cpsr: Option<Register>,
    /// The blocks that cores execute.
    pub current: [Current; MAX_CORES],
    /// Number of blocks whose code has no known physical address.
    pub untranslated: u64,
    /// The modelled board.
    pub board: Board,
    /// Caches and memory.
    pub caches: Hierarchy,
    /// Clocks, by core.
    pub clocks: Clocks,
    /// Latest lines, by core.
    pub latest: [Latest; MAX_CORES],
    /// Loads that cores have not waited for yet.
    pub waits: [Waits; MAX_CORES],
    /// QEMU's CPUs.
    pub cpus: [Option<Cpu>; MAX_CORES],
    /// Lines of their overflow interrupts, once used.
    pub lines: [Option<InterruptLine>; MAX_CORES],
    /// QEMU's variable for the running CPU, once a vCPU has started.
    pub slot: Option<Running>,
    running: (Option<Cpu>, usize),
    /// Cycle of the running core at which its turn ends or a counter must be checked.
    pub limit: u64,
    /// Cycle up to which the running core may run.
    turn_ends: u64,
    line_shift: u32,
    line_mask: u64,
    /// A core may continue while a line is on its way.
    overlaps: bool,
    /// A core may write lines without reading them.
    streams: bool,
    /// The model is on.
    pub active: bool,
    /// Options given by the user.
    pub options: Options,
    /// Events by code, if they are wanted.
    pub profile: Profile,
    /// Regions of interest.
    pub regions: Regions,
    /// When to check the timers again, in ns.
    pub next_timer: i64,
    /// Handles of the general registers.
    pub x: [Option<Register>; 31],
}

/// The plugin's arguments, except the board.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The model is on from the first instruction to the last.
    pub always: bool,
    /// How regions start, unless the guest decides.
    pub cold: Option<bool>,
    /// Added to the seeds of the caches.
    pub seed: u64,
    /// Path for the statistics.
    pub statistics: Option<PathBuf>,
    /// Path for the profile.
    pub profile: Option<PathBuf>,
    /// GIC IDs of the cores' overflow interrupts, for a machine of QEMU's that wires none.
    pub overflow_interrupts: Vec<u32>,
}

impl Plugin {
    /// Creates the state for a board with this many cores, with the model off.
    pub fn new(
        internals: &'static Internals,
        machine: Box<dyn Machine>,
        board: Board,
        cores: usize,
        options: Options,
    ) -> Self {
        let caches = Hierarchy::new(&board, cores);
        let line_shift = caches.line_shift();
        Self {
            internals,
            machine,
            counters: vec![Counters::new(); cores],
            monitors: Handles::new(&counters::NAMES),
            translations: board.tlb.map_or(vec![], |shape| {
                vec![Translation::new(Tlb::new(shape)); cores]
            }),
            translates: board.tlb.is_some(),
            translation_handles: Handles::new(&registers::NAMES),
            cpsr: None,
            current: [Current::default(); MAX_CORES],
            untranslated: 0,
            clocks: Clocks::new(board.quantum),
            latest: [NOTHING; MAX_CORES],
            waits: [Waits::default(); MAX_CORES],
            overlaps: board.overlaps(),
            streams: board.streaming.l1 > 0,
            cpus: [None; MAX_CORES],
            lines: [None; MAX_CORES],
            slot: None,
            running: (None, 0),
            limit: 0,
            turn_ends: 0,
            line_shift,
            line_mask: (1 << line_shift) - 1,
            active: false,
            options,
            profile: Profile::default(),
            regions: Regions::default(),
            next_timer: 0,
            x: [None; 31],
            caches,
            board,
        }
    }

    /// Returns the number of the running core.
    #[inline]
    pub fn core(&mut self) -> usize {
        let cpu = self.slot.and_then(Running::cpu);
        if cpu != self.running.0 {
            let index = self
                .cpus
                .iter()
                .position(|known| *known == cpu)
                .unwrap_or(0);
            self.running = (cpu, index);
        }
        self.running.1
    }

    const fn nanoseconds(&self, cycles: u64) -> i64 {
        if self.board.clock_mhz == 1000 {
            cycles as i64
        } else {
            (cycles * 1000 / self.board.clock_mhz) as i64
        }
    }

    /// Converts guest time to cycles: the first cycle that is not earlier.
    pub const fn cycles(&self, nanoseconds: i64) -> u64 {
        (nanoseconds as u128 * self.board.clock_mhz as u128).div_ceil(1000) as u64
    }

    #[inline]
    fn spend(&mut self, core: usize, cycles: u64) {
        self.clocks.spend(core, cycles);
        let time = self.nanoseconds(self.clocks.cycles(core));
        TIME.set(core, time);
    }

    /// Describes a block of `instructions` of the running core, which take `cycles`, from the
    /// address of the first to that of the last.
    pub fn describe(&mut self, instructions: u64, cycles: u64, start: u64, end: u64) -> Block {
        // QEMU has separate translations for each level.
        let level = level(self.cpsr.map_or(0, Register::read));
        let (first, last) = match self.physical(start) {
            Some(first) => (first, self.physical(end).unwrap_or(first)),
            None => {
                // Lines that no memory has.
                self.untranslated += 1;
                (start | 1 << 62, end | 1 << 62)
            }
        };
        let (first, last) = (self.caches.line(first), self.caches.line(last));
        // The block covers two pages that are not adjacent: the second one's part is left out.
        let last = if last < first || last.0 - first.0 > 64 {
            first
        } else {
            last
        };
        let vector = if start & 0x7f == 0 && matches!(level, 1 | 2) {
            let el2 = level == 2;
            Vector::of(start, self.monitor(at::VECTORS + usize::from(el2)), el2)
        } else {
            None
        };
        Block {
            instructions,
            cycles,
            first,
            last,
            address: start,
            level,
            vector,
            site: 0,
        }
    }

    /// Runs at the start of a block.
    #[inline]
    pub fn block(&mut self, block: &Block) {
        let core = self.core();
        if let Some(vector) = block.vector {
            self.take_exception(core, vector);
        }
        if self.counters[core].watched != block.level {
            self.look_after_counters(core, block);
        }
        if self.profile.is_on() {
            self.profile_block(core, block);
        }
        if !self.waits[core].is_empty() {
            self.wait_for_loads(core, u64::MAX);
        }
        let Block {
            address,
            instructions,
            mut cycles,
            ..
        } = *block;
        self.current[core] = Current {
            address,
            instructions,
            cycles,
        };
        self.caches.counts_mut(core).instructions += instructions;
        let latest = &mut self.latest[core];
        latest.instruction = NO_INSTRUCTION;
        if block.first != block.last || latest.fetched != block.first {
            let start = block.first.0 + u64::from(latest.fetched == block.first);
            latest.fetched = block.last;
            let before = self.clocks.cycles(core);
            let translated = self.translate_code(core, block, before);
            cycles += translated;
            let now = before + translated;
            if self.board.prefetch.instructions > 0 {
                cycles += self.fetch_in_time(core, block, start, now);
            } else {
                for line in start..=block.last.0 {
                    cycles += self.caches.fetch(core, Line(line), before + cycles);
                }
            }
        }
        self.spend(core, cycles);
        if self.clocks.is_new_turn(core)
            || self.clocks.cycles(core) >= self.limit
            || TIME.waited.load(Relaxed)
        {
            self.turn(core);
        }
    }

    /// Fetches a block's lines from `start` on, each when the instructions before it have executed.
    /// Returns the cycles that the core waits.
    fn fetch_in_time(&mut self, core: usize, block: &Block, start: u64, now: u64) -> u64 {
        let before = block.address & self.line_mask;
        let mut waits = 0;
        for line in start..=block.last.0 {
            let bytes = ((line - block.first.0) << self.line_shift).saturating_sub(before);
            let executed = block.cycles * (bytes / 4).min(block.instructions) / block.instructions;
            waits += self.caches.fetch(core, Line(line), now + executed + waits);
        }
        waits
    }

    /// Lets the core wait for the loads whose values it needs up to a cycle of its block.
    #[inline(never)]
    pub fn wait_for_loads(&mut self, core: usize, cycle: u64) {
        let start = self
            .clocks
            .cycles(core)
            .saturating_sub(self.current[core].cycles);
        let wait = self.waits[core].until(cycle, start);
        if wait > 0 {
            self.spend(core, wait);
        }
    }

    /// Runs at the first block of an exception: it may have left the block before in its middle.
    #[cold]
    #[inline(never)]
    fn take_exception(&mut self, core: usize, vector: Vector) {
        // Virtual addresses may mean other pages from here on.
        self.latest[core].line = NO_LINE;
        if let Vector::Synchronous(_) = vector {
            let class = self.monitor(at::CAUSES + vector.level()) >> 26 & 0x3f;
            if !BEFORE_A_BLOCK.contains(&class) {
                self.leave_block(core, self.monitor(at::RETURNS + vector.level()));
            }
        }
    }

    /// Takes back the instructions of the core's block from `address` on.
    fn leave_block(&mut self, core: usize, address: u64) {
        let current = &mut self.current[core];
        let executed = (address.wrapping_sub(current.address) & PAGE_MASK) / 4;
        if executed >= current.instructions {
            return;
        }
        let rest = current.instructions - executed;
        let refund = current.cycles * rest / current.instructions;
        let counted = std::mem::replace(&mut current.instructions, executed);
        current.cycles -= refund;
        self.profile_leave(core, executed, counted, refund);
        let counts = self.caches.counts_mut(core);
        counts.instructions = counts.instructions.wrapping_sub(rest);
        self.clocks.refund(core, refund);
        TIME.set(core, self.nanoseconds(self.clocks.cycles(core)));
    }

    /// Ends the running core's turn after its block.
    const fn end_turn(&mut self) {
        self.turn_ends = 0;
        self.limit = 0;
    }

    /// Runs at the first block of a turn, and when the core has reached its limit.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, core: usize) {
        if TIME.waited.swap(false, Relaxed) {
            self.clocks.all_waited();
        }
        if self.counters[core].armed {
            self.check_overflow(core);
        }
        TIME.turns.fetch_add(1, Relaxed);
        if self.clocks.is_new_turn(core) {
            let horizon = TIME.horizon.load(Relaxed);
            if self.profile.is_on() {
                self.charge_block(core);
            }
            self.clocks.takes_turn(core, self.cycles(horizon));
            if self.profile.is_on() {
                self.charge_wait(core);
            }
            if self.next_timer == 0 {
                let next = at_horizon(|| self.internals.next_timer())
                    .map_or(i64::MAX, |wait| horizon + wait);
                self.next_timer = next.min(horizon + TIMER_CHECK);
            }
            self.turn_ends = self.clocks.limit(core, self.cycles(self.next_timer));
            TIME.set(core, self.nanoseconds(self.clocks.cycles(core)));
        }
        // Counters are checked the more often the nearer their overflow is, so that it is noticed
        // at once.
        let now = self.clocks.cycles(core);
        let look = if self.counters[core].armed {
            let burst = if self.board.prefetch.data.lines > 0 {
                EVENTS_OF_A_PREFETCH
            } else {
                0
            };
            let distance = self.counters[core].pmu.distance().saturating_sub(burst);
            now + (distance / EVENTS_PER_CYCLE).min(self.board.quantum)
        } else {
            u64::MAX
        };
        self.limit = self.turn_ends.min(look);
        if now < self.turn_ends {
            return;
        }
        let slowest = self.nanoseconds(self.clocks.slowest().unwrap_or(0));
        self.let_time_pass(core, slowest);
        self.clocks.gives_way();
        if let Some(cpu) = self.cpus[core] {
            self.internals.exit(cpu);
        }
    }

    /// Lets timers up to `time` fire, which the slowest core has reached.
    fn let_time_pass(&mut self, core: usize, time: i64) {
        let horizon = TIME.horizon.load(Relaxed);
        if time <= horizon {
            return;
        }
        if time < self.next_timer {
            TIME.horizon.store(time, Relaxed);
            return;
        }
        let next = at_horizon(|| self.internals.next_timer()).map(|wait| horizon + wait);
        if next.is_some_and(|next| next <= time) {
            self.next_timer = 0;
            if let Some(cpu) = self.cpus[core] {
                self.internals.work(cpu, run_timers, time as u64);
            }
        } else {
            TIME.horizon.store(time, Relaxed);
            self.next_timer = next.unwrap_or(i64::MAX).min(time + TIMER_CHECK);
        }
    }

    /// Handles a load or store of the running core, or QEMU's part of one.
    #[inline]
    pub fn access(&mut self, info: &MemoryAccess<'_>, access: Access) {
        let address = info.address;
        let core = self.core();
        let instruction = access.0;
        let write = access.is_store();
        let chunk = address / ACCESS;
        let at_end = address & self.line_mask > self.line_mask - 15;
        let latest = &mut self.latest[core];
        let counts = self.caches.counts_mut(core);
        if latest.instruction == instruction {
            if latest.chunk == chunk {
                // Part of the access before, which may cross the end of the line where that one did
                // not.
                if at_end {
                    self.cross(core, info, address, access);
                }
                return;
            }
        } else if write {
            counts.stores += 1;
            if self.streams {
                let stored = bytes_of_line(address & self.line_mask, access.stored_bytes());
                if latest.stored == address >> self.line_shift {
                    latest.bytes |= stored;
                } else {
                    self.write_another_line(core, address >> self.line_shift, stored, access);
                }
            }
        } else {
            counts.loads += 1;
        }
        let latest = &mut self.latest[core];
        self.caches.counts_mut(core).accesses += 1;
        latest.instruction = instruction;
        latest.chunk = chunk;
        let line = address >> self.line_shift;
        if line == latest.line && !at_end && (!write || latest.written) {
            return;
        }
        self.look_up(core, info, address, access);
    }

    /// Ends the line that the core has stored to, and begins another one with some of its bytes.
    fn write_another_line(&mut self, core: usize, line: u64, bytes: u64, access: Access) {
        let all = bytes_of_line(0, 1 << self.line_shift);
        let latest = &mut self.latest[core];
        let whole = latest.bytes == all;
        (latest.stored, latest.bytes) = (line, bytes);
        if self.profile.is_on() {
            return self.profile_line(core, whole, access);
        }
        self.end_line(core, whole, access);
    }

    /// Ends the line that the core has stored to.
    #[inline]
    pub fn end_line(&mut self, core: usize, whole: bool, access: Access) {
        let stall = self.caches.end_line(core, whole, self.issued(core, access));
        if stall > 0 {
            self.spend(core, stall);
        }
    }

    /// Returns the cycle of the core's clock in which it issues an access.
    #[inline]
    fn issued(&self, core: usize, access: Access) -> u64 {
        let now = self.clocks.cycles(core);
        if !self.overlaps {
            return now;
        }
        now.saturating_sub(self.current[core].cycles.saturating_sub(access.issued()))
    }

    /// Handles an access that is not to the line of the last one, or may cross its end.
    #[inline(never)]
    fn look_up(&mut self, core: usize, info: &MemoryAccess<'_>, address: u64, access: Access) {
        if self.profile.is_on() {
            return self.profile_look_up(core, info, address, access);
        }
        if !self.waits[core].is_empty() {
            self.wait_for_loads(core, access.issued());
        }
        self.look_up_lines(core, info, address, access);
    }

    /// Looks an access up that the core has issued.
    #[inline(always)]
    pub fn look_up_lines(
        &mut self,
        core: usize,
        info: &MemoryAccess<'_>,
        address: u64,
        access: Access,
    ) {
        let line = address >> self.line_shift;
        let write = access.is_store();
        let latest = &mut self.latest[core];
        if line != latest.line || write && !latest.written {
            latest.line = line;
            latest.written = write;
            self.part(core, info, address, access);
        }
        self.cross(core, info, address, access);
    }

    /// Handles the second line of an access that crosses the end of one.
    fn cross(&mut self, core: usize, info: &MemoryAccess<'_>, address: u64, access: Access) {
        let line = address >> self.line_shift;
        let bytes = info.bytes();
        if (address + bytes - 1) >> self.line_shift != line {
            self.caches.counts_mut(core).crossings += 1;
            self.latest[core].line = NO_LINE;
            let next = (line + 1) << self.line_shift;
            if self.streams && access.is_store() {
                let stored = bytes_of_line(0, (address + bytes - next) as u32);
                self.write_another_line(core, line + 1, stored, access);
            }
            self.part(core, info, next, access);
        }
    }

    #[inline]
    fn part(&mut self, core: usize, info: &MemoryAccess<'_>, address: u64, access: Access) {
        let write = access.is_store();
        let translated = self.translate_data(core, address);
        if translated != 0 {
            self.spend(core, translated);
        }
        let Some(place) = info.place(address) else {
            return;
        };
        let wait = if let Place::Memory(physical) = place {
            if !self.caches.is_cacheable(physical) {
                self.latest[core].line = NO_LINE;
            }
            let now = self.issued(core, access);
            let wait = self
                .caches
                .data_part(core, physical, Direction::of(write), now);
            let disturbed = self.caches.disturbed();
            if disturbed != 0 {
                self.disturb(disturbed);
            }
            if !write && wait != 0 && self.board.timing.load_linefills > 0 {
                self.wait_at_use(core, access, now, wait);
                return;
            }
            wait
        } else {
            self.access_device(core, access);
            self.board.timing.device
        };
        if wait != 0 {
            self.spend(core, wait);
        }
    }

    /// Lets cores look again at what they accessed last, which another one has taken. These have
    /// the next turn, so that a line that is shared goes back as soon as it is needed there.
    #[cold]
    fn disturb(&mut self, cores: u32) {
        for (number, latest) in self.latest.iter_mut().enumerate() {
            if cores >> number & 1 == 1 {
                latest.line = NO_LINE;
            }
        }
        self.end_turn();
    }

    /// Lets the core continue to the first use of a value that comes `wait` cycles later than from
    /// the L1.
    fn wait_at_use(&mut self, core: usize, access: Access, now: u64, wait: u64) {
        let timing = &self.board.timing;
        let (used, arrival) = (
            access.used(self.current[core].cycles),
            now + timing.load_to_use + wait,
        );
        if let Some(first) = self.waits[core].add(used, arrival, timing.load_linefills) {
            self.spend(core, first.saturating_sub(now + timing.load_to_use));
        }
    }

    /// Handles an access to a device, for which QEMU leaves the block: the rest of it starts again
    /// as another one.
    #[cold]
    fn access_device(&mut self, core: usize, access: Access) {
        self.latest[core].line = NO_LINE;
        let counts = self.caches.counts_mut(core);
        counts.device += 1;
        counts.device_stores += u64::from(access.is_store());
        self.leave_block(core, access.address() + 4);
        // It may have woken another core, which must not wait for the end of this one's turn.
        if access.is_store() && self.clocks.is_another_waiting(core) {
            self.end_turn();
        }
    }

    /// Returns the value of a general register; register 31 is zero.
    pub fn register(&self, number: u8) -> u64 {
        let register = self.x.get(usize::from(number)).copied().flatten();
        register.map_or(0, Register::read)
    }

    /// Translates a virtual address of the running core to a physical one.
    pub fn physical(&mut self, address: u64) -> Option<u64> {
        self.core();
        self.machine.translate(self.running.0?, address)
    }

    /// Handles an instruction at `address` that does more than its loads and stores.
    pub fn special(&mut self, special: Special, address: u64) {
        let core = self.core();
        if self.profile.is_on() {
            return self.profile_special(core, special, address);
        }
        self.perform(core, special, address);
    }

    /// Handles an instruction of this core that does more than its loads and stores.
    pub fn perform(&mut self, core: usize, special: Special, address: u64) {
        match special {
            Special::Magic(Magic::BeginWarm) => self.begin(false),
            Special::Magic(Magic::BeginCold) => self.begin(true),
            Special::Magic(Magic::End) => self.end(),
            Special::Magic(Magic::Cacheability) => {
                let (physical, bytes, off) = (self.register(0), self.register(1), self.register(2));
                // The guest may pass any value: limit it to the pages that the board could have.
                self.caches
                    .set_cacheable(physical, bytes.min(1 << 34), off == 0);
                self.latest = [NOTHING; MAX_CORES];
            }
            _ if !self.active => {}
            Special::Timer => {
                self.next_timer = 0;
                self.end_turn();
            }
            Special::Idle => {
                // Since QEMU 11.1, a core that waits for an event sets a timer.
                self.next_timer = 0;
                self.clocks.idle(core);
                TIME.set(core, self.nanoseconds(self.clocks.cycles(core)));
            }
            Special::Wait => core_waits(),
            Special::ReadCounter(..)
            | Special::WriteCounter(_)
            | Special::ReadOverflows(_)
            | Special::ClearOverflows(_)
            | Special::WriteControl(_)
            | Special::SetUpCounters => {
                self.begin_monitor_access(core, special, (address + 4) & PAGE_MASK)
            }
            Special::SetUpTranslation => self.translation_changes(core),
            Special::InvalidateTlb(what, all, register) => {
                self.invalidate_translations(core, what, all, register)
            }
            Special::InvalidateInstructions(all) => {
                self.caches.invalidate_instructions((!all).then_some(core));
                self.latest = [NOTHING; MAX_CORES];
            }
            Special::Zero(register) | Special::Maintain(_, register) => {
                let address = self.register(register);
                let Some(physical) = self.physical(address) else {
                    return;
                };
                let translated = self.translate_data(core, address);
                self.spend(core, translated);
                let now = self.clocks.cycles(core);
                let wait = match special {
                    Special::Maintain(what, _) => self.caches.maintain(core, physical, what, now),
                    _ => self.caches.zero_line(core, physical, now),
                };
                self.spend(core, wait);
                self.latest = [NOTHING; MAX_CORES];
            }
        }
    }
}
