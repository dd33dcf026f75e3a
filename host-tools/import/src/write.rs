//! Writes a configuration as a person would: in order, with the places that it comes from.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::list::Entry;
use crate::source::Sources;
use crate::system::{Adapted, Image, Pool, Region, RegionBacking, State, Vm};
use cloison_config::quantity::show_size;
use std::path::Path;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

/// How wide comments are.
const WIDTH: usize = 100;

/// Returns a configuration. `from` says what it was made from, and `list` what is not as it was.
pub fn configuration(adapted: &Adapted, sources: &Sources, from: &str, list: &[Entry]) -> String {
    let mut document = DocumentMut::new();
    document["name"] = value(adapted.name.as_str());
    document["board"] = value(adapted.board.as_str());
    let head = head(from, list);
    if let Some(mut key) = document.key_mut("name") {
        key.leaf_decor_mut().set_prefix(head);
    }
    let mut hypervisor = Table::new();
    hypervisor["colors"] = value(set(adapted
        .hypervisor
        .iter()
        .map(|color| u64::from(color.0))));
    document["hypervisor"] = Item::Table(hypervisor);
    let mut pools = ArrayOfTables::new();
    for pool in &adapted.pools {
        pools.push(write_pool(pool, sources));
    }
    document["pool"] = Item::ArrayOfTables(pools);
    let mut vms = ArrayOfTables::new();
    for vm in &adapted.vms {
        vms.push(write_vm(vm, &adapted.pools, sources));
    }
    document["vm"] = Item::ArrayOfTables(vms);
    document.to_string()
}

/// Returns the comment at the start of the file.
fn head(from: &str, list: &[Entry]) -> String {
    let mut text = comment(&format!("Imported by `cloison import` from {from}."), "");
    if !list.is_empty() {
        text += "#\n# Not as it was:\n";
        for entry in list {
            let subject = &entry.subject;
            let places = entry.places.rsplit('/').next().unwrap_or_default();
            let line = format!("- {places}: {subject}: {}", entry.reason);
            text += &comment(&line, "  ");
        }
    }
    text + "\n"
}

/// Returns text as a comment, in lines of at most [`WIDTH`]; `indent` starts those after the first.
fn comment(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
            lines += &line;
            lines.push('\n');
            line = format!("#{indent}");
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}

/// Returns a table with a comment before its header.
fn table(about: &str) -> Table {
    let mut table = Table::new();
    let text = if about.is_empty() {
        String::new()
    } else {
        comment(about, "")
    };
    table.decor_mut().set_prefix(format!("\n{text}"));
    table
}

fn write_pool(pool: &Pool, sources: &Sources) -> Table {
    let about = match pool.place {
        Some(place) => sources.brief(place),
        None => "memory without colors: the VMs share what the hypervisor leaves".to_owned(),
    };
    let mut table = table(&about);
    table["name"] = value(pool.name.as_str());
    table["kind"] = value(if pool.is_private { "PVT" } else { "SH" });
    table["colors"] = value(set(pool.colors.iter().map(|color| u64::from(color.0))));
    table
}

fn write_vm(vm: &Vm, pools: &[Pool], sources: &Sources) -> Table {
    let origin = if vm.origin == vm.name {
        String::new()
    } else {
        format!(", {}", vm.origin)
    };
    let mut about = table(&format!("{}{origin}", sources.brief(vm.place)));
    let mut prefix = about
        .decor()
        .prefix()
        .and_then(|text| text.as_str())
        .unwrap_or_default()
        .to_owned();
    for remark in &vm.remarks {
        prefix += &comment(remark, "");
    }
    about.decor_mut().set_prefix(prefix);
    let mut table = about;
    table["name"] = value(vm.name.as_str());
    table["cores"] = numbers(vm.cores.iter().copied());
    if let Some((name, _)) = &vm.map {
        table["map"] = value(name.as_str());
    }
    table["image"] = value(image(&vm.image));
    if let Some(note) = image_note(&vm.image)
        && let Some(mut key) = table.key_mut("image")
    {
        key.leaf_decor_mut().set_prefix(comment(note, ""));
    }
    if !vm.interrupts.is_empty() {
        table["interrupts"] = numbers(vm.interrupts.iter().map(|interrupt| interrupt.number));
    }
    let mut regions = ArrayOfTables::new();
    for region in &vm.regions {
        regions.push(write_region(region, vm, pools, sources));
    }
    table["region"] = Item::ArrayOfTables(regions);
    table
}

fn write_region(region: &Region, vm: &Vm, pools: &[Pool], sources: &Sources) -> Table {
    let mut table = table(&sources.brief(region.place));
    table["name"] = value(region.name.as_str());
    table["ipa"] = address(region.ipa);
    table["size"] = value(show_plain(region.size));
    match region.backing {
        RegionBacking::Pool { pool, is_reserved } => {
            table["pool"] = value(pools[pool].name.as_str());
            if is_reserved && vm.image.has_tree() {
                table["linux"] = value("reserved");
            }
        }
        RegionBacking::Device(pa) => table["device"] = address(pa),
    }
    if !region.execute {
        table["execute"] = value(false);
    }
    table
}

/// Returns a size as a configuration has it: `64M`.
fn show_plain(bytes: u64) -> String {
    let shown = show_size(bytes);
    let short = shown
        .replace(" GiB", "G")
        .replace(" MiB", "M")
        .replace(" KiB", "K");
    if short.contains([' ', '.']) {
        format!("{} pages", bytes / 4096)
    } else {
        short
    }
}

fn image(image: &Image) -> InlineTable {
    let mut table = InlineTable::new();
    let mut text = |key: &str, text: &str| {
        table.insert(key, Value::from(text));
    };
    let shown = |path: &Path| path.display().to_string();
    match image {
        Image::Debian => text("linux", "cloud"),
        Image::StandIn(workload) => text("workload", workload),
        Image::Kernel {
            path,
            initrd,
            cmdline,
            state,
        } => {
            text("kernel", &shown(path));
            if let Some(initrd) = initrd {
                text("initrd", &shown(initrd));
            }
            if !cmdline.is_empty() {
                text("cmdline", cmdline);
            }
            if *state == State::Missing {
                table.insert("placeholder", Value::from(true));
            }
        }
        Image::File {
            path,
            load,
            entry,
            tree,
            state,
        } => {
            text("file", &shown(path));
            let tree = tree.clone();
            if !matches!(state, State::Elf(_)) {
                table.insert("load", hex(*load));
                if entry != load {
                    table.insert("entry", hex(*entry));
                }
            }
            if let Some(cmdline) = tree {
                table.insert("device_tree", Value::from(true));
                if !cmdline.is_empty() {
                    table.insert("cmdline", Value::from(cmdline));
                }
            }
            if *state == State::Missing {
                table.insert("placeholder", Value::from(true));
            }
        }
    }
    table
}

/// Returns what a reader must know of an image.
const fn image_note(image: &Image) -> Option<&'static str> {
    match image {
        Image::Debian => Some("the Linux system that starts the other hypervisor; here, Debian's"),
        Image::StandIn(_) => Some("a workload of Cloison instead of the VM's own image"),
        _ => None,
    }
}

/// Returns numbers as a set: `0-3,8`.
fn set(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: Vec<u64> = numbers.collect();
    let mut parts = Vec::new();
    let mut rest = numbers.as_slice();
    while let Some(first) = rest.first() {
        let length = rest
            .iter()
            .zip(*first..)
            .take_while(|(number, expected)| *number == expected)
            .count();
        let last = rest[length - 1];
        parts.push(if length == 1 {
            first.to_string()
        } else {
            format!("{first}-{last}")
        });
        rest = &rest[length..];
    }
    parts.join(",")
}

fn numbers(numbers: impl Iterator<Item = u64>) -> Item {
    let array: Array = numbers
        .map(|number| i64::try_from(number).unwrap_or_default())
        .collect();
    value(array)
}

fn address(address: u64) -> Item {
    value(hex(address))
}

/// Returns an address as `0x4000_0000`.
fn hex(address: u64) -> Value {
    let digits = format!("{address:x}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 4 == 0 {
            text.push('_');
        }
        text.push(digit);
    }
    // Beyond 2^63, TOML has no integers; such an address is refused before it is written.
    format!("0x{text}")
        .parse()
        .unwrap_or_else(|_| Value::from(0))
}
