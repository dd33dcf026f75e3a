//! The system counter, and the EL2 timer with its deadlines.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::{
    CNTFRQ_EL0, CNTHP_CTL_EL2, CNTHP_CVAL_EL2, CNTPCT_EL0, Readable, Writeable,
};
use crate::machine::sysreg;
use cloison_logic::clock::{Clock, Instant};
use core::cell::Cell;
use spin::Once;

/// The same on all cores: the system counter is one for the machine.
static CLOCK: Once<Clock> = Once::new();

/// Reads the counter's frequency; boot core only, once.
///
/// # Errors
/// The frequency in hertz reported by CNTFRQ_EL0, if it is outside the supported range.
pub fn init() -> Result<(), u64> {
    let hz = CNTFRQ_EL0.get();
    let clock = Clock::new(hz).ok_or(hz)?;
    CLOCK.call_once(|| clock);
    Ok(())
}

/// Returns the counter's frequency.
pub fn clock() -> Clock {
    *CLOCK
        .get()
        .expect("set at boot, before anything that counts time")
}

/// Returns the value of the system counter.
///
/// The physical counter, which no guest can offset. The ISB keeps the read from being executed
/// earlier.
pub fn now() -> Instant {
    sysreg::isb();
    Instant(CNTPCT_EL0.get())
}

/// Clears a deadline that is due now or was before. Returns whether it was one.
pub fn take_passed(deadline: &Cell<Option<Instant>>, now: Instant) -> bool {
    let passed = deadline.get().is_some_and(|at| at <= now);
    if passed {
        deadline.set(None);
    }
    passed
}

/// What EL2 needs its timer interrupt for, and when.
///
/// One timer per core serves them all. A deadline that has passed stays set until its handler takes
/// it.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// A quota's next poll or the end of its period.
    pub quota: Cell<Option<Instant>>,
    /// When the VM's profiled pages move.
    pub migration: Cell<Option<Instant>>,
    /// When waiting records and messages are sent.
    pub output: Cell<Option<Instant>>,
    /// When a lease of the VM may have run out. That outlives the vCPU that has taken it.
    pub lease: Cell<Option<Instant>>,
    /// When the machine is reset, because the run has not ended.
    pub end: Cell<Option<Instant>>,
}

impl Deadlines {
    /// Clears the deadlines of a vCPU.
    ///
    /// Not that of a lease, nor the run's end.
    pub fn clear(&self) {
        for deadline in [&self.quota, &self.migration, &self.output] {
            deadline.set(None);
        }
        self.program();
    }

    /// Sets the EL2 timer to the earliest deadline.
    ///
    /// A deadline in the past raises the interrupt at once: the timer compares, and does not wait
    /// for equality.
    pub fn program(&self) {
        let all = [
            &self.quota,
            &self.migration,
            &self.output,
            &self.lease,
            &self.end,
        ];
        match all.into_iter().filter_map(Cell::get).min() {
            None => CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::CLEAR),
            Some(next) => {
                CNTHP_CVAL_EL2.set(next.0);
                CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::SET);
            }
        }
        sysreg::isb();
    }
}
