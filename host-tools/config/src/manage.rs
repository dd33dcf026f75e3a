//! The VMs that another VM, or the console, may stop and start.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::node::{Context, Table, suggest};
use crate::problem::Problem;
use cloison_abi::services;
use std::ops::Range;

/// A list of names of VMs, which is read before all VMs are known.
#[derive(Default)]
pub(crate) struct Named {
    /// Path of the list in the file.
    path: String,
    names: Vec<(String, Range<usize>)>,
}

/// Reads the list in a field of a table.
pub(crate) fn read(table: &Table<'_>, field: &'static str) -> Named {
    let Some(list) = table.optional(field) else { return Named::default() };
    let elements = list.elements().unwrap_or_default();
    let name =
        |element: &crate::node::Field<'_>| Some((element.string("the name of a VM")?.to_owned(), element.span()));
    Named { path: table.path_of(field), names: elements.iter().filter_map(name).collect() }
}

/// Reads the list of a VM, which needs the service to use it.
pub(crate) fn read_of_vm(table: &Table<'_>, granted: u32) -> Named {
    if let Some(field) = table.optional("manages")
        && granted & services::MANAGE == 0
    {
        let unused = field.error("the VM may manage others, but lacks the service to do so");
        field.push(unused.label("without the service `manage`").help("add \"manage\" to `services`, or leave it out"));
    }
    read(table, "manages")
}

impl Named {
    /// Returns the named ones of all `vms`, a bit each. `own` is the index of the VM that has the list; `complete`: there
    /// are no others.
    pub(crate) fn resolve(&self, context: &Context, vms: &[String], own: Option<usize>, complete: bool) -> u8 {
        let mut bits = 0;
        for (name, span) in &self.names {
            let known = || vms.iter().map(String::as_str);
            let error = |message: String| Problem::error(&context.file, self.path.as_str(), span.clone(), message);
            match vms.iter().position(|known| known == name) {
                Some(index) if Some(index) == own => context.push(
                    error(format!("`{name}` names itself"))
                        .label("the VM itself")
                        .help("a VM stops and restarts itself by PSCI; list other VMs"),
                ),
                Some(index) => bits |= 1 << index,
                None if complete => context.push(
                    error(format!("there is no VM `{name}`")).label("unknown VM").help(suggest(name, "VMs", known())),
                ),
                None => {}
            }
        }
        bits
    }
}
