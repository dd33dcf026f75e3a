//! The telemetry of a capture: decoded while it arrives, each damaged record named, split by run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::telemetry::{Problem, TelemetryDecoder, wire};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Quota, System, Vm};
use cloison_formats::telemetry::{
    BootInfo, Entry, MAX_MESSAGE, Message, Record, VmInfo, VmState, encode,
};
use std::fmt::Write;

/// Bytes of a run that are no message, and what surrounds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the run's telemetry.
    pub offset: usize,
    /// Number of bytes, with the zero byte that ends them.
    pub len: usize,
    /// What is wrong with them.
    pub problem: Problem,
    /// The last message before that could be read, in words.
    pub after: String,
    /// The next message that could be read, in words.
    pub before: String,
}

/// What a stream says.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A system starts. The board may have been reset.
    Boot(BootInfo),
    /// A record.
    Record {
        /// It, in words.
        words: String,
        /// Whether the machine turns itself off after it.
        is_last: bool,
    },
    /// Damage, once a message after it could be read.
    Damage(Damage),
}

/// One run of a board, from one start to the next.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its bytes, as they were received.
    pub bytes: Vec<u8>,
    /// What of it is damaged.
    pub damages: Vec<Damage>,
    names: Vec<String>,
    decoder: TelemetryDecoder,
    /// The announcements of VMs that could be read, as positions of their first bytes.
    vms: Vec<(usize, VmInfo)>,
    /// Where the first record is.
    first_record: Option<usize>,
    /// The last message that could be read, in words.
    last: Option<String>,
    /// Damage after which no message could be read yet.
    open: Vec<Damage>,
    /// Where its first message is.
    start: Option<usize>,
}

/// A stream of telemetry.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Names of the system's VMs: a VM's id means the same if its announcement was damaged.
    names: Vec<String>,
    /// Its runs. A board that is reset starts another one.
    runs: Vec<Run>,
    /// The start of an incomplete message.
    rest: Vec<u8>,
}

impl Stream {
    /// Creates the stream of a system with these VMs.
    pub fn new(names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
            runs: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<News> {
        self.rest.extend_from_slice(bytes);
        let mut news = Vec::new();
        while let Some(end) = self.rest.iter().position(|&byte| byte == 0) {
            let frame: Vec<u8> = self.rest.drain(..=end).collect();
            let (before, frame) = frame.split_at(merged(&frame));
            if !before.is_empty() {
                self.frame(before, &mut news);
            }
            self.frame(frame, &mut news);
        }
        news
    }

    /// Takes what is left at the end, and returns the runs.
    pub fn finish(mut self) -> (Vec<Run>, Vec<News>) {
        let mut news = Vec::new();
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.frame(&rest, &mut news);
        }
        if let Some(run) = self.runs.last_mut() {
            run.close("the end", &mut news);
        }
        (self.runs, news)
    }

    fn frame(&mut self, frame: &[u8], news: &mut Vec<News>) {
        let message = wire::decode(frame).next().and_then(|(_, read)| read.ok());
        let is_boot = matches!(message, Some(Message::Boot(_)));
        // Only noise may come before a run's first message; messages are those of the run before.
        let is_next = self
            .runs
            .last()
            .is_none_or(|run| is_boot && run.last.is_some());
        if is_next {
            if let Some(run) = self.runs.last_mut() {
                run.close("the end of the run", news);
            }
            self.runs.push(Run {
                names: self.names.clone(),
                ..Run::default()
            });
        }
        if let Some(run) = self.runs.last_mut() {
            run.frame(frame, message, news);
        }
    }
}

/// Returns where the first message of a system begins that merged with bytes without an end before
/// it: what a reset cut off, or noise of power-on; else 0.
fn merged(frame: &[u8]) -> usize {
    let read = |at: usize| wire::decode(&frame[at..]).next()?.1.ok();
    if read(0).is_some() {
        return 0;
    }
    // It ends with a checksum, so that no other bytes are taken for it.
    let starts = |at: &usize| matches!(read(*at), Some(Message::Boot(_)));
    (1..frame.len()).find(starts).unwrap_or(0)
}

impl Run {
    fn frame(&mut self, frame: &[u8], message: Option<Message>, news: &mut Vec<News>) {
        let offset = self.bytes.len();
        let known = self.decoder.so_far().problems.len();
        self.bytes.extend_from_slice(frame);
        // An unterminated message at the stream's end is terminated for the decoder.
        self.decoder.feed(frame);
        if frame.last() != Some(&0) {
            self.decoder.feed(&[0]);
        }
        let problem = self.decoder.so_far().problems.get(known).copied();
        // A record of a VM whose announcement was damaged is not damaged itself.
        let is_known = |problem: &Problem| matches!(problem, Problem::UnknownVm(vm) if vm.index() < self.names.len());
        if let Some((_, problem)) = problem.filter(|(_, problem)| !is_known(problem)) {
            let problem = match problem {
                Problem::Decode(_) if frame.last() != Some(&0) => {
                    Problem::Decode(wire::DecodeError::Unterminated)
                }
                other => other,
            };
            self.open.push(Damage {
                offset,
                len: frame.len(),
                problem,
                after: self.last.clone().unwrap_or_else(|| "the start".to_owned()),
                before: String::new(),
            });
        }
        let Some(message) = message else { return };
        let words = self.describe(&message);
        self.close(&words, news);
        match message {
            Message::Boot(boot) => {
                self.start.get_or_insert(offset);
                news.push(News::Boot(boot));
            }
            Message::Vm(vm) => self.vms.push((offset, vm)),
            Message::Entry(entry) => {
                self.first_record.get_or_insert(offset);
                let is_last = matches!(entry.record, Record::StackUse(_));
                let words = words.clone();
                news.push(News::Record { words, is_last });
            }
            _ => {}
        }
        self.last = Some(words);
    }

    /// Completes the damage after which a message was read, or which the run's end follows.
    fn close(&mut self, before: &str, news: &mut Vec<News>) {
        for mut damage in std::mem::take(&mut self.open) {
            before.clone_into(&mut damage.before);
            news.push(News::Damage(damage.clone()));
            self.damages.push(damage);
        }
    }

    /// Returns a message in words.
    fn describe(&self, message: &Message) -> String {
        match message {
            Message::Boot(boot) => format!("the start of {} on {}", boot.system, boot.board),
            Message::Pool(pool) => format!("the state of pool {}", pool.name),
            Message::Vm(vm) => format!("the announcement of VM {}", vm.name),
            Message::Stage1(_) | Message::Stage2(_) | Message::Device(_) => {
                "pages of the audit".to_owned()
            }
            Message::Stream(_) => "a stream of the audit".to_owned(),
            Message::AuditEnd { .. } => "the end of the audit".to_owned(),
            Message::Entry(entry) => self.record(entry),
        }
    }

    fn record(&self, entry: &Entry) -> String {
        let vm = |vm: VmId| {
            self.names
                .get(vm.index())
                .cloned()
                .unwrap_or_else(|| format!("{}", vm.index()))
        };
        let mut words = match &entry.record {
            Record::Hem(hem) => format!(
                "a HEM record (VM {}, sub-experiment {}, run {}, {} cycles)",
                vm(hem.vm),
                hem.sub_experiment,
                hem.run,
                hem.cycles.0
            ),
            Record::Migration(page) => {
                format!("the migration of page {} of VM {}", page.ipa, vm(page.vm))
            }
            Record::QuotaPeriod(period) => format!(
                "period {} of quota {} of VM {}",
                period.period.index,
                period.quota,
                vm(period.vm)
            ),
            Record::QuotaTotal(total) => {
                format!("the totals of quota {} of VM {}", total.quota, vm(total.vm))
            }
            Record::VmState { vm: of, state } => format!("VM {} {}", vm(*of), state_name(*state)),
            Record::Dropped { count } => format!("{count} records dropped by the hypervisor"),
            Record::Exits { vm: of, .. } => format!("the exits of VM {}", vm(*of)),
            Record::ConsoleLost(count) => format!("{count} bytes lost by the console"),
            Record::StackUse(_) => "the use of a stack".to_owned(),
            Record::Stuck { vm: of, .. } => format!("VM {} makes no progress", vm(*of)),
            Record::Link { link, vm: of, .. } => {
                format!("the traffic of VM {} on link {link}", vm(*of))
            }
            Record::Doorbells { vm: of, .. } => format!("the calls of VM {} to peers", vm(*of)),
        };
        // Writing to a text cannot fail.
        let _ = write!(words, ", core {}, at {} ns", entry.core, entry.at.0);
        words
    }

    /// Returns the bytes from the run's first message on, if no byte of them was lost or changed.
    pub fn whole(&self) -> Option<&[u8]> {
        let start = self.start?;
        let is_whole = self.damages.iter().all(|damage| damage.offset < start);
        is_whole.then(|| &self.bytes[start..])
    }

    /// Returns the number of messages that could be read.
    pub fn frames(&self) -> usize {
        self.decoder.so_far().frames
    }

    /// Returns the names of the VMs that announced themselves if they are not the system's, in
    /// words.
    pub fn other_vms(&self, system: &System) -> Option<String> {
        let mut names = self.vms.iter().map(|(_, vm)| vm.name.as_str());
        let is_known = |name| system.vms.iter().any(|vm| vm.name == name);
        if names.clone().all(is_known) && self.vms.len() <= system.vms.len() {
            return None;
        }
        let first = names.next().unwrap_or_default().to_owned();
        Some(names.fold(first, |all, name| format!("{all}, {name}")))
    }

    /// Returns the run's telemetry with the VMs' announcements complete: one that was damaged is
    /// replaced by what the system's configuration says, because a VM's id is its position among
    /// them. Returns the names of the VMs for which that was done, and no bytes if there are none.
    pub fn complete(&self, system: &System) -> Option<(Vec<u8>, Vec<String>)> {
        let has = |vm: &Vm| self.vms.iter().any(|(_, info)| info.name == vm.name);
        let missing: Vec<String> = system
            .vms
            .iter()
            .filter(|vm| !has(vm))
            .map(|vm| vm.name.clone())
            .collect();
        // Without a record there is nothing that an id could mean, and with other VMs it is
        // another system.
        let records = self.first_record?;
        let is_known = |info: &VmInfo| system.vms.iter().any(|vm| vm.name == info.name);
        if missing.is_empty() || !self.vms.iter().all(|(_, info)| is_known(info)) {
            return None;
        }
        let at = self.vms.first().map_or(records, |(offset, _)| *offset);
        let mut bytes = self.bytes[..at].to_vec();
        for vm in &system.vms {
            bytes.extend_from_slice(encode(
                &Message::Vm(announcement(vm)),
                &mut [0; MAX_MESSAGE],
            )?);
        }
        bytes.extend_from_slice(&self.bytes[records..]);
        Some((bytes, missing))
    }
}

/// Returns what the hypervisor says of a VM at boot.
pub fn announcement(vm: &Vm) -> VmInfo {
    let counted = vm.quotas.iter().flat_map(Quota::counted);
    VmInfo {
        name: vm.name.clone(),
        cores: vm.cores.clone(),
        pages: vm.regions.iter().map(|region| region.pages).sum(),
        untrusted: counted
            .filter(|counted| counted.allowed)
            .map(|counted| counted.event)
            .collect(),
    }
}

const fn state_name(state: VmState) -> &'static str {
    match state {
        VmState::Started => "starts",
        VmState::Restarted => "restarts",
        VmState::Off => "is off",
        VmState::Killed => "is killed",
        VmState::Stopped => "is stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::color::ColorSet;
    use cloison_formats::ids::Core;
    use cloison_formats::telemetry::VERSION;
    use cloison_formats::units::Nanos;

    fn sent(message: &Message) -> Vec<u8> {
        encode(message, &mut [0; MAX_MESSAGE])
            .expect("it fits")
            .to_vec()
    }

    fn boot() -> Vec<u8> {
        sent(&Message::Boot(BootInfo {
            version: VERSION,
            system: "pair".into(),
            board: "virt".into(),
            colors: 16,
            hypervisor_colors: ColorSet(1),
            hypervisor_pages: 1,
            hypervisor_frames: vec![],
            timer_hz: 62_500_000,
        }))
    }

    fn vm(name: &str) -> Vec<u8> {
        sent(&Message::Vm(VmInfo {
            name: name.into(),
            cores: vec![Core(0)],
            pages: 1,
            untrusted: vec![],
        }))
    }

    fn dropped(count: u32) -> Vec<u8> {
        sent(&Message::Entry(Entry {
            core: Core(1),
            at: Nanos(u64::from(count)),
            record: Record::Dropped { count },
        }))
    }

    fn names() -> Vec<String> {
        vec!["a".to_owned(), "b".to_owned()]
    }

    #[test]
    fn a_damaged_record_is_named_between_its_neighbors() {
        let mut bytes = [boot(), vm("a"), vm("b"), dropped(1)].concat();
        let at = bytes.len();
        let mut lost = dropped(2);
        lost.remove(4);
        bytes.extend(&lost);
        bytes.extend(dropped(3));
        for step in [1, 5, bytes.len()] {
            let mut stream = Stream::new(&names());
            let mut news: Vec<News> = bytes
                .chunks(step)
                .flat_map(|chunk| stream.feed(chunk))
                .collect();
            let (runs, last) = stream.finish();
            news.extend(last);
            let [run] = &runs[..] else { panic!("one run") };
            assert_eq!(run.bytes, bytes);
            let [damage] = &run.damages[..] else {
                panic!("one damage: {:?}", run.damages)
            };
            assert_eq!((damage.offset, damage.len), (at, lost.len()));
            assert_eq!(
                damage.after,
                "1 records dropped by the hypervisor, core 1, at 1 ns"
            );
            assert_eq!(
                damage.before,
                "3 records dropped by the hypervisor, core 1, at 3 ns"
            );
            let told = |one: &&News| matches!(one, News::Damage(_));
            assert_eq!(news.iter().filter(told).count(), 1);
        }
    }

    #[test]
    fn a_reset_board_starts_another_run() {
        let bytes = [boot(), dropped(1), vec![7, 7], boot(), dropped(2), vec![9]].concat();
        let mut stream = Stream::new(&names());
        stream.feed(&bytes);
        let (runs, news) = stream.finish();
        // What the reset cut off arrives as one frame with the next first message.
        let damaged: Vec<usize> = runs.iter().map(|run| run.damages.len()).collect();
        assert_eq!(damaged, [1, 1]);
        assert_eq!(runs[0].damages[0].before, "the end of the run");
        assert_eq!(runs[1].whole(), None);
        assert!(matches!(&news[..], [News::Damage(last)] if last.before == "the end"));

        // What is left of a run whose start nobody has heard.
        let mut stream = Stream::new(&names());
        stream.feed(&[vm("a"), dropped(1), boot(), vm("a"), dropped(2)].concat());
        let (runs, _) = stream.finish();
        let last = runs.last().expect("two runs");
        assert_eq!((runs.len(), last.vms.len()), (2, 1));

        // Noise before the first message is of no run.
        let mut stream = Stream::new(&names());
        stream.feed(&[vec![7, 0, 9], boot(), dropped(1)].concat());
        let (runs, _) = stream.finish();
        let [run] = &runs[..] else { panic!("one run") };
        assert_eq!(run.damages.len(), 2);
        assert_eq!(run.whole(), Some(&[boot(), dropped(1)].concat()[..]));

        let mut stream = Stream::new(&names());
        stream.feed(&[boot(), dropped(1), boot(), dropped(2)].concat());
        let (runs, _) = stream.finish();
        assert_eq!(
            runs.iter().map(|run| run.bytes.clone()).collect::<Vec<_>>(),
            [[boot(), dropped(1)].concat(), [boot(), dropped(2)].concat()]
        );
    }
}
