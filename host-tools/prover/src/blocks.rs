//! The basic blocks of the EL2 image, from its code: what coverage counts.
//!
//! A block begins at a branch's target, after a branch, and after a call that is also one of these;
//! a call itself does not end a block. Targets of tables are not computed: the code after an
//! unconditional branch begins a block, as nothing else can lead there (Arm ARM DDI 0487, C4.1.66
//! "Branches, Exception Generating and System instructions").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ways::{self, Data, End, Node, Reach};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Virtual address of its first instruction.
    pub start: u64,
    /// Virtual address after its last one.
    pub end: u64,
    /// Whether guests can make EL2 run it.
    pub reach: Reach,
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
        let mut data = Data::default();
        for section in file
            .sections()
            .filter(|one| matches!(one.kind(), SectionKind::Data | SectionKind::ReadOnlyData))
        {
            let bytes = section.data().map_err(|error| wrong(&error))?;
            for (index, word) in bytes.as_chunks().0.iter().enumerate() {
                data.words.insert(
                    section.address() + 8 * index as u64,
                    u64::from_le_bytes(*word),
                );
            }
        }
        Ok(Self::of(&code, data, functions))
    }

    /// Divides code, with ascending addresses, into blocks.
    fn of(code: &[(u64, u32)], data: Data, functions: BTreeMap<u64, String>) -> Self {
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
                    reach: Reach::Guests,
                    waits: false,
                });
            }
            if let Some(block) = all.last_mut() {
                block.end = address + 4;
                block.waits |= word == WFI;
            }
            before = Some(address);
        }
        judge(&mut all, code, data, &functions);
        // Padding between functions is no code.
        let is_padding = |block: &Block| {
            let mut words = words(code, block).iter();
            words.all(|(_, word)| matches!(word, 0 | 0xd503_201f | 0xd420_0020))
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

/// Ends of the names of the functions that report a fault of EL2.
const REPORTS: [&str; 2] = ["rust_begin_unwind", "fatal_exception"];
/// The vectors for exceptions of guests: of AArch64 and of AArch32 (Arm ARM, D1.3.1, "Exception
/// vectors").
const FROM_GUESTS: std::ops::Range<u64> = 0x400..0x800;

/// Decides which blocks guests can make EL2 run: all, if the image has no vectors.
fn judge(
    all: &mut [Block],
    code: &[(u64, u32)],
    mut data: Data,
    functions: &BTreeMap<u64, String>,
) {
    let vectors = functions.iter().find(|(_, name)| *name == "vectors");
    let Some((vectors, _)) = vectors else {
        return;
    };
    let roots: Vec<u64> = FROM_GUESTS.step_by(128).map(|at| vectors + at).collect();
    let reports: HashSet<u64> = functions
        .iter()
        .filter(|(_, name)| REPORTS.iter().any(|end| name.ends_with(end)))
        .map(|(address, _)| *address)
        .collect();
    let (nodes, objects) = nodes(all, code, functions);
    data.divide(objects.into_iter());
    let judged = ways::judge(&nodes, &data, &roots, &reports);
    for (block, reach) in all.iter_mut().zip(judged) {
        block.reach = reach;
    }
}

/// Returns the instructions of a block, with their addresses.
fn words<'a>(code: &'a [(u64, u32)], block: &Block) -> &'a [(u64, u32)] {
    let from = code.partition_point(|(at, _)| *at < block.start);
    let to = code.partition_point(|(at, _)| *at < block.end);
    &code[from..to]
}

/// Returns what follows each block, and the addresses at which objects may begin: a load in the
/// middle of one does not divide it.
fn nodes(
    all: &[Block],
    code: &[(u64, u32)],
    functions: &BTreeMap<u64, String>,
) -> (Vec<Node>, Vec<u64>) {
    let function = |address: u64| {
        let found = functions.range(..=address).next_back();
        found.map_or(0, |(start, _)| *start)
    };
    // The half of an address that ADRP makes may be in another block than the other one.
    let mut pages: HashMap<(u64, u32), Vec<u64>> = HashMap::new();
    for &(address, word) in code {
        if word & 0x9f00_0000 == 0x9000_0000 {
            let page = (address & !0xfff).wrapping_add_signed(distance(word) << 12);
            let key = (function(address), word & 31);
            pages.entry(key).or_default().push(page);
        }
    }
    let mut objects = Vec::new();
    let nodes = all.iter().map(|block| {
        let mut node = Node {
            start: block.start,
            function: function(block.start),
            ..Node::default()
        };
        for &(address, word) in words(code, block) {
            let halves = pages.get(&(node.function, word >> 5 & 31));
            let low = u64::from(word >> 10 & 0xfff);
            match word {
                // ADR.
                _ if word & 0x9f00_0000 == 0x1000_0000 => {
                    let made = address.wrapping_add_signed(distance(word));
                    objects.push(made);
                    node.named.push(made);
                }
                // ADD (immediate), 64 bits.
                _ if word & 0xff80_0000 == 0x9100_0000 => {
                    let made = || halves.into_iter().flatten().map(|page| page + low);
                    objects.extend(made());
                    node.named.extend(made());
                }
                // LDR and STR (unsigned offset).
                _ if word & 0x3b00_0000 == 0x3900_0000 => {
                    let made = halves.into_iter().flatten();
                    node.named
                        .extend(made.map(|page| page + (low << (word >> 30))));
                }
                _ => {}
            }
            match flow(address, word) {
                Flow::Call(Some(target)) => node.calls.push(target),
                Flow::Conditional(target) => node.successors.push(target),
                _ => {}
            }
        }
        let last = words(code, block).last().copied().unwrap_or_default();
        match flow(last.0, last.1) {
            Flow::Next | Flow::Call(_) | Flow::Conditional(_) => node.successors.push(block.end),
            Flow::Always(Some(target)) => node.successors.push(target),
            Flow::Always(None) => {
                node.end = match last.1 {
                    // BR, RET; not ERET, BRK and UDF.
                    _ if last.1 & 0xffff_fc1f == 0xd61f_0000 => End::Computed,
                    _ if last.1 & 0xffff_fc1f == 0xd65f_0000 => End::Return,
                    _ => End::Never,
                }
            }
        }
        node
    });
    (nodes.collect(), objects)
}

/// Returns the distance that ADR and ADRP add, in bytes or pages.
const fn distance(word: u32) -> i64 {
    let field = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
    ((field << 11) as i32 >> 11) as i64
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
        let functions = BTreeMap::from([(0x1000, "a".to_owned()), (0x1010, "b".to_owned())]);
        let blocks = Blocks::of(&code, Data::default(), functions);
        let starts: Vec<u64> = blocks.all.iter().map(|block| block.start).collect();
        assert_eq!(starts, [0x1000, 0x100c, 0x1010]);
        let reach = |block: &Block| block.reach == Reach::Guests;
        assert!(blocks.all.iter().all(reach), "there are no vectors");
        assert_eq!(blocks.function(0x100c), "a");
        assert_eq!(blocks.starting_at(0x1004), None);
    }

    #[test]
    fn what_a_vector_leads_to_is_in_reach_and_what_panics_is_not() {
        let nop = 0x9100_0000;
        let mut code: Vec<(u64, u32)> = (0x1000..0x1800)
            .step_by(4)
            .map(|address| (address, 0xd69f_03e0)) // eret
            .collect();
        let at_400 = [
            (0x1400, 0x9000_0008), // adrp x8, 0x1000
            (0x1404, 0x9122_0109), // add x9, x8, #0x880
            (0x1408, 0xd63f_0120), // blr x9
            (0x140c, 0xb400_2080), // cbz x0, 0x181c
            (0x1410, 0x9400_00fc), // bl 0x1800
            (0x1414, 0xd69f_03e0), // eret
        ];
        for (address, word) in at_400 {
            code[(address - 0x1000) / 4].1 = word;
        }
        code.extend([
            (0x1800, 0xd65f_03c0), // helper: ret
            (0x1804, 0x1400_0000), // report: b .
            (0x1808, nop),         // boot
            (0x180c, 0xd65f_03c0),
            (0x1810, 0xd65f_03c0), // unused
            (0x181c, 0x97ff_fffa), // cold: bl 0x1804
            (0x1820, 0xd420_0020),
            (0x1880, 0xd65f_03c0), // named: ret
        ]);
        let names = [
            (0x1000, "vectors"),
            (0x1800, "helper"),
            (0x1804, "a::rust_begin_unwind"),
            (0x1808, "boot"),
            (0x1810, "unused"),
            (0x181c, "cold"),
            (0x1880, "named"),
        ];
        let functions = names.map(|(address, name)| (address, name.to_owned()));
        let blocks = Blocks::of(&code, Data::default(), BTreeMap::from(functions));
        let reach = |address| blocks.all[blocks.starting_at(address).unwrap()].reach;
        for address in [0x1400, 0x1410, 0x1480, 0x1800, 0x1880] {
            assert_eq!(reach(address), Reach::Guests, "{address:#x}");
        }
        for address in [0x1804, 0x181c] {
            assert_eq!(reach(address), Reach::Fault, "{address:#x}");
        }
        for address in [0x1000, 0x1808, 0x1810] {
            assert_eq!(reach(address), Reach::NoWay, "{address:#x}");
        }
    }
}
