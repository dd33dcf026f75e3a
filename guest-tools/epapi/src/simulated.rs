//! A simulated PMU: programs and tests decide what it counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::cpu::{CPUS, Cpu};
use crate::error::Error;
use cloison_events::{CounterIndex, CounterSet, EventId};

/// Event counters of 32 bits and a cycle counter of 64, which [`run`](Self::run) increments.
#[derive(Clone, Debug)]
pub struct Simulated {
    cpu: Option<&'static Cpu>,
    number: u32,
    events: [EventId; 32],
    values: [u64; 32],
    enabled: CounterSet,
    is_frozen: bool,
    flags: CounterSet,
    interrupts: CounterSet,
    ticks: u64,
}

impl Simulated {
    /// Returns a PMU of this CPU with so many event counters, at most 31, and a cycle counter.
    pub fn new(cpu: &str, counters: u32) -> Self {
        Self {
            cpu: CPUS.iter().find(|known| known.name == cpu),
            number: counters.min(31),
            events: [EventId(0); 32],
            values: [0; 32],
            enabled: CounterSet::EMPTY,
            is_frozen: false,
            flags: CounterSet::EMPTY,
            interrupts: CounterSet::EMPTY,
            ticks: 0,
        }
    }

    /// Returns a PMU without an event table: nothing can be counted.
    pub fn unknown() -> Self {
        Self {
            cpu: None,
            ..Self::new("", 0)
        }
    }

    /// Lets so many cycles pass, in which these events occur. A tick is a cycle.
    pub fn run(&mut self, cycles: u64, events: &[(EventId, u64)]) {
        self.ticks += cycles;
        if self.is_frozen {
            return;
        }
        for counter in self.enabled.counters() {
            let of = |id: EventId| {
                events
                    .iter()
                    .filter(|(event, _)| *event == id)
                    .map(|(_, count)| count)
                    .sum()
            };
            let is_cycles = counter == CounterIndex::CYCLES;
            let counted: u64 = if is_cycles {
                cycles
            } else {
                of(self.events[counter.index()])
            };
            let value = &mut self.values[counter.index()];
            let (sum, carried) = value.overflowing_add(counted);
            *value = if is_cycles {
                sum
            } else {
                sum & u64::from(u32::MAX)
            };
            let overflowed = if is_cycles {
                carried
            } else {
                carried || sum > u64::from(u32::MAX)
            };
            if overflowed {
                self.flags = self.flags | counter.into();
            }
        }
    }

    /// Returns whether an interrupt is pending.
    pub fn interrupts(&self) -> bool {
        !(self.flags & self.interrupts).is_empty()
    }

    /// Returns the counters that count.
    pub fn enabled(&self) -> CounterSet {
        self.enabled
    }

    /// Starts a counter that nobody else uses, as another program would.
    pub fn start_another(&mut self, counter: CounterIndex, event: EventId) {
        self.events[counter.index()] = event;
        self.enabled = self.enabled | counter.into();
    }
}

impl Counters for Simulated {
    fn probe(&mut self) -> Result<Machine, Error> {
        let cpu = self.cpu.ok_or(Error::NoCounters)?;
        let counters = CounterSet::lowest(self.number) | CounterSet::CYCLES;
        Ok(Machine {
            cpu,
            counters,
            frequency: 1_000_000_000,
        })
    }

    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error> {
        let one = CounterSet::from(counter);
        self.events[counter.index()] = if counter == CounterIndex::CYCLES {
            EventId::CPU_CYCLES
        } else {
            event
        };
        self.interrupts = if overflow == Overflow::Interrupts {
            self.interrupts | one
        } else {
            self.interrupts - one
        };
        self.flags = self.flags - one;
        Ok(())
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        Ok(self.values[counter.index()])
    }

    fn overflowed(&mut self) -> CounterSet {
        self.flags
    }

    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error> {
        self.values[counter.index()] = value;
        Ok(())
    }

    fn clear(&mut self, counters: CounterSet) {
        self.flags = self.flags - counters;
    }

    fn ticks(&mut self) -> u64 {
        self.ticks
    }

    fn enable(&mut self, counters: CounterSet) -> Result<(), Error> {
        self.enabled = self.enabled | counters;
        Ok(())
    }

    fn disable(&mut self, counters: CounterSet) -> Result<(), Error> {
        self.enabled = self.enabled - counters;
        Ok(())
    }

    fn freeze(&mut self) {
        self.is_frozen = true;
    }

    fn thaw(&mut self) {
        self.is_frozen = false;
    }
}
