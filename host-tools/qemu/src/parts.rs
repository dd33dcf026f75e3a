//! Parts of a block that execute as a whole: QEMU leaves a block at an access to a device, and starts
//! it again from there, as another block.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Instructions of a block that are executed for certain once the first of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first one's position in the block.
    pub first: usize,
    /// Number of them.
    pub instructions: usize,
}

/// Divides a block of `all` instructions into its parts, in order. `word` returns an instruction's
/// code.
pub fn parts(all: usize, word: impl Fn(usize) -> u32) -> impl Iterator<Item = Part> {
    let mut first = 0;
    (0..all).filter_map(move |at| {
        if at + 1 < all && !may_leave_block(word(at)) {
            return None;
        }
        let part = Part {
            first,
            instructions: at + 1 - first,
        };
        first = at + 1;
        Some(part)
    })
}

/// Returns whether execution may leave the block of code at an instruction: by a branch, an
/// exception, or an access to a device. Integer instructions on registers never do (Arm ARM C4.1:
/// data processing, immediate and register).
const fn may_leave_block(word: u32) -> bool {
    !matches!(word >> 25 & 0xf, 0b1000 | 0b1001 | 0b0101 | 0b1101)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integer_instructions_stay_in_their_block() {
        // add x0, x0, #1; mov x0, x1; madd x0, x1, x2, x3; adrp x0, .; add x0, x0, x1; mul x0, x0, x1
        for stays in [
            0x9100_0400,
            0xaa01_03e0,
            0x9b02_0c20,
            0x9000_0000,
            0x8b01_0000,
            0x9b01_7c00,
        ] {
            assert!(!may_leave_block(stays), "{stays:#x}");
        }
        // ldr; stp; b; b.eq; cbz; svc; mrs; fadd (traps while FP is off), twice; udf; ldr q; ldr
        // (literal); ldr x0, [x0]; mrs x0, ttbr0_el1
        for leaves in [
            0xf940_0020,
            0xa900_0440,
            0x1400_0000,
            0x5400_0040,
            0xb400_0000,
            0xd400_0001,
            0xd538_0000,
            0x1e62_2820,
            0x1e60_2820,
            0x0000_0000,
            0x3dc0_0020,
            0x5800_0000,
            0xf940_0000,
            0xd538_2000,
        ] {
            assert!(may_leave_block(leaves), "{leaves:#x}");
        }
    }

    #[test]
    fn a_part_ends_where_a_block_may_be_left_and_at_its_end() {
        let part = |first, instructions| Part {
            first,
            instructions,
        };
        let (add, load) = (0x9100_0400, 0xf940_0020);
        let of = |words: &[u32]| parts(words.len(), |at| words[at]).collect::<Vec<_>>();
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[add, add]), [part(0, 2)]);
        assert_eq!(of(&[load, load]), [part(0, 1), part(1, 1)]);
        assert_eq!(of(&[add, load, add, add]), [part(0, 2), part(2, 2)]);
    }
}
