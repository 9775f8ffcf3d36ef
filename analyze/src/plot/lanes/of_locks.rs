//! Sinks of several locks: the intervals of all of them enter one reading, and each sink gets those of its lock.

use trace_format::LockId;

use crate::engine::{Hold, Share, Sink, Wait};

/// A sink for each lock. A lock that is given twice has its intervals in each of its sinks.
pub(in crate::plot) struct OfLocks<S>(pub(in crate::plot) Vec<(LockId, S)>);

impl<S> OfLocks<S> {
    fn of(&mut self, lock: LockId) -> impl Iterator<Item = &mut S> {
        self.0.iter_mut().filter(move |(id, _)| *id == lock).map(|(_, sink)| sink)
    }
}

impl<S: Sink> Sink for OfLocks<S> {
    const SHARES: bool = S::SHARES;

    fn hold(&mut self, hold: &Hold) {
        self.of(hold.lock).for_each(|sink| sink.hold(hold));
    }

    fn wait(&mut self, wait: &Wait) {
        self.of(wait.lock).for_each(|sink| sink.wait(wait));
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.of(wait.lock).for_each(|sink| sink.share(wait, share));
    }

    fn lost(&mut self, ts_ns: i64, count: i64) {
        self.0.iter_mut().for_each(|(_, sink)| sink.lost(ts_ns, count));
    }
}
