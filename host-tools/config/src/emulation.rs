//! How QEMU emulates a board: the table `[qemu]` of a board file.
//!
//! # Fields of `[qemu]`
//!
//! - `machine`: QEMU's machine with its properties (`-M`); it must start an image with the arm64
//!   header at EL2
//! - `cpu`: QEMU's CPU model (`-cpu`)
//! - `counts`: a list of the events that QEMU counts always
//! - `counts_with_icount`: a list of the events that QEMU counts only with `-icount shift=N`.
//!   Default: none
//! - `memory`: the size of the machine's memory (`-m`), at least as much as all `[[ram]]` together
//! - `options`: further arguments, one text each. Default: none
//! - `network`: the device for `run --net`: `start`, the page of its registers, and `arguments`,
//!   which join it to QEMU's network `net`. Default: none
//! - `smmu`: the machine's property by which it has the board's SMMU, for systems that use it. Default:
//!   none
//! - `serial`: a list of what each serial port carries, in QEMU's order: `"console"`, `"telemetry"`
//!   or `"unused"`. Default: `["console", "telemetry"]`, or `["console"]`
//! - `model`: the model of the memory hierarchy that fits this machine:
//!   `configs/models/<model>.toml`. Experiments, `run --model`, `top --model` and `demo` without
//!   `--stock` need it. Default: none
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Table, suggest};
use crate::files::available;
use crate::firmware::page_address;
use crate::quantity;
use cloison_formats::addr::PhysAddr;
use cloison_formats::ids::Intid;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// QEMU's options to emulate this board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// The board's name.
    pub board: String,
    /// QEMU's machine with its properties: what follows `-M`.
    pub machine: String,
    /// QEMU's CPU model: what follows `-cpu`.
    pub cpu: String,
    /// Cores of the machine: what follows `-smp`. As many as the board has.
    pub cores: usize,
    /// Bytes of memory in QEMU's spelling: what follows `-m`.
    pub memory: String,
    /// Further arguments.
    pub options: Vec<String>,
    /// The contents of the machine's serial ports, in the order in which QEMU numbers them.
    pub serial: Vec<Serial>,
    /// The file of the model that gives this emulation the memory hierarchy of a real board.
    pub model: Option<PathBuf>,
    /// A device of the machine with a way outside, if it has one for a VM. Only `run --net` asks
    /// for it, so that it is no part of what a kept run was.
    #[serde(skip)]
    pub network: Option<Network>,
    /// The machine's property by which it has an SMMU. A system that uses the SMMU adds it to
    /// `machine`.
    #[serde(skip)]
    pub smmu: Option<String>,
    /// Shared interrupts by which the board's cores learn of overflows. QEMU does not raise them,
    /// and the model does.
    pub overflow_interrupts: Vec<Intid>,
}

/// A network device that QEMU gives the machine when a run asks for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The page of its registers.
    pub start: PhysAddr,
    /// What makes QEMU have it, joined to the network called `net`.
    pub arguments: Vec<String>,
}

/// Whether an event counts on stock QEMU, which has neither caches nor a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// Always.
    Yes,
    /// Only when QEMU counts instructions (`-icount shift=N`).
    Icount,
    /// Never: it stays zero.
    No,
}

/// The use of a serial port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Serial {
    /// The console.
    Console,
    /// The telemetry UART.
    Telemetry,
    /// The console with the telemetry between its lines: by a configuration's `[telemetry]`.
    Both,
    /// A UART that a configuration frees for a VM.
    Vm,
    /// Nothing that Cloison uses.
    Unused,
}

/// The rest of the board file, with which the emulation must agree.
pub struct Hardware<'a> {
    /// The board's name.
    pub name: &'a str,
    /// How many cores it has.
    pub cores: usize,
    /// Bytes in all ranges of RAM.
    pub ram: u64,
    /// Whether it has a telemetry UART.
    pub telemetry: bool,
    /// The overflow interrupts of its PMUs.
    pub pmu_irqs: &'a [Intid],
}

const SERIALS: [(&str, Serial); 3] = [
    ("console", Serial::Console),
    ("telemetry", Serial::Telemetry),
    ("unused", Serial::Unused),
];

/// Arguments that Cloison itself gives to QEMU.
const TAKEN: [&str; 11] = [
    "-M",
    "-machine",
    "-cpu",
    "-smp",
    "-m",
    "-serial",
    "-monitor",
    "-kernel",
    "-icount",
    "-nographic",
    "-display",
];

impl Emulation {
    /// Returns the arguments by which QEMU has this machine, without further ones.
    pub fn machine_arguments(&self) -> Vec<String> {
        let cores = self.cores.to_string();
        [
            ("-M", &self.machine),
            ("-cpu", &self.cpu),
            ("-m", &self.memory),
            ("-smp", &cores),
        ]
        .map(|(option, value)| [option.to_owned(), value.clone()])
        .concat()
    }

    /// Reads `[qemu]`. The models are the files of `models_dir`.
    pub fn read(field: &Field<'_>, hardware: &Hardware<'_>, models_dir: &Path) -> Option<Self> {
        let table = field.table()?;
        let text = |key, help: &str| {
            table
                .required(key, help)
                .and_then(|field| field.string("text").map(str::to_owned))
        };
        let machine = text(
            "machine",
            "name QEMU's machine with its properties: machine = \"virt,virtualization=on\"",
        );
        let cpu = text("cpu", "name QEMU's CPU model: cpu = \"cortex-a53\"");
        let memory = table.required(
            "memory",
            "say how much memory QEMU gives the machine: memory = \"1G\"",
        );
        let memory = memory.and_then(|field| read_memory(&field, hardware.ram));
        let options = table
            .optional("options")
            .map_or(Some(vec![]), |field| read_options(&field));
        let network = table
            .optional("network")
            .map_or(Some(None), |field| read_network(&field).map(Some));
        let smmu = table
            .optional("smmu")
            .and_then(|field| field.string("a property of the machine").map(str::to_owned));
        let serial = read_serial(&table, hardware.telemetry);
        let model = table
            .optional("model")
            .map_or(Some(None), |field| read_model(&field, models_dir).map(Some));
        // Their names need the CPU's events, which are read next.
        table.required(
            "counts",
            "list the events that QEMU counts: counts = [\"SW_INCR\", \"CPU_CYCLES\"]",
        );
        table.optional("counts_with_icount");
        table.finish();
        Some(Self {
            board: hardware.name.to_owned(),
            machine: machine?,
            cpu: cpu?,
            cores: hardware.cores,
            memory: memory?,
            options: options?,
            serial: serial?,
            model: model?,
            network: network?,
            smmu,
            overflow_interrupts: hardware
                .pmu_irqs
                .iter()
                .copied()
                .filter(|irq| irq.0 >= 32)
                .collect(),
        })
    }
}

fn read_memory(field: &Field<'_>, ram: u64) -> Option<String> {
    let size = field.size()?;
    if size < ram {
        field.push(
            field
                .error(format!(
                    "QEMU gets {}, but the board has {} of RAM",
                    quantity::show_size(size),
                    quantity::show_size(ram)
                ))
                .label("less than all [[ram]] together")
                .help("give QEMU at least as much memory as [[ram]] lists"),
        );
        return None;
    }
    Some(field.string("a size")?.replace(' ', ""))
}

fn read_options(field: &Field<'_>) -> Option<Vec<String>> {
    let option = |element: &Field<'_>| {
        let option = element.string("one argument as text")?;
        if TAKEN.contains(&option) {
            element.push(
                element
                    .error(format!("Cloison itself gives `{option}` to QEMU"))
                    .label("given already")
                    .help("the other fields of [qemu] say what belongs there"),
            );
            return None;
        }
        Some(option.to_owned())
    };
    field.each(option)
}

fn read_network(field: &Field<'_>) -> Option<Network> {
    let table = field.table()?;
    let start = table
        .required(
            "start",
            "give the page of its registers: start = 0xff0b_0000",
        )
        .and_then(|field| page_address(&field));
    let arguments = table
        .required(
            "arguments",
            "join it to QEMU's network `net`: arguments = [\"-net\", \"nic,netdev=net\"]",
        )
        .and_then(|field| read_options(&field));
    table.finish();
    Some(Network {
        start: start?,
        arguments: arguments?,
    })
}

fn read_serial(table: &Table<'_>, telemetry: bool) -> Option<Vec<Serial>> {
    let Some(field) = table.optional("serial") else {
        return Some(if telemetry {
            vec![Serial::Console, Serial::Telemetry]
        } else {
            vec![Serial::Console]
        });
    };
    let serial = field.each(|element| element.one_of("use of a serial port", &SERIALS))?;
    let count = |wanted| serial.iter().filter(|&&line| line == wanted).count();
    let message = match (count(Serial::Console), count(Serial::Telemetry)) {
        (1, 1) if !telemetry => "a serial port carries telemetry, but the board has no [telemetry]",
        (1, 0) if telemetry => "no serial port carries telemetry, but the board has [telemetry]",
        (1, 0 | 1) => return Some(serial),
        (0, _) => "no serial port is the console",
        _ => "two serial ports carry the same",
    };
    let help = "list QEMU's serial ports in their order: serial = [\"console\", \"telemetry\"]";
    field.push(field.error(message).label("serial ports").help(help));
    None
}

/// The end of the name of a file in the models' directory that holds measurements of a board
/// instead of a model of it.
const MEASUREMENTS: &str = "-public";

fn read_model(field: &Field<'_>, models_dir: &Path) -> Option<PathBuf> {
    let name = field.string("the name of a model")?;
    let mut known = available(models_dir);
    known.retain(|file| !file.ends_with(MEASUREMENTS));
    if !known.iter().any(|model| model == name) {
        field.push(
            field
                .error(format!("there is no model `{name}`"))
                .label("unknown model")
                .help(suggest(
                    name,
                    "models in configs/models",
                    known.iter().map(String::as_str),
                )),
        );
        return None;
    }
    Some(models_dir.join(name).with_extension("toml"))
}
