//! Runs a target in a process with limits of time and memory, and keeps the input that fails.
//!
//! The process writes each input into a file before it parses it. Whatever ends it, a panic, a stack
//! that overflows, memory or time that runs out, the file is the reproducer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::damage::Damage;
use crate::scratch;
use crate::target::{Form, Outcome, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The processor time that one input may take. Parsers take milliseconds, and experiments with large
/// tables a second.
pub const TIME: Duration = Duration::from_secs(6);
/// The time that one input may take on a loaded machine.
const WALL_TIME: Duration = Duration::from_secs(100);
/// Bytes of address space that a process may have.
pub const MEMORY: u64 = 2 << 30;
/// The exit status of a process whose input took too long.
const TIMED_OUT: i32 = 70;

/// How long a hunt lasts.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// As many damaged files.
    Cases(u64),
    /// As much time.
    Time(Duration),
}

/// What a hunt did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Inputs.
    pub inputs: u64,
    /// Those that were accepted.
    pub accepted: u64,
    /// Seeds, which are the first inputs.
    pub seeds: u64,
    /// Seeds that were accepted.
    pub accepted_seeds: u64,
}

/// An input that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file with the input.
    pub input: PathBuf,
    /// What happened, for readers.
    pub what: String,
}

/// Runs `program`, which is this crate's, as a process with limits, and keeps what it finds in
/// `folder`.
///
/// # Errors
///
/// Returns the error of a process that cannot be started or a file that cannot be written.
pub fn hunt(
    program: &Path,
    target: &Target,
    length: Length,
    number: u64,
    folder: &Path,
) -> io::Result<Result<Report, Finding>> {
    fs::create_dir_all(folder)?;
    let current = folder.join(format!("current-{number}"));
    let (option, value) = match length {
        Length::Cases(cases) => ("--cases", cases),
        Length::Time(time) => ("--seconds", time.as_secs()),
    };
    let mut child = Command::new(program)
        .args(["work", target.name, option, &value.to_string()])
        .args(["--seed", &number.to_string(), "--current"])
        .arg(&current)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().map(BufReader::new);
    let report = output
        .into_iter()
        .flat_map(BufReader::lines)
        .map_while(Result::ok)
        .find_map(|line| Report::read(&line));
    let status = child.wait()?;
    if let (true, Some(report)) = (status.success(), report) {
        fs::remove_file(current)?;
        return Ok(Ok(report));
    }
    let bytes = fs::read(&current)?;
    let input = folder.join(format!("failed-{:08x}", crc32fast::hash(&bytes)));
    fs::rename(current, &input)?;
    let what = match status.code() {
        Some(TIMED_OUT) => format!("took longer than {} s of processor time", TIME.as_secs()),
        _ => format!("broke a rule, or a limit of memory or stack: {status}"),
    };
    Ok(Err(Finding { input, what }))
}

impl Report {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("report ")?.split(' ').map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Self {
            inputs: next()?,
            accepted: next()?,
            seeds: next()?,
            accepted_seeds: next()?,
        })
    }

    fn line(self) -> String {
        let Self {
            inputs,
            accepted,
            seeds,
            accepted_seeds,
        } = self;
        format!("report {inputs} {accepted} {seeds} {accepted_seeds}")
    }
}

/// Runs a target on its seeds, then on damaged ones: the process's side of [`hunt`].
///
/// # Errors
///
/// Returns the error of a seed that cannot be read, or of the file of the current input.
pub fn work(target: &Target, length: Length, number: u64, current: &Path) -> io::Result<()> {
    limit()?;
    panic::set_hook(Box::new(|panic| *lock(&PANIC) = Some(panic.to_string())));
    let mut inputs = Inputs {
        target,
        current: File::create(current)?,
    };
    let seeds = target.seeds()?;
    let mut report = Report {
        inputs: seeds.len() as u64,
        accepted: 0,
        seeds: seeds.len() as u64,
        accepted_seeds: 0,
    };
    for seed in &seeds {
        report.accepted_seeds += u64::from(inputs.parse(seed)? == Outcome::Accepted);
    }
    report.accepted = report.accepted_seeds;
    let mut damage = Damage::new(seeds, target.form, number);
    let started = Instant::now();
    let mut cases = 0;
    while match length {
        Length::Cases(most) => cases < most,
        Length::Time(time) => started.elapsed() < time,
    } {
        cases += 1;
        report.accepted += u64::from(inputs.parse(&damage.file())? == Outcome::Accepted);
    }
    report.inputs += cases;
    scratch::remove();
    println!("{}", report.line());
    io::stdout().flush()
}

/// Parses one input with the limits of a hunt. A broken rule panics.
///
/// # Errors
///
/// Returns an error if there can be no limit.
pub fn replay(target: &Target, input: &[u8]) -> io::Result<Outcome> {
    limit()?;
    started(true);
    Ok((target.check)(input))
}

/// Runs a target that fails as its input says: the limits must end it, with the input kept.
///
/// # Errors
///
/// Returns an error if there can be no limit, or the input cannot be kept.
pub fn fail(how: &str, current: &Path) -> io::Result<()> {
    limit()?;
    let target = Target {
        name: "bad",
        package: "cloison-parsers",
        rule: "it fails",
        form: Form::Text,
        files: &[],
        made: Vec::new,
        check: bad,
    };
    let mut inputs = Inputs {
        target: &target,
        current: File::create(current)?,
    };
    inputs.parse(how.as_bytes()).map(|_| ())
}

fn bad(input: &[u8]) -> Outcome {
    match input {
        b"panic" => panic!("as it was told"),
        b"stack" => deep(1),
        b"memory" => vec![1_u8; MEMORY as usize].len() as u64,
        b"loop" => loop {
            thread::yield_now();
        },
        _ => 0,
    };
    Outcome::Accepted
}

/// Returns only when the stack is at its end, which it never does.
fn deep(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    match frame[0] {
        0 => 0,
        depth => deep(depth + 1) + frame[1],
    }
}

/// The text of the last panic. A parser may catch those of a library, so only that of a broken rule
/// is printed.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the current input's parser started.
static STARTED: Mutex<Option<Start>> = Mutex::new(None);

/// An instant, by both clocks.
struct Start {
    wall: Instant,
    processor: Duration,
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn started(is_running: bool) {
    *lock(&STARTED) = is_running.then(|| Start {
        wall: Instant::now(),
        processor: processor_time(),
    });
}

/// Limits the address space, and ends the process if an input takes too long.
fn limit() -> io::Result<()> {
    let maximum = getrlimit(Resource::As).maximum;
    let current = Some(maximum.map_or(MEMORY, |most| most.min(MEMORY)));
    setrlimit(Resource::As, Rlimit { current, maximum })?;
    thread::Builder::new().spawn(|| {
        loop {
            thread::sleep(Duration::from_millis(100));
            let is_late = lock(&STARTED).as_ref().is_some_and(|start| {
                let used = processor_time().saturating_sub(start.processor);
                used > TIME || start.wall.elapsed() > WALL_TIME
            });
            if is_late {
                exit(TIMED_OUT);
            }
        }
    })?;
    Ok(())
}

/// Parses inputs, each of which is in a file while it is parsed.
struct Inputs<'a> {
    target: &'a Target,
    current: File,
}

impl Inputs<'_> {
    fn parse(&mut self, input: &[u8]) -> io::Result<Outcome> {
        self.current.set_len(input.len() as u64)?;
        self.current.write_all_at(input, 0)?;
        started(true);
        let outcome = panic::catch_unwind(|| (self.target.check)(input));
        started(false);
        outcome.map_err(|_| {
            let text = lock(&PANIC).take().unwrap_or_default();
            io::Error::other(text)
        })
    }
}
