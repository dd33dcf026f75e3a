//! One `[[vm]]` of a configuration: cores, regions, image, quotas, profile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::{Context, Field, Table};
use crate::doorbell::{self, BellSpec};
use crate::eemi;
use crate::events::{EventTable, read_events};
use crate::files;
use crate::goal::{self, Goal};
use crate::guest_map::{self, Taken};
use crate::manage::{self, NameList};
use crate::names::name;
use crate::problem::{Problem, SourceFile, count, display_path};
use crate::region::{self, RegionSpec};
use crate::scene::{ImageScene, PoolSpec, PoolUse, Scene};
use crate::smmu::{self, Guarded};
use crate::sources::ImageSource;
use crate::trust::Budgeted;
use crate::vm_image::{self, ImageSpec};
use crate::{profile, quota};
use cloison_abi::services;
use cloison_formats::addr::Ipa;
use cloison_formats::guest_map::GuestMap;
use cloison_formats::ids::{Core, Intid};
use cloison_formats::image::{Backing, GuestPmu, OnFault, Profile, Region, Vm};
use cloison_formats::limits::{MAX_CORES, MAX_IRQ};
use cloison_formats::units::EventId;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Number of arguments of a guest.
const ARGS: usize = 4;
const SERVICES: [(&str, u32); 7] = [
    ("hem", services::HEM),
    ("migrate", services::MIGRATE),
    ("quota", services::QUOTA),
    ("profile", services::PROFILE),
    ("manage", services::MANAGE),
    ("regulate", services::REGULATE),
    ("counters", services::COUNTERS),
];

/// A VM with the positions to which later checks refer.
pub(crate) struct VmSpec {
    pub vm: Vm,
    /// What its emulated devices take.
    pub taken: Vec<Taken>,
    pub image: Option<ImageSpec>,
    pub name_span: Range<usize>,
    pub path: String,
    pub cores: Vec<(Core, Range<usize>)>,
    /// Position of each region's size.
    pub region_spans: Vec<Range<usize>>,
    /// Position of each region's address.
    pub ipa_spans: Vec<Range<usize>>,
    /// Position of the first device that the SMMU guards.
    pub guarded: Option<Range<usize>>,
    /// References of the VM to pools.
    pub pool_uses: Vec<PoolUse>,
    pub irqs: Vec<(Intid, Range<usize>)>,
    /// The VMs that it may stop and start.
    pub manages: NameList,
    /// The VMs whose quotas it may set.
    pub regulates: NameList,
    /// The events that its quotas count.
    pub budgeted: Vec<Budgeted>,
    /// The field and the position of the number of pages that the hypervisor moves by itself.
    pub top: Option<(&'static str, Range<usize>)>,
    /// What it must reach, for `tune`.
    pub goal: Option<Goal>,
    /// How it calls its peers, if that is configured.
    pub doorbell: Option<BellSpec>,
}

impl VmSpec {
    /// Iterates over its memory for DMA, with the positions of the addresses.
    pub fn direct(&self) -> impl Iterator<Item = (&Self, &Region, &Range<usize>)> {
        let placed = self.vm.regions.iter().zip(&self.ipa_spans);
        placed
            .filter(|(region, _)| region.backing == Backing::Direct)
            .map(move |(region, span)| (self, region, span))
    }
}

/// Reads one `[[vm]]`.
pub(crate) fn read(
    mut table: Table<'_>,
    scene: &Scene<'_>,
    profiles: &mut Vec<Problem>,
) -> Option<VmSpec> {
    let name = name(&mut table, "VM");
    let cores = read_cores(&table, scene.board);
    let args = read_args(&table);
    let services = read_services(&table);
    let [manages, regulates] =
        ["manages", "regulates"].map(|list| manage::read_of_vm(&table, list, services));
    const REACTIONS: [(&str, OnFault); 2] = [("abort", OnFault::Abort), ("kill", OnFault::Kill)];
    let on_fault = table.value("on_fault", |field| field.one_of("reaction", &REACTIONS));
    let map = guest_map::read(&table, scene, profiles);
    let irqs = read_irqs(&table, scene.board, &map);
    let services_page = table.value("services_page", Field::boolean);
    let scrub = table.value("scrub", Field::boolean);
    let owned: Vec<Intid> = irqs.iter().map(|(irq, _)| *irq).collect();
    let taken = guest_map::taken(&map, scene.gic());
    let (mut regions, complete) = region::read_all(&table, scene, &taken, &owned);
    let mut pool_uses: Vec<PoolUse> = regions.iter().filter_map(RegionSpec::pool_use).collect();
    let region_spans = regions.iter().map(|spec| spec.size_span.clone()).collect();
    let ipa_spans: Vec<Range<usize>> = regions.iter().map(|spec| spec.ipa_span.clone()).collect();
    let mut shown = Vec::new();
    let mut shown_fields = Vec::new();
    let mut stops = Vec::new();
    let mut guarded = Guarded::default();
    let regions: Vec<Region> = regions
        .drain(..)
        .map(|spec| {
            shown_fields.extend(spec.shown_fields);
            stops.extend(spec.limits.stops);
            guarded.add(spec.limits.streams, &spec.backing_span);
            shown.push(spec.shown);
            spec.region
        })
        .collect();
    let vcpus = cores.as_ref().map(|cores| cores.len());
    let counting = read_counting(&table, scene, services, vcpus);
    let cpu = scene.board.map_or("", |board| board.events.cpu.as_str());
    let image_scene = ImageScene {
        base: scene.base,
        shipped: scene.shipped,
        map: &map,
        regions: &regions,
        shown: &shown,
        complete,
        cpu,
        pmu_irq: scene.board.and_then(|board| board.board.guest_pmu_irq()),
    };
    let image = vm_image::read(&table, &image_scene);
    check_image(
        &table,
        image.as_ref().map(|spec| &spec.source),
        &shown_fields,
    );
    let profile = read_profile(&table, scene, &regions, complete, profiles);
    let target = read_target(&table, scene, &regions, profile.as_ref());
    if services & services::MIGRATE != 0 && target.is_none() {
        warn_of_no_destination(&table);
    }
    let streams = smmu::read(&table, &guarded);
    smmu::check_still(&table, &guarded, services, target.as_ref());
    smmu::check_reach(&table, &guarded, &map, &regions, &ipa_spans);
    let firmware = table.optional("firmware");
    let goal = read_goal(&table, scene, services, &regions);
    let doorbell = doorbell::read(&table);
    table.finish_ref();
    let (name, name_span) = name?;
    let top = profile.as_ref().map(|profile| profile.top.clone());
    let away = target.as_ref().map_or(0, |target| {
        most_away(&scene.pools[usize::from(target.pool)], &regions)
    });
    pool_uses.extend(target.clone());
    let cores = cores?;
    let (quotas, budgeted): (_, Vec<_>) = counting
        .quotas
        .into_iter()
        .map(|spec| (spec.quota, spec.budgeted))
        .unzip();
    let mut vm = Vm {
        name: name.to_owned(),
        cores: cores.iter().map(|(core, _)| *core).collect(),
        map,
        regions,
        image: image.as_ref().map_or(vm_image::NOWHERE, |spec| spec.image),
        modules: Vec::new(),
        args,
        services,
        manages: 0,
        regulates: 0,
        on_fault: on_fault.given().map_or(OnFault::Abort, |given| given.value),
        irqs: irqs.iter().map(|(irq, _)| *irq).collect(),
        quotas,
        hems: counting.hems,
        pmu: counting.pmu,
        services_page: services_page.or(false).unwrap_or_default(),
        scrub: scrub.or(false).unwrap_or_default(),
        target: target.map(|target| target.pool),
        away,
        profile: profile.map(|profile| profile.profile),
        campaign: counting.campaign,
        stops,
        streams,
        firmware: None,
    };
    vm.firmware = firmware.and_then(|field| eemi::grant(&field, scene.board, &vm));
    Some(VmSpec {
        vm,
        taken,
        image,
        name_span,
        path: table.path().to_owned(),
        cores,
        region_spans,
        ipa_spans,
        guarded: guarded.span,
        pool_uses,
        irqs,
        manages,
        regulates,
        budgeted: budgeted.into_iter().flatten().collect(),
        top,
        goal,
        doorbell,
    })
}

fn read_goal(
    table: &Table<'_>,
    scene: &Scene<'_>,
    services: u32,
    regions: &[Region],
) -> Option<Goal> {
    let kinds: Vec<_> = scene.pools.iter().map(|spec| spec.pool.kind).collect();
    let subject = goal::Subject {
        services,
        regions,
        kinds: &kinds,
    };
    goal::read(table, &subject)
}

/// The counters' uses on a VM's cores.
struct Counting {
    quotas: Vec<quota::QuotaSpec>,
    hems: Vec<EventId>,
    pmu: GuestPmu,
    campaign: Option<cloison_formats::image::Campaign>,
}

fn read_counting(
    table: &Table<'_>,
    scene: &Scene<'_>,
    services: u32,
    vcpus: Option<usize>,
) -> Counting {
    let board = scene.board;
    let events = board.map(|board| &board.events);
    let hems = read_hems(table, events);
    let pmu = read_pmu(table, services);
    let owner = quota::Owner {
        vcpus,
        board,
        services,
    };
    let quotas = quota::read(table, &owner);
    let campaign = crate::campaign::read(table, events, !hems.is_empty());
    if let (Some(board), Some(quotas), Some(vcpus)) = (board, &quotas, vcpus) {
        let sets = campaign
            .iter()
            .flat_map(|campaign| &campaign.sub_experiments);
        let most = sets.max_by_key(|set| set.len()).unwrap_or(&hems);
        let users = CounterUsers {
            hems: most,
            pmu,
            services,
        };
        check_counters(table, board, quotas, &users, vcpus);
        quota::warn_of_no_bound(table, &board.events, quotas, vcpus);
    }
    Counting {
        quotas: quotas.unwrap_or_default(),
        hems,
        pmu,
        campaign,
    }
}

/// What uses counters of a VM's cores beside its quotas.
struct CounterUsers<'a> {
    /// The events of the observation segments with the most of them.
    hems: &'a [EventId],
    pmu: GuestPmu,
    /// The services granted.
    services: u32,
}

/// Checks that quotas, HEMs and the guest can share the counters of the VM's cores.
fn check_counters(
    table: &Table<'_>,
    board: &BoardFile,
    quotas: &[quota::QuotaSpec],
    users: &CounterUsers<'_>,
    vcpus: usize,
) {
    let &CounterUsers {
        hems,
        pmu,
        services: granted,
    } = users;
    let segments = granted & services::HEM != 0;
    // Segments need a counter for cycles, because the guest has the cycle counter.
    let counts_cycles = segments && (pmu != GuestPmu::None || granted & services::COUNTERS != 0);
    let own = quota::SegmentCounters {
        hems,
        counts_cycles,
    };
    quota::check_counters(table, board, quotas, &own, vcpus);
    if pmu == GuestPmu::Direct {
        check_direct(table, board, quotas, !hems.is_empty() || segments);
        let each = board.board.counters_per_event();
        let taken = |vcpu| quota::counters(quotas, vcpu, each) + own.count();
        let bare = quota::vcpus(vcpus).find(|&vcpu| taken(vcpu) == board.counters as usize);
        if let Some((vcpu, field)) = bare.zip(table.optional("pmu")) {
            let message =
                format!("a direct PMU without an event counter: vCPU {vcpu}'s core has none left");
            let label = "MDCR_EL2.HPMN, which sets a guest's counters apart, cannot be 0";
            field.push(
                field
                    .error(message)
                    .label(label)
                    .help("leave one counter to the guest, or write pmu = \"emulated\""),
            );
        }
    }
}

/// Checks that what only one kind of image has is not asked of another.
fn check_image(table: &Table<'_>, image: Option<&ImageSource>, shown_fields: &[Field<'_>]) {
    let told = match image {
        Some(ImageSource::Linux(_)) => Some(("a Linux kernel", "not for Linux", "the kernel")),
        Some(ImageSource::FileWithTree(..)) => Some((
            "an image with device_tree = true",
            "not with a device tree",
            "it",
        )),
        _ => None,
    };
    if let Some((what, label, whom)) = told {
        if let Some(field) = table.optional("args") {
            let taken = field.error(format!(
                "{what} gets its device tree in x0, and nothing else"
            ));
            field.push(
                taken
                    .label(label)
                    .help(format!("leave it out; `cmdline` is what {whom} is told")),
            );
        }
    } else if image.is_some() {
        for field in shown_fields {
            let lost = field.error("this VM has no device tree that could show this region");
            field.push(lost.label("not for this image").help(
                "leave it out; VMs with a Linux kernel have one, and those whose image is a file \
                 with device_tree = true",
            ));
        }
    }
}

fn warn_of_no_destination(table: &Table<'_>) {
    if table.optional("profile").is_some() || table.optional("migrate_to").is_some() {
        return;
    }
    let field = table
        .optional("services")
        .map_or(table.span(), |field| field.span());
    table.push(
        Problem::warning(
            table.file(),
            table.path_of("services"),
            field,
            "the VM may migrate pages, but has no destination",
        )
        .label("`migrate` without `migrate_to` or [vm.profile]")
        .help("name a pool: migrate_to = \"...\", or take the service away"),
    );
}

fn read_cores(table: &Table<'_>, board: Option<&BoardFile>) -> Option<Vec<(Core, Range<usize>)>> {
    let field = table.required(
        "cores",
        "give the physical cores, vCPU 0 first: cores = [0]",
    )?;
    let set = field.number_set("core")?;
    let existing = board.map_or(MAX_CORES, |board| board.board.cores.len());
    let mut cores = Vec::new();
    for (core, span) in set {
        if core >= existing as u64 {
            let whose = board.map_or_else(String::new, |board| {
                format!(" of the board {}", board.board.name)
            });
            field.push(
                table
                    .error("cores", span, format!("core {core} does not exist"))
                    .label(format!("the cores{whose} are 0 to {}", existing - 1))
                    .help("use cores that the board has"),
            );
        } else {
            cores.push((Core(core as u8), span));
        }
    }
    Some(cores)
}

fn read_args(table: &Table<'_>) -> [u64; ARGS] {
    let mut args = [0; ARGS];
    let Some(field) = table.optional("args") else {
        return args;
    };
    let elements = field.elements().unwrap_or_default();
    if elements.len() > ARGS {
        field.push(
            field
                .error(format!(
                    "{} arguments, but a guest starts with {ARGS}: x0 to x3",
                    elements.len()
                ))
                .label(format!("{} too many", elements.len() - ARGS))
                .help("leave the last ones out"),
        );
    }
    for (slot, element) in args.iter_mut().zip(elements) {
        *slot = element.size().unwrap_or_default();
    }
    args
}

fn read_services(table: &Table<'_>) -> u32 {
    let Some(field) = table.optional("services") else {
        return 0;
    };
    let elements = field.elements().unwrap_or_default();
    elements
        .iter()
        .filter_map(|element| element.one_of("service", &SERVICES))
        .fold(0, |bits, bit| bits | bit)
}

fn read_irqs(
    table: &Table<'_>,
    board: Option<&BoardFile>,
    map: &GuestMap,
) -> Vec<(Intid, Range<usize>)> {
    let Some(field) = table.optional("interrupts") else {
        return Vec::new();
    };
    let most = u64::from(board.map_or(MAX_IRQ, |board| board.board.gic.interrupts));
    let mut irqs: Vec<(Intid, Range<usize>)> = Vec::new();
    for element in field.elements().unwrap_or_default() {
        let Some(number) = element.integer("the number of a shared interrupt") else {
            continue;
        };
        let uart = |uart: &cloison_formats::image::Uart| u64::from(uart.irq.0) == number;
        let own = board.map(|board| &board.board).and_then(|board| {
            if uart(&board.console) {
                Some("the console's")
            } else if board.telemetry.as_ref().is_some_and(uart) {
                Some("the telemetry UART's")
            } else if board.pmu_irqs.iter().any(|irq| u64::from(irq.0) == number) {
                Some("a core's PMU's")
            } else if board
                .smmu
                .is_some_and(|smmu| u64::from(smmu.irq.0) == number)
            {
                Some("the SMMU's")
            } else {
                None
            }
        });
        let problem = if number < 32 {
            Some((
                format!("interrupt {number} is not shared"),
                "32 and more are",
            ))
        } else if number >= most {
            Some((
                format!("interrupt {number} is above those of the board"),
                "not there",
            ))
        } else if number == u64::from(map.uart.irq.0) {
            Some((
                format!("interrupt {number} is the one of the VM's emulated UART"),
                "taken by the VM's map",
            ))
        } else if let Some(owner) = own {
            Some((
                format!("interrupt {number} is {owner}"),
                "the hypervisor's own",
            ))
        } else if irqs.iter().any(|(other, _)| u64::from(other.0) == number) {
            Some((format!("interrupt {number} is listed twice"), "again"))
        } else {
            None
        };
        match problem {
            Some((message, label)) => {
                element.push(element.error(message).label(label).help(format!(
                    "list the shared peripheral interrupts (SPIs) of the devices that are passed \
                     through, 32 to {}",
                    most - 1
                )));
            }
            None => irqs.push((Intid(number as u32), element.span())),
        }
    }
    irqs
}

fn read_hems(table: &Table<'_>, events: Option<&EventTable>) -> Vec<EventId> {
    let (Some(field), Some(events)) = (table.optional("hems"), events) else {
        return Vec::new();
    };
    read_events(&field, events)
}

/// Reads the VM's own PMU.
fn read_pmu(table: &Table<'_>, granted: u32) -> GuestPmu {
    let Some(field) = table.optional("pmu") else {
        return GuestPmu::None;
    };
    let kinds = [
        ("none", GuestPmu::None),
        ("emulated", GuestPmu::Emulated),
        ("direct", GuestPmu::Direct),
    ];
    let wanted = match field.is_string() {
        true => field.one_of("PMU", &kinds).unwrap_or(GuestPmu::None),
        false if field.boolean() == Some(true) => GuestPmu::Emulated,
        false => GuestPmu::None,
    };
    if wanted != GuestPmu::None && granted & services::COUNTERS != 0 {
        let both = field.error(
            "the VM has both its own PMU and the service `counters`, which are two ways to the \
             same counters",
        );
        field.push(
            both.label("one of the two")
                .help("leave `pmu` out, or take \"counters\" out of its services"),
        );
    }
    wanted
}

/// Checks that a PMU which the guest accesses itself reaches no counter of the hypervisor's.
fn check_direct(table: &Table<'_>, board: &BoardFile, quotas: &[quota::QuotaSpec], segments: bool) {
    let Some(field) = table.optional("pmu") else {
        return;
    };
    let beside = match (quotas.is_empty(), segments) {
        _ if board.board.pmu_splits => return,
        (true, false) => return,
        (false, _) => "quotas",
        (true, true) => "observation segments",
    };
    let message =
        format!("a direct PMU beside {beside}: the guest could change the counters that they use");
    let label = format!(
        "nobody has shown that MDCR_EL2.HPMN keeps a guest from them on {}",
        board.board.name
    );
    field.push(field.error(message).label(label).help(format!(
        "write pmu = \"emulated\", or leave the VM's {beside} out; a board file may say `splits = \
         true` in [pmu]"
    )));
}

struct ProfileSpec {
    profile: Profile,
    target: PoolUse,
    top: (&'static str, Range<usize>),
}

fn read_profile(
    table: &Table<'_>,
    scene: &Scene<'_>,
    regions: &[Region],
    complete: bool,
    problems: &mut Vec<Problem>,
) -> Option<ProfileSpec> {
    let profile = table.table("profile")?;
    let file_field = profile.required("file", "name the profile: file = \"profiles/c2is.toml\"");
    let pool_field = profile.required("pool", "name the pool that pages move to: pool = \"...\"");
    let pool = pool_field
        .as_ref()
        .and_then(|field| region::find_pool(field, scene.pools));
    let top_field = profile.optional("top");
    let top = top_field
        .as_ref()
        .map(|field| field.integer_up_to(u64::from(u32::MAX), "a number of pages"));
    let after_field = profile.optional("after");
    let after = after_field.as_ref().map(|field| field.duration());
    profile.finish_ref();
    if let (Some(field), Some(pool)) = (&pool_field, pool) {
        check_target(field, &scene.pools[usize::from(pool)], pool, regions);
    }
    let file_field = file_field?;
    let path: PathBuf = scene
        .base
        .join(file_field.string("the path of a profile, relative to this file")?);
    let pages = if complete {
        read_pages(&file_field, &path, regions, problems)
    } else {
        None
    }?;
    if let (Some(field), Some(Some(top))) = (&top_field, top)
        && top > pages.len() as u64
    {
        field.push(
            field
                .error(format!(
                    "the top {top} of {}",
                    count(pages.len(), "profiled page")
                ))
                .label(format!("{top} > {}", pages.len()))
                .help(format!(
                    "{} lists {}",
                    display_path(&path).display(),
                    count(pages.len(), "page")
                )),
        );
    }
    if let (Some(field), Some(_), None) = (&top_field, top, &after_field) {
        field.push(
            field
                .warning("no page moves on its own")
                .label("`top` without `after`")
                .help("set when they move: after = \"5 ms\" from the VM's start"),
        );
    }
    let default_top = if after_field.is_some() {
        pages.len() as u64
    } else {
        0
    };
    let top = top.unwrap_or(Some(default_top))?;
    let after = after.map_or(Some(None), |after| after.map(Some))?;
    Some(ProfileSpec {
        profile: Profile {
            pages,
            top: top as u32,
            after,
        },
        target: PoolUse {
            pool: pool?,
            field: "profile.pool".to_owned(),
            span: pool_field?.span(),
        },
        top: top_field.map_or(("file", file_field.span()), |field| ("top", field.span())),
    })
}

/// Returns the pool to which the VM's pages can move: its profile's, or the one that it names.
fn read_target(
    table: &Table<'_>,
    scene: &Scene<'_>,
    regions: &[Region],
    profile: Option<&ProfileSpec>,
) -> Option<PoolUse> {
    let Some(field) = table.optional("migrate_to") else {
        return profile.map(|profile| profile.target.clone());
    };
    if table.optional("profile").is_some() {
        let twice =
            field.error("the VM has a [vm.profile], whose pool is the one to which its pages move");
        field.push(twice.label("one of the two").help("leave `migrate_to` out"));
        return None;
    }
    let pool = region::find_pool(&field, scene.pools)?;
    check_target(&field, &scene.pools[usize::from(pool)], pool, regions);
    Some(PoolUse {
        pool,
        field: "migrate_to".to_owned(),
        span: field.span(),
    })
}

/// Maximum number of pages of a VM that can be away at a time: 64 times what a cache of 1 MiB
/// holds. The hypervisor keeps 32 bytes for each.
const MOST_AWAY: u32 = 16_384;

/// Returns how many pages of a VM with these regions can be in another pool at a time.
fn most_away(spec: &PoolSpec, regions: &[Region]) -> u32 {
    let in_pools = regions
        .iter()
        .filter(|region| matches!(region.backing, Backing::Pool(_)));
    let movable = in_pools.fold(0u32, |sum, region| sum.saturating_add(region.pages));
    movable
        .min(spec.pool.limit.unwrap_or(MOST_AWAY))
        .min(MOST_AWAY)
}

fn check_target(field: &Field<'_>, spec: &PoolSpec, pool: u8, regions: &[Region]) {
    if let Some(region) = regions
        .iter()
        .find(|region| region.backing == Backing::Pool(pool))
    {
        field.push(
            field
                .error(format!(
                    "pages cannot move to pool `{}`: region `{}` is in it already",
                    spec.pool.name, region.name
                ))
                .label("the region's own pool")
                .help(
                    "migration wants two pools: the region's, and another one for the pages that \
                     move",
                ),
        );
    }
}

fn read_pages(
    field: &Field<'_>,
    path: &Path,
    regions: &[Region],
    problems: &mut Vec<Problem>,
) -> Option<Vec<Ipa>> {
    let text = match files::read_text(path, files::PROFILE) {
        Ok(text) => text,
        Err(error) => {
            field.push(
                field
                    .error(format!(
                        "cannot read the profile {}: {}",
                        display_path(path).display(),
                        error
                    ))
                    .label("no such profile")
                    .help(
                        "paths are relative to the directory of this file; `bbprof` makes a \
                         profile: bbprof THIS-FILE --vm NAME -o PROFILE",
                    ),
            );
            return None;
        }
    };
    let context = Context::new(SourceFile::new(path, text));
    let pages = profile::read(&context, regions);
    problems.append(&mut context.into_problems());
    pages
}
