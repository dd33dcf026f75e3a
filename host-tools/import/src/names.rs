//! Names as Cloison has them, from those of others.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::LONGEST_NAME;

/// The names that are taken.
#[derive(Default)]
pub struct Names {
    taken: Vec<String>,
}

impl Names {
    /// Returns the name nearest to `wanted` that nothing has, and takes it. `otherwise` is for
    /// names without a letter.
    pub fn unique(&mut self, wanted: &str, otherwise: &str) -> String {
        let plain = plain(wanted, otherwise);
        let mut name = plain.clone();
        let mut number = 2_usize;
        while self.taken.contains(&name) {
            let end = format!("-{number}");
            let room = LONGEST_NAME.saturating_sub(end.len());
            name = format!(
                "{}{end}",
                plain[..plain.len().min(room)].trim_end_matches('-')
            );
            number += 1;
        }
        self.taken.push(name.clone());
        name
    }

    /// Returns the name of a system.
    pub fn system(&self, wanted: &str) -> String {
        plain(wanted, "imported")
    }
}

/// Returns a name with lower-case letters, digits, `-` and `_`, a letter first.
fn plain(wanted: &str, otherwise: &str) -> String {
    let mut name = String::new();
    for letter in wanted.chars() {
        let letter = letter.to_ascii_lowercase();
        match letter {
            'a'..='z' | '0'..='9' | '_' => name.push(letter),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let start = name.find(|letter: char| letter.is_ascii_lowercase());
    let name = start.map_or(otherwise, |start| &name[start..]);
    name[..name.len().min(LONGEST_NAME)]
        .trim_end_matches('-')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        let mut names = Names::default();
        let long = "ZynqMP-ZCU102 PVT+SH";
        assert_eq!(names.unique(long, "vm"), "zynqmp-zcu102-pv");
        assert_eq!(names.unique(long, "vm"), "zynqmp-zcu102-2");
        assert_eq!(names.unique("1 (\u{e4})", "vm"), "vm");
        assert_eq!(names.unique("", "vm"), "vm-2");
    }
}
