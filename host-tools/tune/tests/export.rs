//! Exported tables say what the surfaces say, in CSV and in Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod synthetic;

use cloison_tune::*;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use synthetic::{Numbers, Size, case, conditions};

const SIZE: Size = Size {
    vms: 2,
    colors: 4,
    steps: 2,
    budgets: 2,
    points: 25,
};

/// Reads a Parquet file as rows of text, null as nothing.
fn read_parquet(bytes: Vec<u8>) -> (Vec<String>, Vec<Vec<String>>) {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names = schema
        .columns()
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    let text = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::ULong(number) => number.to_string(),
        field => panic!("{field:?}"),
    };
    let row = |row: Result<parquet::record::Row, _>| {
        let row = row.unwrap();
        row.get_column_iter()
            .map(|(_, field)| text(field))
            .collect()
    };
    let rows = reader.get_row_iter(None).unwrap().map(row).collect();
    (names, rows)
}

fn read_csv(table: &export::Table) -> (Vec<String>, Vec<Vec<String>>) {
    let mut bytes = vec![];
    table.write_csv(&mut bytes).unwrap();
    let mut reader = csv::Reader::from_reader(&bytes[..]);
    let row = |row: &csv::StringRecord| row.iter().map(str::to_owned).collect::<Vec<_>>();
    let names = row(reader.headers().unwrap());
    (
        names,
        reader.records().map(|it| row(&it.unwrap())).collect(),
    )
}

#[test]
fn csv_and_parquet_have_the_same_rows() {
    for seed in 0..4 {
        let problem = case(seed, SIZE).problem;
        for table in [
            export::bounds(&problem).unwrap(),
            export::measurements(&problem),
        ] {
            assert!(table.rows.len() > 10);
            let (names, rows) = read_csv(&table);
            assert_eq!(rows.len(), table.rows.len());
            assert_eq!((names, rows), read_parquet(table.to_parquet().unwrap()));
        }
    }
}

/// For any conditions, exactly one row has them, with the surface's bounds.
#[test]
fn the_rows_cover_all_conditions() {
    let mut problem = case(3, SIZE).problem;
    problem.shared = None;
    for vm in &mut problem.vms {
        vm.memory = Pages(1);
        vm.tune = [Knob::Colors, Knob::Pages, Knob::Budgets].into();
    }
    let table = export::bounds(&problem).unwrap();
    let at = |name: &str| table.columns.iter().position(|it| it.name == name).unwrap();
    let mut numbers = Numbers(7);
    for vm in &problem.vms {
        for _ in 0..30 {
            let traffic = Traffic(numbers.below(400));
            for point in conditions(vm, 4, traffic) {
                let (own, private, shared, taken) = match point.placement {
                    Placement::Own { colors } => (Some(colors.0.into()), None, None, colors.0),
                    Placement::Shared { private } => {
                        let steps = vm.pages.iter().find(|step| step.pages == private);
                        let taken = steps.map_or(0, |step| step.colors.0);
                        let shared = Some(u64::from(point.shared.0));
                        (None, Some(private.0), shared, taken)
                    }
                };
                if taken + point.shared.0 > 4 {
                    continue;
                }
                let budget = match point.budget {
                    Budget::PerPeriod(budget) => Some(budget.0),
                    Budget::Unlimited => None,
                };
                let mut rows = table.rows.iter().filter(|row| {
                    row.vm == vm.name.0
                        && row.numbers[..4] == [own, private, shared, budget]
                        && row.numbers[at("traffic_from")].unwrap() <= traffic.0
                        && row.numbers[at("traffic_to")].is_none_or(|to| traffic.0 <= to)
                });
                let row = &rows.next().unwrap().numbers;
                assert_eq!(rows.next(), None);
                let bounds = vm.surface.bounds(&point);
                assert_eq!(row[at("lower_ns")], Some(bounds.lower.0));
                assert_eq!(row[at("upper_ns")], bounds.upper.map(|it| it.0));
                assert_eq!(row[at("private_colors")], Some(taken.into()));
                let allowance = problem.allowance(vm, point.budget).0;
                assert_eq!(row[at("allowance")], Some(allowance));
                assert_eq!(row[at("limit_ns")], vm.limit().map(|it| it.0));
            }
        }
    }
}
