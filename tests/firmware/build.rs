//! Links the firmware with its linker script.
// SPDX-License-Identifier: MIT OR Apache-2.0

fn main() {
    // On other targets the firmware is checked but not linked.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-T{here}/firmware.ld");
        println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    }
    println!("cargo::rerun-if-changed=firmware.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
