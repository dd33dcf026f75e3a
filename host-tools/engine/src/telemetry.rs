//! Decodes the telemetry stream that a run sent on the second UART.
//!
//! [`Telemetry::parse`] never fails: it sorts every readable message into its list, and records
//! each unreadable one with the byte at which it starts. Callers decide whether a damaged stream is
//! usable.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod between;
pub mod wire;

use cloison_formats::ids::{Core, VmId};
use cloison_formats::link::Traffic;
use cloison_formats::telemetry::{
    self, BootInfo, Entry, ExitReason, HemRecord, MAX_HEMS, MAX_MESSAGE, Message, MigrationRecord,
    PoolInfo, QuotaPeriod, QuotaTotal, Record, StackUse, Stage1Run, Stage2Run, StreamEntry, VmInfo,
    VmState,
};
use cloison_formats::units::{EventId, Events, Nanos};
use miette::{Result, miette};
use std::collections::BTreeMap;
use std::fmt;
use wire::DecodeError;

/// Returns an exit reason's name in tables.
pub const fn exit_name(reason: ExitReason) -> &'static str {
    match reason {
        ExitReason::Hypercall => "hypercalls",
        ExitReason::Distributor => "distributor",
        ExitReason::Device => "uart and page",
        ExitReason::SystemRegister => "registers",
        ExitReason::Memory => "memory",
        ExitReason::Wait => "waits",
        ExitReason::Other => "other traps",
        ExitReason::Timer => "timer",
        ExitReason::Interrupt => "interrupts",
    }
}

/// The contents of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Length of the stream in bytes.
    pub len: usize,
    /// Number of messages that were read.
    pub frames: usize,
    /// The system that sent the stream, from its first message.
    pub boot: Option<BootInfo>,
    /// The pools when all regions had been allocated.
    pub pools: Vec<PoolInfo>,
    /// The VMs; a VM's id is its index.
    pub vms: Vec<VmInfo>,
    /// The passes of an audit.
    pub passes: Vec<Pass>,
    /// The records of the run, in the order of arrival.
    pub entries: Vec<Entry>,
    /// Messages that could not be read or are inconsistent, each with the byte at which it starts.
    pub problems: Vec<(usize, Problem)>,
}

/// One pass of an audit: the tables that it read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// Pages read back from the hypervisor's own tables.
    pub stage1: Vec<Stage1Run>,
    /// The stage-2 tables, read back page by page.
    pub stage2: Vec<Stage2Run>,
    /// The streams of the SMMU that are not cut.
    pub streams: Vec<StreamEntry>,
    /// What their devices reach, read back from their tables page by page.
    pub devices: Vec<Stage2Run>,
    /// Number of pages that the pass reports, once it is complete.
    pub end: Option<u64>,
}

impl Pass {
    /// Returns the number of pages in all `Stage2` messages.
    pub fn pages(&self) -> u64 {
        self.stage2.iter().map(|run| run.frames.len() as u64).sum()
    }
}

/// A stream that is decoded while it grows.
#[derive(Clone, Debug, Default)]
pub struct TelemetryDecoder {
    telemetry: Telemetry,
    /// The start of an incomplete message.
    rest: Vec<u8>,
    over: bool,
}

impl TelemetryDecoder {
    /// Decodes more bytes. Returns the records among them, which are not kept.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Entry> {
        self.rest.extend_from_slice(bytes);
        // A message ends with a zero byte and contains none.
        let whole = self
            .rest
            .iter()
            .rposition(|&byte| byte == 0)
            .map_or(0, |last| last + 1);
        let frames: Vec<u8> = self.rest.drain(..whole).collect();
        self.over = self.over || !self.telemetry.read(&frames);
        if self.over {
            self.rest.clear();
        }
        std::mem::take(&mut self.telemetry.entries)
    }

    /// Returns the contents of the stream so far, without its records.
    pub fn so_far(&self) -> &Telemetry {
        &self.telemetry
    }
}

/// A problem with one message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The message cannot be decoded.
    Decode(DecodeError),
    /// There are more bytes without a zero byte than a message can have.
    TooLong {
        /// Number of bytes to the next zero byte.
        len: usize,
    },
    /// The first readable message is not `Boot`: the start of the stream is missing.
    NoBoot,
    /// Another version wrote the stream.
    Version {
        /// The version in its `Boot` message.
        found: u16,
    },
    /// A second `Boot` message: another run follows.
    SecondBoot,
    /// A record of a VM for which there was no `Vm` message.
    UnknownVm(VmId),
    /// A HEM record with more events than it can hold.
    TooManyEvents(u8),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(DecodeError::Unterminated) => {
                f.write_str("truncated: no zero byte ends this message")
            }
            Self::Decode(error) => write!(f, "{error}"),
            Self::TooLong { len } => {
                write!(
                    f,
                    "{len} bytes without a zero byte, but no message is longer than {MAX_MESSAGE}"
                )
            }
            Self::NoBoot => f.write_str("the stream does not start with a Boot message"),
            Self::Version { found } => {
                write!(
                    f,
                    "written by telemetry version {found}, this tool reads version {}",
                    telemetry::VERSION
                )
            }
            Self::SecondBoot => f.write_str("a second Boot message: another run starts here"),
            Self::UnknownVm(vm) => {
                write!(f, "a record of VM {vm}, which the stream did not announce")
            }
            Self::TooManyEvents(len) => {
                write!(f, "a HEM record of {len} events; {MAX_HEMS} is the most")
            }
        }
    }
}

/// A HEM record with its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HemRun<'a> {
    /// Number of the physical core.
    pub core: Core,
    /// When the segment ended.
    pub at: Nanos,
    /// The counts.
    pub record: &'a HemRecord,
}

impl HemRun<'_> {
    /// Returns the record's events with their counts and whether the counter overflowed.
    pub fn counts(&self) -> impl Iterator<Item = (EventId, u32, bool)> {
        let record = self.record;
        (0..usize::from(record.len).min(MAX_HEMS)).map(|index| {
            (
                record.events[index],
                record.counts[index],
                record.overflowed >> index & 1 == 1,
            )
        })
    }
}

/// How a VM has called its peers since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Calls that interrupted a peer.
    pub passed: u64,
    /// Calls that its rate refused.
    pub refused: u64,
}

/// How a VM ended, according to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has no `Started` record.
    NeverStarted,
    /// It turned itself off.
    Off,
    /// It was stopped from outside, or with the system, because the VM named by `ends_with` was
    /// off.
    Stopped,
    /// The hypervisor killed it for a violation.
    Killed,
    /// The stream does not contain its end.
    Running,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverStarted => "never started",
            Self::Off => "off",
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::Running => "no end seen",
        })
    }
}

impl Telemetry {
    /// Decodes a stream. Messages after a second `Boot` message are not read, and none are if the
    /// first one has another version: they would be misinterpreted.
    pub fn parse(stream: &[u8]) -> Self {
        let mut all = Self::default();
        all.read(stream);
        all
    }

    /// Checks that all of the stream could be decoded.
    ///
    /// # Errors
    ///
    /// The first problem, and where it is.
    pub fn check(&self) -> Result<()> {
        match self.problems.first() {
            Some((offset, problem)) => Err(miette!("bad telemetry at byte {offset}: {problem}")),
            None => Ok(()),
        }
    }

    /// Decodes complete messages. Returns whether the rest of the stream may be read.
    fn read(&mut self, stream: &[u8]) -> bool {
        let before = self.len;
        self.len += stream.len();
        for (offset, frame) in wire::decode(stream) {
            let problem = match frame {
                Ok(frame) => {
                    self.frames += 1;
                    self.take(frame)
                }
                Err(error) => {
                    let len = stream[offset..]
                        .iter()
                        .position(|&byte| byte == 0)
                        .unwrap_or(stream.len() - offset);
                    Err(if len >= MAX_MESSAGE {
                        Problem::TooLong { len }
                    } else {
                        Problem::Decode(error)
                    })
                }
            };
            if let Err(problem) = problem {
                self.problems.push((before + offset, problem));
                if matches!(problem, Problem::SecondBoot | Problem::Version { .. }) {
                    return false;
                }
            }
        }
        true
    }

    fn take(&mut self, frame: Message) -> Result<(), Problem> {
        if self.frames == 1 && !matches!(frame, Message::Boot(_)) {
            self.sort_in(frame)?;
            return Err(Problem::NoBoot);
        }
        self.sort_in(frame)
    }

    fn sort_in(&mut self, frame: Message) -> Result<(), Problem> {
        match frame {
            Message::Boot(_) if self.boot.is_some() => return Err(Problem::SecondBoot),
            Message::Boot(boot) => {
                let found = boot.version;
                self.boot = Some(boot);
                if found != telemetry::VERSION {
                    return Err(Problem::Version { found });
                }
            }
            Message::Pool(pool) => self.pools.push(pool),
            Message::Vm(vm) => self.vms.push(vm),
            Message::Stage2(run) => self.open_pass().stage2.push(run),
            Message::Stage1(run) => self.open_pass().stage1.push(run),
            Message::Stream(entry) => self.open_pass().streams.push(entry),
            Message::Device(run) => self.open_pass().devices.push(run),
            Message::AuditEnd { pages } => self.open_pass().end = Some(pages),
            Message::Entry(entry) => {
                if let Record::Hem(HemRecord { len, .. }) = entry.record
                    && usize::from(len) > MAX_HEMS
                {
                    return Err(Problem::TooManyEvents(len));
                }
                // Without a `Boot` message the start of the stream is lost, including the VMs'
                // names; their ids are still valid.
                if self.boot.is_some()
                    && let Some(vm) = vm_of(&entry.record)
                    && vm.index() >= self.vms.len()
                {
                    return Err(Problem::UnknownVm(vm));
                }
                self.entries.push(entry);
            }
        }
        Ok(())
    }

    /// Returns a VM's name, or `vm<id>` if the stream does not contain it.
    pub fn vm_name(&self, vm: VmId) -> String {
        self.vms
            .get(vm.index())
            .map_or_else(|| format!("vm{vm}"), |info| info.name.clone())
    }

    /// Returns the HEM records in the order of arrival.
    pub fn hem_runs(&self) -> impl Iterator<Item = HemRun<'_>> {
        self.entries.iter().filter_map(|entry| match &entry.record {
            Record::Hem(record) => Some(HemRun {
                core: entry.core,
                at: entry.at,
                record,
            }),
            _ => None,
        })
    }

    /// Returns the migration records in the order of arrival.
    pub fn migrations(&self) -> impl Iterator<Item = (&Entry, &MigrationRecord)> {
        self.entries.iter().filter_map(|entry| match &entry.record {
            Record::Migration(record) => Some((entry, record)),
            _ => None,
        })
    }

    /// Returns the maximum use of each of the hypervisor's stacks, if the machine has turned itself
    /// off.
    pub fn stack_uses(&self) -> impl Iterator<Item = StackUse> {
        self.entries.iter().filter_map(|entry| match entry.record {
            Record::StackUse(stack) => Some(stack),
            _ => None,
        })
    }

    /// Returns the quotas' totals, each with its core.
    pub fn quota_totals(&self) -> impl Iterator<Item = (Core, &QuotaTotal)> {
        self.entries.iter().filter_map(|entry| match &entry.record {
            Record::QuotaTotal(total) => Some((entry.core, total)),
            _ => None,
        })
    }

    /// Returns the logged quota periods, each with its core.
    pub fn quota_periods(&self) -> impl Iterator<Item = (Core, &QuotaPeriod)> {
        self.entries.iter().filter_map(|entry| match &entry.record {
            Record::QuotaPeriod(period) => Some((entry.core, period)),
            _ => None,
        })
    }

    /// Returns every change of a VM's state.
    pub fn vm_states(&self) -> impl Iterator<Item = (Nanos, VmId, VmState)> {
        self.entries.iter().filter_map(|entry| match entry.record {
            Record::VmState { vm, state } => Some((entry.at, vm, state)),
            _ => None,
        })
    }

    /// Returns how a VM ended.
    pub fn end_of(&self, vm: VmId) -> End {
        match self.vm_states().filter(|&(_, of, _)| of == vm).last() {
            None => End::NeverStarted,
            Some((.., VmState::Off)) => End::Off,
            Some((.., VmState::Killed)) => End::Killed,
            Some((.., VmState::Stopped)) => End::Stopped,
            Some((.., VmState::Started | VmState::Restarted)) => End::Running,
        }
    }

    /// Returns the time from a VM's first start to its last record in the stream, or `None` if it
    /// never started.
    pub fn vm_runtime(&self, vm: VmId) -> Option<Nanos> {
        let start = self.vm_states().find(|&(_, of, _)| of == vm)?.0;
        let last = self
            .entries
            .iter()
            .filter(|entry| vm_of(&entry.record) == Some(vm))
            .map(|entry| entry.at)
            .max()?;
        Some(Nanos(last.0.saturating_sub(start.0)))
    }

    /// Returns how often all cores of a VM entered the hypervisor, by [`ExitReason`], or `None` if
    /// the stream does not say.
    pub fn exits(&self, vm: VmId) -> Option<[u64; ExitReason::ALL.len()]> {
        let of_a_core = |entry: &Entry| match entry.record {
            Record::Exits { vm: of, counts } if of == vm => Some(counts),
            _ => None,
        };
        self.entries
            .iter()
            .filter_map(of_a_core)
            .reduce(|sum, counts| std::array::from_fn(|at| sum[at] + counts[at]))
    }

    /// Returns what has passed on links, by link and VM that sends: the last record of each.
    pub fn traffic(&self) -> BTreeMap<(u8, VmId), Traffic> {
        let of_a_link = |entry: &Entry| match entry.record {
            Record::Link { link, vm, traffic } => Some(((link, vm), traffic)),
            _ => None,
        };
        self.entries.iter().filter_map(of_a_link).collect()
    }

    /// Returns how VMs have called their peers: the last record of each.
    pub fn doorbells(&self) -> BTreeMap<VmId, Doorbells> {
        let of_a_vm = |entry: &Entry| match entry.record {
            Record::Doorbells {
                vm,
                passed,
                refused,
            } => Some((vm, Doorbells { passed, refused })),
            _ => None,
        };
        self.entries.iter().filter_map(of_a_vm).collect()
    }

    /// Returns the number of records that the hypervisor dropped.
    pub fn dropped(&self) -> u64 {
        let lost = |entry: &Entry| match entry.record {
            Record::Dropped { count } => u64::from(count),
            _ => 0,
        };
        self.entries.iter().map(lost).sum()
    }

    /// Returns the audit's pass that has not ended.
    fn open_pass(&mut self) -> &mut Pass {
        if self.passes.last().is_none_or(|pass| pass.end.is_some()) {
            self.passes.push(Pass::default());
        }
        let last = self.passes.len() - 1;
        &mut self.passes[last]
    }

    /// Returns the sum of all quotas' overshoot, and the maximum of one period.
    pub fn overshoot(&self) -> (Events, Events) {
        self.quota_totals()
            .fold((Events(0), Events(0)), |(sum, most), (_, total)| {
                (
                    Events(sum.0 + total.totals.overshoot.0),
                    most.max(total.totals.max_overshoot),
                )
            })
    }
}

fn vm_of(record: &Record) -> Option<VmId> {
    match record {
        Record::Hem(hem) => Some(hem.vm),
        Record::Migration(migration) => Some(migration.vm),
        Record::QuotaPeriod(period) => Some(period.vm),
        Record::QuotaTotal(total) => Some(total.vm),
        Record::VmState { vm, .. }
        | Record::Exits { vm, .. }
        | Record::Stuck { vm, .. }
        | Record::Link { vm, .. }
        | Record::Doorbells { vm, .. } => Some(*vm),
        Record::Dropped { .. } | Record::ConsoleLost(_) | Record::StackUse(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::color::ColorSet;

    fn boot() -> Message {
        Message::Boot(BootInfo {
            version: telemetry::VERSION,
            system: "small".into(),
            board: "virt".into(),
            colors: 16,
            hypervisor_colors: ColorSet(1),
            hypervisor_pages: 1,
            hypervisor_frames: vec![0x40200],
            timer_hz: 62_500_000,
        })
    }

    fn vm(name: &str) -> Message {
        Message::Vm(VmInfo {
            name: name.into(),
            cores: vec![Core(0)],
            pages: 16,
            untrusted: vec![],
        })
    }

    fn entry(at: u64, record: Record) -> Message {
        Message::Entry(Entry {
            core: Core(0),
            at: Nanos(at),
            record,
        })
    }

    fn stream(frames: &[Message]) -> Vec<u8> {
        let mut buffer = [0; MAX_MESSAGE];
        frames
            .iter()
            .flat_map(|frame| {
                telemetry::encode(frame, &mut buffer)
                    .expect("fits")
                    .to_vec()
            })
            .collect()
    }

    #[test]
    fn the_example_of_the_documentation() {
        let example = [0x07, 0x04, 0x03, 0x41, 0x86, 0xbc, 0xbc, 0x00];
        assert_eq!(stream(&[Message::AuditEnd { pages: 3 }]), example);
        assert_eq!(Telemetry::parse(&example).passes[0].end, Some(3));
    }

    #[test]
    fn a_growing_stream_says_what_a_whole_one_says() {
        let dropped = |at, count| entry(at, Record::Dropped { count });
        let bytes = stream(&[
            boot(),
            vm("a"),
            dropped(1, 3),
            dropped(2, 4),
            boot(),
            dropped(3, 5),
        ]);
        for step in [1, 2, 7, bytes.len()] {
            let mut growing = TelemetryDecoder::default();
            let entries: Vec<Entry> = bytes
                .chunks(step)
                .flat_map(|chunk| growing.feed(chunk))
                .collect();
            let whole = Telemetry::parse(&bytes);
            assert_eq!(entries, whole.entries, "in steps of {step}");
            let so_far = growing.so_far();
            assert_eq!((so_far.vms.len(), &so_far.problems), (1, &whole.problems));
            assert!(matches!(so_far.problems[..], [(_, Problem::SecondBoot)]));
        }
    }

    #[test]
    fn sorts_and_sums() {
        let state = |at, state| entry(at, Record::VmState { vm: VmId(0), state });
        let bytes = stream(&[
            boot(),
            vm("a"),
            state(10, VmState::Started),
            entry(20, Record::Dropped { count: 3 }),
            entry(30, Record::Dropped { count: 4 }),
            state(110, VmState::Off),
        ]);
        let telemetry = Telemetry::parse(&bytes);
        assert_eq!(telemetry.problems, []);
        assert_eq!(telemetry.dropped(), 7);
        assert_eq!(telemetry.end_of(VmId(0)), End::Off);
        assert_eq!(telemetry.end_of(VmId(1)), End::NeverStarted);
        assert_eq!(telemetry.vm_runtime(VmId(0)), Some(Nanos(100)));
        assert_eq!(telemetry.vm_name(VmId(0)), "a");
        assert_eq!(telemetry.vm_name(VmId(1)), "vm1");
    }

    #[test]
    fn a_vm_that_the_system_stopped_is_neither_off_nor_running() {
        let frames = [
            boot(),
            vm("a"),
            entry(
                10,
                Record::VmState {
                    vm: VmId(0),
                    state: VmState::Started,
                },
            ),
            entry(
                90,
                Record::VmState {
                    vm: VmId(0),
                    state: VmState::Stopped,
                },
            ),
        ];
        assert_eq!(
            Telemetry::parse(&stream(&frames)).end_of(VmId(0)),
            End::Stopped
        );
        assert_eq!(
            Telemetry::parse(&stream(&frames)).vm_runtime(VmId(0)),
            Some(Nanos(80))
        );
        assert_eq!(
            Telemetry::parse(&stream(&frames[..3])).end_of(VmId(0)),
            End::Running
        );
    }

    #[test]
    fn a_record_of_an_unknown_vm_is_a_problem_and_no_event() {
        let bytes = stream(&[
            boot(),
            vm("a"),
            entry(
                1,
                Record::VmState {
                    vm: VmId(1),
                    state: VmState::Off,
                },
            ),
        ]);
        let telemetry = Telemetry::parse(&bytes);
        assert!(matches!(
            telemetry.problems[..],
            [(_, Problem::UnknownVm(VmId(1)))]
        ));
        assert_eq!(telemetry.entries, []);
    }

    #[test]
    fn what_follows_a_second_boot_is_not_mixed_in() {
        let bytes = stream(&[boot(), vm("a"), boot(), vm("b")]);
        let telemetry = Telemetry::parse(&bytes);
        assert_eq!(telemetry.vms.len(), 1);
        assert!(matches!(telemetry.problems[..], [(_, Problem::SecondBoot)]));
    }
}
