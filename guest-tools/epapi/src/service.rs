//! Counting with the hypervisor's counter service: for a VM without a PMU that has the service
//! `counters`.
//!
//! Counters are like the PMU's, but each access is a call, and none interrupts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::cpu::Cpu;
use crate::error::Error;
use crate::hypervisor::{Hvc, Hypervisor};
use cloison_abi::Call;
use cloison_abi::reply::{self, CounterMasks};
use cloison_events::{CounterIndex, CounterSet, EventId};

/// The counters of the calling vCPU, by calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service<H = Hvc> {
    hypervisor: H,
    /// Those that there are, and those that are enabled.
    all: CounterSet,
    enabled: CounterSet,
}

impl Service {
    /// Returns a way to count that has not asked for the VM's counters yet.
    pub const fn new() -> Self {
        Self::over(Hvc)
    }
}

impl<H> Service<H> {
    /// Returns a way to count over a way to call the hypervisor.
    pub const fn over(hypervisor: H) -> Self {
        Self {
            hypervisor,
            all: CounterSet::EMPTY,
            enabled: CounterSet::EMPTY,
        }
    }
}

impl<H: Hypervisor> Service<H> {
    /// Writes the counters' values to the hypervisor's log, as a record that is marked as made by
    /// the guest: workload, sub-experiment and run. Counters must be enabled.
    ///
    /// # Errors
    ///
    /// The hypervisor's.
    pub fn record(&mut self, numbers: [u32; 3]) -> Result<(), Error> {
        self.hypervisor
            .call(Call::CounterRecord, numbers.map(u64::from))
            .map(drop)
    }

    fn set_enabled(&mut self, counters: CounterSet) -> Result<(), Error> {
        self.hypervisor
            .call(Call::CounterEnable, [counters.bits().into(), 0, 0])?;
        self.enabled = counters;
        Ok(())
    }
}

impl<H: Hypervisor> Counters for Service<H> {
    fn probe(&mut self) -> Result<Machine, Error> {
        let reply::Counters { counters, .. } = self.hypervisor.call(Call::Counters, [0; 3])?.into();
        let cpu = Cpu::by_midr(self.hypervisor.midr()?).ok_or(Error::NoCounters)?;
        self.all = CounterSet::lowest(counters) | CounterSet::CYCLES;
        self.set_enabled(CounterSet::EMPTY)?;
        // Call::Time is in nanoseconds.
        Ok(Machine {
            cpu,
            counters: self.all,
            frequency: 1_000_000_000,
        })
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
        self.hypervisor
            .call(
                Call::CounterEventSet,
                [
                    counter.into(),
                    (u32::from(event.0) | self.hypervisor.filter()).into(),
                    0,
                ],
            )
            .map(drop)
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        self.hypervisor
            .call(Call::CounterRead, [counter.into(), 0, 0])
            .map(|[value, ..]| value)
    }

    fn overflowed(&mut self) -> CounterSet {
        self.hypervisor
            .call(Call::CounterMasks, [0; 3])
            .map_or(CounterSet::EMPTY, |reply| {
                CounterSet::from_bits(CounterMasks::from(reply).overflowed)
            })
    }

    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error> {
        // The overflow flag is cleared with it.
        self.hypervisor
            .call(Call::CounterSet, [counter.into(), value, 0])
            .map(drop)
    }

    fn clear(&mut self, counters: CounterSet) {
        let _ = self
            .hypervisor
            .call(Call::CounterMasks, [counters.bits().into(), 0, 0]);
    }

    fn ticks(&mut self) -> u64 {
        self.hypervisor
            .call(Call::Time, [0; 3])
            .map_or(0, |[nanoseconds, ..]| nanoseconds)
    }

    fn enable(&mut self, counters: CounterSet) -> Result<(), Error> {
        self.set_enabled(self.enabled | counters)
    }

    fn disable(&mut self, counters: CounterSet) -> Result<(), Error> {
        self.set_enabled(self.enabled - counters)
    }

    fn freeze(&mut self) {
        let _ = self
            .hypervisor
            .call(Call::CounterInhibit, [self.all.bits().into(), 0, 0]);
    }

    fn thaw(&mut self) {
        let _ = self.hypervisor.call(Call::CounterInhibit, [0; 3]);
    }
}
