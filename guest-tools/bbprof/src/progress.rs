//! Progress of long work on the standard error: the part done, and the time left.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

/// How often it is shown.
const PAUSE: Duration = Duration::from_secs(5);

/// Progress of a known number of runs.
pub struct Progress {
    done: usize,
    all: usize,
    start: Instant,
    shown: Instant,
    is_quiet: bool,
}

impl Progress {
    /// Starts the work.
    pub fn new(all: usize, is_quiet: bool) -> Self {
        let now = Instant::now();
        Self {
            done: 0,
            all,
            start: now,
            shown: now,
            is_quiet,
        }
    }

    /// Notes that one more run is done.
    pub fn step(&mut self) {
        self.done += 1;
        if !self.is_quiet && self.shown.elapsed() >= PAUSE && self.done < self.all {
            self.shown = Instant::now();
            eprintln!(
                "bbprof: {} of {} runs, {} s left",
                self.done,
                self.all,
                self.left(self.start.elapsed()).as_secs()
            );
        }
    }

    /// Returns the time left, if the rest takes as long as what is done.
    fn left(&self, elapsed: Duration) -> Duration {
        let rest = self.all.saturating_sub(self.done) as f64;
        elapsed.mul_f64(rest / self.done.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let mut progress = Progress::new(10, true);
        progress.step();
        progress.step();
        assert_eq!(
            progress.left(Duration::from_secs(4)),
            Duration::from_secs(16)
        );
        (0..20).for_each(|_| progress.step());
        assert_eq!(progress.left(Duration::from_secs(4)), Duration::ZERO);
    }
}
