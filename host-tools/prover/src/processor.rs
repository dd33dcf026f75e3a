//! The processor's time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the processor's time that this process, QEMU, has used.
pub fn used() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
