//! Code shared by the tests and the benchmark: the plugin, guests without an operating system, and
//! a board that boots them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::qemu::Machine;
use cloison_engine::setup::{CoreLibrary, core_library};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns the plugin, built once, as a user would build it.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| cloison_engine::parts::model_plugin().expect("the plugin builds"))
}

/// Builds the guest with this name in `guest`. Returns its path in `directory`.
pub fn build_guest(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name).with_extension("elf");
    let source = installation::root()
        .join("tests/tests/model/guest")
        .join(name)
        .with_extension("rs");
    let mut command = Command::new("rustc");
    command.args([
        "--edition",
        "2024",
        "--target",
        "aarch64-unknown-none-softfloat",
        "-C",
        "panic=abort",
    ]);
    command.args([
        "-C",
        "link-arg=--image-base=0x40100000",
        "-C",
        "link-arg=-e_start",
        "-C",
        "relocation-model=static",
    ]);
    if let CoreLibrary::Private(sysroot) =
        core_library().expect("the AArch64 core library is there")
    {
        command.arg("--sysroot").arg(sysroot);
    }
    let status = command
        .arg(&source)
        .arg("-o")
        .arg(&path)
        .status()
        .expect("rustc runs");
    assert!(status.success(), "the guest builds");
    path
}

/// Changes to the shipped board's file that turn its mechanisms off. Cores wait for each line, are
/// not coherent, and translate addresses for nothing; their L2 has no limits.
pub const SIMPLE: [(&str, &str); 10] = [
    ("data_lines = 5", "data_lines = 0"),
    ("instruction_lines = 1", "instruction_lines = 0"),
    ("l1_lines = 4", "l1_lines = 0"),
    ("load_linefills = 3", "load_linefills = 0"),
    ("load_to_use = 3", "load_to_use = 1"),
    ("snoop = 26", "snoop = 0"),
    ("micro_entries = 10", "micro_entries = 0"),
    ("lookup_cycles = 1", "lookup_cycles = 0"),
    ("line_cycles = 4", "line_cycles = 0"),
    ("outstanding_writes = 16", "outstanding_writes = 0"),
];

/// Writes the shipped board file with this replacement policy in all its caches, and cores that
/// wait for each line. Returns its path.
pub fn board(directory: &Path, replacement: &str) -> PathBuf {
    let shipped = fs::read_to_string(installation::root().join("configs/models/zcu102.toml"))
        .expect("board file");
    let path = directory.join("board.toml");
    let replacement = format!("replacement = \"{replacement}\"");
    let changed = shipped.replace("replacement = \"lru\"", &replacement);
    let changed = changed.replace("replacement = \"round-robin\"", &replacement);
    let simple = |text: String, (on, off): &(&str, &str)| {
        assert!(text.contains(on), "the shipped board has {on}");
        text.replace(on, off)
    };
    fs::write(&path, SIMPLE.iter().fold(changed, simple)).expect("board file");
    path
}

/// Returns a board with this guest, its parameters, and these plugin arguments or no plugin.
pub fn machine(
    directory: &Path,
    plugin_arguments: Option<&str>,
    guest: &Path,
    values: &[u64],
) -> Machine {
    let memory = directory.join("ram");
    let virt = cloison_engine::configuration::emulation("virt").expect("QEMU emulates the board");
    let mut machine = Machine::new(&virt, guest).limit(Duration::from_secs(60));
    machine = machine.args([
        "-accel",
        "tcg,thread=single",
        "-machine",
        "memory-backend=mem",
        "-object",
    ]);
    machine = machine.arg(format!(
        "memory-backend-file,id=mem,size=1G,share=on,mem-path={}",
        memory.display()
    ));
    for (at, value) in values.iter().enumerate() {
        machine = machine.arg("-device");
        machine = machine.arg(format!(
            "loader,addr={:#x},data={value:#x},data-len=8",
            0x4300_0000 + at * 8
        ));
    }
    if let Some(arguments) = plugin_arguments {
        machine = machine
            .arg("-plugin")
            .arg(format!("{},{arguments}", plugin().display()));
    }
    machine
}
