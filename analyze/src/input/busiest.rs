//! The locks with the most waiting: intervals enter, labels of locks leave.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::{names::Names, selection::Selection};
use crate::items::{Columns, Item, Needs, Sink};

/// Locks that an error suggests.
const MAX_SUGGESTIONS: usize = 5;

/// The waiting before credited holds by lock, in ns; `None` if it is not known of any of them.
pub(super) struct WaitSums<'a> {
    selection: &'a Selection,
    by_lock: FxHashMap<LockId, Option<i64>>,
}

impl<'a> WaitSums<'a> {
    pub(super) fn new(selection: &'a Selection) -> Self {
        Self { selection, by_lock: FxHashMap::default() }
    }

    /// Returns the labels of the busiest locks, most waiting first: `#3 hot_mutex (pthread_mutex)`. Each lock is in one sink.
    pub(super) fn labels(sinks: Vec<Self>, names: &Names) -> Vec<String> {
        let sums = sinks.into_iter().flat_map(|sink| sink.by_lock);
        let mut sums: Vec<_> = sums.map(|(lock, wait_ns)| (wait_ns, names.lock_label(lock), lock)).collect();
        sums.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (&a.1, a.2).cmp(&(&b.1, b.2))));
        sums.into_iter().take(MAX_SUGGESTIONS).map(|(_, label, _)| label).collect()
    }
}

impl Sink for WaitSums<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        if let Item::Hold(hold) = item
            && self.selection.selects_hold(hold)
            && hold.is_credited()
        {
            let sum = self.by_lock.entry(hold.lock).or_default();
            *sum = hold.wait_ns.map_or(*sum, |ns| Some(sum.unwrap_or(0).saturating_add(ns)));
        }
    }
}
