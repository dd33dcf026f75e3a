//! The first available way to count: the VM's PMU, else the counter service, else observation
//! segments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::error::Error;
use crate::hems::Hems;
use crate::hypervisor::{Hvc, Hypervisor};
use crate::pmuv3::Pmuv3;
use crate::service::Service;
use cloison_events::{CounterIndex, CounterSet, EventId};

/// The first available way to count.
#[derive(Clone, Copy, Debug)]
pub enum Available<P = Pmuv3, H = Hvc> {
    /// The PMU; also before it is known what there is.
    Pmu(P),
    /// The service `counters`.
    Service(Service<H>),
    /// The service `hem`.
    Hems(Hems<H>),
}

impl Available {
    /// Returns a way to count that has not looked for a PMU or services yet.
    pub const fn new() -> Self {
        Self::Pmu(Pmuv3)
    }
}

impl<P, H> Available<P, H> {
    /// Returns whether the hypervisor is called to count.
    pub fn is_called(&self) -> bool {
        !matches!(self, Self::Pmu(_))
    }
}

impl<P: Default, H> Default for Available<P, H> {
    fn default() -> Self {
        Self::Pmu(P::default())
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

impl<P: Counters + Default, H: Hypervisor + Default> Counters for Available<P, H> {
    fn probe(&mut self) -> Result<Machine, Error> {
        for mut way in [
            Self::default(),
            Self::Service(Service::default()),
            Self::Hems(Hems::default()),
        ] {
            let found = each!(&mut way, one => one.probe());
            match found {
                Ok(_) => {
                    *self = way;
                    return found;
                }
                // There are counters, but others have them: these are not to be counted in another
                // way.
                Err(Error::Conflict) => return found,
                Err(_) => {}
            }
        }
        Err(Error::NoCounters)
    }

    fn allows(&self, counter: CounterIndex, event: EventId) -> bool {
        each!(self, way => way.allows(counter, event))
    }

    fn width(&self, counter: CounterIndex) -> u32 {
        each!(self, way => way.width(counter))
    }

    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error> {
        each!(self, way => way.configure(counter, event, overflow))
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        each!(self, way => way.read(counter))
    }

    fn overflowed(&mut self) -> CounterSet {
        each!(self, way => way.overflowed())
    }

    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error> {
        each!(self, way => way.write(counter, value))
    }

    fn clear(&mut self, counters: CounterSet) {
        each!(self, way => way.clear(counters));
    }

    fn ticks(&mut self) -> u64 {
        each!(self, way => way.ticks())
    }

    fn enable(&mut self, counters: CounterSet) -> Result<(), Error> {
        each!(self, way => way.enable(counters))
    }

    fn disable(&mut self, counters: CounterSet) -> Result<(), Error> {
        each!(self, way => way.disable(counters))
    }

    fn freeze(&mut self) {
        each!(self, way => way.freeze());
    }

    fn thaw(&mut self) {
        each!(self, way => way.thaw());
    }
}
