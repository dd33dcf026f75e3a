//! Which pages of a profile move to the PVT pool, and which have moved.
//!
//! A page keeps its home frame while it is in the PVT pool, so that moving back cannot fail.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::vec::Vec;
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::image::{Profile, ProfiledPage, Region, Vm};

/// Returns the `k` most important pages of a profile, most important first; ties go to the lower region and page
/// (BBProf, section 5.1, "Page Ranking and Migration"). Pages listed twice count once, with the higher importance.
pub fn top(profile: &Profile, regions: &[Region], k: usize) -> Vec<Ipa> {
    let mut pages: Vec<&ProfiledPage> = profile.pages.iter().collect();
    pages.sort_unstable_by_key(|page| (core::cmp::Reverse(page.importance), page.region, page.page));
    let mut chosen = Vec::with_capacity(k.min(pages.len()));
    for page in pages {
        let Some(region) = regions.get(usize::from(page.region)).filter(|region| page.page < region.pages) else {
            continue;
        };
        let ipa = region.ipa.page(u64::from(page.page));
        if !chosen.contains(&ipa) {
            if chosen.len() == k {
                break;
            }
            chosen.push(ipa);
        }
    }
    chosen
}

/// A page in the PVT pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// Address of the page.
    pub ipa: Ipa,
    /// Its frame in its region's pool, kept for moving back.
    pub home: PhysAddr,
    /// Its frame in the PVT pool.
    pub frame: PhysAddr,
}

/// The pages of one VM in its PVT pool, in the order in which they moved.
#[derive(Clone, Debug, Default)]
pub struct AwayList {
    pages: Vec<Away>,
}

impl AwayList {
    /// Creates an empty list for up to `capacity` pages, which does not allocate later.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { pages: Vec::with_capacity(capacity) }
    }
    /// Returns the number of moved pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }
    /// Returns whether no page has moved.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
    /// Returns whether one more page fits without allocating.
    pub fn has_room(&self) -> bool {
        self.pages.len() < self.pages.capacity()
    }
    /// Records a page that has just moved.
    pub fn push(&mut self, page: Away) {
        self.pages.push(page);
    }
    /// Returns the pages that moved after the first `count`.
    pub fn after(&self, count: usize) -> &[Away] {
        self.pages.get(count..).unwrap_or_default()
    }
    /// Forgets all pages but the first `count`: the others are back.
    pub fn truncate(&mut self, count: usize) {
        self.pages.truncate(count);
    }
}

/// Number of pages outside its profile that a guest may migrate individually.
const EXTRA_PAGES: usize = 64;

/// A VM's migration state.
#[derive(Debug, Default)]
pub struct Migration {
    /// The profile's pages, most important first.
    pub ranking: Vec<Ipa>,
    /// The pages in the PVT pool.
    pub away: AwayList,
}

impl Migration {
    /// Creates the state of a VM without moved pages.
    pub fn new(vm: &Vm) -> Self {
        let Some(profile) = &vm.profile else { return Self::default() };
        let ranking = top(profile, &vm.regions, usize::MAX);
        let away = AwayList::with_capacity(ranking.len() + EXTRA_PAGES);
        Self { ranking, away }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use cloison_formats::image::Backing;
    use proptest::prelude::*;

    fn regions() -> Vec<Region> {
        vec![
            Region {
                name: String::from("text"),
                ipa: Ipa(0x4000_0000),
                pages: 100,
                backing: Backing::Pool(0),
                executable: true,
            },
            Region {
                name: String::from("heap"),
                ipa: Ipa(0x5000_0000),
                pages: 50,
                backing: Backing::Pool(0),
                executable: true,
            },
        ]
    }

    fn profile(pages: Vec<ProfiledPage>) -> Profile {
        Profile { pool: 1, pages, top: 0, after: None }
    }

    #[test]
    fn most_important_first_and_ties_in_order() {
        let page = |region, page, importance| ProfiledPage { region, page, importance };
        let profile = profile(vec![page(0, 9, 5), page(1, 2, 7), page(0, 3, 5), page(1, 2, 1), page(1, 60, 100)]);
        assert_eq!(top(&profile, &regions(), 3), [Ipa(0x5000_2000), Ipa(0x4000_3000), Ipa(0x4000_9000)]);
        assert_eq!(top(&profile, &regions(), 1), [Ipa(0x5000_2000)]);
        assert_eq!(top(&profile, &regions(), 100).len(), 3);
    }

    proptest! {
        #[test]
        fn what_is_left_out_matters_no_more(raw in prop::collection::vec((0u8..2, 0u32..50, 0u64..20), 0..80), k in 0usize..90) {
            let pages: Vec<_> = raw.iter().map(|&(region, page, importance)| ProfiledPage { region, page, importance }).collect();
            let profile = profile(pages);
            let chosen = top(&profile, &regions(), k);
            let importance = |ipa: Ipa| profile.pages.iter().filter(|page| regions()[usize::from(page.region)].ipa.page(u64::from(page.page)) == ipa).map(|page| page.importance).max();
            let least = chosen.iter().filter_map(|&ipa| importance(ipa)).min();
            let all = top(&profile, &regions(), usize::MAX);
            prop_assert_eq!(chosen.len(), k.min(all.len()));
            for ipa in all.iter().filter(|ipa| !chosen.contains(ipa)) {
                prop_assert!(k == 0 || importance(*ipa) <= least);
            }
        }
    }
}
