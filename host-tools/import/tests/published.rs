//! Published configurations, imported as they are. They are not part of this project: the test takes
//! them from a folder, and fetches into it what is not there.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;
#[path = "published/list.rs"]
mod list;

use cloison_import::Options;
use common::import;
use std::collections::BTreeSet;

/// Returns the sets of colors that a file has as plain numbers: an own look at the text, without the
/// reader under test.
fn plain_colors(text: &str) -> BTreeSet<u64> {
    let numbers = text.lines().filter_map(|line| {
        let line = line.split("//").next()?.trim();
        let value = line
            .strip_prefix("#define BOMB_COLORS")
            .or_else(|| line.strip_prefix(".colors")?.trim().strip_prefix('='))?;
        let digits = value.trim().trim_end_matches(',').strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    numbers.collect()
}

#[test]
#[ignore = "on demand: needs the published files, or the network to fetch them (set CLOISON_PUBLISHED to a folder)"]
fn published_files_are_imported_as_they_are() {
    let folder = list::folder();
    let (mut table, mut colored) = (String::new(), 0);
    let files = list::all();
    assert!(files.len() >= 30);
    for file in &files {
        let path = file.fetched(&folder);
        let text = std::fs::read_to_string(&path).expect("a published file");
        let imported = import(std::slice::from_ref(&path), &Options::default())
            .unwrap_or_else(|errors| panic!("{}: {errors:?}", file.path));
        let checked = imported
            .checked
            .unwrap_or_else(|errors| panic!("{}: {errors:?}\n{}", file.path, imported.text));
        common::assert_fits(&checked);
        let (pools, hypervisor) = imported.colors.split_at(imported.colors.len() - 1);
        for mask in plain_colors(&text).into_iter().filter(|mask| *mask != 0) {
            let wanted = mask & ((1 << checked.board.colors) - 1) & !hypervisor[0];
            assert!(
                pools.contains(&wanted),
                "{}: {mask:#x} is not in {pools:x?}",
                file.path
            );
            colored += 1;
        }
        table += &format!(
            "| {} {} | {} | {} | {} | {} | ok |\n",
            file.repository,
            file.path,
            imported.kinds[0].family(),
            checked.system.vms.len(),
            imported.taken,
            imported.list.len(),
        );
    }
    assert!(colored >= 10, "{colored} sets of colors");
    println!(
        "| file | system | VMs | items | in the list | check |\n| --- | --- | --- | --- | --- | --- |\n{table}"
    );
}
