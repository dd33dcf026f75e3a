//! Cloison: a static partitioning hypervisor for AArch64 that makes a shared-cache multicore
//! predictable.
//!
//! Principles:
//! 1. *Static.* VMs, cores, colors, pools and budgets are fixed when the system image is built. One
//!    vCPU per core, no scheduler.
//! 2. *A guest harms only itself.* What it passes is an allegation: addresses go through stage 2,
//!    calls return typed errors, and nothing it triggers allocates without bound.
//! 3. *What can be tested on the host is in `cloison_logic`.* This crate contains what needs the
//!    machine.
//! 4. *EL2 runs with interrupts masked, from entry to exit.* Each core owns its state; what cores
//!    share is atomic or protected by a ticket lock.
//!
//! The folders are layers: a module uses modules of the same folder and of those above it in this
//! list.
//!
//! - [`machine`]: the processor. [`sysreg`](machine::sysreg) and [`registers`](machine::registers);
//!   EL2's address space ([`layout`](machine::layout), [`mmu`](machine::mmu),
//!   [`heap`](machine::heap), [`mmio`](machine::mmio), [`early`](machine::early)); guests'
//!   ([`stage2`](machine::stage2)); and the ways a core gives up its stack
//!   ([`handover`](machine::handover)).
//! - [`devices`]: the interrupt controller, the SMMU, the UARTs, the PMU, the timer, and what turns cores on
//!   and the machine off.
//! - [`vm`]: what VMs and cores own ([`partition`](vm::partition), [`cpu`](vm::cpu)), what is done
//!   for guests, and their [`life`](vm::life).
//! - [`exits`]: why a guest enters EL2: vectors, traps and calls.
//! - [`start`]: from the boot loader's jump to the first guest, and the audit.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

extern crate alloc;

/// The processor as EL2 uses it: registers, address spaces, heap.
#[cfg(target_os = "none")]
mod machine {
    #[allow(unsafe_code, reason = "the early tables; copies the image")]
    pub mod early;
    #[allow(unsafe_code, reason = "assembly")]
    pub mod handover;
    #[allow(unsafe_code, reason = "a global allocator")]
    pub mod heap;
    pub mod layout;
    #[allow(unsafe_code, reason = "device registers as references")]
    pub mod mmio;
    #[allow(
        unsafe_code,
        reason = "writes tables and descriptors; copies guest pages"
    )]
    pub mod mmu;
    #[allow(
        unsafe_code,
        reason = "system registers by name; the contracts of those that confine a guest"
    )]
    pub mod registers;
    #[allow(unsafe_code, reason = "table frames as references")]
    pub mod stage2;
    #[allow(unsafe_code, reason = "the instructions themselves")]
    pub mod sysreg;
}
/// The board's devices.
#[cfg(target_os = "none")]
mod devices {
    #[allow(unsafe_code, reason = "the addresses of the UARTs' registers")]
    pub mod console;
    pub mod gic;
    #[allow(unsafe_code, reason = "decides which counters a guest reaches")]
    pub mod pmu;
    #[allow(unsafe_code, reason = "calls the firmware; starts cores")]
    pub mod power;
    pub mod smmu;
    pub mod timer;
    #[allow(unsafe_code, reason = "the UARTs' registers at the addresses given")]
    pub mod uart;
}
/// What cores and VMs own, and what is done for a VM.
#[cfg(target_os = "none")]
mod vm {
    pub mod console_input;
    #[allow(unsafe_code, reason = "the pointer in TPIDR_EL2")]
    pub mod cpu;
    pub mod doorbell;
    #[allow(unsafe_code, reason = "writes the registers that confine a guest")]
    pub mod guest_registers;
    pub mod hem;
    pub mod interrupts;
    #[allow(unsafe_code, reason = "abandons the stack; fills a VM's frames")]
    pub mod life;
    pub mod link;
    pub mod logger;
    pub mod mailbox;
    #[allow(unsafe_code, reason = "copies a VM's frames")]
    pub mod migrate;
    pub mod partition;
    pub mod quota;
    pub mod telemetry;
    pub mod uart;
    pub mod virq;
    pub mod vpmu;
}
/// Why a guest enters EL2: exceptions, traps and calls.
#[cfg(target_os = "none")]
mod exits {
    #[allow(unsafe_code, reason = "assembly; reads stack frames for a backtrace")]
    pub mod exceptions;
    pub mod hypercall;
    pub mod psci;
    pub mod traps;
}
/// From the boot loader's jump to the first guest.
#[cfg(target_os = "none")]
mod start {
    pub mod audit;
    #[allow(unsafe_code, reason = "assembly; the loaded image as a slice")]
    pub mod boot;
    #[allow(unsafe_code, reason = "changes the early map; starts cores")]
    pub mod bring_up;
    pub mod build;
}

/// On the machine that builds, this is no program: it is checked there, so that editors work.
#[cfg(not(target_os = "none"))]
fn main() {}
