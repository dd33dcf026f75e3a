//! Which calls of a ZynqMP's firmware a VM may make: those about what is passed to it.
//!
//! Clocks, resets and power are numbers that the firmware takes from anybody; another number stops
//! the memory of all VMs, or a core. So a call passes if it is on this list and names one of the
//! VM's own. Calls that only tell something about the firmware pass too: a driver begins with them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::eemi::{
    CALLS, CLOCK_DISABLE, CLOCK_ENABLE, CLOCK_GETDIVIDER, CLOCK_GETPARENT, CLOCK_GETSTATE,
    CLOCK_SETDIVIDER, CLOCK_SETPARENT, FEATURE_CHECK, GET_API_VERSION, GET_NODE_STATUS,
    GET_TRUSTZONE_VERSION, QUERY_DATA, RELEASE_NODE, REQUEST_NODE, RESET_ASSERT, RESET_GET_STATUS,
    SET_REQUIREMENT,
};
use cloison_formats::image::FirmwareAccess;

/// Returns whether a function is one of the firmware's.
pub const fn is_call(function: u32) -> bool {
    function & 0xffff_0000 == CALLS
}

/// A call that passes, with its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    function: u32,
    arguments: [u64; 3],
}

impl Passed {
    /// Returns a call if it passes.
    pub fn of(access: &FirmwareAccess, function: u32, arguments: [u64; 3]) -> Option<Self> {
        // The firmware reads 32 bits too: the upper half of x1 is the second argument.
        let [x1, ..] = arguments;
        passes(access, function, x1 as u32).then_some(Self {
            function,
            arguments,
        })
    }

    /// Returns its function, and x1 to x3.
    pub const fn registers(self) -> (u32, [u64; 3]) {
        (self.function, self.arguments)
    }
}

fn passes(access: &FirmwareAccess, function: u32, named: u32) -> bool {
    if !is_call(function) {
        return false;
    }
    let own = match function & 0xffff {
        GET_API_VERSION | FEATURE_CHECK | QUERY_DATA | GET_TRUSTZONE_VERSION => return true,
        GET_NODE_STATUS | REQUEST_NODE | RELEASE_NODE | SET_REQUIREMENT => &access.nodes,
        RESET_ASSERT | RESET_GET_STATUS => &access.resets,
        CLOCK_ENABLE | CLOCK_DISABLE | CLOCK_GETSTATE | CLOCK_SETDIVIDER | CLOCK_GETDIVIDER
        | CLOCK_SETPARENT | CLOCK_GETPARENT => &access.clocks,
        _ => return false,
    };
    own.contains(&named)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec;

    /// UG1200 numbers what changes the state of something by its first argument, and what does not.
    #[test]
    fn each_call_passes_with_its_own_numbers_alone() {
        let access = FirmwareAccess {
            nodes: vec![32],
            clocks: vec![48, 107],
            resets: vec![1032],
        };
        let reading = [1, 35, 63, 0xa03];
        let by_node = [3, 13, 14, 15];
        let by_reset = [17, 18];
        let by_clock = [36, 37, 38, 39, 40, 43, 44];
        for call in 0..=0xffff {
            for number in (0..130).chain(1000..1130).chain([u32::MAX]) {
                let expected = reading.contains(&call)
                    || by_node.contains(&call) && number == 32
                    || by_reset.contains(&call) && number == 1032
                    || by_clock.contains(&call) && [48, 107].contains(&number);
                let arguments = [7 << 32 | u64::from(number), 8, 9];
                let passed = Passed::of(&access, 0xc200_0000 | call, arguments);
                assert_eq!(passed.is_some(), expected, "{call} {number}");
                let kept = passed
                    .is_none_or(|passed| passed.registers() == (0xc200_0000 | call, arguments));
                assert!(kept, "{call} {number}");
            }
        }
    }

    #[test]
    fn the_firmwares_calls_are_one_range() {
        for function in [0xc200_0000, 0xc200_ffff] {
            assert!(is_call(function));
        }
        for function in [
            0xc1ff_ffff,
            0xc201_0000,
            0x8200_0001,
            0x8400_0003,
            0xc400_0003,
            0,
        ] {
            assert!(!is_call(function));
        }
    }
}
