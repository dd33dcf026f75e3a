//! The messages on quotas whose events no validation trusts, and on wrong files of verdicts.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common {
    pub mod messages;
    pub mod snapshots;
}

use cloison_config::problem::Problem;
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, Errors};
use cloison_engine::{configuration, installation};
use common::messages::render;
use std::fs;
use std::path::Path;

const SYSTEM: &str = r#"name = "trust"
board = "odd"

[hypervisor]
colors = "15"

[[pool]]
name = "shared"
kind = "SH"
colors = "0-14"

[[vm]]
name = "one"
cores = [0]
image = { workload = "heartbeat" }

[[vm.region]]
name = "ram"
ipa = 0x4000_0000
size = "1M"
pool = "shared"

[[vm.quota]]
event = "INST_RETIRED"
budget = "20000 events / 1 ms"
"#;

const ICOUNT: &str = r#"version = 2
cpu = "cortex-a53"
board = "odd"
machine = "icount"
prefetcher = "none: QEMU has no caches"
tool = "cloison"
date = "2026-01-01T00:00:00Z"

[[verdict]]
event = "INST_RETIRED"
verdict = "trusted"
counts = "executed"
because = "all instructions"
evidence = [
    { benchmark = "stream", expected = 300, mean = 301.5, spread = 0.7, runs = 2, outliers = 0, agrees = true },
]

[[verdict]]
event = "BUS_ACCESS"
verdict = "dead"
because = "it counts nothing; up to 256 were expected"
evidence = [
    { benchmark = "nothing", expected = 0, mean = 0.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
    { benchmark = "stream", expected = 256, mean = 0.0, spread = 0.0, runs = 2, outliers = 0, agrees = false },
]
"#;

const MODEL: &str = r#"version = 2
cpu = "cortex-a53"
board = "odd"
machine = "model"
model = "zcu102"
prefetcher = "off"
tool = "cloison"
date = "2026-01-01T00:00:00Z"

[[verdict]]
event = "BUS_ACCESS"
verdict = "trusted"
because = "beats"
evidence = [
    { benchmark = "stream", expected = 256, mean = 256.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
]

[[verdict]]
event = "L2D_CACHE"
verdict = "corrected"
because = "evictions too (the manual, section 7.6)"
evidence = [
    { benchmark = "stream", expected = 64, explained = 128, mean = 128.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
]

[[verdict]]
event = "L1D_CACHE"
verdict = "expectation corrected"
because = "it counts what is executed"
evidence = [
    { benchmark = "stream", expected = 64, explained = 63, mean = 63.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
]

[[verdict]]
event = "L1I_CACHE"
verdict = "fitted"
because = "twice the lines"
evidence = [
    { benchmark = "stream", expected = 64, explained = 128, mean = 128.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
]

[[verdict]]
event = "L2D_CACHE_WB"
verdict = "quarantined"
because = "its documentation does not explain stream: 64 expected, 12 counted; there is no hypothesis"
evidence = [
    { benchmark = "nothing", expected = 0, mean = 1.0, spread = 0.0, runs = 2, outliers = 0, agrees = true },
    { benchmark = "stream", expected = 64, mean = 12.0, spread = 0.0, runs = 2, outliers = 0, agrees = false },
]

[[verdict]]
event = "L1D_TLB_REFILL"
verdict = "not modelled"
because = "the machine does not count it"
evidence = [
    { benchmark = "stream", expected = 64, mean = 0.0, spread = 0.0, runs = 2, outliers = 0, agrees = false },
]
"#;

const FILES: [(&str, &str); 3] = [
    ("system.toml", SYSTEM),
    ("verdicts/odd-icount.toml", ICOUNT),
    ("verdicts/odd-model.toml", MODEL),
];

/// One change to a file, by a name: the file, the text that is replaced, and what replaces it.
const CASES: [(&str, &str, &str, &str); 28] = [
    (
        "dead",
        "system.toml",
        "\"INST_RETIRED\"",
        "\"L1D_TLB_REFILL\"",
    ),
    (
        "quarantined",
        "system.toml",
        "\"INST_RETIRED\"",
        "\"L2D_CACHE_WB\"",
    ),
    ("fitted", "system.toml", "\"INST_RETIRED\"", "\"L1I_CACHE\""),
    (
        "expectation",
        "system.toml",
        "\"INST_RETIRED\"",
        "\"L1D_CACHE\"",
    ),
    (
        "unjudged",
        "system.toml",
        "\"INST_RETIRED\"",
        "\"CPU_CYCLES\"",
    ),
    (
        "no-common-machine",
        "system.toml",
        "[[vm.quota]]\n",
        "[[vm.quota]]\nevent = \"BUS_ACCESS\"\nbudget = \"9 events / 1 ms\"\n[[vm.quota]]\n",
    ),
    (
        "allow-text",
        "system.toml",
        "[[vm.quota]]\n",
        "[[vm.quota]]\nallow_untrusted = \"yes\"\n",
    ),
    (
        "allow-elsewhere",
        "system.toml",
        "cores = [0]\n",
        "cores = [0]\nallow_untrusted = true\n",
    ),
    ("syntax", "verdicts/odd-icount.toml", "board = ", "board "),
    (
        "cpu",
        "verdicts/odd-icount.toml",
        "cortex-a53",
        "cortex-a72",
    ),
    (
        "cpu-missing",
        "verdicts/odd-icount.toml",
        "cpu = \"cortex-a53\"\n",
        "",
    ),
    ("board", "verdicts/odd-icount.toml", "\"odd\"", "\"zcu102\""),
    (
        "machine-another",
        "verdicts/odd-icount.toml",
        "\"icount\"",
        "\"stock\"",
    ),
    (
        "machine-unknown",
        "verdicts/odd-icount.toml",
        "\"icount\"",
        "\"qemu\"",
    ),
    ("older", "verdicts/odd-icount.toml", "version = 2\n", ""),
    (
        "newer",
        "verdicts/odd-icount.toml",
        "version = 2",
        "version = 3",
    ),
    (
        "version-text",
        "verdicts/odd-icount.toml",
        "version = 2",
        "version = \"2\"",
    ),
    (
        "model-without",
        "verdicts/odd-icount.toml",
        "prefetcher",
        "model = \"zcu102\"\nprefetcher",
    ),
    (
        "model-missing",
        "verdicts/odd-model.toml",
        "model = \"zcu102\"\n",
        "",
    ),
    (
        "model-another",
        "verdicts/odd-model.toml",
        "\"zcu102\"",
        "\"mine\"",
    ),
    (
        "prefetcher-missing",
        "verdicts/odd-model.toml",
        "prefetcher = \"off\"\n",
        "",
    ),
    (
        "verdict-unknown",
        "verdicts/odd-icount.toml",
        "\"trusted\"",
        "\"trustworthy\"",
    ),
    (
        "verdict-twice",
        "verdicts/odd-icount.toml",
        "\"BUS_ACCESS\"",
        "\"INST_RETIRED\"",
    ),
    (
        "verdict-contradicted",
        "verdicts/odd-icount.toml",
        "agrees = true",
        "agrees = false",
    ),
    (
        "because-missing",
        "verdicts/odd-icount.toml",
        "because = \"all instructions\"\n",
        "",
    ),
    (
        "evidence-empty",
        "verdicts/odd-icount.toml",
        "verdict = \"dead\"",
        "verdict = \"dead\"\nevidence = []\ntried",
    ),
    (
        "mean-missing",
        "verdicts/odd-icount.toml",
        "mean = 301.5, ",
        "",
    ),
    (
        "field-unknown",
        "verdicts/odd-icount.toml",
        "mean = 301.5",
        "mean = 301.5, men = 301.5",
    ),
];

fn write(path: &str, text: &str) {
    fs::write(path, text).expect("it can be written");
}

fn load() -> Result<Checked, Errors> {
    configuration::load(Path::new("system.toml"), None)
}

/// Loads the system for a machine. Returns the warnings, or the errors.
fn load_on(machine: Machine) -> Result<Vec<Problem>, Errors> {
    load()?.on(machine)
}

/// All in one test, because messages name files relative to the current directory.
#[test]
fn every_quota_needs_a_verdict_that_bears_it() {
    let zcu102 = fs::read_to_string(installation::root().join("configs/boards/zcu102.toml"))
        .expect("it is there");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::env::set_current_dir(scratch.path()).expect("it is there");
    ["boards", "verdicts"]
        .into_iter()
        .for_each(|name| fs::create_dir(name).expect("it can be made"));
    write(
        "boards/odd.toml",
        &zcu102.replace("name = \"zcu102\"", "name = \"odd\""),
    );
    FILES.into_iter().for_each(|(path, text)| write(path, text));
    let settings = common::snapshots::settings(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/trust"),
    );
    for (case, path, from, to) in CASES {
        let (_, right) = FILES
            .into_iter()
            .find(|(name, _)| *name == path)
            .expect("one of the files");
        assert!(right.contains(from), "{case}: `{from}` is not in {path}");
        write(path, &right.replacen(from, to, 1));
        let errors = load()
            .err()
            .unwrap_or_else(|| panic!("{case} was accepted"));
        let shown = render(&errors);
        for problem in errors
            .problems()
            .iter()
            .filter(|problem| problem.is_error())
        {
            let (line, column) = problem.line_and_column();
            assert!(
                shown.contains(&format!("[{path}:{line}:{column}]")),
                "{case}:\n{shown}"
            );
            assert!(
                !problem.field().is_empty() && shown.contains("help: "),
                "{case}:\n{shown}"
            );
        }
        settings.bind(|| insta::assert_snapshot!(case, shown));
        write(path, right);
    }
    each_machine_has_its_own_verdicts(&settings);
    fs::remove_dir_all("verdicts").expect("it is there");
    let errors = load().expect_err("nobody has validated this board");
    settings.bind(|| insta::assert_snapshot!("no-file", render(&errors)));
}

/// What holds on one machine is refused on another, with the evidence, unless the quota takes it
/// all the same.
fn each_machine_has_its_own_verdicts(settings: &insta::Settings) {
    let checked = load().unwrap_or_else(|errors| panic!("{}", render(&errors)));
    assert_eq!(
        checked.quota_events.machines().collect::<Vec<_>>(),
        [Machine::Icount]
    );
    assert!(load_on(Machine::Icount).expect("it is trusted").is_empty());
    for (case, machine) in [
        ("on-stock", Machine::Stock),
        ("on-model", Machine::Model),
        ("on-hardware", Machine::Hardware),
    ] {
        let errors = load_on(machine).expect_err("it has no verdict there");
        settings.bind(|| insta::assert_snapshot!(case, render(&errors)));
    }
    write("system.toml", &SYSTEM.replace("INST_RETIRED", "BUS_ACCESS"));
    assert!(load_on(Machine::Model).expect("it is trusted").is_empty());
    let errors = load_on(Machine::Icount).expect_err("it is dead there");
    settings.bind(|| insta::assert_snapshot!("on-icount", render(&errors)));
    // A corrected event bears a quota: what it counts is known.
    write("system.toml", &SYSTEM.replace("INST_RETIRED", "L2D_CACHE"));
    assert!(load_on(Machine::Model).expect("it is corrected").is_empty());
    let allow =
        |text: &str| text.replace("[[vm.quota]]\n", "[[vm.quota]]\nallow_untrusted = true\n");
    write("system.toml", &allow(SYSTEM));
    assert!(
        load_on(Machine::Icount).expect("it is trusted").is_empty(),
        "consent is not needed there"
    );
    let warnings = load_on(Machine::Model).expect("the quota takes it");
    assert!(
        warnings.len() == 1 && !warnings[0].is_error(),
        "{warnings:?}"
    );
    settings
        .bind(|| insta::assert_snapshot!("allowed", render(&Errors::new("system.toml", warnings))));
    // What is trusted nowhere is a warning every time.
    write(
        "system.toml",
        &allow(SYSTEM).replace("INST_RETIRED", "CPU_CYCLES"),
    );
    let messages: Vec<String> = load()
        .expect("the quota takes it")
        .warnings
        .iter()
        .map(|it| it.message().to_owned())
        .collect();
    assert_eq!(
        messages,
        ["no machine of board `odd` can be trusted to count CPU_CYCLES"]
    );
    write("system.toml", SYSTEM);
}
