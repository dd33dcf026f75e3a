//! Metrics: figures computed from the counts of several events, as in perf's `MetricExpr`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::formula::Formula;
use std::fmt;

/// A metric of a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its expression: `+ - * /`, brackets, numbers and names of events.
    pub expression: String,
    /// Its meaning, in one line.
    pub meaning: String,
    /// The factor and the unit with which its value is shown.
    pub scale: (f64, String),
    events: Vec<String>,
}

/// A mistake in the definition of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Whether it is its scale.
    pub in_scale: bool,
    /// The mistake, in words.
    pub message: String,
}

impl Metric {
    /// Returns a metric, as a table describes it.
    ///
    /// # Errors
    /// Returns what is wrong with its expression, or with its scale.
    pub fn new(
        name: &str,
        expression: &str,
        meaning: &str,
        scale: Option<&str>,
    ) -> Result<Self, Wrong> {
        let parsed = Formula::new(expression).map_err(|message| Wrong {
            in_scale: false,
            message,
        })?;
        let events = parsed.names().to_vec();
        if events.is_empty() {
            return Err(Wrong {
                in_scale: false,
                message: format!("`{expression}` names no event"),
            });
        }
        let scale = scale.unwrap_or("1");
        let digits = scale
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(scale.len());
        let (factor, unit) = scale.split_at(digits);
        let factor = factor.parse::<f64>().ok().filter(|factor| *factor > 0.0);
        let message = || format!("`{scale}` is not a scale: a number and a unit, such as 100%");
        let factor = factor.ok_or_else(|| Wrong {
            in_scale: true,
            message: message(),
        })?;
        let [name, expression, meaning, unit] =
            [name, expression, meaning, unit].map(str::to_owned);
        Ok(Self {
            name,
            expression,
            meaning,
            scale: (factor, unit),
            events,
        })
    }

    /// Returns the events of its expression, each once.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Computes its value, without its scale, from the counts of its events. Returns `None` if a
    /// count is missing, or if the result is not finite, as after a division by a count of 0.
    pub fn compute(&self, count: impl Fn(&str) -> Option<u64>) -> Option<f64> {
        Formula::new(&self.expression)
            .ok()?
            .value(|event| count(event).map(|count| count as f64))
    }

    /// Returns a value as it is shown: with its scale and unit.
    pub fn show(&self, value: f64) -> impl fmt::Display {
        let (factor, unit) = &self.scale;
        let digits = if unit.is_empty() { 4 } else { 2 };
        format!(
            "{:.digits$}{}{unit}",
            value * factor,
            if unit.is_empty() || unit == "%" {
                ""
            } else {
                " "
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_computed_from_its_events() {
        let metric = Metric::new("m", "MISS / (LD + ST)", "", Some("100%")).expect("a metric");
        assert_eq!(metric.events(), ["LD", "MISS", "ST"]);
        let count = |name: &str| match name {
            "MISS" => Some(1),
            "LD" => Some(3),
            "ST" => Some(5),
            _ => None,
        };
        let value = metric.compute(count).expect("all are counted");
        assert_eq!(metric.show(value).to_string(), "12.50%");
        assert_eq!(
            metric.compute(|name| count(name).filter(|_| name != "ST")),
            None
        );
        assert_eq!(
            metric.compute(|_| Some(0)),
            None,
            "of nothing there is no share"
        );
    }

    #[test]
    fn what_cannot_be_computed_is_said() {
        for (expression, scale, in_scale) in [
            ("", None, false),
            ("A /", None, false),
            ("(A", None, false),
            ("A ^ B", None, false),
            ("A @ B", None, false),
            ("1 + 2", None, false),
            ("A", Some("%"), true),
            ("A", Some("0%"), true),
            ("A", Some("1.2.3x"), true),
        ] {
            let wrong = Metric::new("m", expression, "", scale).expect_err(expression);
            assert_eq!(
                wrong.in_scale, in_scale,
                "{expression} {scale:?}: {}",
                wrong.message
            );
        }
    }
}
