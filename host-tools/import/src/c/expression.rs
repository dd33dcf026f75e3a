//! Constant expressions of C: numbers, operators, no side effects.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::lexer::{Kind, Token};
use crate::source::{Failure, Place, Sources};

/// How deep an expression may be.
const DEEPEST: usize = 64;

/// Returns the value of an expression. `resolve` returns what a name stands for.
///
/// # Errors
///
/// Returns what cannot be computed: names without a value, division by zero, values of more than 64
/// bits.
pub fn evaluate(
    sources: &Sources,
    tokens: &[Token],
    resolve: &dyn Fn(&str) -> Option<i128>,
) -> Result<i128, Failure> {
    let mut parser = Parser {
        sources,
        tokens,
        at: 0,
        depth: 0,
        resolve,
    };
    let value = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(value),
        Some(rest) => Err(parser.error(rest.place, "this does not continue an expression")),
    }
}

struct Parser<'a> {
    sources: &'a Sources,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    resolve: &'a dyn Fn(&str) -> Option<i128>,
}

/// The operators of two operands, from those that bind least.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Parser<'_> {
    fn error(&self, place: Place, message: impl Into<String>) -> Failure {
        self.sources
            .error(place, "expression", message)
            .help("a number is wanted: write its value")
            .into()
    }

    fn place(&self) -> Place {
        let last = self.at.min(self.tokens.len().saturating_sub(1));
        self.tokens
            .get(last)
            .map(|token| token.place)
            .unwrap_or_default()
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.is(sign));
        self.at += usize::from(found);
        found
    }

    fn choice(&mut self) -> Result<i128, Failure> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(self.place(), "an expression that is too deep"));
        }
        let mut value = self.level(0)?;
        if self.takes("?") {
            let first = self.choice()?;
            if !self.takes(":") {
                return Err(self.error(self.place(), "`?` without `:`"));
            }
            let second = self.choice()?;
            value = if value != 0 { first } else { second };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn level(&mut self, level: usize) -> Result<i128, Failure> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut left = self.level(level + 1)?;
        while let Some(token) = self.tokens.get(self.at)
            && let Some(operator) = operators.iter().find(|sign| token.is(sign))
        {
            let place = token.place;
            self.at += 1;
            let right = self.level(level + 1)?;
            left = compute(left, operator, right).map_err(|why| self.error(place, why))?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<i128, Failure> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(self.place(), "an expression that is too deep"));
        }
        let value = self.unary();
        self.depth -= 1;
        value
    }

    fn unary(&mut self) -> Result<i128, Failure> {
        let place = self.place();
        if self.takes("-") {
            return Ok(-self.operand()?);
        }
        if self.takes("+") {
            return self.operand();
        }
        if self.takes("!") {
            return Ok(i128::from(self.operand()? == 0));
        }
        if self.takes("~") {
            // As an unsigned number of 64 bits, which is what all of these fields are.
            return Ok(!self.operand()? & i128::from(u64::MAX));
        }
        if self.skips_cast() {
            return self.operand();
        }
        if self.takes("(") {
            let value = self.choice()?;
            return if self.takes(")") {
                Ok(value)
            } else {
                Err(self.error(place, "brackets without an end"))
            };
        }
        let Some(token) = self.tokens.get(self.at) else {
            return Err(self.error(place, "an expression without its end"));
        };
        self.at += 1;
        match token.kind {
            Kind::Number => number(&token.text).ok_or_else(|| {
                self.error(
                    place,
                    format!("`{}` is not a number of 64 bits", token.text),
                )
            }),
            Kind::Character => {
                let inner = token.text.trim_matches('\'');
                let first = inner.chars().next().unwrap_or_default();
                Ok(i128::from(u32::from(first)))
            }
            Kind::Name => (self.resolve)(&token.text).ok_or_else(|| {
                self.sources
                    .error(
                        place,
                        "expression",
                        format!("`{}` has no value here", token.text),
                    )
                    .help(
                        "name the folder of the header that defines it with -I FOLDER, or its \
                         value with -D NAME=VALUE",
                    )
                    .into()
            }),
            _ => Err(self.error(place, format!("`{}` is not a number", token.text))),
        }
    }

    /// Skips a cast: names, and perhaps stars, in brackets before an operand.
    fn skips_cast(&mut self) -> bool {
        let rest = &self.tokens[self.at.min(self.tokens.len())..];
        if !rest.first().is_some_and(|token| token.is("(")) {
            return false;
        }
        let Some(close) = rest.iter().position(|token| token.is(")")) else {
            return false;
        };
        let is_type = close > 1
            && rest[1..close].iter().all(|token| match token.name() {
                Some(name) => (self.resolve)(name).is_none() || is_type(name),
                None => token.is("*"),
            });
        let operand = rest.get(close + 1).is_some_and(|next| {
            next.kind != Kind::Sign || ["(", "~", "-", "+", "!"].iter().any(|sign| next.is(sign))
        });
        if is_type && operand {
            self.at += close + 1;
        }
        is_type && operand
    }
}

/// Returns whether a name is certainly a type's.
fn is_type(name: &str) -> bool {
    const WORDS: [&str; 7] = [
        "unsigned", "signed", "long", "int", "short", "char", "size_t",
    ];
    WORDS.contains(&name) || name.ends_with("_t") || name.starts_with("__u")
}

/// Computes in 65 bits, so that what leaves 64 is an error rather than a smaller number.
fn compute(left: i128, operator: &str, right: i128) -> Result<i128, String> {
    let logic = |holds: bool| Some(i128::from(holds));
    let shift = || u32::try_from(right).ok().filter(|by| *by < 64);
    let value = match operator {
        "||" => logic(left != 0 || right != 0),
        "&&" => logic(left != 0 && right != 0),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "==" => logic(left == right),
        "!=" => logic(left != right),
        "<" => logic(left < right),
        ">" => logic(left > right),
        "<=" => logic(left <= right),
        ">=" => logic(left >= right),
        "<<" => shift().and_then(|by| left.checked_shl(by)),
        ">>" => shift().map(|by| left >> by),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" if right == 0 => return Err("division by zero".to_owned()),
        "%" if right == 0 => return Err("division by zero".to_owned()),
        "/" => left.checked_div(right),
        "%" => left.checked_rem(right),
        _ => None,
    };
    let limit = i128::from(u64::MAX);
    match value {
        Some(value) if (-limit..=limit).contains(&value) => Ok(value),
        _ => Err(format!(
            "the result of `{operator}` does not fit into 64 bits"
        )),
    }
}

/// Returns the value of a number as C writes it.
pub fn number(text: &str) -> Option<i128> {
    let lower = text.to_ascii_lowercase().replace('\'', "");
    let digits = lower.trim_end_matches(['u', 'l']);
    let parsed = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    parsed.ok().map(i128::from)
}
