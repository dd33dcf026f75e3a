//! The telemetry stream.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::{Form, Outcome, Target};
use cloison_engine::telemetry::wire::{self, DecodeError};
use cloison_engine::telemetry::{Telemetry, TelemetryDecoder};
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::color::ColorSet;
use cloison_formats::ids::{Core, VcpuIndex, VmId};
use cloison_formats::image::PoolKind;
use cloison_formats::telemetry::{
    BootInfo, Entry, HemRecord, MAX_MESSAGE, Message, MigrationOutcome, MigrationRecord, PoolInfo,
    QuotaPeriod, QuotaTotal, Record, Stage2Run, VERSION, VmInfo, VmState, encode,
};
use cloison_formats::units::{Cycles, EventId, Events, Nanos};

/// The stream on the second UART. Its first byte says whether the rest are bytes of a stream or the
/// contents of one message, which gets a right checksum: no search finds one.
pub const TELEMETRY: Target = Target {
    name: "telemetry",
    package: "cloison-formats",
    rule: "what was read is read again from its own encoding; no byte is lost; pieces read as the whole",
    form: Form::Bytes,
    files: &[],
    made,
    check,
};

const STREAM: u8 = 0;
const CONTENTS: u8 = 1;

fn made() -> Vec<Vec<u8>> {
    let mut stream = vec![STREAM];
    let mut seeds = Vec::new();
    for message in messages() {
        stream.extend_from_slice(&encoded(&message));
        let mut contents = vec![CONTENTS];
        contents.extend(postcard::to_allocvec(&message).expect("a message has a length"));
        seeds.push(contents);
    }
    seeds.push(stream);
    seeds
}

/// Returns the stream of a run.
pub fn run() -> Vec<u8> {
    messages().iter().flat_map(encoded).collect()
}

fn messages() -> Vec<Message> {
    let entry = |record| {
        Message::Entry(Entry {
            core: Core(1),
            at: Nanos(12_345),
            record,
        })
    };
    let period = cloison_formats::telemetry::Period {
        index: 1,
        events: Events(9),
        budget: Events(8),
        reclaimed: Events(0),
        spent_at: Some(Nanos(1000)),
        due: Nanos(2000),
        throttled: Nanos(1000),
    };
    vec![
        Message::Boot(BootInfo {
            version: VERSION,
            system: "demo".into(),
            board: "virt".into(),
            colors: 16,
            hypervisor_colors: ColorSet(1),
            hypervisor_pages: 100,
            hypervisor_frames: vec![0x40000],
            timer_hz: 62_500_000,
        }),
        Message::Pool(PoolInfo {
            name: "sh".into(),
            kind: PoolKind::Sh,
            colors: ColorSet(0xfffe),
            used: vec![1, 2],
            total: vec![3, 4],
        }),
        Message::Vm(VmInfo {
            name: "victim".into(),
            cores: vec![Core(0)],
            pages: 64,
            untrusted: vec![EventId(0x17)],
        }),
        Message::Stage2(Stage2Run {
            vm: VmId(0),
            ipa: Ipa(0x4000_0000),
            attributes: 0x7ff,
            frames: vec![0x40010, 0x40020],
        }),
        Message::AuditEnd { pages: 2 },
        entry(Record::Hem(HemRecord {
            vm: VmId(0),
            vcpu: VcpuIndex(0),
            workload: 7,
            sub_experiment: 3,
            run: 1,
            cycles: Cycles(1_000_000),
            len: 2,
            events: [8, 17, 0, 0, 0, 0].map(EventId),
            counts: [1, 2, 0, 0, 0, 0],
            overflowed: 0,
            by_guest: false,
        })),
        entry(Record::Migration(MigrationRecord {
            vm: VmId(0),
            ipa: Ipa(0x4000_0000),
            from: PhysAddr(0x4001_0000),
            to: PhysAddr(0x4002_0000),
            took: Nanos(5000),
            outcome: MigrationOutcome::Moved,
        })),
        entry(Record::QuotaPeriod(QuotaPeriod {
            quota: 0,
            vm: VmId(0),
            period,
        })),
        entry(Record::QuotaTotal(QuotaTotal::default())),
        entry(Record::VmState {
            vm: VmId(0),
            state: VmState::Off,
        }),
        entry(Record::Exits {
            vm: VmId(0),
            counts: [1; 9],
        }),
        entry(Record::Dropped { count: 3 }),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    encode(message, &mut [0; 2 * MAX_MESSAGE])
        .expect("it was read, so it fits")
        .to_vec()
}

fn check(input: &[u8]) -> Outcome {
    match input.split_first() {
        Some((&CONTENTS, contents)) if contents.len() < MAX_MESSAGE - 64 => {
            let mut bytes = contents.to_vec();
            bytes.extend(crc32fast::hash(contents).to_le_bytes());
            stream(&cobs(&bytes))
        }
        Some((_, bytes)) => stream(bytes),
        None => Outcome::Refused,
    }
}

/// Encodes a frame (Cheshire and Baker, 1999).
fn cobs(bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut rest = bytes.split(|&byte| byte == 0).peekable();
    while let Some(mut run) = rest.next() {
        while run.len() >= 254 {
            frame.push(255);
            frame.extend_from_slice(&run[..254]);
            run = &run[254..];
            if run.is_empty() && rest.peek().is_none() {
                frame.push(0);
                return frame;
            }
        }
        frame.push(run.len() as u8 + 1);
        frame.extend_from_slice(run);
    }
    frame.push(0);
    frame
}

fn stream(bytes: &[u8]) -> Outcome {
    let mut outcome = Outcome::Refused;
    let mut last = None;
    for (at, message) in wire::decode(bytes) {
        assert!(at < bytes.len() && last.is_none_or(|last| last < at));
        last = Some(at);
        match message {
            Ok(message) => {
                outcome = Outcome::Accepted;
                let again = encoded(&message);
                let read: Vec<_> = wire::decode(&again).collect();
                assert_eq!(read, [(0, Ok(message))]);
            }
            Err(DecodeError::Unterminated) => assert_ne!(bytes.last(), Some(&0)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    // A reader that gets the stream in pieces reads the same.
    let whole = Telemetry::parse(bytes);
    for (at, problem) in &whole.problems {
        assert!(*at < bytes.len() && !problem.to_string().is_empty());
    }
    assert_eq!(whole.len, bytes.len());
    if bytes.last() == Some(&0) {
        let mut decoder = TelemetryDecoder::default();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let mut entries = decoder.feed(first);
        entries.extend(decoder.feed(second));
        let pieces = decoder.so_far();
        assert_eq!(entries, whole.entries);
        assert_eq!(
            (&pieces.pools, &pieces.vms, &pieces.passes),
            (&whole.pools, &whole.vms, &whole.passes)
        );
        assert_eq!(pieces.problems, whole.problems);
    }
    outcome
}
