//! The HEM log of a run as a table, and as CSV and Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub use cloison_metrics::log::COLUMNS;

use crate::files::{self, ReadError};
use crate::telemetry::wire::DecodeError;
use crate::telemetry::{Problem, Telemetry};
use cloison_config::events::EventNames;
use cloison_formats::ids::{Core, VcpuIndex};
use cloison_formats::telemetry;
use cloison_formats::units::EventId;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr};
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Errors in a HEM log.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum HemError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    #[diagnostic(
        code(hem::unreadable),
        help("give the file with the capture of the telemetry UART")
    )]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The mistake in it.
        source: ReadError,
    },
    /// The file has no bytes.
    #[error("{} is empty", path.display())]
    #[diagnostic(
        code(hem::empty),
        help(
            "the hypervisor sent nothing: does the board file define a `telemetry` UART, and was \
             that one captured?"
        )
    )]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file contains no readable message.
    #[error("{}: none of its {len} bytes belong to a readable message; byte {offset}: {first}", path.display())]
    #[diagnostic(
        code(hem::nothing_readable),
        help(
            "this is not a telemetry stream: give the capture of the second UART, not the \
             console's"
        )
    )]
    NothingReadable {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file in bytes.
        len: usize,
        /// Offset at which its first message would start.
        offset: usize,
        /// The mistake there.
        first: Problem,
    },
    /// The file contains only zero bytes.
    #[error("{}: all of its {len} bytes are zero", path.display())]
    #[diagnostic(
        code(hem::only_zeros),
        help("the line was open but nothing was sent: was the capture started on the right UART?")
    )]
    OnlyZeros {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file in bytes.
        len: usize,
    },
    /// Another version wrote the file, so nothing can be decoded.
    #[error("{}: byte {offset}: {problem}", path.display())]
    #[diagnostic(
        code(hem::other_version),
        help("decode it with the version of Cloison that built the image, or run the image again")
    )]
    OtherVersion {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the `Boot` message.
        offset: usize,
        /// The versions.
        problem: Problem,
    },
    /// Some messages are damaged.
    #[error("{}: byte {offset}: {problem}{}", path.display(), more(*others))]
    #[diagnostic(code(hem::damaged), help("{}", advice(problem, *frames)))]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the first damaged message.
        offset: usize,
        /// The mistake in it.
        problem: Problem,
        /// How many more are damaged.
        others: usize,
        /// How many messages are readable.
        frames: usize,
    },
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " (and 1 more problem)".to_owned(),
        many => format!(" (and {many} more problems)"),
    }
}

fn advice(problem: &Problem, frames: usize) -> String {
    let readable = if frames == 1 {
        "1 message is readable".to_owned()
    } else {
        format!("{frames} messages are readable")
    };
    match problem {
        Problem::SecondBoot => "the file holds more than one run: split it at this byte, or use \
                                --lenient to decode the first run"
            .to_owned(),
        Problem::NoBoot => {
            format!(
                "start the capture before the board; {readable}: use --lenient to decode them \
                 without the VMs' names"
            )
        }
        Problem::Decode(DecodeError::Unterminated) => {
            format!(
                "the capture ended too early; {readable}: use --lenient to decode what came before"
            )
        }
        Problem::Decode(DecodeError::Content)
        | Problem::UnknownVm(_)
        | Problem::TooManyEvents(_) => format!(
            "no byte was lost: what wrote this frame is not the hypervisor of this checkout; \
             {readable}: use --lenient to skip the rest"
        ),
        _ => format!(
            "capture it again with flow control or a lower rate; {readable}: use --lenient to \
             skip the rest"
        ),
    }
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// What a reader does with damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is an error.
    Refuse,
    /// It is left out, and the rest is read.
    Skip,
}

/// Reads a captured telemetry stream.
pub fn read(path: &Path, damage: Damage) -> Result<Telemetry, HemError> {
    let path_of = || path.to_path_buf();
    let stream =
        cloison_config::files::read(path, files::LOG).map_err(|source| HemError::Unreadable {
            path: path_of(),
            source,
        })?;
    if stream.is_empty() {
        return Err(HemError::Empty { path: path_of() });
    }
    // A sparse file of zeros has an empty message for each of its bytes.
    if stream
        .chunks(ZEROS.len())
        .all(|chunk| *chunk == ZEROS[..chunk.len()])
    {
        return Err(HemError::OnlyZeros {
            path: path_of(),
            len: stream.len(),
        });
    }
    let telemetry = Telemetry::parse(&stream);
    let Some(&(offset, problem)) = telemetry.problems.first() else {
        if telemetry.frames == 0 {
            return Err(HemError::OnlyZeros {
                path: path_of(),
                len: stream.len(),
            });
        }
        return Ok(telemetry);
    };
    if let Some(&(offset, problem)) = telemetry
        .problems
        .iter()
        .find(|(_, problem)| matches!(problem, Problem::Version { .. }))
    {
        return Err(HemError::OtherVersion {
            path: path_of(),
            offset,
            problem,
        });
    }
    if telemetry.frames == 0 {
        return Err(HemError::NothingReadable {
            path: path_of(),
            len: stream.len(),
            offset,
            first: problem,
        });
    }
    if damage == Damage::Skip {
        return Ok(telemetry);
    }
    let others = telemetry.problems.len() - 1;
    Err(HemError::Damaged {
        path: path_of(),
        offset,
        problem,
        others,
        frames: telemetry.frames,
    })
}

/// The HEM log as a table in long form: one row per run and event.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Rows in the order in which the runs ended.
    pub rows: Vec<Row>,
    /// Properties of the whole run, as keys and values.
    pub metadata: Vec<(String, String)>,
}

/// The count of one event in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the VM.
    pub vm: String,
    /// Number of the vCPU in the VM.
    pub vcpu: VcpuIndex,
    /// Number of the physical core.
    pub core: Core,
    /// When the segment ended, in nanoseconds since reset.
    pub at_ns: u64,
    /// The guest's number for the workload.
    pub workload: u32,
    /// Sub-experiment number.
    pub sub_experiment: u32,
    /// Run number.
    pub run: u32,
    /// PMCCNTR_EL0 over the segment: the anchor, repeated in every row of the run.
    pub cycles: u64,
    /// Whether the guest made the record itself, with counters that it can set to any value.
    pub by_guest: bool,
    /// The count; `None` in the only row of a run that counted only cycles.
    pub count: Option<Count>,
}

/// A count of one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Number of the event.
    pub event: EventId,
    /// Name of the event.
    pub name: String,
    /// How often the event occurred.
    pub value: u32,
    /// Whether the counter wrapped, which makes `value` too low.
    pub overflowed: bool,
}

impl Table {
    /// Creates the table from a stream's HEM records.
    pub fn new(telemetry: &Telemetry, names: &EventNames) -> Self {
        let mut rows = vec![];
        for run in telemetry.hem_runs() {
            let record = run.record;
            let row = Row {
                vm: telemetry.vm_name(record.vm),
                vcpu: record.vcpu,
                core: run.core,
                at_ns: run.at.0,
                workload: record.workload,
                sub_experiment: record.sub_experiment,
                run: record.run,
                cycles: record.cycles.0,
                by_guest: record.by_guest,
                count: None,
            };
            let counts = run.counts().map(|(event, value, overflowed)| Row {
                count: Some(Count {
                    event,
                    name: names.name(event),
                    value,
                    overflowed,
                }),
                ..row.clone()
            });
            let before = rows.len();
            rows.extend(counts);
            if rows.len() == before {
                rows.push(row);
            }
        }
        let mut metadata = vec![];
        if let Some(boot) = &telemetry.boot {
            let mut add =
                |key: &str, value: String| metadata.push((format!("cloison.{key}"), value));
            add("telemetry_version", boot.version.to_string());
            add("system", boot.system.clone());
            add("board", boot.board.clone());
            add("colors", boot.colors.to_string());
            add("hypervisor_colors", boot.hypervisor_colors.to_string());
            add("timer_hz", boot.timer_hz.to_string());
            add("records_dropped", telemetry.dropped().to_string());
            add("frames_skipped", telemetry.problems.len().to_string());
        }
        Self { rows, metadata }
    }

    /// Formats the table as CSV (RFC 4180 with `\n`).
    pub fn to_csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(vec![]);
        writer.write_record(COLUMNS).into_diagnostic()?;
        for row in &self.rows {
            let [code, event, value, overflowed] = match &row.count {
                Some(count) => [
                    format!("{:#x}", count.event.0),
                    count.name.clone(),
                    count.value.to_string(),
                    u8::from(count.overflowed).to_string(),
                ],
                None => Default::default(),
            };
            writer
                .write_record([
                    row.vm.clone(),
                    row.vcpu.to_string(),
                    row.core.to_string(),
                    row.at_ns.to_string(),
                    row.workload.to_string(),
                    row.sub_experiment.to_string(),
                    row.run.to_string(),
                    row.cycles.to_string(),
                    u8::from(row.by_guest).to_string(),
                    code,
                    event,
                    value,
                    overflowed,
                ])
                .into_diagnostic()?;
        }
        writer.into_inner().into_diagnostic()
    }

    /// Formats the table as a Parquet file with one row group; [`Table::metadata`] becomes its
    /// key-value metadata.
    pub fn to_parquet(&self) -> Result<Vec<u8>> {
        self.write_parquet()
            .into_diagnostic()
            .wrap_err("cannot lay out the Parquet file")
    }

    fn write_parquet(&self) -> parquet::errors::Result<Vec<u8>> {
        let metadata = self
            .metadata
            .iter()
            .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
            .collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!(
                "cloison {} telemetry {}",
                env!("CARGO_PKG_VERSION"),
                telemetry::VERSION
            ))
            .set_key_value_metadata(Some(metadata))
            .build();
        let mut bytes = vec![];
        let mut writer =
            SerializedFileWriter::new(&mut bytes, Arc::new(schema()?), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let rows = &self.rows;
        // Unsigned values are stored as signed integers with the same bits; the column's logical
        // type says so.
        let text = |value: &str| ByteArray::from(value.as_bytes().to_vec());
        column::<ByteArrayType>(&mut group, rows.iter().map(|row| Some(text(&row.vm))))?;
        column::<Int32Type>(
            &mut group,
            rows.iter().map(|row| Some(i32::from(row.vcpu.0))),
        )?;
        column::<Int32Type>(
            &mut group,
            rows.iter().map(|row| Some(i32::from(row.core.0))),
        )?;
        column::<Int64Type>(
            &mut group,
            rows.iter().map(|row| Some(row.at_ns.cast_signed())),
        )?;
        column::<Int32Type>(
            &mut group,
            rows.iter().map(|row| Some(row.workload.cast_signed())),
        )?;
        column::<Int32Type>(
            &mut group,
            rows.iter()
                .map(|row| Some(row.sub_experiment.cast_signed())),
        )?;
        column::<Int32Type>(
            &mut group,
            rows.iter().map(|row| Some(row.run.cast_signed())),
        )?;
        column::<Int64Type>(
            &mut group,
            rows.iter().map(|row| Some(row.cycles.cast_signed())),
        )?;
        column::<BoolType>(&mut group, rows.iter().map(|row| Some(row.by_guest)))?;
        let counts = || rows.iter().map(|row| row.count.as_ref());
        column::<Int32Type>(
            &mut group,
            counts().map(|count| Some(i32::from(count?.event.0))),
        )?;
        column::<ByteArrayType>(&mut group, counts().map(|count| Some(text(&count?.name))))?;
        column::<Int32Type>(
            &mut group,
            counts().map(|count| Some(count?.value.cast_signed())),
        )?;
        column::<BoolType>(&mut group, counts().map(|count| Some(count?.overflowed)))?;
        group.close()?;
        writer.close()?;
        Ok(bytes)
    }
}

fn schema() -> parquet::errors::Result<Type> {
    let unsigned = |bits| Some(LogicalType::integer(bits, false));
    let columns = [
        (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        (Physical::INT32, unsigned(8)),
        (Physical::INT32, unsigned(8)),
        (Physical::INT64, unsigned(64)),
        (Physical::INT32, unsigned(32)),
        (Physical::INT32, unsigned(32)),
        (Physical::INT32, unsigned(32)),
        (Physical::INT64, unsigned(64)),
        (Physical::BOOLEAN, None),
        (Physical::INT32, unsigned(16)),
        (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        (Physical::INT32, unsigned(32)),
        (Physical::BOOLEAN, None),
    ];
    // A run that counted only cycles has no event: its last four columns are null.
    let first_optional = COLUMNS.len() - 4;
    let mut fields = vec![];
    for (index, (name, (physical, logical))) in COLUMNS.into_iter().zip(columns).enumerate() {
        let repetition = if index < first_optional {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_converted_type(ConvertedType::NONE)
            .build()?;
        fields.push(Arc::new(field));
    }
    Type::group_type_builder("hem").with_fields(fields).build()
}

/// Writes the next column of a row group; `None` becomes null.
pub fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: impl Iterator<Item = Option<T::T>>,
) -> parquet::errors::Result<()> {
    let (mut present, mut levels) = (vec![], vec![]);
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    let mut column = group
        .next_column()?
        .ok_or_else(|| parquet::errors::ParquetError::General("too many columns".to_owned()))?;
    // Required columns have no definition levels and ignore these.
    column
        .typed::<T>()
        .write_batch(&present, Some(&levels), None)?;
    column.close()
}
