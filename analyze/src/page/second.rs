//! The reading of a page that follows causes: the causes of waits enter, and the holds and waits of all locks. The ends of chains, the
//! parts of the waits for judged locks, the states of holders, levels and the intervals of windows leave; and tables, unless another reading
//! has made them.

use super::{levels::Levels, windows::Keep};
use crate::{
    causes::{Caused, Passed, Receiver},
    engine::{Hold, Share, Sink, TryFailure, Wait},
    input::{Detail, selection::Selection},
    tables::{chains, report::RowStates, why},
};

/// The receivers other than those of the tables.
pub(super) struct Rest<'a> {
    pub(super) chains: chains::RootsFound<'a>,
    pub(super) why: why::Parts<'a>,
    pub(super) states: Option<RowStates<'a>>,
    pub(super) timeline: (Levels, Keep),
}

/// Receives everything that the page needs of a trace once its windows are known. `S` receives the selected intervals, as in a reading
/// of them alone.
pub(super) struct Second<'a, S> {
    selection: &'a Selection,
    tables: S,
    chains: chains::RootsFound<'a>,
    why: why::Parts<'a>,
    /// The states of the holders in the rows of the report, if they are recorded.
    states: Option<RowStates<'a>>,
    timeline: (Levels, Keep),
    /// Plain holds of selected locks that are not in the sums yet.
    plain: Vec<Hold>,
}

/// Plain holds that are added together: few enough to stay in a processor's nearest cache.
const PLAIN: usize = 64;

impl<'a, S: Sink> Second<'a, S> {
    pub(super) fn new(
        selection: &'a Selection,
        tables: S,
        chains: chains::RootsFound<'a>,
        why: why::Parts<'a>,
        states: Option<RowStates<'a>>,
        timeline: (Levels, Keep),
    ) -> Self {
        Self { selection, tables, chains, why, states, timeline, plain: Vec::with_capacity(PLAIN) }
    }

    /// Returns the receiver of the tables, and the rest.
    pub(super) fn finish(mut self) -> (S, Rest<'a>) {
        self.add_plain();
        let Self { tables, chains, why, states, timeline, .. } = self;
        (tables, Rest { chains, why, states, timeline })
    }

    /// Adds the plain holds to all sums.
    fn add_plain(&mut self) {
        self.plain.iter().for_each(|hold| self.why.hold(hold));
        self.tables.plain_holds(&self.plain);
        let selected = self.plain.iter().filter(|hold| self.selection.selects_hold(hold));
        selected.for_each(|hold| self.timeline.0.hold(hold));
        self.plain.clear();
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
        if let Some(states) = &mut self.states {
            states.caused(caused);
        }
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
        if let Some(states) = &mut self.states {
            states.hold(hold);
        }
        if !self.selection.selects_lock(hold.lock.0) {
            return self.why.hold(hold);
        }
        let is_selected = self.selection.selects_hold(hold);
        if is_selected {
            self.timeline.1.hold(hold);
        }
        if hold.is_plain() {
            self.tables.plain_ended(hold);
            self.plain.push(*hold);
            if self.plain.len() == PLAIN {
                self.add_plain();
            }
            return;
        }
        self.why.hold(hold);
        self.tables.hold(hold);
        if is_selected {
            self.timeline.0.hold(hold);
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
