//! Translation tables of the 64-bit format (Arm ARM D8): the fields of their registers and of
//! descriptors.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The memory that contains the tables.
pub trait Memory {
    /// Reads a descriptor at a physical address, as part of a walk.
    fn read(&mut self, physical: u64, cacheable: bool) -> u64;
    /// Returns a table of 4 KiB without a walk.
    fn table(&mut self, physical: u64) -> [u64; 512];
}

/// Bits of an address in a descriptor or a base register.
const OUTPUT: u64 = 0x0000_ffff_ffff_f000;
const BASE: u64 = 0x0000_ffff_ffff_fffe;
/// A descriptor's bit 52: it is one of 16 that map one piece.
const CONTIGUOUS: u64 = 1 << 52;
/// A descriptor's bit 11: the translation is of one ASID.
const NOT_GLOBAL: u64 = 1 << 11;

/// The tables of one stage for one range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Address of the first table.
    pub root: u64,
    /// log2 of the bytes in a page.
    pub granule: u32,
    /// Bits of an input address.
    pub bits: u32,
    /// Level of the first table.
    pub level: u32,
    /// Walks go through the caches.
    pub cacheable: bool,
}

/// A descriptor that maps a block or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its output address.
    pub base: u64,
    /// log2 of the bytes that it maps, or that it maps together with its neighbors.
    pub shift: u32,
    /// log2 of the bytes that it maps alone.
    pub own: u32,
    /// It is valid in all ASIDs.
    pub global: bool,
}

impl Leaf {
    /// Returns the output address of an input address.
    pub const fn output(&self, input: u64) -> u64 {
        let mask = (1 << self.own) - 1;
        self.base & !mask | input & mask
    }
}

impl Tables {
    /// Returns log2 of the bytes that a descriptor of a level maps.
    pub const fn shift(&self, level: u32) -> u32 {
        self.granule + (3 - level) * (self.granule - 3)
    }
    /// Returns the part of an address that the tables translate.
    pub const fn input(&self, address: u64) -> u64 {
        address & ((1 << self.bits) - 1)
    }
    /// Returns the offset of an input address's descriptor in a table of a level. The first table
    /// of stage 2 may be larger than others.
    pub const fn offset(&self, input: u64, level: u32) -> u64 {
        let number = input >> self.shift(level);
        let mask = if level == self.level {
            u64::MAX
        } else {
            (1 << (self.granule - 3)) - 1
        };
        (number & mask) * 8
    }
    /// Returns the table that a descriptor points to, if it does.
    pub const fn next(&self, descriptor: u64, level: u32) -> Option<u64> {
        if level < 3 && descriptor & 3 == 3 {
            Some(descriptor & OUTPUT & (u64::MAX << self.granule))
        } else {
            None
        }
    }
    /// Returns the mapping of a descriptor that is valid and no table's.
    pub const fn leaf(&self, descriptor: u64, level: u32) -> Option<Leaf> {
        let is_page = level == 3 && descriptor & 3 == 3;
        let is_block = matches!(level, 1 | 2) && descriptor & 3 == 1;
        if !is_page && !is_block {
            return None;
        }
        let own = self.shift(level);
        // The sizes that a Cortex-A53's buffers have (TRM, Table 6-16): 16 pages of 4 KiB, 32 of 64
        // KiB.
        let shift = match (descriptor & CONTIGUOUS != 0 && is_page, self.granule) {
            (true, 12) => 16,
            (true, 16) => 21,
            _ => own,
        };
        let base = descriptor & OUTPUT & (u64::MAX << own);
        Some(Leaf {
            base,
            shift,
            own,
            global: descriptor & NOT_GLOBAL == 0,
        })
    }
}

/// Returns log2 of the size of a buffer's entry for a mapping of 2^`shift` bytes: the greatest of 4
/// KiB, 64 KiB, 2 MiB and 512 MiB that is not larger.
pub const fn entry_shift(shift: u32) -> u32 {
    match shift {
        29.. => 29,
        21.. => 21,
        16.. => 16,
        _ => 12,
    }
}

/// The registers by which a core translates addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// It is at EL2.
    pub el2: bool,
    /// Number of the address space.
    pub asid: u16,
    /// Number of the VM.
    pub vmid: u16,
    /// Stage 1 of the lower and the upper addresses, unless it is off.
    pub stage1: Option<[Option<Tables>; 2]>,
    /// Stage 2, unless it is off.
    pub stage2: Option<Tables>,
}

/// The registers that decide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// `SCTLR_EL1`.
    pub sctlr: u64,
    /// `TCR_EL1`.
    pub tcr: u64,
    /// `TTBR0_EL1`, `TTBR1_EL1`.
    pub ttbr: [u64; 2],
    /// `HCR_EL2`.
    pub hcr: u64,
    /// `VTCR_EL2`.
    pub vtcr: u64,
    /// `VTTBR_EL2`.
    pub vttbr: u64,
    /// `SCTLR_EL2`.
    pub sctlr_el2: u64,
    /// `TCR_EL2`.
    pub tcr_el2: u64,
    /// `TTBR0_EL2`.
    pub ttbr_el2: u64,
}

/// Reads a granule as TG0 encodes it.
const fn granule(field: u64) -> u32 {
    match field & 3 {
        1 => 16,
        2 => 14,
        _ => 12,
    }
}

const fn stage1(root: u64, size: u64, granule: u32, inner: u64) -> Tables {
    // T0SZ of 16 to 39 (Arm ARM D8.2).
    let size = size & 0x3f;
    let bits = 64
        - if size < 16 {
            16
        } else if size > 39 {
            39
        } else {
            size as u32
        };
    let level = 4 - (bits - granule).div_ceil(granule - 3);
    Tables {
        root: root & BASE,
        granule,
        bits,
        level,
        cacheable: inner & 3 != 0,
    }
}

impl Registers {
    /// Returns the registers by which a core translates at an exception level.
    pub const fn context(&self, level: u8) -> Context {
        match level {
            0 | 1 => self.el1(),
            2 => {
                let tables = stage1(
                    self.ttbr_el2,
                    self.tcr_el2,
                    granule(self.tcr_el2 >> 14),
                    self.tcr_el2 >> 8,
                );
                let stage1 = if self.sctlr_el2 & 1 != 0 {
                    Some([Some(tables), Some(tables)])
                } else {
                    None
                };
                Context {
                    el2: true,
                    asid: 0,
                    vmid: 0,
                    stage1,
                    stage2: None,
                }
            }
            _ => Context {
                el2: true,
                asid: 0,
                vmid: 0,
                stage1: None,
                stage2: None,
            },
        }
    }

    const fn el1(&self) -> Context {
        let Self {
            tcr,
            ttbr,
            hcr,
            vtcr,
            vttbr,
            ..
        } = *self;
        let low = stage1(ttbr[0], tcr, granule(tcr >> 14), tcr >> 8);
        // TG1 has other numbers: 1 is 16 KiB, 2 is 4 KiB, 3 is 64 KiB.
        let granule1 = match tcr >> 30 & 3 {
            1 => 14,
            3 => 16,
            _ => 12,
        };
        let high = stage1(ttbr[1], tcr >> 16, granule1, tcr >> 24);
        let asid =
            ttbr[(tcr >> 22 & 1) as usize] >> 48 & if tcr >> 36 & 1 == 1 { 0xffff } else { 0xff };
        // HCR_EL2.DC turns stage 1 off and stage 2 on.
        let default_cacheable = hcr >> 12 & 1 == 1;
        let enabled = self.sctlr & 1 == 1 && !default_cacheable;
        let low = if tcr >> 7 & 1 == 0 { Some(low) } else { None };
        let high = if tcr >> 23 & 1 == 0 { Some(high) } else { None };
        let stage2 = if hcr & 1 == 1 || default_cacheable {
            let granule = granule(vtcr >> 14);
            let first = if granule == 12 { 2 } else { 3 };
            let start = (vtcr >> 6 & 3) as u32;
            let level = u32::saturating_sub(first, start);
            let bits = 64 - (vtcr & 0x3f) as u32;
            Some(Tables {
                root: vttbr & BASE,
                granule,
                bits,
                level,
                cacheable: vtcr >> 8 & 3 != 0,
            })
        } else {
            None
        };
        Context {
            el2: false,
            asid: asid as u16,
            vmid: (vttbr >> 48 & 0xff) as u16,
            stage1: if enabled { Some([low, high]) } else { None },
            stage2,
        }
    }

    /// Returns whether the hypervisor extends a guest's invalidations to all cores (`HCR_EL2.FB`).
    pub const fn broadcasts(&self) -> bool {
        self.hcr >> 9 & 1 == 1
    }
}

impl Context {
    /// Returns whether addresses are translated at all.
    pub const fn translates(&self) -> bool {
        self.stage1.is_some() || self.stage2.is_some()
    }
    /// Returns the tables of stage 1 for an address: `Some(None)` if stage 1 is off, `None` if it
    /// maps nothing there.
    pub const fn stage1_of(&self, address: u64) -> Option<Option<Tables>> {
        match self.stage1 {
            None => Some(None),
            Some(ranges) => match ranges[(address >> 55 & 1) as usize] {
                Some(tables) => Some(Some(tables)),
                None => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_say_which_tables_there_are() {
        // Linux: 48 bits in both ranges, 16 bits of ASID from TTBR1. Cloison: stage 2 of 39 bits
        // from level 1.
        let linux = Registers {
            sctlr: 1,
            tcr: 16 | 1 << 8 | 16 << 16 | 1 << 22 | 1 << 24 | 2 << 30 | 1 << 36,
            ttbr: [0x7_0000, 0x1234_0000_0008_0000],
            hcr: 0x8000_0001,
            vtcr: 0x8002_3559,
            vttbr: 3 << 48 | 0x9000,
            ..Registers::default()
        };
        let context = linux.context(0);
        assert_eq!(
            (context.asid, context.vmid, context.el2),
            (0x1234, 3, false)
        );
        let tables = |root, bits, level| Tables {
            root,
            granule: 12,
            bits,
            level,
            cacheable: true,
        };
        assert_eq!(
            context.stage1_of(0x1000),
            Some(Some(tables(0x7_0000, 48, 0)))
        );
        assert_eq!(
            context.stage1_of(0xffff_8000_0000_0000),
            Some(Some(tables(0x8_0000, 48, 0)))
        );
        assert_eq!(context.stage2, Some(tables(0x9000, 39, 1)));
        let off = Registers {
            sctlr: 0,
            tcr: linux.tcr | 1 << 23,
            ..linux
        };
        assert_eq!(off.context(1).stage1_of(0), Some(None));
        assert_eq!(
            Registers {
                tcr: off.tcr,
                ..linux
            }
            .context(1)
            .stage1_of(1 << 55),
            None,
            "EPD1"
        );
        assert!(
            !Registers {
                hcr: 0,
                sctlr: 0,
                ..linux
            }
            .context(1)
            .translates()
        );
        let default_cacheable = Registers {
            hcr: 1 << 12,
            ..linux
        }
        .context(1);
        assert!(default_cacheable.stage1.is_none() && default_cacheable.stage2.is_some());
        let el2 = Registers {
            sctlr_el2: 1,
            tcr_el2: 25 | 1 << 14,
            ttbr_el2: 0x5000,
            ..linux
        }
        .context(2);
        let expected = Tables {
            granule: 16,
            cacheable: false,
            ..tables(0x5000, 39, 2)
        };
        assert_eq!(
            (el2.stage1_of(0), el2.stage2, el2.el2),
            (Some(Some(expected)), None, true)
        );
        assert!(!linux.context(3).translates());
    }

    #[test]
    fn descriptors() {
        let tables = Tables {
            root: 0,
            granule: 12,
            bits: 48,
            level: 0,
            cacheable: true,
        };
        let input = 0x1234_5678_9abc;
        assert_eq!(
            [0, 1, 2, 3].map(|level| tables.shift(level)),
            [39, 30, 21, 12]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|level| tables.offset(input, level)),
            [0x24, 0xd1, 0xb3, 0x189].map(|at| at * 8)
        );
        assert_eq!(
            (
                tables.next(0x5003, 2),
                tables.next(0x5003, 3),
                tables.next(0x5001, 2)
            ),
            (Some(0x5000), None, None)
        );
        let block = tables.leaf(0x40_0701, 2).expect("a block");
        assert_eq!(
            (block.base, block.shift, block.output(input)),
            (0x40_0000, 21, 0x58_9abc)
        );
        assert_eq!(
            tables
                .leaf(0x5003 | CONTIGUOUS, 3)
                .map(|leaf| (leaf.shift, leaf.own)),
            Some((16, 12))
        );
        for (descriptor, level) in [(0, 3), (0x5001, 3), (0x5000, 2), (0x5001, 0)] {
            assert_eq!(
                tables.leaf(descriptor, level),
                None,
                "{descriptor:#x} at level {level}"
            );
        }
        let large = Tables {
            granule: 16,
            bits: 42,
            level: 2,
            ..tables
        };
        assert_eq!(
            (
                large.shift(2),
                large.leaf(0x5_0003, 3).map(|leaf| leaf.shift)
            ),
            (29, Some(16))
        );
        assert_eq!(
            [11, 12, 16, 20, 21, 30].map(entry_shift),
            [12, 12, 16, 16, 21, 29]
        );
        // The first table of stage 2 may be larger than a page.
        let concatenated = Tables {
            bits: 40,
            level: 1,
            ..tables
        };
        assert_eq!(concatenated.offset(0xff_c000_0000, 1), 1023 * 8);
    }
}
