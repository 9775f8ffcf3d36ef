//! The waits beside a path: intervals enter, the waiting for each lock leaves.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::{
    input::{selection::Selection, trust::SelectedCounter},
    items::{Item, Sink},
};

/// The selected waits by lock, in ns, and the counts of the trust block.
pub(super) struct Waited<'a> {
    pub(super) counter: SelectedCounter<'a>,
    pub(super) by_lock: FxHashMap<LockId, i64>,
}

impl<'a> Waited<'a> {
    pub(super) fn new(selection: &'a Selection) -> Self {
        Self { counter: SelectedCounter::new(selection), by_lock: FxHashMap::default() }
    }
}

impl Sink for Waited<'_> {
    fn push(&mut self, item: Item<'_>) {
        self.counter.push(item);
        if let Item::Wait(wait) = item
            && self.counter.selection.selects_wait(wait)
        {
            let ns = self.by_lock.entry(wait.lock).or_default();
            *ns = ns.saturating_add(wait.wait_ns);
        }
    }
}
