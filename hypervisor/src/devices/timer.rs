//! The system counter, and the EL2 timer with its deadlines.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::{CNTFRQ_EL0, CNTHP_CTL_EL2, CNTHP_CVAL_EL2, CNTPCT_EL0, Readable, Writeable};
use crate::machine::sysreg;
use cloison_logic::clock::{Clock, Deadline, Instant};
use spin::Once;

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
    *CLOCK.get().expect("set at boot, before anything that counts time")
}

/// Returns the value of the system counter.
pub fn now() -> Instant {
    sysreg::isb();
    Instant::at(CNTPCT_EL0.get())
}

/// What EL2 needs its timer interrupt for, and when.
#[derive(Debug)]
pub struct Deadlines {
    /// A quota's next poll or the end of its period.
    pub quota: Deadline,
    /// When the VM's profiled pages move.
    pub migration: Deadline,
    /// When waiting records and messages are sent.
    pub output: Deadline,
}

impl Deadlines {
    /// Returns the state without deadlines.
    pub const fn none() -> Self {
        Self { quota: Deadline::unset(), migration: Deadline::unset(), output: Deadline::unset() }
    }

    /// Clears all deadlines.
    pub fn clear(&self) {
        [&self.quota, &self.migration, &self.output].into_iter().for_each(|deadline| deadline.set(None));
        self.program();
    }

    /// Sets the EL2 timer to the earliest deadline.
    pub fn program(&self) {
        match Deadline::first([&self.quota, &self.migration, &self.output]) {
            None => CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::CLEAR),
            Some(next) => {
                CNTHP_CVAL_EL2.set(next.count());
                CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::SET);
            }
        }
        sysreg::isb();
    }
}
