//! Guest maps: programs that were built for other machines find their devices where those have them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::{configuration, installation};
use cloison_formats::guest_map::{GuestMap, GuestUartKind};
use cloison_tests::{BOTH, Clock, Run, VIRT, config, load, run};
use miette::Result;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The maps, and where the RAM of a program for that machine starts. The last one is in another
/// file.
const MAPS: [(&str, u64); 4] = [
    ("cloison", 0x4000_0000),
    ("zcu102", 0),
    ("xenvm", 0x4000_0000),
    ("own.toml", 0x8_0000_0000),
];
/// Elsewhere than all others, with the page of GICC_DIR before the distributor.
const OWN: &str = "name = 'own'\nservices_page = 0x7f_ffff_f000\n\
    gicv2 = { distributor = 0x1000_2000, cpu_interface = 0x5000_0000, deactivate = 0x1000_1000 }\n\
    uart = { kind = 'cadence', base = 0x2_0000_0000, irq = 255 }\n";

/// Assembles `tests/guests/map.S` for a map, at an address.
fn assemble(map: &GuestMap, name: &str, at: u64, file: &Path) {
    let mut compiler = Command::new("aarch64-linux-gnu-gcc");
    compiler.args(["-nostdlib", "-static", "-Wl,-n,--build-id=none", "-o"]);
    compiler.arg(file).arg(format!("-Wl,-Ttext={at:#x}"));
    compiler.arg(format!("-DMAP=\"{name}\""));
    compiler.arg(format!("-DIRQ={}", map.uart.irq));
    for (what, address) in [
        ("GICD", map.gicd),
        ("GICC", map.gicc),
        ("UART", map.uart.base),
    ] {
        compiler.arg(format!("-D{what}={address}"));
    }
    if map.uart.kind == GuestUartKind::Cadence {
        compiler.arg("-DCADENCE");
    }
    compiler.arg(installation::root().join("tests/guests/map.S"));
    assert!(compiler.status().expect("the assembler runs").success());
}

/// Writes the programs and a system with one VM for each map, and boots it.
fn boot(board: &str) -> Result<Run> {
    let scratch = tempfile::tempdir().expect("a directory");
    let at = |name: &str| scratch.path().join(name);
    std::fs::write(at("own.toml"), OWN).expect("it is written");
    let mut text = "name = 'maps'\nhypervisor = { colors = '15' }\n\
        pool = [{ name = 'shared', kind = 'SH', colors = '0-14' }]\n"
        .to_owned();
    for (core, (map, ram)) in MAPS.into_iter().enumerate() {
        let name = map.trim_end_matches(".toml");
        write!(
            text,
            "[[vm]]\nname = '{name}'\ncores = [{core}]\nmap = '{map}'\nimage.file = '{name}.elf'\n\
             region = [{{ name = 'ram', ipa = {ram:#x}, size = '1M', pool = 'shared' }}]\n"
        )
        .expect("text takes all");
        let file = match map == name {
            true => installation::root().join(format!("configs/maps/{name}.toml")),
            false => at(map),
        };
        let map = cloison_config::guest_map::load(&file)?;
        assemble(&map, name, ram, &at(&format!("{name}.elf")));
    }
    std::fs::write(at("system.toml"), text).expect("it is written");
    let checked = configuration::load(&at("system.toml"), Some(board))?;
    run(&checked, board, Clock::Counted)
}

#[test]
fn programs_built_for_other_machines_print_and_take_interrupts() -> Result<()> {
    for board in BOTH {
        let run = boot(board)?.whole();
        for (map, _) in MAPS {
            let name = map.trim_end_matches(".toml");
            run.line(name, &format!("built for {name}"));
            run.line(name, "interrupt taken");
        }
    }
    Ok(())
}

/// Returns the number of an interrupt's arrivals, from the line of `/proc/interrupts` with this.
fn arrivals(run: &Run, device: &str) -> u64 {
    // A line of the kernel's log ends with the driver's name, too.
    let count = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
    run.said("linux")
        .filter(|(_, line)| line.ends_with(device))
        .find_map(|(_, line)| count(line))
        .unwrap_or_else(|| panic!("no interrupt of {device}\n{run}"))
}

/// Linux's driver of the Cadence UART (`xuartps`) is the console; Cloison's own guests learn where
/// their devices are.
#[test]
fn debians_kernel_and_cloisons_guests_run_on_the_zcu102s_map() -> Result<()> {
    let checked = load(&config("maps"), VIRT)?;
    let run = run(&checked, VIRT, Clock::Counted)?.whole();
    run.line("linux", "ttyPS0");
    run.line("linux", "/serial@ff000000");
    run.line("linux", "cloison: the command ended with status 0");
    assert!(arrivals(&run, "xuartps") > 0, "{run}");
    for vm in ["zcu102", "xenvm"] {
        assert!(
            run.said(vm).any(|(_, line)| line.contains(" ok")),
            "{vm}\n{run}"
        );
    }
    Ok(())
}
