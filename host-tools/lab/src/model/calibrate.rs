//! Parameters of a model's file, fitted to measurements.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::compare::Compared;
use super::fit;
use super::points::Points;
use super::runs;
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_config::{files, suggest};
use cloison_engine::files::write_atomic;
use cloison_engine::report::Section;
use miette::{IntoDiagnostic, Result};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// A model's text and the parameters in it that are to be fitted.
#[derive(Clone, Debug)]
pub struct Start {
    text: String,
    parameters: Vec<Parameter>,
}

/// A whole number in a model's file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    /// Its table and its name: `latency.dram`.
    name: String,
    /// Its value in the file.
    value: u64,
    /// Where in the text the value is.
    span: Range<usize>,
}

impl Start {
    /// Reads a model's file and finds parameters in it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a name is not that of a whole number in it.
    pub fn read(path: &Path, names: &[String]) -> Result<Self> {
        let text = files::read_text(path, files::CONFIGURATION).into_diagnostic()?;
        let source = SourceFile::new(path, text);
        let all = parameters(&source).map_err(|problem| Errors::new(source.name(), vec![*problem]))?;
        let mut chosen: Vec<Parameter> = vec![];
        let mut problems = vec![];
        for name in names {
            match all.iter().find(|parameter| parameter.name == *name) {
                Some(parameter) if !chosen.contains(parameter) => chosen.push(parameter.clone()),
                Some(_) => {}
                None => {
                    let known = all.iter().map(|parameter| parameter.name.as_str());
                    let problem = Problem::error(&source, name, 0..0, format!("the model has no number `{name}`"));
                    problems.push(problem.help(suggest(name, "numbers in it", known)));
                }
            }
        }
        if !problems.is_empty() {
            return Err(Errors::new(source.name(), problems).into());
        }
        Ok(Self { text: source.text().to_owned(), parameters: chosen })
    }

    /// Returns the model's text with other values, everything else as it is.
    pub fn with(&self, values: &[u64]) -> String {
        let mut changes: Vec<(&Parameter, &u64)> = self.parameters.iter().zip(values).collect();
        // From the end, so that no change moves what is still to be changed.
        changes.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.span.start));
        let mut text = self.text.clone();
        for (parameter, value) in changes {
            text.replace_range(parameter.span.clone(), &value.to_string());
        }
        text
    }
}

/// Returns all positive whole numbers in the tables of a file.
fn parameters(source: &SourceFile) -> Result<Vec<Parameter>, Box<Problem>> {
    let root = DeTable::parse(source.text()).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        Box::new(Problem::error(source, "model", span, error.message().trim_end()).label("here"))
    })?;
    let mut all = vec![];
    for (table, entries) in root.get_ref() {
        let DeValue::Table(entries) = entries.get_ref() else { continue };
        for (name, value) in entries {
            let DeValue::Integer(number) = value.get_ref() else { continue };
            if let Some(number) = number.to_string().parse().ok().filter(|number| *number > 0) {
                let name = format!("{}.{}", table.get_ref(), name.get_ref());
                all.push(Parameter { name, value: number, span: value.span() });
            }
        }
    }
    Ok(all)
}

/// A model that was fitted.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Text of its file.
    pub text: String,
    /// Names of the parameters, their values before, and after.
    pub parameters: Vec<(String, u64, u64)>,
    /// Root of the mean square of the points' errors, as logarithms, before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// How many models were tried.
    pub tried: usize,
}

impl Fitted {
    /// Returns the parameters as a table.
    pub fn table(&self) -> Section {
        let mut section = Section::new("Parameters fitted to the measurements", &["parameter", "before", "after"]);
        for (name, before, after) in &self.parameters {
            section.row([name.clone(), before.to_string(), after.to_string()]);
        }
        let [before, after] = [self.before, self.after].map(|error| error * 100.0);
        section.note(format!(
            "Error, as the root of the mean square: {before:.1} % before, {after:.1} % after; {} models tried",
            self.tried
        ))
    }

    /// Returns the parameters as rows of a series.
    pub fn json(&self) -> Vec<Value> {
        let row =
            |(name, before, after): &(String, u64, u64)| json!({"parameter": name, "before": before, "after": after});
        self.parameters.iter().map(row).collect()
    }
}

/// Fits a model's parameters, so that the results of all points are as near to their values as they can be. Each may
/// change by a factor of 4 at most.
///
/// # Errors
///
/// If a run fails: not every combination of values needs to be a valid model.
pub fn fit(points: &Points, start: &Start) -> Result<Fitted> {
    let scratch = tempfile::Builder::new().prefix("cloison-").tempdir().into_diagnostic()?;
    let file = scratch.path().join("model.toml");
    let out = scratch.path().join("runs");
    let error = |values: &[u64]| -> Result<f64> {
        write_atomic(&file, start.with(values).as_bytes())?;
        let results = runs::perform(points, &file, &out)?;
        let mut squares = 0.0;
        for point in &points.points {
            let compared = Compared { point, ours: results.of(points, point)? };
            squares += compared.error().ln_1p().powi(2);
        }
        Ok((squares / points.points.len().max(1) as f64).sqrt())
    };
    let origin: Vec<u64> = start.parameters.iter().map(|parameter| parameter.value).collect();
    let before = error(&origin)?;
    let best = fit::search(&origin, error)?;
    let named = start.parameters.iter().zip(&best.values);
    let parameters = named.map(|(parameter, value)| (parameter.name.clone(), parameter.value, *value)).collect();
    Ok(Fitted { text: start.with(&best.values), parameters, before, after: best.error, tried: best.tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "name = \"a\"\n[core]\nclock_mhz = 1000 # MHz\n[latency]  # cycles\nl2 = 13\ndram = 124\n";

    fn start(names: &[&str]) -> Result<Start> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.toml");
        std::fs::write(&path, MODEL).expect("a file");
        Start::read(&path, &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_the_parameters_change_in_a_models_text() {
        let start = start(&["latency.dram", "latency.l2", "latency.dram"]).expect("both are there");
        assert_eq!(start.parameters.len(), 2, "each once");
        assert_eq!(start.with(&[124, 13]), MODEL);
        assert_eq!(start.with(&[1500, 7]), MODEL.replace("124", "1500").replace("13", "7"));
    }

    #[test]
    fn a_misspelled_parameter_is_suggested() {
        let error = start(&["latency.darm"]).expect_err("no such number");
        let errors = error.downcast_ref::<Errors>().expect("an error of the file");
        assert_eq!(errors.problems()[0].message(), "the model has no number `latency.darm`");
        assert!(start(&["name"]).is_err(), "a text is no number");
    }
}
