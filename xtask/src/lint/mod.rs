//! `cargo xtask lint`: the house rules that rustfmt, clippy and the compiler do not check.
//!
//! | module | rules |
//! | --- | --- |
//! | `circles` | modules of a crate do not use each other in a circle |
//! | `registers` | system registers are typed: no names in strings, no shifts outside the syndrome module |
//! | `unsafety` | unsafe code is in the modules that the compiler allows it in |
//! | `visits` | what may wait at EL2 begins where a core enters EL2 |
//! | `promises` | SPECIFICATION.md names checks that are there and run |
//! | `shape` | the size of crates, first lines, texts made of Debug output |
//! | `words` | the banned words of words.md |
//! | `finding` | the rules by name, and what they find |
//! | `source` | the crates, modules and files that the rules look at |
// SPDX-License-Identifier: MIT OR Apache-2.0

mod circles;
mod finding;
mod promises;
mod registers;
mod shape;
mod source;
mod unsafety;
mod visits;
mod words;

use clap::ValueEnum;
use cloison_engine::figures::Figures;
use cloison_engine::installation;
pub use finding::{Finding, Outcome, Rule};
use miette::Result;
use source::Sources;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// `cargo xtask lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    /// Check only these rules
    #[arg(value_enum, value_name = "RULE")]
    pub rules: Vec<Rule>,
    /// Write the figures here too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Checks the workspace at `root` against `rules`; all of them if there are none.
///
/// # Errors
/// The workspace cannot be read, or a file of it is not Rust.
pub fn check(root: &Path, rules: &[Rule]) -> Result<Vec<Outcome>> {
    let sources = Sources::read(root)?;
    let rules = if rules.is_empty() {
        Rule::value_variants()
    } else {
        rules
    };
    rules
        .iter()
        .map(|rule| check_one(*rule, &sources))
        .collect()
}

fn check_one(rule: Rule, sources: &Sources) -> Result<Outcome> {
    let mut outcome = Outcome::of(rule);
    match rule {
        Rule::Circles => outcome.findings = circles::find(sources),
        Rule::Share => shape::share(sources, &mut outcome)?,
        Rule::RegisterStrings => outcome.findings = registers::strings(sources),
        Rule::RegisterShifts => outcome.findings = registers::shifts(sources),
        Rule::UnsafePlaces => outcome.findings = unsafety::places(sources)?,
        Rule::Visits => outcome.findings = visits::find(sources),
        Rule::Promises => promises::find(sources, &mut outcome)?,
        Rule::Words => words::find(sources, &mut outcome)?,
        Rule::Headers => outcome.findings = shape::headers(sources),
        Rule::DebugTexts => outcome.findings = shape::debug_texts(sources),
    }
    if rule != Rule::Share {
        outcome.count = outcome.findings.len() as f64;
    }
    outcome
        .findings
        .sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(outcome)
}

/// Prints each finding and a table of the rules. Returns how many rules are broken.
pub fn print(outcomes: &[Outcome]) -> usize {
    for outcome in outcomes {
        for finding in &outcome.findings {
            println!("{finding} [{}]", outcome.rule);
        }
        for finding in &outcome.exempt {
            println!("{finding} [{}, exempt]", outcome.rule);
        }
    }
    println!(
        "\n{:<18} {:>8} {:>8} {:>8}  verdict",
        "rule", "count", "limit", "exempt"
    );
    for outcome in outcomes {
        let Outcome {
            rule,
            count,
            exempt,
            ..
        } = outcome;
        let verdict = if outcome.passes() { "ok" } else { "FAILED" };
        let digits = usize::from(*rule == Rule::Share);
        println!(
            "{rule:<18} {count:>8.digits$} {:>8} {:>8}  {verdict}",
            rule.limit(),
            exempt.len()
        );
    }
    outcomes.iter().filter(|outcome| !outcome.passes()).count()
}

/// Runs `cargo xtask lint`: prints the output of [`print()`]; fails if a rule is broken.
///
/// # Errors
///
/// As [`check`], or the figures cannot be written.
pub fn lint(args: &LintArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let outcomes = check(&installation::root(), &args.rules)?;
    let failed = print(&outcomes);
    println!(
        "\n{failed} of {} rules broken, in {:.1} s",
        outcomes.len(),
        started.elapsed().as_secs_f64()
    );
    let mut figures = Figures::new("lint");
    for Outcome {
        rule,
        count,
        exempt,
        ..
    } in &outcomes
    {
        let name = rule.to_string().replace('-', "_");
        figures
            .value(format!("{name}_count"), *count)
            .value(format!("{name}_limit"), rule.limit());
        figures.count(format!("{name}_exempt"), exempt.len() as u64);
    }
    figures.count("rules_broken", failed as u64);
    figures.write(args.json.as_deref())?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
