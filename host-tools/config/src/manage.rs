//! The VMs that another VM, or the console, may stop and start, or whose quotas it may set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Context, Field, Table, suggest};
use crate::problem::Problem;
use cloison_abi::services;
use std::ops::Range;

/// A list of names of VMs, which is read before all VMs are known.
#[derive(Default)]
pub(crate) struct NameList {
    /// Path of the list in the file.
    path: String,
    names: Vec<(String, Range<usize>)>,
}

/// Reads the list in a field of a table.
pub(crate) fn read(table: &Table<'_>, field: &'static str) -> NameList {
    table
        .optional(field)
        .map_or_else(NameList::default, |list| names(table, field, &list))
}

fn names(table: &Table<'_>, field: &'static str, list: &Field<'_>) -> NameList {
    let elements = list.elements().unwrap_or_default();
    let name = |element: &Field<'_>| {
        Some((
            element.string("the name of a VM")?.to_owned(),
            element.span(),
        ))
    };
    NameList {
        path: table.path_of(field),
        names: elements.iter().filter_map(name).collect(),
    }
}

/// Reads a VM's list `manages` or `regulates`, which needs the service to use it.
pub(crate) fn read_of_vm(table: &Table<'_>, field: &'static str, granted: u32) -> NameList {
    let Some(list) = table.optional(field) else {
        return NameList::default();
    };
    let (service, bit) = match field {
        "regulates" => ("regulate", services::REGULATE),
        _ => ("manage", services::MANAGE),
    };
    if granted & bit == 0 {
        let unused = list.error(format!(
            "the VM may {service} others, but lacks the service to do so"
        ));
        let help = format!("add \"{service}\" to `services`, or leave it out");
        list.push(
            unused
                .label(format!("without the service `{service}`"))
                .help(help),
        );
    }
    names(table, field, &list)
}

impl NameList {
    /// Returns the named VMs among `vms`, a bit each. `own` is the index of the VM that has the
    /// list; `complete`: there are no others.
    pub(crate) fn resolve(
        &self,
        context: &Context,
        vms: &[String],
        own: Option<usize>,
        complete: bool,
    ) -> u8 {
        let mut bits = 0;
        for (name, span) in &self.names {
            let known = || vms.iter().map(String::as_str);
            let error = |message: String| {
                Problem::error(&context.file, self.path.as_str(), span.clone(), message)
            };
            match vms.iter().position(|known| known == name) {
                Some(index) if Some(index) == own => context.push(
                    error(format!("`{name}` names itself"))
                        .label("the VM itself")
                        .help(
                            "a VM restarts itself by PSCI and lowers its quotas itself; list \
                             other VMs",
                        ),
                ),
                Some(index) => bits |= 1 << index,
                None if complete => context.push(
                    error(format!("there is no VM `{name}`"))
                        .label("unknown VM")
                        .help(suggest(name, "VMs", known())),
                ),
                None => {}
            }
        }
        bits
    }
}
