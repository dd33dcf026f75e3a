//! Regions of interest of the board model (docs/board-model.md), marked by HINTs. CPUs execute
//! these as NOPs.
//!
//! A program at EL0 may begin and end them. Where the model runs in regions alone, other code runs
//! at QEMU's own speed.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The caches when a region begins, unless the model was started with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// As the last region left them.
    Warm,
    /// Empty.
    Cold,
}

/// Begins a region on all cores. One that is open already begins again.
pub fn begin(caches: Caches) {
    #[cfg(not(target_arch = "aarch64"))]
    let _ = caches;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the architecture defines these HINTs as NOP; the barrier changes nothing that a
    // program sees.
    unsafe {
        match caches {
            Caches::Warm => {
                std::arch::asm!("hint #{}", "isb", const cloison_abi::model_hint::BEGIN_WARM, options(nostack, preserves_flags));
            }
            Caches::Cold => {
                std::arch::asm!("hint #{}", "isb", const cloison_abi::model_hint::BEGIN_COLD, options(nostack, preserves_flags));
            }
        }
    }
}

/// Ends the region.
pub fn end() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the architecture defines this HINT as NOP; the barrier changes nothing that a program
    // sees.
    unsafe {
        std::arch::asm!("hint #{}", "isb", const cloison_abi::model_hint::END, options(nostack, preserves_flags));
    }
}
