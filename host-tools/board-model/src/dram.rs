//! The memory: a latency, and either banks with queues or a bandwidth that is shared in buckets of
//! time.
//!
//! The buckets: cores run one after the other for a quantum each, so accesses do not arrive in
//! order of time. A server that is "busy until" a time would make a core that runs later wait for
//! one that is ahead of it. Instead, each bucket of time has its own budget: the part of an access
//! that does not fit into its bucket uses the next one with room.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::banks::{BankTiming, Banks, TICKS};
use crate::refresh::Refresh;

/// Cycles that share one budget.
const BUCKET: u64 = 256;
/// Number of buckets that are remembered.
const BUCKETS: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    id: u64,
    used: u64,
}

/// A memory on the chip, besides the DRAM: its latency and bandwidth, without banks and refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnChip {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Additional cycles of an L2 miss that it serves, when it is idle.
    pub latency: u64,
    /// Cycles for which one line occupies it.
    pub line: u64,
}

/// Latency and bandwidth of the memory.
#[derive(Clone, Debug)]
pub struct Dram {
    /// In cycles; with banks, in ticks, and what it takes if the row is open.
    latency: u64,
    line: u64,
    refresh: Refresh,
    /// Start of the refresh interval that was asked for last.
    interval: u64,
    /// When the model was turned on: time zero of the memory.
    origin: u64,
    buckets: Vec<Bucket>,
    banks: Option<Banks>,
    /// Where a memory on the chip is, and that memory.
    chip: Option<(OnChip, Box<Dram>)>,
}

impl Dram {
    /// Creates a memory that answers after `latency` cycles. With banks, this is the latency of an
    /// access whose bank must close another row first. Without banks, the memory moves one cache
    /// line in `line` cycles (at most a bucket's).
    pub fn new(latency: u64, line: u64, refresh: Refresh, banks: Option<BankTiming>) -> Self {
        let latency = match banks {
            Some(timing) => (latency * TICKS).saturating_sub(timing.precharge + timing.activate),
            None => latency,
        };
        Self {
            banks: banks.map(|timing| Banks::new(timing, refresh)),
            latency,
            line: line.min(BUCKET),
            refresh,
            interval: 0,
            origin: 0,
            buckets: vec![Bucket::default(); BUCKETS],
            chip: None,
        }
    }

    /// Adds a memory on the chip, which serves the accesses to its addresses.
    pub fn with_chip(mut self, chip: Option<OnChip>) -> Self {
        const NEVER: Refresh = Refresh {
            interval: 1,
            cycles: 0,
            phase: 0,
        };
        let memory = |chip: OnChip| Self::new(chip.latency, chip.line, NEVER, None);
        self.chip = chip.map(|chip| (chip, Box::new(memory(chip))));
        self
    }

    /// Returns the memory on the chip, if it has this address.
    fn chip(&mut self, address: u64) -> Option<&mut Self> {
        let (place, chip) = self.chip.as_mut()?;
        (place.start..place.end).contains(&address).then_some(chip)
    }

    /// Returns the cycles of an access whose row is open; of any access if there are no banks.
    pub const fn latency(&self) -> u64 {
        if self.banks.is_some() {
            self.latency / TICKS
        } else {
            self.latency
        }
    }

    /// Sets the memory's time zero, when the model is turned on. That moment depends on the host;
    /// the phase of the refreshes must not.
    pub fn begin(&mut self, now: u64) {
        self.origin = now;
        self.buckets.fill(Bucket::default());
        if let Some(banks) = &mut self.banks {
            banks.clear();
        }
        if let Some((_, chip)) = &mut self.chip {
            chip.begin(now);
        }
    }

    /// Reads the line at an address. Returns the cycles until it arrives.
    pub fn read(&mut self, now: u64, address: u64) -> u64 {
        if let Some(chip) = self.chip(address) {
            return chip.read(now, address);
        }
        let now = now.saturating_sub(self.origin);
        if let Some(banks) = &mut self.banks {
            return (banks.read(now * TICKS, address) + self.latency + TICKS / 2) / TICKS;
        }
        let wait = self.wait(now);
        wait + self.refresh.wait(now + wait, &mut self.interval) + self.latency
    }

    /// Writes the line at an address. Returns the wait in cycles of a core that writes without end:
    /// until the batch of lines before is written. Other cores need not wait for it.
    pub fn write(&mut self, now: u64, address: u64) -> u64 {
        if let Some(chip) = self.chip(address) {
            return chip.write(now, address);
        }
        let now = now.saturating_sub(self.origin);
        match &mut self.banks {
            Some(banks) => banks.write(now * TICKS, address).div_ceil(TICKS),
            None => self.wait(now),
        }
    }

    /// Reserves bandwidth at `now`, in the memory's own time. Returns the cycles to wait.
    fn wait(&mut self, now: u64) -> u64 {
        let first = now / BUCKET;
        // Beyond half of what is remembered, a bucket could belong to two times; the excess is then
        // free.
        for id in first..first + BUCKETS as u64 / 2 {
            let bucket = &mut self.buckets[id as usize % BUCKETS];
            if bucket.id > id {
                continue;
            }
            if bucket.id < id {
                *bucket = Bucket { id, used: 0 };
            }
            if bucket.used + self.line <= BUCKET {
                bucket.used += self.line;
                return (id * BUCKET).saturating_sub(now);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Refresh = Refresh {
        interval: 1,
        cycles: 0,
        phase: 0,
    };

    #[test]
    fn an_idle_memory_costs_its_latency() {
        assert_eq!(Dram::new(124, 6, NEVER, None).read(1000, 0), 124);
    }

    #[test]
    fn an_idle_memory_with_banks_costs_its_latency_if_another_row_is_open() {
        let timing = crate::Board::in_nanoseconds()
            .banks
            .expect("the shipped model has banks");
        let often = Refresh {
            interval: 1 << 40,
            cycles: 0,
            phase: 0,
        };
        let mut dram = Dram::new(124, 6, often, Some(timing));
        dram.begin(500);
        let row = 1 << timing.row_bit;
        let reads = [(1000, 0), (2000, row), (3000, row + 64)]
            .map(|(now, address)| dram.read(now, address));
        assert_eq!(reads, [107, 124, 92], "closed, another one open, open");
    }

    #[test]
    fn a_memory_on_the_chip_serves_its_addresses_and_waits_for_no_bank() {
        let board = crate::Board::in_nanoseconds();
        let chip = board.on_chip.expect("the shipped model has one");
        let dram = Dram::new(
            board.timing.dram,
            board.timing.dram_line,
            board.refresh,
            board.banks,
        );
        let mut dram = dram.with_chip(board.on_chip);
        dram.begin(0);
        // Whatever the DRAM does, an access after another costs the same.
        for at in 0..64 {
            dram.read(10, at << 17);
            let latency = dram.read(1000 * (at + 1), chip.start + at * 4096);
            assert_eq!(latency, chip.latency);
        }
        // Lines at one time wait for each other.
        let waits: Vec<_> = (0..128).map(|_| dram.read(1 << 20, chip.start)).collect();
        assert!(waits.is_sorted() && waits[127] > chip.latency, "{waits:?}");
        assert_ne!(dram.read(1 << 21, chip.end), chip.latency, "the DRAM's");
    }

    /// Returns the mean latency in cycles of lines read from random places at random times, at
    /// several percent of the bus's bandwidth.
    fn loaded(banks: bool) -> [u64; 5] {
        let mut board = crate::Board::in_nanoseconds();
        let timing = board.banks.expect("the shipped model has banks");
        if !banks {
            board.banks = None;
        }
        [5, 10, 20, 30, 40].map(|percent| {
            let mut dram = Dram::new(
                board.timing.dram,
                board.timing.dram_line,
                board.refresh,
                board.banks,
            );
            let (mut now, mut sum, mut state) = (0, 0, 1u64);
            let mut random = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            for _ in 0..20_000 {
                now += random() % (2 * timing.burst * 100 / percent);
                sum += dram.read(now / TICKS, random() << 6);
            }
            sum / 20_000
        })
    }

    #[test]
    fn latency_grows_with_the_load_if_banks_are_modelled() {
        let (off, on) = (loaded(false), loaded(true));
        println!(
            "mean latency at 5, 10, 20, 30 and 40 % of the bus: {off:?} without banks, {on:?} with"
        );
        assert!(
            off.iter().all(|latency| (124..=132).contains(latency)),
            "refreshes alone: {off:?}"
        );
        assert!(
            on.is_sorted_by(|lighter, heavier| lighter < heavier),
            "{on:?}"
        );
        assert!(on[0] < 132 && on[4] > 148 && on[4] < 1000, "{on:?}");
    }

    #[test]
    fn a_refresh_must_end_first() {
        let mut dram = Dram::new(
            100,
            1,
            Refresh {
                interval: 1000,
                cycles: 50,
                phase: 10,
            },
            None,
        );
        assert_eq!(
            [0, 30, 39, 40, 989, 990, 1039].map(|now| dram.read(now, 0)),
            [140, 110, 101, 100, 100, 150, 101]
        );
    }

    #[test]
    fn no_bucket_serves_more_than_its_time() {
        let mut dram = Dram::new(100, 64, NEVER, None);
        let waits: Vec<u64> = (0..9).map(|_| dram.read(0, 0) - 100).collect();
        assert_eq!(waits, [0, 0, 0, 0, 256, 256, 256, 256, 512]);
    }

    #[test]
    fn a_core_that_runs_later_is_not_delayed_by_one_ahead() {
        let mut dram = Dram::new(100, 64, NEVER, None);
        for _ in 0..4 {
            dram.write(256 * 10, 0);
        }
        assert_eq!(dram.read(256 * 9, 0), 100);
        assert_eq!(dram.read(256 * 10, 0), 356);
    }
}
