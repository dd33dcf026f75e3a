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
use cloison_formats::image::{GicVersion, IPA_BITS};
use cloison_formats::limits::{MAX_IRQ, MAX_VCPUS};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What messages call the distributor.
const DISTRIBUTOR: &str = "the emulated interrupt distributor";
/// Bytes of a GICv3's distributor, and of each of the two frames of a redistributor (Arm IHI 0069H,
/// 12.10).
const FRAME: u64 = 0x1_0000;
const KINDS: [(&str, GuestUartKind); 2] = [
    ("pl011", GuestUartKind::Pl011),
    ("cadence", GuestUartKind::Cadence),
];

/// Addresses that an emulated device of a VM takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    pub device: MapDevice,
    /// What messages call it.
    pub name: &'static str,
    pub range: Range<u64>,
}

/// Returns the addresses that a map's devices take: a page each. Of a GICv3, the distributor takes a
/// frame, and each of the most vCPUs that a VM can have two.
pub(crate) fn taken(map: &GuestMap, gic: GicVersion) -> Vec<Taken> {
    let of = |(device, Ipa(start))| {
        let (name, bytes) = match (gic, device) {
            (GicVersion::V2, MapDevice::Distributor) => (DISTRIBUTOR, PAGE_SIZE),
            (GicVersion::V3, MapDevice::Distributor) => (DISTRIBUTOR, FRAME),
            (GicVersion::V3, MapDevice::CpuInterface) => {
                ("the emulated redistributors", 2 * FRAME * MAX_VCPUS as u64)
            }
            (GicVersion::V3, MapDevice::Deactivate) => return None,
            (_, MapDevice::CpuInterface | MapDevice::Deactivate) => {
                ("the virtual CPU interface", PAGE_SIZE)
            }
            (_, MapDevice::Uart) => ("the emulated UART", PAGE_SIZE),
            (_, MapDevice::Services) => ("the services page", PAGE_SIZE),
            (_, MapDevice::Link(_)) => ("a link's device", PAGE_SIZE),
        };
        let range = start..start.saturating_add(bytes);
        Some(Taken {
            device,
            name,
            range,
        })
    };
    map.devices().into_iter().filter_map(of).collect()
}

/// Returns the text of all addresses that devices take, in their order.
pub(crate) fn listed(taken: &[Taken]) -> String {
    let mut ranges: Vec<Range<u64>> = taken.iter().map(|taken| taken.range.clone()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    let texts = all
        .iter()
        .map(|range| format!("{:#x}..{:#x}", range.start, range.end));
    texts.collect::<Vec<_>>().join(", ")
}

/// Reads the `map` of a VM. A map that cannot be read is recorded, and the default one returned.
pub(crate) fn read(table: &Table<'_>, scene: &Scene<'_>, others: &mut Vec<Problem>) -> GuestMap {
    let gic = scene.gic();
    let default = match gic {
        GicVersion::V2 => GuestMap::CLOISON,
        GicVersion::V3 => GuestMap::CLOISON_GICV3,
    };
    let found = table.optional("map").and_then(|field| {
        let path = find(&field, scene)?;
        let read = load_for(&path, gic).map_err(|errors| others.extend(errors.into_problems()));
        let Fit { map, version } = read.ok()?;
        if version != gic {
            let has = |version| match version {
                GicVersion::V2 => "GICv2",
                GicVersion::V3 => "GICv3",
            };
            let error = field.error(format!("the map has no {}", has(gic)));
            field.push(error.label(format!("a {} only", has(version))).help(format!(
                "the board has a {}: name another map, such as \"cloison\", or add {} to its file",
                has(gic),
                required_of(gic)
            )));
        }
        Some(map)
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

/// Reads the map in a file, for a board with a GICv2 if it has one.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path) -> Result<GuestMap, Errors> {
    Ok(load_for(path, GicVersion::V2)?.map)
}

/// A map, for boards with this version of the interrupt controller.
struct Fit {
    map: GuestMap,
    version: GicVersion,
}

/// Returns what a map must say of a version.
const fn required_of(version: GicVersion) -> &'static str {
    match version {
        GicVersion::V2 => "[gicv2] with distributor and cpu_interface",
        GicVersion::V3 => "[gicv3] with distributor and redistributors",
    }
}

/// Reads the map in a file, for a board with this version, or the other one if it has that alone.
fn load_for(path: &Path, gic: GicVersion) -> Result<Fit, Errors> {
    let help = "name a map, such as \"cloison\", or a file like configs/maps/zcu102.toml";
    document::load(path, help, |root| read_file(root, path, gic))
}

/// Loads all maps of a directory of configurations for boards with a GICv2, with their names, in the
/// order of these.
///
/// # Errors
///
/// Returns the errors of the first file that is wrong.
pub fn all(configs: &Path) -> Result<Vec<(String, GuestMap)>, Errors> {
    let directory = configs.join("maps");
    let mut maps = Vec::new();
    for name in available(&directory) {
        let fit = load_for(&directory.join(format!("{name}.toml")), GicVersion::V2)?;
        if fit.version == GicVersion::V2 {
            maps.push((name, fit.map));
        }
    }
    Ok(maps)
}

fn read_file(root: &Table<'_>, path: &Path, wanted: GicVersion) -> Option<Fit> {
    FileKind::Map.fits(root)?;
    check_name(root, path);
    root.optional("description")
        .map(|field| field.string("one line of text"));
    let services = root.required("services_page", "services_page = 0x0900_1000");
    let [second, third] = ["gicv2", "gicv3"].map(|key| root.optional(key));
    let (version, gic) = match (wanted, second, third) {
        (GicVersion::V2, Some(gic), _) | (_, Some(gic), None) => (GicVersion::V2, Some(gic)),
        (_, _, Some(gic)) => (GicVersion::V3, Some(gic)),
        (_, None, None) => {
            let required = required_of(GicVersion::V2);
            let help = format!("describe the interrupt controller: {required}");
            (wanted, root.required("gicv2", &help))
        }
    };
    let gic = gic.and_then(|field| field.table());
    let uart = root
        .required("uart", "describe the UART: [uart] kind, base, irq")
        .and_then(|field| field.table());
    let (gic, uart) = (gic?, uart?);
    let distributor = gic.required("distributor", "distributor = 0x0800_0000");
    let (interface, deactivate) = match version {
        GicVersion::V2 => (
            gic.required("cpu_interface", "cpu_interface = 0x0801_0000"),
            gic.optional("deactivate"),
        ),
        GicVersion::V3 => {
            let help = "redistributors = 0x080A_0000";
            (gic.required("redistributors", help), None)
        }
    };
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
        (MapDevice::Distributor, &distributor),
        (MapDevice::CpuInterface, &interface),
        (
            MapDevice::Deactivate,
            if deactivate.is_some() {
                &deactivate
            } else {
                &interface
            },
        ),
        (MapDevice::Uart, &base),
        (MapDevice::Services, &services),
    ];
    check_places(&taken(&map, version), |device| {
        let (_, field) = fields.iter().find(|&&(other, _)| other == device)?;
        field.as_ref()
    });
    Some(Fit { map, version })
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
    let number = field.integer("the number of a shared interrupt, 32 to 1019")?;
    if (32..u64::from(MAX_IRQ)).contains(&number) {
        return Some(Intid(number as u32));
    }
    let error = field.error(format!(
        "interrupt {number} is not one that a VM's UART can have"
    ));
    let label = if number < 32 {
        "not shared"
    } else {
        "the last one is 1019"
    };
    field.push(error.label(label).help(
        "write the GIC's number of a shared interrupt, 32 to 1019: a device tree's number of an SPI, \
         plus 32",
    ));
    None
}

/// Checks that each device is in a VM's address space, and no two overlap. `field` returns what says
/// where one is.
fn check_places<'a>(taken: &[Taken], field: impl Fn(MapDevice) -> Option<&'a Field<'a>>) {
    for (index, own) in taken.iter().enumerate() {
        let Some(place) = field(own.device) else {
            continue;
        };
        let Range { start, end } = own.range;
        let bytes = end - start;
        if end > 1 << IPA_BITS {
            let error = place.error(format!(
                "{} would end beyond a VM's address space",
                own.name
            ));
            let label = format!("of {bytes:#x} bytes");
            let help = format!("the last place is {:#x}", (1 << IPA_BITS) - bytes);
            place.push(error.label(label).help(help));
        }
        let meets = |other: &&Taken| other.range.start < end && start < other.range.end;
        let Some(other) = taken[..index].iter().find(meets) else {
            continue;
        };
        let at = start.max(other.range.start);
        let message = format!("{} and {} are both at {at:#x}", other.name, own.name);
        let label = format!("it takes {start:#x}..{end:#x}");
        let mut error = place.error(message).label(label);
        if let Some(first) = field(other.device) {
            error = error.also(first.span(), "the other one");
        }
        let help = format!("the other one ends at {:#x}", other.range.end);
        place.push(error.help(help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> GuestMap {
        shipped_for(name, GicVersion::V2)
    }

    fn shipped_for(name: &str, gic: GicVersion) -> GuestMap {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/maps");
        let fit = load_for(&root.join(format!("{name}.toml")), gic).expect("it is right");
        assert_eq!(fit.version, gic);
        fit.map
    }

    #[test]
    fn the_map_named_cloison_is_the_one_without_a_name() {
        assert_eq!(shipped("cloison"), GuestMap::CLOISON);
        assert_eq!(
            listed(&taken(&GuestMap::CLOISON, GicVersion::V2)),
            "0x8000000..0x8001000, 0x8010000..0x8012000, 0x9000000..0x9002000"
        );
        assert_eq!(
            shipped_for("cloison", GicVersion::V3),
            GuestMap::CLOISON_GICV3
        );
        assert_eq!(
            listed(&taken(&GuestMap::CLOISON_GICV3, GicVersion::V3)),
            "0x8000000..0x8010000, 0x80a0000..0x82a0000, 0x9000000..0x9002000"
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
        assert_eq!(shipped_for("xenvm", GicVersion::V3).gicc, Ipa(0x0302_0000));
        assert_eq!(shipped("qemu-virt").uart, GuestMap::CLOISON.uart);
    }
}
