//! The data of a picture of blame: the holders that others waited for, with the state of their tasks, and the
//! tasks and code that waited.
//!
//! The numbers equal the numbers of `klock blame`: each sum is of all waits, also of
//! those that did not end with the lock.

mod flow;

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use trace_format::{LockId, Trace};

pub use flow::{Flow, Link, MAX_NODES, Node, Party};

use crate::{
    charges::{Payee, add},
    plot::overview,
};
use intervals::{
    Filter,
    causes::{self, Followed},
    input::{Input, names::Names, selection::Selection},
    items::{Item, Payer, Sink, State},
};
use output::AnalyzeError;
use tables::{
    blame::{By, Charged, label},
    key::Single,
};

/// The holders and the waits for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Blame {
    /// The length of the part of the trace that was read, in ns.
    pub span_ns: i64,
    /// All waits, in ns: the sum of each of the next four.
    pub waited_ns: i64,
    /// The waits by lock.
    pub locks: Vec<Bar>,
    /// The waits by the site at which the lock was acquired.
    pub sites: Vec<Bar>,
    /// The tasks that waited, and the tasks that they waited for.
    pub tasks: Flow,
    /// The code that waited, and the code that had acquired the lock.
    pub code: Flow,
    /// The lines above the charts: deadlocks, loss, and idle waits that are left out.
    pub notes: Vec<String>,
}

/// Computes who waited for whom.
///
/// # Errors
///
/// The trace cannot be read or holds no events, or the filter finds nothing in it.
pub fn blame(trace: &Trace, filter: &Filter) -> Result<Blame, AnalyzeError> {
    let inputs = Input::open_all([trace], 0, filter)?;
    let [input] = &inputs[..] else { return Err(AnalyzeError::Empty { path: trace.paths().events.clone() }) };
    let Followed { receiver: holders, trust, .. } =
        causes::of_waits(input, true, || Holders::new(&input.names, &input.selection))?;
    let (locks, sites, [waiters, holders]) = holders.finish();
    let mut pairs = flow::Pairs::new(&input.names, &input.selection, waiters, holders);
    input.run(&mut pairs)?;
    let [tasks, code] = pairs.finish();
    Ok(Blame {
        span_ns: overview::recorded_span_ns(trace, filter),
        waited_ns: tasks.links.iter().fold(0, |sum, link| sum.saturating_add(link.ns)),
        locks,
        sites,
        tasks,
        code,
        notes: overview::notes(&trust),
    })
}

/// A lock or a site, and the waits for its holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its name; safe to print.
    pub name: String,
    /// The waits in ns, by what the holder did meanwhile.
    pub parts: Vec<(Meanwhile, i64)>,
}

/// The state of the holder while others waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meanwhile {
    /// Its task was in this state.
    Held(State),
    /// There was none: the lock was free, and the next waiter was not running yet.
    Handoff,
    /// It was not recorded.
    Unknown,
}

impl Bar {
    /// Returns all waits, in ns.
    pub fn ns(&self) -> i64 {
        self.parts.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }
}

/// A site of holders: the party that is charged, and the site or the class of the lock.
type Site = (Charged, Single);

/// Adds up the causes of waits.
struct Holders<'a> {
    names: &'a Names,
    selection: &'a Selection,
    locks: FxHashMap<(LockId, Meanwhile), i64>,
    sites: FxHashMap<(Site, Meanwhile), i64>,
    /// The parties that waited, and those that they waited for.
    waiters: flow::Sums,
    holders: flow::Sums,
}

impl<'a> Holders<'a> {
    fn new(names: &'a Names, selection: &'a Selection) -> Self {
        let (locks, sites, waiters, holders) = Default::default();
        Self { names, selection, locks, sites, waiters, holders }
    }

    /// Returns the bars of the locks and of the sites, the longest first, and the sums of waiters and
    /// holders.
    fn finish(self) -> (Vec<Bar>, Vec<Bar>, [flow::Sums; 2]) {
        let Self { names, locks, sites, waiters, holders, .. } = self;
        let site = |(charged, row): Site| {
            let label = label(charged, By::Site, Some(&row.label(names)), None);
            // The legend says what a hand-off is.
            label.replacen("(hand-off: free, the next waiter is not running yet)", "(hand-off)", 1)
        };
        (bars(locks, |lock| names.lock_label(lock)), bars(sites, site), [waiters, holders])
    }
}

impl Sink for Holders<'_> {
    fn push(&mut self, item: Item<'_>) {
        let (names, selection) = (self.names, self.selection);
        let caused = match item {
            Item::Caused(caused) => caused,
            Item::Wait(wait) if selection.selects_wait(wait) && selection.selects_lock(wait.lock.0) => {
                let waiter = (Payee::Hold(wait.stack, wait.task), wait.wait_ns);
                return flow::add_to(&mut self.waiters, names, wait.lock, waiter);
            }
            _ => return,
        };
        let class = Single::Class(names.class_number(caused.lock));
        let known = Meanwhile::Held(caused.state.unwrap_or_default());
        let (charged, row, meanwhile) = match caused.payer {
            Payer::Hold(hold) => {
                let point = names.point_number(caused.lock, hold.stack);
                let site = Single::Site(point, names.class_number(caused.lock));
                (Charged::Hold, site, known)
            }
            Payer::Owner(_) => (Charged::Owner, class, known),
            Payer::Handoff => (Charged::Handoff, class, Meanwhile::Handoff),
            Payer::Gap | Payer::Oneself => (Charged::Gap, class, Meanwhile::Unknown),
            Payer::Cycle | Payer::Unknown => (Charged::Unknown, class, Meanwhile::Unknown),
        };
        flow::add_to(&mut self.holders, names, caused.lock, (caused.payer.into(), caused.ns));
        add(self.locks.entry((caused.lock, meanwhile)).or_default(), caused.ns);
        add(self.sites.entry(((charged, row), meanwhile)).or_default(), caused.ns);
    }
}

/// Returns a bar per name, the longest first.
fn bars<K: Copy>(sums: FxHashMap<(K, Meanwhile), i64>, name: impl Fn(K) -> String) -> Vec<Bar> {
    let mut bars: BTreeMap<String, BTreeMap<Meanwhile, i64>> = BTreeMap::new();
    for ((key, meanwhile), ns) in sums.into_iter().filter(|(_, ns)| *ns > 0) {
        add(bars.entry(name(key)).or_default().entry(meanwhile).or_default(), ns);
    }
    let bar = |(name, parts): (String, BTreeMap<_, _>)| Bar { name, parts: parts.into_iter().collect() };
    let mut bars: Vec<Bar> = bars.into_iter().map(bar).collect();
    bars.sort_by_key(|bar| Reverse(bar.ns()));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, committed};
    use tables::blame::{self as table, By, Charged, Options};

    fn total(bars: &[Bar]) -> i64 {
        bars.iter().flat_map(|bar| &bar.parts).map(|(_, ns)| ns).sum()
    }

    #[test]
    fn the_sums_of_each_part_of_the_picture_are_those_of_the_table() {
        for name in
            ["shop", "chain", "first_problem", "futex", "demo", "kernel", "redis", "memcached", "threads_64"]
        {
            let trace = committed(name);
            let picture = blame(&trace, &Filter::default()).unwrap();
            let table = table::blame(std::slice::from_ref(&trace), &Options::default()).unwrap();
            let waited_ns = table.totals.waited_ns;
            let links = |flow: &Flow| flow.links.iter().map(|link| link.ns).sum::<i64>();
            let sums =
                [links(&picture.tasks), links(&picture.code), total(&picture.locks), total(&picture.sites)];
            assert_eq!(sums, [waited_ns; 4], "{name}");
            assert_eq!(picture.waited_ns, waited_ns, "{name}");
        }
    }

    #[test]
    fn tasks_caused_the_waiting_that_the_table_charges_to_them() {
        let trace = committed("shop");
        let flow = blame(&trace, &Filter::default()).unwrap().tasks;
        let options = Options { by: By::Task, ..Options::default() };
        let table = table::blame(std::slice::from_ref(&trace), &options).unwrap();
        let charged = table.rows.iter().filter(|row| row.key.charged_to == Some(Charged::Hold));
        let mut tasks = 0;
        for row in charged {
            let node = flow.holders.iter().find(|node| node.name == row.name).unwrap();
            // A task may be charged as an owner, too.
            let owner = format!("{}, the owner by the lock word", row.name);
            let owner =
                table.rows.iter().find(|row| row.name == owner).map_or(0, |row| row["wait_caused_ns"]);
            assert_eq!(node.ns, row["wait_caused_ns"] + owner, "{}", row.name);
            tasks += 1;
        }
        assert!(tasks > 1);
    }

    #[test]
    fn states_of_holders_are_those_of_the_table() {
        let trace = committed("chain");
        let picture = blame(&trace, &Filter::default()).unwrap();
        let options = Options { by: By::State, ..Options::default() };
        let table = table::blame(std::slice::from_ref(&trace), &options).unwrap();
        let mut found = 0;
        for row in table.rows.iter().filter_map(|row| row.key.state.map(|state| (row, state))) {
            let (row, state) = row;
            let rows =
                table.rows.iter().filter(|other| other.name == row.name && other.key.state == Some(state));
            let ns: i64 = rows.map(|row| row["wait_caused_ns"]).sum();
            let bar = picture.sites.iter().find(|bar| bar.name == row.name).unwrap();
            assert!(bar.parts.contains(&(Meanwhile::Held(state), ns)), "{} {state:?} {bar:?}", row.name);
            found += 1;
        }
        assert!(found > 2);
    }

    #[test]
    fn a_wait_is_a_link_from_the_waiter_to_each_holder() {
        let test = testing::trace(
            "1_000 A acquire m a.c:1\n1_100 B wait m b.c:2\n1_200 C wait m c.c:3\n2_000 A release m
             2_000 B acquire m b.c:2 wait=900\n2_500 B release m\n2_500 C acquire m c.c:3 wait=1_300\n2_600 C release m",
        );
        let Blame { tasks, .. } = blame(&test.trace, &Filter::default()).unwrap();
        let name = |node: &Node| node.name.split(' ').next().unwrap().to_owned();
        let links: Vec<(String, String, i64)> = tasks
            .links
            .iter()
            .map(|link| (name(&tasks.waiters[link.waiter]), name(&tasks.holders[link.holder]), link.ns))
            .collect();
        let expected = [("C", "A", 800), ("C", "B", 500), ("B", "A", 900)];
        assert_eq!(links, expected.map(|(waiter, holder, ns)| (waiter.to_owned(), holder.to_owned(), ns)));
    }

    #[test]
    fn tasks_beyond_the_limit_are_one_node_with_their_time() {
        let mut text = "1_000 H acquire m a.c:1\n".to_owned();
        for thread in 0..40 {
            text.push_str(&format!("{} T{thread} wait m b.c:2\n", 1_001 + thread));
        }
        for thread in 0..40 {
            text.push_str(&format!("{} T{thread} abandon m wait={}\n", 2_001 + thread, 1_000));
        }
        text.push_str("3_000 H release m");
        let test = testing::trace(&text);
        let Flow { waiters, .. } = blame(&test.trace, &Filter::default()).unwrap().tasks;
        assert_eq!(waiters.len(), MAX_NODES);
        let rest = waiters.last().unwrap();
        assert_eq!(
            (rest.party, rest.ns),
            (Party::More(40 - MAX_NODES + 1), 1_000 * (40 - MAX_NODES + 1) as i64)
        );
    }
}
