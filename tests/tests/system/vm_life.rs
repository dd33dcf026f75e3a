//! The life of VMs: they start, restart alone, use all their cores, share one console, and end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::ids::{Core, VmId};
use cloison_formats::telemetry::{MigrationOutcome, VmState};
use cloison_formats::units::EventId;
use cloison_tests::{
    BOTH, Clock, LIMIT, Run, VIRT, VIRT_GICV3, ZCU102, config, image, load, machine, number, run,
    shipped,
};
use miette::Result;
use std::time::Duration;

/// Maximum time for a line of an idle system. It only detects a hang.
const PATIENCE: Duration = Duration::from_secs(200);
/// Number of resets in `restart.toml`.
const RESETS: u64 = 100;
/// Number of the event INST_RETIRED.
const INSTRUCTIONS: EventId = EventId(0x08);

fn a_vm_restarts_alone(board: &str) -> Result<()> {
    let run = run(&load(&config("restart"), board)?, board, Clock::Counted)?.whole();
    assert_eq!(
        number(run.line("restart", "restart: done"), "resets"),
        RESETS
    );
    let said: Vec<u64> = run
        .said("restart")
        .filter_map(|(_, text)| text.strip_prefix("restart ")?.parse().ok())
        .collect();
    assert_eq!(said, (1..=RESETS).collect::<Vec<_>>());
    // Each life starts with the first instruction of a fresh image, and is logged.
    let states = |name: &str, wanted: VmState| {
        let vm = run.vm(name);
        run.telemetry
            .vm_states()
            .filter(|&(_, of, state)| (of, state) == (vm, wanted))
            .count() as u64
    };
    assert_eq!(
        (
            states("restart", VmState::Started),
            states("restart", VmState::Restarted)
        ),
        (RESETS + 1, RESETS)
    );
    assert_eq!(
        (
            states("heart", VmState::Started),
            states("heart", VmState::Restarted)
        ),
        (1, 0)
    );
    // The neighbor beats during the restarts and afterwards, and is never late.
    let done = run.line("heart", "heartbeat: done");
    assert_eq!(
        (
            number(done, "beats"),
            number(done, "corrupt"),
            number(done, "late")
        ),
        (400, 0, 0),
        "{done}"
    );
    let first = run
        .said("restart")
        .find(|(_, text)| *text == "restart 1")
        .map(|(line, _)| line)
        .expect("seen above");
    let last = run.position("[restart] restart: done");
    let beats: Vec<usize> = run
        .said("heart")
        .filter(|(_, text)| text.ends_with(" ok"))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(beats.len(), 400);
    let during = beats
        .iter()
        .filter(|line| (first..last).contains(line))
        .count();
    assert!(
        during >= 5,
        "{during} beats while the neighbor restarted\n{run}"
    );
    Ok(())
}

#[test]
#[ignore = "on demand: VMs restart in the first test of `gicv3`"]
fn a_hundred_resets_of_one_vm_leave_its_neighbor_alone_on_virt_with_a_gicv3() -> Result<()> {
    a_vm_restarts_alone(VIRT_GICV3)
}

#[test]
fn a_vm_restarts_a_hundred_times_alone_on_virt() -> Result<()> {
    a_vm_restarts_alone(VIRT)
}

#[test]
fn a_vm_restarts_a_hundred_times_alone_on_zcu102() -> Result<()> {
    a_vm_restarts_alone(ZCU102)
}

#[test]
fn a_vm_turns_its_four_cores_on_and_off() -> Result<()> {
    for board in BOTH {
        for clock in [Clock::Counted, Clock::Real] {
            let run = run(&load(&config("smp"), board)?, board, clock)?.whole();
            run.line("smp", "smp: ok");
            for state in ["0 is on", "1 is on", "2 is on", "3 is on", "3 is on again"] {
                let times = run
                    .said("smp")
                    .filter(|(_, text)| *text == format!("smp: vCPU {state}"))
                    .count();
                assert_eq!(times, 1, "vCPU {state}: {run}");
            }
            assert_eq!(run.end_of("smp"), End::Off);
        }
    }
    Ok(())
}

/// Nothing of a former life is in registers or counters, and nothing is in memory if the
/// configuration says so.
#[test]
fn a_restart_leaves_nothing_of_the_former_life() -> Result<()> {
    for board in BOTH {
        for scrub in [false, true] {
            let mut checked = load(&config("remains"), board)?;
            assert!(checked.system.vms[0].scrub, "from the configuration");
            checked.system.vms[0].scrub = scrub;
            let run = run(&checked, board, Clock::Counted)?.whole();
            let line = run.line("remains", "remains: second=1");
            let left =
                ["registers", "counters", "filtered", "words"].map(|what| number(line, what));
            // Without `scrub`, memory outside the image is as it was left: the guest did fill it.
            assert_eq!(left, [0, 0, 0, if scrub { 0 } else { 8192 }], "{run}");
        }
    }
    Ok(())
}

/// Cores in parallel: a VM that restarts from either vCPU neither hangs nor meets its former life,
/// and one that is killed while its other vCPU restarts it stays dead.
fn lives_end_and_begin_whole(board: &str) -> Result<()> {
    for life in [5, 25, 60] {
        let mut checked = load(&config("lives"), board)?;
        checked.system.vms[1].args[1] = life;
        let run = run(&checked, board, Clock::Real)?.whole();
        let done = run.line("lives", "lives: done");
        assert_eq!(
            (number(done, "lives"), number(done, "refused")),
            (RESETS + 1, 0),
            "{run}"
        );
        let states = |name: &str, wanted: VmState| {
            let vm = run.vm(name);
            run.telemetry
                .vm_states()
                .filter(|&(_, of, state)| (of, state) == (vm, wanted))
                .count() as u64
        };
        // A vCPU 0 that is turned on by another vCPU does not start the VM.
        assert_eq!(
            (
                states("lives", VmState::Started),
                states("lives", VmState::Restarted)
            ),
            (RESETS + 1, RESETS)
        );
        // In each life from this one on the kill and the restart race; the first kill is the end.
        let kills = run
            .outcome
            .console
            .lines()
            .filter(|line| line.contains("VM killed killed at"))
            .count();
        assert_eq!((kills, states("killed", VmState::Killed)), (1, 1), "{run}");
        assert!(
            (life..=RESETS).contains(&states("killed", VmState::Started)),
            "{run}"
        );
        assert_eq!(
            (run.end_of("lives"), run.end_of("killed")),
            (End::Off, End::Killed),
            "{run}"
        );
    }
    Ok(())
}

#[test]
fn two_vcpus_restart_their_vm_a_hundred_times_on_virt() -> Result<()> {
    lives_end_and_begin_whole(VIRT)
}

#[test]
fn two_vcpus_restart_their_vm_a_hundred_times_on_zcu102() -> Result<()> {
    lives_end_and_begin_whole(ZCU102)
}

/// QEMU's board with eight cores.
const A72: &str = "virt-a72";

/// Restarts two VMs of two vCPUs each on cores that really run in parallel, one of them killed in
/// the end, beside a VM that checks its memory at every beat.
fn live_beside_a_heart(lives: u64, beats: u64, limit: Duration) -> Result<()> {
    let mut checked = load(&config("eight-cores/lives"), A72)?;
    let vms = &mut checked.system.vms;
    vms[0].args[0] = lives;
    vms[1].args[..2].copy_from_slice(&[lives, lives * 3 / 4]);
    vms[2].args[2] = beats;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    let image = image(&checked)?;
    image.write(&file)?;
    let outcome = machine(A72, &file, Clock::Real)?.limit(limit).run()?;
    let run = Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    }
    .whole();
    let done = run.line("lives", "lives: done");
    assert_eq!(
        (number(done, "lives"), number(done, "refused")),
        (lives + 1, 0),
        "{done}"
    );
    let heart = run.line("heart", "heartbeat: done");
    println!("{done}; {heart}");
    assert_eq!(
        (number(heart, "beats"), number(heart, "corrupt")),
        (beats, 0),
        "{heart}"
    );
    let ends = ["lives", "killed", "heart"].map(|name| run.end_of(name));
    assert_eq!(ends, [End::Off, End::Killed, End::Off]);
    Ok(())
}

#[test]
fn a_heart_beats_beside_a_hundred_restarts() -> Result<()> {
    live_beside_a_heart(100, 500, Duration::from_secs(300))
}

#[test]
#[ignore = "takes many minutes"]
fn a_heart_beats_beside_ten_thousand_restarts() -> Result<()> {
    live_beside_a_heart(10_000, 60_000, Duration::from_secs(3600))
}

/// Two managers list, stop, start and restart VMs at random, and reset themselves ten times
/// meanwhile; the VMs restart themselves and die all the time. What the managers see agrees with
/// what they ordered, and the VM that neither may touch does not notice.
#[test]
fn managed_vms_do_what_was_ordered_last_and_others_do_not_notice() -> Result<()> {
    orders(500, 9)
}

#[test]
#[ignore = "takes many minutes"]
fn ten_thousand_orders_from_two_managers_are_carried_out() -> Result<()> {
    orders(5000, 99)
}

/// Has each of two managers make `calls` calls, in one life more than it has `resets`.
fn orders(calls: u64, resets: u64) -> Result<()> {
    let mut checked = load(&config("eight-cores/manage"), A72)?;
    for manager in &mut checked.system.vms[..2] {
        manager.args[..2].copy_from_slice(&[calls, resets]);
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    let image = image(&checked)?;
    image.write(&file)?;
    let outcome = machine(A72, &file, Clock::Real)?
        .limit(Duration::from_secs(1200))
        .run()?;
    let run = Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    }
    .whole();
    for name in ["manager-1", "manager-2"] {
        let done = run.line(name, "manager: done");
        println!("{name}: {done}");
        let counts = ["calls", "lives", "wrong"].map(|what| number(done, what));
        assert_eq!(counts, [calls, resets + 1, 0], "{run}");
        assert!(
            number(done, "accepted") > calls / 4 && number(done, "denied") > calls / 40,
            "{done}"
        );
    }
    let states = |name: &str, wanted: VmState| {
        let vm = run.vm(name);
        run.telemetry
            .vm_states()
            .filter(|&(_, of, state)| (of, state) == (vm, wanted))
            .count() as u64
    };
    // Only the one that reads memory which it does not have is killed, and it is started again.
    assert_eq!(states("own-1", VmState::Killed), 0);
    assert!(
        states("own-2", VmState::Killed) > 1 && states("own-1", VmState::Stopped) > 1,
        "{run}"
    );
    for name in ["own-1", "own-2", "both"] {
        let ends = [VmState::Stopped, VmState::Killed]
            .map(|state| states(name, state))
            .iter()
            .sum::<u64>();
        // Each life ends once, with a restart or for good; some end before they have started.
        let (started, ended) = (
            states(name, VmState::Started),
            states(name, VmState::Restarted) + ends,
        );
        assert!(
            (10..=ended).contains(&started),
            "{name}: {started} and {ended}: {run}"
        );
    }
    let heart = run.line("heart", "heartbeat: done");
    assert_eq!(
        (number(heart, "beats"), number(heart, "corrupt")),
        (500, 0),
        "{heart}"
    );
    let others = [
        VmState::Started,
        VmState::Restarted,
        VmState::Stopped,
        VmState::Off,
    ]
    .map(|it| states("heart", it));
    assert_eq!(others, [1, 0, 0, 1]);
    assert_eq!(
        states("manager-1", VmState::Stopped) + states("manager-2", VmState::Stopped),
        0
    );
    Ok(())
}

/// A VM that is ordered about while the boot core still loads its neighbors obeys from its first
/// life on.
#[test]
fn orders_that_come_before_a_vms_first_life_are_carried_out() -> Result<()> {
    let run = run(&load(&config("eight-cores/early"), A72)?, A72, Clock::Real)?.whole();
    let done = run.line("manager", "manager: done");
    assert_eq!(
        (number(done, "calls"), number(done, "wrong")),
        (60, 0),
        "{run}"
    );
    let late = run.vm("late");
    let states: Vec<_> = run
        .telemetry
        .vm_states()
        .filter(|&(_, of, _)| of == late)
        .map(|(.., state)| state)
        .collect();
    assert_ne!(
        states.first(),
        Some(&VmState::Started),
        "no order came early: {states:?}"
    );
    assert_eq!(states.last(), Some(&VmState::Stopped), "{states:?}");
    Ok(())
}

/// Interrupts that never stop coming delay neither a vCPU that turns itself off nor, where nobody
/// turns off, the machine.
#[test]
fn a_besieged_vcpu_turns_off_and_so_does_the_machine() -> Result<()> {
    const TURNS: u64 = 300;
    let mut checked = load(&config("siege"), VIRT)?;
    let turns = run(&checked, VIRT, Clock::Real)?.whole();
    assert_eq!(number(turns.line("siege", "siege: done"), "turns"), TURNS);
    assert_eq!(
        ["siege", "heart"].map(|name| turns.end_of(name)),
        [End::Off, End::Off],
        "{turns}"
    );
    // Without end, until the neighbor ends the system.
    checked.system.vms[0].args[0] = 0;
    checked.system.ends_with = Some(VmId(1));
    let ended = run(&checked, VIRT, Clock::Real)?.whole();
    assert_eq!(
        ["siege", "heart"].map(|name| ended.end_of(name)),
        [End::Stopped, End::Off],
        "{ended}"
    );
    Ok(())
}

/// Types to two VMs, the first of which has this core, and the second the next one.
fn input_goes_where_it_is_sent(board: &str, first: u8) -> Result<()> {
    const SWITCH: &[u8] = b"\x14";
    let mut checked = load(&config("echo"), board)?;
    for (core, vm) in (first..).zip(&mut checked.system.vms) {
        vm.cores = vec![Core(core)];
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    image(&checked)?.write(&file)?;
    let mut session = machine(board, &file, Clock::Real)?.start()?;
    // They come in any order.
    for _ in 0..2 {
        session.expect("] echo: ready", PATIENCE)?;
    }
    let mut ask = |typed: &[u8], answer: &str| -> Result<()> {
        session.send(typed)?;
        let line = session.expect("]", PATIENCE)?;
        assert!(line.starts_with(answer), "{typed:?} gave {line:?}");
        Ok(())
    };
    ask(b"one\r", "[alpha] echo: one")?;
    ask(&[SWITCH, b"2"].concat(), "[console] input goes to beta")?;
    ask(b"two\r", "[beta] echo: two")?;
    ask(b"three\r", "[beta] echo: three")?;
    ask(&[SWITCH, b"?"].concat(), "[console] Ctrl-T, then:")?;
    ask(&[SWITCH, b"1"].concat(), "[console] input goes to alpha")?;
    ask(b"four\r", "[alpha] echo: four")?;
    ask(&[SWITCH, b"n"].concat(), "[console] input goes to beta")?;
    // Ctrl-T twice sends one to the guest, which has it in its line.
    ask(
        &[SWITCH, SWITCH, b"five\r"].concat(),
        "[beta] echo: \\x14five",
    )?;
    // The console may stop and start beta, but not alpha.
    session.send(&[SWITCH, b"r"].concat())?;
    session.expect("[beta] echo: ready", PATIENCE)?;
    session.send(&[SWITCH, b"x"].concat())?;
    session.expect("VM beta is stopped", PATIENCE)?;
    session.send(&[SWITCH, b"?"].concat())?;
    let list = session.expect("[console] Ctrl-T, then:", PATIENCE)?;
    assert!(
        list.contains(", 1 alpha (running), 2 beta (stopped)"),
        "{list}"
    );
    session.send(&[SWITCH, b"s"].concat())?;
    session.expect("[beta] echo: ready", PATIENCE)?;
    session.send(&[SWITCH, b"1", SWITCH, b"x"].concat())?;
    session.expect(
        "[console] Stop alpha: not granted: `console_manages` does not name the VM",
        PATIENCE,
    )?;
    // Lines of different writers come in any order: one is awaited before the next is asked for.
    session.send(b"\xe6\x9d\xb1\r")?;
    session.expect("[alpha] echo: \u{6771}", PATIENCE)?;
    session.send(&[SWITCH, b"2"].concat())?;
    session.send(b"quit\r")?;
    session.expect("[beta] echo: done lost=0", PATIENCE)?;
    session.expect("VM beta is off", PATIENCE)?;
    session.send(&[SWITCH, b"1", b"quit\r"].concat())?;
    session.expect("[alpha] echo: done lost=0", PATIENCE)?;
    let outcome = session.finish()?;
    assert!(
        outcome.exit.is_clean(),
        "{}: {}",
        outcome.exit,
        outcome.console
    );
    for answer in ["Restart", "Stop", "Start"] {
        assert!(
            outcome
                .console
                .contains(&format!("[console] {answer} beta\r\n")),
            "{}",
            outcome.console
        );
    }
    let telemetry = Telemetry::parse(&outcome.telemetry);
    assert_eq!(
        (telemetry.end_of(VmId(0)), telemetry.end_of(VmId(1))),
        (End::Off, End::Off)
    );
    Ok(())
}

#[test]
fn input_goes_to_the_vm_that_was_chosen_on_virt() -> Result<()> {
    input_goes_where_it_is_sent(VIRT, 0)
}

/// The boot core has no VM, and parks for good.
#[test]
fn input_reaches_vms_none_of_which_has_the_boot_core() -> Result<()> {
    input_goes_where_it_is_sent(VIRT, 2)
}

#[test]
fn input_goes_to_the_vm_that_was_chosen_on_zcu102() -> Result<()> {
    input_goes_where_it_is_sent(ZCU102, 0)
}

/// Returns the HEM records of a VM: one for each of its runs, with the configured events.
#[track_caller]
fn records_are_there(run: &Run, name: &str, workload: u32, runs: u32) {
    let vm = run.vm(name);
    let records: Vec<_> = run
        .telemetry
        .hem_runs()
        .filter(|record| record.record.vm == vm)
        .collect();
    let numbers: Vec<u32> = records.iter().map(|record| record.record.run).collect();
    assert_eq!(numbers, (0..runs).collect::<Vec<_>>(), "runs of {name}");
    for record in records {
        assert_eq!(record.record.workload, workload, "{name}");
        assert!(record.record.cycles.0 > 0, "{name}");
        let events: Vec<EventId> = record.counts().map(|(event, ..)| event).collect();
        assert_eq!(events, run.system.vms[vm.index()].hems, "{name}");
        assert!(
            record
                .counts()
                .all(|(_, count, overflowed)| count > 0 && !overflowed),
            "{record:?}"
        );
    }
}

#[test]
fn the_workloads_run_side_by_side_and_are_recorded() -> Result<()> {
    for board in BOTH {
        let run = run(&load(&config("workloads"), board)?, board, Clock::Counted)?.whole();
        for (name, workload) in [
            ("staircase", 2),
            ("c2is", 3),
            ("matrix-copy", 4),
            ("latency", 5),
        ] {
            records_are_there(&run, name, workload, 1);
            assert_eq!(run.end_of(name), End::Off);
            run.line(name, &format!("{name}: run=0 "));
        }
        for name in ["matrix-copy", "latency"] {
            assert!(
                run.line(name, &format!("{name}: run=0 ")).ends_with(" ok"),
                "{run}"
            );
        }
        assert_eq!(run.telemetry.dropped(), 0);
    }
    Ok(())
}

#[test]
fn a_known_number_of_instructions_is_counted_as_such() -> Result<()> {
    for board in BOTH {
        let mut checked = load(&config("workloads"), board)?;
        let position = checked
            .system
            .vms
            .iter()
            .position(|vm| vm.name == "matrix-copy")
            .expect("it is there");
        checked.system.vms = vec![checked.system.vms.swap_remove(position)];
        checked.images = vec![checked.images.swap_remove(position)];
        let (integers, runs) = (10_000, 3);
        checked.system.vms[0].args = [integers, u64::from(runs), 0, 0];
        let run = run(&checked, board, Clock::Counted)?.whole();
        records_are_there(&run, "matrix-copy", 4, runs);
        // docs/workloads.md: 21 per iteration and 11 around the loop, plus the few between the two
        // calls.
        let known = 21 * integers + 11;
        for record in run.telemetry.hem_runs() {
            let (_, count, _) = record
                .counts()
                .find(|&(event, ..)| event == INSTRUCTIONS)
                .expect("configured");
            assert!(
                (known..known + 64).contains(&u64::from(count)),
                "{count} instructions, {known} are known"
            );
        }
    }
    Ok(())
}

#[test]
fn strictly_colored_vms_run_to_their_end() -> Result<()> {
    for board in BOTH {
        let run = run(&load(&shipped("strict"), board)?, board, Clock::Counted)?.whole();
        records_are_there(&run, "latency", 5, 1);
        assert!(run.line("latency", "latency: run=0 ").ends_with(" ok"));
        assert_eq!(run.end_of("latency"), End::Off);
        for name in ["interf-1", "interf-2", "interf-3"] {
            assert_eq!(run.end_of(name), End::Stopped, "{run}");
        }
    }
    Ok(())
}

#[test]
fn a_running_vms_important_pages_go_to_its_private_pool() -> Result<()> {
    for board in BOTH {
        let run = run(&load(&shipped("pvt-sh"), board)?, board, Clock::Counted)?.whole();
        records_are_there(&run, "staircase", 2, 4);
        assert_eq!(run.end_of("staircase"), End::Off);
        let moved: Vec<_> = run.telemetry.migrations().collect();
        assert_eq!(moved.len(), 64);
        assert!(
            moved
                .iter()
                .all(|(_, record)| record.outcome == MigrationOutcome::Moved)
        );
        // The guest's sum over its pages is the same in every run, before and after.
        let sums: Vec<&str> = run
            .said("staircase")
            .filter_map(|(_, text)| text.split_once("sum=").map(|(_, sum)| sum))
            .collect();
        assert!(
            sums.len() == 4 && sums.iter().all(|sum| sum == &sums[0]),
            "{sums:?}"
        );
    }
    Ok(())
}

/// A system that hangs is stopped long before anybody loses patience.
#[test]
fn a_system_that_does_not_end_is_stopped_by_its_listener() -> Result<()> {
    let mut checked = load(&shipped("strict"), VIRT)?;
    checked.system.ends_with = None;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("Image");
    image(&checked)?.write(&file)?;
    assert!(LIMIT > PATIENCE);
    let mut session = machine(VIRT, &file, Clock::Real)?.limit(PATIENCE).start()?;
    session.expect("VM latency is off", PATIENCE)?;
    // The other three store endlessly: the machine is still on.
    let outcome = session.stop()?;
    assert!(
        !outcome.console.contains("turning the machine off"),
        "{}",
        outcome.console
    );
    Ok(())
}
