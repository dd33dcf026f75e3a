//! Regions of interest: when the model is on, and its counts in them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::bounds::Stand;
use super::state::{Current, NOTHING, Plugin};
use super::time::{EPOCH, TIME, begin_modelled, get_clock};
use crate::clock::MAX_CORES;
use crate::events::{Counts, Event};
use crate::issue::Waits;
use crate::statistics::{CoreCounts, Region, Statistics};
use cloison_qemu::guest::qemu;
use std::sync::atomic::Ordering::Relaxed;

/// A millisecond in ns.
const MILLISECOND: i64 = 1_000_000;

impl Plugin {
    fn stand(&mut self) -> Vec<Stand> {
        for core in 0..self.clocks.cores() {
            self.advance_counters(core);
        }
        let stand = |core| Stand {
            counts: *self.caches.counts(core),
            cycles: self.clocks.cycles(core),
            interrupts: self.counters[core].interrupts,
            guest: self.counters[core].guest,
        };
        (0..self.clocks.cores()).map(stand).collect()
    }

    fn region_since(&mut self, begun: &[Stand]) -> Region {
        let core = |(now, before): (&Stand, &Stand)| {
            let counts = now.counts.since(&before.counts);
            let cycles = now.cycles.saturating_sub(before.cycles);
            let events = |counts: &Counts, cycles| {
                Event::ALL
                    .iter()
                    .map(|event| (event.name().to_owned(), event.count(counts, cycles)))
                    .collect()
            };
            let guest = now.guest.0.since(&before.guest.0);
            CoreCounts {
                cycles,
                overflow_interrupts: now.interrupts - before.interrupts,
                events: events(&counts, cycles),
                guest_events: events(&guest, now.guest.1.wrapping_sub(before.guest.1)),
                counts,
            }
        };
        let now = self.stand();
        Region {
            cores: now.iter().zip(begun).map(core).collect(),
        }
    }

    /// Starts a region, with empty caches or with their current contents.
    pub fn begin(&mut self, cold: bool) {
        if self.options.cold.unwrap_or(cold) {
            self.caches.make_cold();
            for translation in &mut self.translations {
                translation.tlb.clear();
            }
            self.latest = [NOTHING; MAX_CORES];
        }
        if !self.active {
            // QEMU's main loop runs timers with the lock held, up to the time that it read before.
            // A timer that is due then sets itself to a later time, or, if the model's time has
            // replaced QEMU's meanwhile, to the same one again and again.
            let internals = self.internals;
            internals.locked(|| self.switch_on());
            qemu().retranslate();
        }
        let stand = self.stand();
        if !self.options.always {
            self.regions.first.get_or_insert_with(|| stand.clone());
        }
        if self.regions.open.replace(stand).is_some() {
            self.regions.abandoned += 1;
        }
    }

    /// Turns the model on. The thread has QEMU's lock.
    pub fn switch_on(&mut self) {
        // Anything may have changed unseen.
        self.latest = [NOTHING; MAX_CORES];
        for (core, counters) in self.counters.iter_mut().enumerate() {
            counters.forget(*self.caches.counts(core));
        }
        for translation in &mut self.translations {
            translation.forget();
        }
        self.current = [Current::default(); MAX_CORES];
        self.waits = [Waits::default(); MAX_CORES];
        // Start at a whole millisecond: the timer's last digits must not depend on how long the
        // host took until here.
        let now = if self.options.always {
            EPOCH
        } else {
            (get_clock() / MILLISECOND + 1) * MILLISECOND
        };
        self.clocks.set_all(self.cycles(now));
        self.caches.begin(self.cycles(now));
        TIME.horizon.store(now, Relaxed);
        for core in 0..self.clocks.cores() {
            TIME.set(core, now);
        }
        begin_modelled();
        self.active = true;
        self.next_timer = 0;
        self.limit = 0;
        if self.options.profile.is_some() {
            self.begin_profile();
        }
    }

    /// Ends the region and turns the model off, unless it is always on.
    pub fn end(&mut self) {
        if !self.close() {
            return;
        }
        if self.options.always {
            return;
        }
        self.internals.locked(|| {
            let time = get_clock();
            TIME.base_own.store(self.internals.own_clock(), Relaxed);
            TIME.base.store(time, Relaxed);
            TIME.modelled.store(false, Relaxed);
        });
        // It may sleep until a time that it took from the model's clock, by which no timer is due.
        self.internals.wake_main_loop();
        self.active = false;
        qemu().retranslate();
    }

    /// Ends the open region. Returns whether there was one.
    fn close(&mut self) -> bool {
        let Some(begun) = self.regions.open.take() else {
            return false;
        };
        let region = self.region_since(&begun);
        self.regions.ended.push(region);
        self.regions.whole = Some(self.so_far());
        true
    }

    /// Returns the counts since the first region, or since the first instruction.
    pub fn so_far(&mut self) -> Region {
        let start = Stand {
            cycles: self.cycles(EPOCH),
            ..Stand::default()
        };
        let first = self
            .regions
            .first
            .clone()
            .unwrap_or_else(|| vec![start; self.clocks.cores()]);
        self.region_since(&first)
    }

    /// Ends an open region at the end of the run, and returns the statistics.
    pub fn statistics(&mut self) -> Statistics {
        self.close();
        let whole = self.regions.whole.clone().unwrap_or_else(|| self.so_far());
        let regions = self.regions.ended.clone();
        Statistics {
            modelled: true,
            board: self.board.name.clone(),
            seed: self.options.seed,
            regions,
            abandoned: self.regions.abandoned,
            untranslated: self.untranslated,
            whole,
        }
    }
}
