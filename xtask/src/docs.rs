//! `cargo xtask docs`: the pages of `docs/` that are made from the sources.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::files::write_atomic;
use cloison_engine::installation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::collections::BTreeMap;
use toml::Table;

/// The page of all dependencies.
const DEPENDENCIES: &str = "docs/dependencies.md";

/// `cargo xtask docs`.
#[derive(Clone, Debug, clap::Args)]
pub struct DocsArgs {
    /// Change nothing, and fail if a page is out of date
    #[arg(long)]
    pub check: bool,
}

/// Runs `cargo xtask docs`.
pub fn docs(args: &DocsArgs) -> Result<()> {
    let page = dependencies()?;
    let path = installation::root().join(DEPENDENCIES);
    if std::fs::read_to_string(&path).is_ok_and(|found| found == page) {
        println!("{DEPENDENCIES} is up to date");
        return Ok(());
    }
    if args.check {
        return Err(miette!(
            help = "`cargo xtask docs` writes it",
            "{DEPENDENCIES} is out of date"
        ));
    }
    write_atomic(&path, page.as_bytes())?;
    println!("{DEPENDENCIES} written");
    Ok(())
}

/// The page of all dependencies: the crates' manifests, with the comment above each dependency as its reason.
///
/// # Errors
///
/// Returns an error if a manifest cannot be read, or a dependency has no reason.
pub fn dependencies() -> Result<String> {
    let read = |path: &str| -> Result<(String, Table)> {
        let text = std::fs::read_to_string(installation::root().join(path));
        let text = text
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot read {path}"))?;
        let table = text
            .parse()
            .into_diagnostic()
            .wrap_err_with(|| miette!("{path}"))?;
        Ok((text, table))
    };
    let (_, workspace) = read("Cargo.toml")?;
    let members = workspace["workspace"]["members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_str);
    let mut crates = BTreeMap::new();
    for member in members {
        let (text, table) = read(&format!("{member}/Cargo.toml"))?;
        let name = table["package"]["name"]
            .as_str()
            .unwrap_or(member)
            .to_owned();
        crates.insert(name, (text, table));
    }
    let descriptions = crates.iter().filter_map(|(name, (_, table))| {
        Some((
            name.as_str(),
            table["package"].get("description")?.as_str()?,
        ))
    });
    let descriptions: BTreeMap<&str, &str> = descriptions.collect();
    let mut page = "\
# Dependencies

Every direct dependency of every crate, and why it is there. `cargo xtask docs` makes this page from the comments in the
crates' `Cargo.toml` files. Versions are in those files and in `Cargo.lock`.
"
    .to_owned();
    for (name, (text, table)) in &crates {
        page.push_str(&format!("\n## {name}\n\n"));
        let rows = rows(name, text, table, &descriptions)?;
        match rows.is_empty() {
            true => page.push_str("None.\n"),
            false => page.push_str(&format!(
                "| crate | why |\n| --- | --- |\n{}",
                rows.concat()
            )),
        }
    }
    Ok(page)
}

/// The rows of one crate, the kinds of dependencies one after the other.
fn rows(
    name: &str,
    text: &str,
    table: &Table,
    descriptions: &BTreeMap<&str, &str>,
) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    for (kind, prefix) in [
        ("dependencies", ""),
        ("build-dependencies", "build only: "),
        ("dev-dependencies", "tests only: "),
    ] {
        let keys = table
            .get(kind)
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(Table::keys);
        let reasons = reasons(text, kind);
        for key in keys {
            let own = descriptions
                .get(key.as_str())
                .map(|text| (*text).to_owned());
            let reason = match (reasons.get(key.as_str()), own) {
                (Some((comment, Above::Directly)), _) | (Some((comment, _)), None) => {
                    Some(comment.clone())
                }
                (_, own) => own,
            };
            let reason = reason.ok_or_else(|| {
                miette!(
                    help = "write it as a comment above the dependency",
                    "{name} gives no reason for `{key}`"
                )
            })?;
            rows.push(format!("| `{key}` | {prefix}{} |\n", sentence(&reason)));
        }
    }
    Ok(rows)
}

/// A comment as part of a table row: without its full stop, and, unless it begins with a name, without a capital.
fn sentence(comment: &str) -> String {
    let text = comment.trim_end_matches('.').replace('|', "\\|");
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|first| first.to_lowercase().to_string())
        .unwrap_or_default();
    match text.chars().nth(1) {
        Some(second) if second.is_lowercase() || second == ' ' => first + letters.as_str(),
        _ => text,
    }
}

/// Where a comment is that holds for a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Above {
    /// On the line above it.
    Directly,
    /// Above another dependency that comes before it.
    Another,
}

/// The comments above the dependencies of one kind, by their names. A comment holds for all lines up to the next one;
/// crates of the workspace without their own comment are described by themselves.
fn reasons(manifest: &str, kind: &str) -> BTreeMap<String, (String, Above)> {
    let mut reasons = BTreeMap::new();
    let mut comment: Vec<&str> = Vec::new();
    let (mut within, mut is_open) = (false, false);
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            within = table.trim_end_matches(']') == kind;
            comment.clear();
        } else if let Some(text) = line.strip_prefix('#') {
            if !is_open {
                comment.clear();
            }
            comment.push(text.trim());
            is_open = true;
            continue;
        } else if let (true, Some((key, _))) = (within, line.split_once('=')) {
            let name = key.trim().split('.').next().unwrap_or_default().to_owned();
            if !comment.is_empty() {
                let above = if is_open {
                    Above::Directly
                } else {
                    Above::Another
                };
                reasons.insert(name, (comment.join(" "), above));
            }
        }
        is_open = false;
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_reasons() {
        let manifest = "[package]\n# no reason\nname = \"a\"\n[dependencies]\nown.workspace = true\n# First line,\n# and second.\nb = \"1\"\nc = \"2\"\n";
        let found = reasons(manifest, "dependencies");
        assert_eq!(found.get("own"), None);
        assert_eq!(
            found["b"],
            ("First line, and second.".to_owned(), Above::Directly)
        );
        assert_eq!(
            found["c"],
            ("First line, and second.".to_owned(), Above::Another)
        );
        assert_eq!(sentence(&found["b"].0), "first line, and second");
        assert_eq!(sentence("CRC-32 of frames."), "CRC-32 of frames");
    }
}
