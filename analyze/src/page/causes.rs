//! The part of a page that follows causes: the causes of waits enter, and the holds and waits of all locks. The ends of chains, the parts of
//! the waits for judged locks, the states of holders, levels and the intervals of windows leave.

use trace_format::EventRow;

use super::{levels::Levels, windows::Keep};
use crate::{
    causes::{Caused, Passed, Receiver},
    engine::{Hold, Sink as _, Wait},
    input::selection::Selection,
    tables::{chains, report::RowStates, why},
};

/// Receives everything that the page needs of a trace once its windows are known, other than what its tables gather.
pub(super) struct Causes<'a> {
    pub(super) selection: &'a Selection,
    pub(super) chains: chains::RootsFound<'a>,
    pub(super) why: why::Parts<'a>,
    /// The states of the holders in the rows of the report, if they are recorded.
    pub(super) states: Option<RowStates<'a>>,
    pub(super) levels: Levels,
    pub(super) keep: Keep,
}

impl Causes<'_> {
    fn selects(&self, hold: &Hold) -> bool {
        self.selection.selects_lock(hold.lock.0) && self.selection.selects_hold(hold)
    }
}

impl Receiver for Causes<'_> {
    const CHAINS: bool = true;
    const DIRECT: bool = true;

    #[inline]
    fn row(&mut self, row: &impl EventRow) {
        self.why.row(row);
    }

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

    fn hold(&mut self, hold: &Hold) {
        if let Some(states) = &mut self.states {
            states.hold(hold);
        }
        self.plain_holds(std::slice::from_ref(hold));
    }

    /// Adds holds that nobody waited for: they have no states.
    fn plain_holds(&mut self, holds: &[Hold]) {
        holds.iter().for_each(|hold| self.why.hold(hold));
        for hold in holds {
            if self.selects(hold) {
                self.levels.hold(hold);
                self.keep.hold(hold);
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_lock(wait.lock.0) && self.selection.selects_wait(wait) {
            self.levels.wait(wait);
            self.keep.wait(wait);
        }
    }
}
