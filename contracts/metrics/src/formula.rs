//! Arithmetic with names: `MISS / (LD + ST)`.
//!
//! `+ - * /` bind as in the expressions of experiments' files
//! (`cloison_lab::experiment::expression`), which are another language: these formulas are perf's,
//! have numbers alone, and are computed in guests too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

/// An expression of `+ - * /`, brackets, numbers and names.
///
/// It is computed here rather than by a library: those that are kept up bring regular expressions,
/// which are longer than all the rest of a program in a guest's RAM disk.
#[derive(Clone, Debug)]
pub struct Formula {
    text: String,
    names: Vec<String>,
    steps: Vec<Step>,
}

/// A step of the computation: a value that is put on a stack, or what is done with the last one or
/// two.
#[derive(Clone, Copy, Debug)]
enum Step {
    Number(f64),
    /// The name at this position.
    Name(usize),
    Negate,
    Operate(char),
}

/// Deepest nesting of brackets and signs.
const DEEPEST: usize = 64;

impl Formula {
    /// Parses an expression in the syntax of perf's metrics.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the text.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_known =
            |letter: char| letter.is_ascii_alphanumeric() || "_.+-*/() ".contains(letter);
        if let Some(odd) = text.chars().find(|&letter| !is_known(letter)) {
            return Err(format!("`{odd}` has no meaning in arithmetic"));
        }
        let mut names: Vec<String> = words(text)
            .filter(|word| is_word(word))
            .map(str::to_owned)
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut parser = Parser {
            words: words(text).collect(),
            at: 0,
            names: &names,
            steps: Vec::new(),
        };
        let parsed = parser.sum(0).and_then(|()| match parser.peek() {
            None => Ok(()),
            Some(word) => Err(format!("`{word}` is not expected")),
        });
        parsed.map_err(|error| format!("`{text}` cannot be computed: {error}"))?;
        let steps = parser.steps;
        Ok(Self {
            text: text.to_owned(),
            names,
            steps,
        })
    }

    /// Returns the names in it, each once, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns its value. Returns `None` if a name has no value, or if the result is not finite.
    pub fn value(&self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self
            .names
            .iter()
            .map(|name| of(name))
            .collect::<Option<_>>()?;
        let mut stack: Vec<f64> = Vec::new();
        for step in &self.steps {
            let value = match *step {
                Step::Number(number) => number,
                Step::Name(at) => *values.get(at)?,
                Step::Negate => -stack.pop()?,
                Step::Operate(operator) => {
                    let (right, left) = (stack.pop()?, stack.pop()?);
                    match operator {
                        '+' => left + right,
                        '-' => left - right,
                        '*' => left * right,
                        _ => left / right,
                    }
                }
            };
            stack.push(value);
        }
        stack.pop().filter(|value| value.is_finite())
    }

    /// Returns whether a text can be a name in a formula.
    pub fn is_name(text: &str) -> bool {
        Self::new(text).is_ok_and(|formula| formula.names() == [text])
    }
}

/// Returns whether a word is a name.
fn is_word(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
}

/// Returns the words of an expression: names, numbers and single signs.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
        let length = rest
            .find(|letter| !is_part(letter))
            .unwrap_or(rest.len())
            .max(rest.len().min(1));
        let (word, after) = rest.split_at(length);
        rest = after.trim_start();
        (!word.is_empty()).then_some(word)
    })
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
    names: &'a [String],
    steps: Vec<Step>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// Takes the next word if it is one of these signs.
    fn take(&mut self, signs: &str) -> Option<char> {
        let sign = self
            .peek()?
            .chars()
            .next()
            .filter(|sign| signs.contains(*sign))?;
        self.at += 1;
        Some(sign)
    }

    fn sum(&mut self, depth: usize) -> Result<(), String> {
        self.product(depth)?;
        while let Some(sign) = self.take("+-") {
            self.product(depth)?;
            self.steps.push(Step::Operate(sign));
        }
        Ok(())
    }

    fn product(&mut self, depth: usize) -> Result<(), String> {
        self.factor(depth)?;
        while let Some(sign) = self.take("*/") {
            self.factor(depth)?;
            self.steps.push(Step::Operate(sign));
        }
        Ok(())
    }

    fn factor(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("too many brackets".to_owned());
        }
        if self.take("-").is_some() {
            self.factor(depth + 1)?;
            self.steps.push(Step::Negate);
            return Ok(());
        }
        if self.take("(").is_some() {
            self.sum(depth + 1)?;
            return self
                .take(")")
                .map(drop)
                .ok_or_else(|| "a bracket is not closed".to_owned());
        }
        let word = self.peek().ok_or("something is missing at its end")?;
        self.at += 1;
        let step = match self.names.binary_search_by(|name| name.as_str().cmp(word)) {
            // A name has no point in it.
            Ok(at) if !word.contains('.') => Step::Name(at),
            _ => {
                let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
                let number = word.parse().ok().filter(|_| is_number);
                Step::Number(
                    number.ok_or_else(|| format!("`{word}` is neither a name nor a number"))?,
                )
            }
        };
        self.steps.push(step);
        Ok(())
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_has_a_value_where_its_names_have() {
        let formula = Formula::new("2 * (lines - left)").expect("a formula");
        assert_eq!(formula.names(), ["left", "lines"]);
        let value = |name: &str| (name == "lines").then_some(7.0);
        assert_eq!(formula.value(|name| value(name).or(Some(3.0))), Some(8.0));
        assert_eq!(formula.value(value), None);
        assert_eq!(
            Formula::new("1 / none")
                .expect("a formula")
                .value(|_| Some(0.0)),
            None
        );
    }

    #[test]
    fn products_come_before_sums_and_the_left_before_the_right() {
        for (text, value) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("100 / 10 / 5", 2.0),
            ("-2 * -(3 - 5)", -4.0),
            ("2--3", 5.0),
            ("0.5*8+1.25", 5.25),
            ("1e3", 1000.0),
            ("4 * 1024 * 1024 / 64", 65536.0),
        ] {
            assert_eq!(
                Formula::new(text).expect(text).value(|_| None),
                Some(value),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_arithmetic_is_refused() {
        let deep = "(".repeat(100_000);
        for text in [
            "", " ", "2 *", "* 2", "(2", "2)", "2 3", "a b", "2a", "1.2.3", ".", "a.b", "()", "+2",
            "a ^ b", &deep,
        ] {
            assert!(Formula::new(text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn a_name_begins_with_a_letter() {
        for name in ["2", "a b", "a+b", "", "größe", "(a)", "a.b", "-a"] {
            assert!(!Formula::is_name(name), "{name}");
        }
        assert!(
            ["lines", "executed_NOP", "L1D_lines", "_x", "PI", "e"]
                .into_iter()
                .all(Formula::is_name)
        );
    }
}
