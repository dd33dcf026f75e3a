//! Board files: `configs/boards/<name>.toml`, which describe the differences between machines.
//!
//! `cargo xtask docs` makes a page of the list that follows.
//!
//! # Fields
//!
//! A field without a default is required.
//!
//! - `name`: the file's name
//! - `description`: one line of text. Default: none
//! - `cpu`: a name that selects the event table: the folder `configs/events/arm64/<cpu>`
//! - `cores`: 1 to 8 integers, with a GICv3 1 to 16, the MPIDR affinity of each core, in the order of
//!   core numbers
//! - `spin_table`: addresses where cores poll for their entry address: one 64-bit word per core, in
//!   `[[reserved]]` memory; the boot core's is not used. Default: PSCI starts cores
//! - `[power_off]`: registers that turn the machine off: `page`, and `writes`, a list of
//!   `[offset, value]` of each 32-bit write, in order. Default: PSCI turns the machine off
//! - `page_costs`: a list of `[event, page]` or `[event, page, step]`: what a budget of this event
//!   is charged for the hypervisor's work for a guest, for a page and for a step. See
//!   [who pays](architecture.md#who-pays). A step that is left out costs 0. Default: 2048 and 16,
//!   for each event that is not listed
//! - `[cache]`: `size`, `ways` and `line` of the last-level cache, which is compared with
//!   CCSIDR_EL1 at boot
//! - `[[ram]]`: `start` and `size` of RAM that Cloison may manage; at least one
//! - `[[memory]]`: `name`, `start` and `size` of a memory besides the RAM, such as one on the chip,
//!   that pools can be made of. Default: none
//! - `[[reserved]]`: `start` and `size` of a part of RAM or of a `[[memory]]` that Cloison must not
//!   touch, and `why`. Default: none
//! - `[console]`: the console UART: `kind`, `base`, `irq`. The kind is `"pl011"`, `"cadence"` or
//!   `"mini-uart"` (the Raspberry Pi's; `base` is the page of its auxiliary peripherals)
//! - `[telemetry]`: the second UART, which carries the telemetry, as `[console]`. Without it, a VM
//!   can have that UART. Default: none
//! - `[gic]`: addresses of the GICv3: `gicd`, `gicr` (its redistributors, in the order of the cores);
//!   or of the GICv2: `gicd`, `gicc`, `gicc_dir`, `gich`, `gicv`, `gicv_dir`. Those
//!   with `_dir` are the second pages
//!   - `interrupts`: how many it has, private ones included: 32 times as many as
//!     GICD_TYPER.ITLinesNumber plus 1; at most 1020. Default: 256
//!   - `mediated_timer`: the hypervisor deactivates the virtual timer's interrupt, for a GIC
//!     (QEMU's) that does not sample the line again on a guest's EOI. Default: false
//! - `[smmu]`: an SMMU that guards devices: `kind = "smmuv3"`, `base`, and `irq`, the interrupt of its
//!   event queue. It is used if a VM has a device with `streams`. Default: none
//! - `[pmu]`: `counters`, the number of event counters of each core. Each core tries its overflow
//!   interrupt at boot. Where it does not arrive, or the board has none, quotas are polled
//!   - `irq` or `irqs`: the overflow interrupt: a private one (PPI) that all cores have, or a list
//!     of shared ones (SPIs), one per core. Default: none
//!   - `shadow`: that interrupt needs a second counter. Default: false
//!   - `splits`: MDCR_EL2.HPMN keeps a guest from the counters above it, which no shipped board has
//!     been shown to do (QEMU does not). Default: false
//! - `[[device]]`: `name`, `start` and `size` of a device that a VM can have, and `dma`: whether it
//!   accesses memory by itself. A VM gets one that does only with memory for it or `streams`, the
//!   numbers by which the SMMU knows it, and one that is not listed with a warning. `stop`: the writes to its first page that end its accesses, as offset and
//!   value. `dma`'s default: false; without `stop`, the configuration must have it. `firmware`: the
//!   numbers of its `nodes`, `clocks` and `resets` in the firmware's calls; no other VM's device may
//!   share one. Default: none
//! - `[firmware]`: `eemi = true`: guests may be given the calls of a ZynqMP's firmware (UG1200).
//!   Default: false
//! - `card`: what the board needs before it boots from a card: lines for the `README.txt` of
//!   `cloison image`. Default: none
//! - `[[file]]`: `name`, `purpose` and `text` of a file that `cloison image` writes for this board,
//!   such as a debugger's script. Default: none
//! - `[qemu]`: what QEMU is started with, as below. Default: QEMU does not emulate the board
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boot_files::{self, BootFile};
use crate::devices::{self, BoardDevice};
use crate::document::{Context, Field, Table, suggest};
use crate::emulation::{Emulated, Emulation, Hardware};
use crate::events::{self, EventTable, read_events};
use crate::files;
use crate::firmware::{self, Eemi, page_address, read_power_off, read_spin_table};
use crate::kind::FileKind;
use crate::problem::{Problem, SourceFile};
use crate::ranges::{self, Ranges};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::{CacheGeometry, GeometryError};
use cloison_formats::ids::Intid;
use cloison_formats::image::{Board, Gic, GicVersion, Smmu, Uart, UartKind, WorkCost};
use cloison_formats::limits::{MAX_CORES, MAX_IRQ};
use cloison_formats::units::{EventId, Events};
use std::path::{Path, PathBuf};

/// Interrupts of a GIC of which the file does not say how many it has.
const INTERRUPTS: u32 = 256;
/// The last shared interrupt that a GIC can have.
const LAST: u64 = MAX_IRQ as u64 - 1;

/// A validated board file.
#[derive(Clone, Debug)]
pub struct BoardFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Text of the file.
    pub source: String,
    /// The machine, as described to the hypervisor.
    pub board: Board,
    /// Description in one line.
    pub description: String,
    /// Number of page colors of its last-level cache.
    pub colors: u32,
    /// Number of event counters of each core's PMU.
    pub counters: u32,
    /// Events of its CPU.
    pub events: EventTable,
    /// The events that stock QEMU counts, and when.
    pub counted: Vec<(EventId, Emulated)>,
    /// Costs in a budget of the hypervisor's work on one page, by event.
    pub page_costs: Vec<(EventId, WorkCost)>,
    /// Devices that a VM can have.
    pub devices: Vec<BoardDevice>,
    /// The firmware's calls for its guests.
    pub eemi: Eemi,
    /// What it needs before it boots from a card.
    pub card: String,
    /// Files that boot loaders and debuggers need beside the image.
    pub boot_files: Vec<BootFile>,
    /// How QEMU emulates it; `None` where it does not.
    pub emulation: Option<Emulation>,
}

/// What work costs a budget of an event that the board file does not list. A page: twice the bus
/// accesses of 256 lines, which is more than any event of the memory hierarchy counts for a page. A
/// step: more accesses than one makes.
const UNLISTED: WorkCost = WorkCost {
    page: Events(2048),
    step: Events(16),
};

/// UARTs supported by the hypervisor.
const UART_KINDS: [(&str, UartKind); 3] = [
    ("pl011", UartKind::Pl011),
    ("cadence", UartKind::Cadence),
    ("mini-uart", UartKind::Mini),
];

impl BoardFile {
    /// Reads and validates the board file at `path`, and the event table that it names.
    pub fn load(path: &Path, configs: &Path) -> Result<Self, Vec<Problem>> {
        let read = |path: &Path| {
            files::read_text(path, files::CONFIGURATION).map_err(|error| {
                let file = SourceFile::new(path, String::new());
                vec![Problem::error(
                    &file,
                    "file",
                    0..0,
                    format!("cannot read {}: {error}", file.name()),
                )]
            })
        };
        let context = Context::new(SourceFile::new(path, read(path)?));
        let Some((mut file, cpu_path)) = Self::read(&context, path, configs) else {
            return Err(context.into_problems());
        };
        let (table, mut found) = events::load(&cpu_path);
        if let Some(table) = &table {
            file.page_costs = read_page_costs(&context, table);
            file.counted = read_counted(&context, table);
        }
        let mut problems = context.into_problems();
        problems.append(&mut found);
        match table {
            Some(table) if !problems.iter().any(Problem::is_error) => {
                file.events = table;
                Ok(file)
            }
            _ => Err(problems),
        }
    }

    /// Reads the board. Also returns the folder of its CPU's event table.
    fn read(context: &Context, path: &Path, configs: &Path) -> Option<(Self, PathBuf)> {
        let document = context.parse()?;
        let root = context.root(&document);
        FileKind::Board.fits(&root)?;
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let name = read_name(&root, stem);
        let description = root
            .optional("description")
            .and_then(|field| field.string("one line of text"));
        let cpu_path = read_cpu(&root, &configs.join("events").join("arm64"));
        let cores = read_cores(&root);
        let llc = root.required(
            "cache",
            "describe the last-level cache: [cache] size = \"1M\", ways = 16, line = 64",
        );
        let llc = llc.and_then(|field| read_cache(&field));
        let Ranges {
            ram,
            memories,
            memory_spans,
            reserved,
        } = ranges::read(&root, llc.and_then(|llc| llc.colors().ok()));
        let console = root.required(
            "console",
            "describe the console UART: [console] kind, base, irq",
        );
        let console = console.and_then(|field| read_uart(&field));
        let telemetry = root
            .optional("telemetry")
            .and_then(|field| read_uart(&field));
        let spin_table = root
            .optional("spin_table")
            .and_then(|field| read_spin_table(&field, cores.as_ref().map(Vec::len), &reserved));
        let power_off = root
            .optional("power_off")
            .and_then(|field| read_power_off(&field));
        let gic = root.required(
            "gic",
            "describe the GICv2: [gic] gicd, gicc, gicc_dir, gich, gicv, gicv_dir; or the GICv3: \
             gicd, gicr",
        );
        let gic = gic.and_then(|field| read_gic(&field, cores.as_deref().unwrap_or_default()));
        let smmu = root.optional("smmu").and_then(|field| read_smmu(&field));
        let pmu = root
            .required("pmu", "describe the PMU: [pmu] counters = 6")
            .and_then(|field| read_pmu(&field, cores.as_ref().map_or(1, Vec::len)));
        let hardware = Hardware {
            name: stem,
            cores: cores.as_ref().map_or(1, Vec::len),
            ram: ram.iter().map(|range| range.len).sum(),
            telemetry: telemetry.is_some(),
            pmu_irqs: pmu.as_ref().map_or(&[], |pmu| &pmu.irqs),
        };
        let devices = devices::read(&root);
        let eemi = firmware::read(&root);
        let card = root
            .optional("card")
            .and_then(|field| field.string("lines of text"));
        let boot_files = boot_files::read(&root);
        let emulation = root.optional("qemu");
        let emulation =
            emulation.and_then(|field| Emulation::read(&field, &hardware, &configs.join("models")));
        // Its names need the CPU's events, which are read next.
        root.optional("page_costs");
        root.finish();
        let pmu = pmu?;
        let llc = llc?;
        let file = Self {
            path: path.to_path_buf(),
            source: context.file.text().to_owned(),
            board: Board {
                name: name?.to_owned(),
                cores: cores?,
                spin_table,
                power_off,
                console: console?,
                telemetry,
                gic: gic?,
                smmu,
                pmu_irqs: pmu.irqs,
                pmu_shadow: pmu.shadow,
                pmu_splits: pmu.splits,
                llc,
                ram,
                memories,
                reserved,
            },
            description: description.unwrap_or_default().to_owned(),
            colors: llc.colors().ok()?,
            counters: pmu.counters,
            events: EventTable::default(),
            counted: Vec::new(),
            page_costs: Vec::new(),
            devices,
            eemi,
            card: card.unwrap_or_default().to_owned(),
            boot_files,
            emulation,
        };
        ranges::check_devices(&context.root(&document), &file.board, &memory_spans);
        (!context.has_errors()).then_some((file, cpu_path?))
    }

    /// Returns whether stock QEMU counts an event.
    pub fn emulated(&self, event: EventId) -> Emulated {
        self.counted
            .iter()
            .find(|(listed, _)| *listed == event)
            .map_or(Emulated::No, |(_, when)| *when)
    }

    /// Returns the costs in a budget of this event of the hypervisor's work for a guest.
    pub fn work_cost(&self, event: EventId) -> WorkCost {
        self.page_costs
            .iter()
            .find(|(listed, _)| *listed == event)
            .map_or(UNLISTED, |(_, cost)| *cost)
    }
}

/// Reads `page_costs`: rows of an event, what the work on one page costs a budget of it, and what a
/// step costs, if that is not 0.
fn read_page_costs(context: &Context, events: &EventTable) -> Vec<(EventId, WorkCost)> {
    let Some(document) = context.parse() else {
        return vec![];
    };
    let root = context.root(&document);
    let rows = root
        .optional("page_costs")
        .and_then(|field| field.elements())
        .unwrap_or_default();
    let row = |row: &Field<'_>| {
        let parts = row.elements()?;
        let (event, page, step) = match &parts[..] {
            [event, page] => (event, page, None),
            [event, page, step] => (event, page, Some(step)),
            _ => {
                row.push(
                    row.error(format!(
                        "expected an event and one or two numbers, found {} elements",
                        parts.len()
                    ))
                    .label("one cost")
                    .help(
                        "a cost is an event, a number of them for a page, and one for a step if \
                         that costs any: [\"INST_RETIRED\", 2000, 60]",
                    ),
                );
                return None;
            }
        };
        let event = events::resolve(events, event)?;
        let number =
            |field: &Field<'_>, what| Some(Events(field.integer_up_to(u64::from(u32::MAX), what)?));
        let page = number(page, "the events that the work on one page costs")?;
        let step = match step {
            Some(step) => number(step, "the events that a step costs")?,
            None => Events(0),
        };
        Some((event, WorkCost { page, step }))
    };
    rows.iter().filter_map(row).collect()
}

/// Reads which events QEMU counts: `counts` and `counts_with_icount` of `[qemu]`.
fn read_counted(context: &Context, events: &EventTable) -> Vec<(EventId, Emulated)> {
    let Some(document) = context.parse() else {
        return vec![];
    };
    let root = context.root(&document);
    let Some(table) = root.optional("qemu").and_then(|field| field.table()) else {
        return vec![];
    };
    let mut counted: Vec<(EventId, Emulated)> = Vec::new();
    for (key, when) in [
        ("counts", Emulated::Yes),
        ("counts_with_icount", Emulated::Icount),
    ] {
        let Some(field) = table.optional(key) else {
            continue;
        };
        counted.extend(
            read_events(&field, events)
                .into_iter()
                .map(|event| (event, when)),
        );
    }
    counted
}

fn read_name<'a>(root: &Table<'a>, stem: &str) -> Option<&'a str> {
    let field = root.required("name", &format!("write name = \"{stem}\""))?;
    let name = field.string("the board's name")?;
    if name != stem {
        field.push(
            field
                .error(format!(
                    "board name `{name}` does not match file name {stem}.toml"
                ))
                .label("not the file's name")
                .help("boards are found by file name: make the two equal"),
        );
    }
    Some(name)
}

/// Returns the folder of the CPU's event table.
fn read_cpu(root: &Table<'_>, events_dir: &Path) -> Option<PathBuf> {
    let field = root.required("cpu", "give the CPU: cpu = \"cortex-a53\"")?;
    let cpu = field.string("the CPU's name")?;
    let known = events::folders(events_dir);
    if known.iter().any(|known| known == cpu) {
        return Some(events_dir.join(cpu));
    }
    field.push(
        field
            .error(format!("there is no event table for the CPU `{cpu}`"))
            .label("unknown CPU")
            .help(suggest(
                cpu,
                "CPUs in configs/events/arm64",
                known.iter().map(String::as_str),
            )),
    );
    None
}

/// Returns the MPIDR affinity of each core.
fn read_cores(root: &Table<'_>) -> Option<Vec<u64>> {
    let field = root.required("cores", "list the MPIDR of each core: cores = [0, 1, 2, 3]")?;
    let elements = field.elements()?;
    if !(1..=MAX_CORES).contains(&elements.len()) {
        field.push(
            field
                .error(format!(
                    "{} cores; Cloison supports 1 to {MAX_CORES}",
                    elements.len()
                ))
                .label("core list")
                .help("list the MPIDR affinity of each core that Cloison may use"),
        );
        return None;
    }
    elements
        .iter()
        .map(|element| element.integer("a core's MPIDR affinity"))
        .collect()
}

fn read_cache(field: &Field<'_>) -> Option<CacheGeometry> {
    let table = field.table()?;
    let size = table
        .required("size", "size = \"1M\"")
        .and_then(|field| field.size());
    let ways = table
        .required("ways", "ways = 16")
        .and_then(|field| field.integer_up_to(1024, "its associativity"));
    let line = table
        .required("line", "line = 64")
        .and_then(|field| field.integer_up_to(4096, "bytes in a line"));
    table.finish();
    let cache = CacheGeometry {
        size: size?,
        ways: ways? as u32,
        line: line? as u32,
    };
    let arithmetic = format!(
        "{} bytes / {} ways / {PAGE_SIZE} bytes a page",
        cache.size, cache.ways
    );
    let problem = match cache.colors() {
        Ok(1) => field
            .error(format!(
                "the cache makes no page colors: {arithmetic} is at most 1"
            ))
            .label("one color")
            .help("Cloison needs at least two: one for itself and one for a VM"),
        Ok(_) => return Some(cache),
        Err(error @ GeometryError::NotPowerOfTwo) => field
            .error(format!("invalid cache geometry: {error}"))
            .label("geometry")
            .help(
                "use the size, ways and line length that CCSIDR_EL1 reports for the last-level \
                 cache",
            ),
        Err(error @ GeometryError::TooManyColors(_)) => field
            .error(format!(
                "the cache makes too many page colors: {arithmetic} = {error}"
            ))
            .label("geometry")
            .help("check size and ways"),
    };
    field.push(problem);
    None
}

fn read_uart(field: &Field<'_>) -> Option<Uart> {
    let table = field.table()?;
    let kind = table
        .required("kind", "kind = \"pl011\", \"cadence\" or \"mini-uart\"")
        .and_then(|field| field.one_of("UART kind", &UART_KINDS));
    let base = table
        .required("base", "base = 0x0900_0000")
        .and_then(|field| page_address(&field));
    let irq = table
        .required("irq", "irq = 33")
        .and_then(|field| field.integer_up_to(1019, "its GIC interrupt number"));
    table.finish();
    Some(Uart {
        kind: kind?,
        base: base?,
        irq: Intid(irq? as u32),
    })
}

fn read_gic(field: &Field<'_>, cores: &[u64]) -> Option<Gic> {
    let table = field.table()?;
    let address = |key: &'static str| {
        table
            .required(
                key,
                "give the physical address of this page of the interrupt controller",
            )
            .and_then(|field| page_address(&field))
    };
    if let Some(field) = table.optional("gicr") {
        let (gicr, gicd) = (page_address(&field), address("gicd"));
        // Interrupts are sent to, and routed by, affinities.
        if let Some((number, &mpidr)) = (0..).zip(cores).find(|&(number, &mpidr)| mpidr != number) {
            let error = field.error(format!("core {number} of the board is {mpidr:#x}"));
            field.push(error.label("a GICv3").help(
                "list in `cores` MPIDR affinities from 0 on, each one more than the last: with a \
                 GICv3, Cloison supports no others",
            ));
        }
        let mediated_timer = table.flag("mediated_timer");
        let interrupts = read_interrupts(&table);
        table.finish();
        let gicd = gicd?;
        return Some(Gic {
            gicd,
            gicr: Some(gicr?),
            gicc: gicd,
            gicc_dir: gicd,
            gich: gicd,
            gicv: gicd,
            gicv_dir: gicd,
            mediated_timer,
            interrupts,
        });
    }
    let most = GicVersion::V2.most_cores();
    if cores.len() > most {
        let error = field.error(format!("the board has {} cores", cores.len()));
        field.push(
            error
                .label(format!("a GICv2, which is for {most}"))
                .help("list fewer `cores`, or describe the GICv3: gicd, gicr"),
        );
    }
    let (gicd, gicc, gicc_dir) = (address("gicd"), address("gicc"), address("gicc_dir"));
    let (gich, gicv, gicv_dir) = (address("gich"), address("gicv"), address("gicv_dir"));
    let mediated_timer = table.flag("mediated_timer");
    let interrupts = read_interrupts(&table);
    table.finish();
    Some(Gic {
        gicd: gicd?,
        gicr: None,
        gicc: gicc?,
        gicc_dir: gicc_dir?,
        gich: gich?,
        gicv: gicv?,
        gicv_dir: gicv_dir?,
        mediated_timer,
        interrupts,
    })
}

/// Reads how many interrupts the GIC has.
fn read_interrupts(table: &Table<'_>) -> u32 {
    let read = |field: Field<'_>| {
        field.integer_in(
            32..=MAX_IRQ.into(),
            "the number of interrupts that the GIC has",
        )
    };
    let number = table.optional("interrupts").and_then(read);
    number.map_or(INTERRUPTS, |number| number as u32)
}

fn read_smmu(field: &Field<'_>) -> Option<Smmu> {
    let table = field.table()?;
    let kind = table
        .required("kind", "kind = \"smmuv3\"")
        .and_then(|field| field.one_of("kind of SMMU", &[("smmuv3", ())]));
    let base = table
        .required("base", "base = 0x0905_0000")
        .and_then(|field| page_address(&field));
    let irq = table
        .required("irq", "give the interrupt of its event queue: irq = 106")
        .and_then(|field| field.integer_in(32..=LAST, "the number of a shared interrupt"));
    table.finish();
    kind?;
    Some(Smmu {
        base: base?,
        irq: Intid(irq? as u32),
    })
}

/// The PMU of a board file, as [`Board`] and [`BoardFile`] have it.
struct Pmu {
    irqs: Vec<Intid>,
    shadow: bool,
    splits: bool,
    counters: u32,
}

fn read_pmu(field: &Field<'_>, cores: usize) -> Option<Pmu> {
    let table = field.table()?;
    let counters = table
        .required("counters", "counters = 6, the event counters of each core")
        .and_then(|field| field.integer_up_to(31, "the number of event counters"));
    let private = table.optional("irq").and_then(|field| {
        let irq = field.integer_up_to(
            31,
            "the number of a private interrupt, 16 to 31; shared ones go into `irqs`",
        )?;
        if irq < 16 {
            field.push(
                field
                    .error(format!("interrupt {irq} is software-generated"))
                    .label("not a PPI")
                    .help(
                        "the overflow interrupt is private to each core, 16 to 31, or shared: \
                         `irqs`",
                    ),
            );
        }
        Some(vec![Intid(irq as u32); cores])
    });
    let shared = table.optional("irqs").and_then(|field| {
        if private.is_some() {
            field.push(
                field
                    .error("the overflow interrupt is given twice")
                    .label("`irq` gives it too")
                    .help(
                        "`irq` is a private interrupt of all cores; `irqs` are shared ones, one \
                         per core",
                    ),
            );
        }
        read_shared_irqs(&field, cores)
    });
    let (shadow, splits) = (table.flag("shadow"), table.flag("splits"));
    table.finish();
    Some(Pmu {
        irqs: private.or(shared).unwrap_or_default(),
        shadow,
        splits,
        counters: counters? as u32,
    })
}

/// Reads the shared interrupts of the cores' PMUs, by core.
fn read_shared_irqs(field: &Field<'_>, cores: usize) -> Option<Vec<Intid>> {
    let elements = field.elements()?;
    let number = |element: &Field<'_>| {
        let irq = element.integer_up_to(LAST, "the number of a shared interrupt, from 32 on")?;
        if irq < 32 {
            element.push(
                element
                    .error(format!("interrupt {irq} is not a shared one"))
                    .label("not an SPI")
                    .help("a private interrupt is the same on all cores: write it as `irq`"),
            );
        }
        Some(Intid(irq as u32))
    };
    let irqs: Vec<Intid> = elements.iter().map(number).collect::<Option<_>>()?;
    if irqs.len() != cores {
        field.push(
            field
                .error(format!("{} interrupts for {cores} cores", irqs.len()))
                .label("one for each core")
                .help("list the interrupt of each core's PMU, in the order of `cores`"),
        );
    }
    let twice = irqs
        .iter()
        .zip(&elements)
        .enumerate()
        .find(|(index, (irq, _))| irqs[..*index].contains(irq));
    if let Some((_, (irq, element))) = twice {
        element.push(
            element
                .error(format!("interrupt {irq} is listed twice"))
                .label("again")
                .help("each core has its own"),
        );
    }
    Some(irqs)
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_field_that_is_read_is_in_the_list() {
        let board = include_str!("board.rs");
        let emulation = include_str!("emulation.rs");
        for (listing, source, least) in [
            (board, board, 6),
            (board, include_str!("ranges.rs"), 4),
            (emulation, emulation, 6),
        ] {
            let (list, _) = listing.split_once("// SPDX").expect("a license");
            let (_, code) = source.split_once("// SPDX").expect("a license");
            let code = code.split("#[cfg(test)]").next().unwrap_or_default();
            let mut read = 0;
            for call in [".required(", ".optional(", ".tables(", ".flag(", "address("] {
                for after in code.split(call).skip(1) {
                    let after = after.trim_start().trim_start_matches('"');
                    let Some((name, _)) = after.split_once('"') else {
                        continue;
                    };
                    if name
                        .bytes()
                        .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
                    {
                        let forms = [
                            format!("`{name}`"),
                            format!("`[{name}]`"),
                            format!("`[[{name}]]`"),
                        ];
                        assert!(forms.iter().any(|form| list.contains(form)), "{name}");
                        read += 1;
                    }
                }
            }
            assert!(read >= least, "{read} fields");
        }
    }
}
