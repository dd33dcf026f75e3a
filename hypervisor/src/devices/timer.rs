//! The system counter, and the EL2 timer with its deadlines.

use crate::machine::sysreg;
use cloison_logic::clock::{Clock, Deadline, Instant};
use spin::Once;

static CLOCK: Once<Clock> = Once::new();

/// Learns the counter's frequency; boot core, once.
///
/// # Errors
/// The frequency in hertz that CNTFRQ_EL0 shows, where it is none that the hypervisor can count with.
pub fn init() -> Result<(), u64> {
    let hz = sysreg::read!("cntfrq_el0");
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
    Instant::at(sysreg::read!("cntpct_el0"))
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
            None => sysreg::write!("cnthp_ctl_el2", 0),
            Some(next) => {
                sysreg::write!("cnthp_cval_el2", next.count());
                sysreg::write!("cnthp_ctl_el2", 1);
            }
        }
        sysreg::isb();
    }
}
