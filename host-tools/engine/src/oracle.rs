//! The oracle beside a board: a plugin that compares what the hypervisor does with what it promises,
//! in every QEMU that this process starts. For the tests, on demand.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::installation;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{Header, MAGIC};
use miette::{IntoDiagnostic, Result, miette};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The variable with the plugin's file.
pub const VARIABLE: &str = "CLOISON_ORACLE";
/// QEMU's exit code after a finding.
pub const FOUND: i32 = 42;

/// The runs so far, a line each with the values of [`COUNTS`].
const RUNS: &str = "runs.csv";
/// What a report counts.
const COUNTS: [&str; 5] = ["visits", "compared", "starts", "entries", "differences"];

fn directory() -> PathBuf {
    installation::target_dir().join("oracle")
}

/// Forgets the runs so far.
///
/// # Errors
///
/// If their file cannot be removed.
pub fn forget() -> Result<()> {
    match std::fs::remove_file(directory().join(RUNS)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).into_diagnostic(),
        _ => Ok(()),
    }
}

/// Returns a sentence about the runs since then: what the oracle compared, and what it found.
///
/// # Errors
///
/// If none was watched.
pub fn sum() -> Result<String> {
    let text = std::fs::read_to_string(directory().join(RUNS)).unwrap_or_default();
    let mut sums = [0u64; COUNTS.len()];
    for line in text.lines() {
        for (sum, value) in sums.iter_mut().zip(line.split(',')) {
            *sum += value.parse::<u64>().into_diagnostic()?;
        }
    }
    let runs = text.lines().count();
    if runs == 0 {
        return Err(miette!("the oracle watched no board to its end"));
    }
    let [visits, compared, starts, entries, differences] = sums;
    Ok(format!(
        "oracle: {runs} boards, {visits} visits to EL2 ({compared} with all registers), {starts} \
         starts of vCPUs, {entries} changes of stage-2 entries, {differences} differences"
    ))
}

/// Returns QEMU's arguments for the oracle, if it is wanted and `image` is a system image. What is
/// damaged on purpose runs without.
pub fn arguments(image: &Path, report: &Path, has_one_thread: bool) -> Vec<OsString> {
    let Some(plugin) = std::env::var_os(VARIABLE) else {
        return Vec::new();
    };
    if !is_system(image) {
        return Vec::new();
    }
    let value = |path: &Path| path.display().to_string().replace(',', ",,");
    let plugin = format!(
        "file={},image={},oracle={}",
        value(Path::new(&plugin)),
        value(image),
        value(report)
    );
    let mut all: Vec<OsString> = Vec::new();
    if !has_one_thread {
        all.extend(["-accel", "tcg,thread=single"].map(OsString::from));
    }
    all.extend(["-plugin".into(), plugin.into()]);
    all
}

/// Fails after a run in which the oracle found something, or did not run although it was wanted.
/// Keeps the report. `code` is QEMU's exit code, if it ended by itself.
///
/// # Errors
///
/// What the oracle found.
pub fn judge(code: Option<i32>, errors: &str, report: &Path) -> Result<()> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    let kept = directory();
    std::fs::create_dir_all(&kept).into_diagnostic()?;
    if let Ok(text) = std::fs::read_to_string(report) {
        let whole: serde_json::Value = serde_json::from_str(&text).into_diagnostic()?;
        let line: Vec<String> = COUNTS.map(|name| whole[name].to_string()).into();
        let mut runs = OpenOptions::new()
            .create(true)
            .append(true)
            .open(kept.join(RUNS))
            .into_diagnostic()?;
        writeln!(runs, "{}", line.join(",")).into_diagnostic()?;
    }
    if code != Some(FOUND) {
        return Ok(());
    }
    let kept = kept.join(format!("{}.json", std::process::id()));
    // A plugin that failed early has no report.
    let where_it_is = match std::fs::copy(report, &kept) {
        Ok(_) => kept.display().to_string(),
        Err(error) => error.to_string(),
    };
    Err(miette!(
        help = format!("the report: {where_it_is}"),
        "the oracle found that a promise does not hold:\n{errors}"
    ))
}

/// Returns whether a file is a boot image with a system image that decodes.
fn is_system(image: &Path) -> bool {
    let Ok(bytes) = std::fs::read(image) else {
        return false;
    };
    (0..bytes.len())
        .step_by(PAGE_SIZE as usize)
        .map(|at| &bytes[at..])
        .filter(|rest| rest.starts_with(&MAGIC))
        .any(|rest| {
            Header::parse(rest, crc32fast::hash)
                .is_ok_and(|header| header.decode(rest, crc32fast::hash).is_ok())
        })
}
