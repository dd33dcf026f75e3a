//! Loads and stores that the syndrome does not describe, decoded from the instruction: write-back
//! and pairs.
//!
//! The forms are those that gcc and clang emit for plain C over device registers (docs/guests.md).
//! Encodings are those of the Arm ARM, DDI 0487, C4.1 "Loads and Stores". The word is an
//! allegation: another vCPU may have changed it since it was executed, so [`Transfer::matches`]
//! compares it with what the hardware has reported.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::syndrome::{Access, Width};
use thiserror::Error;

/// Why a guest's access to an emulated device is not carried out. The guest takes an external
/// abort, and messages have the reason by its name here, as docs/guests.md lists them.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// It is of SIMD or floating-point registers.
    #[error("SimdRegisters")]
    SimdRegisters,
    /// It is exclusive, atomic, cache maintenance, has the stack pointer as its base, or another
    /// form that is not decoded.
    #[error("UnknownForm")]
    UnknownForm,
    /// It is not the instruction that the hardware has reported: another vCPU has changed it.
    #[error("ChangedInstruction")]
    ChangedInstruction,
    /// The device has no register of this width there, or the access is not aligned, or not all of
    /// it is in the page.
    #[error("WidthOrAlignment")]
    WidthOrAlignment,
}

/// A load or store of one or two general registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The accesses of its registers, in the order of addresses.
    pub accesses: [Option<Access>; 2],
    /// The base register, which is not the stack pointer.
    pub base: u8,
    /// The value that write-back adds to the base register.
    pub write_back: u64,
    offset: u64,
    is_write: bool,
}

impl Transfer {
    /// Decodes an instruction.
    ///
    /// # Errors
    /// [`Refusal::SimdRegisters`] or [`Refusal::UnknownForm`]; the latter also where the
    /// architecture leaves open what happens: a register is loaded twice, or write-back changes
    /// a register that is transferred.
    pub fn decode(word: u32) -> Result<Self, Refusal> {
        // Bits 27 to 25 of all loads and stores of SIMD registers.
        if word & 0x0e00_0000 == 0x0c00_0000 {
            return Err(Refusal::SimdRegisters);
        }
        // Of a single register: the size in bits [31:30], and in [23:22] whether it loads or
        // extends the sign. Of a pair: size and sign in [31:30], the index in [24:23], a load in
        // bit 22.
        let top = word >> 30;
        let kind = word >> 22 & 3;
        let is_pair = word & 0x3a00_0000 == 0x2800_0000;
        // A pair's width and kind are expressed as those of single registers: 0 stores, 1 loads, 2
        // and 3 extend the sign to 64 and 32 bits. The index is 1 for post-index, 2 for an
        // offset, 3 for pre-index.
        let (size, kind, index, immediate) = match (top, kind & 1) {
            (0, _) | (1, 1) | (2, _) if is_pair => {
                let size = 2 + top / 2;
                (
                    size,
                    (kind & 1) + (top & 1),
                    word >> 23 & 3,
                    ((word << 10) as i32 >> 25) << size,
                )
            }
            // LDR and STR (immediate), post- or pre-indexed: bits [29:27] are 0b111, [25:24] are 0,
            // bit 21 is 0, and bit 10 is 1.
            _ if word & 0x3b20_0400 == 0x3800_0400 => {
                (top, kind, word >> 10 & 3, (word << 11) as i32 >> 23)
            }
            _ => return Err(Refusal::UnknownForm),
        };
        let [first, base, second] = [0, 5, 10].map(|lowest| word as u64 >> lowest & 31);
        let is_changed = index != 2 && (base == first || is_pair && base == second);
        let is_twice = is_pair && kind > 0 && first == second;
        if index == 0 || kind > 1 && size + kind > 4 || base == 31 || is_changed || is_twice {
            return Err(Refusal::UnknownForm);
        }
        let by = |is_added: bool| if is_added { immediate as u64 } else { 0 };
        let width = Width::from_sas(size.into());
        let access = |register| Access::new(register, width, kind > 1, kind == 2);
        Ok(Self {
            // The first register of a pair is at the lower address (C6.2, LDP and STP).
            accesses: [Some(access(first)), is_pair.then(|| access(second))],
            base: base as u8,
            // Post-index adds the immediate after the access, pre-index before it.
            write_back: by(index != 2),
            offset: by(index != 1),
            is_write: kind == 0,
        })
    }

    /// Returns whether this, with its base register at `base`, is the access to `address` that the
    /// hardware has reported. The uppermost byte of an address may be a tag.
    pub const fn matches(&self, base: u64, address: u64, is_write: bool) -> bool {
        self.is_write == is_write && (base.wrapping_add(self.offset) ^ address) << 8 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;
    use std::vec::Vec;

    /// What an encoding does: bits transferred by each register, bits to which the sign is
    /// extended, and whether it stores.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Meaning(u32, Option<u32>, bool);

    /// The encodings of the instructions' pages (Arm ARM DDI 0487, C6.2), without SIMD: `i` is the
    /// immediate, `t`, `u` and `n` are Rt, Rt2 and Rn.
    const PAGES: [(&str, &str, Meaning); 13] = [
        (
            "STRB",
            "00 111 0 00 00 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(8, None, true),
        ),
        (
            "LDRB",
            "00 111 0 00 01 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(8, None, false),
        ),
        (
            "LDRSB x",
            "00 111 0 00 10 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(8, Some(64), false),
        ),
        (
            "LDRSB w",
            "00 111 0 00 11 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(8, Some(32), false),
        ),
        (
            "STRH",
            "01 111 0 00 00 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(16, None, true),
        ),
        (
            "LDRH",
            "01 111 0 00 01 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(16, None, false),
        ),
        (
            "LDRSH x",
            "01 111 0 00 10 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(16, Some(64), false),
        ),
        (
            "LDRSH w",
            "01 111 0 00 11 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(16, Some(32), false),
        ),
        (
            "STR w",
            "10 111 0 00 00 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(32, None, true),
        ),
        (
            "LDR w",
            "10 111 0 00 01 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(32, None, false),
        ),
        (
            "LDRSW",
            "10 111 0 00 10 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(32, Some(64), false),
        ),
        (
            "STR x",
            "11 111 0 00 00 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(64, None, true),
        ),
        (
            "LDR x",
            "11 111 0 00 01 0 iiiiiiiii xx nnnnn ttttt",
            Meaning(64, None, false),
        ),
    ];
    const PAIRS: [(&str, &str, Meaning); 5] = [
        (
            "STP w",
            "00 101 0 0xx 0 iiiiiii uuuuu nnnnn ttttt",
            Meaning(32, None, true),
        ),
        (
            "LDP w",
            "00 101 0 0xx 1 iiiiiii uuuuu nnnnn ttttt",
            Meaning(32, None, false),
        ),
        (
            "LDPSW",
            "01 101 0 0xx 1 iiiiiii uuuuu nnnnn ttttt",
            Meaning(32, Some(64), false),
        ),
        (
            "STP x",
            "10 101 0 0xx 0 iiiiiii uuuuu nnnnn ttttt",
            Meaning(64, None, true),
        ),
        (
            "LDP x",
            "10 101 0 0xx 1 iiiiiii uuuuu nnnnn ttttt",
            Meaning(64, None, false),
        ),
    ];

    /// Matches a word with a pattern, bit by bit. Returns the value of each letter's field.
    fn fields(word: u32, pattern: &str) -> Option<impl Fn(char) -> u32> {
        let pattern: String = pattern.split_whitespace().collect();
        assert_eq!(pattern.len(), 32, "{pattern}");
        let mut fields: Vec<(char, u32)> = Vec::new();
        for (at, letter) in pattern.chars().enumerate() {
            let bit = word >> (31 - at) & 1;
            match letter {
                '0' | '1' if letter.to_digit(2) != Some(bit) => return None,
                '0' | '1' => {}
                _ => match fields.iter_mut().find(|(name, _)| *name == letter) {
                    Some((_, value)) => *value = *value << 1 | bit,
                    None => fields.push((letter, bit)),
                },
            }
        }
        Some(move |letter| {
            fields
                .iter()
                .find(|(name, _)| *name == letter)
                .map_or(0, |&(_, value)| value)
        })
    }

    /// What must be decoded: registers, base, offset, write-back, and their meaning.
    type Expected = (Vec<u32>, u32, i64, i64, Meaning);

    fn expected(word: u32) -> Option<Expected> {
        for (is_pair, (_, pattern, meaning)) in PAGES
            .iter()
            .map(|page| (false, page))
            .chain(PAIRS.iter().map(|page| (true, page)))
        {
            let Some(field) = fields(word, pattern) else {
                continue;
            };
            let (bits, scale) = if is_pair {
                (7, i64::from(meaning.0 / 8))
            } else {
                (9, 1)
            };
            let raw = i64::from(field('i'));
            let immediate = if raw >= 1 << (bits - 1) {
                raw - (1 << bits)
            } else {
                raw
            } * scale;
            let (t, u, n) = (field('t'), field('u'), field('n'));
            let registers = if is_pair {
                std::vec![t, u]
            } else {
                std::vec![t]
            };
            // 00 is unscaled or without a hint, 10 unprivileged or a plain offset.
            let (offset, change) = match (field('x'), is_pair) {
                (1, _) => (0, immediate),
                (3, _) => (immediate, immediate),
                (2, true) => (immediate, 0),
                _ => return None,
            };
            let written_back = field('x') != 2 && registers.contains(&n);
            let twice = is_pair && !meaning.2 && t == u;
            return (n != 31 && !written_back && !twice)
                .then_some((registers, n, offset, change, *meaning));
        }
        None
    }

    fn check(word: u32) {
        let found = Transfer::decode(word);
        let Some((registers, base, offset, change, Meaning(bits, sign, is_write))) = expected(word)
        else {
            assert!(found.is_err(), "{word:#010x}: {found:x?}");
            return;
        };
        let found = found.unwrap_or_else(|refusal| panic!("{word:#010x}: {refusal:?}"));
        let accesses: Vec<Access> = found.accesses.into_iter().flatten().collect();
        assert_eq!(
            accesses
                .iter()
                .map(|access| u32::from(access.register()))
                .collect::<Vec<_>>(),
            registers,
            "{word:#010x}"
        );
        for access in accesses {
            assert_eq!(access.width().bytes() * 8, u64::from(bits), "{word:#010x}");
            assert_eq!(
                access
                    .sign_extend()
                    .then(|| if access.wide() { 64 } else { 32 }),
                sign,
                "{word:#010x}"
            );
        }
        assert_eq!(
            (u32::from(found.base), found.write_back as i64),
            (base, change),
            "{word:#010x}"
        );
        let at = 0x900_0000u64;
        assert!(
            found.matches(at, at.wrapping_add_signed(offset), is_write),
            "{word:#010x}"
        );
        assert!(
            !found.matches(at, at.wrapping_add_signed(offset), !is_write),
            "{word:#010x}"
        );
        assert!(
            !found.matches(at, at.wrapping_add_signed(offset + 1), is_write),
            "{word:#010x}"
        );
    }

    /// All that is no immediate and no register, with registers and immediates at their ends.
    #[test]
    fn every_form_is_what_its_page_says() {
        let step = if cfg!(miri) { 61 } else { 1 };
        for form in (0..1u32 << 13).step_by(step) {
            for rest in [0, 0x3ff, 0x3e0, 0x1f, 0x021, 0x3de, 0x155] {
                for immediate in [0, 0x1ff, 0x100, 0x0ff, 0x001, 0x042] {
                    check((form >> 2) << 21 | immediate << 12 | (form & 3) << 10 | rest);
                }
            }
        }
    }

    /// Assembled by LLVM.
    #[test]
    fn instructions_of_an_assembler_are_decoded() {
        let decoded =
            |word| Transfer::decode(word).map(|found| (found.base, found.write_back as i64));
        for (word, base, change) in [
            (0x3800_1422, 1, 1),    // strb w2, [x1], #1
            (0x381f_fc22, 1, -1),   // strb w2, [x1, #-1]!
            (0x7840_2422, 1, 2),    // ldrh w2, [x1], #2
            (0xb840_4422, 1, 4),    // ldr w2, [x1], #4
            (0xb850_0422, 1, -256), // ldr w2, [x1], #-256
            (0xb88f_f422, 1, 255),  // ldrsw x2, [x1], #255
            (0xf840_8c22, 1, 8),    // ldr x2, [x1, #8]!
            (0x2940_0c22, 1, 0),    // ldp w2, w3, [x1]
            (0x29bf_0c22, 1, -8),   // stp w2, w3, [x1, #-8]!
            (0x68e0_0c22, 1, -256), // ldpsw x2, x3, [x1], #-256
            (0xa8c1_0c22, 1, 16),   // ldp x2, x3, [x1], #16
        ] {
            assert_eq!(decoded(word), Ok((base, change)), "{word:#010x}");
        }
        for (word, refusal) in [
            (0x3d80_0020, Refusal::SimdRegisters), // str q0, [x1]
            (0xad00_0420, Refusal::SimdRegisters), // stp q0, q1, [x1]
            (0x3c81_0420, Refusal::SimdRegisters), // str q0, [x1], #16
            (0x4c9f_7020, Refusal::SimdRegisters), // st1 {v0.16b}, [x1], #16
            (0x885f_7c22, Refusal::UnknownForm),   // ldxr w2, [x1]
            (0xb820_0022, Refusal::UnknownForm),   // ldadd w0, w2, [x1]
            (0xd50b_7421, Refusal::UnknownForm),   // dc zva, x1
            (0x2840_0c22, Refusal::UnknownForm),   // ldnp w2, w3, [x1]
            (0xb840_47e2, Refusal::UnknownForm),   // ldr w2, [sp], #4
            (0, Refusal::UnknownForm),             // udf #0
        ] {
            assert_eq!(decoded(word), Err(refusal), "{word:#010x}");
        }
    }

    #[test]
    fn the_tag_of_an_address_does_not_count() {
        let post = Transfer::decode(0x3800_1422).expect("strb w2, [x1], #1");
        assert!(post.matches(0xab00_0000_0800_0400, 0x0800_0400, true));
        assert!(!post.matches(0x0080_0000_0800_0400, 0x0800_0400, true));
    }

    proptest! {
        #[test]
        fn every_word_is_what_its_page_says(word: u32, group in 0u32..3) {
            // A third of all words, and two thirds of the two groups.
            check(match group {
                0 => word,
                1 => word & !0x3f20_0400 | 0x3800_0400,
                _ => word & !0x3e00_0000 | 0x2800_0000,
            });
        }
    }
}
