//! The values in a board model's file: found, and changed without any other change in the file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::problem::{Problem, SourceFile};
use std::fmt;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The table of a model's file that marks its known values. It is no part of the model.
pub const SENSITIVITY: &str = "sensitivity";

/// A value in a model's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its tables and its name: `memory.banks.activate_ns`.
    pub name: String,
    /// Its value in the file.
    pub value: Value,
    /// Where in the text the value is.
    span: Range<usize>,
}

impl Parameter {
    /// Returns its position in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

/// A value of one of the kinds that a model's file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number that is not negative.
    Number(Decimal),
    /// A mechanism that is on or off.
    Switch(bool),
    /// A policy, or another word.
    Text(String),
}

/// A decimal number: 16.9 is 169 with 1 decimal. It keeps the file's number of decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// Its digits, without the point.
    pub digits: u64,
    /// Number of them that follow the point.
    pub decimals: u32,
}

impl Decimal {
    /// Reads a number that is not negative, has no exponent, and at most six decimals.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let decimals = u32::try_from(fraction.len())
            .ok()
            .filter(|decimals| *decimals <= 6)?;
        Some(Self {
            digits: format!("{whole}{fraction}").parse().ok()?,
            decimals,
        })
    }

    /// Returns half of it; without decimals rounded up, so that 1 stays 1.
    pub fn half(self) -> Self {
        match self.decimals {
            0 => Self {
                digits: self.digits.div_ceil(2),
                ..self
            },
            decimals => Self {
                digits: self.digits * 5,
                decimals: decimals + 1,
            },
        }
    }

    /// Returns twice of it.
    pub const fn double(self) -> Self {
        Self {
            digits: self.digits.saturating_mul(2),
            ..self
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = 10_u64.pow(self.decimals);
        match self.decimals as usize {
            0 => write!(f, "{}", self.digits),
            width => write!(f, "{}.{:0width$}", self.digits / scale, self.digits % scale),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Switch(on) => on.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Value {
    /// Returns it as TOML.
    fn to_toml(&self) -> String {
        match self {
            Self::Text(text) => toml::Value::from(text.as_str()).to_string(),
            other => other.to_string(),
        }
    }
}

/// Returns all numbers, switches and texts in the tables of a model's file, in its order.
///
/// # Errors
///
/// If the text is not TOML.
pub fn all(source: &SourceFile) -> Result<Vec<Parameter>, Box<Problem>> {
    let root = DeTable::parse(source.text()).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        Box::new(Problem::error(source, "model", span, error.message().trim_end()).label("here"))
    })?;
    let mut found = vec![];
    for (name, value) in root.get_ref() {
        if let (DeValue::Table(table), true) = (value.get_ref(), name.get_ref() != SENSITIVITY) {
            collect(table, name.get_ref(), &mut found);
        }
    }
    found.sort_by_key(|parameter| parameter.span.start);
    Ok(found)
}

fn collect(table: &DeTable<'_>, prefix: &str, found: &mut Vec<Parameter>) {
    for (name, value) in table {
        let name = format!("{prefix}.{}", name.get_ref());
        let read = match value.get_ref() {
            DeValue::Table(table) => {
                collect(table, &name, found);
                continue;
            }
            DeValue::Integer(number) => Decimal::read(&number.to_string()).map(Value::Number),
            DeValue::Float(number) => Decimal::read(&number.to_string()).map(Value::Number),
            DeValue::Boolean(on) => Some(Value::Switch(*on)),
            DeValue::String(text) => Some(Value::Text(text.to_string())),
            _ => None,
        };
        found.extend(read.map(|value_read| Parameter {
            name,
            value: value_read,
            span: value.span(),
        }));
    }
}

/// Returns a file's text with other values of these parameters, and no other change.
pub fn replaced<'a>(
    text: &str,
    changes: impl IntoIterator<Item = (&'a Parameter, Value)>,
) -> String {
    let mut changes: Vec<_> = changes.into_iter().collect();
    // From the end, so that no change moves what is still to be changed.
    changes.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.span.start));
    let mut text = text.to_owned();
    for (parameter, value) in changes {
        text.replace_range(parameter.span.clone(), &value.to_toml());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MODEL: &str = "name = \"a\"\n[core]\nclock_mhz = 1_000 # MHz\non = true\n[memory.banks]\n\
        bits = [1, 2]\n\
                         activate_ns = 16.90\npolicy = \"lru\"\n[sensitivity]\nseed = 3\n";

    fn read() -> Vec<Parameter> {
        all(&SourceFile::new(Path::new("model.toml"), MODEL.to_owned())).expect("TOML")
    }

    #[test]
    fn values_are_found_in_all_tables_but_that_about_them() {
        let found: Vec<_> = read()
            .into_iter()
            .map(|one| (one.name, one.value.to_string()))
            .collect();
        let expected = [
            ("core.clock_mhz", "1000"),
            ("core.on", "true"),
            ("memory.banks.activate_ns", "16.90"),
            ("memory.banks.policy", "lru"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn only_the_values_change_in_a_text() {
        let found = read();
        let changes = [
            (&found[3], Value::Text("round-robin".into())),
            (
                &found[0],
                Value::Number(Decimal {
                    digits: 500,
                    decimals: 0,
                }),
            ),
            (&found[1], Value::Switch(false)),
        ];
        let expected = MODEL
            .replace("1_000", "500")
            .replace("true", "false")
            .replace("lru", "round-robin");
        assert_eq!(replaced(MODEL, changes), expected);
    }

    #[test]
    fn halves_and_doubles_are_exact() {
        let of = |text: &str| {
            Decimal::read(text).map(|one| (one.half().to_string(), one.double().to_string()))
        };
        assert_eq!(of("16.9"), Some(("8.45".into(), "33.8".into())));
        assert_eq!(of("1000"), Some(("500".into(), "2000".into())));
        assert_eq!(of("3"), Some(("2".into(), "6".into())));
        assert_eq!(of("1"), Some(("1".into(), "2".into())));
        assert_eq!(of("0.05"), Some(("0.025".into(), "0.10".into())));
        assert_eq!(of("1e3"), None, "an exponent is not supported");
    }
}
