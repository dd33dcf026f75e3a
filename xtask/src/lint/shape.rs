//! The shape of the code: the size of crates, the first lines of files, and texts made of Debug
//! output.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::{Finding, Outcome};
use super::registers::{each_macro, literals};
use super::source::{Crate, Module, Sources};
use cloison_bench::lines;
use miette::Result;

/// Computes the largest crate's share of all lines of code: `src` of each crate, without comments
/// and tests.
pub fn share(sources: &Sources, outcome: &mut Outcome) -> Result<()> {
    let mut sizes = Vec::new();
    for krate in &sources.crates {
        let directory = sources.root.join(&krate.directory).join("src");
        let size = if directory.exists() {
            lines::count(&directory, &[])?.lines
        } else {
            0
        };
        sizes.push((size, krate));
    }
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    if let Some((size, krate)) = sizes.iter().max_by_key(|(size, _)| *size) {
        outcome.count = 100.0 * *size as f64 / total.max(1) as f64;
        let what = format!(
            "{} is the largest crate: {size} of {total} lines",
            krate.name
        );
        let fix = "if it is over the limit, split it by what its parts are for";
        outcome.findings.push(Finding::new(
            &krate.directory.join("Cargo.toml"),
            1,
            what,
            fix,
        ));
    }
    Ok(())
}

/// Returns the files that do not begin with a line `//! …`, or whose first comments have no SPDX
/// line. Once one file has that line, all must have it.
pub fn headers(sources: &Sources) -> Vec<Finding> {
    let is_licensed = sources.modules().any(has_license);
    let mut findings = Vec::new();
    for module in sources.modules() {
        if !module.text.starts_with("//! ") {
            findings.push(Finding::new(
                &module.file,
                1,
                "the file does not say what it is for",
                "begin it with one line `//! …` that says what it is for",
            ));
        }
        if is_licensed && !has_license(module) {
            findings.push(Finding::new(
                &module.file,
                1,
                "the file does not name its license",
                format!("add `{SPDX} …` after its first comment"),
            ));
        }
    }
    findings
}

const SPDX: &str = "// SPDX-License-Identifier:";

/// Returns whether a module's first comments name a license.
fn has_license(module: &Module) -> bool {
    let mut comments = module
        .text
        .lines()
        .take_while(|line| line.starts_with("//"));
    comments.any(|line| line.starts_with(SPDX))
}

/// Returns the places where `format!` makes a text of Debug output, outside tests: who reads the
/// text would see a variant's new name, and the compiler would not.
pub fn debug_texts(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_product = |krate: &&Crate| !krate.directory.starts_with("tests");
    let crates = sources.crates.iter().filter(is_product);
    let targets = crates.flat_map(|krate| &krate.targets);
    for target in targets.filter(|target| !target.is_test && !target.is_script) {
        for module in target.modules.iter().filter(|module| !module.is_test) {
            each_macro(module, |mac| {
                if !mac.path.is_ident("format") {
                    return;
                }
                let texts = literals(mac.tokens.clone()).into_iter();
                let debug = texts.filter(|(text, _)| text.contains(":?}"));
                findings.extend(debug.map(|(_, line)| {
                    let fix = "name the variants: strum, serde, or a `match`";
                    Finding::new(&module.file, line, "a text made of Debug output", fix)
                }));
            });
        }
    }
    findings
}
