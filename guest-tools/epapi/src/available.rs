//! Counting with what the machine or the VM has: its PMU, or else the counter service, or else observation segments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine};
use crate::error::Error;
use crate::hems::Hems;
use crate::pmuv3::Pmuv3;
use crate::service::Service;

/// The first of the ways to count that there is.
#[derive(Clone, Copy, Debug)]
pub enum Available {
    /// The PMU's registers; also before it is known what there is.
    Pmu(Pmuv3),
    /// The service `counters`.
    Service(Service),
    /// The service `hem`.
    Hems(Hems),
}

impl Available {
    /// Returns a way to count that has not looked yet what there is.
    pub const fn new() -> Self {
        Self::Pmu(Pmuv3)
    }

    /// Returns whether the hypervisor is called to count.
    pub fn is_called(&self) -> bool {
        !matches!(self, Self::Pmu(_))
    }
}

impl Default for Available {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands a call on to the way that there is.
macro_rules! each {
    ($self:expr, $way:ident => $call:expr) => {
        match $self {
            Self::Pmu($way) => $call,
            Self::Service($way) => $call,
            Self::Hems($way) => $call,
        }
    };
}

impl Counters for Available {
    fn probe(&mut self) -> Result<Machine, Error> {
        for mut way in [Self::Pmu(Pmuv3), Self::Service(Service::new()), Self::Hems(Hems::new())] {
            let found = each!(&mut way, one => one.probe());
            if found.is_ok() {
                *self = way;
                return found;
            }
        }
        Err(Error::NoCounters)
    }

    fn allows(&self, counter: u32, event: u16) -> bool {
        each!(self, way => way.allows(counter, event))
    }

    fn width(&self, counter: u32) -> u32 {
        each!(self, way => way.width(counter))
    }

    fn configure(&mut self, counter: u32, event: u16, interrupts: bool) -> Result<(), Error> {
        each!(self, way => way.configure(counter, event, interrupts))
    }

    fn read(&mut self, counter: u32) -> Result<u64, Error> {
        each!(self, way => way.read(counter))
    }

    fn overflowed(&mut self) -> u32 {
        each!(self, way => way.overflowed())
    }

    fn write(&mut self, counter: u32, value: u64) -> Result<(), Error> {
        each!(self, way => way.write(counter, value))
    }

    fn clear(&mut self, counters: u32) {
        each!(self, way => way.clear(counters));
    }

    fn ticks(&mut self) -> u64 {
        each!(self, way => way.ticks())
    }

    fn enable(&mut self, counters: u32) -> Result<(), Error> {
        each!(self, way => way.enable(counters))
    }

    fn disable(&mut self, counters: u32) -> Result<(), Error> {
        each!(self, way => way.disable(counters))
    }

    fn freeze(&mut self) {
        each!(self, way => way.freeze());
    }

    fn thaw(&mut self) {
        each!(self, way => way.thaw());
    }
}
