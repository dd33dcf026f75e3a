//! Explains exceptions that guests report: what happened, and in which function and line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use aarch64_esr_decoder::{FieldInfo, decode};
use cloison_config::ImageSource;
use cloison_engine::consoles::Piece;
use cloison_formats::ids::VmId;
use cloison_profiler::guest_symbols;
use cloison_profiler::symbols::Symbols;
use std::collections::BTreeMap;

/// A longer line reports no exception.
const LONGEST: usize = 256;
/// So many are explained.
const MOST: usize = 8;

/// An exception that a guest did not expect, as it printed its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exception {
    vm: VmId,
    /// ESR_EL1.
    syndrome: u64,
    /// ELR_EL1: the instruction.
    instruction: u64,
    /// FAR_EL1: the address that was accessed.
    accessed: Option<u64>,
}

/// The exceptions that guests have reported on a console.
#[derive(Debug, Default)]
pub struct Exceptions {
    lines: BTreeMap<u8, Vec<u8>>,
    found: Vec<Exception>,
}

impl Exceptions {
    /// Takes the next piece of the console.
    pub fn take(&mut self, piece: Piece) {
        let Piece::Text(Some(vm), text) = piece else {
            return;
        };
        let line = self.lines.entry(vm.0).or_default();
        for &byte in text {
            if byte != b'\n' {
                if line.len() < LONGEST {
                    line.push(byte);
                }
                continue;
            }
            let reported = std::str::from_utf8(line)
                .ok()
                .and_then(|line| read(vm, line));
            line.clear();
            if self.found.len() < MOST {
                self.found.extend(reported);
            }
        }
    }

    /// Returns an explanation of each, in a line; at a line's end the console may have ended.
    pub fn explained(&mut self, images: &[ImageSource], names: &[String]) -> Vec<String> {
        for vm in (0..).map(VmId).take(names.len()) {
            self.take(Piece::Text(Some(vm), b"\n"));
        }
        let explained = self.found.iter().map(|exception| {
            let image = images.get(exception.vm.index());
            let symbols = image.and_then(|image| guest_symbols(image).ok().flatten());
            format!(
                "{}: {}",
                names[exception.vm.index()],
                exception.explained(symbols.as_ref())
            )
        });
        explained.collect()
    }
}

impl Exception {
    fn explained(self, symbols: Option<&Symbols>) -> String {
        let what = decode(self.syndrome)
            .ok()
            .and_then(|fields| cause(&fields))
            .unwrap_or_else(|| "an exception without a known cause".to_owned());
        let of = self
            .accessed
            .map_or_else(String::new, |address| format!(" at address {address:#x}"));
        let place = symbols.map(|symbols| symbols.at(self.instruction));
        let place = match place.filter(|place| place.is_named) {
            Some(place) => match (&place.file, place.line) {
                (Some(file), line @ 1..) => format!("{} ({file}:{line})", place.function),
                _ => place.function,
            },
            None => format!("the code at {:#x}", self.instruction),
        };
        format!("{what}{of}, in {place}")
    }
}

/// Returns the class of an exception, and what decides within it.
fn cause(fields: &[FieldInfo]) -> Option<String> {
    let described = |name: &str| {
        let all = fields.iter().flat_map(|field| {
            let inner = field.subfields.iter();
            std::iter::once(field)
                .chain(inner.flat_map(|one| std::iter::once(one).chain(one.subfields.iter())))
        });
        let found = all.into_iter().find(|field| field.name == name)?;
        found.description.clone()
    };
    let class = described("EC")?;
    let details = ["WnR", "DFSC", "IFSC"];
    let details: Vec<String> = details.into_iter().filter_map(described).collect();
    Some(if details.is_empty() {
        class
    } else {
        format!("{class} ({})", details.join(", "))
    })
}

/// Reads a report as guests of `new guest` print it:
/// `... ESR_EL1=0x96000050 at 0x400012b0, FAR_EL1=0x90000000`.
fn read(vm: VmId, line: &str) -> Option<Exception> {
    let number = |after: &str| {
        let (_, rest) = line.split_once(after)?;
        let digits = rest.split(|sign: char| !sign.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let syndrome = number("ESR_EL1=0x")?;
    let class = syndrome >> 26 & 0x3f;
    Some(Exception {
        vm,
        syndrome,
        instruction: number(" at 0x")?,
        // Instruction and data aborts, and addresses that are not aligned.
        accessed: number("FAR_EL1=0x").filter(|_| matches!(class, 0x20..=0x25)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(said: &str) -> Vec<String> {
        let mut exceptions = Exceptions::default();
        for byte in said.bytes() {
            exceptions.take(Piece::Text(Some(VmId(1)), &[byte]));
        }
        exceptions.explained(&[], &["one", "two"].map(str::to_owned))
    }

    #[test]
    fn an_exception_is_explained() {
        let said = "hello\nunexpected exception: ESR_EL1=0x96000050 at 0x400012b0, \
                    FAR_EL1=0x90000000\n";
        let lines = explained(said);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let words = [
            "two: Data Abort",
            "writing to memory",
            "External abort",
            "at address 0x90000000",
        ];
        for word in words {
            assert!(lines[0].contains(word), "{lines:?} has no `{word}`");
        }
        assert!(lines[0].ends_with("in the code at 0x400012b0"), "{lines:?}");
        assert_eq!(
            explained(said.trim_end()),
            lines,
            "without a line's end too"
        );
    }

    #[test]
    fn nothing_else_is_taken_for_an_exception() {
        let zeros = "ESR_EL1=0x at 0x, FAR_EL1=0x\n";
        let long = format!("{}ESR_EL1=0x1 at 0x2\n", "x".repeat(LONGEST));
        for said in ["", "hello\n", "ESR_EL1=0x1\n", zeros, &long] {
            assert!(explained(said).is_empty(), "{said}");
        }
        let many = "ESR_EL1=0x96000050 at 0x0\n".repeat(100);
        assert_eq!(explained(&many).len(), MOST);
        // A class that the Arm ARM does not have.
        assert_eq!(explained("ESR_EL1=0xffffffff at 0x4\n").len(), 1);
    }
}
