//! Readings that make tables and follow causes: all rows of a trace enter once, the sums of tables and what a receiver made of the causes
//! leave.

use trace_format::EventRow;

use super::gather::{self, Gather};
use crate::{
    causes::{self, Caused, Followed, Passed, Receiver},
    engine::{Hold, Share, Sink, TryFailure, Wait},
    error::AnalyzeError,
    input::{Detail, Input, selection::Selection},
};

/// Follows the causes of waits for the locks of an input, and gathers from its intervals in the same reading. `readers` read where that would
/// give other intervals than a reading of one lock after the other.
///
/// # Errors
///
/// The trace cannot be read, or lost too much and `allow_loss` is not set.
pub(crate) fn follow<G: Gather, R: Receiver>(
    (inputs, at): (&[Input<'_>], usize),
    (readers, allow_loss): (usize, bool),
    gather: &mut G,
    receiver: impl Fn(&G) -> R,
) -> Result<Followed<R>, AnalyzeError> {
    let input = &inputs[at];
    let beside = || Beside::new(&input.selection, gather.sink(at), receiver(gather));
    let Followed { receiver, stats, trust, outcome } = causes::of_waits(input, allow_loss, beside)?;
    let (sink, receiver) = receiver.finish();
    // Where rows are out of order, a reading of all locks gives some of them other times than a reading by lock.
    if stats.late_rows == 0 {
        gather.add(at, vec![sink], &outcome)?;
    } else {
        gather::read_one((inputs, at), readers, gather)?;
    }
    Ok(Followed { receiver, stats, trust, outcome })
}

/// A receiver of causes, and a sink that gets the intervals of the selected locks, as in a reading of them alone.
struct Beside<'a, S, R> {
    selection: &'a Selection,
    sink: S,
    receiver: R,
    /// Plain holds of selected locks that are not in the sums yet.
    plain: Vec<Hold>,
}

/// Plain holds that are added together: few enough to stay in a processor's nearest cache.
const PLAIN: usize = 64;

impl<'a, S: Sink, R: Receiver> Beside<'a, S, R> {
    fn new(selection: &'a Selection, sink: S, receiver: R) -> Self {
        Self { selection, sink, receiver, plain: Vec::with_capacity(PLAIN) }
    }

    fn finish(mut self) -> (S, R) {
        self.add_plain();
        (self.sink, self.receiver)
    }

    fn add_plain(&mut self) {
        self.receiver.plain_holds(&self.plain);
        self.sink.plain_holds(&self.plain);
        self.plain.clear();
    }

    /// Sends something of a lock to the sink, if the lock is selected.
    #[inline]
    fn send(&mut self, lock: i32, send: impl Fn(&mut S)) {
        if self.selection.selects_lock(lock) {
            send(&mut self.sink);
        }
    }
}

impl<S: Sink, R: Receiver> Receiver for Beside<'_, S, R> {
    const CHAINS: bool = R::CHAINS;
    const DIRECT: bool = R::DIRECT;
    const SHARES: bool = S::SHARES;
    const DETAIL: Detail = Detail::CausesAndPeers;

    #[inline]
    fn row(&mut self, row: &impl EventRow) {
        self.receiver.row(row);
    }

    fn caused(&mut self, caused: &Caused) {
        self.receiver.caused(caused);
    }

    fn direct(&mut self, caused: &Caused) {
        self.receiver.direct(caused);
    }

    fn passed(&mut self, passed: &Passed) {
        self.receiver.passed(passed);
    }

    fn nested(&mut self, ns: i64) {
        self.receiver.nested(ns);
    }

    #[inline]
    fn acquired(&mut self, hold: &Hold) {
        self.send(hold.lock.0, |sink| sink.acquired(hold));
    }

    fn wait_begins(&mut self, wait: &Wait) {
        self.send(wait.lock.0, |sink| sink.wait_begins(wait));
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.send(wait.lock.0, |sink| sink.share(wait, share));
    }

    fn try_failed(&mut self, failure: &TryFailure) {
        self.send(failure.lock.0, |sink| sink.try_failed(failure));
    }

    #[inline]
    fn hold(&mut self, hold: &Hold) {
        let is_selected = self.selection.selects_lock(hold.lock.0);
        if is_selected && hold.is_plain() {
            self.sink.plain_ended(hold);
            self.plain.push(*hold);
            if self.plain.len() == PLAIN {
                self.add_plain();
            }
            return;
        }
        self.receiver.hold(hold);
        if is_selected {
            self.sink.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        self.receiver.wait(wait);
        self.send(wait.lock.0, |sink| sink.wait(wait));
    }
}
