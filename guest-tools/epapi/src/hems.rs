//! Counting with the hypervisor's observation segments: for a VM without a PMU that has the service
//! `hem`.
//!
//! The configuration decides which events are counted (`hems = […]`), and each start and stop makes
//! a record in the log. The library's own work between a start and a stop is counted too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::cpu::Cpu;
use crate::error::Error;
use crate::hypervisor::{Hvc, Hypervisor};
use cloison_abi::{Call, reply};
use cloison_events::{CounterIndex, CounterSet, EventId};

/// The most events of a VM that are looked for.
const MOST: usize = 31;
/// The workload number of the records that the library makes.
pub const WORKLOAD: u64 = 99;

/// The events that the hypervisor counts for the calling vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Hems<H = Hvc> {
    hypervisor: H,
    events: [EventId; MOST],
    number: u32,
    is_open: bool,
    /// The number of the next record, by which those who read the log tell runs apart.
    run: u32,
}

impl<H: Default> Default for Hems<H> {
    fn default() -> Self {
        Self::over(H::default())
    }
}

impl Hems {
    /// Returns a way to count whose events are not known yet.
    pub const fn new() -> Self {
        Self::over(Hvc)
    }
}

impl<H> Hems<H> {
    /// Returns a way to count over a way to call the hypervisor.
    pub const fn over(hypervisor: H) -> Self {
        Self {
            hypervisor,
            events: [EventId(0); MOST],
            number: 0,
            is_open: false,
            run: 0,
        }
    }
}

impl<H: Hypervisor> Counters for Hems<H> {
    fn probe(&mut self) -> Result<Machine, Error> {
        let cpu = Cpu::by_midr(self.hypervisor.midr()?).ok_or(Error::NoCounters)?;
        // Events can be asked for in a segment.
        self.enable(CounterSet::EMPTY)?;
        self.number = 0;
        let mut found = Ok(());
        for (index, slot) in (0..).zip(&mut self.events) {
            match self.hypervisor.call(Call::HemRead, [index, 0, 0]) {
                Ok(reply) => *slot = reply::Hem::from(reply).event,
                Err(Error::NoEvent) => break,
                Err(error) => found = Err(error),
            }
            self.number += 1;
        }
        self.disable(CounterSet::EMPTY)?;
        found?;
        if self.number == 0 {
            return Err(Error::NoCounters);
        }
        // Call::Time is in nanoseconds.
        Ok(Machine {
            cpu,
            counters: CounterSet::lowest(self.number),
            frequency: 1_000_000_000,
        })
    }

    fn allows(&self, counter: CounterIndex, event: EventId) -> bool {
        CounterSet::lowest(self.number).contains(counter)
            && self.events.get(counter.index()) == Some(&event)
    }

    fn width(&self, _: CounterIndex) -> u32 {
        32
    }

    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error> {
        if overflow == Overflow::Interrupts {
            return Err(Error::NotSupported);
        }
        if self.allows(counter, event) {
            Ok(())
        } else {
            Err(Error::Conflict)
        }
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        // The flag stays set to the end of the segment and says nothing of what was counted since
        // the last read.
        self.hypervisor
            .call(Call::HemRead, [counter.into(), 0, 0])
            .map(|[value, ..]| value)
    }

    fn overflowed(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }

    fn write(&mut self, _: CounterIndex, value: u64) -> Result<(), Error> {
        // A segment starts at zero, which is all that is asked for.
        if value == 0 {
            Ok(())
        } else {
            Err(Error::NotSupported)
        }
    }

    fn clear(&mut self, _: CounterSet) {}

    fn ticks(&mut self) -> u64 {
        self.hypervisor
            .call(Call::Time, [0; 3])
            .map_or(0, |[nanoseconds, ..]| nanoseconds)
    }

    fn enable(&mut self, _: CounterSet) -> Result<(), Error> {
        if !self.is_open {
            self.hypervisor
                .call(Call::SegmentBegin, [WORKLOAD, 0, self.run.into()])?;
            self.run = self.run.wrapping_add(1);
            self.is_open = true;
        }
        Ok(())
    }

    fn disable(&mut self, _: CounterSet) -> Result<(), Error> {
        if self.is_open {
            self.hypervisor.call(Call::SegmentEnd, [0; 3])?;
            self.is_open = false;
        }
        Ok(())
    }

    fn freeze(&mut self) {}

    fn thaw(&mut self) {}
}
