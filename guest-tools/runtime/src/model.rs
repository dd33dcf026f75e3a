//! Messages to the board model (docs/board-model.md), sent by HINT instructions. CPUs execute these
//! as NOPs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::asm;
use cloison_abi::model_hint;

/// Starts the region of interest, with the caches as they are.
#[inline(always)]
pub fn begin_region() {
    // SAFETY: architecturally a NOP. The model can only be switched between two blocks of code, and
    // the barrier ends one. No `nomem`: memory accesses must stay on their side of it.
    unsafe {
        asm!("hint #{}", "isb", const model_hint::BEGIN_WARM, options(nostack, preserves_flags))
    };
}

/// Ends the region of interest.
#[inline(always)]
pub fn end_region() {
    // SAFETY: architecturally a NOP, after the same barrier as in `begin_region`.
    unsafe { asm!("hint #{}", "isb", const model_hint::END, options(nostack, preserves_flags)) };
}
