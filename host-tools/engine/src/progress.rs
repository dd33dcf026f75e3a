//! Shows the progress of a command.
// SPDX-License-Identifier: MIT OR Apache-2.0

use indicatif::{ProgressBar, ProgressStyle};
use miette::Result;
use std::time::{Duration, Instant};

/// Returns a spinner for work of unknown length; prints nothing if there is no terminal.
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// Does one stage of a command, shows it while it lasts, and prints how long it took.
pub fn stage<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    stage_with(name, |_| work())
}

/// Like [`stage`], for work that reports its progress.
pub fn stage_with<T>(name: &str, work: impl FnOnce(&ProgressBar) -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let spinner = spinner(name);
    let result = work(&spinner);
    spinner.finish_and_clear();
    let mark = if result.is_ok() { "done" } else { "failed" };
    eprintln!("{name:<18} {mark} in {:.1} s", started.elapsed().as_secs_f64());
    result
}
