//! The graph of who waited for whom: the waiters in one layer, the holders in the other, and the shares of waits between them.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use crate::charges::{Charges, Payee, add};
use intervals::{
    input::names::Names,
    input::selection::Selection,
    items::{Columns, Item, Needs, Sink},
};
use tables::key::Single;

/// The most nodes of a layer. With more, the last one is for all others.
pub const MAX_NODES: usize = 12;

/// A graph of two layers. The times of the links add up to all waiting time, and so do the times of the nodes of either layer.
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
    Row(Single),
    Handoff,
    Unknown,
}

/// Waiting time by waiter and holder.
type Sums = BTreeMap<(End, End), i64>;

/// Adds up the shares of waits by waiter and holder.
pub(super) struct Pairs<'a> {
    names: &'a Names,
    selection: &'a Selection,
    charges: Charges,
    /// The tasks, and the code.
    sums: [Sums; 2],
}

impl<'a> Pairs<'a> {
    pub(super) fn new(names: &'a Names, selection: &'a Selection) -> Self {
        Self { names, selection, charges: Charges::default(), sums: Default::default() }
    }

    /// Returns the graphs of the tasks and of the code.
    pub(super) fn finish(self) -> [Flow; 2] {
        self.sums.map(|sums| flow(&sums, self.names))
    }

    fn site(&self, lock: LockId, stack: Option<StackId>) -> End {
        End::Row(Single::Site(self.names.point_number(lock, stack), self.names.class_number(lock)))
    }
}

impl Sink for Pairs<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        let parts = self.charges.push(item);
        let Item::Wait(wait) = item else { return };
        if !self.selection.selects_wait(wait) {
            return;
        }
        let task = |task| End::Row(Single::Task(task));
        let waiter = [task(wait.task), self.site(wait.lock, wait.stack)];
        for (payee, ns) in parts {
            let holder = match payee {
                Payee::Hold(stack, by) => [task(by), self.site(wait.lock, stack)],
                Payee::Owner(by) => [task(by), End::Unknown],
                Payee::Handoff => [End::Handoff; 2],
                Payee::Gap | Payee::Unknown => [End::Unknown; 2],
            };
            for ((sums, waiter), holder) in self.sums.iter_mut().zip(waiter).zip(holder) {
                add(sums.entry((waiter, holder)).or_default(), ns);
            }
        }
    }
}

fn flow(sums: &Sums, names: &Names) -> Flow {
    let (waiters, waiter_of) = layer(sums.iter().map(|((waiter, _), ns)| (*waiter, *ns)), names);
    let (holders, holder_of) = layer(sums.iter().map(|((_, holder), ns)| (*holder, *ns)), names);
    let mut links: BTreeMap<(usize, usize), i64> = BTreeMap::new();
    for ((waiter, holder), ns) in sums.iter().filter(|(_, ns)| **ns > 0) {
        // Those without a node of their own are in the last one.
        let at = |index: &FxHashMap<End, usize>, end: &End| index.get(end).copied().unwrap_or(MAX_NODES - 1);
        add(links.entry((at(&waiter_of, waiter), at(&holder_of, holder))).or_default(), *ns);
    }
    let links = links.into_iter().map(|((waiter, holder), ns)| Link { waiter, holder, ns }).collect();
    Flow { waiters, holders, links }
}

/// Returns the nodes of a layer, and the index of each that has a node of its own.
fn layer(ends: impl Iterator<Item = (End, i64)>, names: &Names) -> (Vec<Node>, FxHashMap<End, usize>) {
    let mut sums: BTreeMap<End, i64> = BTreeMap::new();
    ends.for_each(|(end, ns)| add(sums.entry(end).or_default(), ns));
    let mut sums: Vec<(End, i64)> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
    sums.sort_by_key(|(end, ns)| (Reverse(*ns), *end));
    let shown = if sums.len() > MAX_NODES { MAX_NODES - 1 } else { sums.len() };
    let node = |(end, ns): &(End, i64)| {
        let (party, name) = match end {
            End::Row(row) => (Party::One, row.label(names)),
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
