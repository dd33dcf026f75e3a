//! The current state of the high-level functions: idle, counting, or a rate.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Stopped,
    Counters,
    Ipc,
    Epc,
}

#[derive(Debug)]
pub(crate) struct High {
    pub mode: Mode,
    /// Ticks at the first call of a rate.
    pub began: u64,
    /// All events of a rate since then.
    pub total: i64,
}

impl High {
    pub const NEW: Self = Self {
        mode: Mode::Stopped,
        began: 0,
        total: 0,
    };
}
