//! The system counter in nanoseconds, and the EL2 timer with its deadlines.

use crate::machine::sysreg;
use cloison_formats::units::Nanos;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds per tick, 32.32 fixed point.
static NANOS_PER_TICK: AtomicU64 = AtomicU64::new(0);
/// Ticks per nanosecond, 32.32 fixed point.
static TICKS_PER_NANO: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Learns the counter's frequency; boot core, once.
pub fn init() {
    // Up to 1 GHz, which is Armv9's fixed frequency: then all of this fits 64 bits.
    let hz = sysreg::read!("cntfrq_el0").clamp(1, SECOND);
    NANOS_PER_TICK.store((SECOND << 32) / hz, Ordering::Relaxed);
    TICKS_PER_NANO.store((hz << 32) / SECOND, Ordering::Relaxed);
}

/// Ticks of the system counter since reset.
#[inline(always)]
pub fn ticks() -> u64 {
    sysreg::isb();
    sysreg::read!("cntpct_el0")
}

/// Ticks as nanoseconds.
#[inline(always)]
pub fn to_nanos(ticks: u64) -> Nanos {
    Nanos(((u128::from(ticks) * u128::from(NANOS_PER_TICK.load(Ordering::Relaxed))) >> 32) as u64)
}

/// Nanoseconds as ticks, rounded up, so that a deadline is never early.
#[inline(always)]
pub fn to_ticks(nanos: Nanos) -> u64 {
    ((u128::from(nanos.0) * u128::from(TICKS_PER_NANO.load(Ordering::Relaxed))) >> 32) as u64 + 1
}

/// Nanoseconds since reset.
#[inline(always)]
pub fn now() -> Nanos {
    to_nanos(ticks())
}

/// Why EL2 wants its timer interrupt, and when (nanoseconds; `u64::MAX`: not).
#[derive(Debug)]
pub struct Deadlines {
    /// A quota's next poll or the end of its period.
    pub quota: Cell<u64>,
    /// The VM's profiled pages move.
    pub migration: Cell<u64>,
    /// Records wait for the telemetry line.
    pub telemetry: Cell<u64>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { quota: Cell::new(u64::MAX), migration: Cell::new(u64::MAX), telemetry: Cell::new(u64::MAX) }
    }
}

impl Deadlines {
    /// Forgets them all.
    pub fn clear(&self) {
        self.quota.set(u64::MAX);
        self.migration.set(u64::MAX);
        self.telemetry.set(u64::MAX);
        self.program();
    }

    /// Sets the EL2 timer to the next of them.
    #[inline(always)]
    pub fn program(&self) {
        let next = self.quota.get().min(self.migration.get()).min(self.telemetry.get());
        if next == u64::MAX {
            sysreg::write!("cnthp_ctl_el2", 0);
        } else {
            sysreg::write!("cnthp_cval_el2", to_ticks(Nanos(next)));
            sysreg::write!("cnthp_ctl_el2", 1);
        }
        sysreg::isb();
    }
}
