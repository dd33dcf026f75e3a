//! The oracle beside a board: a plugin that compares what the hypervisor does with what it promises,
//! in every QEMU that this process starts. For the tests, on demand.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::installation;
use crate::qemu::Exit;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{Header, MAGIC};
use miette::{IntoDiagnostic, Result, miette};
use std::ffi::OsString;
use std::path::Path;

/// The variable with the plugin's file.
pub const VARIABLE: &str = "CLOISON_ORACLE";
/// QEMU's exit code after a finding.
pub const FOUND: i32 = 42;

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
/// Keeps the report.
///
/// # Errors
///
/// What the oracle found.
pub fn judge(exit: Exit, errors: &str, report: &Path) -> Result<()> {
    if exit != Exit::Code(FOUND) {
        return Ok(());
    }
    let kept = installation::target_dir().join("oracle");
    std::fs::create_dir_all(&kept).into_diagnostic()?;
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
