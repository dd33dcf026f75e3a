//! Guest maps: `configs/maps/<name>.toml`, which say where a VM's emulated devices are.
//!
//! docs/configuration.md lists their fields.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{self, Field, Table, suggest};
use crate::files::available;
use crate::kind::FileKind;
use crate::page::page_ipa;
use crate::problem::{Errors, Problem};
use crate::scene::Scene;
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::guest_map::{GuestMap, GuestUart, GuestUartKind, MapDevice};
use cloison_formats::ids::Intid;
use cloison_formats::image::IPA_BITS;
use cloison_logic::vgic::MAX_IRQ;
use std::ops::Range;
use std::path::{Path, PathBuf};

const KINDS: [(&str, GuestUartKind); 2] = [
    ("pl011", GuestUartKind::Pl011),
    ("cadence", GuestUartKind::Cadence),
];

/// Returns what messages call a device of a map.
pub(crate) const fn name_of(device: MapDevice) -> &'static str {
    match device {
        MapDevice::Distributor => "the emulated interrupt distributor",
        MapDevice::CpuInterface | MapDevice::Deactivate => "the virtual CPU interface",
        MapDevice::Uart => "the emulated UART",
        MapDevice::Services => "the services page",
        MapDevice::Link(_) => "a link's device",
    }
}

/// Returns the addresses that a map takes, in their order.
pub(crate) fn taken(map: &GuestMap) -> Vec<Range<u64>> {
    let mut pages = map.devices().map(|(_, page)| page.0);
    pages.sort_unstable();
    let mut all: Vec<Range<u64>> = Vec::new();
    for page in pages {
        match all.last_mut() {
            Some(last) if last.end == page => last.end += PAGE_SIZE,
            _ => all.push(page..page + PAGE_SIZE),
        }
    }
    all
}

/// Reads the `map` of a VM. A map that cannot be read is recorded, and the default one returned.
pub(crate) fn read(table: &Table<'_>, scene: &Scene<'_>, others: &mut Vec<Problem>) -> GuestMap {
    let has_v3 = scene
        .board
        .is_some_and(|file| file.board.gic.gicr.is_some());
    let default = if has_v3 {
        GuestMap::CLOISON_GICV3
    } else {
        GuestMap::CLOISON
    };
    let found = table.optional("map").and_then(|field| {
        let path = find(&field, scene)?;
        load_for(&path, has_v3)
            .map_err(|errors| others.extend(errors.into_problems()))
            .ok()
    });
    found.unwrap_or(default)
}

/// Returns the file that a VM names: a path, or the name of a map.
fn find(field: &Field<'_>, scene: &Scene<'_>) -> Option<PathBuf> {
    let name = field.string("the name of a map")?;
    if name.ends_with(".toml") {
        return Some(scene.base.join(name));
    }
    let dirs = scene.shipped.map_dirs(scene.base);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let file = |dir: &PathBuf| dir.join(format!("{name}.toml"));
    let found = dirs.iter().map(file).find(|path| path.is_file());
    let found = found.filter(|_| !name.is_empty() && name.chars().all(fits));
    if found.is_none() {
        let mut known: Vec<String> = dirs.iter().flat_map(|dir| available(dir)).collect();
        known.sort();
        known.dedup();
        let error = field.error(format!("there is no map `{name}`"));
        let help = suggest(name, "maps", known.iter().map(String::as_str));
        field.push(error.label("unknown map").help(help));
    }
    found
}

/// Reads the map in a file.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path) -> Result<GuestMap, Errors> {
    load_for(path, false)
}

/// As [`load`], for a board with a GICv3 or a GICv2.
fn load_for(path: &Path, has_v3: bool) -> Result<GuestMap, Errors> {
    let help = "name a map, such as \"cloison\", or a file like configs/maps/zcu102.toml";
    document::load(path, help, |root| read_file(root, path, has_v3))
}

/// Loads all maps of a directory of configurations, with their names, in the order of these.
///
/// # Errors
///
/// Returns the errors of the first file that is wrong.
pub fn all(configs: &Path) -> Result<Vec<(String, GuestMap)>, Errors> {
    let directory = configs.join("maps");
    let names = available(&directory).into_iter();
    names
        .map(|name| Ok((name.clone(), load(&directory.join(format!("{name}.toml")))?)))
        .collect()
}

fn read_file(root: &Table<'_>, path: &Path, has_v3: bool) -> Option<GuestMap> {
    FileKind::Map.fits(root)?;
    check_name(root, path);
    root.optional("description")
        .map(|field| field.string("one line of text"));
    let services = root.required("services_page", "services_page = 0x0900_1000");
    let (key, other, frames, help) = if has_v3 {
        let help = "the board has a GICv3: add [gicv3] with distributor and redistributors, or name \
                    a map that has it, such as \"cloison\"";
        ("gicv3", "gicv2", "redistributors", help)
    } else {
        let help = "describe the interrupt controller: [gicv2] with distributor and cpu_interface";
        ("gicv2", "gicv3", "cpu_interface", help)
    };
    // That for boards of the other version.
    root.optional(other);
    let gic = root.required(key, help).and_then(|field| field.table());
    let uart = root
        .required("uart", "describe the UART: [uart] kind, base, irq")
        .and_then(|field| field.table());
    let (gic, uart) = (gic?, uart?);
    let distributor = gic.required("distributor", "distributor = 0x0800_0000");
    let interface = gic.required(frames, &format!("{frames} = 0x080A_0000"));
    let deactivate = gic.optional("deactivate").filter(|_| !has_v3);
    gic.finish_ref();
    let kind = uart
        .required("kind", "kind = \"pl011\" or \"cadence\"")
        .and_then(|field| field.one_of("UART kind", &KINDS));
    let base = uart.required("base", "base = 0x0900_0000");
    let irq = uart
        .required("irq", "irq = 33")
        .and_then(|field| read_irq(&field));
    uart.finish_ref();
    root.finish_ref();
    // Each is read before one that is wrong ends the reading.
    let pages = [&distributor, &interface, &deactivate, &base, &services]
        .map(|field| field.as_ref().and_then(device_page));
    let [gicd, gicc, own, base_page, services_page] = pages;
    let next = gicc
        .map(|gicc| gicc.page(1))
        .filter(|_| deactivate.is_none());
    let map = GuestMap {
        gicd: gicd?,
        gicc: gicc?,
        gicc_dir: own.or(next)?,
        uart: GuestUart {
            kind: kind?,
            base: base_page?,
            irq: irq?,
        },
        services: services_page?,
    };
    let fields = [
        &distributor,
        &interface,
        if deactivate.is_some() {
            &deactivate
        } else {
            &interface
        },
        &base,
        &services,
    ];
    check_pages(&map, fields.map(Option::as_ref));
    Some(map)
}

fn check_name(root: &Table<'_>, path: &Path) {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.unwrap_or_default();
    let field = root.required("name", &format!("write name = \"{stem}\""));
    let Some((field, name)) =
        field.and_then(|field| Some((field.clone(), field.string("a name")?)))
    else {
        return;
    };
    if name != stem {
        let error = field.error(format!("map `{name}` is in the file {stem}.toml"));
        field.push(
            error
                .label("not the file's name")
                .help("maps are found by file name: make the two equal"),
        );
    }
}

/// Reads the address of a device's page.
fn device_page(field: &Field<'_>) -> Option<Ipa> {
    let page = page_ipa(field)?;
    if page.0 < 1 << IPA_BITS {
        return Some(page);
    }
    let error = field.error(format!("{page} is beyond a VM's address space"));
    field.push(error.label("too high").help(format!(
        "an IPA has {IPA_BITS} bits: the last page is at {:#x}",
        (1 << IPA_BITS) - PAGE_SIZE
    )));
    None
}

/// Reads the UART's interrupt.
fn read_irq(field: &Field<'_>) -> Option<Intid> {
    let number = field.integer("the number of a shared interrupt, 32 to 255")?;
    if (32..u64::from(MAX_IRQ)).contains(&number) {
        return Some(Intid(number as u32));
    }
    let error = field.error(format!(
        "interrupt {number} is not one that a VM's UART can have"
    ));
    let label = if number < 32 {
        "not shared"
    } else {
        "the emulated distributor has 255"
    };
    field.push(error.label(label).help(
        "write the GIC's number of a shared interrupt, 32 to 255: a device tree's number of an SPI, \
         plus 32",
    ));
    None
}

/// Checks that no two devices share a page. `fields` say where each is.
fn check_pages(map: &GuestMap, fields: [Option<&Field<'_>>; 5]) {
    let devices = map.devices();
    for (index, (device, page)) in devices.into_iter().enumerate() {
        let before = devices[..index]
            .iter()
            .position(|&(_, other)| other == page);
        let (Some(before), Some(field)) = (before, fields[index]) else {
            continue;
        };
        let (other, _) = devices[before];
        let message = format!(
            "{} and {} are both at {page}",
            name_of(other),
            name_of(device)
        );
        let mut error = field.error(message).label("each has one page");
        if let Some(first) = fields[before] {
            error = error.also(first.span(), "the other one");
        }
        field.push(error.help(format!("the next page is {}", page.page(1))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> GuestMap {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/maps");
        load(&root.join(format!("{name}.toml"))).expect("it is right")
    }

    #[test]
    fn the_map_named_cloison_is_the_one_without_a_name() {
        assert_eq!(shipped("cloison"), GuestMap::CLOISON);
        assert_eq!(
            taken(&GuestMap::CLOISON),
            [
                0x0800_0000..0x0800_1000,
                0x0801_0000..0x0801_2000,
                0x0900_0000..0x0900_2000
            ]
        );
    }

    #[test]
    fn each_shipped_map_is_that_of_its_machine() {
        let zcu102 = shipped("zcu102");
        assert_eq!(
            (zcu102.gicd, zcu102.gicc_dir, zcu102.uart.kind),
            (Ipa(0xf901_0000), Ipa(0xf903_0000), GuestUartKind::Cadence)
        );
        let xenvm = shipped("xenvm");
        assert_eq!(
            (xenvm.gicc_dir, xenvm.uart.irq),
            (Ipa(0x0300_3000), Intid(32))
        );
        assert_eq!(shipped("qemu-virt").uart, GuestMap::CLOISON.uart);
    }
}
