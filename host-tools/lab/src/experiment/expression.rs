//! Expressions, and texts with placeholders, over the values of a scope: the language of the report
//! in an experiment's file.
//!
//! `cloison_metrics::Formula` is another language on purpose, that of perf's metrics: it is read
//! once and computed for each row, it runs in guests, and its minus needs no blanks. Here a name may
//! contain a minus (`no-neighbors.cycles`), values are also texts, lists and missing, and a count
//! stays a count.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::Mistake;
use super::findings::{falls, shown};
use cloison_config::suggest;
use std::ops::Range;

/// The value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Not measured, as of a run that was left out.
    Missing,
    /// A name or another text.
    Text(String),
    /// A count.
    Count(u64),
    /// A ratio, a rate, or another number.
    Number(f64),
    /// Several values, in order.
    List(Vec<Value>),
}

/// A mistake in a name, and its fix.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The mistake.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl Refusal {
    /// Refuses a name of this kind, and suggests a known one.
    pub fn unknown<'a>(
        kind: &str,
        name: &str,
        kinds: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            message: format!("there is no {kind} `{name}`"),
            help: suggest(name, kinds, known),
        }
    }
}

/// Runs of a variant: its name, empty for that of the row, and labels on axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Name of the variant.
    pub variant: String,
    /// Labels on axes that a run must have.
    pub axes: Vec<(String, String)>,
}

/// Where names have a meaning.
pub trait Scope {
    /// Returns the value of a name alone.
    fn name(&self, name: &str) -> Result<Value, Refusal>;
    /// Returns a quantity of some runs, or a column of a table.
    fn member(&self, of: &Selection, name: &str) -> Result<Value, Refusal>;
    /// Returns what the systems of some runs have at a path.
    fn setting(&self, of: &Selection, path: &str) -> Result<Value, Refusal>;
    /// Returns the value of a function that takes the name of an event.
    fn of_event(&self, function: &str, event: &str, factor: f64) -> Result<Value, Refusal>;
}

impl Value {
    /// Returns whether a condition holds.
    pub fn holds(&self) -> bool {
        match self {
            Self::Missing => false,
            Self::Text(text) => !text.is_empty(),
            Self::Count(count) => *count > 0,
            Self::Number(number) => *number != 0.0,
            Self::List(all) => all.iter().all(Self::holds),
        }
    }

    /// Returns it as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::List(all) if all.len() == 1 => all[0].number(),
            _ => None,
        }
    }

    /// Returns its elements; those that are missing are left out.
    fn elements(&self) -> Vec<Self> {
        match self {
            Self::Missing => vec![],
            Self::List(all) => all.iter().flat_map(Self::elements).collect(),
            one => vec![one.clone()],
        }
    }

    /// Returns a single value as itself, none as missing, and several as a list.
    pub fn list(mut all: Vec<Self>) -> Self {
        match all.len() {
            0 => Self::Missing,
            1 => all.remove(0),
            _ => Self::List(all),
        }
    }

    /// Formats it for a text; nothing if it is missing. Equal values of a list are said once.
    fn said(&self, format: &str) -> Option<String> {
        match self {
            Self::Missing => None,
            Self::List(all) => {
                let mut said: Vec<String> = vec![];
                for one in all.iter().flat_map(Self::elements) {
                    let one = one.said(format)?;
                    if !said.contains(&one) {
                        said.push(one);
                    }
                }
                let (last, before) = said.split_last()?;
                Some(match before {
                    [] => last.clone(),
                    some => format!("{} and {last}", some.join(", ")),
                })
            }
            Self::Text(text) if format == "size" => Some(size(bytes(text)?)),
            Self::Text(text) => Some(text.clone()),
            Self::Count(count) => Some(match (format, places(format)) {
                ("size", _) => size(*count),
                ("word", _) => usize::try_from(*count)
                    .ok()
                    .and_then(|count| WORDS.get(count))
                    .map_or_else(|| count.to_string(), |word| (*word).to_owned()),
                ("", _) => count.to_string(),
                (_, Some((places, sign))) => decimals(*count as f64, places, sign),
                _ => count.to_string(),
            }),
            Self::Number(number) => Some(match places(format) {
                Some((places, sign)) => decimals(*number, places, sign),
                None => shown(*number),
            }),
        }
    }
}

/// Small numbers as words.
const WORDS: [&str; 13] = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
];

/// Whether a number has its sign, also if it is positive.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Always,
    Negative,
}

/// More decimals than a number has.
const MOST_PLACES: usize = 20;

/// Returns the number of decimals of a format such as `.2` or `+.1`.
fn places(format: &str) -> Option<(usize, Sign)> {
    let (format, sign) = match format.strip_prefix('+') {
        Some(rest) => (rest, Sign::Always),
        None => (format, Sign::Negative),
    };
    let places = format.strip_prefix('.')?.parse().ok()?;
    (places <= MOST_PLACES).then_some((places, sign))
}

fn decimals(number: f64, places: usize, sign: Sign) -> String {
    match sign {
        Sign::Always => format!("{number:+.places$}"),
        Sign::Negative => format!("{number:.places$}"),
    }
}

/// Returns the bytes of a size as a configuration has it: `420K`, `16M`.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_');
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.trim() {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    let number: u64 = digits.replace('_', "").parse().ok()?;
    number.checked_mul(1 << shift)
}

/// Formats bytes in the largest unit of which they are a multiple.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    units.iter().find(fits).map_or_else(
        || format!("{bytes} bytes"),
        |(shift, unit)| format!("{} {unit}", bytes >> shift),
    )
}

/// Returns the number of colors in a set such as `0-10,12`.
fn colors(set: &str) -> Option<u64> {
    let piece = |piece: &str| {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.checked_add(1)?.saturating_sub(first))
    };
    let mut pieces = set.split(',').map(piece);
    pieces.try_fold(0_u64, |sum, colors| sum.checked_add(colors?))
}

/// Evaluates an expression.
///
/// # Errors
/// Returns the first mistake: the syntax, or a name without a meaning in the scope.
pub fn evaluate(text: &str, scope: &dyn Scope) -> Result<Value, Mistake> {
    let mut reader = Reader {
        text,
        at: 0,
        end: text.len(),
        depth: 0,
        scope,
    };
    let value = reader.whole()?;
    reader.space();
    match reader.at < reader.end {
        true => Err(reader.mistake(reader.at..reader.end, "more follows after the expression")),
        false => Ok(value),
    }
}

/// Returns a text with its placeholders filled in; nothing if the value of one is missing.
///
/// # Errors
/// As [`evaluate`]; also if a brace is not closed, or a format is unknown.
pub fn fill(text: &str, scope: &dyn Scope) -> Result<Option<String>, Mistake> {
    let (mut filled, mut at, mut complete) = (String::new(), 0, true);
    while let Some(open) = text[at..].find('{').map(|open| at + open) {
        filled.push_str(&text[at..open]);
        let mut reader = Reader {
            text,
            at: open + 1,
            end: text.len(),
            depth: 0,
            scope,
        };
        let value = reader.whole()?;
        reader.space();
        let format = if reader.eat(":") {
            reader.piece(|c| c != '}')
        } else {
            reader.at..reader.at
        };
        let known =
            |format: &str| ["", "size", "word"].contains(&format) || places(format).is_some();
        if !known(&text[format.clone()]) {
            let help = "formats are .N (decimals), +.N (with a sign), size and word";
            return Err(Mistake {
                message: format!("there is no format `{}`", &text[format.clone()]),
                at: format,
                help: help.into(),
            });
        }
        if !reader.eat("}") {
            return Err(reader.mistake(open..reader.at, "a closing brace is missing"));
        }
        match value.said(&text[format]) {
            Some(said) => filled.push_str(&said),
            None => complete = false,
        }
        at = reader.at;
    }
    filled.push_str(&text[at..]);
    Ok(complete.then_some(filled))
}

/// How two values are combined.
#[derive(Clone, Copy)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
    AtMost,
    AtLeast,
    Equal,
    Unequal,
    Less,
    Greater,
    And,
    Or,
}

/// The operators by how strongly they bind, the weakest first; of those with a common beginning,
/// the longer one first.
const OPERATORS: [&[(&str, Operator)]; 5] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over)],
];

/// Combines two values; lists element by element.
fn combine(operator: Operator, one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::List(ones), Value::List(others)) => Value::List(
            ones.iter()
                .zip(others)
                .map(|(one, other)| combine(operator, one, other))
                .collect(),
        ),
        (Value::List(ones), _) => Value::List(
            ones.iter()
                .map(|one| combine(operator, one, other))
                .collect(),
        ),
        (_, Value::List(others)) => Value::List(
            others
                .iter()
                .map(|other| combine(operator, one, other))
                .collect(),
        ),
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Text(one), Value::Text(other)) => match operator {
            Operator::Equal => Value::Count(u64::from(one == other)),
            Operator::Unequal => Value::Count(u64::from(one != other)),
            _ => Value::Missing,
        },
        _ => numbers(operator, one, other),
    }
}

/// Combines two numbers: counts to a count where there is one.
fn numbers(operator: Operator, one: &Value, other: &Value) -> Value {
    if let (Value::Count(one), Value::Count(other)) = (one, other) {
        let count = match operator {
            Operator::Plus => one.checked_add(*other),
            Operator::Minus => one.checked_sub(*other),
            Operator::Times => one.checked_mul(*other),
            _ => None,
        };
        if let Some(count) = count {
            return Value::Count(count);
        }
    }
    let (Some(left), Some(right)) = (one.number(), other.number()) else {
        return Value::Missing;
    };
    let holds = match operator {
        Operator::Plus => return Value::Number(left + right),
        Operator::Minus => return Value::Number(left - right),
        Operator::Times => return Value::Number(left * right),
        Operator::Over if right == 0.0 => return Value::Missing,
        Operator::Over => return Value::Number(left / right),
        Operator::AtMost => left <= right,
        Operator::AtLeast => left >= right,
        Operator::Equal => left == right,
        Operator::Unequal => left != right,
        Operator::Less => left < right,
        Operator::Greater => left > right,
        Operator::And => one.holds() && other.holds(),
        Operator::Or => one.holds() || other.holds(),
    };
    Value::Count(u64::from(holds))
}

/// The functions over values.
const FUNCTIONS: [&str; 23] = [
    "count",
    "sum",
    "min",
    "max",
    "first",
    "last",
    "abs",
    "whole",
    "or",
    "if",
    "filter",
    "falls",
    "knee",
    "halfway",
    "at_max",
    "before",
    "near_min",
    "near_max",
    "stays_below",
    "colors",
    "bytes",
    "others",
    "list",
];

/// Returns the value of a function; nothing if there is none of this name.
fn call(name: &str, arguments: &[Value]) -> Option<Value> {
    let argument = |index: usize| arguments.get(index).unwrap_or(&Value::Missing);
    let all = || {
        arguments
            .iter()
            .flat_map(Value::elements)
            .collect::<Vec<_>>()
    };
    let column = |index: usize| {
        let numbers = argument(index).elements();
        numbers.iter().filter_map(Value::number).collect::<Vec<_>>()
    };
    let extreme = |greater: fn(f64, f64) -> bool| {
        let better = |best: Value, next: Value| match (best.number(), next.number()) {
            (Some(one), Some(other)) if !greater(other, one) => best,
            _ => next,
        };
        all().into_iter().reduce(better).unwrap_or(Value::Missing)
    };
    let flag = |holds: bool| Value::Count(u64::from(holds));
    let of_text = |of: fn(&str) -> Option<u64>| match argument(0).elements().first() {
        Some(Value::Text(text)) => of(text).map_or(Value::Missing, Value::Count),
        Some(Value::Count(count)) => Value::Count(*count),
        _ => Value::Missing,
    };
    let place = |index: Option<usize>, of: usize| {
        let elements = argument(of).elements();
        index
            .and_then(|index| elements.get(index).cloned())
            .unwrap_or(Value::Missing)
    };
    Some(match name {
        "count" => Value::Count(all().len() as u64),
        "sum" => all().iter().fold(Value::Count(0), |sum, next| {
            numbers(Operator::Plus, &sum, next)
        }),
        "min" => extreme(|next, best| next < best),
        // Of equal ones the last.
        "max" => extreme(|next, best| next >= best),
        "first" => all().first().cloned().unwrap_or(Value::Missing),
        "last" => all().last().cloned().unwrap_or(Value::Missing),
        "list" => Value::List(all()),
        "abs" => argument(0)
            .number()
            .map_or(Value::Missing, |number| Value::Number(number.abs())),
        "whole" => argument(0)
            .number()
            .map_or(Value::Missing, |number| Value::Count(number as u64)),
        "or" => match argument(0) {
            Value::Missing => argument(1).clone(),
            value => value.clone(),
        },
        "if" => argument(if argument(0).holds() { 1 } else { 2 }).clone(),
        "filter" => {
            let kept = argument(0)
                .elements()
                .into_iter()
                .zip(argument(1).elements());
            Value::List(
                kept.filter(|(_, keep)| keep.holds())
                    .map(|(value, _)| value)
                    .collect(),
            )
        }
        "falls" => flag(falls(&column(0), argument(1).number().unwrap_or(0.0))),
        "knee" => place(knee(&column(1), argument(2).number().unwrap_or(0.0)), 0),
        "near_min" => place(near_min(&column(1), argument(2).number().unwrap_or(0.0)), 0),
        "near_max" => place(near_max(&column(1), argument(2).number().unwrap_or(0.0)), 0),
        "stays_below" => {
            let limit = argument(2).number().unwrap_or(f64::NEG_INFINITY);
            place(stays_below(&column(1), limit), 0)
        }
        "halfway" => place(halfway(&column(1)), 0),
        "at_max" => {
            let (values, most) = (column(1), column(1).into_iter().fold(f64::MIN, f64::max));
            place(values.iter().rposition(|value| *value == most), 0)
        }
        "before" => {
            let (values, limit) = (column(0), argument(1).number().unwrap_or(0.0));
            place(values.iter().rposition(|value| *value < limit), 0)
        }
        "colors" => of_text(colors),
        "bytes" => of_text(bytes),
        _ => return None,
    })
}

/// Returns where values begin to stay within a tolerance of the least one.
fn knee(values: &[f64], tolerance: f64) -> Option<usize> {
    let best = values.iter().copied().reduce(f64::min)?;
    stays_below(values, best * (1.0 + tolerance))
}

/// Returns where values begin to stay at or below a limit.
fn stays_below(values: &[f64], limit: f64) -> Option<usize> {
    let last_values = values.iter().rev().take_while(|value| **value <= limit);
    values.len().checked_sub(last_values.count())
}

/// Returns the first of the values that is within a tolerance of the least one. On a plateau, that
/// is where the plateau begins, which no small difference between its points moves.
fn near_min(values: &[f64], tolerance: f64) -> Option<usize> {
    let least = values.iter().copied().reduce(f64::min)?;
    let limit = least * (1.0 + tolerance);
    values.iter().position(|value| *value <= limit)
}

/// Returns the first of the values that is within a tolerance of the greatest one.
fn near_max(values: &[f64], tolerance: f64) -> Option<usize> {
    let greatest = values.iter().copied().reduce(f64::max)?;
    let limit = greatest * (1.0 - tolerance);
    values.iter().position(|value| *value >= limit)
}

/// Returns where values have fallen by half of the way from the first to the last.
fn halfway(values: &[f64]) -> Option<usize> {
    let middle = (values.first()? + values.last()?) / 2.0;
    values.iter().position(|value| *value <= middle)
}

/// Deepest nesting of brackets: the reader calls itself for each.
const DEEPEST: usize = 64;

/// Reads an expression from left to right.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    /// How many brackets are open.
    depth: usize,
    scope: &'a dyn Scope,
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

impl Reader<'_> {
    fn mistake(&self, at: Range<usize>, message: impl Into<String>) -> Mistake {
        Mistake {
            at: at.start.min(self.end)..at.end.min(self.end),
            message: message.into(),
            help: "docs/experiments.md explains expressions; a minus has blanks around it".into(),
        }
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..self.end];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let rest = self.text[self.at..self.end].strip_prefix(token);
        // A word ends where no letter of a name follows.
        let is_word = token.starts_with(char::is_alphabetic);
        let found = rest.is_some_and(|rest| !(is_word && rest.starts_with(is_name)));
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Returns the longest piece of such letters from here on.
    fn piece(&mut self, of: impl Fn(char) -> bool) -> Range<usize> {
        self.space();
        let rest = &self.text[self.at..self.end];
        let start = self.at;
        self.at += rest.find(|c| !of(c)).unwrap_or(rest.len());
        start..self.at
    }

    fn whole(&mut self) -> Result<Value, Mistake> {
        if self.depth > DEEPEST {
            let message = format!("brackets are nested more than {DEEPEST} deep");
            return Err(self.mistake(self.at..self.at, message));
        }
        self.depth += 1;
        let value = self.level(0);
        self.depth -= 1;
        value
    }

    /// Reads operands that operators of this level or stronger ones combine.
    fn level(&mut self, level: usize) -> Result<Value, Mistake> {
        let Some(operators) = OPERATORS.get(level) else {
            return self.operand();
        };
        let mut value = self.level(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(token, _)| self.eat(token)) {
            let other = self.level(level + 1)?;
            value = combine(*operator, &value, &other);
        }
        Ok(value)
    }

    fn operand(&mut self) -> Result<Value, Mistake> {
        self.space();
        let rest = &self.text[self.at..self.end];
        if self.eat("(") {
            let value = self.whole()?;
            return self.closed(")", value);
        }
        if self.eat("'") {
            let text = self.piece(|c| c != '\'');
            return self.closed("'", Value::Text(self.text[text].to_owned()));
        }
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.number();
        }
        let name = self.piece(is_name);
        if name.is_empty() && !rest.starts_with(':') {
            return Err(self.mistake(name.start..self.end, "a number or a name is missing here"));
        }
        if self.eat("(") {
            return self.call(name);
        }
        let variant = self.text[name.clone()].to_owned();
        let mut selection = Selection {
            variant,
            axes: vec![],
        };
        if self.eat("[") {
            self.labels(&mut selection)?;
        }
        let named = name.start;
        // A format follows a colon, too, but starts with no letter of a path, or ends the text.
        let is_setting = self.text[self.at..self.end].starts_with(':')
            && self.path().is_some_and(|path| path.contains('.'));
        let value = if is_setting {
            self.at += 1;
            let path = self.piece(is_path);
            self.scope.setting(&selection, &self.text[path])
        } else if self.eat(".") {
            let member = self.piece(is_name);
            self.scope.member(&selection, &self.text[member])
        } else {
            self.scope.name(&selection.variant)
        };
        value.map_err(|Refusal { message, help }| Mistake {
            at: named..self.at,
            message,
            help,
        })
    }

    /// Returns what follows a colon here, as far as it could be a path.
    fn path(&self) -> Option<&str> {
        let rest = self.text[self.at..self.end].strip_prefix(':')?;
        let path = &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())];
        path.starts_with(|c: char| c.is_alphabetic())
            .then_some(path)
    }

    fn closed(&mut self, token: &str, value: Value) -> Result<Value, Mistake> {
        match self.eat(token) {
            true => Ok(value),
            false => Err(self.mistake(self.at..self.end, format!("`{token}` is missing here"))),
        }
    }

    fn number(&mut self) -> Result<Value, Mistake> {
        let at = self.piece(|c| c.is_ascii_digit() || matches!(c, '_' | '.'));
        let digits = self.text[at.clone()].replace('_', "");
        if self.eat("%") {
            let number = digits.parse::<f64>().map(|number| number / 100.0);
            return number
                .map(Value::Number)
                .map_err(|_| self.mistake(at, "not a number"));
        }
        let count = digits.parse().map(Value::Count);
        count
            .or_else(|_| digits.parse().map(Value::Number))
            .map_err(|_| self.mistake(at, "not a number"))
    }

    /// Reads `AXIS=LABEL, …]`.
    fn labels(&mut self, selection: &mut Selection) -> Result<(), Mistake> {
        loop {
            let axis = self.piece(is_name);
            if axis.is_empty() || !self.eat("=") {
                let rest = &self.text[self.at..self.end];
                let next = rest.chars().next().map_or(0, char::len_utf8);
                return Err(self.mistake(axis.start..self.at + next, "write [AXIS=VALUE]"));
            }
            let label = self.piece(|c| !matches!(c, ',' | ']'));
            let pair = (&self.text[axis], self.text[label].trim());
            selection.axes.push((pair.0.to_owned(), pair.1.to_owned()));
            if self.eat("]") {
                return Ok(());
            }
            if !self.eat(",") {
                return Err(self.mistake(self.at..self.end, "`]` is missing here"));
            }
        }
    }

    /// Reads the arguments of a function.
    fn call(&mut self, name: Range<usize>) -> Result<Value, Mistake> {
        let function = self.text[name.clone()].to_owned();
        if function == "others" {
            let event = self.piece(is_name);
            let event = self.text[event].to_owned();
            let factor = if self.eat(",") {
                self.whole()?.number().unwrap_or(1.0)
            } else {
                1.0
            };
            let value = self.scope.of_event(&function, &event, factor);
            let value = value.map_err(|Refusal { message, help }| Mistake {
                at: name.start..self.at,
                message,
                help,
            })?;
            return self.closed(")", value);
        }
        let mut arguments = vec![];
        while !self.eat(")") {
            arguments.push(self.whole()?);
            if !self.eat(",") {
                self.closed(")", Value::Missing)?;
                break;
            }
        }
        call(&function, &arguments).ok_or_else(|| {
            let refusal = Refusal::unknown("function", &function, "functions", FUNCTIONS);
            Mistake {
                at: name,
                message: refusal.message,
                help: refusal.help,
            }
        })
    }
}

fn is_path(c: char) -> bool {
    is_name(c) || matches!(c, '.' | '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scope of a few names.
    struct Example;

    impl Scope for Example {
        fn name(&self, name: &str) -> Result<Value, Refusal> {
            match name {
                "pages" => Ok(list(&[0, 16, 32, 48, 64])),
                "cycles" => Ok(list(&[600, 500, 104, 300, 100])),
                "absent" => Ok(Value::Missing),
                _ => Err(Refusal::unknown("name", name, "names", ["pages", "cycles"])),
            }
        }

        fn member(&self, of: &Selection, name: &str) -> Result<Value, Refusal> {
            let labels: String = of.axes.iter().map(|(a, b)| format!("{a}={b}")).collect();
            Ok(Value::Text(format!("{}[{labels}].{name}", of.variant)))
        }

        fn setting(&self, of: &Selection, path: &str) -> Result<Value, Refusal> {
            let sizes = ["420K", "420K", "1M"].map(|size| Value::Text(size.to_owned()));
            match path {
                "vm.interf-*.args.0" => Ok(Value::List(sizes.into())),
                _ => Ok(Value::Text(format!("{}:{path}", of.variant))),
            }
        }

        fn of_event(&self, function: &str, event: &str, factor: f64) -> Result<Value, Refusal> {
            Ok(Value::Text(format!("{function} {event} {factor}")))
        }
    }

    fn list(all: &[u64]) -> Value {
        Value::List(all.iter().copied().map(Value::Count).collect())
    }

    #[test]
    fn expressions_have_values() {
        for (text, value) in [
            ("2 + 3 * 4", Value::Count(14)),
            ("(2 + 3) * 4 - 1", Value::Count(19)),
            ("1 - 2", Value::Number(-1.0)),
            ("3 / 2", Value::Number(1.5)),
            ("5 %", Value::Number(0.05)),
            ("1 < 2 and 2 < 1 or 3 == 3", Value::Count(1)),
            ("'one' == 'one'", Value::Count(1)),
            ("absent + 1", Value::Missing),
            ("or(absent, 7)", Value::Count(7)),
            ("if(1 > 2, 'yes', 'no')", Value::Text("no".into())),
            ("filter(pages, cycles < 200)", list(&[32, 64])),
            ("max(pages) + min(cycles) + count(pages)", Value::Count(169)),
            ("at_max(pages, cycles)", Value::Count(0)),
            ("knee(pages, cycles, 5 %)", Value::Count(64)),
            // 32 pages are within 5 % of the best too, but 48 are not.
            ("near_min(pages, cycles, 5 %)", Value::Count(32)),
            ("near_max(pages, cycles, 20 %)", Value::Count(0)),
            ("stays_below(pages, cycles, 400)", Value::Count(32)),
            ("stays_below(pages, cycles, 50)", Value::Missing),
            ("halfway(pages, cycles)", Value::Count(32)),
            ("before(pages, 48)", Value::Count(32)),
            ("falls(cycles, 1 %)", Value::Count(0)),
            ("colors('0-10,12')", Value::Count(12)),
            ("bytes('420K')", Value::Count(430_080)),
            ("bytes('18446744073709551615K')", Value::Missing),
            ("colors('0-18446744073709551615')", Value::Missing),
            ("colors('0-18446744073709551614,1')", Value::Missing),
            ("whole(2.9)", Value::Count(2)),
            ("a-b[x=1].cycles", Value::Text("a-b[x=1].cycles".into())),
            (
                "interf:vm.x-1.args.0",
                Value::Text("interf:vm.x-1.args.0".into()),
            ),
            (
                "others(ST_RETIRED, 64)",
                Value::Text("others ST_RETIRED 64".into()),
            ),
        ] {
            assert_eq!(evaluate(text, &Example).expect(text), value, "{text}");
        }
    }

    #[test]
    fn texts_are_filled_in() {
        for (text, said) in [
            ("{max(pages):word} of {2:word}", Some("64 of two")),
            (
                "{1 / 3:.2}, {50 / 2:+.1} and {7}",
                Some("0.33, +25.0 and 7"),
            ),
            (
                "over {:vm.interf-*.args.0:size}",
                Some("over 420 KiB and 1 MiB"),
            ),
            ("{3 * 1024:size}", Some("3 KiB")),
            ("{absent} is not said", None),
        ] {
            let filled = fill(text, &Example).expect(text);
            assert_eq!(filled.as_deref(), said, "{text}");
        }
    }

    #[test]
    fn mistakes_are_marked_where_they_are() {
        for (text, at, message) in [
            ("pages + pgaes", "pgaes", "there is no name `pgaes`"),
            ("lest(pages)", "lest", "there is no function `lest`"),
            ("1 + ", "", "a number or a name is missing here"),
            ("(1 + 2", "", "`)` is missing here"),
            ("1 2", "2", "more follows after the expression"),
            ("a[x].cycles", "x]", "write [AXIS=VALUE]"),
            ("a[xé].cycles", "xé]", "write [AXIS=VALUE]"),
            ("a[x✓", "x✓", "write [AXIS=VALUE]"),
        ] {
            let mistake = evaluate(text, &Example).expect_err(text);
            assert_eq!(
                (&text[mistake.at], &*mistake.message),
                (at, message),
                "{text}"
            );
        }
        let mistake = fill("{pages", &Example).expect_err("no brace");
        assert_eq!(mistake.message, "a closing brace is missing");
        let mistake = fill("{1:.65536}", &Example).expect_err("no number has them");
        assert_eq!(mistake.message, "there is no format `.65536`");
    }

    #[test]
    fn brackets_are_nested_as_deeply_as_the_stack_allows() {
        let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(evaluate(&nested(64), &Example).ok(), Some(Value::Count(1)));
        for (open, depth) in [("(", 65), ("(", 100_000), ("list(", 100_000)] {
            let mistake = evaluate(&open.repeat(depth), &Example).expect_err("too deep");
            assert!(mistake.message.contains("more than 64 deep"), "{open}");
        }
    }
}
