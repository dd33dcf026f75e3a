//! Devices of virtio as drivers see them: registers of the MMIO transport, and layouts in memory.
//!
//! OASIS, Virtual I/O Device (VIRTIO) Version 1.2: 2.7 (split virtqueues), 4.2 (MMIO), 5.1 (network
//! device), 5.3 (console device), 5.10 (socket device).
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Offsets of registers (4.2.2). All have 32 bits, except for the device's configuration.
pub mod offset {
    /// Read: "virt".
    pub const MAGIC: u16 = 0x000;
    /// Read: version of the layout.
    pub const VERSION: u16 = 0x004;
    /// Read: kind of device.
    pub const DEVICE_ID: u16 = 0x008;
    /// Read: 32 of the features that the device has.
    pub const DEVICE_FEATURES: u16 = 0x010;
    /// Write: which of them.
    pub const DEVICE_FEATURES_SELECT: u16 = 0x014;
    /// Write: 32 of the features that the driver uses.
    pub const DRIVER_FEATURES: u16 = 0x020;
    /// Write: which of them.
    pub const DRIVER_FEATURES_SELECT: u16 = 0x024;
    /// Write: the queue that the next registers mean.
    pub const QUEUE_SELECT: u16 = 0x030;
    /// Read: maximum size of the queue.
    pub const QUEUE_SIZE_MAX: u16 = 0x034;
    /// Write: size of the queue.
    pub const QUEUE_SIZE: u16 = 0x038;
    /// Read and write: whether the queue is in use.
    pub const QUEUE_READY: u16 = 0x044;
    /// Write: the number of a queue in which buffers have become available.
    pub const QUEUE_NOTIFY: u16 = 0x050;
    /// Read: why there is an interrupt.
    pub const INTERRUPT_STATUS: u16 = 0x060;
    /// Write: the reasons that have been handled.
    pub const INTERRUPT_ACK: u16 = 0x064;
    /// Read and write: the driver's progress.
    pub const STATUS: u16 = 0x070;
    /// Write: address of the descriptors, low half; the high one follows, as for the next two.
    pub const QUEUE_DESCRIPTORS: u16 = 0x080;
    /// Write: address of the ring of available buffers.
    pub const QUEUE_DRIVER: u16 = 0x090;
    /// Write: address of the ring of used buffers.
    pub const QUEUE_DEVICE: u16 = 0x0a0;
    /// Read: a number that changes with the configuration.
    pub const GENERATION: u16 = 0x0fc;
    /// The device's configuration.
    pub const CONFIGURATION: u16 = 0x100;
}

/// "virt" as a number.
pub const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Version of the layout.
pub const VERSION: u32 = 2;

/// Bits of the status (2.1).
pub mod status {
    /// The driver has set the features that it uses.
    pub const FEATURES_OK: u32 = 8;
    /// The driver is ready.
    pub const DRIVER_OK: u32 = 4;
    /// The device does nothing more until it is reset.
    pub const NEEDS_RESET: u32 = 0x40;
}

/// Features (6, 5.1.3).
pub mod feature {
    /// In the high half: the device follows this version of virtio.
    pub const VERSION_1: u32 = 1;
    /// In the low half: the network device has an address.
    pub const NET_MAC: u32 = 1 << 5;
    /// In the low half: the network device has a status.
    pub const NET_STATUS: u32 = 1 << 16;
}

/// Reasons for an interrupt (4.2.2).
pub mod interrupt {
    /// A buffer was used.
    pub const USED: u32 = 1;
    /// The configuration has changed.
    pub const CONFIGURATION: u32 = 2;
}

/// Flags of a descriptor (2.7.5).
pub mod descriptor {
    /// Another descriptor follows.
    pub const NEXT: u16 = 1;
    /// The device writes to the buffer, which it reads otherwise.
    pub const WRITE: u16 = 2;
    /// The buffer has descriptors.
    pub const INDIRECT: u16 = 4;
}

/// Flag of the ring of available buffers: no interrupt for used ones (2.7.6).
pub const NO_INTERRUPT: u16 = 1;
/// Header of a frame (5.1.6): no offload, one buffer.
pub const NET_HEADER: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Length of the header of a packet of sockets (5.10.6).
pub const VSOCK_HEADER: usize = 44;
/// Address (CID) of the first VM for sockets. Those below are reserved (5.10.4).
pub const FIRST_CID: u64 = 3;
