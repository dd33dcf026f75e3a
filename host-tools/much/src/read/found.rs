//! What was found in a file beside its counts, and what the user says of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::Measurements;
use std::collections::BTreeMap;

/// Selects one program of a log with several. `None` accepts any value, but all rows must then have
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Name of the VM.
    pub vm: Option<String>,
    /// Number of the vCPU.
    pub vcpu: Option<u64>,
    /// Number of the workload.
    pub workload: Option<u64>,
}

/// What to do with a count that was scaled because its counter was shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaled {
    /// Refuse the file.
    #[default]
    Refuse,
    /// Take the count as missing, which leaves its run out.
    LeaveOut,
    /// Use it, with a note.
    Keep,
}

/// What a file does not say itself.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The program whose counts are wanted.
    pub selection: Selection,
    /// What to do with scaled counts.
    pub scaled: Scaled,
    /// Columns, or events, that are not to be read.
    pub ignore: Vec<String>,
    /// Names of events in the file, and those that they get.
    pub names: BTreeMap<String, String>,
}

impl Request {
    /// Returns whether a column or an event is not to be read.
    pub(super) fn ignores(&self, name: &str) -> bool {
        self.ignore.iter().any(|other| other == name)
    }
}

/// The form of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// CSV with a row for each count.
    LongCsv,
    /// CSV with a column for each event.
    WideCsv,
    /// Parquet with a row for each count.
    LongParquet,
    /// Parquet with a column for each event.
    WideParquet,
    /// What `perf stat -x,` writes.
    PerfCsv,
    /// What `perf stat -j` writes.
    PerfJson,
    /// What PAPI's high-level interface writes.
    Papi,
    /// Several files, one or more runs in each.
    Several,
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LongCsv => "long CSV (a row for each count)",
            Self::WideCsv => "wide CSV (a column for each event)",
            Self::LongParquet => "long Parquet (a row for each count)",
            Self::WideParquet => "wide Parquet (a column for each event)",
            Self::PerfCsv => "CSV of perf stat",
            Self::PerfJson => "JSON of perf stat",
            Self::Papi => "JSON of PAPI's high-level interface",
            Self::Several => "several files",
        })
    }
}

/// What a user should know of how a file was read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Note {
    /// Columns that are not read.
    #[error("{} not read: {}", if .0.len() == 1 { "column" } else { "columns" }, .0.join(", "))]
    Columns(Vec<String>),
    /// An event that the machine does not have.
    #[error("{0} is not supported by the machine that counted: left out")]
    NotSupported(String),
    /// An event that is no count.
    #[error("{event} is measured in {unit}, which is no count: left out")]
    Unit {
        /// Name of the event.
        event: String,
        /// Its unit.
        unit: String,
    },
    /// Counts that were scaled and are used.
    #[error(
        "{counts} counts are estimates: their counters were shared (multiplexed); first at {place}"
    )]
    Scaled {
        /// How many.
        counts: usize,
        /// The first one's place.
        place: String,
    },
    /// Counts that were scaled and are taken as missing.
    #[error("{counts} scaled counts are taken as missing; first at {place}")]
    ScaledLeftOut {
        /// How many.
        counts: usize,
        /// The first one's place.
        place: String,
    },
    /// Each run is the mean of several.
    #[error(
        "each count is the mean of several runs (perf stat -r): correlations from run to run are \
         lost; call perf once for each run instead"
    )]
    Means,
    /// Each run is an interval of one.
    #[error("each interval (perf stat -I) is taken as a run: they are parts of one run, in turn")]
    Intervals,
    /// Sub-experiments were told from the events that runs count.
    #[error("{sub_experiments} sub-experiments, one for each set of events that runs count")]
    Sets {
        /// How many.
        sub_experiments: usize,
    },
}

/// Measurements, and how they were read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The counts.
    pub measurements: Measurements,
    /// What the file is.
    pub form: Form,
    /// What the user should know.
    pub notes: Vec<Note>,
    /// Rows of the counts that were asked for.
    pub rows: Rows,
}

/// Runs of which rows are wanted, by sub-experiment and run; and the first row of each in the file.
pub type Rows = BTreeMap<(u64, u64), Option<String>>;
