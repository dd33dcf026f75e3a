//! What a guest says to the board model (docs/board-model.md) by HINT instructions, which everything else executes as NOP.

use crate::asm;

/// The region of interest begins, with the caches as they are.
#[inline(always)]
pub fn begin_region() {
    // SAFETY: a NOP to the architecture. The model is switched between two blocks of code, and the barrier ends one. No
    // `nomem`: accesses to memory stay on their side of it.
    unsafe { asm!("hint #112", "isb", options(nostack, preserves_flags)) };
}

/// The region of interest ends.
#[inline(always)]
pub fn end_region() {
    // SAFETY: as above.
    unsafe { asm!("hint #113", "isb", options(nostack, preserves_flags)) };
}
