//! The `[[vm.region]]` tables of a VM: the addresses of its memory and devices, their backing, and
//! their use by a Linux guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{self, DmaMemory, Limits, Said};
use crate::document::{Field, Presence, Table, all, suggest};
use crate::guest_linux::{DeviceNode, Property, Shown};
use crate::guest_map::{self, Taken};
use crate::names::name;
use crate::page::page_ipa;
use crate::scene::{PoolSpec, PoolUse, Scene};
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::ids::Intid;
use cloison_formats::image::{Backing, Board, IPA_BITS, Region};
use std::ops::Range;
use toml::Value;

/// What has the second UART.
const TELEMETRY: &str = "the telemetry UART";
/// What has an address of a memory besides the RAM.
const MEMORY: &str = "a memory that pools are made of";

/// How a Linux guest can see a region.
const SHOWN: [(&str, Shown); 3] = [
    ("memory", Shown::Memory),
    ("reserved", Shown::Reserved),
    ("hidden", Shown::Hidden),
];

/// A region with the positions to which later checks refer.
pub(crate) struct RegionSpec<'a> {
    pub region: Region,
    /// What limits the accesses to memory of its device.
    pub limits: Limits,
    /// How a Linux guest sees it, and where that is configured.
    pub shown: Shown,
    pub shown_fields: Vec<Field<'a>>,
    pub ipa_span: Range<usize>,
    pub size_span: Range<usize>,
    pub backing_span: Range<usize>,
}

impl RegionSpec<'_> {
    /// Returns the pool that backs it, if any.
    pub fn pool_use(&self) -> Option<PoolUse> {
        let Backing::Pool(pool) = self.region.backing else {
            return None;
        };
        Some(PoolUse {
            pool,
            field: format!("region[{}].pool", self.region.name),
            span: self.backing_span.clone(),
        })
    }
}

/// Returns the valid regions, and whether none is missing. `irqs` are the VM's interrupts.
pub(crate) fn read_all<'a>(
    table: &Table<'a>,
    scene: &Scene<'_>,
    taken: &[Taken],
    irqs: &[Intid],
) -> (Vec<RegionSpec<'a>>, bool) {
    let tables = table.tables("region");
    if tables.is_empty() {
        table.push(
            table
                .error("region", table.span(), "the VM has no memory")
                .label("no [[vm.region]]")
                .help(
                    "add one: [[vm.region]] with name = \"ram\", ipa = 0x4000_0000, size = \
                     \"16M\", pool = \"...\"",
                ),
        );
        return (Vec::new(), false);
    }
    if tables.len() > 256 {
        let message = format!("{} regions; a VM has at most 256", tables.len());
        table.push(
            table
                .error("region", table.span(), message)
                .label("too many")
                .help("join regions"),
        );
        return (Vec::new(), false);
    }
    let mut complete = true;
    let mut specs: Vec<RegionSpec<'a>> = Vec::new();
    let scope = Scope {
        scene,
        taken,
        irqs,
        dma: DmaMemory::of(&tables),
    };
    for region in tables {
        let Some(spec) = read_region(region, &scope, &specs) else {
            complete = false;
            continue;
        };
        specs.push(spec);
    }
    (specs, complete)
}

/// What the regions of a VM refer to.
struct Scope<'a> {
    scene: &'a Scene<'a>,
    /// What the VM's emulated devices take.
    taken: &'a [Taken],
    /// The VM's interrupts.
    irqs: &'a [Intid],
    /// Whether the VM has memory for DMA.
    dma: DmaMemory,
}

fn read_region<'a>(
    mut table: Table<'a>,
    scope: &Scope<'_>,
    before: &[RegionSpec<'_>],
) -> Option<RegionSpec<'a>> {
    let name = name(&mut table, "region");
    if let Some((name, span)) = &name
        && let Some(_) = before.iter().find(|spec| spec.region.name == *name)
    {
        table.push(
            table
                .error(
                    "name",
                    span.clone(),
                    format!("the VM has two regions called `{name}`"),
                )
                .label("again")
                .help("profiles find regions by name: give each its own"),
        );
    }
    let ipa_field = table.required("ipa", "say where the guest sees it: ipa = 0x4000_0000");
    let ipa = ipa_field.as_ref().and_then(|field| page_ipa(field));
    let size_field = table.required("size", "say how large it is: size = \"16M\"");
    let pages = size_field.as_ref().and_then(|field| field.pages());
    let backing = read_backing(&table, scope, pages);
    let (shown, shown_fields) = read_shown(&table, scope.irqs);
    let executable = table.value("execute", Field::boolean).or(true);
    table.finish_ref();
    let (ipa_field, size_field) = (ipa_field?, size_field?);
    let Backed {
        backing,
        span: backing_span,
        limits,
    } = backing?;
    let region = Region {
        name: name?.0.to_owned(),
        ipa: ipa?,
        pages: pages?,
        backing,
        executable: executable?,
    };
    let (ipa_span, size_span) = (ipa_field.span(), size_field.span());
    check_addresses(&table, scope.taken, &region, &ipa_span)?;
    check_overlap(&table, &region, &ipa_span, before);
    Some(RegionSpec {
        region,
        limits,
        shown,
        shown_fields,
        ipa_span,
        size_span,
        backing_span,
    })
}

/// Checks that a region ends in the VM's address space, and covers nothing that the hypervisor
/// emulates.
pub(crate) fn check_addresses(
    table: &Table<'_>,
    taken: &[Taken],
    region: &Region,
    span: &Range<usize>,
) -> Option<()> {
    let bytes = u64::from(region.pages) * PAGE_SIZE;
    let end = u128::from(region.ipa.0) + u128::from(bytes);
    let error = |message: String| table.error("ipa", span.clone(), message);
    if end > 1 << IPA_BITS {
        let error = error("the region ends beyond the VM's address space".to_owned());
        let error = error.label(format!("{} + {bytes:#x} = {end:#x}", region.ipa));
        table.push(error.help(format!(
            "an IPA has {IPA_BITS} bits: a region must end at {:#x} or below",
            1u64 << IPA_BITS
        )));
        return None;
    }
    let meets = |range: &Range<u64>| region.ipa.0 < range.end && u128::from(range.start) < end;
    if let Some(Taken { name, range, .. }) = taken.iter().find(|taken| meets(&taken.range)) {
        let error = error(format!("the region covers {name}")).label(format!(
            "{}..{end:#x} meets {:#x}..{:#x}",
            region.ipa, range.start, range.end
        ));
        table.push(error.help(format!(
            "the VM's `map` has devices at {}: keep these free, or name another map",
            guest_map::listed(taken)
        )));
    }
    Some(())
}

fn check_overlap(
    table: &Table<'_>,
    region: &Region,
    span: &Range<usize>,
    before: &[RegionSpec<'_>],
) {
    let Some(other) = before.iter().find(|other| other.region.overlaps(region)) else {
        return;
    };
    let end = region.ipa.page(u64::from(region.pages));
    let Region {
        name, ipa, pages, ..
    } = &other.region;
    let other_end = ipa.page(u64::from(*pages));
    table.push(
        table
            .error(
                "ipa",
                span.clone(),
                format!("the region overlaps region `{name}`"),
            )
            .label(format!("{}..{end}", region.ipa))
            .also(
                other.ipa_span.clone(),
                format!("`{name}` is {ipa}..{other_end}"),
            )
            .help(format!(
                "the first free address after `{name}` is {other_end}"
            )),
    );
}

/// Reads how a Linux guest sees the region.
fn read_shown<'a>(table: &Table<'a>, irqs: &[Intid]) -> (Shown, Vec<Field<'a>>) {
    let (usage, compatible, interrupt) = (
        table.optional("linux"),
        table.optional("compatible"),
        table.optional("interrupt"),
    );
    let (clocks, properties) = (table.optional("clocks"), table.optional("properties"));
    let is_device = table.optional("device").is_some();
    let fields = [&usage, &compatible, &interrupt, &clocks, &properties]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let Some(names) = &compatible else {
        for field in [&interrupt, &clocks, &properties].into_iter().flatten() {
            let name = field.name();
            let alone = field.error(format!("only a device with `compatible` has `{name}`"));
            field.push(
                alone
                    .label("no `compatible`")
                    .help("say what it is: compatible = [\"arm,pl031\"]"),
            );
        }
        return (
            usage
                .and_then(|field| field.one_of("use", &SHOWN))
                .unwrap_or_default(),
            fields,
        );
    };
    if !is_device {
        let memory = names.error("the region is memory and needs no driver");
        names.push(
            memory
                .label("not for memory")
                .help("leave it out, or pass a device through with `device`"),
        );
        return (Shown::Memory, fields);
    }
    if let Some(field) = &usage {
        field.push(
            field
                .error("the region is a device")
                .label("not for devices")
                .help("leave it out"),
        );
    }
    let text = |field: Field<'_>| {
        let name = field.string("a driver's name for it, as in device trees")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_graphic()) {
            field.push(
                field
                    .error(format!(
                        "`{}` is not valid in a device tree",
                        name.escape_debug()
                    ))
                    .label("no name")
                    .help("write it as the kernel's binding does: \"arm,pl031\""),
            );
            return None;
        }
        Some(name.to_owned())
    };
    let compatible: Vec<String> = names
        .elements()
        .unwrap_or_default()
        .into_iter()
        .filter_map(text)
        .collect();
    if compatible.is_empty() {
        names.push(
            names
                .error("the device has no name")
                .label("empty")
                .help("name it: [\"arm,pl031\"]"),
        );
    }
    let interrupts = interrupt.and_then(|field| {
        let read = |field: &Field<'_>| read_interrupt(field, irqs);
        if field.is_array() {
            return field.each(read);
        }
        Some(vec![read(&field)?])
    });
    let node = DeviceNode {
        compatible,
        interrupts: interrupts.unwrap_or_default(),
        clocks: clocks
            .and_then(|field| read_clocks(&field))
            .unwrap_or_default(),
        properties: properties
            .and_then(|field| read_properties(&field))
            .unwrap_or_default(),
    };
    (Shown::Device(node), fields)
}

/// Reads an interrupt of a device.
fn read_interrupt(field: &Field<'_>, irqs: &[Intid]) -> Option<Intid> {
    let most = u64::from(u32::MAX);
    let number = field.integer_up_to(most, "the number of one of the VM's interrupts")?;
    let irq = Intid(number as u32);
    if !irqs.contains(&irq) {
        field.push(
            field
                .error(format!("interrupt {irq} is not the VM's"))
                .label("not in `interrupts`")
                .help(format!("add it to the VM: interrupts = [{irq}]")),
        );
    }
    Some(irq)
}

/// Reads the clocks of a device: `{ name = Hz }`.
fn read_clocks(field: &Field<'_>) -> Option<Vec<(String, u32)>> {
    let entries = field.table()?.entries();
    let clock = |(name, _, field): (&str, _, Field<'_>)| {
        let hz = field.integer_in(1..=u32::MAX.into(), "a frequency in Hz")?;
        Some((name.to_owned(), hz as u32))
    };
    all(entries.into_iter().map(clock))
}

/// Reads the other properties of a device: `true`, a text, a number, or a list of either.
fn read_properties(field: &Field<'_>) -> Option<Vec<(String, Property)>> {
    /// What Cloison writes by itself.
    const OWN: [&str; 6] = [
        "compatible",
        "reg",
        "interrupts",
        "clocks",
        "clock-names",
        "status",
    ];
    const WANTED: &str = "true, a text, a number of 32 bits, or a list of these";
    let value = |field: &Field<'_>| {
        let parts = match field.any()? {
            Value::Boolean(true) => return Some(Property::There),
            Value::Array(parts) => parts,
            part => vec![part],
        };
        let text = |part: &Value| part.as_str().map(str::to_owned);
        let cell = |part: &Value| part.as_integer().and_then(|cell| u32::try_from(cell).ok());
        let texts = parts.iter().map(text).collect::<Option<Vec<_>>>();
        let cells = parts.iter().map(cell).collect::<Option<Vec<_>>>();
        let read = texts
            .map(Property::Texts)
            .or(cells.map(Property::Cells))
            .filter(|_| !parts.is_empty());
        if read.is_none() {
            let error = field.error("a device tree has no such value");
            field.push(error.label("no property").help(format!("write {WANTED}")));
        }
        read
    };
    let entries = field.table()?.entries();
    all(entries.into_iter().map(|(name, _, field)| {
        if OWN.contains(&name) {
            let error = field.error(format!("`{name}` follows from the region's other fields"));
            let help = "use compatible, interrupt, clocks; or leave it out";
            field.push(error.label("written already").help(help));
            return None;
        }
        Some((name.to_owned(), value(&field)?))
    }))
}

/// Returns the pool given by a field.
pub(crate) fn find_pool(field: &Field<'_>, pools: &[PoolSpec]) -> Option<u8> {
    let name = field.string("the name of a pool")?;
    let found = pools.iter().position(|spec| spec.pool.name == name);
    // If there are no pools at all, that is reported elsewhere.
    if found.is_none() && !pools.is_empty() {
        let known = pools.iter().map(|spec| spec.pool.name.as_str());
        field.push(
            field
                .error(format!("there is no pool `{name}`"))
                .label("unknown pool")
                .help(suggest(name, "pools", known)),
        );
    }
    found.map(|index| index as u8)
}

/// What a region has.
struct Backed {
    backing: Backing,
    /// Where that is written.
    span: Range<usize>,
    /// What limits the accesses to memory of its device.
    limits: Limits,
}

fn read_backing(table: &Table<'_>, scope: &Scope<'_>, pages: Option<u32>) -> Option<Backed> {
    let backed = |backing, field: &Field<'_>| Backed {
        backing,
        span: field.span(),
        limits: Limits::default(),
    };
    let scene = scope.scene;
    let (pool, contiguous, device) = (
        table.optional("pool"),
        table.optional("contiguous"),
        table.optional("device"),
    );
    // Of a device, the same word says whether it accesses memory.
    let said = Said {
        claim: device.as_ref().and_then(|_| devices::read_claim(table)),
        stop: match device {
            Some(_) => devices::read_stop(table),
            None => Presence::Absent,
        },
        memory: scope.dma,
    };
    let dma = match device {
        Some(_) => None,
        None => table.optional("dma"),
    };
    let help = "write one of pool = \"name\", contiguous = true, dma = true, device = 0x...";
    let is_set = |field: &Field<'_>, label: &str| {
        let is_set = field.boolean()?;
        if !is_set {
            let error = field.error("nothing backs the region");
            field.push(error.label(label).help(help));
        }
        is_set.then_some(())
    };
    match (pool, contiguous, dma, device) {
        (Some(pool), None, None, None) => {
            Some(backed(Backing::Pool(find_pool(&pool, scene.pools)?), &pool))
        }
        (None, None, Some(dma), None) => {
            is_set(&dma, "not for DMA")?;
            Some(backed(Backing::Direct, &dma))
        }
        (None, Some(contiguous), None, None) => {
            is_set(&contiguous, "not contiguous")?;
            contiguous.push(
                contiguous
                    .warning("contiguous memory has pages of every color")
                    .label("shares cache sets with all pools, private ones included")
                    .help("use a pool unless a device needs contiguous memory"),
            );
            Some(backed(Backing::Contiguous, &contiguous))
        }
        (None, None, None, Some(device)) => {
            let pa = PhysAddr(
                device.integer_up_to((1 << 40) - 1, "a physical address of at most 40 bits")?,
            );
            if !pa.is_page_aligned() {
                device.push(
                    device
                        .error(format!("{pa} is not the start of a page"))
                        .label("not a multiple of 0x1000")
                        .help("registers are passed through in whole pages"),
                );
                return None;
            }
            let mut limits = Limits::default();
            if let (Some(board), Some(pages)) = (scene.board, pages) {
                let range = PhysRange {
                    start: pa,
                    len: u64::from(pages) * PAGE_SIZE,
                };
                if is_free(&device, &board.board, range) {
                    let board = &board.devices;
                    limits = devices::check(&device, said, board, range);
                }
            }
            Some(Backed {
                limits,
                ..backed(Backing::Device(pa), &device)
            })
        }
        (None, None, None, None) => {
            table.push(
                table
                    .error("pool", table.span(), "nothing backs the region")
                    .label("no `pool`")
                    .help(help),
            );
            None
        }
        (_, second, third, fourth) => {
            let last = fourth.or(third).or(second);
            let span = last.map_or(table.span(), |field| field.span());
            table.push(
                table
                    .error("pool", span, "the region is backed by more than one thing")
                    .label("one too many")
                    .help(help),
            );
            None
        }
    }
}

/// Returns whether a passed-through device is neither RAM nor used by the hypervisor.
fn is_free(field: &Field<'_>, board: &Board, range: PhysRange) -> bool {
    let page = |start: PhysAddr| PhysRange {
        start,
        len: PAGE_SIZE,
    };
    let gic = &board.gic;
    let mut own = vec![
        (page(board.console.base), "the console"),
        (page(gic.gicd), "the interrupt distributor"),
        (page(gic.gicc), "the interrupt controller's CPU interface"),
        (
            page(gic.gicc_dir),
            "the interrupt controller's CPU interface",
        ),
        (page(gic.gich), "the virtual interface control"),
        (page(gic.gicv), "the virtual CPU interface"),
        (page(gic.gicv_dir), "the virtual CPU interface"),
    ];
    own.extend(
        board
            .telemetry
            .iter()
            .map(|uart| (page(uart.base), TELEMETRY)),
    );
    let smmu = board
        .smmu
        .iter()
        .flat_map(|smmu| [0, 16].map(|page| smmu.base.page(page)));
    own.extend(smmu.map(|start| {
        let len = 16 * PAGE_SIZE;
        (PhysRange { start, len }, "the SMMU")
    }));
    own.extend(board.own_devices().map(|own| {
        (
            own,
            "the interrupt controller's, at another of its addresses",
        )
    }));
    own.extend(
        board
            .ram
            .iter()
            .map(|ram| (*ram, "RAM, which is Cloison's to hand out")),
    );
    let memories = board.memories.iter();
    own.extend(memories.map(|memory| (memory.range, MEMORY)));
    let Some((taken, what)) = own.into_iter().find(|(own, _)| own.overlaps(&range)) else {
        return true;
    };
    let help = if what == TELEMETRY {
        "[telemetry] with over = \"console\" frees it: the telemetry then goes between the lines of \
             the console (or nowhere, with over = \"off\")"
    } else if what == MEMORY {
        "make a pool of it, memory = \"...\", and give the region this pool"
    } else {
        "give RAM through pools; pass through only devices that the hypervisor does not use"
    };
    field.push(
        field
            .error(format!(
                "{}..{} is not a device that can be passed through: it overlaps {what}",
                range.start,
                range.end()
            ))
            .label(format!("{}..{} is {what}", taken.start, taken.end()))
            .help(help),
    );
    false
}
