//! What must hold of a running system, as pure functions of the configuration, of what happened so
//! far, and of what is observed: the executable form of SPECIFICATION.md.
//!
//! It is written from the documents: `docs/`, SPECIFICATION.md, the Arm ARM (DDI 0487), PSCI (DEN
//! 0022) and GICv2 (IHI 0048B). It uses the formats that the hypervisor and the host share, and
//! nothing of the hypervisor's logic. [`Rule`] lists what is checked.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![forbid(unsafe_code)]

pub mod budget;
pub mod charge;
pub mod confinement;
pub mod interrupts;
pub mod lease;
pub mod link;
pub mod maintenance;
pub mod page;
pub mod power;
pub mod rules;
pub mod stage2;
pub mod start;
pub mod visit;

#[cfg(test)]
mod fixture;

pub use rules::{Difference, Rule};
