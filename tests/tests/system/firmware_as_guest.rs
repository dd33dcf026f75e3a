//! Firmware of QEMU's `virt` as Debian's packages have it, unmodified, in a VM: it finds what it was
//! built for, and passes its own tests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::{PATIENCE, Running};
use cloison_config::guest_linux::Release;
use cloison_engine::configuration;
use cloison_engine::setup::Firmware;
use cloison_engine::telemetry::End;
use cloison_formats::ids::VmId;
use cloison_tests::{Clock, VIRT, VIRT_GICV3};
use miette::{IntoDiagnostic, Result};
use std::fs;

/// U-Boot, linked for the flash at 0, with memory where its settings would be, and the machine's
/// clock.
const U_BOOT: &str = "
name = 'u-boot'
hypervisor = { colors = '15' }
pool = [{ name = 'shared', kind = 'SH', colors = '0-14' }]

[[vm]]
name = 'u-boot'
cores = [0]
map = 'qemu-virt'
image = { file = 'firmware', load = 0, device_tree = true, device_tree_at = 0x4000_0000 }
region = [
    { name = 'flash', ipa = 0, size = '2M', pool = 'shared', linux = 'hidden' },
    { name = 'settings', ipa = 0x0400_0000, size = '256K', pool = 'shared', linux = 'hidden' },
    { name = 'ram', ipa = 0x4000_0000, size = '128M', pool = 'shared' },
    { name = 'clock', ipa = 0x0901_0000, size = '4K', device = 0x0901_0000, compatible = ['arm,pl031'] },
]
";

/// A Debian kernel, and a network between it and U-Boot.
const WITH_LINUX: &str = "
[[link]]
name = 'wire'
kind = 'net'
end = [
    { vm = 'u-boot', ipa = 0x0a00_0000, interrupt = 48 },
    { vm = 'linux', ipa = 0x0a00_0000, interrupt = 48 },
]

[[vm]]
name = 'linux'
cores = [1]
image = { linux = 'cloud' }
region = [{ name = 'ram', ipa = 0x4000_0000, size = '160M', pool = 'shared' }]
";

/// EDK II, linked for the flash at 0, with the machine's second flash for its variables, and its
/// clock.
const EDK2: &str = "
name = 'edk2'
hypervisor = { colors = '15' }
pool = [{ name = 'shared', kind = 'SH', colors = '0-14' }]

[[vm]]
name = 'edk2'
cores = [0]
map = 'qemu-virt'
image = { file = 'firmware', load = 0, device_tree = true, device_tree_at = 0x4000_0000 }

[[vm.region]]
name = 'flash'
ipa = 0
size = '4M'
pool = 'shared'
linux = 'hidden'

[[vm.region]]
name = 'variables'
ipa = 0x0400_0000
size = '64M'
device = 0x0400_0000
compatible = ['cfi-flash']
properties = { bank-width = 4 }

[[vm.region]]
name = 'clock'
ipa = 0x0901_0000
size = '4K'
device = 0x0901_0000
compatible = ['arm,pl031', 'arm,primecell']

[[vm.region]]
name = 'ram'
ipa = 0x4000_0000
size = '256M'
pool = 'shared'
";

/// Starts a system with a release's firmware in the first VM.
fn start(system: &str, firmware: Firmware, release: Release, board: &str) -> Result<Running> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let file = scratch.path().join("system.toml");
    fs::write(&file, system).into_diagnostic()?;
    let image = scratch.path().join("firmware");
    fs::copy(firmware.obtain(release)?, image).into_diagnostic()?;
    let checked = configuration::load(&file, Some(board))?;
    // In real time: U-Boot never waits for an interrupt.
    Running::start(&checked, board, Clock::Real)
}

/// Has U-Boot run all tests of its UEFI, and returns those that failed.
fn failures(running: &mut Running) -> Result<Vec<String>> {
    running.type_in("u-boot", "bootefi selftest ${fdtcontroladdr}\n")?;
    let said = running.expect("u-boot", "Press any key")?;
    let passed = said
        .lines()
        .filter(|line| line.contains("Executing '") && line.ends_with(" succeeded"));
    assert!(passed.count() > 30, "{said}");
    let names = said.lines().filter(|line| line.ends_with(" failed"));
    let failed: Vec<String> = names
        .map(|line| line.split('\'').nth(1).unwrap_or(line).to_owned())
        .collect();
    let summary = format!("Summary: {} failures", failed.len());
    assert!(said.contains(&summary), "{said}");
    Ok(failed)
}

/// Has U-Boot restart its VM after the tests, and turn it off in its next life.
fn leave(mut running: Running) -> Result<Running> {
    running.type_in("u-boot", " ")?;
    running.session.expect("VM u-boot restarts", PATIENCE)?;
    running.expect("u-boot", "DRAM: ")?;
    running.type_in("u-boot", "\npoweroff\n")?;
    running.session.expect("VM u-boot is off", PATIENCE)?;
    Ok(running)
}

/// U-Boot passes its tests of UEFI, except the two whose devices the VM lacks: a generator of
/// random numbers, and a network. They fail on QEMU's bare machine too.
#[test]
fn debian_12s_u_boot_passes_its_own_tests() -> Result<()> {
    let mut running = start(U_BOOT, Firmware::UBoot, Release::Bookworm, VIRT)?;
    running.expect("u-boot", "U-Boot 2023.01")?;
    running.type_in("u-boot", "\n")?;
    let failed = failures(&mut running)?;
    assert_eq!(
        failed,
        ["random number generator", "simple network protocol"]
    );
    let run = leave(running)?.finish()?.whole();
    assert_eq!(run.end_of("u-boot"), End::Off);
    Ok(())
}

/// The test of the network passes by a link: a Debian kernel answers its call for an address.
#[test]
fn debian_13s_u_boot_passes_its_own_tests_beside_a_kernel() -> Result<()> {
    let system = format!("{U_BOOT}{WITH_LINUX}");
    let mut running = start(&system, Firmware::UBoot, Release::Trixie, VIRT)?;
    running.expect("u-boot", "U-Boot 2025.01")?;
    running.type_in("u-boot", "\n")?;
    running.open("linux")?;
    running.set_address("linux", "10.0.2.2");
    running.output(
        "linux",
        "mkdir -p /var/lib/misc && \
         printf 'start 10.0.2.15\\nend 10.0.2.20\\ninterface eth0\\n' > /root/dhcp && \
         udhcpd -S /root/dhcp",
    );
    assert_eq!(failures(&mut running)?, ["random number generator"]);
    let run = leave(running)?.stop()?;
    let sent = run.telemetry.traffic()[&(0, VmId(0))];
    assert!(sent.frames > 0, "{sent:?}");
    Ok(())
}

/// EDK II's shell keeps a variable in the flash while the VM restarts.
fn edk2_keeps_a_variable(release: Release, board: &str) -> Result<()> {
    let mut running = start(EDK2, Firmware::Edk2, release, board)?;
    let name = "kept -guid 11111111-2222-3333-4444-555555555555";
    // What the shell says after a command, which it repeats first.
    let ask = |running: &mut Running, command: &str| {
        running.type_in("edk2", &format!("{command}\r"))?;
        running.expect("edk2", "Shell> ")
    };
    let open = |running: &mut Running| {
        running.expect("edk2", "to skip")?;
        running.type_in("edk2", "\x1b")?;
        running.expect("edk2", "Shell> ")
    };
    open(&mut running)?;
    assert!(ask(&mut running, "ver")?.contains("UEFI Interactive Shell v2.2"));
    let dump = format!("dmpstore {name}");
    let said = ask(&mut running, &dump)?;
    assert!(said.contains("No matching variables found"), "{said}");
    ask(&mut running, &format!("setvar {name} -nv -bs =L\"colors\""))?;
    running.type_in("edk2", "reset\r")?;
    running.session.expect("VM edk2 restarts", PATIENCE)?;
    open(&mut running)?;
    let said = ask(&mut running, &dump)?;
    assert!(
        said.contains("63 00 6F 00 6C 00 6F 00-72 00 73 00"),
        "{said}"
    );
    running.type_in("edk2", "reset -s\r")?;
    let run = running.finish()?.whole();
    assert_eq!(run.end_of("edk2"), End::Off);
    Ok(())
}

#[test]
fn debian_12s_edk2_keeps_a_variable() -> Result<()> {
    edk2_keeps_a_variable(Release::Bookworm, VIRT)
}

#[test]
#[ignore = "on demand: takes 20 seconds, and the release before is tested each time"]
fn debian_13s_edk2_keeps_a_variable_on_a_gicv3() -> Result<()> {
    edk2_keeps_a_variable(Release::Trixie, VIRT_GICV3)
}
