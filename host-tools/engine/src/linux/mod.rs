//! Linux guests: Debian's unmodified kernels, an initial RAM disk, and a device tree made from the
//! configuration.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`packages`] | downloads kernels and busybox as Debian packages, and keeps them |
//! | [`device_tree`] | describes a VM to its kernel |
//! | [`initramfs`] | builds the RAM disk: busybox and a first process |
//! | [`modules`] | adds modules of the kernel for links and channels |
//! | [`programs`] | adds programs of other Debian packages, with their libraries |
//! | [`shell`] | types commands into a guest's shell and reads the results |
// SPDX-License-Identifier: MIT OR Apache-2.0

mod archive;
pub mod device_tree;
pub mod initramfs;
pub mod modules;
pub mod packages;
pub mod programs;
pub mod shell;

use self::device_tree::Around;
use crate::files;
use cloison_config::guest_linux::{KernelSource, Linux};
use cloison_config::kernel::Kernel;
use cloison_config::layout::Layout;
use cloison_formats::image::{Module, Vm};
use miette::{Result, WrapErr, miette};

/// What the first process (`init.sh`) prints before the status of the configuration's command.
pub const COMMAND_ENDED: &str = "cloison: the command ended with status ";

/// The parts of a Linux guest, ready to be loaded: their bytes and addresses.
#[derive(Clone, Debug)]
pub struct GuestFiles {
    /// The kernel.
    pub kernel: Vec<u8>,
    /// The initial RAM disk.
    pub initrd: Vec<u8>,
    /// The device tree.
    pub device_tree: Vec<u8>,
    /// Load addresses of the parts.
    pub layout: Layout,
}

/// Gets a VM's kernel and RAM disk, downloads missing parts, and builds its device tree.
pub fn load(linux: &Linux, vm: &Vm, around: &Around) -> Result<GuestFiles> {
    let path = match &linux.kernel {
        KernelSource::Debian(flavor) => {
            packages::kernel(linux.release, *flavor, packages::Cached::Use)?.path
        }
        KernelSource::File(path) => path.clone(),
    };
    let bytes = files::read(&path, files::IMAGE)?;
    let parsed = Kernel::parse(&bytes).map_err(|error| miette!("{}: {error}", path.display()))?;
    let initrd = match &linux.initrd {
        Some(path) => files::read(path, files::IMAGE)?,
        None => initramfs::build(linux, around)
            .wrap_err_with(|| miette!("VM `{}`: its RAM disk cannot be made", vm.name))?,
    };
    let layout = Layout::new(linux, vm, parsed, initrd.len() as u64).map_err(|error| {
        miette!(
            help = "give the VM a larger region",
            "VM `{}`: {error}",
            vm.name
        )
    })?;
    let device_tree = device_tree::of_linux(linux, vm, around, layout.initrd)?;
    Ok(GuestFiles {
        kernel: bytes,
        initrd,
        device_tree,
        layout,
    })
}

impl GuestFiles {
    /// Makes `vm` start with these parts, which are at `offsets` (kernel, RAM disk, device tree) in
    /// the payload.
    pub fn install(&self, vm: &mut Vm, offsets: [u32; 3]) {
        let Layout {
            kernel,
            initrd,
            device_tree,
        } = self.layout;
        let [kernel_at, initrd_at, device_tree_at] = offsets;
        vm.image.offset = kernel_at;
        vm.image.len = self.kernel.len() as u32;
        vm.image.load = kernel.0;
        vm.image.entry = kernel.0;
        vm.modules = vec![
            Module {
                offset: initrd_at,
                len: self.initrd.len() as u32,
                load: initrd.0,
            },
            Module {
                offset: device_tree_at,
                len: self.device_tree.len() as u32,
                load: device_tree.0,
            },
        ];
        // The boot protocol (Documentation/arch/arm64/booting.rst) requires the device tree in x0,
        // and x1 to x3 to be 0.
        vm.args = [device_tree.0.0, 0, 0, 0];
    }
}
