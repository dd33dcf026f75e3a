//! The report of an experiment: one self-contained HTML file; CSV and Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Series};
use super::spec::Experiment;
use cloison_config::validation::record::Machine as Executor;
use cloison_engine::figures::Figures;
use cloison_engine::{files, installation, report};
use cloison_plot::Chart;
use maud::html;
use miette::{IntoDiagnostic, Result, WrapErr};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::path::Path;
use std::sync::Arc;

/// Style in addition to that of all reports.
const STYLE: &str = ".answer { font-size: 1.15em; }";

/// Returns the report.
pub fn html(
    experiment: &Experiment,
    path: &Path,
    findings: &Findings,
    figures: &Figures,
) -> Result<String> {
    let charts: Vec<_> = findings
        .charts
        .iter()
        .map(Chart::figure)
        .collect::<Result<_>>()?;
    let source = files::read_text(path, files::CONFIGURATION)?;
    let system = files::read_text(&experiment.system, files::CONFIGURATION)?;
    let model = files::read_text(&experiment.model, files::CONFIGURATION)?;
    // A reader of ten seconds sees the answer and a plot.
    let answer = findings.account.first();
    let details = findings.account.iter().skip(1);
    let body = html! {
        @if let Some(answer) = answer { p.answer { (report::prose(answer)) } }
        p.note {
            @match experiment.executor {
                Executor::Hardware => { "Measured: a board executed the images, without QEMU and without the board model." }
                _ => { "Modelled, not measured on a board: QEMU with the board model." }
            }
        }
        @for map in &findings.heatmaps { (map.figure()) }
        @for chart in &charts { (chart) }
        @if !experiment.question.is_empty() {
            h2 { "The question" }
            p { (report::prose(&experiment.question)) }
        }
        @if let Some((source, shows)) = &experiment.paper {
            h2 { "The paper" }
            p.note { (source) }
            p { (report::prose(shows)) }
        }
        @for section in findings.conclusions() { (section.to_html()) }
        h2 { "Details" }
        @for paragraph in details { p { (report::prose(paragraph)) } }
        @for table in &findings.tables { (table.to_html()) }
        @if let Some(stability) = &findings.sensitivity {
            @for table in &stability.tables { (table.to_html()) }
            p { (report::prose(&stability.text)) }
        }
        (report::all_figures(figures))
        h2 { "Provenance" }
        (report::provenance(figures))
        details { summary { "The experiment: " (installation::display(path)) } pre { (source) } }
        details { summary { "Its system: " (installation::display(&experiment.system)) } pre { (system) } }
        @if experiment.executor != Executor::Hardware {
            details { summary { "The model: " (installation::display(&experiment.model)) } pre { (model) } }
        }
    };
    Ok(report::standalone(&experiment.title, STYLE, &body))
}

/// Formats a series as CSV.
pub fn csv(series: &Series) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(vec![]);
    writer.write_record(&series.columns).into_diagnostic()?;
    for row in &series.rows {
        writer
            .write_record(row.iter().map(Cell::text))
            .into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}

/// Formats a series as Parquet, with the provenance as key-value metadata.
pub fn parquet(series: &Series, figures: &Figures) -> Result<Vec<u8>> {
    write_parquet(series, figures)
        .into_diagnostic()
        .wrap_err("cannot lay out the Parquet file")
}

fn write_parquet(series: &Series, figures: &Figures) -> parquet::errors::Result<Vec<u8>> {
    let column = |at: usize| series.rows.iter().map(move |row| &row[at]);
    let kind = |at: usize| {
        if column(at).any(|cell| matches!(cell, Cell::Value(_))) {
            Physical::DOUBLE
        } else if column(at).any(|cell| matches!(cell, Cell::Count(_))) {
            Physical::INT64
        } else {
            Physical::BYTE_ARRAY
        }
    };
    let mut fields = vec![];
    for (at, name) in series.columns.iter().enumerate() {
        let builder =
            Type::primitive_type_builder(name, kind(at)).with_repetition(Repetition::OPTIONAL);
        let text = kind(at) == Physical::BYTE_ARRAY;
        let builder = if text {
            builder.with_logical_type(Some(LogicalType::String))
        } else {
            builder
        };
        fields.push(Arc::new(builder.build()?));
    }
    let schema = Type::group_type_builder("series")
        .with_fields(fields)
        .build()?;
    let metadata = figures.provenance().into_iter().map(|(key, value)| {
        KeyValue::new(
            key,
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        )
    });
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(metadata.collect()))
        .build();
    let mut bytes = vec![];
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for at in 0..series.columns.len() {
        let number = |cell: &Cell| match cell {
            Cell::Value(value) => Some(*value),
            Cell::Count(count) => Some(*count as f64),
            Cell::Missing | Cell::Text(_) => None,
        };
        match kind(at) {
            Physical::DOUBLE => {
                cloison_engine::hem::column::<DoubleType>(&mut group, column(at).map(number))?
            }
            Physical::INT64 => {
                let count = |cell: &Cell| {
                    if let Cell::Count(count) = cell {
                        i64::try_from(*count).ok()
                    } else {
                        None
                    }
                };
                cloison_engine::hem::column::<Int64Type>(&mut group, column(at).map(count))?;
            }
            _ => {
                let text = |cell: &Cell| {
                    (*cell != Cell::Missing).then(|| ByteArray::from(cell.text().into_bytes()))
                };
                cloison_engine::hem::column::<ByteArrayType>(&mut group, column(at).map(text))?;
            }
        }
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}
