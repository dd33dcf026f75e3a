//! Changes of a model's values that nobody measured on a board: which ones to try.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parameters::{self, Decimal, Parameter, SENSITIVITY, Value, replaced};
use cloison_config::document::{self, Field, Table};
use cloison_config::problem::{Errors, SourceFile};
use cloison_config::suggest;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a model's file says of its values: the table `[sensitivity]`.
struct About {
    /// Parameters that are facts of the board, or were measured on one, or have no influence.
    known: Vec<String>,
    /// Numbers that turn a mechanism off if they are 0, which is tried too.
    off: Vec<String>,
    /// What parameters that are texts may be.
    choices: BTreeMap<String, Vec<String>>,
    /// Parameters whose other values are also tried together.
    pairs: Vec<Pair>,
}

/// Two parameters, by name, of which one may matter more if the other has another value.
struct Pair {
    names: [String; 2],
    span: Range<usize>,
}

impl About {
    /// Reads the table of a model with these values.
    fn read(root: &Table<'_>, all: &[Parameter]) -> Option<Self> {
        let Some(field) = root.optional(SENSITIVITY) else {
            let message = "the model does not say which of its values are known";
            let help = "add a table [sensitivity] with known = [\"TABLE.NAME\", …], as in \
                        configs/models/zcu102.toml";
            root.push(root.error(SENSITIVITY, 0..0, message).help(help));
            return None;
        };
        let table = field.table()?;
        let name = |field: &Field<'_>| {
            let name = field.string("the name of a value: \"TABLE.NAME\"")?;
            named(root, all, name, field.span())
        };
        let help = "name the values: known = [\"TABLE.NAME\", …]";
        let known = table.required_value("known", help, |field| field.each(name));
        let off = table.value("off", |field| field.each(name));
        let choices = table.value("choices", |field| {
            let table = field.table()?;
            let entries = table.entries().into_iter().map(|(name, span, field)| {
                let choices = field.each(|choice| Some(choice.text()?.to_owned()));
                Some((named(root, all, name, span)?, choices?))
            });
            Some(document::all(entries)?.into_iter().collect())
        });
        let pairs = table.value("pairs", |field| {
            field.each(|field| Pair::read(field, root, all))
        });
        table.finish();
        Some(Self {
            known: known?.value,
            off: off.or(vec![])?,
            choices: choices.or(BTreeMap::new())?,
            pairs: pairs.or(vec![])?,
        })
    }

    /// Returns the other values of a parameter to try; nothing if its choices are not known, which
    /// is recorded.
    fn others(&self, root: &Table<'_>, parameter: &Parameter) -> Option<Vec<Value>> {
        let name = &parameter.name;
        match &parameter.value {
            Value::Number(number) => {
                let zero = self.off.contains(name).then_some(Decimal {
                    digits: 0,
                    decimals: 0,
                });
                let others = zero.into_iter().chain([number.half(), number.double()]);
                Some(others.map(Value::Number).collect())
            }
            Value::Switch(on) => Some(vec![Value::Switch(!on)]),
            Value::Text(_) => {
                let choices = self.choices.get(name);
                if choices.is_none() {
                    let message = format!("nothing says what `{name}` may be");
                    let help = "name it in `known`, or give its values in [sensitivity.choices]";
                    let error = root.error(SENSITIVITY, parameter.span(), message);
                    root.push(error.label("a text").help(help));
                }
                Some(choices?.iter().cloned().map(Value::Text).collect())
            }
        }
    }
}

impl Pair {
    fn read(field: &Field<'_>, root: &Table<'_>, all: &[Parameter]) -> Option<Self> {
        let names = field.each(|field| {
            let name = field.string("the name of a value: \"TABLE.NAME\"")?;
            named(root, all, name, field.span())
        })?;
        let span = field.span();
        match <[String; 2]>::try_from(names) {
            Ok(names) if names[0] != names[1] => Some(Self { names, span }),
            _ => {
                let error = field.error("a pair names different values");
                let help = "write pairs = [[\"TABLE.NAME\", \"TABLE.OTHER\"], …]";
                field.push(error.label("not a pair").help(help));
                None
            }
        }
    }
}

/// Returns a name if a parameter has it, else records that none has.
fn named(root: &Table<'_>, all: &[Parameter], name: &str, span: Range<usize>) -> Option<String> {
    let known = || all.iter().map(|one| one.name.as_str());
    if known().any(|other| other == name) {
        return Some(name.to_owned());
    }
    let message = format!("the model has no value `{name}`");
    let problem = root.error(SENSITIVITY, span, message).label("unknown");
    root.push(problem.help(suggest(name, "values in it", known())));
    None
}

/// A change of one value of a model, or of two together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    settings: Vec<Setting>,
}

/// Another value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    parameter: Parameter,
    to: Value,
}

/// Between the values of a change of two.
pub const AND: &str = " and ";

impl Change {
    fn joined(&self, of: impl Fn(&Setting) -> String) -> String {
        let all: Vec<String> = self.settings.iter().map(of).collect();
        all.join(AND)
    }

    /// Returns the names of its parameters.
    pub fn parameter(&self) -> String {
        self.joined(|setting| setting.parameter.name.clone())
    }

    /// Returns their values in the model.
    pub fn from(&self) -> String {
        self.joined(|setting| setting.parameter.value.to_string())
    }

    /// Returns their other values.
    pub fn to(&self) -> String {
        self.joined(|setting| setting.to.to_string())
    }

    /// Returns a name for its directory.
    pub fn directory(&self) -> String {
        let settings = self.settings.iter();
        let names: Vec<String> = settings
            .map(|setting| format!("{}={}", setting.parameter.name, setting.to))
            .collect();
        names.join(",")
    }

    /// Returns a model's text with it.
    pub fn applied(&self, text: &str) -> String {
        let settings = self.settings.iter();
        replaced(
            text,
            settings.map(|setting| (&setting.parameter, setting.to.clone())),
        )
    }
}

/// Returns every change to try: half and double each number that is not known, the other state of
/// each switch, and each other choice of a text; then the combinations of the other values of each
/// pair.
///
/// # Errors
///
/// If the file does not mark its known values, marks a value that it does not have, or has a text
/// without choices.
pub fn changes(source: &SourceFile) -> Result<Vec<Change>, Errors> {
    document::read(source, |root| {
        let all = parameters::all(source)
            .map_err(|problem| root.push(*problem))
            .ok()?;
        let about = About::read(root, &all)?;
        let settings = |parameter: &Parameter| {
            let others = about.others(root, parameter)?.into_iter();
            let others = others.filter(|other| *other != parameter.value);
            let setting = |to| Setting {
                parameter: parameter.clone(),
                to,
            };
            Some(others.map(setting).collect::<Vec<_>>())
        };
        let unknown = all.iter().filter(|one| !about.known.contains(&one.name));
        let alone = document::all(unknown.map(settings))?.concat().into_iter();
        let mut changes: Vec<Change> = alone
            .map(|setting| Change {
                settings: vec![setting],
            })
            .collect();
        for pair in &about.pairs {
            let both = pair.names.iter().map(|name| {
                let parameter = all.iter().find(|one| one.name == *name)?;
                settings(parameter)
            });
            let both = document::all(both)?;
            let mut together = vec![];
            for one in &both[0] {
                let with_one = both[1].iter().map(|other| Change {
                    settings: vec![one.clone(), other.clone()],
                });
                together.extend(with_one);
            }
            if together.iter().any(|change| changes.contains(change)) {
                let error = root.error(SENSITIVITY, pair.span.clone(), "a pair is named again");
                root.push(error.label("again").help("name it once"));
                return None;
            }
            changes.extend(together);
        }
        Some(changes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_engine::installation;
    use std::path::{Path, PathBuf};

    const MODEL: &str = "name = \"a\"\n[core]\nclock_mhz = 1000\nlines = 3\nahead = true\n[l2]\n\
        size = \"1M\"\n\
                         policy = \"lru\"\n";

    fn source(about: &str) -> SourceFile {
        SourceFile::new(Path::new("model.toml"), format!("{MODEL}{about}"))
    }

    fn named(about: &str) -> Vec<String> {
        changes(&source(about))
            .expect("changes")
            .iter()
            .map(Change::directory)
            .collect()
    }

    #[test]
    fn what_is_not_known_is_changed() {
        let about = "[sensitivity]\nknown = ['core.clock_mhz', 'l2.size']\noff = ['core.lines']\n\
            [sensitivity.choices]\n\
                     'l2.policy' = ['lru', 'fifo', 'random']\n";
        let all = [
            "core.lines=0",
            "core.lines=2",
            "core.lines=6",
            "core.ahead=false",
            "l2.policy=fifo",
            "l2.policy=random",
        ];
        assert_eq!(named(about), all);
    }

    #[test]
    fn mistakes_in_what_is_known_are_named() {
        let messages = |about: &str| -> Vec<String> {
            let errors = changes(&source(about)).expect_err("a mistake");
            let problems = errors.problems().iter();
            problems
                .map(|problem| problem.message().to_owned())
                .collect()
        };
        assert_eq!(
            messages(""),
            ["the model does not say which of its values are known"]
        );
        assert_eq!(
            messages("[sensitivity]\nknown = ['l2.size', 'l2.polcy']\noff = ['core.line']\n"),
            [
                "the model has no value `l2.polcy`",
                "the model has no value `core.line`"
            ]
        );
        assert_eq!(
            messages("[sensitivity]\nknown = []\n"),
            [
                "nothing says what `l2.size` may be",
                "nothing says what `l2.policy` may be"
            ]
        );
    }

    #[test]
    fn what_shipped_models_do_not_know_can_be_changed() {
        let models = shipped();
        assert!(models.len() >= 2, "{models:?}");
        for (path, text) in models {
            let changes =
                changes(&SourceFile::new(&path, text.clone())).expect("it says what is known");
            assert!(
                changes
                    .iter()
                    .any(|change| change.parameter() == "l2.replacement"),
                "{}",
                path.display()
            );
            for change in changes {
                let changed = change.applied(&text);
                let board = cloison_board_model::Board::parse(&changed);
                board.unwrap_or_else(|error| {
                    panic!("{}: {}: {error}", path.display(), change.directory())
                });
            }
        }
    }

    #[test]
    fn pairs_are_tried_together_after_each_alone() {
        let about = "[sensitivity]\nknown = ['core.clock_mhz', 'l2.size', 'core.ahead']\n\
            pairs = [['core.lines', 'l2.policy']]\n\
                     [sensitivity.choices]\n'l2.policy' = ['lru', 'fifo']\n";
        let all = [
            "core.lines=2",
            "core.lines=6",
            "l2.policy=fifo",
            "core.lines=2,l2.policy=fifo",
            "core.lines=6,l2.policy=fifo",
        ];
        assert_eq!(named(about), all);
        let changes = changes(&source(about)).expect("changes");
        let last = changes.last().expect("one");
        assert_eq!(
            (last.parameter(), last.from(), last.to()),
            (
                "core.lines and l2.policy".to_owned(),
                "3 and lru".to_owned(),
                "6 and fifo".to_owned()
            )
        );
        let applied = last.applied(MODEL);
        assert!(
            applied.contains("lines = 6\n") && applied.contains("policy = \"fifo\""),
            "{applied}"
        );
        for (pairs, message) in [
            ("[['core.lines']]", "a pair names different values"),
            (
                "[['core.lines', 'core.lines']]",
                "a pair names different values",
            ),
            (
                "[['core.lines', 'core.line']]",
                "the model has no value `core.line`",
            ),
            (
                "[['core.lines', 'l2.policy'], ['core.lines', 'l2.policy']]",
                "a pair is named again",
            ),
        ] {
            let about = about.replace("[['core.lines', 'l2.policy']]", pairs);
            let errors = super::changes(&source(&about)).expect_err(pairs);
            assert_eq!(errors.problems()[0].message(), message, "{pairs}");
        }
    }

    /// Returns the shipped models that say what is known, with their texts.
    fn shipped() -> Vec<(PathBuf, String)> {
        let directory = installation::root().join("configs/models");
        let all = std::fs::read_dir(directory)
            .expect("models")
            .map(|entry| entry.expect("a file").path());
        let texts = all.map(|path| {
            (
                path.clone(),
                std::fs::read_to_string(path).expect("a model"),
            )
        });
        texts
            .filter(|(_, text)| text.contains("[sensitivity]"))
            .collect()
    }
}
