//! Experiments, campaigns, their expressions, and jobs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::configuration::refused;
use crate::scratch;
use crate::target::{Files, Form, Outcome, Target, root};
use cloison_config::BoardFile;
use cloison_engine::files;
use cloison_lab::boards::boot::Boot;
use cloison_lab::campaign;
use cloison_lab::experiment::expression::{
    Refusal, Scope, Selection, Value as Evaluated, evaluate, fill,
};
use cloison_lab::experiment::{shows, spec};
use cloison_lab::jobs::manifest;
use serde_json::{Value, json};
use std::fs;

/// Experiments.
pub const EXPERIMENT: Target = Target {
    name: "experiment",
    package: "cloison-lab",
    rule: "each error has a place and can be drawn",
    form: Form::Text,
    files: &[
        Files {
            folder: "configs/experiments",
            end: ".toml",
        },
        Files {
            folder: "tests/bad-experiments",
            end: ".toml",
        },
    ],
    made: || vec![],
    check: |input| {
        let path = beside("experiments", input);
        let outcomes = [shows::Form::Quick, shows::Form::Full].map(|form| spec::load(&path, form));
        fs::remove_file(path).expect("it was written");
        for errors in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            refused(errors);
        }
        Outcome::from(&outcomes[0])
    },
};

/// Campaigns.
pub const CAMPAIGN: Target = Target {
    name: "campaign",
    package: "cloison-lab",
    rule: "each error has a place and can be drawn; a campaign has runs",
    form: Form::Text,
    files: &[
        Files {
            folder: "configs/campaigns",
            end: ".toml",
        },
        Files {
            folder: "tests/bad-campaigns",
            end: ".toml",
        },
    ],
    made: || vec![],
    check: |input| {
        let path = beside("campaigns", input);
        let campaign = campaign::spec::load(&path);
        fs::remove_file(path).expect("it was written");
        match &campaign {
            Ok(campaign) => assert!(campaign.hrm_runs() > 0),
            Err(errors) => refused(errors),
        }
        Outcome::from(&campaign)
    },
};

/// Writes a file into scratch's copy of a folder whose files name others by relative paths.
fn beside(folder: &str, input: &[u8]) -> std::path::PathBuf {
    let here = scratch::file("place", b"");
    let link = here.with_file_name("configs");
    if !link.exists() {
        for entry in fs::read_dir(root().join("configs"))
            .expect("the checkout has it")
            .flatten()
        {
            let name = entry.file_name();
            if name != "experiments" && name != "campaigns" {
                link_to(&entry.path(), &link.join(name));
            }
        }
        for part in ["experiments/systems", "campaigns/systems"] {
            link_to(&root().join("configs").join(part), &link.join(part));
        }
    }
    scratch::file(&format!("configs/{folder}/fuzzed.toml"), input)
}

fn link_to(from: &std::path::Path, to: &std::path::Path) {
    let parent = to.parent().expect("it is in a folder");
    fs::create_dir_all(parent).expect("room for a folder");
    let from = fs::canonicalize(from).expect("the checkout has it");
    std::os::unix::fs::symlink(from, to).expect("room for a link");
}

/// Conditions of experiments, and texts with placeholders.
pub const EXPRESSION: Target = Target {
    name: "expression",
    package: "cloison-lab",
    rule: "a mistake is within the text; a text without braces is itself",
    form: Form::Text,
    files: &[],
    made: || {
        [
            "a / b < 2.5 and g >= 1 or not u",
            "max(a, b, 3) * -2 - (c + 1_000)",
            "colors(r) + 50%",
            "\"text\" == r",
            "a[size=4K,k=2].cycles - solo[k=0].cycles",
            "a:pools.*.colors",
            "others(L2D_CACHE_REFILL, 64)",
            "between {a:.2} and {b.cycles} of {r}, {g + 1}",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
    check: |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return Outcome::Refused;
        };
        let value = evaluate(text, &Names);
        if let Err(mistake) = &value {
            assert!(mistake.at.start <= mistake.at.end && mistake.at.end <= text.len());
            assert!(
                text.is_char_boundary(mistake.at.start) && text.is_char_boundary(mistake.at.end)
            );
            assert!(!mistake.message.is_empty());
        }
        if let Ok(value) = &value {
            let _ = (value.holds(), value.number());
        }
        match fill(text, &Names) {
            Ok(filled) if !text.contains(['{', '}']) => assert_eq!(filled.as_deref(), Some(text)),
            Ok(_) => {}
            Err(mistake) => assert!(mistake.at.end <= text.len()),
        }
        Outcome::from(&value)
    },
};

/// A scope in which a name's first letter says what it is.
struct Names;

impl Scope for Names {
    fn name(&self, name: &str) -> Result<Evaluated, Refusal> {
        Ok(match name.bytes().next() {
            Some(b'a'..=b'f') => Evaluated::Number(name.len() as f64),
            Some(b'g'..=b'm') => Evaluated::Count(u64::MAX),
            Some(b'n'..=b'q') => Evaluated::List(vec![Evaluated::Number(1.0), Evaluated::Count(2)]),
            Some(b'r'..=b't') => Evaluated::Text("0-18446744073709551615".into()),
            Some(b'u') => Evaluated::Missing,
            _ => {
                return Err(Refusal::unknown(
                    "name",
                    name,
                    "names",
                    ["a", "g", "n", "r"],
                ));
            }
        })
    }
    fn member(&self, _: &Selection, name: &str) -> Result<Evaluated, Refusal> {
        self.name(name)
    }
    fn setting(&self, _: &Selection, path: &str) -> Result<Evaluated, Refusal> {
        Ok(Evaluated::Text(path.to_owned()))
    }
    fn of_event(&self, _: &str, _: &str, factor: f64) -> Result<Evaluated, Refusal> {
        Ok(Evaluated::Number(factor))
    }
}

/// A folder of jobs: the first line is the manifest, which gets right checksums, and the rest the
/// list of jobs.
pub const JOBS: Target = Target {
    name: "jobs",
    package: "cloison-lab",
    rule: "each error names its file; accepted jobs have their numbers, and each is found alone",
    form: Form::Text,
    files: &[],
    made: jobs,
    check: |input| {
        let end = input
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(input.len());
        let (first, rest) = input.split_at(end);
        let list = with_keys(rest.strip_prefix(b"\n").unwrap_or_default());
        let path = scratch::file("jobs/jobs.jsonl", &list);
        let directory = path.parent().expect("it is in a folder");
        let file = directory.join("manifest.json");
        match serde_json::from_slice::<Value>(first) {
            Ok(Value::Object(mut value)) => {
                value.insert("jobs_sha256".into(), files::sha256(&list).into());
                files::keep(&file, &value).expect("room for a file");
            }
            _ => fs::write(&file, first).expect("room for a file"),
        }
        match manifest::read(directory) {
            Ok((manifest, jobs)) => {
                assert_eq!(manifest.jobs, jobs.len());
                for (job, number) in jobs.iter().zip(1..) {
                    assert_eq!(job.job, number);
                    let alone = manifest::job(directory, number).expect("all of them were read");
                    assert_eq!(&alone.1, job);
                }
                Outcome::Accepted
            }
            Err(error) => {
                assert!(error.to_string().contains("jobs"));
                Outcome::Refused
            }
        }
    },
};

/// Returns folders without a job, and with one.
fn jobs() -> Vec<Vec<u8>> {
    let work = json!({"experiment": {"name": "demo", "quick": true, "model": null, "sensitivity": false, "hardware": false, "board": null}});
    let manifest = |jobs: usize| {
        json!({
            "version": 2, "work": work, "directory": "/", "jobs": jobs, "jobs_sha256": "",
            "inputs": {"/file": "00"}, "provenance": {"date": "2026-11-26"},
        })
    };
    let virt = root().join("configs/boards/virt.toml");
    let board = BoardFile::load(&virt, &root().join("configs")).expect("a shipped board");
    let boot = json!({
        "emulation": board.emulation,
        "kept": {"image": {"parts": "parts", "image": ["a"], "image_sha256": "00"}, "icount": true},
        "qemu": "10.0", "limit_s": 60,
    });
    let job = json!({
        "job": 1, "key": "", "run": "runs/a", "expected_seconds": 1.5, "boot": boot,
    });
    vec![
        format!("{}\n", manifest(0)).into_bytes(),
        format!("{}\n{job}\n", manifest(1)).into_bytes(),
    ]
}

/// Gives each job the key of its boot: no search finds one.
fn with_keys(list: &[u8]) -> Vec<u8> {
    let line = |line: &[u8]| -> Option<Vec<u8>> {
        let mut job: Value = serde_json::from_slice(line).ok()?;
        let boot: Boot = serde_json::from_value(job.get("boot")?.clone()).ok()?;
        job.as_object_mut()?.insert("key".into(), boot.key().into());
        Some(job.to_string().into_bytes())
    };
    let lines: Vec<Vec<u8>> = list
        .split(|byte| *byte == b'\n')
        .map(|text| line(text).unwrap_or_else(|| text.to_vec()))
        .collect();
    lines.join(&b'\n')
}
