//! Maximum numbers of cores, VMs, vCPUs and list registers: one definition for hypervisor, host and
//! image builder.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Maximum number of physical cores of a board. A mask of cores is one byte.
pub const MAX_CORES: usize = 8;
/// VMs of a system.
pub const MAX_VMS: usize = 8;
/// Maximum number of vCPUs of a VM: one per core.
pub const MAX_VCPUS: usize = MAX_CORES;
/// Maximum number of list registers that Cloison uses; a GIC-400 has 4.
pub const LIST_REGISTERS: usize = 4;
