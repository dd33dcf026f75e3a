//! The registers of a GICv2 (Arm IHI 0048B): distributor, CPU interface, virtual interface control.
//!
//! EL2 uses these blocks for the physical controller, guests for their view of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

// The macros add further items to those documented here.
#![allow(missing_docs)]

use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

register_bitfields! { u32,
    /// GICD_SGIR (4.3.15).
    pub SGIR [
        /// A bit per CPU interface.
        TARGETS OFFSET(16) NUMBITS(8) [],
        /// The software-generated interrupt.
        INTID OFFSET(0) NUMBITS(4) [],
    ],
    /// GICC_CTLR without Security Extensions (4.4.1).
    pub GICC_CTLR [
        /// EOIR only drops the priority; DIR deactivates.
        EOI_MODE OFFSET(9) NUMBITS(1) [],
        /// Group 0 interrupts are signaled.
        ENABLE OFFSET(0) NUMBITS(1) [],
    ],
    /// GICC_IAR and GICC_EOIR (4.4.4).
    pub IAR [
        /// For a software-generated interrupt: the CPU interface that sent it.
        SOURCE OFFSET(10) NUMBITS(3) [],
        /// The interrupt's number.
        INTID OFFSET(0) NUMBITS(10) [],
    ],
    /// GICH_HCR (5.3.1).
    pub GICH_HCR [
        /// Number of ended interrupts that were in no list register.
        EOI_COUNT OFFSET(27) NUMBITS(5) [],
        /// A maintenance interrupt while no list register is pending.
        NPIE OFFSET(3) NUMBITS(1) [],
        /// A maintenance interrupt while `EOI_COUNT` is not 0.
        LRENPIE OFFSET(2) NUMBITS(1) [],
        /// The virtual CPU interface works.
        EN OFFSET(0) NUMBITS(1) [],
    ],
    /// GICH_VMCR (5.3.3): what the guest has written to its CPU interface.
    pub GICH_VMCR [
        /// GICV_BPR.
        BINARY_POINT OFFSET(21) NUMBITS(3) [],
        /// GICV_CTLR.EOImode.
        EOI_MODE OFFSET(9) NUMBITS(1) [],
    ],
}

register_structs! {
    /// The distributor (4.3). A register holds one bit for each of 32 interrupts, two bits for each
    /// of 16, or one byte for each of 4.
    pub Gicd {
        // Enable; numbers of interrupts and CPU interfaces; implementer (4.3.1 to 4.3.3).
        (0x000 => pub ctlr: ReadWrite<u32>),
        (0x004 => pub typer: ReadOnly<u32>),
        (0x008 => pub iidr: ReadOnly<u32>),
        (0x00c => _reserved0),
        // A bit for each interrupt. Of each pair, the first sets and the second clears what is
        // written as 1 (4.3.4 to 4.3.10). Word 0 is banked for each core.
        (0x080 => pub igroupr: [ReadWrite<u32>; 32]),
        (0x100 => pub isenabler: [ReadWrite<u32>; 32]),
        (0x180 => pub icenabler: [ReadWrite<u32>; 32]),
        (0x200 => pub ispendr: [ReadWrite<u32>; 32]),
        (0x280 => pub icpendr: [ReadWrite<u32>; 32]),
        (0x300 => pub isactiver: [ReadWrite<u32>; 32]),
        (0x380 => pub icactiver: [ReadWrite<u32>; 32]),
        // Accessible by bytes, so that two cores can set different interrupts at once (4.3.11,
        // 4.3.12).
        (0x400 => pub ipriorityr: [ReadWrite<u8>; 1024]),
        (0x800 => pub itargetsr: [ReadWrite<u8>; 1024]),
        // Two bits for each interrupt, and no access by bytes (4.3.13).
        (0xc00 => pub icfgr: [ReadWrite<u32>; 64]),
        (0xd00 => _reserved1),
        (0xf00 => pub sgir: WriteOnly<u32, SGIR::Register>),
        (0xf04 => _reserved2),
        // A byte for each SGI, with a bit for each sender (4.3.16, 4.3.17).
        (0xf10 => pub cpendsgir: [ReadWrite<u8>; 16]),
        (0xf20 => pub spendsgir: [ReadWrite<u8>; 16]),
        (0xf30 => _reserved3),
        (0x1000 => @END),
    },
    /// The first page of the CPU interface (4.4), or of the virtual CPU interface (5.5).
    pub Gicc {
        (0x00 => pub ctlr: ReadWrite<u32, GICC_CTLR::Register>),
        // Priority mask, and the binary point that splits a priority (4.4.2, 4.4.3).
        (0x04 => pub pmr: ReadWrite<u32>),
        (0x08 => pub bpr: ReadWrite<u32>),
        // A read acknowledges, a write to EOIR ends (4.4.4, 4.4.5).
        (0x0c => pub iar: ReadOnly<u32, IAR::Register>),
        (0x10 => pub eoir: WriteOnly<u32, IAR::Register>),
        // Running priority, and the highest one that is pending (4.4.6, 4.4.7).
        (0x14 => pub rpr: ReadOnly<u32>),
        (0x18 => pub hppir: ReadOnly<u32, IAR::Register>),
        (0x1c => _reserved0),
        (0x1000 => @END),
    },
    /// The second page of the CPU interface: GICC_DIR (4.4.15), or GICV_DIR.
    pub GiccDeactivate {
        (0x00 => pub dir: WriteOnly<u32, IAR::Register>),
        (0x04 => _reserved0),
        (0x1000 => @END),
    },
    /// Virtual interface control (5.3), with the maximum number of list registers.
    pub Gich {
        (0x000 => pub hcr: ReadWrite<u32, GICH_HCR::Register>),
        (0x004 => pub vtr: ReadOnly<u32>),
        (0x008 => pub vmcr: ReadWrite<u32, GICH_VMCR::Register>),
        (0x00c => _reserved0),
        // A bit for each list register: ended, with an interrupt requested for that.
        (0x020 => pub eisr: [ReadOnly<u32>; 2]),
        (0x028 => _reserved1),
        // A bit for each list register: empty.
        (0x030 => pub elrsr: [ReadOnly<u32>; 2]),
        (0x038 => _reserved2),
        // A bit for each priority of five bits that is active.
        (0x0f0 => pub apr: ReadWrite<u32>),
        (0x0f4 => _reserved3),
        (0x100 => pub lr: [ReadWrite<u32>; 64]),
        (0x200 => _reserved4),
        (0x1000 => @END),
    }
}
