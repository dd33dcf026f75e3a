//! Devices of QEMU that a run adds: `run --net`, a VM's way to the network of this machine, and those
//! behind the SMMU.
//!
//! QEMU's user network has the other end of a device that is passed through to the VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use miette::{Result, miette};

/// A port of this machine that leads to one of the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    host: u16,
    vm: u16,
}

impl Forward {
    /// Reads two ports: `2222:22`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn read(text: &str) -> std::result::Result<Self, String> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let read = |(host, vm)| {
            Some(Self {
                host: port(host)?,
                vm: port(vm)?,
            })
        };
        let ports = text.split_once(':').and_then(read);
        ports.ok_or_else(|| "write two ports from 1 to 65535: 2222:22".to_owned())
    }
}

/// Refuses devices of virtio that would go past the SMMU: QEMU has them access all memory directly
/// unless they are told otherwise.
///
/// # Errors
/// The device, and what it lacks.
pub fn check_devices(checked: &Checked, arguments: &[String]) -> Result<()> {
    let goes_past = |device: &&String| {
        device.starts_with("virtio-") && !device.split(',').any(|it| it == "iommu_platform=on")
    };
    match arguments.iter().find(goes_past) {
        Some(device) if checked.system.board.smmu.is_some() => Err(miette!(
            help = format!("write {device},iommu_platform=on"),
            "QEMU's device `{device}` would go past the SMMU, to all memory"
        )),
        _ => Ok(()),
    }
}

/// Returns QEMU's arguments that join a VM to the network of this machine. It listens to nobody
/// else: forwarded ports are those of the loopback interface.
///
/// # Errors
/// A VM that is not there or has no such device, and a board without one.
pub fn join(checked: &Checked, name: &str, forwards: &[Forward]) -> Result<Vec<String>> {
    let vm = &checked.system.vms[checked.known_vm(name)?.index()];
    let emulation = checked.emulation()?;
    let Some(network) = &emulation.network else {
        return Err(miette!(
            help = "run it on `virt` or `zcu102`, or add `network` to [qemu] of the board file",
            "QEMU's {} has no network device for `run --net`",
            emulation.board
        ));
    };
    if !vm.devices().any(|device| device.start == network.start) {
        return Err(miette!(
            help = format!(
                "pass it through with device = {:#x}, and give the VM memory for DMA: \
                 configs/devices/{}.toml is an example",
                network.start.0, emulation.board
            ),
            "VM `{name}` does not have the network device at {}",
            network.start
        ));
    }
    let mut user = "user,id=net".to_owned();
    for Forward { host, vm } in forwards {
        user.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{vm}"));
    }
    let mut arguments = vec!["-netdev".to_owned(), user];
    arguments.extend(network.arguments.iter().cloned());
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_engine::configuration;

    #[test]
    fn a_vm_that_cannot_join_is_told_why() {
        let configs = configuration::directory();
        let refused = |file: &str, board: &str, vm: &str| {
            let checked = configuration::load(&configs.join(file), Some(board)).expect("shipped");
            join(&checked, vm, &[]).expect_err("it cannot").to_string()
        };
        let no_vm = refused("devices/virt.toml", "virt", "other");
        assert!(no_vm.ends_with("has no VM `other`"), "{no_vm}");
        let no_device = refused("devices/virt.toml", "virt", "neighbor");
        assert_eq!(
            no_device,
            "VM `neighbor` does not have the network device at 0xa000000"
        );
        let no_network = refused("demo.toml", "raspi4b", "victim");
        assert!(no_network.contains("no network device"), "{no_network}");
    }

    #[test]
    fn no_device_goes_past_the_smmu() {
        let file = configuration::directory().join("devices/virt-pcie.toml");
        let mut checked = configuration::load(&file, None).expect("shipped");
        let check = |checked: &Checked, device: &str| {
            check_devices(checked, &["-device".to_owned(), device.to_owned()])
        };
        check(&checked, "nvme,serial=1").expect("it uses the SMMU");
        check(&checked, "virtio-blk-pci,iommu_platform=on,addr=1").expect("it uses the SMMU");
        for past in ["virtio-blk-pci,addr=1", "virtio-net-pci,iommu_platform=off"] {
            let error = check(&checked, past).expect_err("it goes past the SMMU");
            assert!(error.to_string().contains(past), "{error}");
        }
        checked.system.board.smmu = None;
        check(&checked, "virtio-blk-pci,addr=1").expect("there is no SMMU");
    }

    #[test]
    fn a_forward_is_two_ports() {
        let right = Forward { host: 2222, vm: 22 };
        assert_eq!(Forward::read("2222:22"), Ok(right));
        for wrong in [
            "", "22", "22:", ":22", "0:22", "22:0", "65536:1", "a:b", "1:2:3",
        ] {
            assert!(Forward::read(wrong).is_err(), "{wrong}");
        }
    }
}
