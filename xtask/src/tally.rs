//! Counts passed, failed and skipped checks.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// How many checks ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Checks that passed.
    pub passed: u64,
    /// Checks that failed.
    pub failed: u64,
    /// Checks that were left out.
    pub skipped: u64,
}

impl Tally {
    /// One check that passed.
    pub const PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    /// One that failed.
    pub const FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    /// One that was left out.
    pub const SKIPPED: Self = Self {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// Counts one check.
    pub const fn of(success: bool) -> Self {
        if success { Self::PASSED } else { Self::FAILED }
    }
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
    /// Reads libtest's `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim().strip_prefix("test result: ")?;
        let number = |what: &str| {
            let part = rest
                .split([';', '.'])
                .map(str::trim)
                .find(|part| part.ends_with(what))?;
            part.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            passed: number(" passed")?,
            failed: number(" failed")?,
            skipped: number(" ignored")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 2 filtered \
                    out; finished in 0.01s";
        assert_eq!(
            Tally::parse(line),
            Some(Tally {
                passed: 12,
                failed: 3,
                skipped: 1
            })
        );
        assert_eq!(Tally::parse("test foo ... ok"), None);
        assert_eq!(Tally::parse("test result: nonsense"), None);
    }
}
