//! A VM's Linux guest, as its configuration describes it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

/// A Debian kernel for arm64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// `linux-image-cloud-arm64`: for virtual machines.
    Cloud,
    /// `linux-image-rt-arm64`: with PREEMPT_RT.
    Rt,
}

impl Flavor {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cloud, Self::Rt];

    /// Returns the name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Rt => "rt",
        }
    }

    /// Returns the Debian package that contains it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-arm64",
            Self::Rt => "linux-image-rt-arm64",
        }
    }
}

/// Source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package.
    Debian(Flavor),
    /// An uncompressed arm64 `Image`.
    File(PathBuf),
}

/// How the VM's Linux kernel sees a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Memory to use.
    #[default]
    Memory,
    /// Reserved memory, which the kernel knows and leaves alone (`reserved-memory`, `no-map`).
    Reserved,
    /// Not at all: the device tree does not mention it.
    Hidden,
    /// A device that is passed through to a driver.
    Device {
        /// Its compatible strings, the most specific first (Devicetree Specification 0.4, 2.3.1).
        compatible: Vec<String>,
        /// Its interrupt (GIC ID of an SPI).
        interrupt: Option<u32>,
    },
}

/// A VM's Linux guest, as its configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linux {
    /// Source of the kernel.
    pub kernel: KernelSource,
    /// Path of the initial RAM disk; `None` for Cloison's own.
    pub initrd: Option<PathBuf>,
    /// Debian packages whose programs go into Cloison's RAM disk.
    pub packages: Vec<String>,
    /// Programs on this machine that go into Cloison's RAM disk.
    pub programs: Vec<PathBuf>,
    /// Command that the first process runs instead of a shell, before it turns the VM off.
    pub exec: Option<String>,
    /// Load address of the RAM disk; `None` for the first one after the kernel.
    pub initrd_load: Option<u64>,
    /// The kernel's command line, including the console.
    pub cmdline: String,
    /// How the kernel sees each of the VM's regions.
    pub shown: Vec<Shown>,
    /// Name of the CPU in the device tree, without its vendor.
    pub cpu: String,
    /// The PMU's interrupt (a PPI), if the board wires it.
    pub pmu_irq: Option<u32>,
}
