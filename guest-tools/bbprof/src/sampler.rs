//! Runs of the target, each with some of its pages treated apart: the layout that they share, and
//! one sample of each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{Error, Phase};
use crate::held::HeldLease;
use crate::memory::{Frame, Memory};
use crate::program::Facts;
use crate::signals;
use crate::target::{self, Breakpoint, Launch, Place, Target};
use cloison_client::{Services, events, region};
use cloison_profile::layout::{self, Kind, Mapping, PAGE, PageName, Selection};
use cloison_profile::{Excluded, Times};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Attempts to take a sample in which no frame changes.
const ATTEMPTS: u32 = 3;

/// Sleep before each run.
const BREATH: Duration = Duration::from_millis(5);

/// The profiled program, and the way to run it.
pub struct Setup {
    /// How to start the program.
    pub launch: Launch,
    /// The facts of its file.
    pub facts: Facts,
    /// Where the function is.
    pub place: Place,
    /// Which mappings.
    pub selection: Selection,
    /// Switch the board model on in the segment.
    pub model: bool,
}

/// The layout that all runs must have.
struct Layout {
    mappings: Vec<Mapping>,
    /// Pages by which the stack grows in the segment.
    grows: u32,
}

/// The measurement of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Cycles of the segment.
    pub cycles: u64,
    /// Counts of the VM's events.
    pub counts: Vec<u32>,
}

/// Samples of the same treatment.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Cycles of the segment.
    pub times: Times,
    /// Mean counts of the VM's events.
    pub counts: Vec<f64>,
}

impl Samples {
    /// Adds a sample to those there are.
    pub fn add(samples: &mut Option<Self>, sample: Sample) {
        let counts = sample.counts.iter().map(|&count| f64::from(count));
        match samples {
            None => {
                *samples = Some(Self {
                    times: Times::one(sample.cycles),
                    counts: counts.collect(),
                })
            }
            Some(samples) => {
                samples.times.add(sample.cycles);
                let number = f64::from(samples.times.samples);
                samples
                    .counts
                    .iter_mut()
                    .zip(counts)
                    .for_each(|(mean, count)| *mean += (count - *mean) / number);
            }
        }
    }
}

/// The treatment of pages in a run.
#[derive(Clone, Copy, Debug)]
pub enum Treatment<'a> {
    /// Keep these from the caches.
    Uncached(&'a BTreeSet<PageName>),
    /// Move these to the private pool.
    Private(&'a [PageName]),
    /// Do not even enter the function: what the measurement itself costs.
    Empty,
}

/// Takes samples.
pub struct Sampler<'a> {
    held: &'a mut HeldLease,
    setup: Setup,
    layout: Layout,
    /// The pages that can be profiled.
    pub pages: Vec<PageName>,
    /// The others of the selected mappings.
    pub excluded: Vec<Excluded>,
    /// Names of the VM's events.
    pub events: Vec<String>,
    /// Number of samples so far that were discarded because frames had changed.
    pub voided: u64,
    run: u32,
}

/// The target at its function, with its pages in place.
struct ReadyTarget {
    target: Target,
    entry: Breakpoint,
    exit: Breakpoint,
    stack: u64,
    memory: Memory,
    mappings: Vec<Mapping>,
    frames: Vec<Frame>,
}

/// Starts the program and stops it at its function.
fn stopped(setup: &Setup) -> Result<(Target, Breakpoint, Memory), Error> {
    signals::check()?;
    // Real-time processes that never sleep would keep the kernel's own threads from this vCPU.
    std::thread::sleep(BREATH);
    let mut target = target::start(&setup.launch)?;
    let entry = target.run_to_function(&setup.facts, &setup.place)?;
    let memory = Memory::open(target.pid())?;
    if memory.threads()? != 1 {
        return Err(Error::Several {
            what: "has several threads",
            phase: Phase::Before,
        });
    }
    Ok((target, entry, memory))
}

/// Runs the program through its function. Returns its maximum of memory, in bytes.
pub fn peak(setup: &Setup) -> Result<u64, Error> {
    let (mut target, entry, memory) = stopped(setup)?;
    let exit = target.set(target.registers()?.link())?;
    target.clear(entry)?;
    target.run_to(exit, Phase::Inside)?;
    memory.peak()
}

/// Returns the pages of a layout's heap.
fn heap(mappings: &[Mapping]) -> u64 {
    mappings
        .iter()
        .filter(|mapping| mapping.kind == Kind::Heap)
        .map(|mapping| u64::from(mapping.pages))
        .sum()
}

impl Layout {
    /// Runs the program once, finds its layout, and the pages of the selected mappings that it has
    /// touched when the function returns.
    fn detect(setup: &Setup) -> Result<(Self, Vec<PageName>), Error> {
        let (mut target, entry, memory) = stopped(setup)?;
        let before = memory.layout()?;
        let exit = target.set(target.registers()?.link())?;
        target.clear(entry)?;
        target.run_to(exit, Phase::Inside)?;
        let after = memory.layout()?;
        let grows = stack_growth(&before, &after);
        let mut expected = before;
        grow_stack(&mut expected, grows);
        if let Some(change) = layout::change(&expected, &after) {
            return Err(Error::Layout(change));
        }
        // Where in a page the stack begins is random, so that another run may need a page more.
        let (mut after, spare) = (after, u32::from(grows > 0));
        grow_stack(&mut after, spare);
        let of = |mapping: &&Mapping| {
            (0..mapping.pages)
                .map(|offset| PageName {
                    vma: mapping.index,
                    offset,
                })
                .collect()
        };
        let selected: Vec<Vec<PageName>> = setup.selection.of(&after).iter().map(of).collect();
        let frames = memory.frames(&after, selected.into_iter().flatten())?;
        let touched = frames.iter().map(|frame| frame.page).collect();
        Ok((
            Self {
                mappings: after,
                grows: grows + spare,
            },
            touched,
        ))
    }
}

/// Returns by how many pages the stack has grown, if nothing else about it has changed.
fn stack_growth(before: &[Mapping], after: &[Mapping]) -> u32 {
    let stack = |layout: &[Mapping]| {
        layout
            .iter()
            .find(|mapping| mapping.kind == Kind::Stack)
            .cloned()
    };
    match (stack(before), stack(after)) {
        (Some(old), Some(new)) if old.end() == new.end() && new.start < old.start => {
            new.pages - old.pages
        }
        _ => 0,
    }
}

fn grow_stack(layout: &mut [Mapping], pages: u32) {
    for mapping in layout
        .iter_mut()
        .filter(|mapping| mapping.kind == Kind::Stack)
    {
        mapping.start -= u64::from(pages) * PAGE;
        mapping.pages += pages;
    }
}

impl<'a> Sampler<'a> {
    /// Finds the layout, and the pages that can be profiled.
    pub fn new(held: &'a mut HeldLease, setup: Setup) -> Result<Self, Error> {
        let begin = Instant::now();
        let (layout, touched) = Layout::detect(&setup)?;
        held.last_for(begin.elapsed());
        let mut sampler = Self {
            held,
            setup,
            layout,
            pages: touched,
            excluded: Vec::new(),
            events: Vec::new(),
            voided: 0,
            run: 0,
        };
        let ready = sampler.ready()?;
        sampler.exclude(&ready.frames);
        if sampler.pages.is_empty() {
            let mut reasons: Vec<&str> = sampler
                .excluded
                .iter()
                .map(|excluded| excluded.reason.as_str())
                .collect();
            reasons.sort_unstable();
            reasons.dedup();
            return Err(Error::Nothing(reasons.join(", ")));
        }
        // Events can be read once a segment has been.
        sampler.sample(Treatment::Empty)?;
        sampler.events = sampler
            .held
            .services()
            .hems()?
            .iter()
            .map(|hem| events::name(hem.event))
            .collect();
        Ok(sampler)
    }

    /// Returns the size of the heap in bytes, which shows whether the allocator follows its
    /// environment.
    pub fn heap(&self) -> u64 {
        heap(&self.layout.mappings) * PAGE
    }

    /// Returns the number of calls to the hypervisor that changed pages, so far.
    pub fn calls(&self) -> u64 {
        self.held.calls
    }

    /// Returns the mappings that all runs have.
    pub fn mappings(&self) -> &[Mapping] {
        &self.layout.mappings
    }

    /// Leaves out pages whose frame is not the program's own.
    fn exclude(&mut self, frames: &[Frame]) {
        let touched = std::mem::take(&mut self.pages);
        for mapping in self.setup.selection.of(&self.layout.mappings) {
            let of_mapping = |page: &&PageName| page.vma == mapping.index;
            let all = touched.iter().filter(of_mapping).count() as u32;
            let found: Vec<&Frame> = frames
                .iter()
                .filter(|frame| frame.page.vma == mapping.index)
                .collect();
            let own = found.iter().filter(|frame| frame.own).count() as u32;
            let shared = found.len() as u32 - own;
            let shared_reason = if mapping.access.shared {
                "a mapping that other processes or a file share"
            } else {
                "a frame that the kernel does not copy for the program"
            };
            for (pages, reason) in [
                (
                    mapping.pages - all,
                    "not touched before the end of the segment",
                ),
                (all - found.len() as u32, "no frame"),
                (shared, shared_reason),
            ] {
                if pages > 0 {
                    let (vma, name) = (mapping.index, mapping.name.clone());
                    self.excluded.push(Excluded {
                        vma,
                        name,
                        pages,
                        reason: reason.to_owned(),
                    });
                }
            }
            self.pages.extend(
                found
                    .iter()
                    .filter(|frame| frame.own)
                    .map(|frame| frame.page),
            );
        }
        self.pages.sort_unstable();
    }

    /// Starts the program and stops it at its function, with its pages faulted in, its own, and
    /// locked.
    fn ready(&self) -> Result<ReadyTarget, Error> {
        let (mut target, entry, memory) = stopped(&self.setup)?;
        let registers = target.registers()?;
        if self.layout.grows > 0 {
            let layout = memory.layout()?;
            let stack = layout.iter().find(|mapping| mapping.kind == Kind::Stack);
            let low = stack.map_or(0, |stack| {
                stack
                    .start
                    .saturating_sub(u64::from(self.layout.grows) * PAGE)
            });
            target.touch(entry, low)?;
        }
        let mappings = memory.layout()?;
        if let Some(difference) = layout::difference(&self.layout.mappings, &mappings) {
            return Err(Error::Unsteady(difference));
        }
        target.lock_pages(entry)?;
        let exit = target.set(registers.link())?;
        memory.own(&mappings, &self.pages)?;
        let frames = memory.frames(&mappings, self.pages.iter().copied())?;
        Ok(ReadyTarget {
            target,
            entry,
            exit,
            stack: registers.sp,
            memory,
            mappings,
            frames,
        })
    }

    /// Takes one sample.
    pub fn sample(&mut self, treatment: Treatment<'_>) -> Result<Sample, Error> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            let ready = self.ready()?;
            match self.measure(ready, treatment)? {
                Ok(sample) => return Ok(sample),
                Err(moved) => why = moved,
            }
            self.voided += 1;
        }
        Err(Error::Moved(ATTEMPTS, why))
    }

    /// Runs the segment. The inner error says which frame has changed, so that the sample is void.
    fn measure(
        &mut self,
        ready: ReadyTarget,
        treatment: Treatment<'_>,
    ) -> Result<Result<Sample, String>, Error> {
        let ReadyTarget {
            mut target,
            entry,
            exit,
            stack,
            memory,
            mappings,
            frames,
        } = ready;
        if frames.len() != self.pages.len() || frames.iter().any(|frame| !frame.own) {
            return Ok(Err("a page shares its frame again".to_owned()));
        }
        let is_empty = matches!(treatment, Treatment::Empty);
        if is_empty {
            // The exit may be the same instruction's page, but it is never the same instruction.
            target.clear(exit)?;
        } else {
            target.clear(entry)?;
        }
        let stop = if is_empty { entry } else { exit };
        let run = self.run;
        self.run += 1;
        let model = self.setup.model;
        let frame = |page: &PageName| {
            frames
                .iter()
                .find(|frame| frame.page == *page)
                .map(|frame| frame.ipa)
        };
        let mut segment =
            |services: &mut Services| segment(services, &mut target, stop, run, model);
        let sample = match treatment {
            Treatment::Empty => segment(self.held.services())?,
            Treatment::Uncached(pages) => {
                let kept = frames
                    .iter()
                    .filter(|frame| pages.contains(&frame.page))
                    .map(|frame| frame.ipa);
                self.held.uncached(&kept.collect::<Vec<_>>(), segment)?
            }
            Treatment::Private(pages) => {
                let moved: Vec<u64> = pages.iter().filter_map(frame).collect();
                self.held.moved(&moved, |held| segment(held.services()))?
            }
        };
        if target.registers()?.sp != stack {
            return Err(Error::Stack);
        }
        if let Some(change) = layout::change(&mappings, &memory.layout()?) {
            return Err(Error::Layout(change));
        }
        let after = memory.frames(&mappings, self.pages.iter().copied())?;
        let moved = frames
            .iter()
            .zip(&after)
            .find(|(before, after)| before != after);
        Ok(match moved {
            Some((before, after)) => Err(format!(
                "page {} was at {:#x}, and is at {:#x}",
                before.page, before.ipa, after.ipa
            )),
            None if after.len() != frames.len() => Err("a page has lost its frame".to_owned()),
            None => Ok(sample),
        })
    }

    /// Runs the program to its end with pages in the private pool, without measuring. Returns its
    /// status, and the number of pages moved.
    pub fn run(&mut self, pages: &[PageName]) -> Result<(i32, usize), Error> {
        self.setup.launch.quiet = false;
        let ready = self.ready()?;
        let wanted = |frame: &&Frame| frame.own && pages.contains(&frame.page);
        let frames: Vec<u64> = ready
            .frames
            .iter()
            .filter(wanted)
            .map(|frame| frame.ipa)
            .collect();
        // It is renewed while the program runs.
        self.held.last_for(Duration::ZERO);
        let status = self.held.moved(&frames, |held| {
            ready.target.clear(ready.exit)?;
            ready.target.clear(ready.entry)?;
            let mut lost = None;
            let status = ready.target.release(held.length() / 4, || {
                lost = lost.take().or(held.renew().err())
            });
            // The program has run to its end, but not as it was wanted.
            if let Some(error) = lost {
                eprintln!("warning: its pages did not stay in the private pool: {error}");
            }
            status
        })?;
        Ok((status, frames.len()))
    }
}

/// Runs the target to the breakpoint in an observation segment of the hypervisor. What is inside
/// beside the function: two calls to the hypervisor, and the kernel's way from the profiler to the
/// program and back.
fn segment(
    services: &mut Services,
    target: &mut Target,
    stop: Breakpoint,
    run: u32,
    model: bool,
) -> Result<Sample, Error> {
    use cloison_abi::{Call, CallError};
    if model {
        region::begin(region::Caches::Cold);
    }
    let begun = match services.segment_begin(0, 0, run) {
        // A profiler that was killed has left a segment open.
        Err(cloison_client::Error::Refused {
            call: Call::SegmentBegin,
            error: CallError::Sequence,
        }) => services
            .segment_end()
            .and_then(|_| services.segment_begin(0, 0, run)),
        other => other,
    };
    let reached = begun.map_err(Error::from).and_then(|()| {
        let reached = target.run_to(stop, Phase::Inside);
        // Ended in any case; otherwise the next segment could not start.
        let cycles = services.segment_end()?;
        reached.map(|_| cycles)
    });
    if model {
        region::end();
    }
    let cycles = reached?;
    let counts = services.hems()?.iter().map(|hem| hem.count).collect();
    Ok(Sample { cycles, counts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_profile::layout::Access;

    fn stack(start: u64, pages: u32) -> Vec<Mapping> {
        vec![Mapping {
            index: 0,
            kind: Kind::Stack,
            name: "[stack]".into(),
            start,
            pages,
            access: Access::default(),
        }]
    }

    #[test]
    fn a_stack_grows_downwards() {
        let (before, after) = (stack(0x8000_0000, 33), stack(0x7fff_e000, 35));
        assert_eq!(stack_growth(&before, &after), 2);
        assert_eq!(stack_growth(&after, &before), 0);
        assert_eq!(
            stack_growth(&before, &stack(0x8000_0000, 34)),
            0,
            "that is no growth of a stack"
        );
        let mut grown = before;
        grow_stack(&mut grown, 2);
        assert_eq!(grown, after);
    }

    #[test]
    fn means_of_counts_are_kept() {
        let mut samples = None;
        for (cycles, counts) in [(10, [1, 5]), (20, [3, 5])] {
            Samples::add(
                &mut samples,
                Sample {
                    cycles,
                    counts: counts.to_vec(),
                },
            );
        }
        let expected = Samples {
            times: Times {
                min: 10,
                mean: 15.0,
                max: 20,
                samples: 2,
            },
            counts: vec![2.0, 5.0],
        };
        assert_eq!(samples, Some(expected));
    }
}
