//! The margin that survives values of the model that nobody has measured on a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::report::Findings;
use super::runs::{Job, Measured};
use super::search::{Search, sample};
use super::verify::{KINDS, Verified, reruns_of};
use crate::experiment::changes;
use crate::parameters::SENSITIVITY;
use cloison_config::problem::SourceFile;
use cloison_engine::files::{self, write_atomic};
use cloison_engine::installation;
use cloison_engine::model::{self, Model};
use cloison_engine::report::Section;
use miette::Result;
use serde_json::json;
use std::path::Path;

/// The configuration under one change of the model.
#[derive(Debug)]
pub struct Survival {
    /// Names and values: `NAME = VALUE`.
    pub change: String,
    /// What it does.
    pub effect: Effect,
}

/// What a change of the model does.
#[derive(Debug)]
pub enum Effect {
    /// The model is not valid with it, for this reason.
    Refused(String),
    /// How the VMs with goals did; a tolerance is of the time alone on the same model.
    Runs(Vec<Verified>),
}

impl Survival {
    /// Returns the VM with the smallest margin.
    fn smallest(&self) -> Option<(&str, f64)> {
        let Effect::Runs(verified) = &self.effect else {
            return None;
        };
        let margins = verified
            .iter()
            .filter_map(|vm| Some((vm.vm.as_str(), vm.margin()?)));
        margins.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Runs the configuration again with each change of the model that `experiment --sensitivity` makes.
///
/// # Errors
///
/// If the model's file does not mark its known values, or a run fails.
pub fn examine(search: &Search<'_>, findings: &Findings, out: &Path) -> Result<Vec<Survival>> {
    let task = &search.task;
    let model = task.runs.model()?;
    let text = files::read_text(model, files::CONFIGURATION)?;
    let source = SourceFile::new(model, text.clone());
    let vms: Vec<usize> = (0..task.subjects.vms.len())
        .filter(|vm| task.subjects.vms[*vm].has_goal())
        .collect();
    let jobs = jobs(search, findings, &vms)?;
    let mut all = vec![];
    for change in changes::changes(&source)? {
        let directory = out.join(SENSITIVITY).join(change.directory());
        let file = directory.join("model.toml");
        write_atomic(&file, change.applied(&text).as_bytes())?;
        let effect = match model::check(&file) {
            Err(error) => {
                let reason = error.to_string().replace(&installation::display(&file), "");
                Effect::Refused(reason)
            }
            Ok(_) => {
                let runs = task.runs.under(&Model::load(&file)?, &directory)?;
                let done = runs.measure(task.boards, &change.directory(), &jobs)?;
                runs.clean();
                Effect::Runs(verified(search, &vms, &done))
            }
        };
        let values: Vec<String> = change
            .parameter()
            .split(changes::AND)
            .zip(change.to().split(changes::AND))
            .map(|(name, to)| format!("{name} = {to}"))
            .collect();
        all.push(Survival {
            change: values.join(", "),
            effect,
        });
    }
    Ok(all)
}

/// Returns the boots under each change: for each VM one alone, then those that verify it.
fn jobs(search: &Search<'_>, findings: &Findings, vms: &[usize]) -> Result<Vec<Job>> {
    let mut jobs = vec![];
    for vm in vms {
        jobs.push(search.job(*vm, &search.whole())?);
        let partition = &findings.outcome.partition;
        jobs.extend(search.verifications(&findings.text, partition, &[*vm], &KINDS)?);
    }
    Ok(jobs)
}

fn verified(search: &Search<'_>, vms: &[usize], done: &[Measured]) -> Vec<Verified> {
    let each = vms.iter().zip(done.chunks(KINDS.len() + 1));
    let verified = |(vm, runs): (&usize, &[Measured])| {
        let alone = sample(&runs[0]).time;
        Verified {
            vm: search.subjects().vms[*vm].name.0.clone(),
            alone,
            limit: search.demands[*vm].limit(alone),
            predicted: None,
            reruns: reruns_of(&KINDS, &runs[1..]),
        }
    };
    each.map(verified).collect()
}

/// Says how much of the margin survives.
pub fn sentence(all: &[Survival]) -> String {
    let tried = all
        .iter()
        .filter_map(|survival| Some((survival, survival.smallest()?)));
    let tried: Vec<(&Survival, (&str, f64))> = tried.collect();
    let broken = tried
        .iter()
        .filter(|(_, (_, margin))| *margin < 0.0)
        .count();
    let worst = tried
        .iter()
        .min_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    let Some((survival, (vm, margin))) = worst else {
        return "The model has no value that is unsure.".to_owned();
    };
    format!(
        "With each value of the model that nobody has measured on a board changed, all goals hold \
         in {} of {} cases. The smallest margin is {:.1} %: of `{vm}`, with `{}`.",
        tried.len() - broken,
        tried.len(),
        margin * 100.0,
        survival.change
    )
}

/// Returns the margins under each change, the smallest first.
pub fn table(all: &[Survival]) -> Section {
    let mut sorted: Vec<&Survival> = all.iter().collect();
    let smallest = |survival: &Survival| survival.smallest().map_or(f64::MAX, |(_, margin)| margin);
    sorted.sort_by(|a, b| smallest(a).total_cmp(&smallest(b)));
    let header = ["value of the model", "smallest margin", "of VM", "goals"];
    let mut table = Section::new(
        "What survives the model's unsure values (modelled)",
        &header,
    );
    for survival in sorted {
        let (margin, vm, goals) = match (&survival.effect, survival.smallest()) {
            (Effect::Refused(reason), _) => {
                (String::new(), String::new(), format!("not valid: {reason}"))
            }
            (_, Some((vm, margin))) => (
                format!("{:.1} %", margin * 100.0),
                vm.to_owned(),
                if margin < 0.0 { "broken" } else { "hold" }.to_owned(),
            ),
            (_, None) => Default::default(),
        };
        table.row([survival.change.clone(), margin, vm, goals]);
    }
    table.note(
        "Each number at half and at double, each switch the other way, each other choice of a \
         text, and pairs of those, as `experiment --sensitivity` changes them. A tolerance is of \
         the time alone on the same model.",
    )
}

/// Returns the smallest margins as rows of a figures file.
pub fn series(all: &[Survival]) -> Vec<serde_json::Value> {
    let row = |survival: &Survival| {
        let smallest = survival.smallest();
        json!({
            "change": survival.change,
            "vm": smallest.map(|(vm, _)| vm),
            "margin": smallest.map(|(_, margin)| margin),
        })
    };
    all.iter().map(row).collect()
}
