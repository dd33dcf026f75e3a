//! Firmware at EL3 for QEMU's ZCU102 with `secure=on`: starts a system image at EL2 on core 0, and
//! writes each call of EEMI that reaches it to UART1.
//!
//! Not Trusted Firmware-A: it changes no clock and no power, and has no other core.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
#[allow(unsafe_code)]
mod el3;

#[cfg(not(target_os = "none"))]
fn main() {}
