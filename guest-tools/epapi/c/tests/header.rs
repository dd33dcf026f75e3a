//! The header agrees with the library: constants, functions, names without prefix.
//!
//! With `UPDATE_DOCS=1` in the environment, what is generated in the header is written instead of
//! compared.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use cloison_epapi::set::state;
use cloison_epapi::tables::Verdict;
use cloison_epapi::{Error, PAPI_VER_CURRENT, preset};
use epapi::events::EventInfo;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The functions that a text has, by what comes before their names.
fn functions(text: &str, before: &[&str]) -> BTreeSet<String> {
    let names = |before: &&str| {
        text.split(*before)
            .skip(1)
            .map(|rest| {
                rest.chars()
                    .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                    .collect()
            })
            .filter(|name: &String| name.starts_with("ePAPI_") && !name.ends_with("_t"))
            .collect::<Vec<_>>()
    };
    before.iter().flat_map(names).collect()
}

fn declared(header: &str) -> BTreeSet<String> {
    functions(header, &["\nint ", "\nlong long ", "\nconst char *"])
}

fn generated(header: &str) -> String {
    let mut errors = String::new();
    for (error, name) in Error::ALL {
        writeln!(errors, "#define {name} ({})", error.code()).unwrap();
    }
    let mut presets = String::new();
    for known in preset::ALL {
        let number = known.code ^ preset::PAPI_PRESET_MASK;
        writeln!(
            presets,
            "#define {} (PAPI_PRESET_MASK | {number:#x}) /* {} */",
            known.name, known.meaning
        )
        .unwrap();
        writeln!(presets, "#define e{0} {0}", known.name).unwrap();
    }
    let mut names = String::new();
    for name in declared(header) {
        writeln!(names, "#define {} {name}", &name[1..]).unwrap();
    }
    let mut text = header.to_owned();
    for (part, lines) in [("errors", errors), ("presets", presets), ("names", names)] {
        let (begin, end) = (
            format!("/* {part}: begin */\n"),
            format!("/* {part}: end */"),
        );
        let (before, rest) = text.split_once(&begin).expect("the part begins");
        let (_, after) = rest.split_once(&end).expect("the part ends");
        text = format!("{before}{begin}{lines}{end}{after}");
    }
    text
}

#[test]
fn generated_parts_are_up_to_date() {
    let path = directory("include/epapi.h");
    let header = fs::read_to_string(&path).expect("the header exists");
    let text = generated(&header);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).expect("the header can be written");
    } else {
        assert!(
            header == text,
            "include/epapi.h: run this test with UPDATE_DOCS=1"
        );
    }
}

#[test]
fn every_exported_function_is_declared_and_no_other() {
    let header = fs::read_to_string(directory("include/epapi.h")).expect("the header exists");
    let mut exported = BTreeSet::new();
    for file in fs::read_dir(directory("src")).expect("there are sources") {
        let text =
            fs::read_to_string(file.expect("it can be read").path()).expect("it can be read");
        exported.extend(functions(&text, &["extern \"C\" fn ", "\n    "]));
    }
    assert_eq!(declared(&header), exported);
    assert!(exported.len() > 40, "{exported:?}");
}

/// Returns the number that the header gives a constant.
fn number(header: &str, name: &str) -> i64 {
    let line = header
        .lines()
        .find_map(|line| line.strip_prefix(&format!("#define {name} ")))
        .expect(name);
    let line = line.trim_matches(['(', ')']).trim_start_matches("int)");
    let digits = line.strip_prefix("0x");
    digits
        .map_or_else(|| line.parse(), |digits| i64::from_str_radix(digits, 16))
        .expect(name)
}

#[test]
fn the_other_constants_are_those_of_the_library() {
    let header = fs::read_to_string(directory("include/epapi.h")).expect("the header exists");
    for (name, value) in [
        ("PAPI_VER_CURRENT", PAPI_VER_CURRENT),
        ("PAPI_NULL", preset::PAPI_NULL),
        ("PAPI_STOPPED", state::PAPI_STOPPED),
        ("PAPI_RUNNING", state::PAPI_RUNNING),
        ("PAPI_OVERFLOWING", state::PAPI_OVERFLOWING),
        ("PAPI_MULTIPLEXING", state::PAPI_MULTIPLEXING),
        ("PAPI_NATIVE_MASK", preset::PAPI_NATIVE_MASK),
        ("PAPI_PRESET_MASK", preset::PAPI_PRESET_MASK),
    ] {
        assert_eq!(number(&header, name) as i32, value, "{name}");
    }
    let (_, verdicts) = header
        .split_once("ePAPI_TRUSTED = 1,")
        .expect("the verdicts");
    let count = 1 + verdicts
        .split('}')
        .next()
        .expect("the end")
        .matches("ePAPI_")
        .count();
    assert_eq!(count, Verdict::NoEvent as usize);
    assert_eq!(size_of::<EventInfo>(), (5 + 12 + 12) * 4 + 2 * 128);
}
