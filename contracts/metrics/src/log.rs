//! The columns of a HEM log: a table of counts with one row per run and event.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Names of the columns, in the order in which `hem` writes them and `much` reads them.
pub const COLUMNS: [&str; 13] = [
    "vm",
    "vcpu",
    "core",
    "at_ns",
    "workload",
    "sub_experiment",
    "run",
    "cycles",
    "by_guest",
    "event_code",
    "event",
    "value",
    "overflowed",
];
