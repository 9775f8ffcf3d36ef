//! The graph of who waited for whom: the waiters in one layer, the holders in the other, and the shares of
//! waits between them.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use crate::charges::{Payee, add};
use intervals::{
    input::names::Names,
    input::selection::Selection,
    items::{Columns, Item, Needs, Payer, Sink},
    shares::{Account, ShareSums, WaitShares},
};
use tables::key::Single;

/// The most nodes of a layer. With more, the last one is for all others.
pub const MAX_NODES: usize = 12;

/// A graph of two layers. The times of the links add up to all waiting time, and so do the times of the nodes
/// of either layer.
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
pub(super) enum End {
    Row(Single),
    Handoff,
    Unknown,
}

/// The tasks, and the code.
type OfBoth<T> = [T; 2];
type Parties = Payee<Option<StackId>, TaskId>;

/// Waiting time of the ends of a layer. It tells which have nodes of their own before any link is added up: a
/// lock for which thousands of tasks wait has millions of links.
pub(super) type Sums = OfBoth<FxHashMap<End, i64>>;

/// Returns the ends for a party.
fn ends(names: &Names, lock: LockId, party: Parties) -> OfBoth<End> {
    let task = |by| End::Row(Single::Task(by));
    match party {
        Payee::Hold(stack, by) => {
            let site = Single::Site(names.point_number(lock, stack), names.class_number(lock));
            [task(by), End::Row(site)]
        }
        Payee::Owner(by) => [task(by), End::Unknown],
        Payee::Handoff => [End::Handoff; 2],
        Payee::Gap | Payee::Unknown => [End::Unknown; 2],
    }
}

/// Adds time of a party.
pub(super) fn add_to(sums: &mut Sums, names: &Names, lock: LockId, (party, ns): (Parties, i64)) {
    sums.iter_mut()
        .zip(ends(names, lock, party))
        .for_each(|(sums, end)| add(sums.entry(end).or_default(), ns));
}

/// The nodes of a layer, and the index of each.
#[derive(Default)]
struct Layer {
    nodes: Vec<Node>,
    index: FxHashMap<End, usize>,
    /// The number of those without a node of their own.
    more: usize,
}

impl Layer {
    fn new(sums: FxHashMap<End, i64>, names: &Names) -> Self {
        let mut sums: Vec<(End, i64)> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
        sums.sort_unstable_by_key(|(end, ns)| (Reverse(*ns), *end));
        let shown = if sums.len() > MAX_NODES { MAX_NODES - 1 } else { sums.len() };
        let more = sums.len() - shown;
        sums.truncate(shown);
        let node = |(end, _): &(End, i64)| {
            let (party, name) = match end {
                End::Row(row) => (Party::One, row.label(names)),
                End::Handoff => (Party::Handoff, "no task: hand-off".to_owned()),
                End::Unknown => (Party::Unknown, "holder not recorded".to_owned()),
            };
            Node { party, name, ns: 0 }
        };
        let nodes = sums.iter().map(node).collect();
        Self { nodes, index: sums.iter().enumerate().map(|(at, (end, _))| (*end, at)).collect(), more }
    }

    /// Returns the index of an end's node, or of the node behind all others.
    fn at(&self, end: End) -> usize {
        self.index.get(&end).copied().unwrap_or(self.nodes.len())
    }

    /// Returns the nodes, with the time of each.
    fn finish(self, times: impl Iterator<Item = (usize, i64)>) -> Vec<Node> {
        let Self { mut nodes, more, .. } = self;
        let more = more.max(1);
        nodes.push(Node { party: Party::More(more), name: format!("{more} more"), ns: 0 });
        times.for_each(|(at, ns)| add(&mut nodes[at].ns, ns));
        nodes.pop_if(|rest| rest.ns == 0);
        nodes
    }
}

/// A graph whose links are being added up.
struct Graph {
    waiters: Layer,
    holders: Layer,
    links: BTreeMap<(usize, usize), i64>,
}

impl Graph {
    fn finish(self) -> Flow {
        let links = self.links.into_iter().filter(|(_, ns)| *ns > 0);
        let links: Vec<Link> = links.map(|((waiter, holder), ns)| Link { waiter, holder, ns }).collect();
        let waiters = self.waiters.finish(links.iter().map(|link| (link.waiter, link.ns)));
        let holders = self.holders.finish(links.iter().map(|link| (link.holder, link.ns)));
        Flow { waiters, holders, links }
    }
}

/// Adds up the shares of waits by waiter and holder.
pub(super) struct Pairs<'a> {
    selection: &'a Selection,
    waits: WaitShares<Graphs<'a>>,
}

/// The graphs of the tasks and of the code.
struct Graphs<'a> {
    names: &'a Names,
    graphs: OfBoth<Graph>,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(names: &'a Names, selection: &'a Selection, waiters: Sums, holders: Sums) -> Self {
        let [mut waiters, mut holders] =
            [waiters, holders].map(|sums| sums.map(|sums| Layer::new(sums, names)).into_iter());
        let graphs = std::array::from_fn(|_| Graph {
            waiters: waiters.next().unwrap_or_default(),
            holders: holders.next().unwrap_or_default(),
            links: BTreeMap::new(),
        });
        Self { selection, waits: WaitShares::new(Graphs { names, graphs }) }
    }

    /// Returns the graphs of the tasks and of the code.
    pub(super) fn finish(self) -> [Flow; 2] {
        self.waits.account.graphs.map(Graph::finish)
    }
}

impl Graphs<'_> {
    fn nodes(&self, lock: LockId, party: Parties, layer: impl Fn(&Graph) -> &Layer) -> OfBoth<usize> {
        let [of_tasks, of_code] = ends(self.names, lock, party);
        let [tasks, code] = &self.graphs;
        [layer(tasks).at(of_tasks), layer(code).at(of_code)]
    }
}

impl Account for Graphs<'_> {
    /// The index of the node in each graph.
    type Waiter = OfBoth<usize>;
    type Payer = OfBoth<usize>;

    fn payer(&self, lock: LockId, payer: Payer) -> OfBoth<usize> {
        self.nodes(lock, payer.into(), |graph| &graph.holders)
    }

    fn add(&mut self, _: LockId, waiter: OfBoth<usize>, holder: OfBoth<usize>, shares: ShareSums) {
        for (graph, ends) in self.graphs.iter_mut().zip(waiter.into_iter().zip(holder)) {
            add(graph.links.entry(ends).or_default(), shares.ns);
        }
    }
}

impl Sink for Pairs<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        let Item::Wait(wait) = item else { return self.waits.push(item) };
        let graphs = &self.waits.account;
        let waiter = self
            .selection
            .selects_wait(wait)
            .then(|| graphs.nodes(wait.lock, Payee::Hold(wait.stack, wait.task), |graph| &graph.waiters));
        self.waits.end(wait, waiter);
        if let Some(waiter) = waiter.filter(|_| wait.gap_ns.is_none()) {
            let graphs = &mut self.waits.account;
            let holder = graphs.payer(wait.lock, wait.owner.map_or(Payer::Unknown, Payer::Owner));
            graphs.add(wait.lock, waiter, holder, ShareSums::one(wait.wait_ns));
        }
    }
}
