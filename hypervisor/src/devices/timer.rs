//! The system counter, and the EL2 timer with its deadlines.

use crate::machine::registers::{CNTFRQ_EL0, CNTHP_CTL_EL2, CNTHP_CVAL_EL2, CNTPCT_EL0, Readable, Writeable};
use crate::machine::sysreg;
use cloison_logic::clock::{Clock, Deadline, Instant};
use spin::Once;

static CLOCK: Once<Clock> = Once::new();

/// Learns the counter's frequency; boot core, once.
///
/// # Errors
/// The frequency in hertz that CNTFRQ_EL0 shows, where it is none that the hypervisor can count with.
pub fn init() -> Result<(), u64> {
    let hz = CNTFRQ_EL0.get();
    let clock = Clock::new(hz).ok_or(hz)?;
    CLOCK.call_once(|| clock);
    Ok(())
}

/// The counter's frequency.
#[inline(always)]
pub fn clock() -> Clock {
    *CLOCK.get().expect("set at boot, before anything that counts time")
}

/// What the system counter shows.
#[inline(always)]
pub fn now() -> Instant {
    sysreg::isb();
    Instant::at(CNTPCT_EL0.get())
}

/// Why EL2 wants its timer interrupt, and when.
#[derive(Debug)]
pub struct Deadlines {
    /// A quota's next poll or the end of its period.
    pub quota: Deadline,
    /// The VM's profiled pages move.
    pub migration: Deadline,
    /// Entries wait for the telemetry line.
    pub telemetry: Deadline,
}

impl Deadlines {
    /// None.
    pub const fn none() -> Self {
        Self { quota: Deadline::unset(), migration: Deadline::unset(), telemetry: Deadline::unset() }
    }

    /// Forgets them all.
    pub fn clear(&self) {
        [&self.quota, &self.migration, &self.telemetry].into_iter().for_each(|deadline| deadline.set(None));
        self.program();
    }

    /// Sets the EL2 timer to the next of them.
    #[inline(always)]
    pub fn program(&self) {
        match Deadline::first([&self.quota, &self.migration, &self.telemetry]) {
            None => CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::CLEAR),
            Some(next) => {
                CNTHP_CVAL_EL2.set(next.count());
                CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::SET);
            }
        }
        sysreg::isb();
    }
}
