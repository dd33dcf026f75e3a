//! Waiting for a bounded time, even on a machine whose counter does not advance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::{CNTFRQ_EL0, CNTPCT_EL0, Readable};

/// Turns of a loop in a millisecond, at least: what bounds a wait where time does not pass.
const TURNS_PER_MS: u64 = 100_000;
/// What CNTFRQ_EL0 is taken for if firmware has not set it.
const GUESS_HZ: u64 = 100_000_000;

/// Calls a condition until it holds or so many milliseconds have passed. Returns whether it held.
pub fn wait_until(ms: u64, mut condition: impl FnMut() -> bool) -> bool {
    let hz = match CNTFRQ_EL0.get() {
        0 => GUESS_HZ,
        hz => hz,
    };
    let start = now();
    for _ in 0..ms * TURNS_PER_MS {
        if condition() {
            return true;
        }
        if now().wrapping_sub(start) > hz / 1000 * ms {
            break;
        }
    }
    condition()
}

/// Returns the system counter.
pub fn now() -> u64 {
    aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
    CNTPCT_EL0.get()
}
