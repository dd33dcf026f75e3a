//! The registers of a stopped process.
// SPDX-License-Identifier: MIT OR Apache-2.0

use nix::errno::Errno;
use nix::unistd::Pid;

/// General registers of AArch64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// `x0` to `x30`.
    pub x: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The address of the next instruction.
    pub pc: u64,
    /// The processor state.
    pub pstate: u64,
}

/// The register that has the number of a system call.
const CALL: usize = 8;

/// The link register, which has a function's return address when it is called.
const LINK: usize = 30;

impl Registers {
    /// Returns the return address of a function that has just been called.
    pub fn link(&self) -> u64 {
        self.x[LINK]
    }

    /// Returns the number of the system call that the process is making.
    pub fn call(&self) -> u64 {
        self.x[CALL]
    }

    /// Reads the registers of a stopped process.
    #[cfg(target_arch = "aarch64")]
    pub fn read(pid: Pid) -> Result<Self, Errno> {
        use nix::sys::ptrace::{getregset, regset::NT_PRSTATUS};
        let raw = getregset::<NT_PRSTATUS>(pid)?;
        Ok(Self {
            x: raw.regs,
            sp: raw.sp,
            pc: raw.pc,
            pstate: raw.pstate,
        })
    }

    /// Writes the registers of a stopped process.
    #[cfg(target_arch = "aarch64")]
    pub fn write(self, pid: Pid) -> Result<(), Errno> {
        use nix::sys::ptrace::{regset::NT_PRSTATUS, setregset};
        let Self { x, sp, pc, pstate } = self;
        setregset::<NT_PRSTATUS>(
            pid,
            libc::user_regs_struct {
                regs: x,
                sp,
                pc,
                pstate,
            },
        )
    }

    /// Only AArch64 has these registers; elsewhere the program is checked, but does not run.
    #[cfg(not(target_arch = "aarch64"))]
    pub fn read(_: Pid) -> Result<Self, Errno> {
        Err(Errno::ENOSYS)
    }

    /// As `read`.
    #[cfg(not(target_arch = "aarch64"))]
    pub fn write(self, _: Pid) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}

/// The registers of floating point and vectors, of a stopped process.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy)]
pub struct VectorRegisters(libc::user_fpsimd_struct);

#[cfg(target_arch = "aarch64")]
impl VectorRegisters {
    /// Reads the registers.
    pub fn read(pid: Pid) -> Result<Self, Errno> {
        use nix::sys::ptrace::{getregset, regset::NT_PRFPREG};
        getregset::<NT_PRFPREG>(pid).map(Self)
    }

    /// Writes the registers.
    pub fn write(self, pid: Pid) -> Result<(), Errno> {
        use nix::sys::ptrace::{regset::NT_PRFPREG, setregset};
        setregset::<NT_PRFPREG>(pid, self.0)
    }
}

/// Only AArch64 has these registers.
#[cfg(not(target_arch = "aarch64"))]
#[derive(Clone, Copy)]
pub struct VectorRegisters;

#[cfg(not(target_arch = "aarch64"))]
impl VectorRegisters {
    /// As `Registers::read`.
    pub fn read(_: Pid) -> Result<Self, Errno> {
        Err(Errno::ENOSYS)
    }

    /// As `Registers::read`.
    pub fn write(self, _: Pid) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}
