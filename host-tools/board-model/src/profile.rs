//! Profiles: the events of each core, charged to the instructions that caused them and to the calls
//! that led there.
//!
//! A core has a position, the block that it executes. What its counts have gained since they were
//! last charged is charged to that block when it ends, and around each access that may miss to the
//! instruction of the access. So each event is charged once, and the sums are the core's counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::MAX_CORES;
use crate::events::{Counts, Event};
use crate::statistics::Region;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The events of a profile.
pub const EVENTS: [Event; 8] = [
    Event::CPU_CYCLES,
    Event::INST_RETIRED,
    Event::L1I_CACHE_REFILL,
    Event::L1D_CACHE_REFILL,
    Event::L1D_CACHE_WB,
    Event::L2D_CACHE_REFILL,
    Event::L2D_CACHE_WB,
    Event::BUS_ACCESS,
];
/// Index of the cycles in [`EVENTS`].
const CYCLES: usize = 0;
/// Index of the instructions in [`EVENTS`].
const INSTRUCTIONS: usize = 1;

/// Counts of [`EVENTS`].
pub type Values = [u64; EVENTS.len()];

/// Exception levels that are told apart.
const LEVELS: usize = 4;
/// Deepest calls that are told apart: what is called deeper belongs to the call at this depth.
const DEPTH: usize = 256;
/// How many calls a return looks back over: a function may be left by other ways than a return.
const LOOK_BACK: usize = 32;
/// Most nodes of the trees of calls.
const NODES: usize = 1 << 18;
/// Most changes of state in the timeline of all cores.
const MOMENTS: usize = 400_000;
/// Most samples of a core's counts; then every second one is dropped.
const SAMPLES: usize = 2048;
/// First distance of two samples, in cycles.
const SAMPLE_CYCLES: u64 = 1 << 14;

/// Returns the counts of [`EVENTS`].
#[inline]
pub const fn values(counts: &Counts, cycles: u64) -> Values {
    [
        cycles,
        counts.instructions,
        counts.l1i_refills,
        counts.l1d_refills,
        counts.l1d_writebacks,
        counts.l2_refills,
        counts.l2_writebacks,
        counts.bus_reads + counts.bus_writes + counts.device,
    ]
}

#[inline]
fn add(to: &mut Values, more: &Values) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.wrapping_add(*more);
    }
}

/// Returns what was added since `before`.
#[inline]
pub fn since(now: &Values, before: &Values) -> Values {
    let mut new = *now;
    for (new, before) in new.iter_mut().zip(before) {
        *new = new.wrapping_sub(*before);
    }
    new
}

/// How a block passes control on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// By a call: BL, BLR.
    Call,
    /// By a return: RET.
    Return,
    /// In another way.
    Other,
}

impl Ending {
    /// Returns the ending of a block with this last instruction (Arm ARM C4.1, branches).
    pub const fn of(word: u32) -> Self {
        if word >> 26 == 0b10_0101 || word & 0xffff_fc1f == 0xd63f_0000 {
            Self::Call
        } else if word & 0xffff_fc1f == 0xd65f_0000 {
            Self::Return
        } else {
            Self::Other
        }
    }
}

/// A block of code, which may have been translated many times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Code {
    level: u8,
    address: u64,
    words: Box<[u32]>,
}

/// Where a block's events are charged: a slot for the whole block, then one for each instruction.
#[derive(Clone, Debug)]
struct Site {
    level: u8,
    address: u64,
    first: usize,
    /// Cycles from each instruction to the next.
    issue: Box<[u32]>,
    ending: Ending,
}

/// What is charged to a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    values: Values,
    /// How often the block was left before this instruction.
    left: u64,
}

/// A call on a stack: where it returns to, and the node of its caller.
#[derive(Clone, Copy, Debug)]
struct Frame {
    returns_to: u64,
    caller: usize,
}

/// The calls of a core at one exception level.
#[derive(Clone, Debug, Default)]
struct Stack {
    frames: Vec<Frame>,
    node: Option<usize>,
    /// The last block ended so, and the address after it.
    ended: Option<(Ending, u64)>,
}

/// The state of a core.
#[derive(Clone, Debug, Default)]
struct Core {
    seen: Values,
    site: Option<usize>,
    /// Its guest's counters count.
    counting: bool,
    /// By [`Core::counting`].
    slots: [Vec<Slot>; 2],
    /// By [`Core::counting`] and exception level.
    waits: [[Values; LEVELS]; 2],
    stacks: [Stack; LEVELS],
    /// The node of the running stack, and what was seen when it was charged last.
    node: Option<usize>,
    node_seen: Values,
    /// Slot of the last load that the core may still wait for.
    load: Option<usize>,
    state: Option<State>,
    samples: Vec<Sample>,
    sample_at: u64,
    sample_every: u64,
}

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It executes its guest.
    Guest,
    /// It executes the hypervisor.
    Hypervisor,
    /// Its guest waits for an interrupt.
    GuestWaits,
    /// It waits in the hypervisor, at this address.
    HypervisorWaits(u64),
    /// It was off until now.
    Off,
}

/// A change of a core's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The core.
    pub core: usize,
    /// Cycle of its clock.
    pub cycle: u64,
    /// Its state from then on.
    pub state: State,
}

/// A core's counts since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The core.
    pub core: usize,
    /// Counts of [`EVENTS`]; the first one is its clock.
    pub values: Values,
}

/// Events charged to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The core.
    pub core: usize,
    /// Exception level.
    pub level: u8,
    /// The core's guest counted.
    pub counted: bool,
    /// Address of the instruction; none while the core waited.
    pub address: Option<u64>,
    /// Counts of [`EVENTS`].
    pub values: Values,
}

/// A function as called from one place in one chain of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The core.
    pub core: usize,
    /// Exception level.
    pub level: u8,
    /// The caller's node.
    pub parent: Option<usize>,
    /// Address of the call; of an entry, of its first instruction.
    pub call: u64,
    /// Address of the function; none while the core waits.
    pub callee: Option<u64>,
    /// Number of calls, by whether the guest counted.
    pub calls: [u64; 2],
    /// Counts of [`EVENTS`] in the function itself, by whether the guest counted.
    pub values: [Values; 2],
}

/// A finished profile, as the plugin writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Names of the events.
    pub events: Vec<String>,
    /// Cycles of a microsecond.
    pub clock_mhz: u64,
    /// Clock of all cores when it began.
    pub origin: u64,
    /// Events by instruction.
    pub places: Vec<Place>,
    /// The trees of calls; a parent is before its children.
    pub nodes: Vec<Node>,
    /// The states of cores, in the order in which the model executed them.
    pub moments: Vec<Moment>,
    /// Changes of state that are missing, because there were too many.
    pub moments_dropped: u64,
    /// Calls that are counted to their callers, because there were too many.
    pub calls_folded: u64,
    /// Counts over time.
    pub samples: Vec<Sample>,
    /// The statistics of the same time.
    pub counts: Region,
}

/// What tells a node from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    core: usize,
    level: u8,
    parent: Option<usize>,
    address: u64,
    callee: Option<u64>,
}

/// Charges events while they happen.
#[derive(Debug, Default)]
pub struct Recorder {
    cores: Vec<Core>,
    sites: Vec<Site>,
    known: HashMap<Code, usize>,
    slots: usize,
    nodes: Vec<Node>,
    children: HashMap<Call, usize>,
    moments: Vec<Moment>,
    moments_dropped: u64,
    calls_folded: u64,
    origin: u64,
}

impl Recorder {
    /// Starts a profile of cores with these counts.
    pub fn new(now: impl IntoIterator<Item = Values>) -> Self {
        let core = |seen: Values| Core {
            seen,
            node_seen: seen,
            sample_every: SAMPLE_CYCLES,
            ..Core::default()
        };
        let cores: Vec<Core> = now.into_iter().map(core).collect();
        Self {
            origin: cores.first().map_or(0, |core| core.seen[CYCLES]),
            cores,
            ..Self::default()
        }
    }

    /// Returns the site of a block with these instructions, which are issued at these cycles.
    pub fn site(&mut self, level: u8, address: u64, words: &[u32], at: &[u64], end: u64) -> usize {
        let code = Code {
            level,
            address,
            words: words.into(),
        };
        if let Some(site) = self.known.get(&code) {
            return *site;
        }
        let next = at.iter().skip(1).copied().chain([end]);
        let issue = at.iter().zip(next).map(|(at, next)| (next - at) as u32);
        let site = Site {
            level,
            address,
            first: self.slots,
            issue: issue.collect(),
            ending: words.last().map_or(Ending::Other, |word| Ending::of(*word)),
        };
        self.slots += 1 + words.len();
        self.sites.push(site);
        self.known.insert(code, self.sites.len() - 1);
        self.sites.len() - 1
    }

    /// Returns the exception level of a core's position.
    #[inline]
    pub fn level(&self, core: usize) -> Option<u8> {
        self.cores[core].site.map(|site| self.sites[site].level)
    }

    /// Charges what is new to the core's block.
    #[inline]
    pub fn charge_block(&mut self, core: usize, now: &Values) {
        let slot = self.cores[core].site.map(|site| self.sites[site].first);
        let new = since(now, &self.cores[core].seen);
        self.charge(core, slot, &new);
    }

    /// Charges events to an instruction of the core's block. The low bits of its address are
    /// enough.
    pub fn charge_instruction(&mut self, core: usize, address: u64, new: &Values) {
        let slot = self.slot_of(core, address);
        self.charge(core, slot, new);
    }

    /// Records that the core may wait for the value of the load at `address`.
    pub fn loads(&mut self, core: usize, address: u64) {
        self.cores[core].load = self.slot_of(core, address);
    }

    /// Charges events to the last load.
    pub fn charge_load(&mut self, core: usize, new: &Values) {
        let state = &self.cores[core];
        let block = state.site.map(|site| self.sites[site].first);
        self.charge(core, state.load.or(block), new);
    }

    fn slot_of(&self, core: usize, address: u64) -> Option<usize> {
        let site = &self.sites[self.cores[core].site?];
        let at = (address.wrapping_sub(site.address) & 0xffff_ffff) / 4;
        Some(if at < site.issue.len() as u64 {
            site.first + 1 + at as usize
        } else {
            site.first
        })
    }

    #[inline]
    fn charge(&mut self, core: usize, slot: Option<usize>, new: &Values) {
        let state = &mut self.cores[core];
        add(&mut state.seen, new);
        let Some(slot) = slot else {
            // Before its first block a core is off.
            add(&mut state.waits[0][LEVELS - 1], new);
            return;
        };
        let slots = &mut state.slots[usize::from(state.counting)];
        if slot >= slots.len() {
            slots.resize(self.slots, Slot::default());
        }
        add(&mut slots[slot].values, new);
    }

    /// Charges what is new to the calls that the core is in.
    fn charge_node(&mut self, core: usize) {
        let state = &mut self.cores[core];
        if let Some(node) = state.node {
            let new = since(&state.seen, &state.node_seen);
            add(
                &mut self.nodes[node].values[usize::from(state.counting)],
                &new,
            );
        }
        state.node_seen = state.seen;
    }

    /// Records that the core's block was left after its first `executed` instructions, of which
    /// `counted` were known as executed until now: fewer than all if it was left before.
    pub fn leaves(&mut self, core: usize, executed: u64, counted: u64) {
        let state = &mut self.cores[core];
        let Some(site) = state.site.map(|site| &self.sites[site]) else {
            return;
        };
        let slots = &mut state.slots[usize::from(state.counting)];
        if site.first + site.issue.len() >= slots.len() {
            slots.resize(self.slots, Slot::default());
        }
        let slots = &mut slots[site.first + 1..][..site.issue.len()];
        if let Some(slot) = slots.get_mut(executed as usize) {
            slot.left += 1;
        }
        if let Some(slot) = slots.get_mut(counted as usize) {
            slot.left -= 1;
        }
        state.stacks[site.level as usize % LEVELS].ended = None;
    }

    /// Moves a core to another block, after all before it was charged. An exception may enter the
    /// block.
    #[inline]
    pub fn enter(&mut self, core: usize, site: usize, by_exception: bool) {
        let state = &mut self.cores[core];
        state.site = Some(site);
        state.load = None;
        let Site {
            level,
            address,
            ending,
            ref issue,
            ..
        } = self.sites[site];
        let stack = &mut state.stacks[level as usize % LEVELS];
        let after = address.wrapping_add(4 * issue.len() as u64);
        let ended = stack.ended.replace((ending, after));
        if by_exception || stack.node.is_none() {
            self.enter_root(core, level, address, by_exception);
        } else {
            match ended {
                Some((Ending::Call, after)) if after != address => {
                    self.call(core, level, after, address);
                }
                Some((Ending::Return, _)) => self.return_to(core, level, address),
                _ => {}
            }
        }
        let node = self.cores[core].stacks[level as usize % LEVELS].node;
        if self.cores[core].node != node {
            self.charge_node(core);
            self.cores[core].node = node;
        }
        let now = self.cores[core].seen[CYCLES];
        let is = if level >= 2 {
            State::Hypervisor
        } else {
            State::Guest
        };
        if self.cores[core].state != Some(is) {
            self.change(core, now, is);
        }
        if now >= self.cores[core].sample_at {
            self.sample(core);
        }
    }

    /// Starts the stack of a level at a block that no call has entered. An exception to EL1 keeps
    /// the calls that it interrupts.
    fn enter_root(&mut self, core: usize, level: u8, address: u64, by_exception: bool) {
        let stack = &self.cores[core].stacks[level as usize % LEVELS];
        if by_exception && level < 2 && stack.node.is_some() {
            return;
        }
        let node = self.node(core, level, None, address, Some(address));
        let stack = &mut self.cores[core].stacks[level as usize % LEVELS];
        stack.frames.clear();
        stack.node = node;
    }

    fn call(&mut self, core: usize, level: u8, after: u64, callee: u64) {
        let stack = &self.cores[core].stacks[level as usize % LEVELS];
        let (Some(caller), true) = (stack.node, stack.frames.len() < DEPTH) else {
            self.calls_folded += 1;
            return;
        };
        let Some(node) = self.node(core, level, Some(caller), after - 4, Some(callee)) else {
            self.calls_folded += 1;
            return;
        };
        let stack = &mut self.cores[core].stacks[level as usize % LEVELS];
        stack.node = Some(node);
        stack.frames.push(Frame {
            returns_to: after,
            caller,
        });
    }

    fn return_to(&mut self, core: usize, level: u8, address: u64) {
        let stack = &mut self.cores[core].stacks[level as usize % LEVELS];
        let mut latest = stack.frames.iter().enumerate().rev().take(LOOK_BACK);
        if let Some((at, frame)) = latest.find(|(_, frame)| frame.returns_to == address) {
            stack.node = Some(frame.caller);
            stack.frames.truncate(at);
        } else {
            // To a call that was not seen: an operating system has switched stacks.
            self.enter_root(core, level, address, false);
        }
    }

    /// Returns a node and counts a call of it, or none if there are too many.
    fn node(
        &mut self,
        core: usize,
        level: u8,
        parent: Option<usize>,
        call: u64,
        callee: Option<u64>,
    ) -> Option<usize> {
        let key = Call {
            core,
            level,
            parent,
            address: call,
            callee,
        };
        let node = match self.children.get(&key) {
            Some(node) => *node,
            None if self.nodes.len() >= NODES => return None,
            None => {
                self.nodes.push(Node {
                    core,
                    level,
                    parent,
                    call,
                    callee,
                    calls: [0; 2],
                    values: [Values::default(); 2],
                });
                self.children.insert(key, self.nodes.len() - 1);
                self.nodes.len() - 1
            }
        };
        self.nodes[node].calls[usize::from(self.cores[core].counting)] += 1;
        Some(node)
    }

    /// Charges the time for which a core has waited at its position, which an exception may have
    /// ended, up to `now`.
    pub fn waits(&mut self, core: usize, now: &Values, by_exception: bool) {
        let state = &mut self.cores[core];
        let waited = now[CYCLES].wrapping_sub(state.seen[CYCLES]);
        let (begun, counted) = (state.seen[CYCLES], usize::from(state.counting));
        if waited == 0 {
            return;
        }
        let mut new = Values::default();
        new[CYCLES] = waited;
        self.charge_node(core);
        let state = &mut self.cores[core];
        (state.seen[CYCLES], state.node_seen[CYCLES]) = (now[CYCLES], now[CYCLES]);
        let site = state.site.map(|site| &self.sites[site]);
        let (level, address) = site.map_or((3, 0), |site| (site.level, site.address));
        add(&mut state.waits[counted][level as usize % LEVELS], &new);
        let parent = state.stacks[level as usize % LEVELS].node;
        let before = state.state;
        if let Some(parent) = parent {
            let node = self.node(core, level, Some(parent), address, None);
            add(
                &mut self.nodes[node.unwrap_or(parent)].values[counted],
                &new,
            );
        }
        let waits = if level < 2 || by_exception {
            State::GuestWaits
        } else if begun == self.origin {
            State::Off
        } else {
            State::HypervisorWaits(address)
        };
        self.change(core, begun, waits);
        if let Some(before) = before {
            self.change(core, now[CYCLES], before);
        }
    }

    fn change(&mut self, core: usize, cycle: u64, state: State) {
        self.cores[core].state = Some(state);
        if self.moments.len() < MOMENTS {
            self.moments.push(Moment { core, cycle, state });
        } else {
            self.moments_dropped += 1;
        }
    }

    #[cold]
    fn sample(&mut self, core: usize) {
        let state = &mut self.cores[core];
        let values = state.seen;
        state.samples.push(Sample { core, values });
        if state.samples.len() >= SAMPLES {
            let mut is_odd = false;
            state.samples.retain(|_| {
                is_odd = !is_odd;
                is_odd
            });
            state.sample_every *= 2;
        }
        state.sample_at = values[CYCLES] + state.sample_every;
    }

    /// Records whether the guest's counters count, after all before was charged.
    pub fn set_counting(&mut self, core: usize, counting: bool) {
        self.charge_node(core);
        self.cores[core].counting = counting;
    }

    /// Returns whether the guest's counters count.
    pub fn is_counting(&self, core: usize) -> bool {
        self.cores[core].counting
    }

    /// Ends the profile, after all was charged.
    pub fn finish(mut self, clock_mhz: u64, counts: Region) -> Recorded {
        for core in 0..self.cores.len() {
            self.charge_node(core);
        }
        let mut places = Vec::new();
        for (number, core) in self.cores.iter().enumerate() {
            for counted in [false, true] {
                let at = usize::from(counted);
                let place = |level, address, values| Place {
                    core: number,
                    level,
                    counted,
                    address,
                    values,
                };
                for (level, values) in core.waits[at].iter().enumerate() {
                    places.push(place(level as u8, None, *values));
                }
                for site in &self.sites {
                    for (address, values) in site.places(&core.slots[at]) {
                        places.push(place(site.level, Some(address), values));
                    }
                }
            }
        }
        places.retain(|place| place.values != Values::default());
        places.sort_by_key(|place| (place.core, place.level, place.counted, place.address));
        places.dedup_by(|next, kept| {
            let key = |place: &Place| (place.core, place.level, place.counted, place.address);
            let is_same = key(next) == key(kept);
            if is_same {
                add(&mut kept.values, &next.values);
            }
            is_same
        });
        let samples = self.cores.iter_mut().flat_map(|core| {
            let last = core.samples.last().copied();
            let end = Sample {
                core: last.map_or(0, |last| last.core),
                values: core.seen,
            };
            let end = last.filter(|last| last.values != end.values).map(|_| end);
            std::mem::take(&mut core.samples).into_iter().chain(end)
        });
        Recorded {
            events: EVENTS.map(|event| event.name().to_owned()).into(),
            clock_mhz,
            origin: self.origin,
            places,
            samples: samples.collect(),
            nodes: self.nodes,
            moments: self.moments,
            moments_dropped: self.moments_dropped,
            calls_folded: self.calls_folded,
            counts,
        }
    }
}

impl Site {
    /// Returns the events of each instruction: its own, and its part of the block's.
    ///
    /// Each execution of an instruction counts. Cycles of the block are divided by those of issue.
    /// Other events of a block are those of fetching it, and are its first instruction's.
    fn places(&self, slots: &[Slot]) -> Vec<(u64, Values)> {
        let count = self.issue.len();
        let Some(own) = slots.get(self.first..=self.first + count) else {
            return Vec::new();
        };
        let (block, own) = (own[0].values, &own[1..]);
        let missing: u64 = (0..)
            .zip(own)
            .map(|(at, slot)| slot.left * (count as u64 - at))
            .sum();
        let entered = block[INSTRUCTIONS].wrapping_add(missing) / (count as u64).max(1);
        let mut executed = entered;
        let executions: Vec<u64> = own
            .iter()
            .map(|slot| {
                executed = executed.wrapping_sub(slot.left);
                executed
            })
            .collect();
        let weights = || {
            let pairs = executions.iter().zip(&self.issue);
            pairs.map(|(executions, issue)| u128::from(*executions) * u128::from(*issue))
        };
        let whole: u128 = weights().sum();
        let (mut weight, mut given) = (0, 0);
        let parts = (0u64..)
            .zip(weights())
            .zip(own)
            .map(|((at, own_weight), slot)| {
                weight += own_weight;
                let mut values = slot.values;
                let until = match whole {
                    0 => block[CYCLES],
                    _ => (u128::from(block[CYCLES]) * weight / whole) as u64,
                };
                values[CYCLES] = values[CYCLES].wrapping_add(until - given);
                given = until;
                values[INSTRUCTIONS] = values[INSTRUCTIONS].wrapping_add(executions[at as usize]);
                if at == 0 {
                    for event in INSTRUCTIONS + 1..values.len() {
                        values[event] = values[event].wrapping_add(block[event]);
                    }
                }
                (self.address.wrapping_add(4 * at), values)
            });
        parts
            .filter(|(_, values)| *values != Values::default())
            .collect()
    }
}

/// The profile of a run.
#[derive(Debug, Default)]
pub struct Profile {
    /// Charges events, from when the model is turned on to the end of the profile.
    pub recorder: Option<Box<Recorder>>,
    /// The finished profile.
    pub recorded: Option<Recorded>,
    /// Clock of all cores when it began. QEMU starts some later, whose own clock is less until
    /// then.
    pub origin: u64,
    /// Something is being charged to one instruction.
    pub charges: bool,
    /// What the last block that was left gave back.
    pub refund: Values,
    /// An exception has entered the core's block.
    pub by_exception: [bool; MAX_CORES],
}

impl Profile {
    /// Returns whether events are charged.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.recorder.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const BL: u32 = 0x9400_0010;
    const RET: u32 = 0xd65f_03c0;

    fn region() -> Region {
        Region { cores: Vec::new() }
    }

    fn sum(places: &[Place]) -> Values {
        places.iter().fold(Values::default(), |mut sum, place| {
            add(&mut sum, &place.values);
            sum
        })
    }

    #[test]
    fn the_values_are_those_of_the_events() {
        let counts = Counts {
            instructions: 1,
            l1i_refills: 2,
            l1d_refills: 3,
            l1d_writebacks: 4,
            l2_refills: 5,
            l2_writebacks: 6,
            bus_reads: 70,
            bus_writes: 700,
            device: 7,
            accesses: 7,
            ..Counts::default()
        };
        assert_eq!(
            values(&counts, 9),
            EVENTS.map(|event| event.count(&counts, 9))
        );
    }

    #[test]
    fn endings() {
        // bl; blr x1; ret; br x1; b; cbz
        let words = [BL, 0xd63f_0020, RET, 0xd61f_0020, 0x1400_0000, 0xb400_0000];
        let is = words.map(Ending::of);
        use Ending::{Call, Other, Return};
        assert_eq!(is, [Call, Call, Return, Other, Other, Other]);
    }

    #[test]
    fn all_is_charged_once_and_what_a_block_left_is_not() {
        let mut recorder = Recorder::new([[100, 0, 0, 0, 0, 0, 0, 0]]);
        let block = recorder.site(1, 0x1000, &[NOP, NOP, NOP, NOP], &[0, 1, 2, 6], 7);
        recorder.enter(0, block, false);
        recorder.charge_block(0, &[107, 4, 1, 0, 0, 1, 0, 4]);
        recorder.charge_instruction(0, 0x1004, &[33, 0, 0, 1, 0, 1, 0, 4]);
        recorder.enter(0, block, false);
        // It is left after two of four instructions, which take two of seven cycles.
        recorder.charge_block(0, &[147, 8, 1, 1, 0, 2, 0, 8]);
        recorder.leaves(0, 3, 4);
        recorder.leaves(0, 2, 3);
        let end = [142, 6, 1, 1, 0, 2, 0, 8];
        recorder.charge_block(0, &end);
        let done = recorder.finish(1000, region());
        let mut all = end;
        all[0] -= 100;
        assert_eq!(sum(&done.places), all);
        let instructions: Vec<u64> = done.places.iter().map(|place| place.values[1]).collect();
        assert_eq!(instructions, [2, 2, 1, 1]);
        let second = done.places[1];
        assert_eq!((second.address, second.values[5]), (Some(0x1004), 1));
        assert!(second.values[0] >= 33, "{second:?}");
        let in_tree = done.nodes.iter().map(|node| node.values[0][0]).sum::<u64>();
        assert_eq!(in_tree, 42);
    }

    #[test]
    fn calls_and_returns_make_a_tree() {
        let mut recorder = Recorder::new([Values::default()]);
        let main = recorder.site(1, 0x1000, &[NOP, BL], &[0, 1], 2);
        let rest = recorder.site(1, 0x1008, &[BL], &[0], 1);
        let callee = recorder.site(1, 0x2000, &[RET], &[0], 1);
        let exception = recorder.site(2, 0x8400, &[NOP], &[0], 1);
        let mut now = Values::default();
        let blocks = [
            (main, 2),
            (exception, 9),
            (callee, 3),
            (rest, 1),
            (callee, 5),
            (main, 1),
        ];
        for (site, cycles) in blocks {
            recorder.enter(0, site, site == exception);
            now[0] += cycles;
            recorder.charge_block(0, &now);
        }
        let done = recorder.finish(1000, region());
        let of = |node: &Node| {
            (
                node.parent,
                node.call,
                node.callee,
                node.calls[0],
                node.values[0][0],
            )
        };
        let nodes: Vec<_> = done.nodes.iter().map(of).collect();
        assert_eq!(
            nodes,
            [
                (None, 0x1000, Some(0x1000), 2, 4),
                (None, 0x8400, Some(0x8400), 1, 9),
                (Some(0), 0x1004, Some(0x2000), 1, 3),
                // It returns to no known place, which begins another chain.
                (Some(0), 0x1008, Some(0x2000), 1, 5),
            ]
        );
    }

    #[test]
    fn waiting_and_counting_are_told_apart() {
        let mut recorder = Recorder::new([Values::default()]);
        let block = recorder.site(2, 0x1000, &[NOP], &[0], 1);
        recorder.enter(0, block, false);
        recorder.charge_block(0, &[1, 1, 0, 0, 0, 0, 0, 0]);
        recorder.waits(0, &[50, 1, 0, 0, 0, 0, 0, 0], false);
        recorder.set_counting(0, true);
        recorder.charge_block(0, &[60, 1, 0, 0, 0, 2, 0, 0]);
        let done = recorder.finish(1000, region());
        let of = |place: &Place| (place.counted, place.address, place.values[0]);
        let places: Vec<_> = done.places.iter().map(of).collect();
        assert_eq!(
            places,
            [
                (false, None, 49),
                (false, Some(0x1000), 1),
                (true, Some(0x1000), 10)
            ]
        );
        let states: Vec<(u64, State)> =
            done.moments.iter().map(|it| (it.cycle, it.state)).collect();
        use State::{Hypervisor, HypervisorWaits};
        assert_eq!(
            states,
            [
                (0, Hypervisor),
                (1, HypervisorWaits(0x1000)),
                (50, Hypervisor)
            ]
        );
    }
}
