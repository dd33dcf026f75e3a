//! Encodings: tries every encoding of a system register, and prints those that it may read or
//! write.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_guest::{entry, println};

entry!(main);

#[allow(unsafe_code)]
mod register {
    use cloison_guest::probe;

    /// The bits of MRS and MSR (register) that name the register, from the 15 that count all with
    /// op0 of 2 and 3.
    const fn named(number: u32) -> u32 {
        1 << 20 | number << 5
    }

    /// Reads the register with this number, if that is allowed.
    pub fn read(number: u32) -> Option<u64> {
        // SAFETY: `mrs x0, ...`. No register that EL1 can read changes when it is read, but those
        // of the PMU, the debug channel and the interrupt controller, which this program
        // does not use.
        unsafe { probe::execute(0xd520_0000 | named(number), 0) }.ok()
    }

    /// Writes a register's own value back, or 0 if it cannot be read. Returns whether that was
    /// allowed.
    pub fn write(number: u32, value: Option<u64>) -> bool {
        // SAFETY: `msr ..., x0`. What can be read keeps its value; what can only be written is of
        // the PMU, the debug channel or the interrupt controller.
        unsafe { probe::execute(0xd500_0000 | named(number), value.unwrap_or(0)) }.is_ok()
    }
}

fn main() {
    let mut open = 0;
    for number in 0..1u32 << 15 {
        let value = register::read(number);
        let rights = match (value.is_some(), register::write(number, value)) {
            (true, true) => "rw",
            (true, false) => "r",
            (false, true) => "w",
            (false, false) => continue,
        };
        let [op0, op1, crn, crm, op2] = [
            2 + (number >> 14),
            number >> 11 & 7,
            number >> 7 & 15,
            number >> 3 & 15,
            number & 7,
        ];
        println!("encodings: S{op0}_{op1}_C{crn}_C{crm}_{op2} {rights}");
        open += 1;
    }
    println!("encodings: done open={open}");
}
