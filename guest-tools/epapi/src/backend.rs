//! The interface between the library and a way to count.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::Cpu;
use crate::error::Error;
use cloison_events::{CounterIndex, CounterSet, EventId};

/// A CPU's event table, and the counters that may be used.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The CPU's events.
    pub cpu: &'static Cpu,
    /// The counters, the cycle counter included.
    pub counters: CounterSet,
    /// Ticks of [`Counters::ticks`] in a second.
    pub frequency: u64,
}

impl Machine {
    /// Returns how many counters there are.
    pub fn number(&self) -> u32 {
        self.counters.len()
    }
}

/// What a counter does when it passes its last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It sets its flag.
    Flags,
    /// It sets its flag and interrupts. Not every way to count has interrupts.
    Interrupts,
}

/// A way to count: registers, or calls of the hypervisor.
///
/// Counters only count while they are thawed. The library configures, reads and writes them while
/// they are frozen, so that its own work is not counted.
pub trait Counters {
    /// Returns what there is. Called once, before everything else.
    fn probe(&mut self) -> Result<Machine, Error>;

    /// Returns whether a counter can count an event, as far as this way to count decides it.
    fn allows(&self, counter: CounterIndex, event: EventId) -> bool {
        (counter == CounterIndex::CYCLES) == (event == EventId::CPU_CYCLES)
    }

    /// Returns the bits of a counter: 32, or 64 as the cycle counter has.
    fn width(&self, counter: CounterIndex) -> u32 {
        if counter == CounterIndex::CYCLES {
            64
        } else {
            32
        }
    }

    /// Sets what a counter counts, and what its overflow does. Its flag is cleared.
    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error>;

    /// Reads a counter.
    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error>;

    /// Returns the counters that have passed their last value since their flag was cleared.
    fn overflowed(&mut self) -> CounterSet;

    /// Sets a counter's value. A way to count that has no such thing returns an error.
    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error>;

    /// Clears the overflow flags of these counters.
    fn clear(&mut self, counters: CounterSet);

    /// Returns the time, in ticks of the frequency that [`probe`](Self::probe) has returned.
    fn ticks(&mut self) -> u64;

    /// Lets these counters count when they are thawed, besides those that do already.
    fn enable(&mut self, counters: CounterSet) -> Result<(), Error>;

    /// Lets these counters count no longer.
    fn disable(&mut self, counters: CounterSet) -> Result<(), Error>;

    /// Stops all counters, those of others too.
    fn freeze(&mut self);

    /// Starts the counters that are enabled.
    fn thaw(&mut self);
}
