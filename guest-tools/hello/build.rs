//! Links the hello image with its own script.
// SPDX-License-Identifier: MIT OR Apache-2.0

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    println!("cargo:rerun-if-changed={script}");
    // Elsewhere it is checked and not linked.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "none") {
        println!("cargo:rustc-link-arg-bins=-T{script}");
    }
}
