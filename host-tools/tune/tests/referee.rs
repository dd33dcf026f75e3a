//! Small problems, answered by the solver, by enumeration of all partitions, and by a MILP solver.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod synthetic;

use cloison_tune::*;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Variable};

use std::cmp::Reverse;
use synthetic::{Size, UNPARTITIONED, case};

/// What a VM can get, by the rules of the documentation, written without the solver's code.
fn choices(problem: &Problem, vm: &Vm) -> Vec<Choice> {
    let tunes = |knob| vm.tune.contains(&knob);
    let mut placements = vec![Placement::SHARED];
    if tunes(Knob::Colors) {
        placements.extend((1..=problem.colors.0).map(|colors| Placement::Own {
            colors: Colors(colors),
        }));
    }
    if tunes(Knob::Pages) {
        placements.extend(vm.pages.iter().map(|step| Placement::Shared {
            private: step.pages,
        }));
    }
    let mut budgets = vec![Budget::Unlimited];
    if tunes(Knob::Budgets) {
        budgets.extend(&vm.budgets);
    }
    placements
        .iter()
        .flat_map(|&placement| {
            let choice = move |&budget| Choice { placement, budget };
            budgets.iter().map(choice).collect::<Vec<_>>()
        })
        .collect()
}

fn private(vm: &Vm, choice: Choice) -> u32 {
    match choice.placement {
        Placement::Own { colors } => colors.0,
        Placement::Shared { private } => vm
            .pages
            .iter()
            .find(|step| step.pages == private)
            .map_or(0, |step| step.colors.0),
    }
}

fn allowance(problem: &Problem, vm: &Vm, choice: Choice) -> u64 {
    u64::from(vm.vcpus)
        * match choice.budget {
            Budget::PerPeriod(budget) => budget.0.min(problem.flood.0),
            Budget::Unlimited => problem.flood.0,
        }
}

/// What one VM adds to the objective, to be maximized; `None` if it breaks its limit.
fn worth(vm: &Vm, choice: Choice, time: Option<Time>, objective: Objective) -> Option<i64> {
    let limit = vm.limit();
    if limit.is_some_and(|limit| time.is_none_or(|time| time > limit)) {
        return None;
    }
    Some(match (objective, limit) {
        (Objective::Throughput, None) => time.map_or(0, |time| {
            i64::try_from(vm.surface.alone().time.0 * 1_000_000 / time.0).unwrap()
        }),
        (Objective::Throughput, Some(_)) => 0,
        (Objective::Colors, _) => -i64::from(private(vm, choice)),
        (Objective::Margin, None) => i64::MAX,
        (Objective::Margin, Some(limit)) => {
            i64::try_from((limit.0 - time?.0) * 1_000_000 / limit.0).unwrap()
        }
    })
}

type Best = Option<(i64, Reverse<u64>, Reverse<Vec<Choice>>, u32)>;

/// Returns the best partition of a set of choices, if it is one.
fn value(
    (problem, hulls): (&Problem, &[Hull<'_>]),
    chosen: &[Choice],
    objective: Objective,
    view: View,
) -> Best {
    let vms = &problem.vms;
    let taken: u32 = vms
        .iter()
        .zip(chosen)
        .map(|(vm, it)| private(vm, *it))
        .sum();
    let sharing = chosen.iter().any(|it| it.placement.is_shared());
    let left = problem.colors.0.checked_sub(taken)?;
    let shared = match problem.shared {
        Some(Colors(shared)) if shared > left => return None,
        Some(Colors(shared)) => shared,
        None if sharing => left,
        None => 0,
    };
    let memory: u64 = vms
        .iter()
        .zip(chosen)
        .filter(|(_, it)| it.placement.is_shared())
        .map(|(vm, _)| vm.memory.0)
        .sum();
    if sharing && (shared == 0 || u64::from(shared) * problem.color_pages.0 < memory) {
        return None;
    }
    let all: u64 = vms
        .iter()
        .zip(chosen)
        .map(|(vm, it)| allowance(problem, vm, *it))
        .sum();
    let mut sum = 0;
    let mut smallest = i64::MAX;
    let mut changes = 0;
    for ((vm, hull), &choice) in vms.iter().zip(hulls).zip(chosen) {
        if let Placement::Own { colors } = choice.placement
            && u64::from(colors.0) * problem.color_pages.0 < vm.memory.0
        {
            return None;
        }
        let point = Point {
            placement: choice.placement,
            shared: Colors(if choice.placement.is_shared() {
                shared
            } else {
                0
            }),
            traffic: Traffic(all - allowance(problem, vm, choice)),
            budget: choice.budget,
        };
        let worth = worth(vm, choice, hull.bounds(&point).by(view), objective)?;
        if objective != Objective::Margin {
            sum += worth;
        }
        smallest = smallest.min(worth);
        changes += u64::from(choice.placement != vm.written.placement)
            + u64::from(choice.budget != vm.written.budget);
    }
    let primary = match objective {
        Objective::Margin => smallest,
        _ => sum,
    };
    Some((primary, Reverse(changes), Reverse(chosen.to_vec()), shared))
}

/// Tries all partitions.
fn enumerate(problem: &Problem, objective: Objective, view: View) -> Best {
    let menus: Vec<_> = problem.vms.iter().map(|vm| choices(problem, vm)).collect();
    let hulls: Vec<_> = problem.vms.iter().map(|vm| vm.surface.hull()).collect();
    let mut digits = vec![0; menus.len()];
    let mut best = None;
    loop {
        let chosen: Vec<_> = digits
            .iter()
            .zip(&menus)
            .map(|(&at, menu)| menu[at])
            .collect();
        best = best.max(value((problem, &hulls), &chosen, objective, view));
        let Some(next) = (0..digits.len())
            .rev()
            .find(|&it| digits[it] + 1 < menus[it].len())
        else {
            return best;
        };
        digits[next] += 1;
        digits[next + 1..].fill(0);
    }
}

fn of_answer(answer: &Answer) -> Best {
    let Answer::Optimal(outcome) = answer else {
        return None;
    };
    let primary = match outcome.value {
        Value::Throughput(sum) => i64::try_from(sum).unwrap(),
        Value::Colors(colors) => -i64::from(colors.0),
        Value::Margin(margin) => margin.unwrap_or(i64::MAX),
    };
    let shares = &outcome.partition.shares;
    let choices = shares.iter().map(|share| share.choice).collect();
    let changes = Reverse(outcome.changes);
    Some((
        primary,
        changes,
        Reverse(choices),
        outcome.partition.shared.0,
    ))
}

const OBJECTIVES: [Objective; 3] = [Objective::Throughput, Objective::Colors, Objective::Margin];

fn sizes(seed: u64) -> Size {
    Size {
        vms: 2 + (seed % 2) as usize,
        colors: 4 + (seed % 3) as u32,
        steps: 1 + seed % 2,
        budgets: 1 + seed % 3,
        points: 12 + 8 * (seed % 4) as usize,
    }
}

/// Equal choices too: all ties are broken as documented.
#[test]
fn the_solver_finds_what_enumeration_finds() {
    let (mut possible, mut impossible) = (0, 0);
    for seed in 0..120 {
        let problem = case(seed, sizes(seed)).problem;
        for objective in OBJECTIVES {
            for view in [View::Pessimistic, View::Optimistic] {
                let answer = match solve(&problem, objective, view) {
                    Ok(answer) => of_answer(&answer),
                    Err(ProblemError::NoPlacement { .. }) => None,
                    Err(error) => panic!("{seed}: {error}"),
                };
                let expected = enumerate(&problem, objective, view);
                assert_eq!(answer, expected, "{seed} {objective:?} {view:?}");
                if expected.is_some() {
                    possible += 1;
                } else {
                    impossible += 1;
                }
            }
        }
    }
    assert!(
        possible >= 200 && impossible >= 50,
        "{possible} {impossible}"
    );
}

/// One binary variable: a choice of a VM, with neighbors whose traffic is at most `traffic`.
struct Column {
    variable: Variable,
    vm: usize,
    choice: Choice,
    traffic: u64,
    worth: i64,
}

/// The problem as a mixed-integer linear program, for one size of the shared pool.
///
/// An upper bound of a time changes only at measured traffic. So each choice has a variable for
/// each measured traffic, which is allowed only if the neighbors' budgets amount to no more.
fn program(problem: &Problem, objective: Objective, shared: u32) -> Option<i64> {
    let mut milp = microlp::Problem::new(OptimizationDirection::Maximize);
    let floor = (objective == Objective::Margin).then(|| milp.add_var(1.0, (0.0, 100.0)));
    let mut columns = vec![];
    for (index, vm) in problem.vms.iter().enumerate() {
        let hull = vm.surface.hull();
        let points = vm.surface.points().iter();
        let mut levels: Vec<_> = points.map(|known| known.point.traffic.0).collect();
        levels.push(1_000_000);
        levels.sort_unstable();
        levels.dedup();
        for choice in choices(problem, vm) {
            let sharing = choice.placement.is_shared();
            if let Placement::Own { colors } = choice.placement
                && u64::from(colors.0) * problem.color_pages.0 < vm.memory.0
            {
                continue;
            }
            for &traffic in &levels {
                let point = Point {
                    placement: choice.placement,
                    shared: Colors(if sharing { shared } else { 0 }),
                    traffic: Traffic(traffic),
                    budget: choice.budget,
                };
                let time = hull.bounds(&point).upper;
                let Some(worth) = worth(vm, choice, time, objective) else {
                    continue;
                };
                let part = match objective {
                    Objective::Margin => 0.0,
                    _ => worth as f64 / 1e4,
                };
                columns.push(Column {
                    variable: milp.add_binary_var(part),
                    vm: index,
                    choice,
                    traffic,
                    worth,
                });
            }
        }
    }
    constrain(problem, shared, &mut milp, &columns);
    if let Some(floor) = floor {
        for (index, _) in problem
            .vms
            .iter()
            .enumerate()
            .filter(|(_, vm)| vm.limit().is_some())
        {
            let mut row = LinearExpr::empty();
            row.add(floor, -1.0);
            for column in columns.iter().filter(|it| it.vm == index) {
                row.add(column.variable, column.worth as f64 / 1e4);
            }
            milp.add_constraint(row, ComparisonOp::Ge, 0.0);
        }
    }
    let solution = match milp.solve() {
        Ok(outcome) => outcome.into_solution().ok()?,
        Err(microlp::Error::Infeasible) => return None,
        Err(error) => panic!("{error}"),
    };
    let chosen = columns
        .iter()
        .filter(|it| solution.var_value(it.variable) > 0.5);
    Some(match objective {
        Objective::Margin => chosen.map(|it| it.worth).min().unwrap(),
        _ => chosen.map(|it| it.worth).sum(),
    })
}

/// Adds what holds for all objectives: a choice per VM, colors, memory and traffic.
fn constrain(problem: &Problem, shared: u32, milp: &mut microlp::Problem, columns: &[Column]) {
    let sum = |part: &dyn Fn(&Column) -> f64| {
        let mut row = LinearExpr::empty();
        for column in columns {
            let part = part(column);
            if part != 0.0 {
                row.add(column.variable, part);
            }
        }
        row
    };
    let colors = sum(&|it| f64::from(private(&problem.vms[it.vm], it.choice)));
    let left = f64::from(problem.colors.0) - f64::from(shared);
    let usage = match problem.shared {
        None if shared > 0 => ComparisonOp::Eq,
        _ => ComparisonOp::Le,
    };
    milp.add_constraint(colors, usage, left);
    let memory = sum(&|it| {
        let shares = it.choice.placement.is_shared();
        if shares {
            problem.vms[it.vm].memory.0 as f64
        } else {
            0.0
        }
    });
    let holds = f64::from(shared) * problem.color_pages.0 as f64;
    milp.add_constraint(memory, ComparisonOp::Le, holds);
    let most: u64 = problem
        .vms
        .iter()
        .map(|vm| allowance(problem, vm, UNPARTITIONED))
        .sum();
    for (index, _) in problem.vms.iter().enumerate() {
        let one = sum(&|it| f64::from(u8::from(it.vm == index)));
        milp.add_constraint(one, ComparisonOp::Eq, 1.0);
        // Neighbors' sum + slack of the chosen variable: at most `most`.
        let traffic = sum(&|it| {
            if it.vm == index {
                most.saturating_sub(it.traffic) as f64
            } else {
                allowance(problem, &problem.vms[it.vm], it.choice) as f64
            }
        });
        milp.add_constraint(traffic, ComparisonOp::Le, most as f64);
    }
}

#[test]
fn the_solver_finds_what_a_mixed_integer_program_finds() {
    let mut compared = 0;
    for seed in 1000..1080 {
        let size = Size {
            vms: 2 + usize::from(seed % 8 == 0),
            colors: 4,
            points: 24,
            budgets: 1 + seed % 2,
            ..sizes(seed)
        };
        let problem = case(seed, size).problem;
        let limited = problem.vms.iter().any(|vm| vm.limit().is_some());
        for objective in OBJECTIVES {
            if objective == Objective::Margin && !limited {
                continue;
            }
            let answer = match solve(&problem, objective, View::Pessimistic) {
                Ok(answer) => of_answer(&answer),
                Err(ProblemError::NoPlacement { .. }) => None,
                Err(error) => panic!("{seed}: {error}"),
            };
            let sizes = match problem.shared {
                Some(shared) => shared.0..=shared.0,
                None => 0..=problem.colors.0,
            };
            let best = sizes
                .filter_map(|shared| program(&problem, objective, shared))
                .max();
            assert_eq!(answer.map(|best| best.0), best, "{seed} {objective:?}");
            compared += usize::from(best.is_some());
        }
    }
    assert!(compared >= 50, "{compared}");
}
