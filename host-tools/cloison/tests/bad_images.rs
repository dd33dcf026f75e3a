//! The messages of `check`, `image` and `run` on guests' ELF files that cannot be loaded or
//! started: they are the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common {
    pub mod messages;
    pub mod snapshots;
}
#[allow(dead_code, reason = "the tests of cloison-config use the rest")]
#[path = "../../config/tests/executables/files.rs"]
mod files;

use cloison_engine::{configuration, installation};
use common::messages::render;
use files::{Header, file, good, load};
use std::path::Path;
use std::process::{Command, Stdio};

/// A system with RAM in two regions, RAM that is not executable, and a clock.
const SYSTEM: &str = "\
name = 'own'
[hypervisor]
colors = '15'
[[pool]]
name = 'sh'
kind = 'SH'
colors = '0-14'
[[vm]]
name = 'own'
cores = [0]
image = { file = 'guest.elf' }
region = [
  { name = 'ram', ipa = 0x4000_0000, size = '64K', pool = 'sh' },
  { name = 'ram2', ipa = 0x5000_0000, size = '8K', pool = 'sh' },
  { name = 'data', ipa = 0x6000_0000, size = '32M', pool = 'sh', execute = false },
  { name = 'clock', ipa = 0x0903_0000, size = '4K', device = 0x0901_0000 },
]
";

const CODE: &[u8] = b"some instruction";

/// Returns files with a name for what is wrong with them.
fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let and = |other: Header| file(0x4000_0000, &[load(5, 0x4000_0000, CODE, 16), other]);
    let with = |at: usize, byte: u8| {
        let mut data = good();
        data[at] = byte;
        data
    };
    vec![
        ("another-machine", with(18, 62)),
        ("32-bits", with(4, 1)),
        ("cut", good()[..80].to_vec()),
        (
            "entry-not-executable",
            file(0x4000_0000, &[load(6, 0x4000_0000, CODE, 16)]),
        ),
        (
            "entry-nowhere",
            file(0x4010_0000, &[load(5, 0x4000_0000, CODE, 16)]),
        ),
        (
            "entry-unaligned",
            file(0x4000_0001, &[load(5, 0x4000_0000, CODE, 16)]),
        ),
        (
            "entry-zeros",
            file(0x4000_0100, &[load(7, 0x4000_0000, CODE, 0x1000)]),
        ),
        (
            "entry-region",
            file(0x6000_0000, &[load(5, 0x6000_0000, CODE, 16)]),
        ),
        ("bss-beyond", and(load(6, 0x5000_1000, b"data", 16 << 20))),
        ("bss-endless", and(load(6, 0x5000_1000, b"data", 1 << 63))),
        ("overlap", and(load(6, 0x4000_0008, b"data", 4))),
        (
            "nowhere-and-device",
            file(
                0x4000_0000,
                &[
                    load(5, 0x4000_0000, CODE, 16),
                    load(6, 0x4800_0000, b"a", 1),
                    load(6, 0x903_0000, b"b", 1),
                ],
            ),
        ),
        (
            "interpreter",
            and(Header {
                kind: 3,
                ..load(4, 0, b"/lib/ld.so\0", 11)
            }),
        ),
        (
            "larger-than-reserved",
            and(load(6, 0x6000_0000, b"", 16 << 20)),
        ),
    ]
}

#[test]
fn every_command_says_the_same_of_a_broken_file() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::env::set_current_dir(scratch.path()).expect("it is there");
    std::fs::write("system.toml", SYSTEM).expect("a file");
    std::fs::write("guest.elf", good()).expect("a file");
    let loaded = configuration::load(Path::new("system.toml"), None);
    loaded.unwrap_or_else(|errors| panic!("a good file: {}", render(&errors)));
    let mut messages = String::new();
    for (name, data) in broken() {
        std::fs::write("guest.elf", data).expect("a file");
        let errors = configuration::load(Path::new("system.toml"), None).err();
        let errors = errors.unwrap_or_else(|| panic!("{name} was accepted"));
        messages += &format!("--- {name}\n{}\n", render(&errors));
        for command in ["check", "image", "run"] {
            let output = Command::new(env!("CARGO_BIN_EXE_cloison"))
                .args([command, "system.toml"])
                .env("NO_COLOR", "1")
                .stdin(Stdio::null())
                .output()
                .expect("the command starts");
            let flat = |text: &str| {
                let words = text
                    .split_whitespace()
                    .filter(|word| !["│", "|"].contains(word));
                words.collect::<Vec<_>>().join(" ")
            };
            let text = flat(&String::from_utf8_lossy(&output.stderr));
            assert!(!output.status.success(), "{command} {name}");
            for problem in errors
                .problems()
                .iter()
                .filter(|problem| problem.is_error())
            {
                assert!(
                    text.contains(&flat(problem.message())),
                    "{command} {name}: {text}"
                );
            }
        }
    }
    let settings = common::snapshots::settings(
        installation::root().join("host-tools/cloison/tests/snapshots"),
    );
    settings.bind(|| insta::assert_snapshot!("bad-images", messages));
}
