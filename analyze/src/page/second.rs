//! The reading of a page that follows causes: the causes of waits enter, and the holds and waits of all locks. The ends of chains, the
//! parts of the waits for judged locks, levels and the intervals of windows leave; and tables, unless another reading has made them.

use super::{levels::Levels, windows::Keep};
use crate::{
    causes::{Caused, Passed, Receiver},
    engine::{Hold, Share, Sink, TryFailure, Wait},
    input::{Detail, selection::Selection},
    tables::{chains, why},
};

/// Receives everything that the page needs of a trace once its windows are known. `S` receives the selected intervals, as in a reading
/// of them alone.
pub(super) struct Second<'a, S> {
    pub(super) selection: &'a Selection,
    pub(super) tables: S,
    pub(super) chains: chains::RootsFound<'a>,
    pub(super) why: why::Parts<'a>,
    pub(super) timeline: (Levels, Keep),
}

impl<'a, S: Sink> Second<'a, S> {
    /// Returns the receiver of the tables, and the rest.
    pub(super) fn take_tables(self) -> (S, Second<'a, ()>) {
        let Self { selection, tables, chains, why, timeline } = self;
        (tables, Second { selection, tables: (), chains, why, timeline })
    }

    /// Sends something of a lock to the tables, if the lock is selected.
    #[inline]
    fn send_to_tables(&mut self, lock: i32, send: impl Fn(&mut S)) {
        if self.selection.selects_lock(lock) {
            send(&mut self.tables);
        }
    }
}

impl<S: Sink> Receiver for Second<'_, S> {
    const CHAINS: bool = true;
    const DIRECT: bool = true;
    const SHARES: bool = S::SHARES;
    const DETAIL: Detail = Detail::CausesAndPeers;

    fn caused(&mut self, caused: &Caused) {
        self.chains.caused(caused);
    }

    fn direct(&mut self, caused: &Caused) {
        self.why.caused(caused);
    }

    fn passed(&mut self, passed: &Passed) {
        self.chains.passed(passed);
    }

    fn nested(&mut self, ns: i64) {
        self.chains.nested(ns);
    }

    #[inline]
    fn acquired(&mut self, hold: &Hold) {
        self.send_to_tables(hold.lock.0, |tables| tables.acquired(hold));
    }

    fn wait_begins(&mut self, wait: &Wait) {
        self.send_to_tables(wait.lock.0, |tables| tables.wait_begins(wait));
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.send_to_tables(wait.lock.0, |tables| tables.share(wait, share));
    }

    fn try_failed(&mut self, failure: &TryFailure) {
        self.send_to_tables(failure.lock.0, |tables| tables.try_failed(failure));
    }

    #[inline]
    fn hold(&mut self, hold: &Hold) {
        self.why.hold(hold);
        if self.selection.selects_lock(hold.lock.0) {
            self.tables.hold(hold);
            if self.selection.selects_hold(hold) {
                self.timeline.0.hold(hold);
                self.timeline.1.hold(hold);
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_lock(wait.lock.0) {
            self.tables.wait(wait);
            if self.selection.selects_wait(wait) {
                self.timeline.0.wait(wait);
                self.timeline.1.wait(wait);
            }
        }
    }
}
