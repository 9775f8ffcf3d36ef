//! Sinks: receivers of intervals as they begin and end.

use super::interval::{Hold, Share, SimpleHold, TryFailure, Wait};

/// Receives the intervals of an engine.
pub trait Sink {
    /// Whether [`share`](Self::share) is called. Making shares costs a step per waiter at every event of a lock; the sums in
    /// holds and waits do not need it.
    const SHARES: bool = false;

    /// A hold began, with what is known of it so far. A further acquisition within a shared hold is reported the same way, with
    /// that hold, whose end is then the time of that acquisition.
    fn acquired(&mut self, hold: &Hold) {
        let _ = hold;
    }
    /// Whether [`acquired`](Self::acquired) does anything. Most sinks ignore it, and making a hold takes as long as pairing it.
    fn follows_acquired(&self) -> bool {
        true
    }
    /// A wait began; it ends in [`wait`](Self::wait). Not called for waits that are known only from their end.
    fn wait_begins(&mut self, wait: &Wait) {
        let _ = wait;
    }
    /// A hold ended. A reading may send a plain one (`Hold::is_plain`) to [`plain_ended`](Self::plain_ended) and
    /// [`plain_holds`](Self::plain_holds) instead.
    fn hold(&mut self, hold: &Hold);
    /// A simple hold ended. Sinks that make little of most holds need not make a [`Hold`] of it.
    fn simple_hold(&mut self, hold: &SimpleHold) {
        self.hold(&hold.to_hold());
    }
    /// A plain hold ended, of which [`plain_holds`](Self::plain_holds) adds the sums later. For sinks that follow the order of intervals.
    fn plain_ended(&mut self, hold: &Hold) {
        let _ = hold;
    }
    /// Plain holds that ended some time ago. Each of several sinks adds all of them before the next sink does: the processor then waits
    /// for the memory of several rows at a time.
    fn plain_holds(&mut self, holds: &[Hold]) {
        holds.iter().for_each(|hold| self.hold(hold));
    }
    /// A wait ended.
    fn wait(&mut self, wait: &Wait);
    /// A share of `wait`, which may not have ended.
    fn share(&mut self, wait: &Wait, share: &Share) {
        let _ = (wait, share);
    }
    /// An attempt found the lock taken and did not wait.
    fn try_failed(&mut self, failure: &TryFailure) {
        let _ = failure;
    }
    /// `count` events are missing before `ts_ns`; 0 if the count was not read. Every sink of a parallel reading is called.
    fn lost(&mut self, ts_ns: i64, count: i64) {
        let _ = (ts_ns, count);
    }
    /// Whether the rest of the trace need not be read.
    fn has_enough(&self) -> bool {
        false
    }
}

impl<S: Sink> Sink for &mut S {
    const SHARES: bool = S::SHARES;

    fn acquired(&mut self, hold: &Hold) {
        S::acquired(self, hold);
    }

    fn follows_acquired(&self) -> bool {
        S::follows_acquired(self)
    }

    fn wait_begins(&mut self, wait: &Wait) {
        S::wait_begins(self, wait);
    }

    fn hold(&mut self, hold: &Hold) {
        S::hold(self, hold);
    }

    fn simple_hold(&mut self, hold: &SimpleHold) {
        S::simple_hold(self, hold);
    }

    fn plain_ended(&mut self, hold: &Hold) {
        S::plain_ended(self, hold);
    }

    fn plain_holds(&mut self, holds: &[Hold]) {
        S::plain_holds(self, holds);
    }

    fn wait(&mut self, wait: &Wait) {
        S::wait(self, wait);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        S::share(self, wait, share);
    }

    fn try_failed(&mut self, failure: &TryFailure) {
        S::try_failed(self, failure);
    }

    fn lost(&mut self, ts_ns: i64, count: i64) {
        S::lost(self, ts_ns, count);
    }

    fn has_enough(&self) -> bool {
        S::has_enough(self)
    }
}

/// Ignores all intervals.
impl Sink for () {
    fn hold(&mut self, _: &Hold) {}

    fn wait(&mut self, _: &Wait) {}
}

/// A sink that keeps every interval. It grows with the trace, so it is for tests and single locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// In the order of their ends.
    pub waits: Vec<Wait>,
}

impl Sink for Intervals {
    fn hold(&mut self, hold: &Hold) {
        self.holds.push(*hold);
    }

    fn wait(&mut self, wait: &Wait) {
        self.waits.push(*wait);
    }
}
