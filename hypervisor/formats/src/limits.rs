//! How much there can be of what Cloison counts: one definition for hypervisor, host and image builder.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Physical cores of a board. Core masks are bytes.
pub const MAX_CORES: usize = 8;
/// VMs of a system.
pub const MAX_VMS: usize = 8;
/// vCPUs of a VM: one per core.
pub const MAX_VCPUS: usize = MAX_CORES;
/// List registers of a GIC that Cloison uses; a GIC-400 has 4.
pub const LIST_REGISTERS: usize = 4;
