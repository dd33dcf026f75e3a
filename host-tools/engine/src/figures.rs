//! The files that `--json` writes: named numbers with their provenance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{sha256, write_json};
use crate::image::Image;
use crate::installation::{self, Installation};
use crate::setup::emulator::PROGRAM;
use miette::Result;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The figures of one command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Figures {
    /// The command that wrote them.
    command: String,
    /// Values by their stable names.
    figures: BTreeMap<String, Number>,
    /// Tables, each a list of objects; a cell without a value is null.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    series: BTreeMap<String, Value>,
    /// How they were measured.
    provenance: Provenance,
}

/// How the figures were measured.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Provenance {
    /// Cloison's version.
    cloison: String,
    /// Its commit, with `-dirty` after uncommitted changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// Version of the compiler.
    rustc: String,
    /// Version of QEMU.
    qemu: String,
    /// The board.
    #[serde(skip_serializing_if = "Option::is_none")]
    board: Option<String>,
    /// Path of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    /// CRC-32 of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_crc32: Option<String>,
    /// SHA-256 of the system image; of several images, of theirs in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_sha256: Option<String>,
    /// Parameters that the figures depend on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, String>,
    /// Date and time, in UTC.
    date: String,
}

/// Returns the JSON schema of the files.
pub fn schema() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Figures>()
        .to_value()
}

impl Figures {
    /// Creates an empty set of figures, and asks the tools on this machine for their versions.
    pub fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            figures: BTreeMap::new(),
            series: BTreeMap::new(),
            provenance: Provenance::of_this_machine(),
        }
    }
    /// Records the board that the figures are from.
    pub fn board(mut self, board: &str) -> Self {
        self.provenance.board = Some(board.to_owned());
        self
    }
    /// Records that the images ran on hardware, without QEMU.
    pub fn on_hardware(mut self) -> Self {
        self.provenance.qemu = "none: a board executed the images".to_owned();
        self
    }
    /// Records the configuration that the figures are from.
    pub fn config(mut self, path: &Path) -> Self {
        self.provenance.config = Some(installation::display(path));
        self.provenance.config_crc32 = std::fs::read(path)
            .ok()
            .map(|bytes| format!("{:08x}", crc32fast::hash(&bytes)));
        self
    }
    /// Records the system image that the figures are from: the same image gives the same figures on
    /// the board model.
    pub fn image(self, image: &Image) -> Self {
        self.images([image.sha256()])
    }
    /// Records several system images, by their SHA-256 in order; of more than one, the SHA-256 of
    /// all these is recorded.
    pub fn images(mut self, sha256s: impl IntoIterator<Item = String>) -> Self {
        let all: Vec<String> = sha256s.into_iter().collect();
        self.provenance.image_sha256 = match all.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(sha256(several.concat().as_bytes())),
        };
        self
    }
    /// Records a parameter that the figures depend on. An enum is recorded by its serialized name.
    pub fn parameter(mut self, name: &str, value: impl Serialize) -> Self {
        let value = match json!(value) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.provenance.parameters.insert(name.to_owned(), value);
        self
    }
    /// Adds a table of values, one object per row.
    pub fn series(&mut self, name: &str, rows: Vec<Value>) -> &mut Self {
        self.series.insert(name.to_owned(), Value::Array(rows));
        self
    }
    /// Returns the provenance as names and values.
    pub fn provenance(&self) -> serde_json::Map<String, Value> {
        match serde_json::to_value(&self.provenance) {
            Ok(Value::Object(map)) => map,
            _ => serde_json::Map::new(),
        }
    }
    /// Adds a count, replacing any earlier figure of this name.
    pub fn count(&mut self, name: impl Into<String>, value: u64) -> &mut Self {
        self.figures.insert(name.into(), value.into());
        self
    }
    /// Adds a measured value. A value that is not finite is left out.
    pub fn value(&mut self, name: impl Into<String>, value: f64) -> &mut Self {
        if let Some(number) = Number::from_f64(value) {
            self.figures.insert(name.into(), number);
        }
        self
    }
    /// Returns a figure by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.get(name).and_then(Number::as_f64)
    }
    /// Returns all figures, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Number)> {
        self.figures
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }
    /// Writes the figures to the file given by `--json`, if any.
    pub fn write(&self, json: Option<&Path>) -> Result<()> {
        json.map_or(Ok(()), |path| write_json(path, self))
    }
}

impl Provenance {
    fn of_this_machine() -> Self {
        Self {
            cloison: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            rustc: rustc_version(),
            qemu: qemu_version(),
            board: None,
            config: None,
            config_crc32: None,
            image_sha256: None,
            parameters: BTreeMap::new(),
            date: utc_date(now(env::var_os(EPOCH).as_deref())),
        }
    }
}

/// Returns the version that QEMU reports.
pub fn qemu_version() -> String {
    first_line(Command::new(PROGRAM).arg("--version")).unwrap_or_else(|| "not installed".to_owned())
}

/// Returns the version of the compiler that built the hypervisor and the guests.
pub fn rustc_version() -> String {
    match installation::current() {
        Installation::Bundle(bundle) => bundle.manifest().rustc.clone(),
        Installation::Checkout(_) | Installation::Nothing => {
            first_line(Command::new("rustc").arg("--version"))
                .unwrap_or_else(|| "unknown".to_owned())
        }
    }
}

/// Returns the commit of the bundle or checkout, with `-dirty` if there are uncommitted changes;
/// `None` outside both.
pub fn commit() -> Option<String> {
    let root = match installation::current() {
        Installation::Bundle(bundle) => return bundle.manifest().commit.clone(),
        Installation::Checkout(root) => root,
        Installation::Nothing => return None,
    };
    let git =
        |arguments: &[&str]| first_line(Command::new("git").current_dir(root).args(arguments));
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let dirty = git(&["status", "--porcelain"]).is_some();
    Some(if dirty { format!("{hash}-dirty") } else { hash })
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stderr(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

/// The variable with the seconds since 1970 that count as now, so that the same command writes the
/// same bytes (reproducible-builds.org).
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Returns the time that is recorded: the one given, or the present.
fn now(epoch: Option<&OsStr>) -> SystemTime {
    let seconds = epoch.and_then(|text| text.to_str()?.parse().ok());
    seconds.map_or_else(SystemTime::now, |seconds| {
        UNIX_EPOCH + Duration::from_secs(seconds)
    })
}

/// Formats a time as `2026-01-31T12:00:00Z`, in the proleptic Gregorian calendar.
fn utc_date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years start in March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_known_instants() {
        let at = |seconds| utc_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(
            utc_date(now(Some(OsStr::new("951782400")))),
            "2000-02-29T00:00:00Z"
        );
        assert!(
            now(Some(OsStr::new("yesterday"))) > UNIX_EPOCH + Duration::from_secs(1_735_689_599)
        );
    }

    #[test]
    fn figures_are_sorted_and_written_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/figures.json");
        let mut figures = Figures::new("test");
        figures
            .count("zebra", 2)
            .count("ant", u64::MAX)
            .value("half", 0.5)
            .value("nothing", f64::NAN);
        figures.write(Some(&path)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["command"], "test");
        assert_eq!(json["figures"]["ant"], u64::MAX);
        let names: Vec<_> = json["figures"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(names, ["ant", "half", "zebra"]);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }
}
