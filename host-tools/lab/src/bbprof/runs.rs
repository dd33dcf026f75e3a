//! Boots a system once for each choice of pages that the caches may not hold, and keeps the times
//! of its segments; or takes these from runs on a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boards::Boards;
use crate::boards::boot::{Boot, Output};
use crate::captured::{self, CapturedRun, CapturedRuns, NotCaptured};
use crate::experiment::overrides;
use cloison_abi::services;
use cloison_config::Checked;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::image::prelude::{self, Others, Pages};
use cloison_engine::image::{self, Flat, Image};
use cloison_engine::kept::{KeptImage, KeptRun};
use cloison_engine::model::{self, Conditions, Model};
use cloison_engine::store::Store;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::ids::VmId;
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time limit: a boot that takes longer has hung, or its guest does not end.
const LIMIT: Duration = Duration::from_secs(600);
/// Changes with the code that reads a run's times, so that older results are not taken for new
/// ones.
const RESULT_VERSION: u32 = 1;
/// Digits that tell the systems of a profile's images apart.
const NAME_DIGITS: usize = 8;

/// A boot: its name, and the pages that the caches may not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Name of its directory.
    pub key: String,
    /// Addresses of the pages.
    pub uncached: BTreeSet<Ipa>,
}

/// The subject of the measurement.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The system.
    pub checked: &'a Checked,
    /// The board: a shipped one's name, or the path of its file.
    pub board: &'a str,
    /// Index of the VM.
    pub vm: VmId,
    /// Whether the other VMs run.
    pub others: Others,
    /// Number of its first segments to leave out.
    pub warm_up: usize,
    /// How the model runs.
    pub conditions: Conditions,
}

/// A system, ready to be booted.
#[derive(Debug)]
pub struct Runs<'a> {
    subject: Subject<'a>,
    /// The system's text, wherever it is read.
    text: String,
    base: Image,
    hypervisor: Flat,
    executor: Executor<'a>,
    out: PathBuf,
    reused: AtomicUsize,
}

/// What executes the boots.
#[derive(Debug)]
pub enum Executor<'a> {
    /// What boots when it is asked to.
    Boots(Booted),
    /// A board, whose runs were captured. The images of other runs go to a folder, if one is named.
    Captured(&'a CapturedRuns, Option<&'a Path>),
}

/// What boots an image when it is asked to; the files of all images are in a store.
#[derive(Debug)]
pub enum Booted {
    /// The board model.
    Model(Box<Model>, Store),
    /// A board, by jobs.
    Hardware(Store),
}

impl Booted {
    /// Returns the board model, for boots whose files are in `out`.
    ///
    /// # Errors
    ///
    /// If the model's files cannot be kept there.
    pub fn model(model: &Model, out: &Path) -> Result<Self> {
        let store = Store::of_results(out);
        let model = model.kept_in(&store)?;
        Ok(Self::Model(Box::new(model), store))
    }
}

/// The times of a boot, as they are kept.
#[derive(Debug, Serialize, Deserialize)]
struct KeptTimes {
    inputs: String,
    cycles: Vec<u64>,
}

impl<'a> Runs<'a> {
    /// Prepares boots whose files are in `out`.
    ///
    /// # Errors
    ///
    /// If the image cannot be built.
    pub fn new(subject: Subject<'a>, executor: Executor<'a>, out: &Path) -> Result<Self> {
        let hypervisor = image::hypervisor_for(&subject.checked.system.board)?;
        let base = image::assemble(subject.checked, &hypervisor)?;
        let text = overrides::anchored(&subject.checked.source, &subject.checked.path)?;
        let text = toml::to_string_pretty(&text).into_diagnostic()?;
        Ok(Self {
            subject,
            text,
            base,
            hypervisor,
            executor,
            out: out.to_path_buf(),
            reused: AtomicUsize::new(0),
        })
    }

    /// Returns the cycles of each boot's segments, in the order of points. Boots with a kept result
    /// from the same inputs do not happen again.
    ///
    /// # Errors
    ///
    /// If a boot fails, or logs other than `segments` segments.
    pub fn measure(
        &self,
        boards: &Boards,
        bar: &ProgressBar,
        points: &[Point],
        segments: Option<usize>,
    ) -> Result<Vec<Vec<u64>>> {
        let booted = match &self.executor {
            Executor::Boots(booted) => booted,
            Executor::Captured(runs, images) => {
                return self.captured(runs, *images, points, segments);
            }
        };
        boards.each(bar, points, |point| {
            bar.set_message(point.key.clone());
            let cycles = self
                .boot(boards, booted, point)
                .wrap_err_with(|| miette!("run {} failed", point.key))?;
            self.alike(point, &cycles, segments)?;
            Ok(cycles)
        })
    }

    /// Checks that a boot has as many segments as the first one.
    fn alike(&self, point: &Point, cycles: &[u64], segments: Option<usize>) -> Result<()> {
        match segments.filter(|wanted| *wanted != cycles.len()) {
            Some(wanted) => Err(miette!(
                help = "a guest whose segments depend on its own run time cannot be profiled",
                "run {} has {} segments, where the first run had {wanted}",
                point.key,
                cycles.len()
            )),
            None => Ok(()),
        }
    }

    /// Returns the cycles of runs on a board, or all that are missing as one error.
    fn captured(
        &self,
        runs: &CapturedRuns,
        images: Option<&Path>,
        points: &[Point],
        segments: Option<usize>,
    ) -> Result<Vec<Vec<u64>>> {
        let (mut all, mut names) = (vec![], vec![]);
        for point in points {
            let image = self.image_of(point)?;
            let Some(run) = runs.of(&image) else {
                if let Some(images) = images {
                    captured::write(images, &point.key, &image, &self.text)?;
                }
                names.push(point.key.clone());
                continue;
            };
            let cycles = self
                .of_captured(run, &image)
                .wrap_err_with(|| miette!("run {} failed", point.key))?;
            self.alike(point, &cycles, segments)?;
            all.push(cycles);
        }
        if names.is_empty() {
            return Ok(all);
        }
        let wanted = points.len();
        Err(NotCaptured { names, wanted }.into())
    }

    /// Returns the cycles of the segments of a run on a board.
    fn of_captured(&self, run: &CapturedRun, image: &Image) -> Result<Vec<u64>> {
        let vm = self.subject.vm;
        if run.shows(prelude::REFUSED)? {
            return Err(refused());
        }
        let telemetry = run.telemetry(&image.system.name, vm)?;
        let own = telemetry.hem_runs().filter(|run| run.record.vm == vm);
        self.warm(own.map(|run| run.record.cycles.0).collect())
    }

    /// Says in one error which of these boots no board has made, before the first one is looked at.
    ///
    /// # Errors
    ///
    /// As [`Self::measure`].
    pub fn require(&self, points: &[Point]) -> Result<()> {
        match &self.executor {
            Executor::Boots(_) => Ok(()),
            Executor::Captured(runs, images) => {
                self.captured(runs, *images, points, None).map(drop)
            }
        }
    }

    /// Returns the number of boots whose kept results were used.
    pub fn reused(&self) -> usize {
        self.reused.load(Ordering::Relaxed)
    }

    /// Returns the SHA-256 of the image without a program before the guest.
    pub fn image(&self) -> String {
        self.base.sha256()
    }

    /// Removes files that no run needs any more.
    pub fn clean(&self) {
        if let Executor::Boots(Booted::Model(model, store)) = &self.executor {
            KeptRun::clean(&self.out, model, store);
        }
    }

    /// Returns the image of a boot. Its system has a name that no other has, by which a run tells of
    /// which image it is; all these names have the same length, so that no boot takes longer by it.
    fn image_of(&self, point: &Point) -> Result<Image> {
        let Subject { vm, others, .. } = self.subject;
        let mut sum = Sha256::new();
        for page in &point.uncached {
            sum.update(page.0.to_le_bytes());
        }
        let sum = files::digest(sum);
        let mut base = self.base.clone();
        base.system.name = format!("{}.{}", base.system.name, &sum[..NAME_DIGITS]);
        let uncached = ranges(&point.uncached);
        Ok(prelude::before(
            &base,
            &self.hypervisor,
            vm,
            &uncached,
            others,
        )?)
    }

    fn boot(&self, boards: &Boards, booted: &Booted, point: &Point) -> Result<Vec<u64>> {
        let directory = self.out.join("runs").join(&point.key);
        let boot = self.prepared(booted, &directory, &self.image_of(point)?)?;
        write_atomic(&directory.join("system.toml"), self.text.as_bytes())?;
        let inputs = format!("{RESULT_VERSION} {} {}", self.subject.warm_up, boot.key());
        let file = directory.join("result.json");
        if let Some(KeptTimes { cycles, .. }) =
            boards.reuse(|| files::kept(&file).filter(|it: &KeptTimes| it.inputs == inputs))
        {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(cycles);
        }
        let output = boards.boot(&directory, boot)?;
        output.write(&directory)?;
        let cycles = self.segments(&output, &directory.join("model.json"));
        let cycles =
            cycles.wrap_err_with(|| miette!("the console's last lines:\n{}", output.tail()))?;
        files::keep(
            &file,
            &KeptTimes {
                inputs,
                cycles: cycles.clone(),
            },
        )?;
        Ok(cycles)
    }

    /// Returns the boot of an image, and writes what repeats it if the model executes it.
    fn prepared(&self, booted: &Booted, directory: &Path, image: &Image) -> Result<Boot> {
        let Subject {
            checked,
            board,
            conditions,
            ..
        } = self.subject;
        match booted {
            Booted::Model(model, store) => {
                let kept = KeptRun::new(board, image, model, store, conditions)?;
                kept.write(directory)?;
                Ok(Boot::new(checked.emulation()?, kept, LIMIT))
            }
            Booted::Hardware(store) => {
                let kept = KeptImage::new(image, store)?;
                let board = &checked.board.board.name;
                Ok(Boot::on_hardware(board, kept, 0, LIMIT))
            }
        }
    }

    /// Returns the cycles of the VM's segments in the hypervisor's log or, of a VM without the
    /// service `hem`, of the model's regions of interest.
    fn segments(&self, output: &Output, statistics: &Path) -> Result<Vec<u64>> {
        let Subject { checked, vm, .. } = self.subject;
        let vm_of = &checked.system.vms[vm.index()];
        if output.console.contains(prelude::REFUSED) {
            return Err(refused());
        }
        if !output.exit.is_clean() {
            let help = "the VM has to turn itself off after its segments";
            return Err(miette!(
                help = help,
                "the board did not turn itself off: {}",
                output.exit
            ));
        }
        let telemetry = Telemetry::parse(&output.telemetry);
        telemetry.check()?;
        let (dropped, end) = (telemetry.dropped(), telemetry.end_of(vm));
        if dropped > 0 || end != End::Off {
            return Err(miette!("{dropped} records were dropped; the VM: {end}"));
        }
        let cycles: Vec<u64> = if vm_of.services & services::HEM == 0 {
            // Whichever of the VM's cores began and ended the region: its cores alone have run.
            let of = |region: &model::Region| {
                let cores = vm_of
                    .cores
                    .iter()
                    .filter_map(|core| region.cores.get(core.index()));
                cores.map(|core| core.cycles).max().unwrap_or_default()
            };
            model::statistics(statistics)?
                .regions
                .iter()
                .map(of)
                .collect()
        } else {
            let own = telemetry.hem_runs().filter(|run| run.record.vm == vm);
            own.map(|run| run.record.cycles.0).collect()
        };
        self.warm(cycles)
    }

    /// Returns the cycles of the segments after those that warm up.
    fn warm(&self, cycles: Vec<u64>) -> Result<Vec<u64>> {
        let Subject {
            checked,
            vm,
            warm_up,
            ..
        } = self.subject;
        let vm_of = &checked.system.vms[vm.index()];
        if cycles.len() <= warm_up {
            let help = "the time is that of the VM's segments: give it services = [\"hem\"] and \
                        let the guest call segment_begin and segment_end, or let it mark a region \
                        of interest for the board model (docs/board-model.md)";
            let logged = cycles.len();
            return Err(match vm_of.services & services::HEM {
                0 => miette!(
                    help = help,
                    "VM `{}` has marked {logged} regions of interest; more than {warm_up} are \
                     needed",
                    vm_of.name
                ),
                _ => miette!(
                    help = help,
                    "VM `{}` has logged {logged} segments; more than {warm_up} are needed",
                    vm_of.name
                ),
            });
        }
        Ok(cycles[warm_up..].to_vec())
    }
}

fn refused() -> miette::Report {
    miette!("the hypervisor refused to make a page non-cacheable")
}

/// Returns pages as ranges of consecutive ones.
fn ranges(pages: &BTreeSet<Ipa>) -> Vec<Pages> {
    let mut ranges: Vec<Pages> = Vec::new();
    for &page in pages {
        match ranges.last_mut() {
            Some(last) if last.first.0 + last.pages * PAGE_SIZE == page.0 => last.pages += 1,
            _ => ranges.push(Pages {
                first: page,
                pages: 1,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_pages_are_one_range() {
        let pages: BTreeSet<Ipa> = [0x5000, 0x1000, 0x2000, 0x3000, 0x6000].map(Ipa).into();
        let expected = [
            Pages {
                first: Ipa(0x1000),
                pages: 3,
            },
            Pages {
                first: Ipa(0x5000),
                pages: 2,
            },
        ];
        assert_eq!(ranges(&pages), expected);
        assert_eq!(ranges(&BTreeSet::new()), []);
    }
}
