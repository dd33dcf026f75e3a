//! The whole configuration: board, pools, VMs, and the relations between them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::channel::{self, Channels, Others};
use crate::checked::Checked;
use crate::document::{Context, Table, suggest};
use crate::eemi::{self, Grant};
use crate::files::available;
use crate::goal::Goal;
use crate::kind::FileKind;
use crate::link;
use crate::manage;
use crate::memory::{self, Account, Demand};
use crate::names::name;
use crate::pools::{self, HypervisorSpec};
use crate::problem::{Problem, SourceFile, count, first};
use crate::quantity::show_size;
use crate::quota;
use crate::scene::{PoolSpec, PoolUse, Scene};
use crate::shipped::{DEFAULT_BOARD, Shipped};
use crate::smmu;
use crate::sources::ImageSource;
use crate::telemetry;
use crate::trust::QuotaEvents;
use crate::vm::{self, VmSpec};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::ColorSet;
use cloison_formats::ids::VmId;
use cloison_formats::image::{Backing, LogLevel, PoolKind, Region, System, Vm};
use cloison_formats::limits::MAX_VMS;
use cloison_formats::units::EventId;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of VMs.
const MOST_VMS: usize = 8;

const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// Reads and validates a configuration.
pub(crate) fn load(
    path: &Path,
    file: SourceFile,
    board: Option<&str>,
    shipped: &Shipped<'_>,
) -> Result<Checked, Vec<Problem>> {
    let context = Context::new(file);
    let mut others = Vec::new();
    let found = read(&context, path, board, shipped, &mut others);
    let source = context.file.text().to_owned();
    let mut problems = context.into_problems();
    problems.append(&mut others);
    if problems.iter().any(Problem::is_error) {
        return Err(problems);
    }
    let Some(SystemParts {
        system,
        images,
        goals,
        board,
        quota_events,
    }) = found
    else {
        return Err(problems);
    };
    let warnings = first(problems);
    Ok(Checked {
        path: path.to_path_buf(),
        source,
        system,
        images,
        goals,
        board,
        quota_events,
        warnings,
    })
}

struct SystemParts {
    system: System,
    images: Vec<ImageSource>,
    goals: Vec<Option<Goal>>,
    board: BoardFile,
    quota_events: QuotaEvents,
}

fn read(
    context: &Context,
    path: &Path,
    board: Option<&str>,
    shipped: &Shipped<'_>,
    others: &mut Vec<Problem>,
) -> Option<SystemParts> {
    let base = path.parent().unwrap_or(Path::new("."));
    let document = context.parse()?;
    let mut root = context.root(&document);
    FileKind::System.fits(&root)?;
    let system_name = name(&mut root, "system");
    let mut board = read_board(&root, base, board, shipped, others);
    telemetry::read(&root, board.as_mut());
    let log_level = root.value("log", |field| field.one_of("log level", &LOG_LEVELS));
    let colors = board.as_ref().map(|board| (board, board.colors));
    let hypervisor = root
        .required(
            "hypervisor",
            "give the hypervisor its own colors: [hypervisor] with colors = \"15\"",
        )
        .and_then(|field| pools::read_hypervisor(&field, colors));
    let pools = pools::read(&root, colors, hypervisor.as_ref());
    let scene = Scene {
        board: board.as_ref(),
        pools: &pools,
        base,
        shipped,
    };
    let vm_tables = root.tables("vm");
    check_vm_count(&root, &vm_tables);
    let vm_count = vm_tables.len();
    let mut vms: Vec<VmSpec> = vm_tables
        .into_iter()
        .filter_map(|table| vm::read(table, &scene, others))
        .collect();
    check_between(context, &vms, &pools);
    let owners = vms.iter().filter_map(|spec| {
        Some(smmu::Owner {
            name: &spec.vm.name,
            path: &spec.path,
            span: spec.guarded.clone()?,
        })
    });
    smmu::check_between(context, owners);
    let asking = vms.iter().filter_map(|spec| {
        Some(Grant {
            vm: &spec.vm.name,
            access: spec.vm.firmware.as_ref()?,
            path: &spec.path,
            span: spec.name_span.clone(),
        })
    });
    eemi::check_between(context, &asking.collect::<Vec<_>>());
    let complete = vms.len() == vm_count;
    let ends_with = read_ends_with(&root, &vms, complete);
    let names: Vec<String> = vms.iter().map(|spec| spec.vm.name.clone()).collect();
    let console_manages =
        manage::read(&root, "console_manages").resolve(context, &names, None, complete);
    for (index, spec) in vms.iter_mut().enumerate() {
        spec.vm.manages = spec.manages.resolve(context, &names, Some(index), complete);
        spec.vm.regulates = spec
            .regulates
            .resolve(context, &names, Some(index), complete);
    }
    let scope = Others {
        pools: &pools,
        vms: &vms,
        complete,
    };
    let channels = channel::read(&root, &scope);
    let links = link::read(
        &root,
        &link::Scope {
            others: &scope,
            channels: &channels.channels,
        },
    );
    root.finish();
    let (hypervisor, board) = (hypervisor?, board.as_ref()?);
    if !complete {
        return None;
    }
    let doorbells = channel::doorbells(context, &channels.channels, &vms);
    channel::check_colors(context, &channels, &scope);
    let mut all: Vec<Vm> = vms.iter().map(|spec| spec.vm.clone()).collect();
    check_sharing(context, quota::connect(&mut all))?;
    let budgeted = vms
        .iter_mut()
        .flat_map(|spec| std::mem::take(&mut spec.budgeted))
        .collect();
    let quota_events = QuotaEvents::read(budgeted, &scene, context, others);
    let system = System {
        name: system_name?.0.to_owned(),
        board: board.board.clone(),
        log_level: log_level.or(LogLevel::Info)?,
        hypervisor_colors: hypervisor.colors,
        contiguous: 0,
        pools: pools.iter().map(|spec| spec.pool.clone()).collect(),
        vms: all,
        audit: false,
        ends_with,
        console_manages,
        trusted: trusted(&quota_events, board),
        announced: [0; 2],
        channels: channels.channels.clone(),
        doorbells,
        links,
    };
    let contiguous = check_contiguous(context, &system, &vms, &hypervisor);
    let mut system = System {
        contiguous,
        ..system
    };
    let mut connected = board.clone();
    smmu::connect(&mut system, &mut connected);
    check_direct(context, &system, &vms);
    check_memory(context, &system, &vms, &pools, &channels);
    check_tables(context, &system);
    check_image_length(context, &vms);
    if context.has_errors() || others.iter().any(Problem::is_error) {
        return None;
    }
    check_cached(context, &pools);
    check_unused(context, &system, &vms, &pools, &hypervisor, board.colors);
    check_image(context, &system)?;
    let goals = vms.iter().map(|spec| spec.goal.clone()).collect();
    let images = vms
        .into_iter()
        .map(|spec| Some(spec.image?.source))
        .collect::<Option<Vec<_>>>()?;
    Some(SystemParts {
        system,
        images,
        goals,
        board: connected,
        quota_events,
    })
}

/// Reads the VM with which the system ends. If the VMs are not `complete`, it may be one of those
/// that have mistakes.
fn read_ends_with(root: &Table<'_>, vms: &[VmSpec], complete: bool) -> Option<VmId> {
    let field = root.optional("ends_with")?;
    let name = field.string("the name of a VM")?;
    let found = vms.iter().position(|spec| spec.vm.name == name);
    if found.is_none() && complete {
        let known = vms.iter().map(|spec| spec.vm.name.as_str());
        let error = field
            .error(format!("there is no VM `{name}`"))
            .label("unknown VM");
        field.push(error.help(suggest(name, "VMs", known)));
    }
    found.map(|vm| VmId(vm as u8))
}

/// Returns how many translation tables map a region at most: one for each 2 MiB, and for each GiB.
fn tables_of(region: &Region) -> u64 {
    let first = region.ipa.0 / PAGE_SIZE;
    let last = first + u64::from(region.pages).saturating_sub(1);
    let blocks = |pages: u64| last / pages - first / pages + 1;
    blocks(512) + blocks(512 * 512)
}

/// Warns if the hypervisor may lack memory for the list of its translation tables. The list is in
/// the first 48 KiB of its heap, beside the configuration, whose size there is not known here.
fn check_tables(context: &Context, system: &System) {
    /// With this many, systems of one VM start; with 1950, one of 50 regions does not.
    const KNOWN_TO_FIT: u64 = 1800;
    let regions = system.vms.iter().flat_map(|vm| &vm.regions).cloned();
    let shared = system.channels.iter().flat_map(|channel| {
        let members = channel.members.iter();
        members.filter_map(|member| channel.seen_by(member))
    });
    let needed: u64 = regions.chain(shared).map(|region| tables_of(&region)).sum();
    if needed <= KNOWN_TO_FIT {
        return;
    }
    let message = format!(
        "the VMs' regions need {needed} translation tables; the hypervisor may have no room for \
         more than {KNOWN_TO_FIT}, and then ends before the VMs start"
    );
    context.push(
        Problem::warning(&context.file, "vm", 0..0, message)
            .help("a table maps 2 MiB: give all VMs together 3.5 GiB of RAM and devices at most"),
    );
}

/// Checks that unused budgets are shared in no more pools than the hypervisor has.
fn check_sharing(context: &Context, pools: usize) -> Option<()> {
    if pools <= MAX_VMS {
        return Some(());
    }
    let message =
        format!("quotas with `reclaim` count {pools} different things or have as many periods");
    context.push(
        Problem::error(&context.file, "vm", 0..0, message).help(format!(
            "unused budgets are shared in at most {MAX_VMS} pools: give more of them the same \
             events and period"
        )),
    );
    None
}

/// Returns what one of the board's machines can be trusted with, which holds until the machine is
/// known (`Checked::on`).
fn trusted(quota_events: &QuotaEvents, board: &BoardFile) -> Vec<EventId> {
    let mut trusted: Vec<EventId> = quota_events
        .verdicts()
        .machines()
        .flat_map(|machine| quota_events.trusted(machine, board))
        .collect();
    trusted.sort_unstable();
    trusted.dedup();
    trusted
}

/// Applies the hypervisor's own check, which decides; the checks before it should already have
/// reported what it rejects.
fn check_image(context: &Context, system: &System) -> Option<()> {
    let Err(what) = system.validate(0) else {
        return Some(());
    };
    let message = format!("the hypervisor would reject this system: {what}");
    context.push(
        Problem::error(&context.file, "system", 0..0, message)
            .help("an earlier check should have found this; please report it"),
    );
    None
}

fn read_board(
    root: &Table<'_>,
    base: &Path,
    wanted: Option<&str>,
    shipped: &Shipped<'_>,
    others: &mut Vec<Problem>,
) -> Option<BoardFile> {
    let field = root.optional("board");
    let named = match &field {
        Some(field) => field.string("the name of a board")?,
        None => DEFAULT_BOARD,
    };
    let name = wanted.unwrap_or(named);
    if name.ends_with(".toml") {
        let path = if wanted.is_some() {
            PathBuf::from(name)
        } else {
            base.join(name)
        };
        return BoardFile::load(&path, shipped.configs)
            .map_err(|mut problems| others.append(&mut problems))
            .ok();
    }
    let dirs = shipped.board_dirs(base);
    let fits = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let found = dirs
        .iter()
        .map(|dir| dir.join(format!("{name}.toml")))
        .find(|path| fits && path.is_file());
    let Some(path) = found else {
        let mut known: Vec<String> = dirs.iter().flat_map(|dir| available(dir)).collect();
        known.sort();
        known.dedup();
        let span = field.map_or(0..0, |field| field.span());
        let label = if wanted.is_some() {
            "overridden on the command line"
        } else {
            "unknown board"
        };
        root.push(
            root.error("board", span, format!("there is no board `{name}`"))
                .label(label)
                .help(suggest(name, "boards", known.iter().map(String::as_str))),
        );
        return None;
    };
    BoardFile::load(&path, shipped.configs)
        .map_err(|mut problems| others.append(&mut problems))
        .ok()
}

fn check_vm_count(root: &Table<'_>, tables: &[Table<'_>]) {
    if tables.is_empty() && root.optional("vm").is_none() {
        root.push(
            root.error("vm", 0..0, "there is no VM")
                .label("no [[vm]] in this file")
                .help("add one: [[vm]] with name, cores, image and a [[vm.region]]"),
        );
    }
    if let Some(surplus) = tables.get(MOST_VMS) {
        root.push(
            root.error(
                "vm",
                surplus.span(),
                format!("{} VMs; there can be {MOST_VMS}", tables.len()),
            )
            .label(format!("the {}th VM", MOST_VMS + 1))
            .help("run several programs in one VM"),
        );
    }
}

/// Checks that no two VMs share what must be exclusive.
fn check_between(context: &Context, vms: &[VmSpec], pools: &[PoolSpec]) {
    for (index, spec) in vms.iter().enumerate() {
        let before = &vms[..index];
        let error = |field: &str, span: &Range<usize>, message: String| {
            Problem::error(
                &context.file,
                format!("{}.{field}", spec.path),
                span.clone(),
                message,
            )
        };
        if let Some(other) = before.iter().find(|other| other.vm.name == spec.vm.name) {
            context.push(
                error(
                    "name",
                    &spec.name_span,
                    format!("there are two VMs called `{}`", spec.vm.name),
                )
                .label("again")
                .also(other.name_span.clone(), "first here")
                .help("the console and the reports tell VMs apart by name: give each its own"),
            );
        }
        for (core, span) in &spec.cores {
            let taken = before
                .iter()
                .find_map(|other| Some((other, other.cores.iter().find(|(c, _)| c == core)?)));
            if let Some((other, (_, first))) = taken {
                context.push(
                    error("cores", span, format!("core {core} is used twice"))
                        .label(format!("`{}` wants it", spec.vm.name))
                        .also(first.clone(), format!("`{}` has it", other.vm.name))
                        .help("a core runs one vCPU: there is no scheduler"),
                );
            }
        }
        for (irq, span) in &spec.irqs {
            let taken = before
                .iter()
                .find_map(|other| Some((other, other.irqs.iter().find(|(i, _)| i == irq)?)));
            if let Some((other, (_, first))) = taken {
                context.push(
                    error(
                        "interrupts",
                        span,
                        format!("interrupt {irq} belongs to two VMs"),
                    )
                    .label(format!("`{}` wants it", spec.vm.name))
                    .also(first.clone(), format!("`{}` has it", other.vm.name))
                    .help("pass a device and its interrupt to one VM"),
                );
            }
        }
        let mut reported = Vec::new();
        for PoolUse { pool, field, span } in &spec.pool_uses {
            let Some(used) = pools
                .get(usize::from(*pool))
                .filter(|used| used.pool.kind == PoolKind::Pvt)
            else {
                continue;
            };
            let taken = before
                .iter()
                .find_map(|other| Some((other, other.pool_uses.iter().find(|u| u.pool == *pool)?)));
            if let Some((other, PoolUse { span: first, .. })) =
                taken.filter(|_| !reported.contains(pool))
            {
                reported.push(*pool);
                context.push(
                    error(
                        field,
                        span,
                        format!("pool `{}` is private, but two VMs use it", used.pool.name),
                    )
                    .label(format!("`{}` uses it", spec.vm.name))
                    .also(first.clone(), format!("`{}` uses it", other.vm.name))
                    .help("give each VM its own private pool, or make this one SH"),
                );
            }
        }
        check_devices(context, spec, before);
    }
}

fn check_devices(context: &Context, spec: &VmSpec, before: &[VmSpec]) {
    let device = |spec: &VmSpec, index: usize| {
        let region = &spec.vm.regions[index];
        match region.backing {
            Backing::Device(pa) => Some((pa.0, pa.0 + u64::from(region.pages) * PAGE_SIZE)),
            _ => None,
        }
    };
    for (index, region) in spec.vm.regions.iter().enumerate() {
        let Some((start, end)) = device(spec, index) else {
            continue;
        };
        for other in before {
            let meets = |other_index: &usize| {
                device(other, *other_index).is_some_and(|(s, e)| s < end && start < e)
            };
            if let Some(other_index) = (0..other.vm.regions.len()).find(meets) {
                context.push(
                    Problem::error(
                        &context.file,
                        format!("{}.region[{}].device", spec.path, region.name),
                        spec.region_spans[index].clone(),
                        format!("the device at {start:#x} belongs to two VMs"),
                    )
                    .label(format!("`{}` wants it", spec.vm.name))
                    .also(
                        other.region_spans[other_index].clone(),
                        format!("`{}` has it", other.vm.name),
                    )
                    .help("pass a device through to one VM"),
                );
            }
        }
    }
}

/// Returns the contiguous memory to set aside: as configured, if that is enough, otherwise as much
/// as needed.
fn check_contiguous(
    context: &Context,
    system: &System,
    vms: &[VmSpec],
    hypervisor: &HypervisorSpec,
) -> u64 {
    let mut parts = Vec::new();
    let mut needed = 0;
    for spec in vms {
        for region in spec
            .vm
            .regions
            .iter()
            .filter(|region| region.backing == Backing::Contiguous)
        {
            let bytes = memory::contiguous_bytes(region.pages);
            needed += bytes;
            parts.push(format!(
                "{}.{} {}",
                spec.vm.name,
                region.name,
                show_size(bytes)
            ));
        }
    }
    let Some(configured) = hypervisor.contiguous else {
        return if needed == 0 {
            0
        } else {
            needed.next_power_of_two()
        };
    };
    if configured < needed {
        context.push(
            Problem::error(
                &context.file,
                "hypervisor.contiguous",
                hypervisor.contiguous_span.clone(),
                format!(
                    "{} of contiguous memory is too little",
                    show_size(configured)
                ),
            )
            .label(if parts.len() == 1 {
                format!("{} > {}", parts.join(""), show_size(configured))
            } else {
                format!(
                    "{} = {} > {}",
                    parts.join(" + "),
                    show_size(needed),
                    show_size(configured)
                )
            })
            .help(
                "regions take powers of two of it; leave `contiguous` out to get as much as is \
                 needed",
            ),
        );
    }
    let ram: u64 = system.board.ram.iter().map(|range| range.len).sum();
    if configured > ram {
        context.push(
            Problem::error(
                &context.file,
                "hypervisor.contiguous",
                hypervisor.contiguous_span.clone(),
                "more contiguous memory than the board has RAM",
            )
            .label(format!("{} > {}", show_size(configured), show_size(ram)))
            .help("leave `contiguous` out to get as much as is needed"),
        );
    }
    // A power of two, so that the allocator can serve regions in any order without gaps.
    configured.next_power_of_two()
}

/// Checks that memory for DMA is RAM at its addresses that nobody else has, and says what it costs.
fn check_direct(context: &Context, system: &System, vms: &[VmSpec]) {
    let image = memory::image_bytes(sources(vms));
    let all: Vec<_> = vms.iter().flat_map(VmSpec::direct).collect();
    for (nth, (spec, region, span)) in all.iter().enumerate() {
        let range = region.identity();
        let field = format!("{}.region[{}].ipa", spec.path, region.name);
        let problem =
            |message: String| {
                Problem::error(&context.file, field.clone(), (*span).clone(), message)
                    .label(format!("{}..{}", range.start, range.end()))
            };
        if let Some((other, _, first)) = all[..nth]
            .iter()
            .find(|(_, other, _)| other.identity().overlaps(&range))
        {
            let problem = problem("two regions have this memory for DMA".to_owned());
            let also = format!("`{}` has it", other.vm.name);
            context.push(problem.also((*first).clone(), also).help(
                "IPA and physical address are the same: choose addresses that no other VM has",
            ));
        } else if !memory::is_free(&system.board, image, range) {
            let banks = system.board.ram.iter();
            let banks: Vec<String> = banks
                .map(|bank| format!("{}..{}", bank.start, bank.end()))
                .collect();
            let help = match memory::room(system, image, range.len) {
                Some(room) => format!("there is room at ipa = {:#x}", room.start.0),
                None => "make it smaller".to_owned(),
            };
            context.push(
                problem("memory for DMA is not free RAM of the board there".to_owned()).help(
                    format!(
                        "IPA and physical address are the same, and the RAM is {}, without what \
                         the board file reserves and {} for the system image at its start; {help}",
                        banks.join(", "),
                        show_size(image)
                    ),
                ),
            );
        } else {
            let colors = u64::from(system.board.llc.colors().unwrap_or(1));
            let each = u64::from(region.pages).div_ceil(colors);
            let message = "memory for DMA has pages of every color";
            context.push(
                Problem::warning(&context.file, field, (*span).clone(), message)
                    .label(format!(
                        "{each} pages of each of {colors} colors, private ones included"
                    ))
                    .help("keep it small: what is in it shares cache sets with all pools"),
            );
        }
    }
}

/// Returns the sources of the VMs' images, as far as they are known.
fn sources(vms: &[VmSpec]) -> impl Iterator<Item = &ImageSource> {
    vms.iter()
        .filter_map(|spec| Some(&spec.image.as_ref()?.source))
}

/// Checks that the files of guests leave room for the hypervisor in the memory that pools leave
/// free.
fn check_image_length(context: &Context, vms: &[VmSpec]) {
    let room = memory::image_bytes(sources(vms)).saturating_sub(memory::LOADER_SLACK);
    let (mut seen, mut needed) = (Vec::new(), 0_u64);
    for vm in vms {
        let Some(image) = &vm.image else { continue };
        let (ImageSource::File(path) | ImageSource::FileWithTree(path, _)) = &image.source else {
            continue;
        };
        // VMs with the same file share it.
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        needed += image.bytes;
        if needed > room {
            let message = format!(
                "the guests' files take {} in the system image, and {} are reserved for them and \
                 the hypervisor",
                show_size(needed),
                show_size(room)
            );
            let problem = Problem::error(
                &context.file,
                format!("{}.image.file", vm.path),
                image.span.clone(),
                message,
            );
            let label = format!("{} of these", show_size(image.bytes));
            context.push(
                problem
                    .label(label)
                    .help("let a guest clear or fill large parts of its memory itself"),
            );
            return;
        }
    }
}

/// Checks that pools have enough pages.
fn check_memory(
    context: &Context,
    system: &System,
    vms: &[VmSpec],
    pools: &[PoolSpec],
    channels: &Channels,
) {
    let image = memory::image_bytes(sources(vms));
    let colors = system.board.llc.colors().unwrap_or(1);
    let account = Account::new(system, colors, image);
    let demands = memory::demand(system);
    for (index, (spec, demand)) in pools.iter().zip(&demands).enumerate() {
        let needed = demand.pages();
        // Position to report: the last request for pages of this pool.
        let in_pool =
            |region: &cloison_formats::image::Region| region.backing == Backing::Pool(index as u8);
        let asks = vms.iter().rev().find_map(|vm| {
            let top = vm
                .vm
                .profile
                .as_ref()
                .filter(|_| vm.vm.target.map(usize::from) == Some(index));
            if let Some((field, span)) = top.and(vm.top.clone()) {
                return Some((format!("{}.profile.{field}", vm.path), span));
            }
            let last = vm.vm.regions.iter().rposition(in_pool)?;
            Some((
                format!("{}.region[{}].size", vm.path, vm.vm.regions[last].name),
                vm.region_spans[last].clone(),
            ))
        });
        let asks = asks.or_else(|| channels.last_in(index as u8));
        let (field, span) = asks.unwrap_or_else(|| {
            (
                format!("{}.{}", spec.path, spec.made_of),
                spec.made_span.clone(),
            )
        });
        let name = &spec.pool.name;
        if let Some(limit) = spec.pool.limit.filter(|limit| u64::from(*limit) < needed) {
            context.push(
                Problem::error(
                    &context.file,
                    &field,
                    span,
                    format!(
                        "pool `{name}` has a limit of {}",
                        count(limit as usize, "page")
                    ),
                )
                .label(format!("{} > {limit}", demand.arithmetic()))
                .also(spec.limit_span.clone(), "the limit")
                .help(format!(
                    "raise the limit to \"{needed} pages\", or reduce the demand"
                )),
            );
            continue;
        }
        // Shared pools within this one's colors use the same frames.
        let mut sum = demand.clone();
        for (other, demand) in pools
            .iter()
            .zip(&demands)
            .filter(|(other, _)| other.pool.name != *name)
        {
            if !other.pool.colors.is_empty()
                && other.pool.colors.without(spec.pool.colors).is_empty()
            {
                sum.parts.extend(demand.parts.iter().cloned());
            }
        }
        check_frames(context, &account, spec, &sum, field, span);
    }
}

fn check_frames(
    context: &Context,
    account: &Account,
    spec: &PoolSpec,
    demand: &Demand,
    field: String,
    span: Range<usize>,
) {
    let colors = spec.pool.colors;
    let (needed, available) = (demand.pages(), account.pages_of(colors));
    if colors.is_empty() || needed <= available {
        return;
    }
    let (has, parts, help) = match &spec.memory {
        Some(memory) => (
            format!("`{memory}` has"),
            format!("made of `{memory}`"),
            format!(
                "{}. Reduce the demand, or let a pool of RAM hold the rest",
                account.memory_arithmetic(memory)
            ),
        ),
        None => {
            let each = available / u64::from(colors.len()).max(1);
            let wanted = needed.div_ceil(each.max(1));
            let more = if wanted <= u64::from(account.colors()) {
                format!("It takes {wanted} colors of {each} pages to hold {needed}: ")
            } else {
                "Either ".to_owned()
            };
            let number = count(colors.len() as usize, "color");
            (
                "its colors have".to_owned(),
                format!("{number} x {each} pages = {available}"),
                format!(
                    "{}. {more}give the pool more colors, or reduce the demand",
                    account.arithmetic(colors)
                ),
            )
        }
    };
    let name = &spec.pool.name;
    let message = format!("pool `{name}` is too small: {needed} pages needed, {has} {available}");
    context.push(
        Problem::error(&context.file, field, span, message)
            .label(format!("{} > {available}", demand.arithmetic()))
            .also(spec.made_span.clone(), parts)
            .help(help),
    );
}

/// Warns where a VM's private colors are not its own in the cache, which holds lines of a memory
/// besides the RAM in all of its sets.
fn check_cached(context: &Context, pools: &[PoolSpec]) {
    let is_private = |other: &&PoolSpec| other.memory.is_none() && other.pool.kind == PoolKind::Pvt;
    let Some(private) = pools.iter().find(is_private) else {
        return;
    };
    for spec in pools {
        if let Some(memory) = &spec.memory {
            context.push(
                Problem::warning(
                    &context.file,
                    format!("{}.memory", spec.path),
                    spec.made_span.clone(),
                    format!("the cache holds pages of `{memory}` in sets of every color"),
                )
                .label(format!(
                    "may evict lines of `{}`, which is private",
                    private.pool.name
                ))
                .also(private.made_span.clone(), "these colors")
                .help("only the memory is the pool's own; no color keeps its lines apart"),
            );
        }
    }
}

fn check_unused(
    context: &Context,
    system: &System,
    vms: &[VmSpec],
    pools: &[PoolSpec],
    hypervisor: &HypervisorSpec,
    colors: u32,
) {
    for (index, spec) in pools.iter().enumerate() {
        let used = system.vms.iter().any(|vm| {
            vm.regions
                .iter()
                .any(|region| region.backing == Backing::Pool(index as u8))
                || vm.target.is_some_and(|target| usize::from(target) == index)
        }) || system
            .channels
            .iter()
            .any(|channel| usize::from(channel.pool) == index);
        if !used {
            context.push(
                Problem::warning(
                    &context.file,
                    format!("{}.name", spec.path),
                    spec.name_span.clone(),
                    format!("no VM uses pool `{}`", spec.pool.name),
                )
                .label(match &spec.memory {
                    Some(memory) => format!("`{memory}` is unused"),
                    None => format!("its colors are unused: {}", spec.pool.colors),
                })
                .help("give it to a region, a profile or a channel, or leave it out"),
            );
        }
    }
    let taken = pools.iter().fold(hypervisor.colors, |all, spec| {
        ColorSet(all.0 | spec.pool.colors.0)
    });
    let free = ColorSet::first(colors).without(taken);
    if !free.is_empty() && pools.iter().all(|spec| !spec.pool.colors.is_empty()) {
        let image = memory::image_bytes(sources(vms));
        let account = Account::new(system, colors, image);
        context.push(
            Problem::warning(
                &context.file,
                "hypervisor.colors",
                hypervisor.colors_span.clone(),
                format!(
                    "nobody has the colors {free}: {} of RAM are unused",
                    show_size(account.pages_of(free) * PAGE_SIZE)
                ),
            )
            .label("neither the hypervisor nor a pool")
            .help("add them to a pool"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::addr::{Ipa, PhysAddr};

    #[test]
    fn a_region_needs_a_table_for_each_2_mib_and_each_gib() {
        let tables = |ipa: u64, pages: u32| {
            tables_of(&Region {
                name: "r".into(),
                ipa: Ipa(ipa),
                pages,
                backing: Backing::Device(PhysAddr(0)),
                executable: false,
            })
        };
        assert_eq!(tables(0x4000_0000, 1), 2);
        assert_eq!(tables(0x401f_f000, 2), 3, "across 2 MiB");
        assert_eq!(tables(0x7fff_f000, 2), 4, "across a GiB");
        assert_eq!(tables(0x48_0000_0000, 1 << 20), 2048 + 4, "4 GiB");
    }
}
