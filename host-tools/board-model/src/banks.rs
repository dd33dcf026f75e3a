//! A memory of banks: open rows, one data bus, refreshes, and a queue of writes.
//!
//! Cores run one after the other for a quantum each, so accesses do not arrive in order of time. A
//! bank that is "busy until" a time would make a core that runs later wait for one that is ahead of
//! it. Instead, the bus, the activations and each bank keep a calendar: an access takes the first
//! gap at or after its own time.
//!
//! Not modelled: the controller's preference for hits of open rows, the two speeds within and
//! between bank groups, and the limit to waiting reads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::calendar::Calendar;
use crate::refresh::Refresh;
use std::ops::Range;

/// Parts of a cycle in which the memory's times are kept: a burst does not take a whole number of
/// cycles.
pub const TICKS: u64 = 256;
/// Maximum number of address bits that choose a bank.
pub const BANK_BITS: usize = 6;

/// Words of a calendar: no access is as far from another one.
const WORDS: usize = 1024;
/// Activations of a bank that are remembered at least.
const REMEMBERED: usize = 32;

/// A memory's banks; times are in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankTiming {
    /// Address bits that choose the bank, of which the first `bank_bits` count.
    pub bits: [u8; BANK_BITS],
    /// Number of bits that choose the bank.
    pub bank_bits: usize,
    /// Lowest address bit of the row.
    pub row_bit: u32,
    /// Time for which a line occupies the data bus.
    pub burst: u64,
    /// Time from the activation of a row to the access (tRCD).
    pub activate: u64,
    /// Time to close the open row (tRP).
    pub precharge: u64,
    /// Time between two activations of a bank (tRC).
    pub row_cycle: u64,
    /// Average time between two activations of any banks (a quarter of tFAW).
    pub activation: u64,
    /// Time for which the bus is idle when it changes from reads to writes and back.
    pub turnaround: u64,
    /// Writes that are collected before they are written.
    pub writes: usize,
}

/// A row that a bank opened.
#[derive(Clone, Copy, Debug)]
struct Activation {
    /// When the bank began to open it.
    begin: u64,
    /// When it was open.
    open: u64,
    row: u64,
}

#[derive(Clone, Debug, Default)]
struct Bank {
    /// By time.
    activations: Vec<Activation>,
    /// Time up to which activations are forgotten.
    forgotten: u64,
}

impl Bank {
    /// Returns when an access at `time` to a row begins, and how long it takes until the row is
    /// open. `refreshed` is when the last refresh closed all rows.
    #[inline]
    fn open(&mut self, row: u64, time: u64, refreshed: u64, timing: &BankTiming) -> (u64, u64) {
        if time < self.forgotten {
            return (time, timing.precharge + timing.activate);
        }
        let list = &mut self.activations;
        let mut next = list.len();
        while next > 0 && list[next - 1].begin > time {
            next -= 1;
        }
        let mut begin = time;
        let mut delay = timing.activate;
        loop {
            if let Some(last) = next.checked_sub(1).map(|last| list[last]) {
                if last.begin >= refreshed {
                    if last.row == row {
                        return (begin.max(last.open), 0);
                    }
                    delay = timing.precharge + timing.activate;
                }
                begin = begin.max(last.begin + timing.row_cycle);
            }
            match list.get(next) {
                Some(other) if begin + timing.row_cycle > other.begin => {
                    begin = begin.max(other.begin);
                    next += 1;
                }
                _ => break,
            }
        }
        list.insert(
            next,
            Activation {
                begin,
                open: begin + delay,
                row,
            },
        );
        if list.len() == 2 * REMEMBERED {
            self.forgotten = list[REMEMBERED - 1].begin;
            list.drain(..REMEMBERED);
        }
        (begin, delay)
    }
}

/// The memory's banks and its bus. Times are in ticks since the model was turned on.
#[derive(Clone, Debug)]
pub struct Banks {
    timing: BankTiming,
    refresh: Refresh,
    /// Start of the refresh interval that was asked for last, in the refresh's own time.
    interval: u64,
    banks: Vec<Bank>,
    bus: Calendar,
    activations: Calendar,
    /// Addresses that wait to be written.
    pending: Vec<u64>,
    /// When the last of the lines written before is on the bus.
    written: u64,
    /// While as many writes wait as the memory collects, and those before are being written, it
    /// takes none.
    full: Range<u64>,
}

impl Banks {
    /// Creates an idle memory. The refresh's times are in cycles.
    pub fn new(timing: BankTiming, refresh: Refresh) -> Self {
        let Refresh {
            interval,
            cycles,
            phase,
        } = refresh;
        Self {
            timing,
            refresh: Refresh {
                interval: interval * TICKS,
                cycles: cycles * TICKS,
                phase: phase * TICKS,
            },
            interval: 0,
            banks: vec![Bank::default(); 1 << timing.bank_bits],
            bus: Calendar::new(timing.burst, WORDS),
            activations: Calendar::new(timing.activation, WORDS),
            pending: Vec::with_capacity(timing.writes),
            written: 0,
            full: 0..0,
        }
    }

    /// Makes the memory idle: time starts again.
    pub fn clear(&mut self) {
        self.banks.fill(Bank::default());
        self.bus.clear();
        self.activations.clear();
        self.pending.clear();
        self.written = 0;
        self.full = 0..0;
        self.interval = 0;
    }

    /// Reads the line at an address. Returns the time until it is on the bus: 0 if its row is open
    /// and the bank and the bus are free.
    #[inline]
    pub fn read(&mut self, time: u64, address: u64) -> u64 {
        self.transfer(time, address) - time
    }

    /// Writes the line at an address. Lines are collected, and written when there are enough.
    /// Returns the time until the memory takes the line: if there are enough while the batch before
    /// is being written, that must end first.
    pub fn write(&mut self, time: u64, address: u64) -> u64 {
        self.pending.push(address);
        if self.pending.len() >= self.timing.writes {
            self.full = time..self.written;
            self.drain(time);
        }
        if self.full.contains(&time) {
            self.full.end - time
        } else {
            0
        }
    }

    #[cold]
    fn drain(&mut self, time: u64) {
        for _ in 0..self.timing.turnaround.div_ceil(self.bus.slot()) {
            self.use_bus(time);
        }
        let mut pending = std::mem::take(&mut self.pending);
        for address in pending.drain(..) {
            self.written = self
                .written
                .max(self.transfer(time, address) + self.timing.burst);
        }
        self.pending = pending;
    }

    /// Moves a line. Returns when its transfer begins.
    #[inline]
    fn transfer(&mut self, time: u64, address: u64) -> u64 {
        let bits = &self.timing.bits[..self.timing.bank_bits];
        let bank = bits
            .iter()
            .rev()
            .fold(0, |bank, bit| bank << 1 | (address >> bit & 1) as usize);
        let row = address >> self.timing.row_bit;
        let time = self.after_refresh(time);
        let refreshed = self.interval.saturating_sub(self.refresh.phase);
        let (mut begin, delay) = self.banks[bank].open(row, time, refreshed, &self.timing);
        if delay > 0 {
            begin = self.activations.take(begin);
        }
        let begin = if begin > time {
            self.after_refresh(begin)
        } else {
            begin
        };
        self.use_bus(begin + delay)
    }

    /// Takes the bus for a line. Returns when.
    #[inline]
    fn use_bus(&mut self, mut time: u64) -> u64 {
        loop {
            let begin = self.bus.take(time);
            time = self.after_refresh(begin);
            if time == begin {
                return begin;
            }
        }
    }

    /// Returns a time, or the end of the refresh that is in progress then.
    #[inline]
    fn after_refresh(&mut self, time: u64) -> u64 {
        time + self.refresh.wait(time, &mut self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use proptest::prelude::*;

    const NEVER: Refresh = Refresh {
        interval: 1 << 40,
        cycles: 0,
        phase: 0,
    };

    fn timing() -> BankTiming {
        Board::zcu102().banks.expect("the shipped model has banks")
    }
    fn banks() -> Banks {
        Banks::new(timing(), NEVER)
    }
    /// Returns an address in a bank and row.
    fn at(bank: u64, row: u64, line: u64) -> u64 {
        row << 17 | bank << 13 | line << 6
    }
    /// Pseudo-random numbers (Knuth's linear congruential generator, its upper half).
    fn random(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn a_hit_waits_for_nothing_a_closed_row_is_opened_and_another_one_closed_first() {
        let (mut banks, timing) = (banks(), timing());
        let far = 1_000_000;
        assert_eq!(banks.read(far, at(3, 7, 0)), timing.activate, "closed");
        assert_eq!(banks.read(2 * far, at(3, 7, 1)), 0, "open");
        assert_eq!(
            banks.read(3 * far, at(3, 8, 0)),
            timing.precharge + timing.activate,
            "another row is open"
        );
        assert_eq!(
            banks.read(4 * far, at(4, 8, 0)),
            timing.activate,
            "another bank"
        );
    }

    #[test]
    fn a_bank_opens_a_row_per_row_cycle_and_all_banks_four_per_window() {
        let timing = timing();
        let last = |bank: &dyn Fn(u64) -> u64| {
            let mut banks = banks();
            (0..64)
                .map(|row| banks.read(0, at(bank(row), row, 0)))
                .max()
                .expect("64 reads")
        };
        assert_eq!(
            last(&|_| 0),
            63 * timing.row_cycle + timing.precharge + timing.activate
        );
        let spread = last(&|row| row % 16);
        assert!(
            spread >= 63 * timing.activation && spread < 70 * timing.activation,
            "{spread}"
        );
    }

    #[test]
    fn a_core_that_runs_later_is_not_delayed_by_one_ahead() {
        let mut banks = banks();
        let ahead = 300 * TICKS;
        for row in 0..4 {
            banks.read(ahead, at(0, row, 0));
        }
        assert_eq!(banks.read(0, at(0, 9, 0)), timing().activate);
    }

    #[test]
    fn a_refresh_closes_all_rows_and_takes_its_share_of_the_bandwidth() {
        let refresh = Refresh {
            interval: 1000,
            cycles: 250,
            phase: 0,
        };
        let mut banks = Banks::new(timing(), refresh);
        banks.read(500 * TICKS, at(0, 0, 0));
        assert_eq!(banks.read(900 * TICKS, at(0, 0, 1)), 0);
        assert_eq!(
            banks.read(1100 * TICKS, at(0, 0, 2)),
            150 * TICKS + timing().activate
        );
        let all = |refresh| {
            let mut banks = Banks::new(timing(), refresh);
            (0..10_000)
                .map(|line| banks.read(0, at(line / 128 % 16, line / 2048, line % 128)))
                .max()
                .expect("reads")
        };
        let ratio = all(refresh) as f64 / all(NEVER) as f64;
        assert!(
            (1.32..1.36).contains(&ratio),
            "a quarter of the time: {ratio}"
        );
    }

    #[test]
    fn the_bus_turns_around_once_for_a_batch_of_writes() {
        let with = |writes: usize| {
            let mut banks = Banks::new(BankTiming { writes, ..timing() }, NEVER);
            for line in 0..64 {
                banks.read(0, at(0, 0, line));
                banks.write(0, at(1, 0, line));
            }
            banks.read(0, at(0, 0, 64))
        };
        let slots = timing().turnaround.div_ceil(timing().burst);
        let (one, sixteen) = (with(1), with(16));
        assert!(
            one - sixteen >= (64 - 4 - 1) * slots * timing().burst,
            "{one} and {sixteen}"
        );
    }

    /// Mean latency beyond the memory's own, in ticks, of reads that arrive at random, `gap` ticks
    /// apart on average.
    fn loaded(gap: u64, address: &dyn Fn(u64, u64) -> u64) -> f64 {
        let (mut banks, mut time, mut state) = (banks(), 0, 1);
        let number = 50_000;
        let mut sum = 0;
        for read in 0..number {
            time += random(&mut state) % (2 * gap);
            sum += banks.read(time, address(read, random(&mut state)));
        }
        sum as f64 / number as f64
    }

    #[test]
    fn latency_grows_with_the_load_below_saturation() {
        let timing = timing();
        // Random lines are limited by activations, a stream of lines by the bus.
        let random = |_, number| number << 6;
        let stream = |read: u64, _| read << 6;
        for (what, limit, address) in [
            (
                "random",
                timing.activation,
                &random as &dyn Fn(u64, u64) -> u64,
            ),
            ("stream", timing.burst, &stream),
        ] {
            let curve: Vec<f64> = [2, 10, 30, 50, 70, 80, 90]
                .map(|percent| loaded(limit * 100 / percent, address))
                .into();
            assert!(
                curve.is_sorted_by(|lighter, heavier| lighter < heavier),
                "{what}: {curve:?}"
            );
            assert!(
                curve[6] < 40.0 * timing.burst as f64,
                "{what}: no backlog: {curve:?}"
            );
            assert!(
                loaded(limit * 8 / 10, address) > 1000.0 * timing.burst as f64,
                "{what}: a backlog"
            );
        }
        let idle = loaded(1_000_000, &random);
        let conflict = (timing.precharge + timing.activate) as f64;
        assert!(
            (idle / conflict - 1.0).abs() < 0.01,
            "{idle}: nearly all rows are others"
        );
    }

    proptest! {
        /// Whatever the order of accesses, no two share the bus, and the same ones take the same
        /// time again.
        #[test]
        fn the_bus_serves_one_at_a_time(accesses in prop::collection::vec((0u64..100_000, 0u64..1 << 24), 1..300)) {
            let run = || {
                let mut banks = Banks::new(timing(), Refresh { interval: 500, cycles: 20, phase: 3 });
                accesses.iter().map(|(time, address)| time + banks.read(*time, *address)).collect::<Vec<_>>()
            };
            let mut begins = run();
            prop_assert_eq!(&begins, &run());
            for (begin, (time, _)) in begins.iter().zip(&accesses) {
                prop_assert!(begin >= time);
            }
            begins.sort_unstable();
            let burst = timing().burst;
            for (at, begin) in begins.iter().enumerate() {
                // A slot that has begun is taken for the rest of it.
                let within = begins[at..].iter().filter(|other| **other < begin + 10 * burst).count();
                prop_assert!(within <= 11, "{} lines in 10 bursts", within);
            }
        }
    }
}
