//! Maximum numbers of cores, VMs, vCPUs and list registers: one definition for hypervisor, host and
//! image builder.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Maximum number of physical cores of a board with a GICv3. A mask of cores has as many bits. A
/// GICv2 has fewer (`GicVersion::most_cores`).
pub const MAX_CORES: usize = 16;
/// Exclusive upper bound of shared interrupts' IDs; those from 1020 to 1023 are special (Arm IHI 0048B,
/// 2.2.1).
pub const MAX_IRQ: u32 = 1020;
/// VMs of a system.
pub const MAX_VMS: usize = 8;
/// Maximum number of vCPUs of a VM: one per core.
pub const MAX_VCPUS: usize = MAX_CORES;
/// Maximum number of list registers that Cloison uses; a GIC-400 has 4.
pub const LIST_REGISTERS: usize = 4;
