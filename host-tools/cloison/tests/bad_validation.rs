//! The messages on wrong manifests, hypotheses, counts and files of verdicts.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common {
    pub mod messages;
    pub mod snapshots;
}

use cloison_config::Errors;
use cloison_config::problem::Problem;
use cloison_config::validation::{Counts, Hypothesis, Manifest, Record};
use common::messages::render;
use std::path::Path;

const MANIFEST: &str = r#"title = "Two benchmarks"
cpu = "cortex-a53"

[tolerance]
percent = 0.5
events = 100

[quantities]
line = 64
lines = "4096 / line"

[[event]]
name = "L1D_CACHE_REFILL"
counts = "lines"
because = "each line once"

[[event]]
name = "LD_RETIRED"
counts = "executed_LDR"
because = "loads"

[[benchmark]]
name = "stream"
source = "figure 1"
workload = "known-counts"
args = [1, 2]
runs_argument = 0
underivable = ["LD_RETIRED"]
[[benchmark.block]]
executed = "lines"
code = { LDR = 1, ADD = 2 }

[[benchmark]]
name = "chase"
source = "figure 2"
[[benchmark.block]]
executed = 1
listed = 2
code = { LDR = 1 }
"#;

const HYPOTHESES: &str = r#"[[hypothesis]]
event = "L1D_CACHE_REFILL"
kind = "mechanism"
counts = "2 * lines"
because = "each line twice"
source = "the manual, section 1"
"#;

const COUNTS: &str = r#"machine = "a board"
prefetcher = "off"

[[run]]
benchmark = "stream"
source = "table 1"
counts = { L1D_CACHE_REFILL = [64, 65], LD_RETIRED = 64 }
"#;

const VERDICTS: &str = r#"version = 2
cpu = "cortex-a53"
board = "virt"
machine = "model"
model = "zcu102"
prefetcher = "not modelled"
tool = "cloison"
date = "2026-01-01T00:00:00Z"

[[verdict]]
event = "LD_RETIRED"
verdict = "trusted"
counts = "executed_LDR"
because = "loads"
evidence = [
    { benchmark = "stream", expected = 64, mean = 64.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
]
"#;

/// What is read, by the name of its file.
const KINDS: [(&str, &str); 4] = [
    ("manifest", MANIFEST),
    ("hypotheses", HYPOTHESES),
    ("counts", COUNTS),
    ("verdicts", VERDICTS),
];

/// One change to a file, by the file and a name: the text that is replaced, and what replaces it.
const CASES: [(&str, &str, &str, &str); 50] = [
    ("manifest", "syntax", "title = ", "title "),
    (
        "manifest",
        "title-missing",
        "title = \"Two benchmarks\"\n",
        "",
    ),
    ("manifest", "title-empty", "\"Two benchmarks\"", "\"\""),
    ("manifest", "field-unknown", "[tolerance]", "[tolerances]"),
    (
        "manifest",
        "tolerance-negative",
        "percent = 0.5",
        "percent = -0.5",
    ),
    (
        "manifest",
        "tolerance-all",
        "percent = 0.5",
        "percent = 100",
    ),
    (
        "manifest",
        "tolerance-text",
        "events = 100",
        "events = \"100\"",
    ),
    ("manifest", "quantity-unknown", "4096 / line", "4096 / lien"),
    (
        "manifest",
        "quantity-circle",
        "\"4096 / line\"",
        "\"lines + 1\"",
    ),
    ("manifest", "quantity-waits", "line = 64", "line = \"lane\""),
    (
        "manifest",
        "quantity-infinite",
        "4096 / line",
        "4096 / (line - line)",
    ),
    (
        "manifest",
        "quantity-reserved",
        "line = 64",
        "line = 64\ncode_LDR = 1",
    ),
    (
        "manifest",
        "quantity-clock",
        "line = 64",
        "line = 64\ncpu_mhz = 1200",
    ),
    (
        "manifest",
        "quantity-constant",
        "line = 64",
        "line = 64\n2L = 3",
    ),
    (
        "manifest",
        "formula-open",
        "counts = \"lines\"",
        "counts = \"(lines\"",
    ),
    (
        "manifest",
        "formula-power",
        "counts = \"lines\"",
        "counts = \"lines ^ 2\"",
    ),
    (
        "manifest",
        "formula-unknown",
        "counts = \"executed_LDR\"",
        "counts = \"executed_LDX\"",
    ),
    (
        "manifest",
        "event-twice",
        "name = \"LD_RETIRED\"",
        "name = \"L1D_CACHE_REFILL\"",
    ),
    (
        "manifest",
        "event-by-itself",
        "counts = \"executed_LDR\"",
        "counts = \"counted_LD_RETIRED\"",
    ),
    (
        "manifest",
        "event-only-unknown",
        "because = \"loads\"",
        "because = \"loads\"\nonly = [\"steam\"]",
    ),
    (
        "manifest",
        "event-without-reason",
        "because = \"loads\"\n",
        "",
    ),
    (
        "manifest",
        "benchmark-twice",
        "name = \"chase\"",
        "name = \"stream\"",
    ),
    (
        "manifest",
        "benchmark-without-source",
        "source = \"figure 2\"\n",
        "",
    ),
    (
        "manifest",
        "workload-unknown",
        "\"known-counts\"",
        "\"known-count\"",
    ),
    ("manifest", "arguments-five", "[1, 2]", "[1, 2, 3, 4, 5]"),
    ("manifest", "runs-argument", "runs_argument = 0\n", ""),
    (
        "manifest",
        "underivable-unknown",
        "[\"LD_RETIRED\"]",
        "[\"LD_RETIRE\"]",
    ),
    ("manifest", "block-without-code", "code = { LDR = 1 }\n", ""),
    (
        "manifest",
        "block-negative",
        "executed = \"lines\"",
        "executed = \"lines - 65\"",
    ),
    ("manifest", "instruction-name", "ADD = 2", "\"B.NE\" = 2"),
    ("manifest", "instruction-negative", "ADD = 2", "ADD = -2"),
    (
        "hypotheses",
        "event-unknown",
        "\"L1D_CACHE_REFILL\"",
        "\"L1D_REFILL\"",
    ),
    ("hypotheses", "kind-unknown", "\"mechanism\"", "\"magic\""),
    ("hypotheses", "formula-unknown", "2 * lines", "2 * line_s"),
    (
        "hypotheses",
        "formula-counted",
        "2 * lines",
        "2 * counted_ST_RETIRED",
    ),
    ("hypotheses", "formula-same", "2 * lines", "lines"),
    (
        "hypotheses",
        "source-missing",
        "source = \"the manual, section 1\"\n",
        "",
    ),
    ("hypotheses", "none", "[[hypothesis]]", "[[hypotheses]]"),
    (
        "counts",
        "clock-none",
        "prefetcher = \"off\"",
        "prefetcher = \"off\"\ncpu_mhz = 0",
    ),
    ("counts", "benchmark-unknown", "\"stream\"", "\"steam\""),
    (
        "counts",
        "event-unknown",
        "LD_RETIRED = 64",
        "LD_RETIRE = 64",
    ),
    (
        "counts",
        "count-negative",
        "LD_RETIRED = 64",
        "LD_RETIRED = -64",
    ),
    ("counts", "runs-none", "[64, 65]", "[]"),
    ("counts", "machine-missing", "machine = \"a board\"\n", ""),
    ("counts", "nothing", "[[run]]", "[[runs]]"),
    ("verdicts", "verdict-unknown", "\"trusted\"", "\"trusty\""),
    ("verdicts", "machine-unknown", "\"model\"", "\"qemu\""),
    (
        "verdicts",
        "evidence-against",
        "agrees = true",
        "agrees = false",
    ),
    ("verdicts", "outliers", "outliers = 0", "outliers = 3"),
    (
        "verdicts",
        "evidence-none",
        "counts = \"executed_LDR\"\nbecause = \"loads\"\nevidence",
        "tried",
    ),
];

/// Reads a file as what it is by its name. The manifest of the others is the right one.
fn read(kind: &str) -> Result<(), Errors> {
    let path = Path::new(kind).with_extension("toml");
    let manifest = || Manifest::load(Path::new("good.toml")).expect("the right manifest");
    match kind {
        "manifest" => Manifest::load(&path).map(|_| ()),
        "hypotheses" => Hypothesis::load(&path, &manifest()).map(|_| ()),
        "counts" => Counts::load(&path, &manifest()).map(|_| ()),
        _ => Record::load(&path).map(|_| ()),
    }
}

/// All in one test, because messages name files relative to the current directory.
#[test]
fn every_wrong_file_has_its_message() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::env::set_current_dir(scratch.path()).expect("it is there");
    std::fs::write("good.toml", MANIFEST).expect("it can be written");
    for (kind, right) in KINDS {
        std::fs::write(Path::new(kind).with_extension("toml"), right).expect("it can be written");
        read(kind).unwrap_or_else(|errors| panic!("{kind}: {}", render(&errors)));
    }
    let settings = common::snapshots::settings(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/validation"),
    );
    for (kind, case, from, to) in CASES {
        let (_, right) = KINDS
            .iter()
            .find(|(name, _)| *name == kind)
            .expect("a kind of file");
        assert!(
            right.contains(from),
            "{kind} {case}: `{from}` is not in the file"
        );
        let path = Path::new(kind).with_extension("toml");
        std::fs::write(&path, right.replacen(from, to, 1)).expect("it can be written");
        let errors = read(kind)
            .err()
            .unwrap_or_else(|| panic!("{kind} {case} was accepted"));
        let shown = render(&errors);
        for problem in errors
            .problems()
            .iter()
            .filter(|problem| problem.is_error())
        {
            assert_eq!(problem.file(), format!("{kind}.toml"), "{kind} {case}");
            let (line, column) = problem.line_and_column();
            assert!(
                shown.contains(&format!("[{kind}.toml:{line}:{column}]")),
                "{kind} {case}:\n{shown}"
            );
            assert!(
                !problem.field().is_empty() && shown.contains("help: "),
                "{kind} {case}:\n{shown}"
            );
        }
        assert!(
            errors.problems().iter().any(Problem::is_error),
            "{kind} {case}"
        );
        settings.bind(|| insta::assert_snapshot!(format!("{kind}-{case}"), shown));
    }
    let missing = Manifest::load(Path::new("nowhere.toml")).expect_err("there is none");
    assert!(
        missing.problems()[0]
            .message()
            .contains("cannot read nowhere.toml")
    );
}
