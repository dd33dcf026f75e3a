//! A profile as CSV and JSON, for other programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::profile::Profile;
use serde::Serialize;

/// Columns of the CSV; the events' follow.
const HEADING: [&str; 11] = [
    "vma",
    "kind",
    "name",
    "offset",
    "pages",
    "min",
    "mean",
    "max",
    "samples",
    "importance",
    "part",
];

/// One profiled block: a row of the CSV, an element of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Position of its mapping.
    pub vma: u32,
    /// Letter of what the mapping is for; empty if unknown.
    pub kind: String,
    /// Name of the mapping.
    pub name: String,
    /// Position of its first page in the mapping.
    pub offset: u32,
    /// Number of pages.
    pub pages: u32,
    /// Least time.
    pub min: u64,
    /// Mean time.
    pub mean: f64,
    /// Greatest time.
    pub max: u64,
    /// Number of samples.
    pub samples: u32,
    /// Difference from the reference, in the profile's unit; more is more important.
    pub importance: f64,
    /// The same difference, as a part of the reference.
    pub part: f64,
    /// Mean count of each event, in the order of the profile's events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<f64>,
}

/// Returns the rows of a profile, in the order of its pages.
pub fn rows(profile: &Profile) -> Vec<Row> {
    let reference = profile.reference();
    let mut rows = Vec::new();
    for vma in &profile.vmas {
        for block in &vma.blocks {
            let importance = profile.importance(&block.times);
            rows.push(Row {
                vma: vma.index,
                kind: vma.kind.map_or_else(String::new, |kind| kind.to_string()),
                name: vma.name.clone(),
                offset: block.offset,
                pages: block.pages,
                min: block.times.min,
                mean: block.times.mean,
                max: block.times.max,
                samples: block.times.samples,
                importance,
                part: if reference > 0.0 {
                    importance / reference
                } else {
                    0.0
                },
                counts: block.counts.clone(),
            });
        }
    }
    rows
}

/// Returns the profile as CSV with a heading.
///
/// # Errors
///
/// Those of the CSV writer; none occurs while it writes to memory.
pub fn csv(profile: &Profile) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut heading: Vec<String> = HEADING.map(str::to_owned).into();
    heading.extend(profile.events.iter().cloned());
    writer.write_record(&heading)?;
    for row in rows(profile) {
        let Row {
            vma,
            kind,
            name,
            offset,
            pages,
            min,
            mean,
            max,
            samples,
            importance,
            part,
            counts,
        } = row;
        let numbers = [
            offset.to_string(),
            pages.to_string(),
            min.to_string(),
            mean.to_string(),
            max.to_string(),
            samples.to_string(),
            importance.to_string(),
            part.to_string(),
        ];
        let mut record = vec![vma.to_string(), kind, name];
        record.extend(numbers);
        let counts = counts
            .iter()
            .map(f64::to_string)
            .chain(std::iter::repeat(String::new()));
        record.extend(counts.take(profile.events.len()));
        writer.write_record(&record)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the profile as one JSON object: `mode`, `unit`, `provenance`, `baseline`, `reference`,
/// `pages`, `excluded`.
pub fn json(profile: &Profile) -> serde_json::Value {
    serde_json::json!({
        "mode": profile.mode,
        "unit": profile.unit,
        "events": profile.events,
        "provenance": profile.provenance,
        "baseline": profile.baseline,
        "reference": profile.reference(),
        "pages": rows(profile),
        "excluded": profile.excluded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profiles;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn csv_and_json_have_every_block(profile in profiles()) {
            let expected = rows(&profile);
            let text = csv(&profile).unwrap();
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let offsets: Vec<(String, String)> = reader
                .records()
                .map(|row| {
                    let row = row.unwrap();
                    (row[0].to_owned(), row[3].to_owned())
                })
                .collect();
            let wanted: Vec<(String, String)> = expected
                .iter()
                .map(|row| (row.vma.to_string(), row.offset.to_string()))
                .collect();
            prop_assert_eq!(offsets, wanted);
            let json = json(&profile);
            let means: Vec<f64> = json["pages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["mean"].as_f64().unwrap())
                .collect();
            prop_assert_eq!(
                means,
                expected.iter().map(|row| row.mean).collect::<Vec<_>>()
            );
        }
    }
}
