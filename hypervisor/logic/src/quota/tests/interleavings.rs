//! All interleavings of a few cores with small budgets: they count, look, end periods, restart and
//! share.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::vec;

/// Length of a period.
const PERIOD: u64 = 2;
/// Number of periods that a world can have.
const PERIODS: usize = 3;
/// Events between a counter's overflow and its interrupt.
const SKID: u64 = 1;

#[derive(Clone)]
struct Core {
    entry: Entry,
    counters: Fake,
    budget: u64,
    /// The true period, and what was counted in it.
    period: u64,
    used: u64,
    /// What its regulator allowed in each period so far.
    allowed: [u64; PERIODS],
    /// An overflow whose interrupt has not come, and what was counted since.
    pending: Option<u64>,
    restarted: bool,
}

impl Core {
    fn new(budget: u64, exact: bool, guarantee: Option<u64>, pool: &'static Pool) -> Self {
        let reclaim = guarantee.map(|guarantee| Reclaim {
            pool: 0,
            guarantee: Events(guarantee),
        });
        let spec = Quota {
            budget: Events(budget),
            period: Nanos(PERIOD),
            exact,
            reclaim,
            ..super::spec(0, false)
        };
        let mut quotas = assigned(&[spec], 0, true, false);
        let mut entry = quotas.entries.remove(0);
        let counters = Fake::default();
        entry.begin(Instant(0), pool);
        entry.arm(Events(0), &counters);
        Self {
            entry,
            counters,
            budget,
            period: 0,
            used: 0,
            allowed: [budget, 0, 0],
            pending: None,
            restarted: false,
        }
    }

    fn regulator(&self) -> &Regulator {
        self.entry.regulator.as_ref().expect("started")
    }

    fn is_due(&self, now: u64) -> bool {
        self.regulator()
            .replenish_at()
            .is_some_and(|at| at.0 <= now)
    }

    /// Its state without the totals, on which its future does not depend.
    fn key(&self) -> [u64; 15] {
        let regulator = self.regulator();
        let spent = regulator.spent_at.is_some();
        let flags = [regulator.quiet, spent, self.restarted]
            .iter()
            .fold(0, |bits, &bit| bits << 1 | u64::from(bit));
        [
            flags,
            regulator.budget.0,
            regulator.period_end.0,
            regulator.debt.0,
            regulator.restarted.map_or(9, u64::from),
            regulator.index.into(),
            self.entry.base.0,
            self.entry.counters[0].preset.into(),
            self.counters.get(5).into(),
            self.period,
            self.used,
            self.pending.unwrap_or(9),
            self.allowed[0],
            self.allowed[1],
            self.allowed[2],
        ]
    }
}

struct World {
    now: u64,
    /// When time ends: after a tick of the last period.
    end: u64,
    cores: Vec<Core>,
    pool: &'static Pool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    Event(usize),
    Interrupt(usize),
    Turn(usize),
    Poll(usize),
    Restart(usize),
    Charge(usize),
}

std::thread_local! {
    /// Pools of worlds that are gone, for the next ones.
    static FREE: RefCell<Vec<&'static Pool>> = const { RefCell::new(vec![]) };
}

impl Drop for World {
    fn drop(&mut self) {
        FREE.with_borrow_mut(|free| free.push(self.pool));
    }
}

impl World {
    fn copy(&self) -> Self {
        let pool = FREE.with_borrow_mut(Vec::pop).unwrap_or_else(pool);
        pool.set(self.pool.state());
        let mut cores = self.cores.clone();
        cores
            .iter_mut()
            .filter_map(|core| core.entry.regulator.as_mut())
            .for_each(|regulator| regulator.pool = pool);
        Self {
            now: self.now,
            end: self.end,
            cores,
            pool,
        }
    }

    fn key(&self) -> u64 {
        let mut keys: Vec<_> = self
            .cores
            .iter()
            .map(|core| (core.budget, core.key()))
            .collect();
        // Cores with the same budget are interchangeable.
        keys.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (self.now, keys, self.pool.state()).hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, restarts: bool) -> Vec<Step> {
        let mut steps = vec![];
        if self.now < self.end {
            steps.push(Step::Tick);
        }
        for (number, core) in self.cores.iter().enumerate() {
            if core.is_due(self.now) {
                // The timer interrupts the guest before its next instruction.
                steps.push(Step::Turn(number));
                continue;
            }
            if core.pending.is_some() {
                steps.push(Step::Interrupt(number));
            }
            if !core.regulator().is_throttled() {
                if core.pending.is_none_or(|since| since < SKID) {
                    steps.push(Step::Event(number));
                }
                if core.entry.spec.backstop {
                    steps.push(Step::Poll(number));
                }
                if restarts && !core.restarted {
                    steps.extend([Step::Restart(number), Step::Charge(number)]);
                }
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        let now = Instant(self.now);
        match step {
            Step::Tick => self.now += 1,
            Step::Event(number) => {
                let core = &mut self.cores[number];
                if core.period != self.now / PERIOD {
                    (core.period, core.used) = (self.now / PERIOD, 0);
                }
                core.used += 1;
                core.pending = core.pending.map(|since| since + 1);
                if core.counters.count(5, 1) {
                    core.pending.get_or_insert(0);
                }
            }
            Step::Interrupt(number) => {
                let core = &mut self.cores[number];
                core.pending = None;
                core.entry.look(&core.counters, true, now);
            }
            Step::Turn(number) => {
                let core = &mut self.cores[number];
                core.pending = None;
                core.entry.turn(&core.counters, now, None).expect("due");
            }
            Step::Poll(number) => {
                let core = &mut self.cores[number];
                core.entry.look(&core.counters, false, now);
            }
            Step::Restart(number) => {
                let core = &mut self.cores[number];
                core.restarted = true;
                let enforcement = Enforcement {
                    by_interrupt: true,
                    shadow: false,
                };
                let mut quotas = Quotas {
                    entries: vec![core.entry.clone()],
                    enforcement,
                    is_running: true,
                };
                if quotas.restart(now) {
                    let counted = quotas.entries[0].counted(&core.counters);
                    quotas.entries[0]
                        .regulator
                        .as_mut()
                        .expect("started")
                        .stop(counted, now);
                    quotas.entries[0].look(&core.counters, false, now);
                }
                core.entry = quotas.entries.remove(0);
            }
            Step::Charge(number) => {
                let core = &mut self.cores[number];
                core.restarted = true;
                core.entry.charge(&core.counters, Events(2), now);
            }
        }
    }

    fn check(&mut self, trail: &[Step]) {
        for core in &mut self.cores {
            let regulator = core.entry.regulator.as_ref().expect("started");
            if let Some(allowed) = core.allowed.get_mut(regulator.index as usize) {
                *allowed = regulator.budget.0;
            }
            let shares = core.entry.spec.reclaim.is_some();
            let bound = if shares {
                core.allowed[core.period as usize]
            } else {
                core.budget
            };
            assert!(
                core.used <= bound + SKID,
                "{} of {bound}: {trail:?}",
                core.used
            );
            if regulator.is_throttled() {
                assert!(
                    regulator.replenish_at().is_some(),
                    "held for ever: {trail:?}"
                );
            }
            if let Some(Reclaim { guarantee, .. }) = core.entry.spec.reclaim {
                assert!(
                    regulator.budget >= guarantee,
                    "less than was guaranteed: {trail:?}"
                );
            }
        }
        // By period: what cores may use, and what nobody has taken yet, is no more than they
        // brought.
        for period in (0..PERIODS).filter(|_| self.cores[0].entry.spec.reclaim.is_some()) {
            let there = |core: &&Core| {
                core.allowed[period] > 0 || core.regulator().index as usize >= period
            };
            let may: u64 = self.cores.iter().map(|core| core.allowed[period]).sum();
            let brought: u64 = self
                .cores
                .iter()
                .filter(there)
                .map(|core| core.budget)
                .sum();
            let (open, left) = self.pool.state();
            let left = if open as usize == period + 1 {
                u64::from(left)
            } else {
                0
            };
            assert!(
                may + left <= brought,
                "{may} and {left} of {brought}: {trail:?}"
            );
        }
    }
}

/// Tries everything. Returns the number of states.
fn explore(mut world: World, restarts: bool) -> usize {
    world.check(&[]);
    let mut seen = HashSet::from([world.key()]);
    let mut trail = vec![];
    let steps = world.steps(restarts);
    let mut open = vec![(world, steps)];
    while let Some((world, steps)) = open.last_mut() {
        let Some(step) = steps.pop() else {
            open.pop();
            trail.pop();
            continue;
        };
        let mut next = world.copy();
        next.take(step);
        trail.push(step);
        next.check(&trail);
        if seen.insert(next.key()) {
            let steps = next.steps(restarts);
            open.push((next, steps));
        } else {
            trail.pop();
        }
    }
    seen.len()
}

fn world(budgets: &[u64], exact: bool, guarantee: Option<u64>) -> World {
    world_of(PERIODS, budgets, exact, guarantee)
}

fn world_of(periods: usize, budgets: &[u64], exact: bool, guarantee: Option<u64>) -> World {
    let pool = pool();
    let core = |&budget: &u64| {
        Core::new(
            budget,
            exact,
            guarantee.map(|least| least.min(budget)),
            pool,
        )
    };
    let end = (periods as u64 - 1) * PERIOD + 1;
    World {
        now: 0,
        end,
        cores: budgets.iter().map(core).collect(),
        pool,
    }
}

#[test]
fn one_core_alone() {
    for (budget, exact) in (1..=4).flat_map(|budget| [(budget, false), (budget, true)]) {
        let states = explore(world(&[budget], exact, None), true);
        assert!(states > 30, "{states} with {budget}");
    }
}

#[test]
fn two_cores_share() {
    for (first, second) in (1..=4).flat_map(|first| (first..=4).map(move |second| (first, second)))
    {
        for guarantee in [1, 3] {
            let states = explore(world(&[first, second], true, Some(guarantee)), true);
            assert!(states > 1000, "{states} with {first} and {second}");
        }
    }
}

#[test]
fn three_cores_share() {
    for (budgets, guarantee) in [
        ([1, 1, 1], 1),
        ([1, 2, 2], 1),
        ([2, 2, 2], 1),
        ([1, 1, 4], 1),
        ([4, 4, 4], 3),
    ] {
        let states = explore(world(&budgets, true, Some(guarantee)), false);
        std::println!("{budgets:?}: {states}");
        assert!(states > 1000, "{states} with {budgets:?}");
    }
}

/// A restart or charged work of each of three cores too, at any time of two periods.
#[test]
#[ignore = "takes half an hour"]
fn three_cores_share_and_restart() {
    for (first, second, third) in
        (1..=4).flat_map(|a| (a..=4).flat_map(move |b| (b..=4).map(move |c| (a, b, c))))
    {
        let states = explore(world_of(2, &[first, second, third], true, Some(1)), true);
        std::println!("{first}, {second}, {third}: {states}");
        assert!(states > 1000, "{states}");
    }
}

/// The same over a third period, for as many states as memory holds.
#[test]
#[ignore = "takes many minutes"]
fn three_cores_share_and_restart_longer() {
    for budgets in [[1, 1, 1], [1, 1, 2]] {
        let states = explore(world(&budgets, true, Some(1)), true);
        std::println!("{budgets:?}: {states}");
        assert!(states > 1000, "{states}");
    }
}
