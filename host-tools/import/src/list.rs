//! The list of what is not as it was: for the terminal, and for comments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::Note;
use crate::source::Sources;
use std::fmt;

/// How many lines of one entry are named.
const MOST_LINES: usize = 6;

/// One or several notes that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `FILE:LINE`, with further lines.
    pub places: String,
    /// What it is.
    pub subject: String,
    /// Why it is not as it was.
    pub reason: String,
    /// What a user can do; empty if there is nothing to do.
    pub next: String,
    /// How many notes it is.
    pub count: usize,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.places, self.subject, self.reason)?;
        if !self.next.is_empty() {
            write!(f, "\n    next: {}", self.next)?;
        }
        Ok(())
    }
}

/// Returns the entries of notes, in the order of the files.
pub fn entries(notes: &[Note], sources: &Sources) -> Vec<Entry> {
    let mut sorted: Vec<&Note> = notes.iter().collect();
    sorted.sort_by_key(|note| (note.place.file, note.place.start));
    let mut groups: Vec<Vec<&Note>> = Vec::new();
    for note in sorted {
        let same = |group: &&mut Vec<&Note>| {
            let first = group[0];
            let texts = |note: &Note| (note.subject.clone(), note.reason.clone());
            texts(first) == texts(note) && first.place.file == note.place.file
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(note),
            None => groups.push(vec![note]),
        }
    }
    groups.iter().map(|group| entry(group, sources)).collect()
}

fn entry(group: &[&Note], sources: &Sources) -> Entry {
    let first = group[0];
    let mut lines: Vec<usize> = group.iter().map(|note| sources.line(note.place)).collect();
    lines.dedup();
    let shown = sources.show(first.place);
    let more: Vec<String> = lines
        .iter()
        .skip(1)
        .take(MOST_LINES - 1)
        .map(usize::to_string)
        .collect();
    let has_lines = shown.contains(':');
    let places = match (more.is_empty() || !has_lines, lines.len() > MOST_LINES) {
        (true, _) => shown,
        (false, false) => format!("{shown},{}", more.join(",")),
        (false, true) => format!("{shown},{},…", more.join(",")),
    };
    Entry {
        places,
        subject: first.subject.clone(),
        reason: first.reason.clone(),
        next: if first.next == "nothing" {
            String::new()
        } else {
            first.next.clone()
        },
        count: group.len(),
    }
}
