//! Mailboxes, by which cores send requests to each other.

use crate::devices::gic;
use cloison_formats::limits::MAX_CORES;
use core::sync::atomic::{AtomicU32, Ordering};

/// A request to a core.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Request {
    /// Start or stop the vCPU, as its power state says.
    Power = 1,
    /// Look for virtual interrupts.
    Interrupts = 1 << 1,
}

static MAILBOXES: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Sends a request to another core (or this one), and interrupts it.
pub fn ask(core: u8, request: Request) {
    MAILBOXES[usize::from(core)].fetch_or(request as u32, Ordering::Release);
    gic::kick(1 << core);
}

/// Takes the requests that have arrived for a core, as a mask of [`Request`]s.
#[inline(always)]
pub fn take(core: usize) -> u32 {
    MAILBOXES[core].swap(0, Ordering::Acquire)
}
