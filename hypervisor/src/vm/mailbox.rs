//! Mailboxes, by which cores send requests to each other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::gic;
use crate::machine::layout::MAX_CORES;
use cloison_formats::ids::Core;
use cloison_logic::power::Requests;

/// A request to a core.
#[repr(u32)]
pub enum Request {
    /// Start or stop the vCPU, as its power state says.
    Power = 1,
    /// Look for virtual interrupts.
    Interrupts = 1 << 1,
    /// Send what waits on the VM's links.
    Links = 1 << 2,
}

/// One for each core: a mask of [`Request`]s. Posting sets bits, so that equal requests merge.
static MAILBOXES: [Requests; MAX_CORES] = [const { Requests::none() }; MAX_CORES];

/// Sends a request to another core (or this one), and interrupts it.
pub fn ask(core: Core, request: Request) {
    MAILBOXES[core.index()].post(request as u32);
    gic::send(gic::KICK, 1 << core.0);
}

/// Takes the requests that have arrived for a core, as a mask of [`Request`]s.
pub fn take(core: usize) -> u32 {
    MAILBOXES[core].take()
}
