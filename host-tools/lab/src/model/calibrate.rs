//! Parameters of a model's file, fitted to measurements.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::compare::Comparison;
use super::fit;
use super::points::Points;
use super::runs;
use crate::boards::Boards;
use crate::parameters::{self, Decimal, Parameter, Value as Setting, replaced};
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_config::{files, suggest};
use cloison_engine::files::{scratch, write_atomic};
use cloison_engine::report::Section;
use miette::{IntoDiagnostic, Result};
use serde_json::{Value, json};
use std::path::Path;

/// A model's text, and the parameters in it to fit.
#[derive(Clone, Debug)]
pub struct Start {
    text: String,
    parameters: Vec<Fitting>,
}

/// A number in a model's file that is to be fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fitting {
    parameter: Parameter,
    /// Its value in the file.
    value: Decimal,
}

impl Start {
    /// Reads a model's file and finds parameters in it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a name is not that of a positive number in it.
    pub fn read(path: &Path, names: &[String]) -> Result<Self> {
        let text = files::read_text(path, files::CONFIGURATION).into_diagnostic()?;
        let source = SourceFile::new(path, text);
        let all = numbers(&source).map_err(|problem| Errors::new(source.name(), vec![*problem]))?;
        let mut chosen: Vec<Fitting> = vec![];
        let mut problems = vec![];
        for name in names {
            match all.iter().find(|number| number.parameter.name == *name) {
                Some(number) if !chosen.contains(number) => chosen.push(number.clone()),
                Some(_) => {}
                None => {
                    let known = all.iter().map(|number| number.parameter.name.as_str());
                    let problem = Problem::error(
                        &source,
                        name,
                        0..0,
                        format!("the model has no number `{name}`"),
                    );
                    problems.push(problem.help(suggest(name, "numbers in it", known)));
                }
            }
        }
        if !problems.is_empty() {
            return Err(Errors::new(source.name(), problems).into());
        }
        Ok(Self {
            text: source.text().to_owned(),
            parameters: chosen,
        })
    }

    /// Returns the model's text with other values, and no other change. Values are in units of the
    /// last digit in the file: for 16.9, 170 is 17.0.
    pub fn with(&self, values: &[u64]) -> String {
        let changes = self.parameters.iter().zip(values);
        replaced(
            &self.text,
            changes
                .map(|(number, digits)| (&number.parameter, Setting::Number(number.with(*digits)))),
        )
    }
}

impl Fitting {
    /// Returns its value with other digits.
    const fn with(&self, digits: u64) -> Decimal {
        Decimal {
            digits,
            ..self.value
        }
    }
}

/// Returns all positive numbers in the tables of a file.
fn numbers(source: &SourceFile) -> Result<Vec<Fitting>, Box<Problem>> {
    let positive = |parameter: Parameter| match parameter.value {
        Setting::Number(value) if value.digits > 0 => Some(Fitting { parameter, value }),
        _ => None,
    };
    Ok(parameters::all(source)?
        .into_iter()
        .filter_map(positive)
        .collect())
}

/// A model that was fitted.
#[derive(Clone, Debug)]
pub struct FittedModel {
    /// Text of its file.
    pub text: String,
    /// Names of the parameters, with their values before and after.
    pub parameters: Vec<(String, Decimal, Decimal)>,
    /// Root of the mean square of the points' errors, as logarithms, before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// How many models were tried.
    pub tried: usize,
}

impl FittedModel {
    /// Returns the parameters as a table.
    pub fn table(&self) -> Section {
        let mut section = Section::new(
            "Parameters fitted to the measurements",
            &["parameter", "before", "after"],
        );
        for (name, before, after) in &self.parameters {
            section.row([name.clone(), before.to_string(), after.to_string()]);
        }
        let [before, after] = [self.before, self.after].map(|error| error * 100.0);
        section.note(format!(
            "Error, as the root of the mean square: {before:.1} % before, {after:.1} % after; {} \
             models tried",
            self.tried
        ))
    }

    /// Returns the parameters as rows of a series.
    pub fn json(&self) -> Vec<Value> {
        let number = |value: &Decimal| value.to_string().parse::<f64>().unwrap_or_default();
        let row = |(name, before, after): &(String, Decimal, Decimal)| json!({"parameter": name, "before": number(before), "after": number(after)});
        self.parameters.iter().map(row).collect()
    }
}

/// Fits a model's parameters to minimize the errors of all points' results. Each may change by a
/// factor of 4 at most.
///
/// # Errors
///
/// If a run fails: not every combination of values is a valid model.
pub fn fit(points: &Points, start: &Start) -> Result<FittedModel> {
    let scratch = scratch()?;
    let file = scratch.path().join("model.toml");
    let out = scratch.path().join("runs");
    let errors = |values: &[u64]| -> Result<Vec<f64>> {
        write_atomic(&file, start.with(values).as_bytes())?;
        let results = runs::perform(&Boards::here(), points, &file, &out)?;
        let of = |point| {
            Ok(Comparison {
                point,
                ours: results.of(points, point)?,
            }
            .error()
            .ln_1p())
        };
        points.points.iter().map(of).collect()
    };
    let origin: Vec<u64> = start
        .parameters
        .iter()
        .map(|number| number.value.digits)
        .collect();
    let best = fit::search(&origin, errors)?;
    let named = start.parameters.iter().zip(&best.values);
    let found = |(number, digits): (&Fitting, &u64)| {
        (
            number.parameter.name.clone(),
            number.value,
            number.with(*digits),
        )
    };
    let parameters = named.map(found).collect();
    Ok(FittedModel {
        text: start.with(&best.values),
        parameters,
        before: best.before,
        after: best.error,
        tried: best.tried,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str =
        "name = \"a\"\n[core]\nclock_mhz = 1000 # MHz\n[latency]  # cycles\nl2 = 13\ndram = 124\n";

    fn start(names: &[&str]) -> Result<Start> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.toml");
        std::fs::write(&path, MODEL).expect("a file");
        Start::read(
            &path,
            &names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn only_the_parameters_change_in_a_models_text() {
        let start = start(&["latency.dram", "latency.l2", "latency.dram"]).expect("both are there");
        assert_eq!(start.parameters.len(), 2, "each once");
        assert_eq!(start.with(&[124, 13]), MODEL);
        assert_eq!(
            start.with(&[1500, 7]),
            MODEL.replace("124", "1500").replace("13", "7")
        );
    }

    #[test]
    fn a_misspelled_parameter_is_suggested() {
        let error = start(&["latency.darm"]).expect_err("no such number");
        let errors = error
            .downcast_ref::<Errors>()
            .expect("an error of the file");
        assert_eq!(
            errors.problems()[0].message(),
            "the model has no number `latency.darm`"
        );
        assert!(start(&["name"]).is_err(), "a text is no number");
    }
}
