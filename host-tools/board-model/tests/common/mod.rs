//! Code shared by the tests and the benchmark: the plugin, a guest without an operating system, and a board that boots
//! it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::qemu::{Machine, Outcome};
use cloison_engine::setup::{CoreLibrary, core_library};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// Returns the plugin, built once, as a user would build it.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| cloison_engine::parts::model_plugin().expect("the plugin builds"))
}

fn guest() -> &'static Path {
    static GUEST: OnceLock<TempDir> = OnceLock::new();
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| build_guest(GUEST.get_or_init(|| TempDir::new().expect("a directory")).path()))
}

fn build_guest(directory: &Path) -> PathBuf {
    let path = directory.join("guest.elf");
    let source = installation::root().join("host-tools/board-model/tests/guest/stream.rs");
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "--target", "aarch64-unknown-none-softfloat", "-C", "panic=abort"]);
    command.args([
        "-C",
        "link-arg=--image-base=0x40100000",
        "-C",
        "link-arg=-e_start",
        "-C",
        "relocation-model=static",
    ]);
    if let CoreLibrary::Private(sysroot) = core_library().expect("the AArch64 core library is there") {
        command.arg("--sysroot").arg(sysroot);
    }
    let status = command.arg(&source).arg("-o").arg(&path).status().expect("rustc runs");
    assert!(status.success(), "the guest builds");
    path
}

/// Writes the shipped board file with this replacement policy in all its caches. Returns its path.
pub fn board(directory: &Path, replacement: &str) -> PathBuf {
    let shipped = fs::read_to_string(installation::root().join("configs/models/zcu102.toml")).expect("board file");
    let path = directory.join("board.toml");
    let replacement = format!("replacement = \"{replacement}\"");
    let changed = shipped.replace("replacement = \"pseudo-random\"", &replacement);
    let changed = changed.replace("replacement = \"round-robin\"", &replacement);
    fs::write(&path, changed).expect("board file");
    path
}

/// Parameters of the guest `stream`.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Accesses of core 0 per pass.
    pub accesses: u64,
    /// Number of passes.
    pub passes: u64,
    /// Number of cores; all except core 0 are rivals.
    pub cores: u64,
    /// Bytes between two accesses.
    pub stride: u64,
    /// Refills after which an overflow interrupt is expected; 0 for none.
    pub overflow: u64,
    /// Run without a region of interest.
    pub outside: bool,
}

/// Boots the guest on a board with these plugin arguments, or without the plugin.
pub fn boot(directory: &Path, plugin_arguments: Option<&str>, what: Guest) -> Outcome {
    let memory = directory.join("ram");
    let virt = cloison_engine::configuration::emulation("virt").expect("QEMU emulates the board");
    let mut machine = Machine::new(&virt, guest()).limit(Duration::from_secs(60));
    machine = machine.args(["-accel", "tcg,thread=single", "-machine", "memory-backend=mem", "-object"]);
    machine = machine.arg(format!("memory-backend-file,id=mem,size=1G,share=on,mem-path={}", memory.display()));
    let values = [what.accesses, what.passes, what.cores, what.stride, what.overflow, u64::from(what.outside)];
    for (at, value) in values.into_iter().enumerate() {
        machine = machine.arg("-device");
        machine = machine.arg(format!("loader,addr={:#x},data={value:#x},data-len=8", 0x4300_0000 + at * 8));
    }
    if let Some(arguments) = plugin_arguments {
        machine = machine.arg("-plugin").arg(format!("{},{arguments}", plugin().display()));
    }
    machine.run().expect("QEMU runs")
}
