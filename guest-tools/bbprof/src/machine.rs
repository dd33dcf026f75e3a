//! The scheduling class, which needs unsafe code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use nix::errno::Errno;

/// Who shares the vCPU.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// This tool, which has to renew its lease and to serve signals while the program computes.
    Profiler,
    /// The program.
    Target,
}

impl Role {
    /// Priority among real-time threads: above the kernel's threaded interrupts (50).
    fn priority(self) -> i32 {
        match self {
            Self::Profiler => 81,
            Self::Target => 80,
        }
    }
}

/// Gives this process, and what it starts, the class SCHED_FIFO.
pub fn become_real_time(role: Role) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: role.priority(),
    };
    // SAFETY: the call reads `parameters`, which lives until it returns, and changes no memory.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    Errno::result(result).map(drop)
}
