//! What experiments and campaigns share: the system, the board, its model and the VM that is
//! measured, each with its default.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::document::{Field, Given, Presence, Table};
use cloison_config::problem::display_path;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::{BoardFile, files, suggest};
use cloison_engine::configuration;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What a file runs on, and what it measures.
pub struct Machine {
    /// Path of the system.
    pub system: PathBuf,
    /// The board: the name of a shipped one, or the path of a board file.
    pub board: String,
    /// Path of the model's board file.
    pub model: PathBuf,
    /// Name of the VM that is measured.
    pub victim: String,
    /// Where the file names the victim, or else the system.
    pub victim_span: Range<usize>,
}

/// Reads all of these from a file in the directory `base`; `help` says how to name the system.
pub fn read(root: &Table<'_>, base: &Path, help: &str) -> Option<Machine> {
    let system = root.required_value("system", help, |field| find(field, base, "a configuration"));
    let board = read_board(root, base, system.as_ref());
    let model = root.value("model", |field| find(field, base, "a board model"));
    let victim = root.value("victim", Field::text);
    let (system, board) = (system?, board?);
    let model = match model.optional()? {
        Some(model) => Some(model),
        None => model_of(root, &board),
    };
    let victim = match victim {
        Presence::Given(victim) => Some((victim.value.to_owned(), victim.field.span())),
        Presence::Absent => ends_with(root, &system).zip(Some(system.field.span())),
        Presence::Wrong => None,
    };
    let (victim, victim_span) = victim?;
    Some(Machine {
        system: system.value,
        board: board.name,
        model: model?,
        victim,
        victim_span,
    })
}

/// Returns the directory of a file, which need not be written yet, without a way from here.
pub fn directory_of(file: &Path) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new("."));
    std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf())
}

/// Returns the name of a file without its extension.
pub fn stem_of(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Reads the path of a file that a file names, without detours.
fn find(field: &Field<'_>, base: &Path, what: &str) -> Option<PathBuf> {
    let path = base.join(field.string("the path of a file")?);
    let found = path.canonicalize().ok().filter(|found| found.is_file());
    if found.is_none() {
        let path = display_path(&path);
        let error = field.error(format!(
            "there is no {} at {}",
            field.name(),
            path.display()
        ));
        let help = format!("give {what}, relative to this file");
        field.push(error.label("not a file").help(help));
    }
    found
}

/// The board on which a file's systems run.
struct Board {
    /// The name of a shipped one, or the path of a board file.
    name: String,
    /// Where the file names it.
    span: Range<usize>,
}

/// Reads the board: the one that the file or else the system names; an own one, from
/// `boards/` next to either, as a path.
fn read_board(root: &Table<'_>, base: &Path, system: Option<&Given<'_, PathBuf>>) -> Option<Board> {
    let system = system.map(|system| system.value.as_path());
    let dirs = [
        base.join("boards"),
        system.and_then(Path::parent).unwrap_or(base).join("boards"),
    ];
    let named = root.value("board", |field| {
        let name = field.string("a board's name")?;
        let board = if name.ends_with(".toml") {
            base.join(name).display().to_string()
        } else {
            place(&dirs, name)
        };
        let mut known = configuration::boards();
        known.extend(dirs.iter().flat_map(|dir| files::available(dir)));
        if board == name && !known.contains(&board) {
            let error = field.error(format!("QEMU does not emulate board `{name}`"));
            let help = suggest(name, "boards", known.iter().map(String::as_str));
            field.push(error.label("unknown").help(help));
            return None;
        }
        Some(board)
    });
    let span = named.given().map_or(0..0, |named| named.field.span());
    let of_system = || {
        let text = files::read_text(system?, files::CONFIGURATION).ok()?;
        let table: toml::Table = text.parse().ok()?;
        table.get("board")?.as_str().map(str::to_owned)
    };
    let name = named.optional()?.unwrap_or_else(|| {
        place(
            &dirs,
            &of_system().unwrap_or_else(|| DEFAULT_BOARD.to_owned()),
        )
    });
    Some(Board { name, span })
}

/// Returns the path of a board's file in one of these directories, else the name itself.
fn place(dirs: &[PathBuf], name: &str) -> String {
    let found = dirs
        .iter()
        .map(|dir| dir.join(format!("{name}.toml")))
        .find(|path| path.is_file());
    found.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// Returns the model that the board's file names.
fn model_of(root: &Table<'_>, board: &Board) -> Option<PathBuf> {
    let Board { name, span } = board;
    let emulation = if name.ends_with(".toml") {
        match BoardFile::load(Path::new(name), &configuration::directory()) {
            Ok(file) => file.emulation,
            Err(problems) => {
                problems.into_iter().for_each(|problem| root.push(problem));
                return None;
            }
        }
    } else {
        configuration::emulation(name).ok()
    };
    let model = emulation.and_then(|emulation| emulation.model);
    if model.is_none() {
        let message = format!("board `{name}` names no model");
        let error = root
            .error("model", span.clone(), message)
            .label("its board");
        root.push(error.help("give one: model = \"FILE.toml\""));
    }
    model
}

/// Returns the VM with which the system ends: the victim unless the file names another.
fn ends_with(root: &Table<'_>, system: &Given<'_, PathBuf>) -> Option<String> {
    let text = files::read_text(&system.value, files::CONFIGURATION).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let victim = table.get("ends_with").and_then(toml::Value::as_str);
    if victim.is_none() {
        let message = "nothing says which VM is measured";
        let error = root.error("victim", system.field.span(), message);
        let error = error.label("this system has no `ends_with`");
        root.push(error.help("write victim = \"NAME OF A VM\""));
    }
    victim.map(str::to_owned)
}
