//! The issue of a block's instructions by an in-order core: the core waits for a loaded value at
//! its first use.
//!
//! A load that hits the L1 delivers its value after `load_to_use` cycles. This cost is known when a
//! block is translated. The further cost of a miss depends on the distance of its first use:
//! [`Waits`].
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Register sets: bits 0 to 30 are X0 to X30, bits 32 to 63 V0 to V31.
type Registers = u64;

/// The registers that an instruction reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// Registers that it reads.
    pub reads: Registers,
    /// Registers whose value is there in the next cycle.
    pub writes: Registers,
    /// Registers that it loads.
    pub loads: Registers,
}

/// Returns a general register's bit; register 31 is zero or SP, which no load writes.
const fn x(number: u32) -> Registers {
    if number & 31 == 31 {
        0
    } else {
        1 << (number & 31)
    }
}
/// Returns a vector register's bit.
const fn v(number: u32) -> Registers {
    1 << (32 + (number & 31))
}

impl Operands {
    /// Decodes an A64 instruction (Arm ARM C4.1). An unknown one has no operands: nothing waits for
    /// it.
    pub const fn of(word: u32) -> Self {
        match word >> 25 & 0xf {
            0b1000 | 0b1001 => Self::immediate(word),
            0b0101 | 0b1101 => Self::register(word),
            0b1010 | 0b1011 => Self::branch(word),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => Self::memory(word),
            0b0111 | 0b1111 => Self {
                reads: v(word >> 5) | v(word >> 16) | v(word),
                writes: v(word),
                loads: 0,
            },
            _ => Self {
                reads: 0,
                writes: 0,
                loads: 0,
            },
        }
    }

    /// Data processing with an immediate.
    const fn immediate(word: u32) -> Self {
        let (rd, rn) = (x(word), x(word >> 5));
        let reads = match word >> 23 & 7 {
            // ADR, ADRP.
            0b000 | 0b001 => 0,
            // MOVN, MOVZ; MOVK keeps the rest.
            0b101 => {
                if word >> 29 & 3 == 3 {
                    rd
                } else {
                    0
                }
            }
            // BFM keeps the rest.
            0b110 => {
                if word >> 29 & 3 == 1 {
                    rd | rn
                } else {
                    rn
                }
            }
            // EXTR.
            0b111 => rn | x(word >> 16),
            _ => rn,
        };
        Self {
            reads,
            writes: rd,
            loads: 0,
        }
    }

    /// Data processing with registers.
    const fn register(word: u32) -> Self {
        let (rd, rn, rm) = (x(word), x(word >> 5), x(word >> 16));
        let kind = word >> 21 & 0xff;
        if kind & 0xf8 == 0b1101_1000 {
            return Self {
                reads: rn | rm | x(word >> 10),
                writes: rd,
                loads: 0,
            };
        }
        match kind {
            // CCMN, CCMP, with a register or an immediate: nothing but flags.
            0b1101_0010 => Self {
                reads: if word >> 11 & 1 == 0 { rn | rm } else { rn },
                writes: 0,
                loads: 0,
            },
            // One source: RBIT, REV, CLZ, ...
            0b1101_0110 if word >> 30 & 1 == 1 => Self {
                reads: rn,
                writes: rd,
                loads: 0,
            },
            _ => Self {
                reads: rn | rm,
                writes: rd,
                loads: 0,
            },
        }
    }

    const fn branch(word: u32) -> Self {
        let none = Self {
            reads: 0,
            writes: 0,
            loads: 0,
        };
        match word >> 24 {
            // CBZ, CBNZ, TBZ, TBNZ.
            0x34..=0x37 | 0xb4..=0xb7 => Self {
                reads: x(word),
                ..none
            },
            // BR, BLR, RET.
            0xd6 => Self {
                reads: x(word >> 5),
                ..none
            },
            // MRS, MSR.
            0xd5 if word >> 20 & 3 != 0 && word >> 21 & 1 == 1 => Self {
                writes: x(word),
                ..none
            },
            0xd5 if word >> 20 & 3 != 0 => Self {
                reads: x(word),
                ..none
            },
            _ => none,
        }
    }

    /// Loads and stores.
    const fn memory(word: u32) -> Self {
        let vector = word >> 26 & 1 == 1;
        let base = x(word >> 5);
        let (first, second) = if vector {
            (v(word), v(word >> 10))
        } else {
            (x(word), x(word >> 10))
        };
        let index = x(word >> 16);
        let load = word >> 22 & 1 == 1;
        let none = Self {
            reads: base,
            writes: 0,
            loads: 0,
        };
        match word >> 28 & 3 {
            // Structures of vectors: four registers at most.
            0b00 if vector && load => Self {
                loads: v(word) | v(word + 1) | v(word + 2) | v(word + 3),
                ..none
            },
            0b00 if vector => Self {
                reads: base | v(word) | v(word + 1) | v(word + 2) | v(word + 3),
                ..none
            },
            // Exclusive, acquire and release. A store-exclusive reports in Rs.
            0b00 if load => Self {
                loads: if word >> 21 & 1 == 1 {
                    first | second
                } else {
                    first
                },
                ..none
            },
            0b00 => Self {
                reads: base | first | if word >> 21 & 1 == 1 { second } else { 0 },
                writes: index,
                loads: 0,
            },
            // Literal.
            0b01 if word >> 24 & 1 == 0 => Self {
                reads: 0,
                writes: 0,
                loads: first,
            },
            0b01 => none,
            0b10 => {
                let writes = if word >> 23 & 1 == 1 { base } else { 0 };
                if load {
                    Self {
                        reads: base,
                        writes,
                        loads: first | second,
                    }
                } else {
                    Self {
                        reads: base | first | second,
                        writes,
                        loads: 0,
                    }
                }
            }
            _ => Self::single(word, vector, base, first, index),
        }
    }

    /// Loads and stores of one register.
    const fn single(
        word: u32,
        vector: bool,
        base: Registers,
        rt: Registers,
        index: Registers,
    ) -> Self {
        let (size, opc) = (word >> 30, word >> 22 & 3);
        let scaled = word >> 24 & 1 == 1;
        let kind = word >> 10 & 3;
        let (mut reads, mut writes) = (base, 0);
        if !scaled && word >> 21 & 1 == 1 {
            if kind == 0b00 {
                // Atomics: a load of Rt and a store of Rs.
                return Self {
                    reads: base | index,
                    writes: 0,
                    loads: rt,
                };
            }
            reads |= index;
        } else if !scaled && kind & 1 == 1 {
            writes = base;
        }
        // PRFM loads nothing.
        if !vector && size == 3 && opc == 2 {
            return Self {
                reads,
                writes: 0,
                loads: 0,
            };
        }
        let load = if vector { opc & 1 == 1 } else { opc != 0 };
        if load {
            Self {
                reads,
                writes,
                loads: rt,
            }
        } else {
            Self {
                reads: reads | rt,
                writes,
                loads: 0,
            }
        }
    }
}

/// Returns the bytes that a store instruction stores, at most 64; 0 for instructions that do not
/// store.
pub const fn stored_bytes(word: u32) -> u32 {
    if word >> 27 & 1 != 1 || word >> 25 & 1 != 0 {
        return 0;
    }
    let vector = word >> 26 & 1 == 1;
    let load = word >> 22 & 1 == 1;
    match word >> 28 & 3 {
        0b00 if vector => {
            // ST1 to ST4 of whole registers, by opcode; of single lanes, a lane.
            let registers = match word >> 12 & 0xf {
                0b0000 | 0b0010 => 4,
                0b0100 | 0b0110 => 3,
                0b1000 | 0b1010 => 2,
                _ => 1,
            };
            if load || word >> 24 & 1 == 1 {
                0
            } else {
                registers * (8 << (word >> 30 & 1))
            }
        }
        0b00 if !load => (1 << (word >> 30)) << (word >> 21 & 1),
        0b10 if !load => {
            2 * if vector {
                4 << (word >> 30)
            } else {
                4 << (word >> 31)
            }
        }
        0b11 if vector && word >> 22 & 3 == 2 => 16,
        0b11 if word >> 22 & 3 == 0 => 1 << (word >> 30),
        _ => 0,
    }
}

/// The issue of a block's instructions, in cycles from its start, if all accesses hit the L1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issue {
    /// Cycle of each instruction.
    pub at: Vec<u64>,
    /// Cycle of the first instruction that needs an instruction's loaded value, or the block's end.
    pub used: Vec<u64>,
    /// Cycle at which the next block starts.
    pub end: u64,
}

/// Issues the instructions of a block in order, `cost` cycles each at least. The value of a load
/// that hits is there after `load_to_use` cycles.
pub fn issue(words: impl Iterator<Item = u32>, cost: u64, load_to_use: u64) -> Issue {
    // The cycle at which each register has its value, and the load that it is from.
    let mut ready = [(0u64, usize::MAX); 64];
    let (mut now, mut at, mut used) = (0, Vec::new(), Vec::<u64>::new());
    for (number, word) in words.enumerate() {
        let operands = Operands::of(word);
        let each = |set: Registers| (0..64).filter(move |register| set >> register & 1 == 1);
        for register in each(operands.reads) {
            now = now.max(ready[register].0);
        }
        // Who overwrites a register that is still on the way waits for it too.
        for register in each(operands.reads | operands.loads | operands.writes) {
            if let Some(used) = used.get_mut(ready[register].1) {
                *used = now.min(*used);
            }
        }
        for register in each(operands.writes) {
            ready[register] = (now, usize::MAX);
        }
        for register in each(operands.loads) {
            ready[register] = (now + load_to_use, number);
        }
        at.push(now);
        used.push(u64::MAX);
        now += cost;
    }
    for used in &mut used {
        *used = now.min(*used);
    }
    Issue { at, used, end: now }
}

/// Maximum number of loads that a core can wait for at a time.
pub const MOST_LOADS: usize = 8;

/// The loads of a block whose lines are on the way, by their first use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// Cycle of the block, and the cycle of the core's clock at which the value is there.
    uses: [(u64, u64); MOST_LOADS],
    number: usize,
}

impl Waits {
    /// Returns whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Adds a load whose value is needed in a cycle of the block and arrives at `arrival`. If there
    /// are already `most` loads, returns the arrival of the one with the earliest use: the core
    /// waits for it.
    pub fn add(&mut self, used: u64, arrival: u64, most: usize) -> Option<u64> {
        let full = self.number >= most.clamp(1, MOST_LOADS);
        let waited = full.then(|| self.pop()).map(|(_, arrival)| arrival);
        let mut place = self.number;
        while place > 0 && self.uses[place - 1].0 > used {
            self.uses[place] = self.uses[place - 1];
            place -= 1;
        }
        self.uses[place] = (used, arrival);
        self.number += 1;
        waited
    }

    fn pop(&mut self) -> (u64, u64) {
        let first = self.uses[0];
        self.uses.copy_within(1..self.number, 0);
        self.number -= 1;
        first
    }

    /// Returns the cycles that the core waits for the values that it needs up to a cycle of the
    /// block. `start` is the block's start, had the core not waited since.
    pub fn until(&mut self, cycle: u64, start: u64) -> u64 {
        let mut waited = 0;
        while self.number > 0 && self.uses[0].0 <= cycle {
            let (used, arrival) = self.pop();
            waited += arrival.saturating_sub(start + waited + used);
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x_only(reads: &[u32], writes: &[u32], loads: &[u32]) -> Operands {
        let set = |list: &[u32]| list.iter().fold(0, |set, number| set | x(*number));
        Operands {
            reads: set(reads),
            writes: set(writes),
            loads: set(loads),
        }
    }

    #[test]
    fn operands() {
        // As encoded by LLVM.
        let table = [
            (0x9100_0400, x_only(&[0], &[0], &[])),       // add x0, x0, #1
            (0xd280_0020, x_only(&[], &[0], &[])),        // mov x0, #1
            (0xf280_0020, x_only(&[0], &[0], &[])),       // movk x0, #1
            (0x9000_0000, x_only(&[], &[0], &[])),        // adrp x0, .
            (0x8b02_0020, x_only(&[1, 2], &[0], &[])),    // add x0, x1, x2
            (0x9b02_0c20, x_only(&[1, 2, 3], &[0], &[])), // madd x0, x1, x2, x3
            (0xdac0_1020, x_only(&[1], &[0], &[])),       // clz x0, x1
            (0xfa41_0804, x_only(&[0], &[], &[])),        // ccmp x0, #1, #4, eq
            (0xfa41_0004, x_only(&[0, 1], &[], &[])),     // ccmp x0, x1, #4, eq
            (0xb400_0001, x_only(&[1], &[], &[])),        // cbz x1, .
            (0xd65f_03c0, x_only(&[30], &[], &[])),       // ret
            (0xd53b_e040, x_only(&[], &[0], &[])),        // mrs x0, cntvct_el0
            (0xd51b_9c01, x_only(&[1], &[], &[])),        // msr pmcr_el0, x1
            (0xf940_0020, x_only(&[1], &[], &[0])),       // ldr x0, [x1]
            (0xf840_8420, x_only(&[1], &[1], &[0])),      // ldr x0, [x1], #8
            (0xf862_6820, x_only(&[1, 2], &[], &[0])),    // ldr x0, [x1, x2]
            (0x5800_0000, x_only(&[], &[], &[0])),        // ldr x0, .
            (0xf900_0020, x_only(&[0, 1], &[], &[])),     // str x0, [x1]
            (0xa940_0440, x_only(&[2], &[], &[0, 1])),    // ldp x0, x1, [x2]
            (0xa8c1_0440, x_only(&[2], &[2], &[0, 1])),   // ldp x0, x1, [x2], #16
            (0xa900_0440, x_only(&[0, 1, 2], &[], &[])),  // stp x0, x1, [x2]
            (0xf980_0020, x_only(&[1], &[], &[])),        // prfm pldl1keep, [x1]
            (0xc85f_7c41, x_only(&[2], &[], &[1])),       // ldxr x1, [x2]
            (0xc803_7c41, x_only(&[1, 2], &[3], &[])),    // stxr w3, x1, [x2]
            (
                0x3dc0_0020,
                Operands {
                    loads: v(0),
                    ..x_only(&[1], &[], &[])
                },
            ), // ldr q0, [x1]
            (
                0x3d80_0020,
                Operands {
                    reads: v(0) | x(1),
                    ..x_only(&[], &[], &[])
                },
            ), // str q0, [x1]
            (0xd503_201f, Operands::default()),           // nop
        ];
        for (word, expected) in table {
            assert_eq!(Operands::of(word), expected, "{word:#010x}");
        }
    }

    #[test]
    fn bytes_of_stores() {
        // str x; str w; strb; stur x; stp x; stp w; str q; stp q; stxr x; st1 {v0-v3.16b}; ldr x;
        // ldp x; ldr q; add.
        let table = [
            (0xf900_0020, 8),
            (0xb900_0020, 4),
            (0x3900_0020, 1),
            (0xf800_1020, 8),
            (0xa900_0440, 16),
            (0x2900_0440, 8),
            (0x3d80_0020, 16),
            (0xad00_0440, 32),
            (0xc803_7c41, 8),
            (0x4c00_2020, 64),
            (0xf940_0020, 0),
            (0xa940_0440, 0),
            (0x3dc0_0020, 0),
            (0x9100_0400, 0),
        ];
        for (word, bytes) in table {
            assert_eq!(stored_bytes(word), bytes, "{word:#010x}");
        }
    }

    #[test]
    fn a_value_is_waited_for_where_it_is_used() {
        // ldr x0, [x0] twice: the second one needs the first one's value.
        let chain = issue([0xf940_0000, 0xf940_0000].into_iter(), 1, 3);
        assert_eq!(
            chain,
            Issue {
                at: vec![0, 3],
                used: vec![3, 4],
                end: 4
            }
        );
        // ldr x0, [x1]; add x2, x2, #1; add x2, x2, #1; add x0, x0, #1: nobody waits.
        let words = [0xf940_0020, 0x9100_0442, 0x9100_0442, 0x9100_0400];
        assert_eq!(
            issue(words.into_iter(), 1, 3),
            Issue {
                at: vec![0, 1, 2, 3],
                used: vec![3, 4, 4, 4],
                end: 4
            }
        );
        assert_eq!(issue(words.into_iter(), 1, 4).end, 5);
        assert_eq!(issue(words.into_iter(), 2, 1).end, 8);
    }

    #[test]
    fn a_core_waits_at_the_first_use_and_for_what_is_left() {
        let mut waits = Waits::default();
        assert_eq!(waits.add(4, 130, 3), None);
        assert_eq!(waits.add(2, 120, 3), None);
        assert_eq!(waits.until(1, 100), 0, "nothing is used yet");
        assert_eq!(waits.until(3, 100), 18, "from cycle 102 to 120");
        assert_eq!(waits.until(9, 118), 8, "from cycle 122 to 130");
        assert!(waits.is_empty());
        assert_eq!(
            [
                waits.add(8, 200, 2),
                waits.add(9, 210, 2),
                waits.add(9, 220, 2)
            ],
            [None, None, Some(200)]
        );
    }
}
