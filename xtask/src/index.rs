//! `docs/index.md`: the headings, fields, options and terms of all pages, by alphabet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::pages::Page;
use cloison_engine::installation;
use miette::{IntoDiagnostic, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Pages whose headings alone are entries: lists of names that have nothing to explain.
const HEADINGS_ALONE: [&str; 4] = [
    "dependencies.md",
    "imports.md",
    "modules.md",
    "papi-cases.md",
];
/// The heading below which the first column of a table has terms.
const GLOSSARY: &str = "Glossary";

/// An entry: its text, and where it is explained.
type Entries = BTreeMap<Term, BTreeSet<Place>>;

/// What is looked up, in the order of the index: without marks, numbers and articles, then as it is
/// written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    key: String,
    text: String,
}

impl Term {
    fn new(text: &str) -> Self {
        let lower = text.to_lowercase();
        let key = lower.trim_start_matches(|c: char| !c.is_alphabetic());
        let articles = ["a ", "an ", "the "];
        let key = articles
            .iter()
            .find_map(|article| key.strip_prefix(article))
            .unwrap_or(key)
            .trim_start_matches('`');
        Self {
            key: key.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Returns the letter under which the term is found: none for signs and numbers.
    fn letter(&self) -> Option<char> {
        self.key
            .chars()
            .next()
            .map(|first| first.to_ascii_uppercase())
    }
}

/// A heading of a page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The page, relative to `docs/`.
    page: String,
    /// Its heading; none for what is before the first one.
    heading: Option<String>,
}

impl Place {
    fn link(&self) -> String {
        let name = self.page.trim_end_matches(".md");
        match &self.heading {
            Some(heading) => format!(
                "[{name}: {}]({}#{})",
                plain(heading),
                self.page,
                anchor(heading)
            ),
            None => format!("[{name}]({})", self.page),
        }
    }
}

/// Returns the anchor of a heading, as GitHub makes it.
pub fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Returns the page. `made` has the pages that the same command writes; the others are read.
///
/// # Errors
///
/// Returns an error if a page cannot be read.
pub fn page(made: &[Page]) -> Result<Page> {
    let mut texts = BTreeMap::new();
    for folder in ["", "results/"] {
        let directory = installation::root().join("docs").join(folder);
        for entry in std::fs::read_dir(directory).into_diagnostic()? {
            let path = entry.into_diagnostic()?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".md") && name != "index.md" && name != "README.md" {
                let text = std::fs::read_to_string(&path).into_diagnostic()?;
                texts.insert(format!("{folder}{name}"), text);
            }
        }
    }
    for page in made {
        if let Some(name) = page.path.strip_prefix("docs/")
            && name.ends_with(".md")
        {
            texts.insert(name.to_owned(), page.text.clone());
        }
    }
    let mut entries = Entries::new();
    for (name, text) in &texts {
        collect(name, text, &mut entries);
    }
    Ok(Page {
        path: "docs/index.md".to_owned(),
        text: write(&entries),
    })
}

/// Adds the entries of a page.
fn collect(page: &str, text: &str, entries: &mut Entries) {
    let has_terms = !page.starts_with("results/") && !HEADINGS_ALONE.contains(&page);
    let mut heading = None;
    let mut is_code = false;
    let mut previous = "";
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let mut add = |term: &str, heading: Option<&str>| {
            let place = Place {
                page: page.to_owned(),
                heading: heading.map(str::to_owned),
            };
            entries.entry(Term::new(term)).or_default().insert(place);
        };
        if let Some(found) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            add(&plain(found), Some(found));
            heading = Some(found);
        } else if let Some(title) = line.strip_prefix("# ") {
            add(title, None);
        } else if has_terms {
            for term in terms(line, previous, heading) {
                add(&term, heading);
            }
        }
        previous = line;
    }
}

/// Returns the terms of a line: the name in a table's row, or what a paragraph or an item begins
/// with in bold.
fn terms(line: &str, previous: &str, heading: Option<&str>) -> Vec<String> {
    let bold = line.trim_start().trim_start_matches("- ");
    if let Some((term, _)) = bold
        .strip_prefix("**")
        .and_then(|rest| rest.split_once("**"))
    {
        // A sentence is no term.
        let is_term = term.split_whitespace().count() <= 5;
        return is_term
            .then(|| term.trim_end_matches(['.', ':']).to_owned())
            .into_iter()
            .collect();
    }
    let is_head = !previous.starts_with('|') || line.starts_with("| ---");
    let Some(row) = line.strip_prefix("| ").filter(|_| !is_head) else {
        return Vec::new();
    };
    // A bar in a cell is escaped.
    let row = row.replace("\\|", "\u{0}");
    let cells: Vec<&str> = row.split(" | ").collect();
    let restored = |text: &str| text.replace('\u{0}', "\\|");
    if heading == Some(GLOSSARY) {
        let cell = cells[0].split(" (").next().unwrap_or_default();
        return cell.split(", ").map(restored).collect();
    }
    if previous.is_empty() {
        return Vec::new();
    }
    // Some tables have a number first.
    let is_name = |cell: &&&str| {
        let values = ["`0x", "`\""];
        cell.starts_with('`') && !values.iter().any(|value| cell.starts_with(value))
    };
    let named = cells.iter().take(2).find(is_name);
    named
        .into_iter()
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|span| span.chars().filter(|c| c.is_alphabetic()).count() > 1)
        .map(|span| format!("`{}`", restored(span)))
        .collect()
}

/// Returns a heading without links and emphasis.
fn plain(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((name, after)) = after.split_once("](") else {
            break;
        };
        text.push_str(before);
        text.push_str(name);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text
}

fn write(entries: &Entries) -> String {
    let mut text = "\
# Index

Generated by `cargo xtask docs`: the headings of all pages, the names in their tables, and the terms of the
[glossary](style.md#glossary).
"
    .to_owned();
    let mut letter = None;
    for (term, places) in entries {
        if letter != Some(term.letter()) {
            letter = Some(term.letter());
            let name = term
                .letter()
                .map_or("Signs and numbers".to_owned(), String::from);
            let _ = write!(text, "\n## {name}\n\n| term | where |\n| --- | --- |\n");
        }
        let links: Vec<String> = places.iter().map(Place::link).collect();
        let _ = writeln!(text, "| {} | {} |", term.text, links.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_names_and_terms_are_entries() {
        let page = "\
# Title

**Clocks.** Each core has one. **Not this.**

```toml
# not a heading
```

## The `budget` field

| field | meaning |
| --- | --- |
| `up_to`, `most` | the ceiling |
| `0x12` | `BudgetSet` |
| plain | nothing |
| `\"1 ms\"` | a value |

## Glossary

| term | meaning |
| --- | --- |
| budget, period (of a quota) | events |
";
        let mut entries = Entries::new();
        collect("a.md", page, &mut entries);
        let text = write(&entries);
        for row in [
            "| Title | [a](a.md) |",
            "| Clocks | [a](a.md) |",
            "\n## B\n\n| term | where |\n| --- | --- |\n| budget |",
            "| The `budget` field | [a: The `budget` field](a.md#the-budget-field) |",
            "| `up_to` | [a: The `budget` field](a.md#the-budget-field) |",
            "| `most` |",
            "| `BudgetSet` |",
            "| budget | [a: Glossary](a.md#glossary) |",
            "| period |",
            "\n## U\n",
        ] {
            assert!(text.contains(row), "no {row} in\n{text}");
        }
        for wrong in [
            "not a heading",
            "Not this",
            "| plain",
            "`0x12`",
            "1 ms",
            "| field",
        ] {
            assert!(!text.contains(wrong), "{wrong} in\n{text}");
        }

        let mut elsewhere = Entries::new();
        collect("results/b.md", page, &mut elsewhere);
        assert_eq!(elsewhere.len(), 3, "headings alone: {elsewhere:?}");
    }
}
