//! Tells the linker where the guests' linker script is.
// SPDX-License-Identifier: MIT OR Apache-2.0

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-link-search={here}");
    println!("cargo::rerun-if-changed=guest.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
