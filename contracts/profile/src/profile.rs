//! A profile: the run time with each page treated apart from the others, and the resulting order of
//! importance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::layout::{Kind, PageName};
use crate::times::Times;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which pages the caches may hold while one page is profiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// That page alone: a page matters if the time falls.
    #[serde(rename = "c")]
    Cacheable,
    /// All others: a page matters if the time rises.
    #[serde(rename = "nc")]
    NonCacheable,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cacheable => "c",
            Self::NonCacheable => "nc",
        })
    }
}

/// The times with which all others are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// No profiled page may be cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<Times>,
    /// All profiled pages may be cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Times>,
    /// An empty segment: the cost of starting and stopping the program, which all times contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Times>,
}

/// The origin of a profile: program, arguments, machine and tool. Empty where that is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provenance {
    /// Path of the program.
    pub program: String,
    /// SHA-256 of its file, hexadecimal.
    pub sha256: String,
    /// The function that is the observation segment, or its address.
    pub symbol: String,
    /// Address in the function's file that ends the segment, if not the function's return does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The settings of its allocator, as `NAME=value`.
    pub allocator: Vec<String>,
    /// Its other environment, as `NAME=value`.
    pub environment: Vec<String>,
    /// Bytes from the stack pointer at the function's first instruction to the stack's end. Pages of
    /// a process's stack are counted from that end; a profile without this names them otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The machine, as its device tree calls it.
    pub board: String,
    /// The program that made the profile, with its version.
    pub tool: String,
}

/// Consecutive pages that were treated as one: usually a single page.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Position of the first page in its mapping.
    pub offset: u32,
    /// Number of pages.
    pub pages: u32,
    /// Run time of the segment with this block treated apart from all others.
    pub times: Times,
    /// Mean count of each of the profile's events; empty if none were counted.
    pub counts: Vec<f64>,
}

/// The profiled pages of one mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct VmaProfile {
    /// Its position in the layout.
    pub index: u32,
    /// Its purpose; unknown in imported profiles.
    pub kind: Option<Kind>,
    /// Its name in the layout.
    pub name: String,
    /// Its size in pages.
    pub pages: u32,
    /// The profiled blocks, in ascending order of pages.
    pub blocks: Vec<Block>,
}

/// Pages that were left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    /// Position of the mapping.
    pub vma: u32,
    /// Its name, or what it is for.
    pub name: String,
    /// Number of pages.
    pub pages: u32,
    /// Why they were left out.
    pub reason: String,
}

/// A profile of one function of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How pages were treated.
    pub mode: Mode,
    /// Unit of all times: `cycles`.
    pub unit: String,
    /// Its origin.
    pub provenance: Provenance,
    /// The times with which others are compared.
    pub baseline: Baseline,
    /// Names of the events that were counted beside the time.
    pub events: Vec<String>,
    /// The profiled pages.
    pub vmas: Vec<VmaProfile>,
    /// The others, with reasons.
    pub excluded: Vec<Excluded>,
}

/// A page and how much it matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The page.
    pub page: PageName,
    /// Change of the run time when the page is treated apart, in the profile's unit. More is more
    /// important; noise may make it negative. Each page of a block has an equal part of the block's
    /// importance.
    pub importance: f64,
}

impl Profile {
    /// Returns the number of profiled pages.
    pub fn pages(&self) -> usize {
        self.vmas
            .iter()
            .flat_map(|vma| &vma.blocks)
            .map(|block| block.pages as usize)
            .sum()
    }

    /// Returns the reference of all importances: the baseline's time, or, in a profile without one,
    /// the extreme of all pages' times.
    pub fn reference(&self) -> f64 {
        let means = || {
            self.vmas
                .iter()
                .flat_map(|vma| &vma.blocks)
                .map(|block| block.times.mean)
        };
        match self.mode {
            Mode::Cacheable => self
                .baseline
                .none
                .map_or_else(|| means().fold(0.0, f64::max), |times| times.mean),
            Mode::NonCacheable => self
                .baseline
                .all
                .map_or_else(|| means().fold(f64::INFINITY, f64::min), |times| times.mean),
        }
    }

    /// Returns the difference of a time from the reference, positive in the direction that means
    /// importance.
    pub fn importance(&self, times: &Times) -> f64 {
        match self.mode {
            Mode::Cacheable => self.reference() - times.mean,
            Mode::NonCacheable => times.mean - self.reference(),
        }
    }

    /// Returns all pages, the most important first. Ties go to the lower mapping and page (BBProf,
    /// section 5.1).
    pub fn ranked(&self) -> Vec<Ranked> {
        let mut ranked = Vec::with_capacity(self.pages());
        for vma in &self.vmas {
            for block in &vma.blocks {
                let importance = self.importance(&block.times) / f64::from(block.pages);
                let page = |offset| Ranked {
                    page: PageName {
                        vma: vma.index,
                        offset,
                    },
                    importance,
                };
                ranked.extend((block.offset..block.offset + block.pages).map(page));
            }
        }
        ranked.sort_by(|a, b| {
            b.importance
                .total_cmp(&a.importance)
                .then(a.page.cmp(&b.page))
        });
        ranked
    }

    /// Returns the first contradiction in the profile's contents, if there is any.
    pub fn fault(&self) -> Option<String> {
        let named = [
            ("none", self.baseline.none),
            ("all", self.baseline.all),
            ("tracing", self.baseline.tracing),
        ];
        for (name, times) in named {
            if let Some(fault) = times.and_then(|times| times.fault()) {
                return Some(format!("baseline `{name}`: {fault}"));
            }
        }
        for (position, vma) in self.vmas.iter().enumerate() {
            if self.vmas[..position]
                .iter()
                .any(|other| other.index == vma.index)
            {
                return Some(format!("mapping {} is listed twice", vma.index));
            }
            let mut next = 0;
            for block in &vma.blocks {
                let name = PageName {
                    vma: vma.index,
                    offset: block.offset,
                };
                let end = u64::from(block.offset) + u64::from(block.pages);
                if let Some(fault) = block.times.fault() {
                    return Some(format!("page {name}: {fault}"));
                }
                if !block.counts.is_empty() && block.counts.len() != self.events.len() {
                    let (found, events) = (block.counts.len(), self.events.len());
                    return Some(format!("page {name} has {found} counts of {events} events"));
                }
                if !block
                    .counts
                    .iter()
                    .all(|count| count.is_finite() && *count >= 0.0)
                {
                    return Some(format!(
                        "page {name} has a count that is no number of events"
                    ));
                }
                if block.pages == 0 {
                    return Some(format!("block {name} has no pages"));
                }
                if u64::from(block.offset) < next {
                    return Some(format!("page {name} is listed twice, or not in order"));
                }
                if end > u64::from(vma.pages) {
                    return Some(format!(
                        "page {name} is outside its mapping, which has {} pages",
                        vma.pages
                    ));
                }
                next = end;
            }
        }
        (self.pages() == 0).then(|| "the profile lists no page".to_owned())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any profile that is right.
    pub(crate) fn profiles() -> impl Strategy<Value = Profile> {
        let times = (0..1_u64 << 40, 0..1_u64 << 30, 1..9_u32, 0.0..1.0_f64).prop_map(
            |(min, more, samples, at)| Times {
                min,
                mean: min as f64 + more as f64 * at,
                max: min + more,
                samples,
            },
        );
        let blocks = proptest::collection::vec((0..3_u32, 1..4_u32, times.clone()), 1..12)
            .prop_map(|gaps| {
                let mut offset = 0;
                let mut place = |(gap, pages, times)| {
                    let block = Block {
                        offset: offset + gap,
                        pages,
                        times,
                        counts: vec![0.5, 7.0],
                    };
                    offset = block.offset + pages;
                    block
                };
                gaps.into_iter().map(&mut place).collect::<Vec<_>>()
            });
        let vma = (
            blocks,
            proptest::option::of(0..Kind::ALL.len()),
            "[a-z\\[\\]/\"\\\\ é]{0,9}",
        );
        let text = || "[ -~é]{0,12}";
        let provenance = (text(), text(), proptest::collection::vec(text(), 0..3));
        let baseline = (
            proptest::option::of(times.clone()),
            proptest::option::of(times),
        );
        (
            any::<bool>(),
            proptest::collection::vec(vma, 1..4),
            provenance,
            baseline,
        )
            .prop_map(
                |(inverse, vmas, (program, symbol, arguments), (none, all))| {
                    let vma = |(index, (blocks, kind, name)): (
                        u32,
                        (Vec<Block>, Option<usize>, String),
                    )| VmaProfile {
                        index,
                        kind: kind.map(|kind| Kind::ALL[kind]),
                        name,
                        pages: blocks.last().map_or(0, |last| last.offset + last.pages),
                        blocks,
                    };
                    Profile {
                        mode: if inverse {
                            Mode::NonCacheable
                        } else {
                            Mode::Cacheable
                        },
                        unit: "cycles".into(),
                        provenance: Provenance {
                            program,
                            symbol,
                            environment: arguments.iter().rev().cloned().collect(),
                            stack: all.map(|times: Times| times.min),
                            end: none.map(|times: Times| times.min),
                            arguments,
                            ..Provenance::default()
                        },
                        baseline: Baseline {
                            none,
                            all,
                            tracing: None,
                        },
                        events: vec!["L2D_CACHE_REFILL".into(), "0x00c9".into()],
                        vmas: (0..).zip(vmas).map(vma).collect(),
                        excluded: vec![Excluded {
                            vma: 9,
                            name: "[vvar]".into(),
                            pages: 2,
                            reason: "the kernel's".into(),
                        }],
                    }
                },
            )
    }

    fn block(offset: u32, cycles: u64) -> Block {
        Block {
            offset,
            pages: 1,
            times: Times::one(cycles),
            counts: vec![],
        }
    }

    fn profile(mode: Mode) -> Profile {
        let vma = |index, blocks| VmaProfile {
            index,
            kind: None,
            name: String::new(),
            pages: 10,
            blocks,
        };
        Profile {
            mode,
            unit: "cycles".into(),
            provenance: Provenance::default(),
            baseline: Baseline {
                none: Some(Times::one(1000)),
                all: Some(Times::one(100)),
                tracing: None,
            },
            events: vec![],
            vmas: vec![
                vma(1, vec![block(2, 900), block(5, 700)]),
                vma(4, vec![block(0, 700), block(9, 1001)]),
            ],
            excluded: vec![],
        }
    }

    fn order(profile: &Profile) -> Vec<(String, f64)> {
        profile
            .ranked()
            .iter()
            .map(|ranked| (ranked.page.to_string(), ranked.importance))
            .collect()
    }

    #[test]
    fn what_saves_most_is_first_and_ties_are_in_order() {
        let named = |list: [(&str, f64); 4]| {
            list.map(|(page, importance)| (page.to_owned(), importance))
                .to_vec()
        };
        let expected = named([
            ("1:5", 300.0),
            ("4:0", 300.0),
            ("1:2", 100.0),
            ("4:9", -1.0),
        ]);
        assert_eq!(order(&profile(Mode::Cacheable)), expected);
        let expected = named([
            ("4:9", 901.0),
            ("1:2", 800.0),
            ("1:5", 600.0),
            ("4:0", 600.0),
        ]);
        assert_eq!(order(&profile(Mode::NonCacheable)), expected);
    }

    #[test]
    fn without_a_baseline_pages_are_compared_with_each_other() {
        let mut profile = profile(Mode::Cacheable);
        profile.baseline = Baseline::default();
        assert_eq!(profile.reference(), 1001.0);
        profile.mode = Mode::NonCacheable;
        assert_eq!(profile.reference(), 700.0);
    }

    #[test]
    fn faults_are_named() {
        let fault = |change: fn(&mut Profile)| {
            let mut profile = profile(Mode::Cacheable);
            change(&mut profile);
            profile.fault().unwrap_or_default()
        };
        assert_eq!(fault(|_| ()), "");
        assert_eq!(
            fault(|profile| profile.vmas.clear()),
            "the profile lists no page"
        );
        assert_eq!(
            fault(|profile| profile.vmas[1].index = 1),
            "mapping 1 is listed twice"
        );
        assert_eq!(
            fault(|profile| profile.vmas[0].pages = 5),
            "page 1:5 is outside its mapping, which has 5 pages"
        );
        assert_eq!(
            fault(|profile| profile.vmas[0].blocks.swap(0, 1)),
            "page 1:2 is listed twice, or not in order"
        );
        assert_eq!(
            fault(|profile| profile.vmas[0].blocks[1].pages = 0),
            "block 1:5 has no pages"
        );
        assert_eq!(
            fault(|profile| profile.vmas[0].blocks[0].times.samples = 0),
            "page 1:2: no samples"
        );
        let one = |profile: &mut Profile| profile.vmas[0].blocks[0].counts = vec![1.0];
        assert_eq!(fault(one), "page 1:2 has 1 counts of 0 events");
        let none = |profile: &mut Profile| {
            profile.baseline.none = Some(Times {
                samples: 0,
                ..Times::one(1)
            })
        };
        assert_eq!(fault(none), "baseline `none`: no samples");
    }

    proptest! {
        #[test]
        fn an_order_has_each_page_once_and_descends(profile in profiles()) {
            prop_assert_eq!(profile.fault(), None);
            let ranked = profile.ranked();
            prop_assert_eq!(ranked.len(), profile.pages());
            prop_assert!(ranked.is_sorted_by(|a, b| a.importance >= b.importance));
            let mut names: Vec<PageName> = ranked.iter().map(|it| it.page).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), ranked.len());
        }
    }
}
