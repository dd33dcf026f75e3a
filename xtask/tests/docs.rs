//! The pages of `docs/`: generated ones match their command's output, links lead somewhere, and
//! names in code spans exist.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::pages::Page;
use xtask::{docs, index, results};

/// Pages that are generated, and that explain nothing.
const GENERATED: [&str; 9] = [
    "board-files.md",
    "calls.md",
    "commands.md",
    "dependencies.md",
    "imports.md",
    "index.md",
    "modules.md",
    "papi-cases.md",
    "telemetry-format.md",
];
/// How many words all pages together may have that explain something.
const WORDS: usize = 45_000;

fn read(path: &str) -> String {
    let path = installation::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages of a directory, by their paths in the checkout.
fn pages_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(installation::root().join(directory)).expect("the directory");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("a directory entry").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("{directory}/{name}"))
        .collect();
    found.sort();
    found
}

/// All pages that users read, by their paths in the checkout.
fn pages() -> Vec<String> {
    let mut all = pages_in("docs");
    all.extend(pages_in("docs/results"));
    for page in ["README.md", "CONTRIBUTING.md", "SECURITY.md"] {
        all.push(page.to_owned());
    }
    all
}

#[track_caller]
fn is_current(page: &Page, command: &str) {
    assert!(
        read(&page.path) == page.text,
        "{} is out of date: run `cargo xtask {command}`",
        page.path
    );
}

#[test]
fn generated_pages_are_those_of_the_sources() {
    let pages = docs::pages().expect("every dependency has its reason");
    for expected in [
        "| `demo`",
        "| `model validate`",
        "| `lint ",
        "`clap`",
        "## HemRecord",
    ] {
        let is_there = pages.iter().any(|page| page.text.contains(expected));
        assert!(is_there, "no page has {expected}");
    }
    for page in pages {
        is_current(&page, "docs");
    }
}

#[test]
fn the_pages_of_results_are_those_of_the_kept_data() {
    for page in results::pages().expect("the kept data can be read") {
        is_current(&page, "results");
    }
}

/// Every page is in the index, and the index is the only one.
#[test]
fn the_index_has_every_page() {
    let index = read("docs/README.md");
    for page in pages_in("docs") {
        let name = page.trim_start_matches("docs/");
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "docs/README.md has no line for {name}"
        );
    }
    assert!(index.contains("](results/README.md)"));
}

#[test]
fn the_readmes_configuration_is_valid_and_its_figures_are_those_of_the_picture() {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("```toml\n").expect("a configuration");
    let (text, _) = rest.split_once("```").expect("its end");
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("pair.toml");
    fs::write(&path, text).expect("the configuration can be written");
    let loaded = cloison_engine::configuration::load(&path, None);
    assert!(loaded.is_ok(), "{:?}", loaded.err());

    let demo = read("docs/results/demo.json");
    let demo: serde_json::Value = serde_json::from_str(&demo).expect("the demo's figures");
    for case in ["interf", "quota", "migration"] {
        let slowdown = &demo["figures"][format!("{case}_slowdown")];
        let slowdown = slowdown.as_f64().expect("a figure");
        let shown = format!("{slowdown:.1} times");
        assert!(readme.contains(&shown), "the README does not say {shown}");
    }
}

#[test]
fn pages_that_explain_have_no_more_words_than_agreed() {
    let explaining = pages_in("docs")
        .into_iter()
        .filter(|page| !GENERATED.contains(&page.trim_start_matches("docs/")));
    let counts: Vec<(usize, String)> = explaining
        .chain(["README.md".to_owned()])
        .map(|page| (read(&page).split_whitespace().count(), page))
        .collect();
    let sum: usize = counts.iter().map(|(words, _)| words).sum();
    assert!(
        sum <= WORDS,
        "{sum} words, and {WORDS} are allowed: {counts:?}"
    );
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    prose(page)
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| index::anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    let root = installation::root();
    for page in pages() {
        let text = read(&page);
        let folder = Path::new(&page).parent().expect("a page is in a folder");
        let prose = prose(&text);
        let targets = prose
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|target| !target.contains("://"));
        for target in targets {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file: PathBuf = if path.is_empty() {
                root.join(&page)
            } else {
                root.join(folder).join(path)
            };
            assert!(
                file.exists(),
                "{page} points to {target}, which is not there"
            );
            if !anchor.is_empty() {
                let target_page = fs::read_to_string(&file).expect("a page is text");
                assert!(
                    anchors(&target_page).contains(anchor),
                    "{page} points to {target}, which has no such heading"
                );
            }
        }
    }
}

/// The code spans of a page.
fn spans(page: &str) -> Vec<String> {
    prose(page)
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The folders of a checkout in which a path in a page begins.
const FOLDERS: [&str; 11] = [
    "configs/",
    "contracts/",
    "docs/",
    "guest-tools/",
    "host-tools/",
    "hypervisor/",
    "profiles/",
    "tests/",
    "xtask/",
    ".github/",
    ".ci/",
];

/// Whether a span is a path that has to be there: not a pattern, nor what a user makes.
fn is_path(span: &str) -> bool {
    let is_plain = span
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let has_placeholder = span
        .split(['/', '.'])
        .any(|part| part.chars().any(|c| c.is_ascii_uppercase()) && part == part.to_uppercase());
    is_plain && !has_placeholder && FOLDERS.iter().any(|folder| span.starts_with(folder))
}

#[test]
fn paths_in_code_spans_are_there() {
    let root = installation::root();
    let mut missing = Vec::new();
    for page in pages() {
        for span in spans(&read(&page)).into_iter().filter(|span| is_path(span)) {
            if !root.join(&span).exists() {
                missing.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(missing.is_empty(), "not there: {missing:#?}");
}

/// All sources of EL2 and of what it shares: the paths of modules, and the text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in [
        "hypervisor/src",
        "hypervisor/logic/src",
        "contracts/formats/src",
    ] {
        let mut open = vec![installation::root().join(directory)];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).expect("a folder of sources") {
                let path = entry.expect("a directory entry").path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).expect("a source is text");
                    let module = path.with_extension("").to_string_lossy().into_owned();
                    found.push((module, text));
                }
            }
        }
    }
    found
}

/// Whether a text defines this name.
fn defines(text: &str, name: &str) -> bool {
    let kinds = [
        "fn ", "struct ", "enum ", "const ", "static ", "mod ", "trait ", "type ",
    ];
    kinds.iter().any(|kind| {
        text.match_indices(&format!("{kind}{name}"))
            .any(|(at, found)| {
                let rest = &text[at + found.len()..];
                !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric())
            })
    })
}

/// The files of each change that CONTRIBUTING.md describes: as few as it promises, and with what it
/// says is there.
#[test]
fn changes_take_the_files_that_are_listed() {
    let page = read("CONTRIBUTING.md");
    let (_, section) = page
        .split_once("## Where to change what")
        .expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows = section.lines().filter(|line| line.starts_with("| a "));
    let mut changes = 0;
    for row in rows {
        let parts: Vec<&str> = row.split('`').collect();
        let files = parts.iter().skip(1).step_by(2);
        let files = files.filter(|span| is_path(span)).count();
        assert!((2..=3).contains(&files), "{files} files: {row}");
        // A file, and in parentheses what it has: `FILE` (`NAME`).
        for three in parts.windows(3).filter(|three| three[1] == " (") {
            let [file, _, name] = three else { continue };
            assert!(defines(&read(file), name), "{file} has no {name}");
            changes += 1;
        }
    }
    assert_eq!(changes, 8, "the definitions that the table names");
}

/// `module::name` in the page about the hypervisor: a module of that name defines it, or has a
/// field of that name if the first part is a type.
#[test]
fn names_in_the_page_of_the_architecture_are_in_the_sources() {
    let sources = sources();
    let mut missing = Vec::new();
    for span in spans(&read("docs/architecture.md")) {
        let Some((path, name)) = span.rsplit_once("::") else {
            continue;
        };
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        };
        let owner = path.rsplit("::").next().unwrap_or_default();
        if !is_name(name) || !is_name(owner) {
            continue;
        }
        let is_crate = owner.starts_with("cloison");
        let found = sources.iter().any(|(module, text)| {
            let is_module = module.ends_with(&format!("/{owner}"));
            if is_crate {
                module.ends_with(&format!("/{name}")) || defines(text, name)
            } else {
                let has_owner = is_module || defines(text, owner);
                has_owner && (defines(text, name) || text.contains(&format!("{name}:")))
            }
        });
        let is_test = path == "quota" || path == "leases";
        if !found && !is_test {
            missing.push(span);
        }
    }
    assert!(missing.is_empty(), "not in the sources: {missing:?}");
}
