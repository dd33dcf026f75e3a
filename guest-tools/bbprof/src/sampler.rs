//! Runs of the target, each with some of its pages treated apart: the layout that they share, their
//! processes, and one sample of each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{Error, Phase};
use crate::held::{Cost, HeldLease};
use crate::memory::{self, Frame, Memory};
use crate::program::Facts;
use crate::signals;
use crate::snapshot::{Restored, Snapshot};
use crate::target::{self, Bounds, Breakpoint, Context, Kernel, Launch, Segment, Target, Watch};
use cloison_client::{Services, events, region};
use cloison_profile::layout::{self, Kind, Mapping, PAGE, PageName, Selection};
use cloison_profile::{Excluded, Times};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Attempts to take a sample in which no frame changes.
const ATTEMPTS: u32 = 3;

/// Sleep before each run.
const BREATH: Duration = Duration::from_millis(5);

/// Which processes the runs of a round have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// One that is restored after each run, so that its pages keep their frames. The cost of a run
    /// is that of the pages whose treatment differs from the run before.
    One,
    /// A new one for each run, for this reason.
    New(String),
}

/// The profiled program, and the way to run it.
pub struct Setup {
    /// How to start the program.
    pub launch: Launch,
    /// The facts of its file.
    pub facts: Facts,
    /// Where the segment begins and ends.
    pub bounds: Bounds,
    /// Which mappings.
    pub selection: Selection,
    /// Switch the board model on in the segment.
    pub model: bool,
    /// The processes that the user allows.
    pub processes: Processes,
}

/// The layout that all runs must have.
struct Layout {
    /// Heap and stack have only the pages up to the last one that is touched.
    mappings: Vec<Mapping>,
    /// Pages of the heap.
    heap: u64,
    /// Bytes from the stack pointer at the function to the stack's end.
    depth: u64,
    /// By how much the stack pointer differs at the end of the segment.
    pushed: u64,
    /// The pages that have been touched when the function returns: of the selected mappings, and of
    /// all that the program can change.
    touched: Vec<PageName>,
    changeable: Vec<PageName>,
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
    /// The process for the next run.
    ready: Option<ReadyTarget>,
    /// The pages that can be profiled.
    pub pages: Vec<PageName>,
    /// The others of the selected mappings.
    pub excluded: Vec<Excluded>,
    /// Names of the VM's events.
    pub events: Vec<String>,
    /// Number of samples so far that were discarded because frames had changed.
    pub voided: u64,
    /// Number of processes so far.
    pub started: u64,
    run: u32,
}

/// The target at its function, with its pages in place. Both breakpoints are set.
struct ReadyTarget {
    target: Target,
    entry: Breakpoint,
    exit: Breakpoint,
    stack: u64,
    memory: Memory,
    mappings: Vec<Mapping>,
    frames: Vec<Frame>,
    /// Its state, if it is to run more than once.
    start: Option<(Context, Snapshot)>,
}

impl ReadyTarget {
    /// Prepares it for the next run.
    fn rewind(&self) -> Result<Restored, Error> {
        match &self.start {
            None => Ok(Restored::NewPages(0)),
            Some((context, snapshot)) => {
                self.target.return_to(context)?;
                snapshot.restore(&self.memory, &self.mappings)
            }
        }
    }
}

/// The result of an attempt to take a sample.
enum Attempt {
    Sample(Sample),
    /// The sample is of no use, for this reason.
    Void(String),
}

/// Starts the program and stops it at its function.
fn stopped(setup: &Setup) -> Result<(Target, Segment, Memory), Error> {
    signals::check()?;
    let mut target = target::start(&setup.launch)?;
    let segment = target.run_to_segment(&setup.facts, &setup.bounds)?;
    let memory = Memory::open(target.pid())?;
    if memory.threads()? != 1 {
        return Err(Error::Several {
            what: "has several threads",
            phase: Phase::Before,
        });
    }
    Ok((target, segment, memory))
}

/// Runs the program through its function. Returns its maximum of memory, in bytes.
pub fn peak(setup: &Setup) -> Result<u64, Error> {
    let (mut target, segment, memory) = stopped(setup)?;
    let exit = target.set(segment.end)?;
    target.clear(segment.entry)?;
    target.run_to(exit, Phase::Inside)?;
    memory.peak()
}

/// Returns the first mapping of a kind.
fn first(mappings: &[Mapping], kind: Kind) -> Option<&Mapping> {
    mappings.iter().find(|mapping| mapping.kind == kind)
}

/// Returns the bytes from a stack pointer to the end of the stack.
fn depth(mappings: &[Mapping], pointer: u64) -> u64 {
    first(mappings, Kind::Stack).map_or(0, |stack| stack.end().saturating_sub(pointer))
}

/// Returns the pages of mappings that have contents.
fn present(memory: &Memory, mappings: &[&Mapping]) -> Result<Vec<PageName>, Error> {
    let mut pages = Vec::new();
    for mapping in mappings {
        let addresses = memory.present(mapping)?;
        pages.extend(addresses.iter().map(|&at| memory::page(mapping, at)));
    }
    pages.sort_unstable();
    Ok(pages)
}

impl Layout {
    /// Runs the program once, finds its layout, and the pages that it has touched when the function
    /// returns. Also returns the reason why one process cannot run the function more than once, if
    /// there is one.
    fn detect(setup: &Setup) -> Result<(Self, Option<String>), Error> {
        let (mut target, segment, memory) = stopped(setup)?;
        let before = memory.layout()?;
        let pointer = target.registers()?.sp;
        let exit = target.set(segment.end)?;
        target.clear(segment.entry)?;
        let kernel = target.run_watched(exit, Phase::Inside, Watch::Kernel)?;
        let pushed = pointer.wrapping_sub(target.registers()?.sp);
        if setup.bounds.end.is_none() && pushed != 0 {
            return Err(Error::Stack);
        }
        let after = memory.layout()?;
        let mut expected = before;
        let grown = stack_growth(&expected, &after);
        grow_stack(&mut expected, grown);
        if let Some(change) = layout::change(&expected, &after) {
            return Err(Error::Layout(change));
        }
        let touched = present(&memory, &setup.selection.of(&after))?;
        let is_changeable = |mapping: &&Mapping| Snapshot::keeps(mapping);
        let changeable = present(
            &memory,
            &after.iter().filter(is_changeable).collect::<Vec<_>>(),
        )?;
        let heap = first(&after, Kind::Heap).map_or(0, |heap| heap.pages.into());
        let mut mappings = after;
        for mapping in &mut mappings {
            let pages = changeable.iter().filter(|page| page.vma == mapping.index);
            let last = pages.map(|page| page.offset + 1).max();
            layout::resize(mapping, last.unwrap_or(0));
        }
        let reason = kernel.map(|kernel| kernel.to_string());
        let shared = mappings
            .iter()
            .find(|mapping| mapping.access.write && mapping.access.shared)
            .map(|mapping| format!("it can change a mapping that others see ({})", mapping.name));
        Ok((
            Self {
                depth: depth(&mappings, pointer),
                pushed,
                mappings,
                heap,
                touched,
                changeable,
            },
            reason.or(shared),
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
    pub fn new(held: &'a mut HeldLease, mut setup: Setup) -> Result<Self, Error> {
        let begin = Instant::now();
        let (layout, reason) = Layout::detect(&setup)?;
        held.last_for(begin.elapsed());
        if let (Processes::One, Some(reason)) = (&setup.processes, reason) {
            setup.processes = Processes::New(reason);
        }
        let mut sampler = Self {
            held,
            pages: layout.touched.clone(),
            setup,
            layout,
            ready: None,
            excluded: Vec::new(),
            events: Vec::new(),
            voided: 0,
            started: 1,
            run: 0,
        };
        let ready = sampler.start()?;
        sampler.exclude(&ready.frames);
        drop(ready);
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
        self.layout.heap * PAGE
    }

    /// Returns the bytes from the stack pointer at the function to the stack's end.
    pub fn depth(&self) -> u64 {
        self.layout.depth
    }

    /// Returns what the changes of pages have cost so far.
    pub fn cost(&self) -> Cost {
        self.held.cost
    }

    /// Returns which processes the runs have.
    pub fn processes(&self) -> &Processes {
        &self.setup.processes
    }

    /// Ends a round: all pages are cacheable, and the next run has a new process.
    pub fn end_round(&mut self) -> Result<(), Error> {
        self.held.keep_uncached(&BTreeSet::new())?;
        self.ready = None;
        Ok(())
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
    fn start(&mut self) -> Result<ReadyTarget, Error> {
        let (mut target, Segment { entry, end }, memory) = stopped(&self.setup)?;
        self.started += 1;
        let pointer = target.registers()?.sp;
        let mut mappings = memory.layout()?;
        let needed = first(&self.layout.mappings, Kind::Stack);
        if let (Some(needed), Some(stack)) = (needed, first(&mappings, Kind::Stack)) {
            if needed.pages > stack.pages {
                let low = stack.end() - u64::from(needed.pages) * PAGE;
                target.touch(entry, low)?;
                mappings = memory.layout()?;
            }
            self.check_depth(depth(&mappings, pointer))?;
        }
        let mut found = mappings.clone();
        layout::cut(&mut found, &self.layout.mappings);
        if let Some(difference) = layout::difference(&self.layout.mappings, &found) {
            return Err(Error::Unsteady(difference));
        }
        target.lock_pages(entry)?;
        let exit = target.set(end)?;
        memory.own(&mappings, &self.pages);
        if self.setup.processes == Processes::One {
            // Otherwise the segment would be the first to touch some, which no snapshot has.
            memory.own(&mappings, &self.layout.changeable);
        }
        let frames = memory.frames(&mappings, &self.pages)?;
        let start = match self.setup.processes {
            Processes::New(_) => None,
            Processes::One => Some((target.context()?, Snapshot::take(&memory, &mappings)?)),
        };
        Ok(ReadyTarget {
            target,
            entry,
            exit,
            stack: pointer,
            memory,
            mappings,
            frames,
            start,
        })
    }

    /// Compares the place of the function's frame in the stack with that of the first run.
    fn check_depth(&self, depth: u64) -> Result<(), Error> {
        let selected = self.setup.selection.of(&self.layout.mappings);
        let is_selected = selected.iter().any(|mapping| mapping.kind == Kind::Stack);
        if is_selected && depth != self.layout.depth {
            let before = self.layout.depth;
            return Err(Error::Unsteady(format!(
                "its stack had {before} bytes when it called the function, and has {depth}"
            )));
        }
        Ok(())
    }

    /// Takes one sample.
    pub fn sample(&mut self, treatment: Treatment<'_>) -> Result<Sample, Error> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            match self.attempt(treatment) {
                Ok(Attempt::Sample(sample)) => return Ok(sample),
                Ok(Attempt::Void(reason)) => why = reason,
                // An interrupt kills the program, which is found so.
                Err(error) => return Err(signals::check().err().unwrap_or(error)),
            }
            self.voided += 1;
        }
        Err(Error::Moved(ATTEMPTS, why))
    }

    /// Tries to take a sample, of the process at hand or of a new one.
    fn attempt(&mut self, treatment: Treatment<'_>) -> Result<Attempt, Error> {
        signals::check()?;
        // Real-time processes that never sleep would keep the kernel's own threads from this vCPU.
        std::thread::sleep(BREATH);
        let mut ready = match self.ready.take() {
            Some(ready) => ready,
            None => self.start()?,
        };
        let measured = self.measure(&mut ready, treatment);
        let again = match (&measured, treatment) {
            // Its pages have had other frames.
            (_, Treatment::Private(_)) => false,
            (Ok(Ok((_, None))), _) if ready.start.is_some() => match ready.rewind()? {
                Restored::Whole { .. } => true,
                Restored::NewPages(pages) => {
                    let reason = format!("it touches {pages} pages that it did not touch before");
                    self.setup.processes = Processes::New(reason);
                    false
                }
            },
            _ => false,
        };
        if again {
            self.ready = Some(ready);
        } else {
            // Before the kernel gives its frames to another process.
            let undone = self.held.keep_uncached(&BTreeSet::new());
            drop(ready);
            if measured.is_ok() {
                undone?;
            }
        }
        match measured? {
            Err(moved) => Ok(Attempt::Void(moved)),
            Ok((sample, None)) => Ok(Attempt::Sample(sample)),
            Ok((_, Some(kernel))) => {
                self.setup.processes = Processes::New(kernel.to_string());
                Ok(Attempt::Void(kernel.to_string()))
            }
        }
    }

    /// Runs the segment. Returns the sample, and what the process had from the kernel if that is
    /// watched. The inner error says which frame has changed, so that the sample is void.
    fn measure(
        &mut self,
        ready: &mut ReadyTarget,
        treatment: Treatment<'_>,
    ) -> Result<Result<(Sample, Option<Kernel>), String>, Error> {
        let ReadyTarget {
            target,
            entry,
            exit,
            stack,
            memory,
            mappings,
            frames,
            start,
        } = ready;
        if frames.len() != self.pages.len() || frames.iter().any(|frame| !frame.own) {
            return Ok(Err("a page shares its frame again".to_owned()));
        }
        // In an empty segment the process stops where it is.
        let (stop, other) = match treatment {
            Treatment::Empty => (*entry, *exit),
            _ => (*exit, *entry),
        };
        target.clear(other)?;
        let settings = Settings {
            run: self.run,
            model: self.setup.model,
            watch: start.as_ref().map_or(Watch::Nothing, |_| Watch::Kernel),
        };
        self.run += 1;
        let measured = match treatment {
            Treatment::Empty => {
                self.held.keep_uncached(&BTreeSet::new())?;
                segment(self.held.services(), target, stop, settings)?
            }
            Treatment::Uncached(pages) => {
                let kept = frames
                    .iter()
                    .filter(|frame| pages.contains(&frame.page))
                    .map(|frame| frame.ipa);
                self.held.keep_uncached(&kept.collect())?;
                let measured = segment(self.held.services(), target, stop, settings);
                let measured = measured?;
                // Otherwise they came back to the caches in the middle.
                self.held.renew()?;
                measured
            }
            Treatment::Private(pages) => {
                let frame = |page: &PageName| {
                    let mut of_page = frames.iter().filter(|frame| frame.page == *page);
                    of_page.next().map(|frame| frame.ipa)
                };
                let moved: Vec<u64> = pages.iter().filter_map(frame).collect();
                self.held.keep_uncached(&BTreeSet::new())?;
                self.held.moved(&moved, |held| {
                    segment(held.services(), target, stop, settings)
                })?
            }
        };
        target.set(other.address)?;
        let pushed = stack.wrapping_sub(target.registers()?.sp);
        let is_empty = matches!(treatment, Treatment::Empty);
        if pushed != if is_empty { 0 } else { self.layout.pushed } {
            return Err(Error::Stack);
        }
        if let Some(change) = layout::change(mappings, &memory.layout()?) {
            return Err(Error::Layout(change));
        }
        let after = memory.frames(mappings, &self.pages)?;
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
            None => Ok(measured),
        })
    }

    /// Runs the program to its end with pages in the private pool, without measuring. Returns its
    /// status, and the number of pages moved.
    pub fn run(&mut self, pages: &[PageName]) -> Result<(i32, usize), Error> {
        self.setup.launch.quiet = false;
        self.end_round()?;
        let ready = self.start()?;
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

impl Drop for Sampler<'_> {
    fn drop(&mut self) {
        // Before the kernel gives the frames of its process to another. If the call fails, the end
        // of the lease does the same.
        let _ = self.held.keep_uncached(&BTreeSet::new());
    }
}

/// The settings of a segment.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// Its number.
    run: u32,
    /// Switch the board model on.
    model: bool,
    watch: Watch,
}

/// Runs the target to the breakpoint in an observation segment of the hypervisor. What is inside
/// beside the function: two calls to the hypervisor, and the kernel's way from the profiler to the
/// program and back.
fn segment(
    services: &mut Services,
    target: &mut Target,
    stop: Breakpoint,
    settings: Settings,
) -> Result<(Sample, Option<Kernel>), Error> {
    use cloison_abi::{Call, CallError};
    let Settings { run, model, watch } = settings;
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
        let reached = target.run_watched(stop, Phase::Inside, watch);
        // Ended in any case; otherwise the next segment could not start.
        let cycles = services.segment_end()?;
        reached.map(|kernel| (cycles, kernel))
    });
    if model {
        region::end();
    }
    let (cycles, kernel) = reached?;
    let counts = services.hems()?.iter().map(|hem| hem.count).collect();
    Ok((Sample { cycles, counts }, kernel))
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
