//! The plugin's entry point.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::install::install;

cloison_qemu::plugin!("board-model", install);
