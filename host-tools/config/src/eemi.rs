//! What a VM may ask of the board's firmware, by the devices that are passed to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::devices::BoardDevice;
use crate::document::{Context, Field};
use crate::firmware::Eemi;
use crate::problem::Problem;
use cloison_formats::image::{FirmwareAccess, MAX_FIRMWARE_NUMBERS, Vm};
use std::ops::Range;

/// Reads `firmware` of a VM: whether it may ask the firmware about the devices that are passed to it.
/// Returns their numbers.
pub(crate) fn grant(
    field: &Field<'_>,
    board: Option<&BoardFile>,
    vm: &Vm,
) -> Option<FirmwareAccess> {
    let (true, Some(board)) = (field.boolean()?, board) else {
        return None;
    };
    if board.eemi == Eemi::Absent {
        let message = format!(
            "the board {} has no firmware that answers",
            board.board.name
        );
        field.push(
            field
                .error(message)
                .label("no [firmware] eemi = true")
                .help("its board file says nothing of EEMI, the calls of a ZynqMP's firmware"),
        );
        return None;
    }
    let mut access = FirmwareAccess::default();
    // A VM has a device if it has its first page.
    let is_own = |device: &&BoardDevice| vm.devices().any(|own| own.contains(device.range.start));
    for device in board.devices.iter().filter(is_own) {
        access.nodes.extend(&device.firmware.nodes);
        access.clocks.extend(&device.firmware.clocks);
        access.resets.extend(&device.firmware.resets);
    }
    if access == FirmwareAccess::default() {
        let error = field.error("none of the VM's devices has a number of the firmware's");
        field.push(error.label("nothing to ask about").help(
            "give the VM a device whose [[device]] in the board file has `firmware`, or leave this \
             out",
        ));
    }
    let lists = [&access.nodes, &access.clocks, &access.resets];
    if lists.iter().any(|list| list.len() > MAX_FIRMWARE_NUMBERS) {
        let message = format!("more than {MAX_FIRMWARE_NUMBERS} numbers of a kind");
        field.push(
            field
                .error(message)
                .label("too many")
                .help("give the VM fewer devices"),
        );
    }
    Some(access)
}

/// A VM that may ask the firmware, with the place of its name.
pub(crate) struct Grant<'a> {
    pub vm: &'a str,
    pub access: &'a FirmwareAccess,
    pub path: &'a str,
    pub span: Range<usize>,
}

impl Grant<'_> {
    fn numbers(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let FirmwareAccess {
            nodes,
            clocks,
            resets,
        } = self.access;
        let kinds = [("node", nodes), ("clock", clocks), ("reset", resets)];
        kinds
            .into_iter()
            .flat_map(|(kind, numbers)| numbers.iter().map(move |&number| (kind, number)))
    }
}

/// Checks that no number of the firmware's is two VMs': each could stop the other's device.
pub(crate) fn check_between(context: &Context, grants: &[Grant<'_>]) {
    for (index, grant) in grants.iter().enumerate() {
        for other in &grants[..index] {
            let mut own = grant.numbers();
            let shared = own.find(|own| other.numbers().any(|number| number == *own));
            let Some((kind, number)) = shared else {
                continue;
            };
            let message = format!(
                "the VMs `{}` and `{}` may both change {kind} {number} of the firmware",
                other.vm, grant.vm
            );
            context.push(
                Problem::error(&context.file, grant.path, grant.span.clone(), message)
                    .label("the second of them")
                    .help(
                        "their devices share it: give both devices to one VM, or `firmware` to one \
                         of the VMs only",
                    ),
            );
        }
    }
}
