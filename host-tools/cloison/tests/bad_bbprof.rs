//! Subjects that `cloison bbprof` refuses to profile, and its messages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns what the command prints about its error, on one line. Nothing may be built or booted for
/// it.
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_cloison"))
        .arg("bbprof")
        .args(arguments)
        .current_dir(installation::root())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{arguments:?}: {text}"
    );
    text.replace('│', " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns an ELF file with one segment at the start of the RAM.
fn elf(machine: u8) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0, machine, 0, 1, 0, 0, 0]);
    file.extend(
        [0x4000_0000_u64, 64, 0]
            .iter()
            .flat_map(|long| long.to_le_bytes()),
    );
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(
        [120_u64, 0x4000_0000, 0x4000_0000, 4, 4, 4096]
            .iter()
            .flat_map(|long| long.to_le_bytes()),
    );
    file.extend(b"code");
    file
}

/// Writes a system whose VM runs a file with these contents, and returns its path.
fn system(directory: &Path, guest: &[u8], load: &str) -> String {
    std::fs::write(directory.join("guest.elf"), guest).expect("a file");
    let text = format!(
        "name = 'own'\n[hypervisor]\ncolors = '15'\n[[pool]]\nname = 'sh'\nkind = 'SH'\n\
         colors = '0-14'\n\
         [[vm]]\nname = 'own'\ncores = [0]\nimage = {{ file = 'guest.elf'{load} }}\n\
         services = ['hem']\n\
         [[vm.region]]\nname = 'ram'\nipa = 0x4000_0000\nsize = '1M'\npool = 'sh'\n"
    );
    let path = directory.join("own.toml");
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn what_cannot_be_profiled_is_refused_with_the_reason() {
    let system_of = "configs/pvt-sh.toml";
    says(
        &refused(&[system_of, "--vm", "stairs"]),
        &[
            "configs/pvt-sh.toml has no VM `stairs`",
            "did you mean `staircase`? VMs: staircase, interf-1",
        ],
    );
    says(
        &refused(&["configs/linux-cloud.toml", "--vm", "linux"]),
        &["VM `linux` runs Linux", "tools = [\"bbprof\"]"],
    );
    says(
        &refused(&[system_of, "--vm", "staircase", "-f", "hx"]),
        &[
            "`x` is no kind of pages",
            "t, r, b, h, s, a and A are kinds",
        ],
    );
    says(
        &refused(&[system_of, "--vm", "staircase", "--pages", "rom:0-3"]),
        &["VM `staircase` has no region `rom`", "regions: ram"],
    );
    says(
        &refused(&[system_of, "--vm", "staircase", "--pages", "ram:3-1"]),
        &["write a region and its pages"],
    );
    says(
        &refused(&[system_of, "--vm", "staircase", "--covered", "2"]),
        &["write a number from 0 to 1"],
    );
    says(
        &refused(&["configs/nowhere.toml", "--vm", "staircase"]),
        &["cannot read configs/nowhere.toml"],
    );
}

#[test]
fn a_guest_without_a_readable_elf_file_is_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let raw = system(scratch.path(), b"raw image", ", load = 0x4000_0000");
    says(
        &refused(&[&raw, "--vm", "own"]),
        &[
            "VM `own`: ",
            "guest.elf is no ELF file, so that nothing says what its pages are for",
            "name the ELF file",
        ],
    );
    let cut = system(scratch.path(), &elf(183)[..100], "");
    says(
        &refused(&[&cut, "--vm", "own"]),
        &["guest.elf cannot be loaded: its program headers are not in the file"],
    );
    let other = system(scratch.path(), &elf(62), "");
    says(
        &refused(&[&other, "--vm", "own"]),
        &["guest.elf cannot be loaded: it is for x86-64, not for AArch64"],
    );
    let good = system(scratch.path(), &elf(183), "");
    says(
        &refused(&[&good, "--vm", "own", "-f", "ra"]),
        &[
            "VM `own` has no page that --flags ra and --pages choose",
            "by letter: t (text) 1, h (heap) 255",
        ],
    );
}
