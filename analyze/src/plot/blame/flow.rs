//! The graph of who waited for whom: shares of waits enter, a graph of two layers leaves, with the waiters in one and the holders in the other.
//!
//! A wait is selected or not at its end, so until then its shares are kept apart.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use intervals::{
    input::names::Names,
    input::selection::Selection,
    items::{Columns, Item, Needs, Share, Sink, Wait},
};
use tables::key::{Key, RowKey};

/// The most nodes of a layer. With more, the last one is for all others.
pub const MAX_NODES: usize = 12;

/// A graph of two layers. The time of the links is all waiting time, and that of the nodes of either layer, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The waiters, the longest time first.
    pub waiters: Vec<Node>,
    /// The holders that they waited for, the longest time first.
    pub holders: Vec<Node>,
    /// The time that a waiter waited for a holder, in the order of waiters, then of holders.
    pub links: Vec<Link>,
}

/// A waiter or a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The tasks or the code that it stands for.
    pub party: Party,
    /// Its name; safe to print.
    pub name: String,
    /// The sum of its links, in ns.
    pub ns: i64,
}

/// The subject of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// One task, or one place in the code.
    One,
    /// This many that have no node of their own.
    More(usize),
    /// No task: the lock was free, and the next waiter was not running yet.
    Handoff,
    /// No recorded hold.
    Unknown,
}

/// The time that one waiter waited for one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The index of the waiter.
    pub waiter: usize,
    /// The index of the holder.
    pub holder: usize,
    /// The time, in ns.
    pub ns: i64,
}

/// The end of a link, before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Row(RowKey),
    Handoff,
    Unknown,
}

/// A waiter and a holder: the tasks, and the code.
type Pair = [(End, End); 2];

/// Adds up the shares of waits by waiter and holder.
pub(super) struct Pairs<'a> {
    names: &'a Names,
    selection: &'a Selection,
    /// The shares of waits that have not ended.
    open: FxHashMap<(LockId, TaskId), Vec<(Pair, i64)>>,
    sums: [BTreeMap<(End, End), i64>; 2],
}

impl<'a> Pairs<'a> {
    pub(super) fn new(names: &'a Names, selection: &'a Selection) -> Self {
        Self { names, selection, open: FxHashMap::default(), sums: Default::default() }
    }

    /// Returns the graph of the tasks and that of the code.
    pub(super) fn finish(self) -> (Flow, Flow) {
        let Self { names, sums: [tasks, code], .. } = self;
        (flow(&tasks, names), flow(&code, names))
    }

    fn site(&self, lock: LockId, stack: Option<trace_format::StackId>) -> End {
        End::Row(RowKey::Site(self.names.point_number(lock, stack), self.names.class_number(lock)))
    }

    /// Returns the ends of a link. `holder` is the task and the code.
    fn pair(&self, wait: &Wait, holder: (End, End)) -> Pair {
        let waiter = End::Row(RowKey::Task(wait.task));
        [(waiter, holder.0), (self.site(wait.lock, wait.stack), holder.1)]
    }

    fn add(&mut self, pair: Pair, ns: i64) {
        for (sums, ends) in self.sums.iter_mut().zip(pair) {
            let sum = sums.entry(ends).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
}

impl Sink for Pairs<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Wait(wait) => self.wait(wait),
            Item::Share(wait, share) => self.share(wait, share),
            _ => {}
        }
    }
}

impl Pairs<'_> {
    fn wait(&mut self, wait: &Wait) {
        let shares = self.open.get_mut(&(wait.lock, wait.task)).map(std::mem::take);
        if !self.selection.selects_wait(wait) {
            return;
        }
        for (pair, ns) in shares.into_iter().flatten() {
            self.add(pair, ns);
        }
        if wait.gap_ns.is_none() {
            let task = wait.owner.map_or(End::Unknown, |owner| End::Row(RowKey::Task(owner)));
            self.add(self.pair(wait, (task, End::Unknown)), wait.wait_ns);
        }
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        let holder = match (share.payer, wait.owner) {
            (Some(payer), _) => (End::Row(RowKey::Task(payer.task)), self.site(wait.lock, payer.stack)),
            (None, Some(owner)) if share.is_owners(wait) => (End::Row(RowKey::Task(owner)), End::Unknown),
            (None, _) if share.free => (End::Handoff, End::Handoff),
            (None, _) => (End::Unknown, End::Unknown),
        };
        let pair = self.pair(wait, holder);
        let open = self.open.entry((wait.lock, wait.task)).or_default();
        match open.iter_mut().find(|(other, _)| *other == pair) {
            Some((_, ns)) => *ns = ns.saturating_add(share.ns),
            None => open.push((pair, share.ns)),
        }
    }
}

fn flow(sums: &BTreeMap<(End, End), i64>, names: &Names) -> Flow {
    let (waiters, waiter_of) = layer(sums.iter().map(|((waiter, _), ns)| (*waiter, *ns)), names);
    let (holders, holder_of) = layer(sums.iter().map(|((_, holder), ns)| (*holder, *ns)), names);
    let mut links: BTreeMap<(usize, usize), i64> = BTreeMap::new();
    for ((waiter, holder), ns) in sums.iter().filter(|(_, ns)| **ns > 0) {
        let at = |index: &FxHashMap<End, usize>, end: &End, nodes: &[Node]| {
            index.get(end).copied().unwrap_or(nodes.len().saturating_sub(1))
        };
        let ends = (at(&waiter_of, waiter, &waiters), at(&holder_of, holder, &holders));
        let sum = links.entry(ends).or_default();
        *sum = sum.saturating_add(*ns);
    }
    let links = links.into_iter().map(|((waiter, holder), ns)| Link { waiter, holder, ns }).collect();
    Flow { waiters, holders, links }
}

/// Returns the nodes of a layer, and the index of each that has a node of its own.
fn layer(ends: impl Iterator<Item = (End, i64)>, names: &Names) -> (Vec<Node>, FxHashMap<End, usize>) {
    let mut sums: BTreeMap<End, i64> = BTreeMap::new();
    for (end, ns) in ends {
        let sum = sums.entry(end).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut sums: Vec<(End, i64)> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
    sums.sort_by_key(|(end, ns)| (Reverse(*ns), *end));
    let shown = if sums.len() > MAX_NODES { MAX_NODES - 1 } else { sums.len() };
    let node = |(end, ns): &(End, i64)| {
        let (party, name) = match end {
            End::Row(row) => (Party::One, Key::of(*row, names).label(names)),
            End::Handoff => (Party::Handoff, "no task: hand-off".to_owned()),
            End::Unknown => (Party::Unknown, "holder not recorded".to_owned()),
        };
        Node { party, name, ns: *ns }
    };
    let mut nodes: Vec<Node> = sums.iter().take(shown).map(node).collect();
    let index = sums.iter().take(shown).enumerate().map(|(at, (end, _))| (*end, at)).collect();
    let more = sums.len() - shown;
    if more > 0 {
        let ns = sums.iter().skip(shown).fold(0, |sum: i64, (_, ns)| sum.saturating_add(*ns));
        nodes.push(Node { party: Party::More(more), name: format!("{more} more"), ns });
    }
    (nodes, index)
}
