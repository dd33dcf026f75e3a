//! Words that words.md bans: in Markdown, TOML and YAML, and in the comments and strings of Rust.
//!
//! The table below the heading `## Words` is the one definition. A row's first cell has phrases,
//! separated by commas, that count as whole words; a phrase in backticks is a regular expression
//! (`\|` for `|`, as in all tables). Case and line breaks do not matter. Text in backticks is code
//! and is not checked. `lint: allow(the words)` in the same line exempts them; exemptions are
//! counted and printed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::{Finding, Outcome};
use super::source::{Sources, prose};
use ignore::WalkBuilder;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the table is, relative to the workspace.
const STYLE: &str = "xtask/src/lint/words.md";
/// The heading above the table.
const HEADING: &str = "\n## Words\n";

/// A row of the table.
struct Banned {
    pattern: Regex,
    instead: String,
}

/// Adds the places with banned words, and the exempt ones, to `outcome`.
pub fn find(sources: &Sources, outcome: &mut Outcome) -> Result<()> {
    let style = fs::read_to_string(sources.root.join(STYLE)).into_diagnostic();
    let style = style.wrap_err_with(|| miette!("cannot read {STYLE}"))?;
    let banned = read_table(&style)?;
    let code = Regex::new("``[^`\n].*?``|`[^`\n]*`").into_diagnostic()?;
    let modules: BTreeMap<_, _> = sources
        .modules()
        .map(|module| (module.file.as_path(), &module.tokens))
        .collect();
    let walk = WalkBuilder::new(&sources.root)
        .hidden(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    for entry in walk {
        let path = entry.into_diagnostic()?.into_path();
        let file = path.strip_prefix(&sources.root).unwrap_or(&path);
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        if !["md", "toml", "yml", "yaml", "rs"].contains(&extension) {
            continue;
        }
        let source = fs::read_to_string(&path).into_diagnostic()?;
        // Telling prose from code takes longer than to see that there is nothing to look for.
        if !banned
            .iter()
            .any(|Banned { pattern, .. }| pattern.is_match(&source))
        {
            continue;
        }
        let text = match extension {
            // A file that no crate has is not checked.
            "rs" => match modules.get(file) {
                Some(tokens) => prose(&source, (*tokens).clone(), true),
                None => continue,
            },
            "md" if file == Path::new(STYLE) => {
                let table = table(&style).unwrap_or_default();
                source.replace(table, &"\n".repeat(table.matches('\n').count()))
            }
            _ => source.clone(),
        };
        let text = code.replace_all(&text, |found: &regex::Captures<'_>| {
            "`".repeat(found[0].len())
        });
        for Banned { pattern, instead } in &banned {
            for found in pattern.find_iter(&text) {
                let line = 1 + text[..found.start()].matches('\n').count();
                let words = found
                    .as_str()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                let is_exempt = source.lines().nth(line - 1).is_some_and(|line| {
                    let allowed = line
                        .split_once("lint: allow(")
                        .and_then(|(_, rest)| rest.split_once(')'));
                    allowed.is_some_and(|(allowed, _)| allowed.eq_ignore_ascii_case(&words))
                });
                let finding = Finding::new(
                    file,
                    line,
                    format!("\"{words}\""),
                    format!("write: {instead}"),
                );
                if is_exempt {
                    outcome.exempt.push(finding)
                } else {
                    outcome.findings.push(finding)
                }
            }
        }
    }
    Ok(())
}

/// The table and what else is below its heading.
fn table(style: &str) -> Option<&str> {
    let (_, rest) = style.split_once(HEADING)?;
    rest.split("\n## ").next()
}

fn read_table(style: &str) -> Result<Vec<Banned>> {
    let section =
        table(style).ok_or_else(|| miette!("{STYLE} has no heading `{}`", HEADING.trim()))?;
    let mut banned = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        // `\|` is a bar inside of a cell.
        let row = row.replace("\\|", "\0");
        let cells: Vec<String> = row
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().replace('\0', "|"))
            .collect();
        let [not, but, ..] = cells.as_slice() else {
            return Err(miette!("{STYLE}: a row has less than two cells: {row}"));
        };
        for (index, part) in not.split('`').enumerate() {
            let patterns: Vec<String> = match index % 2 {
                0 => {
                    let phrases = part
                        .split(',')
                        .map(str::trim)
                        .filter(|phrase| !phrase.is_empty());
                    phrases
                        .map(|phrase| format!(r"\b{}\b", regex::escape(phrase)))
                        .collect()
                }
                _ => vec![part.to_owned()],
            };
            for pattern in patterns {
                // Between two words there may be the end of a line, and the mark of the next line's
                // comment.
                let pattern = pattern.replace(' ', r"[\s/!#]+");
                let pattern = RegexBuilder::new(&pattern)
                    .case_insensitive(true)
                    .multi_line(true)
                    .build();
                let pattern = pattern
                    .into_diagnostic()
                    .wrap_err_with(|| miette!("{STYLE}: {not}"))?;
                banned.push(Banned {
                    pattern,
                    instead: but.clone(),
                });
            }
        }
    }
    if banned.is_empty() {
        Err(miette!("{STYLE} bans nothing"))
    } else {
        Ok(banned)
    }
}
