//! Faults in a system image: each bit of it flipped, and each field of header and configuration set
//! to values at its edges with valid checksums. The reader refuses it with a named error, or what
//! it accepts keeps what `SPECIFICATION.md` promises.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::seal;
use super::tests;
use cloison_abi::irq;
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::channel::{Channel, Doorbell, Member, Rights, Trigger};
use cloison_formats::color::ColorSet;
use cloison_formats::ids::{Core, Intid, VcpuIndex, VmId};
use cloison_formats::image::{
    Backing, Campaign, Counted, END_MARKER, HEADER_LEN, Header, ImageError, Memory, Module, Pool,
    PoolKind, PowerOff, Profile, Quota, Reclaim, Region, Stop, System, Vm, WhenSpent, WorkCost,
};
use cloison_formats::link::{Link, LinkEnd, LinkKind};
use cloison_formats::units::{EventId, Events, Nanos};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Bytes of the payload: two guests' images.
const PAYLOAD: usize = PAGE_SIZE as usize + 24;

/// Returns a system with each kind of field that a configuration can have.
fn system() -> System {
    let mut system = tests::system();
    system.board.power_off = Some(PowerOff {
        page: PhysAddr(0x0a00_3000),
        writes: vec![(4, 1)],
    });
    system.board.pmu_irqs = system.board.cores.iter().map(|_| Intid(23)).collect();
    system.ends_with = Some(VmId(0));
    system.trusted = vec![EventId::INST_RETIRED];
    system.console_manages = 3;
    system.contiguous = 16;
    system.board.memories.push(Memory {
        name: "ocm".into(),
        range: PhysRange {
            start: PhysAddr(0xfffc_0000),
            len: 0x4_0000,
        },
    });
    system.pools.push(Pool {
        name: "shared".into(),
        kind: PoolKind::Sh,
        colors: ColorSet(0b1100),
        limit: Some(64),
    });
    system.pools.push(Pool {
        name: "on-chip".into(),
        kind: PoolKind::Pvt,
        colors: ColorSet(1 << 16),
        limit: None,
    });
    let quota = Quota {
        vcpu: VcpuIndex(0),
        counted: Counted {
            event: EventId::INST_RETIRED,
            weight: 1,
            allowed: false,
        },
        also: None,
        budget: Events(1000),
        ceiling: Events(2000),
        period: Nanos(1_000_000),
        poll: Nanos(10_000),
        backstop: false,
        trace: false,
        exact: true,
        work_cost: WorkCost {
            page: Events(128),
            step: Events(1),
        },
        when_spent: WhenSpent::Throttle,
        reclaim: Some(Reclaim {
            pool: 0,
            guarantee: Events(100),
        }),
    };
    let ram = |name: &str, ipa: u64, backing| Region {
        name: name.into(),
        ipa: Ipa(ipa),
        pages: 4,
        backing,
        executable: true,
    };
    let mut other = system.vms[0].clone();
    other.name = "two".into();
    other.cores = vec![Core(1), Core(2)];
    other.regions = vec![
        ram("ram", 0x4000_0000, Backing::Pool(1)),
        ram(
            "device",
            0x0a00_0000,
            Backing::Device(PhysAddr(0x0a00_4000)),
        ),
        ram("buffer", 0x6000_0000, Backing::Contiguous),
        ram("direct", 0x4800_0000, Backing::Direct),
    ];
    other.irqs = vec![Intid(50)];
    other.stops = vec![Stop {
        at: PhysAddr(0x0a00_4070),
        value: 0,
    }];
    other.manages = 1;
    other.regulates = 1;
    other.modules = vec![Module {
        offset: PAGE_SIZE as u32,
        len: 16,
        load: Ipa(0x4000_1000),
    }];
    other.quotas = vec![quota];
    other.campaign = Some(Campaign {
        sub_experiments: vec![vec![EventId::INST_RETIRED]],
        runs: 2,
        vary: Some(1),
    });
    let first = &mut system.vms[0];
    first.regions[0].backing = Backing::Pool(1);
    first.target = Some(0);
    first.away = 2;
    first.quotas = vec![quota];
    first.hems = vec![EventId::INST_RETIRED];
    first.profile = Some(Profile {
        pages: vec![Ipa(0x4000_0000), Ipa(0x4000_2000)],
        top: 1,
        after: Some(Nanos(5)),
    });
    system.vms.push(other);
    connect(&mut system);
    system
}

/// Gives both VMs two channels, in different places.
fn connect(system: &mut System) {
    let channel = |name: &str, places: [(Rights, u64); 2]| Channel {
        name: name.into(),
        pool: 1,
        pages: 4,
        members: (0..)
            .zip(places)
            .map(|(vm, (rights, ipa))| Member {
                vm: VmId(vm),
                rights,
                ipa: Ipa(ipa),
            })
            .collect(),
        is_cleared: true,
    };
    let (write, read) = (Rights::Write, Rights::Read);
    system.channels = vec![
        channel("both", [(write, 0x7000_0000), (write, 0x7000_4000)]),
        channel("one", [(write, 0x7000_4000), (read, 0x7000_0000)]),
    ];
    let bell = |vm| Doorbell {
        vm: VmId(vm),
        trigger: Trigger::Level,
        burst: 10,
        interval: Nanos(1000),
    };
    system.doorbells = vec![bell(0), bell(1)];
    let link = |name: &str, kind, ipa, irq| Link {
        name: name.into(),
        kind,
        ends: [0, 1].map(|vm| LinkEnd {
            vm: VmId(vm),
            ipa: Ipa(ipa),
            irq: Intid(irq),
        }),
    };
    system.links = vec![
        link("net", LinkKind::Net, 0xb00_0000, 200),
        link("console", LinkKind::Console, 0xb00_1000, 201),
        link("sockets", LinkKind::Vsock, 0xb00_2000, 202),
    ];
}

fn encoded(system: &System) -> Vec<u8> {
    seal::encode(system, &[0x5a; PAYLOAD]).expect("a system can be written")
}

/// Reads an image as the hypervisor does.
fn read(image: &[u8]) -> Result<System, ImageError> {
    let crc = crc32fast::hash;
    Header::parse(image, crc)?.decode(image, crc)
}

/// Like [`read`]. Returns `None` for a panic.
fn survive(image: &[u8]) -> Option<Result<System, ImageError>> {
    std::panic::catch_unwind(|| read(image)).ok()
}

#[test]
fn every_flipped_bit_is_named_or_changes_nothing() {
    let system = system();
    let good = encoded(&system);
    assert_eq!(read(&good).as_ref(), Ok(&system), "the image is valid");
    let header = Header::parse(&good, crc32fast::hash).expect("valid");
    let config = HEADER_LEN..HEADER_LEN + header.config_len as usize;
    let payload = header.payload_offset as usize..good.len() - END_MARKER.len();
    let mut counts = BTreeMap::<&str, u32>::new();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut image = good.clone();
            image[at] ^= 1 << bit;
            let found = read(&image);
            // By the layout in the documentation of the format.
            let (place, is_right) = match at {
                0..8 => ("magic", found == Err(ImageError::NoImage)),
                8..12 => ("version", matches!(found, Err(ImageError::Version { .. }))),
                _ => {
                    let (place, damaged) = match at {
                        ..HEADER_LEN => ("header", Some("system image header is")),
                        _ if config.contains(&at) => ("configuration", Some("configuration is")),
                        _ if payload.contains(&at) => ("payload", Some("guest images are")),
                        _ if at >= payload.end => ("end marker", None),
                        _ => ("padding", None),
                    };
                    let is_right = match (&found, damaged) {
                        (Err(ImageError::Damaged { what, .. }), Some(damaged)) => *what == damaged,
                        (Err(ImageError::Truncated { .. }), None) => place == "end marker",
                        (Ok(read), None) => place == "padding" && *read == system,
                        _ => false,
                    };
                    (place, is_right)
                }
            };
            assert!(is_right, "bit {bit} of byte {at} ({place}): {found:?}");
            *counts.entry(place).or_default() += 1;
        }
    }
    println!("{} bits: {counts:?}", good.len() * 8);
    assert_eq!(counts.len(), 7, "each part of the image was met");
}

/// Returns values at the edges of what a field of up to 64 bits can hold, and beside its own.
fn edges(own: u64) -> Vec<u64> {
    let mut all = vec![
        0,
        1,
        own.wrapping_sub(1),
        own.wrapping_add(1),
        own.wrapping_sub(PAGE_SIZE),
        own.wrapping_add(PAGE_SIZE),
        u8::MAX.into(),
        u16::MAX.into(),
        u32::MAX.into(),
        u64::MAX,
        u64::MAX - (PAGE_SIZE - 1),
        1 << 39,
        (1 << 39) - PAGE_SIZE,
        1 << 63,
    ];
    all.extend((0..64).map(|bit| own ^ 1 << bit));
    all.retain(|&value| value != own);
    all
}

#[test]
fn every_field_of_the_header_at_its_edges_is_survived() {
    let system = system();
    let good = encoded(&system);
    let header = Header::parse(&good, crc32fast::hash).expect("valid");
    type Field = fn(&mut Header) -> &mut u32;
    let fields: [(&str, Field); 5] = [
        ("config_len", |header| &mut header.config_len),
        ("config_crc", |header| &mut header.config_crc),
        ("payload_offset", |header| &mut header.payload_offset),
        ("payload_len", |header| &mut header.payload_len),
        ("payload_crc", |header| &mut header.payload_crc),
    ];
    let mut count = 0;
    for (name, field) in fields {
        let own = *field(&mut header.clone());
        let values = edges(own.into()).into_iter();
        for value in values.filter_map(|value| u32::try_from(value).ok()) {
            let (mut changed, mut image) = (header, good.clone());
            *field(&mut changed) = value;
            image[..HEADER_LEN].copy_from_slice(&seal::header_bytes(&changed));
            let what = format!("{name} = {value:#x}");
            // Each field says where something is, or is its checksum: no other value is right.
            let refused = survive(&image).is_some_and(|found| found.is_err());
            assert!(refused, "{what}");
            count += 1;
        }
    }
    println!("{count} headers");
}

/// Calls `with` for each system that differs in one leaf of the value from the whole one.
fn vary(whole: &Value, put: &dyn Fn(Value), all: &mut u32) {
    let mut offer = |value: Value| {
        *all += 1;
        put(value);
    };
    match whole {
        Value::Number(number) => {
            let own = number.as_u64().expect("no field is negative");
            edges(own).into_iter().for_each(|value| offer(value.into()));
            offer(Value::Null);
        }
        Value::Bool(is_set) => offer((!is_set).into()),
        Value::String(text) => offer(format!("{text}x").into()),
        Value::Null => [0_u64, 1, 255]
            .into_iter()
            .for_each(|value| offer(value.into())),
        Value::Array(items) => {
            offer(Value::Array(vec![]));
            if let Some(last) = items.last() {
                let twice = [items.as_slice(), std::slice::from_ref(last)].concat();
                offer(Value::Array(twice));
                offer(Value::Array(items[..items.len() - 1].to_vec()));
            }
            for (index, item) in items.iter().enumerate() {
                let put_item = |value| {
                    let mut items = items.clone();
                    items[index] = value;
                    put(Value::Array(items));
                };
                vary(item, &put_item, all);
            }
        }
        Value::Object(fields) => {
            offer(Value::Null);
            for (name, field) in fields {
                let put_field = |value| {
                    let mut fields = fields.clone();
                    fields[name] = value;
                    put(Value::Object(fields));
                };
                vary(field, &put_field, all);
            }
        }
    }
}

#[test]
fn every_field_of_the_configuration_at_its_edges_is_refused_or_keeps_the_promises() {
    let system = system();
    assert_eq!(broken(&system), None, "the valid system");
    let whole = serde_json::to_value(&system).expect("a system has a text form");
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let failures = RefCell::new(vec![]);
    let put = |value: Value| {
        // A value that the field's type cannot hold is none that an image can have.
        let Ok(changed) = serde_json::from_value::<System>(value) else {
            return;
        };
        let fault = match survive(&encoded(&changed)) {
            Some(Ok(read)) if read != changed => "it is read as another".to_owned(),
            Some(Ok(_)) => {
                accepted.set(accepted.get() + 1);
                let Some(promise) = broken(&changed) else {
                    return;
                };
                format!("it is accepted in spite of {promise}")
            }
            Some(Err(ImageError::Invalid(_))) => return refused.set(refused.get() + 1),
            Some(Err(error)) => error.to_string(),
            None => "a panic".to_owned(),
        };
        let changed = serde_json::to_value(&changed).expect("as before");
        let what = difference(&whole, &changed);
        failures.borrow_mut().push(format!("{what}: {fault}"));
    };
    let mut all = 0;
    vary(&whole, &put, &mut all);
    println!(
        "{all} changes: {} accepted, {} refused, the rest no field can hold",
        accepted.get(),
        refused.get()
    );
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(accepted.get() > 100 && refused.get() > 1000);
}

/// Returns the lines in which the text forms differ.
fn difference(one: &Value, other: &Value) -> String {
    let text = |value| serde_json::to_string_pretty(value).expect("a value has a text form");
    let (one, other) = (text(one), text(other));
    let lines: Vec<_> = one.lines().collect();
    let mut new = other.lines().enumerate();
    let at = new.find(|(at, line)| lines.get(*at) != Some(line));
    at.map_or_else(String::new, |(at, line)| {
        let before: Vec<_> = lines[at.saturating_sub(4)..at]
            .iter()
            .map(|l| l.trim())
            .collect();
        format!("{} {}", before.join(" "), line.trim())
    })
}

/// Returns a promise that a system breaks. Numbers are wider than their fields: no sum wraps.
fn broken(system: &System) -> Option<String> {
    let colors = system
        .board
        .llc
        .colors()
        .ok()
        .map(|all| (1_u128 << all) - 1)?;
    let others = (1_u128 << system.board.memories.len()) - 1;
    let managed = colors | (others * (colors + 1));
    let own = u128::from(system.hypervisor_colors.0);
    let bits = |pool: &Pool| u128::from(pool.colors.0);
    for (index, pool) in system.pools.iter().enumerate() {
        let of = bits(pool);
        let alone = system.pools.iter().enumerate().all(|(other, it)| {
            let both_shared = it.kind == PoolKind::Sh && pool.kind == PoolKind::Sh;
            other == index || both_shared || bits(it) & of == 0
        });
        if of == 0 || of & !managed != 0 || of & own != 0 || !alone {
            return Some(format!("the colors of pool {index}"));
        }
    }
    if own == 0 || own & !colors != 0 {
        return Some("the hypervisor's colors".into());
    }
    let vms = system.vms.len() as u32;
    let beyond = |mask: u8| u32::from(mask) >> vms != 0;
    if vms == 0 || vms > 8 || beyond(system.console_manages) {
        return Some("the VMs".into());
    }
    if system.ends_with.is_some_and(|vm| u32::from(vm.0) >= vms) {
        return Some("the VM with which the machine ends".into());
    }
    let mut cores: Vec<u8> = system
        .vms
        .iter()
        .flat_map(|vm| &vm.cores)
        .map(|c| c.0)
        .collect();
    let count = cores.len();
    cores.sort_unstable();
    cores.dedup();
    if cores.len() != count
        || cores
            .last()
            .is_some_and(|&c| usize::from(c) >= system.board.cores.len())
    {
        return Some("a core of two VMs, or of none".into());
    }
    if let Some(promise) = channels(system) {
        return Some(promise.into());
    }
    if let Some(promise) = links(system) {
        return Some(promise.into());
    }
    let each = system.vms.iter().enumerate();
    each.into_iter().find_map(|(index, vm)| {
        let own = |mask: u8| beyond(mask) || mask >> index & 1 == 1;
        if vm.cores.is_empty() || own(vm.manages) || own(vm.regulates) {
            return Some(format!("the grants of VM {index}"));
        }
        memory(system, vm)
            .or_else(|| budgets(system, vm))
            .map(|promise| format!("VM {index}: {promise}"))
    })
}

/// A range of addresses.
type Range = std::ops::Range<u128>;

fn overlap(one: &Range, other: &Range) -> bool {
    one.start < other.end && other.start < one.end
}

fn range(start: u64, len: u64) -> Range {
    u128::from(start)..u128::from(start) + u128::from(len)
}

/// Returns where a VM sees a region.
fn ipas(region: &Region) -> Range {
    range(region.ipa.0, u64::from(region.pages) * PAGE_SIZE)
}

fn memory(system: &System, vm: &Vm) -> Option<&'static str> {
    let page = u128::from(PAGE_SIZE);
    let banks: Vec<Range> = system
        .board
        .ranges()
        .map(|bank| range(bank.start.0, bank.len))
        .collect();
    let devices = |vm: &Vm| -> Vec<Range> {
        let own = vm.devices();
        own.map(|PhysRange { start, len }| range(start.0, len))
            .collect()
    };
    let gic = &system.board.gic;
    let kept = [
        gic.gicd,
        gic.gicc,
        gic.gich,
        gic.gicv,
        system.board.console.base,
    ];
    for (index, region) in vm.regions.iter().enumerate() {
        let of = ipas(region);
        if of.is_empty() || !of.start.is_multiple_of(page) || of.end > 1 << 39 {
            return Some("a region's place");
        }
        if vm.regions[..index]
            .iter()
            .any(|other| overlap(&ipas(other), &of))
        {
            return Some("two regions at one place");
        }
        if vm
            .map
            .devices()
            .iter()
            .any(|&(_, at)| overlap(&range(at.0, PAGE_SIZE), &of))
        {
            return Some("a region over an emulated device");
        }
        match region.backing {
            Backing::Pool(pool) => {
                let users = system.vms.iter().filter(|vm| {
                    let is_target = vm.target == Some(pool);
                    is_target || vm.regions.iter().any(|it| it.backing == region.backing)
                });
                match system.pools.get(usize::from(pool)) {
                    None => return Some("a pool that is not there"),
                    Some(it) if it.kind == PoolKind::Pvt && users.count() > 1 => {
                        return Some("a private pool of two VMs");
                    }
                    Some(_) => {}
                }
            }
            Backing::Contiguous => {}
            Backing::Direct => {
                let of = ipas(region);
                let inside = |bank: &Range| bank.start <= of.start && of.end <= bank.end;
                let others = system.vms.iter().flat_map(|vm| &vm.regions);
                let takers = others
                    .filter(|other| other.backing == Backing::Direct && overlap(&ipas(other), &of));
                let reserved = system.board.reserved.iter();
                let firmware = reserved.map(|it| range(it.start.0, it.len));
                if !banks.iter().any(inside)
                    || takers.count() > 1
                    || firmware.into_iter().any(|it| overlap(&it, &of))
                {
                    return Some("memory at its own address that is not free RAM");
                }
            }
            Backing::Device(start) => {
                let of = range(start.0, u64::from(region.pages) * PAGE_SIZE);
                let is_kept = kept.iter().any(|at| overlap(&range(at.0, PAGE_SIZE), &of));
                let others = system.vms.iter().filter(|it| !std::ptr::eq(*it, vm));
                let shared = others.flat_map(devices).any(|other| overlap(&other, &of));
                let is_ram = banks.iter().any(|bank| overlap(bank, &of));
                if !start.is_page_aligned() || is_kept || shared || is_ram {
                    return Some("a device that is not the VM's to have");
                }
                // VTCR_EL2.PS is 40 bits; bits from 48 on are no address in a descriptor (Arm ARM
                // DDI 0487, D8.3): a device there would be another one, or RAM.
                if of.end > 1 << 40 {
                    return Some("a device beyond the address space");
                }
            }
        }
    }
    for stop in &vm.stops {
        let word = range(stop.at.0, 4);
        let is_own = devices(vm)
            .iter()
            .any(|of| of.start <= word.start && word.end <= of.end);
        if !is_own || !word.start.is_multiple_of(4) || vm.stops.len() > 32 {
            return Some("what stops a device that is not the VM's");
        }
    }
    let is_ram = |it: &&Region| !matches!(it.backing, Backing::Device(_));
    for Module { offset, len, load } in vm.loaded() {
        let from = range(offset.into(), len.into());
        let to = range(load.0, len.into());
        let fits = |region: &Region| {
            let of = ipas(region);
            of.start <= to.start && to.end <= of.end
        };
        let is_placed = len == 0 || vm.regions.iter().filter(is_ram).any(fits);
        if from.end > PAYLOAD as u128 || !is_placed || !load.is_page_aligned() {
            return Some("a part that is loaded elsewhere");
        }
    }
    let pages = vm.profile.iter().flat_map(|profile| &profile.pages);
    let is_there = |page: &&Ipa| {
        let at = u128::from(page.0);
        page.is_page_aligned() && vm.regions.iter().any(|region| ipas(region).contains(&at))
    };
    if !pages.clone().all(|page| is_there(&page)) {
        return Some("a page of the profile that is not there");
    }
    let target = vm.target.map(usize::from);
    if target.is_some_and(|pool| pool >= system.pools.len()) {
        return Some("a target that is not there");
    }
    None
}

/// A channel joins VMs that exist, is in shared colors, has a place in each VM for itself alone, and
/// each of its VMs has a doorbell with a rate and an interrupt for that alone.
fn channels(system: &System) -> Option<&'static str> {
    let mut seen: Vec<(VmId, Range)> = vec![];
    for channel in &system.channels {
        let pool = system.pools.get(usize::from(channel.pool));
        if pool.is_none_or(|pool| pool.kind != PoolKind::Sh) {
            return Some("a channel in private colors");
        }
        if channel.members.iter().all(|it| it.rights != Rights::Write) {
            return Some("a channel that no VM writes");
        }
        let mut vms: Vec<_> = channel.members.iter().map(|it| it.vm).collect();
        vms.sort_unstable();
        vms.dedup();
        if vms.len() != channel.members.len() {
            return Some("a channel with a VM twice");
        }
        for member in &channel.members {
            let Some(vm) = system.vms.get(member.vm.index()) else {
                return Some("a channel of a VM that is not there");
            };
            let bell = system.doorbells.iter().find(|it| it.vm == member.vm);
            let irqs = vm.irqs.iter().chain([&vm.map.uart.irq]);
            if bell.is_none_or(|it| it.burst == 0 || it.interval.0 == 0)
                || irqs.into_iter().any(|it| it.0 == irq::DOORBELL)
            {
                return Some("a channel without a doorbell");
            }
            if member.rights == Rights::None {
                continue;
            }
            let of = range(member.ipa.0, u64::from(channel.pages) * PAGE_SIZE);
            let before = seen.iter().filter(|(vm, _)| *vm == member.vm);
            let mut taken = placed(vm).chain(before.map(|(_, of)| of.clone()));
            let is_placed = of.start < of.end && of.end <= 1 << 39 && member.ipa.is_page_aligned();
            if !is_placed || taken.any(|other| overlap(&other, &of)) {
                return Some("a channel in a place that is not its own");
            }
            seen.push((member.vm, of));
        }
    }
    None
}

/// Returns the addresses of a VM's regions and of its map's devices.
fn placed(vm: &Vm) -> impl Iterator<Item = Range> {
    let devices = vm.map.devices().into_iter();
    let devices = devices.map(|(_, at)| range(at.0, PAGE_SIZE));
    vm.regions.iter().map(ipas).chain(devices)
}

/// A link joins two VMs that exist, and has a page and an interrupt in each for itself alone.
fn links(system: &System) -> Option<&'static str> {
    let mut seen: Vec<(VmId, Ipa, Intid)> = vec![];
    for link in &system.links {
        if link.ends[0].vm == link.ends[1].vm {
            return Some("a link of a VM with itself");
        }
        for end in &link.ends {
            let Some(vm) = system.vms.get(end.vm.index()) else {
                return Some("a link of a VM that is not there");
            };
            let of = range(end.ipa.0, PAGE_SIZE);
            let channels = system.channels.iter().filter_map(|channel| {
                let member = channel.members.iter().find(|it| it.vm == end.vm)?;
                let len = u64::from(channel.pages) * PAGE_SIZE;
                (member.rights != Rights::None).then(|| range(member.ipa.0, len))
            });
            let mut taken = placed(vm).chain(channels);
            let mut before = seen.iter().filter(|(vm, ..)| *vm == end.vm);
            let is_shared = before.any(|(_, ipa, irq)| *ipa == end.ipa || *irq == end.irq);
            let is_placed = of.end <= 1 << 39 && end.ipa.is_page_aligned();
            if !is_placed || is_shared || taken.any(|other| overlap(&other, &of)) {
                return Some("a link in a place that is not its own");
            }
            let bells = system.doorbells.iter().filter(|it| it.vm == end.vm);
            let mut irqs = vm
                .irqs
                .iter()
                .chain([&vm.map.uart.irq])
                .map(|it| it.0)
                .chain(bells.map(|_| irq::DOORBELL));
            if !(32..1020).contains(&end.irq.0) || irqs.any(|it| it == end.irq.0) {
                return Some("a link with an interrupt that is not its own");
            }
            seen.push((end.vm, end.ipa, end.irq));
        }
    }
    None
}

fn budgets(system: &System, vm: &Vm) -> Option<&'static str> {
    for quota in &vm.quotas {
        let limit = u64::from(u32::MAX);
        let is_bounded =
            (1..=quota.ceiling.0).contains(&quota.budget.0) && quota.ceiling.0 <= limit;
        let is_used = usize::from(quota.vcpu.0) < vm.cores.len() && quota.period.0 > 0;
        let is_trusted =
            |it: Counted| it.weight > 0 && (it.allowed || system.trusted.contains(&it.event));
        if !is_bounded || !is_used || !quota.counted().all(is_trusted) {
            return Some("a budget that cannot be kept");
        }
        if quota
            .reclaim
            .is_some_and(|it| it.guarantee > quota.budget || it.guarantee.0 == 0)
        {
            return Some("a guarantee above the budget");
        }
    }
    let granted = |irq: Intid| {
        let of = |it: &&Vm| it.irqs.contains(&irq);
        system.vms.iter().filter(of).count()
    };
    let board = 32..system.board.gic.interrupts;
    let wrong = |&irq: &Intid| !board.contains(&irq.0) || granted(irq) != 1;
    vm.irqs
        .iter()
        .any(wrong)
        .then_some("an interrupt of two VMs, or of none")
}
