//! The search for cycles of lock orders.
//!
//! The search finds each cycle once, the shortest first. A cycle begins with its smallest lock.

use std::ops::Range;

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use super::{
    collect::Collected,
    dependency::{Acquisition, Example},
    graph::{Edge, cyclic_edges},
    lifetimes::Lifetimes,
    node::{Node, Nodes},
    verdict::{CycleCounts, Judge, Verdict},
};
use crate::engine::deadlock::{Deadlock, Has, Member};

/// The most inversions that are searched for, and the most other cycles that are kept.
pub(super) const MAX_CYCLES: usize = 1000;
/// The most edges that are followed in all.
const MAX_STEPS: u64 = 20_000_000;

/// One order of two locks in a cycle: the wanted lock of a step is the held one of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleStep {
    pub held: Acquisition,
    pub wanted: Acquisition,
    /// The stacks of the first time.
    pub held_stack: Option<StackId>,
    pub wanted_stack: Option<StackId>,
    /// The number of times that a task wanted the one lock while it held the other.
    pub count: u64,
    /// The tasks that did, sorted.
    pub tasks: Vec<TaskId>,
}

/// A cycle of lock orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub verdict: Verdict,
    pub steps: Vec<CycleStep>,
    /// Whether tasks were in this deadlock when the trace ended.
    pub has_deadlocked: bool,
}

/// The cycles of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundCycles {
    /// The shortest first.
    pub cycles: Vec<Cycle>,
    pub counts: CycleCounts,
    /// Whether the search ended before all cycles were found.
    pub is_cut: bool,
}

/// Returns the cycles of at most `length` locks.
pub fn search(collected: &Collected, nodes: &Nodes<'_>, lifetimes: &Lifetimes, length: usize) -> FoundCycles {
    let dependencies = &collected.dependencies;
    let edges = cyclic_edges(dependencies, nodes);
    let judge = Judge { dependencies, edges: &edges, properties: nodes, lifetimes };
    let mut search = Search::new(judge, &collected.deadlocks);
    for length in 2..=length {
        let starts = search.nodes.clone();
        for start in starts {
            let distances = search.distances(start, length);
            if distances.len() > 1 {
                search.extend(start, length, &distances, &mut Vec::new());
            }
        }
    }
    search.found
}

struct Search<'a> {
    judge: Judge<'a>,
    deadlocks: &'a [Deadlock],
    /// All nodes with edges, sorted.
    nodes: Vec<Node>,
    /// By held lock: its edges.
    from: FxHashMap<Node, Range<usize>>,
    /// By wanted lock: the locks that were held.
    before: FxHashMap<Node, Vec<Node>>,
    steps_left: u64,
    others: usize,
    found: FoundCycles,
}

impl<'a> Search<'a> {
    fn new(judge: Judge<'a>, deadlocks: &'a [Deadlock]) -> Self {
        let (mut nodes, mut from, mut before) = (Vec::new(), FxHashMap::default(), FxHashMap::default());
        for (at, edge) in judge.edges.iter().enumerate() {
            let (held, wanted) = (edge.held.node, edge.wanted.node);
            let range = from.entry(held).or_insert(at..at);
            range.end = at + 1;
            if nodes.last() != Some(&held) {
                nodes.push(held);
            }
            let before: &mut Vec<Node> = before.entry(wanted).or_default();
            if before.last() != Some(&held) {
                before.push(held);
            }
        }
        let (steps_left, others, found) = (MAX_STEPS, 0, FoundCycles::default());
        Self { judge, deadlocks, nodes, from, before, steps_left, others, found }
    }

    /// Returns the number of edges from each node to `start`, through later nodes only, if it is less than
    /// `length`.
    fn distances(&self, start: Node, length: usize) -> FxHashMap<Node, usize> {
        let mut distances = FxHashMap::from_iter([(start, 0)]);
        let mut last = vec![start];
        for distance in 1..length {
            let mut next = Vec::new();
            for node in last.iter().filter_map(|node| self.before.get(node)).flatten() {
                if *node > start && !distances.contains_key(node) {
                    distances.insert(*node, distance);
                    next.push(*node);
                }
            }
            last = next;
        }
        distances
    }

    /// Follows the edges behind `path` until they lead back to `start`, which is the smallest node of the
    /// cycle, after `length` edges.
    fn extend(
        &mut self,
        start: Node,
        length: usize,
        distances: &FxHashMap<Node, usize>,
        path: &mut Vec<usize>,
    ) {
        let node = path.last().map_or(start, |edge| self.judge.edges[*edge].wanted.node);
        let left = length - path.len() - 1;
        let edges = self.from.get(&node).cloned().unwrap_or_default();
        for at in if left == 0 { self.edges_to(start, edges) } else { edges } {
            if self.is_done() {
                return;
            }
            self.steps_left -= 1;
            let to = self.judge.edges[at].wanted.node;
            let is_near = distances.get(&to).is_some_and(|distance| *distance <= left);
            let is_on_path = path.iter().any(|edge| self.judge.edges[*edge].wanted.node == to);
            if !is_near || is_on_path || (to == start) != (left == 0) {
                continue;
            }
            path.push(at);
            if left == 0 {
                self.add(path)
            } else {
                self.extend(start, length, distances, path)
            }
            path.pop();
        }
    }

    fn edges_to(&self, node: Node, edges: Range<usize>) -> Range<usize> {
        let sorted = &self.judge.edges[edges.clone()];
        let first = sorted.partition_point(|edge| edge.wanted.node < node);
        let last = sorted.partition_point(|edge| edge.wanted.node <= node);
        edges.start + first..edges.start + last
    }

    fn is_done(&mut self) -> bool {
        let is_done = self.steps_left == 0 || self.found.counts.inversions >= MAX_CYCLES as u64;
        self.found.is_cut |= is_done;
        is_done
    }

    /// Adds a cycle, if the filter selects one of its steps.
    fn add(&mut self, path: &[usize]) {
        let variants = |edge: &usize| self.judge.edges[*edge].variants.iter();
        let mut ids = path.iter().flat_map(variants).map(|(id, _)| *id);
        if !ids.any(|id| self.judge.dependencies[id as usize].is_selected) {
            return;
        }
        let (verdict, is_cut) = self.judge.verdict(path);
        self.found.is_cut |= is_cut;
        self.found.counts.add(verdict);
        if !verdict.is_inversion() {
            if self.others == MAX_CYCLES {
                return;
            }
            self.others += 1;
        }
        let steps: Vec<CycleStep> = path.iter().map(|edge| self.step(&self.judge.edges[*edge])).collect();
        let has_deadlocked = verdict.is_inversion()
            && self.deadlocks.iter().any(|deadlock| self.is_deadlock(&steps, deadlock));
        self.found.cycles.push(Cycle { verdict, steps, has_deadlocked });
    }

    fn step(&self, edge: &Edge) -> CycleStep {
        let (mut count, mut tasks) = (0, Vec::new());
        let (mut held_stack, mut wanted_stack) = (None, None);
        for (id, at) in &edge.variants {
            let dependency = &self.judge.dependencies[*id as usize];
            let Example { stack, .. } = dependency.held[*at];
            (held_stack, wanted_stack) = (held_stack.or(stack), wanted_stack.or(dependency.wanted.stack));
            count += dependency.count;
            tasks.extend_from_slice(&dependency.tasks);
        }
        tasks.sort_unstable();
        tasks.dedup();
        CycleStep { held: edge.held, wanted: edge.wanted, held_stack, wanted_stack, count, tasks }
    }

    /// Returns whether the members of a deadlock hold and want these locks, taken at these sites.
    fn is_deadlock(&self, steps: &[CycleStep], deadlock: &Deadlock) -> bool {
        let is = |acquisition: Acquisition, lock: LockId, stack: Option<StackId>| {
            let node = acquisition.node;
            let is_node = node == Node::Lock(lock) || node == self.judge.properties.of(lock);
            is_node && acquisition.site == self.judge.properties.site(lock, stack)
        };
        let has_step = |Member { has, wants }: &Member| {
            let Has::Hold(held) = has else { return false };
            let is_it = |step: &&CycleStep| {
                is(step.held, held.lock, held.stack) && is(step.wanted, wants.lock, wants.stack)
            };
            steps.iter().any(|step| is_it(&step))
        };
        steps.len() == deadlock.members.len() && deadlock.members.iter().all(has_step)
    }
}
