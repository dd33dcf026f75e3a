//! Reads a board's console log with a survey of its memory, and writes it as a file of
//! measurements.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::points::Operation;
use std::collections::BTreeMap;
use std::fmt::Write;
use thiserror::Error;

/// What marks the survey's lines; the console puts the VM's name before it.
const MARK: &str = "survey: ";
/// Bytes of a line, of which a stream reaches one with each access.
const LINE: f64 = 64.0;

/// Why a log has no measurements.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SurveyError {
    /// No survey ended in it.
    #[error(
        "the log has no complete survey: no line `survey: complete` after one `survey: begins`"
    )]
    Incomplete,
    /// A line cannot be read.
    #[error("line {0} of the log is damaged: `{1}`")]
    Damaged(usize, String),
    /// Lines are missing.
    #[error("the survey made {0} measurements, and {1} are in the log")]
    Missing(u64, usize),
    /// The hypervisor counted no cycles.
    #[error("the log has no numbers of cycles, from which the clock of the cores follows")]
    NoClock,
}

/// The measurement of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chase,
    Stride,
    Stream(Operation),
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Chase" => Self::Chase,
            "Stride" => Self::Stride,
            "Read" => Self::Stream(Operation::Read),
            "Write" => Self::Stream(Operation::Write),
            "Copy" => Self::Stream(Operation::Copy),
            _ => return None,
        })
    }

    /// Returns its name and its benchmark in a file of measurements.
    fn benchmark(self, kib: u64) -> (String, String) {
        match self {
            Self::Chase => (
                format!("chase-{kib}k"),
                format!("chase = {{ kib = {kib} }}"),
            ),
            Self::Stride => (
                format!("stride-{kib}k"),
                format!("stride = {{ kib = {kib} }}"),
            ),
            Self::Stream(operation) => {
                let name = operation.name();
                (
                    format!("{name}-{kib}k"),
                    format!("stream = {{ operation = \"{name}\", kib = {kib}, cores = 1 }}"),
                )
            }
        }
    }
}

/// A measurement of a survey.
#[derive(Clone, Debug, PartialEq)]
struct SurveyPoint {
    /// Number of its line in the log, starting at 1.
    line: usize,
    kind: Kind,
    kib: u64,
    accesses: f64,
    ticks: f64,
    cycles: Option<f64>,
}

/// A complete survey.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Ticks of the board's timer in a second.
    hz: f64,
    taken: Vec<SurveyPoint>,
}

/// Returns the values after `NAME=` in a line.
fn values(text: &str) -> BTreeMap<&str, &str> {
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect()
}

fn number(values: &BTreeMap<&str, &str>, name: &str) -> Option<u64> {
    values.get(name)?.parse().ok().filter(|number| *number > 0)
}

fn taken(line: usize, text: &str) -> Option<SurveyPoint> {
    let (name, rest) = text.split_once(' ')?;
    let values = values(rest);
    let of = |name: &str| number(&values, name).map(|number| number as f64);
    let cycles = match values.get("cycles") {
        Some(&"none") => None,
        _ => Some(of("cycles")?),
    };
    let (kind, kib) = (Kind::named(name)?, number(&values, "bytes")? / 1024);
    Some(SurveyPoint {
        line,
        kind,
        kib,
        accesses: of("accesses")?,
        ticks: of("ticks")?,
        cycles,
    })
}

impl Survey {
    /// Returns the last complete survey in a log.
    ///
    /// # Errors
    ///
    /// If there is none, or a line of it is damaged or missing.
    pub fn read(log: &str) -> Result<Self, SurveyError> {
        let mut current: Option<Self> = None;
        let mut complete = None;
        for (index, whole) in log.lines().enumerate() {
            let Some((_, text)) = whole.split_once(MARK) else {
                continue;
            };
            let (line, text) = (index + 1, text.trim());
            let damaged = || SurveyError::Damaged(line, text.to_owned());
            if let Some(rest) = text.strip_prefix("begins ") {
                let hz = number(&values(rest), "hz").ok_or_else(damaged)? as f64;
                current = Some(Self { hz, taken: vec![] });
            } else if let Some(rest) = text.strip_prefix("complete ") {
                let made = number(&values(rest), "measurements").ok_or_else(damaged)?;
                let survey = current.take().ok_or(SurveyError::Incomplete)?;
                if survey.taken.len() as u64 != made {
                    return Err(SurveyError::Missing(made, survey.taken.len()));
                }
                complete = Some(survey);
            } else if let Some(survey) = &mut current {
                survey.taken.push(taken(line, text).ok_or_else(damaged)?);
            }
        }
        complete.ok_or(SurveyError::Incomplete)
    }

    /// Returns the number of its measurements.
    pub fn measurements(&self) -> usize {
        self.taken.len()
    }

    /// Returns the clock of the cores in MHz: the cycles of all measurements divided by their time.
    ///
    /// # Errors
    ///
    /// If the hypervisor counted no cycles.
    pub fn clock_mhz(&self) -> Result<u64, SurveyError> {
        let cycles: Option<f64> = self.taken.iter().map(|one| one.cycles).sum();
        let seconds = self.taken.iter().map(|one| one.ticks).sum::<f64>() / self.hz;
        let mhz = cycles.ok_or(SurveyError::NoClock)? / seconds / 1e6;
        Ok(mhz.round().max(1.0) as u64)
    }

    /// Returns a file of measurements, for `model calibrate` and `model validate`.
    pub fn to_toml(&self, board: &str, log: &str, clock_mhz: u64) -> String {
        let [board, log] = [board, log].map(|text| toml::Value::from(text).to_string());
        let mut text = format!(
            "# Made by `model points` from a survey of this board. Choose with `use` which measurements a model is fitted to.\n\
             [source.survey]\ntitle = {log}\n"
        );
        for one in &self.taken {
            let seconds = one.ticks / self.hz;
            let (value, unit, tolerance) = match one.kind {
                Kind::Chase | Kind::Stride => (seconds * 1e9 / one.accesses, "ns", 0.2),
                Kind::Stream(_) => (one.accesses * LINE / seconds / 1e6, "MB/s", 0.3),
            };
            let (name, benchmark) = one.kind.benchmark(one.kib);
            let _ = write!(
                text,
                "\n[[point]]\nname = \"{name}\"\nboard = {board}\nvalue = {value:.4}\n\
                 unit = \"{unit}\"\nclock_mhz = {clock_mhz}\n\
                 tolerance = {tolerance}\nuse = \"fitted\"\nsource = \"survey\"\n\
                     place = \"line {}\"\nbenchmark.{benchmark}\n",
                one.line
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::points;
    use super::*;

    /// A log as a terminal program keeps it: with what U-Boot printed, and carriage returns.
    const LOG: &str = "U-Boot 2024.01\r\n[core 0] Cloison on zcu102\r\n\
        [survey] survey: begins largest=65536 hz=100000000\r\n\
        [survey] survey: Chase bytes=65536 accesses=1000 ticks=1500 cycles=18000\r\n\
        [survey] survey: Write bytes=65536 accesses=1000 ticks=1000 cycles=12000\r\n\
        [survey] survey: complete measurements=2\r\n";

    #[test]
    fn a_log_becomes_a_file_of_measurements() {
        let survey = Survey::read(LOG).expect("a survey");
        assert_eq!(survey.clock_mhz(), Ok(1200));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("points.toml");
        std::fs::write(&file, survey.to_toml("a \"board\"", "uart.log", 1200)).expect("a file");
        let read = points::load(&file).expect("measurements");
        let of: Vec<_> = read
            .points
            .iter()
            .map(|one| (one.name.as_str(), one.value, one.unit, one.clock_mhz))
            .collect();
        let mhz = Some(1200);
        let expected = [
            ("chase-64k", 15.0, points::Unit::Nanos, mhz),
            ("write-64k", 6400.0, points::Unit::MegabytesPerSecond, mhz),
        ];
        assert_eq!(of, expected);
        assert_eq!(
            (read.points[0].board.as_str(), read.points[0].place.as_str()),
            ("a \"board\"", "line 4")
        );
    }

    #[test]
    fn the_last_complete_survey_counts() {
        let begun = LOG.lines().take(3).collect::<Vec<_>>().join("\n");
        assert_eq!(Survey::read(&begun), Err(SurveyError::Incomplete));
        let twice = format!("{}{}{begun}", LOG.replace("1500", "9"), LOG);
        assert_eq!(
            Survey::read(&twice).expect("the second").taken[0].ticks,
            1500.0
        );
    }

    #[test]
    fn what_a_serial_line_loses_is_reported() {
        let damaged = LOG.replace("ticks=1500 cyc", "ticks=15#cyc");
        let text = "Chase bytes=65536 accesses=1000 ticks=15#cycles=18000".to_owned();
        assert_eq!(Survey::read(&damaged), Err(SurveyError::Damaged(4, text)));
        let shorter: String = LOG
            .lines()
            .filter(|line| !line.contains("Write"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(Survey::read(&shorter), Err(SurveyError::Missing(2, 1)));
        let uncounted = LOG.replace("cycles=18000", "cycles=none (Denied)");
        assert_eq!(
            Survey::read(&uncounted).expect("a survey").clock_mhz(),
            Err(SurveyError::NoClock)
        );
    }
}
