//! libFuzzer on the target that the variable `CLOISON_TARGET` names; `cargo xtask fuzz parsers` runs it.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

use cloison_parsers::{Target, targets};
use libfuzzer_sys::fuzz_target;
use std::panic;
use std::process::exit;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("CLOISON_TARGET").unwrap_or_default();
    targets::find(&name).unwrap_or_else(|| {
        eprintln!("CLOISON_TARGET names no target: `{name}`");
        exit(2)
    })
});

fuzz_target!(
    // libFuzzer's own hook ends the process also where a panic is caught. One that is not caught ends
    // it all the same.
    init: panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
    |data: &[u8]| {
        (TARGET.check)(data);
    }
);
