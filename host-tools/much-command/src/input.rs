//! Reads measurements from files of any form or the HEM log, and prints warnings about them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::implausible::{Implausible, Inspected};
use super::sidecar::{ScaledArg, Sidecar};
use cloison_config::events::EventNames;
use cloison_engine::figures::Figures;
use cloison_engine::telemetry::Telemetry;
use cloison_engine::{configuration, files, hem, installation};
use cloison_much::data::Measurements;
use cloison_much::quality;
use cloison_much::read::{
    self, Form, Found, ReadError, Request, Row, Rows, Scaled, Selection, Taker,
};
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::error::Error;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Selects one program of a log.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProgramChoice {
    /// Only this VM's runs
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Only this vCPU's runs
    #[arg(long, value_name = "N")]
    pub vcpu: Option<u64>,
    /// Only this workload's runs
    #[arg(long, value_name = "NUMBER")]
    pub workload: Option<u64>,
    /// Leave out the first N runs of each sub-experiment, by their numbers: they warmed up, or
    /// were merged and are not to judge the merge
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_runs: usize,
    /// Use only the first N runs of each sub-experiment, after those left out
    #[arg(long, value_name = "N")]
    pub first_runs: Option<usize>,
    /// What to do with counts that were scaled because events shared a counter (multiplexing)
    #[arg(long, value_enum, value_name = "WHAT")]
    pub scaled: Option<ScaledArg>,
    /// Leave out these columns, events or PAPI regions
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// What to do with runs that have counts which no run can have
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub implausible: Implausible,
}

/// Returns figures with these files, each with its role and checksum, and the choice of runs as
/// their provenance.
///
/// # Errors
/// If a file cannot be read.
pub fn figures_of(
    command: &str,
    inputs: &[(&str, &Path)],
    chosen: &ProgramChoice,
) -> Result<Figures> {
    let mut figures = Figures::new(command);
    for (role, path) in inputs {
        figures = figures.parameter(role, installation::display(path));
        // What came from a pipe is gone.
        if path.is_file() {
            let sum = checksum(path).into_diagnostic();
            let sum = sum.wrap_err_with(|| miette!("cannot read {}", path.display()))?;
            figures = figures.parameter(&format!("{role}_crc32"), format!("{sum:08x}"));
        }
    }
    let choices = [
        ("vm", chosen.vm.clone()),
        ("vcpu", chosen.vcpu.map(|vcpu| vcpu.to_string())),
        (
            "workload",
            chosen.workload.map(|workload| workload.to_string()),
        ),
        (
            "skip_runs",
            (chosen.skip_runs > 0).then(|| chosen.skip_runs.to_string()),
        ),
        ("first_runs", chosen.first_runs.map(|runs| runs.to_string())),
    ];
    for (name, value) in choices {
        if let Some(value) = value {
            figures = figures.parameter(name, value);
        }
    }
    Ok(figures)
}

fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = std::fs::File::open(path)?;
    let (mut hasher, mut part) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hasher.finalize()),
            bytes => hasher.update(&part[..bytes]),
        }
    }
}

impl ProgramChoice {
    fn selection(&self) -> Selection {
        Selection {
            vm: self.vm.clone(),
            vcpu: self.vcpu,
            workload: self.workload,
        }
    }
    /// What is asked for, with what the file beside the input says.
    fn request(&self, beside: Sidecar) -> Request {
        let scaled = match self.scaled.or(beside.scaled) {
            None | Some(ScaledArg::Refuse) => Scaled::Refuse,
            Some(ScaledArg::LeaveOut) => Scaled::LeaveOut,
            Some(ScaledArg::Keep) => Scaled::Keep,
        };
        Request {
            selection: self.selection(),
            scaled,
            ignore: self.ignore.iter().cloned().chain(beside.ignore).collect(),
            names: beside.names,
        }
    }
    /// Returns whether the user chose runs.
    pub fn some_runs(&self) -> bool {
        self.skip_runs > 0 || self.first_runs.is_some()
    }
    /// The runs that are wanted.
    fn runs(&self, data: Measurements) -> Result<Measurements> {
        if !self.some_runs() {
            return Ok(data);
        }
        let wanted = data.window(self.skip_runs, self.first_runs);
        let empty = wanted
            .sub_experiments
            .iter()
            .position(|sub| sub.runs() == 0);
        if let Some(sub) = empty.map(|at| &data.sub_experiments[at]) {
            return Err(miette!(
                help = "ask for fewer",
                "--skip-runs and --first-runs leave no run of sub-experiment {}, which has {}",
                sub.number,
                sub.runs()
            ));
        }
        Ok(wanted)
    }
}

/// Shows on the terminal that work is in progress, and for how long.
pub fn working(message: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Reads measurements, leaves implausible runs out, and prints warnings.
pub fn measurements(path: &Path, chosen: &ProgramChoice) -> Result<Measurements> {
    Ok(inspected(path, chosen)?.data)
}

/// Does the same, and returns what was found implausible too.
pub fn inspected(path: &Path, chosen: &ProgramChoice) -> Result<Inspected> {
    let bar = working(format!("reading {}", path.display()));
    let found = load(path, chosen);
    bar.finish_and_clear();
    let Loaded { found, request } = found?;
    let data = chosen.runs(found.measurements)?;
    let suspects = quality::inspect(&data);
    let rows = if suspects.is_empty() {
        Rows::new()
    } else {
        rows(path, &request, &suspects)
    };
    let inspected = Inspected::new(data, suspects, rows, chosen.implausible, path)?;
    for warning in inspected.data.warnings() {
        eprintln!("warning: {}: {warning}", path.display());
    }
    Ok(inspected)
}

/// Measurements as they were read.
struct Loaded {
    found: Found,
    request: Request,
}

fn load(path: &Path, chosen: &ProgramChoice) -> Result<Loaded> {
    let located = |error: ReadError| located(path, &error);
    let request = chosen.request(Sidecar::beside(path)?);
    if path.is_dir() {
        let files = files_in(path)?;
        let found = read::read_together(&files, &request, &Rows::new()).map_err(located)?;
        return Ok(told(path, Loaded { found, request }));
    }
    let seekable = Seekable::of(path)?;
    if !is_log(seekable.path()).map_err(|error| located(ReadError::File(error)))? {
        let found = read::read_as(seekable.path(), &request, &Rows::new()).map_err(located)?;
        return Ok(told(path, Loaded { found, request }));
    }
    let telemetry = hem::read(seekable.path(), hem::Damage::Refuse)?;
    let names = telemetry
        .boot
        .as_ref()
        .map_or_else(EventNames::default, |boot| {
            configuration::event_names(&boot.board)
        });
    let found = Found {
        measurements: of_log(&telemetry, &names, &request.selection).map_err(located)?,
        form: Form::LongCsv,
        notes: vec![],
        rows: Rows::new(),
    };
    Ok(Loaded { found, request })
}

/// Says what a file is, unless it is a long table, and what is to be known of it.
fn told(path: &Path, loaded: Loaded) -> Loaded {
    let form = loaded.found.form;
    if !matches!(form, Form::LongCsv | Form::LongParquet) {
        eprintln!("note: {}: {form}", path.display());
    }
    for note in &loaded.found.notes {
        eprintln!("warning: {}: {note}", path.display());
    }
    loaded
}

/// The files in a folder, by name, without the one that says more of them.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && path.extension().is_none_or(|it| it != "toml"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(miette!(
            help = "name a folder with the files of perf or PAPI, one or more runs in each",
            "{} has no files",
            folder.display()
        ));
    }
    Ok(files)
}

/// Returns where the implausible runs are in the input. It is read again: most inputs have none.
fn rows(path: &Path, request: &Request, suspects: &[quality::Suspect]) -> Rows {
    let key = |suspect: &quality::Suspect| Some((suspect.sub_experiment, suspect.run?));
    let wanted: Rows = suspects
        .iter()
        .filter_map(key)
        .map(|key| (key, None))
        .collect();
    // What came from a pipe is gone.
    if !path.is_file() || is_log(path).unwrap_or(true) {
        return Rows::new();
    }
    read::read_as(path, request, &wanted).map_or_else(|_| Rows::new(), |found| found.rows)
}

/// Takes the HEM records of a run as measurements. The cycles of each record are an event too.
///
/// # Errors
///
/// Returns an error if the selected program has no records, or if several programs are selected.
pub fn of_log(
    telemetry: &Telemetry,
    names: &EventNames,
    selection: &Selection,
) -> Result<Measurements, ReadError> {
    let mut taker = Taker::new(selection);
    for (index, run) in telemetry.hem_runs().enumerate() {
        let record = run.record;
        let vm = telemetry.vm_name(record.vm);
        let row = Row {
            place: "record",
            number: index as u64 + 1,
            sub_experiment: record.sub_experiment.into(),
            run: record.run.into(),
            event: b"",
            value: None,
            code: None,
            cycles: Some(record.cycles.0 as f64),
            percent: None,
            program: (
                &vm,
                Some(record.vcpu.0.into()),
                Some(record.workload.into()),
            ),
        };
        // Keeps the cycles of a run that counted nothing else.
        taker.take(&row)?;
        for (event, value, overflowed) in run.counts() {
            let (name, value) = (names.name(event), (!overflowed).then_some(f64::from(value)));
            taker.take(&Row {
                event: name.as_bytes(),
                value,
                code: Some(event.0.into()),
                ..row
            })?;
        }
    }
    taker.finish()
}

/// Reads merged vectors.
pub fn vectors(path: &Path) -> Result<cloison_much::table::Vectors> {
    read::read_vectors(Seekable::of(path)?.path()).map_err(|error| located(path, &error))
}

/// A file that can be read more than once: the one that was named or, of a pipe, a copy.
enum Seekable<'a> {
    Named(&'a Path),
    Copy(tempfile::NamedTempFile),
}

impl<'a> Seekable<'a> {
    /// Refuses what is no file, or too long. A file that does not exist is left to its reader.
    fn of(path: &'a Path) -> Result<Self> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= files::COUNTS.most => {
                Ok(Self::Named(path))
            }
            Err(_) => Ok(Self::Named(path)),
            Ok(_) => {
                let bytes = files::read(
                    path,
                    files::Kind {
                        most: MOST_FROM_PIPE,
                        ..files::COUNTS
                    },
                )?;
                let copied = || {
                    let mut copy = tempfile::NamedTempFile::new()?;
                    copy.write_all(&bytes)?;
                    Ok(copy)
                };
                copied().map(Self::Copy).map_err(|error: std::io::Error| {
                    miette!("cannot copy {}: {error}", path.display())
                })
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Copy(file) => file.path(),
        }
    }
}

/// The most bytes that are taken from a pipe, which are in memory at once.
const MOST_FROM_PIPE: u64 = 1 << 30;

/// Returns whether the file looks like captured telemetry: its messages end with zero bytes, which
/// text does not contain.
fn is_log(path: &Path) -> std::io::Result<bool> {
    let mut start = vec![];
    std::fs::File::open(path)?
        .take(4096)
        .read_to_end(&mut start)?;
    let known = read::is_known(&start);
    // Text in two bytes a letter has zeros too.
    let wide = start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]);
    Ok(!known && !wide && start.contains(&0))
}

/// Formats the error with its file, its causes and advice.
fn located(path: &Path, error: &ReadError) -> miette::Report {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    // `file: line 3, …`, but `file is empty`.
    let joint = match error {
        ReadError::Field { .. }
        | ReadError::Csv { .. }
        | ReadError::Row { .. }
        | ReadError::WideField { .. }
        | ReadError::Json { .. }
        | ReadError::Scaled { .. }
        | ReadError::NotUtf8(_)
        | ReadError::Together { .. }
        | ReadError::OneOf { .. }
        | ReadError::Data(_) => ": ",
        _ => " ",
    };
    let help = match error {
        ReadError::File(_) => "is the name right?",
        ReadError::Broken(_) => "was it copied whole?",
        ReadError::Empty | ReadError::NotText => {
            "CSV or Parquet is expected, long (sub_experiment, run, event, value) or wide (a column \
             per event), or what perf stat or PAPI wrote, plain or compressed by gzip, xz or zstd; \
             or a captured HEM log"
        }
        ReadError::Separator(_) => {
            "separate them by commas, and write numbers with points (in R: write.csv, not \
             write.csv2)"
        }
        ReadError::NoColumn { .. } => {
            "one row per count: sub_experiment,run,event_code,event,value; event_code is optional; \
             or a row per run and a column per event"
        }
        ReadError::WideField { .. } => {
            "a column with anything else than counts is left out by --ignore COLUMN"
        }
        ReadError::Csv { .. }
        | ReadError::Field { .. }
        | ReadError::Row { .. }
        | ReadError::Json { .. } => "fix the line, or leave out the whole run",
        ReadError::NotUtf8(_) => "save it as UTF-8",
        ReadError::TwiceColumn(_) => "remove one of them, or rename it",
        ReadError::Scaled { .. } => {
            "count fewer events at a time (`much plan`), or say what to do: --scaled leave-out or \
             keep"
        }
        ReadError::PerfText => "write it by `perf stat -x, -o FILE --append`, or with -j",
        ReadError::OtherJson => "perf's objects have `counter-value`, PAPI's `threads`",
        ReadError::Together { .. } => "give it alone",
        ReadError::OneOf { .. } => "fix the file, or remove it from the folder",
        ReadError::Utf16 => "save it as UTF-8",
        ReadError::Packed(_) => "unpack it, or write CSV or Parquet; gzip, xz and zstd are read",
        ReadError::Contents(_) => "write it again, or as CSV",
        ReadError::Compression(_) => "write it again with zstd, snappy or gzip",
        ReadError::Parquet(_) => {
            "was it copied whole? The end of a Parquet file says where everything is"
        }
        ReadError::Several(_) | ReadError::NoneChosen(_) => {
            "choose one with --vm, --vcpu and --workload"
        }
        ReadError::Data(_) => "see docs/much.md for what is needed",
    };
    miette!(help = help, "{}{joint}{text}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::ids::{Core, VcpuIndex};
    use cloison_formats::units::EventId;
    use hem::{Count, Row, Table};

    #[test]
    fn a_report_names_its_inputs_with_checksums_and_the_chosen_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("counts.csv");
        std::fs::write(&path, "123456789").expect("a file");
        let chosen = ProgramChoice {
            skip_runs: 2,
            ..ProgramChoice::default()
        };
        let figures = figures_of("much merge", &[("input", &path)], &chosen).expect("figures");
        let parameters = figures.provenance()["parameters"].clone();
        assert_eq!(parameters["input"], path.display().to_string());
        assert_eq!(
            parameters["input_crc32"], "cbf43926",
            "the check value of CRC-32"
        );
        assert_eq!(
            (parameters["skip_runs"].as_str(), parameters.get("vm")),
            (Some("2"), None)
        );
    }

    #[test]
    fn the_projects_own_parquet_and_csv_are_the_same_measurements() {
        let mut rows = vec![];
        for (sub_experiment, events) in [["A", "B"], ["B", "C"], ["A", "C"]].into_iter().enumerate()
        {
            for run in 0..4_u32 {
                for (at, name) in events.into_iter().enumerate() {
                    let event = EventId(u16::from(name.as_bytes()[0]));
                    let value = 1000 * (at as u32 + 1) + run * run;
                    let overflowed = (sub_experiment, run, at) == (1, 2, 1);
                    rows.push(Row {
                        vm: "victim".to_owned(),
                        vcpu: VcpuIndex(0),
                        core: Core(3),
                        at_ns: 5000,
                        workload: 1,
                        sub_experiment: sub_experiment as u32,
                        run,
                        cycles: 90_000 + u64::from(run),
                        by_guest: false,
                        count: Some(Count {
                            event,
                            name: name.to_owned(),
                            value,
                            overflowed,
                        }),
                    });
                }
            }
        }
        let table = Table {
            rows,
            metadata: vec![],
        };
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str, bytes: Vec<u8>| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            load(&path, &ProgramChoice::default())
                .unwrap_or_else(|error| panic!("{name}: {error:?}"))
                .found
                .measurements
        };
        let parquet = read("hem.parquet", table.to_parquet().unwrap());
        assert_eq!(parquet, read("hem.csv", table.to_csv().unwrap()));
        assert_eq!(
            (
                parquet.runs(),
                parquet.incomplete_runs,
                parquet.events.len()
            ),
            (11, 1, 4)
        );
    }
}
