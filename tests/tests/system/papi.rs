//! PAPI in a guest of several vCPUs: they do not disturb each other, and thresholds interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::End;
use cloison_formats::ids::Intid;
use cloison_tests::{Clock, VIRT, ZCU102, config, load, number, run};
use miette::Result;

/// What `PAPI_library_init` returns.
const VERSION: &str = "initialized=0x7030000";

fn all_vcpus_count(board: &str) -> Result<()> {
    let mut checked = load(&config("epapi-check"), board)?;
    let irq = checked.board.board.guest_pmu_irq().unwrap_or_default();
    checked.system.vms[0].args = [4, 40, u64::from(irq.0), 0];
    // Under -icount, QEMU's counters of instructions count those of all cores.
    let run = run(&checked, board, Clock::Modelled)?.whole();
    let line = run.line("papi", "epapi-check: vcpus=");
    assert!(
        line.contains(VERSION) && number(line, "wrong") == 0,
        "{line}"
    );
    if irq != Intid(0) {
        let line = run.line("papi", "epapi-check: armed=");
        let handled = number(line, "handled");
        assert_eq!(
            (
                number(line, "armed"),
                number(line, "started"),
                number(line, "stopped")
            ),
            (0, 0, 0),
            "{line}"
        );
        // A handler after each 20,000 instructions, which are counted exactly all the same.
        assert!((10..12).contains(&handled), "{line}");
        let counted = number(line, "counted");
        assert!(
            counted >= handled * 20_000 && counted < (handled + 1) * 20_000 + 4_000,
            "{line}"
        );
    }
    assert_eq!(run.end_of("papi"), End::Off);
    Ok(())
}

#[test]
fn vcpus_count_with_papi_at_once_on_virt() -> Result<()> {
    all_vcpus_count(VIRT)
}

#[test]
fn vcpus_count_with_papi_at_once_on_zcu102() -> Result<()> {
    all_vcpus_count(ZCU102)
}
