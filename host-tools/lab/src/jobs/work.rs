//! The work that is split into jobs: a command that runs boards many times, with its options.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bbprof::{self, BbprofArgs, Choice};
use crate::boards::Boards;
use crate::campaign::{self, CampaignArgs};
use crate::captured::BoardRuns;
use crate::events;
use crate::experiment::spec::MOST_SAMPLES;
use crate::experiment::{self, ExperimentArgs, Hardware};
use crate::model::{self, ValidateArgs};
use crate::tune::{self, KNOBS, Map, OBJECTIVES, TuneArgs};
use cloison_config::FileKind;
use cloison_config::document::{self, Table};
use cloison_config::goal;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::validation::record::Machine;
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::machines;
use cloison_engine::{configuration, installation, parts};
use miette::{Result, miette};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// A command whose boots are jobs. It keeps paths as the user typed them, so that the report names
/// them in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// Whether a board executes the images, and not the model.
        hardware: bool,
        /// That board, if not the experiment's own.
        board: Option<String>,
        /// The user's own programs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        program: Vec<String>,
        /// How often everything is measured, if not as often as the file says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        samples: Option<u32>,
    },
    /// `campaign FILE`.
    Campaign {
        /// The campaign's file.
        file: PathBuf,
        /// Runs of each sub-experiment, instead of the file's number.
        runs: Option<u32>,
        /// Only the first seeds.
        seeds: Option<u32>,
        /// Only these variants.
        variant: Vec<String>,
        /// Only these workloads.
        workload: Vec<String>,
        /// Whether a board executes the images, and not the model.
        hardware: bool,
        /// That board, if not the campaign's own.
        board: Option<String>,
    },
    /// `model validate`.
    Validate {
        /// The file of measurements.
        points: PathBuf,
        /// The model's file.
        model: Option<PathBuf>,
    },
    /// `events validate`.
    Events {
        /// The benchmarks and what each event should count of them; none for those that Cloison
        /// has for the CPU.
        manifest: Option<PathBuf>,
        /// The board.
        board: Option<String>,
        /// The machine that executes the benchmarks.
        machine: Machine,
        /// How often each benchmark is run.
        runs: Option<u32>,
        /// What events may count instead.
        hypotheses: Option<PathBuf>,
        /// Judge by the documentation alone.
        no_hypotheses: bool,
    },
    /// `tune CONFIG`.
    Tune {
        /// The configuration.
        config: PathBuf,
        /// What is best.
        objective: String,
        /// Only these knobs; none for all.
        only: Vec<String>,
        /// Also decide with fewer knobs.
        compare: bool,
        /// Also with each change of the model's unmeasured values.
        sensitivity: bool,
        /// The board model, if not the board's.
        model: Option<PathBuf>,
        /// The board, if not the configuration's.
        board: Option<String>,
    },
    /// `bbprof CONFIG --vm VM`.
    Profile {
        /// The configuration.
        config: PathBuf,
        /// The VM.
        vm: String,
        /// Which pages are measured, and how.
        choice: Choice,
        /// The board model, if not the board's.
        model: Option<PathBuf>,
        /// Whether a board executes the images, and not the model.
        hardware: bool,
        /// The board, if not the configuration's.
        board: Option<String>,
    },
}

/// Options that belong to one kind of file, or to several.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Options {
    /// Of an experiment: only the few runs for a quick look
    #[arg(long)]
    pub quick: bool,
    /// Of an experiment, a file of measurements or a configuration: another board model
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// Of an experiment or a configuration: also with each unmeasured value of the model at half
    /// and at double
    #[arg(long)]
    pub sensitivity: bool,
    /// Of an experiment: your own program in Linux, as in `experiment`. May be repeated
    #[arg(long, value_name = "NAME[.SIZE][=PATH[@FUNCTION][,ARGUMENT…]]")]
    pub program: Vec<String>,
    /// Of an experiment: measure everything so often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_SAMPLES as i64))]
    pub samples: Option<u32>,
    /// Of a configuration: what is best, as in `tune` [default: throughput]
    #[arg(long = "for", value_name = "OBJECTIVE", value_parser = OBJECTIVES)]
    pub objective: Option<String>,
    /// Of a configuration: change only these, of what its VMs allow
    #[arg(long, value_name = "KNOBS", value_delimiter = ',', value_parser = KNOBS)]
    pub only: Vec<String>,
    /// Of a configuration: also decide with fewer knobs and for tighter tolerances
    #[arg(long)]
    pub compare: bool,
    /// Of a campaign: runs of each sub-experiment, instead of the file's number; of events: runs
    /// of each benchmark
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: Option<u32>,
    /// Of a campaign: only the first N seeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Of a campaign: only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variant: Vec<String>,
    /// Of a campaign: only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Of events: the board whose events are validated [default: virt]; of a configuration:
    /// another board; with --machine hardware also of an experiment or a campaign: the board that
    /// runs it [default: the file's]
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Of events: what executes the benchmarks [default: stock]; of an experiment, a campaign or
    /// a VM's pages: hardware, if a board is to run it and not the model. Jobs for hardware are run by submit
    /// --engine board
    #[arg(long, value_name = "MACHINE", value_parser = machines())]
    pub machine: Option<Machine>,
    /// Of events: what they may count instead, as in `events validate`
    #[arg(long, value_name = "FILE.toml")]
    pub hypotheses: Option<PathBuf>,
    /// Of events: judge by the documentation alone
    #[arg(long, conflicts_with = "hypotheses")]
    pub no_hypotheses: bool,
    /// Of a configuration: find the pages of this VM that matter, as `bbprof` does
    #[arg(long, value_name = "NAME", help_heading = PROFILES)]
    pub vm: Option<String>,
    /// Which pages these are.
    #[command(flatten, next_help_heading = PROFILES)]
    pub choice: Choice,
}

/// The heading of a profile's options.
const PROFILES: &str = "Options of a profile of a VM's pages";

impl Options {
    /// Returns the names of those that were given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.quick, "--quick"),
            (self.model.is_some(), "--model"),
            (self.sensitivity, "--sensitivity"),
            (!self.program.is_empty(), "--program"),
            (self.samples.is_some(), "--samples"),
            (self.objective.is_some(), "--for"),
            (!self.only.is_empty(), "--only"),
            (self.compare, "--compare"),
            (self.runs.is_some(), "--runs"),
            (self.seeds.is_some(), "--seeds"),
            (!self.variant.is_empty(), "--variant"),
            (!self.workload.is_empty(), "--workload"),
            (self.board.is_some(), "--board"),
            (self.machine.is_some(), "--machine"),
            (self.hypotheses.is_some(), "--hypotheses"),
            (self.no_hypotheses, "--no-hypotheses"),
            (self.vm.is_some(), "--vm"),
        ];
        all.into_iter()
            .filter_map(|(is_given, name)| is_given.then_some(name))
    }
}

/// Returns whether a board is to execute what otherwise the model executes.
///
/// # Errors
///
/// If another machine is named, or with the board an option that is about the model.
fn is_for_hardware(machine: Option<Machine>, model: bool, sensitivity: bool) -> Result<bool> {
    let hardware = match machine {
        None => false,
        Some(Machine::Hardware) => true,
        Some(_) => {
            return Err(miette!(
                help = "leave it out, or give --machine hardware",
                "--machine: it is the model, if not hardware"
            ));
        }
    };
    let for_model = [(sensitivity, "--sensitivity"), (model, "--model")];
    let refused = for_model
        .into_iter()
        .find(|(is_given, _)| *is_given && hardware);
    match refused {
        Some((_, option)) => Err(miette!(
            help = "leave it out, or --machine hardware",
            "{option} is about the model, and a board is to run the images"
        )),
        None => Ok(hardware),
    }
}

/// As [`is_for_hardware`], of a file that names its board.
fn of_file(
    machine: Option<Machine>,
    board: &Option<String>,
    model: bool,
    sensitivity: bool,
) -> Result<bool> {
    let hardware = is_for_hardware(machine, model, sensitivity)?;
    if !hardware && board.is_some() {
        return Err(miette!(
            help = "leave it out, or give --machine hardware",
            "the model runs the board that the file names: --board is for hardware"
        ));
    }
    Ok(hardware)
}

/// Returns whether a VM says what it must reach, so that the file can be tuned.
fn has_goals(root: &Table<'_>) -> bool {
    let vms = root.tables("vm");
    let mut fields = vms.iter().flat_map(|vm| vm.entries());
    fields.any(|(key, ..)| goal::FIELDS.contains(&key))
}

/// The options that belong to a configuration, a VM of which is profiled.
const OF_A_PROFILE: &[&str] = &["--vm", "--board", "--model", "--machine"];

/// Returns the options that belong to a kind of file; none if it does not run boards many times.
const fn options_of(kind: FileKind) -> Option<&'static [&'static str]> {
    match kind {
        FileKind::Campaign => Some(&[
            "--runs",
            "--seeds",
            "--variant",
            "--workload",
            "--board",
            "--machine",
        ]),
        FileKind::Experiment => Some(&[
            "--quick",
            "--model",
            "--sensitivity",
            "--program",
            "--samples",
            "--board",
            "--machine",
        ]),
        FileKind::Measurements => Some(&["--model"]),
        FileKind::System => Some(&[
            "--for",
            "--only",
            "--compare",
            "--sensitivity",
            "--model",
            "--board",
        ]),
        FileKind::Benchmarks => Some(&[
            "--board",
            "--machine",
            "--runs",
            "--hypotheses",
            "--no-hypotheses",
        ]),
        _ => None,
    }
}

impl fmt::Display for Work {
    /// Formats the command without its options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stem = |path: &Path| {
            path.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        match self {
            Self::Experiment { name, .. } => write!(f, "experiment {}", stem(Path::new(name))),
            Self::Campaign { file, .. } => write!(f, "campaign {}", stem(file)),
            Self::Validate { .. } => f.write_str("model validate"),
            Self::Events { .. } => f.write_str("events validate"),
            Self::Tune { config, .. } => write!(f, "tune {}", stem(config)),
            Self::Profile { config, vm, .. } => write!(f, "bbprof {}-{vm}", stem(config)),
        }
    }
}

impl Work {
    /// Returns the work that a file describes, with the options that belong to it.
    ///
    /// # Errors
    ///
    /// If the file describes no such work, or an option does not belong to it.
    pub fn of(name: &str, options: Options) -> Result<Self> {
        let path = experiment::file_of(name);
        let help = "jobs are made of an experiment (it has [[variant]]), a campaign \
                    ([[workload]]), a file of measurements ([[point]]), benchmarks for events \
                    ([[benchmark]]), a configuration to tune (its VMs have goals), or one of \
                    whose VM --vm finds the pages that matter";
        let source = document::open(&path, help)?;
        let kind = document::read(&source, |root| {
            let is_profiled = options.vm.is_some();
            let can_be =
                |kind: &FileKind| *kind != FileKind::System || is_profiled || has_goals(root);
            let kind = FileKind::of(root).filter(can_be);
            Some(kind.and_then(|kind| {
                let known = match kind {
                    FileKind::System if is_profiled => OF_A_PROFILE,
                    _ => options_of(kind)?,
                };
                Some((kind, known))
            }))
        })?;
        let (kind, known) = kind.ok_or_else(|| {
            miette!(
                help = help,
                "{} is none of what runs boards many times",
                path.display()
            )
        })?;
        if let Some(option) = options.given().find(|option| !known.contains(option)) {
            let help = format!("it takes {}", known.join(", "));
            return Err(miette!(
                help = help,
                "{option} does not belong to {}, which {} is",
                kind.name(),
                path.display()
            ));
        }
        let Options {
            quick,
            model,
            sensitivity,
            program,
            samples,
            objective,
            only,
            compare,
            runs,
            seeds,
            variant,
            workload,
            board,
            machine,
            hypotheses,
            no_hypotheses,
            vm,
            choice,
        } = options;
        Ok(match kind {
            FileKind::Campaign if runs == Some(1) => {
                return Err(miette!("--runs 1: a campaign needs at least 2"));
            }
            FileKind::Campaign => Self::Campaign {
                hardware: of_file(machine, &board, false, false)?,
                board,
                file: path,
                runs,
                seeds,
                variant,
                workload,
            },
            FileKind::Experiment => {
                let hardware = of_file(machine, &board, model.is_some(), sensitivity)?;
                Self::Experiment {
                    name: name.to_owned(),
                    quick,
                    model,
                    sensitivity,
                    hardware,
                    board,
                    program,
                    samples,
                }
            }
            FileKind::Measurements => Self::Validate {
                points: path,
                model,
            },
            FileKind::System if let Some(vm) = vm => Self::Profile {
                hardware: is_for_hardware(machine, model.is_some(), false)?,
                config: path,
                vm,
                choice,
                model,
                board,
            },
            FileKind::System => Self::Tune {
                config: path,
                objective: objective.unwrap_or_else(|| OBJECTIVES[0].to_owned()),
                only,
                compare,
                sensitivity,
                model,
                board,
            },
            _ => {
                let machine = machine.unwrap_or(Machine::Stock);
                let cpu = configuration::board(board.as_deref().unwrap_or(DEFAULT_BOARD))?
                    .events
                    .cpu;
                let same = |one: &Path, other: &Path| {
                    one.canonicalize()
                        .is_ok_and(|one| Some(one) == other.canonicalize().ok())
                };
                let manifest = (!same(&path, &events::shipped(&cpu))).then_some(path);
                Self::Events {
                    manifest,
                    board,
                    machine,
                    runs,
                    hypotheses,
                    no_hypotheses,
                }
            }
        })
    }

    /// Returns whether later boots depend on the output of earlier ones, so that there are several
    /// rounds of jobs.
    pub const fn has_rounds(&self) -> bool {
        matches!(self, Self::Tune { .. } | Self::Profile { .. })
    }

    /// Performs the command on these boards, with its report in `place`; the figures are also
    /// written to `json`. `map` draws the color map of a configuration.
    ///
    /// # Errors
    ///
    /// As the command; also if a boot has no output yet.
    pub fn perform(
        &self,
        boards: &Boards,
        place: &Path,
        json: Option<PathBuf>,
        map: Map,
    ) -> Result<()> {
        let out = Some(place.to_path_buf());
        match self.clone() {
            Self::Experiment { .. } => match self.experiment() {
                Some(args) => {
                    experiment::experiment_on(boards, &ExperimentArgs { out, json, ..args })
                }
                None => Ok(()),
            },
            Self::Campaign {
                file,
                runs,
                seeds,
                variant,
                workload,
                hardware,
                board,
            } => campaign::campaign_on(
                boards,
                &CampaignArgs {
                    hardware: hardware.then_some(Hardware { board }),
                    file,
                    out,
                    json,
                    runs,
                    seeds,
                    variant,
                    workload,
                },
            ),
            Self::Validate { points, model } => {
                // Its report is the figures.
                let json = json.or_else(|| Some(out.as_ref()?.join("figures.json")));
                model::validate_on(
                    boards,
                    &ValidateArgs {
                        model,
                        points: Some(points),
                        out,
                        json,
                    },
                )
            }
            Self::Events { .. } => {
                let json = json.or_else(|| Some(place.join("figures.json")));
                let out = Some(place.join("verdicts.toml"));
                let args = self
                    .events()
                    .map(|args| events::ValidateArgs { out, json, ..args });
                args.map_or(Ok(()), |args| events::validate_on(boards, place, &args))
            }
            Self::Tune {
                config,
                objective,
                only,
                compare,
                sensitivity,
                model,
                board,
            } => {
                let args = TuneArgs {
                    objective,
                    only,
                    compare,
                    sensitivity,
                    model,
                    board,
                    out,
                    json,
                    ..TuneArgs::of(config)
                };
                if let Some(tuned) = tune::tune_on(boards, &args, map)? {
                    println!("{}{}", map(&tuned.checked), tuned.report);
                }
                Ok(())
            }
            Self::Profile { .. } => match self.profile() {
                Some(args) => bbprof::bbprof_on(boards, &BbprofArgs { out, json, ..args }),
                None => Ok(()),
            },
        }
    }

    /// Returns the arguments of `experiment`, if that is the command.
    fn experiment(&self) -> Option<ExperimentArgs> {
        let Self::Experiment {
            name,
            quick,
            model,
            sensitivity,
            hardware,
            board,
            program,
            samples,
        } = self.clone()
        else {
            return None;
        };
        Some(ExperimentArgs {
            name,
            out: None,
            json: None,
            quick,
            model,
            sensitivity,
            strict: false,
            program,
            samples,
            hardware: hardware.then_some(Hardware { board }),
        })
    }

    /// Returns the arguments of `events validate`, if that is the command.
    fn events(&self) -> Option<events::ValidateArgs> {
        let Self::Events {
            manifest,
            board,
            machine,
            runs,
            hypotheses,
            no_hypotheses,
        } = self.clone()
        else {
            return None;
        };
        let (model, icount) = (machine == Machine::Model, machine == Machine::Icount);
        let on_hardware = machine == Machine::Hardware;
        let runs = runs.map_or(events::RUNS, u64::from);
        let (counts, out, json) = (None, None, None);
        Some(events::ValidateArgs {
            board,
            model,
            icount,
            on_hardware,
            runs,
            counts,
            manifest,
            hypotheses,
            no_hypotheses,
            out,
            json,
        })
    }

    /// Returns the arguments of `bbprof`, if that is the command.
    fn profile(&self) -> Option<BbprofArgs> {
        let Self::Profile {
            config,
            vm,
            choice,
            model,
            hardware,
            board,
        } = self.clone()
        else {
            return None;
        };
        Some(BbprofArgs {
            config,
            vm,
            choice,
            board,
            model,
            board_runs: BoardRuns::default(),
            profile: None,
            out: None,
            json: None,
            is_on_hardware: hardware,
        })
    }

    /// Returns the files that determine the jobs, for messages about a changed one.
    ///
    /// # Errors
    ///
    /// If the file is not valid, or hypervisor or model cannot be built.
    pub fn inputs(&self) -> Result<Vec<PathBuf>> {
        let mut all = match self {
            Self::Experiment { .. } => self
                .experiment()
                .map_or_else(|| Ok(vec![]), |args| experiment::files_of(&args))?,
            Self::Campaign { file, .. } => {
                let path = installation::find(file);
                let read = campaign::spec::load(&path)?;
                vec![path, read.system, read.model]
            }
            Self::Validate { points, model } => {
                let shipped = || installation::root().join(model::MODEL);
                vec![
                    installation::find(points),
                    model.as_deref().map_or_else(shipped, installation::find),
                ]
            }
            Self::Events { .. } => self
                .events()
                .map_or_else(|| Ok(vec![]), |args| events::files_of(&args))?,
            Self::Tune {
                config,
                model,
                board,
                ..
            } => tune::files_of(config, model.as_deref(), board.as_deref())?,
            Self::Profile { .. } => self
                .profile()
                .map_or_else(|| Ok(vec![]), |args| bbprof::files_of(&args))?,
        };
        all.extend([parts::hypervisor(&[])?, parts::model_plugin()?]);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> String {
        installation::root()
            .join("configs")
            .join(name)
            .display()
            .to_string()
    }

    #[test]
    fn a_file_says_itself_what_it_is() {
        let of = |name: &str| Work::of(name, Options::default()).expect("it is one");
        assert!(matches!(of("c2is"), Work::Experiment { .. }));
        assert!(matches!(
            of(&shipped("experiments/quota.toml")),
            Work::Experiment { .. }
        ));
        for campaign in ["campaigns/kernels.toml", "campaigns/much.toml"] {
            assert!(
                matches!(of(&shipped(campaign)), Work::Campaign { .. }),
                "{campaign}"
            );
        }
        assert!(matches!(
            of(&shipped("models/zcu102-public.toml")),
            Work::Validate { .. }
        ));
        // Cloison's benchmarks for the board's CPU are those that need not be named.
        let events = |name: &str| matches!(of(&shipped(name)), Work::Events { manifest: None, .. });
        assert!(events("validation/cortex-a53.toml") && !events("validation/cortex-a72.toml"));
        let error = Work::of(&shipped("demo.toml"), Options::default())
            .expect_err("it is a system")
            .to_string();
        assert!(
            error.ends_with("demo.toml is none of what runs boards many times"),
            "{error}"
        );
    }

    #[test]
    fn an_experiment_has_programs_and_samples() {
        let chosen = Options {
            samples: Some(3),
            program: vec!["own=/bin/own".to_owned()],
            ..Options::default()
        };
        let work = Work::of("interf-linux", chosen.clone()).expect("an experiment has them");
        let args = work.experiment().expect("it is one");
        assert_eq!(
            (args.samples, args.program),
            (Some(3), vec!["own=/bin/own".to_owned()])
        );
        let points = shipped("models/zcu102-public.toml");
        let error = Work::of(&points, chosen).expect_err("it has none");
        assert!(error.to_string().starts_with("--program does not belong"));
        // As in manifests of those that have none.
        let plain = Work::of("c2is", Options::default()).expect("it is one");
        let text = serde_json::to_string(&plain).expect("it can be written");
        assert!(
            !text.contains("program") && !text.contains("samples"),
            "{text}"
        );
        let read: Work = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read, plain);
    }

    #[test]
    fn options_of_something_else_are_refused() {
        let points = shipped("models/zcu102-public.toml");
        let chosen = Options {
            seeds: Some(2),
            workload: vec!["sort".to_owned()],
            ..Options::default()
        };
        let campaign =
            Work::of(&shipped("campaigns/much.toml"), chosen.clone()).expect("a campaign has them");
        assert!(matches!(campaign, Work::Campaign { seeds: Some(2), .. }));
        let error = Work::of("c2is", chosen)
            .expect_err("an experiment has no seeds")
            .to_string();
        assert!(
            error.starts_with("--seeds does not belong to an experiment"),
            "{error}"
        );
        for (options, named) in [
            (
                Options {
                    quick: true,
                    ..Options::default()
                },
                "--quick",
            ),
            (
                Options {
                    sensitivity: true,
                    ..Options::default()
                },
                "--sensitivity",
            ),
            (
                Options {
                    runs: Some(3),
                    ..Options::default()
                },
                "--runs",
            ),
        ] {
            let error = Work::of(&points, options)
                .expect_err("no such option")
                .to_string();
            assert!(
                error.starts_with(&format!(
                    "{named} does not belong to a file of measurements"
                )),
                "{error}"
            );
        }
    }
}
