//! EEMI: makes calls of the board's firmware, its own and any others, and counts the answers.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::CallError;
use cloison_guest::abi::eemi::CALLS;
use cloison_guest::call::hvc;
use cloison_guest::{arg, entry, println};

entry!(main);

/// What is returned for a call that is refused.
const UNKNOWN: u64 = CallError::NotSupported as i64 as u64;
/// More than the highest number of a clock or node, and of those of resets above 1000.
const NUMBERS: u64 = 130;
/// The numbers of the device that the tests pass through: power, clocks, reset.
const GEM3: [u64; 5] = [32, 48, 52, 107, 1032];

/// Makes a call of the firmware.
#[allow(unsafe_code)]
fn call(function: u32, args: [u64; 3]) -> [u64; 4] {
    // SAFETY: no call of this range starts code on a vCPU.
    unsafe { hvc(function, [args[0], args[1], args[2], 0, 0, 0]) }
}

/// Returns a call: most often one that the firmware knows, about something that it knows.
fn any(random: &mut Random) -> (u32, [u64; 3]) {
    let api = match random.below(8) {
        0 => random.below(0x1_0000),
        1 => 0xa00 + random.below(8),
        _ => random.below(64),
    };
    let number = match random.below(8) {
        0 => random.bits() & 0xffff_ffff,
        1 => GEM3[random.below(GEM3.len() as u64) as usize],
        2..4 => 1000 + random.below(NUMBERS),
        _ => random.below(NUMBERS),
    };
    let second = random.below(4) << 32;
    (
        CALLS | api as u32,
        [second | number, random.bits(), random.bits()],
    )
}

fn main() {
    let (calls, seed) = (arg(0, 10_000), arg(1, 1));
    let mut random = Random::new(seed);
    let (mut passed, mut refused, mut wrong) = (0, 0, 0);
    for _ in 0..calls {
        let (function, args) = any(&mut random);
        let [x1, x2, x3] = args;
        match call(function, args) {
            [UNKNOWN, a, b, c] if [a, b, c] == args => refused += 1,
            answer if answer == [u64::from(function) << 32, !x1, !x2, !x3] => passed += 1,
            _ => wrong += 1,
        }
    }
    println!("eemi: calls={calls} passed={passed} refused={refused} wrong={wrong}");
}
