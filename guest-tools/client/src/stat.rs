//! `cloisonctl stat`: runs a command and prints its counts, with the metrics computed from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::child::{self, lost};
use crate::failure::Failure;
use crate::report::{self, Counted, Format, Sample};
use crate::ways::{By, Part, Task, Way, choose, with};
use clap::Args;
use cloison_client::{Services, counting, events, pin, region};
use cloison_epapi::backend::Machine;
use cloison_epapi::cpu::Cpu;
use cloison_epapi::preset::PAPI_NULL;
use cloison_epapi::{Error, EventId, Library, terms};
use cloison_metrics::Metric;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct Stat {
    /// Count these events: names of the CPU's table (INST_RETIRED), of PAPI (PAPI_L1_DCM) or of
    /// perf (cache-misses), or numbers (r17); by default those of as many metrics as there are
    /// counters for, or the VM's HEMs
    #[arg(short, long, value_name = "EVENT,…", value_delimiter = ',')]
    event: Vec<String>,
    /// Count the events of these metrics too (`cloison events metrics` lists them), or of `all`
    #[arg(short = 'M', long, value_name = "METRIC,…", value_delimiter = ',')]
    metric: Vec<String>,
    /// Run the command once for each group of events that fits on the counters
    #[arg(short, long)]
    passes: bool,
    /// How to count; by default with the first that the VM has
    #[arg(long, value_name = "WAY")]
    by: Option<By>,
    /// What to count
    #[arg(long, value_name = "PART", default_value = "all")]
    count: Part,
    /// The vCPU on which the command runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    vcpu: usize,
    /// Run the command this many times, and print the mean of the counts and how they vary
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Write each run's counts to the hypervisor's log, too (--by hem always does)
    #[arg(long)]
    record: bool,
    /// The workload's number in the log
    #[arg(long, value_name = "N", default_value_t = 0)]
    workload: u32,
    /// The sub-experiment's number in the log; further passes have the next ones
    #[arg(long, value_name = "N", default_value_t = 0)]
    sub_experiment: u32,
    /// The first run's number in the log
    #[arg(long, value_name = "N", default_value_t = 0)]
    run: u32,
    /// Print the counts of every run as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, with the counts of every run
    #[arg(long)]
    json: bool,
    /// Write the counts to this file, apart from the command's output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// How often counters of 32 bits are read at least: a core executes some three thousand million
/// instructions a second.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command and prints its counts. Returns its status.
pub fn stat(wanted: &Stat) -> Result<ExitCode, Failure> {
    let by = wanted.by.map_or_else(choose, Ok)?;
    let (text, status) = match by {
        By::Hem => wanted.by_segments()?,
        by => with(by, wanted.vcpu, wanted.count, wanted)?,
    };
    match &wanted.output {
        None => print!("{text}"),
        Some(path) => std::fs::write(path, text).map_err(|error| {
            Failure::new(
                format!("cannot write {}: {error}", path.display()),
                "the command has run",
            )
        })?,
    }
    Ok(child::code(status))
}

/// An event that is counted: its code, and how it was asked for.
type Event = (i32, String);

impl Task for &Stat {
    type Output = (String, ExitStatus);

    fn run<W: Way>(self, way: W) -> Result<Self::Output, Failure> {
        let mut library = Library::new(way, 0);
        library.library_init()?;
        let machine = library.machine()?;
        let metrics = metrics_of(machine.cpu);
        let events = self.events(&mut library, &machine, &metrics)?;
        let passes = place(&mut library, &machine, &events, self.passes)?;
        let mut counted: Vec<Counted> = events
            .iter()
            .map(|(code, name)| Counted::new(name, *code))
            .collect();
        let mut samples = Vec::new();
        let mut status = ExitStatus::default();
        'runs: for run in (self.run..).take(self.repeat as usize) {
            for ((set, members), pass) in passes.iter().zip(self.sub_experiment..) {
                let mut values = vec![0; members.len()];
                let sample;
                (status, sample) =
                    self.once(&mut library, *set, &mut values, [self.workload, pass, run])?;
                samples.push(sample);
                for (member, value) in members.iter().zip(&values) {
                    counted[*member].counts.push(*value as u64);
                }
                // What a command has counted that failed is shown, but it is not repeated.
                if !status.success() {
                    break 'runs;
                }
            }
        }
        Ok((
            self.report(W::BY, machine.cpu, &counted, &metrics, &samples, status),
            status,
        ))
    }
}

/// Returns a CPU's metrics.
fn metrics_of(cpu: &Cpu) -> Vec<Metric> {
    let parsed = |it: &cloison_epapi::tables::Metric| {
        Metric::new(it.name, it.expression, it.meaning, Some(it.scale)).ok()
    };
    cpu.metrics.iter().filter_map(parsed).collect()
}

impl Stat {
    /// Returns what is to be counted.
    fn events<W: Way>(
        &self,
        library: &mut Library<W>,
        machine: &Machine,
        metrics: &[Metric],
    ) -> Result<Vec<Event>, Failure> {
        let cpu = machine.cpu;
        let mut events: Vec<Event> = Vec::new();
        for name in &self.event {
            let code = events::code(cpu, name).map_err(|_| {
                let message = format!("the {} has no event `{name}`", cpu.name);
                Failure::new(
                    message,
                    "`cloisonctl list --native` and `cloisonctl list` show what can be counted",
                )
            })?;
            add(&mut events, (code, name.clone()));
        }
        for name in &self.metric {
            let chosen: Vec<&Metric> = metrics
                .iter()
                .filter(|metric| name == "all" || metric.name == *name)
                .collect();
            if chosen.is_empty() {
                let known: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
                let message = format!("the {} has no metric `{name}`", cpu.name);
                return Err(Failure::new(
                    message,
                    format!("metrics: all, {}", known.join(", ")),
                ));
            }
            for event in chosen.iter().flat_map(|metric| metric.events()) {
                add(&mut events, named(cpu, event)?);
            }
        }
        if !events.is_empty() {
            return Ok(events);
        }
        default(library, cpu, metrics, &mut events)?;
        Ok(events)
    }

    fn report(
        &self,
        by: By,
        cpu: &Cpu,
        counted: &[Counted],
        metrics: &[Metric],
        samples: &[Sample],
        status: ExitStatus,
    ) -> String {
        let format = match self {
            Stat { csv: true, .. } => Format::Csv { first: self.run },
            Stat { json: true, .. } => Format::Json,
            _ => Format::Table,
        };
        let (command, vcpu, part, status) = (&self.command, self.vcpu, self.count, status.code());
        report::Report {
            command,
            vcpu,
            by,
            part,
            cpu,
            counted,
            metrics,
            samples,
            status,
        }
        .write(format)
    }

    /// Runs the command in observation segments: the configuration says what is counted, and all of
    /// it is logged.
    fn by_segments(&self) -> Result<(String, ExitStatus), Failure> {
        if self.count != Part::All {
            let message = "observation segments count programs and the kernel";
            return Err(Failure::new(
                message,
                "leave out --count, or use --by counters",
            ));
        }
        pin(self.vcpu)?;
        let mut services = Services::open()?;
        let cpu = Cpu::by_midr(counting::midr(self.vcpu)?).ok_or(Error::NoCounters)?;
        let metrics = metrics_of(cpu);
        let (mut counted, mut samples) = (Vec::<Counted>::new(), Vec::new());
        let mut status = ExitStatus::default();
        for run in (self.run..).take(self.repeat as usize) {
            let (began, before) = (Instant::now(), children());
            region::begin(region::Caches::Warm);
            services.segment_begin(self.workload, self.sub_experiment, run)?;
            let ended =
                child::start(&self.command).and_then(|mut child| child.wait().map_err(lost));
            // Ended in any case: otherwise the next segment could not start.
            let cycles = services.segment_end();
            region::end();
            let cycles = cycles?;
            status = ended?;
            samples.push(Sample::since(began, before));
            let cycles_of = (
                report::SEGMENT_CYCLES.to_owned(),
                EventId::CPU_CYCLES,
                cycles,
                false,
            );
            let hems = services.hems()?.into_iter();
            let hems = hems.map(|hem| {
                (
                    events::name_on(Some(cpu), hem.event),
                    hem.event,
                    hem.count.into(),
                    hem.overflowed,
                )
            });
            for (at, (name, event, count, overflowed)) in hems.chain([cycles_of]).enumerate() {
                if counted.len() <= at {
                    counted.push(Counted::new(&name, terms::native_code(event)));
                }
                counted[at].counts.push(count);
                counted[at].is_short |= overflowed;
            }
            if !status.success() {
                break;
            }
        }
        for name in &self.event {
            let code = events::code(cpu, name);
            if counted.iter().all(|it| Ok(it.code) != code) {
                let message = format!("observation segments of this VM do not count `{name}`");
                return Err(Failure::new(
                    message,
                    "add it to `hems` in the VM's configuration, or use --by counters",
                ));
            }
        }
        Ok((
            self.report(By::Hem, cpu, &counted, &metrics, &samples, status),
            status,
        ))
    }

    /// Runs the command once while an event set counts.
    fn once<W: Way>(
        &self,
        library: &mut Library<W>,
        set: i32,
        values: &mut [i64],
        numbers: [u32; 3],
    ) -> Result<(ExitStatus, Sample), Failure> {
        let (began, before) = (Instant::now(), children());
        library.start(set)?;
        let status =
            child::start(&self.command).and_then(|child| wait(child, library, set, values));
        if self.record && status.is_ok() {
            library.frozen(|library| library.counters().record(numbers))?;
        }
        // Stopped in any case: otherwise the counters would run on.
        let stopped = library.stop(set, Some(values));
        let status = status?;
        stopped?;
        Ok((status, Sample::since(began, before)))
    }
}

/// Adds an event that is not there yet.
fn add(events: &mut Vec<Event>, event: Event) {
    if events.iter().all(|(code, _)| *code != event.0) {
        events.push(event);
    }
}

/// Returns an event of a metric.
fn named(cpu: &Cpu, name: &str) -> Result<Event, Failure> {
    let code = events::code(cpu, name)
        .map_err(|_| Failure::new(format!("the {} has no event `{name}`", cpu.name), ""))?;
    Ok((code, name.to_owned()))
}

/// Chooses the events of as many metrics as fit on the counters together.
fn default<W: Way>(
    library: &mut Library<W>,
    cpu: &Cpu,
    metrics: &[Metric],
    events: &mut Vec<Event>,
) -> Result<(), Failure> {
    let set = library.create_eventset(PAPI_NULL)?;
    for metric in metrics {
        let mut more = Vec::new();
        for event in metric.events() {
            add(&mut more, named(cpu, event)?);
        }
        more.retain(|(code, _)| events.iter().all(|(known, _)| known != code));
        let codes: Vec<i32> = more.iter().map(|(code, _)| *code).collect();
        let added = codes
            .iter()
            .take_while(|code| library.add_event(set, **code).is_ok())
            .count();
        if added == codes.len() {
            events.append(&mut more);
        } else {
            for code in &codes[..added] {
                library.remove_event(set, *code)?;
            }
        }
    }
    library.cleanup_eventset(set)?;
    Ok(library.destroy_eventset(set)?)
}

/// Puts the events into event sets: one, or as many as it takes if the command may run several
/// times. Returns the sets, each with the positions of its events.
fn place<W: Way>(
    library: &mut Library<W>,
    machine: &Machine,
    events: &[Event],
    passes: bool,
) -> Result<Vec<(i32, Vec<usize>)>, Failure> {
    let mut sets: Vec<(i32, Vec<usize>)> = Vec::new();
    for (position, (code, name)) in events.iter().enumerate() {
        let cannot = |error: Error| {
            let all = format!(
                "by {} counters, the cycle counter included",
                machine.number()
            );
            match error {
                Error::MultiplePasses => Failure::new(
                    format!("`{name}` cannot be counted in one run {all}"),
                    "count what it is made of: `cloisonctl list --json` shows its terms",
                ),
                Error::Conflict if !passes => Failure::new(
                    format!("`{name}` cannot be counted together with those before it {all}"),
                    "name fewer events, or run the command several times by --passes",
                ),
                error => Failure::new(
                    format!("`{name}` cannot be counted: {error}"),
                    "`cloisonctl list -a` shows what can",
                ),
            }
        };
        if let Some((set, members)) = sets.last_mut() {
            match library.add_event(*set, *code) {
                Ok(()) => {
                    members.push(position);
                    continue;
                }
                Err(Error::Conflict | Error::TooMany) if passes => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        let set = library
            .create_eventset(PAPI_NULL)
            .map_err(|_| Failure::new("too many passes", "name fewer events"))?;
        library.add_event(set, *code).map_err(cannot)?;
        sets.push((set, vec![position]));
    }
    Ok(sets)
}

/// Waits until the command ends. Meanwhile counters are read, so that none comes round twice
/// between two reads.
fn wait<W: Way>(
    mut child: Child,
    library: &mut Library<W>,
    set: i32,
    values: &mut [i64],
) -> Result<ExitStatus, Failure> {
    let (ended, end) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        // Nobody listens only after a panic.
        let _ = ended.send(());
        status
    });
    while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        library.read(set, values)?;
    }
    let status = waiter
        .join()
        .map_err(|_| Failure::new("the command was lost", "run it again"))?;
    status.map_err(lost)
}
impl Sample {
    /// Returns what has passed since a time, at which children had used so much.
    fn since(began: Instant, before: (f64, f64)) -> Self {
        let after = children();
        Self {
            elapsed: began.elapsed().as_secs_f64(),
            user: after.0 - before.0,
            system: after.1 - before.1,
        }
    }
}

/// Returns the time of children that have ended, in seconds at EL0 and in the kernel.
fn children() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name in brackets: `cutime` and `cstime` are fields 16 and 17 (proc(5)).
    let fields = text
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    let seconds = |field: &str| {
        field.parse::<f64>().unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
    };
    let mut times = fields.skip(13).map(seconds);
    (times.next().unwrap_or(0.0), times.next().unwrap_or(0.0))
}
