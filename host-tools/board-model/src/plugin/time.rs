//! Guest time: what QEMU's clock hooks read, and the thread that lets it go on when all cores wait.

use super::internals::Internals;
use super::{QEMU, qemu};
use crate::clock::MAX_CORES;
use libc::c_void;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Guest time where the region of interest first begins, or the model, in ns.
pub const EPOCH: i64 = 1_000_000_000;
/// How often the host looks whether all cores wait.
const IDLE_CHECK: Duration = Duration::from_micros(200);

/// Time goes on by this at most at once, in ns: a timer that will never fire is set to the end of time, and QEMU would run
/// every other one up to there with its lock held.
const STRIDE: i64 = 1_000_000_000;

/// What clock hooks read, from any thread.
pub struct SharedClock {
    /// Whether the model makes time.
    pub modelled: AtomicBool,
    /// Time up to which timers have run, in ns.
    pub horizon: AtomicI64,
    /// QEMU's CPUs, and their times in ns.
    cores: [(AtomicPtr<c_void>, AtomicI64); MAX_CORES],
    /// Without the model: guest time and QEMU's own, when the model ended.
    pub base: AtomicI64,
    /// QEMU's own time then.
    pub base_own: AtomicI64,
    /// Grows with each turn; when it stands still, all cores may wait.
    pub turns: AtomicU64,
    /// All cores waited, and time went on.
    pub waited: AtomicBool,
}

/// The clock of this QEMU.
pub static TIME: SharedClock = SharedClock {
    modelled: AtomicBool::new(false),
    horizon: AtomicI64::new(EPOCH),
    cores: [const { (AtomicPtr::new(std::ptr::null_mut()), AtomicI64::new(0)) }; MAX_CORES],
    base: AtomicI64::new(EPOCH),
    base_own: AtomicI64::new(0),
    turns: AtomicU64::new(0),
    waited: AtomicBool::new(false),
};

thread_local! {
    /// Set on the vCPUs' thread, but not while timers run there.
    static READS_CORE: Cell<bool> = const { Cell::new(false) };
}

impl SharedClock {
    /// QEMU has this CPU.
    pub fn learn(&self, core: usize, cpu: *mut c_void) {
        self.cores[core].0.store(cpu, Relaxed);
    }
    /// A core has come to this time.
    #[inline]
    pub fn set(&self, core: usize, time: i64) {
        self.cores[core].1.store(time, Relaxed);
    }
    /// The time of a CPU. One that waited and has not yet gone on has an old one.
    fn of(&self, cpu: *mut c_void) -> i64 {
        let core = self.cores.iter().find(|(known, _)| known.load(Relaxed) == cpu);
        core.map_or(0, |(_, time)| time.load(Relaxed))
    }
}

/// This is the vCPUs' thread: it reads the time of the core that runs.
pub fn is_vcpu_thread() {
    READS_CORE.set(true);
}

/// QEMU's `get_virtual_clock`.
pub extern "C" fn get_clock() -> i64 {
    if !TIME.modelled.load(Relaxed) {
        let own = QEMU.get().map_or(0, |qemu| qemu.internals.own_clock());
        return TIME.base.load(Relaxed) + own - TIME.base_own.load(Relaxed);
    }
    let horizon = TIME.horizon.load(Relaxed);
    if READS_CORE.get() { horizon.max(TIME.of(Internals::current_cpu())) } else { horizon }
}

/// QEMU's `set_virtual_clock`.
pub extern "C" fn set_clock(time: i64) {
    TIME.horizon.fetch_max(time, Relaxed);
}

/// Runs `what` with time as timers see it.
pub fn at_horizon<T>(what: impl FnOnce() -> T) -> T {
    let before = READS_CORE.replace(false);
    let result = what();
    READS_CORE.set(before);
    result
}

/// Work for a CPU's thread: the timers up to `time`.
pub extern "C" fn run_timers(_cpu: *mut c_void, time: u64) {
    if let Some(qemu) = QEMU.get() {
        at_horizon(|| qemu.internals.advance(time as i64));
    }
}

/// When all cores wait, guest time jumps to the next timer. Never ends.
pub fn skip_idle_time() {
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
                let time = TIME.horizon.load(Relaxed) + wait.min(STRIDE);
                internals.advance(time);
                TIME.waited.store(true, Relaxed);
            }
        });
    }
}
