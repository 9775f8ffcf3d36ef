//! Receivers of waiting time by cause. A pass sends time, holds and waits as they become known.

use trace_format::EventRow;

use super::{Caused, Passed};
use crate::{
    engine::{Hold, Share, TryFailure, Wait},
    input,
};

/// Receives waiting time by cause, and holds as they end.
pub(crate) trait Receiver {
    /// Whether time is caused by the roots of chains, and waits inside other waits of the same task do not count.
    const CHAINS: bool = false;

    /// Whether [`direct`](Self::direct) is called beside the roots of chains.
    const DIRECT: bool = false;

    /// Whether [`share`](Self::share) is called, as in [`Sink`](crate::engine::Sink::SHARES).
    const SHARES: bool = false;

    /// The columns that it needs.
    const DETAIL: input::Detail = input::Detail::Causes;

    /// The next row, before its effect on waits and holds.
    fn row(&mut self, row: &impl EventRow) {
        let _ = row;
    }

    /// Time of waits. The time that a hold causes may arrive after its end, at the next row of its task.
    fn caused(&mut self, caused: &Caused);

    /// Time of waits by their payers. Only with [`DIRECT`](Self::DIRECT).
    fn direct(&mut self, caused: &Caused) {
        let _ = caused;
    }

    /// Time that is passed on. Only with [`CHAINS`](Self::CHAINS).
    fn passed(&mut self, passed: &Passed) {
        let _ = passed;
    }

    /// Time of waits inside other waits of the same task. Only with [`CHAINS`](Self::CHAINS).
    fn nested(&mut self, ns: i64) {
        let _ = ns;
    }

    /// A hold began, as in [`Sink`](crate::engine::Sink::acquired).
    fn acquired(&mut self, hold: &Hold) {
        let _ = hold;
    }

    /// A wait began.
    fn wait_begins(&mut self, wait: &Wait) {
        let _ = wait;
    }

    /// A share of a wait. Only with [`SHARES`](Self::SHARES).
    fn share(&mut self, wait: &Wait, share: &Share) {
        let _ = (wait, share);
    }

    /// An attempt found the lock taken and did not wait.
    fn try_failed(&mut self, failure: &TryFailure) {
        let _ = failure;
    }

    /// A hold ended.
    fn hold(&mut self, hold: &Hold) {
        let _ = hold;
    }

    /// Plain holds that ended some time ago, in a reading that sends them together, as in [`Sink`](crate::engine::Sink::plain_holds).
    fn plain_holds(&mut self, holds: &[Hold]) {
        holds.iter().for_each(|hold| self.hold(hold));
    }

    /// A wait ended.
    fn wait(&mut self, wait: &Wait) {
        let _ = wait;
    }
}
