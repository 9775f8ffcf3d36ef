//! Readings that make tables and follow causes: one reading of all rows of a trace gives the sums of tables
//! and what a sink makes of the causes.

use super::gather::{self, Gather};
use intervals::{
    causes::{self, Followed},
    input::Input,
    input::selection::Selection,
    items::{Columns, Item, Needs, Sink},
};
use output::error::AnalyzeError;

/// Follows the causes of waits for the locks of an input, and gathers from its intervals in the same reading.
/// `readers` read where that would give other intervals than a reading of one lock after the other.
///
/// # Errors
///
/// The trace cannot be read, or lost too much and `allow_loss` is not set.
pub fn follow<G: Gather, R: Sink>(
    (inputs, at): (&[Input<'_>], usize),
    (readers, allow_loss): (usize, bool),
    gather: &mut G,
    receiver: impl Fn(&G) -> R,
) -> Result<Followed<R>, AnalyzeError> {
    let selection = &inputs[at].selection;
    let beside = || Beside { selection, sink: gather.sink(at), receiver: receiver(gather) };
    let followed = causes::of_waits(&inputs[at], allow_loss, beside)?;
    let Followed { receiver: Beside { sink, receiver, .. }, stats, trust, outcome } = followed;
    // Where rows are out of order, a reading of all locks gives some of them other times than a reading by
    // lock.
    if stats.late_rows == 0 {
        gather.add(at, vec![sink], &outcome)?;
    } else {
        gather::read_one((inputs, at), readers, gather)?;
    }
    Ok(Followed { receiver, stats, trust, outcome })
}

/// A receiver of causes, and a sink that gets the intervals of the selected locks, as in a reading of them
/// alone.
struct Beside<'a, S, R> {
    selection: &'a Selection,
    sink: S,
    receiver: R,
}

impl<S: Sink, R: Sink> Sink for Beside<'_, S, R> {
    #[inline]
    fn needs(&self) -> Needs {
        let Needs { acquired, shares, .. } = self.sink.needs();
        let receiver = self.receiver.needs();
        let (acquired, shares) = (acquired || receiver.acquired, shares || receiver.shares);
        Needs { acquired, shares, columns: Columns::CausesAndPeers, ..receiver }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        self.receiver.push(item);
        if item.lock().is_some_and(|lock| self.selection.selects_lock(lock.0)) {
            self.sink.push(item);
        }
    }
}
