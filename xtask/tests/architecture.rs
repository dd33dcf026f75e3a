//! docs/architecture.md matches the code; its picture and docs/modules.md are made from it.
//!
//! With `UPDATE_DOCS=1` in the environment the tests write the picture and docs/modules.md instead
//! of comparing them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

type Names = BTreeSet<String>;

/// The layers of the picture, from the top: folder in the EL2 image's sources or sources of a
/// crate, title, description. A module only uses modules of the same layer or of a lower one.
const LAYERS: [(&str, &str, &str); 7] = [
    (
        "start",
        "start",
        "from the boot loader's jump to the first guest",
    ),
    ("exits", "exits", "why a guest enters EL2"),
    (
        "vm",
        "vm",
        "what VMs and cores own, and what is done for guests",
    ),
    ("devices", "devices", "the board's devices"),
    ("machine", "machine", "the processor as EL2 uses it"),
    (
        LOGIC,
        "cloison-logic",
        "no hardware, no unsafe code: tested on the host",
    ),
    (FORMATS, "cloison-formats", "shared with the host"),
];
const EL2: &str = "hypervisor/src";
const LOGIC: &str = "hypervisor/logic/src";
const FORMATS: &str = "contracts/formats/src";

fn read(path: &str) -> String {
    let path = installation::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a file with what it should hold, or writes it.
#[track_caller]
fn hold(path: &str, expected: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(installation::root().join(path), expected).expect("the docs can be written");
    }
    assert!(
        read(path) == expected,
        "{path} is out of date: run this test with UPDATE_DOCS=1"
    );
}

/// A module's source without comments and tests.
fn code(directory: &str, module: &str) -> String {
    let text = read(&format!("{directory}/{module}.rs"));
    let text = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// The modules of a crate: its files, as `name` or `folder/name`. Folders that belong to a file of
/// their name hold parts of that module.
fn modules(directory: &str) -> Names {
    let mut found = Names::new();
    let directory = installation::root().join(directory);
    let entries = |path: &Path| -> Vec<_> {
        let listed =
            fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        listed
            .map(|entry| entry.expect("a directory entry").path())
            .collect()
    };
    let stem = |path: &Path| {
        path.file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    for path in entries(&directory) {
        if path.is_file() {
            found.insert(stem(&path));
        } else if !path.with_extension("rs").exists() {
            found.extend(
                entries(&path)
                    .iter()
                    .map(|file| format!("{}/{}", stem(&path), stem(file))),
            );
        }
    }
    found
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| c != '_' && !c.is_alphanumeric())
        .next()
        .unwrap_or_default()
}

/// What follows `prefix` in a source: `prefix::name` and the names on the first level of
/// `prefix::{...}`.
fn named_after(prefix: &str, source: &str) -> Names {
    let mut names = Names::new();
    for rest in source.split(&format!("{prefix}::")).skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(identifier(rest).to_owned());
            continue;
        };
        let mut depth = 0;
        let mut at_start = true;
        for (at, c) in list.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => at_start = true,
                _ if at_start && !c.is_whitespace() => {
                    names.insert(identifier(&list[at..]).to_owned());
                    at_start = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// Which modules of its crate each module uses.
fn uses(directory: &str) -> BTreeMap<String, Names> {
    let all = modules(directory);
    let folders: Names = all
        .iter()
        .filter_map(|name| Some(name.split_once('/')?.0.to_owned()))
        .collect();
    let of = |module: &String| {
        let source = code(directory, module);
        let mut used = named_after("crate", &source);
        for folder in &folders {
            let inside = named_after(&format!("crate::{folder}"), &source);
            used.extend(inside.iter().map(|name| format!("{folder}/{name}")));
        }
        used.retain(|name| all.contains(name) && name != module);
        (module.clone(), used)
    };
    all.iter().map(of).collect()
}

/// How far a module is from those of its layer that use no other of it. A circle is reported and
/// fails.
fn depth<'a>(
    module: &'a str,
    layer: &'a BTreeMap<String, Names>,
    path: &mut Vec<&'a str>,
) -> usize {
    assert!(
        !path.contains(&module),
        "a circle of modules: {} {module}",
        path.join(" ")
    );
    path.push(module);
    let used = layer[module]
        .iter()
        .filter_map(|other| layer.get_key_value(other));
    let deepest = used
        .map(|(other, _)| depth(other, layer, path) + 1)
        .max()
        .unwrap_or(0);
    path.pop();
    deepest
}

/// Each layer's modules by their names in the picture, with what each uses of it.
fn layers() -> Vec<BTreeMap<String, Names>> {
    let el2 = uses(EL2);
    let rank = |folder: &str| {
        LAYERS
            .iter()
            .position(|layer| layer.0 == folder)
            .unwrap_or_else(|| panic!("{folder} is in no layer"))
    };
    let folder = |module: &str| module.split_once('/').map(|(folder, _)| folder.to_owned());
    let inside = |of: &str| {
        let own = el2
            .iter()
            .filter(|(module, _)| folder(module).as_deref() == Some(of));
        own.map(|(module, used)| {
            for other in used {
                let other = folder(other)
                    .unwrap_or_else(|| panic!("{module} uses {other}, which starts it"));
                assert!(
                    rank(of) <= rank(&other),
                    "{module} uses {other}, which is above it"
                );
            }
            (module.clone(), used.clone())
        })
        .collect()
    };
    let whole = |directory: &str| {
        let mut all = uses(directory);
        all.remove("lib");
        all
    };
    el2.keys()
        .filter_map(|module| folder(module))
        .for_each(|folder| _ = rank(&folder));
    LAYERS
        .iter()
        .map(|(at, ..)| {
            if at.contains('/') {
                whole(at)
            } else {
                inside(at)
            }
        })
        .collect()
}

/// The picture: a band per layer, and in it a row per depth.
fn picture() -> String {
    const COLUMNS: usize = 6;
    let mut bands = String::new();
    let mut y = 56;
    for (layer, (_, title, note)) in layers().iter().zip(LAYERS) {
        let mut rows: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for module in layer.keys() {
            rows.entry(depth(module, layer, &mut Vec::new()))
                .or_default()
                .push(module);
        }
        let lines: Vec<&[&str]> = rows
            .values()
            .rev()
            .flat_map(|row| row.chunks(COLUMNS))
            .collect();
        let height = 24 + 48 * lines.len().max(1);
        let mut band =
            |text: std::fmt::Arguments| bands.write_fmt(text).expect("a string takes all");
        band(format_args!(
            "<g data-layer=\"{title}\"><rect class=\"layer\" x=\"20\" y=\"{y}\" width=\"1160\" height=\"{height}\" rx=\"8\"/>\n\
             <text class=\"title\" x=\"34\" y=\"{}\">{title}</text>\n",
            y + 26
        ));
        let mut line = String::new();
        let mut at = y + 46;
        for word in note.split(' ').chain(["\n"]) {
            if word == "\n" || line.len() + word.len() > 28 {
                band(format_args!(
                    "<text class=\"note\" x=\"34\" y=\"{at}\">{}</text>\n",
                    line.trim_end()
                ));
                line.clear();
                at += 17;
            }
            line.extend([word, " "]);
        }
        for (row, modules) in lines.iter().enumerate() {
            for (column, module) in modules.iter().enumerate() {
                let name = module.rsplit('/').next().unwrap_or_default();
                let (x, y) = (250 + 153 * column, y + 18 + 48 * row);
                band(format_args!(
                    "<g data-module=\"{title}.{name}\"><rect class=\"box\" x=\"{x}\" y=\"{y}\" \
                     width=\"143\" height=\"36\" rx=\"4\"/><text class=\"name\" x=\"{}\" \
                     y=\"{}\">{name}</text></g>\n",
                    x + 71,
                    y + 23
                ));
            }
        }
        band(format_args!("</g>\n"));
        y += height + 10;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 {y}\" width=\"1200\" height=\"{y}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n\
         <title>Modules of the hypervisor by layer</title>\n\
         <style>.layer{{fill:#eef2f7;stroke:#8899aa}}.box{{fill:#fff;stroke:#445}}.name{{font-size:14px;text-anchor:middle}}\
         .title{{font-size:15px;font-weight:bold;fill:#334}}.note{{font-size:13px;fill:#556}}</style>\n\
         <rect width=\"1200\" height=\"{y}\" fill=\"#fff\"/>\n\
         <text class=\"note\" x=\"20\" y=\"34\">A module uses only modules in rows below its own. The upper five layers \
         are the EL2 image; the others are separate crates.</text>\n{bands}</svg>\n"
    )
}

#[track_caller]
fn same(what: &str, page: &Names, code: &Names) {
    let missing: Vec<_> = code.difference(page).collect();
    let invented: Vec<_> = page.difference(code).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "{what}: not there {missing:?}, there but not so {invented:?}"
    );
}

#[test]
fn modules_use_only_what_is_below_them_and_the_picture_shows_it() {
    hold("docs/img/architecture.svg", &picture());
}

/// The cells of a page's table rows whose first cell is a name in backticks.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        .collect()
}

/// The part of a page under a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Why modules of the EL2 image may hold unsafe code, by the attributes in its `main.rs`. The
/// compiler refuses it in all others.
fn unsafe_modules() -> BTreeMap<String, String> {
    let main = code(EL2, "main");
    assert!(
        main.contains("\n#![deny(unsafe_code)]\n"),
        "the EL2 image does not deny unsafe code"
    );
    // rustfmt puts a long attribute on several lines.
    let main = main.split_whitespace().collect::<Vec<_>>().join(" ");
    let main = main.replace("#[allow( unsafe_code,", "#[allow(unsafe_code,");
    let mut found = BTreeMap::new();
    let attribute = "#[allow(unsafe_code, reason = \"";
    for (at, _) in main.match_indices(attribute) {
        let before = &main[..at];
        let rest = &main[at + attribute.len()..];
        let (reason, rest) = rest.split_once('"').expect("the reason ends");
        let (_, module) = rest.split_once("pub mod ").expect("a module follows");
        let name = identifier(module);
        let folders = before
            .match_indices("mod ")
            .filter(|(at, _)| !before[..*at].ends_with("pub "))
            .map(|(at, found)| identifier(&before[at + found.len()..]));
        let folder = folders.last().expect("a folder is open");
        found.insert(format!("{folder}/{name}"), reason.to_owned());
    }
    assert_eq!(
        found.len(),
        main.matches("unsafe_code").count() - 1,
        "an attribute is not in the form that this test reads"
    );
    found
}

/// The first sentence of a source's first comment, as a cell of a table.
fn purpose(text: &str) -> String {
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let comment = comment.join(" ");
    let sentence = comment.split(". ").next().unwrap_or_default();
    sentence.trim_end_matches('.').replace('|', "\\|")
}

/// The table row of a module: what it does by its first comment, what it uses, and why it is
/// unsafe.
fn module_row(module: &str, unsafe_modules: &BTreeMap<String, String>) -> String {
    let source = code(EL2, module);
    assert!(
        module == "main" || !source.contains("unsafe_code"),
        "`{module}` permits itself unsafe code"
    );
    let used: Vec<String> = ["formats", "logic"]
        .iter()
        .flat_map(|krate| named_after(&format!("cloison_{krate}"), &source))
        .map(|name| format!("`{name}`"))
        .collect();
    let used = if used.is_empty() {
        "–".to_owned()
    } else {
        used.join(" ")
    };
    let why = unsafe_modules.get(module).map_or("–", String::as_str);
    let what = purpose(&read(&format!("{EL2}/{module}.rs")));
    format!("| `{module}` | {what} | {used} | {why} |\n")
}

/// The table row of a crate: where it is, what it is by its manifest, and what it uses.
fn crate_row(name: &str, krate: &Crate, all: &BTreeMap<String, Crate>) -> String {
    let own = |names: &Names, mark: &str| -> Vec<String> {
        names
            .iter()
            .filter(|name| all.contains_key(*name))
            .map(|name| format!("`{name}`{mark}"))
            .collect()
    };
    let mut used = own(&krate.uses, "");
    let of_tests = krate.test_uses.difference(&krate.uses).cloned().collect();
    used.extend(own(&of_tests, " (tests)"));
    let used = if used.is_empty() {
        "–".to_owned()
    } else {
        used.join(", ")
    };
    let (folder, what) = (&krate.folder, &krate.description);
    format!("| `{name}` | {folder} | {what} | {used} |\n")
}

#[test]
fn the_page_of_crates_and_modules_is_that_of_the_code() {
    let crates = crates();
    let crate_rows: String = crates
        .iter()
        .map(|(name, krate)| crate_row(name, krate, &crates))
        .collect();
    let unsafe_modules = unsafe_modules();
    let module_rows: String = modules(EL2)
        .iter()
        .map(|module| module_row(module, &unsafe_modules))
        .collect();
    let page = format!(
        "\
# Crates and modules

Generated from the manifests and the sources by `UPDATE_DOCS=1 cargo test -p xtask --test
architecture`. [architecture.md](architecture.md) explains how the hypervisor works, and
[dependencies.md](dependencies.md) lists what comes from others.

## Crates

| crate | where | what it is | uses of the project |
| --- | --- | --- | --- |
{crate_rows}
## Modules of the EL2 image

The folders of `hypervisor/src` are [layers](img/architecture.svg). A module uses only modules in
rows of the picture below its own. Only the modules with a reason in the last column may hold unsafe
code.

| module | what it does | of `cloison_formats` and `cloison_logic` | why it holds unsafe code |
| --- | --- | --- | --- |
{module_rows}"
    );
    hold("docs/modules.md", &page);
}

#[test]
fn the_address_space_is_that_of_the_layout() {
    let page = read("docs/architecture.md");
    let of_page = rows(section(&page, "EL2's address space"));
    let of_page = of_page.iter().map(|row| {
        format!(
            "{} = {}",
            row[1].trim_matches('`'),
            row[0].trim_matches('`')
        )
    });
    let layout = code(EL2, "machine/layout");
    let constants = layout
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'));
    let bases = constants.filter_map(|constant| constant.split_once(": u64 = 0x"));
    let of_code = bases.map(|(name, value)| format!("{name} = 0x{value}"));
    same(
        "EL2's address space",
        &of_page.collect(),
        &of_code.collect(),
    );
}

/// A crate of the workspace.
struct Crate {
    /// Its folder.
    folder: String,
    /// What its manifest says that it is.
    description: String,
    /// The names of what it depends on, also to be built.
    uses: Names,
    /// The names of what its tests depend on.
    test_uses: Names,
}

/// Every crate of the workspace by its name.
fn crates() -> BTreeMap<String, Crate> {
    let parse = |path: &str| -> toml::Table {
        read(path)
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let workspace = parse("Cargo.toml");
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("a list");
    let mut found = BTreeMap::new();
    for member in members {
        let folder = member.as_str().expect("a path").to_owned();
        let manifest = parse(&format!("{folder}/Cargo.toml"));
        let names = |kinds: &[&str]| -> Names {
            kinds
                .iter()
                .filter_map(|kind| manifest.get(*kind)?.as_table())
                .flat_map(|table| table.keys().cloned())
                .collect()
        };
        let package = &manifest["package"];
        let description = package.get("description").and_then(toml::Value::as_str);
        let krate = Crate {
            description: description
                .unwrap_or_else(|| panic!("{folder} has no description"))
                .to_owned(),
            uses: names(&["dependencies", "build-dependencies"]),
            test_uses: names(&["dev-dependencies"]),
            folder,
        };
        let name = package["name"].as_str().expect("a name");
        found.insert(name.to_owned(), krate);
    }
    found
}
