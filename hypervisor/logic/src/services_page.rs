//! The registers of the services page (`cloison_abi::page`): they collect arguments, make a call,
//! and return results.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::page;
use cloison_abi::reply::Identity;

/// A requested call: `w0`, and `x1` to `x3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Function identifier.
    pub function: u32,
    /// Arguments of the call.
    pub arguments: [u64; 3],
}

/// The writable registers of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mailbox {
    /// `x0` of the last call.
    status: u64,
    /// Arguments before a call, results after it: `x1` to `x3`.
    words: [u64; 3],
}

/// Returns the index of the argument register at `offset`.
fn argument(offset: u16) -> Option<usize> {
    page::ARGUMENTS.iter().position(|&own| own == offset)
}

impl Mailbox {
    /// Returns what a 64-bit read at `offset` returns to a vCPU with this identity.
    pub fn read(&self, offset: u16, reader: Identity) -> u64 {
        match offset {
            page::MAGIC => page::MAGIC_VALUE,
            page::VERSION => reader.version,
            page::SERVICES => u64::from(reader.services),
            page::VM => reader.vm,
            page::VCPU => reader.vcpu,
            page::CALL => self.status,
            _ => argument(offset).map_or(0, |index| self.words[index]),
        }
    }

    /// Handles a 64-bit write at `offset`. Returns the call that it makes, if any. Bits of the
    /// function identifier above 31 are ignored, as with `w0`.
    pub fn write(&mut self, offset: u16, value: u64) -> Option<Request> {
        if offset == page::CALL {
            return Some(Request {
                function: value as u32,
                arguments: self.words,
            });
        }
        if let Some(index) = argument(offset) {
            self.words[index] = value;
        }
        None
    }

    /// Stores the result of a call: `x0` to `x3`. The results replace the arguments, so that a
    /// program cannot take its own argument for a result.
    pub fn answer(&mut self, [status, words @ ..]: [u64; 4]) {
        *self = Self { status, words };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_abi::ABI_VERSION;
    use proptest::prelude::*;

    const READER: Identity = Identity {
        version: ABI_VERSION,
        services: 5,
        vm: 2,
        vcpu: 1,
    };

    #[test]
    fn a_call_takes_its_arguments_and_leaves_its_results() {
        let mut mailbox = Mailbox::default();
        for (&offset, value) in page::ARGUMENTS.iter().zip([7, 8, 9]) {
            assert_eq!(mailbox.write(offset, value), None);
        }
        let request = mailbox.write(page::CALL, 0xffff_0000_c600_0003).unwrap();
        assert_eq!(
            request,
            Request {
                function: 0xc600_0003,
                arguments: [7, 8, 9]
            }
        );
        mailbox.answer([u64::MAX, 1, 2, 3]);
        let read = |offset| mailbox.read(offset, READER);
        assert_eq!(
            (read(page::CALL), page::ARGUMENTS.map(read)),
            (u64::MAX, [1, 2, 3])
        );
        assert_eq!(
            (read(page::SERVICES), read(page::VM), read(page::VCPU)),
            (5, 2, 1)
        );
        assert_eq!(
            (read(page::MAGIC).to_le_bytes(), read(page::VERSION)),
            (*b"cloison1", ABI_VERSION)
        );
    }

    proptest! {
        #[test]
        fn what_is_no_register_reads_zero_and_takes_nothing(offset in 0u16..0x1000, value: u64) {
            let known = [
                page::MAGIC,
                page::VERSION,
                page::SERVICES,
                page::VM,
                page::VCPU,
                page::CALL,
            ];
            prop_assume!(!known.contains(&offset) && !page::ARGUMENTS.contains(&offset));
            let mut mailbox = Mailbox::default();
            prop_assert_eq!(mailbox.write(offset, value), None);
            prop_assert_eq!(mailbox, Mailbox::default());
            prop_assert_eq!(mailbox.read(offset, READER), 0);
        }

        #[test]
        fn what_is_read_only_stays(value: u64) {
            let mut mailbox = Mailbox::default();
            for offset in [
                page::MAGIC,
                page::VERSION,
                page::SERVICES,
                page::VM,
                page::VCPU,
            ] {
                prop_assert_eq!(mailbox.write(offset, value), None);
            }
            prop_assert_eq!(mailbox, Mailbox::default());
        }
    }
}
