//! `cargo xtask lint`: a clean workspace passes, and a planted example of each rule makes that rule
//! fail and no other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use xtask::lint::{Finding, Outcome, Rule, check};

const CLEAN: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\n\
         members = [\"hypervisor\", \"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]\n",
    ),
    (".gitignore", "ignored.md\n"),
    ("ignored.md", "A gizmo.\n"),
    ("xtask/src/lint/words.md", STYLE),
    ("README.md", "A house, `gizmo` and all. Long gizmos stay.\n"),
    ("hypervisor/src/lib.rs", ROOT),
    ("hypervisor/src/low.rs", LOW),
    ("hypervisor/src/high.rs", HIGH),
    ("hypervisor/src/sysreg.rs", SYSREG),
    ("hypervisor/src/syndrome.rs", SYNDROME),
    ("a/src/lib.rs", PLAIN),
    ("b/src/lib.rs", PLAIN),
    ("c/src/lib.rs", PLAIN),
    ("d/src/lib.rs", PLAIN),
    ("e/src/lib.rs", PLAIN),
    ("f/src/lib.rs", PLAIN),
];

const STYLE: &str = "# Style

## Words

| not | but |
| --- | --- |
| gizmo, far out | thing |
| `on and on(?:\\.\\|,)` | for long |

## Glossary

Here a word counts again.
";

/// Declares modules, re-exports an item of one, and is used by none.
const ROOT: &str = "//! The clean crate.
#![deny(unsafe_code)]

mod high;
mod low;
mod syndrome;
#[allow(unsafe_code)]
mod sysreg;

pub use high::High;
pub use low::Low;
";

/// Uses nothing but in a test.
const LOW: &str = "//! What is used.

/// A number.
pub struct Low(pub u64);

/// Not a register's value.
pub fn shifted(address: u64) -> u64 {
    address >> 12 & 0x1ff
}

#[cfg(test)]
mod tests {
    use crate::high::High;

    #[test]
    fn high_is_known() {
        let esr = 1u64;
        assert_eq!(esr >> 26, 0, \"the register {:?}\", \"esr_el2\");
        let _ = size_of::<High>();
    }
}
";

/// Uses `low` by the root's re-export.
const HIGH: &str = "//! What uses the other.

use super::Low;

/// Two numbers.
pub struct High {
    /// The first.
    pub low: Low,
    /// The second.
    pub other: crate::Low,
}

/// A typed read.
pub fn is_user() -> bool {
    SPSR_EL2.read(SPSR_EL2::M) << 1 == 0
}
";

const SYSREG: &str = "//! Named accesses.

/// Reads a register.
pub fn counter() -> u64 {
    let value: u64;
    // SAFETY: reading the counter changes nothing.
    unsafe { core::arch::asm!(\"mrs {}, cntvct_el0\", out(reg) value) };
    value
}

/// Reads a byte.
///
/// # Safety
/// `at` is mapped.
pub unsafe fn byte(at: *const u8) -> u8 {
    // SAFETY: the caller says that it is mapped.
    unsafe { at.read() }
}
";

const SYNDROME: &str = "//! Decodes syndromes.

/// The exception class.
pub fn class(esr: u64) -> u64 {
    esr >> 26 & 0x3f
}
";

/// As many lines as the clean hypervisor has.
const PLAIN: &str = "//! A crate.
#![forbid(unsafe_code)]

/// Adds up.
pub fn sum(values: &[u64]) -> u64 {
    let mut sum = 0;
    for value in values {
        sum += value;
    }
    for value in values {
        sum -= value;
    }
    for value in values {
        sum += value;
    }
    for value in values {
        sum -= value;
    }
    for value in values {
        sum += value;
    }
    for value in values {
        sum -= value;
    }
    for value in values {
        sum += value;
    }
    sum
}
";

/// The clean workspace with files replaced or added.
fn planted(changes: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    for name in ["hypervisor", "a", "b", "c", "d", "e", "f"] {
        let manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        write(&format!("{name}/Cargo.toml"), &manifest);
    }
    CLEAN
        .iter()
        .chain(changes)
        .for_each(|(path, text)| write(path, text));
    directory
}

fn outcomes(changes: &[(&str, &str)]) -> Vec<Outcome> {
    check(planted(changes).path(), &[]).expect("a workspace that can be read")
}

/// The findings of `rule`, the only one that the changed workspace breaks.
#[track_caller]
fn broken(rule: Rule, changes: &[(&str, &str)]) -> Vec<Finding> {
    let mut failed = outcomes(changes);
    failed.retain(|outcome| !outcome.passes());
    let names: Vec<String> = failed
        .iter()
        .map(|outcome| format!("{} {:?}", outcome.rule, outcome.findings))
        .collect();
    assert!(
        failed.len() == 1 && failed[0].rule == rule,
        "only {rule} should fail: {names:#?}"
    );
    failed.remove(0).findings
}

#[track_caller]
fn at(finding: &Finding, file: &str, line: usize) {
    assert_eq!(
        (finding.file.as_path(), finding.line),
        (Path::new(file), line),
        "{finding}"
    );
}

#[test]
fn a_clean_workspace_passes() {
    for outcome in outcomes(&[]) {
        assert!(
            outcome.passes(),
            "{}: {} {:?}",
            outcome.rule,
            outcome.count,
            outcome.findings
        );
        assert!(outcome.exempt.is_empty(), "{:?}", outcome.exempt);
    }
}

#[test]
fn a_circle_is_found_with_its_uses() {
    let low = LOW.replace(
        "/// A number.",
        "use crate::high::is_user;\n\n/// A number.",
    );
    let found = broken(Rule::Circles, &[("hypervisor/src/low.rs", &low)]);
    let text = found[0].to_string();
    assert!(text.contains("2 modules of hypervisor"), "{text}");
    assert!(
        text.contains("low.rs:3 uses high") && text.contains("high.rs:3 uses low"),
        "{text}"
    );
}

#[test]
fn a_circle_by_paths_in_macros_and_with_the_root_is_found() {
    let low = LOW.replace(
        "address >> 12",
        "debug!(\"{}\", crate::high::is_user()); address >> 12",
    );
    broken(Rule::Circles, &[("hypervisor/src/low.rs", &low)]);
    let root = format!("{ROOT}\n/// One.\npub fn one() -> u64 {{\n    low::shifted(4096)\n}}\n");
    let low = LOW.replace("address >> 12", "crate::one() + address >> 12");
    let changes = [
        ("hypervisor/src/lib.rs", root.as_str()),
        ("hypervisor/src/low.rs", low.as_str()),
    ];
    assert!(
        broken(Rule::Circles, &changes)[0]
            .to_string()
            .contains("uses crate")
    );
    // Without the use of what the root defines there is none.
    assert!(outcomes(&changes[..1]).iter().all(Outcome::passes));
}

#[test]
fn a_crate_with_too_large_a_share_is_found() {
    let large = (0..60).fold(PLAIN.to_owned(), |text, n| {
        text + &format!("/// {n}.\npub const N{n}: u32 = {n};\n")
    });
    let found = broken(Rule::Share, &[("c/src/lib.rs", &large)]);
    at(&found[0], "c/Cargo.toml", 1);
}

#[test]
fn strings_that_name_registers_are_found() {
    let reads = "    sysreg::read!(\"s3_0_c15_c2_0\");\n".repeat(10)
        + "    asm!(\"msr hcr_el2, {}\", in(reg) 1);\n";
    let low = format!("{LOW}\nfn all() {{\n{reads}}}\n");
    let found = broken(Rule::RegisterStrings, &[("hypervisor/src/low.rs", &low)]);
    assert_eq!(found.len(), 11);
    let few = low.replacen("    sysreg::read!(\"s3_0_c15_c2_0\");\n", "", 1);
    assert!(
        outcomes(&[("hypervisor/src/low.rs", &few)])
            .iter()
            .all(Outcome::passes)
    );
}

#[test]
fn shifts_of_registers_are_found() {
    for (code, is_wrong) in [
        ("esr >> 26", true),
        ("(trap.esr_el2 as u32 & 0x3f).into()", true),
        ("{ let own = MPIDR_EL1.get(); own & 0xff }", true),
        ("{ HCR_EL2.set(1 << 27); 0 }", true),
        ("{ print!(\"{}\", far & 0xfff); 0 }", true),
        (
            "{ let own = MPIDR_EL1.read(MPIDR_EL1::Aff0); own << 2 }",
            false,
        ),
        ("{ HCR_EL2.write(HCR_EL2::VM::SET); 1 << 27 }", false),
        ("faraway >> 3", false),
        // A typed mask is fine, and so is any of a register with a bit per counter; a shift of
        // either is not.
        ("esr & class.mask", false),
        ("class.value & esr", false),
        ("esr & class.size", true),
        ("esr >> class.mask", true),
        ("PMOVSSET_EL0.get() & 0b100", false),
        ("0b100 & PMCNTENCLR_EL0.get()", false),
        ("PMOVSSET_EL0.get() >> 2", true),
        ("PMCR_EL0.get() & 0b100", true),
    ] {
        let low = format!("{LOW}\nfn f() -> u64 {{\n    {code}\n}}\n");
        let changes = [("hypervisor/src/low.rs", low.as_str())];
        if is_wrong {
            assert_eq!(broken(Rule::RegisterShifts, &changes).len(), 1, "{code}");
        } else {
            assert!(outcomes(&changes).iter().all(Outcome::passes), "{code}");
        }
        // Elsewhere a register is a number like any other.
        assert!(
            outcomes(&[("a/tests/t.rs", &low.replace("high::High", "x"))])
                .iter()
                .all(Outcome::passes),
            "{code}"
        );
    }
}

#[test]
fn a_text_made_of_debug_output_is_found() {
    // All on one line, so that no crate is too large a share.
    let code = |statement: &str| {
        let many = statement.repeat(18);
        format!("{PLAIN}\n/// One.\npub fn one(it: u8) {{ {many} }}\n")
    };
    let debug = code("let _ = format!(\"{it:?}\");");
    broken(Rule::DebugTexts, &[("a/src/lib.rs", &debug)]);
    for fine in [
        "let _ = format!(\"{it}\");",
        "if it > 9 { panic!(\"{it:?}\"); }",
    ] {
        let found = outcomes(&[("a/src/lib.rs", &code(fine))]);
        assert!(found.iter().all(Outcome::passes), "{fine}");
    }
}

#[test]
fn unsafe_code_outside_its_modules_is_found() {
    let code = "\n/// One.\n\
        pub fn one() -> u8 {\n    // SAFETY: the address is that of a static.\n    unsafe { ONE.read() }\n}\n";
    let found = broken(
        Rule::UnsafePlaces,
        &[("hypervisor/src/low.rs", &format!("{LOW}{code}"))],
    );
    at(&found[0], "hypervisor/src/low.rs", 26);
    let found = broken(
        Rule::UnsafePlaces,
        &[(
            "a/src/lib.rs",
            &PLAIN.replace("#![forbid(unsafe_code)]\n", ""),
        )],
    );
    at(&found[0], "a/src/lib.rs", 1);
    // Outside of the hypervisor a function may be allowed to, too.
    let denied = PLAIN.replace("forbid", "deny");
    let function = code.replace("pub fn one", "#[allow(unsafe_code)]\npub fn one");
    assert!(
        outcomes(&[("a/src/lib.rs", &format!("{denied}{function}"))])
            .iter()
            .all(Outcome::passes)
    );
    broken(
        Rule::UnsafePlaces,
        &[("a/src/lib.rs", &format!("{denied}{code}"))],
    );
    broken(
        Rule::UnsafePlaces,
        &[("hypervisor/src/low.rs", &format!("{LOW}{function}"))],
    );
    let allowed = format!(
        "{}{code}",
        LOW.replacen("\n\n", "\n#![allow(unsafe_code)]\n\n", 1)
    );
    assert!(
        outcomes(&[("hypervisor/src/low.rs", &allowed)])
            .iter()
            .all(Outcome::passes)
    );
}

#[test]
fn banned_words_are_found_in_all_kinds_of_prose() {
    for (file, text, line) in [
        ("README.md", "One.\nA Gizmo.\n", 2),
        (
            "xtask/src/lint/words.md",
            &*STYLE.replace("Here a word", "Here a gizmo"),
            12,
        ),
        ("c.toml", "# Far\n# out.\n", 1),
        (".ci/x.yml", "a: on and on.\n", 1),
        (
            "a/src/lib.rs",
            &PLAIN.replace("/// Adds up.", "/// Adds\n/// up far\n/// out."),
            5,
        ),
        (
            "a/src/lib.rs",
            &PLAIN.replace("    sum\n", "    // gizmo\n    sum\n"),
            28,
        ),
        (
            "a/src/lib.rs",
            &PLAIN.replace("    sum\n", "    f(\"a gizmo\");\n    sum\n"),
            28,
        ),
    ] {
        let found = broken(Rule::Words, &[(file, text)]);
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        at(&found[0], file, line);
    }
    // An identifier is no prose, and an exemption counts apart.
    let code = PLAIN.replace(
        "    sum\n",
        "    gizmo(); // a gizmo, lint: allow(gizmo)\n    sum\n",
    );
    let outcomes = outcomes(&[("a/src/lib.rs", &code)]);
    assert!(outcomes.iter().all(Outcome::passes));
    assert_eq!(
        outcomes
            .iter()
            .map(|outcome| outcome.exempt.len())
            .sum::<usize>(),
        2
    );
}

#[test]
fn files_without_a_first_line_are_found() {
    let text = LOW.replace("//! What is used.\n", "");
    at(
        &broken(Rule::Headers, &[("hypervisor/src/low.rs", &text)])[0],
        "hypervisor/src/low.rs",
        1,
    );
    // Once a file has an SPDX line, all must have it.
    let licensed = LOW.replacen('\n', "\n// SPDX-License-Identifier: MIT\n", 1);
    assert_eq!(
        broken(Rule::Headers, &[("hypervisor/src/low.rs", &licensed)]).len(),
        10
    );
}

#[test]
fn visits_that_begin_in_a_handler_are_found() {
    let text = format!("{LOW}\n/// A handler.\npub fn handle() {{\n    Visit::begin();\n}}\n");
    let found = broken(Rule::Visits, &[("hypervisor/src/low.rs", &text)]);
    at(&found[0], "hypervisor/src/low.rs", LOW.lines().count() + 4);
}

#[test]
fn the_table_of_this_project_can_be_read() {
    let outcomes =
        check(&installation::root(), &[Rule::Words, Rule::Headers]).expect("the checkout");
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn each_rule_of_the_oracle_is_named_beside_its_promise() {
    let file = installation::root().join("SPECIFICATION.md");
    let text = std::fs::read_to_string(file).expect("the specification");
    for rule in cloison_spec::Rule::ALL {
        let row = format!("| {} | ", rule.promise());
        let row = text.lines().find(|line| line.starts_with(&row));
        let name = format!("`oracle:{}`", rule.id());
        assert!(row.is_some_and(|row| row.contains(&name)), "{name}");
    }
}

#[test]
fn promises_name_tests_that_run() {
    let low = format!(
        "{LOW}\n#[cfg(test)]\nmod checks {{\n    #[test]\n    fn runs() {{}}\n    #[test]\n    \
         #[ignore = \"long\"]\n    fn waits() {{}}\n    fn helps() {{}}\n    \
         proptest! {{ #[test] fn holds(x in 0..3u8) {{ drop(x); }} }}\n}}\n"
    );
    let promises = "\
# Specification

| | promise | checked by |
| --- | --- | --- |
| A1 | It runs 1 time | `checks::runs`, `low::holds` |
| A2 | It waits | `checks::waits` |
| A3 | It helps | `checks::helps` |
| A4 | It is elsewhere | `high::runs` |
| A5 | Nobody looks | `cargo test` |
| A6 | Later | pending: no board |
| M7 | It moves | `oracle:stage2.tlbi` |
| M8 | It moves | `oracle:stage2.tlbi` |
";
    let changes = [
        ("hypervisor/src/low.rs", low.as_str()),
        ("SPECIFICATION.md", promises),
    ];
    let findings = broken(Rule::Promises, &changes);
    let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [6, 7, 8, 9, 12], "{findings:?}");
    for (finding, what) in
        findings
            .iter()
            .zip(["asked for", "no such", "no such", "nothing", "no such rule"])
    {
        assert!(finding.what.contains(what), "{finding}");
    }
    let outcomes = outcomes(&changes);
    let outcome = outcomes
        .iter()
        .find(|outcome| outcome.rule == Rule::Promises);
    assert_eq!(outcome.expect("the rule").exempt.len(), 1);
}
