//! `cloison bbprof`: finds the pages of a bare-metal guest that matter to the time of its segments.
//!
//! The system boots once for each page, with that page alone cacheable (or all others) among those
//! that are profiled. The guest is not changed: a program before its first instruction makes the
//! pages non-cacheable.
//!
//! | module | contents |
//! | --- | --- |
//! | [`absent`] | profiles that do not exist yet |
//! | [`layout`] | the guest's pages, by kind |
//! | [`runs`] | boots, and the times of their segments |
//! | [`written`] | the profile as a file, and tables |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod absent;
pub mod layout;
pub mod runs;
pub mod written;

use crate::boards::{Absent, Boards, seconds};
use crate::captured::{BoardRuns, CapturedRuns, NotCaptured};
use cloison_abi::services;
use cloison_config::problem::{count, display_path};
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, Errors, ImageSource, suggest};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, Claim, keep_apart, sha256, write_atomic};
use cloison_engine::image::prelude::Others;
use cloison_engine::model::{Caches, Conditions, Model, Roi};
use cloison_engine::progress::bar;
use cloison_engine::report::Section;
use cloison_engine::store::Store;
use cloison_engine::{configuration, installation, parts, setup};
use cloison_formats::addr::Ipa;
use cloison_formats::ids::VmId;
use cloison_formats::image::Region;
use cloison_profile::groups::{self, Span};
use cloison_profile::knee::{self, Search};
use cloison_profile::layout::Selection;
use cloison_profile::{
    Baseline, Block, Kind, Mapping, Mode, PageName, Profile, Provenance, Times, VmaProfile,
};
use layout::Program;
use miette::{Result, WrapErr, miette};
use runs::{Booted, Point, Runs, Subject};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Instant;
use written::Page;

/// The kinds of pages that are profiled if none are named.
const FLAGS: &str = "hs";
/// How a page is treated apart by default: it alone is cacheable.
const MODE: &str = "c";
/// The kinds of pages that an image of a guest and its memory have.
const ALL_OF_A_GUEST: &str = "trbhs";
/// Pages of a block that is measured as one where nothing is known of a guest: most of its memory
/// does not matter.
const LARGE_BLOCK: u32 = 64;

/// Part of the sum of all importances that the blocks to refine make up.
const COVERED: f64 = 0.9;
/// Importance of a page in the profile, at least, as a part of the greatest.
const LEAST: f64 = 0.01;

/// Pages that the table on the terminal shows.
const SHOWN: usize = 20;

/// Options of `cloison bbprof`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_group("BoardRuns", |group| group.multiple(true).conflicts_with_all(["model", "seed"])))]
pub struct BbprofArgs {
    /// The configuration; the profile that its VM names need not exist yet
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// The VM, which runs a bare-metal guest
    #[arg(long, value_name = "NAME")]
    pub vm: String,
    /// Which pages, and how.
    #[command(flatten)]
    pub choice: Choice,
    /// The board, if not the configuration's
    #[arg(long, value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Another board model than the board's: a file as those in configs/models
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// The board that runs the boots, instead of the model
    #[command(flatten)]
    pub board_runs: BoardRuns,
    /// Also write the profile here
    #[arg(short = 'o', long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Directory for runs and tables [default: bbprof/NAME-VM in target/cloison, without a
    /// checkout in cloison-output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Whether a board executes the images, as jobs.
    #[arg(skip)]
    pub is_on_hardware: bool,
}

/// Which pages are measured, and how.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[group(requires = "vm")]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Which pages: t text, r rodata, b data, h heap (RAM that is free after the image), s stack,
    /// a first other region, A all others
    #[arg(short, long, value_name = "LETTERS", default_value = FLAGS)]
    pub flags: String,
    /// Only these pages of a region, such as ram:256-355
    #[arg(long, value_name = "REGION:FIRST-LAST", value_parser = wanted)]
    pub pages: Option<RegionPages>,
    /// How a page is treated apart: c, it alone is cacheable; nc, it alone is not
    #[arg(short, long, default_value = MODE, value_parser = ["c", "nc"])]
    pub mode: String,
    /// Measure blocks of N pages first, and only those that matter page by page
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub block: u32,
    /// Part of the sum of all importances that the blocks to refine make up
    #[arg(long, value_name = "PART", default_value_t = COVERED, value_parser = part)]
    pub covered: f64,
    /// Then measure the time with the k most important pages cacheable, for each k
    #[arg(long)]
    pub rank: bool,
    /// Then find the number of pages that is enough, by halving
    #[arg(long, conflicts_with = "rank")]
    pub coarse: bool,
    /// How close to the time with all pages is enough, as a part of the difference between none
    /// and all
    #[arg(long, value_name = "PART", default_value_t = knee::TOLERANCE, value_parser = part)]
    pub tolerance: f64,
    /// Importance of the pages in the profile, at least, as a part of the greatest
    #[arg(long, value_name = "PART", default_value_t = LEAST, value_parser = part)]
    pub least: f64,
    /// Number of first segments to leave out
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: usize,
    /// Run the other VMs too, which otherwise turn themselves off at their first instruction
    #[arg(long)]
    pub neighbors: bool,
    /// Seed of the model's replacement and refreshes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            flags: FLAGS.to_owned(),
            pages: None,
            mode: MODE.to_owned(),
            block: 1,
            covered: COVERED,
            rank: false,
            coarse: false,
            tolerance: knee::TOLERANCE,
            least: LEAST,
            warm_up: 0,
            neighbors: false,
            seed: 0,
        }
    }
}

/// Pages of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionPages {
    region: String,
    pages: RangeInclusive<u64>,
}

impl BbprofArgs {
    /// Returns the arguments that find the pages that matter to a VM of which nothing is known:
    /// of all kinds, in large blocks first. The first segment is left out, since its caches are
    /// cold.
    pub fn to_make(config: &Path, vm: &str, profile: &Path, seed: u64) -> Self {
        Self {
            config: config.to_path_buf(),
            vm: vm.to_owned(),
            choice: Choice {
                flags: ALL_OF_A_GUEST.to_owned(),
                block: LARGE_BLOCK,
                warm_up: 1,
                seed,
                ..Choice::default()
            },
            board: None,
            model: None,
            profile: Some(profile.to_path_buf()),
            out: None,
            board_runs: BoardRuns::default(),
            json: None,
            is_on_hardware: false,
        }
    }
}

fn wanted(text: &str) -> Result<RegionPages, String> {
    let parsed = || {
        let (region, pages) = text.split_once(':')?;
        let (first, last) = pages.split_once('-').unwrap_or((pages, pages));
        let pages = first.parse().ok()?..=last.parse().ok()?;
        (!pages.is_empty()).then(|| RegionPages {
            region: region.to_owned(),
            pages,
        })
    };
    parsed().ok_or_else(|| "write a region and its pages: ram:256-355".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("write a number from 0 to 1".to_owned()),
    }
}

/// Runs `cloison bbprof`.
///
/// # Errors
///
/// If the configuration or the guest cannot be profiled, or a run fails.
pub fn bbprof(args: &BbprofArgs) -> Result<()> {
    bbprof_on(&Boards::here(), args)
}

/// Finds the pages by runs on these boards.
///
/// # Errors
///
/// As [`bbprof`]; also if a boot has no output yet.
pub fn bbprof_on(boards: &Boards, args: &BbprofArgs) -> Result<()> {
    let config = installation::find(&args.config);
    keep_apart([config.as_path()], args.json.as_deref())?;
    keep_apart([config.as_path()], args.profile.as_deref())?;
    let (mut checked, vm) = load(args, &config)?;
    let is_on_board = args.is_on_hardware || args.board_runs.is_given();
    let machine = if is_on_board {
        Machine::Hardware
    } else {
        Counting::Model.machine()
    };
    counting::prepare_for(&mut checked, machine)?;
    let vm_of = &checked.system.vms[vm.index()];
    let selection = select(args, &vm_of.regions)?;
    let file = elf_of(&checked, vm)?;
    let bytes = files::read(&file, files::IMAGE)?;
    let program = Program::parse(&bytes)
        .map_err(|error| miette!("{} cannot be read: {error}", installation::display(&file)))?;
    let mappings = layout::of(&program, &vm_of.regions);
    let profiled = GuestPages {
        program: &program,
        mappings: &mappings,
        regions: &vm_of.regions,
    };
    let pages = profiled.choose(&selection, args)?;
    println!("{}", profiled.table(&pages).to_text());
    parts::prepare()?;
    let captured = CapturedRuns::find(&args.board_runs.captured)?;
    let model = if is_on_board {
        has_segments(&args.vm, vm_of.services)?;
        None
    } else {
        setup::qemu()?;
        Some(Model::chosen(args.model.as_deref(), checked.emulation()?)?)
    };
    let name = format!("{}-{}", checked.system.name, args.vm);
    let claim = match &args.out {
        Some(out) => Claim::for_results(
            out,
            &format!("bbprof {} {}", display_path(&config).display(), args.vm),
        )?,
        None => configuration::run_directory("bbprof", &name, &config)?,
    };
    let out = claim.directory();
    let board = board_of(args.board.as_deref(), &checked, &config);
    let subject = Subject {
        checked: &checked,
        board: &board,
        vm,
        others: if args.choice.neighbors {
            Others::Run
        } else {
            Others::Off
        },
        warm_up: args.choice.warm_up,
        conditions: Conditions {
            seed: args.choice.seed,
            caches: Caches::Warm,
            roi: Roi::Always,
        },
    };
    let executor = match &model {
        Some(model) => runs::Executor::Boots(Booted::model(model, out)?),
        None if args.is_on_hardware => {
            runs::Executor::Boots(Booted::Hardware(Store::of_results(out)))
        }
        None => runs::Executor::Captured(&captured, args.board_runs.images.as_deref()),
    };
    let runs = Runs::new(subject, executor, out)?;
    let started = Instant::now();
    let mut profiler = Profiler {
        args,
        boards,
        runs: &runs,
        profiled: &profiled,
        pages,
        boots: 0,
        segments: None,
    };
    let measured = profiler.measured();
    let missing = measured.as_ref().err();
    let missing = missing.and_then(|error| error.downcast_ref::<NotCaptured>());
    // Another error has stopped the search for them.
    if measured.is_ok() || missing.is_some() {
        for folder in captured.strangers() {
            eprintln!("bbprof: not used: {folder}: its image is none that this profile needs");
        }
    }
    let (profile, curve) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            let missing = error.downcast_ref::<NotCaptured>();
            let missing = missing.filter(|_| args.board_runs.images.is_some());
            let Some(NotCaptured { names, .. }) = missing else {
                return Err(error);
            };
            let board = &checked.board.board.name;
            args.board_runs.print_written(names, board);
            return Ok(());
        }
    };
    let order = profile.ranked().len();
    let (boots, segments) = (profiler.boots, profiler.segments.unwrap_or_default());
    runs.clean();
    seconds::remember(&format!("bbprof {name}"), &boards.seconds());
    let plain = order + 2;
    eprintln!(
        "bbprof: {} in {:.1} s, {} of them kept from earlier; page by page, a profile takes \
         {plain}",
        count(boots, "run"),
        started.elapsed().as_secs_f64(),
        runs.reused()
    );

    let results = Results {
        args,
        config: &config,
        checked: &checked,
        profiled: &profiled,
        executor: model
            .as_ref()
            .map_or(Executor::Board(&checked.board.board.name), Executor::Model),
        guest: sha256(&bytes),
        image: runs.image(),
        profile,
        curve,
        boots,
        segments,
    };
    results.write(out)
}

/// What executed the boots.
#[derive(Clone, Copy)]
enum Executor<'a> {
    /// The board model.
    Model(&'a Model),
    /// The board of this name.
    Board(&'a str),
}

impl Executor<'_> {
    /// Returns how the times were made, for titles.
    const fn word(self) -> &'static str {
        match self {
            Self::Model(_) => "modelled",
            Self::Board(_) => "measured on the board",
        }
    }
}

/// Checks that a VM's segments are in the hypervisor's log: a board has no other.
fn has_segments(vm: &str, given: u32) -> Result<()> {
    if given & services::HEM != 0 {
        return Ok(());
    }
    Err(miette!(
        help = "give the VM services = [\"hem\"], and let the guest call segment_begin and \
                segment_end: only the board model knows regions of interest",
        "VM `{vm}` has no segments that a board logs"
    ))
}

/// The measurements, and their subject.
struct Results<'a> {
    args: &'a BbprofArgs,
    config: &'a Path,
    checked: &'a Checked,
    profiled: &'a GuestPages<'a>,
    executor: Executor<'a>,
    /// SHA-256 of the guest's file.
    guest: String,
    /// SHA-256 of the system's image.
    image: String,
    profile: Profile,
    curve: Option<Curve>,
    boots: usize,
    /// Number of segments of each boot.
    segments: usize,
}

impl Results<'_> {
    /// Writes profile, tables and figures, and prints what is most important.
    fn write(&self, out: &Path) -> Result<()> {
        let all = self.profiled.describe(&self.profile);
        let matter = written::that_matter(&all, self.args.choice.least);
        let file = out.join("profile.toml");
        if matter.is_empty() {
            eprintln!("bbprof: no page matters to the segments, so there is no profile to write");
        } else {
            let text = self.text(matter, all.len());
            write_atomic(&file, text.as_bytes())?;
            self.args
                .profile
                .iter()
                .try_for_each(|path| write_atomic(path, text.as_bytes()))?;
        }
        write_atomic(&out.join("pages.csv"), written::csv(&all).as_bytes())?;
        println!(
            "{}",
            shown(
                &all,
                self.executor,
                &self.args.choice.mode,
                [self.none(), self.all()]
            )
            .to_text()
        );
        if let Some(Curve { points, found }) = &self.curve {
            let table = curve_table(points, self.executor, *found, all.len());
            println!("{}", table.to_text());
        }
        let figures = self.figures(&all, matter.len());
        figures.write(Some(&out.join("figures.json")))?;
        figures.write(self.args.json.as_deref())?;
        if !matter.is_empty() {
            println!(
                "Profile: {}, {} of version 1",
                installation::display(&file),
                count(matter.len(), "page")
            );
        }
        let runs = match self.executor {
            Executor::Model(_) => ", figures.json and runs/",
            Executor::Board(_) => " and figures.json",
        };
        println!("Data:    pages.csv{runs} in {}", installation::display(out));
        Ok(())
    }

    fn none(&self) -> f64 {
        mean(self.profile.baseline.none)
    }

    fn all(&self) -> f64 {
        mean(self.profile.baseline.all)
    }

    /// Returns the profile as a file.
    fn text(&self, matter: &[Page], pages: usize) -> String {
        let (args, segments) = (self.args, count(self.segments, "segment"));
        let system = &self.checked.system.name;
        let what = format!(
            "VM {} of {system}, {segments}, mode {}, pages {}",
            args.vm, args.choice.mode, args.choice.flags
        );
        let machine = match self.executor {
            Executor::Model(model) => format!(
                "the board model {} (modelled), seed {}",
                model.name, args.choice.seed
            ),
            Executor::Board(board) => format!("board {board}, by its captured runs"),
        };
        let comment = format!(
            "Made by `cloison bbprof` on {machine}.\n\
             All {pages} pages uncached {:.0} cycles, cached {:.0}.\n\
             The guest's file has the SHA-256 {}.",
            self.none(),
            self.all(),
            self.guest
        );
        written::profile(&comment, &what, matter)
    }

    fn figures(&self, pages: &[Page], matter: usize) -> Figures {
        let args = self.args;
        let mut figures = Figures::new("bbprof")
            .board(&self.checked.board.board.name)
            .config(self.config)
            .images([self.image.clone()])
            .parameter("modelled", matches!(self.executor, Executor::Model(_)))
            .parameter("vm", &args.vm)
            .parameter("mode", &args.choice.mode)
            .parameter("pages", &args.choice.flags)
            .parameter("block", args.choice.block)
            .parameter("warm_up_segments", args.choice.warm_up)
            .parameter("neighbors", args.choice.neighbors);
        figures = match self.executor {
            Executor::Model(model) => figures
                .parameter("model", &model.name)
                .parameter("seed", args.choice.seed),
            Executor::Board(_) => figures,
        };
        figures
            .count("pages", pages.len() as u64)
            .count("pages_in_profile", matter as u64)
            .count("runs", self.boots as u64)
            .count("segments", self.segments as u64)
            .value("none_cycles", self.none())
            .value("all_cycles", self.all());
        let row = |page: &Page| {
            let (place, kind) = (&page.place, page.kind.to_string());
            let importance = written::rounded(page.importance);
            json!({ "region": place.region, "page": place.page, "kind": kind, "importance": importance })
        };
        figures.series("pages", pages.iter().map(row).collect());
        if let Some(Curve { points, found }) = &self.curve {
            if let Some(found) = found {
                figures.count("k_star", *found as u64);
            }
            let row = |(k, times): &(usize, Times)| json!({ "k": k, "min": times.min, "mean": times.mean, "max": times.max });
            figures.series("rank", points.iter().map(row).collect());
        }
        figures
    }
}

fn mean(times: Option<Times>) -> f64 {
    times.map_or(0.0, |times| times.mean)
}

/// Returns the files that determine a profile's boots.
///
/// # Errors
///
/// If the configuration or the VM cannot be profiled.
pub(crate) fn files_of(args: &BbprofArgs) -> Result<Vec<PathBuf>> {
    let config = installation::find(&args.config);
    let (checked, vm) = load(args, &config)?;
    let mut files = vec![elf_of(&checked, vm)?];
    if !args.is_on_hardware {
        let model = Model::chosen(args.model.as_deref(), checked.emulation()?)?;
        files.push(model.board().to_path_buf());
    }
    files.push(config);
    Ok(files)
}

/// Reads the configuration, and finds the VM. Profiles that do not exist yet are left out.
fn load(args: &BbprofArgs, config: &Path) -> Result<(Checked, VmId)> {
    let board = args.board.as_deref();
    let checked = configuration::load(config, board).or_else(|errors: Errors| {
        match absent::left_out(config) {
            Some(text) => configuration::load_text(config, text, board),
            None => Err(errors),
        }
    })?;
    let vm = checked.known_vm(&args.vm)?;
    if matches!(checked.images[vm.index()], ImageSource::Linux(_)) {
        let help = "the pages of its programs are found in the guest, by the program bbprof: \
                    tools = [\"bbprof\"] (docs/bbprof.md)";
        return Err(miette!(
            help = help,
            "VM `{}` runs Linux, whose kernel moves pages as it likes",
            args.vm
        ));
    }
    Ok((checked, vm))
}

/// Returns the ELF file of a VM's guest.
fn elf_of(checked: &Checked, vm: VmId) -> Result<PathBuf> {
    let file = match &checked.images[vm.index()] {
        ImageSource::Workload(name) => parts::guest(name)?,
        ImageSource::File(file) | ImageSource::FileWithTree(file, _) => file.clone(),
        ImageSource::Linux(_) => return Err(miette!("a Linux kernel is not profiled")),
    };
    if files::read(&file, files::IMAGE)?.starts_with(b"\x7fELF") {
        return Ok(file);
    }
    let (vm, file) = (
        &checked.system.vms[vm.index()].name,
        installation::display(&file),
    );
    let help = "name the ELF file from which it was made as the VM's image";
    Err(miette!(
        help = help,
        "VM `{vm}`: {file} is no ELF file, so that nothing says what its pages are for"
    ))
}

/// Returns the board as a kept run names it; `named` is that of the command line.
pub(crate) fn board_of(named: Option<&str>, checked: &Checked, config: &Path) -> String {
    let name = named.unwrap_or(&checked.board.board.name).to_owned();
    let own = config
        .parent()
        .unwrap_or(Path::new("."))
        .join("boards")
        .join(format!("{name}.toml"));
    if own.is_file() {
        std::path::absolute(&own)
            .unwrap_or(own)
            .display()
            .to_string()
    } else {
        name
    }
}

/// Returns the kinds of pages that are to be profiled.
fn select(args: &BbprofArgs, regions: &[Region]) -> Result<Selection> {
    let names = || regions.iter().map(|region| region.name.as_str());
    if let Some(wanted) = args
        .choice
        .pages
        .as_ref()
        .filter(|wanted| !names().any(|name| name == wanted.region))
    {
        let help = suggest(&wanted.region, "regions", names());
        return Err(miette!(
            help = help,
            "--pages: VM `{}` has no region `{}`",
            args.vm,
            wanted.region
        ));
    }
    let kinds = "t, r, b, h, s, a and A are kinds of pages of a bare-metal guest";
    Selection::parse(&args.choice.flags)
        .map_err(|letter| miette!(help = kinds, "--flags: `{letter}` is no kind of pages"))
}

/// The guest's pages.
struct GuestPages<'a> {
    program: &'a Program,
    mappings: &'a [Mapping],
    regions: &'a [Region],
}

impl GuestPages<'_> {
    /// Returns the pages that are to be profiled, in order.
    fn choose(&self, selection: &Selection, args: &BbprofArgs) -> Result<Vec<PageName>> {
        let names = |mapping: &&Mapping| {
            let vma = mapping.index;
            (0..mapping.pages).map(move |offset| PageName { vma, offset })
        };
        let is_wanted = |page: &PageName| {
            let Some(wanted) = &args.choice.pages else {
                return true;
            };
            let place = layout::place(self.mappings, self.regions, *page);
            place.is_some_and(|place| {
                place.region == wanted.region && wanted.pages.contains(&place.page)
            })
        };
        let pages: Vec<PageName> = selection
            .of(self.mappings)
            .iter()
            .flat_map(names)
            .filter(is_wanted)
            .collect();
        if pages.is_empty() {
            let of = |kind: Kind| {
                let pages: u32 = self
                    .mappings
                    .iter()
                    .filter(|it| it.kind == kind)
                    .map(|mapping| mapping.pages)
                    .sum();
                (pages > 0).then(|| format!("{kind} ({}) {pages}", kind.meaning()))
            };
            let kinds: Vec<String> = Kind::ALL.into_iter().filter_map(of).collect();
            let help = match kinds.is_empty() {
                true => "only pages of regions with `pool = ...` can move, and none of the VM's \
                         regions has one"
                    .to_owned(),
                false => format!(
                    "its pages that can move are, by letter: {}",
                    kinds.join(", ")
                ),
            };
            return Err(miette!(
                help = help,
                "VM `{}` has no page that --flags {} and --pages choose",
                args.vm,
                args.choice.flags
            ));
        }
        Ok(pages)
    }

    fn table(&self, pages: &[PageName]) -> Section {
        let mut table = Section::new("Pages", &["kind", "what", "from", "pages", "profiled"]);
        for mapping in self.mappings {
            let chosen = pages
                .iter()
                .filter(|page| page.vma == mapping.index)
                .count();
            let kind = format!("{} ({})", mapping.kind, mapping.kind.meaning());
            let (name, from) = (mapping.name.clone(), Ipa(mapping.start).to_string());
            table.row([
                kind,
                name,
                from,
                mapping.pages.to_string(),
                chosen.to_string(),
            ]);
        }
        let data = self.mappings.iter().filter(|it| it.kind == Kind::Data);
        let all: u32 = data.clone().map(|mapping| mapping.pages).sum();
        let is_chosen = |mapping: &Mapping| pages.iter().any(|page| page.vma == mapping.index);
        if all == 0 || data.clone().any(is_chosen) {
            return table;
        }
        table.note(format!(
            "{all} pages of the guest's variables are not profiled: --flags {} profiles these.",
            Kind::Data
        ))
    }

    fn address(&self, page: PageName) -> Result<Ipa> {
        layout::address(self.mappings, page).ok_or_else(|| miette!("there is no page {page}"))
    }

    /// Returns the profile's pages in order of importance.
    fn describe(&self, profile: &Profile) -> Vec<Page> {
        let describe = |ranked: &cloison_profile::profile::Ranked| {
            let place = layout::place(self.mappings, self.regions, ranked.page)?;
            let (mapping, ipa) = (
                self.mappings.get(ranked.page.vma as usize)?,
                layout::address(self.mappings, ranked.page)?,
            );
            let blocks = profile
                .vmas
                .iter()
                .filter(|vma| vma.index == mapping.index)
                .flat_map(|vma| &vma.blocks);
            let mut of = blocks.filter(|block| {
                (block.offset..block.offset + block.pages).contains(&ranked.page.offset)
            });
            let what = self
                .program
                .symbol_on(ipa.0)
                .unwrap_or(&mapping.name)
                .to_owned();
            let block = of.next().map_or(1, |block| block.pages);
            Some(Page {
                place,
                ipa: ipa.0,
                kind: mapping.kind.letter(),
                what,
                block,
                importance: ranked.importance,
            })
        };
        profile.ranked().iter().filter_map(describe).collect()
    }
}

/// The time with the k most important pages cacheable.
struct Curve {
    points: Vec<(usize, Times)>,
    found: Option<usize>,
}

/// A run of the profiler.
struct Profiler<'a> {
    args: &'a BbprofArgs,
    boards: &'a Boards,
    runs: &'a Runs<'a>,
    profiled: &'a GuestPages<'a>,
    /// The pages that are profiled.
    pages: Vec<PageName>,
    boots: usize,
    /// Number of segments that each boot has.
    segments: Option<usize>,
}

/// A boot: its name, and the pages that the caches may not hold.
type PageSet = (String, Vec<PageName>);

impl Profiler<'_> {
    /// Returns the profile, and the curve of ranks if it is asked for.
    fn measured(&mut self) -> Result<(Profile, Option<Curve>)> {
        let profile = self.profile()?;
        let ranked = profile.ranked();
        let order: Vec<PageName> = ranked.iter().map(|ranked| ranked.page).collect();
        let curve = self.rank(&order)?;
        Ok((profile, curve))
    }

    fn points(&self, sets: Vec<PageSet>) -> Result<Vec<Point>> {
        let point = |(key, pages): PageSet| {
            let uncached: Result<BTreeSet<Ipa>> = pages
                .into_iter()
                .map(|page| self.profiled.address(page))
                .collect();
            uncached.map(|uncached| Point { key, uncached })
        };
        sets.into_iter().map(point).collect()
    }

    /// Boots once for each set of pages that the caches may not hold.
    fn measure(&mut self, what: &str, sets: Vec<PageSet>) -> Result<Vec<Times>> {
        let points = self.points(sets)?;
        self.boots += points.len();
        let bar = bar(&format!("bbprof {what}"), points.len());
        let done = self.runs.measure(self.boards, &bar, &points, self.segments);
        bar.finish_and_clear();
        let done = done?;
        self.segments = self.segments.or(done.first().map(Vec::len));
        let times =
            |cycles: Vec<u64>| Times::of(cycles).ok_or_else(|| miette!("a run without segments"));
        done.into_iter().map(times).collect()
    }

    /// Measures blocks, each treated apart from all other pages.
    fn apart(&mut self, what: &str, spans: &[Span], mode: Mode) -> Result<Vec<Times>> {
        let sets = self.sets_apart(spans, mode)?;
        self.measure(what, sets)
    }

    fn sets_apart(&self, spans: &[Span], mode: Mode) -> Result<Vec<PageSet>> {
        let set = |span: &Span| {
            let own: BTreeSet<PageName> = span.names().collect();
            let is_uncached = |page: &&PageName| own.contains(page) == (mode == Mode::NonCacheable);
            let place = layout::place(self.profiled.mappings, self.profiled.regions, span.first);
            let place = place.ok_or_else(|| miette!("there is no page {}", span.first))?;
            let key = format!("{mode}-{}-{}-{}", place.region, place.page, span.pages);
            Ok((
                key,
                self.pages.iter().filter(is_uncached).copied().collect(),
            ))
        };
        spans.iter().map(set).collect()
    }

    /// Measures all pages, or blocks of them and the pages of those that matter.
    fn profile(&mut self) -> Result<Profile> {
        let mode = if self.args.choice.mode == "nc" {
            Mode::NonCacheable
        } else {
            Mode::Cacheable
        };
        let ends = vec![
            ("none".to_owned(), self.pages.clone()),
            ("all".to_owned(), vec![]),
        ];
        let spans = groups::blocks(&self.pages, self.args.choice.block);
        let first = [ends.clone(), self.sets_apart(&spans, mode)?].concat();
        self.runs.require(&self.points(first)?)?;
        let ends = self.measure("baseline", ends);
        // Where both have no output yet, both are planned.
        let ends = self.boards.defer(ends)?;
        let what = if self.args.choice.block > 1 {
            "blocks"
        } else {
            "pages"
        };
        let times = self.apart(what, &spans, mode)?;
        let ends = ends.ok_or(Absent)?;
        let baseline = Baseline {
            none: ends.first().copied(),
            all: ends.get(1).copied(),
            tracing: None,
        };
        let mut measured: Vec<(Span, Times)> = spans.into_iter().zip(times).collect();
        let coarse = self.with(mode, baseline, &measured);
        let important: Vec<(Span, f64)> = measured
            .iter()
            .map(|(span, times)| (*span, coarse.importance(times)))
            .collect();
        let refined = groups::refined(&important, self.args.choice.covered);
        let chosen: Vec<Span> = measured
            .iter()
            .zip(&refined)
            .filter(|(_, refined)| **refined)
            .map(|((span, _), _)| *span)
            .collect();
        if !chosen.is_empty() {
            let single = |first| Span { first, pages: 1 };
            let pages: Vec<Span> = chosen
                .iter()
                .flat_map(|span| span.names())
                .map(single)
                .collect();
            let times = self.apart("pages", &pages, mode)?;
            measured.retain(|(span, _)| !chosen.contains(span));
            measured.extend(pages.into_iter().zip(times));
        }
        Ok(self.with(mode, baseline, &measured))
    }

    /// Returns the profile of what has been measured.
    fn with(&self, mode: Mode, baseline: Baseline, measured: &[(Span, Times)]) -> Profile {
        let of = |mapping: &Mapping| {
            let own = measured
                .iter()
                .filter(|(span, _)| span.first.vma == mapping.index);
            let block = |(span, times): &(Span, Times)| {
                let (offset, pages) = (span.first.offset, span.pages);
                Block {
                    offset,
                    pages,
                    times: *times,
                    counts: vec![],
                }
            };
            let mut blocks: Vec<Block> = own.map(block).collect();
            blocks.sort_by_key(|block| block.offset);
            let (index, kind, pages) = (mapping.index, Some(mapping.kind), mapping.pages);
            (!blocks.is_empty()).then(|| VmaProfile {
                index,
                kind,
                name: mapping.name.clone(),
                pages,
                blocks,
            })
        };
        let vmas = self.profiled.mappings.iter().filter_map(of).collect();
        let (unit, provenance) = ("cycles".to_owned(), Provenance::default());
        Profile {
            mode,
            unit,
            provenance,
            baseline,
            events: vec![],
            vmas,
            excluded: vec![],
        }
    }

    /// Measures the time with the k most important pages cacheable and all others not, as far as
    /// that is asked for.
    fn rank(&mut self, order: &[PageName]) -> Result<Option<Curve>> {
        let set = |k: usize| (format!("top-{k}"), order[k..].to_vec());
        if self.args.choice.rank {
            let times = self.measure("rank", (0..=order.len()).map(set).collect())?;
            let means: Vec<f64> = times.iter().map(|times| times.mean).collect();
            let found = knee::of(&means, self.args.choice.tolerance);
            return Ok(Some(Curve {
                points: times.into_iter().enumerate().collect(),
                found,
            }));
        }
        if !self.args.choice.coarse {
            return Ok(None);
        }
        let mut search = Search::new(order.len(), self.args.choice.tolerance);
        let mut points = vec![];
        while let Some(k) = search.next() {
            let times = self
                .measure("rank", vec![set(k)])
                .wrap_err("the curve of ranks")?;
            for times in times {
                search.add(k, times.mean);
                points.push((k, times));
            }
        }
        points.sort_by_key(|(k, _)| *k);
        Ok(Some(Curve {
            points,
            found: search.found(),
        }))
    }
}

/// Returns the table of the most important pages.
fn shown(pages: &[Page], executor: Executor<'_>, mode: &str, [none, all]: [f64; 2]) -> Section {
    let mut table = Section::new(
        &format!("Importance ({})", executor.word()),
        &["page", "address", "kind", "what", "cycles"],
    );
    for page in &pages[..pages.len().min(SHOWN)] {
        let of_block = if page.block > 1 {
            format!(" (of a block of {})", page.block)
        } else {
            String::new()
        };
        table.row([
            format!("{} {}", page.place.region, page.place.page),
            Ipa(page.ipa).to_string(),
            page.kind.to_string(),
            page.what.clone(),
            format!("{:.0}{of_block}", page.importance),
        ]);
    }
    let left = pages.len().saturating_sub(SHOWN);
    let limit = match mode {
        "c" => {
            " By -m c, pages that are used alike can differ, by how the accesses to all others meet \
             theirs in memory: compare with -m nc."
        }
        _ => "",
    };
    table.note(format!(
        "The segments take {none:.0} cycles with no profiled page cacheable, and {all:.0} with \
         all. {left} pages more are in pages.csv.{limit}"
    ))
}

fn curve_table(
    points: &[(usize, Times)],
    executor: Executor<'_>,
    found: Option<usize>,
    pages: usize,
) -> Section {
    let mut table = Section::new(
        &format!("Time by cacheable pages ({})", executor.word()),
        &["k", "mean", "min", "max"],
    );
    for (k, times) in points {
        table.row([
            k.to_string(),
            format!("{:.0}", times.mean),
            times.min.to_string(),
            times.max.to_string(),
        ]);
    }
    let found = found.map_or_else(
        || "not known".to_owned(),
        |found| format!("{found} of {pages}"),
    );
    table.note(format!(
        "k* is {found}: from there on the time is within the tolerance of that with all pages."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_region_are_read() {
        assert_eq!(
            wanted("ram:3-9"),
            Ok(RegionPages {
                region: "ram".into(),
                pages: 3..=9
            })
        );
        assert_eq!(
            wanted("ram:3"),
            Ok(RegionPages {
                region: "ram".into(),
                pages: 3..=3
            })
        );
        for wrong in ["ram", "ram:", "ram:9-3", "ram:x-9", "3-9"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
