//! What is done with counts that no run can have, and the report on the quality of the data.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_much::data::Measurements;
use cloison_much::quality::Suspect;
use cloison_much::read::Rows;
use miette::{IntoDiagnostic, Result, miette};
use std::path::Path;

/// Most suspects that are printed; the report has all.
const MOST_PRINTED: usize = 10;

/// What to do with runs that have implausible counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Implausible {
    /// Leave these runs out, with warnings
    #[default]
    Exclude,
    /// Refuse the measurements
    Refuse,
    /// Use these runs, with warnings
    Keep,
}

/// Measurements, and what was found in them.
pub struct Inspected {
    /// The measurements that are used.
    pub data: Measurements,
    /// What was found.
    pub suspects: Vec<Suspect>,
    rows: Rows,
    what: Implausible,
    excluded: usize,
}

impl Inspected {
    /// Does with the suspects what the user wants, and prints them.
    ///
    /// # Errors
    ///
    /// If the user wants such measurements to be refused.
    pub fn new(
        data: Measurements,
        suspects: Vec<Suspect>,
        rows: Rows,
        what: Implausible,
        path: &Path,
    ) -> Result<Self> {
        let mut inspected = Self {
            data,
            suspects,
            rows,
            what,
            excluded: 0,
        };
        let shown: Vec<String> = inspected
            .suspects
            .iter()
            .take(MOST_PRINTED)
            .map(|suspect| inspected.described(suspect))
            .collect();
        for suspect in &shown {
            eprintln!("warning: {}: {suspect}", path.display());
        }
        let more = inspected.suspects.len() - shown.len();
        if more > 0 {
            eprintln!(
                "warning: {}: {more} more implausible counts or runs",
                path.display()
            );
        }
        if what == Implausible::Refuse && !inspected.suspects.is_empty() {
            let help = "--implausible exclude leaves such runs out; docs/much.md has the rules";
            return Err(miette!(
                help = help,
                "{}: {} implausible counts or runs",
                path.display(),
                inspected.suspects.len()
            ));
        }
        if what == Implausible::Exclude {
            let (kept, excluded) = inspected.data.without(&inspected.suspects);
            if excluded > 0 {
                let program = installation::program();
                eprintln!(
                    "warning: {}: {excluded} implausible runs are left out (see {program} much merge --help, --implausible)",
                    path.display()
                );
            }
            (inspected.data, inspected.excluded) = (kept, excluded);
        }
        Ok(inspected)
    }

    /// Returns how many runs were left out as implausible.
    pub fn excluded(&self) -> usize {
        self.excluded
    }

    fn row(&self, suspect: &Suspect) -> Option<&str> {
        let key = (suspect.sub_experiment, suspect.run?);
        self.rows.get(&key)?.as_deref()
    }

    fn described(&self, suspect: &Suspect) -> String {
        match self.row(suspect) {
            Some(row) => format!("{row}: {suspect}"),
            None => suspect.to_string(),
        }
    }

    /// Returns the report as CSV: a row for each suspect.
    ///
    /// # Errors
    ///
    /// If it cannot be formatted.
    pub fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(vec![]);
        let header = [
            "fault",
            "sub_experiment",
            "run",
            "row",
            "event",
            "value",
            "median",
            "action",
            "explanation",
        ];
        writer.write_record(header).into_diagnostic()?;
        let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for suspect in &self.suspects {
            let is_excluded = self.what == Implausible::Exclude && suspect.fault.excludes();
            let action = if is_excluded { "run excluded" } else { "kept" };
            let run = suspect.run.map_or_else(String::new, |run| run.to_string());
            let record = [
                suspect.fault.word().to_owned(),
                suspect.sub_experiment.to_string(),
                run,
                self.row(suspect).unwrap_or_default().to_owned(),
                suspect.event.clone().unwrap_or_default(),
                text(suspect.value),
                text(suspect.median),
                action.to_owned(),
                suspect.fault.to_string(),
            ];
            writer.write_record(record).into_diagnostic()?;
        }
        writer.into_inner().into_diagnostic()
    }
}
