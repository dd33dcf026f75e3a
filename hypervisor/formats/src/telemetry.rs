//! The telemetry stream: what the hypervisor sends out on the second UART, and how the host reads it back.
//!
//! Each frame is a postcard message followed by its CRC-32 (ISO-HDLC, little-endian), COBS-encoded, closed by a zero
//! byte. A reader that joins late or loses bytes finds the next frame at the next zero.

use crate::addr::{Ipa, PhysAddr};
use crate::color::ColorSet;
use crate::image::PoolKind;
use crate::units::{Cycles, EventId, Events, Nanos};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use crc::{CRC_32_ISO_HDLC, Crc, Table};
use postcard::ser_flavors::{Cobs, Slice, crc::CrcModifier};
use serde::{Deserialize, Serialize};

/// Version of the frames below; the first frame of a stream carries it.
pub const VERSION: u16 = 2;
/// The most events that one HEM record carries.
pub const MAX_HEMS: usize = 6;
/// No encoded frame is longer than this, its closing zero included.
pub const MAX_MESSAGE: usize = 4096;
/// Pages per [`Stage2Run`] at most, so that it fits [`MAX_MESSAGE`].
pub const MAX_RUN: usize = 128;

static CRC32: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// CRC-32 (ISO-HDLC), in software. For small inputs.
pub fn crc32(bytes: &[u8]) -> u32 {
    CRC32.checksum(bytes)
}

/// One frame of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The first frame: which system this is.
    Boot(BootInfo),
    /// A pool after all regions were allocated.
    Pool(PoolInfo),
    /// A VM, its id being the position among the frames of this kind.
    Vm(VmInfo),
    /// Consecutive pages read back from a VM's stage-2 tables (audit).
    Stage2(Stage2Run),
    /// The audit is complete; this many pages were logged.
    AuditEnd {
        /// Pages in all `Stage2` frames.
        pages: u64,
    },
    /// Something that happened while guests ran.
    Event(Event),
    /// Consecutive pages of the hypervisor's own address space, read back from its tables (audit).
    Stage1(Stage1Run),
}

/// The system that sends the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootInfo {
    /// [`VERSION`].
    pub version: u16,
    /// The configuration's name.
    pub system: String,
    /// The board's name.
    pub board: String,
    /// Page colors, from CCSIDR_EL1.
    pub colors: u32,
    /// The hypervisor's own colors.
    pub hypervisor_colors: ColorSet,
    /// How many frames hold the hypervisor's text, data, stacks, heap and page tables. They take its colors in turn,
    /// lowest first.
    pub hypervisor_pages: u32,
    /// Page numbers of these frames; empty but in an audit.
    pub hypervisor_frames: Vec<u32>,
    /// CNTFRQ_EL0 in hertz.
    pub timer_hz: u64,
}

/// A pool's state at boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Its name.
    pub name: String,
    /// PVT or SH.
    pub kind: PoolKind,
    /// Its colors.
    pub colors: ColorSet,
    /// Pages taken per color, in the order of `colors`.
    pub used: Vec<u32>,
    /// Pages that exist per color.
    pub total: Vec<u32>,
}

/// A VM at boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmInfo {
    /// Its name.
    pub name: String,
    /// Physical cores by vCPU.
    pub cores: Vec<u8>,
    /// Mapped pages.
    pub pages: u32,
}

/// Consecutive IPA pages and the frames behind them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage2Run {
    /// The VM's id.
    pub vm: u8,
    /// IPA of the first page.
    pub ipa: Ipa,
    /// Physical page numbers, at most [`MAX_RUN`].
    pub frames: Vec<u32>,
}

/// Consecutive pages of EL2's address space that serve one purpose, with the same rights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage1Run {
    /// Virtual address of the first page.
    pub va: u64,
    /// What the addresses are for.
    pub part: Part,
    /// Whether EL2 may write there.
    pub writable: bool,
    /// Whether EL2 may execute what lies there.
    pub executable: bool,
    /// Physical page numbers, at most [`MAX_RUN`].
    pub frames: Vec<u32>,
}

/// What a part of EL2's address space is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Text, data and heap.
    Image,
    /// Translation tables.
    Tables,
    /// Device registers.
    Devices,
    /// Windows onto guest pages; empty while no core uses one.
    Windows,
    /// The guest images as they were loaded.
    Payload,
    /// Stacks, each with an unmapped page below.
    Stacks,
    /// The page that runs while the MMU changes tables, at its physical address.
    Trampoline,
}

/// A record with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Physical core that wrote it.
    pub core: u8,
    /// When, in nanoseconds of the system counter since reset.
    pub at: Nanos,
    /// What.
    pub record: Record,
}

/// What happened. No variant owns heap memory: records are written on run-time paths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// One run of one observation segment.
    Hem(HemRecord),
    /// One page was moved (or a plan failed: see `outcome`).
    Migration(MigrationRecord),
    /// A quota period ended (only with `trace`).
    QuotaPeriod(QuotaPeriod),
    /// A quota's totals, when its vCPU stopped.
    QuotaTotal(QuotaTotal),
    /// A VM changed its state.
    VmState {
        /// VM id.
        vm: u8,
        /// The new state.
        state: VmState,
    },
    /// The core's ring was full: this many records were lost since the last one that got through.
    Dropped {
        /// Lost records.
        count: u32,
    },
    /// Why and how often a VM's cores entered the hypervisor, when the VM stopped.
    Exits {
        /// VM id.
        vm: u8,
        /// How often, by [`ExitReason`].
        counts: [u64; ExitReason::ALL.len()],
    },
}

/// Why a core entered the hypervisor from a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// HVC or SMC.
    Hypercall,
    /// An access to the emulated distributor.
    Distributor,
    /// An access to the emulated UART or to the services page.
    Device,
    /// A system register that is emulated or refused.
    SystemRegister,
    /// A page that was being moved, or that the VM does not have.
    Memory,
    /// WFI behind an unfinished line on the console.
    Wait,
    /// Anything else that the guest executed.
    Other,
    /// The virtual timer's interrupt.
    Timer,
    /// Another interrupt.
    Interrupt,
}

impl ExitReason {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::Hypercall,
        Self::Distributor,
        Self::Device,
        Self::SystemRegister,
        Self::Memory,
        Self::Wait,
        Self::Other,
        Self::Timer,
        Self::Interrupt,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hypercall => "hypercalls",
            Self::Distributor => "distributor",
            Self::Device => "uart and page",
            Self::SystemRegister => "registers",
            Self::Memory => "memory",
            Self::Wait => "waits",
            Self::Other => "other traps",
            Self::Timer => "timer",
            Self::Interrupt => "interrupts",
        }
    }
}

/// Counts of one observation segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HemRecord {
    /// VM id.
    pub vm: u8,
    /// vCPU in the VM.
    pub vcpu: u8,
    /// The guest's name for what ran.
    pub workload: u32,
    /// Sub-experiment number.
    pub sub_experiment: u32,
    /// Run number.
    pub run: u32,
    /// PMCCNTR_EL0 over the segment, EL0 and EL1 only.
    pub cycles: Cycles,
    /// How many of `events` and `counts` are used.
    pub len: u8,
    /// What was counted.
    pub events: [EventId; MAX_HEMS],
    /// The counts (32-bit counters).
    pub counts: [u32; MAX_HEMS],
    /// Bit `i`: counter `i` overflowed during the segment.
    pub overflowed: u8,
}

/// One page's move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// VM id.
    pub vm: u8,
    /// The page.
    pub ipa: Ipa,
    /// Where it was.
    pub from: PhysAddr,
    /// Where it is.
    pub to: PhysAddr,
    /// Time from the first change of the page table to the last barrier, in nanoseconds.
    pub took: Nanos,
    /// How it ended.
    pub outcome: MigrationOutcome,
}

/// How a migration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationOutcome {
    /// To the PVT pool.
    Moved,
    /// Back to its region's pool.
    Restored,
    /// The PVT pool could not hold the whole plan; `from` and `to` are the same, and no page of the plan has moved.
    PoolFull,
    /// Moved, then moved back because a later page of the same plan found the pool full.
    RolledBack,
}

/// One period of one quota.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaPeriod {
    /// Index of the quota in its VM.
    pub quota: u8,
    /// VM id.
    pub vm: u8,
    /// Period number since the vCPU started.
    pub index: u32,
    /// Events counted in the period.
    pub events: Events,
    /// Budget that was in force.
    pub budget: Events,
    /// When the core was stopped, on the system counter; zero where the budget lasted.
    pub throttled_at: Nanos,
    /// When the period was due to end, on the system counter.
    pub due: Nanos,
    /// How long the core was held in the hypervisor.
    pub throttled: Nanos,
}

/// A quota's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuotaTotal {
    /// VM id.
    pub vm: u8,
    /// Index of the quota in its VM.
    pub quota: u8,
    /// Whether the budget is enforced by overflow interrupt (else polled).
    pub by_interrupt: bool,
    /// Periods that ended.
    pub periods: u32,
    /// Periods in which the core was throttled.
    pub throttled_periods: u32,
    /// Time throttled in all.
    pub throttled: Nanos,
    /// Events counted in all.
    pub events: Events,
    /// Most events beyond the budget in one period.
    pub max_overshoot: Events,
    /// Events beyond the budget in all.
    pub overshoot: Events,
}

/// A VM's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmState {
    /// First instruction about to run.
    Started,
    /// PSCI SYSTEM_RESET; it starts again.
    Restarted,
    /// PSCI SYSTEM_OFF, or its last vCPU turned itself off.
    Off,
    /// Stopped for good by the hypervisor.
    Killed,
    /// Stopped because the VM that the system ends with is off.
    Stopped,
}

impl fmt::Display for VmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Restarted => "restarted",
            Self::Off => "off",
            Self::Killed => "killed",
            Self::Stopped => "stopped with the system",
        })
    }
}

/// Encodes a frame into `buffer` and returns the bytes to send, the closing zero included; `None` where it does not fit.
///
/// ```
/// use cloison_formats::telemetry::{DecodeError, Message, decode, encode};
///
/// let mut buffer = [0; 64];
/// let sent = encode(&Message::AuditEnd { pages: 512 }, &mut buffer).expect("it fits").to_vec();
/// let read: Vec<_> = decode(&sent).collect();
/// assert_eq!(read, [(0, Ok(Message::AuditEnd { pages: 512 }))]);
///
/// // A message that was cut off is reported, not guessed.
/// let cut: Vec<_> = decode(&sent[..sent.len() - 1]).collect();
/// assert_eq!(cut, [(0, Err(DecodeError::Unterminated))]);
/// ```
pub fn encode<'a>(frame: &Message, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let flavor = CrcModifier::new(Cobs::try_new(Slice::new(buffer)).ok()?, CRC32.digest());
    postcard::serialize_with_flavor(frame, flavor).ok().map(|sent: &mut [u8]| &*sent)
}

/// Why a frame could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No zero byte closes it: the log was cut off.
    Unterminated,
    /// Not valid COBS.
    Framing,
    /// The CRC does not match.
    Crc,
    /// CRC right, content not: written by another version.
    Content,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unterminated => "the last frame is cut off",
            Self::Framing => "not a COBS frame",
            Self::Crc => "CRC mismatch: bytes were lost or changed",
            Self::Content => "CRC is right but the content is of another version",
        })
    }
}

/// Reads a stream frame by frame; each item says at which byte its frame starts.
pub fn decode(stream: &[u8]) -> impl Iterator<Item = (usize, Result<Message, DecodeError>)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        while stream.get(at) == Some(&0) {
            at += 1;
        }
        let rest = stream.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        let Some(end) = rest.iter().position(|&byte| byte == 0) else {
            at = stream.len();
            return Some((start, Err(DecodeError::Unterminated)));
        };
        at += end + 1;
        Some((start, decode_one(&rest[..end])))
    })
}

fn decode_one(encoded: &[u8]) -> Result<Message, DecodeError> {
    let mut bytes = encoded.to_vec();
    let len = cobs_decode(&mut bytes).ok_or(DecodeError::Framing)?;
    let message = len.checked_sub(4).ok_or(DecodeError::Framing)?;
    let mut sum = [0; 4];
    sum.copy_from_slice(&bytes[message..len]);
    if crc32(&bytes[..message]) != u32::from_le_bytes(sum) {
        return Err(DecodeError::Crc);
    }
    match postcard::take_from_bytes(&bytes[..message]) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(DecodeError::Content),
    }
}

/// COBS in place (Cheshire and Baker, 1999): `bytes` without the closing zero. The decoded length, or `None` where a
/// code byte points past the end.
fn cobs_decode(bytes: &mut [u8]) -> Option<usize> {
    let (mut read, mut write) = (0, 0);
    while read < bytes.len() {
        let code = usize::from(bytes[read]);
        if code == 0 || read + code > bytes.len() {
            return None;
        }
        bytes.copy_within(read + 1..read + code, write);
        write += code - 1;
        read += code;
        if code != 0xff && read < bytes.len() {
            bytes[write] = 0;
            write += 1;
        }
    }
    Some(write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn hem(run: u32) -> Message {
        Message::Event(Event {
            core: 1,
            at: Nanos(12_345),
            record: Record::Hem(HemRecord {
                vm: 0,
                vcpu: 1,
                workload: 7,
                sub_experiment: 3,
                run,
                cycles: Cycles(1_000_000),
                len: 2,
                events: [EventId(0x08), EventId(0x11), EventId(0), EventId(0), EventId(0), EventId(0)],
                counts: [1, u32::MAX, 0, 0, 0, 0],
                overflowed: 2,
            }),
        })
    }

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            Message::AuditEnd { pages: 0 },
            hem(0),
            Message::Stage2(Stage2Run { vm: 7, ipa: Ipa(0x7f_ffff_f000), frames: vec![u32::MAX; MAX_RUN] }),
        ];
        let mut stream = vec![];
        for frame in &frames {
            stream.extend_from_slice(encode(frame, &mut [0; MAX_MESSAGE]).expect("fits"));
        }
        let back: Vec<_> = decode(&stream).map(|(_, frame)| frame.expect("decodes")).collect();
        assert_eq!(back, frames);
    }

    #[test]
    fn a_frame_that_does_not_fit_is_refused() {
        assert_eq!(encode(&hem(1), &mut [0; 8]), None);
    }

    #[test]
    fn a_cut_stream_says_so_and_keeps_what_came_before() {
        let mut stream = vec![];
        for run in 0..3 {
            stream.extend_from_slice(encode(&hem(run), &mut [0; MAX_MESSAGE]).expect("fits"));
        }
        stream.truncate(stream.len() - 3);
        let back: Vec<_> = decode(&stream).map(|(_, frame)| frame).collect();
        assert_eq!(back, [Ok(hem(0)), Ok(hem(1)), Err(DecodeError::Unterminated)]);
    }

    proptest! {
        #[test]
        fn any_single_changed_byte_is_noticed(run: u32, at: prop::sample::Index, flip in 1u8..) {
            let original = hem(run);
            let mut buffer = [0; MAX_MESSAGE];
            let mut stream = encode(&original, &mut buffer).expect("fits").to_vec();
            let at = at.index(stream.len());
            stream[at] ^= flip;
            prop_assert!(!decode(&stream).any(|(_, frame)| frame == Ok(original.clone())));
            prop_assert!(decode(&stream).all(|(_, frame)| frame.is_err()));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            for _ in decode(&bytes) {}
        }
    }
}
