//! The waits by lock and by site of the holder, in parts by the state of the holder's task.
//!
//! The causes of waits enter, bars leave.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use trace_format::LockId;

use intervals::{
    input::names::Names,
    items::{Item, Payer, Sink, State},
};
use tables::{
    blame::{By, Charged, label},
    key::{Key, RowKey},
};

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
type Site = (Charged, RowKey);

/// Adds up the causes of waits.
pub(super) struct Holders<'a> {
    names: &'a Names,
    locks: FxHashMap<(LockId, Meanwhile), i64>,
    sites: FxHashMap<(Site, Meanwhile), i64>,
}

impl<'a> Holders<'a> {
    pub(super) fn new(names: &'a Names) -> Self {
        Self { names, locks: FxHashMap::default(), sites: FxHashMap::default() }
    }

    /// Returns the bars of the locks and of the sites, the longest first.
    pub(super) fn finish(self) -> (Vec<Bar>, Vec<Bar>) {
        let Self { names, locks, sites } = self;
        let site =
            |(charged, row): Site| label(charged, By::Site, Some(&Key::of(row, names).label(names)), None);
        (bars(locks, |lock| names.lock_label(lock)), bars(sites, site))
    }
}

impl Sink for Holders<'_> {
    fn push(&mut self, item: Item<'_>) {
        let Item::Caused(caused) = item else { return };
        let names = self.names;
        let class = RowKey::Class(names.class_number(caused.lock));
        let known = Meanwhile::Held(caused.state.unwrap_or_default());
        let (charged, row, meanwhile) = match caused.payer {
            Payer::Hold(hold) => {
                let point = names.point_number(caused.lock, hold.stack);
                (Charged::Hold, RowKey::Site(point, names.class_number(caused.lock)), known)
            }
            Payer::Owner(_) => (Charged::Owner, class, known),
            Payer::Handoff => (Charged::Handoff, class, Meanwhile::Handoff),
            Payer::Gap | Payer::Oneself => (Charged::Gap, class, Meanwhile::Unknown),
            Payer::Cycle | Payer::Unknown => (Charged::Unknown, class, Meanwhile::Unknown),
        };
        for sum in [
            self.locks.entry((caused.lock, meanwhile)).or_default(),
            self.sites.entry(((charged, row), meanwhile)).or_default(),
        ] {
            *sum = sum.saturating_add(caused.ns);
        }
    }
}

/// Returns a bar per name, the longest first.
fn bars<K: Copy>(sums: FxHashMap<(K, Meanwhile), i64>, name: impl Fn(K) -> String) -> Vec<Bar> {
    let mut bars: BTreeMap<String, BTreeMap<Meanwhile, i64>> = BTreeMap::new();
    for ((key, meanwhile), ns) in sums.into_iter().filter(|(_, ns)| *ns > 0) {
        let sum = bars.entry(name(key)).or_default().entry(meanwhile).or_default();
        *sum = sum.saturating_add(ns);
    }
    let bar = |(name, parts): (String, BTreeMap<_, _>)| Bar { name, parts: parts.into_iter().collect() };
    let mut bars: Vec<Bar> = bars.into_iter().map(bar).collect();
    bars.sort_by_key(|bar| Reverse(bar.ns()));
    bars
}
