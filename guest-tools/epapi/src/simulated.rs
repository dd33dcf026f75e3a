//! A simulated PMU: programs and tests decide what it counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{CYCLE_COUNTER, Counters, Machine};
use crate::cpu::{CPUS, Cpu};
use crate::error::Error;
use cloison_events::EventId;

/// Event counters of 32 bits and a cycle counter of 64, which [`run`](Self::run) increments.
#[derive(Clone, Debug)]
pub struct Simulated {
    cpu: Option<&'static Cpu>,
    number: u32,
    events: [EventId; 32],
    values: [u64; 32],
    enabled: u32,
    is_frozen: bool,
    flags: u32,
    interrupts: u32,
    ticks: u64,
}

impl Simulated {
    /// Returns a PMU of this CPU with so many event counters, at most 31, and a cycle counter.
    pub fn new(cpu: &str, counters: u32) -> Self {
        Self {
            cpu: CPUS.iter().find(|known| known.name == cpu),
            number: counters.min(CYCLE_COUNTER),
            events: [EventId(0); 32],
            values: [0; 32],
            enabled: 0,
            is_frozen: false,
            flags: 0,
            interrupts: 0,
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
        for counter in 0..32 {
            if self.is_frozen || self.enabled >> counter & 1 == 0 {
                continue;
            }
            let of = |id: EventId| {
                events
                    .iter()
                    .filter(|(event, _)| *event == id)
                    .map(|(_, count)| count)
                    .sum()
            };
            let is_cycles = counter == CYCLE_COUNTER;
            let counted: u64 = if is_cycles {
                cycles
            } else {
                of(self.events[counter as usize])
            };
            let value = &mut self.values[counter as usize];
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
            self.flags |= u32::from(overflowed) << counter;
        }
    }

    /// Returns whether an interrupt is pending.
    pub fn interrupts(&self) -> bool {
        self.flags & self.interrupts != 0
    }

    /// Returns the counters that count, as bits.
    pub fn enabled(&self) -> u32 {
        self.enabled
    }

    /// Starts a counter that nobody else uses, as another program would.
    pub fn start_another(&mut self, counter: u32, event: EventId) {
        self.events[counter as usize & 31] = event;
        self.enabled |= 1 << (counter & 31);
    }
}

impl Counters for Simulated {
    fn probe(&mut self) -> Result<Machine, Error> {
        let cpu = self.cpu.ok_or(Error::NoCounters)?;
        let counters = (1 << CYCLE_COUNTER) | ((1_u32 << self.number) - 1);
        Ok(Machine {
            cpu,
            counters,
            frequency: 1_000_000_000,
        })
    }

    fn width(&self, counter: u32) -> u32 {
        if counter == CYCLE_COUNTER { 64 } else { 32 }
    }

    fn configure(&mut self, counter: u32, event: EventId, interrupts: bool) -> Result<(), Error> {
        let bit = 1 << counter;
        self.events[counter as usize] = if counter == CYCLE_COUNTER {
            EventId::CPU_CYCLES
        } else {
            event
        };
        self.interrupts = if interrupts {
            self.interrupts | bit
        } else {
            self.interrupts & !bit
        };
        self.flags &= !bit;
        Ok(())
    }

    fn read(&mut self, counter: u32) -> Result<u64, Error> {
        Ok(self.values[counter as usize])
    }

    fn overflowed(&mut self) -> u32 {
        self.flags
    }

    fn write(&mut self, counter: u32, value: u64) -> Result<(), Error> {
        self.values[counter as usize] = value;
        Ok(())
    }

    fn clear(&mut self, counters: u32) {
        self.flags &= !counters;
    }

    fn ticks(&mut self) -> u64 {
        self.ticks
    }

    fn enable(&mut self, counters: u32) -> Result<(), Error> {
        self.enabled |= counters;
        Ok(())
    }

    fn disable(&mut self, counters: u32) -> Result<(), Error> {
        self.enabled &= !counters;
        Ok(())
    }

    fn freeze(&mut self) {
        self.is_frozen = true;
    }

    fn thaw(&mut self) {
        self.is_frozen = false;
    }
}
