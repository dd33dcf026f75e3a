//! `cloison profile`: where a guest's time and its accesses to memory go, by function and line, on
//! the board model; alone and beside its neighbors.
//!
//! The model's plugin charges each event of each core to an instruction, so that the totals are the
//! counts of the performance monitors.
//!
//! | module | contents |
//! | --- | --- |
//! | [`runs`] | boots with the plugin, and the check of its totals |
//! | [`symbols`] | functions and lines of addresses |
//! | [`costs`] | events by function, line and chain of calls |
//! | [`callgrind`] | the file for KCachegrind and `callgrind_annotate` |
//! | [`stacks`] | the files for flame graphs |
//! | [`trace`] | the file for Perfetto |
//! | [`kept`] | the file that is kept, and the comparison with one |
//! | [`shown`] | the tables on the terminal |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod costs;
pub mod kept;
pub mod runs;
pub mod shown;
pub mod stacks;
pub mod symbols;
pub mod trace;

use cloison_config::events::EventNames;
use cloison_config::problem::display_path;
use cloison_config::{Checked, ImageSource};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting};
use cloison_engine::files::{self, Claim, keep_apart, write_atomic, write_json};
use cloison_engine::image::{self, prelude};
use cloison_engine::installation::Installation;
use cloison_engine::model::{Caches, Conditions, Model, Roi};
use cloison_engine::progress::stage;
use cloison_engine::{configuration, installation, parts, setup};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Board, System};
use costs::{Part, Table};
use kept::{Gate, Growth, Kept, Subject};
use miette::{Result, WrapErr, miette};
use runs::{Neighbors, Profiled, Run};
use std::path::{Path, PathBuf};
use std::time::Duration;
use symbols::Symbols;

/// What the command writes, and how it charges.
const HELP: &str = "\
Files of each run, in DIR/alone and DIR/beside:
  callgrind.out              the guest, for KCachegrind and callgrind_annotate --inclusive=no
  callgrind.counted.out      the guest while its counters count: its segments, or what perf counts
  callgrind.hypervisor.out   EL2 on the VM's cores
  stacks.txt                 cycles by chain of calls, for flame graphs; and .counted, .hypervisor
  speedscope.json            each event by chain of calls, for speedscope
  trace.json                 each core over time, for Perfetto and Chrome
  profile.json               for --baseline; the same bytes from the same inputs, as all files
  telemetry.bin, console.txt what the hypervisor sent

All is modelled. An access is charged to its instruction, a line of code that is fetched to the
first instruction of its block. Calls are followed by BL, BLR and RET: a function that is entered
by a jump counts in chains as its caller. Programs of a Linux guest have no names.";

/// Options of `cloison profile`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct ProfileArgs {
    /// The configuration
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// The VM. The run ends with it
    #[arg(long, value_name = "NAME")]
    pub vm: String,
    /// One run instead of two: the VM alone, or beside its neighbors
    #[arg(long, value_name = "RUN")]
    pub only: Option<Neighbors>,
    /// Directory for the files [default: profile/NAME-VM in target/cloison, without a checkout in
    /// cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Names of the guest's functions, if its image has none: an ELF file, or a list as System.map
    /// and /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// Compare with the profile.json of an earlier run, and fail if the VM, or one function of it,
    /// grew by more than --max
    #[arg(long, value_name = "FILE", requires = "max")]
    pub baseline: Option<PathBuf>,
    /// The growth that passes, in percent of the baseline's total: +2%
    #[arg(
        long,
        value_name = "PERCENT",
        requires = "baseline",
        allow_hyphen_values = true
    )]
    pub max: Option<Growth>,
    /// The event that --baseline compares
    #[arg(long, value_name = "NAME", default_value = "CPU_CYCLES", value_parser = kept::event_name)]
    pub event: String,
    /// Show and compare all that the guest executes, even if its counters count a part: its
    /// segments, or what perf counts
    #[arg(long)]
    pub whole: bool,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Another board model than the board's: a file as those in configs/models
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// Seed of the model's replacement and refreshes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Stop a run after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// Runs `cloison profile`.
///
/// # Errors
///
/// If the VM cannot be profiled, or grew by more than its baseline allows.
pub fn profile(args: &ProfileArgs) -> Result<()> {
    let config = installation::find(&args.config);
    // A baseline that cannot be read is reported before the runs.
    let baseline = args.baseline.as_deref().map(Kept::read).transpose()?;
    let mut checked = configuration::load(&config, args.board.as_deref())?;
    let vm = checked.known_vm(&args.vm)?;
    counting::prepare_for(&mut checked, Counting::Model.machine())?;
    let names = Names::read(args, &checked, vm)?;
    parts::prepare()?;
    setup::qemu()?;
    let emulation = checked.emulation()?;
    let model = Model::chosen(args.model.as_deref(), emulation)?;
    let claim = directory(args, &checked, &config)?;
    let out = claim.directory();
    if let Some(baseline) = &args.baseline {
        let written = chosen(args, &checked).map(|it| out.join(it.name()).join("profile.json"));
        let written: Vec<PathBuf> = written.collect();
        keep_apart([baseline.as_path()], written.iter().map(PathBuf::as_path))?;
    }
    let el2 = el2_symbols(&checked.system.board)?;
    let runs = perform(args, &checked, vm, &model)?;
    let of_vm: Vec<usize> = checked.system.vms[vm.index()]
        .cores
        .iter()
        .map(|core| core.index())
        .collect();
    let mut done = Vec::new();
    for (neighbors, run) in runs {
        let table = |part: Part| {
            let symbols = match part {
                Part::Guest | Part::Counted => &names.symbols,
                Part::Hypervisor => &el2,
            };
            (part, Table::new(&run.recorded, &of_vm, part, symbols))
        };
        let mut tables: Vec<(Part, Table)> = Part::ALL.map(table).into();
        tables.retain(|(_, table)| !table.is_empty());
        done.push(Profiled {
            neighbors,
            run,
            tables,
        });
    }
    let subject = |neighbors: Neighbors| Subject {
        system: checked.system.name.clone(),
        vm: args.vm.clone(),
        guest: names.guest.clone(),
        board: checked.board.board.name.clone(),
        model: model.name.clone(),
        seed: args.seed,
        run: neighbors.name().to_owned(),
    };
    let mut kept = Vec::new();
    for profiled in &done {
        let profile = Kept::new(subject(profiled.neighbors), &profiled.tables);
        write(profiled, &profile, &checked.system, &el2, out)?;
        kept.push(profile);
    }
    let part = compared(args, &done);
    let events = EventNames::of(&checked.board.events);
    let report = shown::Report {
        vm: (vm, &args.vm),
        system: &checked.system.name,
        part,
        runs: &done,
        events: &events,
        notes: [names.symbols.note.as_deref(), el2.note.as_deref()],
    };
    report.print();
    println!(
        "Files:   callgrind.out, speedscope.json, stacks.txt, trace.json and profile.json of each \
         run in {}",
        installation::display(out)
    );
    let (Some(file), Some(baseline), Some(max)) = (&args.baseline, &baseline, args.max) else {
        return Ok(());
    };
    let gate = Gate {
        part,
        event: args.event.clone(),
        max,
    };
    // That of the baseline, or else the last one, so that what differs is named.
    let same = kept
        .iter()
        .find(|it| it.subject.run == baseline.subject.run);
    let now = same
        .or(kept.last())
        .ok_or_else(|| miette!("there was no run"))?;
    let verdict = baseline.compare(file, now, &gate)?;
    println!("\n{}", shown::verdict(&verdict, &gate).to_text());
    if verdict.passes() {
        return Ok(());
    }
    Err(shown::failure(&verdict, &gate, &args.vm))
}

/// Returns the runs to perform, that beside the neighbors last.
fn chosen(args: &ProfileArgs, checked: &Checked) -> impl Iterator<Item = Neighbors> {
    let has_neighbors = checked.system.vms.len() > 1;
    let only = args.only;
    [Neighbors::Alone, Neighbors::Beside]
        .into_iter()
        .filter(move |run| match only {
            Some(only) => only == *run,
            None => has_neighbors || *run == Neighbors::Alone,
        })
}

fn directory(args: &ProfileArgs, checked: &Checked, config: &Path) -> Result<Claim> {
    let name = format!("{}-{}", checked.system.name, args.vm);
    match &args.out {
        Some(out) => Claim::wait(
            out,
            &format!("profile {} {}", display_path(config).display(), args.vm),
        ),
        None => configuration::run_directory("profile", &name, config),
    }
}

/// The guest's name and those of its code.
struct Names {
    guest: String,
    symbols: Symbols,
}

impl Names {
    fn read(args: &ProfileArgs, checked: &Checked, vm: VmId) -> Result<Self> {
        let stem = |path: &Path| {
            let stem = path.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        };
        let source = &checked.images[vm.index()];
        let image = program(source)?;
        let guest = match (source, &image) {
            (ImageSource::Workload(name), _) => name.clone(),
            (_, Some(file)) => stem(file),
            (_, None) => "linux".to_owned(),
        };
        let symbols = match (&args.symbols, image) {
            (Some(file), _) => parse(file).wrap_err("--symbols cannot be used")?,
            (None, Some(image)) if is_elf(&image)? => parse(&image)?.with_sources(checkout()),
            (None, Some(image)) => Symbols::none(
                stem(&image),
                format!(
                    "{} is no ELF file: its functions are pages. Give the ELF file from which it \
                     was made by --symbols",
                    installation::display(&image)
                ),
            ),
            (None, None) => Symbols::none(
                "linux",
                "the kernel's functions are pages, and so is all that programs execute. Name the \
                 kernel's by --symbols: its System.map, its vmlinux, or what root reads in the \
                 guest from /proc/kallsyms",
            ),
        };
        Ok(Self { guest, symbols })
    }
}

/// Returns the file of a bare-metal guest's program; a Linux guest has none.
fn program(image: &ImageSource) -> Result<Option<PathBuf>> {
    Ok(match image {
        ImageSource::Workload(name) => Some(parts::guest(name)?),
        ImageSource::File(file) | ImageSource::FileWithTree(file, _) => Some(file.clone()),
        ImageSource::Linux(_) => None,
    })
}

fn is_elf(file: &Path) -> Result<bool> {
    Ok(files::read(file, files::IMAGE)?.starts_with(b"\x7fELF"))
}

/// Returns the names of a bare-metal guest's code; `None` if its image has none.
///
/// # Errors
///
/// If the image cannot be read.
pub fn guest_symbols(image: &ImageSource) -> Result<Option<Symbols>> {
    let Some(file) = program(image)? else {
        return Ok(None);
    };
    if !is_elf(&file)? {
        return Ok(None);
    }
    let symbols = parse(&file)?.with_sources(checkout());
    Ok(symbols.has_functions().then_some(symbols))
}

fn parse(file: &Path) -> Result<Symbols> {
    let bytes = files::read(file, files::IMAGE)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Symbols::parse(&name, &bytes)
        .map_err(|error| miette!("{}: {error}", installation::display(file)))
}

/// Returns the checkout, if there is one.
fn checkout() -> Option<&'static Path> {
    match installation::current() {
        Installation::Checkout(root) => Some(root),
        Installation::Bundle(_) | Installation::Nothing => None,
    }
}

fn el2_symbols(board: &Board) -> Result<Symbols> {
    let file = parts::hypervisor_for(board.gic.version(), &[])?;
    let bytes = files::read(&file, files::IMAGE)?;
    Symbols::parse("cloison-el2", &bytes)
        .map(|symbols| symbols.with_sources(checkout()))
        .map_err(|error| miette!("{}: {error}", installation::display(&file)))
}

/// Performs the runs side by side.
fn perform(
    args: &ProfileArgs,
    checked: &Checked,
    vm: VmId,
    model: &Model,
) -> Result<Vec<(Neighbors, Run)>> {
    let hypervisor = image::hypervisor_for(&checked.system.board)?;
    let base = image::assemble(checked, &hypervisor)?;
    let emulation = checked.emulation()?;
    let conditions = Conditions {
        seed: args.seed,
        caches: Caches::Warm,
        roi: Roi::Always,
    };
    let limit = Duration::from_secs(args.timeout);
    let boot = |neighbors: Neighbors| {
        let others = match neighbors {
            Neighbors::Alone => prelude::Others::Off,
            Neighbors::Beside => prelude::Others::Run,
        };
        let image = prelude::until(&base, &hypervisor, vm, others)?;
        let what = format!("the run {} failed", neighbors.name());
        let run = runs::boot(emulation, &image, model, conditions, limit).wrap_err(what)?;
        Ok((neighbors, run))
    };
    stage("run on the board model", || {
        std::thread::scope(|scope| {
            let boot = &boot;
            let runs: Vec<_> = chosen(args, checked)
                .map(|neighbors| scope.spawn(move || boot(neighbors)))
                .collect();
            let join = |run: std::thread::ScopedJoinHandle<'_, Result<(Neighbors, Run)>>| {
                run.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            runs.into_iter().map(join).collect()
        })
    })
}

/// Returns the part of the runs that is shown and compared: what the guest counts, if it counts.
fn compared(args: &ProfileArgs, runs: &[Profiled]) -> Part {
    let counts = runs.iter().all(|run| run.part(Part::Counted).is_some());
    if counts && !args.whole {
        Part::Counted
    } else {
        Part::Guest
    }
}

/// Writes the files of a run.
fn write(
    profiled: &Profiled,
    kept: &Kept,
    system: &System,
    el2: &Symbols,
    out: &Path,
) -> Result<()> {
    let directory = out.join(profiled.neighbors.name());
    let subject = &kept.subject;
    let title = format!("VM {} of {}, {}", subject.vm, subject.system, subject.run);
    for (part, table) in &profiled.tables {
        let what = format!("{title}, {}", part.name());
        let name = format!("callgrind{}.out", part.suffix());
        write_atomic(
            &directory.join(name),
            callgrind::file(table, &what).as_bytes(),
        )?;
        let name = format!("stacks{}.txt", part.suffix());
        let root = match part {
            Part::Guest | Part::Counted => &subject.vm,
            Part::Hypervisor => "hypervisor",
        };
        write_atomic(
            &directory.join(name),
            stacks::collapsed(root, table).as_bytes(),
        )?;
    }
    let parts: Vec<(&str, &Table)> = profiled
        .tables
        .iter()
        .map(|(part, table)| (part.name(), table))
        .collect();
    write_json(
        &directory.join("speedscope.json"),
        &stacks::speedscope(&title, &parts),
    )?;
    let Run {
        recorded,
        telemetry,
        log,
        console,
    } = &profiled.run;
    write_atomic(&directory.join("telemetry.bin"), log)?;
    write_atomic(&directory.join("console.txt"), console.as_bytes())?;
    let trace = trace::file(&title, recorded, telemetry, system, el2);
    write_atomic(&directory.join("trace.json"), trace.as_bytes())?;
    write_json(&directory.join("profile.json"), kept)
}
