//! The basic blocks of the EL2 image, from its code: what coverage counts.
//!
//! A block begins at a branch's target, after a branch, and after a call that is also one of these;
//! a call itself does not end a block. Targets of tables are not computed: the code after an
//! unconditional branch begins a block, as nothing else can lead there (Arm ARM DDI 0487, C4.1.66
//! "Branches, Exception Generating and System instructions").
// SPDX-License-Identifier: MIT OR Apache-2.0

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Virtual address of its first instruction.
    pub start: u64,
    /// Virtual address after its last one.
    pub end: u64,
    /// Whether it ends in a call that does not return and reports a panic.
    pub is_panic: bool,
    /// Whether it waits for an interrupt (WFI).
    pub waits: bool,
}

/// All basic blocks, by address.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// The blocks, ascending.
    pub all: Vec<Block>,
    /// Functions by address.
    pub functions: BTreeMap<u64, String>,
}

const WFI: u32 = 0xd503_207f;

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Continues with the next instruction.
    Next,
    /// Calls a function: a target in the code, or none if it is in a register.
    Call(Option<u64>),
    /// Branches, perhaps: to the target, or to the next instruction.
    Conditional(u64),
    /// Branches always: to the target, or to an unknown one.
    Always(Option<u64>),
}

/// Sign-extends the lower `bits` of a number of instructions, in bytes.
const fn offset(field: u32, bits: u32) -> i64 {
    ((field << (32 - bits)) as i32 >> (32 - bits)) as i64 * 4
}

fn flow(address: u64, word: u32) -> Flow {
    let to = |field: u32, bits: u32| address.wrapping_add_signed(offset(field, bits));
    match word {
        // B, BL.
        _ if word & 0xfc00_0000 == 0x1400_0000 => Flow::Always(Some(to(word & 0x3ff_ffff, 26))),
        _ if word & 0xfc00_0000 == 0x9400_0000 => Flow::Call(Some(to(word & 0x3ff_ffff, 26))),
        // B.cond; CBZ, CBNZ; TBZ, TBNZ.
        _ if word & 0xff00_0000 == 0x5400_0000 => Flow::Conditional(to(word >> 5 & 0x7_ffff, 19)),
        _ if word & 0x7e00_0000 == 0x3400_0000 => Flow::Conditional(to(word >> 5 & 0x7_ffff, 19)),
        _ if word & 0x7e00_0000 == 0x3600_0000 => Flow::Conditional(to(word >> 5 & 0x3fff, 14)),
        // BLR; BR, RET, ERET.
        _ if word & 0xffff_fc1f == 0xd63f_0000 => Flow::Call(None),
        _ if word & 0xfe00_0000 == 0xd600_0000 => Flow::Always(None),
        // BRK, HVC and SMC return, if at all, to the next instruction; UDF does not.
        _ if word & 0xffe0_001f == 0xd420_0000 || word >> 16 == 0 => Flow::Always(None),
        _ => Flow::Next,
    }
}

impl Blocks {
    /// Reads the EL2 image's ELF file.
    ///
    /// # Errors
    ///
    /// The file, and what is wrong with it.
    pub fn read(elf: &Path) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", elf.display());
        let bytes = std::fs::read(elf).map_err(|error| wrong(&error))?;
        let file = object::File::parse(&*bytes).map_err(|error| wrong(&error))?;
        let mut marks = BTreeMap::new();
        let mut functions = BTreeMap::new();
        for symbol in file.symbols() {
            let Ok(name) = symbol.name() else { continue };
            // Mapping symbols of the ELF for the Arm 64-bit Architecture: code, data.
            match name.as_bytes() {
                [b'$', b'x', ..] => _ = marks.insert(symbol.address(), true),
                [b'$', b'd', ..] => _ = marks.insert(symbol.address(), false),
                // Labels of assembly have no type.
                _ if matches!(
                    symbol.kind(),
                    SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown
                ) =>
                {
                    functions
                        .entry(symbol.address())
                        .or_insert_with(|| format!("{:#}", rustc_demangle::demangle(name)));
                }
                _ => {}
            }
        }
        let mut code = Vec::new();
        for section in file
            .sections()
            .filter(|one| one.kind() == SectionKind::Text)
        {
            let data = section.data().map_err(|error| wrong(&error))?;
            for (index, word) in data.chunks_exact(4).enumerate() {
                let address = section.address() + 4 * index as u64;
                let is_code = marks.range(..=address).next_back();
                if is_code.is_none_or(|(_, is_code)| *is_code) {
                    let word = [word[0], word[1], word[2], word[3]];
                    code.push((address, u32::from_le_bytes(word)));
                }
            }
        }
        if code.is_empty() {
            return Err(wrong(&"no code"));
        }
        Ok(Self::of(&code, functions))
    }

    /// Divides code, with ascending addresses, into blocks.
    fn of(code: &[(u64, u32)], functions: BTreeMap<u64, String>) -> Self {
        let mut leaders: BTreeSet<u64> = functions.keys().copied().collect();
        // The 16 exception vectors, 128 bytes each, are no branch's targets.
        if let Some((start, _)) = functions.iter().find(|(_, name)| *name == "vectors") {
            leaders.extend((0..16).map(|vector| start + vector * 128));
        }
        for &(address, word) in code {
            match flow(address, word) {
                Flow::Next | Flow::Call(_) => {}
                Flow::Conditional(target) => leaders.extend([target, address + 4]),
                Flow::Always(target) => {
                    leaders.insert(address + 4);
                    leaders.extend(target);
                }
            }
        }
        let mut all: Vec<Block> = Vec::new();
        let mut before = None;
        for &(address, word) in code {
            let follows = before == Some(address.wrapping_sub(4));
            if !follows || leaders.contains(&address) {
                all.push(Block {
                    start: address,
                    end: address,
                    is_panic: false,
                    waits: false,
                });
            }
            if let Some(block) = all.last_mut() {
                block.end = address + 4;
                block.waits |= word == WFI;
                if let Flow::Call(Some(target)) | Flow::Always(Some(target)) = flow(address, word)
                    && functions.get(&target).is_some_and(|name| is_panic(name))
                {
                    block.is_panic = true;
                }
            }
            before = Some(address);
        }
        // Padding between functions is no code.
        let is_padding = |block: &Block| {
            let words = code[code.partition_point(|(at, _)| *at < block.start)..]
                .iter()
                .take_while(|(at, _)| *at < block.end);
            words
                .into_iter()
                .all(|(_, word)| matches!(word, 0 | 0xd503_201f | 0xd420_0020))
        };
        all.retain(|block| !is_padding(block));
        Self { all, functions }
    }

    /// Returns the block that begins at an address.
    pub fn starting_at(&self, address: u64) -> Option<usize> {
        self.all
            .binary_search_by_key(&address, |block| block.start)
            .ok()
    }

    /// Returns the function that holds an address.
    pub fn function(&self, address: u64) -> &str {
        let found = self.functions.range(..=address).next_back();
        found.map_or("", |(_, name)| name)
    }

    /// Returns the address of the function whose name ends so.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.functions
            .iter()
            .find(|(_, known)| known.ends_with(name))
            .map(|(address, _)| *address)
    }
}

/// Returns whether a function reports a panic and never returns.
fn is_panic(name: &str) -> bool {
    [
        "core::panicking::",
        "core::option::",
        "core::result::",
        "core::slice::index::",
        "core::cell::panic",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_lead_where_the_architecture_says() {
        assert_eq!(flow(0x1000, 0x1400_0002), Flow::Always(Some(0x1008)));
        assert_eq!(flow(0x1000, 0x17ff_ffff), Flow::Always(Some(0xffc)));
        assert_eq!(flow(0x1000, 0x9400_0001), Flow::Call(Some(0x1004)));
        assert_eq!(flow(0x1000, 0x5400_0040), Flow::Conditional(0x1008)); // b.eq
        assert_eq!(flow(0x1000, 0xb5ff_ffe0), Flow::Conditional(0xffc)); // cbnz x0
        assert_eq!(flow(0x1000, 0x3607_fff0), Flow::Conditional(0xffc)); // tbz w16, #0
        assert_eq!(flow(0x1000, 0xd65f_03c0), Flow::Always(None)); // ret
        assert_eq!(flow(0x1000, 0xd69f_03e0), Flow::Always(None)); // eret
        assert_eq!(flow(0x1000, 0xd63f_0100), Flow::Call(None)); // blr x8
        assert_eq!(flow(0x1000, 0xd503_201f), Flow::Next);
    }

    #[test]
    fn a_call_does_not_end_a_block_and_a_branch_does() {
        let nop = 0x9100_0000;
        let code = [
            (0x1000, nop),
            (0x1004, 0x9400_0003), // bl 0x1010
            (0x1008, 0xb400_0040), // cbz x0, 0x1010
            (0x100c, nop),
            (0x1010, 0xd65f_03c0),
        ];
        let functions = BTreeMap::from([
            (0x1000, "a".to_owned()),
            (0x1010, "core::panicking::panic".to_owned()),
        ]);
        let blocks = Blocks::of(&code, functions);
        let starts: Vec<u64> = blocks.all.iter().map(|block| block.start).collect();
        assert_eq!(starts, [0x1000, 0x100c, 0x1010]);
        assert!(blocks.all[0].is_panic && !blocks.all[1].is_panic);
        assert_eq!(blocks.function(0x100c), "a");
        assert_eq!(blocks.starting_at(0x1004), None);
    }
}
