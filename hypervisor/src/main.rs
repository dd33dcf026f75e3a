//! Cloison: a static partitioning hypervisor for AArch64 that makes a shared-cache multicore predictable.
//!
//! Principles:
//! 1. *Static.* VMs, cores, colors, pools and budgets are fixed when the system image is built. One vCPU per core, no
//!    scheduler.
//! 2. *A guest hurts only itself.* What it says is an allegation: addresses go through stage 2, calls give typed
//!    errors, and nothing it drives allocates without bound.
//! 3. *What can be tested on the host lives in `cloison_logic`.* Here is what needs the machine.
//! 4. *EL2 runs with interrupts masked, from entry to exit.* Each core owns its state; what cores share is atomic or
//!    behind a ticket lock.
//!
//! The folders are layers: a module uses modules of its own folder and of those above it in this table.
//!
//! | folder | what is in it |
//! | --- | --- |
//! | [`machine`] | the processor: [`sysreg`](machine::sysreg), EL2's address space ([`layout`](machine::layout), [`mmu`](machine::mmu), [`heap`](machine::heap), [`mmio`](machine::mmio), [`early`](machine::early)), guests' ([`stage2`](machine::stage2)), and the ways a core gives up its stack ([`handover`](machine::handover)) |
//! | [`devices`] | the interrupt controller, the UARTs, the PMU, the timer, and what turns cores on and the machine off |
//! | [`vm`] | what VMs and cores own ([`partition`](vm::partition), [`cpu`](vm::cpu)), what is done for guests, and their [`life`](vm::life) |
//! | [`exits`] | why a guest comes to EL2: vectors, traps and calls |
//! | [`start`] | from the boot loader's jump to the first guest, and the audit |
#![no_std]
#![no_main]

extern crate alloc;

/// The processor as EL2 uses it: registers, address spaces, heap.
mod machine {
    pub mod early;
    pub mod handover;
    pub mod heap;
    pub mod layout;
    pub mod mmio;
    pub mod mmu;
    pub mod stage2;
    pub mod sysreg;
}
/// The board's devices.
mod devices {
    pub mod console;
    pub mod gic;
    pub mod pmu;
    pub mod power;
    pub mod timer;
}
/// What cores and VMs own, and what is done for a VM.
mod vm {
    pub mod console_input;
    pub mod cpu;
    pub mod guest_registers;
    pub mod hem;
    pub mod interrupts;
    pub mod life;
    pub mod logger;
    pub mod mailbox;
    pub mod migrate;
    pub mod partition;
    pub mod quota;
    pub mod telemetry;
    pub mod uart;
    pub mod virq;
    pub mod vpmu;
}
/// Why a guest comes to EL2: exceptions, traps and calls.
mod exits {
    pub mod exceptions;
    pub mod hypercall;
    pub mod psci;
    pub mod traps;
}
/// From the boot loader's jump to the first guest.
mod start {
    pub mod audit;
    pub mod boot;
    pub mod bring_up;
    pub mod build;
}
