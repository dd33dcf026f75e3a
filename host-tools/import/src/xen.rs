//! Reads Xen's dom0less device trees, and what ImageBuilder's configurations share with them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::c::Settings;
use crate::draft::{Backing, Colors, Cores, Draft, DraftImage, DraftRegion, DraftVm, Interrupt};
use crate::fields::XEN;
use crate::image_builder;
use crate::source::{Failure, Place, Sources};
use crate::tree::{self, Node, Property};
use crate::xen_domain::{CommandLine, Kernel, colors, memory};
use cloison_abi::map;
use cloison_config::Foreign;
use std::collections::HashMap;
use std::path::PathBuf;

/// The interrupt controllers whose first address is the distributor's.
const CONTROLLERS: [&str; 4] = [
    "arm,gic-400",
    "arm,cortex-a15-gic",
    "arm,cortex-a9-gic",
    "arm,gic-v3",
];

/// Reads a system: device trees, of which one has the domains and others what they are given.
///
/// # Errors
///
/// Returns the first mistake that leaves no configuration.
pub fn read(
    sources: &mut Sources,
    files: &[(u16, Foreign)],
    settings: &Settings,
) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    let mut partial = Vec::new();
    for (file, kind) in files {
        if *kind == Foreign::ImageBuilder {
            alone(sources, &draft, *file)?;
            draft = image_builder::read(sources, *file)?;
            continue;
        }
        let root = tree::read(sources, *file, settings)?;
        let sources = &*sources;
        if let Some(passed) = root.child("passthrough") {
            let stem = sources.path(*file).file_stem().unwrap_or_default();
            partial.push((stem.to_string_lossy().into_owned(), passed.clone()));
            continue;
        }
        let stem = sources.path(*file).file_stem().unwrap_or_default();
        alone(sources, &draft, *file)?;
        draft.name = stem.to_string_lossy().into_owned();
        let Some(chosen) = root.child("chosen") else {
            return Err(sources
                .error(
                    tree::start(sources, *file),
                    "chosen",
                    "the device tree has no node /chosen",
                )
                .help("Xen's domains are nodes of /chosen: import the tree that has them")
                .into());
        };
        let mut reader = Reader {
            sources,
            draft: &mut draft,
            pools: HashMap::new(),
        };
        reader.machine(&root);
        reader.chosen(chosen)?;
        if reader.draft.vms.is_empty() {
            return Err(sources
                .error(
                    chosen.place,
                    "chosen",
                    "/chosen has neither a domain nor a kernel for dom0",
                )
                .help("a domain is a node with compatible = \"xen,domain\"")
                .into());
        }
    }
    for (name, passed) in partial {
        pass_through(&mut draft, &name, &passed);
    }
    Ok(draft)
}

/// Checks that no other file has described the domains.
fn alone(sources: &Sources, draft: &Draft, file: u16) -> Result<(), Failure> {
    if draft.vms.is_empty() {
        return Ok(());
    }
    Err(sources
        .error(
            tree::start(sources, file),
            "system",
            "another file has described the domains already",
        )
        .help("import each system alone; partial device trees may be beside it")
        .into())
}

struct Reader<'a> {
    sources: &'a Sources,
    draft: &'a mut Draft,
    /// The cores of cpupools, by label.
    pools: HashMap<String, u64>,
}

/// What a domain runs.
#[derive(Default)]
struct Modules {
    kernel: Option<PathBuf>,
    ramdisk: Option<PathBuf>,
    bootargs: Option<String>,
}

impl Reader<'_> {
    fn note_row(&mut self, place: Place, subject: &str, row: &str) {
        self.draft.note_field(&XEN, row, place, subject);
    }

    /// Finds the interrupt distributor and the cores of cpupools.
    fn machine(&mut self, root: &Node) {
        let mut cores: HashMap<String, u64> = HashMap::new();
        let mut addresses = Vec::new();
        let mut pools: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        root.walk(None, &mut |node, parent| {
            if node.base() == "cpu"
                && let Some(reg) = node.property("reg").and_then(Property::number)
            {
                for label in &node.labels {
                    cores.insert(label.clone(), reg & 0xff);
                }
            }
            if node.is_compatible(&CONTROLLERS)
                && let Some(reg) = node.property("reg")
            {
                let width = parent.map_or(2, |parent| parent.cells_of("#address-cells", 2));
                addresses.extend(tree::take(&mut reg.cells().as_slice(), width));
            }
            if node.is_compatible(&["xen,cpupool"])
                && let Some(cpus) = node.property("cpupool-cpus")
            {
                pools.push((node.labels.clone(), cpus.references.clone()));
            }
        });
        self.draft.distributors = addresses;
        for (labels, members) in pools {
            let mask = members
                .iter()
                .filter_map(|member| cores.get(member))
                .fold(0, |mask, core| {
                    mask | 1_u64.checked_shl(*core as u32).unwrap_or(0)
                });
            self.pools
                .extend(labels.into_iter().map(|label| (label, mask)));
        }
    }

    fn chosen(&mut self, chosen: &Node) -> Result<(), Failure> {
        let dom0 = self.modules(chosen, "dom0");
        let own = chosen.property("xen,xen-bootargs");
        let line = own.or(chosen.property("bootargs"));
        if let Some(property) = chosen.property("xen,static-heap") {
            self.note_row(property.place, "xen,static-heap", "chosen.xen,static-heap");
        }
        let words = line
            .map(|line| (line.text(), line.place))
            .unwrap_or_default();
        let xen = CommandLine::read(self.draft, self.sources, &words.0, words.1)?;
        if dom0.kernel.is_some() || xen.has_dom0 {
            let bootargs = chosen
                .property("xen,dom0-bootargs")
                .or_else(|| own.and(chosen.property("bootargs")))
                .map(Property::text)
                .or(dom0.bootargs.clone());
            xen.push_dom0(self.draft, dom0, bootargs, chosen.place);
        }
        for node in &chosen.children {
            if node.is_compatible(&["xen,domain"]) {
                self.domain(node)?;
            } else if node.is_compatible(&["xen,cpupool"]) {
                self.note_row(node.place, &node.name, "chosen.xen,cpupool");
            }
        }
        Ok(())
    }

    /// Reads the modules directly in a node. A module is an address, so its file is named after
    /// its domain, unless the firmware is told one.
    fn modules(&mut self, node: &Node, domain: &str) -> Modules {
        let mut modules = Modules::default();
        for module in &node.children {
            let file = |what: &str| {
                let named = module.property("xen,uefi-binary").map(Property::text);
                PathBuf::from(named.unwrap_or_else(|| format!("{domain}-{what}")))
            };
            if module.is_compatible(&["multiboot,kernel", "xen,linux-zimage"]) {
                modules.kernel = Some(file("kernel"));
                modules.bootargs = module.property("bootargs").map(Property::text);
            } else if module.is_compatible(&["multiboot,ramdisk", "xen,linux-initrd"]) {
                modules.ramdisk = Some(file("ramdisk"));
            } else if module.is_compatible(&["multiboot,device-tree"]) {
                self.note_row(module.place, &module.name, "module.device-tree");
            } else if module.is_compatible(&["xen,xsm-policy"]) {
                self.note_row(module.place, &module.name, "module.xsm");
            } else if module.is_compatible(&["xen,domain-shared-memory-v1"]) {
                self.note_row(
                    module.place,
                    &module.name,
                    "domain.xen,domain-shared-memory-v1",
                );
            } else if module.is_compatible(&["xen,evtchn-v1"]) {
                self.note_row(module.place, &module.name, "domain.xen,static-evtchn");
            } else if module.is_compatible(&["multiboot,module", "xen,multiboot-module"]) {
                // Without a kind, the first is the kernel and the second the RAM disk.
                if modules.kernel.is_none() {
                    modules.kernel = Some(file("kernel"));
                    modules.bootargs = module.property("bootargs").map(Property::text);
                } else if modules.ramdisk.is_none() {
                    modules.ramdisk = Some(file("ramdisk"));
                }
            }
        }
        modules
    }

    fn domain(&mut self, node: &Node) -> Result<(), Failure> {
        for property in &node.properties {
            let (name, place) = (property.name.clone(), property.place);
            let is_off = match name.as_str() {
                "passthrough" | "xen,enhanced" => property.text() == "disabled",
                "sve" => property.number() == Some(0),
                _ => false,
            };
            if !is_off {
                let subject = format!("{}.{name}", node.name);
                self.note_row(place, &subject, &format!("domain.{name}"));
            }
        }
        let modules = self.modules(node, &node.name);
        let colors = match node.property("llc-colors") {
            Some(property) => Some(colors(self.sources, &property.text(), property.place)?),
            None => node.property("colors").and_then(|property| {
                let mask = property.number()?;
                let place = property.place;
                (mask != 0).then_some(Colors { mask, place })
            }),
        };
        let count = node
            .property("cpus")
            .and_then(Property::number)
            .unwrap_or(1);
        let pool = node
            .property("domain-cpupool")
            .and_then(|property| self.pools.get(property.references.first()?));
        let regions = domain_memory(node, colors);
        self.draft.vms.push(DraftVm {
            // A kernel finds it in its device tree.
            distributor: None,
            name: node.name.clone(),
            place: node.place,
            cores: pool.map_or(Cores::Some(count), |mask| Cores::SomeOf(count, *mask)),
            regions,
            interrupts: Vec::new(),
            image: DraftImage::Kernel {
                path: modules
                    .kernel
                    .unwrap_or_else(|| PathBuf::from(format!("{}-kernel", node.name))),
                initrd: modules.ramdisk,
                cmdline: modules.bootargs.unwrap_or_default(),
            },
            remarks: Vec::new(),
        });
        Ok(())
    }
}

/// Returns a domain's memory: at the usual place, or where it is if the domain knows that.
fn domain_memory(node: &Node, colors: Option<Colors>) -> Vec<DraftRegion> {
    let is_direct = node.property("direct-map").is_some();
    if let Some(fixed) = node.property("xen,static-mem") {
        let address = node.cells_of(
            "#xen,static-mem-address-cells",
            node.cells_of("#address-cells", 2),
        );
        let size = node.cells_of(
            "#xen,static-mem-size-cells",
            node.cells_of("#size-cells", 2),
        );
        let cells = fixed.cells();
        let mut rest = cells.as_slice();
        let mut regions: Vec<DraftRegion> = Vec::new();
        let mut next = map::RAM;
        while let (Some(start), Some(size)) =
            (tree::take(&mut rest, address), tree::take(&mut rest, size))
        {
            let ipa = if is_direct { start } else { next };
            next = next.saturating_add(size);
            regions.push(memory(fixed.place, ipa, size, colors));
            if size == 0 {
                break;
            }
        }
        return regions;
    }
    let Some(property) = node.property("memory") else {
        return Vec::new();
    };
    let kilobytes = property.number().unwrap_or(0);
    vec![memory(
        property.place,
        map::RAM,
        kilobytes.saturating_mul(1024),
        colors,
    )]
}

impl From<Modules> for Kernel {
    fn from(modules: Modules) -> Self {
        Self {
            kernel: modules
                .kernel
                .unwrap_or_else(|| PathBuf::from("dom0-kernel")),
            ramdisk: modules.ramdisk,
        }
    }
}

/// Gives a VM the devices of a partial device tree.
fn pass_through(draft: &mut Draft, file: &str, passed: &Node) {
    let is_of = |vm: &&DraftVm| vm.name != "dom0";
    let named = draft
        .vms
        .iter()
        .position(|vm| vm.name.eq_ignore_ascii_case(file));
    let first = draft.vms.iter().position(|vm| is_of(&vm));
    let Some(index) = named.or(first) else {
        return;
    };
    let address = passed.cells_of("#address-cells", 2);
    let size = passed.cells_of("#size-cells", 2);
    let mut nodes = Vec::new();
    passed.walk(None, &mut |node, _| nodes.push(node));
    for node in nodes {
        let mut region = None;
        if let Some(reg) = node.property("xen,reg") {
            let cells = reg.cells();
            let mut rest = cells.as_slice();
            while let (Some(pa), Some(size), Some(ipa)) = (
                tree::take(&mut rest, address),
                tree::take(&mut rest, size),
                tree::take(&mut rest, address),
            ) {
                if size == 0 {
                    break;
                }
                let vm = &mut draft.vms[index];
                region = Some(vm.regions.len());
                vm.regions.push(DraftRegion {
                    name: Some(node.base().to_owned()),
                    place: reg.place,
                    ipa,
                    size,
                    backing: Backing::Device(pa),
                    execute: true,
                });
            }
        }
        if let (Some(property), Some(region)) = (node.property("interrupts"), region) {
            for chunk in property.cells().chunks_exact(3) {
                let number = chunk[1].saturating_add(if chunk[0] == 0 { 32 } else { 16 });
                draft.vms[index].interrupts.push(Interrupt {
                    number,
                    place: property.place,
                    region: Some(region),
                });
            }
        }
        let subject = node.name.clone();
        if let Some(property) = node.property("iommus") {
            draft.note_field(&XEN, "passthrough.iommus", property.place, &subject);
        } else if let Some(property) = node.property("xen,path") {
            draft.note_field(&XEN, "passthrough.dma", property.place, &subject);
        }
    }
}
