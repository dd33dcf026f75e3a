//! Linux as a guest: Debian's kernels as they are, an initial RAM disk, and a device tree made from the configuration.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`boot_cost`] | what the hypervisor adds to a boot |
//! | [`packages`] | fetches kernels and busybox as Debian packages, and keeps them |
//! | [`kernel`] | reads an arm64 kernel's header, and says what is wrong with one |
//! | [`layout`] | where kernel, RAM disk and device tree lie in a VM's memory |
//! | [`device_tree`] | describes a VM to its kernel |
//! | [`initramfs`] | makes the RAM disk: busybox and a first process |
//! | [`programs`] | programs of other Debian packages for the RAM disk, with their libraries |
//! | [`shell`] | types commands into a VM's shell, and reads what comes of them |

pub mod boot_cost;
pub mod device_tree;
pub mod initramfs;
pub mod kernel;
pub mod layout;
pub mod packages;
pub mod programs;
pub mod shell;

use crate::config::{self, ImageSource};
use crate::figures::Figures;
use crate::report;
use cloison_formats::image::{Module, Vm};
use kernel::Kernel;
use layout::Layout;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use packages::Flavor;
use std::path::PathBuf;

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

/// A VM's Linux, ready to be loaded: bytes and where each piece goes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The kernel.
    pub kernel: Vec<u8>,
    /// The initial RAM disk.
    pub initrd: Vec<u8>,
    /// The device tree.
    pub device_tree: Vec<u8>,
    /// Where they go.
    pub layout: Layout,
}

/// Gets a VM's kernel and RAM disk, fetching what is not there yet, and makes its device tree.
pub fn load(linux: &Linux, vm: &Vm) -> Result<Loaded> {
    let path = match &linux.kernel {
        KernelSource::Debian(flavor) => packages::kernel(*flavor)?.path,
        KernelSource::File(path) => path.clone(),
    };
    let bytes = std::fs::read(&path).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", path.display()))?;
    let parsed = Kernel::parse(&bytes).map_err(|error| miette!("{}: {error}", path.display()))?;
    let initrd = match &linux.initrd {
        Some(path) => {
            std::fs::read(path).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", path.display()))?
        }
        None => initramfs::build(linux).wrap_err_with(|| miette!("VM `{}`: its RAM disk cannot be made", vm.name))?,
    };
    let layout = Layout::new(linux, vm, parsed, initrd.len() as u64)
        .map_err(|error| miette!(help = "give the VM a larger region", "VM `{}`: {error}", vm.name))?;
    let device_tree = device_tree::build(linux, vm, &layout)?;
    Ok(Loaded { kernel: bytes, initrd, device_tree, layout })
}

impl Loaded {
    /// Has `vm` start with these, which lie at `offsets` (kernel, RAM disk, device tree) in the payload.
    pub fn install(&self, vm: &mut Vm, offsets: [u32; 3]) {
        let Layout { kernel, initrd, device_tree } = self.layout;
        let [kernel_at, initrd_at, device_tree_at] = offsets;
        vm.image.offset = kernel_at;
        vm.image.len = self.kernel.len() as u32;
        vm.image.load = kernel.0;
        vm.image.entry = kernel.0;
        vm.modules = vec![
            Module { offset: initrd_at, len: self.initrd.len() as u32, load: initrd.0 },
            Module { offset: device_tree_at, len: self.device_tree.len() as u32, load: device_tree.0 },
        ];
        // The boot protocol (Documentation/arch/arm64/booting.rst): x0 is the device tree, x1 to x3 are 0.
        vm.args = [device_tree.0.0, 0, 0, 0];
    }
}

/// `cargo xtask linux`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinuxArgs {
    #[command(subcommand)]
    command: LinuxCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum LinuxCommand {
    /// Fetch Debian's kernels and busybox now, and say which ones are kept
    Fetch {
        /// Fetch the packages that these configurations name too
        #[arg(value_name = "CONFIG")]
        configs: Vec<PathBuf>,
        /// Fetch them again, and so the newest ones
        #[arg(long)]
        update: bool,
        /// Write the figures here too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Count the instructions that the hypervisor adds to a boot of each kernel
    BootCost(boot_cost::BootCostArgs),
}

/// Runs `cargo xtask linux`.
pub fn linux(args: &LinuxArgs) -> Result<()> {
    let (configs, update, json) = match &args.command {
        LinuxCommand::Fetch { configs, update, json } => (configs, update, json),
        LinuxCommand::BootCost(args) => return boot_cost::boot_cost(args),
    };
    let mut lists: Vec<Vec<String>> = Vec::new();
    for path in configs {
        for image in config::load(path, None)?.images {
            if let ImageSource::Linux(linux) = image
                && !linux.packages.is_empty()
                && !lists.contains(&linux.packages)
            {
                lists.push(linux.packages);
            }
        }
    }
    if *update {
        packages::forget()?;
    }
    let mut figures = Figures::new("linux");
    for (name, kept) in packages::all()? {
        println!("{name:<8} {} {}", kept.package, kept.version);
        println!("{:<8} {} bytes, SHA-256 {}", "", report::grouped(kept.bytes), kept.sha256);
        figures.count(format!("{name}_bytes"), kept.bytes);
    }
    for (number, list) in lists.iter().enumerate() {
        let kept = programs::archive(list)?;
        println!("{:<8} {} ({})", "packages", kept.package, kept.version);
        println!("{:<8} {} bytes, SHA-256 {}", "", report::grouped(kept.bytes), kept.sha256);
        figures.count(format!("packages{number}_bytes"), kept.bytes);
    }
    figures.write(json.as_deref())
}
