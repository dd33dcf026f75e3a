//! The device tree of a guest, from its map and the configuration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::modules::Set;
use cloison_abi::{irq, page};
use cloison_config::guest_linux::{Described, Linux, Property, Shown, with_default};
use cloison_config::layout::DEVICE_TREE_ROOM;
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::channel::Rights;
use cloison_formats::guest_map::{GuestMap, GuestUart, GuestUartKind};
use cloison_formats::ids::{Intid, VmId};
use cloison_formats::image::{Backing, GicVersion, GuestPmu, Region, System, Vm};
use cloison_formats::link::LinkEnd;
use miette::{Result, miette};
use vm_fdt::{Error, FdtWriter, FdtWriterNode};

/// Handles by which nodes refer to each other.
const GIC: u32 = 1;
const CLOCK: u32 = 2;

/// Interrupt specifiers of the GIC's binding: kind; level-sensitive, active high.
const SPI: u32 = 0;
const PPI: u32 = 1;
const LEVEL_HIGH: u32 = 4;

/// The architected timers' PPIs: secure, non-secure physical, virtual, hypervisor. The VM has only
/// the virtual one; the binding requires all four.
const TIMERS: [u32; 4] = [29, 30, irq::VTIMER, 26];
/// Declared frequency of the emulated UART's clock, in Hz. It has no effect.
const UART_CLOCK: u32 = 24_000_000;

/// The property of the services page's node that has the ceilings of the budgets that the VM may
/// set. `cloison-client` reads it.
const CEILINGS: &str = "cloison,ceilings";

/// What a VM's device tree says of the rest of its system.
#[derive(Clone, Debug, PartialEq)]
pub struct Around {
    /// The board's interrupt controller.
    gic: GicVersion,
    ceilings: Ceilings,
    /// The devices of its links.
    links: Vec<LinkEnd>,
    /// Where it sees channels, and how many pages they have.
    channels: Vec<(Ipa, u32)>,
}

impl Around {
    /// Returns what surrounds the VM with this number.
    pub fn of(system: &System, vm: VmId) -> Self {
        let ends = system.links_of(vm).map(|(_, link, end)| link.ends[end]);
        let channels = system
            .channels_of(vm)
            .filter(|(_, member)| member.rights != Rights::None)
            .map(|(channel, member)| (member.ipa, channel.pages));
        Self {
            gic: system.board.gic.version(),
            ceilings: Ceilings::of(system, &system.vms[vm.index()]),
            links: ends.collect(),
            channels: channels.collect(),
        }
    }

    /// Returns the modules of Debian's kernels that the VM needs for its links and channels, and for
    /// the devices that are passed through to it.
    pub fn modules(&self, linux: &Linux) -> Vec<Set> {
        let shares = !self.links.is_empty() || !self.channels.is_empty();
        let is_driven = |set: Set| {
            let mut devices = linux.tree.shown.iter().filter_map(|shown| match shown {
                Shown::Device(device) => Some(&device.compatible),
                _ => None,
            });
            devices.any(|names| names.iter().any(|name| set.drives(name)))
        };
        let mut sets = Set::ALL.to_vec();
        sets.retain(|set| is_driven(*set) || *set == Set::Shared && shares);
        sets
    }
}

/// The ceilings of the budgets that a VM may set: the other VM, its quota and the ceiling in events,
/// each as a cell. No call returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ceilings(Vec<u32>);

impl Ceilings {
    /// Returns those of the VMs that `vm` regulates.
    fn of(system: &System, vm: &Vm) -> Self {
        let regulated = (0u32..)
            .zip(&system.vms)
            .filter(|(number, _)| vm.regulates >> number & 1 != 0);
        let cells = regulated.flat_map(|(number, other)| {
            (0u32..).zip(&other.quotas).flat_map(move |(index, quota)| {
                // A checked system has no ceiling of more than 32 bits.
                [number, index, quota.ceiling.0.min(u32::MAX.into()) as u32]
            })
        });
        Self(cells.collect())
    }
}

/// Builds the device tree of a Linux guest, with its RAM disk at this address and with this length.
pub fn of_linux(linux: &Linux, vm: &Vm, around: &Around, initrd: (Ipa, u64)) -> Result<Vec<u8>> {
    build(
        &Described {
            cmdline: command_line(linux, &vm.name),
            ..linux.tree.clone()
        },
        vm,
        around,
        Some(initrd),
    )
}

/// Builds a device tree.
pub fn build(
    described: &Described,
    vm: &Vm,
    around: &Around,
    initrd: Option<(Ipa, u64)>,
) -> Result<Vec<u8>> {
    let tree = write(described, vm, around, initrd)
        .map_err(|error| miette!("the device tree of VM `{}`: {error}", vm.name))?;
    if tree.len() as u64 > DEVICE_TREE_ROOM {
        return Err(miette!(
            "the device tree of VM `{}` has {} bytes, and there is room for {DEVICE_TREE_ROOM}",
            vm.name,
            tree.len()
        ));
    }
    Ok(tree)
}

fn write(
    described: &Described,
    vm: &Vm,
    around: &Around,
    initrd: Option<(Ipa, u64)>,
) -> Result<Vec<u8>, Error> {
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_string("compatible", "cloison,vm")?;
    fdt.property_string("model", &format!("Cloison VM {}", vm.name))?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", GIC)?;
    chosen(&mut fdt, described, &vm.map.uart, initrd)?;
    memory(&mut fdt, described, &vm.regions)?;
    cpus(&mut fdt, described, vm.cores.len())?;
    let psci = fdt.begin_node("psci")?;
    fdt.property_string_list(
        "compatible",
        vec!["arm,psci-1.0".into(), "arm,psci-0.2".into()],
    )?;
    fdt.property_string("method", "hvc")?;
    fdt.end_node(psci)?;
    devices(&mut fdt, &vm.map, vm.cores.len(), around.gic)?;
    passed_through(&mut fdt, described, &vm.regions)?;
    for link in &around.links {
        virtio(&mut fdt, link)?;
    }
    for &(ipa, pages) in &around.channels {
        shared_memory(&mut fdt, ipa, pages)?;
    }
    if vm.services_page {
        let node = fdt.begin_node(&format!("services@{:x}", vm.map.services.0))?;
        fdt.property_string("compatible", page::COMPATIBLE)?;
        fdt.property_array_u64("reg", &[vm.map.services.0, PAGE_SIZE])?;
        if !around.ceilings.0.is_empty() {
            fdt.property_array_u32(CEILINGS, &around.ceilings.0)?;
        }
        fdt.end_node(node)?;
    }
    if vm.pmu != GuestPmu::None {
        pmu(&mut fdt, described, vm)?;
    }
    fdt.end_node(root)?;
    fdt.finish()
}

/// Returns the command line with what a guest is told unless the configuration says otherwise: the
/// VM's name as its host name, and not to test its cryptography. Debian's kernels do that at each
/// boot, which takes them twice as long as all the rest; the kernel's own default is not to.
pub fn command_line(linux: &Linux, vm: &str) -> String {
    let line = with_default(&linux.tree.cmdline, "cryptomgr.notests=1");
    with_default(&line, &format!("hostname={vm}"))
}

fn chosen(
    fdt: &mut FdtWriter,
    described: &Described,
    uart: &GuestUart,
    initrd: Option<(Ipa, u64)>,
) -> Result<(), Error> {
    let node = fdt.begin_node("chosen")?;
    if !described.cmdline.is_empty() {
        fdt.property_string("bootargs", &described.cmdline)?;
    }
    fdt.property_string("stdout-path", &format!("/serial@{:x}", uart.base.0))?;
    if let Some((start, len)) = initrd.filter(|(_, len)| *len > 0) {
        fdt.property_u64("linux,initrd-start", start.0)?;
        fdt.property_u64("linux,initrd-end", start.0 + len)?;
    }
    fdt.end_node(node)
}

/// Returns where the guest sees a region, and its length.
fn reg(region: &Region) -> [u64; 2] {
    [region.ipa.0, u64::from(region.pages) * PAGE_SIZE]
}

fn memory(fdt: &mut FdtWriter, described: &Described, regions: &[Region]) -> Result<(), Error> {
    let of = |wanted: Shown| {
        let is_ram = |region: &&Region| !matches!(region.backing, Backing::Device(_));
        let shown = |index: usize| described.shown.get(index).cloned().unwrap_or_default();
        regions
            .iter()
            .enumerate()
            .filter(move |(index, _)| shown(*index) == wanted)
            .map(|(_, r)| r)
            .filter(is_ram)
    };
    for region in of(Shown::Memory).chain(of(Shown::Reserved)) {
        let node = fdt.begin_node(&format!("memory@{:x}", region.ipa.0))?;
        fdt.property_string("device_type", "memory")?;
        fdt.property_array_u64("reg", &reg(region))?;
        fdt.end_node(node)?;
    }
    if of(Shown::Reserved).next().is_some() {
        let parent = fdt.begin_node("reserved-memory")?;
        fdt.property_u32("#address-cells", 2)?;
        fdt.property_u32("#size-cells", 2)?;
        fdt.property_null("ranges")?;
        for region in of(Shown::Reserved) {
            let node = fdt.begin_node(&format!("{}@{:x}", region.name, region.ipa.0))?;
            fdt.property_array_u64("reg", &reg(region))?;
            fdt.property_null("no-map")?;
            fdt.end_node(node)?;
        }
        fdt.end_node(parent)?;
    }
    Ok(())
}

fn cpus(fdt: &mut FdtWriter, described: &Described, count: usize) -> Result<(), Error> {
    let parent = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    // The affinity of a vCPU is its number.
    for vcpu in 0..count as u32 {
        let node = fdt.begin_node(&format!("cpu@{vcpu:x}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_string("compatible", &format!("arm,{}", described.cpu))?;
        fdt.property_u32("reg", vcpu)?;
        fdt.property_string("enable-method", "psci")?;
        fdt.end_node(node)?;
    }
    fdt.end_node(parent)
}

/// Returns the specifier of a private interrupt of all vCPUs.
fn ppi(irq: Intid, vcpus: usize) -> [u32; 3] {
    let cpu_mask = ((1u32 << vcpus) - 1) << 8;
    [PPI, irq.0 - 16, cpu_mask | LEVEL_HIGH]
}

/// Adds the PMU. Without an interrupt the kernel can count but not sample.
fn pmu(fdt: &mut FdtWriter, described: &Described, vm: &Vm) -> Result<(), Error> {
    let node = fdt.begin_node("pmu")?;
    fdt.property_string_list(
        "compatible",
        vec![
            format!("arm,{}-pmu", described.cpu),
            "arm,armv8-pmuv3".into(),
        ],
    )?;
    if let Some(irq) = vm.pmu_irq(described.pmu_irq) {
        fdt.property_array_u32("interrupts", &ppi(irq, vm.cores.len()))?;
    }
    fdt.end_node(node)
}

/// Adds the board's devices that the VM owns, with the clock that Arm PrimeCell drivers require.
fn passed_through(
    fdt: &mut FdtWriter,
    described: &Described,
    regions: &[Region],
) -> Result<(), Error> {
    let bus = begin_bus(fdt, regions)?;
    let mut handle = CLOCK + 1;
    for (region, shown) in regions.iter().zip(&described.shown) {
        let Shown::Device(device) = shown else {
            continue;
        };
        let first = handle;
        for (name, hz) in &device.clocks {
            clock(fdt, &format!("{}-{name}", region.name), *hz, handle)?;
            handle += 1;
        }
        let node = fdt.begin_node(&format!("{}@{:x}", region.name, region.ipa.0))?;
        fdt.property_string_list("compatible", device.compatible.clone())?;
        fdt.property_array_u64("reg", &reg(region))?;
        let irqs = device.interrupts.iter();
        let irqs: Vec<u32> = irqs.flat_map(|irq| [SPI, irq.0 - 32, LEVEL_HIGH]).collect();
        if !irqs.is_empty() {
            fdt.property_array_u32("interrupts", &irqs)?;
        }
        if !device.clocks.is_empty() {
            let handles: Vec<u32> = (first..handle).collect();
            fdt.property_array_u32("clocks", &handles)?;
            let names = device.clocks.iter().map(|(name, _)| name.clone());
            fdt.property_string_list("clock-names", names.collect())?;
        } else if device.compatible.iter().any(|name| name == "arm,primecell") {
            fdt.property_u32("clocks", CLOCK)?;
            fdt.property_string("clock-names", "apb_pclk")?;
        }
        for (name, value) in &device.properties {
            match value {
                Property::There => fdt.property_null(name)?,
                Property::Texts(texts) => fdt.property_string_list(name, texts.clone())?,
                Property::Cells(cells) => fdt.property_array_u32(name, cells)?,
            }
        }
        fdt.end_node(node)?;
    }
    match bus {
        Some(bus) => fdt.end_node(bus),
        None => Ok(()),
    }
}

/// Begins the bus of the devices of a VM that has memory for DMA: they reach nothing else, so that
/// Linux copies what they read or write elsewhere into and out of that memory (swiotlb).
fn begin_bus(fdt: &mut FdtWriter, regions: &[Region]) -> Result<Option<FdtWriterNode>, Error> {
    let memory = regions.iter().filter(|it| it.backing == Backing::Direct);
    let ranges: Vec<u64> = memory
        .flat_map(|region| {
            let [start, len] = reg(region);
            [start, start, len]
        })
        .collect();
    if ranges.is_empty() {
        return Ok(None);
    }
    let bus = fdt.begin_node("bus")?;
    fdt.property_string("compatible", "simple-bus")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_null("ranges")?;
    fdt.property_array_u64("dma-ranges", &ranges)?;
    Ok(Some(bus))
}

/// Adds a clock that nothing changes.
fn clock(fdt: &mut FdtWriter, name: &str, hz: u32, handle: u32) -> Result<(), Error> {
    let clock = fdt.begin_node(name)?;
    fdt.property_string("compatible", "fixed-clock")?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_u32("clock-frequency", hz)?;
    fdt.property_phandle(handle)?;
    fdt.end_node(clock)
}

fn devices(
    fdt: &mut FdtWriter,
    map: &GuestMap,
    vcpus: usize,
    version: GicVersion,
) -> Result<(), Error> {
    let gic = fdt.begin_node(&format!("interrupt-controller@{:x}", map.gicd.0))?;
    if version == GicVersion::V3 {
        fdt.property_string("compatible", "arm,gic-v3")?;
        let redistributors = (vcpus as u64) << 17;
        fdt.property_array_u64("reg", &[map.gicd.0, 1 << 16, map.gicc.0, redistributors])?;
    } else {
        // Software for QEMU and KVM looks for the second name only.
        fdt.property_string_list(
            "compatible",
            vec!["arm,gic-400".into(), "arm,cortex-a15-gic".into()],
        )?;
        // The CPU interface to its last page, that of GICC_DIR.
        let interface = map.gicc_dir.page(1).0.saturating_sub(map.gicc.0);
        fdt.property_array_u64("reg", &[map.gicd.0, PAGE_SIZE, map.gicc.0, interface])?;
    }
    fdt.property_u32("#interrupt-cells", 3)?;
    fdt.property_u32("#address-cells", 0)?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_phandle(GIC)?;
    fdt.end_node(gic)?;

    let timer = fdt.begin_node("timer")?;
    fdt.property_string("compatible", "arm,armv8-timer")?;
    let interrupts: Vec<u32> = TIMERS
        .iter()
        .flat_map(|&irq| ppi(Intid(irq), vcpus))
        .collect();
    fdt.property_array_u32("interrupts", &interrupts)?;
    fdt.property_null("always-on")?;
    fdt.end_node(timer)?;

    clock(fdt, "uart-clock", UART_CLOCK, CLOCK)?;
    serial(fdt, &map.uart)
}

/// Adds the device of a link.
fn virtio(fdt: &mut FdtWriter, link: &LinkEnd) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("virtio_mmio@{:x}", link.ipa.0))?;
    fdt.property_string("compatible", "virtio,mmio")?;
    fdt.property_array_u64("reg", &[link.ipa.0, PAGE_SIZE])?;
    fdt.property_array_u32("interrupts", &[SPI, link.irq.0 - 32, LEVEL_HIGH])?;
    fdt.property_null("dma-coherent")?;
    fdt.end_node(node)
}

/// Adds the memory of a channel, by Linux's binding for memory that a driver maps with its caches.
fn shared_memory(fdt: &mut FdtWriter, ipa: Ipa, pages: u32) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("channel@{:x}", ipa.0))?;
    fdt.property_string("compatible", "pmem-region")?;
    fdt.property_array_u64("reg", &[ipa.0, u64::from(pages) * PAGE_SIZE])?;
    fdt.property_null("volatile")?;
    fdt.end_node(node)
}

/// Adds the emulated UART. Linux's drivers look for the last name of each kind.
fn serial(fdt: &mut FdtWriter, uart: &GuestUart) -> Result<(), Error> {
    let (compatible, clocks) = match uart.kind {
        GuestUartKind::Pl011 => (["arm,pl011", "arm,primecell"], ["uartclk", "apb_pclk"]),
        GuestUartKind::Cadence => (["cdns,uart-r1p12", "xlnx,xuartps"], ["uart_clk", "pclk"]),
    };
    let list = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let node = fdt.begin_node(&format!("serial@{:x}", uart.base.0))?;
    fdt.property_string_list("compatible", list(compatible))?;
    fdt.property_array_u64("reg", &[uart.base.0, PAGE_SIZE])?;
    fdt.property_array_u32("interrupts", &[SPI, uart.irq.0 - 32, LEVEL_HIGH])?;
    fdt.property_array_u32("clocks", &[CLOCK, CLOCK])?;
    fdt.property_string_list("clock-names", list(clocks))?;
    fdt.end_node(node)
}
