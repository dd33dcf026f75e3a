//! ELF files of the hypervisor.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::executable::EXECUTABLE;
use crate::target::{Outcome, Target};
use cloison_engine::image::flatten_bytes;

/// ELF files that are laid out in memory: the hypervisor's.
pub const ELF: Target = Target {
    name: "elf",
    package: "cloison-engine",
    rule: "what is laid out has its entry inside, and is not much longer than the file allows",
    check: |input| {
        let flat = flatten_bytes(input, "file");
        match &flat {
            Ok(flat) => {
                let end = flat.base + flat.bytes.len() as u64;
                assert!((flat.base..end).contains(&flat.entry));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        Outcome::from(&flat)
    },
    ..EXECUTABLE
};
