//! The C header for guests, generated from the constants of `cloison-abi`.
//!
//! The build script lists all public constants of the crate. cbindgen would give `psci::VERSION`
//! and `page::VERSION` one name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::pl011::FR;
use std::fmt::{self, Write};

/// Functions that use the constants.
const TEMPLATE: &str = include_str!("../../templates/c/cloison.h");

/// A constant of `cloison-abi`.
#[derive(Clone, Copy, Debug)]
struct Constant {
    /// The module or enum that has it.
    module: &'static str,
    name: &'static str,
    value: Value,
}

impl Constant {
    const fn number(
        module: &'static str,
        name: &'static str,
        value: i128,
        kind: &'static str,
    ) -> Self {
        let value = match kind.as_bytes() {
            b"i64" => Value::Signed(value as i64),
            b"u32" if value >= FIRST_FUNCTION => Value::Function(value as u32),
            b"u32" => Value::Plain(value as u32),
            _ => Value::Number(value as u64),
        };
        Self {
            module,
            name,
            value,
        }
    }

    const fn text(module: &'static str, name: &'static str, text: &'static str) -> Self {
        Self {
            module,
            name,
            value: Value::Text(text),
        }
    }
}

/// Function identifiers of fast calls have bit 31 (Arm DEN 0028, 2.5).
const FIRST_FUNCTION: i128 = 1 << 31;

include!(concat!(env!("OUT_DIR"), "/constants.rs"));

/// The C form of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// 64 bits: an address, a set of bits.
    Number(u64),
    /// 32 bits: the identifier of a function.
    Function(u32),
    /// The status of a call that failed.
    Signed(i64),
    /// A small number, which an instruction may contain.
    Plain(u32),
    /// A name in a device tree.
    Text(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:#x}ULL"),
            Self::Function(number) => write!(f, "{number:#x}U"),
            Self::Signed(number) => write!(f, "({number})"),
            Self::Plain(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// The constants of one module.
struct Group {
    /// Path in `cloison-abi`; empty for its root.
    module: &'static str,
    /// What their names begin with, after `CLOISON_`.
    prefix: &'static str,
    /// Their meaning.
    remark: &'static str,
}

const fn group(module: &'static str, prefix: &'static str, remark: &'static str) -> Group {
    Group {
        module,
        prefix,
        remark,
    }
}

/// In the order of the header.
const GROUPS: [Group; 17] = [
    group(
        "",
        "",
        "Version of the interface, as CLOISON_CALL_IDENTIFY returns it in x0; the number of the \
         cycle counter; SMCCC_VERSION.",
    ),
    group(
        "map",
        "MAP_",
        "Addresses of the devices in the map `cloison`, and where RAM starts by convention.",
    ),
    group("irq", "IRQ_", "Interrupts."),
    group("pl011::offset", "UART_", "Registers of the UART, a PL011."),
    group(
        "Call",
        "CALL_",
        "Cloison's calls: function identifiers for w0. docs/calls.md has arguments and results.",
    ),
    group(
        "CallError",
        "ERROR_",
        "x0 after a call that failed; 0 is success.",
    ),
    group(
        "services",
        "SERVICE_",
        "Services that the configuration can grant, as bits.",
    ),
    group("page_flags", "PAGE_", "Bits of CLOISON_CALL_PAGE_STATE."),
    group(
        "list",
        "LIST_",
        "Lists of pages: the most entries, the bit of a cached page, and the index if no entry is \
         to blame.",
    ),
    group(
        "doorbell",
        "DOORBELL_",
        "Bits of CLOISON_CALL_DOORBELL_TAKE: those that peers set, and those of their lives.",
    ),
    group("lease", "LEASE_", "Bounds of CLOISON_CALL_LEASE."),
    group(
        "reply",
        "",
        "Bytes of a VM's name, which CLOISON_CALL_VM_READ returns.",
    ),
    group(
        "reply::Change",
        "CHANGE_",
        "What CLOISON_CALL_VM_ORDER can do (x2).",
    ),
    group(
        "reply::Life",
        "LIFE_",
        "The lives in the low byte of what CLOISON_CALL_VM_READ returns.",
    ),
    group(
        "page",
        "SERVICES_PAGE_",
        "The services page: its registers, and what the first one reads as.",
    ),
    group("psci", "PSCI_", "PSCI (Arm DEN 0022)."),
    group(
        "model_hint",
        "MODEL_",
        "HINT instructions that the board model understands; everything else executes them as NOP.",
    ),
];

/// Returns the header.
pub fn header() -> String {
    TEMPLATE.replace("@CONSTANTS@\n", &definitions())
}

fn definitions() -> String {
    let mut text = String::new();
    for group in &GROUPS {
        let _ = writeln!(text, "/* {} */", group.remark);
        for constant in CONSTANTS.iter().filter(|it| it.module == group.module) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "#define {} {}",
                c_name(group, constant),
                constant.value
            );
        }
        text.push('\n');
    }
    let _ = writeln!(text, "/* Bits of CLOISON_UART_FR. */");
    for (name, flag) in [("TXFF", FR::TXFF::SET), ("RXFE", FR::RXFE::SET)] {
        let value = Value::Number(u64::from(u32::from(flag)));
        let _ = writeln!(text, "#define CLOISON_UART_FR_{name} {value}");
    }
    text.push('\n');
    text
}

/// Returns a constant's name in C. Calls with arguments of 64 bits are the usual ones.
fn c_name(group: &Group, constant: &Constant) -> String {
    let name = constant.name.trim_end_matches("_64");
    format!("CLOISON_{}{name}", group.prefix)
}

/// Returns the values of all constants that the header defines, by their names in C.
pub fn constants() -> impl Iterator<Item = (String, Value)> {
    GROUPS.iter().flat_map(|group| {
        let of_group = CONSTANTS.iter().filter(|it| it.module == group.module);
        of_group.map(|constant| (c_name(group, constant), constant.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_public_constant_is_in_the_header() {
        let header = header();
        for constant in CONSTANTS {
            let group = GROUPS.iter().find(|group| group.module == constant.module);
            let group = group.unwrap_or_else(|| panic!("no group for {constant:?}"));
            let line = format!("#define {} {}", c_name(group, constant), constant.value);
            let found = header.lines().filter(|found| *found == line).count();
            assert_eq!(found, 1, "{line} in\n{header}");
        }
        for line in [
            "#define CLOISON_CALL_IDENTIFY 0xc6000000U",
            "#define CLOISON_CALL_SET_CACHEABILITY 0xc600000aU",
            "#define CLOISON_ERROR_POOL_FULL (-4)",
            "#define CLOISON_MAP_UART 0x9000000ULL",
            "#define CLOISON_UART_FR 0x18ULL",
            "#define CLOISON_SERVICE_REGULATE 32",
            "#define CLOISON_CYCLE_COUNTER 31",
            "#define CLOISON_LIST_LONGEST 0x200ULL",
        ] {
            assert!(
                header.lines().any(|found| found == line),
                "{line} is not in\n{header}"
            );
        }
        assert!(!header.contains('@'), "{header}");
    }
}
