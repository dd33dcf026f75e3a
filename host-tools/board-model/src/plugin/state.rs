//! The model between QEMU's callbacks: blocks, accesses, turns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::bounds::Regions;
use super::counters::{Counters, Monitors};
use super::ffi::ByteArray;
use super::qemu::qemu;
use super::time::{TIME, at_horizon, run_timers};
use crate::board::Board;
use crate::clock::{Clocks, MAX_CORES};
use crate::decode::{Magic, Special};
use crate::geometry::Line;
use crate::hierarchy::Hierarchy;
use libc::c_void;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Timers set other than by a write to a timer register are noticed after this many ns.
const TIMER_CHECK: i64 = 20_000;

/// Properties of a block, known when it is translated.
#[derive(Debug)]
pub struct Block {
    /// Number of instructions.
    pub instructions: u64,
    /// First line of its code.
    pub first: Line,
    /// Last line of its code.
    pub last: Line,
    /// Address of its first instruction.
    pub address: u64,
    /// Exception level at which it runs.
    pub level: u8,
}

/// Matches no access.
const NO_LINE: u64 = u64::MAX;

/// The line of the last access, by virtual address: makes most accesses cheap.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    line: u64,
    written: bool,
    fetched: Line,
}

/// No access yet.
pub const NOTHING: Latest = Latest { line: NO_LINE, written: false, fetched: Line(NO_LINE) };

/// The plugin's state.
#[derive(Debug)]
pub struct Plugin {
    /// Event counters, by core.
    pub counters: Vec<Counters>,
    /// Handles of their registers.
    pub monitors: Monitors,
    /// Handle of CPSR.
    pub cpsr: *mut c_void,
    /// Addresses of the instructions that follow a read of a counter.
    pub after_read: HashSet<u64>,
    /// The modelled board.
    pub board: Board,
    /// Caches and memory.
    pub caches: Hierarchy,
    /// Clocks, by core.
    pub clocks: Clocks,
    /// Latest lines, by core.
    pub latest: [Latest; MAX_CORES],
    /// QEMU's CPUs.
    pub cpus: [*mut c_void; MAX_CORES],
    /// Lines of their overflow interrupts, once used.
    pub lines: [Option<*mut c_void>; MAX_CORES],
    /// Address of QEMU's variable for the running CPU.
    pub slot: *const *mut c_void,
    running: (*mut c_void, usize),
    /// Cycle of the running core at which something must be done: its turn ends, or a counter must be checked.
    pub limit: u64,
    /// Cycle up to which the running core may run.
    turn_ends: u64,
    line_shift: u32,
    line_mask: u64,
    /// The model is on.
    pub active: bool,
    /// Options given by the user.
    pub options: Options,
    /// Regions of interest.
    pub regions: Regions,
    /// When to check the timers again, in ns.
    pub next_timer: i64,
    /// Handles of the general registers.
    pub x: [*mut c_void; 31],
    /// Buffer for values of registers.
    pub bytes: *mut ByteArray,
    /// Blocks referenced by translations.
    pub blocks: Vec<*mut Block>,
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
    /// GIC IDs of the cores' overflow interrupts, for a machine of QEMU's that wires none.
    pub overflow_interrupts: Vec<u32>,
}

impl Plugin {
    /// Creates the state for a board with this many cores, with the model off.
    pub fn new(board: Board, cores: usize, options: Options) -> Self {
        let caches = Hierarchy::new(&board, cores);
        let line_shift = caches.line_shift();
        Self {
            counters: vec![Counters::new(); cores],
            monitors: Monitors::new(),
            cpsr: std::ptr::null_mut(),
            after_read: HashSet::new(),
            clocks: Clocks::new(board.quantum),
            latest: [NOTHING; MAX_CORES],
            cpus: [std::ptr::null_mut(); MAX_CORES],
            lines: [None; MAX_CORES],
            slot: std::ptr::null(),
            running: (std::ptr::null_mut(), 0),
            limit: 0,
            turn_ends: 0,
            line_shift,
            line_mask: (1 << line_shift) - 1,
            active: false,
            options,
            regions: Regions::default(),
            next_timer: 0,
            x: [std::ptr::null_mut(); 31],
            bytes: std::ptr::null_mut(),
            blocks: Vec::new(),
            caches,
            board,
        }
    }

    /// Returns the number of the running core.
    #[inline]
    pub fn core(&mut self) -> usize {
        // SAFETY: the slot is this thread's variable, which QEMU sets before it runs a vCPU.
        let cpu = unsafe { self.slot.read() };
        if cpu != self.running.0 {
            let index = self.cpus.iter().position(|known| *known == cpu).unwrap_or(0);
            self.running = (cpu, index);
        }
        self.running.1
    }

    /// Returns the CPU that [`Plugin::core`] found last.
    pub const fn running(&self) -> *mut c_void {
        self.running.0
    }

    const fn nanoseconds(&self, cycles: u64) -> i64 {
        if self.board.clock_mhz == 1000 {
            cycles as i64
        } else {
            (cycles as u128 * 1000 / self.board.clock_mhz as u128) as i64
        }
    }

    /// Converts guest time to cycles.
    pub const fn cycles(&self, nanoseconds: i64) -> u64 {
        (nanoseconds as u128 * self.board.clock_mhz as u128 / 1000) as u64
    }

    #[inline]
    fn spend(&mut self, core: usize, cycles: u64) {
        self.clocks.spend(core, cycles);
        let time = self.nanoseconds(self.clocks.cycles(core));
        TIME.set(core, time);
    }

    /// Runs at the start of a block.
    #[inline]
    pub fn block(&mut self, block: &Block) {
        let core = self.core();
        if self.counters[core].watched != block.level {
            self.look_after_counters(core, block);
        }
        self.caches.counts_mut(core).instructions += block.instructions;
        let mut cycles = block.instructions * self.board.timing.instruction;
        if block.first != block.last || self.latest[core].fetched != block.first {
            let now = self.clocks.cycles(core);
            for line in block.first.0..=block.last.0 {
                cycles += self.caches.fetch(core, Line(line), now + cycles);
            }
            self.latest[core].fetched = block.last;
        } else {
            self.caches.counts_mut(core).fetches += 1;
        }
        self.spend(core, cycles);
        if self.clocks.is_new_turn(core) || self.clocks.cycles(core) >= self.limit || TIME.waited.load(Relaxed) {
            self.turn(core);
        }
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
            self.clocks.takes_turn(core, self.cycles(TIME.horizon.load(Relaxed)));
            self.turn_ends = self.clocks.limit(core, self.cycles(self.next_timer));
            TIME.set(core, self.nanoseconds(self.clocks.cycles(core)));
        }
        // A turn may be long if another core is far ahead or none runs.
        let now = self.clocks.cycles(core);
        let look = if self.counters[core].armed { now + self.board.quantum } else { u64::MAX };
        self.limit = self.turn_ends.min(look);
        if now < self.turn_ends {
            return;
        }
        let slowest = self.nanoseconds(self.clocks.slowest().unwrap_or(0));
        self.let_time_pass(core, slowest);
        self.clocks.gives_way();
        // SAFETY: QEMU passed this CPU when it started it.
        unsafe { qemu().internals.exit(self.cpus[core]) };
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
        let next = at_horizon(|| qemu().internals.next_timer()).map(|wait| horizon + wait);
        if next.is_some_and(|next| next <= time) {
            self.next_timer = 0;
            // SAFETY: QEMU passed this CPU when it started it.
            unsafe { qemu().internals.work(self.cpus[core], run_timers, time as u64) };
        } else {
            TIME.horizon.store(time, Relaxed);
            self.next_timer = next.unwrap_or(i64::MAX).min(time + TIMER_CHECK);
        }
    }

    /// Handles a load or store of the running core.
    #[inline]
    pub fn access(&mut self, info: u32, address: u64, write: bool) {
        let core = self.core();
        let counts = self.caches.counts_mut(core);
        if write {
            counts.stores += 1;
        } else {
            counts.loads += 1;
        }
        let line = address >> self.line_shift;
        let latest = &mut self.latest[core];
        let at_end = address & self.line_mask > self.line_mask - 15;
        if line == latest.line && !at_end && (!write || latest.written) {
            return;
        }
        self.look_up(core, info, address, write);
    }

    /// Handles an access that is not to the line of the last one, or may cross its end.
    #[inline(never)]
    fn look_up(&mut self, core: usize, info: u32, address: u64, write: bool) {
        let line = address >> self.line_shift;
        let latest = &mut self.latest[core];
        if line != latest.line || write && !latest.written {
            latest.line = line;
            latest.written = write;
            self.part(core, info, address, write);
        }
        // SAFETY: a pure function of the word that QEMU passed.
        let bytes = 1u64 << unsafe { (qemu().api.size_shift)(info) };
        if (address + bytes - 1) >> self.line_shift != line {
            self.caches.counts_mut(core).crossings += 1;
            self.latest[core].line = NO_LINE;
            self.part(core, info, (line + 1) << self.line_shift, write);
        }
    }

    #[inline]
    fn part(&mut self, core: usize, info: u32, address: u64, write: bool) {
        let api = &qemu().api;
        // SAFETY: in a memory callback; the answer is read at once. The second part of an access across the end of a
        // page is looked up like the first: QEMU has just used both pages.
        let (device, physical) = unsafe {
            let found = (api.physical)(info, address);
            if found.is_null() {
                return;
            }
            ((api.is_device)(found), (api.physical_address)(found))
        };
        let now = self.clocks.cycles(core);
        let wait = if device {
            self.latest[core].line = NO_LINE;
            self.caches.counts_mut(core).device += 1;
            self.board.timing.device
        } else {
            if !self.caches.is_cacheable(physical) {
                self.latest[core].line = NO_LINE;
            }
            self.caches.data_part(core, physical, write, now)
        };
        if wait != 0 {
            self.spend(core, wait);
        }
    }

    /// Returns the value of a general register; register 31 is zero.
    pub fn register(&self, number: u8) -> u64 {
        self.x.get(number as usize).map_or(0, |handle| self.read(*handle))
    }

    /// Returns the value of a register of 4 or 8 bytes by its handle; zero if QEMU lacks it.
    pub fn read(&self, handle: *mut c_void) -> u64 {
        if handle.is_null() {
            return 0;
        }
        let api = &qemu().api;
        // SAFETY: the handle came from QEMU; the array is ours, and emptied before it is filled.
        unsafe {
            (api.set_size)(self.bytes, 0);
            (api.read_register)(handle, self.bytes);
            let data = (*self.bytes).data;
            match (*self.bytes).len {
                8 => data.cast::<u64>().read_unaligned(),
                4 => u64::from(data.cast::<u32>().read_unaligned()),
                _ => 0,
            }
        }
    }

    /// Translates a virtual address of the running core to a physical one.
    pub fn physical(&mut self, address: u64) -> Option<u64> {
        self.core();
        // SAFETY: the CPU that runs on this thread.
        unsafe { qemu().internals.translate(self.running.0, address) }
    }

    /// Handles an instruction at `address` that does more than its loads and stores.
    pub fn special(&mut self, special: Special, address: u64) {
        let core = self.core();
        match special {
            Special::Magic(Magic::BeginWarm) => self.begin(false),
            Special::Magic(Magic::BeginCold) => self.begin(true),
            Special::Magic(Magic::End) => self.end(),
            Special::Magic(Magic::Cacheability) => {
                let (physical, bytes, off) = (self.register(0), self.register(1), self.register(2));
                // The guest may pass any value: limit it to the pages that the board could have.
                self.caches.set_cacheable(physical, bytes.min(1 << 34), off == 0);
                self.latest = [NOTHING; MAX_CORES];
            }
            Special::Timer => self.next_timer = 0,
            _ if !self.active => {}
            Special::ReadCounter(..)
            | Special::WriteCounter(_)
            | Special::ReadOverflows(_)
            | Special::ClearOverflows(_)
            | Special::WriteControl(_)
            | Special::SetUpCounters => self.begin_monitor_access(core, special, (address + 4) & 0xffff_ffff),
            Special::InvalidateInstructions(all) => {
                self.caches.invalidate_instructions((!all).then_some(core));
                self.latest = [NOTHING; MAX_CORES];
            }
            Special::Zero(register) | Special::Maintain(_, register) => {
                let address = self.register(register);
                let Some(physical) = self.physical(address) else { return };
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
