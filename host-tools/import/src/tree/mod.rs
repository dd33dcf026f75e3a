//! Device trees: nodes and properties, with the place of each.
//!
//! Sources are read as they are, with includes and macros; a compiled tree is printed as a source
//! first.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod source;

use crate::source::{Place, Sources};
pub use source::read;

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name, with its address.
    pub name: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// Where it starts.
    pub place: Place,
    /// Its properties.
    pub properties: Vec<Property>,
    /// The nodes in it.
    pub children: Vec<Node>,
}

/// A property.
#[derive(Clone, Debug)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Its value as a compiled tree has it. A reference is 0 here.
    pub bytes: Vec<u8>,
    /// The labels that it refers to.
    pub references: Vec<String>,
}

impl Property {
    /// Returns its value as cells of 32 bits; what does not fill one is left out.
    pub fn cells(&self) -> Vec<u64> {
        self.bytes
            .chunks_exact(4)
            .map(|cell| u64::from(u32::from_be_bytes([cell[0], cell[1], cell[2], cell[3]])))
            .collect()
    }

    /// Returns its value as a number of one or two cells.
    pub fn number(&self) -> Option<u64> {
        match self.cells().as_slice() {
            [one] => Some(*one),
            [high, low] => Some(high << 32 | low),
            _ => None,
        }
    }

    /// Returns its value as texts.
    pub fn texts(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let plain = text.strip_suffix('\0').unwrap_or(&text);
        plain.split('\0').map(str::to_owned).collect()
    }

    /// Returns its value as one text.
    pub fn text(&self) -> String {
        self.texts().into_iter().next().unwrap_or_default()
    }
}

impl Node {
    /// Returns a property.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties
            .iter()
            .rev()
            .find(|property| property.name == name)
    }

    /// Returns the node of this name in it, with any address.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.base() == name)
    }

    /// Returns its name without its address.
    pub fn base(&self) -> &str {
        self.name.split('@').next().unwrap_or_default()
    }

    /// Returns whether it is compatible with one of these.
    pub fn is_compatible(&self, names: &[&str]) -> bool {
        self.property("compatible").is_some_and(|property| {
            property
                .texts()
                .iter()
                .any(|text| names.contains(&text.as_str()))
        })
    }

    /// Returns the number that a property is, or another one.
    pub fn cells_of(&self, property: &str, otherwise: usize) -> usize {
        let number = self.property(property).and_then(Property::number);
        number
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| (0..=2).contains(number))
            .unwrap_or(otherwise)
    }

    /// Calls `visit` with this node and all in it, each with its parent.
    pub fn walk<'a>(
        &'a self,
        parent: Option<&'a Self>,
        visit: &mut dyn FnMut(&'a Self, Option<&'a Self>),
    ) {
        visit(self, parent);
        for child in &self.children {
            child.walk(Some(self), visit);
        }
    }
}

/// Joins the first `count` cells to a number; nothing if there are fewer.
pub fn take(cells: &mut &[u64], count: usize) -> Option<u64> {
    let (first, rest) = cells.split_at_checked(count)?;
    *cells = rest;
    Some(first.iter().fold(0, |number, cell| number << 32 | cell))
}

/// Returns where the tree of a file starts.
pub fn start(sources: &Sources, file: u16) -> Place {
    let end = u32::from(!sources.text(file).is_empty());
    Place {
        file,
        start: 0,
        end,
    }
}
