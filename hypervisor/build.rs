//! Links the EL2 image with its own script.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
}
