//! The result of `bbprof`: the page profile that it prints in a Linux guest, and the importance of
//! groups of pages in it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::printed;
use cloison_profile::{Block, Profile, document};
use miette::{IntoDiagnostic, Result, WrapErr, miette};

/// The first line of a profile.
const FIRST: &str = "version = 2";

/// Pages of the staircase's buffer, and of each of its groups (BBProf, section 7.2).
const PAGES: usize = 100;
/// Number of its groups.
pub const GROUPS: usize = 5;

/// Importance of the pages of a group, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Mean of its pages.
    pub mean: f64,
    /// Its least important page.
    pub min: f64,
    /// Its most important page.
    pub max: f64,
}

impl Group {
    fn of(pages: &[f64]) -> Self {
        Self {
            mean: pages.iter().sum::<f64>() / pages.len() as f64,
            min: pages.iter().copied().fold(f64::INFINITY, f64::min),
            max: pages.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Finds the profile in a VM's output, and returns its text.
///
/// # Errors
/// If the command has failed, and if there is no profile, or a damaged one.
pub fn find(said: &str) -> Result<String> {
    let lines = || printed::before_success(said).map(|said| said.split_inclusive('\n'));
    let first = lines()?.position(|line| line.trim_end() == FIRST);
    let first = first.ok_or_else(|| miette!("bbprof printed no profile"))?;
    let text: String = lines()?.skip(first).collect();
    read(&text)?;
    Ok(text)
}

/// Reads a profile's text.
///
/// # Errors
/// If it is damaged.
pub fn read(text: &str) -> Result<Profile> {
    document::read(text)
        .into_diagnostic()
        .wrap_err("bbprof's profile cannot be read")
}

/// Importance of the staircase's pages, in cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Staircase {
    /// Each page of its buffer, in their order.
    pub pages: Vec<f64>,
    /// Its groups; the first one's pages are read least often.
    pub groups: [Group; GROUPS],
    /// All other profiled pages, which are the allocator's and are hardly read.
    pub others: Vec<f64>,
}

/// Finds the staircase's buffer: among all runs of a hundred consecutive pages, the one with the
/// greatest sum of importances.
pub fn staircase(profile: &Profile) -> Option<Staircase> {
    let follows = |one: &Block, next: &Block| one.offset + one.pages == next.offset;
    let importance = |block: &Block| profile.importance(&block.times);
    let successive = profile
        .vmas
        .iter()
        .flat_map(|vma| vma.blocks.chunk_by(follows));
    let hundreds = successive.flat_map(|pages| pages.windows(PAGES));
    let together = |pages: &[Block]| pages.iter().map(importance).sum::<f64>();
    let buffer = hundreds.max_by(|one, other| together(one).total_cmp(&together(other)))?;
    let all = profile.vmas.iter().flat_map(|vma| &vma.blocks);
    let others = all.filter(|block| !buffer.as_ptr_range().contains(&std::ptr::from_ref(*block)));
    let pages: Vec<f64> = buffer.iter().map(importance).collect();
    let groups: Vec<Group> = pages.chunks(PAGES / GROUPS).map(Group::of).collect();
    Some(Staircase {
        others: others.map(importance).collect(),
        groups: groups.try_into().ok()?,
        pages,
    })
}

/// Returns the mean importance of a group relative to that of the first one.
pub fn relative(text: &str, group: usize) -> Option<f64> {
    let Staircase { groups, .. } = staircase(&read(text).ok()?)?;
    Some(groups.get(group)?.mean / groups[0].mean)
}

#[cfg(test)]
pub(in crate::experiment) mod tests {
    use super::*;
    use cloison_profile::{Baseline, Mode, Provenance, Times, VmaProfile};

    /// Returns a profile of the staircase: two other pages, and right after them the buffer, whose
    /// groups save `steps` cycles a page.
    pub(in crate::experiment) fn profile(steps: [u64; GROUPS]) -> String {
        let block = |offset: u32, saved: u64| Block {
            offset,
            pages: 1,
            times: Times::one(1_000_000 - saved),
            counts: Vec::new(),
        };
        let mut blocks = vec![block(8, 3), block(9, 9)];
        blocks.extend((0..101).map(|page| {
            block(
                10 + page,
                steps.get(page as usize / 20).copied().unwrap_or(1),
            )
        }));
        document::write(&Profile {
            mode: Mode::Cacheable,
            unit: "cycles".into(),
            provenance: Provenance::default(),
            baseline: Baseline {
                none: Some(Times::one(1_000_000)),
                ..Baseline::default()
            },
            events: Vec::new(),
            vmas: vec![VmaProfile {
                index: 4,
                kind: None,
                name: "[heap]".into(),
                pages: 400,
                blocks,
            }],
            excluded: Vec::new(),
        })
    }

    #[test]
    fn groups_are_those_of_the_buffer() {
        let text = profile([100, 200, 300, 400, 510]);
        let found = staircase(&read(&text).unwrap()).unwrap();
        assert_eq!(
            (found.pages.len(), found.others),
            (100, vec![3.0, 9.0, 1.0])
        );
        assert_eq!(
            found.groups.map(|group| (group.min, group.mean, group.max))[1],
            (200.0, 200.0, 200.0)
        );
        assert_eq!(relative(&text, 4), Some(5.1));
        assert_eq!(relative(&text, 5), None);
    }

    #[test]
    fn the_profile_is_found_between_what_else_is_said() {
        let text = profile([1, 2, 3, 4, 5]);
        let said = format!(
            "up\nbbprof: 103 pages to profile, 3 left out\n\
             {text}cloison: the command ended with status 0\nPower down\n"
        );
        assert_eq!(find(&said).unwrap(), text);
        let message = |said: &str| find(said).unwrap_err().to_string();
        assert!(message(&said.replace("status 0", "status 1")).contains("did not succeed"));
        assert!(message(&said.replace(FIRST, "version = 3")).contains("no profile"));
        assert!(
            message(&said.replace("999999", "999998")).contains("cannot be read"),
            "the checksum"
        );
    }
}
