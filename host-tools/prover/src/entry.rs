//! The plugin's entry point.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::install::install;

cloison_qemu::plugin!("prover", install);
