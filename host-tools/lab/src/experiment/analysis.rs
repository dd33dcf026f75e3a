//! Which evaluation an experiment's file names, and what it needs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::measured::Measure;

/// How the runs of an experiment are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Analysis {
    /// Any variants and axes: medians, slowdown against the baseline, events.
    #[default]
    Generic,
    /// Runtime against the number of a function's private pages.
    C2is,
    /// Wake-up latencies in four cases.
    Cyclictest,
    /// A victim in four cases.
    Demo,
    /// Harm against the size of Interf's buffers.
    InterferenceWss,
    /// Interf's pages moved away.
    InterfMigration,
    /// Event counts that are known in advance.
    MatrixCopy,
    /// The groups of pages that a profiler finds.
    ProfileStaircase,
    /// Programs whose most important pages are private.
    RankApps,
    /// Budgets of the neighbors.
    Quota,
    /// Slowdown against the number of colors.
    StrictColors,
}

impl Analysis {
    /// All, by the names in files.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("generic", Self::Generic),
        ("c2is", Self::C2is),
        ("cyclictest", Self::Cyclictest),
        ("demo", Self::Demo),
        ("interference-wss", Self::InterferenceWss),
        ("interf-migration", Self::InterfMigration),
        ("matrix-copy", Self::MatrixCopy),
        ("profile-staircase", Self::ProfileStaircase),
        ("quota", Self::Quota),
        ("rank-apps", Self::RankApps),
        ("strict-colors", Self::StrictColors),
    ];

    /// Returns the analysis of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, analysis)| *analysis)
    }

    /// Returns its name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, analysis)| *analysis == self)
            .map_or("generic", |(name, _)| name)
    }

    /// Returns the variants without which it has nothing to say.
    pub fn variants(self) -> &'static [&'static str] {
        match self {
            Self::Generic | Self::RankApps => &[],
            Self::C2is | Self::InterferenceWss | Self::Quota => &["solo", "interf"],
            Self::Cyclictest => &["alone", "interf", "quota", "colors"],
            Self::Demo => &["solo", "interf", "quota", "migration"],
            Self::InterfMigration => &["sweep-solo", "sweep"],
            Self::MatrixCopy => &["counted"],
            Self::ProfileStaircase => &["steps", "equal"],
            Self::StrictColors => &["shared-solo", "shared-interf"],
        }
    }

    /// Returns whether it reads what `measure` measures.
    pub fn reads(self, measure: Measure) -> bool {
        match self {
            Self::Generic => true,
            Self::Cyclictest => measure == Measure::Cyclictest,
            Self::ProfileStaircase => measure == Measure::Profile,
            Self::RankApps => measure == Measure::Printed,
            _ => measure == Measure::Segments,
        }
    }

    /// Returns whether it reads the model's own counts of each segment, for which the victim must mark its segments as
    /// regions of interest.
    pub fn needs_regions(self) -> bool {
        matches!(self, Self::InterferenceWss | Self::MatrixCopy)
    }
}
