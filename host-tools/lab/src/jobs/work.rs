//! What jobs are made of: a command that runs boards many times, with its options.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boards::Boards;
use crate::campaign::{self, CampaignArgs};
use crate::experiment::{self, ExperimentArgs};
use crate::model::{self, ValidateArgs};
use cloison_engine::{files, installation, parts};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// A command whose boots are jobs. Paths are as the user gave them, so that the report names them in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Work {
    /// `experiment NAME`.
    Experiment {
        /// Name of a shipped experiment, or a file.
        name: String,
        /// Only the runs for a quick look.
        quick: bool,
        /// Another board model than the experiment's.
        model: Option<PathBuf>,
        /// Also with each change of the model's unmeasured values.
        sensitivity: bool,
    },
    /// `campaign FILE`.
    Campaign {
        /// The campaign's file.
        file: PathBuf,
        /// Runs of each sub-experiment, instead of the file's number.
        runs: Option<u32>,
    },
    /// `model validate`.
    Validate {
        /// The file of measurements.
        points: PathBuf,
        /// The model's file.
        model: Option<PathBuf>,
    },
}

/// Options that belong to one kind of file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only the runs for a quick look.
    pub quick: bool,
    /// Another board model.
    pub model: Option<PathBuf>,
    /// Also with other values of the model.
    pub sensitivity: bool,
    /// Runs of each sub-experiment.
    pub runs: Option<u32>,
}

impl fmt::Display for Work {
    /// Formats the command without its options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            Self::Experiment { name, .. } => write!(f, "experiment {}", stem(Path::new(name))),
            Self::Campaign { file, .. } => write!(f, "campaign {}", stem(file)),
            Self::Validate { .. } => f.write_str("model validate"),
        }
    }
}

impl Work {
    /// Finds out what a file is, and takes the options that belong to it.
    ///
    /// # Errors
    ///
    /// If it is neither an experiment nor a campaign nor a file of measurements, or an option does not belong to it.
    pub fn of(name: &str, options: Options) -> Result<Self> {
        let path = experiment::file_of(name);
        let text = files::read_text(&path, files::CONFIGURATION)?;
        let table: toml::Table =
            toml::from_str(&text).into_diagnostic().wrap_err_with(|| miette!("{} is not valid", path.display()))?;
        let Options { quick, model, sensitivity, runs } = options;
        let refuse = |given: bool, option: &str, what: &str| match given {
            true => Err(miette!("{option} does not belong to {what}, which {} is", path.display())),
            false => Ok(()),
        };
        // A campaign may have variants too.
        if table.contains_key("workload") {
            refuse(quick, "--quick", "a campaign")?;
            refuse(sensitivity, "--sensitivity", "a campaign")?;
            refuse(model.is_some(), "--model", "a campaign")?;
            return Ok(Self::Campaign { file: path, runs });
        }
        if table.contains_key("variant") {
            refuse(runs.is_some(), "--runs", "an experiment")?;
            return Ok(Self::Experiment { name: name.to_owned(), quick, model, sensitivity });
        }
        if table.contains_key("point") {
            refuse(quick, "--quick", "a file of measurements")?;
            refuse(sensitivity, "--sensitivity", "a file of measurements")?;
            refuse(runs.is_some(), "--runs", "a file of measurements")?;
            return Ok(Self::Validate { points: path, model });
        }
        let help = "jobs are made of an experiment (it has [[variant]]), a campaign ([[workload]]), or a file of \
                    measurements ([[point]])";
        Err(miette!(help = help, "{} is none of what runs boards many times", path.display()))
    }

    /// Performs the command on these boards, with its report in `out`; the figures are also written to `json`.
    ///
    /// # Errors
    ///
    /// As the command; also if a boot has no output yet.
    pub fn perform(&self, boards: &Boards, out: &Path, json: Option<PathBuf>) -> Result<()> {
        let out = Some(out.to_path_buf());
        match self.clone() {
            Self::Experiment { name, quick, model, sensitivity } => {
                experiment::experiment_on(boards, &ExperimentArgs { name, out, json, quick, model, sensitivity })
            }
            Self::Campaign { file, runs } => {
                let (seeds, variant, workload) = (None, vec![], vec![]);
                campaign::campaign_on(boards, &CampaignArgs { file, out, json, runs, seeds, variant, workload })
            }
            Self::Validate { points, model } => {
                // Its report is the figures.
                let json = json.or_else(|| Some(out.as_ref()?.join("figures.json")));
                model::validate_on(boards, &ValidateArgs { model, points: Some(points), out, json })
            }
        }
    }

    /// Returns the files that decide what the jobs are, for messages that name the one that has changed.
    ///
    /// # Errors
    ///
    /// If the file is not valid, or hypervisor or model cannot be built.
    pub fn inputs(&self) -> Result<Vec<PathBuf>> {
        let mut all = match self {
            Self::Experiment { name, quick, model, .. } => {
                let path = experiment::file_of(name);
                let read = experiment::spec::load(&path, *quick)?;
                vec![path, read.system, model.as_deref().map_or(read.model, installation::find)]
            }
            Self::Campaign { file, .. } => {
                let path = installation::find(file);
                let read = campaign::spec::load(&path)?;
                vec![path, read.system, read.model]
            }
            Self::Validate { points, model } => {
                let shipped = || installation::root().join(model::MODEL);
                vec![installation::find(points), model.as_deref().map_or_else(shipped, installation::find)]
            }
        };
        all.extend([parts::hypervisor(&[])?, parts::model_plugin()?]);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> String {
        installation::root().join("configs").join(name).display().to_string()
    }

    #[test]
    fn a_file_says_itself_what_it_is() {
        let of = |name: &str| Work::of(name, Options::default()).expect("it is one");
        assert!(matches!(of("c2is"), Work::Experiment { .. }));
        assert!(matches!(of(&shipped("experiments/quota.toml")), Work::Experiment { .. }));
        for campaign in ["campaigns/kernels.toml", "campaigns/much.toml"] {
            assert!(matches!(of(&shipped(campaign)), Work::Campaign { .. }), "{campaign}");
        }
        assert!(matches!(of(&shipped("models/zcu102-public.toml")), Work::Validate { .. }));
        let error = Work::of(&shipped("demo.toml"), Options::default()).expect_err("it is a system").to_string();
        assert!(error.ends_with("demo.toml is none of what runs boards many times"), "{error}");
    }

    #[test]
    fn options_of_something_else_are_refused() {
        let points = shipped("models/zcu102-public.toml");
        for (options, named) in [
            (Options { quick: true, ..Options::default() }, "--quick"),
            (Options { sensitivity: true, ..Options::default() }, "--sensitivity"),
            (Options { runs: Some(3), ..Options::default() }, "--runs"),
        ] {
            let error = Work::of(&points, options).expect_err("no such option").to_string();
            assert!(error.starts_with(&format!("{named} does not belong to a file of measurements")), "{error}");
        }
    }
}
