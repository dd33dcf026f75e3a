//! `rank`, `migrate` and `run`: use a profile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::command::{self, Common, Profiled};
use crate::error::Error;
use crate::files;
use crate::held::HeldLease;
use crate::program::Binary;
use crate::progress::Progress;
use crate::sampler::{Sample, Sampler, Samples, Setup, Treatment};
use crate::session::{Machine, launch, processes};
use crate::target::{Bounds, Place};
use cloison_profile::knee::{self, Search};
use cloison_profile::layout::Selection;
use cloison_profile::{Kind, PageName, Profile, VmaProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Starts runs of the program that a profile is of.
fn start<'a>(
    held: &'a mut HeldLease,
    common: &Common,
    profile: &Profile,
    wanted: &Profiled,
) -> Result<Sampler<'a>, Error> {
    let provenance = &profile.provenance;
    if provenance.program.is_empty() || provenance.symbol.is_empty() {
        return Err(Error::Other(
            "it does not say which program it is of (it was imported)".to_owned(),
        ));
    }
    let binary = Binary::open(Path::new(&provenance.program))?;
    if binary.sha256() != provenance.sha256 {
        return Err(Error::Other(format!(
            "{} has changed since it was profiled",
            provenance.program
        )));
    }
    let place = match (
        provenance.symbol.split_once('@'),
        provenance.symbol.strip_prefix("0x"),
    ) {
        (Some((symbol, library)), _) => Place::Library(library.to_owned(), symbol.to_owned()),
        (None, Some(digits)) => {
            let address =
                u64::from_str_radix(digits, 16).map_err(|error| Error::Other(error.to_string()))?;
            Place::Program(address)
        }
        (None, None) => Place::Program(binary.function(&provenance.symbol)?),
    };
    let arguments: Vec<OsString> = match &wanted.arguments {
        Some(arguments) => arguments.clone(),
        None => provenance.arguments.iter().map(OsString::from).collect(),
    };
    let is_stack = |vma: &VmaProfile| vma.kind == Some(Kind::Stack);
    let has_stack = profile.vmas.iter().any(is_stack);
    if has_stack && provenance.stack.is_none() {
        return Err(Error::Other(
            "it counts the pages of the stack from its lowest address, as older versions did; \
             make it again"
                .to_owned(),
        ));
    }
    let launch = launch(common, &binary, &arguments, provenance);
    let mut letters: String = profile
        .vmas
        .iter()
        .filter_map(|vma| vma.kind)
        .map(|kind| kind.letter())
        .collect();
    if letters.contains('a') {
        letters = letters.replace('a', "A");
    }
    let selection = Selection::parse(&letters).map_err(Error::Kind)?;
    let sampler = Sampler::new(
        held,
        Setup {
            launch,
            facts: binary.facts()?,
            bounds: Bounds {
                place,
                end: provenance.end,
            },
            selection,
            model: !common.keep_model,
            processes: processes(common),
        },
    )?;
    if let (true, Some(before), depth) = (has_stack, provenance.stack, sampler.depth())
        && before != depth
    {
        eprintln!(
            "note: the program's stack has {depth} bytes when it calls the function, and had \
             {before} when it was profiled: its data may be in other pages of the stack"
        );
    }
    for vma in &profile.vmas {
        let now = sampler
            .mappings()
            .iter()
            .find(|mapping| mapping.index == vma.index);
        let same = now.is_some_and(|now| Some(now.kind) == vma.kind && now.name == vma.name);
        if !same {
            return Err(Error::Other(format!(
                "the program's mapping {} is no longer {}",
                vma.index, vma.name
            )));
        }
    }
    Ok(sampler)
}

/// Returns the pages of a profile that this run of the program has, the most important first.
fn ranked(profile: &Profile, sampler: &Sampler<'_>) -> Vec<PageName> {
    let ranked: Vec<PageName> = profile.ranked().iter().map(|ranked| ranked.page).collect();
    let present: Vec<PageName> = ranked
        .iter()
        .filter(|page| sampler.pages.contains(page))
        .copied()
        .collect();
    if present.len() < ranked.len() {
        let missing = ranked.len() - present.len();
        eprintln!(
            "note: {missing} pages of the profile are not touched with this input, and are left \
             out"
        );
    }
    present
}

/// Takes a sample of one point of the curve.
fn point(sampler: &mut Sampler<'_>, ranked: &[PageName], k: usize) -> Result<Sample, Error> {
    let uncached: BTreeSet<PageName> = ranked[k..].iter().copied().collect();
    sampler.sample(Treatment::Uncached(&uncached))
}

/// A curve: for each k, its samples so far.
type Curve = BTreeMap<usize, Option<Samples>>;

/// Takes a sample of each k, as often as wanted, each time of another process.
fn rounds(
    sampler: &mut Sampler<'_>,
    ranked: &[PageName],
    steps: &[usize],
    common: &Common,
) -> Result<Curve, Error> {
    let mut curve = Curve::new();
    let mut progress = Progress::new(common.samples as usize * steps.len(), common.quiet);
    for _ in 0..common.samples {
        for &k in steps {
            let sample = point(sampler, ranked, k)?;
            Samples::add(curve.entry(k).or_default(), sample);
            progress.step();
        }
        sampler.end_round()?;
    }
    Ok(curve)
}

/// Takes the samples that a search for k* asks for. Returns that, too.
fn search(
    sampler: &mut Sampler<'_>,
    ranked: &[PageName],
    tolerance: f64,
    common: &Common,
) -> Result<(Curve, Option<usize>), Error> {
    let mut search = Search::new(ranked.len(), tolerance);
    let mut curve = Curve::new();
    while let Some(k) = search.next() {
        let samples = curve.entry(k).or_default();
        for _ in 0..common.samples {
            Samples::add(samples, point(sampler, ranked, k)?);
            // One process for all points, unless each has samples of several.
            if common.samples > 1 {
                sampler.end_round()?;
            }
        }
        search.add(k, samples.as_ref().map_or(0.0, |it| it.times.mean));
    }
    Ok((curve, search.found()))
}

/// Returns each k of a curve over this number of pages: multiples of `every`, all, and 1, to which
/// the paper's curves are relative.
fn steps(pages: usize, every: u32) -> Vec<usize> {
    let multiples = (0..pages).step_by(every as usize);
    let mut steps: Vec<usize> = multiples.chain([1.min(pages), pages]).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// `rank`.
pub fn rank(wanted: &command::Rank) -> Result<ExitCode, Error> {
    let command::Rank {
        common,
        coarse,
        every,
        tolerance,
        out,
        profiled,
    } = wanted;
    let profile = files::read(&profiled.profile)?;
    let mut machine = Machine::prepare(common)?;
    let mut sampler = start(&mut machine.held, common, &profile, profiled)?;
    let ranked = ranked(&profile, &sampler);
    let (curve, found) = if *coarse {
        search(&mut sampler, &ranked, *tolerance, common)?
    } else {
        let steps = steps(ranked.len(), *every);
        let curve = rounds(&mut sampler, &ranked, &steps, common)?;
        let means = curve.values().flatten().map(|samples| samples.times.mean);
        let at = knee::of(&means.collect::<Vec<_>>(), *tolerance);
        (curve, at.map(|at| steps[at]))
    };
    let curve: Vec<(usize, Samples)> = curve
        .into_iter()
        .filter_map(|(k, samples)| Some((k, samples?)))
        .collect();
    // The paper's normalization (figure 8): the time with the most important page alone.
    let one = curve
        .iter()
        .find(|(k, _)| *k == 1)
        .map(|(_, samples)| samples.times.mean);
    let mut text = "k,min,mean,max,samples,relative_to_k_1\n".to_owned();
    for (k, samples) in &curve {
        let times = samples.times;
        let relative = one.map_or_else(String::new, |one| (times.mean / one).to_string());
        text += &format!(
            "{k},{},{},{},{},{relative}\n",
            times.min, times.mean, times.max, times.samples
        );
    }
    files::write_or_print(out.as_deref(), &text)?;
    if let Some(found) = found {
        eprintln!(
            "bbprof: k* = {found} of {} pages, from {} points",
            ranked.len(),
            curve.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns `count` of the pages, chosen by a seed: a shuffle by a multiplicative congruential
/// generator (L'Ecuyer 1999, table 4).
fn shuffled(pages: &[PageName], count: usize, seed: u64) -> Vec<PageName> {
    let mut pages = pages.to_vec();
    let mut state = u128::from(seed) << 1 | 1;
    for at in 0..count.min(pages.len()) {
        state = state.wrapping_mul(25_096_281_518_912_105_342_191_851_917_838_718_629);
        let rest = (pages.len() - at) as u128;
        let other = at + ((state >> 64) % rest) as usize;
        pages.swap(at, other);
    }
    pages.truncate(count);
    pages
}

/// Returns the pages to move.
fn chosen(ranked: &[PageName], top: usize, random: Option<u64>) -> Result<Vec<PageName>, Error> {
    if top > ranked.len() {
        return Err(Error::Top(ranked.len(), top));
    }
    Ok(match random {
        Some(seed) => shuffled(ranked, top, seed),
        None => ranked[..top].to_vec(),
    })
}

/// `migrate`.
pub fn migrate(wanted: &command::Migrate) -> Result<ExitCode, Error> {
    let command::Migrate {
        common,
        top,
        random,
        profiled,
    } = wanted;
    let profile = files::read(&profiled.profile)?;
    let mut machine = Machine::prepare(common)?;
    let mut sampler = start(&mut machine.held, common, &profile, profiled)?;
    let pages = chosen(&ranked(&profile, &sampler), *top, *random)?;
    println!("pages,min,mean,max,samples");
    for pages in [&[][..], &pages] {
        let mut taken: Option<Samples> = None;
        for _ in 0..common.samples {
            let sample = sampler.sample(Treatment::Private(pages))?;
            Samples::add(&mut taken, sample);
        }
        if let Some(Samples { times, .. }) = taken {
            println!(
                "{},{},{},{},{}",
                pages.len(),
                times.min,
                times.mean,
                times.max,
                times.samples
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `run`.
pub fn run(wanted: &command::Run) -> Result<ExitCode, Error> {
    let command::Run {
        common,
        top,
        profiled,
    } = wanted;
    let profile = files::read(&profiled.profile)?;
    let mut machine = Machine::prepare(common)?;
    let mut sampler = start(&mut machine.held, common, &profile, profiled)?;
    let ranked = ranked(&profile, &sampler);
    let pages = chosen(&ranked, top.unwrap_or(ranked.len()), None)?;
    let (status, moved) = sampler.run(&pages)?;
    if !common.quiet {
        eprintln!("bbprof: the program ran with {moved} pages in the private pool");
    }
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_pages_are_distinct_and_the_seed_says_which() {
        let pages: Vec<PageName> = (0..100).map(|offset| PageName { vma: 1, offset }).collect();
        let drawn = shuffled(&pages, 30, 7);
        assert_eq!(drawn, shuffled(&pages, 30, 7));
        assert_ne!(drawn, shuffled(&pages, 30, 8));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 30);
        assert!(
            drawn.iter().any(|page| page.offset > 60) && drawn.iter().any(|page| page.offset < 40)
        );
        assert_eq!(
            shuffled(&pages, 100, 7)
                .iter()
                .collect::<BTreeSet<_>>()
                .len(),
            100
        );
    }

    #[test]
    fn a_curve_begins_without_pages_and_ends_with_all() {
        assert_eq!(steps(3, 1), [0, 1, 2, 3]);
        assert_eq!(steps(10, 4), [0, 1, 4, 8, 10]);
        assert_eq!(steps(8, 4), [0, 1, 4, 8]);
        assert_eq!((steps(3, 100), steps(0, 5)), (vec![0, 1, 3], vec![0]));
        assert_eq!(steps(1, 4), [0, 1]);
    }

    #[test]
    fn more_pages_than_there_are_are_refused() {
        let pages = [PageName { vma: 1, offset: 0 }];
        assert!(matches!(chosen(&pages, 2, None), Err(Error::Top(1, 2))));
        assert_eq!(chosen(&pages, 0, None).unwrap(), []);
    }
}
