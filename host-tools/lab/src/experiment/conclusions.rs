//! The conclusions from an experiment's runs: verdicts on its guards, and the paper's statements.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::Verdict;
use super::findings::{Findings, Runs};
use super::measured::Measured;
use super::shows::{Comparison, Form};
use super::spec::Experiment;
use super::{guard, shows};
use cloison_board_model::Board;
use cloison_engine::figures::Figures;
use miette::Result;

/// What the runs say of an experiment's guards and of the paper's statements.
#[derive(Debug)]
pub struct Conclusions {
    /// The verdicts on the guards.
    pub verdicts: Vec<Verdict>,
    /// The paper's statements, compared with the results.
    pub compared: Vec<Comparison>,
}

impl Conclusions {
    /// Judges guards and statements by these runs on a model.
    ///
    /// # Errors
    /// If the experiment's system cannot be read.
    pub fn draw(
        experiment: &Experiment,
        runs: &[Measured],
        model: &Board,
        form: Form,
    ) -> Result<Self> {
        let all = Runs(runs);
        let guards = experiment.guards.iter();
        let verdicts = guards
            .map(|guard| guard.check.judge(all, experiment.baseline()))
            .collect();
        let compared = if experiment.shows.is_empty() {
            vec![]
        } else {
            let systems = experiment.systems(&experiment.points)?;
            let subject = experiment.subject(all, &systems, model);
            shows::compare(&experiment.shows, &experiment.account, subject, form)
        };
        Ok(Self { verdicts, compared })
    }

    /// Adds their tables and series to the findings.
    pub fn add_to(&self, experiment: &Experiment, findings: &mut Findings) {
        findings.shows = shows::table(&experiment.shows, &self.compared);
        findings.differences = shows::differences(&experiment.shows, &self.compared);
        findings.guards = guard::table(&experiment.guards, &self.verdicts);
        findings.moved = guard::moved(&experiment.guards);
        let series = shows::series(&experiment.shows, &self.compared);
        findings.series.extend(series);
    }

    /// Adds how many guards hold and fail, and how many statements agree and differ, if there are
    /// any.
    pub fn count(&self, figures: &mut Figures) {
        let number = |of: fn(&Verdict) -> bool| {
            let verdicts = self.verdicts.iter();
            verdicts.filter(|verdict| of(verdict)).count() as u64
        };
        if !self.verdicts.is_empty() {
            let held = number(|verdict| matches!(verdict, Verdict::Holds(..)));
            let failed =
                number(|verdict| matches!(verdict, Verdict::Fails(..) | Verdict::Missing(_)));
            figures
                .count("guards_held", held)
                .count("guards_failed", failed);
        }
        let number = |of: fn(&Comparison) -> bool| {
            let compared = self.compared.iter();
            compared.filter(|one| of(one)).count() as u64
        };
        if !self.compared.is_empty() {
            let agreeing = number(|one| matches!(one, Comparison::Agrees(_)));
            let differing = number(|one| matches!(one, Comparison::Differs(_)));
            figures
                .count("shows_agreeing", agreeing)
                .count("shows_differing", differing);
        }
    }
}
