//! An SMMUv3's registers, stream table, commands and events, as words (Arm IHI 0070).
//!
//! Cloison uses stage 2 alone: a stream that is open is translated by its VM's own tables.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Words of 64 bits in an entry of the stream table (5.2).
pub const ENTRY_WORDS: usize = 8;
/// Logarithm of the number of entries: `Streams::MOST`, a page.
pub const LOG2_ENTRIES: u32 = 6;
/// First word of an entry whose stream is cut: valid, and each access aborts without an event.
pub const CUT: u64 = 1;
/// First word of an entry whose stream is open: valid, translated by stage 2 alone.
pub const OPEN: u64 = 1 | 0b110 << 1;

/// Returns the other words of an entry that matter, given VTCR_EL2 (`walk`) and VTTBR_EL2 (`root`) of
/// a VM: both have the fields of the entry, in its order (5.2: S2T0SZ to S2PS, S2VMID, S2TTB).
pub const fn translated(walk: u64, root: u64) -> [u64; 3] {
    // SHCFG: the shareability that the device says. S2AA64, and S2R: refused accesses are events.
    const INCOMING: u64 = 1 << 44;
    const AARCH64: u64 = 1 << 51;
    const RECORDED: u64 = 1 << 58;
    [
        INCOMING,
        RECORDED | AARCH64 | (walk & 0x7_ffff) << 32 | root >> 48,
        root & 0xffff_ffff_fff0,
    ]
}

/// A command (4): two words.
pub type Command = [u64; 2];
/// Logarithm of the number of entries of the command queue.
pub const LOG2_COMMANDS: u32 = 2;
/// Has the SMMU forget all entries and translations, and finish the accesses that use them:
/// CMD_CFGI_ALL, CMD_TLBI_NSNH_ALL, CMD_SYNC (4.3, 4.4, 4.7).
pub const FORGET: [Command; 3] = [[0x04, 31], [0x30, 0], [0x46, 0]];

/// Words of an event (7.2).
pub const EVENT_WORDS: usize = 4;
/// Logarithm of the number of entries of the event queue.
pub const LOG2_EVENTS: u32 = 6;

/// An access that was refused (7.3.12: F_TRANSLATION, and events with the same fields).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of the event.
    pub kind: u8,
    /// The stream.
    pub stream: u32,
    /// What the device wanted to do.
    pub access: Access,
    /// Where.
    pub address: u64,
}

/// What a device does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl Event {
    /// Decodes the first three words of an event.
    pub const fn of(words: [u64; 3]) -> Self {
        Self {
            kind: words[0] as u8,
            stream: (words[0] >> 32) as u32,
            // RnW.
            access: if words[1] >> 35 & 1 != 0 {
                Access::Read
            } else {
                Access::Write
            },
            address: words[2],
        }
    }
}

/// Returns how many entries a queue with 2^`log2` of them holds, by its two indices. Each has one bit
/// more than a position, which tells a full queue from an empty one (3.5.1).
pub const fn waiting(produced: u32, consumed: u32, log2: u32) -> u32 {
    produced.wrapping_sub(consumed) & ((2 << log2) - 1)
}

/// Registers, as numbers of words of 32 bits in their page (6.3).
pub mod register {
    /// What the SMMU can do.
    pub const IDR0: usize = 0;
    /// What is on.
    pub const CR0: usize = 0x20 / 4;
    /// What is on, once that is so.
    pub const CR0ACK: usize = 0x24 / 4;
    /// How tables and queues are read and written.
    pub const CR1: usize = 0x28 / 4;
    /// Further controls.
    pub const CR2: usize = 0x2c / 4;
    /// What happens to all accesses while the SMMU is off.
    pub const GBPA: usize = 0x44 / 4;
    /// Which interrupts are on.
    pub const IRQ_CTRL: usize = 0x50 / 4;
    /// The stream table's address; the upper half is the next word.
    pub const STRTAB_BASE: usize = 0x80 / 4;
    /// The stream table's form.
    pub const STRTAB_BASE_CFG: usize = 0x88 / 4;
    /// The command queue's address and size.
    pub const CMDQ_BASE: usize = 0x90 / 4;
    /// Its index of the producer.
    pub const CMDQ_PROD: usize = 0x98 / 4;
    /// Its index of the consumer.
    pub const CMDQ_CONS: usize = 0x9c / 4;
    /// The event queue's address and size.
    pub const EVENTQ_BASE: usize = 0xa0 / 4;
    /// Its index of the producer, in the second page.
    pub const EVENTQ_PROD: usize = 0xa8 / 4;
    /// Its index of the consumer, in the second page.
    pub const EVENTQ_CONS: usize = 0xac / 4;

    /// IDR0: stage 2, AArch64 tables, coherent accesses to tables and queues.
    pub const NEEDED: u32 = 1 | 1 << 3 | 1 << 4;
    /// CR1: all inner shareable and write-back.
    pub const CACHED: u32 = 3 << 10 | 1 << 8 | 1 << 6 | 3 << 4 | 1 << 2 | 1;
    /// GBPA: all accesses abort, from this write on.
    pub const ABORT: u32 = 1 << 31 | 1 << 20;
    /// GBPA: a write does not hold yet.
    pub const UPDATE: u32 = 1 << 31;
    /// CR0: the queues are on.
    pub const QUEUES: u32 = 1 << 3 | 1 << 2;
    /// CR0: the queues and the translation are on.
    pub const TRANSLATES: u32 = QUEUES | 1;
    /// IRQ_CTRL: the event queue's interrupt is on.
    pub const EVENTS: u32 = 1 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::image::Streams;
    use proptest::prelude::*;

    #[test]
    fn an_entry_has_the_fields_of_the_vms_own_registers() {
        // 39 bits from level 1, write-back inner shareable walks, 4 KiB, 40 bits, RES1.
        let vtcr = 25 | 1 << 6 | 1 << 8 | 1 << 10 | 3 << 12 | 2 << 16 | 1 << 31;
        let [first, second, third] = translated(vtcr, 3 << 48 | 0x40_1234_5000);
        assert_eq!(first >> 44 & 3, 1, "SHCFG");
        let field = |shift: u32, bits: u32| second >> shift & ((1 << bits) - 1);
        assert_eq!(field(0, 16), 3, "S2VMID");
        assert_eq!(field(32, 6), 25, "S2T0SZ");
        assert_eq!(field(38, 2), 1, "S2SL0");
        assert_eq!(
            (field(40, 2), field(42, 2), field(44, 2)),
            (1, 1, 3),
            "walks"
        );
        assert_eq!((field(46, 2), field(48, 3)), (0, 2), "S2TG and S2PS");
        assert_eq!((field(51, 1), field(58, 1)), (1, 1), "S2AA64 and S2R");
        // No stalls, no write of access flags.
        assert_eq!(field(52, 6) | field(59, 5) | field(16, 16), 0);
        assert_eq!(third, 0x40_1234_5000, "S2TTB");
        assert_eq!((CUT & 1, CUT >> 1 & 7), (1, 0b000));
        assert_eq!((OPEN & 1, OPEN >> 1 & 7), (1, 0b110));
        assert_eq!(1 << LOG2_ENTRIES, Streams::MOST);
    }

    #[test]
    fn events_are_decoded() {
        let event = Event::of([0x0000_0008_0000_0010, 1 << 35 | 1 << 39, 0x5_0000_1234]);
        assert_eq!((event.kind, event.stream), (0x10, 8));
        assert_eq!((event.access, event.address), (Access::Read, 0x5_0000_1234));
        assert_eq!(Event::of([0x13, 0, 0]).access, Access::Write);
    }

    proptest! {
        #[test]
        fn as_many_wait_as_were_produced_and_not_consumed(
            log2 in 1u32..8,
            consumed in any::<u32>(),
            more in any::<u32>(),
            overflow in any::<bool>(),
        ) {
            let more = more % ((1 << log2) + 1);
            let mask = (2 << log2) - 1;
            let produced = (consumed.wrapping_add(more) & mask) | u32::from(overflow) << 31;
            prop_assert_eq!(waiting(produced, consumed & mask, log2), more);
        }
    }
}
