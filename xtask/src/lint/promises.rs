//! The promises of SPECIFICATION.md: each names tests that are there and that run.
//!
//! A row of a table there is a promise: its name, a sentence, and in backticks what checks it, as
//! `PLACE::TEST`. A place is a file, a directory or a module around the test. `oracle:RULE` names a
//! rule of `cloison-spec`, which the oracle checks in every run that it watches. A row may say
//! *pending* instead, with the reason.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::{Finding, Outcome};
use super::source::{Module, Sources};
use cloison_spec::Rule;
use miette::{IntoDiagnostic, Result};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// Where the promises are.
const FILE: &str = "SPECIFICATION.md";
/// What a row without a check says.
const PENDING: &str = "pending: ";

/// A test, as the sources have it.
struct Test {
    /// The names of what is around it: directories, its file, and modules.
    places: Vec<String>,
    /// Whether it runs without being asked for.
    runs: bool,
}

/// Adds the promises that name no check, or one that is not there or does not run. Those that are
/// pending do not count.
pub fn find(sources: &Sources, outcome: &mut Outcome) -> Result<()> {
    let path = sources.root.join(FILE);
    if !path.is_file() {
        return Ok(());
    }
    let text = fs::read_to_string(path).into_diagnostic()?;
    let tests = tests(sources);
    let span = Regex::new("`([a-z0-9_]+)::([a-z0-9_]+)`").into_diagnostic()?;
    let rule = Regex::new("`oracle:([a-z0-9.-]+)`").into_diagnostic()?;
    for (at, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, _, checks] = cells[..] else {
            continue;
        };
        if !name.ends_with(|last: char| last.is_ascii_digit()) {
            continue;
        }
        let finding = |what: String, fix| Finding::new(Path::new(FILE), at + 1, what, fix);
        if let Some(reason) = checks.strip_prefix(PENDING) {
            let what = format!("{name} is pending: {reason}");
            outcome.exempt.push(finding(what, "check it"));
            continue;
        }
        let mut named = 0;
        for found in span.captures_iter(checks) {
            named += 1;
            let (place, test) = (&found[1], &found[2]);
            let here = tests.get(test).into_iter().flatten();
            let here: Vec<&Test> = here
                .filter(|it| it.places.iter().any(|at| at == place))
                .collect();
            let problem = if here.is_empty() {
                "there is no such test"
            } else if !here.iter().any(|test| test.runs) {
                "it runs only when asked for"
            } else {
                continue;
            };
            let what = format!("{name} is checked by `{place}::{test}`: {problem}");
            let fix = "name a test that `cargo xtask test` runs";
            outcome.findings.push(finding(what, fix));
        }
        for found in rule.captures_iter(checks) {
            named += 1;
            let id = &found[1];
            let fits = |rule: &&Rule| rule.id() == id && rule.promise() == name;
            if Rule::ALL.iter().find(fits).is_none() {
                let what =
                    format!("{name} is checked by `oracle:{id}`: there is no such rule for it");
                let fix = "name a rule of hypervisor/spec/src/rules.rs with this promise";
                outcome.findings.push(finding(what, fix));
            }
        }
        if named == 0 {
            let what = format!("nothing checks {name}");
            let fix = "name a test as `PLACE::TEST`, or say `pending: ` and why";
            outcome.findings.push(finding(what, fix));
        }
    }
    Ok(())
}

/// Returns all tests by name.
fn tests(sources: &Sources) -> BTreeMap<String, Vec<Test>> {
    let mut all = Collector::default();
    for module in sources.modules() {
        all.places = places(module);
        all.visit_file(&module.syntax);
    }
    all.tests
}

fn places(module: &Module) -> Vec<String> {
    let parts = module.file.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
    parts.chain(module.path.iter().cloned()).collect()
}

#[derive(Default)]
struct Collector {
    places: Vec<String>,
    tests: BTreeMap<String, Vec<Test>>,
}

impl Collector {
    fn add(&mut self, name: String, runs: bool) {
        let places = self.places.clone();
        self.tests
            .entry(name)
            .or_default()
            .push(Test { places, runs });
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.places.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.places.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let has = |name: &str| {
            let mut attributes = function.attrs.iter();
            attributes.any(|attribute| {
                attribute
                    .path()
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == name)
            })
        };
        // A loom model runs in another step, where `cfg(loom)` is set.
        let name = function.sig.ident.to_string();
        if has("test") || name.starts_with("loom_") {
            self.add(name, !has("ignore"));
        }
        visit::visit_item_fn(self, function);
    }

    /// Functions in `proptest!` are tests.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "proptest")
        {
            let tokens: Vec<_> = called.tokens.clone().into_iter().collect();
            for pair in tokens.windows(2) {
                if pair[0].to_string() == "fn" {
                    self.add(pair[1].to_string(), true);
                }
            }
        }
    }
}
