//! `cargo xtask inspect --live`: every page of every shipped system is where its configuration
//! says.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::inspect::{InspectArgs, inspect};
use cloison::live;
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::image::{Backing, GicVersion, Region};
use cloison_tests::{BOTH, VIRT, ZCU102, all_shipped, config, image, load, shipped};
use miette::Result;
use serde_json::Value;
use std::path::Path;

/// The page of the virtual CPU interface that every VM has in addition to its regions.
const GICV_PAGES: u64 = 1;

/// Runs `inspect --live`. Returns its verdict and the figures that it writes.
fn inspected(config: &Path, board: &str, fault_injection: bool) -> (Result<()>, Value) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let json = directory.path().join("figures.json");
    let args = InspectArgs {
        config: config.to_path_buf(),
        live: true,
        board: Some(board.to_owned()),
        json: Some(json.clone()),
        fault_injection,
    };
    let verdict = inspect(&args);
    let text = std::fs::read(&json)
        .unwrap_or_else(|error| panic!("no figures were written: {error}; {verdict:?}"));
    let mut all: Value = serde_json::from_slice(&text).expect("JSON");
    (verdict, all["figures"].take())
}

/// Checks that every page of a system is where its configuration says, and no other. Returns the
/// audit's figures.
pub fn every_page_of(config: &Path, board: &str) -> Result<Value> {
    let system = load(config, board)?.system;
    let (vms, channels) = (&system.vms, &system.channels);
    let seen = channels.iter().flat_map(|channel| {
        let members = channel.members.iter();
        members.filter_map(|member| channel.seen_by(member))
    });
    let has_gicv = load(config, board)?.system.board.gic.version() == GicVersion::V2;
    let gicv = u64::from(has_gicv) * GICV_PAGES * vms.len() as u64;
    let configured: u64 = vms
        .iter()
        .flat_map(|vm| vm.regions.iter().cloned())
        .chain(seen)
        .map(|region| u64::from(region.pages))
        .sum::<u64>()
        + gicv;
    let (verdict, figures) = inspected(config, board, false);
    verdict?;
    assert_eq!(figures["pages_checked"], configured, "{}", config.display());
    let shared: u64 = channels.iter().map(|own| u64::from(own.pages)).sum();
    assert_eq!(figures["channel_frames"], shared, "{}", config.display());
    for none in [
        "pages_outside",
        "pages_missing",
        "pages_unexpected",
        "frames_shared",
        "attributes_wrong",
        "hypervisor_frames_outside",
    ] {
        assert_eq!(figures[none], 0, "{none} of {}", config.display());
    }
    assert!(
        figures["hypervisor_frames"]
            .as_u64()
            .is_some_and(|frames| frames > 0),
        "{figures}"
    );
    Ok(figures)
}

fn every_page_of_every_shipped_system(board: &str) -> Result<()> {
    let shipped = all_shipped();
    assert!(shipped.len() >= 3, "{shipped:?}");
    for config in shipped {
        every_page_of(&config, board)?;
    }
    Ok(())
}

#[test]
fn no_page_of_a_shipped_system_is_outside_its_pool_on_virt() -> Result<()> {
    every_page_of_every_shipped_system(VIRT)
}

#[test]
fn no_page_of_a_shipped_system_is_outside_its_pool_on_zcu102() -> Result<()> {
    every_page_of_every_shipped_system(ZCU102)
}

fn an_allocator_that_errs(board: &str) {
    let (verdict, figures) = inspected(&shipped("strict"), board, true);
    let message = verdict
        .expect_err("a hypervisor that hands out wrong colors must not pass")
        .to_string();
    let outside = figures["pages_outside"].as_u64().expect("a figure");
    assert!(outside > 0, "{figures}");
    assert!(
        message.contains(&format!("{outside} outside their pool")),
        "{message}"
    );
    // Offenders are listed: VM, page, frame, and what is wrong.
    let named = |line: &&str| line.contains(" -> 0x") && line.contains("is not one of pool `");
    let offender = message
        .lines()
        .find(named)
        .unwrap_or_else(|| panic!("no offender is named:\n{message}"));
    assert!(
        ["latency ", "interf-"]
            .iter()
            .any(|vm| offender.starts_with(vm)),
        "{offender}"
    );
}

#[test]
fn a_fault_in_the_allocator_fails_the_proof_on_virt() {
    an_allocator_that_errs(VIRT);
}

#[test]
fn a_fault_in_the_allocator_fails_the_proof_on_zcu102() {
    an_allocator_that_errs(ZCU102);
}

#[test]
fn moved_pages_are_proven_where_they_are_and_when_they_are_back() -> Result<()> {
    for board in BOTH {
        let path = config("migrate");
        every_page_of(&path, board)?;
        let vms = load(&path, board)?.system.vms;
        let profiled: usize = vms
            .iter()
            .filter_map(|vm| vm.profile.as_ref())
            .map(|profile| profile.pages.len())
            .sum();
        let (verdict, figures) = inspected(&path, board, false);
        verdict?;
        assert!(profiled > 0);
        assert_eq!(figures["pages_moved"], profiled, "{figures}");
    }
    Ok(())
}

#[test]
fn a_page_with_a_wrong_attribute_fails_the_proof() -> Result<()> {
    let path = config("migrate");
    let vms = load(&path, VIRT)?.system.vms.len() as u64;
    // This hypervisor maps devices executable, and moved pages not executable.
    let (verdict, figures) = inspected(&path, VIRT, true);
    let message = verdict.expect_err("wrong rights must not pass").to_string();
    let wrong = figures["attributes_wrong"].as_u64().expect("a figure");
    assert!(
        message.contains(&format!("{wrong} with wrong attributes")),
        "{message}"
    );
    assert!(
        message.contains("the descriptor's execute-never bits is 0b0, not 0b10"),
        "{message}"
    );
    // Devices in each of three passes; the others have moved.
    assert!(wrong > 3 * GICV_PAGES * vms, "{figures}");
    Ok(())
}

#[test]
fn contiguous_memory_and_passed_through_devices_are_proven_too() -> Result<()> {
    let mut checked = load(&shipped("strict"), VIRT)?;
    let system = &mut checked.system;
    system.audit = true;
    system.contiguous = 8 << 20;
    let clock = Backing::Device(PhysAddr(0x0901_0000));
    for (vm, region) in [
        (
            0,
            Region {
                name: "buffer".into(),
                ipa: Ipa(0x6000_0000),
                pages: 700,
                backing: Backing::Contiguous,
                executable: true,
            },
        ),
        (
            1,
            Region {
                name: "buffer".into(),
                ipa: Ipa(0x6000_0000),
                pages: 1,
                backing: Backing::Contiguous,
                executable: true,
            },
        ),
        (
            1,
            Region {
                name: "clock".into(),
                ipa: Ipa(0x0a00_0000),
                pages: 1,
                backing: clock,
                executable: false,
            },
        ),
    ] {
        system.vms[vm].regions.push(region);
    }
    let audit = live::boot_and_judge(&image(&checked)?, checked.emulation()?)?;
    audit.verdict()?;
    assert_eq!(audit.checked, 4 * (4096 + GICV_PAGES) + 702);
    Ok(())
}
