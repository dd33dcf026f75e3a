//! ELF files of guests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::{Form, Outcome, Target};

#[path = "../../../../host-tools/config/tests/executables/files.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod files;

/// Guests' programs.
pub const EXECUTABLE: Target = Target {
    name: "executable",
    package: "cloison-config",
    rule: "each accepted part can be loaded and started; each error says what to do",
    form: Form::Bytes,
    files: &[],
    made: || vec![files::good()],
    check: |input| match files::check(input) {
        Some(_) => Outcome::Accepted,
        None => Outcome::Refused,
    },
};
