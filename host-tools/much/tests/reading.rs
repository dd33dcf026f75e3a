//! Reads valid and invalid input as CSV, gzip and Parquet, and checks the messages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::draw::stream;
use cloison_much::read::{ReadError, Selection, read, read_csv};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rand::RngExt;
use std::io::Write;
use std::sync::Arc;

const HEADER: &str = "sub_experiment,run,event_code,event,value\n";

fn csv(text: &str) -> Result<cloison_much::data::Measurements, String> {
    read_csv(text.as_bytes(), &Selection::default()).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(rows: &str, message: &str) {
    assert_eq!(csv(&format!("{HEADER}{rows}")).unwrap_err(), message);
}

#[test]
fn bad_fields_are_named_with_line_and_column() {
    let good = "0,0,1,a,5\n0,0,2,b,6\n";
    refused(
        &format!("{good}0,1,1,a,-3\n"),
        "line 4, column `value`: -3 is not a count: it is negative",
    );
    refused(
        &format!("{good}0,1,1,a,inf\n"),
        "line 4, column `value`: inf is not a count: above 2^53 it is not exact",
    );
    refused(
        &format!("{good}0,1,1,a,many\n"),
        "line 4, column `value`: \"many\" is not a count",
    );
    refused(
        &format!("{good}x,1,1,a,1\n"),
        "line 4, column `sub_experiment`: \"x\" is not a whole number",
    );
    refused(&format!("{good}0,1,1,a\n"), "line 4: has 4 fields, not 5");
    refused(
        &format!("{good}0,0,1,a,5\n"),
        "line 4, column `run`: a already has a count in sub-experiment 0, run 0",
    );
    refused(
        &format!("{good}0,1,9,a,5\n"),
        "line 4, column `event_code`: event a has number 9 here and 1 before",
    );
    refused(
        &format!("{good}0,1,1,,5\n"),
        "line 4, column `event`: is empty",
    );
    refused("", "there are no measurements");
    let missing = csv("run,event,value\n0,a,1\n").unwrap_err();
    assert_eq!(
        missing,
        "has no column `sub_experiment`; its columns are run, event, value"
    );
}

#[test]
fn columns_are_found_by_name_and_a_run_with_an_overflow_is_left_out() {
    let text = "value,event,cycles,run,sub_experiment,overflowed\n\
                1,a,100,0,0,0\n2,b,100,0,0,0\n3,a,110,1,0,0\n4,b,110,1,0,1\n5,a,120,2,0,0\n\
                    6,b,120,2,0,0\n";
    let data = csv(text).unwrap();
    assert_eq!(data.incomplete_runs, 1);
    assert_eq!(data.grouped(data.event("cycles").unwrap()), [100.0, 120.0]);
    assert_eq!(data.grouped(data.event("a").unwrap()), [1.0, 5.0]);
}

#[test]
fn of_several_programs_one_must_be_chosen() {
    let text = "vm,workload,sub_experiment,run,event,value\nrt,1,0,0,a,1\nrt,1,0,0,b,2\n\
        linux,2,0,0,a,3\nlinux,2,0,0,b,4\n";
    let message = "has measurements of several programs: vm linux workload 2, vm rt workload 1";
    assert_eq!(csv(text).unwrap_err(), message);
    let select = |vm: &str| {
        read_csv(
            text.as_bytes(),
            &Selection {
                vm: Some(vm.to_owned()),
                ..Selection::default()
            },
        )
    };
    assert_eq!(select("linux").unwrap().grouped(1), [4.0]);
    assert!(matches!(select("other"), Err(ReadError::NoneChosen(_))));
}

#[test]
fn a_run_that_lacks_a_count_is_left_out_however_it_says_so() {
    let counts = |missing: &str| {
        [["1", "2"], [missing, "4"], ["5", "6"]]
            .into_iter()
            .enumerate()
            .flat_map(|(run, [a, b])| [(run, "a", a), (run, "b", b)].map(texts))
            .collect::<Vec<[String; 4]>>()
    };
    for missing in ["", "NA", "NaN", "nan", "null", "-", "N/A", "<not counted>"] {
        let rows = counts(missing);
        let lines: Vec<_> = rows.iter().map(|row| row.join(",")).collect();
        let text = format!("sub_experiment,run,event,value\n{}\n", lines.join("\n"));
        for data in [
            csv(&text).unwrap(),
            of_parquet(&parquet_of_text(&rows)).unwrap(),
        ] {
            assert_eq!(data.incomplete_runs, 1, "{missing}");
            assert_eq!(data.grouped(0), [1.0, 5.0], "{missing}");
        }
    }
    let inexact = of_parquet(&parquet_of_text(&counts("18446744073709551615"))).unwrap_err();
    assert_eq!(
        inexact,
        "row 3, column `value`: 18446744073709552000 is not a count: above 2^53 it is not exact"
    );
    let more = of_parquet(&parquet_of_text(&counts("+3"))).unwrap_err();
    assert_eq!(more, "row 3, column `value`: \"+3\" is not a count");
}

#[test]
fn blanks_around_names_and_fields_are_no_part_of_them() {
    let text = "sub_experiment, run , event,value\n0, 0, a, 1\n0, 0, b, 2\n0, 1, a, 3\n0, 1,b ,4\n";
    for text in [text.to_owned(), text.replace('\n', "\r\n")] {
        let data = csv(&text).unwrap();
        assert_eq!(
            (data.grouped(0), data.grouped(1)),
            (vec![1.0, 3.0], vec![2.0, 4.0])
        );
    }
}

/// A row of sub-experiment 0 as text.
fn texts((run, event, count): (usize, &str, &str)) -> [String; 4] {
    [
        "0".to_owned(),
        run.to_string(),
        event.to_owned(),
        count.to_owned(),
    ]
}

/// Reads Parquet from a file.
fn of_parquet(bytes: &[u8]) -> Result<cloison_much::data::Measurements, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counts.parquet");
    std::fs::write(&path, bytes).unwrap();
    read(&path, &Selection::default()).map_err(|error| error.to_string())
}

/// Returns rows as Parquet of which all columns are text.
fn parquet_of_text(rows: &[[String; 4]]) -> Vec<u8> {
    let column = |name: &str| {
        let column = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String));
        Arc::new(column.build().unwrap())
    };
    let columns = ["sub_experiment", "run", "event", "value"];
    let schema = Type::group_type_builder("rows")
        .with_fields(columns.map(column).into())
        .build()
        .unwrap();
    let mut bytes = vec![];
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for at in 0..columns.len() {
        let values: Vec<_> = rows
            .iter()
            .map(|row| ByteArray::from(row[at].as_str()))
            .collect();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&values, None, None)
            .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// Returns rows of four events in two sub-experiments, from a seed.
fn rows() -> Vec<(i64, i64, String, i64)> {
    let mut rng = stream(4, 0);
    let mut rows = vec![];
    for (sub, events) in [[0, 1, 2], [1, 2, 3]].into_iter().enumerate() {
        for run in 0..50 {
            for event in events {
                rows.push((
                    sub as i64,
                    run,
                    format!("E{event}"),
                    rng.random_range(0..1_000_000),
                ));
            }
        }
    }
    rows
}

fn parquet(rows: &[(i64, i64, String, i64)]) -> Vec<u8> {
    let column = |name: &str, physical| {
        Arc::new(
            Type::primitive_type_builder(name, physical)
                .with_repetition(Repetition::REQUIRED)
                .build()
                .unwrap(),
        )
    };
    let fields = vec![
        column("sub_experiment", Physical::INT64),
        column("run", Physical::INT64),
        column("event", Physical::BYTE_ARRAY),
        column("value", Physical::INT64),
    ];
    let schema = Type::group_type_builder("rows")
        .with_fields(fields)
        .build()
        .unwrap();
    let mut bytes = vec![];
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut whole = |values: Vec<i64>| {
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&values, None, None)
            .unwrap();
        column.close().unwrap();
    };
    whole(rows.iter().map(|row| row.0).collect());
    whole(rows.iter().map(|row| row.1).collect());
    let mut column = group.next_column().unwrap().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| ByteArray::from(row.2.as_str()))
        .collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&names, None, None)
        .unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<_> = rows.iter().map(|row| row.3).collect();
    column
        .typed::<Int64Type>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn csv_gzip_and_parquet_are_the_same_measurements() {
    let rows = rows();
    let mut text = "sub_experiment,run,event,value\n".to_owned();
    for (sub, run, event, value) in &rows {
        text += &format!("{sub},{run},{event},{value}\n");
    }
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    let bytes = parquet(&rows);
    let of = |path: &std::path::Path| read(path, &Selection::default());
    let plain = of(&write("a.csv", text.as_bytes())).unwrap();
    assert_eq!(plain.runs(), 100);
    assert_eq!(
        of(&write("a.csv.gz", &packed.finish().unwrap())).unwrap(),
        plain
    );
    assert_eq!(of(&write("a.parquet", &bytes)).unwrap(), plain);
    for length in [4, bytes.len() / 2, bytes.len() - 1] {
        let truncated = of(&write("half.parquet", &bytes[..length]));
        assert!(
            matches!(truncated, Err(ReadError::Parquet(_))),
            "{length} bytes"
        );
    }
    assert!(matches!(of(&write("empty", b"")), Err(ReadError::Empty)));
    assert!(matches!(
        of(&write("zeros", &[0; 64])),
        Err(ReadError::NotText)
    ));
    assert!(matches!(
        of(&directory.path().join("nothing")),
        Err(ReadError::File(_))
    ));
}

/// What tests/fixtures/parquet/write.py writes into every file.
fn fixture() -> Vec<(u64, Vec<Vec<f64>>)> {
    let base = |event: char| f64::from(u32::from(event) - 96) * 1e6;
    let of_sub = |(number, events): (usize, &str)| {
        // The count of c in sub-experiment 1, run 3 is missing.
        let runs: Vec<u32> = (0..6).filter(|&run| (number, run) != (1, 3)).collect();
        let column = |event| {
            runs.iter()
                .map(|&run| base(event) + 1000.0 * number as f64 + f64::from(run * run))
                .collect::<Vec<_>>()
        };
        (number as u64, events.chars().map(column).collect())
    };
    ["ab", "bc", "ac"]
        .into_iter()
        .enumerate()
        .map(of_sub)
        .collect()
}

/// All columns of a file are decoded at the same time: each reads its own bytes, however the
/// threads are scheduled.
#[test]
fn columns_that_are_read_at_once_do_not_mix() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/parquet/fastparquet-gzip.parquet");
    for time in 0..300 {
        if let Err(error) = read(&path, &Selection::default()) {
            panic!("time {time}: {error}: {error:?}");
        }
    }
}

/// Compares a file with [`fixture`].
fn has_the_fixture(path: &std::path::Path) {
    let name = path.display();
    let data = read(path, &Selection::default())
        .unwrap_or_else(|error| panic!("{name}: {error}: {error:?}"));
    let of_sub = |sub: &cloison_much::data::SubExperiment| {
        (
            sub.number,
            sub.columns
                .iter()
                .map(cloison_much::counts::Counts::to_vec)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        data.sub_experiments.iter().map(of_sub).collect::<Vec<_>>(),
        fixture(),
        "{name}"
    );
    assert_eq!(data.incomplete_runs, 1, "{name}");
}

/// The files of a directory of fixtures whose names end so, in order.
fn fixtures(directory: &str, ends: &[&str]) -> Vec<std::path::PathBuf> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(directory);
    let files = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| ends.iter().any(|end| path.to_string_lossy().ends_with(end)))
        .collect();
    files.sort();
    files
}

#[test]
fn files_of_pandas_polars_and_pyarrow_are_read_right() {
    let (vectors, counts): (Vec<_>, Vec<_>) = fixtures("parquet", &[".parquet"])
        .into_iter()
        .partition(|path| path.ends_with("polars-vectors.parquet"));
    assert_eq!(counts.len(), 8);
    counts.iter().for_each(|path| has_the_fixture(path));
    let vectors = cloison_much::read::read_vectors(&vectors[0]).unwrap();
    assert_eq!(vectors.columns[1].values(), [4.0, 5.0, 9.0]);
}

/// R's own functions, data.table and readr: names of rows, quotes, 1e+06 for a million, NA, gzip,
/// CRLF, a mark of the byte order.
#[test]
fn files_of_r_are_read_right() {
    let (other, counts): (Vec<_>, Vec<_>) = fixtures("r", &[".csv", ".csv.gz"])
        .into_iter()
        .partition(|path| path.ends_with("write-csv2.csv"));
    assert_eq!(counts.len(), 7);
    counts.iter().for_each(|path| has_the_fixture(path));
    let error = read(&other[0], &Selection::default())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "separates its columns by ';'");
    assert_eq!(
        csv("sub_experiment\trun\tevent\tvalue\n").unwrap_err(),
        "separates its columns by '\\t'"
    );
}

#[test]
fn booleans_of_pandas_and_r_are_no_overflows() {
    for (no, yes) in [
        ("False", "True"),
        ("FALSE", "TRUE"),
        ("false", "true"),
        ("0.0", "1.0"),
        ("0", "3"),
        ("NA", "T"),
    ] {
        let text = format!(
            "\"sub_experiment\",run,event,value,overflowed\n\
             0,0,a,1,{no}\n0,0,b,2,{no}\n0,1,a,3,{no}\n0,1,b,4,{yes}\n0,2,a,5,{no}\n0,2,b,6,{no}\n"
        );
        let data = csv(&text).unwrap();
        assert_eq!(
            (data.incomplete_runs, data.grouped(0)),
            (1, vec![1.0, 5.0]),
            "{no}"
        );
    }
    let text = "sub_experiment,run,event,value,overflowed\n0,0,a,1,maybe\n";
    let message = "line 2, column `overflowed`: \"maybe\" is neither a number nor true nor false";
    assert_eq!(csv(text).unwrap_err(), message);
}

#[test]
fn what_is_no_whole_number_of_events_is_refused() {
    let inexact = |value: &str| {
        format!("line 2, column `value`: {value} is not a count: above 2^53 it is not exact")
    };
    refused("0,0,1,a,9007199254740993\n", &inexact("9007199254740993"));
    refused(
        "0,0,1,a,832.5\n",
        "line 2, column `value`: 832.5 is not a count: it is not a whole number",
    );
    refused(
        "0,0,1,a,+7\n",
        "line 2, column `value`: \"+7\" is not a count",
    );
    let whole = csv(&format!(
        "{HEADER}0,0,1,a,832.0\n0,0,2,b,1e6\n0,1,1,a,9007199254740992\n0,1,2,b,0\n"
    ))
    .unwrap();
    assert_eq!(
        (whole.grouped(0), whole.grouped(1)),
        (vec![832.0, 9_007_199_254_740_992.0], vec![1e6, 0.0])
    );
}

#[test]
fn a_second_count_after_one_that_overflowed_is_an_error() {
    let text = "sub_experiment,run,event,value,overflowed\n0,0,a,1,1\n0,0,a,2,0\n";
    assert_eq!(
        csv(text).unwrap_err(),
        "line 3, column `run`: a already has a count in sub-experiment 0, run 0"
    );
}

#[test]
fn files_packed_in_a_way_that_is_not_read_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counts.csv.packed");
    // The first bytes of what bzip2 and zip make.
    for (with, start) in [
        ("bzip2", b"BZh91AY&SY".as_slice()),
        ("zip", b"PK\x03\x04\x14\0"),
    ] {
        std::fs::write(&path, [start, &[7; 100]].concat()).unwrap();
        let error = read(&path, &Selection::default()).unwrap_err().to_string();
        assert_eq!(error, format!("is compressed with {with}"));
    }
    // Those of xz and zstd, and then no more of it.
    for start in [b"\xfd7zXZ\0\0\x04".as_slice(), b"\x28\xb5\x2f\xfd\x04\x58"] {
        std::fs::write(&path, [start, &[7; 100]].concat()).unwrap();
        let error = read(&path, &Selection::default()).unwrap_err();
        assert!(matches!(error, ReadError::Broken(_)), "{error:?}");
    }
}

#[test]
fn text_in_two_bytes_a_letter_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wide.csv");
    let bytes: Vec<u8> = std::iter::once(0xFEFF)
        .chain(HEADER.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(
        read(&path, &Selection::default()),
        Err(ReadError::Utf16)
    ));
}

/// Counts of 30,000 runs of three sub-experiments as long CSV, with ends of lines and quotes as
/// given.
fn long(end: &str, quote: &str) -> String {
    let mut text = format!("sub_experiment,run,event,value{end}");
    for run in 0..30_000 {
        for (sub, events) in [["a", "b"], ["b", "c"], ["a", "c"]].iter().enumerate() {
            for (at, event) in events.iter().enumerate() {
                text += &format!(
                    "{sub},{run},{quote}{event}{quote},{}{end}",
                    1000 * run + 10 * sub + at
                );
            }
        }
    }
    text
}

#[test]
fn a_file_of_several_parts_is_read_as_one() {
    let expected = |data: &cloison_much::data::Measurements| {
        assert_eq!(
            (data.runs(), data.events.len(), data.incomplete_runs),
            (90_000, 3, 0)
        );
        for (sub, events) in [[0, 1], [1, 2], [0, 2]].into_iter().enumerate() {
            for (at, event) in events.into_iter().enumerate() {
                let column = data.sub_experiments[sub].column(event).unwrap();
                assert!(
                    (0..30_000).all(|run| column.get(run) == (1000 * run + 10 * sub + at) as f64)
                );
            }
        }
    };
    for (end, quote) in [("\n", ""), ("\r\n", ""), ("\n", "\""), ("\r\n", "\"")] {
        let text = long(end, quote);
        assert!(text.len() > 2 << 20, "more than two parts");
        expected(&read_csv(text.as_bytes(), &Selection::default()).unwrap());
    }
    // An end of a line within quotes ends no record, wherever the parts are cut.
    let text = long("\n", "\"").replace("\"a\"", "\"a\nand more\"");
    let data = read_csv(text.as_bytes(), &Selection::default()).unwrap();
    expected(&data);
    assert_eq!(data.events[0].name, "a\nand more");
}

#[test]
fn mistakes_far_into_a_file_are_named_with_their_line() {
    for (end, wrong, what) in [
        (
            "\n",
            "0,77,a,x",
            "line 150001, column `value`: \"x\" is not a count",
        ),
        ("\r\n", "0,77,a", "line 150001: has 3 fields, not 4"),
        (
            "\n",
            "0,12,b,5",
            "line 150001, column `run`: b already has a count in sub-experiment 0, run 12",
        ),
    ] {
        let text = long(end, "");
        let mut lines: Vec<&str> = text.split(end).collect();
        lines.insert(150_000, wrong);
        // A later mistake is not the one that is named.
        lines[160_000] = "1,2,3";
        let error = read_csv(lines.join(end).as_bytes(), &Selection::default()).unwrap_err();
        assert_eq!(error.to_string(), what);
    }
}
