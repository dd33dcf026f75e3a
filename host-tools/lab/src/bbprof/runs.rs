//! Boots a system once for each choice of pages that the caches may not hold, and keeps the times
//! of its segments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boards::Boards;
use crate::boards::boot::{Boot, Output};
use crate::experiment::overrides;
use cloison_abi::services;
use cloison_config::Checked;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::image::prelude::{self, Others, Pages};
use cloison_engine::image::{self, Flat, Image};
use cloison_engine::kept::KeptRun;
use cloison_engine::model::{self, Conditions, Model};
use cloison_engine::parts;
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
    model: Model,
    store: Store,
    /// Hash of what all boots share.
    common: Sha256,
    out: PathBuf,
    reused: AtomicUsize,
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
    /// If the image cannot be built, or the model not be read.
    pub fn new(subject: Subject<'a>, model: &Model, out: &Path) -> Result<Self> {
        let store = Store::of_results(out);
        let model = model.kept_in(&store)?;
        let hypervisor = image::flatten(&parts::hypervisor(&[])?)?;
        let base = image::assemble(subject.checked, &hypervisor)?;
        let text = overrides::anchored(&subject.checked.source, &subject.checked.path)?;
        let text = toml::to_string_pretty(&text).into_diagnostic()?;
        let emulation = subject.checked.emulation()?;
        let mut common = model.hash()?;
        let (warm_up, conditions) = (subject.warm_up, subject.conditions);
        common.update(format!(
            "{RESULT_VERSION} {emulation:?} {warm_up} {conditions:?}"
        ));
        let (out, reused) = (out.to_path_buf(), AtomicUsize::new(0));
        Ok(Self {
            subject,
            text,
            base,
            hypervisor,
            model,
            store,
            common,
            out,
            reused,
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
        boards.each(bar, points, |point| {
            bar.set_message(point.key.clone());
            let cycles = self
                .boot(boards, point)
                .wrap_err_with(|| miette!("run {} failed", point.key))?;
            match segments.filter(|wanted| *wanted != cycles.len()) {
                Some(wanted) => Err(miette!(
                    help = "a guest whose segments depend on its own run time cannot be profiled",
                    "run {} has {} segments, where the first run had {wanted}",
                    point.key,
                    cycles.len()
                )),
                None => Ok(cycles),
            }
        })
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
        KeptRun::clean(&self.out, &self.model, &self.store);
    }

    fn boot(&self, boards: &Boards, point: &Point) -> Result<Vec<u64>> {
        let Subject {
            checked,
            board,
            vm,
            others,
            conditions,
            ..
        } = self.subject;
        let directory = self.out.join("runs").join(&point.key);
        let image = prelude::before(
            &self.base,
            &self.hypervisor,
            vm,
            &ranges(&point.uncached),
            others,
        )?;
        let mut hash = self.common.clone();
        hash.update(&image.bytes);
        let inputs = files::digest(hash);
        let file = directory.join("result.json");
        let kept = KeptRun::new(board, &image, &self.model, &self.store, conditions)?;
        kept.write(&directory)?;
        write_atomic(&directory.join("system.toml"), self.text.as_bytes())?;
        if let Some(KeptTimes { cycles, .. }) =
            boards.reuse(|| files::kept(&file).filter(|it: &KeptTimes| it.inputs == inputs))
        {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(cycles);
        }
        let output = boards.boot(&directory, Boot::new(checked.emulation()?, kept, LIMIT))?;
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

    /// Returns the cycles of the VM's segments in the hypervisor's log or, of a VM without the
    /// service `hem`, of the model's regions of interest.
    fn segments(&self, output: &Output, statistics: &Path) -> Result<Vec<u64>> {
        let Subject {
            checked,
            vm,
            warm_up,
            ..
        } = self.subject;
        let vm_of = &checked.system.vms[vm.index()];
        if output.console.contains(prelude::REFUSED) {
            return Err(miette!(
                "the hypervisor refused to make a page non-cacheable"
            ));
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
