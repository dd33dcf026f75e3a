//! The programs that the fuzzer gives to its guest, the puppet: a list of operations, as readable
//! text for people and as words in the guest's memory.
//!
//! Almost every operation is one A64 instruction with chosen registers: a call, an access to a
//! device, a system register, a barrier. [`is_harmless`] refuses what would break the puppet itself,
//! which must survive to ask for the next program.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod words;

use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// Number of the HINT by which a puppet asks for its next program: the address of the memory for it
/// in x0, the length of that in 64-bit words in x1, its VM in x2 and its vCPU in x3. The fuzzer
/// writes the number of operations, and then these. A machine without the fuzzer executes it as NOP.
pub const ASK: u32 = 120;
/// 64-bit words of an operation in memory.
pub const OP_WORDS: usize = 5;
/// Most operations of a program.
pub const LONGEST: usize = 100;
/// An operand that stands for x1 as the last successful instruction left it: a lease's number, for
/// example.
pub const LAST: u64 = 0xfeed_face_0000_0000;
/// An operand that stands for the number of the last lease that the vCPU has taken.
pub const LEASE: u64 = 0xfeed_face_0000_0001;
/// First byte of the RAM that a program may write: 256 KiB above the start of RAM, after the puppet
/// and its stacks. A VM has little RAM, since each of its restarts clears all of it.
pub const FREE_RAM: u64 = 0x4004_0000;
/// Bytes from there to the end of the VM's RAM.
pub const FREE_BYTES: u64 = 0x5_0000;
/// Most entries of a list that an operation writes.
pub const LONGEST_LIST: u64 = 512;
/// Bytes in a page.
const PAGE: u64 = 4096;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Executes an instruction with these values in x0 to x3.
    Execute {
        /// The instruction's code.
        word: u32,
        /// x0 to x3.
        x: [u64; 4],
    },
    /// Does nothing for this many turns of a short loop.
    Delay(u64),
    /// Turns on the vCPU with this number, which then asks for programs too.
    Start(u64),
    /// Writes a list of pages that follow each other.
    List {
        /// Address of the list.
        at: u64,
        /// Its first entry.
        first: u64,
        /// Number of entries.
        count: u64,
        /// Pages from one entry to the next.
        step: u64,
    },
}

impl Op {
    /// Returns the operation as words of memory.
    pub fn encode(self) -> [u64; OP_WORDS] {
        match self {
            Self::Execute { word, x } => [1 << 32 | u64::from(word), x[0], x[1], x[2], x[3]],
            Self::Delay(turns) => [2 << 32, turns, 0, 0, 0],
            Self::Start(vcpu) => [3 << 32, vcpu, 0, 0, 0],
            Self::List {
                at,
                first,
                count,
                step,
            } => [4 << 32, at, first, count, step],
        }
    }

    const fn list([at, first, count, step]: [u64; 4]) -> Self {
        Self::List {
            at,
            first,
            count,
            step,
        }
    }

    /// Returns the entries of a list and their addresses, if the puppet survives that they are
    /// written.
    pub fn entries(self) -> impl Iterator<Item = (u64, u64)> {
        let (at, first, count, step) = match self {
            Self::List {
                at,
                first,
                count,
                step,
            } if is_list_place(at, count) => (at, first, count, step),
            _ => (0, 0, 0, 0),
        };
        (0..count).map(move |entry| {
            let page = entry.wrapping_mul(step).wrapping_mul(PAGE);
            (at + 8 * entry, first.wrapping_add(page))
        })
    }

    /// Reads an operation from memory; `None` if it is none.
    pub fn decode(words: [u64; OP_WORDS]) -> Option<Self> {
        let [head, x @ ..] = words;
        match head >> 32 {
            1 => Some(Self::Execute {
                word: head as u32,
                x,
            }),
            2 => Some(Self::Delay(x[0])),
            3 => Some(Self::Start(x[0])),
            4 => Some(Self::list(x)),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = match self {
            Self::Delay(turns) => return write!(f, "delay {turns}"),
            Self::Start(vcpu) => return write!(f, "start {vcpu}"),
            Self::List { .. } => {
                f.write_str("list")?;
                let [_, operands @ ..] = self.encode();
                operands
            }
            Self::Execute { word, x } => {
                match words::NAMES.iter().find(|(_, known)| known == word) {
                    Some((name, _)) => write!(f, "{name}")?,
                    None => write!(f, "word:{word:#010x}")?,
                }
                *x
            }
        };
        // Zeros at the end are left out.
        let used = operands.iter().rposition(|value| *value != 0);
        for value in &operands[..used.map_or(0, |at| at + 1)] {
            match *value {
                LAST => write!(f, " last")?,
                LEASE => write!(f, " lease")?,
                value if value < 10 => write!(f, " {value}")?,
                value => write!(f, " {value:#x}")?,
            }
        }
        Ok(())
    }
}

/// A line of text that is no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// The first word names no operation.
    #[error(
        "no operation has this name; give `delay`, `start`, `list`, `word:CODE` or a name of `words::NAMES`"
    )]
    Name,
    /// A number cannot be read.
    #[error("an operand is no number of 64 bits, nor `last` or `lease`")]
    Number,
    /// There are more operands than registers.
    #[error("there are more than 4 operands")]
    Operands,
}

/// Reads a number, decimal or hexadecimal.
fn number(text: &str) -> Result<u64, OpError> {
    match text.strip_prefix("0x") {
        _ if text == "last" => Ok(LAST),
        _ if text == "lease" => Ok(LEASE),
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| OpError::Number)
}

impl FromStr for Op {
    type Err = OpError;

    fn from_str(line: &str) -> Result<Self, OpError> {
        let mut parts = line.split_ascii_whitespace();
        let name = parts.next().ok_or(OpError::Name)?;
        let mut x = [0; 4];
        for (at, part) in parts.enumerate() {
            *x.get_mut(at).ok_or(OpError::Operands)? = number(part)?;
        }
        match name {
            "delay" => return Ok(Self::Delay(x[0])),
            "start" => return Ok(Self::Start(x[0])),
            "list" => return Ok(Self::list(x)),
            _ => {}
        }
        let word = match name.strip_prefix("word:") {
            Some(code) => u32::try_from(number(code)?).map_err(|_| OpError::Number)?,
            None => {
                let found = words::NAMES.iter().find(|(known, _)| *known == name);
                found.ok_or(OpError::Name)?.1
            }
        };
        Ok(Self::Execute { word, x })
    }
}

/// Returns whether the puppet survives an instruction, whatever the hypervisor does with it: calls,
/// hints, barriers, system registers and maintenance that leave its translation and vectors alone,
/// and accesses by x1 that do not write its image.
pub fn is_harmless(word: u32, x: [u64; 4]) -> bool {
    match word {
        // HVC, SMC (Arm ARM, C4.1.66 "Exception generation").
        _ if word & 0xffe0_001f == 0xd400_0002 || word & 0xffe0_001f == 0xd400_0003 => true,
        // The puppet's own question would begin the next program.
        _ if word == 0xd503_201f | ASK << 5 => false,
        // Hints and barriers.
        _ if word & 0xffff_f01f == 0xd503_201f || word & 0xffff_f01f == 0xd503_301f => true,
        // MSR (immediate): DAIFSet and DAIFClr, without debug exceptions.
        _ if word & 0xffff_f01f == 0xd503_401f => word >> 5 & 7 >= 6 && word >> 8 & 8 == 0,
        // System instructions and registers: Rt is x0 to x3, or XZR. The address of DC ZVA is a
        // store's.
        _ if word & 0xffc0_0000 == 0xd500_0000 && word >> 19 & 3 != 0 => {
            let rt = word & 31;
            let is_store = word & 0xffff_ffe0 == words::DC_ZVA & 0xffff_ffe0;
            let value = x.get(rt as usize).copied().unwrap_or(0);
            let ends_qemu = word & 0xffff_ffe0 == words::ICC_BPR1 && value > 7;
            (rt < 4 || rt == 31)
                && !words::SELF_DESTRUCTIVE.contains(&(word & 0xffff_ffe0))
                && !ends_qemu
                && (!is_store || is_free(value))
        }
        // Loads and stores: the base is x1 (C4.1.89). What is written back is never used.
        _ if word & 0x0a00_0000 == 0x0800_0000 && word >> 5 & 31 == 1 => {
            // Transfers of general registers change x0 to x7 only, or XZR; those of SIMD any.
            let is_simd = word >> 26 & 1 == 1;
            let low = |register: u32| is_simd || register < 8 || register == 31;
            low(word & 31) && low(word >> 10 & 31 & pair_mask(word)) && is_free(x[1])
        }
        _ => false,
    }
}

/// Returns a mask for the second register of a pair; other instructions have none.
const fn pair_mask(word: u32) -> u32 {
    if word & 0x3a00_0000 == 0x2800_0000 {
        31
    } else {
        0
    }
}

/// Returns whether an access around an address leaves the puppet's image alone.
const fn is_free(address: u64) -> bool {
    address < 0x4000_0000 - 0x1000 || address >= FREE_RAM + 0x1000
}

/// Returns whether a list of so many entries lies in the RAM that a program may write.
const fn is_list_place(at: u64, count: u64) -> bool {
    let last = FREE_RAM + FREE_BYTES - 8 * LONGEST_LIST;
    at.is_multiple_of(8) && at >= FREE_RAM + PAGE && at <= last && count <= LONGEST_LIST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn ops() -> impl Strategy<Value = Op> {
        let words = prop_oneof![
            any::<u32>(),
            (0..words::NAMES.len()).prop_map(|at| words::NAMES[at].1)
        ];
        let value = || prop_oneof![any::<u64>(), 0..12_u64, Just(LAST), Just(LEASE)];
        prop_oneof![
            (words, [value(), value(), value(), value()])
                .prop_map(|(word, x)| Op::Execute { word, x }),
            any::<u64>().prop_map(Op::Delay),
            any::<u64>().prop_map(Op::Start),
            [value(), value(), value(), value()].prop_map(Op::list),
        ]
    }

    proptest! {
        #[test]
        fn an_operation_survives_text_and_memory(op in ops()) {
            prop_assert_eq!(op.to_string().parse(), Ok(op));
            prop_assert_eq!(Op::decode(op.encode()), Some(op));
        }
    }

    #[test]
    fn names_are_unique_and_their_instructions_harmless() {
        for (at, (name, word)) in words::NAMES.iter().enumerate() {
            for (other, code) in &words::NAMES[at + 1..] {
                assert!(name != other && word != code, "{name} and {other}");
            }
            assert!(is_harmless(*word, [0; 4]), "{name}");
        }
    }

    #[test]
    fn the_puppet_refuses_to_break_itself() {
        let image = [0, 0x4000_0100, 0, 0];
        let free = [0, FREE_RAM + 0x2000, 0, 0];
        let str_x0_x1 = 0xf900_0020;
        assert!(!is_harmless(str_x0_x1, image) && is_harmless(str_x0_x1, free));
        assert!(!is_harmless(0xf900_0040, free)); // str x0, [x2]
        assert!(!is_harmless(0xf940_003e, free)); // ldr x30, [x1]
        assert!(!is_harmless(0xa940_7820, free)); // ldp x0, x30, [x1]
        assert!(is_harmless(0xa940_0820, free)); // ldp x0, x2, [x1]
        assert!(!is_harmless(0xd518_1000, free)); // msr sctlr_el1, x0
        assert!(!is_harmless(0xd518_c000, free)); // msr vbar_el1, x0
        assert!(!is_harmless(0xd500_40bf, free)); // msr spsel, #0
        assert!(!is_harmless(0xd65f_03c0, free)); // ret
        assert!(!is_harmless(0x1400_0000, free)); // b .
        assert!(is_harmless(0xd538_1000, free)); // mrs x0, sctlr_el1
        assert!(!is_harmless(words::ICC_BPR1, [8, 0, 0, 0]));
        assert!(is_harmless(words::ICC_BPR1, [7, 8, 8, 8]));
        assert!(!is_harmless(0xd503_201f | ASK << 5, free));
    }

    #[test]
    fn a_list_is_written_where_it_breaks_nothing() {
        let entries = |at, count| Op::list([at, 0x4000_0001, count, 2]).entries();
        let free = FREE_RAM + PAGE;
        assert!(entries(free, 2).eq([(free, 0x4000_0001), (free + 8, 0x4000_2001)]));
        assert_eq!(entries(free, 512).count(), 512);
        assert_eq!(entries(free, 513).count(), 0);
        assert_eq!(entries(free + 4, 2).count(), 0);
        assert_eq!(entries(0x4000_0000, 2).count(), 0);
        assert_eq!(entries(FREE_RAM + FREE_BYTES - 8, 1).count(), 0);
        assert_eq!(entries(u64::MAX - 7, 1).count(), 0);
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        assert_eq!("".parse::<Op>(), Err(OpError::Name));
        assert_eq!("jump 1".parse::<Op>(), Err(OpError::Name));
        assert_eq!("hvc x".parse::<Op>(), Err(OpError::Number));
        assert_eq!("hvc 1 2 3 4 5".parse::<Op>(), Err(OpError::Operands));
        assert_eq!("word:0x1ffffffff".parse::<Op>(), Err(OpError::Number));
    }
}
