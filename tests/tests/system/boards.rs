//! Every board that QEMU emulates. These tests name no board, so that a new board needs only its
//! file.
//!
//! The other tests of the system run on `virt` and `zcu102`, and go further.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{audit, demo, migration, quota};
use cloison_engine::configuration;
use cloison_engine::telemetry::End;
use cloison_formats::ids::Core;
use cloison_formats::image::Vm;
use cloison_formats::limits::MAX_VMS;
use cloison_tests::{Clock, config, load, run, shipped};
use miette::{Context, Result};

/// Runs a test on each board, and names the board on which it fails.
fn on_every_board(test: impl Fn(&str) -> Result<()>) -> Result<()> {
    let boards = configuration::emulated_boards()?;
    assert!(boards.len() >= 2, "{boards:?}");
    for board in &boards {
        println!("{board}");
        test(board).wrap_err_with(|| format!("on board {board}"))?;
    }
    Ok(())
}

#[test]
fn every_page_is_in_its_pool_on_every_board() -> Result<()> {
    on_every_board(|board| {
        for name in ["demo", "strict", "pvt-sh"] {
            audit::every_page_of(&shipped(name), board)?;
        }
        Ok(())
    })
}

#[test]
fn the_demo_runs_on_every_board() -> Result<()> {
    on_every_board(demo::the_stock_demo)
}

#[test]
fn pages_migrate_unnoticed_on_every_board() -> Result<()> {
    on_every_board(|board| {
        let mut checked = load(&config("migrate"), board)?;
        let last = checked.system.board.cores.len() as u8 - 1;
        checked.system.vms[0].cores = [last, 1].map(Core).to_vec();
        checked.system.vms[0].args = [migration::PAGES, 10, 1000, 0];
        migration::back_and_forth(&checked, board, Clock::Counted, 10)
    })
}

#[test]
fn a_budget_is_kept_on_every_board() -> Result<()> {
    on_every_board(|board| {
        let checked = load(&config("quota"), board)?;
        let (interrupt, poll) = (
            checked.system.board.guest_pmu_irq(),
            checked.system.vms[0].quotas[0].poll.0,
        );
        let slack = if interrupt.is_some() {
            quota::INTERRUPT_SLACK
        } else {
            poll + quota::POLL_SLACK
        };
        let (run, periods, total) =
            quota::a_busy_guest(board, |checked| checked.system.vms[0].args[0] = 200)?;
        assert_eq!(total.by_interrupt, interrupt.is_some());
        assert!(
            periods
                .iter()
                .all(|period| period.events.0 <= period.budget.0 + slack),
            "{total:?}, slack {slack}"
        );
        assert!(total.totals.max_overshoot.0 <= slack, "{total:?}");
        quota::no_interrupt_was_lost(&run);
        Ok(())
    })
}

#[test]
fn every_core_of_every_board_runs_a_guest() -> Result<()> {
    on_every_board(|board| {
        let count = configuration::board(board)?.board.cores.len();
        // Alone in as many VMs as there can be, and all in one.
        for (clock, vcpus) in [
            (Clock::Counted, count.div_ceil(MAX_VMS)),
            (Clock::Counted, count),
            (Clock::Real, count),
        ] {
            let mut checked = load(&config("smp"), board)?;
            // The last cores first: the boot core is not the first core of its VM.
            let cores: Vec<Core> = (0..count as u8).rev().map(Core).collect();
            let (vm, image) = (checked.system.vms.remove(0), checked.images.remove(0));
            for (number, cores) in cores.chunks(vcpus).enumerate() {
                let (name, args) = (format!("smp-{number}"), [cores.len() as u64, 0, 0, 0]);
                checked.system.vms.push(Vm {
                    name,
                    cores: cores.to_vec(),
                    args,
                    ..vm.clone()
                });
                checked.images.push(image.clone());
            }
            let run = run(&checked, board, clock)?.whole();
            for vm in &checked.system.vms {
                run.line(&vm.name, "smp: ok");
                assert_eq!(
                    run.said(&vm.name)
                        .filter(|(_, line)| line.ends_with(" is on"))
                        .count(),
                    vm.cores.len()
                );
                assert_eq!(run.end_of(&vm.name), End::Off);
            }
        }
        Ok(())
    })
}
