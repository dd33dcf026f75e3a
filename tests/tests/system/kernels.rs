//! Benchmarks compute the same results in a guest and on the host.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_benchmarks::{Disparity, Kernel, Matmul, Segmentation, Size};
use cloison_engine::telemetry::End;
use cloison_tests::{Clock, Run, VIRT, ZCU102, config, load, number, run};
use miette::Result;

/// Returns the checksum computed on the host.
fn checksum<K: Kernel>(size: Size, seed: u64) -> u64 {
    let kernel = K::new(size);
    let mut memory = vec![0; kernel.words()];
    kernel.prepare(&mut memory, seed);
    kernel.run(&mut memory);
    kernel.checksum(&memory)
}

/// Checks that each run of the VM named after its benchmark had the host's result and was logged as
/// a segment.
#[track_caller]
fn agrees<K: Kernel>(run: &Run, workload: u32, runs: u64) {
    let vm = run.vm(K::NAME);
    let [size, _, seed, _] = run.system.vms[vm.index()].args;
    let size = Size::from_number(size).expect("a size");
    let banner = run.line(K::NAME, &format!("{}: size=", K::NAME));
    assert_eq!(
        number(banner, "bytes"),
        K::new(size).words() as u64 * 4,
        "{banner}"
    );
    let expected = checksum::<K>(size, seed);
    for nth in 0..runs {
        let line = run.line(K::NAME, &format!("{}: run={nth} ", K::NAME));
        assert!(
            line.ends_with(&format!(" checksum={expected:#018x} ok")),
            "{line}, on the host {expected:#018x}"
        );
        assert!(
            number(line, "ticks") > 0 && number(line, "cycles") > 0,
            "{line}"
        );
    }
    let records: Vec<u32> = run
        .telemetry
        .hem_runs()
        .filter(|record| (record.record.vm, record.record.workload) == (vm, workload))
        .map(|record| record.record.run)
        .collect();
    assert_eq!(
        records,
        (0..runs as u32).collect::<Vec<_>>(),
        "records of {}",
        K::NAME
    );
    assert_eq!(run.end_of(K::NAME), End::Off);
}

fn as_on_the_host(board: &str, seed: u64) -> Result<()> {
    let mut checked = load(&config("kernels"), board)?;
    for vm in &mut checked.system.vms {
        vm.args[2] = seed;
    }
    let run = run(&checked, board, Clock::Counted)?.whole();
    agrees::<Disparity>(&run, 6, 2);
    agrees::<Segmentation>(&run, 7, 2);
    agrees::<Matmul>(&run, 8, 2);
    Ok(())
}

#[test]
fn kernels_compute_what_the_host_does_on_virt() -> Result<()> {
    as_on_the_host(VIRT, 0)
}

#[test]
fn kernels_compute_what_the_host_does_on_zcu102() -> Result<()> {
    as_on_the_host(ZCU102, 41)
}

#[test]
fn a_size_that_there_is_not_is_refused() -> Result<()> {
    let mut checked = load(&config("kernels"), VIRT)?;
    for vm in &mut checked.system.vms {
        vm.args[0] = 4;
    }
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    for name in [Disparity::NAME, Segmentation::NAME, Matmul::NAME] {
        assert_eq!(
            run.line(name, name),
            format!("{name}: sizes are 1, 2 and 3, not 4")
        );
    }
    Ok(())
}
