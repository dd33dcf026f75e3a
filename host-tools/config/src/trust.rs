//! Whether a quota may count an event, by the validations of the board's machines (`cloison events
//! validate`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::{Context, Table};
use crate::events::Event;
use crate::problem::{Problem, SourceFile, display_path};
use crate::scene::Scene;
use crate::validation::record::{Machine, Observed, Subject};
use crate::validation::{Record, Verdict};
use cloison_formats::units::EventId;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The directory of files of verdicts, beside a configuration and beside a board file.
const DIRECTORY: &str = "verdicts";

/// Why a quota may count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It counts what its documentation says.
    Trusted,
    /// It counts something else, by a known mechanism.
    Corrected,
}

/// Why a quota may not count an event on a machine.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Evidence {
    /// The machine has no file of verdicts.
    #[error("nobody has validated {machine} (there is no {}): {}", name_of(board, *machine), advice(board, *machine))]
    NotValidated {
        /// The board's name.
        board: String,
        /// The machine.
        machine: Machine,
    },
    /// The file of verdicts has none on the event.
    #[error("{machine} has no verdict on it: no benchmark exercises it ({})", display_path(file).display())]
    NoVerdict {
        /// The machine.
        machine: Machine,
        /// The file of verdicts.
        file: PathBuf,
    },
    /// The verdict is against it.
    #[error("{verdict} on {machine}: {because} ({}{})", numbers(telling.as_ref()), display_path(file).display())]
    Against {
        /// The machine.
        machine: Machine,
        /// The file of verdicts.
        file: PathBuf,
        /// The verdict.
        verdict: Verdict,
        /// Its reason.
        because: String,
        /// The benchmark that says the most.
        telling: Option<Observed>,
    },
}

impl Evidence {
    /// Returns whether the machine has no verdicts at all.
    fn is_missing(&self) -> bool {
        matches!(self, Self::NotValidated { .. })
    }

    fn machine(&self) -> Machine {
        match self {
            Self::NotValidated { machine, .. }
            | Self::NoVerdict { machine, .. }
            | Self::Against { machine, .. } => *machine,
        }
    }
}

/// Returns one line about the machines that have no verdicts.
fn unvalidated(board: &str, missing: &[&Evidence]) -> Option<String> {
    let machines: Vec<String> = missing.iter().map(|it| it.machine().to_string()).collect();
    let command =
        format!("`cloison events validate --board {board} --out {DIRECTORY}/{board}-MACHINE.toml`");
    (!machines.is_empty()).then(|| {
        format!(
            "nobody has validated {}: {command}, beside the configuration",
            machines.join(" or ")
        )
    })
}

/// Returns the name of a machine's file of verdicts.
fn name_of(board: &str, machine: Machine) -> String {
    format!("{board}-{}.toml", machine.word())
}

/// Returns the command that makes a machine's file of verdicts.
fn advice(board: &str, machine: Machine) -> String {
    let option = match machine {
        Machine::Stock => "",
        Machine::Icount => " --icount",
        Machine::Model => " --model",
        Machine::Hardware => " --counts COUNTS.toml",
    };
    let file = name_of(board, machine);
    format!(
        "`cloison events validate --board {board}{option} --out {DIRECTORY}/{file}`, beside the \
         configuration"
    )
}

/// Returns a benchmark's numbers, before the name of a file.
fn numbers(observed: Option<&Observed>) -> String {
    observed.map_or_else(String::new, |it| {
        format!(
            "{}: {:.0} expected, {:.0} counted; ",
            it.benchmark, it.expected, it.mean
        )
    })
}

/// The verdicts on the events of a board, by machine.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    board: String,
    /// Each machine on which the board's systems can run, with its file of verdicts if there is
    /// one.
    machines: Vec<(Machine, Option<(PathBuf, Record)>)>,
}

impl Verdicts {
    /// Reads the files of verdicts on all machines of a board from the first of `directories` that
    /// has the file. Adds their mistakes to `problems`.
    pub fn load(board: &BoardFile, directories: &[PathBuf], problems: &mut Vec<Problem>) -> Self {
        let name = board.board.name.clone();
        let model = board
            .emulation
            .as_ref()
            .and_then(|emulation| emulation.model.as_deref());
        let model = model
            .and_then(Path::file_stem)
            .and_then(|stem| stem.to_str());
        let has = |machine: &Machine| match machine {
            Machine::Stock | Machine::Icount => board.emulation.is_some(),
            Machine::Model => model.is_some(),
            Machine::Hardware => true,
        };
        let mut read = |machine: Machine| -> Option<(PathBuf, Record)> {
            let candidates = directories
                .iter()
                .map(|directory| directory.join(name_of(&name, machine)));
            let path = candidates.into_iter().find(|path| path.is_file())?;
            let model = model.filter(|_| machine == Machine::Model);
            let subject = Subject {
                cpu: &board.events.cpu,
                board: &name,
                machine,
                model,
            };
            match Record::load_of(&path, &subject) {
                Ok(record) => Some((path, record)),
                Err(errors) => {
                    problems.extend(errors.problems().iter().cloned());
                    None
                }
            }
        };
        let machines = Machine::ALL
            .into_iter()
            .map(|(_, machine)| machine)
            .filter(has);
        let machines = machines.map(|machine| (machine, read(machine))).collect();
        Self {
            board: name,
            machines,
        }
    }

    /// Returns the machines on which the board's systems can run.
    pub fn machines(&self) -> impl Iterator<Item = Machine> {
        self.machines.iter().map(|(machine, _)| *machine)
    }

    /// Returns whether a quota may count an event on a machine.
    ///
    /// # Errors
    ///
    /// Returns the evidence against it.
    pub fn of(&self, machine: Machine, event: &str) -> Result<Trust, Evidence> {
        let found = self
            .machines
            .iter()
            .find(|(other, _)| *other == machine)
            .and_then(|(_, found)| found.as_ref());
        let Some((file, record)) = found else {
            return Err(Evidence::NotValidated {
                board: self.board.clone(),
                machine,
            });
        };
        let Some(recorded) = record.of(event) else {
            return Err(Evidence::NoVerdict {
                machine,
                file: file.clone(),
            });
        };
        match recorded.verdict {
            Verdict::Trusted => Ok(Trust::Trusted),
            Verdict::Corrected => Ok(Trust::Corrected),
            verdict => Err(Evidence::Against {
                machine,
                file: file.clone(),
                verdict,
                because: recorded.because.clone(),
                telling: recorded.telling().cloned(),
            }),
        }
    }

    /// Returns the names of the events that a quota may count on a machine.
    pub fn trusted(&self, machine: Machine) -> impl Iterator<Item = &str> {
        let of = self
            .machines
            .iter()
            .filter(move |(other, _)| *other == machine);
        let recorded = of
            .filter_map(|(_, found)| found.as_ref())
            .flat_map(|(_, record)| &record.verdicts);
        recorded
            .filter(|recorded| recorded.verdict.bears_a_quota())
            .map(|recorded| recorded.event.as_str())
    }
}

/// An event that a quota counts, and its field.
#[derive(Clone, Debug)]
pub(crate) struct Budgeted {
    name: String,
    /// Whether the quota takes it without evidence.
    allow_untrusted: bool,
    file: SourceFile,
    path: String,
    span: Range<usize>,
}

impl Budgeted {
    /// Returns an event that a quota counts by the field at `path` and `span`; `allow_untrusted` is
    /// the quota's own field of this name.
    pub(crate) fn new(
        quota: &Table<'_>,
        path: &str,
        span: Range<usize>,
        event: &Event,
        allow_untrusted: bool,
    ) -> Self {
        Self {
            name: event.name.clone(),
            allow_untrusted,
            file: quota.file().clone(),
            path: path.to_owned(),
            span,
        }
    }

    /// Returns whether a problem of it is one of another quota too, word for word.
    fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.allow_untrusted == other.allow_untrusted
    }

    /// Returns a problem of this quota, and of those that are like it.
    fn problem(&self, message: String, alike: &[&Self]) -> Problem {
        let make = if self.allow_untrusted {
            Problem::warning
        } else {
            Problem::error
        };
        let (path, span) = (self.path.clone(), self.span.clone());
        let problem = make(&self.file, path, span, message).label("untrusted event");
        alike.iter().fold(problem, |problem, other| {
            problem.also(other.span.clone(), "and here")
        })
    }

    /// Returns what the user can do about an untrusted event.
    fn way_out(&self) -> &'static str {
        if self.allow_untrusted {
            "allow_untrusted takes it: the budget may limit nothing"
        } else {
            "allow_untrusted = true in the quota takes it all the same"
        }
    }
}

/// The events that a configuration's quotas count, and the verdicts on them.
#[derive(Clone, Debug, Default)]
pub struct QuotaEvents {
    budgeted: Vec<Budgeted>,
    verdicts: Verdicts,
}

impl QuotaEvents {
    /// Reads the verdicts for a configuration's quotas. Records an error if no machine of the board
    /// counts all their events.
    pub(crate) fn read(
        budgeted: Vec<Budgeted>,
        scene: &Scene<'_>,
        context: &Context,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let Some(board) = scene.board.filter(|_| !budgeted.is_empty()) else {
            return Self::default();
        };
        let beside_board = board.path.parent().unwrap_or(Path::new("."));
        let directories = [
            scene.base.join(DIRECTORY),
            beside_board.join(DIRECTORY),
            scene.shipped.verdicts(),
        ];
        let before = problems.len();
        let all = Self {
            verdicts: Verdicts::load(board, &directories, problems),
            budgeted,
        };
        // Of a file that cannot be read, its errors are all that is known.
        if problems.len() == before {
            all.problems()
                .into_iter()
                .for_each(|problem| context.push(problem));
        }
        all
    }

    /// Returns the verdicts on the board's events; none without a quota.
    pub fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Returns whether all quotas hold on a machine.
    pub fn holds_on(&self, machine: Machine) -> bool {
        self.on(machine).iter().all(|problem| !problem.is_error())
    }

    /// Returns the machines on which all quotas hold.
    pub fn machines(&self) -> impl Iterator<Item = Machine> {
        self.verdicts
            .machines()
            .filter(|machine| self.holds_on(*machine))
    }

    /// Returns whether there is a quota.
    pub fn is_empty(&self) -> bool {
        self.budgeted.is_empty()
    }

    /// Returns the machines on which an event can be trusted.
    fn trusting<'a>(&'a self, it: &'a Budgeted) -> impl Iterator<Item = Machine> + 'a {
        self.verdicts
            .machines()
            .filter(|machine| self.verdicts.of(*machine, &it.name).is_ok())
    }

    /// Returns the errors and warnings about the quotas' events on a machine.
    pub fn on(&self, machine: Machine) -> Vec<Problem> {
        let against = |(it, alike): (&Budgeted, Vec<&Budgeted>)| {
            let evidence = self.verdicts.of(machine, &it.name).err()?;
            let message = format!("a budget of {} cannot be trusted on {machine}", it.name);
            let problem = it.problem(message, &alike);
            let trusted: Vec<&str> = self.verdicts.trusted(machine).collect();
            let on: Vec<String> = self
                .trusting(it)
                .map(|machine| match machine {
                    Machine::Model => format!("{machine} (--model)"),
                    _ => machine.to_string(),
                })
                .collect();
            let lines = [
                Some(evidence.to_string()),
                (!on.is_empty())
                    .then(|| format!("{} can be trusted on {}", it.name, on.join(" and "))),
                (!trusted.is_empty())
                    .then(|| format!("{machine} can be trusted with {}", trusted.join(", "))),
                Some(it.way_out().to_owned()),
            ];
            Some(problem.help(lines.into_iter().flatten().collect::<Vec<_>>().join("\n")))
        };
        self.alike().filter_map(against).collect()
    }

    /// Returns a quota of each event, with the others whose problems are the same.
    fn alike(&self) -> impl Iterator<Item = (&Budgeted, Vec<&Budgeted>)> {
        let all = &self.budgeted;
        let firsts = all.iter().enumerate();
        let firsts = firsts.filter(|(at, it)| !all[..*at].iter().any(|other| other.is_like(it)));
        firsts.map(|(at, it)| {
            let others = all[at + 1..].iter();
            (it, others.filter(|other| other.is_like(it)).collect())
        })
    }

    /// Returns the errors of a configuration whose quotas hold on no machine, and the warnings
    /// about events that can be trusted on none.
    fn problems(&self) -> Vec<Problem> {
        let nowhere = |(it, alike): (&Budgeted, Vec<&Budgeted>)| {
            let evidence = self
                .verdicts
                .machines()
                .map(|machine| self.verdicts.of(machine, &it.name).err());
            let evidence = evidence.collect::<Option<Vec<Evidence>>>()?;
            let board = &self.verdicts.board;
            let message = format!(
                "no machine of board `{board}` can be trusted to count {}",
                it.name
            );
            let problem = it.problem(message, &alike);
            let (missing, against): (Vec<_>, Vec<_>) =
                evidence.iter().partition(|it| it.is_missing());
            let against = against.into_iter().map(Evidence::to_string);
            let lines = against
                .chain(unvalidated(board, &missing))
                .chain([it.way_out().to_owned()]);
            Some(problem.help(lines.collect::<Vec<_>>().join("\n")))
        };
        let found: Vec<Problem> = self.alike().filter_map(nowhere).collect();
        if found.iter().any(Problem::is_error) || self.machines().next().is_some() {
            return found;
        }
        let apart = self
            .alike()
            .filter(|(it, _)| !it.allow_untrusted)
            .map(|(it, alike)| {
                let on: Vec<String> = self
                    .trusting(it)
                    .map(|machine| machine.to_string())
                    .collect();
                let message =
                    "no machine can be trusted to count the events of all quotas".to_owned();
                let help = format!(
                    "{} is trusted only on {}\n{}",
                    it.name,
                    on.join(" and "),
                    it.way_out()
                );
                it.problem(message, &alike).help(help)
            });
        found.into_iter().chain(apart).collect()
    }

    /// Accepts the events of all quotas, trusted or not.
    pub fn allow_untrusted(&mut self) {
        self.budgeted
            .iter_mut()
            .for_each(|it| it.allow_untrusted = true);
    }

    /// Returns the events that quotas may count on a machine.
    pub fn trusted(&self, machine: Machine, board: &BoardFile) -> Vec<EventId> {
        self.verdicts
            .trusted(machine)
            .filter_map(|name| Some(board.events.by_name(name)?.id))
            .collect()
    }
}
