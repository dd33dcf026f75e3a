//! Boots the folder that `cargo xtask image` writes with U-Boot, from power-on: as an SD card, and
//! from a TFTP server.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::image as boot_media;
use cloison_config::guest_linux::Release;
use cloison_engine::qemu::Machine;
use cloison_engine::setup::Firmware;
use cloison_engine::{configuration, image, installation, setup};
use std::time::Duration;
use tempfile::TempDir;

/// Where U-Boot finds the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Card,
    Network,
}

/// Returns the folder that a user would copy to a card or have a TFTP server offer, and a `virt`
/// machine with a Debian release's U-Boot as its firmware and that card or server.
fn folder_and_machine(release: Release, medium: Medium) -> miette::Result<(TempDir, Machine)> {
    setup::qemu()?;
    let firmware = Firmware::UBoot.obtain(release)?;
    let checked = configuration::load(
        &installation::root().join("configs/demo.toml"),
        Some("virt"),
    )?;
    let image = image::build(&checked, &[])?;
    let folder = tempfile::tempdir().expect("a scratch directory");
    boot_media::write(&image, &checked.board, folder.path())?;
    // In real time, because U-Boot waits seconds for a key.
    let machine = Machine::bare(checked.emulation()?)
        .arg("-bios")
        .arg(firmware);
    let place = folder.path().display();
    let machine = match medium {
        // QEMU shows a directory as a disk with one FAT partition.
        Medium::Card => machine.args([
            "-drive",
            &format!("if=none,id=card,format=raw,readonly=on,file=fat:{place}"),
            "-device",
            "virtio-blk-device,drive=card",
        ]),
        Medium::Network => machine.args([
            "-netdev",
            &format!("user,id=net,tftp={place},bootfile=boot.scr.uimg"),
            "-device",
            "virtio-net-device,netdev=net",
        ]),
    };
    Ok((folder, machine))
}

/// Returns how a release's U-Boot calls itself, and how it says that it has found the boot script.
fn messages(release: Release) -> [&'static str; 2] {
    match release {
        Release::Bookworm => ["U-Boot 2023.01", "Found U-Boot script"],
        // It searches for boot flows of several kinds, of which a script is one.
        Release::Trixie => ["U-Boot 2025.01", "with script"],
    }
}

/// Boots, and checks that these lines follow each other, and that the system ran.
fn boots(machine: &Machine, steps: &[&str]) -> miette::Result<()> {
    let outcome = machine.run()?;
    let console = &outcome.console;
    assert!(
        outcome.exit.is_clean(),
        "{}: {console}\n{}",
        outcome.exit,
        outcome.errors
    );
    let mut rest = console.as_str();
    for step in steps {
        rest = rest
            .split_once(step)
            .unwrap_or_else(|| panic!("{step:?} is missing or too early in\n{console}"))
            .1;
    }
    assert!(rest.contains("turning the machine off"), "{console}");
    Ok(())
}

#[test]
fn booti_starts_what_the_boot_script_loads() -> miette::Result<()> {
    for release in Release::ALL {
        let (_card, machine) = folder_and_machine(release, Medium::Card)?;
        // In this order: the firmware, its search for the script, the script, the hypervisor.
        let [firmware, script] = messages(release);
        let steps = [
            firmware,
            script,
            "Cloison: loading Image",
            "Starting kernel",
            "] Cloison ",
        ];
        boots(&machine, &steps)?;
    }
    Ok(())
}

#[test]
fn booti_starts_what_a_tftp_server_offers() -> miette::Result<()> {
    // The newer release's U-Boot must be told the script's name first.
    let release = Release::Bookworm;
    let (_folder, machine) = folder_and_machine(release, Medium::Network)?;
    let [firmware, _] = messages(release);
    let steps = [
        firmware,
        "boot.scr.uimg",
        "Cloison: loading Image",
        "Filename 'Image'",
        "Starting kernel",
        "] Cloison ",
    ];
    boots(&machine, &steps)
}

#[test]
fn booti_is_not_tried_without_an_image() -> miette::Result<()> {
    for release in Release::ALL {
        let (card, machine) = folder_and_machine(release, Medium::Card)?;
        std::fs::remove_file(card.path().join("Image")).expect("the image was written");
        let mut session = machine.start()?;
        session.expect(
            "Cloison: Image could not be started",
            Duration::from_secs(180),
        )?;
        let outcome = session.stop()?;
        assert!(
            !outcome.console.contains("Starting kernel"),
            "{}",
            outcome.console
        );
    }
    Ok(())
}
