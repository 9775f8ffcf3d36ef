//! The second reading of a page: the causes of waits enter, and the holds and waits of all locks. The ends of chains, the parts of the
//! waits for judged locks, levels and the intervals of windows leave.

use super::{levels::Levels, windows::Keep};
use crate::{
    causes::{Caused, Passed, Receiver},
    engine::{Hold, Sink as _, Wait},
    input::selection::Selection,
    tables::{chains, why},
};

/// Receives everything that the page needs of a trace once its locks are ranked.
pub(super) struct Second<'a> {
    pub(super) selection: &'a Selection,
    pub(super) chains: chains::RootsFound<'a>,
    pub(super) why: why::Parts<'a>,
    pub(super) timeline: (Levels<'a>, Keep<'a>),
}

impl Receiver for Second<'_> {
    const CHAINS: bool = true;
    const DIRECT: bool = true;

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

    fn hold(&mut self, hold: &Hold) {
        self.why.hold(hold);
        if self.selection.selects_lock(hold.lock.0) {
            self.timeline.0.hold(hold);
            self.timeline.1.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_lock(wait.lock.0) {
            self.timeline.0.wait(wait);
            self.timeline.1.wait(wait);
        }
    }
}
