//! The services page: what its registers read, and the calls that writes make (docs/services.md).
//!
//! What is not known, because vCPUs of a VM write at the same time or by instructions that the
//! syndrome does not describe, is not checked.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::{self, Request};
use crate::rules::{Checked, Difference, Rule};
use cloison_abi::{ABI_VERSION, doorbell, page};
use cloison_formats::image::System;

/// The registers of a VM, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Arguments before a call, results after it.
    words: [Option<u64>; 3],
    /// The status of the last call, once it was read.
    status: Option<u64>,
    /// The last call, if it is known: its function and first argument.
    last: Option<Request>,
}

/// Returns the index of an argument register.
fn argument(offset: u16) -> Option<usize> {
    page::ARGUMENTS.iter().position(|own| *own == offset)
}

impl Registers {
    /// Nothing is known from here on.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Follows a write of 8 bytes. Returns the call that it makes, with the arguments that are known.
    pub fn write(&mut self, offset: u16, value: u64) -> Option<(u32, [Option<u64>; 3])> {
        if let Some(index) = argument(offset) {
            self.words[index] = Some(value);
        }
        if offset != page::CALL {
            return None;
        }
        let arguments = self.words;
        let function = value as u32;
        self.forget();
        // Whether a call is granted depends on its first argument at most.
        self.last = arguments[0].map(|first| Request {
            function,
            arguments: [first, 0, 0],
        });
        Some((function, arguments))
    }

    /// Follows a read of `bytes` bytes that returned `value` to a vCPU of a VM.
    ///
    /// # Errors
    ///
    /// It is not what the register holds, or a call has succeeded that is not granted.
    pub fn read(
        &mut self,
        system: &System,
        (vm, vcpu): (usize, usize),
        (offset, bytes): (u16, u64),
        value: u64,
    ) -> Checked {
        let services = system.vms[vm].services;
        // Registers are read as a whole: less reads as zero.
        let known = match offset {
            _ if bytes != 8 => Some(0),
            page::MAGIC => Some(page::MAGIC_VALUE),
            page::VERSION => Some(ABI_VERSION),
            page::SERVICES => Some(services.into()),
            page::VM => Some(vm as u64),
            page::VCPU => Some(vcpu as u64),
            // Others set its bits at any time: which ones wait is not followed.
            page::DOORBELL => Some(value & doorbell::ALL),
            page::CALL => {
                if let Some(last) = self.last {
                    power::check_grant(system, vm, last, value as i64)?;
                }
                Some(*self.status.get_or_insert(value))
            }
            _ => match argument(offset) {
                Some(index) => Some(*self.words[index].get_or_insert(value)),
                None => Some(0),
            },
        };
        if known == Some(value) {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Page,
            format!("VM {vm} vCPU {vcpu}, offset {offset:#x} of the services page"),
            format!("{known:#x?}"),
            format!("{value:#x}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use cloison_abi::Call;

    #[test]
    fn a_doorbell_reads_bits_that_it_has() {
        let system = fixture::system();
        let read = |value| {
            let mut registers = Registers::default();
            registers.read(&system, (0, 0), (page::DOORBELL, 8), value)
        };
        assert!(read(0).is_ok() && read(doorbell::ALL).is_ok());
        assert!(read(u64::MAX).is_err());
    }

    #[test]
    fn fixed_registers_read_what_they_are() {
        let system = fixture::system();
        let read = |at: (u16, u64), value| {
            let mut registers = Registers::default();
            let checked = registers.read(&system, (0, 1), at, value);
            checked.err().map(|difference| difference.rule)
        };
        for (offset, value) in [
            (page::MAGIC, page::MAGIC_VALUE),
            (page::VERSION, ABI_VERSION),
            (page::SERVICES, 2),
            (page::VM, 0),
            (page::VCPU, 1),
            (0x38, 0),
            (0xff8, 0),
        ] {
            assert_eq!(read((offset, 8), value), None);
            assert_eq!(read((offset, 8), value + 1), Some(Rule::Page));
            assert_eq!(read((offset, 4), 0), None);
            assert_eq!(read((offset, 4), 5), Some(Rule::Page));
        }
    }

    #[test]
    fn arguments_are_kept_until_a_call_and_results_until_the_next() {
        let system = fixture::system();
        let mut registers = Registers::default();
        let read = |registers: &mut Registers, offset, value| {
            registers.read(&system, (0, 0), (offset, 8), value).is_ok()
        };
        assert_eq!(registers.write(0x48, 7), None);
        assert!(read(&mut registers, 0x48, 7) && !read(&mut registers, 0x48, 8));
        let call = registers.write(page::CALL, 1 << 32 | u64::from(Call::VmOrder as u32));
        assert_eq!(call, Some((Call::VmOrder as u32, [None, Some(7), None])));
        assert!(read(&mut registers, 0x48, 1) && !read(&mut registers, 0x48, 2));
        // Whom it has ordered is not known.
        assert!(read(&mut registers, page::CALL, 0));
        // The VM may order nobody.
        registers.write(0x40, 0);
        registers.write(page::CALL, Call::VmOrder as u64);
        assert!(read(&mut registers.clone(), page::CALL, -2i64 as u64));
        assert!(!read(&mut registers, page::CALL, 0));
    }
}
