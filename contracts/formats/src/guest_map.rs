//! A guest's map: where its emulated devices are in its physical address space.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::Ipa;
use crate::ids::Intid;
use cloison_abi::{irq, map};
use serde::{Deserialize, Serialize};

/// Where the emulated devices of a VM are. Each has one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMap {
    /// The distributor.
    pub gicd: Ipa,
    /// The GICv2 CPU interface: the hardware's virtual one. On a board with a GICv3, the first of
    /// the VM's redistributors.
    pub gicc: Ipa,
    /// The page of GICC_DIR.
    pub gicc_dir: Ipa,
    /// The UART.
    pub uart: GuestUart,
    /// The services page, in VMs that have it.
    pub services: Ipa,
}

/// A VM's emulated UART.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUart {
    /// Its programming model.
    pub kind: GuestUartKind,
    /// Its page.
    pub base: Ipa,
    /// Its interrupt: an SPI of the emulated distributor.
    pub irq: Intid,
}

/// The UARTs that can be emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestUartKind {
    /// Arm PrimeCell PL011.
    Pl011,
    /// Cadence UART (Zynq UltraScale+).
    Cadence,
}

/// A device of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapDevice {
    /// The distributor.
    Distributor,
    /// The CPU interface's first page.
    CpuInterface,
    /// The page of GICC_DIR.
    Deactivate,
    /// The UART.
    Uart,
    /// The services page.
    Services,
    /// The device of the link with this number, which is not the map's.
    Link(u8),
}

impl GuestMap {
    /// The map of a VM whose configuration names none.
    pub const CLOISON: Self = Self {
        gicd: Ipa(map::GICD),
        gicc: Ipa(map::GICC),
        gicc_dir: Ipa(map::DEACTIVATE),
        uart: GuestUart {
            kind: GuestUartKind::Pl011,
            base: Ipa(map::UART),
            irq: Intid(irq::UART),
        },
        services: Ipa(map::SERVICES),
    };

    /// The same on a board with a GICv3.
    pub const CLOISON_GICV3: Self = Self {
        gicc: Ipa(map::REDISTRIBUTORS),
        gicc_dir: Ipa(map::REDISTRIBUTORS + 0x1000),
        ..Self::CLOISON
    };

    /// Returns each device with the start of its page.
    pub const fn devices(&self) -> [(MapDevice, Ipa); 5] {
        [
            (MapDevice::Distributor, self.gicd),
            (MapDevice::CpuInterface, self.gicc),
            (MapDevice::Deactivate, self.gicc_dir),
            (MapDevice::Uart, self.uart.base),
            (MapDevice::Services, self.services),
        ]
    }

    /// Returns the device whose page starts at `page`.
    pub fn device(&self, page: Ipa) -> Option<MapDevice> {
        let mut all = self.devices().into_iter();
        all.find(|&(_, base)| base == page)
            .map(|(device, _)| device)
    }
}

impl Default for GuestMap {
    fn default() -> Self {
        Self::CLOISON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_that_of_its_device_alone() {
        for (device, page) in GuestMap::CLOISON.devices() {
            assert_eq!(GuestMap::CLOISON.device(page), Some(device));
        }
        assert_eq!(GuestMap::CLOISON.device(Ipa(map::RAM)), None);
        assert_eq!(GuestMap::CLOISON.device(Ipa(map::GICD + 0x1000)), None);
    }
}
