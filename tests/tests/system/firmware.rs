//! What reaches the firmware of a guest's calls: recorded by a firmware of the tests, at EL3 of QEMU's
//! ZCU102.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Emulation;
use cloison_engine::cargo;
use cloison_engine::qemu::Machine;
use cloison_engine::telemetry::Telemetry;
use cloison_tests::{LIMIT, Run, ZCU102, config, image, load, number};
use miette::{Result, miette};

/// Where the firmware expects the image.
const IMAGE: u64 = 0x1800_0000;

/// Boots a configuration below the firmware. What that writes is the outcome's `uart`.
fn boot(name: &str, change: impl FnOnce(&mut cloison_config::Checked)) -> Result<Run> {
    let mut checked = load(&config(name), ZCU102)?;
    change(&mut checked);
    let image = image(&checked)?;
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let board = Emulation {
        machine: format!("{},secure=on", checked.emulation()?.machine),
        ..checked.emulation()?.clone()
    };
    let firmware = cargo::test_firmware()?;
    let loaders = [
        format!("loader,file={},cpu-num=0", firmware.display()),
        format!(
            "loader,file={},addr={IMAGE:#x},force-raw=on",
            file.display()
        ),
    ];
    let machine = Machine::bare(&board)
        .icount(Some(0))
        .limit(LIMIT)
        .args(["-device", &loaders[0], "-device", &loaders[1]])
        .args(["-semihosting-config", "enable=on,target=native"]);
    let outcome = machine.run()?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    })
}

/// Returns whether UG1200's calls with this number are about GEM3, or change nothing.
fn is_of_gem3(call: u64, named: u64) -> bool {
    match call & 0xffff {
        // GET_API_VERSION, QUERY_DATA, FEATURE_CHECK, and the version of what is at EL3.
        1 | 35 | 63 | 0xa03 => true,
        // GET_NODE_STATUS, REQUEST_NODE, RELEASE_NODE, SET_REQUIREMENT: ETH_3.
        3 | 13 | 14 | 15 => named == 32,
        // RESET_ASSERT, RESET_GET_STATUS: GEM3.
        17 | 18 => named == 1032,
        // CLOCK_*: GEM3_TX, GEM3_RX, GEM3_REF.
        36..=40 | 43 | 44 => [48, 52, 107].contains(&named),
        _ => false,
    }
}

#[test]
fn of_10_000_calls_those_about_the_vms_own_devices_pass() -> Result<()> {
    let run = boot("firmware/eemi", |_| {})?.whole();
    let line = run.line("driver", "eemi: ");
    let arrived = String::from_utf8_lossy(&run.outcome.uart).into_owned();
    let arrived: Vec<[u64; 4]> = arrived
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("eemi "))
        .map(|line| {
            let mut words = line
                .split(' ')
                .map(|word| u64::from_str_radix(word, 16).expect("a number"));
            [(); 4].map(|()| words.next().expect("four numbers"))
        })
        .collect();
    for [call, x1, ..] in &arrived {
        assert!(is_of_gem3(*call, x1 & 0xffff_ffff), "{call:#x} {x1:#x}");
    }
    assert_eq!(number(line, "passed"), arrived.len() as u64, "{line}");
    assert_eq!(
        number(line, "refused") + number(line, "passed"),
        10_000,
        "{line}"
    );
    assert_eq!(number(line, "wrong"), 0, "{line}");
    // Of each kind: by node, by reset, by clock, and what only tells.
    for kind in [1, 13, 17, 36] {
        assert!(
            arrived.iter().any(|[call, ..]| call & 0xffff == kind),
            "{kind}"
        );
    }
    // 8 at once and one a second are printed, with the number of those left out.
    let told = run.outcome.console.matches("may not make call").count();
    assert!((1..=10).contains(&told), "{run}");
    Ok(())
}

#[test]
fn a_vm_without_the_right_reaches_no_firmware() -> Result<()> {
    let run = boot("firmware/eemi", |checked| {
        checked.system.vms[0].firmware = None
    })?
    .whole();
    let line = run.line("driver", "eemi: ");
    assert_eq!(
        (number(line, "refused"), number(line, "wrong")),
        (10_000, 0),
        "{line}"
    );
    assert!(
        !String::from_utf8_lossy(&run.outcome.uart).contains("eemi"),
        "{run}"
    );
    Ok(())
}

/// EL2 sees the non-secure half of the GIC, in which priorities and groups are others.
#[test]
fn interrupts_arrive_in_the_non_secure_half_of_the_machine() -> Result<()> {
    let run = boot("firmware/heart", |_| {})?.whole();
    let done = run.line("heart", "heartbeat: done");
    let counts = ["beats", "corrupt", "late"].map(|key| number(done, key));
    assert_eq!(counts, [400, 0, 0], "{done}");
    Ok(())
}
