//! Imports with the shipped boards, and without any installation.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![allow(dead_code, reason = "each test program uses a part")]

use cloison_config::memory::{self, Account};
use cloison_config::{BoardFile, Checked, Errors, Shipped, guest_map};
use cloison_formats::color::{Color, ColorSet};
use cloison_formats::guest_map::GuestMap;
use cloison_import::{Imported, Options, Target};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The directory of the shipped boards.
pub static CONFIGS: LazyLock<PathBuf> =
    LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs"));

static BOARDS: LazyLock<Vec<BoardFile>> = LazyLock::new(|| {
    let directory = CONFIGS.join("boards");
    cloison_config::files::available(&directory)
        .iter()
        .map(|name| directory.join(format!("{name}.toml")))
        .map(|path| BoardFile::load(&path, &CONFIGS).expect("a board"))
        .collect()
});

static MAPS: LazyLock<Vec<(String, GuestMap)>> =
    LazyLock::new(|| guest_map::all(&CONFIGS).expect("maps"));

/// Imports files. Nothing of a developer's machine, such as downloaded kernels, plays a role.
pub fn import(paths: &[PathBuf], options: &Options) -> Result<Imported, Errors> {
    let shipped = Shipped {
        configs: &CONFIGS,
        kept_kernel: &|_, _| None,
    };
    let path = options.base.join("imported.toml");
    let check = |text| cloison_config::load_text(&path, text, None, &shipped);
    let target = Target {
        boards: &BOARDS,
        default: "virt",
        maps: &MAPS,
        check: &check,
    };
    cloison_import::import(paths, options, &target)
}

/// Returns a file of the tests.
pub fn file(name: &str) -> PathBuf {
    Path::new("tests/files").join(name)
}

/// Checks that the hypervisor can hand out all memory, in whatever order: each color has the pages
/// that all its pools take from it, each of them evenly.
pub fn assert_fits(checked: &Checked) {
    let system = &checked.system;
    let image = memory::image_bytes(checked.images.iter());
    let account = Account::new(system, checked.board.colors, image);
    let demands = memory::demand(system);
    for color in (0..checked.board.colors).map(|color| Color(color as u8)) {
        let taken: u64 = system
            .pools
            .iter()
            .zip(&demands)
            .filter(|(pool, _)| pool.colors.contains(color))
            .map(|(pool, demand)| demand.pages().div_ceil(u64::from(pool.colors.len())))
            .sum();
        let room = account.pages_of(ColorSet::EMPTY.with(color));
        assert!(taken <= room, "color {}: {taken} pages of {room}", color.0);
    }
}
