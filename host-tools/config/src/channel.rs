//! The `[[channel]]` tables: memory that VMs share.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Context, Field, Table, suggest};
use crate::doorbell::{Bell, DEFAULT};
use crate::names::name;
use crate::page::page_ipa;
use crate::problem::Problem;
use crate::region::{check_addresses, find_pool};
use crate::scene::PoolSpec;
use crate::vm::VmSpec;
use cloison_abi::irq;
use cloison_formats::addr::Ipa;
use cloison_formats::channel::{Channel, Doorbell, Member, Rights};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Backing, PoolKind, Region};
use std::ops::Range;

/// Maximum number of channels.
const MOST_CHANNELS: usize = 32;
const RIGHTS: [(&str, Rights); 3] = [
    ("none", Rights::None),
    ("read", Rights::Read),
    ("write", Rights::Write),
];
/// Whether a channel is cleared when a VM that writes it starts again.
const ON_RESTART: [(&str, bool); 2] = [("keep", false), ("clear", true)];

/// What the channels of a configuration are checked against.
pub(crate) struct Others<'a> {
    pub pools: &'a [PoolSpec],
    pub vms: &'a [VmSpec],
    /// Whether these are all VMs.
    pub complete: bool,
}

/// The channels that have been read.
#[derive(Default)]
pub(crate) struct Channels {
    pub channels: Vec<Channel>,
    /// The positions of each one's name and size.
    pub spans: Vec<(Range<usize>, Range<usize>)>,
}

impl Channels {
    /// Returns the size of the last channel in a pool: its field and position.
    pub fn last_in(&self, pool: u8) -> Option<(String, Range<usize>)> {
        let last = self.channels.iter().rposition(|own| own.pool == pool)?;
        let field = format!("channel[{}].size", self.channels[last].name);
        Some((field, self.spans[last].1.clone()))
    }
}

/// Reads all channels.
pub(crate) fn read(root: &Table<'_>, others: &Others<'_>) -> Channels {
    let mut all = Channels::default();
    for table in root.tables("channel") {
        if all.channels.len() == MOST_CHANNELS {
            let message = format!("more than {MOST_CHANNELS} channels");
            let error = root.error("channel", table.span(), message);
            root.push(error.label("one too many").help("join channels"));
            break;
        }
        read_channel(table, others, &mut all);
    }
    all
}

fn read_channel(mut table: Table<'_>, others: &Others<'_>, all: &mut Channels) -> Option<()> {
    let name = name(&mut table, "channel");
    if let Some((name, span)) = &name
        && let Some(index) = all.channels.iter().position(|other| other.name == *name)
    {
        let message = format!("there are two channels called `{name}`");
        let error = table.error("name", span.clone(), message).label("again");
        table.push(
            error
                .also(all.spans[index].0.clone(), "first here")
                .help("reports tell channels apart by name: give each its own"),
        );
    }
    let help = "say how large it is: size = \"16K\"";
    let pages = table.required_value("size", help, Field::pages);
    let help = "name the pool that has its colors: pool = \"shared\"";
    let pool = table.required_value("pool", help, |field| shared_pool(field, others.pools));
    let is_cleared = table.value("on_restart", |field| {
        field.one_of("reaction to a restart", &ON_RESTART)
    });
    let seen = Seen {
        pages: pages.as_ref().map_or(1, |given| given.value),
        pool: pool.as_ref().map_or(0, |given| given.value),
        others,
        before: &all.channels,
    };
    let tables = table.tables("member");
    let count = tables.len();
    let mut members: Vec<(Member, Range<usize>)> = Vec::new();
    for member in tables {
        members.extend(read_member(&member, &seen, &members));
    }
    table.finish_ref();
    if count < 2 {
        let error = table.error("member", table.span(), "a channel joins at least two VMs");
        let label = format!("{count} [[channel.member]]");
        let help = "add one for each VM: vm = \"...\", rights = \"write\", ipa = 0x6000_0000";
        table.push(error.label(label).help(help));
    } else if members.len() == count && members.iter().all(|(own, _)| own.rights != Rights::Write) {
        let error = table.error("member", table.span(), "no VM may write to the channel");
        let help = "give at least one of them rights = \"write\"";
        table.push(error.label("nothing would ever be in it").help(help));
    }
    let ((name, name_span), pages, pool) = (name?, pages?, pool?);
    all.channels.push(Channel {
        name: name.to_owned(),
        pool: pool.value,
        pages: pages.value,
        members: members.into_iter().map(|(member, _)| member).collect(),
        is_cleared: is_cleared.or(false)?,
    });
    all.spans.push((name_span, pages.field.span()));
    Some(())
}

/// Returns the pool that a field names, which must not be private.
fn shared_pool(field: &Field<'_>, pools: &[PoolSpec]) -> Option<u8> {
    let pool = find_pool(field, pools)?;
    let spec = &pools[usize::from(pool)];
    if spec.pool.kind == PoolKind::Sh {
        return Some(pool);
    }
    let message = format!(
        "pool `{}` is private, and a channel is of several VMs",
        spec.pool.name
    );
    let error = field.error(message).label("a PVT pool");
    field.push(
        error
            .also(spec.made_span.clone(), "its colors are one VM's")
            .help("give the channel its own pool: kind = \"SH\", with colors of no other"),
    );
    None
}

/// The context of a channel's members.
struct Seen<'a> {
    pages: u32,
    pool: u8,
    others: &'a Others<'a>,
    before: &'a [Channel],
}

fn read_member(
    table: &Table<'_>,
    seen: &Seen<'_>,
    members: &[(Member, Range<usize>)],
) -> Option<(Member, Range<usize>)> {
    let help = "name one of the VMs: vm = \"...\"";
    let vm = table.required_value("vm", help, |field| find_vm(field, seen.others));
    let help = "say what the VM may do: rights = \"write\", \"read\" or \"none\"";
    let rights = table.required_value("rights", help, |field| field.one_of("right", &RIGHTS));
    let is_seen = rights.as_ref().map(|given| given.value != Rights::None);
    let ipa = match is_seen {
        Some(true) => {
            let help = "say where the VM sees it: ipa = 0x6000_0000";
            table.required_value("ipa", help, page_ipa)
        }
        _ => {
            let given = table.optional("ipa");
            if let Some(field) = given.filter(|_| is_seen == Some(false)) {
                let error = field.error("the VM has no rights to the memory");
                let help = "leave it out; the VM has the doorbell alone";
                field.push(error.label("it sees none of it").help(help));
            }
            None
        }
    };
    table.finish_ref();
    let (vm, rights) = (vm?, rights?);
    if let Some((_, first)) = members.iter().find(|(other, _)| other.vm == vm.value) {
        let error = vm.field.error("the VM is in the channel twice");
        let help = "a VM sees a channel once, with one set of rights";
        vm.field.push(
            error
                .label("again")
                .also(first.clone(), "first here")
                .help(help),
        );
        return None;
    }
    if let Some(ipa) = &ipa {
        check_place(table, &ipa.field, ipa.value, vm.value, seen)?;
    }
    if is_seen == Some(true) && ipa.is_none() {
        return None;
    }
    let member = Member {
        vm: vm.value,
        rights: rights.value,
        ipa: ipa.map_or(Ipa(0), |ipa| ipa.value),
    };
    Some((member, vm.field.span()))
}

/// Returns the VM that a field names.
pub(crate) fn find_vm(field: &Field<'_>, others: &Others<'_>) -> Option<VmId> {
    let name = field.string("the name of a VM")?;
    let found = others.vms.iter().position(|spec| spec.vm.name == name);
    if found.is_none() && others.complete {
        let known = others.vms.iter().map(|spec| spec.vm.name.as_str());
        let error = field.error(format!("there is no VM `{name}`"));
        field.push(error.label("unknown VM").help(suggest(name, "VMs", known)));
    }
    found.map(|vm| VmId(vm as u8))
}

/// Checks that nothing else of a VM is where it sees a channel.
fn check_place(
    table: &Table<'_>,
    field: &Field<'_>,
    ipa: Ipa,
    id: VmId,
    seen: &Seen<'_>,
) -> Option<()> {
    let place = Region {
        name: String::new(),
        ipa,
        pages: seen.pages,
        backing: Backing::Pool(seen.pool),
        executable: false,
    };
    let spec = &seen.others.vms[id.index()];
    check_addresses(table, &spec.taken, &place, &field.span())?;
    let regions = spec.vm.regions.iter();
    let own = regions.map(|region| (region.name.clone(), region.clone()));
    let channels = seen.before.iter().filter_map(|other| {
        let member = other.member(id)?;
        Some((other.name.clone(), other.seen_by(member)?))
    });
    let Some((name, other)) = own
        .chain(channels)
        .find(|(_, other)| other.overlaps(&place))
    else {
        return Some(());
    };
    let end = other.ipa.page(other.pages.into());
    let message = format!("the channel overlaps `{name}` in VM `{}`", spec.vm.name);
    let error = field.error(message);
    let label = format!("{ipa}..{}", ipa.page(seen.pages.into()));
    let help = format!("the first free address after `{name}` is {end}");
    field.push(error.label(label).help(help));
    None
}

/// Returns the doorbells of the VMs that have a channel, and checks what these VMs have otherwise.
pub(crate) fn doorbells(context: &Context, channels: &[Channel], vms: &[VmSpec]) -> Vec<Doorbell> {
    let mut bells = Vec::new();
    for (index, spec) in vms.iter().enumerate() {
        let vm = VmId(index as u8);
        let has = channels.iter().any(|channel| channel.member(vm).is_some());
        let error = |field: &str, span: &Range<usize>, message: String| {
            let path = format!("{}.{field}", spec.path);
            Problem::error(&context.file, path, span.clone(), message)
        };
        if !has {
            if let Some(bell) = &spec.doorbell {
                let message = format!("VM `{}` has no channel", spec.vm.name);
                let error = error("doorbell", &bell.span, message);
                let help = "leave it out, or add a [[channel]] with this VM";
                context.push(error.label("nobody could call it").help(help));
            }
            continue;
        }
        let taken = spec.irqs.iter().find(|(own, _)| own.0 == irq::DOORBELL);
        if let Some((own, span)) = taken {
            let message = format!("interrupt {own} is the doorbell's in a VM with a channel");
            let error = error("interrupts", span, message);
            let help = "pass the device through to a VM without a channel";
            context.push(error.label("taken").help(help));
        }
        if spec.vm.map.uart.irq.0 == irq::DOORBELL {
            let message = format!(
                "interrupt {} is the doorbell's in a VM with a channel",
                irq::DOORBELL
            );
            let error = error("map", &spec.name_span, message);
            let help = "name a map whose UART has another interrupt";
            context.push(error.label("its UART has this interrupt").help(help));
        }
        let Bell {
            trigger,
            burst,
            interval,
        } = spec.doorbell.as_ref().map_or(DEFAULT, |spec| spec.bell);
        bells.push(Doorbell {
            vm,
            trigger,
            burst,
            interval,
        });
    }
    bells
}

/// Warns of channels whose colors VMs use otherwise: what flows through evicts their lines.
pub(crate) fn check_colors(context: &Context, all: &Channels, others: &Others<'_>) {
    let colors = |pool: u8| others.pools[usize::from(pool)].pool.colors;
    for (channel, (span, _)) in all.channels.iter().zip(&all.spans) {
        let meets = |spec: &&VmSpec| {
            let mut uses = spec.pool_uses.iter();
            uses.any(|used| !colors(used.pool).and(colors(channel.pool)).is_empty())
        };
        let Some(user) = others.vms.iter().find(meets) else {
            continue;
        };
        let path = format!("channel[{}].pool", channel.name);
        let message = format!(
            "channel `{}` shares colors with memory of VM `{}`",
            channel.name, user.vm.name
        );
        let warning = Problem::warning(&context.file, path, span.clone(), message);
        let help = "give it its own SH pool, with colors of no other pool";
        context.push(
            warning
                .label("its traffic evicts that VM's lines")
                .help(help),
        );
    }
}
