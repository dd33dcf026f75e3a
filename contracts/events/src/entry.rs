//! An entry of an event table's file, whatever the file's form.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::EventId;
use crate::counters::CounterMask;
use jsonc_parser::common::Range as JsonRange;
use std::ops::Range;

/// A text with its place.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub text: String,
    pub span: Range<usize>,
}

/// An entry of a file, unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// `[3]`.
    pub path: String,
    pub span: Range<usize>,
    pub name: Option<Text>,
    pub id: Option<EventId>,
    /// The event of the architecture that it is.
    pub standard: Option<Text>,
    pub brief: Option<Text>,
    pub public: Option<Text>,
    pub mask: Option<CounterMask>,
    pub bounds: Option<Text>,
    pub bytes: Option<Text>,
    pub metric: Option<Text>,
    pub expression: Option<Text>,
    pub scale: Option<Text>,
}

/// Returns a place of the parser's as bytes of the file.
pub(crate) fn span(range: JsonRange) -> Range<usize> {
    range.start..range.end
}
