//! Changes to a system's TOML: paths, values with placeholders, and their application.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::IntoDiagnostic;
pub use toml::Value;
use toml::value::Table;

/// The position of a value in a system: `vm.victim.profile.top`. In a list of tables a name selects
/// the table with that name; `interf-*` selects all whose names start so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(Vec<String>);

impl Path {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(format!("`{text}` is no path"));
        }
        Ok(Self(parts))
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == name, |start| name.starts_with(start))
}

fn name_of(value: &Value) -> &str {
    value
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the tables that the first parts of a path select, level by level.
fn descend<'a>(value: &'a mut Value, parts: &[String], found: &mut Vec<&'a mut Value>) {
    let Some((part, rest)) = parts.split_first() else {
        found.push(value);
        return;
    };
    match value {
        Value::Table(table) => {
            if let Some(next) = table.get_mut(part) {
                descend(next, rest, found);
            }
        }
        Value::Array(list) => {
            for next in list.iter_mut().filter(|next| matches(part, name_of(next))) {
                descend(next, rest, found);
            }
        }
        _ => {}
    }
}

/// Returns the values at a path, in every table that its head selects; a number selects an element
/// of a list.
pub fn get<'a>(system: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let mut found = vec![system];
    for part in path.split('.') {
        let mut next = vec![];
        for value in found {
            match (value, part.parse::<usize>()) {
                (Value::Table(table), _) => next.extend(table.get(part)),
                (Value::Array(list), Ok(index)) => next.extend(list.get(index)),
                (Value::Array(list), Err(_)) => {
                    next.extend(list.iter().filter(|value| matches(part, name_of(value))));
                }
                _ => {}
            }
        }
        found = next;
    }
    found.into_iter()
}

/// Sets the value at a path, in every table that its head selects.
pub fn set(system: &mut Value, path: &Path, new: &Value) -> Result<(), String> {
    let Some((last, head)) = path.0.split_last() else {
        return Err("an empty path".into());
    };
    let mut found = vec![];
    descend(system, head, &mut found);
    if found.is_empty() {
        return Err(format!("the system has no `{}`", head.join(".")));
    }
    for place in found {
        let Value::Table(table) = place else {
            return Err(format!("`{}` is no table", head.join(".")));
        };
        table.insert(last.clone(), new.clone());
    }
    Ok(())
}

/// Removes the value at a path; it must exist.
pub fn remove(system: &mut Value, path: &Path) -> Result<(), String> {
    let Some((last, head)) = path.0.split_last() else {
        return Err("an empty path".into());
    };
    let mut found = vec![];
    descend(system, head, &mut found);
    let mut removed = false;
    for place in found {
        match place {
            Value::Table(table) => removed |= table.remove(last).is_some(),
            Value::Array(list) => {
                let before = list.len();
                list.retain(|next| !matches(last, name_of(next)));
                removed |= list.len() != before;
            }
            _ => {}
        }
    }
    if removed {
        Ok(())
    } else {
        Err(format!("the system has no `{path}` to remove"))
    }
}

/// Returns a system whose text is that of a file, with absolute paths, because the text will move to
/// another directory.
///
/// # Errors
///
/// If the text is not TOML.
pub fn anchored(text: &str, file: &std::path::Path) -> miette::Result<Value> {
    let mut system = toml::from_str(text).into_diagnostic()?;
    anchor(
        &mut system,
        file.parent().unwrap_or(std::path::Path::new(".")),
    );
    Ok(system)
}

/// Makes the relative paths in a system absolute.
fn anchor(system: &mut Value, base: &std::path::Path) {
    let base = std::path::absolute(base).unwrap_or_else(|_| base.to_path_buf());
    anchor_below("", system, &base);
    if let Some(Value::String(board)) = system
        .as_table_mut()
        .and_then(|table| table.get_mut("board"))
    {
        // A board of this name next to the system comes before a shipped one.
        let own = base.join("boards").join(format!("{board}.toml"));
        if board.ends_with(".toml") {
            *board = base.join(&board).display().to_string();
        } else if own.is_file() {
            *board = own.display().to_string();
        }
    }
}

/// Makes the relative paths in a value absolute, for a value that will be set at `path`.
pub fn anchor_at(path: &Path, value: &mut Value, base: &std::path::Path) {
    let mut parts = path.0.iter().rev();
    let last = parts.next().map_or("", String::as_str);
    anchor_value(parts.next().map_or("", String::as_str), last, value, base);
}

/// Returns whether a key of a table is the path of a file, or of several.
fn is_path(table: &str, key: &str) -> bool {
    key == "file" || table == "image" && ["kernel", "initrd", "programs"].contains(&key)
}

fn anchor_value(table: &str, key: &str, value: &mut Value, base: &std::path::Path) {
    match value {
        Value::String(text) if is_path(table, key) => {
            *text = base.join(&text).display().to_string()
        }
        Value::Array(list) if is_path(table, key) => {
            list.iter_mut()
                .for_each(|value| anchor_value(table, key, value, base));
        }
        other => anchor_below(key, other, base),
    }
}

fn anchor_below(name: &str, value: &mut Value, base: &std::path::Path) {
    match value {
        Value::Table(table) => table
            .iter_mut()
            .for_each(|(key, value)| anchor_value(name, key, value, base)),
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| anchor_below(name, value, base)),
        _ => {}
    }
}

/// The values of the axes at one point.
#[derive(Clone, Debug, Default)]
pub struct Scope(Table);

impl Scope {
    /// Returns the point with one more axis.
    pub fn with(&self, axis: &str, value: &Value) -> Self {
        let mut table = self.0.clone();
        table.insert(axis.to_owned(), value.clone());
        Self(table)
    }

    /// Returns `value` with its placeholders filled in. A string that consists of a single
    /// placeholder becomes that value.
    pub fn fill(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.fill_text(text)?,
            Value::Array(list) => Value::Array(
                list.iter()
                    .map(|value| self.fill(value))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Table(table) => {
                let filled = table
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.fill(value)?)));
                Value::Table(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    fn fill_text(&self, text: &str) -> Result<Value, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let close = rest[open..]
                .find('}')
                .ok_or_else(|| format!("`{text}` has no closing brace"))?
                + open;
            let value = self.look_up(&rest[open + 1..close])?;
            if open == 0 && close + 1 == rest.len() && filled.is_empty() {
                return Ok(value);
            }
            filled.push_str(&rest[..open]);
            match value {
                Value::String(value) => filled.push_str(&value),
                other => filled.push_str(&other.to_string()),
            }
            rest = &rest[close + 1..];
        }
        filled.push_str(rest);
        Ok(Value::String(filled))
    }

    fn look_up(&self, placeholder: &str) -> Result<Value, String> {
        let unknown = || format!("there is no axis for `{{{placeholder}}}`");
        if let Some(value) = self.0.get(placeholder) {
            return Ok(value.clone());
        }
        if let Some((axis, key)) = placeholder.split_once('.') {
            let value = self.0.get(axis).ok_or_else(unknown)?;
            return value.get(key).cloned().ok_or_else(|| match value {
                Value::Table(values) => {
                    let known: Vec<&str> = values.keys().map(String::as_str).collect();
                    format!(
                        "the values of axis `{axis}` have no `{key}`: they have {}",
                        known.join(", ")
                    )
                }
                _ => format!(
                    "the values of axis `{axis}` are no tables: write {{ label = ..., {key} = \
                     ... }} for each"
                ),
            });
        }
        let at = placeholder.rfind(['+', '-']).ok_or_else(unknown)?;
        let number = self
            .0
            .get(&placeholder[..at])
            .and_then(Value::as_integer)
            .ok_or_else(unknown)?;
        let offset: i64 = placeholder[at..].parse().map_err(|_| unknown())?;
        Ok(Value::Integer(number + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> Value {
        let text = "
            [[pool]]
            name = 'sh'
            colors = '0-14'
            [[vm]]
            name = 'victim'
            profile = { top = 3, file = 'a.toml' }
            [[vm]]
            name = 'interf-1'
            args = [1]
            [[vm]]
            name = 'interf-2'
            args = [1]
        ";
        Value::Table(text.parse().expect("TOML"))
    }

    fn path(text: &str) -> Path {
        Path::parse(text).expect("a path")
    }

    #[test]
    fn paths_name_tables_of_lists_by_their_names() {
        let mut value = system();
        set(
            &mut value,
            &path("vm.victim.profile.top"),
            &Value::Integer(9),
        )
        .expect("set");
        set(
            &mut value,
            &path("vm.interf-*.args"),
            &Value::String("x".into()),
        )
        .expect("set");
        assert_eq!(value["vm"][0]["profile"]["top"], Value::Integer(9));
        assert_eq!(value["vm"][1]["args"], value["vm"][2]["args"]);
        remove(&mut value, &path("vm.interf-*")).expect("removed");
        assert_eq!(value["vm"].as_array().map(Vec::len), Some(1));
        remove(&mut value, &path("vm.victim.profile")).expect("removed");
        assert_eq!(
            remove(&mut value, &path("vm.nobody")),
            Err("the system has no `vm.nobody` to remove".into())
        );
        assert_eq!(
            set(&mut value, &path("vm.nobody.x"), &Value::Integer(1)),
            Err("the system has no `vm.nobody`".into())
        );
        assert!(Path::parse("vm..x").is_err());
    }

    #[test]
    fn placeholders_keep_their_type_where_they_stand_alone() {
        let input: Value = Value::Table("label = 'a'\nargs = [1, 2]".parse().expect("TOML"));
        let scope = Scope::default()
            .with("n", &Value::Integer(4))
            .with("input", &input);
        let fill = |text: &str| scope.fill(&Value::String(text.into()));
        assert_eq!(fill("{n}"), Ok(Value::Integer(4)));
        assert_eq!(fill("0-{n-1}"), Ok(Value::String("0-3".into())));
        assert_eq!(fill("{n+1}-14"), Ok(Value::String("5-14".into())));
        assert_eq!(fill("{input.args}"), Ok(input["args"].clone()));
        assert_eq!(fill("{m}"), Err("there is no axis for `{m}`".into()));
        assert_eq!(fill("{m.a}"), Err("there is no axis for `{m.a}`".into()));
        let error = fill("{n.rest}").expect_err("a number has no keys");
        assert!(error.contains("{ label = ..., rest = ... }"), "{error}");
        assert_eq!(
            fill("{input.none}"),
            Err("the values of axis `input` have no `none`: they have args, label".into())
        );
        assert_eq!(fill("{n"), Err("`{n` has no closing brace".into()));
    }

    #[test]
    fn files_stay_where_they_are() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("boards")).expect("a directory");
        std::fs::write(directory.path().join("boards/mine.toml"), "").expect("a board");
        let text = "
            board = 'mine'
            [[vm]]
            name = 'linux'
            profile = { file = 'a.toml' }
            image = { kernel = 'k/Image', initrd = '../rd', programs = ['tool', '/bin/true'], \
                    packages = ['perf'] }
            [[vm]]
            name = 'own'
            image = { file = 'guest.elf' }
        ";
        let mut value = Value::Table(text.parse().expect("TOML"));
        anchor(&mut value, directory.path());
        let at = |name: &str| directory.path().join(name).display().to_string();
        assert_eq!(
            value["board"].as_str(),
            Some(at("boards/mine.toml").as_str())
        );
        let linux = &value["vm"][0];
        assert_eq!(
            linux["profile"]["file"].as_str(),
            Some(at("a.toml").as_str())
        );
        assert_eq!(
            linux["image"]["kernel"].as_str(),
            Some(at("k/Image").as_str())
        );
        assert_eq!(
            linux["image"]["initrd"].as_str(),
            Some(at("../rd").as_str())
        );
        assert_eq!(
            linux["image"]["programs"][0].as_str(),
            Some(at("tool").as_str())
        );
        assert_eq!(linux["image"]["programs"][1].as_str(), Some("/bin/true"));
        assert_eq!(
            linux["image"]["packages"][0].as_str(),
            Some("perf"),
            "a name is no path"
        );
        assert_eq!(
            value["vm"][1]["image"]["file"].as_str(),
            Some(at("guest.elf").as_str())
        );
        // From any directory: a base that is relative itself.
        let mut value = Value::Table("[vm]\nimage = { file = 'a.elf' }".parse().expect("TOML"));
        anchor(&mut value, std::path::Path::new("some/where"));
        assert!(
            std::path::Path::new(value["vm"]["image"]["file"].as_str().expect("a path"))
                .is_absolute()
        );
    }

    #[test]
    fn a_path_that_a_variant_sets_is_relative_to_the_experiment() {
        let base = std::path::Path::new("/base");
        for (at, value, wanted) in [
            ("vm.a.image.programs", "['x']", "['/base/x']"),
            ("vm.a.image", "{ kernel = 'k' }", "{ kernel = '/base/k' }"),
            ("vm.a.profile.file", "'p.toml'", "'/base/p.toml'"),
            ("vm.a.image.exec", "'./x'", "'./x'"),
        ] {
            let [mut value, wanted] = [value, wanted]
                .map(|text| format!("v = {text}").parse::<Table>().expect("TOML")["v"].clone());
            anchor_at(&path(at), &mut value, base);
            assert_eq!(value, wanted, "{at}");
        }
    }
}
