//! `[vm.campaign]`: repeated runs of a VM for each of several sets of events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Table;
use crate::events::{EventTable, read_events};
use cloison_formats::image::Campaign;

/// Maximum number of runs of a VM in one boot, so that their numbers fit in the log and a boot does
/// not take days.
const MOST: u64 = 1_000_000;

/// Reads the campaign of a VM, if it has one. `hems` says whether the VM also has HEMs.
pub(crate) fn read(table: &Table<'_>, events: Option<&EventTable>, hems: bool) -> Option<Campaign> {
    let field = table.optional("campaign")?;
    let table = field.table()?;
    let runs = table.required("runs", "give the runs of each sub-experiment: runs = 50");
    let sets = table.required(
        "sub_experiments",
        "name the sets of events: sub_experiments = [[\"0x08\", \"0x17\"], [\"0x08\", \"0x03\"]]",
    );
    let vary = table
        .optional("vary")
        .map(|field| field.integer_up_to(3, "the number of an argument, 0 to 3"));
    table.finish();
    if hems {
        let problem = field
            .error("a VM has HEMs or a campaign, not both")
            .label("conflicts with `hems`");
        field.push(
            problem.help("remove `hems`: in a campaign the sub-experiments define what is counted"),
        );
    }
    let (runs, sets, events) = (runs?, sets?, events?);
    let number = runs.integer("a number of runs")?;
    let lists = sets.elements()?;
    if lists.is_empty() {
        sets.push(
            sets.error("a campaign without sub-experiments")
                .label("empty")
                .help("name at least one set of events"),
        );
        return None;
    }
    if number == 0 || number.saturating_mul(lists.len() as u64) > MOST {
        let total = number.saturating_mul(lists.len() as u64);
        let problem = runs
            .error(format!("{total} runs in all"))
            .label(format!("{number} x {} sets", lists.len()));
        runs.push(problem.help(format!("1 to {MOST} runs are possible in one boot")));
        return None;
    }
    let sub_experiments = lists.iter().map(|list| read_events(list, events)).collect();
    Some(Campaign {
        sub_experiments,
        runs: number as u32,
        vary: vary.flatten().map(|vary| vary as u8),
    })
}
