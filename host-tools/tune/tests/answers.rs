//! What answers promise: sequences end at the optimum, proposals hold, baselines are never better.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod synthetic;

use cloison_tune::*;
use std::collections::BTreeSet;
use synthetic::{Case, Size, case, measure_all};

const SIZE: Size = Size {
    vms: 3,
    colors: 5,
    steps: 1,
    budgets: 2,
    points: 0,
};

/// Everything that a partition of the case's problem can need, measured.
fn measured(seed: u64) -> Problem {
    let mut case = case(seed, SIZE);
    measure_all(&mut case);
    case.problem
}

/// Measures what is asked for until the answer is certain; returns it with the number of runs.
fn sequence(mut case: Case, objective: Objective) -> (Answer, usize, Problem) {
    let mut runs = 0;
    loop {
        let is_measured = |request: &Request| {
            let surface = &case.problem.vms[request.vm].surface;
            surface.is_measured(&request.point)
        };
        match next_measurements(&case.problem, objective, is_measured).unwrap() {
            Step::Certain(answer) => return (answer, runs, case.problem),
            Step::Measure(requests) => {
                assert!(!requests.is_empty());
                for request in requests {
                    let surface = &mut case.problem.vms[request.vm].surface;
                    assert!(!surface.is_measured(&request.point));
                    let sample = case.programs[request.vm].run(&request.point);
                    surface.insert(Measurement {
                        point: request.point,
                        sample,
                    });
                    runs += 1;
                }
            }
        }
    }
}

#[test]
fn few_measurements_find_what_all_of_them_find() {
    let (mut runs, mut points, mut impossible) = (0, 0, 0);
    for seed in 0..10 {
        let full = measured(seed);
        for objective in [Objective::Throughput, Objective::Colors, Objective::Margin] {
            let Ok(expected) = solve(&full, objective, View::Pessimistic) else {
                continue;
            };
            let (answer, measured, few) = sequence(case(seed, SIZE), objective);
            match (&answer, &expected) {
                (Answer::Optimal(found), Answer::Optimal(best)) => {
                    assert_eq!(found.value, best.value, "{seed} {objective:?}");
                    // The limits hold by the truth, not only by the bounds.
                    for (index, vm) in full.vms.iter().enumerate() {
                        let time = full.bounds(index, &found.partition).upper.unwrap();
                        assert!(vm.limit().is_none_or(|limit| time <= limit));
                    }
                }
                (Answer::Impossible(found), Answer::Impossible(best)) => {
                    impossible += 1;
                    assert_eq!(found.conflict, best.conflict, "{seed} {objective:?}");
                    assert_eq!(found.binding, best.binding, "{seed} {objective:?}");
                    let demands = |reason: &Impossible| {
                        let demands = reason.proposals.iter().map(|it| it.relaxation);
                        demands.collect::<Vec<_>>()
                    };
                    assert_eq!(demands(found), demands(best), "{seed} {objective:?}");
                    assert!(few.vms.len() == full.vms.len());
                }
                _ => panic!("{seed} {objective:?}: {answer:?}, not {expected:?}"),
            }
            runs += measured;
            points += full
                .vms
                .iter()
                .map(|vm| vm.surface.points().len())
                .sum::<usize>();
        }
    }
    println!("{runs} runs of {points} points, {impossible} impossible");
    assert!(
        runs * 10 < points && impossible > 3,
        "{runs} {points} {impossible}"
    );
}

fn with_demand(problem: &Problem, name: &VmName, demand: Demand) -> Problem {
    let mut problem = problem.clone();
    for vm in problem.vms.iter_mut().filter(|vm| vm.name == *name) {
        vm.demand = demand;
    }
    problem
}

fn solved(problem: &Problem) -> Answer {
    solve(problem, Objective::Throughput, View::Pessimistic).unwrap()
}

/// Two equal programs with a deadline, in a cache of four colors.
fn two_programs(cache: u64, memory: u64, deadline: u64) -> Problem {
    let program = synthetic::Program {
        colors: 4,
        alone: 100_000,
        cache,
        memory,
        refills: [100, 1000],
        hot: 1,
    };
    let mut case = case(1, Size { vms: 2, ..SIZE });
    case.programs = vec![program.clone(), program.clone()];
    case.problem.colors = Colors(4);
    case.problem.shared = None;
    case.problem.flood = Traffic(100);
    for vm in &mut case.problem.vms {
        vm.vcpus = 1;
        vm.memory = Pages(100);
        vm.tune = [Knob::Colors, Knob::Budgets].into();
        vm.budgets.clear();
        vm.demand = Demand::Deadline(Time(deadline));
        vm.surface = Surface::new(synthetic::PERIOD, program.alone());
        for traffic in [0, 100] {
            for point in synthetic::conditions(vm, 4, Traffic(traffic)) {
                let sample = program.run(&point);
                vm.surface.insert(Measurement { point, sample });
            }
        }
    }
    case.problem
}

#[test]
fn the_resource_that_is_short_is_named() {
    let resource = |cache, memory, deadline| {
        let problem = two_programs(cache, memory, deadline);
        match solve(&problem, Objective::Margin, View::Pessimistic).unwrap() {
            Answer::Impossible(reason) => Some(reason.resource),
            Answer::Optimal(_) => None,
        }
    };
    // Without the cache, 100 % more time; with half of it, 50 %.
    assert_eq!(resource(100, 0, 150_000), None);
    assert_eq!(resource(100, 0, 140_000), Some(Resource::Colors));
    assert_eq!(resource(100, 0, 99_000), Some(Resource::Vm));
    // 100 refills of the neighbor per period: 30 % more time.
    assert_eq!(resource(0, 300, 130_000), None);
    assert_eq!(resource(0, 300, 120_000), Some(Resource::Traffic));
    // Both: 150 + 45; with all colors 130, with a silent neighbor 150.
    assert_eq!(resource(100, 300, 195_000), None);
    assert_eq!(resource(100, 300, 160_000), Some(Resource::ColorsOrTraffic));
    assert_eq!(resource(100, 300, 140_000), Some(Resource::Colors));
    assert_eq!(
        resource(100, 300, 110_000),
        Some(Resource::ColorsAndTraffic)
    );
}

/// Limits 5 % below the smallest that can be kept: impossible, and the proposal is that limit.
#[test]
fn limits_below_feasible_are_impossible_and_the_proposals_hold() {
    let mut compared = 0;
    for seed in 100.. {
        let full = measured(seed);
        let Ok(Answer::Optimal(_)) = solve(&full, Objective::Margin, View::Pessimistic) else {
            continue;
        };
        for vm in full.vms.iter().filter(|vm| vm.limit().is_some()) {
            // No program takes no time, so this names the smallest limit.
            let none = with_demand(&full, &vm.name, Demand::Deadline(Time(1)));
            let Answer::Impossible(reason) = solved(&none) else {
                panic!("{seed}: a deadline of 1 ns holds");
            };
            assert_eq!(reason.binding, vm.name);
            assert_eq!(reason.conflict, std::slice::from_ref(&vm.name));
            assert_eq!(reason.resource, Resource::Vm);
            let (name, Demand::Deadline(least)) = reason.proposals[0].demands[0].clone() else {
                panic!("{seed}: not a deadline");
            };
            let just = with_demand(&full, &name, Demand::Deadline(least));
            assert!(matches!(solved(&just), Answer::Optimal(_)));
            let tight = Demand::Deadline(Time(least.0 * 95 / 100));
            let tight = with_demand(&full, &name, tight);
            let Answer::Impossible(reason) = solved(&tight) else {
                panic!("{seed}: 5 % below the smallest limit holds");
            };
            assert!(reason.conflict.contains(&name));
            check_proposals(&tight, &reason);
            compared += 1;
        }
        if compared >= 20 {
            return;
        }
    }
}

/// Each proposal holds; the binding VM's is the smallest of those that change one limit, and none
/// of these can be a step smaller.
fn check_proposals(problem: &Problem, reason: &Impossible) {
    assert_eq!(reason.proposals[0].demands[0].0, reason.binding);
    for proposal in &reason.proposals {
        let mut relaxed = problem.clone();
        let mut less = problem.clone();
        for (name, demand) in &proposal.demands {
            relaxed = with_demand(&relaxed, name, *demand);
            let smaller = match *demand {
                Demand::Deadline(time) => Demand::Deadline(Time(time.0 - 1)),
                Demand::Tolerance(ratio) => Demand::Tolerance(Permille(ratio.0 - 1)),
                Demand::BestEffort => panic!("a proposal drops a demand"),
            };
            less = with_demand(&less, name, smaller);
        }
        assert!(matches!(solved(&relaxed), Answer::Optimal(_)));
        assert!(matches!(solved(&less), Answer::Impossible(_)));
        for (index, vm) in relaxed.vms.iter().enumerate() {
            let time = relaxed.bounds(index, &proposal.partition).upper;
            assert!(vm.limit().is_none_or(|limit| time.unwrap() <= limit));
        }
    }
}

#[test]
fn a_baseline_is_never_better_and_all_knobs_are_sometimes() {
    let (mut strictly, mut all_solved) = (0, 0);
    for seed in 200..230 {
        let full = measured(seed);
        let value = |baseline| match solve(
            &full.restricted(baseline),
            Objective::Throughput,
            View::Pessimistic,
        ) {
            Ok(Answer::Optimal(outcome)) => match outcome.value {
                Value::Throughput(sum) => Some(sum),
                value => panic!("{value:?}"),
            },
            _ => None,
        };
        let all = value(Baseline::All);
        all_solved += usize::from(all.is_some());
        let others: Vec<_> = Baseline::EVERY[1..].iter().map(|it| value(*it)).collect();
        assert!(
            others.iter().all(|other| *other <= all),
            "{seed} {all:?} {others:?}"
        );
        // Two knobs are never worse than one of them.
        assert!(
            others[1] <= others[0] && others[2] <= others[0],
            "{seed} {others:?}"
        );
        strictly += usize::from(others.iter().all(|other| *other < all));
    }
    println!("strictly better in {strictly} of {all_solved}");
    assert!(strictly > 0);
}

#[test]
fn the_front_has_no_dominated_point_and_its_points_hold() {
    let mut longest = 0;
    for seed in 300..308 {
        let full = measured(seed);
        let Ok(front) = pareto(&full, View::Pessimistic, Permille(1)) else {
            continue;
        };
        longest = longest.max(front.len());
        for pair in front.windows(2) {
            assert!(pair[1].tolerance < pair[0].tolerance);
            assert!(pair[1].throughput < pair[0].throughput);
        }
        let demand_all = |tolerance: Permille| {
            let mut problem = full.clone();
            for vm in &mut problem.vms {
                if matches!(vm.demand, Demand::Tolerance(_)) {
                    vm.demand = Demand::Tolerance(tolerance);
                }
            }
            solved(&problem)
        };
        for point in &front {
            let Answer::Optimal(outcome) = demand_all(point.tolerance) else {
                panic!("{seed}: a point of the front does not hold");
            };
            assert_eq!(outcome.value, Value::Throughput(point.throughput));
        }
        // Tighter than the tightest point, nothing holds.
        if let Some(last) = front.last().filter(|last| last.tolerance.0 > 1000) {
            let tighter = demand_all(Permille(last.tolerance.0 - 1));
            assert!(matches!(tighter, Answer::Impossible(_)));
        }
    }
    assert!(longest >= 3, "{longest}");
}

#[test]
fn an_explanation_tells_what_other_shares_would_do() {
    let mut kinds = BTreeSet::new();
    for seed in 400..412 {
        let full = measured(seed);
        let Ok(Answer::Optimal(best)) = solve(&full, Objective::Margin, View::Pessimistic) else {
            continue;
        };
        for (index, vm) in full.vms.iter().enumerate() {
            let explanation = explain(&full, Objective::Margin, View::Pessimistic, &best, index);
            let explanation = explanation.unwrap().unwrap();
            assert_eq!(explanation.share, best.partition.shares[index]);
            assert_eq!(explanation.limit, vm.limit());
            for what_if in explanation.changes {
                assert_ne!(what_if.choice, explanation.share.choice);
                match what_if.effect {
                    Effect::Holds { outcome, .. } => {
                        kinds.insert("holds");
                        assert_eq!(outcome.partition.shares[index].choice, what_if.choice);
                        // A budget between the possible ones may be better.
                        if what_if.change != Change::SmallerBudget
                            && let (Value::Margin(Some(now)), Value::Margin(Some(then))) =
                                (best.value, outcome.value)
                            && vm.tune.len() == 3
                        {
                            assert!(then <= now, "{seed} {index}");
                        }
                    }
                    Effect::Breaks(_) => {
                        kinds.insert("breaks");
                    }
                    Effect::DoesNotFit => {
                        kinds.insert("does not fit");
                    }
                }
            }
        }
        let none = explain(&full, Objective::Margin, View::Pessimistic, &best, 9);
        assert_eq!(none, Ok(None));
    }
    assert!(kinds.len() >= 2, "{kinds:?}");
}

#[test]
fn wrong_problems_are_named() {
    let good = case(1, SIZE).problem;
    let with = |change: &dyn Fn(&mut Problem)| {
        let mut problem = good.clone();
        change(&mut problem);
        problem.check().unwrap_err().to_string()
    };
    assert_eq!(good.check(), Ok(()));
    assert_eq!(with(&|it| it.vms.clear()), "the problem has no VMs");
    let twice = |it: &mut Problem| it.vms[1].name = it.vms[0].name.clone();
    assert_eq!(with(&twice), "two VMs are named `vm0`");
    let low = |it: &mut Problem| it.vms[0].demand = Demand::Tolerance(Permille(950));
    assert_eq!(with(&low), "VM `vm0`: tolerance 0.95 is below 1");
    let budget = Budget::PerPeriod(Traffic(0));
    let zero = |it: &mut Problem| it.vms[2].budgets.push(budget);
    assert_eq!(with(&zero), "VM `vm2`: a budget is 0");
    let large = |it: &mut Problem| it.vms[0].memory = Pages(501);
    assert_eq!(
        with(&large),
        "VM `vm0`: no placement of its 501 pages fits 5 colors and what is written down"
    );
    let many = |it: &mut Problem| it.vms = vec![it.vms[0].clone(); 9];
    assert_eq!(
        with(&many),
        "the problem has 9 VMs; at most 8 can be tuned together"
    );
}
