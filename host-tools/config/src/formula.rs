//! Arithmetic with names: `MISS / (LD + ST)`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use exmex::Express;
use std::fmt;

/// An expression of `+ - * /`, brackets, numbers and names.
#[derive(Clone, Debug)]
pub struct Formula {
    text: String,
    parsed: exmex::FlatEx<f64>,
}

impl Formula {
    /// Parses what both perf and the library understand: the library alone knows functions and further operators.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the text.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_.+-*/() ".contains(letter);
        if let Some(odd) = text.chars().find(|&letter| !is_known(letter)) {
            return Err(format!("`{odd}` has no meaning in arithmetic"));
        }
        let parsed = exmex::parse::<f64>(text).map_err(|error| format!("`{text}` cannot be computed: {error}"))?;
        Ok(Self { text: text.to_owned(), parsed })
    }

    /// Returns the names in it, each once.
    pub fn names(&self) -> &[String] {
        self.parsed.var_names()
    }

    /// Returns its value. Returns `None` if a name has no value, or if the result is not finite.
    pub fn value(&self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.names().iter().map(|name| of(name)).collect::<Option<_>>()?;
        self.parsed.eval(&values).ok().filter(|value| value.is_finite())
    }

    /// Returns whether a text can be a name in a formula: the library reads some, such as `PI`, as something else.
    pub fn is_name(text: &str) -> bool {
        Self::new(text).is_ok_and(|formula| formula.names() == [text])
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
        assert_eq!(Formula::new("1 / none").expect("a formula").value(|_| Some(0.0)), None);
    }

    #[test]
    fn what_the_library_takes_for_something_else_is_no_name() {
        for name in ["PI", "E", "e", "sin", "2", "a b", "a+b", "", "größe"] {
            assert!(!Formula::is_name(name), "{name}");
        }
        assert!(["lines", "executed_NOP", "L1D_lines"].into_iter().all(Formula::is_name));
    }
}
