//! Each mistake in `experiment --program` has its message, and what to do.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_lab::experiment::shows::Form;
use cloison_lab::experiment::{file_of, programs, spec};
use std::path::Path;

/// Returns a file of an ELF header for this machine, and one program header of this type.
fn elf(machine: u16, kind: u32) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // ET_EXEC, the machine and EV_CURRENT; an entry; the program headers' offset; none of sections.
    file.extend([2_u16, machine].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend(
        [0x40_0000_u64, 64, 0]
            .iter()
            .flat_map(|it| it.to_le_bytes()),
    );
    // Flags, and the sizes and numbers of headers.
    file.extend(0_u32.to_le_bytes());
    file.extend(
        [64_u16, 56, 1, 64, 0, 0]
            .iter()
            .flat_map(|it| it.to_le_bytes()),
    );
    // The type, readable, and an empty extent.
    file.extend([kind, 4].iter().flat_map(|word| word.to_le_bytes()));
    file.extend([0_u8; 48]);
    file
}

#[test]
fn every_wrong_program_has_its_message() {
    const AARCH64: u16 = 183;
    const X86_64: u16 = 62;
    const LOADED: u32 = 1;
    const INTERPRETER: u32 = 3;
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.path().join(name), bytes).expect("a file");
    };
    write("text", b"hello");
    write("host", &elf(X86_64, LOADED));
    write("dynamic", &elf(AARCH64, INTERPRETER));
    write("stripped", &elf(AARCH64, LOADED));
    write("it's", &elf(AARCH64, LOADED));
    let shipped = spec::load(&file_of("rank-sizes"), Form::Full).expect("the shipped experiment");
    let links = directory.path().join("links");
    let mut all = String::new();
    for texts in [
        &["mine=DIR/none"][..],
        &["mine=DIR"],
        &["mine=DIR/text"],
        &["mine=DIR/host"],
        &["mine=DIR/dynamic"],
        &["mine=DIR/stripped"],
        &["mine=DIR/stripped@0xno"],
        &["mine=DIR/it's"],
        &["mine=DIR/stripped@0x400000,it's"],
        &["mine=DIR/stripped@0x400000,--"],
        &["mine=DIR/stripped@0x400000,@DIR/none"],
        &["Mine=DIR/stripped@0x400000"],
        &["mine=DIR/stripped@0x400000", "mine=DIR/stripped@0x400000"],
        &["matmull"],
    ] {
        let here = directory.path().display().to_string();
        let given: Vec<String> = texts
            .iter()
            .map(|text| text.replace("DIR", &here))
            .collect();
        let report = programs::choose(&given, &shipped.programs, &links)
            .expect_err(&format!("{texts:?} is accepted"));
        let causes: Vec<String> = report.chain().map(ToString::to_string).collect();
        let help = help_of(report.as_ref()).expect("every error says what to do");
        let said = format!("{}\n  help: {help}\n", causes.join(": "));
        all += &format!(
            "--program {}\n  {}",
            texts.join(" "),
            said.replace(&here, "DIR")
        );
    }
    insta::assert_snapshot!(all);
    assert!(
        !Path::new(&links).join("mine.default.1.none").exists(),
        "nothing is linked that is not there"
    );
}

/// Returns the help of an error, or of what caused it.
fn help_of(error: &dyn miette::Diagnostic) -> Option<String> {
    let own = error.help().map(|help| help.to_string());
    own.or_else(|| help_of(error.diagnostic_source()?))
}
