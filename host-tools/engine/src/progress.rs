//! Shows the progress of a command.
// SPDX-License-Identifier: MIT OR Apache-2.0

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use miette::Result;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// All that is shown at a time, each on its own line: two that drew on one line would leave parts
/// of it behind.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Returns a bar for `length` pieces of work, which shows how long it has taken and the piece that
/// was set as its message; prints nothing if there is no terminal.
pub fn bar(name: &str, length: usize) -> ProgressBar {
    let bar = SHOWN.add(ProgressBar::new(length as u64));
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed}, {eta} left  {msg}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Returns a spinner for work of unknown length; prints nothing if there is no terminal.
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = SHOWN.add(ProgressBar::new_spinner());
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
    eprintln!(
        "{name:<18} {mark} in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    result
}
