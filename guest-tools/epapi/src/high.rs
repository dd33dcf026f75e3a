//! The high-level functions, as PAPI 5.7 had them: one list of events, or one rate, for a core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::Counters;
use crate::error::Error;
use crate::library::{HIGH, Library};
use crate::mode::{High, Mode};
use crate::preset::{PAPI_REF_CYC, PAPI_TOT_CYC, PAPI_TOT_INS};

/// What [`Library::ipc`] and [`Library::epc`] return.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Seconds since the first call. A core has no other process, so that its time is real time.
    pub seconds: f32,
    /// Instructions, or events, since the first call.
    pub events: i64,
    /// Cycles since the last call.
    pub cycles: i64,
    /// Instructions, or events, per cycle since the last call.
    pub per_cycle: f32,
}

impl<C: Counters> Library<C> {
    /// Returns the number of counters, and initializes the library if that has not been done.
    pub fn num_counters(&mut self) -> Result<i32, Error> {
        self.library_init()?;
        self.num_hwctrs()
    }

    /// Starts counting events.
    pub fn start_counters(&mut self, events: &[i32]) -> Result<(), Error> {
        self.frozen(|it| it.start_counters_frozen(events.iter().copied()))
    }

    /// [`start_counters`](Self::start_counters), for a caller that has frozen the counters.
    pub fn start_counters_frozen(
        &mut self,
        events: impl IntoIterator<Item = i32>,
    ) -> Result<(), Error> {
        let mut events = events.into_iter().peekable();
        if events.peek().is_none() {
            return Err(Error::Invalid);
        }
        self.library_init()?;
        if self.high.mode != Mode::Stopped {
            return Err(Error::Invalid);
        }
        let started = events
            .try_for_each(|code| self.add(HIGH, code))
            .and_then(|()| self.begin(HIGH));
        match started {
            Ok(()) => self.high.mode = Mode::Counters,
            Err(_) => self.set(HIGH).clear(),
        }
        started
    }

    /// Returns the number of values that the high-level functions read.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] unless [`start_counters`](Self::start_counters) has started them.
    pub fn number_of_values(&mut self) -> Result<usize, Error> {
        self.library_init()?;
        if self.high.mode == Mode::Counters {
            Ok(self.set(HIGH).events().len())
        } else {
            Err(Error::Invalid)
        }
    }

    /// Reads the counters, and sets them to zero.
    pub fn read_counters(&mut self, values: &mut [i64]) -> Result<(), Error> {
        self.frozen(|it| it.read_counters_frozen(values))
    }

    /// [`read_counters`](Self::read_counters), for a caller that has frozen the counters.
    pub fn read_counters_frozen(&mut self, values: &mut [i64]) -> Result<(), Error> {
        if values.len() < self.number_of_values()? {
            return Err(Error::Invalid);
        }
        self.refresh(HIGH)?;
        self.hand_out(HIGH, Some(values))?;
        self.zero(HIGH)
    }

    /// Adds the counters to `values`, and sets them to zero.
    pub fn accum_counters(&mut self, values: &mut [i64]) -> Result<(), Error> {
        self.frozen(|it| it.accum_counters_frozen(values))
    }

    /// [`accum_counters`](Self::accum_counters), for a caller that has frozen the counters.
    pub fn accum_counters_frozen(&mut self, values: &mut [i64]) -> Result<(), Error> {
        if values.len() < self.number_of_values()? {
            return Err(Error::Invalid);
        }
        self.add_to(HIGH, values)
    }

    /// Stops the counters and reads them, or ends a rate, whose counts are not returned.
    pub fn stop_counters(&mut self, values: Option<&mut [i64]>) -> Result<(), Error> {
        self.frozen(|it| it.stop_counters_frozen(values))
    }

    /// [`stop_counters`](Self::stop_counters), for a caller that has frozen the counters.
    pub fn stop_counters_frozen(&mut self, values: Option<&mut [i64]>) -> Result<(), Error> {
        self.library_init()?;
        match self.high.mode {
            Mode::Stopped => return Err(Error::NotRunning),
            Mode::Counters => {
                let values = values.ok_or(Error::Invalid)?;
                if values.len() < self.number_of_values()? {
                    return Err(Error::Invalid);
                }
                self.end(HIGH)?;
                self.hand_out(HIGH, Some(values))?;
            }
            Mode::Ipc | Mode::Epc => self.end(HIGH)?,
        }
        self.set(HIGH).clear();
        self.high = High::NEW;
        Ok(())
    }

    /// Returns instructions per cycle. The first call starts counting and returns zeros.
    pub fn ipc(&mut self) -> Result<Rate, Error> {
        self.frozen(Self::ipc_frozen)
    }

    /// [`ipc`](Self::ipc), for a caller that has frozen the counters.
    pub fn ipc_frozen(&mut self) -> Result<Rate, Error> {
        self.rate(PAPI_TOT_INS, Mode::Ipc)
    }

    /// Returns events per cycle, of instructions if `event` is 0. The first call starts counting
    /// and returns zeros.
    pub fn epc(&mut self, event: i32) -> Result<Rate, Error> {
        self.frozen(|it| it.epc_frozen(event))
    }

    /// [`epc`](Self::epc), for a caller that has frozen the counters.
    pub fn epc_frozen(&mut self, event: i32) -> Result<Rate, Error> {
        self.rate(if event == 0 { PAPI_TOT_INS } else { event }, Mode::Epc)
    }

    /// Returns whether PAPI's `ref` has a meaning: the CPU counts the cycles of a reference clock.
    pub fn has_reference_cycles(&self) -> bool {
        self.query_event(PAPI_REF_CYC).is_ok()
    }

    fn rate(&mut self, event: i32, mode: Mode) -> Result<Rate, Error> {
        self.library_init()?;
        if self.high.mode == Mode::Stopped {
            let added = self.add(HIGH, event);
            // PAPI_TOT_CYC is twice in the list if it is the event too.
            let added = added
                .and_then(|()| self.add(HIGH, PAPI_TOT_CYC))
                .and_then(|()| self.begin(HIGH));
            if added.is_err() {
                self.set(HIGH).clear();
                return added.map(|()| Rate::default());
            }
            self.high = High {
                mode,
                began: self.counters.ticks(),
                total: 0,
            };
            return Ok(Rate::default());
        }
        if self.high.mode != mode {
            return Err(Error::Invalid);
        }
        self.refresh(HIGH)?;
        let [events, cycles, ..] = self.set(HIGH).values;
        self.zero(HIGH)?;
        self.high.total = self.high.total.wrapping_add(events);
        let ticks = self.counters.ticks().wrapping_sub(self.high.began);
        let frequency = self.machine()?.frequency.max(1);
        Ok(Rate {
            seconds: ticks as f32 / frequency as f32,
            events: self.high.total,
            cycles,
            per_cycle: if cycles == 0 {
                0.0
            } else {
                events as f32 / cycles as f32
            },
        })
    }
}
