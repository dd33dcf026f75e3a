//! Problems with known run times: programs whose times follow a formula, and surfaces of some points.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code, reason = "each test program uses a part")]

use cloison_tune::*;
use std::collections::BTreeSet;

/// Numbers that depend on a seed only (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }
}

pub const PERIOD: Time = Time(1000);

/// Memory in the shared pool, no private pages, no budget.
pub const UNPARTITIONED: Choice = Choice {
    placement: Placement::SHARED,
    budget: Budget::Unlimited,
};

/// A program: its time and refills by formulas, monotone in all conditions.
#[derive(Clone, Debug)]
pub struct Program {
    pub colors: u64,
    pub alone: u64,
    /// Extra time without any cache, in percent of the time alone.
    pub cache: u64,
    /// Extra time per 100 refills of neighbors, in thousandths.
    pub memory: u64,
    /// Refills alone, and without any cache.
    pub refills: [u64; 2],
    /// How many private pages do as much as a color.
    pub hot: u64,
}

impl Program {
    pub fn random(numbers: &mut Numbers, colors: u32) -> Self {
        let alone = numbers.between(100_000, 1_000_000);
        let few = numbers.between(0, alone / 200);
        Self {
            colors: u64::from(colors),
            alone,
            cache: numbers.between(0, 120),
            memory: numbers.between(0, 400),
            refills: [few, few + numbers.between(0, alone / 40)],
            hot: numbers.between(1, 8),
        }
    }

    /// Thousandths of the cache that the program misses.
    fn missing(&self, point: &Point) -> u64 {
        let got = match point.placement {
            Placement::Own { colors } => u64::from(colors.0) * 1000,
            Placement::Shared { private } => {
                u64::from(point.shared.0) * 400 + private.0 * 1000 / self.hot
            }
        };
        (self.colors * 1000).saturating_sub(got) / self.colors
    }

    pub fn run(&self, point: &Point) -> Sample {
        let missing = self.missing(point);
        let refills = self.refills[0] + (self.refills[1] - self.refills[0]) * missing / 1000;
        let cache = self.alone * self.cache * missing / 100_000;
        let memory = (self.alone + cache) * self.memory * point.traffic.0 / 100_000;
        let free = self.alone + cache + memory;
        let time = match point.budget {
            Budget::PerPeriod(budget) => free.max(refills * PERIOD.0 / budget.0),
            Budget::Unlimited => free,
        };
        Sample {
            time: Time(time),
            refills: Some(Refills(refills)),
        }
    }

    pub fn alone(&self) -> Sample {
        self.run(&Point {
            placement: Placement::Own {
                colors: Colors(u32::try_from(self.colors).unwrap()),
            },
            shared: Colors(0),
            traffic: Traffic(0),
            budget: Budget::Unlimited,
        })
    }
}

/// How large a random problem is.
#[derive(Clone, Copy)]
pub struct Size {
    pub vms: usize,
    pub colors: u32,
    pub steps: u64,
    pub budgets: u64,
    pub points: usize,
}

/// A problem and the programs that it is about.
pub struct Case {
    pub problem: Problem,
    pub programs: Vec<Program>,
}

/// All conditions that a VM can run under, without the traffic.
pub fn conditions(vm: &Vm, colors: u32, traffic: Traffic) -> Vec<Point> {
    let mut budgets = vm.budgets.clone();
    budgets.push(Budget::Unlimited);
    let mut points = vec![];
    for budget in budgets {
        let mut add = |placement, shared| {
            points.push(Point {
                placement,
                shared: Colors(shared),
                traffic,
                budget,
            });
        };
        for own in 1..=colors {
            let own = Placement::Own {
                colors: Colors(own),
            };
            add(own, 0);
        }
        for shared in 1..=colors {
            add(Placement::SHARED, shared);
            for step in &vm.pages {
                add(
                    Placement::Shared {
                        private: step.pages,
                    },
                    shared,
                );
            }
        }
    }
    points
}

pub fn case(seed: u64, size: Size) -> Case {
    let mut numbers = Numbers(seed);
    let flood = Traffic(numbers.between(50, 150));
    let mut problem = Problem {
        colors: Colors(size.colors),
        color_pages: Pages(100),
        shared: (numbers.below(6) == 0).then_some(Colors(1)),
        flood,
        vms: vec![],
    };
    let mut programs = vec![];
    for index in 0..size.vms {
        let program = Program::random(&mut numbers, size.colors);
        let demand = match numbers.below(4) {
            0 | 1 => Demand::Tolerance(Permille(
                u32::try_from(numbers.between(1050, 1900)).unwrap(),
            )),
            2 => Demand::Deadline(Time(program.alone * numbers.between(105, 190) / 100)),
            _ => Demand::BestEffort,
        };
        let mut tune = BTreeSet::from([Knob::Colors, Knob::Pages, Knob::Budgets]);
        if numbers.below(8) == 0 {
            tune.pop_first();
        }
        let mut vm = Vm {
            name: VmName(format!("vm{index}")),
            vcpus: u32::try_from(numbers.between(1, 2)).unwrap(),
            memory: Pages(numbers.between(1, 150)),
            demand,
            tune,
            fixed: Fixed::default(),
            written: UNPARTITIONED,
            pages: (1..=size.steps)
                .map(|step| PageStep {
                    pages: Pages(step * 3),
                    colors: Colors(u32::try_from(step).unwrap()),
                })
                .collect(),
            budgets: (1..=size.budgets)
                .map(|step| Budget::PerPeriod(Traffic(step * 15)))
                .collect(),
            surface: Surface::new(PERIOD, program.alone()),
        };
        let most = flood.0 * 2 * (size.vms as u64 - 1);
        for _ in 0..size.points {
            let traffic = Traffic(most * numbers.below(6) / 5);
            let all = conditions(&vm, size.colors, traffic);
            let point = all[usize::try_from(numbers.below(all.len() as u64)).unwrap()];
            vm.surface.insert(Measurement {
                point,
                sample: program.run(&point),
            });
        }
        problem.vms.push(vm);
        programs.push(program);
    }
    Case { problem, programs }
}

/// Measures every point that a partition of the problem can need.
pub fn measure_all(case: &mut Case) {
    let colors = case.problem.colors.0;
    for (index, program) in case.programs.iter().enumerate() {
        let mut sums = BTreeSet::from([0]);
        let neighbors = case.problem.vms.iter().enumerate();
        for (_, vm) in neighbors.filter(|(it, _)| *it != index) {
            let budgets = vm.budgets.iter().chain([&Budget::Unlimited]);
            let allowances: Vec<_> = budgets
                .map(|budget| case.problem.allowance(vm, *budget).0)
                .collect();
            sums = sums
                .iter()
                .flat_map(|sum| allowances.iter().map(move |it| sum + it))
                .collect();
        }
        let vm = &mut case.problem.vms[index];
        for traffic in sums {
            for point in conditions(vm, colors, Traffic(traffic)) {
                vm.surface.insert(Measurement {
                    point,
                    sample: program.run(&point),
                });
            }
        }
    }
}
