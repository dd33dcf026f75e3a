//! Shows the progress of a command.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::interrupted;
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle, WeakProgressBar};
use miette::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::IsTerminal;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All that is shown at a time, each on its own line: two that drew on one line would leave parts
/// of it behind.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// How long a command says nothing where no terminal shows its progress.
const SILENCE: Duration = Duration::from_secs(30);

/// What a line says from time to time where no terminal shows it. The first use starts a thread for
/// these lines.
static TOLD: LazyLock<Mutex<Vec<WeakProgressBar>>> = LazyLock::new(|| {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(SILENCE);
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|bar| bar.upgrade().is_some_and(|bar| !bar.is_finished()));
            for bar in told.iter().filter_map(WeakProgressBar::upgrade) {
                eprintln!("{}", line(&bar));
            }
        }
    });
    Mutex::default()
});

/// Describes the state of a bar or a spinner.
fn line(bar: &ProgressBar) -> String {
    match bar.length() {
        Some(all) => {
            let (done, taken, left) = (bar.position(), bar.elapsed(), bar.eta());
            // Nothing tells how long it takes at the beginning, nor after the process was stopped.
            let is_known = done > 0 && left.as_secs() <= taken.as_secs().saturating_mul(all);
            let time = match is_known {
                true => format!("about {} left", HumanDuration(left)),
                false => format!("after {}", HumanDuration(taken)),
            };
            format!("{}: {done} of {all} done, {time}", bar.prefix())
        }
        None => format!("{}, for {}", bar.message(), HumanDuration(bar.elapsed())),
    }
}

/// Says what an interruption leaves, once a command has begun work that is kept piece by piece.
static INTERRUPTED: LazyLock<()> = LazyLock::new(|| {
    // Without a handler the program ends all the same.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    std::thread::spawn(move || {
        for signal in &mut signals {
            let _ = SHOWN.clear();
            eprintln!("interrupted: finished boots are kept; the same command continues");
            for file in interrupted::keep() {
                eprintln!(
                    "  {}: what an unfinished boot had sent, for `cloison hem decode`; nothing else \
                     reads it",
                    file.display()
                );
            }
            let _ = emulate_default_handler(signal);
        }
    });
});

fn tell(bar: &ProgressBar) {
    if !std::io::stderr().is_terminal() {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(bar.downgrade());
    }
}

/// Returns a bar for `length` pieces of work, which shows how long it has taken and the piece that
/// was set as its message; without a terminal, a line every half minute.
pub fn bar(name: &str, length: usize) -> ProgressBar {
    let bar = SHOWN.add(ProgressBar::new(length as u64));
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed}, {eta} left  {msg}")
    {
        bar.set_style(style);
    }
    LazyLock::force(&INTERRUPTED);
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_secs(1));
    tell(&bar);
    bar
}

/// Returns a spinner for work of unknown length; without a terminal, a line every half minute.
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = SHOWN.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    tell(&spinner);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_the_work_is() {
        let bar = ProgressBar::hidden();
        bar.set_length(12);
        bar.set_prefix("c2is");
        assert_eq!(line(&bar), "c2is: 0 of 12 done, after 0 seconds");
        bar.inc(3);
        let said = line(&bar);
        assert!(said.starts_with("c2is: 3 of 12 done, about "), "{said}");
        let spinner = ProgressBar::hidden();
        spinner.unset_length();
        spinner.set_message("building for AArch64");
        assert_eq!(line(&spinner), "building for AArch64, for 0 seconds");
    }
}
