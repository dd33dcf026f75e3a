//! `profile` and `group`: measure the run time with each page, or block of pages, treated apart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::command::{self, Common, Subject};
use crate::error::Error;
use crate::files;
use crate::held::Cost;
use crate::program::Binary;
use crate::progress::Progress;
use crate::sampler::{Processes, Sample, Sampler, Samples, Setup, Treatment, peak};
use crate::session::{ENVIRONMENT, Machine, allocator, launch, line_of, processes, variables};
use crate::target::{Bounds, Place};
use cloison_profile::groups::{self, Span};
use cloison_profile::layout::Selection;
use cloison_profile::{
    Baseline, Block, Mode, PageName, Profile, Provenance, Times, VmaProfile, document,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

/// The program and the function to profile.
struct ProfileTarget {
    setup: Setup,
    provenance: Provenance,
}

/// Finds the function, and the memory that the program needs.
fn choose(common: &Common, subject: &Subject) -> Result<ProfileTarget, Error> {
    let binary = Binary::open(Path::new(&subject.program[0]))?;
    let facts = binary.facts()?;
    let place = match (subject.at, &subject.symbol, &subject.library) {
        (Some(address), ..) => Place::Program(address),
        (None, Some(symbol), Some(library)) => Place::Library(library.clone(), symbol.clone()),
        (None, Some(symbol), None) => Place::Program(binary.function(symbol)?),
        (None, None, _) => return Err(Error::Address(0)),
    };
    let selection = Selection::parse(&subject.flags).map_err(Error::Kind)?;
    let arguments = &subject.program[1..];
    let symbol = match (&subject.symbol, &subject.library) {
        (Some(symbol), Some(library)) => format!("{symbol}@{library}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => format!("{:#x}", subject.at.unwrap_or(0)),
    };
    let board = line_of("/sys/firmware/devicetree/base/model");
    let compatible = line_of("/sys/firmware/devicetree/base/compatible").replace('\0', " ");
    let provenance = Provenance {
        program: binary.path().display().to_string(),
        sha256: binary.sha256(),
        symbol,
        arguments: arguments
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
        allocator: Vec::new(),
        environment: std::iter::once(ENVIRONMENT.to_owned())
            .chain(subject.env.iter().cloned())
            .collect(),
        stack: None,
        end: subject.to,
        kernel: line_of("/proc/sys/kernel/osrelease"),
        board: if board.is_empty() { compatible } else { board },
        tool: concat!("bbprof ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let launch = launch(common, &binary, arguments, &provenance);
    Ok(ProfileTarget {
        setup: Setup {
            launch,
            facts,
            bounds: Bounds {
                place,
                end: subject.to,
            },
            selection,
            model: !common.keep_model,
            processes: processes(common),
        },
        provenance,
    })
}

/// The measurements so far.
#[derive(Default)]
struct Measured {
    none: Option<Samples>,
    all: Option<Samples>,
    tracing: Option<Samples>,
    blocks: Vec<(Span, Option<Samples>)>,
}

/// A run of the profiler.
struct Run<'a> {
    sampler: Sampler<'a>,
    mode: Mode,
    provenance: Provenance,
    runs: usize,
}

impl Run<'_> {
    /// Measures with these pages apart: in mode c they alone are cacheable, in mode nc they alone
    /// are not.
    fn apart(&mut self, pages: &BTreeSet<PageName>) -> Result<Sample, Error> {
        let uncached = match self.mode {
            Mode::NonCacheable => pages.clone(),
            Mode::Cacheable => self
                .sampler
                .pages
                .iter()
                .filter(|page| !pages.contains(page))
                .copied()
                .collect(),
        };
        self.sample(Treatment::Uncached(&uncached))
    }

    fn sample(&mut self, treatment: Treatment<'_>) -> Result<Sample, Error> {
        self.runs += 1;
        self.sampler.sample(treatment)
    }

    /// Takes one sample of everything that is compared with. The last one is that
    /// from which the treatment of the first page differs least.
    fn baseline(&mut self, measured: &mut Measured) -> Result<(), Error> {
        let sample = self.sample(Treatment::Empty)?;
        Samples::add(&mut measured.tracing, sample);
        let (all, none) = (
            self.sampler.pages.iter().copied().collect(),
            BTreeSet::new(),
        );
        let treatments = match self.mode {
            Mode::Cacheable => [(&mut measured.all, &none), (&mut measured.none, &all)],
            Mode::NonCacheable => [(&mut measured.none, &all), (&mut measured.all, &none)],
        };
        for (samples, uncached) in treatments {
            let sample = self.sample(Treatment::Uncached(uncached))?;
            Samples::add(samples, sample);
        }
        Ok(())
    }

    /// Takes one sample of each block, which ends a round.
    fn blocks(
        &mut self,
        blocks: &mut [(Span, Option<Samples>)],
        progress: &mut Progress,
    ) -> Result<(), Error> {
        for (span, samples) in blocks {
            let sample = self.apart(&span.names().collect())?;
            Samples::add(samples, sample);
            progress.step();
        }
        self.sampler.end_round()
    }

    /// Returns the profile of what has been measured.
    fn profile(&self, measured: &Measured) -> Profile {
        let times = |samples: &Option<Samples>| samples.as_ref().map(|samples| samples.times);
        let mut vmas: Vec<VmaProfile> = Vec::new();
        for mapping in self.sampler.mappings() {
            let of = measured
                .blocks
                .iter()
                .filter(|(span, _)| span.first.vma == mapping.index);
            let block = |(span, samples): &(Span, Option<Samples>)| {
                let samples = samples.as_ref()?;
                let (offset, pages, counts) =
                    (span.first.offset, span.pages, samples.counts.clone());
                Some(Block {
                    offset,
                    pages,
                    times: samples.times,
                    counts,
                })
            };
            let mut blocks: Vec<Block> = of.filter_map(block).collect();
            blocks.sort_by_key(|block| block.offset);
            if !blocks.is_empty() {
                let (index, kind, pages) = (mapping.index, Some(mapping.kind), mapping.pages);
                vmas.push(VmaProfile {
                    index,
                    kind,
                    name: mapping.name.clone(),
                    pages,
                    blocks,
                });
            }
        }
        Profile {
            mode: self.mode,
            unit: "cycles".into(),
            provenance: self.provenance.clone(),
            baseline: Baseline {
                none: times(&measured.none),
                all: times(&measured.all),
                tracing: times(&measured.tracing),
            },
            events: self.sampler.events.clone(),
            vmas,
            excluded: self.sampler.excluded.clone(),
        }
    }
}

/// Detects the layout, with the allocator's environment set from the second run on.
fn start<'a>(
    machine: &'a mut Machine,
    common: &Common,
    subject: &Subject,
) -> Result<Run<'a>, Error> {
    let ProfileTarget {
        mut setup,
        mut provenance,
    } = choose(common, subject)?;
    let peak = peak(&setup)?;
    provenance.allocator = allocator(peak);
    setup.launch.environment = variables(&provenance);
    let sampler = Sampler::new(&mut machine.held, setup)?;
    provenance.stack = Some(sampler.depth());
    if sampler.heap() < peak {
        eprintln!(
            "note: the program's heap is not what glibc's allocator makes of its environment: it \
             has an allocator that ignores it, or allocates nothing. Its layout is fixed in the \
             segment all the same"
        );
    }
    let (pages, left_out) = (
        sampler.pages.len(),
        sampler.excluded.iter().map(|it| it.pages).sum::<u32>(),
    );
    eprintln!("bbprof: {pages} pages to profile, {left_out} left out");
    Ok(Run {
        sampler,
        mode: subject.mode.into(),
        provenance,
        runs: 2,
    })
}

/// Says what the profile has cost.
fn report(run: &Run<'_>, common: &Common, start: std::time::Instant) {
    if !common.quiet {
        let sampler = &run.sampler;
        if let Processes::New(reason) = sampler.processes() {
            eprintln!("note: each run had a new process: {reason}");
        }
        // One more found the memory that the program needs.
        let (runs, processes) = (run.runs, sampler.started + 1);
        let (Cost { calls, changes }, voided) = (sampler.cost(), sampler.voided);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "bbprof: {runs} runs, {processes} processes, {calls} calls that changed pages, \
             {changes} changes of a page, {voided} samples void, {seconds:.1} s"
        );
    }
}

/// `profile`.
pub fn profile(wanted: &command::Profile) -> Result<ExitCode, Error> {
    let command::Profile {
        common,
        add,
        subject,
    } = wanted;
    let begin = std::time::Instant::now();
    let mut machine = Machine::prepare(common)?;
    let mut run = start(&mut machine, common, subject)?;
    let single = |&first: &PageName| (Span { first, pages: 1 }, None);
    let mut measured = Measured {
        blocks: run.sampler.pages.iter().map(single).collect(),
        ..Measured::default()
    };
    if *add && let Some(path) = subject.out.as_deref().filter(|path| path.exists()) {
        load(&run, &files::read(path)?, &mut measured)?;
    }
    let mut progress = Progress::new(
        common.samples as usize * measured.blocks.len(),
        common.quiet,
    );
    for _ in 0..common.samples {
        run.baseline(&mut measured)?;
        run.blocks(&mut measured.blocks, &mut progress)?;
        if let Some(path) = &subject.out {
            files::write(path, &document::write(&run.profile(&measured)))?;
        }
    }
    if subject.out.is_none() {
        print!("{}", document::write(&run.profile(&measured)));
    }
    report(&run, common, begin);
    Ok(ExitCode::SUCCESS)
}

/// Continues with the samples of an earlier profile, if it is of the same.
fn load(run: &Run<'_>, old: &Profile, measured: &mut Measured) -> Result<(), Error> {
    if (old.mode, &old.provenance, &old.events) != (run.mode, &run.provenance, &run.sampler.events)
    {
        let reason =
            "it was made of another program, function, input or machine, or in another mode";
        return Err(Error::Other(reason.to_owned()));
    }
    let blocks = old
        .vmas
        .iter()
        .flat_map(|vma| vma.blocks.iter().map(move |block| (vma.index, block)));
    let mut loaded = Vec::new();
    for (vma, block) in blocks {
        let first = PageName {
            vma,
            offset: block.offset,
        };
        let samples = Samples {
            times: block.times,
            counts: block.counts.clone(),
        };
        loaded.push((
            Span {
                first,
                pages: block.pages,
            },
            Some(samples),
        ));
    }
    let names = |blocks: &[(Span, Option<Samples>)]| {
        blocks.iter().map(|(span, _)| *span).collect::<Vec<_>>()
    };
    if names(&loaded) != names(&measured.blocks) {
        return Err(Error::Other("it has other pages".to_owned()));
    }
    let samples = |times: Option<Times>| {
        times.map(|times| Samples {
            times,
            counts: Vec::new(),
        })
    };
    measured.blocks = loaded;
    measured.none = samples(old.baseline.none);
    measured.all = samples(old.baseline.all);
    measured.tracing = samples(old.baseline.tracing);
    Ok(())
}

/// `group`.
pub fn group(wanted: &command::Group) -> Result<ExitCode, Error> {
    let command::Group {
        common,
        block,
        covered,
        subject,
    } = wanted;
    let begin = std::time::Instant::now();
    let mut machine = Machine::prepare(common)?;
    let mut run = start(&mut machine, common, subject)?;
    let mut measured = Measured::default();
    let spans = groups::blocks(&run.sampler.pages, *block);
    measured.blocks = spans.into_iter().map(|span| (span, None)).collect();
    let mut progress = Progress::new(
        common.samples as usize * measured.blocks.len(),
        common.quiet,
    );
    for _ in 0..common.samples {
        run.baseline(&mut measured)?;
        run.blocks(&mut measured.blocks, &mut progress)?;
    }
    let coarse = run.profile(&measured);
    let important = |(span, samples): &(Span, Option<Samples>)| {
        (
            *span,
            samples
                .as_ref()
                .map_or(0.0, |samples| coarse.importance(&samples.times)),
        )
    };
    let important: Vec<(Span, f64)> = measured.blocks.iter().map(important).collect();
    let refined = groups::refined(&important, *covered);
    let mut pages: Vec<(Span, Option<Samples>)> = Vec::new();
    let mut blocks: Vec<(Span, Option<Samples>)> = Vec::new();
    for (block, refine) in std::mem::take(&mut measured.blocks)
        .into_iter()
        .zip(&refined)
    {
        if *refine {
            pages.extend(
                block
                    .0
                    .names()
                    .map(|first| (Span { first, pages: 1 }, None)),
            );
        } else {
            blocks.push(block);
        }
    }
    let mut progress = Progress::new(common.samples as usize * pages.len(), common.quiet);
    for _ in 0..common.samples {
        run.blocks(&mut pages, &mut progress)?;
    }
    measured.blocks = blocks.into_iter().chain(pages).collect();
    let text = document::write(&run.profile(&measured));
    files::write_or_print(subject.out.as_deref(), &text)?;
    let plain = common.samples as usize * (run.sampler.pages.len() + 3) + 2;
    let (count, all) = (
        refined.iter().filter(|refine| **refine).count(),
        refined.len(),
    );
    eprintln!(
        "bbprof: {count} of {all} blocks refined: {} runs instead of {plain}",
        run.runs
    );
    report(&run, common, begin);
    Ok(ExitCode::SUCCESS)
}
