//! Devices that are passed through: their registers and interrupts reach their VM and no other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::live;
use cloison_config::Checked;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::ids::VcpuIndex;
use cloison_formats::image::{Backing, Counted, Quota, Region, System, WhenSpent, WorkCost};
use cloison_formats::telemetry::{LoggedPeriod, VmState};
use cloison_formats::units::{EventId, Events, Nanos};
use cloison_tests::{BOTH, Clock, Run, VIRT, ZCU102, config, image, load, machine, number, run};
use miette::{Result, miette};

/// The page of the virtual CPU interface that every VM has in addition to its regions.
const GICV_PAGES: u64 = 1;
/// Number of the event CPU_CYCLES.
const CYCLES: EventId = EventId(0x11);
/// Identification of the devices: QEMU's PL031, and the control register of a triple timer counter
/// after reset.
const IDS: [(&str, &str); 2] = [(VIRT, "id=0x00141031"), (ZCU102, "id=0x00000021")];

/// Loads the system with this board's device.
fn passthrough(board: &str) -> Result<Checked> {
    load(&config(&format!("passthrough/{board}")), board)
}

/// Boots with the board's clock in guest time, so that a second of the PL031 is a second for its
/// VM.
fn boot(checked: &Checked, board: &str, clock: Clock) -> Result<Run> {
    let image = image(checked)?;
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let outcome = machine(board, &file, clock)?
        .args(["-rtc", "clock=vm"])
        .run()?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    })
}

/// Checks that every interrupt for which the device was armed arrived once, and only while it was
/// due.
#[track_caller]
fn none_was_lost(run: &Run, board: &str) {
    let line = run.line("rtc", "rtc: interrupts=");
    let (_, id) = IDS[IDS
        .iter()
        .position(|&(of, _)| of == board)
        .expect("both boards are there")];
    assert!(line.contains(id), "{line}");
    let wanted = run.system.vms[run.vm("rtc").index()].args[1];
    assert_eq!(
        (number(line, "interrupts"), number(line, "expected")),
        (wanted, wanted),
        "{line}\n{run}"
    );
    for none in ["early", "spurious", "foreign", "corrupt", "hidden"] {
        assert_eq!(number(line, none), 0, "{line}");
    }
    assert_eq!(run.end_of("rtc"), End::Off, "{run}");
}

/// Checks that the VM that tried to reach the device failed, and tried throughout the run.
#[track_caller]
fn nobody_else_reached_it(run: &Run) {
    let line = run.line("intruder", "rtc: intruder ");
    let rounds = run.system.vms[run.vm("intruder").index()].args[1];
    // Four addresses by six kinds of access, and two interrupts by eight registers.
    assert_eq!(number(line, "attempts"), rounds * (4 * 6 + 2 * 8), "{line}");
    assert_eq!(number(line, "refused"), number(line, "attempts"), "{line}");
    assert_eq!(
        (number(line, "leaked"), number(line, "foreign")),
        (0, 0),
        "{line}"
    );
    let during = run.position("rtc: intruding")..run.position("rtc: intruder ");
    assert!(
        during.contains(&run.position("rtc: interrupts=")),
        "the device was quiet meanwhile\n{run}"
    );
    assert!(
        !run.telemetry
            .vm_states()
            .any(|(.., state)| state == VmState::Killed),
        "{run}"
    );
    assert_eq!(run.end_of("intruder"), End::Off, "{run}");
}

fn a_device_interrupts_its_vm_alone(board: &str) -> Result<()> {
    let run = boot(&passthrough(board)?, board, Clock::Counted)?.whole();
    none_was_lost(&run, board);
    nobody_else_reached_it(&run);
    let done = run.line("heart", "heartbeat: done");
    let beats = run.system.vms[run.vm("heart").index()].args[2];
    assert_eq!(
        (
            number(done, "beats"),
            number(done, "corrupt"),
            number(done, "late")
        ),
        (beats, 0, 0),
        "{done}"
    );
    let during = run.position("rtc: driving")..run.position("rtc: interrupts=");
    let meanwhile = run
        .said("heart")
        .filter(|(line, text)| during.contains(line) && text.ends_with(" ok"))
        .count();
    assert!(
        meanwhile as u64 > beats / 4,
        "{meanwhile} of {beats} beats\n{run}"
    );
    assert_eq!(run.end_of("heart"), End::Off, "{run}");
    Ok(())
}

#[test]
fn a_clock_interrupts_its_vm_and_no_other_on_virt() -> Result<()> {
    a_device_interrupts_its_vm_alone(VIRT)
}

#[test]
fn a_timer_interrupts_its_vm_and_no_other_on_zcu102() -> Result<()> {
    a_device_interrupts_its_vm_alone(ZCU102)
}

#[test]
fn a_device_loses_no_interrupt_while_all_cores_really_run() -> Result<()> {
    for (board, interrupts, rounds) in [(VIRT, 3, 50), (ZCU102, 500, 400)] {
        let mut checked = passthrough(board)?;
        checked.system.vms[0].args[1] = interrupts;
        checked.system.vms[1].args[2] = 100;
        checked.system.vms[2].args[1] = rounds;
        let run = boot(&checked, board, Clock::Real)?.whole();
        none_was_lost(&run, board);
        let line = run.line("intruder", "rtc: intruder ");
        assert_eq!(
            (number(line, "leaked"), number(line, "foreign")),
            (0, 0),
            "{line}"
        );
        // In real time a beat may be late.
        assert_eq!(number(run.line("heart", "heartbeat: done"), "corrupt"), 0);
    }
    Ok(())
}

#[test]
fn a_vm_without_the_interrupt_waits_for_it_in_vain() -> Result<()> {
    for board in BOTH {
        let mut checked = passthrough(board)?;
        checked.system.vms[0].irqs.clear();
        let run = boot(&checked, board, Clock::Counted)?.whole();
        run.line("rtc", "rtc: interrupt 1 did not come");
        assert_eq!(
            number(run.line("rtc", "rtc: interrupts="), "interrupts"),
            0,
            "{run}"
        );
        // An interrupt that nobody owns reaches nobody.
        for vm in ["rtc", "intruder"] {
            let line = run
                .said(vm)
                .map(|(_, text)| text)
                .filter(|text| text.contains(" foreign="))
                .last();
            assert_eq!(number(line.expect("a last line"), "foreign"), 0, "{run}");
        }
    }
    Ok(())
}

#[test]
fn the_intruder_would_notice_what_it_gets() -> Result<()> {
    for board in BOTH {
        let mut checked = passthrough(board)?;
        let [owner, _, intruder] = &mut checked.system.vms[..] else {
            panic!("three VMs")
        };
        intruder.regions.push(owner.regions.remove(1));
        intruder.irqs = std::mem::take(&mut owner.irqs);
        // Its stores may make the device interrupt endlessly.
        (intruder.args[1], intruder.args[2]) = (1, 1000);
        checked.system.vms.swap_remove(0);
        checked.images.swap_remove(0);
        let run = boot(&checked, board, Clock::Counted)?.whole();
        assert!(
            number(run.line("intruder", "rtc: intruder "), "leaked") >= 6,
            "{run}"
        );
    }
    Ok(())
}

/// A VM whose core is held most of the time; cycles also pass while it sleeps.
fn a_budget_of_cycles(board: &str, interrupts: u64, slack: u64) -> Result<()> {
    let mut checked = passthrough(board)?;
    // Alone on the machine, because QEMU counts the time of all running cores.
    checked.system.vms.truncate(1);
    checked.images.truncate(1);
    let vm = &mut checked.system.vms[0];
    vm.args[1] = interrupts;
    let (budget, period, poll) = (Events(200_000), Nanos(1_000_000), Nanos(20_000));
    vm.quotas.push(Quota {
        vcpu: VcpuIndex(0),
        counted: Counted {
            event: CYCLES,
            weight: 1,
            allowed: true,
        },
        also: None,
        budget,
        ceiling: budget,
        period,
        poll,
        backstop: false,
        trace: true,
        exact: true,
        work_cost: WorkCost::default(),
        when_spent: WhenSpent::Throttle,
        reclaim: None,
    });
    let run = boot(&checked, board, Clock::Counted)?.whole();
    none_was_lost(&run, board);
    assert_eq!(run.telemetry.dropped(), 0, "{run}");
    let periods: Vec<LoggedPeriod> = run
        .telemetry
        .quota_periods()
        .map(|(_, record)| record.period)
        .collect();
    let held = periods
        .iter()
        .filter(|period| period.throttled.0 > 0)
        .count();
    assert!(
        periods.len() > 100 && held * 10 > periods.len() * 9,
        "{held} of {} periods",
        periods.len()
    );
    for period in &periods {
        assert!(period.events.0 <= budget.0 + slack, "{period:?}");
    }
    let (_, total) = run.telemetry.quota_totals().next().expect("a total");
    assert_eq!(total.by_interrupt, board == VIRT);
    assert!(
        total.throttled.0 > periods.len() as u64 * period.0 / 2,
        "{total:?}"
    );
    Ok(())
}

#[test]
fn a_core_held_for_its_cycles_loses_no_interrupt_of_its_device_on_virt() -> Result<()> {
    a_budget_of_cycles(VIRT, 2, 8)
}

#[test]
fn a_core_held_for_its_cycles_loses_no_interrupt_of_its_device_on_zcu102() -> Result<()> {
    // A poll interval of 20 us at 1 GHz, plus the entry into the hypervisor.
    a_budget_of_cycles(ZCU102, 50, 20_000 + 200)
}

/// Returns the frames that back a region, as the hypervisor read them back.
fn frames(system: &System, telemetry: &Telemetry, vm: &str, region: &str) -> Vec<PhysAddr> {
    let id = system
        .vms
        .iter()
        .position(|other| other.name == vm)
        .expect("a VM of the configuration");
    let found = system.vms[id]
        .regions
        .iter()
        .find(|other| other.name == region)
        .expect("a region of the VM");
    let runs = telemetry.passes[0]
        .stage2
        .iter()
        .filter(|run| run.vm.index() == id);
    let mut pages: Vec<(Ipa, PhysAddr)> = runs
        .flat_map(|run| {
            (0..)
                .zip(&run.frames)
                .map(|(n, &frame)| (run.ipa.page(n), PhysAddr(0).page(frame.into())))
        })
        .filter(|(ipa, _)| found.contains(*ipa))
        .collect();
    pages.sort_unstable_by_key(|(ipa, _)| ipa.0);
    assert_eq!(pages.len(), found.pages as usize, "{vm}.{region}");
    pages.into_iter().map(|(_, frame)| frame).collect()
}

/// Checks that frames are one contiguous piece of RAM.
#[track_caller]
fn is_one_piece_of_ram(system: &System, frames: &[PhysAddr]) {
    assert!(
        frames
            .windows(2)
            .all(|pair| pair[1].0 == pair[0].0 + PAGE_SIZE),
        "{frames:?}"
    );
    for &frame in frames {
        assert!(
            system.board.ram.iter().any(|ram| ram.contains(frame)),
            "{frame} is not RAM"
        );
        assert!(
            !system
                .board
                .reserved
                .iter()
                .any(|reserved| reserved.contains(frame)),
            "{frame} is reserved"
        );
    }
}

fn every_page_of_a_device_and_of_contiguous_memory(board: &str) -> Result<()> {
    let mut checked = passthrough(board)?;
    checked.system.audit = true;
    let run = run(&checked, board, Clock::Counted)?;
    assert!(run.outcome.exit.is_clean(), "{run}");
    let (system, telemetry) = (&run.system, &run.telemetry);
    let audit = live::judge(system, telemetry);
    audit.verdict()?;
    let pages = |region: &Region| u64::from(region.pages);
    let configured: u64 = system
        .vms
        .iter()
        .flat_map(|vm| &vm.regions)
        .map(pages)
        .sum();
    assert_eq!(
        audit.checked,
        configured + GICV_PAGES * system.vms.len() as u64
    );
    assert_eq!(
        (audit.outside, audit.missing, audit.unexpected, audit.shared),
        (0, 0, 0, 0)
    );

    // The same again, without using any of the checker's code.
    let device = &system.vms[0].regions[1];
    let Backing::Device(registers) = device.backing else {
        panic!("{device:?}")
    };
    assert_eq!(frames(system, telemetry, "rtc", "device"), [registers]);
    let (long, short) = (
        frames(system, telemetry, "rtc", "dma"),
        frames(system, telemetry, "heart", "dma"),
    );
    assert_eq!((long.len(), short.len()), (256, 5));
    is_one_piece_of_ram(system, &long);
    is_one_piece_of_ram(system, &short);
    assert!(
        short.iter().all(|frame| !long.contains(frame)),
        "{short:?} lies in {:?}",
        long[0]
    );

    // The checker would have reported a device at a wrong address, and memory in pieces.
    let mut other = system.clone();
    other.vms[0].regions[1].backing = Backing::Device(registers.page(1));
    assert_eq!(
        live::judge(&other, telemetry).outside,
        3,
        "once in each pass"
    );
    let mut scattered = telemetry.clone();
    let id = run.vm("heart");
    let found = scattered.passes[0]
        .stage2
        .iter_mut()
        .find(|run| run.vm == id && run.ipa == Ipa(0x6000_0000));
    found.expect("the region's own run").frames.swap(1, 3);
    assert_eq!(live::judge(system, &scattered).outside, 2);
    Ok(())
}

#[test]
fn device_pages_and_contiguous_memory_are_where_they_should_be_on_virt() -> Result<()> {
    every_page_of_a_device_and_of_contiguous_memory(VIRT)
}

#[test]
fn device_pages_and_contiguous_memory_are_where_they_should_be_on_zcu102() -> Result<()> {
    every_page_of_a_device_and_of_contiguous_memory(ZCU102)
}
