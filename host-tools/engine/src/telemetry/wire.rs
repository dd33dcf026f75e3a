//! Decodes the telemetry stream's framing: bytes to messages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::telemetry::Message;
use std::fmt;

/// Why a message could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No zero byte terminates it: the stream was truncated.
    Unterminated,
    /// It is not valid COBS.
    Framing,
    /// The CRC does not match.
    Crc,
    /// The CRC matches but the payload cannot be decoded: another version wrote it.
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

/// Decodes a stream message by message; each item starts with the byte offset of its message.
///
/// ```
/// use cloison_engine::telemetry::wire::{DecodeError, decode};
/// use cloison_formats::telemetry::{Message, encode};
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
    if crc32fast::hash(&bytes[..message]) != u32::from_le_bytes(sum) {
        return Err(DecodeError::Crc);
    }
    match postcard::take_from_bytes(&bytes[..message]) {
        Ok((frame, [])) => Ok(frame),
        _ => Err(DecodeError::Content),
    }
}

/// Decodes COBS in place (Cheshire and Baker, 1999). `bytes` excludes the terminating zero byte.
/// Returns the decoded length, or `None` if a code byte points past the end.
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
    use cloison_formats::addr::Ipa;
    use cloison_formats::ids::{Core, VcpuIndex, VmId};
    use cloison_formats::telemetry::{
        Entry, HemRecord, MAX_MESSAGE, MAX_RUN, Record, Stage2Run, encode,
    };
    use cloison_formats::units::{Cycles, EventId, Nanos};
    use proptest::prelude::*;

    fn hem(run: u32) -> Message {
        Message::Entry(Entry {
            core: Core(1),
            at: Nanos(12_345),
            record: Record::Hem(HemRecord {
                vm: VmId(0),
                vcpu: VcpuIndex(1),
                workload: 7,
                sub_experiment: 3,
                run,
                cycles: Cycles(1_000_000),
                len: 2,
                events: [
                    EventId(0x08),
                    EventId(0x11),
                    EventId(0),
                    EventId(0),
                    EventId(0),
                    EventId(0),
                ],
                counts: [1, u32::MAX, 0, 0, 0, 0],
                overflowed: 2,
                by_guest: false,
            }),
        })
    }

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            Message::AuditEnd { pages: 0 },
            hem(0),
            Message::Stage2(Stage2Run {
                vm: VmId(7),
                ipa: Ipa(0x7f_ffff_f000),
                attributes: u64::MAX,
                frames: vec![u32::MAX; MAX_RUN],
            }),
        ];
        let mut stream = vec![];
        for frame in &frames {
            stream.extend_from_slice(encode(frame, &mut [0; MAX_MESSAGE]).expect("fits"));
        }
        let back: Vec<_> = decode(&stream)
            .map(|(_, frame)| frame.expect("decodes"))
            .collect();
        assert_eq!(back, frames);
    }

    #[test]
    fn a_cut_stream_says_so_and_keeps_what_came_before() {
        let mut stream = vec![];
        for run in 0..3 {
            stream.extend_from_slice(encode(&hem(run), &mut [0; MAX_MESSAGE]).expect("fits"));
        }
        stream.truncate(stream.len() - 3);
        let back: Vec<_> = decode(&stream).map(|(_, frame)| frame).collect();
        assert_eq!(
            back,
            [Ok(hem(0)), Ok(hem(1)), Err(DecodeError::Unterminated)]
        );
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
