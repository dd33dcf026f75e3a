//! Verdicts: whether an event can be used, as `cloison events validate` finds out (docs/events.md).
// SPDX-License-Identifier: MIT OR Apache-2.0

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Whether an event can be used. The order is from the best to the worst; the numbers are those of
/// the C library's header.
#[derive(
    Clone,
    Copy,
    Debug,
    Display,
    EnumString,
    Eq,
    IntoStaticStr,
    Ord,
    PartialEq,
    PartialOrd,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[repr(i32)]
pub enum Verdict {
    /// It counts what its documentation says.
    Trusted = 1,
    /// It does too: the expectation had been derived wrongly.
    #[strum(serialize = "expectation corrected")]
    ExpectationCorrected = 2,
    /// It counts something else, by a cited mechanism that explains every benchmark.
    Corrected = 3,
    /// A factor explains every benchmark, without a mechanism.
    Fitted = 4,
    /// Nothing explains every benchmark, or no benchmark needs the explanation.
    Quarantined = 5,
    /// It never moves.
    Dead = 6,
    /// The CPU has no such event.
    #[strum(serialize = "no event")]
    NoEvent = 8,
    /// The machine is a model that does not count it.
    #[strum(serialize = "not modelled")]
    NotModelled = 7,
}

impl Verdict {
    /// All verdicts, in the order in which they are listed.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the words for it, as docs/events.md has them.
    pub fn words(self) -> &'static str {
        self.into()
    }

    /// Returns whether a budget of such an event limits what it says.
    pub fn bears_a_quota(self) -> bool {
        matches!(self, Self::Trusted | Self::Corrected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_words_that_name_it() {
        let words = [
            "trusted",
            "expectation corrected",
            "corrected",
            "fitted",
            "quarantined",
            "dead",
            "no event",
            "not modelled",
        ];
        assert_eq!(Verdict::ALL.len(), words.len());
        for (verdict, words) in Verdict::ALL.iter().zip(words) {
            assert_eq!(verdict.words(), words);
            assert_eq!(verdict.to_string(), words);
            assert_eq!(words.parse(), Ok(*verdict));
        }
        assert!("Trusted".parse::<Verdict>().is_err());
        assert!(Verdict::NotModelled < Verdict::NoEvent);
        assert_eq!(format!("{:>8}", Verdict::Dead), "    dead");
    }
}
