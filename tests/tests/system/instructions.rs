//! The EL2 image's instructions, where a real core needs others than an emulator: no boot here
//! would notice a mistake.
//!
//! Sequences that a Cortex-A53 may execute wrongly (errata 835769 and 843419), and maintenance and
//! barriers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_tests::hypervisor_elf;
use miette::Result;
use object::{Object, ObjectSection, SectionKind};

/// Returns whether an instruction is of the class of loads and stores (Arm ARM DDI 0487, C4.1).
fn accesses_memory(instruction: u32) -> bool {
    instruction & 0x0a00_0000 == 0x0800_0000
}

/// Returns whether it is a load or store with an unsigned offset from the register `base`.
fn accesses_at_offset_from(base: u32, instruction: u32) -> bool {
    instruction & 0x3b00_0000 == 0x3900_0000 && instruction >> 5 & 0x1f == base
}

/// Returns whether it is a branch, an exception or a system instruction.
fn branches(instruction: u32) -> bool {
    instruction & 0x1c00_0000 == 0x1400_0000
}

/// Returns whether it multiplies and adds (or subtracts) 64-bit numbers: MADD, SMADDL, UMADDL and
/// their twins; XZR as the number to be added makes it a plain multiplication.
fn multiplies_and_adds(instruction: u32) -> bool {
    let is_accumulating = matches!(instruction >> 21 & 7, 0 | 1 | 5);
    instruction >> 24 == 0x9b && is_accumulating && instruction >> 10 & 0x1f != 31
}

/// Returns the addresses at which a sequence of either erratum starts. Knows no exceptions for what
/// the instructions have in common: too strict rather than too lax.
fn sequences(code: &[u32], address: u64) -> Vec<(u64, &'static str)> {
    let mut found = vec![];
    for (at, window) in (address..)
        .step_by(4)
        .zip((0..code.len()).map(|start| &code[start..]))
    {
        if let [first, second, ..] = *window
            && accesses_memory(first)
            && multiplies_and_adds(second)
        {
            found.push((at, "835769"));
        }
        if let [adrp, second, third, ref rest @ ..] = *window
            && adrp & 0x9f00_0000 == 0x9000_0000
            && matches!(at & 0xfff, 0xff8 | 0xffc)
            && accesses_memory(second)
        {
            let uses_it = |&instruction: &u32| accesses_at_offset_from(adrp & 0x1f, instruction);
            if uses_it(&third) || !branches(third) && rest.first().is_some_and(uses_it) {
                found.push((at, "843419"));
            }
        }
    }
    found
}

#[test]
fn the_scan_knows_the_sequences() {
    const LOAD: u32 = 0xf940_0041; // ldr x1, [x2]
    const STORE_PAIR: u32 = 0xa900_0be1; // stp x1, x2, [sp]
    const MADD: u32 = 0x9b05_1883; // madd x3, x4, x5, x6
    const UMSUBL: u32 = 0x9ba5_9883; // umsubl x3, w4, w5, x6
    const MUL: u32 = 0x9b05_7c83; // mul x3, x4, x5
    const MADD_32: u32 = 0x1b05_1883; // madd w3, w4, w5, w6
    const NOP: u32 = 0xd503_201f;
    const ADD: u32 = 0x8b07_00c5; // add x5, x6, x7
    const ADRP: u32 = 0x9000_0000; // adrp x0, .
    const USE: u32 = 0xf940_0403; // ldr x3, [x0, #8]
    const USE_OTHER: u32 = 0xf940_0423; // ldr x3, [x1, #8]
    const BRANCH: u32 = 0x1400_0002; // b .+8
    for (code, at, expected) in [
        (&[LOAD, MADD][..], 0x100, &[(0x100, "835769")][..]),
        (&[NOP, STORE_PAIR, UMSUBL], 0x100, &[(0x104, "835769")]),
        (&[LOAD, NOP, MADD], 0x100, &[]),
        (&[LOAD, MUL, LOAD, MADD_32], 0x100, &[]),
        (&[ADRP, LOAD, USE], 0x1ff8, &[(0x1ff8, "843419")]),
        (
            &[NOP, ADRP, STORE_PAIR, ADD, USE],
            0x1ff8,
            &[(0x1ffc, "843419")],
        ),
        (&[ADRP, LOAD, USE], 0x1ff4, &[]),
        (&[ADRP, ADD, USE], 0x1ff8, &[]),
        (&[ADRP, LOAD, USE_OTHER], 0x1ff8, &[]),
        (&[ADRP, LOAD, BRANCH, USE], 0x1ff8, &[]),
    ] {
        assert_eq!(sequences(code, at), expected, "{code:#x?}");
    }
}

/// Returns the address and the instructions of each section of the hypervisor's code.
fn code() -> Result<Vec<(u64, Vec<u32>)>> {
    let elf = std::fs::read(hypervisor_elf()?).expect("the hypervisor was built");
    let file = object::File::parse(&*elf).expect("an ELF file");
    let text = file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text);
    let instructions = |bytes: &[u8]| {
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| u32::from_le_bytes(bytes))
            .collect()
    };
    let all: Vec<(u64, Vec<u32>)> = text
        .map(|section| {
            (
                section.address(),
                instructions(section.data().expect("its contents")),
            )
        })
        .collect();
    let count: usize = all.iter().map(|(_, code)| code.len()).sum();
    assert!(count > 5000, "only {count} instructions were found");
    Ok(all)
}

#[test]
fn the_hypervisor_has_no_sequence_of_a_cortex_a53_erratum() -> Result<()> {
    for (address, code) in code()? {
        assert_eq!(sequences(&code, address), []);
    }
    Ok(())
}

#[test]
fn nothing_is_speculated_past_an_exception_return() -> Result<()> {
    const ERET: u32 = 0xd69f_03e0;
    const DSB_NSH: u32 = 0xd503_379f;
    const ISB: u32 = 0xd503_3fdf;
    let all = code()?;
    let returns: Vec<&[u32]> = all
        .iter()
        .flat_map(|(_, code)| code.windows(3))
        .filter(|window| window[0] == ERET)
        .collect();
    assert!(returns.len() >= 3, "{returns:x?}");
    assert!(
        returns.iter().all(|window| window[1..] == [DSB_NSH, ISB]),
        "{returns:x?}"
    );
    Ok(())
}

#[test]
fn maintenance_is_as_wide_and_as_ordered_as_it_must_be() -> Result<()> {
    // Without their register.
    const TLBI_VAE2: u32 = 0xd50c_8720;
    const TLBI_VALE2: u32 = 0xd50c_87a0;
    const TLBI_VALE2IS: u32 = 0xd50c_83a0;
    const DC_CVAC: u32 = 0xd50b_7a20;
    const DC_IVAC: u32 = 0xd508_7620;
    const DMB_SY: u32 = 0xd503_3fbf;
    let all = code()?;
    let without_register = |instruction: u32| instruction & !0x1f;
    let count = |wanted: u32| {
        all.iter()
            .flat_map(|(_, code)| code)
            .filter(|&&found| without_register(found) == wanted)
            .count()
    };
    // All cores share EL2's tables, and each may have walked them for any address.
    assert_eq!((count(TLBI_VAE2), count(TLBI_VALE2)), (0, 0));
    assert!(count(TLBI_VALE2IS) > 0);
    // A Cortex-A53 may lose data at a plain clean (erratum 855873).
    assert_eq!(count(DC_CVAC), 0);
    // Stores with caches off are ordered before the invalidation of the lines that they went past.
    let (_, code) = all
        .iter()
        .find(|(_, code)| code.iter().any(|&found| without_register(found) == DC_IVAC))
        .expect("boot");
    let invalidation = code
        .iter()
        .position(|&found| without_register(found) == DC_IVAC)
        .expect("boot");
    let since_store = &code[invalidation.saturating_sub(4)..invalidation];
    assert!(since_store.contains(&DMB_SY), "{since_store:x?}");
    Ok(())
}
