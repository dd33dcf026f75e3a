//! A profile as it is kept, and the comparison of a new one with it: a gate for continuous
//! integration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::costs::{Part, Table, event};
use cloison_board_model::profile::EVENTS;
use cloison_engine::files;
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// Says what the file is.
const FORMAT: &str = "cloison-profile";
/// Changes with the format.
const VERSION: u32 = 1;

/// A profile that was kept: the file `profile.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    format: String,
    version: u32,
    /// What was profiled.
    #[serde(flatten)]
    pub subject: Subject,
    /// Names of the events, in the order of all counts.
    events: Vec<String>,
    /// By the name of the part.
    parts: BTreeMap<String, KeptPart>,
}

/// What was profiled: two profiles of other subjects cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Name of the system.
    pub system: String,
    /// Name of the VM.
    pub vm: String,
    /// Name of its guest.
    pub guest: String,
    /// Name of the board.
    pub board: String,
    /// Name of the modelled board.
    pub model: String,
    /// Seed of the model.
    pub seed: u64,
    /// `alone`, or `beside` its neighbors.
    pub run: String,
}

/// A part of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptPart {
    totals: Vec<u64>,
    functions: BTreeMap<String, Vec<u64>>,
}

/// Why a kept profile cannot be compared with.
#[derive(Debug, Error, Diagnostic)]
pub enum BaselineError {
    /// It is not a profile.
    #[error("{}: {problem}", file.display())]
    #[diagnostic(help(
        "give the profile.json that an earlier `cloison profile` has written in its directory"
    ))]
    NoProfile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It is of something else.
    #[error("{}: field `{field}`: it is of `{found}`, and this profile is of `{wanted}`", file.display())]
    #[diagnostic(help("compare with a profile of the same command line, or make a new baseline"))]
    Other {
        /// The file.
        file: PathBuf,
        /// The field.
        field: &'static str,
        /// The file's value.
        found: String,
        /// The value of this profile.
        wanted: String,
    },
    /// It lacks what is compared.
    #[error("{}: field `{field}`: there is no `{wanted}`", file.display())]
    #[diagnostic(help("{help}"))]
    Lacks {
        /// The file.
        file: PathBuf,
        /// The field.
        field: &'static str,
        /// What is missing.
        wanted: String,
        /// What to do.
        help: String,
    },
}

impl Kept {
    /// Describes a profile.
    pub fn new(subject: Subject, tables: &[(Part, Table)]) -> Self {
        let part = |(part, table): &(Part, Table)| {
            let by_name = table.by_name().into_iter();
            let functions = by_name
                .map(|(name, values)| (name, values.to_vec()))
                .collect();
            let totals = table.totals.to_vec();
            (part.name().to_owned(), KeptPart { totals, functions })
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            subject,
            events: EVENTS.map(|event| event.name().to_owned()).into(),
            parts: tables.iter().map(part).collect(),
        }
    }

    /// Reads a kept profile.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no profile.
    pub fn read(file: &Path) -> miette::Result<Self> {
        Ok(Self::parse(file, &files::read(file, files::RESULT)?)?)
    }

    fn parse(file: &Path, bytes: &[u8]) -> Result<Self, BaselineError> {
        let no_profile = |problem: String| BaselineError::NoProfile {
            file: file.to_path_buf(),
            problem,
        };
        let any: serde_json::Value = serde_json::from_slice(bytes)
            .map_err(|error| no_profile(format!("it is not JSON: {error}")))?;
        match any.get("format").and_then(serde_json::Value::as_str) {
            Some(FORMAT) => {}
            Some(other) => {
                let problem = format!("field `format`: it is `{other}`, not `{FORMAT}`");
                return Err(no_profile(problem));
            }
            None => {
                return Err(no_profile(format!(
                    "it has no field `format` of `{FORMAT}`"
                )));
            }
        }
        let version = any.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(VERSION.into()) {
            let found = version.map_or("no number".to_owned(), |version| version.to_string());
            let problem =
                format!("field `version`: it is {found}, and this command reads {VERSION}");
            return Err(no_profile(problem));
        }
        let kept: Self = serde_json::from_value(any)
            .map_err(|error| no_profile(format!("it is damaged: {error}")))?;
        for (name, part) in &kept.parts {
            let all = || {
                part.functions
                    .iter()
                    .map(|(name, counts)| (name.as_str(), counts))
            };
            let mut counted = all().chain([("totals", &part.totals)]);
            if let Some((what, counts)) =
                counted.find(|(_, counts)| counts.len() != kept.events.len())
            {
                return Err(no_profile(format!(
                    "field `parts.{name}`: `{what}` has {} counts, and there are {} events",
                    counts.len(),
                    kept.events.len()
                )));
            }
        }
        Ok(kept)
    }

    /// Compares a profile with this one, which is from `file`.
    ///
    /// # Errors
    ///
    /// If this one is of something else, or lacks the part or the event.
    pub fn compare(&self, file: &Path, now: &Self, gate: &Gate) -> Result<Verdict, BaselineError> {
        let fields = |subject: &Subject| {
            [
                ("system", subject.system.clone()),
                ("vm", subject.vm.clone()),
                ("guest", subject.guest.clone()),
                ("board", subject.board.clone()),
                ("model", subject.model.clone()),
                ("seed", subject.seed.to_string()),
                ("run", subject.run.clone()),
            ]
        };
        let pairs = fields(&self.subject).into_iter().zip(fields(&now.subject));
        for ((field, found), (_, wanted)) in pairs {
            if found != wanted {
                return Err(BaselineError::Other {
                    file: file.to_path_buf(),
                    field,
                    found,
                    wanted,
                });
            }
        }
        let lacks = |field, wanted: &str, known: Vec<&str>| BaselineError::Lacks {
            file: file.to_path_buf(),
            field,
            wanted: wanted.to_owned(),
            help: format!("it has: {}", known.join(", ")),
        };
        let of = |kept: &Self| kept.events.iter().position(|name| *name == gate.event);
        let (Some(at), Some(now_at)) = (of(self), of(now)) else {
            let known = self.events.iter().map(String::as_str).collect();
            return Err(lacks("events", &gate.event, known));
        };
        let name = gate.part.name();
        let (Some(before), Some(part)) = (self.parts.get(name), now.parts.get(name)) else {
            let known = self.parts.keys().map(String::as_str).collect();
            return Err(lacks("parts", name, known));
        };
        Ok(Verdict::new((before, at), (part, now_at), gate.max))
    }
}

/// The greatest growth that a gate lets pass, in millionths of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth(u64);

impl FromStr for Growth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let digits = text.strip_prefix('+').unwrap_or(text).strip_suffix('%')?;
            let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
            let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 4 {
                return None;
            }
            let millionths = format!("{whole}{part:0<4}").parse::<u64>().ok()?;
            (millionths <= 1_000_000_000).then_some(Self(millionths))
        };
        parsed().ok_or_else(|| {
            "write a part of the baseline in percent, with at most four decimals: +2%".to_owned()
        })
    }
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        let part = format!("{part:04}");
        match part.trim_end_matches('0') {
            "" => write!(f, "+{whole}%"),
            part => write!(f, "+{whole}.{part}%"),
        }
    }
}

/// What a gate compares.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The part of the run.
    pub part: Part,
    /// The event.
    pub event: String,
    /// The greatest growth that passes.
    pub max: Growth,
}

/// What became more, or less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The function.
    pub function: String,
    /// Its count in the baseline.
    pub before: u64,
    /// Its count now.
    pub now: u64,
}

impl Change {
    /// Returns the difference as a percentage of `whole`, with its sign.
    pub fn percent_of(&self, whole: u64) -> String {
        let more = self.now.saturating_sub(self.before);
        let less = self.before.saturating_sub(self.now);
        let (sign, difference) = if less > 0 { ("-", less) } else { ("+", more) };
        let hundredths = u128::from(difference) * 10_000 / u128::from(whole.max(1));
        format!("{sign}{}.{:02}%", hundredths / 100, hundredths % 100)
    }
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The whole.
    pub whole: Change,
    /// All functions that changed, by how much they grew.
    pub changes: Vec<Change>,
    max: Growth,
}

impl Verdict {
    fn new(before: (&KeptPart, usize), now: (&KeptPart, usize), max: Growth) -> Self {
        let count = |counts: Option<&Vec<u64>>, at| counts.and_then(|it| it.get(at)).copied();
        let of = |part: &(&KeptPart, usize), name: &String| {
            count(part.0.functions.get(name), part.1).unwrap_or(0)
        };
        let names = before.0.functions.keys().chain(now.0.functions.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let change = |name: &String| Change {
            function: name.clone(),
            before: of(&before, name),
            now: of(&now, name),
        };
        let mut changes: Vec<Change> = names.into_iter().map(change).collect();
        changes.retain(|change| change.before != change.now);
        let growth = |change: &Change| i128::from(change.now) - i128::from(change.before);
        changes.sort_by_key(|change| (-growth(change), change.function.clone()));
        let whole = Change {
            function: "all".to_owned(),
            before: count(Some(&before.0.totals), before.1).unwrap_or(0),
            now: count(Some(&now.0.totals), now.1).unwrap_or(0),
        };
        Self {
            whole,
            changes,
            max,
        }
    }

    fn is_too_much(&self, change: &Change) -> bool {
        let growth = u128::from(change.now.saturating_sub(change.before));
        growth * 1_000_000 > u128::from(self.whole.before) * u128::from(self.max.0)
    }

    /// Returns the functions that grew by more than what passes, measured by the whole.
    pub fn too_much(&self) -> impl Iterator<Item = &Change> {
        self.changes
            .iter()
            .filter(|change| self.is_too_much(change))
    }

    /// Returns whether all that grew may pass.
    pub fn passes(&self) -> bool {
        !self.is_too_much(&self.whole) && self.too_much().next().is_none()
    }
}

/// Returns whether there is an event of this name in a profile.
pub fn event_name(text: &str) -> Result<String, String> {
    match event(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!(
            "there are {}",
            EVENTS.map(|event| event.name()).join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{Costs, Function};
    use super::*;

    fn subject() -> Subject {
        Subject {
            system: "demo".into(),
            vm: "victim".into(),
            guest: "c2is".into(),
            board: "virt".into(),
            model: "zcu102".into(),
            seed: 0,
            run: "beside".into(),
        }
    }

    fn profile(functions: &[(&str, u64)]) -> Kept {
        let mut table = Table::default();
        for (name, cycles) in functions {
            let function = Function {
                name: (*name).to_owned(),
                file: None,
            };
            let mut costs = Costs::default();
            costs.own[0] = *cycles;
            table.functions.insert(function, costs);
            table.totals[0] += cycles;
        }
        Kept::new(subject(), &[(Part::Guest, table)])
    }

    fn gate(max: &str) -> Gate {
        Gate {
            part: Part::Guest,
            event: "CPU_CYCLES".into(),
            max: max.parse().unwrap(),
        }
    }

    #[test]
    fn growth_is_read_and_written_exactly() {
        for (text, value, shown) in [
            ("+2%", 20_000, "+2%"),
            ("0.5%", 5_000, "+0.5%"),
            ("0%", 0, "+0%"),
            ("+12.3456%", 123_456, "+12.3456%"),
        ] {
            let growth: Growth = text.parse().unwrap();
            assert_eq!((growth.0, growth.to_string().as_str()), (value, shown));
        }
        for text in [
            "",
            "%",
            "2",
            "-2%",
            "+2 %",
            "2.%x",
            "1e3%",
            ".5%",
            "1.23456%",
            "+-1%",
            "99999999999999999999%",
            "NaN%",
            "+٢%",
        ] {
            assert!(text.parse::<Growth>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_function_that_grows_fails_even_if_another_one_shrinks() {
        let before = profile(&[("main", 900), ("fill", 100), ("gone", 0)]);
        let file = Path::new("b.json");
        let verdict =
            |now: &[(&str, u64)], max| before.compare(file, &profile(now), &gate(max)).unwrap();
        assert!(verdict(&[("main", 900), ("fill", 100)], "0%").passes());
        assert!(verdict(&[("main", 910), ("fill", 110)], "2%").passes());
        let grown = verdict(&[("main", 921), ("fill", 100)], "2%");
        let names: Vec<&str> = grown.too_much().map(|it| it.function.as_str()).collect();
        assert_eq!((grown.passes(), names), (false, vec!["main"]));
        assert_eq!(grown.whole.percent_of(1000), "+2.10%");
        let moved = verdict(&[("main", 800), ("fill", 100), ("new", 100)], "2%");
        let names: Vec<&str> = moved.too_much().map(|it| it.function.as_str()).collect();
        assert_eq!((moved.passes(), names), (false, vec!["new"]));
        let spread = verdict(&[("main", 915), ("fill", 115)], "2%");
        assert_eq!(
            (spread.passes(), spread.too_much().count()),
            (false, 0),
            "the whole grew by 3 %"
        );
        assert_eq!(moved.changes.last().unwrap().percent_of(1000), "-10.00%");
    }

    #[test]
    fn a_kept_profile_is_read_as_it_was_written() {
        let kept = profile(&[("main", 900)]);
        let text = serde_json::to_vec(&kept).unwrap();
        assert_eq!(Kept::parse(Path::new("b"), &text).unwrap(), kept);
    }

    #[test]
    fn a_bad_baseline_is_refused_with_what_is_wrong() {
        let good = serde_json::to_value(profile(&[("main", 900)])).unwrap();
        let with = |pointer: &str, value: serde_json::Value| {
            let mut changed = good.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let object = changed
                .pointer_mut(parent)
                .unwrap()
                .as_object_mut()
                .unwrap();
            match value {
                serde_json::Value::Null => object.remove(key),
                value => object.insert(key.to_owned(), value),
            };
            changed.to_string()
        };
        use serde_json::json;
        let bad = [
            (String::new(), "not JSON"),
            ("\u{0}".into(), "not JSON"),
            ("{".into(), "not JSON"),
            ("[]".into(), "no field `format`"),
            ("null".into(), "no field `format`"),
            ("events: CPU_CYCLES\nfn=main\n1 2\n".into(), "not JSON"),
            (with("/format", json!("speedscope")), "`speedscope`, not"),
            (with("/format", json!(1)), "no field `format`"),
            (
                with("/version", json!(2)),
                "it is 2, and this command reads 1",
            ),
            (with("/version", json!("1")), "it is no number"),
            (with("/version", json!(null)), "it is no number"),
            (with("/vm", json!(null)), "missing field `vm`"),
            (with("/seed", json!(-1)), "damaged"),
            (with("/events", json!("CPU_CYCLES")), "damaged"),
            (
                with("/events", json!(["CPU_CYCLES"])),
                "has 8 counts, and there are 1 events",
            ),
            (with("/parts", json!([])), "damaged"),
            (with("/parts/guest", json!({})), "damaged"),
            (
                with("/parts/guest/totals", json!([1])),
                "`totals` has 1 counts",
            ),
            (with("/parts/guest/totals", json!([1.5])), "damaged"),
            (
                with("/parts/guest/functions", json!({ "main": [] })),
                "`main` has 0 counts",
            ),
            (
                with(
                    "/parts/guest/functions",
                    json!({ "main": [u64::MAX, 1e30] }),
                ),
                "damaged",
            ),
        ];
        for (text, reason) in bad {
            let error = Kept::parse(Path::new("b.json"), text.as_bytes()).unwrap_err();
            let error = error.to_string();
            assert!(
                error.starts_with("b.json: ") && error.contains(reason),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_baseline_of_something_else_is_refused_with_its_field() {
        let now = profile(&[("main", 900)]);
        let file = Path::new("b.json");
        let compare =
            |before: &Kept, gate: &Gate| before.compare(file, &now, gate).unwrap_err().to_string();
        type Other = fn(&mut Subject);
        let fields: [(&str, Other); 7] = [
            ("system", |it| it.system = "x".into()),
            ("vm", |it| it.vm = "x".into()),
            ("guest", |it| it.guest = "x".into()),
            ("board", |it| it.board = "x".into()),
            ("model", |it| it.model = "x".into()),
            ("seed", |it| it.seed = 9),
            ("run", |it| it.run = "alone".into()),
        ];
        for (field, change) in fields {
            let mut other = now.clone();
            change(&mut other.subject);
            let error = compare(&other, &gate("2%"));
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        }
        let mut other = now.clone();
        other.events[0] = "CYCLES".into();
        assert!(compare(&other, &gate("2%")).contains("field `events`: there is no `CPU_CYCLES`"));
        let counted = Gate {
            part: Part::Counted,
            ..gate("2%")
        };
        assert!(compare(&now, &counted).contains("field `parts`: there is no `counted`"));
    }

    #[test]
    fn any_byte_may_be_damaged() {
        let now = profile(&[("main", 900), ("fill", 100)]);
        let good = serde_json::to_vec(&now).unwrap();
        for at in 0..good.len() {
            for byte in [0, b'"', b'}', b'9', 0xff] {
                let mut damaged = good.clone();
                damaged[at] = byte;
                if let Ok(kept) = Kept::parse(Path::new("b"), &damaged) {
                    let _ = kept.compare(Path::new("b"), &now, &gate("2%"));
                }
            }
            let _ = Kept::parse(Path::new("b"), &good[..at]);
        }
    }
}
