//! The events of a VM's cores by function and line, and by chain of calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::symbols::{Location, Symbols};
use cloison_board_model::profile::{EVENTS, Node, Place, Recorded, Values};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Name of the time in which a core executes nothing.
pub const WAITS: &str = "[waits]";

/// The part of a run that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The guest, at EL1 and EL0.
    Guest,
    /// The guest while its counters count: in its segments, or what perf counts.
    Counted,
    /// The hypervisor on the VM's cores, at EL2.
    Hypervisor,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Guest, Self::Counted, Self::Hypervisor];

    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Counted => "counted",
            Self::Hypervisor => "hypervisor",
        }
    }
    /// Returns the ending of its files' names.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Guest => "",
            Self::Counted => ".counted",
            Self::Hypervisor => ".hypervisor",
        }
    }
    const fn has(self, level: u8, counted: bool) -> bool {
        match self {
            Self::Guest => level < 2,
            Self::Counted => level < 2 && counted,
            Self::Hypervisor => level >= 2,
        }
    }
    /// Returns a node's numbers of this part.
    fn of(self, node: &Node) -> (u64, Values) {
        let mut sum = (0, Values::default());
        for counted in [false, true] {
            if self.has(node.level, counted) {
                let at = usize::from(counted);
                sum.0 += node.calls[at];
                add(&mut sum.1, &node.values[at]);
            }
        }
        sum
    }
}

/// Adds counts. They are those of one run, whose sum the model has counted.
pub fn add(to: &mut Values, more: &Values) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(*more);
    }
}

/// A function: its name, and the file in which it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its file, if that is known.
    pub file: Option<Rc<str>>,
}

/// The events of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its address.
    pub address: u64,
    /// The file of its line.
    pub file: Option<Rc<str>>,
    /// The line, or 0.
    pub line: u32,
    /// Its own events.
    pub values: Values,
}

/// All calls from one instruction to one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Address of the call.
    pub address: u64,
    /// The line of the call, or 0.
    pub line: u32,
    /// The file of that line.
    pub file: Option<Rc<str>>,
    /// The function, its address and its line.
    pub callee: Function,
    /// Address of the callee.
    pub callee_address: u64,
    /// Line of the callee, or 0.
    pub callee_line: u32,
    /// Number of calls.
    pub calls: u64,
    /// Events in the callee and in what it calls.
    pub values: Values,
}

/// The events of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Its own.
    pub own: Values,
    /// By instruction, in the order of addresses.
    pub lines: Vec<Line>,
    /// Its calls, in the order of addresses.
    pub calls: Vec<Call>,
}

/// A chain of calls with the events of its last function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The functions from the first to the last.
    pub functions: Vec<String>,
    /// Events of the last one itself.
    pub values: Values,
}

/// The events of a part of a run.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Name of the program.
    pub object: String,
    /// By function.
    pub functions: BTreeMap<Function, Costs>,
    /// By chain of calls, in the order of names.
    pub chains: Vec<Chain>,
    /// All.
    pub totals: Values,
    /// Those in code whose function is not known.
    pub unnamed: Values,
}

impl Table {
    /// Adds up a part of the events of these cores.
    pub fn new(recorded: &Recorded, cores: &[usize], part: Part, symbols: &Symbols) -> Self {
        let mut names = Names::new(symbols);
        let mut table = Self {
            object: symbols.object.clone(),
            ..Self::default()
        };
        let is_wanted =
            |place: &&Place| cores.contains(&place.core) && part.has(place.level, place.counted);
        // An instruction may have been executed on several cores.
        let mut by_address: BTreeMap<Option<u64>, Values> = BTreeMap::new();
        for place in recorded.places.iter().filter(is_wanted) {
            add(by_address.entry(place.address).or_default(), &place.values);
        }
        for (address, values) in by_address {
            add(&mut table.totals, &values);
            let (function, location) = names.function(address);
            if !location.is_named {
                add(&mut table.unnamed, &values);
            }
            let costs = table.functions.entry(function).or_default();
            add(&mut costs.own, &values);
            costs.lines.push(Line {
                address: address.unwrap_or(0),
                file: location.file,
                line: location.line,
                values,
            });
        }
        table.add_calls(recorded, cores, part, &mut names);
        table
    }

    fn add_calls(
        &mut self,
        recorded: &Recorded,
        cores: &[usize],
        part: Part,
        names: &mut Names<'_>,
    ) {
        let nodes = &recorded.nodes;
        let mut inclusive: Vec<(u64, Values)> = nodes.iter().map(|node| part.of(node)).collect();
        for at in (0..nodes.len()).rev() {
            let values = inclusive[at].1;
            // A parent is before its children. A file that says otherwise has no chain there.
            if let Some(parent) = nodes[at].parent.filter(|parent| *parent < at) {
                add(&mut inclusive[parent].1, &values);
            }
        }
        let mut calls: BTreeMap<(u64, u64), (u64, Values)> = BTreeMap::new();
        let mut chains: BTreeMap<Vec<String>, Values> = BTreeMap::new();
        for (node, (times, values)) in nodes.iter().zip(&inclusive) {
            if !cores.contains(&node.core) || *values == Values::default() {
                continue;
            }
            let own = part.of(node).1;
            if own != Values::default() {
                add(chains.entry(chain(nodes, node, names)).or_default(), &own);
            }
            if let (Some(callee), Some(_)) = (node.callee, node.parent) {
                let sum = calls.entry((node.call, callee)).or_default();
                sum.0 += times;
                add(&mut sum.1, values);
            }
        }
        for ((address, callee_address), (calls, values)) in calls {
            let (caller, from) = names.function(Some(address));
            let (callee, to) = names.function(Some(callee_address));
            let costs = self.functions.entry(caller).or_default();
            costs.calls.push(Call {
                address,
                line: from.line,
                file: from.file,
                callee,
                callee_address,
                callee_line: to.line,
                calls,
                values,
            });
        }
        let chain = |(functions, values)| Chain { functions, values };
        self.chains = chains.into_iter().map(chain).collect();
    }

    /// Returns whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.totals == Values::default()
    }

    /// Returns each function's own events, by name.
    pub fn by_name(&self) -> BTreeMap<String, Values> {
        let mut sums: BTreeMap<String, Values> = BTreeMap::new();
        for (function, costs) in &self.functions {
            if costs.own != Values::default() {
                add(sums.entry(function.name.clone()).or_default(), &costs.own);
            }
        }
        sums
    }
}

/// Returns the functions from the first to a node's.
fn chain(nodes: &[Node], last: &Node, names: &mut Names<'_>) -> Vec<String> {
    let mut functions = Vec::new();
    let mut node = Some(last);
    while let Some(one) = node {
        functions.push(names.function(one.callee).0.name);
        let before = one.parent.filter(|_| functions.len() <= nodes.len());
        node = before.and_then(|parent| nodes.get(parent));
    }
    functions.reverse();
    functions
}

/// Names that were looked up.
struct Names<'a> {
    symbols: &'a Symbols,
    known: BTreeMap<u64, Location>,
    /// The file in which a function begins, by its name.
    files: BTreeMap<String, Option<Rc<str>>>,
}

impl<'a> Names<'a> {
    fn new(symbols: &'a Symbols) -> Self {
        Self {
            symbols,
            known: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Returns the function and the line of an instruction; of none, of the time that a core waits.
    fn function(&mut self, address: Option<u64>) -> (Function, Location) {
        let Some(address) = address else {
            let location = Location {
                function: WAITS.to_owned(),
                is_named: true,
                ..Location::default()
            };
            let name = WAITS.to_owned();
            return (Function { name, file: None }, location);
        };
        let location = self
            .known
            .entry(address)
            .or_insert_with(|| self.symbols.at(address))
            .clone();
        let name = location.function.clone();
        let file = match self.files.get(&name) {
            Some(file) => file.clone(),
            None => {
                let file = self
                    .symbols
                    .file_of(address)
                    .or_else(|| location.file.clone());
                self.files.insert(name.clone(), file.clone());
                file
            }
        };
        (Function { name, file }, location)
    }
}

/// Returns an event's place in [`EVENTS`], by its name.
pub fn event(name: &str) -> Option<usize> {
    EVENTS.iter().position(|event| event.name() == name)
}
