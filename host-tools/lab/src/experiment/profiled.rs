//! The result of `bbprof`: the page profile that it prints in a Linux guest, and what it says of groups of pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_profile::{Block, Profile, document};
use miette::{IntoDiagnostic, Result, WrapErr, miette};

/// What the first process prints after its command has succeeded.
const ENDED: &str = "cloison: the command ended with status 0";
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

/// Finds the profile in a VM's output, and returns its text.
///
/// # Errors
/// If the command has failed, and if there is no profile, or a damaged one.
pub fn find(said: &str) -> Result<String> {
    let lines = || said.split_inclusive('\n');
    let end = lines().position(|line| line.trim_end() == ENDED);
    let end = end.ok_or_else(|| miette!("the command in the VM did not succeed"))?;
    let first = lines().position(|line| line.trim_end() == FIRST).filter(|first| *first < end);
    let first = first.ok_or_else(|| miette!("bbprof printed no profile"))?;
    let text: String = lines().skip(first).take(end - first).collect();
    read(&text)?;
    Ok(text)
}

/// Reads a profile's text.
///
/// # Errors
/// If it is damaged.
pub fn read(text: &str) -> Result<Profile> {
    document::read(text).into_diagnostic().wrap_err("bbprof's profile cannot be read")
}

/// Returns the importance of each page of the staircase's buffer, in its order: that of the first hundred of the most pages that follow
/// each other. A buffer that starts within a page reaches into one more.
pub fn buffer(profile: &Profile) -> Option<Vec<f64>> {
    let mut longest: &[Block] = &[];
    for vma in &profile.vmas {
        let follows = |one: &Block, next: &Block| one.offset + one.pages == next.offset;
        longest = vma.blocks.chunk_by(follows).chain([longest]).max_by_key(|run| run.len())?;
    }
    let pages = longest.get(..PAGES)?;
    Some(pages.iter().map(|block| profile.importance(&block.times)).collect())
}

/// Returns the groups of the staircase: its first pages are read least often.
pub fn groups(profile: &Profile) -> Option<[Group; GROUPS]> {
    let pages = buffer(profile)?;
    let mut groups = pages.chunks(PAGES / GROUPS).map(|pages| Group {
        mean: pages.iter().sum::<f64>() / pages.len() as f64,
        min: pages.iter().copied().fold(f64::INFINITY, f64::min),
        max: pages.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    });
    let groups: Vec<Group> = groups.by_ref().collect();
    groups.try_into().ok()
}

/// Returns the mean importance of a group relative to that of the first one.
pub fn relative(text: &str, group: usize) -> Option<f64> {
    let groups = groups(&read(text).ok()?)?;
    Some(groups.get(group)?.mean / groups[0].mean)
}

#[cfg(test)]
pub(in crate::experiment) mod tests {
    use super::*;
    use cloison_profile::{Baseline, Mode, Provenance, Times, VmaProfile};

    /// A profile of the staircase: two pages of something else, then the buffer, whose groups save `steps` cycles a page.
    pub(in crate::experiment) fn staircase(steps: [u64; GROUPS]) -> String {
        let block = |offset: u32, saved: u64| Block {
            offset,
            pages: 1,
            times: Times::one(1_000_000 - saved),
            counts: Vec::new(),
        };
        let mut blocks = vec![block(0, 3), block(1, 9)];
        blocks.extend((0..101).map(|page| block(10 + page, steps.get(page as usize / 20).copied().unwrap_or(1))));
        document::write(&Profile {
            mode: Mode::Cacheable,
            unit: "cycles".into(),
            provenance: Provenance::default(),
            baseline: Baseline { none: Some(Times::one(1_000_000)), ..Baseline::default() },
            events: Vec::new(),
            vmas: vec![VmaProfile { index: 4, kind: None, name: "[heap]".into(), pages: 400, blocks }],
            excluded: Vec::new(),
        })
    }

    #[test]
    fn groups_are_those_of_the_buffer() {
        let text = staircase([100, 200, 300, 400, 510]);
        let groups = groups(&read(&text).unwrap()).unwrap();
        assert_eq!(groups.map(|group| (group.min, group.mean, group.max))[1], (200.0, 200.0, 200.0));
        assert_eq!(relative(&text, 4), Some(5.1));
        assert_eq!(relative(&text, 5), None);
    }

    #[test]
    fn the_profile_is_found_between_what_else_is_said() {
        let text = staircase([1, 2, 3, 4, 5]);
        let said = format!("up\nbbprof: 103 pages to profile, 3 left out\n{text}{ENDED}\nPower down\n");
        assert_eq!(find(&said).unwrap(), text);
        let message = |said: &str| find(said).unwrap_err().to_string();
        assert!(message(&said.replace("status 0", "status 1")).contains("did not succeed"));
        assert!(message(&said.replace(FIRST, "version = 3")).contains("no profile"));
        assert!(message(&said.replace("999999", "999998")).contains("cannot be read"), "the checksum");
    }
}
