//! The accepted figures of `cloison bench`, each with the reason of its last change.
//!
//! The counts repeat exactly, so a test compares each with its line in [`FILE`], and a change of
//! one is a line in the same commit. Another compiler makes other instructions, and another QEMU
//! may raise interrupts at other instructions: with either of them, only aims can be compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::figures::{qemu_version, rustc_version};
use cloison_engine::installation;
use cloison_engine::text::grouped;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The file, by its path in a checkout.
pub const FILE: &str = "tests/expected/bench.toml";

/// The first lines of the file.
const HEAD: &str = "\
# What `cargo xtask bench` counts, and why each figure is what it is: the reason of its last \
                    change. A figure that changes
# fails a test. If the change is intended, run `cargo xtask bench --accept`, write the reasons \
                    that it leaves empty, and
# commit this file with what changed the figures.
";

/// The tools on which the counts depend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Tools {
    /// The compiler of the hypervisor and the guests.
    pub rustc: String,
    /// The emulator.
    pub qemu: String,
}

impl Tools {
    /// Returns those of this machine.
    pub fn of_this_machine() -> Self {
        Self {
            rustc: rustc_version(),
            qemu: qemu_version(),
        }
    }
}

/// An accepted figure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// Its value.
    pub count: u64,
    /// The reason of its last change; empty until its author writes it.
    pub reason: String,
}

/// All accepted figures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// With what they were counted.
    pub tools: Tools,
    /// The figures by name.
    pub figures: BTreeMap<String, Accepted>,
}

/// A part of the figures, which is measured at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The paths of the guest `bench`.
    Paths,
    /// The longest visits to EL2.
    Visits,
    /// A neighbor's interrupt latency.
    Latencies,
}

impl Part {
    fn of(figure: &str) -> Self {
        match figure {
            _ if figure.starts_with("max_el2_visit_") => Self::Visits,
            _ if figure.starts_with("latency_") => Self::Latencies,
            _ => Self::Paths,
        }
    }
}

impl Expected {
    /// Reads the checkout's file.
    pub fn read() -> Result<Self> {
        let text = std::fs::read_to_string(installation::root().join(FILE))
            .into_diagnostic()
            .wrap_err(FILE)?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).into_diagnostic().wrap_err(FILE)
    }

    /// Writes the checkout's file.
    pub fn write(&self) -> Result<()> {
        let path = installation::root().join(FILE);
        path.parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .into_diagnostic()?;
        std::fs::write(&path, self.to_text())
            .into_diagnostic()
            .wrap_err(FILE)
    }

    fn to_text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let Tools { rustc, qemu } = &self.tools;
        let mut text = format!(
            "{HEAD}\n[tools]\nrustc = {}\nqemu = {}\n\n[figures]\n",
            quoted(rustc),
            quoted(qemu)
        );
        for (name, Accepted { count, reason }) in &self.figures {
            let count = grouped(*count).replace(|digit: char| !digit.is_ascii_digit(), "_");
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name} = {{ count = {count}, reason = {} }}",
                quoted(reason)
            );
        }
        text
    }

    /// Returns the differences from these figures of one part, one line each, and the figures
    /// without a reason.
    pub fn differences(&self, part: Part, counts: &BTreeMap<String, u64>) -> Vec<String> {
        let accepted = self
            .figures
            .iter()
            .filter(|(name, _)| Part::of(name) == part);
        let mut lines: Vec<String> = accepted
            .filter_map(
                |(name, Accepted { count, reason })| match counts.get(name) {
                    None => Some(format!("{name}: not measured; accepted is {count}")),
                    Some(now) if now != count => {
                        let change = i128::from(*now) - i128::from(*count);
                        Some(format!("{name}: {now}; accepted is {count} ({change:+})"))
                    }
                    Some(_) if reason.trim().is_empty() => {
                        Some(format!("{name}: {count} has no reason yet"))
                    }
                    Some(_) => None,
                },
            )
            .collect();
        let new = counts
            .iter()
            .filter(|(name, _)| !self.figures.contains_key(*name));
        lines.extend(
            new.map(|(name, now)| format!("{name}: {now}; no figure of this name is accepted")),
        );
        lines
    }

    /// Accepts these figures and no others. An unchanged figure keeps its reason, the others get an
    /// empty one. Returns the names of the changed ones.
    pub fn accept(&mut self, counts: &BTreeMap<String, u64>, tools: Tools) -> Vec<String> {
        let before = std::mem::take(&mut self.figures);
        self.tools = tools;
        let mut changed = vec![];
        for (name, &count) in counts {
            let same = before
                .get(name)
                .filter(|accepted| accepted.count == count)
                .cloned();
            if same.is_none() {
                changed.push(name.clone());
            }
            self.figures.insert(
                name.clone(),
                same.unwrap_or_else(|| Accepted {
                    count,
                    reason: String::new(),
                }),
            );
        }
        changed
    }
}

/// Compares the figures of one part with the accepted ones. With other tools than theirs, reports
/// that and compares nothing.
///
/// # Errors
///
/// The differences, and how to accept them.
pub fn check(part: Part, counts: &BTreeMap<String, u64>) -> Result<()> {
    let expected = Expected::read()?;
    let tools = Tools::of_this_machine();
    if tools != expected.tools {
        let Tools { rustc, qemu } = &expected.tools;
        println!(
            "the accepted figures are of {rustc} and {qemu}, not of {tools:?}: only aims are \
             compared"
        );
        return Ok(());
    }
    let differences = expected.differences(part, counts);
    if differences.is_empty() {
        return Ok(());
    }
    Err(miette!(
        help = format!(
            "if this is intended: `cargo xtask bench --accept` rewrites {FILE}; write the reasons \
             that it leaves empty, and commit it with what changed the figures"
        ),
        "figures are not the accepted ones:\n{}",
        differences.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools {
            rustc: "rustc 1".into(),
            qemu: "QEMU \"2\"".into(),
        }
    }

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs
            .iter()
            .map(|&(name, count)| (name.to_owned(), count))
            .collect()
    }

    fn accepted() -> Expected {
        let mut expected = Expected {
            tools: tools(),
            figures: BTreeMap::new(),
        };
        let all = counts(&[
            ("migrate_page", 1_832),
            ("page_copy", 643),
            ("latency_alone", 554),
        ]);
        assert_eq!(expected.accept(&all, tools()).len(), 3);
        expected
            .figures
            .values_mut()
            .for_each(|figure| figure.reason = "as \"measured\" first".to_owned());
        expected
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let expected = accepted();
        assert!(
            expected
                .to_text()
                .contains("migrate_page = { count = 1_832, reason = ")
        );
        assert_eq!(
            Expected::parse(&expected.to_text()).expect("valid"),
            expected
        );
        assert!(Expected::parse("[figures]\n").is_err());
    }

    #[test]
    fn each_change_of_a_figure_is_a_difference_of_its_part() {
        let expected = accepted();
        let same = counts(&[("migrate_page", 1_832), ("page_copy", 643)]);
        assert_eq!(
            expected.differences(Part::Paths, &same),
            Vec::<String>::new()
        );
        let changed = counts(&[("migrate_page", 1_833), ("null_hypercall", 72)]);
        let lines = [
            "migrate_page: 1833; accepted is 1832 (+1)",
            "page_copy: not measured; accepted is 643",
            "null_hypercall: 72; no figure of this name is accepted",
        ];
        assert_eq!(expected.differences(Part::Paths, &changed), lines);
        let faster = counts(&[("latency_alone", 500)]);
        assert_eq!(
            expected.differences(Part::Latencies, &faster),
            ["latency_alone: 500; accepted is 554 (-54)"]
        );
    }

    #[test]
    fn a_change_is_accepted_once_its_reason_is_written() {
        let mut expected = accepted();
        let all = counts(&[("migrate_page", 5_346), ("page_copy", 643)]);
        assert_eq!(expected.accept(&all, tools()), ["migrate_page"]);
        assert_eq!(
            expected.figures["page_copy"].reason,
            "as \"measured\" first"
        );
        assert_eq!(
            expected.differences(Part::Paths, &all),
            ["migrate_page: 5346 has no reason yet"]
        );
        expected
            .figures
            .get_mut("migrate_page")
            .expect("accepted")
            .reason = "records leave in the call".into();
        assert!(expected.differences(Part::Paths, &all).is_empty());
        // What is no longer measured is gone.
        assert!(!expected.figures.contains_key("latency_alone"));
    }
}
