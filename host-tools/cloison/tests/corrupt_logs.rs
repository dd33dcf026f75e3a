//! Damaged HEM logs: each kind of damage has its message, and good logs survive CSV and Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common {
    pub mod snapshots;
}

use cloison::hem::DecodeArgs;
use cloison_config::events::EventNames;
use cloison_engine::hem::{self, COLUMNS, Damage, Table};
use cloison_formats::color::ColorSet;
use cloison_formats::ids::{Core, VcpuIndex, VmId};
use cloison_formats::telemetry::{
    self, BootInfo, Entry, HemRecord, MAX_MESSAGE, Message, Record, VmInfo,
};
use cloison_formats::units::{Cycles, EventId, Nanos};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::io::Write;
use std::path::Path;

fn encode(frame: &Message) -> Vec<u8> {
    telemetry::encode(frame, &mut [0; MAX_MESSAGE])
        .expect("the frame fits")
        .to_vec()
}

fn boot(version: u16) -> Message {
    Message::Boot(BootInfo {
        version,
        system: "pair".into(),
        board: "virt".into(),
        colors: 16,
        hypervisor_colors: ColorSet(0b11),
        hypervisor_pages: 2,
        hypervisor_frames: vec![0x40200, 0x40201],
        timer_hz: 62_500_000,
    })
}

fn vm(name: &str, core: u8) -> Message {
    Message::Vm(VmInfo {
        name: name.into(),
        cores: vec![Core(core)],
        pages: 64,
        untrusted: vec![],
    })
}

fn run(number: u32) -> HemRecord {
    HemRecord {
        vm: VmId(0),
        vcpu: VcpuIndex(0),
        workload: u32::MAX,
        sub_experiment: 2,
        run: number,
        cycles: Cycles(1 << 40),
        len: 2,
        events: [
            EventId(0x08),
            EventId(0x3ff),
            EventId(0),
            EventId(0),
            EventId(0),
            EventId(0),
        ],
        counts: [1_000 + number, u32::MAX, 0, 0, 0, 0],
        overflowed: 0b10,
        by_guest: false,
    }
}

fn hem(record: HemRecord) -> Message {
    Message::Entry(Entry {
        core: Core(3),
        at: Nanos(5_000),
        record: Record::Hem(record),
    })
}

/// A good log: boot, two VMs, three runs.
fn good() -> Vec<Vec<u8>> {
    [
        boot(telemetry::VERSION),
        vm("victim", 3),
        vm("noise, loud", 1),
        hem(run(0)),
        hem(run(1)),
        hem(run(2)),
    ]
    .iter()
    .map(encode)
    .collect()
}

/// What `cargo xtask hem decode` says about these bytes, with the file's name as the user would see
/// it, first without and then with `--lenient`.
fn verdict(bytes: Option<&[u8]>) -> String {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("hem.log");
    if let Some(bytes) = bytes {
        std::fs::write(&path, bytes).expect("the log is written");
    }
    let render = |damage| match hem::read(&path, damage) {
        Ok(telemetry) => {
            let table = Table::new(&telemetry, &EventNames::default());
            let vms: Vec<_> = table
                .rows
                .iter()
                .map(|row| format!("{}/{}", row.vm, row.run))
                .collect();
            format!(
                "{} rows ({}), {} skipped\n",
                table.rows.len(),
                vms.join(" "),
                telemetry.problems.len()
            )
        }
        Err(error) => {
            // Wide enough that the length of the scratch directory's name moves no line break.
            let mut text = String::new();
            let theme = miette::GraphicalTheme::unicode_nocolor();
            let handler = miette::GraphicalReportHandler::new_themed(theme)
                .with_width(1_000)
                .with_links(false);
            handler
                .render_report(&mut text, &error)
                .expect("the error renders");
            text
        }
    };
    let text = format!(
        "strict:\n{}lenient:\n{}",
        render(Damage::Refuse),
        render(Damage::Skip)
    );
    text.replace(&format!("{}/", directory.path().display()), "")
}

fn check(name: &str, bytes: Option<&[u8]>) {
    let settings = common::snapshots::settings(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corrupt/logs"),
    );
    settings.bind(|| insta::assert_snapshot!(name, verdict(bytes)));
}

#[test]
fn good_log() {
    check("good", Some(&good().concat()));
}

#[test]
fn missing_file() {
    check("missing_file", None);
}

#[test]
fn empty_file() {
    check("empty_file", Some(&[]));
}

#[test]
fn only_zeros() {
    check("only_zeros", Some(&[0; 4096]));
}

#[test]
fn garbage() {
    // A linear congruential generator: the same garbage every time.
    let mut state = 1u32;
    let bytes: Vec<u8> = (0..2_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    check("garbage", Some(&bytes));
}

#[test]
fn console_text() {
    let text = "[core 0] info: 16 colors, 4 cores\n[victim] ready\n".repeat(20);
    check("console_text", Some(text.as_bytes()));
}

#[test]
fn truncated_in_the_last_frame() {
    let mut bytes = good().concat();
    bytes.truncate(bytes.len() - 5);
    check("truncated_in_the_last_frame", Some(&bytes));
}

#[test]
fn missing_terminator() {
    let mut bytes = good().concat();
    assert_eq!(bytes.pop(), Some(0));
    check("missing_terminator", Some(&bytes));
}

#[test]
fn terminator_lost_in_the_middle() {
    let mut frames = good();
    frames[3].pop();
    check("terminator_lost_in_the_middle", Some(&frames.concat()));
}

#[test]
fn flipped_bit() {
    let mut frames = good();
    let middle = frames[4].len() / 2;
    frames[4][middle] ^= 0x10;
    check("flipped_bit", Some(&frames.concat()));
}

#[test]
fn bad_cobs_code() {
    let mut frames = good();
    frames[3][0] = 0xfe;
    check("bad_cobs_code", Some(&frames.concat()));
}

#[test]
fn start_missing() {
    check("start_missing", Some(&good()[3..].concat()));
}

#[test]
fn start_cut_inside_the_boot_frame() {
    check(
        "start_cut_inside_the_boot_frame",
        Some(&good().concat()[7..]),
    );
}

#[test]
fn other_version() {
    let mut frames = good();
    frames[0] = encode(&boot(telemetry::VERSION + 1));
    check("other_version", Some(&frames.concat()));
}

#[test]
fn unknown_frame_kind() {
    // A frame whose CRC is right and whose kind this version does not have: 0x7f, then four bytes
    // of CRC.
    let crc = crc32fast::hash(&[0x7f]).to_le_bytes();
    assert!(!crc.contains(&0), "this frame needs no COBS escapes");
    let mut frames = good();
    frames.insert(3, [&[6, 0x7f][..], &crc, &[0]].concat());
    check("unknown_frame_kind", Some(&frames.concat()));
}

#[test]
fn two_boots() {
    check("two_boots", Some(&[good(), good()].concat().concat()));
}

#[test]
fn huge_frame() {
    let mut frames = good();
    frames.insert(4, [vec![0x55; 2 * MAX_MESSAGE], vec![0]].concat());
    check("huge_frame", Some(&frames.concat()));
}

#[test]
fn more_events_than_a_record_holds() {
    let mut frames = good();
    frames[4] = encode(&hem(HemRecord { len: 200, ..run(1) }));
    check("more_events_than_a_record_holds", Some(&frames.concat()));
}

#[test]
fn record_of_an_unknown_vm() {
    let mut frames = good();
    frames[5] = encode(&hem(HemRecord {
        vm: VmId(7),
        ..run(2)
    }));
    check("record_of_an_unknown_vm", Some(&frames.concat()));
}

#[test]
fn a_damaged_log_leaves_no_output() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| directory.path().join(name);
    let mut bytes = good().concat();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(path("hem.log"), &bytes).expect("the log is written");
    let mut args = DecodeArgs {
        file: path("hem.log"),
        csv: Some(path("out.csv")),
        parquet: Some(path("out.parquet")),
        json: Some(path("out.json")),
        lenient: false,
    };
    let files = || {
        std::fs::read_dir(directory.path())
            .expect("the directory is there")
            .count()
    };
    cloison::hem::decode(&args).expect_err("the log is damaged");
    assert_eq!(files(), 1, "a refused log must leave no file behind");

    args.lenient = true;
    cloison::hem::decode(&args).expect("what is readable is decoded");
    assert_eq!(files(), 4);
    let json = std::fs::read_to_string(path("out.json")).expect("the figures are written");
    assert!(json.contains("\"frames_skipped\": 1"), "{json}");

    args.csv = Some(path("hem.log"));
    cloison::hem::decode(&args).expect_err("the log itself is no output");
    assert_eq!(
        std::fs::read(path("hem.log")).expect("the log is still there"),
        bytes
    );
}

fn table() -> Table {
    let mut stream = good().concat();
    stream.extend(encode(&hem(HemRecord {
        vm: VmId(1),
        len: 0,
        ..run(3)
    })));
    Table::new(
        &cloison_engine::telemetry::Telemetry::parse(&stream),
        &EventNames::default(),
    )
}

#[test]
fn csv_quotes_and_keeps_every_digit() {
    let bytes = table().to_csv().expect("CSV is written");
    let mut reader = csv::Reader::from_reader(&bytes[..]);
    assert_eq!(
        reader.headers().expect("a header"),
        &csv::StringRecord::from(COLUMNS.to_vec())
    );
    let rows: Vec<Vec<String>> = reader
        .records()
        .map(|row| row.expect("a row").iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(rows.len(), 7);
    assert_eq!(
        rows[1],
        [
            "victim",
            "0",
            "3",
            "5000",
            "4294967295",
            "2",
            "0",
            "1099511627776",
            "0",
            "0x3ff",
            "0x3ff",
            "4294967295",
            "1"
        ]
    );
    assert_eq!(
        rows[6],
        [
            "noise, loud",
            "0",
            "3",
            "5000",
            "4294967295",
            "2",
            "3",
            "1099511627776",
            "0",
            "",
            "",
            "",
            ""
        ]
    );
}

#[test]
fn parquet_reads_back_as_written() {
    let table = table();
    let mut file = tempfile::tempfile().expect("a scratch file");
    file.write_all(&table.to_parquet().expect("Parquet is laid out"))
        .expect("Parquet is written");
    let reader = SerializedFileReader::new(file).expect("opens");
    let metadata = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .expect("metadata");
    let value = |key: &str| {
        metadata
            .iter()
            .find(|entry| entry.key == key)
            .and_then(|entry| entry.value.clone())
    };
    assert_eq!(value("cloison.system").as_deref(), Some("pair"));
    assert_eq!(value("cloison.hypervisor_colors").as_deref(), Some("0-1"));
    assert_eq!(value("cloison.timer_hz").as_deref(), Some("62500000"));

    let rows: Vec<Vec<(String, Field)>> = reader
        .get_row_iter(None)
        .expect("rows")
        .map(|row| {
            row.expect("a row")
                .get_column_iter()
                .map(|(name, field)| (name.clone(), field.clone()))
                .collect()
        })
        .collect();
    assert_eq!(rows.len(), table.rows.len());
    for (read, row) in rows.iter().zip(&table.rows) {
        let count = row.count.as_ref();
        let expected = [
            Field::Str(row.vm.clone()),
            Field::UByte(row.vcpu.0),
            Field::UByte(row.core.0),
            Field::ULong(row.at_ns),
            Field::UInt(row.workload),
            Field::UInt(row.sub_experiment),
            Field::UInt(row.run),
            Field::ULong(row.cycles),
            Field::Bool(row.by_guest),
            count.map_or(Field::Null, |count| Field::UShort(count.event.0)),
            count.map_or(Field::Null, |count| Field::Str(count.name.clone())),
            count.map_or(Field::Null, |count| Field::UInt(count.value)),
            count.map_or(Field::Null, |count| Field::Bool(count.overflowed)),
        ];
        let expected: Vec<_> = COLUMNS
            .iter()
            .map(|name| (*name).to_owned())
            .zip(expected)
            .collect();
        assert_eq!(*read, expected);
    }
}
