//! Boards that are started many times: here, as many at once as there are cores, or elsewhere as
//! jobs.
//!
//! Code that runs boards many times asks [`Boards`] for the output of each [`Boot`] and evaluates
//! it. It does not know whether the boot happens now, is only noted as a job, or has happened on
//! another machine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`boot`] | one start of a board with all its inputs, and their key |
//! | [`result`] | the file with a boot's output |
//! | [`seconds`] | the durations of a command's boots, for the next one's estimate |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod boot;
pub mod result;
pub mod seconds;

use boot::{Boot, Output};
use cloison_engine::store::Store;
use indicatif::ProgressBar;
use miette::{Diagnostic, Report, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// A boot has no output yet: it is only planned, or its result is missing.
#[derive(Clone, Copy, Debug, Error, Diagnostic)]
#[error("not all boots have a result")]
pub struct Absent;

/// Where boots happen.
#[derive(Debug)]
pub struct Boards {
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Here {
        seconds: Mutex<Vec<f64>>,
    },
    Planned {
        root: PathBuf,
        parts: Store,
        results: Option<PathBuf>,
        boots: Mutex<BTreeMap<String, NamedBoot>>,
    },
    Elsewhere {
        root: PathBuf,
        results: PathBuf,
        known: BTreeMap<String, String>,
        lacking: Mutex<Gaps>,
    },
}

/// A boot, and the directory of its run in the results.
#[derive(Clone, Debug)]
pub struct NamedBoot {
    /// The directory, relative to that of the report.
    pub run: String,
    /// The boot.
    pub boot: Boot,
}

/// Results that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Runs without a result, and why.
    pub missing: BTreeMap<String, String>,
    /// Runs whose inputs are not those of any job.
    pub changed: Vec<String>,
}

impl Boards {
    /// Returns the boards of this machine.
    pub const fn here() -> Self {
        Self {
            mode: Mode::Here {
                seconds: Mutex::new(vec![]),
            },
        }
    }

    /// Returns boards that start nothing and note each boot for a report in `root`. The boots'
    /// files are put into the store in `parts`.
    pub fn planned(root: &Path, parts: &Path) -> Self {
        Self {
            mode: Mode::Planned {
                root: root.to_path_buf(),
                parts: Store::at(parts),
                results: None,
                boots: Mutex::default(),
            },
        }
    }

    /// Like [`Self::planned`], where boots that have a result in a directory return it: so work
    /// whose next boots depend on the last ones' output is planned round by round.
    pub fn continued(root: &Path, parts: &Path, results: &Path) -> Self {
        let mut boards = Self::planned(root, parts);
        if let Mode::Planned { results: from, .. } = &mut boards.mode {
            *from = Some(results.to_path_buf());
        }
        boards
    }

    /// Returns boards that were started elsewhere, for a report in `root`: their results are files
    /// of a directory. `known` has the keys of the boots that were planned, and the names of
    /// their runs.
    pub fn elsewhere(root: &Path, results: &Path, known: BTreeMap<String, String>) -> Self {
        let (root, results) = (root.to_path_buf(), results.to_path_buf());
        Self {
            mode: Mode::Elsewhere {
                root,
                results,
                known,
                lacking: Mutex::default(),
            },
        }
    }

    /// Returns the output of a boot, whose files are in `directory`.
    ///
    /// # Errors
    ///
    /// [`Absent`] if there is no output yet; otherwise the reason why the board could not be
    /// started.
    pub fn boot(&self, directory: &Path, boot: Boot) -> Result<Output> {
        self.boot_watched(directory, boot, |_| {})
    }

    /// Like [`Self::boot`]. Calls `on_line` with each line of the console while the board runs, if
    /// it runs here.
    ///
    /// # Errors
    ///
    /// As [`Self::boot`].
    pub fn boot_watched(
        &self,
        directory: &Path,
        boot: Boot,
        on_line: impl FnMut(&str) + Send + 'static,
    ) -> Result<Output> {
        match &self.mode {
            Mode::Here { seconds } => {
                let output = boot.perform(directory, on_line)?;
                lock(seconds).push(output.seconds);
                Ok(output)
            }
            Mode::Planned {
                root,
                parts,
                results,
                boots,
            } => {
                let (run, key) = (name(root, directory), boot.key());
                let known = results
                    .as_ref()
                    .and_then(|results| result::read(&result::path(results, &key), &key).ok());
                if known.is_none() {
                    let (from, names) = boot.parts();
                    let from = Store::at(from);
                    names
                        .into_iter()
                        .try_for_each(|name| parts.add_from(&from, name))?;
                }
                // The same boot may belong to several runs.
                lock(boots).entry(key).or_insert(NamedBoot { run, boot });
                known.ok_or_else(|| Absent.into())
            }
            Mode::Elsewhere {
                root,
                results,
                known,
                lacking,
            } => {
                let (run, key) = (name(root, directory), boot.key());
                if !known.contains_key(&key) {
                    lock(lacking).changed.push(run);
                    return Err(Absent.into());
                }
                match result::read(&result::path(results, &key), &key) {
                    Ok(output) => Ok(output),
                    Err(error) => {
                        lock(lacking).missing.insert(run, error.to_string());
                        Err(Absent.into())
                    }
                }
            }
        }
    }

    /// Returns a result that an earlier command has kept, unless every boot is to be planned.
    pub fn reuse<T>(&self, kept: impl FnOnce() -> Option<T>) -> Option<T> {
        if matches!(self.mode, Mode::Planned { .. }) {
            None
        } else {
            kept()
        }
    }

    /// Returns `None` for a piece of work whose boots have no output yet: the next pieces can then
    /// plan their boots too.
    ///
    /// # Errors
    ///
    /// Any other error of the work.
    pub fn defer<T>(&self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Err(error) if error.is::<Absent>() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Does a piece of work for each item, as many at a time as this machine has cores, and shows
    /// its progress. Returns the results in the items' order. The first error ends it, except that
    /// of a boot without output: then all others are asked for too.
    ///
    /// # Errors
    ///
    /// The first error, or [`Absent`].
    pub fn each<T: Sync, R: Send>(
        &self,
        bar: &ProgressBar,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let workers = std::thread::available_parallelism()
            .map_or(1, std::num::NonZero::get)
            .min(items.len());
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
        let failed: Mutex<Option<Report>> = Mutex::new(None);
        // What an earlier command has done says nothing about the rest.
        bar.reset_eta();
        let worker = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { break };
                match work(item) {
                    Ok(result) => lock(&done)[index] = Some(result),
                    Err(error) if error.is::<Absent>() => {}
                    Err(error) => {
                        // The other workers finish what they have begun, and nothing new starts.
                        next.store(items.len(), Ordering::Relaxed);
                        lock(&failed).get_or_insert(error);
                    }
                }
                bar.inc(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(worker);
            }
        });
        if let Some(error) = lock(&failed).take() {
            return Err(error);
        }
        let all: Option<Vec<R>> = std::mem::take(&mut *lock(&done)).into_iter().collect();
        all.ok_or_else(|| Absent.into())
    }

    /// Returns the wall time of each boot that happened here, in seconds.
    pub fn seconds(&self) -> Vec<f64> {
        if let Mode::Here { seconds } = &self.mode {
            lock(seconds).clone()
        } else {
            vec![]
        }
    }

    /// Returns the boots that were noted, by key.
    pub fn into_planned(self) -> BTreeMap<String, NamedBoot> {
        let Mode::Planned { boots, .. } = self.mode else {
            return BTreeMap::new();
        };
        boots.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the results that could not be used.
    pub fn into_lacking(self) -> Gaps {
        let Mode::Elsewhere { lacking, .. } = self.mode else {
            return Gaps::default();
        };
        lacking.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a run: its directory relative to the report's.
fn name(root: &Path, directory: &Path) -> String {
    directory
        .strip_prefix(root)
        .unwrap_or(directory)
        .display()
        .to_string()
}

/// A worker that panicked cannot have left these inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use miette::miette;

    #[test]
    fn an_absent_boot_stops_nothing_and_an_error_stops_all() {
        let items: Vec<u64> = (0..200).collect();
        let bar = ProgressBar::hidden();
        let asked = AtomicUsize::new(0);
        let each = |work: &(dyn Fn(u64) -> Result<u64> + Sync)| {
            asked.store(0, Ordering::Relaxed);
            let boards = Boards::here();
            boards.each(&bar, &items, |item| {
                asked.fetch_add(1, Ordering::Relaxed);
                work(*item)
            })
        };
        let doubled = each(&|item| Ok(item * 2)).expect("all succeed");
        assert_eq!(
            doubled,
            items.iter().map(|item| item * 2).collect::<Vec<_>>(),
            "in their order"
        );
        let absent = each(&|item| {
            if item % 3 == 0 {
                Err(Absent.into())
            } else {
                Ok(item)
            }
        })
        .expect_err("some are absent");
        assert!(absent.is::<Absent>());
        assert_eq!(
            asked.load(Ordering::Relaxed),
            200,
            "the others are asked for"
        );
        let error = each(&|item| {
            if item < 100 {
                Err(miette!("no disk"))
            } else {
                Ok(item)
            }
        })
        .expect_err("it fails");
        assert_eq!(error.to_string(), "no disk");
        assert!(asked.load(Ordering::Relaxed) < 200, "nothing more is begun");
    }

    #[test]
    fn only_what_is_absent_is_deferred() {
        let boards = Boards::here();
        assert_eq!(boards.defer(Ok(1)).expect("it is there"), Some(1));
        assert_eq!(
            boards
                .defer::<u64>(Err(Absent.into()))
                .expect("it is deferred"),
            None
        );
        assert!(boards.defer::<u64>(Err(miette!("no disk"))).is_err());
    }

    #[test]
    fn planning_takes_no_kept_result() {
        let root = Path::new("/nowhere");
        assert_eq!(Boards::here().reuse(|| Some(1)), Some(1));
        assert_eq!(Boards::planned(root, root).reuse(|| Some(1)), None);
        assert_eq!(name(root, Path::new("/nowhere/runs/solo")), "runs/solo");
    }
}
