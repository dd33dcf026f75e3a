//! The benchmarks on the board model: the boots that they need, and a boot's cycles in the unit of
//! a measurement.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::points::{
    Benchmark, Chase, Corun, Operation, Order, Pages, Pass, Point, Points, Stream,
};
use crate::boards::{Absent, Boards};
use crate::experiment::account::Account;
use crate::experiment::measured::{Measure, Measured};
use crate::experiment::overrides::{Path as TomlPath, Value};
use crate::experiment::shows::Form;
use crate::experiment::{self, Scope, runner, spec};
use crate::parameters::{self, Decimal, Value as Setting};
use cloison_config::problem::SourceFile;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::validation::record::Machine as Executor;
use cloison_config::{Errors, Problem, suggest};
use cloison_engine::files::{self, write_atomic};
use cloison_engine::installation;
use cloison_engine::model::{Conditions, Model};
use miette::{Result, miette};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The system in which the benchmarks run.
const SYSTEM: &str = "configs/experiments/systems/memory.toml";
/// Bytes of a line.
const LINE: u64 = 64;
/// Bytes between the loads of a chain of equal strides.
const STRIDE: u64 = 128;
/// Accesses of a measured run, at least: the hypercalls around it are less than a thousandth of it.
const ACCESSES: u64 = 1 << 18;
/// The contiguous memory that is set aside for a VM.
const CONTIGUOUS: &str = "32M";
/// The buffer of random reads that is subtracted from the others: it fits in an L1 cache.
const SMALL_KIB: u64 = 1;

/// A boot of the board: a workload with a buffer on some cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Boot {
    Chase(Chase),
    Stride {
        kib: u64,
    },
    Random {
        kib: u64,
    },
    Stream(Stream),
    /// A stream, beside others or alone.
    Corun {
        measured: Pass,
        others: Option<Others>,
        partition: bool,
    },
}

/// What the cores do that are not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Others {
    pass: Pass,
    cores: u64,
}

/// Returns the number that the workload `memory` has for a stream.
const fn stream_number(operation: Operation) -> u64 {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Copy => 2,
        Operation::Words => 6,
    }
}

impl Boot {
    /// Returns the boots that a benchmark needs; none if it is an experiment's figure.
    fn of(benchmark: &Benchmark) -> Vec<Self> {
        match benchmark {
            Benchmark::Chase(chase) => vec![Self::Chase(*chase)],
            Benchmark::Stride(buffer) => vec![Self::Stride { kib: buffer.kib }],
            Benchmark::RandomReads(buffer) => vec![
                Self::Random { kib: buffer.kib },
                Self::Random { kib: SMALL_KIB },
            ],
            Benchmark::Stream(stream) => vec![Self::Stream(*stream)],
            Benchmark::Corun(corun) => Self::of_corun(corun).to_vec(),
            Benchmark::Experiment(_) => vec![],
        }
    }

    /// Returns the boots of a stream alone, and beside others.
    const fn of_corun(corun: &Corun) -> [Self; 2] {
        let &Corun {
            measured,
            others,
            cores,
            partition,
        } = corun;
        let others = Others {
            pass: others,
            cores: cores - 1,
        };
        [
            Self::Corun {
                measured,
                others: None,
                partition,
            },
            Self::Corun {
                measured,
                others: Some(others),
                partition,
            },
        ]
    }

    const fn kib(self) -> u64 {
        match self {
            Self::Chase(chase) => chase.kib,
            Self::Stride { kib } | Self::Random { kib } => kib,
            Self::Stream(stream) => stream.pass.kib,
            Self::Corun { measured, .. } => measured.kib,
        }
    }

    /// Returns the bytes of a buffer, which the workloads round up to whole iterations of their
    /// loops.
    fn bytes(self) -> u64 {
        (self.kib() * 1024).next_multiple_of(STRIDE * 8)
    }

    fn accesses_of_a_pass(self) -> u64 {
        self.bytes()
            / if matches!(self, Self::Stride { .. }) {
                STRIDE
            } else {
                LINE
            }
    }

    fn passes(self) -> u64 {
        ACCESSES.div_ceil(self.accesses_of_a_pass())
    }

    fn accesses(self) -> u64 {
        self.accesses_of_a_pass() * self.passes()
    }

    const fn cores(self) -> u64 {
        match self {
            Self::Stream(stream) => stream.cores,
            Self::Corun {
                others: Some(others),
                ..
            } => 1 + others.cores,
            _ => 1,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Chase(Chase { kib, order }) => match order {
                Order::Random => format!("chase-{kib}"),
                Order::Reversed => format!("chase-reversed-{kib}"),
            },
            Self::Stride { kib } => format!("stride-{kib}"),
            Self::Random { kib } => format!("random-{kib}"),
            Self::Stream(Stream { pass, cores }) => {
                format!("{}-{}-on-{cores}", pass.operation.name(), pass.kib)
            }
            Self::Corun {
                measured,
                others,
                partition,
            } => {
                let place = if partition { "-in-own-colors" } else { "" };
                let beside = others.map_or_else(
                    || "-alone".to_owned(),
                    |Others { pass, cores }| {
                        let name = pass.operation.name();
                        format!("-beside-{cores}-{name}-{}", pass.kib)
                    },
                );
                let Pass { operation, kib } = measured;
                format!("{}-{kib}{place}{beside}", operation.name())
            }
        }
    }

    /// Returns the workload and its arguments, of the victim or of the other cores;
    /// docs/workloads.md describes both.
    fn workload(self, core: u64) -> (&'static str, [u64; 4]) {
        let runs = if core == 0 { 2 } else { 0 };
        let memory = |operation| ("memory", [operation, self.bytes(), self.passes(), runs]);
        match self {
            Self::Chase(chase) => match chase.order {
                Order::Random => ("latency", [self.bytes(), self.passes(), 1, runs]),
                Order::Reversed => memory(7),
            },
            Self::Stream(stream) => memory(stream_number(stream.pass.operation)),
            Self::Corun {
                others: Some(others),
                ..
            } if core > 0 => {
                let Pass { operation, kib } = others.pass;
                ("memory", [stream_number(operation), kib * 1024, 1, runs])
            }
            Self::Corun { measured, .. } => memory(stream_number(measured.operation)),
            Self::Stride { .. } => memory(3),
            Self::Random { .. } => memory(4),
        }
    }

    /// Returns the run of an experiment that boots it, for a point of the file.
    fn point(self, point: &Point) -> Result<spec::Point> {
        let parse = |path: String| TomlPath::parse(&path).map_err(|error| miette!("{error}"));
        let mut set = vec![];
        let mut remove = vec![];
        if point.pages == Pages::Huge {
            let region = |field: &str| parse(format!("vm.victim.region.ram.{field}"));
            set.push((
                parse("hypervisor.contiguous".to_owned())?,
                Value::from(CONTIGUOUS),
                point.span.clone(),
            ));
            set.push((
                region("contiguous")?,
                Value::Boolean(true),
                point.span.clone(),
            ));
            remove.push((region("pool")?, point.span.clone()));
        }
        if matches!(
            self,
            Self::Corun {
                partition: true,
                ..
            }
        ) {
            set.push((
                parse("vm.victim.region.ram.pool".to_owned())?,
                Value::from("own"),
                point.span.clone(),
            ));
        } else {
            remove.push((parse("pool.own".to_owned())?, point.span.clone()));
            set.push((
                parse("pool.shared.colors".to_owned())?,
                Value::from("0-14"),
                point.span.clone(),
            ));
        }
        for core in 0..4 {
            let vm = if core == 0 {
                "victim".to_owned()
            } else {
                format!("other-{core}")
            };
            if core >= self.cores() {
                remove.push((parse(format!("vm.{vm}"))?, point.span.clone()));
                continue;
            }
            let (workload, args) = self.workload(core);
            let image = toml::Table::from_iter([("workload".to_owned(), Value::from(workload))]);
            let args = args.map(|arg| Value::from(i64::try_from(arg).unwrap_or(i64::MAX)));
            set.push((
                parse(format!("vm.{vm}.image"))?,
                Value::Table(image),
                point.span.clone(),
            ));
            set.push((
                parse(format!("vm.{vm}.args"))?,
                Value::Array(args.to_vec()),
                point.span.clone(),
            ));
        }
        let (axes, pages) = (BTreeMap::new(), 0);
        Ok(spec::Point {
            variant: self.name(),
            axes,
            set,
            remove,
            pages,
            programs: vec![],
            sample: 0,
            again: vec![],
            span: point.span.clone(),
        })
    }
}

/// The model for a boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setup {
    /// Clock of its cores.
    clock_mhz: u64,
    /// The board whose facts it has.
    board: Option<String>,
    pages: Pages,
}

impl Setup {
    /// Returns that of a point; none if its benchmark is an experiment's figure.
    fn of(points: &Points, point: &Point) -> Option<Self> {
        let board = points
            .boards
            .contains_key(&point.board)
            .then(|| point.board.clone());
        Some(Self {
            clock_mhz: point.clock_mhz?,
            board,
            pages: point.pages,
        })
    }

    /// Returns its name, for files.
    fn name(&self) -> String {
        let board: String = self
            .board
            .iter()
            .flat_map(|board| board.chars())
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let parts = [
            Some(format!("at-{}", self.clock_mhz)),
            self.board.as_ref().map(|_| board.to_lowercase()),
        ];
        let huge = (self.pages == Pages::Huge).then(|| "2m".to_owned());
        parts
            .into_iter()
            .chain([huge])
            .flatten()
            .collect::<Vec<_>>()
            .join("-")
    }

    /// Returns the text of a model's file with its values.
    fn model(&self, model_file: &Path, points: &Points) -> Result<String> {
        let source = SourceFile::new(
            model_file,
            files::read_text(model_file, files::CONFIGURATION)?,
        );
        let known = parameters::all(&source)
            .map_err(|problem| Errors::new(source.name(), vec![*problem]))?;
        let find = |name: &str| known.iter().find(|parameter| parameter.name == name);
        let clock = find("core.clock_mhz");
        let clock = clock.ok_or_else(|| {
            miette!(
                "the model in {} has no core.clock_mhz",
                model_file.display()
            )
        })?;
        let mut changes = vec![(
            clock,
            Setting::Number(Decimal {
                digits: self.clock_mhz,
                decimals: 0,
            }),
        )];
        if let Some(facts) = self
            .board
            .as_ref()
            .and_then(|board| points.boards.get(board))
        {
            for (name, value) in &facts.set {
                let Some(parameter) = find(name) else {
                    let message = format!("the model has no value `{name}`");
                    let help = suggest(
                        name,
                        "values in it",
                        known.iter().map(|parameter| parameter.name.as_str()),
                    );
                    let problem =
                        Problem::error(&points.source, "board.model", facts.span.clone(), message);
                    return Err(Errors::new(
                        points.source.name(),
                        vec![problem.label("of this board").help(help)],
                    )
                    .into());
                };
                changes.push((parameter, value.clone()));
            }
        }
        // A model that lacks it translates for nothing.
        if let (Pages::Huge, Some(blocks)) = (self.pages, find("tlb.stage2_blocks")) {
            changes.push((blocks, Setting::Switch(true)));
        }
        Ok(parameters::replaced(source.text(), changes))
    }
}

/// The results of all boots and experiments that a file's points need.
#[derive(Debug, Default)]
pub struct Results {
    /// Cycles of each boot.
    cycles: BTreeMap<(Setup, Boot), u64>,
    /// The figures of each experiment, by whether the model's cores prefetch data.
    figures: BTreeMap<(String, bool), BTreeMap<String, f64>>,
    images: Vec<String>,
}

impl Results {
    /// Returns the SHA-256 of the system image of each boot.
    pub fn images(&self) -> impl Iterator<Item = String> {
        self.images.iter().cloned()
    }

    /// Returns the model's result in the unit of a point.
    ///
    /// # Errors
    ///
    /// If the point names a figure that its experiment does not have.
    pub fn of(&self, points: &Points, point: &Point) -> Result<f64> {
        let clock = point.clock_mhz.unwrap_or(1) as f64;
        let setup = Setup::of(points, point);
        let cycles = |boot: Boot| {
            let found = setup
                .clone()
                .and_then(|setup| self.cycles.get(&(setup, boot)));
            found.copied().unwrap_or(0) as f64
        };
        let per_access = |boot: Boot| cycles(boot) / boot.accesses() as f64;
        let nanos = |cycles: f64| cycles * 1000.0 / clock;
        Ok(match &point.benchmark {
            Benchmark::Chase(chase) => nanos(per_access(Boot::Chase(*chase))),
            Benchmark::Stride(buffer) => nanos(per_access(Boot::Stride { kib: buffer.kib })),
            Benchmark::RandomReads(buffer) => nanos(
                per_access(Boot::Random { kib: buffer.kib })
                    - per_access(Boot::Random { kib: SMALL_KIB }),
            ),
            Benchmark::Stream(stream) => {
                let boot = Boot::Stream(*stream);
                // All cores do the same, so each is as fast as the one that is measured.
                let bytes = (boot.accesses() * LINE * boot.cores()) as f64;
                bytes / cycles(boot) * clock
            }
            Benchmark::Corun(corun) => {
                let [alone, beside] = Boot::of_corun(corun).map(cycles);
                beside / alone
            }
            Benchmark::Experiment(named) => {
                let figures = self.figures.get(&(named.name.clone(), point.prefetcher));
                let found = figures
                    .and_then(|figures| figures.get(&named.figure))
                    .copied();
                found
                    .ok_or_else(|| self.no_such_figure(points, point, &named.name, &named.figure))?
            }
        })
    }

    fn no_such_figure(
        &self,
        points: &Points,
        point: &Point,
        experiment: &str,
        figure: &str,
    ) -> Errors {
        let figures = self.figures.get(&(experiment.to_owned(), point.prefetcher));
        let known = figures
            .into_iter()
            .flat_map(BTreeMap::keys)
            .map(String::as_str);
        let message = format!("experiment `{experiment}` has no figure `{figure}`");
        let problem = cloison_config::Problem::error(
            &points.source,
            "point.benchmark",
            point.span.clone(),
            message,
        )
        .label("of this point")
        .help(cloison_config::suggest(figure, "figures", known));
        Errors::new(points.source.name(), vec![problem])
    }
}

/// Performs all boots and experiments of a file's points on these boards, each once. Those with
/// results in `out` are not repeated.
///
/// # Errors
///
/// If a boot or an experiment fails or is absent.
pub fn perform(boards: &Boards, points: &Points, model_file: &Path, out: &Path) -> Result<Results> {
    let mut results = Results::default();
    let mut absent: BTreeSet<(String, bool)> = BTreeSet::new();
    let mut boots: BTreeMap<Setup, BTreeMap<Boot, &Point>> = BTreeMap::new();
    for point in &points.points {
        let Some(setup) = Setup::of(points, point) else {
            continue;
        };
        for boot in Boot::of(&point.benchmark) {
            boots
                .entry(setup.clone())
                .or_default()
                .entry(boot)
                .or_insert(point);
        }
    }
    for (setup, boots) in boots {
        let file = out.join(format!("model-{}.toml", setup.name()));
        write_atomic(&file, setup.model(model_file, points)?.as_bytes())?;
        let runs = boots
            .iter()
            .map(|(boot, point)| boot.point(point))
            .collect::<Result<Vec<_>>>()?;
        let experiment = benchmarks(points, &file, runs);
        let model = Model::load(&file)?;
        let directory = out.join(format!("benchmarks-{}", setup.name()));
        let Some((measured, _)) =
            boards.defer(runner::run(boards, &experiment, &model, &directory))?
        else {
            absent.insert((format!("benchmarks {}", setup.name()), true));
            continue;
        };
        let cycles = measured.iter().map(Measured::cycles);
        results.cycles.extend(
            boots
                .into_keys()
                .map(|boot| (setup.clone(), boot))
                .zip(cycles),
        );
        results
            .images
            .extend(measured.into_iter().map(|run| run.image));
    }
    for point in &points.points {
        let Benchmark::Experiment(named) = &point.benchmark else {
            continue;
        };
        let key = (named.name.clone(), point.prefetcher);
        if results.figures.contains_key(&key) || absent.contains(&key) {
            continue;
        }
        let path = experiment::file_of(&named.name);
        let mut shipped = spec::load(&path, Form::Full)?;
        shipped.model = model_file.to_path_buf();
        let mut place = named.name.clone();
        // A model without the table prefetches nothing.
        if !point.prefetcher
            && let Some(text) = without_prefetcher(model_file)?
        {
            place.push_str("-without-prefetcher");
            shipped.model = out.join("model-without-prefetcher.toml");
            write_atomic(&shipped.model, text.as_bytes())?;
        }
        let done = experiment::perform_on(
            boards,
            &shipped,
            &path,
            &out.join(place),
            Form::Full,
            Scope::AsIs,
        );
        let Some(done) = boards.defer(done)? else {
            absent.insert(key);
            continue;
        };
        results.figures.insert(key, done.findings.figures);
        results
            .images
            .extend(done.runs.into_iter().map(|run| run.image));
    }
    if absent.is_empty() {
        Ok(results)
    } else {
        Err(Absent.into())
    }
}

/// Returns the text of a model's file without its prefetcher, if it has one.
fn without_prefetcher(model: &Path) -> Result<Option<String>> {
    let source = SourceFile::new(model, files::read_text(model, files::CONFIGURATION)?);
    let all = parameters::all(&source).map_err(|problem| *problem)?;
    let lines = all.iter().find(|one| one.name == "prefetch.data_lines");
    let zero = Setting::Number(Decimal {
        digits: 0,
        decimals: 0,
    });
    Ok(lines.map(|lines| parameters::replaced(source.text(), [(lines, zero)])))
}

/// Returns the experiment whose runs are the benchmarks' boots.
fn benchmarks(points: &Points, model: &Path, runs: Vec<spec::Point>) -> spec::Experiment {
    let system: PathBuf = installation::root().join(SYSTEM);
    spec::Experiment {
        executor: Executor::Model,
        name: "validate".to_owned(),
        command: "validate".to_owned(),
        source: points.source.clone(),
        title: "The model's benchmarks".to_owned(),
        question: String::new(),
        paper: None,
        account: Account::default(),
        needs_regions: false,
        named_baseline: None,
        axis_titles: spec::AxisTitles::default(),
        guards: vec![],
        shows: vec![],
        system,
        board: DEFAULT_BOARD.to_owned(),
        model: model.to_path_buf(),
        victim: "victim".to_owned(),
        victim_span: 0..0,
        measure: Measure::Segments,
        // The first run fills the caches.
        warm_up: 1,
        warm_up_span: 0..0,
        conditions: Conditions::default(),
        quick: vec![],
        programs: vec![],
        takes_programs: false,
        in_linux: None,
        samples: spec::Samples::ONE,
        points: runs,
    }
}

#[cfg(test)]
mod tests {
    use super::super::points::{Buffer, Facts, Unit, Usage};
    use super::*;
    use cloison_config::problem::SourceFile;

    fn point(benchmark: Benchmark, unit: Unit, clock_mhz: u64) -> Point {
        Point {
            name: "name".to_owned(),
            board: "board".to_owned(),
            value: 1.0,
            unit,
            clock_mhz: Some(clock_mhz),
            tolerance: 0.2,
            usage: Usage::Predicted,
            document: String::new(),
            place: String::new(),
            benchmark,
            prefetcher: true,
            pages: Pages::Small,
            why: None,
            span: 0..1,
        }
    }

    fn result(point: &Point, cycles: &[(Boot, u64)]) -> f64 {
        let source = SourceFile::new(Path::new("points.toml"), "x\n".to_owned());
        let points = Points {
            source,
            boards: BTreeMap::new(),
            points: vec![],
        };
        let setup = Setup::of(&points, point).expect("a clock");
        let cycles = cycles
            .iter()
            .map(|(boot, cycles)| ((setup.clone(), *boot), *cycles))
            .collect();
        Results {
            cycles,
            ..Results::default()
        }
        .of(&points, point)
        .expect("a result")
    }

    #[test]
    fn cycles_become_the_unit_of_the_measurement() {
        let chase = Chase {
            kib: 64,
            order: Order::Random,
        };
        let nanos = point(Benchmark::Chase(chase), Unit::Nanos, 1500);
        let chase = Boot::Chase(chase);
        assert_eq!(
            result(&nanos, &[(chase, chase.accesses() * 15)]),
            10.0,
            "15 cycles at 1.5 GHz"
        );

        let random = point(
            Benchmark::RandomReads(Buffer { kib: 64 }),
            Unit::Nanos,
            1000,
        );
        let [large, small] = [64, SMALL_KIB].map(|kib| Boot::Random { kib });
        let measured = [
            (large, large.accesses() * 20),
            (small, small.accesses() * 8),
        ];
        assert_eq!(
            result(&random, &measured),
            12.0,
            "what the small buffer takes is subtracted"
        );

        let stream = Stream {
            pass: Pass {
                operation: Operation::Copy,
                kib: 8192,
            },
            cores: 4,
        };
        let boot = Boot::Stream(stream);
        let rate = point(Benchmark::Stream(stream), Unit::MegabytesPerSecond, 1000);
        assert_eq!(
            result(&rate, &[(boot, boot.accesses() * 128)]),
            2000.0,
            "half a byte a cycle on each of four cores"
        );
    }

    #[test]
    fn points_of_the_same_benchmark_share_a_boot() {
        let of = |kib| Boot::of(&Benchmark::RandomReads(Buffer { kib }));
        let all: BTreeSet<Boot> = [64, 128, 64].into_iter().flat_map(of).collect();
        assert_eq!(
            all.len(),
            3,
            "two sizes, and the small buffer once: {all:?}"
        );
        let names: BTreeSet<String> = all.iter().map(|boot| boot.name()).collect();
        assert_eq!(names.len(), 3);
        assert_eq!(Boot::Stride { kib: 62 }.accesses_of_a_pass(), 496);
        assert!(
            Boot::Chase(Chase {
                kib: 4,
                order: Order::Random
            })
            .accesses()
                >= ACCESSES
        );
    }

    #[test]
    fn only_one_number_of_a_model_changes() {
        let shipped = installation::root().join("configs/models/zcu102.toml");
        let text = std::fs::read_to_string(&shipped).expect("the shipped model");
        let changed = without_prefetcher(&shipped).expect("it is TOML");
        assert_eq!(
            changed.expect("it has a prefetcher"),
            text.replacen("data_lines = 5", "data_lines = 0", 1)
        );
        let directory = tempfile::tempdir().expect("a directory");
        let none = directory.path().join("model.toml");
        std::fs::write(&none, "[core]\nclock_mhz = 1000\n").expect("a file");
        assert_eq!(without_prefetcher(&none).expect("it is TOML"), None);
    }

    #[test]
    fn a_board_has_its_facts_and_everything_else_of_the_model() {
        let shipped = installation::root().join("configs/models/zcu102.toml");
        let text = std::fs::read_to_string(&shipped).expect("the shipped model");
        let number = |digits| {
            Setting::Number(Decimal {
                digits,
                decimals: 0,
            })
        };
        let facts = |name: &str| Facts {
            set: vec![(name.to_owned(), number(150))],
            span: 0..1,
        };
        let source = SourceFile::new(Path::new("points.toml"), "x\n".to_owned());
        let boards = BTreeMap::from([
            ("slow".into(), facts("memory.latency_ns")),
            ("odd".into(), facts("memory.wings")),
        ]);
        let points = Points {
            source,
            boards,
            points: vec![],
        };
        let at = |board: &str, pages| Point {
            board: board.to_owned(),
            pages,
            ..point(
                Benchmark::Chase(Chase {
                    kib: 64,
                    order: Order::Random,
                }),
                Unit::Nanos,
                1400,
            )
        };
        let model = |point: &Point| {
            Setup::of(&points, point)
                .expect("a clock")
                .model(&shipped, &points)
        };
        let clock = text.replacen("clock_mhz = 1500", "clock_mhz = 1400", 1);
        assert_eq!(
            model(&at("fast", Pages::Small)).expect("a model"),
            clock,
            "no facts"
        );
        let slow = clock.replacen("\nlatency_ns = 124", "\nlatency_ns = 150", 1);
        assert_eq!(model(&at("slow", Pages::Small)).expect("a model"), slow);
        let blocks = slow.replacen("stage2_blocks = false", "stage2_blocks = true", 1);
        assert_eq!(model(&at("slow", Pages::Huge)).expect("a model"), blocks);
        assert!(model(&at("odd", Pages::Small)).is_err(), "no such value");
        let names = [
            ("fast", Pages::Small),
            ("slow", Pages::Small),
            ("slow", Pages::Huge),
        ];
        let names = names.map(|(board, pages)| {
            Setup::of(&points, &at(board, pages))
                .expect("a clock")
                .name()
        });
        assert_eq!(names, ["at-1400", "at-1400-slow", "at-1400-slow-2m"]);
    }
}
