//! The guest's performance monitors: reads and writes of counters, overflow flags, and the
//! interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counters::{NO_LEVEL, Pending, at};
use super::state::{Block, PAGE_MASK, Plugin};
use crate::decode::{CYCLES, SELECTED, Special};
use crate::pmu::{COUNTERS, Setup};
use cloison_qemu::guest::{General, Register};

impl Plugin {
    /// Updates the counters at the first block of another exception level, and after an access to
    /// the performance monitors.
    #[cold]
    #[inline(never)]
    pub fn look_after_counters(&mut self, core: usize, block: &Block) {
        self.advance_counters(core);
        if self.translates {
            self.enter_translation(core, block.level);
        }
        let counters = &mut self.counters[core];
        counters.level = block.level;
        counters.watched = block.level;
        if std::mem::take(&mut counters.stale) {
            self.set_up_counters(core);
            if self.counters[core].raised != self.counters[core].pmu.interrupts() {
                self.set_interrupt(core);
            }
        }
        let Some(pending) = self.counters[core].pending.take() else {
            return;
        };
        if !self.has_executed(pending, block) {
            return;
        }
        let counters = &mut self.counters[core];
        match pending.what {
            Special::ReadCounter(..) | Special::ReadOverflows(_) => {
                return self.finish_monitor_read(core, pending.what);
            }
            Special::WriteCounter(CYCLES) => {
                let value = self.monitor(at::CYCLES);
                self.counters[core].pmu.cycles_written(value);
            }
            Special::WriteCounter(counter) => {
                let value = self.monitor(at::VALUES + counter as usize);
                self.counters[core].pmu.written(counter as usize, value);
            }
            Special::ClearOverflows(_) => counters.pmu.clear_overflows(pending.value),
            Special::WriteControl(_) => {
                if pending.value & 2 != 0 {
                    counters.pmu.cleared(pending.level);
                }
                if pending.value & 4 != 0 {
                    counters.pmu.cycles_written(0);
                }
            }
            _ => {}
        }
        self.set_up_counters(core);
        // The write made QEMU set the line by its own flags alone, if it wires it.
        self.set_interrupt(core);
    }

    /// Returns whether an access to the performance monitors has executed, now that the core is at
    /// `block`: it may have trapped, or an interrupt may have come right after it.
    fn has_executed(&self, pending: Pending, block: &Block) -> bool {
        let at = match block.vector {
            Some(vector) => self.monitor(at::RETURNS + vector.level()) & PAGE_MASK,
            None => block.offset(),
        };
        at == pending.next
    }

    /// Updates the core's counters. Returns whether its interrupt must be raised.
    #[inline]
    pub fn advance_counters(&mut self, core: usize) {
        let counters = &mut self.counters[core];
        let now = (*self.caches.counts(core), self.clocks.cycles(core));
        counters.pmu.advance(counters.level, &now.0);
        if counters.level < 2 {
            // Less than zero if a block that was counted was left since.
            let (counts, cycles) = (
                now.0.since(&counters.seen.0),
                now.1.wrapping_sub(counters.seen.1),
            );
            counters.guest = (
                counters.guest.0.and(&counts),
                counters.guest.1.wrapping_add(cycles),
            );
        }
        counters.seen = now;
    }

    /// Checks in each turn the counters whose interrupt is enabled.
    pub fn check_overflow(&mut self, core: usize) {
        self.advance_counters(core);
        if self.counters[core].pmu.interrupts() != self.counters[core].raised {
            self.set_interrupt(core);
        }
    }

    fn set_interrupt(&mut self, core: usize) {
        let wanted = self.counters[core].pmu.interrupts();
        self.counters[core].interrupts += u64::from(wanted && !self.counters[core].raised);
        self.counters[core].raised = wanted;
        // QEMU counts cycles and has the cycle counter's flag: both share the interrupt line.
        let own = self.monitor(at::OVERFLOWS) & self.monitor(at::INTERRUPTS) != 0;
        let level = wanted || own && self.monitor(at::CONTROL) & 1 != 0;
        let Some(cpu) = self.cpus[core] else {
            return;
        };
        let (internals, interrupts) = (self.internals, &self.options.overflow_interrupts);
        let line = *self.lines[core]
            .get_or_insert_with(|| internals.pmu_line(cpu, interrupts.get(core).copied()));
        internals.set_interrupt(line, level);
    }

    /// Returns a register of the running core, by its place in [`super::counters::NAMES`].
    pub fn monitor(&self, place: usize) -> u64 {
        self.monitors.of[place].map_or(0, Register::read)
    }

    fn set_up_counters(&mut self, core: usize) {
        let mut values = [0; at::VECTORS];
        for (place, value) in values.iter_mut().enumerate() {
            *value = self.monitor(place);
        }
        let counters = |first: usize| {
            let mut part = [0; COUNTERS];
            part.copy_from_slice(&values[first..first + COUNTERS]);
            part
        };
        let setup = Setup {
            types: counters(at::TYPES),
            values: counters(at::VALUES),
            enabled: values[at::ENABLED],
            control: values[at::CONTROL],
            reserved: values[at::RESERVED],
            interrupts: values[at::INTERRUPTS],
        };
        let counters = &mut self.counters[core];
        counters.pmu.set_up(setup);
        counters.armed = counters.pmu.is_armed();
        if self.profile.is_on() {
            self.profile_counters(core);
        }
    }

    /// Runs before an access to the performance monitors.
    pub fn begin_monitor_access(&mut self, core: usize, what: Special, next: u64) {
        self.advance_counters(core);
        let value = match what {
            Special::WriteControl(register) | Special::ClearOverflows(register) => {
                self.register(register)
            }
            _ => 0,
        };
        let selected = (self.monitor(at::SELECTED) & 31) as u8;
        let what = match what {
            Special::ReadCounter(register, SELECTED) => Special::ReadCounter(register, selected),
            Special::WriteCounter(SELECTED) => Special::WriteCounter(selected),
            other => other,
        };
        let counter = match what {
            Special::ReadCounter(_, counter) | Special::WriteCounter(counter) => {
                usize::from(counter)
            }
            _ => 0,
        };
        if counter >= COUNTERS && counter != usize::from(CYCLES) {
            return;
        }
        let counters = &mut self.counters[core];
        counters.pending = Some(Pending {
            what,
            value,
            next,
            level: counters.level,
        });
        counters.watched = NO_LEVEL;
    }

    /// Gives the guest the modelled value that it has read, at the start of the next block.
    fn finish_monitor_read(&mut self, core: usize, what: Special) {
        let mhz = self.board.clock_mhz;
        let (register, value) = match what {
            Special::ReadCounter(register, CYCLES) if register < 31 => (
                register,
                self.counters[core]
                    .pmu
                    .read_cycles(self.register(register), mhz),
            ),
            Special::ReadCounter(register, counter) if register < 31 => (
                register,
                self.counters[core]
                    .pmu
                    .read(counter as usize, self.register(register), mhz),
            ),
            Special::ReadOverflows(register) if register < 31 => (
                register,
                self.register(register) | self.counters[core].pmu.overflows(),
            ),
            _ => return,
        };
        if let (Some(cpu), Some(of)) = (self.cpus[core], self.x[usize::from(register)]) {
            let which = General {
                number: register,
                register: of,
            };
            self.machine.set_register(cpu, which, value);
        }
    }
}
