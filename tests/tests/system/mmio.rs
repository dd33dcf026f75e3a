//! Accesses to emulated devices that the syndrome does not describe, and guests that die without
//! output.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::End;
use cloison_formats::image::OnFault;
use cloison_formats::telemetry::Record;
use cloison_tests::{BOTH, Clock, Run, VIRT, config, load, number, run};
use miette::Result;

#[track_caller]
fn heart_is_unharmed(run: &Run) {
    let beats = run.system.vms[run.vm("heart").index()].args[2];
    let done = run.line("heart", "heartbeat: done");
    // Its beats may be late: an emulator that runs the cores in turn counts no instructions of a
    // guest that only faults.
    assert_eq!(
        (number(done, "beats"), number(done, "corrupt")),
        (beats, 0),
        "{done}"
    );
    assert_eq!(run.end_of("heart"), End::Off, "{run}");
}

/// Returns the hypervisor's lines that contain a text.
fn lines<'a>(run: &'a Run, text: &str) -> Vec<&'a str> {
    run.outcome
        .console
        .lines()
        .filter(|line| line.contains(text))
        .collect()
}

fn every_form_is_an_ordinary_access(board: &str, clock: Clock) -> Result<Run> {
    let run = run(&load(&config("mmio"), board)?, board, clock)?.whole();
    let compared = run.line("mmio", "mmio: compared=");
    // 31 forms on two devices, 9 of them again on the UART, and 5 on the services page, each in
    // three settings.
    assert_eq!(
        (number(compared, "compared"), number(compared, "wrong")),
        ((31 * 2 + 9 + 5) * 3, 0),
        "{run}"
    );
    let refused = run.line("mmio", "mmio: refused=");
    assert_eq!(
        (number(refused, "refused"), number(refused, "wrong")),
        (10_000 + 13 * 16, 0),
        "{run}"
    );
    let raced = run.line("mmio", "mmio: raced=");
    assert_eq!(
        (number(raced, "raced"), number(raced, "wrong")),
        (1_000, 0),
        "{run}"
    );
    assert!(number(raced, "done") > 0, "{raced}");
    run.line("mmio", "mmio: done");
    // Thousands of accesses were refused, for several reasons; the first one is reported.
    let reported = lines(&run, "takes an abort at");
    let [line] = reported[..] else {
        panic!("{reported:?}\n{run}")
    };
    assert!(line.contains("VM mmio takes an abort at 0x4"), "{line}");
    assert!(
        line.contains(
            ": write of device register 0x8000400, refused for its SimdRegisters (virtual"
        ),
        "{line}"
    );
    assert_eq!(run.end_of("mmio"), End::Off);
    Ok(run)
}

#[test]
fn every_form_of_an_access_is_an_ordinary_one() -> Result<()> {
    for board in BOTH {
        heart_is_unharmed(&every_form_is_an_ordinary_access(board, Clock::Counted)?);
    }
    Ok(())
}

#[test]
fn an_instruction_may_change_while_it_is_decoded() -> Result<()> {
    every_form_is_an_ordinary_access(VIRT, Clock::Real).map(|_| ())
}

#[test]
fn a_vm_is_killed_for_a_refused_form_by_its_name() -> Result<()> {
    let mut checked = load(&config("mmio"), VIRT)?;
    checked.system.vms[0].on_fault = OnFault::Kill;
    checked.system.vms[0].args[1] = 1;
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    let killed = lines(&run, "VM mmio killed at");
    let [line] = killed[..] else {
        panic!("{killed:?}\n{run}")
    };
    let expected = "write of device register 0x8000400, refused for its SimdRegisters (virtual \
                    address 0x8000400)";
    assert!(line.ends_with(expected), "{line}");
    assert_eq!(
        (
            lines(&run, "forbidden IPA").len(),
            lines(&run, "takes an abort").len()
        ),
        (0, 0),
        "{run}"
    );
    heart_is_unharmed(&run);
    Ok(())
}

/// Checks that a VM was reported once, on the console and in the telemetry, with this syndrome and
/// this address, and returns its program counter.
#[track_caller]
fn is_reported(run: &Run, name: &str, syndrome: u64, address: Option<u64>) -> u64 {
    let vm = run.vm(name);
    let stuck = |record| match record {
        Record::Stuck {
            vm: of,
            pc,
            esr,
            far,
        } if of == vm => Some((pc, esr, far)),
        _ => None,
    };
    let found: Vec<_> = run
        .telemetry
        .entries
        .iter()
        .filter_map(|entry| stuck(entry.record))
        .collect();
    let [(pc, esr, far)] = found[..] else {
        panic!("{name}: {found:x?}\n{run}")
    };
    assert_eq!(esr, syndrome, "{name}: {esr:#x}");
    assert!(
        address.is_none_or(|address| address == far),
        "{name}: {far:#x}"
    );
    let reported = lines(run, &format!("VM {name} makes no progress"));
    let [line] = reported[..] else {
        panic!("{reported:?}\n{run}")
    };
    let expected =
        format!("vCPU 0 faults at PC {pc:#x} (ESR {esr:#x}, FAR {far:#x}), with vectors at 0x");
    assert!(line.contains(&expected), "{line}");
    pc
}

#[test]
fn a_guest_that_dies_without_a_word_is_reported_once() -> Result<()> {
    for board in BOTH {
        let run = run(&load(&config("stuck"), board)?, board, Clock::Counted)?.whole();
        let ram = 0x4000_0000..0x4100_0000;
        assert!(
            ram.contains(&is_reported(&run, "store", 0x9600_0050, Some(0x6000_0000))),
            "{run}"
        );
        assert!(
            ram.contains(&is_reported(&run, "undefined", 0x0200_0000, None)),
            "{run}"
        );
        assert_eq!(is_reported(&run, "null", 0x8600_0010, Some(0)), 0, "{run}");
        heart_is_unharmed(&run);
    }
    Ok(())
}

#[test]
fn an_endless_fault_is_reported_once() -> Result<()> {
    let mut checked = load(&config("stuck"), VIRT)?;
    // Vectors that push onto a stack outside RAM.
    checked.system.vms[0].args[0] = 3;
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    let vector = is_reported(&run, "store", 0x9600_0050, None);
    assert_eq!(
        vector & 0x7ff,
        0x204,
        "{vector:#x}: the first store of the vector\n{run}"
    );
    heart_is_unharmed(&run);
    Ok(())
}
