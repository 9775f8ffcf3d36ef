//! Receivers of waiting time by cause. A pass sends time, holds and waits as they become known.

use super::{Caused, Passed};
use crate::engine::{Hold, Wait};

/// Receives waiting time by cause, and holds as they end.
pub(crate) trait Receiver {
    /// Whether time is caused by the roots of chains, and waits inside other waits of the same task do not count.
    const CHAINS: bool = false;

    /// Whether [`direct`](Self::direct) is called beside the roots of chains.
    const DIRECT: bool = false;

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

    /// A hold ended.
    fn hold(&mut self, hold: &Hold) {
        let _ = hold;
    }

    /// A wait ended.
    fn wait(&mut self, wait: &Wait) {
        let _ = wait;
    }
}
