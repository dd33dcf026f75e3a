//! The output of a hypervisor that faults: its registers, core and position; then the machine turns
//! off.
//!
//! No guest can cause such a fault. The tests cause it: they patch a few wrong instructions into
//! the image at the start of a function. The fault and the hypervisor's reaction are real.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::qemu::Outcome;
use cloison_formats::ids::Core;
use cloison_tests::{BOTH, Clock, VIRT, boot, config, hypervisor, hypervisor_elf, image, load};
use miette::Result;
use object::{Object, ObjectSymbol};
use std::collections::HashMap;

/// Exception classes (ESR_EL2, bits 31 to 26).
const UNDEFINED: u64 = 0;
const INSTRUCTION_ABORT: u64 = 0x21;
const DATA_ABORT: u64 = 0x25;
/// Fault status (ESR_EL2, bits 5 to 0): level 3 translation and permission faults.
const NOT_MAPPED: u64 = 0x07;
const NOT_PERMITTED: u64 = 0x0f;

/// Encodings of instructions.
const UDF: u32 = 0x0000_0000;
const PUSH_FRAME: u32 = 0xa9bf_7bfd; // stp x29, x30, [sp, #-16]!
const SET_FRAME: u32 = 0x9100_03fd; // mov x29, sp
const BACK_BY_ONE: u32 = 0x17ff_ffff; // b .-4
const OWN_ADDRESS: u32 = 0x1000_0000; // adr x0, .
const STORE: u32 = 0xf900_0000; // str x0, [x0]
const ON_STACK: u32 = 0xd101_03e0; // sub x0, sp, #64
const STAY: u32 = 0x1400_0000; // b .
const JUMP: u32 = 0xd61f_0000; // br x0
const READ_HCR: u32 = 0xd53c_1100; // mrs x0, hcr_el2
const READ_SCTLR: u32 = 0xd53c_1001; // mrs x1, sctlr_el2

/// A parsed dump.
struct Dump {
    console: String,
    core: u64,
    values: HashMap<String, u64>,
    backtrace: Vec<u64>,
    /// Address of the broken function.
    function: u64,
}

impl Dump {
    #[track_caller]
    fn value(&self, name: &str) -> u64 {
        *self
            .values
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in\n{}", self.console))
    }
    fn class(&self) -> u64 {
        self.value("ESR") >> 26 & 0x3f
    }
    fn status(&self) -> u64 {
        self.value("ESR") & 0x3f
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Boots a hypervisor with `instructions` at the start of `function`, and one VM on `core`.
fn dump(board: &str, function: &str, instructions: &[u32], core: u8) -> Result<Dump> {
    let mut checked = load(&config("quota"), board)?;
    checked.system.vms[0].cores = vec![Core(core)];
    let mut bytes = image(&checked)?.bytes;
    let function = patch(&mut bytes, function, instructions)?;
    parse(boot(&bytes, board, Clock::Counted)?, function)
}

/// Replaces the first instructions of a function of the hypervisor in `image`. Returns the
/// function's address.
fn patch(image: &mut [u8], function: &str, instructions: &[u32]) -> Result<u64> {
    let elf = std::fs::read(hypervisor_elf()?).expect("the hypervisor was built");
    let file = object::File::parse(&*elf).expect("an ELF file");
    let named = |symbol: &str| {
        let path = format!("{:#}", rustc_demangle::demangle(symbol));
        path.rsplit("::").next() == Some(function)
    };
    let mut symbols = file
        .symbols()
        .filter(|symbol| symbol.size() > 0 && symbol.name().is_ok_and(named));
    let symbol = symbols
        .next()
        .unwrap_or_else(|| panic!("the hypervisor has no function {function}"));
    assert!(
        symbols.next().is_none(),
        "the hypervisor has several functions {function}"
    );
    assert!(
        symbol.size() >= 4 * instructions.len() as u64,
        "{function} is too short"
    );
    let at = (symbol.address() - hypervisor()?.base) as usize;
    for (slot, instruction) in image[at..].chunks_exact_mut(4).zip(instructions) {
        slot.copy_from_slice(&instruction.to_le_bytes());
    }
    Ok(symbol.address())
}

/// Parses the dump of a board whose `function` was broken.
fn parse(outcome: Outcome, function: u64) -> Result<Dump> {
    let console = outcome.console;
    assert!(outcome.exit.is_clean(), "{}: {console}", outcome.exit);

    let head = console
        .lines()
        .find(|line| line.contains("exception in the hypervisor"));
    let head = head.unwrap_or_else(|| panic!("no dump in\n{console}"));
    let mut values = HashMap::new();
    let mut take = |words: Vec<&str>| {
        for pair in words.windows(2) {
            if let Some(value) = hex(pair[1].trim_end_matches([',', ')'])) {
                values.insert(pair[0].trim_start_matches('(').to_owned(), value);
            }
        }
    };
    take(head.split_whitespace().collect());
    console
        .lines()
        .filter(|line| line.starts_with("  x"))
        .for_each(|line| take(line.split_whitespace().collect()));
    let core = head
        .split(['[', ']'])
        .nth(1)
        .and_then(|text| text.strip_prefix("core ")?.parse().ok());
    let backtrace = console
        .lines()
        .find_map(|line| line.strip_prefix("backtrace:"))
        .expect("a backtrace");
    let backtrace = backtrace
        .split_whitespace()
        .map(|word| hex(word).expect("an address"))
        .collect();
    let core = core.unwrap_or_else(|| panic!("no core in {head}"));
    for register in (0..=30).map(|number| format!("x{number}")) {
        assert!(
            values.contains_key(&register),
            "no {register} in\n{console}"
        );
    }
    assert_eq!(values["EC"], values["ESR"] >> 26 & 0x3f);
    Ok(Dump {
        core,
        values,
        backtrace,
        function,
        console,
    })
}

#[test]
fn an_undefined_instruction_is_dumped_with_core_and_place() -> Result<()> {
    for board in BOTH {
        for core in [0, 2] {
            let dump = dump(board, "parked", &[UDF], core)?;
            assert_eq!(
                (dump.core, dump.class()),
                (u64::from(core), UNDEFINED),
                "{}",
                dump.console
            );
            assert_eq!(dump.value("ELR"), dump.function);
        }
    }
    Ok(())
}

#[test]
fn a_core_that_does_not_come_up_is_named() -> Result<()> {
    for board in BOTH {
        let mut checked = load(&config("quota"), board)?;
        checked.system.vms[0].cores = vec![Core(2)];
        let mut bytes = image(&checked)?.bytes;
        patch(&mut bytes, "secondary_main", &[STAY])?;
        let outcome = boot(&bytes, board, Clock::Real)?;
        let last = outcome.console.lines().last();
        assert_eq!(
            last,
            Some("cloison: core 2 was started and does not come up"),
            "{}",
            outcome.console
        );
        assert!(outcome.exit.is_clean(), "{}", outcome.exit);
    }
    Ok(())
}

#[test]
fn the_backtrace_names_the_caller() -> Result<()> {
    // The guest's first trap ends here, called by the vector.
    let dump = dump(VIRT, "synchronous", &[PUSH_FRAME, SET_FRAME, UDF], 3)?;
    assert_eq!(
        (dump.core, dump.class()),
        (3, UNDEFINED),
        "{}",
        dump.console
    );
    assert_eq!(dump.value("ELR"), dump.function + 8);
    let [caller] = dump.backtrace[..] else {
        panic!("{:#x?}\n{}", dump.backtrace, dump.console)
    };
    // The instruction before the return address is the call.
    let flat = hypervisor()?;
    let at = (caller - 4 - flat.base) as usize;
    let call = u32::from_le_bytes(flat.bytes[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(call >> 26, 0x94 >> 2, "not a call: {call:#x}");
    let offset = i64::from((call << 6) as i32 >> 6) * 4;
    assert_eq!((caller - 4).wrapping_add_signed(offset), dump.function);
    Ok(())
}

#[test]
fn a_stack_that_overflows_meets_its_guard_page() -> Result<()> {
    for board in BOTH {
        let dump = dump(board, "parked", &[PUSH_FRAME, BACK_BY_ONE], 0)?;
        assert_eq!(
            (dump.class(), dump.status()),
            (DATA_ABORT, NOT_MAPPED),
            "{}",
            dump.console
        );
        // The first push beyond the stack faulted, and the dump did not need that stack.
        assert_eq!(dump.value("FAR"), dump.value("SP") - 16);
        assert_eq!(dump.value("SP") & 0xfff, 0);
    }
    Ok(())
}

#[test]
fn the_hypervisor_cannot_write_its_text() -> Result<()> {
    for board in BOTH {
        let dump = dump(board, "parked", &[OWN_ADDRESS, STORE], 0)?;
        assert_eq!(
            (dump.class(), dump.status()),
            (DATA_ABORT, NOT_PERMITTED),
            "{}",
            dump.console
        );
        assert_eq!(
            (dump.value("FAR"), dump.value("x0")),
            (dump.function, dump.function)
        );
        assert_eq!(dump.value("ELR"), dump.function + 4);
    }
    Ok(())
}

#[test]
fn the_hypervisor_cannot_execute_its_data() -> Result<()> {
    for board in BOTH {
        let dump = dump(board, "parked", &[ON_STACK, JUMP], 0)?;
        assert_eq!(
            (dump.class(), dump.status()),
            (INSTRUCTION_ABORT, NOT_PERMITTED),
            "{}",
            dump.console
        );
        assert_eq!(
            (dump.value("ELR"), dump.value("x0")),
            (dump.value("SP") - 64, dump.value("SP") - 64)
        );
    }
    Ok(())
}

#[test]
fn a_fault_in_the_dump_turns_the_machine_off() -> Result<()> {
    for board in BOTH {
        let mut bytes = image(&load(&config("quota"), board)?)?.bytes;
        patch(&mut bytes, "parked", &[UDF])?;
        patch(&mut bytes, "backtrace", &[UDF])?;
        let outcome = boot(&bytes, board, Clock::Counted)?;
        assert!(
            outcome.exit.is_clean(),
            "{}: {}",
            outcome.exit,
            outcome.console
        );
        let heads = outcome
            .console
            .lines()
            .filter(|line| line.contains("exception in the hypervisor"))
            .count();
        assert_eq!(heads, 1, "{}", outcome.console);
    }
    Ok(())
}

#[test]
fn a_running_core_broadcasts_for_no_guest_and_executes_nothing_writable() -> Result<()> {
    // The boot core gets here too, and must not be first: it stays in a loop unless it is the one.
    const READ_MPIDR: u32 = 0xd538_00a2; // mrs x2, mpidr_el1
    const AFFINITY_0: u32 = 0x9240_1c42; // and x2, x2, #0xff
    const COMPARE: u32 = 0xf100_005f; // cmp x2, #0
    const STAY_IF_NOT: [u32; 2] = [0x5400_0040, 0x1400_0000]; // b.eq .+8; b .
    for board in BOTH {
        for core in [0, 2] {
            let compare = COMPARE | u32::from(core) << 10;
            let [skip, stay] = STAY_IF_NOT;
            let code = [
                READ_MPIDR, AFFINITY_0, compare, skip, stay, READ_HCR, READ_SCTLR, UDF,
            ];
            let dump = dump(board, "parked", &code, core)?;
            assert_eq!(
                (dump.core, dump.class()),
                (u64::from(core), UNDEFINED),
                "{}",
                dump.console
            );
            let (hcr, sctlr) = (dump.value("x0"), dump.value("x1"));
            // FB, and BSU: the width of barriers. VM is set, so this is the value for guests.
            assert_eq!(
                (hcr >> 9 & 1, hcr >> 10 & 3, hcr & 1),
                (0, 0, 1),
                "{hcr:#x}"
            );
            // WXN.
            assert_eq!(sctlr >> 19 & 1, 1, "{sctlr:#x}");
        }
    }
    Ok(())
}

#[test]
fn a_boot_loaders_interrupts_are_forgotten() -> Result<()> {
    // What EL2 reads: the distributor's address, then enabled, pending and active interrupts 64 to
    // 95.
    const GICD: u32 = 0xd2c0_0a00; // mov x0, #0x50_0000_0000
    const READ: [u32; 3] = [0xb941_0801, 0xb942_0802, 0xb943_0803]; // ldr w1, [x0, #0x108], and so on
    // The boot loader: the same registers, with the MMU off.
    const PHYSICAL_GICD: u32 = 0xd2a1_0000; // mov x0, #0x0800_0000
    const SOME: u32 = 0x52a0_1fe1; // mov w1, #0x00ff_0000
    const WRITE: [u32; 3] = [0xb901_0801, 0xb902_0801, 0xb903_0801]; // str w1, [x0, #0x108], and so on
    let branch = |distance: u64| 0x1400_0000 | (distance / 4) as u32 & 0x03ff_ffff;
    let checked = load(&config("quota"), VIRT)?;
    assert_eq!(checked.system.board.gic.gicd.0, 0x0800_0000);
    let mut bytes = image(&checked)?.bytes;
    let function = patch(
        &mut bytes,
        "parked",
        &[GICD, READ[0], READ[1], READ[2], UDF],
    )?;
    // It runs in the place of the panic handler, before the image's first instruction, a branch.
    let start = hypervisor()?.base;
    let first = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    assert_eq!(first >> 26, 0x14 >> 2, "not a branch: {first:#x}");
    let loader = patch(
        &mut bytes,
        "rust_begin_unwind",
        &[PHYSICAL_GICD, SOME, WRITE[0], WRITE[1], WRITE[2]],
    )?;
    let back = start + u64::from(first & 0x03ff_ffff) * 4;
    let end = loader + 5 * 4;
    let at = (end - start) as usize;
    bytes[at..at + 4].copy_from_slice(&branch(back.wrapping_sub(end)).to_le_bytes());
    bytes[..4].copy_from_slice(&branch(loader - start).to_le_bytes());
    let dump = parse(boot(&bytes, VIRT, Clock::Counted)?, function)?;
    assert_eq!(dump.class(), UNDEFINED, "{}", dump.console);
    assert_eq!(
        ["x1", "x2", "x3"].map(|register| dump.value(register)),
        [0; 3],
        "{}",
        dump.console
    );
    Ok(())
}
