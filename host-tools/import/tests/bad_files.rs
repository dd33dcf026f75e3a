//! Files with mistakes: each is an error with its line, soon and without much memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;

use cloison_config::Errors;
use cloison_import::Options;
use common::{file, import};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an import may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(10);

/// Imports a text; returns the errors, and how long that took.
fn import_text(folder: &Path, name: &str, text: &[u8]) -> Result<String, Errors> {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    let options = Options {
        base: folder.to_path_buf(),
        ..Options::default()
    };
    let started = Instant::now();
    let result = import(&[path], &options);
    assert!(
        started.elapsed() < LONGEST,
        "{name}: {:?}",
        started.elapsed()
    );
    result.map(|imported| imported.text)
}

/// Checks that each text is an error on this line with this in its message.
#[track_caller]
fn refuse(name: &str, cases: &[(&str, usize, &str)]) {
    let folder = tempfile::tempdir().expect("a directory");
    for (text, line, message) in cases {
        let start: String = text.chars().take(300).collect();
        let Err(errors) = import_text(folder.path(), name, text.as_bytes()) else {
            panic!("this is taken: {start}");
        };
        let problem = &errors.problems()[0];
        let (found, _) = problem.line_and_column();
        let said = format!("{problem}; {}", problem.fix().unwrap_or_default());
        assert!(
            said.contains(message),
            "{start}\n{said}\nwithout: {message}"
        );
        assert_eq!(found, *line, "{start}\n{said}");
        assert!(problem.fix().is_some(), "{said}");
        assert!(
            problem.file().contains(name) || *line == 1,
            "{}",
            problem.file()
        );
    }
}

/// Returns a configuration of Bao with these lines before it and this field in its VM.
fn bao(before: &str, field: &str) -> String {
    format!(
        "{before}\nstruct config c = {{ .vmlist = {{ {{ {field} .platform = {{ .cpu_num = 1, .regions = {{ {{ .base = 0x40000000, .size = 0x100000 }} }} }} }} }} }};\n"
    )
}

#[test]
fn bad_configurations_of_bao() {
    let deep = format!("struct config c = {{ .vmlist = {}", "{".repeat(5000));
    let laughs: String = (0..40)
        .map(|n| format!("#define A{} A{n} A{n} A{n} A{n}\n", n + 1))
        .collect();
    let nested = "(".repeat(4000);
    let many_if = "#if 1\n".repeat(100);
    let cases = [
        (
            bao("", ".colors = ONE_QUARTER,"),
            2,
            "`ONE_QUARTER` has no value",
        ),
        (bao("", ".colors = 1 / 0,"), 2, "division by zero"),
        (bao("", ".colors = 7 % (3 - 3),"), 2, "division by zero"),
        (
            bao("", ".colors = 1 << 64,"),
            2,
            "does not fit into 64 bits",
        ),
        (
            bao("", ".colors = 0xffffffffffffffff + 1,"),
            2,
            "does not fit into 64 bits",
        ),
        (
            bao("", ".colors = 0x1ffffffffffffffff,"),
            2,
            "is not a number of 64 bits",
        ),
        (bao("", ".colors = 0 - 1,"), 2, "is negative"),
        (bao("", ".colors = (1,"), 2, ""),
        (bao("", ".colors = ,"), 2, "a value is missing"),
        (bao("", ".colors 3,"), 2, "`=` is missing"),
        (bao("", ". = 3,"), 2, "without a field's name"),
        (bao("", ".colors = \"red\","), 2, "is not a number"),
        (bao("", ".colors = \"red,"), 2, "without an end on its line"),
        (
            bao("", ".entry = { 1, 2 },"),
            2,
            "a list in the place of a number",
        ),
        (bao("#if 1", ""), 1, "a condition without an end"),
        (bao("#endif", ""), 1, "#endif without #if"),
        (bao("#if", ""), 1, "a condition without an expression"),
        (bao("#if 1 / 0\n#endif", ""), 1, "division by zero"),
        (bao("#define", ""), 1, "#define without a name"),
        (bao("#define F(a", ""), 1, "parameters without an end"),
        (bao("#include", ""), 1, "#include without a relative path"),
        (
            bao("#include \"/etc/passwd\"", ""),
            1,
            "#include without a relative path",
        ),
        (bao("#error no board", ""), 1, "the file itself refuses"),
        (bao("/* never closed", ""), 1, "a comment without an end"),
        (bao(&laughs, ".colors = A40,"), 42, "macros make more than"),
        (bao(&many_if, ""), 49, "conditions in each other"),
        (bao("", &format!(".colors = {nested}1,")), 2, ""),
        (deep, 1, "too deep in each other"),
        (
            "struct config c = { .vmlist = { [0 ... 1000000000] = { .entry = 1 } } };".to_owned(),
            1,
            "beyond any table's end",
        ),
        (
            "struct config c = { .vmlist = { [3 ... 1] = { .entry = 1 } } };".to_owned(),
            1,
            "ends before it starts",
        ),
        (
            "struct config c = { .vmlist = { { .entry = 1 } } };".to_owned(),
            1,
            "no .platform",
        ),
        (
            "struct config c = { .vmlist = 5 };".to_owned(),
            1,
            "is not a list",
        ),
        (
            "struct config c = { .vmlist = { } };".to_owned(),
            1,
            "it describes no VM",
        ),
        (
            "VM_IMAGE(a, b)\nstruct vm_config v = { .entry = 1 };".to_owned(),
            1,
            "no object has a .vmlist",
        ),
        (
            "#include \"config.c\"\nstruct config c = { .vmlist = { } };".to_owned(),
            1,
            "files include each other",
        ),
    ];
    let cases: Vec<(&str, usize, &str)> = cases
        .iter()
        .map(|(text, line, message)| (text.as_str(), *line, *message))
        .collect();
    refuse("config.c", &cases);
}

/// Returns a cell with this in it.
fn cell(field: &str) -> String {
    format!(
        "#include <jailhouse/cell-config.h>\nstruct {{ }} config = {{ .cell = {{ .name = \"a\" }}, .cpus = {{ 1 }},\n{field}\n}};\n"
    )
}

#[test]
fn bad_cells_of_jailhouse() {
    let region = |fields: &str| cell(&format!(".mem_regions = {{ {{ {fields} }} }},"));
    let long: String = (0..5000).map(|_| "{ .size = 1 },").collect();
    let cases = [
        (cell(".mem_regions = {},"), 2, "it has no memory"),
        (cell(""), 2, "it has no memory"),
        (cell(".cpus = { 0 },"), 2, "no core is left"),
        (cell(".cpus = { UNKNOWN },"), 3, "`UNKNOWN` has no value"),
        (cell(".cpus = { 1 << 70 },"), 3, "does not fit into 64 bits"),
        (
            region(".size = 0x10000, .colors = NO, .flags = JAILHOUSE_MEM_COLORED"),
            3,
            "`NO` has no value",
        ),
        (region(".size = -4096"), 3, "is negative"),
        (region(".size = SIZE"), 3, "`SIZE` has no value"),
        (region(".size = 4096 / (2 - 2)"), 3, "division by zero"),
        (
            region(".size = {1, 2}"),
            3,
            "a list in the place of a number",
        ),
        (
            region(".virt_start = 0x10000000000000000, .size = 1"),
            3,
            "is not a number of 64 bits",
        ),
        (region(".size = 1"), 2, "it has no memory"),
        (
            cell(&format!(".mem_regions = {{ {long} }},")),
            3,
            "more than 4096 entries",
        ),
        (
            cell(".mem_regions = { [4096] = { .size = 1 } },"),
            3,
            "beyond any table's end",
        ),
        (
            cell(".cache_regions = { { .start = 60, .size = 8 } },"),
            3,
            "colors 60",
        ),
        (
            cell(".cache_regions = { { .start = 64, .size = 0 } },"),
            3,
            "colors 64",
        ),
        (
            cell(".irqchips = { { .pin_bitmap = { X } } },"),
            3,
            "`X` has no value",
        ),
        (cell(".mem_regions = { {"), 4, "a value is missing here"),
        (cell(".mem_regions = { { .size = 1 } } }, }"), 2, ""),
        (
            "#include <jailhouse/cell-config.h>\nint a;\n".to_owned(),
            2,
            "no object is a cell",
        ),
        (
            "#include <jailhouse/types.h>\n".to_owned(),
            1,
            "jailhouse/types.h",
        ),
        (
            "struct jailhouse_system s = { .header = { } };\n".to_owned(),
            1,
            "no .root_cell",
        ),
    ];
    let cases: Vec<(&str, usize, &str)> = cases
        .iter()
        .map(|(text, line, message)| (text.as_str(), *line, *message))
        .collect();
    refuse("cell.c", &cases);
}

/// Returns a device tree with this in its domain.
fn domain(field: &str) -> String {
    format!(
        "/dts-v1/;\n/ {{ chosen {{ domU1 {{ compatible = \"xen,domain\";\n{field}\n}}; }}; }};\n"
    )
}

#[test]
fn bad_device_trees() {
    let deep = format!("/dts-v1/;\n/ {{ {}", "a { ".repeat(5000));
    let cases = [
        (domain(""), 2, "it has no memory"),
        (domain("memory = <0 0>;"), 2, "it has no memory"),
        (
            domain("memory = <0 0x8000>; cpus = <0>;"),
            2,
            "no core is left",
        ),
        (
            domain("memory = <0 0x8000>; llc-colors = \"3-1\";"),
            3,
            "3-1",
        ),
        (
            domain("memory = <0 0x8000>; llc-colors = \"0-99\";"),
            3,
            "color 64",
        ),
        (
            domain("memory = <0 0x8000>; llc-colors = \"red\";"),
            3,
            "red",
        ),
        (
            domain("memory = <0 0x8000>; llc-colors = \"0-99999999999\";"),
            3,
            "",
        ),
        (domain("memory = <0 0x8000"), 4, "is not a number"),
        (domain("memory = <0 0x8000>"), 4, "`;` is missing"),
        (
            domain("memory = <0 0x1ffffffff>;"),
            3,
            "does not fit into a cell",
        ),
        (domain("memory = <(1 / 0)>;"), 3, "division by zero"),
        (domain("memory = <(1 +)>;"), 3, ""),
        (
            domain("memory = /bits/ 5 <1>;"),
            3,
            "/bits/ is 8, 16, 32 or 64",
        ),
        (domain("memory = 5;"), 3, "a value is text in quotes"),
        (domain("memory = ;"), 3, "a value is missing"),
        (domain("a = [0g];"), 3, "pairs of hexadecimal digits"),
        (domain("a = \"open;"), 3, "without an end on its line"),
        (domain("= 5;"), 3, "a name is expected"),
        (domain("/* "), 3, "a comment without an end"),
        (
            domain("#include \"/etc/passwd\""),
            3,
            "#include without a relative path",
        ),
        (
            domain("#include \"xen.dts\""),
            3,
            "files include each other",
        ),
        (deep, 2, "too deep in each other"),
        ("/dts-v1/;\n/ { };\n".to_owned(), 1, "no node /chosen"),
        (
            "/dts-v1/;\n/ { chosen { }; };\n".to_owned(),
            2,
            "neither a domain",
        ),
        ("/dts-v1/;\nhello\n".to_owned(), 2, "is expected here"),
        ("/dts-v1/;\n/ { chosen {".to_owned(), 2, "without an end"),
        (
            "/dts-v1/;\n/ { passthrough { }; };".to_owned(),
            1,
            "it describes no VM",
        ),
    ];
    let cases: Vec<(&str, usize, &str)> = cases
        .iter()
        .map(|(text, line, message)| (text.as_str(), *line, *message))
        .collect();
    refuse("xen.dts", &cases);
}

#[test]
fn bad_configurations_of_image_builder() {
    let one = |line: &str| format!("NUM_DOMUS=1\nDOMU_KERNEL[0]=Image\n{line}\n");
    let endless = format!("NUM_DOMUS=1\nDOMU_CMD[0]=\"{}", "a\n".repeat(40_000));
    let doubling: String = (0..40).map(|_| "XEN_A=\"$XEN_A$XEN_A.\"\n").collect();
    let cases = [
        ("NUM_DOMUS=1\n".to_owned(), 1, "has no DOMU_KERNEL[0]"),
        ("NUM_DOMUS=0\n".to_owned(), 1, "neither a domain nor a dom0"),
        (
            "NUM_DOMUS=two\nDOMU_KERNEL[0]=a".to_owned(),
            1,
            "`two` is not a number",
        ),
        (
            "NUM_DOMUS=99999999999\n".to_owned(),
            1,
            "99999999999 domains",
        ),
        (
            "NUM_DOMUS=99999999999999999999\n".to_owned(),
            1,
            "is not a number",
        ),
        ("NUM_DOMUS=-1\n".to_owned(), 1, "is not a number"),
        ("NUM_DOMUS=0x\n".to_owned(), 1, "is not a number"),
        (one("DOMU_MEM[0]=lots"), 3, "`lots` is not a number"),
        (one("DOMU_MEM[0]=0"), 2, "it has no memory"),
        (one("DOMU_VCPUS[0]=-1"), 3, "is not a number"),
        (one("DOMU_VCPUS[0]=0"), 2, "no core is left"),
        (one("DOMU_COLORS[0]=red"), 3, "red"),
        (one("DOMU_COLORS[0]=\"5-2\""), 3, "5-2"),
        (one("DOMU_COLORS[0]=\"64\""), 3, "color 64"),
        (
            one("DOMU_STATIC_MEM[0]=\"0x1000\""),
            3,
            "not pairs of address and size",
        ),
        (
            one("DOMU_STATIC_MEM[0]=\"0x1000 big\""),
            3,
            "not pairs of address and size",
        ),
        (one("DOMU_CMD[0]=\"$(uname -r)\""), 3, "no shell runs here"),
        (one("DOMU_CMD[0]=`date`"), 3, "no shell runs here"),
        (one("XEN_COLORS=\"a\""), 3, "a"),
        (one("XEN_CMD=\"dom0-llc-colors=9-1\""), 3, "9-1"),
        (one("DOMU_VCPU_HARD_AFFINITY[0,0]=\"x\""), 3, "x"),
        (endless, 2, "a quotation without an end"),
        (
            format!("NUM_DOMUS=1\n{doubling}"),
            18,
            "a value that is too long",
        ),
    ];
    let cases: Vec<(&str, usize, &str)> = cases
        .iter()
        .map(|(text, line, message)| (text.as_str(), *line, *message))
        .collect();
    refuse("config", &cases);
}

#[test]
fn bad_zones_of_hvisor() {
    let zone = |fields: &str| {
        format!(
            "{{ \"zone_id\": 1,\n\"cpus\": [1],\n\"memory_regions\": [ {{ \"type\": \"ram\", \"virtual_start\": \"0x40000000\", \"size\": \"0x100000\" }} ],\n{fields}\n\"name\": \"a\" }}"
        )
    };
    let deep = format!("{{ \"zone_id\": {}", "[".repeat(100_000));
    let cases = [
        (zone("\"kernel_args\": [], "), 4, "is not a text"),
        ("{ \"zone_id\": 1, \"cpus\": 5 }".to_owned(), 1, "is not a list"),
        ("{ \"zone_id\": 1,\n\"cpus\": [64] }".to_owned(), 2, "is not cores' numbers"),
        ("{ \"zone_id\": 1,\n\"cpus\": [-1] }".to_owned(), 2, "is not a number"),
        ("{ \"zone_id\": 1,\n\"cpus\": [\"one\"] }".to_owned(), 2, "is not a number"),
        ("{ \"zone_id\": 1,\n\"cpus\": [[]] }".to_owned(), 2, "is not a number"),
        ("{ \"zone_id\": \"first\" }".to_owned(), 1, "is not a number"),
        ("{ \"zone_id\": 1,\n\"memory_regions\": [ 5 ] }".to_owned(), 2, "a list of objects"),
        ("{ \"zone_id\": 1,\n\"memory_regions\": 5 }".to_owned(), 2, "is not a list"),
        ("{ \"zone_id\": 1,\n\"memory_regions\": [ { \"type\": \"rom\" } ] }".to_owned(), 2, "\"ram\", \"io\" or \"virtio\""),
        ("{ \"zone_id\": 1,\n\"memory_regions\": [ { \"type\": 7 } ] }".to_owned(), 2, "is not a text"),
        ("{ \"zone_id\": 1,\n\"memory_regions\": [ { \"type\": \"ram\", \"size\": \"big\" } ] }".to_owned(), 2, "is not a number"),
        ("{ \"zone_id\": 1,\n\"memory_regions\": [ { \"type\": \"ram\", \"size\": \"0x1ffffffffffffffff\" } ] }".to_owned(), 2, "is not a number"),
        ("{ \"zone_id\": 1, \"cpus\": [1] }".to_owned(), 1, "it has no memory"),
        ("{ \"zone_id\": 1, \"memory_regions\": [] }".to_owned(), 1, "no core is left"),
        ("{ \"arch\": \"riscv64\",\n \"zone_id\": 1 }".to_owned(), 1, "the zone is for riscv64"),
        ("{ \"zones\": [] }".to_owned(), 1, "it describes no VM"),
        ("[ \"zones\" ]".to_owned(), 1, "a zone is an object"),
        ("{ \"zone_id\": 1".to_owned(), 1, "not JSON"),
        ("{ \"zone_id\" 1 }".to_owned(), 1, ""),
        ("{ \"zone_id\": 1 } }".to_owned(), 1, "not JSON"),
        (zone("\"interrupts\": [1e9], "), 4, "is not a number"),
        (zone("\"kernel_filepath\": 4, "), 4, "is not a text"),
        (zone("\"arch_config\": { \"gicd_base\": \"here\" }, "), 4, "is not a number"),
        (deep, 1, "values in each other"),
    ];
    let cases: Vec<(&str, usize, &str)> = cases
        .iter()
        .map(|(text, line, message)| (text.as_str(), *line, *message))
        .collect();
    refuse("zone.json", &cases);
}

#[test]
fn files_of_other_kinds_are_named_as_what_they_are() {
    let cases: [(&[u8], &str); 7] = [
        (b"", "nothing that can be imported"),
        (b"hello", "nothing that can be imported"),
        (
            b"name = 'a'\n[[vm]]\nname = 'b'\n",
            "a configuration of Cloison already",
        ),
        (b"pub const ROOT_ZONE_CPUS: u64 = 3;\n", "hvisor's board.rs"),
        (b"JHCELL\0\0\x0e", "a compiled cell"),
        (b"kernel = \"a\"\nvcpus = 2\n", "`xl`"),
        (b"\xd0\x0d\xfe\xed\0\0", "not a whole device tree"),
    ];
    let folder = tempfile::tempdir().expect("a directory");
    for (bytes, message) in cases {
        let errors = import_text(folder.path(), "file", bytes).expect_err("no configuration");
        let problem = &errors.problems()[0];
        assert!(problem.message().contains(message), "{problem}");
        assert!(problem.fix().is_some());
    }
    let both = [file("bao.c"), file("hvisor-zone1.json")];
    let errors = import(&both, &Options::default()).expect_err("two systems");
    assert!(
        errors.problems()[0]
            .message()
            .contains("the first file is a configuration of Bao")
    );
}

/// What is put into files that were right.
const PARTS: [&str; 34] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    "=",
    ".",
    "\"",
    "'",
    "#",
    "/*",
    "\\",
    "##",
    "...",
    "0x",
    "-1",
    "0xffffffffffffffff",
    "1<<63",
    "4294967296",
    "/",
    "%0",
    "&",
    "#define A A\n",
    "\n#include \"damaged\"\n",
    "[0 ... 1000000000] =",
    "sizeof",
    "\u{e9}",
    "\0",
    "$((",
];

/// Files that were right and are damaged in some places are taken or refused, soon and without a
/// panic.
#[test]
fn damaged_files_are_refused_or_taken() {
    let names = [
        "bao.c",
        "jailhouse-root.c",
        "jailhouse-first.c",
        "jailhouse-ranges.c",
        "xen.dts",
        "image-builder.sh",
        "hvisor-zone1.json",
    ];
    let texts = names.map(|name| fs::read_to_string(file(name)).expect("a file"));
    let folder = tempfile::tempdir().expect("a directory");
    let edit = (any::<Index>(), 0..40_usize, 0..PARTS.len());
    let edits = (0..texts.len(), prop::collection::vec(edit, 1..4));
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&edits, |(text, edits)| {
        let mut bytes = texts[text].clone().into_bytes();
        for (at, removed, part) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, PARTS[part].bytes());
        }
        // Whatever it is, it ends.
        let _ = import_text(folder.path(), "damaged", &bytes);
        Ok(())
    });
    result.expect("no panic");
}
