//! Feeds puppets with programs, keeps those that reach something new in EL2, and watches for a
//! hypervisor that fails, hangs or loses a VM.
//!
//! Nothing is reset between programs except what the VMs do themselves. VM 0, the keeper, never
//! ends, and orders others to start when they have ended.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod generator;
pub mod program;
pub mod state;
pub mod target;
mod watch;

use crate::blocks::Blocks;
use crate::coverage::Coverage;
use crate::instrument::{Finding, Instrument, Moment, Needs};
use crate::prover::MAX_CORES;
use cloison_abi::reply::Change;
use cloison_abi::{Call, map, page, psci};
use cloison_puppet::{ASK, LAST, LEASE, OP_WORDS, Op};
use generator::Generator;
use generator::links::Device;
use program::{Input, order};
use state::Progress;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use target::Target;
use watch::Watch;

/// Blocks that a visit to EL2 may take: a restart that clears and copies megabytes takes less.
const STUCK: u64 = 20_000_000;
/// Exits of a core without a question until the keeper orders its VM to restart: a program takes
/// fewer, but a vCPU that was started at a wrong place, or that loops, never asks again.
const QUIET: u64 = 1000;
/// What an interrupt counts there: a vCPU that loops has few exits. One with a small budget has two
/// in each period of a program that waits.
const INTERRUPT: u64 = 20;
/// Exits of all cores without a question of a VM until the keeper orders it to start.
const ENDED: u64 = 4000;
/// Orders without an answer until a VM is lost.
const ORDERS: u32 = 50;
/// Exits of all cores without a question of the keeper until it is lost: nobody restarts it.
const LOST: u64 = 200_000;
/// Events in a period of a millisecond with which the keeper asks as often as the others.
const ENOUGH: u64 = 50_000;
/// Events in a period with which it still asks.
const LEAST: u64 = 2000;
/// The vector of a guest's call (Arm ARM, D1.3.1).
const SYNCHRONOUS: u16 = 0x400;
/// Blocks of EL2 without a question of any VM until the machine boots again: guests that have lowered
/// their own budgets to almost nothing wait for period after period.
const SLOW: u64 = 1_000_000;
/// Exceptions of guests without a block of EL2 until the machine boots again. A guest whose exception
/// vector raises one at its first instruction executes nothing, so that QEMU, which counts guest time
/// by instructions, never lets a timer return the core to EL2, as it would on a board.
const EXCEPTIONS: u64 = 4_000_000;
/// Blocks in which EL2 may report its failure and turn the machine off.
const REPORT: u64 = 1_000_000;
/// Ends of the names of the functions by which EL2's heap changes, which it does at boot only.
const HEAP: [&str; 2] = ["GlobalAlloc>::alloc", "GlobalAlloc>::dealloc"];
/// Programs until all cores have started for sure.
const STARTED: u64 = 64;
/// What is wrong with a boot that turns off although no vCPU has asked.
const NO_PROGRAM: &str = "the machine turns off before any program has begun";
/// Seconds until coverage and the corpus are written again.
const SAVE: u64 = 10;
/// Inputs that a reproducer holds.
const KEPT: usize = 64;
/// Programs until VMs end more rarely or more often.
const LIVES: u64 = 512;
/// Programs in the corpus.
const CORPUS: usize = 4096;
/// VMs of a system.
const VMS: usize = 8;

/// The fuzzer's arguments.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Directory of the corpus, the progress and the findings.
    pub directory: PathBuf,
    /// Seed of programs and of the cores' turns.
    pub seed: u64,
    /// Guest exits after which the run ends; 0 if none.
    pub exits: u64,
    /// Seconds after which the run ends; 0 if none.
    pub seconds: u64,
    /// Inputs to give instead of generated ones.
    pub replay: Option<PathBuf>,
}

/// What is known of a VM's puppet.
#[derive(Clone, Copy, Debug, Default)]
struct Puppet {
    /// Exits when it asked last.
    asked: u64,
    /// Orders since then.
    orders: u32,
    /// One of its vCPUs does not ask any more.
    is_lost: bool,
}

/// The fuzzer.
pub struct Fuzzer {
    wanted: Wanted,
    target: Target,
    blocks: Arc<Blocks>,
    coverage: Coverage,
    /// Times that each block ran in the search's former boots.
    former_hits: Vec<u64>,
    generator: Generator,
    turns: fastrand::Rng,
    corpus: Vec<Vec<Op>>,
    /// What each core executes.
    current: [Option<Input>; MAX_CORES],
    watch: Arc<Watch>,
    /// The VM whose next program is for this device of a link, because the other end's was.
    answer: Option<(u64, Device)>,
    /// Inputs to replay that no vCPU has taken.
    replayed: Option<VecDeque<Input>>,
    /// Exits when the last replayed input was taken.
    replay_end: Option<u64>,
    puppets: [Puppet; VMS],
    /// The VM of each core, once it has asked, and the core's exits since then.
    silence: [Option<(usize, u64)>; MAX_CORES],
    /// Blocks of each core since it came from a guest.
    visit: [u64; MAX_CORES],
    /// Blocks of all cores since a puppet has asked.
    unasked: u64,
    /// Blocks of guests that may be vectors since EL2 has begun one.
    exceptions: u64,
    /// Blocks until the core's turn ends.
    turn: u64,
    /// The blocks that report a failure of EL2, with their names.
    fatal: Vec<(usize, &'static str)>,
    /// The blocks by which EL2's heap changes.
    heap: Vec<usize>,
    /// What the keeper's core does that has not asked for long.
    keeper: Option<String>,
    /// The failure that EL2 is about to report, and the blocks that are left for that.
    failing: Option<(String, u64)>,
    found: Option<Finding>,
    /// What is found, or why the run ends, is reported.
    is_reported: bool,
    /// Seconds since the start when everything was last written.
    saved: u64,
    progress: Progress,
}

impl Fuzzer {
    /// Returns a fuzzer, which continues with the corpus in its directory.
    ///
    /// # Errors
    ///
    /// The file that cannot be read, and why.
    pub fn new(wanted: Wanted, target: Target, blocks: Arc<Blocks>) -> Result<Self, String> {
        let replayed = match &wanted.replay {
            Some(file) => Some(state::read(file)?.into()),
            None => None,
        };
        let corpus = match replayed {
            Some(_) => Vec::new(),
            None => state::corpus(&wanted.directory)?,
        };
        let fatal = ["fatal_exception", "rust_begin_unwind"]
            .iter()
            .filter_map(|name| {
                let address = blocks.address_of(name)?;
                Some((blocks.starting_at(address)?, *name))
            })
            .collect::<Vec<_>>();
        if fatal.is_empty() {
            return Err("the EL2 image has no function `fatal_exception`".into());
        }
        let heap = HEAP.map(|name| {
            let block = blocks.address_of(name);
            let block = block.and_then(|address| blocks.starting_at(address));
            block.ok_or_else(|| format!("the EL2 image has no function `{name}`"))
        });
        let heap = heap.into_iter().collect::<Result<_, _>>()?;
        let coverage = state::coverage(&wanted.directory, &blocks)
            .unwrap_or_else(|| Coverage::new(blocks.all.len()));
        Ok(Self {
            former_hits: coverage.hits.clone(),
            coverage,
            generator: Generator::new(wanted.seed, target.redistributors),
            answer: None,
            turns: fastrand::Rng::with_seed(!wanted.seed),
            corpus,
            current: Default::default(),
            watch: Watch::start(wanted.directory.clone(), target.name.clone(), wanted.seed),
            replayed,
            replay_end: None,
            puppets: [Puppet::default(); VMS],
            silence: [None; MAX_CORES],
            visit: [0; MAX_CORES],
            unasked: 0,
            exceptions: 0,
            turn: 1000,
            fatal,
            heap,
            keeper: None,
            failing: None,
            found: None,
            is_reported: false,
            saved: 0,
            progress: Progress::new(&wanted.directory),
            blocks,
            target,
            wanted,
        })
    }

    /// Returns the next input of a vCPU.
    fn input(&mut self, vm: u64, vcpu: u64) -> Input {
        let Some(left) = &mut self.replayed else {
            return Input {
                vm,
                vcpu,
                typed: self.generator.typed(),
                ops: self.next(vm),
            };
        };
        let at = left
            .iter()
            .position(|input| (input.vm, input.vcpu) == (vm, vcpu));
        let input = at.and_then(|at| left.remove(at));
        if left.is_empty() && self.replay_end.is_none() {
            self.replay_end = Some(self.progress.exits);
        }
        input.unwrap_or_else(|| Input {
            vm,
            vcpu,
            typed: Vec::new(),
            ops: revival(vm),
        })
    }

    /// Returns the next program for a VM.
    fn next(&mut self, vm: u64) -> Vec<Op> {
        if vm == 0
            && let Some(lost) = self.quiet()
        {
            let puppet = &mut self.puppets[lost];
            puppet.orders += 1;
            puppet.asked = self.progress.exits;
            puppet.is_lost = false;
            return self.target.revive(lost);
        }
        if let Some(ops) = self.conversation(vm) {
            return ops;
        }
        let mut ops = if self.corpus.is_empty() || self.generator.below(4) == 0 {
            self.generator.program()
        } else {
            // Newer programs more often: they are at the edge of what is known.
            let count = self.corpus.len() as u64;
            let newest = self.generator.below(2) * (count / 2);
            let one = newest + self.generator.below(count - newest);
            let other = self.generator.below(count);
            let mut ops = self.corpus[one as usize].clone();
            self.generator
                .mutate(&mut ops, &self.corpus[other as usize]);
            ops
        };
        // To start a VM takes as long as a thousand exits: it is cleared and loaded, and QEMU
        // translates its code again, about a thousand blocks. A quarter of the programs may do so
        // often.
        let times = match self.progress.inputs / LIVES % 4 {
            0 => 1,
            _ => 16,
        };
        if self.target.is_mortal(vm) && self.generator.below(16 * times) > 0 {
            ops.retain(|op| !generator::is_refused(*op));
        }
        if self.generator.below(2 * times) > 0 {
            ops.retain(|op| !ends_a_vm(*op));
        }
        if vm == 0 {
            ops.retain(|op| !ends_the_keeper(*op));
            // The others wait for a keeper that has almost no budget: a part of the time is enough.
            let least = match self.generator.below(32) {
                0 => LEAST,
                _ => ENOUGH,
            };
            ops.retain(|op| !starves_the_keeper(*op, least));
        }
        ops
    }

    /// Returns a program for an end of a link now and then, and one for the other end after that.
    fn conversation(&mut self, vm: u64) -> Option<Vec<Op>> {
        // The VMs at the two ends; of the keeper's memory, nothing is written over.
        const ENDS: [u64; 2] = [1, 2];
        let end = ENDS.iter().position(|end| *end == vm)?;
        let (other, device) = match self.answer {
            Some((due, device)) if due == vm => (None, device),
            None if self.generator.below(8) == 0 => (Some(ENDS[1 - end]), self.generator.device()),
            _ => return None,
        };
        self.answer = other.map(|other| (other, device));
        Some(self.generator.conversation(device))
    }

    /// Returns a VM that has not asked for long.
    fn quiet(&self) -> Option<usize> {
        let exits = self.progress.exits;
        (1..self.target.vms()).find(|vm| {
            let puppet = &self.puppets[*vm];
            puppet.is_lost || exits - puppet.asked > ENDED
        })
    }

    /// Returns whether a core is the keeper's, once it has asked.
    fn is_keepers(&self, core: usize) -> bool {
        self.silence[core].is_some_and(|(vm, _)| vm == 0)
    }

    /// Returns whether a vCPU of the keeper is about to end, by its own call. No program makes
    /// one, but what is left of a program may have the puppet end, by its handler of panics.
    fn is_keepers_end(&self, at: &Moment<'_>) -> bool {
        /// Classes of HVC and SMC (Arm ARM, D24.2.40, ESR_EL2.EC).
        const CALLS: [u64; 2] = [0x16, 0x17];
        self.is_keepers(at.core)
            && [psci::CPU_OFF, psci::SYSTEM_OFF].contains(&(at.x(0) as u32))
            && CALLS.contains(&(at.names.read("ESR_EL2") >> 26 & 0x3f))
    }

    /// Notes what the keeper does when it has not asked for long, to be reported with it.
    fn note_the_keeper(&mut self, at: &Moment<'_>, vector: u16) {
        let is_late = self.progress.exits > self.puppets[0].asked + LOST / 2;
        if is_late && self.is_keepers(at.core) {
            let [from, why, state] =
                ["ELR_EL2", "ESR_EL2", "SPSR_EL2"].map(|name| at.names.read(name));
            self.keeper = Some(format!(
                ": its core comes by vector {vector:#x} from {from:#x}, ESR {why:#x}, SPSR {state:#x}"
            ));
        }
    }

    /// Counts an exit of a core whose vCPU may not ask any more.
    fn listen(&mut self, core: usize, vector: u16) {
        if let Some((vm, exits)) = &mut self.silence[core] {
            let is_interrupt = vector & 0x180 != 0;
            *exits += if is_interrupt { INTERRUPT } else { 1 };
            if *exits > QUIET {
                *exits = 0;
                self.puppets[*vm].is_lost = true;
            }
        }
    }

    /// Answers a puppet's question.
    fn feed(&mut self, at: &Moment<'_>) {
        let [to, capacity, vm, vcpu] = [0, 1, 2, 3].map(|number| at.x(number));
        self.watch.learn(at.core, at.cpu);
        if self.progress.inputs == 0 {
            // What ran before the first program was not a guest's doing.
            self.coverage.hits.clone_from(&self.former_hits);
        }
        self.unasked = 0;
        let novelty = self.coverage.conclude(at.core);
        if let Some(input) = self.current[at.core].take() {
            self.keep(input.ops, novelty.edges, novelty.counts);
        }
        let Some(puppet) = self.puppets.get_mut(vm as usize) else {
            return;
        };
        (puppet.asked, puppet.orders) = (self.progress.exits, 0);
        self.silence[at.core] = Some((vm as usize, 0));
        let mut input = self.input(vm, vcpu);
        if input.ops.is_empty() {
            return;
        }
        let room = (capacity as usize).saturating_sub(1) / OP_WORDS;
        let mut words = vec![input.ops.len().min(room) as u64];
        let ops = input.ops.iter().take(room);
        words.extend(ops.flat_map(|op| self.target.op(vm, *op).encode()));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        write(at, to, &bytes);
        // The core that takes the console's interrupt types nothing: the input says so.
        let console = self.target.console;
        match console.filter(|(_, core)| core.index() != at.core) {
            Some((uart, _)) => type_on(uart, at, &input.typed),
            None => input.typed.clear(),
        }
        let mut recent = self.watch.recent();
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back(input.clone());
        drop(recent);
        self.current[at.core] = Some(input);
        self.progress.inputs += 1;
    }

    /// Keeps a program that has reached something new.
    fn keep(&mut self, ops: Vec<Op>, edges: u32, counts: u32) {
        if self.replayed.is_some() || (edges == 0 && counts == 0) || ops.is_empty() {
            return;
        }
        if self.corpus.len() < CORPUS {
            self.corpus.push(ops);
        } else if edges > 0 {
            let at = self.generator.below(CORPUS as u64) as usize;
            self.corpus[at] = ops;
        }
    }

    /// Ends the run if its time has come.
    fn limit(&mut self) {
        if self.progress.exits.is_multiple_of(4096) {
            // What a boot has reached is not lost if QEMU ends.
            let now = self.progress.seconds();
            let is_due = now >= self.saved + SAVE;
            if is_due {
                self.saved = now;
            }
            self.report(is_due);
        }
        let of = &self.wanted;
        let is_over = (of.exits > 0 && self.progress.all_exits() >= of.exits)
            || (of.seconds > 0 && self.progress.seconds() >= of.seconds)
            || self
                .replay_end
                .is_some_and(|end| self.progress.exits > end + 20_000);
        if is_over {
            self.end();
        }
    }

    /// Ends the run without a finding.
    fn end(&mut self) -> ! {
        self.is_reported = true;
        self.report(true);
        std::process::exit(0)
    }

    fn report(&mut self, whole: bool) {
        let now = state::Figures {
            blocks: self.coverage.blocks(),
            edges: self.coverage.edges,
            corpus: self.corpus.len(),
        };
        self.progress.write(&self.wanted.directory, now, whole);
        if whole {
            self.watch.is_busy(true);
            state::write(&self.wanted.directory, &self.blocks, &self.coverage);
            if self.replayed.is_none() {
                state::keep(&self.wanted.directory, &self.corpus);
            }
            self.watch.is_busy(false);
        }
    }

    /// Ends the run with a finding: there may be no exit any more.
    fn stop(&mut self, rule: &str, what: String, core: usize) -> ! {
        let finding = Finding {
            rule: rule.to_owned(),
            what,
            core,
        };
        self.found(&finding);
        finding.end_run()
    }

    fn finds(&mut self, rule: &str, what: String, core: usize) {
        self.found.get_or_insert(Finding {
            rule: rule.to_owned(),
            what,
            core,
        });
    }
}

/// Returns what a vCPU does that has nothing to replay: the keeper starts the others.
fn revival(vm: u64) -> Vec<Op> {
    match vm {
        0 => vec![
            Op::Delay(2000),
            order(1, Change::Start),
            order(2, Change::Start),
        ],
        _ => vec![Op::Delay(2000), Op::Start(1)],
    }
}

/// Returns whether an operation would end the keeper.
fn ends_the_keeper(op: Op) -> bool {
    match op {
        Op::Execute { word, x } if word & 0xffe0_001c == 0xd400_0000 => {
            [psci::CPU_OFF, psci::SYSTEM_OFF].contains(&(x[0] as u32)) || x[0] == LAST
        }
        _ => false,
    }
}

/// Returns whether an operation would end the VM, or another one.
fn ends_a_vm(op: Op) -> bool {
    match op {
        Op::Execute { word, x } if word & 0xffe0_001c == 0xd400_0000 => match x[0] as u32 {
            psci::CPU_OFF | psci::SYSTEM_OFF | psci::SYSTEM_RESET => true,
            function => {
                function == Call::VmOrder as u32
                    && [Change::Stop as u64, Change::Restart as u64].contains(&x[2])
            }
        },
        _ => false,
    }
}

/// Returns whether an operation may lower the keeper's own budget below so many events in a period of
/// a millisecond: also one whose budget is the result of another, or comes by the services page.
fn starves_the_keeper(op: Op, least: u64) -> bool {
    match op {
        Op::Execute { word, x } if word & 0xffe0_001c == 0xd400_0000 => {
            let is_known = ![LAST, LEASE].contains(&x[2]);
            x[0] as u32 == Call::QuotaSet as u32 && (x[2] < least || !is_known)
        }
        Op::Execute { x, .. } => {
            x[0] as u32 == Call::QuotaSet as u32 && x[1] == map::SERVICES + u64::from(page::CALL)
        }
        _ => false,
    }
}

/// Types on the console, a PL011: what it sends in loopback, it receives (DDI 0183, 3.3.8). A core
/// that takes its interrupt must not be the one that executes: QEMU's time, which is counted by
/// instructions, does not allow an interrupt in the middle of a block.
fn type_on(uart: u64, at: &Moment<'_>, typed: &[u8]) {
    const DATA: u64 = 0;
    const CONTROL: u64 = 0x30;
    const LOOPBACK: u32 = 1 << 7;
    if typed.is_empty() {
        return;
    }
    let write = |register, value: u32| {
        let bytes = value.to_le_bytes();
        at.machine.write_memory(at.cpu, uart + register, &bytes);
    };
    let mut control = [0; 4];
    at.machine.read_memory(at.cpu, uart + CONTROL, &mut control);
    let control = u32::from_le_bytes(control);
    write(CONTROL, control | LOOPBACK);
    for byte in typed {
        write(DATA, u32::from(*byte));
    }
    write(CONTROL, control);
}

/// Writes to a guest's memory, page by page.
fn write(at: &Moment<'_>, mut address: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = bytes.len().min(4096 - (address & 0xfff) as usize);
        let Some(physical) = at.machine.translate(at.cpu, address) else {
            return;
        };
        at.machine.write_memory(at.cpu, physical, &bytes[..length]);
        bytes = &bytes[length..];
        address += length as u64;
    }
}

impl Instrument for Fuzzer {
    fn needs(&self) -> Needs {
        Needs {
            blocks: true,
            hints: true,
            guest_vectors: true,
            ..Needs::default()
        }
    }

    fn enters(&mut self, at: &Moment<'_>, vector: u16) {
        self.visit[at.core] = 0;
        if vector >= 0x400 {
            self.watch.comes(at.core);
            self.progress.exits += 1;
            self.coverage.enter(at.core);
            self.listen(at.core, vector);
            // Without a keeper, nobody starts the others: the machine boots again.
            if vector == SYNCHRONOUS && self.is_keepers_end(at) {
                self.end();
            }
            self.note_the_keeper(at, vector);
            self.limit();
        }
    }

    fn leaves(&mut self, at: &Moment<'_>) {
        self.watch.returns(at.core);
    }

    fn block(&mut self, at: &Moment<'_>, block: usize) {
        self.coverage.step(at.core, block);
        self.watch.beat();
        self.exceptions = 0;
        self.turn -= 1;
        if self.turn == 0 {
            self.turn = self.turns.u64(20..4000);
            at.internals.exit(at.cpu);
            // A run without exits ends too.
            if self.wanted.seconds > 0 && self.progress.seconds() >= self.wanted.seconds {
                self.end();
            }
        }
        self.unasked += 1;
        if self.unasked > SLOW && self.progress.inputs > 0 && self.replayed.is_none() {
            self.end();
        }
        let visit = &mut self.visit[at.core];
        // A core that is held, or off, waits as long as it takes.
        *visit = if self.blocks.all[block].waits {
            0
        } else {
            *visit + 1
        };
        if *visit == STUCK {
            let place = self.blocks.function(at.address);
            let what = format!("a visit to EL2 does not end, in {place}");
            self.stop("stuck", what, at.core);
        }
        if let Some((_, name)) = self.fatal.iter().find(|(fatal, _)| *fatal == block) {
            self.failing
                .get_or_insert((format!("EL2 fails: {name}"), REPORT));
        }
        if self.heap.contains(&block) && self.progress.inputs > STARTED {
            let what = "EL2 changes its heap while guests run".to_owned();
            self.stop("heap", what, at.core);
        }
        if let Some((what, left)) = &mut self.failing {
            *left -= 1;
            if *left == 0 {
                let what = std::mem::take(what);
                self.stop("fatal", what, at.core);
            }
        }
    }

    fn hint(&mut self, at: &Moment<'_>, number: u32) {
        if number == ASK {
            self.feed(at);
        }
    }

    fn guest_vector(&mut self, _at: &Moment<'_>) {
        self.exceptions += 1;
        if self.exceptions == EXCEPTIONS {
            self.end();
        }
    }

    fn finding(&mut self) -> Option<Finding> {
        let lost = (1..self.target.vms()).find(|vm| self.puppets[*vm].orders > ORDERS);
        if let Some(vm) = lost {
            self.finds("lost", format!("VM {vm} does not start again"), 0);
        }
        if self.progress.exits > self.puppets[0].asked + LOST {
            let keeper = self.keeper.take().unwrap_or_default();
            let what = format!("the keeper, VM 0, does not ask any more{keeper}");
            self.finds("lost", what, 0);
        }
        self.found.take()
    }

    fn found(&mut self, finding: &Finding) {
        self.is_reported = true;
        self.report(true);
        state::reproducer(
            &self.wanted.directory,
            finding,
            (&self.target.name, self.wanted.seed),
            &*self.watch.recent(),
        );
    }

    fn ends(&mut self) {
        let failure = self.failing.take();
        if self.is_reported && failure.is_none() {
            return;
        }
        let (rule, what) = match failure {
            Some((what, _)) => ("fatal", what),
            // Only a program may end all VMs.
            None if self.progress.inputs == 0 => ("early", NO_PROGRAM.to_owned()),
            None => return self.report(true),
        };
        self.found(&Finding {
            rule: rule.to_owned(),
            what,
            core: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keepers_budget_is_never_almost_nothing() {
        let sets = |budget| program::call(Call::QuotaSet, [0, budget, 0]);
        assert!(starves_the_keeper(sets(LEAST - 1), LEAST));
        assert!(!starves_the_keeper(sets(LEAST), LEAST) && starves_the_keeper(sets(LEAST), ENOUGH));
        assert!(starves_the_keeper(sets(LAST), LEAST) && starves_the_keeper(sets(LEASE), LEAST));
        assert!(!starves_the_keeper(
            program::call(Call::QuotaRead, [0; 3]),
            LEAST
        ));
    }
}
