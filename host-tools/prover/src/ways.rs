//! Which blocks of EL2 an exception of a guest can lead to: along branches, calls, and addresses of
//! functions that code or data name, but not to what ends in a panic in any case.
//!
//! In doubt there is a way: a branch to a computed address may lead to each block of its function,
//! and a function whose address is named may be called.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Whether guests can make EL2 run a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// An exception of a guest may lead there.
    #[default]
    Guests,
    /// Each path from there ends in a panic, or in the report of another fault of EL2.
    Fault,
    /// No path leads there from the vectors for exceptions of guests.
    NoWay,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// At one of the successors.
    #[default]
    Successors,
    /// At the caller.
    Return,
    /// At an address that is computed.
    Computed,
    /// Nowhere in EL2: it enters a guest or waits for good.
    Never,
}

/// A block with what follows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Address of its first instruction.
    pub start: u64,
    /// Address of the function that holds it.
    pub function: u64,
    /// The blocks that may follow.
    pub successors: Vec<u64>,
    /// The functions that it calls.
    pub calls: Vec<u64>,
    /// Addresses of code and data that it makes.
    pub named: Vec<u64>,
    /// How it ends.
    pub end: End,
}

/// The data of an image that may hold addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    /// Words by their address.
    pub words: BTreeMap<u64, u64>,
    /// Where objects begin: the addresses that code or words name.
    objects: BTreeSet<u64>,
}

impl Data {
    /// Learns where objects begin from the addresses that are made.
    pub fn divide(&mut self, named: impl Iterator<Item = u64>) {
        let words = self.words.values().copied();
        self.objects = words.chain(named).filter(|at| self.holds(*at)).collect();
    }

    fn holds(&self, address: u64) -> bool {
        let ends = self
            .words
            .first_key_value()
            .zip(self.words.last_key_value());
        ends.is_some_and(|((first, _), (last, _))| (*first..*last + 8).contains(&address))
    }

    /// Returns the words of the object that holds an address, with where it begins.
    fn object(&self, address: u64) -> Option<(u64, impl Iterator<Item = u64>)> {
        if !self.holds(address) {
            return None;
        }
        let start = self.objects.range(..=address).next_back();
        let start = start.copied().unwrap_or(0);
        let next = self.objects.range(address + 1..).next();
        let end = next.copied().unwrap_or(u64::MAX);
        Some((start, self.words.range(start..end).map(|(_, word)| *word)))
    }
}

/// The blocks of an image, and what leads from one to the other.
struct Graph<'a> {
    nodes: &'a [Node],
    at: HashMap<u64, usize>,
    predecessors: Vec<Vec<usize>>,
    of_function: HashMap<u64, Vec<usize>>,
    /// Functions that may return.
    returning: HashSet<u64>,
}

impl<'a> Graph<'a> {
    fn new(nodes: &'a [Node]) -> Self {
        let at: HashMap<u64, usize> = (0..).zip(nodes).map(|(i, node)| (node.start, i)).collect();
        let mut of_function: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            of_function.entry(node.function).or_default().push(index);
        }
        let mut graph = Self {
            nodes,
            at,
            predecessors: vec![Vec::new(); nodes.len()],
            of_function,
            returning: HashSet::new(),
        };
        for index in 0..nodes.len() {
            for next in graph.next(index) {
                graph.predecessors[next].push(index);
            }
        }
        // The calls that return decide which functions do, and the other way round.
        loop {
            let found = graph.returns();
            if found.len() == graph.returning.len() {
                return graph;
            }
            graph.returning = found;
        }
    }

    /// Returns the blocks that may follow one, if its calls return.
    fn next(&self, index: usize) -> Vec<usize> {
        let node = &self.nodes[index];
        match node.end {
            End::Computed => self.of_function[&node.function].clone(),
            _ => node
                .successors
                .iter()
                .filter_map(|next| self.at.get(next))
                .copied()
                .collect(),
        }
    }

    /// Returns whether a block is left at its end: a call in it may not return.
    fn is_left(&self, index: usize) -> bool {
        let mut calls = self.nodes[index].calls.iter();
        calls.all(|to| self.returning.contains(to) || !self.at.contains_key(to))
    }

    /// Returns the functions from whose entry a return can be reached, by what is known so far.
    fn returns(&self) -> HashSet<u64> {
        let ends = |index: &usize| {
            matches!(self.nodes[*index].end, End::Return | End::Computed) && self.is_left(*index)
        };
        let mut work: Vec<usize> = (0..self.nodes.len()).filter(ends).collect();
        let mut seen: HashSet<usize> = work.iter().copied().collect();
        while let Some(index) = work.pop() {
            for &before in &self.predecessors[index] {
                if self.is_left(before) && seen.insert(before) {
                    work.push(before);
                }
            }
        }
        // A branch to another function's first block is a call, too: any block may be one's entry.
        seen.iter().map(|index| self.nodes[*index].start).collect()
    }

    /// Returns which blocks end in a fault, whatever path is taken. A loop does not.
    fn faults(&self, reports: &HashSet<u64>) -> Vec<bool> {
        let is_report = |node: &Node| reports.contains(&node.function);
        let mut faults: Vec<bool> = self.nodes.iter().map(is_report).collect();
        loop {
            let mut is_new = false;
            for index in (0..self.nodes.len())
                .rev()
                .filter(|index| !is_report(&self.nodes[*index]))
            {
                let node = &self.nodes[index];
                let calls = || {
                    node.calls
                        .iter()
                        .any(|to| self.at.get(to).is_some_and(|to| faults[*to]))
                };
                let follows = || {
                    let next = &node.successors;
                    node.end == End::Successors
                        && self.is_left(index)
                        && !next.is_empty()
                        && next
                            .iter()
                            .all(|to| self.at.get(to).is_some_and(|to| faults[*to]))
                };
                if !faults[index] && (calls() || follows()) {
                    faults[index] = true;
                    is_new = true;
                }
            }
            if !is_new {
                return faults;
            }
        }
    }

    /// Returns which blocks a path leads to from `roots`, without those that end in a fault.
    fn reached(&self, roots: &[u64], data: &Data, faults: &[bool]) -> Vec<bool> {
        let mut seen = vec![false; self.nodes.len()];
        let mut objects = HashSet::new();
        let mut work = roots.to_vec();
        while let Some(address) = work.pop() {
            if let Some((object, words)) = data.object(address) {
                if objects.insert(object) {
                    work.extend(words);
                }
                continue;
            }
            let Some(&index) = self.at.get(&address) else {
                continue;
            };
            if faults[index] || std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let node = &self.nodes[index];
            work.extend(&node.calls);
            work.extend(&node.named);
            if self.is_left(index) {
                work.extend(self.next(index).iter().map(|next| self.nodes[*next].start));
            }
        }
        seen
    }
}

/// Judges all blocks: `roots` are the vectors for exceptions of guests, `reports` the functions that
/// report a fault.
pub(crate) fn judge(
    nodes: &[Node],
    data: &Data,
    roots: &[u64],
    reports: &HashSet<u64>,
) -> Vec<Reach> {
    let graph = Graph::new(nodes);
    let faults = graph.faults(reports);
    let reached = graph.reached(roots, data, &faults);
    let judged = faults.iter().zip(&reached).map(|both| match both {
        (true, _) => Reach::Fault,
        (false, true) => Reach::Guests,
        (false, false) => Reach::NoWay,
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function that reports a fault.
    const REPORT: u64 = 900;
    /// Function that returns.
    const HELPER: u64 = 800;

    fn node(start: u64, function: u64, successors: &[u64], end: End) -> Node {
        Node {
            start,
            function,
            successors: successors.to_vec(),
            end,
            ..Node::default()
        }
    }

    fn calling(to: u64, node: Node) -> Node {
        Node {
            calls: vec![to],
            ..node
        }
    }

    /// Judges blocks beside the two functions, from the vector at 0.
    fn reach(nodes: &[Node], data: &Data) -> Vec<Reach> {
        let mut all = nodes.to_vec();
        all.push(node(HELPER, HELPER, &[], End::Return));
        all.push(node(REPORT, REPORT, &[REPORT], End::Successors));
        let mut judged = judge(&all, data, &[0], &HashSet::from([REPORT]));
        judged.truncate(nodes.len());
        judged
    }

    #[test]
    fn what_only_leads_to_a_report_is_a_fault() {
        let nodes = [
            node(0, 0, &[4, 8], End::Successors),
            calling(HELPER, node(4, 0, &[12], End::Successors)),
            node(8, 0, &[4, 16], End::Successors),
            calling(REPORT, node(12, 0, &[16], End::Successors)),
            node(16, 0, &[], End::Never),
        ];
        let (guests, fault) = (Reach::Guests, Reach::Fault);
        assert_eq!(
            reach(&nodes, &Data::default()),
            [guests, fault, guests, fault, guests]
        );
    }

    #[test]
    fn a_loop_is_no_fault_and_nothing_follows_a_call_that_does_not_return() {
        let nodes = [
            calling(20, node(0, 0, &[4], End::Successors)),
            calling(REPORT, node(4, 0, &[], End::Return)),
            node(20, 20, &[24], End::Successors),
            node(24, 20, &[20], End::Successors),
            // Nobody calls this.
            node(40, 40, &[], End::Return),
        ];
        let (guests, no_way) = (Reach::Guests, Reach::NoWay);
        let wanted = [guests, Reach::Fault, guests, guests, no_way];
        assert_eq!(reach(&nodes, &Data::default()), wanted);
        let mut nodes = nodes;
        nodes[1].calls.clear();
        assert_eq!(reach(&nodes, &Data::default())[1], no_way);
        nodes[3] = node(24, 20, &[], End::Return);
        assert_eq!(reach(&nodes, &Data::default())[1], guests);
    }

    #[test]
    fn addresses_in_data_and_computed_branches_lead_anywhere_they_may() {
        let mut nodes = [
            node(0, 0, &[], End::Never),
            node(20, 20, &[], End::Computed),
            node(24, 20, &[], End::Return),
            node(40, 40, &[], End::Return),
        ];
        nodes[0].named = vec![2000];
        // A table at 2000 with the function at 20, and one that nobody names with that at 40.
        let words = [(2000, 7), (2008, 20), (2016, 40)];
        let mut data = Data {
            words: BTreeMap::from(words),
            ..Data::default()
        };
        data.divide([2000, 2016].into_iter());
        let (guests, no_way) = (Reach::Guests, Reach::NoWay);
        assert_eq!(reach(&nodes, &data), [guests, guests, guests, no_way]);
        nodes[0].named = vec![2016];
        assert_eq!(reach(&nodes, &data), [guests, no_way, no_way, guests]);
    }
}
