//! A VM's Linux guest, as its configuration describes it.

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

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Rt => "rt",
        }
    }

    /// The Debian package that holds it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-arm64",
            Self::Rt => "linux-image-rt-arm64",
        }
    }
}

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package.
    Debian(Flavor),
    /// An arm64 Image.
    File(PathBuf),
}

/// What a region of RAM is to the VM's Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Memory to use.
    #[default]
    Memory,
    /// Reserved memory, which the kernel knows of and leaves alone (`reserved-memory`, `no-map`).
    Reserved,
    /// Nothing: the device tree does not mention it.
    Hidden,
    /// A device that is passed through, for a driver.
    Device {
        /// What it is, the most particular name first (Devicetree Specification 0.4, 2.3.1).
        compatible: Vec<String>,
        /// Its interrupt (GIC id of an SPI).
        interrupt: Option<u32>,
    },
}

/// A VM's Linux, as its configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linux {
    /// The kernel.
    pub kernel: KernelSource,
    /// The initial RAM disk; `None`: Cloison's own.
    pub initrd: Option<PathBuf>,
    /// Debian packages whose programs are in Cloison's own RAM disk.
    pub packages: Vec<String>,
    /// Programs that lie on this machine, for Cloison's own RAM disk.
    pub programs: Vec<PathBuf>,
    /// What the first process runs in place of a shell, before it turns the VM off.
    pub exec: Option<String>,
    /// Where the RAM disk goes; `None`: behind the kernel.
    pub initrd_load: Option<u64>,
    /// The kernel's command line, the console included.
    pub cmdline: String,
    /// What each of the VM's regions is to the kernel.
    pub shown: Vec<Shown>,
    /// The CPU's name in the device tree, without its maker.
    pub cpu: String,
    /// The PMU's interrupt (a PPI), where the board wires it.
    pub pmu_irq: Option<u32>,
}
