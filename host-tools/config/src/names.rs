//! Names of VMs, regions, pools, channels and memories.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Table;
use std::ops::Range;

/// Maximum length of a name, which the console's prefix and the calls about VMs rely on.
pub const LONGEST_NAME: usize = cloison_abi::reply::LONGEST_NAME;

/// Reads a name that is usable in messages, file names and on the console. Returns it even if an
/// error was recorded.
pub(crate) fn name<'a>(table: &mut Table<'a>, what: &str) -> Option<(&'a str, Range<usize>)> {
    let field = table.required("name", &format!("give the {what} a name: name = \"...\""))?;
    let name = field.string("a name")?;
    let odd = name
        .chars()
        .find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-' || *c == '_'));
    let problem = if name.is_empty() {
        Some((format!("the {what}'s name is empty"), "empty".to_owned()))
    } else if name.len() > LONGEST_NAME {
        let message = format!(
            "`{name}` has {} characters, {} too many",
            name.len(),
            name.len() - LONGEST_NAME
        );
        Some((message, "too long".to_owned()))
    } else if let Some(odd) = odd {
        Some((
            format!("`{name}` has the character `{odd}`"),
            "odd character".to_owned(),
        ))
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        Some((
            format!("`{name}` does not start with a letter"),
            "first character".to_owned(),
        ))
    } else {
        None
    };
    if let Some((message, label)) = problem {
        field.push(field.error(message).label(label).help(format!(
            "names have 1 to {LONGEST_NAME} lower-case letters, digits, `-` and `_`, a letter \
             first"
        )));
    }
    table.rename(name);
    Some((name, field.span()))
}
