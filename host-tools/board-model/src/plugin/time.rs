//! Guest time: the clock that QEMU's hooks read, and the thread that advances it when all cores
//! wait and ends long turns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::MAX_CORES;
use cloison_qemu::cpu::{Cpu, SharedCpu};
use cloison_qemu::internals::{Internals, internals};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Guest time at which the first region of interest starts, or the model if it is always on, in ns.
pub const EPOCH: i64 = 1_000_000_000;
/// How often the host checks whether all cores wait; without the model, about how long a turn
/// lasts.
const IDLE_CHECK: Duration = Duration::from_micros(200);
/// How often the host checks it while cores take turns and none has begun to wait. A core that
/// waits without a WFI, as one that is turned off, is noticed then.
const BUSY_CHECK: Duration = Duration::from_millis(10);
/// What QEMU's main loop reads while the model defines guest time: no timer is due. Timers run at the
/// end of turns; the host must not decide that one of them runs earlier.
const NOTHING_IS_DUE: i64 = -1;

/// Maximum step of guest time, in ns: a timer that will never fire is set to the end of time, and
/// QEMU would run every other timer up to there with its lock held.
const STRIDE: i64 = 1_000_000_000;

/// The state that clock hooks read, from any thread.
pub struct SharedClock {
    /// Whether the model defines guest time.
    pub modelled: AtomicBool,
    /// Time up to which timers have run, in ns.
    pub horizon: AtomicI64,
    /// QEMU's CPUs and their times in ns.
    cores: [(SharedCpu, AtomicI64); MAX_CORES],
    /// Without the model: guest time at the moment when the model was turned off, in ns.
    pub base: AtomicI64,
    /// QEMU's own time at that moment, in ns.
    pub base_own: AtomicI64,
    /// Incremented in each turn; if it does not change, all cores may be waiting.
    pub turns: AtomicU64,
    /// Incremented by each WFI.
    waits: AtomicU64,
    /// All cores waited, and time was advanced.
    pub waited: AtomicBool,
}

/// The clock of this QEMU.
pub static TIME: SharedClock = SharedClock {
    modelled: AtomicBool::new(false),
    horizon: AtomicI64::new(EPOCH),
    cores: [const { (SharedCpu::unknown(), AtomicI64::new(0)) }; MAX_CORES],
    base: AtomicI64::new(EPOCH),
    base_own: AtomicI64::new(0),
    turns: AtomicU64::new(0),
    waits: AtomicU64::new(0),
    waited: AtomicBool::new(false),
};

thread_local! {
    /// True on the vCPUs' thread, except while timers run there.
    static READS_CORE: Cell<bool> = const { Cell::new(false) };
    /// While this thread tests the clock: what it must read, and what was set.
    static PROBE: Cell<Option<(i64, i64)>> = const { Cell::new(None) };
    /// True on the thread of QEMU's main loop.
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Held while turns are ended without the model, and while the model is turned on.
static ENDS_TURNS: Mutex<()> = Mutex::new(());

/// The thread that advances time when all cores wait.
static WATCH: OnceLock<Thread> = OnceLock::new();

/// A time that no clock shows.
const PROBE_TIME: i64 = 0x7e57_7e57_7e57;

/// Tests whether QEMU reads and sets guest time by the model's functions. Returns two answers: for
/// reading and for setting.
pub fn is_hooked(read: &dyn Fn() -> i64, set: &dyn Fn(i64)) -> (bool, bool) {
    PROBE.set(Some((PROBE_TIME, 0)));
    let reads = read() == PROBE_TIME;
    set(PROBE_TIME + 1);
    let sets = PROBE.take().is_some_and(|(_, time)| time == PROBE_TIME + 1);
    (reads, sets)
}

impl SharedClock {
    /// Registers a CPU of QEMU.
    pub fn learn(&self, core: usize, cpu: Cpu) {
        self.cores[core].0.learn(cpu);
    }
    /// Records that a core has reached this time.
    #[inline]
    pub fn set(&self, core: usize, time: i64) {
        self.cores[core].1.store(time, Relaxed);
    }
    /// Ends the turn of whichever CPU runs.
    fn end_turn(&self, internals: &Internals) {
        for (cpu, _) in &self.cores {
            internals.end_turn(cpu);
        }
    }
    /// Returns the time of a CPU. For one that waited and has not continued yet, it is out of date.
    fn of(&self, cpu: Cpu) -> i64 {
        let core = self.cores.iter().find(|(known, _)| known.is(cpu));
        core.map_or(0, |(_, time)| time.load(Relaxed))
    }
}

fn ends_turns() -> MutexGuard<'static, ()> {
    ENDS_TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the model define guest time and the end of turns. No core is made to yield after this: the
/// host must not decide which core runs first.
pub fn begin_modelled() {
    let _none_ends_turns = ends_turns();
    TIME.modelled.store(true, Relaxed);
}

/// Ends the running turn if the model is off. Returns whether it is.
fn end_turn_of_host(internals: &Internals) -> bool {
    let _model_stays_off = ends_turns();
    let off = !TIME.modelled.load(Relaxed);
    if off {
        TIME.end_turn(internals);
    }
    off
}

/// Declares this thread the vCPUs' thread, which reads the time of the running core.
pub fn is_vcpu_thread() {
    READS_CORE.set(true);
}

/// Declares this thread the one of QEMU's main loop.
pub fn is_main_thread() {
    IS_MAIN.set(true);
}

/// Records that a core begins to wait for an interrupt: it may be the last one that ran.
pub fn core_waits() {
    TIME.waits.fetch_add(1, Relaxed);
    if let Some(watch) = WATCH.get() {
        watch.unpark();
    }
}

/// QEMU's `get_virtual_clock`.
pub extern "C" fn get_clock() -> i64 {
    if let Some((time, _)) = PROBE.get() {
        return time;
    }
    if !TIME.modelled.load(Relaxed) {
        let own = internals().map_or(0, Internals::own_clock);
        return TIME.base.load(Relaxed) + own - TIME.base_own.load(Relaxed);
    }
    if IS_MAIN.get() {
        return NOTHING_IS_DUE;
    }
    let horizon = TIME.horizon.load(Relaxed);
    if READS_CORE.get() {
        horizon.max(Internals::current_cpu().map_or(0, |cpu| TIME.of(cpu)))
    } else {
        horizon
    }
}

/// QEMU's `set_virtual_clock`.
pub extern "C" fn set_clock(time: i64) {
    if let Some((expected, _)) = PROBE.get() {
        PROBE.set(Some((expected, time)));
        return;
    }
    TIME.horizon.fetch_max(time, Relaxed);
}

/// Runs `what` with the time that timers see.
pub fn at_horizon<T>(what: impl FnOnce() -> T) -> T {
    let before = READS_CORE.replace(false);
    let result = what();
    READS_CORE.set(before);
    result
}

/// Runs the timers up to `time`, on a CPU's thread.
pub extern "C" fn run_timers(_cpu: *mut c_void, time: u64) {
    if let Some(internals) = internals() {
        at_horizon(|| internals.advance(time as i64));
    }
}

/// Reads a count, and returns whether it has changed.
fn changed(known: &mut u64, count: &AtomicU64) -> bool {
    let count = count.load(Relaxed);
    std::mem::replace(known, count) != count
}

/// Advances guest time to the next timer whenever all cores wait; without the model, ends turns
/// that take long. Never returns.
pub fn skip_idle_time(internals: &Internals) {
    _ = WATCH.set(std::thread::current());
    let (mut turns, mut waits) = (0, 0);
    loop {
        // QEMU's own turns last 100 ms. A core that needs the others (each TLBI that is broadcast
        // does) would wait that long for each of them, and a guest's kernel beside busy neighbors
        // would stand still.
        if end_turn_of_host(internals) {
            std::thread::sleep(IDLE_CHECK);
            continue;
        }
        let turned = changed(&mut turns, &TIME.turns);
        let waited = changed(&mut waits, &TIME.waits);
        if turned && !waited {
            std::thread::park_timeout(BUSY_CHECK);
            continue;
        }
        std::thread::sleep(IDLE_CHECK);
        if TIME.turns.load(Relaxed) != turns {
            continue;
        }
        internals.locked(|| {
            if internals.all_idle()
                && let Some(wait) = internals.next_timer()
            {
                // QEMU runs timers up to a time that is ahead.
                let time = TIME.horizon.load(Relaxed) + wait.clamp(1, STRIDE);
                internals.advance(time);
                TIME.waited.store(true, Relaxed);
            }
        });
    }
}
