//! Values whose every field is zero, from which fixtures and other partial values start.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::de::DeserializeOwned;

/// Returns what zeros decode to: numbers are 0, lists are empty, options are `None`, and of an enum
/// it is the first variant. A fixture names only what matters to it (`..blank()`), so a new field
/// changes no test.
///
/// # Panics
/// If no value of the type is encoded as at most 256 zeros.
pub fn blank<T: DeserializeOwned>() -> T {
    postcard::from_bytes(&[0; 256]).expect("zeros decode")
}
