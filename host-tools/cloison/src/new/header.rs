//! The C header for guests, generated from the constants of `cloison-abi`.
//!
//! cbindgen would need the crate's source where `cloison` runs, and would give `psci::VERSION` and `page::VERSION` one
//! name. The constants themselves are at hand.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::pl011::{FR, Pl011};
use cloison_abi::reply::{Change, Life};
use cloison_abi::{
    ABI_VERSION, Call, CallError, irq, map, model_hint, page, page_flags, psci, services,
};
use std::fmt::Write;
use std::mem::offset_of;

/// Functions that use the constants.
const TEMPLATE: &str = include_str!("../../templates/c/cloison.h");

/// Returns the header.
pub fn header() -> String {
    TEMPLATE.replace("@CONSTANTS@\n", &text())
}

/// Returns the definitions of all constants, in groups with a remark.
fn text() -> String {
    let mut text = String::new();
    for (remark, constants) in groups() {
        let _ = writeln!(text, "/* {remark} */");
        for (name, value) in constants {
            // Writing to a `String` cannot fail.
            let _ = match value {
                Value::Number(number) => writeln!(text, "#define CLOISON_{name} {number:#x}ULL"),
                Value::Function(number) => writeln!(text, "#define CLOISON_{name} {number:#x}U"),
                Value::Signed(number) => writeln!(text, "#define CLOISON_{name} ({number})"),
                Value::Plain(number) => writeln!(text, "#define CLOISON_{name} {number}"),
            };
        }
        text.push('\n');
    }
    text
}

/// The C type of a constant.
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
}

type Group = (&'static str, Vec<(String, Value)>);

/// Returns all constants by group. Their names follow `CLOISON_`.
pub fn groups() -> Vec<Group> {
    let named = |prefix: &str, list: &[(&str, Value)]| -> Vec<(String, Value)> {
        list.iter()
            .map(|(name, value)| (format!("{prefix}{name}"), *value))
            .collect()
    };
    use Value::{Function, Number, Plain, Signed};
    let calls = (0xC600_0000..=0xC600_00FF).filter_map(Call::from_id);
    let calls = calls.map(|call| {
        (
            format!("CALL_{}", constant(&format!("{call:?}"))),
            Function(call as u32),
        )
    });
    let errors = (-64..0).rev().filter_map(CallError::from_x0);
    let errors = errors.map(|error| {
        (
            format!("ERROR_{}", constant(&format!("{error:?}"))),
            Signed(error as i64),
        )
    });
    vec![
        (
            "Version of the interface, as CLOISON_CALL_IDENTIFY returns it in x0.",
            { named("", &[("ABI_VERSION", Number(ABI_VERSION))]) },
        ),
        (
            "Addresses of the devices, and where RAM starts by convention.",
            {
                let places = [
                    ("GICD", map::GICD),
                    ("GICC", map::GICC),
                    ("UART", map::UART),
                    ("SERVICES", map::SERVICES),
                    ("RAM", map::RAM),
                ];
                named("MAP_", &places.map(|(name, at)| (name, Number(at))))
            },
        ),
        (
            "Interrupts.",
            named(
                "IRQ_",
                &[("VTIMER", Plain(irq::VTIMER)), ("UART", Plain(irq::UART))],
            ),
        ),
        ("Registers of the UART, a PL011.", {
            let (data, flags) = (offset_of!(Pl011, dr) as u64, offset_of!(Pl011, fr) as u64);
            let [full, empty] =
                [FR::TXFF::SET, FR::RXFE::SET].map(|flag| u64::from(u32::from(flag)));
            let registers = [
                ("DR", data),
                ("FR", flags),
                ("FR_TXFF", full),
                ("FR_RXFE", empty),
            ];
            named(
                "UART_",
                &registers.map(|(name, value)| (name, Number(value))),
            )
        }),
        (
            "Cloison's calls: function identifiers for w0. docs/services.md has arguments and results.",
            calls.collect(),
        ),
        (
            "x0 after a call that failed; 0 is success.",
            errors.collect(),
        ),
        ("Services that the configuration can grant.", {
            let bits = [
                ("HEM", services::HEM),
                ("MIGRATE", services::MIGRATE),
                ("QUOTA", services::QUOTA),
                ("PROFILE", services::PROFILE),
                ("MANAGE", services::MANAGE),
            ];
            named(
                "SERVICE_",
                &bits.map(|(name, bit)| (name, Number(u64::from(bit)))),
            )
        }),
        ("Bits of CLOISON_CALL_PAGE_STATE.", {
            let flags = [
                ("PRIVATE", page_flags::PRIVATE),
                ("UNCACHED", page_flags::UNCACHED),
            ];
            named("PAGE_", &flags.map(|(name, bit)| (name, Number(bit))))
        }),
        (
            "What CLOISON_CALL_VM_ORDER can do (x2), and the lives in the low byte of what CLOISON_CALL_VM_READ returns.",
            {
                let changes = [Change::Stop, Change::Start, Change::Restart];
                let changes = changes.map(|it| {
                    (
                        format!("CHANGE_{}", constant(&format!("{it:?}"))),
                        Number(it as u64),
                    )
                });
                let lives = [
                    Life::Running,
                    Life::Changing,
                    Life::Off,
                    Life::Stopped,
                    Life::Killed,
                ];
                let lives = lives.map(|it| {
                    (
                        format!("LIFE_{}", constant(&format!("{it:?}"))),
                        Number(it as u64),
                    )
                });
                changes.into_iter().chain(lives).collect()
            },
        ),
        ("Registers of the services page.", {
            let [first, second, third] = page::ARGUMENTS;
            let registers = [
                ("MAGIC", page::MAGIC),
                ("VERSION", page::VERSION),
                ("SERVICES", page::SERVICES),
                ("VM", page::VM),
                ("VCPU", page::VCPU),
                ("CALL", page::CALL),
                ("ARGUMENT1", first),
                ("ARGUMENT2", second),
                ("ARGUMENT3", third),
            ];
            let mut named = named(
                "SERVICES_PAGE_",
                &registers.map(|(name, at)| (name, Number(u64::from(at)))),
            );
            named.push((
                "SERVICES_PAGE_MAGIC_VALUE".into(),
                Number(page::MAGIC_VALUE),
            ));
            named
        }),
        ("PSCI (Arm DEN 0022).", {
            let calls = [
                ("VERSION", psci::VERSION),
                ("CPU_SUSPEND", psci::CPU_SUSPEND_64),
                ("CPU_OFF", psci::CPU_OFF),
                ("CPU_ON", psci::CPU_ON_64),
                ("AFFINITY_INFO", psci::AFFINITY_INFO_64),
                ("SYSTEM_OFF", psci::SYSTEM_OFF),
                ("SYSTEM_RESET", psci::SYSTEM_RESET),
                ("FEATURES", psci::FEATURES),
            ];
            named("PSCI_", &calls.map(|(name, id)| (name, Function(id))))
        }),
        (
            "HINT instructions that the board model understands; everything else executes them as NOP.",
            {
                let hints = [
                    ("BEGIN_WARM", model_hint::BEGIN_WARM),
                    ("BEGIN_COLD", model_hint::BEGIN_COLD),
                    ("END", model_hint::END),
                ];
                named("MODEL_", &hints.map(|(name, hint)| (name, Plain(hint))))
            },
        ),
    ]
}

/// Returns `SegmentBegin` as `SEGMENT_BEGIN`.
fn constant(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_and_every_error_has_its_constant() {
        let header = header();
        for line in [
            "#define CLOISON_CALL_IDENTIFY 0xc6000000U",
            "#define CLOISON_CALL_SET_CACHEABILITY 0xc600000aU",
            "#define CLOISON_ERROR_POOL_FULL (-4)",
            "#define CLOISON_MAP_UART 0x9000000ULL",
            "#define CLOISON_UART_FR 0x18ULL",
        ] {
            assert!(
                header.lines().any(|found| found == line),
                "{line} is not in\n{header}"
            );
        }
        let calls = header
            .lines()
            .filter(|line| line.starts_with("#define CLOISON_CALL_"))
            .count();
        assert_eq!(
            calls,
            (0..=u32::MAX >> 8)
                .filter(|id| Call::from_id(0xC600_0000 + id).is_some())
                .count()
        );
        assert!(!header.contains('@'), "{header}");
    }
}
