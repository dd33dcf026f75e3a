//! Page profiles, and formulas.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::{Form, Outcome, Target};
use cloison_metrics::formula::Formula;
use cloison_profile::document::{self, DocumentError};
use cloison_profile::layout::Kind;
use cloison_profile::profile::{Baseline, Block, Mode, Profile, VmaProfile};
use cloison_profile::times::Times;
use cloison_profile::{export, raw};

/// Profiles as Cloison writes them. They get a right checksum: no search finds one.
pub const PROFILE: Target = Target {
    name: "profile",
    package: "cloison-profile",
    rule: "what is read is written and read as the same; an error is within the text",
    form: Form::Text,
    files: &[],
    made: || vec![document::write(&example()).into_bytes()],
    check: |input| match std::str::from_utf8(input) {
        Ok(text) => profile(&with_checksum(text)),
        Err(_) => Outcome::Refused,
    },
};

/// The profiles of the original BBProf.
pub const PROFILE_RAW: Target = Target {
    name: "profile-raw",
    package: "cloison-profile",
    rule: "what is read is written and read as the same; an error is within the file",
    form: Form::Bytes,
    files: &[],
    made: raw_files,
    check: |input| match raw::read(input, Mode::Cacheable) {
        Ok(profile) => {
            kept(&profile);
            Outcome::Accepted
        }
        Err(error) => {
            assert!(error.offset <= input.len() && !error.to_string().is_empty());
            Outcome::Refused
        }
    },
};

/// Arithmetic with names.
pub const FORMULA: Target = Target {
    name: "formula",
    package: "cloison-metrics",
    rule: "what is accepted has a finite value or none, and reads the same with its spaces changed",
    form: Form::Text,
    files: &[],
    made: || {
        [
            "L1D_CACHE_REFILL / (INST_RETIRED + 1) * 100",
            "-(a - b) * 2.5 / -c",
            "((1))",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
    check: |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return Outcome::Refused;
        };
        let formula = match Formula::new(text) {
            Ok(formula) => formula,
            Err(error) => {
                assert!(!error.is_empty());
                return Outcome::Refused;
            }
        };
        assert!(formula.names().is_sorted());
        let value = |formula: &Formula| formula.value(|name| Some(name.len() as f64));
        assert!(value(&formula).is_none_or(f64::is_finite));
        let again = Formula::new(&format!(" ( {text} ) "));
        // One more pair of brackets may be one too many.
        if let Ok(again) = again {
            assert_eq!(value(&again), value(&formula));
        }
        Outcome::Accepted
    },
};

fn example() -> Profile {
    let times = Times {
        min: 10,
        mean: 12.5,
        max: 20,
        samples: 4,
    };
    let block = |offset| Block {
        offset,
        pages: 1,
        times,
        counts: vec![1.0],
    };
    Profile {
        mode: Mode::Cacheable,
        unit: "ns".into(),
        events: vec!["L2D_CACHE_REFILL".into()],
        provenance: Default::default(),
        baseline: Baseline {
            none: Some(times),
            all: Some(times),
            tracing: None,
        },
        vmas: vec![VmaProfile {
            index: 1,
            kind: Some(Kind::Heap),
            name: String::new(),
            pages: 3,
            blocks: vec![block(0), block(2)],
        }],
        excluded: vec![],
    }
}

/// A file of two mappings, of which each has profiled pages.
fn raw_files() -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        words
            .iter()
            .for_each(|word| file.extend(word.to_le_bytes()));
    };
    let page = |file: &mut Vec<u8>, page: u32, min: u64, max: u64, mean: f64| {
        words(file, &[page, 0]);
        file.extend([min.to_le_bytes(), max.to_le_bytes(), mean.to_le_bytes()].concat());
    };
    words(&mut file, &[2, 2, 196, 195, 1, 0xdead_beef, 0x7f]);
    words(&mut file, &[15, 33, 33, 1, 0xdead_beef, 0x7f]);
    words(&mut file, &[2, 5, 512, 2, 2]);
    page(&mut file, 0, 100, 110, 104.5);
    page(&mut file, 195, 200, 220, 210.0);
    words(&mut file, &[15, 1]);
    page(&mut file, 7, 5, 5, 5.0);
    vec![file]
}

fn with_checksum(text: &str) -> String {
    let profile = document::read(text);
    match profile {
        Err(DocumentError::Checksum { found, computed }) => text.replacen(&found, &computed, 1),
        _ => text.to_owned(),
    }
}

fn profile(text: &str) -> Outcome {
    match document::read(text) {
        Ok(profile) => {
            kept(&profile);
            Outcome::Accepted
        }
        Err(error) => {
            if let DocumentError::Syntax { span, .. } = &error {
                assert!(span.end <= text.len());
            }
            assert!(!error.to_string().is_empty());
            Outcome::Refused
        }
    }
}

/// Checks what users of a profile rely on.
fn kept(profile: &Profile) {
    assert_eq!(profile.fault(), None);
    let text = document::write(profile);
    let again = document::read(&text);
    assert!(
        again.as_ref().is_ok_and(|again| again == profile),
        "{again:?}\n{text}"
    );
    // What has as many rows as pages need not be drawn whole.
    if profile.pages() < 10_000 {
        assert_eq!(profile.ranked().len(), profile.pages());
        assert!(export::csv(profile).is_ok());
    }
}
