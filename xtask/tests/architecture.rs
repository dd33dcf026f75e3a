//! docs/architecture.md, its picture and docs/dependencies.md say what is so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use xtask::workspace;

type Names = BTreeSet<String>;

/// The rooms that the picture draws no arrow to: any other uses them.
const GROUND: &str = "ground";
/// The module whose uses the picture leaves out: it starts all others.
const START: &str = "main";

fn read(path: &str) -> String {
    let path = workspace::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A module's source without comments and tests.
fn code(directory: &str, module: &str) -> String {
    let text = read(&format!("{directory}/{module}.rs"));
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

/// The modules of a crate: its files.
fn modules(directory: &str) -> Names {
    let files = fs::read_dir(workspace::root().join(directory)).expect("the crate has sources");
    let paths = files.map(|file| file.expect("a directory entry").path());
    let stem = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.map(stem).collect()
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default()
}

/// What follows `prefix` in a source: `prefix::name` and the names on the first level of `prefix::{...}`.
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
    let of = |module: &String| {
        let mut used = named_after("crate", &code(directory, module));
        used.retain(|name| all.contains(name) && name != module);
        (module.clone(), used)
    };
    all.iter().map(of).collect()
}

/// The values of an attribute in the picture, in their order.
fn attributes<'a>(picture: &'a str, name: &str) -> Vec<&'a str> {
    let opening = format!("{name}=\"");
    let parts = picture.split(opening.as_str()).skip(1);
    parts.map(|rest| rest.split('"').next().unwrap_or_default()).collect()
}

/// The picture's rooms with their modules, then the modules of the core crate.
fn boxes(picture: &str) -> (BTreeMap<String, String>, Names) {
    let (mut rooms, mut core) = (BTreeMap::new(), Names::new());
    for part in picture.split("data-room=\"").skip(1) {
        let room = part.split('"').next().unwrap_or_default();
        for module in attributes(part, "data-module") {
            if let Some(name) = module.strip_prefix("el2.") {
                assert_eq!(rooms.insert(name.to_owned(), room.to_owned()), None, "{name} is in the picture twice");
            }
        }
    }
    for module in attributes(picture, "data-module") {
        let label = module.split('.').nth(1).unwrap_or_default();
        assert!(picture.contains(&format!(">{label}</text>")), "the box of {module} has another name on it");
        core.extend(module.strip_prefix("core.").map(str::to_owned));
    }
    (rooms, core)
}

fn arrows(picture: &str) -> Names {
    let pairs = attributes(picture, "data-uses");
    pairs.iter().flat_map(|pairs| pairs.split(' ')).map(|pair| pair.replace("&gt;", " uses ")).collect()
}

#[track_caller]
fn same(what: &str, page: &Names, code: &Names) {
    let missing: Vec<_> = code.difference(page).collect();
    let invented: Vec<_> = page.difference(code).collect();
    assert!(missing.is_empty() && invented.is_empty(), "{what}: not there {missing:?}, there but not so {invented:?}");
}

#[test]
fn the_picture_has_every_module_and_every_use() {
    let picture = read("docs/img/architecture.svg");
    let (rooms, core) = boxes(&picture);
    same("hypervisor modules in the picture", &rooms.keys().cloned().collect(), &modules("hypervisor/src"));
    let mut core_modules = modules("hypervisor/core/src");
    core_modules.remove("lib");
    same("core modules in the picture", &core, &core_modules);

    let mut expected = Names::new();
    for (module, used) in uses("hypervisor/src").iter().filter(|(module, _)| *module != START) {
        for other in used {
            let (from, to) = (&rooms[module], &rooms[other]);
            if from != to && to != GROUND {
                expected.insert(format!("{from} uses {to}"));
            }
        }
    }
    for (module, used) in uses("hypervisor/core/src") {
        expected.extend(used.iter().map(|other| format!("core.{module} uses core.{other}")));
    }
    same("arrows of the picture", &arrows(&picture), &expected);
}

/// The cells of a page's table rows whose first cell is a name in backticks.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    page.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

fn in_backticks(cell: &str) -> Names {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The part of a page under a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn the_module_table_is_true() {
    let page = read("docs/architecture.md");
    let mut listed = Names::new();
    for row in rows(section(&page, "Modules")) {
        let module = row[0].trim_matches('`').to_owned();
        let source = code("hypervisor/src", &module);
        same(&format!("core modules of `{module}`"), &in_backticks(&row[2]), &named_after("cloison_core", &source));
        // Attributes such as `#[unsafe(no_mangle)]` are not unsafe code.
        let is_unsafe = source.split("unsafe").skip(1).any(|rest| rest.starts_with(' '));
        assert_eq!(
            row[3] != "–",
            is_unsafe,
            "`{module}`: does it hold unsafe code, and why? The page says: {}",
            row[3]
        );
        listed.insert(module);
    }
    same("modules in the table", &listed, &modules("hypervisor/src"));
}

#[test]
fn the_address_space_is_that_of_the_layout() {
    let page = read("docs/architecture.md");
    let of_page = rows(section(&page, "EL2's address space"));
    let of_page = of_page.iter().map(|row| format!("{} = {}", row[1].trim_matches('`'), row[0].trim_matches('`')));
    let layout = code("hypervisor/src", "layout");
    let constants = layout.lines().filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'));
    let bases = constants.filter_map(|constant| constant.split_once(": u64 = 0x"));
    let of_code = bases.map(|(name, value)| format!("{name} = 0x{value}"));
    same("EL2's address space", &of_page.collect(), &of_code.collect());
}

/// Every crate of the workspace: its name and the names of what it depends on.
fn manifests() -> BTreeMap<String, Names> {
    let parse = |path: &str| -> toml::Table { read(path).parse().unwrap_or_else(|error| panic!("{path}: {error}")) };
    let workspace = parse("Cargo.toml");
    let members = workspace["workspace"]["members"].as_array().expect("a list");
    let mut found = BTreeMap::new();
    for member in members {
        let manifest = parse(&format!("{}/Cargo.toml", member.as_str().expect("a path")));
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        let tables = tables.iter().filter_map(|name| manifest.get(*name)?.as_table());
        let name = manifest["package"]["name"].as_str().expect("a name");
        found.insert(name.to_owned(), tables.flat_map(|table| table.keys().cloned()).collect());
    }
    found
}

#[test]
fn every_dependency_has_its_reason() {
    let page = read("docs/dependencies.md");
    for (name, dependencies) in manifests() {
        let rows = rows(section(&page, &name));
        let listed = rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
        same(&format!("dependencies of {name}"), &listed, &dependencies);
        for row in &rows {
            assert!(row[1].len() >= 8, "{name}: why {}?", row[0]);
        }
    }
}

#[test]
fn crates_use_each_other_as_the_table_says() {
    let page = read("docs/architecture.md");
    let manifests = manifests();
    let rows = rows(section(&page, "Crates"));
    for row in &rows {
        let name = row[0].trim_matches('`');
        let mut own = manifests.get(name).unwrap_or_else(|| panic!("there is no crate {name}")).clone();
        own.retain(|dependency| manifests.contains_key(dependency));
        same(&format!("what {name} uses"), &in_backticks(&row[3]), &own);
        let at = format!("{}/Cargo.toml", row[1]);
        assert!(read(&at).contains(&format!("name = \"{name}\"")), "{name} is not in {}", row[1]);
    }
    let listed = rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    same("crates in the table", &listed, &manifests.keys().cloned().collect());
}

#[test]
fn the_index_and_the_links_lead_somewhere() {
    let docs = workspace::root().join("docs");
    let index = read("docs/README.md");
    for file in fs::read_dir(&docs).expect("docs is there") {
        let path = file.expect("a directory entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "docs/README.md has no line for {name}");
        let page = fs::read_to_string(&path).expect("a page is text");
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            assert!(docs.join(target).exists(), "docs/{name} points to {target}, which is not there");
        }
    }
}
