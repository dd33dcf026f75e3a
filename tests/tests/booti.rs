//! Boots the SD card that `cargo xtask image` writes with U-Boot, from power-on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::image as boot_media;
use cloison_engine::qemu::Machine;
use cloison_engine::{configuration, image, installation, setup};
use std::time::Duration;
use tempfile::TempDir;

/// Returns the files that a user would copy to a card, and a `virt` machine with U-Boot as its firmware and that card.
fn card_and_machine() -> miette::Result<(TempDir, Machine)> {
    setup::qemu()?;
    let firmware = setup::u_boot()?;
    let checked = configuration::load(&installation::root().join("configs/demo.toml"), Some("virt"))?;
    let image = image::build(&checked, &[])?;
    let card = tempfile::tempdir().expect("a scratch directory");
    boot_media::write(&image, card.path())?;
    // QEMU shows a directory as a disk with one FAT partition.
    let drive = format!("if=none,id=card,format=raw,readonly=on,file=fat:{}", card.path().display());
    let machine = Machine::bare(checked.emulation()?).icount(Some(0)).arg("-bios").arg(firmware).args([
        "-drive",
        &drive,
        "-device",
        "virtio-blk-device,drive=card",
    ]);
    Ok((card, machine))
}

#[test]
fn booti_starts_what_the_boot_script_loads() -> miette::Result<()> {
    let (_card, machine) = card_and_machine()?;
    let outcome = machine.run()?;
    let console = &outcome.console;
    assert!(outcome.exit.is_clean(), "{}: {console}\n{}", outcome.exit, outcome.errors);
    // In this order: the firmware, its search for the script, the script, the hypervisor.
    let steps = ["U-Boot 20", "Found U-Boot script", "Cloison: loading Image", "Starting kernel", "] Cloison "];
    let mut rest = console.as_str();
    for step in steps {
        rest = rest.split_once(step).unwrap_or_else(|| panic!("{step:?} is missing or too early in\n{console}")).1;
    }
    assert!(rest.contains("turning the machine off"), "{console}");
    Ok(())
}

#[test]
fn booti_is_not_tried_without_an_image() -> miette::Result<()> {
    let (card, machine) = card_and_machine()?;
    std::fs::remove_file(card.path().join("Image")).expect("the image was written");
    let mut session = machine.start()?;
    session.expect("Cloison: Image could not be started", Duration::from_secs(180))?;
    let outcome = session.stop()?;
    assert!(!outcome.console.contains("Starting kernel"), "{}", outcome.console);
    Ok(())
}
