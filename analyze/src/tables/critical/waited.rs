//! The waits beside a path: intervals enter, the waiting for each lock leaves.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::{
    engine::{Hold, Sink, Wait},
    input::{selection::Selection, trust::TrustCounter},
};

/// The selected waits by lock, in ns, and the counts of the trust block.
pub(super) struct Waited<'a> {
    selection: &'a Selection,
    pub(super) by_lock: FxHashMap<LockId, i64>,
    pub(super) trust: TrustCounter,
}

impl<'a> Waited<'a> {
    pub(super) fn new(selection: &'a Selection) -> Self {
        Self { selection, by_lock: FxHashMap::default(), trust: TrustCounter::default() }
    }
}

impl Sink for Waited<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.selection.selects_hold(hold) {
            self.trust.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            let ns = self.by_lock.entry(wait.lock).or_default();
            *ns = ns.saturating_add(wait.wait_ns);
        }
    }
}
