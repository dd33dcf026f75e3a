//! Links the puppet with the guests' linker script, which the runtime puts on the search path.
// SPDX-License-Identifier: MIT OR Apache-2.0

fn main() {
    // On other targets the puppet is checked but not linked.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tguest.ld");
        println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    }
    println!("cargo::rerun-if-changed=../../guest-tools/runtime/guest.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
