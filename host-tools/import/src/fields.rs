//! The fields of other hypervisors' configurations, with their counterparts here and the reasons
//! for having none: the only place that says so.
//!
//! The readers look their reasons up here, and `cargo xtask docs` makes a page of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A field of a foreign configuration.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, as the reader asks for it.
    pub name: &'static str,
    /// Its counterpart, in Markdown; empty if there is none.
    pub here: &'static str,
    /// Why there is none, or what differs.
    pub why: &'static str,
    /// What a user can do about it.
    pub next: &'static str,
}

/// The fields of one system.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The system.
    pub title: &'static str,
    /// Its fields.
    pub rows: &'static [Row],
}

impl Table {
    /// Returns the row of a field.
    pub fn row(&self, name: &str) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// A field that is read; `why` says what differs.
const fn kept(name: &'static str, here: &'static str, why: &'static str) -> Row {
    Row {
        name,
        here,
        why,
        next: "",
    }
}

/// A field without a counterpart.
const fn none(name: &'static str, why: &'static str, next: &'static str) -> Row {
    Row {
        name,
        here: "",
        why,
        next,
    }
}

const NO_SHARED: &str =
    "VMs share a `[[channel]]`, whose doorbell is a call that this hypervisor alone has";
const NO_SHARED_NEXT: &str =
    "write a `[[channel]]` with this memory, and let the guests call by `guest-tools/channel`";
const NO_SMMU: &str = "without the board's SMMU, a device that accesses memory reaches all of it";
const NO_SMMU_NEXT: &str =
    "trust the VM, and give it memory for DMA: `[[vm.region]]` with `dma = true`";
const NO_VIRTIO: &str =
    "there is no virtio back end: each VM has an emulated PL011 and, for Linux, a RAM disk";
const NO_VIRTIO_NEXT: &str = "put what the guest needs into its RAM disk";
const OWN_GIC: &str = "the shipped map with its interrupt distributor; Linux guests get the \
                       addresses in their device trees";

/// Bao's `config.c`.
pub const BAO: Table = Table {
    title: "Bao: `config.c`",
    rows: &[
        kept("config.vmlist", "`[[vm]]`", ""),
        kept("config.vmlist_size", "the number of `[[vm]]`", ""),
        none("config.shmemlist", NO_SHARED, NO_SHARED_NEXT),
        kept("config.shmemlist_size", "none needed", ""),
        kept("config.hyp", "see `hyp.colors`", ""),
        kept("hyp.colors", "`colors` in `[hypervisor]`", ""),
        none(
            "hyp.base_addr",
            "the hypervisor relocates itself to pages of its colors",
            "nothing: the boot loader's address is the board file's matter",
        ),
        none(
            "hyp.relocate",
            "the hypervisor always relocates itself",
            "nothing",
        ),
        kept(
            "vm.image",
            "`file`, `load` in `image`",
            "the path is that of `VM_IMAGE`",
        ),
        kept("vm.entry", "`entry` in `image`", ""),
        kept(
            "vm.cpu_affinity",
            "`cores`",
            "without it, the lowest free cores; each core has one vCPU",
        ),
        kept(
            "vm.colors",
            "`colors` of a `[[pool]]`",
            "0 means all colors",
        ),
        kept("vm.platform", "see below", ""),
        kept("vm.type", "none needed", ""),
        kept("platform.cpu_num", "the number of `cores`", ""),
        kept("platform.regions", "`[[vm.region]]` with `pool`", ""),
        kept("platform.region_num", "none needed", ""),
        kept(
            "platform.devs",
            "`[[vm.region]]` with `device`, and `interrupts`",
            "not those that the hypervisor uses itself",
        ),
        kept("platform.dev_num", "none needed", ""),
        none("platform.ipcs", NO_SHARED, NO_SHARED_NEXT),
        kept("platform.ipc_num", "none needed", ""),
        none("platform.remio_devs", NO_VIRTIO, NO_VIRTIO_NEXT),
        kept("platform.remio_dev_num", "none needed", ""),
        kept("platform.arch", "`[[vm]] map`", OWN_GIC),
        kept(
            "arch.gic",
            "see `platform.arch`",
            "its address tells the board",
        ),
        none(
            "arch.irqc",
            "the guest is for RISC-V, and Cloison runs on AArch64",
            "build the guest for AArch64",
        ),
        none(
            "platform.mmu",
            "every VM has stage-2 translation",
            "nothing, on a Cortex-A",
        ),
        none(
            "platform.console",
            "every VM has an emulated UART where its `map` says, at 0x9000000 without one",
            "name the map that the guest was built for",
        ),
        kept("region.base", "`ipa`", ""),
        kept("region.size", "`size`", "whole pages"),
        kept("region.colors", "`colors` of a `[[pool]]`", ""),
        none(
            "region.place_phys",
            "pools hand out pages by color, wherever they are",
            "use contiguous = true if a device needs contiguous memory",
        ),
        kept("region.phys", "none: see `place_phys`", ""),
        kept("dev.pa", "`device`", ""),
        kept("dev.va", "`ipa`", ""),
        kept("dev.size", "`size`", "whole pages"),
        kept("dev.interrupts", "`interrupts`", "shared ones, 32 to 1019"),
        kept("dev.interrupt_num", "none needed", ""),
        none("dev.id", NO_SMMU, NO_SMMU_NEXT),
    ],
};

/// Cells of Jailhouse.
pub const JAILHOUSE: Table = Table {
    title: "Jailhouse: cells in C",
    rows: &[
        kept("system.signature", "none needed", ""),
        kept("system.revision", "none needed", ""),
        kept("system.architecture", "none needed", ""),
        none(
            "system.flags",
            "the hypervisor's messages and those of all VMs are on one console",
            "nothing",
        ),
        none(
            "system.hypervisor_memory",
            "the hypervisor has its own pages, with its colors",
            "see colors in [hypervisor]",
        ),
        none(
            "system.debug_console",
            "the board file names the console",
            "see [console] in the board file",
        ),
        kept("system.platform_info", "see `platform`", ""),
        kept("system.root_cell", "see `cell`", ""),
        none(
            "platform.pci_mmconfig_base",
            "there is no PCI, neither virtual nor passed through",
            "pass a device's registers through as a region, if it needs no PCI",
        ),
        kept(
            "platform.pci_mmconfig_end_bus",
            "none: see `pci_mmconfig_base`",
            "",
        ),
        kept(
            "platform.pci_is_virtual",
            "none: see `pci_mmconfig_base`",
            "",
        ),
        kept("platform.pci_domain", "none: see `pci_mmconfig_base`", ""),
        kept(
            "platform.color",
            "none needed",
            "the colors follow from the board's cache; memory has no second address",
        ),
        none("platform.iommu_units", NO_SMMU, NO_SMMU_NEXT),
        kept("platform.arm", "`[[vm]] map`", OWN_GIC),
        none(
            "platform.memguard",
            "budgets are per VM, core and event, and are set at run time there",
            "write [[vm.quota]]: docs/coming-from.md has MemGuard's units",
        ),
        none(
            "platform.qos",
            "the interconnect's QoS registers are not used",
            "limit a VM's traffic by [[vm.quota]]",
        ),
        none(
            "platform.fpga",
            "there is no FPGA support",
            "load the bitstream in the boot loader",
        ),
        none(
            "platform.no_spectre_mitigation",
            "there is no such switch",
            "nothing",
        ),
        kept("cell.signature", "none needed", ""),
        kept("cell.revision", "none needed", ""),
        kept("cell.architecture", "none needed", ""),
        kept(
            "cell.name",
            "`name`",
            "at most 16 characters; the root cell is `root`",
        ),
        kept(
            "cell.flags",
            "none needed",
            "VMs neither ask before they stop nor share a console region",
        ),
        kept("cell.cpu_set_size", "none needed", ""),
        kept("cell.rcpu_set_size", "none needed", ""),
        kept("cell.num_memory_regions", "none needed", ""),
        kept("cell.num_memory_regions_colored", "none needed", ""),
        kept("cell.num_cache_regions", "none needed", ""),
        kept("cell.num_irqchips", "none needed", ""),
        kept("cell.num_pci_devices", "none needed", ""),
        kept("cell.num_pci_caps", "none needed", ""),
        kept("cell.num_stream_ids", "none needed", ""),
        kept("cell.num_qos_devices", "none needed", ""),
        kept("cell.num_rcpu_devices", "none needed", ""),
        kept("cell.num_fpga_devices", "none needed", ""),
        kept("cell.fpga_regions_size", "none needed", ""),
        kept("cell.num_pio_regions", "none needed", ""),
        kept("cell.pio_bitmap_size", "none needed", ""),
        none(
            "cell.vpci_irq_base",
            "there are no virtual PCI devices",
            "nothing",
        ),
        kept(
            "cell.cpu_reset_address",
            "`entry` in `image`",
            "0 without it",
        ),
        none(
            "cell.console",
            "every VM has an emulated UART where its `map` says, at 0x9000000 without one",
            "name the map that the inmate was built for",
        ),
        none(
            "cell.msg_reply_timeout",
            "VMs are not asked before they stop",
            "nothing",
        ),
        kept("config.header", "see `system`", ""),
        kept("config.cell", "see `cell`", ""),
        kept(
            "config.cpus",
            "`cores`",
            "the root cell has those that no other cell has",
        ),
        kept("config.mem_regions", "`[[vm.region]]`", ""),
        kept(
            "config.col_mem",
            "`[[vm.region]]` and `[[pool]]`",
            "the first generation of colors",
        ),
        kept(
            "config.cache_regions",
            "`[[pool]]`",
            "ranges of colors for a cell's colored regions, as in the patches for the mainline",
        ),
        kept(
            "config.irqchips",
            "`interrupts`",
            "32 to 1019; not whole words of them",
        ),
        none(
            "config.pci_devices",
            "no device of PCI is handed on, and none is emulated, such as ivshmem",
            "write a `[[link]]` for a network between VMs, and a `[[channel]]` for shared memory",
        ),
        none("config.pci_caps", "there is no PCI", "nothing"),
        none("config.stream_ids", NO_SMMU, NO_SMMU_NEXT),
        none(
            "config.qos_devices",
            "the interconnect's QoS registers are not used",
            "limit a VM's traffic by [[vm.quota]]",
        ),
        none(
            "config.rcpus",
            "only the application cores are partitioned",
            "start remote processors from a VM that has their registers",
        ),
        none(
            "config.rcpu_devices",
            "only the application cores are partitioned",
            "start remote processors from a VM that has their registers",
        ),
        none(
            "config.fpga_regions",
            "there is no FPGA support",
            "load the bitstream in the boot loader",
        ),
        none(
            "config.fpga_devices",
            "there is no FPGA support",
            "load the bitstream in the boot loader",
        ),
        none("config.pio_regions", "Arm has no I/O ports", "nothing"),
        none("config.pio_bitmap", "Arm has no I/O ports", "nothing"),
        none(
            "config.alt_mappings",
            "a region has one set of colors",
            "let the VM migrate pages: [vm.profile]",
        ),
        kept(
            "memory.phys_start",
            "`device` of registers",
            "memory is where the pool's pages are",
        ),
        kept("memory.virt_start", "`ipa`", ""),
        kept("memory.size", "`size`", "whole pages"),
        kept(
            "memory.flags",
            "`execute`; `pool` or `device`",
            "see the list for the others",
        ),
        kept(
            "memory.colors",
            "`colors` of a `[[pool]]`",
            "with `JAILHOUSE_MEM_COLORED`: the second generation",
        ),
        kept("memory.memory", "see `memory`", "of the first generation"),
        none(
            "flag.COMM_REGION",
            "a VM is not asked before it stops, and learns about itself by hypercalls",
            "nothing, if the guest does not read the page",
        ),
        none(
            "flag.AARCH32",
            "guests are AArch64",
            "build the inmate for AArch64",
        ),
        none("flag.ROOTSHARED", NO_SHARED, NO_SHARED_NEXT),
        none(
            "flag.ROOTSHARED_IO",
            "a device belongs to one VM: the root cell does not keep it",
            "nothing, if only one of them uses it",
        ),
        none(
            "flag.all_interrupts",
            "the root cell has all interrupts that no other cell takes; a VM lists its own",
            "add interrupts = [...] for the devices of the VM",
        ),
    ],
};

/// Xen's dom0less device trees.
pub const XEN: Table = Table {
    title: "Xen: dom0less device trees",
    rows: &[
        kept("domain.compatible", "none needed", ""),
        kept("domain.memory", "`size` of a region at 0x40000000", ""),
        kept(
            "domain.cpus",
            "the number of `cores`",
            "the lowest free ones, unless a cpupool names them",
        ),
        kept(
            "domain.llc-colors",
            "`colors` of a `[[pool]]`",
            "all colors without it",
        ),
        kept(
            "domain.colors",
            "`colors` of a `[[pool]]`",
            "a mask in cells: older forks",
        ),
        kept(
            "domain.vpl011",
            "none needed",
            "every VM has an emulated PL011, with interrupt 33",
        ),
        kept("domain.#address-cells", "none needed", ""),
        kept("domain.#size-cells", "none needed", ""),
        kept(
            "domain.xen,static-mem",
            "`size`; with `direct-map`, `ipa`",
            "pages are handed out by color, not by address",
        ),
        kept("domain.#xen,static-mem-address-cells", "none needed", ""),
        kept("domain.#xen,static-mem-size-cells", "none needed", ""),
        none(
            "domain.direct-map",
            "pools hand out pages by color: an IPA is no physical address",
            "use contiguous = true if a device needs contiguous memory",
        ),
        none(
            "domain.xen,enhanced",
            "there are no grant tables, event channels or xenstore",
            "build the guest without PV drivers",
        ),
        none("domain.passthrough", NO_SMMU, NO_SMMU_NEXT),
        kept("domain.domain-cpupool", "`cores`", ""),
        none(
            "domain.nr_spis",
            "a VM has exactly the interrupts that it lists",
            "nothing",
        ),
        none(
            "domain.sve",
            "SVE is not given to VMs",
            "build the guest without it",
        ),
        none(
            "domain.capabilities",
            "no VM is privileged",
            "services = [\"manage\"] lets a VM stop and start others",
        ),
        none(
            "domain.max_grant_version",
            "there are no grant tables",
            "nothing",
        ),
        none(
            "domain.max_grant_frames",
            "there are no grant tables",
            "nothing",
        ),
        none(
            "domain.max_maptrack_frames",
            "there are no grant tables",
            "nothing",
        ),
        none(
            "domain.xen,domain-p2m-mem-mb",
            "stage-2 tables are in pages with the hypervisor's colors",
            "nothing",
        ),
        kept(
            "domain.trap-unmapped-accesses",
            "`on_fault`",
            "such an access is always an abort",
        ),
        none("domain.xen,sci_type", "there is no SCMI for VMs", "nothing"),
        none(
            "domain.xen,static-evtchn",
            "there are no event channels",
            NO_SHARED_NEXT,
        ),
        none(
            "domain.xen,domain-shared-memory-v1",
            NO_SHARED,
            NO_SHARED_NEXT,
        ),
        kept(
            "module.kernel",
            "`kernel` in `image`",
            "a module is an address; name the file with --image",
        ),
        kept("module.ramdisk", "`initrd` in `image`", ""),
        none(
            "module.device-tree",
            "no partial device tree is read from memory",
            "import its source together with this file",
        ),
        none("module.xsm", "there is no XSM policy", "nothing"),
        kept("module.bootargs", "`cmdline` in `image`", ""),
        kept("chosen.xen,xen-bootargs", "see `dom0_mem` and others", ""),
        kept(
            "chosen.xen,dom0-bootargs",
            "`cmdline` in `image` of the first VM",
            "",
        ),
        kept("chosen.bootargs", "the same, for Xen or dom0", ""),
        none(
            "chosen.xen,static-heap",
            "the hypervisor has its own pages, with its colors",
            "nothing",
        ),
        none(
            "chosen.xen,cpupool",
            "each core runs one vCPU: there is no scheduler",
            "nothing",
        ),
        kept("xen.dom0_mem", "`size` of the first VM's memory", ""),
        kept(
            "xen.dom0_max_vcpus",
            "the number of the first VM's `cores`",
            "",
        ),
        kept(
            "xen.dom0-llc-colors",
            "`colors` of a `[[pool]]`",
            "`dom0_colors` in older forks",
        ),
        kept(
            "xen.xen-llc-colors",
            "`colors` in `[hypervisor]`",
            "`xen_colors` in older forks",
        ),
        none(
            "xen.llc-way-size",
            "the board file has the cache's size and ways",
            "compare [cache] in the board file",
        ),
        none(
            "xen.llc-size",
            "the board file has the cache's size and ways",
            "compare [cache] in the board file",
        ),
        none(
            "xen.llc-nr-ways",
            "the board file has the cache's size and ways",
            "compare [cache] in the board file",
        ),
        none(
            "xen.sched",
            "each core runs one vCPU: there is no scheduler",
            "nothing",
        ),
        kept("passthrough.xen,reg", "`[[vm.region]]` with `device`", ""),
        kept("passthrough.interrupts", "`interrupts`", ""),
        none("passthrough.iommus", NO_SMMU, NO_SMMU_NEXT),
        none(
            "passthrough.dma",
            "a device that accesses memory reaches all of it",
            NO_SMMU_NEXT,
        ),
    ],
};

/// Configurations of Xen's ImageBuilder.
pub const IMAGE_BUILDER: Table = Table {
    title: "Xen: ImageBuilder",
    rows: &[
        kept("MEMORY_START", "none needed", "the board file has the RAM"),
        kept("MEMORY_END", "none needed", "the board file has the RAM"),
        kept(
            "DEVICE_TREE",
            "none needed",
            "Cloison makes the guests' device trees",
        ),
        kept("XEN", "none needed", ""),
        kept("XEN_CMD", "see Xen's `dom0_mem` and others", ""),
        kept("XEN_COLORS", "`colors` in `[hypervisor]`", ""),
        kept("DOM0_KERNEL", "`kernel` in `image` of the first VM", ""),
        kept("DOM0_RAMDISK", "`initrd` in `image`", ""),
        kept("DOM0_CMD", "`cmdline` in `image`", ""),
        kept("DOM0_MEM", "`size` of its memory", ""),
        kept("DOM0_VCPUS", "the number of its `cores`", ""),
        kept("DOM0_COLORS", "`colors` of a `[[pool]]`", ""),
        none("DOM0_ROOTFS", "no VM has a disk", NO_VIRTIO_NEXT),
        kept("NUM_DOMUS", "the number of `[[vm]]`", ""),
        kept("DOMU_KERNEL", "`kernel` in `image`", ""),
        kept("DOMU_RAMDISK", "`initrd` in `image`", ""),
        kept("DOMU_CMD", "`cmdline` in `image`", ""),
        kept("DOMU_MEM", "`size` of its memory", "in MiB"),
        kept("DOMU_VCPUS", "the number of `cores`", "1 without it"),
        kept("DOMU_COLORS", "`colors` of a `[[pool]]`", ""),
        kept("DOMU_VCPU_HARD_AFFINITY", "`cores`", ""),
        kept(
            "DOMU_STATIC_MEM",
            "`size`; with `DOMU_DIRECT_MAP`, `ipa`",
            "pages are handed out by color",
        ),
        none(
            "DOMU_DIRECT_MAP",
            "pools hand out pages by color: an IPA is no physical address",
            "use contiguous = true if a device needs contiguous memory",
        ),
        none("DOMU_SHARED_MEM", NO_SHARED, NO_SHARED_NEXT),
        none(
            "DOMU_STATIC_EVTCHNS",
            "there are no event channels",
            NO_SHARED_NEXT,
        ),
        none(
            "DOMU_PASSTHROUGH_DTB",
            "the partial device tree is not here",
            "import its source together with this file",
        ),
        none(
            "DOMU_PASSTHROUGH_PATHS",
            NO_SMMU,
            "write the device as a region with `device`, and its `interrupts`",
        ),
        none("DOMU_ROOTFS", "no VM has a disk", NO_VIRTIO_NEXT),
        none("DOMU_NOBOOT", "every VM starts at boot", "remove the VM"),
        kept(
            "DOMU_VPL011",
            "none needed",
            "every VM has an emulated PL011",
        ),
        none(
            "DOMU_ENHANCED",
            "there are no grant tables, event channels or xenstore",
            "build the guest without PV drivers",
        ),
        none(
            "DOMU_CPUPOOL",
            "each core runs one vCPU: there is no scheduler",
            "nothing",
        ),
        none(
            "CPUPOOL",
            "each core runs one vCPU: there is no scheduler",
            "nothing",
        ),
        none(
            "NUM_CPUPOOLS",
            "each core runs one vCPU: there is no scheduler",
            "nothing",
        ),
        none(
            "XEN_STATIC_HEAP",
            "the hypervisor has its own pages, with its colors",
            "nothing",
        ),
        none("XEN_POLICY", "there is no XSM policy", "nothing"),
        none(
            "DT_OVERLAY",
            "Cloison makes the guests' device trees",
            "nothing",
        ),
        none(
            "BITSTREAM",
            "there is no FPGA support",
            "load the bitstream in the boot loader",
        ),
        none(
            "NUM_BOOT_AUX_FILE",
            "the boot loader loads one file",
            "load others in your own script",
        ),
        none(
            "BOOT_AUX_FILE",
            "the boot loader loads one file",
            "load others in your own script",
        ),
        kept("NUM_DT_OVERLAY", "none needed", ""),
        kept(
            "UBOOT_SOURCE",
            "none needed",
            "`cloison image` writes U-Boot's script",
        ),
        kept(
            "UBOOT_SCRIPT",
            "none needed",
            "`cloison image` writes U-Boot's script",
        ),
        kept("LOAD_CMD", "none needed", ""),
        kept("BOOT_CMD", "none needed", ""),
        kept("APPEND_EXTRA_CMDS", "none needed", ""),
        kept("FDTEDIT", "none needed", ""),
    ],
};

/// hvisor's JSON.
pub const HVISOR: Table = Table {
    title: "hvisor: JSON of zones",
    rows: &[
        kept("zone.arch", "none needed", "arm64 only"),
        kept("zone.name", "`name`", ""),
        kept("zone.zone_id", "the order of `[[vm]]`", ""),
        kept("zone.cpus", "`cores`", ""),
        kept(
            "zone.memory_regions",
            "`[[vm.region]]`",
            "`ram` has a pool, `io` is a device",
        ),
        kept("zone.interrupts", "`interrupts`", ""),
        kept(
            "zone.kernel_filepath",
            "`kernel` or `file` in `image`",
            "a file whose name is not a Linux kernel's is a raw image",
        ),
        kept(
            "zone.kernel_load_paddr",
            "`load` in `image` of a raw image",
            "a Linux kernel is loaded at the start of its memory",
        ),
        kept("zone.entry_point", "`entry` in `image` of a raw image", ""),
        kept("zone.kernel_args", "`cmdline` in `image`", ""),
        none(
            "zone.dtb_filepath",
            "Cloison makes the guest's device tree",
            "name other devices by `compatible` in their regions",
        ),
        kept("zone.dtb_load_paddr", "none: see `dtb_filepath`", ""),
        none("zone.ivc_configs", NO_SHARED, NO_SHARED_NEXT),
        none(
            "zone.pci_config",
            "there is no PCI",
            "pass a device's registers through as a region, if it needs no PCI",
        ),
        none("zone.num_pci_devs", "there is no PCI", "nothing"),
        none("zone.alloc_pci_devs", "there is no PCI", "nothing"),
        kept("zone.arch_config", "`[[vm]] map`", OWN_GIC),
        kept("zone.version", "none needed", ""),
        none("memory.virtio", NO_VIRTIO, NO_VIRTIO_NEXT),
        kept("memory.type", "`pool` or `device`", ""),
        kept(
            "memory.physical_start",
            "`device` of registers",
            "memory is where the pool's pages are",
        ),
        kept("memory.virtual_start", "`ipa`", ""),
        kept("memory.size", "`size`", "whole pages"),
        none(
            "zones",
            "there is no virtio back end: a console is emulated, disks and networks are not",
            NO_VIRTIO_NEXT,
        ),
    ],
};

/// All tables, in the order of the page.
pub const TABLES: [Table; 5] = [BAO, JAILHOUSE, XEN, IMAGE_BUILDER, HVISOR];
