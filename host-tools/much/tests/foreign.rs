//! Reads what perf and PAPI write, wide tables and compressed files: the same counts from all of
//! them, clear errors from bad ones, and never a panic.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::data::Measurements;
use cloison_much::read::{
    Form, Found, Note, ReadError, Request, Rows, Scaled, read_as, read_together,
};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BLOCKS: [[&str; 2]; 3] = [["a", "b"], ["a", "c"], ["b", "c"]];
const RUNS: usize = 12;

fn value(sub: usize, run: usize, event: &str) -> u64 {
    let event = u64::from(event.as_bytes()[0]);
    (1_000_003 * (sub as u64 + 1) + 7919 * run as u64 * event) % 900_001 + 5
}

/// Writes every run in turn: sub-experiments take turns.
fn every_run(mut write: impl FnMut(usize, usize, &[&str; 2])) {
    for run in 0..RUNS {
        for (sub, block) in BLOCKS.iter().enumerate() {
            write(sub, run, block);
        }
    }
}

fn long() -> String {
    let mut text = "sub_experiment,run,event,value\n".to_owned();
    every_run(|sub, run, block| {
        for event in block {
            let _ = writeln!(text, "{sub},{run},{event},{}", value(sub, run, event));
        }
    });
    text
}

fn wide() -> String {
    let mut text = ",a,b,c\n".to_owned();
    let mut row = 0;
    every_run(|sub, run, block| {
        let _ = write!(text, "{row}");
        for event in ["a", "b", "c"] {
            text.push(',');
            if block.contains(&event) {
                let _ = write!(text, "{}.0", value(sub, run, event));
            }
        }
        text.push('\n');
        row += 1;
    });
    text
}

/// As perf 6.1 writes it with `-x SEPARATOR -o FILE --append`.
fn perf_csv(separator: char) -> String {
    let mut text = String::new();
    every_run(|sub, run, block| {
        text.push_str("# started on Thu Nov 26 03:04:33 2026\n\n");
        for event in block {
            let line = format!(
                "{},,{event},773564,100.00,65.929,K/sec\n",
                value(sub, run, event)
            );
            text.push_str(&line.replace(',', &separator.to_string()));
        }
        text.push_str(&"<not supported>,,cycles,0,100.00,,\n".replace(',', &separator.to_string()));
    });
    text
}

fn perf_json() -> String {
    let mut text = String::new();
    every_run(|sub, run, block| {
        text.push_str("# started on Thu Nov 26 03:04:33 2026\n\n");
        for event in block {
            let _ = writeln!(
                text,
                "{{\"counter-value\" : \"{}.000000\", \"unit\" : \"\", \"event\" : \"{event}\", \
                 \"event-runtime\" : 671322, \"pcnt-running\" : 100.00, \"metric-value\" : 71.5, \
                 \"metric-unit\" : \"K/sec\"}}",
                value(sub, run, event)
            );
        }
    });
    text
}

/// As PAPI 7 writes one run.
fn papi(sub: usize, run: usize, block: &[&str; 2]) -> String {
    let [a, b] = block.map(|event| format!("\"{event}\":\"{}\"", value(sub, run, event)));
    format!(
        "{{\"papi_version\":\"7.0.0.0\",\"threads\":{{\"0\":{{\"regions\":{{\"0\":{{\"name\":\"main\",\
         \"parent_region_id\":\"-1\",\"cycles\":\"99\",\"real_time_nsec\":\"77\",{a},{b}}}}}}}}}}}"
    )
}

/// As PAPI 6 does.
fn papi_6(sub: usize, run: usize, block: &[&str; 2]) -> String {
    let [a, b] = block.map(|event| format!("\"{event}\":\"{}\"", value(sub, run, event)));
    format!(
        "{{\"cpu in mhz\":\"1995\",\"threads\":[{{\"id\":\"0\",\"regions\":[{{\"main\":\
         {{\"region_count\":\"1\",\"cycles\":\"99\",{a},{b}}}}}]}}]}}"
    )
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

fn read(path: &Path) -> Result<Found, ReadError> {
    read_as(path, &Request::default(), &Rows::new())
}

/// The counts of each event of each sub-experiment, without the order of events.
fn counts(data: &Measurements) -> Vec<(u64, String, Vec<f64>)> {
    let of = |sub: &cloison_much::data::SubExperiment| {
        let mut columns: Vec<_> = sub
            .events
            .iter()
            .zip(&sub.columns)
            .map(|(&event, column)| (sub.number, data.events[event].name.clone(), column.to_vec()))
            .collect();
        columns.sort_by(|a, b| a.1.cmp(&b.1));
        columns
    };
    data.sub_experiments.iter().flat_map(of).collect()
}

#[test]
fn the_same_counts_are_read_from_every_form() {
    let files = Files::new();
    let expected = read(&files.write("long.csv", long())).expect("long CSV");
    assert_eq!(expected.form, Form::LongCsv);
    let zstd = zstd::encode_all(long().as_bytes(), 0).expect("compressed");
    let mut gzip = flate2::read::GzEncoder::new(
        std::io::Cursor::new(perf_csv(',')),
        flate2::Compression::fast(),
    );
    let mut gzipped = vec![];
    std::io::Read::read_to_end(&mut gzip, &mut gzipped).expect("compressed");
    for (name, bytes, form) in [
        ("wide.csv", wide().into_bytes(), Form::WideCsv),
        ("perf.csv", perf_csv(',').into_bytes(), Form::PerfCsv),
        ("semicolons.csv", perf_csv(';').into_bytes(), Form::PerfCsv),
        ("perf.json", perf_json().into_bytes(), Form::PerfJson),
        ("long.csv.zst", zstd, Form::LongCsv),
        ("perf.csv.gz", gzipped, Form::PerfCsv),
    ] {
        let found = read(&files.write(name, bytes)).expect(name);
        assert_eq!(found.form, form, "{name}");
        assert_eq!(
            counts(&found.measurements),
            counts(&expected.measurements),
            "{name}"
        );
    }
    for write in [papi, papi_6] {
        let (folder, mut paths) = (Files::new(), vec![]);
        every_run(|sub, run, block| {
            let name = format!("{run:02}-{sub}.json");
            paths.push(folder.write(&name, write(sub, run, block)));
        });
        let found = read_together(&paths, &Request::default(), &Rows::new()).expect("PAPI");
        assert_eq!(counts(&found.measurements), counts(&expected.measurements));
    }
}

#[test]
fn xz_is_read() {
    // `sub_experiment,run,event,value` and two runs of a and b.
    let bytes = b"\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\xe0\x00\x3e\x00\x35\x5d\x00\x39\x9d\x48\x67\x62\xa6\xc7\x67\xc1\x78\x05\xad\xfc\xba\x64\x70\x2d\xc2\x87\x82\x94\x71\x26\xb8\x42\x60\x1d\x2f\xb6\xa7\xa2\xa2\x20\x91\x7d\xd3\x10\xc7\x61\xc8\x5b\x3e\xb5\x89\x2f\xe3\x5a\xcf\x63\x3f\x91\x00\x00\x00\x00\x00\x00\x08\xd0\xff\xc6\x05\x41\x2d\x21\x00\x01\x51\x3f\x03\xf4\x40\x35\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a";
    let found = read(&Files::new().write("long.csv.xz", bytes)).expect("xz");
    let expected = [
        (0, "a".to_owned(), vec![5.0, 7.0]),
        (0, "b".to_owned(), vec![6.0, 8.0]),
    ];
    assert_eq!(counts(&found.measurements), expected);
}

#[test]
fn what_perf_says_beside_counts_is_noted() {
    let files = Files::new();
    let notes = |text: &str| read(&files.write("perf.csv", text)).expect("counts").notes;
    let means = notes(
        "48,,a,1.39%,594289,100.00,,\n0.59,msec,task-clock,2.40%,594289,100.00,,\n48,,a,1.39%,5,100.00,,\n1.5,msec,task-clock,2.40%,5,100.00,,\n",
    );
    assert!(means.contains(&Note::Means), "{means:?}");
    let intervals = "     0.1007,75,,a,897645,100.00,83.5,K/sec\n     0.1007,9,,b,897645,100.00,,\n     0.2009,<not counted>,,a,0,100.00,,\n     0.2009,3,,b,1,100.00,,\n     0.3,5,,a,1,100.00,,\n     0.3,3,,b,1,100.00,,\n";
    let found = read(&files.write("perf.csv", intervals)).expect("counts");
    assert!(found.notes.contains(&Note::Intervals));
    assert_eq!(
        (
            found.measurements.runs(),
            found.measurements.incomplete_runs
        ),
        (2, 1)
    );
    let energy = notes(
        "5,,a,1,100.00,,\n2.50,Joules,power/energy-pkg/,1,100.00,,\n6,,b,1,100.00,,\n<not supported>,,cycles,0,100.00,,\n",
    );
    let unit = Note::Unit {
        event: "power/energy-pkg/".to_owned(),
        unit: "Joules".to_owned(),
    };
    assert!(energy.contains(&unit) && energy.contains(&Note::NotSupported("cycles".to_owned())));
    // An event's commas are its own, and time becomes nanoseconds.
    let text = "5,,cpu/event=0x11,umask=0x1/u,1,100.00,,\n0.77,msec,task-clock,1,100.00,,\n";
    let data = read(&files.write("perf.csv", text))
        .expect("counts")
        .measurements;
    assert_eq!(counts(&data)[0].1, "cpu/event=0x11,umask=0x1/u");
    assert_eq!(counts(&data)[1].2, [770_000.0]);
}

#[test]
fn calls_of_which_nothing_says_where_they_end_are_refused() {
    let files = Files::new();
    let text = "5,,a,1,100.00,,\n5,,b,1,100.00,,\n5,,a,1,100.00,,\n5,,c,1,100.00,,\n5,,b,1,100.00,,\n5,,c,1,100.00,,\n";
    let error = read(&files.write("perf.csv", text))
        .expect_err("refused")
        .to_string();
    assert!(
        error.starts_with("line 3: calls of perf count different events"),
        "{error}"
    );
}

#[test]
fn scaled_counts_are_refused_left_out_or_kept_with_a_note() {
    let files = Files::new();
    let csv = "5,,a,1,100.00,,\n6,,b,1,100.00,,\n7,,a,1,33.30,,\n8,,b,1,100.00,,\n";
    let long = "sub_experiment,run,event,value,pcnt-running\n0,0,a,5,100\n0,0,b,6,\n0,1,a,7,33.3\n0,1,b,8,100\n";
    for (text, line) in [(csv, "line 3"), (long, "line 4")] {
        let path = files.write("counts.csv", text);
        let refused = read(&path).expect_err("refused").to_string();
        assert!(
            refused.starts_with(line) && refused.contains("33.3 %"),
            "{refused}"
        );
        let with = |scaled| {
            let request = Request {
                scaled,
                ..Request::default()
            };
            read_as(&path, &request, &Rows::new()).expect("read")
        };
        let kept = with(Scaled::Keep);
        let note = Note::Scaled {
            counts: 1,
            place: line.to_owned(),
        };
        assert!(kept.notes.contains(&note), "{:?}", kept.notes);
        assert_eq!(kept.measurements.runs(), 2);
        let left_out = with(Scaled::LeaveOut).measurements;
        assert_eq!((left_out.runs(), left_out.incomplete_runs), (1, 1));
    }
}

#[test]
fn columns_that_are_not_read_are_named_and_rows_are_found() {
    let files = Files::new();
    let text = "sub_experiment,run,event,value,temperature\n0,0,a,5,20\n0,0,b,6,20\n0,1,a,5,20\n0,1,b,6,20\n";
    let wanted: Rows = [((0, 1), None)].into();
    let path = files.write("long.csv", text);
    let found = read_as(&path, &Request::default(), &wanted).expect("read");
    assert_eq!(found.notes, [Note::Columns(vec!["temperature".to_owned()])]);
    assert_eq!(found.rows[&(0, 1)].as_deref(), Some("line 4"));
    let request = Request {
        ignore: vec!["temperature".to_owned()],
        names: [("a".to_owned(), "CPU_CYCLES".to_owned())].into(),
        ..Request::default()
    };
    let found = read_as(&path, &request, &Rows::new()).expect("read");
    assert!(found.notes.is_empty());
    assert_eq!(found.measurements.events[0].name, "CPU_CYCLES");
}

#[test]
fn a_name_with_blanks_is_the_same_column() {
    let files = Files::new();
    let text = "sub_experiment, run, event, value\n0, 0, a, 5\n0, 0, b, 6\n";
    let path = files.write("long.csv", text);
    let found = read_as(&path, &Request::default(), &Rows::new()).expect("read");
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    let twice = files.write(
        "twice.csv",
        text.replace("event, value", "value,event, value"),
    );
    let error = read(&twice).expect_err("twice");
    assert!(matches!(error, ReadError::TwiceColumn(name) if name == "value"));
}

#[test]
fn a_row_without_a_count_belongs_to_the_sub_experiment_with_more() {
    let text = "a,b,c\n1,2,3\n4,5,6\n7,,9\n1,3,5\n";
    let found = read(&Files::new().write("wide.csv", text))
        .expect("read")
        .measurements;
    assert_eq!(
        (
            found.sub_experiments.len(),
            found.runs(),
            found.incomplete_runs
        ),
        (1, 3, 1)
    );
}

/// Each text is refused with a message that has the place.
fn refused(name: &str, texts: &[(&str, &str)]) {
    let files = Files::new();
    assert!(texts.len() >= 20, "{name}: {}", texts.len());
    for (text, wanted) in texts {
        let error = read(&files.write(name, text)).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
}

#[test]
fn bad_files_of_perf_are_refused_with_their_lines() {
    let good = "5,,a,1,100.00,,\n";
    let bad = |line: &str| format!("{good}{line}\n");
    let lines = [
        "x,,b,1,100.00,,",
        "5,,b",
        "5",
        ",5,,b,1,100.00",
        "5,,,1,100.00,,",
        "5,,b,x,100.00,,",
        "5,,b,1,x,,",
        "-5,,b,1,100.00,,",
        "5.5,,b,1,100.00,,",
        "CPU0,5,,b,1,100.00,,",
        "S0-D0-C0,5,,b,1,100.00,,",
        "1.0,CPU0,5,,b,1,100.00,,",
        "bash-27884,5,,b,1,100.00,,",
        "5,,b,1,33.00,,",
        "<not seen>,,b,1,100.00,,",
        "5;;b;1;100.00;;",
        "1e400,,b,1,100.00,,",
        "9007199254740993,,b,1,100.00,,",
        "event,value",
        "{\"event\": 3}",
        "5-3,,b,1,100.00,,",
    ];
    let texts: Vec<(String, &str)> = lines.iter().map(|line| (bad(line), "line 2")).collect();
    let texts: Vec<_> = texts
        .iter()
        .map(|(text, at)| (text.as_str(), *at))
        .collect();
    refused("perf.csv", &texts);
}

#[test]
fn bad_json_of_perf_is_refused_with_its_line() {
    let good = "{\"counter-value\" : \"5\", \"event\" : \"a\", \"pcnt-running\" : 100.00}\n";
    let lines = [
        "{",
        "3",
        "\"text\"",
        "{}",
        "{\"event\": \"b\"}",
        "{\"counter-value\": \"5\"}",
        "{\"counter-value\": \"5\", \"event\": \"\"}",
        "{\"counter-value\": \"5\", \"event\": []}",
        "{\"counter-value\": [5], \"event\": \"b\"}",
        "{\"counter-value\": \"x\", \"event\": \"b\"}",
        "{\"counter-value\": \"-5\", \"event\": \"b\"}",
        "{\"counter-value\": \"5.5\", \"event\": \"b\"}",
        "{\"counter-value\": null, \"event\": \"b\"}",
        "{\"counter-value\": \"\", \"event\": \"b\"}",
        "{\"counter-value\": \"5\", \"event\": \"b\", \"pcnt-running\": \"x\"}",
        "{\"counter-value\": \"5\", \"event\": \"b\", \"pcnt-running\": 12.5}",
        "{\"counter-value\": \"5\", \"event\": \"b\", \"cpu\": \"0\"}",
        "{\"counter-value\": \"5\", \"event\": \"b\", \"socket\": \"S0\"}",
        "{\"counter-value\": \"5\", \"event\": \"b\"} {}",
        "{\"counter-value\": \"1e99\", \"event\": \"b\"}",
        "{\"counter-value\": \"5\", \"event\": \"b\", \"thread\": \"bash-1\"}",
    ];
    let texts: Vec<(String, &str)> = lines
        .iter()
        .map(|it| (format!("{good}{it}\n"), "line 2"))
        .collect();
    let texts: Vec<_> = texts
        .iter()
        .map(|(text, at)| (text.as_str(), *at))
        .collect();
    refused("perf.json", &texts);
}

#[test]
fn bad_json_of_papi_is_refused_with_its_field() {
    let of = |threads: &str| format!("{{\"threads\": {threads}, \"note\": {{\"regions\": 0}}}}");
    let region = |counts: &str| of(&format!("[{{\"regions\": [{{\"main\": {{{counts}}}}}]}}]"));
    let fields: Vec<(String, &str)> = vec![
        (of("[]"), "threads"),
        (of("{}"), "threads"),
        (of("3"), "threads"),
        (of("null"), "threads"),
        (of("[{}, {}]"), "threads"),
        (of("[{\"regions\": []}]"), "regions"),
        (of("[{\"regions\": 3}]"), "regions"),
        (of("[{}]"), "regions"),
        (of("[{\"regions\": [3]}]"), "regions.0"),
        (of("[{\"regions\": [{}]}]"), "regions.0"),
        (of("[{\"regions\": [{\"main\": 3}]}]"), "regions.0"),
        (of("[{\"regions\": [{\"a\": {}}, {\"b\": {}}]}]"), "regions"),
        (region("\"a\": \"-12345\""), "regions.main.a"),
        (region("\"a\": \"x\""), "regions.main.a"),
        (region("\"a\": null"), "regions.main.a"),
        (region("\"a\": 1.5"), "regions.main.a"),
        (region("\"a\": [1]"), "regions.main.a"),
        (region("\"a\": \"\""), "regions.main.a"),
        (region("\"a\": \"9007199254740993\""), "regions.main.a"),
        (region("\"a\": {}"), "regions.main.a"),
        (format!("{}}}", region("\"a\": 1")), "line 1"),
        ("{\"threads\": [{\"regions\": [".to_owned(), "line 1"),
    ];
    let texts: Vec<_> = fields
        .iter()
        .map(|(text, at)| (text.as_str(), *at))
        .collect();
    refused("papi.json", &texts);
}

#[test]
fn bad_wide_tables_are_refused_with_line_and_column() {
    let bad = |line: &str| format!("sub_experiment,run,a,b\n0,0,5,6\n{line}\n");
    let mut lines: Vec<(String, &str)> = ["0,1,5", "0,1,5,6,7", "0,1", "0"]
        .map(|line| (bad(line), "line"))
        .into();
    for field in [
        "x",
        "-6",
        "6.5",
        "inf",
        "1e400",
        "9007199254740993",
        "0x10",
        "true",
        "+6",
        "6 7",
        "6;7",
    ] {
        lines.push((bad(&format!("0,1,5,{field}")), "column `b`"));
    }
    for (line, column) in [
        ("x,1,5,6", "column `sub_experiment`"),
        (",1,5,6", "column `sub_experiment`"),
        ("0,,5,6", "column `run`"),
        ("0,-1,5,6", "column `run`"),
        ("0,1.5,5,6", "column `run`"),
        ("0,0,5,6", "already has a count"),
    ] {
        lines.push((bad(line), column));
    }
    lines.push(("a,a\n1,2\n".to_owned(), "two columns `a`"));
    lines.push(("a,run\n1,2\n".to_owned(), "no column"));
    let texts: Vec<_> = lines
        .iter()
        .map(|(text, at)| (text.as_str(), *at))
        .collect();
    refused("wide.csv", &texts);
}

#[test]
fn other_forms_are_named() {
    let files = Files::new();
    for (text, wanted) in [
        (
            b" Performance counter stats for 'true':\n\n 51 page-faults\n".as_slice(),
            "output for people",
        ),
        (b"{\"traceEvents\": []}", "neither perf's nor PAPI's"),
        (b"ARROW1\0\0\xff\xff", "feather"),
        (
            b"# started on\n\n5,,a,1,100.00,,\n6,,\xff,1,100.00,,\n",
            "line 4: is not UTF-8",
        ),
    ] {
        let error = read(&files.write("counts", text))
            .expect_err(wanted)
            .to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let long = files.write("long.csv", long());
    let together = read_together(&[long.clone(), long], &Request::default(), &Rows::new());
    assert!(matches!(together, Err(ReadError::Together { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Damaged files of every form are read or refused.
    #[test]
    fn damaged_files_never_panic(
        form in 0..5_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
    ) {
        let text = match form {
            0 => perf_csv(','),
            1 => perf_json(),
            2 => papi(0, 0, &BLOCKS[0]),
            3 => wide(),
            _ => long(),
        };
        let mut bytes = text.into_bytes();
        for (at, byte, change) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => { bytes.remove(at); }
                _ => bytes.truncate(at),
            }
        }
        let files = Files::new();
        if let Err(error) = read(&files.write("damaged", &bytes)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
