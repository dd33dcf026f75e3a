//! Surfaces as tables, CSV and Parquet, so that others can check an answer with their own solver.
//!
//! Both tables begin with the conditions. All times are nanoseconds.
//!
//! | column | type | meaning |
//! | --- | --- | --- |
//! | `vm` | text | the VM |
//! | `own_colors` | integer or null | colors of the VM's main pool; null if it is in the shared pool |
//! | `private_pages` | integer or null | pages in its private pool; null if it has its own colors |
//! | `shared_colors` | integer or null | colors of the shared pool; null if it has its own colors |
//! | `budget` | integer or null | refills per period that each vCPU may make; null without a budget |
//!
//! The table of bounds has a row for each choice and each stretch of neighbors' traffic:
//!
//! | column | type | meaning |
//! | --- | --- | --- |
//! | `traffic_from`, `traffic_to` | integer, integer or null | refills per period of all neighbors, both included; null is any number |
//! | `private_colors` | integer | colors that the choice takes: of the main pool, or for the private pages |
//! | `allowance` | integer | refills per period that the VM's vCPUs together add to its neighbors' traffic |
//! | `memory_pages` | integer | the VM's memory |
//! | `changes` | integer | fields that differ from what is written |
//! | `alone_ns` | integer | time alone in the whole cache |
//! | `limit_ns` | integer or null | longest time that the demand allows; null for a best-effort VM |
//! | `lower_ns` | integer | shortest possible time |
//! | `upper_ns` | integer or null | longest possible time; null if nothing that is measured bounds it |
//!
//! The table of measurements has a row for each run:
//!
//! | column | type | meaning |
//! | --- | --- | --- |
//! | `traffic` | integer | refills per period of all neighbors |
//! | `time_ns` | integer | time of the segment |
//! | `refills` | integer or null | refills of the vCPU that made the most; null if not counted |
//!
//! A partition takes a row of the bounds for each VM. The private colors of all VMs and the colors
//! of the shared pool are the colors of the board, which may have some left if no VM shares.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Problem, ProblemError};
use crate::surface::{Bounds, Point};
use crate::types::{Budget, Choice, Colors, Placement, Traffic};
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

/// A table of whole numbers with a name in the first column, `vm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns after the first one.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Whether a number can be missing.
    pub presence: Presence,
}

/// Whether a number can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Each row has one.
    Always,
    /// It can be null.
    Optional,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The VM.
    pub vm: String,
    /// A number for each column; `None` is null.
    pub numbers: Vec<Option<u64>>,
}

const fn always(name: &'static str) -> Column {
    Column {
        name,
        presence: Presence::Always,
    }
}

const fn optional(name: &'static str) -> Column {
    Column {
        name,
        presence: Presence::Optional,
    }
}

/// What both tables begin with.
const CONDITIONS: [Column; 4] = [
    optional("own_colors"),
    optional("private_pages"),
    optional("shared_colors"),
    optional("budget"),
];

const BOUNDS: [Column; 10] = [
    always("traffic_from"),
    optional("traffic_to"),
    always("private_colors"),
    always("allowance"),
    always("memory_pages"),
    always("changes"),
    always("alone_ns"),
    optional("limit_ns"),
    always("lower_ns"),
    optional("upper_ns"),
];

const MEASUREMENTS: [Column; 3] = [always("traffic"), always("time_ns"), optional("refills")];

/// Returns the bounds of all choices of all VMs.
///
/// # Errors
/// Mistakes in the problem.
pub fn bounds(problem: &Problem) -> Result<Table, ProblemError> {
    problem.check()?;
    let mut rows = vec![];
    for vm in &problem.vms {
        let hull = vm.surface.hull();
        let points = vm.surface.points().iter();
        let levels: BTreeSet<_> = points.map(|known| known.point.traffic.0).collect();
        let head = |point: &Point, stretch: Stretch, colors: Colors, bounds: Bounds| {
            let choice = Choice {
                placement: point.placement,
                budget: point.budget,
            };
            let mut numbers = conditions(point).to_vec();
            numbers.extend([
                Some(stretch.from),
                stretch.to,
                Some(colors.0.into()),
                Some(problem.allowance(vm, point.budget).0),
                Some(vm.memory.0),
                Some(vm.changes(choice)),
                Some(vm.surface.alone().time.0),
                vm.limit().map(|limit| limit.0),
                Some(bounds.lower.0),
                bounds.upper.map(|upper| upper.0),
            ]);
            Row {
                vm: vm.name.0.clone(),
                numbers,
            }
        };
        for site in vm.sites(problem) {
            for shared in pool_sizes(problem, site.placement, site.colors) {
                for budget in vm.allowed_budgets() {
                    let point = |traffic| Point {
                        placement: site.placement,
                        shared,
                        traffic: Traffic(traffic),
                        budget,
                    };
                    let at = |traffic| hull.bounds(&point(traffic));
                    let stretches = stretches(&levels, &at).into_iter();
                    rows.extend(stretches.map(|(stretch, bounds)| {
                        head(&point(stretch.from), stretch, site.colors, bounds)
                    }));
                }
            }
        }
    }
    let columns = CONDITIONS.into_iter().chain(BOUNDS).collect();
    Ok(Table { columns, rows })
}

/// Returns all measured points of all VMs, without the runs alone.
pub fn measurements(problem: &Problem) -> Table {
    let mut rows = vec![];
    for vm in &problem.vms {
        for known in vm.surface.points() {
            let mut numbers = conditions(&known.point).to_vec();
            numbers.extend([
                Some(known.point.traffic.0),
                Some(known.sample.time.0),
                known.sample.refills.map(|refills| refills.0),
            ]);
            rows.push(Row {
                vm: vm.name.0.clone(),
                numbers,
            });
        }
    }
    let columns = CONDITIONS.into_iter().chain(MEASUREMENTS).collect();
    Table { columns, rows }
}

fn conditions(point: &Point) -> [Option<u64>; 4] {
    let shared = u64::from(point.shared.0);
    let budget = match point.budget {
        Budget::PerPeriod(budget) => Some(budget.0),
        Budget::Unlimited => None,
    };
    match point.placement {
        Placement::Own { colors } => [Some(colors.0.into()), None, None, budget],
        Placement::Shared { private } => [None, Some(private.0), Some(shared), budget],
    }
}

fn pool_sizes(problem: &Problem, placement: Placement, private: Colors) -> Vec<Colors> {
    match (placement, problem.shared) {
        (Placement::Own { .. }, _) => vec![Colors(0)],
        (_, Some(shared)) => vec![shared],
        (_, None) => (1..=problem.colors.0.saturating_sub(private.0))
            .map(Colors)
            .collect(),
    }
}

/// Traffic from one number to another, both included.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    to: Option<u64>,
}

/// Returns the stretches of traffic with equal bounds, as long as possible.
fn stretches(levels: &BTreeSet<u64>, at: &dyn Fn(u64) -> Bounds) -> Vec<(Stretch, Bounds)> {
    // Bounds change at each measured traffic, and after it.
    let mut starts = BTreeSet::from([0]);
    starts.extend(levels);
    starts.extend(levels.iter().map(|level| level.saturating_add(1)));
    let mut found: Vec<(Stretch, Bounds)> = vec![];
    for from in starts {
        let bounds = at(from);
        if let Some((last, known)) = found.last_mut() {
            if *known == bounds {
                continue;
            }
            last.to = Some(from - 1);
        }
        found.push((Stretch { from, to: None }, bounds));
    }
    found
}

impl Table {
    /// Writes the table as CSV (RFC 4180 with `\n`); null is an empty field.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, out: impl Write) -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_field("vm")?;
        writer.write_record(self.columns.iter().map(|column| column.name))?;
        for row in &self.rows {
            writer.write_field(&row.vm)?;
            let number =
                |number: &Option<u64>| number.map_or_else(String::new, |it| it.to_string());
            writer.write_record(row.numbers.iter().map(number))?;
        }
        writer.flush()?;
        Ok(())
    }

    /// Formats the table as a Parquet file with one row group: `vm` as a string, all numbers as
    /// INT64 with the logical type of an unsigned integer.
    ///
    /// # Errors
    /// Those of the format.
    pub fn to_parquet(&self) -> Result<Vec<u8>, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("cloison-tune {}", env!("CARGO_PKG_VERSION")))
            .build();
        let mut bytes = vec![];
        let schema = Arc::new(self.schema()?);
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let missing = || ParquetError::General("a column is missing".to_owned());
        let names: Vec<ByteArray> = self
            .rows
            .iter()
            .map(|row| ByteArray::from(row.vm.as_bytes().to_vec()))
            .collect();
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column
            .typed::<ByteArrayType>()
            .write_batch(&names, None, None)?;
        column.close()?;
        for (index, _) in self.columns.iter().enumerate() {
            let values = || self.rows.iter().map(|row| row.numbers[index]);
            let levels: Vec<i16> = values().map(|value| i16::from(value.is_some())).collect();
            let present: Vec<i64> = values().flatten().map(u64::cast_signed).collect();
            let mut column = group.next_column()?.ok_or_else(missing)?;
            // Required columns have no definition levels and ignore these.
            column
                .typed::<Int64Type>()
                .write_batch(&present, Some(&levels), None)?;
            column.close()?;
        }
        group.close()?;
        writer.close()?;
        Ok(bytes)
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let field = |name, physical, logical, repetition| -> Result<_, ParquetError> {
            let field = Type::primitive_type_builder(name, physical)
                .with_repetition(repetition)
                .with_logical_type(Some(logical))
                .with_converted_type(ConvertedType::NONE)
                .build()?;
            Ok(Arc::new(field))
        };
        let mut fields = vec![field(
            "vm",
            Physical::BYTE_ARRAY,
            LogicalType::String,
            Repetition::REQUIRED,
        )?];
        for column in &self.columns {
            let repetition = match column.presence {
                Presence::Always => Repetition::REQUIRED,
                Presence::Optional => Repetition::OPTIONAL,
            };
            let unsigned = LogicalType::integer(64, false);
            fields.push(field(column.name, Physical::INT64, unsigned, repetition)?);
        }
        Type::group_type_builder("surfaces")
            .with_fields(fields)
            .build()
    }
}
