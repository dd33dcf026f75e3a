//! Numbers that identify cores, vCPUs, VMs and interrupts, each as a type.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::units::number;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Defines a number that identifies something. One that comes from an image or a message need not
/// exist: `System::validate` checks those of an image.
macro_rules! id {
    ($(#[$meta:meta])* $name:ident($number:ty)) => {
        number! {
            $(#[$meta])*
            $name($number), "{}"
        }

        impl $name {
            /// Returns the number, as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A physical core, in the order of the board's file.
    Core(u8)
}
id! {
    /// A vCPU: its index in its VM.
    VcpuIndex(u8)
}
id! {
    /// A VM: its index in the configuration.
    VmId(u8)
}
id! {
    /// An interrupt, by its number at the GIC: SGIs from 0, PPIs from 16, SPIs from 32.
    Intid(u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_identifier_is_its_number_in_an_image_and_in_text() {
        let bytes = postcard::to_allocvec(&(Core(5), VmId(2), Intid(300))).expect("it fits");
        let numbers = postcard::to_allocvec(&(5u8, 2u8, 300u32)).expect("it fits");
        assert_eq!(bytes, numbers);
        assert_eq!(VcpuIndex(3).to_string(), "3");
    }
}
