//! What a board needs beside its image: lines for people, and files for boot loaders and debuggers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Table;

/// Files that `cloison image` writes for every board.
pub const GENERATED: [&str; 5] = [
    "Image",
    "boot.cmd",
    "boot.scr",
    "boot.scr.uimg",
    "README.txt",
];

/// A file that `cloison image` writes for this board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFile {
    /// Its name, without a directory.
    pub name: String,
    /// What it is for, in one line.
    pub purpose: String,
    /// Its text.
    pub text: String,
}

/// Reads the `[[file]]` tables of a board file.
pub(crate) fn read(root: &Table<'_>) -> Vec<BootFile> {
    let mut files: Vec<BootFile> = Vec::new();
    for table in root.tables("file") {
        let named = table.required("name", "name it: name = \"config.txt\"");
        let purpose = table
            .required("purpose", "say what it is for, in one line")
            .and_then(|field| field.string("one line of text"));
        let text = table
            .required("text", "its lines: text = \"\"\"...\"\"\"")
            .and_then(|field| field.string("lines of text"));
        table.finish();
        let Some((field, name)) = named.and_then(|field| {
            let name = field.string("the name of a file")?;
            Some((field, name))
        }) else {
            continue;
        };
        let is_taken = GENERATED.contains(&name) || files.iter().any(|file| file.name == name);
        if is_taken || name.is_empty() || name.starts_with('.') || name.contains('/') {
            field.push(
                field
                    .error(format!("`{name}` cannot be the name of a further file"))
                    .label("taken, or no plain name")
                    .help(format!(
                        "write a name without a directory that no other file has; these are \
                         written for every board: {}",
                        GENERATED.join(", ")
                    )),
            );
            continue;
        }
        if let (Some(purpose), Some(text)) = (purpose, text) {
            files.push(BootFile {
                name: name.to_owned(),
                purpose: purpose.to_owned(),
                text: text.to_owned(),
            });
        }
    }
    files
}
