//! The plugin: QEMU's callbacks, the model between them, guest time.
//!
//! All vCPUs share one thread (`-accel tcg,thread=single`), and all callbacks come on it, so the model needs no lock.
//! QEMU's main loop and a small thread of ours only read the clock, which is made of atomic words.

#![allow(unsafe_code)]

mod ffi;
mod internals;

use crate::board::Board;
use crate::clock::{Clocks, MAX_CORES};
use crate::decode::{Magic, SELECTED, Special, decode};
use crate::events::{Counts, Event};
use crate::geometry::Line;
use crate::hierarchy::Hierarchy;
use crate::pmu::{COUNTERS, Pmu, Setup};
use ffi::{Api, ByteArray, PluginId, RegisterDescriptor, UserData};
use internals::Internals;
use libc::{c_char, c_int, c_uint, c_void};
use serde::Serialize;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The plugin API that the bindings are written for; QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

/// Guest time where the region of interest first begins, or the model, in ns.
const EPOCH: i64 = 1_000_000_000;
/// Timers that were set by other means than a write to a timer register are seen after this many ns.
const TIMER_CHECK: i64 = 20_000;
/// In ns.
const MILLISECOND: i64 = 1_000_000;
/// How often the host looks whether all cores wait.
const IDLE_CHECK: Duration = Duration::from_micros(200);

struct Qemu {
    api: Api,
    internals: Internals,
    id: PluginId,
}

static QEMU: OnceLock<Qemu> = OnceLock::new();
static PLUGIN: AtomicPtr<Plugin> = AtomicPtr::new(std::ptr::null_mut());

/// What clock hooks read, from any thread.
struct SharedClock {
    /// Whether the model makes time.
    modelled: AtomicBool,
    /// Time up to which timers have run, in ns.
    horizon: AtomicI64,
    /// Time of the core that runs, in ns, for its own thread.
    core: AtomicI64,
    /// Without the model: guest time and QEMU's own, when the model ended.
    base: AtomicI64,
    base_own: AtomicI64,
    /// Grows with each turn; when it stands still, all cores may wait.
    turns: AtomicU64,
    /// All cores waited, and time went on.
    waited: AtomicBool,
}

static TIME: SharedClock = SharedClock {
    modelled: AtomicBool::new(false),
    horizon: AtomicI64::new(EPOCH),
    core: AtomicI64::new(0),
    base: AtomicI64::new(EPOCH),
    base_own: AtomicI64::new(0),
    turns: AtomicU64::new(0),
    waited: AtomicBool::new(false),
};

thread_local! {
    /// Set on the vCPUs' thread, but not while timers run there.
    static READS_CORE: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn get_clock() -> i64 {
    if !TIME.modelled.load(Relaxed) {
        let own = QEMU.get().map_or(0, |qemu| qemu.internals.own_clock());
        return TIME.base.load(Relaxed) + own - TIME.base_own.load(Relaxed);
    }
    let horizon = TIME.horizon.load(Relaxed);
    if READS_CORE.get() { horizon.max(TIME.core.load(Relaxed)) } else { horizon }
}

extern "C" fn set_clock(time: i64) {
    TIME.horizon.fetch_max(time, Relaxed);
}

/// Runs `what` with time as timers see it.
fn at_horizon<T>(what: impl FnOnce() -> T) -> T {
    let before = READS_CORE.replace(false);
    let result = what();
    READS_CORE.set(before);
    result
}

extern "C" fn run_timers(_cpu: *mut c_void, time: u64) {
    if let Some(qemu) = QEMU.get() {
        at_horizon(|| qemu.internals.advance(time as i64));
    }
}

/// What is known of a block when it is translated.
struct Block {
    instructions: u64,
    first: Line,
    last: Line,
    address: u64,
    level: u8,
}

/// A line that no access has.
const NO_LINE: u64 = u64::MAX;

/// What makes most accesses short: the line of the last one, by virtual address.
#[derive(Clone, Copy)]
struct Latest {
    line: u64,
    written: bool,
    fetched: Line,
}

const NOTHING: Latest = Latest { line: NO_LINE, written: false, fetched: Line(NO_LINE) };

/// No exception level: the next block looks after the counters.
const NO_LEVEL: u8 = u8::MAX;

/// An access to the performance monitors that was begun, and may trap instead.
#[derive(Clone, Copy)]
struct Pending {
    what: Special,
    /// PMCR_EL0 as it is written.
    value: u64,
    /// Where the guest goes on if it does not trap.
    next: u64,
}

/// A core's event counters.
#[derive(Clone)]
struct Counters {
    pmu: Pmu,
    /// The exception level of the blocks of late.
    level: u8,
    /// The same, or [`NO_LEVEL`].
    watched: u8,
    /// The registers must be read again.
    stale: bool,
    pending: Option<Pending>,
}

/// The registers of the performance monitors by QEMU's names, in the order of [`Plugin::monitors`].
const MONITORS: [&[u8]; 10] = [
    b"PMEVTYPER0_EL0",
    b"PMEVTYPER1_EL0",
    b"PMEVTYPER2_EL0",
    b"PMEVTYPER3_EL0",
    b"PMEVTYPER4_EL0",
    b"PMEVTYPER5_EL0",
    b"PMCNTENSET_EL0",
    b"PMCR_EL0",
    b"MDCR_EL2",
    b"PMSELR_EL0",
];

struct Plugin {
    counters: Vec<Counters>,
    monitors: [*mut c_void; MONITORS.len()],
    cpsr: *mut c_void,
    after_read: HashSet<u64>,
    board: Board,
    caches: Hierarchy,
    clocks: Clocks,
    latest: [Latest; MAX_CORES],
    cpus: [*mut c_void; MAX_CORES],
    slot: *const *mut c_void,
    running: (*mut c_void, usize),
    limit: u64,
    line_shift: u32,
    line_mask: u64,
    active: bool,
    always: bool,
    regions: u64,
    started: u64,
    next_timer: i64,
    x: [*mut c_void; 31],
    bytes: *mut ByteArray,
    blocks: Vec<*mut Block>,
    statistics: Option<PathBuf>,
    totals: Vec<(Counts, u64)>,
}

/// The plugin's state.
///
/// # Safety
/// On the vCPUs' thread, in a callback, and not while another borrow lives: no function that is called with the
/// borrow alive calls back.
#[inline]
unsafe fn plugin() -> &'static mut Plugin {
    // SAFETY: set at load, before the first callback, and never freed; exclusive as the caller promises.
    unsafe { &mut *PLUGIN.load(Relaxed) }
}

fn qemu() -> &'static Qemu {
    match QEMU.get() {
        Some(qemu) => qemu,
        None => unreachable!("QEMU calls back after the plugin was loaded"),
    }
}

impl Plugin {
    #[inline]
    fn core(&mut self) -> usize {
        // SAFETY: the slot is this thread's variable, which QEMU sets before it runs a vCPU.
        let cpu = unsafe { self.slot.read() };
        if cpu != self.running.0 {
            let index = self.cpus.iter().position(|known| *known == cpu).unwrap_or(0);
            self.running = (cpu, index);
        }
        self.running.1
    }

    const fn nanoseconds(&self, cycles: u64) -> i64 {
        if self.board.clock_mhz == 1000 {
            cycles as i64
        } else {
            (cycles as u128 * 1000 / self.board.clock_mhz as u128) as i64
        }
    }
    const fn cycles(&self, nanoseconds: i64) -> u64 {
        (nanoseconds as u128 * self.board.clock_mhz as u128 / 1000) as u64
    }

    #[inline]
    fn spend(&mut self, core: usize, cycles: u64) {
        self.clocks.spend(core, cycles);
        let time = self.nanoseconds(self.clocks.cycles(core));
        TIME.core.store(time, Relaxed);
    }

    #[inline]
    fn block(&mut self, block: &Block) {
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

    /// The exception level changed, or an access to the performance monitors was begun.
    #[cold]
    #[inline(never)]
    fn look_after_counters(&mut self, core: usize, block: &Block) {
        self.advance_counters(core);
        let counters = &mut self.counters[core];
        counters.level = block.level;
        counters.watched = block.level;
        if std::mem::take(&mut counters.stale) {
            self.set_up_counters(core);
        }
        let counters = &mut self.counters[core];
        let Some(pending) = counters.pending else { return };
        if pending.next != block.address & 0xffff_ffff {
            counters.pending = None;
            return;
        }
        match pending.what {
            // Stays for the instruction that comes now.
            Special::ReadCounter(..) => return,
            Special::WriteCounter(counter) => counters.pmu.written(counter as usize),
            Special::WriteControl(_) if pending.value & 2 != 0 => counters.pmu.cleared(),
            _ => {}
        }
        counters.pending = None;
        self.set_up_counters(core);
    }

    fn advance_counters(&mut self, core: usize) {
        let counters = &mut self.counters[core];
        counters.pmu.advance(counters.level, self.caches.counts(core), self.board.l2d_cache_double_count);
    }

    fn set_up_counters(&mut self, core: usize) {
        let values = self.monitors.map(|handle| self.read(handle));
        let mut types = [0; COUNTERS];
        types.copy_from_slice(&values[..COUNTERS]);
        let setup = Setup { types, enabled: values[6], control: values[7], reserved: values[8] };
        self.counters[core].pmu.set_up(setup);
    }

    fn begin_monitor_access(&mut self, core: usize, what: Special, next: u64) {
        self.advance_counters(core);
        let value = if let Special::WriteControl(register) = what { self.register(register) } else { 0 };
        let selected = (self.read(self.monitors[9]) & 31) as u8;
        let what = match what {
            Special::ReadCounter(register, SELECTED) => Special::ReadCounter(register, selected),
            Special::WriteCounter(SELECTED) => Special::WriteCounter(selected),
            other => other,
        };
        if matches!(what, Special::ReadCounter(_, counter) | Special::WriteCounter(counter) if counter as usize >= COUNTERS)
        {
            return;
        }
        let counters = &mut self.counters[core];
        counters.pending = Some(Pending { what, value, next });
        counters.watched = NO_LEVEL;
    }

    /// Before the instruction behind one that reads a counter.
    fn finish_counter_read(&mut self) {
        let core = self.core();
        let Some(Pending { what: Special::ReadCounter(register, counter), .. }) = self.counters[core].pending.take()
        else {
            return;
        };
        if register < 31 {
            let value = self.counters[core].pmu.read(counter as usize, self.register(register));
            // SAFETY: the CPU that runs on this thread, in a callback that may write registers.
            unsafe { qemu().internals.set_register(self.running.0, register, value) };
        }
    }

    /// At the first block of a turn, and when the core has come to its limit.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, core: usize) {
        if TIME.waited.swap(false, Relaxed) {
            self.clocks.all_waited();
        }
        if self.clocks.is_new_turn(core) {
            self.clocks.takes_turn(core, self.cycles(TIME.horizon.load(Relaxed)));
            self.limit = self.clocks.limit(core);
            TIME.core.store(self.nanoseconds(self.clocks.cycles(core)), Relaxed);
            TIME.turns.fetch_add(1, Relaxed);
            if self.clocks.cycles(core) < self.limit {
                return;
            }
        }
        TIME.turns.fetch_add(1, Relaxed);
        let slowest = self.nanoseconds(self.clocks.slowest().unwrap_or(0));
        self.let_time_pass(core, slowest);
        self.clocks.gives_way();
        // SAFETY: QEMU named this CPU when it started it.
        unsafe { qemu().internals.exit(self.cpus[core]) };
    }

    /// The slowest core has come to `time`: timers up to there are due.
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
            // SAFETY: QEMU named this CPU when it started it.
            unsafe { qemu().internals.work(self.cpus[core], run_timers, time as u64) };
        } else {
            TIME.horizon.store(time, Relaxed);
            self.next_timer = next.unwrap_or(i64::MAX).min(time + TIMER_CHECK);
        }
    }

    #[inline]
    fn access(&mut self, info: u32, address: u64, write: bool) {
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
        latest.line = line;
        latest.written = write;
        self.part(core, info, address, write);
        if at_end {
            // SAFETY: a pure function of the word that QEMU gave.
            let bytes = 1u64 << unsafe { (qemu().api.size_shift)(info) };
            if (address + bytes - 1) >> self.line_shift != line {
                self.caches.counts_mut(core).crossings += 1;
                self.latest[core].line = NO_LINE;
                self.part(core, info, (line + 1) << self.line_shift, write);
            }
        }
    }

    #[inline]
    fn part(&mut self, core: usize, info: u32, address: u64, write: bool) {
        let api = &qemu().api;
        // SAFETY: in a memory callback; the answer is read at once. The second part of an access over a page's end is
        // looked up like the first: QEMU has just used both pages.
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

    /// A general register; 31 is zero.
    fn register(&self, number: u8) -> u64 {
        self.x.get(number as usize).map_or(0, |handle| self.read(*handle))
    }

    /// A register by its handle, of 4 or 8 bytes; zero if QEMU has none.
    fn read(&self, handle: *mut c_void) -> u64 {
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

    fn physical(&mut self, address: u64) -> Option<u64> {
        self.core();
        // SAFETY: the CPU that runs on this thread.
        unsafe { qemu().internals.translate(self.running.0, address) }
    }

    fn special(&mut self, special: Special, address: u64) {
        let core = self.core();
        match special {
            Special::Magic(Magic::BeginWarm) => self.begin(false),
            Special::Magic(Magic::BeginCold) => self.begin(true),
            Special::Magic(Magic::End) => self.end(),
            Special::Magic(Magic::Cacheability) => {
                let (physical, bytes, off) = (self.register(0), self.register(1), self.register(2));
                // A guest may say anything: no more pages than the board could have.
                self.caches.set_cacheable(physical, bytes.min(1 << 34), off == 0);
                self.latest = [NOTHING; MAX_CORES];
            }
            Special::Timer => self.next_timer = 0,
            _ if !self.active => {}
            Special::ReadCounter(..) | Special::WriteCounter(_) | Special::WriteControl(_) | Special::SetUpCounters => {
                self.begin_monitor_access(core, special, (address + 4) & 0xffff_ffff);
            }
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

    fn begin(&mut self, cold: bool) {
        if cold {
            self.caches.make_cold();
        }
        self.caches.reset_counts();
        self.latest = [NOTHING; MAX_CORES];
        for counters in &mut self.counters {
            counters.pmu.restart();
            counters.watched = NO_LEVEL;
            // The registers may have been written while the model was off.
            counters.pending = None;
            counters.stale = true;
        }
        // From a whole millisecond on: what the host took until here must not be seen in the timer's last digits.
        let first = self.always && self.regions == 0;
        let now = if first { EPOCH } else { (get_clock() / MILLISECOND + 1) * MILLISECOND };
        let now = self.cycles(now);
        if !self.active {
            self.clocks.set_all(now);
            TIME.horizon.store(self.nanoseconds(now), Relaxed);
            TIME.core.store(self.nanoseconds(now), Relaxed);
            TIME.modelled.store(true, Relaxed);
            self.active = true;
            if !self.always {
                retranslate();
            }
        }
        self.next_timer = 0;
        self.limit = 0;
        self.core();
        self.started = self.clocks.cycles(self.running.1);
        self.regions += 1;
        self.totals.clear();
    }

    fn end(&mut self) {
        if !self.active {
            return;
        }
        self.totals =
            (0..self.clocks.cores()).map(|core| (*self.caches.counts(core), self.clocks.cycles(core))).collect();
        if self.always {
            return;
        }
        let time = get_clock();
        TIME.base_own.store(qemu().internals.own_clock(), Relaxed);
        TIME.base.store(time, Relaxed);
        TIME.modelled.store(false, Relaxed);
        self.active = false;
        retranslate();
    }

    fn report(&self) -> Report {
        let last: Vec<_> =
            (0..self.clocks.cores()).map(|core| (*self.caches.counts(core), self.clocks.cycles(core))).collect();
        let ended = if self.totals.is_empty() { &last } else { &self.totals };
        let core = |(counts, cycles): &(Counts, u64)| {
            let cycles = cycles.saturating_sub(self.started);
            let count = |event: &Event| (event.name(), event.count(counts, cycles, self.board.l2d_cache_double_count));
            CoreReport { cycles, events: Event::ALL.iter().map(count).collect(), counts: *counts }
        };
        Report {
            modelled: true,
            board: self.board.name.clone(),
            regions: self.regions,
            cores: ended.iter().map(core).collect(),
        }
    }
}

/// The statistics of the last region of interest.
#[derive(Serialize)]
struct Report {
    modelled: bool,
    board: String,
    regions: u64,
    cores: Vec<CoreReport>,
}

#[derive(Serialize)]
struct CoreReport {
    cycles: u64,
    events: BTreeMap<&'static str, u64>,
    counts: Counts,
}

fn retranslate() {
    let qemu = qemu();
    // SAFETY: QEMU does it when no vCPU executes, and then calls back.
    unsafe { (qemu.api.reset)(qemu.id, on_reset) };
}

extern "C" fn on_reset(_id: PluginId) {
    // SAFETY: no vCPU executes.
    let plugin = unsafe { plugin() };
    for block in plugin.blocks.drain(..) {
        // SAFETY: made by Box::into_raw; the translations that named it are gone.
        drop(unsafe { Box::from_raw(block) });
    }
    register();
}

fn register() {
    let qemu = qemu();
    // SAFETY: the id is ours and the callbacks have the API's signatures.
    unsafe {
        (qemu.api.on_translate)(qemu.id, on_translate);
        (qemu.api.on_exit)(qemu.id, on_exit, std::ptr::null_mut());
    }
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    // SAFETY: the vCPUs have stopped.
    let plugin = unsafe { plugin() };
    let report = plugin.report();
    for (index, core) in report.cores.iter().enumerate() {
        let counts = &core.counts;
        eprintln!(
            "board-model (modelled): core {index}: {} cycles, {} instructions, {} loads, {} stores, refills L1I {} L1D {} L2 {}",
            core.cycles,
            counts.instructions,
            counts.loads,
            counts.stores,
            counts.l1i_refills,
            counts.l1d_refills,
            counts.l2_refills
        );
    }
    if let Some(path) = &plugin.statistics {
        let written = serde_json::to_string_pretty(&report)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(path, text + "\n"));
        if let Err(error) = written {
            eprintln!("board-model: cannot write {}: {error}", path.display());
        }
    }
}

extern "C" fn on_vcpu(_id: PluginId, index: c_uint) {
    // SAFETY: on the vCPUs' thread, before the vCPU runs.
    let plugin = unsafe { plugin() };
    let (api, internals) = (&qemu().api, &qemu().internals);
    plugin.cpus[index as usize] = internals.cpu(index);
    plugin.clocks.add_core();
    if index != 0 {
        return;
    }
    READS_CORE.set(true);
    plugin.slot = Internals::current_cpu_slot();
    if let Err(error) = internals.hook_clock(get_clock, set_clock) {
        fail(&error);
    }
    // SAFETY: on a vCPU's thread; the list and its descriptors are as declared, and names end with a zero.
    unsafe {
        plugin.bytes = (api.byte_array)();
        let list = (api.registers)();
        let descriptors = std::slice::from_raw_parts((*list).data.cast::<RegisterDescriptor>(), (*list).len as usize);
        for descriptor in descriptors.iter().filter(|descriptor| !descriptor.name.is_null()) {
            let name = CStr::from_ptr(descriptor.name).to_bytes();
            let number =
                name.strip_prefix(b"x").and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            if name == b"cpsr" {
                plugin.cpsr = descriptor.handle;
            }
            if let Some(at) = MONITORS.iter().position(|known| *known == name) {
                plugin.monitors[at] = descriptor.handle;
            }
            if let Some(place) = number.and_then(|number| plugin.x.get_mut(number)) {
                *place = descriptor.handle;
            }
        }
    }
    TIME.base_own.store(internals.own_clock(), Relaxed);
    if plugin.always {
        plugin.begin(true);
    }
    std::thread::spawn(skip_idle_time);
}

/// When all cores wait, guest time jumps to the next timer.
fn skip_idle_time() {
    let internals = &qemu().internals;
    let mut turns = 0;
    loop {
        std::thread::sleep(IDLE_CHECK);
        let now = TIME.turns.load(Relaxed);
        if !TIME.modelled.load(Relaxed) || std::mem::replace(&mut turns, now) != now {
            continue;
        }
        internals.locked(|| {
            if internals.all_idle()
                && let Some(wait) = internals.next_timer()
            {
                let time = TIME.horizon.load(Relaxed) + wait;
                internals.advance(time);
                TIME.waited.store(true, Relaxed);
            }
        });
    }
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    let api = &qemu().api;
    // SAFETY: on the vCPUs' thread; nothing below calls back.
    let plugin = unsafe { plugin() };
    // SAFETY: the block is QEMU's, and valid during this callback; indices are below the number of instructions.
    unsafe {
        let count = (api.instructions)(block);
        let address = |at| (api.address)((api.instruction)(block, at));
        if plugin.active {
            let first = plugin.physical(address(0)).unwrap_or(0);
            let last = plugin.physical(address(count - 1)).unwrap_or(first);
            let (first, last) = (plugin.caches.line(first), plugin.caches.line(last));
            // Two pages that are not neighbors: the second one's part is left out.
            let last = if last < first || last.0 - first.0 > 64 { first } else { last };
            let known = Box::into_raw(Box::new(Block {
                instructions: count as u64,
                first,
                last,
                address: address(0),
                // CPSR.M[3:2]; QEMU has other translations for each level.
                level: (plugin.read(plugin.cpsr) >> 2 & 3) as u8,
            }));
            plugin.blocks.push(known);
            (api.on_block)(block, on_block, ffi::NO_REGISTERS, known.cast());
        }
        let mut reads_counter = false;
        for at in 0..count {
            let instruction = (api.instruction)(block, at);
            let mut word = [0u8; 4];
            (api.bytes)(instruction, word.as_mut_ptr().cast(), 4);
            let word = u32::from_le_bytes(word);
            if plugin.active {
                let nothing = std::ptr::null_mut();
                (api.on_memory)(instruction, on_load, ffi::NO_REGISTERS, ffi::LOADS, nothing);
                (api.on_memory)(instruction, on_store, ffi::NO_REGISTERS, ffi::STORES, nothing);
            }
            let wanted = decode(word).filter(|special| plugin.active || matches!(special, Special::Magic(_)));
            let nothing = std::ptr::null_mut();
            if plugin.active && (reads_counter || at == 0 && plugin.after_read.contains(&address(0))) {
                (api.on_instruction)(instruction, on_counter_read, ffi::WRITES_REGISTERS, nothing);
            }
            reads_counter = matches!(wanted, Some(Special::ReadCounter(..)));
            if reads_counter {
                plugin.after_read.insert(address(at) + 4);
            }
            if wanted.is_some() {
                // The instruction's word above the place that it stands at: addresses have 48 bits, of which 32 tell an
                // instruction from the next one.
                let word = usize::try_from(u64::from(word) << 32 | address(at) & 0xffff_ffff).unwrap_or_default();
                let word = std::ptr::without_provenance_mut(word);
                (api.on_instruction)(instruction, on_special, ffi::READS_REGISTERS, word);
            }
        }
    }
}

extern "C" fn on_block(_vcpu: c_uint, block: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back but the clock, which reads atomic words alone.
    let plugin = unsafe { plugin() };
    if plugin.active {
        // SAFETY: made when the block was translated, and freed after all translations are gone.
        plugin.block(unsafe { &*block.cast::<Block>() });
    }
}

extern "C" fn on_load(_vcpu: c_uint, info: u32, address: u64, _data: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    unsafe { plugin() }.access(info, address, false);
}

extern "C" fn on_store(_vcpu: c_uint, info: u32, address: u64, _data: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    unsafe { plugin() }.access(info, address, true);
}

extern "C" fn on_special(_vcpu: c_uint, word: UserData) {
    let word = word.addr() as u64;
    if let Some(special) = decode((word >> 32) as u32) {
        // SAFETY: on the vCPUs' thread; nothing in it calls back but the clock, which reads atomic words alone.
        unsafe { plugin() }.special(special, word & 0xffff_ffff);
    }
}

extern "C" fn on_counter_read(_vcpu: c_uint, _data: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    unsafe { plugin() }.finish_counter_read();
}

fn fail(error: &str) -> ! {
    eprintln!("board-model: {error}");
    std::process::exit(1)
}

/// `qemu_info_t`, its first members.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    version_min: c_int,
    version_current: c_int,
    system: bool,
    vcpus: c_int,
    most_vcpus: c_int,
}

fn install(id: PluginId, info: &Info, arguments: &[&str]) -> Result<(), String> {
    let missing = |name| {
        format!("this QEMU has no `{name}`; Debian's qemu-system-arm 1:10.0 (trixie, bookworm-backports) has it")
    };
    let api = Api::find().map_err(missing)?;
    let internals = Internals::find().map_err(missing)?;
    // SAFETY: QEMU names its target with a text that ends with a zero.
    let target = unsafe { CStr::from_ptr(info.target) };
    if target != c"aarch64" || !info.system {
        return Err("the model is for qemu-system-aarch64".into());
    }
    let cores = info.most_vcpus.max(info.vcpus);
    if !(1..=MAX_CORES as c_int).contains(&cores) {
        return Err(format!("{cores} cores: 1 to {MAX_CORES} are modelled"));
    }
    let (mut board, mut always, mut statistics) = (None, false, None);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("board", path)) => {
                board = Some(Board::load(path.as_ref()).map_err(|error| format!("{path}: {error}"))?);
            }
            Some(("roi", "always")) => always = true,
            Some(("roi", "hint")) => always = false,
            Some(("stats", path)) => statistics = Some(PathBuf::from(path)),
            _ => {
                return Err(format!(
                    "unknown argument `{argument}`: there are board=FILE, roi=hint|always, stats=FILE"
                ));
            }
        }
    }
    let board = board.ok_or("no board: give board=configs/boards/zcu102-model.toml")?;
    let caches = Hierarchy::new(&board, cores as usize);
    let line_shift = caches.line_shift();
    let idle = Counters { pmu: Pmu::default(), level: NO_LEVEL, watched: NO_LEVEL, stale: true, pending: None };
    let plugin = Plugin {
        counters: vec![idle; cores as usize],
        monitors: [std::ptr::null_mut(); MONITORS.len()],
        cpsr: std::ptr::null_mut(),
        after_read: HashSet::new(),
        clocks: Clocks::new(board.quantum),
        latest: [NOTHING; MAX_CORES],
        cpus: [std::ptr::null_mut(); MAX_CORES],
        slot: std::ptr::null(),
        running: (std::ptr::null_mut(), 0),
        limit: 0,
        line_shift,
        line_mask: (1 << line_shift) - 1,
        active: false,
        always,
        regions: 0,
        started: 0,
        next_timer: 0,
        x: [std::ptr::null_mut(); 31],
        bytes: std::ptr::null_mut(),
        blocks: Vec::new(),
        statistics,
        totals: Vec::new(),
        caches,
        board,
    };
    if QEMU.set(Qemu { api, internals, id }).is_err() {
        return Err("loaded twice".into());
    }
    PLUGIN.store(Box::into_raw(Box::new(plugin)), Relaxed);
    // SAFETY: the id is ours and the callback has the API's signature.
    unsafe { (api.on_vcpu)(id, on_vcpu) };
    register();
    Ok(())
}

/// QEMU's way in.
///
/// # Safety
/// QEMU calls it once, with its own description and as many texts as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    texts: *const *const c_char,
) -> c_int {
    let text = |at: usize| {
        // SAFETY: as QEMU promises: `count` texts, each ending with a zero, that live as long as QEMU.
        unsafe { CStr::from_ptr(*texts.add(at)) }.to_str()
    };
    let texts: Result<Vec<&str>, _> = (0..count as usize).map(text).collect();
    // SAFETY: as QEMU promises.
    let info = unsafe { &*info };
    match texts.map_err(|error| error.to_string()).and_then(|texts| install(id, info, &texts)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("board-model: {error}");
            1
        }
    }
}
