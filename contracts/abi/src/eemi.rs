//! Calls of a ZynqMP's firmware: the Embedded Energy Management Interface (UG1200), as SMCs of the
//! SiP range (Arm DEN 0028, 6.1).
// SPDX-License-Identifier: MIT OR Apache-2.0

/// What all calls have in the upper half of their function; the lower half is one of the numbers
/// below (UG1200, chapter 4; `pm_api_id` in Linux's include/linux/firmware/xlnx-zynqmp.h). The
/// first argument is the lower half of x1.
pub const CALLS: u32 = 0xc200_0000;

/// Version of the interface.
pub const GET_API_VERSION: u32 = 1;
/// State of a node.
pub const GET_NODE_STATUS: u32 = 3;
/// Powers a node.
pub const REQUEST_NODE: u32 = 13;
/// Releases a node.
pub const RELEASE_NODE: u32 = 14;
/// What a node must be able to do.
pub const SET_REQUIREMENT: u32 = 15;
/// Asserts, releases or pulses a reset.
pub const RESET_ASSERT: u32 = 17;
/// State of a reset.
pub const RESET_GET_STATUS: u32 = 18;
/// Names and shape of clocks and pins.
pub const QUERY_DATA: u32 = 35;
/// Enables a clock.
pub const CLOCK_ENABLE: u32 = 36;
/// Disables a clock.
pub const CLOCK_DISABLE: u32 = 37;
/// State of a clock.
pub const CLOCK_GETSTATE: u32 = 38;
/// Sets a clock's divider.
pub const CLOCK_SETDIVIDER: u32 = 39;
/// A clock's divider.
pub const CLOCK_GETDIVIDER: u32 = 40;
/// Sets a clock's source.
pub const CLOCK_SETPARENT: u32 = 43;
/// A clock's source.
pub const CLOCK_GETPARENT: u32 = 44;
/// Whether the firmware has a call.
pub const FEATURE_CHECK: u32 = 63;
/// Version of the firmware at EL3.
pub const GET_TRUSTZONE_VERSION: u32 = 0xa03;
